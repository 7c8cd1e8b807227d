"""Text such as "3.35 TB/s" or "80 GiB" to plain SI numbers.

quantiphy reads what is not written as simply as in catalogues, with decimal prefixes and binary ones (GiB).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from rooflm.errors import RooflmError

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
SIMPLE = re.compile(r"([+-]?\d{1,15}(?:\.\d{1,15})?) ?([KMGT]i|[kMGTPmun])?([A-Za-z/]+2?)", re.ASCII)
"""A quantity as tables write it, which is read without the time that quantiphy takes to start."""
TENS = {"n": "e-9", "u": "e-6", "m": "e-3", "": "", "k": "e3", "M": "e6", "G": "e9", "T": "e12", "P": "e15"}
TWOS = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
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
    accepted = UNITS[unit]
    example = {"bytes": "80 GiB", "bytes/s": "3.35 TB/s", "flop/s": "312 TFLOP/s", "s": "500 ms", "hz": "1.41 GHz"}
    usual = f"1.5 {'' if 'USD' in accepted[0] else 'k'}{accepted[0]}"
    rule = f"write a quantity such as {example.get(unit, usual)!r}"
    plain = text.strip().replace("µ", "u")
    time = NUMBER.fullmatch(plain) if unit == "s" else None
    times = 1.0
    if time is not None and TIMES.get(time[2], 0) >= 60:
        plain, times = time[1], TIMES[time[2]]
    elif unit != "s":
        plain, times = standing(plain, unit)
    simple = SIMPLE.fullmatch(plain)
    if simple and simple[3] in accepted:
        prefix = simple[2] or ""
        return float(simple[1] + TENS.get(prefix, "")) * TWOS.get(prefix, 1.0) * times
    from quantiphy import InvalidNumber, Quantity

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
    """A text with our unit in place of the one written, and the factor between them.

    >>> standing("2.5 Gb/s", "bytes/s"), standing("$1,000", "usd")
    (('2.5 GB/s', 0.125), ('1000', 1.0))
    """
    if unit.startswith("usd"):
        return text.replace("$", "").replace(",", ""), 1.0
    for own, (other, times) in _SAME.get(unit, {}).items():
        if text.endswith(own):
            return text.removesuffix(own) + other, times
    return text, 1.0
