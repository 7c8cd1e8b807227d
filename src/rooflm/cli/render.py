"""Answers as JSON, grids and outputs that were asked for as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.asked.answers.inference import InferenceEstimate
from rooflm.asked.answers.said import BOUND, dollars, dollars_of_run
from rooflm.asked.arguments import arguments
from rooflm.asked.bounds import with_unit
from rooflm.asked.machine import called_of, prices_told
from rooflm.cli.console import Voice
from rooflm.graph.ops import Op
from rooflm.kernels.roofline import BOUNDS, Timed
from rooflm.shown.answer import assumptions
from rooflm.shown.blocks import BLANK, Block, Say, Table, called
from rooflm.shown.numbers import chosen_text, count, days, gib, percent, seconds, text

if TYPE_CHECKING:
    from rooflm.asked.answers.training import TrainingEstimate


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


def op_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of operations with their share of a time."""
    head = ("operation", "count", "FLOP each", "bytes each", "time", "share", "bound")
    cells = [(r["name"], count(r["count"]), text(r["flops"], ""), text(r["bytes"], "B"), seconds(r["time_s"]),
              percent(r["share"]), "memory" if r["bound"] == "dram" else r["bound"]) for r in rows]  # fmt: skip
    return Table([head, *cells], "lrrrrrl", title, head=True, spare=("count",))


def op_tables(e: InferenceEstimate) -> list[Block]:
    """The tables of operations, one pass of each phase (all layers together)."""
    phases = e.passes if e.scenario.model.head else ("prefill",)
    tables = [op_table(f"Operations of a {p} pass (the rest is gaps and host)", op_rows(e, p)) for p in phases]
    return [block for one in tables for block in (BLANK, one)]


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
        from rooflm.asked.answers.remedies import fewest_gpus

        least = fewest_gpus(e.scenario)
        out["fewest_gpus"] = least._asdict() if least else None
    out["would_fit"] = [{**r.change, "margin_bytes": r.margin} for r in e.would_fit]
    if ops:
        out["ops"] = {phase: op_rows(e, phase) for phase in (e.passes if e.scenario.model.head else ("prefill",))}
    return out


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
        "would_fit": [{**r.change, "margin_bytes": r.margin} for r in e.would_fit],
        "scenario": asked,
        "assumed": list(e.assumed),
        "warnings": list(e.warnings),
    }


GRID_COLUMNS = (
    ("ttft_s", "TTFT", seconds),
    ("tpot_s", "TPOT", seconds),
    ("latency_s", "latency", seconds),
    ("output_tokens_per_s", "tokens/s", count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of a grid of `infer`: key, heading, how to write it."""
EMBED_COLUMNS = (("ttft_s", "time of the batch", seconds), ("requests_per_s", "embeddings/s", count), GRID_COLUMNS[-1])
"""Those where every model embeds texts and generates none."""
TRAIN_COLUMNS = (
    ("step_time_s", "step", seconds),
    ("tokens_per_s_per_gpu", "tokens/s/GPU", count),
    ("model_tflops_per_gpu", "TFLOP/s/GPU", count),
    ("mfu", "MFU", percent),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of a grid of `train`."""


def length(value: Any) -> str:
    """How long a run takes, from days on with three digits, so that columns can be compared."""
    return f"{count(value)} days" if 1 <= float(value) < np.inf else days(value)


RUN_COLUMNS = (("days", "time", length), ("gpu_hours", "GPU-hours", count), ("cost_usd", "USD", dollars_of_run))
"""Those before them where tokens of a whole run are asked for."""
FAILURE_COLUMNS = (("days_with_failures", "with failures", lambda v: length(v) if np.isfinite(v) else "never"),)
"""That before them where GPUs fail (`training.mtbf`)."""
COST_COLUMNS = (("cost_usd_per_million_tokens", "USD/M", dollars),)
"""That before them where the price of an hour is swept, or cards that have one, and of users under load."""
MONEY = ("price", "purchase", "electricity", "cluster.device.price")
"""Inputs that say what an hour of a GPU costs."""
SHARE_COLUMNS = (
    ("mbu", "MBU", percent), ("prefill_mfu", "MFU (prefill)", percent), ("decode_mbu", "MBU (decode)", percent),
    ("busy", "GPU busy", percent), ("hfu", "HFU", percent), ("mfu_causal", "MFU (causal)", percent),
    ("bubble_fraction", "bubble", percent), ("goodput", "goodput", percent),
)  # fmt: skip
"""Outputs that are shares, where they are asked for."""
HEADINGS = {
    "energy_j_per_token": "energy/token", "energy_j": "energy", "power_w": "power/GPU", "price_usd_per_hour": "USD/h",
    "output_tokens_per_s_per_gpu": "tokens/s/GPU", "requests_per_s": "requests/s", "tpot_end_s": "TPOT at end",
    "memory_capacity_bytes": "capacity", "host_memory_bytes": "host memory", "flops_time_s": "FLOPs alone",
    "checkpoint_interval_s": "checkpoint every", "layer_forward_s": "layer forward",
    "layer_backward_s": "layer backward",
}  # fmt: skip
"""Headings of other outputs whose key ends in a unit, which their values have."""
LIMIT_COLUMNS = (("good_share", "meet limits", percent),)
"""That before them where a simulation has limits."""
SPARE = ("latency", "TFLOP/s/GPU", "MFU", "memory", "TTFT", "tokens/s")
"""Columns that go first where there is no room: what others imply before what stands alone."""
MOST_ROWS = 200


def grid_table(grid: Any) -> list[Block]:
    """A grid for people, a row a point: whether it fits, and the usual outputs as far as there is room; of outputs that
    were asked for all, in as many tables as they take."""
    shape = tuple(len(a.values) for a in grid.axes)
    members = [m for a in grid.axes for m in a.members]
    places = list(np.ndindex(shape))[:MOST_ROWS]
    if grid.asked:
        keys = dict.fromkeys(k for name in grid.asked for k in grid.arrays if k == name or k.startswith(f"{name}."))
        shown = [column(k, grid.outputs) for k in keys]
    else:
        embeds = "requests_per_s" in grid.arrays and np.all(np.isnan(grid.arrays.get("tpot_s", 0.0)))
        usual: tuple[Any, ...] = EMBED_COLUMNS if embeds else GRID_COLUMNS
        known = TRAIN_COLUMNS if "step_time_s" in grid.outputs else usual
        if any(m.name == "tokens" for m in members) or grid.fixed.get("tokens"):
            known = (*RUN_COLUMNS, *known)
            fails = np.any(np.asarray(grid.arrays.get("goodput", 1.0)) < 1)
            known = (known[0], *FAILURE_COLUMNS, *known[1:]) if fails else known
        cost = np.asarray(grid.arrays.get(COST_COLUMNS[0][0], np.nan), dtype=float)
        dear = any(m.name in (*MONEY, "gpu") and len(set(m.values)) > 1 for m in members) or "good_share" in grid.arrays
        dear = dear and bool(np.any(np.isfinite(cost)))
        known = (*COST_COLUMNS, *known) if dear else known
        known = (*LIMIT_COLUMNS, *known) if grid.fixed.get("slo") else known
        shown = [c for c in known if c[0] in grid.arrays] or [column(k, grid.outputs) for k in grid.arrays]
    why = np.asarray(grid.arrays.get("reason", ""), dtype=object)
    runs = grid.arrays.get("fits")
    refused = np.any(why != "") if runs is None else not np.all(runs)
    judged = "fits" not in grid.asked and (refused or (runs is not None and not grid.asked))
    verdict = ["fits" if "fits" in grid.arrays else "served"] * bool(judged)
    head = (*(m.name.rsplit(".", 1)[-1] for m in members), *verdict, *(h for _, h, _ in shown))
    own = arguments("train" if "step_time_s" in grid.outputs else "infer")
    paths = [own[m.name].path if m.name in own else m.name for m in members]
    rows = []
    for place in places:
        at = [m.values[i] for a, i in zip(grid.axes, place, strict=True) for m in a.members]
        cells = [str(v) if isinstance(v, str | bool) else with_unit(p, v) for p, v in zip(paths, at, strict=True)]
        rows.append((*cells, *([judgement(grid, place)] if judged else []),
                     *(write(grid.arrays[key][place]) for key, _, write in shown)))  # fmt: skip
    sides = "".join("l" if isinstance(m.values[0], str) else "r" for m in members) + "w" * bool(judged)
    listed = {m.name: m.values for m in members}
    word = called_of(listed.get("gpu", (grid.fixed.get("gpu"),)))
    made = Table([called(head, word), *rows], sides + "r" * len(shown), head=True,
                 spare=() if grid.asked else called(SPARE, word), stub=len(sides), indent=0)  # fmt: skip
    left = int(np.prod(shape)) - len(places)
    price = grid_prices(grid, [c[0] for c in shown])
    return [
        made,
        *grid_bands(grid, shown),
        *([BLANK, Say(price, "faint", "price")] if price else []),
        *([Say(f"... {left:,} more points: write them with --out FILE.csv")] if left > 0 else []),
        *fixed_sizes(grid),
        *([] if Voice.quiet else assumptions(grid)),
    ]


SAME = ("model", "gpu", "gpus", "batch", "prompt", "output", "seq", "tokens", "concurrency", "rate")
"""Inputs that are said of a grid where its points do not differ in them."""


def fixed_sizes(grid: Any) -> list[Block]:
    """What all points of a grid are asked."""
    known = ((name, grid.fixed.get(name)) for name in SAME)
    told = [
        v if isinstance(v, str) else f"{name} {chosen_text(v, '') if v >= 1e9 else count(v)}"
        for name, v in known
        if v and isinstance(v, int | float | str)
    ]
    return [BLANK, Say("; ".join(told), "faint", "all of them")] if told else []


def grid_prices(grid: Any, keys: Iterable[str]) -> str:
    """The basis of the costs among these outputs; "" without costs."""
    if not any(key.startswith("cost_usd") for key in keys):
        return ""
    listed = {m.name: m.values for a in grid.axes for m in a.members}
    swept = any(name in listed for name in MONEY)
    gpus = listed.get("gpu", (grid.fixed.get("gpu"),))
    path = "cluster.device.price"
    given = grid.fixed | ({"sets": {path: grid.fixed[path]}} if path in grid.fixed else {})
    return "" if swept else prices_told(gpus, grid.fixed.get("cluster"), given)


def grid_bands(grid: Any, shown: Sequence[tuple[str, str, Any]]) -> list[Block]:
    """The error bands of the times shown, as shares of them: the widest of all points."""
    told, wide = [], False
    for key, heading, _ in shown:
        ends = [grid.arrays.get(f"error_band.{key}.{end}") for end in ("low", "high")]
        if ends[0] is None or key == "latency_s":  # which has the band of its tokens
            continue
        values = np.asarray(grid.arrays[key], dtype=float)
        low, high = (np.asarray(end / values)[np.isfinite(end / values)] for end in map(np.asarray, ends))
        if low.size:
            told.append(f"{heading} {np.min(low):.2f} to {np.max(high):.2f}")
            wide |= bool(np.ptp(low) > 0.005 or np.ptp(high) > 0.005)
    widest = ", at the widest (--json and --out have each point's)" if wide else ""
    return [BLANK, Say(f"In four of five like cases: {', '.join(told)} times these figures{widest}.")] if told else []


def judgement(grid: Any, place: tuple[int, ...]) -> str:
    """Whether a point can run, and if not why."""
    if "fits" in grid.arrays and bool(grid.arrays["fits"][place]):
        return "yes"
    why = str(grid.arrays["reason"][place]) if "reason" in grid.arrays else "no"
    return "OOM" if "memory" in why else why or "yes"


def column(key: str, outputs: Any) -> tuple[str, str, Any]:
    """Key, heading and formatter of an output."""
    known = {
        c[0]: c for c in (*GRID_COLUMNS, *RUN_COLUMNS, *FAILURE_COLUMNS, *TRAIN_COLUMNS, *COST_COLUMNS, *SHARE_COLUMNS)
    }
    row = outputs.get(key.split(".")[0])
    unit = row.unit if row else ""
    sent = unit if key.startswith("comm_") else ""  # traffic in GB, as its links are; memory in GiB
    if key.startswith("bound"):
        return key, key, lambda v: BOUND.get(v, v)
    return known.get(key) or (key, HEADINGS.get(key, key), lambda v: text(v, sent) if sent else written(v, unit))


def written(value: Any, unit: str) -> str:
    """A number or a word of any output, for people.

    >>> written(0.0108, "s"), written(2.0**30, "B"), written(True, ""), written(0.5, "1"), written(96930.4, "USD")
    ('10.8 ms', '1.00 GiB', 'yes', '0.5', '96,930')
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str) or not np.isfinite(value):
        return value if isinstance(value, str) else "-"
    if unit == "B":
        return gib(float(value))
    if unit in ("s", "W", "J"):
        return text(float(value), unit)
    return count(value) if abs(float(value)) >= 1e4 else f"{float(value):.4g}"
