"""Kernel time of softmax attention: prefill (also chunked, windowed and non-causal) and decode over a KV cache.

A fused kernel cuts the work into tiles (128 query rows of one head, say) that the SMs take up in turn. Prefill is
bound by the tensor cores and by what every tile costs besides; decode streams the KV cache, cut along its length into
splits when there are fewer (sequence, KV head) pairs than SMs. All sizes may be floats or arrays and broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from rooflm.graph.ops import attended
from rooflm.kernels.blend import filling_soon, smooth_max
from rooflm.kernels.rates import Card
from rooflm.units import Num, ceil, highest, larger, log2, pick, smaller

SPLITS = tuple(2.0**n for n in range(8))
"""Candidate cuts of a KV cache along its length."""
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
THROTTLE_S = 2e-3
"""Ideal kernel time at which half of the power throttling has set in, in benchmarks that repeat one kernel."""


class PrefillConstants(NamedTuple):
    """Constants of one prefill kernel on one device: ten fitted (swap_s only with pack_to 1), two picked from lists."""

    launch_s: float  # s of an empty call
    eff: float  # tensor core rate of long tiles over the datasheet's
    tile_s: float  # s that a tile costs besides its products
    softmax_dim: float  # exponentials of a score, as if the head were so much wider
    kv_passes: float  # serial passes over new K and V (rotary embedding, cache write, quantisation)
    qo_passes: float  # the same over Q and O
    sharp: float  # exponent of the smooth maximum
    throttle: float  # share of the rate lost in kernels much longer than THROTTLE_S
    tail: float  # share of the longest tile's time that nothing overlaps (0 where the kernel splits it)
    swap_s: float  # s of the copy that brings the query heads of a KV head together where they share a tile
    tile: float  # query rows of a tile
    pack_to: float  # up to so many new tokens the query heads of a KV head share one
    eff_m: float = 0.85  # DRAM bandwidth over the datasheet's (not fitted: it cannot be told from the passes)
    lane_s: float = 0.0  # s that a thread of the cache-writing kernel holds its place (vLLM, in place of qo_passes)


class DecodeConstants(NamedTuple):
    """Constants of one decode kernel on one device: eight fitted (one of swap_s and seq_s is 0), four from a list."""

    launch_s: float  # s of an empty call
    eff_m: float  # DRAM bandwidth over the datasheet's
    ramp_s: float  # s to fill and drain its pipeline
    sharp: float  # exponent of the smooth maximum
    sm_bw: float  # most that an SM can read (or work through), over its even share of the datasheet's bandwidth
    cta_s: float  # s that a block costs besides its bytes
    split_s: float  # s to merge 128 splits (grows with the logarithm)
    swap_s: float  # s of the copy that brings the query heads of a KV head together (FlashAttention-2)
    seq_s: float  # s a sequence in a captured CUDA graph, whose grid has room for the most splits, used or not (FA-3)
    block: float  # KV tokens of a step
    max_splits: float  # most splits
    group_tile: float  # query heads that share one read of their KV head (1: each reads it again, in fall-backs)
    min_group: float  # fewest query heads a KV head for it to split at all
    eff_c: float = 0.8  # tensor core rate over the datasheet's (not fitted: an SM's work goes with its bytes)
    l1: float = 0.0  # L1's bandwidth over DRAM's on the cards that sm_bw was fitted to: others go by theirs (0: DRAM's)


def prefill_bytes(
    batch: Num, new: Num, past: Num, heads: Num, kv_heads: Num, head_dim: Num, *, q_bytes: Num, kv_bytes: Num
) -> Num:
    """Least bytes of a prefill kernel: read Q, write O, read K and V (past and new) once each.

    >>> prefill_bytes(1, 10, 90, 8, 2, 64, q_bytes=2, kv_bytes=2)
    71680
    """
    return 2 * batch * head_dim * (new * heads * q_bytes + (past + new) * kv_heads * kv_bytes)


def prefill_attention_time(
    batch: Num, new: Num, past: Num, heads: Num, kv_heads: Num, head_dim: Num,
    *, q_bytes: Num, kv_bytes: Num, card: Card, c: PrefillConstants, causal: Num = True, window: Num = math.inf,
) -> Num:  # fmt: skip
    """Seconds of attention of `new` queries a sequence over `past + new` keys (causal, or over all of them).

    t = swap + smooth_max(launch, busy, slowest, dram) + passes, where busy = tiles / SMs x (tile_s + mean KV length (to
    the end of the tile) x w), w = 4 tile (head_dim + softmax_dim) / (eff x peak / SMs), throttled in long kernels,
    slowest = tail x longest KV length x w, dram = least bytes / bandwidth, and passes are the engine's serial passes
    over the new tokens, with lane_s tokens min(KV heads head_dim, 512) / (2048 SMs) for blocks of a token that write
    the cache. `past` > 0 is chunked prefill or prefix caching, which nobody measured: the same tiles with longer KV.
    The card's peak is the rate at the width of Q. Sources: tiling of FlashAttention-2 (Dao 2023) and -3 (Shah et al.
    2024); the form and its constants are fitted, see data/calibration/attention.toml."""
    kv = pick(causal, attended(new, past, window), smaller(past + new, window))
    ideal = 4 * batch * heads * new * kv * head_dim / card.peak
    w = 4 * c.tile * (head_dim + c.softmax_dim) / sm_rate(c.eff * card.peak / card.sms, c.throttle, ideal)
    packed = batch * kv_heads * ceil(new * (heads / kv_heads) / c.tile)
    tiles = pick(new <= c.pack_to, packed, batch * heads * ceil(new / c.tile))
    busy = tiles / card.sms * (c.tile_s + (kv + pick(causal, (c.tile - 1) / 2, 0.0)) * w)
    slowest = c.tail * smaller(past + new, window) * w
    nbytes = prefill_bytes(batch, new, past, heads, kv_heads, head_dim, q_bytes=q_bytes, kv_bytes=kv_bytes)
    reached = c.eff_m * card.bandwidth
    passes = 2 * batch * new * head_dim * (c.qo_passes * heads * q_bytes + c.kv_passes * kv_heads * kv_bytes) / reached
    if c.lane_s:
        passes = passes + c.lane_s * batch * new * smaller(kv_heads * head_dim, WRITE_THREADS) / (card.sms * SM_THREADS)
    swap = pick((new <= c.pack_to) & (heads > kv_heads) & (smaller(batch, kv_heads) > 1), c.swap_s, 0.0)
    return swap + smooth_max(c.sharp, c.launch_s, busy, slowest, nbytes / reached) + passes


def sm_rate(rate: Num, throttle: Num, ideal: Num) -> Num:
    """FLOP/s of an SM in a kernel of `ideal` s at the datasheet's rate, of which power takes up to `throttle`."""
    return rate * (1 - throttle * ideal / (THROTTLE_S + ideal))


def decode_attention_time(
    batch: Num, kv_len: Num, heads: Num, kv_heads: Num, head_dim: Num,
    *, kv_bytes: Num, card: Card, c: DecodeConstants,
) -> Num:  # fmt: skip
    """Seconds of attention of one query a sequence over `kv_len` cached tokens (give min(kv_len, window) for a window).

    t = launch + wrap + ramp + smooth_max(read, SM time), read = KV bytes / (eff_m x bandwidth), SM time the best over
    splits of the KV length (see `split_kv_time`), ramp = ramp_s (1 - exp(-read / 5 us)). Groups of more than
    group_tile query heads read their KV head again, once for each group_tile of them. wrap: swap_s where there is more
    than one query head a KV head, more than one KV head and sequence (else the layouts agree), and seq_s a sequence up
    to GRAPH_BATCH. Sources: split-KV of Flash-Decoding (Dao et al. 2023); constants fitted (attention.toml)."""
    group = heads / kv_heads
    read = 2 * batch * kv_heads * kv_len * head_dim * kv_bytes / (c.eff_m * card.bandwidth)
    worked = split_kv_time(
        batch * kv_heads * ceil(group / c.group_tile), kv_len, 2 * head_dim * kv_bytes, 4 * c.group_tile * head_dim,
        card=card, c=c, feed=pick(c.l1 > 0, card.l1 / larger(c.l1, 1e-9), card.bandwidth),
        max_splits=pick(group >= c.min_group, c.max_splits, 1.0),
    )  # fmt: skip
    wrap = pick((group > 1) & (smaller(batch, kv_heads) > 1), c.swap_s, 0.0)
    wrap = wrap + pick(batch <= GRAPH_BATCH, c.seq_s * batch, 0.0)
    return c.launch_s + wrap + filling_soon(read, c.ramp_s) + smooth_max(c.sharp, read, worked)


def split_kv_time(
    blocks: Num, kv_len: Num, token_bytes: Num, token_flops: Num,
    *, card: Card, c: Any, feed: Num, max_splits: Num, resident: Num = 1.0,
) -> Num:  # fmt: skip
    """Seconds that the SMs need for `blocks` over kv_len tokens each, cut into the best of SPLITS splits.

    With max_splits below 0, always into -max_splits. min over s of ceil(blocks s / SMs) x (cta_s + tokens x
    max(token_bytes / (sm_bw x feed / SMs), token_flops / (eff_c x peak / SMs))) + split_s x log2(s) / 7, with tokens =
    kv_len / s rounded up to whole blocks. c: constants of a decode kernel; feed: B/s of the memory that sm_bw goes by;
    resident: blocks that an SM works on at a time."""
    a_token = larger(token_bytes / (c.sm_bw * feed / card.sms), token_flops / (c.eff_c * card.peak / card.sms))
    best: Num = math.inf
    for s in SPLITS if highest(max_splits) > 0 else (-max_splits,):
        allowed = (s == -max_splits) | (s <= max_splits)
        if highest(allowed):
            block_time = c.cta_s + ceil(kv_len / (s * c.block)) * (c.block * a_token)
            time = ceil(blocks * s / (card.sms * resident)) * block_time + (c.split_s / 7) * log2(s)
            best = smaller(best, pick(allowed, time, math.inf))
    return best


@lru_cache
def decode_kernels(group: float, head_dim: float) -> tuple[str, ...]:
    """Names of the decode kernels that may take a group of so many query heads a KV head, most special first.

    Engines give some groups and head sizes to kernels of their own: "decode-mha" (one query head), "decode-few" (below
    TENSOR_GROUP), "decode-wide" (above WIDE_GROUP), "decode-hd<size>". `lookup.nearest_of` takes the first that this
    very engine was measured with."""
    taken = {"mha": group <= 1, "few": group < TENSOR_GROUP, "wide": group > WIDE_GROUP, f"hd{int(head_dim)}": True}
    return (*(f"decode-{name}" for name, by in taken.items() if by), "decode")


@lru_cache
def prefill_kernels(narrow: bool, head_dim: float) -> tuple[str, ...]:
    """Names of the prefill kernels, likewise; `narrow`: an 8-bit KV cache, whose kernels come first where measured."""
    plain = (f"prefill-hd{int(head_dim)}", "prefill")
    return (f"prefill-kv8-hd{int(head_dim)}", "prefill-kv8", *plain) if narrow else plain


def chunked(call: Callable[..., Num], new: Num, ways: Num, c: Any, long: Num, streams: bool) -> Num:
    """Seconds of causal attention over `new` tokens on one of `ways` ranks, each with two chunks from either end.

    call: the kernel's time by (new, past, c=, causal=); c: its PrefillConstants. The rank's own two chunks are causal;
    each of the other ways - 1 kernels sees one chunk of queries by two of keys, or two by one: new / (2 ways) by
    new / ways, all pairs. They follow each other without a rest, so that power throttles them like one kernel of their
    sum (`long`, its seconds at the datasheet's rate). streams: two streams take turns, so that the last tiles of one
    kernel and the start of the next overlap, and both count once.

    Source: Transformer Engine, context_parallel.py, AttnFuncWithCPAndKVP2P (chunks, two streams)."""
    half = new / (2 * ways)
    c = c._replace(eff=sm_rate(c.eff, c.throttle, long), throttle=0.0)
    rest = c._replace(tail=0.0, launch_s=0.0) if streams else c
    return call(new / ways, 0, c=c) + (ways - 1) * call(half, half, c=rest, causal=False)
