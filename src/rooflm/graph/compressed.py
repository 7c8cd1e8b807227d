"""Compressed attention as ops (DeepSeek-V4): a window of entries and, beside it, one entry for every few tokens."""

from __future__ import annotations

from rooflm.catalogue.model import CompressedAttention
from rooflm.graph.attention import batched_gemm, context_exchange, indexer_scores, latent_core, latent_projections
from rooflm.graph.context import Context
from rooflm.graph.ops import Comm, Op, attended, gemm, stream
from rooflm.units import Num, ceil, is_plain, larger, smaller


def compressed_ops(c: Context, count: Num, a: CompressedAttention) -> list[Op | Comm]:
    """Low-rank queries and one entry a token, what makes and picks compressed entries, attention over the window and
    the entries with all heads at once, the output in groups of heads.

    Source: transformers, modeling_deepseek_v4.py (DeepseekV4Attention), which makes entries in 16 bits."""
    heads, groups, part = ceil(a.heads / c.mapping.tp), ceil(a.out_groups / c.mapping.tp), "attention"
    nodes = latent_projections(c, count, a, heads * a.entry, 4 * heads)  # what is summed is turned back
    if a.series:
        nodes += entry_ops(c, count, a)
    nodes += compressed_prefill(c, count, a, heads) + compressed_decode(c, count, a, heads)
    each = heads * a.value_dim / groups
    widths, rate = c.quant.widths[part], c.quant.rates[part]
    nodes.append(batched_gemm("out_groups", part, count, c.tokens, groups, a.out_rank, each, widths, rate))
    nodes.append(c.product("out", part, count, c.model.hidden, groups * a.out_rank))
    return nodes


def entry_ops(c: Context, count: Num, a: CompressedAttention) -> list[Op | Comm]:
    """What makes compressed entries: values and weights of each series of tokens and their weighted sums, which pass
    through an fp32 state. Where an indexer picks among the entries, also its keys and the scores of every query."""
    tokens, part, b = c.tokens, "attention", c.quant.half_bytes
    picks = not is_plain(a.index_topk, 0)
    made = 2 * a.series * (a.entry + picks * a.index_dim)
    nodes: list[Op | Comm] = [
        gemm("compress", part, count, tokens, made + picks * a.index_heads, c.model.hidden, (b, b, b)),
        stream("pool", part, "rope", count, tokens * (made * 8.0 + a.entry * b / a.ratio), 2),
    ]
    if picks:
        width = a.index_heads * a.index_dim
        nodes.append(c.product("index_q", part, count, width, a.q_rank))
        moved = tokens * (width * (b + 1.0) + 8.0 * a.index_topk)
        nodes.append(stream("index_chain", part, "index", count, moved, 2))
        nodes += indexer_scores(c, count, width, key_bytes=a.index_dim + 4.0, ratio=a.ratio)
    return nodes


def compressed_prefill(c: Context, count: Num, a: CompressedAttention, heads: Num) -> list[Op | Comm]:
    """Attention of new tokens over the window and over the compressed entries. Of the entries a query reads one for
    every `ratio` tokens, or `index_topk` of them. Both are read through lists of entries, as in sparse latent
    attention, whose kernel is told by a reach shorter than the sequence (by at least one token) in the op's shape."""
    p, b, entry = c.work.prefill, c.quant.half_bytes, a.entry
    if not p:
        return []
    nodes = context_exchange(c, count, p, entry, heads * a.value_dim)
    reach: list[tuple[Num, Num]] = [(a.window, 1)]
    if a.series:
        reach.append((float("inf") if is_plain(a.index_topk, 0) else a.index_topk * a.ratio, a.ratio))
    for most, ratio in reach:
        seen = smaller(most, larger(p.new + p.past - 1, 1))
        rows, pairs = p.tokens / c.mapping.cp, attended(p.new, p.past, seen) / ratio
        traffic = b * entry * (rows * heads * 2 + p.keys / ratio)
        shape = (p.sequences / ratio, p.new, p.past, heads, entry, a.value_dim, seen, entry, 0)
        flops = 2.0 * rows * pairs * heads * (entry + a.value_dim)
        nodes.append(Op("attention", "attention", "mla_attention", count, flops, traffic, shape, (b, b, b)))
    return nodes


def compressed_decode(c: Context, count: Num, a: CompressedAttention, heads: Num) -> list[Op | Comm]:
    """Attention of a token over the cached window and entries, as over latents without a part for positions."""
    d = c.work.decode
    if not d:
        return []
    keys = smaller(d.context, a.window)
    if a.series:
        entries = d.context / a.ratio
        keys = keys + (entries if is_plain(a.index_topk, 0) else smaller(entries, a.index_topk))
    return [latent_core(c, count, d.sequences, keys / c.mapping.cp, heads, rank=a.entry, rope=0, value=a.value_dim)]
