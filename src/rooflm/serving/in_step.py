"""Clients of a closed loop whose outputs are alike: they end together, so that their prompts come together again.

Arrays are over the loads: s, tokens, or means of counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.serving.passes import Load, decode_time, in_a_pass, pass_time, room_beside, steps_of
from rooflm.serving.schedulers import SCHEDULERS
from rooflm.serving.simulate import Pool

Array = NDArray[np.float64]


def steps_apart(deviation: float, rounds: float, pool: Pool) -> float:
    """Decode steps between the first and the last of clients that began together, in the mean of a run of so many
    requests each: outputs of some standard deviation add up as a random walk, of which even ends lie sqrt(12) apart."""
    return deviation * math.sqrt(12 * max(rounds / 2, 1.0)) / pool.server.tokens_a_step


def in_step(pool: Pool, load: Load, limit: Array, ttft: Array, lasts: Array) -> tuple[Array, Array]:
    """TTFT and time of the decode steps of a closed loop whose clients are `apart` as many steps as that; ttft, lasts:
    those of clients that come by chance; limit: sequences that run at once.

    Who waits in a queue waits for whole rounds. Clients that part come by chance, by as much as they have parted over
    the passes that their prompts fill; where prompts stop decoding, over a step, or four where passes are made up ahead
    (read off the simulation: 1.0 and 4.4)."""
    mixes = SCHEDULERS[pool.server.scheduler].mixes
    c = cohort(pool, load, np.minimum(load.clients, limit), mixes)
    queued = np.maximum(load.clients / limit - 1, 0.0)
    own, rest, wave = (one_behind_another if mixes else all_at_once)(pool, load, c, queued)
    front = pool.server.fronted(load.prompt)
    own = np.maximum(own + front, front * (wave + 1) / 2 + c.mixed * c.each)  # a wave leaves the front end one by one
    own = np.maximum(own, c.clients * front - rest)
    own = own + queued * (own + rest)
    holds = c.passes if mixes else (1.0 + pool.server.lookahead) ** 2
    share = holds / (holds + load.apart) * (load.clients > 1)
    return share * own + (1 - share) * ttft, share * rest + (1 - share) * lasts


class Cohort(NamedTuple):
    """Clients that ask again together. Their prompts fill passes one behind the other, but for the first that comes out
    of a front end: an engine that finds one prompt does not wait for more."""

    clients: Array
    steps: float  # of each, that decode
    plain: Array  # s of one without prompts
    first: Array  # share of the clients whose prompt goes alone
    room: Array  # new tokens of a pass, beside who decodes
    each: Array  # passes that a prompt takes
    passes: Array  # those that all prompts fill but the first
    mixed: Array  # s of one of them
    alone: Array  # s of the passes of the first prompt


def cohort(pool: Pool, load: Load, clients: Array, mixes: bool) -> Cohort:
    """So many clients whose prompts come together. mixes: passes with prompts decode, too."""
    steps, context = steps_of(pool, load), load.prompt + load.output / 2
    first = (pool.server.fronted(load.prompt) > 0) * np.minimum(clients - 1, 1) / clients
    each = passes = np.ones(clients.shape)
    for _ in range(3):  # who decodes beside leaves the prompts less room
        beside = mixes * clients * np.minimum(passes - each, steps) / passes
        room = room_beside(pool, load, beside)
        each = np.maximum(load.pieces(room * in_a_pass(pool)), 1)
        passes = np.maximum(clients * (1 - first) * load.prompt / (room * pool.table.slots), each)
    slots = pool.table.slots
    part = load.prompt / load.pieces(room) if slots > 1 else np.inf
    mixed = pass_time(pool, load, room, clients * (1 - first) / passes, beside, context, part=part)
    pieces = each if slots == 1 else 1
    alone = first * clients * pieces * pass_time(pool, load, room, 1 / each, beside, context)
    return Cohort(clients, steps, decode_time(pool, load, clients), first, room, each, passes, mixed, alone)


def one_behind_another(pool: Pool, load: Load, c: Cohort, queued: Array) -> tuple[Array, Array, Array]:
    """(TTFT, time of the decode steps, clients that end together) where passes with prompts decode too (vLLM).

    Those whose prompts ended in a pass end together, a step behind those of the pass before. The first to end waits
    `late` steps, while its prompt comes in and for the pass that is made up already; as many passes' worth of the
    others end in these, and from then on each waits for as many passes with prompts."""
    full = np.clip(load.prompt / (c.room * in_a_pass(pool)), 1, c.each)
    late = pool.server.lookahead + np.ceil(pool.server.fronted(load.prompt) / c.plain)
    late = np.minimum(late, c.passes - c.each) * np.maximum(1 - queued, 0)
    waits = late * (1 - (late + c.each) / (2 * c.passes))
    own = c.mixed * (full + (c.each - full) * c.each / c.passes + waits)
    own = own + (1 - c.first) * c.alone * c.each / c.passes
    others = np.minimum(c.passes - full - waits + c.first * c.each, c.steps)  # their passes, that this one decodes in
    rest = c.steps * c.plain + others * (c.mixed - c.plain)
    return np.maximum(own, c.passes * c.mixed + c.alone - rest), rest, c.clients * c.each / c.passes


def all_at_once(pool: Pool, load: Load, c: Cohort, queued: Array) -> tuple[Array, Array, Array]:
    """The same where prompts stop decoding (SGLang): nobody decodes until all are read, so that all end at once, and
    wait for half of all passes on both sides of their own."""
    own = c.alone + (1 - c.first) * c.mixed * (c.passes + c.each) / 2
    others = c.first * c.passes + (1 - c.first) * (c.passes - c.each) / 2
    return own, c.steps * c.plain + c.mixed * others, c.clients
