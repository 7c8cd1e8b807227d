"""Ranks of attention in data parallel: how tokens come to experts, and experts that ranks share slice by slice."""

import pytest

from rooflm import infer

ASKED = {"gpu": "h200", "gpus": 8, "dp": 8, "ep": 8, "batch": 8, "prompt": 2048, "output": 8, "engine": "sglang-0.5.9"}


def test_prompts_are_summed_over_ranks_and_steps_are_gathered() -> None:
    """SGLang, dp_attention.py: SUM_LEN (all-reduces) where prompts are in the batch, else MAX_LEN."""
    summed, gathered = (infer("deepseek-v3", **ASKED, sets={"engine.exchange": w}) for w in ("sum", "gather"))
    assert float(summed.tpot) == pytest.approx(float(gathered.tpot))
    assert float(summed.ttft) > 1.02 * float(gathered.ttft)


def test_sliced_experts_are_the_same_bytes_and_no_rank_is_the_busiest() -> None:
    """Without --ep-size SGLang cuts each expert over the ranks: the same weights a rank, and an even load."""
    spread, sliced = (infer("deepseek-v3", **ASKED, sets={"mapping.slices": n}) for n in (1, 8))
    assert float(sliced.memory.parts["weights"]) == pytest.approx(float(spread.memory.parts["weights"]), rel=1e-3)
    assert float(sliced.ttft) < float(spread.ttft)
