"""Errors of training rows by constants that never saw their source, card, model or framework.

`python -m rooflm_fit.training_left_out TABLE.csv`: errors are taken as linear in the constants around the shipped ones
(their logarithms; the derivatives cost one evaluation of the rows a constant, about three minutes), and each group is
left out in turn and predicted by the constants fitted to all other rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.kernels.training_factors import table
from rooflm.readers.engines import load_engine
from rooflm_fit.training import CONSTANTS, MOST, Array, Constant, Problem, read, report

GROUPS = ("source", "card", "model", "framework")
"""What is left out whole, in turn."""


def shipped(constant: Constant) -> float:
    """The constant as the package holds it.

    >>> shipped(CONSTANTS[0]) > 0.5
    True
    """
    if constant.engines:
        return float(load_engine(constant.engines.split()[0]).value(constant.path))
    node: Any = table()
    for name in constant.path.split()[0].split("."):
        node = node[name]
    return float(node)


def fitted(errors: Array, slopes: Array, weights: Array, away: Array, spread: Array) -> Array:
    """Errors after the constants are fitted to the rows of weight above 0; away: their distance from the priors."""
    moved = np.zeros(slopes.shape[1])
    for _ in range(30):
        left = errors + slopes @ moved
        pull = weights**2 / np.sqrt(1.0 + np.clip(left, -MOST, MOST) ** 2 * weights**2)
        held = 1.0 / np.sqrt(1.0 + ((away + moved) / spread) ** 2) / spread**2
        square = slopes.T @ (slopes * pull[:, None]) + np.diag(held)
        moved = moved - np.linalg.solve(square, slopes.T @ (pull * left) + held * (away + moved))
    return np.asarray(errors + slopes @ moved)


def left_out(problem: Problem, errors: Array, slopes: Array, away: Array, groups: Sequence[str]) -> Array:
    """Each row's error by constants fitted to the rows of other groups."""
    spread = np.array([c.spread for c in problem.constants])
    found = np.full(len(errors), np.nan)
    for name in sorted(set(groups)):
        own = np.array([g == name for g in groups])
        found[own] = fitted(errors, slopes, problem.weights * ~own, away, spread)[own]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Print the errors, in sample and with each kind of group left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="table of published training runs")
    options = parser.parse_args(argv)
    problem = Problem(read(options.table, thin=False), CONSTANTS)
    at = np.log([shipped(c) for c in CONSTANTS])
    errors, slopes = problem.slopes(at)
    away = at - np.log([c.prior for c in CONSTANTS])
    print("as shipped")
    report(problem, errors)
    rows = [(r.source, r.group[1], r.group[0], s.engine.name) for r, s in problem.rows]
    for name, groups in zip(GROUPS, zip(*rows, strict=True), strict=True):
        print(f"{name} left out")
        report(problem, left_out(problem, errors, slopes, away, groups))


if __name__ == "__main__":
    main()
