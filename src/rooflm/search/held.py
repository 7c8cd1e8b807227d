"""Memory and energy of a steady state: bytes of the fullest device, joules of a token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.estimate.capacity import memory_use, needs
from rooflm.serving.passes import Load, steps_of
from rooflm.serving.simulate import Pool
from rooflm.serving.steps import energy_fit, step_joules

Array = NDArray[Any]


def held_bytes(pool: Pool, running: Array, passes: Array, room: Array, longest: int) -> Array:
    """Memory of the fullest device: weights and buffers, a full pass, and the running sequences at their full length,
    at most all that the KV cache has (more where not even one fits). room: tokens of KV memory."""
    s, ranks = pool.table.components.scenario, pool.table.ranks
    m, need = s.mapping, needs(s)
    fixed = memory_use(s, np.zeros(()), need)
    one = (longest + pool.capacity.each) * ranks
    kept = np.maximum(np.maximum(running, ranks) * one / ranks, one)
    kept = np.where(room >= one, np.minimum(kept, room), kept)
    per_token = pool.capacity.bytes_per_token / (m.tp * m.pp) / ranks
    held = fixed.total + passes * need.token + kept * per_token
    return np.asarray(np.where(room >= one, np.minimum(held, fixed.capacity), held))


def decode_joules(pool: Pool, running: Array, load: Load) -> Array:
    """Dynamic joules of a request's decode steps, each step shared by the sequences that run."""
    c, each = pool.table.components, np.maximum(running, 1.0) / pool.table.ranks
    a_step = step_joules(c, each, load.prompt + load.output / 2) / each
    return np.asarray(c.ranks * steps_of(pool, load) * a_step)


def prompt_joules(pool: Pool, budget: Any, load: Load) -> Array:
    """Dynamic joules of a prompt by itself, in passes of a token budget."""
    c = pool.table.components
    prefill = energy_fit(c)
    passes = np.ceil(load.prompt / budget)
    return np.asarray(c.ranks * (prefill[0] * passes + prefill[1] * load.prompt + prefill[2] * load.prompt**2 / 2))
