"""Text such as "3.35 TB/s" or "80 GiB" to plain SI numbers, and back. Inside the library every number is SI.

quantiphy does the parsing of decimal prefixes; the binary ones (GiB) are handled by it as well (`binary=True`).
"""

from __future__ import annotations

import math
import re
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
    "usd": ("USD", "$"),
    "m2": ("m2", "m²"),
}
WRITTEN = {dimension: names[0] for dimension, names in _UNITS.items()}
"""Dimension -> its unit as people write it."""
READ = ("", "s", "B", "B/s", "W", "tokens")
"""Units that `amount` knows of the fields of a scenario."""


_TIMES = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hours": 3600.0,
    "d": 86400.0, "days": 86400.0, "weeks": 604800.0,
}  # fmt: skip
"""Units of time and their seconds: m is a minute."""
_SAME = {
    "s": {k: (k, v) for k, v in _TIMES.items()},
    "bytes/s": dict.fromkeys(("b/s", "bit/s", "bits/s", "bps"), ("B/s", 1 / 8)),
    "j": {"Wh": ("J", 3600.0)},
}
"""Dimension -> other unit of it -> the unit that stands for it and how many of them it is, whatever its prefix."""
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(.*)", re.IGNORECASE)
_LARGE = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


@lru_cache(maxsize=4096)
def parse(text: str, unit: str, field: str = "value") -> float:
    """Read a quantity written as text; the result is SI.

    `unit` is a key of the unit table ("bytes", "bytes/s", "flop/s", "s", "hz", "w", "usd/h"). A bare number is
    taken as SI already. Bits a second are an eighth of bytes; m is a minute, h an hour, d a day of seconds. Raises
    RooflmError naming the field, the text and the rule.

    >>> parse("3.35 TB/s", "bytes/s"), parse("400 Gb/s", "bytes/s")
    (3350000000000.0, 50000000000.0)
    >>> parse("80 GiB", "bytes") == 80 * 2**30
    True
    >>> parse("500 ms", "s"), parse("30m", "s"), parse("20000 h", "s"), parse("20 GWh", "j")
    (0.5, 1800.0, 72000000.0, 72000000000000.0)
    """
    from quantiphy import InvalidNumber, Quantity

    accepted = _UNITS[unit]
    example = {"bytes": "80 GiB", "bytes/s": "3.35 TB/s", "flop/s": "312 TFLOP/s", "s": "500 us", "hz": "1.41 GHz"}
    rule = f"write a quantity such as {example.get(unit, '1.5 k' + accepted[0])!r}"
    plain = text.strip().replace("µ", "u")
    time = _NUMBER.fullmatch(plain) if unit == "s" else None
    times = 1.0
    if time is not None and _TIMES.get(time[2], 0) >= 60:
        plain, times = time[1], _TIMES[time[2]]
    elif unit != "s":
        plain, times = _standing(plain, unit)
    try:
        quantity = Quantity(plain, binary=True)
    except (InvalidNumber, ValueError) as error:
        raise RooflmError(f"{field} is {text!r}, which is not a quantity: {rule}") from error
    value = float(quantity) * times
    if quantity.units not in ("", *accepted):
        raise RooflmError(f"{field} is {text!r}, but its unit must be {accepted[0]}: {rule}")
    if not math.isfinite(value):
        raise RooflmError(f"{field} is {text!r}, but it must be finite: {rule}")
    return value


def _standing(text: str, unit: str) -> tuple[str, float]:
    """A text with the unit that stands for its own, and how many of them that is.

    >>> _standing("2.5 Gb/s", "bytes/s"), _standing("$1,000", "usd")
    (('2.5 GB/s', 0.125), ('1000', 1.0))
    """
    if unit.startswith("usd"):
        return text.replace("$", "").replace(",", ""), 1.0
    for own, (other, times) in _SAME.get(unit, {}).items():
        if text.endswith(own):
            return text.removesuffix(own) + other, times
    return text, 1.0


def amount(text: str, unit: str = "", field: str = "value") -> int | float:
    """A number as a person writes it, in the unit of its argument: a count may end in k, M, B or T (powers of ten), a
    length in tokens in k or M (powers of 1024, as contexts are named), a rate in /s, /min or /h, a share in %; days,
    hours and every unit of `parse` alike. A whole number stays one.

    >>> amount("8k", "tokens"), amount("128K", "tokens"), amount("1M", "tokens"), amount("300B"), amount("1e12")
    (8192, 131072, 1048576, 300000000000, 1000000000000.0)
    >>> amount("2.5", "d"), amount("3 weeks", "d"), amount("120/min", "1/s"), amount("10%"), amount("20 GWh", "J")
    (2.5, 21.0, 2.0, 0.1, 72000000000000.0)
    >>> amount("1.5 kUSD", "USD"), amount("$2.5", "USD"), amount("1.4M USD", "USD")
    (1500, 2.5, 1400000)
    """
    plain = text.strip().replace("_", "")
    if unit == "USD":
        plain = _standing(plain, "usd")[0].removesuffix("USD").strip()
    try:
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    except ValueError:
        pass
    match = _NUMBER.fullmatch(plain)
    known = {"s": "s", "J": "j", "USD": "usd", "B/s": "bytes/s", "B": "bytes", "W": "w"}.get(unit)
    if known:
        return parse(plain, known, field) if unit != "USD" or not match else _scaled(plain, match, field, unit)
    if match is None:
        raise RooflmError(
            f"{field} is {text!r}, but it must be a number{_EXAMPLES.get(unit, ' such as 64, 8k or 1.5M')}"
        )
    ending = match[2].strip()
    if unit in ("d", "h") and ending in _TIMES and not (unit == "h" and ending == "m"):
        return float(match[1]) * _TIMES[ending] / _TIMES[unit]
    if unit == "1/s" and ending.startswith("/") and ending[1:] in _TIMES:
        return float(match[1]) / _TIMES[ending[1:]]
    if ending == "%":
        return float(match[1]) / 100
    return _scaled(plain, match, field, unit)


_EXAMPLES = {
    "tokens": " of tokens such as 512, 8k or 128K",
    "1/s": " such as 2.5 or 120/min",
    "s": " such as 500ms",
    "USD": " such as 1500 or 1.5 kUSD",
}


def _scaled(text: str, match: re.Match[str], field: str, unit: str = "") -> int | float:
    """A number that ends in k, M, B or T."""
    ending = match[2].strip().lower().removesuffix("tokens").strip()
    scale = {"k": 2.0**10, "m": 2.0**20}.get(ending) if unit == "tokens" else None
    scale = scale or _LARGE.get(ending) or (1.0 if not ending else None)
    if scale is None:
        example = _EXAMPLES.get(unit, " such as 64, 8k or 1.5M")
        raise RooflmError(f"{field} is {text!r}, but it must be a number{example}")
    value = float(match[1]) * scale
    return int(value) if value.is_integer() else value


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


def exactly(value: float, unit: str) -> str:
    """A number that somebody chose, with its unit and no digit that was not chosen; bytes in powers of 1024.

    >>> exactly(3.35e12, "B/s"), exactly(80 * 2**30, "B"), exactly(5e-6, "s"), exactly(0, "s"), exactly(0.25, "")
    ('3.35 TB/s', '80 GiB', '5 µs', '0 s', '0.25')
    """
    value = float(value)
    if not unit or not math.isfinite(value) or value == 0:
        return f"{value:.15g} {unit}".strip()
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


def between(low: float, high: float, value: float, unit: str = "s") -> str:
    """Two ends in words, in the unit in which the value between them is said.

    >>> between(0.0112, 0.0141, 0.0124), between(0.92, 1.1, 0.98)
    ('between 11.2 and 14.1 ms', 'between 920 and 1100 ms')
    """
    if not all(map(math.isfinite, (low, high, value))):
        return ""
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
    """Bytes as GiB with two places (MiB under a hundredth of a GiB, KiB under a tenth of a MiB).

    >>> gib(80 * 2**30), gib(5 * 2**20), gib(10240), gib(math.nan)
    ('80.00 GiB', '5.0 MiB', '10.0 KiB', '-')
    """
    if math.isnan(value):
        return "-"
    if abs(value) >= 0.01 * GIB or value == 0:
        return f"{value / GIB:.2f} GiB"
    return f"{value / MIB:.1f} MiB" if abs(value) >= 0.1 * MIB else f"{value / KIB:.1f} KiB"


def percent(value: Any) -> str:
    """A share for people.

    >>> percent(0.4567), percent(math.nan)
    ('45.7 %', '-')
    """
    return "-" if math.isnan(float(value)) else f"{100 * float(value):.1f} %"


def count(value: Any) -> str:
    """A number in a table: three digits that matter, thousands apart.

    >>> count(1234.6), count(999.7), count(12.345), count(3.0), count(383414)
    ('1235', '1000', '12.3', '3', '383,414')
    """
    number = float(value)
    if not math.isfinite(number):
        return "-" if math.isnan(number) else "inf"
    whole = number == int(number) and abs(number) < 1e15
    if abs(number) >= 10_000 and abs(number) < 1e15:
        return f"{number:,.0f}"
    return str(int(number)) if whole else f"{number:.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


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


def smaller(a: Num, b: Num) -> Num:
    """The smaller of two, element by element: `np.minimum`, but ten times as fast for plain numbers.

    >>> smaller(1.0, 2.0), smaller(np.array([1.0, 3.0]), 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a < b else b


def pick(flag: Any, here: Num, there: Num) -> Num:
    """`np.where` of numbers; for a plain flag the one number itself.

    >>> pick(True, 1.0, 2.0), pick(np.array([True, False]), 1.0, 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(flag, np.ndarray):
        return np.where(flag, here, there)
    return here if flag else there


def ceil(value: Num) -> Num:
    """The next whole number upwards: `np.ceil`, but several times as fast for plain numbers.

    >>> ceil(1.5), ceil(2), ceil(math.inf), ceil(np.array([0.5])).tolist()
    (2.0, 2.0, inf, [1.0])
    """
    if isinstance(value, np.ndarray):
        return np.ceil(value)
    return float(math.ceil(value)) if math.isfinite(value) else value


def floor(value: Num) -> Num:
    """The next whole number downwards: `np.floor`, but several times as fast for plain numbers.

    >>> floor(1.5), floor(math.inf), floor(np.array([0.5])).tolist()
    (1.0, inf, [0.0])
    """
    if isinstance(value, np.ndarray):
        return np.floor(value)
    return float(math.floor(value)) if math.isfinite(value) else value


def expm1(value: Num) -> Num:
    """e^x - 1: `np.expm1`, but several times as fast for plain numbers (below 700).

    >>> expm1(0.0), expm1(np.zeros(1)).tolist()
    (0.0, [0.0])
    """
    return np.expm1(value) if isinstance(value, np.ndarray) else math.expm1(value)


def log1p(value: Num) -> Num:
    """ln(1 + x): `np.log1p`, but several times as fast for plain numbers (above -1).

    >>> log1p(0.0), log1p(np.zeros(1)).tolist()
    (0.0, [0.0])
    """
    return np.log1p(value) if isinstance(value, np.ndarray) else math.log1p(value)


def sqrt(value: Num) -> Num:
    """The square root: `np.sqrt`, but several times as fast for plain numbers.

    >>> sqrt(4.0), sqrt(np.array([4.0])).tolist()
    (2.0, [2.0])
    """
    return np.sqrt(value) if isinstance(value, np.ndarray) else math.sqrt(value)


REAL = (int, float)
"""Kinds of a plain number (NumPy's own floats among them)."""


def highest(value: Num) -> Any:
    """The largest of an array, a plain number as it is: what chooses a kernel where it is one for all points.

    >>> highest(2.0), float(highest(np.array([1.0, 3.0])))
    (2.0, 3.0)
    """
    return np.max(value) if isinstance(value, np.ndarray) else value


def is_array(value: object) -> bool:
    """True for an array with at least one dimension."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def is_plain(value: object, number: float) -> bool:
    """True for the plain number itself, never for an array: what a choice of ops may hang on (a degree of 1, a width
    of 0). A list of such a number either falls out of the formulas or loops outside (`sweep.axes.CHOOSING`).

    >>> is_plain(1, 1), is_plain(2.0, 1), is_plain(np.array([1.0]), 1)
    (True, False, False)
    """
    return isinstance(value, REAL) and value == number


def any_of(flags: Iterable[Num]) -> Any:
    """True where any of these flags is: a plain flag of plain ones, else an array.

    >>> any_of([False, np.array([True, False])]).tolist(), any_of([])
    ([True, False], False)
    """
    out: Any = False
    for flag in flags:
        out = out | flag
    return out


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
