"""`rooflm calibrate`: measurements of `rooflm measure` to a machine of one's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflm.cli.render import columns, dumps
from rooflm.cli.validate import percent, signed
from rooflm.errors import RooflmError


def calibrate(
    results: Annotated[
        list[str], typer.Argument(metavar="RESULTS...", help="Tables of `rooflm measure`; with --base JSON of servers.")
    ],
    out: Annotated[str, typer.Option(metavar="FILE.toml", help="The machine, for --gpu.")] = "my-machine.toml",
    held_out: Annotated[float, typer.Option(help="Share of the cases kept aside for the error.")] = 0.3,
    clock: Annotated[str, typer.Option(help="wall, or cpu where other work ran on the machine.")] = "wall",
    interpolate: Annotated[
        bool, typer.Option(help="Also interpolate what the constants leave over between the measured points.")
    ] = False,
    gpu: Annotated[str | None, typer.Option(help="With --interpolate: correct this known GPU, fit nothing.")] = None,
    engine: Annotated[str | None, typer.Option(help="With --gpu: whose predictions; FILE is its engine.")] = None,
    base: Annotated[
        str | None, typer.Option(metavar="FILE.toml", help="Calibrated machine on which a server's results were made.")
    ] = None,
    apart: Annotated[bool, typer.Option(help="With --base: few rows are multiplied one by one (llama.cpp).")] = False,
    model: Annotated[str | None, typer.Option(help="With --base: model of the results.")] = None,
    dtype: Annotated[str, typer.Option(help="With --base: data type of the results.")] = "bf16",
    quant: Annotated[str, typer.Option(help="With --base: weights: none, int8-wo or int4-wo.")] = "none",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit a machine's constants to measurements; the cases kept aside say how far to trust it."""
    from rooflm.measure import results as tables
    from rooflm.sweep.files import check_target
    from rooflm.tools import calibrate as fitted

    check_target(out, ("toml",))
    if bool(gpu) != bool(engine) or (gpu and not interpolate):
        raise RooflmError("--gpu, --engine and --interpolate go together: whose predictions to correct, and how")
    if gpu and engine:
        correct(results, gpu, engine, out, json_)
        return
    found = fitted(*results, out=out, held_out=held_out, clock=clock, base=base, apart=apart, model=model, dtype=dtype,
                   quant=quant)  # fmt: skip
    if interpolate:
        extend(out, [row for path in results for row in tables.read(path)], found.machine, clock)
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
        if not figures:
            continue
        head = (title, "cases", "median", "p90", "bias")
        body = [(m, str(f["rows"]), percent(f["median_ape"]), percent(f["p90_ape"]), signed(f["bias"]))
                for m, f in figures.items()]  # fmt: skip
        print()
        print("\n".join(columns([head, *body], "lrrrr")))


def extend(out: str, rows: Sequence[Any], machine: Any, clock: str) -> None:
    """Add the residuals of measured cases to the file of the machine that was fitted to them; say what they gain."""
    from rooflm.catalogue.outside import text
    from rooflm.catalogue.residuals import lines
    from rooflm.measure.compare import measured
    from rooflm.measure.residuals import from_cases
    from rooflm.sweep.files import write_text

    known = from_cases(*measured(rows, clock), machine)
    fitted = text(out, "machine", "toml")
    write_text(Path(out), fitted + "\n".join(lines(known)) + "\n")
    print(gained(known), file=sys.stderr)


def correct(results: list[str], gpu: str, engine: str, out: str, json_: bool) -> None:
    """Write an engine's file with the residuals of measured tables over a known GPU and engine."""
    from rooflm.measure.residuals import engine_file, from_tables, gains
    from rooflm.sweep.files import check_target, write_text

    known = from_tables(results, gpu, engine)
    write_text(check_target(out, ("toml",)), engine_file(engine, known, ", ".join(results)))
    print(f"rooflm: wrote {out}, for --gpu {gpu} --engine {out}", file=sys.stderr)
    print(dumps({k: g._asdict() for k, g in gains(known).items()}) if json_ else gained(known))


def gained(known: Any) -> str:
    """What interpolation gains on points kept aside, as a table."""
    from rooflm.measure.residuals import gains

    lines = [("mean error on points kept aside", "points", "constants", "interpolated")]
    lines += [(phase, str(g.points), percent(g.plain), percent(g.interpolated)) for phase, g in gains(known).items()]
    return "\n".join(columns(lines, "lrrr"))
