"""Calibrated times of collectives: which library's constants a message takes on every tier, and what an engine adds."""

from __future__ import annotations

from collections.abc import Sequence

from rooflm.graph.ops import Comm
from rooflm.kernels.collectives import CollectiveConstants, fitted, hierarchical
from rooflm.kernels.derating import derating
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, is_plain


def collective_constants(comm: Comm, s: Scenario) -> list[CollectiveConstants | None]:
    """The constants of a collective on every tier of the cluster."""
    device, library = s.cluster.device, "nccl"
    if device.measured is not None:  # the links' own latency and bandwidth are measured ones
        return [None] * len(s.cluster.tiers)
    if comm.op == "all_reduce" and s.engine.kernels.all_reduce == "custom":
        library = s.engine.kernels.whose
    own = device.kernels_from, device.kernel_generation, library
    return [fitted(comm.op, *own, tier.kind) for tier in s.cluster.tiers]


def in_engine(
    time: Num, comm: Comm, constants: Sequence[CollectiveConstants | None], s: Scenario
) -> Num:  # fmt: skip
    """Seconds of a collective in an engine: its latency times collective_floor, all of it times collective_factor, on
    a network that reaches more or less than the one measured (`kernels.derating`)."""
    device, f = s.cluster.device, s.engine.factors
    if not is_plain(f.collective_floor, 1.0):
        empty = hierarchical(comm.op, 0.0, comm.ranks, s.cluster.tiers, constants=constants, stride=comm.stride)
        time = time + (f.collective_floor - 1.0) * empty
    return time * (f.collective_factor / derating(device, s.engine.runs).network)
