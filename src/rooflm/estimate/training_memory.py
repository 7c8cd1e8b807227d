"""Bytes on one device in training: weights, gradients, optimiser, activations, logits, buffers; fullest stage."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.engine import Room
from rooflm.catalogue.model import MLA, Attention, Block, FeedForward, LinearAttention, Mixer, Model, MoE, norm_params
from rooflm.estimate.memory import end_tables, extra_share, layer_shard, local_ffn, local_mixer
from rooflm.estimate.schedule import V_SHAPED, in_flight
from rooflm.estimate.step import add_up
from rooflm.graph.context import Context, plain_gelu, plain_norms, read_again
from rooflm.graph.ops import occupied, popularity
from rooflm.graph.recurrent import CHUNK
from rooflm.kernels.moe import imbalance
from rooflm.scenario.kept import kept
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training
from rooflm.units import Num, ceil, floor, is_plain, larger, pick, smaller

SCALE_BITS = 0.127
"""Bits a weight of the scales of a frozen 4-bit base, themselves quantised (QLoRA, arXiv 2305.14314, section 3)."""
ADAPTER_KEPT = 3.0
"""Bytes a value that PEFT keeps of each adapter's input: a copy of 16 bits, dropout's mask (tuners/lora/layer.py)."""

SCAN_KEPT = {"gated-delta": (5, 2, 2, 1)}
"""What a recurrent layer keeps: widths of values, of keys, of keys repeated for each head of values, chunks a head.
Gated deltas: the convolution's inputs, q and k repeated and normalised, v, a chunk's inverse (fla,
chunk_gated_delta_rule: save_for_backward), its output, the gate, the norm's output. Others: each width 4 times."""


def zero_bytes(zero: Num, d: Num, weight: Num = 2.0, grad: Num = 2.0, state: Num = 12.0) -> tuple[Num, Num, Num]:
    """(weights, gradients, optimiser) bytes a parameter on one of d data-parallel ranks under ZeRO stage 0 to 3.

    Stage 1 shards the optimiser, 2 the gradients too, 3 the weights too: 16, 4 + 12/d, 2 + 14/d, 16/d in all with
    16-bit weights and gradients. Source: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054, figure 1."""
    stage = np.asarray(zero)
    return weight / pick(stage >= 3, d, 1), grad / pick(stage >= 2, d, 1), state / pick(stage >= 1, d, 1)


def state_bytes(t: Training, weight: Num = 2.0) -> Num:
    """Bytes of optimiser a trained parameter: moments and the fp32 master copy of weights that are narrower.

    >>> [state_bytes(t) for t in (Training(), Training(optimizer="sgd"), Training(remainders=True))]
    [12.0, 4.0, 10.0]
    >>> state_bytes(Training(), 4.0)
    8.0
    """
    return t.update.state + (2.0 if t.remainders else 4.0) * t.master * (weight < 4)


@dataclass(frozen=True)
class Layer:
    """Bytes of one layer and micro-batch: `kept` from forward to backward, `at_work` without recomputation and with the
    gradients that stand beside it in its backward pass, of a half whose later half is gone, `whole` without these."""

    kept: Num
    at_work: Num
    whole: Num = 0.0  # of a single layer


@dataclass(frozen=True)
class Setup(Context):
    """What the memory of a stage depends on: the forward pass of a micro-batch, and what an engine makes of it. Bytes
    are of one value or parameter."""

    training: Training = Training()  # noqa: RUF009  frozen, so one for all is right
    micro_batches: Num = 1
    grad_bytes: Num = 2.0
    adapted: Num = 0.0  # parameters of low-rank adapters on one layer of a rank
    inputs: Num = 0.0  # values a token that these read
    room: Room = Room()  # noqa: RUF009
    weight: Num = 2.0  # bytes of a trained one
    fleeting: Num = 0.0  # 1 where gradients do not stand
    doubled: Num = 0.0  # 1 where they stand beside buckets of them, at the end of a step
    residual: Num = 2.0  # bytes between layers, and in them over a readied base
    copied: Num = 0.0  # bytes that the update makes anew
    unsynced: Num = 0.0  # bytes of a gradient that waits whole for the last micro-batch
    lone: bool = False  # ZeRO 3 shards no weights beside the master copy, and tables stay gathered (FSDP's root)

    @cached_property
    def layer(self) -> Layer:
        """Mean bytes kept a layer over all blocks, and with the most that any one holds at work beside its own."""
        each = [(block.count, layer_activations(self, block)) for block in self.model.blocks]
        kept, layers, m = sum(n * layer.kept for n, layer in each), self.model.layers, self.mapping
        at_work = kept / layers + reduce(larger, (layer.at_work - layer.kept for _, layer in each))
        if m.recompute == "block":  # N layers of each stage are recomputed, the others keep everything
            share = m.recomputed(layers)
            kept = share * kept + (1 - share) * sum(n * layer.whole for n, layer in each)
        return Layer(kept / layers, at_work)

    @cached_property
    def widths(self) -> tuple[Num, Num]:
        """(bytes a value of the inputs of products, of everything else); 4-bit products return what they got, and
        those whose other copy is cast in the backward pass keep what that reads."""
        wide = larger(self.quant.half_bytes, self.residual)
        if self.kernels.cast_apart and self.quant.by_32:
            return wide, wide
        return smaller(self.quant.act_bytes, self.quant.half_bytes) * wide / self.quant.half_bytes, wide

    @property
    def stream(self) -> Num:
        """Bytes a value between layers."""
        return larger(self.widths[1], 4.0 * self.autocast)

    def norm(self, width: Num) -> Num:
        """Bytes a value that a norm keeps of an input of so many: that or, where it is a chain of plain kernels, fp32
        of it (a copy, unless it is), and of a trained one the quotient that its weights multiply.

        Source: transformers, models/llama, LlamaRMSNorm; Llama's own and torchtune's are alike."""
        return 4.0 + width * (not self.training.adapters) if plain_norms(self.model, self.kernels) else width


class Inside(NamedTuple):
    """Bytes that half a layer keeps beside its input."""

    held: Num = 0.0
    scores: Num = 0.0  # of unfused attention, not in `held`
    again: Dict[str, Num] = MappingProxyType({})  # by module (MODULES): of `held`, not kept where it runs again
    ops: Num = 0.0  # kept where single products are ("ops")
    gradients: Num = 0.0  # beside all of these in its backward pass: of the first products' outputs, or gathered keys


def inside_mixer(c: Setup, mixer: Mixer | None) -> Inside:
    """Activations that a mixer keeps: inputs of its products, queries, keys, values and outputs; the softmax and its
    dropout if attention is unfused, else one fp32 number a token and head.

    Backward, PyTorch's context groups hold keys and values gathered whole, and gradients as the kernel makes them and
    in fp32: of queries once, of keys and values as they came, joined and on their way (torch/distributed/tensor/
    experimental/_attention.py, _templated_ring_attention_backward; docs/decisions/0463)."""
    (_, b), drop, tokens, ways = c.widths, 1.0 * c.dropout, c.tokens, c.mapping.cp
    if isinstance(mixer, Attention):
        wide = (mixer.heads + mixer.kv_heads) * (mixer.head_dim + mixer.v_dim)
        ops = tokens * (wide - mixer.kv_heads * mixer.head_dim) * b  # all but the keys
        wide = wide + mixer.qk_norm * c.norm(b) / b * (mixer.heads + mixer.kv_heads) * mixer.head_dim
        wide = wide + 2 * mixer.gate * mixer.heads * mixer.v_dim  # the gate, and the output that it closes
        keys, queries = mixer.kv_heads * (mixer.head_dim + mixer.v_dim), mixer.heads * mixer.head_dim
        gathered = tokens * (keys * ((ways + 1) * b + 3 * 4.0) + queries * (b + 4.0)) * c.kernels.torch_context
        if c.kernels.flash:
            wide, ops, back = wide * b + mixer.heads * 4.0, ops + tokens * mixer.heads * 4.0, gathered * (ways > 1)
            return Inside(tokens * wide, ops=ops, gradients=back * (not c.kernels.ring))
        score = b + drop * (b + 1) + 4.0 * c.wide_softmax * (b < 4)
        return Inside(tokens * wide * b, tokens * mixer.heads * (c.keys / c.sequences) * score, ops=ops)
    if isinstance(mixer, MLA):
        qk, latent = mixer.nope_dim + mixer.rope_dim, mixer.q_rank + mixer.kv_rank + mixer.rope_dim
        wide = 2 * latent + mixer.heads * (2 * qk + 2 * mixer.value_dim + 4.0 / b)
        expanded = tokens * mixer.heads * (2 * qk + mixer.value_dim) * b
        return Inside(tokens * wide * b, again={"mla_up_proj": expanded}, ops=0.5 * tokens * wide * b)
    if isinstance(mixer, LinearAttention):
        values, keys, repeated, chunks = SCAN_KEPT.get(mixer.kind, (4, 4, 0, 0))
        of_heads = mixer.heads * (values * mixer.head_dim + repeated * mixer.state + chunks * CHUNK)
        held = tokens * (of_heads + keys * mixer.key_heads * mixer.state) * b
        return Inside(held, ops=0.5 * held)
    return Inside()


def busiest(f: MoE, m: Mapping, skew: Num, t: Training, tokens: Num) -> Num:
    """Tokens of the busiest expert rank over the mean (1 of a single one): what was asked, or, asked 0, what a router
    that nothing balances sends it, of `tokens` on each rank (`kernels.moe.imbalance`; docs/decisions/0031, 0168)."""
    drawn = imbalance(tokens * m.expert_dp, f.top_k, f.experts, m.ep, popularity(f.experts, f.top_k, skew))
    return pick(t.imbalance * (m.ep > 1) > 0, t.imbalance, smaller(drawn, smaller(m.ep, f.experts / f.top_k)))


def inside_ffn(c: Setup, ffn: FeedForward | None) -> Inside:
    """What a feed-forward keeps: outputs of its first products, inputs of the last, experts' by pair, and scores."""
    if ffn is None:
        return Inside()
    m, rows, (narrow, b) = c.mapping, c.residual_tokens, c.widths
    dense, _, width = local_ffn(ffn, m)
    kept_gate = 1.0 * (ffn.gated and not c.kernels.fused)  # the gate's activation beside its input, each one kernel
    grad = b * (1.0 + ffn.gated) * (not c.training.adapters)  # bytes of a value's gradients at that time
    value = (1.0 + ffn.gated + kept_gate) * b + narrow * (1.0 + c.kernels.copied_inputs)
    # the tanh, 1 + it and x / 2; under autocast the first two, and x for its power, in fp32
    value = value + (3.0 * b + 6.0 * c.autocast) * plain_gelu(ffn, c.kernels)
    wide, first = c.tokens * dense * value, c.tokens * dense * b + rows * c.model.hidden * b * (not c.kernels.fused)
    if not isinstance(ffn, MoE):
        return Inside(wide, again={"mlp": wide}, ops=first, gradients=c.tokens * dense * grad)
    pairs = c.tokens * ffn.top_k * m.expert_dp / m.ep * busiest(ffn, m, c.kernels.skew, c.training, c.tokens)
    inner = ffn.inner(c.model.hidden)  # and scores, and what the projection out of the latent reads
    around = inner * (narrow + b * (not c.kernels.weighed_inside))  # what they read and, to weigh it, what they return
    routed = rows * (ffn.experts * 8.0 + ffn.latent * narrow) + pairs * (around + width * value) * c.room.stash
    # torchtitan stores what both exchanges bring, of DeepEP's each token once a rank and once, unless they run again
    brought = (occupied(m.ep, ffn.top_k) + 1.0) / ffn.top_k if c.kernels.dedup else 2.0
    sent = pick(m.ep > 1, brought, 0.0) * pairs * inner * b * ("moe" not in m.recompute_modules)
    again = {"moe_act": pairs * width * narrow, "moe": wide + routed}
    gradients = (c.tokens * dense + pairs * width) * grad
    return Inside(wide + routed, again=again, ops=first + sent, gradients=gradients)


def layer_activations(c: Setup, block: Block) -> Layer:
    """Activations of one layer and micro-batch: inputs of products, norms and activations, masks of one byte, and the
    softmax with its dropout where attention is unfused; of a GPT layer exactly Korthikanti's (tests: `korthikanti`)."""
    m, h, rows, (narrow, b) = c.mapping, c.model.hidden, c.residual_tokens, c.widths
    mixer, ffn = inside_mixer(c, local_mixer(block.mixer, m.tp)), inside_ffn(c, block.ffn)
    halves = (block.mixer is not None) + (block.ffn is not None)
    more = sum(read_again(half, c.kernels) for half in (block.mixer, block.ffn))
    # under autocast each product casts what it reads anew, but in compiled layers, which keep 16 bits of both halves
    copies, stream = (0.0, b) if c.kernels.fused else (c.autocast * more, c.stream)
    normed = (halves + copies) * (c.tokens if c.kernels.keeps_gathered else rows) * h * narrow
    norms = block.norms * rows * h * c.norm(stream)
    held = norms + normed * (1.0 + c.kernels.copied_inputs) + halves * rows * h * c.dropout + mixer.held + ffn.held
    whole = held + mixer.scores
    modules = {*m.recompute_modules} - ({"moe_act"} if "moe" in m.recompute_modules else set())
    again = {"layernorm": normed, **mixer.again, **ffn.again}
    dropped = sum(again.get(module, 0.0) for module in modules)
    checkpoint, of_adapters = rows * h * c.stream, c.tokens * c.inputs * ADAPTER_KEPT
    back = larger(ffn.gradients, mixer.gradients - ffn.held)
    if m.recompute == "full":
        every = larger(m.recompute_layers, 1)
        return Layer(checkpoint / every, whole * every + back)
    kept: dict[str, Num] = {
        "none": whole - dropped + of_adapters, "selective": held - dropped + of_adapters, "block": checkpoint,
        # attention and every other product in turn: queries, values, gates, and the last unless a compiler drops it
        "ops": checkpoint + mixer.ops + ffn.ops,
    }  # fmt: skip
    return Layer(kept[m.recompute], whole + back, whole)


def stage_layers(layers: Num, pp: Num) -> tuple[Num, Num]:
    """Layers of the fuller end stage and of the fullest inner stage. Where pp does not divide the layers, the end
    stages have fewer, as long as the inner ones can hold the rest."""
    fewer, most = floor(layers / pp), ceil(layers / pp)
    held = pick(pp > 1, (pp - 2) * most + 2 * fewer, fewer)
    return pick(held < layers, most, fewer), most


@kept
def layer_params(model: Model, m: Mapping) -> tuple[Num, Num]:
    """Parameters of a mean layer on one rank: of its experts, and all others."""
    parts = layer_shard(model, m)
    return parts.pop("experts"), sum(parts.values())


def end_params(model: Model, m: Mapping) -> tuple[Num, Num]:
    """(first, last): embedding with positions, and head with final norm; with one stage a tied table counts once."""
    first, last = end_tables(model, m)
    return first + extra_share(model, m), last + norm_params(model)


def expert_replicas(m: Mapping) -> Num:
    """Ranks that hold the same experts, over which gradients are reduced: devices of a stage / (ep x expert tp)."""
    return larger(m.tp * m.cp * m.dp / (m.ep * m.expert_tp), 1)


def shard_ranks(m: Mapping) -> Num:
    """Ranks that ZeRO shards over: the data and context ranks, or the given group of hybrid sharding."""
    return pick(m.fsdp_group > 0, smaller(m.fsdp_group, m.dp * m.cp), m.dp * m.cp)


def model_states(c: Setup, layers: Num, ends: Num) -> dict[str, Num]:
    """Bytes of weights, gradients and optimiser of `layers` layers and `ends` parameters of embedding or head.

    Two layers are gathered at once, and FSDP holds a layer's whole gradients beside them (PyTorch, BackwardPrefetch:
    BACKWARD_PRE). Gradients of an offloaded optimiser may stand in host memory (ZeRO-Offload, arXiv 2101.06840)."""
    t, m = c.training, c.mapping
    d, e = shard_ranks(m), expert_replicas(m)
    each_experts, each = layer_params(c.model, m)
    dense, experts = layers * each + ends, layers * each_experts
    share = t.trainable_layers * (not t.adapters)
    trained = layers * each * share + ends * (t.embeddings and not t.adapters) + layers * c.adapted
    base = t.base_bits / 8 * (1 + SCALE_BITS / 4 * (t.base_bits < 8))  # a frozen one, with scales
    weight = base if t.adapters else c.weight
    grad, half = c.grad_bytes, c.quant.half_bytes
    states = state_bytes(t, half)
    w, g, o = zero_bytes(m.zero, d, weight, grad, states)
    we, ge, oe = zero_bytes(m.zero, e, weight, grad, states)
    if not is_plain(c.room.live, 0):  # where buckets bound what is gathered (DeepSpeed), hooks pass the gradients of
        # a single micro-batch on as they are made, at stage 1, too
        passed = c.room.in_buckets & (np.asarray(c.micro_batches) <= 1) & (m.zero == 1)
        g, ge = pick(passed, g / d, g), pick(passed, ge / e, ge)
    several, some = 1.0 * (d > 1), 1.0 * (e > 1)  # of one rank there is nothing to gather
    # a pipeline does not gather again: a stage keeps weights whole, and gradients, beside the shards they end up in
    kept, alone = (m.zero >= 3) & (m.pp > 1), c.lone * t.master * (m.zero >= 3) * (not t.adapters)
    g, ge = pick(kept, grad + several * g, g), pick(kept, grad + some * ge, ge)
    if not is_plain(c.unsynced, 0):
        waits = (np.asarray(c.micro_batches) > 1) & (m.zero >= 2) & (m.pp == 1) & (np.asarray(c.unsynced) > 0)
        g, ge = pick(waits & (several > 0), c.unsynced, g), pick(waits & (some > 0), c.unsynced, ge)
    extra = (c.room.grad_extra_bf16 if c.quant.half == "bf16" else 0.0) * (trained + experts * share)
    wide_ends = ends * (zero_bytes(m.zero, d, larger(half, c.residual))[0] - w)  # embedding and head: 16 bits or fp32
    weights = dense * w + wide_ends + experts * we + layers * c.adapted * 2.0
    weights = weights - alone * (several * trained * w + some * experts * share * we)
    sets = 2.0 + c.lone * (not t.adapters)  # of a layer
    root = several * c.lone * (c.room.root or c.model.tied) * half * ends  # embedding and head, gathered throughout
    one = several * sets * weight * each + root + some * sets * weight * each_experts
    own, own_experts = (zero_bytes(m.zero, ranks, state=1.0)[2] for ranks in (d, e))  # share of an update on a rank
    anew = trained * own + experts * share * own_experts
    whole = several * (weight * dense + ends * (half - weight)) + some * weight * experts
    kept_here, later = 1.0 - t.offload_optimizer, 1.0 - t.in_backward
    live = several * weight * smaller(c.room.live, dense + experts)
    held = c.room.holds == "ahead" or (c.room.holds == "saved" and m.recompute not in ("full", "block"))
    gathered = pick(kept, whole, (whole if held else larger(one, live)) * (m.zero >= 3))
    brought = smaller(2.0 * weight * (each + each_experts), weights) * (1.0 - several * (m.zero >= 3))  # from the host
    return {
        "weights": weights - t.offload_params * (weights - brought),
        "gradients": (trained * g + experts * share * ge) * later * (kept_here if c.room.grads_away else 1.0) + extra,
        "optimizer": (trained * o + experts * share * oe) * kept_here,
        "buffers": gathered,
        "tables": root * (m.zero >= 2) * (t.embeddings and not t.adapters),
        "update": pick(c.room.in_buckets & (m.zero >= 3), smaller(anew, c.room.live), anew) * c.copied * later,
    }


def stage(c: Setup, layers: Num, ends: Num, index: Num, first: Num, last: Num) -> dict[str, Num]:
    """Bytes of the stage at `index` with so many layers; first, last: 1 where it holds the embedding or the head."""
    m, model, rows = c.mapping, c.model, c.residual_tokens
    parts, layer = model_states(c, layers, ends), c.layer
    flight = in_flight(m.schedule, m.pp, c.micro_batches / c.training.flushes, m.vp, index)
    tables = parts.pop("tables")  # gradients of embedding and head that stay whole, where the logits were
    parts["logits"] = larger(last * c.tokens * ceil(model.vocab / m.tp) * c.room.logit_bytes, tables)
    reused = 1.0 * (np.asarray(c.room.fragmentation) <= 1)  # a layer goes back when the loss has been worked through
    working = larger(layer.at_work - layer.kept - reused * parts["logits"], 0.0)
    inputs = 2 * (last * rows + c.tokens) * model.hidden * c.stream  # of the loss; a layer's gradients, unreduced
    away = c.training.offload_activations  # a layer at work has its own at hand
    each = layers * (1 - away) * layer.kept + first * rows * model.hidden * c.dropout  # micro-batch; masks of dropout
    parts["activations"] = flight * each + (away * layer.kept + working + inputs)
    grads, update = parts["gradients"], parts.pop("update") * (1 - c.training.offload_optimizer)
    if not (is_plain(c.fleeting, 0) and is_plain(c.copied, 0) and is_plain(c.doubled, 0)):
        # gradients take the room of activations that are used up, and so do copies of an update (not one buffer)
        held = parts["activations"] + parts["logits"] + parts["buffers"] * c.lone
        standing = grads * (1.0 - c.fleeting + c.doubled * (np.asarray(c.micro_batches) > 1))
        last_layer = layer.at_work + parts["buffers"] * c.lone + tables - held  # as the last gradients are made
        updating = update - held * pick(c.room.in_buckets, reused, 1.0)
        parts["gradients"] = larger(standing, grads * (1.0 + c.doubled) + larger(updating, last_layer))
    return parts


def stages(c: Setup) -> list[dict[str, Num]]:
    """The stages that may need most memory: the first, the second (more layers if uneven) and the last."""
    m, layers = c.mapping, c.model.layers
    ends, between = stage_layers(layers, m.pp)
    embedding, head = end_params(c.model, m)
    one = pick(m.pp == 1, 1.0, 0.0)
    folded = (1.0 - one) * (m.schedule in V_SHAPED)  # the head stands beside the embedding
    candidates = [
        stage(c, ends, embedding + (one + folded) * head, 0, 1.0, one + folded),
        stage(c, ends, (1.0 - folded) * head + one * embedding, m.pp - 1, one, 1.0 - folded),
    ]
    if not (isinstance(m.pp, int | float) and m.pp <= 2):
        candidates.append(stage(c, pick(m.pp > 2, between, 0.0), 0.0, smaller(1, m.pp - 1), 0.0, 0.0))
    return candidates


def most(candidates: Sequence[dict[str, Num]]) -> Num:
    """Bytes of the stage that needs most."""
    return reduce(larger, [add_up(c.values()) for c in candidates])


def fullest_stage(candidates: Sequence[dict[str, Num]]) -> dict[str, Num]:
    """Bytes by part of the stage that needs most."""
    highest, parts = most(candidates), dict(candidates[0])
    for other in candidates[1:]:
        here = add_up(other.values()) == highest
        parts = {name: pick(here, other[name], value) for name, value in parts.items()}
    return parts
