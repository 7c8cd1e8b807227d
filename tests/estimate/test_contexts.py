"""Contexts of a grid of prompts and outputs: each length once, wherever nothing else varies along their axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rooflm import infer, infer_grid
from rooflm.asked.build_inference import build_inference
from rooflm.estimate.contexts import contexts_of
from rooflm.scenario.scenario import Scenario

LENGTHS = np.arange(64.0, 1088.0, 64.0)
OUTPUTS = ["tpot_s", "latency_s", "mbu", "energy_j_per_token", "decode_parts_s"]


def over(prompt: object, output: object, batch: object = 8.0) -> Scenario:
    """A scenario of three axes: of batches, prompts and outputs."""
    s = build_inference("llama-3.1-8b", gpu="h100", batch=8, prompt=512, output=128).scenario
    return replace(s, axes=3, workload=replace(s.workload, batch=batch, prompt=prompt, output=output))


def test_lengths_that_come_again_stand_once() -> None:
    found = contexts_of(over(LENGTHS[:, None], LENGTHS))
    assert found.which is not None
    assert found.tokens.shape[1:] == (1, 1, 1)
    assert len(found.tokens) < found.which.size / 5
    plain = LENGTHS[:, None] + 1 + (LENGTHS - 2) / 2
    assert np.array_equal(found.steps(found.tokens)[1], plain[None])


@pytest.mark.parametrize("batch", [LENGTHS, LENGTHS[:, None]])
def test_what_varies_with_them_keeps_all(batch: object) -> None:
    assert contexts_of(over(LENGTHS[:, None], LENGTHS, batch)).which is None


def test_few_and_different_lengths_are_left_alone() -> None:
    assert contexts_of(over(512.0, LENGTHS)).which is None
    assert contexts_of(over(np.arange(300.0)[:, None] * 1e4, 4097.0)).which is None


@pytest.mark.parametrize("engine", ["vllm", "ideal", "hf-eager"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v3"])
def test_a_grid_is_its_points(model: str, engine: str) -> None:
    lengths = [int(n) for n in LENGTHS]
    given = {"model": model, "gpu": "h200", "engine": engine}
    grid = infer_grid(**given, output=lengths, tp=[4, 8], prompt=lengths, batch=[3, 48], outputs=OUTPUTS)
    for tp, batch, prompt, output in ((4, 3, 64, 64), (8, 48, 1024, 512), (8, 3, 320, 1024)):
        one = infer(**given, tp=tp, batch=batch, prompt=prompt, output=output).values()
        at = grid.sel(tp=tp, batch=batch, prompt=prompt, output=output)
        for name in OUTPUTS[:-1]:
            assert float(at[name]) == pytest.approx(float(one[name]), rel=1e-12)
        for name, value in one["decode_parts_s"].items():
            assert float(at[f"decode_parts_s.{name}"]) == pytest.approx(float(value), rel=1e-9, abs=1e-15)
