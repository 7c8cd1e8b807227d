"""Text of options to values: numbers, quantities, names, comma lists and ranges, and PATH=VALUE."""

from __future__ import annotations

import math
import re
from typing import Any

from rooflm.errors import RooflmError

_SIZE = r"([\d.]+(?:e[+-]?\d+)?)"
_RANGE = re.compile(rf"{_SIZE}\.\.{_SIZE}(?:([*+])([\d.]+))?")
MOST = 100_000
"""Most values that one range may have."""


def _number(text: str) -> int | float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and text.strip().lstrip("+-").isdigit() else value


def expand_range(text: str, field: str) -> list[int | float]:
    """`1..8` (steps of one), `16..128+16` (steps of 16), `1..512*2` (times two), both ends included.

    >>> expand_range("1..8*2", "batch"), expand_range("1..4", "tp"), expand_range("16..64+16", "prompt")
    ([1, 2, 4, 8], [1, 2, 3, 4], [16, 32, 48, 64])
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise RooflmError(f"{field} is {text!r}, but a range is written like 1..8, 16..128+16 or 1..512*2")
    first, last = _number(match[1]), _number(match[2])
    stride = _number(match[4]) if match[4] else 1
    times = match[3] == "*"
    if (
        first is None
        or last is None
        or stride is None
        or last < first
        or stride <= 0
        or (times and (stride <= 1 or first <= 0))
    ):
        raise RooflmError(f"{field} is {text!r}, but a range must go upwards, such as 1..512*2")
    values: list[int | float] = []
    value: int | float = first
    while value <= last * (1 + 1e-12):
        values.append(value)
        value = value * stride if times else value + stride
        if len(values) > MOST:
            raise RooflmError(f"{field} is {text!r}, but a range may have at most {MOST} values")
    return values


def numbers(text: str | None, field: str) -> Any:
    """A number, or a list of them for a comma list or a range; None stays None."""
    if text is None:
        return None
    values: list[int | float] = []
    for piece in text.split(","):
        piece = piece.strip()
        if ".." in piece:
            values += expand_range(piece, field)
            continue
        value = _number(piece)
        if value is None:
            raise RooflmError(
                f"{field} is {text!r}, but it must be a number, a list such as 1,8,64 or a range such as 1..512*2"
            )
        values.append(value)
    return values if len(values) > 1 else values[0]


_AMOUNT = re.compile(r"([\d.]+)\s*([kmbgt]?)", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def amounts(text: str | None, field: str) -> Any:
    """Numbers that may end in k, M, B or T, such as tokens: 300B, 1.4T; a comma list makes an axis.

    >>> amounts("300B", "tokens"), amounts("1e12", "tokens")
    (300000000000.0, 1000000000000.0)
    """
    if text is None:
        return None
    values = []
    for piece in text.split(","):
        match = _AMOUNT.fullmatch(piece.strip())
        plain_number = _number(piece.strip())
        size = plain_number if match is None else _number(match[1])
        if size is None:
            raise RooflmError(f"{field} is {text!r}, but it must be a number such as 300B or 1.4T")
        values.append(size if match is None else float(size) * _SCALE[match[2].lower()])
    return values if len(values) > 1 else values[0]


def texts(text: str | None) -> Any:
    """A name, or a list of them for a comma list."""
    if text is None or "," not in text:
        return text
    return [piece.strip() for piece in text.split(",") if piece.strip()]


def efficiency_text(text: str | None) -> Any:
    """`ideal`, `calibrated` or factors "0.7,0.9"; a list of them is separated by semicolons."""
    if text is None or ";" not in text:
        return text
    return [piece.strip() for piece in text.split(";") if piece.strip()]


def _single(piece: str, path: str) -> Any:
    """One value of --set: a number, true or false, a quantity with a unit, or a name."""
    low = piece.lower()
    if low in ("true", "false"):
        return low == "true"
    value = _number(piece)
    if value is not None:
        return value
    if re.match(r"[+-]?[\d.]", piece):
        from rooflm.scenario.bounds import CHOICES
        from rooflm.units import quantity_of_any_unit

        return piece if path in CHOICES else quantity_of_any_unit(piece, path)  # a word may begin with a digit: 1f1b
    return piece


def assignments(pairs: list[str] | None) -> dict[str, Any]:
    """--set PATH=VALUE, each value a single one, a comma list or a range.

    >>> assignments(["model.width_scale=2", "cluster.device.dram.bandwidth=2TB/s,3TB/s"])
    {'model.width_scale': 2, 'cluster.device.dram.bandwidth': [2000000000000.0, 3000000000000.0]}
    """
    sets: dict[str, Any] = {}
    for pair in pairs or []:
        path, equals, text = pair.partition("=")
        path = path.strip()
        if not equals or not path or not text.strip():
            raise RooflmError(f"--set is {pair!r}, but it must be PATH=VALUE, such as model.width_scale=2")
        if "." not in path:
            raise RooflmError(
                f"--set path {path!r} must start with model., workload., mapping., cluster., engine. or quant."
            )
        values: list[Any] = []
        for piece in text.split(","):
            if ".." in piece:
                values += expand_range(piece.strip(), path)
            else:
                values.append(_single(piece.strip(), path))
        sets[path] = values if len(values) > 1 else values[0]
    return sets
