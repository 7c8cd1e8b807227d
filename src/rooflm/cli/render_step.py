"""What `rooflm train` adds where asked: time by part of the model, operations, and what FLOPs alone would take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rooflm.asked.answers.training import TrainingEstimate
from rooflm.cli.render import op_table
from rooflm.estimate.training_step import PHASES, of_phase
from rooflm.graph.ops import Op
from rooflm.kernels.roofline import BOUNDS, comm_volume
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import count, days, percent, seconds


def part_rows(e: TrainingEstimate) -> list[dict[str, Any]]:
    """Device seconds of a step by part of the model and phase, largest first; all passes of a mean stage."""
    times = float(e.micro_batches) / float(e.scenario.mapping.pp)
    rows = []
    for name, whole in sorted(e.components.items(), key=lambda kv: -float(kv[1])):
        by_phase = {
            phase: times * sum(float(v) for k, v in e.detail[phase].items() if k.replace("regather", "comm") == name)
            for phase in PHASES
        }
        rows.append({"part": name, **by_phase, "time_s": float(whole)})
    return rows


def part_blocks(e: TrainingEstimate) -> list[Block]:
    """The table of parts."""
    rows = part_rows(e)
    total = sum(r["time_s"] for r in rows) or 1.0
    cells = [(r["part"].replace("_", " "), *(seconds(r[p]) for p in PHASES), seconds(r["time_s"]),
              percent(r["time_s"] / total)) for r in rows]  # fmt: skip
    head = ("part of the model", *PHASES, "step", "share")
    title = f"Device time of a step by part, {seconds(total)} on the mean stage"
    return [Table([head, *cells], "l" + "r" * (len(PHASES) + 2), title, head=True),
            Say("Communication counts in full, hidden or not.", "faint")]  # fmt: skip


def op_rows(e: TrainingEstimate) -> list[dict[str, Any]]:
    """The operations of one micro-batch, all layers, and of the update: counts, FLOPs, bytes, seconds, bound."""
    rows = []
    groups = {**{phase: of_phase(e.timed, phase) for phase in PHASES}, "update": e.timed["step", "update"]}
    for phase, timed in groups.items():
        for t in timed:
            op = t.node
            rows.append({
                "phase": phase, "name": op.name, "part": op.part, "count": float(op.count),
                "flops": float(op.flops) if isinstance(op, Op) else 0.0,
                "bytes": float(op.bytes) if isinstance(op, Op) else float(comm_volume(op)) / max(float(op.count), 1e-9),
                "time_s": float(t.total), "bound": BOUNDS[int(t.bound)],
            })  # fmt: skip
    return rows


def op_blocks(e: TrainingEstimate) -> list[Block]:
    """The tables of operations, phase by phase."""
    rows = op_rows(e)
    out: list[Block] = []
    for phase in dict.fromkeys(r["phase"] for r in rows):
        own = [r for r in rows if r["phase"] == phase]
        total = sum(r["time_s"] for r in own) or 1.0
        shown = [r | {"name": r["name"].replace("_", " "), "share": r["time_s"] / total} for r in own]
        title = f"Operations of the {phase}" + (" of one micro-batch, all layers" if phase != "update" else "")
        out += [*([BLANK] if out else []), op_table(title, shown)]
    return out


ROWS: dict[str, Callable[[TrainingEstimate], list[dict[str, Any]]]] = {"parts": part_rows, "ops": op_rows}
BLOCKS: dict[str, Callable[[TrainingEstimate], list[Block]]] = {"parts": part_blocks, "ops": op_blocks}


def flops_json(e: TrainingEstimate) -> dict[str, Any]:
    """What FLOPs alone take: seconds of a step, and of the run where its tokens are given."""
    values = e.values({"flops_time_s", "flops_gpu_hours", "steps", "gpus"})
    if float(e.scenario.workload.tokens) <= 0:
        del values["flops_gpu_hours"], values["steps"]
    return values


def flops_blocks(e: TrainingEstimate) -> list[Block]:
    """The same for people."""
    s = e.scenario
    rate = "the datasheet's peak" if s.efficiency.mode != "flat" else f"{float(s.efficiency.compute):g} of the peak"
    rows = [("a step", seconds(e.flops_time))]
    if float(s.workload.tokens) > 0:
        hours = float(e.flops_gpu_hours)
        rows += [("steps", count(e.steps)), ("GPU-hours", count(hours)), ("time", days(hours / float(e.gpus) / 24))]
    head = f"{s.model.name} on {count(e.gpus)} x {s.cluster.device.name}: FLOPs alone, at {rate}"
    note = "No memory, communication, bubble or update: a bound, and what tools that count FLOPs alone print."
    return [Say(head, "title"), Table(rows, "lr"), Say(note, "faint")]
