"""Loads, traces, options and limits: what is read, and one sentence for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.errors import RooflmError
from rooflm.serving.deploy import make_requests, make_server, serve, usual_load
from rooflm.serving.highest import fewest, highest
from rooflm.serving.metrics import parse_limits
from rooflm.serving.traces import read_trace
from rooflm.serving.workload import closed_loop, daily, ending, lengths, open_loop, scaled


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_lengths_are_uniform_over_their_range() -> None:
    drawn = lengths(1000, (0.8, 1.0), 20000, 1)
    assert drawn.min() == 800 and drawn.max() == 1000
    assert drawn.mean() == pytest.approx(900, rel=0.005)
    assert set(lengths(77, (1.0, 1.0), 5, 1).tolist()) == {77}


@pytest.mark.parametrize(("mean", "ended"), [(100, 100), (1000, 1)])
def test_outputs_that_all_end_by_themselves_or_never_do(mean: int, ended: int) -> None:
    with np.errstate(divide="raise", invalid="raise"):
        assert ending(mean, 1000, 2000, 1, ended).mean() == pytest.approx(mean, rel=0.01)


def test_open_loop_rate_and_burstiness() -> None:
    gaps = {b: np.diff(open_loop(10.0, 20000, seed=1, burstiness=b).arrival) for b in (0.25, 1.0, 4.0)}
    for shape, gap in gaps.items():
        assert gap.mean() == pytest.approx(0.1, rel=0.05)
        assert gap.std() / gap.mean() == pytest.approx(shape**-0.5, rel=0.05)
    assert set(np.round(np.diff(open_loop(10.0, 20, burstiness=float("inf")).arrival), 9)) == {0.1}


def test_an_infinite_rate_with_a_limit_of_clients_is_a_closed_loop() -> None:
    load = make_requests(concurrency=4, rate=float("inf"))
    assert load.concurrency == 4 and not load.arrival.size and load.count == 40
    assert usual_load({"concurrency": 4, "rate": float("inf")}) == usual_load({"concurrency": 4})


def test_an_infinite_rate_alone_sends_all_at_once() -> None:
    """--request-rate inf, the default of vLLM's and SGLang's benchmark clients, with --num-prompts 30 and 1,000."""
    load = make_requests(rate=float("inf"), requests=30)
    assert load.concurrency == load.count == 30 and make_requests(rate=float("inf")).count == 1000
    assert usual_load({"rate": float("inf"), "requests": 30})["warmup"] == 0


def test_the_rate_of_the_day_changes_and_its_mean_stays() -> None:
    load = open_loop(1.0, 86400, seed=1, day=daily(1.8))
    per_hour = np.histogram(load.arrival, bins=24, range=(0, 86400))[0] / 3600
    assert per_hour.argmax() in (13, 14) and per_hour.max() == pytest.approx(1.8, rel=0.05)
    assert per_hour.mean() == pytest.approx(1.0, rel=0.02)


def test_traces_of_services_and_tools(tmp_path: Path) -> None:
    azure = _file(
        tmp_path,
        "a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.98,4808,10\n2023-11-16 18:17:04.98,110,27\n",
    )
    mooncake = _file(tmp_path, "m.jsonl",
                     '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
                     '{"timestamp": 1000, "input_length": 700, "output_length": 7, "hash_ids": [0, 2]}\n')  # fmt: skip
    vllm = _file(
        tmp_path, "v.json", json.dumps({"input_lens": [5, 6], "output_lens": [7, 8], "start_times": [2.0, 3.0]})
    )
    guide = _file(tmp_path, "g.json", json.dumps({"benchmarks": [{"requests": {"successful": [
        {"start_time": 100.0, "prompt_tokens": 5, "output_tokens": 7},
        {"start_time": 101.0, "prompt_tokens": 6, "output_tokens": 8}]}}]}))  # fmt: skip
    a, m, v, g = (read_trace(p) for p in (azure, mooncake, vllm, guide))
    assert a.prompt.tolist() == [4808, 110] and a.arrival.tolist() == pytest.approx([0.0, 1.0])
    assert m.hashes == [[0, 1], [0, 2]] and m.arrival.tolist() == [0.0, 1.0] and m.output.tolist() == [5, 7]
    assert v.prompt.tolist() == g.prompt.tolist() == [5, 6] and v.output.tolist() == g.output.tolist() == [7, 8]
    assert v.arrival.tolist() == g.arrival.tolist() == [0.0, 1.0]


def test_a_trace_played_faster_and_thicker() -> None:
    base = open_loop(2.0, 100, seed=1)
    thick = scaled(base, 4.0, copies=3)
    assert thick.count == 300 and thick.rate == pytest.approx(3 * 4 * base.rate, rel=0.05)
    assert bool(np.all(np.diff(thick.arrival) >= 0))
    assert make_requests(trace=base, rate=8.0).rate == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.csv", "when,prompt_tokens\n1,2\n", "output tokens"),
        ("t.csv", "arrival,prompt_tokens,output_tokens\n-1,2,3\n", "line 2: arrival is '-1'"),
        ("t.csv", "arrival,prompt_tokens,output_tokens\nnoon,2,3\n", "must be seconds or a date"),
        ("t.csv", "arrival,prompt_tokens,output_tokens\n1,2.5,3\n", "whole number of at least 1"),
        ("t.csv", "arrival,prompt_tokens,output_tokens\n1,,3\n", "line 2: prompt_tokens is ''"),
        ("t.csv", "arrival,prompt_tokens,output_tokens\n", "has no requests"),
        ("t.jsonl", "{broken\n", "line 1 is not valid JSON"),
        ("t.jsonl", "[1]\n", "must be an object"),
        ("t.json", "{}", "must be a list of requests"),
        ("t.txt", "", "must end in .csv, .jsonl or .json"),
    ],
)
def test_bad_traces_say_what_is_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(RooflmError, match=r".") as error:
        read_trace(_file(tmp_path, name, text))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_missing_trace_is_said() -> None:
    with pytest.raises(RooflmError, match="cannot read trace"):
        read_trace("/no/such/trace.csv")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"rate": -1.0}, "rate is -1"),
        ({"rate": 1.0, "concurrency": 0}, "concurrency is 0"),
        ({"rate": 1.0, "concurrency": 2.5}, "concurrency is 2.5, but it must be a whole number"),
        ({"rate": 1.0, "concurrency": "x"}, "concurrency is 'x', but it must be a whole number"),
        ({"concurrency": 2, "spread": (1.0, 0.5)}, "spread of prompt"),
        ({"concurrency": 2, "requests": 0}, "requests is 0"),
        ({"concurrency": 2, "options": {"schedular": "static"}}, "did you mean 'scheduler'"),
        ({"concurrency": 2, "options": {"scheduler": "magic"}}, "scheduler is 'magic'"),
        ({"concurrency": 2, "options": {"budget": 0}}, "budget is 0"),
        ({"concurrency": 2, "router": "best", "replicas": 2}, "router is 'best'"),
        ({"concurrency": 2, "slo": "ttft=fast"}, "ttft"),
        ({"concurrency": 2, "slo": "speed:p95=1s"}, "a limit is written like"),
        ({"concurrency": 2, "definitions": "mine"}, "definitions is 'mine'"),
        ({"concurrency": 2, "replicas": 0}, "replicas is 0"),
        ({"rate": 1.0, "burstiness": 0.0}, "burstiness is 0"),
        ({"output": 100, "output_limit": 1000, "output_ended": 500}, "output_ended is 500"),
        ({"output": 100, "output_limit": 1000, "output_variation": 9}, "output_variation is 9, but it must be above 0"),
    ],
)
def test_bad_options_are_one_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(RooflmError) as error:
        serve("llama-3.1-8b", **{"gpu": "h100-sxm-80gb", **arguments}).values()
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_model_without_room_for_a_cache_says_so() -> None:
    with pytest.raises(RooflmError, match="no memory for a KV cache"):
        serve("llama-3.1-70b", gpu="h100-sxm-80gb", concurrency=1)


def test_lengths_beyond_the_context_are_rejected_not_served() -> None:
    out = serve("llama-2-7b", gpu="a100-sxm-80gb", concurrency=2, requests=4, prompt=5000, output=10)
    assert out.rejected == 4 and out.finished == 0


def test_limits_are_read() -> None:
    limits = parse_limits("ttft:p95=500ms, tpot=50 ms,itl:p99=0.2")
    assert [(m.measure, m.percentile, m.seconds) for m in limits] == [
        ("ttft", 95, 0.5),
        ("tpot", 0, 0.05),
        ("itl", 99, 0.2),
    ]
    assert make_server({"scheduler": "static"}).scheduler == "static"


def test_the_highest_load_and_the_fewest_replicas() -> None:
    common: dict[str, Any] = {"gpu": "h100-sxm-80gb", "requests": 300, "slo": "ttft:p95=300ms,tpot:p95=20ms"}
    found = highest(lambda r: serve("llama-3.1-8b", rate=r, **common))
    assert found.served is not None and found.served.summary.meets(found.served.limits) and found.broken
    assert not (above := serve("llama-3.1-8b", rate=found.load * 1.1, **common)).summary.meets(above.limits)
    clients = highest(
        lambda c: serve("llama-3.1-8b", concurrency=int(c), gpu="h100-sxm-80gb", slo="tpot:p95=15ms"), whole=True
    )
    assert clients.load == int(clients.load) > 4
    few = fewest(lambda n: serve("llama-3.1-8b", rate=3 * found.load, replicas=int(n), **{**common, "requests": 900}))
    assert 3 <= few.load <= 5


def test_same_load_from_arguments_and_from_requests() -> None:
    load = closed_loop(4, 12, 64, 8, seed=9)
    given = make_requests(64, 8, concurrency=4, requests=12, seed=9)
    assert load.prompt.tolist() == given.prompt.tolist() and load.concurrency == given.concurrency


@pytest.mark.parametrize(
    "scheduler", ["no-evict", "in-flight", "continuous", "prompts-first", "prefill-first", "static"]
)
def test_a_prompt_beyond_the_budget_of_its_attention_rank_goes_in_pieces(scheduler) -> None:
    """The ranks' budgets together hold the prompt, but it is on one of them."""
    asked = {"gpu": "h200", "tp": 1, "dp": 8, "ep": 8, "quant": "fp8", "prompt": 20_000, "output": 4, "requests": 8}
    options = {"budget": 4096, "scheduler": scheduler}
    found = serve("deepseek-v3", concurrency=8, options=options, **asked)
    assert found.summary.values["finished"] == 8
    assert found.run.replicas[0].meter.prefill_passes >= 5


def test_a_router_of_one_replica_is_told_to_do_nothing() -> None:
    common: dict[str, Any] = {"gpu": "h100-sxm-80gb", "rate": 2.0, "requests": 20}
    said = "router least-loaded has no effect with one replica"
    assert said in serve("llama-3.1-8b", router="least-loaded", **common).warnings
    assert not serve("llama-3.1-8b", router="least-loaded", replicas=2, **common).warnings
    assert not serve("llama-3.1-8b", **common).warnings


@pytest.mark.parametrize("name", ["prompt_limit", "output_limit", "requests", "warmup", "shared_prefix"])
@pytest.mark.parametrize("many", [[1024, 2048], (1024, 2048)])
def test_a_list_where_one_number_belongs_is_one_sentence(name: str, many: Any) -> None:
    with pytest.raises(RooflmError, match=rf"{name} is .1024, 2048., but it must be one whole number, not a list"):
        rooflm.serve("llama-3.1-8b", gpu="h100-sxm-80gb", **{name: many})


def test_a_budget_that_a_whole_prompt_fills_is_told() -> None:
    """TensorRT-LLM starts such a prompt when nothing decodes: users then run one at a time."""
    common: dict[str, Any] = {"gpu": "h100", "prompt": 2048, "output": 32, "requests": 16, "spread": (1, 1)}
    full, roomy = (
        rooflm.serve("llama-3.1-8b", engine="trtllm", concurrency=8, server={"budget": b}, **common)
        for b in (2048, 2056)
    )
    assert any("leaves 0 of the token budget" in w and "2056 holds both" in w for w in full.warnings)
    assert not roomy.warnings and roomy.output_tokens_per_s > 1.5 * full.output_tokens_per_s
    for alone in ({"engine": "vllm", "concurrency": 8}, {"engine": "trtllm", "concurrency": 1}):
        assert not rooflm.serve("llama-3.1-8b", server={"budget": 2048}, **alone, **common).warnings
