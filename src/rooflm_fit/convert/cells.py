"""Cells of a table of the older format, and the cells that are written."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rooflm.validation.cells import number as plain_number

Row = Mapping[str, str | None]
Cells = dict[str, str]


class Unusable(Exception):  # noqa: N818 (a verdict on a row, not an error)
    """Something that a row does not say clearly, in words; never leaves the package."""


@cache
def shipped(name: str) -> dict[str, Any]:
    """A file of what is known of sources, beside this one."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def doubts_said(task: str, facts: Row) -> list[str]:
    """Why a row of a task is set apart, by the patterns of sources.toml that are found in its cells.

    >>> doubts_said("serve", {"note": "IMAGES: 1", "source": "mlperf"}), doubts_said("train", {"source": "NAR"})
    (['images in the prompt'], [])
    """
    return [row["why"] for row in shipped("sources")["doubts"][task]
            if all(re.search(pattern, text(facts, column)) for column, pattern in row["when"].items())]  # fmt: skip


def text(row: Row, column: str) -> str:
    """The cell as text without outer blanks, at most 2,000 characters; "" when the column or the cell is not there."""
    value = row.get(column)
    return value.strip()[:2000] if isinstance(value, str) else ""


_AROUND = re.compile(
    r"^(?:~|about |[a-z_]+ ?=? ?(?=\d))|(?<=\d) ?(?:x|tokens?|tok|gpus?|users?|clients?|requests?)$| *\(.*\)$",
    re.IGNORECASE,
)
"""What people write around a count: what it is ("TP8", "tp=8"), what it counts ("1024 tokens", "8x"), remarks."""
THOUSANDS = re.compile(r"(\d+(?:\.\d+)?) ?k", re.IGNORECASE)
"""Lengths such as 8k, of which benchmarks count 1,024, and figures, whose k is 1,000."""


def number(row: Row, column: str) -> float | None:
    """The cell as a finite number, or None (blank, words, nan, inf).

    >>> number({"value": "1,024.5"}, "value"), number({"value": "max"}, "value"), number({}, "value")
    (1024.5, None, None)
    >>> number({"value": "1.5k"}, "value")
    1500.0
    >>> [number({"n": said}, "n") for said in ("TP8", "8x", "16 (2 nodes)", "1k", "~1024 tokens", "128-512")]
    [8.0, 8.0, 16.0, 1024.0, 1024.0, None]
    """
    cell = text(row, column)
    plain = _AROUND.sub("", _AROUND.sub("", cell))
    large = THOUSANDS.fullmatch(plain)
    thousand = 1000 if column == "value" else 1024
    return thousand * float(large[1]) if large else plain_number(plain)


def positive(row: Row, column: str, reason: str) -> float:
    """The cell as a number above zero; Unusable(reason) otherwise."""
    value = number(row, column)
    if value is None or value <= 0:
        raise Unusable(reason)
    return value


def count(row: Row, column: str, reason: str) -> int:
    """The cell as a whole number of at least 1; Unusable(reason) otherwise."""
    value = positive(row, column, reason)
    if value != int(value) or value > 1e12:
        raise Unusable(reason)
    return int(value)


def count_or(row: Row, column: str, default: int) -> int:
    """As `count`, but `default` where the cell is blank."""
    return default if not text(row, column) else count(row, column, f"{column} is not a whole number above 0")


def trust_of(note: str, default: str = "") -> str:
    """The grade that a note states: A, B or C.

    >>> trust_of("trust=A; fixed batch"), trust_of("[DERIVED] trust=C; x"), trust_of("no grade", "B")
    ('A', 'C', 'B')
    """
    match = re.search(r"\btrust=([ABC])\b", note)
    return match[1] if match else default


def slug(citation: str) -> str:
    """A short key out of a citation, for tables without ids.

    >>> slug("My Notes, 2024"), slug("")
    ('my-notes-2024', 'unnamed')
    """
    return re.sub(r"\W+", "-", citation.lower())[:24].strip("-") or "unnamed"


def prefix_of(row_id: str) -> str:
    """The letters (and digits) before the number of an id: the source it belongs to.

    >>> prefix_of("trtllm17-0001"), prefix_of("KORL-001"), prefix_of("optimus-t2-03"), prefix_of("")
    ('trtllm17', 'KORL', 'optimus-t2', '')
    """
    return re.sub(r"[-_ ]?\d+[a-z]?$", "", row_id.strip()[:80])


def cell(value: Any) -> str:
    """A value as a cell: whole numbers without a point, flags as yes and no, lists by commas.

    >>> cell(8.0), cell(True), cell((0.8, 1.0)), cell(None), cell(0.25)
    ('8', 'yes', '0.8,1', '', '0.25')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return (
            str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else f"{value:.10g}"
        )
    if isinstance(value, tuple | list):
        return ",".join(cell(v) for v in value)
    return str(value)


def cells_of(values: Mapping[str, Any]) -> Cells:
    """Values as cells, blanks left out; a dict becomes PATH=VALUE;PATH=VALUE.

    >>> cells_of({"tp": 8, "dp": None, "sets": {"engine.fused": False, "engine.step": 0.001}})
    {'tp': '8', 'sets': 'engine.fused=false;engine.step=0.001'}
    """
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            plain = {k: str(v).lower() if isinstance(v, bool) else cell(v) for k, v in value.items()}
            done = ";".join(f"{k}={v}" for k, v in plain.items())
        else:
            done = cell(value)
        if done:
            found[name] = done
    return found
