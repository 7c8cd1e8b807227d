"""Numbers as text for people: SI prefixes, three significant digits, GiB, per cent, words for large ones.

A number with a unit is `text`, one without `count` (`value_text` where it may be an array or a word); one that a person
gave is quoted as `chosen_text`, without a unit as `plain_number`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rooflm.units import GIB, KIB, MIB, Num

_PREFIX = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}
_LONG = ((365.25 * 86400, 2.0, "years"), (86400.0, 2.0, "days"), (3600.0, 1.0, "hours"), (60.0, 2.0, "minutes"))
"""Units of a time above 120 s: seconds, from how many of them it is used, name."""
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def in_digits(value: float, digits: int) -> str:
    """A number with this many significant digits, trailing zeros kept."""
    size = float(f"{abs(value):.{digits - 1}e}")
    return f"{value:.{max(digits - 1 - math.floor(math.log10(size) + 1e-12), 0)}f}" if size else "0"


def text(value: float, unit: str, digits: int = 3) -> str:
    """A number with its unit and an SI prefix; long times in minutes to years.

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
    return f"{in_digits(value / scale, digits if scale < 60 or unit != 's' else 2)} {name}".strip()


def chosen_text(value: float, unit: str) -> str:
    """A number that a person chose, with its unit and all its digits and no others; bytes in powers of 1024, counts
    from a billion on with a suffix.

    >>> chosen_text(3.35e12, "B/s"), chosen_text(80 * 2**30, "B"), chosen_text(5e-6, "s")
    ('3.35 TB/s', '80 GiB', '5 µs')
    >>> chosen_text(0, "s"), chosen_text(1.5e13, "")
    ('0 s', '15T')
    """
    value = float(value)
    if not unit or not math.isfinite(value) or value == 0:
        large = {"T": 1e12, "B": 1e9}
        name = next((n for n, s in large.items() if value >= s and value % (s / 1000) == 0), "")
        return f"{value / large.get(name, 1.0):.15g}{name} {unit}".strip()
    binary = {GIB: "GiB", MIB: "MiB", KIB: "KiB"} if unit == "B" else {}
    found = next(((s, name) for s, name in binary.items() if abs(value) >= s), None)
    scale, name = found or next(((s, f"{p}{unit}") for s, p in _PREFIX.items() if abs(value) >= s), (1.0, unit))
    return f"{value / scale:.9g} {name}"


def _scale(value: float, unit: str, digits: int = 3) -> tuple[float, str]:
    """What a number is divided by for people, and the name of the unit that this makes."""
    size = float(f"{abs(value):.{digits - 1}e}")
    if unit == "s" and size >= 120:
        return next((scale, name) for scale, least, name in _LONG if size >= least * scale)
    scale = next((s for s in _PREFIX if size >= s), 1e-9)
    return scale, f"{_PREFIX[scale]}{unit}"


def seconds(value: Any) -> str:
    """A time (s) for people.

    >>> seconds(0.0123), seconds(7200)
    ('12.3 ms', '2.0 hours')
    """
    return text(float(value), "s")


def times(values: Sequence[float]) -> list[str]:
    """Times (s) of one row for people: all in seconds where some would be and others in minutes.

    >>> times([122.0, 117.0]), times([130.0, 190.0]), times([0.02, math.nan])
    (['122 s', '117 s'], ['2.2 minutes', '3.2 minutes'], ['20.0 ms', '-'])
    """
    known = [v for v in values if math.isfinite(v)]
    mixed = bool(known) and 1 <= min(known) < 120 <= max(known)
    return [f"{v:.0f} s" if mixed and v >= 99.95 else seconds(v) for v in values]


def days(value: Any) -> str:
    """A number of days for people, as minutes to years.

    >>> days(0.5), days(400)
    ('12 hours', '400 days')
    """
    return seconds(86400 * float(value))


def between(low: float, high: float, value: float) -> str:
    """A range of times (s) in words, in the unit that suits `value`.

    >>> between(0.0112, 0.0141, 0.0124), between(0.92, 1.1, 0.98), between(0.00738, 0.0101, 0.0082)
    ('between 11.2 and 14.1 ms', 'between 920 and 1100 ms', 'between 7.4 and 10.1 ms')
    """
    if not all(map(math.isfinite, (low, high, value))):
        return ""
    scale, name = _scale(value, "s")
    low_, high_ = (in_digits(end / scale, 2 if scale >= 60 else 3) for end in (low, high))
    if 0 < low < high < 10 * low:  # as many places on both sides
        low_ = f"{low / scale:.{len(high_.partition('.')[2])}f}"
    return f"between {low_} and {high_} {name}"


def text_range(value: Num, unit: str) -> str:
    """A number with its unit; of an array its range.

    >>> text_range(3e12, "B/s"), text_range(np.array([1e12, 3e12]), "B/s")
    ('3.00 TB/s', '1.00 TB/s to 3.00 TB/s')
    """
    low, high = float(np.min(value)), float(np.max(value))
    return text(low, unit) if low == high else f"{text(low, unit)} to {text(high, unit)}"


def gib(value: float) -> str:
    """Bytes as GiB with two places (MiB under a hundredth of a GiB, KiB under a tenth of a MiB).

    >>> gib(80 * 2**30), gib(5 * 2**20), gib(10240), gib(math.nan), gib(2**44)
    ('80.00 GiB', '5.0 MiB', '10.0 KiB', '-', '16,384.00 GiB')
    """
    if math.isnan(value):
        return "-"
    if abs(value) >= 0.01 * GIB or value == 0:
        return f"{value / GIB:{',' if abs(value) >= 1e4 * GIB else ''}.2f} GiB"
    return f"{value / MIB:.1f} MiB" if abs(value) >= 0.1 * MIB else f"{value / KIB:.1f} KiB"


def percent(value: Any) -> str:
    """A share for people.

    >>> percent(0.4567), percent(math.nan)
    ('45.7 %', '-')
    """
    return "-" if math.isnan(float(value)) else f"{100 * float(value):.1f} %"


def count(value: Any, digits: int = 3) -> str:
    """A number to read: whole numbers in full, others with so many significant digits and no decimals from 10^digits
    on; thousands apart from 10,000 on.

    >>> count(1234.6), count(999.7), count(12.345), count(3.0), count(383414), count(999.7, 4)
    ('1235', '1000', '12.3', '3', '383,414', '999.7')
    """
    number = float(value)
    if not math.isfinite(number):
        return "-" if math.isnan(number) else "inf" if number > 0 else "-inf"
    if abs(number) >= 1e15:
        return f"{number:.{digits}g}"
    if number == int(number) or abs(number) >= 10**digits - 0.5:
        return f"{number:{',' if abs(number) >= 10_000 else ''}.0f}"
    return f"{number:.{digits}g}"


def value_text(value: Any) -> str:
    """Any value to read: a number as `count` with four digits, an array as its range, the rest as it is.

    >>> value_text(0.123456), value_text(np.array([1.0, 2.0])), value_text("fits"), value_text(16384)
    ('0.1235', '1 to 2', 'fits', '16,384')
    """
    flat = np.asarray(np.nan if value is None else value)
    if flat.dtype.kind not in "fiu" or not flat.size:
        return str(value)
    low, high = (count(end(flat), 4) for end in (np.min, np.max))
    return low if low == high else f"{low} to {high}"


def plain_number(value: Any) -> str:
    """A number as one would type it, without separators: what messages quote.

    >>> plain_number(2.0), plain_number(-2e-6), plain_number(float("inf"))
    ('2', '-2e-06', 'inf')
    """
    number = float(value)
    return str(int(number)) if math.isfinite(number) and number == int(number) else f"{number:g}"


def plural(value: Any, what: str) -> str:
    """A count with its noun.

    >>> plural(1, "request"), plural(20000, "token")
    ('1 request', '20,000 tokens')
    """
    return f"{count(value)} {what}{'s' * (float(value) != 1)}"


def spoken(value: Any, unit: str = "") -> str:
    """A number as it would be written in a sentence.

    >>> spoken(1.134e6, "USD"), spoken(0.5921, "USD"), spoken(0.0028, "USD"), spoken(15e12), spoken(8)
    ('1.13 million USD', '0.59 USD', '0.0028 USD', '15 trillion', '8')
    """
    number = float(value)
    for scale, word in _WORDS:
        if scale * 0.9995 <= abs(number) < 1e15:
            return f"{float(in_digits(number / scale, 3)):g} {word} {unit}".strip()
    if unit == "USD" and (0.01 <= abs(number) < 100 or not number):
        return f"{number:.2f} {unit}"
    return f"{count(round(number) if number >= 100 else number)} {unit}".strip()


def watt_hours(joules: Any) -> str:
    """An energy in Wh; below 1 Wh in joules.

    >>> watt_hours(5.7e11), watt_hours(0.9)
    ('158 MWh', '900 mJ')
    """
    return text(float(joules) / 3600, "Wh") if float(joules) >= 3.6e3 else text(float(joules), "J")
