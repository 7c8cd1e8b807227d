"""Tables of sources that nobody has heard of: what their columns say is enough for a score near that of the known."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable

import pytest

from rooflm.readers import rows as catalogue
from rooflm.validation import Request
from rooflm.validation.score import predicted, score
from rooflm.validation.table import read_row
from rooflm_fit.convert.cells import Cells
from rooflm_fit.convert.tables import inference_rows, training_rows

ROWS = 48
SCORED, FARTHER = 0.85, 4.0
"""Least share of the rows that are scored and count; most by which their median error passes that of the rows as they
stand here, in points (launch options of the runs are left out)."""
MEASURED = {
    ("ttft", "ms"): "ttft_ms", ("tpot", "ms"): "tpot_ms", ("latency_s", "s"): "latency_s",
    ("output_tokens_per_s", "tokens/s"): "throughput_out_tok_s",
    ("prefill_tokens_per_s", "tokens/s"): "prefill_tok_s", ("decode_tokens_per_s", "tokens/s"): "decode_tok_s",
    ("step_time_s", "s"): "step_time_s", ("tokens_per_s_per_gpu", "tokens/s"): "tokens_per_s_per_gpu",
}  # fmt: skip
APART = ("doubt", "stand_in", "spread", "sets", "cached", "shared_prefix", "guesses", "prefill_replicas", "replicas",
         "layers", "cluster", "dataset", "rate", "output_limit", "lora_rank", "recompute_modules")  # fmt: skip
"""What the older format has no column for."""


def older_inference(row: Cells) -> Cells:
    weights, _, cache = row["quant"].partition("kv")
    load = f"closed loop; {row['requests'] or 500} requests" if row["concurrency"] else "static batch"
    precision = "fp16" if weights == "w16a16" else weights
    return {"engine": f"{row['engine']} {row['release']}".strip(), "precision_weights": precision,
            "precision_activations": "", "precision_kv": "fp8" if cache == "8" else "",
            "batch": row["concurrency"] or row["batch"], "input_len": row["prompt"], "output_len": row["output"],
            "note": f"trust=B; {load}; measured in {row['date'] or 2024}"}  # fmt: skip


def older_training(row: Cells) -> Cells:
    zero = {"0": "none", "3": "fsdp"}.get(row["zero"], f"zero{row['zero']}" if row["zero"] else "")
    return {"seq": row["seq"], "vp": row["vp"], "cp": row["cp"], "dp": row["dp"], "zero_fsdp": zero,
            "sequence_parallel": row["sp"], "recompute": row["recompute"], "precision": row["dtype"],
            "global_batch": row["batch"], "micro_batch": row["micro_batch"],
            "note": f"run of {row['engine'].rpartition('-20')[0] or row['engine']}"}  # fmt: skip


def own_rows(table: str) -> list[Cells]:
    """Rows of one of the project's tables whose conditions the older format can hold."""
    with (catalogue.DATA / "published" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    whole = [r for r in rows if (r["metric"], r["unit"]) in MEASURED and r["model"] and r["gpu"] and r["tp"]]
    whole = [r for r in whole if not any(r.get(name) for name in APART) and r.get("trust") != "C"]
    if table == "training":
        whole = [r for r in whole if r["recompute"] in ("none", "full", "selective") and r["micro_batch"]]
    return whole[:: max(1, len(whole) // ROWS)][:ROWS]


def median_error(rows: list[Cells]) -> tuple[int, float]:
    """(rows that are scored and count, the median of their errors in per cent)."""
    requests = [found for row in rows if isinstance(found := read_row(row), Request) and not found.apart]
    errors = [100 * abs(one.predicted / one.request.measured - 1) for one in predicted(score(requests))]
    return len(errors), statistics.median(errors)


@pytest.mark.parametrize(
    ("table", "older", "converted"),
    [("servers", older_inference, inference_rows), ("batches", older_inference, inference_rows),
     ("training", older_training, training_rows)],
)  # fmt: skip
def test_rows_of_an_unknown_source_are_scored_by_what_their_columns_say(
    table: str, older: Callable[[Cells], Cells], converted: Callable[[list[Cells]], list[Cells]]
) -> None:
    known = own_rows(table)
    common = ("model", "gpu", "gpus", "tp", "pp", "ep", "value")
    renamed = [
        {"id": f"zz-{n:04}", "source": "a page of somebody", "metric": MEASURED[row["metric"], row["unit"]]}
        | {name: row[name] for name in common}
        | older(row)
        for n, row in enumerate(known)
    ]
    (_, near), (counted, far) = median_error(known), median_error(converted(renamed))
    assert len(known) >= 24 and counted >= SCORED * len(known)
    assert far <= near + FARTHER


@pytest.mark.parametrize(
    ("engine", "want"),
    [("Ollama 0.12.6", ("ollama", "0.12.6")), ("LMDeploy TurboMind v0.9.1", ("lmdeploy", "0.9.1")),
     ("vllm 1.0", ("vllm", "1.0")), ("sglang 0.6", ("sglang", "0.6")), ("trtllm 1.4", ("trtllm", "1.4")),
     ("llama.cpp build 4567 (CUDA)", ("llama.cpp", "b4567")), ("DeepSpeed-FastGen", ("DeepSpeed-FastGen", ""))],
)  # fmt: skip
def test_engines_in_other_words(engine: str, want: tuple[str, str]) -> None:
    cells = inference_rows([ONE | {"engine": engine}])[0]
    assert (cells["engine"], cells.get("release", "")) == want
    assert isinstance(read_row(cells), Request)


ONE = {"id": "zz-1", "source": "a page", "model": "Qwen/Qwen3-32B", "gpu": "NVIDIA H200", "gpus": "2", "tp": "2",
       "pp": "1", "engine": "vllm 0.11.0", "precision_weights": "fp8", "batch": "64", "input_len": "1024",
       "output_len": "512", "metric": "throughput_out_tok_s", "value": "900", "note": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, {"task": "serve", "concurrency": "64"}),
        ({"batch": "64 users", "input_len": "1k", "tp": "TP2"}, {"concurrency": "64", "prompt": "1024", "tp": "2"}),
        ({"batch": "max"}, {"task": "serve", "concurrency": "max", "scheduler": ""}),
        ({"batch": "max", "note": "in-flight batching off"}, {"concurrency": "max", "scheduler": "static"}),
        ({"note": "static batch"}, {"task": "", "batch": "64"}),
        ({"gpu": "8xH100", "gpus": ""}, {"gpu": "h100-sxm-80gb", "gpus": "8", "tp": "2"}),
        ({"gpus": "8", "pp": "", "note": "closed loop"}, {"tp": "2", "pp": "4"}),
        ({"gpus": "", "tp": "4"}, {"tp": "4", "pp": "1"}),
        ({"batch": "", "metric": "tpot_ms"}, {"task": "serve", "concurrency": "1"}),
        ({"batch": "", "metric": "tpot_ms", "note": "offline"}, {"concurrency": "max"}),
        ({"batch": "", "engine": "vllm"}, {"task": "serve", "concurrency": "max"}),
        ({"batch": "", "engine": "TinyChat"}, {"task": "", "batch": "", "doubt": "batch not stated"}),
        ({"engine": "TensorRT-LLM", "model": "Llama 2 7B", "gpu": "A100", "note": "closed loop"}, {"date": "2025-02"}),
        ({"gpu": "H100 x8", "gpus": "2"}, {"gpu": "h100-sxm-80gb"}),
        ({"precision_weights": "NVFP4 (ModelOpt)"}, {"quant": "nvfp4kv8"}),
        ({"precision_weights": "w4a16"}, {"quant": "w4a16"}),
        ({"precision_weights": "UD-Q4_K_XL", "note": "static batch"}, {"quant": "q4_k_m"}),
        ({"engine": "vllm", "source": "A paper, arXiv 2411.00136"}, {"date": "2024-11"}),
        ({"engine": "vllm"}, {"date": "2025-10"}),
        ({"engine": "NIM 1.8.0 (TensorRT-LLM)", "metric": "ttft_ms"}, {"task": "serve", "concurrency": "64"}),
    ],
)
def test_what_the_columns_of_an_unknown_table_mean(changes: dict[str, str], want: Cells) -> None:
    cells = inference_rows([ONE | changes])[0]
    assert {name: cells.get(name, "") for name in want} == want
    assert isinstance(read_row(cells), Request)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"note": "26.08 NeMo Container"}, {"engine": "megatron-bridge", "release": "26.08", "recompute": "none"}),
        ({"source": "runs of torchtitan"}, {"engine": "torchtitan", "sp": "yes"}),
        ({"note": "MaxText on our cluster"}, {"engine": "maxtext", "recompute": "full", "zero": "3"}),
        ({"gpu": "TPU v5e"}, {"engine": "maxtext"}),
        ({"zero_fsdp": "fsdp2"}, {"engine": "fsdp"}),
        ({}, {"engine": "", "recompute": ""}),
        ({"gpus": "", "dp": "32"}, {"gpus": "64"}),
        ({"gpus": ""}, {"gpus": "", "doubt": "number of GPUs not stated"}),
        ({"tp": "", "dp": "32"}, {"tp": "2", "pp": "1", "gpus": "64"}),
        ({"metric": "tflops_per_gpu", "value": "300", "recompute": "full", "note": "HARDWARE FLOPs"},
         {"metric": "step_time_s", "doubt": ""}),
        ({"metric": "tflops_per_gpu", "value": "300", "note": "attention unmasked"},
         {"metric": "model_tflops_per_gpu", "doubt": ""}),
        ({"metric": "tflops_per_gpu", "value": "300"},
         {"doubt": "only a FLOP rate is printed, and not how its FLOPs are counted"}),
    ],
)  # fmt: skip
def test_a_training_table_has_its_frameworks_habits(changes: dict[str, str], want: Cells) -> None:
    row = {"id": "zz-1", "source": "a page", "model": "Llama 3.1 8B", "gpu": "H100", "gpus": "64", "tp": "2", "pp": "1",
           "seq": "8192", "global_batch": "128", "micro_batch": "1", "precision": "bf16", "metric": "step_time_s",
           "value": "5"}  # fmt: skip
    cells = training_rows([row | changes])[0]
    assert {name: cells.get(name, "") for name in want} == want
