"""Search in several goals: against the exhaustive front of a small space, repeatable, within limits, with splits."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflm.cli import main
from rooflm.errors import RooflmError
from rooflm.explore import Space, Task, grid, make_task
from rooflm.sweep.pareto import pareto
from rooflm.technology import tco
from rooflm.technology.front import axis_points, evaluate, search

GOALS = ("time_s", "capital_usd", "power_w")
SPACE = Space(
    "a100", ("n7", "n5", "n3", "n2"), ("hbm2e", "hbm3", "hbm3e", "hbm4"), ("nvlink3+hdr", "nvlink4+ndr", "nvlink5+xdr"),
    (("technology.budget.power", (300.0, 400.0, 500.0, 700.0, 900.0)), ("technology.budget.area.l2", (0.1, 0.2, 0.3))),
)  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task("train", "gpt3-175b", gpus=256, batch=256, seq=2048, recompute="selective", micro=(1,), tp_most=8)


@pytest.fixture(scope="module")
def everything(task: Task) -> dict[str, Any]:
    return grid(task, SPACE)


def volume(rows: Any, best: Any) -> float:
    """Hypervolume of rows (n, goals), the best front's box being 1.1 wide, by pymoo."""
    from pymoo.indicators.hv import HV

    low, high = best.min(axis=0), best.max(axis=0)
    return float(HV(ref_point=np.full(best.shape[1], 1.1))((rows - low) / (high - low)))


def front_of(table: dict[str, Any]) -> Any:
    """The goals of all points, and of those on the exhaustive front."""
    rows = np.stack([table[g] for g in GOALS], axis=1)
    return rows, rows[pareto(table, dict.fromkeys(GOALS, 1.0)) & table["fits"]]


def test_few_points_give_more_of_the_front_than_chance(task: Task, everything: dict[str, Any]) -> None:
    """Hypervolume of the front of 720 points, from some 270 of them, against as many drawn at random."""
    table, best = front_of(everything)
    for seed in range(3):
        f = search(task, SPACE, GOALS, seed=seed, generations=10, population=40)
        rows = np.stack([f.report[g] for g in GOALS], axis=1)
        # every row is a point of the space, none twice, and none beats the exhaustive front
        assert {tuple(r) for r in rows} <= {tuple(r) for r in table}
        assert len({tuple(r) for r in rows}) == f.sizes[-1] and f.evaluations < len(table) / 2
        drawn = np.random.default_rng(seed).choice(len(table), f.evaluations, replace=False)
        assert volume(table[drawn], best) < volume(rows, best) <= volume(best, best) * (1 + 1e-12)


def test_given_time_it_finds_the_whole_front(task: Task, everything: dict[str, Any]) -> None:
    """All 72 designs of the exhaustive front, from little more than half of the points."""
    _, best = front_of(everything)
    f = search(task, SPACE, GOALS, generations=40, population=40)
    rows = {tuple(r) for r in np.stack([f.report[g] for g in GOALS], axis=1)}
    assert rows == {tuple(r) for r in best} and len(rows) == 72
    assert f.evaluations < 0.6 * SPACE.size


def test_more_generations_find_more(task: Task) -> None:
    volumes, best = [], None
    for generations in (20, 5, 2):
        f = search(task, SPACE, GOALS, generations=generations, population=24)
        rows = np.stack([f.report[g] for g in GOALS], axis=1)
        best = rows if best is None else best
        volumes.append(volume(rows, best))
    assert volumes == sorted(volumes, reverse=True)


def test_the_same_seed_gives_the_same_front(task: Task) -> None:
    one, two, other = (search(task, SPACE, GOALS, seed=s, generations=4, population=16) for s in (5, 5, 6))
    assert all(np.array_equal(one.report[k], two.report[k]) for k in one.report)
    assert len(one.report["time_s"]) != len(other.report["time_s"]) or not np.array_equal(
        one.report["time_s"], other.report["time_s"]
    )


def test_a_population_equals_its_points(task: Task, everything: dict[str, Any]) -> None:
    points = np.array([700, 3, 250, 3, 480])
    report = evaluate(task, SPACE, points, None, tco.Prices())
    for name, values in report.items():
        assert np.array_equal(values, everything[name][points]), name
    x = (np.stack(np.unravel_index(points, SPACE.shape), axis=1) + 0.5) / np.array(SPACE.shape)
    assert axis_points(SPACE, x).tolist() == points.tolist()


def test_with_splits_no_design_is_worse_than_the_one_given(task: Task) -> None:
    space = Space("a100", ("n5",), ("hbm3", "hbm4"), ("nvlink4+ndr",))
    goals = ("time_s", "tokens_per_j")
    f = search(task, space, goals, split=True, generations=12, population=24)
    assert f.shares is not None and f.shares.shape == (17, len(f.report["time_s"]))
    assert f.shares[:7].sum(axis=0) == pytest.approx(np.ones(f.shares.shape[1])) and f.shares.min() >= 0.01
    given = grid(task, space)
    assert f.report["time_s"].min() < given["time_s"].min()
    assert f.report["tokens_per_j"].max() > given["tokens_per_j"].max()
    assert pareto(f.report, {"time_s": 1.0, "tokens_per_j": -1.0}).all()
    # the shares that are told are those that were tried
    points = np.array([list(zip(space.drams, strict=True)).index((d,)) for d in f.report["dram"]])
    again = evaluate(task, space, points, f.shares, tco.Prices())
    assert np.array_equal(again["time_s"], f.report["time_s"])


def test_limits_hold_and_what_does_not_fit_is_left_out(task: Task, everything: dict[str, Any]) -> None:
    most = float(np.median(everything["capital_usd"]))
    f = search(task, SPACE, ("time_s", "power_w"), limits={"capital_usd": most}, generations=6, population=16)
    assert f.report["capital_usd"].max() <= most and f.report["fits"].all()
    small = Space("a100", ("n5", "n3"), ("gddr6", "hbm3"), ("nvlink4+ndr",))
    fitting = search(task, small, ("time_s", "capital_usd"), generations=3, population=8)
    assert set(fitting.report["dram"]) == {"hbm3"}
    with pytest.raises(RooflmError, match="no point was found that fits gpt3-175b"):
        search(task, small, limits={"capital_usd": 1.0}, generations=2, population=8)
    with pytest.raises(RooflmError, match="limit is 'usd', which is no number"):
        search(task, small, limits={"usd": 1.0}, generations=2, population=8)


@pytest.mark.parametrize(("goals", "says"), [(("time_s",), "two or more"), (("time_s", "cost"), "goal is 'cost'")])
def test_bad_goals_are_one_sentence(task: Task, goals: tuple[str, ...], says: str) -> None:
    with pytest.raises(RooflmError, match=says):
        search(task, SPACE, goals, generations=1, population=8)


def test_the_command_line_gives_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["explore", "front", "llama-2-7b", "--phase", "infer", "--node", "n7,n5,n3", "--dram", "hbm2e,hbm3,hbm4",
            "--set", "technology.budget.power=250..500+50", "--goals", "time_s,capital_usd,tokens_per_j",
            "--generations", "5", "--population", "12"]  # fmt: skip
    assert main(base) == 0
    text = capsys.readouterr().out
    assert "none beaten in time_s" in text and max(map(len, text.splitlines())) <= 80
    assert main([*base, "--json", "--out", str(tmp_path / "f.csv")]) == 0
    values = json.loads(capsys.readouterr().out)
    rows = list(zip(*(values["columns"][g] for g in ("time_s", "capital_usd")), values["columns"]["tokens_per_j"],
                    strict=True))  # fmt: skip
    for a, b in itertools.permutations(rows, 2):
        assert not (a[0] <= b[0] and a[1] <= b[1] and a[2] >= b[2])
    assert (tmp_path / "f.csv").read_text().count("\n") == len(rows) + 1
    assert main([*base[:-6], "--goals", "time_s,speed"]) == 2
    assert "goal is 'speed'" in capsys.readouterr().err
