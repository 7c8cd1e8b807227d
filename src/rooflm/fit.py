"""What would fit: the fewest GPUs that hold a scenario, over tensor and pipeline splits."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rooflm.capacity import memory_use
from rooflm.scenario import Scenario

MOST_STAGES = 64


class Split(NamedTuple):
    """A tensor and pipeline split."""

    devices: int
    tp: int
    pp: int


def fewest_gpus(s: Scenario) -> Split | None:
    """The split with the fewest GPUs (then the largest tp) whose memory suffices, tp within a node; None if none does.

    The batch and lengths stay; data parallelism is left as it is.
    """
    heads = max((int(np.max(b.mixer.heads)) for b in s.model.scaled().blocks if b.mixer is not None), default=1)
    node = int(np.max(np.asarray(s.cluster.tiers[0].size))) if s.cluster.tiers else 1
    ways = np.array([d for d in range(1, heads + 1) if heads % d == 0 and d <= node], dtype=float)
    stages = np.arange(1, min(MOST_STAGES, int(np.max(s.model.layers))) + 1, dtype=float)
    mapping = replace(
        s.mapping, tp=ways[:, None], pp=stages[None, :], in_flight=1, ep=np.minimum(s.mapping.ep, ways[:, None])
    )
    memory = memory_use(replace(s, mapping=mapping, axes=2))
    devices = np.where(memory.total <= memory.capacity, ways[:, None] * stages, np.inf)
    if not np.isfinite(devices).any():
        return None
    best = devices.min()
    row = max(i for i in range(len(ways)) if best in devices[i])
    return Split(int(best), int(ways[row]), int(best / ways[row]))
