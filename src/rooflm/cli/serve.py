"""`rooflm serve`: what users feel under load; --json, --out (per-request table), --plot, --slo and --find."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import typer

from rooflm.cli.console import Voice, dumps, save, show, tell, warn, working
from rooflm.cli.deliver import check_targets, deliver_grid, write_table
from rooflm.cli.found import NOTHING
from rooflm.cli.guard import INTERRUPTED
from rooflm.cli.options import command
from rooflm.errors import RooflmError

if TYPE_CHECKING:
    from rooflm.serving.deploy import Served
    from rooflm.serving.highest import Found


def serve(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm serve` does with its arguments."""
    from rooflm.api import serve as simulate
    from rooflm.plots.scale import check_value
    from rooflm.serving.grid import SERVE_OUTPUTS, serve_grid, split_lists

    arguments = {**asked, "server": server_options(shown["option"], shown["scheduler"])}
    find, value = shown["find"], shown["plot_value"]
    check_targets(shown["out"], shown["plot"])
    axes, fixed = split_lists({"model": model, **arguments})
    if axes:
        if find is not None:
            raise RooflmError("--find is of a single simulation: leave out the lists")
        if value is not None:
            check_value(value, SERVE_OUTPUTS)
        with working("simulating"):
            grid = serve_grid(axes, fixed, simulate)
        deliver_grid(grid, shown)
        return
    if value is not None:
        raise RooflmError(f"--plot-value is {value!r}, but one simulation is drawn over time: give a list")
    if find is not None:
        served, found = sought(model, arguments, find, asked.get("slo", ""))
        deliver_run(served, shown, found)
        return
    with working("simulating") as told:
        served = simulate(model, **arguments, progress=lambda done, total, now: told(
            said=f"{done:,} of {total:,} requests ended, {now:.0f} s simulated"))  # fmt: skip
    deliver_run(served, shown, {})


def sought(model: str, arguments: dict[str, Any], find: str, slo: str) -> tuple[Served, dict[str, Any]]:
    """The run at what --find found, and what of it the answer says under `found`; exits with NOTHING where no load
    meets the limits."""
    with working(f"seeking the {'fewest' if find == 'replicas' else 'highest'} {find}"):
        found = search(model, arguments, find, slo)
    if found.served is None:
        tell(f"no {find} meets the limits: {'; '.join(found.broken)}")
        raise typer.Exit(NOTHING)
    return found.served, {"found": {find: found.load, "broken_above": list(found.broken)}}


def deliver_run(served: Served, shown: dict[str, Any], found: dict[str, Any]) -> None:
    """Write and print a simulation, with what --find `found`; of an interrupted one no file, and its exit status."""
    from rooflm.serving.said import blocks
    from rooflm.shown.answer import assumptions

    warn(served.warnings)
    values = {**served.values(), **found}
    if served.run.interrupted:
        tell("these numbers are of what was done until then; no file is written")
    else:
        save(shown["out"], lambda path: write_table(path, request_columns(served)))
        save(shown["plot"], served.plot)
    if shown["json"]:
        print(dumps(values))
    else:
        show([*blocks(served, values), *([] if Voice.quiet else assumptions(served))])
    if served.run.interrupted:
        raise typer.Exit(INTERRUPTED)


serve_command = command("serve", ["serve"], serve, "Simulate users on a deployment: TTFT, TPOT, latency, throughput, "
                        "queue, KV memory, cost.")  # fmt: skip


def server_options(pairs: list[str] | None, scheduler: str | None) -> dict[str, Any]:
    """Parse --option NAME=VALUE pairs into numbers, booleans and names."""
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


SETTLED = 5
"""Requests come for so many times what 99 of 100 take in all: a run that ends before its first have left never holds as
many at a time as the rate does, and one more replica is needed than it says."""


def search(model: str, arguments: dict[str, Any], what: str, slo: str) -> Found:
    """The highest rate or concurrency, or the fewest replicas, within the limits."""
    from rooflm.api import serve as simulate
    from rooflm.serving.highest import fewest, highest
    from rooflm.serving.metrics import FEWEST

    if what not in ("rate", "concurrency", "replicas"):
        raise RooflmError(f"find is {what!r}, but it must be rate, concurrency or replicas")
    if not slo:
        raise RooflmError("find needs limits: give them with --slo, such as ttft:p95=500ms,tpot:p95=50ms")
    rest = {k: v for k, v in arguments.items() if k != what}

    def settled(**asked: Any) -> Served:
        """A run at a rate; where nobody told its requests and it meets the limits, as long as it takes to fill up."""
        served = simulate(model, **asked)
        if served.run.interrupted or {"requests", "trace"} & asked.keys() or not served.summary.meets(served.limits):
            return served
        needed = math.ceil(SETTLED * served.summary.values["latency_s"]["p99"] * asked["rate"])
        return served if needed <= len(served.table.arrival) else simulate(model, **asked, requests=needed)

    if what == "replicas":
        if "rate" not in arguments and "trace" not in arguments:
            raise RooflmError("find replicas needs a load: give --rate or --trace")
        return fewest(lambda n: settled(**{**arguments, "replicas": int(n)}))
    if what == "concurrency":
        if "rate" in arguments:
            raise RooflmError("find concurrency is of clients that wait for their answers: leave --rate out")
        return highest(lambda c: simulate(model, **rest, concurrency=int(c)), whole=True)
    if "concurrency" in arguments and int(arguments.get("requests") or FEWEST) < FEWEST:
        raise RooflmError(f"find rate with a limit of clients needs at least {FEWEST} requests, to see if they wait")
    return highest(lambda r: settled(**rest, rate=r))


def request_columns(served: Served) -> dict[str, list[Any]]:
    """The per-request table, by the names of a file."""
    timed = {"arrival", "ttft", "tpot", "latency"}
    return {f"{k}_s" if k in timed else k: v.tolist() for k, v in served.table._asdict().items()}
