"""The times of a request: both passes of what runs at once, TTFT, TPOT and latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import words_in
from rooflm.estimate.capacity import Running, most_in_flight
from rooflm.estimate.memory import beside_window
from rooflm.estimate.offloaded import decode_seconds, prompt_seconds
from rooflm.estimate.step import Step, add_up, captured, eager_shares, graphed, issue_time, launches, step, unfitted
from rooflm.graph.context import Context, Decode, Pass, Prefill
from rooflm.graph.forward import build
from rooflm.graph.ops import DECODE_ATTENTION, Comm, Op
from rooflm.kernels.expert_kernels import spread_calls
from rooflm.kernels.rates import Rates, rates
from rooflm.kernels.roofline import Timed, time_groups, time_nodes
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, floor, highest, is_plain, larger, pick, smaller


def prefill_context(s: Scenario, sequences: Num) -> Context:
    """One of the passes that the prompts take, of so many sequences, or of a part of one behind half of the others."""
    w, part = s.workload, smaller(sequences, 1.0)
    rows = sequences * (w.new if w.logits == "all" else 1)
    prompts = Prefill(sequences / part, w.new * part, w.cached + w.new * (1.0 - part) / 2.0)
    return served_context(s, Pass(prompts, None, rows))


def served_context(s: Scenario, work: Pass) -> Context:
    """A pass of the scenario's model in its engine."""
    beside = beside_window(s.engine.room)
    return Context(s.model.scaled, work, s.mapping, s.quant, s.engine.kernels, adapters=s.adapters, beside=beside,
                   head_kept=s.engine.room.head_kept)  # fmt: skip


def decode_nodes(s: Scenario, run: Running) -> list[Op | Comm]:
    """The nodes of the decode pass, which with speculative decoding verifies several tokens a sequence: attention still
    reads a sequence's cache only once."""
    plain, rows = build(decode_context(s, run)), s.speculation.verified
    if s.speculation.off:
        return plain
    wide = zip(plain, build(decode_context(s, run, rows)), strict=True)
    kinds = DECODE_ATTENTION
    return [a._replace(flops=a.flops * rows) if isinstance(a, Op) and a.kind in kinds else b for a, b in wide]


def decode_context(s: Scenario, run: Running, rows: Num = 1) -> Context:
    """The decode pass of the largest micro-batch, of `rows` tokens a sequence, at its contexts."""
    return served_context(s, Pass(None, Decode(run.micro * rows, run.contexts.tokens, rows), run.micro * rows))


class Passes(NamedTuple):
    """Timed nodes of the last prefill pass, of a decode step and, where it differs from the last, of a full one."""

    last: list[Timed]
    decode: list[Timed]
    full: list[Timed]


def timed_passes(s: Scenario, run: Running) -> Passes:
    """All passes built and timed together."""
    full = build(prefill_context(s, run.full)) if highest((run.passes > 1) & (run.rest != run.full)) else []
    nodes = {"last": build(prefill_context(s, run.rest)), "decode": decode_nodes(s, run), "full": full}
    return Passes(**time_groups(nodes, s, s.engine.factors))


class Speed(NamedTuple):
    """Times of a request (s)."""

    prompts: list[tuple[Step, Num]]  # prefill passes, each with how many there are
    decode: Step  # a decode step
    repeat: Num  # time of the prefill passes until the first token over their sum
    before: dict[str, Num]  # further seconds before the first token, by part
    extra: dict[str, Num]  # further seconds of each decode step, by part
    ttft: Num
    tpot: Num
    latency: Num  # of all rounds of the batch


def host_of(s: Scenario) -> Engine:
    """The engine whose host costs apply: as fitted where efficiency is calibrated, else `unfitted`."""
    return s.engine if s.efficiency.mode == "calibrated" else unfitted(s.engine)


def every_pass(s: Scenario, e: Engine) -> Num:
    """Host time of a pass, whatever runs in it: the step's, of messages between stages (from each to the next, and one
    back to the first), and of ranks that are processes of their own."""
    h, m = e.host, s.mapping
    sent = 0.0 if is_plain(h.message, 0.0) else h.message * pick(m.pp > 1, m.pp, 0.0)
    return h.step + sent + (0.0 if is_plain(h.remote, 0.0) else h.remote * (m.tp > 1))


def turns(s: Scenario, micro: Num) -> Num:
    """Hosts' parts of a pass of so many micro-batches where stages wait (`waits`): one stage hands tokens on when it
    has processed them, so that a micro-batch is behind the parts of all stages but one (docs/decisions/0520)."""
    pp = s.mapping.pp
    return pick(pp > 1, larger(pp, micro * (pp - 1)), 1.0) if "stages" in words_in(s.engine.host.waits) else 1.0


def decode_step(s: Scenario, timed: Sequence[Timed], run: Running) -> Step:
    """The time of a decode pass of one micro-batch."""
    e = host_of(s)
    issue = issue_time(e, run.micro, graphed(e, run.contexts.tokens), launching=s.cluster.launching)
    each = e.host.sequence + e.host.listed * run.contexts.tokens / e.room.block
    tick = step(timed, e, s.cluster.device, issue, (run.micro * each + every_pass(s, e)) * turns(s, run.flight))
    if e.residuals is None:
        return tick
    k = e.residuals.factor("decode", s, run.sequences)
    return replace(tick, total=tick.total * k, device_time=tick.device_time * k, slower=tick.slower * k)


def prefill_step(s: Scenario, timed: Sequence[Timed], run: Running, sequences: Num) -> Step:
    """The time of a pass with so many prompts."""
    e = host_of(s)
    experts, held = eager_shares(timed, s), captured(e.host, s)
    issue = issue_time(e, sequences * s.workload.new, held, experts, s.cluster.launching)
    fixed = (sequences * e.host.sequence + every_pass(s, e)) * turns(s, smaller(run.passes, most_in_flight(s)))
    return step(timed, e, s.cluster.device, issue, fixed, prompts=True)


def stalls(s: Scenario, timed: Sequence[Timed], r: Rates, passes: Num) -> Num:
    """Waiting of a prompt's passes in a pipeline, in times of a mean stage: for the first stage, which has a layer more
    where the head counts as one, and for the one host that issues the stages' kernels in turn. Where the launch queue
    holds h passes of a stage (none where it waits for a router's choice), floor(h) + 1 passes start in turn, and the
    next one waits pp - first - h."""
    e, pp, layers = s.engine, s.mapping.pp, s.model.scaled.layers
    first = smaller(ceil((layers + 1) / pp), layers) * pp / layers if e.stages.even_stages else 1.0
    products = [t.node for t in timed if isinstance(t.node, Op) and t.node.kind == "gemm"]
    narrow = add_up(p.count * p.launches * pick(p.widths[0] < 2, 1.0, 0.0) for p in products)
    chosen = [e.kernels.expert_looks + e.kernels.expert_waits + spread_calls(t.node.shape[0], s, r)
              for t in timed if isinstance(t.node, Op) and t.node.kind == "moe"]  # fmt: skip
    held = e.stages.queue * pp / (e.stages.commands * launches(timed) + narrow * (e.kernels.dequant > 0))
    held = pick(add_up(chosen) > 0, 0.0, held)
    return (passes - 1) * (first - 1) + floor((passes - 1) / (floor(held) + 1)) * larger(pp - first - held, 0.0)


def speed(s: Scenario, timed: Passes, run: Running) -> Speed:
    """Timed passes and the engine's host costs -> TTFT, TPOT and latency."""
    e, m = host_of(s), s.mapping
    prompts: list[tuple[Step, Num]] = [(prefill_step(s, timed.last, run, run.rest), 1 if timed.full else run.passes)]
    if timed.full:
        prompts.append((prefill_step(s, timed.full, run, run.full), run.passes - 1))
    seconds = add_up(one.total * times for one, times in prompts)
    repeat: Num = 1.0
    if e.stages.pipelined and not is_plain(m.pp, 1):
        # passes follow each other through the stages: the times of all at one stage, of the largest at the others
        others = (m.pp - 1) * pick(run.passes > 1, prompts[-1][0].total, prompts[0][0].total) / seconds
        repeat = (1.0 + others + stalls(s, timed.last, rates(s), run.passes) / run.passes) / m.pp
    once = e.host.request + e.host.front + (e.host.tokenise + e.host.carry) * s.workload.prompt
    before: dict[str, Num] = {"request": s.cluster.answering * once}
    extra: dict[str, Num] = {}
    tick = decode_step(s, timed.decode, run)
    if e.residuals is not None:
        correction = e.residuals.factor("prefill", s, run.sequences)
        repeat, before = repeat * correction, {k: v * correction for k, v in before.items()}
    if not s.offload.off:
        context = s.workload.prompt + s.workload.output / 2
        before["host layers"] = run.passes * prompt_seconds(s, run.sequences * s.workload.new / run.passes)
        extra["host layers"] = decode_seconds(s, run.sequences * s.speculation.verified, context)
    if not s.speculation.off:
        d = s.draft
        draft = decode_step(d, time_nodes(build(decode_context(d, run)), d, d.engine.factors), run)
        extra["guesses"] = s.speculation.guesses * run.contexts.mean(draft.total)  # one after the other
    ttft = seconds * repeat + add_up(before.values())
    tpot = a_token(s, run.contexts.mean(tick.total), extra)
    latency = (ttft + larger(s.workload.output - 1, 0) * tpot) * run.waves
    return Speed(prompts, tick, repeat, before, extra, ttft, tpot, latency)


def a_token(s: Scenario, step_time: Num, extra: Mapping[str, Num]) -> Num:
    """Seconds of an output token: a decode step and its further parts, over the tokens that a sequence gains in it."""
    seconds = step_time + add_up(extra.values()) if extra else step_time
    return seconds if s.speculation.off else seconds / s.speculation.gained
