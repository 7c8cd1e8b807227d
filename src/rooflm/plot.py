"""Pictures of predictions (`estimate`, `grid`) and of figures of one's own (`draw` of bars or lines), as png, svg or
html by the ending of the file."""

from __future__ import annotations

from rooflm.plots.choose import draw
from rooflm.plots.choose import plot_estimate as estimate
from rooflm.plots.choose import plot_grid as grid
from rooflm.plots.pictures import Bars, Lines, Scale, Series, Side

__all__ = ["Bars", "Lines", "Scale", "Series", "Side", "draw", "estimate", "grid"]
