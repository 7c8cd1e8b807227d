"""Heads that an engine's fused attention over prompts does not take keep their scores in memory."""

from typing import Any

import pytest

import rooflm
from rooflm.graph.attention import softmax_cost
from rooflm.readers.engines import load_engine

MAX = {"gpu": "apple-m5-max-40core-128gb", "quant": "int4", "batch": 1, "output": 1}


def first_token(model: str, prompt: int, **sets: Any) -> float:
    """Seconds of a prompt in MLX."""
    more = {f"engine.{name}": value for name, value in sets.items()}
    return float(rooflm.infer(model, engine="mlx", prompt=prompt, sets=more, **MAX).ttft)


@pytest.mark.parametrize(("model", "same"), [("qwen3-8b", True), ("qwen3.5-27b", False), ("gemma-3-4b", False)])
def test_heads_of_256_values_are_slower_in_mlx(model: str, same: bool) -> None:
    """Its kernel takes 64, 80 and 128 (mlx/backend/metal/scaled_dot_product_attention.cpp until August 2026)."""
    assert load_engine("mlx").kernels.flash_heads == "64 80 128"
    own, all_of_them = (first_token(model, 32768, **sets) for sets in ({}, {"flash_heads": ""}))
    assert (own == all_of_them) if same else own > 1.02 * all_of_them


def test_a_window_bounds_what_is_kept() -> None:
    """Of layers with a window, scores of its keys alone are in memory: Gemma 3 grows as a model of few full layers."""
    more = [first_token("gemma-3-4b", n) - first_token("gemma-3-4b", n, flash_heads="") for n in (8192, 32768)]
    assert 4 < more[1] / more[0] < 16


def test_mask_and_softmax_read_and_write_scores_twice() -> None:
    assert softmax_cost("masked", 2) == (8, 2)
