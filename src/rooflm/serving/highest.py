"""Capacity: the highest rate or concurrency within limits, and the fewest replicas for a rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from rooflm.errors import RooflmError
from rooflm.serving.deploy import Served
from rooflm.serving.deploy import whole as complete

Trial = Callable[[float], Served]
"""A run at a load (or with a number of replicas)."""
CLOSE = 1.02
"""The search ends when the best load that holds and the least that fails are 2 % apart."""
LEAST, MOST = 1e-4, 2.0**24
"""Loads between which the search stays."""


class Found(NamedTuple):
    """The highest load that meets the limits (0: none does), its run, and the limits that break just above it."""

    load: float
    served: Served | None
    broken: tuple[str, ...]


def broken(served: Served) -> tuple[str, ...]:
    """The violated limits of a run, in words."""
    summary = served.summary
    out = summary.broken(served.limits)
    if summary.queue_grows:
        out.append(f"the queue grows by {summary.queue_growth_per_s:.3g} requests/s")
    if summary.rejected:
        out.append(f"{summary.rejected} requests are longer than the KV memory or the context")
    return tuple(out)


def highest(trial: Trial, whole: bool = False) -> Found:
    """The highest load whose run meets its limits: doubling, then halving the gap (in log).

    Latency is taken as rising with load, which holds but for chance; the same seed keeps chance the same."""
    low, high = 0.0, math.inf
    best: Served | None = None
    why: tuple[str, ...] = ()
    load = 1.0
    while high / max(low, 1e-12) > CLOSE and MOST > load > LEAST and not (whole and high - low <= 1):
        served = complete(trial(load))
        if served.summary.meets(served.limits):
            low, best = load, served
        else:
            high, why = load, broken(served)
        load = 2 * low if math.isinf(high) else high / 4 if low == 0 else math.sqrt(low * high)
        if whole:
            load = float(max(round(load), 1))
            load = low + 1 if load in (low, high) else load
    return Found(low, best, why)


def fewest(trial: Trial, most: int = 4096) -> Found:
    """The fewest replicas with which the limits hold."""
    low, high = 0, 1
    best: Served | None = None
    why: tuple[str, ...] = ()
    while high <= most:
        served = complete(trial(float(high)))
        if served.summary.meets(served.limits):
            best = served
            break
        low, why, high = high, broken(served), high * 2
    if best is None:
        raise RooflmError(f"even {most} replicas do not hold the limits: {'; '.join(why)}")
    while high - low > 1:
        middle = (low + high) // 2
        served = complete(trial(float(middle)))
        if served.summary.meets(served.limits):
            high, best = middle, served
        else:
            low, why = middle, broken(served)
    return Found(float(high), best, why)
