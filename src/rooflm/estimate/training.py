"""train_scenario(scenario) -> TrainingEstimate: one optimiser step and the whole run: time, memory, communication.

The forward pass is the graph of a prefill of one micro-batch; backward and recomputation are rules on its ops; all are
timed together. A step is m micro-batches on the slowest stage, the bubble, and what communication cannot hide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rooflm.estimate import schedule
from rooflm.estimate import training_memory as tm
from rooflm.estimate.capacity import Limits
from rooflm.estimate.job import Job, job
from rooflm.estimate.results import Memory, Result, figure, headline, shown, timespan, verdict
from rooflm.estimate.step import by_part, dynamic_energy
from rooflm.estimate.training_results import TRAIN_OUTPUTS
from rooflm.estimate.training_step import (
    Nodes,
    adapter_params,
    context,
    document,
    flops_seconds,
    forward_flops,
    grad_bytes,
    held,
    micro_batches,
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
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num


@dataclass(frozen=True, eq=False, repr=False)
class TrainingEstimate(Result):
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
    timed: dict[str, tuple[Timed, ...]]
    convention: str = "full"
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    OUTPUTS = TRAIN_OUTPUTS

    def lines(self) -> list[str]:
        """Model, device and split; the work; time, rate and utilisation; memory and the verdict."""
        s, w, m = self.scenario, self.scenario.workload, self.scenario.mapping
        return [
            headline(s, self.gpus),
            f"batch {shown(w.batch)}, seq {shown(w.seq)}, micro-batch {shown(m.micro_batch)}, recompute {m.recompute}",
            f"step {timespan(self.step_time)}, {shown(self.tokens_per_s_per_gpu)} tokens/s per GPU, "
            f"MFU {shown(100 * self.mfu)} %",
            verdict(self.memory, self.fits, self.reason),
        ]

    @figure
    def reason(self) -> Num:
        """Why a point cannot run, or an empty text."""
        return self.limits.reason

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
    def days(self) -> Num:
        """Days of the run, undisturbed."""
        return self.job.days

    @figure
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
    hides = e.pp_overlap and m.schedule != "gpipe" and not (isinstance(v, int | float) and v == 1)
    passed = 2.0 * (m.pp - 1) * s.training.flushes + (0.0 if hides else micro_count * crossings)
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


def check(s: Scenario, c: Context, fits: Num) -> Limits:
    """The rules of a legal training mapping, and memory, each a flag with its reason."""
    m, model, w = s.mapping, c.model, s.workload
    flags: dict[str, Num] = {}
    wrong: Any = np.zeros((), dtype=bool)
    for block in model.blocks:
        if block.mixer is not None:
            wrong = wrong | np.asarray(block.mixer.heads % m.tp != 0)
    flags["tp does not divide the heads"] = wrong
    flags["the degrees do not divide the GPUs"] = m.uneven
    flags["the degrees make another number of GPUs"] = m.misfit
    flags["pp x vp exceeds the layers"] = np.asarray(m.pp * m.vp > model.layers + 2)
    flags["dp x micro_batch does not divide the batch"] = np.asarray(w.batch % (m.dp * m.micro_batch) != 0)
    flushes = s.training.flushes
    if not (isinstance(flushes, int) and flushes == 1):
        flags["flushes does not divide the micro-batches"] = np.asarray(micro_batches(s) % flushes != 0)
    if m.schedule == "interleaved":
        each = micro_batches(s) / flushes
        short = (np.asarray(m.vp) > 1) & (np.asarray(m.pp) > 1) & (each % m.pp != 0)
        flags["interleaving needs a multiple of pp micro-batches"] = short
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and hasattr(b.ffn, "experts")]
    wrong = np.zeros((), dtype=bool)
    for count in experts:
        wrong = wrong | np.asarray(count % m.ep != 0) | np.asarray((m.tp * m.cp * m.dp) % m.ep != 0)
    flags["ep does not divide the experts or tp x cp x dp"] = wrong
    if not experts:
        flags["ep needs a mixture of experts"] = np.asarray(np.asarray(m.ep) > 1)
    flags["out of memory"] = ~np.asarray(fits)
    return Limits(flags)


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
    limits = check(s, c, fits)
    body = {k: v for k, v in timed.items() if not k.startswith("step.")}
    r = rates(s)
    dynamic = sum(dynamic_energy(v, device, r) for v in body.values()) * m / s.mapping.pp
    dynamic = dynamic + dynamic_energy(timed["step.optimizer"], device, r)
    energy = gpus * (device.idle * step_time + dynamic)
    executed = sum(flops_seconds(groups[k], r.peak) for k in body) * m / s.mapping.pp
    illegal: Any = np.zeros((), dtype=bool)
    for flag in limits.flags.values():
        illegal = illegal | flag
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
        fits=~illegal,
        limits=limits,
        max_micro_batch=np.maximum(np.floor(room / variable * s.mapping.micro_batch), 0),
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
