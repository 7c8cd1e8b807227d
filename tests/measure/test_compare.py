"""Measured cases beside predictions, by hand and of others' tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure import results
from rooflm.measure.case import Case
from rooflm.measure.compare import machine_of, pairs, predictions
from rooflm.measure.figures import as_grid
from rooflm.measure.other_tools import Given, read_foreign
from rooflm.measure.results import Row, one
from rooflm.measure.shape import Shape

LLAMA = Shape(4096, 32000, 32, 32, 32, 128, 11008)


def test_a_case_is_predicted_as_infer_does() -> None:
    case = Case(model="llama-7b", dtype="bf16", attention="eager", batch=4, prompt=128, output=32)
    found = predictions({case: LLAMA.text()}, machine_of("a100-sxm-80gb", "hf-eager"))
    est: Any = rooflm.infer("llama-7b", gpu="a100-sxm-80gb", engine="hf-eager", batch=4, prompt=128, output=32,
                            quant="bf16", sets={"engine.decode_flash": False})  # fmt: skip
    assert found[case.key, "ttft_s"] == pytest.approx(float(est.ttft), rel=1e-9)
    assert found[case.key, "tpot_s"] == pytest.approx(float(est.tpot), rel=1e-9)
    assert found[case.key, "memory_bytes"] == pytest.approx(float(est.memory.total), rel=1e-9)


def test_together_is_one_by_one() -> None:
    machine = machine_of("h100-sxm-80gb", "hf-eager")
    cases = [Case(model="m", dtype="bf16", batch=b, prompt=p, tp=t) for b in (1, 8) for p in (32, 512) for t in (1, 2)]
    whole = predictions(dict.fromkeys(cases, LLAMA.text()), machine)
    for case in cases:
        alone = predictions({case: LLAMA.text()}, machine)
        for key, value in alone.items():
            assert whole[key] == pytest.approx(value, rel=1e-12)


def test_communication_of_uneven_heads_is_that_of_the_whole() -> None:
    smol = Shape(576, 49152, 30, 9, 3, 64, 1536, 1)
    case = Case(model="s", dtype="fp32", tp=2, batch=2, prompt=8)
    found = predictions({case: smol.text()}, machine_of("a100-sxm-80gb", "hf-eager"))
    # two reductions a layer of 16 rows of 576 values, and the gathered logits; hf-eager keeps the whole embedding
    assert found[case.key, "prefill_comm_bytes"] == 60 * 16 * 576 * 4 + 2 * 49152 * 4 / 2


def test_the_command_compares_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(model="llama-7b", dtype="bf16")
    rows = [Row(case, "ttft_s", "s", one(0.05), LLAMA.text()), Row(case, "tpot_s", "s", one(0.03), LLAMA.text())]
    table, plot, out = tmp_path / "r.csv", tmp_path / "p.png", tmp_path / "pairs.csv"
    results.write(table, rows)
    assert main(["compare", str(table), "--gpu", "a100", "--plot", str(plot), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "1 cases" in said and "tpot_s" in said
    assert plot.stat().st_size > 5000 and len(out.read_text(encoding="utf-8").splitlines()) == 3
    assert main(["compare", str(table), "--gpu", "a100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {p["metric"]: p["measured"] for p in told["pairs"]} == {"ttft_s": 0.05, "tpot_s": 0.03}
    assert told["by_metric"]["tpot_s"]["rows"] == 1


def test_nothing_to_compare_is_told() -> None:
    row = Row(Case(task="micro"), "gemm_s", "s", one(1.0), m=1, n=1, k=1)
    with pytest.raises(RooflmError, match="no case that can be predicted"):
        pairs([row], machine_of("a100-sxm-80gb"))


def test_figures_show_cells_that_failed() -> None:
    def row(batch: int, prompt: int, status: str = "ok") -> Row:
        return Row(Case(model="m", batch=batch, prompt=prompt), "latency_s", "s", one(batch * 1.0), status=status)

    grid = as_grid([row(1, 8), row(2, 8), row(1, 16), row(2, 16, "oom")])
    assert [a.name for a in grid.axes] == ["batch", "prompt"]
    assert grid.arrays["fits"].tolist() == [[True, True], [True, False]]
    assert grid.arrays["reason"][1, 1] == "out of memory" and np.isnan(grid.arrays["latency_s"][1, 1])


VLLM = {"model_id": "meta-llama/Llama-2-7b-hf", "num_prompts": 10, "completed": 10, "max_concurrency": 4,
        "total_input_tokens": 1000, "total_output_tokens": 500, "median_ttft_ms": 25.0, "median_tpot_ms": 9.0,
        "p99_tpot_ms": 12.0, "output_throughput": 400.0}  # fmt: skip
GUIDELLM = {"benchmarks": [{"args": {"model": "llama-2-7b"}, "metrics": {
    "prompt_token_count": {"successful": {"median": 128}}, "output_token_count": {"successful": {"median": 64}},
    "request_concurrency": {"successful": {"median": 2.0}}, "request_latency": {"successful": {"median": 0.9}},
    "time_to_first_token_ms": {"successful": {"median": 30.0}},
    "inter_token_latency_ms": {"successful": {"median": 13.0}}}}]}  # fmt: skip
GUIDELLM_08 = {"benchmarks": [{"config": {"backend": {"model": "llama-2-7b"}, "strategy": {"max_concurrency": 8}},
    "metrics": {**GUIDELLM["benchmarks"][0]["metrics"],  # type: ignore[dict-item]
                "request_concurrency": {"successful": {"median": 6.0}}}}]}  # fmt: skip
"""As version 0.8.1 writes it: the streams asked for count, not those that ran at the median moment."""
AIPERF = {"input_config": {"endpoint": {"model_names": ["llama-2-7b"]}, "loadgen": {"concurrency": 2}}, "records": {
    "time_to_first_token": {"unit": "ms", "p50": 30.0}, "inter_token_latency": {"unit": "ms", "p50": 13.0},
    "input_sequence_length": {"p50": 128}, "output_sequence_length": {"p50": 64}}}  # fmt: skip
LLAMA_BENCH = [{"model_filename": "x/llama-2-7b", "n_prompt": 512, "n_gen": 0, "avg_ts": 1024.0},
               {"model_filename": "x/llama-2-7b", "n_prompt": 0, "n_gen": 128, "avg_ts": 50.0}]  # fmt: skip
OPTIMUM = {"config": {"scenario": {"input_shapes": {"batch_size": 2, "sequence_length": 64},
                                   "generate_kwargs": {"max_new_tokens": 11}},
                      "backend": {"model": "llama-2-7b", "torch_dtype": "float16"}},
           "report": {"prefill": {"latency": {"p50": 0.04, "count": 5}, "memory": {"max_allocated": 14000.0}},
                      "decode": {"latency": {"p50": 0.3}}}}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "cases", "times"),
    [
        (VLLM, {(4, 100, 50)}, {"ttft_s": 0.025, "tpot_s": 0.009, "output_tokens_per_s": 400.0}),
        (GUIDELLM, {(2, 128, 64)}, {"ttft_s": 0.03, "tpot_s": 0.013, "latency_s": 0.9}),
        (GUIDELLM_08, {(8, 128, 64)}, {"ttft_s": 0.03, "tpot_s": 0.013, "latency_s": 0.9}),
        (AIPERF, {(2, 128, 64)}, {"ttft_s": 0.03, "tpot_s": 0.013}),
        (LLAMA_BENCH, {(1, 512, 1), (1, 1, 128)}, {"ttft_s": 0.5, "tpot_s": 0.02}),
        (OPTIMUM, {(2, 64, 11)}, {"ttft_s": 0.04, "tpot_s": 0.03, "memory_bytes": 14e9}),
    ],
    ids=["vllm", "guidellm", "guidellm-0.8", "aiperf", "llama-bench", "optimum-benchmark"],
)
def test_results_of_others_are_read(tmp_path: Path, data: Any, cases: set[Any], times: dict[str, float]) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    rows = read_foreign(str(file), Given())
    assert {(r.case.batch, r.case.prompt, r.case.output) for r in rows} == cases
    assert {r.metric: r.stat.value for r in rows} == pytest.approx(times)
    assert pairs(rows, machine_of("a100-sxm-80gb", "vllm"))


def test_the_measured_table_counts_what_is_predicted() -> None:
    rows = results.read(Path(__file__).parents[2] / "docs" / "measured" / "two-cores.csv")
    found = {(r.case, r.rank, r.metric): r.stat.value for r in rows if r.status == "ok"}
    for names, count in ((("prefill_comm_bytes", "decode_comm_bytes", "step_comm_bytes"), 128),
                         (("prefill_flops", "decode_flops"), 64)):  # fmt: skip
        both = [(v, found[case, rank, f"{m}_expected"]) for (case, rank, m), v in found.items() if m in names]
        assert len(both) == count and all(a == b for a, b in both)
    told = {(r.case.dtype, r.case.quant, r.case.tp): r.stat.value for r in rows if r.metric == "perplexity"}
    assert len(told) == 4 and all(abs(v - 15.2) < 0.02 for v in told.values())
    assert (
        found[next(r.case for r in rows if r.case.task == "accuracy" and r.case.tp == 2), -1, "max_logit_error"] < 1e-4
    )


def test_unknown_json_is_told(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(RooflmError, match="no result of vllm bench"):
        read_foreign(str(file), Given())
    file.write_text("{", encoding="utf-8")
    with pytest.raises(RooflmError, match="not valid JSON"):
        read_foreign(str(file), Given())
    file.write_text(json.dumps({**VLLM, "model_id": ""}), encoding="utf-8")
    with pytest.raises(RooflmError, match="give --model"):
        read_foreign(str(file), Given())
