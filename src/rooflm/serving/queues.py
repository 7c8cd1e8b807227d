"""Queues in numbers: what comes by chance, how often somebody is there, and how long one waits behind others.

Every argument is a number or an array over loads, and all broadcast: times in s, rates 1/s, shares from 0 to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FULLEST = 1 - 1e-6
"""Share of a pass's places that prompts take at the most, in the mean."""
LARGEST_LOG = 500.0
"""Largest logarithm of odds, far from where its power overflows."""


def mean_ceil(mean: Array, half: Array) -> Array:
    """Mean of numbers rounded up, which lie evenly around a mean, by as much as `half` on either side.

    >>> [float(mean_ceil(np.array(2.0), np.array(half))) for half in (0.0, 0.5, 1.5)]
    [2.0, 2.5, 2.5]
    """
    high, low = (n * (n + 1) / 2 + (x - n) * (n + 1) for x in (mean + half, mean - half) for n in (np.floor(x),))
    spread = (high - low) / (2 * np.maximum(half, 1e-6))
    return np.asarray(np.where(half > 1e-6, np.round(spread, 9), np.ceil(mean)))


def time_with(rate: Array, lasts: Array, plain: Array, parts: Any, places: Any, host: Any = 0.0) -> Array:
    """Share of the time in which passes of `lasts` s hold prompts: `rate` a second come by chance, each in so many
    parts, one a pass; a pass has room for `places`; others take `plain` s.

    Busy periods of a queue: of places that are busy by themselves none is with chance (1 - a / c)^c, a = rate x parts x
    lasts being the work that comes; what comes in a pass or step waits for the next, and shares it. host: share of a
    pass after which the next is made up, while it runs: who comes later shares the one after that.

    >>> one = np.ones(1)
    >>> [round(float(time_with(0.5 * one, one, 1e-9 * one, 1, c)[0]), 3) for c in (1.0, 1e6)]
    [0.5, 0.452]
    """
    work = np.minimum(rate * parts * lasts, places * FULLEST)
    whole, first, rest = (-np.expm1(-rate * lasts * share) for share in (1.0, host, 1 - host))
    shared = (rate * lasts / whole) ** (1 - 1 / places) * (first + rest) / whole
    some = np.expm1(np.minimum(-places * np.log1p(-work / places), LARGEST_LOG))
    odds = some * shared * -np.expm1(-rate * plain) / (rate * plain)
    return np.asarray(np.minimum(odds / (1 + odds), FULLEST))


def passes_beside(ended: Array, parts: Array, places: Array) -> Array:
    """Passes with prompts a step without, in the mean, where prompts go beside decoding: `ended` clients ask again in a
    step, in so many parts, one a pass with so many places. The odds of a busy period, as in `time_with`.

    >>> float(passes_beside(np.array(0.5), np.array(1.0), np.array(1.0)))
    1.0
    """
    none = places * np.log1p(-np.minimum(parts * ended / places, FULLEST))
    return np.asarray(np.expm1(np.minimum(-none, LARGEST_LOG)))


def passes_between(ended: Array, parts: Array, places: Array, run: Array) -> Array:
    """The same where prompts stop decoding: a pass where anybody ended in a step, and for each further part one that
    all share who ended in a run of so many steps; but no fewer than there are places for.

    >>> one = np.ones(1)
    >>> [float(passes_between(0.5 * one, one, places * one, one)[0].round(3)) for places in (1.0, 9.0)]
    [0.5, 0.393]
    """
    passes = -np.expm1(-ended) - (parts - 1) * np.expm1(-run * ended) / run
    return np.asarray(np.maximum(passes, parts * ended / places))


def others_run(running: Any, clients: Any) -> Array:
    """Chance that a newcomer finds a decode replica at work, on which so many sequences run in the mean: of each of the
    other clients of a closed loop by itself; of an open loop (0), as arrivals by chance have it.

    >>> others_run(0.5, np.array([0.0, 1.0, 2.0])).round(3).tolist()
    [0.393, 0.0, 0.25]
    """
    n = np.asarray(np.maximum(clients, 1.0))
    each = (1.0 - np.minimum(running / n, 1.0)) ** (n - 1.0)
    return np.asarray(np.where(np.asarray(clients) > 0, 1.0 - each, -np.expm1(-running)))


def free(busy: Array, clients: Any) -> Array:
    """What a share of its time leaves a server, at least half of one client's share (0 clients: an open loop)."""
    return np.asarray(np.maximum(1.0 - busy, 0.0) + np.maximum(0.5 / np.where(clients > 0, clients, np.inf), 5e-4))


def crowding(busy: Array, whole: Array) -> Array:
    """Sakasegawa's power of a share of the most requests/s, r^sqrt(2 (c + 1)), of servers that take c at a time."""
    return np.asarray(np.minimum(busy, 1.0) ** np.sqrt(2 * (np.maximum(whole, 1.0) + 1)))


def queueing(busy: Array, most: Array, whole: Array, clients: Any = np.inf) -> Array:
    """Wait behind other prompts beyond the pass that runs: r^sqrt(2 (c + 1)) / 2 (1 - r) services of 1 / most.

    At a share r of the most requests/s, of services that are equal and take c prompts together. For c = 1 it is
    Pollaczek and Khinchine's wait less r / 2 services for the one that runs; the exponent is Sakasegawa's (Annals of
    the Institute of Statistical Mathematics 29, 1977). The n clients of a closed loop wait n services at the most.

    >>> round(float(queueing(np.array(0.5), np.array(10.0), np.array(1.0))), 4)
    0.025
    >>> float(queueing(np.array(1.0), np.array(10.0), np.array(1.0), clients=4))
    0.4
    """
    return np.asarray(crowding(busy, whole) / (2 * free(busy, clients)) / most)


def share_taken(before: Array, cycle: Array, whole: Array, clients: Array) -> Array:
    """Utilisation r (at most 1) that n clients cause: r (cycle + wait) = n, with the wait of `queueing` in service
    times. before: r of the last iteration, used in its power so that the equation is quadratic and the iteration does
    not swing where the wait is steep.

    >>> float(share_taken(np.array(0.0), np.array(4.0), np.array(1.0), np.array(2.0)))
    0.5
    """
    power = crowding(before, whole)
    pole = 1 + 0.5 / clients
    b = cycle * pole + (1 - 1 / clients) * power / 2 + clients
    root = np.sqrt(np.maximum(b**2 - 4 * cycle * clients * pole, 0.0))
    return np.asarray(np.minimum(2 * clients * pole / (b + root), 1.0))
