"""Op x Device x efficiency -> seconds of one execution, and what bounds it.

Ideal and flat: the hierarchical roofline, max(FLOPs / rate, bytes at L1, L2 and device memory / bandwidth), with
each level's traffic that of the best tiling that fits the level below it. Calibrated: `kernels.dispatch`; the label of
what bounds it is the roofline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from rooflm.catalogue.engine import Factors
from rooflm.catalogue.hardware import Link
from rooflm.graph.ops import Comm, Op, distinct
from rooflm.kernels import dispatch
from rooflm.kernels.collectives import comm_time, volume
from rooflm.kernels.rates import Rates, best_rates
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, is_plain, larger, pick, smaller, sqrt

K = TypeVar("K")
PACKING = 12e-6
"""What narrowing the values of an all-reduce and widening them again takes (s): of 4 kB, INT4 18.7 us on two MI300X and
21.3 on four, plain 7.1 (ROCm/aiter pull request 801, sgl-project/sglang 6619)."""
BOUNDS = ("compute", "dram", "l2", "l1", "overhead", "network", "host")
"""What can bound a node; a label is an index into this tuple."""

REGISTER_TILE = 256
"""Side of the largest square of fp32 sums that an SM's register file holds: 256 x 256 x 4 B = 256 KiB."""
MEASURED = Factors()
"""Factors of kernels as they were measured alone: 1."""


class Timed(NamedTuple):
    """A node with the seconds of one execution (of a collective: `time` alone)."""

    node: Op | Comm
    time: Num
    kernel: Num = 0.0  # of its calibrated kernel
    roof: Num = 0.0  # at least: its FLOPs at the datasheet's rate, its bytes at that of device memory
    rates: Rates | None = None  # of its roofline

    @property
    def bound(self) -> Num:
        """The index in BOUNDS of what bounds it: the longest level, or overhead where its kernel takes twice that."""
        if not isinstance(self.node, Op) or self.rates is None:
            return BOUNDS.index("network")
        levels = level_times(self.node, self.rates)
        longest: Num = larger(larger(*levels[:2]), larger(*levels[2:]))
        which: Num = 3
        for level in (2, 1, 0):
            which = pick(levels[level] >= longest, level, which)
        return pick(self.kernel > 2.0 * longest, BOUNDS.index("overhead"), which)

    @property
    def total(self) -> Num:
        """Seconds of all executions of the node in a pass."""
        return self.node.count * self.time


def traffic_times(r: Rates, moved: Num, m: Num, n: Num, k: Num, weight: Num, act: Num) -> tuple[Num, Num, Num]:
    """Seconds of a product's traffic at [DRAM, L2, L1]; moved: bytes, each operand once; weight, act: a value of B, A.

    A product re-reads A once for each tile of columns and B once for each tile of rows; the tile of a level is the
    largest square of 16-bit values that the next level up holds (Hong and Kung 1981): L2's capacity for DRAM traffic,
    all L1 for L2 traffic, the register file for L1 traffic."""
    a, b = m * k * act, k * n * weight
    rest = moved - a - b

    def read(tile: Num) -> Num:
        return a * larger(n / tile, 1.0) + b * larger(m / tile, 1.0) + rest

    return read(sqrt(r.l2_size / 2)) / r.dram, read(sqrt(r.l1_size / 2)) / r.l2, read(REGISTER_TILE) / r.l1


def level_times(op: Op, r: Rates) -> tuple[Num, Num, Num, Num]:
    """The roofline of an op: seconds at [compute, DRAM, L2, L1]. All but products touch every level once."""
    compute = op.flops / r.peak[op.rate]
    if op.kind == "gemm":
        return compute, *traffic_times(r, op.bytes, *op.shape[:3], *op.widths[:2])
    return compute, op.bytes / r.dram, op.bytes / r.l2, op.bytes / r.l1


def time_ops(ops: Sequence[Op], s: Scenario, factors: Factors = MEASURED) -> list[Timed]:
    """Every op timed: its kernel's time and, calibrated, times the factor of its kind of kernel. None makes a kernel
    faster than its roof, since factors fitted on one card also serve others, where less may be left to win."""
    r, timed = best_rates(s), list[Timed]()
    levels = [level_times(op, r) for op in ops]
    roofs = [larger(compute, dram) for compute, dram, _, _ in levels]
    times = [larger(roof, larger(l2, l1)) for roof, (_, _, l2, l1) in zip(roofs, levels, strict=True)]
    if s.efficiency.mode == "calibrated":
        times = dispatch.kernel_times(ops, times, s)
    else:
        factors = MEASURED
    for op, time, roof in zip(ops, times, roofs, strict=True):
        scaled, factor = time, getattr(factors, dispatch.FACTORS.get(op.kind, "stream_factor"))
        if not is_plain(factor, 1.0):
            scaled = time * factor
            if isinstance(factor, np.ndarray) or factor < 1.0:
                scaled = larger(scaled, smaller(roof, time))  # work beside another kernel's has no time of its own
        timed.append(Timed(op, scaled, time, roof, r))
    return timed


def time_comms(comms: Sequence[Comm], s: Scenario) -> list[Timed]:
    """Every collective timed over the cluster's tiers; equal ones (those of each layer, say) are evaluated once."""
    tiers = s.cluster.tiers
    if s.efficiency.mode == "flat":
        tiers = tuple(replace(t, bandwidth=t.bandwidth * s.efficiency.network) for t in tiers)
    different, which = distinct([(c.op, c.group == "tp", c.ranks, c.stride, c.bytes) for c in comms])
    reduced = [_reduced(comms[i], tiers, s) for i in different]
    return [Timed(comm._replace(bytes=reduced[at][0]), reduced[at][1]) for comm, at in zip(comms, which, strict=True)]


def _reduced(comm: Comm, tiers: Sequence[Link], s: Scenario) -> tuple[Num, Num]:
    """Bytes and seconds of a collective: quick reduce's where it is faster, of activations within the first tier."""
    time, bits = comm_time(comm, tiers, s), s.engine.kernels.reduce_bits
    if comm.op != "all_reduce" or comm.group != "tp" or is_plain(bits, 16.0):
        return comm.bytes, time
    narrow = comm.bytes * pick(comm.ranks * comm.stride > tiers[0].size, 16.0, bits) / 16
    quick = comm_time(comm._replace(bytes=narrow), tiers, s) + PACKING
    return pick(quick < time, narrow, comm.bytes), smaller(time, quick)


def time_nodes(nodes: Sequence[Op | Comm], s: Scenario, factors: Factors = MEASURED) -> list[Timed]:
    """Every node timed, in the order given; factors: of ops, as in `time_ops`."""
    ops = iter(time_ops([n for n in nodes if isinstance(n, Op)], s, factors))
    comms = iter(time_comms([n for n in nodes if isinstance(n, Comm)], s))
    return [next(ops) if isinstance(n, Op) else next(comms) for n in nodes]


def time_groups(
    groups: Mapping[K, Sequence[Op | Comm]], s: Scenario, factors: Factors = MEASURED
) -> dict[K, list[Timed]]:
    """Groups of nodes timed together, for what is equal in several is evaluated once."""
    timed = iter(time_nodes([node for group in groups.values() for node in group], s, factors))
    return {key: list(islice(timed, len(group))) for key, group in groups.items()}


def comm_volume(comm: Comm) -> Num:
    """Bytes that one rank sends in all executions of a collective."""
    return comm.count * volume(comm.op, comm.bytes, comm.ranks)
