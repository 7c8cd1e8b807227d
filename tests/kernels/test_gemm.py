"""GEMM kernel time: by hand, as physics, against published measurements; the calibration file and its fall-backs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import by_rates, load_constants

from rooflm.errors import RooflmError, UnknownNameError
from rooflm.kernels import gemm
from rooflm.kernels.blend import part_overlap
from rooflm.kernels.constants import LEVELS, FitRow, lookup, typed
from rooflm.kernels.gemm import TILES, GemmConstants
from rooflm_fit.common import ideal_gemm_time, warm_share

BF16 = {"weight_bytes": 2.0, "act_bytes": 2.0, "out_bytes": 2.0}
gemm_time = by_rates(gemm.gemm_time)
H100 = {"peak": 989e12, "bandwidth": 3350e9, "sms": 132}
FITTED = GemmConstants(2.4e-6, 0.97, 0.14, 0.91, 235.0, 0.05, 3.6, 0.05, 3e-6, 2e-6)

MEASURED = (
    (1, 4096, 4096, 15.05), (64, 4096, 4096, 14.77), (64, 12288, 4096, 36.99), (1024, 4096, 4096, 43.13),
    (8192, 4096, 12288, 1094.2), (2048, 10240, 8192, 412.53), (32, 1024, 8192, 10.56), (128, 2560, 2560, 8.39),
    (4096, 5120, 5120, 280.01), (512, 7168, 2048, 22.49), (64, 16384, 5120, 72.21), (8, 5120, 12288, 46.47),
    (4096, 6144, 4096, 258.7), (128, 12288, 4096, 43.97),
)  # fmt: skip
"""m, n, k, time in us: bf16 torch.nn.functional.linear on H100 SXM, vLLM 0.24.0. Source: ai-dynamo/aiconfigurator,
commit 095f58a (2026-08-21), Apache-2.0, GEMM tables of H100 SXM."""


def test_by_hand() -> None:
    # 256 x 256 x 1000 on 4 SMs, 1e12 FLOP/s, endless DRAM: four tiles of 128 x 128 fill one wave exactly, so
    # 2 * 256 * 256 * 1000 / 1e12 = 131.072 us; k0 = 100 adds a tenth, and t0 its microsecond.
    c = GemmConstants(t0=1e-6, k0=100.0, split=1.0)
    t = gemm_time(256, 256, 1000, **BF16, peak=1e12, bandwidth=1e18, sms=4, c=c)
    assert t == pytest.approx(1e-6 + 131.072e-6 * 1.1, rel=1e-12)


def test_memory_bound_by_hand() -> None:
    # (4096 * 4096 + 4096 + 4096) * 2 B at half of 1 TB/s: 67.14 us; ramp 3 us * 67.14 / (67.14 + 5).
    t = gemm_time(1, 4096, 4096, **BF16, peak=1e18, bandwidth=1e12, sms=100, c=GemmConstants(eff_m=0.5, ramp=3e-6))
    dram = (4096 * 4096 + 2 * 4096) * 2 / 0.5e12
    assert t == pytest.approx(dram + 3e-6 * dram / (dram + 5e-6), rel=1e-9)


def test_wave_quantisation() -> None:
    # One tile more than the SMs hold doubles the time of an unsplit kernel.
    kw = dict(**BF16, peak=1e12, bandwidth=1e18, sms=4, c=GemmConstants(split=1.0, pen=1.0))
    one = gemm_time(256, 4 * 128, 1e4, **kw)  # four tiles of 256 x 128
    assert gemm_time(256, 4 * 128 + 1, 1e4, **kw) == pytest.approx(2 * one)


def test_scalar_array_and_broadcast_agree() -> None:
    rng = np.random.default_rng(1)
    m, n, k = (rng.integers(1, 9000, s).astype(float) for s in ((7, 1, 1), (1, 5, 1), (1, 1, 3)))
    grid = gemm_time(m, n, k, **BF16, **H100, c=FITTED)
    assert np.shape(grid) == (7, 5, 3)
    for i, j, h in np.ndindex(7, 5, 3):
        one = gemm_time(m[i, 0, 0], n[0, j, 0], k[0, 0, h], **BF16, **H100, c=FITTED)
        assert np.ndim(one) == 0
        assert grid[i, j, h] == pytest.approx(float(one), rel=1e-12)


def test_large_grids_equal_small_ones() -> None:
    m = np.arange(1.0, 30001.0)  # beyond the block size: tiles are taken a few at a time
    whole = gemm_time(m, 5120, 5120, **BF16, **H100, c=FITTED)
    assert whole[::997] == pytest.approx(gemm_time(m[::997], 5120, 5120, **BF16, **H100, c=FITTED), rel=1e-12)


def test_device_column_broadcasts() -> None:
    peak, bandwidth, sms = np.array([989e12, 312e12]), np.array([3.35e12, 2.039e12]), np.array([132, 108])
    c = FITTED._replace(eff_c=np.array([0.97, 0.95]))
    both = gemm_time(512, 4096, 4096, **BF16, peak=peak, bandwidth=bandwidth, sms=sms, c=c)
    alone = gemm_time(512, 4096, 4096, **BF16, peak=312e12, bandwidth=2.039e12, sms=108, c=FITTED._replace(eff_c=0.95))
    assert both[1] == pytest.approx(float(alone), rel=1e-12)


def test_no_integer_overflow() -> None:
    m, n, k = np.array([32768], np.int32), np.array([65536], np.int32), np.array([51200], np.int32)
    assert float(ideal_gemm_time(m, n, k, **BF16, peak=1e15, bandwidth=1e12)[0]) == pytest.approx(
        2 * 32768 * 65536 * 51200 / 1e15
    )
    assert gemm_time(m, n, k, **BF16, **H100, c=GemmConstants())[0] > 0.2


sizes = st.integers(1, 70000)


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, st.floats(1.0, 4.0))
def test_faster_hardware_is_never_slower(m: int, n: int, k: int, factor: float) -> None:
    t = gemm_time(m, n, k, **BF16, **H100, c=FITTED)
    more_peak = gemm_time(m, n, k, **BF16, **{**H100, "peak": 989e12 * factor}, c=FITTED._replace(thr=0.0))
    assert more_peak <= gemm_time(m, n, k, **BF16, **H100, c=FITTED._replace(thr=0.0)) * (1 + 1e-12)
    more_bandwidth = gemm_time(m, n, k, **BF16, **{**H100, "bandwidth": 3350e9 * factor}, c=FITTED)
    assert more_bandwidth <= t * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes)
def test_never_below_the_roofline(m: int, n: int, k: int) -> None:
    bound = ideal_gemm_time(m, n, k, **BF16, peak=989e12, bandwidth=3350e9)
    assert gemm_time(m, n, k, **BF16, **H100, c=GemmConstants()) >= bound * (1 - 1e-12)


def test_ideal_is_reached_where_tiles_fit() -> None:
    m, n = 128 * 12, 256 * 11  # 132 tiles of 128 x 256
    bound = ideal_gemm_time(m, n, 8192, **BF16, peak=989e12, bandwidth=3350e9)
    assert gemm_time(m, n, 8192, **BF16, **H100, c=GemmConstants()) == pytest.approx(float(bound), rel=1e-12)


def test_rates_times_a_factor_divide_the_time() -> None:
    c = FITTED._replace(t0=0.0, thr=0.0, split=0.0, ramp=0.0)
    t = gemm_time(300, 4096, 4096, **BF16, **H100, c=c)
    fast = gemm_time(300, 4096, 4096, **BF16, peak=3 * 989e12, bandwidth=3 * 3350e9, sms=132, c=c)
    assert fast == pytest.approx(float(t) / 3)


def test_part_overlap_and_warm_share() -> None:
    assert part_overlap(2.0, 5.0, 0.0) == 5.0
    assert 5.0 < part_overlap(2.0, 5.0, 0.2) < 7.0
    assert warm_share(1e6, 6, 50e6) == pytest.approx(1.0)
    assert warm_share(500e6, 6, 50e6) < 1e-9
    assert warm_share(500e6, 1, 50e6) == pytest.approx(0.025)


def test_few_constants_and_candidates() -> None:
    assert len({*GemmConstants._fields} - {"l2"}) <= 12  # l2 is no fitted constant
    assert 3 * TILES.shape[1] <= 40


# ---- the calibration file


def test_published_measurements_within_the_reported_error() -> None:
    match = lookup("gemm", "h100-sxm-80gb", "hopper", "vllm", "bf16")
    m, n, k, us = np.array(MEASURED, dtype=float).T
    t = gemm_time(m, n, k, **BF16, **H100, c=typed(GemmConstants, match.row))
    off = 100 * np.abs(t / (us * 1e-6) - 1)
    assert match.level == "exact"
    assert match.row.mape_out < 8.0
    # Single errors spread about as widely as their mean: so a mean of 14 may lie two standard errors above it.
    assert off.mean() <= match.row.mape_out * (1 + 2 / np.sqrt(off.size))
    assert off.max() < 25
    naive = ideal_gemm_time(m, n, k, **BF16, peak=989e12, bandwidth=3350e9)
    assert 100 * np.mean(np.abs(naive / (us * 1e-6) - 1)) > 3 * off.mean()


def test_every_row_loads_and_is_honest() -> None:
    rows = load_constants("gemm")
    assert len({(r.gpu, r.architecture, r.engine, r.dtype) for r in rows}) == len(rows)
    for r in rows:
        c = typed(GemmConstants, r)
        most = 1.2 if r.architecture.startswith("cdna") else 1.1  # a share of what the family reaches of its datasheet
        assert 0 < c.eff_c <= 1.3 and 0 < c.eff_m <= most and 0 <= c.thr < 1
        if r.family in ("triton", "ck") or "printed times" in r.note:  # by hand, or of few printed figures
            continue
        assert r.rows_in > 450 and r.rows_out > 200 and r.mape_out > 0
        shares = r.mape_out / max(r.mape_in, 1e-9)
        assert shares < 1.5  # shapes kept aside are about as good as fitted ones


@pytest.mark.parametrize(
    ("gpu", "architecture", "engine", "dtype", "level"),
    [
        ("h200-sxm-141gb", "hopper", "trtllm", "fp8", "exact"),
        ("b300-sxm-288gb", "blackwell", "vllm", "bf16", "exact"),
        ("h200-sxm-141gb", "hopper", "vllm", "fp16", "exact"),
        ("h200-sxm-141gb", "hopper", "megatron", "bf16", "exact"),  # one library
        ("h200-sxm-141gb", "hopper", "megatron", "fp8", "other engine"),
        ("h800-sxm-80gb", "hopper", "vllm", "bf16", "generation"),
        ("rtx-5090", "blackwell-rtx", "vllm", "bf16", "generation"),
        ("mi300x", "cdna3", "vllm", "bf16", "all"),
        ("h100-sxm-80gb", "hopper", "vllm", "tf32", "other dtype"),
    ],
)
def test_fall_backs(gpu: str, architecture: str, engine: str, dtype: str, level: str) -> None:
    match = lookup("gemm", gpu, architecture, engine, dtype)
    assert match.level == level
    assert match.level in LEVELS
    if dtype == "bf16":
        assert match.row.dtype == "bf16"  # not its twin, fp16, where both are there


def test_an_engines_own_set_of_a_generation_stands_before_anothers_of_the_card() -> None:
    """SGLang's attention was measured on B200 and GB200, other engines' on B300 too."""
    for family, kernel in (("attention", "decode"), ("attention", "prefill"), ("mla", "mla-decode")):
        found = lookup(family, "b300-sxm-288gb", "blackwell", "sglang", "bf16", kernel)
        assert (found.row.engine, found.level) == ("sglang", "generation")
        assert lookup(family, "b300-sxm-288gb", "blackwell", "nobody", "bf16", kernel).level == "other engine"
    assert len(lookup("gemm", "jetson-thor-128gb", "blackwell", "vllm", "nvfp4").row.gpu.split()) == 2  # not B300's


def test_errors_teach() -> None:
    with pytest.raises(UnknownNameError, match="gemm"):
        load_constants("gem")
    row = load_constants("gemm")[0]
    bad = FitRow(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "constants": {"eff_x": 1.0}})
    with pytest.raises(RooflmError, match="eff_x"):
        typed(GemmConstants, bad)


H20 = {"peak": 296e12, "bandwidth": 4000e9, "sms": 78}
"""fp8 on an SM with a quarter of an H100's matrix units."""
BYTES = {"weight_bytes": 1.0, "act_bytes": 1.0, "out_bytes": 2.0}


def test_small_units_do_not_stretch_what_a_tile_loses() -> None:
    c = typed(GemmConstants, lookup("gemm", "h100-sxm-80gb", "hopper", "vllm", "fp8").row)
    alike, few = (float(gemm_time(1, 8192, 8192, **BYTES, **H20, c=c, units=units)) for units in (1.0, 0.25))
    assert few < 0.8 * alike
    read = 8192 * 8192 / (c.eff_m * 4000e9) + c.t0
    assert read < few < 1.35 * read  # bound by memory, as bf16 of twice the bytes is
    large = [float(gemm_time(16384, 8192, 8192, **BYTES, **H20, c=c, units=units)) for units in (1.0, 0.25)]
    assert 0.85 * large[0] < large[1] <= large[0]  # whole tiles of many rows wait for the units themselves


def test_idle_rows_of_a_tile_are_multiplied_too() -> None:
    """DeepGEMM on H20: 32 rows an expert as long as 64 (pull request 192: 117 TFLOP/s of the 32)."""
    c = typed(GemmConstants, lookup("gemm", "h100-sxm-80gb", "hopper", "sglang", "fp8_block").row)
    rows = [float(gemm_time(m, 32768, 7168, **BYTES, **H20, c=c, units=0.25, least=64.0)) for m in (32, 64)]
    assert rows[0] == pytest.approx(rows[1], rel=0.1)
    assert 2 * 32 * 32768 * 7168 / rows[0] == pytest.approx(117e12, rel=0.15)


def test_two_cards_of_one_chip_draw_operands_alike() -> None:
    # H200 is an H100 with faster DRAM: what its SMs draw from L2 is the same, whatever DRAM gives
    fed = GemmConstants(c_sm=2.0, l2=2.5)
    shape = {"weight_bytes": 2, "act_bytes": 2, "out_bytes": 2, "peak": 1e15, "sms": 132, "c": fed}
    one, other = (float(gemm_time(8192, 8192, 8192, bandwidth=b, l2=9e12, **shape)) for b in (3.35e12, 4.8e12))
    assert one == pytest.approx(other)  # bound by what L2 gives, 7.2 TB/s
    assert float(gemm_time(8192, 8192, 8192, bandwidth=3.35e12, l2=18e12, **shape)) < one


L40S = {"peak": 733e12, "bandwidth": 864e9, "sms": 142, "l2": 7741e9}
BLOCKS_ON_L40S = (
    (1, 17408, 5120, 169),
    (1, 5120, 8704, 101.5),
    (64, 7168, 5120, 69),
    (96, 5120, 8704, 123.5),
    (2048, 17408, 5120, 1222),
)
"""m, n, k, us of Triton's kernel for blocks of fp8 as vLLM 0.27.1 launches it untuned (docs/decisions/0548)."""


def test_ada_multiplies_blocks_of_fp8_by_triton_in_vllm_and_sglang() -> None:
    """Neither DeepGEMM nor CUTLASS has blocks there, whichever card; an engine with kernels of its own keeps them."""
    row = lookup("gemm", "l40s", "ada", "vllm", "fp8_block").row
    assert row.family == "triton"
    assert [lookup("gemm", gpu, "ada", "sglang", "fp8_block").row for gpu in ("l40s", "l4", "rtx-4090")] == [row] * 3
    for engine in ("trtllm", "lmdeploy"):
        assert lookup("gemm", "l40s", "ada", engine, "fp8_block").row.engine == "trtllm"
    m, n, k, us = np.array(BLOCKS_ON_L40S, float).T
    c = typed(GemmConstants, row)._replace(q_pass=0.0)
    off = gemm_time(m, n, k, **BYTES, **L40S, c=c) / (us * 1e-6) - 1
    assert np.abs(off).max() < 0.2
    assert np.abs(off).mean() < 0.12
