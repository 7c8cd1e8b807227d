"""Steady state without simulating: fixed-point formulas of a replica under load, and a check on the other.

Little's law ties throughput X, running sequences D and the step time: D = X n tau(D, X) with n steps a request, where
tau is the mean of decode steps and of passes with prompts, which come in busy periods (`queues.time_with`). How long
passes take is in `passes`, what clients do whose outputs are alike in `in_step`. Loads, token budgets and KV memories
may be arrays: all states of one engine instance come from one evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.estimate.figures import single
from rooflm.serving import queues
from rooflm.serving.in_step import in_step, steps_apart
from rooflm.serving.passes import (
    VARIED,
    Load,
    Prompts,
    decode_time,
    most_running,
    own_passes,
    pass_time,
    prompts_in,
    room_beside,
    steps_of,
    streaming,
    whole_prompts,
)
from rooflm.serving.schedulers import SCHEDULERS
from rooflm.serving.simulate import Pool
from rooflm.serving.workload import Requests

Array = NDArray[np.float64]
ROUNDS, CLOSE = 100, 1e-6
"""Most rounds of the fixed point, and the relative change at which it ends."""
NEAR, STEADY = 0.3, 0.6
"""Relative change from which on the end is near, and the share of the last one below which changes shrink."""
EXCESS = 0.003
"""Share by which an engine may make more tokens than are streamed, at which the search for its clients ends."""
FULL = 3
"""Passes' worth of waiting prompts from which on every pass is taken to be full (below, queues come and go)."""


@dataclass(frozen=True)
class Steady:
    """Means of one replica: times in s, requests/s, sequences running; plain numbers, or arrays of the loads' shape.

    stable: false where the rate is beyond what can be served (ttft is then infinite, tpot and requests_per_s are those
    of a full replica); ttft includes the first wave of a closed loop, in its share of the requests."""

    ttft: Any
    tpot: Any
    latency: Any
    requests_per_s: Any
    running: Any
    stable: Any

    def single(self) -> Steady:
        """The state of a single load in plain numbers."""
        return Steady(*map(single, vars(self).values()))


def steady(requests: Requests, pool: Pool, rate: float | None = None, *, waves: bool = True) -> Steady:
    """The steady state of one replica that gets all of `requests`, or `rate` of them a second. waves: the first wave of
    a closed loop counts in the means."""
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
    wide = 0.0 if whole_prompts(pool) else load.wide  # such a prompt is not cut, however long
    loads, which = np.unique([v.ravel() for v in numbers], axis=1, return_inverse=True)  # replicas share them
    flat: dict[str, Any] = dict(zip(VARIED, loads.astype(float), strict=True))
    load = replace(load, wide=wide, **flat)
    state = _closed_and_streamed(pool, load) if np.any(load.clients) else _open(pool, load)
    server = pool.server
    unseen = (server.stream_interval - 1) / server.tokens_a_step  # steps made before the client sees the first token
    made = max(steps_of(pool, load) - unseen, 0.0)
    ttft = state.ttft + unseen * state.tpot + server.seen(load.prompt)
    tpot = made * state.tpot / max(load.output - 1, 1)
    rate = state.requests_per_s / (1 + (load.clients == 1) * server.seen(load.prompt) * state.requests_per_s)
    every = (ttft, tpot, ttft + made * state.tpot, rate, state.running, state.stable)
    return Steady(*(v[which].reshape(numbers[0].shape) for v in every))


class Round(NamedTuple):
    """One round of the fixed point, arrays over the loads."""

    step: Array  # s of the mean decode step
    mixed: Array  # s of a pass with prompts
    first: Array  # s to the first token, once a request is at the head of the queue
    most: Array  # most requests/s whose prompts the passes take
    whole: Array  # prompts under way in a full pass
    behind: Array  # s by which a request ends later, a second that it takes to its first token
    slowest: Array  # s of the longest step that the others' prompts make of one


def _round(pool: Pool, load: Load, x: Array, tau: Array, running: Array, queued: Array, mixed: Array) -> Round:
    """One round from requests/s `x`, s a step `tau`, running sequences, queued prompts and s of a pass with prompts.

    Mixed schedulers (vLLM) carry prompts in decoding passes, which leave them the rest of the budget; the others stop
    decoding for a prompt. In a closed loop a client sees only the others' requests (the arrival theorem of closed
    queueing networks). Who comes meanwhile is behind a request, and prompts go before its steps (`behind`)."""
    server, context = pool.server, load.prompt + load.output / 2
    mixes = SCHEDULERS[server.scheduler].mixes
    plain = decode_time(pool, load, running)
    others = np.where(load.clients > 0, 1 - 1 / np.maximum(load.clients, 1.0), 1.0)
    beside = others * running if mixes else np.zeros(running.shape)
    p = prompts_in(pool, load, beside)
    come = np.maximum(others * x, 1e-9)
    work = come * p.parts * mixed + mixes * queued
    asked, host_of = np.stack([1 / p.parts, p.part, p.whole]), np.array([[True], [False], [False]])
    launching, of_one, full = pass_time(pool, load, p.room, asked, beside, context, host=host_of)
    host = server.lookahead * np.minimum(launching / mixed, 1.0)
    by_chance = queues.time_with(work / (p.parts * mixed), mixed, plain, p.parts, p.places, host)
    by_steps = _share_by_steps(pool, come * tau, p, plain, mixed, load.prompt)
    busy = np.where(load.clients > 0, by_steps, by_chance)
    some = queues.others_run(running, load.clients)
    ahead = server.lookahead * pool.table.ahead * some * (1 - busy) / passes_a_second(busy, mixed, plain)
    part = load.prompt / load.pieces(p.room) if pool.table.slots > 1 else np.inf
    mixed = pass_time(pool, load, p.room, work / busy / p.parts, beside, context, part=part, ahead=ahead)
    passing = 1 / passes_a_second(busy, mixed, plain)
    step = plain / (1 - busy * (1 - mixes * plain / mixed))
    in_turn = np.maximum(mixes * queued, come * passing)
    own = own_passes(pool, load, p, beside, context, full=of_one, others=in_turn, alone=1 - some, ahead=ahead)
    most = p.whole / full
    more = np.minimum(busy * (1 - mixes * plain / mixed) / come, 1 / most)
    polls = (server.receive_interval - 1) / 2 * step
    front = server.fronted(load.prompt)
    rest = (busy * mixed + (1 - busy) * plain) / 2  # of the running pass, E[T^2] / 2 E[T]: long ones are met more often
    first = front + some * (rest + server.lookahead * (1 - busy * host) * passing) + own + polls
    behind = others * x * more / queues.free(x * more, load.clients)
    slowest = mixed if mixes else np.full(step.shape, 1e9)
    return Round(step, mixed, first, most / np.maximum(most * front, 1.0), p.places, behind, slowest)


def passes_a_second(busy: Array, mixed: Array, plain: Array) -> Array:
    """Passes a second where those of `mixed` s, with prompts, fill a share `busy` of the time, decode steps the rest.

    >>> passes_a_second(0.5, 2.0, 1.0)
    0.75
    """
    return busy / mixed + (1 - busy) / plain


def _share_by_steps(pool: Pool, ended: Array, p: Prompts, plain: Array, mixed: Array, prompt: float) -> Array:
    """Share of the time in which passes hold prompts, of a closed loop: `ended` requests end in a step, and that is
    when their clients ask again."""
    server, ended = pool.server, np.minimum(ended, queues.LARGEST_LOG)
    if SCHEDULERS[server.scheduler].mixes:
        passes = queues.passes_beside(ended, p.parts, p.places)
    else:
        run = 1 + server.lookahead + np.ceil(server.fronted(prompt) / plain)
        passes = queues.passes_between(ended, p.parts, p.places, run)
    return np.minimum(passes * mixed / (plain + passes * mixed), queues.FULLEST)


def _closed_and_streamed(pool: Pool, load: Load) -> Steady:
    """`_closed` with the queue of tokens on their way to clients (docs/decisions/0326).

    Where the engine would make more tokens than are streamed, fewer clients are in it (`inside`): the others have all
    their tokens made and wait for the last. As tokens pass in turn, first ones wait as long as last ones, and steps
    look as fast as ever. Not so where clients that began together still ask together (`together`: 1 of equal outputs, 0
    once they have parted by many): nobody's tokens are before their first, so that the wait comes over the steps, and
    nothing is streamed while prompts are read, of which a request has its share (in `each`: s of the stream)."""
    state, inside, steps = _closed(pool, load), load.clients.copy(), steps_of(pool, load)
    together = steps / max(steps + load.apart, 1e-30)
    each = streaming(pool, load) + together * state.ttft / np.maximum(inside, 1.0)
    if not np.any(state.requests_per_s * each > 1):
        return state
    for _ in range(ROUNDS):
        over = state.requests_per_s * each
        fewer = np.maximum(inside / over, 1.0)
        at = np.flatnonzero((over > 1 + EXCESS) & (fewer != inside))  # the others are at rest
        if not at.size:
            break
        inside[at] = fewer[at]
        for name, values in vars(_closed(pool, replace(load, clients=inside).at(at))).items():
            if name != "latency":
                getattr(state, name)[at] = values
    x = np.minimum(state.requests_per_s, 1 / each)
    waits = load.clients / x - inside / state.requests_per_s  # Little's law: of all clients, less of those inside
    tpot = state.tpot + together * waits / max(steps, 1e-30)
    return replace(state, ttft=state.ttft + (1 - together) * waits, tpot=tpot, requests_per_s=x)


def _closed(pool: Pool, load: Load) -> Steady:
    """The fixed point of a closed loop, before what clients see of it (`states`): tpot is a step's time, latency 0."""
    limit, steps = most_running(pool, load), steps_of(pool, load)
    clients, none = np.minimum(load.clients, limit), np.zeros(limit.shape)
    ttft, lasts = none.copy(), none.copy()

    def follow(
        at: NDArray[np.int_], x: Array, tau: Array, running: Array, queued: Array, mixed: Array
    ) -> tuple[Array, ...]:
        here, inside = load.at(at), clients[at]
        now = _round(pool, here, x, tau, np.maximum(running, 1e-3), queued, mixed)
        alone = now.first + steps * now.step
        busy = queues.share_taken(x / now.most, alone * now.most, now.whole, inside)
        x_new = busy * now.most
        behind = (1 - 1 / inside) * queues.queueing(busy, now.most, now.whole, inside)
        queue = np.maximum(here.clients / limit[at] - 1, 0.0) * (alone + behind)
        whole = here.clients / x_new
        own = np.maximum((whole - steps * now.step - queue) / (1 + now.behind), now.first)
        ttft[at] = np.maximum(queue + own, whole - steps * now.slowest)
        lasts[at] = whole - ttft[at]
        left = np.maximum(x_new * (ttft[at] - now.first - queue) - FULL * now.whole, 0.0)
        return x_new, now.step, np.minimum(x_new * lasts[at], inside), left, now.mixed

    tau = decode_time(pool, load, clients)
    _at_rest((none, tau, clients, none, tau), follow)
    ttft, lasts = in_step(pool, load, limit, ttft, lasts)
    x, tau = load.clients / (ttft + lasts), lasts / steps if steps else tau
    first = _with_first_wave(pool, load, ttft, clients)
    return Steady(first, tau, 0.0, x, np.minimum(x * lasts, clients), np.ones(x.shape, dtype=bool))


def _at_rest(start: tuple[Array, ...], follow: Callable[..., tuple[Array, ...]]) -> Array:
    """The fixed point of `follow(places, *state)`, the next state of the loads at some places: states move half way
    there (near the end all the way, as long as that halves what is left), and a load that has come to rest is left
    alone (two in a thousand swing for ever). Of what waits, the fourth of a state, the change counts only through what
    follows from it: it comes near nothing."""
    state = np.array(start)
    at, left = np.arange(state.shape[1]), np.full(state.shape[1], NEAR)
    for _ in range(ROUNDS):
        old = state[:, at]
        move = np.array(follow(at, *old)) - old
        middle = old + 0.5 * move
        far = np.max(np.abs(0.5 * move[:3]) / (np.abs(middle[:3]) + 1e-300), axis=0)
        state[:, at] = np.where(far < STEADY * left[at], old + move, middle)
        left[at] = np.minimum(far, NEAR)
        at = at[far >= CLOSE]
        if not at.size:
            break
    return state


def _open(pool: Pool, load: Load) -> Steady:
    """The fixed point of an open loop; beyond what can be served, a full replica's step and throughput.

    A request that finds all places taken (sequences that KV memory or the running limit allows) waits in a queue whose
    servers are the c places, at a utilisation of the rate over a full replica's throughput. Throughput rises with the
    n sequences that run, as n^e, so that n fluctuates as it would of c / e independent servers: at most c^2 / 2, where
    the places are as one server. In a pipeline e is at least 1/2, since the closed loop has full ones too slow."""
    limit, steps, x = most_running(pool, load), steps_of(pool, load), load.rate
    ttft, lasts, stable, one = np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape, dtype=bool), np.ones(x.shape)
    places = np.maximum(np.floor(limit), 1.0)
    full = _closed(pool, replace(load, clients=places, first=np.zeros(limit.shape), apart=np.inf))
    piped = pool.table.flight > 1

    def follow(at: NDArray[np.int_], tau: Array, running: Array, mixed: Array) -> tuple[Array, ...]:
        now = _round(pool, load.at(at), x[at], tau, np.maximum(running, 1e-3), np.zeros(()), mixed)
        taken = np.clip(running / places[at], 1e-9, queues.FULLEST)
        utilisation = np.clip(x[at] / full.requests_per_s[at], taken, np.sqrt(taken) if piped else queues.FULLEST)
        exponent = np.clip(np.log(utilisation) / np.log(taken), 2 / places[at], 1.0)
        for_a_place = queues.queueing(utilisation, x[at] / utilisation, places[at] / exponent)
        for_a_pass = queues.queueing(x[at] / now.most, now.most, now.whole)
        ttft[at] = now.first + np.maximum(for_a_pass, for_a_place)
        decoding = np.minimum(steps * now.step + now.behind * (now.first + for_a_pass), steps * now.slowest)
        lasts[at] = np.minimum(decoding, steps * full.tpot[at])
        enough_places = (x < full.requests_per_s)[at] | (piped & (x[at] * decoding <= limit[at]))
        stable[at] = enough_places & (x[at] <= now.most)
        return now.step, np.minimum(x[at] * lasts[at], limit[at]), now.mixed

    tau = decode_time(pool, load, one)
    tau, running, _ = _at_rest((tau, one, tau), follow)
    made = np.where(stable, x, full.requests_per_s)
    over = np.maximum(made * streaming(pool, load), 1.0)  # tokens made over streamed: last ones wait ever longer
    tpot = np.where(stable, lasts / steps if steps else tau, full.tpot) * over
    running = np.where(stable, running, full.running)
    stable &= over <= 1
    return Steady(np.where(stable, ttft, np.inf), tpot, 0.0, made / over, running, stable)


def _with_first_wave(pool: Pool, load: Load, ttft: Array, here: Array) -> Array:
    """Mean TTFT with the first wave of a closed loop, which comes at once: out of the front end one by one, or
    prefilled pass after pass, whichever is slower."""
    room = room_beside(pool, load, np.zeros(()))
    a_pass = np.minimum(np.maximum(room * pool.table.slots / load.prompt, 1e-9), here)
    time = pass_time(pool, load, room, a_pass, np.zeros(()), load.prompt)
    front = pool.server.fronted(load.prompt)
    held = pool.server.held * (here - 1)
    passes = (here / a_pass + np.maximum(1 / a_pass, 1)) / 2
    wave = np.maximum((front * here + held) / 2 + ttft, front + held + time * passes)
    return np.asarray(load.first * wave + (1 - load.first) * ttft)
