"""Cells of a table as values; a cell that is no such value makes its row unusable."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from rooflm.errors import RooflmError
from rooflm.readers.tables import quantity
from rooflm.validation.columns import COLUMNS, SERVER_OPTIONS, SETTING, Column
from rooflm.validation.request import Unusable

LONGEST = 2000
"""Characters of a cell that are read."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_THOUSANDS = re.compile(r",(?=\d{3}(\D|$))")
_AROUND = re.compile(r"^[a-z_ ]+=? ?(?=\d)|(?<=\d) ?(tokens?|tok|x|gpus?|users?|requests?|sequences?)$", re.IGNORECASE)
"""What people write around a count: its name ("bs=8", "TP8"), what it counts ("1024 tokens", "8x")."""
QUANTITIES = {"peak": "flop/s", "bandwidth": "bytes/s", "host_bandwidth": "bytes/s", "memory": "bytes"}
"""Columns whose cells may hold a unit of their own, such as 2 TB/s."""


def number(cell: str) -> float | None:
    """A finite number, or None (blank, words, nan, inf).

    >>> number("1,024.5"), number("max"), number(""), number("58,3")
    (1024.5, None, None, None)
    """
    plain = _THOUSANDS.sub("", cell.strip())
    if not _NUMBER.fullmatch(plain):
        return None
    value = float(plain)
    return value if math.isfinite(value) else None


def value_of(column: Column, cell: str) -> Any:
    """A cell of a column as its kind says. Unusable where it is none.

    >>> value_of(COLUMNS["tp"], "8"), value_of(COLUMNS["spread"], "0.8,1"), value_of(COLUMNS["sp"], "yes")
    (8, (0.8, 1.0), True)
    """
    words = WORDS.get(column.kind, {})
    low = cell.lower()
    return words[low] if low in words else KINDS.get(column.kind, _amount)(column, cell)


def _no_flag(column: Column, cell: str) -> NoReturn:
    raise Unusable(f"{column.name} is {cell!r}, but it must be yes or no")


def _pair(column: Column, cell: str) -> tuple[float, float]:
    ends = [number(p) for p in re.split(r"[,;]", cell)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise Unusable(f"{column.name} is {cell!r}, but it must be a pair of numbers such as 0.8,1")
    return ends[0], ends[1]


def _amount(column: Column, cell: str) -> float:
    """A number of at least 0, whole where the column counts something; of some columns with a unit (QUANTITIES).

    >>> _amount(COLUMNS["batch"], "bs=8"), _amount(COLUMNS["prompt"], "1,024 tokens"), _amount(COLUMNS["tp"], "TP8")
    (8, 1024, 8)
    """
    found = number(_AROUND.sub("", cell))
    if found is None and column.name in QUANTITIES:
        with suppress(RooflmError):
            found = quantity(cell, QUANTITIES[column.name], column.name)
    whole = column.kind in ("whole", "load")
    if found is None or found < 0 or (whole and (found != int(found) or found > 1e15)):
        such = " (or one with its unit, such as 2 TB/s)" if column.name in QUANTITIES else ""
        rule = f"a {'whole ' * whole}number of at least 0{such}"
        raise Unusable(f"{column.name} is {cell!r}, but it must be {rule}")
    return int(found) if whole else found


WORDS: dict[str, dict[str, Any]] = {
    "flag": dict.fromkeys(("yes", "true", "1", "on"), True) | dict.fromkeys(("no", "false", "0", "off"), False),
    "load": {"max": "max"}, "rate": {"inf": math.inf},
}  # fmt: skip
"""Kind of a column -> words (in any case) and what they mean."""
KINDS: dict[str, Callable[[Column, str], Any]] = {
    "text": lambda column, cell: cell,
    "names": lambda column, cell: tuple(p.strip() for p in cell.split(",") if p.strip()),
    "flag": _no_flag, "pair": _pair,
}  # fmt: skip
"""Kind of a column -> what reads any other cell; the rest are numbers (`_amount`)."""


def plain_value(text: str) -> Any:
    """What stands after PATH= : a number, true or false, a name.

    >>> plain_value("0.7"), plain_value("true"), plain_value("static")
    (0.7, True, 'static')
    """
    low = text.strip().lower()
    if low in ("true", "false"):
        return low == "true"
    found = number(text)
    return text.strip() if found is None else found


def settings_of(row: Mapping[str, str]) -> dict[str, Any]:
    """{path: value} of the column `sets` and of every column `set:PATH`.

    >>> settings_of({"sets": "engine.step=0.001; training.master=false", "set:quant.kv_bits": "8"})
    {'engine.step': 0.001, 'training.master': False, 'quant.kv_bits': 8.0}
    """
    found: dict[str, Any] = {}
    for piece in row.get("sets", "").split(";"):
        path, equals, value = piece.partition("=")
        if not piece.strip():
            continue
        if not equals or not path.strip() or not value.strip():
            raise Unusable("sets is not PATH=VALUE;PATH=VALUE")
        found[path.strip()] = plain_value(value)
    named = {k.removeprefix(SETTING): v for k, v in row.items() if k.startswith(SETTING) and v}
    return found | {path: plain_value(v) for path, v in named.items()}


def arguments(row: Mapping[str, str], task: str) -> dict[str, Any]:
    """The arguments of a command that a row states: its columns, `sets` and, under load, `options` of the server."""
    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        cell = row.get(name, "")
        if not cell or task not in column.read or name == "sets":
            continue
        (options if name in SERVER_OPTIONS else found)[name] = value_of(column, cell)
    sets = settings_of(row)
    return found | ({"sets": sets} if sets else {}) | ({"options": options} if options else {})
