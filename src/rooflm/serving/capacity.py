"""KV memory of an instance that serves, from the formulas of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rooflm.estimate import memory as mem
from rooflm.estimate.capacity import memory_use, needs
from rooflm.scenario.scenario import Scenario


class Capacity(NamedTuple):
    """KV memory of one engine instance: tokens that fit, the fixed share of a sequence in tokens (recurrent state, full
    windows, the unfilled part of its last block), bytes a token (all GPUs), and the sequences of a rank whose recurrent
    state fits, where a pool of its own holds them."""

    tokens: float
    each: float
    bytes_per_token: float
    running: float = float("inf")


def capacity(s: Scenario, budget: float, longest: float, kept_states: bool = True, grown: bool = False) -> Capacity:
    """KV capacity from the memory formulas: what weights, fixed buffers and a full pass leave.

    budget: tokens of the largest pass of a rank; longest: length at which windows count as full; kept_states: a prefix
    cache keeps recurrent states of earlier prompts in the pool of those that run; grown: buffers are made for the batch
    that runs, so that a pass holds no more new tokens than the cache."""
    m, room, need = s.mapping, s.engine.room, needs(s)
    fixed = memory_use(s, 0.0, need)
    left, a_token = float(fixed.capacity - fixed.total), float(room.free_fraction * need.token * need.taken)
    free = left - budget * a_token
    long, one_by_one = max(longest, 1.0) * 64, replace(room, block=1)  # so long that every window is full

    def held(tokens: float) -> float:
        return float(mem.kv_bytes_per_sequence(s.model, m, s.quant, tokens, one_by_one))

    per_token = (held(2 * long) - held(long)) / long
    free = max(free, left * per_token / (per_token + a_token)) if grown and per_token > 0 else free
    state, running = max(held(longest) - per_token * longest, 0.0), float("inf")
    if per_token > 0 and state and room.state_share and (recurrent := held(0.0)):
        slots = room.state_slots + s.engine.host.overlap * room.states_ahead if kept_states else 1
        running = float(room.state_share) * max(free, 0.0) / recurrent // float(slots)
        free, state = (1.0 - float(room.state_share)) * free, max(state - recurrent, 0.0)
    block = float(room.block)
    if per_token <= 0:  # nothing but recurrent state (or full windows): a sequence is the unit
        per_token = state / max(longest, 1.0) or 1.0
    each = state / per_token + (block - 1) / 2
    return Capacity(max(free, 0.0) / per_token * float(m.dp), each, per_token * float(m.tp * m.pp), running)
