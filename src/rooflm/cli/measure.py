"""`rooflm measure`: run real models on this machine, or load a running server, and keep what they took."""

from __future__ import annotations

import inspect
import os
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from rooflm.asked.arguments import Argument, arguments, grouped
from rooflm.asked.written import texts
from rooflm.cli.console import counting, dumps, save, show, tell, warn
from rooflm.cli.options import command
from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import text as quantity

SHOWN = ("ttft_s", "tpot_s", "latency_s", "step_time_s", "output_tokens_per_s", "memory_bytes", "prefill_comm_bytes",
         "decode_comm_bytes", "step_comm_bytes", "busy", "perplexity", "top1", "top1_agreement", "greedy_match",
         "max_logit_error")  # fmt: skip
"""Metrics of the table that is printed."""
CASE = ("batch", "prompt", "output", "dtype", "layers", "width_prune", "repeats", "warmup", "threads", "device", "size",
        "text", "tokens", "context")  # fmt: skip
"""Options that are fields of a case."""
STATED = ("gpu", "gpus", "tp", "pp", "dp", "ep", "quant", "engine", "sets")
"""Arguments of `serve` that a measured server's rows state."""
SERVED = ("concurrency", "rate", "trace", "requests", "tokenizer", "release")
ROWS = (
    *grouped((
        "What is run here",
        Argument("task", "text", "infer, train, accuracy or micro.", (), "infer"),
        Argument("batch", "numbers", "Sequences at a time, in all.", (), "1"),
        Argument("prompt", "numbers", "Prompt tokens a sequence (train: tokens a sequence; server: 128).", (), "32"),
        Argument("output", "numbers", "Output tokens a sequence, forced (server: 64).", (), "8"),
        Argument("dtype", "names", "fp32, bf16 or fp16.", (), "fp32"),
        Argument("strategy", "listed", "none, tp2, pp2, dp2, or joined by +; starts the processes.", (), "none"),
        Argument("optimise", "listed", "none, eager-attention, compile, graphs, int8-wo, int4-wo, or joined by +.", (),
                 "none"),
        Argument("layers", "numbers", "Keep so many layers (0: all).", (), "0"),
        Argument("width_prune", "numbers", "Share of heads and feed-forward width removed.", (), "0"),
        Argument("repeats", "count", "Timed repeats.", (), 5),
        Argument("warmup", "count", "Runs before them.", (), 1),
        Argument("threads", "count", "CPU threads a rank (default: cores over ranks).", ()),
        Argument("device", "text", "auto, cpu or cuda.", (), "auto"),
        Argument("size", "text", "Grid of micro-benchmarks: tiny, small or full.", (), "small"),
        Argument("text", "file", "Text for perplexity.", ()),
        Argument("tokens", "count", "Tokens of it.", (), 2044),
        Argument("context", "count", "Context of perplexity.", (), 512),
        Argument("timeout", "number", "Seconds after which a case has failed.", (), 1800.0),
        "A server that runs",
        Argument("url", "text", "Load this OpenAI-compatible server instead, such as http://host:8000/v1.", ()),
        Argument("concurrency", "numbers", "Clients that wait for their answers, such as 1..8*2.", ()),
        Argument("rate", "numbers", "Requests/s that arrive on their own, or a list.", ()),
        Argument("trace", "file", "Requests of a trace.", ()),
        Argument("requests", "count", "Requests a level (default: six a client).", ()),
        Argument("duration", "number", "Longest level, seconds.", (), 300.0),
        Argument("tokenizer", "text", "Folder, hub id or .gguf (default: the server's model).", ()),
        Argument("load", "text", "The load generator: guidellm, aiperf or vllm.", (), "guidellm"),
        Argument("release", "text", "Release of the engine, where the server does not tell it.", ()),
    )),
    *(arguments("serve")[name]._replace(of=(), group="A server that runs") for name in STATED),
    *grouped((
        "The answer",
        Argument("interval", "number", "Seconds between two samples of the profile; 0: none.", (), 0.5),
        Argument("profile", "file", "Utilisation, memory, power, clocks and bytes over time: csv.", ()),
        Argument("profile_plot", "file", "The same drawn: png, svg, html, json.", ()),
        Argument("out", "file", "csv (cases: or parquet); what is finished in it is kept.", ()),
        Argument("plot", "file", "Draw a png, svg, html or json (Vega-Lite).", ()),
        Argument("plot_kind", "text", "lines or heatmap.", ()),
        Argument("plot_value", "text", "Which metric to draw, such as tpot_s.", ()),
    )),
)  # fmt: skip
"""Arguments of `rooflm measure`."""


def measure(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm measure` does with its arguments."""
    asked["json"] = shown["json"]
    if asked.get("profile"):
        from rooflm.sweep.files import check_target

        check_target(asked["profile"], ("csv",), "--profile")
    if asked.get("profile_plot"):
        from rooflm.plots.picture import check_picture

        check_picture(asked["profile_plot"])
    if asked.get("url"):
        load(model, asked)
        return
    stray = [name for name in (*STATED, *SERVED) if asked.get(name)]
    if stray:
        raise RooflmError(f"--{stray[0].replace('_', '-')} is for a running server: give --url too")
    cases(model, asked)


measure_command = command(
    "measure", [], measure, "Measure real models on this machine (time, memory, communication, utilisation, accuracy; "
    "micro-benchmarks), or a running server under load.", own=ROWS,
    first=inspect.Parameter(
        "model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=Annotated[str, typer.Argument(
            help="Folder, .gguf, gguf:PACKAGE, config.json or catalogue name; a comma list is an axis.")]),
)  # fmt: skip


def cases(model: str, asked: dict[str, Any]) -> None:
    """Run models on this machine, sampled over time where it is asked for."""
    from rooflm.measure import results
    from rooflm.sweep.files import check_target
    from rooflm.tools import measure as run

    out, plot, kind, task = (asked.get(name) for name in ("out", "plot", "plot_kind", "task"))
    if out:
        check_target(out, results.FORMATS)
    if plot:
        from rooflm.plots.choose import check_plot

        check_plot(plot, kind, grid=True)

    def done(number: int, count: int, case: Any, status: str) -> None:
        tell(f"{number}/{count} {case.label}: {status}")

    with watching(asked) as watch, counting("measured", "cases"):
        mine = run(texts(model), task=str(task), strategy=asked["strategy"], optimise=asked["optimise"], out=out,
                   timeout=asked["timeout"], progress=done,
                   left_out=lambda label, why: tell(f"left out: {label}: {why}"),
                   **{name: asked[name] for name in CASE if name in asked})  # fmt: skip
    if watch is not None:
        deliver(watch.samples, asked)
    if plot:
        from rooflm.measure.figures import as_grid
        from rooflm.plots.choose import grid_picture

        grid_picture(as_grid(mine, str(task)), kind, asked.get("plot_value") or _drawn(str(task))).save(plot)
    if out:
        tell(f"wrote {out}")
    if asked["json"]:
        print(dumps({"environment": results.environment(), "rows": [results.flat(r) for r in mine]}))
    else:
        show(table(mine))


def load(model: str, asked: dict[str, Any]) -> None:
    """Load a running server, and say what it took."""
    from rooflm.sweep.files import check_target
    from rooflm.tools import measure_server

    out = asked.get("out")
    if out:
        check_target(out, ("csv",))
    if isinstance(asked["prompt"], list) or isinstance(asked["output"], list):
        raise RooflmError("with --url, prompt and output are one number each: give levels of load as lists")
    usual = {"prompt": 32, "output": 8}
    lengths = {k: asked[k] for k, v in usual.items() if asked[k] != v}  # the defaults of cases are short for a server
    found = measure_server(
        asked["url"], model, **lengths, duration=asked["duration"], generator=asked["load"], interval=asked["interval"],
        out=out, progress=lambda number, of, level, status: tell(f"{number}/{of} {level}: {status}"),
        **{name: asked[name] for name in (*SERVED, *STATED) if asked.get(name) is not None},
    )  # fmt: skip
    deliver(found.samples, asked)
    warn(f"{level} failed: {why}" for level, why in found.failed.items())
    if out and found.rows:
        tell(f"wrote {out}")
    if asked["json"]:
        print(dumps({"server": found.told, "rows": found.rows, "levels": found.levels, "failed": found.failed}))
    else:
        show(levels(found))
    if found.interrupted:
        tell("interrupted: what was done is kept")
        raise typer.Exit(130)
    if not found.rows:
        raise RooflmError(f"no level was measured: {'; '.join(f'{k}: {v}' for k, v in found.failed.items())}")


def levels(found: Any) -> list[Block]:
    """A table of what each level took."""
    from rooflm.validation.table import measured_of

    told = ", ".join(f"{k} {v}" for k, v in found.told["columns"].items())
    runs: dict[str, dict[str, float]] = {}
    for row in found.rows:
        metric, value = measured_of(row)
        runs.setdefault(row["id"], {})[metric] = value
    names = ("ttft", "tpot", "latency_s", "output_tokens_per_s")
    body = [(run.partition(" ")[2], *(("" if n not in m else cell(m[n], "1" if n.endswith("per_s") else "s"))
             for n in names)) for run, m in runs.items()]  # fmt: skip
    head = ("load (means)", "TTFT", "TPOT", "latency", "tokens/s")
    return [Say(f"{found.told['model']} at {found.told['url']}; {told}"), BLANK,
            Table([head, *body], "lrrrr", head=True)]  # fmt: skip


def watching(asked: dict[str, Any]) -> Any:
    """A profiler of this machine and of the processes that this one starts, where a profile is asked for."""
    if not (asked.get("profile") or asked.get("profile_plot")):
        return nullcontext()
    from rooflm.measure.profile import Profiler

    return Profiler([os.getpid()], asked["interval"] or 0.5, children=True)


def deliver(samples: list[Any], asked: dict[str, Any]) -> None:
    """The samples over time, as a table and drawn."""
    from rooflm.measure import profile

    save(asked.get("profile"), lambda path: profile.write(path, samples))
    save(asked.get("profile_plot"), lambda path: profile.draw(path, samples))


def _drawn(task: str) -> str:
    """The metric that a figure of a task shows unless told."""
    return {"train": "step_time_s", "accuracy": "top1_agreement"}.get(task, "latency_s")


def cell(value: float, unit: str) -> str:
    """A value for people.

    >>> cell(0.0123, "s"), cell(0.5, "1")
    ('12.3 ms', '0.5')
    """
    return quantity(value, unit) if unit in ("s", "B") else f"{value:.4g}"


def table(rows: list[Any]) -> list[Block]:
    """Medians, one line a case: those of the rank with the most where ranks differ; then what was not measured, and
    why."""
    cases = {r.case.key: r.case for r in rows}
    if any(c.task == "micro" for c in cases.values()):
        lines = [(r.metric.removesuffix("_s"), *(str(x or "") for x in (r.m, r.n, r.k)), cell(r.stat.value, r.unit))
                 for r in rows if r.status == "ok"]  # fmt: skip
        return [Table([("benchmark", "m", "n", "k", "median"), *lines], "lrrrr", head=True)]
    shown = [m for m in SHOWN if any(r.metric == m and r.stat.value for r in rows)]
    named = {"output_tokens_per_s": "tokens/s"}
    lines = [("case", *(named.get(m, m.removesuffix("_s").removesuffix("_bytes")) for m in shown))]
    left: list[tuple[str, str]] = []
    for key, case in cases.items():
        mine = [r for r in rows if r.case.key == key]
        bad = next((r for r in mine if r.status != "ok"), None)
        if bad is not None:
            left.append((case.label, f"{bad.status}: {bad.reason}"))
            continue
        best = {m: max(((r.stat.value, r.unit) for r in mine if r.metric == m), default=None) for m in shown}
        lines.append((case.label, *("" if b is None else cell(*b) for b in best.values())))
    measured: list[Block] = [Table(lines, "l" + "r" * len(shown), head=True)] if lines[1:] else []
    return [*measured, BLANK, Table(left, "lw", "Not measured")] if left else measured
