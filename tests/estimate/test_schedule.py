"""Bubbles and in-flight micro-batches as published."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rooflm.estimate.schedule import bubble_time, in_flight, table_time
from rooflm.scenario.mapping import SCHEDULES


@pytest.mark.parametrize(
    ("schedule", "want"),
    [("gpipe", 63.0), ("1f1b", 63.0), ("interleaved", 31.5), ("zb-h1", 21.0), ("zb-h2", 0.0), ("dualpipe", 9.0),
     ("zb-v", 0.0), ("v-half", 31.5), ("v-min", 42.0)],
)  # fmt: skip
def test_bubble_times_with_equal_passes(schedule: str, want: float) -> None:
    # F = B = W = 3 s, p = 8, v = 2: Qi et al. 2023 table 1 gives 1F1B (p-1)(F+B+W), ZB-H1 a third of it, ZB-H2 none;
    # DualPipe (p/2-1)(F&B + B - 3W) with F&B = F + B + W; V-shaped: none, p / 2m and 2p / 3m (Qi et al. 2024)
    assert float(bubble_time(schedule, 8, 2, 3.0, 3.0, 3.0)) == pytest.approx(want, rel=1e-12)


def test_one_stage_has_no_bubble() -> None:
    for schedule in SCHEDULES:
        assert float(bubble_time(schedule, 1, 1, 1.0, 1.0, 1.0)) == 0.0


def test_in_flight() -> None:
    # the first stage of 1F1B holds p, the last one; GPipe all; interleaving p (1 + (p-1)/(p v))
    assert [float(in_flight("1f1b", 4, 16, stage=i)) for i in range(4)] == [4, 3, 2, 1]
    assert float(in_flight("gpipe", 4, 16)) == 16
    assert float(in_flight("interleaved", 35, 280, 3)) == pytest.approx(35 * (1 + 34 / (35 * 3)))
    assert float(in_flight("interleaved", 8, 64, 1)) == 8
    assert [float(in_flight(name, 8, 64)) for name in ("zb-h1", "zb-h2", "dualpipe")] == [8, 15, 9]
    for schedule, held in (("zb-v", [1, 4, 8, 16]), ("v-half", [1, 3, 5, 9]), ("v-min", [1, 2, 4, 6])):
        assert np.all(in_flight(schedule, np.array([1, 4, 8, 16]), 64, stage=3) == np.array(held))
    assert np.all(in_flight("1f1b", np.array([2, 8, 32]), 8) == np.array([2, 8, 8]))


Action = tuple[str, int, int]
"""F or B, virtual stage, micro-batch."""


def in_order(p: int, v: int, m: int) -> list[list[Action]]:
    """What each rank does, in order: Narayanan et al. 2021, figure 4 (bottom)."""
    chunks, count, ranks = v * p, v * m, []
    for r in range(p):
        forward = [("F", k % chunks // p * p + r, k // chunks * p + k % p) for k in range(count)]
        backward = [("B", (v - 1 - k % chunks // p) * p + r, k // chunks * p + k % p) for k in range(count)]
        warm = min(count, (v - 1) * p + 2 * (p - 1 - r))
        steady = [action for pair in zip(forward[warm:], backward, strict=False) for action in pair]
        ranks.append([*forward[:warm], *steady, *backward[count - warm :]])
    return ranks


def steps(ranks: Sequence[list[Action]], stages: int) -> list[list[Action | None]]:
    """The table: at each step what each rank does, as soon as what it needs was done at a step before."""
    done: dict[Action, int] = {}
    at, table = [0] * len(ranks), []
    while any(i < len(own) for i, own in zip(at, ranks, strict=True)):
        row: list[Action | None] = []
        for i, own in zip(at, ranks, strict=True):
            kind, stage, batch = own[i] if i < len(own) else ("", 0, 0)
            before = {("F", stage - 1, batch)} if kind == "F" else {("F", stage, batch), ("B", stage + 1, batch)}
            need = {a for a in before if 0 <= a[1] < stages}
            row.append(own[i] if kind and need <= done.keys() else None)
        for rank, action in enumerate(row):
            if action:
                done[action], at[rank] = len(table), at[rank] + 1
        table.append(row)
    return table


def stepped(p: int, v: int, m: int, forward: float, backward: float) -> float:
    """Seconds of the table where at every step both ends of an exchange wait for each other."""
    end = [0.0] * p
    for row in steps(in_order(p, v, m), p * v):
        done = [t + {"F": forward, "B": backward}[a[0]] if a else t for t, a in zip(end, row, strict=True)]
        end = list(done)
        for rank, action in enumerate(row):
            if action and action[:2] not in (("F", p * v - 1), ("B", 0)):
                other = (rank + (1 if action[0] == "F" else -1)) % p
                end[rank], end[other] = max(end[rank], done[other]), max(end[other], done[rank])
    return max(end)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 8), (4, 1, 16), (4, 2, 32), (4, 8, 8), (8, 2, 8), (8, 4, 32)])
def test_a_table_whose_ranks_exchange_at_every_step(p: int, v: int, m: int) -> None:
    plain = m * 4.0 + float(bubble_time("interleaved", p, v, 1.0, 2.0, 1.0))
    assert plain + float(table_time(p, v, m, 1.0, 3.0)) == pytest.approx(stepped(p, v, m, 1.0 / v, 3.0 / v))
