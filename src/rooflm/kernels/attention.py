"""Kernel time of softmax attention: prefill (also chunked, windowed and non-causal) and decode over a KV cache.

A fused kernel cuts the work into tiles (128 query rows of one head, say) that the SMs take up in turn. Prefill is
bound by the tensor cores and by what every tile costs besides; decode streams the KV cache, cut along its length into
splits when there are fewer (sequence, KV head) pairs than SMs. All sizes may be floats or arrays and broadcast.

Known limits (see data/calibration/attention.toml for figures): TensorRT-LLM picks the number of splits by rules of its
own, so its decode jumps where ours is smooth; the first tens of microseconds depend on the wrapper around the kernel.
"""

from __future__ import annotations

import math
from functools import cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.kernels.constants import ANY, Match, load_constants, lookup

Number = float | NDArray[np.float64]
Truth = bool | NDArray[np.bool_]

SPLITS = 2.0 ** np.arange(8)
"""Candidate cuts of a KV cache along its length."""
HOT_GAIN = 0.95
"""Share of the DRAM time that decode saves on KV found in L2 (not fitted: the SMs bound it then)."""
HOT_GAIN_PREFILL = 0.65
"""The same of prefill's reads and passes, which write as well."""
WIDE_GROUP = 32
"""TensorRT-LLM's decode kernel takes 2 to 32 query heads a KV head; one, or more, go to kernels of their own."""
TENSOR_GROUP = 4
"""FlashInfer's decode in SGLang uses tensor cores from so many query heads a KV head on."""
GRAPH_BATCH = 512
"""Largest batch for which vLLM captures a CUDA graph by default."""
WRITE_THREADS = 512
"""Threads of vLLM's cache-writing kernel for a token: one a value of K, at most so many (reshape_and_cache_flash)."""
SM_THREADS = 2048
"""Threads that an SM holds at once."""
RAMP_S = 5e-6
"""DRAM time at which 63 % of the ramp is seen (short transfers end before it)."""
THROTTLE_S = 2e-3
"""Ideal kernel time at which half of the power throttling has set in, in benchmarks that repeat one kernel."""


class PrefillConstants(NamedTuple):
    """Constants of one prefill kernel on one device: 11 fitted (swap_s only with pack_to 1), two picked from a list.

    launch_s: time of an empty call, s; eff: tensor core rate of long tiles over the datasheet's; tile_s: cost of a
    tile besides its products, s; softmax_dim: exponentials of a score, as if the head were so much wider; kv_passes,
    qo_passes: serial passes over new K and V (rotary, cache write, quantisation), and over Q and O; sharp: exponent of
    the smooth maximum; throttle: share of the rate lost in kernels much longer than THROTTLE_S; tail: share of the
    longest tile's time that nothing overlaps (0 where the kernel splits it); l2_frac: share of L2 that keeps data
    between repeats; swap_s: copy that brings the query heads of a KV head together where they share a tile, s; tile:
    query rows of a tile; pack_to: up to so many new tokens the query heads of a KV head share a tile; eff_m: DRAM
    efficiency (not fitted: it cannot be told from the passes); lane_s: time that a thread of the cache-writing kernel
    holds its place, s (vLLM, in place of qo_passes).
    """

    launch_s: float
    eff: float
    tile_s: float
    softmax_dim: float
    kv_passes: float
    qo_passes: float
    sharp: float
    throttle: float
    tail: float
    l2_frac: float
    swap_s: float
    tile: float
    pack_to: float
    eff_m: float = 0.85
    lane_s: float = 0.0


class DecodeConstants(NamedTuple):
    """Constants of one decode kernel on one device: 9 fitted (one of swap_s and seq_s is 0), four picked from a list.

    launch_s: time of an empty call, s; eff_m: DRAM efficiency; ramp_s: time to fill and drain the DRAM pipeline, s;
    sharp: exponent of the smooth maximum; sm_bw: most that one SM can read (or work through), over its even share of
    the datasheet bandwidth; cta_s: cost of a block besides its bytes, s; split_s: cost of merging 128 splits, s (grows
    with the logarithm); l2_frac: share of L2 that keeps data between repeats; swap_s: copy that brings the query heads
    of a KV head together, s (FlashAttention-2); seq_s: cost of a sequence while the batch is small enough for a
    captured CUDA graph, whose grid has room for the most splits, used or not (vLLM's FlashAttention-3), s; block: KV
    tokens of a step; max_splits: most splits; group_tile: query heads that share one read of their KV head (1: every
    query head reads it again, as in fall-back kernels); min_group: fewest query heads a KV head for the kernel to split
    at all; eff_c: tensor core rate over the datasheet's (not fitted: an SM's work on a token goes with its bytes).
    """

    launch_s: float
    eff_m: float
    ramp_s: float
    sharp: float
    sm_bw: float
    cta_s: float
    split_s: float
    l2_frac: float
    swap_s: float
    seq_s: float
    block: float
    max_splits: float
    group_tile: float
    min_group: float
    eff_c: float = 0.8


IDEAL_PREFILL = PrefillConstants(0, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, tile=1, pack_to=math.inf, eff_m=1)
"""The roofline: exact FLOPs at the datasheet rate, every byte once."""
IDEAL_DECODE = DecodeConstants(
    0, 1, 0, 64, 1e9, 0, 0, 0, 0, 0, block=1, max_splits=1, group_tile=1, min_group=1, eff_c=1
)
"""The roofline of decode: the KV cache once at the datasheet bandwidth."""


def smooth_max(sharp: float, *terms: Number) -> Number:
    """(sum of terms^sharp)^(1/sharp): the sum for sharp 1, towards the largest for large sharp.

    >>> float(smooth_max(2.0, 3.0, 4.0))
    5.0
    """
    top = np.maximum(reduce(np.maximum, terms), 1e-30)
    if len(terms) == 2:  # the larger of two is top itself: one power less, the same bits
        total: Number = np.where(top > 1e-30, 1.0 + (np.minimum(*terms) / top) ** sharp, 0.0)
    else:
        total = sum((term / top) ** sharp for term in terms)
    return top * total ** (1.0 / sharp)


def hot_share(nbytes: Number, l2: Number, l2_frac: Number) -> Number:
    """Share of `nbytes` still in L2 when a benchmark repeats its call: near 1 well below l2_frac * l2, 0 well above.

    For fits only: a model's step has overwritten the cache since, so leave `hot` at 0 there.

    >>> float(hot_share(20e6, 40e6, 0.5)), round(float(hot_share(60e6, 40e6, 0.5)), 4)
    (0.5, 0.0122)
    """
    return 1.0 / (1.0 + (nbytes / np.maximum(l2 * l2_frac, 1.0)) ** 4)


def causal_mean(new: Number, past: Number, window: Number = math.inf) -> Number:
    """Mean KV tokens that a query sees, over i = 1..new queries: mean of min(past + i, window).

    The sum over i is the integral of min(x, window) from past + 1/2 to past + new + 1/2 (exact but at the kink).
    Without a window it is past + (new + 1) / 2.

    >>> float(causal_mean(3, 0)), float(causal_mean(1, 99)), round(float(causal_mean(100, 0, window=10)), 2)
    (2.0, 100.0, 9.55)
    """
    low, high = past + 0.5, past + new + 0.5
    cap = np.minimum(window, high)
    kink = np.maximum(cap, low)
    return ((kink * kink - low * low) / 2 + cap * (high - kink)) / new


def prefill_bytes(
    batch: Number, new: Number, past: Number, heads: Number, kv_heads: Number, head_dim: Number,
    *, q_bytes: Number, kv_bytes: Number,
) -> Number:  # fmt: skip
    """Least bytes of a prefill kernel: read Q, write O, read K and V (past and new) once each.

    >>> prefill_bytes(1, 10, 90, 8, 2, 64, q_bytes=2, kv_bytes=2)
    71680
    """
    return 2 * batch * head_dim * (new * heads * q_bytes + (past + new) * kv_heads * kv_bytes)


def prefill_attention_time(
    batch: Number, new: Number, past: Number, heads: Number, kv_heads: Number, head_dim: Number,
    *, q_bytes: Number, kv_bytes: Number, peak: Number, bandwidth: Number, sms: Number, c: PrefillConstants,
    causal: Truth = True, window: Number = math.inf, hot: Number = 0.0,
) -> Number:  # fmt: skip
    """Seconds of attention of `new` queries a sequence over `past + new` keys (causal, or over all of them).

    t = swap + smooth_max(launch, busy, slowest, dram) + passes, where busy = tiles / SMs x (tile_s + mean KV length (to
    the end of the tile) x w), w = 4 tile (head_dim + softmax_dim) / (eff x peak / SMs), slowest = tail x longest KV
    length x w, dram = least bytes / bandwidth, and passes are the engine's serial passes over the new tokens, with
    lane_s tokens min(KV heads head_dim, 512) / (2048 SMs) for blocks of a token that write the cache. `past` >
    0 is chunked prefill or prefix caching, which nobody measured: the same tiles with longer KV. `peak` is the rate at
    the width of Q; `hot` the share of bytes in L2 (benchmarks only). Sources: tiling of FlashAttention-2 (Dao 2023) and
    -3 (Shah et al. 2024); the form and its constants are fitted, see data/calibration/attention.toml.

    >>> ideal = prefill_attention_time(1, 4096, 0, 32, 8, 128, q_bytes=2, kv_bytes=2, peak=1e15, bandwidth=4e12,
    ...                                sms=132, c=IDEAL_PREFILL)
    >>> round(float(ideal) * 1e6, 3)  # 4 x 32 x 128 x 4096 x 4097/2 FLOP at 1e15/s; us
    137.473
    """
    w, tiles = _tile_rate(batch, new, past, heads, kv_heads, head_dim, peak, sms, c, causal, window)
    mean = np.where(causal, causal_mean(new, past, window) + (c.tile - 1) / 2, np.minimum(past + new, window))
    busy = tiles / sms * (c.tile_s + mean * w)
    slowest = c.tail * np.minimum(past + new, window) * w
    nbytes = prefill_bytes(batch, new, past, heads, kv_heads, head_dim, q_bytes=q_bytes, kv_bytes=kv_bytes)
    cold = (1 - HOT_GAIN_PREFILL * hot) / (c.eff_m * bandwidth)
    passes = 2 * batch * new * head_dim * (c.qo_passes * heads * q_bytes + c.kv_passes * kv_heads * kv_bytes) * cold
    if c.lane_s:
        passes = passes + c.lane_s * batch * new * np.minimum(kv_heads * head_dim, WRITE_THREADS) / (sms * SM_THREADS)
    swap = np.where((new <= c.pack_to) & (heads > kv_heads) & (np.minimum(batch, kv_heads) > 1), c.swap_s, 0.0)
    return swap + smooth_max(c.sharp, c.launch_s, busy, slowest, nbytes * cold) + passes


def _tile_rate(
    batch: Number, new: Number, past: Number, heads: Number, kv_heads: Number, head_dim: Number,
    peak: Number, sms: Number, c: PrefillConstants, causal: Truth, window: Number,
) -> tuple[Number, Number]:  # fmt: skip
    """Seconds that a tile takes per KV token on its SM, throttled in long kernels; and the number of tiles."""
    kv = np.where(causal, causal_mean(new, past, window), np.minimum(past + new, window))
    ideal = 4 * batch * heads * new * kv * head_dim / peak
    rate = c.eff * peak / sms * (1 - c.throttle * ideal / (THROTTLE_S + ideal))
    packed = batch * kv_heads * np.ceil(new * (heads / kv_heads) / c.tile)
    tiles = np.where(new <= c.pack_to, packed, batch * heads * np.ceil(new / c.tile))
    return 4 * c.tile * (head_dim + c.softmax_dim) / rate, tiles


def decode_attention_time(
    batch: Number, kv_len: Number, heads: Number, kv_heads: Number, head_dim: Number,
    *, kv_bytes: Number, peak: Number, bandwidth: Number, sms: Number, c: DecodeConstants, hot: Number = 0.0,
) -> Number:  # fmt: skip
    """Seconds of attention of one query a sequence over `kv_len` cached tokens (give min(kv_len, window) for a window).

    t = launch + wrap + ramp + smooth_max(read, SM time), read = KV bytes / (eff_m x bandwidth), SM time the best over
    splits of the KV length (see `split_kv_time`), ramp = ramp_s (1 - exp(-read / RAMP_S)). Groups of more than
    group_tile query heads read their KV head again, once for each group_tile of them. wrap: swap_s where there is more
    than one query head a KV head, more than one KV head and sequence (else the layouts agree), and seq_s a sequence up
    to GRAPH_BATCH. `hot`: share of KV in L2 (benchmarks). Sources: split-KV of Flash-Decoding (Dao et al. 2023);
    constants fitted, see data/calibration/attention.toml.

    >>> t = decode_attention_time(8, 4096, 32, 8, 128, kv_bytes=2, peak=1e15, bandwidth=4e12, sms=132, c=IDEAL_DECODE)
    >>> round(float(t) * 1e6, 3)  # 2 x 8 x 4096 x 8 x 128 x 2 B at 4 TB/s; us
    33.554
    """
    group = heads / kv_heads
    read = 2 * batch * kv_heads * kv_len * head_dim * kv_bytes * (1 - HOT_GAIN * hot) / (c.eff_m * bandwidth)
    worked = split_kv_time(
        batch * kv_heads * np.ceil(group / c.group_tile), kv_len, 2 * head_dim * kv_bytes,
        4 * c.group_tile * head_dim, c.eff_c * peak / sms, c.sm_bw * bandwidth / sms, sms,
        np.where(group >= c.min_group, c.max_splits, 1.0), c.block, c.cta_s, c.split_s,
    )  # fmt: skip
    wrap = np.where((group > 1) & (np.minimum(batch, kv_heads) > 1), c.swap_s, 0.0)
    wrap = wrap + np.where(batch <= GRAPH_BATCH, c.seq_s * batch, 0.0)
    ramp = c.ramp_s * (1.0 - np.exp(-read / RAMP_S))
    return c.launch_s + wrap + ramp + smooth_max(c.sharp, read, worked)


def split_kv_time(
    units: Number, kv_len: Number, token_bytes: Number, token_flops: Number, sm_flops: Number, sm_bandwidth: Number,
    sms: Number, max_splits: Number, block: float, cta_s: float, split_s: float,
) -> Number:  # fmt: skip
    """Seconds that the SMs need for `units` blocks over kv_len tokens each, cut into the best of SPLITS splits.

    With max_splits below 0, always into -max_splits. min over s of ceil(units s / SMs) x (cta_s + tokens x
    max(token_bytes / sm_bandwidth, token_flops / sm_flops)) + split_s x log2(s) / 7, with tokens = kv_len / s rounded
    up to whole blocks. One split after another, so that what depends on few axes stays small.

    >>> float(split_kv_time(1, 1024, 1.0, 0.0, 1.0, 1.0, 64, 128, 1, 0.0, 7.0))  # 64 splits of 16 tokens, 6 of merging
    22.0
    """
    a_token = np.maximum(token_bytes / sm_bandwidth, token_flops / sm_flops)
    shapes = (np.shape(x) for x in (units, kv_len, a_token, sms, max_splits))
    best = np.full(np.broadcast_shapes(*shapes), np.inf)
    time = np.empty_like(best)
    for s in SPLITS:
        allowed = np.where(np.less(max_splits, 0), s == -max_splits, s <= max_splits)
        if not allowed.any():
            continue
        block_time = cta_s + np.ceil(kv_len / (s * block)) * (block * a_token)
        np.multiply(np.ceil(units * s / sms), block_time, out=time)
        time += np.where(allowed, (split_s / 7) * np.log2(s), np.inf)
        np.minimum(best, time, out=best)
    return best[()]


@cache
def find_constants(
    kind: str, gpu: str, architecture: str, engine: str, dtype: str,
    *, kv_bytes: float = 2.0, head_dim: int = 128, group: float = 1.0,
) -> Match:  # fmt: skip
    """The calibration row for a kind of attention ("prefill", "decode", "encoder"): pass its `row` to constants.typed.

    dtype is that of Q; rows of decode go by the width of the cache, and prefill with 16-bit Q and an 8-bit cache has
    its own, as have head sizes that the engine gives to another kernel, TensorRT-LLM's decode for groups of one and of
    more than WIDE_GROUP query heads, and FlashInfer's in SGLang for fewer than TENSOR_GROUP.

    >>> row = find_constants("decode", "h200-sxm-141gb", "hopper", "trtllm", "bf16", kv_bytes=1, group=1).row
    >>> row.kernel, row.dtype
    ('decode-mha', 'fp8')
    """
    narrow = kv_bytes < 2
    name = kind + ("-kv8" if kind == "prefill" and narrow and dtype != "fp8" else "")
    width = "fp8" if kind == "decode" and narrow else dtype
    known = {
        r.kernel for r in load_constants("attention")
        if r.gpu in (gpu, ANY) and r.architecture in (architecture, ANY) and (r.engine, r.dtype) == (engine, width)
    }  # fmt: skip
    grouped = "-mha" if group == 1 else "-wide" if group > WIDE_GROUP else ""
    special = [f"-hd{head_dim}"]
    if kind == "decode":
        special += {"trtllm": [grouped], "sglang": ["-few"] if group < TENSOR_GROUP else []}.get(engine, [])
    name = next((name + suffix for suffix in special if name + suffix in known), name)
    return lookup("attention", gpu, architecture, engine, width, name)
