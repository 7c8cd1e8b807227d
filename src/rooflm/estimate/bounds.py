"""What bounds a pass: its seconds by what bounds its kernels, and what has the largest share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rooflm.kernels.roofline import BOUNDS, Timed
from rooflm.units import Num, pick

OF_KERNELS = BOUNDS[: BOUNDS.index("overhead") + 1]
"""What can bound a kernel."""


def by_bound(timed: Sequence[Timed]) -> dict[str, Num]:
    """Seconds of nodes by what bounds them; communication is the network's, hidden or not."""
    out: dict[str, Num] = dict.fromkeys(BOUNDS, 0.0)
    for t in timed:
        if t.levels is None:
            out["network"] = out["network"] + t.total
            continue
        bound, total = t.bound, t.total
        for index, name in enumerate(OF_KERNELS):
            out[name] = out[name] + pick(bound == index, total, 0.0)
    return out


def largest(shares: Mapping[str, Num]) -> Num:
    """The name of the largest share, at each point.

    >>> str(largest({"compute": 1.0, "dram": 2.0}))
    'dram'
    """
    return np.array([*shares])[np.argmax(np.stack(np.broadcast_arrays(*shares.values())), axis=0)]
