"""Feed-forward layers as ops: dense, and mixtures of experts with the exchange of their tokens."""

from __future__ import annotations

import math

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLP, MoE
from rooflm.catalogue.quant import Quant
from rooflm.graph.context import Context, plain_gelu
from rooflm.graph.ops import Comm, Op, distinct_experts, gemm, occupied, popularity, stream
from rooflm.scenario.mapping import Mapping
from rooflm.units import Num, ceil, highest, is_plain, pick, smaller

GELU_VALUES, GELU_WIDER = 18, 40.0
"""What 0.5 x (1 + tanh(k (x + 0.044715 x^3))) moves, kernel by kernel, of a value: reads and writes, and the bytes that
autocast adds, which takes powers, and what they are added to, in fp32 (amp.rst): 36 bytes in 16 bits, 76 under it."""


def mlp_ops(c: Context, count: Num, f: MLP, part: str = "mlp", name: str = "") -> list[Op | Comm]:
    """Up (and gate), activation, down, with columns split over the tensor group."""
    h, tokens, b = c.model.hidden, c.tokens, c.quant.half_bytes
    width, piece = ceil(f.width / c.mapping.tp), "shared" if name else "mlp"
    widths, rate = c.quant.widths[piece], c.quant.rates[piece]
    columns = {"gate_up": (width, width)} if f.gated else {"up": (width,)}
    if f.gated and not c.kernels.merged:
        columns = {"gate": (width,), "up": (width,)}
    made = [(n, gemm(name + of, part, count, tokens, sum(n), h, widths, rate, of=of)) for of, n in columns.items()]
    nodes: list[Op | Comm] = [op._replace(columns=n) for n, op in made]
    values = (2 + f.gated) * tokens * width * b
    if c.kernels.fused and not c.kernels.epilogue:
        nodes.append(stream(f"{name}activation", part, "activation", count, values, rows=tokens))
    elif c.training and plain_gelu(f, c.kernels):
        moved = tokens * width * (GELU_VALUES * b + GELU_WIDER * c.autocast)
        nodes.append(stream("plain_gelu", part, "activation", count, moved))
    elif not c.kernels.fused:
        extra = 2 * tokens * width * b * f.gated
        nodes.append(stream(f"{name}activation", part, "activation", count, values + extra, 1 + f.gated))
    nodes.append(gemm(f"{name}down", part, count, tokens, h, width, widths, rate, of="down"))
    return nodes


def moe_nodes(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Router, dispatch, experts with their weighted sum, and the shared expert, which a small decode pass runs on a
    stream beside them (`shared_aside`).

    With ep <= tp every rank of the tensor group holds all tokens, works on its own experts and the usual all-reduce
    combines. With ep > tp tokens travel, or where the exchange is scattered: to the ranks of their experts and back.
    Source of the stream: vLLM, VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD; SGLang, DUAL_STREAM_TOKEN_THRESHOLD in
    qwen2_moe.py and deepseek_v2.py; TensorRT-LLM, multi_stream_utils.py (in CUDA graphs)."""
    h, tokens, b, inner = c.model.hidden, c.tokens, c.quant.half_bytes, f.inner(c.model.hidden)
    has_latent = not is_plain(f.latent, 0)
    router = gemm("router", "moe", count, tokens, f.experts, h, (b, b, 4.0))
    if (f.wide_router or c.training) and c.kernels.wide_routers:  # tokens cast by one kernel; weights of fp32
        router = gemm("router", "moe", count, tokens, f.experts, h, (4.0, b + 8.0, 4.0), "vector", 2)
        router = router._replace(kind="simt")
    nodes: list[Op | Comm] = [router]
    route = stream("route", "moe", "route", count, tokens * f.experts * 8.0 + tokens * h * b, 3)
    gate = f.router_bias and not is_plain(f.shared_width, 0) and not c.training
    nodes.append(route._replace(kind="gate", shape=(f.experts, f.groups)) if gate else route)
    if has_latent:
        nodes.append(gemm("latent_down", "moe", count, tokens, inner, h, c.quant.widths["mlp"], c.quant.rates["mlp"]))
    nodes += exchange_nodes(c, count, f)
    nodes += grouped_ops(c, count, f) if c.training else fused_experts(c, count, f)
    if has_latent:
        nodes.append(gemm("latent_up", "moe", count, tokens, h, inner, c.quant.widths["mlp"], c.quant.rates["mlp"]))
    if not is_plain(f.shared_width, 0):
        shared = mlp_ops(c, count, MLP(f.shared_width, f.gated), "moe", "shared_")
        if not c.training and not c.kernels.epilogue:
            shared += shared_join(c, count, f)
        if c.work.prefill is None and not is_plain(c.kernels.shared_aside, 0):
            few = pick(tokens <= c.kernels.shared_aside, 1.0, 0.0)
            shared = [node._replace(overlapped=few) if isinstance(node, Op) else node for node in shared]
        nodes += shared
    return nodes


def shared_join(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """The shared expert's own gate (a product with one column, sigmoid, multiply), and its output added to the others'.

    Source: transformers, modeling_qwen2_moe.py, modeling_deepseek_v3.py; vLLM and SGLang keep these kernels apart."""
    h, tokens, b = c.model.hidden, c.tokens, c.quant.half_bytes
    nodes: list[Op | Comm] = []
    if f.shared_gate:
        nodes.append(gemm("shared_gate", "moe", count, tokens, 1, h, (b, b, b)))
        nodes.append(stream("shared_scale", "moe", "activation", count, 2 * tokens * h * b, 2))
    nodes.append(stream("shared_add", "moe", "activation", count, 3 * tokens * h * b))
    return nodes


def sides(f: MoE, hidden: Num, q: Quant, k: Kernels, m: Mapping) -> tuple[Num, Num]:
    """Inner and outer width of an expert on a rank, filled up as the engine holds experts of MXFP4 (`expert_fill`)."""
    mx = (q.weight_bits == 4) & (q.scale_bits == 0.25) & (q.act_bits > 4) & (q.kind == "float")
    fill = pick(mx, k.expert_fill, 1)
    return ceil(ceil(f.width / m.expert_tp) / fill) * fill, ceil(f.inner(hidden) / fill) * fill


def on_rank(c: Context, f: MoE) -> tuple[Num, Num, Num, Num, Num]:
    """(tokens that reach a rank, pairs with one of its experts, its experts, their inner width on it, the outer)."""
    gathered, ranks = c.tokens * c.mapping.expert_dp, c.mapping.expert_ranks
    inner, outer = sides(f, c.model.hidden, c.quant, c.kernels, c.mapping)
    return gathered, gathered * f.top_k / ranks, f.experts / ranks, inner, outer


def fused_experts(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Experts when serving, with their weighted sum: one op over those reached, and sums one by one (expert_chain)."""
    b, (gathered, pairs, local, width, inner) = c.quant.half_bytes, on_rank(c, f)
    spread = popularity(f.experts, f.top_k, c.kernels.skew)
    touched = distinct_experts(f.experts, f.top_k, gathered, c.kernels.alike, spread) / c.mapping.expert_ranks
    mats, w, act = 2 + f.gated, c.quant.weight_bytes, smaller(c.quant.act_bytes, b)
    moved = pairs * (inner * (act + b) + width * ((mats - 1) * b + act))
    moved = moved + pairs * inner * b + c.tokens * inner * b + touched * mats * inner * width * w
    each = 1 if c.kernels.grouped else touched if c.kernels.chosen_alone else local  # visited by a plain framework
    launches = 4 if c.kernels.fused else c.kernels.expert_kernels * each + c.kernels.expert_calls * touched
    nodes: list[Op | Comm] = [
        Op("experts", "moe", "moe", count, 2.0 * mats * pairs * inner * width, moved,
           (gathered, inner, width, f.experts, local, f.top_k, mats - 2), (w, act, b), "quant", launches,
           role="decode" if c.work.prefill is None else "forward")
    ]  # fmt: skip
    chain = (c.kernels.expert_chain + f.top_k - 1) * smaller(c.kernels.expert_chain, 1)
    if not is_plain(chain, 0):  # sums in fp32 read two and write one
        nodes.append(stream("sum", "moe", "route", count, 12.0 * chain * c.tokens * inner, chain))
    return nodes


def grouped_ops(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Experts in training: two grouped products over all pairs of token and expert of this rank (every expert is busy),
    one kernel or one an expert, the activation between them, the sorts of the pairs' rows, and their weighted sum.

    Tokens that are sent once for each of their experts are sorted three times (by rank, by expert, and back), all pairs
    read and written; those sent once a rank (dedup) are spread out over their experts there and added up again, which
    reads and writes the pairs once and the arrived tokens once. Sources: Megatron-Core, moe/README.md (alltoall and
    flex dispatchers); DeepEP's README; Transformer Engine, GroupedLinear (a loop of cuBLAS products). Engines without
    kernels of their own for it index tensors in place of sorts, the pairs read and written a step (route_copies)."""
    w, act, b = c.quant.weight_bytes, smaller(c.quant.act_bytes, c.quant.half_bytes), c.quant.half_bytes
    _, pairs, local, width, h = on_rank(c, f)
    wide, values = width * (1 + f.gated), (2 + f.gated) * pairs * width * b
    arrived = pairs * reached_ranks(c, f) / f.top_k
    moved, sorts = (2 * (pairs + arrived), 2) if c.kernels.dedup else (6 * pairs, 3)
    launches, each = 1 if c.kernels.grouped else local, c.kernels.route_copies
    kept, steps = pick(each > 0, 0.0, 1.0), pick(each > 0, 6.0, 0.0)
    permute = stream("permute", "moe", "route", count, moved * h * b * kept, sorts * kept, rows=pairs, of="experts")
    index = stream("index", "moe", "route", count, pairs * h * each, steps, rows=pairs, of="experts")
    return [
        *([] if is_plain(kept, 0) else [permute]),
        *([] if is_plain(each, 0) else [index]),
        gemm("experts_up", "moe", count, pairs, wide, h, (w, act, b), "quant", launches, "experts", local),
        stream("experts_activation", "moe", "activation", count, values, rows=pairs, of="experts"),
        gemm("experts_down", "moe", count, pairs, h, width, (w, act, b), "quant", launches, "experts", local),
        stream("combine", "moe", "route", count, pairs * h * b + c.tokens * h * b),
    ]


def reached_ranks(c: Context, f: MoE, ranks: Num | None = None) -> Num:
    """Expected number of expert-parallel ranks (or nodes) that hold at least one of a token's experts."""
    row = f.experts if c.training and c.training.consecutive else 0
    return occupied(c.mapping.ep if ranks is None else ranks, f.top_k, row)


def gathers(exchange: str, ep: Num) -> Num:
    """Whether tokens go to all ranks: in engines that gather, of eight; wider groups run DeepEP and its kin (guides of
    SGLang and vLLM; TensorRT-LLM does so by itself on NVL72, fused_moe/communication)."""
    return ep <= {"all_to_all": 0, "scattered": 0, "naive": math.inf}.get(exchange, 8)


def exchange_nodes(c: Context, count: Num, f: MoE) -> list[Op | Comm]:
    """Dispatch and combine between expert-parallel ranks of different data-parallel groups (or `scattered`): in the
    activation width (or `gathered`) and back at 16 bits, both as wide as the experts (a latent width where tokens are
    projected first). The ranks of a tensor group share their tokens out among them. A token goes once to each rank that
    holds any of its experts, or (`gathers`) to all, whose sums are scattered; with prompts both may be all-reduces.
    naive: each rank of a tensor group sends all of their tokens to its like of every other group, one group after the
    other, and sums are whole everywhere."""
    m = c.mapping
    if is_plain(m.ep, 1):
        return []
    own = reached_ranks(c, f) if c.kernels.dedup else f.top_k
    few = gathers(c.kernels.exchange, m.ep)
    ranks = pick((m.expert_dp > 1) | (c.kernels.exchange == "scattered"), m.ep, 1)
    rows, half, way = c.tokens / m.tp * f.inner(c.model.hidden), c.quant.half_bytes, c.kernels.gathered
    sent = smaller(c.quant.act_bytes, half)
    wide = half if way == "wide" or (way == "blocks_wide" and c.quant.block) else sent
    if c.kernels.exchange == "naive":
        rows, groups, far = rows * m.tp, m.expert_dp, m.stride("dp")
        sizes = ("ep_dispatch", "broadcast", groups, 1.0), ("ep_combine", "all_reduce", 1.0, groups)
        sent_all = (c.message(name, "ep", op, count * n, rows * each * half, groups) for name, op, n, each in sizes)
        return [one._replace(stride=far) for one in sent_all]
    summed = c.kernels.exchange == "sum" and c.work.prefill is not None
    whole = ("all_reduce",) * 2 if summed else ("all_gather", "reduce_scatter")
    kinds = [(whole, m.ep, few, wide), (("all_to_all",) * 2, own, few == 0, sent)]
    return [
        c.message(name, "ep", op, count, rows * each * width, pick(here, ranks, 1))
        for ops, each, here, narrow in kinds if highest(here)
        for name, op, width in zip(("ep_dispatch", "ep_combine"), ops, (narrow, half), strict=True)
    ]  # fmt: skip
