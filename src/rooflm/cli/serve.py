"""`rooflm serve`: what users feel under load; --json, --out (per-request table), --plot, --slo and --find."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from rooflm.cli import render
from rooflm.cli.options import command
from rooflm.errors import RooflmError
from rooflm.units import text

if TYPE_CHECKING:
    from rooflm.serving.deploy import Served
    from rooflm.serving.highest import Found


def serve(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm serve` does with its arguments."""
    from rooflm.api import serve as simulate

    arguments = {**asked, "server": server_options(shown["option"], shown["scheduler"])}
    find, slo = shown["find"], asked.get("slo", "")
    check_files(shown["out"], shown["plot"])
    if find is not None:
        found = search(model, arguments, find, slo)
        served = found.served
        if served is None:
            raise RooflmError(f"no {find} meets the limits: {'; '.join(found.broken) or 'none was tried'}")
    else:
        found, served = None, simulate(model, **arguments, progress=Ticker())
    for warning in served.warnings:
        print(f"rooflm: warning: {warning}", file=sys.stderr)
    values = served.values()
    if found is not None:
        values["found"] = {find: found.load, "broken_above": list(found.broken)}
    if shown["out"]:
        write_table(shown["out"], served)
    if shown["plot"]:
        draw(shown["plot"], served)
    print(render.dumps(clean(values)) if shown["json"] else serve_text(model, served, values))


serve_command = command("serve", ["serve"], serve, "Simulate users on a deployment: TTFT, TPOT, latency, throughput, "
                        "queue, KV memory, cost.")  # fmt: skip


class Ticker:
    """Progress on standard error, at most twice a second and only once a run is slow."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()

    def __call__(self, done: int, total: int, now: float) -> None:
        at = time.perf_counter()
        if at - self.last > 0.5 and at - self.start > 1.0:
            self.last = at
            print(f"rooflm: {done} of {total} requests ended, {now:.0f} s simulated", file=sys.stderr)


def server_options(pairs: list[str] | None, scheduler: str | None) -> dict[str, Any]:
    """--option NAME=VALUE pairs: numbers, true or false, names."""
    found: dict[str, Any] = {} if scheduler is None else {"scheduler": scheduler}
    for pair in pairs or []:
        name, equals, value = (p.strip() for p in pair.partition("="))
        if not equals or not name or not value:
            raise RooflmError(f"--option is {pair!r}, but it must be NAME=VALUE, such as budget=16384")
        if value.lower() in ("true", "false"):
            found[name] = value.lower() == "true"
            continue
        try:
            number = float(value)
        except ValueError:
            found[name] = value
            continue
        found[name] = int(number) if math.isfinite(number) and number == int(number) else number
    return found


def search(model: str, arguments: dict[str, Any], what: str, slo: str) -> Found:
    """The highest rate or concurrency, or the fewest replicas, within the limits."""
    from rooflm.api import serve as simulate
    from rooflm.serving.highest import fewest, highest

    if what not in ("rate", "concurrency", "replicas"):
        raise RooflmError(f"find is {what!r}, but it must be rate, concurrency or replicas")
    if not slo:
        raise RooflmError("find needs limits: give them with --slo, such as ttft:p95=500ms,tpot:p95=50ms")
    rest = {k: v for k, v in arguments.items() if k not in (what, "concurrency" if what == "rate" else "rate")}
    if what == "replicas":
        if "rate" not in arguments and "trace" not in arguments:
            raise RooflmError("find replicas needs a load: give --rate or --trace")
        return fewest(lambda n: simulate(model, **{**arguments, "replicas": int(n)}))
    if what == "concurrency":
        return highest(lambda c: simulate(model, **rest, concurrency=int(c)), whole=True)
    return highest(lambda r: simulate(model, **rest, rate=r))


def check_files(out: str | None, plot: str | None) -> None:
    """Targets that can be written, asked before any work is done."""
    from rooflm.plots.picture import check_picture
    from rooflm.sweep.files import check_target

    if out:
        check_target(out, ("csv", "parquet", "json"))
    if plot:
        check_picture(plot)


def write_table(path: str, served: Served) -> None:
    """The per-request table to a file."""
    from rooflm.sweep.files import check_target, table, write_whole

    target = check_target(path, ("csv", "parquet", "json"))
    columns = {k: v.tolist() for k, v in served.table._asdict().items()}
    columns = {
        ("arrival_s" if k == "arrival" else f"{k}_s" if k in ("ttft", "tpot", "latency") else k): v
        for k, v in columns.items()
    }
    kind = target.suffix.lower()

    def write(name: str) -> None:
        if kind == ".parquet":
            try:
                import pandas as pd
            except ImportError:
                raise RooflmError("parquet needs pandas and pyarrow: pip install 'rooflm[parquet]'") from None
            pd.DataFrame(columns).to_parquet(name, index=False)
            return
        body = table(columns) if kind == ".csv" else render.dumps(clean(columns))
        with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 (a temporary file's name)
            file.write(body)

    write_whole(target, write)


def draw(path: str, served: Served) -> None:
    """Requests queued and running, and KV memory, over time: requests hold, memory grows and is given back."""
    import numpy as np

    from rooflm.plots.lines import Curve, Panel, timeline
    from rooflm.plots.scale import Scale, Side

    line = served.timeline
    times = tuple(line["time_s"].tolist())
    twice = tuple(np.repeat(line["time_s"], 2).tolist())
    held = 100 * np.column_stack([line["kv_before"], line["kv"]]).reshape(-1)
    counts = tuple(Curve(name, line[name], steps=True) for name in ("waiting", "running"))
    share = Scale("KV memory (% of capacity)", percent=True)
    panels = [Panel("", Scale("requests"), counts), Panel("", share, (Curve("KV memory", held, x=twice),))]
    s = served.run.pools[-1].table.components.scenario
    about = f"{s.model.name} on {s.cluster.device.name}, {s.engine.name}: {served.run.requests.name}"
    timeline("Requests and KV memory over time", Side("time (s)", times, time=True), panels, about).save(path)


def clean(values: Any) -> Any:
    """Not-a-number and infinity as None, so that the JSON is valid."""
    if isinstance(values, dict):
        return {k: clean(v) for k, v in values.items()}
    if isinstance(values, list | tuple):
        return [clean(v) for v in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def serve_text(model: str, served: Served, values: dict[str, Any]) -> str:
    """A run for people, in 80 columns."""
    s = served.run.pools[-1].table.components.scenario
    lines = [
        f"{model} on {values['gpus']} x {s.cluster.device.name}: replicas {values['replicas']}, {s.engine.name}, "
        f"{s.quant.name}",
        f"{values['load']}: {values['requests']} requests, {render.seconds(values['duration_s'])} simulated",
        *render.wrap("assumed", served.assumed),
        "",
    ]
    head = ("", "mean", "p50", "p90", "p95", "p99", "max")
    names = {
        "ttft_s": "time to first token",
        "tpot_s": "time per output token",
        "itl_s": "between tokens",
        "latency_s": "latency",
    }
    rows = [(name, *(_cell(values[key][k]) for k in head[1:])) for key, name in names.items()]
    lines += [*render.columns([head, *rows], "lrrrrrr"), *band_lines(values), ""]
    left = [
        ("requests/s", render.count(values["requests_per_s"])),
        ("output tokens/s", render.count(values["output_tokens_per_s"])),
        ("  per GPU", render.count(values["output_tokens_per_s_per_gpu"])),
        ("goodput (requests/s)", render.count(values["goodput_per_s"])),
        ("USD per million tokens", f"{values['cost_usd_per_million_tokens']:.2f}"),
        ("energy per token", text(values["energy_j_per_token"], "J")),
    ]
    right = [
        ("running (mean)", render.count(values["running_mean"])),
        ("waiting (mean)", render.count(values["queue"])),
        ("engine busy", render.percent(values["busy"])),
        ("KV memory, mean", render.percent(values["kv_occupancy"])),
        ("KV memory, peak", render.percent(values["kv_peak"])),
        ("preemptions", str(values["preemptions"])),
    ]
    if values["cached_share"] > 0:
        right.append(("prompt tokens cached", render.percent(values["cached_share"])))
    lines += render.beside(render.columns(left, "lr"), render.columns(right, "lr"))
    lines += ["", *verdicts(values, served)]
    return "\n".join(lines)


def band_lines(values: dict[str, Any]) -> list[str]:
    """The error band of the mean times, where measured runs under load say how far off such predictions are."""
    found = [(name, render.banded(values[key]["mean"], values["error_band"][key])) for key, name in BANDED.items()]
    told = [f"{name} {render.seconds(values[key]['mean'])} {band}"
            for (name, band), key in zip(found, BANDED, strict=True) if band]  # fmt: skip
    return ["", *render.wrap("mean, with its error band", told)] if told else []


BANDED = {"ttft_s": "first token", "tpot_s": "output token"}
"""Times with an error band."""


def _cell(value: float) -> str:
    return render.seconds(value) if math.isfinite(value) else "-"


def verdicts(values: dict[str, Any], served: Served) -> list[str]:
    """Sentences: what did not finish, whether the queue grows, limits, and the steady state."""
    import textwrap

    out = []
    ended = f"{values['finished']} finished, {values['rejected']} rejected (longer than the KV memory or the context)"
    out.append(f"{ended}, {values['running']} running and {values['waiting']} waiting at the end.")
    if values["interrupted"]:
        out.append("INTERRUPTED: the numbers are of what was done until then.")
    if values["queue_grows"]:
        out.append(
            f"THE QUEUE GROWS WITHOUT BOUND from {render.seconds(values['queue_grows_from_s'])} on, by "
            f"{values['queue_growth_per_s']:.3g} requests/s: this load cannot be served."
        )
    if "found" in values:
        what, load = next(iter(values["found"].items()))
        why = "; ".join(values["found"]["broken_above"])
        best = "fewest" if what == "replicas" else "highest"
        beyond = "with one less" if what == "replicas" else "just above it"
        out.append(
            f"{best.capitalize()} {what} within the limits: {load:.4g}" + (f" ({beyond}, {why})" if why else "") + "."
        )
    if served.limits:
        out.append(f"{100 * values['good_share']:.1f} % of the requests meet all limits.")
    steady = values.get("steady")
    if steady and steady["stable"]:
        same = "agrees" if steady["agrees"] else "PARTS FROM THE SIMULATION (waves in step, bursts or a full cache)"
        out.append(
            f"Steady-state estimate: TTFT {render.seconds(steady['ttft_s'])}, TPOT {render.seconds(steady['tpot_s'])}, "
            f"{steady['requests_per_s']:.3g} requests/s; it {same}."
        )
    return [line for sentence in out for line in textwrap.wrap(sentence, render.WIDTH)]
