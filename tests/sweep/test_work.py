"""What a grid costs, counted and not timed: no Python a point, and nothing that nobody asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rooflm.api import INFER, TRAIN, Task
from rooflm.asked.answers import flops
from rooflm.estimate import training
from rooflm.scenario.rules import divisors

TRAINED: dict[str, Any] = {
    "model": "llama-2-7b", "gpu": "a100-sxm-80gb", "efficiency": "calibrated", "seq": 2048, "zero": [0, 1, 3],
    "micro_batch": [1, 2, 3, 4], "tp": [1, 2, 4], "pp": [1, 2], "dp": [1, 2, 4],
}  # fmt: skip
SERVED: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "efficiency": "calibrated", "tp": [1, 2], "prompt": [64, 512, 640],
    "output": [16, 128],
}  # fmt: skip


def calls(work: Callable[[], Any]) -> int:
    """Calls of Python functions that some work makes."""
    found = 0

    def count(frame: Any, event: str, what: Any) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize(("task", "given"), [(TRAIN, TRAINED), (INFER, SERVED)], ids=["train", "infer"])
@pytest.mark.parametrize("outputs", [None, ["memory_bytes", "fits"]], ids=["all outputs", "two outputs"])
def test_no_function_is_called_for_every_point(task: Task, given: dict[str, Any], outputs: list[str] | None) -> None:
    def work(batches: int) -> None:
        task.grid({**given, "batch": [24 * i for i in range(1, batches + 1)], "outputs": outputs})

    work(2)
    few, many = (calls(lambda n=n: work(n)) for n in (5, 40))
    assert many < 1.1 * few


def test_a_grid_of_training_works_out_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("largest_divisor", "comm_volume", "dynamic_energy"):
        monkeypatch.setattr(training, name, None)
    monkeypatch.setattr(flops, "recomputed_flops", None)
    monkeypatch.setattr(training.tm, "fullest_stage", None)
    found = TRAIN.grid({**TRAINED, "batch": 24, "outputs": ["step_time_s", "mfu", "memory_bytes", "fits"]}).arrays
    assert set(found) == {"step_time_s", "mfu", "memory_bytes", "fits"}
    with pytest.raises(TypeError):
        TRAIN.grid({**TRAINED, "batch": 24, "outputs": ["memory"]})


def test_divisors_of_equal_shares_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(training, "divisors", lambda n: asked.append(n) or divisors(n))
    values, most = np.array([12.0, 12.0, 30.0, 7.0]).reshape(-1, 1), np.linspace(0.0, 40.0, 81)
    found = training.largest_divisor(values, most)
    assert sorted(asked) == [7, 12, 30]
    assert found.tolist() == [
        [max((d for d in divisors(int(v)) if d <= m), default=0) for m in most] for v in values[:, 0]
    ]


def test_a_share_that_is_no_number_has_no_divisor() -> None:
    assert training.largest_divisor(np.array([np.nan, 0.5, 12.0]), 4.0).tolist() == [0.0, 0.0, 4.0]
