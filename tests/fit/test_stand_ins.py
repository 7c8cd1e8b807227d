"""Which measured rows stand for what: Q as servers narrow it, cards of a generation, tables set apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rooflm.readers.devices import load_device
from rooflm_fit.attention import as_served, joined
from rooflm_fit.common import GPUS
from rooflm_fit.gemm import Table as Products
from rooflm_fit.gemm import callers, throttled, units
from rooflm_fit.instinct import EXPERT_PARAMS, EXPERTS, Table, expert_time, fitted, reached


def test_kernels_with_a_narrow_q_stand_for_a_narrow_cache() -> None:
    columns = ("gpu", "backend", "kernel", "dtype", "kv_dtype", "head_dim")
    rows = pd.DataFrame(
        [
            ("b200", "sglang", "trtllm_mha", "bf16", "bf16", 128),
            ("b200", "sglang", "trtllm_mha", "fp8", "fp8", 128),
            ("b200", "sglang", "flashinfer", "bf16", "fp8", 128),  # only a server told so
            ("b200", "sglang", "triton", "bf16", "fp8", 192),  # the one kernel of this size
            ("b200", "sglang", "triton", "fp8", "fp8", 192),
            ("l40s", "sglang", "flashinfer", "bf16", "fp8", 128),
            ("b200", "trtllm", "torch_flow", "bf16", "fp8", 128),
            ("b200", "trtllm", "torch_flow", "fp8", "fp8", 128),
        ],
        columns=columns,
    )
    kept = as_served(rows)
    assert kept.index.tolist() == [0, 1, 3, 5, 6]
    assert set(kept.dtype) == {"bf16"}


def table(gpu: str, engine: str, share: float) -> Products:
    """A table of long products that reach a share of the peak."""
    m = n = k = np.full(4, 32768.0)
    rest = np.zeros(4)
    times = 2 * m * n * k / GPUS[gpu].peak16 / share
    return Products(gpu, engine, "bf16", "", m, n, k, times, rest, rest, rest, rest > 1)


def test_a_table_of_a_throttled_card_is_left_out_of_its_generation() -> None:
    shares = {("b200-sxm-180gb", "vllm"): 0.70, ("gb200", "trtllm"): 0.65, ("gb200", "vllm"): 0.54}
    tables = [table(gpu, engine, share) for (gpu, engine), share in shares.items()]
    assert [(t.gpu, t.engine) for t in throttled(tables)] == [("gb200", "vllm")]
    assert throttled(tables[:1]) == []


def test_whose_products_a_table_is() -> None:
    assert callers(table("h100-sxm-80gb", "vllm", 0.7)) == "*"
    assert callers(table("b200-sxm-180gb", "trtllm", 0.7)._replace(dtype="nvfp4")) == "torch"
    assert callers(table("rtx-pro-6000-server-96gb", "trtllm", 0.7)._replace(dtype="nvfp4")) == "trtllm"
    assert units("b300-sxm-288gb", "nvfp4") != units("b200-sxm-180gb", "nvfp4")
    assert units("b300-sxm-288gb", "fp8") == units("gb200", "fp8")


def test_cards_of_a_generation_make_one_set() -> None:
    names = {"architecture": "hopper", "engine": "vllm", "dtype": "bf16", "kernel": "decode"}
    parts = [(names | {"gpu": gpu}, pd.DataFrame({"gpu": [gpu] * 2})) for gpu in ("h100", "h200")]
    ((key, rows),) = joined(parts).items()
    assert key == ("hopper", "vllm", "bf16", "decode")
    assert rows.gpu.tolist() == ["h100", "h100", "h200", "h200"]
    assert rows.index.tolist() == [0, 1, 2, 3]


def test_one_number_of_experts_tells_no_time_an_expert() -> None:
    device, kind = load_device("mi300x"), EXPERTS["bfloat16", "bfloat16", "No"]
    known = {"start": 1e-5, "expert": 5e-8, "eff_c": 0.6, "eff_m": 0.9, "c_sm": 3.0, "ramp": 1e-7, "wave": 1e-7,
             "eff_pass": 0.5, "stray": 0.0}  # fmt: skip
    tokens = 2.0 ** np.arange(14)
    shape = (tokens, *(np.full_like(tokens, x) for x in (4096, 384, 128, 8)))
    table = Table(shape, tokens, tokens % 3)
    table = table._replace(seconds=expert_time(table, kind, reached(device, kind), known))
    found = fitted(table, kind, device, expert_time, EXPERT_PARAMS, ({},))
    assert found["expert"] == 0.0
    assert found["start"] == pytest.approx(1e-5 + 128 * 5e-8, rel=0.1)
