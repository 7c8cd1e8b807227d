"""Labels beside points, set where they cover neither each other nor a point or a line, or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.plots.picture import INK, Spec, rows, text_width
from rooflm.plots.scale import share_of

Array = NDArray[Any]
SIZE = 10.0
"""Pixels: height of such labels."""
TALL = 1.25 * SIZE


@dataclass(frozen=True)
class Frame:
    """A drawing area in pixels, y downwards, and the ends of its axes, linear or logarithmic."""

    wide: float
    tall: float
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool = False
    log_y: bool = False

    def at(self, x: Any, y: Any) -> Array:
        """Pixels of points in data units."""
        across = share_of(np.asarray(x, float), self.x, self.log_x) * self.wide
        return np.column_stack([across, self.tall - share_of(np.asarray(y, float), self.y, self.log_y) * self.tall])


def along(frame: Frame, x: Any, y: Any) -> Array:
    """Pixels along a line through points in data units, close enough that no label fits in between."""
    ends = frame.at(x, y)
    pieces = [np.linspace(a, b, max(int(np.hypot(*(b - a)) / 4), 2)) for a, b in pairwise(ends)]
    return np.concatenate(pieces) if pieces else ends


Placed = tuple[float, float, int]
"""A label: pixels from its point to its middle (right, down), and its index."""


def place_labels(
    frame: Frame, labels: Sequence[tuple[float, float, str]], busy: Sequence[Array], radii: Sequence[float] = ()
) -> list[Placed]:
    """Places of labels (x, y, text in data units) beside their points, clear of `busy` (arrays of pixels, of marks
    some 3 wide), of earlier labels and of the frame's edge. Labels that cannot be placed are left out.

    radii: size of each point's mark in pixels (default: 5).
    """
    taken = np.concatenate([np.empty((0, 2)), *busy])
    boxes: list[tuple[float, float, float, float]] = []
    out: list[Placed] = []
    for i, ((x, y, text), radius) in enumerate(zip(labels, radii or [5.0] * len(labels), strict=True)):
        spot = frame.at([x], [y])[0]
        for box in _boxes(spot, text_width(text, SIZE), radius):
            if _free(box, taken, boxes, frame):
                boxes.append(box)
                out.append(((box[0] + box[2]) / 2 - spot[0], (box[1] + box[3]) / 2 - spot[1], i))
                break
    return out


def _boxes(spot: Array, wide: float, radius: float) -> list[tuple[float, float, float, float]]:
    """Boxes around a point, the nearest first: right, left, above, below, the corners, then the same farther out."""
    out = []
    for gap in (radius + 2, radius + 8, radius + 15):
        aside, up = wide / 2 + gap, TALL / 2 + gap
        shifts = [(aside, 0.0), (-aside, 0.0), (0.0, -up), (0.0, up)]
        shifts += [(side, rise) for rise in (-up, up) for side in (aside, -aside)]
        for across, down in shifts:
            x, y = spot[0] + across, spot[1] + down
            out.append((x - wide / 2, y - TALL / 2, x + wide / 2, y + TALL / 2))
    return out


def _free(
    box: tuple[float, float, float, float], taken: Array, boxes: Sequence[tuple[float, ...]], frame: Frame
) -> bool:
    """Whether a box covers nothing and lies inside."""
    left, top, right, bottom = box
    if left < 2 or top < 2 or right > frame.wide - 2 or bottom > frame.tall - 2:
        return False
    if any(left < b[2] + 3 and right > b[0] - 3 and top < b[3] + 1 and bottom > b[1] - 1 for b in boxes):
        return False
    inside = (taken[:, 0] > left - 4) & (taken[:, 0] < right + 4) & (taken[:, 1] > top - 2) & (taken[:, 1] < bottom + 2)
    return not bool(np.any(inside))


def words(
    labels: Sequence[tuple[float, float, str]], names: Sequence[str], placed: Sequence[Placed], place: Mapping[str, Any]
) -> Spec:
    """A layer of the labels that were placed, each as many pixels from its point however wide it is drawn. names: what
    each belongs to."""
    values = rows(
        **{k: [labels[i][at] for *_, i in placed] for at, k in enumerate(("x", "y", "text"))},
        name=[names[i] for *_, i in placed], right=[p[0] for p in placed], down=[p[1] for p in placed],
    )  # fmt: skip
    mark = {"type": "text", "fontSize": SIZE, "color": INK, "baseline": "middle", "dx": {"expr": "datum.right"},
            "dy": {"expr": "datum.down"}}  # fmt: skip
    return {"data": {"values": values}, "encoding": {**place, "text": {"field": "text"}}, "mark": mark}
