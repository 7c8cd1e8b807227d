"""Text such as "3.35 TB/s" or "80 GiB" to plain SI numbers, and back. Inside the library every number is SI.

quantiphy does the parsing of decimal prefixes; the binary ones (GiB) are handled by it as well (`binary=True`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError

Num = float | NDArray[Any]
"""A number or an array of numbers: every formula takes either."""

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30

_UNITS = {
    "bytes": ("B", "byte", "bytes"),
    "bytes/s": ("B/s", "Bps"),
    "flop/s": ("FLOP/s", "FLOPS", "FLOPs/s", "OP/s", "OPS", "flop/s"),
    "s": ("s", "sec"),
    "hz": ("Hz",),
    "w": ("W",),
    "usd/h": ("USD/h", "$/h"),
    "j": ("J",),
    "m2": ("m2", "m²"),
}


@lru_cache(maxsize=4096)
def parse(text: str, unit: str, field: str = "value") -> float:
    """Read a quantity written as text; the result is SI.

    `unit` is a key of the unit table ("bytes", "bytes/s", "flop/s", "s", "hz", "w", "usd/h"). A bare number is
    taken as SI already. Bits are refused: write bytes. Raises RooflmError naming the field, the text and the rule.

    >>> parse("3.35 TB/s", "bytes/s")
    3350000000000.0
    >>> parse("80 GiB", "bytes") == 80 * 2**30
    True
    >>> parse("500 ms", "s")
    0.5
    """
    from quantiphy import InvalidNumber, Quantity

    accepted = _UNITS[unit]
    example = {"bytes": "80 GiB", "bytes/s": "3.35 TB/s", "flop/s": "312 TFLOP/s", "s": "500 us", "hz": "1.41 GHz"}
    rule = f"write a quantity such as {example.get(unit, '1.5 k' + accepted[0])!r}"
    try:
        quantity = Quantity(text.strip().replace("µ", "u"), binary=True)
    except (InvalidNumber, ValueError) as error:
        raise RooflmError(f"{field} is {text!r}, which is not a quantity: {rule}") from error
    value = float(quantity)
    if quantity.units not in ("", *accepted):
        raise RooflmError(f"{field} is {text!r}, but its unit must be {accepted[0]}: {rule}")
    if not math.isfinite(value):
        raise RooflmError(f"{field} is {text!r}, but it must be finite: {rule}")
    return value


_PREFIX = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}
_LONG = ((365.25 * 86400, 2.0, "years"), (86400.0, 2.0, "days"), (3600.0, 1.0, "hours"), (60.0, 2.0, "minutes"))
"""Units of a time above 120 s: seconds, from how many of them it is used, name."""
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def _digits(value: float, digits: int) -> str:
    """A number with so many digits that matter, zeros kept."""
    size = float(f"{abs(value):.{digits - 1}e}")
    return f"{value:.{max(digits - 1 - math.floor(math.log10(size) + 1e-12), 0)}f}" if size else "0"


def text(value: float, unit: str, digits: int = 3) -> str:
    """A number with its unit for people: an SI prefix, and minutes to years for a long time.

    >>> text(2.039e12, "B/s"), text(0.00673, "s"), text(0.0, "s")
    ('2.04 TB/s', '6.73 ms', '0 s')
    >>> text(1250, "s"), text(4734.7, "s"), text(2.2e7, "s")
    ('21 minutes', '1.3 hours', '255 days')
    """
    value = float(value)
    if not math.isfinite(value):
        return "-" if math.isnan(value) else f"inf {unit}"
    if value == 0:
        return f"0 {unit}".strip()
    scale, name = _scale(value, unit, digits)
    return f"{_digits(value / scale, digits if scale < 60 or unit != 's' else 2)} {name}".strip()


def _scale(value: float, unit: str, digits: int = 3) -> tuple[float, str]:
    """What a number is divided by for people, and the name of the unit that this makes."""
    size = float(f"{abs(value):.{digits - 1}e}")
    if unit == "s" and size >= 120:
        return next((scale, name) for scale, least, name in _LONG if size >= least * scale)
    scale = next((s for s in _PREFIX if size >= s), 1e-9)
    return scale, f"{_PREFIX[scale]}{unit}"


def between(low: float, high: float, value: float, unit: str = "s") -> str:
    """Two ends in words, in the unit in which the value between them is said.

    >>> between(0.0112, 0.0141, 0.0124), between(0.92, 1.1, 0.98)
    ('between 11.2 and 14.1 ms', 'between 920 and 1100 ms')
    """
    scale, name = _scale(value, unit)
    low_, high_ = (_digits(end / scale, 2 if scale >= 60 and unit == "s" else 3) for end in (low, high))
    return f"between {low_} and {high_} {name}".strip()


def several(value: Num, unit: str) -> str:
    """A number with its unit, and of an array its ends.

    >>> several(3e12, "B/s"), several(np.array([1e12, 3e12]), "B/s")
    ('3.00 TB/s', '1.00 TB/s to 3.00 TB/s')
    """
    low, high = float(np.min(value)), float(np.max(value))
    return text(low, unit) if low == high else f"{text(low, unit)} to {text(high, unit)}"


def gib(value: float) -> str:
    """Bytes as GiB with two places (MiB under a hundredth of a GiB).

    >>> gib(80 * 2**30), gib(5 * 2**20)
    ('80.00 GiB', '5.0 MiB')
    """
    return f"{value / GIB:.2f} GiB" if abs(value) >= 0.01 * GIB or value == 0 else f"{value / MIB:.1f} MiB"


def percent(value: Any) -> str:
    """A share for people.

    >>> percent(0.4567)
    '45.7 %'
    """
    return f"{100 * float(value):.1f} %"


def count(value: Any) -> str:
    """A number in a table: three digits that matter, thousands apart.

    >>> count(1234.6), count(12.345), count(3.0), count(383414)
    ('1235', '12.3', '3', '383,414')
    """
    number = float(value)
    if not math.isfinite(number):
        return "-" if math.isnan(number) else "inf"
    whole = number == int(number) and abs(number) < 1e15
    if abs(number) >= 10_000 and abs(number) < 1e15:
        return f"{number:,.0f}"
    return str(int(number)) if whole else f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def said(value: Any, unit: str = "") -> str:
    """A number as a person says it in a sentence.

    >>> said(1.134e6, "USD"), said(0.5921, "USD"), said(15e12), said(8)
    ('1.13 million USD', '0.59 USD', '15 trillion', '8')
    """
    number = float(value)
    for scale, word in _WORDS:
        if scale * 0.9995 <= abs(number) < 1e15:
            return f"{float(_digits(number / scale, 3)):g} {word} {unit}".strip()
    if unit == "USD" and abs(number) < 100:
        return f"{number:.2f} {unit}"
    return f"{count(round(number) if number >= 100 else number)} {unit}".strip()


def watt_hours(joules: Any) -> str:
    """An energy as a meter shows it.

    >>> watt_hours(5.7e11), watt_hours(0.9)
    ('158 MWh', '900 mJ')
    """
    return text(float(joules) / 3600, "Wh") if float(joules) >= 3.6e5 else text(float(joules), "J")


def larger(a: Num, b: Num) -> Num:
    """The larger of two, element by element: `np.maximum`, but ten times as fast for plain numbers.

    >>> larger(1.0, 2.0), larger(np.array([1.0, 3.0]), 2.0).tolist()
    (2.0, [2.0, 3.0])
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a > b else b


def is_array(value: object) -> bool:
    """True for an array with at least one dimension."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def is_plain(value: object, number: float) -> bool:
    """True for the plain number itself, never for an array: what a choice of ops may hang on (a degree of 1, a width
    of 0). A list of such a number either falls out of the formulas or loops outside (`sweep.axes.CHOOSING`).

    >>> is_plain(1, 1), is_plain(2.0, 1), is_plain(np.array([1.0]), 1)
    (True, False, False)
    """
    return isinstance(value, int | float) and value == number


def any_of(flags: Iterable[Num]) -> NDArray[Any]:
    """True where any of these flags is.

    >>> any_of([False, np.array([True, False])]).tolist(), bool(any_of([]))
    ([True, False], False)
    """
    out: NDArray[Any] = np.zeros((), dtype=bool)
    for flag in flags:
        out = out | np.asarray(flag)
    return np.asarray(out)


def quantity_of_any_unit(text_: str, field: str) -> float:
    """A quantity whose unit may be any of the known ones ("2 TB/s", "80 GiB", "5 us"); SI.

    >>> quantity_of_any_unit("5 us", "engine.gap")
    5e-06
    """
    for unit in _UNITS:
        try:
            return parse(text_, unit, field)
        except RooflmError:
            continue
    raise RooflmError(
        f"{field} is {text_!r}, which is no quantity: write a number with a unit such as 2 TB/s, 80 GiB or 5 us"
    )
