"""From what a person writes (names, sizes, degrees, paths) to a Scenario, with every assumption said.

Bad input raises RooflmError with one sentence: the field, the value, the rule, the nearest right answer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked import paths
from rooflm.asked.arguments import defaults, fields_at, filled, placed
from rooflm.asked.assumed import (
    assumed_engine,
    attention_dp,
    build_for,
    built_for,
    computed_wider,
    other_releases,
    schemes_near,
    with_blocks,
    with_graphs,
    with_limits,
    with_norms,
    with_overlap,
    with_share,
    with_stages,
)
from rooflm.asked.bounds import allowed, effective
from rooflm.asked.checks import whole
from rooflm.asked.machine import find_cluster, node_size, priced
from rooflm.asked.quantities import parse_efficiency
from rooflm.asked.refused import refuse
from rooflm.asked.ways import tensor_ways
from rooflm.catalogue.abilities import Abilities
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model, MoE
from rooflm.catalogue.quant import Quant
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.estimate.memory import adapter_params
from rooflm.graph.adapted import SEVERAL
from rooflm.kernels.expert_kernels import expert_kernels, spread_by_passes
from rooflm.kernels.lookup import setting
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.engine_releases import out_of_range, split_release
from rooflm.readers.engines import load_engine, stands_on
from rooflm.readers.prices import GIVEN
from rooflm.readers.released import scheme_in_name
from rooflm.readers.rows import aliases, is_path, names, normalise, own_row
from rooflm.readers.schemes import as_run, in_blocks, narrowed, parse_quant, whole_where_hollow
from rooflm.readers.tables import is_array
from rooflm.scenario.adapters import MODULES as ADAPTED
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.offload import Offload
from rooflm.scenario.rules import ASKED, DEPLOYED, INFERENCE, divisors, mixtures
from rooflm.scenario.scenario import Efficiency, Scenario, Workload
from rooflm.scenario.speculation import Speculation
from rooflm.shown.numbers import plain_number
from rooflm.units import Num, ceil, highest, larger


class Built(NamedTuple):
    """A scenario with what was assumed to make it, and what a person should know about it."""

    scenario: Scenario
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def find_model(model: str | Model) -> Model:
    """A model given by name or path, or a Model as it is."""
    if isinstance(model, Model):
        return model
    if not isinstance(model, str | os.PathLike):
        how = " (rooflm.load_model makes one of a config's fields)" if not isinstance(model, int | float) else ""
        raise RooflmError(f"model is {repr(model)[:60]}, but it must be a name, a path or a Model{how}")
    if not str(model).strip():
        raise RooflmError("model is missing: give a name (see `rooflm list models`), a Hugging Face id or a path")
    return load_model(str(model))


def output_of(model: Model, output: Any) -> Any:
    """Output tokens as asked for; 1, which is none, of a model that embeds texts where nobody asked for any.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> output_of(load_model("bge-m3"), 128), output_of(load_model("llama-7b"), 128)
    (1, 128)
    """
    return 1 if not (model.head or is_array(output)) and output == defaults("infer")["output"] else output


def generating(model: str | Model, call: str) -> Model:
    """The model, for a call that is of output tokens; RooflmError for one that embeds texts.

    >>> generating("bge-m3", "serve")
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: bge-m3 has no head: it embeds texts, and serve is of models that generate; infer it
    """
    loaded = find_model(model)
    if not loaded.head:
        raise RooflmError(
            f"{loaded.name} has no head: it embeds texts, and {call} is of models that generate; infer it"
        )
    return loaded


def split_degrees(
    model: Model, cluster: Cluster, given: Dict[str, Any], assumed: list[str], able: Abilities
) -> dict[str, Any]:
    """tp, pp, dp, cp, ep from what was given: whatever of --gpus is not spoken for goes to tp within a node, then pp,
    or as the engine splits by itself (all to pp; to dp what it cannot split by pp, or with more expert ranks than tp).

    With tp or pp given, the rest of --gpus is data parallel. Degrees that do not multiply up break a rule of `rules`.
    """
    named = ("tp", "pp", "dp", "cp", "ep")
    degrees: dict[str, Any] = {k: whole(k, given[k]) for k in named if given.get(k) is not None}
    gpus = given.get("gpus")
    if gpus is None:
        return degrees
    gpus = whole("gpus", gpus)
    rest = gpus / math.prod(degrees.get(k, 1) for k in ("tp", "pp", "dp", "cp"))
    rest = int(rest) if not is_array(rest) and rest == int(rest) else rest
    if "tp" not in degrees and "pp" not in degrees:
        split = able.tensor_groups and not able.layers_first
        tp = tensor_degree(model, rest, node_size(cluster)) if split else 1
        staged = able.stage_groups and not np.any(np.asarray(degrees.get("ep", 1)) > tp)
        left = "pp" if staged or "dp" in degrees else "dp"
        degrees |= {"tp": tp, left: rest // tp if isinstance(rest, int) else rest / tp}
        if not is_array(rest):
            alone = f" (no tp divides {plain_number(rest)} and the heads; dp for replicas)"
            odd = bool(split and degrees["tp"] == 1 and rest > 1 and left == "pp")
            assumed.append(f"tp {degrees['tp']}, {left} {plain_number(degrees[left])}" + alone * odd)
        else:
            assumed += splits_told(gpus, degrees["tp"], degrees[left], left)
    elif "dp" not in degrees:
        degrees["dp"] = rest
        if not is_array(rest) and rest != 1:
            assumed.append(f"dp {plain_number(rest)}")
    elif is_array(rest) or rest != 1:
        degrees["gpus"] = gpus  # the rules say where the degrees make another number
    return degrees


MOST_SPLITS = 6
"""Most splits that are told."""


def splits_told(gpus: Num, tp: Num, rest: Num, left: str) -> list[str]:
    """How each of several numbers of GPUs is split.

    >>> splits_told(np.array([8, 16]), np.array([8, 8]), np.array([1, 2]), "pp")
    ['tp 8, pp 1 (gpus 16: tp 8, pp 2)']
    """
    each = zip(*(a.ravel() for a in np.broadcast_arrays(gpus, tp, rest)), strict=True)
    (_, first), *others = {n: f"tp {t:g}, {left} {r:g}" for n, t, r in each}.items()
    told = [f"gpus {n:g}: {split}" for n, split in others]
    return [first + f" ({'; '.join(told)})" * bool(told)] if len(told) < MOST_SPLITS else []


def spread_experts(model: Model, degrees: dict[str, Any], able: Abilities, assumed: list[str]) -> None:
    """Put ep in place where ranks of attention are asked for and ep is not: no server of experts keeps all of them on
    each of its ranks. Whether it cuts them by tensor over tp x dp (vLLM's docs, "Data Parallel Deployment": a group of
    DP x TP; SGLang's and TensorRT-LLM's moe_tp) or spreads them is the same bytes on a rank: as spread.

    >>> degrees = {"tp": 1, "dp": 8}
    >>> spread_experts(load_model("deepseek-v3"), degrees, Abilities(), [])
    >>> degrees["ep"]
    8
    """
    held = [b.ffn.experts for b in model.blocks if isinstance(b.ffn, MoE)]
    tp, dp = (np.asarray(degrees.get(name, 1)) for name in ("tp", "dp"))
    if "ep" in degrees or able.expert_groups == "none" or not held:
        return
    fits = np.logical_and.reduce([np.asarray(e) % (tp * dp) == 0 for e in held])
    ep = np.where((dp > 1) & fits & (able.ranks_are_groups | (tp == 1)), tp * dp, 1)
    if np.any(ep > 1):
        degrees["ep"] = ep if ep.ndim else int(ep)
        assumed.append("experts over all ranks" + " where these divide them" * bool(np.any((dp > 1) & (ep == 1))))


def tensor_degree(model: Model, rest: Num, node: int) -> Num:
    """The largest tp within a node that divides the heads and what is left of the GPUs.

    >>> tensor_degree(load_model("llama-7b"), 12, 8), tensor_degree(load_model("llama-7b"), 6, 8)
    (4, 2)
    """
    ways = np.array(divisors(tensor_ways(model) or 1, node))
    fit = (np.asarray(rest)[..., None] % ways == 0) & (ways <= np.asarray(rest)[..., None])
    tp = np.max(np.where(fit, ways, 1), axis=-1)
    return tp if is_array(rest) else int(tp)


def find_engine(engine: str | Engine, cluster: Cluster | None = None, phase: str = "inference") -> Engine:
    """An engine by the name of its row, in the build for the card of a cluster where one is given, or as it is. Of an
    unknown name, those like it that run the phase are told."""
    if isinstance(engine, Engine):
        return engine
    try:
        if cluster is None:
            return load_engine(engine)
        device = cluster.device
        return load_engine(build_for(engine, device.software), device.name, device.kernel_generation)
    except UnknownNameError as error:
        if is_path(engine) or error.hint:  # of a file's base, or of one whose nearest row is known
            raise
        near = [name for name in error.near if load_engine(name).phase == phase]
        known = [] if near else [name for name in names("engine") if load_engine(name).phase == phase]
        raise UnknownNameError("engine", engine, known, near=near or None) from error


def release_told(engine: str | Engine, runner: Engine) -> list[str]:
    """What stands in for an engine's release that the row which runs does not include, and for one that goes by a name
    which is another word than its row's; of a file of one's own, what it builds on."""
    if not isinstance(engine, str):
        return []
    if is_path(engine):
        return [said] if (said := stands_on(engine)) else []
    other = f"engine {engine} is {runner.name} here" if engine.strip().lower()[:1] != runner.name[:1] else ""
    return [said for said in (other, out_of_range(engine, runner.name)) if said]


def efficiency_of(engine: Engine, mode: Efficiency, assumed_mode: bool, assumed: list[str]) -> Efficiency:
    """The efficiency at which an engine runs: as asked for; by itself calibrated, or ideal where it has no measured
    kernels, which cannot be asked for then."""
    if not engine.kernels.whose and mode.mode == "calibrated":
        if not assumed_mode:
            raise RooflmError(
                f"efficiency is 'calibrated', but engine {engine.name} has no measured kernels: "
                "use ideal or factors such as 0.7,0.9"
            )
        mode = parse_efficiency("ideal")
    if assumed_mode:
        assumed.append(f"efficiency {mode.mode}")
    return mode


def pulled(model: str | Model, engine: str | Engine | None) -> bool:
    """Whether a model is named as Ollama's library names it (name:size), for an engine that reads its files.

    >>> pulled("llama3.1:8b", None), pulled("llama3.1:8b", "vllm"), pulled("Qwen/Qwen3-8B", "ollama")
    (True, False, False)
    """
    tag = isinstance(model, str) and ":" in model and "/" not in model and "\\" not in model
    return tag and (engine is None or bool(find_engine(engine).kernels.own_files))


ALL_16 = " (weights, activations and cache of 16 bits)"


def quant_for(model: Model, name: str | Quant | None, assumed: list[str], tag: bool = False) -> Quant:
    """The scheme asked for, else the one the model was released in, else its 16-bit type; of a tag of Ollama's library
    that names no other, Q4_K_M, unless files of that kind hold the released weights (gpt-oss)."""
    if isinstance(name, Quant):
        return name
    if name:
        return parse_quant(name)
    plain = "fp32" if model.dtype == "fp32" else "w16a16kv16"
    chosen = model.quant or plain
    tag = tag and model.dtype != "fp32" and not parse_quant(chosen).in_files and not scheme_in_name(model.name)
    chosen = "q4_k_m" if tag else chosen
    assumed.append(f"quant {chosen}" + ", as such a tag is pulled" * tag + ALL_16 * (chosen == "w16a16kv16"))
    return parse_quant(chosen)


def apply_sets(scenario: Scenario, sets: Dict[str, Any]) -> Scenario:
    """The scenario with every --set PATH=VALUE put in place. Paths: model., workload., mapping., cluster., engine.,
    quant."""
    for path, given in sets.items():
        try:
            scenario = paths.put(scenario, path, allowed(scenario, path, given))
        except ValueError as error:
            if isinstance(error, RooflmError):
                raise
            raise RooflmError(f"{path}: {error}") from error
    once: dict[str, str] = {}
    for path in sets:
        other = once.setdefault(paths.in_full(scenario, path), path)
        if other != path:
            raise RooflmError(f"{other} and {path} are two names of one input: give one of them")
    if {"engine.room.memory_fraction", "engine.server.static_fraction"} & once.keys():  # told: nothing to work out
        scenario = paths.put(scenario, "engine.server.reserved", "")
    if "engine.host.overlap" in once:
        scenario = paths.put(scenario, "engine.host.waits", "")
    if "cluster.device.price" in sets:
        return paths.put(scenario, "cluster.device.priced", GIVEN)
    return scenario


def guessing(s: Scenario) -> list[str]:
    """What speculative decoding rests on, in words, where anything is guessed.

    >>> guessing(build_inference("llama-3.1-70b", gpu="h100", tp=4, guesses=3).scenario)
    ['acceptance 0.7 (a step gains 2.53 tokens)', 'one layer guesses, as EAGLE: llama-3.1-70b has no heads of its own']
    >>> guessing(build_inference("deepseek-v3", gpu="h200", tp=8, guesses=1, accepted=1.8).scenario)
    []
    """
    spec = s.speculation
    if spec.off:
        return []
    one = not any(map(is_array, (spec.guesses, spec.branches, s.model.mtp_params)))
    rate = [] if is_array(spec.acceptance) or np.any(spec.accepted) else [f"acceptance {spec.acceptance:g}"]
    rate = [f"{told} (a step gains {float(spec.gained):.3g} tokens)" if one else told for told in rate]
    note = f"one layer guesses, as EAGLE: {s.model.name} has no heads of its own"
    return [*rate, *[note] * (one and spec.draft is None and not s.model.mtp_params)]


BUDGET = "engine.token_budget"


def whole_prompts(s: Scenario, sets: Dict[str, Any]) -> Scenario:
    """The scenario with room in a pass for a prompt, where its engine takes prompts whole and no budget was asked for:
    as in `serving.deploy.room_for_prompts`, whose sources hold here, so that one request is served as it is inferred.

    >>> path = "engine.server.scheduler"
    >>> ways = [build_inference("llama-7b", gpu="h100", prompt=32768, sets={path: k}) for k in ("no-evict", "static")]
    >>> [float(built.scenario.engine.room.token_budget) for built in ways]
    [32768.0, 8192.0]
    """
    asked = {paths.in_full(s, path) for path in sets}
    new, budget = s.workload.new, s.engine.room.token_budget
    if s.engine.server.scheduler != "no-evict" or paths.in_full(s, BUDGET) in asked or not np.any(new > budget):
        return s
    return replace(s, engine=s.engine.but(token_budget=larger(budget, new)))


class Opened(NamedTuple):
    """What any call begins with. own_engine: the card's file, where it holds an engine too; assumed: to be added to."""

    model: Model
    machine: Cluster
    efficiency: Efficiency
    own_engine: str | None
    assumed: list[str]


def opened(model: str | Model, given: Dict[str, Any]) -> Opened:
    """The model, the priced machine and the efficiency of the arguments of a call."""
    machine, assumed = find_cluster(given["gpu"], given["cluster"])
    machine = priced(machine, given, assumed)
    measured = own_row("engine", given["gpu"]) if isinstance(given["gpu"], str) else None
    mode = given["efficiency"] or "calibrated"
    efficiency = mode if isinstance(mode, Efficiency) else parse_efficiency(mode)
    return Opened(find_model(model), machine, efficiency, measured, assumed)


def too_long(model: Model, what: str, tokens: Num) -> tuple[str, ...]:
    """A warning where a length is beyond what a model was made for."""
    longest = highest(tokens)
    if not highest(longest > model.max_context):
        return ()
    made_for = f"beyond the {plain_number(np.min(model.max_context))} that {model.name} was made for"
    return (f"{what} is {plain_number(longest)} tokens, {made_for}",)


def other_phase(s: Scenario, phase: str) -> tuple[str, ...]:
    """A warning where an engine of the other phase (inference, training) is asked: its constants are of that one."""
    if s.engine.phase == phase or s.efficiency.mode != "calibrated":
        return ()
    return (f"engine {s.engine.name} is for {s.engine.phase}: its constants say little of {phase}",)


def not_built_for(s: Scenario) -> tuple[str, ...]:
    """A warning where an engine is asked on a device that it is not built for: its constants are of other devices."""
    device = s.cluster.device
    if built_for(s.engine, device) or s.efficiency.mode != "calibrated":
        return ()
    return (f"engine {s.engine.name} is not built for {device.name}: its constants say little of it",)


def default_tiles(s: Scenario) -> tuple[str, ...]:
    """A warning where an engine tunes tiles of whole experts by shape, and has none of this shape for this card."""
    experts = [b.ffn for b in s.model.blocks if isinstance(b.ffn, MoE)]
    sizes = s.mapping.expert_tp, s.mapping.expert_ranks, *(size for f in experts for size in (f.experts, f.width))
    if not experts or s.efficiency.mode != "calibrated" or any(map(is_array, sizes)) or s.mapping.expert_ranks > 1:
        return ()
    where, _ = setting(s.cluster.device, s.engine, s.quant, s.efficiency)
    lists = [k.tiles for k in expert_kernels(s, where, False) if where.gpu in k.cards and k.tiles is not None]
    tuned = " ".join(lists).split()
    here = dict.fromkeys((int(f.experts), int(ceil(f.width / s.mapping.expert_tp))) for f in experts)
    missing = [f"{count} experts {width} wide" for count, width in here if lists and f"{count}x{width}" not in tuned]
    of = f"{s.engine.name} has no tiles tuned for {' and '.join(missing)} on {s.cluster.device.name}"
    return (f"{of}: they take its default ones, which are slower",) if missing else ()


def experts_spread(s: Scenario) -> tuple[str, ...]:
    """A warning where an engine has no kernel of a card for a model's experts as they are stored."""

    def spread(q: Quant) -> bool:
        return spread_by_passes(s, setting(s.cluster.device, s.engine, q, s.efficiency)[0])

    mixture = any(isinstance(b.ffn, MoE) for b in s.model.blocks)
    if not mixture or s.efficiency.mode != "calibrated" or not spread(s.quant):
        return ()
    plain = [q.name for q in map(parse_quant, ("int4", "fp8")) if s.engine.abilities.runs(q) and not spread(q)]
    why = f"{s.engine.name} has no kernel for such experts in {s.quant.name} on {s.cluster.device.name}"
    rest = f"; {' or '.join(plain)} runs as it is" if plain else ""
    return (f"{why}: each pass spreads all of them to 16 bits first{rest}",)


class Deployed(NamedTuple):
    """What a request is made of: a scenario with the usual work, and what was assumed to make it."""

    scenario: Scenario
    assumed: tuple[str, ...]


def deployed(model: str | Model, ranks: Any = None, **given: Any) -> Deployed:
    """The model on its machine, whatever is asked of it: all arguments of `infer` but the work and --set. ranks: of a
    tensor group, where --set gives them."""
    found, machine, mode, own, assumed = opened(model, given)
    told: list[str] = []
    engine = given["engine"]
    away = Offload(**fields_at("offload", "infer", given))
    tag = pulled(model, engine)
    scheme = quant_for(found, given["quant"], told, tag)
    if engine is None:
        usual = assumed_engine(own, scheme, machine.device, tag, not away.off, not given["quant"])
        engine = usual if mode.mode == "calibrated" else "ideal"
        listed = is_array(away.layers) or is_array(away.experts)
        assumed.append(f"engine {engine}" + " for all points: it runs layers on the host" * listed)
    runner = find_engine(engine, machine)
    named = isinstance(engine, str) and split_release(engine)[1]
    if given["engine"] is not None and not named:
        others = other_releases(runner.name)
        beside = f" (other releases: {', '.join(others)})" * bool(others)
        assumed += [f"{runner.name} {runner.version}{beside}"] * bool(others or runner.name != engine)
    assumed += release_told(engine, runner)
    mode = efficiency_of(runner, mode, given["efficiency"] is None, assumed)
    degrees = split_degrees(found, machine, given, assumed, runner.abilities)
    spread_experts(found, degrees, runner.abilities, assumed)
    asked, scheme = scheme, as_run(scheme, machine.device.peak, runner.kernels.own_files)
    if highest(scheme.act_bits) > highest(asked.act_bits):
        assumed.append(f"activations of 16 bits ({machine.device.name} has no units for {asked.name})")
    scheme, partial = whole_where_hollow(scheme, found), scheme
    if scheme is not partial:
        assumed.append(f"{scheme.name} of all products: {found.name} has no {narrowed(partial)}")
    scheme, narrow = in_blocks(scheme, found), scheme
    if scheme.name != narrow.name:
        assumed.append(f"quant {scheme.name}: files of {found.name} keep its experts so, whatever their type")
    elif highest(scheme.weight_bits - narrow.weight_bits) > 0:
        bits = plain_number(round(highest(scheme.weight_bits), 2))
        assumed.append(f"{scheme.name} of {bits} bits a weight: rows of {found.name} are no whole blocks of 256")
    assumed += [text.replace(f"quant {asked.name}", f"quant {scheme.name}") for text in told]
    mapping = with_stages(Mapping(**fields_at("mapping", "infer", given) | degrees), runner, found)
    last = mapping if ranks is None or isinstance(ranks, str) else replace(mapping, tp=ranks)
    group = last.tp * (last.dp if attention_dp(found) else 1)
    runner = with_norms(with_graphs(runner, machine.device, group, found.family), found, machine, last)
    runner = with_limits(runner, machine.device, found, last.dp)
    guessed = fields_at("speculation", "infer", given)
    draft = generating(given["draft"], "draft") if given["draft"] else None
    spec = drafting(Speculation(**guessed, draft=draft))
    if not away.off and given["host_bandwidth"] is None:
        drawn = float(np.max(runner.host.cpu_share))
        rate = float(np.max(away.bandwidth)) / 1e9
        assumed.append(f"host memory {rate:g} GB/s, of which its CPU draws {100 * drawn:.0f} %")
    made = Scenario(found, Workload(), mapping, machine, runner, scheme, mode, speculation=spec, offload=away,
                    adapters=Adapters(**fields_at("adapters", "infer", given)))  # fmt: skip
    if not made.adapters.off:
        refuse_absent("adapter_modules", found, made.adapters.modules)
    return Deployed(with_blocks(made), (*assumed, *computed_wider(made)))


def refuse_absent(argument: str, model: Model, modules: Sequence[str]) -> None:
    """RooflmError for adapters on products of which a model has none outside routed experts: nothing to train or serve.

    >>> refuse_absent("lora_modules", load_model("falcon-40b"), ["gate"])
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: lora_modules is gate, but falcon-40b has no such product: name one of q,k,v,out,up,down
    """
    routed = mixtures(model) and {"experts", "experts_shared"} & set(modules)
    if modules == ADAPTED or routed or np.any(adapter_params(model.scaled, Mapping(), 1, modules)):
        return
    parts = [name for name in ADAPTED if name not in SEVERAL]
    own = [name for name in parts if np.any(adapter_params(model.scaled, Mapping(), 1, [name]))]
    outside = " outside its routed experts" if mixtures(model) else ""
    rule = f"{model.name} has no such product{outside}: name one of {','.join(own)}"
    raise RooflmError(f"{argument} is {','.join(modules)}, but {rule}")


def drafting(spec: Speculation) -> Speculation:
    """Guesses of a draft model in the scheme of its own checkpoint."""
    return spec if spec.draft is None else replace(spec, scheme=parse_quant(spec.draft.quant or "bf16"))


@lru_cache(maxsize=256, typed=True)
def _deployed(model: str, **given: Any) -> Deployed:
    """`deployed` by names of the catalogue, refused where a split breaks a rule."""
    made = deployed(model, **given)
    refuse(made.scenario, DEPLOYED)
    return made


PLAIN = (str, int, float, bool, NoneType)


def _catalogued(model: Any, given: Dict[str, Any]) -> bool:
    """Whether these arguments are plain, and no name among them is a file or another place that may change."""
    models = (model, given["draft"]) if given["draft"] else (model,)
    return (
        all(type(name) is str and normalise(name) in aliases("model") for name in models)
        and all(type(v) in PLAIN for v in given.values())
        and not any(is_path(given[k]) for k in ("gpu", "cluster", "engine") if given[k])
    )


WORK = tuple(a.name for _, a in placed("infer", "workload"))
"""Arguments of what is asked of a deployed model."""


def build_inference(model: str | Model, *, alone: bool = True, **arguments: Any) -> Built:
    """A Scenario for inference from the arguments of `infer` (see `asked.arguments`). Numbers may be arrays.

    alone: a split that breaks a rule is refused; a member of a grid or a search is marked instead (`scenario.rules`).
    Raises RooflmError for bad input.
    """
    given = filled("infer", arguments)
    sets = given.pop("sets") or {}
    asked = {name: given.pop(name) for name in WORK}
    catalogued = alone and not sets and _catalogued(model, given)
    start, assumed = _deployed(model, **given) if catalogued else deployed(model, sets.get("mapping.tp"), **given)
    found = start.model
    asked["output"] = output_of(found, asked["output"])
    work = Workload(**fields_at("workload", "infer", asked))
    scenario = whole_prompts(apply_sets(replace(start, workload=work), sets), sets)
    if scenario.speculation.draft is not start.speculation.draft:
        scenario = replace(scenario, speculation=drafting(scenario.speculation))
    assumed = (*assumed, *guessing(scenario))
    if not scenario.model.head:
        assumed = (*assumed, "it embeds texts: prompts alone, no output")
    effective(scenario, sets, training=False)
    kept, guesses = scenario.engine.server.prefix_caching, scenario.speculation.guesses
    scenario = with_share(with_overlap(scenario, kept, guesses))
    if alone:
        refuse(scenario, ASKED if catalogued else INFERENCE)
    warnings = too_long(found, "prompt + output", work.prompt + (work.output if found.head else 0))
    warnings += other_phase(scenario, "inference") + not_built_for(scenario) + default_tiles(scenario)
    warnings += experts_spread(scenario)
    warnings += schemes_near(scenario) if given["engine"] is None else ()
    return Built(scenario, assumed, warnings)
