"""What both estimators share: how timed nodes become the time of a step, and power and cost of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import INF, Engine, Host
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.hardware import Device
from rooflm.catalogue.model import MLA
from rooflm.graph.ops import DECODE_ATTENTION, Comm, Op
from rooflm.kernels.derating import derating, power_ratio, power_slowdown
from rooflm.kernels.expert_kernels import called_once, expert_families, routed_inside
from rooflm.kernels.roofline import Timed, comm_volume
from rooflm.kernels.streaming import fused_scan
from rooflm.kernels.training_factors import table
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, is_plain, larger, pick, smaller

MEMORY_POWER = 0.6
"""Share of the dynamic power that streaming device memory at full rate draws (inferred: HBM GPUs draw 55 to 65 % of
their TDP in decoding; Patel et al., "Characterizing power management opportunities for LLMs in the cloud", 2024)."""


class EagerShares(NamedTuple):
    """Kernels that Python launches one by one, as shares of all launches of a pass."""

    share: Num = 0.0
    spared: Num = 0.0  # that a fused expert kernel saves
    scans: Num = 0.0  # recurrent scans of a prompt, beside the experts' share


NONE_EAGER = EagerShares()


@dataclass(frozen=True)
class Step:
    """One pass on one device (s). Parts, FLOPs, bytes and energy are computed when first read."""

    total: Num
    device_time: Num  # without the host
    alone: Num  # sum of kernels and collectives as timed one by one
    shares: dict[str, Num]  # the same by part
    timed: Sequence[Timed] = field(repr=False)
    device: Device = field(repr=False)
    slower: Num = 1.0  # factor on all device times

    @cached_property
    def busy(self) -> Num:
        """Seconds with a kernel running."""
        return smaller(self.alone * self.slower, self.device_time)

    @cached_property
    def packed(self) -> Num:
        """Time of a kernel within the pass over its time alone."""
        return self.busy / larger(self.alone, 1e-300)

    @cached_property
    def parts(self) -> dict[str, Num]:
        """Seconds by part of the breakdown; they sum to the total."""
        parts = {name: value * self.packed for name, value in self.shares.items()}
        return {**parts, "gaps": self.device_time - self.busy, "host": self.total - self.device_time}

    @cached_property
    def flops(self) -> Num:
        """FLOPs of the pass."""
        return add_up(t.node.count * t.node.flops for t in self.timed if isinstance(t.node, Op))

    @cached_property
    def bytes(self) -> Num:
        """Bytes through device memory, each operand once."""
        return add_up(t.node.count * t.node.bytes for t in self.timed if isinstance(t.node, Op))

    @cached_property
    def dynamic(self) -> Num:
        """Joules beyond idle power."""
        return dynamic_energy(self.timed, self.device)


def add_up(values: Iterable[Num]) -> Num:
    """The sum, small arrays first: what varies along few axes is added up before it meets what varies along many."""
    total: Num = 0.0
    arrays: list[NDArray[Any]] = []
    for value in values:
        if isinstance(value, np.ndarray):
            arrays.append(value)
        else:
            total += value
    return sum(sorted(arrays, key=np.size), total) if arrays else total


def launches(timed: Sequence[Timed]) -> Num:
    """Kernels launched in a pass. A collective is one launch, or none for a group of one rank."""
    nodes = [t.node for t in timed]
    return sum(n.count * (n.launches if isinstance(n, Op) else smaller(n.ranks - 1, 1)) for n in nodes)


def by_name(pairs: Iterable[tuple[str, Num]]) -> dict[str, Num]:
    """The values of each name added up."""
    values: dict[str, list[Num]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: add_up(each) for name, each in values.items()}


def by_part(timed: Sequence[Timed]) -> dict[str, Num]:
    """Seconds by part of the breakdown."""
    return by_name((t.node.part, t.total) for t in timed)


def flops_seconds(t: Timed) -> Num:
    """Seconds of a product's FLOPs, slowed by heat where a pass has no prompts (docs/decisions/0287, 0288)."""
    if not isinstance(t.node, Op) or t.rates is None or t.node.kind in DECODE_ATTENTION:
        return 0.0
    return t.node.count * smaller(t.node.flops / t.rates.peak[t.node.rate], t.time)


def dynamic_energy(timed: Sequence[Timed], device: Device) -> Num:
    """Joules that the work itself draws beyond idle power."""
    return add_up(t.node.count * joules(t, device) for t in timed)


def joules(t: Timed, device: Device) -> Num:
    """The same of one execution: at the compute rate of its roofline it draws TDP, streaming memory at full rate
    MEMORY_POWER of the way to it, and never more than a power limit in the time that it takes."""
    if not isinstance(t.node, Op) or t.rates is None:
        return 0.0
    at_full = larger(t.node.flops / t.rates.peak[t.node.rate], MEMORY_POWER * t.node.bytes / t.rates.dram)
    free = (device.tdp - device.idle) * at_full
    most = larger(smaller(device.power_limit, device.tdp) - device.idle, 0.0) * t.time
    return pick(device.power_limit < device.tdp, smaller(free, most), free)


@kept
def unfitted(engine: Engine) -> Engine:
    """The engine for kernels at roofline speed: without the corrections of measured kernels (overlapping launches,
    slower prefill passes), which would beat the roofline or count twice. Host costs stay.

    >>> unfitted(Engine("").but(gap=-1e-6, prompt=1.2)) == Engine("")
    True
    """
    return engine.but(gap=larger(engine.host.gap, 0.0), prompt=1.0)


def prompt_factor(engine: Engine, device: Device) -> Num:
    """Factor on the kernels of a pass with prompts, prompt^`power_ratio`: full tiles draw all the power that a card may
    take and clocks fall, less where there are more W to what half of the FLOP/s that kernels reach draws than on H100,
    and more where fewer: the W a FLOP/s of the generation's products in training ("other": of H100's)."""
    reached = device.half_peak * derating(device, engine.runs, engine.kernels.sums).compute / power_slowdown(device)
    watts = table()["power"]
    hot = power_ratio(watts.get(device.kernel_generation, watts["other"]), device.tdp, reached / 2)
    return engine.factors.prompt ** pick(engine.factors.prompt > 1, hot, 1.0)


def paced(alone: Num, gaps: Num, roof: Num, slower: Num) -> Num:
    """Seconds of a pass's kernels with the gaps between them, so many times slower: a negative gap (launches overlap in
    a graph) takes half of their time at most, and nothing is faster than their rooflines.

    >>> paced(4.0, -3.0, 1.0, 1.5), paced(4.0, -1.0, 3.5, 1.0)
    (3.0, 3.5)
    """
    return larger(larger(alone + gaps, alone / 2) * slower, roof)


def hosted(device_time: Num, issued: Num, fixed: Num, overlap: Num) -> Num:
    """Seconds of a pass on device and host together (see `step`)."""
    return pick(overlap, larger(device_time, issued + fixed), larger(device_time, issued) + fixed)


def captured(h: Host, s: Scenario) -> Num:
    """Most tokens of a prefill pass that a CUDA graph covers: of its model, its split and its experts' library."""
    latent = any(isinstance(b.mixer, MLA) for b in s.model.blocks)
    most = smaller(h.captured, h.captured_latent) if latent else h.captured
    if not h.uncaptured:
        return most
    family = s.model.family
    true = {family: True, "ranks": np.max(s.mapping.expert_dp) > 1, "stages": np.max(s.mapping.pp) > 1,
            "adapters": np.max(s.adapters.held) > 0}  # fmt: skip
    if f"-{family}" not in words_in(h.uncaptured):
        true |= dict.fromkeys(expert_families(s), True)
    return 0.0 if any(map(true.get, words_in(h.uncaptured))) else most


def graphed(engine: Engine, context: Num) -> Num:
    """Most sequences of a decode pass that a CUDA graph covers at these contexts; 0 beyond the captured length.

    >>> e = Engine("").but(graphed_sequences=256, graph_length=8192)
    >>> [int(graphed(e, n)) for n in (8192, 8193)]
    [256, 0]
    """
    most, longest = engine.host.graphed_sequences, engine.kernels.graph_length
    return most if is_plain(longest, INF) else pick(context > longest, 0.0, most)


def issue_time(engine: Engine, tokens: Num, held: Num, experts: EagerShares = NONE_EAGER, launching: Num = 1.0) -> Num:
    """Host time a launch, in a pass of so many tokens: a graph's where one covers them (at most `held`), else eager.
    experts: what Python launches one by one (scans, between pieces of a graph too); launching: the host's speed.

    >>> e = Engine("").but(issue_prefill=4e-6, issue_decode=1e-6, eager=6e-5, eager_experts=8e-5)
    >>> [round(1e6 * float(issue_time(e, n, 512, EagerShares(0.5)))) for n in (512, 513)]
    [1, 70]
    >>> round(1e6 * float(issue_time(e, 513, 512, EagerShares(0.5, spared=0.2))))  # 0.8 x 60 + 0.3 x 20
    54
    >>> [round(1e6 * float(issue_time(e.but(eager_scans=1.8e-4), n, 512, EagerShares(scans=0.5)))) for n in (512, 513)]
    [91, 120]
    """
    h = engine.host
    more = larger(h.eager_experts - h.eager, 0.0)
    spared = pick(more > 0, experts.spared, 0.0)
    scan = larger(h.eager_scans, h.eager_experts)
    scans = experts.scans * larger(scan - h.eager, 0.0)
    eager = launching * (h.eager * (1.0 - spared) + (experts.share - spared) * more + scans)
    return pick(tokens > held, larger(h.issue_prefill, eager), h.issue_decode + launching * experts.scans * scan)


SPARED = 6
"""Launches a layer that experts which choose by themselves need not: three of the router, three of their own four."""


def eager_shares(timed: Sequence[Timed], s: Scenario) -> EagerShares:
    """Kernels that Python launches one by one: experts with their routing, and recurrent scans of a prompt. Either
    counts none where one call issues all, and experts fewer where they do the routing too.

    Source: FlashInfer, fused_moe/core.py (a call takes router scores), gdn_prefill.py; SGLang and vLLM, fla/ops."""
    moe = [t for t in timed if t.node.part == "moe"]
    moe = [] if moe and called_once(s) else moe
    scans = [t for t in timed if isinstance(n := t.node, Op) and n.name == "scan" and not fused_scan(n, s)]
    if not moe and not scans:
        return NONE_EAGER
    layers = add_up(t.node.count for t in moe if isinstance(t.node, Op) and t.node.kind == "moe")
    inside, every = bool(moe) and s.efficiency.mode == "calibrated" and routed_inside(s), launches(timed)
    return EagerShares(launches(moe) / every, SPARED * inside * layers / every, launches(scans) / every)


def heat_seconds(slower: Num, flops_time: Num) -> Num:
    """Seconds that heat adds to kernels of a pass without prompts: the factor of one with prompts (`prompt_factor`),
    above 1, on the seconds that their FLOPs take (`flops_seconds`)."""
    return (larger(slower, 1.0) - 1.0) * flops_time


def step(timed: Sequence[Timed], engine: Engine, device: Device, issue: Num, fixed: Num, prompts: bool = False) -> Step:
    """The time of one pass: kernels and collectives one after the other, gaps between them, and the host.

    total = max(device, launches x `issue`) plus the engine's `fixed` costs, hidden where it prepares the next step
    during this one (`hosted`). What the host adds is the part "host"; parts sum to the total, and a negative gap
    shortens all alike (`paced`). prompts: the pass has some (else `heat_seconds`)."""
    host, shares = engine.host, by_part(timed)
    alone, count = add_up(shares.values()), launches(timed)
    slower = prompt_factor(engine, device)
    if not prompts:
        hot = not is_plain(larger(slower, 1.0), 1.0)
        slower = 1.0 + heat_seconds(slower, add_up(map(flops_seconds, timed))) / larger(alone, 1e-300) if hot else 1.0
    if isinstance(host.gap, int | float) and host.gap >= 0 and is_plain(slower, 1.0):
        device_time = alone + count * host.gap
    else:
        roof = add_up(t.node.count * smaller(t.roof, t.time) for t in timed)
        device_time = paced(alone, count * host.gap, roof, slower)
    total = hosted(device_time, count * issue, fixed, host.overlap)
    return Step(total, device_time, alone, shares, timed, device, slower)


def volumes(timed: Sequence[Timed], pp: Num) -> dict[str, Num]:
    """Bytes that one device sends in a pass, by collective: its stage's share of the layers' and its output, once."""
    comms = [t.node for t in timed if isinstance(t.node, Comm)]
    return by_name((c.name, comm_volume(c) / (larger(pp - 1, 1) if c.group == "pp" else pp)) for c in comms)
