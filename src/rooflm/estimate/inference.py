"""infer_scenario(scenario) -> InferenceEstimate: prefill, decode and request, memory and fit, communication, energy and
cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rooflm.estimate.capacity import (
    Limits,
    Memory,
    check,
    max_batch,
    memory_use,
    needs,
    running_sequences,
    waves,
)
from rooflm.estimate.memory import weight_bytes
from rooflm.estimate.step import Step, add_up, prompt_issue, step, unfitted, volumes
from rooflm.graph.forward import Context, Decode, Pass, Prefill, build
from rooflm.graph.ops import Op
from rooflm.kernels.dispatch import own_factor
from rooflm.kernels.rates import Rates, rates
from rooflm.kernels.roofline import BOUNDS, Timed, time_nodes
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num


@dataclass(frozen=True)
class InferenceEstimate:
    """The answer; every number is SI and may be an array with one dimension an axis.

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
    limits: Limits = field(repr=False)
    comm_bytes: dict[str, Num]
    comm_detail: dict[str, dict[str, Num]]
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    passes: dict[str, Step] = field(repr=False)
    cost_per_million_tokens: Num
    gpus: Num
    waves: Num
    scenario: Scenario
    timed: dict[str, tuple[Timed, ...]] = field(repr=False)
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def reason(self) -> Num:
        """Why it cannot run: the first rule that a point breaks, or an empty text."""
        return self.limits.reason

    def _whole(self, name: str) -> Num:
        """A count of a pass (Step's `name`) over the whole request, all waves and stages."""
        w, m = self.scenario.workload, self.scenario.mapping
        steps = np.maximum(w.output - 1, 0) * self.waves * np.minimum(m.in_flight, m.pp)
        tick = mean_step(getattr(self.passes["decode"], name), self.scenario.axes)
        return prefill_passes(self.scenario) * self.waves * getattr(self.passes["prefill"], name) + steps * tick

    @cached_property
    def _peaks(self) -> tuple[Num, Num]:
        """FLOP/s in the data type of the products, and B/s, of all stages together."""
        s = self.scenario
        device = s.cluster.device
        return s.mapping.pp * device.peak[rates(s).dtype["quant"]], s.mapping.pp * device.dram.bandwidth

    @cached_property
    def mfu(self) -> Num:
        """Model FLOP/s over peak, whole request."""
        return self._whole("flops") / (self.latency * self._peaks[0])

    @cached_property
    def mbu(self) -> Num:
        """Memory bandwidth over peak, whole request."""
        return self._whole("bytes") / (self.latency * self._peaks[1])

    @cached_property
    def prefill_mfu(self) -> Num:
        """Model FLOP/s over peak, prefill."""
        return prefill_passes(self.scenario) * self.passes["prefill"].flops / (self.ttft * self._peaks[0])

    @cached_property
    def decode_mbu(self) -> Num:
        """Memory bandwidth over peak, decode."""
        m = self.scenario.mapping
        moved = np.minimum(m.in_flight, m.pp) * mean_step(self.passes["decode"].bytes, self.scenario.axes)
        return moved / (self.tpot * self._peaks[1])

    @cached_property
    def busy(self) -> Num:
        """Share of time with a kernel running."""
        return self._whole("busy") / self.scenario.mapping.pp / self.latency

    @cached_property
    def energy_per_token(self) -> Num:
        """Joules an output token, all GPUs."""
        s = self.scenario
        energy = self.gpus * (s.cluster.device.idle * self.latency + self._whole("dynamic") / s.mapping.pp)
        return energy / (s.workload.batch * s.workload.output)

    @cached_property
    def power(self) -> Num:
        """Mean watts of one GPU."""
        w = self.scenario.workload
        return self.energy_per_token * (w.batch * w.output) / (self.latency * self.gpus)

    @cached_property
    def bound(self) -> dict[str, Num]:
        """What bounds the prefill and the decode step: the label with the largest share of the time."""
        return {k: bound_of(self.timed[k], step_, self.scenario.axes) for k, step_ in self.passes.items()}

    @property
    def parts(self) -> dict[str, Num]:
        """Seconds of the whole request by part; sums to latency."""
        steps = np.maximum(self.scenario.workload.output - 1, 0)
        names = dict.fromkeys((*self.prefill_parts, *self.decode_parts))
        return {n: (self.prefill_parts.get(n, 0.0) + steps * self.decode_parts.get(n, 0.0)) * self.waves for n in names}


OUTPUT_SHARES = np.array([0.0, 0.5, 1.0])
"""Shares of the output after which the decode step is evaluated: its first, middle and last step."""


def prefill_passes(s: Scenario) -> Num:
    """Passes that the prompts of a rank take under the engine's token budget (chunked prefill, pipeline stages)."""
    new = s.workload.new
    most = np.where(np.asarray(s.mapping.pp) > 1, s.engine.stages.stage_tokens, np.inf)
    return np.maximum(np.ceil(running_sequences(s) * new / np.minimum(s.engine.room.token_budget, most)), 1)


def graphs(s: Scenario) -> tuple[Context, Context]:
    """The prefill pass and the decode pass (at the first, middle and last context: a leading axis of 3)."""
    w, m = s.workload, s.mapping
    sequences = running_sequences(s)
    passes = prefill_passes(s)
    new = w.new
    rows = sequences / passes * (new if w.logits == "all" else 1)
    prefill = Pass(Prefill(sequences / passes, new, w.cached), None, rows)
    first = w.prompt + 1
    last = w.prompt + np.maximum(w.output - 1, 1)
    contexts = first + (last - first) * OUTPUT_SHARES.reshape((3,) + (1,) * s.axes)
    flight = np.minimum(m.in_flight, m.pp)
    micro = np.ceil(sequences / flight)
    decode = Pass(None, Decode(micro, contexts), micro)
    model, k = s.model.scaled(), s.engine.kernels
    return Context(model, prefill, m, s.quant, k), Context(model, decode, m, s.quant, k)


def mean_step(x: Num, axes: int) -> Num:
    """Average over the output of a per-step number that may carry the leading context axis (Simpson's rule).

    Exact for step times cubic in the context.

    >>> float(mean_step(np.array([1.0, 2.0, 3.0]), 0))
    2.0
    """
    if not isinstance(x, np.ndarray) or x.ndim <= axes:
        return x
    return (x[0] + 4.0 * x[1] + x[2]) / 6.0


def last_step(x: Num, axes: int) -> Num:
    """The last step's value of a per-step number that may carry the leading context axis."""
    return x[-1] if isinstance(x, np.ndarray) and x.ndim > axes else x


class Passes(NamedTuple):
    """The timed nodes of a prefill pass and of a decode step."""

    prefill: list[Timed]
    decode: list[Timed]


def timed_passes(s: Scenario) -> Passes:
    """Both passes built and timed together, each kind of kernel times what the engine takes over a measured one."""
    prefill_context, decode_context = graphs(s)
    prefill_nodes, decode_nodes = build(prefill_context), build(decode_context)
    timed = time_nodes([*prefill_nodes, *decode_nodes], s)
    if s.efficiency.mode == "calibrated":
        timed = engine_times(timed, s)
    return Passes(timed[: len(prefill_nodes)], timed[len(prefill_nodes) :])


def kernel_factor(t: Timed, s: Scenario) -> Num:
    """Time of a kernel in this engine over the calibrated one's; a collective's factor is in its time already."""
    return own_factor(t.node.kind, s.engine.factors) if isinstance(t.node, Op) else s.engine.factors.speed


def engine_times(timed: Sequence[Timed], s: Scenario) -> list[Timed]:
    """Nodes with their seconds in this engine. Experts of few tokens run at their roof already: no factor lifts them
    above."""
    factors: dict[str, Num] = {}
    out = []
    for t in timed:
        kind = t.node.kind if isinstance(t.node, Op) else ""
        if kind not in factors:
            factors[kind] = kernel_factor(t, s)
        factor = factors[kind]
        if isinstance(factor, float) and factor == 1.0:  # experts, too: no kernel beats its roof
            out.append(t)
            continue
        time = t.time * factor
        if kind == "moe" and t.levels is not None:
            time = np.maximum(time, np.max(t.levels, axis=0))
        out.append(Timed(t.node, time, *t[2:]))
    return out


class Speed(NamedTuple):
    """Times of a request: one pass of each phase, their parts (s), totals (s); latency covers all waves."""

    one: Step
    tick: Step
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    ttft: Num
    tpot: Num
    latency: Num
    waves: Num


def speed(s: Scenario, timed: Passes, r: Rates) -> Speed:
    """Timed passes and the engine's host costs -> TTFT, TPOT and latency."""
    e = s.engine if s.efficiency.mode == "calibrated" else unfitted(s.engine)
    m, device = s.mapping, s.cluster.device
    sequences, passes, rounds = running_sequences(s), prefill_passes(s), waves(s)
    flight = np.minimum(m.in_flight, m.pp)
    new = sequences / passes * s.workload.new
    one = step(timed.prefill, e, device, r, prompt_issue(e, new), sequences / passes, e.factors.prompt)
    # passes follow each other through the stages: pp + passes - 1 stage times
    overlapped = (m.pp + passes - 1) / m.pp if e.stages.pipelined else passes
    repeat = overlapped + e.stages.pipeline_loss * (passes - overlapped)
    prefill_parts = {k: v * repeat for k, v in one.parts.items()}
    prefill_parts["request"] = e.host.request + e.host.front
    tick = step(timed.decode, e, device, r, e.host.issue_decode, np.ceil(sequences / flight))
    if e.residuals is not None:
        own = e.residuals.factor("prefill", place(s, "prefill"))
        prefill_parts = {k: v * own for k, v in prefill_parts.items()}
        tick = scaled(tick, e.residuals.factor("decode", place(s, "decode")))
    ttft = add_up(prefill_parts.values())
    decode_parts = {k: mean_step(v, s.axes) for k, v in tick.parts.items()}
    tpot = add_up(decode_parts.values())
    latency = (ttft + np.maximum(s.workload.output - 1, 0) * tpot) * rounds
    return Speed(one, tick, prefill_parts, decode_parts, ttft, tpot, latency, rounds)


def place(s: Scenario, phase: str) -> tuple[Num, ...]:
    """Where a scenario lies on `residuals.AXES`: logarithms of sequences, tokens (of the prompt, or of the middle
    context when decoding), bytes of weights, and devices that share them."""
    w, m = s.workload, s.mapping
    tokens = w.new if phase == "prefill" else w.prompt + np.maximum(w.output - 1, 1) / 2
    values = (running_sequences(s), tokens, weight_bytes(s.model, Mapping(), s.quant), m.tp * m.pp * m.cp)
    return tuple(np.log(np.maximum(v, 1e-9)) for v in values)


def scaled(one: Step, factor: Num) -> Step:
    """A pass that takes `factor` times as long in every part."""
    parts = {k: v * factor for k, v in one.parts.items()}
    return replace(one, total=one.total * factor, parts=parts, busy=one.busy * factor, packed=one.packed * factor)


def infer_scenario(s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> InferenceEstimate:
    """Predict inference of one scenario (or, where its numbers are arrays, of every point of the grid).

    Never raises for an infeasible point: `fits` and `reason` say so. Units: SI.
    """
    w, m, device = s.workload, s.mapping, s.cluster.device
    timed = timed_passes(s)
    r = rates(s)
    one, tick, prefill_parts, decode_parts, ttft, tpot, latency, rounds = speed(s, timed, r)
    passes = prefill_passes(s) * rounds
    flight = np.minimum(m.in_flight, m.pp)
    dims = s.axes
    tpot_end = last_step(tick.total, dims)
    gpus = m.devices
    tokens = w.batch * w.output
    need = needs(s)
    memory = memory_use(s, need=need)
    fits = memory.total <= memory.capacity
    limits = check(s, fits)
    per_pass = {k: v * passes for k, v in volumes(timed.prefill, m.pp).items()}
    per_step = {k: mean_step(v, dims) * flight for k, v in volumes(timed.decode, m.pp).items()}
    rate = tokens / latency
    return InferenceEstimate(
        ttft=ttft,
        tpot=tpot,
        tpot_end=tpot_end,
        latency=latency,
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=rate / gpus,
        requests_per_s=w.batch / latency,
        memory=memory,
        fits=~limits.broken,
        max_batch=max_batch(s, need),
        limits=limits,
        comm_bytes={"prefill": sum(per_pass.values()) + 0.0, "decode": sum(per_step.values()) + 0.0},
        comm_detail={"prefill": per_pass, "decode": per_step},
        prefill_parts=prefill_parts,
        decode_parts=decode_parts,
        passes={"prefill": one, "decode": tick},
        cost_per_million_tokens=device.price / 3600 * gpus / rate * 1e6,
        gpus=gpus,
        waves=rounds,
        scenario=s,
        timed={"prefill": tuple(timed.prefill), "decode": tuple(timed.decode)},
        assumed=assumed,
        warnings=warnings,
    )


def bound_of(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> Num:
    """What bounds the pass: the label with the largest share of its time, the host included."""
    shares = bound_shares(timed, pass_, dims)
    stack = np.stack(np.broadcast_arrays(*(shares[name] for name in BOUNDS)))
    return np.array(BOUNDS)[np.argmax(stack, axis=0)]


def bound_shares(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> dict[str, Num]:
    """Seconds of a pass by what bounds them: compute, each memory level, overhead, network, host."""
    shares: dict[str, Num] = dict.fromkeys(BOUNDS, 0.0)
    for t in timed:
        if isinstance(t.node, Op):
            for index in range(5):
                shares[BOUNDS[index]] = shares[BOUNDS[index]] + np.where(t.bound == index, t.total * pass_.packed, 0.0)
        else:
            shares["network"] = shares["network"] + t.total * pass_.packed
    shares["overhead"] = shares["overhead"] + pass_.parts["gaps"]
    shares["host"] = pass_.parts["host"]
    return {k: mean_step(v, dims) for k, v in shares.items()}


__all__ = ["InferenceEstimate", "Memory", "Rates", "infer_scenario"]
