"""Causes of a gap: staged by the simulator with noise, and named again."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli.app import main
from rooflm.measure.why import causes, ends, suspects
from rooflm.validation.request import Request
from rooflm.validation.score import score
from rooflm.validation.table import read_row

STAGED: dict[str, dict[str, Any]] = {
    "CUDA graphs are off": {"sets": {"engine.issue_decode": 3e-5, "engine.captured": 0}},
    "prompts share a prefix": {"shared_prefix": 640, "options": {"prefix_caching": True}},
}  # fmt: skip


def runs() -> list[Request]:
    """Two levels of load."""
    cells = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm", "tp": "1", "prompt": "1024", "output": "64",
             "value": "1", "unit": "s"}  # fmt: skip
    rows = [cells | {"concurrency": c, "requests": n, "metric": m} for c, n in (("2", "8"), ("24", "48"))
            for m in ("ttft", "tpot")]  # fmt: skip
    found = [read_row(r) for r in rows]
    return [r for r in found if isinstance(r, Request)]


@pytest.mark.parametrize("cause", STAGED)
def test_a_staged_cause_is_named(cause: str) -> None:
    asked, draw = runs(), random.Random(cause)
    truth = score([replace(r, kwargs={**r.kwargs, **STAGED[cause]}) for r in asked])
    measured = [replace(x.request, kwargs=r.kwargs, measured=x.predicted * draw.lognormvariate(0, 0.03))
                for r, x in zip(asked, truth, strict=True)]  # fmt: skip
    found = causes(score(measured))
    assert found[0].name == cause and found[0].share > 0.4
    assert found[0].loss < found[0].base and len(found[0].predicted) == len(measured)


def test_where_nothing_parts_nothing_is_blamed() -> None:
    asked = runs()
    measured = [replace(r, measured=x.predicted) for r, x in zip(asked, score(asked), strict=True)]
    assert causes(score(measured)) == []


def test_suspects_are_rows_whose_words_hold() -> None:
    assert len({s.name for s in suspects()}) == len(suspects()) >= 15
    assert all("{}" in s.says or s.levels in ((""), ("",)) for s in suspects())
    assert ends("1-0.5,1+0.5") == (0.5, 1.5)


def test_the_command_plays_a_run_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({
        "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 32, "max_concurrency": 8,
        "completed": 32, "total_input_tokens": 32 * 512, "total_output_tokens": 32 * 32, "mean_ttft_ms": 80.0,
        "mean_tpot_ms": 9.0}), encoding="utf-8")  # fmt: skip
    assert main(["compare", str(file), "--gpu", "h100", "--gpus", "1", "--no-why", "--json", "--out",
                 str(tmp_path / "o.csv")]) == 0  # fmt: skip
    told = json.loads(capsys.readouterr().out)
    simulated = score([r for c in ("ttft", "tpot") if isinstance(r := read_row({
        "model": "llama-3.1-8b", "gpu": "h100", "gpus": "1", "engine": "vllm", "concurrency": "8", "requests": "32",
        "prompt": "512", "output": "32", "metric": c, "value": "1"}), Request)])  # fmt: skip
    assert [p["predicted"] for p in told["pairs"]] == pytest.approx([x.predicted for x in simulated])
    assert all(p["low"] < p["predicted"] < p["high"] for p in told["pairs"])
    assert not math.isnan(told["by_metric"]["ttft_s"]["median_ape"])
    assert main(["compare", str(file), "--gpu", "h100", "--tp", "3"]) == 2
    assert "tp" in capsys.readouterr().err
