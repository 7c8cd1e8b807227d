"""`rooflm search infer`: the best way to serve a model, for one batch or for users who come and go."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer

from rooflm.cli import options, render
from rooflm.cli.found import found_shown
from rooflm.cli.values import assignments, efficiency_text, numbers, texts
from rooflm.errors import RooflmError
from rooflm.units import gib, parse

INFER = (
    ("ttft_s", "TTFT", render.seconds),
    ("tpot_s", "TPOT", render.seconds),
    ("output_tokens_per_s_per_gpu", "tok/s/GPU", render.count),
    ("cost_usd_per_million_tokens", "USD/M", render.count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of answers."""
BATCH_NOTE = "of one batch that comes at once: TTFT is that of all its prompts (--under-load: users who come and go)"
LOAD_NOTE = (
    "under load by the steady state: TTFT, TPOT are means, the wait in the queue and other prompts' passes included"
)


def infer(
    model: options.OneModel,
    gpu: options.SearchedGpu = None,
    gpus: Annotated[str | None, typer.Option(help="Exactly so many GPUs, or a list.")] = None,
    gpus_max: Annotated[int | None, typer.Option(help="Any number of GPUs up to this (default: one node).")] = None,
    cluster: options.Cluster = None,
    prompt: options.Prompt = "512",
    output: options.Output = "128",
    under_load: Annotated[
        bool, typer.Option("--under-load", help="Requests come and go; the best number of clients is searched.")
    ] = False,
    concurrency: Annotated[
        str | None, typer.Option(help="Under load: so many clients in all that wait for their answer, or a list.")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Under load: requests/s in all (Poisson), or a list.")] = None,
    spread: Annotated[
        str | None, typer.Option(help="Under load: lengths as shares LOW,HIGH of prompt and output (default 0.8,1.2).")
    ] = None,
    slo: Annotated[
        str, typer.Option(help="Under load: limits such as ttft:p95=500ms,tpot:p95=50ms (simulated).")
    ] = "",
    confirm: Annotated[int | None, typer.Option(help="Under load: simulate so many of the best (default 3).")] = None,
    token_budget: Annotated[
        str | None,
        typer.Option(help="New tokens a pass (chunked prefill), or a list; off: prompts go in whole. Default: the "
                     "engine's own; under load also 512 to 16384 and off."),
    ] = None,
    ttft: Annotated[
        str | None, typer.Option(help="Longest time to first token, such as 500ms: of a whole batch; under load: mean.")
    ] = None,
    tpot: Annotated[str | None, typer.Option(help="Longest time per output token (mean), such as 50ms.")] = None,
    latency: Annotated[str | None, typer.Option(help="Longest request (under load: mean), such as 10s.")] = None,
    cost: Annotated[float | None, typer.Option(help="Most USD per million output tokens.")] = None,
    throughput: Annotated[float | None, typer.Option(help="Least output tokens/s in all.")] = None,
    memory_margin: Annotated[str | None, typer.Option(help="Share of memory to keep free, such as 0.1 or 10%.")] = None,
    objective: Annotated[
        str, typer.Option(help="throughput (per GPU), total, cost, latency, ttft, tpot or energy.")
    ] = "throughput",
    tp: options.SearchedTp = None,
    pp: options.SearchedPp = None,
    dp: Annotated[str | None, typer.Option(help="Only these data parallel degrees.")] = None,
    ep: options.SearchedEp = None,
    batch: Annotated[str | None, typer.Option(help="Only these batches (default: 1 to 1024).")] = None,
    quant: Annotated[str | None, typer.Option(help="Scheme, or a comma list.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine, or a comma list.")] = None,
    efficiency: options.Efficiency = None,
    sets: options.SearchedSets = None,
    on: options.SearchedOn = "local",
    json_: options.Json = False,
) -> None:  # fmt: skip
    """Search every legal way to serve a model for the best one under constraints.

    Without load, a point is a batch whose prompts come at once. Under load (--under-load, --concurrency or --rate),
    requests come and go: every point by its steady state, the best ones simulated as `rooflm serve` does.
    """
    from rooflm.search.inference import search_infer

    start = time.perf_counter()
    given = {k: v for k, v in {
        "cluster": cluster, "prompt": numbers(prompt, "prompt"), "output": numbers(output, "output"),
        "quant": texts(quant), "engine": texts(engine), "efficiency": efficiency_text(efficiency),
    }.items() if v is not None}  # fmt: skip
    load = {k: v for k, v in {
        "concurrency": numbers(concurrency, "concurrency"), "rate": numbers(rate, "rate"), "slo": slo or None,
        "spread": spread_of(spread), "confirm": confirm,
    }.items() if v is not None}  # fmt: skip
    found = search_infer(
        model, gpu=texts(gpu), gpus=numbers(gpus, "gpus"), gpus_max=gpus_max, objective=objective,
        ttft=seconds(ttft, "--ttft"), tpot=seconds(tpot, "--tpot"), latency=seconds(latency, "--latency"), cost=cost,
        throughput=throughput, memory_margin=share(memory_margin), tp=numbers(tp, "tp"), pp=numbers(pp, "pp"),
        dp=numbers(dp, "dp"), ep=numbers(ep, "ep"), batch=numbers(batch, "batch"),
        token_budget=budgets(token_budget), on=on, sets=assignments(sets), under_load=under_load, **load, **given,
    )  # fmt: skip
    command = served(model, found, given, load.get("spread"))
    note = LOAD_NOTE if under_load or load else BATCH_NOTE
    print(found_shown(found, INFER, command, time.perf_counter() - start, json_, note))


def seconds(value: str | None, name: str) -> float | None:
    """Seconds of "500ms"."""
    return None if value is None else parse(value, "s", name)


def share(value: str | None) -> float | None:
    """A share written as 0.1 or 10%.

    >>> share("10%"), share("0.1")
    (0.1, 0.1)
    """
    if value is None:
        return None
    number = numbers(value.strip().removesuffix("%"), "memory_margin")
    if isinstance(number, list):
        raise RooflmError(f"memory_margin is {value!r}, but it must be one share, such as 0.1 or 10%")
    return float(number) / (100 if value.strip().endswith("%") else 1)


def budgets(value: str | None) -> Any:
    """Token budgets: numbers, a list or a range; off is infinity.

    >>> budgets("512..2048*2,off"), budgets("8192")
    ([512, 1024, 2048, inf], 8192)
    """
    if value is None:
        return None
    pieces = [p.strip() for p in value.split(",")]
    sizes = numbers(",".join(p for p in pieces if p != "off"), "token_budget") if set(pieces) != {"off"} else []
    listed = sizes if isinstance(sizes, list) else [sizes]
    if any(not (n >= 1 and n == int(n)) for n in listed):
        raise RooflmError(f"token_budget is {value!r}, but it must be whole numbers of tokens of at least 1, or off")
    listed = [*listed, *([math.inf] if "off" in pieces else [])]
    return listed if len(listed) > 1 else listed[0]


def spread_of(value: str | None) -> tuple[float, float] | None:
    """Shares of the lengths, as in `rooflm serve`."""
    from rooflm.cli.serve import parse_spread

    return None if value is None else parse_spread(value)


def served(model: str, found: Any, given: dict[str, Any], spread: tuple[float, float] | None) -> str:
    """The command that starts the best answer's engine: of a search under load, the best of those simulated."""
    from rooflm.catalogue.engines import load_engine, usual_engine
    from rooflm.catalogue.models import load_model
    from rooflm.scenario.build_inference import quant_for
    from rooflm.search.serve_command import serve_command

    if found.best is None:
        return ""
    confirmed = getattr(found, "chosen", None)
    chosen = dict(confirmed.candidate.inputs if confirmed else found.best.inputs)
    if hasattr(found, "confirmed"):
        chosen["batch"] = confirmed.load if confirmed and found.kind == "concurrency" else chosen.get("concurrency", 0)
    if "engine.token_budget" in chosen:
        chosen["token_budget"] = chosen["engine.token_budget"]
    one = {k: (chosen[k] if k in chosen else given.get(k)) for k in ("engine", "quant")}
    quant = quant_for(load_model(model), one["quant"], [])
    longest = given["prompt"] + given["output"]
    if hasattr(found, "confirmed"):
        longest = math.floor(longest * (spread or (0.8, 1.2))[1])
    return serve_command(model, load_engine(one["engine"] or usual_engine("inference")), quant, chosen, int(longest))
