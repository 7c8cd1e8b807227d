"""Pictures of answers: which one, chosen from the shape of the answer.

One prediction: its breakdown (`parts`), `memory` or `roofline`. A grid: `lines` over one numeric axis, a `heatmap` over
two, stacked bars (`parts`, `shares`, `memory`) over names, the `pareto` front of throughput against speed for a user.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.asked.answers.said import LIKELY
from rooflm.asked.bounds import with_unit, written_unit
from rooflm.errors import RooflmError
from rooflm.plots.bars import Bar, bars
from rooflm.plots.front import Cloud
from rooflm.plots.front import front as draw_front
from rooflm.plots.lines import Curve, Panel, panels
from rooflm.plots.maps import WHY, Map
from rooflm.plots.maps import heatmap as draw_heatmap
from rooflm.plots.picture import Picture, check_picture
from rooflm.plots.point import POINTS, Estimate, largest
from rooflm.plots.scale import Array, Scale, Side, check_value, number, scale_of
from rooflm.shown.numbers import text
from rooflm.sweep.axes import Axis, shape_of
from rooflm.sweep.pareto import front

POINT_KINDS = tuple(POINTS)
GRID_KINDS = ("lines", "heatmap", "parts", "shares", "memory", "pareto")
MOST_PANELS, MOST_LINES, MOST_BARS = 9, 8, 40
NAMES = {
    "gpu": "GPU", "gpus": "GPUs", "tp": "tensor parallel degree", "pp": "pipeline parallel degree",
    "dp": "data parallel degree", "ep": "expert parallel degree", "cp": "context parallel degree",
    "batch": "batch (sequences)", "prompt": "prompt (tokens)", "output": "output (tokens)",
    "cached": "cached prompt (tokens)", "micro_batch": "micro-batch (sequences)", "seq": "sequence (tokens)",
    "vp": "virtual pipeline stages", "rate": "rate (requests/s)", "concurrency": "clients at a time",
}  # fmt: skip


def check_plot(path: str, kind: str | None, grid: bool) -> Path:
    """The target, if it can be written and the kind is known: asked before any work is done."""
    kinds = GRID_KINDS if grid else POINT_KINDS
    if kind is not None and kind not in kinds:
        what = "a grid" if grid else "one prediction"
        raise RooflmError(f"--plot-kind is {kind!r}, but of {what} it must be one of {', '.join(kinds)}")
    return check_picture(path)


def point_picture(estimate: Estimate, kind: str | None = None) -> Picture:
    """One prediction: its breakdown (parts, the default), its memory, or its operations under the roofline."""
    if kind is not None and kind not in POINT_KINDS:
        raise RooflmError(f"kind is {kind!r}, but of one prediction it must be one of {', '.join(POINT_KINDS)}")
    return POINTS[kind or "parts"](estimate)


def grid_picture(grid: Any, kind: str | None = None, value: str | None = None) -> Picture:
    """A grid (axes, arrays, fixed), its kind chosen from the axes unless given. value: the output to show (default:
    latency, or what the kind shows)."""
    axes: list[Axis] = list(grid.axes)
    if kind is not None and kind not in GRID_KINDS:
        raise RooflmError(f"kind is {kind!r}, but of a grid it must be one of {', '.join(GRID_KINDS)}")
    chosen = kind or kind_for(axes)
    if chosen == "pareto":
        return pareto(grid)
    if chosen in ("parts", "shares", "memory"):
        return grid_bars(grid, chosen, value)
    usual = next((k for k in ("latency_s", "tpot_s", "step_time_s") if k in grid.arrays), next(iter(grid.arrays)))
    shown = check_value(value or usual, grid.arrays)
    return heatmap(grid, shown) if chosen == "heatmap" else lines(grid, shown)


def kind_for(axes: Sequence[Axis]) -> str:
    """The kind of picture that suits a grid's axes.

    >>> kind_for([Axis("batch", (1, 2, 4)), Axis("output", (16, 32, 64))]), kind_for([Axis("gpu", ("a", "b"))])
    ('heatmap', 'parts')
    >>> kind_for([Axis("gpu", ("a", "b")), Axis("batch", (1, 2, 4)), Axis("output", (128, 512))])
    'lines'
    """
    numeric = [a for a in axes if not a.structural]
    if not numeric:
        return "parts"
    long = [a for a in numeric if len(a.values) > 2 and not a.partners]
    rest = int(np.prod([len(a.values) for a in axes if a not in long[:2]], initial=1))
    if len(long) >= 2:
        return "heatmap" if rest <= MOST_PANELS else "pareto"
    others = int(np.prod(sorted(shape_of(axes))[:-1], initial=1))
    return "lines" if others <= MOST_LINES * MOST_PANELS else "pareto"


def label(axis: Axis) -> str:
    """An axis' name for people, with the unit of its values."""
    unit = written_unit(axis.name)
    own = axis.name.removeprefix("cluster.").replace("_", " ") + (f" ({unit})" if unit else "")
    return " and ".join([NAMES.get(axis.name, own), *(NAMES.get(p.name, p.name) for p in axis.partners)])


NAMELESS = ("model", "gpu", "cluster", "engine", "quant", "schedule")
"""Axes whose values say themselves what they are."""
MOST_PARTNERS = 3
"""Zipped partners from which on only the value that tells the points apart is written."""
NEUTRAL = {"width_prune": 0, "depth_prune": 0, "width_scale": 1, "depth_scale": 1}
"""Changes to a model that change nothing at this value, which therefore need no word."""


def axis_text(axis: Axis, place: int) -> str:
    """A value of an axis as text: "batch 8", "h100-sxm-80gb", "width prune 0.27" or "original".

    >>> axis_text(Axis("model.width_prune", (0, 0.27), (Axis("model.depth_prune", (0, 0)),)), 1)
    'width prune 0.27'
    >>> axis_text(Axis("engine.fused", (False, True)), 0)
    'not fused'
    """
    telling = [m for m in axis.members if m.name in NAMELESS and len(set(m.values)) == len(m.values)]
    if telling and len(axis.partners) >= MOST_PARTNERS:
        return str(telling[0].values[place])
    texts = []
    for member in axis.members:
        value = member.values[place]
        short = member.name.rsplit(".", 1)[-1]
        if short in NEUTRAL and value == NEUTRAL[short]:
            continue
        short = short.replace("_", " ")
        plain = isinstance(value, str) and member.name in NAMELESS
        if isinstance(value, bool):
            texts.append(short if value else f"not {short}")
            continue
        told = value if isinstance(value, str) else number(value)
        if written_unit(member.name) and not isinstance(value, str):
            told = with_unit(member.name, value)
        texts.append(value if plain else f"{short} {told}")
    return ", ".join(texts) or "original"


def subject(grid: Any) -> str:
    """What the grid is about: model, GPU and the fixed sizes."""
    fixed = dict(grid.fixed)
    head = " on ".join(str(fixed.pop(k)) for k in ("model", "gpu") if isinstance(fixed.get(k), str))
    told = ("cluster", "gpus", "tp", "pp", "dp", "ep", "cp", "batch", "prompt", "output", "engine", "quant", "seq",
            "concurrency", "rate")  # fmt: skip
    sizes = [
        f"{k} {number(v) if isinstance(v, int | float) else v}"
        for k, v in fixed.items()
        if k in told and v not in (None, 1, "1")
    ]
    return ", ".join(t for t in (head, *sizes) if t)


def _masked(grid: Any, key: str) -> tuple[Array, Array]:
    """Values with NaN at points that cannot run, and the reason there (a word of `WHY`)."""
    shape = shape_of(grid.axes)
    values = np.broadcast_to(np.asarray(grid.arrays[key], dtype=float), shape)
    reason = np.broadcast_to(np.asarray(grid.arrays.get("reason", ""), dtype=object).astype(str), shape)
    fits = np.broadcast_to(np.asarray(grid.arrays.get("fits", reason == ""), dtype=bool), shape)
    lost = np.where((reason == "") | (np.char.find(reason, "memory") >= 0), "OOM", "n/a")
    why = np.where(fits, "", np.where(reason == "queue grows", "queue", lost))
    return np.where(fits, values, np.nan), why


def heatmap(grid: Any, key: str) -> Picture:
    """Two numeric axes as a map, a panel for each point of the others."""
    axes: list[Axis] = list(grid.axes)
    candidates = sorted((a for a in axes if not a.structural), key=lambda a: -len(a.values))
    candidates += [a for a in axes if a.structural]
    if len(axes) < 2:
        raise RooflmError("--plot-kind heatmap needs two axes: give two options a list, such as batch and output")
    pair = sorted(candidates[:2], key=axes.index)
    rest = [a for a in axes if a not in pair]
    others = [(p, ", ".join(axis_text(a, i) for a, i in zip(rest, p, strict=True)))
              for p in itertools.product(*(range(len(a.values)) for a in rest))]  # fmt: skip
    if len(others) > MOST_PANELS:
        raise RooflmError(
            f"a heat map has at most {MOST_PANELS} panels, but these axes make {len(others)}: fix some of them"
        )
    values, why = _masked(grid, key)
    order = [axes.index(a) for a in axes if a not in pair] + [axes.index(a) for a in pair]
    values, why = np.transpose(values, order), np.transpose(why, order)
    scale = scale_of(key, values, grid.outputs)
    y, x = pair
    maps = [Map(name, values[place] * scale.factor, why[place]) for place, name in others]
    sides = Side(label(x), x.values), Side(label(y), y.values)
    return draw_heatmap(scale.heading, *sides, scale, maps, subject(grid))


def lines(grid: Any, key: str) -> Picture:
    """One numeric axis as x, a line for each point of the others; two-valued numeric axes become panels, and where
    there would be too many, so many lines share one."""
    axes: list[Axis] = list(grid.axes)
    numeric = [a for a in axes if not a.structural] or axes
    x = max(numeric, key=lambda a: len(a.values))
    rest = [a for a in axes if a is not x]
    pages: list[Axis] = []
    while int(np.prod([len(a.values) for a in rest if a not in pages], initial=1)) > MOST_LINES or (
        not pages and len([a for a in rest if a not in pages]) > 1
    ):
        left = [a for a in rest if a not in pages]
        pages.append(min(left, key=lambda a: (a.structural, len(a.values))))
    count = int(np.prod([len(a.values) for a in pages], initial=1))
    drawn = [a for a in rest if a not in pages]
    crowded = count > MOST_PANELS
    if crowded and (drawn or count > MOST_PANELS * MOST_LINES):
        raise RooflmError(f"lines have at most {MOST_PANELS} panels, but these axes make {count}: fix some of them")
    made, scale = _curves(grid, key, x, *(([], pages) if crowded else (pages, drawn)))
    made = shared_out(made[0]) if crowded else made
    banded = any(c.low is not None for p in made for c in p.curves)
    notes = [f"shaded: error band ({LIKELY})"] * banded
    lost = {"OOM"} if any(c.lost is not None and c.lost[0] and not c.dash for p in made for c in p.curves) else set()
    lost |= {word for word in np.unique(_masked(grid, key)[1]) if word not in ("", "OOM")}
    notes += [f"no point: {WHY[word]}" for word in sorted(lost)]
    notes += ["dashed: none fits in memory; what it would be if it did"] * any(c.dash for p in made for c in p.curves)
    return panels(scale.heading, Side(label(x), x.values), made, subject(grid), notes)


def shared_out(whole: Panel) -> list[Panel]:
    """The curves of a panel on as few as hold them, about as many on each, named by the first and the last.

    >>> curves = tuple(Curve(str(i), np.ones(2)) for i in range(12))
    >>> [p.title for p in shared_out(Panel("", Scale("ms"), curves))]
    ['0 to 5', '6 to 11']
    """
    each = -(-len(whole.curves) // -(-len(whole.curves) // MOST_LINES))
    parts = [whole.curves[i : i + each] for i in range(0, len(whole.curves), each)]
    return [Panel(f"{p[0].name} to {p[-1].name}", whole.scale, p) for p in parts]


MOST_BANDS = 3
"""Most curves of a panel that show their error bands."""


def _curves(grid: Any, key: str, x: Axis, pages: list[Axis], drawn: list[Axis]) -> tuple[list[Panel], Scale]:
    """A panel for each point of the axes of `pages`, in it a curve for each of `drawn`, over x; where nothing fits in
    memory, of what would be if it did."""
    axes: list[Axis] = list(grid.axes)
    order = [axes.index(a) for a in (*pages, *drawn, x)]
    values, why = (np.transpose(v, order) for v in _masked(grid, key))
    none_fits = bool((why == "OOM").all())
    if none_fits:
        values = np.transpose(np.broadcast_to(np.asarray(grid.arrays[key], dtype=float), shape_of(axes)), order)
        why = np.full_like(why, "")
    scale = scale_of(key, values, grid.outputs)
    count = int(np.prod([len(a.values) for a in drawn], initial=1))
    ends = [f"error_band.{key}.{end}" for end in ("low", "high")]
    bands = [np.transpose(_masked(grid, k)[0], order) for k in ends if k in grid.arrays and count <= MOST_BANDS]
    made = []
    for place in itertools.product(*(range(len(a.values)) for a in pages)):
        name = ", ".join(axis_text(a, i) for a, i in zip(pages, place, strict=True))
        curves = []
        for spot in itertools.product(*(range(len(a.values)) for a in drawn)):
            at = (*place, *spot)
            low, high = (b[at] * scale.factor for b in bands) if bands else (None, None)
            own = ", ".join(axis_text(a, i) for a, i in zip(drawn, spot, strict=True))
            band = {"low": low, "high": high} if low is not None and np.isfinite(low).any() else {}
            curves.append(Curve(own, values[at] * scale.factor, lost=why[at] == "OOM", dash=none_fits, **band))
        made.append(Panel(name, scale, tuple(curves)))
    return made, scale


def grid_bars(grid: Any, kind: str, value: str | None) -> Picture:
    """Stacked bars, one a point: the request by part (or the parts of `value`, or `value` itself where it has none), as
    seconds or as shares of it (bars of one length, their sum beside the label), or memory with its capacity."""
    axes: list[Axis] = list(grid.axes)
    shape = shape_of(axes)
    total = int(np.prod(shape))
    if total > MOST_BARS:
        raise RooflmError(f"stacked bars show at most {MOST_BARS} points, but the grid has {total}: fix some axes")
    full = {k: np.broadcast_to(v, shape).reshape(-1) for k, v in grid.arrays.items()}
    known = [k.split(".")[0] for k in grid.arrays]
    usual = next((g for g in ("decode_parts_s", "prefill_parts_s", "parts_s") if g in known), "latency_s")
    group = "memory" if kind == "memory" else (value or usual)
    parts = {k.split(".", 1)[1]: np.nan_to_num(v.astype(float)) for k, v in full.items() if k.startswith(f"{group}.")}
    if not parts and kind == "parts" and full[check_value(group, grid.outputs)].dtype.kind in "fiu":
        parts = {grid.outputs[group].meaning: np.nan_to_num(full[group].astype(float))}
    if not parts:
        groups = dict.fromkeys(k.split(".")[0] for k in full if "." in k and not k.startswith("error_band."))
        raise RooflmError(f"--plot-value is {group!r}, but bars show {', '.join(groups)}")
    sums = np.asarray(sum(parts.values()))
    scale = scale_of(group, sums, grid.outputs)
    unit = grid.outputs[group].unit.removesuffix("1")
    marks = _masked(grid, "latency_s" if "latency_s" in grid.arrays else next(iter(grid.arrays)))[1].reshape(-1)
    none = np.full(total, np.nan)
    limits = full["memory_capacity_bytes"].astype(float) * scale.factor if kind == "memory" else none
    ends = [f"error_band.{BANDED.get(group, group)}.{end}" for end in ("low", "high")]
    low, high = (full[k].astype(float) * scale.factor if k in full and kind == "parts" else none for k in ends)
    factors = np.full(total, scale.factor)
    if kind == "shares":
        factors = 100 / np.where(sums > 0, sums, 1.0)
        scale = Scale(f"share of {scale.label.rsplit(' (', 1)[0]} (%)", percent=True)
    held = largest([{k: float(v[i] * factors[i]) for k, v in parts.items()} for i in range(total)])
    # values of one axis head groups of bars: of several the model, else the first named one, else the first
    outer = min(axes, key=lambda a: (a.name != "model", not a.structural)) if len(axes) > 1 else None
    made = []
    for i, place in enumerate(np.ndindex(*shape)):
        told = {a.name: axis_text(a, p) for a, p in zip(axes, place, strict=True)}
        head = told.pop(outer.name) if outer else ""
        own = held[i] if sums[i] > 0 else {}  # a point that breaks a rule has no parts
        sum_ = [text(float(sums[i]), unit)] if own and kind == "shares" else []
        band = (float(low[i]), float(high[i]))
        made.append(Bar(", ".join([*told.values(), *sum_]), own, head, float(limits[i]), str(marks[i]), *band))
    title = "Memory of the fullest GPU by part" if kind == "memory" else scale.heading
    notes = [f"{word}: {WHY[word]}" for word in np.unique(marks) if word not in ("", "OOM")]
    return bars(title, scale, made, subject(grid), "usable memory", notes)


BANDED = {"prefill_parts_s": "ttft_s", "decode_parts_s": "tpot_s", "parts_s": "step_time_s"}
"""Group of parts -> the output that they sum to, whose error band goes with them."""


def pareto(grid: Any) -> Picture:
    """Throughput per GPU against tokens a second for a user, over legal points; a front for each structural point."""
    axes: list[Axis] = list(grid.axes)
    if "step_time_s" in grid.outputs:
        raise RooflmError("a Pareto front is of inference: draw training as lines, heatmap, parts or memory")
    for need in ("tpot_s", "output_tokens_per_s_per_gpu"):
        check_value(need, grid.arrays)
    speed, why = _masked(grid, "tpot_s")
    rate, _ = _masked(grid, "output_tokens_per_s_per_gpu")
    named = [a for a in axes if a.structural]
    moved = [axes.index(a) for a in named] + [i for i, a in enumerate(axes) if not a.structural]
    user, gpu, ok = (np.transpose(v, moved) for v in (1 / speed, rate, why == ""))
    clouds = []
    numeric = [a for a in axes if not a.structural]
    for place in itertools.product(*(range(len(a.values)) for a in named)):
        keep = ok[place].reshape(-1)
        x, y = user[place].reshape(-1)[keep], gpu[place].reshape(-1)[keep]
        spots = np.flatnonzero(keep)
        best = front(x, y)
        marks = [
            ", ".join(
                axis_text(a, i) for a, i in zip(numeric, np.unravel_index(spots[b], shape_of(numeric)), strict=True)
            )
            for b in best
        ]
        name = ", ".join(axis_text(a, i) for a, i in zip(named, place, strict=True)) or "Pareto front"
        clouds.append(Cloud(name, x, y, np.asarray(best, dtype=int), tuple(marks)))
    clouds = [c for c in clouds if len(c.x)]
    if not clouds:
        raise RooflmError("no point of the grid can run, so there is no Pareto front: see `reason` with --json")
    sides = Scale("output tokens/s for one user"), Scale("output tokens/s per GPU")
    return draw_front("Throughput against speed", *sides, clouds, subject(grid))
