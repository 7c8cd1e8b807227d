"""Where the drawing back end puts the words of a picture: its own layout, as boxes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import vl_convert

from rooflm.plots.picture import Picture, text_width

ASCENT = 0.8
"""Share of its size that a letter reaches above its line."""


class Box(NamedTuple):
    """A text: its corners in pixels of the canvas, in order around it, and what it says."""

    corners: tuple[tuple[float, float], ...]
    text: str


def scene(picture: Picture) -> Any:
    """The scene graph: width, height, origin, and groups of marks."""
    return _scene(json.dumps(picture.spec))


@cache
def _scene(spec: str) -> Any:
    return vl_convert.vegalite_to_scenegraph(spec)


def boxes(picture: Picture) -> list[Box]:
    """Every text that is seen."""
    graph = scene(picture)
    left, top = graph["origin"]
    return list(_walk(graph["scenegraph"], left, top))


def _walk(mark: Any, left: float, top: float) -> Iterator[Box]:
    kind = mark.get("marktype")
    for item in mark.get("items", ()):
        if kind == "text":
            yield from _text(item, left, top)
        elif kind == "group":
            for inner in item.get("items", ()):
                yield from _walk(inner, left + item.get("x", 0.0), top + item.get("y", 0.0))


def _text(item: Any, left: float, top: float) -> Iterator[Box]:
    said = item.get("text", "")
    lines = [str(v) for v in said] if isinstance(said, list) else [str(said)]
    if not any(lines) or item.get("opacity", 1) == 0:
        return
    size = item.get("fontSize", 11)
    wide = max(0.93 * text_width(line, size) for line in lines)
    tall = size + (len(lines) - 1) * item.get("lineHeight", size + 2)
    x0 = {"left": 0.0, "center": -wide / 2, "right": -wide}[item.get("align", "left")]
    y0 = {"alphabetic": -ASCENT * size, "top": 0.0, "middle": -size / 2, "bottom": -size, "line-top": 0.0,
          "line-bottom": -size}[item.get("baseline", "alphabetic")]  # fmt: skip
    x0, y0 = x0 + item.get("dx", 0.0), y0 + item.get("dy", 0.0)
    turn = math.radians(item.get("angle", 0.0))
    at = left + item.get("x", 0.0), top + item.get("y", 0.0)
    around = ((x0, y0), (x0 + wide, y0), (x0 + wide, y0 + tall), (x0, y0 + tall))
    cos, sin = math.cos(turn), math.sin(turn)
    yield Box(tuple((at[0] + x * cos - y * sin, at[1] + x * sin + y * cos) for x, y in around), " ".join(lines))


def overlap(a: Box, b: Box, slack: float = 1.0) -> bool:
    """Whether two boxes, turned or not, share more than `slack` pixels (separating axes)."""
    for box in (a, b):
        (x0, y0), (x1, y1) = box.corners[0], box.corners[1]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        for across in (((x1 - x0) / length, (y1 - y0) / length), (-(y1 - y0) / length, (x1 - x0) / length)):
            one, other = ([x * across[0] + y * across[1] for x, y in c.corners] for c in (a, b))
            if max(one) <= min(other) + slack or max(other) <= min(one) + slack:
                return False
    return True


def clashes(picture: Picture) -> list[str]:
    """What is wrong with the words of a picture: those that overlap, and those that leave the canvas."""
    graph, found = scene(picture), [(box, *ends(box)) for box in boxes(picture)]
    out = [
        f"{a.text!r} lies on {b.text!r}"
        for (a, left, top, right, bottom), (b, start, above, end, below) in combinations(found, 2)
        if left < end and start < right and top < below and above < bottom and overlap(a, b)
    ]
    for box, left, top, right, bottom in found:
        if left < -1 or top < -1 or right > graph["width"] + 1 or bottom > graph["height"] + 1:
            out.append(f"{box.text!r} leaves the canvas")
    return out


def ends(box: Box) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a box: those of two that do not meet are quicker to see than what is turned."""
    xs, ys = zip(*box.corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def fills(picture: Picture) -> dict[str, set[str]]:
    """Part -> the colours in which its segments are drawn."""
    out: dict[str, set[str]] = {}

    def look(mark: Any) -> None:
        for item in mark.get("items", ()):
            if mark.get("marktype") == "rect" and "description" in item and "part:" in item["description"]:
                part = item["description"].split("part:")[1].split(";")[0].strip()
                out.setdefault(part, set()).add(item["fill"].lower())
            for inner in item.get("items", ()):
                look(inner)

    look(scene(picture)["scenegraph"])
    return out
