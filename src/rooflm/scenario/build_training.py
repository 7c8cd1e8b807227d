"""From what a person writes to a training Scenario, with every assumption said; bad input raises RooflmError."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.engines import load_engine
from rooflm.catalogue.fields import one_of, shown
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import PRESETS, Quant
from rooflm.catalogue.rows import own_row
from rooflm.errors import RooflmError
from rooflm.scenario.bounds import effective
from rooflm.scenario.build_inference import (
    Request,
    apply_sets,
    find_cluster,
    find_model,
    split_degrees,
    whole,
)
from rooflm.scenario.mapping import MODULES, RECOMPUTE, SCHEDULES, Mapping
from rooflm.scenario.rules import TRAINING, refuse
from rooflm.scenario.scenario import Efficiency, Scenario, Workload, parse_efficiency
from rooflm.scenario.training import OPTIMIZERS, Training
from rooflm.units import is_array

DTYPES: dict[str, Quant] = {
    "bf16": PRESETS["bf16"],
    "fp16": PRESETS["fp16"],
    "fp32": PRESETS["fp32"],
    "fp8": PRESETS["fp8"],
    "fp8-rowwise": Quant("fp8-rowwise", 8, 8, 16, "float"),
    "fp8-block": PRESETS["fp8-block"],
    "mxfp8": Quant("mxfp8", 8, 8, 16, "float", 8 / 32),
    "nvfp4": PRESETS["nvfp4"],
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
        raise RooflmError(f"zero is {shown(np.max(stage))}, but it must be 0, 1, 2 or 3")
    return stage


def training_quant(dtype: str, cluster: Cluster, warnings: list[str]) -> Quant:
    """The scheme of a training data type, with a warning where the device has no such rate."""
    quant = DTYPES[one_of("dtype", dtype, DTYPES)]
    bits = np.asarray(quant.act_bits)
    missing = {8: "fp8", 4: "fp4"}.get(int(bits), "")
    if missing and missing not in cluster.device.peak:
        warnings.append(f"{cluster.device.name} has no {missing} rate: products run at the next wider type")
    return quant


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


def training_mapping(given: Dict[str, Any], degrees: Dict[str, Any], runner: Engine, assumed: list[str]) -> Mapping:
    """The Mapping from what was given, the degrees, and the framework's habits where nothing was."""
    sp = given["sp"]
    tp = degrees.get("tp", 1)
    if sp is None:
        sp = runner.sequence_parallel and (is_array(tp) or tp > 1)
        if sp:
            assumed.append("sp on")
    zero = given["zero"]
    if zero is None:
        zero = runner.zero
        assumed.append(f"zero {shown(zero)}")
    vp = whole("vp", given["vp"])
    name = given["schedule"] or ("interleaved" if is_array(vp) or vp > 1 else "1f1b")
    if given["recompute"] is None and not given["recompute_modules"]:
        assumed.append("recompute none")
    policy = one_of("recompute", given["recompute"] or "none", RECOMPUTE)
    again = _names("recompute_modules", given["recompute_modules"] or (), MODULES)
    if "core_attn" in again and policy == "none":
        policy = "selective"
    if again and policy not in ("none", "selective"):
        raise RooflmError(f"recompute_modules go with recompute none or selective, but recompute is {policy}")
    if policy == "selective" and runner.selective == "ops" and not again:
        policy = "ops"
    return Mapping(
        **degrees, vp=vp, sp=bool(sp), micro_batch=whole("micro_batch", given["micro_batch"]),
        recompute=policy, recompute_modules=again,
        recompute_layers=whole("recompute_layers", given["recompute_layers"], 0), zero=zero_stage(zero),
        fsdp_group=whole("fsdp_group", given["fsdp_group"], 0), schedule=one_of("schedule", name, SCHEDULES),
        order=group_order(given["order"]),
    )  # fmt: skip


def build_training(
    *, model: str | Model, gpu: str | None = None, gpus: Any = None, tp: Any = None, pp: Any = None, dp: Any = None,
    cp: Any = None, ep: Any = None, vp: Any = 1, sp: bool | None = None, batch: Any = None, seq: Any = 2048,
    micro_batch: Any = 1, recompute: str | None = None, recompute_layers: Any = 0, recompute_modules: Any = None,
    zero: Any = None, fsdp_group: Any = 0, schedule: str | None = None, order: str | None = None,
    tokens: Any = 0, dtype: str = "bf16", optimizer: str = "adam",
    dropout: bool | None = None, lora_rank: Any = 0, lora_modules: Any = None, base_bits: Any = 16,
    options: Training | None = None,
    engine: str | None = None, efficiency: str | Efficiency | None = None, cluster: str | None = None,
    sets: Dict[str, Any] | None = None, alone: bool = True,
) -> Request:  # fmt: skip
    """A Scenario for training. Numbers may be arrays. Raises RooflmError for bad input.

    batch: sequences a step in all; tokens: of the whole run; options: any other field of `Training` ready made;
    alone: as in `build_inference`.
    """
    assumed: list[str] = []
    warnings: list[str] = []
    found = find_model(model)
    machine, said = find_cluster(gpu, cluster)
    assumed += said
    mode = parse_efficiency(efficiency) if isinstance(efficiency, str) else efficiency or Efficiency()
    if efficiency is None:
        assumed.append("efficiency calibrated")
    if engine is None:
        own = own_row("engine", gpu)
        engine = "ideal" if mode.mode == "ideal" else own or "megatron"
        assumed.append(f"engine {engine}")
    runner = load_engine(engine)
    if tp is None and pp is None:
        tp = pp = 1
    degrees = split_degrees(found, machine, {"gpus": gpus, "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep}, assumed)
    if batch is None:
        raise RooflmError("batch is missing: give the sequences of one step with --batch")
    given = {
        "sp": sp, "vp": vp, "zero": zero, "schedule": schedule, "micro_batch": micro_batch, "recompute": recompute,
        "recompute_layers": recompute_layers, "recompute_modules": recompute_modules, "fsdp_group": fsdp_group,
        "order": order,
    }  # fmt: skip
    mapping = training_mapping(given, degrees, runner, assumed)
    if mapping.schedule != "interleaved" and np.any(np.asarray(mapping.vp) > 1):
        many = shown(np.max(mapping.vp))
        warnings.append(f"vp {many} has no effect: schedule {mapping.schedule} does not interleave")
    quant = training_quant(dtype, machine, warnings)
    start = options or Training()
    modules = (
        start.lora_modules if lora_modules is None else _names("lora_modules", lora_modules, Training.lora_modules)
    )
    chosen = replace(
        start, optimizer=one_of("optimizer", optimizer, OPTIMIZERS) if options is None else start.optimizer,
        loss_scaling=start.loss_scaling or dtype.strip().lower() == "fp16",
        dropout=runner.dropout if dropout is None else dropout, lora_modules=modules,
        lora_rank=whole("lora_rank", lora_rank, 0) if options is None else start.lora_rank,
        base_bits=whole("base_bits", base_bits, 2) if options is None else start.base_bits,
    )  # fmt: skip
    if float(np.min(chosen.base_bits)) < 16 and not chosen.adapters:
        raise RooflmError(
            f"base_bits is {shown(np.min(chosen.base_bits))}, but only a frozen base may be narrow: give lora_rank"
        )
    work = Workload(batch=whole("batch", batch), seq=whole("seq", seq), tokens=_amount("tokens", tokens))
    scenario = Scenario(found, work, mapping, machine, runner, quant, mode, training=chosen)
    scenario = apply_sets(scenario, sets or {})
    effective(scenario, sets or {}, training=True)
    if alone:
        refuse(scenario, TRAINING)
    if np.any(np.max(work.seq) > np.asarray(found.max_context)):
        limit = f"the {shown(np.min(found.max_context))} that {found.name} was made for"
        warnings.append(f"seq is {shown(np.max(work.seq))} tokens, beyond {limit}")
    return Request(scenario, tuple(assumed), tuple(warnings))


def _names(field: str, given: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names out of a list of known ones, from a list or a comma list."""
    names = tuple(given.split(",")) if isinstance(given, str) else tuple(given)
    return tuple(one_of(field, n, known) for n in names)


def _amount(name: str, value: Any) -> Any:
    """A finite number of at least 0 (or an array of them)."""
    flat = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(flat)) or np.any(flat < 0):
        raise RooflmError(f"{name} is {shown(np.min(flat))}, but it must be a number of at least 0")
    return value
