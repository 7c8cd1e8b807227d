"""An evaluated grid of predictions: all outputs over its axes, with labels, units and long names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflm.asked.answers.outputs import INFER_OUTPUTS, TRAIN_OUTPUTS, Outputs
from rooflm.errors import RooflmError
from rooflm.shown.answer import unflatten
from rooflm.shown.version import __version__
from rooflm.sweep.axes import Axis, Point, column_name

if TYPE_CHECKING:
    import xarray


CELLS = 20_000_000
"""Most values that are spelled out one by one, in text, JSON and tables."""


def refuse_too_large(points: int, outputs: int, where: str) -> None:
    """RooflmError if a grid is too large to be printed or held. outputs: number per point; where: in what.

    >>> refuse_too_large(10**6, 100, "JSON")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: a grid of 1,000,000 points with 100 outputs is too large for JSON: name the outputs ...
    """
    if points * outputs > CELLS:
        raise RooflmError(
            f"a grid of {points:,} points with {outputs} outputs is too large for {where}: name the outputs that you "
            "need (--outputs tpot_s,fits), or write it to a file (--out FILE.parquet)"
        )


class Grid(NamedTuple):
    """An evaluated grid: its axes, the fixed arguments, and every output over the axes by dotted name.

    outputs: meaning and unit of each; asked: requested outputs (none: all); assumed, warnings: of its points, if
    requested.
    """

    axes: list[Axis]
    fixed: Point
    arrays: dict[str, np.ndarray[Any, Any]]
    outputs: Outputs = INFER_OUTPUTS
    asked: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def dataset(self) -> xarray.Dataset:
        """The grid with labels, units, long names, and in its attributes the scenario and what is told of it."""
        scenario = ", ".join(f"{k}={v}" for k, v in self.fixed.items() if v is not None)
        said = {k: "; ".join(v) for k, v in (("assumed", self.assumed), ("warnings", self.warnings)) if v}
        return dataset(self.arrays, self.axes, self.outputs, {"rooflm": __version__, "scenario": scenario, **said})

    def values(self) -> dict[str, Any]:
        """The grid as nested names and arrays, the axes first, and what is told of it (the shape of --json)."""
        named = {"axes": {m.name: labels(m) for a in self.axes for m in a.members}, **unflatten(self.arrays)}
        return named | {k: list(v) for k, v in (("assumed", self.assumed), ("warnings", self.warnings)) if v}


def grid_of(data: xarray.Dataset) -> Grid:
    """The grid that a Dataset was made from (see `Grid.dataset`), its values as they are shown there."""
    axes = []
    for name in data.sizes:
        first, *others = sorted((c for c in data.coords if data[c].dims == (name,)), key=lambda c: c != name)
        columns = [Axis(str(c), tuple(data[c].values.tolist())) for c in (first, *others)]
        axes.append(columns[0]._replace(partners=tuple(columns[1:])))
    arrays = {str(k): v.values for k, v in data.transpose(*data.sizes).data_vars.items()}  # turned by whoever made it
    fixed = dict(pair.split("=", 1) for pair in data.attrs.get("scenario", "").split(", ") if "=" in pair)
    return Grid(axes, fixed, arrays, TRAIN_OUTPUTS if "step_time_s" in arrays else INFER_OUTPUTS)


def labels(axis: Axis) -> list[Any]:
    """The values of an axis as they are shown: rows of a catalogue by their names."""
    return [getattr(v, "name", v) for v in axis.values]


def texts(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of objects as one of texts; axes along which it is repeated stay a view of one value.

    >>> texts(np.broadcast_to(np.array([["dram"]], dtype=object), (2, 3))).strides
    (0, 0)
    """
    once = value[..., *(slice(0, 1) if stride == 0 else slice(None) for stride in value.strides)]
    return np.broadcast_to(once.astype(str), value.shape)


def dataset(
    arrays: Mapping[str, Any], axes: Sequence[Axis], outputs: Outputs, attributes: Mapping[str, Any]
) -> xarray.Dataset:
    """Arrays as an xarray.Dataset with units and long names.

    Zipped axes are coordinates along the dimension of the first of them.
    """
    import xarray

    names = [a.name for a in axes]
    data = {}
    for key, value in arrays.items():
        row = outputs.get(key.split(".")[0])
        told = {"long_name": row.meaning, "units": row.unit} if row else {"long_name": key, "units": ""}
        shown = texts(value) if value.dtype == object else value
        data[column_name(key, axes)] = (names, shown, told)
    coordinates = {m.name: (a.name, labels(m)) for a in axes for m in a.members}
    return xarray.Dataset(data, coords=coordinates, attrs=dict(attributes))
