"""Benchmark files of other tools: real ones, ones after their writers' sources, and damaged ones."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure.foreign import read_foreign

DATA = Path(__file__).parent / "data"
VLLM = {"backend": "vllm", "model_id": "meta-llama/Llama-2-7b-hf", "num_prompts": 10, "completed": 10,
        "max_concurrency": 4, "request_rate": "inf", "total_input_tokens": 1000, "total_output_tokens": 500,
        "mean_ttft_ms": 26.0, "median_ttft_ms": 25.0, "median_tpot_ms": 9.0, "p99_tpot_ms": 12.0,
        "output_throughput": 400.0}  # fmt: skip
SGLANG = {
    "backend": "sglang",
    "request_rate": 4.0,
    "max_concurrency": None,
    "completed": 8,
    "total_input_tokens": 800,
    "total_output_tokens": 80,
    "mean_ttft_ms": 30.0,
    "mean_tpot_ms": 8.0,
    "mean_e2e_latency_ms": 110.0,
    "server_info": {"version": "0.5.4", "tp_size": 2, "chunked_prefill_size": 4096, "max_running_requests": 64},
}
ONE_BATCH = {"run_name": "default", "batch_size": 16, "input_len": 256, "output_len": 32, "prefill_latency": 0.05,
             "median_decode_latency": 0.009, "total_latency": 0.33}  # fmt: skip
TRTLLM = {"engine": {"model": "llama-2-7b", "version": "1.1.0", "quantization": "FP8", "kv_cache_dtype": "FP8"},
          "machine": {"name": "NVIDIA H100 80GB HBM3"}, "dataset": {},
          "world_info": {"tp_size": 2, "pp_size": 1, "world_size": 2, "max_num_tokens": 8192, "max_batch_size": 256},
          "request_info": {"num_requests": 100, "avg_num_concurrent_requests": 31.6, "avg_input_length": 128.0,
                           "avg_output_length": 64.0},
          "performance": {"avg_request_latency_ms": 700.0, "system_output_throughput_tok_s": 2900.0},
          "streaming_metrics": {"avg_ttft_ms": 40.0, "avg_tpot_ms": 10.0}}  # fmt: skip
LLAMA_BENCH = [{"model_filename": "x/llama-2-7b.gguf", "n_prompt": 512, "n_gen": 0, "avg_ts": 1024.0},
               {"model_filename": "x/llama-2-7b.gguf", "n_prompt": 0, "n_gen": 128, "avg_ts": 50.0}]  # fmt: skip
OPTIMUM = {"config": {"scenario": {"input_shapes": {"batch_size": 2, "sequence_length": 64},
                                   "generate_kwargs": {"max_new_tokens": 11}},
                      "backend": {"model": "llama-2-7b", "torch_dtype": "float16"}},
           "report": {"prefill": {"latency": {"p50": 0.04, "count": 5}, "memory": {"max_allocated": 14000.0}},
                      "decode": {"latency": {"p50": 0.3}}}}  # fmt: skip
INFERENCEX = {"hw": "h200", "tp": 8, "ep": 1, "conc": 64, "model": "llama-3.1-70b", "framework": "trtllm",
              "precision": "fp8", "isl": 1024, "osl": 1024, "output_tput_per_gpu": 300.0, "mean_ttft": 0.4,
              "mean_tpot": 0.02}  # fmt: skip
MLPERF = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 12.5
Mean latency (ns)               : 4000000000
Completed tokens per second                 : 3600.00
Mean First Token latency (ns)               : 250000000
99.00 percentile first token latency (ns)   : 900000000
Mean Time to Output Token (ns)               : 30000000
"""
PRINTED = """INFO 11-01 10:10:10 [x.py:1] Starting: all of them
============ Serving Benchmark Result ============
Successful requests:                     10
Maximum request concurrency:             {clients}
Request rate configured (RPS):           inf
Benchmark duration (s):                  1.25
Total input tokens:                      1000
Total generated tokens:                  500
Output token throughput (tok/s):         400.00
---------------Time to First Token----------------
Mean TTFT (ms):                          26.00
P99 TTFT (ms):                           40.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.00
==================================================
"""
FILES: dict[str, tuple[Any, dict[str, str], dict[str, float]]] = {
    "vllm": (VLLM, {"engine": "vllm", "concurrency": "4", "requests": "10", "prompt": "100", "output": "50"},
             {"ttft": 26.0, "tpot_p50": 9.0, "output_tokens_per_s": 400.0}),
    "printed": (PRINTED.format(clients=4), {"concurrency": "4", "requests": "10", "prompt": "100", "p99": "40.0"},
                {"ttft": 26.0, "tpot": 9.0, "output_tokens_per_s": 400.0}),
    "sglang": (SGLANG, {"engine": "sglang", "release": "0.5.4", "tp": "2", "rate": "4.0", "budget": "4096",
                        "max_sequences": "64"}, {"ttft": 30.0, "tpot": 8.0, "latency_s": 110.0}),
    "one-batch": (ONE_BATCH, {"batch": "16", "prompt": "256"}, {"ttft": 0.05, "tpot": 0.009, "latency_s": 0.33}),
    "trtllm": (TRTLLM, {"gpu": "h100-sxm-80gb", "tp": "2", "concurrency": "32", "quant": "fp8kv8", "budget": "8192"},
               {"ttft": 40.0, "tpot": 10.0, "latency_s": 700.0, "output_tokens_per_s": 2900.0}),
    "llama-bench": (LLAMA_BENCH, {"batch": "1", "prompt": "512"}, {"ttft": 0.5, "tpot": 0.02}),
    "optimum": (OPTIMUM, {"batch": "2", "quant": "fp16"}, {"ttft": 0.04, "tpot": 0.03, "memory_bytes": 14000.0}),
    "inferencex": (INFERENCEX, {"gpu": "h200-sxm-141gb", "tp": "8", "concurrency": "64", "quant": "fp8"},
                   {"ttft": 0.4, "tpot": 0.02, "output_tokens_per_s": 2400.0}),
    "mlperf": (MLPERF, {"rate": "12.5"}, {"ttft": 0.25, "tpot": 0.03, "latency_s": 4.0, "output_tokens_per_s": 3600.0}),
}  # fmt: skip


def write(folder: Path, data: Any) -> str:
    file = folder / "r.json"
    file.unlink(missing_ok=True)  # ext4 brings a file that is written over to disk at once: 7 ms, not 0.2
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("name", FILES)
def test_files_after_the_tools_sources_are_read(tmp_path: Path, name: str) -> None:
    data, cells, times = FILES[name]
    rows = read_foreign(write(tmp_path, data))
    assert {k: rows[0].get(k) for k in cells} == cells
    assert {r["metric"]: float(r["value"]) for r in rows} == pytest.approx(times)


def test_medians_are_told_from_means(tmp_path: Path) -> None:
    """The mean is taken of files that hold both; a file of medians alone says so, with its tails beside them."""
    for data in (VLLM, SGLANG):
        only = {k: v for k, v in data.items() if not k.startswith("mean_")} | {
            "median_ttft_ms": 25.0, "median_e2e_latency_ms": 90.0, "p99_ttft_ms": 60.0}  # fmt: skip
        rows = {r["metric"]: r for r in read_foreign(write(tmp_path, only))}
        assert {"ttft_p50", "latency_p50"} <= rows.keys() and not {"ttft", "tpot", "latency_s"} & rows.keys()
        assert rows["ttft_p50"]["p99"] == "60.0"


def test_a_line_a_run_is_read_too(tmp_path: Path) -> None:
    rows = read_foreign(write(tmp_path, "\n".join(json.dumps(SGLANG | {"max_concurrency": c}) for c in (1, 2))))
    assert [r["concurrency"] for r in rows if r["metric"] == "ttft"] == ["1", "2"]


def test_every_result_in_a_log_is_read(tmp_path: Path) -> None:
    log = "".join(PRINTED.format(clients=c) for c in (1, 2, "not set"))
    rows = read_foreign(write(tmp_path, log.replace("\n", "\r\n")))
    assert [r["concurrency"] for r in rows if r["metric"] == "ttft"] == ["1", "2", "10"]
    with pytest.raises(RooflmError, match="mean_tpot_ms"):
        read_foreign(write(tmp_path, PRINTED.format(clients=1).replace("9.00", "n/a")))


@pytest.mark.parametrize(
    ("name", "ttft", "requests"), [("guidellm-0.8.1", 1416.557, "6"), ("aiperf-0.13.0", 3464.036, "4")]
)
def test_files_that_the_tools_made_are_read(name: str, ttft: float, requests: str) -> None:
    rows = {r["metric"]: r for r in read_foreign(str(DATA / f"{name}.json"))}
    assert rows.keys() == {"ttft", "tpot", "latency_s", "output_tokens_per_s"}
    row = rows["ttft"]
    assert (row["concurrency"], row["requests"], row["prompt"], row["unit"]) == ("2", requests, "64", "ms")
    assert float(row["value"]) == pytest.approx(ttft, abs=1e-3) and float(row["p99"]) > float(row["p10"])


def test_a_rate_of_guidellm_keeps_its_limit_of_clients(tmp_path: Path) -> None:
    data = json.loads((DATA / "guidellm-0.8.1.json").read_text(encoding="utf-8"))
    data["benchmarks"][0]["config"]["strategy"] = {"type_": "poisson", "rate": 2.0, "max_concurrency": 4}
    row = read_foreign(write(tmp_path, data))[0]
    assert (row["rate"], row["concurrency"]) == ("2.0", "4")


def test_a_file_that_vllm_made_is_read() -> None:
    rows = {r["metric"]: r for r in read_foreign(str(DATA / "vllm-0.32.0.json"))}
    told = {m: (round(float(r["value"]), 3), r["unit"]) for m, r in rows.items()}
    assert told == {"ttft": (2270.6, "ms"), "tpot": (152.249, "ms"), "latency_s": (4554.334, "ms"),
                    "output_tokens_per_s": (6.999, "1/s")}  # fmt: skip
    assert [rows["ttft"][c] for c in ("concurrency", "requests", "prompt", "output")] == ["2", "4", "48", "16"]
    assert "engine" not in rows["ttft"]  # the protocol is openai's: what answers is not in the file


def test_what_is_no_result_is_told(tmp_path: Path) -> None:
    for text, rule in (('{"a": 1}', "no result of vllm bench"), ("{", "no result of"), ("[" * 100_000, "no result of"),
                       (json.dumps({**VLLM, "completed": None, "num_prompts": None}), "no request"),
                       (json.dumps({**VLLM, "completed": 0}), "completed is 0, but it must be a whole number >= 1"),
                       (json.dumps({**VLLM, "total_input_tokens": 0}), "r.json: total_input_tokens is 0, but it must"),
                       (json.dumps({**VLLM, "mean_ttft_ms": "x"}), "mean_ttft_ms is 'x', but it must be a number, not"),
                       (json.dumps({**VLLM, "mean_ttft_ms": -1}), "mean_ttft_ms")):  # fmt: skip
        with pytest.raises(RooflmError, match=rule):
            read_foreign(write(tmp_path, text))
    with pytest.raises(RooflmError, match="cannot read"):
        read_foreign(str(tmp_path / "none.json"))
    (tmp_path / "r.json").write_bytes(b"\xff\x00{")
    with pytest.raises(RooflmError, match="UTF-8"):
        read_foreign(str(tmp_path / "r.json"))


BAD: tuple[Any, ...] = (
    None, -1, 0, 1e308, float("nan"), float("inf"), 10**30, "", "x", [], {}, [[1]], True, "1" * 5000,
)  # fmt: skip


def damaged(data: Any, draw: random.Random) -> Any:
    """A copy in which one value, key or part is another."""
    if isinstance(data, dict) and data and draw.random() < 0.9:
        key = draw.choice(list(data))
        if draw.random() < 0.15:
            return {k: v for k, v in data.items() if k != key}
        return {**data, key: damaged(data[key], draw)}
    if isinstance(data, list) and data and draw.random() < 0.8:
        place = draw.randrange(len(data))
        return [*data[:place], damaged(data[place], draw), *data[place + 1 :]]
    return draw.choice(BAD)


def test_damaged_files_end_in_rows_or_in_a_sentence(tmp_path: Path) -> None:
    draw = random.Random(18)
    whole = [data for data, _, _ in FILES.values() if not isinstance(data, str)]
    whole += [json.loads((DATA / f"{n}.json").read_text(encoding="utf-8")) for n in ("guidellm-0.8.1", "aiperf-0.13.0")]
    read = refused = 0
    for _ in range(1500):
        data = draw.choice(whole)
        for _ in range(draw.choice((1, 1, 2, 4))):
            data = damaged(data, draw)
        text = json.dumps(data)
        if draw.random() < 0.15:
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice(("", "\0", "}", '"', "é")) + text[place + draw.randrange(3) :]
        try:
            rows = read_foreign(write(tmp_path, text))
        except RooflmError as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            assert all(0 < float(r["value"]) < float("inf") for r in rows)
            read += 1
    assert read > 300 and refused > 300


def test_results_that_name_no_gpu_ask_for_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(DATA / "vllm-0.32.0.json")]) == 2
    assert "gpu is blank: name the one that they ran on with --gpu" in capsys.readouterr().err
