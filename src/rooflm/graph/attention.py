"""Attention as ops: softmax attention, latent attention (MLA), and the indexers of either."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from rooflm.catalogue.model import MLA, Attention
from rooflm.graph.context import Context, Prefill, plain_norms
from rooflm.graph.ops import PLAIN_NORM, Comm, Op, attended, bmm, gemm, stream
from rooflm.units import Num, ceil, highest, is_plain, larger, pick, smaller

WIDEST = 256
"""Values of the widest head that a flash kernel takes in training (FlashAttention, TransformerEngine issue 3006)."""
EFFICIENT = (("efficient-64", 0, 64), ("efficient-128", 64, 128), ("efficient", 128, math.inf))
"""PyTorch's memory-efficient kernel, as it is compiled for heads of more values than, and of at most: beyond 128 its
sums are not kept in registers (kernel_forward.h and kernel_backward.h, kMaxK). A row of training.toml each."""


def attention_ops(c: Context, count: Num, a: Attention) -> list[Op | Comm]:
    """Q, K, V, rotary and cache write, attention, output, with heads split over the tensor group."""
    h, t, tokens, b, part = c.model.hidden, c.mapping.tp, c.tokens, c.quant.half_bytes, "attention"
    heads, kv = ceil(a.heads / t), ceil(a.kv_heads / t)
    has_kv = not a.shared_kv
    q_width, k_width, v_width = heads * a.head_dim, has_kv * kv * a.head_dim, has_kv * kv * a.v_dim
    q_gated, out_width = q_width * (1 + a.gate), heads * a.v_dim
    apart = a.joint_norm and c.kernels.norm_reduce and not is_plain(t, 1)
    separate = [("q", (q_gated,), 1), ("kv", (k_width, v_width), 2)][: 1 + has_kv]
    products = [("qkv", (q_gated, k_width, v_width), 1)] if c.kernels.merged else separate
    made = [(n, c.product(name, part, count, sum(n), h, each)) for name, n, each in products]
    nodes: list[Op | Comm] = [op._replace(columns=n) for n, op in made]
    nodes += [c.message("norm_all_reduce", "tp", "all_reduce", count, 8.0 * tokens)] if apart else []  # 2 of fp32
    nodes += rope_and_cache(c, count, a, q_width + k_width, k_width, v_width)
    nodes += block_indexer_ops(c, count, a) if has_indexer(a) else []
    nodes += prefill_attention(c, count, heads, kv, a) + decode_attention(c, count, heads, kv, a)
    nodes += [stream("gate", part, "activation", count, 3 * tokens * out_width * b)] if a.gate else []
    return [*nodes, c.product("out", part, count, h, out_width)]


def rope_and_cache(c: Context, count: Num, a: Attention, turned: Num, k_width: Num, v_width: Num) -> list[Op | Comm]:
    """Rotary embedding of the `turned` values of queries and keys a token, norms on them, and the write to the cache:
    kernels of their own, one kernel, or a part of others."""
    tokens, b, part = c.tokens, c.quant.half_bytes, "attention"
    written = a.causal * tokens * (k_width + v_width) * c.quant.kv_bytes
    if c.training:
        # eager: to fp32, product of complex numbers, and back: 2 + 4, 4 + 4 and 4 + 2 bytes a value
        turn = 2.0 * b if c.kernels.fused else 20.0
        norm, name = (PLAIN_NORM, "plain_norm") if plain_norms(c.model, c.kernels) else (2.0 * b, "qk_norm")
        nodes = [stream("rope", part, "rope", count, tokens * turned * turn)] if a.rope else []
        return [*nodes, *([stream(name, part, "norm", count, tokens * turned * norm, 2)] if a.qk_norm else [])]
    if c.kernels.epilogue or c.kernels.rope_inside:
        nodes = [stream("kv_write", part, "kv_write", count, written, 1 - c.kernels.rope_inside)]
    elif c.kernels.fused:
        moved = 2 * tokens * turned * b * (a.rope or a.qk_norm) + tokens * v_width * b + written
        nodes = [stream("rope_kv_write", part, "rope", count, moved, rows=tokens)]
    else:
        # eager: rotate_half is slice, negate, concatenate; two products and an add, for Q and for K; then the cache is
        # read and written again with the new tokens (torch.cat)
        moved, copied = 12.0 * b * tokens * turned * a.rope, 2.0 * c.keys * (k_width + v_width) * c.quant.kv_bytes
        nodes = [stream("rope", part, "rope", count, moved, 12 * a.rope),
                 stream("kv_write", part, "kv_write", count, copied, 2)]  # fmt: skip
    normed = a.qk_norm and not c.kernels.fused
    return [*nodes, *([stream("qk_norm", part, "norm", count, PLAIN_NORM * tokens * turned, 12)] if normed else [])]


def prefill_attention(c: Context, count: Num, heads: Num, kv: Num, a: Attention) -> list[Op | Comm]:
    """Scores, softmax and weighted values of new tokens, as one flash kernel or as plain products with the scores in
    memory, and what a context group exchanges before."""
    p, b, kv_b, part = c.work.prefill, c.quant.half_bytes, c.quant.kv_bytes, "attention"
    if not p:
        return []
    pair, reach = a.head_dim + a.v_dim, keys_read(a)
    keys = attended(p.new, p.past, reach) if a.causal else smaller(p.past + p.new, reach)
    rows = p.tokens / c.mapping.cp
    read = p.sequences * kv * pair * (smaller(p.past, a.window + p.new) * kv_b + p.new * b)
    moved = rows * heads * pair * b + read
    shape = (p.sequences, p.new, p.past, heads, kv, a.head_dim, a.v_dim, reach, *[0][: not a.causal])
    nodes = context_exchange(c, count, p, kv * pair, heads * a.v_dim)
    fused = c.kernels.flash_heads.split()
    if c.kernels.flash and (not fused or str(int(highest(a.head_dim))) in fused):
        core = Op("attention", part, "attention", count, 2.0 * rows * keys * heads * pair, moved, shape, (b, kv_b, b))
        return [*nodes, *(training_attention(c, a, core) if c.training else [core])]
    if c.training:
        return nodes + unfused_attention(c, count, p, heads, a)
    # scores are full rectangles in memory: product, (scale and) mask, softmax (in fp32), product
    scores = rows * heads * (smaller(p.past, reach if c.kernels.flash else math.inf) + p.new)
    core = Op("attention", part, "attention", count, 2.0 * scores * pair, moved + 2 * scores * b, shape,
              (b, kv_b, b), launches=2, of="unfused")  # fmt: skip
    return [*nodes, core, plain_softmax(c, count, scores, "masked" if c.kernels.flash else "wide")]


def training_attention(c: Context, a: Attention, core: Op) -> list[Op]:
    """Attention of a training layer by the kernel that takes it: heads beyond WIDEST by PyTorch's memory-efficient one,
    and so masks, over whole squares (its flash kernel takes none: sdp_utils.cpp; for cuDNN's see `of_mask`): an
    engine's own (`masked`), and windows where all layers have one kernel (`one_kernel`), if PyTorch picks it, or one
    layer's heads leave it to it (docs/decisions/0262, 0378)."""
    sequences, new, past, *sizes = core.shape
    widest = reduce(larger, [b.mixer.head_dim for b in c.model.blocks if isinstance(b.mixer, Attention)])
    torch = (np.asarray(widest) > WIDEST) | c.kernels.attention_kernel.startswith("sdpa")
    masked = 1.0 * torch * (c.kernels.masked | c.kernels.one_kernel & (np.asarray(a.window) < new))
    size, square = np.asarray(a.head_dim), core._replace(shape=(sequences, new, past, *sizes[:4], math.inf, 0))
    wide = (1.0 - masked) * (size > WIDEST)
    ops = [(core, 1.0 - masked - wide), (core._replace(of="efficient"), wide)]
    ops += [(square._replace(of=of), masked * ((size > more) & (size <= most))) for of, more, most in EFFICIENT]
    return [op._replace(count=core.count * share) for op, share in ops if np.any(share > 0)]


def decode_attention(c: Context, count: Num, heads: Num, kv: Num, a: Attention) -> list[Op | Comm]:
    """Scores, softmax and weighted values of one new token a sequence, which reads its cache."""
    d, b, kv_b, part = c.work.decode, c.quant.half_bytes, c.quant.kv_bytes, "attention"
    if not d:
        return []
    pair, reach = a.head_dim + a.v_dim, keys_read(a)
    keys = smaller(d.context, reach + pick(a.window < math.inf, c.beside, 0.0)) / c.mapping.cp
    spread: list[Op | Comm] = []
    if not c.kernels.fused:  # repeat_kv: each query head has keys and values (transformers, modeling_llama.py)
        more, each = pick(heads > kv, 1.0, 0.0), d.sequences * keys * pair * kv_b
        spread = [stream("kv_repeat", part, "kv_write", count, more * each * (kv + heads), 2 * more)]
        kv = heads
    if not is_plain(chain := c.kernels.cache_chain * pick(kv_b < b, 1.0, 0.0), 0):
        moved = 2 * d.sequences * (heads + kv) * pair * b * pick(chain > 0, 1.0, 0.0)
        spread.append(stream("cache_chain", part, "index", count, moved, chain))
    rows = d.sequences * heads  # products without the keys first, which alone vary along the most axes of a grid
    moved = keys * (d.sequences * kv * pair * kv_b) + rows * pair * b
    shape = (d.sequences, keys, heads, kv, a.head_dim, a.v_dim, reach)
    core = Op("attention", part, "decode_attention", count, keys * (2.0 * rows * pair), moved, shape, (b, kv_b, b))
    plain = [] if c.kernels.decode_flash else [plain_softmax(c, count, keys * rows)]
    return [*spread, core._replace(launches=1 + len(plain)), *plain]


def plain_softmax(c: Context, count: Num, scores: Num, how: str = "wide") -> Op:
    """Softmax of so many scores in memory by plain kernels when serving, with 5 FLOPs a score."""
    each, kernels = softmax_cost(how, c.quant.half_bytes)
    return stream("softmax", "attention", "softmax", count, scores * each, kernels, 5.0 * scores)


def softmax_cost(how: str, b: Num) -> tuple[Num, int]:
    """(bytes that a score of b bytes moves, kernels) of scale, mask and softmax: read and written once by one kernel
    (Megatron-LM, scaled_upper_triang_masked_softmax), by two (MLX) or three plain ones each, or in fp32, cast behind.

    >>> softmax_cost("fused", 2), softmax_cost("plain", 2), softmax_cost("wide", 2)
    ((4, 1), (12, 3), (20.0, 4))
    """
    return {"fused": (2 * b, 1), "masked": (4 * b, 2), "plain": (6 * b, 3), "wide": (6 * b + 8.0, 4)}[how]


def keys_read(a: Attention | MLA) -> Num:
    """Keys that a query reads: those that an indexer picks, else its window's."""
    return a.index_topk if not is_plain(a.index_topk, 0) else a.window if isinstance(a, Attention) else math.inf


def unfused_attention(c: Context, count: Num, p: Prefill, heads: Num, a: Attention) -> list[Op | Comm]:
    """Unfused attention in training: two batched products with full squares of scores between them, a scaled masked
    softmax and its dropout (read, write and a mask of one byte)."""
    b, part = c.quant.half_bytes, "attention"
    told, wide = softmax_cost(c.kernels.softmax, b), softmax_cost("wide", b)
    each, kernels = (one + (other - one) * c.wide_softmax for one, other in zip(told, wide, strict=True))
    rows = p.tokens / c.mapping.cp
    scores, keys = rows * heads * p.new, p.new
    qk = bmm("scores", part, count, rows * heads, keys, a.head_dim, p.sequences * heads, b)
    pv = bmm("values", part, count, rows * heads, a.v_dim, keys, p.sequences * heads, b)
    softmax = stream("softmax", part, "softmax", count, scores * each, kernels, of="core")
    drop = stream("score_dropout", part, "softmax", count, scores * (2 * b + 1), of="core")
    return [qk, softmax, drop, pv] if c.dropout else [qk, softmax, pv]


def context_exchange(c: Context, count: Num, p: Prefill, values: Num, out: Num) -> list[Op | Comm]:
    """What a context group exchanges: keys and values (`values` a token) of the whole sequence gathered on every rank
    (Llama 3, arXiv 2407.21783, section 3.3.2), or passed around a ring, one rank's share a step (Ring Attention, arXiv
    2310.01889). Where it trains, outputs (`out` values a token) of the cp partial attentions are merged: each after the
    first is read, and the sum read and written; or by plain kernels in fp32 (torch_context): cast, out - s (out - new).

    Source: Transformer Engine, context_parallel.py, AttnFuncWithCPAndKVP2P (cp kernels, cp - 1 exchanges, correction of
    the output step by step); PyTorch, torch/distributed/tensor/experimental/_attention.py, _SDPAMerger."""
    ways = c.mapping.cp
    if is_plain(ways, 1):
        return []
    size = p.tokens * values * c.quant.half_bytes
    nodes: list[Op | Comm] = []
    if c.kernels.ring:
        nodes.append(c.message("cp_ring", "cp", "p2p", count * (ways - 1), size / ways))
    else:
        nodes.append(c.message("cp_all_gather", "cp", "all_gather", count, size))
    if c.training and c.kernels.flash:
        each = c.quant.half_bytes + 36.0 if c.kernels.torch_context else 3.0 * c.quant.half_bytes
        merged = each * p.tokens / ways * out * (ways - 1)
        nodes.append(stream("cp_merge", "attention", "add", count, merged, ways - 1))
    return nodes


def mla_ops(c: Context, count: Num, a: MLA) -> list[Op | Comm]:
    """Latent attention: keys and values expanded for new tokens in prefill, absorbed into the query when decoding; or
    (`head_kept`) expanded once, padded and cached as those of any attention with so many heads.

    Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1 and appendix C; absorption as in its section 2.1.2."""
    heads = ceil(a.heads / c.mapping.tp)
    nodes = latent_projections(c, count, a, heads * (a.nope_dim + a.rope_dim), 2 * heads)
    if has_indexer(a):
        nodes += indexer_ops(c, count, a)
    if is_plain(c.head_kept, 0):
        nodes += latent_prefill(c, count, a, heads) + latent_decode(c, count, a, heads)
    else:
        whole, chain = Attention(a.heads, a.heads, c.head_kept), c.kernels.latent_chain
        moved = chain * 2 * c.tokens * heads * a.nope_dim * c.quant.half_bytes
        nodes.append(c.product("kv_up", "attention", count, heads * (a.nope_dim + a.value_dim), a.kv_rank))
        nodes.append(stream("latent_chain", "attention", "index", count, moved, chain))
        nodes += prefill_attention(c, count, heads, heads, whole) + decode_attention(c, count, heads, heads, whole)
    return [*nodes, c.product("out", "attention", count, c.model.hidden, heads * a.value_dim)]


def latent_projections(c: Context, count: Num, a: MLA, queries: Num, turned: Num) -> list[Op | Comm]:
    """Queries (`queries` values a token, through a latent of their own where there is one) and the latent of keys and
    values, rotary embedding of parts of heads (read and written, `turned` times in all) and the write to the cache."""
    h, tokens, b, part = c.model.hidden, c.tokens, c.quant.half_bytes, "attention"
    latent, cached = a.kv_rank + a.rope_dim, 0.0 if c.training else c.quant.kv_bytes
    kept = pick(c.head_kept > 0, turned * c.head_kept, latent)
    written = tokens * (latent * 2 * b + kept * cached) + turned * tokens * a.rope_dim * b
    write = stream("rope_kv_write", part, "rope", count, written, 2)
    if is_plain(a.q_rank, 0):
        return [c.product("q", part, count, queries, h), c.product("kv_down", part, count, latent, h), write]
    down = {"q_down": a.q_rank, "kv_down": latent} if c.kernels.latents_apart else {"qkv_down": a.q_rank + latent}
    return [
        *(c.product(name, part, count, wide, h) for name, wide in down.items()),
        stream("q_norm", part, "norm", count, 2 * tokens * a.q_rank * b),
        c.product("q_up", part, count, queries, a.q_rank),
        write,
    ]


def latent_prefill(c: Context, count: Num, a: MLA, heads: Num) -> list[Op | Comm]:
    """Latent attention of new tokens, over keys and values expanded for every head."""
    p, b, part, qk = c.work.prefill, c.quant.half_bytes, "attention", a.nope_dim + a.rope_dim
    if not p:
        return []
    rows = p.tokens / c.mapping.cp
    # rings and PyTorch pass expanded keys and values of a rank's own tokens; else latents travel and are expanded then.
    # llama.cpp (pull request 12801) absorbs prompts, too: as many products for a new token, and none for a past one
    inside = c.kernels.gemv or (c.training and (c.kernels.ring or c.kernels.torch_context))
    expanded, sent = (rows, heads * (qk + a.value_dim)) if inside else (p.keys, a.kv_rank + a.rope_dim)
    wide, reach = heads * (a.nope_dim + a.value_dim), keys_read(a)
    flops = 2.0 * rows * smaller(attended(p.new, p.past, math.inf), reach) * heads * (qk + a.value_dim)
    read = a.kv_rank + a.rope_dim if c.kernels.gemv else heads * (qk + a.value_dim)
    traffic = b * (rows * heads * (qk + a.value_dim) + p.keys * read)
    shape = (p.sequences, p.new, p.past, heads, qk, a.value_dim, reach, a.kv_rank, a.rope_dim)
    n = c.kernels.latent_chain
    chain = stream("latent_chain", part, "index", count, 2 * b * rows * heads * n * a.nope_dim, pick(n > 0, 1, 0))
    return [
        *context_exchange(c, count, p, sent, heads * a.value_dim),
        *([] if is_plain(n, 0) else [chain]),
        gemm("kv_up", part, count, expanded, wide, a.kv_rank, c.quant.widths[part], c.quant.rates[part]),
        Op("attention", part, "mla_attention", count, flops, traffic, shape, (b, b, b)),
    ]


def latent_decode(c: Context, count: Num, a: MLA, heads: Num) -> list[Op | Comm]:
    """Latent attention of one new token a sequence, the expansion absorbed into its query and its output; engines may
    copy, rotate and quantise their values in many kernels (`latent_chain`, `absorb_chain`)."""
    d, b, part = c.work.decode, c.quant.half_bytes, "attention"
    if not d:
        return []
    keys = smaller(d.context, keys_read(a)) / c.mapping.cp
    kernels = c.kernels.latent_chain + pick(c.quant.widths[part][1] < 2, 2 * c.kernels.absorb_chain, 0)
    moved = kernels * 2 * d.sequences * heads * a.nope_dim * b
    core = latent_core(c, count, d.sequences, keys, heads, a.kv_rank, a.rope_dim, a.kv_rank)
    return [
        *([] if is_plain(kernels, 0) else [stream("latent_chain", part, "index", count, moved, kernels)]),
        batched_gemm("q_absorb", part, count, d.sequences, heads, a.kv_rank, a.nope_dim, (b, b, b)),
        core if is_plain(a.index_topk, 0) else core._replace(shape=(*core.shape, a.index_topk / c.mapping.cp)),
        batched_gemm("v_absorb", part, count, d.sequences, heads, a.value_dim, a.kv_rank, (b, b, b)),
    ]


def latent_core(c: Context, count: Num, rows: Num, keys: Num, heads: Num, rank: Num, rope: Num, value: Num) -> Op:
    """Attention of a token in each of `rows` sequences over `keys` cached latents (rank + rope values each), which all
    heads read as they are: scores of a latent's width, and weighted sums of `value` of its values."""
    b, latent = c.quant.half_bytes, rank + rope
    flops = 2.0 * rows * keys * heads * (latent + value)
    traffic = rows * (keys * latent * c.quant.kv_bytes + heads * (latent + value) * b)
    shape, widths = (rows, keys, heads, rank, rope), (b, c.quant.kv_bytes, b)
    return Op("attention", "attention", "mla_decode", count, flops, traffic, shape, widths)


def batched_gemm(
    name: str, part: str, count: Num, m: Num, batch: Num, n: Num, k: Num, widths: tuple[Num, Num, Num],
    rate: str = "half",
) -> Op:  # fmt: skip
    """`batch` products of [m, k] by [k, n] in one kernel, timed as one product with n·batch columns."""
    op = gemm(name, part, count, m, n * batch, k, widths, rate)
    return op._replace(bytes=op.bytes + m * k * (batch - 1) * widths[1])


def has_indexer(a: Attention | MLA) -> bool:
    """True where a query reads only tokens that this very layer's indexer picked, not an earlier one's (GLM-5.2)."""
    return not (is_plain(a.index_topk, 0) or is_plain(a.index_heads * a.index_dim, 0))


def block_indexer_ops(c: Context, count: Num, a: Attention) -> list[Op | Comm]:
    """The indexer beside plain attention, a head of it a KV head: queries and one key a token from the hidden state,
    every past key scored in 16 bits and only the largest of each block kept, so that no scores are written
    (transformers, modeling_minimax_m3_vl.py, MiniMaxM3VLIndexer)."""
    heads = ceil(a.index_heads / c.mapping.tp)
    project = c.product("index_qk", "attention", count, (heads + 1) * a.index_dim, c.model.hidden)
    key, widths = 2.0 * a.index_dim, (2.0, 2.0, 4.0)
    return [project, *indexer_scores(c, count, heads * a.index_dim, key_bytes=key, score_bytes=0.0, widths=widths)]


def indexer_ops(c: Context, count: Num, a: MLA) -> list[Op | Comm]:
    """The light indexer of sparse attention: every query scores every past token in fp8 (arXiv 2512.02556), before
    which an engine may rotate, quantise and store queries and keys in kernels of their own (`index_chain`)."""
    width, kernels = a.index_heads * a.index_dim, c.kernels.index_chain
    moved = 6.0 * c.tokens * (width + a.index_dim) * c.quant.half_bytes * smaller(kernels, 1)
    return [
        *([] if is_plain(kernels, 0) else [stream("index_chain", "attention", "index", count, moved, kernels)]),
        c.product("index_q", "attention", count, width, c.model.hidden if is_plain(a.q_rank, 0) else a.q_rank),
        c.product("index_k", "attention", count, a.index_dim + a.index_heads, c.model.hidden),
        *indexer_scores(c, count, width, key_bytes=a.index_dim + 4.0),
    ]


def indexer_scores(
    c: Context, count: Num, width: Num,
    *, key_bytes: Num, score_bytes: float = 4.0, widths: tuple[Num, Num, Num] = (1.0, 1.0, 4.0), ratio: Num = 1.0,
) -> list[Op | Comm]:  # fmt: skip
    """Every query against every past key of an indexer: `width` products a pair, `key_bytes` read a key; there is a key
    for every `ratio` tokens. Scores of `score_bytes` (0: not written) are read TOPK_PASSES times for the choice."""
    p, d = c.work.prefill, c.work.decode
    cached = d.sequences * d.context if d else 0.0
    scored = ((p.tokens / c.mapping.cp * attended(p.new, p.past, math.inf) if p else 0.0) + cached) / ratio
    traffic = c.keys / ratio * key_bytes + scored * score_bytes
    scores = Op("index_scores", "attention", "scores", count, 2.0 * scored * width, traffic, (), widths, "half")
    choice = stream("index_topk", "attention", "index", count, TOPK_PASSES * scored * score_bytes, rows=c.tokens)
    return [scores, choice] if score_bytes else [scores]


TOPK_PASSES = 3
"""Times that a radix selection reads a row: its histogram, what lies above the threshold, and ties. Source: ROCm/aiter,
topk_per_row_kernels.cu; 0.33 of the memory's rate on MI355X is the most that its pull request 5445 measured."""
