"""train_scenario(scenario) -> TrainingEstimate: one optimiser step and the whole run: time, memory, communication.

The forward pass is the graph of a prefill of one micro-batch; backward and recomputation are rules on its ops; all are
timed together. A step is m micro-batches on the slowest stage, the bubble, and what communication cannot hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from rooflm import backward as rules
from rooflm import graph, schedule
from rooflm import training_memory as tm
from rooflm.estimate import by_part, dynamic_energy, launches
from rooflm.graph import Context, Pass, Prefill, Style
from rooflm.inference import Limits, Memory
from rooflm.job import Job, job
from rooflm.mapping import Mapping
from rooflm.ops import Comm, Op, stream
from rooflm.quant import Quant
from rooflm.roofline import Timed, comm_volume, rates, time_nodes
from rooflm.scenario import Scenario
from rooflm.units import Num

Nodes = list[Op | Comm]
PLACES = ("embedding", "layers", "head")
PHASES = ("forward", "backward", "recompute")


@dataclass(frozen=True)
class TrainingEstimate:
    """The answer; SI units, arrays with one dimension an axis.

    step_time: one optimiser step (s); parts: name -> s, summing to it; detail: phase -> (part of the model -> s) of the
    device seconds of one step. mfu, hfu: model and executed FLOP/s over the peak of the products' data type, with
    `convention` attention counted ("full": all pairs of tokens, as most published figures; mfu_causal: half of them).
    flops_time: seconds of a step if only FLOPs took time. bubble_fraction: idle over busy time of the schedule.
    comm_bytes: sent by one GPU a step, by collective. layer_forward, layer_backward: one layer and micro-batch,
    recomputation included. max_micro_batch: the largest that fits. job: the whole run.
    """

    step_time: Num
    tokens_per_s_per_gpu: Num
    model_tflops_per_gpu: Num
    mfu: Num
    mfu_causal: Num
    hfu: Num
    memory: Memory
    fits: Num
    reason: Num
    max_micro_batch: Num
    micro_batches: Num
    comm_bytes: dict[str, Num]
    parts: dict[str, Num]
    detail: dict[str, dict[str, Num]] = field(repr=False)
    bubble_fraction: Num
    flops_time: Num
    layer_forward: Num
    layer_backward: Num
    job: Job
    energy: Num
    power: Num
    gpus: Num
    scenario: Scenario
    timed: dict[str, tuple[Timed, ...]] = field(repr=False)
    convention: str = "full"
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> Num:
        """Optimiser steps of the run (1 where no tokens were given)."""
        return self.job.steps

    @property
    def gpu_hours(self) -> Num:
        """GPU-hours of the run, undisturbed."""
        return self.job.gpu_hours

    @property
    def days(self) -> Num:
        """Days of the run, undisturbed."""
        return self.job.days

    @property
    def cost(self) -> Num:
        """USD of the run, undisturbed."""
        return self.job.cost


def style(s: Scenario) -> Style:
    """How the engine builds its training graph."""
    e = s.engine
    return Style(
        fused=e.fused, flash=e.flash, vocab_parallel=True, merged=e.merged, training=True, sequence_parallel=s.mapping.sp,
        dropout=s.training.dropout, ring=e.ring, dedup=e.dedup,
    )  # fmt: skip


def document(s: Scenario) -> Num:
    """Length of the documents that attention sees: the sequence, or the token-weighted mean length where packed.

    A token attends within its own document, so scores grow as sum(l^2) / sum(l) instead of the sequence length.
    """
    t, seq = s.training, s.workload.seq
    if not t.packed:
        return seq
    return np.where(np.asarray(t.packed_square) > 0, t.packed_square / np.maximum(t.packed_mean, 1.0), seq)


def context(s: Scenario) -> Context:
    """The forward pass of one micro-batch on one rank."""
    m, length = s.mapping, document(s)
    tokens = m.micro_batch * s.workload.seq
    work = Pass(Prefill(tokens / length, length, 0), None, tokens / m.cp)
    return Context(s.model.scaled(), work, m, s.quant, style(s))


def micro_batches(s: Scenario) -> Num:
    """Micro-batches of a step on one data-parallel rank.

    A batch that does not divide leaves the last one partly empty.
    """
    return np.maximum(np.ceil(s.workload.batch / (s.mapping.dp * s.mapping.micro_batch)), 1)


def grad_bytes(s: Scenario) -> Num:
    """Bytes a gradient value: as asked, else as the engine accumulates them."""
    return np.where(np.asarray(s.training.grad_bytes) > 0, s.training.grad_bytes, s.engine.grad_bytes)


def forward_nodes(s: Scenario, c: Context) -> dict[str, Nodes]:
    """Forward nodes by place: embedding, layers, head."""
    layers: Nodes = []
    for block in c.model.blocks:
        layers += graph.block_nodes(c, block)
    return {"embedding": graph.embedding_nodes(c), "layers": layers, "head": graph.head_nodes(c)}


def phase_nodes(s: Scenario, c: Context, m: Num) -> dict[str, Nodes]:
    """Nodes of one micro-batch by "phase.place" ("forward.layers"), with adapters, casts and recomputation."""
    t, q = s.training, s.quant
    places = forward_nodes(s, c)
    base = places["layers"]
    grads = grad_bytes(s)
    own = 0.0 if t.adapters else t.trainable_layers
    of = {
        "embedding": rules.Rules(grads, s.mapping.sp, 1.0),
        "layers": rules.Rules(grads, s.mapping.sp, own),
        "head": rules.Rules(grads, s.mapping.sp, 1.0 * (t.embeddings and not t.adapters)),
    }
    nodes: dict[str, Nodes] = {}
    for place, forward in places.items():
        nodes[f"backward.{place}"] = rules.backward(forward, of[place])
    if t.adapters:
        extra = rules.adapters(base, t)
        nodes["backward.layers"] = [*nodes["backward.layers"], *rules.backward(extra, rules.Rules(grads))]
        narrow = rules.dequantised(base, t.base_bits) if isinstance(t.base_bits, np.ndarray) or t.base_bits < 16 else []
        nodes["backward.layers"] = [*nodes["backward.layers"], *narrow]
        base = [*base, *extra, *narrow]
    if isinstance(q.act_bits, int | float) and q.act_bits < 16:
        casts = rules.quantisation(base, 1.0 / m)
        nodes["backward.layers"] = [*nodes["backward.layers"], *rules.backward(casts, rules.Rules(grads))]
        base = [*base, *casts]
    nodes |= {"forward.embedding": places["embedding"], "forward.layers": base, "forward.head": places["head"]}
    nodes["recompute.layers"] = rules.recomputed(base, s.mapping.recompute, recomputed_share(s))
    return nodes


def recomputed_share(s: Scenario) -> Num:
    """Share of the layers that run again: all, or with "block" the given number of each stage."""
    if s.mapping.recompute != "block":
        return 1.0
    return np.minimum(s.mapping.recompute_layers * s.mapping.pp / s.model.layers, 1.0)


class Held(NamedTuple):
    """Trained parameters of the fullest device: dense (with embedding) and experts."""

    dense: Num
    experts: Num


def held(s: Scenario, c: Context) -> Held:
    """Trained parameters of the fullest device."""
    t, m, model = s.training, s.mapping, c.model
    per = tm.layer_params(model, m)
    layers = np.ceil(model.layers / m.pp)
    first, last = tm.end_params(model, m)
    ends = np.where(np.asarray(m.pp) > 1, np.maximum(first, last), first + last)
    if t.adapters:
        return Held(layers * adapter_params(s, c), 0.0)
    dense = layers * (per["dense"] + per["plain"]) * t.trainable_layers + ends * t.embeddings
    return Held(dense, layers * per["experts"] * t.trainable_layers)


def adapter_params(s: Scenario, c: Context) -> Num:
    """Parameters of the adapters of a mean layer on one rank: rank x (inputs + outputs) a product."""
    if not s.training.adapters:
        return 0.0
    total: Num = 0.0
    for node in rules.adapters(forward_nodes(s, c)["layers"], s.training):
        if isinstance(node, Op) and node.kind == "gemm":
            total = total + node.count * node.shape[1] * node.shape[2]
    return total / c.model.layers


def optimizer_nodes(s: Scenario, own: Held) -> Nodes:
    """The update: gradients unscaled and their norm taken, states read and written, 16-bit weights written.

    Adam reads gradient, moments and master copy and writes the last three and the weight: 2 x states + gradient + 2
    bytes a parameter of the shard. Muon also orthogonalises each matrix: 5 Newton-Schulz steps of about 3 products
    with the smaller side (Jordan 2024; Moonlight, arXiv 2502.16982): 30 x hidden FLOPs a parameter, shared by dp.
    """
    t, m, g = s.training, s.mapping, grad_bytes(s)
    d, e = np.where(np.asarray(m.zero) >= 1, tm.shard_ranks(m), 1), np.where(np.asarray(m.zero) >= 1, tm.expert_replicas(m), 1)
    shard = own.dense / d + own.experts / e
    full = own.dense / np.where(np.asarray(m.zero) >= 2, d, 1) + own.experts / np.where(np.asarray(m.zero) >= 2, e, 1)
    nodes: Nodes = []
    if t.loss_scaling:
        nodes.append(stream("unscale", "optimizer", "optimizer", 1, shard * 2 * g, 8))
    if t.clip:
        nodes.append(stream("grad_norm", "optimizer", "optimizer", 1, shard * 2 * g, 8))
    nodes.append(stream("zero_grad", "optimizer", "optimizer", 1, full * g, 8))
    nodes.append(stream("update", "optimizer", "optimizer", 1, shard * (2 * tm.state_bytes(t) + g + 2.0), 8))
    if t.optimizer == "muon":
        flops = 30.0 * s.model.scaled().hidden * (own.dense + own.experts) / (m.dp * m.cp)
        nodes.append(Op("orthogonalise", "optimizer", "optimizer", 1, flops, shard * 40.0, (), rate="half", launches=8))
    return nodes


def sync_nodes(s: Scenario, own: Held, layers: Num) -> dict[str, Nodes]:
    """One reduction of all gradients ("reduce") and one gather of all parameters ("gather") of a device, layer by layer.

    ZeRO 0 all-reduces; stages 1 to 3 reduce-scatter, and gather parameters. With hybrid sharding the shards are then
    all-reduced over the groups. The tied embedding's two copies are added up between the end stages ("tied").
    """
    m, g = s.mapping, grad_bytes(s)
    zero = np.asarray(m.zero)
    ranks, stride = m.dp * m.cp, m.stride("cp")
    group = tm.shard_ranks(m)
    replicas, edge = tm.expert_replicas(m), m.ep * m.expert_tp
    sharded = zero >= 1
    reduce: Nodes = []
    gather: Nodes = []

    def add(where: Nodes, name: str, op: str, size: Num, n: Num, step: Num, active: Any) -> None:
        if not np.any(active):
            return
        count = np.where(active, layers, 0.0)
        where.append(Comm(name, "dp_comm", op, count, size / layers, n, step, "dp"))

    dense, experts = own.dense * g, own.experts * g
    add(reduce, "dp_all_reduce", "all_reduce", dense, ranks, stride, ~sharded)
    add(reduce, "dp_reduce_scatter", "reduce_scatter", dense, group, stride, sharded)
    hybrid = sharded & np.asarray(group < ranks)
    add(reduce, "dp_replica_all_reduce", "all_reduce", dense / group, ranks / group, stride * group, hybrid)
    add(gather, "dp_all_gather", "all_gather", own.dense * 2.0, group, stride, sharded)
    if np.any(np.asarray(own.experts) > 0):
        add(reduce, "edp_all_reduce", "all_reduce", experts, replicas, edge, ~sharded)
        add(reduce, "edp_reduce_scatter", "reduce_scatter", experts, replicas, edge, sharded)
        add(gather, "edp_all_gather", "all_gather", own.experts * 2.0, replicas, edge, sharded)
    tied: Nodes = []
    model = s.model
    if model.tied and s.training.embeddings and not s.training.adapters and not graph._one(m.pp):
        size = np.ceil(model.vocab / m.tp) * model.scaled().hidden * g
        tied.append(Comm("tied_all_reduce", "dp_comm", "all_reduce", 1, size, np.minimum(m.pp, 2), m.stride("pp"), "pp"))
    return {"reduce": reduce, "gather": gather, "tied": tied}


def send_nodes(c: Context) -> Nodes:
    """One message between neighbouring stages: the hidden states, of which a tensor rank sends its share; without
    sequence parallelism they are then gathered in the node (Narayanan et al. 2021, section 4.1)."""
    m = c.mapping
    if graph._one(m.pp):
        return []
    size = c.tokens * c.model.hidden * c.style.half_bytes
    ranks = np.minimum(m.pp, 2)
    nodes: Nodes = [Comm("pp_send", "pp_comm", "p2p", 1, size / m.tp, ranks, m.stride("pp"), "pp")]
    if not m.sp and not graph._one(m.tp):
        nodes.append(Comm("pp_gather", "pp_comm", "all_gather", 1, size, np.where(ranks > 1, m.tp, 1), 1, "tp"))
    return nodes


FACTORS = {
    "gemm": "gemm_factor", "bmm": "bmm_factor", "attention": "attention_factor", "mla_attention": "attention_factor",
    "moe": "moe_factor", "scan": "attention_factor",
}  # fmt: skip


def in_training(timed: Sequence[Timed], s: Scenario) -> list[Timed]:
    """Calibrated times of kernels measured alone, times what the engine's training steps take over them."""
    if s.efficiency.mode != "calibrated":
        return list(timed)
    out: list[Timed] = []
    for t in timed:
        if isinstance(t.node, Comm):
            out.append(t._replace(time=t.time * s.engine.dp_factor) if t.node.group == "dp" else t)
            continue
        kind = "moe" if t.node.name.startswith("experts_") else t.node.kind
        factor = getattr(s.engine, FACTORS.get(kind, "stream_factor"))
        if t.node.name == "attention_backward":
            factor = factor * s.engine.attention_backward
        out.append(t._replace(time=t.time * factor))
    return out


class Section(NamedTuple):
    """One phase at one place for one micro-batch, the whole model's layers: compute seconds, seconds by collective
    group, wgrad seconds, kernels, and joules."""

    compute: Num
    comm: dict[str, Num]
    wgrad: Num
    kernels: Num


def section(timed: Sequence[Timed]) -> Section:
    """Sums over the nodes of a section."""
    parts = by_part([t for t in timed if isinstance(t.node, Op)])
    comm = by_part([t for t in timed if isinstance(t.node, Comm)])
    wgrad = sum(t.total for t in timed if t.node.name.endswith("_wgrad"))
    return Section(sum(parts.values()) + 0.0, comm, wgrad + 0.0, launches(timed))


def exposed(c: Section, s: Scenario) -> dict[str, Num]:
    """Communication of a section that compute does not hide: the engine's share of it may, up to the compute there is.

    The extra gathers of a backward pass (regather) hide behind the input gradients whatever the engine.
    """
    e = s.engine
    shares = {"tp_comm": e.tp_overlap, "cp_comm": e.cp_overlap, "ep_comm": e.ep_overlap, "tp_regather": 1.0, "cp_regather": 1.0}
    left = c.compute
    out: dict[str, Num] = {}
    for group, seconds in c.comm.items():
        hidden = np.minimum(shares[group] * seconds, left)
        left = left - hidden
        name = group.replace("regather", "comm")
        out[name] = out.get(name, 0.0) + seconds - hidden
    return out


class Micro(NamedTuple):
    """One micro-batch on the mean and the slowest stage: seconds by part of the mean stage, and their sums."""

    parts: dict[str, Num]
    mean: Num
    slowest: Num
    forward: Num
    backward: Num
    wgrad: Num
    layer_forward: Num
    layer_backward: Num


def micro_batch_time(sections: dict[str, Section], s: Scenario, layers: Num) -> Micro:
    """A micro-batch's seconds by part, on the mean stage, and on the slowest.

    With F layers on the end stages and C on the fullest between them, a layer of t and ends of e and h:
    slowest = max(C t, F t + max(e, h)), or the sum of all with one stage.
    """
    pp, e = s.mapping.pp, s.engine
    parts: dict[str, Num] = {}
    seconds: dict[str, Num] = dict.fromkeys(PLACES, 0.0)
    by_phase: dict[str, Num] = dict.fromkeys(PHASES, 0.0)
    layer: dict[str, Num] = dict.fromkeys(PHASES, 0.0)
    for name, part in sections.items():
        phase, place = name.split(".")
        open_ = exposed(part, s)
        total = part.compute + sum(open_.values())
        host = np.maximum(part.kernels * e.issue_prefill - total, 0.0) + part.kernels * e.gap
        for key, value in {phase: part.compute, **open_, "host": host}.items():
            parts[key] = parts.get(key, 0.0) + value / pp
        seconds[place] = seconds[place] + total + host
        by_phase[phase] = by_phase[phase] + (total + host) / pp
        if place == "layers":
            layer[phase] = (total + host) / layers
    ends, between = tm.stage_layers(layers, pp)
    one = seconds["layers"] / layers
    side = np.maximum(seconds["embedding"], seconds["head"])
    whole = sum(seconds.values())
    slowest = np.where(np.asarray(pp) > 1, np.maximum(between * one, ends * one + side), whole)
    wgrad = sum(part.wgrad for part in sections.values()) / pp
    return Micro(
        parts, whole / pp, slowest, by_phase["forward"], by_phase["backward"] + by_phase["recompute"], wgrad,
        layer["forward"], layer["backward"] + layer["recompute"],
    )  # fmt: skip


class Sync(NamedTuple):
    """Data-parallel communication of a step: all of it and what shows (s); how often gradients and parameters travel."""

    total: Num
    exposed: Num
    reductions: Num
    gathers: Num


def sync_time(s: Scenario, times: dict[str, Num], micro: Micro, m: Num, stage_layers: Num) -> Sync:
    """Exposed data-parallel communication: gradients hide behind the backward pass that makes them, gathers behind the
    pass before; what compute cannot hide shows, and at least one layer's message at the end.

    ZeRO 0 and 1 reduce once a step, behind the last micro-batch's backward; 2 and 3 at each micro-batch, and 3 gathers
    parameters for both passes of each (once a step with a pipeline, unless the engine gathers again).
    """
    e, pp, zero = s.engine, s.mapping.pp, np.asarray(s.mapping.zero)
    each = m if e.regather else np.where(np.asarray(pp) > 1, 1.0, m)
    reductions = np.where(zero >= 2, each, 1.0)
    forward_gathers = np.where(zero >= 3, each, np.where(zero >= 1, 1.0, 0.0))
    backward_gathers = np.where(zero >= 3, each, 0.0)
    reduce, gather = times["reduce"], times["gather"]
    ahead = forward_gathers * gather
    behind = backward_gathers * gather + reductions * reduce
    total = ahead + behind + times["tied"]
    first, last = gather / stage_layers, reduce / stage_layers
    hidden_f = np.maximum(ahead - np.maximum(forward_gathers, 1.0) * micro.forward, first * (forward_gathers > 0))
    hidden_b = np.maximum(behind - reductions * micro.backward, last)
    shown_f = hidden_f if e.param_overlap else ahead
    shown_b = hidden_b if e.grad_overlap else behind
    return Sync(total, shown_f + shown_b + times["tied"], reductions, forward_gathers + backward_gathers)


def count_flops(nodes: Nodes) -> Num:
    """FLOPs of matrix products, attention and scans; elementwise work does not count."""
    products = ("gemm", "bmm", "attention", "mla_attention", "moe", "scan")
    return sum(n.count * n.flops for n in nodes if isinstance(n, Op) and n.kind in products) + 0.0


def flops_seconds(nodes: Nodes, peak: dict[str, Num]) -> Num:
    """Seconds of the nodes if only their FLOPs took time, each at its own rate."""
    return sum(count_flops([n]) / peak[n.rate] for n in nodes if isinstance(n, Op)) + 0.0


def forward_flops(s: Scenario, causal: bool) -> tuple[Num, Num, Num]:
    """(all, layers, attention core) forward FLOPs of one sequence through the whole unsplit model.

    causal: only pairs of tokens that attention really needs; otherwise all pairs, as most published figures count.
    """
    one = Mapping()
    c = context(replace(s, mapping=one, engine=replace(s.engine, flash=causal)))
    nodes = forward_nodes(s, c)
    core = [n for n in nodes["layers"] if isinstance(n, Op) and n.kind in ("attention", "bmm", "mla_attention")]
    layers = count_flops(nodes["layers"])
    return layers + count_flops(nodes["embedding"]) + count_flops(nodes["head"]), layers, count_flops(core)


def train_scenario(s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> TrainingEstimate:
    """Predict training of one scenario (or of every point of its grid). Never raises for an infeasible point."""
    w, m, e, device = s.workload, s.mapping, s.engine, s.cluster.device
    c = context(s)
    micro_count = micro_batches(s)
    layers = c.model.layers
    own = held(s, c)
    stage_layers = np.ceil(layers / m.pp)
    groups = phase_nodes(s, c, micro_count)
    groups |= {"step.optimizer": optimizer_nodes(s, own), "step.send": send_nodes(c)}
    groups |= {f"step.{k}": v for k, v in sync_nodes(s, own, stage_layers).items()}
    timed = time_groups(groups, s)
    sections = {k: section(v) for k, v in timed.items() if not k.startswith("step.")}
    micro = micro_batch_time(sections, s, layers)
    times = {k: sum(t.total for t in timed[f"step.{k}"]) + 0.0 for k in ("optimizer", "send", "reduce", "gather", "tied")}
    sync = sync_time(s, times, micro, micro_count, stage_layers)
    dgrad = np.maximum(micro.backward - micro.wgrad, 0.0)
    bubble = schedule.bubble_time(m.schedule, m.pp, m.vp, micro.forward, dgrad, micro.wgrad)
    v = schedule.chunks(m.schedule, m.vp)
    crossings = np.where(np.asarray(m.pp) > 1, 2.0 * v, 0.0)
    hides = e.pp_overlap and m.schedule != "gpipe" and not (isinstance(v, int | float) and v == 1)
    sends = 2.0 * (m.pp - 1) * times["send"] + (0.0 if hides else micro_count * crossings * times["send"])
    parts = {k: micro_count * x for k, x in micro.parts.items()}
    parts["imbalance"] = micro_count * (micro.slowest - micro.mean)
    parts["bubble"] = bubble
    parts["pp_comm"] = sends
    parts["dp_comm"] = sync.exposed
    parts["overlap_tax"] = e.overlap_tax * np.maximum(sync.total - sync.exposed, 0.0)
    parts["optimizer"] = times["optimizer"]
    parts["offload"] = offload_time(s, own, c, micro_count, micro.mean * micro_count)
    parts["host"] = parts["host"] + e.step
    step_time = sum(parts.values())
    return _estimate(s, c, groups, timed, micro, sync, parts, step_time, crossings, bubble, micro_count, assumed, warnings)


def time_groups(groups: dict[str, Nodes], s: Scenario) -> dict[str, tuple[Timed, ...]]:
    """All nodes timed in one call, by group."""
    timed = in_training(time_nodes([n for nodes in groups.values() for n in nodes], s), s)
    out: dict[str, tuple[Timed, ...]] = {}
    start = 0
    for name, nodes in groups.items():
        out[name] = tuple(timed[start : start + len(nodes)])
        start += len(nodes)
    return out


def offload_time(s: Scenario, own: Held, c: Context, m: Num, compute: Num) -> Num:
    """Seconds that moving to and from host memory adds.

    Optimiser: gradients go out and weights come back once a step, the CPU updates (ZeRO-Offload, arXiv 2101.06840; its
    own time is not modelled). Parameters: in twice a micro-batch; activations: out and in again; both hide behind compute.
    """
    t, bandwidth = s.training, s.cluster.host_bandwidth
    shares = (t.offload_optimizer, t.offload_params, t.offload_activations)
    if all(isinstance(x, int | float) and x == 0 for x in shares):
        return 0.0
    d = np.where(np.asarray(s.mapping.zero) >= 1, tm.shard_ranks(s.mapping), 1)
    optimizer = t.offload_optimizer * (own.dense + own.experts) / d * (grad_bytes(s) + 2.0) / bandwidth
    params = t.offload_params * (own.dense + own.experts) * 2.0 * 2.0 * m / bandwidth
    layer = tm.fullest_layer(c.model, s.mapping, c.style, s.quant, s.workload.seq, document(s), t.imbalance)
    kept = layer.kept * np.ceil(c.model.layers / s.mapping.pp)
    activations = t.offload_activations * kept * m * 2.0 / bandwidth
    return optimizer + np.maximum(params + activations - compute, 0.0)


def memory_use(s: Scenario, c: Context) -> Memory:
    """Memory of the fullest device."""
    e = s.engine
    setup = tm.Setup(
        c.model, s.mapping, c.style, s.quant, s.training, s.workload.seq, document(s), micro_batches(s), grad_bytes(s),
        adapter_params(s, c), e.cross_entropy, e.fragmentation,
    )  # fmt: skip
    parts = dict(tm.fullest_stage(setup).parts)
    parts["context"] = e.context + 0.0
    parts["workspace"] = e.workspace + 0.0
    return Memory(parts, sum(parts.values()), s.cluster.device.dram.size * e.memory_fraction)


def volumes(s: Scenario, groups: dict[str, Nodes], m: Num, crossings: Num, sync: Sync) -> dict[str, Num]:
    """Bytes that one GPU sends in a step, by collective: its share of the layers' collectives for every micro-batch,
    its messages to neighbours, its gradients and parameters."""
    sent: dict[str, Num] = {}
    scale: dict[str, Num] = {
        "step.send": m * crossings * (s.mapping.pp - 1) / s.mapping.pp, "step.reduce": sync.reductions,
        "step.gather": sync.gathers, "step.tied": 1.0, "step.optimizer": 1.0,
    }  # fmt: skip
    for name, nodes in groups.items():
        times = scale.get(name, m / s.mapping.pp)
        for node in nodes:
            if isinstance(node, Comm):
                sent[node.name] = sent.get(node.name, 0.0) + comm_volume(node) * times
    return sent


def check(s: Scenario, c: Context, fits: Num) -> Limits:
    """The rules of a legal training mapping, and memory, each a flag with its reason."""
    m, model, w = s.mapping, c.model, s.workload
    flags: dict[str, Num] = {}
    wrong: Any = np.zeros((), dtype=bool)
    for block in model.blocks:
        if block.mixer is not None:
            wrong = wrong | np.asarray(block.mixer.heads % m.tp != 0)
    flags["tp does not divide the heads"] = wrong
    flags["pp x vp exceeds the layers"] = np.asarray(m.pp * m.vp > model.layers + 2)
    flags["dp x micro_batch does not divide the batch"] = np.asarray(w.batch % (m.dp * m.micro_batch) != 0)
    if m.schedule == "interleaved":
        short = (np.asarray(m.vp) > 1) & (np.asarray(m.pp) > 1) & (micro_batches(s) % m.pp != 0)
        flags["interleaving needs a multiple of pp micro-batches"] = short
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and hasattr(b.ffn, "experts")]
    wrong = np.zeros((), dtype=bool)
    for count in experts:
        wrong = wrong | np.asarray(count % m.ep != 0) | np.asarray((m.tp * m.cp * m.dp) % m.ep != 0)
    flags["ep does not divide the experts or tp x cp x dp"] = wrong
    if not experts:
        flags["ep needs a mixture of experts"] = np.asarray(np.asarray(m.ep) > 1)
    flags["out of memory"] = ~np.asarray(fits)
    return Limits(flags)


def products_dtype_peak(s: Scenario) -> Num:
    """FLOP/s of the device in the data type of the products."""
    return s.cluster.device.peak[rates(s).dtype["quant"]]


def recomputed_flops(s: Scenario, layers: Num, core: Num) -> Num:
    """FLOPs of one sequence that recomputation runs again, of `layers` in all layers and `core` in attention cores."""
    policy = s.mapping.recompute
    if policy == "none":
        return 0.0
    return core * (not s.engine.flash) if policy == "selective" else layers * recomputed_share(s)


def _estimate(
    s: Scenario, c: Context, groups: dict[str, Nodes], timed: dict[str, tuple[Timed, ...]], micro: Micro, sync: Sync,
    parts: dict[str, Num], step_time: Num, crossings: Num, bubble: Num, m: Num, assumed: tuple[str, ...],
    warnings: tuple[str, ...],
) -> TrainingEstimate:  # fmt: skip
    """The estimate of a step whose parts are known."""
    w, device, gpus = s.workload, s.cluster.device, s.mapping.devices
    peak = products_dtype_peak(s)
    forward, layers, core = forward_flops(s, causal=False)
    causal, _layers, _core = forward_flops(s, causal=True)
    model_flops = 3.0 * forward * w.batch
    again = recomputed_flops(s, layers, core) * w.batch
    memory = memory_use(s, c)
    fits = memory.total <= memory.capacity
    limits = check(s, c, fits)
    body = {k: v for k, v in timed.items() if not k.startswith("step.")}
    r = rates(s)
    dynamic = sum(dynamic_energy(v, device, r) for v in body.values()) * m / s.mapping.pp
    dynamic = dynamic + dynamic_energy(timed["step.optimizer"], device, r)
    energy = gpus * (device.idle * step_time + dynamic)
    executed = sum(flops_seconds(groups[k], r.peak) for k in body) * m / s.mapping.pp
    state = (memory.parts["weights"] + memory.parts["optimizer"]) + 0.0
    run = job(s.training, w.tokens, w.batch, w.seq, step_time, gpus, device.price, energy, state)
    variable = memory.parts["activations"] + memory.parts["logits"]
    room = memory.capacity - (memory.total - variable)
    return TrainingEstimate(
        step_time=step_time,
        tokens_per_s_per_gpu=w.batch * w.seq / (step_time * gpus),
        model_tflops_per_gpu=model_flops / (step_time * gpus) / 1e12,
        mfu=model_flops / (step_time * gpus * peak),
        mfu_causal=3.0 * causal * w.batch / (step_time * gpus * peak),
        hfu=(model_flops + again) / (step_time * gpus * peak),
        memory=memory,
        fits=fits & (limits.reason == ""),
        reason=limits.reason,
        max_micro_batch=np.maximum(np.floor(room / variable * s.mapping.micro_batch), 0),
        micro_batches=m,
        comm_bytes=volumes(s, groups, m, crossings, sync),
        parts=parts,
        detail={p: by_part([t for k, v in body.items() if k.startswith(p) for t in v]) for p in PHASES},
        bubble_fraction=bubble / (m * micro.mean),
        flops_time=executed,
        layer_forward=micro.layer_forward,
        layer_backward=micro.layer_backward,
        job=run,
        energy=run.energy,
        power=energy / (step_time * gpus),
        gpus=gpus,
        scenario=s,
        timed=timed,
        assumed=assumed,
        warnings=warnings,
    )


__all__ = ["Quant", "TrainingEstimate", "train_scenario"]
