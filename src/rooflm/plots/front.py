"""Trade-offs: clouds of points with their Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflm.plots.labels import Frame, along, place_labels, words
from rooflm.plots.lines import NUMBER, POINTS
from rooflm.plots.picture import Picture, Spec, rows, with_heading
from rooflm.plots.scale import Array, Scale, round_ticks
from rooflm.shown.palette import DASHES, SHAPES, inked, series

WIDE, TALL = 560, 380
MOST_DOTS = 2500
"""Most points of a cloud that are drawn; an even choice of more."""
NEAR = 0.75
"""Share of the largest value above which all the others lie where an axis does not begin at 0."""
MOST_LABELLED = 4
"""Most fronts of which points are labelled."""


@dataclass(frozen=True)
class Cloud:
    """Points of one group: x, y, and the places of those on its Pareto front with a label each."""

    name: str
    x: Array
    y: Array
    best: Array
    labels: tuple[str, ...] = ()


def front(
    title: str, x: Scale, y: Scale, clouds: Sequence[Cloud], subtitle: str = "", notes: Sequence[str] = ()
) -> Picture:
    """Clouds of points and each one's Pareto front as a line, its ends and middle labelled."""
    bests = [(c.x[c.best], c.y[c.best]) for c in clouds]
    xs, ys = (np.concatenate([b[i] for b in bests]) for i in (0, 1))
    low, high = float(ys.min()), float(ys.max())
    log = low > 0 and high > 20 * low
    ticks = round_ticks(low, high) if log else [*_ends(ys)]
    frame = Frame(WIDE, TALL, _ends(xs), (ticks[0], ticks[-1]), log_y=log)
    colour = series(c.name for c in clouds)
    hue, shape = (by_name(list(colour), own) for own in (list(colour.values()), SHAPES))
    scale: Spec = {"domain": list(frame.y), "nice": False} | ({"type": "log"} if log else {})
    axis: Spec = {"labelExpr": NUMBER} | ({"values": ticks} if log else {"tickCount": 6})
    place = {"x": {"field": "x", "type": "quantitative", "title": x.label,
                   "axis": {"labelExpr": NUMBER, "tickCount": 8}, "scale": {"domain": list(frame.x), "nice": False}},
             "y": {"field": "y", "type": "quantitative", "title": y.label, "axis": axis, "scale": scale}}  # fmt: skip
    layers: list[Spec] = []
    for i, cloud in enumerate(clouds):
        layers += _cloud(cloud, place | {"color": hue}, frame, shape, DASHES[i % len(DASHES)])
    if len(clouds) <= MOST_LABELLED:
        layers += _labels(clouds, frame, place, colour)
    more = any(len(c.x) > len(c.best) for c in clouds)
    told = (*notes, "dots: points that fit; lines: those that no other beats" if more else "points that no other beats")
    return with_heading({"width": WIDE, "height": TALL, "layer": layers}, title, subtitle, WIDE + 120, told)


def _ends(values: Array) -> tuple[float, float]:
    """Ends of a linear axis: from 0, unless the values would then share a corner.

    >>> _ends(np.array([1.0, 10.0])), _ends(np.array([90.0, 100.0]))
    ((0.0, 11.0), (86.0, 104.0))
    """
    low, high = float(values.min()), float(values.max())
    apart = 0.4 * (high - low)
    return (low - apart, high + apart) if low > NEAR * high and apart else (0.0, 1.1 * high)


def by_name(names: Sequence[str], own: Sequence[Any]) -> Spec:
    """An encoding of clouds by name, each with its own of some colours or markers, from the first again where these are
    fewer; with a legend of several."""
    scale = {"domain": names, "range": [own[i % len(own)] for i in range(len(names))]}
    return {"field": "name", "type": "nominal", "scale": scale, "legend": POINTS if len(names) > 1 else None}


def _cloud(cloud: Cloud, place: Spec, frame: Frame, shape: Spec, dash: Sequence[int]) -> list[Spec]:
    """The dots of a cloud, its front and the front's points."""
    across, up = _seen(cloud, frame)
    dots = rows(x=across.tolist(), y=up.tolist(), name=[cloud.name] * len(across))
    best = rows(x=cloud.x[cloud.best].tolist(), y=cloud.y[cloud.best].tolist(), name=[cloud.name] * len(cloud.best),
                of=list(cloud.labels) or [""] * len(cloud.best))  # fmt: skip
    told = [{"field": "name"}, {"field": "of"}, {"field": "x", "format": ".3~s"}, {"field": "y", "format": ".3~s"}]
    line = {"type": "line", "strokeWidth": 2, "strokeDash": dash}
    point = {"type": "point", "filled": True, "size": 40, "opacity": 1}
    return [
        {"data": {"values": dots}, "encoding": place, "mark": {"type": "circle", "size": 12, "opacity": 0.4}},
        {"data": {"values": best}, "encoding": place, "mark": line},
        {"data": {"values": best}, "encoding": place | {"shape": shape, "tooltip": told}, "mark": point},
    ]


def _seen(cloud: Cloud, frame: Frame) -> tuple[Array, Array]:
    """The points of a cloud that are drawn."""
    inside = [(v >= ends[0]) & (v <= ends[1]) for v, ends in ((cloud.x, frame.x), (cloud.y, frame.y))]
    kept = np.flatnonzero(inside[0] & inside[1])
    kept = kept[:: -(-len(kept) // MOST_DOTS) or 1]
    return cloud.x[kept], cloud.y[kept]


def _labels(clouds: Sequence[Cloud], frame: Frame, place: Spec, colour: Mapping[str, str]) -> list[Spec]:
    """The ends and the middle of each front by name in its colour, where there is room."""
    asked: list[tuple[float, float, str]] = []
    owners: list[str] = []
    for c in clouds:
        some = sorted({0, len(c.best) // 2, len(c.best) - 1}) if len(c.best) and c.labels else []
        asked += [(float(c.x[c.best[i]]), float(c.y[c.best[i]]), c.labels[i]) for i in some]
        owners += [inked(colour[c.name])] * len(some)
    busy = [along(frame, c.x[c.best], c.y[c.best]) for c in clouds] + [frame.at(*_seen(c, frame)) for c in clouds]
    found = place_labels(frame, asked, busy)
    own = {"field": "name", "type": "nominal", "scale": None}  # the colour itself
    return [words(asked, owners, found, place | {"color": own})] if found else []
