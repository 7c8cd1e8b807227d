"""The fit of training steps: what linear errors want, within priors and room, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from rooflm_fit.training import CONSTANTS, MOST_SHARE, PRIORS, ROOM, SPREADS, Fit, left_out, shipped, solved

SHARE = next(k for k, c in enumerate(CONSTANTS) if c.path.endswith("share"))


class Weighted:
    """Rows of nothing but weights."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights


def rows(target: np.ndarray, many: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """(errors, slopes) of rows without error where the constants are `target` away from their priors."""
    slopes = np.random.default_rng(3).normal(0, 1, (many, len(CONSTANTS)))
    return -slopes @ target, slopes


def test_rows_that_agree_move_a_constant_to_where_they_want_it() -> None:
    target = np.where(np.inf > ROOM, -0.01, 0.02)
    moved = solved(*rows(target), np.full(400, 1000.0), PRIORS)
    assert moved == pytest.approx(target, abs=1e-4)


def test_without_rows_constants_are_their_priors() -> None:
    errors, slopes = rows(np.zeros(len(CONSTANTS)))
    away = np.where(np.arange(len(CONSTANTS)) % 2, 0.5, -0.5) * SPREADS
    assert solved(errors, slopes, np.zeros(400), PRIORS + away) == pytest.approx(-away, abs=1e-6)


def test_a_share_stops_at_its_most_and_the_others_make_up_for_it() -> None:
    target = np.zeros(len(CONSTANTS))
    target[SHARE] = 0.6
    errors, slopes = rows(target)
    slopes[:, SHARE + 1] += slopes[:, SHARE]
    moved = solved(errors, slopes, np.full(400, 1000.0), PRIORS)
    assert np.exp(PRIORS + moved)[SHARE] == pytest.approx(MOST_SHARE)
    assert moved[SHARE + 1] > 0.02


def test_what_is_left_out_is_predicted_by_the_others() -> None:
    errors, slopes = rows(np.zeros(len(CONSTANTS)))
    groups = ["a"] * 200 + ["b"] * 200
    errors[:200] += 0.1 * slopes[:200, 0]  # a alone wants the first constant lower
    found = Fit(PRIORS, errors, slopes)
    aside = left_out(Weighted(np.full(400, 1000.0)), found, groups)  # type: ignore[arg-type]
    assert aside[:200] == pytest.approx(errors[:200], abs=1e-6)
    assert np.abs(aside[200:]).mean() > 0.02


def test_the_fit_starts_where_the_package_stands() -> None:
    logs = np.array([shipped(c) for c in CONSTANTS])
    assert np.all(np.isfinite(logs)) and np.all(logs <= ROOM)
    assert np.all(np.abs(logs - PRIORS) < 4 * SPREADS)
