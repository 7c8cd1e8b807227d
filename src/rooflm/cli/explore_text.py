"""What `rooflm explore` shows of designs: what was asked, tables of them, what one is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import count, plural, text

if TYPE_CHECKING:
    from rooflm.technology.explore import Columns
    from rooflm.technology.tasks import Task


NOTE = Say("No software overheads: bounds to compare hardware by, not predictions.")


MEANING = {"step_time": "step time", "latency": "request latency", "ttft": "time to first token",
           "tpot": "time per output token"}  # fmt: skip
"""Metric of an exploration -> what people call it."""


def title_blocks(model: str, task: Task, asked: Mapping[str, Any]) -> list[Block]:
    """What is explored: the model, what counts, the hardware, and the work."""
    return [Say(f"{model}, {MEANING[task.metric]}, {hardware_text(asked)}", "title"), Say(work_text(task)), NOTE, BLANK]


def work_text(task: Task) -> str:
    """What runs, in a line."""
    s, w = task.scenario, task.scenario.workload
    if task.phase == "train":
        again = f"recompute {s.mapping.recompute}"
        return f"{plural(w.batch, 'sequence')} of {plural(w.seq, 'token')} a step, {again}, {s.quant.name}"
    return f"batch {count(w.batch)}, prompt {count(w.prompt)}, output {count(w.output)} tokens, {s.quant.name}"


def hardware_text(asked: Mapping[str, Any]) -> str:
    """The die, and how many devices of it, in a line."""
    return f"die {asked['die']}, {asked['gpus']} device{'s' * (asked['gpus'] != 1)}"


def share(table: Columns, i: int, names: Sequence[str]) -> str:
    """Per cent of a design's time (row `i`) that these causes take together."""
    return f"{100 * sum(float(table[f'{c}_s'][i]) for c in names) / float(table['time_s'][i]):.0f}"


def varying_axes(table: Columns, axes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The axes that vary, and their headings."""
    shown = [a for a in axes if len(set(map(str, table[a].tolist()))) > 1]
    return shown, [a.removeprefix("technology.").removeprefix("budget.") for a in shown]


def number_text(value: float) -> str:
    """A number of a table, in full where it is large.

    >>> number_text(0.12345), number_text(2.5e7)
    ('0.1235', '25,000,000')
    """
    return count(value) if abs(value) >= 1e4 else f"{value:.4g}"


def cells(table: Columns, shown: Sequence[str], i: int) -> list[str]:
    """The values of a design (row `i`) on these axes, as text."""
    return [number_text(table[a][i]) if isinstance(table[a][i], float) else str(table[a][i]) for a in shown]


def table_blocks(rows: Sequence[Sequence[str]], sides: str, spare: tuple[str, ...], left: int) -> list[Block]:
    more = [Say(f"... {left:,} more: write them with --out")] if left > 0 else []
    return [Table(rows, sides, head=True, spare=spare, indent=0), *more]


NO_FIT = (
    "no fit: more memory is needed than there is, in every split (--gpus adds devices; another --dram and a smaller "
    "--batch help)"
)
"""What the tables mean by it."""


MOST = 60
"""Designs of a table that are shown."""


def design_rows(table: Columns, axes: Sequence[str]) -> list[Block]:
    """The table for people: the axes that vary, time, what bounds it, shares in per cent, the split, cost."""
    shown, heads = varying_axes(table, axes)
    rows: list[Sequence[str]] = [(*heads, "time", "bound", "comp%", "mem%", "net%", "tp pp dp", "USD/Mtok")]
    for i in range(min(len(table["time_s"]), MOST)):
        row_cells = cells(table, shown, i)
        if not table["fits"][i]:
            rows.append((*row_cells, "-", "no fit", *[""] * 5))
            continue
        split = " ".join(f"{table[k][i]:.0f}" for k in ("tp", "pp", "dp"))
        parts = [share(table, i, c) for c in (("compute",), ("dram", "l2", "l1"), ("network",))]
        rows.append((*row_cells, text(float(table["time_s"][i]), "s"), str(table["bottleneck"][i]), *parts, split,
                     f"{table['usd_per_million_tokens'][i]:.3g}"))  # fmt: skip
    spare = ("comp%", "tp pp dp", "mem%", "net%")
    why = [Say(NO_FIT, "faint")] if any(r[len(heads) + 1] == "no fit" for r in rows) else []
    return [*table_blocks(rows, "l" * len(shown) + "rlrrrrr", spare, len(table["time_s"]) - MOST), *why]


def design_summary(report: Columns) -> list[Block]:
    """What a design is made of and what it costs, in three lines."""
    r = {k: float(v[0]) for k, v in report.items() if v.dtype.kind == "f"}
    return [
        Say(f"{text(r['peak_flops'], 'FLOP/s')} in 16 bits; L2 {r['l2_bytes'] / 2**20:.0f} MiB at "
            f"{text(r['l2_bandwidth'], 'B/s')}; memory {r['dram_bytes'] / 2**30:.0f} GiB at "
            f"{text(r['dram_bandwidth'], 'B/s')}"),
        Say(f"{1e6 * r['area_used_m2']:.0f} of {1e6 * r['die_m2']:.0f} mm2, {r['power_used_w']:.0f} of "
            f"{r['tdp_w']:.0f} W; {r['device_usd']:.0f} USD a device"),
        Say(f"{r['tokens_per_j']:.3g} tokens/J with the network; {count(r['tco_usd'])} USD over its years"),
    ]  # fmt: skip
