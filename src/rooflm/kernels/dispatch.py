"""Calibrated kernel times: which fitted formula and which constants an op takes, by device, engine and data type.

The formulas and their constants come from kernel benchmarks, which run warm; a model's step finds its weights and KV
cache in device memory, so the warm share is 0 here. Kinds that nobody measured (convolutions, sampling) stream at the
rate of the nearest elementwise kernel; cards that nobody measured: see `kernels.derating`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from rooflm.catalogue.fields import words_in
from rooflm.graph.ops import DECODE_ATTENTION, PREFILL_ATTENTION, Op, attended, distinct
from rooflm.graph.recurrent import CHUNK
from rooflm.kernels import attention, mla
from rooflm.kernels.constants import ANY
from rooflm.kernels.derating import beside_units, derating, matrix_share, small_units, softmax_share
from rooflm.kernels.elementwise import LEAST, MEASURED_KERNEL, ElementwiseConstants, elementwise_time
from rooflm.kernels.expert_kernels import expert_time, routed_inside
from rooflm.kernels.lookup import Where, constants, in_graphs, setting
from rooflm.kernels.own_machine import op_time
from rooflm.kernels.products import gemm_times, has_shape, sm_limit
from rooflm.kernels.rates import Rates, rates
from rooflm.kernels.training_factors import scans, trained
from rooflm.scenario.scenario import Scenario, arrays_in
from rooflm.units import Num, common_shape, highest, is_plain, larger, pick, smaller

STATE_DRAM_SHARE = 0.83
"""Share of DRAM that decoding's kernels of recurrent states reach at most (H100 0.82 to 0.84: vLLM's pull requests
43083 and 48110; B300 0.85: TensorRT-LLM's 14869; docs/decisions/0260)."""
UNFUSED_SHARE = 0.7
"""Share of either roof that plain batched products reach (Megatron-LM of 2021 within 2 %), and scores of indexers:
927 to 1,152 TFLOP/s on MI355X (ROCm/aiter pull request 5434), 115 to 125 on H20 (FlagGems 4092; DeepGEMM's)."""
REGISTER_HEAD = 128
"""Values of a head up to which kernels of attention keep all they add up in registers."""
ALIGNED = 16
"""Bytes of which the rows of operands are multiples where cuBLAS' batched products use tensor cores."""
UNFUSED_FLOOR = 5e-6
"""s: floor of plain batched products."""
LARGEST_SM = 2.0**18
"""Bytes of shared memory and L1 of an SM, at most (Hopper); a core that holds more reads as much more at a time."""
FEW_POINTS = 64
"""Points up to which the products of all data types are evaluated together: fewer calls, but constants as arrays."""


def kernel_times(ops: Sequence[Op], floor: Sequence[Num], s: Scenario) -> list[Num]:
    """Seconds of ops before the engine's factors; floor: their roofline. Those of one broadcast shape go together."""
    device, point = s.cluster.device, s.axes == 0
    if device.measured is not None:
        r = rates(s)
        c = device.measured.of(r.dtype["half"])  # of the data type in which the rest of the model works
        return [op_time(op, c, r) for op in ops]
    w, r = setting(device, s.engine, s.quant, s.efficiency)
    devices = () if point else common_shape(arrays_in((r, device, s.engine)))
    out: list[Num] = [0.0] * len(ops)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, op in enumerate(ops):
        alone = point and not isinstance(op.bytes, np.ndarray)
        shape = () if alone else common_shape((op.flops, op.bytes, op.overlapped, op.launches, *op.shape))
        shape = np.broadcast_shapes(shape, devices) if devices else shape
        evaluate = FORMULAS.get(op.kind) or (gemm_times if op.kind == "gemm" else _stream_times)
        rate = op.rate if math.prod(shape) > FEW_POINTS else ""
        groups.setdefault((evaluate, shape, rate), []).append(index)
    for (evaluate, shape, _), members in groups.items():
        chosen = [ops[i] for i in members]
        if evaluate in BATCHED:
            times, which = evaluate(chosen, shape, w, s, r), [*range(len(chosen))]
        else:
            different, which = distinct([_key(op) for op in chosen])
            times = [evaluate(chosen[i], w, s, r) for i in different]
        times = times if shape else [float(t) for t in times]
        lift = s.engine.factors.moe_factor if evaluate is expert_time and s.engine.kernels.gemv else 1.0  # undone there
        for index, op, at in zip(members, chosen, which, strict=True):
            out[index] = larger(times[at] * (1.0 - op.overlapped), floor[index] / lift)
    return out


def _key(op: Op) -> tuple[Any, ...]:
    """The sizes that an op's time depends on, its name and role: backward kernels have constants of their own."""
    return op.name, op.kind, op.role, op.rate, op.flops, op.bytes, op.launches, *op.shape, *op.widths


FACTORS = {
    **dict.fromkeys(("gemm", "simt"), "gemm_factor"), "moe": "moe_factor",
    **dict.fromkeys(DECODE_ATTENTION, "decode_factor"),
    **dict.fromkeys((*PREFILL_ATTENTION, "scores"), "attention_factor"),
}  # fmt: skip
"""Kind of kernel -> the engine's constant for it; streaming kernels take stream_factor."""


def _unfused_time(op: Op, peak: Num, r: Rates) -> Num:
    """Plain batched products: a share of the roofline (`peak` in FLOP/s) and a floor a kernel."""
    return larger(op.flops / (UNFUSED_SHARE * peak), op.bytes / (UNFUSED_SHARE * r.dram)) + UNFUSED_FLOOR * op.launches


def _prefill_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Prefill attention: one fused kernel, or plain products where the engine has none."""
    sequences, new, past, heads, kv, qk, v, window, *both_ways = op.shape
    if not s.engine.kernels.flash:
        return _unfused_time(op, r.peak[op.rate], r)
    names = attention.prefill_kernels(bool(highest(op.widths[1]) <= 1), highest(qk))
    c = constants("attention", attention.PrefillConstants, w, w.half, names)
    share = matrix_share(s.cluster.device)  # fewer matrix units also draw less power
    softmax = c.softmax_dim * share * softmax_share(s.cluster.device)
    units = small_units(s.cluster.device, derating(s.cluster.device, *w.engines))
    eff = larger(c.eff, 1.0 / (1.0 + units * (1.0 / c.eff - 1.0)))  # loads and sums beside the products, as of tiles
    c = c._replace(eff=eff, softmax_dim=softmax, throttle=c.throttle * smaller(share, 1.0))
    few = (past > 0) & (new < c.tile)
    if s.engine.kernels.cut_caches:
        c = c._replace(tail=0.0)
    if s.engine.phase == "training":
        c = trained(c, op.role == "dgrad")
    call = partial(attention.prefill_attention_time, sequences, heads=heads, kv_heads=kv, head_dim=(qk + v) / 2,
                   q_bytes=op.widths[0], kv_bytes=op.widths[1], card=r.card(r.peak["half"]),
                   causal=not both_ways)  # fmt: skip
    wide = pick(qk > REGISTER_HEAD, s.engine.kernels.wide_heads, 1.0)
    time = call(new, past, c=c, window=window) * wide / s.mapping.cp
    if s.engine.phase == "training" and not is_plain(s.mapping.cp, 1):
        long = op.flops / r.peak["half"]
        shared = attention.chunked(call, new, s.mapping.cp, c, long, s.engine.kernels.ring)
        time = pick(window < math.inf, time, shared)
    elif highest(few):
        time = pick(few, smaller(time, _short_prompt_time(op, w, s, r)), time)
    return time


def _short_prompt_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Fewer prompt tokens than a tile has rows, which a kernel of decoding takes over the cache before them as if they
    were so many more heads of their group: tiles as tall as the rows ask for, and the cache cut where they are fewer
    than the SMs.

    Source: llama.cpp's fattn.cu (ncols by tokens and group, stream-k over the cache), FlashInfer's scheduler
    (FA2DetermineCtaTileQ, split-kv of prefill), FlashAttention's flash_fwd_splitkv, FA-3's PackGQA and num_splits."""
    sequences, new, past, heads, kv, qk, v, window, *_ = op.shape
    c = _decode_constants(heads / kv, highest(qk), _cache_width(op, w, s), w)
    c = c._replace(min_group=1.0, group_tile=smaller(c.group_tile, heads * new / kv))
    time = attention.decode_attention_time(
        sequences, attended(new, past, window), heads * new, kv, (qk + v) / 2, kv_bytes=op.widths[1],
        card=r.card(r.peak["half"]), c=c,
    )  # fmt: skip
    return time * s.engine.factors.decode_factor / s.engine.factors.attention_factor / s.mapping.cp


def _mean_pass(sequences: Num, new: Num, past: Num) -> tuple[Num, Num, Num]:
    """Sequences, new and past tokens where compressed entries count as part of a sequence: that part of its new tokens,
    in the mean pass over them.

    >>> _mean_pass(0.25, 1024.0, 100.0), _mean_pass(2.0, 1024.0, 100.0)
    ((1.0, 256.0, 484.0), (2.0, 1024.0, 100.0))
    """
    own = new * smaller(sequences, 1.0)
    return larger(sequences, 1.0), own, past + (new - own) / 2


def _latent_prefill_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Latent attention of new tokens; the expansion of the latent is a product of its own in the graph. Where an
    indexer picks fewer tokens than there are, kernels over the latents take its place; for shorter prompts, too, where
    the engine has no other way (docs/decisions/0111). Without an indexer, 8-bit caches may be read by 8-bit queries."""
    sequences, new, past, heads, qk, v, picked, latent, rope = op.shape
    device, k, peak, all_read = s.cluster.device, s.engine.kernels, r.peak["half"], is_plain(picked, np.inf)
    narrow = device.kernel_generation in words_in(k.narrow_prompts)
    eight = all_read and narrow and bool(highest(s.quant.kv_bits) <= 8)
    c = constants("mla", mla.MlaPrefillConstants, w, "fp8" if eight else w.half, ("mla-prefill",))
    c = c._replace(floor_s=pick(s.engine.host.issue_prefill > GRAPHLESS, c.floor_s, 0.0),
                   eff=c.eff * beside_units(device, derating(device, *w.engines), c.eff, w.generation),
                   softmax_dim=c.softmax_dim * matrix_share(device) * softmax_share(device))  # fmt: skip
    few = (past > 0) & (new < c.tile)
    if s.engine.kernels.cut_caches:
        c, (sequences, new, past) = c._replace(tail=0.0), _mean_pass(sequences, new, past)
    call = partial(mla.mla_prefill_time, sequences, heads=heads, qk_head=qk, v_head=v,
                   q_bytes=1 if eight else op.widths[0], card=r.card(peak), c=c)  # fmt: skip
    if s.engine.phase == "training" and not is_plain(s.mapping.cp, 1) and all_read:
        # kernels of a context group's chunks have equal work: that of the rank's own new / cp causal tokens
        return s.mapping.cp * call(new / s.mapping.cp, 0)
    time = call(new, past)
    over = partial(
        mla.latents_prefill_time, sequences, new, past, heads, latent=latent, rope=rope, peak=peak, sms=r.sms
    )
    if highest(before := k.latent_prompts):
        wide = time * (2.0 * latent + rope) / (qk + v)  # scores of latent + rope, sums of latents: more FLOPs a pair
        if k.attention != "own":
            all_of = constants("mla", mla.MlaLatentsConstants, w, w.half, (f"mla-prompts-{k.attention}",))
            wide = over(math.inf, c=all_of)
        if all_read and highest(few):
            sizes = (sequences, attended(new, past, math.inf), heads * new, latent, rope)
            wide = pick(few, smaller(wide, _latent_decode_time(op._replace(shape=sizes), w, s, r, prompts=True)), wide)
        wide = wide * k.wide_latents
        if highest(s.quant.widths["attention"][1]) < 2:  # operands of both absorbed products
            chain = 4.0 * k.absorb_chain * sequences * new * heads * (qk - rope + latent)
            wide = wide + elementwise_time(chain, bandwidth=r.dram, c=_stream_constants("index", w, k.vectorised))
        in_reach = (past > 0) | s.engine.server.prefix_caching | (before == math.inf)
        time = pick(in_reach & (past < before), wide, time)
    if not all_read:
        sparse = constants("mla", mla.MlaLatentsConstants, w, w.half, ("mla-sparse",))
        time = pick((new + past > picked) | k.sparse_prompts, over(picked, c=sparse), time)
    return time / s.mapping.cp


def _cache_width(op: Op, w: Where, s: Scenario) -> str:
    """The data type of the KV cache by which tables list decode kernels, if the device supports it."""
    return "fp8" if highest(op.widths[1]) <= 1 and "fp8" in s.cluster.device.peak else w.half


def _decode_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Decode attention; older kernels read again for query heads of a group, or (PagedAttention V1) by a block a head,
    as many as L1 holds scores, at the memory's rate. A device that knows no fp8 converts such a cache on its vector
    units; integers any device converts. Blocks of a graph's grid beyond a sequence's tokens start and end at once."""
    k, unknown = s.engine.kernels, "fp8" not in s.cluster.device.peak
    dram = pick(k.unsplit < math.inf, rates(s).dram, r.dram)
    waits = smaller(larger(2.0 - 4.0 * matrix_share(s.cluster.device), 0.0), 1.0)  # for units of a quarter the size
    ints = (s.quant.kind == "int") | (k.kv_convert == 0)  # an engine that converts no fp8 keeps 8 bits as integers
    longest = smaller(s.model.max_context, k.graph_length)
    rows, keys, heads, kv, qk, v, window = op.shape
    group = heads / kv
    width = _cache_width(op, w, s)
    c = _decode_constants(group, highest(qk), width, w)
    peak = r.peak["half"] * (s.cluster.device.peak[width] / s.cluster.device.peak[w.half]) ** waits
    if not is_plain(k.kv_reread, 0):  # flash_attn_with_kvcache and its kin cut every cache
        c = c._replace(min_group=1.0, group_tile=smaller(c.group_tile, k.head_rows))
    time = attention.decode_attention_time(
        rows, keys, heads, kv, (qk + v) / 2, kv_bytes=op.widths[1], card=r.card(peak)._replace(bandwidth=dram), c=c
    )
    values = rows * keys * (qk + v)  # of keys and values that a head reads
    reread = (group > k.kv_shared) | ((group > 1) & (window < math.inf))
    if not is_plain(k.kv_reread, 0):
        whole = op.widths[1] * 4.0 * longest / (r.l1_size * k.block_rate)
        a_value = pick(rows * heads > k.unsplit, whole, reread * k.kv_reread * 2.0 / r.l1)
        time = np.hypot(time, values * heads * a_value)
    if not is_plain(k.head_rate, 0):
        blocks, read = smaller(rows * heads, r.sms), values * heads * op.widths[1]
        rate = k.head_rate * _larger_cores(r)
        time = larger(time, pick(rate > 0, read / (larger(rate, 1.0) * blocks), 0.0))
    integers = (op.widths[1] < 1) | ints
    turned = pick(integers, k.int_convert * pick(reread, heads, kv), unknown * k.kv_convert * kv)
    time = time + (op.widths[1] <= 1) * turned * values / r.peak["vector"]
    if highest(k.empty_block) > 0:
        beyond = pick((longest < math.inf) & (window == math.inf), larger(longest - keys, 0.0), 0.0)
        time = time + k.empty_block / 256 * rows * kv * beyond
    return time


def _larger_cores(r: Rates) -> Num:
    """How many times the shared memory and L1 of the largest SM a core has, at least 1."""
    return larger(1.0, r.l1_size / r.sms / LARGEST_SM)


def _decode_constants(group: Num, size: float, width: str, w: Where) -> Any:
    """Constants of the decode kernels for groups of so many query heads a KV head, which in a grid may be several."""
    kind, kernels = attention.DecodeConstants, attention.decode_kernels
    if not isinstance(group, np.ndarray):
        return constants("attention", kind, w, width, kernels(group, size))
    groups = np.unique(group)
    fits = [constants("attention", kind, w, width, kernels(one, size)) for one in groups.tolist()]
    which = np.searchsorted(groups, group)
    return kind._make(a[0] if len({*a}) == 1 else np.array(a)[which] for a in zip(*fits, strict=True))


def _latent_decode_time(op: Op, w: Where, s: Scenario, r: Rates, prompts: bool = False) -> Num:
    """Latent attention of one query a sequence (or of few tokens of prompts), absorbed; graphs replay it, so the host's
    floor is left out.

    Engines share its libraries (FlashMLA, FlashInfer, CUTLASS): tables measured eagerly (57 us a call) say little of a
    kernel in a graph, so there the other engines' stand in."""
    k, own = s.engine.kernels, s.engine.kernels.attention == "own"
    width = _cache_width(op, w, s) if own and not prompts else w.half  # Triton's widens a narrow cache
    fit = in_graphs(w, width, "mla-decode" if own else f"mla-decode-{k.attention}")
    rows, keys, heads, latent, rope = op.shape
    call = partial(mla.mla_decode_time, rows, keys, heads, latent=latent, rope=rope, kv_bytes=op.widths[1],
                   card=r.card(r.peak["half"]))  # fmt: skip
    if k.cut_caches:  # as the SMs ask for, not always into so many as Triton's
        fit = tuple(c._replace(max_splits=attention.SPLITS[-1]) for c in fit)
    elif all(c.max_splits < 0 for c in fit):  # a card that Triton alone reads latents on
        blocks = partial(mla.blocks_of, keys, r.sms, k.latent_cut)
        cut = [blocks(pick(k.latent_blocks > 0, k.latent_blocks, -c.max_splits)) for c in fit]
        fit = tuple(c._replace(max_splits=-n) for c, n in zip(fit, cut, strict=True))
    return reduce(smaller, [call(c=c._replace(floor_s=0.0)) for c in fit])


GRAPHLESS = 6e-6
"""s a kernel launch: from here on the host is eager, and the measured floor of a call is its."""

CAT_BYTES = 5.3
"""Bytes a clock of an SM that torch.cat reads and writes of a cache: strided tensors go an element a thread, its index
divided out by four sizes (CatArrayBatchedCopy; Llama 7B and 13B in 16 to 64 sequences on A100, decision 219)."""


def _stream_times(ops: Sequence[Op], shape: tuple[int, ...], w: Where, s: Scenario, r: Rates) -> list[Num]:
    """Elementwise kernels: each launch of a chain pays its floor and moves its share of the bytes. A biased router
    beside a shared expert is a longer chain where the engine's own kernels run and none of them has its shape.

    What was measured of norms, activations and rotary embeddings are kernels of 2023 (0.35 to 0.6 of the bandwidth, a
    quarter of an SM's share on a row); engines that vectorised them since stream as the sum of two tensors does."""
    times: list[Num] = []
    k = s.engine.kernels
    constants_of = {kind: _stream_constants(kind, w, k.vectorised) for kind in {op.kind for op in ops}}
    compiles = s.cluster.device.kernel_generation in words_in(k.gates_on)
    for op in ops:
        traffic = op.bytes / larger(op.launches, 1)
        c = constants_of[op.kind]
        row: Num = 0.0
        if op.kind == "gate":
            alone = has_shape(op.shape[0], op.shape[1], k.gates) | (not compiles)
            c = c._replace(t0=pick(alone, c.t0, larger(c.t0, LEAST["index"] * k.gate_chain / op.launches)))
        elif op.shape and op.kind != "scan" and not (k.spread and op.kind in ("activation", "rope")):
            row = traffic / larger(op.shape[0], 1)
        if op.name == "route" and k.inner_gates and routed_inside(s):
            times.append(0.0 * row)
            continue
        one = elementwise_time(traffic, bandwidth=r.dram, c=c, row_bytes=row, sms=r.sms)
        if op.kind == "kv_write" and not k.fused:  # the cache is joined anew
            one = larger(one, traffic / (sm_limit(s, CAT_BYTES) * _larger_cores(r)))
        one = one * op.launches
        if op.kind == "scan" and op.shape:
            prompts = _chunked_scan_time(op, s, r) if highest(op.launches) > 2 else 0.0
            one = larger(one, pick(op.launches > 2, prompts, _state_update_time(op, s, r)))
        times.append(one)
    return times


def _chunked_scan_time(op: Op, s: Scenario, r: Rates) -> Num:
    """Seconds of a prompt's scan by chunks: SMs share out its work, but a share of it (of Triton's one kernel, of
    FlashInfer's all: docs/decisions/0241) goes chunk by chunk of a sequence, so that few heads leave SMs idle."""
    (new, gated, _rate), device = op.shape, s.cluster.device
    fused = gated and device.kernel_generation in words_in(s.engine.kernels.fused_scans)
    family = "fused_scan" if fused else "delta_scan" if highest(new) else "scan"  # which counts no tokens in its shape
    row = scans(family, device.name, device.kernel_generation)
    chunks = smaller(new, s.workload.prompt) / CHUNK  # a pass of a server holds several prompts
    work = row["roofline"] * op.flops / r.peak[op.rate]
    return work * (1.0 - row["share"]) + larger(work * row["share"], chunks * row["chunk"])


def _state_update_time(op: Op, s: Scenario, r: Rates) -> Num:
    """Seconds of decoding's kernel of recurrent states, timed whole, so that the engine's factor does not apply: what
    its blocks draw, and STATE_DRAM_SHARE of DRAM at most."""
    least = larger(op.bytes / (STATE_DRAM_SHARE * r.dram), op.flops / sm_limit(s, op.shape[2]))
    least = least / s.engine.factors.stream_factor
    return pick((op.shape[2] > 0) & (s.cluster.device.vendor in words_in(s.engine.kernels.states_on)), least, 0.0)


@lru_cache(maxsize=4096)
def _stream_constants(kind: str, w: Where, vectorised: str) -> ElementwiseConstants:
    """Constants of a kind of streaming kernel."""
    measured = MEASURED_KERNEL.get(kind, "add")
    c: ElementwiseConstants = constants("elementwise", ElementwiseConstants, w, "fp16", (measured,))
    if vectorised in (measured, "all"):
        add = constants("elementwise", ElementwiseConstants, w._replace(gpu=ANY, generation=ANY), "fp16", ("add",))
        c = add._replace(t0=larger(c.t0, add.t0))  # (norms on A100 were fitted with hardly any floor)
    return c._replace(t0=larger(c.t0, LEAST.get(kind, 0.0)))


def batched_peak(op: Op, matrix: Num, vector: Num) -> Num:
    """FLOP/s of the units that a batched product runs on: tensor cores where its rows are whole multiples of 16 bytes,
    else fp32 units (heads of 108 16-bit values: 216 bytes).

    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core requirements".

    >>> from rooflm.graph.ops import bmm
    >>> [float(batched_peak(bmm("scores", "attention", 1, 64, 64, d, 1, 2), 312e12, 19.5e12)) for d in (104, 108)]
    [312000000000000.0, 19500000000000.0]
    """
    _rows, n, k, _batch = op.shape
    whole = (np.asarray(n * op.widths[0]) % ALIGNED == 0) & (np.asarray(k * op.widths[1]) % ALIGNED == 0)
    return pick(whole, matrix, vector)


FORMULAS: dict[str, Any] = {
    "bmm": lambda op, w, s, r: _unfused_time(op, batched_peak(op, r.peak[op.rate], r.peak["vector"]), r),
    **dict.fromkeys(("scores", "simt"), lambda op, w, s, r: _unfused_time(op, r.peak[op.rate], r)),
    "attention": _prefill_time, "mla_attention": _latent_prefill_time, "decode_attention": _decode_time,
    "mla_decode": _latent_decode_time, "moe": expert_time,
}  # fmt: skip
"""Kind of op -> seconds of one. Ops of these kinds are evaluated one after the other, equal ones once."""
BATCHED = (gemm_times, _stream_times)
"""What times all other ops, many in one call."""
