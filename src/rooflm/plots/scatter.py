"""Points: trade-offs with their Pareto front, and predictions over what was measured, by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflm.plots.labels import SIZE, Frame, along, placed
from rooflm.plots.lines import LEGEND, NUMBER
from rooflm.shown.palette import GOOD, PARTS, series
from rooflm.plots.picture import INK, PANEL, Picture, Spec, arranged, finished, rows, text_width, wrapped
from rooflm.plots.scale import Array, Scale, round_ticks

WIDE, TALL = 560, 380
MOST_DOTS = 2500
"""Most points of a cloud that are drawn; an even choice of more."""
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
    low, high = (f(np.concatenate([b[1] for b in bests])) for f in (np.min, np.max))
    log = bool(low > 0 and high > 20 * low)
    ticks = round_ticks(float(low), float(high)) if log else [0.0, float(high) * 1.08]
    frame = Frame(WIDE, TALL, (0.0, float(max(np.max(b[0]) for b in bests)) * 1.1), (ticks[0], ticks[-1]), log_y=log)
    colour = series(c.name for c in clouds)
    hue = {"field": "name", "type": "nominal", "scale": {"domain": list(colour), "range": list(colour.values())},
           "legend": LEGEND if len(clouds) > 1 else None}  # fmt: skip
    scale: Spec = {"domain": list(frame.y), "nice": False} | ({"type": "log"} if log else {})
    axis: Spec = {"labelExpr": NUMBER} | ({"values": ticks} if log else {"tickCount": 6})
    place = {"x": {"field": "x", "type": "quantitative", "title": x.label,
                   "axis": {"labelExpr": NUMBER, "tickCount": 8}, "scale": {"domain": list(frame.x), "nice": False}},
             "y": {"field": "y", "type": "quantitative", "title": y.label, "axis": axis, "scale": scale}}  # fmt: skip
    layers: list[Spec] = []
    for cloud in clouds:
        layers += _cloud(cloud, place | {"color": hue}, frame)
    if len(clouds) <= MOST_LABELLED:
        layers += _labels(clouds, frame, place, hue)
    told = (*notes, "dots: points that fit; lines: those that no other beats")
    return finished({"width": WIDE, "height": TALL, "layer": layers}, title, subtitle, WIDE + 120, told)


def _cloud(cloud: Cloud, place: Spec, frame: Frame) -> list[Spec]:
    """The dots of a cloud, its front and the front's points."""
    across, up = _seen(cloud, frame)
    dots = rows(x=across.tolist(), y=up.tolist(), name=[cloud.name] * len(across))
    best = rows(x=cloud.x[cloud.best].tolist(), y=cloud.y[cloud.best].tolist(), name=[cloud.name] * len(cloud.best),
                of=list(cloud.labels) or [""] * len(cloud.best))  # fmt: skip
    told = [{"field": "name"}, {"field": "of"}, {"field": "x", "format": ".3~s"}, {"field": "y", "format": ".3~s"}]
    line = {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 34}}
    return [
        {"data": {"values": dots}, "encoding": place, "mark": {"type": "circle", "size": 9, "opacity": 0.25}},
        {"data": {"values": best}, "encoding": place | {"tooltip": told}, "mark": line},
    ]


def _seen(cloud: Cloud, frame: Frame) -> tuple[Array, Array]:
    """The points of a cloud that are drawn."""
    kept = np.flatnonzero((cloud.y >= frame.y[0]) & (cloud.y <= frame.y[1]) & (cloud.x <= frame.x[1]))
    kept = kept[:: -(-len(kept) // MOST_DOTS) or 1]
    return cloud.x[kept], cloud.y[kept]


def _labels(clouds: Sequence[Cloud], frame: Frame, place: Spec, hue: Spec) -> list[Spec]:
    """The ends and the middle of each front by name in its colour, where there is room."""
    asked: list[tuple[float, float, str]] = []
    owners: list[str] = []
    for c in clouds:
        some = sorted({0, len(c.best) // 2, len(c.best) - 1}) if len(c.best) and c.labels else []
        asked += [(float(c.x[c.best[i]]), float(c.y[c.best[i]]), c.labels[i]) for i in some]
        owners += [c.name] * len(some)
    busy = [along(frame, c.x[c.best], c.y[c.best]) for c in clouds] + [frame.at(*_seen(c, frame)) for c in clouds]
    found = placed(frame, asked, busy)
    told = [(x, y, asked[i][2], owners[i]) for x, y, i in found]
    return [words(told, place | {"color": hue})] if found else []


def words(found: Sequence[tuple[float, float, str, str]], place: Mapping[str, Any]) -> Spec:
    """A layer of labels (x, y in data units, text, name of what they belong to)."""
    x, y, text, name = ([v[i] for v in found] for i in range(4))
    values = rows(x=x, y=y, text=text, name=name)
    mark = {"type": "text", "fontSize": SIZE, "color": INK, "baseline": "middle"}
    return {"data": {"values": values}, "encoding": {**place, "text": {"field": "text"}}, "mark": mark}


ENDS = (0.4, 2.5)
"""Ratios beyond which points stand at the edge."""
MOST_POINTS = 300
"""Most points of one source and metric that are drawn; an even choice of more."""


def ratios(
    title: str,
    found: Sequence[tuple[str, str, float]],
    subtitle: str = "",
    near: float = 0.25,
    notes: Sequence[str] = (),
) -> Picture:
    """Predicted over measured, by metric (panels) and source (rows): one tick a run, a dot at the median.

    found: (source, metric, ratio). near: the shaded stretch around 1. Every panel shows a ratio, so that seconds,
    rates and bytes stand on one kind of axis.
    """  # fmt: skip
    cells: dict[str, dict[str, list[float]]] = {}
    for source, metric, ratio in found:
        if ratio > 0 and np.isfinite(ratio):
            cells.setdefault(metric, {}).setdefault(source, []).append(ratio)
    across = min(len(cells), 2)
    wide = 420 if across == 1 else 230
    room = max((text_width(s) for c in cells.values() for s in c), default=0.0) + 8
    ranked = sorted(cells.items(), key=lambda kv: -len(kv[1]))
    made = [_ratio(metric, values, near, wide, room) for metric, values in ranked]
    told = (f"shaded: within {100 * near:.0f} %", "one tick a run, dot: the median, line: eight of ten runs", *notes)
    if any(not ENDS[0] <= r <= ENDS[1] for c in cells.values() for v in c.values() for r in v):
        told = (*told, f"at the edge: beyond {ENDS[0]:g} or {ENDS[1]:g}")
    for panel in made[-across:]:
        panel["encoding"] = {"x": {"title": "predicted over measured"}}
    body = arranged(made, across) | ({"spacing": {"row": 14, "column": 30}} if len(made) > 1 else {})
    return finished(body, title, subtitle, across * (wide + room + 20), told)


def _ratio(metric: str, values: Mapping[str, Sequence[float]], near: float, wide: int, room: float) -> Spec:
    """The panel of one metric: its sources, the one with the most runs first."""
    low, high = ENDS
    axis = {"values": [0.5, 0.75, 1, 1.5, 2], "format": "~g"}
    x = {"field": "x", "type": "quantitative", "axis": axis, "title": None,
         "scale": {"type": "log", "domain": list(ENDS), "nice": False}}  # fmt: skip
    labels = {"ticks": False, "domain": False, "labelPadding": 8, "labelOverlap": False, "minExtent": room}
    sources = sorted(values, key=lambda s: (-len(values[s]), s))
    y = {"field": "y", "type": "nominal", "title": None, "sort": sources, "axis": labels}
    kept = {s: np.clip(np.sort(v), low, high) for s, v in values.items()}
    ticks = [(s, float(v)) for s, vs in kept.items() for v in vs[:: -(-len(vs) // MOST_POINTS)]]
    middle = [(s, *np.clip(np.percentile(values[s], (10, 50, 90)), low, high).tolist(), len(values[s])) for s in kept]
    ends = rows(y=[m[0] for m in middle], x=[m[1] for m in middle], x2=[m[3] for m in middle])
    points = rows(y=[m[0] for m in middle], x=[m[2] for m in middle], runs=[m[4] for m in middle])
    marks = rows(y=[t[0] for t in ticks], x=[t[1] for t in ticks])
    place = {"x": x, "y": y}
    told = [{"field": "y", "title": "source"}, {"field": "x", "title": "median", "format": ".3~f"}, {"field": "runs"}]
    colour = PARTS["predicted"]
    layers: list[Spec] = [
        {"data": {"values": rows(x=[1 - near], x2=[1 + near])}, "mark": {"type": "rect", "color": GOOD},
         "encoding": {"x": x, "x2": {"field": "x2"}}},
        {"data": {"values": rows(x=[1.0])}, "mark": {"type": "rule", "color": "#888888"}, "encoding": {"x": x}},
        {"data": {"values": marks}, "encoding": place,
         "mark": {"type": "tick", "color": colour, "opacity": 0.28, "thickness": 1.2, "size": 13}},
        {"data": {"values": ends}, "encoding": place | {"x2": {"field": "x2"}},
         "mark": {"type": "rule", "color": colour, "strokeWidth": 2}},
        {"data": {"values": points}, "encoding": place | {"tooltip": told},
         "mark": {"type": "circle", "color": INK, "size": 45, "opacity": 1}},
    ]  # fmt: skip
    title = {
        "text": wrapped(metric, wide * 0.9, PANEL),
        "fontSize": PANEL,
        "anchor": "middle",
        "offset": 6,
        "frame": "group",
    }
    return {"title": title, "width": wide, "height": {"step": 17}, "layer": layers}
