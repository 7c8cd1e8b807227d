"""train_scenario(scenario) -> TrainingFigures: one optimiser step: time, memory, communication.

The forward pass is the graph of a prefill of one micro-batch; backward and recomputation are rules on its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rooflm.estimate import training_memory as tm
from rooflm.estimate import training_step as ts
from rooflm.estimate.capacity import fixed_buffers, usable
from rooflm.estimate.figures import Figures, Limits, Memory, check, figure, read_off
from rooflm.estimate.step import add_up, by_name, by_part, dynamic_energy
from rooflm.estimate.training_time import TrainingStep, time_step
from rooflm.graph.ops import Comm
from rooflm.kernels.roofline import Timed, comm_volume
from rooflm.scenario.rules import TRAINING, divisors, flags
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, floor, larger, smaller


@dataclass(frozen=True, eq=False, repr=False)
class TrainingFigures(Figures):
    """What is predicted; SI units, arrays with one dimension an axis.

    step: the optimiser step, its nodes timed (s). used: bytes on the fullest device, of its `stages`. All else is
    worked out when it is read: a grid pays for the outputs that it asks for. See docs/nomenclature.md."""

    scenario: Scenario
    step: TrainingStep
    stages: Sequence[dict[str, Num]]
    used: Num
    limits: Limits
    step_time = read_off("step.total", "Seconds of one optimiser step.")
    parts = read_off("step.parts", "Seconds of a step by what they go to; they sum to it.")
    micro_batches = read_off("step.micro_batches", "Of a step on one data-parallel rank.")
    layer_forward = read_off("step.micro.layer_forward", "Seconds of the forward pass of one layer and micro-batch.")
    layer_backward = read_off("step.micro.layer_backward", "The same of its backward pass, recomputation included.")

    @property
    def timed(self) -> dict[ts.Key, list[Timed]]:
        """The step's nodes by phase and place (`training_step.step_graph`)."""
        return self.step.timed

    @property
    def passes(self) -> list[list[Timed]]:
        """The groups of them that one micro-batch runs."""
        return [group for (phase, _), group in self.timed.items() if phase in ts.PHASES]

    @figure
    def detail(self) -> dict[str, dict[str, Num]]:
        """Phase -> part of the model -> device seconds of one micro-batch."""
        return {phase: by_part(ts.of_phase(self.timed, phase)) for phase in ts.PHASES}

    @figure
    def capacity(self) -> Num:
        """Bytes of a device that the framework may use."""
        return capacity_of(self.scenario)

    @figure
    def memory(self) -> Memory:
        """Bytes on the fullest device by what they hold: the parts sum to those used."""
        room, parts = self.scenario.engine.room, tm.fullest_stage(self.stages)
        parts["fragmentation"] = (room.fragmentation - 1.0) * sum(parts.values())
        parts["context"], parts["workspace"] = fixed_buffers(self.scenario)
        return Memory(parts, self.used, self.capacity)

    @figure
    def max_micro_batch(self) -> Num:
        """The largest micro-batch that fits on every stage and divides a rank's share of the batch: activations and
        logits grow with it, all else stays (with as many micro-batches in flight as now)."""
        s, e = self.scenario, self.scenario.engine
        room = (self.capacity - sum(fixed_buffers(s))) / e.room.fragmentation
        most: Num = np.inf
        for stage in self.stages:
            growing = stage["activations"] + stage["logits"]
            most = smaller(most, (room - (add_up(stage.values()) - growing)) / larger(growing, 1.0))
        return largest_divisor(micro_batches(s) * s.mapping.micro_batch, larger(floor(most * s.mapping.micro_batch), 0))

    @figure
    def comm_bytes(self) -> dict[str, Num]:
        """Bytes sent by one GPU a step, by collective: its share of the layers' collectives for every micro-batch, its
        messages to neighbours, its gradients and parameters."""
        step, timed, pp = self.step, self.timed, self.scenario.mapping.pp
        crossed, sync = step.micro_batches * step.crossings * (pp - 1) / pp, step.sync
        once = {"send": crossed, "reduce": sync.reductions, "gather": sync.gathers, "tied": 1.0}
        groups = [*((group, step.micro_batches / pp) for group in self.passes),
                  *((timed["step", place], times) for place, times in once.items())]  # fmt: skip
        sent = [(t.node, times) for group, times in groups for t in group]
        return by_name((c.name, comm_volume(c) * times) for c, times in sent if isinstance(c, Comm))

    @figure
    def step_energy(self) -> Num:
        """Joules of a step on all GPUs: idle power all the time, and what the kernels draw beyond it."""
        s, device = self.scenario, self.scenario.cluster.device
        each = sum(dynamic_energy(group, device) for group in self.passes)
        dynamic = each * self.micro_batches / s.mapping.pp + dynamic_energy(self.timed["step", "update"], device)
        return s.mapping.devices * (device.idle * self.step_time + dynamic)


def train_scenario(s: Scenario, broken: Mapping[str, Num] | None = None) -> TrainingFigures:
    """Predict training of one scenario (or of every point of its grid). Never raises for an infeasible point.

    broken: the rules that it breaks (`rules.flags`), where that is known already."""
    c = ts.context(s)
    step, stages = time_step(s, c), tm.stages(ts.setup_of(s, c))
    held, violated = used(s, stages), flags(s, TRAINING) if broken is None else broken
    return TrainingFigures(s, step, stages, held, check(violated, held, capacity_of(s)))


def used(s: Scenario, stages: Sequence[dict[str, Num]]) -> Num:
    """Bytes on the fullest device, of these stages."""
    return tm.most(stages) * s.engine.room.fragmentation + sum(fixed_buffers(s))


def capacity_of(s: Scenario) -> Num:
    """Bytes of a device that the framework may use."""
    return usable(s.cluster.device) * s.engine.room.memory_fraction


def largest_divisor(value: Num, most: Num) -> Num:
    """The largest divisor of a whole number that is at most `most`; 0 if there is none, or if either is no number."""
    values, limits = np.broadcast_arrays(*(np.where(np.asarray(x) >= 1, x, 0) for x in (value, most)))
    found = np.zeros(values.shape)
    for each in np.unique(values).tolist():
        here, held = values == each, np.array([0, *divisors(int(each))])
        found[here] = held[held.searchsorted(limits[here], "right") - 1]
    return found
