"""validate, compare, calibrate and measure: what the commands of these names do, for Python. They print nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflm.errors import RooflmError, near_matches
from rooflm.shown.progress import notebook_clock, tell_done

if TYPE_CHECKING:
    from rooflm.measure.calibrate import Calibration
    from rooflm.measure.case import Case
    from rooflm.measure.gap import Comparison
    from rooflm.measure.load import Run
    from rooflm.measure.results import Row
    from rooflm.validation.request import Outcome
    from rooflm.validation.score import Scored


def validate(
    *files: str | Sequence[str],
    source: str | Sequence[str] = (),
    by: str | Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """How far predictions are off on measured runs: the object of `rooflm validate --json`.

    files: tables of measured runs, or lists of them (docs/tables.md; default: the shipped ones); source: of these
    sources only; by: columns to group errors by; progress: told how many more rows are done. Errors are fractions, of
    predicted over measured; RooflmError for a file that cannot be read.
    """
    with notebook_clock("predicting measured runs"):
        each = [f for group in files for f in _listed(group)]
        return scored(each, _listed(source or ()), _listed(by or ()), progress).report


def _listed(given: Any) -> list[Any]:
    """One name or several, as several."""
    if isinstance(given, str | os.PathLike):
        return [given]
    if not isinstance(given, Iterable):
        raise RooflmError(f"{given!r} is neither a name, a path nor a list of them")
    return [*given]


class Validated(NamedTuple):
    """How far predictions are off. report: as `validate` gives it; outcomes: what became of each row of the tables;
    scored: the rows that make sense, with their prediction."""

    report: dict[str, Any]
    outcomes: list[Outcome]
    scored: list[Scored]


def scored(
    files: Sequence[str], source: Sequence[str], by: Sequence[str], progress: Callable[[int], None] | None
) -> Validated:
    """What `validate` works out, row by row. RooflmError for a file that cannot be read and for an unknown column."""
    from rooflm.validation.columns import COLUMNS, SETTING
    from rooflm.validation.score import report, requests_of, score
    from rooflm.validation.table import read_tables

    for name in by:
        if name not in COLUMNS and not name.startswith(SETTING):
            near = near_matches(name, COLUMNS)
            tail = f": did you mean {' or '.join(map(repr, near))}?" if near else "; see `rooflm validate --columns`"
            raise RooflmError(f"by is {name!r}, but there is no such column{tail}")
    outcomes = read_tables(files, source)
    asked, done = requests_of(outcomes), 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell_done(done, len(asked))
        if progress:
            progress(more)

    found = score(asked, advance)
    return Validated(report(outcomes, found, by), outcomes, found)


def _paths(results: tuple[str, ...]) -> tuple[str, ...]:
    """Files as given. RooflmError for what is no path."""
    for path in results:
        if not isinstance(path, (str, os.PathLike)):
            raise RooflmError(f"results is {str(path)[:60]!r}, but each is the path of a file: give files one by one")
    return results


def compare(
    *results: str, clock: str = "wall", explain: bool = True, efficiency: str | None = None,
    progress: Callable[[int, int, str], None] | None = None, **given: Any,
) -> Comparison:  # fmt: skip
    """Measured runs beside their predictions, each played as it was, and why they part.

    results: tables of measured runs (docs/tables.md), or files of other tools; given: columns of such a table that go
    before what the files say (model, gpu, gpus, tp, engine, release, quant, prompt, output, concurrency, ..., sets);
    gpu may be a calibrated machine's .toml, whose own engine is then taken unless one is given. explain: play the
    suspects too (progress: told number, of how many, name); clock: "wall", or "cpu" where other work ran on a machine
    that `measure` measured. RooflmError for bad input.
    """
    from rooflm.measure.gap import compare as played

    return played(_paths(results), given, check_clock(clock), explain, progress, efficiency)


def calibrate(
    *results: str, out: str | None = None, held_out: float = 0.3, clock: str = "wall", base: str | None = None,
    apart: bool = False, model: str | None = None, dtype: str = "bf16", quant: str = "bf16",
) -> Calibration:  # fmt: skip
    """The constants of a machine fitted to its measurements, and its errors on cases kept aside.

    results: tables of `measure`; out: a .toml to write, which `gpu=` then takes; held_out: share of the cases kept
    aside; clock: "wall", or "cpu" where other work ran. base: a calibrated machine, on which the JSON of a server's
    benchmarks (of model, dtype, quant; apart: few rows are multiplied one by one) was made. RooflmError for bad input.
    """
    from rooflm.measure import calibrate as fit
    from rooflm.measure.calibrate_server import engine_of, served_cases, serving
    from rooflm.measure.compare import machine_of
    from rooflm.measure.results import environment_file, read
    from rooflm.readers import outside

    if not 0 <= held_out < 1:
        raise RooflmError(f"held_out is {held_out!r}, but it must be at least 0 and below 1")
    results = _paths(results)
    if base:
        theirs = [row for path in results for row in served_cases(path, model, dtype, quant, check_clock(clock))]
        found = serving(theirs, machine_of(base), apart, engine_of(results[0]))
    else:
        found = fit.calibrate([row for path in results for row in read(path)], held_out, check_clock(clock))
    if out:
        beside = environment_file(results[0])
        environment = outside.read_json(beside, "environment") if beside.is_file() else {}
        fit.write(out, found, environment, ", ".join(results))
    return found


def measure(
    model: str | Sequence[str] = "", *, task: str = "infer", strategy: str | Sequence[str] = "none",
    optimise: str | Sequence[str] = "none", out: str | None = None, timeout: float = 1800.0,
    progress: Callable[[int, int, Case, str], None] | None = None,
    left_out: Callable[[str, str], None] | None = None, **case: Any,
) -> list[Row]:  # fmt: skip
    """Run real models on this machine and keep what they took: one row a case, rank and metric, SI units.

    model: a folder, .gguf, config.json or catalogue name, or a list; task: "infer", "train", "accuracy" or "micro";
    strategy, optimise: such as "tp2" and "compile", or lists; out: csv or parquet, whose finished cases are kept;
    timeout (s): after which a case has failed; progress: told number, count, case and status; left_out: told which
    combinations are not run, and why. The rest are fields of a case (batch, prompt, output, dtype, layers, width_prune,
    repeats, warmup, threads, device, size, text, tokens, context), of which a list is an axis.
    """
    from rooflm.asked.checks import amount
    from rooflm.measure.case import check_model, check_room
    from rooflm.measure.plan import listed, plan
    from rooflm.measure.results import installed_memory
    from rooflm.measure.runs import runner

    amount("timeout", timeout, above=True)
    asked = [[v] if isinstance(v, str) else list(v) for v in (strategy, optimise)]
    made = plan({"task": task, "model": model, **case}, *asked)
    for name in filter(None, listed(model)):
        check_model(name)
    for one in made.cases:
        check_room(one, installed_memory())
    if left_out:
        for label, why in made.left_out:
            left_out(label, why)
    rows = runner.run(made.cases, out, progress, timeout)
    wanted = {c.key for c in made.cases}
    return [r for r in rows if r.case.key in wanted]


def measure_server(
    url: str, model: str = "", *, concurrency: int | Sequence[int] | None = None,
    rate: float | Sequence[float] | None = None, trace: str = "", prompt: int = 128, output: int = 64,
    requests: int = 0, duration: float = 300.0, tokenizer: str = "", generator: str = "guidellm",
    interval: float = 0.5, out: str | None = None, progress: Callable[[int, int, str, str], None] | None = None,
    **given: Any,
) -> Run:  # fmt: skip
    """Load a running server with a maintained load generator, and keep what it took as rows of a table.

    url: of any OpenAI-compatible server; model: as predictions know it (default: as the server names it); concurrency,
    rate, trace: levels of load; requests: of a level (0: six a client); duration: longest level, s; tokenizer: for the
    generator; interval: s between samples of the profile (0: none); out: csv, written after every level, whose finished
    levels are kept; progress: told number, of how many, level and status; given: columns of the table that go before
    what the server tells (gpu, gpus, tp, engine, release, quant, ...). RooflmError for bad input.
    """
    from rooflm.measure.gap import cells_of
    from rooflm.measure.load import Plan, run
    from rooflm.measure.plan import listed

    clients, rates = tuple(listed(concurrency)), tuple(listed(rate))
    plan = Plan(url, model, cells_of(given), clients, rates, trace, prompt, output, requests, duration, tokenizer,
                generator, interval)  # fmt: skip
    return run(plan, out, progress)


def check_clock(name: str) -> str:
    """wall or cpu; RooflmError otherwise."""
    if name not in ("wall", "cpu"):
        raise RooflmError(f"clock is {name!r}, but it must be wall or cpu")
    return name
