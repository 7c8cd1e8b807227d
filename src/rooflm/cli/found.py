"""Deliver the result of a search: files, then text or JSON, and the exit status."""

from __future__ import annotations

from typing import Any

import typer

from rooflm.cli.console import Voice, dumps, save, show, tell
from rooflm.cli.deliver import write_table
from rooflm.cli.guard import INTERRUPTED
from rooflm.search.said import blocks
from rooflm.shown.answer import assumptions
from rooflm.shown.blocks import Say

NOTHING = 1
"""Exit status of a search that finds nothing."""


def deliver_result(
    found: Any, command: str, seconds: float, shown: dict[str, Any], note: str = "", first: str = ""
) -> None:
    """Write and print a search's result. command: starts the best answer; note: what its figures mean; first: what to
    do before starting it. Exits with status 1 if nothing was found, which writes nothing, nor does an interrupted
    search, which keeps its status."""
    written = found.top and not found.interrupted
    if found.interrupted:
        tell(f"{found.interrupted}: the answer is the best of these; no file is written")
    if written:
        save(shown["out"], lambda path: write_table(path, found_columns(found)))
        save(shown["plot"], found.plot)
    if shown["json"]:
        print(dumps({**result_json(found, command, seconds), "first": first}))
    else:
        took = [Say(f"searched in {seconds:.2f} s", "faint")] if Voice.verbose else []
        show([*blocks(found, command, "" if Voice.quiet else note, first), *took,
              *([] if Voice.quiet else assumptions(found))])  # fmt: skip
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.best is None:
        raise typer.Exit(NOTHING)


def found_columns(found: Any) -> dict[str, list[Any]]:
    """The best points and the trade-off, one a row; `list` says which."""
    rows = [{"list": name, **c.inputs, **c.outputs}
            for name, points in (("best", found.top), ("trade-off", found.front)) for c in points]  # fmt: skip
    return {k: [r.get(k) for r in rows] for k in dict.fromkeys(k for r in rows for k in r)}


def result_json(found: Any, command: str, seconds: float) -> dict[str, Any]:
    """The object of --json."""

    def inputs_and_outputs(c: Any) -> dict[str, Any]:
        return {"inputs": c.inputs, **c.outputs, **({"simulated": True} if c.simulated else {})}

    return {
        **({"confirmed": simulated_json(found)} if hasattr(found, "confirmed") else {}),
        "objective": found.goal.name,
        "points": found.points,
        "interrupted": found.interrupted,
        "feasible": found.feasible,
        "seconds": seconds,
        "best": inputs_and_outputs(found.best) if found.best else None,
        "error_band": found.error_band,
        "top": [inputs_and_outputs(c) for c in found.top],
        "front": [inputs_and_outputs(c) for c in found.front],
        "others": [inputs_and_outputs(c) for c in found.others],
        **({"without_pools": result_json(found.without_pools, "", seconds)} if found.without_pools else {}),
        "blocked": [{**inputs_and_outputs(b.candidate), "why": list(b.why)} for b in found.blocked],
        "nearest": {**inputs_and_outputs(found.nearest.candidate), "why": list(found.nearest.why)}
        if found.nearest
        else None,
        "unmet": list(found.unmet),
        "prices": found.prices,
        "assumed": list(found.assumed),
        "without_effect": list(found.same),
        "command": command,
    }


def simulated_json(found: Any) -> list[dict[str, Any]]:
    """The same for --json."""
    return [
        {
            "inputs": c.candidate.inputs,
            "load": c.load,
            "held": c.held,
            "agrees": c.agrees,
            "why": list(c.broken),
            "simulated": {k: v for k, v in c.served.values().items() if k not in ("assumed", "warnings")},
        }
        for c in found.confirmed
    ]
