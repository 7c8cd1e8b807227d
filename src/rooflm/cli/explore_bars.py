"""The bars of `rooflm explore grid --plot`: the time of each design by cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rooflm.errors import RooflmError
from rooflm.shown.numbers import text
from rooflm.technology.explore import CAUSES, Columns

KINDS = ("seconds", "shares")
"""What the bars of a grid show."""
LEAST = 1e-4
"""Share of a time from which a cause is drawn."""


def draw_bars(table: Columns, axes: Sequence[str], title: str, about: str, path: str, kind: str | None) -> None:
    """Bars of the time by cause, in seconds or as shares of it, a group for each value of the last axis that varies, or
    of the first of two."""
    from rooflm.plots.bars import Bar, bars
    from rooflm.plots.choose import MOST_BARS
    from rooflm.plots.scale import Scale

    count = len(table["time_s"])
    if count > MOST_BARS:
        raise RooflmError(f"--plot draws at most {MOST_BARS} points, but there are {count}")
    varied = [a for a in axes if len(set(map(str, table[a]))) > 1]
    outer, inner = (varied[-1:], varied[:-1]) if len(varied) > 1 else ([], varied)
    order = sorted(range(count), key=lambda i: list(dict.fromkeys(map(str, table[outer[0]]))).index(
        str(table[outer[0]][i])) if outer else 0)  # fmt: skip
    top = max((float(t) for t, ok in zip(table["time_s"], table["fits"], strict=True) if ok), default=1.0)
    factor, unit = (1.0, "s") if top >= 2 else ((1e3, "ms") if top >= 2e-3 else (1e6, "µs"))
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
    bars(title, scale, made, about, notes=notes).save(path)


def axis_value(axis: str, value: Any) -> str:
    """A value of an axis: a name as it is, a number after what it is of."""
    name = axis.rsplit(".", 1)[-1].replace("_", " ")
    return str(value) if isinstance(value, str) else f"{name} {value:.4g}"
