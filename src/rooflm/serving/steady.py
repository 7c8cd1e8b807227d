"""Steady state without simulating: fixed-point formulas of a replica under load, and a check on the other.

Little's law ties throughput X, running sequences D and the step time: D = X n tau(D, X) with n steps a request, where
tau is the mean of decode steps and of passes with prompts, which come in busy periods (`time_with`). Loads, token
budgets and KV memories may be arrays: all states of one engine instance come from one evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.estimate.figures import single
from rooflm.serving.schedulers import SCHEDULERS, InFlight
from rooflm.serving.simulate import Pool
from rooflm.serving.workload import Requests

Array = NDArray[np.float64]
ROUNDS, CLOSE = 100, 1e-6
"""Most rounds of the fixed point, and the relative change at which it ends."""
FULL = 3
"""Passes' worth of waiting prompts from which on every pass is taken to be full (below, queues come and go)."""
FULLEST, MOST = 1 - 1e-6, 500.0
"""Share of a pass's places that prompts take at the most, in the mean; most of a logarithm (of odds)."""


@dataclass(frozen=True)
class Steady:
    """Means of one replica: s, requests/s; stable: false when the rate is beyond what can be served (then tpot and
    requests_per_s are those of a full replica); ttft includes the first wave of a closed loop, in its share of the
    requests. Arrays where the loads are."""

    ttft: Any
    tpot: Any
    latency: Any
    requests_per_s: Any
    running: Any
    stable: Any

    def single(self) -> Steady:
        """The state of a single load in plain numbers."""
        return Steady(*map(single, vars(self).values()))


VARIED = ("clients", "rate", "first", "budget", "tokens")
"""What may be arrays of a load."""


@dataclass(frozen=True)
class Load:
    """What one replica gets: prompt, output: mean tokens of a request; clients of a closed loop (0: an open loop) or
    rate (requests/s); first: share of the requests that come in the closed loop's first wave; budget: new tokens a pass
    of a rank; tokens: KV memory; wide: share of their mean by which prompts are longer or shorter, at the most and
    evenly; apart: decode steps by which the clients of a closed loop part over a run, for their outputs differ. All but
    the lengths and `apart` may be arrays."""

    prompt: float
    output: float
    clients: Any = 0.0
    rate: Any = 0.0
    first: Any = 0.0
    budget: Any = np.inf
    tokens: Any = np.inf
    wide: float = 0.0
    apart: float = np.inf

    def at(self, places: NDArray[np.int_]) -> Load:
        """Those of the loads that stand at some places of theirs."""
        return replace(self, **{name: getattr(self, name)[places] for name in VARIED})

    def pieces(self, room: Array) -> Array:
        """Pieces of a prompt, on average, each but the last as long as there is room (tokens).

        >>> [float(Load(8192, 1, wide=w).pieces(np.array(4096.0))) for w in (0.0, 0.2)]
        [2.0, 2.5]
        """
        return mean_ceil(self.prompt / room, self.wide * self.prompt / room)


def mean_ceil(mean: Array, half: Array) -> Array:
    """Mean of numbers rounded up, which lie evenly around a mean, by as much as `half` on either side.

    >>> [float(mean_ceil(np.array(2.0), np.array(half))) for half in (0.0, 0.5, 1.5)]
    [2.0, 2.5, 2.5]
    """
    high, low = (n * (n + 1) / 2 + (x - n) * (n + 1) for x in (mean + half, mean - half) for n in (np.floor(x),))
    spread = (high - low) / (2 * np.maximum(half, 1e-6))
    return np.asarray(np.where(half > 1e-6, np.round(spread, 9), np.ceil(mean)))


def pass_time(
    pool: Pool, load: Load, room: Array, prompts: Array, sequences: Array, context: float, part: Any = np.inf,
    drains: bool = False, ahead: Any = 0.0, host: bool = False,
) -> Array:  # fmt: skip
    """Mean time of passes with so many prompts on average, as far as a rank's room (tokens) goes, beside so many
    sequences. part: tokens of a prompt's piece, where it is not as long as there is room; drains: nothing follows;
    ahead: s by which the host began to launch it before the device was free; host: as much of it as keeps the
    scheduler."""
    piece = np.maximum(np.minimum(np.minimum(load.prompt, room), part), 1)
    pieces = np.minimum(prompts * load.prompt, room * pool.table.slots) / piece
    few, low = np.maximum(np.floor(pieces), 1), np.floor(sequences)
    each = np.maximum(np.floor(piece * np.minimum(pieces, 1)), 1)
    prompt, sequence = np.array([[0, 1, 0], [0, 0, 1]]).reshape(2, 3, *(1,) * np.ndim(few + low))
    asked = few + prompt, each, load.prompt, low + sequence, context
    one, more, beside = pool.table.passed_times(*asked, drains, ahead, host)
    return one + np.maximum(pieces - few, 0.0) * (more - one) + (sequences - low) * (beside - one)


def whole_prompts(pool: Pool) -> bool:
    """Whether prompts go in whole."""
    return issubclass(SCHEDULERS[pool.server.scheduler], InFlight)


def room_beside(pool: Pool, load: Load, beside: Array) -> Array:
    """New tokens that a rank takes in a pass beside so many sequences of all ranks: where prompts go in whole, of as
    many as fit, and one at least."""
    budget, least = load.budget, 1.0
    if whole_prompts(pool):
        least = np.minimum(budget, load.prompt)
        budget = np.maximum(np.floor(budget / load.prompt) * load.prompt, least)
    return np.asarray(np.maximum(budget - beside / pool.table.slots, least))


def in_a_pass(pool: Pool) -> int:
    """Most parts of one prompt in a pass, one behind the other in a pipeline's stages."""
    return pool.table.flight if SCHEDULERS[pool.server.scheduler].follows else 1


def own_passes(
    pool: Pool, load: Load, room: Array, others: Array, sequences: Array, context: float, alone: Array, ahead: Any
) -> Array:
    """Time of the passes of one prompt, as `pass_time`: full ones, and the last, which others' prompts share. alone:
    chance that nobody else is there, so that a pipeline drains."""
    part = room * in_a_pass(pool) / load.prompt
    before = np.maximum(load.pieces(room * in_a_pass(pool)), 1) - 1
    last = pass_time(pool, load, room, 1 - before * part + others, sequences, context, ahead=ahead)
    if in_a_pass(pool) > 1:
        drains = partial(pass_time, pool, load, room, sequences=np.zeros(()), context=context, drains=True)
        full = np.minimum(room / load.prompt, 1)  # of a prompt: what the last part follows through the stages
        one, two = drains(prompts=full), drains(prompts=2 * full)
        rest = 1 - before * part
        drained = np.where(before > 0, one + (rest / full - 1) * (two - one), drains(prompts=rest))
        last = last + alone * (drained - last)
    return before * pass_time(pool, load, room, part, sequences, context) + last


def decode_time(pool: Pool, load: Load, sequences: Array) -> Array:
    """A decode-only step of a fractional number of sequences, half of the output written on average: the device's, or
    that of a front end which copies all of it (`Replica.slower`)."""
    context, low = load.prompt + load.output / 2, np.maximum(np.floor(sequences), 1)
    low_time, high_time = (pool.table.decode_times(d, context) for d in (low, low + 1))
    copied = pool.table.copied * load.output / 2 / pool.server.stream_interval
    return np.maximum(low_time + np.clip(sequences - low, 0.0, 1.0) * (high_time - low_time), copied * sequences)


def most_running(pool: Pool, load: Load) -> Array:
    """Sequences that the KV memory and the running limit allow, half of the output written on average, and where
    prompts go in whole those that leave one its room in a pass (a longer one goes in alone)."""
    future = SCHEDULERS[pool.server.scheduler].future
    kept = load.output * (1.0 if pool.server.scheduler in ("no-evict", "static") else (1 + future) / 2)
    fit = load.tokens / (load.prompt + kept + pool.capacity.each)
    beside: Any = pool.server.max_sequences
    if whole_prompts(pool):
        beside = np.where(load.prompt > load.budget, beside, np.minimum(beside, load.budget - load.prompt + 1))
    return np.maximum(np.minimum(fit, beside * pool.table.ranks), 1.0)


def steady(requests: Requests, pool: Pool, rate: float | None = None, *, waves: bool = True) -> Steady:
    """The steady state of one replica that gets all of `requests` (or `rate` a second of them). waves: the first wave
    of a closed loop counts in the means."""
    clients = requests.concurrency
    x = rate if rate is not None else (0.0 if clients else requests.rate)
    load = Load(
        float(np.mean(requests.prompt)), float(np.mean(requests.output)), float(clients),
        x if np.isfinite(x) else 1e9, min(clients / max(requests.count, 1), 1.0) * waves,
        pool.server.budget, pool.capacity.tokens,
        min(float(np.std(requests.prompt) / np.mean(requests.prompt)) * math.sqrt(3), 1.0),  # as evenly spread ones
        steps_apart(float(np.std(requests.output)), requests.count / max(clients, 1), pool),
    )  # fmt: skip
    return states(pool, load).single()


def states(pool: Pool, load: Load) -> Steady:
    """The steady states of one replica under each of the loads."""
    numbers = np.broadcast_arrays(*(getattr(load, name) for name in VARIED))
    shape = numbers[0].shape
    wide = 0.0 if whole_prompts(pool) else load.wide  # such a prompt is not cut, however long
    flat: dict[str, Any] = {name: v.astype(float).ravel() for name, v in zip(VARIED, numbers, strict=True)}
    load = replace(load, wide=wide, **flat)
    state = _closed(pool, load) if np.any(load.clients) else _open(pool, load)
    server = pool.server
    polite = (server.stream_interval - 1) / server.tokens_a_step  # steps made before the client sees the first token
    made = max(steps_of(pool, load) - polite, 0.0)
    ttft = state.ttft + polite * state.tpot + server.seen(load.prompt)
    tpot = made * state.tpot / max(load.output - 1, 1)
    latency = ttft + made * state.tpot
    every = (ttft, tpot, latency, state.requests_per_s, state.running, state.stable)
    return Steady(*(v.reshape(shape) for v in every))


class Round(NamedTuple):
    """One round: the mean step, a pass with prompts, the time to the first token once a request is at the head of the
    queue, the most requests/s whose prompts the passes take, the prompts under way in a full pass, by how much a
    request ends later a second that it takes to its first token (who comes meanwhile is behind it, and prompts go
    before its steps), and the longest step that the others' prompts make of one."""

    step: Array
    mixed: Array
    first: Array
    most: Array
    whole: Array
    behind: Array
    slowest: Array


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
    some = np.expm1(np.minimum(-places * np.log1p(-work / places), MOST))
    odds = some * shared * -np.expm1(-rate * plain) / (rate * plain)
    return np.asarray(np.minimum(odds / (1 + odds), FULLEST))


def others_run(running: Any, clients: Any) -> Array:
    """Chance that a newcomer finds a decode replica at work, on which so many sequences run in the mean: of each of the
    other clients of a closed loop by itself; of an open loop (0), as arrivals by chance have it.

    >>> others_run(0.5, np.array([0.0, 1.0, 2.0])).round(3).tolist()
    [0.393, 0.0, 0.25]
    """
    n = np.asarray(np.maximum(clients, 1.0))
    each = (1.0 - np.minimum(running / n, 1.0)) ** (n - 1.0)
    return np.asarray(np.where(np.asarray(clients) > 0, 1.0 - each, -np.expm1(-running)))


def _round(pool: Pool, load: Load, x: Array, tau: Array, running: Array, queued: Array, mixed: Array) -> Round:
    """One iteration from throughput, step time, running sequences, queued prompts and time of a pass with prompts.
    Mixed schedulers (vLLM) carry prompts in decoding passes, which leave them the rest of the budget; the others stop
    decoding for a prompt.

    A request that finds others at work waits for the running pass, and meets long ones more often: E[T^2] / 2 E[T];
    where passes are made up ahead, for one more, unless the host still launches. In a closed loop a client sees only
    the others' requests (the arrival theorem of closed queueing networks).
    """
    server, slots, context = pool.server, pool.table.slots, load.prompt + load.output / 2
    mixes = SCHEDULERS[server.scheduler].mixes
    plain = decode_time(pool, load, running)
    others = np.where(load.clients > 0, 1 - 1 / np.maximum(load.clients, 1.0), 1.0)
    beside = others * running if mixes else np.zeros(running.shape)
    room = room_beside(pool, load, beside)
    together = in_a_pass(pool)
    parts = np.maximum(load.pieces(room * together), 1)
    whole = room * slots / load.prompt
    places = np.where(parts > 1, slots / together, np.maximum(whole, 1.0))
    come = np.maximum(others * x, 1e-9)
    work = come * parts * mixed + mixes * queued
    launching = pass_time(pool, load, room, 1 / parts, beside, context, host=True)
    host = server.lookahead * np.minimum(launching / mixed, 1.0)
    busy = time_with(work / (parts * mixed), mixed, plain, parts, places, host)
    ended = np.minimum(come * tau, MOST)  # in a step: that is when clients of a closed loop ask again
    if mixes:
        none = places * np.log1p(-np.minimum(parts * ended / places, FULLEST))
        passes = np.expm1(np.minimum(-none, MOST))
    else:
        run = 1 + server.lookahead + np.ceil(server.fronted(load.prompt) / plain)
        passes = -np.expm1(-ended) - (parts - 1) * np.expm1(-run * ended) / run
        passes = np.maximum(passes, parts * ended / places)
    busy = np.where(load.clients > 0, np.minimum(passes * mixed / (plain + passes * mixed), FULLEST), busy)
    part = load.prompt / load.pieces(room) if slots > 1 else np.inf
    some = others_run(running, load.clients)
    ahead = server.lookahead * pool.table.ahead * some * (1 - busy) / (busy / mixed + (1 - busy) / plain)
    mixed = pass_time(pool, load, room, work / busy / parts, beside, context, part, ahead=ahead)
    passing = 1 / (busy / mixed + (1 - busy) / plain)
    step = plain / (1 - busy * (1 - mixes * plain / mixed))
    own = own_passes(pool, load, room, np.maximum(mixes * queued, come * passing), beside, context, 1 - some, ahead)
    most = whole / pass_time(pool, load, room, whole, beside, context)
    more = np.minimum(busy * (1 - mixes * plain / mixed) / come, 1 / most)
    polls = (server.receive_interval - 1) / 2 * step
    front = server.fronted(load.prompt)
    wait = (busy * mixed + (1 - busy) * plain) / 2 + server.lookahead * (1 - busy * host) * passing
    first = front + some * wait + own + polls
    behind = others * x * more / free(x * more, load.clients)
    slowest = mixed if mixes else np.full(step.shape, 1e9)
    return Round(step, mixed, first, most / np.maximum(most * front, 1.0), places, behind, slowest)


def steps_of(pool: Pool, load: Load) -> float:
    """Decode steps of a request."""
    return max(load.output - 1, 0.0) / pool.server.tokens_a_step


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


def _closed(pool: Pool, load: Load) -> Steady:
    """The fixed point of a closed loop. tpot here: a step's time."""
    limit, steps = most_running(pool, load), steps_of(pool, load)
    clients, none = np.minimum(load.clients, limit), np.zeros(limit.shape)
    ttft, lasts = none.copy(), none.copy()

    def follow(
        at: NDArray[np.int_], x: Array, tau: Array, running: Array, queued: Array, mixed: Array
    ) -> tuple[Array, ...]:
        here, inside = load.at(at), clients[at]
        now = _round(pool, here, x, tau, np.maximum(running, 1e-3), queued, mixed)
        alone = now.first + steps * now.step
        busy = share_taken(x / now.most, alone * now.most, now.whole, inside)
        x_new = busy * now.most
        behind = (1 - 1 / inside) * queueing(busy, now.most, now.whole, inside)
        queue = np.maximum(here.clients / limit[at] - 1, 0.0) * (alone + behind)
        whole = here.clients / x_new
        own = np.maximum((whole - steps * now.step - queue) / (1 + now.behind), now.first)
        ttft[at] = np.maximum(queue + own, whole - steps * now.slowest)
        lasts[at] = whole - ttft[at]
        left = np.maximum(x_new * (ttft[at] - now.first - queue) - FULL * now.whole, 0.0)
        return x_new, now.step, np.minimum(x_new * lasts[at], inside), left, now.mixed

    tau = decode_time(pool, load, clients)
    _at_rest((none, tau, clients, none, tau), follow)
    ttft, lasts = _in_step(pool, load, limit, ttft, lasts)
    x, tau = load.clients / (ttft + lasts), lasts / steps if steps else tau
    first = _with_first_wave(pool, load, ttft, clients)
    return Steady(first, tau, 0.0, x, np.minimum(x * lasts, clients), np.ones(x.shape, dtype=bool))


def steps_apart(deviation: float, rounds: float, pool: Pool) -> float:
    """Decode steps between the first and the last of clients that began together, in the mean of a run of so many
    requests each: outputs of some standard deviation add up as a random walk, of which even ends lie sqrt(12) apart."""
    return deviation * math.sqrt(12 * max(rounds / 2, 1.0)) / pool.server.tokens_a_step


def _in_step(pool: Pool, load: Load, limit: Array, ttft: Array, lasts: Array) -> tuple[Array, Array]:
    """TTFT and time of the decode steps of a closed loop whose clients are `apart` as many steps as that, of those of
    clients that come by chance.

    Outputs of one length end together as their prompts were read, so clients come again as they came, and their
    prompts fill k passes one behind the other, of which a prompt takes c (`pieces`). An engine that finds one prompt
    does not wait for more: the first goes alone. Where passes with prompts decode too (vLLM), those of a pass end
    together, a step behind those of the pass before. The first to end waits `late` steps, while its prompt comes in and
    for the pass that is made up already; as many passes' worth of the others end in these, and from then on each waits
    for as many passes with prompts. Where prompts stop decoding (SGLang), nobody decodes until all are read: all end at
    once, and wait for half of all passes on both sides of their own. Who waits in a queue waits for whole rounds.

    Clients that part come by chance, by as much as they have parted over the k passes; where prompts stop decoding,
    over a step, or four where passes are made up ahead (read off the simulation: 1.0 and 4.4).
    """
    n, steps, mixes = np.minimum(load.clients, limit), steps_of(pool, load), SCHEDULERS[pool.server.scheduler].mixes
    plain, front = decode_time(pool, load, n), pool.server.fronted(load.prompt)
    context, one = load.prompt + load.output / 2, (front > 0) * np.minimum(n - 1, 1) / n
    together, k, c = in_a_pass(pool), np.ones(n.shape), np.ones(n.shape)
    for _ in range(3):  # who decodes beside leaves the prompts less room
        beside = mixes * n * np.minimum(k - c, steps) / k
        room = room_beside(pool, load, beside)
        c = np.maximum(load.pieces(room * together), 1)
        k = np.maximum(n * (1 - one) * load.prompt / (room * pool.table.slots), c)
    part = load.prompt / load.pieces(room) if pool.table.slots > 1 else np.inf
    mixed = pass_time(pool, load, room, n * (1 - one) / k, beside, context, part)
    alone = one * n * (c if pool.table.slots == 1 else 1) * pass_time(pool, load, room, 1 / c, beside, context)
    queued = np.maximum(load.clients / limit - 1, 0.0)
    if mixes:
        f = np.clip(load.prompt / (room * together), 1, c)
        late = np.minimum(pool.server.lookahead + np.ceil(front / plain), k - c) * np.maximum(1 - queued, 0)
        waits = late * (1 - (late + c) / (2 * k))
        own = mixed * (f + (c - f) * c / k + waits) + (1 - one) * alone * c / k
        rest = steps * plain + np.minimum(k - f - waits + one * c, steps) * (mixed - plain)
        own, wave = np.maximum(own, k * mixed + alone - rest), n * c / k
    else:
        own = alone + (1 - one) * mixed * (k + c) / 2
        rest, wave = steps * plain + mixed * (one * k + (1 - one) * (k - c) / 2), n
    own = np.maximum(np.maximum(own + front, front * (wave + 1) / 2 + mixed * c), n * front - rest)
    own = own + queued * (own + rest)
    holds = k if mixes else (1.0 + pool.server.lookahead) ** 2
    share = holds / (holds + load.apart) * (load.clients > 1)
    return share * own + (1 - share) * ttft, share * rest + (1 - share) * lasts


def _at_rest(start: tuple[Array, ...], follow: Callable[..., tuple[Array, ...]]) -> Array:
    """The fixed point of `follow(places, *state)`, the next state of the loads at some places: states move half way
    there, and a load that has come to rest is left alone (two in a thousand swing for ever). Of what waits, the fourth
    of a state, the change counts only through what follows from it: it comes near nothing."""
    state = np.array(start)
    at = np.arange(state.shape[1])
    for _ in range(ROUNDS):
        old = state[:, at]
        state[:, at] = middle = 0.5 * (old + np.array(follow(at, *old)))
        at = at[np.max(np.abs(old - middle)[:3] / (middle[:3] + 1e-300), axis=0) >= CLOSE]
        if not at.size:
            break
    return state


def _open(pool: Pool, load: Load) -> Steady:
    """The fixed point of an open loop; beyond what can be served, a full replica's step and throughput."""
    limit, steps, x = most_running(pool, load), steps_of(pool, load), load.rate
    ttft, lasts, stable, one = np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape, dtype=bool), np.ones(x.shape)

    def follow(at: NDArray[np.int_], tau: Array, running: Array, mixed: Array) -> tuple[Array, ...]:
        now = _round(pool, load.at(at), x[at], tau, np.maximum(running, 1e-3), np.zeros(()), mixed)
        ttft[at] = now.first + queueing(x[at] / now.most, now.most, now.whole)
        lasts[at] = np.minimum(steps * now.step + now.behind * ttft[at], steps * now.slowest)
        wanted = x[at] * lasts[at]
        stable[at] = (wanted <= limit[at]) & (x[at] <= now.most)
        return now.step, np.minimum(wanted, limit[at]), now.mixed

    tau = decode_time(pool, load, one)
    tau, running, _ = _at_rest((tau, one, tau), follow)
    tau = lasts / steps if steps else tau
    if np.all(stable):
        return Steady(ttft, tau, 0.0, x, running, stable)
    most = np.maximum(np.floor(limit), 1.0)
    full = _closed(pool, replace(load, clients=most, first=np.zeros(limit.shape), apart=np.inf))
    return Steady(
        np.where(stable, ttft, np.inf), np.where(stable, tau, full.tpot), 0.0,
        np.where(stable, x, full.requests_per_s), np.where(stable, running, full.running), stable,
    )  # fmt: skip


def _with_first_wave(pool: Pool, load: Load, ttft: Array, here: Array) -> Array:
    """Mean TTFT with the first wave of a closed loop, which comes at once: out of the front end one by one, or
    prefilled pass after pass, whichever is slower."""
    room = room_beside(pool, load, np.zeros(()))
    a_pass = np.minimum(np.maximum(room * pool.table.slots / load.prompt, 1e-9), here)
    time = pass_time(pool, load, room, a_pass, np.zeros(()), load.prompt)
    front = pool.server.fronted(load.prompt)
    wave = np.maximum(front * here / 2 + ttft, front + time * (here / a_pass + np.maximum(1 / a_pass, 1)) / 2)
    return np.asarray(load.first * wave + (1 - load.first) * ttft)
