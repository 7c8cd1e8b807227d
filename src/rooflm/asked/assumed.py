"""Which engine runs where nobody names one, and which build or release of it: by what the rows of engines say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.hardware import Cluster, Device
from rooflm.catalogue.model import LinearAttention, Model, MoE
from rooflm.catalogue.quant import Quant, compute_dtype
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import fixed_buffers, needs, usable
from rooflm.estimate.memory import kv_bytes_per_sequence
from rooflm.estimate.offloaded import stored_part
from rooflm.kernels.rates import rates
from rooflm.kernels.training_factors import picked, standing
from rooflm.readers.engine_releases import in_range, numbers, row_named, row_of_release, rows_of_releases, split_release
from rooflm.readers.engines import family_of, load_engine
from rooflm.readers.formulas import worked_out
from rooflm.readers.rows import aliases, is_path, names, normalise, raw_row, rows_with, words_of
from rooflm.readers.schemes import PRESETS
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Scenario
from rooflm.units import MIB, Num, ceil, floor, larger, pick, smaller


def _saying(field: str, phase: str) -> dict[str, Any]:
    """Engine -> the value of a field in its row, of the engines of a phase ("inference", "training") whose row gives
    it."""
    values = {name: raw_row("engine", name)[0].get(field) for name in rows_with("engine", field)}
    return {name: said for name, said in values.items() if said and load_engine(name).phase == phase}


def build_for(name: str, software: str) -> str:
    """The row of an engine's build for a device's software, where the catalogue has one; else the name as it is.

    >>> build_for("llama.cpp", "rocm"), build_for("vllm-0.6.1", "rocm"), build_for("llama.cpp", "")
    ('llama.cpp-rocm', 'vllm-2024-rocm', 'llama.cpp')
    """
    if not software or is_path(name):
        return name
    by_alias = aliases("engine")
    own = by_alias.get(normalise(name))
    plain, release = ("", "") if own else split_release(name)
    build = by_alias.get(f"{plain}-{software}")
    builds = [row for usual in rows_of_releases(plain) if (row := by_alias.get(f"{usual}-{software}"))] if plain else []
    released = row_of_release(build, release) if build else None  # of builds that have releases of their own
    released = released or next((row for row in builds if in_range(row, numbers(release))), None)
    return released or by_alias.get(f"{own or row_named(name) or name}-{software}", name)


@cache
def other_releases(name: str) -> tuple[str, ...]:
    """The rows of other releases of an engine of the catalogue, of the same build, where it has any.

    >>> other_releases("llama.cpp")[:2]
    ('llama.cpp-2024-05', 'llama.cpp-2025-02')
    >>> other_releases("sglang-rocm")[:2], other_releases("hf-eager")[-2:]
    (('sglang-0.4-rocm', 'sglang-0.4.3-rocm'), ('hf-eager-4.48', 'hf-eager-4.53'))
    """
    family = family_of(name)
    rows = [n for n in names("engine") if n != name and n.startswith(family)]  # by name: few of them are then read
    alike = (n for n in rows if _build(n, family) == _build(name, family))
    return tuple(n for n in alike if family_of(n) == family) if name.startswith(family) else ()


def _build(name: str, family: str) -> str:
    """The part of a row's name that names its build, such as rocm: what is left without family and release."""
    return "-".join(piece for piece in name.removeprefix(family).split("-") if piece.isalpha())


@cache
def usual_engine(phase: str) -> str:
    """The engine that is assumed where none is named: of the phase ("inference" or "training"), the row with `usual`.

    >>> usual_engine("inference"), usual_engine("training")
    ('vllm', 'megatron')
    """
    return next(iter(_saying("usual", phase)))


@cache
def engines_instead(phase: str, of: str = "instead") -> tuple[str, ...]:
    """Engines to assume where the usual one of a phase cannot run what is asked, in the order of the field `of` of
    their rows.

    >>> engines_instead("inference")[0], engines_instead("training", "for_adapters")
    ('llama.cpp', ('peft',))
    """
    places = _saying(of, phase)
    return tuple(sorted(places, key=lambda name: places[name]))


def engines_on_host() -> tuple[str, ...]:
    """Of the engines that may be assumed those that run layers on the host's CPU.

    >>> "llama.cpp" in engines_on_host()
    True
    """
    return tuple(name for name in engines_instead("inference") if load_engine(name).abilities.host_layers)


def computed(s: Scenario) -> list[str]:
    """The data types that the device multiplies in: that of the scheme's products, and that of all else where it
    differs. Empty for GGUF files in an engine whose own kernels multiply them as they are.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [computed(build_inference("llama-7b", gpu="v100", quant=q).scenario) for q in ("w16a16", "int8", "q4_k_m")]
    [['computed in fp16'], ['computed in fp16'], []]
    """
    if s.quant.gguf and s.engine.kernels.own_files:
        return []
    dtypes = rates(s).dtype
    return ["computed in " + " and ".join(dict.fromkeys((dtypes["quant"], dtypes["half"])))]


def computed_wider(s: Scenario) -> list[str]:
    """`computed`, where a device has no units for the type that a scheme names.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [computed_wider(build_inference("llama-7b", gpu="v100", quant=q).scenario) for q in ("fp16", "bf16")]
    [[], ['computed in fp16 (v100-sxm-32gb has no units for bf16)']]
    """
    q, device = s.quant, s.cluster.device
    exact = compute_dtype(float(np.max(q.act_bits)), q.kind, device.peak)[1]
    if exact and (not q.half or q.half in device.peak):
        return []
    return [f"{text} ({device.name} has no units for {q.name})" for text in computed(s)]


def built_for(engine: Engine, device: Device) -> bool:
    """Whether an engine is built for a device.

    >>> from rooflm.readers.devices import load_device
    >>> [built_for(load_engine("atom"), load_device(card)) for card in ("mi300x", "h100")]
    [True, False]
    """
    return not _is_of(device, engine.abilities.elsewhere)


def _is_of(device: Device, kinds: str) -> bool:
    """Whether words with commas name a device's maker, family or architecture."""
    return not {device.vendor, device.product_family, device.architecture}.isdisjoint(words_in(kinds))


def of_card(text: str, device: Device, usual: Num, family: str = "") -> Num:
    """The limit that a server documents for a card. text: parts such as "35:2048 ampere:4096", of which the first that
    applies to the card counts: GiB:LIMIT applies to cards with less memory than that, NAME:LIMIT to cards of that
    generation or product family, or to the model family that is asked about. Where none does, `usual`.

    >>> from rooflm.readers.devices import load_device
    >>> a100, l40s, h100 = map(load_device, ("a100-sxm-80gb", "l40s", "h100-sxm-80gb"))
    >>> [of_card("ampere:256 70:512", card, 1024) for card in (a100, l40s, h100)]
    [256, 512, 1024]
    >>> of_card("jetson:256", load_device("gb10"), 1024)
    256
    """
    for part in text.split():
        key, _, value = part.partition(":")
        memory = key.replace(".", "", 1).isdecimal()
        if not value.isdecimal() or not key:
            raise RooflmError(f"{text!r} gives limits by card, but it must be such as '35:2048 ampere:4096'")
        card_keys = (device.kernel_generation, device.product_family, family)
        if float(device.dram.size) < float(key) * 2**30 if memory else key in card_keys:
            return int(value)
    return usual


def with_graphs(engine: Engine, device: Device, tp: Num, family: str = "") -> Engine:
    """The engine with the decoding sequences, and tokens of a pass with prompts, that its CUDA graphs hold on this card
    of a model of this family, where its server documents that.

    >>> from rooflm.readers.devices import load_device
    >>> [int(with_graphs(load_engine("sglang"), load_device("l40s"), n).host.graphed_sequences) for n in (1, 4)]
    [32, 160]
    """
    told, host = engine.server, engine.host
    if not (told.graphed or told.graphed_few or told.pieces):
        return engine
    many, few = (of_card(text, device, host.graphed_sequences, family) for text in (told.graphed, told.graphed_few))
    held = of_card(told.pieces, device, host.captured, family)
    return engine.but(graphed_sequences=pick(tp < FEW, few, many), captured=held)


def with_stages(mapping: Mapping, engine: Engine, model: Model) -> Mapping:
    """The split, with one micro-batch at a time where the engine decodes mixtures of experts so, the model is one, and
    nobody asked for more."""
    if engine.stages.expert_stages or not attention_dp(model) or not np.any(np.asarray(mapping.pp) > 1):
        return mapping
    return replace(mapping, in_flight=larger(mapping.in_flight, 1))


def attention_dp(model: Model) -> bool:
    """True for models of experts, whose data-parallel ranks work as one instance; ranks of other models are separate
    replicas."""
    return any(isinstance(b.ffn, MoE) for b in model.blocks)


def sharing(engine: Engine, ranks: Num) -> Num:
    """Parts that an engine's token budget is cut into where so many ranks of attention run side by side."""
    return {"budget": ranks, "half": smaller(ranks, 2)}.get(engine.server.shared, 1)


def with_limits(engine: Engine, device: Device, model: Model, ranks: Num) -> Engine:
    """The engine with the token budget and the running limit of one of so many ranks of attention, where its server
    documents them by card, or shares out among ranks what it has.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> from rooflm.readers.devices import load_device
    >>> sglang, deepseek = load_engine("sglang"), load_model("deepseek-v3")
    >>> [int(with_limits(sglang, load_device("h200"), deepseek, n).room.token_budget) for n in (1, 8)]
    [8192, 1024]
    """
    told, room, each = engine.server, engine.room, pick(attention_dp(model), ranks, 1)
    if told.budgets or told.shared:
        budget = of_card(told.budgets, device, room.token_budget)
        engine = engine.but(token_budget=larger(floor(budget / sharing(engine, each)), 1))
    if told.uncached and names_it(told.uncached, model):
        engine = engine.but(server=replace(engine.server, prefix_caching=False))
    family = of_card(told.families, device, 0, model.family)
    if family or told.limits:
        limit = larger(floor(family / each), 1) if family else of_card(told.limits, device, room.max_sequences)
        engine = engine.but(max_sequences=limit, server=replace(engine.server, limits="", families="", max_sequences=0))
    return engine


def with_share(s: Scenario) -> Scenario:
    """The scenario with the share of a device that weights and cache have together, where its engine works out the MiB
    that it keeps for all else (`reserved`) of the device's own (card), the tokens of the largest pass of all ranks, the
    sequences of its decoding graphs (graphed), devices, and ranks of attention where there are several. None where that
    leaves nothing beside the weights: who serves such a model raises the share.

    >>> from rooflm.asked.build_inference import build_inference
    >>> round(build_inference("llama-3.1-8b", gpu="h100", engine="sglang").scenario.engine.server.static_fraction, 3)
    0.835
    """
    e, device, m = s.engine, s.cluster.device, s.mapping
    if not e.server.reserved:
        return s
    ranks = pick(attention_dp(s.model), m.dp, 1)
    budget = pick(e.room.token_budget < np.inf, e.room.token_budget, s.workload.prompt)
    of = {"card": usable(device) / MIB, "tokens": budget * ranks, "graphed": e.host.graphed_sequences,
          "devices": m.devices / m.dp * ranks, "ranks": ranks * (ranks > 1)}  # fmt: skip
    share = smaller(larger(1.0 - worked_out(e.server.reserved, of) / of["card"], 0.0), 1.0)
    enough = share * (usable(device) - sum(fixed_buffers(s))) > needs(stored_part(s)).weights
    found: Any = pick(enough, share, 0.0)
    return replace(s, engine=replace(e, server=replace(e.server, static_fraction=found)))


def names_it(text: str, model: Model) -> bool:
    """Whether words with commas name a model's family, or a kind of its recurrent layers.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> [names_it("gated-delta, gpt_oss", load_model(name)) for name in ("qwen3.5-9b", "gpt-oss-20b", "lfm2-1.2b")]
    [True, True, False]
    """
    kinds = {b.mixer.kind for b in model.blocks if isinstance(b.mixer, LinearAttention)}
    return not {model.family, *kinds}.isdisjoint(words_in(text))


def with_blocks(s: Scenario) -> Scenario:
    """The scenario with blocks of so many tokens, in whole ones of its engine's, that they weigh no less in a layer
    with a cache than the state of a recurrent one, where its engine has one size of both (`state_blocks`).

    Source: vLLM, interface.py, `_align_hybrid_block_size`; its log of Qwen3.5-4B says 528 tokens (issue 40696).

    >>> from rooflm.asked.build_inference import build_inference
    >>> made = [build_inference(name, gpu="h100", engine="vllm") for name in ("qwen3.5-4b", "llama-7b")]
    >>> [int(one.scenario.engine.room.block) for one in made]
    [528, 16]
    """
    room = s.engine.room
    mixers = [(b.count, isinstance(b.mixer, LinearAttention)) for b in s.model.blocks if b.mixer is not None]
    states, others = (sum(count for count, one in mixers if one == kind) for kind in (True, False))
    if not (room.state_blocks and states and others):
        return s
    empty, one = (kv_bytes_per_sequence(s.model, s.mapping, s.quant, tokens) for tokens in (0, 1))
    tokens = ceil(empty / states / ((one - empty) / others) / room.block) * room.block
    return replace(s, engine=s.engine.but(block=larger(tokens, room.block)))


def with_overlap(s: Scenario, kept: bool, guesses: Num) -> Scenario:
    """The scenario whose host waits for each step where its engine's row says so (`waits`), though it prepares steps
    ahead elsewhere. kept: prompts are kept, and with them recurrent states, unless it guesses.

    Source: SGLang, server_args.py, `disable_overlap_schedule` (docs/decisions/0348).

    >>> from rooflm.asked.build_inference import build_inference
    >>> asked = {"gpu": "h100", "engine": "sglang-0.5.10"}
    >>> of = (("lfm2-1.2b", 0), ("llama-7b", 0), ("llama-7b", 3))
    >>> made = [build_inference(name, **asked, guesses=n) for name, n in of]
    >>> [one.scenario.engine.host.overlap for one in made]
    [False, True, False]
    """
    waits = s.engine.host.waits
    if not waits:
        return s
    alone: Any = pick(np.asarray(guesses) > 0, "guesses" in words_in(waits), kept and names_it(waits, s.model))
    staged = (s.mapping.pp > 1) & ("stages" in words_in(waits))
    return replace(s, engine=s.engine.but(overlap=pick(alone | staged, False, True)))


def with_norms(engine: Engine, model: Model, cluster: Cluster, mapping: Mapping) -> Engine:
    """The engine with norms fused into its all-reduces only where it does so by itself: for the model families and card
    generations that its row names, within a node, and without attention data parallelism.

    Sources: SGLang, server_args.py, `enable_flashinfer_allreduce_fusion`; vLLM, allreduce_rms_fusion.py.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> from rooflm.readers.devices import load_cluster
    >>> sglang, node, split = load_engine("sglang"), load_cluster("dgx-h100"), Mapping(tp=8)
    >>> [with_norms(sglang, load_model(m), node, split).kernels.reduce_norm for m in ("gpt-oss-120b", "llama-3.1-70b")]
    [1048576, 0.0]
    """
    k, device = engine.kernels, cluster.device
    of, on = words_in(k.reduce_norm_of), words_in(k.reduce_norm_on)
    if not of and not on:
        return engine
    own = not of or model.family in of
    supported = own and device.kernel_generation in on and f"-{device.name}" not in on
    if not supported or not cluster.tiers:
        return engine.but(reduce_norm=0.0)
    separate = ((mapping.dp > 1) & (mapping.ep > 1)) | (mapping.tp * mapping.pp > cluster.tiers[0].size)
    return engine.but(reduce_norm=pick(separate, 0.0, k.reduce_norm))


FEW = 4
"""Devices of a tensor group from which on SGLang captures more (server_args.py, tp_size)."""


def kernel_unmeasured(s: Scenario) -> list[str]:
    """A sentence where the attention kernel asked for in training was not measured on the device's generation: which
    kernel stands in.

    >>> from rooflm.asked.build_training import build_training
    >>> of = {"gpu": "b200", "batch": 1, "sets": {"engine.attention_kernel": "fa1"}}
    >>> kernel_unmeasured(build_training("llama-7b", **of).scenario)
    ['attention kernel fa1 was not measured on blackwell: cudnn stands for it']
    """
    d = s.cluster.device
    kernel = picked(s.engine.kernels.attention_kernel, d.kernel_generation)
    stand = standing(kernel, d.name, d.kernel_generation) or "that of serving"
    text = f"attention kernel {kernel} was not measured on {d.kernel_generation}: {stand} stands for it"
    return [] if stand == kernel else [text]


def assumed_engine(
    own: str | None, quant: Quant, device: Device, files: bool = False, host: bool = False, stored: bool = False
) -> str:
    """The engine to assume where none is named: the one in the card's own file, else the first that runs the scheme and
    is built for the card: of those that come first on such cards (`first_on`), the default one, the others. files: it
    must read files of its own format, as Ollama's library holds; host: it must run layers on the host's CPU; stored:
    the scheme is a checkpoint's own, which an engine that runs such widths in other files cannot load.

    >>> from rooflm.readers.devices import load_device
    >>> from rooflm.readers.schemes import PRESETS
    >>> h100 = load_device("h100")
    >>> assumed_engine(None, PRESETS["fp8"], h100), assumed_engine(None, PRESETS["q4_k_m"], h100)
    ('vllm', 'llama.cpp')
    >>> [assumed_engine(None, PRESETS["fp16"], load_device(card)) for card in ("raspberry-pi-5-8gb", "mi50", "v100")]
    ['llama.cpp', 'llama.cpp', 'vllm-0.14']
    """

    def able(name: str) -> bool:
        engine = load_engine(name)
        can = (bool(engine.kernels.own_files) or not files) and (engine.abilities.host_layers or not host)
        return can and engine.abilities.runs(quant, stored) and built_for(engine, device)

    usual = usual_engine("inference")
    if own or (able(usual) and not _is_of(device, _first_somewhere())):
        return own or usual
    first = (name for name, kinds in _saying("first_on", "inference").items() if _is_of(device, kinds))
    return next((name for name in (*first, usual, *engines_instead("inference")) if able(name)), usual)


@cache
def _first_somewhere() -> str:
    """Kinds of devices on which any engine comes before the usual one, told without its row being read."""
    return ", ".join(words_of("engine", "first_on"))


ALIKE = 0.25
"""Share by which bytes a weight of two schemes that are named for each other may differ (8.5 bits for 8 do)."""


def schemes_near(s: Scenario) -> tuple[str, ...]:
    """A warning where no engine to assume runs a scheme, so that the last of them stands: which others of the card run
    one of about as many bytes a weight.

    >>> from rooflm.asked.build_inference import build_inference
    >>> built = build_inference("llama-3.1-8b", gpu="m2", quant="int8")
    >>> schemes_near(built.scenario) == built.warnings, *built.warnings[0].split(" runs int8: ")
    (True, 'hf-eager is assumed, as no usual engine of apple-m2-10core-16gb', 'llama.cpp runs q8_0, mlx runs int8-wo')
    """
    usual = usual_engine("inference")
    if s.engine.name == usual or s.efficiency.mode != "calibrated":
        return ()
    *others, last = engines_instead("inference")
    if s.engine.name != last:
        return ()

    def apart(scheme: str) -> float:
        return abs(float(np.max(PRESETS[scheme].weight_bytes / s.quant.weight_bytes)) - 1.0)

    alike = [name for name, scheme in PRESETS.items() if not scheme.wide and apart(name) < ALIKE]
    near = sorted(alike, key=lambda name: (not PRESETS[name].gguf, apart(name)))
    told = []
    for name in (usual, *others):
        engine = load_engine(name)
        scheme = next((one for one in near if engine.abilities.runs(PRESETS[one])), "")
        told += [f"{name} runs {scheme}"] * bool(scheme and built_for(engine, s.cluster.device))
    why = f"{last} is assumed, as no usual engine of {s.cluster.device.name} runs {s.quant.name}"
    return (f"{why}: {', '.join(told)}",) if told else ()
