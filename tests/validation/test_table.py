"""A table of runs becomes requests: a column is an argument, what is missing is a reason or is said, nothing raises."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.errors import RooflmError
from rooflm.validation import METRICS, Request, Skip, describe, published_tables, read_rows
from rooflm.validation.cells import settings_of
from rooflm.validation.columns import COLUMNS
from rooflm.validation.named import engine_row
from rooflm.validation.score import engine_of, score
from rooflm.validation.table import label, parse, read_row, source_names

RUN = {"id": "x-1", "source": "mine", "model": "llama-2-7b", "gpu": "h100", "engine": "vllm", "release": "0.18.0",
       "tp": "2", "quant": "fp8kv8", "batch": "4", "prompt": "128", "output": "32", "metric": "tpot", "value": "5",
       "unit": "ms"}  # fmt: skip


def request(**changes: str) -> Request:
    found = read_row(RUN | changes)
    assert isinstance(found, Request), found
    return found


def reason(**changes: str) -> str:
    found = read_row(RUN | changes)
    assert isinstance(found, Skip), found
    return found.reason


def test_a_row_is_the_arguments_of_a_command() -> None:
    got = request()
    assert got.kwargs == {
        **{"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "tp": 2, "quant": "fp8kv8", "batch": 4, "prompt": 128},
        **{"output": 32, "engine": "vllm-0.18"},
    }
    assert (got.task, got.metric, got.measured, got.source) == ("infer", "tpot", 0.005, "mine")
    assert got.assumed == () and got.apart == "" and got.group == ("llama-2-7b", "h100-sxm-80gb")
    assert got.engine == "vllm 0.18.0" and got.release == "0.18.0"


def test_a_load_makes_it_a_run_of_serve_and_its_options_are_the_servers() -> None:
    got = request(concurrency="16", spread="0.8,1", budget="4096", static_fraction="0.85", prefix_caching="yes")
    assert got.task == "serve" and "batch" not in got.kwargs
    assert got.kwargs["options"] == {"budget": 4096, "static_fraction": 0.85, "prefix_caching": True}
    assert (got.kwargs["concurrency"], got.kwargs["spread"]) == (16, (0.8, 1.0))
    assert request(rate="2.5").kwargs["rate"] == 2.5
    both = request(rate="2.5", concurrency="16")
    assert both.task == "serve" and (both.kwargs["rate"], both.kwargs["concurrency"]) == (2.5, 16)
    endless = request(rate="inf", concurrency="16").kwargs
    assert endless["concurrency"] == 16 and "rate" not in endless
    burst = request(rate="inf", requests="30").kwargs
    assert burst["concurrency"] == burst["requests"] == 30 and "rate" not in burst
    assert request(task="serve").kwargs["concurrency"] == "max"
    assert request(concurrency="max").assumed == () != request(task="serve").assumed


TRAIN = {"model": "llama-2-7b", "gpu": "a100", "engine": "megatron", "gpus": "16", "tp": "2", "pp": "2", "batch": "64",
         "seq": "4096", "micro_batch": "1", "recompute": "full", "zero": "1", "metric": "step_time_s", "value": "3",
         "recompute_modules": "layernorm,moe_act", "sp": "yes"}  # fmt: skip


def test_training_columns_are_the_arguments_of_train() -> None:
    got = read_row(TRAIN)
    assert isinstance(got, Request) and got.task == "train"
    assert got.kwargs["recompute_modules"] == ("layernorm", "moe_act") and got.kwargs["sp"] is True
    assert (got.kwargs["gpus"], got.kwargs["zero"], got.assumed) == (16, "1", ())
    memory = read_row(TRAIN | {"metric": "memory_bytes", "value": "30", "unit": "GiB"})
    assert isinstance(memory, Request) and memory.task == "train" and memory.measured == 30 * 2**30


def test_paths_are_set_by_one_column_or_by_a_column_each() -> None:
    row = RUN | {"sets": "engine.step=0.002; quant.kv_bits=16", "set:engine.waves": "false"}
    assert settings_of(row) == {"engine.step": 0.002, "quant.kv_bits": 16.0, "engine.waves": False}
    assert request(**{"set:engine.step": "0.002"}).kwargs["sets"] == {"engine.step": 0.002}
    slow, fast = (score([request(**{"set:engine.step": v})])[0].predicted for v in ("0.02", "0.0001"))
    assert slow > fast + 0.015


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"metric": ""}, "metric is blank"),
        ({"metric": "tpots"}, "metric is 'tpots': did you mean 'tpot'?"),
        ({"value": "nan"}, "tpot is 'nan', but a measurement must be a number above 0"),
        ({"value": "-1"}, "tpot is '-1', but a measurement must be a number above 0"),
        ({"value": ""}, "tpot is blank, but a measurement must be a number above 0"),
        ({"dataset": "sharegp"}, "dataset is 'sharegp': did you mean 'sharegpt'?"),
        ({"unit": "GB"}, "unit is 'GB', but that of tpot must be one of s, ms, us, min"),
        ({"model": ""}, "model is blank"),
        ({"gpu": ""}, "gpu is blank"),
        ({"model": "nobody"}, "model nobody is not in the catalogue: give layers, hidden, heads and ffn, or params"),
        (
            {"model": "lama-3.1"},
            "model lama-3.1 is not in the catalogue: did you mean llama-3.1-8b? Else give layers, hidden, heads and "
            "ffn, or params",
        ),
        (  # which of its sizes?
            {"model": "Qwen3"},
            "model Qwen3 is not in the catalogue: did you mean qwen3-4b? Else give layers, hidden, heads and ffn, or "
            "params",
        ),
        ({"gpu": "Abacus"}, "gpu Abacus is not in the catalogue: give peak, bandwidth and memory, or like"),
        ({"tp": "two"}, "tp is 'two', but it must be a whole number of at least 0"),
        ({"tp": "1.5"}, "tp is '1.5', but it must be a whole number of at least 0"),
        ({"acceptance": "-1"}, "acceptance is '-1', but it must be a number of at least 0"),
        ({"sets": "engine.step"}, "sets is not PATH=VALUE;PATH=VALUE"),
        ({"cached": "128"}, "cached is not below prompt"),
        ({"task": "dance"}, "task is 'dance', but it must be one of infer, serve, train"),
    ],
)
def test_what_cannot_be_scored_says_what_is_missing(changes: dict[str, str], why: str) -> None:
    assert reason(**changes) == why


def test_a_table_of_ones_own_may_be_wide_and_its_headings_in_any_case() -> None:
    rows = parse("Model,GPU,Engine,Batch,Prompt,Output,TTFT_ms,TPOT_ms\n\nllama-2-7b,h100,vllm,4,128,32,90,\n"
                 "llama-2-7b,h100,vllm,4,128,32,80,7\n")  # fmt: skip
    told = [(r.id, r.metric, r.measured, r.assumed) for r in rows if isinstance(r, Request)]
    assert told == [("line 3", "ttft", 0.09, ()), ("line 4", "ttft", 0.08, ()), ("line 4", "tpot", 0.007, ())]
    one = read_row({k: v for k, v in RUN.items() if k != "unit"} | {"metric": "tpot_ms"})
    assert isinstance(one, Request) and one.measured == 0.005  # the unit in the name of the metric


def test_names_of_other_tools_are_read_as_ours(capsys: pytest.CaptureFixture[str]) -> None:
    (got,) = parse("Model,accelerator,framework,batch_size,isl,osl,seq_len,nodes,tpot_ms\n"
                   "llama-2-7b,2x A100 80GB,vllm,4,128,32,9,4,7\n", "mine.csv")  # fmt: skip
    assert isinstance(got, Request)
    assert got.kwargs | {"gpu": "a100-sxm-80gb", "gpus": 2, "batch": 4, "prompt": 128, "output": 32} == got.kwargs
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "rooflm: mine.csv: column 'accelerator' is read as 'gpu'" and len(said) == 7
    assert said[-2:] == ["rooflm: mine.csv: column 'seq_len' is not read: did you mean 'prompt' or 'seq'?",
                         "rooflm: mine.csv: column 'nodes' is not read: did you mean 'gpus'?"]  # fmt: skip


def test_headings_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    first, rest = parse("Model,GPU,# GPUs,Input len,Mean TTFT (ms),ITL [ms],Throughput (tok/s)\n"
                        "llama-2-7b,A100 80GB,2,128,20,7,300\n", "mine.csv")  # fmt: skip
    assert isinstance(first, Request) and isinstance(rest, Request)
    assert [(r.metric, r.measured) for r in (first, rest)] == [("ttft", 0.02), ("tpot", 0.007)]
    assert first.kwargs["gpus"] == 2 and first.kwargs["prompt"] == 128
    assert "column 'Throughput (tok/s)' is not read: did you mean 'output_tokens_per_s'" in capsys.readouterr().err
    run, share = parse("model;gpu;gpus;batch;seq_len;precision;step time (s);MFU\n"
                       "llama-2-7b;a100;8;64;4096;bf16;14,25;43%\n", "mine.csv")  # fmt: skip
    assert isinstance(run, Request) and isinstance(share, Request)
    assert (run.measured, run.kwargs["seq"], run.kwargs["dtype"], share.measured) == (14.25, 4096, "bf16", 0.43)
    with pytest.raises(RooflmError, match="'tokens/s' may be output_tokens_per_s or "):
        parse("model,gpu,tokens/s\nllama-2-7b,a100,20\n")


PRINTED = {
    "Mean TTFT (ms)": "ttft", "Median TTFT (ms)": "ttft_p50", "P99 TTFT (ms)": "ttft_p99",
    "Mean E2EL (ms)": "latency_s",
    "median_ttft_ms": "ttft_p50", "p99_itl_ms": "itl_p99", "mean_itl_ms": "tpot", "median_e2el_ms": "latency_p50",
    "p90_e2e_latency_ms": "latency_p90", "Inter Token Latency (ms) p95": "tpot_p95", "TPOT p90 [ms]": "tpot_p90",
    "ttft_p50_ms": "ttft_p50", "TTFT (s, avg)": "ttft", "ttft_ms_p95": "ttft_p95", "p50 latency": "latency_p50",
    "request_throughput": "requests_per_s", "Total token throughput (tok/s)": "total_tokens_per_s",
    "Output token throughput (tok/s)": "output_tokens_per_s", "memory (GiB)": "memory_bytes",
}  # fmt: skip
"""Headings of the serving benchmarks of vLLM and SGLang, of aiperf and guidellm, and of people -> the metric."""


@pytest.mark.parametrize("heading", PRINTED)
def test_a_statistic_is_part_of_the_metric(heading: str) -> None:
    wide = parse(
        f"model,gpu,engine,concurrency,prompt,output,{heading.replace(',', ' ')}\nllama-2-7b,h100,vllm,4,128,32,9\n"
    )
    assert [o.metric for o in wide if isinstance(o, Request)] == [PRINTED[heading]]
    assert request(metric=heading, unit="", concurrency="4").metric == PRINTED[heading]


def test_a_percentile_that_nobody_predicts_is_told_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert reason(metric="p75_ttft_ms").endswith("did you mean 'ttft_p50' or 'ttft_p90' or 'ttft_p95'?")
    rows = parse("model,gpu,tpot_ms,P75 ITL (ms),std_ttft_ms,p99_throughput\nllama-2-7b,h100,9,9,9,9\n")
    said = capsys.readouterr().err
    assert len(rows) == 1 and "'P75 ITL (ms)' is not read: did you mean 'itl_p50' or 'itl_p90'" in said
    assert "'std_ttft_ms' is not read\n" in said and "'p99_throughput' is not read" in said


def test_what_a_benchmark_wrote_is_answered_by_the_command_that_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text(' {"backend": "vllm", "median_ttft_ms": 9}', encoding="utf-8")
    with pytest.raises(RooflmError, match=r"is JSON, but a table is .* `rooflm compare .*r.json --gpu GPU` scores"):
        read_rows(file)
    with pytest.raises(RooflmError, match=r"has a row a metric, but .* a row a run"):
        parse("Metric,avg,min,max,p99,p90,p50\nTime To First Token (ms),50,40,60,59,57,50\n")


def test_sizes_and_figures_as_people_write_them() -> None:
    sizes = "layers,hidden_size,heads,intermediate_size,gpu,peak,bandwidth,memory,prompt,output,tpot_ms\n"
    (own,) = parse(f"model,{sizes}weird-9b,40,4096,32,14336,acme,400 TFLOP/s,2 TB/s,48 GB,64,64,8\n")
    assert isinstance(own, Request) and own.kwargs["model"]["ffn"] == 14336
    assert own.kwargs["sets"]["cluster.device.dram.bandwidth"] == 2e12
    (lacks,) = parse("model,layers,hidden,gpu,prompt,output,tpot_ms\nweird-9b,40,4096,a100,64,64,8\n")
    assert isinstance(lacks, Request) and "nor made of its sizes without heads and ffn" in " ".join(lacks.assumed)


def test_a_run_on_one_card_has_no_split_to_state() -> None:
    alone = read_row({"model": "llama-2-7b", "gpu": "a100", "gpus": "1", "batch": "8", "seq": "2048",
                      "recompute": "full", "micro_batch": "1", "metric": "step_time", "value": "3"})  # fmt: skip
    assert isinstance(alone, Request) and alone.assumed == ("engine not stated: megatron",)


def test_what_a_row_leaves_out_is_said_and_such_rows_are_counted_apart() -> None:
    bare = {k: v for k, v in RUN.items() if k not in ("batch", "prompt", "output", "engine", "release")}
    got = read_row(bare)
    assert isinstance(got, Request)
    assert got.assumed == (
        *("engine not stated: vllm", "batch not stated: 1", "prompt not stated: 512", "output not stated: 128"),
    )
    assert request(metric="ttft", output="").assumed == ()  # one token is all that a first token needs
    left = {k: v for k, v in TRAIN.items() if k not in ("gpus", "micro_batch", "batch", "recompute",
                                                        "recompute_modules")}  # fmt: skip
    train = read_row(left)
    assert isinstance(train, Request)
    assert [a.split(" not stated")[0] for a in train.assumed] == ["gpus", "micro_batch", "recompute", "batch"]


def test_own_sizes_make_a_model_and_counts_find_the_nearest() -> None:
    sizes = {"layers": "48", "hidden": "6144", "heads": "48", "ffn": "24576", "vocab": "51200", "gated": "no"}
    own = request(model="mine-20b", **sizes)
    assert own.kwargs["model"]["layers"] == 48 and own.group[0] == "mine-20b" and own.assumed == ()
    near = request(model="mine-30b-a3b", params="30.53e9", active="3.35e9")
    assert near.kwargs["model"] == "qwen3-30b-a3b" and near.assumed[0].startswith("model mine-30b-a3b is not in")
    told = request(model="Qwen/Qwen9-410B-A20B")  # counts as the name tells, of the same series first
    assert told.kwargs["model"] == "qwen3.5-397b-a17b" and told.assumed[0].endswith("qwen3.5-397b-a17b stands in")
    large = {name: request(model=f"somebody/{name}").kwargs["model"] for name in ("New-675B", "New-1T", "New-70B")}
    assert list(large.values()) == ["mistral-large-3-675b", "ling-1t", "llama-3-70b"]  # a large one has experts
    fp8 = request(model="somebody/New-32B-FP8", quant="")  # a stand-in runs in the scheme that the name tells
    assert fp8.kwargs["quant"] == "fp8" and request(model="x/New-32B-FP8").kwargs["quant"] == "fp8kv8"
    experts = request(model="mine-moe", **sizes, experts="64", top_k="8", expert_ffn="1024", dense_layers="2")
    told = {
        "metric": "memory_bytes",
        "value": "9e9",
        "unit": "B",
        "sets": "engine.sampled=0",
    }  # no trial of a full pass
    held = [score([request(model="m", **told, **sizes, **extra)])[0].predicted
            for extra in ({}, {"experts": "64", "top_k": "8", "expert_ffn": "1024", "dense_layers": "2"})]  # fmt: skip
    assert held[1] - held[0] == pytest.approx(46 * 2 * 6144 * (64 * 1024 - 24576) / 2, rel=0.05)  # fp8, tp 2
    assert score([experts])[0].predicted > 0


def test_own_figures_make_a_device_out_of_the_nearest() -> None:
    own = {"bandwidth": "1e12", "peak": "100e12", "memory": "48e9"}
    got = request(gpu="mine", tp="1", **own)
    assert got.assumed and "own rates" in got.assumed[0] and got.group[1] == "mine"
    assert got.kwargs["sets"]["cluster.device.dram.bandwidth"] == 1e12
    like = request(gpu="mine", tp="1", like="h100", **own)
    assert like.kwargs["gpu"] == "h100-sxm-80gb"
    wider = request(gpu="mine", tp="1", like="h100", **own | {"bandwidth": "4e12"})
    assert score([like])[0].predicted > 1.05 * score([wider])[0].predicted


def test_a_checkpoint_of_its_own_name_is_its_model() -> None:
    for name, model in (
        ("Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("mistral-small3.2:24b", "mistral-small-24b"),
    ):
        found = request(model=name)
        assert found.assumed == () and found.group[0] == model


def test_a_card_that_nobody_knows_is_the_nearest_of_its_series() -> None:
    got = request(gpu="H300 SXM 192GB", tp="1")
    assert got.kwargs["gpu"] == "h200-sxm-141gb" and got.group[1] == "H300 SXM 192GB"
    assert got.assumed == ("gpu H300 SXM 192GB is not in the catalogue: h200-sxm-141gb stands in",)
    typed = ("gpu h1oo is not in the catalogue: did you mean h100? Else h100-sxm-80gb stands in",)
    assert request(gpu="h1oo").assumed == request(gpu="8 x h1oo").assumed == typed
    eight = request(gpu="", gpus="8x h1oo", tp="8")
    assert eight.kwargs["gpus"] == 8 and eight.assumed == typed
    assert request(gpu="H300", tp="1", like="b200").kwargs["gpu"] == "b200-sxm-180gb"
    for machine, card in (("A3 Mega (H100)", "h100-sxm-80gb"), ("Dell Pro Max GB10", "gb10")):
        assert request(gpu=machine, tp="1").kwargs["gpu"] == card


@pytest.mark.parametrize(("card", "near"), [("R200", "gb300"), ("Ascend 910B", "a100-sxm-80gb"), ("MI455X", "mi355x")])
def test_a_card_whose_nearest_row_is_known_is_scored_with_it_in_a_wide_band(card: str, near: str) -> None:
    ask = {"gpu": card, "tp": "1", "quant": "bf16"}
    got = request(**ask)
    assert got.kwargs["gpu"] == near and got.group[1] == card
    assert got.assumed[0].startswith(f"gpu {card} is not in the catalogue: {near} stands in (")
    own = score([request(**ask | {"gpu": near})])[0]
    guessed = score([got])[0]
    assert guessed.predicted == own.predicted and guessed.high / guessed.low > own.high / own.low
    assert "give peak" in reason(gpu="Foobar")


def test_words_that_tell_no_types_leave_them_to_the_checkpoint() -> None:
    for word in ("auto", "mixed", "mixed precision", "compressed-tensors", "default"):
        got = request(quant=word, tp="1")
        assert got.assumed[0] == f"quant not stated by {word!r}: the checkpoint's own, else 16 bits"
        assert score([got])[0].predicted == score([request(quant="bf16", tp="1")])[0].predicted
    narrow = [score([request(model="gpt-oss-20b", tp="1", quant=q)])[0] for q in ("auto", "mxfp4")]
    assert narrow[0].predicted == narrow[1].predicted and narrow[0].where == "far"
    assert "quant" not in request(model="RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", quant="compressed-tensors").kwargs


def test_an_unknown_engine_is_scored_with_the_default_and_says_so() -> None:
    got = request(engine="mystery")
    assert got.kwargs["engine"] == "vllm" and got.assumed == ("engine mystery is not in the catalogue: vllm stands in",)
    assert request(stand_in="engine vllm for mystery").assumed == ("engine vllm for mystery",)


@pytest.mark.parametrize(
    ("name", "release", "row"),
    [
        ("trtllm", "0.5.0", "trtllm-0.5"),
        ("trtllm", "nemo", "trtllm-nemo"),
        ("vllm", "2024", "vllm-2024"),
        ("vllm", "0.18.0", "vllm-0.18"),
        ("vllm", "0.24.0", "vllm"),
        ("vllm", "0.99", "vllm-0.28"),
        ("vllm", "0.4.2", "vllm-2024"),
        ("vllm", "0.6.3", "vllm-0.6"),
        ("vllm", "0.7.0", "vllm-0.7.0"),
        ("vllm", "0.7.3", "vllm-2024-11"),
        ("vllm", "0.8.0", "vllm-0.8"),
        ("vllm", "0.10.2", "vllm-0.10.2"),
        ("sglang", "0.5.12", "sglang-0.5.11"),
        ("llama.cpp-rocm", "b7423", "llama.cpp-rocm-2025-12"),
        ("llama.cpp-rocm", "b9187", "llama.cpp-rocm"),
        ("llama.cpp-vulkan-rocm", "b7423", "llama.cpp-vulkan-rocm-2025-08"),
        ("llama.cpp-vulkan-rocm", "b8100", "llama.cpp-vulkan-rocm-2026-01"),
        ("llama.cpp-vulkan-rocm", "b8400", "llama.cpp-vulkan-rocm"),
        ("trtllm", "0.14", "trtllm-0.17"),
        ("sglang", "0.4.9", "sglang-0.5.2"),
        ("sglang", "0.5.18", "sglang-0.5.14"),
        ("sglang", "0.6.0", "sglang-0.5.20"),
        ("vllm", "1.0", "vllm-0.28"),
        ("vllm", "v0.10.1", "vllm-0.8"),
        ("vllm", "0.3", "vllm-2024"),
        ("megatron", "0.8", "megatron-2024"),
        ("megatron", "0.13", "megatron"),
        ("sglang", "0.5.6.post2", "sglang-0.5.6"),
        ("sglang", "0.5.10.post1", "sglang-0.5.10"),
        ("sglang", "0.5.12", "sglang-0.5.11"),
        ("sglang", "nightly-dev", "sglang"),
        ("llama.cpp", "2024-05", "llama.cpp-2024-05"),
        ("tinychat", "1.0", "tinychat"),
        ("fastertransformer", "2022", "fastertransformer"),
        ("megatron", "core 0.6", "megatron-2024"),
        ("nobody", "1", None),
    ],
)
def test_release_to_engine_row(name: str, release: str, row: str | None) -> None:
    assert engine_row(name, release) == row


def test_a_framework_takes_its_row_by_date() -> None:
    found = [engine_row("megatron", "", date) for date in ("2021-04", "2022-06", "2023-10", "2024-05", "2025-06")]
    assert found == ["megatron-2021", "megatron-2022", "megatron-2023", "megatron-2024", "megatron"]
    rows = [engine_row("torchtitan", "", date) for date in ("2024-12", "2025-08", "2026-07")]
    assert rows == ["torchtitan-2024", "torchtitan-2025", "torchtitan"]


def test_amd_takes_the_rocm_build() -> None:
    assert engine_of(request(gpu="mi300x", release="2024")) == "vllm-2024-rocm"
    assert engine_of(request(release="2024")) == "vllm-2024"


def test_a_build_has_releases_of_its_own() -> None:
    assert engine_of(request(gpu="mi300x", release="0.18.0", engine="vllm")) == "vllm-0.14-rocm"
    assert engine_of(request(gpu="mi300x", release="0.20.0", engine="vllm")) == "vllm-0.20-rocm"
    assert engine_of(request(gpu="mi300x", release="", date="2026-04", engine="vllm")) == "vllm-0.20-rocm"
    card = {"gpu": "radeon-ai-pro-r9700-32gb", "release": "b7423"}
    assert engine_of(request(**card, engine="llama.cpp")) == "llama.cpp-rocm-2025-12"
    assert engine_of(request(**card, engine="llama.cpp-vulkan")) == "llama.cpp-vulkan-rocm-2025-08"
    assert engine_of(request(gpu="rtx-4090", release="b7423", engine="llama.cpp-vulkan")) == "llama.cpp-vulkan-2026-01"


def test_a_doubt_and_a_grade_set_a_row_apart() -> None:
    assert request(doubt="odd").apart == "odd" and request(trust="C").apart == "graded C by its table"
    assert request(trust="B").apart == ""


def test_notes_are_never_read() -> None:
    plain, noted = request(), request(note="trust=C; tp 8, batch 64; speculative; QPS=3; moe_ep=8")
    assert (plain.kwargs, plain.apart, plain.task) == (noted.kwargs, noted.apart, noted.task)


def test_labels_and_columns_group_requests() -> None:
    rows = [request(), request(gpu="l40s", tp="1")]
    assert [label(r, "gpu") for r in rows] == ["h100-sxm-80gb", "l40s"] and label(rows[0], "metric") == "tpot"
    assert [label(r, "tp") for r in rows] == ["2", "1"] and label(rows[0], "pp") == "blank"


def test_own_tables_are_read_whole() -> None:
    outcomes = [o for path in published_tables() for o in read_rows(path)]
    ids = [o.id for o in outcomes]
    assert len(ids) == len(set(ids)) > 6_000
    assert not [o for o in outcomes if isinstance(o, Skip)]
    requests = [o for o in outcomes if isinstance(o, Request)]
    assert {o.metric for o in requests} <= METRICS.keys()
    assert sum(not o.apart and not o.assumed for o in requests) > 440
    assert sum(o.source == "optimus" for o in outcomes) == 11 + 22


def test_tables_as_strangers_write_them() -> None:
    """A title above the header, Markdown, Excel's own line, decimal commas, units in cells, llama-bench's columns."""
    plain = "Model,GPU,batch,prompt,output,tpot_ms\nllama-2-7b,h100,bs=8,1024 tokens,64,9.5\n"
    marked = (
        "| model | gpu | batch | prompt | output | tpot |\n|--|--|--|--|--|--|\n|llama-2-7b|h100|8|1024|64|9.5 ms|\n"
    )
    excel = "sep=;\nmodel;gpu;batch;prompt;output;tpot\nllama-2-7b;H100 80GB SXM5;8;1024;64;9,5 ms\n"
    for text in (plain, "Our runs,,,,,\n\n" + plain, marked, excel):
        (found,) = parse(text)
        assert isinstance(found, Request), found
        assert (found.measured, found.kwargs["gpu"]) == (pytest.approx(0.0095), "h100-sxm-80gb")
        assert (found.kwargs["batch"], found.kwargs["prompt"]) == (8, 1024)
    bench = parse("model,gpu,engine,pp512 (t/s),tg128\nllama-2-7b,rtx-4090,llama.cpp,9500,150\n")
    told = [(r.metric, r.kwargs["prompt"]) for r in bench if isinstance(r, Request)]
    assert told == [("prefill_tokens_per_s", 512), ("decode_tokens_per_s", 1)]
    deep = parse("model,gpu,prompt,pp512 @ d4096,tg128 @ d4096,pp512+tg128\nllama-2-7b,rtx-4090,,8000,120,900\n")
    told = [(r.metric, r.kwargs["prompt"], r.kwargs.get("cached")) for r in deep if isinstance(r, Request)]
    assert told == [("prefill_tokens_per_s", 4608, 4096), ("decode_tokens_per_s", 4097, None)]
    assert request(date="03/2025", engine="vLLM (0.9.1)", release="").kwargs["engine"] == "vllm-0.8"


THREE = ("gpus", "tp", "prompt", "output", "seq")


def test_no_figure_stands_in_two_sources() -> None:
    """Pages repeat one another: a number of four digits and more, of one model on one card, is one measurement, in
    whatever unit and however rounded; of three digits where lengths and the split are the same, too."""
    of: dict[tuple[str, ...], set[str]] = {}
    for path in published_tables():
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        for row in rows:
            digits = len(row["value"].replace(".", "").strip("0"))
            same = ("metric", "model", "gpu", "batch", "concurrency", *(THREE if digits == 3 else ()))
            cells = tuple(row.get(name) or "" for name in same)
            if digits > 2:
                figure = f"{float(row['value']) * (1e-3 if row['unit'] == 'ms' else 1):.4g}"
                of.setdefault((figure, *cells), set()).add(row["source"])
    assert not {cells: sources for cells, sources in of.items() if len(sources) > 1}


def test_titles_of_sources_differ() -> None:
    titles = list(source_names().values())
    assert len(titles) == len(set(titles))


def test_own_tables_hold_a_citation_a_row_and_documented_columns() -> None:
    for path in published_tables():
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert all(len(row["url"]) > 10 and row["value"] for row in rows), path
        assert set(rows[0]) <= set(COLUMNS), path


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(
        RooflmError, match="lacks the columns model and metric and value, or a column of a metric, such as tpot_ms"
    ):
        read_rows(tmp_path / "a.csv")
    with pytest.raises(RooflmError, match="cannot read table"):
        read_rows(tmp_path / "missing.csv")


def test_a_column_that_nobody_reads_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(parse("model,metric,value,promt\nllama-7b,ttft,1,8\n", "t.csv")) == 1
    assert capsys.readouterr().err == "rooflm: t.csv: column 'promt' is not read: did you mean 'prompt'?\n"


_CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "-3", "1e400", "nan", "inf", "max", "8", "2048", "fp8", "a=b", "0.8,1", "yes"]),
    st.text(max_size=12),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(COLUMNS)), _CELLS), st.sampled_from([RUN, TRAIN, RUN | {"rate": "1"}]))
def test_no_cell_raises(cells: dict[str, str], base: dict[str, str]) -> None:
    assert isinstance(read_row(base | cells), Request | Skip)


SMALL = ["1", "2", "3", "8", "0", "fp8", "int4", "none", "yes", "0.5", "", "gpipe", "1e9", "static", "engine.step=-1"]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(COLUMNS)), st.sampled_from(SMALL), max_size=4),
       st.sampled_from([RUN, TRAIN]))  # fmt: skip
def test_no_row_ends_a_scoring(cells: dict[str, str], base: dict[str, str]) -> None:
    row = base | {k: v for k, v in cells.items() if k not in ("gpus", "batch", "prompt", "output", "requests")}
    found = read_row(row)
    if isinstance(found, Request) and found.task != "serve":
        (x,) = score([found])
        assert x.reason or x.predicted == x.predicted


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises_after_a_header(body: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(COLUMNS)
    assert isinstance(parse(buffer.getvalue() + body), list)


def test_statistics_by_hand() -> None:
    got = describe(
        [10.0, 20.0, 40.0, 100.0], [11.0, 18.0, 40.0, 50.0], low=[9.0, 19.0, 30.0, 60.0], high=[12.0, 21, 39, 90]
    )
    assert got["rows"] == 4
    assert got["mape"] == pytest.approx((0.1 + 0.1 + 0.0 + 0.5) / 4)
    assert got["median_ape"] == pytest.approx(0.1)
    assert got["p90_ape"] == pytest.approx(0.1 + 0.7 * 0.4)
    assert got["bias"] == pytest.approx((0.1 - 0.1 + 0.0 - 0.5) / 4)
    assert got["coverage"] == 0.5


def test_errors_of_nothing() -> None:
    assert describe([], []) == {"rows": 0} | dict.fromkeys(("mape", "median_ape", "p90_ape", "bias", "coverage"))
    with pytest.raises(ValueError, match="2 measured values, but 1"):
        describe([1.0, 2.0], [1.0])


def test_a_data_set_says_the_lengths_that_a_row_leaves_blank() -> None:
    blank = {"prompt": "", "output": "", "dataset": "ShareGPT"}
    named = request(**blank, concurrency="8", batch="")
    whole = {"prompt": 220, "output": 200, "prompt_limit": 1024, "output_limit": 1024}
    assert named.task == "serve" and {k: named.kwargs[k] for k in whole} == whole
    assert not any("not stated" in one for one in named.assumed if one.startswith(("prompt", "output")))
    own = request(**blank | {"output": "90"}, concurrency="8", batch="")
    assert own.kwargs["output"] == 90 and own.kwargs["prompt"] == 220
    spread = request(**blank | {"spread": "0.5,1.5"}, concurrency="8", batch="")
    assert spread.kwargs["spread"] == (0.5, 1.5) and "prompt_limit" not in spread.kwargs
    longer = request(**blank | {"prompt": "2000", "output": "1500"}, concurrency="8", batch="")
    assert longer.kwargs["prompt"] == 2000 and not {"prompt_limit", "output_limit"} & set(longer.kwargs)


def test_cells_beyond_the_columns_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A number with a comma in a table of commas is two cells, of which the first would be scored in silence."""
    header = "model,gpu,batch,prompt,output,tpot_ms\n"
    assert len(parse(header + "llama-3.1-8b,h100,1,512,128,6,1\nllama-3.1-8b,h100,1,512,128,6.1,\n", "t.csv")) == 2
    assert capsys.readouterr().err == (
        "rooflm: t.csv: line 2 has more cells than there are columns, and those are not read: is a number written with "
        "a comma?\n"
    )


def test_a_table_in_utf_16_is_read_and_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("model;gpu;tpot_ms\nllama-2-7b;a100;9,5\n", encoding="utf-16")
    (row,) = read_rows(path)
    assert isinstance(row, Request) and row.measured == pytest.approx(0.0095)
    with pytest.raises(RooflmError, match="mine has the column 'gpu' twice"):
        parse("model,gpu,tpot_ms,gpu\nllama-2-7b,a100,9,h100\n", "mine")
