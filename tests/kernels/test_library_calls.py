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
