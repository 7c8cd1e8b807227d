"""The graph of a training step: forward nodes of one micro-batch, what the backward rules make of them, the update, the
synchronisation of data-parallel ranks and the messages between stages."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MLA, Attention, Block, Model, MoE
from rooflm.estimate import training_memory as tm
from rooflm.estimate.schedule import fuller_end
from rooflm.graph import backward as rules
from rooflm.graph import forward as graph
from rooflm.graph.context import Context, Pass, Prefill
from rooflm.graph.feedforward import reached_ranks
from rooflm.graph.ops import Comm, Op, gemm, stream
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, ceil, is_plain, larger, pick, smaller

Nodes = list[Op | Comm]
Key = tuple[str, str]
Node = TypeVar("Node")
PLACES = ("embedding", "layers", "head")
PHASES = ("forward", "backward", "recompute")


def step_graph(s: Scenario, c: Context) -> dict[Key, Nodes]:
    """What one device executes in an optimiser step, by phase and place: passes of one micro-batch through the whole
    model's layers; of the step the optimiser's update, one message to the neighbouring stage, one reduction of all
    gradients of the fullest stage, one gather of all its parameters, the tied embedding's two copies added up."""
    trained = trained_of(s, c)
    sync = sync_nodes(s, trained, ceil(c.model.layers / s.mapping.pp))
    once = {"update": optimizer_nodes(s, trained), "send": send_nodes(c), **sync}
    return pass_nodes(s, c, micro_batches(s)) | {("step", place): nodes for place, nodes in once.items()}


def of_phase(groups: Dict[Key, Sequence[Node]], name: str) -> list[Node]:
    """The nodes of one phase of a micro-batch, at all places."""
    return [node for (phase, _), group in groups.items() if phase == name for node in group]


def document(s: Scenario) -> Num:
    """Length of the documents that attention sees: the sequence, or the token-weighted mean length where packed.

    A token attends within its own document, so scores grow as sum(l^2) / sum(l) instead of the sequence length."""
    t, seq = s.training, s.workload.seq
    return pick(t.packed_square > 0, t.packed_square / larger(t.packed_mean, 1.0), seq) if t.packed else seq


def context(s: Scenario) -> Context:
    """The forward pass of one micro-batch on one rank."""
    m, length = s.mapping, document(s)
    tokens = m.micro_batch * s.workload.seq
    work = Pass(Prefill(tokens / length, length, 0), None, tokens / m.cp)
    return Context(trained_model(s), work, m, s.quant, kernels_of_training(s.engine.kernels), s.training)


@kept
def kernels_of_training(kernels: Kernels) -> Kernels:
    """An engine's kernels as a training step runs them: activations are apart from products."""
    return replace(kernels, vocab_parallel=True, epilogue=False)


def trained_model(s: Scenario) -> Model:
    """The model with its multi-token prediction layers: each is one more attention and feed-forward layer, after a
    product (2 h to h) that joins hidden state and embedding and whose weights count with the embedding.

    Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2."""
    model, depth = s.model.scaled, s.training.mtp
    if not multi_token(s):
        return model
    mixer = next((b.mixer for b in reversed(model.blocks) if isinstance(b.mixer, Attention | MLA)), None)
    ffn = next((b.ffn for b in reversed(model.blocks) if b.ffn is not None), None)
    extra = model.extra_params + depth * 2.0 * model.hidden**2
    return replace(model, blocks=(*model.blocks, Block(depth, mixer, ffn, norms=4)), extra_params=extra)


def multi_token(s: Scenario) -> bool:
    """Whether the model has multi-token prediction layers (structural: an array of depths counts as yes)."""
    return not is_plain(s.training.mtp, 0)


def grad_bytes(s: Scenario) -> Num:
    """Bytes a gradient value: as asked, else as the engine accumulates them; engines without buffers of their own
    (FSDP, autograd) keep it in its parameter's type, which without a master copy has 16 bits."""
    buffered = s.engine.room.grad_bytes
    kept = buffered if s.engine.habits.zero_one else smaller(buffered, 2.0 + 2.0 * s.training.master)
    return pick(s.training.grad_bytes > 0, s.training.grad_bytes, kept)


def stored_bytes(s: Scenario) -> tuple[Num, Num]:
    """(bytes of a trained layer weight as stored, as gathered): 16 bits, or 8 (engine.fp8_weights), with a transposed
    copy of each on most generations (not: engine.fp8_once). Adapters keep their width."""
    half, q, room = s.quant.half_bytes, s.quant, s.engine.room
    narrow = room.fp8_weights != "wide" and not s.training.adapters
    if not (narrow and is_plain(q.act_bits, 8) and is_plain(q.weight_bits, 8)):
        return half, half
    copies = 1.0 if s.cluster.device.kernel_generation in words_in(room.fp8_once) else 2.0
    return (copies, 1.0) if room.fp8_weights == "narrow" else (half + copies, half)


def forward_nodes(s: Scenario, c: Context) -> dict[str, Nodes]:
    """Forward nodes by place: embedding, layers, head."""
    layers: Nodes = []
    for block in c.model.blocks:
        nodes = graph.mixer_nodes(c, block, block.count) + graph.ffn_nodes(c, block)
        if isinstance(block.ffn, MoE):
            most = tm.busiest(block.ffn, s.mapping, c.kernels.skew, s.training, c.tokens)
            more = [most if (n.of == "experts" if isinstance(n, Op) else n.group == "ep") else 1.0 for n in nodes]
            nodes = once_a_node(s, c, [rules.times(n, x) for n, x in zip(nodes, more, strict=True)], block.ffn)
        layers += nodes
    head = [whole_logits(node, s) for node in graph.head_nodes(c)]
    if multi_token(s):  # every depth has a loss of its own
        h, b = c.model.hidden, c.quant.half_bytes
        rows = c.tokens / c.mapping.tp
        head = [rules.times(n, 1.0 + s.training.mtp) for n in head]
        head.append(gemm("mtp_join", "logits", s.training.mtp, rows, h, 2 * h, (b, b, b)))
    return {"embedding": graph.embedding_nodes(c), "layers": layers, "head": head}


FUSED_LOGIT = 8.0
"""Most bytes a logit (engine.logit_bytes) at which one kernel makes the loss: logits of 16 bits and what it keeps."""


def whole_logits(node: Op | Comm, s: Scenario) -> Op | Comm:
    """The node; the loss with 18 bytes a logit (`graph.forward.loss_nodes`), not the 4 of one fused pass, where a chain
    of kernels makes it of fp32 copies (torchtitan, pull request 1033; Megatron-Core, cross_entropy.py)."""
    if node.name != "loss" or not s.engine.kernels.fused:
        return node
    chain = (s.engine.room.logit_bytes > FUSED_LOGIT) | (not s.engine.kernels.fused_loss)
    return node._replace(bytes=node.bytes * pick(chain, 18.0 / 4.0, 1.0))


def once_a_node(s: Scenario, c: Context, nodes: Nodes, f: MoE) -> Nodes:
    """Exchanges of tokens that cross nodes send a token once to each node, which spreads it inside (DeepEP, HybridEP).

    Bytes shrink by the expected number of nodes over that of ranks. Source: arXiv 2412.19437, section 3.2.2."""
    if not s.engine.kernels.dedup or not s.cluster.tiers:
        return nodes
    held = s.cluster.tiers[0].size

    def shrunk(node: Op | Comm) -> Op | Comm:
        if not isinstance(node, Comm) or node.group != "ep":
            return node
        places = larger(node.ranks * node.stride / held, 1.0)
        share = reached_ranks(c, f, places) / reached_ranks(c, f, node.ranks)
        return node._replace(bytes=node.bytes * pick(places > 1, share, 1.0))

    return [shrunk(node) for node in nodes]


def pass_nodes(s: Scenario, c: Context, m: Num) -> dict[Key, Nodes]:
    """Nodes of one of m micro-batches by phase and place, with adapters, casts and recomputation."""
    t = s.training
    places = forward_nodes(s, c)
    plain = rules.Rules(grad_bytes(s), s.mapping.sp)
    head = plain._replace(weights=1.0 * (t.embeddings and not t.adapters))
    forward, backward = layer_nodes(s, places["layers"], m)
    policy, modules = s.mapping.recompute, s.mapping.recompute_modules
    share = s.mapping.recomputed(s.model.layers)
    again = rules.recomputed(forward, policy, share, s.engine.habits.early_stop, modules)
    nodes = {
        ("backward", "embedding"): rules.backward(places["embedding"], plain),
        ("backward", "layers"): backward,
        ("backward", "head"): rules.backward(places["head"], head),
        ("forward", "embedding"): places["embedding"],
        ("forward", "layers"): forward,
        ("forward", "head"): places["head"],
        ("recompute", "layers"): again if t.adapters else [rules.times(n, t.trainable_layers) for n in again],
    }
    for phase, copies in [*sharded_copies(s, c).items(), *whole_copies(s, c, m).items()]:
        nodes[phase, "layers"] = [*nodes[phase, "layers"], *copies]
    return {key: narrowed(listed, s) for key, listed in nodes.items()}


def whole_copies(s: Scenario, c: Context, m: Num) -> dict[str, Nodes]:
    """What a micro-batch moves of whole weights: to 16 bits under autocast, gradients back, added to earlier ones
    where no product does it (PyTorch, accumulate_grad.h), the sum into DDP's buckets and back (reducer.cpp)."""
    t, layers, cast, sums = trained_of(s, c), c.model.layers, Nodes(), Nodes()
    if not (c.kernels.fused or is_plain(c.autocast, 0)):
        moved = sum(tm.layer_params(c.model, c.mapping)) * (4.0 + c.quant.half_bytes)
        cast = [stream("weight_cast", "copies", "copy", layers * c.autocast, moved)]
    if not s.engine.habits.zero_one:
        moved = (t.dense + t.experts) / ceil(layers / s.mapping.pp) * grad_bytes(s)
        reduced = (np.asarray(s.mapping.zero) < 1) & (np.asarray(s.mapping.dp * s.mapping.cp) > 1)
        sums = [stream("gradient_add", "copies", "copy", layers * c.whole * (1.0 - 1.0 / m), 3.0 * moved),
                stream("bucket_copy", "copies", "copy", layers * reduced / m, 4.0 * moved)]  # fmt: skip
    return {"forward": cast, "backward": [*cast, *sums]}


def sharded_copies(s: Scenario, c: Context) -> dict[str, Nodes]:
    """Copies of a micro-batch by engines that shard parameter by parameter (FSDP2): what was gathered into each weight
    (read and write, in both passes under ZeRO 3), gradients into the buffer that is reduced. They wait on compute's own
    stream, however few ranks there are; with a pipeline weights stay gathered and gradients whole.

    Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather_copy_out and kin)."""
    m, t, half = s.mapping, s.training, s.quant.half_bytes
    zero, alone = np.asarray(m.zero), np.asarray(m.pp) <= 1
    if not s.engine.habits.copies or not np.any((zero >= 2) & alone):
        return {}
    experts, others = tm.layer_params(c.model, m)
    gathered = others * (np.asarray(tm.shard_ranks(m)) > 1) + experts * (np.asarray(tm.expert_replicas(m)) > 1)
    share = adapter_sizes(s, c)[0] / (experts + others) if t.adapters else t.trainable_layers
    layers, moved = c.model.layers * (1.0 * alone), gathered * share * (half + grad_bytes(s))
    twice: Nodes = [stream("gather_copy", "copies", "copy", layers * (zero >= 3), gathered * 2.0 * half)]
    back = stream("reduce_copy", "copies", "copy", layers * (zero >= 2), moved)
    return {"forward": twice, "backward": [*twice, back]}


def layer_nodes(s: Scenario, base: Nodes, m: Num) -> tuple[Nodes, Nodes]:
    """(forward, backward) nodes of all layers, from their plain forward nodes: adapters and the casts of frozen narrow
    weights beside them, casts to 8 or 4 bits (the weights' once for all m micro-batches)."""
    t, q, grads, k = s.training, s.quant, grad_bytes(s), s.engine.kernels
    backward_rules = rules.Rules(grads, s.mapping.sp, 0.0 if t.adapters else 1.0, k.torch_context)
    act = q.act_bits if isinstance(q.act_bits, int | float) else 16
    asis = t.adapters and act < 16 and is_plain(t.base_bits, act)  # a frozen base of the products' own width feeds them
    backward = rules.backward(base, backward_rules)
    if t.adapters:
        extra = rules.adapters(base, t, k.adapter_in, k.adapter_wide * t.master)
        narrow = [] if asis or is_plain(t.base_bits, 16) else rules.dequantised(base, t.base_bits)
        backward += [*rules.backward(extra, rules.Rules(grads)), *narrow]
        base = [*base, *extra, *narrow]
    else:  # frozen first layers need no backward pass at all
        backward = [rules.times(n, t.trainable_layers) for n in backward]
    if act < 16:
        again = 4.0 * q.rowwise + 2.0 * (k.cast_apart and q.by_32)
        casts = rules.quantisation(base, 0.0 if asis else 1.0 / m, again)
        backward += rules.backward(casts, rules.Rules(grads))
        base = [*base, *casts]
    return base, backward


def narrowed(nodes: Nodes, s: Scenario) -> Nodes:
    """Nodes, tensor groups' gathers in the products' width where the engine casts before, with one scale a tensor.

    Sources: torchao, Float8ColwiseParallel; Transformer Engine, ub_overlap_ag of quantised inputs."""
    narrow = isinstance(s.quant.act_bits, int | float) and s.quant.act_bits < 16
    if not (narrow and s.engine.kernels.narrow_gather) or s.quant.rowwise:
        return nodes
    share = s.quant.act_bytes / 2.0
    return [n._replace(bytes=n.bytes * share) if isinstance(n, Comm) and (n.op, n.group) == ("all_gather", "tp") else n
            for n in nodes]  # fmt: skip


class Trained(NamedTuple):
    """Trained parameters of the fullest device, and their bytes as gathered."""

    ends: Num  # of embedding and head, which `dense` has too
    dense: Num  # of all but routed experts
    experts: Num
    dense_bytes: Num
    expert_bytes: Num


def trained_of(s: Scenario, c: Context) -> Trained:
    """Trained parameters of the fullest device; embedding and head keep 16 bits whatever the layers' weights have."""
    t, m, model, half, each = s.training, s.mapping, c.model, s.quant.half_bytes, stored_bytes(s)[1]
    experts, others = tm.layer_params(model, m)
    layers = ceil(model.layers / m.pp)
    first, last = tm.end_params(model, m)
    ends = fuller_end(m.schedule, m.pp, first, last) * (t.embeddings and not t.adapters)
    share = t.trainable_layers * (not t.adapters)  # first layers may be frozen, beside adapters all
    others, experts = others * share + adapter_sizes(s, c)[0], experts * share
    dense, routed = layers * others, layers * experts
    return Trained(ends, dense + ends, routed, dense * each + ends * half, routed * each)


def weights_away(s: Scenario, c: Context) -> Num:
    """Bytes of the fullest device's weights that host memory holds, frozen ones too, as wide as they are stored."""
    t, m = s.training, s.mapping
    if is_plain(t.offload_params, 0):
        return 0.0
    here = replace(setup_of(s, c), training=replace(t, offload_params=0.0))
    ends = fuller_end(m.schedule, m.pp, *tm.end_params(c.model, m))
    return t.offload_params * tm.model_states(here, ceil(c.model.layers / m.pp), ends)["weights"]


def adapter_sizes(s: Scenario, c: Context) -> tuple[Num, Num]:
    """Of the adapters of a mean layer on one rank: parameters, rank x (inputs + outputs) a product; and the width of
    all inputs, where they are kernels of their own (PEFT)."""
    if not s.training.adapters:
        return 0.0, 0.0
    even = replace(s, training=replace(s.training, imbalance=1.0))
    nodes = [n for n in rules.adapters(forward_nodes(even, c)["layers"], s.training) if isinstance(n, Op)]
    inputs = [n for n in nodes if n.name == "lora_a" and not is_plain(s.engine.kernels.adapter_in, 0)]
    params = sum(n.count * n.shape[1] * n.shape[2] * (n.shape[3:] or (1,))[0] for n in nodes if n.kind == "gemm")
    return params / c.model.layers, sum(n.count * n.shape[2] for n in inputs) / c.model.layers


def setup_of(s: Scenario, c: Context) -> tm.Setup:
    """What the memory of a scenario's stages depends on. Gradients of engines built on FSDP are made anew each step
    (PyTorch, zero_grad: set_to_none) and stand only where micro-batches add up, in DDP's buckets (no sharding), or, of
    what the framework holds (fragmentation), in the pool of the stream that reduces them. A readied narrow base has
    norms in fp32 (PEFT, prepare_model_for_kbit_training; TRL calls it unless sharded)."""
    e, m, t, count = s.engine, s.mapping, s.training, micro_batches(s)
    adapted, inputs = adapter_sizes(s, c)
    zero, several, anew = np.asarray(m.zero), np.asarray(m.dp * m.cp) > 1, not e.habits.zero_one
    buckets = ((zero < 2) | (np.asarray(e.room.fragmentation) > 1)) * several
    readied = not is_plain(t.base_bits, 16) and (np.asarray(t.base_bits) < 16) * (zero < 3)
    flat = e.room.grads_joined * t.master * t.update.joined
    fleeting, doubled = ((np.asarray(count) <= 1) * (1.0 - buckets), 1.0 * (zero < 1) * several) if anew else (0.0, 0.0)
    return tm.Setup(
        c.model, c.work, m, c.quant, c.kernels, t, micro_batches=count, grad_bytes=grad_bytes(s), adapted=adapted,
        inputs=inputs, weight=stored_bytes(s)[0], fleeting=fleeting, doubled=doubled, unsynced=e.habits.unsynced,
        residual=pick(readied, e.kernels.narrow_residual, 2.0), copied=copied_bytes(s) + flat, lone=anew,
        room=replace(e.room, stash=pick(e.host.graphed >= 1, e.room.stash, 1.0)),
    )  # fmt: skip


def copied_bytes(s: Scenario) -> Num:
    """Bytes a parameter of divisors that an update keeps for a moment where it runs operation by operation over all
    tensors; Adam then moves 20 values a parameter where one kernel moves 7 (PyTorch, torch/optim/adam.py)."""
    return s.engine.habits.foreach * s.training.update.divisor * (2.0 + 2.0 * s.training.master)


def optimizer_nodes(s: Scenario, trained: Trained) -> Nodes:
    """The update: gradients unscaled and their norm taken, states read and written, weights written.

    Adam reads gradient, moments and master copy and writes the last three and the weight as it is gathered: 2 x states
    + gradient + weight. Muon multiplies the layers' matrices alone, counted as squares of the hidden width."""
    t, m, g, kind = s.training, s.mapping, grad_bytes(s), s.training.update
    d, e = pick(m.zero >= 1, tm.shard_ranks(m), 1), pick(m.zero >= 1, tm.expert_replicas(m), 1)
    shard = trained.dense / d + trained.experts / e
    full = trained.dense / pick(m.zero >= 2, d, 1) + trained.experts / pick(m.zero >= 2, e, 1)
    read = {"unscale": t.loss_scaling, "grad_norm": t.clip}
    nodes: Nodes = [update(name, shard * 2 * g) for name, asked in read.items() if asked]
    nodes.append(update("zero_grad", full * g))
    written = trained.dense_bytes / d + trained.expert_bytes / e
    states = tm.state_bytes(t, s.quant.half_bytes)
    moved = shard * (2 * states + g + 13 * copied_bytes(s)) + written
    nodes.append(update("update", moved)._replace(flops=kind.flops * shard))
    if kind.products:
        h = s.model.scaled.hidden
        of_layers = shard - trained.ends / d
        product = gemm("orthogonalise", "optimizer", kind.products * of_layers / h**2, h, h, h, (2.0, 2.0, 2.0))
        nodes += [update("momentum", shard * kind.moved), product._replace(role="update")]
    return nodes


def update(name: str, bytes_: Num) -> Op:
    """A streaming kernel of the optimiser, over all parameters at once, in some eight launches."""
    return stream(name, "optimizer", "optimizer", 1, bytes_, 8)._replace(role="update")


def sync_nodes(s: Scenario, trained: Trained, layers: Num) -> dict[str, Nodes]:
    """Groups of `step_graph`: the messages of gradients and parameters, layer by layer, or in buckets of
    several layers where ZeRO 3 does not free each behind its use.

    ZeRO 0 all-reduces; stages 1 to 3 reduce-scatter, and gather parameters. With hybrid sharding the shards are then
    all-reduced over the groups. The tied embedding's two copies are added up between the end stages."""
    m, g, habits, zero = s.mapping, grad_bytes(s), s.engine.habits, np.asarray(s.mapping.zero)
    ranks, stride, group = m.dp * m.cp, m.stride("cp"), tm.shard_ranks(m)
    replicas, edge = tm.expert_replicas(m), m.ep * m.expert_tp
    sharded = zero >= 1
    buckets = larger(ceil((trained.dense + trained.experts) / larger(habits.bucket, habits.bucket_rank * ranks)), 1)
    messages = pick((zero >= 3) | habits.owners, layers, smaller(layers, buckets))
    reduce: Nodes = []
    gather: Nodes = []

    def add(where: Nodes, name: str, op: str, size: Num, n: Num, step: Num, active: Any) -> None:
        if np.any(active):
            where.append(Comm(name, "dp_comm", op, pick(active, messages, 0.0), size / messages, n, step, "dp"))

    add(reduce, "dp_all_reduce", "all_reduce", trained.dense * g, ranks, stride, ~sharded)
    add(reduce, "dp_reduce_scatter", "reduce_scatter", trained.dense * g, group, stride, sharded)
    hybrid = sharded & np.asarray(group < ranks)
    add(reduce, "dp_replica_all_reduce", "all_reduce", trained.dense * g / group, ranks / group, stride * group, hybrid)
    add(gather, "dp_all_gather", "all_gather", trained.dense_bytes, group, stride, sharded)
    some = np.asarray(trained.experts > 0)
    add(reduce, "edp_all_reduce", "all_reduce", trained.experts * g, replicas, edge, some & ~sharded)
    add(reduce, "edp_reduce_scatter", "reduce_scatter", trained.experts * g, replicas, edge, some & sharded)
    add(gather, "edp_all_gather", "all_gather", trained.expert_bytes, replicas, edge, some & sharded)
    tied: Nodes = []
    if s.model.tied and s.training.embeddings and not s.training.adapters and not is_plain(m.pp, 1):
        size = ceil(s.model.vocab / m.tp) * s.model.scaled.hidden * g
        tied.append(Comm("tied_all_reduce", "dp_comm", "all_reduce", 1, size, smaller(m.pp, 2), m.stride("pp"), "pp"))
    return {"reduce": reduce, "gather": gather, "tied": tied}


def send_nodes(c: Context) -> Nodes:
    """One message between neighbouring stages: the hidden states, of which a tensor rank sends its share; without
    sequence parallelism they are then gathered in the node (Narayanan et al. 2021, section 4.1)."""
    m = c.mapping
    if is_plain(m.pp, 1):
        return []
    ranks = smaller(m.pp, 2)
    nodes: Nodes = [c.message("pp_send", "pp", "p2p", 1, c.hidden_bytes / m.tp, ranks)]
    if not m.sp and not is_plain(m.tp, 1):
        nodes.append(Comm("pp_gather", "pp_comm", "all_gather", 1, c.hidden_bytes, pick(ranks > 1, m.tp, 1), 1, "tp"))
    return nodes
