"""Pictures of one prediction, of inference or training: where the time goes, memory, operations under the roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rooflm.asked.answers.inference import InferenceEstimate
from rooflm.asked.answers.training import TrainingEstimate
from rooflm.estimate.training_step import PHASES, of_phase
from rooflm.graph.ops import Op
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed
from rooflm.plots.bars import Bar, bars
from rooflm.plots.picture import Picture
from rooflm.plots.roofline import Ops, Roof
from rooflm.plots.roofline import roofline as draw_roofline
from rooflm.plots.scale import Scale, number
from rooflm.shown.blocks import called
from rooflm.shown.numbers import text
from rooflm.units import GIB

Estimate = InferenceEstimate | TrainingEstimate
LEAST = 0.004
"""Share of every bar below which a part counts as "other"."""


def subject(e: Estimate) -> str:
    """What a prediction is about."""
    s, w, m = e.scenario, e.scenario.workload, e.scenario.mapping
    output = f", output {number(w.output)}" if s.model.head else ""
    sizes = f"prompt {number(w.prompt)}{output}" if isinstance(e, InferenceEstimate) else f"seq {number(w.seq)}"
    split = "".join(f", {k} {number(getattr(m, k))}" for k in ("tp", "pp", "dp", "cp", "ep") if getattr(m, k) != 1)
    head = f"{s.model.name} on {number(e.gpus)} x {s.cluster.device.name}{split}"
    verdict = "" if e.fits else "; does not fit in memory"
    return f"{head}: batch {number(w.batch)}, {sizes}, {s.engine.name}, {s.quant.name}{verdict}"


def largest(made: list[dict[str, float]]) -> list[dict[str, float]]:
    """The parts of each bar, those that show in no bar gathered as "other".

    >>> largest([{"mlp": 99.9, "norm": 0.1}, {"mlp": 10.0}])
    [{'mlp': 99.9, 'other': 0.1}, {'mlp': 10.0}]
    """
    totals = [sum(parts.values()) or 1.0 for parts in made]
    names = dict.fromkeys(p for parts in made for p in parts)
    shown = {n for n in names if any(p.get(n, 0.0) >= LEAST * t for p, t in zip(made, totals, strict=True))}
    small = {n for n in names if n not in shown and any(p.get(n, 0.0) > 0 for p in made)}
    out = []
    for parts in made:
        rest = sum(parts[n] for n in small if n in parts)
        out.append({n: v for n, v in parts.items() if n in shown} | ({"other": rest} if rest else {}))
    return out


def columns(e: Estimate) -> dict[str, dict[str, Any]]:
    """What is broken down: each bar's name, and its seconds by part."""
    if isinstance(e, InferenceEstimate):
        return {"prefill": e.prefill_parts, "decode step": e.decode_parts, "request": e.parts}
    phases = {f"{k} of a micro-batch": v for k, v in e.detail.items()}
    return {"step": e.parts} | {k: v for k, v in phases.items() if sum(map(float, v.values())) > 0}


def parts(e: Estimate) -> Picture:
    """Each phase by part, as shares of its own time, so that each is legible."""
    shown = columns(e)
    totals = {name: sum(map(float, c.values())) for name, c in shown.items()}
    shares = largest([{n: 100 * float(v) / totals[name] for n, v in c.items()} for name, c in shown.items()])
    made = [Bar(f"{name}, {text(totals[name], 's')}", share) for name, share in zip(shown, shares, strict=True)]
    return bars("Where the time goes", Scale("share of the time (%)", percent=True), made, subject(e))


def memory(e: Estimate) -> Picture:
    """Memory of the fullest GPU by part, with the line of the capacity."""
    (held,) = largest([{k: float(v) / GIB for k, v in e.memory.parts.items()}])
    mark = "" if bool(np.asarray(e.memory.total) <= e.memory.capacity) else "OOM"
    bar = Bar(e.scenario.cluster.device.name, held, limit=float(e.memory.capacity) / GIB, mark=mark)
    title = str(called("Memory of the fullest GPU by part", e.scenario.cluster.device.called))
    return bars(title, Scale("memory (GiB)"), [bar], subject(e), "usable memory")


def phases(e: Estimate) -> dict[str, list[Timed]]:
    """The timed nodes of each phase of the work."""
    if isinstance(e, TrainingEstimate):
        return {**{phase: of_phase(e.timed, phase) for phase in PHASES}, "update": e.timed["step", "update"]}
    return {phase: list(timed) for phase, timed in e.timed.items() if e.scenario.model.head or phase != "decode"}


def roofline(e: Estimate) -> Picture:
    """Every operation of each phase as a point: FLOP/s over FLOP a byte, under compute and memory roofs."""
    found, types = operations(e)
    ends = [v for o in found for v in o.x.tolist()] + [1.0, 1000.0]
    return draw_roofline(
        "Operations under the roofline", roofs(e, types, (min(ends) / 10, max(ends) * 10)), found, subject(e)
    )


def operations(e: Estimate) -> tuple[list[Ops], set[str]]:
    """The operations of each phase that compute, and the kinds of data types that they compute in."""
    found, types = [], set()
    for phase, timed in phases(e).items():
        nodes = [(t.node, float(np.mean(t.time)), float(np.mean(t.total))) for t in timed if isinstance(t.node, Op)]
        kept = [(o, t, total) for o, t, total in nodes if float(np.mean(o.flops)) > 0 and t > 0]
        if not kept:
            continue
        x = np.array([float(np.mean(o.flops) / np.mean(o.bytes)) for o, _, _ in kept])
        y = np.array([float(np.mean(o.flops)) / t for o, t, _ in kept])
        share = np.array([total for *_, total in kept]) / sum(float(np.mean(t.total)) for t in timed)
        found.append(Ops(phase, x, y, tuple(o.name.replace("_", " ") for o, *_ in kept), share))
        types |= {o.rate if o.rate in ("quant", "rest") else "half" for o, *_ in kept}
    return found, types


def roofs(e: Estimate, types: Iterable[str], ends: tuple[float, float]) -> list[Roof]:
    """The bounds of the device between two intensities: memory and L2 bandwidth up to the highest peak, and each data
    type's peak. Their corners suffice: on logarithmic axes they are straight."""
    device, r = e.scenario.cluster.device, rates(e.scenario)
    peaks = {r.dtype[k]: float(np.mean(device.peak[r.dtype[k]])) for k in sorted(types)}
    top = max(peaks.values())
    speeds = {"device memory": float(np.mean(device.dram.bandwidth)), "L2": float(np.mean(device.l2.bandwidth))}
    x = np.sort([*ends, *(top / v for v in speeds.values())])
    found = [Roof(f"{level}, {text(v, 'B/s')}", x, np.minimum(v * x, top)) for level, v in speeds.items()]
    return found + [Roof(f"{dtype}, {text(peak, 'FLOP/s')}", x, np.full_like(x, peak)) for dtype, peak in peaks.items()]


POINTS: dict[str, Callable[[Estimate], Picture]] = {"parts": parts, "memory": memory, "roofline": roofline}
"""Kind -> the picture of one prediction."""
