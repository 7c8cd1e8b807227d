"""Heat maps: one value over two sizes, a panel for each card or variant; cells without a value say why in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rooflm.plots.picture import Picture, Spec, across_of, heading, in_rows, rows, text_width, with_heading, wrapped
from rooflm.plots.scale import DECADES, Array, Scale, Side, cell, even_ticks, percent_top, round_ticks, share_of
from rooflm.shown.palette import EMPTY

MOST_WRITTEN = 20 * 16
"""Most cells of a map that get their value written in them."""
BRIGHT = 0.55
"""Share of the colour range from which on black letters read better than white ones (viridis)."""
BAR = (72.0, 160.0)
"""Shortest and longest bar of colours: between them as high as a map, so that a map of two rows has no empty foot."""

TICK = 20.0
"""Pixels from a label of that bar to the next."""

WHY = {"OOM": "does not fit in memory", "n/a": "breaks a rule (`reason` says which)",
       "queue": "the queue grows without bound, so that the load cannot be served"}  # fmt: skip
"""What stands where there is no value -> what it means."""


@dataclass(frozen=True)
class Map:
    """One map: rows are y, columns x; `why` holds a word (OOM) for each cell without a value."""

    title: str
    cells: Array
    why: Array


def heatmap(
    title: str, x: Side, y: Side, scale: Scale, maps: Sequence[Map], subtitle: str = "", across: int = 0
) -> Picture:
    """Maps over the same two axes and on one range of colours (per cents from 0, to 100 where they come near; all of it
    where values span DECADES), so many in a row. Numbers rise from the bottom; names are listed from the top.

    >>> m = Map("a100", np.array([[1.0, np.nan]]), np.array([["", "OOM"]]))
    >>> heatmap("Time", Side("output", (16, 32)), Side("batch", (1,)), Scale("time (ms)"), [m]).title
    'Time'
    """
    real = np.concatenate([m.cells[np.isfinite(m.cells)].reshape(-1) for m in maps] or [np.zeros(0)])
    low, high = float(real.min(initial=np.inf)), float(real.max(initial=-np.inf))
    log = low > 0 and high >= DECADES * low
    if scale.percent:
        low, high = low if log else 0.0, percent_top(high)
    if high <= low:
        low, high = (0.99 * low, high + 1e-12) if real.size else (0.0, 1.0)
    across = across or across_of(len(maps))
    words = [_word(m, scale, r, c) for m in maps for r, c in np.ndindex(m.cells.shape)]
    written = len(x.values) * len(y.values) <= MOST_WRITTEN
    wide = max(max(map(text_width, words), default=0.0) + 6 if written else 9.0, 330 / across / max(len(x.values), 1))
    size = (math.ceil(min(wide, 70.0)), 24.0 if written else 12.0)
    if across > 1:  # a title longer than its axis would lift the heading of the first panel alone
        longest = max(map(text_width, wrapped(y.label, size[1] * len(y.values))))
        size = (size[0], max(size[1], math.ceil(longest / len(y.values))))
    made = [_map(m, x, y, scale, (low, high), log, size, i % across == 0) for i, m in enumerate(maps)]
    notes = [f"{word}: {text}" for word, text in WHY.items() if any((m.why == word).any() for m in maps)]
    body = in_rows(made, across)
    if len(made) > 1:
        body["resolve"] = {"scale": {"color": "shared"}}
    return with_heading(body, title, subtitle, size[0] * len(x.values) * across + 160, notes)


def _word(m: Map, scale: Scale, row: int, column: int) -> str:
    value = float(m.cells[row, column])
    return cell(value, scale) if math.isfinite(value) else str(m.why[row, column])


def _map(
    m: Map, x: Side, y: Side, scale: Scale, ends: tuple[float, float], log: bool, size: tuple[float, float], first: bool
) -> Spec:
    """One map as layers: coloured cells, grey ones, and what is written in them. ends: of the range of colours."""
    at = list(np.ndindex(m.cells.shape))
    share = [float(share_of(m.cells[i], ends, log)) for i in at]
    values = rows(
        x=[x.ticks[c] for _, c in at], y=[y.ticks[r] for r, _ in at], value=[float(m.cells[i]) for i in at],
        text=[_word(m, scale, *i) for i in at], dark=[not math.isfinite(s) or s >= BRIGHT for s in share],
    )  # fmt: skip
    corner = max(map(text_width, x.ticks)) > size[0] - 4
    bare = {"ticks": False, "domain": False, "labelPadding": 5}
    turned = {"labelAngle": -90 if corner else 0, "labelOverlap": True, **bare}
    title = wrapped(y.label, size[1] * len(y.values)) if len(m.title) else [y.label]
    place = {
        "x": {"field": "x", "type": "ordinal", "sort": x.ticks, "title": x.label, "axis": turned},
        "y": {"field": "y", "type": "ordinal", "sort": y.ticks[::-1] if y.numeric else y.ticks,
              "title": (title if title[1:] else y.label) if first else None, "axis": bare},
    }  # fmt: skip
    range_: Spec = {"scheme": "viridis", "domain": list(ends)} | ({"type": "log"} if log else {})
    length = min(max(size[1] * len(y.values), BAR[0]), BAR[1])
    legend = {"title": _unit(scale), "gradientLength": length, "values": _ticks(ends, log, length),
              "labelOverlap": "greedy", "labelSeparation": 4,
              "format": ".3~s" if ends[1] >= 1e4 else ".4~g"}  # fmt: skip
    hue = {"field": "value", "type": "quantitative", "scale": range_, "legend": legend}
    told = [{"field": "y", "title": y.label}, {"field": "x", "title": x.label}, {"field": "text", "title": scale.label}]
    layers: list[Spec] = [
        {"transform": [{"filter": "datum.value === null"}], "mark": {"type": "rect", "color": EMPTY},
         "encoding": place | {"tooltip": told}},
        {"transform": [{"filter": "datum.value !== null"}], "mark": {"type": "rect"},
         "encoding": place | {"color": hue, "tooltip": told}},
    ][: 1 + bool(np.isfinite(m.cells).any())]  # fmt: skip
    if len(at) <= MOST_WRITTEN:
        ink = {"condition": {"test": "datum.dark", "value": "#111111"}, "value": "white"}
        layers.append({"mark": {"type": "text", "fontSize": 10.5}, "encoding": place | {"text": {"field": "text"},
                                                                                      "color": ink}})  # fmt: skip
    out: Spec = {"data": {"values": values}, "width": {"step": size[0]}, "height": {"step": size[1]}, "layer": layers}
    if m.title:
        out["title"] = heading(m.title, size[0] * len(x.values))
    return out


def _ticks(ends: tuple[float, float], log: bool, length: float) -> list[float]:
    """Round values along a bar of colours so many pixels long, none so near to the next that its label would be left
    out, and no fewer than two.

    >>> _ticks((0.0, 100.0), False, 72.0), _ticks((51.0, 149.0), False, 72.0)
    ([0.0, 50.0, 100.0], [51.0, 149.0])
    """
    found = round_ticks(*ends) if log else even_ticks(*ends, most=int(length // TICK))
    kept = [v for v in found if ends[0] <= v <= ends[1]]
    return kept if len(kept) > 1 else list(ends)


def _unit(scale: Scale) -> str:
    """The unit of a label, as the legend's title."""
    return scale.label.rsplit(" (", 1)[1].rstrip(")") if scale.label.endswith(")") else ""
