"""Time of one GEMM kernel, C[m, n] = A[m, k] B[n, k]ᵀ, on a GPU with fitted constants.

The output is cut into tiles of bm x bn, one thread block each; tiles run in waves over the SMs, the last wave partly
empty. Small outputs also cut k into s parts (split-K) and add the parts up. Libraries pick tile and split by shape, so
the formula takes the best of a short list: one extra leading array axis that is minimised away. DRAM traffic and the
work of the SMs overlap, though not perfectly: a smooth maximum joins them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.kernels.blend import filling, part_overlap
from rooflm.kernels.rates import Card
from rooflm.units import Num, is_plain, larger, once_each, pick


class GemmConstants(NamedTuple):
    """Constants of `gemm_time` for a (generation, library, dtype), from data/calibration/gemm.toml; ideal by default:
    no overheads, efficiencies of 1 (tiles and waves stay; the roofline is the physical bound without them)."""

    t0: Num = 0.0  # s: floor of a kernel, launch to launch inside a CUDA graph
    eff_c: Num = 1.0  # share of the datasheet's FLOP/s that full waves of large tiles reach before throttling
    thr: Num = 0.0  # share of that rate lost to power limits in long kernels; half of it at LONG of ideal time
    eff_m: Num = 1.0  # share of the datasheet's DRAM bandwidth that a long kernel reaches
    k0: Num = 0.0  # elements of k that the prologue and epilogue of a tile cost
    pen: Num = 0.0  # a tile computes at (bm bn / FULL_TILE)^pen of the rate: a small one reuses its operands less
    c_sm: Num = np.inf  # operand bandwidth of all SMs together (from L2) over the DRAM's
    mix: Num = 0.0  # how little the SMs' work and DRAM traffic overlap: 0 gives their maximum, 1 their sum
    split: Num = 0.0  # s: fixed cost of adding up the parts of split-K (their traffic comes on top)
    ramp: Num = 0.0  # s lost until DRAM streams at full rate
    q_pass: Num = 0.0  # reads and writes of 3 bytes an activation that quantising it costs (low precision only)
    q_row: Num = 0.0  # elements that quantising a row costs on top of its k (low precision only)
    l2: Num = 0.0  # L2's bandwidth over DRAM's on the cards that c_sm was fitted to: others go by their own (0: DRAM's)


TILES = np.array([[16, 32, 64, 64, 128, 128, 128, 128, 256], [64, 64, 64, 128, 64, 128, 192, 256, 128]], dtype=float)
"""Candidate tiles: rows bm, columns bn. More of them changed the error by under 0.1 points."""
SPLITS = np.array([1.0, 4.0])
"""Parts of k, as times what fills one wave."""
FULL_TILE = 128 * 256
MAX_SPLIT = 64.0
LONG = 400e-6
"""s of ideal time at which half of `thr` is lost."""
PARTIAL_BYTES = 8.0
"""Bytes an output element and part of k: one fp32 write and one read."""
BLOCK = 1 << 13
"""Points evaluated with all tiles at once; above it fewer tiles at a time, to stay in cache and save memory."""


def gemm_time(
    m: Num, n: Num, k: Num,
    *, weight_bytes: Num, act_bytes: Num, out_bytes: Num, card: Card, c: GemmConstants, units: Num = 1.0,
    least: Num = 0.0,
) -> Num:  # fmt: skip
    """Time in s of C[m, n] = A[m, k] B[n, k]ᵀ; every argument and constant may be an array, all broadcast.

    weight_bytes, act_bytes, out_bytes: B an element of B, A and C; units: matrix units of an SM over those of the cards
    that `c` was fitted on (at most 1). What tiles lose (operands that come too slowly, other instructions, their ends)
    is time that smaller units do not stretch. least: rows that a tile computes at least, there or not.

      t = t0 + part_overlap(t_sm / (1 - thr x / (1 + x)), t_mem + ramp t_mem / (t_mem + 5 us)) + t_quantise
      x = (2 m n k / peak / 400 us)²,  t_sm from `_sm_time`
      t_mem = (n k w + m n o + m k a) / (eff_m bandwidth)
      t_quantise = 3 q_pass m (k + q_row) / bandwidth

    Source: tile and wave quantisation, NVIDIA "Matrix Multiplication Background User's Guide" (DU-09799-001);
    constants fitted to measured kernels (see rooflm_fit.gemm for data and errors)."""
    m, n, k = np.asarray(m, dtype=np.float64), np.asarray(n, dtype=np.float64), np.asarray(k, dtype=np.float64)
    mn = m * n
    x = (mn * k * (2.0 / (LONG * card.peak))) ** 2
    feed = c.c_sm * pick(c.l2 > 0, card.l2 / larger(c.l2, 1e-9), card.bandwidth)
    t_sm = once_each(_sm_time, m, n, k, weight_bytes, card.peak, feed, card.sms, units, least, *c)
    t_sm = t_sm / (1.0 - c.thr * x / (1.0 + x))
    t_mem = (n * k * weight_bytes + mn * out_bytes + m * k * act_bytes) / (c.eff_m * card.bandwidth)
    t_mem = t_mem + filling(t_mem, c.ramp)
    t: Num = c.t0 + part_overlap(t_sm, t_mem, c.mix)
    return t if is_plain(c.q_pass, 0.0) else t + m * (k + c.q_row) * (3.0 * c.q_pass / card.bandwidth)


def _sm_time(
    m: Num, n: Num, k: Num, wide: Num, peak: Num, feed: Num, sms: Num, units: Num, least: Num, *constants: Num
) -> Num:
    """Time in s that the SMs need, the best over tiles and splits of k (as in `gemm_time`; wide: B an operand; feed:
    B/s of operands).

      t = min over (bm, bn), s of  waves u (k / s + units k0) + [s > 1] (split + 8 s m n / feed)
      waves = ceil(s tiles / sms), tiles = ceil(m / bm) ceil(n / bn), s in {1, f, 4 f}, f = floor(sms / tiles) in 1..64
      u = max(2 bm bn lost sms / peak, (bm + bn) wide sms / feed)
      lost = max(1 + units (1 / eff_c - 1), units (32768 / (bm bn))^pen / eff_c)

    u is the time that one SM spends on one element of k: multiply-adds of its tile, or fetching its operands. f fills
    one wave; 4 f also evens out a partly empty last wave, as stream-K kernels do."""
    c = GemmConstants(*constants)
    others = (x for x in (peak, feed, sms, wide, units, least, *c) if isinstance(x, np.ndarray))
    shape = np.broadcast(m, n, k, *others)
    fetch = np.asarray(sms / feed)
    multiply = np.asarray(2.0 * sms / peak)
    whole_tile, small_tile = 1.0 + units * (1.0 / c.eff_c - 1.0), units / c.eff_c
    k0 = c.k0 * units
    reduce = m * n * (PARTIAL_BYTES / feed)
    best: Num = np.inf
    step = max(1, BLOCK // max(shape.size, 1))
    for first in range(0, TILES.shape[1], step):
        bm, bn = TILES[:, first : first + step].reshape((2, -1) + (1,) * shape.ndim)
        area = np.maximum(bm, least) * bn
        lost = np.maximum(whole_tile, small_tile * (FULL_TILE / area) ** c.pen)
        u = np.maximum(multiply * area * lost, fetch * wide * (bm + bn))
        load = np.ceil(m / bm) * (np.ceil(n / bn) / sms)
        whole = np.minimum.reduce(np.ceil(load) * u) * (k + k0)
        s = SPLITS[:, *(None,) * (shape.ndim + 1)] * np.minimum(np.maximum(np.floor(1.0 / load), 1.0), MAX_SPLIT)
        parted = np.minimum.reduce(np.ceil(load * s) * u * (k / s + k0) + s * reduce, axis=(0, 1))
        best = np.minimum(best, np.minimum(whole, parted + c.split))
    return best
