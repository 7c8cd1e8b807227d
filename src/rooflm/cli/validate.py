"""`rooflm validate`: how far predictions are off on published measurements, by source, GPU, engine and model."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import Argument, grouped
from rooflm.cli.console import counting, dumps, save, show
from rooflm.cli.deliver import check_targets
from rooflm.cli.options import command, files
from rooflm.cli.validate_text import by_groups, report, table
from rooflm.errors import RooflmError
from rooflm.readers.outside import checked_path
from rooflm.shown.blocks import BLANK, Say, Table
from rooflm.shown.numbers import plural

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture

ROWS = grouped((
    "Which rows",
    Argument("source", "repeated", "Rows of these sources only: a comma list of names, or of parts of them.", ()),
    "The answer",
    Argument("by", "repeated", "Group errors by columns (a comma list).", ()),
    Argument("rows", "flag", "Print every row with its prediction.", ()),
    Argument("columns", "flag", "Print what columns and metrics a table may have.", ()),
    Argument("brief", "flag", "Print the errors by source (or by what --by names) only.", ()),
))  # fmt: skip
"""Arguments of `rooflm validate`."""


def validate(files: list[str] | None, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm validate` does with its arguments."""
    from rooflm import tools

    if asked["columns"]:
        show_columns(shown["json"])
        return
    out, plot, by = shown["out"], shown["plot"], asked.get("by", [])
    for name in files or () if asked["rows"] else ():
        if not checked_path(name, "table").exists():
            raise RooflmError(f"cannot read table {name!r}: there is no such file; --rows prints every row, and "
                              "--out FILE writes them")  # fmt: skip
    check_targets(out, plot, ("csv",))
    with counting("predicting", "rows"):
        result, outcomes, scored = tools.scored(files or (), asked.get("source", ()), by, None)
    if not (result["scored"] or any(result["verdicts"].values())):
        if not result["rows"]:
            raise RooflmError(f"{', '.join(files or ['the table'])}: no row below the header: each measured run is one")
        why = f", most for: {next(iter(result['skipped']))}" if result["skipped"] else ""
        read, how = plural(result["rows"], "row"), "`rooflm validate --columns` says what a row needs"
        if "gpu is blank" in result["skipped"]:  # as of `rooflm measure`
            why, how = ", as gpu is blank", "`rooflm compare --gpu FILE.toml` takes runs of a machine of one's own"
        raise RooflmError(f"{read} read and none scored{why} ({how})")
    save(out, lambda path: write_rows(path, outcomes, scored))
    save(plot, lambda path: picture(scored).save(path))
    if shown["json"]:
        print(dumps(result | ({"each": rows_json(scored)} if asked["rows"] else {})))
    elif asked["brief"] and result["counted"]:
        show([*table("all", {"all": result["all"]}), *by_groups(result, by or ("source",))])
    else:
        show(report(result, outcomes, scored, by, asked["rows"], shipped=not files))


def picture(scored: Sequence[Any]) -> Picture:
    """Predicted over measured of every scored row, by source and metric."""
    from rooflm.plots.ratios import ratios
    from rooflm.validation.columns import METRICS
    from rooflm.validation.score import predicted
    from rooflm.validation.table import source_names

    names, kept = source_names(), predicted(scored)
    words = {m: METRICS[m].meaning.split(" (")[0].split(",")[0].replace("`", "") for m in METRICS}
    found = [(names.get(x.request.source, x.request.source), words[x.request.metric], x.ratio) for x in kept]
    return ratios(found, f"{len(kept)} rows, by source and what was measured")


validate_command = command(
    "validate", [], validate, "Predict measured runs, the shipped ones or a table of your own, and say how far off the "
    "predictions are.", own=ROWS, first=files("files", "FILE.csv", "Tables (default: the shipped ones).", 0),
)  # fmt: skip


def show_columns(as_json: bool) -> None:
    """Print every column and metric that a table may have."""
    from rooflm.validation.columns import listed, metrics_listed

    columns, metrics = listed(), metrics_listed()
    if as_json:
        keys = ("name", "meaning", "unit", "read_by")
        found = {"columns": columns, "metrics": metrics}
        print(dumps({kind: [dict(zip(keys, row, strict=True)) for row in rows] for kind, rows in found.items()}))
        return
    show([Say("A row is a measured run; a blank cell takes the default of the command that reads it. In place of "
              "metric, value and unit there may be a column a metric, such as ttft and tpot_ms."), BLANK,
          Table([("column", "meaning", "unit", "read by"), *columns], "lwlw", head=True), BLANK,
          Table([("metric", "meaning", "unit", "of"), *metrics], "lwlw", head=True)])  # fmt: skip


def rows_json(scored: Sequence[Any]) -> list[dict[str, Any]]:
    """Every row for --json --rows; not-a-number where there is no prediction or band."""
    return [
        {"id": x.request.id, "source": x.request.source, "metric": x.request.metric, "measured": x.request.measured,
         "predicted": x.predicted, "low": x.low, "high": x.high, "skipped": x.reason,
         "apart": x.request.apart, "assumed": list(x.assumed)}
        for x in scored
    ]  # fmt: skip


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
                                 "; ".join(x.assumed)])  # fmt: skip

    write_whole(Path(path), write)


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
