"""What would make a scenario fit: another scheme, batch, split, recomputation or sharding, each tried by the formulas
of memory that say that it does not."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked.assumed import built_for, engines_on_host, with_share
from rooflm.asked.ways import tensor_ways
from rooflm.catalogue.model import MoE
from rooflm.catalogue.quant import Quant, compute_dtype
from rooflm.estimate.capacity import max_batch, memory_use
from rooflm.estimate.offloaded import stored_part
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import PRESETS, as_run, in_blocks, parse_quant, without_cache
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.scenario.rules import ENGINE, INFERENCE, Rule, divisors, expert_rules
from rooflm.scenario.scenario import Scenario
from rooflm.shown.numbers import gib
from rooflm.units import any_of


class Remedy(NamedTuple):
    """A change that makes it fit: arguments of the call with their new values, the bytes left then, and the bytes of a
    GPU's weights that the host's memory holds then."""

    change: dict[str, Any]
    margin: float
    away: float = 0.0

    @property
    def words(self) -> str:
        """The change as one writes it.

        >>> Remedy({"quant": "fp8", "batch": 4}, 0.0).words, Remedy({"gpus": 2, "tp": 2, "pp": 1}, 0.0).words
        ('quant fp8 and batch 4', '2 GPUs (tp 2)')
        """
        split = {k: v for k, v in self.change.items() if k in SERVED_DEGREES and v != 1}
        gpus = self.change.get("gpus")
        inside = f" ({', '.join(f'{k} {v:g}' for k, v in split.items())})" if split else ""
        changes = [f"{gpus:g} GPUs{inside}"] if gpus else []
        rest = {k: v for k, v in self.change.items() if k not in ("gpus", "sets", *SERVED_DEGREES)}
        sets = [f"--set {path}={value:g}" for path, value in self.change.get("sets", {}).items()]
        away = f" ({gib(self.away)} a GPU in the host's memory)" if self.away else ""
        return " and ".join([*changes, *(f"{k.replace('_', '-')} {_word(v)}" for k, v in rest.items()), *sets]) + away


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def serving_remedies(s: Scenario) -> tuple[Remedy, ...]:
    """Changes with which serving would fit, the cheapest first: an 8-bit cache, the widest narrower scheme that the
    engine runs, attention data parallel, the largest batch that fits, the fewest GPUs that hold it; a narrower scheme
    and an 8-bit cache together where neither is enough."""
    plain = [replace(s, quant=q) for q in narrower(s)]
    small = [r for r in (replace(s, quant=q) for q in eight_bit_cache(s, [s.quant])) if _left(r) >= 0]
    first = next((r for r in plain if _left(r) >= 0), None)
    both = (replace(s, quant=q) for q in eight_bit_cache(s, [p.quant for p in plain]))
    remedies = [*small[:1], *([first] if first else [])] or [r for r in both if _left(r) >= 0][:1]
    out = [Remedy({"quant": r.quant.name}, _left(r)) for r in remedies]
    out += [r for r in (data_parallel(s),) if r]
    most = float(max_batch(stored_part(s)))
    if most >= max(float(s.mapping.dp), 1):
        fewer = replace(s, workload=replace(s.workload, batch=most))
        out.append(Remedy({"batch": int(most)}, _left(fewer)))
    out += [r for r in (on_the_host(s, name) for name in ("cpu_experts", "cpu_layers")) if r][:1]
    out += [] if out else experts_elsewhere(s)
    least = fewest_gpus(s)
    if least is not None:
        dp = float(s.mapping.dp)
        wide = replace(s, mapping=replace(s.mapping, tp=least.tp, pp=least.pp, ep=least.ep, gpus=0))
        ep = {"ep": least.ep} if least.ep > s.mapping.ep else {}
        out.append(Remedy({"gpus": int(least.devices * dp), "tp": least.tp, "pp": least.pp, **ep}, _left(wide)))
    return tuple(out)


MOST_STAGES = 64
"""Most pipeline stages that are tried."""


class Split(NamedTuple):
    """A tensor and pipeline split, and the ranks of experts."""

    devices: int
    tp: int
    pp: int
    ep: int


def fewest_gpus(s: Scenario) -> Split | None:
    """The split with the fewest GPUs (then the largest tp) whose memory suffices, tp within a node; None if none does.

    Beyond one node they are whole nodes, as one rents them. The batch and lengths stay; data parallelism is left as it
    is.
    """
    node = int(np.max(np.asarray(s.cluster.tiers[0].size))) if s.cluster.tiers else 1
    ways = np.array(divisors(tensor_ways(s.model) or 1, node), dtype=float)
    stages = np.arange(1, min(MOST_STAGES, int(np.max(s.model.layers))) + 1, dtype=float)
    m, ranks = s.mapping, ways[:, None] * s.mapping.dp
    experts = ranks if 1 < m.ep == m.tp * m.dp else np.minimum(m.ep, ranks)  # over all ranks where they are so now
    tried = replace(m, tp=ways[:, None], pp=stages[None, :], ep=experts, gpus=0)
    grid = with_share(replace(s, mapping=tried, axes=2))
    memory = memory_use(stored_part(grid))
    legal = (memory.total <= memory.capacity) & (ways[:, None] * stages * s.mapping.dp <= MOST_GPUS)
    legal &= any_of(rule.broken(grid) for rule in (*ENGINE, *expert_rules("tp", "dp"))) == 0
    if s.engine.abilities.layers_first:
        legal = legal & (np.asarray(tried.tp) == np.minimum(s.mapping.tp, node))
    devices = ways[:, None] * stages
    legal = legal & ((devices * s.mapping.dp <= node) | (devices * s.mapping.dp % node == 0))
    devices = np.where(legal, devices, np.inf)
    if not np.isfinite(devices).any():
        return None
    best = devices.min()
    row = max(i for i in range(len(ways)) if best in devices[i])
    return Split(int(best), int(ways[row]), int(best / ways[row]), int(experts[row, 0]))


def data_parallel(s: Scenario) -> Remedy | None:
    """The same GPUs with attention data parallel and experts spread over them, which holds a sequence's cache once,
    where a tensor group holds one of few heads (MLA: one) on each of its ranks."""
    m, ranks = s.mapping, int(s.mapping.tp * s.mapping.dp)
    if ranks == 1 or (m.dp != 1 and m.ep != 1) or not any(isinstance(b.ffn, MoE) for b in s.model.blocks):
        return None
    other = replace(s, mapping=replace(m, tp=1, dp=ranks, ep=ranks, gpus=0))
    if _left(other) < 0 or bool(np.any(any_of(rule.broken(other) for rule in INFERENCE))):
        return None
    return Remedy({"gpus": int(m.devices), "tp": 1, "dp": ranks, "ep": ranks}, _left(other))


def experts_apart(s: Scenario) -> Scenario | None:
    """A mixture in a tensor group or stages with attention data parallel instead, on as many of the devices as its
    experts go over evenly, each with sequences of its own; none where that breaks a rule."""
    m, experts = s.mapping, [int(b.ffn.experts) for b in s.model.blocks if isinstance(b.ffn, MoE)]
    most = min(int(m.devices), int(np.max(s.workload.batch)))
    ranks = max((n for n in divisors(math.gcd(*experts)) if n <= most), default=1) if experts and m.dp == 1 else 1
    other = replace(s, mapping=replace(m, tp=1, pp=1, cp=1, dp=ranks, ep=ranks, gpus=0))
    legal = ranks > 1 and not bool(np.any(any_of(rule.broken(other) for rule in INFERENCE)))
    return other if legal and _left(other) >= 0 else None


def on_the_host(s: Scenario, name: str) -> Remedy | None:
    """The fewest layers (or layers' experts) that must stay in the host's memory, where it is another and the
    engine runs some there; none where it holds some of the other kind already."""
    experts = sum(float(b.count) for b in s.model.blocks if isinstance(b.ffn, MoE))
    most = int(experts if name == "cpu_experts" else float(np.max(s.model.layers)) - 1)
    other = s.offload.layers if name == "cpu_experts" else s.offload.experts
    if not s.engine.abilities.host_layers or other or most < 1 or s.cluster.unified:
        return None

    def left(n: int) -> float:
        away = replace(s.offload, **{name.removeprefix("cpu_"): n})
        return _left(replace(s, offload=away))

    if left(most) < 0:
        return None
    least = bisect_left(range(1, most + 1), 0.0, key=lambda n: min(left(n), 0.0)) + 1
    return Remedy({name: least}, left(least))


def experts_elsewhere(s: Scenario) -> list[Remedy]:
    """The first other engine that runs the experts of so many layers on the host, where one device holds the rest."""
    for other in map(load_engine, engines_on_host() if s.mapping.devices == 1 else ()):
        quant = as_run(s.quant, s.cluster.device.peak, other.kernels.own_files)
        if other.abilities.runs(quant) and built_for(other, s.cluster.device):
            found = on_the_host(replace(s, engine=other, quant=quant), "cpu_experts")
            return [Remedy({"engine": other.name, **found.change}, found.margin)] if found else []
    return []


def _left(s: Scenario) -> float:
    """Bytes left on the fullest device, of the share of it that such a split and scheme have."""
    return float(memory_use(stored_part(with_share(s))).margin)


def runnable(s: Scenario) -> list[Quant]:
    """Presets of weights below 16 bits that the engine runs and whose products the device multiplies (or whose
    activations stay wide), with the scenario's cache, the widest first."""
    able, device = s.engine.abilities, s.cluster.device

    def fast(q: Quant) -> bool:
        return bool(q.act_bits >= 16) or compute_dtype(q.act_bits, q.kind, device.peak)[1]

    narrow = [q for q in PRESETS.values() if not q.wide and q.weight_bits < 16 and able.runs(q) and fast(q)]
    run = (in_blocks(as_run(q, device.peak), s.model) for q in narrow)
    ranked = sorted(run, key=lambda q: (-round(8 * float(q.weight_bytes)),
                    POPULAR.index(q.name) if q.name in POPULAR else len(POPULAR)))  # fmt: skip
    return [replace(q, kv_bits=s.quant.kv_bits) if s.quant.kv_bits != 16 else q for q in ranked]


def narrower(s: Scenario) -> list[Quant]:
    """The presets of `runnable` whose weights are narrower than the scenario's."""
    return [q for q in runnable(s) if q.weight_bytes < 0.95 * s.quant.weight_bytes]


POPULAR = ("fp8", "int8", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "nvfp4", "awq", "int4")
"""Which of schemes of one width (to the bit) is named."""


def eight_bit_cache(s: Scenario, schemes: Iterable[Quant]) -> Iterator[Quant]:
    """The schemes with an 8-bit cache, where the engine keeps one."""
    for q in schemes:
        formats = s.engine.abilities.caches
        if q.kv_bits > 8 and (not formats or "8" in formats.replace(" ", "").split(",")):
            try:
                yield parse_quant(f"{without_cache(q.name)}kv8")
            except ValueError:
                continue


def training_remedies(
    s: Scenario, left: Callable[[Scenario], tuple[float, float]], most: float, rules: Iterable[Rule]
) -> tuple[Remedy, ...]:
    """Changes with which training would fit: single ones, else pairs of them; and the fewest further GPUs with which it
    is not one of these that makes it fit. left: bytes left on the fullest device of a scenario, and those of its
    weights that the host holds; most: the largest micro-batch that fits; rules: those that a split must keep."""
    rules = tuple(rules)

    def tried(changes: Mapping[str, Any]) -> Remedy | None:
        other = changed(s, changes)
        if bool(np.any(any_of(rule.broken(other) for rule in rules))):
            return None
        margin, away = left(other)
        return Remedy(dict(changes), margin, away) if margin >= 0 else None

    single = list(steps(s, most))
    remedies = [r for r in map(tried, single) if r]
    if not remedies:
        pairs = [{**a, **b} for a, b in itertools.combinations(single, 2) if not a.keys() & b.keys()]
        remedies = [r for r in map(tried, pairs) if r][:3]
        if not remedies and s.training.adapters and not s.cluster.unified:  # a frozen base may lie in the host's memory
            away = ({**change, "sets": {"training.offload_params": 1}} for change in ({}, *single, *pairs))
            remedies = [r for r in map(tried, away) if r][:1]
    plain = [{k: v for k, v in r.change.items() if k not in ("micro_batch", "sets")} for r in remedies]  # theirs is 1
    enough = [change.items() for r, change in zip(remedies, plain, strict=True) if "sets" not in r.change]
    needed = (c for c in more_gpus(s) if not any(changes <= c.items() for changes in enough))
    gpus = next((r for r in map(tried, needed) if r), None)
    return (*remedies, *([gpus] if gpus else []))


def steps(s: Scenario, most: float) -> Iterator[dict[str, Any]]:
    """Single changes, those that cost least time first."""
    m, t, habits = s.mapping, s.training, s.engine.habits
    if 1 <= most < m.micro_batch:
        yield {"micro_batch": int(most)}
    if t.adapters and float(np.min(t.base_bits)) > 4:
        yield {"base_bits": 4}
    again = ("selective", "full") if not s.engine.kernels.flash else ("full",)
    for policy in again:
        if m.recompute != policy and m.recompute != "full":
            yield {"recompute": policy}
    if m.dp > 1:
        top = 3 if m.pp == 1 else int(habits.pipeline_zero)
        yield from ({"zero": z} for z in range(int(m.zero) + 1, top + 1) if z != 1 or habits.zero_one)
    if t.optimizer == "adam" and not t.adapters:
        yield {"optimizer": "adam8bit"}


MOST_GPUS, MOST_TIMES = 16384, 256
"""Most GPUs that are tried: those of the largest measured jobs, and so many times those that were asked for."""


def more_gpus(s: Scenario) -> Iterator[dict[str, Any]]:
    """Larger numbers of GPUs, by powers of two: more data-parallel ranks with the widest sharding that the engine
    allows, at a micro-batch of one sequence, then the same with full recomputation."""
    m, habits = s.mapping, s.engine.habits
    top = 3 if m.pp == 1 else int(habits.pipeline_zero)
    dp = float(m.dp)
    most = min(MOST_GPUS, MOST_TIMES * float(m.devices))
    while dp * 2 * m.tp * m.pp * m.cp <= most and dp * 2 <= s.workload.batch:
        dp *= 2
        for again in dict.fromkeys((m.recompute, "full")):
            rest = {"zero": max(top, int(m.zero)), "micro_batch": 1, "recompute": again}
            other = {k: v for k, v in rest.items() if getattr(m, k) != v}
            yield {"gpus": int(dp * m.tp * m.pp * m.cp), "dp": int(dp), **other}


def changed(s: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with some arguments of `train` changed."""
    mapping = {k: v for k, v in changes.items() if k in ("micro_batch", "recompute", "zero", "dp")}
    training = {k: v for k, v in changes.items() if k in ("base_bits", "optimizer")}
    training |= {path.removeprefix("training."): value for path, value in changes.get("sets", {}).items()}
    return replace(s, mapping=replace(s.mapping, **mapping, gpus=0), training=replace(s.training, **training))
