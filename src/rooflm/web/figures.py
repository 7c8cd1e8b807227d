"""Pictures of the page: those of `rooflm.plots`, as Vega-Lite specifications for the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rooflm.plots.bars import Bar, bars
from rooflm.plots.choose import heatmap
from rooflm.plots.front import Cloud
from rooflm.plots.front import front as draw_front
from rooflm.plots.lines import Curve, Panel, panels
from rooflm.plots.picture import Picture
from rooflm.plots.point import largest
from rooflm.plots.point import roofline as draw_roofline
from rooflm.plots.scale import DECADES, Scale, Side
from rooflm.sweep.grid import Grid, grid_of
from rooflm.web.blocks import Figure


def figure(picture: Picture, says: str) -> Figure:
    """A picture whose heading stands in the page instead, with what it shows in words."""
    spec = dict(picture.spec)
    spec.pop("title", None)
    return Figure(picture.title, spec, says)


def roofline(e: Any) -> list[Figure]:
    """Operations under the roofline."""
    says = (
        "Each dot is an operation, its size its share of the time. Dots below the slope wait for memory, dots below "
        "the flat roof for arithmetic; how far below a roof they lie is what overheads take."
    )
    return [figure(draw_roofline(e), says)]


def served(runs: Mapping[int, Mapping[str, Any]], ttft: float | None, tpot: float | None) -> list[Figure]:
    """Times over the number of clients, with the limits."""
    clients = sorted(runs)
    made = []
    for title, key, limit in (("First token", "ttft", ttft), ("Each further token", "tpot", tpot)):
        most = max(runs[c][f"{key}_p95"] for c in clients)
        factor, unit = (1.0, "s") if most >= 2 else (1e3, "ms")
        curves = [Curve(name, np.array([runs[c][f"{key}_{k}"] * factor for c in clients]))
                  for name, k in (("95 of 100 requests", "p95"), ("mean", "mean"))]  # fmt: skip
        if limit is not None:
            curves.append(Curve("limit", np.full(len(clients), limit * factor), dash=True, marked=False))
        values = np.concatenate([c.y for c in curves])
        log = bool(values.max() > DECADES * values.min())  # else the limit lies on the axis
        ends = (0.9 * values.min(), 1.1 * values.max()) if log else ()  # else the limit lies on the frame
        made.append(Panel(title, Scale(f"time ({unit})", log=log), tuple(curves), ends))
    picture = panels("Waits over the number of clients", Side("clients", tuple(clients)), made, shared=False)
    return [figure(picture, "Within limits as long as the line of 95 in 100 requests stays below that of the limit.")]


def front(found: Any) -> list[Figure]:
    """Speed a user against throughput a card, over answers that no other beats in both."""
    kept = [c for c in found.front if c.outputs["tpot_s"] > 0]
    if len(kept) < 2:
        return []
    groups: dict[str, list[Any]] = {}
    for c in kept:
        groups.setdefault(", ".join(str(c.inputs[k]) for k in ("gpu", "quant") if k in c.inputs) or "best", []).append(
            c
        )
    clouds = []
    for name, members in groups.items():
        members.sort(key=lambda c: c.outputs["tpot_s"])
        x = np.array([1 / c.outputs["tpot_s"] for c in members])
        y = np.array([c.outputs["output_tokens_per_s_per_gpu"] for c in members])
        telling = [k for k in ("tp", "pp", "dp", "ep", "batch", "concurrency")
                   if len({c.inputs.get(k, 1) for c in kept}) > 1]  # fmt: skip
        labels = tuple(", ".join(f"{k} {v}" for k in telling if (v := c.inputs.get(k, 1)) != 1 or k == "batch")
                       or "1 card" for c in members)  # fmt: skip
        clouds.append(Cloud(name, x, y, np.arange(len(members)), labels))
    sides = Scale("output tokens/s for one user"), Scale("output tokens/s per GPU")
    picture = draw_front("Speed for a user against output of a card", *sides, clouds)
    says = "Every point is a deployment that no other beats in both: right is quicker for a user, up is cheaper."
    return [figure(picture, says)]


def compared(names: Sequence[str], made: Sequence[tuple[str, dict[str, Any], Any]]) -> list[Figure]:
    """Where a request's time goes, a bar a scenario."""
    shares = largest([{k: float(v) for k, v in e.parts.items()} for *_, e in made])
    marks = ["" if e.fits else "OOM" for *_, e in made]
    shown = [Bar(name, part, mark=mark) for name, part, mark in zip(names, shares, marks, strict=True)]
    picture = bars("Where a request's time goes", Scale("time (s)"), shown)
    return [figure(picture, "From the first prompt token to the last output token.")]


def heat(grid: Any, key: str, name: str, sides: tuple[str, str]) -> list[Figure]:
    """The map. sides: the inputs from left to right and from bottom to top."""
    found = grid_of(grid)
    order = [[a.name for a in found.axes].index(name) for name in reversed(sides)]
    arrays = {k: np.transpose(v, order) for k, v in found.arrays.items()}
    turned = Grid([found.axes[i] for i in order], found.fixed, arrays, found.outputs)
    grey = "" if np.all(found.arrays["fits"] & np.isfinite(found.arrays[key])) else "; grey cells cannot run"
    return [figure(heatmap(turned, key), f"{name[:1].upper()}{name[1:]}{grey}.")]
