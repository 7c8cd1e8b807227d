"""Build dataclasses from tables of files, by what their fields declare (`catalogue.fields`): bounds are checked, text
with a unit becomes a number, nested tables become dataclasses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from rooflm.catalogue.fields import HUGE, KEY, LARGEST, PART, TINY, About, abouts
from rooflm.errors import RooflmError, near_matches
from rooflm.readers.formulas import worked_out
from rooflm.readers.quantities import WRITTEN, parse
from rooflm.shown.numbers import chosen_text, plain_number


def is_array(value: object) -> bool:
    """True for an array with at least one dimension: what a list given for a number becomes."""
    return isinstance(value, np.ndarray) and value.ndim > 0


MOST_TOLD = 40
"""Most names that a refusal lists."""


def one_of(name: str, value: Any, known: Collection[str]) -> str:
    """A text out of a list, in any case; RooflmError with the nearest names otherwise.

    >>> one_of("recompute", "Full", ("none", "full"))
    'full'
    """
    low = str(value).strip().lower()
    if low in known:
        return low
    near = near_matches(low, list(known))
    further = f" and {len(known) - MOST_TOLD} more" if len(known) > MOST_TOLD + 1 else ""
    among = (
        f"it must be one of {', '.join(k or 'none' for k in list(known)[: MOST_TOLD if further else None])}{further}"
    )
    raise RooflmError(f"{name} is {value!r}: " + (f"did you mean {' or '.join(map(repr, near))}?" if near else among))


def bounds_text(about: About) -> str:
    """The bounds of a number in words.

    >>> [bounds_text(about) for about in (About("", above=True), About("", high=1), About("", low=1, whole=True))]
    ['above 0', 'from 0 to 1', 'a whole number of at least 1']
    """
    low, high = plain_number(about.low), plain_number(about.high)
    if about.whole:
        return f"a whole number of at least {low}" + f" and at most {high}" * (about.high < LARGEST)
    if about.high < LARGEST:
        return f"above {low} and at most {high}" if about.above else f"from {low} to {'below ' * about.below}{high}"
    return f"above {low}" if about.above else f"{low} or more"


def check_bounds(name: str, value: Any, about: About) -> None:
    """RooflmError if a number (or any element of an array) is out of bounds.

    >>> check_bounds("engine.memory_fraction", 1.7, About("", high=1.0))
    Traceback (most recent call last):
    rooflm.errors.RooflmError: engine.memory_fraction is 1.7, but it must be from 0 to 1
    """
    flat = np.asarray(value, dtype=float)
    low, high = float(np.min(flat)), float(np.max(flat))
    below = low < about.low or (about.above and low == about.low)
    over = high > about.high or (about.below and high == about.high) or math.isinf(high)
    bad = low if below or math.isnan(low) else high if over and not (about.endless and math.isinf(high)) else None
    if bad is None and about.whole:
        broken = flat[np.isfinite(flat) & (flat != np.floor(flat))]
        bad = float(broken.flat[0]) if broken.size else None
    if bad is not None:
        rule = "finite and " * (bad == math.inf) + bounds_text(about)
        counted = " seconds (20us: microseconds)" if about.unit == "s" else ""
        raise RooflmError(f"{name} is {plain_number(bad)}, but it must be {rule}{counted}")
    far = flat[np.isfinite(flat) & (flat != 0) & ((np.abs(flat) < TINY) | (np.abs(flat) > HUGE))]
    if far.size:
        raise RooflmError(f"{name} is {float(far.flat[0]):g}, but it must be 0 or from {TINY:g} to {HUGE:g}")


def field_value(name: str, value: Any, about: About) -> Any:
    """A value of a file or of --set converted for its field: text with a unit becomes a number. RooflmError if it
    breaks the field's rule.

    >>> field_value("step", "2 ms", About("", "s"))
    0.002
    """
    return READERS.get(about.kind, _number)(name, value, about)


def _flag(name: str, value: Any, about: About) -> bool:
    if not isinstance(value, bool):
        raise RooflmError(f"{name} is {value!r}, but it must be true or false")
    return value


def _word(name: str, value: Any, about: About) -> str:
    if not isinstance(value, str):
        raise RooflmError(f"{name} is {value!r}, but it must be a name")
    return one_of(name, value, about.among) if about.among else value


def _pieces(name: str, value: Any, pattern: str, rule: str) -> str:
    """Text whose pieces between spaces all match a pattern."""
    if not all(re.fullmatch(pattern, piece) for piece in str(value).split()):
        raise RooflmError(f"{name} is {str(value)[:80]!r}, but it must be {rule}")
    return str(value)


def _shapes(name: str, value: Any, about: About) -> str:
    return _pieces(name, value, r"[1-9]\d{0,8}x[1-9]\d{0,8}", "shapes such as '2112x7168 7168x2048'")


def _named(name: str, value: Any, about: About) -> str:
    number = r"(?=[\d.]*[1-9])\d{1,9}(\.\d{1,9})?"
    text = _pieces(name, value, rf"[a-z0-9][\w.-]*:{number}", "numbers above 0 by name such as 'gptq:8 int4:2'")
    for piece in text.split() if about.among else ():
        one_of(name, piece.partition(":")[0], about.among)
    return text


def _formula(name: str, value: Any, about: About) -> str:
    try:
        worked_out(str(value) or "0", dict.fromkeys(about.among, 1.0))
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        rule = f"a formula of {', '.join(about.among)} such as '512 + 1.5 * max({about.among[0]}, 2048)'"
        raise RooflmError(f"{name} is {str(value)[:80]!r}, but it must be {rule}") from error
    return str(value)


def _number(name: str, value: Any, about: About) -> Any:
    """A number or an array of them; text may have a unit."""
    if isinstance(value, str) and about.unit not in ("", "1"):
        value = parse(value, about.unit, name)
    if isinstance(value, bool) or not (is_array(value) or isinstance(value, int | float)):
        raise RooflmError(f"{name} is {value!r}, but it must be a number")
    check_bounds(name, value, about)
    check_unit(name, value, about.unit)
    return value


LEAST = {"bytes/s": 1e6, "flop/s": 1e9}
"""Unit -> the least of a real part: what is below was meant in another unit."""
SMALLEST = 2.0**20
"""The same of a device's memory, in bytes."""


def check_unit(name: str, value: Any, unit: str) -> None:
    """RooflmError for a number that is too small for a real part, as one has it who leaves out its unit.

    >>> check_unit("dram.size", 64, "bytes")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: dram.size is 64 B, but it must be at least 1 MiB: write it with its unit, such as 64 GiB
    """
    least = SMALLEST if name.endswith("dram.size") else LEAST.get(unit, 0.0)
    if not least or isinstance(value, str):
        return
    flat, times = np.asarray(value, dtype=float), 2.0**30 if unit == "bytes" else 1e12
    for small in flat[(flat > 0) & (flat < least)][:1]:
        lowest, meant = (chosen_text(v, WRITTEN[unit]) for v in (least, small * times))
        raise RooflmError(f"{name} is {small:g} {WRITTEN[unit]}, but it must be at least {lowest}: "
                          f"write it with its unit, such as {meant}")  # fmt: skip


def rising_numbers(name: str, value: Any, about: About) -> str:
    """Increasing whole numbers as text separated by spaces; RooflmError for anything else.

    >>> about = About("", low=1, high=8)
    >>> rising_numbers("graphs", "1, 2,4", about), rising_numbers("graphs", [1, 8], about)
    ('1 2 4', '1 8')
    """
    given = str(value).strip("[]").replace(",", " ").split()
    found = [int(n) for n in given if n.isdecimal() and about.low <= int(n) <= about.high]
    if len(found) < len(given) or found != sorted(set(found)):
        rule = f"whole numbers from {about.low} to {plain_number(about.high)} that rise, such as '1 2 4 8'"
        raise RooflmError(f"{name} is {str(value)[:80]!r}, but it must be {rule}")
    return " ".join(map(str, found))


READERS: dict[str, Callable[[str, Any, About], Any]] = {
    "flag": _flag, "word": _word, "sizes": rising_numbers, "shapes": _shapes, "named": _named, "formula": _formula,
}  # fmt: skip
"""Kind of a field (`About.kind`) -> what reads a value for it; numbers are read by `_number`."""


def quantity(value: Any, unit: str, name: str) -> float:
    """A value of a file as a number above 0, in a unit of `rooflm.units`.

    >>> quantity("400 W", "w", "tdp"), quantity(400, "w", "tdp")
    (400.0, 400.0)
    """
    return float(field_value(name, value, About("", unit, above=True)))


def require_table(name: str, value: Any) -> Mapping[str, Any]:
    """The value if it is a table; RooflmError otherwise."""
    if not isinstance(value, Mapping):
        raise RooflmError(f"{name} is {value!r}, but it must be a table")
    return value


MOST_NAMED, FIRST = 24, 8
"""Most fields that a sentence names, and those of a longer list."""


def check_field_name(name: str, known: Collection[str], label: str) -> None:
    """RooflmError with the nearest names if a table has no field of that name."""
    if name not in known:
        near = near_matches(name, known)
        few = len(known) <= MOST_NAMED
        some = ", ".join([*known][:FIRST])
        listed = ", ".join(known) if few else f"{some} and {len(known) - FIRST} more (`rooflm show schema`)"
        tail = f": did you mean {near[0]!r}?" if near else f": it knows {listed}"
        raise RooflmError(f"{label} has the unknown field {name!r}{tail}")


def dataclass_fields(kind: Any, table: Any, label: str, at: str = "", but: Collection[str] = ()) -> dict[str, Any]:
    """Field -> value for a dataclass, from a table of a file; nested parts become dataclasses.

    label: how messages name the file and row; at: path of the table within it; but: fields that must not appear.
    RooflmError names the field that is unknown, missing or invalid.

    >>> from rooflm.catalogue.hardware import Memory
    >>> dataclass_fields(Memory, {"size": "1 KiB", "bandwidth": 3e9}, "x.toml", "l1")
    {'size': 1024.0, 'bandwidth': 3000000000.0}
    >>> dataclass_fields(Memory, {"sise": 3}, "x.toml", "dram")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: x.toml: dram has the unknown field 'sise': did you mean 'size'?
    """
    given = require_table(f"{label}: {at}", table)
    own = {f.name: f for f in fields(kind) if f.name not in but}
    for name in given:
        check_field_name(name, own, f"{label}: {at or 'the row'}")
    lacking = [f.name for f in own.values() if f.default is MISSING and f.default_factory is MISSING]
    for name in lacking:
        if name not in given:
            raise RooflmError(f"{label}: {at or 'the row'} lacks the field {name!r}")
    inside = f"{at}." if at else ""
    return {name: _value(own[name].metadata, value, label, inside + name) for name, value in given.items()}


def _value(told: Mapping[str, Any], value: Any, label: str, at: str) -> Any:
    """The value of one field of a table, by the metadata of the field."""
    if KEY in told:
        found = field_value(f"{label}: {at}", value, told[KEY])
        return float(found) if isinstance(found, int) and told[KEY].kind == "number" and not told[KEY].whole else found
    kind, many = told[PART]
    if not many:
        return _table(kind, value, label, at)
    if not isinstance(value, list):
        raise RooflmError(
            f"{label}: {at} is {value!r}, but it must be a list of {'names' if kind is str else 'tables'}"
        )
    return tuple(_table(kind, one, label, f"{at}[{i}]") for i, one in enumerate(value))


def _table(kind: Any, value: Any, label: str, at: str) -> Any:
    """A part as its dataclass: the one that it calls its `kind`, where there are several."""
    if kind is str:
        return field_value(f"{label}: {at}", value, About("", kind="word"))
    if isinstance(kind, Mapping) and isinstance(value, Mapping):
        called = value.get("kind")
        kind = kind[one_of(f"{label}: {at}.kind", called, kind)]
        if "kind" not in abouts(kind):
            value = {name: one for name, one in value.items() if name != "kind"}
    return kind(**dataclass_fields(kind, value, label, at))
