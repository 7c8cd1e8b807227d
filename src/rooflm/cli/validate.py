"""`rooflm validate`: how far predictions are off on published measurements, by source, GPU, engine and model."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflm.cli import streams
from rooflm.cli.render import WIDTH, columns, dumps

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture

Files = Annotated[list[str] | None, typer.Argument(metavar="[FILE.csv]...", help="Tables (default: the shipped ones).")]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="NAME", help="Rows of these sources only (a comma list)."),
]
By = Annotated[list[str] | None, typer.Option("--by", metavar="COLUMN", help="Group errors by columns (a comma list).")]
WORST = 12
"""Worst rows printed."""
MOST = 24
"""Most lines of one table in the text (all of them in the JSON)."""


def validate(
    files: Files = None,
    source: Sources = None,
    by: By = None,
    rows: Annotated[bool, typer.Option("--rows", help="Print every row with its prediction.")] = False,
    show: Annotated[bool, typer.Option("--columns", help="Print what columns and metrics a table may have.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print the errors by source only.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object; errors are fractions.")] = False,
    out: Annotated[str | None, typer.Option(metavar="FILE.csv", help="Write every row and its prediction.")] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw predicted over measured (png, svg, html).")
    ] = None,
) -> None:
    """Predict measured runs, the shipped ones or a table of your own, and say how far off the predictions are."""
    from rooflm.sweep.files import check_target
    from rooflm.validation.score import report, requests_of, score
    from rooflm.validation.table import read_tables

    if show:
        print(columns_json() if json_ else columns_text())
        return
    if out:
        check_target(out, ("csv",))
    if plot:
        from rooflm.plots.picture import check_picture

        check_picture(plot)
    groups = listed(by)
    check_groups(groups)
    outcomes = read_tables(files or (), listed(source))
    requests = requests_of(outcomes)
    with progress(len(requests)) as advance:
        scored = score(requests, advance)
    result = report(outcomes, scored, groups)
    if out:
        write_rows(out, outcomes, scored)
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if plot:
        picture(scored).save(plot)
        print(f"rooflm: wrote {plot}", file=sys.stderr)
    if json_:
        print(dumps(result | ({"each": rows_json(scored)} if rows else {})))
    elif brief:
        print("\n".join([*table("all", {"all": result["all"]}), "", *table("by source", named(result["by_source"]))]))
    else:
        print(text(result, scored, groups, rows))


def named(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Figures by source, under the names of the sources."""
    from rooflm.validation.table import source_names

    names = source_names()
    return {names.get(source, source): found for source, found in groups.items()}


def picture(scored: Sequence[Any]) -> Picture:
    """Predicted over measured of every scored row, by source and metric."""
    from rooflm.plots.scatter import ratios
    from rooflm.validation.columns import METRICS
    from rooflm.validation.table import source_names

    names = source_names()
    kept = [x for x in scored if not x.reason and x.request.metric != "oom" and x.predicted > 0]
    words = {m: METRICS[m].meaning.split(" (")[0].split(",")[0].replace("`", "") for m in METRICS}
    found = [(names.get(x.request.source, x.request.source), words[x.request.metric], x.ratio) for x in kept]
    return ratios(
        "Predictions over published measurements", found, f"{len(kept)} rows, by source and what was measured"
    )


EVERY = 5.0
"""Seconds between two lines of progress where standard error is no terminal."""


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; elsewhere a line on standard error every few seconds."""
    if sys.stderr.isatty():
        with streams.bar("rows", total) as advance:
            yield advance
        return
    done, last = 0, time.monotonic()

    def told(more: int) -> None:
        nonlocal done, last
        done += more
        if time.monotonic() - last > EVERY:
            last = time.monotonic()
            print(f"rooflm: {done} of {total} rows predicted", file=sys.stderr, flush=True)

    yield told


def listed(given: Sequence[str] | None) -> list[str]:
    """The names in repeated comma lists.

    >>> listed(["a,b", "c"])
    ['a', 'b', 'c']
    """
    return [name.strip() for item in given or [] for name in item.split(",") if name.strip()]


def check_groups(groups: Sequence[str]) -> None:
    """RooflmError for a --by that is no column."""
    from rooflm.errors import RooflmError, near_matches
    from rooflm.validation.columns import COLUMNS, SETTING

    for name in groups:
        if name not in COLUMNS and not name.startswith(SETTING):
            near = near_matches(name, COLUMNS)
            tail = f": did you mean {' or '.join(map(repr, near))}?" if near else "; see `rooflm validate --columns`"
            raise RooflmError(f"--by is {name!r}, but there is no such column{tail}")


def columns_text() -> str:
    """Every column and metric that a table may have."""
    from rooflm.validation.columns import listed as columns_listed
    from rooflm.validation.columns import metrics_listed

    head = ("column", "meaning", "unit", "read by")
    lines = ["A row is a measured run; a blank cell takes the default of the command that reads it.", ""]
    lines += columns([head, *columns_listed()], "llll")
    return "\n".join([*lines, "", *columns([("metric", "meaning", "unit", "of"), *metrics_listed()], "llll")])


def columns_json() -> str:
    """The same as JSON."""
    from rooflm.validation.columns import listed as columns_listed
    from rooflm.validation.columns import metrics_listed

    keys = ("name", "meaning", "unit", "read_by")
    return dumps({"columns": [dict(zip(keys, c, strict=True)) for c in columns_listed()],
                  "metrics": [dict(zip(keys, m, strict=True)) for m in metrics_listed()]})  # fmt: skip


def percent(value: Any) -> str:
    """A fraction in per cent, or a dash.

    >>> percent(0.1234), percent(None)
    ('12.3', '-')
    """
    return "-" if value is None else f"{100 * value:.1f}"


def signed(value: Any) -> str:
    """A fraction in per cent with its sign.

    >>> signed(0.05)
    '+5.0'
    """
    return "-" if value is None else f"{100 * value:+.1f}"


def table(title: str, groups: Mapping[str, Mapping[str, Any]], most: int = MOST, width: int = 30) -> list[str]:
    """Error figures by group, the largest groups first; width: characters of a group's name."""
    ranked = sorted(groups.items(), key=lambda kv: (-int(kv[1]["rows"]), kv[0]))
    rows: list[Sequence[str]] = [(title, "rows", "mean", "median", "p90", "bias", "in band")]
    for name, g in ranked[:most]:
        errors = [percent(g[k]) for k in ("mape", "median_ape", "p90_ape")]
        rows.append((name[:width], str(g["rows"]), *errors, signed(g["bias"]), percent(g["coverage"])))
    lines = columns(rows, "lrrrrrr")
    if len(ranked) > most:
        lines.append(f"  ... and {len(ranked) - most} more (see --json)")
    return lines


NONE = "No row counts: what stands in for unstated conditions, and what sets rows apart, is below."


def text(result: Mapping[str, Any], scored: Sequence[Any], groups: Sequence[str] = (), rows: bool = False) -> str:
    """The report for people, at most 80 columns."""
    head = f"{result['rows']} rows, {result['scored']} scored, {result['counted']} counted"
    lines = [f"{head}; errors of predicted over measured in per cent", ""]
    lines += table("all", {"all": result["all"]}) if result["counted"] else [NONE]
    for name in dict.fromkeys((*groups, *(() if groups else ("source", "gpu", "engine", "metric", "model")))):
        if not result["counted"]:
            break
        found = result[f"by_{name}"]
        lines += ["", *table(f"by {name}", named(found) if name == "source" else found)]
    lines += load_lines(result["under_load"])
    for title, key in (("something stands in", "assumed"), ("set apart", "apart")):
        if result[key]:
            lines += ["", *table(f"not counted: {title}", result[key], width=36)]
    if result["skipped"]:
        lines += ["", "Skipped", *columns([(str(n), r[:66]) for r, n in result["skipped"].items()], "rl")]
    lines += ["", *verdict_lines(result["verdicts"]), ""]
    return "\n".join([*lines, *(row_lines(scored) if rows else worst_lines(scored))])


AICONFIGURATOR = (
    "AIConfigurator on 2,389 rows of the same kind: tpot mean 29, median 17;",
    "ttft mean 54, median 48 (its own published comparison).",
)
"""What the best tool with measured tables reaches under load: per cent."""


def load_lines(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Errors of rows measured under load by engine and metric; nothing where there is no such row."""
    return ["", *table("under load", groups), *AICONFIGURATOR] if groups else []


def verdict_lines(v: Mapping[str, Any]) -> list[str]:
    """Verdicts on memory: how many were right, and which were not."""
    wrong, near = v["wrong"], v["borderline"]
    total = v["right"] + len(wrong) + len(near)
    lines = [f"Verdicts on memory: {v['right']} of {total} right, {len(near)} within 5 % of the capacity"]
    for label, items in (("wrong", wrong), ("borderline", near)):
        listed = [f"{i} ({100 * float(m):+.1f} %)" for i, m in items.items()]
        if listed:
            from rooflm.cli.render import wrap

            lines += wrap(f"  {label}", listed[:30])
    return lines


def worst_lines(scored: Sequence[Any]) -> list[str]:
    """The rows that are furthest off, with what sets them apart."""
    import math

    from rooflm.validation.score import why

    usable = [x for x in scored if not x.reason and x.request.metric != "oom" and x.predicted > 0]
    usable = [x for x in usable if not x.request.apart] or usable
    worst = sorted(usable, key=lambda x: -abs(math.log(x.ratio)))[:WORST]
    lines = ["Worst rows (predicted over measured)"]
    for x in worst:
        r = x.request
        head = f"  {x.ratio:5.2f}  {r.id}  {r.group[0]} on {r.group[1]}, {r.engine}, {r.metric}"
        lines += [head[:WIDTH], f"         {why(x)}"[:WIDTH]]
    return lines


def row_lines(scored: Sequence[Any]) -> list[str]:
    """Every row: predicted over measured, both, what it is, and what sets it apart."""
    head = ("ratio", "measured", "predicted", "metric", "id", "model", "gpu", "engine", "remark")
    rows: list[Sequence[str]] = [head]
    for x in scored:
        r = x.request
        remark = x.reason or r.apart or "; ".join(r.assumed)
        figures = (f"{x.ratio:.2f}" if x.ratio == x.ratio else "-", _cell(r.measured), _cell(x.predicted) or "-")
        rows.append((*figures, r.metric, r.id, *r.group, r.engine, remark))
    return columns(rows, "rrrllllll")


def rows_json(scored: Sequence[Any]) -> list[dict[str, Any]]:
    """Every row for --json --rows."""
    return [
        {"id": x.request.id, "source": x.request.source, "metric": x.request.metric, "measured": x.request.measured,
         "predicted": _number(x.predicted), "low": _number(x.low), "high": _number(x.high), "skipped": x.reason,
         "apart": x.request.apart, "assumed": list(x.request.assumed)}
        for x in scored
    ]  # fmt: skip


def _number(value: float) -> float | None:
    return None if value != value else float(value)


COLUMNS = ("id", "source", "trust", "model", "gpu", "engine", "metric", "measured", "predicted", "ratio", "low", "high",
           "skipped", "apart", "assumed")  # fmt: skip


def write_rows(path: str, outcomes: Sequence[Any], scored: Sequence[Any]) -> None:
    """Every row, in order: measured and predicted, the band, or why it was skipped; what sets it apart."""
    from rooflm.sweep.files import write_whole

    done = {id(x.request): x for x in scored}

    def write(target: str) -> None:
        with Path(target).open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(COLUMNS)
            for o in outcomes:
                x = done.get(id(o))
                if x is None:
                    writer.writerow([o.id, o.source, *[""] * 10, o.reason, "", ""])
                    continue
                r = x.request
                figures = [_cell(v) for v in (r.measured, x.predicted, x.ratio, x.low, x.high)]
                writer.writerow([r.id, r.source, r.trust, *r.group, r.engine, r.metric, *figures, x.reason, r.apart,
                                 "; ".join(r.assumed)])  # fmt: skip

    write_whole(Path(path), write)


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
