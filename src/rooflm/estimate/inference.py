"""infer_scenario(scenario) -> InferenceFigures: prefill, decode, request, memory, fit, communication, energy, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rooflm.estimate import request
from rooflm.estimate.capacity import Running, memory_use, running
from rooflm.estimate.figures import Figures, Limits, Memory, check, figure, read_off
from rooflm.estimate.offloaded import device_part, stored_part
from rooflm.estimate.step import Step, add_up, by_name, volumes
from rooflm.kernels.roofline import Timed, time_nodes
from rooflm.scenario.rules import INFERENCE, flags
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, floor, larger


@dataclass(frozen=True, eq=False, repr=False)
class InferenceFigures(Figures):
    """What is predicted; every number is SI and may be an array with one dimension an axis.

    ttft: time to the first token of the batch (s); tpot: time per output token averaged over the output (s), tpot_end:
    at its end; latency: the whole request (s); prefill_parts, decode_parts: name -> s, summing to ttft and tpot;
    comm_bytes: sent by one GPU in the prefill and in a decode step; waves: rounds in which the batch runs (1 unless the
    engine queues what does not fit; ttft is then the first round's). See docs/nomenclature.md."""

    ttft: Num
    tpot: Num
    tpot_end: Num
    latency: Num
    memory: Memory
    limits: Limits
    speed: request.Speed
    running: Running
    scenario: Scenario
    max_batch = read_off("running.largest", "The largest batch that fits.")
    waves = read_off("running.waves", "Rounds in which the batch runs.")

    @property
    def timed(self) -> dict[str, Sequence[Timed]]:
        """The nodes of both passes."""
        return {phase: one.timed for phase, one in self.passes.items()}

    @property
    def passes(self) -> dict[str, Step]:
        """One pass of each phase, with prompts a full one where they take several."""
        return {"prefill": self.speed.prompts[-1][0], "decode": self.speed.decode}

    def in_prompts(self, name: str) -> Num:
        """A quantity of `Step` over all prefill passes."""
        return add_up(times * getattr(one, name) for one, times in self.speed.prompts)

    def prompts_by_name(self, read: Callable[[Step], Mapping[str, Num]]) -> dict[str, Num]:
        """What is read of a pass by name, summed over all prefill passes."""
        return by_name((name, times * x) for one, times in self.speed.prompts for name, x in read(one).items())

    @figure
    def prefill_parts(self) -> dict[str, Num]:
        """Seconds to the first token by part."""
        parts = self.prompts_by_name(lambda one: one.parts)
        return {k: v * self.speed.repeat for k, v in parts.items()} | self.speed.before

    @figure
    def decode_parts(self) -> dict[str, Num]:
        """Seconds of an output token by part, mean over the output (of a model that embeds: none)."""
        step, s, mean = self.speed, self.scenario, self.running.contexts.mean
        parts = {**{k: mean(v) for k, v in step.decode.parts.items()}, **step.extra}
        if not s.speculation.off:
            parts = {k: v / s.speculation.gained for k, v in parts.items()}
        return parts if s.model.head else {}

    @figure
    def comm_detail(self) -> dict[str, dict[str, Num]]:
        """Bytes sent by one GPU in the prefill and in a decode step, by collective."""
        run, pp, tick = self.running, self.scenario.mapping.pp, self.speed.decode.timed
        sent = {"prefill": self.prompts_by_name(lambda one: volumes(one.timed, pp)), "decode": volumes(tick, pp)}
        # messages are as long as their sequences are many, so that those of the largest micro-batch stand for all
        step = {k: run.contexts.mean(v) * (run.sequences / run.micro) for k, v in sent["decode"].items()}
        return {"prefill": {k: v * run.waves for k, v in sent["prefill"].items()}, "decode": step}

    @figure
    def comm_bytes(self) -> dict[str, Num]:
        """Bytes sent by one GPU in the prefill and in a decode step."""
        sent = {phase: sum(each.values()) + 0.0 for phase, each in self.comm_detail.items()}
        return {**sent, "decode": self.scenario.model.head * sent["decode"]}

    @figure
    def output_tokens_per_s(self) -> Num:
        """Output tokens a second, all GPUs."""
        return self.scenario.workload.batch * self.scenario.workload.output / self.latency

    @figure
    def requests_per_s(self) -> Num:
        """Requests a second."""
        return self.scenario.workload.batch / self.latency

    @cached_property
    def lighter(self) -> Step:
        """The decode pass of the micro-batches that hold one sequence less than the largest."""
        s, run = self.scenario, self.running
        if not np.any(run.fuller):
            return self.passes["decode"]
        fewer = run._replace(micro=floor(run.sequences / run.flight))
        return request.decode_step(s, time_nodes(request.decode_nodes(s, fewer), s, s.engine.factors), fewer)

    def in_step(self, name: str) -> Num:
        """A quantity of `Step` over all micro-batches of a decode step, mean over the output."""
        fuller, mean = self.running.fuller, self.running.contexts.mean
        other = (self.running.flight - fuller) * mean(getattr(self.lighter, name))
        return other + fuller * mean(getattr(self.passes["decode"], name))

    @cached_property
    def gained(self) -> Num:
        """Tokens that a sequence gains in a decode step: 1 without speculative decoding."""
        spec = self.scenario.speculation
        return 1.0 if spec.off else self.plainly(spec.gained)

    @figure
    def parts(self) -> dict[str, Num]:
        """Seconds of the whole request by part; sums to latency."""
        steps = larger(self.scenario.workload.output - 1, 0)
        decode = [(name, steps * value) for name, value in self.decode_parts.items()]
        return {k: v * self.waves for k, v in by_name([*self.prefill_parts.items(), *decode]).items()}


def infer_scenario(s: Scenario, broken: Mapping[str, Num] | None = None) -> InferenceFigures:
    """Predict inference of one scenario (or, where its numbers are arrays, of every point of the grid).

    broken: the rules that it breaks (`rules.flags`), where that is known already.
    Never raises for an infeasible point: `fits` and `reason` say so. Units: SI."""
    held, stored = device_part(s), stored_part(s)
    run = running(stored)
    fast = request.speed(s, request.timed_passes(held, run), run)
    tick = fast.decode.total
    last = run.contexts.steps(tick)[-1] if isinstance(tick, np.ndarray) and tick.ndim > s.axes else tick
    tpot, end = fast.tpot, request.a_token(s, last, fast.extra)
    if not s.model.head:
        tpot, end = np.nan * tpot, np.nan * tpot
    memory = memory_use(stored, need=run.need)
    limits = check(flags(s, INFERENCE) if broken is None else broken, memory.total, memory.capacity)
    return InferenceFigures(fast.ttft, tpot, end, fast.latency, memory, limits, fast, run, s)
