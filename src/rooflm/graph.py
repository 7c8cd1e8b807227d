"""Scenario -> [Op | Comm]: the only place where shapes become FLOPs, bytes and messages.

A pass is data: new tokens after past tokens, sequences that decode one token each, or both at once. The same builders
serve prefill, decoding, chunked prefill and the forward pass of training. Counts are of the whole model; numbers are of
one rank of the tensor, data, context and expert groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.mapping import Mapping
from rooflm.model import MLA, MLP, Attention, Block, LinearAttention, Mixer, Model, MoE
from rooflm.ops import Comm, Op, attended, bmm, distinct_experts, distinct_ranks, gemm, grouped, stream
from rooflm.quant import Quant
from rooflm.units import Num


class Prefill(NamedTuple):
    """`sequences` of one rank, each with `new` tokens after `past` tokens that are in the cache already."""

    sequences: Num
    new: Num
    past: Num = 0


class Decode(NamedTuple):
    """`sequences` of one rank, each with one new token that attends to `context` tokens, itself included."""

    sequences: Num
    context: Num


class Pass(NamedTuple):
    """One forward pass of one rank; `logits`: rows for which the head is computed."""

    prefill: Prefill | None
    decode: Decode | None
    logits: Num


class Style(NamedTuple):
    """How the engine builds its kernels: fused or not, flash attention or not, 16-bit bytes a value elsewhere.

    training: no KV cache is written, the head ends in a cross-entropy over a split vocabulary, native norm kernels even
    where they are not fused. sequence_parallel: norms, residuals and dropouts work on tokens / tp, and each all-reduce
    is a reduce-scatter and an all-gather (Korthikanti et al. 2022). dropout: masks are drawn and stored. ring: context
    parallelism passes K and V around a ring. dedup: a token is sent once to a rank that holds several of its experts.
    """

    fused: bool = True
    flash: bool = True
    half_bytes: float = 2.0
    kv_reread: Num = 0.0
    vocab_parallel: bool = False
    merged: bool = True
    epilogue: bool = False
    training: bool = False
    sequence_parallel: bool = False
    dropout: bool = False
    ring: bool = False
    dedup: bool = True
    decode_flash: bool = True
    rope_inside: bool = False
    alike: Num = 0.0


class Context(NamedTuple):
    """What every builder needs: the model as scaled, the pass, the split, widths and style."""

    model: Model
    work: Pass
    mapping: Mapping
    quant: Quant
    style: Style

    @property
    def tokens(self) -> Num:
        """New tokens that this rank works on: its share of the prefill under context parallelism, all that decode."""
        p, d = self.work.prefill, self.work.decode
        prefill = p.sequences * p.new / self.mapping.cp if p else 0
        return prefill + (d.sequences if d else 0)

    @property
    def residual_tokens(self) -> Num:
        """Tokens of the residual stream that this rank works on: a share of them under sequence parallelism."""
        return self.tokens / self.mapping.tp if self.style.sequence_parallel else self.tokens

    @property
    def dense_widths(self) -> tuple[Num, Num, Num]:
        """Bytes a value of weights, activations and outputs of a quantised dense product."""
        half = self.style.half_bytes
        if self.quant.experts_only:
            return (half, half, half)
        return (self.quant.weight_bytes, np.minimum(self.quant.act_bytes, half), half)

    @property
    def dense_rate(self) -> str:
        """Which compute rate dense products run at."""
        return "half" if self.quant.experts_only else "quant"


def build(c: Context) -> list[Op | Comm]:
    """The graph of one pass through the whole model: embedding, every block, head, and their communication."""
    nodes = embedding_nodes(c)
    for block in c.model.blocks:
        nodes += block_nodes(c, block)
    nodes += head_nodes(c)
    nodes += pipeline_nodes(c)
    return nodes


def embedding_nodes(c: Context) -> list[Op | Comm]:
    """Rows of the token table (and dropout where there is one), reduced where the table is split."""
    values = c.tokens * c.model.hidden
    nodes: list[Op | Comm] = [stream("embedding", "embedding", "embedding", 1, 2 * values * c.style.half_bytes)]
    if c.style.dropout:
        nodes.append(stream("embedding_dropout", "embedding", "add", 1, c.residual_tokens * c.model.hidden * 5.0))
    if c.style.vocab_parallel:
        nodes += tensor_reduce(c, "embedding_all_reduce", 1, c.tokens)
    return nodes


def block_nodes(c: Context, block: Block) -> list[Op | Comm]:
    """Norms, mixer, feed-forward and their reductions of `count` equal layers."""
    nodes: list[Op | Comm] = []
    n, tokens = block.count, c.tokens
    joint = block.parallel and block.mixer is not None and block.ffn is not None
    if block.mixer is not None:
        nodes += norm_ops(c, n, 0.5 * block.norms if block.ffn is not None else block.norms)
        nodes += mixer_ops(c, n, block.mixer)
        if not joint:
            nodes += tensor_reduce(c, "tp_all_reduce", n, tokens)
    if block.ffn is not None:
        nodes += norm_ops(c, n, 0.5 * block.norms if block.mixer is not None else block.norms)
        nodes += mlp_ops(c, n, block.ffn) if isinstance(block.ffn, MLP) else moe_nodes(c, n, block.ffn)
        nodes += tensor_reduce(c, "tp_all_reduce", n, tokens)
    return nodes


def norm_ops(c: Context, count: Num, norms: Num) -> list[Op | Comm]:
    """A norm and the residual add before it.

    Fused: reads x and the residual, writes the residual and the norm (in the width of the product that follows). Unfused (eager PyTorch): to fp32, square,
    mean, rsqrt, two products and back, 6 kernels and some 18 bytes a value, then the add with 3 values.
    """
    values = c.residual_tokens * c.model.hidden
    b = c.style.half_bytes
    if c.style.training and not c.style.fused:
        add = stream("residual", "norm", "add", count * norms, values * (3 * b + c.style.dropout))
        return [stream("norm", "norm", "norm", count * norms, values * 2 * b), add]
    if c.style.fused:
        written = b + np.minimum(c.dense_widths[1], b)
        moved = values * (2 * b + written)
        return [stream("norm", "norm", "norm", count * norms, moved, rows=c.residual_tokens)]
    launches = 6 if c.model.norm == "rms" else 1
    traffic = (26.0 if c.model.norm == "rms" else 2 * b) * values
    return [
        stream("norm", "norm", "norm", count * norms, traffic, launches),
        stream("residual", "norm", "add", count * norms, 3 * values * b),
    ]


def mixer_ops(c: Context, count: Num, mixer: Mixer) -> list[Op | Comm]:
    """The ops of one kind of mixer."""
    if isinstance(mixer, Attention):
        return attention_ops(c, count, mixer)
    return mla_ops(c, count, mixer) if isinstance(mixer, MLA) else linear_ops(c, count, mixer)


def split(value: Num, ways: Num) -> Num:
    """A whole number of heads (or columns) a rank, at least one: ranks share what does not divide.

    >>> float(split(8, 2)), float(split(8, 16))
    (4.0, 1.0)
    """
    return np.ceil(value / ways)


def attention_ops(c: Context, count: Num, a: Attention) -> list[Op | Comm]:
    """Q, K, V, rotary and cache write, attention, output, with heads split over the tensor group."""
    h, t, tokens, b = c.model.hidden, c.mapping.tp, c.tokens, c.style.half_bytes
    heads, kv = split(a.heads, t), split(a.kv_heads, t)
    q_width, k_width, v_width = heads * a.head_dim, kv * a.head_dim, kv * a.v_dim
    out_width = heads * a.v_dim
    widths, rate, part = c.dense_widths, c.dense_rate, "attention"
    q_gated = q_width * (1 + a.gate)
    nodes: list[Op | Comm] = []
    if c.style.merged:
        nodes.append(gemm("qkv", part, count, tokens, q_gated + k_width + v_width, h, widths, rate))
    else:
        nodes.append(gemm("q", part, count, tokens, q_gated, h, widths, rate))
        nodes.append(gemm("kv", part, count, tokens, k_width + v_width, h, widths, rate, 2))
    kv_written = tokens * (k_width + v_width) * c.quant.kv_bytes
    if c.style.training:
        if a.rope or a.qk_norm:
            nodes.append(stream("rope", part, "rope", count, 2 * tokens * (q_width + k_width) * b))
    elif c.style.epilogue or c.style.rope_inside:
        nodes.append(stream("kv_write", part, "kv_write", count, kv_written, 1 - c.style.rope_inside))
    elif c.style.fused:
        turned = 2 * tokens * (q_width + k_width) * b * (a.rope or a.qk_norm)
        turned = turned + tokens * v_width * b + kv_written
        nodes.append(stream("rope_kv_write", part, "rope", count, turned, rows=tokens))
    else:
        # eager: rotate_half is slice, negate, concatenate; two products and an add, for Q and for K; then the cache
        turned = (12.0 * b * tokens * (q_width + k_width)) * a.rope
        nodes.append(stream("rope", part, "rope", count, turned, 12 * a.rope))
        nodes.append(stream("kv_write", part, "kv_write", count, _cache_copy(c, k_width + v_width), 2))
    if a.qk_norm and not c.style.fused and not c.style.training:
        nodes.append(stream("qk_norm", part, "norm", count, 26.0 * tokens * (q_width + k_width), 12))
    nodes += core_ops(c, count, heads, kv, a)
    if a.gate:
        nodes.append(stream("gate", part, "activation", count, 3 * tokens * out_width * b))
    nodes.append(gemm("out", part, count, tokens, h, out_width, widths, rate))
    return nodes


def _cache_copy(c: Context, width: Num) -> Num:
    """Bytes of an eager cache update: torch.cat reads the past and writes it again with the new tokens."""
    moved: Num = 0.0
    if c.work.prefill:
        p = c.work.prefill
        moved = moved + p.sequences * (2 * p.past + 2 * p.new)
    if c.work.decode:
        d = c.work.decode
        moved = moved + d.sequences * 2 * d.context
    return moved * width * c.quant.kv_bytes


def core_ops(c: Context, count: Num, heads: Num, kv: Num, a: Attention) -> list[Op | Comm]:
    """Scores, softmax and weighted values, as one flash kernel or as plain products with the scores in memory."""
    b, kv_b, part = c.style.half_bytes, c.quant.kv_bytes, "attention"
    per_key = heads * (a.head_dim + a.v_dim)
    kv_row = kv * (a.head_dim + a.v_dim) * kv_b
    nodes: list[Op | Comm] = []
    if c.work.prefill:
        p = c.work.prefill
        keys = attended(p.new, p.past, a.window)
        rows = p.sequences * p.new / c.mapping.cp
        in_out = rows * heads * (a.head_dim + a.v_dim) * b
        seen = np.minimum(p.past + p.new, a.window + p.new)
        kv_read = p.sequences * (np.minimum(p.past, seen) * kv_row + p.new * kv * (a.head_dim + a.v_dim) * b)
        shape = (p.sequences, p.new, p.past, heads, kv, a.head_dim, a.v_dim, a.window)
        nodes += context_gather(c, count, p, kv * (a.head_dim + a.v_dim))
        if c.style.training and not c.style.flash:
            nodes += score_ops(c, count, p, heads, a)
        elif c.style.flash:
            nodes.append(
                Op("attention", part, "attention", count, 2.0 * rows * keys * per_key, in_out + kv_read, shape,
                   (b, kv_b, b))
            )  # fmt: skip
        else:
            # scores are full squares in memory: product, scale and mask, softmax in fp32, product
            full = rows * (p.past + p.new)
            scores = full * heads
            nodes.append(
                Op("attention", part, "attention", count, 2.0 * full * per_key, in_out + kv_read + 2 * scores * b, shape,
                   (b, kv_b, b), launches=2)
            )  # fmt: skip
            nodes.append(stream("softmax", part, "softmax", count, scores * (4 * b + 2 * b + 8.0), 4, 5.0 * scores))
    if c.work.decode:
        d = c.work.decode
        keys = np.minimum(d.context, a.window) / c.mapping.cp
        rows = d.sequences
        traffic = rows * (keys * kv_row + heads * (a.head_dim + a.v_dim) * b)
        launches = 1 if c.style.decode_flash else 2
        nodes.append(
            Op("attention", part, "decode_attention", count, 2.0 * rows * keys * per_key, traffic,
               (rows, keys, heads, kv, a.head_dim, a.v_dim, a.window), (b, kv_b, b), launches=launches)
        )  # fmt: skip
        if not c.style.decode_flash:
            scores = rows * keys * heads
            nodes.append(stream("softmax", part, "softmax", count, scores * (6 * b + 8.0), 4, 5.0 * scores))
    return nodes


def score_ops(c: Context, count: Num, p: Prefill, heads: Num, a: Attention) -> list[Op | Comm]:
    """Unfused attention in training: two batched products with full squares of scores between them, a fused scaled
    masked softmax (read, write) and its dropout (read, write and a mask of one byte)."""
    b, part = c.style.half_bytes, "attention"
    rows = p.sequences * p.new / c.mapping.cp
    scores, keys = rows * heads * p.new, p.new
    qk = bmm("scores", part, count, rows * heads, keys, a.head_dim, p.sequences * heads, b)
    pv = bmm("values", part, count, rows * heads, a.v_dim, keys, p.sequences * heads, b)
    softmax = stream("softmax", part, "softmax", count, scores * 2 * b)
    drop = stream("score_dropout", part, "softmax", count, scores * (2 * b + 1))
    return [qk, softmax, drop, pv] if c.style.dropout else [qk, softmax, pv]


def context_gather(c: Context, count: Num, p: Prefill, values: Num) -> list[Op | Comm]:
    """Keys and values of the whole sequence gathered on every rank of the context group (Llama 3, arXiv 2407.21783),
    or passed around a ring, a share at a time (Ring Attention, arXiv 2310.01889)."""
    if _one(c.mapping.cp):
        return []
    size = p.sequences * p.new * values * c.style.half_bytes
    if c.style.ring:
        steps, share = c.mapping.cp - 1, size / c.mapping.cp
        return [Comm("cp_ring", "cp_comm", "p2p", count * steps, share, c.mapping.cp, c.mapping.stride("cp"), "cp")]
    return [Comm("cp_all_gather", "cp_comm", "all_gather", count, size, c.mapping.cp, c.mapping.stride("cp"), "cp")]


def mla_ops(c: Context, count: Num, a: MLA) -> list[Op | Comm]:
    """Latent attention: keys and values expanded for new tokens in prefill, absorbed into the query when decoding.

    Source: DeepSeek-V2 (arXiv 2405.04434) section 2.1 and appendix C; absorption as in its section 2.1.2.
    """
    h, tokens, b = c.model.hidden, c.tokens, c.style.half_bytes
    heads = split(a.heads, c.mapping.tp)
    qk, widths, rate, part = a.nope_dim + a.rope_dim, c.dense_widths, c.dense_rate, "attention"
    latent = a.kv_rank + a.rope_dim
    nodes: list[Op | Comm] = []
    if isinstance(a.q_rank, int | float) and a.q_rank == 0:
        nodes.append(gemm("q", part, count, tokens, heads * qk, h, widths, rate))
        nodes.append(gemm("kv_down", part, count, tokens, latent, h, widths, rate))
    else:
        nodes.append(gemm("qkv_down", part, count, tokens, a.q_rank + latent, h, widths, rate))
        nodes.append(stream("q_norm", part, "norm", count, 2 * tokens * a.q_rank * b))
        nodes.append(gemm("q_up", part, count, tokens, heads * qk, a.q_rank, widths, rate))
    cached = 0.0 if c.style.training else c.quant.kv_bytes
    written = tokens * latent * (2 * b + cached) + 2 * tokens * heads * a.rope_dim * b
    nodes.append(stream("rope_kv_write", part, "rope", count, written, 2))
    sparse = not (isinstance(a.index_topk, int | float) and a.index_topk == 0)
    if sparse:
        nodes += indexer_ops(c, count, a)
    if c.work.prefill:
        p = c.work.prefill
        rows, all_keys = p.sequences * p.new / c.mapping.cp, p.sequences * (p.new + p.past)
        nodes += context_gather(c, count, p, latent)
        keys = attended(p.new, p.past, float("inf"))
        keys = np.minimum(keys, a.index_topk) if sparse else keys
        nodes.append(gemm("kv_up", part, count, all_keys, heads * (a.nope_dim + a.value_dim), a.kv_rank, widths, rate))
        flops = 2.0 * rows * keys * heads * (qk + a.value_dim)
        traffic = b * (rows * heads * (qk + a.value_dim) + all_keys * heads * (qk + a.value_dim))
        shape = (p.sequences, p.new, p.past, heads, heads, qk, a.value_dim, float("inf"))
        nodes.append(Op("attention", part, "mla_attention", count, flops, traffic, shape, (b, b, b)))
    if c.work.decode:
        d = c.work.decode
        keys = (np.minimum(d.context, a.index_topk) if sparse else d.context) / c.mapping.cp
        absorb = (b, b, b)
        nodes.append(_batched("q_absorb", part, count, d.sequences, heads, a.kv_rank, a.nope_dim, absorb))
        flops = 2.0 * d.sequences * keys * heads * (latent + a.kv_rank)
        traffic = d.sequences * (keys * latent * c.quant.kv_bytes + heads * (latent + a.kv_rank) * b)
        nodes.append(
            Op("attention", part, "mla_decode", count, flops, traffic, (d.sequences, keys, heads, a.kv_rank, a.rope_dim),
               (b, c.quant.kv_bytes, b))
        )  # fmt: skip
        nodes.append(_batched("v_absorb", part, count, d.sequences, heads, a.value_dim, a.kv_rank, absorb))
    nodes.append(gemm("out", part, count, tokens, h, heads * a.value_dim, widths, rate))
    return nodes


def _batched(name: str, part: str, count: Num, m: Num, batch: Num, n: Num, k: Num, widths: tuple[Num, Num, Num]) -> Op:
    """`batch` products of [m, k] by [k, n] in one kernel, timed as one product with n·batch columns."""
    op = gemm(name, part, count, m, n * batch, k, widths)
    return op._replace(bytes=op.bytes + m * k * (batch - 1) * widths[1])


def indexer_ops(c: Context, count: Num, a: MLA) -> list[Op | Comm]:
    """The light indexer of sparse attention: every query scores every past token in fp8 (arXiv 2512.02556)."""
    tokens, part = c.tokens, "attention"
    width = a.index_heads * a.index_dim
    nodes: list[Op | Comm] = [
        gemm("index_q", part, count, tokens, width, a.q_rank, c.dense_widths, c.dense_rate),
        gemm("index_k", part, count, tokens, a.index_dim + a.index_heads, c.model.hidden, c.dense_widths, c.dense_rate),
    ]
    scored: Num = 0.0
    keys_read: Num = 0.0
    if c.work.prefill:
        p = c.work.prefill
        scored = scored + p.sequences * p.new / c.mapping.cp * attended(p.new, p.past, float("inf"))
        keys_read = keys_read + p.sequences * (p.new + p.past)
    if c.work.decode:
        scored = scored + c.work.decode.sequences * c.work.decode.context
        keys_read = keys_read + c.work.decode.sequences * c.work.decode.context
    # scores are written in fp32, then read by the top-k
    traffic = keys_read * (a.index_dim + 4.0) + 2 * scored * 4.0
    nodes.append(Op("index_scores", part, "scan", count, 2.0 * scored * width, traffic, (), (1.0, 1.0, 4.0), "half", 2))
    return nodes


def linear_ops(c: Context, count: Num, a: LinearAttention) -> list[Op | Comm]:
    """A recurrent mixer: projections, short convolution, state update, gated norm, output.

    The state (heads x head_dim x state, fp32) is read and written once a pass; in a prefill the chunked form
    multiplies chunks of 64 tokens (Mamba-2, arXiv 2405.21060 section 6; gated DeltaNet, arXiv 2412.06464).
    """
    h, t, tokens, b, part = c.model.hidden, c.mapping.tp, c.tokens, c.style.half_bytes, "attention"
    heads, key_heads = split(a.heads, t), split(a.key_heads, t)
    inner, keys = heads * a.head_dim, key_heads * a.state
    delta = a.kind in ("gated-delta", "kda")
    sequences: Num = 0
    chunk_flops: Num = 0.0
    if c.work.prefill:
        p = c.work.prefill
        sequences = sequences + p.sequences
        chunk_flops = p.sequences * p.new * 2.0 * 64 * heads * (a.state + a.head_dim) * (2 if delta else 1)
    if c.work.decode:
        sequences = sequences + c.work.decode.sequences
    state_flops = tokens * heads * a.head_dim * a.state * (8.0 if delta else 6.0)
    state_bytes = 2 * sequences * heads * a.head_dim * a.state * 4.0
    width = 2 * inner + 2 * keys + heads * (2 if delta else 1)
    mixed = inner + 2 * keys
    return [
        gemm("in_proj", part, count, tokens, width, h, c.dense_widths, c.dense_rate),
        stream("conv", part, "conv", count, 2 * tokens * mixed * b + 2 * sequences * mixed * a.conv * b),
        Op("scan", part, "scan", count, state_flops + chunk_flops, state_bytes + tokens * (mixed + inner) * b, (),
           (b, 4.0, b), "half", 2),
        stream("gated_norm", part, "norm", count, 3 * tokens * inner * b),
        gemm("out", part, count, tokens, h, inner, c.dense_widths, c.dense_rate),
    ]  # fmt: skip


def mlp_ops(c: Context, count: Num, f: MLP, part: str = "mlp", name: str = "") -> list[Op | Comm]:
    """Up (and gate), activation, down, with columns split over the tensor group."""
    h, tokens, b = c.model.hidden, c.tokens, c.style.half_bytes
    width = np.ceil(f.width / c.mapping.tp)
    widths, rate = c.dense_widths, c.dense_rate
    nodes: list[Op | Comm] = []
    if f.gated and not c.style.merged:
        nodes.append(gemm(f"{name}gate", part, count, tokens, width, h, widths, rate))
        nodes.append(gemm(f"{name}up", part, count, tokens, width, h, widths, rate))
    else:
        nodes.append(gemm(f"{name}gate_up" if f.gated else f"{name}up", part, count, tokens, width * (1 + f.gated), h,
                          widths, rate))  # fmt: skip
    values = (3 if f.gated else 2) * tokens * width * b
    if c.style.fused and not c.style.epilogue:
        nodes.append(stream(f"{name}activation", part, "activation", count, values, rows=tokens))
    elif not c.style.fused:
        extra = 2 * tokens * width * b * f.gated
        nodes.append(stream(f"{name}activation", part, "activation", count, values + extra, 1 + f.gated))
    nodes.append(gemm(f"{name}down", part, count, tokens, h, width, widths, rate))
    return nodes


def moe_nodes(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Router, dispatch, experts, combine, and the shared expert.

    With ep <= tp every rank of the tensor group holds all tokens, works on its own experts and the usual all-reduce
    combines. With ep > tp tokens travel: an all-to-all to the ranks of their experts and one back.
    """
    m, h, tokens, b = c.mapping, c.model.hidden, c.tokens, c.style.half_bytes
    inner = f.inner(h)
    gathered = tokens * m.expert_dp
    local = f.experts / m.ep
    width = np.ceil(f.width / m.expert_tp)
    pairs = gathered * f.top_k / m.ep
    touched = distinct_experts(f.experts, f.top_k, gathered, c.style.alike) / m.ep
    mats = 3 if f.gated else 2
    w, act = c.quant.weight_bytes, np.minimum(c.quant.act_bytes, b)
    moved = pairs * (inner * (act + b) + width * ((mats - 1) * b + act))
    has_latent = not (isinstance(f.latent, int | float) and f.latent == 0)
    nodes: list[Op | Comm] = [gemm("router", "moe", count, tokens, f.experts, h, (b, b, 4.0))]
    nodes.append(stream("route", "moe", "route", count, tokens * f.experts * 8.0 + tokens * h * b, 3))
    if has_latent:
        nodes.append(gemm("latent_down", "moe", count, tokens, inner, h, c.dense_widths, c.dense_rate))
    nodes += exchange_nodes(c, count, f)
    if c.style.training:
        nodes += grouped_ops(c, count, pairs, local, inner, width, f.gated)
    else:
        nodes.append(
            Op("experts", "moe", "moe", count, 2.0 * mats * pairs * inner * width,
               touched * mats * inner * width * w + moved,
               (gathered, inner, width, f.experts, local, f.top_k, pairs), (w, act, b), "quant", 3)
        )  # fmt: skip
    nodes.append(stream("combine", "moe", "route", count, pairs * inner * b + tokens * inner * b))
    if has_latent:
        nodes.append(gemm("latent_up", "moe", count, tokens, h, inner, c.dense_widths, c.dense_rate))
    if not (isinstance(f.shared_width, int | float) and f.shared_width == 0):
        nodes += mlp_ops(c, count, MLP(f.shared_width, f.gated), "moe", "shared_")
    return nodes


def grouped_ops(c: Context, count: Num, pairs: Num, local: Num, h: Num, width: Num, gated: bool) -> list[Op | Comm]:
    """Experts in training: two grouped products over all pairs of token and expert of this rank (every expert is busy),
    the activation between them, and three sorts of the pairs' rows (by rank, by expert, and back), each read and written.
    """
    w, act, b = c.quant.weight_bytes, np.minimum(c.quant.act_bytes, c.style.half_bytes), c.style.half_bytes
    wide = width * (1 + gated)
    values = (3 if gated else 2) * pairs * width * b
    return [
        stream("permute", "moe", "route", count, 6 * pairs * h * b, 3, rows=pairs),
        grouped("experts_up", "moe", count, pairs, wide, h, local, (w, act, b), "quant"),
        stream("experts_activation", "moe", "activation", count, values, rows=pairs),
        grouped("experts_down", "moe", count, pairs, h, width, local, (w, act, b), "quant"),
    ]


def exchange_nodes(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Dispatch and combine between expert-parallel ranks of different data-parallel groups (none with ep <= tp).

    A token goes once to each rank that holds any of its experts, in the activation width, and comes back at 16 bits;
    the ranks of a tensor group share their tokens out among them.
    """
    m = c.mapping
    if _one(m.ep):
        return []
    each = distinct_ranks(m.ep, f.top_k) if c.style.dedup else f.top_k
    ranks = np.where(m.expert_dp > 1, m.ep, 1)
    rows = c.tokens / m.tp * each * c.model.hidden
    sent = np.minimum(c.quant.act_bytes, c.style.half_bytes)
    return [
        Comm("ep_dispatch", "ep_comm", "all_to_all", count, rows * sent, ranks, m.stride("ep"), "ep"),
        Comm("ep_combine", "ep_comm", "all_to_all", count, rows * c.style.half_bytes, ranks, m.stride("ep"), "ep"),
    ]


def head_nodes(c: Context) -> list[Op | Comm]:
    """Final norm, logits of the asked rows (vocabulary split over the tensor group), sampling."""
    model, rows, b, m = c.model, c.work.logits, c.style.half_bytes, c.mapping
    columns = np.ceil(model.vocab / m.tp)
    nodes = norm_ops(c, 1, 1.0)[:1]
    nodes.append(gemm("logits", "logits", 1, rows, columns, model.hidden, (b, b, b)))
    if c.style.training:
        return nodes + loss_nodes(c, rows, columns)
    if not _one(m.tp):
        nodes.append(
            Comm("logits_all_gather", "tp_comm", "all_gather", 1, rows * model.vocab * b, m.tp, m.stride("tp"), "tp")
        )
    nodes.append(stream("sample", "logits", "sample", 1, 3 * rows * columns * 4.0, 3))
    return nodes


def loss_nodes(c: Context, rows: Num, columns: Num) -> list[Op | Comm]:
    """Cross-entropy over a vocabulary split by columns: logits to fp32, maximum, exponentials and their sum (read 2,
    write 4, read 4 twice, write 4 bytes a logit; one pass of 4 bytes where fused), three reductions of one number a
    row (Megatron-LM, arXiv 1909.08053)."""
    m, each = c.mapping, 4.0 if c.style.fused else 18.0
    nodes: list[Op | Comm] = [stream("loss", "logits", "sample", 1, rows * columns * each, 1 if c.style.fused else 5)]
    if not _one(m.tp):
        nodes.append(Comm("loss_all_reduce", "tp_comm", "all_reduce", 3, rows * 4.0, m.tp, m.stride("tp"), "tp"))
    return nodes


def tensor_reduce(c: Context, name: str, count: Num, tokens: Num) -> list[Op | Comm]:
    """The all-reduce of a layer's partial sums over the tensor group (Megatron-LM, arXiv 1909.08053)."""
    if _one(c.mapping.tp):
        return []
    size = tokens * c.model.hidden * c.style.half_bytes
    ranks, stride = c.mapping.tp, c.mapping.stride("tp")
    if c.style.sequence_parallel:
        ops = ("reduce_scatter", "all_gather")
        return [Comm(name.replace("all_reduce", op), "tp_comm", op, count, size, ranks, stride, "tp") for op in ops]
    return [Comm(name, "tp_comm", "all_reduce", count, size, ranks, stride, "tp")]


def pipeline_nodes(c: Context) -> list[Op | Comm]:
    """Hidden states sent from stage to stage: pp - 1 messages a pass."""
    m = c.mapping
    if _one(m.pp):
        return []
    size = c.tokens * c.model.hidden * c.style.half_bytes
    return [Comm("pp_send", "pp_comm", "p2p", m.pp - 1, size, np.minimum(m.pp, 2), m.stride("pp"), "pp")]


def _one(degree: Num) -> bool:
    """True for the plain number 1: a group that is not there needs no node (its formulas would give zero)."""
    return isinstance(degree, int | float) and degree == 1
