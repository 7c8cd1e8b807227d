"""infer_scenario(scenario) -> InferenceFigures: prefill, decode and request, memory and fit, communication, energy and
cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.estimate.bounds import by_bound, largest
from rooflm.estimate.capacity import (
    Limits,
    Running,
    check,
    memory_use,
    running,
)
from rooflm.estimate.figures import Figures, Memory, figure
from rooflm.estimate.guessing import drafting, verifying
from rooflm.estimate.memory import weight_bytes
from rooflm.estimate.offloaded import decode_seconds, device_part, prompt_seconds
from rooflm.estimate.step import Step, add_up, prompt_issue, step, unfitted, volumes
from rooflm.graph.forward import Context, Decode, Pass, Prefill, build
from rooflm.graph.ops import Comm, Op
from rooflm.kernels.dispatch import own_factor
from rooflm.kernels.rates import Rates, rates
from rooflm.kernels.roofline import Timed, time_nodes
from rooflm.scenario.mapping import Mapping as Split
from rooflm.scenario.rules import INFERENCE, flags
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, floor, larger


@dataclass(frozen=True, eq=False, repr=False)
class InferenceFigures(Figures):
    """What is predicted; every number is SI and may be an array with one dimension an axis.

    ttft: time to the first token of the batch (s); tpot: time per output token averaged over the output (s), tpot_end:
    at its end; latency: the whole request (s); prefill_parts, decode_parts: name -> s, summing to ttft and tpot;
    comm_bytes: sent by one GPU in the prefill and in a decode step; waves: rounds in which the batch runs (1 unless the
    engine queues what does not fit; ttft is then the first round's). See docs/nomenclature.md.
    """

    ttft: Num
    tpot: Num
    tpot_end: Num
    latency: Num
    output_tokens_per_s: Num
    output_tokens_per_s_per_gpu: Num
    requests_per_s: Num
    memory: Memory
    fits: Num
    max_batch: Num
    limits: Limits
    comm_bytes: dict[str, Num]
    comm_detail: dict[str, dict[str, Num]]
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    passes: dict[str, Step]
    cost_per_million_tokens: Num
    gpus: Num
    waves: Num
    running: Running
    scenario: Scenario
    timed: dict[str, tuple[Timed, ...]]

    @cached_property
    def lighter(self) -> Step:
        """The decode pass of the micro-batches of a pipeline that hold one sequence less than the largest."""
        s, run = self.scenario, self.running
        if not np.any(run.fuller):
            return self.passes["decode"]
        fewer = run._replace(micro=floor(run.sequences / run.flight))
        timed = timed_nodes(decode_nodes(s, fewer), s)
        return decode_step(s, timed, rates(s), fewer)

    def in_step(self, name: str) -> Num:
        """A count of a pass (Step's `name`) over all micro-batches of a decode step, mean over the output."""
        fuller, axes = self.running.fuller, self.scenario.axes
        other = (self.running.flight - fuller) * mean_step(getattr(self.lighter, name), axes)
        return other + fuller * mean_step(getattr(self.passes["decode"], name), axes)

    def _whole(self, name: str) -> Num:
        """A count of a pass (Step's `name`) over the whole request, all waves and stages (not of what guesses)."""
        steps = larger(self.scenario.workload.output - 1, 0) / self.gained
        prefill = self.running.passes * getattr(self.passes["prefill"], name)
        return self.waves * (prefill + steps * self.in_step(name))

    @cached_property
    def gained(self) -> Num:
        """Tokens that a sequence gains in a decode step: 1 without speculative decoding."""
        spec = self.scenario.speculation
        return 1.0 if spec.off else self.plainly(spec.gained)

    @cached_property
    def _peaks(self) -> tuple[Num, Num]:
        """FLOP/s in the data type of the products, and B/s, of all stages together."""
        s = self.scenario
        device = s.cluster.device
        return s.mapping.pp * device.peak[rates(s).dtype["quant"]], s.mapping.pp * device.dram.bandwidth

    @figure
    def mfu(self) -> Num:
        """Model FLOP/s over peak, whole request."""
        return self._whole("flops") / (self.latency * self._peaks[0])

    @figure
    def mbu(self) -> Num:
        """Memory bandwidth over peak, whole request."""
        return self._whole("bytes") / (self.latency * self._peaks[1])

    @figure
    def prefill_mfu(self) -> Num:
        """Model FLOP/s over peak, prefill."""
        return self.running.passes * self.passes["prefill"].flops / (self.ttft * self._peaks[0])

    @figure
    def decode_mbu(self) -> Num:
        """Memory bandwidth over peak, decode."""
        return self.in_step("bytes") / (self.tpot * self.gained * self._peaks[1])

    @figure
    def busy(self) -> Num:
        """Share of time with a kernel running."""
        return self._whole("busy") / self.scenario.mapping.pp / self.latency

    @figure
    def energy_per_token(self) -> Num:
        """Joules an output token (of a model that embeds: of a prompt's token), all GPUs."""
        s = self.scenario
        energy = self.gpus * (s.cluster.device.idle * self.latency + self._whole("dynamic") / s.mapping.pp)
        return energy / s.asked

    @figure
    def power(self) -> Num:
        """Mean watts of one GPU."""
        return self.energy_per_token * self.scenario.asked / (self.latency * self.gpus)

    @figure
    def bound(self) -> dict[str, Num]:
        """What bounds the prefill and the decode step: the label with the largest share of the time."""
        phases = self.passes if self.scenario.model.head else ("prefill",)
        return {k: bound_of(self.timed[k], self.passes[k], self.scenario.axes) for k in phases}

    @figure
    def parts(self) -> dict[str, Num]:
        """Seconds of the whole request by part; sums to latency."""
        steps = larger(self.scenario.workload.output - 1, 0)
        names = dict.fromkeys((*self.prefill_parts, *self.decode_parts))
        return {n: (self.prefill_parts.get(n, 0.0) + steps * self.decode_parts.get(n, 0.0)) * self.waves for n in names}


OUTPUT_SHARES = np.array([0.0, 0.5, 1.0])
"""Shares of the output after which the decode step is evaluated: its first, middle and last step."""


def prefill_context(s: Scenario, run: Running) -> Context:
    """One of the passes that the prompts take."""
    w = s.workload
    sequences = run.sequences / run.passes
    rows = sequences * (w.new if w.logits == "all" else 1)
    work = Pass(Prefill(sequences, w.new, w.cached), None, rows)
    return Context(s.model.scaled(), work, s.mapping, s.quant, s.engine.kernels, adapters=s.adapters)


def decode_nodes(s: Scenario, run: Running) -> list[Op | Comm]:
    """The nodes of the decode pass, which with speculative decoding verifies several tokens a sequence."""
    return verifying(build(decode_context(s, run)), s, lambda rows: build(decode_context(s, run, rows)))


def decode_context(s: Scenario, run: Running, rows: Num = 1) -> Context:
    """The decode pass of the largest micro-batch, at the first, middle and last context: a leading axis of 3. rows: of
    each sequence."""
    w = s.workload
    first = w.prompt + 1
    last = w.prompt + larger(w.output - 1, 1)
    contexts = first + (last - first) * OUTPUT_SHARES.reshape((3,) + (1,) * s.axes)
    work = Pass(None, Decode(run.micro * rows, contexts, rows), run.micro * rows)
    return Context(s.model.scaled(), work, s.mapping, s.quant, s.engine.kernels, adapters=s.adapters)


def mean_step(x: Num, axes: int) -> Num:
    """Average over the output of a per-step number that may carry the leading context axis (Simpson's rule).

    Exact for step times cubic in the context.

    >>> float(mean_step(np.array([1.0, 2.0, 3.0]), 0))
    2.0
    """
    if not isinstance(x, np.ndarray) or x.ndim <= axes:
        return x
    first, middle, last = x if axes else x.tolist()
    return (first + 4.0 * middle + last) / 6.0


def last_step(x: Num, axes: int) -> Num:
    """The last step's value of a per-step number that may carry the leading context axis."""
    return x[-1] if isinstance(x, np.ndarray) and x.ndim > axes else x


class Passes(NamedTuple):
    """The timed nodes of a prefill pass and of a decode step."""

    prefill: list[Timed]
    decode: list[Timed]


def timed_passes(s: Scenario, run: Running) -> Passes:
    """Both passes built and timed together."""
    prefill, decode = build(prefill_context(s, run)), decode_nodes(s, run)
    timed = timed_nodes([*prefill, *decode], s)
    return Passes(timed[: len(prefill)], timed[len(prefill) :])


def timed_nodes(nodes: Sequence[Op | Comm], s: Scenario) -> list[Timed]:
    """Nodes timed, each kind of kernel times what the engine takes over a measured one."""
    if s.efficiency.mode != "calibrated":
        return time_nodes(nodes, s)
    return time_nodes(nodes, s, partial(own_factor, f=s.engine.factors))


class Speed(NamedTuple):
    """Times of a request: one pass of each phase, their parts (s), totals (s); latency covers all waves."""

    one: Step
    tick: Step
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    ttft: Num
    tpot: Num
    latency: Num


def host_of(s: Scenario) -> Engine:
    """The engine whose host costs count: as fitted where efficiency is calibrated."""
    return s.engine if s.efficiency.mode == "calibrated" else unfitted(s.engine)


def decode_step(s: Scenario, timed: Sequence[Timed], r: Rates, run: Running) -> Step:
    """The time of a decode pass of one micro-batch."""
    e = host_of(s)
    tick = step(timed, e, s.cluster.device, r, e.host.issue_decode, run.micro)
    return (
        tick if e.residuals is None else scaled(tick, e.residuals.factor("decode", place(s, "decode", run.sequences)))
    )


def speed(s: Scenario, timed: Passes, r: Rates, run: Running) -> Speed:
    """Timed passes and the engine's host costs -> TTFT, TPOT and latency."""
    e, m = host_of(s), s.mapping
    sequences = run.sequences / run.passes
    issue = prompt_issue(e, sequences * s.workload.new)
    one = step(timed.prefill, e, s.cluster.device, r, issue, sequences, e.factors.prompt)
    # passes follow each other through the stages: the times of all at one stage, of the largest at the others
    overlapped = (run.passes + (m.pp - 1) * run.fullest) / m.pp if e.stages.pipelined else run.passes
    repeat = overlapped + e.stages.pipeline_loss * (run.passes - overlapped)
    prefill_parts = {k: v * repeat for k, v in one.parts.items()}
    prefill_parts["request"] = e.host.request + e.host.front + e.host.tokenise * s.workload.prompt
    tick = decode_step(s, timed.decode, r, run)
    if e.residuals is not None:
        own = e.residuals.factor("prefill", place(s, "prefill", run.sequences))
        prefill_parts = {k: v * own for k, v in prefill_parts.items()}
    if not s.offload.off:
        prefill_parts["host layers"] = run.passes * prompt_seconds(s, run.sequences * s.workload.new / run.passes)
    ttft = add_up(prefill_parts.values())
    decode_parts = {k: mean_step(v, s.axes) for k, v in tick.parts.items()}
    if not s.offload.off:
        context = s.workload.prompt + s.workload.output / 2
        decode_parts["host layers"] = decode_seconds(s, run.sequences * s.speculation.verified, context)
    if not s.speculation.off:
        guess = guessing_time(s, run)
        decode_parts = {**decode_parts, "guesses": guess}
        decode_parts = {k: v / s.speculation.gained for k, v in decode_parts.items()}
    tpot = add_up(decode_parts.values())
    latency = (ttft + larger(s.workload.output - 1, 0) * tpot) * run.waves
    return Speed(one, tick, prefill_parts, decode_parts, ttft, tpot, latency)


def guessing_time(s: Scenario, run: Running) -> Num:
    """Seconds that the guesses of a step take, one pass of what guesses after the other."""
    d = drafting(s)
    tick = decode_step(d, timed_nodes(build(decode_context(d, run)), d), rates(d), run)
    return s.speculation.guesses * add_up(mean_step(v, s.axes) for v in tick.parts.values())


ALONE = Split()
"""One device."""


def place(s: Scenario, phase: str, sequences: Num) -> tuple[Num, ...]:
    """Where a scenario lies on `residuals.AXES`: logarithms of sequences that run at once, tokens (of the prompt, or of
    the middle context when decoding), bytes of weights, and devices that share them."""
    w, m = s.workload, s.mapping
    tokens = w.new if phase == "prefill" else w.prompt + larger(w.output - 1, 1) / 2
    values = (sequences, tokens, weight_bytes(s.model, ALONE, s.quant), m.tp * m.pp * m.cp)
    return tuple(np.log(larger(v, 1e-9)) for v in values)


def scaled(one: Step, factor: Num) -> Step:
    """A pass that takes `factor` times as long in every part."""
    parts = {k: v * factor for k, v in one.parts.items()}
    return replace(one, total=one.total * factor, parts=parts, busy=one.busy * factor, packed=one.packed * factor)


def infer_scenario(s: Scenario, broken: Mapping[str, Num] | None = None) -> InferenceFigures:
    """Predict inference of one scenario (or, where its numbers are arrays, of every point of the grid).

    broken: the rules that it breaks (`rules.flags`), where that is known already.
    Never raises for an infeasible point: `fits` and `reason` say so. Units: SI.
    """
    w, m, device = s.workload, s.mapping, s.cluster.device
    held = device_part(s)
    run = running(held)
    timed = timed_passes(held, run)
    one, tick, prefill_parts, decode_parts, ttft, tpot, latency = speed(s, timed, rates(s), run)
    dims = s.axes
    tpot_end = last_step(tick.total, dims) + decode_parts.get("host layers", 0.0)
    if not s.speculation.off:
        tpot_end = tpot_end / s.speculation.gained + decode_parts["guesses"]
    if not s.model.head:
        tpot, tpot_end, decode_parts = np.nan * tpot, np.nan * tpot, {}
    gpus = m.devices
    memory = memory_use(held, need=run.need)
    limits = check(flags(s, INFERENCE) if broken is None else broken, memory.total, memory.capacity)
    per_pass = {k: v * (run.passes * run.waves) for k, v in volumes(timed.prefill, m.pp).items()}
    # messages are as long as their sequences are many, so that those of the largest micro-batch stand for all
    per_step = {k: mean_step(v, dims) * (run.sequences / run.micro) for k, v in volumes(timed.decode, m.pp).items()}
    rate = w.batch * w.output / latency
    return InferenceFigures(
        ttft=ttft,
        tpot=tpot,
        tpot_end=tpot_end,
        latency=latency,
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=rate / gpus,
        requests_per_s=w.batch / latency,
        memory=memory,
        fits=~limits.broken,
        max_batch=run.largest,
        limits=limits,
        comm_bytes={"prefill": sum(per_pass.values()) + 0.0, "decode": s.model.head * sum(per_step.values()) + 0.0},
        comm_detail={"prefill": per_pass, "decode": per_step},
        prefill_parts=prefill_parts,
        decode_parts=decode_parts,
        passes={"prefill": one, "decode": tick},
        cost_per_million_tokens=device.price / 3600 * gpus / (s.asked / latency) * 1e6,
        gpus=gpus,
        waves=run.waves,
        running=run,
        scenario=s,
        timed={"prefill": tuple(timed.prefill), "decode": tuple(timed.decode)},
    )


def bound_of(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> Num:
    """What bounds the pass: the label with the largest share of its time, the host included."""
    return largest(bound_shares(timed, pass_, dims))


def bound_shares(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> dict[str, Num]:
    """Seconds of a pass by what bounds them: compute, each memory level, overhead, network, host."""
    shares = {name: value * pass_.packed for name, value in by_bound(timed).items()}
    shares["overhead"] = shares["overhead"] + pass_.parts["gaps"]
    shares["host"] = pass_.parts["host"]
    return {k: mean_step(v, dims) for k, v in shares.items()}
