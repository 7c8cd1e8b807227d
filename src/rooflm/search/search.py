"""The best point of a space under constraints: exact, because every point of the space is evaluated by array sweeps.

A block of the grid is evaluated and digested where it runs: its best legal points, its trade-off front, the scores of
points that a constraint (or memory) rules out, and the point nearest to meeting every constraint. Memory holds digests
only, so a space may have tens of millions of points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.search.limits import MEMORY, Limit, percent, times
from rooflm.shown.answer import Answer as Shown
from rooflm.shown.answer import data_frame, plain, plotting, value_text
from rooflm.shown.blocks import Block
from rooflm.shown.progress import notebook_clock
from rooflm.sweep.axes import Axis, Point, grids, size_of
from rooflm.sweep.pareto import front
from rooflm.sweep.sweep import BLOCK, Evaluate, GridBlock, Values, block_point, blocks
from rooflm.sweep.workers import spread

if TYPE_CHECKING:
    import pandas

Array = NDArray[Any]
KEPT = 10
"""Best points that a search returns."""
BLOCKED = 3
"""Better points that a constraint rules out that a search explains."""


class Goal(NamedTuple):
    """What is best: an output and whether less of it is better; and the two outputs whose trade-off is shown."""

    name: str
    key: str
    less: bool
    trade: tuple[tuple[str, bool], tuple[str, bool]]

    def score(self, values: Mapping[str, Any]) -> Any:
        """The number to minimise."""
        return values[self.key] if self.less else -values[self.key]


class Grid(NamedTuple):
    """One grid of the space: its axes and fixed arguments. named: fixed inputs to show with an answer."""

    axes: tuple[Axis, ...]
    fixed: Point
    named: tuple[str, ...] = ("gpu", "engine", "quant", "schedule", "recompute")


class Candidate(NamedTuple):
    """A point: the inputs chosen and the resulting outputs."""

    inputs: dict[str, Any]
    outputs: dict[str, float]


class Blocked(NamedTuple):
    """A point better than the best, and the constraints that it violates."""

    candidate: Candidate
    why: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class SearchResult(Shown):
    """The answer of a search. top: the best points; front: legal points that no other beats in both traded outputs;
    blocked: the next better points and what rules them out; nearest: with no legal point, the one nearest to it; same:
    options without effect on the best points, which count once, in words; beside: the answer of the first kind of
    points alone, where there are two (of deployments, those without pools); prices: what costs rest on."""

    goal: Goal
    points: int
    feasible: int
    top: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    blocked: tuple[Blocked, ...]
    nearest: Blocked | None
    alone: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    beside: SearchResult | None = None
    prices: str = ""

    @property
    def best(self) -> Candidate | None:
        """The best point, None where no point is legal."""
        return self.top[0] if self.top else None

    def lines(self) -> list[str]:
        """What was searched, and the best point with what it gives; without one, the nearest and why."""
        lines = [f"best {self.goal.name} of {self.points:,} points, of which {self.feasible:,} meet every constraint"]
        if self.best is not None:
            return [*lines, _words(self.best.inputs), _words({k: value_text(v) for k, v in self.best.outputs.items()})]
        return [*lines, _words(self.nearest.candidate.inputs), *self.nearest.why[:2]] if self.nearest else lines

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The best point, the ten best, the trade-off, and what would be better but is not legal."""
        from rooflm.search import said

        return said.blocks(self)

    def plot(self, path: str | None = None, kind: str | None = None) -> Any:
        """The trade-off, or of training the best steps; path: write it there too."""
        return plotting().search(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The best points and the trade-off, in plain Python values."""
        top, front = ([{**c.inputs, **c.outputs} for c in cs] for cs in (self.top, self.front))
        told: dict[str, Any] = plain({"objective": self.goal.name, "points": self.points, "feasible": self.feasible,
                                      "top": top, "front": front, "prices": self.prices,
                                      "assumed": self.assumed})  # fmt: skip
        return told

    def to_pandas(self) -> pandas.DataFrame:
        """The best points: one a row, inputs then outputs."""
        rows = [{**c.inputs, **c.outputs} for c in self.top]
        return data_frame({k: [r[k] for r in rows] for k in (rows[0] if rows else ())})


def _words(values: Mapping[str, Any]) -> str:
    """Names and values on one line of at most 100 characters, cut between pairs."""
    line = ""
    for k, v in values.items():
        pair = f"{', ' if line else ''}{k} {v}"
        if len(line) + len(pair) > 100:
            break
        line += pair
    return line


Answer = tuple[int, tuple[int, ...], tuple[int, ...]]
"""What makes a point another answer than its neighbours: its grid and its places on the axes, less those that an answer
is the best of (of several batches, say)."""


class Location(NamedTuple):
    """Position of a point: number of its grid, its block, and its flat index inside the block."""

    grid: int
    block: GridBlock
    at: int


class Ranked(NamedTuple):
    """A legal point: its score, where it is, the answer that it belongs to, its outputs. signature: score and outputs
    as text, the same for twins."""

    score: float
    spot: Location
    answer: Answer
    signature: tuple[str, ...]
    outputs: dict[str, float]


class Digest(NamedTuple):
    """What a worker keeps of an evaluated block."""

    points: int
    feasible: int
    top: list[Ranked]
    front: list[tuple[float, float, Location, dict[str, float]]]
    blocked: Array
    blocked_at: Array
    nearest: tuple[tuple[bool, float], Location] | None
    least: tuple[float, ...]
    where: Location


@dataclass(frozen=True)
class SearchTask:
    """What a worker needs to digest any block of any grid.

    best_of: axes along which points are one answer (of several batches, the best). twin_outputs: answers with the same
    score and the same of these outputs are twins, of which the first in the space's order stands (an option without
    effect, replicas beside each other).
    """

    evaluate: Evaluate
    grids: tuple[Grid, ...]
    goal: Goal
    limits: tuple[Limit, ...]
    outputs: tuple[str, ...]
    best_of: tuple[str, ...] = ()
    twin_outputs: tuple[str, ...] = ()

    @cached_property
    def rules(self) -> tuple[Limit, ...]:
        """What a legal point meets: it fits, unless a stricter share of memory is asked for, and every limit."""
        own = any(limit.key == MEMORY.key for limit in self.limits)
        return self.limits if own else (MEMORY, *self.limits)

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
        met = legal & (worst <= 0)
        at = np.flatnonzero(met)

        def spot(i: Any) -> Location:
            return Location(grid, block, int(i))

        top = self.distinct(grid, block, at[np.argsort(score[at], kind="stable")], score, values)
        (x, less_x), (y, less_y) = self.goal.trade
        trade = [np.asarray(values[k], dtype=float) * (-1 if less else 1) for k, less in ((x, less_x), (y, less_y))]
        edge = at[front(trade[0][at], trade[1][at])] if at.size else at
        out = np.flatnonzero(legal & ~met)
        memory = next(e for e, limit in zip(excess, self.rules, strict=True) if limit.key == MEMORY.key)
        fits = out[memory[out] <= 0]  # a point that fits but is slow says more than one that does not fit
        near = int(min(fits if fits.size else out, key=worst.__getitem__)) if out.size else None
        return Digest(
            len(score), len(at), top,
            [(float(trade[0][i]), float(trade[1][i]), spot(i), outputs_at(values, int(i))) for i in edge],
            score[out], out, None if near is None else ((not fits.size, float(worst[near])), spot(near)),
            tuple(float(np.min(e[legal], initial=np.inf)) for e in excess), spot(0),
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

    def answer(self, spot: Location) -> Answer:
        """The answer that a point belongs to."""
        _, numeric = self.axes[spot.grid]
        places = np.unravel_index(spot.at, tuple(e - b for b, e in spot.block.slices)) if numeric else ()
        cells = zip(numeric, spot.block.slices, places, strict=True)
        return spot.grid, spot.block.place, tuple(b + int(i) for a, (b, _), i in cells if a.name not in self.best_of)

    def distinct(self, grid: int, block: GridBlock, order: Array, score: Array, values: Values) -> list[Ranked]:
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
            kept.append(Ranked(float(score[at]), spot, self.answer(spot), signature, outputs_at(values, at)))
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

    def candidate(self, spot: Location, outputs: dict[str, float] | None = None) -> Candidate:
        """A point: its inputs and outputs, worked out by itself where they are not known."""
        if outputs is None:
            outputs = outputs_at(self.values(spot.grid, self.cell(spot))[0], 0)
        inputs = self.inputs(spot)
        if "dp" in outputs and "dp" not in inputs:
            inputs["dp"] = int(outputs["dp"])
        return Candidate(inputs, outputs)


def outputs_at(values: Values, at: int) -> dict[str, float]:
    """The outputs of one point of a block."""
    return {k: float(v[at]) for k, v in values.items() if k != "legal"}


MOST = 50_000_000
"""Most points of a search: what is kept of those that break a limit fits in memory."""


def search(task: SearchTask, on: str = "local", assumed: Iterable[str] = (), first: int = 0) -> SearchResult:
    """Evaluate every point of the grids; the best, the front, what rules better points out. first: so many grids are a
    kind of their own, whose answer alone stands beside (0: all are one kind)."""
    points = sum(size_of(grid.axes) for grid in task.grids)
    if points > MOST:
        raise RooflmError(
            f"this search has {points:,} points, more than the {MOST:,} that are tried: name fewer values "
            "(--gpus, --tp, --pp, --batch and the like), or a smaller --gpus-max"
        )
    parts = [(i, b) for i, grid in enumerate(task.grids) for b in blocks(grid.axes, BLOCK)]
    order = {part: i for i, part in enumerate(parts)}
    with notebook_clock("searching"):
        digests = [d for _, d in sorted(spread(task, parts, on), key=lambda pair: order[pair[0]])]
    answer = concluded(task, digests, assumed)
    if not 0 < first < len(task.grids):
        return answer
    return replace(answer, beside=concluded(task, [d for d in digests if d.where.grid < first], assumed))


def concluded(task: SearchTask, digests: Sequence[Digest], assumed: Iterable[str]) -> SearchResult:
    """The answer that the digests of all blocks make."""
    limits = task.rules
    top, twins = merged(task, digests)
    edges = [e for d in digests for e in d.front]
    kept: Any = front(np.array([e[0] for e in edges]), np.array([e[1] for e in edges])) if edges else []
    different = [i for n, i in enumerate(kept) if n == 0 or not near_equal(edges[int(kept[n - 1])], edges[int(i)])]
    chosen = [task.candidate(*edges[int(i)][2:]) for i in thinned(different, 4 * KEPT)]
    near = min((d.nearest for d in digests if d.nearest), key=lambda n: n[0], default=None)
    feasible = sum(d.feasible for d in digests)
    best = tuple(task.candidate(t.spot, t.outputs) for t in top)
    return SearchResult(
        task.goal, sum(d.points for d in digests), feasible, best, tuple(chosen),
        tuple(_blocked(task, digests, top[0], limits)) if top else (),
        None if feasible or near is None else _explained(task, near[1], limits),
        () if feasible else tuple(_alone(limits, digests)), tuple(assumed),
        without_effect([(task.inputs(t.spot), [task.inputs(s) for s in twins[i]]) for i, t in enumerate(top)]),
    )  # fmt: skip


def thinned(indices: Any, most: int) -> list[int]:
    """At most `most` of the indices, evenly spaced, including both ends.

    >>> thinned(range(5), 3)
    [0, 2, 4]
    """
    listed = [int(i) for i in indices]
    if len(listed) <= most:
        return listed
    return [listed[round(i * (len(listed) - 1) / (most - 1))] for i in range(most)]


def near_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two points of a front are the same trade-off, differing only in an option without effect."""
    return bool(np.allclose(one[:2], other[:2], rtol=1e-9, atol=0.0))


def merged(task: SearchTask, digests: Sequence[Digest]) -> tuple[list[Ranked], list[list[Location]]]:
    """The best answers of all blocks, and the twins of each; of these the first of the space stands."""
    kept: list[Ranked] = []
    others: list[list[Location]] = []
    seen: set[Answer] = set()
    for one in sorted((t for d in digests for t in d.top), key=lambda t: (float(f"{t.score:.12g}"), t.spot)):
        twin = next((i for i, k in enumerate(kept) if task.twin_outputs and one.signature == k.signature), None)
        if twin is not None and one.answer not in seen:
            others[twin].append(one.spot)
        elif one.answer not in seen:
            if len(kept) == KEPT:
                break
            kept.append(one)
            others.append([])
        seen.add(one.answer)
    return kept, others


def without_effect(points: Sequence[tuple[dict[str, Any], Sequence[dict[str, Any]]]]) -> tuple[str, ...]:
    """Options that differ between points with the same outputs, in words. points: the inputs of each point and of its
    twins.

    >>> without_effect([({"tp": 8, "zero": 0}, [{"tp": 8, "zero": 1}]), ({"tp": 4, "zero": 0}, [])])
    ('zero 1 is as 0 in 1 of 2',)
    """
    times: dict[str, int] = {}
    for own, twins in points:
        single = [(k, t[k], own[k]) for t in twins for k in own if [n for n in own if t.get(n) != own[n]] == [k]]
        for name, other, value in single:
            words = f"{name} {other} is as {value}"
            times[words] = times.get(words, 0) + 1
    return tuple(f"{w} in all" if n == len(points) else f"{w} in {n} of {len(points)}" for w, n in times.items())


def _blocked(task: SearchTask, digests: Sequence[Digest], best: Ranked, limits: Sequence[Limit]) -> list[Blocked]:
    """Points better than the best that a limit rules out: the next one of the best's own answer, then those of other
    answers, nearest in score to the best first."""
    near: list[tuple[bool, float, Location, Answer]] = []
    for d in digests:
        better = np.flatnonzero(d.blocked < best.score)
        closest = better[np.argsort(-d.blocked[better], kind="stable")]
        numbers = task.answers(d.where.grid, d.where.block, d.blocked_at[closest])
        first = np.sort(np.unique(numbers, return_index=True)[1]) if task.best_of else np.arange(len(closest))
        for at, i in enumerate(closest[first]):
            spot = d.where._replace(at=int(d.blocked_at[i]))
            answer = task.answer(spot)
            if at < BLOCKED or answer == best.answer:
                near.append((answer != best.answer, -float(d.blocked[i]), spot, answer))
            elif not task.best_of:
                break
    found: dict[Any, Location] = {}
    for _, score, spot, answer in sorted(near, key=lambda n: n[:2]):
        found.setdefault(answer if task.best_of or not task.twin_outputs else f"{score:.9g}", spot)
    return [_explained(task, spot, limits) for spot in list(found.values())[:BLOCKED]]


def _explained(task: SearchTask, spot: Location, limits: Sequence[Limit]) -> Blocked:
    found = task.candidate(spot)
    broken = [(limit, found.outputs[limit.key]) for limit in limits]
    return Blocked(found, tuple(limit.described(value) for limit, value in broken if limit.excess(value) > 0))


def _alone(limits: Sequence[Limit], digests: Sequence[Digest]) -> list[str]:
    """Limits that no point meets even by itself."""
    out = []
    for i, limit in enumerate(limits):
        least = min((d.least[i] for d in digests), default=np.inf)
        if 0 < least < np.inf:
            nearest = f"the nearest is {f'{percent(least)} off' if least < 1 else f'off by {times(1 + least)}'}"
            out.append(f"No point at all meets {limit.label} ({limit.written(limit.bound)}): {nearest}")
    return out
