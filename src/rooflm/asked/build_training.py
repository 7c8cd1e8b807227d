"""From what a person writes to a training Scenario, with every assumption said; bad input raises RooflmError."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.asked.arguments import fields_at, filled
from rooflm.asked.assumed import built_for, engines_instead, kernel_unmeasured, usual_engine
from rooflm.asked.bounds import effective
from rooflm.asked.build_inference import (
    Built,
    apply_sets,
    efficiency_of,
    find_engine,
    not_built_for,
    opened,
    other_phase,
    refuse_absent,
    release_told,
    split_degrees,
    too_long,
)
from rooflm.asked.checks import whole
from rooflm.asked.refused import refuse
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Device
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.errors import RooflmError
from rooflm.kernels.dispatch import ALIGNED
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import PRESETS, parse_quant
from rooflm.readers.tables import is_array, one_of
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.rules import TRAINING
from rooflm.scenario.scenario import Scenario, Workload
from rooflm.scenario.training import Training
from rooflm.shown.numbers import plain_number
from rooflm.units import Num, pick, smaller

DTYPES: dict[str, Quant] = {
    **{name: PRESETS[name] for name in ("bf16", "fp16", "fp32", "tf32", "fp8")},
    "fp8-rowwise": replace(PRESETS["fp8"], name="fp8-rowwise", rowwise=True),
    **{name: PRESETS[name] for name in ("fp8-block", "mxfp8", "nvfp4", "int8")},
}
"""Data types of matrix products in training; master weights, gradients and states keep their own widths."""


def zero_stage(value: Any) -> Any:
    """ZeRO stage 0 to 3 from a number (or array), "none", "fsdp", "hsdp" or "ddp".

    >>> zero_stage("fsdp"), zero_stage("none"), zero_stage(1)
    (3, 0, 1)
    """
    words = {"none": 0, "ddp": 0, "zero0": 0, "zero1": 1, "dist-opt": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3}
    if isinstance(value, str) and not value.isdigit():
        return words[one_of("zero", value, words)]
    stage = whole("zero", int(value) if isinstance(value, str) else value, 0)
    if np.any(np.asarray(stage) > 3):
        raise RooflmError(f"zero is {plain_number(np.max(stage))}, but it must be 0, 1, 2 or 3 (fsdp)")
    return stage


def group_order(text: str | None) -> tuple[str, ...]:
    """Which groups take neighbouring devices, innermost first, from text such as "tp,cp,dp,pp" (or "tp-cp-dp-pp").

    >>> group_order("tp-pp-dp-cp")
    ('tp', 'pp', 'dp', 'cp')
    """
    usual = Mapping().order
    if text is None:
        return usual
    names = tuple(piece.strip().lower() for piece in text.replace("-", ",").split(","))
    if sorted(names) != sorted(usual):
        raise RooflmError(f"order is {text!r}, but it must name tp, cp, dp and pp once each, such as 'tp-cp-dp-pp'")
    return names


def whole_shares(batch: Num, dp: Num, pp: Num) -> Num:
    """A rank's share of the batch, as one micro-batch, or one sequence where there is a pipeline or no whole share.

    >>> whole_shares(64, 8, 1), whole_shares(64, 8, 2), whole_shares(60, 8, 1)
    (8, 1, 1)
    """
    return pick((pp <= 1) & (batch % dp == 0), batch // dp, 1)


def usual(name: str, values: Num) -> str:
    """What is said of a default that may differ along an axis.

    >>> usual("zero", 3), usual("zero", np.array([1, 3, 1]))
    ('zero 3', 'zero 1 or 3')
    """
    return f"{name} {' or '.join(plain_number(v) for v in np.unique(values))}"


def training_mapping(given: Dict[str, Any], degrees: Dict[str, Any], runner: Engine, assumed: list[str]) -> Mapping:
    """The Mapping from what was given, the degrees, and the framework's habits where nothing was."""
    asked = fields_at("mapping", "train", given) | dict(degrees)
    tp, pp, vp, habits = asked.get("tp", 1), asked.get("pp", 1), asked["vp"], runner.habits
    if "sp" not in asked:
        asked["sp"] = bool(habits.sequence_parallel and (is_array(tp) or tp > 1))
        if asked["sp"]:
            assumed.append("sp on")
    if "zero" not in asked:
        asked["zero"] = pick(pp > 1, smaller(habits.zero, habits.pipeline_zero), habits.zero)
        assumed.append(usual("zero", asked["zero"]))
    asked["zero"] = zero_stage(asked["zero"])
    asked.setdefault("schedule", "interleaved" if is_array(vp) or vp > 1 else "1f1b")
    if "micro_batch" not in asked and habits.whole_share:
        asked["micro_batch"] = whole_shares(given["batch"], asked.get("dp", 1), pp)
        assumed.append(usual("micro_batch", asked["micro_batch"]))
    again = asked.setdefault("recompute_modules", ())
    policy = asked.get("recompute", "none" if again else runner.habits.recompute)
    if "core_attn" in again and policy == "none":
        policy = "selective"
    if again and policy not in ("none", "selective"):
        raise RooflmError(f"recompute_modules go with recompute none or selective, but recompute is {policy}")
    if policy == "selective" and runner.habits.selective == "ops" and {*again} <= {"moe"}:
        policy = "ops"
    if "recompute" not in asked and not again:
        assumed.append(f"recompute {policy}")
    return Mapping(**asked | {"recompute": policy, "order": group_order(given["order"])})


def idle(m: Mapping) -> list[str]:
    """Warnings of what was given and does nothing in such a split.

    >>> idle(Mapping(vp=2)), idle(Mapping(pp=4, schedule="interleaved"))
    (['vp 2 has no effect: pp is 1'], ['schedule interleaved has no effect: vp is 1'])
    >>> idle(Mapping(sp=True)), idle(Mapping(sp=True, tp=2))
    (['sp has no effect: tp is 1'], [])
    """
    out = ["sp has no effect: tp is 1"] if np.any(m.sp) and np.all(np.asarray(m.tp) <= 1) else []
    alone, virtual = np.all(np.asarray(m.pp) <= 1), np.any(np.asarray(m.vp) > 1)
    if virtual and (m.schedule != "interleaved" or alone):
        lone = "pp is 1" if alone else f"schedule {m.schedule} does not interleave"
        out.append(f"vp {plain_number(np.max(m.vp))} has no effect: {lone}")
    elif m.schedule != "1f1b" and (alone or (m.schedule == "interleaved" and not virtual)):
        out.append(f"schedule {m.schedule} has no effect: {'pp' if alone else 'vp'} is 1")
    if np.any(np.asarray(m.recompute_layers) > 0) and m.recompute not in ("full", "block"):
        layers = plain_number(np.max(m.recompute_layers))
        out.append(f"recompute_layers {layers} has no effect: recompute is {m.recompute}, not full or block")
    return out


def beyond(m: Mapping, runner: Engine) -> list[str]:
    """A warning of a ZeRO stage that the framework does not run with a pipeline."""
    most = runner.habits.pipeline_zero
    if not np.any((np.asarray(m.pp) > 1) & (np.asarray(m.zero) > most)):
        return []
    stage = plain_number(np.max(m.zero))
    return [f"zero {stage} with a pipeline is none of {runner.name}: it has at most zero {plain_number(most)}"]


def ragged(s: Scenario) -> list[str]:
    """A warning of sequences whose rows of scores no tensor core takes (`dispatch.batched_peak`)."""
    each = ALIGNED // 2  # values of 16 bits
    odd = np.asarray(s.workload.seq)[np.asarray(s.workload.seq) % each != 0]
    if s.engine.kernels.flash or not odd.size:
        return []
    up = plain_number(each * np.ceil(odd[0] / each))
    return [f"seq {plain_number(odd[0])} is no multiple of {each}: without a flash kernel, products with scores run on "
            f"fp32 units; {up} tokens are sooner done"]  # fmt: skip


FAILURES = ("training.mtbf", "training.restart", "training.checkpoint_bandwidth", "training.checkpoint_interval")
"""Options of failures and checkpoints, which only a whole run has."""


def of_no_run(scenario: Scenario, sets: Dict[str, Any]) -> list[str]:
    """Warnings of failures and checkpoints that were described of one step, or of a run in which nothing fails."""
    run = bool(np.any(np.asarray(scenario.workload.tokens) > 0))
    failing = bool(np.any(np.asarray(scenario.training.mtbf) > 0))
    if run and failing:
        return []
    why = "training.mtbf is 0" if run else "no tokens of a run are given"
    return [f"{path} has no effect: {why}" for path in FAILURES if path in sets and not (run and path == FAILURES[0])]


def training_options(given: Dict[str, Any], runner: Engine, options: Training | None) -> Training:
    """The Training options from what was given (those of `options` stay), and the framework's habits."""
    master = runner.habits.master or given["dtype"].strip().lower() == "fp32"
    habits: dict[str, Any] = {"dropout": runner.habits.dropout, "master": master}
    asked = habits | fields_at("training", "train", given)
    if options is not None:
        asked = {k: v for k, v in asked.items() if k in ("dropout", "lora_modules")}
    start = options or Training()
    chosen = replace(start, **asked)
    if given["dtype"].strip().lower() == "fp16":
        chosen = replace(chosen, loss_scaling=True)
    if float(np.min(chosen.base_bits)) < 16 and not chosen.adapters:
        bits = plain_number(np.min(chosen.base_bits))
        raise RooflmError(f"base_bits is {bits}, but only a frozen base may be narrow: give lora_rank")
    return chosen


STORED = (2, 3, 4, 8, 16)
"""Bits of a frozen weight that libraries store (transformers, quantization_config.py: bitsandbytes 4 and 8, GPTQ 2, 3,
4 and 8); 16: as it was."""


def odd_base(bits: Num) -> list[str]:
    """What is assumed of a base in bits that no library stores.

    >>> odd_base(4), odd_base(5)
    ([], ['base_bits 5 stored as asked (libraries store 2, 3, 4 or 8)'])
    """
    odd = ", ".join(str(plain_number(n)) for n in np.setdiff1d(bits, STORED))
    return [f"base_bits {odd} stored as asked (libraries store 2, 3, 4 or 8)"] if odd else []


def adapter_of(model: Model, given: dict[str, Any]) -> list[str]:
    """Fill in the rank, modules and base of a model that was given as a PEFT adapter's folder; what was assumed."""
    if not model.lora_rank or is_array(given["lora_rank"]) or given["lora_rank"]:
        return []
    given |= {"lora_rank": model.lora_rank, "lora_modules": given["lora_modules"] or ",".join(model.lora_modules)}
    assumed = [f"lora_rank {model.lora_rank}"]
    if model.quant and not is_array(given["base_bits"]) and given["base_bits"] == 16:
        given["base_bits"] = max(int(parse_quant(model.quant).weight_bits), 2)
        assumed.append(f"base_bits {given['base_bits']}")
    return assumed


def assumed_trainer(model: Model, given: Dict[str, Any], device: Device) -> str:
    """The framework that is assumed where none is named: the usual one, or where adapters are trained and neither tp,
    pp, cp nor 8-bit products are asked for, one for adapters; where that is not built for the device, the first that
    is.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> from rooflm.readers.devices import load_device
    >>> llama, cards = load_model("llama-7b"), [load_device(name) for name in ("h100", "m3-max", "tpu-v5e")]
    >>> assumed_trainer(llama, {"lora_rank": 16}, cards[0]), *(assumed_trainer(llama, {}, card) for card in cards)
    ('peft', 'megatron', 'fsdp', 'pax')
    """
    rank = (given.get("sets") or {}).get("training.lora_rank", given.get("lora_rank"))
    adapters = bool(model.lora_rank) or bool(np.any(np.asarray(0 if rank is None else rank) > 0))
    split = any(given.get(k) is not None for k in ("tp", "pp", "cp", "ep"))
    wide = DTYPES.get(str(given.get("dtype")), PRESETS["bf16"]).weight_bits >= 16
    others = engines_instead("training", "for_adapters") if adapters and not split and wide else ()
    usual = others[0] if others else usual_engine("training")
    known = (usual, *engines_instead("training"))
    return next((name for name in known if built_for(load_engine(name), device)), usual)


def build_training(
    model: str | Model, *, options: Training | None = None, alone: bool = True, **arguments: Any
) -> Built:
    """A Scenario for training from the arguments of `train` (see `asked.arguments`). Numbers may be arrays.

    options: `Training` ready made, which its own arguments then leave as it is; alone: as in `build_inference`. Raises
    RooflmError for bad input.
    """
    given = filled("train", arguments)
    found, machine, mode, own, assumed = opened(model, given)
    warnings: list[str] = []
    engine = given["engine"]
    if engine is None:
        engine = "ideal" if mode.mode == "ideal" else own or assumed_trainer(found, given, machine.device)
        assumed.append(f"engine {engine}")
    runner = find_engine(engine, phase="training")
    assumed += release_told(engine, runner)
    mode = efficiency_of(runner, mode, given["efficiency"] is None, assumed)
    if given["tp"] is None and given["pp"] is None:
        given |= {"tp": 1, "pp": 1}
    degrees = split_degrees(found, machine, given, assumed, runner.abilities)
    if given["batch"] is None:
        adapters = options is not None or found.lora_rank or np.any(given["lora_rank"])
        narrow = not adapters and np.min(given["base_bits"]) < 16
        more = ", and the rank of its adapters with --lora-rank, as base_bits is below 16" if narrow else ""
        raise RooflmError(f"batch is missing: give the sequences of one step with --batch{more}")
    mapping = training_mapping(given, degrees, runner, assumed)
    warnings += [*idle(mapping), *beyond(mapping, runner)]
    if given["dtype"] is None:
        given["dtype"] = next((name for name in ("bf16", "fp16") if name in machine.device.peak), "bf16")
        assumed += [] if given["dtype"] == "bf16" else ["dtype fp16"]
    quant = DTYPES[one_of("dtype", given["dtype"], DTYPES)]
    if options is None:
        assumed += [*odd_base(given["base_bits"]), *adapter_of(found, given)]
    chosen = training_options(given, runner, options)
    assumed += [] if chosen.master or options is not None else ["no fp32 copy of weights, moments as wide"]
    if given["lora_modules"] and not chosen.adapters:
        warnings.append("lora_modules has no effect: lora_rank is 0")
    work = Workload(**fields_at("workload", "train", given))
    scenario = Scenario(found, work, mapping, machine, runner, quant, mode, training=chosen)
    scenario = apply_sets(scenario, given["sets"] or {})
    if scenario.training.adapters:
        refuse_absent("lora_modules", scenario.model, scenario.training.lora_modules)
    effective(scenario, given["sets"] or {}, training=True)
    assumed += kernel_unmeasured(scenario) if "engine.attention_kernel" in (given["sets"] or {}) else []
    if alone:
        refuse(scenario, TRAINING)
    warnings += [*too_long(found, "seq", work.seq), *other_phase(scenario, "training"), *not_built_for(scenario)]
    warnings += ragged(scenario)
    warnings += of_no_run(scenario, given["sets"] or {})
    return Built(scenario, tuple(assumed), tuple(warnings))
