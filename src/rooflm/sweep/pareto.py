"""Pareto fronts: points that no other point beats, in two outputs or in any number of goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def front(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Indices of the Pareto-optimal points in x and y (both to be maximised), by rising x, without duplicates.

    >>> front(np.array([1.0, 2.0, 3.0, 2.0]), np.array([5.0, 4.0, 1.0, 3.0])).tolist()
    [0, 1, 2]
    """
    order = np.lexsort((-y, -x))
    best = np.maximum.accumulate(y[order])
    keep = np.ones(len(order), dtype=bool)
    keep[1:] = y[order][1:] > best[:-1]
    return order[keep][::-1]


def pareto(table: Mapping[str, NDArray[Any]], goals: Mapping[str, float]) -> NDArray[Any]:
    """Mask of the Pareto-optimal rows. goals: column -> 1 (minimise) or -1 (maximise).

    >>> pareto({"t": np.array([1.0, 2.0, 3.0]), "c": np.array([3.0, 1.0, 2.0])}, {"t": 1, "c": 1}).tolist()
    [True, True, False]
    """
    points = np.stack([table[k] * s for k, s in goals.items()], axis=1)
    keep = np.all(np.isfinite(points), axis=1)
    for i in np.flatnonzero(keep):
        better = np.all(points <= points[i], axis=1) & np.any(points < points[i], axis=1)
        keep[i] = not np.any(better & np.all(np.isfinite(points), axis=1))
    mask: NDArray[Any] = keep
    return mask
