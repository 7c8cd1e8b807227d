"""train_scenario(scenario) -> TrainingFigures: one optimiser step and the whole run: time, memory, communication.

The forward pass is the graph of a prefill of one micro-batch; backward and recomputation are rules on its ops; all are
timed together. A step is m micro-batches on the slowest stage, the bubble, and what communication cannot hide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rooflm.estimate import training_memory as tm
from rooflm.estimate.bounds import bounds
from rooflm.estimate.capacity import Limits, check
from rooflm.estimate.figures import Figures, Memory, figure
from rooflm.estimate.job import Job, job
from rooflm.estimate.step import by_part, dynamic_energy
from rooflm.estimate.training_step import (
    PHASES,
    StepGraph,
    adapter_params,
    context,
    document,
    flops_seconds,
    forward_flops,
    grad_bytes,
    recomputed_flops,
    trained_flops,
)
from rooflm.estimate.training_time import TrainingStep, time_step
from rooflm.graph.forward import Context
from rooflm.graph.ops import Comm
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed, comm_volume
from rooflm.scenario.rules import TRAINING, divisors, flags
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, floor, larger, smaller


@dataclass(frozen=True, eq=False, repr=False)
class TrainingFigures(Figures):
    """What is predicted; SI units, arrays with one dimension an axis.

    step_time: one optimiser step (s); parts: name -> s, summing to it; detail: phase -> (part of the model -> s) of the
    device seconds of one step. mfu, hfu: model and executed FLOP/s over the peak of the products' data type, with
    `convention` attention counted ("full": all pairs of tokens, as most published figures; mfu_causal: half of them).
    flops_time: seconds of a step if only FLOPs took time. bubble_fraction: idle over busy time of the schedule.
    comm_bytes: sent by one GPU a step, by collective. layer_forward, layer_backward: one layer and micro-batch,
    recomputation included. max_micro_batch: the largest that fits. step_energy: J of all GPUs. timed: the step's nodes.
    job: the whole run.
    """

    step_time: Num
    tokens_per_s_per_gpu: Num
    model_tflops_per_gpu: Num
    mfu: Num
    mfu_causal: Num
    hfu: Num
    memory: Memory
    fits: Num
    limits: Limits
    max_micro_batch: Num
    micro_batches: Num
    comm_bytes: dict[str, Num]
    parts: dict[str, Num]
    detail: dict[str, dict[str, Num]]
    bubble_fraction: Num
    flops_time: Num
    layer_forward: Num
    layer_backward: Num
    step_energy: Num
    power: Num
    gpus: Num
    scenario: Scenario
    timed: StepGraph[Timed]
    convention: str = "full"

    @cached_property
    def job(self) -> Job:
        """The whole run: steps, GPU-hours, cost, energy, goodput."""
        s, w = self.scenario, self.scenario.workload
        state = self.memory.parts["weights"] + self.memory.parts["optimizer"]
        found = job(
            s.training,
            w.tokens,
            w.batch,
            w.seq,
            self.step_time,
            self.gpus,
            s.cluster.device.price,
            self.step_energy,
            state,
        )
        return Job(*map(self.plainly, found))

    @figure
    def energy(self) -> Num:
        """Joules of the run."""
        return self.job.energy

    @figure
    def steps(self) -> Num:
        """Optimiser steps of the run (1 where no tokens were given)."""
        return self.job.steps

    @figure
    def gpu_hours(self) -> Num:
        """GPU-hours of the run, undisturbed."""
        return self.job.gpu_hours

    @figure
    def flops_gpu_hours(self) -> Num:
        """GPU-hours of the run if only FLOPs took time."""
        hours: Num = self.steps * self.flops_time * self.gpus / 3600
        return hours

    @figure
    def components(self) -> dict[str, Num]:
        """Device seconds of a step by part of the model (attention, mlp, norm, embedding, logits, tp_comm ...), all
        passes, mean over the stages; communication counts in full, shown or hidden."""
        times = self.micro_batches / self.scenario.mapping.pp
        names = dict.fromkeys(n.replace("regather", "comm") for found in self.detail.values() for n in found)
        out: dict[str, Num] = dict.fromkeys(names, 0.0)
        for found in self.detail.values():
            for name, value in found.items():
                out[name.replace("regather", "comm")] += times * value
        return out

    @figure
    def bound(self) -> dict[str, Num]:
        """What bounds the forward and the backward pass (recomputation included) and the whole step."""
        return bounds(self)

    @figure
    def days(self) -> Num:
        """Days of the run, undisturbed."""
        return self.job.days

    @figure
    def cost(self) -> Num:
        """USD of the run, undisturbed."""
        return self.job.cost


def train_scenario(s: Scenario, broken: Mapping[str, Num] | None = None) -> TrainingFigures:
    """Predict training of one scenario (or of every point of its grid). Never raises for an infeasible point.

    broken: the rules that it breaks (`rules.flags`), where that is known already.
    """
    known = flags(s, TRAINING) if broken is None else broken
    return estimate(time_step(s, context(s)), known)


def setup_of(s: Scenario, c: Context) -> tm.Setup:
    """What the memory of a scenario's stages depends on."""
    e = s.engine
    grad_extra = e.room.grad_extra_bf16 if s.quant.half == "bf16" else 0.0
    return tm.Setup(
        c.model, s.mapping, c.kernels, s.quant, s.training, s.workload.seq, document(s), micro_batches(s),
        grad_bytes(s), adapter_params(s, c), e.room.logit_bytes, grad_extra, e.habits.regather,
    )  # fmt: skip


def memory_use(s: Scenario, stages: Sequence[tm.Stage]) -> Memory:
    """Memory of the fullest device, of these stages."""
    e = s.engine
    parts = dict(tm.fullest_stage(stages).parts)
    parts["fragmentation"] = (e.room.fragmentation - 1.0) * sum(parts.values())
    parts["context"] = e.room.context + 0.0
    parts["workspace"] = e.room.workspace + 0.0
    return Memory(parts, sum(parts.values()), s.cluster.device.dram.size * e.room.memory_fraction)


def volumes(step: TrainingStep) -> dict[str, Num]:
    """Bytes that one GPU sends in a step, by collective: its share of the layers' collectives for every micro-batch,
    its messages to neighbours, its gradients and parameters."""
    m, timed, sync = step.scenario.mapping, step.timed, step.sync
    passed = [(group, step.micro_batches / m.pp) for group in timed.passes.values()]
    sent: dict[str, Num] = {}
    for group, times in (
        *passed, (timed.send, step.micro_batches * step.crossings * (m.pp - 1) / m.pp),
        (timed.reduce, sync.reductions), (timed.gather, sync.gathers), (timed.tied, 1.0),
    ):  # fmt: skip
        for node in (t.node for t in group):
            if isinstance(node, Comm):
                sent[node.name] = sent.get(node.name, 0.0) + comm_volume(node) * times
    return sent


def energy_of(step: TrainingStep) -> Num:
    """Joules of a step on all GPUs: idle power all the time, and what the kernels draw beyond it."""
    s, timed, r = step.scenario, step.timed, rates(step.scenario)
    device = s.cluster.device
    each = sum(dynamic_energy(group, device, r) for group in timed.passes.values())
    dynamic = each * step.micro_batches / s.mapping.pp + dynamic_energy(timed.update, device, r)
    return s.mapping.devices * (device.idle * step.total + dynamic)


def flops_time(step: TrainingStep) -> Num:
    """Seconds of a step if only its FLOPs took time, each at the peak of its data type."""
    peak = rates(step.scenario).peak
    each = sum(flops_seconds([t.node for t in group], peak) for group in step.timed.passes.values())
    return each * step.micro_batches / step.scenario.mapping.pp


def accepted_micro_batch(s: Scenario, most: Any) -> Any:
    """The largest micro-batch up to `most` that divides a rank's share of the batch (0 where none does).

    >>> from rooflm.asked.build_training import build_training
    >>> float(accepted_micro_batch(build_training(model="llama-7b", gpu="h100", batch=12).scenario, 5.0))
    4.0
    """
    each = np.asarray(micro_batches(s) * s.mapping.micro_batch, dtype=float)

    def largest(share: float, limit: float) -> float:
        ways = divisors(int(share), min(limit, share)) if limit >= 1 and share >= 1 else []
        return float(max(ways, default=0))

    return np.vectorize(largest, otypes=[float])(each, np.asarray(most, dtype=float))


def largest_micro_batch(s: Scenario, memory: Memory, stages: Sequence[tm.Stage]) -> Num:
    """The largest micro-batch that fits on every stage and divides a rank's share of the batch: activations and logits
    grow with it, all else stays (with as many micro-batches in flight as now)."""
    room = (memory.capacity - memory.parts["context"] - memory.parts["workspace"]) / s.engine.room.fragmentation
    most: Num = np.inf
    for stage in stages:
        growing = stage.parts["activations"] + stage.parts["logits"]
        most = smaller(most, (room - (stage.total - growing)) / larger(growing, 1.0))
    return accepted_micro_batch(s, larger(floor(most * s.mapping.micro_batch), 0))


def estimate(step: TrainingStep, broken: Mapping[str, Num]) -> TrainingFigures:
    """The figures of a timed step."""
    s, micro, c = step.scenario, step.micro, step.context
    batch, gpus = s.workload.batch, s.mapping.devices
    device_seconds = step.total * gpus
    peak_work = device_seconds * s.cluster.device.peak[rates(s).dtype["quant"]]
    forward, layers = forward_flops(s, causal=False)
    causal, _ = forward_flops(s, causal=True)
    model_flops = trained_flops(s, forward, causal=False) * batch
    again = recomputed_flops(s, layers) * batch
    stages = tm.stages(setup_of(s, c))
    memory = memory_use(s, stages)
    limits = check(broken, memory)
    energy = energy_of(step)
    return TrainingFigures(
        step_time=step.total,
        tokens_per_s_per_gpu=batch * s.workload.seq / device_seconds,
        model_tflops_per_gpu=model_flops / device_seconds / 1e12,
        mfu=model_flops / peak_work,
        mfu_causal=trained_flops(s, causal, causal=True) * batch / peak_work,
        hfu=(model_flops + again) / peak_work,
        memory=memory,
        fits=~limits.broken,
        limits=limits,
        max_micro_batch=largest_micro_batch(s, memory, stages),
        micro_batches=step.micro_batches,
        comm_bytes=volumes(step),
        parts=step.parts,
        detail={phase: by_part(step.timed.phase(phase)) for phase in PHASES},
        bubble_fraction=step.bubble / (step.micro_batches * micro.mean),
        flops_time=flops_time(step),
        layer_forward=micro.layer_forward,
        layer_backward=micro.layer_backward,
        step_energy=energy,
        power=energy / device_seconds,
        gpus=gpus,
        scenario=s,
        timed=step.timed,
    )
