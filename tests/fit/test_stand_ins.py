"""Which measured rows stand for what: Q as servers narrow it, families that sister cards have, tables set apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rooflm.kernels.constants import ANY, FitRow
from rooflm.readers.devices import load_device
from rooflm_fit.attention import as_served
from rooflm_fit.gemm import throttled
from rooflm_fit.instinct import EXPERT_PARAMS, EXPERTS, Table, expert_time, fitted, reached
from rooflm_fit.moe import borrowed


def fit(**names: Any) -> FitRow:
    same = {"architecture": "blackwell", "constants": {"start": 1e-5}, "rows_in": 1, "rows_out": 1, "mape_in": 1.0}
    return FitRow(**same, mape_out=1.0, source="", date="2026-11-23", **names)  # type: ignore[arg-type]


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


def test_a_family_of_one_card_is_that_of_its_sisters() -> None:
    kernel = {"engine": "trtllm", "dtype": "nvfp4"}
    own = fit(gpu="b200", kernel="min_latency", family="min_latency", **kernel)
    usual = [fit(gpu=gpu, family="cutlass", **kernel) for gpu in ("b200", "b300", ANY)]
    other = fit(gpu="gb200", family="cutlass", engine="vllm", dtype="nvfp4")
    added = borrowed([own, *usual, other])[5:]
    assert [(r.gpu, r.kernel, r.constants) for r in added] == [("b300", "min_latency", own.constants)]


def test_a_table_at_the_card_s_limit_stands_for_nothing() -> None:
    rows = [fit(gpu="gb200", engine=engine, dtype="bf16") for engine in ("vllm", "trtllm")]
    assert [r.engine for r in throttled(rows)] == ["trtllm"]


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
