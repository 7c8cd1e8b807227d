"""`rooflm measure`: run real models on this machine and keep what they took."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from rooflm.cli.render import columns, dumps
from rooflm.scenario.written import numbers, texts
from rooflm.units import text as quantity

SHOWN = ("ttft_s", "tpot_s", "latency_s", "step_time_s", "output_tokens_per_s", "memory_bytes", "prefill_comm_bytes",
         "decode_comm_bytes", "step_comm_bytes", "busy", "perplexity", "top1", "top1_agreement", "greedy_match",
         "max_logit_error")  # fmt: skip
"""Metrics of the table that is printed."""


def measure(
    model: Annotated[
        str, typer.Argument(help="Folder, .gguf, gguf:PACKAGE, config.json or catalogue name; a comma list is an axis.")
    ] = "",
    task: Annotated[str, typer.Option(help="infer, train, accuracy or micro.")] = "infer",
    batch: Annotated[str, typer.Option(help="Sequences at a time, in all.")] = "1",
    prompt: Annotated[str, typer.Option(help="Prompt tokens a sequence (train: tokens a sequence).")] = "32",
    output: Annotated[str, typer.Option(help="Output tokens a sequence, forced.")] = "8",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    strategy: Annotated[str, typer.Option(help="none, tp2, pp2, dp2, or joined by +; starts the processes.")] = "none",
    optimise: Annotated[
        str, typer.Option(help="none, eager-attention, compile, graphs, int8-wo, int4-wo, or joined by +.")
    ] = "none",
    layers: Annotated[str, typer.Option(help="Keep so many layers (0: all).")] = "0",
    width_prune: Annotated[str, typer.Option(help="Share of heads and feed-forward width removed.")] = "0",
    repeats: Annotated[int, typer.Option(help="Timed repeats.")] = 5,
    warmup: Annotated[int, typer.Option(help="Runs before them.")] = 1,
    threads: Annotated[int | None, typer.Option(help="CPU threads a rank (default: cores over ranks).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    size: Annotated[str, typer.Option(help="Grid of micro-benchmarks: tiny, small or full.")] = "small",
    text: Annotated[str, typer.Option(metavar="FILE", help="Text for perplexity.")] = "",
    tokens: Annotated[int, typer.Option(help="Tokens of it.")] = 2044,
    context: Annotated[int, typer.Option(help="Context of perplexity.")] = 512,
    timeout: Annotated[float, typer.Option(help="Seconds after which a case has failed.")] = 1800.0,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="csv or parquet; finished cases in it are kept.")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw a png, svg or html.")] = None,
    plot_kind: Annotated[str | None, typer.Option(help="lines or heatmap.")] = None,
    plot_value: Annotated[str | None, typer.Option(help="Which metric to draw, such as tpot_s.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print every row as JSON.")] = False,
) -> None:
    """Measure real models on this machine: time, memory, communication, utilisation, accuracy; micro-benchmarks."""
    from rooflm.measure import results
    from rooflm.sweep.files import check_target
    from rooflm.tools import measure as run

    if out:
        check_target(out, results.FORMATS)
    if plot:
        from rooflm.plots.choose import check_plot

        check_plot(plot, plot_kind, grid=True)
    given: dict[str, Any] = {
        "batch": numbers(batch, "batch"), "prompt": numbers(prompt, "prompt"),
        "output": numbers(output, "output"), "dtype": texts(dtype), "layers": numbers(layers, "layers"),
        "width_prune": numbers(width_prune, "width_prune"), "repeats": repeats, "warmup": warmup, "threads": threads,
        "device": device, "size": size, "text": text, "tokens": tokens, "context": context,
    }  # fmt: skip

    def skipped(label: str, why: str) -> None:
        print(f"rooflm: left out: {label}: {why}", file=sys.stderr)

    def tell(number: int, count: int, case: Any, status: str) -> None:
        print(f"rooflm: {number}/{count} {case.label}: {status}", file=sys.stderr)

    mine = run(texts(model), task=task, strategy=strategy.split(","), optimise=optimise.split(","), out=out,
               timeout=timeout, progress=tell, left_out=skipped, **given)  # fmt: skip
    if plot:
        from rooflm.measure.figures import as_grid
        from rooflm.plots.choose import grid_picture

        grid_picture(as_grid(mine, task), plot_kind, plot_value or _drawn(task)).save(plot)
    if out:
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if json_:
        print(dumps({"environment": results.environment(), "rows": [results.flat(r) for r in mine]}))
    else:
        print(table(mine))


def _drawn(task: str) -> str:
    """The metric that a figure of a task shows unless told."""
    return {"train": "step_time_s", "accuracy": "top1_agreement"}.get(task, "latency_s")


def cell(value: float, unit: str) -> str:
    """A value for people.

    >>> cell(0.0123, "s"), cell(0.5, "1")
    ('12.3 ms', '0.5')
    """
    return quantity(value, unit) if unit in ("s", "B") else f"{value:.4g}"


def table(rows: list[Any]) -> str:
    """Medians, one line a case: those of the rank with the most where ranks differ."""
    cases = {r.case.key: r.case for r in rows}
    if any(c.task == "micro" for c in cases.values()):
        lines = [(r.metric.removesuffix("_s"), *(str(x or "") for x in (r.m, r.n, r.k)), cell(r.stat.value, r.unit))
                 for r in rows if r.status == "ok"]  # fmt: skip
        return "\n".join(columns([("benchmark", "m", "n", "k", "median"), *lines], "lrrrr"))
    shown = [m for m in SHOWN if any(r.metric == m and r.stat.value for r in rows)] or ["status"]
    head = ("case", *(m.removesuffix("_s").removesuffix("_bytes") for m in shown))
    lines = [head]
    for key, case in cases.items():
        mine = [r for r in rows if r.case.key == key]
        bad = next((r for r in mine if r.status != "ok"), None)
        if bad is not None:
            lines.append((case.label, f"{bad.status}: {bad.reason}"[:60], *[""] * (len(shown) - 1)))
            continue
        best = {m: max(((r.stat.value, r.unit) for r in mine if r.metric == m), default=None) for m in shown}
        lines.append((case.label, *("" if b is None else cell(*b) for b in best.values())))
    return "\n".join(columns(lines, "l" + "r" * len(shown)))
