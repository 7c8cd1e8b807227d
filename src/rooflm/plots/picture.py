"""A picture: a Vega-Lite specification that is written as png, svg, a page or json, and shows itself in a notebook.

Specifications are plain data and need no library; drawing them needs vl-convert and `Picture.chart` altair, both of the
extra `rooflm[plot]`.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.sweep.files import check_target, write_whole

Spec = dict[str, Any]
FORMATS = ("png", "svg", "html", "json")
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
INSTALL = "pip install 'rooflm[plot]'"
INK, QUIET, GRID = "#222222", "#666666", "#E6E6E6"
SIZE = 11
"""Pixels: height of labels and titles of axes."""
PANEL = 13
"""Pixels: height of a panel's own heading."""

THEME: Spec = {
    "background": "white",
    "font": "Liberation Sans, Arial, Helvetica, DejaVu Sans, sans-serif",
    "padding": 12,
    "view": {"stroke": "#C4C4C4"},
    "axis": {"labelFontSize": SIZE, "titleFontSize": SIZE, "titleFontWeight": "normal", "labelColor": INK,
             "titleColor": INK, "gridColor": GRID, "domainColor": "#888888", "tickColor": "#888888", "labelLimit": 400,
             "titleLimit": 900, "labelOverlap": True, "labelSeparation": 6, "titlePadding": 8},
    "legend": {"labelFontSize": SIZE, "titleFontSize": SIZE, "titleFontWeight": "normal", "labelColor": INK,
               "titleColor": QUIET, "labelLimit": 320, "titleLimit": 320, "symbolSize": 90, "offset": 14},
    "header": {"labelFontSize": PANEL, "labelFontWeight": "bold", "labelColor": INK},
    "title": {"fontSize": 15, "subtitleFontSize": SIZE, "subtitleColor": QUIET, "color": INK, "anchor": "start",
              "subtitlePadding": 5, "offset": 14, "limit": 1600, "frame": "bounds"},
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A picture as a Vega-Lite specification (`spec`), its numbers included.

    It shows itself in a notebook; `save` writes a file, `chart` gives the Altair chart to change.
    """

    spec: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The heading as one line."""
        text = self.spec.get("title", {}).get("text", "")
        return text if isinstance(text, str) else " ".join(text)

    def to_dict(self) -> Spec:
        """The specification, for whatever draws Vega-Lite."""
        return dict(self.spec)

    def save(self, path: str | Path) -> None:
        """Write a .png, .svg, .html (one page that needs no network) or .json (the specification), whole or not at all.

        RooflmError where it cannot be written or the extra is missing."""
        target = check_target(str(path), FORMATS, "--plot")
        kind = target.suffix.lower()
        data = WRITERS[kind](self)
        write_whole(target, lambda name: _put(name, data))

    def chart(self) -> Any:
        """The picture as an Altair chart. RooflmError when the extra is missing."""
        try:
            import altair
        except ImportError as error:
            raise RooflmError(f"an Altair chart needs altair: {INSTALL}") from error
        data: dict[str, list[Spec]] = {}
        made = altair.Chart.from_dict(_apart(self.spec, data))  # which looks at every row, were they inside
        made["datasets"] = data
        return made

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What a notebook shows: the interactive figure where it can draw one, and the same as svg."""
        shown: dict[str, Any] = {"application/vnd.vegalite.v6+json": dict(self.spec), "text/plain": repr(self)}
        try:
            return shown | {"image/svg+xml": vl_convert().vegalite_to_svg(dict(self.spec))}
        except RooflmError:
            return shown

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"


def _apart(part: Any, data: dict[str, list[Spec]]) -> Any:
    """A part of a specification with its rows in `data`, by name."""
    if isinstance(part, list):
        return [_apart(v, data) for v in part]
    if not isinstance(part, Mapping):
        return part
    if part.keys() == {"values"} and isinstance(part["values"], list):
        name = f"rows-{len(data) + 1}"
        data[name] = part["values"]
        return {"name": name}
    return {k: _apart(v, data) for k, v in part.items()}


def vl_convert() -> Any:
    """The vl-convert module; RooflmError if it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise RooflmError(f"a picture needs vl-convert-python, which is not installed: {INSTALL}") from error
    return vl_convert


def check_picture(path: str) -> Path:
    """The target, if a picture can be written there: asked before any work is done."""
    target = check_target(path, FORMATS, "--plot")
    if target.suffix.lower() != ".json":
        vl_convert()
    return target


def _page(picture: Picture) -> bytes:
    """One page that holds the picture and all that draws it."""
    page = vl_convert().vegalite_to_html(escaped(dict(picture.spec)), bundle=True)
    head = f"<head><title>{escape(picture.title)}</title>"
    return str(page).replace("<head>", head, 1).encode()


def escaped(value: Any) -> Any:
    """A specification whose text cannot end the script element that holds it in a page.

    >>> escaped({"text": ["a</script>", 1]})
    {'text': ['a‹/script>', 1]}
    """
    if isinstance(value, dict):
        return {escaped(k): escaped(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [escaped(v) for v in value]
    return re.sub(r"(?i)<(?=/|!--|script)", "‹", value) if isinstance(value, str) else value


WRITERS: dict[str, Any] = {
    ".png": lambda p: vl_convert().vegalite_to_png(dict(p.spec), scale=2),
    ".svg": lambda p: vl_convert().vegalite_to_svg(dict(p.spec)).encode(),
    ".html": _page,
    ".json": lambda p: json.dumps(p.spec, indent=1).encode() + b"\n",
}


def _put(name: str, data: bytes) -> None:
    Path(name).write_bytes(data)


def with_heading(
    body: Spec, title: str, subtitle: str = "", width: float = 640.0, notes: Iterable[str] = ()
) -> Picture:
    """A picture with title, subtitle and notes in the project's style.

    width: pixels of the body, to which the heading is wrapped.
    """
    below = [line for text in (subtitle, "; ".join(notes)) if text for line in wrapped(text, width, SIZE)]
    head: Spec = {"text": wrapped(title, width, 15)}
    if below:
        head["subtitle"] = below
    return Picture({"$schema": SCHEMA, "title": head, **body, "config": THEME})


def text_width(text: str, size: float = SIZE) -> float:
    """Estimated width of a text in pixels, on the safe side (Helvetica's widths by class of letter).

    >>> text_width("ill", 10) < text_width("MWM", 10)
    True
    """
    narrow, wide = "iljftrI.,:;|!'()[]/ -", "mwMW%@"
    return sum(0.36 if c in narrow else 0.9 if c in wide else 0.69 if c.isupper() else 0.58 for c in text) * size


def wrapped(text: str, pixels: float, size: float = SIZE) -> list[str]:
    """A text as lines that are at most so many pixels wide."""
    mean = text_width(text, size) / max(len(text), 1)
    return textwrap.wrap(
        text, max(int(pixels / max(mean, 1e-9)), 12), break_long_words=False, break_on_hyphens=False
    ) or [""]


def json_number(value: Any) -> float | None:
    """A number that JSON holds; None for not-a-number and infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def rows(**columns: Sequence[Any]) -> list[Spec]:
    """Columns of equal length as records, numbers as JSON holds them."""
    return [
        {k: json_number(v) if isinstance(v, float | np.floating | np.integer) else v for k, v in zip(columns, values,
                                                                                                    strict=True)}
        for values in zip(*columns.values(), strict=True)
    ]  # fmt: skip


def heading(text: str, width: float) -> Spec:
    """The heading of a panel so many pixels wide."""
    return {"text": wrapped(text, 0.95 * width, PANEL), "fontSize": PANEL, "anchor": "middle", "offset": 6,
            "frame": "group"}  # fmt: skip


def in_rows(panels: Sequence[Spec], across: int) -> Spec:
    """Panels side by side, `across` per row; a single one as it is, without a heading."""
    if len(panels) == 1 and "title" not in panels[0]:
        return dict(panels[0])
    return {"concat": list(panels), "columns": across, "spacing": 26}


def across_of(count: int) -> int:
    """Panels in a row: at most three; four as two by two."""
    return min(count, 2 if count == 4 else 3)
