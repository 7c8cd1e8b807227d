"""`rooflm validate`: how far predictions are off on published measurements, by source, GPU, engine and model."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import Argument, grouped
from rooflm.cli.console import dumps, show, tell, working
from rooflm.cli.options import command, files
from rooflm.shown.blocks import BLANK, Block, Say, Table, amount, listed
from rooflm.shown.numbers import plural

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture

WORST = 12
"""Worst rows printed."""
MOST = 24
"""Most lines of one table in the text (all of them in the JSON)."""


ROWS = grouped((
    "Which rows",
    Argument("source", "repeated", "Rows of these sources only (a comma list).", ()),
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
    from rooflm.sweep.files import check_target

    if asked["columns"]:
        print(columns_json()) if shown["json"] else show(columns_blocks())
        return
    out, plot, by = shown["out"], shown["plot"], asked.get("by", [])
    if out:
        check_target(out, ("csv",))
    if plot:
        from rooflm.plots.picture import check_picture

        check_picture(plot)
    with working("rows predicted") as advance:
        result, outcomes, scored = tools.scored(files or (), asked.get("source", ()), by, advance)
    if out:
        write_rows(out, outcomes, scored)
        tell(f"wrote {out}")
    if plot:
        picture(scored).save(plot)
        tell(f"wrote {plot}")
    if shown["json"]:
        print(dumps(result | ({"each": rows_json(scored)} if asked["rows"] else {})))
    elif asked["brief"] and result["counted"]:
        show([*table("all", {"all": result["all"]}), *by_groups(result, by or ("source",))])
    else:
        show(text(result, outcomes, scored, by, asked["rows"], shipped=not files))


def by_source_name(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Group figures under the readable names of their sources."""
    from rooflm.validation.table import source_names

    names = source_names()
    return {names.get(source, source): found for source, found in groups.items()}


def picture(scored: Sequence[Any]) -> Picture:
    """Predicted over measured of every scored row, by source and metric."""
    from rooflm.plots.ratios import ratios
    from rooflm.validation.columns import METRICS
    from rooflm.validation.table import source_names

    names = source_names()
    kept = [x for x in scored if not x.reason and x.request.metric != "oom" and x.predicted > 0]
    words = {m: METRICS[m].meaning.split(" (")[0].split(",")[0].replace("`", "") for m in METRICS}
    found = [(names.get(x.request.source, x.request.source), words[x.request.metric], x.ratio) for x in kept]
    return ratios("Predictions over measurements", found, f"{len(kept)} rows, by source and what was measured")


validate_command = command(
    "validate", [], validate, "Predict measured runs, the shipped ones or a table of your own, and say how far off the "
    "predictions are.", own=ROWS, first=files("files", "[FILE.csv]...", "Tables (default: the shipped ones).", 0),
)  # fmt: skip


def columns_blocks() -> list[Block]:
    """Every column and metric that a table may have."""
    from rooflm.validation.columns import listed as columns_listed
    from rooflm.validation.columns import metrics_listed

    head = ("column", "meaning", "unit", "read by")
    return [Say("A row is a measured run; a blank cell takes the default of the command that reads it. In place of "
                "metric, value and unit there may be a column a metric, such as ttft and tpot_ms."), BLANK,
            Table([head, *columns_listed()], "lwlw", head=True), BLANK,
            Table([("metric", "meaning", "unit", "of"), *metrics_listed()], "lwlw", head=True)]  # fmt: skip


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
    return "-" if value is None else f"{100 * value:.1f}" if value < 100 else f"{100 * value:.0e}"


def signed(value: Any) -> str:
    """A fraction in per cent with its sign.

    >>> signed(0.05)
    '+5.0'
    """
    return "-" if value is None else f"{100 * value:+.1f}" if value < 100 else f"{100 * value:+.0e}"


def table(title: str, groups: Mapping[str, Mapping[str, Any]], most: int = MOST) -> list[Block]:
    """Error figures by group, the largest groups first."""
    ranked = sorted(groups.items(), key=lambda kv: (-int(kv[1]["rows"]), kv[0]))
    rows: list[Sequence[str]] = [(title, "rows", "mean", "median", "p90", "bias", "in band")]
    for name, g in ranked[:most]:
        errors = [percent(g[k]) for k in ("mape", "median_ape", "p90_ape")]
        rows.append((name, str(g["rows"]), *errors, signed(g["bias"]), percent(g["coverage"])))
    made: list[Block] = [Table(rows, "wrrrrrr", head=True)]
    return [*made, *([Say(f"  ... and {len(ranked) - most} more (see --json)")] if len(ranked) > most else [])]


def by_groups(result: Mapping[str, Any], names: Iterable[str]) -> list[Block]:
    """Error figures by each of these columns."""
    tables = (
        table(f"by {name}", by_source_name(result[f"by_{name}"]) if name == "source" else result[f"by_{name}"])
        for name in dict.fromkeys(names)
    )
    return [block for one in tables for block in (BLANK, *one)]


NONE = "No row counts: what stands in for unstated conditions, and what sets rows apart, is below."


def text(
    result: Mapping[str, Any], outcomes: Sequence[Any], scored: Sequence[Any], groups: Sequence[str], rows: bool,
    shipped: bool = False,
) -> list[Block]:  # fmt: skip
    """The report for people. shipped: of the project's own tables."""
    head = f"{plural(result['rows'], 'row')}, {result['scored']} scored, {result['counted']} counted"
    out: list[Block] = [Say(f"{head}; errors of predicted over measured in per cent"), *units(scored), BLANK]
    whole = {"all": result["all"]} if result["counted"] == result["scored"] else {"scored": result["all_scored"]}
    if result["counted"] < result["scored"]:
        whole |= {"counted": result["all"]} if result["counted"] else {}
    out += [] if result["counted"] else [Say(NONE if result["scored"] else "No row can be predicted.")]
    out += [*([] if result["counted"] else [BLANK]), *table("all", whole)] if result["scored"] else []
    out += by_groups(result, groups or (b for b in BY if len(result[f"by_{b}"]) > 1)) if result["counted"] else []
    out += load_blocks(result["under_load"]) if shipped or len(result["by_engine"]) > 1 else []
    out += [BLANK, *map(Say, AICONFIGURATOR)] if shipped else []
    for title, key in (("something stands in", "assumed"), ("set apart", "apart")):
        if result[key]:
            out += [BLANK, *table(f"not counted: {title}", result[key])]
    out += skipped_blocks(outcomes, scored)
    out += verdict_blocks(result["verdicts"])
    return [*out, *(row_blocks(scored) if rows else worst_blocks(scored))]


BY = ("source", "gpu", "engine", "metric", "model")
"""What errors are grouped by where nothing else is asked."""


def units(scored: Sequence[Any]) -> list[Block]:
    """A warning if values without a unit look as if they were in another unit than their metric's."""
    from rooflm.validation.score import other_unit, predicted

    found = Counter(filter(None, (other_unit(x) for x in predicted(scored))))
    told = " and ".join(f"{plural(n, 'value')} without a unit would fit in {unit}" for unit, n in found.items())
    return [Say(f"{told}: give a column unit.", "bad")] if found else []


def skipped_blocks(outcomes: Sequence[Any], scored: Sequence[Any]) -> list[Block]:
    """Why rows are skipped, and which."""
    from rooflm.validation.score import left_out

    by_reason: dict[str, list[str]] = {}
    for reason, name in left_out(outcomes, scored):
        by_reason.setdefault(reason, []).append(name)
    rows = []
    for reason, names in sorted(by_reason.items(), key=lambda kv: (-len(kv[1]), kv[0])):
        count, names = len(names), list(dict.fromkeys(names))
        more = [f"{len(names) - FEW} more"] if len(names) > FEW else []
        rows.append((str(count), f"{reason}: {', '.join([*names[:FEW], *more])}"))
    return [BLANK, Table(rows, "rw", "Skipped")] if rows else []


FEW = 4
"""Skipped rows of a reason that are named."""
AICONFIGURATOR = (
    "AIConfigurator on 2,389 rows of the same kind: tpot mean 29, median 17;",
    "ttft mean 54, median 48 (its own published comparison).",
)
"""What the best tool with measured tables reaches under load: per cent."""


def load_blocks(groups: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Errors of rows measured under load by engine and metric; nothing where there is no such row."""
    return [BLANK, *table("under load", groups)] if groups else []


def verdict_blocks(v: Mapping[str, Any]) -> list[Block]:
    """Verdicts on memory: how many were right, and which were not."""
    wrong, near = v["wrong"], v["borderline"]
    total = v["right"] + len(wrong) + len(near)
    if not total:
        return []
    right = f"{v['right']} of {total} right, {len(near)} within 5 % of the capacity"
    out: list[Block] = [BLANK, Say(f"Verdicts on memory: {right}")]
    for label, items in (("wrong", wrong), ("borderline", near)):
        told = [f"{i} ({100 * float(m):+.1f} %)" for i, m in items.items()]
        more = [f"{len(told) - MOST_NAMED} more (see --json)"] if len(told) > MOST_NAMED else []
        out += listed(f"  {label}", [*told[:MOST_NAMED], *more])
    return out


MOST_NAMED = 30
"""Rows of a verdict that are named."""


def worst_blocks(scored: Sequence[Any]) -> list[Block]:
    """The rows that are furthest off, with what sets them apart."""
    import math

    from rooflm.validation.score import remarks

    usable = [x for x in scored if not x.reason and x.request.metric != "oom" and x.predicted > 0]
    usable = [x for x in usable if not x.request.apart] or usable
    worst = sorted(usable, key=lambda x: -abs(math.log(x.ratio)))[:WORST]
    return detailed_rows("Worst rows (predicted over measured)", [(x, remarks(x)) for x in worst])


def row_blocks(scored: Sequence[Any]) -> list[Block]:
    """Every row, with what sets it apart."""
    from rooflm.validation.score import remarks

    return detailed_rows("Rows", [(x, x.reason or remarks(x)) for x in scored])


def detailed_rows(title: str, rows: Sequence[tuple[Any, str]]) -> list[Block]:
    """Rows in detail: predicted over measured, both values, and remarks."""
    from rooflm.validation.columns import METRICS

    lines: list[Sequence[str]] = [("ratio", "measured", "predicted", "row")]
    for x, remark in rows:
        r = x.request
        unit = METRICS[r.metric].unit
        values = (ratio_text(x.ratio), value_text(r.measured, unit), value_text(x.predicted, unit))
        lines.append((*values, f"{r.id}  {r.group[0]} on {r.group[1]}, {r.engine}, {r.metric}"))
        lines += [("", "", "", remark)] if remark else []
    return [BLANK, Table(lines, "rrrw", title, head=True)] if rows else []


def ratio_text(ratio: float) -> str:
    """A ratio with two places, or as a power of ten where it is far off.

    >>> ratio_text(1.234), ratio_text(0.00079), ratio_text(float("nan"))
    ('1.23', '8e-04', '-')
    """
    return "-" if ratio != ratio else f"{ratio:.2f}" if 0.01 <= ratio < 1000 else f"{ratio:.0e}"


def value_text(value: float, unit: str) -> str:
    """A figure for people.

    >>> value_text(0.0091, "s"), value_text(2**34, "B"), value_text(1234.5, "1/s"), value_text(float("nan"), "s")
    ('9.10 ms', '16.00 GiB', '1234', '-')
    """
    return amount(value, unit) if unit in ("s", "B") else "-" if value != value else f"{value:.4g}"


def rows_json(scored: Sequence[Any]) -> list[dict[str, Any]]:
    """Every row for --json --rows."""
    return [
        {"id": x.request.id, "source": x.request.source, "metric": x.request.metric, "measured": x.request.measured,
         "predicted": _number(x.predicted), "low": _number(x.low), "high": _number(x.high), "skipped": x.reason,
         "apart": x.request.apart, "assumed": list(x.assumed)}
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
                                 "; ".join(x.assumed)])  # fmt: skip

    write_whole(Path(path), write)


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
