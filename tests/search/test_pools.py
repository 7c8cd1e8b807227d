"""Separate prefill and decode pools in a search: the estimate against the simulation and against a published study of
ratios, what is legal, what is printed."""

from __future__ import annotations

import json

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.search.pools import PREFILL
from rooflm.serving.deploy import serve

LLAMA = {"gpu": "h100", "gpus": 4, "quant": "fp8", "prompt": 4096, "output": 256, "pools": True}
POINTS = (
    ("llama-3.1-70b", "h100", "vllm", 4, "fp8", 2048, 512, 128, (2, 2)),
    ("llama-3.1-8b", "h100", "trtllm", 1, "fp8", 1024, 1024, 800, (1, 2)),
    ("gpt-oss-120b", "h200", "sglang", 2, "mxfp4", 2048, 64, 128, (1, 3)),
)


@pytest.mark.parametrize("point", POINTS, ids=lambda p: f"{p[0]} {p[2]}")
@pytest.mark.parametrize("share", [None, 0.6])
def test_the_estimate_is_near_the_simulation(point, share):
    """At so many clients, and at a share of the rate that they reach."""
    model, gpu, engine, tp, quant, prompt, output, clients, (before, after) = point
    given = {"gpu": gpu, "engine": engine, "tp": tp, "quant": quant, "prompt": prompt, "output": output,
             "prefill_replicas": before, "replicas": after, "spread": (0.8, 1.2)}  # fmt: skip
    load = {"concurrency": clients, "requests": 4 * clients, "warmup": clients}
    if share is not None:
        short = serve(model, **given, concurrency=clients, requests=clients)
        load = {"rate": share * short.steady.requests_per_s, "requests": 600}
    served = serve(model, **given, **load)
    values, steady = served.summary.values, served.steady
    assert steady.tpot == pytest.approx(values["tpot_s"]["mean"], rel=0.08)
    assert steady.ttft == pytest.approx(values["ttft_s"]["mean"], rel=0.2)
    assert steady.latency == pytest.approx(values["latency_s"]["mean"], rel=0.1)


@pytest.mark.parametrize(
    ("prompt", "output", "clients", "measured"),
    [
        # tokens/s of 1, 2 and 3 prefill replicas of 4, SGLang on 8 H200, tensor groups of 2 (dstack, "Prefill-decode
        # ratio study", comparison/pd_ratio of github.com/dstackai/benchmarks @06c957a, September 2025)
        (2048, 750, 128, (8775, 7433, 6656)),
        (128, 670, 64, (6483, 5629, 4829)),
        (32784, 1269, 64, (1630, 2626, 2057)),
        (32784, 1269, 32, (1615, 2183, 1729)),
    ],
)
def test_the_ratio_that_was_measured_best_is_found(prompt, output, clients, measured):
    found = rooflm.search_serve(
        "gpt-oss-120b", gpu="h200", gpus=8, tp=2, pp=1, ep=1, engine="sglang", quant="mxfp4", pools=True,
        prompt=prompt, output=output, concurrency=clients, spread=(1.0, 1.0), confirm=0, objective="total",
    )  # fmt: skip
    # of its replicas: a rank of attention for each pair of GPUs, which share experts, would be faster still
    ranked = [c for c in found.top if c.inputs.get("prefill_replicas") and c.inputs["prefill_dp"] * c.inputs["dp"] == 1]
    assert ranked[0].inputs["prefill_replicas"] == 1 + measured.index(max(measured))
    assert ranked[0].outputs["gpus"] == 8


def test_pools_stand_beside_the_best_without_them():
    given = {**LLAMA, "pp": 1, "token_budget": 8192, "concurrency": [8, 32]}
    found = rooflm.search_serve("llama-3.1-8b", **given, confirm=1)
    alone = rooflm.search_serve("llama-3.1-8b", **{**given, "pools": False}, confirm=0)
    assert alone.without_pools is None and found.without_pools.best.inputs == alone.best.inputs
    assert found.without_pools.front == alone.front
    assert found.points > alone.points and found.feasible >= alone.feasible
    apart = next(c for c in found.top if "prefill_replicas" in c.inputs)
    tp = {k: apart.inputs[k] for k in ("tp", "pp", "prefill_tp", "prefill_pp")}
    gpus = apart.inputs["prefill_replicas"] * tp["prefill_tp"] * tp["prefill_pp"]
    assert gpus + apart.inputs["replicas"] * tp["tp"] * tp["pp"] == 4
    assert {*PREFILL, "replicas"} <= apart.inputs.keys()
    assert "purchase_usd" not in found.best.outputs  # only where a budget was asked for
    assert any("prefill_replicas" not in c.candidate.inputs for c in found.confirmed)


def test_another_card_prefills():
    given = {**LLAMA, "gpus": 2, "concurrency": 16, "confirm": 0, "tp": 1, "pp": 1}
    found = rooflm.search_serve("llama-3.1-8b", **given, prefill_gpu="l40s")
    point = next(c for c in found.top if "prefill_replicas" in c.inputs)
    same = rooflm.search_serve("llama-3.1-8b", **given)
    other = next(c for c in same.top if "prefill_replicas" in c.inputs)
    assert point.inputs["prefill_gpu"] == "l40s"
    assert point.outputs["ttft_s"] > other.outputs["ttft_s"]
    assert point.outputs["cost_usd_per_million_tokens"] != other.outputs["cost_usd_per_million_tokens"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gpus": 1}, "at least 2 GPUs"),
        ({"pools": False, "prefill_gpu": "l40s"}, "ask for them too"),
        ({"engine": "llama.cpp", "quant": "q8_0"}, "no separate prefill and decode replicas"),
    ],
)
def test_bad_input_is_one_sentence(more, words):
    with pytest.raises(RooflmError, match=words):
        rooflm.search_serve("llama-3.1-8b", **{**LLAMA, **more, "concurrency": 4})


def test_engines_without_pools_are_searched_without_them():
    found = rooflm.search_serve("llama-3.1-8b", **LLAMA | {"quant": None}, engine=["vllm", "llama.cpp"], tp=1, pp=1,
                                concurrency=4, confirm=0)  # fmt: skip
    kinds = {(c.inputs["engine"], "prefill_replicas" in c.inputs) for c in (*found.top, *found.without_pools.top)}
    assert kinds == {("vllm", True), ("vllm", False), ("llama.cpp", False)}


def test_the_slower_side_sets_how_fast_a_cache_goes():
    """Each rank has a link of its own: as many as the side with fewer, as wide as those of its cluster."""
    given = {"gpu": "h100", "concurrency": 2, "requests": 2}

    def bandwidth(**more):
        return serve("llama-3.1-8b", **given, prefill_replicas=1, **more).run.transfer.bandwidth

    one = bandwidth(tp=1, prefill_tp=1)
    assert bandwidth(tp=4, prefill_tp=1) == bandwidth(tp=1, prefill_tp=4) == one
    assert bandwidth(tp=4, prefill_tp=4) == bandwidth(tp=4) == 4 * one
    slow = bandwidth(tp=1, prefill_tp=1, prefill_gpu="l4")
    assert slow == serve("llama-3.1-8b", **given | {"gpu": "l4"}, prefill_replicas=1).run.transfer.bandwidth < one


def test_a_split_of_prefill_replicas_alone_is_refused():
    with pytest.raises(RooflmError, match="--prefill-replicas"):
        rooflm.serve("llama-3.1-8b", gpu="h100", prefill_tp=2)
    served = rooflm.serve("llama-3.1-8b", gpu="h100", prefill_tp=2, prefill_replicas=1, concurrency=2)
    assert served.values()["gpus"] == 3


def test_commands_of_both_pools(capsys):
    words = ["search", "infer", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--pools", "--concurrency", "8"]
    words += ["--prompt", "2000", "--output", "100"]
    assert main([*words, "--tp", "1", "--pp", "1", "--engine", "sglang", "--json", "--confirm", "0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["without_pools"]["best"]["inputs"]["dp"] == 2
    best = next(c for c in told["top"] if "prefill_replicas" in c["inputs"])
    assert best["inputs"]["replicas"] == 1
    assert "prefill_replicas" in told["best"]["inputs"]
    assert "--disaggregation-mode prefill" in told["command"] and "launch_router" in told["command"]


def test_what_is_asked_of_prefill_cards_holds_in_the_runs_too() -> None:
    """The confirming runs of a search cost what its estimate costs."""
    found = rooflm.search_serve("llama-3.1-8b", gpu="h100", gpus=2, pools=True, prefill_gpu="l40s", prefill_price=50,
                                prompt=2000, output=50, concurrency=8, confirm=12)  # fmt: skip
    apart = [c for c in found.confirmed if "prefill_replicas" in c.candidate.inputs]
    assert apart
    for c in apart:
        cost = "cost_usd_per_million_tokens"
        assert c.served.to_dict()[cost] == pytest.approx(c.candidate.outputs[cost], rel=0.25)
