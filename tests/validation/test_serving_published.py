"""Published runs under load: which options each ran with, and what sets rows apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rooflm.catalogue.engines import load_engine, row_of
from rooflm.errors import RooflmError
from rooflm.serving.deploy import make_server
from rooflm.validation.readers.serving import read_serving
from rooflm.validation.request import ServeRequest
from rooflm.validation.under_load import (
    Case,
    cache_type,
    cases,
    options,
    recipe,
    recipes,
    release,
    scenario,
    server_of,
)
from rooflm_fit.serving import outpaced


def case(engine: str, model: str, gpu: str, version: str = "", clients: int = 16, **kwargs: Any) -> Case:
    own = {"model": model, "gpu": gpu, "tp": 4, "pp": 1, "dp": 1, "ep": 1, "prompt": 1024, "output": 1024, **kwargs}
    own.setdefault("quant", "fp8")
    return Case("x", own, (model, gpu), engine, version, clients, (0.8, 1.0), 1.0, 1.0, ())


def test_a_group_slower_than_on_an_older_card_is_not_fitted() -> None:
    def runs(gpu: str, seconds: list[float], quant: str) -> list[Case]:
        rows = [case("sglang", "deepseek-v3", gpu, clients=4 * 2**i, quant=quant, tp=8) for i in range(len(seconds))]
        return [replace(r, ttft=t) for r, t in zip(rows, seconds, strict=True)]

    old = runs("h200-sxm-141gb", [0.4, 0.5, 0.7], "fp8-block")
    group = {("sglang", "deepseek-v3", "b300-sxm-288gb")}
    assert outpaced([*old, *runs("b300-sxm-288gb", [0.3, 0.8, 1.0], "nvfp4")]) == group
    assert not outpaced([*old, *runs("b300-sxm-288gb", [0.3, 0.4, 1.0], "nvfp4")])  # most of it is faster
    assert not outpaced([*old, *runs("b300-sxm-288gb", [0.6, 0.8, 1.0], "bf16")])  # wider weights may be slower
    assert not outpaced([*old, *runs("h100-sxm-80gb", [0.6, 0.8, 1.0], "fp8-block")])  # as fast a card


def test_every_recipe_says_where_it_is_from_and_names_real_options() -> None:
    for row in recipes():
        assert "InferenceX" in row["source"] or "aiconfigurator" in row["source"]
        run = case(row["engine"], row.get("models", "llama").split(" ")[0], "h200-sxm-141gb")
        server = make_server(options(run))
        assert server.budget >= 1


def test_options_come_from_the_campaign_and_else_from_the_engine() -> None:
    plain = options(case("vllm", "somebody", "h100-sxm-80gb"))
    assert plain["budget"] == 8192 and plain["scheduler"] == "continuous"
    short = case("trtllm", "llama-3.1-70b", "h200-sxm-141gb")
    assert options(short)["wait_steps"] == 20 and options(short)["budget"] == 16384
    assert options(case("trtllm", "llama-3.1-70b", "h200-sxm-141gb", tp=8))["wait_steps"] == 0
    assert options(case("trtllm", "llama-3.1-70b", "h200-sxm-141gb", output=8192))["wait_steps"] == 0
    house = case("trtllm", "qwen3-32b", "h100-sxm-80gb", "1.0.0rc3", 64, prompt=4096)
    assert options(house)["budget"] == 4096 + 64
    looks = [options(case("sglang", "deepseek-v3", "b300-sxm-288gb", clients=n))["receive_interval"] for n in (8, 64)]
    assert looks == [10, 30]
    assert options(case("sglang", "qwen3.5-397b-a17b", "h200-sxm-141gb")).get("receive_interval", 1) == 1


def test_cache_and_release_come_from_the_script_where_it_says_them() -> None:
    assert cache_type(case("vllm", "minimax-m2", "h200-sxm-141gb")) == "fp8"
    assert cache_type(case("vllm", "qwen3-32b", "h200-sxm-141gb")) == "fp8kv8"
    assert cache_type(case("sglang", "glm-5", "h200-sxm-141gb")) == "fp8"
    assert cache_type(case("sglang", "glm-5", "b200-sxm-180gb")) == "fp8kv8"
    assert release(case("vllm", "llama-3.1-70b", "h100-sxm-80gb")) == "0.10.2"
    assert release(case("vllm", "llama-3.1-70b", "h100-sxm-80gb", "0.18.0")) == "0.18.0"
    assert recipe(case("vllm", "somebody", "h100-sxm-80gb")) == {}


def test_a_static_share_of_memory_leaves_activations_outside() -> None:
    from rooflm.serving.deploy import make_pool

    run = case("sglang", "deepseek-v3", "h200-sxm-141gb", tp=8, quant="fp8-block")
    s = scenario(run)
    pool = make_pool(s, server_of(run, s), 9216, 64)
    weights = 671e9 / 8 * 1.02
    room = (0.82 * 143771 * 2**20 - weights) * 8 / pool.capacity.bytes_per_token
    assert pool.capacity.tokens == pytest.approx(room, rel=0.12)


def test_a_card_and_a_release_scale_the_engine_and_unknown_ones_do_not() -> None:
    base, card = load_engine("vllm", "nowhere"), load_engine("vllm", "b200-sxm-180gb")
    row = row_of("vllm")
    assert card.speed == pytest.approx(base.speed * row.cards["b200-sxm-180gb"]["speed"]) != base.speed
    old = load_engine("vllm@0.18.0", "b200-sxm-180gb")
    assert old.request == pytest.approx(base.request * row.releases["0.18.0"]["request"]) and old.runs == "vllm"
    assert scenario(case("vllm", "qwen3-32b", "h100-sxm-80gb", "0.18.0")).engine.prompt == pytest.approx(
        load_engine("vllm@0.18.0", "h100-sxm-80gb").prompt
    )
    assert scenario(case("vllm", "qwen3-32b", "h100-sxm-80gb", "0.99")).engine == load_engine("vllm", "h100-sxm-80gb")
    assert scenario(case("trtllm", "qwen3-32b", "h100-sxm-80gb", "0.17.0")).engine.step == pytest.approx(300e-6)
    with pytest.raises(RooflmError, match=r"known releases are 0\.1"):
        load_engine("vllm@0.18")


ROW = {
    "model": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "gpus": "8", "tp": "8", "pp": "1",
    "engine": "trtllm 1.1.0rc2.post2", "precision_weights": "fp8", "precision_kv": "", "batch": "4",
    "input_len": "1024", "output_len": "1024", "metric": "tpot_ms", "value": "8.6", "source": "aic",
    "note": "trust=B; moe_tp=1 moe_ep=8 attn_dp=1; batch = concurrency; "
    "2026_03_25_deepseek_r1_h200_sxm_trtllm_fp8_agg_1024x1024_c4_tp8_0_ep8_0_1252",
}  # fmt: skip


def read(**changes: str) -> ServeRequest:
    found = read_serving({**ROW, **changes}, "aic-0001", "aic")
    assert isinstance(found, ServeRequest)
    return found


def test_rows_that_mix_plain_and_speculative_runs_are_set_apart() -> None:
    assert "mtp-suspect" in read().flags
    assert "mtp-suspect" not in read(note=ROW["note"].replace("2026_03_25_deepseek_r1", "dsr1")).flags
    assert "mtp-suspect" not in read(engine="sglang 0.5.9").flags


def test_fp8_of_a_block_scaled_checkpoint_is_by_blocks() -> None:
    assert read().kwargs["quant"] == "fp8-block"
    assert read(model="meta-llama/Llama-3.1-70B", note="trust=B").kwargs["quant"] == "fp8"


def test_lengths_are_fixed_in_the_campaign_whose_client_fixes_them() -> None:
    assert read().spread == (0.8, 1.0)
    assert read(engine="trtllm 1.0.0rc3").spread == (1.0, 1.0)
    assert read(engine="sglang 0.5.6.post2").spread == (1.0, 1.0)


def test_experts_stay_whole_where_blocks_do_not_divide() -> None:
    split = read(model="MiniMaxAI/MiniMax-M2.5", engine="vllm 0.18.0", note="trust=B; moe_tp=8 moe_ep=1 attn_dp=1")
    assert (split.kwargs["tp"], split.kwargs["ep"]) == (8, 8)
    half = read(
        model="MiniMaxAI/MiniMax-M2.5", engine="vllm 0.16.0", tp="4", note="trust=B; moe_tp=4 moe_ep=1 attn_dp=1"
    )
    assert (half.kwargs["tp"], half.kwargs["ep"]) == (4, 1)


def test_runs_older_than_the_experts_column_are_split_as_their_scripts_did() -> None:
    """dsr1_fp8_h200_trt_slurm.sh and gptoss_fp4_h200_trt_slurm.sh, before they took EP_SIZE and DP_ATTENTION."""
    old = {"engine": "trtllm", "note": "trust=B; moe_tp=8 moe_ep=1 attn_dp=1; dsr1_h200_trtllm_fp8_agg_c64_cfg83"}
    keys = ("gpus", "tp", "dp", "ep")
    assert [read(**old, batch="64").kwargs[k] for k in keys] == [8, 8, 1, 8]
    assert [read(**old, batch="64", input_len="8192").kwargs[k] for k in keys] == [8, 1, 8, 8]
    old |= {"model": "openai/gpt-oss-120b", "tp": "4", "batch": "64", "input_len": "8192"}
    assert [read(**old).kwargs[k] for k in keys] == [4, 4, 1, 4]
    assert read(**old | {"engine": "trtllm gpt-oss-dev"}).kwargs["ep"] == 1


def test_kimi_never_ran_with_experts_apart_and_later_in_graphs() -> None:
    """InferenceX kimik2.5_fp4_b200.sh: no --enable-expert-parallel; from pull request 1047 on larger graphs."""
    kimi = {"model": "moonshotai/Kimi-K2.5", "gpu": "B200-180GB", "engine": "vllm 0.17.0", "precision_weights": "nvfp4"}
    kimi |= {"tp": "4", "gpus": "4"}
    labels = {1: "moe_tp=4 moe_ep=1", 4: "moe_tp=1 moe_ep=4"}
    rows = {ep: read(**kimi, note=f"trust=B; {label} attn_dp=1; x") for ep, label in labels.items()}
    assert [rows[ep].kwargs["ep"] for ep in labels] == [1, 1]
    runs = {}
    for ep, row in rows.items():
        [runs[ep]] = cases([row, replace(row, id="aic-0002", metric="ttft", measured=0.1)])
    assert [int(scenario(runs[ep]).engine.captured) for ep in labels] == [2048, 512]


def test_served_fp8_products_carry_no_quantising_of_their_own() -> None:
    from rooflm.serving.steps import TableSize, components

    run = case("trtllm", "llama-3.1-70b", "b200-sxm-180gb", tp=8)
    parts = components(scenario(run), TableSize(64, 4, 2048)).parts
    weights = 70e9 / 8 / 7.7e12
    products = 4 * 80
    assert weights < parts.decode["gemm_factor"][0] < weights / 0.6 + products * 5e-6
