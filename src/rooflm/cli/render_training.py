"""A training prediction as text of at most 80 columns, and as JSON."""

from __future__ import annotations

from typing import Any

from rooflm.cli.render import banded, beside, columns, count, percent, seconds, shares, wrap
from rooflm.estimate.training import TrainingEstimate
from rooflm.units import gib, text


def train_text(e: TrainingEstimate) -> str:
    """A training prediction for people."""
    s, w, m, t = e.scenario, e.scenario.workload, e.scenario.mapping, e.scenario.training
    degrees = [f"{k} {count(getattr(m, k))}" for k in ("tp", "pp", "vp", "dp", "cp", "ep") if getattr(m, k) != 1]
    again = " + ".join((*(m.recompute,) * (m.recompute != "none" or not m.recompute_modules), *m.recompute_modules))
    kind = f"LoRA rank {count(t.lora_rank)}" if t.adapters else t.optimizer
    lines = [
        f"{s.model.name} on {count(e.gpus)} x {s.cluster.device.name}"
        + (f" ({', '.join(degrees)})" if degrees else ""),
        f"{count(w.batch)} sequences of {count(w.seq)} tokens a step, micro-batch {count(m.micro_batch)}; "
        f"{s.quant.name}, {kind}, ZeRO {count(m.zero)}",
        f"recompute {again}, schedule {m.schedule}, sequence parallel {'on' if m.sp else 'off'}; {s.engine.name}",
        *wrap("assumed", e.assumed),
        "",
        f"A step takes {seconds(e.step_time)} {banded(e.step_time, e.error_band['step_time_s'])}".rstrip(),
        "",
    ]
    speed = [
        ("tokens/s per GPU", count(e.tokens_per_s_per_gpu)),
        ("model TFLOP/s per GPU", count(e.model_tflops_per_gpu)),
        ("MFU (all pairs of tokens)", percent(e.mfu)),
        ("MFU (causal pairs only)", percent(e.mfu_causal)),
        ("HFU", percent(e.hfu)),
        ("bubble", percent(e.bubble_fraction)),
    ]
    right = ["The run", *columns(run_rows(e), "lr")]
    lines += beside(["Speed", *columns(speed, "lr")], right)
    lines.append("")
    memory = [(k.replace("_", " "), gib(float(v))) for k, v in e.memory.parts.items() if float(v) > 0]
    memory += [("total", gib(float(e.memory.total))), ("usable", gib(float(e.memory.capacity)))]
    sent = [(k.replace("_", " "), text(float(v), "B")) for k, v in e.comm_bytes.items() if float(v) > 0]
    bounds = ["", "Bound by", *columns([(k, str(v)) for k, v in e.bound.items()], "ll")]
    lines += beside(
        ["Memory of the fullest GPU", *columns(memory, "lr")],
        ["Bytes sent by one GPU a step", *columns(sent or [("none", "")], "lr"), *bounds],
    )
    lines += ["", verdict(e), "", f"Step, {seconds(e.step_time)}", *columns(shares(e.parts, 14), "lrr")]
    return "\n".join(lines)


def run_rows(e: TrainingEstimate) -> list[tuple[str, str]]:
    """The whole run where its tokens are given, else power and micro-batches."""
    rows = [("micro-batches", count(e.micro_batches)), ("power per GPU", text(float(e.power), "W"))]
    if float(e.scenario.workload.tokens) > 0:
        job = e.job
        rows += [
            ("steps", count(e.steps)),
            ("GPU-hours", count(e.gpu_hours)),
            ("days", count(e.days)),
            ("cost", f"{float(e.cost):.3g} USD"),
            ("energy", f"{float(e.energy) / 3.6e9:.3g} MWh"),
        ]
        if float(job.goodput) < 1:
            rows += [("goodput", percent(job.goodput)), ("days with failures", count(job.days_with_failures))]
        return rows
    return [*rows, ("give --tokens", "for hours, cost")]


def verdict(e: TrainingEstimate) -> str:
    """Whether it fits, by how much, and the largest micro-batch that does."""
    margin = float(e.memory.margin)
    most = count(e.max_micro_batch)
    if bool(e.fits):
        return f"Fits with {gib(margin)} to spare; the largest micro-batch that fits is {most}."
    if margin < 0:
        fits = f"the largest micro-batch that fits is {most}" if float(e.max_micro_batch) else "no micro-batch fits"
        return f"DOES NOT FIT: {gib(-margin)} too much; {fits}."
    return f"CANNOT RUN: {e.reason}."


def train_json(e: TrainingEstimate) -> dict[str, Any]:
    """The object of --json: the contract's keys, and what was asked and assumed."""
    s, m, w = e.scenario, e.scenario.mapping, e.scenario.workload
    asked = {
        "model": s.model.name, "gpu": s.cluster.device.name, "cluster": s.cluster.name, "engine": s.engine.name,
        "dtype": s.quant.name, "efficiency": s.efficiency.mode, "batch": w.batch, "seq": w.seq, "tokens": w.tokens,
        "tp": m.tp, "pp": m.pp, "vp": m.vp, "dp": m.dp, "cp": m.cp, "ep": m.ep, "sp": m.sp,
        "micro_batch": m.micro_batch, "recompute": m.recompute, "recompute_modules": list(m.recompute_modules),
        "zero": m.zero, "schedule": m.schedule,
        "optimizer": s.training.optimizer, "lora_rank": s.training.lora_rank,
    }  # fmt: skip
    values = e.values()
    values["reason"] = str(e.reason)
    values["bound"] = {k: str(v) for k, v in e.bound.items()}
    return {
        **values,
        "convention": e.convention,
        "scenario": asked,
        "assumed": list(e.assumed),
        "warnings": list(e.warnings),
    }
