"""Calibrated times of attention's operations: of keys and values of their own, of prompts and in decoding.

The kernels' formulas are `kernels.attention`'s; here stands which an engine runs, with which constants."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from rooflm.graph.ops import Op, attended
from rooflm.kernels import attention
from rooflm.kernels.derating import derating, matrix_share, small_units, softmax_share
from rooflm.kernels.lookup import Where, constants
from rooflm.kernels.rates import Card, Rates, rates
from rooflm.kernels.training_factors import trained
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, highest, is_plain, larger, pick, smaller

UNFUSED_SHARE = 0.7
"""Share of either roof that plain batched products reach (Megatron-LM of 2021 within 2 %), and scores of indexers:
927 to 1,152 TFLOP/s on MI355X (ROCm/aiter pull request 5434), 115 to 125 on H20 (FlagGems 4092; DeepGEMM's)."""
SUMMED = 4.0 / 3.0
"""Most of a GeForce's rate that llama.cpp's attention reaches: scores sum in fp32, values in fp16 at twice that."""
REGISTER_HEAD = 128
"""Values of a head up to which kernels of attention keep all they add up in registers."""
UNFUSED_FLOOR = 5e-6
"""s: floor of plain batched products."""


def unfused_time(op: Op, peak: Num, r: Rates) -> Num:
    """Plain batched products: a share of the roofline (`peak` in FLOP/s) and a floor a kernel."""
    return larger(op.flops / (UNFUSED_SHARE * peak), op.bytes / (UNFUSED_SHARE * r.dram)) + UNFUSED_FLOOR * op.launches


def prefill_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Prefill attention: one fused kernel, or plain products where the engine has none."""
    sequences, new, past, heads, kv, qk, v, window, *both_ways = op.shape
    if op.of == "unfused":
        return unfused_time(op, r.peak[op.rate], r)
    names = attention.prefill_kernels(bool(highest(op.widths[1]) <= 1), highest(qk))
    c = constants("attention", attention.PrefillConstants, w, w.half, names)
    share = matrix_share(s.cluster.device)  # fewer matrix units also draw less power
    softmax = c.softmax_dim * share * softmax_share(s.cluster.device)
    units = small_units(s.cluster.device, derating(s.cluster.device, *w.engines))
    eff = larger(c.eff, 1.0 / (1.0 + units * (1.0 / c.eff - 1.0)))  # loads and sums beside the products, as of tiles
    few, tail = (past > 0) & (new < c.tile), c.tail * (not s.engine.kernels.cut_caches)
    c = c._replace(eff=eff, softmax_dim=softmax, throttle=c.throttle * smaller(share, 1.0), tail=tail)
    if s.engine.phase == "training":
        c = trained(c, op.role == "dgrad")
    peak = smaller(r.peak["half"], SUMMED * rates(s).peak["half"]) if s.engine.kernels.own_files else r.peak["half"]
    call = partial(attention.prefill_attention_time, sequences, heads=heads, kv_heads=kv, head_dim=(qk + v) / 2,
                   q_bytes=op.widths[0], kv_bytes=op.widths[1], card=r.card(peak), causal=not both_ways)  # fmt: skip
    wide = pick(qk > REGISTER_HEAD, s.engine.kernels.wide_heads, 1.0)
    time = call(new, past, c=c, window=window) * wide / s.mapping.cp
    if s.engine.phase == "training" and not is_plain(s.mapping.cp, 1):
        long = op.flops / r.peak["half"]
        shared = attention.chunked(call, new, s.mapping.cp, c, long, s.engine.kernels.ring)
        time = pick(window < math.inf, time, shared)
    elif highest(few):
        most = math.inf if s.engine.kernels.own_files else time  # one kernel, whether tokens are a prompt's or decoded
        time = pick(few, smaller(most, short_prompt_time(op, w, s, r)), time)
    return time


def short_prompt_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Fewer prompt tokens than a tile has rows, which a kernel of decoding takes over the cache before them as if they
    were so many more heads of their group: tiles as tall as the rows ask for, and the cache cut where they are fewer
    than the SMs.

    Source: llama.cpp's fattn.cu (ncols by tokens and group, stream-k over the cache), FlashInfer's scheduler
    (FA2DetermineCtaTileQ, split-kv of prefill), FlashAttention's flash_fwd_splitkv, FA-3's PackGQA and num_splits."""
    sequences, new, past, heads, kv, qk, v, window, *_ = op.shape
    c = decode_constants(heads / kv, highest(qk), cache_width(op, w, s), w)
    c = c._replace(min_group=1.0, group_tile=smaller(c.group_tile, heads * new / kv))
    time = attention.decode_attention_time(
        sequences, attended(new, past, window), heads * new, kv, (qk + v) / 2, kv_bytes=op.widths[1],
        card=r.card(r.peak["half"]), c=c,
    )  # fmt: skip
    return time * s.engine.factors.decode_factor / s.engine.factors.attention_factor / s.mapping.cp


def cache_width(op: Op, w: Where, s: Scenario) -> str:
    """The data type of the KV cache by which tables list decode kernels, if the device supports it."""
    return "fp8" if highest(op.widths[1]) <= 1 and "fp8" in s.cluster.device.peak else w.half


def decode_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Decode attention; older kernels read again for query heads of a group, or (PagedAttention V1) by a block a head,
    as many as L1 holds scores, at the memory's rate. A device that knows no fp8 converts such a cache on its vector
    units; integers any device converts. Blocks of a graph's grid beyond a sequence's tokens start and end at once."""
    k, unknown = s.engine.kernels, "fp8" not in s.cluster.device.peak
    dram = pick(k.unsplit < math.inf, rates(s).dram, r.dram)
    waits = smaller(larger(2.0 - 4.0 * matrix_share(s.cluster.device), 0.0), 1.0)  # for units of a quarter the size
    ints = (s.quant.kind == "int") | (k.kv_convert == 0)  # an engine that converts no fp8 keeps 8 bits as integers
    longest = smaller(s.model.max_context, k.graph_length)
    rows, keys, heads, kv, qk, v, window = op.shape
    group, width = heads / kv, cache_width(op, w, s)
    c = decode_constants(group, highest(qk), width, w)
    peak = r.peak["half"] * (s.cluster.device.peak[width] / s.cluster.device.peak[w.half]) ** waits
    if not is_plain(k.kv_reread, 0):  # flash_attn_with_kvcache and its kin cut every cache
        c = c._replace(min_group=1.0, group_tile=smaller(c.group_tile, k.head_rows))
    time = attention.decode_attention_time(
        rows, keys, heads, kv, (qk + v) / 2, kv_bytes=op.widths[1], card=Card(peak, dram, r.sms, r.l1), c=c
    )
    values = rows * keys * (qk + v)  # of keys and values that a head reads
    reread = (group > k.kv_shared) | ((group > 1) & (window < math.inf))
    if not is_plain(k.kv_reread, 0):
        whole = op.widths[1] * 4.0 * longest / (r.l1_size * k.block_rate)
        a_value = pick(rows * heads > k.unsplit, whole, reread * k.kv_reread * 2.0 / r.l1)
        time = np.hypot(time, values * heads * a_value)
    if not is_plain(k.head_rate, 0):
        blocks, read = smaller(rows * heads, r.sms), values * heads * op.widths[1]
        rate = k.head_rate * r.larger_cores
        time = larger(time, pick(rate > 0, read / (larger(rate, 1.0) * blocks), 0.0))
    integers = (op.widths[1] < 1) | ints
    turned = pick(integers, k.int_convert * pick(reread, heads, kv), unknown * k.kv_convert * kv)
    time = time + (op.widths[1] <= 1) * turned * values / r.peak["vector"]
    if highest(k.empty_block) > 0:
        beyond = pick((longest < math.inf) & (window == math.inf), larger(longest - keys, 0.0), 0.0)
        time = time + k.empty_block / 256 * rows * kv * beyond
    return time


def decode_constants(group: Num, size: float, width: str, w: Where) -> Any:
    """Constants of the decode kernels for groups of so many query heads a KV head, which in a grid may be several."""
    kind, kernels = attention.DecodeConstants, attention.decode_kernels
    if not isinstance(group, np.ndarray):
        return constants("attention", kind, w, width, kernels(group, size))
    groups = np.unique(group)
    fits = [constants("attention", kind, w, width, kernels(one, size)) for one in groups.tolist()]
    which = np.searchsorted(groups, group)
    return kind._make(a[0] if len({*a}) == 1 else np.array(a)[which] for a in zip(*fits, strict=True))
