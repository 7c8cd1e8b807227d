"""Pictures of one prediction, of inference or training: where the time goes, memory, operations under the roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rooflm.estimate.inference import InferenceEstimate
from rooflm.estimate.training import TrainingEstimate
from rooflm.estimate.training_step import PHASES
from rooflm.graph.ops import Op
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed
from rooflm.plots.pictures import Array, Bars, Cloud, Roof, Roofline, Scale, number
from rooflm.units import text

Estimate = InferenceEstimate | TrainingEstimate


def subject(e: Estimate) -> str:
    """What a prediction is about."""
    s, w, m = e.scenario, e.scenario.workload, e.scenario.mapping
    sizes = (
        f"prompt {number(w.prompt)}, output {number(w.output)}"
        if isinstance(e, InferenceEstimate)
        else f"seq {number(w.seq)}"
    )
    split = "".join(f", {k} {number(getattr(m, k))}" for k in ("tp", "pp", "dp", "cp", "ep") if getattr(m, k) != 1)
    head = f"{s.model.name} on {number(e.gpus)} x {s.cluster.device.name}{split}"
    return f"{head}: batch {number(w.batch)}, {sizes}, {s.engine.name}, {s.quant.name}"


def largest(parts: dict[str, Array], most: int = 7) -> dict[str, Array]:
    """The largest parts by name, the rest as "other"; parts that are zero everywhere left out."""
    ranked = sorted(((k, v) for k, v in parts.items() if np.any(v > 0)), key=lambda kv: -float(np.sum(kv[1])))
    shown = {k.replace("_", " "): v for k, v in ranked[:most]}
    rest = [v for _, v in ranked[most:]]
    return shown | ({"other": np.sum(rest, axis=0)} if rest else {})


def columns(e: Estimate) -> dict[str, dict[str, Any]]:
    """What is broken down: each bar's name, and its seconds by part."""
    if isinstance(e, InferenceEstimate):
        return {"prefill": e.prefill_parts, "decode step": e.decode_parts, "request": e.parts}
    phases = {f"{k} of a\nmicro-batch": v for k, v in e.detail.items()}
    return {"step": e.parts} | {k: v for k, v in phases.items() if sum(map(float, v.values())) > 0}


def parts(e: Estimate) -> Bars:
    """Each phase by part, as shares of its own time, so that each is legible."""
    bars = columns(e)
    totals = [sum(map(float, c.values())) for c in bars.values()]
    names = dict.fromkeys(n for c in bars.values() for n in c)
    shares = {
        n: np.array([100 * float(c.get(n, 0.0)) / t for c, t in zip(bars.values(), totals, strict=True)]) for n in names
    }
    labels = tuple(f"{word}\n{text(t, 's')}" for word, t in zip(bars, totals, strict=True))
    return Bars(
        f"Where the time goes\n{subject(e)}", labels, Scale("share of the time (%)", percent=True), largest(shares, 9)
    )


def memory(e: Estimate) -> Bars:
    """Memory of the fullest GPU by part, with the capacity line."""
    scale = Scale("memory of the fullest GPU (GiB)", 2.0**-30)
    held = {k: np.array([float(v) * scale.factor]) for k, v in e.memory.parts.items()}
    limit = np.array([float(e.memory.capacity) * scale.factor])
    mark = "" if bool(np.asarray(e.memory.total) <= e.memory.capacity) else "OOM"
    device = e.scenario.cluster.device.name
    return Bars(f"Memory\n{subject(e)}", (device,), scale, largest(held), limit, "usable memory", (mark,))


def phases(e: Estimate) -> dict[str, list[Timed]]:
    """The timed nodes of each phase of the work."""
    if isinstance(e, TrainingEstimate):
        return {**{phase: e.timed.phase(phase) for phase in PHASES}, "update": list(e.timed.update)}
    return {phase: list(timed) for phase, timed in e.timed.items()}


def roofline(e: Estimate) -> Roofline:
    """Every operation of each phase as a point: FLOP/s over FLOP a byte, under compute and memory roofs."""
    clouds, types = [], set()
    spread = [1.0, 1000.0]
    for phase, timed in phases(e).items():
        rows = [(t.node, float(np.mean(t.time)), float(np.mean(t.total))) for t in timed if isinstance(t.node, Op)]
        kept = [(o, t, total) for o, t, total in rows if float(np.mean(o.flops)) > 0 and t > 0]
        if not kept:
            continue
        x = np.array([float(np.mean(o.flops) / np.mean(o.bytes)) for o, _, _ in kept])
        y = np.array([float(np.mean(o.flops)) / t for o, t, _ in kept])
        share = np.array([total for *_, total in kept]) / sum(float(np.mean(t.total)) for t in timed)
        clouds.append(Cloud(phase, x, y, tuple(o.name.replace("_", " ") for o, *_ in kept), share))
        types |= {"quant" if o.rate == "quant" else "half" for o, *_ in kept}
        spread += x.tolist()
    return Roofline(
        f"Roofline\n{subject(e)}",
        tuple(roofs(e, types, np.geomspace(min(spread) / 2, max(spread) * 4, 200))),
        tuple(clouds),
    )


def roofs(e: Estimate, types: Iterable[str], x: Array) -> list[Roof]:
    """The bounds of the device: memory and L2 bandwidth up to the highest peak, and each data type's peak."""
    device, r = e.scenario.cluster.device, rates(e.scenario)
    peaks = {r.dtype[k]: float(np.mean(device.peak[r.dtype[k]])) for k in sorted(types)}
    top = max(peaks.values())
    speeds = {"device memory": float(np.mean(device.dram.bandwidth)), "L2": float(np.mean(device.l2.bandwidth))}
    found = [Roof(f"{level} {number(v)}B/s", x, np.minimum(v * x, top)) for level, v in speeds.items()]
    return found + [Roof(f"{dtype} {number(peak)}FLOP/s", x, np.full_like(x, peak)) for dtype, peak in peaks.items()]


POINTS: dict[str, Callable[[Estimate], Bars | Roofline]] = {"parts": parts, "memory": memory, "roofline": roofline}
"""Kind -> the picture of one prediction."""
