"""From timed nodes to the time of a training step: what each phase takes on a stage, what communication shows."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.model import MoE
from rooflm.estimate import schedule
from rooflm.estimate import training_memory as tm
from rooflm.estimate.step import add_up, by_name, by_part, launches
from rooflm.estimate.training_kernels import in_training
from rooflm.estimate.training_step import (
    PHASES,
    PLACES,
    Key,
    grad_bytes,
    multi_token,
    setup_of,
    step_graph,
    trained_of,
    weights_away,
)
from rooflm.graph.context import Context
from rooflm.graph.ops import PREFILL_ATTENTION, Comm, Op
from rooflm.kernels.collectives import DIRECT_KINDS, ring_wait
from rooflm.kernels.roofline import Timed, time_groups
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, ceil, is_plain, larger, pick, smaller


class Section(NamedTuple):
    """One phase at one place for one micro-batch, the whole model's layers: compute seconds, seconds by collective
    group, wgrad seconds, kernels, and seconds of the attention core."""

    compute: Num
    comm: dict[str, Num]
    wgrad: Num
    kernels: Num
    core: Num


def section(timed: Sequence[Timed]) -> Section:
    """Sums over the nodes of a section."""
    parts = by_part([t for t in timed if isinstance(t.node, Op)])
    comm = by_part([t for t in timed if isinstance(t.node, Comm)])
    wgrad = sum(t.total for t in timed if isinstance(t.node, Op) and t.node.role == "wgrad")
    core = sum(t.total for t in timed if isinstance(t.node, Op) and t.node.kind in (*PREFILL_ATTENTION, "bmm"))
    return Section(sum(parts.values()) + 0.0, comm, wgrad + 0.0, launches(timed), core + 0.0)


def context_window(core: Num, ways: Num, ring: bool) -> Num:
    """Seconds of attention that run while keys and values of other ranks are under way, of `core` in all.

    Attention of a rank is cut into as many kernels as the group has ranks, of equal work (zig-zag chunks). In a ring,
    each of the first cp - 1 runs beside the exchange of the next share: what shows of cp - 1 exchanges of t is
    (cp - 1) max(0, t - core / cp) = max(0, all exchanges - this window). A gather runs beside the first kernel only; of
    gradients that come back around (cp exchanges) the last has no kernel beside it.

    Sources: Transformer Engine, context_parallel.py, AttnFuncWithCPAndKVP2P; torchtitan, ParallelismConfig,
    context_parallel_rotate_method ("all-gather all kv shards on ranks after the first sub-SDPA computation").

    >>> context_window(8.0, 4, True), context_window(8.0, 4, False)
    (6.0, 2.0)
    """
    return core * (ways - 1) / ways if ring else core / ways


def exposed(c: Section, s: Scenario) -> dict[str, Num]:
    """Communication of a section that compute does not hide: the engine's share of it may, up to the compute there is.

    The extra gathers of a backward pass (regather) hide behind the input gradients whatever the engine; exchanges of a
    context group behind the attention that runs beside them (`context_window`)."""
    o, ring, bound = s.engine.overlaps, s.engine.kernels.ring, s.efficiency.mode == "ideal"
    beside = 1.0 if bound else 1.0 - 1.0 / s.mapping.cp  # an exchange cut fine enough hides behind all of attention
    shares = {"tp_comm": o.tp_overlap, "cp_comm": o.cp_overlap, "ep_comm": o.ep_overlap, "tp_regather": 1.0}
    shares |= {"cp_regather": o.cp_overlap, "cp_rotation": o.cp_overlap * beside}
    left, window = c.compute, c.core if bound else context_window(c.core, s.mapping.cp, ring)
    out: dict[str, Num] = {}
    for group, seconds in c.comm.items():
        hidden = smaller(shares[group] * seconds, left)
        if group == "cp_rotation":
            hidden = smaller(hidden, c.core * beside)
        elif group.startswith("cp_"):
            hidden = smaller(hidden, window)
            window = window - hidden
        left = left - hidden
        name = group.replace("regather", "comm").replace("rotation", "comm")
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


ISSUED = {"forward": 1 / 3, "backward": 2 / 3}
"""Share of a layer's kernels in a phase: backward, two products for one; what runs again, its share of the forward."""
MATRICES = 7.0
"""Of a dense layer: four of attention, three of a gated feed-forward (docs/decisions/0293)."""


def layers_host(s: Scenario) -> tuple[Num, Num]:
    """Host seconds a micro-batch, outside CUDA graphs, 0 where efficiency is not calibrated: at least, to launch all
    layers (and virtual stages whose exchanges run beside another micro-batch); beside kernels, to gather shards."""
    if s.efficiency.mode != "calibrated":
        return 0.0, 0.0
    m, host, overlap, blocks = s.mapping, s.engine.host, s.engine.overlaps.ep_overlap, s.model.scaled.blocks
    packed = host.packed_host * s.training.packed  # rotary and attention read where documents end
    experts: Num = packed + host.moe_host + host.router_host
    seen = 1.0 - host.graphed
    layers: Num = sum(b.count * (experts if isinstance(b.ffn, MoE) else packed + host.layer_host) for b in blocks)
    plans = 0.0 if is_plain(overlap, 0) else m.pp * m.vp * host.chunk_host * (overlap > 0)  # no axis where nothing is
    routed = (not s.engine.kernels.grouped) / m.ep
    gathers: Num = sum(b.count * (routed * b.ffn.tensors if isinstance(b.ffn, MoE) else MATRICES) for b in blocks)
    sharded = (np.asarray(m.zero) >= 3) & (np.asarray(tm.shard_ranks(m)) > 1)
    return (layers + plans) * seen, gathers * host.gather_host * sharded * seen


def balanced_last_stage(layers: Num, pp: Num, layer: Num, loss: Num, given: Num = 0) -> Num:
    """Seconds of the slowest stage where the last, with the losses (`loss` s), has `given` layers of `layer` s, or as
    few as make it fastest.

    Runs that predict further ahead lay their stages out by hand (Megatron-Core, pipeline_model_parallel_layout;
    DeepSeek-V3 over 16 stages: 4 layers each, 2 beside the losses).

    >>> [float(balanced_last_stage(62, 16, 1.0, loss, last)) for loss, last in ((1.5, 0), (0.0, 0), (1.5, 4))]
    [4.0, 4.0, 5.5]
    """
    others = larger(np.asarray(pp) - 1, 1)
    best: Num = np.inf
    for fewer in range(5):  # at most four layers less than an even share
        last = pick(given > 0, given, larger(ceil(layers / pp) - fewer, 0))
        best = smaller(best, larger(ceil((layers - last) / others) * layer, last * layer + loss))
    return best


def micro_batch_time(sections: dict[Key, Section], s: Scenario, layers: Num) -> Micro:
    """A micro-batch's seconds by part, on the mean stage, and on the slowest.

    With F layers on the end stages and C on the fullest between them, a layer of t and ends of e and h:
    slowest = max(C t, F t + max(e, h)), e + h where stages are folded, or the sum of all with one stage."""
    pp, e, real = s.mapping.pp, s.engine, s.efficiency.mode == "calibrated"
    parts: dict[str, Num] = {}
    seconds: dict[str, Num] = dict.fromkeys(PLACES, 0.0)
    by_phase: dict[str, Num] = dict.fromkeys(PHASES, 0.0)
    layer: dict[str, Num] = dict.fromkeys(PHASES, 0.0)
    for (phase, place), part in sections.items():
        open_ = exposed(part, s)
        total = part.compute + sum(open_.values())
        plain = pick(e.kernels.fused, 0.0, e.host.eager + e.host.dtensor * (np.asarray(s.mapping.tp) > 1))
        issue = real * part.kernels * larger(e.host.issue_prefill, plain) * (1.0 - e.host.graphed)
        if place == "layers":
            once = part.kernels / sections["forward", "layers"].kernels * ISSUED["forward"]
            least, gathers = layers_host(s)
            issue = larger(issue, least * ISSUED.get(phase, once))
            issue = issue + gathers * ISSUED.get(phase, once * e.host.hooks_again)
        host = larger(issue - total, 0.0) + part.kernels * larger(e.host.gap, 0.0)  # below 0: of serving's kernels
        for key, value in {phase: part.compute, **open_, "host": host}.items():
            parts[key] = parts.get(key, 0.0) + value / pp
        seconds[place] = seconds[place] + total + host
        by_phase[phase] = by_phase[phase] + (total + host) / pp
        if place == "layers":
            layer[phase] = (total + host) / layers
    ends, between = tm.stage_layers(layers, pp)
    one = seconds["layers"] / layers
    side = schedule.fuller_end(s.mapping.schedule, pp, seconds["embedding"], seconds["head"])
    whole = sum(seconds.values())
    fullest, last = larger(between * one, ends * one + side), s.training.last_layers
    if multi_token(s) or not is_plain(last, 0):
        fullest = pick(larger(s.training.mtp, last) > 0, balanced_last_stage(layers, pp, one, side, last), fullest)
    slowest = pick(pp > 1, fullest, whole)
    return Micro(
        parts, whole / pp, slowest, by_phase["forward"], by_phase["backward"] + by_phase["recompute"],
        sum(part.wgrad for part in sections.values()) / pp, layer["forward"], layer["backward"] + layer["recompute"],
    )  # fmt: skip


class Sync(NamedTuple):
    """Data-parallel communication of a step: all and what shows (s); how often gradients and parameters travel."""

    total: Num
    exposed: Num
    reductions: Num
    gathers: Num


def sync_time(s: Scenario, c: Context, timed: Dict[Key, Sequence[Timed]], micro: Micro, m: Num) -> Sync:
    """Exposed data-parallel communication: gradients hide behind the backward pass that makes them, gathers behind the
    pass before; what compute cannot hide shows, and at least one layer's message and the embedding's, which forward
    needs first and whose gradient backward makes last (the head's, too, where FSDP's root holds both: `fully_shard`).

    ZeRO 0 and 1 reduce once a step, behind the last micro-batch's backward; 2 and 3 at each micro-batch, unless whole
    gradients wait (`unsynced`), and 3 gathers parameters for both passes of each (once a step with a pipeline)."""
    e, pp, zero = s.engine, s.mapping.pp, np.asarray(s.mapping.zero)
    each, unsynced = pick(pp > 1, 1.0, m), np.asarray(e.habits.unsynced) > 0
    reductions = pick((zero >= 2) & ~unsynced, each, 1.0)
    forward_gathers, backward_gathers = (pick(zero >= 3, each, else_) for else_ in (1.0 * (zero >= 1), 0.0))
    reduce, gather, tied = (add_up(t.total for t in timed["step", x]) for x in ("reduce", "gather", "tied"))
    in_forward, in_backward = forward_gathers * gather, backward_gathers * gather + reductions * reduce
    t, root = trained_of(s, c), (zero >= 2) & (e.room.root and not e.habits.zero_one)
    tables = pick(root, t.ends, smaller(tm.end_params(c.model, c.mapping)[0], t.ends)) / larger(t.dense + t.experts, 1)
    first, last = (x * (tables + (1.0 - tables) / ceil(c.model.layers / pp)) for x in (gather, reduce))
    left_f = larger(in_forward - larger(forward_gathers, 1.0) * micro.forward, first * forward_gathers)
    left_b = larger(in_backward - reductions * micro.backward, last)
    if unsynced.any():  # other passes gather and reduce nothing
        alone = larger(backward_gathers - reductions, 0.0)
        left_b = larger(in_backward - alone * gather - reductions * micro.backward, last)
        left_b = left_b + alone * larger(gather - micro.backward, 0.0)
    shown_f = left_f if e.overlaps.param_overlap else pick(zero >= 3, left_f, in_forward)  # fetched ahead of each layer
    shown_b = left_b if e.overlaps.grad_overlap else in_backward
    gathers, after = forward_gathers + backward_gathers, tied  # after: what shows of tied and of rings
    if s.efficiency.mode == "calibrated" and s.cluster.device.measured is None:  # one's own links are as measured
        tiers, owners, both = s.cluster.tiers, e.habits.owners, (timed["step", "gather"], timed["step", "reduce"])
        once = [add_up(ring_wait(t.node, tiers, owners) for t in x if isinstance(t.node, Comm)) for x in both]
        after = tied + gathers * once[0] + reductions * once[1]
    return Sync(in_forward + in_backward + after, shown_f + shown_b + after, reductions, gathers)


HOST_UPDATE = 65e9
"""Bytes/s of an update in a host's memory: the middle of five published, 59 to 76e9 (docs/decisions/0187). CPU-Adam
alone reached 110e9 on a DGX-2 (ZeRO-Offload, arXiv 2101.06840, table 4); one thread a rank is far slower."""
HOST_DEVICES = 8
"""Most devices that share a host's memory, where the first tier joins more."""


def offload_time(s: Scenario, c: Context, m: Num, compute: Num, update: Sequence[Timed]) -> Num:
    """Seconds that moving to and from host memory adds beside m micro-batches of `compute` s, and updating there.

    Optimiser: the CPU moves the bytes of the update (`HOST_UPDATE`, shared by the devices of a host), weights come back
    once a step; gradients go out each micro-batch, and back to be added to (DeepSpeed, stage3.py, partition_grads).
    Weights as stored, frozen ones too: in twice a micro-batch, of ZeRO 3 each rank its share (ZeRO-Infinity, arXiv
    2104.07857, section 6.1); activations: out and in. These three hide behind compute."""
    t, p, bandwidth, tiers = s.training, s.mapping, s.cluster.host_bandwidth, s.cluster.tiers
    if all(is_plain(x, 0) for x in (t.offload_optimizer, t.offload_params, t.offload_activations)):
        return 0.0
    trained, held = trained_of(s, c), setup_of(s, c)
    shard = t.offload_optimizer * (trained.dense + trained.experts) / pick(p.zero >= 1, tm.shard_ranks(p), 1)
    sharing = smaller(smaller(tiers[0].size if tiers else 1, HOST_DEVICES), p.devices)
    updated = t.offload_optimizer * sum(x.node.bytes for x in update) * sharing / HOST_UPDATE
    moved = 2.0 * m * (weights_away(s, c) + t.offload_activations * held.layer.kept * ceil(c.model.layers / p.pp))
    moved = moved + shard * grad_bytes(s) * (2.0 * m - 1.0)
    return updated + shard * 2.0 / bandwidth + larger(moved / bandwidth - compute * m, 0.0)


PASSES = 3.0
"""Times that a byte passes the memory in a collective: read, written, and read again to be added up or used."""


def overlap_tax(s: Scenario) -> Num:
    """Compute seconds lost for each second of hidden data-parallel communication: the engine's value (SMs and memory
    bandwidth are shared), and inside a node at least the share of the memory's bandwidth that its links take.

    Source: arXiv 2507.03114 (training on four A100 or H100: kernels beside messages 18.9 % slower, 40 at most)."""
    m, tiers, real = s.mapping, s.cluster.tiers, 1.0 * (s.efficiency.mode == "calibrated")
    tax = real * s.engine.overlaps.overlap_tax
    if not tiers or tiers[0].kind not in DIRECT_KINDS:  # other links have engines of their own
        return tax
    taken = real * smaller(1.0, PASSES * tiers[0].bandwidth / s.cluster.device.dram.bandwidth)
    return pick(m.dp * m.cp * m.stride("cp") <= tiers[0].size, larger(tax, taken), tax)


@dataclass(frozen=True)
class TrainingStep:
    """One optimiser step of the slowest device, in s."""

    micro_batches: Num  # on one data-parallel rank
    crossings: Num  # messages of a micro-batch at each stage border
    timed: dict[Key, list[Timed]]  # its nodes
    micro: Micro
    sync: Sync
    once: dict[str, Num]  # s by what they go to, beside its micro-batches

    @cached_property
    def total(self) -> Num:
        """Seconds of the step."""
        return self.micro_batches * self.micro.slowest + add_up(self.once.values())

    @cached_property
    def parts(self) -> dict[str, Num]:
        """Seconds by what they go to; they sum to the step."""
        each = self.micro.parts | {"imbalance": self.micro.slowest - self.micro.mean}
        return by_name([*((name, self.micro_batches * x) for name, x in each.items()), *self.once.items()])


def time_step(s: Scenario, c: Context) -> TrainingStep:
    """A step: its micro-batches on the slowest stage, the bubble, what communication cannot hide, and the update."""
    m, e, count = s.mapping, s.engine, micro_batches(s)
    timed = {key: in_training(group, s) for key, group in time_groups(step_graph(s, c), s).items()}
    sections = {key: section(group) for key, group in timed.items() if key[0] in PHASES}
    micro = micro_batch_time(sections, s, c.model.layers)
    sync = sync_time(s, c, timed, micro, count)
    dgrad = larger(micro.backward - micro.wgrad, 0.0)
    flushes, tax, chunks = s.training.flushes, overlap_tax(s), schedule.chunks(m.schedule, m.vp)
    idle = schedule.bubble_time(m.schedule, m.pp, m.vp, micro.forward, dgrad, micro.wgrad)
    if e.habits.lockstep and s.efficiency.mode == "calibrated":
        idle = idle + schedule.table_time(m.pp, chunks, count / flushes, micro.forward, micro.backward)
    crossings = pick(m.pp > 1, 2.0 * chunks, 0.0)
    sends = 2.0 * (m.pp - 1) * flushes + (1.0 - e.overlaps.pp_overlap * (chunks > 1)) * count * crossings
    once = {
        "bubble": flushes * idle,
        "pp_comm": sends * add_up(t.total for t in timed["step", "send"]),
        "dp_comm": sync.exposed,
        "overlap_tax": 0.0 if is_plain(tax, 0) else tax * larger(sync.total - sync.exposed, 0.0),
        "optimizer": add_up(t.total for t in timed["step", "update"]) * (1.0 - s.training.offload_optimizer),
        "offload": offload_time(s, c, count, micro.mean, timed["step", "update"]),
        "host": e.host.step,
    }
    return TrainingStep(count, crossings, timed, micro, sync, once)
