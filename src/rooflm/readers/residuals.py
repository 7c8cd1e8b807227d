"""One's own measurements over the predictions: residuals interpolated between the points of a measured table.

The shipped constants are few, so what they leave over is smooth: a point near a measured one is off by about as much.
The logarithm of measured over predicted is interpolated by a Gaussian process of mean 0 over logarithmic axes: near the
measured points it follows them, far from all of them it fades, and the compact prediction stands. It lives in the
user's file, beside the engine whose predictions it corrects (`[residuals]` under `--engine my-machine.toml`).

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapter 2 (prediction with noise).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.estimate.memory import weight_bytes
from rooflm.scenario.mapping import Mapping as Split
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, larger

Array = NDArray[np.float64]
AXES = ("batch", "tokens", "weights", "gpus")
"""Where a point lies: sequences at a time, tokens of the prompt (decoding: of the middle context), bytes of weights of
the model, and the devices that share it; all as logarithms."""
REACH = (2.0, 2.0, 1.0, 0.7)
"""Distance on each axis (in e-folds) over which a residual fades to exp(-1/2): like batches and lengths tell much about
each other, like models less, like numbers of GPUs least."""
SPREAD = 0.15
"""Standard deviation of a residual where nothing was measured (log): the shipped constants' own error."""
NOISE = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Standard deviations (log) of what the axes do not explain, from the scatter of repeated measurements up; the one that
foretells each point best from the others is taken."""
PHASES = ("prefill", "decode")


def place(s: Scenario, phase: str, sequences: Num) -> tuple[Num, ...]:
    """Where a scenario with so many sequences running at once lies on AXES."""
    w, m = s.workload, s.mapping
    tokens = w.new if phase == "prefill" else w.prompt + larger(w.output - 1, 1) / 2
    values = (sequences, tokens, weight_bytes(s.model, Split(), s.quant), m.tp * m.pp * m.cp)
    return tuple(np.log(larger(v, 1e-9)) for v in values)


class Point(NamedTuple):
    """A measured point: logarithms of AXES and of measured over predicted time."""

    at: tuple[float, ...]
    ratio: float


@dataclass(frozen=True)
class Residuals:
    """Measured points by phase ("prefill", "decode")."""

    points: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)

    def __hash__(self) -> int:
        return id(self)

    @cached_property
    def _solved(self) -> dict[str, tuple[Array, Array]]:
        """Phase -> (positions, weights of the points)."""
        return {phase: solve(points) for phase, points in self.points.items() if points}

    def factor(self, phase: str, s: Scenario, sequences: Num) -> Num:
        """Measured over predicted time to expect of a scenario, with so many sequences running at once."""
        return self.at(phase, place(s, phase, sequences))

    def at(self, phase: str, at: Sequence[Num]) -> Num:
        """Measured over predicted time to expect at a point (logarithms of AXES, numbers or arrays); 1 far from all
        points.

        >>> known = Residuals({"decode": (Point((0.0, 6.0, 23.0, 0.0), 0.2),)})
        >>> [round(float(known.at("decode", (b, 6.0, 23.0, 0.0))), 3) for b in (0.0, 2.0, 9.0)]
        [1.212, 1.124, 1.0]
        >>> known.at("prefill", (0.0, 6.0, 23.0, 0.0))
        1.0
        """
        if phase not in self._solved:
            return 1.0
        where, weights = self._solved[phase]
        total: Num = 0.0
        for place, weight in zip(where, weights, strict=True):
            total = total + weight * likeness(at, place)
        return np.exp(total)


def likeness(a: Sequence[Num], b: Sequence[Num]) -> Num:
    """Covariance of the residuals of two points over SPREAD^2: exp(-distance^2 / 2) in units of REACH.

    >>> float(likeness((0.0,), (0.0,))), round(float(likeness((2.0,), (0.0,))), 3)
    (1.0, 0.607)
    """
    distance: Num = 0.0
    for x, y, reach in zip(a, b, REACH, strict=False):
        distance = distance + ((x - y) / reach) ** 2
    return np.exp(-0.5 * distance)


def solve(points: Sequence[Point]) -> tuple[Array, Array]:
    """Positions of the points and their weights w = (K + (noise / SPREAD)^2 I)^-1 y for ratios y.

    The noise is the one of NOISE of the smallest mean |w_i / inverse_ii|, the errors of leaving each point out
    (Rasmussen and Williams, equation 5.12).
    """
    where = np.array([p.at for p in points])
    k = np.asarray(likeness(list(where.T[:, :, None]), list(where.T[:, None, :])))
    ratios = np.array([p.ratio for p in points])
    tried = []
    for noise in NOISE:
        inverse = np.linalg.inv(k + (noise / SPREAD) ** 2 * np.eye(len(points)))
        weights = inverse @ ratios
        tried.append((round(float(np.mean(np.abs(weights / np.diag(inverse)))), 6), weights))
    return where, min(tried, key=lambda t: t[0])[1]


def parse(given: Mapping[str, Any], label: str) -> Residuals:
    """The [residuals] table of a file; RooflmError for anything else.

    >>> parse({"decode": [[0, 6, 23, 0, 0.2]]}, "x").points["decode"][0].ratio
    0.2
    """
    found = {}
    for phase, rows in given.items():
        if phase not in PHASES or not isinstance(rows, list):
            raise RooflmError(f"{label}: residuals.{phase} is not known: write a list under {' or '.join(PHASES)}")
        for row in rows:
            good = isinstance(row, list) and all(isinstance(x, int | float) and np.isfinite(x) for x in row)
            if not good or len(row) != len(AXES) + 1 or abs(row[-1]) > 10:
                raise RooflmError(f"{label}: residuals.{phase} has {row!r}, but each point is {len(AXES) + 1} numbers")
        found[phase] = tuple(Point(tuple(float(x) for x in row[:-1]), float(row[-1])) for row in rows)
    return Residuals(found)
