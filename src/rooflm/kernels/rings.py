"""What a ring over nodes waits for: gathers and reduce-scatters pass every rank, however small the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rooflm.catalogue.hardware import Link
from rooflm.graph.ops import Comm
from rooflm.kernels.collectives import by_ring, ranks_in_tiers
from rooflm.kernels.training_factors import table
from rooflm.units import Num, pick, smaller


def ring_wait(comm: Comm, tiers: Sequence[Link]) -> Num:
    """Seconds that the hops of a ring over several nodes take, of all executions; 0 within one node, and for sums.

    A ring over n ranks on N nodes makes N - 1 hops between nodes and n - N within them, one after the other, before the
    last rank has the first one's data. An all_reduce takes a tree across nodes instead, whose hops grow with log N.
    Source: NCCL, src/graph/tuning.cc: latency of a ring is (nsteps - nInterSteps) intraLat + nInterSteps interLat with
    nsteps = n - 1 and nInterSteps = N - 1; hwLat of the Simple protocol: 3.4 us over NVLink, 14 us over the network.

    >>> node, fabric = Link("", "nvlink", 8, 450e9, 1e-6), Link("", "infiniband", 1024, 50e9, 5e-6)
    >>> gather = Comm("gather", "dp_comm", "all_gather", 1, 1e9, 512, 1, "dp")
    >>> round(1e3 * float(ring_wait(gather, (node, fabric))), 2), float(ring_wait(gather, (node,)))
    (2.41, 0.0)
    """
    if not by_ring(comm.op, tiers):
        return 0.0
    hop = table()["ring"]  # s
    nodes = comm.ranks / ranks_in_tiers(comm.ranks, [tier.size for tier in tiers], comm.stride)[-2]
    hops = (comm.ranks - nodes) * hop["within"] + (nodes - 1.0) * hop["across"]
    return comm.count * pick(nodes > 1, hops, 0.0)


WHOLE_TENSORS = 9.0
"""Tensors of a transformer layer: four or five of attention, two or three of the feed-forward, two norms."""


def ring_waits(comms: Sequence[Any], tiers: Sequence[Link], owners: bool = False) -> Num:
    """Seconds of all collectives, one after the other; others than collectives count nothing. owners: each is not one
    a layer but one a rank that owns tensors."""
    rings = [c for c in comms if isinstance(c, Comm)]
    if owners:
        rings = [c._replace(count=smaller(c.ranks, WHOLE_TENSORS * c.count)) for c in rings]
    return sum((ring_wait(c, tiers) for c in rings), 0.0)
