"""What a search keeps of each block of its grids: the best legal points, the trade-off front, the scores of points that
a constraint rules out, and the point nearest to meeting every constraint. Memory holds these digests only, so a space
may have tens of millions of points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.search.limits import MEMORY, Limit
from rooflm.search.space import Candidate, Goal, Grid
from rooflm.sweep.axes import Axis, grids
from rooflm.sweep.pareto import front
from rooflm.sweep.sweep import Evaluate, GridBlock, Values, block_point

Array = NDArray[Any]
KEPT = 10
"""Best points that a search returns."""
AnswerKey = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Points with the same key are one answer, of which the best counts: the grid and the places on its axes, without those
(the batch, say) along which the best is taken."""


class Location(NamedTuple):
    """Position of a point: number of its grid, its block, and its flat index inside the block."""

    grid: int
    block: GridBlock
    at: int


class Ranked(NamedTuple):
    """A legal point: its score, where it is, the answer that it belongs to, its outputs. signature: score and outputs
    as text, the same for twins; then: what ranks points of one score."""

    score: float
    spot: Location
    answer: AnswerKey
    signature: tuple[str, ...]
    outputs: dict[str, float]
    then: tuple[float, ...] = ()


class Digest(NamedTuple):
    """What a worker keeps of an evaluated block."""

    points: int
    feasible: int
    top: list[Ranked]
    front: list[tuple[float, float, Location, dict[str, float]]]
    blocked: Array
    blocked_at: Array
    nearest: tuple[tuple[bool, bool, float], Location] | None
    least: tuple[float, ...]
    where: Location
    by_card: list[Ranked]


@dataclass(frozen=True)
class SearchTask:
    """What a worker needs to digest any block of any grid.

    best_of: axes along which points are one answer (of several batches, the best). twin_outputs: answers that agree in
    the score and in these outputs are twins, and the first one is kept (they differ in an option without effect). then:
    the outputs of which less is better where scores are one (none: the first in the space). bands: the error bands of a
    point, evaluated like the outputs (None: a search that has none of its estimates). block: points of a block of a
    grid, few where a point is slow, so that cores share the work evenly and each block tells what is done.
    """

    evaluate: Evaluate
    grids: tuple[Grid, ...]
    goal: Goal
    limits: tuple[Limit, ...]
    outputs: tuple[str, ...]
    best_of: tuple[str, ...] = ()
    twin_outputs: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    bands: Evaluate | None = None
    block: int = 1 << 14

    @cached_property
    def rules(self) -> tuple[Limit, ...]:
        """What a legal point meets: it fits, unless a stricter share of memory is asked for, and every limit."""
        limited = any(limit.key == MEMORY.key for limit in self.limits)
        return self.limits if limited else (MEMORY, *self.limits)

    @cached_property
    def axes(self) -> tuple[tuple[list[Axis], list[Axis]], ...]:
        """Structural and numeric axes of each grid."""
        return tuple(grids(grid.axes) for grid in self.grids)

    def values(self, grid: int, block: GridBlock) -> tuple[Values, tuple[int, ...]]:
        """Every output that goal and limits need, over one block, broadcast and flat."""
        axes, fixed, _ = self.grids[grid]
        count, arguments = block_point(axes, fixed, block)
        shape = tuple(e - b for b, e in block.slices)
        got = self.evaluate(axes=count, outputs=self.outputs, **arguments)
        return {k: np.broadcast_to(np.asarray(v), shape).reshape(-1) for k, v in got.items()}, shape

    def __call__(self, part: tuple[int, GridBlock]) -> Digest:
        grid, block = part
        values, _ = self.values(grid, block)
        score = np.asarray(self.goal.score(values), dtype=float)
        legal = np.asarray(values["legal"], dtype=bool) & np.isfinite(score)
        excess = [np.asarray(limit.excess(values[limit.key]), dtype=float) for limit in self.rules]
        worst = np.max(excess, axis=0)
        endless, finite = worst == np.inf, np.max([np.where(e == np.inf, 0.0, e) for e in excess], axis=0)
        met = legal & (worst <= 0)
        at = np.flatnonzero(met)

        def spot(i: Any) -> Location:
            return Location(grid, block, int(i))

        then = [alike(values[k]) for k in self.then]
        order = at[np.lexsort([*(v[at] for v in reversed(then)), (alike(score) if then else score)[at]])]
        top = self.distinct(grid, block, order, score, then, values)
        by_card = self.distinct(grid, block, self.first_of_cards(grid, block, order), score, then, values)
        (x, less_x), (y, less_y) = self.goal.trade
        trade = [np.asarray(values[k], dtype=float) * (-1 if less else 1) for k, less in ((x, less_x), (y, less_y))]
        edge = at[front(trade[0][at], trade[1][at])] if at.size else at
        out = np.flatnonzero(legal & ~met)
        memory = next(e for e, limit in zip(excess, self.rules, strict=True) if limit.key == MEMORY.key)
        fits = out[memory[out] <= 0]  # a point that fits but is slow says more than one that does not fit
        broken = fits if fits.size else out
        bounded = broken[~endless[broken]]
        broken = bounded if bounded.size else broken
        near = int(broken[np.argmin(finite[broken])]) if out.size else None
        far = None if near is None else ((not fits.size, bool(endless[near]), float(finite[near])), spot(near))
        return Digest(
            len(score), len(at), top,
            [(float(trade[0][i]), float(trade[1][i]), spot(i), outputs_at(values, int(i))) for i in edge],
            score[out], out, far,
            tuple(float(np.min(e[legal], initial=np.inf)) for e in excess), spot(0), by_card,
        )  # fmt: skip

    def answers(self, grid: int, block: GridBlock, at: Array) -> Array:
        """A number for each point of a block, the same for points of one answer."""
        _, numeric = self.axes[grid]
        if not any(a.name in self.best_of for a in numeric):
            return at
        shape = tuple(e - b for b, e in block.slices)
        places = np.unravel_index(at, shape)
        kept = tuple(np.zeros_like(i) if a.name in self.best_of else i for a, i in zip(numeric, places, strict=True))
        return np.asarray(np.ravel_multi_index(kept, shape))

    @cached_property
    def cards(self) -> tuple[str, ...]:
        """The cards that are searched, where they are several."""
        found: dict[str, None] = {}
        for grid in self.grids:
            swept = [m.values for a in grid.axes for m in a.members if m.name == "gpu"]
            found |= dict.fromkeys(str(v) for values in swept or [(grid.fixed.get("gpu"),)] for v in values)
        return tuple(found) if len(found) > 1 else ()

    def first_of_cards(self, grid: int, block: GridBlock, order: Array) -> Array:
        """Of points of a block in their order the first of each card; none where there is only one card."""
        if not self.cards:
            return order[:0]
        _, numeric = self.axes[grid]
        which = next((n for n, a in enumerate(numeric) if any(m.name == "gpu" for m in a.members)), None)
        if which is None:
            return order[:1]
        places = np.unravel_index(order, tuple(e - b for b, e in block.slices))[which]
        return order[np.sort(np.unique(places, return_index=True)[1])]

    def answer(self, spot: Location) -> AnswerKey:
        """The answer that a point belongs to."""
        _, numeric = self.axes[spot.grid]
        places = np.unravel_index(spot.at, tuple(e - b for b, e in spot.block.slices)) if numeric else ()
        cells = zip(numeric, spot.block.slices, places, strict=True)
        return spot.grid, spot.block.place, tuple(b + int(i) for a, (b, _), i in cells if a.name not in self.best_of)

    def distinct(
        self, grid: int, block: GridBlock, order: Array, score: Array, then: Sequence[Array], values: Values
    ) -> list[Ranked]:  # fmt: skip
        """The best points of a block's answers, twins too. order: its legal points, the best first."""
        numbers = self.answers(grid, block, order)
        first = np.sort(np.unique(numbers, return_index=True)[1]) if self.best_of else range(len(order))
        kept: list[Ranked] = []
        seen: set[tuple[str, ...]] = set()
        for i in first:
            at = int(order[i])
            signature = tuple(f"{float(v):.9g}" for v in (score[at], *(values[k][at] for k in self.twin_outputs)))
            seen.add(signature if self.twin_outputs else (str(at),))
            spot = Location(grid, block, at)
            kept.append(Ranked(float(score[at]), spot, self.answer(spot), signature, outputs_at(values, at),
                               tuple(float(v[at]) for v in then)))  # fmt: skip
            if len(seen) == KEPT:
                break
        return kept

    def cell(self, spot: Location) -> GridBlock:
        """The block of a point alone."""
        shape = tuple(e - b for b, e in spot.block.slices)
        place = np.unravel_index(spot.at, shape) if shape else ()
        cells = tuple((b + int(i), b + int(i) + 1) for (b, _), i in zip(spot.block.slices, place, strict=True))
        return GridBlock(spot.block.place, cells)

    def inputs(self, spot: Location) -> dict[str, Any]:
        """What was chosen at a point."""
        axes, fixed, names = self.grids[spot.grid]
        structural, numeric = self.axes[spot.grid]
        place, cells = self.cell(spot)
        at = {a.name: i for a, i in zip(structural, place, strict=True)}
        at |= {a.name: first for a, (first, _) in zip(numeric, cells, strict=True)}
        stated = {k: v for k, v in fixed.items() if k in names and v is not None}
        return stated | {member.name: member.values[at[axis.name]] for axis in axes for member in axis.members}

    def error_band(self, spot: Location) -> dict[str, dict[str, float]]:
        """Ends of the error bands of a point and the rows behind them, by output; none where nothing was calibrated."""
        if self.bands is None:
            return {}
        axes, fixed, _ = self.grids[spot.grid]
        count, arguments = block_point(axes, fixed, self.cell(spot))
        found = self.bands(axes=count, **arguments)
        return {
            k: {end: int(at) if end == "rows" else float(at) for end, v in band.items() for at in np.ravel(v)[:1]}
            for k, band in found.items()
            if np.ravel(band["rows"])[0]
        }

    def candidate(self, spot: Location, outputs: dict[str, float] | None = None) -> Candidate:
        """A point: its inputs and outputs, worked out by itself where they are not known."""
        if outputs is None:
            outputs = outputs_at(self.values(spot.grid, self.cell(spot))[0], 0)
        inputs = self.inputs(spot)
        if "dp" in outputs and "dp" not in inputs:
            inputs["dp"] = int(outputs["dp"])
        return Candidate(inputs, outputs)


def alike(values: Any) -> Array:
    """Numbers to 10 digits, so that those which differ by rounding alone are one.

    >>> len(set(alike([150.0, 150.00000000000003, 150.1]).tolist()))
    2
    """
    v = np.asarray(values, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(v))) - 9)
        rounded: Array = np.round(v / unit) * unit
    return np.where(np.isfinite(rounded), rounded, v)


def outputs_at(values: Values, at: int) -> dict[str, float]:
    """The outputs of one point of a block."""
    return {k: float(v[at]) for k, v in values.items() if k != "legal"}
