"""Rows measured under load: what of a row the simulator is told; a run is simulated once for all its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflm.asked.assumed import with_graphs, with_limits
from rooflm.readers.engines import load_engine, row_of
from rooflm.serving.components import TableSize, components
from rooflm.validation import under_load as load
from rooflm.validation.request import Request
from rooflm.validation.score import by_load, report, score
from rooflm.validation.table import read_row
from rooflm.validation.under_load import MOST, arguments, deployment, predict_load, scenario
from rooflm_fit.runs import Case, cases
from rooflm_fit.serving import outpaced

ROW = {"id": "x-1", "source": "mine", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm",
       "release": "0.18.0", "tp": "1", "quant": "fp8", "prompt": "1024", "output": "128", "concurrency": "8",
       "spread": "0.8,1", "metric": "ttft", "value": "0.2"}  # fmt: skip


def run(**changes: str) -> Request:
    found = read_row(ROW | changes)
    assert isinstance(found, Request), found
    return found


def test_one_run_gives_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = load.figures

    def counted(request: Request) -> dict[str, float]:
        calls.append(request.id)
        return real(request)

    monkeypatch.setattr(load, "figures", counted)
    (ttft, _), (tpot, _) = predict_load([run(), run(id="x-2", metric="tpot", value="0.006")])
    assert calls == ["x-1"]
    assert 0.02 < ttft < 2
    assert 0.002 < tpot < 0.02
    assert predict_load([run(concurrency="64")])[0][0] > ttft


def test_percentiles_are_the_simulators_of_the_same_run() -> None:
    names = ("ttft", "tpot", "latency_s", "ttft_p50", "ttft_p99", "tpot_p90", "itl_p50", "itl_p99", "latency_p95",
             "output_tokens_per_s", "total_tokens_per_s", "requests_per_s")  # fmt: skip
    found = {x.request.metric: x for x in score([run(id=m, metric=m) for m in names])}
    served = load.simulated(arguments(run()))
    for m in names:
        time, _, at = m.rpartition("_")
        wanted = served[f"{time}_s"][at] if at.startswith("p") else None
        assert wanted is None or found[m].predicted == wanted, m
    value = {m: x.predicted for m, x in found.items()}
    assert value["ttft_p50"] < value["ttft_p99"] and value["itl_p50"] <= value["itl_p99"]
    share = value["output_tokens_per_s"] / value["requests_per_s"]
    assert share == pytest.approx(served["output_tokens_per_s"] / served["requests_per_s"])
    assert value["total_tokens_per_s"] > 8 * value["output_tokens_per_s"]
    mean, median, tail = (found[m] for m in ("ttft", "ttft_p50", "ttft_p99"))
    assert median.high / median.predicted == pytest.approx(mean.high / mean.predicted)
    assert tail.where == "far" and tail.high / tail.predicted >= median.high / median.predicted


def test_in_a_fixed_batch_all_requests_are_alike() -> None:
    rows = [run(metric=m, concurrency="", batch="4", spread="") for m in ("tpot", "tpot_p50", "itl_p99", "latency_p50")]
    tpot, median, gap, latency = (x.predicted for x in score(rows))
    assert tpot == median == gap < latency


def test_a_row_says_what_serve_is_told() -> None:
    k = arguments(run(budget="4096", scheduler="prefill-first", dp="2", gpus="2"))
    assert (k["options"]["budget"], k["options"]["scheduler"]) == (4096, "prefill-first")
    assert (k["concurrency"], k["spread"], k["dp"], "gpus" in k) == (8, (0.8, 1.0), 2, False)
    most = arguments(run(concurrency="max", dp="4"))
    assert (most["concurrency"], most["requests"]) == (4 * MOST, 12 * MOST)
    assert arguments(run(concurrency="", rate="2"))["requests"] == 500
    assert arguments(run(gpus="4", tp="2"))["replicas"] == arguments(run(gpus="4", tp="2", dp="1"))["replicas"] == 2
    each = arguments(run(concurrency="max", gpus="8", tp="2"))
    assert (each["replicas"], each["concurrency"]) == (4, 4 * MOST)  # each as many as it runs


def test_a_split_over_more_gpus_than_a_row_has_is_refused() -> None:
    """SGLang counts its ranks of attention within --tp: 8 of both on 8 cards are tp 1, dp 8 here."""
    split = {"model": "deepseek-v3", "gpu": "h200-sxm-141gb", "engine": "sglang", "release": "0.5.10", "gpus": "8",
             "quant": "fp8-block", "dp": "8", "ep": "8", "output": "4", "spread": ""}  # fmt: skip
    ((_, whole),) = predict_load([run(**split)])
    ((_, wrong),) = predict_load([run(**split | {"tp": "8"})])
    assert (whole, wrong) == ("", "gpus is 8, but tp x pp x dp x cp is 64: leave one of them out")


FULL = {"model": "qwen1.5-72b", "gpu": "l40s", "engine": "trtllm", "release": "2024", "quant": "w4a16kv16",
        "prompt": "1024", "output": "512", "concurrency": "max", "spread": "", "scheduler": "static",
        "metric": "output_tokens_per_s", "value": "17"}  # fmt: skip


def test_a_run_that_hardly_fits_ran_one_sequence_at_a_time() -> None:
    (rate, reason), *_ = predict_load([run(**FULL)])
    assert reason == ""
    assert 10 < rate < 21  # 40 GB of weights at 864 GB/s
    wide = FULL | {"quant": "bf16"}  # its weights alone exceed the card
    judged = wide | {"metric": "oom", "value": "1"}
    assert predict_load([run(**judged), run(**(judged | {"model": "yi-6b"}))]) == [(1.0, ""), (0.0, "")]
    for name, why in (("weights", wide), ("clients", wide | {"concurrency": "4"})):
        (_, far), *_ = predict_load([run(**why)])
        assert "no memory for a KV cache" in far or "no request fits in the KV memory" in far, name


@pytest.mark.parametrize(
    "run_of",
    [FULL | {"concurrency": "4"}, {"model": "qwen3-32b", "tp": "4", "prompt": "65536", "concurrency": "2"}],
    ids=["memory", "context"],
)
def test_a_run_that_ran_is_predicted_though_it_would_not_by_our_count(run_of: dict[str, str]) -> None:
    asked = run(**run_of, metric="tpot") if "metric" not in run_of else run(**run_of)
    (value, told), *_ = predict_load([asked])
    assert value > 0
    assert told == load.LIFTED
    (row,) = score([asked])
    assert not row.reason
    assert row.assumed == (load.LIFTED,)
    assert report([asked], [row])["counted"] == 0


def test_an_option_of_the_row_reaches_the_server() -> None:
    once, tenth = (run(stream_interval=n) for n in ("1", "10"))
    (soon, _), (late, _) = predict_load([once, tenth])
    (tpot, _), *_ = predict_load([run(metric="tpot")])
    assert late - soon == pytest.approx(9 * tpot, rel=0.3)


def test_cards_and_releases_share_the_constants_of_their_engine() -> None:
    """But for what their code tells of a generation: rates on states, sides of experts that are filled up, and how many
    kernels cast for a narrow cache."""
    for engine in ("vllm", "sglang", "trtllm"):
        assert load_engine(engine, "b200-sxm-180gb") == load_engine(engine, "nowhere")
        told = {"delta_rate", "mamba_rate", "expert_fill", "cache_chain"}
        assert all(own.keys() <= told for own in row_of(engine).cards.values())
    here = scenario(run(release="0.24"))
    card, model = here.cluster.device, here.model
    ran = with_graphs(load_engine("vllm", card.name), card, here.mapping.tp, model.family)
    ran = with_limits(ran, card, model, here.mapping.dp)
    ran = replace(ran, abilities=here.engine.abilities)
    assert here.engine == ran
    newest = scenario(run(release="0.99")).engine  # than all rows: of the newest
    assert newest == scenario(run(release="0.31")).engine and newest.host == here.engine.host


def test_what_was_measured_has_run() -> None:
    """An engine that does not run a scheme by its documents is predicted with it where a table says that it did."""
    (x,) = score([run(engine="llama.cpp", quant="int4")])
    assert x.predicted > 0 and not x.reason


def test_what_cannot_run_says_why() -> None:
    asked = run(model="llama-3.1-405b")
    (x,) = score([asked])
    assert "no memory" in x.reason
    result = report([asked], [x])
    assert result["scored"] == 0
    assert result["under_load"] == {}


@pytest.mark.parametrize("name", ["prompt", "budget", "concurrency", "requests"])
def test_what_is_too_large_to_simulate_is_a_reason(name: str) -> None:
    assert predict_load([run(**{name: "100000000000"})])[0][1].startswith(f"{name} is 100,000,000,000, but at most")


def test_an_error_in_the_simulator_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Request) -> dict[str, float]:
        raise IndexError

    monkeypatch.setattr(load, "figures", broken)
    assert predict_load([run()])[0][1] == "not predicted: IndexError in the simulator"


def test_errors_under_load_stand_by_engine_and_metric() -> None:
    found = by_load(score([run(), run(id="x-2", metric="tpot", value="0.006")]))
    assert list(found) == ["all tpot", "all ttft", "vllm tpot", "vllm ttft"]
    assert found["all ttft"] == found["vllm ttft"]
    assert found["vllm tpot"]["rows"] == 1


def test_a_static_share_of_memory_leaves_activations_outside() -> None:
    asked = run(model="deepseek-v3", gpu="h200-sxm-141gb", engine="sglang", release="", tp="8", quant="fp8-block",
                static_fraction="0.82", budget="32768", prompt="8192", output="1024", concurrency="64")  # fmt: skip
    pool = deployment(asked)[0].pools[-1]
    weights = 671e9 / 8 * 1.02
    room = (0.82 * 143771 * 2**20 - weights) * 8 / pool.capacity.bytes_per_token
    assert pool.capacity.tokens == pytest.approx(room, rel=0.12)


def case(gpu: str, clients: int, quant: str, ttft: float) -> Case:
    asked = run(model="deepseek-v3", gpu=gpu, engine="sglang", release="", tp="8", quant=quant,
                concurrency=str(clients), output="1024")  # fmt: skip
    return Case("x", asked, ttft, 0.01)


def test_a_group_slower_than_on_an_older_card_is_not_fitted() -> None:
    def runs(gpu: str, seconds: list[float], quant: str) -> list[Case]:
        return [case(gpu, 4 * 2**i, quant, t) for i, t in enumerate(seconds)]

    old = runs("h200-sxm-141gb", [0.4, 0.5, 0.7], "fp8-block")
    group = {("sglang", "deepseek-v3", "b300-sxm-288gb")}
    assert outpaced([*old, *runs("b300-sxm-288gb", [0.3, 0.8, 1.0], "nvfp4")]) == group
    assert not outpaced([*old, *runs("b300-sxm-288gb", [0.3, 0.4, 1.0], "nvfp4")])  # most of it is faster
    assert not outpaced([*old, *runs("b300-sxm-288gb", [0.6, 0.8, 1.0], "bf16")])  # wider weights may be slower
    assert not outpaced([*old, *runs("h100-sxm-80gb", [0.6, 0.8, 1.0], "fp8-block")])  # as fast a card


def test_two_figures_of_one_run_are_one_case_and_repeats_are_two() -> None:
    ttft, tpot = run(source="aic"), run(source="aic", metric="tpot", value="0.01")
    (found,) = cases([ttft, tpot])
    assert (found.ttft, found.tpot, found.engine, found.release, found.concurrency) == (0.2, 0.01, "vllm", "0.18.0", 8)
    assert len(cases([ttft, tpot, replace(ttft, measured=0.3), replace(tpot, measured=0.02)])) == 2
    assert cases([ttft]) == [] and cases([run(), run(metric="tpot")]) == []


def test_served_fp8_products_carry_no_quantising_of_their_own() -> None:
    asked = run(model="llama-3.1-70b", gpu="b200-sxm-180gb", engine="trtllm", release="", tp="8")
    parts = components(scenario(asked), TableSize(64, 4, 2048)).parts
    weights = 70e9 / 8 / 7.7e12
    products = 4 * 80
    assert weights < parts.decode.seconds["gemm_factor"][0] < weights / 0.6 + products * 5e-6


@pytest.mark.parametrize(("release", "measured"), [("2024", 1566), ("0.9", 1566), ("0.6.1", 1566)])
def test_a_static_batch_has_what_passes_of_its_own_prompts_leave(release: str, measured: float) -> None:
    """Mistral-7B on L40S (QServe's README): gptSessionBenchmark has no limit of tokens, so that none left memory."""
    small = FULL | {"model": "mistral-7b", "quant": "w16a16kv16", "release": release}
    ((rate, reason),) = predict_load([run(**small)])
    assert reason == ""
    assert 0.6 * measured < rate < 1.4 * measured
