"""A figure of predicted over measured times, one colour a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.measure.gap import Point
from rooflm.plots.pictures import OKABE_ITO
from rooflm.sweep.files import write_whole

FORMATS = ("png", "svg", "pdf")
PANELS = {"seconds": ("ttft_s", "tpot_s", "step_time_s"), "bytes of memory": ("memory_bytes",),
          "bytes sent": ("prefill_comm_bytes", "decode_comm_bytes", "step_comm_bytes")}  # fmt: skip


def draw(pairs: Sequence[Point], path: str) -> None:
    """Write the figure: one panel a unit, logarithmic axes, lines at 1 and +-15 %."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = {unit: [p for p in pairs if p.metric in m and p.measured > 0] for unit, m in PANELS.items()}
    shown = {unit: found for unit, found in shown.items() if found}
    figure = Figure(figsize=(4.6 * len(shown), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(1, max(len(shown), 1), squeeze=False)[0]
    for axes, (unit, found) in zip(grid, shown.items(), strict=False):
        groups: dict[str, list[Point]] = {}
        for p in found:
            at = p.at
            groups.setdefault(f"{at['dtype']} {at['strategy']} {at['optimisation']}".replace(" none", ""), []).append(p)
        for number, (name, mine) in enumerate(groups.items()):
            xy = np.array([(p.measured, p.predicted) for p in mine])
            axes.scatter(*xy.T, s=12, color=OKABE_ITO[number % len(OKABE_ITO)], alpha=0.7, label=name, linewidths=0)
        ends = np.array([min(p.measured for p in found), max(p.measured for p in found)])
        for factor, style in ((1.0, "-"), (0.85, ":"), (1.15, ":")):
            axes.plot(ends, ends * factor, style, color="0.4", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}")
        axes.legend(fontsize=6, markerscale=1.5, frameon=False)
    write_whole(Path(path), lambda target: figure.savefig(target, format=Path(path).suffix[1:], dpi=150))
