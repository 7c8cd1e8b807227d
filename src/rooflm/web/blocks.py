"""What an answer is made of: a verdict, then blocks of bars, facts, tables, commands and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Part:
    """A part of a bar: its name, its amount in words, its share of the bar's scale in per cent, its colour."""

    name: str
    text: str
    share: float
    colour: str


@dataclass(frozen=True)
class Bar:
    """A whole in parts. total: in words; limit: per cent of the scale at which its limit stands, and what that is."""

    kind: ClassVar[str] = "bar"
    folded: ClassVar[bool] = False
    title: str
    total: str
    parts: Sequence[Part]
    limit: float | None = None
    limit_text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Fact:
    """A figure: what it is, its value, and a sentence below it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """Figures side by side."""

    kind: ClassVar[str] = "facts"
    folded: ClassVar[bool] = False
    title: str
    rows: Sequence[Fact]


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; best: places (row, column) that win; marked: a row to stand out."""

    kind: ClassVar[str] = "table"
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: frozenset[tuple[int, int]] = frozenset()
    folded: bool = False


@dataclass(frozen=True)
class Choice:
    """A change that a person may make with one click: in words, the address, and what it gives."""

    text: str
    query: str
    gives: str = ""


@dataclass(frozen=True)
class Choices:
    """Changes to choose from."""

    kind: ClassVar[str] = "choices"
    folded: ClassVar[bool] = False
    title: str
    rows: Sequence[Choice]


@dataclass(frozen=True)
class Notes:
    """Sentences: what was assumed, what to beware of."""

    kind: ClassVar[str] = "notes"
    folded: ClassVar[bool] = True
    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """A command to copy, and a sentence below it."""

    kind: ClassVar[str] = "code"
    folded: ClassVar[bool] = False
    title: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture as a Vega-Lite specification, with its heading and what it shows in words."""

    title: str
    spec: Mapping[str, Any]
    says: str


@dataclass(frozen=True)
class Answer:
    """A tab's answer. tone: "good", "bad" or "plain"; verdict: the first thing to read; said: sentences below it;
    figures: draws its pictures; python
    and command: the same question elsewhere; data: gives the numbers to download; more: blocks
    that take seconds, worked out for whoever stops at the answer (a slider does not); rows: the same as a table."""

    tone: str
    verdict: str
    said: Sequence[str] = ()
    blocks: Sequence[Bar | Facts | Table | Choices | Notes | Code] = ()
    figures: Callable[[], Sequence[Figure]] = tuple
    python: str = ""
    command: str = ""
    data: Callable[[], Mapping[str, Any]] = dict
    rows: Sequence[Mapping[str, Any]] = ()
    more: Callable[[], Sequence[Choices | Notes | Code]] = tuple
