"""`rooflm serve`: what users feel under load; --json, --out (per-request table), --plot, --slo and --find."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflm.cli import render
from rooflm.cli.values import assignments
from rooflm.errors import RooflmError
from rooflm.units import text

if TYPE_CHECKING:
    from rooflm.serving.deploy import Served
    from rooflm.serving.highest import Found

Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Server option: budget=16384, prefix_caching=true, ..."),
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any other input by its path.")]
Find = Annotated[str | None, typer.Option(help="With --slo: highest rate or concurrency, fewest replicas.")]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Queue, running, KV over time: png, svg, html.")]
Trace = Annotated[str | None, typer.Option(metavar="FILE", help="Requests from a .csv, .jsonl or .json file.")]


def serve(
    model: Annotated[str, typer.Argument(help="Name, Hugging Face id, config.json or .toml.")],
    gpu: Annotated[str | None, typer.Option(help="GPU name or .toml (see `rooflm list gpus`).")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of one replica; split into tp, then pp, unless given.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster (default: the GPU's own).")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor parallel degree.")] = None,
    pp: Annotated[int | None, typer.Option(help="Pipeline parallel degree.")] = None,
    dp: Annotated[int | None, typer.Option(help="Attention data parallel degree (MoE), else replicas.")] = None,
    ep: Annotated[int | None, typer.Option(help="Expert parallel degree (of tp x dp).")] = None,
    quant: Annotated[str | None, typer.Option(help="Scheme, such as fp8, fp8kv8, int4, nvfp4.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine row (default vllm).")] = None,
    efficiency: Annotated[str | None, typer.Option(help="calibrated, ideal, or factors such as 0.7,0.9.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Closed loop: clients that wait for their answer.")] = None,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests/s (of a trace: its mean rate).")] = None,
    trace: Trace = None,
    requests: Annotated[int | None, typer.Option(help="Requests in all (default 10 a client, or 1000).")] = None,
    prompt: Annotated[int, typer.Option(help="Prompt tokens a request.")] = 512,
    output: Annotated[int, typer.Option(help="Output tokens a request.")] = 128,
    spread: Annotated[str, typer.Option(help="Lengths as shares LOW,HIGH of prompt and output, uniform.")] = "1,1",
    seed: Annotated[int, typer.Option(help="Seed of all chance.")] = 0,
    burstiness: Annotated[float, typer.Option(help="Gamma shape of the gaps: 1 Poisson, below 1 bursts.")] = 1.0,
    peak: Annotated[float, typer.Option(help="Highest rate of the day over the mean, 1 to 2.")] = 1.0,
    copies: Annotated[int, typer.Option(help="Requests that each row of the trace stands for.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Read at most so many rows of the trace.")] = None,
    shared_prefix: Annotated[int, typer.Option(help="Prompt tokens that all requests share (prefix caching).")] = 0,
    replicas: Annotated[int, typer.Option(help="Replicas behind a router.")] = 1,
    router: Annotated[str, typer.Option(help="round-robin, least-loaded or prefix-aware.")] = "round-robin",
    prefill_replicas: Annotated[int, typer.Option(help="Separate prefill replicas (disaggregated).")] = 0,
    prefill_gpu: Annotated[str | None, typer.Option(help="Another GPU for the prefill replicas.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="continuous, prefill-first, in-flight, static.")] = None,
    option: Options = None,
    slo: Annotated[str, typer.Option(help="Limits such as ttft:p95=500ms,tpot:p95=50ms.")] = "",
    find: Find = None,
    definitions: Annotated[str, typer.Option(help="Of TPOT: vllm or guidellm.")] = "vllm",
    horizon: Annotated[float | None, typer.Option(help="Stop after so many simulated seconds.")] = None,
    sets: Sets = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object in SI units.")] = False,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Per-request table: csv, parquet or json.")] = None,
    plot: Plot = None,
) -> None:  # fmt: skip
    """Simulate users on a deployment: TTFT, TPOT, latency, throughput, queue, KV memory, cost."""
    from rooflm.serving.deploy import serve as simulate

    given: dict[str, Any] = {
        "gpu": gpu, "gpus": gpus, "cluster": cluster, "tp": tp, "pp": pp, "dp": dp, "ep": ep, "quant": quant,
        "engine": engine, "efficiency": efficiency, "concurrency": concurrency, "rate": rate, "trace": trace,
        "requests": requests, "limit": limit,
    }  # fmt: skip
    arguments = {k: v for k, v in given.items() if v is not None}
    arguments |= {
        "prompt": prompt, "output": output, "spread": parse_spread(spread), "seed": seed, "burstiness": burstiness,
        "peak": peak, "copies": copies, "shared_prefix": shared_prefix, "replicas": replicas, "router": router,
        "prefill_replicas": prefill_replicas, "prefill_gpu": prefill_gpu, "slo": slo, "definitions": definitions,
        "horizon": math.inf if horizon is None else horizon, "sets": assignments(sets),
        "options": server_options(option, scheduler),
    }  # fmt: skip
    check_files(out, plot)
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
    if out:
        write_table(out, served)
    if plot:
        draw(plot, served)
    print(render.dumps(clean(values)) if json_ else serve_text(model, served, values))


class Ticker:
    """Progress on standard error, at most twice a second and only once a run is slow."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()

    def __call__(self, done: int, total: int, now: float) -> None:
        at = time.perf_counter()
        if at - self.last > 0.5 and at - self.start > 1.0:
            self.last = at
            print(f"rooflm: {done} of {total} requests ended, {now:.0f} s simulated", file=sys.stderr)


def parse_spread(value: str) -> tuple[float, float]:
    """ "0.8,1" as (0.8, 1.0); one number is the low end."""
    pieces = value.split(",")
    try:
        numbers = [float(p) for p in pieces]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise RooflmError(f"spread is {value!r}, but it must be LOW,HIGH such as 0.8,1")
    return numbers[0], numbers[1] if len(numbers) == 2 else max(1.0, numbers[0])


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
    from rooflm.serving.deploy import serve as simulate
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
    from rooflm.sweep.files import check_target

    if out:
        check_target(out, ("csv", "parquet", "json"))
    if plot:
        check_target(plot, ("png", "svg", "html"), "--plot")


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
    """Requests queued and running, and KV memory, over time."""
    from rooflm.plots.choose import draw as draw_picture
    from rooflm.plots.pictures import Lines, Scale, Series, Side

    line = served.timeline
    side = Side("time (s)", tuple(line["time_s"].tolist()), time=True)
    kv = Series("KV memory (% of capacity)", 100 * line["kv"])
    panels = (("", (Series("waiting", line["waiting"]), Series("running", line["running"]), kv)),)
    draw_picture(Lines(f"Under load\n{served.run.requests.name}", side, Scale("requests; %"), panels), path)


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
