"""Steps, GPU-hours and goodput of a whole run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.answers.job import goodput, job, young_daly
from rooflm.scenario.training import Training
from rooflm.shown.numbers import spoken


def test_job_by_hand() -> None:
    # 1e12 tokens in steps of 1024 x 2048: 476,837 whole steps of 10 s on 512 GPUs at 2 USD/h
    run = job(Training(), 1e12, 1024, 2048, 10.0, 512, 2.0, 5.0, 1e9)
    assert float(run.steps) == pytest.approx(476_837)
    assert float(run.gpu_hours) == pytest.approx(476_837 * 10 * 512 / 3600)
    assert float(run.cost) == pytest.approx(2 * float(run.gpu_hours))
    assert float(run.energy) == pytest.approx(5 * 476_837)
    assert float(run.goodput) == 1.0
    assert float(run.days_with_failures) == float(run.days)


def test_one_step_where_no_tokens_are_given() -> None:
    assert float(job(Training(), 0, 8, 2048, 3.0, 1, 0.0, 1.0, 1.0).seconds) == 3.0


def test_young_daly_is_the_best_interval() -> None:
    write, mtbf = 60.0, 20_000.0
    best = float(young_daly(write, mtbf))
    tried = np.linspace(300, 6000, 2000)
    shares = goodput(tried, write, mtbf, 600.0)
    assert abs(float(tried[np.argmax(shares)]) / best - 1) < 0.06


def test_goodput_falls_with_more_gpus_and_grows_with_reliability() -> None:
    gpus = np.array([1024.0, 4096.0, 16384.0])
    options = Training(mtbf=5e8, checkpoint_bandwidth=1e9)
    run = job(options, 1e12, 1024, 2048, 10.0, gpus, 2.0, 1.0, 30e9)
    assert np.all(np.diff(run.goodput) < 0)
    assert np.all((run.goodput > 0.5) & (run.goodput < 1))
    assert np.all(run.days_with_failures > run.days)
    better = job(Training(mtbf=5e9), 1e12, 1024, 2048, 10.0, gpus, 2.0, 1.0, 30e9)
    assert np.all(better.goodput > run.goodput)


LLAMA: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "batch": 64, "seq": 8192}


@pytest.mark.parametrize(
    ("tokens", "sets", "told"),
    [
        (None, {"training.mtbf": 1e7}, "training.mtbf has no effect: no tokens of a run are given"),
        ("1T", {"training.restart": 60}, "training.restart has no effect: training.mtbf is 0"),
        ("1T", {"training.mtbf": 1e7, "training.restart": 60}, ""),
        ("1T", {"training.mtbf": 0}, ""),
        (None, {}, ""),
    ],
)
def test_failures_of_no_run_are_told(tokens: str | None, sets: dict[str, float], told: str) -> None:
    assert rooflm.train(**LLAMA, tokens=tokens, sets=sets).warnings == ((told,) if told else ())


def test_what_failures_cost_is_told_in_days_and_dollars() -> None:
    run = rooflm.train(**LLAMA, tokens="1T", sets={"training.mtbf": "2000 h"})
    share = float(run.job.goodput)
    line = " ".join(str(run).split())
    assert 0.5 < share < 0.99 and f"{spoken(float(run.cost) / share, 'USD')} (goodput" in line
    never = " ".join(str(rooflm.train(**LLAMA, tokens="1T", sets={"training.mtbf": "2 h"})).split())
    assert "Failures come so often that it never ends" in never and "checkpoints inf" not in never
