"""Axes -> blocks -> one array evaluation a block -> every output over the grid -> labelled Dataset.

A prediction is a sweep with no axes, and `sweep(...)[i] == predict(point i)`. A block is one structural point (names)
times a part of the numeric axes, small enough for caches and memory. An output keeps its own broadcast shape: one that
does not depend on an axis is stored once and shown as a view.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.sweep.axes import Axis, Point, grids, nest, numeric_point, shape_of

BLOCK = 1 << 17
"""Points of a block, of which a decode step evaluates three contexts: its arrays stay near the caches, and interpreting
a block costs little beside its arithmetic."""

MEMORY = 3 * 2**30
"""Most bytes of a grid that is held in memory."""

LAST_SPLIT = ("output", "prompt", "cached")
"""Axes that part of the formulas does not depend on: splitting them would repeat that part, so others go first."""

Values = dict[str, NDArray[Any]]
Evaluate = Callable[..., Mapping[str, Any]]


class GridBlock(NamedTuple):
    """A part of a grid: its index in each structural axis, and its slice of each numeric axis."""

    place: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each numeric axis."""
        return tuple(end - first for first, end in self.slices)

    @property
    def points(self) -> int:
        """Points in all."""
        return math.prod(self.shape)


def blocks(axes: Sequence[Axis], most: int = BLOCK) -> list[GridBlock]:
    """The grid cut into blocks of at most about `most` points.

    >>> [b.slices for b in blocks([Axis("batch", tuple(range(6)))], most=4)]
    [((0, 3),), ((3, 6),)]
    """
    structural, numeric = grids(axes)
    lengths = list(shape_of(numeric))
    for axis in (a for a in axes if not a.values):
        raise RooflmError(f"{axis.name} is an empty list: give at least one value")
    pieces = [1] * len(numeric)
    order = sorted(range(len(numeric)), key=lambda i: (numeric[i].name in LAST_SPLIT, -lengths[i]))
    for i in order:
        over = math.prod(math.ceil(n / p) for n, p in zip(lengths, pieces, strict=True)) / most
        pieces[i] = min(max(math.ceil(over), 1), lengths[i])
    cuts = [[round(k * n / p) for k in range(p + 1)] for n, p in zip(lengths, pieces, strict=True)]
    parts = [list(itertools.pairwise(c)) for c in cuts]
    outer = (range(len(a.values)) for a in structural)
    return [GridBlock(place, slices) for place in itertools.product(*outer) for slices in itertools.product(*parts)]


def block_point(axes: Sequence[Axis], fixed: Point, block: GridBlock) -> tuple[int, Point]:
    """Number of array dimensions and the arguments of one block."""
    structural, numeric = grids(axes)
    names = {m.name: m.values[i] for a, i in zip(structural, block.place, strict=True) for m in a.members}
    cut = [_cut(a, *part) for a, part in zip(numeric, block.slices, strict=True)]
    return len(numeric), nest({**fixed, **names, **numeric_point(cut)})


def _cut(axis: Axis, first: int, end: int) -> Axis:
    return Axis(axis.name, axis.values[first:end], tuple(_cut(p, first, end) for p in axis.partners))


def evaluate_block(
    evaluate: Evaluate, axes: Sequence[Axis], fixed: Point, outputs: tuple[str, ...] | None, block: GridBlock
) -> Values:
    """Every output of one block, each in its own broadcast shape."""
    count, arguments = block_point(axes, fixed, block)
    results = evaluate(axes=count, outputs=outputs, **arguments)
    return {name: np.asarray(value) for name, value in results.items()}


class Store:
    """Collects blocks into arrays over (structural axes, numeric axes), each only as large as it varies."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = list(axes)
        self.structural, self.numeric = grids(axes)
        self.arrays: Values = {}

    def put(self, block: GridBlock, values: Values) -> None:
        """Take in the values of a block."""
        lengths = shape_of(self.numeric)
        for name, value in values.items():
            own = (1,) * (len(lengths) - value.ndim) + value.shape
            parted = [e - b != n for (b, e), n in zip(block.slices, lengths, strict=True)]
            wanted = tuple(n if part or o > 1 else 1 for n, part, o in zip(lengths, parted, own, strict=True))
            array = self._array(name, value, wanted)
            place = tuple(slice(b, e) if array.shape[len(block.place) + i] > 1 else slice(None)
                          for i, (b, e) in enumerate(block.slices))  # fmt: skip
            array[(*block.place, *place)] = value.reshape(own) if own else value.item()  # not an array in a cell

    def _array(self, name: str, value: NDArray[Any], wanted: tuple[int, ...]) -> NDArray[Any]:
        """The array of an output, made or widened when a block varies in more axes than those before it."""
        outer = shape_of(self.structural)
        old = self.arrays.get(name)
        if old is None:
            self._room(name, math.prod(outer + wanted))
            kind: Any = value.dtype if value.dtype.kind in "fb" else (float if value.dtype.kind in "iu" else object)
            absent = 0.0 if "." in name else np.nan  # a part that a block does not have takes nothing
            empty: Any = "" if kind is object else (absent if np.dtype(kind).kind == "f" else False)
            self.arrays[name] = np.full(outer + wanted, empty, dtype=kind)
        elif any(o < w for o, w in zip(old.shape[len(outer) :], wanted, strict=True)):
            shape = np.broadcast_shapes(old.shape, outer + wanted)
            self._room(name, math.prod(shape))
            self.arrays[name] = np.broadcast_to(old, shape).copy()
        return self.arrays[name]

    def _room(self, name: str, values: int) -> None:
        """RooflmError where one more array would take more memory than a grid may, before it is made."""
        size = 8 * (values + sum(a.size for k, a in self.arrays.items() if k != name))
        if size > MEMORY:
            points = math.prod(shape_of(self.axes))
            raise RooflmError(
                f"a grid of {points:,} points takes over {size / 2**30:.3g} GiB, and {MEMORY / 2**30:g} at most are "
                "held in memory: write it to a file (--out FILE.parquet), or name the outputs that you need"
            )

    def views(self) -> Values:
        """Every output over the whole grid, axes in the order given; views that repeat what does not vary."""
        order = [a.name for a in (*self.structural, *self.numeric)]
        moved = [order.index(a.name) for a in self.axes]
        full = shape_of(self.structural) + shape_of(self.numeric)
        self._empty()
        return {k: np.transpose(np.broadcast_to(v, full), moved) for k, v in self.arrays.items()}

    def _empty(self) -> None:
        """A point without any number (it breaks a rule) has no parts either, whatever its block had."""
        plain = [v for k, v in self.arrays.items() if "." not in k and v.dtype.kind == "f"]
        if not (self.structural and plain):
            return
        gone = np.isnan(plain[0])
        for array in plain[1:]:
            if not gone.any():
                return
            gone = gone & np.isnan(array)
        for name, array in self.arrays.items():
            if gone.any() and "." in name and array.dtype.kind == "f":
                self.arrays[name] = np.where(gone, np.nan, array)


@dataclass(frozen=True)
class GridJob:
    """What a worker needs for any block of a grid."""

    evaluate: Evaluate
    axes: tuple[Axis, ...]
    fixed: Point
    outputs: tuple[str, ...] | None

    def __call__(self, block: GridBlock) -> Values:
        return evaluate_block(self.evaluate, self.axes, self.fixed, self.outputs, block)


def run(
    evaluate: Evaluate,
    axes: Sequence[Axis],
    fixed: Point,
    outputs: tuple[str, ...] | None = None,
    on: str = "local",
    block: int = BLOCK,
) -> Values:
    """Every output (or those named) over the grid, axes in the order given.

    evaluate(axes=n, outputs=names, **arguments) -> name -> array that broadcasts over n numeric axes.
    """
    from rooflm.sweep.workers import spread  # and all that it takes to speak with processes

    store = Store(axes)
    for part, values in spread(GridJob(evaluate, tuple(axes), fixed, outputs), blocks(axes, block), on):
        store.put(part, values)
    return store.views()
