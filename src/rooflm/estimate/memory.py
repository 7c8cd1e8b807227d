"""Bytes on one device: weights by shard, KV cache and recurrent state, activations, logits, buffers.

The device is the fullest one: with a pipeline, the stage with the most layers and the larger of embedding and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from rooflm.catalogue import model as shapes
from rooflm.catalogue.engine import Room
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MLA, MLP, Attention, Block, CompressedAttention, LinearAttention, Model, MoE
from rooflm.catalogue.quant import PARTS, Quant
from rooflm.graph.adapted import beside
from rooflm.graph.context import Context, Decode, Pass
from rooflm.graph.feedforward import sides
from rooflm.graph.forward import ffn_nodes, mixer_nodes
from rooflm.kernels.expert_kernels import expert_kernels, filled, spread_by_passes
from rooflm.kernels.lookup import setting
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.kept import kept
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, highest, is_plain, larger, pick, smaller

NO_MORE = Room()
"""Room of an engine that keeps of a cache what it reads."""
SPLIT = shapes.WIDENED | {CompressedAttention: ("heads", "out_groups")}
"""What of a mixer a tensor group splits."""


@kept
def local_mixer(mixer: shapes.Mixer | None, tp: Num) -> shapes.Mixer | None:
    """The mixer as one rank of the tensor group holds it: heads split, KV heads replicated when there are too few."""
    if mixer is None or is_plain(tp, 1):
        return mixer
    split: dict[str, Any] = {name: ceil(getattr(mixer, name) / tp) for name in SPLIT[type(mixer)]}
    return replace(mixer, **split)


def local_ffn(ffn: shapes.FeedForward | None, mapping: Mapping) -> tuple[Num, Num, Num]:
    """(width of the dense or shared part, experts, width of an expert) on one rank."""
    if ffn is None:
        return 0, 0, 0
    if isinstance(ffn, MLP):
        return ceil(ffn.width / mapping.tp), 0, 0
    return ceil(ffn.shared_width / mapping.tp), ffn.experts / mapping.expert_ranks, ceil(ffn.width / mapping.expert_tp)


def block_shard(model: Model, block: Block, mapping: Mapping) -> dict[str, Num]:
    """Parameters of one layer on one rank: matrices by part (`quant.PARTS`), and "plain": norms, router."""
    h, f, (dense_width, count, width) = model.hidden, block.ffn, local_ffn(block.ffn, mapping)
    held: dict[str, Num] = dict.fromkeys(PARTS, 0)
    held["attention"] = shapes.mixer_params(local_mixer(block.mixer, mapping.tp), h)
    held["plain"] = block.norms * shapes.norm_params(model)
    if isinstance(f, MLP):
        held["mlp"] = shapes.ffn_params(replace(f, width=dense_width), h)
    elif isinstance(f, MoE):
        held["mlp"], held["shared"] = 2 * h * f.latent, shapes.matrix_params(h, dense_width, f.gated)
        held["experts"] = count * shapes.matrix_params(f.inner(h), width, f.gated, f.bias)
        held["plain"] = held["plain"] + f.experts * h + f.shared_gate * h + f.bias * f.experts
    return held


def stage_share(model: Model, pp: Num) -> Num:
    """Share of all layers that the fullest pipeline stage holds: ceil(L / pp) / L."""
    return ceil(model.layers / pp) / model.layers


def layer_shard(model: Model, mapping: Mapping) -> dict[str, Num]:
    """Parameters of a mean layer on one rank by part (`quant.PARTS`) and plain."""
    mean: dict[str, Num] = dict.fromkeys((*PARTS, "plain"), 0.0)
    for block in model.blocks:
        for kind, params in block_shard(model, block, mapping).items():
            mean[kind] = mean[kind] + block.count * params / model.layers
    return mean


def end_tables(model: Model, mapping: Mapping) -> tuple[Num, Num]:
    """Parameters on one rank of the embedding (with positions) and of the head (0: tied, and both on one stage)."""
    rows = ceil(model.vocab / mapping.tp)
    own_head = model.head * pick((mapping.pp == 1) & model.tied, 0.0, 1.0)
    return (rows + model.positions) * model.hidden, rows * (own_head * model.hidden + model.head_bias)


def shards(model: Model, mapping: Mapping) -> dict[str, Num]:
    """Parameters on the fullest device by part (`quant.PARTS`), plain and embedding (with head and positions)."""
    m = model.scaled
    layers = ceil(m.layers / mapping.pp)
    total = {kind: params * layers for kind, params in layer_shard(m, mapping).items()}
    total["plain"] = total["plain"] + shapes.norm_params(m) + m.tower_params / mapping.tp
    first, last = end_tables(m, mapping)
    total["embedding"] = pick(mapping.pp > 1, larger(first, last), first + last) + extra_share(m, mapping)
    return total


def extra_share(model: Model, mapping: Mapping) -> Num:
    """Parameters outside any block (`extra_params`) on one rank: each rank holds all of them. A negative number
    corrects for a token table narrower than the hidden width, and is split as the table is."""
    return pick(model.extra_params < 0, model.extra_params / mapping.tp, model.extra_params)


@kept
def weight_bytes(model: Model, mapping: Mapping, quant: Quant) -> Num:
    """Bytes of weights on the fullest device; norms and router stay at 16 bits, mostly also embedding and head."""
    parts = shards(model, mapping)
    matrices = sum(parts[p] * quant.widths[p][0] for p in PARTS)
    return matrices + parts["plain"] * quant.half_bytes + parts["embedding"] * quant.table_bytes


def layout_bytes(s: Scenario, m: Mapping) -> tuple[Num, Num]:
    """Bytes that experts' kernels add on the fullest device: to weights zeros that fill up their sides (`sides`,
    `filled`) and scales in a second layout (`scales_twice`); to a pass a layer in 16 bits (`spread_by_passes`)."""
    q, k, model = s.quant, s.engine.kernels, s.model.scaled
    w, _ = setting(s.cluster.device, s.engine, q, s.efficiency)
    total, copy = 0.0, 0.0  # type: Num, Num
    for b, f in ((b, b.ffn) for b in model.blocks if isinstance(b.ffn, MoE)):
        own = expert_kernels(s, w, bool(highest(m.expert_ranks) > 1))
        (_, count, width), (inner, outer) = local_ffn(f, m), sides(f, model.hidden, q, k, m)
        held = reduce(larger, (shapes.matrix_params(*filled(c.family, c.dtype, outer, inner), f.gated) for c in own))
        part = shapes.matrix_params(f.inner(model.hidden), width, f.gated)
        twice = any(c.family in words_in(k.scales_twice) for c in own) * q.scale_bits / 8
        total = total + b.count * count * ((held - part) * q.widths["experts"][0] + twice * part)
        copy = larger(copy, count * part * q.half_bytes * spread_by_passes(s, w))
    return total * stage_share(model, m.pp), copy


def adapter_params(model: Model, mapping: Mapping, rank: Num, modules: Sequence[str], joined: bool = False) -> Num:
    """Parameters of a low-rank adapter on one tensor rank, by the products of a pass: rank x (inputs + outputs) for
    each adapter (arXiv 2106.09685), all of the hidden side and a share of the other. Routed experts are left out.

    joined: of a product that is named as a whole ("qkv") one for all of its parts."""
    c = Context(model, Pass(None, Decode(1.0, 1.0), 1.0), mapping, Quant("bf16"))
    nodes = [n for b in model.blocks for n in (*mixer_nodes(c, b, b.count), *ffn_nodes(c, b))]
    found = beside(nodes, modules, joined)
    return sum((op.count * rank * (op.shape[2] + n) for op, columns in found for n in columns), 0.0)


def adapter_bytes(model: Model, mapping: Mapping, adapters: Adapters) -> Num:
    """Bytes of served adapters on the fullest device, at 16 bits: each tensor rank holds its share of one matrix of a
    pair and all of the other (vLLM's default). Each part of a fused product has its own adapter."""
    one = adapter_params(model.scaled, mapping, adapters.rank, adapters.modules)
    return 2.0 * adapters.held * one * stage_share(model.scaled, mapping.pp)


def kv_values(mixer: shapes.Mixer | None, room: Room = NO_MORE) -> Num:
    """Values that one layer caches a token: K and V of every KV head, or MLA's latent (or `head_kept`; and its indexer
    key); those that it has room for, where what it reads is an earlier layer's (`shared_kept`)."""
    if isinstance(mixer, Attention):
        return mixer.causal * new_values(mixer, room.shared_kept)
    if not isinstance(mixer, MLA):
        return 0
    return pick(room.head_kept > 0, 2 * mixer.heads * room.head_kept, mixer.kv_rank + mixer.rope_dim)


def new_values(a: Attention, shared_kept: bool = False) -> Num:
    """Values of keys and values that attention makes a token, or (shared_kept) would if it read no other layer's."""
    return 0 if a.shared_kv and not shared_kept else a.kv_heads * (a.head_dim + a.v_dim)


def index_bytes(mixer: shapes.Mixer | None) -> Num:
    """Bytes a token of an indexer's key: fp8 values and a 4-byte scale (DeepSeek-V3.2), or 16 bits (MiniMax-M3)."""
    if isinstance(mixer, MLA):
        return pick(mixer.index_topk > 0, mixer.index_dim + 4.0, 0.0)
    return 2.0 * mixer.index_dim if isinstance(mixer, Attention) else 0


def compressed_bytes(a: CompressedAttention, quant: Quant, tokens: Num) -> Num:
    """Bytes that one layer of compressed attention keeps of a sequence: the window, an entry (and the indexer's key)
    for every `ratio` tokens, and the tail that is not compressed yet: values and weights (fp32) of tokens that make no
    whole entry, twice as many of each of two series where windows overlap (released code: kv_state, score_state)."""
    entries = tokens / larger(a.ratio, 1) * (a.ratio > 0)
    tail = 2 * 4.0 * a.series**2 * a.ratio * (a.entry + (a.index_topk > 0) * a.index_dim)
    kept = (smaller(tokens, a.window) + entries) * kv_values(a) * quant.kv_bytes
    return kept + entries * index_bytes(a) + tail


def beside_window(room: Room) -> Num:
    """Tokens that a layer's cache holds beside its window: those of a pass, where the engine keeps a ring of both
    (llama.cpp, llama-kv-cache-iswa.cpp: n_swa + n_ubatch), or all, where it masks what is kept whole."""
    return pick(room.window_beside > 0, room.token_budget, 0.0) * larger(room.window_beside, 1.0)


def kv_bytes_per_sequence(model: Model, mapping: Mapping, quant: Quant, tokens: Num, room: Room = NO_MORE) -> Num:
    """Bytes of one sequence's cache and state on the fullest device at a length of `tokens`, as an engine keeps them.

    A window keeps at most its width, but the share `window_kept` of all tokens at least; blocks are whole; recurrent
    layers keep a state of fixed size (fp32) and what their convolution looks back to."""
    m = model.scaled
    paged = ceil(tokens / room.block) * room.block
    total: Num = 0.0
    for b in m.blocks:
        mixer = local_mixer(b.mixer, mapping.tp)
        if isinstance(mixer, LinearAttention):
            inner, keys = mixer.heads * mixer.head_dim, mixer.key_heads * mixer.state
            state = 0 if mixer.kind == "conv" else inner * mixer.state * 4.0
            mixed = inner + 2 * keys * (mixer.kind != "conv")
            total = total + b.count * (state + mixed * larger(mixer.conv - 1, 0) * 2.0)
            continue
        if isinstance(mixer, CompressedAttention):
            total = total + b.count * compressed_bytes(mixer, quant, paged)
            continue
        kept = paged
        if isinstance(mixer, Attention):
            kept = larger(smaller(paged, mixer.window + beside_window(room)), room.window_kept * paged)
        total = total + b.count * kept * (kv_values(mixer, room) * quant.kv_bytes + index_bytes(mixer))
    return total * stage_share(m, mapping.pp)


@kept
def layer_widths(model: Model, mapping: Mapping) -> Num:
    """Activation values a token, besides the residual, at the widest point of any layer (inputs and outputs).

    Attention: projections and output; feed-forward: gate, up and their product; MoE: one copy of a token for each of
    its experts on this rank."""
    m = model.scaled
    widest: Num = 0.0
    for b in m.blocks:
        mixer = local_mixer(b.mixer, mapping.tp)
        if isinstance(mixer, Attention):
            wide = mixer.heads * (mixer.head_dim + mixer.v_dim) + new_values(mixer)
        elif isinstance(mixer, MLA):
            wide = mixer.heads * (3 * (mixer.nope_dim + mixer.rope_dim) + mixer.value_dim)
        elif isinstance(mixer, LinearAttention):
            wide = 3 * mixer.heads * mixer.head_dim + 4 * mixer.key_heads * mixer.state
        else:
            wide = 0.0
        dense, _, width = local_ffn(b.ffn, mapping)
        feed: Num = dense * (3.0 if b.ffn is None or b.ffn.gated else 2.0)
        if isinstance(b.ffn, MoE):
            pairs = b.ffn.top_k * mapping.expert_dp / mapping.expert_ranks
            feed = larger(feed, pairs * (width * 3.0 + 2.0 * b.ffn.inner(m.hidden)))
        widest = larger(widest, larger(wide, feed))
    return widest


def score_bytes(model: Model, mapping: Mapping, keys: Num, half_bytes: float) -> Num:
    """Bytes a query token of unfused attention's scores: every head of the widest layer, 16-bit and fp32 copies."""
    local = (local_mixer(b.mixer, mapping.tp) for b in model.scaled.blocks)
    heads: list[Num] = [0.0, *(mixer.heads for mixer in local if isinstance(mixer, Attention))]
    return reduce(larger, heads) * keys * (half_bytes + 4.0)
