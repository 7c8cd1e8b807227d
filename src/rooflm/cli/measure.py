"""`rooflm measure`: run real models on this machine, or load a running server, and keep what they took."""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from rooflm.cli.options import MEASURE, command
from rooflm.cli.render import columns, dumps
from rooflm.cli.values import texts
from rooflm.errors import RooflmError
from rooflm.units import text as quantity

SHOWN = ("ttft_s", "tpot_s", "latency_s", "step_time_s", "output_tokens_per_s", "memory_bytes", "prefill_comm_bytes",
         "decode_comm_bytes", "step_comm_bytes", "busy", "perplexity", "top1", "top1_agreement", "greedy_match",
         "max_logit_error")  # fmt: skip
"""Metrics of the table that is printed."""


CASE = ("batch", "prompt", "output", "dtype", "layers", "width_prune", "repeats", "warmup", "threads", "device", "size",
        "text", "tokens", "context")  # fmt: skip
"""Options that are fields of a case."""
STATED = ("gpu", "gpus", "tp", "pp", "dp", "ep", "quant", "engine", "sets")
"""Arguments of `serve` that a measured server's rows state."""


def measure(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm measure` does with its arguments."""
    if shown["url"]:
        load(model, asked, shown)
        return
    stray = [name for name in (*STATED, "concurrency", "rate", "trace", "requests", "tokenizer", "release")
             if asked.get(name) or shown.get(name)]  # fmt: skip
    if stray:
        raise RooflmError(f"--{stray[0].replace('_', '-')} is for a running server: give --url too")
    cases(model, shown)


measure_command = command(
    MEASURE, ["serve"], measure, "Measure real models on this machine (time, memory, communication, utilisation, "
    "accuracy; micro-benchmarks), or with --url a running server under load.", only=STATED,
    first=inspect.Parameter(
        "model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=Annotated[str, typer.Argument(
            help="Folder, .gguf, gguf:PACKAGE, config.json or catalogue name; a comma list is an axis.")]),
)  # fmt: skip


def cases(model: str, shown: dict[str, Any]) -> None:
    """Run models on this machine, sampled over time where it is asked for."""
    from rooflm.measure import results
    from rooflm.sweep.files import check_target
    from rooflm.tools import measure as run

    out, plot, kind, task = shown["out"], shown["plot"], shown["plot_kind"], shown["task"]
    if out:
        check_target(out, results.FORMATS)
    if plot:
        from rooflm.plots.choose import check_plot

        check_plot(plot, kind, grid=True)
    profiled(shown)

    def skipped(label: str, why: str) -> None:
        print(f"rooflm: left out: {label}: {why}", file=sys.stderr)

    with watching(shown) as watch:

        def tell(number: int, count: int, case: Any, status: str) -> None:
            print(f"rooflm: {number}/{count} {case.label}: {status}", file=sys.stderr)

        mine = run(texts(model), task=task, strategy=shown["strategy"], optimise=shown["optimise"], out=out,
                   timeout=shown["timeout"], progress=tell, left_out=skipped,
                   **{name: shown[name] for name in CASE})  # fmt: skip
    if watch is not None:
        deliver(watch.samples, shown)
    if plot:
        from rooflm.measure.figures import as_grid
        from rooflm.plots.choose import plot_grid

        plot_grid(as_grid(mine, task), plot, kind, shown["plot_value"] or _drawn(task))
    if out:
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if shown["json"]:
        print(dumps({"environment": results.environment(), "rows": [results.flat(r) for r in mine]}))
    else:
        print(table(mine))


def load(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """Load a running server, and say what it took."""
    from rooflm.sweep.files import check_target
    from rooflm.tools import measure_server

    out = shown["out"]
    if out:
        check_target(out, ("csv",))
    profiled(shown)

    def tell(number: int, count: int, label: str, status: str) -> None:
        print(f"rooflm: {number}/{count} {label}: {status}", file=sys.stderr)

    one = {name: value for name in ("prompt", "output") if not isinstance(value := shown[name], list)}
    if len(one) < 2:
        raise RooflmError("with --url, prompt and output are one number each: give levels of load as lists")
    usual = {"prompt": 32, "output": 8}
    lengths = {k: v for k, v in one.items() if v != usual[k]}  # the defaults of cases are too short for a server
    found = measure_server(
        shown["url"], model, concurrency=shown["concurrency"], rate=shown["rate"], trace=shown["trace"] or "",
        **lengths, requests=shown["requests"] or 0, duration=shown["duration"], tokenizer=shown["tokenizer"] or "",
        generator=shown["load"], interval=shown["interval"], out=out, progress=tell, release=shown["release"], **asked,
    )  # fmt: skip
    deliver(found.samples, shown)
    if out and found.rows:
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if shown["json"]:
        print(dumps({"server": found.told, "rows": found.rows, "levels": found.levels, "failed": found.failed}))
    else:
        print("\n".join(levels(found)))
    if found.interrupted:
        print("rooflm: interrupted: what was done is kept", file=sys.stderr)
        raise typer.Exit(130)
    if not found.rows:
        raise RooflmError(f"no level was measured: {'; '.join(f'{k}: {v}' for k, v in found.failed.items())}")


def levels(found: Any) -> list[str]:
    """A table of what each level took."""
    from rooflm.validation.table import measured_of

    told = found.told["columns"]
    lines = [f"{found.told['model']} at {found.told['url']}: " + ", ".join(f"{k} {v}" for k, v in told.items())]
    runs: dict[str, dict[str, float]] = {}
    for row in found.rows:
        metric, value = measured_of(row)
        runs.setdefault(row["id"], {})[metric] = value
    names = ("ttft", "tpot", "latency_s", "output_tokens_per_s")
    body = [(run.partition(" ")[2], *(("" if n not in m else cell(m[n], "1" if n.endswith("per_s") else "s"))
             for n in names)) for run, m in runs.items()]  # fmt: skip
    return [*lines, "", *columns([("load (means)", "TTFT", "TPOT", "latency", "tokens/s"), *body], "lrrrr")]


def profiled(shown: dict[str, Any]) -> None:
    """Targets of the profile, asked before any work is done."""
    from rooflm.sweep.files import check_target

    if shown["profile"]:
        check_target(shown["profile"], ("csv",), "--profile")
    if shown["profile_plot"]:
        from rooflm.plots.choose import FORMATS

        check_target(shown["profile_plot"], FORMATS, "--profile-plot")


def watching(shown: dict[str, Any]) -> Any:
    """A profiler of this machine and of the processes that this one starts, where a profile is asked for."""
    if not (shown["profile"] or shown["profile_plot"]):
        return nullcontext()
    from rooflm.measure.profile import Profiler

    return Profiler([os.getpid()], shown["interval"] or 0.5, children=True)


def deliver(samples: list[Any], shown: dict[str, Any]) -> None:
    """The samples over time, as a table and drawn."""
    from rooflm.measure import profile

    for name, write in (("profile", profile.write), ("profile_plot", profile.draw)):
        if shown[name]:
            write(shown[name], samples)
            print(f"rooflm: wrote {shown[name]}", file=sys.stderr)


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
