"""Elementwise kernel time: by hand, as physics, against published measurements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.kernels.constants import load_constants, lookup, typed
from rooflm.kernels.elementwise import IDEAL, MEASURED_AS, ElementwiseConstants, elementwise_time

NORM = (
    (1, 4096, 5.0),
    (256, 4096, 8.0),
    (832, 4096, 16.0),
    (1488, 4096, 27.5),
    (5632, 4096, 140.0),
    (18432, 4096, 450.0),
    (1, 8192, 8.0),
    (256, 8192, 14.0),
    (832, 8192, 30.0),
    (1488, 8192, 68.0),
    (5632, 8192, 265.5),
    (18432, 8192, 838.5),
)
"""tokens, width, time in us of the input RMSNorm (fp16) on A100 SXM. Source: microsoft/vidur, commit 7d47513
(2024-11-19), MIT, profiling data of A100."""


def test_by_hand() -> None:
    # 1 + 10 MB / (0.5 * 2 TB/s) = 10 us + 3 * 10 / 15 us
    c = ElementwiseConstants(t0=1e-6, eff=0.5, ramp=3e-6)
    assert elementwise_time(10e6, bandwidth=2e12, c=c) == pytest.approx(13e-6)
    # one row of 16 kB by one of 100 SMs at twice its share of 2 TB/s: 16384 / 40e9 = 0.41 us
    c = ElementwiseConstants(row=2.0)
    assert elementwise_time(16384, bandwidth=2e12, c=c, row_bytes=16384, sms=100) == pytest.approx(16384 / 40e9)


def test_ideal_is_the_roofline() -> None:
    assert elementwise_time(3e9, bandwidth=1e12, c=IDEAL, row_bytes=1e6, sms=100) == pytest.approx(3e-3)


def test_scalar_array_and_broadcast_agree() -> None:
    c = ElementwiseConstants(2e-6, 0.6, 2e-6, 1.5)
    traffic, row = np.geomspace(1e3, 1e9, 7)[:, None], np.array([0.0, 1e4, 1e6])
    grid = elementwise_time(traffic, bandwidth=2e12, c=c, row_bytes=row, sms=108)
    for i, j in np.ndindex(7, 3):
        one = elementwise_time(float(traffic[i, 0]), bandwidth=2e12, c=c, row_bytes=float(row[j]), sms=108)
        assert grid[i, j] == pytest.approx(float(one), rel=1e-12)


@given(st.floats(1e2, 1e10), st.floats(1.0, 8.0), st.floats(0.0, 1.0))
def test_monotone(traffic: float, factor: float, hot: float) -> None:
    c = ElementwiseConstants(2e-6, 0.6, 2e-6, 1.5)
    kw = {"c": c, "row_bytes": 8192.0, "sms": 108}
    t = elementwise_time(traffic, bandwidth=2e12, **kw)
    assert elementwise_time(traffic, bandwidth=2e12 * factor, **kw) <= t * (1 + 1e-12)
    assert elementwise_time(traffic * factor, bandwidth=2e12, **kw) >= t * (1 - 1e-12)
    assert elementwise_time(traffic, bandwidth=2e12, hot=hot, **kw) <= t * (1 + 1e-12)


def test_published_measurements_within_the_reported_error() -> None:
    match = lookup("elementwise", "a100-sxm-80gb", "ampere", "torch", "fp16", "norm")
    rows, cols, us = np.array(NORM).T
    c = typed(ElementwiseConstants, match.row)
    t = elementwise_time(4 * rows * cols, bandwidth=2039e9, c=c, row_bytes=4 * cols, sms=108)
    assert match.level == "exact"
    off = 100 * np.abs(t / (us * 1e-6) - 1)
    # Single errors spread about as widely as their mean: so a mean of 12 may lie two standard errors above it.
    assert off.mean() <= match.mape * (1 + 2 / np.sqrt(off.size))


def test_every_kind_finds_constants() -> None:
    rows = load_constants("elementwise")
    kinds = {r.kernel for r in rows}
    assert set(MEASURED_AS.values()) == kinds
    for kind in kinds:
        dtype = next(r.dtype for r in rows if r.kernel == kind)
        match = lookup("elementwise", "gaudi3", "gaudi3", "vllm", dtype, kind)
        assert match.level == "all"
        assert 0 < typed(ElementwiseConstants, match.row).eff <= 1.1
