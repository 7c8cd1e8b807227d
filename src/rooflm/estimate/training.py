"""train_scenario(scenario) -> TrainingEstimate: one optimiser step and the whole run: time, memory, communication.

The forward pass is the graph of a prefill of one micro-batch; backward and recomputation are rules on its ops; all are
timed together. A step is m micro-batches on the slowest stage, the bubble, and what communication cannot hide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rooflm.estimate import schedule
from rooflm.estimate import training_memory as tm
from rooflm.estimate.capacity import Limits, Memory, check
from rooflm.estimate.job import Job, job
from rooflm.estimate.step import by_part, dynamic_energy
from rooflm.estimate.training_step import (
    Nodes,
    adapter_params,
    context,
    document,
    flops_seconds,
    forward_flops,
    grad_bytes,
    held,
    optimizer_nodes,
    phase_nodes,
    recomputed_flops,
    send_nodes,
    sync_nodes,
)
from rooflm.estimate.training_time import (
    PHASES,
    Micro,
    Sync,
    micro_batch_time,
    offload_time,
    section,
    sync_time,
    time_groups,
)
from rooflm.graph.forward import Context
from rooflm.graph.ops import Comm
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed, comm_volume
from rooflm.scenario.rules import TRAINING
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num


@dataclass(frozen=True)
class TrainingEstimate:
    """The answer; SI units, arrays with one dimension an axis.

    step_time: one optimiser step (s); parts: name -> s, summing to it; detail: phase -> (part of the model -> s) of the
    device seconds of one step. mfu, hfu: model and executed FLOP/s over the peak of the products' data type, with
    `convention` attention counted ("full": all pairs of tokens, as most published figures; mfu_causal: half of them).
    flops_time: seconds of a step if only FLOPs took time. bubble_fraction: idle over busy time of the schedule.
    comm_bytes: sent by one GPU a step, by collective. layer_forward, layer_backward: one layer and micro-batch,
    recomputation included. max_micro_batch: the largest that fits. step_energy: J of all GPUs. job: the whole run.
    """

    step_time: Num
    tokens_per_s_per_gpu: Num
    model_tflops_per_gpu: Num
    mfu: Num
    mfu_causal: Num
    hfu: Num
    memory: Memory
    fits: Num
    limits: Limits = field(repr=False)
    max_micro_batch: Num
    micro_batches: Num
    comm_bytes: dict[str, Num]
    parts: dict[str, Num]
    detail: dict[str, dict[str, Num]] = field(repr=False)
    bubble_fraction: Num
    flops_time: Num
    layer_forward: Num
    layer_backward: Num
    step_energy: Num
    power: Num
    gpus: Num
    scenario: Scenario
    timed: dict[str, tuple[Timed, ...]] = field(repr=False)
    convention: str = "full"
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def reason(self) -> Num:
        """Why a point cannot run, or an empty text."""
        return self.limits.reason

    @cached_property
    def job(self) -> Job:
        """The whole run: steps, GPU-hours, cost, energy, goodput."""
        s, w = self.scenario, self.scenario.workload
        state = self.memory.parts["weights"] + self.memory.parts["optimizer"]
        return job(
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

    @property
    def energy(self) -> Num:
        """Joules of the run."""
        return self.job.energy

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


def train_scenario(s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> TrainingEstimate:
    """Predict training of one scenario (or of every point of its grid). Never raises for an infeasible point."""
    m, e = s.mapping, s.engine
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
    times = {
        k: sum(t.total for t in timed[f"step.{k}"]) + 0.0 for k in ("optimizer", "send", "reduce", "gather", "tied")
    }
    sync = sync_time(s, times, micro, micro_count, stage_layers)
    dgrad = np.maximum(micro.backward - micro.wgrad, 0.0)
    bubble = s.training.flushes * schedule.bubble_time(m.schedule, m.pp, m.vp, micro.forward, dgrad, micro.wgrad)
    v = schedule.chunks(m.schedule, m.vp)
    crossings = np.where(np.asarray(m.pp) > 1, 2.0 * v, 0.0)
    hides = np.where(np.asarray(v) > 1, 1.0 * (e.pp_overlap and m.schedule != "gpipe"), 0.0)
    passed = 2.0 * (m.pp - 1) * s.training.flushes + (1.0 - hides) * micro_count * crossings
    parts = {k: micro_count * x for k, x in micro.parts.items()}
    parts["imbalance"] = micro_count * (micro.slowest - micro.mean)
    parts["bubble"] = bubble
    parts["pp_comm"] = passed * times["send"]
    parts["dp_comm"] = sync.exposed
    parts["overlap_tax"] = overlap_tax(s) * np.maximum(sync.total - sync.exposed, 0.0)
    parts["optimizer"] = times["optimizer"]
    parts["offload"] = offload_time(s, own, c, micro_count, micro.mean * micro_count)
    parts["host"] = parts["host"] + e.step
    step_time = sum(parts.values())
    return _estimate(
        s, c, groups, timed, micro, sync, parts, step_time, crossings, bubble, micro_count, assumed, warnings
    )


SHARDED_TAX = 0.1
"""Compute time lost a second of hidden communication where gradients or parameters are sharded: a prior, as of the
engines built on FSDP (data/engines/training.toml, overlap_tax)."""


def overlap_tax(s: Scenario) -> Num:
    """Compute time lost a second of hidden data-parallel communication: the engine's; at ZeRO 2 and 3, whose gathers
    and reductions run beside every micro-batch, at least SHARDED_TAX (their kernels take SMs and memory bandwidth)."""
    if s.efficiency.mode != "calibrated":
        return s.engine.overlap_tax
    least = np.where(np.asarray(s.mapping.zero) >= 2, SHARDED_TAX, 0.0)
    return np.maximum(s.engine.overlap_tax, least)


def memory_use(s: Scenario, c: Context) -> Memory:
    """Memory of the fullest device."""
    e = s.engine
    grad_extra = e.grad_extra_bf16 if s.quant.name == "bf16" else 0.0
    setup = tm.Setup(
        c.model, s.mapping, c.style, s.quant, s.training, s.workload.seq, document(s), micro_batches(s), grad_bytes(s),
        adapter_params(s, c), e.logit_bytes, grad_extra, e.regather,
    )  # fmt: skip
    parts = dict(tm.fullest_stage(setup).parts)
    parts["fragmentation"] = (e.fragmentation - 1.0) * sum(parts.values())
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


def products_dtype_peak(s: Scenario) -> Num:
    """FLOP/s of the device in the data type of the products."""
    return s.cluster.device.peak[rates(s).dtype["quant"]]


def _estimate(
    s: Scenario, c: Context, groups: dict[str, Nodes], timed: dict[str, tuple[Timed, ...]], micro: Micro, sync: Sync,
    parts: dict[str, Num], step_time: Num, crossings: Num, bubble: Num, m: Num, assumed: tuple[str, ...],
    warnings: tuple[str, ...],
) -> TrainingEstimate:  # fmt: skip
    """The estimate of a step whose parts are known."""
    w, device, gpus = s.workload, s.cluster.device, s.mapping.devices
    peak = products_dtype_peak(s)
    forward, layers = forward_flops(s, causal=False)
    causal, _ = forward_flops(s, causal=True)
    model_flops = 3.0 * forward * w.batch
    again = recomputed_flops(s, layers) * w.batch
    memory = memory_use(s, c)
    fits = memory.total <= memory.capacity
    limits = check(s, fits, TRAINING)
    body = {k: v for k, v in timed.items() if not k.startswith("step.")}
    r = rates(s)
    dynamic = sum(dynamic_energy(v, device, r) for v in body.values()) * m / s.mapping.pp
    dynamic = dynamic + dynamic_energy(timed["step.optimizer"], device, r)
    energy = gpus * (device.idle * step_time + dynamic)
    executed = sum(flops_seconds(groups[k], r.peak) for k in body) * m / s.mapping.pp
    variable = (memory.parts["activations"] + memory.parts["logits"]) * s.engine.fragmentation
    room = memory.capacity - (memory.total - variable)
    return TrainingEstimate(
        step_time=step_time,
        tokens_per_s_per_gpu=w.batch * w.seq / (step_time * gpus),
        model_tflops_per_gpu=model_flops / (step_time * gpus) / 1e12,
        mfu=model_flops / (step_time * gpus * peak),
        mfu_causal=3.0 * causal * w.batch / (step_time * gpus * peak),
        hfu=(model_flops + again) / (step_time * gpus * peak),
        memory=memory,
        fits=~limits.broken,
        limits=limits,
        max_micro_batch=np.maximum(np.floor(room / np.maximum(variable, 1.0) * s.mapping.micro_batch), 0),
        micro_batches=m,
        comm_bytes=volumes(s, groups, m, crossings, sync),
        parts=parts,
        detail={p: by_part([t for k, v in body.items() if k.startswith(p) for t in v]) for p in PHASES},
        bubble_fraction=bubble / (m * micro.mean),
        flops_time=executed,
        layer_forward=micro.layer_forward,
        layer_backward=micro.layer_backward,
        step_energy=energy,
        power=energy / (step_time * gpus),
        gpus=gpus,
        scenario=s,
        timed=timed,
        assumed=assumed,
        warnings=warnings,
    )
