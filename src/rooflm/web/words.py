"""Numbers as people say them, and parts as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflm.shown.palette import colours
from rooflm.units import between, gib, said, text
from rooflm.web.blocks import Bar, Fact, Part

LEAST = 0.004
"""Share of the whole below which a part is counted as other."""


def seconds(value: Any) -> str:
    """A time."""
    return text(float(value), "s")


def dollars(value: Any) -> str:
    """An amount of money."""
    return said(value, "USD")


def days(value: Any) -> str:
    """A number of days as people say it: minutes, hours, days or years."""
    return text(86400 * float(value), "s")


def band(value: Any, found: Mapping[str, Any]) -> str:
    """An error band in words; where nothing was measured, that."""
    if not found["rows"]:
        return "nothing like it was measured: no error band"
    ends = between(float(found["low"]), float(found["high"]), float(value))
    return f"{ends} in four of five like cases ({found['rows']} measured)"


def parts(amounts: Mapping[str, Any], write: Any, scale: float | None = None) -> list[Part]:
    """Parts of a whole in the order and the colours of all pictures, small ones as other. scale: amount of a whole
    bar."""
    numbers = {k: float(v) for k, v in amounts.items() if float(v) > 0}
    total = sum(numbers.values()) or 1.0
    shown = {k: v for k, v in numbers.items() if v >= LEAST * total}
    rest = total - sum(shown.values())
    if rest > 1e-9 * total:
        shown["other"] = rest
    return [
        Part(k.replace("_", " "), write(shown[k]), 100 * shown[k] / (scale or total), hue)
        for k, hue in colours(shown).items()
    ]


def time_bar(title: str, amounts: Mapping[str, Any], total: Any) -> Bar:
    """Where a time goes."""
    return Bar(title, seconds(total), parts(amounts, seconds))


def memory_bar(title: str, memory: Any) -> Bar:
    """Memory of the fullest card against what may be used of it."""
    total, capacity = float(memory.total), float(memory.capacity)
    scale = max(total, capacity) * 1.02
    left = capacity - total
    note = f"{gib(left)} free" if left >= 0 else f"{gib(-left)} too much"
    return Bar(title, gib(total), parts(memory.parts, gib, scale), 100 * capacity / scale, f"{gib(capacity)} usable",
               note)  # fmt: skip


def banded(name: str, value: Any, found: Mapping[str, Any], note: str = "") -> Fact:
    """A time with its error band in words."""
    return Fact(name, seconds(value), f"{note}; {band(value, found)}" if note else band(value, found))
