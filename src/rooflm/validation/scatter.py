"""A figure of predicted over measured values, one colour a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.sweep.files import write_whole
from rooflm.validation.score import Scored

FORMATS = ("png", "svg", "pdf")
UNITS = {"_s": "s", "ttft": "s", "tpot": "s", "memory_bytes": "bytes"}


def panel_of(metric: str) -> str:
    """Which panel a metric is drawn in: seconds, rates or bytes.

    >>> panel_of("latency_s"), panel_of("output_tokens_per_s"), panel_of("memory_bytes")
    ('seconds', 'tokens per second', 'bytes')
    """
    if metric == "memory_bytes":
        return "bytes"
    return "tokens per second" if "per_s" in metric else "seconds"


def draw(scored: Sequence[Scored], path: str) -> None:
    """Write the figure: one panel a unit, predicted over measured on logarithmic axes, with lines at 1 and +-25 %."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kept = [x for x in scored if not x.reason and x.request.metric != "oom" and x.predicted > 0]
    panels = sorted({panel_of(x.request.metric) for x in kept}, reverse=True) or ["seconds"]
    figure = Figure(figsize=(5.2 * len(panels), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(1, len(panels), squeeze=False)[0]
    sources = sorted({x.request.source for x in kept})
    for axes, unit in zip(grid, panels, strict=True):
        here = [x for x in kept if panel_of(x.request.metric) == unit]
        for number, source in enumerate(sources):
            points = [(x.request.measured, x.predicted) for x in here if x.request.source == source]
            if points:
                measured, predicted = np.array(points).T
                axes.scatter(measured, predicted, s=8, color=f"C{number % 10}", alpha=0.6, label=source, linewidths=0)
        axes.set(xscale="log", yscale="log", xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}")
        if here:
            ends = np.array([min(x.request.measured for x in here), max(x.request.measured for x in here)])
            for factor, style in ((1.0, "-"), (0.75, ":"), (1.25, ":")):
                axes.plot(ends, ends * factor, style, color="0.4", linewidth=0.8)
        axes.legend(fontsize=6, markerscale=2, frameon=False)
    write_whole(Path(path), lambda target: figure.savefig(target, format=Path(path).suffix[1:], dpi=150))


__all__ = ["draw", "panel_of"]
