"""What arrives: closed loop at a concurrency, open loop at a rate, or a trace; lengths fixed or spread over a range.

Same seed, same requests, on any machine (NumPy's PCG64 generator)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.checks import whole
from rooflm.errors import RooflmError
from rooflm.serving.kv import EARLIER
from rooflm.shown.numbers import count, plural

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
BURST = 1000
"""Requests at an infinite rate, all at once, where nobody says how many (--num-prompts of vLLM's benchmark client)."""
MOST = 20_000_000
"""Most requests of a simulation, which holds them all."""


@dataclass(frozen=True)
class Requests:
    """Requests in the order of their arrival. arrival: s from the start (open loop); concurrency: clients of a closed
    loop (0: open loop), each of which sends its next request when one ends, the first wave all at once. With both,
    clients send no request before its arrival.

    prompt, output: tokens; priority: small first, or None. hashes: of each request, from its start, or None: equal
    hashes are equal tokens up to there; those below `kv.EARLIER` are in the cache before the run. hash_tokens: tokens
    that a hash covers, one number for all or one each.
    """

    prompt: Ints
    output: Ints
    arrival: Array = field(default_factory=lambda: np.zeros(0))
    concurrency: int = 0
    hashes: Sequence[Sequence[int]] | None = None
    hash_tokens: int | Sequence[Sequence[int]] = 512
    priority: Array | None = None
    name: str = ""

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.prompt)

    @property
    def rate(self) -> float:
        """Mean arrivals a second (nan for a closed loop without a rate and for requests that all come at once)."""
        if not self.arrival.size or self.count < 2:
            return math.nan
        span = float(self.arrival[-1] - self.arrival[0])
        return (self.count - 1) / span if span > 0 else math.inf


LONGEST = 10**9
"""Tokens of the longest prompt or output that is drawn."""


def lengths(mean: int, spread: tuple[float, float], count: int, seed: Any, what: str = "prompt") -> Ints:
    """`count` lengths, uniform over whole numbers from spread[0] to spread[1] times `mean` (fixed where both are 1).

    >>> bool(lengths(100, (0.8, 1.0), 4, 1).min() >= 80)
    True
    """
    low, high = spread
    if not (0 < low <= high and math.isfinite(high)):
        raise RooflmError(f"spread of {what} is {low:g} to {high:g}, but it must go upwards from above 0")
    if mean < 1:
        raise RooflmError(f"{what} is {mean}, but it must be at least 1 token")
    if high * mean > LONGEST:
        raise RooflmError(f"spread of {what} is {low:g} to {high:g}, but no length may pass {LONGEST:,} tokens")
    first, last = max(math.ceil(low * mean - 1e-9), 1), max(math.floor(high * mean + 1e-9), 1)
    if first >= last:
        return np.full(count, max(round(mean * (low + high) / 2), 1), dtype=np.int64)
    return np.random.default_rng(seed).integers(first, last + 1, count, dtype=np.int64)


def ending(
    mean: int, limit: int, count: int, seed: Any, ended: int | None = None, what: str = "output",
    variation: float | None = None,
) -> Ints:  # fmt: skip
    """`count` lengths of outputs that end by themselves at any token with one chance, at the limit at the latest, so
    that their mean is `mean`: the geometric law cut at the limit, of all laws on 1 to limit with that mean the one of
    most entropy. The mean of the draw itself is made right, so that a run's tokens are as many as were said (within a
    few per cent where the mean is close to the limit).

    ended: mean of the outputs that end by themselves, where the others never do (a model that repeats itself runs to
    any limit): their share is what makes the mean right. what: output, or prompt, whose lengths in the data sets of
    `data/datasets.toml` fall off like that, too. variation: their standard deviation over their mean, where it is known
    and the limit far: Weibull's law, of which the geometric one is shape 1 (none that misses the mean).

    >>> drawn = ending(100, 1000, 2000, 1); round(float(drawn.mean())), int(drawn.max()) <= 1000
    (100, True)
    >>> drawn = ending(700, 2048, 2000, 1, 36); round(float(drawn.mean())), round(float((drawn == 2048).mean()), 2)
    (700, 0.33)
    >>> [round(float(ending(100, 1000, 2000, 1, variation=v).std())) for v in (0.8, 1.2)]
    [80, 119]
    """
    if limit < mean:
        raise RooflmError(f"{what}_limit is {limit}, but it must be at least the mean {what}, {mean}")
    if ended is not None and ended > mean:
        raise RooflmError(f"output_ended is {ended}, but it must be at most the mean output, {mean}")
    if variation is not None and not 0 < variation <= 3:
        raise RooflmError(f"output_variation is {variation:g}, but it must be above 0 and at most 3")
    share = (np.random.default_rng(seed).permutation(count) + 0.5) / count

    def drawn(rate: float, shape: float) -> Array:
        if abs(rate) * limit < 1e-9:
            return np.ceil(share * limit)
        falls = -np.log1p(share * np.expm1(-((rate * limit) ** shape)))
        return np.asarray(np.ceil(np.clip(falls ** (1 / shape) / rate, 1e-9, limit)))

    def endless(part: float) -> Array:
        rest = np.log1p(-np.minimum(share / max(1 - part, 1e-12), 1 - 1e-12))
        return np.where(share < 1 - part, np.ceil(np.minimum(-(ended or 1) * rest, limit)), limit)

    def made(shape: float) -> Array:
        low, high = (1.0, 0.0) if ended else (-60.0 / limit if shape == 1 else 1e-6 / limit, 60.0 / mean)
        for _ in range(60):
            middle = (low + high) / 2
            drew = endless(middle) if ended else drawn(middle, shape)
            low, high = (middle, high) if drew.mean() > mean else (low, middle)
        return endless(high) if ended else drawn(high, shape)

    low, high = (1.0, 1.0) if variation is None or ended or 3 * mean > limit else (max(0.4, mean / (limit - mean)), 4.0)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if made(middle).std() > (variation or 0.0) * mean else (low, middle)
    return made(high).astype(np.int64)


def _both(prompt: int, output: int, spread: tuple[float, float], count: int, seed: int) -> tuple[Ints, Ints]:
    return lengths(prompt, spread, count, [seed, 1]), lengths(output, spread, count, [seed, 2], "output")


def _lengths(prompt: int, output: int) -> str:
    return f"prompt {count(prompt)}, output {plural(output, 'token')}"


def closed_loop(
    concurrency: int, requests: int | None = None, prompt: int = 512, output: int = 128,
    spread: tuple[float, float] = (1.0, 1.0), seed: int = 0,
) -> Requests:  # fmt: skip
    """A closed loop: `concurrency` clients, `requests` in all (default ten a client).

    >>> r = closed_loop(4, prompt=16, output=8); r.count, r.concurrency
    (40, 4)
    """
    whole("concurrency", concurrency)
    total = int(whole("requests", 10 * concurrency if requests is None else requests))
    p, o = _both(prompt, output, spread, total, seed)
    name = f"closed loop of {plural(concurrency, 'client')}, {_lengths(prompt, output)}"
    return Requests(p, o, concurrency=min(concurrency, total), name=name)


def open_loop(
    rate: float, requests: int = 1000, prompt: int = 512, output: int = 128, spread: tuple[float, float] = (1.0, 1.0),
    seed: int = 0, burstiness: float = 1.0, day: Callable[[Array], Array] | None = None,
) -> Requests:  # fmt: skip
    """Arrivals at a mean rate (requests/s). burstiness: shape of the gamma-distributed gaps (1: Poisson; below: bursts;
    infinity: evenly spaced), drawn and then stretched so that the run itself has that rate, as in vLLM's benchmark.
    day: relative rate over time of day (s) with mean 1 over the run, by which time is stretched (see `daily`).

    >>> bool(np.all(np.diff(open_loop(5.0, 50, seed=3).arrival) >= 0))
    True
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise RooflmError(f"rate is {rate:g} requests/s, but it must be above 0 and finite")
    if not burstiness > 0:
        raise RooflmError(f"burstiness is {burstiness:g}, but it must be above 0")
    total = int(whole("requests", requests))
    generator = np.random.default_rng([seed, 3])
    even = math.isinf(burstiness)
    gaps = np.full(total, 1.0) if even else generator.gamma(burstiness, 1 / burstiness, total)
    gaps[0] = 0.0
    arrival = np.cumsum(gaps) * ((total - 1) / max(float(gaps.sum()), 1e-300)) / rate
    p, o = _both(prompt, output, spread, total, seed)
    if day is not None:
        arrival = stretched(arrival, day)
    each = f"{rate:.4g} request{'s' * (rate != 1)}/s"
    return Requests(p, o, arrival, name=f"open loop at {each}, {_lengths(prompt, output)}")


def held(requests: Requests, clients: int) -> Requests:
    """An open loop of which `clients` requests at most are under way: the others wait in the client, where no clock
    runs yet (--request-rate with --max-concurrency of vLLM's and SGLang's benchmarks).

    >>> held(open_loop(2.0, 10), 4).concurrency
    4
    """
    whole("concurrency", clients)
    return replace(requests, concurrency=min(clients, requests.count), name=f"{requests.name}, {clients} at most")


TOP = 0.58
"""Where in a day its rate is highest: at 14 h."""


def daily(peak: float = 2.0, period: float = 86400.0) -> Callable[[Array], Array]:
    """A rate over the day (s) as a share of its mean: 1 + (peak - 1) cos around TOP, never below 0.

    >>> float(daily(1.5)(np.array([0.58 * 86400]))[0])
    1.5
    """
    if not 1 <= peak <= 2:
        raise RooflmError(f"peak is {peak:g} times the mean rate, but it must be from 1 to 2")
    return lambda t: 1 + (peak - 1) * np.cos(2 * np.pi * (t / period - TOP))


def stretched(arrival: Array, day: Callable[[Array], Array]) -> Array:
    """Arrival times of a rate that changes: even time mapped through the inverse of the cumulative rate."""
    end = max(float(arrival[-1]), 1e-9)
    grid = np.linspace(0.0, 3 * end, 3 * 4096 + 1)
    weight = np.maximum(day(grid), 0.0)
    passed = np.concatenate([[0.0], np.cumsum((weight[1:] + weight[:-1]) / 2 * np.diff(grid))])
    return np.interp(arrival, passed, grid)


SPAN = 1e9
"""s over which requests may arrive (30 years): the clock of a simulation stays exact to 0.1 us."""


def lasting(r: Requests) -> None:
    """RooflmError for arrivals over a longer time than is simulated.

    >>> lasting(open_loop(1e-9, 10))
    Traceback (most recent call last):
    rooflm.errors.RooflmError: the requests arrive over ... s, more than the 1e+09 s that are simulated: ...
    """
    span = float(r.arrival[-1] - r.arrival[0]) if len(r.arrival) else 0.0
    if not span <= SPAN:
        raise RooflmError(
            f"the requests arrive over {span:.3g} s, more than the {SPAN:g} s that are simulated: give a higher rate, "
            "or times in seconds"
        )


def scaled(r: Requests, rate: float = 1.0, copies: int = 1, seed: int = 0) -> Requests:
    """A trace played `rate` times as fast, each request standing for `copies` (shifted by up to the mean gap)."""
    if not rate > 0 or copies < 1:
        raise RooflmError(f"scale is {rate:g} x {copies}, but both must be above 0")
    if r.count * copies > MOST:
        raise RooflmError(f"copies is {copies}, but {r.count * copies:,} requests are more than the {MOST:,} simulated")
    arrival = np.repeat(r.arrival / rate, copies)
    if copies > 1:
        gap = float(arrival[-1]) / max(r.count, 1)
        arrival = arrival + np.random.default_rng([seed, 4]).random(len(arrival)) * gap
    order = np.argsort(arrival, kind="stable")
    hashes = None if r.hashes is None else [r.hashes[i // copies] for i in order]
    sizes = r.hash_tokens if isinstance(r.hash_tokens, int) else [r.hash_tokens[i // copies] for i in order]
    priority = None if r.priority is None else np.repeat(r.priority, copies)[order]
    return replace(
        r, prompt=np.repeat(r.prompt, copies)[order], output=np.repeat(r.output, copies)[order], arrival=arrival[order],
        hashes=hashes, hash_tokens=sizes, priority=priority,
    )  # fmt: skip


def prefixed(r: Requests, shared: int = 0, cached: int = 0) -> Requests:
    """The same requests with a common system prompt of `shared` tokens; the rest is each one's own. An earlier run left
    `cached` tokens of each prompt in the cache: of the common part first, once for all.

    >>> load, first = prefixed(closed_loop(2, 2, 2048, 8), 400, 1024), EARLIER - 3
    >>> load.hash_tokens, load.hashes == [(first, 0, EARLIER - 1, 1), (first, 0, EARLIER - 2, 2)]
    ([(400, 0, 624, 1024), (400, 0, 624, 1024)], True)
    """
    prompts = r.prompt.tolist()
    least, most = min(prompts, default=0), max(prompts, default=0)
    for name, tokens in (("shared_prefix", shared), ("cached", cached)):
        if prompts and tokens > most:
            lengths = f"{least} to {most} tokens" if least < most else f"{most} tokens"
            raise RooflmError(f"{name} is {tokens}, but it must be at most {most}: the load's prompts have {lengths}")
    common = EARLIER - len(prompts) - 1
    ends = [(0, min(shared, cached, p), min(shared, p), min(max(shared, cached), p), p) for p in prompts]
    sizes = [tuple(b - a for a, b in pairwise(each)) for each in ends]
    return replace(r, hashes=[(common, 0, EARLIER - i, i) for i in range(1, len(prompts) + 1)], hash_tokens=sizes)
