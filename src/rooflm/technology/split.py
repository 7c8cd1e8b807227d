"""The best split of a die's budgets for a workload, jointly with its parallel mapping.

Variables are DeepFlow's: shares of area and of power by component, and of the die's edge. Three methods with one
objective: every point of a lattice (small spaces), differential evolution with a seed (scipy, vectorised: one array
evaluation a generation), and DeepFlow's projected gradient descent by finite differences, for comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.technology import tco
from rooflm.technology.description import Edge, Shares, Technology, Wire
from rooflm.technology.explore import Columns, Space, columns, network, technology_at, with_network
from rooflm.technology.tasks import Task

Array = NDArray[Any]
COMPONENTS = tuple(f.name for f in fields(Shares) if f.name != "other")
EDGES = tuple(f.name for f in fields(Edge) if f.name != "other")
GROUPS = (("area", COMPONENTS), ("watts", COMPONENTS), ("edge", EDGES))
"""The classes of variables: each is a set of shares; what `other` holds is not for the search."""
SIZE = sum(len(names) for _, names in GROUPS)
LEAST = 0.01
"""Smallest share of what is split (DeepFlow)."""
GOALS = {"time_s": 1.0, "usd_per_million_tokens": 1.0, "tokens_per_j": -1.0, "tokens_per_usd": -1.0, "tco_usd": 1.0}
"""What may be sought, and whether less (1) or more (-1) of it is better."""
FAR = 1e30
"""Value of a point that does not fit or breaks a limit: worse than any."""


class Split(NamedTuple):
    """A split: shares by group and component, the goal's value there and at the start, evaluations of hardware points,
    the best so far after each round, and the report of the point."""

    shares: dict[str, dict[str, float]]
    value: float
    start: float
    evaluations: int
    history: Array
    report: Columns


class Problem(NamedTuple):
    """Task, technology to start from, network, goal and limits (column -> most)."""

    task: Task
    base: Technology
    fabric: Wire
    goal: str
    limits: dict[str, float]


def normal(x: Array) -> Array:
    """Variables (SIZE, n) projected to their simplexes: each class at least LEAST per share, summing to 1.

    >>> y = normal(np.ones((SIZE, 1))); [round(float(v), 9) for v in (y[:7].sum(), y[7:14].sum(), y[14:].sum())]
    [1.0, 1.0, 1.0]
    """

    def projected(part: Array) -> Array:
        share = np.maximum(part, 0.0) / np.maximum(np.sum(np.maximum(part, 0.0), axis=0), 1e-300)
        return np.asarray(LEAST + (1.0 - LEAST * len(part)) * share)

    return _by_class(projected, x)


def raw(y: Array) -> Array:
    """The inverse of `normal` for shares of at least LEAST (smaller ones become LEAST)."""
    return _by_class(lambda part: np.clip((part - LEAST) / (1.0 - LEAST * len(part)), 0.0, 1.0), y)


def variables(t: Technology) -> Array:
    """The shares of a technology as variables, each class summing to 1."""
    parts = [(getattr(t.budget, group), names) for group, names in GROUPS]
    return np.array([getattr(own, n) / (1.0 - own.other) for own, names in parts for n in names], dtype=float)


def with_shares(t: Technology, x: Array) -> Technology:
    """The technology with its budgets split as variables (SIZE, n) on their simplexes say."""
    budget, start = t.budget, 0
    for group, names in GROUPS:
        shares = getattr(budget, group)
        new = {n: x[start + i] * (1.0 - shares.other) for i, n in enumerate(names)}
        budget = replace(budget, **{group: replace(shares, **new)})
        start += len(names)
    return replace(t, budget=budget)


def report(p: Problem, x: Array) -> Columns:
    """The report of n splits (SIZE, n), each with its best mapping."""
    return columns(p.task, with_shares(p.base, x), p.fabric, x.shape[1], tco.Prices())


def values(p: Problem, x: Array) -> Array:
    """The goal of n splits, less is better; FAR where it does not fit or a limit is broken."""
    found = report(p, x)
    good = found["fits"]
    for name, most in p.limits.items():
        if name not in found:
            raise RooflmError(f"limit names {name!r}, but it must be one of {', '.join(found)}")
        good = good & (found[name] <= most)
    return np.where(good, GOALS[p.goal] * np.where(found["fits"], found[p.goal], 0.0), FAR)


def problem(task: Task, space: Space, goal: str = "time_s", limits: Mapping[str, float] | None = None) -> Problem:
    """A problem from a space of a single point. Raises RooflmError for an unknown goal."""
    if goal not in GOALS:
        raise RooflmError(f"goal is {goal!r}, but it must be one of {', '.join(GOALS)}")
    if space.size != 1:
        raise RooflmError(f"a split is sought for one node, memory and network, but {space.size} points were given")
    intra, fabric = network(space.networks[0])
    base = with_network(technology_at(space, np.zeros(1, dtype=int)), intra, fabric)
    return Problem(task, base, fabric, goal, dict(limits or {}))


def _answer(p: Problem, x: Array, evaluations: int, history: Sequence[float]) -> Split:
    """The answer at variables x (SIZE,)."""
    t = with_shares(p.base, x.reshape(-1, 1))
    budget = {g: getattr(t.budget, g) for g, _ in GROUPS}
    shares = {g: {n: float(np.ravel(getattr(budget[g], n))[0]) for n in (*names, "other")} for g, names in GROUPS}
    start = float(values(p, _start(p))[0])
    if float(values(p, x.reshape(-1, 1))[0]) >= FAR:
        raise RooflmError(f"no split was found that fits {p.task.scenario.model.name} and keeps to the limits")
    return Split(shares, float(values(p, x.reshape(-1, 1))[0]) * GOALS[p.goal], start * GOALS[p.goal], evaluations,
                 np.array(history) * GOALS[p.goal], report(p, x.reshape(-1, 1)))  # fmt: skip


def _start(p: Problem) -> Array:
    """The starting variables of a problem (SIZE, 1): those of the first point."""
    return np.array([np.ravel(row)[:1] for row in variables(p.base)])


def lattice(parts: int, steps: int) -> Array:
    """Every way to give `steps` equal pieces to `parts` components, at least one each, as shares (parts, n).

    >>> lattice(2, 4).T.tolist()
    [[0.25, 0.75], [0.5, 0.5], [0.75, 0.25]]
    """
    cuts = itertools.combinations(range(1, steps), parts - 1)
    ways = [[b - a for a, b in itertools.pairwise((0, *c, steps))] for c in cuts]
    return np.array(ways, dtype=float).T / steps


def exhaustive(
    p: Problem, seed: int = 0, components: Sequence[str] = ("cores", "registers", "l2", "dram"), steps: int = 10,
    block: int = 512,
) -> Split:  # fmt: skip
    """Every lattice split of area and of power among a few components, the rest as they are; the best of all.

    Nothing is drawn, so the seed does not matter.
    """
    start = _start(p)
    ways = lattice(len(components), steps)
    places = [COMPONENTS.index(c) for c in components]
    grids = []
    for offset in (0, len(COMPONENTS)):
        rows = [offset + i for i in places]
        grids.append((rows, ways * float(np.sum(start[rows]))))
    pairs = list(itertools.product(range(ways.shape[1]), repeat=2))
    best, at = float(values(p, start)[0]), start[:, 0]
    history = [best]
    for begin in range(0, len(pairs), block):
        chosen = np.array(pairs[begin : begin + block]).T
        x = np.repeat(start, chosen.shape[1], axis=1)
        for (rows, shares), pick in zip(grids, chosen, strict=True):
            x[rows] = shares[:, pick]
        found = values(p, x)
        i = int(np.argmin(found))
        if found[i] < best:
            best, at = float(found[i]), x[:, i]
        history.append(best)
    return _answer(p, at, len(pairs), history)


def evolution(p: Problem, seed: int = 0, generations: int = 60, population: int = 8) -> Split:
    """Differential evolution over all shares: one array evaluation a generation; the same seed gives the same answer.

    Source: Storn and Price (1997), as in scipy.optimize.differential_evolution. Needs scipy (`rooflm[explore]`).
    """
    try:
        from scipy.optimize import differential_evolution
    except ImportError as error:
        raise RooflmError("searching by differential evolution needs scipy: pip install 'rooflm[explore]'") from error
    count = 0
    history: list[float] = []

    def objective(x: Array) -> Array:
        nonlocal count
        wide = x.reshape(SIZE, -1)
        count += wide.shape[1]
        found = values(p, normal(wide))
        history.append(min(float(np.min(found)), history[-1] if history else np.inf))
        return found

    # the start is one of the first population, so the answer is never worse than the design that was given
    first = np.clip(np.random.default_rng(seed).dirichlet(np.ones(SIZE), population * SIZE) * 3.0, 0.0, 1.0)
    first[0] = raw(_start(p))[:, 0]
    values(p, _start(p))  # an unknown limit is told here: scipy would make another error of it
    result = differential_evolution(
        objective, [(0.0, 1.0)] * SIZE, init=first, maxiter=generations, vectorized=True, updating="deferred", rng=seed,
        polish=False, tol=1e-6, mutation=(0.3, 0.9), recombination=0.8,
    )  # fmt: skip
    return _answer(p, normal(np.asarray(result.x).reshape(SIZE, 1))[:, 0], count, history)


def gradient(p: Problem, seed: int = 0, iterations: int = 100, starts: int = 10, rate: float = 1.0) -> Split:
    """DeepFlow's search: projected gradient descent by finite differences, from the given split and random ones.

    Each step makes every variable 1.5 times larger in turn, takes dT/dx, brings each class to unit length, averages it
    over time (0.9), steps, clips to LEAST and normalises; a split that overflows memory gets more area and power for
    DRAM. The best of all is kept. Source: Ardalani et al. (arXiv 2211.03309), design-space exploration.
    """
    draw = np.random.default_rng(seed)
    x = np.concatenate([_start(p), _random_shares(draw, starts - 1)], axis=1)
    momentum = np.zeros_like(x)
    best, at, history, count = np.inf, x[:, 0], [], 0
    dram = [COMPONENTS.index("dram"), len(COMPONENTS) + COMPONENTS.index("dram")]
    for _ in range(iterations):
        moved = np.repeat(x[:, None, :], SIZE + 1, axis=1)
        places = np.arange(SIZE)
        moved[places, places + 1] *= 1.5
        found = values(p, _project(moved.reshape(SIZE, -1))).reshape(SIZE + 1, -1)
        count += found.size
        now = found[0]
        i = int(np.argmin(now))
        if now[i] < best:
            best, at = float(now[i]), x[:, i].copy()
        history.append(best)
        slope = np.where((found[1:] < FAR) & (now < FAR), (found[1:] - now) / (0.5 * x), 0.0)
        momentum = 0.9 * momentum + 0.1 * _unit(slope)
        x = x - rate * momentum
        x[dram] *= np.where(now >= FAR, 1.1, 1.0)
        x = _project(x)
    return _answer(p, at, count, history)


def _by_class(change: Callable[[Array], Array], x: Array) -> Array:
    """A change applied to each class of variables."""
    ends = np.cumsum([len(names) for _, names in GROUPS])
    return np.concatenate([change(part) for part in np.split(x, ends[:-1])])


def _unit(x: Array) -> Array:
    return _by_class(lambda part: part / np.maximum(np.sqrt(np.sum(part**2, axis=0)), 1e-300), x)


def _project(x: Array) -> Array:
    """Clip to LEAST, then sum to 1 in each class."""
    clipped = np.maximum(x, LEAST)
    return _by_class(lambda part: part / np.sum(part, axis=0), clipped)


def _random_shares(draw: np.random.Generator, count: int) -> Array:
    """Random points of the simplexes (SIZE, count)."""
    return np.concatenate([draw.dirichlet(np.ones(len(names)), count).T for _, names in GROUPS])


METHODS: dict[str, Callable[[Problem, int], Split]] = {
    "exhaustive": exhaustive,
    "evolution": evolution,
    "gradient": gradient,
}
"""Methods by name."""
