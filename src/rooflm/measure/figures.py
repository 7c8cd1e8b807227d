"""Figures of measurements: the measured cells as a grid, drawn by the same code as predictions, OOM cells included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.measure.case import Case
from rooflm.measure.results import Row
from rooflm.sweep.axes import Axis
from rooflm.sweep.grid import Grid

NUMERIC = ("batch", "prompt", "output")


def strategy(of: Mapping[str, Any]) -> str:
    """The split of a case or a run by name. of: its fields or arguments.

    >>> strategy({"tp": 2, "pp": 1}), strategy(vars(Case()))
    ('tp2', 'none')
    """
    return "+".join(f"{n}{of[n]}" for n in ("tp", "pp", "dp", "ep", "cp") if (of.get(n) or 1) > 1) or "none"


def optimisation_of(case: Case) -> str:
    """The optimisations of a case by name.

    >>> optimisation_of(Case(dtype="bf16", quant="int8-wo"))
    'int8-wo'
    """
    names = [case.quant] * (case.quant != "none") + ["compile"] * case.compiled + ["graphs"] * case.graphs
    return "+".join(names + ["eager-attention"] * (case.attention != "sdpa")) or "none"


def coordinates(case: Case) -> dict[str, Any]:
    """What may vary from case to case, by axis name."""
    numbers: dict[str, Any] = {name: getattr(case, name) for name in NUMERIC}
    name = case.model.rstrip("/").rsplit("/", 1)[-1].removeprefix("gguf:")
    texts = {"model": name, "layers": str(case.layers), "dtype": case.dtype, "strategy": strategy(vars(case))}
    return numbers | texts | {"optimisation": optimisation_of(case)}


def as_grid(rows: Sequence[Row], task: str = "infer") -> Grid:
    """Medians over the axes that vary; a cell without a value says why (out of memory, failed, not measured).

    Bytes and memory are those of the rank with the most. Raises RooflmError when nothing of the task was measured.
    """
    mine = [r for r in rows if r.case.task == task]
    if not mine:
        raise RooflmError(f"there is nothing to draw: no case of task {task!r} was measured")
    points = {r.case: coordinates(r.case) for r in mine}
    axes: list[Axis] = []
    fixed: dict[str, Any] = {"gpu": "this machine (measured)"}
    for name in next(iter(points.values())):
        values = list(dict.fromkeys(p[name] for p in points.values()))
        if len(values) > 1:
            axes.append(Axis(name, tuple(sorted(values) if name in NUMERIC else values)))
        else:
            fixed[name] = values[0]
    if not axes:
        axes.append(Axis("batch", (fixed.pop("batch"),)))
    shape = tuple(len(a.values) for a in axes)
    arrays: dict[str, Any] = {"fits": np.zeros(shape, bool), "reason": np.full(shape, "not measured", dtype=object)}
    for r in mine:
        place = tuple(a.values.index(points[r.case][a.name]) for a in axes)
        if r.status != "ok":
            arrays["reason"][place] = "out of memory" if r.status == "oom" else "failed"
            continue
        arrays["fits"][place], arrays["reason"][place] = True, ""
        cells = arrays.setdefault(r.metric, np.full(shape, np.nan))
        cells[place] = np.fmax(cells[place], r.stat.value)
    return Grid(axes, fixed, arrays)
