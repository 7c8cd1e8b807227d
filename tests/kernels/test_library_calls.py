"""Experts that a library's calls take one by one, in builds before kernels of their own."""

from __future__ import annotations

import pytest

import rooflm

GRANITE = {"gpu": "rtx-3090", "quant": "fp16", "batch": 1, "prompt": 4, "output": 2}
CALL, LAYERS, PRODUCTS, EXPERTS, CHOSEN = 8e-6, 32, 3, 40, 8


def test_a_call_a_product_of_each_expert_that_some_token_chose() -> None:
    """Four tokens of Granite 3B choose 40 (1 - 0.8^4) = 23.6 of 40 experts: three calls each in 32 layers, 18.1 ms."""
    one_by_one = rooflm.infer("granite-3-3b-a800m", engine="llama.cpp-b6420", **GRANITE)
    without = rooflm.infer("granite-3-3b-a800m", engine="llama.cpp-b6430", **GRANITE)
    calls = CALL * LAYERS * PRODUCTS * EXPERTS * (1.0 - (1.0 - CHOSEN / EXPERTS) ** 4)
    assert one_by_one.ttft - without.ttft == pytest.approx(calls, rel=0.01)
    assert one_by_one.tpot == pytest.approx(without.tpot, rel=1e-9), "a token alone goes through vector kernels"


def test_quantised_experts_went_the_same_way_before_april_2025() -> None:
    given = GRANITE | {"quant": "q8_0", "prompt": 512}
    older, newer = (
        rooflm.infer("granite-3-3b-a800m", engine=f"llama.cpp-{build}", **given) for build in ("b5229", "b5230")
    )
    assert older.ttft - newer.ttft == pytest.approx(CALL * LAYERS * PRODUCTS * EXPERTS, rel=0.01)


@pytest.mark.parametrize(("tokens", "measured"), [(128, 371.18), (256, 408.51)])
def test_volta_visits_quantised_experts_one_by_one_from_64_tokens_on(tokens: int, measured: float) -> None:
    """DeepSeek-V2-Lite on V100 behind 32,768 tokens by micro-batch (llama.cpp pull request 17505): 26 layers of 64."""
    given = {"gpu": "v100-pcie-32gb", "engine": "llama.cpp-b7250", "quant": "q4_0", "batch": 1, "output": 1}
    given |= {"prompt": 33280, "cached": 32768, "sets": {"engine.token_budget": tokens}}
    with_calls = rooflm.infer("deepseek-v2-lite", **given)
    given["sets"] |= {"engine.spread_calls": 0}
    without = rooflm.infer("deepseek-v2-lite", **given)
    assert measured < 512 / with_calls.ttft < 1.1 * measured < 512 / without.ttft
    assert with_calls.ttft - without.ttft == pytest.approx(512 / tokens * 26 * 3 * 64 * CALL, rel=0.01)
    given["sets"] |= {"engine.token_budget": 32}
    assert rooflm.infer("deepseek-v2-lite", **given).ttft == pytest.approx(
        rooflm.infer("deepseek-v2-lite", **given | {"sets": {"engine.token_budget": 32}}).ttft, rel=1e-9
    )


def test_streams_were_mixed_step_by_step_before_july_2026() -> None:
    """DeepSeek-V4-Flash on eight V100 makes 12.2 tokens a second in b9644: 137 kernels around each half layer."""
    given = {"gpu": "v100-sxm-32gb", "quant": "mxfp4-moe", "gpus": 8, "pp": 8, "batch": 1, "prompt": 1, "output": 128}
    before = rooflm.infer("deepseek-v4-flash", engine="llama.cpp-b9644", **given)
    fused = rooflm.infer("deepseek-v4-flash", engine="llama.cpp-b9644", sets={"engine.mix_chain": 0}, **given)
    assert 1 / before.tpot == pytest.approx(12.2, rel=0.2)
    assert before.tpot > 2 * fused.tpot
