"""What products of 16 bits reach on cards whose kernels nobody measured, beside what PyTorch's do."""

from __future__ import annotations

import pytest

from rooflm.asked.kernel import predict_attention, predict_gemm
from rooflm.readers.devices import load_device

SIZES = (2048, 8192, 10240)
BEST = {
    "t4": 42.3, "l4": 70.9, "l20": 114, "rtx-a6000": 123, "h100-pcie": 496, "h20": 142, "rx-7900-xtx": 97,
    "rx-7700-xt": 56, "rtx-3070-8gb": 43, "rtx-3080-10gb": 64.5, "rtx-3090": 76.5, "rtx-4060": 32.6,
    "rtx-4070-super": 76, "rtx-4090": 167, "rtx-5060": 40.1, "rtx-5060-ti-16gb": 48.2, "rtx-5070-ti": 99,
    "rtx-5080": 102.9, "rtx-5090": 236,
}  # fmt: skip
"""Best TFLOP/s of torch.matmul, 1,024 to 10,240 square, fp16 or bf16, the median of several boards. Source:
github.com/zzc0721/torch-performance-test-data, database.md (2025-2026). No prediction passes the datasheet, which
GeForce's clocks do by up to 13 %."""


@pytest.mark.parametrize(("gpu", "best"), BEST.items())
def test_the_best_of_large_products(gpu: str, best: float) -> None:
    runs = [predict_gemm(n, n, n, gpu=gpu, engine="vllm") for n in SIZES]
    measured = min(best, load_device(gpu).half_peak / 1e12)
    assert max(run.flops / run.time_s for run in runs) / 1e12 == pytest.approx(measured, rel=0.12)


def test_attention_loses_less_beside_small_matrix_units() -> None:
    """FlashAttention 2 on RTX 5090: 187 to 191 of 209.5 TFLOP/s (gau-nernst/learn-cuda, 07_attention, without a mask;
    8,192 keys, heads of 128); 0.6 were predicted, as on RTX PRO 6000, whose SMs multiply at twice the rate."""
    shares = [
        predict_attention("prefill", gpu=gpu, engine="vllm", batch=4, tokens=8192, kv_heads=8).compute
        for gpu in ("rtx-5090", "rtx-pro-6000-server")
    ]
    assert 0.67 < shares[0] < 0.92 and shares[1] < 0.62
