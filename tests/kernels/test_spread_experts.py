"""Experts in MXFP4 on cards without units or kernels for them: vLLM spreads all to 16 bits in each pass."""

from __future__ import annotations

from typing import Any

import pytest

import rooflm

BASE: dict[str, Any] = {"engine": "vllm", "quant": "mxfp4", "tp": 8, "batch": 8, "prompt": 512, "output": 32}
NONE = {"engine.widened_experts": ""}
DRAM = 5.3e12
"""Of MI300X' datasheet."""
WEIGHTS = 58 * 256 * 3 * 7168 * 2048 / 8
"""DeepSeek-R1's routed experts on one of eight ranks."""


def test_a_pass_reads_and_writes_all_experts_of_a_rank() -> None:
    """vLLM issue 34331: half a byte and its scale are read, two are written, whoever chose them."""
    spread = rooflm.infer("deepseek-r1", gpu="mi300x", **BASE)
    stored = rooflm.infer("deepseek-r1", gpu="mi300x", sets=NONE, **BASE)
    least = WEIGHTS * (4.25 / 8 + 2.0) / DRAM
    assert spread.tpot - stored.tpot > least
    assert spread.tpot > 2 * stored.tpot
    assert any("spreads all of them to 16 bits" in one for one in spread.warnings)


@pytest.mark.parametrize(("model", "gpu"), [("deepseek-r1", "mi355x"), ("gpt-oss-120b", "mi300x")])
def test_not_where_there_is_a_kernel(model: str, gpu: str) -> None:
    """CDNA 4 has units for it; gpt-oss runs OpenAI's Triton kernels, or AITER's (docs/decisions/0167)."""
    told, plain = (rooflm.infer(model, gpu=gpu, sets=sets, **BASE) for sets in ({}, NONE))
    assert told.tpot == plain.tpot
    assert not [one for one in told.warnings if "16 bits first" in one]


@pytest.mark.parametrize("quant", ["bf16", "fp8", "mxfp4"])
def test_whatever_an_engine_says_to_spread_16_bits_stay(quant: str) -> None:
    told, plain = (rooflm.infer("mixtral-8x7b", gpu="mi300x", quant=quant, sets={"engine.widened_experts": of})
                   for of in ("*/*/*", ""))  # fmt: skip
    assert (told.tpot > plain.tpot) == (quant != "bf16")
    (warning,) = [one for one in told.warnings if "16 bits first" in one] or [""]
    assert bool(warning) == (quant != "bf16")
    assert "as it is" not in warning  # int4 and fp8 are spread, too


def test_what_is_not_spread_is_advised() -> None:
    sets = {"engine.widened_experts": "*/fp8/cdna3"}
    told = rooflm.infer("mixtral-8x7b", gpu="mi300x", quant="fp8", sets=sets)
    assert [one for one in told.warnings if one.endswith("16 bits first; int4 runs as it is")]


def test_the_copy_of_a_layer_takes_memory() -> None:
    """256 experts of 3 matrices of 7168 x 2048 in 16 bits, an eighth on each rank: 2.6 GiB, whatever the batch."""
    spread, stored = (rooflm.infer("deepseek-r1", gpu="mi300x", sets=sets, **BASE) for sets in ({}, NONE))
    copy = WEIGHTS / 58 * 2
    assert copy / 2**30 == pytest.approx(2.625)
    parts, plain = spread.memory.parts, stored.memory.parts
    assert parts["activations"] - plain["activations"] == pytest.approx(copy)
    assert {**parts, "activations": 0} == {**plain, "activations": 0}
    assert spread.max_batch < stored.max_batch
