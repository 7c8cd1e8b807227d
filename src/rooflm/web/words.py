"""Numbers as people say them, and parts as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rooflm.asked.answers.said import LIKELY
from rooflm.shown.blocks import Fact, Parts, amount
from rooflm.shown.numbers import between, seconds, spoken
from rooflm.shown.palette import colours

LEAST = 0.004
"""Share of the whole below which a part is counted as other."""


def dollars(value: Any) -> str:
    """An amount of money."""
    return spoken(value, "USD")


def band(value: Any, found: Mapping[str, Any]) -> str:
    """An error band in words; where nothing was measured, that."""
    if not found["rows"]:
        return "nothing like it was measured: no error band"
    ends = between(float(found["low"]), float(found["high"]), float(value))
    return f"{ends} {LIKELY} ({found['rows']:.0f} measured)"


class Drawn(NamedTuple):
    """A whole in parts as the page draws it. parts: name, amount in words, share of the bar in per cent, colour; limit:
    per cent of the bar at which its capacity stands (None: it has none); left: what that leaves, or lacks, in words."""

    total: str
    parts: Sequence[tuple[str, str, float, str]]
    limit: float | None = None
    capacity: str = ""
    left: str = ""
    over: bool = False


def bar(p: Parts) -> Drawn:
    """A whole in parts, in the order and the colours of all pictures, small ones as other.

    >>> bar(Parts("", {"a": 3.0, "b": 1.0})).total, bar(Parts("", {"a": 3.0}, capacity=2.0)).left
    ('4.00 s', '1.00 s too much')
    """
    numbers = {k: float(v) for k, v in p.parts.items() if float(v) > 0}
    total = sum(numbers.values())
    scale = (total if p.capacity is None else 1.02 * max(total, float(p.capacity))) or 1.0
    kept = {k: v for k, v in numbers.items() if v >= LEAST * total}
    rest = total - sum(kept.values())
    if rest > 1e-9 * total:
        kept["other"] = rest
    parts = [(k.replace("_", " "), amount(kept[k], p.unit), 100 * kept[k] / scale, hue)
             for k, hue in colours(kept).items()]  # fmt: skip
    if p.capacity is None:
        return Drawn(amount(total, p.unit), parts)
    room = float(p.capacity)
    left = f"{amount(abs(room - total), p.unit)} {'free' if room >= total else 'too much'}"
    return Drawn(amount(total, p.unit), parts, 100 * room / scale, f"{amount(room, p.unit)} usable", left, room < total)


def banded(name: str, value: Any, found: Mapping[str, Any], note: str = "") -> Fact:
    """A time with its error band in words."""
    return Fact(name, seconds(value), f"{note}; {band(value, found)}" if note else band(value, found))
