"""The report of `rooflm validate` for people: errors by group, skipped rows, verdicts on memory, the worst rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rooflm.cli.error_text import percent, ratio_text, signed
from rooflm.shown.blocks import BLANK, Block, Say, Table, amount, listed
from rooflm.shown.numbers import plural

WORST = 12
"""Worst rows printed."""
MOST = 24
"""Most lines of one table in the text (all of them in the JSON)."""


def by_source_name(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Group figures under the readable names of their sources."""
    from rooflm.validation.table import source_names

    names = source_names()
    return {names.get(source, source): found for source, found in groups.items()}


def table(title: str, groups: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Error figures by group, the largest groups first."""
    ranked = sorted(groups.items(), key=lambda kv: (-int(kv[1]["rows"]), kv[0]))
    rows: list[Sequence[str]] = [(title, "rows", "mean", "median", "p90", "bias", "in band")]
    for name, g in ranked[:MOST]:
        errors = [percent(g[k]) for k in ("mape", "median_ape", "p90_ape")]
        rows.append((name, str(g["rows"]), *errors, signed(g["bias"]), percent(g["coverage"])))
    made: list[Block] = [Table(rows, "wrrrrrr", head=True)]
    return [*made, *([Say(f"  ... and {len(ranked) - MOST} more (see --json)")] if len(ranked) > MOST else [])]


def by_groups(result: Mapping[str, Any], names: Iterable[str]) -> list[Block]:
    """Error figures by each of these columns."""
    tables = (
        table(f"by {name}", by_source_name(result[f"by_{name}"]) if name == "source" else result[f"by_{name}"])
        for name in dict.fromkeys(names)
    )
    return [block for one in tables for block in (BLANK, *one)]


NONE = "No row counts: what stands in for unstated conditions, and what sets rows apart, is below."


def report(
    result: Mapping[str, Any], outcomes: Sequence[Any], scored: Sequence[Any], groups: Sequence[str], rows: bool,
    shipped: bool = False,
) -> list[Block]:  # fmt: skip
    """The report for people. shipped: of the project's own tables."""
    from rooflm.validation.score import LABELS, remarks

    head = f"{plural(result['rows'], 'row')}, {result['scored']:,} scored, {result['counted']:,} counted"
    out: list[Block] = [Say(f"{head}; errors of predicted over measured in per cent"), *units(scored), BLANK]
    whole = {"all": result["all"]} if result["counted"] == result["scored"] else {"scored": result["all_scored"]}
    if result["counted"] < result["scored"]:
        whole |= {"counted": result["all"]} if result["counted"] else {}
    out += [] if result["counted"] else [Say(NONE if result["scored"] else "No row can be predicted.")]
    out += [*([] if result["counted"] else [BLANK]), *table("all", whole)] if result["scored"] else []
    out += by_groups(result, groups or (b for b in LABELS if len(result[f"by_{b}"]) > 1)) if result["counted"] else []
    if result["under_load"] and (shipped or len(result["by_engine"]) > 1):
        out += [BLANK, *table("under load", result["under_load"])]
    for title, key in (("something stands in", "assumed"), ("set apart", "apart")):
        if result[key]:
            out += [BLANK, *table(f"not counted: {title}", result[key])]
    out += skipped_blocks(outcomes, scored)
    out += verdict_blocks(result["verdicts"])
    every = [(x, x.reason or remarks(x)) for x in scored] if rows else []
    return [*out, *(detailed_rows("Rows", every) if rows else worst_blocks(scored))]


def units(scored: Sequence[Any]) -> list[Block]:
    """A warning if values without a unit look as if they were in another unit than their metric's."""
    from rooflm.validation.score import other_unit, predicted

    counts = Counter(filter(None, (other_unit(x) for x in predicted(scored))))
    sentence = " and ".join(f"{plural(n, 'value')} without a unit would fit in {unit}" for unit, n in counts.items())
    return [Say(f"{sentence}: give a column unit.", "bad")] if counts else []


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
        rows.append((str(count), f"{reason} ({', '.join([*names[:FEW], *more])})"))
    return [BLANK, Table(rows, "rw", "Skipped")] if rows else []


FEW = 4
"""Skipped rows of a reason that are named."""


def verdict_blocks(v: Mapping[str, Any]) -> list[Block]:
    """Verdicts on memory: how many were right, and which were not."""
    wrong, near = v["wrong"], v["borderline"]
    total = v["right"] + len(wrong) + len(near)
    if not total:
        return []
    right = f"{v['right']} of {total} right, {len(near)} within 5 % of the capacity"
    out: list[Block] = [BLANK, Say(f"Verdicts on memory: {right}")]
    for label, items in (("wrong", wrong), ("borderline", near)):
        rows = [f"{i} ({100 * float(m):+.1f} %)" for i, m in items.items()]
        more = [f"{len(rows) - MOST_NAMED} more (see --json)"] if len(rows) > MOST_NAMED else []
        out += listed(f"  {label}", [*rows[:MOST_NAMED], *more])
    return out


MOST_NAMED = 30
"""Rows of a verdict that are named."""


def worst_blocks(scored: Sequence[Any]) -> list[Block]:
    """The rows that are furthest off, with what sets them apart."""
    from rooflm.validation.score import predicted, remarks

    usable = predicted(scored)
    usable = [x for x in usable if not x.request.apart] or usable
    worst = sorted(usable, key=lambda x: -abs(math.log(x.ratio)))[:WORST]
    return detailed_rows("Worst rows (predicted over measured)", [(x, remarks(x)) for x in worst])


def detailed_rows(title: str, rows: Sequence[tuple[Any, str]]) -> list[Block]:
    """Rows in detail: predicted over measured, both values, and remarks."""
    from rooflm.validation.columns import METRICS

    lines: list[Sequence[str]] = [("ratio", "measured", "predicted", "row")]
    for x, remark in rows:
        r = x.request
        unit = METRICS[r.metric].unit
        values = (ratio_text(x.ratio), figure_text(r.measured, unit), figure_text(x.predicted, unit))
        lines.append((*values, f"{r.id}  {r.group[0]} on {r.group[1]}, {r.engine}, {r.metric}"))
        lines += [("", "", "", remark)] if remark else []
    return [BLANK, Table(lines, "rrrw", title, head=True)] if rows else []


def figure_text(value: float, unit: str) -> str:
    """A figure for people.

    >>> figure_text(0.0091, "s"), figure_text(2**34, "B"), figure_text(1234.5, "1/s"), figure_text(float("nan"), "s")
    ('9.10 ms', '16.00 GiB', '1234', '-')
    """
    return amount(value, unit) if unit in ("s", "B") else "-" if value != value else f"{value:.4g}"
