"""Attention of prompts, and Triton's experts, on CDNA 4 (docs/decisions/0509, 0510)."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm import infer
from rooflm.kernels.attention import PrefillConstants, prefill_attention_time
from rooflm.kernels.constants import lookup
from rooflm.kernels.derating import derating
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_device


@pytest.mark.parametrize(
    ("sequences", "tokens", "heads", "printed"),
    [
        (1, 8192, 64, 1300e12),
        (8, 2048, 32, 894e12),
        (4, 4096, 64, 1175e12),
        (1, 1024, 32, 233e12),
        (1, 16384, 64, 1392e12),
    ],
)
def test_causal_attention_on_mi355x_is_as_aiter_prints_it(
    sequences: int, tokens: int, heads: int, printed: float
) -> None:
    device = load_device("mi355x")
    reached, row = derating(device), lookup("attention", "", "cdna4", "vllm", "bf16", "prefill-hd128").row
    card = Card(device.half_peak * reached.compute, device.dram.bandwidth * reached.bandwidth, device.sms)
    seconds = prefill_attention_time(
        sequences, tokens, 0, heads, 8, 128, q_bytes=2, kv_bytes=2, card=card, c=PrefillConstants(**row.constants)
    )
    assert 2 * sequences * heads * tokens**2 * 128 / seconds == pytest.approx(printed, rel=0.12)


def experts_s(**sets: str) -> float:
    given: dict[str, Any] = {"gpu": "mi355x", "tp": 8, "quant": "fp8-block", "engine": "vllm-0.20.2"}
    return float(infer("deepseek-r1", prompt=2048, output=10, sets=sets, **given).prefill_parts["moe"])


def test_without_aiter_experts_of_blocks_are_tritons_on_cdna4_too() -> None:
    assert 1.5 * experts_s() < experts_s(**{"engine.experts": "triton_blocks"}) < 4 * experts_s()
