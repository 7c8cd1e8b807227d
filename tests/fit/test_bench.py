"""What `trtllm-bench` sets by itself: limits by hand, and that recipes and tables meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflm.readers.models import packaged
from rooflm_fit.convert import bench

ROW = {"model": "llama-3.3-70b", "gpu": "h200-sxm-141gb", "tp": 1, "prompt": 1000, "output": 1000}


def test_values_of_the_cache_are_those_of_every_gpu() -> None:
    llama = packaged("llama-3.3-70b")  # 80 layers, 8 heads of 128
    assert bench.cached_values(llama, 1) == 80 * 2 * 8 * 128
    assert bench.cached_values(llama, 16) == 2 * bench.cached_values(llama, 1)  # a head a GPU at least
    assert bench.cached_values(packaged("deepseek-v3"), 8) == 61 * 2 * 128 * 56


def test_limits_by_hand() -> None:
    free = 0.9 * (150_754_820_096 - 70.55e9)  # memory of the card less a byte a parameter
    sequences = free / (80 * 2 * 8 * 128 * 2000)
    assert 192 < sequences < 224
    assert bench.limits(ROW, "fp8kv8") == {"budget": 2048, "max_sequences": 224}
    assert bench.limits(ROW | {"prompt": 20000, "output": 2000}, "fp8kv8") == {"budget": 20064, "max_sequences": 64}
    assert bench.limits(ROW | {"gpu": "h100-sxm-80gb", "pp": 4}, "fp8kv8")["max_sequences"] % 4 == 0


UNTUNED = [({}, "mxfp4"), ({"model": "nobody-9b"}, "fp8"), ({"prompt": None}, "fp8"), ({"gpu": "l40s"}, "bf16")]
UNTUNED += [({name: blank}, "fp8") for name in ("model", "gpu", "tp") for blank in ("", None)]


@pytest.mark.parametrize(("change", "quant"), UNTUNED)
def test_where_it_does_not_tune_nothing_is_said(change: dict[str, object], quant: str) -> None:
    assert bench.limits(ROW | change, quant) == {}


def test_a_model_without_attention_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "packaged", lambda name: replace(packaged(name), blocks=()))
    assert bench.limits(ROW, "fp8kv8") == {}
