"""Scenario -> [Op | Comm]: the only place where shapes become FLOPs, bytes and messages.

A pass is data: new tokens after past tokens, sequences that decode one token each, or both at once. The same builders
serve prefill, decoding, chunked prefill and the forward pass of training. Counts are of the whole model; numbers are of
one rank of the tensor, data, context and expert groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rooflm.catalogue.fields import number_by_name
from rooflm.catalogue.model import MLA, MLP, Attention, Block, CompressedAttention, FeedForward, LinearAttention, Mixer
from rooflm.graph.adapted import served
from rooflm.graph.attention import attention_ops, mla_ops
from rooflm.graph.compressed import compressed_ops
from rooflm.graph.context import Context, plain_norms, read_again
from rooflm.graph.feedforward import mlp_ops, moe_nodes
from rooflm.graph.ops import PLAIN_NORM, Comm, Op, equal, gemm, stream
from rooflm.graph.recurrent import recurrent_ops
from rooflm.units import Num, ceil, highest, is_plain, larger, pick, smaller


def build(c: Context) -> list[Op | Comm]:
    """The graph of one pass through the whole model: embedding, every block, head, and their communication."""
    nodes = embedding_nodes(c)
    for block, layers in mixed_layers(c.model.blocks):
        if layers is not None:
            nodes += mixer_nodes(c, block, layers)
        nodes += ffn_nodes(c, block)
    nodes += served(nodes, c)
    nodes += head_nodes(c)
    if not is_plain(c.mapping.pp, 1):  # hidden states go from stage to stage, all streams of them
        moved = c.hidden_bytes * c.model.streams
        nodes.append(c.message("pp_send", "pp", "p2p", c.mapping.pp - 1, moved, smaller(c.mapping.pp, 2)))
    return unpacked(nodes, c)


MIXER_OPS: dict[type[Mixer], Callable[..., list[Op | Comm]]] = {
    Attention: attention_ops, CompressedAttention: compressed_ops, MLA: mla_ops, LinearAttention: recurrent_ops,
}  # fmt: skip
"""Kind of mixer -> its ops, of a context, a number of layers and the mixer."""


def mixed_layers(blocks: Sequence[Block]) -> list[tuple[Block, Num | None]]:
    """Each block with the number of layers that its mixer's nodes stand for: later blocks with the very same mixer are
    counted with the first one, and have None themselves.

    >>> own = Attention(8, 8, 64)
    >>> [n for _, n in mixed_layers([Block(3, own, MLP(64)), Block(58, own, MLP(32)), Block(2, None, MLP(16))])]
    [61, None, 2]
    """
    totals: dict[int, Num] = {}
    for i, block in enumerate(blocks):
        same = (j for j in totals if blocks[j].mixer is block.mixer and equal([blocks[j].norms], [block.norms]))
        simple = block.mixer is not None and block.ffn is not None and not block.parallel
        first = next((j for j in same if simple and blocks[j].ffn is not None and not blocks[j].parallel), i)
        totals[first] = totals.get(first, 0) + block.count
    return [(block, totals.get(i)) for i, block in enumerate(blocks)]


def embedding_nodes(c: Context) -> list[Op | Comm]:
    """Rows of the token table (and dropout where there is one), reduced where the table is split."""
    values = c.tokens * c.model.hidden
    nodes: list[Op | Comm] = [stream("embedding", "embedding", "embedding", 1, 2 * values * c.quant.half_bytes)]
    if c.dropout:
        nodes.append(stream("embedding_dropout", "embedding", "add", 1, c.residual_tokens * c.model.hidden * 5.0))
    if c.kernels.vocab_parallel:
        nodes += tensor_reduce(c, "embedding_all_reduce", 1)
    return nodes


def mixer_nodes(c: Context, block: Block, layers: Num) -> list[Op | Comm]:
    """The first half of `layers` layers like the block's: norm, mixer and, but for a parallel block, its reduction."""
    if block.mixer is None:
        return []
    nodes = mixed_streams(c, layers)
    nodes += norm_ops(c, layers, 0.5 * block.norms if block.ffn is not None else block.norms, block.mixer)
    nodes += MIXER_OPS[type(block.mixer)](c, layers, block.mixer)
    if not (block.parallel and block.ffn is not None):
        nodes += tensor_reduce(c, "tp_all_reduce", layers)
    return nodes


def ffn_nodes(c: Context, block: Block) -> list[Op | Comm]:
    """The second half of the block's layers: norm, feed-forward and reduction."""
    if block.ffn is None:
        return []
    n = block.count
    nodes = mixed_streams(c, n)
    nodes += norm_ops(c, n, 0.5 * block.norms if block.mixer is not None else block.norms, block.ffn)
    nodes += mlp_ops(c, n, block.ffn) if isinstance(block.ffn, MLP) else moe_nodes(c, n, block.ffn)
    scattered = c.kernels.exchange == "scattered" and not isinstance(block.ffn, MLP)
    summed = pick(c.mapping.ep > 1, 0, n) if scattered else n
    return nodes + tensor_reduce(c, "tp_all_reduce", summed) * bool(highest(summed))


def unpacked(nodes: list[Op | Comm], c: Context) -> list[Op | Comm]:
    """The same nodes where a library's kernels take narrow weights of few rows only, some in passes: before a product
    of more, a kernel writes its weights at 16 bits, which the product reads; its Python launches more of each."""
    rows, each = (number_by_name(told, c.quant.name, math.inf) for told in (c.kernels.unpack_rows, c.kernels.pass_rows))
    more, out = number_by_name(c.kernels.more_launches, c.quant.name, 0.0), list[Op | Comm]()
    if (rows, each, more) == (math.inf, math.inf, 0.0):
        return nodes
    for op in nodes:
        if isinstance(op, Op) and op.kind == "gemm" and op.rate == "quant":
            (m, n, k, *_), (weight, act, wide) = op.shape, op.widths
            many = pick(m >= rows, 1.0, 0.0)
            wider, passes = many * (2.0 - weight), pick((m > each) & (m < rows), ceil(m / each), 1.0)
            out.append(stream("unpack", op.part, "cast", op.count, many * n * k * (weight + 2.0), many))
            op = gemm(op.name, op.part, op.count * passes, m / passes, n, k, (weight + wider, act, wide), op.rate,
                      (op.launches + more) / passes, op.of)  # fmt: skip
        out.append(op)
    return out


def mixed_streams(c: Context, count: Num) -> list[Op | Comm]:
    """Hyper-connections around half a layer, of n streams of the residual: n (n + 2) coefficients a token by a product
    with all of them, its weights in 32 bits; n x n of these made doubly stochastic and the streams summed to the half's
    input, in one kernel; the half's output and all streams to new streams in another. Every rank of a tensor group does
    it whole; the norm that follows adds nothing. Serving alone.

    Sources: arXiv 2512.24880; transformers, modeling_deepseek_v4.py (DeepseekV4HyperConnection); DeepGEMM's
    tf32_hc_prenorm_gemm and TileKernels' pre_big_fuse and post, as vLLM and SGLang run them."""
    n, h, b, tokens = c.model.streams, c.model.hidden, c.quant.half_bytes, c.residual_tokens
    chain = c.kernels.mix_chain  # an engine may take the steps to doubly stochastic one by one
    moved = 8 * n * n * tokens * smaller(chain, 1)
    if c.training or is_plain(n, 1):
        return []
    count = count * pick(n > 1, 1, 0)
    return [
        gemm("mix", "norm", count, tokens, n * (n + 2), n * h, (4.0, b, 4.0)),
        *([] if is_plain(chain, 0) else [stream("mix_chain", "norm", "activation", count, moved, chain)]),
        stream("mix_in", "norm", "index", count, tokens * (n + 1) * h * b),
        stream("mix_out", "norm", "index", count, tokens * (2 * n + 1) * h * b),
    ]


def norm_ops(c: Context, count: Num, norms: Num, half: Mixer | FeedForward | None = None) -> list[Op | Comm]:
    """A norm and the residual add before it.

    Fused: reads x and the residual, writes the residual and the norm (in the width of the product that follows).
    Unfused (eager PyTorch): PLAIN_NORM bytes a value; then the add; a layer norm is one kernel, and any norm where the
    engine brings one. That of a cast residual in training: to fp32 (6), read it (4), write (2). Under autocast there is
    no cast to fp32 and none back, the add is of fp32 and 16 bits, and each product of the half casts its input."""
    values = c.residual_tokens * c.model.hidden
    b = c.quant.half_bytes
    if c.kernels.fused:
        written = b + (c.quant.widths["attention"][1] + c.quant.widths["mlp"][1]) / 2  # of a layer's two norms
        moved = values * (2 * b * pick(c.model.streams > 1, 0.0, 1.0) + written)  # streams are added up elsewhere
        inside = 0.0 if c.training else inside_reduce(c, norms)
        rows = c.residual_tokens
        return [stream("norm", "norm", "norm", count * norms, moved, rows=rows, of="norm", overlapped=inside)]
    launches, name, wide = 1, "norm", c.autocast
    each = 2.0 * b + 2.0 * b * wide
    if plain_norms(c.model, c.kernels):
        each, (launches, name) = PLAIN_NORM - 4 * b * wide, (1, "plain_norm") if c.training else (6, "norm")
    elif c.kernels.norm_cast:
        each, name = 12.0, "cast_norm"
    copies = [] if half is None or is_plain(wide, 0) else [("cast_in", 1), ("cast_again", read_again(half, c.kernels))]
    return [
        stream(name, "norm", "norm", count * norms, each * values, launches, of="norm"),
        stream("residual", "norm", "add", count * norms, values * (3 * b + c.dropout + 2 * b * wide)),
        *(stream(of, "norm", "cast", count * n * wide, 3 * b * values) for of, n in copies),
    ]


def inside_reduce(c: Context, norms: Num) -> Num:
    """Share of the norms of half a layer (`norms` of them) that a tensor group's small all-reduce before does: one.

    Sources: TensorRT-LLM, AllReduceFusionOp.RESIDUAL_RMS_NORM; FlashInfer's trtllm_allreduce_fusion in vLLM
    (pass_config.fuse_allreduce_rms, up to 1 MB over eight Blackwell GPUs) and SGLang (`asked.assumed.with_norms`)."""
    most = c.kernels.reduce_norm
    if is_plain(most, 0.0) or is_plain(c.mapping.tp, 1) or c.sequence_parallel:
        return 0.0
    small = (c.hidden_bytes <= most) & (c.mapping.tp > 1) & (c.model.streams <= 1)
    return pick(small, 1.0 / larger(norms, 1.0), 0.0)


def head_nodes(c: Context) -> list[Op | Comm]:
    """Final norm, logits of the asked rows (vocabulary split over the tensor group), sampling; headless: the norm."""
    model, rows, b, m = c.model, c.work.logits, c.quant.half_bytes, c.mapping
    columns = ceil(model.vocab / m.tp)
    nodes = norm_ops(c, 1, 1.0)[:1]
    if not model.head:
        return nodes
    nodes.append(gemm("logits", "logits", 1, rows, columns, model.hidden, (c.quant.table_bytes, b, b)))
    if c.training:
        return nodes + loss_nodes(c, rows, columns)
    if not is_plain(m.tp, 1):
        nodes.append(c.message("logits_all_gather", "tp", "all_gather", 1, rows * model.vocab * b))
    each = 12.0 if c.kernels.sampling == "greedy" else larger(c.kernels.drawn, 12.0)  # bytes a logit, gathered before
    nodes.append(stream("sample", "logits", "sample", 1, rows * model.vocab * each, 3))
    return nodes


def loss_nodes(c: Context, rows: Num, columns: Num) -> list[Op | Comm]:
    """Cross-entropy over a vocabulary split by columns: logits to fp32, maximum, exponentials and their sum (read 2,
    write 4, read 4 twice, write 4 bytes a logit; 4 once where fused), three reductions a row (arXiv 1909.08053)."""
    each, launches = (4.0, 1) if c.kernels.fused else (18.0, 5)
    nodes: list[Op | Comm] = [stream("loss", "logits", "sample", 1, rows * columns * each, launches)]
    if not is_plain(c.mapping.tp, 1):
        nodes.append(c.message("loss_all_reduce", "tp", "all_reduce", 3, rows * 4.0))
    return nodes


def tensor_reduce(c: Context, name: str, count: Num) -> list[Op | Comm]:
    """The all-reduce of a layer's partial sums over the tensor group (Megatron-LM, arXiv 1909.08053)."""
    if is_plain(c.mapping.tp, 1):
        return []
    ops = ("reduce_scatter", "all_gather") if c.sequence_parallel else ("all_reduce",)
    return [c.message(name.replace("all_reduce", op), "tp", op, count, c.hidden_bytes) for op in ops]
