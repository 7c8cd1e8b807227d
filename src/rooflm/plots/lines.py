"""Curves: values over sizes, names or time, in panels; what does not fit is marked beside the last point that does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rooflm.plots.picture import (
    QUIET,
    SIZE,
    Picture,
    Spec,
    across_of,
    heading,
    in_rows,
    rows,
    text_width,
    with_heading,
    wrapped,
)
from rooflm.plots.scale import Array, Scale, Side, grouped, percent_top, round_ticks, thinned
from rooflm.shown.palette import SHAPES, series

WIDTH, HEIGHT = 460, 280
MOST_MARKED, SOME_MARKED = 60, 12
"""Most points of a curve that get a marker each; about so many of a longer one have one, so that grey prints tell."""
LEGEND = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 3, "symbolOpacity": 1}
POINTS = {"title": None, "symbolSize": 60, "symbolOpacity": 1}
CROSS = "M-.8,-.8L.8,.8M-.8,.8L.8,-.8"
LOST = "×: the first size that does not fit in memory"


@dataclass(frozen=True)
class Curve:
    """One curve: y over x (not-a-number where there is none), with an error band (low, high) where there is one.

    x: its own values, else the picture's; dots: points of their own (measured ones) without a line; steps: held until
    the next point; lost: True where a point does not fit in memory; marked: with markers at its points. Curves of one
    name share a colour.
    """

    name: str
    y: Array
    x: tuple[Any, ...] | None = None
    low: Array | None = None
    high: Array | None = None
    dots: bool = False
    steps: bool = False
    lost: Array | None = None
    dash: bool = False
    marked: bool = True


@dataclass(frozen=True)
class Panel:
    """Curves over the picture's axis that share one quantity. values: what its axis must reach besides the curves;
    marks: values of x that have a name."""

    title: str
    scale: Scale
    curves: tuple[Curve, ...]
    values: tuple[float, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()


def lines(
    title: str,
    x: Side,
    scale: Scale,
    curves: Sequence[Curve],
    subtitle: str = "",
    notes: Sequence[str] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Picture:
    """One panel of curves: `scale` over `x`. notes: what explains marks, below the subtitle; marks: values of x that
    have a name (memories, nodes), written along a line there, where there is room.

    >>> p = lines("Time a token", Side("batch", (1, 2, 4, 8)), Scale("ms"), [Curve("a100", np.array([9.0, 9, 10, 11]))])
    >>> p.spec["layer"][0]["encoding"]["x"]["scale"]["type"]
    'log'
    """
    return panels(title, x, [Panel("", scale, tuple(curves), marks=tuple(marks))], subtitle, notes)


def panels(
    title: str, x: Side, parts: Sequence[Panel], subtitle: str = "", notes: Sequence[str] = (), shared: bool = True
) -> Picture:
    """Panels of curves over one axis, three in a row. shared: they show one quantity, on axes of equal length."""
    across = across_of(len(parts))
    wide = WIDTH if len(parts) == 1 else (300 if across == 2 else 230)
    tall = HEIGHT if len(parts) == 1 else 200
    whole = [v for p in parts for v in axis_values(p)] if shared else []
    made = [
        _panel(
            x,
            p,
            _domain(p.scale, whole or axis_values(p)),
            parts,
            (wide, tall),
            first=i % across == 0 or not shared,
            shared=shared,
        )
        for i, p in enumerate(parts)
    ]
    crossed = any(_end(c, x.values) for p in parts for c in p.curves)
    told = [*notes, *([LOST] if crossed else []), *nothing_fits_note(parts)]
    return with_heading(in_rows(made, across), title, subtitle, (wide + 60.0) * across + 120, told)


def nothing_fits_note(parts: Sequence[Panel]) -> list[str]:
    """A note on curves that are invisible because none of their points fits; whole panels by title.

    >>> none, some = (np.array(flags) for flags in ([True, True], [False, True]))
    >>> curves = (Curve("a100", none * 1.0, lost=none), Curve("h200", some * 1.0, lost=some))
    >>> nothing_fits_note([Panel("", Scale("ms"), curves)])
    ['no size fits in memory: a100']
    """
    found = []
    for p in parts:
        lost = [c.name for c in p.curves if c.lost is not None and np.size(c.lost) and np.all(c.lost)]
        whole = p.title and len(lost) == len(p.curves)
        found += [p.title] if whole else [f"{p.title}, {name}" if p.title else name for name in lost]
    return [f"no size fits in memory: {'; '.join(found)}"] if found else []


def timeline(title: str, x: Side, parts: Sequence[Panel], subtitle: str = "") -> Picture:
    """Courses over time, one quantity a panel, one below the other on the same axis of time."""
    made = [
        _panel(
            x,
            p,
            _domain(p.scale, axis_values(p)),
            parts,
            (560, 120),
            first=True,
            shared=False,
            named=i == len(parts) - 1,
        )
        for i, p in enumerate(parts)
    ]
    body = in_rows(made, 1) | {"spacing": 10, "resolve": {"scale": {"color": "independent"}}}
    return with_heading(body, title, subtitle)


def axis_values(panel: Panel) -> list[float]:
    """All finite values that a panel's axis must cover, with room above for the names of marks."""
    found = [*panel.values]
    for curve in panel.curves:
        for values in (curve.y, curve.low, curve.high):
            if values is not None:
                found += np.asarray(values, float)[np.isfinite(np.asarray(values, float))].tolist()
    room = (2.5 if panel.scale.log else 1.25) if panel.marks else 1.0
    return [*found, room * max(found)] if found else found


def _domain(scale: Scale, values: Sequence[float]) -> Spec:
    """The y axis that holds these values: from zero, to 100 % where per cents come near, or logarithmic."""
    real = [v for v in values if np.isfinite(v)] or [1.0]
    if scale.log and min(real) > 0:
        ticks = round_ticks(min(real), max(real))
        return {"scale": {"type": "log", "domain": [ticks[0], ticks[-1]], "nice": False},
                "axis": {"values": ticks, "labelExpr": NUMBER}}  # fmt: skip
    top = percent_top(max(real), 1.04) if scale.percent else max(real) * 1.04 or 1.0
    low = min(0.0, min(real) * 1.04)
    axis = {"labelExpr": NUMBER, "tickCount": 5}
    return {"scale": {"domain": [low, top], "nice": not (scale.percent and top == 100.0)}, "axis": axis}


NUMBER = ("abs(datum.value) >= 1e6 ? format(datum.value, '.3~s') : datum.value != floor(datum.value) ? "
          f"{grouped('datum.value')} : format(datum.value, abs(datum.value) >= 1e4 ? ',d' : 'd')")  # fmt: skip
"""How Vega writes numbers on axes: 0.5, 2048, 16,384, 2M."""


MOST_TICKS = 12
"""Values of an axis up to which each may be a tick; more have ticks at round numbers."""


def x_of(side: Side, pixels: float) -> Spec:
    """The x axis of a side: names as names, sizes linear or logarithmic with ticks at round values."""
    base: Spec = {"field": "x", "title": side.label}
    if not side.numeric:
        room = pixels / max(len(side.values), 1)
        turned = max((text_width(str(v)) for v in side.values), default=0.0) > room - 4
        angle = {"labelAngle": -35, "labelAlign": "right"} if turned else {"labelAngle": 0}
        order = [str(v) for v in side.values]
        return base | {"type": "ordinal", "sort": order, "axis": angle | {"labelOverlap": False, "grid": True},
                       "scale": {"type": "point", "padding": 0.3, "domain": order}}  # fmt: skip
    low, high = float(min(side.values)), float(max(side.values))
    if side.log:
        at = side.values if len(set(side.values)) <= MOST_TICKS else round_ticks(low, high)
        seen = thinned([v for v in at if low <= v <= high], pixels)
        return base | {"type": "quantitative", "axis": {"values": seen, "labelExpr": NUMBER},
                       "scale": {"type": "log", "domain": [low, high], "nice": False, "padding": 8}}  # fmt: skip
    at = sorted(set(side.values))
    low = min(low, 0.0) if side.time else low
    axis: Spec = {"labelExpr": NUMBER, "tickCount": 8}
    if not side.time and len(at) <= MOST_TICKS:
        axis |= {"values": thinned(at, pixels, log=False)}
    elif all(float(v).is_integer() for v in at):
        axis |= {"tickMinStep": 1}  # no half GPUs
    scale = {"domain": [low, high], "nice": False, "zero": False, "padding": 0 if side.time else 8}
    return base | {"type": "quantitative", "axis": axis, "scale": scale}  # fmt: skip


def _end(curve: Curve, xs: Sequence[Any]) -> tuple[Any, Any, float] | None:
    """The last x that fits, the first that does not, and the curve's height at the last; None for a curve that does not
    end."""
    if curve.lost is None or not np.any(curve.lost):
        return None
    good = np.flatnonzero(np.isfinite(np.asarray(curve.y, float)))
    at = list(curve.x or xs)
    if not good.size or good[-1] + 1 >= len(at) or not curve.lost[good[-1] + 1]:
        return None
    return at[good[-1]], at[good[-1] + 1], float(curve.y[good[-1]])


def _lost(x: Side, curve: Curve, place: Spec, hue: Spec) -> list[Spec]:
    """A cross at the first size that does not fit, and the dots that lead to it from the last one that does."""
    found = _end(curve, x.values)
    if found is None:
        return []
    last, first, height = found
    ends = rows(x=_xs(x, (last, first)), y=[height, height], name=[curve.name] * 2)
    cross = {"type": "point", "shape": CROSS, "size": 80, "strokeWidth": 2, "filled": False, "opacity": 1}
    return [
        _layer({"type": "line", "strokeDash": [1, 4], "strokeWidth": 1.5}, ends, place, hue),
        _layer(cross, ends[1:], place, hue),
    ]


def _panel(
    x: Side,
    panel: Panel,
    domain: Spec,
    every: Sequence[Panel],
    size: tuple[int, int],
    first: bool,
    shared: bool = True,
    named: bool = True,
) -> Spec:
    """One panel as layers: bands, lines, markers, crosses."""
    colour = series(c.name for p in every for c in p.curves)
    place = {"x": x_of(x, size[0]), "y": {"field": "y", "type": "quantitative", **domain}}
    place["y"]["title"] = wrapped(panel.scale.label, size[1] - 10) if first else None
    if not named:
        place["x"] = place["x"] | {"title": None, "axis": place["x"]["axis"] | {"labels": False, "title": None}}
    names = [n for n in colour if shared or any(c.name == n for c in panel.curves)]
    pointed = not x.time and any(c.marked or len(c.x or x.values) <= MOST_MARKED for p in every for c in p.curves)
    legend: Any = None if len(names) < 2 else (POINTS if pointed else LEGEND)
    hue = {"field": "name", "type": "nominal", "legend": legend,
           "scale": {"domain": names, "range": [colour[n] for n in names]}}  # fmt: skip
    layers = _marks(x, panel.marks, place, size[0])
    layers += [layer for c in panel.curves for layer in _band(x, c, place, hue)]
    bare = {c.name for c in panel.curves if not c.marked} - {c.name for c in panel.curves if c.dots}
    for i, c in enumerate(panel.curves):
        hidden = sum(hides(c, other) for other in panel.curves[i + 1 :])
        layers += _layers(x, c, place, hue, names, hidden, bare)
    layers += [layer for c in panel.curves for layer in _lost(x, c, place, hue)]
    out: Spec = {"width": size[0], "height": size[1], "layer": layers}
    if panel.title:
        out["title"] = heading(panel.title, size[0])
    return out


def _marks(x: Side, marks: Sequence[tuple[float, str]], place: Spec, pixels: float) -> list[Spec]:
    """Named values of x: a line each, and its name along it at the top, where no other is too near."""
    low, high = place["x"]["scale"]["domain"][0], place["x"]["scale"]["domain"][-1]
    kept: list[tuple[float, str, float]] = []
    for value, name in sorted(marks):
        if low <= value <= high:
            share = math.log(value / low) / math.log(high / low) if x.log else (value - low) / (high - low)
            near = bool(kept) and share * pixels - kept[-1][2] < 2 * SIZE
            if not near and share * pixels < pixels - 2 * SIZE:
                kept.append((value, name, share * pixels))
    if not kept:
        return []
    data = {"values": rows(x=[k[0] for k in kept], text=[k[1] for k in kept])}
    rule = {"type": "rule", "color": "#AAAAAA", "strokeDash": [3, 3]}
    text = {"type": "text", "angle": 270, "align": "right", "baseline": "top", "dx": -4, "dy": 3, "fontSize": 10,
            "color": QUIET, "y": 0}  # fmt: skip
    return [{"data": data, "mark": rule, "encoding": {"x": place["x"]}},
            {"data": data, "mark": text, "encoding": {"x": place["x"], "text": {"field": "text"}}}]  # fmt: skip


def _xs(side: Side, values: Sequence[Any]) -> list[Any]:
    return [float(v) for v in values] if side.numeric else [str(v) for v in values]


def _layer(mark: Spec, values: list[Spec], place: Spec, hue: Spec, **more: Any) -> Spec:
    told = [{"field": "name", "title": "of"}, {"field": "x", "title": place["x"].get("title")}, {"field": "y"}]
    return {"data": {"values": values}, "mark": mark, "encoding": place | {"color": hue, "tooltip": told} | more}


def hides(a: Curve, b: Curve) -> bool:
    """Whether one curve would hide the other: their values differ by at most 3 %."""
    if a.dots or b.dots or a.x != b.x or np.shape(a.y) != np.shape(b.y):
        return False
    one, other = np.asarray(a.y, float), np.asarray(b.y, float)
    both = np.isfinite(one) & np.isfinite(other)
    return bool(both.any() and np.allclose(one[both], other[both], rtol=0.03, atol=0.0))


def _band(x: Side, curve: Curve, place: Spec, hue: Spec) -> list[Spec]:
    """A curve's error band, where it has one; it ends where the curve does."""
    if curve.low is None or curve.high is None:
        return []
    xs = _xs(x, curve.x or x.values)
    ends = np.array([curve.low, curve.high], float)
    gaps = np.cumsum(~np.isfinite(ends).all(axis=0))
    band = rows(x=xs, y=ends[0].tolist(), y2=ends[1].tolist(), name=[curve.name] * len(xs), piece=gaps.tolist())
    kept = [row for row in band if row["y"] is not None and row["y2"] is not None]
    more = {"y2": {"field": "y2"}, "detail": {"field": "piece"}}
    return [_layer({"type": "area", "opacity": 0.14, "line": False}, kept, place, hue, **more)]


def _layers(x: Side, curve: Curve, place: Spec, hue: Spec, names: list[str], hidden: int, bare: set[str]) -> list[Spec]:
    """A curve's line and markers; hidden: how many others lie on it, beneath which it is drawn wider; bare: names of
    curves without markers, of which the legend shows the line."""
    xs = _xs(x, curve.x or x.values)
    values = rows(x=xs, y=list(map(float, curve.y)), name=[curve.name] * len(xs))
    out = []
    if not curve.dots:
        line: Spec = {"type": "line", "strokeWidth": 2 + 4 * hidden if hidden or not x.time else 1.2, "clip": True}
        line |= {"interpolate": "step-after"} if curve.steps else {}
        line |= {"strokeDash": [5, 4]} if curve.dash else {}
        out.append(_layer(line, values, place, hue))
    if curve.dots or (curve.marked and not x.time):
        every = 1 if curve.dots or len(xs) <= MOST_MARKED else -(-len(xs) // SOME_MARKED)
        shown = [row for row in values if row["y"] is not None][::every]
        mark: Spec = {"type": "point", "filled": not curve.dots, "size": 60 if curve.dots else 34 + 76 * hidden}
        mark["opacity"] = 1
        shapes = ["stroke" if n in bare else SHAPES[i % len(SHAPES)] for i, n in enumerate(names)]
        shape = {**{k: hue[k] for k in ("field", "type", "legend")}, "scale": {"domain": names, "range": shapes}}
        out.append(_layer(mark, shown, place, hue, shape=shape))
    return out
