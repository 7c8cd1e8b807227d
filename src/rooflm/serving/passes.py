"""A load on a replica, and how long its passes take: passes with prompts, those of one prompt, decode-only steps.

Times are in s, prompts, sequences and tokens may be fractions (means); arrays are over the loads, and all broadcast."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.serving.queues import mean_ceil
from rooflm.serving.schedulers import SCHEDULERS, InFlight
from rooflm.serving.simulate import Pool

Array = NDArray[np.float64]
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


def steps_of(pool: Pool, load: Load) -> float:
    """Decode steps of a request."""
    return max(load.output - 1, 0.0) / pool.server.tokens_a_step


def streaming(pool: Pool, load: Load) -> float:
    """Seconds of the processes which stream tokens that a request takes."""
    return float(pool.server.streaming(steps_of(pool, load)))


def pass_time(
    pool: Pool, load: Load, room: Array, prompts: Array, sequences: Array, context: float,
    *, part: Any = np.inf, drains: bool = False, ahead: Any = 0.0, host: Any = False,
) -> Array:  # fmt: skip
    """Mean seconds of passes with so many prompts on average, as far as a rank's room (tokens) goes, beside so many
    sequences at a mean context (tokens). part: tokens of a prompt's piece, where it is not as long as there is room;
    drains: nothing follows; ahead: s by which the host began to launch it before the device was free; host: as much of
    it as keeps the scheduler. Between whole numbers of pieces and sequences it is linear."""
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


class Prompts(NamedTuple):
    """How prompts fill passes."""

    room: Array  # new tokens of a rank in a pass
    parts: Array  # passes that a prompt takes
    part: Array  # share of a prompt that a pass takes, where it is alone there
    whole: Array  # prompts of a full pass, or a share of one
    places: Array  # prompts that it takes at a time, a part or the whole of each


def prompts_in(pool: Pool, load: Load, beside: Array) -> Prompts:
    """How prompts fill passes beside so many decoding sequences."""
    slots, together, room = pool.table.slots, in_a_pass(pool), room_beside(pool, load, beside)
    parts = np.maximum(load.pieces(room * together), 1)
    whole = room * slots / load.prompt
    places = np.where(parts > 1, slots / together, np.maximum(whole, 1.0))
    return Prompts(room, parts, room * together / load.prompt, whole, places)


def own_passes(
    pool: Pool, load: Load, p: Prompts, sequences: Array, context: float,
    *, full: Array, others: Array, alone: Array, ahead: Any,
) -> Array:  # fmt: skip
    """Time of the passes of one prompt, as `pass_time`: full ones of `full` s, and the last, which others' prompts
    share. alone: chance that nobody else is there, so that a pipeline drains."""
    before = p.parts - 1
    rest = 1 - before * p.part
    last = pass_time(pool, load, p.room, rest + others, sequences, context, ahead=ahead)
    if in_a_pass(pool) > 1:
        whole = np.minimum(p.room / load.prompt, 1)  # of a prompt: what the last part follows through the stages
        asked = np.stack(np.broadcast_arrays(whole, 2 * whole, rest))
        one, two, only = pass_time(pool, load, p.room, asked, np.zeros(()), context, drains=True)
        drained = np.where(before > 0, one + (rest / whole - 1) * (two - one), only)
        last = last + alone * (drained - last)
    return before * full + last


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
