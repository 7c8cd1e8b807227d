"""Pictures: of predictions (`estimate`, `grid`) and of figures of one's own (`lines`, `panels`, `timeline`, `bars`,
`heatmap`, `front`, `ratios`, `roofline`), in one style and one palette.

Each is a `Picture`: it shows itself in a notebook, `.save(path)` writes png, svg, html or json by the ending,
`.to_dict()` is its Vega-Lite specification and `.chart()` its Altair chart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflm.plots.answers import load_picture, search_picture
from rooflm.plots.bars import Bar, bars
from rooflm.plots.choose import grid_picture, point_picture
from rooflm.plots.front import Cloud, front
from rooflm.plots.lines import Curve, Panel, lines, panels, timeline
from rooflm.plots.maps import Map, heatmap
from rooflm.plots.picture import Picture
from rooflm.plots.point import Estimate
from rooflm.plots.ratios import ratios
from rooflm.plots.roofline import Ops, Roof, roofline
from rooflm.plots.scale import Scale, Side
from rooflm.shown.palette import colours, series
from rooflm.sweep.grid import grid_of

if TYPE_CHECKING:
    import xarray

__all__ = ["Bar", "Cloud", "Curve", "Map", "Ops", "Panel", "Picture", "Roof", "Scale", "Side", "bars", "colours",
           "estimate", "front", "grid", "heatmap", "lines", "load", "panels", "ratios", "roofline", "search", "series",
           "timeline"]  # fmt: skip


def estimate(made: Estimate, path: str | None = None, kind: str | None = None) -> Picture:
    """One prediction: its time by part (parts, the default), its memory, or its operations under the roofline. path:
    write it there too. RooflmError for a file or kind that cannot be drawn."""
    return _written(point_picture(made, kind), path)


def grid(data: xarray.Dataset, path: str | None = None, kind: str | None = None, value: str | None = None) -> Picture:
    """A grid of `infer` or `train`. kind: lines, heatmap, parts, shares, memory or pareto (default: what suits its
    axes); value: the output to show; path: write it there too. RooflmError for a file or kind that cannot be drawn."""
    return _written(grid_picture(grid_of(data), kind, value), path)


def load(served: Any, path: str | None = None) -> Picture:
    """A simulated deployment of `serve`: requests and KV memory over time. path: write it there too."""
    return _written(load_picture(served), path)


def search(found: Any, path: str | None = None) -> Picture:
    """What `search_infer`, `search_serve` or `search_train` found: its trade-off, or the best steps. path: write it
    there too. RooflmError where nothing was found."""
    return _written(search_picture(found), path)


def _written(picture: Picture, path: str | None) -> Picture:
    if path is not None:
        picture.save(path)
    return picture
