"""Pictures of predictions (`estimate`, `grid`) and of figures of one's own (`draw` of bars or lines), as png, svg or
html by the ending of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflm.plots.choose import draw, plot_grid
from rooflm.plots.choose import plot_estimate as estimate
from rooflm.plots.pictures import Bars, Lines, Scale, Series, Side
from rooflm.sweep.grid import grid_of

if TYPE_CHECKING:
    import xarray

__all__ = ["Bars", "Lines", "Scale", "Series", "Side", "draw", "estimate", "grid"]


def grid(data: xarray.Dataset, path: str, kind: str | None = None, value: str | None = None) -> None:
    """Draw a grid of `infer` or `train`. kind: lines, heatmap, parts, memory or pareto (default: what suits its axes);
    value: the output to show. RooflmError for a file or kind that cannot be drawn."""
    plot_grid(grid_of(data), path, kind, value)
