"""The answer of `train`: the figures of a step, the whole run that they make, what they assume, and how they are told:
the step, the run, whether it fits, memory, communication and parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rooflm.asked.answers.causes import by_bound, largest, training_causes
from rooflm.asked.answers.job import Job, job
from rooflm.asked.answers.outputs import TRAIN_OUTPUTS
from rooflm.asked.answers.remedies import Remedy, changed, training_remedies
from rooflm.asked.answers.result import Result
from rooflm.asked.answers.said import BOUND, LIKELY, banded, headline, noted, remembered, short_verdict, sure, verdict
from rooflm.asked.answers.step_use import StepUse
from rooflm.estimate import training_memory as tm
from rooflm.estimate.figures import figure, read_off
from rooflm.estimate.training import capacity_of, train_scenario, used
from rooflm.estimate.training_step import PHASES, context, of_phase, setup_of, weights_away
from rooflm.estimate.training_time import layers_host
from rooflm.readers.prices import price_note
from rooflm.scenario.rules import TRAINING
from rooflm.scenario.scenario import Scenario
from rooflm.scenario.training import Training
from rooflm.shown.answer import timespan
from rooflm.shown.blocks import BLANK, Block, Columns, Parts, Say, Table, called
from rooflm.shown.numbers import count, days, gib, percent, plural, spoken, text, value_text, watt_hours
from rooflm.units import Num


@dataclass(frozen=True, eq=False, repr=False)
class TrainingEstimate(Result, StepUse):
    """The answer: the figures, with what they assume. See docs/nomenclature.md."""

    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    OUTPUTS = TRAIN_OUTPUTS
    cost = read_off("job.cost", "USD of the run, undisturbed.")
    days = read_off("job.days", "Days of the run, undisturbed.")
    gpu_hours = read_off("job.gpu_hours", "GPU-hours of the run, undisturbed.")
    steps = read_off("job.steps", "Optimiser steps of the run (1 where no tokens were given).")
    energy = read_off("job.energy", "Joules of the run.")

    def lines(self) -> list[str]:
        """Model, device and split; the work; time, rate and utilisation; memory and the verdict."""
        s, w, m = self.scenario, self.scenario.workload, self.scenario.mapping
        told = [
            headline(s, self.gpus),
            f"batch {value_text(w.batch)}, seq {value_text(w.seq)}, micro-batch {value_text(m.micro_batch)}, "
            f"recompute {m.recompute}",
            f"step {timespan(self.step_time)}, {value_text(self.tokens_per_s_per_gpu)} tokens/s per GPU, "
            f"MFU {value_text(100 * self.mfu)} %",
            short_verdict(self.memory, self.fits, self.reason),
        ]
        return list(called(told, s.cluster.device.called))

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The whole answer, verdict first; of arrays, in short."""
        told = blocks(self, verbose) if self.scenario.axes == 0 else super().blocks(verbose)
        return list(called(told, self.scenario.cluster.device.called))

    @cached_property
    def job(self) -> Job:
        """The whole run: steps, GPU-hours, cost, energy, goodput."""
        s, w = self.scenario, self.scenario.workload
        state = self.memory.parts["weights"] + self.memory.parts["optimizer"]
        price, energy = s.cluster.device.price, self.step_energy
        whole_job = job(s.training, w.tokens, w.batch, w.seq, self.step_time, self.gpus, price, energy, state)
        return Job(*map(self.plainly, whole_job))

    @figure
    def bound(self) -> dict[str, Num]:
        """What bounds the forward pass, the backward pass with what it runs again, and the step."""
        forward, backward, again = (of_phase(self.timed, phase) for phase in PHASES)
        timed = {"forward": forward, "backward": [*backward, *again]}
        causes = training_causes(self)
        causes |= {"other": causes["other"] - self.parts["host"], "host": self.parts["host"]}
        return {k: largest(by_bound(v)) for k, v in timed.items()} | {"step": largest(causes)}

    @figure
    def flops_gpu_hours(self) -> Num:
        """GPU-hours of the run if only FLOPs took time."""
        return self.steps * self.flops_time * self.gpus / 3600

    @cached_property
    def would_fit(self) -> tuple[Remedy, ...]:
        """Of a single point that does not fit in memory: changes with which it would."""
        if np.ndim(self.fits) or not self.memory.margin < 0:
            return ()

        def left(s: Scenario) -> tuple[float, float]:
            c = context(s)
            return float(capacity_of(s) - used(s, tm.stages(setup_of(s, c)))), float(weights_away(s, c))

        return training_remedies(self.scenario, left, float(self.max_micro_batch), TRAINING)


def train(
    s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = (),
    broken: Mapping[str, Num] | None = None,
) -> TrainingEstimate:  # fmt: skip
    """The answer of one scenario, or of every point of a grid (`train_scenario`). broken: the rules that it breaks,
    where that is known already."""
    return TrainingEstimate.of(train_scenario(s, broken), assumed, warnings)


def blocks(e: TrainingEstimate, verbose: bool = False) -> list[Block]:
    """The answer."""
    w, m, t = e.scenario.workload, e.scenario.mapping, e.scenario.training
    again = " + ".join((*(m.recompute,) * (m.recompute != "none" or not m.recompute_modules), *m.recompute_modules))
    on = "" if t.lora_modules == Training.lora_modules else f" on {', '.join(t.lora_modules)}"
    kind = f"LoRA rank {count(t.lora_rank)}{on}" if t.adapters else t.optimizer
    asked = (
        f"{plural(w.batch, 'sequence')} of {plural(w.seq, 'token')} a step, micro-batch {count(m.micro_batch)}; "
        f"{kind}, ZeRO {count(m.zero)}; recompute {again}, schedule {m.schedule}, "
        f"sequence parallel {'on' if m.sp else 'off'}"
    )
    band = banded(e.step_time, e.error_band["step_time_s"])
    step = f"A step takes {text(float(e.step_time), 's')}" + (f", {band} {LIKELY}." if band else ".")
    narrow = float(e.memory.parts["weights"]) / 4 < float(e.memory.capacity) and not t.adapters
    narrow &= float(w.tokens) < PRETRAINING
    less = ", and --lora-rank 16 --base-bits 4 trains adapters alone" * narrow
    fits = verdict(e, "micro-batch", e.max_micro_batch, untried=f"; `rooflm search train` tries every split{less}")
    away = float(weights_away(e.scenario, context(e.scenario)))
    fits += [Say(f"The host holds {gib(away)} of weights beside it for each GPU.")] if away else []
    out: list[Block] = [Say(headline(e.scenario, e.gpus), "title"), Say(asked), BLANK, *fits,
                        Say(step if e.fits else f"If it did: {step[0].lower()}{step[1:]}"), *waiting(e), *run(e),
                        BLANK]  # fmt: skip
    sent = [(k.replace("_", " "), text(float(v), "B")) for k, v in e.comm_bytes.items() if float(v) > 0]
    right: list[Block] = [Table(speed(e), "lr", "Speed")]
    right += [BLANK, Table(sent, "lr", "Bytes sent by one GPU a step")] if sent else []
    right += [BLANK, Table([(k, BOUND.get(str(v), str(v))) for k, v in e.bound.items()], "ll", "Bound by")]
    parts = Parts(f"Step, {text(float(e.step_time), 's')}", e.parts, limit=14)
    shown = e.fits or verbose
    out += [Columns([remembered(e.memory), right, *([parts] if shown else [])])]
    out += noted(e.scenario.model, e.bound, e.parts) if shown else []
    return out + (sure(e.error_band, {"step_time_s": "step"}) if verbose else [])


PRETRAINING = 1e10
"""Tokens from which nobody trains adapters alone."""
WAITS = 0.05
"""Share of a step from which it is said what keeps the GPUs waiting for their host."""


def waiting(e: TrainingEstimate) -> list[Block]:
    """Where the GPUs wait for the CPU that launches their kernels: for how long, and what larger micro-batches and CUDA
    graphs would make of the step."""
    s, parts = e.scenario, {name: float(seconds) for name, seconds in e.parts.items()}
    if not e.fits or parts["host"] < WAITS * float(e.step_time):
        return []
    layer = float(sum(layers_host(s))) / float(np.sum(s.model.layers))
    kept = f", {text(layer, 's')} a layer and micro-batch" if layer else ""
    most, now = float(e.max_micro_batch), float(s.mapping.micro_batch)
    sizes = [now * 2**n for n in range(1, 8) if now * 2**n <= most and float(e.micro_batches) % 2**n == 0]
    others = [(f"micro-batch {count(n)}", changed(s, {"micro_batch": n})) for n in sizes]
    timed = sorted((float(train_scenario(other).step_time), name) for name, other in others)[:1]
    held = train_scenario(replace(s, engine=s.engine.but(graphed=1.0)))
    timed.append((float(held.step_time), "its layers in CUDA graphs (--set engine.graphed=1)"))
    better = [f"{text(t, 's')} with {name}" for t, name in timed if t < float(e.step_time)]
    return [Say(f"The GPUs wait {text(parts['host'], 's')} of it for the CPU that launches their kernels{kept}"
                + (f"; a step takes {', '.join(better)}." if better else "."))]  # fmt: skip


def speed(e: TrainingEstimate) -> list[tuple[str, str]]:
    """Rates and utilisation."""
    return [
        ("tokens/s per GPU", count(e.tokens_per_s_per_gpu)), ("model TFLOP/s per GPU", count(e.model_tflops_per_gpu)),
        ("MFU (all pairs of tokens)", percent(e.mfu)), ("MFU (causal pairs only)", percent(e.mfu_causal)),
        ("HFU (all pairs of tokens)", percent(e.hfu)), ("bubble over busy time", percent(e.bubble_fraction)),
        ("micro-batches", count(e.micro_batches)), ("power per GPU", text(float(e.power), "W")),
    ]  # fmt: skip


LONG, MTBF = 1e6, "50000h"
"""GPU-hours from which a run is told how to count failures, and a mean time between those of one GPU: 16,384 H100 were
stopped 419 times in 54 days (Llama 3, arXiv:2407.21783, section 3.3.4)."""

NEVER = "Failures come so often that it never ends: raise training.mtbf, or lower training.restart."


def run(e: TrainingEstimate) -> list[Block]:
    """The whole run in a sentence, where its tokens are given."""
    tokens = float(e.scenario.workload.tokens)
    if tokens <= 0:
        usual = "10M" if e.scenario.training.adapters else "300B"
        return [Say(f"For days, GPU-hours and cost of a run, give its tokens: --tokens {usual}.", "faint")]
    job = e.job
    steps = spoken(e.steps, "step" if float(e.steps) == 1 else "steps")
    line = (
        f"{spoken(tokens)} tokens take {days(e.days)}: {steps}, {spoken(e.gpu_hours)} "
        f"GPU-hours, {spoken(e.cost, 'USD')}, {watt_hours(e.energy)}"
    )
    price = Say(price_note([e.scenario.cluster.device]), "faint", "price")
    if float(job.goodput) >= 1:
        hint = f" (with failures: --set training.mtbf={MTBF})" if float(e.gpu_hours) >= LONG else ""
        return [Say(f"{line}, if nothing disturbs it{hint}."), price]
    if float(job.goodput) <= 0:
        return [Say(f"{line}, if nothing disturbs it."), Say(NEVER, "bad"), price]
    in_all = f"{days(job.days_with_failures)} and {spoken(e.cost / job.goodput, 'USD')}"
    return [Say(f"{line}; with failures and checkpoints {in_all} (goodput {percent(job.goodput)})."), price]
