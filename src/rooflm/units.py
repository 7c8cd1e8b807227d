"""Text such as "3.35 TB/s" or "80 GiB" to plain SI numbers; and what formulas do to a number or an array of them alike.

Inside the library every number is SI.

quantiphy does the parsing of decimal prefixes; the binary ones (GiB) are handled by it as well (`binary=True`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError

Num = float | NDArray[Any]
"""A number or an array of numbers: every formula takes either."""

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30

UNITS = {
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
WRITTEN = {dimension: names[0] for dimension, names in UNITS.items()}
"""Dimension -> its unit as people write it."""


TIMES = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hours": 3600.0,
    "d": 86400.0, "days": 86400.0, "weeks": 604800.0,
}  # fmt: skip
"""Units of time and their seconds: m is a minute."""
_SAME = {
    "s": {k: (k, v) for k, v in TIMES.items()},
    "bytes/s": dict.fromkeys(("b/s", "bit/s", "bits/s", "bps"), ("B/s", 1 / 8)),
    "j": {"Wh": ("J", 3600.0)},
}
"""Dimension -> other unit of it -> the unit that stands for it and how many of them it is, whatever its prefix."""
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(.*)", re.IGNORECASE)


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

    accepted = UNITS[unit]
    example = {"bytes": "80 GiB", "bytes/s": "3.35 TB/s", "flop/s": "312 TFLOP/s", "s": "500 us", "hz": "1.41 GHz"}
    rule = f"write a quantity such as {example.get(unit, '1.5 k' + accepted[0])!r}"
    plain = text.strip().replace("µ", "u")
    time = NUMBER.fullmatch(plain) if unit == "s" else None
    times = 1.0
    if time is not None and TIMES.get(time[2], 0) >= 60:
        plain, times = time[1], TIMES[time[2]]
    elif unit != "s":
        plain, times = standing(plain, unit)
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


def standing(text: str, unit: str) -> tuple[str, float]:
    """A text with the unit that stands for its own, and how many of them that is.

    >>> standing("2.5 Gb/s", "bytes/s"), standing("$1,000", "usd")
    (('2.5 GB/s', 0.125), ('1000', 1.0))
    """
    if unit.startswith("usd"):
        return text.replace("$", "").replace(",", ""), 1.0
    for own, (other, times) in _SAME.get(unit, {}).items():
        if text.endswith(own):
            return text.removesuffix(own) + other, times
    return text, 1.0


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


LARGEST_POWER = 709.0
"""Largest x of which e^x is a double."""


def expm1(value: Num) -> Num:
    """e^x - 1: `np.expm1`, but several times as fast for plain numbers; infinity where it passes all numbers.

    >>> expm1(0.0), expm1(np.zeros(1)).tolist()
    (0.0, [0.0])
    """
    if isinstance(value, np.ndarray):
        return np.expm1(value)
    return math.expm1(value) if value < LARGEST_POWER else math.inf


def log1p(value: Num) -> Num:
    """ln(1 + x): `np.log1p`, but several times as fast for plain numbers (above -1).

    >>> log1p(0.0), log1p(np.zeros(1)).tolist()
    (0.0, [0.0])
    """
    return np.log1p(value) if isinstance(value, np.ndarray) else math.log1p(value)


def log2(value: Num) -> Num:
    """The logarithm to base 2: `np.log2`, but several times as fast for plain numbers (above 0).

    >>> log2(8.0), log2(np.ones(1)).tolist()
    (3.0, [0.0])
    """
    return np.log2(value) if isinstance(value, np.ndarray) else math.log2(value)


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


HANDFUL = 4


def each(function: Callable[[Num], Num], value: Num) -> Num:
    """A function of plain numbers else, of a number or an array; of a handful of numbers one after the other, which is
    quicker than as an array.

    >>> each(lambda x: 2 * x, np.ones(2)).tolist(), each(lambda x: 2 * x, 1.0)
    ([2.0, 2.0], 2.0)
    """
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.size <= HANDFUL:
        return np.array([function(x) for x in value.tolist()])
    return function(value)


def common_shape(values: Iterable[Num]) -> tuple[int, ...]:
    """The shape to which the arrays among these broadcast: () of plain numbers.

    >>> common_shape([1.0, np.ones((2, 1)), np.ones(3)]), common_shape([1.0])
    ((2, 3), ())
    """
    shapes = {value.shape for value in values if isinstance(value, np.ndarray)}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


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
