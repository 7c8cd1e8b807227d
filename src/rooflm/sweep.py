"""A list given anywhere makes a labelled axis: arguments -> axes -> one array evaluation a structural point -> Dataset.

The rule, stated once: numbers (sizes, rates, degrees) broadcast inside one evaluation, one array dimension an axis;
names (models, GPUs, clusters, engines, quantisation schemes, efficiency modes, and other text) are structural: they
loop outside and are joined. A prediction is a sweep with no axes, and `sweep(...)[i] == predict(point i)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflm.errors import RooflmError

if TYPE_CHECKING:
    import xarray

Point = dict[str, Any]


class Axis(NamedTuple):
    """A named list of values; structural when they are names."""

    name: str
    values: tuple[Any, ...]

    @property
    def structural(self) -> bool:
        """True when the values are no numbers (or are numbers that choose a structure)."""
        return not all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in self.values)


def is_list(value: Any) -> bool:
    """True for what makes an axis: a list, tuple, range or one-dimensional array."""
    return isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray) and value.ndim == 1)


def find_axes(arguments: Mapping[str, Any]) -> tuple[list[Axis], Point]:
    """The axes among the arguments (those inside `sets` by their path), and the arguments that do not vary.

    Raises RooflmError for an empty list.

    >>> find_axes({"batch": [1, 8], "tp": 2})
    ([Axis(name='batch', values=(1, 8))], {'tp': 2})
    """
    axes: list[Axis] = []
    fixed: Point = {}
    flat = {k: v for k, v in arguments.items() if k != "sets"} | dict(arguments.get("sets") or {})
    for name, value in flat.items():
        if not is_list(value):
            fixed[name] = value
            continue
        values = tuple(v.item() if isinstance(v, np.generic) else v for v in value)
        if not values:
            raise RooflmError(f"{name} is an empty list: give at least one value")
        if len(set(map(str, values))) != len(values):
            raise RooflmError(f"{name} has a value twice: each value of an axis must differ")
        axes.append(Axis(name, values))
    return axes, fixed


def nest(point: Point) -> Point:
    """Arguments as the request builders take them: dotted names go into `sets`."""
    sets = {k: v for k, v in point.items() if "." in k}
    rest = {k: v for k, v in point.items() if "." not in k}
    return {**rest, "sets": sets} if sets else rest


def grids(axes: Iterable[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Structural and numeric axes, in the order given."""
    listed = list(axes)
    return [a for a in listed if a.structural], [a for a in listed if not a.structural]


def numeric_point(axes: list[Axis]) -> Point:
    """Each numeric axis as an array with one dimension an axis: length n in its own, 1 elsewhere.

    >>> {k: v.shape for k, v in numeric_point([Axis("batch", (1, 8, 64)), Axis("tp", (1, 2))]).items()}
    {'batch': (3, 1), 'tp': (1, 2)}
    """
    n = len(axes)
    return {
        a.name: np.array(a.values, dtype=float).reshape((1,) * i + (len(a.values),) + (1,) * (n - i - 1))
        for i, a in enumerate(axes)
    }


def run(
    evaluate: Callable[..., dict[str, Any]], axes: list[Axis], fixed: Point
) -> dict[str, np.ndarray[Any, Any]]:
    """Every output over the grid, axes in the order given.

    evaluate(axes=n, **arguments) -> name -> array that broadcasts over n numeric axes.
    """
    structural, numeric = grids(axes)
    inner = tuple(len(a.values) for a in numeric)
    outer = tuple(len(a.values) for a in structural)
    arrays = numeric_point(numeric)
    out: dict[str, np.ndarray[Any, Any]] = {}
    for place in itertools.product(*(range(n) for n in outer)):
        names = {a.name: a.values[i] for a, i in zip(structural, place, strict=True)}
        results = evaluate(axes=len(numeric), **nest({**fixed, **names, **arrays}))
        for name, value in results.items():
            data = np.asarray(value)
            if name not in out:
                kind = data.dtype if data.dtype.kind in "fb" else (float if data.dtype.kind in "iu" else object)
                empty: Any = np.nan if kind is not object and np.dtype(kind).kind == "f" else ("" if kind is object else False)
                out[name] = np.full(outer + inner, empty, dtype=kind)
            out[name][place] = np.broadcast_to(data, inner)
    order = [a.name for a in structural] + [a.name for a in numeric]
    moved = [order.index(a.name) for a in axes]
    return {k: np.transpose(v, moved) for k, v in out.items()}


def dataset(
    arrays: Mapping[str, Any], axes: list[Axis], described: Mapping[str, tuple[str, str]], attributes: Mapping[str, Any]
) -> xarray.Dataset:
    """Arrays as an xarray.Dataset with units and long names. described: name -> (meaning, unit)."""
    import xarray

    names = [a.name for a in axes]
    data = {}
    for key, value in arrays.items():
        meaning, unit = described.get(key.split(".")[0], (key, ""))
        data[key] = (names, value.astype(str) if value.dtype == object else value, {"long_name": meaning, "units": unit})
    coordinates = {a.name: list(a.values) for a in axes}
    return xarray.Dataset(data, coords=coordinates, attrs=dict(attributes))
