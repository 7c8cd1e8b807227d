"""The points that no other beats in two outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def front(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Indices of the points that no other beats in both x and y (more is better), by rising x; equal points once.

    >>> front(np.array([1.0, 2.0, 3.0, 2.0]), np.array([5.0, 4.0, 1.0, 3.0])).tolist()
    [0, 1, 2]
    """
    order = np.lexsort((-y, -x))
    best = np.maximum.accumulate(y[order])
    keep = np.ones(len(order), dtype=bool)
    keep[1:] = y[order][1:] > best[:-1]
    return order[keep][::-1]
