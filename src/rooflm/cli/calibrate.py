"""`rooflm calibrate`: measurements of `rooflm measure` to a machine of one's own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rooflm.asked.arguments import Argument, grouped
from rooflm.cli.console import dumps, show, tell, width, working
from rooflm.cli.error_text import errors_table, percent
from rooflm.cli.options import command, files
from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block, Table
from rooflm.shown.numbers import plural
from rooflm.shown.terminal import plain

ROWS = grouped((
    "What is fitted",
    Argument("out", "text", "The machine, for --gpu: FILE.toml.", (), "my-machine.toml"),
    Argument("held_out", "number", "Share of the cases kept aside for the error.", (), 0.3),
    Argument("clock", "text", "wall, or cpu where other work ran on the machine.", (), "wall", words=("wall", "cpu")),
    "Interpolation",
    Argument("interpolate", "flag", "Also interpolate what the constants leave over between the measured points.", ()),
    Argument("gpu", "device", "With --interpolate: correct this known GPU, fit nothing.", ()),
    Argument("engine", "engine", "With --gpu: whose predictions; FILE is its engine.", ()),
    "From a server's benchmarks",
    Argument("base", "file", "Calibrated machine (.toml) on which a server's results were made.", ()),
    Argument("apart", "flag", "With --base: few rows are multiplied one by one (llama.cpp).", ()),
    Argument("model", "text", "With --base: model of the results.", ()),
    Argument("dtype", "text", "With --base: data type of the results.", (), "bf16"),
    Argument("quant", "text", "With --base: scheme of the weights: bf16, int8-wo or int4.", (), "bf16"),
))  # fmt: skip
"""Arguments of `rooflm calibrate`."""


UNDISTURBED = 0.8
"""Share of its cores that a case of one process has on a machine that does nothing else, about: by hand."""


def share_of_cores(results: Sequence[str]) -> float:
    """Share of the cores that their threads ran on, of the median case of one process (1 where no file says it)."""
    from rooflm.measure.results import read

    tables = (path for path in results if str(path).endswith((".csv", ".parquet")))
    busy = [r.stat.value for path in tables for r in read(path) if r.metric == "busy" and r.case.world == 1]
    return median(busy) if busy else 1.0


def calibrate(results: list[str], asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm calibrate` does with its arguments."""
    from rooflm.measure import results as tables
    from rooflm.sweep.files import check_target
    from rooflm.tools import calibrate as fitted

    out, interpolate = asked["out"], asked.pop("interpolate")
    gpu, engine = asked.pop("gpu", None), asked.pop("engine", None)
    check_target(out, ("toml",))
    if bool(gpu) != bool(engine) or (gpu and not interpolate):
        raise RooflmError("--gpu, --engine and --interpolate go together: whose predictions to correct, and how")
    if gpu and engine:
        write_corrected_engine(results, gpu, engine, out, shown["json"])
        return
    with working("fitting"):
        found = fitted(*results, **asked)
    share = 1.0 if asked.get("base") or asked["clock"] == "cpu" else share_of_cores(results)
    if share < UNDISTURBED:
        tell(f"the cases had {share:.0%} of their cores: --clock cpu leaves out the time in which other work ran")
    if interpolate:
        add_residuals(out, [row for path in results for row in tables.read(path)], found.machine, asked["clock"])
    tell(f"wrote {out}")
    if shown["json"]:
        constants = {k: {"value": c.value, "sigma": c.sigma} for k, c in found.constants.items()}
        print(dumps({"constants": constants, "inside": found.inside, "held_out": found.outside}))
        return
    lines = [("constant", "value", "+- %")]
    lines += [
        (k, f"{c.value:.4g}", f"{100 * c.sigma:.0f}" if c.sigma < 10 else "unknown") for k, c in found.constants.items()
    ]
    blocks: list[Block] = [Table(lines, "lrr", head=True)]
    for title, figures in (
        (f"{plural(found.cases, 'case')} fitted", found.inside),
        (f"{found.held} kept aside", found.outside),
    ):
        head = (title, "cases", "median", "p90", "bias")
        blocks += [BLANK, errors_table(head, figures)] if figures else []
    show(blocks)


calibrate_command = command(
    "calibrate", [], calibrate, "Fit a machine's constants to measurements; the cases kept aside say how far to trust "
    "it.", own=ROWS,
    first=files("results", "RESULTS", "Tables of `rooflm measure`; with --base JSON of servers."),
)  # fmt: skip


def add_residuals(out: str, rows: Sequence[Any], machine: Any, clock: str) -> None:
    """Append the residuals of measured cases to the fitted machine's file, and print what they gain."""
    from rooflm.measure.compare import measured
    from rooflm.measure.residuals import from_cases, lines
    from rooflm.readers.outside import text
    from rooflm.sweep.files import write_text

    known = from_cases(*measured(rows, clock), machine)
    fitted = text(out, "machine", "toml")
    write_text(Path(out), fitted + "\n".join(lines(known)) + "\n")
    print(gain_table(known), file=sys.stderr)


def write_corrected_engine(results: list[str], gpu: str, engine: str, out: str, json_: bool) -> None:
    """Write an engine file with the residuals of measured tables over a known GPU and engine."""
    from rooflm.measure.residuals import engine_file, from_tables, gains
    from rooflm.sweep.files import check_target, write_text

    known = from_tables(results, gpu, engine)
    write_text(check_target(out, ("toml",)), engine_file(engine, known, ", ".join(results)))
    tell(f"wrote {out}, for --gpu {gpu} --engine {out}")
    print(dumps({k: g._asdict() for k, g in gains(known).items()}) if json_ else gain_table(known))


def gain_table(known: Any) -> str:
    """A table of what interpolation gains on held-out points."""
    from rooflm.measure.residuals import gains

    lines = [("mean error on points kept aside", "points", "constants", "interpolated")]
    lines += [(phase, str(g.points), percent(g.plain), percent(g.interpolated)) for phase, g in gains(known).items()]
    return plain([Table(lines, "lrrr", head=True)], width())
