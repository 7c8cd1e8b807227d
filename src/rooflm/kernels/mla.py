"""Kernel time of multi-head latent attention (MLA, DeepSeek-V2/V3): prefill and decode over a latent KV cache.

Decode absorbs the up-projections into the query: every head attends over the same latent of 512 + 64 values a token,
so the heads are one query group that reads 576 values a token. Prefill up-projects K and V to heads of 192 and 128."""

from __future__ import annotations

from typing import NamedTuple

from rooflm.graph.ops import attended
from rooflm.kernels.attention import PrefillConstants, prefill_attention_time, split_kv_time
from rooflm.kernels.blend import filling_soon, smooth_max
from rooflm.kernels.rates import Card
from rooflm.units import Num, ceil, larger, log2, pick, smaller

FLOOR_SHARP = 4.0
"""Exponent that joins a call's kernels with its floor (fitted once; see `blend.smooth_max`)."""


class MlaPrefillConstants(NamedTuple):
    """Constants of one MLA prefill kernel on one device; as PrefillConstants but where it says."""

    launch_s: float
    eff: float
    tile_s: float
    passes: float  # serial passes over Q, K, V and O
    sharp: float
    throttle: float
    tail: float
    floor_s: float  # least s of a call (the host, where it was timed without CUDA graphs)
    tile: float
    eff_m: float = 0.85
    softmax_dim: float = 0.0  # only kernels of 8-bit queries are bound by softmax enough to show it


class MlaDecodeConstants(NamedTuple):
    """Constants of one MLA decode kernel on one device; as DecodeConstants but where it says."""

    launch_s: float
    eff_m: float
    ramp_s: float
    sharp: float
    sm_bw: float
    cta_s: float
    split_s: float
    eff_c: float  # here fitted: 64 and more heads reach the ridge
    floor_s: float  # as of MlaPrefillConstants
    block: float
    max_splits: float  # below 0 for kernels that always cut into so many (Triton's)
    group_tile: float  # heads that share a block
    resident: float = 1.0  # blocks that an SM works on at a time, each at the rates of one (sm_bw)


class MlaLatentsConstants(NamedTuple):
    """Of a kernel of prompts whose queries read latents, of tokens that an indexer picked for each or of all."""

    block: float  # heads to whose multiple a rank's are padded
    share: float  # of the tensor cores' peak that it reaches
    key_s: float = 0.0  # least s an SM takes for a key of a query, however few its heads


def mla_prefill_time(
    batch: Num, new: Num, past: Num, heads: Num,
    *, qk_head: Num = 192, v_head: Num = 128, q_bytes: Num, card: Card, c: MlaPrefillConstants, beside: Num = 0.0,
) -> Num:  # fmt: skip
    """Seconds of causal MLA of `new` queries a sequence over past + new keys.

    As of heads with keys and values of their own, which for the new tokens are as many as Q and O (those of the past
    are not counted). beside: seconds of what else a measured call includes. Constants fitted, see mla.toml."""
    own = PrefillConstants(c.launch_s, c.eff, c.tile_s, c.softmax_dim / 2, 0, c.passes, c.sharp, c.throttle, c.tail,
                           0, c.tile, 0, c.eff_m)  # fmt: skip
    kernels = prefill_attention_time(batch, new, past, heads, heads, (qk_head + v_head) / 2, q_bytes=2 * q_bytes,
                                     kv_bytes=0, card=card, c=own)  # fmt: skip
    return smooth_max(FLOOR_SHARP, kernels + beside, c.floor_s)


def latents_prefill_time(
    batch: Num, new: Num, past: Num, heads: Num, picked: Num,
    *, c: MlaLatentsConstants, latent: Num = 512, rope: Num = 64, peak: Num, sms: Num = 1,
) -> Num:  # fmt: skip
    """Seconds of attention of `new` queries a sequence over latents, as in decoding: of the `picked` tokens that an
    indexer chose for each, since neighbours choose differently and share no block of expanded keys, or of all.
    Heads are taken `block` at a time at `share` of the peak; a key of a query takes one of the SMs `key_s` at least.

    >>> kernel = MlaLatentsConstants(64, 0.65)
    >>> round(float(latents_prefill_time(1, 8192, 0, 8, 2048, c=kernel, peak=989e12)) * 1e3, 2)  # ms, as of 64
    3.18
    """
    keys, padded = batch * new * attended(new, past, picked), ceil(heads / c.block) * c.block
    return larger(2.0 * keys * padded * (2 * latent + rope) / (c.share * peak), keys * c.key_s / sms)


def blocks_of(kv_len: Num, sms: Num, tokens: Num, least: Num) -> Num:
    """Blocks that Triton cuts a sequence of latents into: the next power of two of kv_len / tokens, at most two an SM,
    but never fewer than `least` (a graph keeps the count of the longest sequence that it takes); for tokens of 0 always
    these. Source: vLLM, triton_mla.py, since pull request 33529 and before it.

    >>> [float(blocks_of(n, 188, 512, 8)) for n in (1024, 131072, 524288)]
    [8.0, 256.0, 376.0]
    """
    cut = smaller(2.0 ** ceil(log2(larger(kv_len // larger(tokens, 1.0), 1.0))), 2.0 * sms)
    return pick(tokens > 0, larger(least, cut), least)


def mla_decode_time(
    batch: Num, kv_len: Num, heads: Num,
    *, latent: Num = 512, rope: Num = 64, kv_bytes: Num, card: Card, c: MlaDecodeConstants,
) -> Num:  # fmt: skip
    """Seconds of absorbed MLA of one query a sequence over kv_len cached latents.

    read = batch kv_len (latent + rope) kv_bytes / bandwidth; a token costs a block 2 group_tile (2 latent + rope)
    FLOPs; groups of more than group_tile heads take several blocks. Otherwise as decode_attention_time. The query's and
    output's projections (W_UK, W_UV) are GEMMs of the graph, not counted here."""
    token_bytes = (latent + rope) * kv_bytes
    read = batch * kv_len * token_bytes / (c.eff_m * card.bandwidth)
    worked = split_kv_time(
        batch * ceil(heads / c.group_tile), kv_len, token_bytes, 2 * c.group_tile * (2 * latent + rope),
        card=card, c=c, feed=card.bandwidth, max_splits=c.max_splits, resident=c.resident,
    )  # fmt: skip
    kernels = c.launch_s + filling_soon(read, c.ramp_s) + smooth_max(c.sharp, read, worked)
    return smooth_max(FLOOR_SHARP, kernels, c.floor_s)
