"""What a tab's answer holds beside the blocks of `rooflm.shown`: changes to choose with a click and pictures drawn in a
browser, which neither a terminal nor a file has; and the answer itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rooflm.shown.blocks import Block


class Choice(NamedTuple):
    """A change that a person may make with one click: in words, the address, and what it gives."""

    text: str
    query: str
    gives: str = ""


class Choices(NamedTuple):
    """Changes to choose from."""

    title: str
    rows: Sequence[Choice]


class Figure(NamedTuple):
    """A picture as a Vega-Lite specification, with its heading and what it shows in words."""

    title: str
    spec: Mapping[str, Any]
    says: str


@dataclass(frozen=True)
class Answer:
    """A tab's answer. tone: "good", "bad" or "plain"; verdict: the first thing to read; said: sentences below it;
    figures: draws its pictures; python and command: the same question elsewhere; data: gives the numbers to download;
    rows: the same as a table; more: gives the answer with what takes seconds, for whoever stops at it (a slider does
    not)."""

    tone: str
    verdict: str
    said: Sequence[str] = ()
    blocks: Sequence[Block | Choices] = ()
    figures: Callable[[], Sequence[Figure]] = tuple
    python: str = ""
    command: str = ""
    data: Callable[[], Mapping[str, Any]] = dict
    rows: Sequence[Mapping[str, Any]] = ()
    more: Callable[[], Answer] | None = None
