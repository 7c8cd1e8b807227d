"""Fields that explain themselves, to files, --set, `rooflm show`, the nomenclature and error messages: a default with
its meaning, unit and bounds, as `step: Num = number(0.0, "host time of a forward pass", "s")`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache, lru_cache, partial
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import msgspec


class About(NamedTuple):
    """What is known about a field."""

    meaning: str
    unit: str = ""
    low: float = 0.0
    high: float = math.inf
    above: bool = False  # low itself is not allowed
    whole: bool = False  # a count
    kind: str = "number"  # or flag, word; text: sizes (rising whole numbers), shapes, named (numbers by name), formula
    among: tuple[str, ...] = ()  # the allowed words (none: any)
    below: bool = False  # high itself is not allowed
    endless: bool = False  # infinity means no limit


LARGEST = 2.0**50
"""No count or size of a scenario is larger: products of a few stay exact, and nothing runs on for ever."""
TINY, HUGE = 1e-30, 1e30
"""Ends of every other number but 0: beyond them products of a few leave what a computer holds."""
KEY, PART = "about", "part"
"""Where a field's metadata holds its `About`; of one that is a table of its own, its `Part`."""


class Part(NamedTuple):
    """What a field holds. kind: a dataclass, several by what their tables call their `kind`, or str; many: a list."""

    kind: Any
    many: bool = False


def number(
    default: float, meaning: str, unit: str = "1", low: float = 0.0, high: float = math.inf, *, above: bool = False,
    whole: bool = False, below: bool = False, endless: bool = False,
) -> Any:  # fmt: skip
    """A field that holds a number (or an array of them); infinity only where that is its default, or if endless."""
    about = About(meaning, unit, low, high, above, whole, below=below, endless=endless or math.isinf(default))
    return field(default=default, metadata={KEY: about})


EACH = 0.01
each = partial(number, 0.0, unit="s", high=EACH)
"""A field of a time paid for each kernel, token or block (engines: microseconds), and most seconds of it."""


def count(default: float, meaning: str, low: float = 1.0, high: float = LARGEST) -> Any:
    """A field that counts something; infinity is allowed where that is its default or `high`."""
    return number(default, meaning, "1", low, high, whole=True, endless=math.isinf(high))


def size(meaning: str, low: float = 1.0) -> dict[str, About]:
    """Metadata of a field without a default that counts something: `heads: Num = field(metadata=size("..."))`."""
    return {KEY: About(meaning, "1", low, LARGEST, whole=True)}


def si(meaning: str, unit: str, *, zero: bool = False) -> dict[str, About]:
    """Metadata of a field without a default that holds a quantity above 0 (zero: or 0), in a unit of `rooflm.units`."""
    return {KEY: About(meaning, unit, above=not zero)}


def share(default: float, meaning: str, *, above: bool = False) -> Any:
    """A field that holds a share of something, 0 to 1."""
    return number(default, meaning, "1", 0.0, 1.0, above=above)


def flag(default: bool, meaning: str) -> Any:
    """A field that is true or false."""
    return field(default=default, metadata={KEY: About(meaning, kind="flag")})


def word(default: str, meaning: str, among: Sequence[str] = ()) -> Any:
    """A field that holds a name, out of a few where `among` lists them."""
    return field(default=default, metadata={KEY: About(meaning, kind="word", among=tuple(among))})


def sizes(meaning: str) -> Any:
    """A field that holds rising whole numbers as text, with spaces between them; "" for none."""
    return field(default="", metadata={KEY: About(meaning, kind="sizes", whole=True, low=1, high=2**16)})


def _text(kind: str, meaning: str, among: Sequence[str] = ()) -> Any:
    """A field that holds text of a kind, with names out of a few where `among` lists them; "" for none."""
    return field(default="", metadata={KEY: About(meaning, kind=kind, among=tuple(among))})


shapes, named, formula = (partial(_text, kind) for kind in ("shapes", "named", "formula"))
"""Shapes of products (columns x inner, "2112x7168"), numbers by name ("gptq:8 int4:2"), a formula of named numbers."""


@lru_cache
def words_in(text: str) -> tuple[str, ...]:
    """The words of a field's text with commas."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


@lru_cache
def number_by_name(text: str, name: str, usual: float) -> float:
    """The number that a `named` text ("gptq:8 int4:2") has for a scheme, whatever its cache, or the usual one."""
    return float(dict(part.split(":") for part in text.split()).get(name.partition("kv")[0].rstrip("-"), usual))


def text(meaning: str, among: Sequence[str] = ()) -> dict[str, About]:
    """Metadata of a field without a default that holds a name."""
    return {KEY: About(meaning, kind="word", among=tuple(among))}


def part(kind: Any, *, many: bool = False) -> dict[str, Part]:
    """Metadata of a field that is a table of its own, or a list of such tables."""
    return {PART: Part(kind, many)}


abouts: Callable[[Any], Mapping[str, About]] = cache(
    lambda kind: {f.name: f.metadata[KEY] for f in fields(kind) if KEY in f.metadata}
)
"""Field -> what is known of it, for every described field of a dataclass."""


T = TypeVar("T")
_ONE_AT_A_TIME = RLock()


def structured(data: Any, schema: type[T]) -> T:
    """Parsed TOML as a msgspec `schema`. Raises msgspec.ValidationError. One thread at a time: msgspec (as of 0.22)
    crashes when two convert to a type for the first time together."""
    with _ONE_AT_A_TIME:
        return msgspec.convert(data, schema)
