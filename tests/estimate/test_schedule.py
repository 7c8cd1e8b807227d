"""Bubbles and in-flight micro-batches as published."""

from __future__ import annotations

import numpy as np
import pytest

from rooflm.estimate.schedule import bubble_time, in_flight
from rooflm.scenario.mapping import SCHEDULES


@pytest.mark.parametrize(
    ("schedule", "want"),
    [("gpipe", 63.0), ("1f1b", 63.0), ("interleaved", 31.5), ("zb-h1", 21.0), ("zb-h2", 0.0), ("dualpipe", 9.0)],
)
def test_bubble_times_with_equal_passes(schedule: str, want: float) -> None:
    # F = B = W = 3 s, p = 8, v = 2: Qi et al. 2023 table 1 gives 1F1B (p-1)(F+B+W), ZB-H1 a third of it, ZB-H2 none;
    # DualPipe (p/2-1)(F&B + B - 3W) with F&B = F + B + W
    assert float(bubble_time(schedule, 8, 2, 3.0, 3.0, 3.0)) == want


def test_one_stage_has_no_bubble() -> None:
    for schedule in SCHEDULES:
        assert float(bubble_time(schedule, 1, 1, 1.0, 1.0, 1.0)) == 0.0


def test_in_flight() -> None:
    # the first stage of 1F1B holds p, the last one; GPipe all; interleaving p (1 + (p-1)/(p v))
    assert [float(in_flight("1f1b", 4, 16, stage=i)) for i in range(4)] == [4, 3, 2, 1]
    assert float(in_flight("gpipe", 4, 16)) == 16
    assert float(in_flight("interleaved", 35, 280, 3)) == pytest.approx(35 * (1 + 34 / (35 * 3)))
    assert float(in_flight("interleaved", 8, 64, 1)) == 8
    assert np.all(in_flight("1f1b", np.array([2, 8, 32]), 8) == np.array([2, 8, 8]))
