"""What fits: memory of the fullest device when serving, the largest batch, rounds of a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.hardware import Device
from rooflm.estimate import memory as mem
from rooflm.estimate.contexts import Contexts, contexts_of
from rooflm.estimate.figures import Memory
from rooflm.estimate.step import add_up
from rooflm.kernels.collectives import IN_SWITCH_KINDS
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, floor, highest, larger, pick, smaller


class Needs(NamedTuple):
    """Bytes that the fullest device needs."""

    weights: Num
    sequence: Num  # KV cache of one sequence at its full length
    token: Num  # activations of one token of a pass
    logit: Num  # logits of one sequence
    copy: Num = 0.0  # second copy of a sequence's cache that an eager update holds for a moment
    trial: Num = 0.0  # `trial_bytes`, in place of a pass's own; without one the experts that a pass spreads
    kept: Num = 0.0  # `kept_bytes`, of which a pass takes its own

    @property
    def taken(self) -> Num:
        """1 where activations and logits take of what the cache would have, else 0."""
        return pick(self.kept > 0, 0.0, 1.0)


def needs(s: Scenario) -> Needs:
    """The memory that a scenario needs, a sequence and a token at a time."""
    one = replace(s.mapping, pp=1) if s.engine.stages.even_stages else s.mapping  # even ones hold the same each
    layout, spread = mem.layout_bytes(s, one)
    weights = (mem.weight_bytes(s.model, one, s.quant) + layout) / (s.mapping.pp / one.pp)
    trial = trial_bytes(s, spread)
    own = pick(trial > 0, 0.0, 1.0)
    token, logit = own * token_bytes(s), (1 if s.workload.logits == "all" else own) * logit_bytes(s)
    if not s.model.head:  # what a prompt gives leaves with its pass
        token, logit = token + logit / s.workload.new, 0.0
    # torch.cat of an eager update writes a layer's cache anew while the old one is still there (docs/decisions/0046)
    sequence, k = sequence_bytes(s), s.engine.kernels
    copy = 0.0 if k.fused or k.epilogue or k.rope_inside else sequence / ceil(s.model.scaled.layers / s.mapping.pp)
    need = Needs(weights, sequence, token, logit, copy, trial + own * spread, kept_bytes(s))
    if s.speculation.off:
        return need
    some = np.asarray(s.speculation.guesses) > 0
    return need._replace(
        weights=weights + some * guessing_bytes(s), sequence=need.sequence + some * sequence_bytes(s.draft)
    )


def guessing_bytes(s: Scenario) -> Num:
    """Bytes of weights on a device that guess: those of the draft model, or of the model's own prediction layers, split
    as its last layer is (one layer where the checkpoint has none)."""
    d, size = s.draft, float(s.model.mtp_params)
    whole = mem.weight_bytes(d.model, d.mapping, d.quant)
    if s.speculation.draft is not None:
        return whole
    two = replace(d.model, blocks=tuple(replace(b, count=2) for b in d.model.blocks))
    layers = size / (two.parameters - d.model.parameters) if size else 1.0
    return layers * (mem.weight_bytes(two, d.mapping, d.quant) - whole)


class Running(NamedTuple):
    """The sequences of a batch that run at the same time."""

    need: Needs
    largest: Num  # batch that fits
    waves: Num  # rounds in which the batch runs
    sequences: Num  # at once on the fullest data-parallel rank
    passes: Num  # with their prompts, under the engine's token budget
    full: Num  # sequences of all passes but the last (of one prompt, a share of one)
    rest: Num  # of the last
    flight: Num  # micro-batches in the pipeline during a decode step, at most one a stage and one a sequence
    micro: Num  # sequences of the largest one
    contexts: Contexts  # of a decode step

    @property
    def fuller(self) -> Num:
        """Micro-batches that hold `micro` sequences; the others hold one less."""
        return self.sequences - self.flight * floor(self.sequences / self.flight)


def most_in_flight(s: Scenario) -> Num:
    """Most micro-batches in the pipeline at once: one a stage where the engine's stages overlap, else one."""
    asked = s.mapping.in_flight
    return smaller(pick(asked > 0, asked, s.mapping.pp if s.engine.stages.pipelined else 1), s.mapping.pp)


def running(s: Scenario) -> Running:
    """What runs at once. Rounds of a batch that the engine queues (`waves`) are taken as equally full: a step's time is
    close to linear in its sequences, so only their number counts. It is whole where a round's sequences end together;
    an engine that evicts for want of memory (vLLM) has them out of step, and the next start as soon as one ends.

    Passes with prompts take the whole budget (of a pipeline, `stage_tokens`), the last one what is left over."""
    e, m = s.engine, s.mapping
    need = needs(s)
    largest, limit = max_batch(s, need), running_limit(s)
    at_once = larger(smaller(largest, limit), m.dp)
    shares = larger(s.workload.batch / at_once, 1.0)
    evicts = (e.server.scheduler != "no-evict") & (largest < limit)
    rounds: Num = pick(evicts, shares, ceil(shares)) if e.room.waves else 1
    sequences = ceil(s.workload.batch / m.dp) / rounds  # of the fullest data-parallel rank
    tokens = sequences * s.workload.new
    budget = smaller(e.room.token_budget, pick(m.pp > 1, e.stages.stage_tokens, np.inf))
    passes = larger(ceil(tokens / budget), 1.0)
    flight = smaller(most_in_flight(s), larger(floor(sequences), 1))
    full = smaller(highest(tokens), budget) / s.workload.new  # whatever the batch, where there are several passes
    rest = sequences - (passes - 1) * full
    micro = ceil(sequences / flight)
    return Running(need, largest, rounds, sequences, passes, full, rest, flight, micro, contexts_of(s))


def memory_use(s: Scenario, batch: Num | None = None, need: Needs | None = None) -> Memory:
    """Memory of the fullest device when `batch` sequences (default: the workload's) have reached their full length.

    The capacity is the engine's share of the device, less what it keeps free. need: `needs(s)`, where it is known."""
    e, m, each = s.engine, s.mapping, needs(s) if need is None else need
    sequences = ceil((s.workload.batch if batch is None else batch) / m.dp)
    parts = {"weights": each.weights}
    if not s.adapters.off:
        parts["adapters"] = mem.adapter_bytes(s.model, m, s.adapters)
    parts["kv_cache"] = sequences * each.sequence
    largest = smaller(sequences * s.workload.new, e.room.token_budget) / m.cp  # new tokens of a pass
    largest = larger(largest, sequences) if s.model.head else largest
    parts["activations"] = each.trial + largest * each.token + sequences * each.copy
    parts["logits"] = sequences * each.logit
    parts["context"], parts["workspace"] = fixed_buffers(s)
    total, size = add_up(parts.values()), usable(s.cluster.device) * pick(each.kept > 0, 1.0, e.room.memory_fraction)
    size = size - pick(each.kept > 0, each.kept - parts["activations"] - parts["logits"], 0.0)
    rest = total - parts["kv_cache"]
    return Memory(parts, total, rest + e.room.free_fraction * (size - rest))


def fixed_buffers(s: Scenario) -> tuple[Num, Num]:
    """Bytes of context and fixed buffers, and of two buckets or one (ZeRO 3); no communicators of one device."""
    e, m, room, tiers = s.engine, s.mapping, s.engine.room, s.cluster.tiers
    share, switched = pick(m.devices > 1, 1.0, room.alone), tiers and tiers[0].kind in IN_SWITCH_KINDS
    bucket = pick(room.in_buckets & (e.habits.bucket < np.inf), 2.0 * e.habits.bucket, 0.0)
    buckets = bucket * (1 + e.overlaps.grad_overlap * (m.zero < 3))
    return room.context * share, room.workspace * share + pick(m.tp > 1, room.in_switch * bool(switched), 0.0) + buckets


def usable(device: Device) -> Num:
    """Bytes of a device's memory that programs may use: all but what the operating system takes of a shared memory."""
    return device.dram.size - device.system_memory


def sequence_bytes(s: Scenario) -> Num:
    """Bytes of one sequence's cache and state at its full length, on the fullest device (context ranks share)."""
    whole = (s.workload.prompt + s.workload.output) / s.mapping.cp
    return mem.kv_bytes_per_sequence(s.model, s.mapping, s.quant, whole, s.engine.room)


def token_bytes(s: Scenario) -> Num:
    """Bytes a token of a pass: residual, its norm, the widest layer, scores if unfused."""
    half = s.quant.half_bytes
    scores = 0.0 if s.engine.kernels.flash else mem.score_bytes(s.model, s.mapping, s.workload.prompt, half)
    return (2 * s.model.scaled.hidden + mem.layer_widths(s.model, s.mapping)) * half + scores


def trial_bytes(s: Scenario, spread: Num) -> Num:
    """Bytes of the trial of an engine's largest pass, beside which it takes the rest for its cache: of the pass, with
    experts that it spreads, or of sampling for all that may run (logits whole on every rank). 0: none, or no head."""
    room, tries = s.engine.room, (s.engine.room.sampled > 0) * s.model.head
    budget = pick(room.token_budget < np.inf, room.token_budget, 0.0)
    sampled = room.sampled * smaller(room.max_sequences, budget) * s.model.vocab
    return tries * larger(budget * token_bytes(s) + spread, 2 * budget * s.model.hidden * s.quant.half_bytes + sampled)


def kept_bytes(s: Scenario) -> Num:
    """Bytes beside weights and cache that an engine keeps for passes and all else, where these two have a share of what
    is free before the weights are loaded (`static_fraction`); 0 where they have not."""
    static = s.engine.server.static_fraction
    rest = larger(1.0 - static, 1e-9)  # above 0: a share of all is a share, too
    return pick(static > 0, rest * (usable(s.cluster.device) - sum(fixed_buffers(s))), 0.0)


def logit_bytes(s: Scenario) -> Num:
    """Bytes of logits a sequence (of one token or of all) with their fp32 copy; without a head of its embedding."""
    rows = s.workload.new if s.workload.logits == "all" else 1
    width = ceil(s.model.vocab / s.mapping.tp) if s.model.head else s.model.scaled.hidden
    return rows * width * (s.quant.half_bytes + 4.0)


def max_batch(s: Scenario, need: Needs | None = None) -> Num:
    """The largest batch that fits in memory, or 0; infinite where passes leave nothing behind (no cache, no output).
    Memory is piecewise linear in the batch: its slope changes at the token budget, and where a pass has more sequences
    than prompt tokens. need: `needs(s)`, if the caller has it."""
    each_needs = needs(s) if need is None else need
    fixed = memory_use(s, 0.0, each_needs)
    free = (fixed.capacity - fixed.total) / s.engine.room.free_fraction
    new, budget = s.workload.new / s.mapping.cp, s.engine.room.token_budget / s.mapping.cp
    token, logit = each_needs.token * each_needs.taken, each_needs.logit * each_needs.taken
    each = each_needs.sequence / s.engine.room.free_fraction + logit + each_needs.copy
    below = free / larger(each + new * token, 1.0)
    rest = pick(budget < np.inf, free - pick(budget < np.inf, budget, 0) * token, -1.0)  # beside a full pass
    above = pick(each > 0, rest / larger(each, 1.0), pick(rest > 0, np.inf, 0.0))
    most = smaller(larger(below, above), free / (each + token) if s.model.head else np.inf)
    return larger(floor(most), 0.0) * s.mapping.dp


def running_limit(s: Scenario) -> Num:
    """Sequences in all that the engine runs at a time, whatever the memory."""
    return s.engine.room.max_sequences * s.mapping.dp
