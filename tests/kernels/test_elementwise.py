"""Elementwise kernel time: by hand, as physics, against published measurements; and the fitting tools."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tables import load_constants

from rooflm.kernels.constants import FitRow, lookup, typed
from rooflm.kernels.elementwise import MEASURED_KERNEL, ElementwiseConstants, elementwise_time
from rooflm.validation.folds import held_out
from rooflm_fit.common import Param, error, fit, write_fits

NORM = (
    (1, 4096, 5.0), (256, 4096, 8.0), (832, 4096, 16.0), (1488, 4096, 27.5), (5632, 4096, 140.0),
    (18432, 4096, 450.0), (1, 8192, 8.0), (256, 8192, 14.0), (832, 8192, 30.0), (1488, 8192, 68.0),
    (5632, 8192, 265.5), (18432, 8192, 838.5),
)  # fmt: skip
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
    none = ElementwiseConstants()
    assert elementwise_time(3e9, bandwidth=1e12, c=none, row_bytes=1e6, sms=100) == pytest.approx(3e-3)


def test_scalar_array_and_broadcast_agree() -> None:
    c = ElementwiseConstants(2e-6, 0.6, 2e-6, 1.5)
    traffic, row = np.geomspace(1e3, 1e9, 7)[:, None], np.array([0.0, 1e4, 1e6])
    grid = elementwise_time(traffic, bandwidth=2e12, c=c, row_bytes=row, sms=108)
    for i, j in np.ndindex(7, 3):
        one = elementwise_time(float(traffic[i, 0]), bandwidth=2e12, c=c, row_bytes=float(row[j]), sms=108)
        assert grid[i, j] == pytest.approx(float(one), rel=1e-12)


@given(st.floats(1e2, 1e10), st.floats(1.0, 8.0))
def test_monotone(traffic: float, factor: float) -> None:
    c = ElementwiseConstants(2e-6, 0.6, 2e-6, 1.5)
    kw = {"c": c, "row_bytes": 8192.0, "sms": 108}
    t = elementwise_time(traffic, bandwidth=2e12, **kw)
    assert elementwise_time(traffic, bandwidth=2e12 * factor, **kw) <= t * (1 + 1e-12)
    assert elementwise_time(traffic * factor, bandwidth=2e12, **kw) >= t * (1 - 1e-12)


def test_published_measurements_within_the_reported_error() -> None:
    match = lookup("elementwise", "a100-sxm-80gb", "ampere", "torch", "fp16", "norm")
    rows, cols, us = np.array(NORM).T
    c = typed(ElementwiseConstants, match.row)
    t = elementwise_time(4 * rows * cols, bandwidth=2039e9, c=c, row_bytes=4 * cols, sms=108)
    assert match.level == "exact"
    off = 100 * np.abs(t / (us * 1e-6) - 1)
    # Single errors spread about as widely as their mean: so a mean of 12 may lie two standard errors above it.
    assert off.mean() <= match.row.mape_out * (1 + 2 / np.sqrt(off.size))


def test_every_kind_finds_constants() -> None:
    rows = load_constants("elementwise")
    kinds = {r.kernel for r in rows}
    assert set(MEASURED_KERNEL.values()) == kinds
    for kind in kinds:
        dtype = next(r.dtype for r in rows if r.kernel == kind)
        match = lookup("elementwise", "gaudi3", "gaudi3", "vllm", dtype, kind)
        assert match.level == "all"
        assert 0 < typed(ElementwiseConstants, match.row).eff <= 1.1


# ---- the fitting tools


def test_fit_recovers_known_constants_despite_faulty_rows() -> None:
    true = {"t0": 2.5e-6, "eff": 0.55, "ramp": 4e-6, "row": 1.3}
    rng = np.random.default_rng(0)
    traffic, row_bytes = np.geomspace(1e4, 1e10, 400), rng.choice([4e3, 2e4, 3e5], 400)

    def model(c: Mapping[str, float]) -> NDArray[np.float64]:
        constants = ElementwiseConstants(**c)
        return np.asarray(elementwise_time(traffic, bandwidth=2e12, c=constants, row_bytes=row_bytes, sms=108))

    measured = model(true) * np.exp(rng.normal(0, 0.02, 400))
    measured[::40] *= 3.0
    params = (
        Param("t0", 1e-6, 1e-7, 1e-4),
        Param("eff", 0.9, 0.05, 1.1),
        Param("ramp", 1e-6, 1e-8, 1e-4),
        Param("row", 5.0, 0.05, 100.0),
    )
    found = fit(model, measured, params, starts=({}, {"row": 0.5}))
    assert found == pytest.approx(true, rel=0.08)
    assert error(model(found), measured).median < 2.0


def test_prior_holds_an_unidentified_constant() -> None:
    measured = np.full(50, 10.0)
    params = (Param("a", 1.0, 0.01, 100.0), Param("b", 2.0, 0.1, 10.0, prior=0.1))
    found = fit(lambda c: np.full(50, c["a"] * c["b"]), measured, params)
    assert found["b"] == pytest.approx(2.0, rel=0.02)
    assert found["a"] * found["b"] == pytest.approx(10.0, rel=1e-3)


def test_held_out_groups_are_whole_and_stable() -> None:
    n, k = np.repeat(np.arange(400), 3), np.tile([1, 2, 3], 400)
    aside = held_out(n)
    assert (aside.reshape(400, 3) == aside.reshape(400, 3)[:, :1]).all()
    assert 0.25 < aside.mean() < 0.35
    assert (held_out(n, k) == held_out(n.tolist(), k.tolist())).all()


def test_written_rows_read_back(tmp_path: Path) -> None:
    row = load_constants("elementwise")[0]
    write_fits(tmp_path / "x.toml", [row], "one row")
    again = tomllib.loads((tmp_path / "x.toml").read_text(encoding="utf-8"))["fit"][0]
    assert msgspec.convert(again, FitRow) == row
