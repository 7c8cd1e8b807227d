"""The pictures of `rooflm explore ... --plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rooflm.asked.answers.causes import CAUSES
from rooflm.errors import RooflmError
from rooflm.plots.bars import Bar, bars
from rooflm.plots.choose import MOST_BARS
from rooflm.plots.front import Cloud, front
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, unit_of
from rooflm.shown.numbers import text
from rooflm.sweep.pareto import pareto
from rooflm.technology.explore import Columns

KINDS = ("seconds", "shares")
"""What the bars of a grid show."""
UNITS = {"s": "s", "usd": "USD", "w": "W", "j": "J", "bytes": "B"}
"""What a column's name ends with -> its unit."""
LEAST = 1e-4
"""Share of a time from which a cause is drawn."""


def grid_picture(table: Columns, axes: Sequence[str], title: str, about: str, kind: str | None) -> Picture:
    """Bars of the time by cause, in seconds or as shares of it, a group for each value of the last axis that varies, or
    of the first of two."""
    count = len(table["time_s"])
    if count > MOST_BARS:
        raise RooflmError(f"--plot draws at most {MOST_BARS} points, but there are {count}")
    varied = [a for a in axes if len(set(map(str, table[a]))) > 1]
    outer, inner = (varied[-1:], varied[:-1]) if len(varied) > 1 else ([], varied)
    order = sorted(range(count), key=lambda i: list(dict.fromkeys(map(str, table[outer[0]]))).index(
        str(table[outer[0]][i])) if outer else 0)  # fmt: skip
    top = max((float(t) for t, ok in zip(table["time_s"], table["fits"], strict=True) if ok), default=1.0)
    factor, unit = unit_of(top)
    name, shares = f"{title[:1].lower()}{title[1:]}", kind == "shares"
    scale = Scale(f"share of {name} (%)", percent=True) if shares else Scale(f"{name} ({unit})")
    made = []
    for i in order:
        parts = {
            c: float(table[f"{c}_s"][i])
            for c in CAUSES
            if table["fits"][i] and table[f"{c}_s"][i] > LEAST * table["time_s"][i]
        }
        scaling = 100 / sum(parts.values()) if shares and parts else factor
        label = [axis_value(a, table[a][i]) for a in inner] + (
            [text(float(table["time_s"][i]), "s")] if shares and parts else []
        )
        group = ", ".join(axis_value(a, table[a][i]) for a in outer)
        mark = "" if table["fits"][i] else "no fit"
        made.append(Bar(", ".join(label), {c: scaling * v for c, v in parts.items()}, group, mark=mark))
    causes = dict.fromkeys(c for bar in made for c in bar.parts)
    notes = ["schedule: idle and uneven pipeline stages"] if "schedule" in causes else []
    notes += [f"all bound by {c}" for c in causes if len(causes) == 1]
    return bars(title, scale, made, about, notes=notes)


def split_picture(shares: Mapping[str, Mapping[str, float]], title: str, about: str) -> Picture:
    """What components take of the area, the power and the edge of a die."""
    names = {"area": "area", "watts": "power", "edge": "edge"}
    made = [Bar(name, {part: 100 * v for part, v in shares[key].items() if v > LEAST}) for key, name in names.items()]
    return bars(title, Scale("share of the die's own (%)", percent=True), made, about)


def front_picture(table: Columns, axes: Sequence[str], goals: Mapping[str, float], title: str, about: str) -> Picture:
    """Designs by the first two goals, and those of them that no other beats in these two."""
    first = dict(list(goals.items())[:2])
    x, y = (np.asarray(table[g], dtype=float) for g in first)
    kept = pareto(table, first)
    best = np.flatnonzero(kept)[np.argsort(x[kept], kind="stable")]
    varied = [a for a in axes if len(set(map(str, table[a]))) > 1]
    labels = tuple(", ".join(axis_value(a, table[a][i]) for a in varied) for i in best)
    sides = [Scale(column_label(g)) for g in first]
    note = [f"of those that no other beats in {', '.join(goals)}"] if len(goals) > 2 else []
    return front(title, sides[0], sides[1], [Cloud("designs", x, y, best, labels)], about, note)


def column_label(name: str) -> str:
    """A column of a report as the label of an axis.

    >>> column_label("time_s"), column_label("capital_usd"), column_label("tokens_per_j")
    ('time (s)', 'capital (USD)', 'tokens per j')
    """
    words, _, last = name.rpartition("_")
    unit = "" if words.endswith("_per") else UNITS.get(last, "")
    return (f"{words} ({unit})" if unit else name).replace("_", " ")


def products_picture(table: Columns, about: str) -> Picture:
    """The time of each product of a layer, by what bounds it."""
    factor, unit = unit_of(float(np.max(table["time_s"])))
    made = [Bar(str(product), {str(bound): factor * float(time)}, str(gpu)) for gpu, product, bound, time in
            zip(*(table[k] for k in ("gpu", "product", "bound", "time_s")), strict=True)]  # fmt: skip
    return bars("Time of each product, by its bound", Scale(f"time ({unit})"), made, about)


def dies_picture(table: Columns) -> Picture:
    """What the engine makes of each die over what the catalogue says."""
    made = [Bar(str(die), {"engine": 1 + float(error)}, str(quantity), limit=1.0) for die, quantity, error in
            zip(*(table[k] for k in ("die", "quantity", "error")), strict=True) if np.isfinite(error)]  # fmt: skip
    made.sort(key=lambda b: list(dict.fromkeys(map(str, table["quantity"]))).index(b.group))
    return bars("Known dies, rebuilt from node and size", Scale("engine over catalogue"), made,
                limit="as in the catalogue")  # fmt: skip


def axis_value(axis: str, value: Any) -> str:
    """A value of an axis: a name as it is, a number after what it is of."""
    name = axis.rsplit(".", 1)[-1].replace("_", " ")
    return str(value) if isinstance(value, str) else f"{name} {value:.4g}"
