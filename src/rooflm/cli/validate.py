"""`rooflm validate`: how far predictions are off on published measurements, by source, GPU, engine and model."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflm.cli import streams
from rooflm.cli.render import WIDTH, columns, dumps

Files = Annotated[list[str] | None, typer.Argument(metavar="[FILE.csv]...", help="Tables (default: the shipped ones).")]
WORST = 12
"""Worst rows printed."""
MOST = 24
"""Most lines of one table in the text (all of them in the JSON)."""


def validate(
    files: Files = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print the errors by source only.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object; errors are fractions.")] = False,
    out: Annotated[str | None, typer.Option(metavar="FILE.csv", help="Write every row and its prediction.")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw predicted over measured (png, svg).")] = None,
) -> None:
    """Predict published measurements and say how far off the predictions are."""
    from rooflm.sweep.files import check_target
    from rooflm.validation import published_tables, read_rows
    from rooflm.validation.score import report, requests_of, score

    if out:
        check_target(out, ("csv",))
    if plot:
        from rooflm.validation.scatter import FORMATS

        check_target(plot, FORMATS, "--plot")
    paths = [Path(f) for f in files] if files else published_tables()
    outcomes = [o for path in paths for o in read_rows(path)]
    requests = requests_of(outcomes)
    with streams.bar("rows", len(requests)) as advance:
        scored = score(requests, advance)
    result = report(outcomes, scored)
    if out:
        write_rows(out, outcomes, scored)
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if plot:
        from rooflm.validation.scatter import draw

        draw(scored, plot)
        print(f"rooflm: wrote {plot}", file=sys.stderr)
    if brief and not json_:
        print("\n".join([*table("all", {"all": result["all"]}), "", *table("by source", result["by_source"])]))
        return
    print(dumps(result) if json_ else text(result, scored))


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


def table(title: str, groups: Mapping[str, Mapping[str, Any]], most: int = MOST) -> list[str]:
    """Error figures by group, the largest groups first."""
    ranked = sorted(groups.items(), key=lambda kv: (-int(kv[1]["rows"]), kv[0]))
    rows: list[Sequence[str]] = [(title, "rows", "mean", "median", "p90", "bias", "in band")]
    for name, g in ranked[:most]:
        errors = [percent(g[k]) for k in ("mape", "median_ape", "p90_ape")]
        rows.append((name[:30], str(g["rows"]), *errors, signed(g["bias"]), percent(g["coverage"])))
    lines = columns(rows, "lrrrrrr")
    if len(ranked) > most:
        lines.append(f"  ... and {len(ranked) - most} more (see --json)")
    return lines


def text(result: Mapping[str, Any], scored: Sequence[Any]) -> str:
    """The report for people, at most 80 columns."""
    lines = [f"{result['rows']} rows, {result['scored']} scored; errors of predicted over measured in per cent", ""]
    lines += table("all", {"all": result["all"]})
    for name in ("source", "gpu", "engine", "metric", "model"):
        lines += ["", *table(f"by {name}", result[f"by_{name}"])]
    lines += load_lines(result["under_load"])
    lines += ["", "Skipped", *columns([(str(n), r[:66]) for r, n in result["skipped"].items()], "rl")]
    lines += ["", *verdict_lines(result["verdicts"]), "", *worst_lines(scored)]
    return "\n".join(lines)


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
    worst = sorted(usable, key=lambda x: -abs(math.log(x.ratio)))[:WORST]
    lines = ["Worst rows (predicted over measured)"]
    for x in worst:
        r = x.request
        head = f"  {x.ratio:5.2f}  {r.id}  {r.group[0]} on {r.group[1]}, {r.engine}, {r.metric}"
        lines += [head[:WIDTH], f"         {why(x)}"[:WIDTH]]
    return lines


COLUMNS = ("id", "source", "trust", "model", "gpu", "engine", "metric", "measured", "predicted", "ratio", "low", "high",
           "skipped", "notes")  # fmt: skip


def write_rows(path: str, outcomes: Sequence[Any], scored: Sequence[Any]) -> None:
    """Every row of the tables, in order: measured and predicted (SI units), the band, or why it was skipped."""
    from rooflm.sweep.files import write_whole

    done = {id(x.request): x for x in scored}

    def write(target: str) -> None:
        with Path(target).open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(COLUMNS)
            for o in outcomes:
                x = done.get(id(o))
                if x is None:
                    writer.writerow([o.id, o.source, *[""] * 10, o.reason, ""])
                    continue
                r = x.request
                figures = [_cell(v) for v in (r.measured, x.predicted, x.ratio, x.low, x.high)]
                writer.writerow([r.id, r.source, r.trust, *r.group, r.engine, r.metric, *figures, x.reason,
                                 "; ".join(r.notes)])  # fmt: skip

    write_whole(Path(path), write)


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
