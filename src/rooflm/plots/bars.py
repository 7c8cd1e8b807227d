"""Bars: stacked by part, in groups, with the line of a limit, an error band and a word (OOM) where they need one.

They lie, so that a label of any length stands in one line, and a picture grows downwards with its bars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rooflm.asked.answers.said import LIKELY
from rooflm.plots.picture import INK, QUIET, Picture, Spec, rows, text_width, with_heading
from rooflm.plots.scale import Scale, cell, grouped, prefixed
from rooflm.shown.numbers import in_digits
from rooflm.shown.palette import LIMIT, colours

WIDTH, STEP = 470, 24
"""Pixels: length of the axis, and height of a bar with its gap."""
NAN = math.nan


@dataclass(frozen=True)
class Bar:
    """One bar: its parts (name -> value; a single part for a plain bar), its `label` and its `group`.

    limit: a line across it; mark: text at its end, such as OOM; low, high: error band of the total; end: text at its
    end in place of the total.
    """

    label: str
    parts: Mapping[str, float] = field(default_factory=dict)
    group: str = ""
    limit: float = NAN
    mark: str = ""
    low: float = NAN
    high: float = NAN
    end: str | None = None

    @property
    def total(self) -> float:
        """The sum of its parts."""
        return sum(v for v in self.parts.values() if math.isfinite(v))


def bars(
    title: str, scale: Scale, what: Sequence[Bar], subtitle: str = "", limit: str = "", notes: Sequence[str] = ()
) -> Picture:
    """Bars one below the other, those of a group under its name; `limit` says what the line of the limit is.

    A part has its colour of the palette and all bars stack in its order. Totals stand at the ends.

    >>> p = bars("Memory", Scale("GiB"), [Bar("a100", {"weights": 12.6, "kv_cache": 4.0}, limit=80.0)], limit="usable")
    >>> p.spec["title"]["subtitle"]
    ['black line: usable; number: the total']
    """
    colour = colours(p for b in what for p in b.parts)
    top = max([v for b in what for v in (b.total, b.limit, b.high) if math.isfinite(v)], default=1.0) or 1.0
    ends = [_end(b, scale) for b in what]
    room = max(map(text_width, ends), default=0.0) + 10
    domain: list[float] = [0, 100] if scale.percent and top <= 100.5 else [0, top * WIDTH / (WIDTH - room)]
    beyond = [_after(b, t, WIDTH / domain[1]) * WIDTH / domain[1] + 6 + text_width(t) - WIDTH
              for b, t in zip(what, ends, strict=True) if t]  # fmt: skip
    layers = [_parts(what, scale, colour, domain, max([0.0, *beyond])), *_limits(what), *_bands(what),
              *_ends(what, ends, WIDTH / domain[1])]  # fmt: skip
    told = list(notes)
    if limit and any(math.isfinite(b.limit) for b in what):
        told.append(f"black line: {limit}")
    if any(math.isfinite(b.low) for b in what):
        told.append(f"thin line: error band ({LIKELY})")
    if any(b.end is None and not scale.percent and len(b.parts) > 1 for b in what):
        told.append("number: the total")
    data = {"values": [row for layer in layers for row in layer.pop("data")["values"]]}
    body: Spec = {"width": WIDTH, "height": {"step": STEP}, "layer": layers}
    groups = list(dict.fromkeys(b.group for b in what))
    if groups != [""]:
        header = {"title": None, "labelOrient": "top", "labelAnchor": "start", "labelPadding": 4}
        facet = {"row": {"field": "group", "type": "nominal", "sort": groups, "header": header}}
        body = {"facet": facet, "spec": body, "spacing": 12, "resolve": {"scale": {"y": "independent"}}}
    labels = max(text_width(b.label) for b in what) if what else 0.0
    return with_heading({"data": data, **body}, title, subtitle, WIDTH + labels + 150, told)


def _end(bar: Bar, scale: Scale) -> str:
    """What stands at the end of a bar: three digits of its total."""
    plain = prefixed(bar.total) if abs(bar.total) >= 1e4 else in_digits(bar.total, 3)
    shown = cell(bar.total, scale) if scale.percent else plain
    total = "" if not bar.parts or (scale.percent and len(bar.parts) > 1) else shown
    told = total if bar.end is None else bar.end
    return f"{told}  {bar.mark}".strip() if bar.mark else told


def _place(what: Sequence[Bar]) -> Spec:
    """The y axis: the labels in their order."""
    order = list(dict.fromkeys(b.label for b in what))
    return {"field": "label", "type": "nominal", "sort": order, "title": None,
            "axis": {"labelPadding": 6, "ticks": False, "domain": False, "labelOverlap": False}}  # fmt: skip


def _only(kind: str) -> list[Spec]:
    return [{"filter": f"datum.kind === '{kind}'"}]


def _parts(
    what: Sequence[Bar], scale: Scale, colour: Mapping[str, str], domain: Sequence[float], beyond: float
) -> Spec:
    """The segments. beyond: pixels by which words at the ends leave the picture, where the legend gives way."""
    flat = [(b, p, b.parts[p], i) for b in what for i, p in enumerate(colour) if p in b.parts]
    shown = [p.replace("_", " ") for p in colour]
    values = rows(
        kind=["part"] * len(flat), label=[b.label for b, *_ in flat], group=[b.group for b, *_ in flat],
        part=[p.replace("_", " ") for _, p, *_ in flat], value=[float(v) for _, _, v, _ in flat],
        order=[i for *_, i in flat],
    )  # fmt: skip
    legend = {"title": None, "offset": 18 + math.ceil(beyond)} if len(shown) > 1 else None
    written = any(_end(b, scale) for b in what)  # numbers at the ends say more than lines that would cross them
    axis = {"tickCount": 6, "labelExpr": grouped("datum.value"), "grid": not written}
    return {
        "data": {"values": values},
        "transform": _only("part"),
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.8},
        "encoding": {
            "y": _place(what),
            "x": {"field": "value", "type": "quantitative", "title": scale.label, "axis": axis,
                  "scale": {"domain": domain, "nice": False}},
            "color": {"field": "part", "type": "nominal", "legend": legend,
                      "scale": {"domain": shown, "range": list(colour.values())}},
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [{"field": "label"}, {"field": "part"}, {"field": "value", "format": ".4~g"}],
        },
    }  # fmt: skip


def _limits(what: Sequence[Bar]) -> list[Spec]:
    """The lines of limits."""
    kept = [b for b in what if math.isfinite(b.limit)]
    if not kept:
        return []
    values = rows(kind=["limit"] * len(kept), label=[b.label for b in kept], group=[b.group for b in kept],
                  limit=[float(b.limit) for b in kept])  # fmt: skip
    mark = {"type": "tick", "color": LIMIT, "thickness": 2.5, "opacity": 1, "size": STEP - 2}
    return [{"data": {"values": values}, "transform": _only("limit"), "mark": mark,
             "encoding": {"y": _place(what), "x": {"field": "limit", "type": "quantitative"}}}]  # fmt: skip


def _bands(what: Sequence[Bar]) -> list[Spec]:
    """The error bands."""
    kept = [b for b in what if math.isfinite(b.low) and math.isfinite(b.high)]
    if not kept:
        return []
    values = rows(kind=["band"] * len(kept), label=[b.label for b in kept], group=[b.group for b in kept],
                  low=[float(b.low) for b in kept], high=[float(b.high) for b in kept])  # fmt: skip
    place = {"y": _place(what), "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    halo = {"type": "rule", "color": "white", "strokeWidth": 4, "opacity": 0.8}
    line = {"type": "rule", "color": INK, "strokeWidth": 1.5}
    base = {"data": {"values": values}, "transform": _only("band"), "encoding": place}
    return [base | {"mark": halo}, {**base, "data": {"values": []}, "mark": line}]


def _after(bar: Bar, text: str, pixels: float) -> float:
    """Where the word of a bar begins: at its end, or behind the line of its limit where that would cross the word."""
    end = max(v for v in (bar.total, bar.high) if math.isfinite(v))
    crossed = math.isfinite(bar.limit) and -3 <= (bar.limit - end) * pixels <= text_width(text) + 14
    return bar.limit if crossed else end


def _ends(what: Sequence[Bar], ends: Sequence[str], pixels: float) -> list[Spec]:
    """The words at the ends. pixels: of a unit of the axis."""
    kept = [(b, text) for b, text in zip(what, ends, strict=True) if text]
    if not kept:
        return []
    at = [_after(b, text, pixels) for b, text in kept]
    values = rows(kind=["end"] * len(kept), label=[b.label for b, _ in kept], group=[b.group for b, _ in kept],
                  at=at, text=[text for _, text in kept], bad=[bool(b.mark) for b, _ in kept])  # fmt: skip
    return [{
        "data": {"values": values},
        "transform": _only("end"),
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11},
        "encoding": {
            "y": _place(what), "x": {"field": "at", "type": "quantitative"}, "text": {"field": "text"},
            "color": {"condition": {"test": "datum.bad", "value": "#B00000"}, "value": QUIET},
        },
    }]  # fmt: skip
