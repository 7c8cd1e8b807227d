"""Answers as text of at most 80 columns, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rooflm.estimate.inference import InferenceEstimate
from rooflm.estimate.results import plain
from rooflm.graph.ops import Op
from rooflm.kernels.roofline import BOUNDS, Timed
from rooflm.units import LONG, gib, text

WIDTH = 80


def dumps(values: dict[str, Any]) -> str:
    """One JSON object in SI units."""
    return json.dumps(plain(values), indent=1)


def columns(rows: Iterable[Sequence[str]], right: str, gap: int = 2, indent: int = 2) -> list[str]:
    """Rows of cells as aligned lines. right: one letter a column, "r" for numbers, "l" for names.

    >>> columns([("a", "1 ms"), ("bcd", "22 ms")], "lr")
    ['  a     1 ms', '  bcd  22 ms']
    """
    listed = [list(r) for r in rows]
    widths = [max((len(r[i]) for r in listed), default=0) for i in range(len(right))]
    out = []
    for row in listed:
        cells = [c.rjust(w) if side == "r" else c.ljust(w) for c, w, side in zip(row, widths, right, strict=True)]
        out.append((" " * indent + (" " * gap).join(cells)).rstrip())
    return out


def beside(left: list[str], right: list[str], width: int = 40) -> list[str]:
    """Two blocks of lines side by side."""
    height = max(len(left), len(right))
    left, right = left + [""] * (height - len(left)), right + [""] * (height - len(right))
    return [(a.ljust(width) + b).rstrip() for a, b in zip(left, right, strict=True)]


def seconds(value: Any) -> str:
    """A time for people."""
    return text(float(value), "s")


def percent(value: Any) -> str:
    """A share for people.

    >>> percent(0.4567)
    '45.7 %'
    """
    return f"{100 * float(value):.1f} %"


def count(value: Any) -> str:
    """A number with at most four digits that matter.

    >>> count(1234.6), count(12.345), count(3.0)
    ('1235', '12.3', '3')
    """
    number = float(value)
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def shares(parts: dict[str, Any], limit: int = 9) -> list[Sequence[str]]:
    """Parts above a thousandth of the total, largest first, with their share."""
    total = sum(float(v) for v in parts.values()) or 1.0
    kept = sorted(((k, float(v)) for k, v in parts.items() if float(v) > 1e-3 * total), key=lambda p: -p[1])
    return [(k.replace("_", " "), seconds(v), percent(v / total)) for k, v in kept[:limit]]


def wrap(label: str, items: Sequence[str]) -> list[str]:
    """A label and its items in lines of at most 80 columns."""
    import textwrap

    return textwrap.wrap(f"{label}: " + "; ".join(items), WIDTH, subsequent_indent="  ") if items else []


def infer_text(e: InferenceEstimate, ops: bool) -> str:
    """A prediction for people."""
    s, w, m = e.scenario, e.scenario.workload, e.scenario.mapping
    degrees = [f"{k} {count(getattr(m, k))}" for k in ("tp", "pp", "dp", "ep", "cp") if getattr(m, k) != 1]
    split = f" ({', '.join(degrees)})" if degrees else ""
    lines = [
        f"{s.model.name} on {count(e.gpus)} x {s.cluster.device.name}{split}",
        f"batch {count(w.batch)}, prompt {count(w.prompt)}, output {count(w.output)} tokens; "
        f"{s.engine.name}, {s.quant.name}",
        *wrap("assumed", e.assumed),
        "",
    ]
    bands = e.error_band
    speed = [
        ("time to first token", seconds(e.ttft), banded(e.ttft, bands["ttft_s"])),
        ("time per output token", seconds(e.tpot), banded(e.tpot, bands["tpot_s"])),
        ("  at the end", seconds(e.tpot_end), ""),
        ("request latency", seconds(e.latency), banded(e.latency, bands["latency_s"])),
        ("output tokens/s", count(e.output_tokens_per_s), ""),
        ("  per GPU", count(e.output_tokens_per_s_per_gpu), ""),
    ]
    cost = [
        ("MFU (prefill)", percent(e.prefill_mfu)),
        ("MBU (decode)", percent(e.decode_mbu)),
        ("GPU busy", percent(e.busy)),
        ("power per GPU", text(float(e.power), "W")),
        ("energy per output token", text(float(e.energy_per_token), "J")),
        ("USD per million tokens", f"{float(e.cost_per_million_tokens):.2f}"),
    ]
    lines += ["Speed", *columns(speed, "lrl"), ""]
    memory = [(k.replace("_", " "), gib(float(v))) for k, v in e.memory.parts.items() if float(v) > 0]
    memory += [("total", gib(float(e.memory.total))), ("usable", gib(float(e.memory.capacity)))]
    right = ["Bytes sent by one GPU"]
    sent = [(k, text(float(v), "B")) for k, v in e.comm_bytes.items()]
    right += columns([("prefill", sent[0][1]), ("decode step", sent[1][1])], "lr")
    bounds = [("prefill", str(e.bound["prefill"])), ("decode", str(e.bound["decode"]))]
    right += ["", "Bound by", *columns(bounds, "ll")]
    left = ["Memory of the fullest GPU", *columns(memory, "lr")]
    lines += beside(left, ["Efficiency and cost", *columns(cost, "lr"), "", *right])
    lines += ["", verdict(e), ""]
    lines += beside(
        [f"Prefill, {seconds(e.ttft)}", *columns(shares(e.prefill_parts), "lrr")],
        [f"Decode step, {seconds(e.tpot)}", *columns(shares(e.decode_parts), "lrr")],
    )
    if ops:
        lines += ["", *op_lines(e)]
    return "\n".join(lines)


SCALES = {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0} | {name: 1 / size for name, size in LONG.items()}
"""Unit of a time as printed -> what seconds are multiplied by."""


def banded(value: Any, found: dict[str, Any]) -> str:
    """An error band for people, in brackets and in the unit in which the value is printed; "" where there is none.

    >>> banded(0.0124, {"low": 0.0112, "high": 0.0141, "rows": 214})
    '(11.2 to 14.1, 214 like rows)'
    """
    scale = SCALES.get(seconds(value).split()[-1])
    if not found["rows"] or scale is None:
        return ""
    low, high = (f"{float(found[k]) * scale:#.3g}".rstrip(".") for k in ("low", "high"))
    return f"({low} to {high}, {found['rows']} like rows)"


def verdict(e: InferenceEstimate) -> str:
    """Whether it fits, by how much, and what would."""
    from rooflm.estimate.capacity import running_limit

    margin = float(e.memory.margin)
    if bool(e.fits):
        limit = float(running_limit(e.scenario))
        runs = f"\n{e.scenario.engine.name} runs {count(limit)} at a time." if limit < float(e.max_batch) else ""
        return f"Fits with {gib(margin)} to spare; the largest batch that fits is {count(e.max_batch)}.{runs}"
    if margin < 0:
        from rooflm.estimate.capacity import fewest_gpus

        least = fewest_gpus(e.scenario)
        most = f"the largest batch that fits is {count(e.max_batch)}" if float(e.max_batch) else "no batch fits"
        more = (
            f"{least.devices} GPUs (tp {least.tp}, pp {least.pp}) would" if least else "no split of it would fit either"
        )
        return f"DOES NOT FIT: {gib(-margin)} too much; {most}; {more}."
    return f"CANNOT RUN: {e.reason}."


def op_rows(e: InferenceEstimate, phase: str) -> list[dict[str, Any]]:
    """The operations of a phase (one pass): counts, FLOPs, bytes, seconds, share and bound."""
    timed: Sequence[Timed] = e.timed[phase]
    total = float(np.mean(e.passes[phase].total))
    rows = []
    for t in timed:
        op = t.node
        own = float(np.mean(t.total))
        rows.append({
            "name": op.name, "part": op.part, "count": float(op.count),
            "flops": float(np.mean(op.flops)) if isinstance(op, Op) else 0.0,
            "bytes": float(np.mean(op.bytes)), "time_s": own, "share": own / total,
            "bound": BOUNDS[int(np.atleast_1d(t.bound)[-1])],
        })  # fmt: skip
    return rows


def op_lines(e: InferenceEstimate) -> list[str]:
    """The table of operations, one pass of each phase (all layers together)."""
    lines = []
    for phase in ("prefill", "decode"):
        head = ("operation", "count", "FLOP each", "bytes each", "time", "share", "bound")
        rows = [
            (r["name"], count(r["count"]), text(r["flops"], ""), text(r["bytes"], "B"), seconds(r["time_s"]),
             percent(r["share"]), r["bound"])
            for r in op_rows(e, phase)
        ]  # fmt: skip
        lines += [f"Operations of a {phase} pass (the rest is gaps and host)", *columns([head, *rows], "lrrrrrl"), ""]
    return lines


def infer_json(e: InferenceEstimate, ops: bool) -> dict[str, Any]:
    """The object of --json: the contract's keys, and what was asked and assumed."""
    values = e.values()
    s = e.scenario
    asked = {
        "model": s.model.name, "gpu": s.cluster.device.name, "cluster": s.cluster.name, "engine": s.engine.name,
        "quant": s.quant.name, "efficiency": s.efficiency.mode, "batch": s.workload.batch, "prompt": s.workload.prompt,
        "output": s.workload.output, "tp": s.mapping.tp, "pp": s.mapping.pp, "dp": s.mapping.dp, "ep": s.mapping.ep,
        "cp": s.mapping.cp,
    }  # fmt: skip
    out: dict[str, Any] = {**values, "scenario": asked, "assumed": list(e.assumed), "warnings": list(e.warnings)}
    out["bound"] = {k: str(v) for k, v in e.bound.items()}
    out["reason"] = str(e.reason)
    if float(e.memory.margin) < 0:
        from rooflm.estimate.capacity import fewest_gpus

        least = fewest_gpus(e.scenario)
        out["fewest_gpus"] = least._asdict() if least else None
    if ops:
        out["ops"] = {phase: op_rows(e, phase) for phase in ("prefill", "decode")}
    return out


GRID_COLUMNS = (
    ("ttft_s", "TTFT", seconds),
    ("tpot_s", "TPOT", seconds),
    ("latency_s", "latency", seconds),
    ("output_tokens_per_s", "tokens/s", count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of a grid of `infer`: key, heading, how to write it."""
TRAIN_COLUMNS = (
    ("step_time_s", "step", seconds),
    ("tokens_per_s_per_gpu", "tokens/s/GPU", count),
    ("model_tflops_per_gpu", "TFLOP/s/GPU", count),
    ("mfu", "MFU", percent),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of a grid of `train`."""
DROPPED_FIRST = ("latency_s", "memory_bytes", "ttft_s", "output_tokens_per_s", "model_tflops_per_gpu", "mfu")
"""Columns that go first where the table would be wider than 80."""
MOST_ROWS = 200


def grid_text(grid: Any) -> str:
    """A grid for people: one row a point, OOM where it does not fit. Usual columns for which 80 have no room are left
    out; outputs that were asked for stand in as many tables as they take."""
    shape = tuple(len(a.values) for a in grid.axes)
    names = [m.name.rsplit(".", 1)[-1] for a in grid.axes for m in a.members]
    places = list(np.ndindex(shape))[:MOST_ROWS]
    sides = "".join("l" if isinstance(m.values[0], str) else "r" for a in grid.axes for m in a.members)

    def made(shown: Sequence[tuple[str, str, Any]]) -> list[str]:
        head = (*names, *(h for _, h, _ in shown), "")
        return columns(
            [head, *(grid_row(grid, place, shown) for place in places)], sides + "r" * len(shown) + "l", indent=0
        )

    lines = asked_tables(grid, made) if grid.asked else usual_table(grid, made)
    left = int(np.prod(shape)) - len(places)
    return "\n".join([*lines, *([f"... {left} more points: write them with --out FILE.csv"] if left > 0 else [])])


def usual_table(grid: Any, made: Callable[[Sequence[Any]], list[str]]) -> list[str]:
    """The usual columns of a grid, without those for which there is no room. made: columns to lines."""
    known = TRAIN_COLUMNS if "step_time_s" in grid.outputs else GRID_COLUMNS
    shown = [c for c in known if c[0] in grid.arrays] or [column(k, grid.outputs) for k in grid.arrays]
    for key in DROPPED_FIRST:
        if max(map(len, made(shown))) <= WIDTH:
            break
        shown = [c for c in shown if c[0] != key]
    return made(shown)


def asked_tables(grid: Any, made: Callable[[Sequence[Any]], list[str]]) -> list[str]:
    """Every output that was asked for, in that order, in tables of at most 80 columns. made: columns to lines."""
    keys = dict.fromkeys(k for name in grid.asked for k in grid.arrays if k == name or k.startswith(f"{name}."))
    left = [column(k, grid.outputs) for k in keys]
    lines: list[str] = []
    while left:
        most = len(left)
        while most > 1 and max(map(len, made(left[:most]))) > WIDTH:
            most -= 1
        lines += ([""] if lines else []) + made(left[:most])
        left = left[most:]
    return lines


def column(key: str, outputs: Any) -> tuple[str, str, Any]:
    """Key, heading and writer of an output: the usual ones where it has them, else by its unit."""
    known = {c[0]: c for c in (*GRID_COLUMNS, *TRAIN_COLUMNS)}
    row = outputs.get(key.split(".")[0])
    return known.get(key) or (key, key, lambda v: written(v, row.unit if row else ""))


def written(value: Any, unit: str) -> str:
    """A number or a word of any output, for people.

    >>> written(0.0108, "s"), written(2.0**30, "B"), written(True, ""), written(0.5, "1")
    ('10.8 ms', '1.00 GiB', 'yes', '0.5')
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "B":
        return gib(float(value))
    return text(float(value), unit) if unit in ("s", "W", "J") else f"{float(value):.4g}"


def grid_row(grid: Any, place: tuple[int, ...], shown: Sequence[tuple[str, str, Any]]) -> Sequence[str]:
    """One point of a grid as cells: its place, its numbers, and why it cannot run."""
    values = [m.values[i] for a, i in zip(grid.axes, place, strict=True) for m in a.members]
    cells = [str(v) if isinstance(v, str | bool) else count(v) for v in values]
    numbers = [write(grid.arrays[key][place]) for key, _, write in shown]
    why = str(grid.arrays["reason"][place]) if "reason" in grid.arrays else "cannot run"
    fits = bool(grid.arrays["fits"][place]) if "fits" in grid.arrays else True
    verdict_ = "" if fits else "OOM" if "memory" in why else why
    return (*cells, *numbers, verdict_)
