"""Designs that no other beats in any of several goals, sought in spaces too large to try every point.

NSGA-II (Deb et al. 2002) of pymoo: a generation is one array evaluation, as in a grid, each point with its best
parallel mapping. Variables are the axes of a `Space` (nodes, memories, networks, any `technology.` path) and, if asked,
the 17 shares of area, power and edge. The same seed gives the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError, near_matches
from rooflm.sweep.pareto import pareto
from rooflm.technology import tco
from rooflm.technology.explore import Columns, Space, axis_columns, columns, network, technology_at, with_network
from rooflm.technology.load import load_technology
from rooflm.technology.split import FAR, SIZE, normal, raw, variables, with_shares
from rooflm.technology.tasks import Task

Array = NDArray[Any]


class Front(NamedTuple):
    """What was found. report: the rows that no other beats, axes first, by the first goal; shares: their variables
    (SIZE, rows), or None where budgets keep their split; goals: column -> 1 (less is better) or -1; evaluations:
    hardware points tried; sizes: rows on the front after each generation."""

    report: Columns
    shares: Array | None
    goals: dict[str, float]
    evaluations: int
    sizes: Array


def directions(names: Sequence[str], known: Sequence[str], what: str = "goal") -> dict[str, float]:
    """Columns to 1 (less is better) or -1 (more is: tokens a second, a joule, a dollar). Raises RooflmError.

    >>> directions(["time_s", "tokens_per_j"], ["time_s", "tokens_per_j"])
    {'time_s': 1.0, 'tokens_per_j': -1.0}
    """
    for name in names:
        if name not in known:
            near = " or ".join(map(repr, near_matches(name, list(known)) or ["time_s", "capital_usd", "tokens_per_j"]))
            raise RooflmError(f"{what} is {name!r}, which is no number of the table: did you mean {near}?")
    return {name: -1.0 if name.startswith("tokens_per") else 1.0 for name in names}


def evaluate(task: Task, space: Space, points: Array, shares: Array | None, prices: tco.Prices) -> Columns:
    """Columns of points (flat indices of the space), optionally with splits (SIZE, points) of their budgets, in the
    given order.

    One array evaluation per network, whose links differ in kind.
    """
    per = space.size // len(space.networks)
    whole: Columns = {}
    for n in np.unique(points // per):
        rows = np.flatnonzero(points // per == n)
        intra, fabric = network(space.networks[n])
        t = with_network(technology_at(space, points[rows]), intra, fabric)
        if shares is not None:
            t = with_shares(t, shares[:, rows])
        for name, values in columns(task, t, fabric, len(rows), prices).items():
            if name not in whole:
                whole[name] = np.empty(len(points), dtype=values.dtype if values.dtype.kind != "U" else object)
            whole[name][rows] = values
    return {k: v.astype(str) if v.dtype == object else v for k, v in whole.items()}


def axis_points(space: Space, x: Array) -> Array:
    """Flat indices of the points that variables (rows, axes) in [0, 1] stand for: each axis is cut into equal parts.

    >>> space = Space("a100", ("n7", "n5"), ("hbm2e", "hbm3"))
    >>> axis_points(space, np.array([[0.2, 0.7, 0.1], [0.9, 1.0, 1.0]])).tolist()
    [2, 3]
    """
    lengths = np.array(space.shape)
    index = np.minimum((x * lengths).astype(int), lengths - 1)
    flat: Array = np.ravel_multi_index(tuple(index.T), space.shape)
    return flat


class Design(NamedTuple):
    """A generation as asked for: flat indices of the space, and shares (SIZE, rows) or None."""

    points: Array
    shares: Array | None

    def rows_of(self, rows: Array) -> Design:
        """Some rows of it."""
        return Design(self.points[rows], None if self.shares is None else self.shares[:, rows])


def _algorithm(first: Array, goals: int, limits: int, generations: int, seed: int, cells: Array) -> tuple[Any, Any]:
    """NSGA-II of pymoo over variables in [0, 1] that starts from `first`, and what tells it the values of a generation.

    The leading variables are set to the middle of their axis' cell, so that its check for doubles knows a point again.
    """
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.evaluator import Evaluator
        from pymoo.core.problem import Problem
        from pymoo.core.repair import Repair
        from pymoo.problems.static import StaticProblem
    except ImportError as error:
        raise RooflmError("searching for several goals needs pymoo: pip install 'rooflm[explore]'") from error

    class Middle(Repair):  # type: ignore[misc]  # pymoo has no types
        def _do(self, problem: Any, X: Array, **_: Any) -> Array:
            return np.concatenate([_middle(X[:, : len(cells)], cells), X[:, len(cells) :]], axis=1)

    problem = Problem(n_var=first.shape[1], n_obj=goals, n_ieq_constr=limits, xl=0.0, xu=1.0)
    algorithm = NSGA2(pop_size=len(first), sampling=first, repair=Middle())
    algorithm.setup(problem, termination=("n_gen", generations), seed=seed, verbose=False)

    def report_values(asked: Any, values: Array, broken: Array) -> None:
        Evaluator().eval(StaticProblem(problem, F=values, G=broken), asked)
        algorithm.tell(infills=asked)

    return algorithm, report_values


def _middle(x: Array, cells: Array) -> Array:
    """Variables in [0, 1] at the middle of their cell."""
    middle: Array = (np.minimum(np.floor(x * cells), cells - 1) + 0.5) / cells
    return middle


def _first(space: Space, population: int, split: bool, seed: int) -> Array:
    """The first generation: points drawn evenly; a quarter of them with the budgets split as the die has them."""
    draw = np.random.default_rng(seed)
    x = draw.random((population, len(space.shape)))
    if not split:
        return x
    shares = np.clip(draw.dirichlet(np.ones(SIZE), population) * 3.0, 0.0, 1.0)
    shares[: max(population // 4, 1)] = raw(variables(load_technology(space.die)).reshape(SIZE, 1))[:, 0]
    return np.concatenate([x, shares], axis=1)


def search(
    task: Task, space: Space, goals: Sequence[str] = ("time_s", "capital_usd"), *,
    limits: Mapping[str, float] | None = None, split: bool = False, seed: int = 0, generations: int = 60,
    population: int = 64, prices: tco.Prices | None = None,
) -> Front:  # fmt: skip
    """The front of a space in several goals. limits: column -> most; split: seek the shares of the budgets too.

    Every point ever tried counts, not the last generation alone, and none is worked out twice. Raises RooflmError for
    unknown columns, or when no point fits and keeps to the limits.
    """
    if len(goals) < 2:
        raise RooflmError("goals must be two or more columns: for one, use rooflm explore split or grid")
    money, most, axes = prices or tco.Prices(), dict(limits or {}), len(space.shape)
    first = _first(space, population, split, seed)
    algorithm, tell = _algorithm(first, len(goals), 1 + len(most), generations, seed, np.array(space.shape))
    kept: Columns = {}
    signs: dict[str, float] = {}
    known: dict[int, tuple[Array, Array]] = {}
    tried, sizes = 0, []
    while algorithm.has_next():
        asked = algorithm.ask()
        if asked is None or not len(asked):  # nothing is left to try
            break
        x = asked.get("X")
        design = Design(axis_points(space, x[:, :axes]), normal(x[:, axes:].T) if split else None)
        _, once = np.unique(design.points, return_index=True)
        fresh = range(len(x)) if split else (i for i in once if int(design.points[i]) not in known)
        new = np.fromiter(fresh, dtype=int)
        values, broken = np.empty((len(x), len(goals))), np.empty((len(x), 1 + len(most)))
        if len(new):
            part = design.rows_of(new)
            report = evaluate(task, space, part.points, part.shares, money)
            numbers = [k for k, v in report.items() if v.dtype.kind == "f"]
            signs = signs or directions(goals, numbers)
            directions([*most], numbers, "limit")  # tells of a limit that is no column
            values[new], broken[new] = _told(report, signs, most)
            good = np.all(broken[new] <= 0, axis=1)
            extra = {f"_{i}": s for i, s in enumerate(() if part.shares is None else part.shares)}
            kept = _merge(kept, {k: v[good] for k, v in (report | {"_point": part.points} | extra).items()}, signs)
            tried += len(new)
        if not split:
            known |= {int(design.points[i]): (values[i], broken[i]) for i in new}
            for i, point in enumerate(design.points):
                values[i], broken[i] = known[int(point)]
        tell(asked, values, broken)
        sizes.append(len(kept["_point"]))
    if not sizes[-1]:
        raise RooflmError(f"no point was found that fits {task.scenario.model.name} and keeps to the limits")
    order = np.lexsort([signs[g] * kept[g] for g in reversed(goals)])
    kept = {k: v[order] for k, v in kept.items()}
    named = {k: v[kept["_point"]] for k, v in axis_columns(space).items()}
    shares = np.stack([kept[f"_{i}"] for i in range(SIZE)]) if split else None
    return Front(named | {k: v for k, v in kept.items() if k[0] != "_"}, shares, signs, tried, np.array(sizes))


def _told(report: Columns, signs: Mapping[str, float], most: Mapping[str, float]) -> tuple[Array, Array]:
    """Objectives and constraint violations of each row for the algorithm, all to be minimised (0 or less: constraint
    met): memory fits, and the limits."""
    fits = report["fits"]
    values = [np.where(fits, sign * report[g], FAR) for g, sign in signs.items()]
    broken = [np.where(fits, -1.0, 1.0), *(np.where(fits, report[k] / v - 1.0, 1.0) for k, v in most.items())]
    return np.stack(values, axis=1), np.stack(broken, axis=1)


def _merge(old: Columns, new: Columns, goals: Mapping[str, float]) -> Columns:
    """The Pareto-optimal rows of both tables."""
    both = {k: np.concatenate([old[k], v]) for k, v in new.items()} if old else new
    keep = pareto(both, goals)
    return {k: v[keep] for k, v in both.items()}
