"""A prediction of training in words: the step, the run, whether it fits, memory, communication and parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflm.catalogue.prices import told
from rooflm.estimate.results import headline
from rooflm.estimate.said import LIKELY, banded, noted, remembered, sure, verdict
from rooflm.shown.blocks import BLANK, Beside, Block, Parts, Say, Table
from rooflm.shown.numbers import count, percent, said, text, watt_hours

if TYPE_CHECKING:
    from rooflm.estimate.training import TrainingEstimate

DAY = 86400.0


def blocks(e: TrainingEstimate, verbose: bool = False) -> list[Block]:
    """The answer."""
    w, m, t = e.scenario.workload, e.scenario.mapping, e.scenario.training
    again = " + ".join((*(m.recompute,) * (m.recompute != "none" or not m.recompute_modules), *m.recompute_modules))
    kind = f"LoRA rank {count(t.lora_rank)}" if t.adapters else t.optimizer
    asked = (
        f"{count(w.batch)} sequences of {count(w.seq)} tokens a step, micro-batch {count(m.micro_batch)}; {kind}, "
        f"ZeRO {count(m.zero)}; recompute {again}, schedule {m.schedule}, sequence parallel {'on' if m.sp else 'off'}"
    )
    band = banded(e.step_time, e.error_band["step_time_s"])
    step = f"A step takes {text(float(e.step_time), 's')}" + (f", {band} {LIKELY}." if band else ".")
    fits = verdict(e, "micro-batch", e.max_micro_batch)
    out: list[Block] = [Say(headline(e.scenario, e.gpus), "title"), Say(asked), BLANK, *fits,
                        Say(step if e.fits else f"If it did: {step[0].lower()}{step[1:]}"), *run(e), BLANK]  # fmt: skip
    sent = [(k.replace("_", " "), text(float(v), "B")) for k, v in e.comm_bytes.items() if float(v) > 0]
    right: list[Block] = [Table(speed(e), "lr", "Speed")]
    right += [BLANK, Table(sent, "lr", "Bytes sent by one GPU a step")] if sent else []
    right += [BLANK, Table([(k, str(v)) for k, v in e.bound.items()], "ll", "Bound by")]
    parts = Parts(f"Step, {text(float(e.step_time), 's')}", e.parts, limit=14)
    shown = e.fits or verbose
    out += [Beside([remembered(e.memory), right, *([parts] if shown else [])]), *(noted(e.parts) if shown else [])]
    return out + (sure(e.error_band, {"step_time_s": "step"}) if verbose else [])


def speed(e: TrainingEstimate) -> list[tuple[str, str]]:
    """Rates and utilisation."""
    return [
        ("tokens/s per GPU", count(e.tokens_per_s_per_gpu)),
        ("model TFLOP/s per GPU", count(e.model_tflops_per_gpu)),
        ("MFU (all pairs of tokens)", percent(e.mfu)),
        ("MFU (causal pairs only)", percent(e.mfu_causal)),
        ("HFU", percent(e.hfu)),
        ("bubble", percent(e.bubble_fraction)),
        ("micro-batches", count(e.micro_batches)),
        ("power per GPU", text(float(e.power), "W")),
    ]


def run(e: TrainingEstimate) -> list[Block]:
    """The whole run in a sentence, where its tokens are given."""
    tokens = float(e.scenario.workload.tokens)
    if tokens <= 0:
        return [Say("For days, GPU-hours and cost of a run, give its tokens: --tokens 300B.", "faint")]
    job = e.job
    line = (
        f"{said(tokens)} tokens take {text(float(e.days) * DAY, 's')}: {said(e.steps)} steps, {said(e.gpu_hours)} "
        f"GPU-hours, {said(e.cost, 'USD')}, {watt_hours(e.energy)}"
    )
    price = Say(told([e.scenario.cluster.device]), "faint", "price")
    if float(job.goodput) >= 1:
        return [Say(f"{line}, if nothing disturbs it."), price]
    failing = text(float(job.days_with_failures) * DAY, "s")
    return [Say(f"{line}; with failures and checkpoints {failing} (goodput {percent(job.goodput)})."), price]
