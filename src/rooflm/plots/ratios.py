"""Predictions over what was measured, by source and metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rooflm.plots.lines import NUMBER
from rooflm.plots.picture import INK, Picture, Spec, heading, in_rows, rows, text_width, with_heading
from rooflm.shown.palette import GOOD, PARTS

AXES = (
    ((0.4, 2.5), (0.5, 0.75, 1.0, 1.5, 2.0)),
    ((0.1, 10.0), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)),
    ((1e-3, 1e3), (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)),
)
"""Ends of the axis and its ticks: the first that nearly all ratios lie within; the others stand at its edge."""
INSIDE = 0.95
"""Share of the ratios that an axis holds."""
MOST_POINTS = 300
"""Most points of one source and metric that are drawn; an even choice of more."""
MOST_SOURCES = 30
"""Most sources of a metric that have a row each; those with the fewest runs share the last one."""


def ratios(found: Sequence[tuple[str, str, float]], subtitle: str = "", near: float = 0.25) -> Picture:
    """Predicted over measured, by metric (panels) and source (rows): one tick a run, a dot at the median.

    found: (source, metric, ratio). near: the shaded stretch around 1. Every panel shows a ratio, so that seconds,
    rates and bytes stand on one kind of axis.
    """  # fmt: skip
    cells: dict[str, dict[str, list[float]]] = {}
    for source, metric, ratio in found:
        if ratio > 0 and np.isfinite(ratio):
            cells.setdefault(metric, {}).setdefault(source, []).append(ratio)
    cells = {metric: gathered(values) for metric, values in cells.items()}
    across = min(len(cells), 2)
    wide = 420 if across == 1 else 230
    room = max((text_width(s) for c in cells.values() for s in c), default=0.0) + 8
    ranked = sorted(cells.items(), key=lambda kv: -len(kv[1]))
    every = np.array([r for c in cells.values() for v in c.values() for r in v])
    ends, ticks = next(
        (e, t) for e, t in AXES if e == AXES[-1][0] or np.mean((every >= e[0]) & (every <= e[1])) > INSIDE
    )
    made = []
    for i, (metric, values) in enumerate(ranked):
        x = {"field": "x", "type": "quantitative", "axis": {"values": list(ticks), "labelExpr": NUMBER},
             "title": "predicted over measured" if i >= len(ranked) - across else None,
             "scale": {"type": "log", "domain": list(ends), "nice": False}}  # fmt: skip
        made.append(_ratio(metric, values, near, (wide, room), x))
    notes = [f"shaded: within {100 * near:.0f} %", "one tick a run, dot: the median, line: four of five runs"]
    if np.any((every < ends[0]) | (every > ends[1])):
        notes.append(f"at the edge: beyond {ends[0]:g} or {ends[1]:g}")
    body = in_rows(made, across) | ({"spacing": {"row": 14, "column": 30}} if len(made) > 1 else {})
    return with_heading(body, "Predictions over measurements", subtitle, across * (wide + room + 20), notes)


def gathered(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Ratios by source, the one with the most runs first; so many of them that a page holds them, the rest together.

    >>> list(gathered({"a": [1.0], "b": [1.0, 1.1]})), list(gathered({f"s{i}": [1.0] for i in range(40)}))[-2:]
    (['b', 'a'], ['s35', '10 others'])
    """
    names = sorted(values, key=lambda s: (-len(values[s]), s))
    kept, rest = names[:MOST_SOURCES], names[MOST_SOURCES:]
    others = {f"{len(rest)} others": [v for s in rest for v in values[s]]} if rest else {}
    return {s: values[s] for s in kept} | others


def _ratio(metric: str, values: Mapping[str, Sequence[float]], near: float, size: tuple[float, float], x: Spec) -> Spec:
    """The panel of one metric: its sources in their order. size: pixels of the axis and of names."""
    low, high = x["scale"]["domain"]
    labels = {"ticks": False, "domain": False, "labelPadding": 8, "labelOverlap": False, "minExtent": size[1]}
    sources = list(values)
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
    return {"title": heading(metric, size[0]), "width": size[0], "height": {"step": 17}, "layer": layers}
