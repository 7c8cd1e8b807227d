"""How does it change? A heat map of any output over any two inputs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

import rooflm
from rooflm.errors import RooflmError
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.shown.blocks import Fold, Table, folded
from rooflm.shown.numbers import count, percent, seconds
from rooflm.web.asked import Asked, FieldError
from rooflm.web.blocks import Answer
from rooflm.web.code import as_command, as_python
from rooflm.web.fields import BY_KEY, value_of
from rooflm.web.figures import heat
from rooflm.web.memo import memoised
from rooflm.web.tabs import fits
from rooflm.web.words import band

KEYS = (*fits.KEYS, "map.x", "map.xs", "map.y", "map.ys", "map.value")
SLIDERS = ()
MOST = 10_000
"""Most points of a map."""
MOST_SIDE = 100
"""Most values of a side: more cells than that cannot be seen."""
LESS = {"ttft_s", "tpot_s", "latency_s", "cost_usd_per_million_tokens", "memory_bytes", "energy_j_per_token"}
"""Outputs of which less is better."""
NAMES = {"output_tokens_per_s_per_gpu": "output tokens a second, a card",
         "output_tokens_per_s": "output tokens a second", "ttft_s": "time to the first token", "tpot_s": "time a token",
         "latency_s": "time of a request",
         "cost_usd_per_million_tokens": "USD a million tokens", "memory_bytes": "memory of the fullest card",
         "mfu": "MFU", "mbu": "use of bandwidth", "energy_j_per_token": "energy a token"}  # fmt: skip


def answer(asked: Asked) -> Answer:
    """The map, its best cell, and the numbers."""
    given = asked.single(asked.arguments("infer"))
    x, y, key = (asked.value(f"map.{k}") for k in ("x", "y", "value"))
    if x == y:
        raise FieldError("map.y", f"y is {y}, which already goes from left to right: choose another")
    sides = {y: side(asked, "map.ys", y), x: side(asked, "map.xs", x)}
    size = math.prod(map(len, sides.values()))
    if size > MOST:
        raise FieldError("map.xs", f"the map has {size:,} points, but the page works out at most {MOST:,}: leave out "
                         "values, or write a larger grid with `rooflm infer ... --out FILE.csv`")  # fmt: skip
    free = {k: v for k, v in given.items() if not ({"gpus", "tp", "pp"} & sides.keys() and k in SERVED_DEGREES)}
    shown = {**free, **sides}
    outputs = [key, "fits", "reason", "error_band"]
    grid = memoised(f"map?{asked.query()}", lambda: rooflm.infer(**shown, outputs=outputs)).transpose(y, x)
    values = np.asarray(grid[key].to_numpy(), float)
    able = np.asarray(grid["fits"].to_numpy(), bool) & np.isfinite(values)
    verdict, tone, sure = best_cell(grid, key, values, able, (x, y))
    left = int(able.size - able.sum())
    said = [
        f"{able.size:,} points, of which {left:,} cannot run." if left else f"{able.size:,} points; all can run.",
        *sure,
    ]
    flat = [{**dict(zip(grid[key].dims, map(plain, at), strict=True)), key: float(v), "fits": bool(ok)}
            for at, v, ok in cells(grid, key, values, able)]  # fmt: skip
    command = as_command("infer", shown, f"--outputs {key},fits --out map.csv")
    notes = folded(v for k in ("assumed", "warnings") for v in grid.attrs.get(k, "").split("; ") if v)
    return Answer(tone, verdict, said, [table(sides, values, able, key, (x, y)), notes],
                  partial(heat, grid, key, NAMES[key], (x, y)), as_python("infer", shown, "grid"), command,
                  lambda: {"points": flat}, flat)  # fmt: skip


def side(asked: Asked, key: str, name: str) -> list[Any]:
    """The values of a side, each checked as the field of that input is."""
    text = asked.value(key) or ""
    try:
        value = value_of(BY_KEY[name], text) if text else None
    except RooflmError as error:
        raise FieldError(key, str(error)) from None
    found = value if isinstance(value, list) else [] if value is None else [value]
    if len(found) < 2:
        raise FieldError(key, f"{name} is {text!r}, but a side of the map needs at least two values, such as 1..512*2")
    if len(found) > MOST_SIDE:
        raise FieldError(key, f"{name} has {len(found):,} values, but a side of the map shows at most {MOST_SIDE}")
    return found


def best_cell(grid: Any, key: str, values: Any, able: Any, sides: tuple[str, str]) -> tuple[str, str, list[str]]:
    """The best cell: verdict, tone, and the error band of its value where that has one."""
    if not able.any():
        return "Nothing on this map can run.", "bad", []
    ranked = np.where(able, values if key in LESS else -values, np.inf)
    place = np.unravel_index(int(np.argmin(ranked)), ranked.shape)
    at = dict(zip(grid[key].dims, place, strict=True))
    where = " and ".join(f"{k} {text(grid[k].to_numpy()[at[k]])}" for k in sides)
    best = "Least" if key in LESS else "Most"
    found = {end: float(grid[name].to_numpy()[place]) for end in ("low", "high", "rows")
             if (name := f"error_band.{key}.{end}") in grid}  # fmt: skip
    sure = [f"At that cell: {band(values[place], found)}."] if found else []
    return f"{best} {NAMES[key]}: {write(key, values[place])}, at {where}.", "good", sure


def write(key: str, value: Any) -> str:
    """A value of an output."""
    if "tokens_per_s" in key:
        return count(value)
    if key.endswith("_s"):
        return seconds(value)
    return percent(value) if key in ("mfu", "mbu") else f"{float(value) / 2**30:.3g} GiB" if "bytes" in key else (
        f"{float(value):.3g}")  # fmt: skip


def text(value: Any) -> str:
    """A value of a side."""
    return str(value) if isinstance(value, str) else count(value)


def plain(value: Any) -> Any:
    """A value of a side as JSON holds it, a model by its name."""
    return value.item() if hasattr(value, "item") else getattr(value, "name", value)


def cells(grid: Any, key: str, values: Any, able: Any) -> Any:
    """Sides, value and verdict of every cell."""
    sides = [grid[k].to_numpy() for k in grid[key].dims]
    for place in np.ndindex(values.shape):
        yield [s[i] for s, i in zip(sides, place, strict=True)], values[place], able[place]


def table(sides: dict[str, list[Any]], values: Any, able: Any, key: str, names: tuple[str, str]) -> Fold:
    """The map as a table, for who cannot see it."""
    x, y = names
    head = (f"{y} \\ {x}", *(text(plain(v)) for v in sides[x]))
    rows = [(text(plain(v)), *(write(key, values[j, i]) if able[j, i] else "cannot run"
                                      for i in range(values.shape[1]))) for j, v in enumerate(sides[y])]  # fmt: skip
    return Fold("The same as numbers", [Table([head, *rows], "l" + "r" * (len(head) - 1), head=True)])
