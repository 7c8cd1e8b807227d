"""What a person writes for an argument, on the command line or on the page, to its value: numbers, quantities, names,
comma lists, ranges, and PATH=VALUE."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rooflm.errors import RooflmError
from rooflm.units import parse, quantity_of_any_unit

_SIZE = r"([\d.]+(?:e[+-]?\d+)?)"
_RANGE = re.compile(rf"{_SIZE}\.\.{_SIZE}(?:([*+])([\d.]+))?")
MOST = 100_000
"""Most values that one range may have."""


def _number(text: str) -> int | float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    whole = text.strip().lstrip("+-").isdigit()
    return int(value) if whole else value


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
        if plain_number is None and match is None:
            raise RooflmError(f"{field} is {text!r}, but it must be a number such as 300B or 1.4T")
        values.append(plain_number if match is None else float(match[1]) * _SCALE[match[2].lower()])
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


def seconds(text: str, name: str) -> float:
    """Seconds of "500ms"."""
    return parse(text, "s", f"--{name.replace('_', '-')}")


def amount(text: str, name: str) -> float:
    """One number that may end in k, M, B or T, such as 2M."""
    value = amounts(text, name)
    if isinstance(value, list):
        raise RooflmError(f"{name} is {text!r}, but it must be one number")
    return float(value)


def joules(text: str, name: str) -> float:
    """Joules of "20GWh" or "70TJ".

    >>> joules("2kWh", "energy"), joules("1GJ", "energy")
    (7200000.0, 1000000000.0)
    """
    if text.strip().endswith("Wh"):
        return 3600 * parse(text.strip().removesuffix("h"), "w", f"--{name}")
    return parse(text, "j", f"--{name}")


def share(text: str, name: str) -> float:
    """A share written as 0.1 or 10%.

    >>> share("10%", "memory_margin"), share("0.1", "memory_margin")
    (0.1, 0.1)
    """
    number = numbers(text.strip().removesuffix("%"), name)
    if isinstance(number, list):
        raise RooflmError(f"{name} is {text!r}, but it must be one share, such as 0.1 or 10%")
    return float(number) / (100 if text.strip().endswith("%") else 1)


def budgets(text: str, name: str) -> Any:
    """Token budgets: numbers, a list or a range; off is infinity.

    >>> budgets("512..2048*2,off", "token_budget"), budgets("8192", "token_budget")
    ([512, 1024, 2048, inf], 8192)
    """
    pieces = [p.strip() for p in text.split(",")]
    sizes = numbers(",".join(p for p in pieces if p != "off"), name) if set(pieces) != {"off"} else []
    listed = sizes if isinstance(sizes, list) else [sizes]
    if any(not (n >= 1 and n == int(n)) for n in listed):
        raise RooflmError(f"{name} is {text!r}, but it must be whole numbers of tokens of at least 1, or off")
    listed = [*listed, *([float("inf")] if "off" in pieces else [])]
    return listed if len(listed) > 1 else listed[0]


def spread(text: str, name: str) -> tuple[float, float]:
    """ "0.8,1" as (0.8, 1.0); one number is the low end.

    >>> spread("0.8,1", "spread"), spread("0.5", "spread")
    ((0.8, 1.0), (0.5, 1.0))
    """
    try:
        numbers = [float(p) for p in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise RooflmError(f"{name} is {text!r}, but it must be LOW,HIGH such as 0.8,1")
    return numbers[0], numbers[1] if len(numbers) == 2 else max(1.0, numbers[0])


def stage(text: str, name: str) -> Any:
    """ZeRO stages as numbers, `fsdp` and the like as names."""
    if not all(piece.strip().isdigit() for piece in text.split(",")):
        return texts(text)
    return numbers(text, name)


def as_it_is(value: Any, _: str) -> Any:
    """A value that needs no reading."""
    return value


ROWS = ("device", "cluster", "engine", "scheme")
"""Kinds whose text is the name of a row."""
READ: dict[str, Callable[[Any, str], Any]] = {
    "numbers": numbers,
    "amounts": amounts,
    "amount": amount,
    "names": lambda text, _: texts(text),
    **{f"{row}s": lambda text, _: texts(text) for row in ROWS},
    "factors": lambda text, _: efficiency_text(text),
    "stage": stage,
    "seconds": seconds,
    "joules": joules,
    "share": share,
    "budgets": budgets,
    "spread": spread,
    "sets": lambda pairs, _: assignments(pairs),
    "zips": lambda groups, _: [tuple(n.strip() for n in g.split(",")) for g in groups],
    "listed": lambda text, _: [name.strip() for name in text.split(",")],
}
"""Kind of argument -> the reader of what a person writes for it (text and name to the value); all others are as they
are."""
