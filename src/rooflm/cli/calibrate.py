"""`rooflm calibrate`: measurements of `rooflm measure` to a machine of one's own."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from rooflm.cli.render import columns, dumps
from rooflm.cli.validate import percent, signed
from rooflm.errors import RooflmError


def check_clock(name: str) -> str:
    """wall or cpu; RooflmError otherwise."""
    if name not in ("wall", "cpu"):
        raise RooflmError(f"clock is {name!r}, but it must be wall or cpu")
    return name


def calibrate(
    results: Annotated[list[str], typer.Argument(metavar="RESULTS...", help="Tables of `rooflm measure`.")],
    out: Annotated[str, typer.Option(metavar="FILE.toml", help="The machine, for --gpu.")] = "my-machine.toml",
    held_out: Annotated[float, typer.Option(help="Share of the cases kept aside for the error.")] = 0.3,
    clock: Annotated[str, typer.Option(help="wall, or cpu where other work ran on the machine.")] = "wall",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit a machine's constants to measurements; the cases kept aside say how far to trust it."""
    from rooflm import calibrate as fit
    from rooflm.files import check_target
    from rooflm.measure import results as tables

    check_target(out, ("toml",))
    if not 0 <= held_out < 1:
        raise RooflmError(f"held_out is {held_out!r}, but it must be at least 0 and below 1")
    rows = [row for path in results for row in tables.read(path)]
    found = fit.calibrate(rows, held_out, check_clock(clock))
    beside = tables.environment_file(results[0])
    environment = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    fit.write(out, found, environment, ", ".join(results))
    print(f"rooflm: wrote {out}", file=sys.stderr)
    if json_:
        constants = {k: {"value": c.value, "sigma": c.sigma} for k, c in found.constants.items()}
        print(dumps({"constants": constants, "inside": found.inside, "held_out": found.outside}))
        return
    lines = [("constant", "value", "+- %")]
    lines += [
        (k, f"{c.value:.4g}", f"{100 * c.sigma:.0f}" if c.sigma < 10 else "unknown") for k, c in found.constants.items()
    ]
    print("\n".join(columns(lines, "lrr")))
    for title, figures in ((f"{found.cases} cases fitted", found.inside), (f"{found.held} kept aside", found.outside)):
        head = (title, "cases", "median", "p90", "bias")
        body = [(m, str(f["rows"]), percent(f["median_ape"]), percent(f["p90_ape"]), signed(f["bias"]))
                for m, f in figures.items()]  # fmt: skip
        print()
        print("\n".join(columns([head, *body], "lrrrr")))
