"""The roofline: operations as points of FLOP/s over FLOP a byte, under the bounds of their device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rooflm.plots.labels import Frame, along, place_labels, words
from rooflm.plots.picture import Picture, Spec, rows, with_heading
from rooflm.plots.scale import Array, grouped, round_ticks
from rooflm.shown.palette import SHAPES, series

WIDE, TALL = 560, 380
DASHES = ([1, 0], [7, 4], [2, 3], [9, 3, 2, 3])
NEAR = 0.06
"""Decades within which points are one spot with one label."""
LEAST = 0.01
"""Share of its phase's time from which on an operation is labelled."""


@dataclass(frozen=True)
class Roof:
    """One bound: performance over arithmetic intensity."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Ops:
    """Operations of one phase: FLOP a byte, FLOP/s, a name each, and their shares of the phase's time."""

    name: str
    x: Array
    y: Array
    labels: tuple[str, ...]
    share: Array


def roofline(title: str, roofs: Sequence[Roof], ops: Sequence[Ops], subtitle: str = "") -> Picture:
    """Operations under their roofs; the area of a point is its share of the time of its phase. Labels stand where they
    cover nothing, those of the operations that take longest first."""
    every = np.concatenate([o.x for o in ops])
    up = np.concatenate([o.y for o in ops])
    top = max(float(np.max(r.y)) for r in roofs)
    ends = tuple(np.concatenate([[min(float(every.min()) / 3, 1.0)], [max(float(every.max()) * 3, 1000.0)]]))
    frame = Frame(WIDE, TALL, (float(ends[0]), float(ends[1])), (float(up.min()) / 4, top * 4), True, True)
    place = {
        "x": {"field": "x", "type": "quantitative", "title": "arithmetic intensity (FLOP/B)",
              "axis": {"labelExpr": PLAIN, "values": _ticks(*frame.x)},
              "scale": {"type": "log", "domain": list(frame.x), "nice": False}},
        "y": {"field": "y", "type": "quantitative", "title": "performance (TFLOP/s)",
              "axis": {"labelExpr": TERA, "values": _ticks(*frame.y)},
              "scale": {"type": "log", "domain": list(frame.y), "nice": False}},
    }  # fmt: skip
    layers = [*_roofs(roofs, place), *_ops(ops, place), *_labels(frame, roofs, ops, place)]
    body: Spec = {"width": WIDE, "height": TALL, "layer": layers, "resolve": {"scale": {"strokeDash": "shared"}}}
    return with_heading(body, title, subtitle, WIDE + 160, ["area of a point: its share of the time of its phase"])


PLAIN, TERA = grouped("datum.value"), grouped("datum.value / 1e12")


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values; where there are fewer than two, twice and five times as much too.

    >>> _ticks(1.0, 200.0), _ticks(16.0, 400.0)
    ([1.0, 10.0, 100.0], [20.0, 50.0, 100.0, 200.0])
    """
    powers = [float(f"1e{p}") for p in range(-9, 19) if low <= 10.0**p <= high]
    return powers if len(powers) > 1 else [v for v in round_ticks(low, high) if low <= v <= high]


def _roofs(roofs: Sequence[Roof], place: Spec) -> list[Spec]:
    """The bounds as grey lines, told apart by their strokes."""
    names = [r.name for r in roofs]
    points = [(r.name, float(x), float(y)) for r in roofs for x, y in zip(r.x, r.y, strict=True)]
    values = rows(roof=[p[0] for p in points], x=[p[1] for p in points], y=[p[2] for p in points])
    legend = {"title": "roofs", "symbolStrokeColor": "#555555", "symbolSize": 700}
    dash = {"field": "roof", "type": "nominal", "legend": legend,
            "scale": {"domain": names, "range": [DASHES[i % len(DASHES)] for i in range(len(names))]}}  # fmt: skip
    mark = {"type": "line", "color": "#555555", "strokeWidth": 1.5, "clip": True}
    return [{"data": {"values": values}, "mark": mark, "encoding": place | {"strokeDash": dash}}]


def _ops(ops: Sequence[Ops], place: Spec) -> list[Spec]:
    """The operations, a colour and a marker each phase."""
    colour = series(o.name for o in ops)
    flat = [(o.name, float(x), float(y), label, float(s))
            for o in ops for x, y, label, s in zip(o.x, o.y, o.labels, o.share, strict=True)]  # fmt: skip
    values = rows(phase=[f[0] for f in flat], x=[f[1] for f in flat], y=[f[2] for f in flat], of=[f[3] for f in flat],
                  share=[f[4] for f in flat])  # fmt: skip
    names = list(colour)
    legend = {"title": "phase", "symbolSize": 70, "symbolOpacity": 1}
    encoding = place | {
        "color": {"field": "phase", "type": "nominal", "legend": legend,
                  "scale": {"domain": names, "range": list(colour.values())}},
        "shape": {"field": "phase", "type": "nominal", "legend": legend,
                  "scale": {"domain": names, "range": list(SHAPES[: len(names)])}},
        "size": {"field": "share", "type": "quantitative", "legend": None, "scale": {"domain": [0, 1],
                                                                                   "range": [25, 900]}},
        "tooltip": [{"field": "of"}, {"field": "phase"}, {"field": "share", "format": ".1%"},
                    {"field": "x", "title": "FLOP/B", "format": ".3~s"},
                    {"field": "y", "title": "FLOP/s", "format": ".3~s"}],
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "opacity": 0.85, "stroke": "white", "strokeWidth": 0.6}
    return [{"data": {"values": values}, "mark": mark, "encoding": encoding}]


def _radius(share: float) -> float:
    """Pixels that a point of a share takes from its middle."""
    return float(np.sqrt((25 + 875 * share) / np.pi)) + 1.5


def _labels(frame: Frame, roofs: Sequence[Roof], ops: Sequence[Ops], place: Spec) -> list[Spec]:
    """Names of the operations, one label for those that lie on one spot, the largest first."""
    spots: list[tuple[float, float, float, list[str]]] = []
    every = [(float(s), float(x), float(y), label) for o in ops
             for x, y, label, s in zip(o.x, o.y, o.labels, o.share, strict=True)]  # fmt: skip
    flat = sorted(every, key=lambda f: -f[0])
    for share, x, y, label in flat:
        if share < LEAST:
            continue
        near = next((p for p in spots if abs(np.log10(x / p[0])) < NEAR and abs(np.log10(y / p[1])) < NEAR), None)
        if near is None:
            spots.append((x, y, share, [label]))
        elif label not in near[3]:
            near[3].append(label)
    ring = np.array([(np.cos(a), np.sin(a)) for a in np.linspace(0, 2 * np.pi, 12, endpoint=False)])
    busy = [frame.at([x], [y])[0] + _radius(share) * np.concatenate([ring, [(0, 0)]]) for share, x, y, _ in flat]
    for roof in roofs:
        busy.append(along(frame, roof.x, roof.y))
    told = [(x, y, ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")) for x, y, _, names in spots]
    found = place_labels(frame, told, busy, [_radius(share) for _, _, share, _ in spots])
    return [words(told, [""] * len(told), found, place)] if found else []
