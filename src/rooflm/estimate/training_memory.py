"""Bytes on one device in training: weights, gradients, optimiser, activations, logits, buffers; fullest stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLA, Attention, Block, LinearAttention, Model, MoE, norm_params
from rooflm.catalogue.quant import Quant
from rooflm.estimate.memory import block_shard, extra_share, local_ffn, local_mixer
from rooflm.estimate.schedule import in_flight
from rooflm.estimate.step import add_up
from rooflm.scenario.mapping import MODULES, Mapping
from rooflm.scenario.training import Training
from rooflm.units import Num, ceil, floor, larger, pick, smaller

STATE_BYTES = {
    "adam": 8.0,
    "adam-bf16": 4.0,
    "adam8bit": 2.0,
    "adafactor": 0.0,
    "sgd": 0.0,
    "sgd-momentum": 4.0,
    "muon": 4.0,
}
"""Bytes of optimiser state a parameter beside the master copy: two fp32 moments (Adam), two of
16 bits (DeepSeek-V3, arXiv 2412.19437; Megatron-Core's precision-aware optimizer), two of 8 bits (Dettmers et al.,
arXiv 2110.02861), row and column sums only (Adafactor), one fp32 momentum (SGD with momentum, Muon)."""


def zero_bytes(zero: Num, d: Num, weight: Num = 2.0, grad: Num = 2.0, state: Num = 12.0) -> tuple[Num, Num, Num]:
    """(weights, gradients, optimiser) bytes a parameter on one of d data-parallel ranks under ZeRO stage 0 to 3.

    Stage 1 shards the optimiser, 2 the gradients too, 3 the weights too: 16, 4 + 12/d, 2 + 14/d, 16/d in all with
    16-bit weights and gradients. Source: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054, figure 1.

    >>> [float(sum(zero_bytes(z, 4))) for z in (0, 1, 2, 3)]
    [16.0, 7.0, 5.5, 4.0]
    """
    stage = np.asarray(zero)
    return (
        weight / pick(stage >= 3, d, 1),
        grad / pick(stage >= 2, d, 1),
        state / pick(stage >= 1, d, 1),
    )


def state_bytes(t: Training) -> Num:
    """Bytes of optimiser a trained parameter: moments and the fp32 master copy.

    >>> [state_bytes(t) for t in (Training(), Training(optimizer="sgd"), Training(remainders=True))]
    [12.0, 4.0, 10.0]
    """
    return STATE_BYTES[t.optimizer] + (2.0 if t.remainders else 4.0) * t.master


@dataclass(frozen=True)
class Layer:
    """Bytes of one layer and micro-batch: `kept` from forward to backward, `whole` without recomputation."""

    kept: Num
    whole: Num


def layer_activations(
    model: Model, block: Block, m: Mapping, kernels: Kernels, quant: Quant, options: Training, seq: Num, span: Num
) -> Layer:
    """Activations of one layer for a micro-batch of m.micro_batch sequences of `seq` tokens; scores span `span` keys.

    Kept are the inputs of products, norms and activations, masks of one byte, and the softmax with its dropout where
    attention is unfused. For a GPT layer with dropout these are exactly Korthikanti's formulas (see `korthikanti`).
    """
    h, tokens = model.hidden, m.micro_batch * seq / m.cp
    rows = tokens / m.tp if m.sp else tokens
    inputs = tokens if kernels.keeps_gathered else rows
    b, drop = quant.half_bytes, 1.0 * options.dropout
    narrow = smaller(quant.act_bytes, b)
    mixer = local_mixer(block.mixer, m.tp)
    held: Num = block.norms * rows * h * b * kernels.norm_kept
    scores: Num = 0.0
    again = dict.fromkeys(MODULES, 0.0 * rows)  # bytes that modules need not keep
    if isinstance(mixer, Attention):
        wide = mixer.heads * (mixer.head_dim + mixer.v_dim) + mixer.kv_heads * (mixer.head_dim + mixer.v_dim)
        held = held + (inputs * narrow + rows * drop) * h + tokens * wide * b
        again["layernorm"] = again["layernorm"] + inputs * h * narrow
        if kernels.flash:
            held = held + tokens * mixer.heads * 4.0
        else:
            scores = tokens * mixer.heads * span * (b + drop * (b + 1))
    elif isinstance(mixer, MLA):
        qk = mixer.nope_dim + mixer.rope_dim
        latent = mixer.q_rank + mixer.kv_rank + mixer.rope_dim
        wide = 2 * latent + mixer.heads * (2 * qk + 2 * mixer.value_dim)
        held = held + inputs * h * narrow + tokens * wide * b + tokens * mixer.heads * 4.0
        again["layernorm"] = again["layernorm"] + inputs * h * narrow
        again["mla_up_proj"] = tokens * mixer.heads * (2 * qk + mixer.value_dim) * b
    elif isinstance(mixer, LinearAttention):
        inner, keys = mixer.heads * mixer.head_dim, mixer.key_heads * mixer.state
        held = held + inputs * h * narrow + tokens * (4 * inner + 4 * keys) * b
        again["layernorm"] = again["layernorm"] + inputs * h * narrow
    dense, _experts, width = local_ffn(block.ffn, m)
    if block.ffn is not None:
        mats = 3.0 if block.ffn.gated else 2.0
        apart = 1.0 * (block.ffn.gated and not kernels.fused and m.recompute != "ops")
        mats = mats + apart  # the gate's activation is a tensor of its own beside its input: one kernel each
        wide = tokens * dense * ((mats - 1) * b + narrow)
        held = held + (inputs * narrow + rows * drop) * h + wide
        again["layernorm"] = again["layernorm"] + inputs * h * narrow
        if isinstance(block.ffn, MoE):
            pairs = tokens * block.ffn.top_k * m.expert_dp / m.ep * options.imbalance
            inner = block.ffn.inner(h)
            routed = rows * block.ffn.experts * 8.0 + pairs * (inner * (narrow + b) + width * ((mats - 1) * b + narrow))
            routed = routed + rows * block.ffn.latent * narrow  # what the projection out of the latent reads
            held = held + routed
            again["moe_act"] = pairs * width * narrow
            again["moe"] = routed + wide
        else:
            again["mlp"] = wide
    whole = held + scores
    checkpoint = rows * h * b
    dropped = sum(again[module] for module in m.recompute_modules)
    if "moe" in m.recompute_modules and "moe_act" in m.recompute_modules:
        dropped = dropped - again["moe_act"]
    if m.recompute == "selective":
        return Layer(held - dropped, whole)
    if m.recompute == "ops":
        # inputs of the layer's norms, attention's output, half of the products' outputs
        return Layer(block.norms * rows * h * b + 0.5 * (held - 2 * block.norms * rows * h * b), whole)
    if m.recompute == "full":
        every = larger(m.recompute_layers, 1)
        return Layer(checkpoint / every, whole * every)
    return Layer(checkpoint if m.recompute == "block" else whole - dropped, whole)


def fullest_layer(
    model: Model, m: Mapping, kernels: Kernels, quant: Quant, options: Training, seq: Num, span: Num
) -> Layer:  # fmt: skip
    """Mean bytes kept a layer over all blocks, and the most that any one layer holds at work."""
    kept: Num = 0.0
    whole: Num = 0.0
    mean: Num = 0.0
    for block in model.blocks:
        layer = layer_activations(model, block, m, kernels, quant, options, seq, span)
        kept = kept + block.count * layer.kept
        mean = mean + block.count * layer.whole
        whole = larger(whole, layer.whole)
    layers = model.layers
    if m.recompute == "block":
        # N layers of each stage are recomputed, the others keep everything
        share = smaller(m.recompute_layers * m.pp / layers, 1.0)
        kept = share * kept + (1 - share) * mean
    return Layer(kept / layers, whole)


def stage_layers(layers: Num, pp: Num) -> tuple[Num, Num]:
    """Layers of the fuller end stage and of the fullest stage between them: where pp does not divide, both ends have
    fewer, as far as the stages between them hold the rest.

    >>> [float(x) for x in stage_layers(126, 16)], [float(x) for x in stage_layers(96, 8)]
    ([7.0, 8.0], [12.0, 12.0])
    >>> [float(x) for x in stage_layers(47, 2)]
    [24.0, 24.0]
    """
    fewer, most = floor(layers / pp), ceil(layers / pp)
    held = pick(pp > 1, (pp - 2) * most + 2 * fewer, fewer)
    return pick(held < layers, most, fewer), most


def layer_params(model: Model, m: Mapping) -> dict[str, Num]:
    """Parameters of a mean layer on one rank: {"dense", "experts", "plain"}."""
    out: dict[str, Num] = {"dense": 0.0, "experts": 0.0, "plain": 0.0}
    for block in model.blocks:
        for part, params in block_shard(model, block, m).items():
            kind = part if part in out else "dense"
            out[kind] = out[kind] + block.count * params / model.layers
    return out


def end_params(model: Model, m: Mapping) -> tuple[Num, Num]:
    """(first, last): embedding with positions, and head with final norm; with one stage a tied table counts once."""
    rows = ceil(model.vocab / m.tp)
    table = rows * model.hidden
    one = m.pp == 1
    first = table + model.positions * model.hidden + extra_share(model, m)
    last = table * pick(one & model.tied, 0.0, 1.0) + model.head_bias * rows + norm_params(model)
    return first, last


def expert_replicas(m: Mapping) -> Num:
    """Ranks that hold the same experts, over which their gradients are reduced: devices of a stage / (ep x expert tp).

    >>> float(expert_replicas(Mapping(tp=2, dp=32, ep=8)))
    8.0
    """
    return larger(m.tp * m.cp * m.dp / (m.ep * m.expert_tp), 1)


def shard_ranks(m: Mapping) -> Num:
    """Ranks that ZeRO shards over: the data and context ranks, or the given group of hybrid sharding."""
    return pick(m.fsdp_group > 0, smaller(m.fsdp_group, m.dp * m.cp), m.dp * m.cp)


@dataclass(frozen=True)
class Stage:
    """One stage's bytes by part."""

    parts: dict[str, Num]

    @cached_property
    def total(self) -> Num:
        """Sum of the parts."""
        return add_up(self.parts.values())


class Setup(NamedTuple):
    """What the memory of a stage depends on; `adapters`: parameters of low-rank adapters on one layer of a rank."""

    model: Model
    mapping: Mapping
    kernels: Kernels
    quant: Quant
    options: Training
    seq: Num
    span: Num
    micro_batches: Num
    grad_bytes: Num
    adapters: Num = 0.0
    logit_bytes: Num = 6.0
    grad_extra: Num = 0.0
    regather: bool = True


def model_states(c: Setup, layers: Num, ends: Num) -> dict[str, Num]:
    """Bytes of weights, gradients and optimiser of `layers` layers and `ends` parameters of embedding or head."""
    t, m = c.options, c.mapping
    d, e = shard_ranks(m), expert_replicas(m)
    per = layer_params(c.model, m)
    dense, experts = layers * (per["dense"] + per["plain"]) + ends, layers * per["experts"]
    share = t.trainable_layers * (not t.adapters)
    end_share = 1.0 * (t.embeddings and not t.adapters)
    trained = layers * (per["dense"] + per["plain"]) * share + ends * end_share + layers * c.adapters
    frozen = t.base_bits / 8 * (1 + 0.127 / 4 * (t.base_bits < 8)) if t.adapters else 2.0
    own = c.quant.half_bytes + (1.0 if t.fp8_weights else 0.0)
    weight = own if not t.adapters else frozen
    grad = c.grad_bytes
    w, g, o = zero_bytes(m.zero, d, weight, grad, state_bytes(t))
    we, ge, oe = zero_bytes(m.zero, e, weight, grad, state_bytes(t))
    # under a pipeline that does not gather again, a stage keeps its weights whole, and its gradients until the end
    kept = (m.zero >= 3) & (m.pp > 1) & (not c.regather)
    g, ge = pick(kept, grad, g), pick(kept, grad, ge)
    extra = c.grad_extra * (trained + experts * share)
    apart = ends * (zero_bytes(m.zero, d, own)[0] - w)  # quantised bases keep the embedding and the head in 16 bits
    weights = dense * w + apart + experts * we + layers * c.adapters * 2.0
    one = 2.0 * weight * (per["dense"] + per["plain"] + per["experts"])
    gathered = pick(kept, weight * (dense + experts), pick(m.zero >= 3, one, 0.0))
    return {
        "weights": weights * (1 - t.offload_params),
        "gradients": trained * g + experts * share * ge + extra,
        "optimizer": (trained * o + experts * share * oe) * (1 - t.offload_optimizer),
        "buffers": gathered + 0.0,
    }


def stage(c: Setup, layers: Num, ends: Num, index: Num, first: Num, last: Num) -> Stage:
    """Bytes of the stage at `index` with so many layers; first, last: 1 where it holds the embedding or the head."""
    m, model, b = c.mapping, c.model, c.quant.half_bytes
    parts = model_states(c, layers, ends)
    layer = fullest_layer(model, m, c.kernels, c.quant, c.options, c.seq, c.span)
    flight = in_flight(m.schedule, m.pp, c.micro_batches / c.options.flushes, m.vp, index)
    tokens = m.micro_batch * c.seq / m.cp
    rows = tokens / m.tp if m.sp else tokens
    working = 0.0 if m.recompute in ("none", "selective", "ops") else larger(layer.whole - layer.kept, 0.0)
    masks = first * flight * rows * model.hidden * c.options.dropout
    inputs = 2 * (last * rows + tokens) * model.hidden * b  # of the loss; and a layer's gradients, not yet reduced
    away = c.options.offload_activations  # a layer at work has its own at hand
    parts["activations"] = (flight * layers * (1 - away) + away) * layer.kept + working + masks + inputs
    columns = ceil(model.vocab / m.tp)
    parts["logits"] = last * tokens * columns * c.logit_bytes
    return Stage(parts)


def stages(c: Setup) -> list[Stage]:
    """The stages of which one needs most: the first, the last and the second (more layers where they do not divide)."""
    m, layers = c.mapping, c.model.layers
    ends, between = stage_layers(layers, m.pp)
    embedding, head = end_params(c.model, m)
    one = pick(m.pp == 1, 1.0, 0.0)
    candidates = [
        stage(c, ends, embedding + one * head, 0, 1.0, one),
        stage(c, ends, head + one * embedding, m.pp - 1, one, 1.0),
    ]
    if not (isinstance(m.pp, int | float) and m.pp <= 2):
        middle = pick(m.pp > 2, between, 0.0)
        candidates.append(stage(c, middle, 0.0, smaller(1, m.pp - 1), 0.0, 0.0))
    return candidates


def most(candidates: Sequence[Stage]) -> Num:
    """Bytes of the stage that needs most."""
    return reduce(larger, [c.total for c in candidates])


def fullest_stage(candidates: Sequence[Stage]) -> dict[str, Num]:
    """Bytes by part of the stage that needs most."""
    highest, parts = most(candidates), dict(candidates[0].parts)
    for other in candidates[1:]:
        here = other.total == highest
        parts = {name: pick(here, other.parts[name], value) for name, value in parts.items()}
    return parts
