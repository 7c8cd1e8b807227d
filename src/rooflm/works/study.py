"""What a study is: tables of a work's numbers beside ours, pictures of them, and the words that go with both."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflm.errors import RooflmError, near_matches
from rooflm.readers.rows import DATA

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture


class Column(NamedTuple):
    """A column of a table. unit: SI, of its values ("" of words, "share" of fractions that people read in per cent,
    "change" of fractions above or below, "times" of factors); written: what people read instead, such as GiB."""

    key: str
    heading: str
    unit: str = ""
    written: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of equal keys. `published` and `ours` are of the same unit; `off` is (ours / published) - 1; `fitted` says
    whether constants were fitted on the row. A value that does not exist is None."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    def values(self, key: str) -> list[Any]:
        """A column's values."""
        return [row.get(key) for row in self.rows]

    def pairs(self, **wanted: Any) -> list[Mapping[str, Any]]:
        """The rows that stand beside a published number, of those with the wanted values."""
        return [r for r in self.rows if r.get("off") is not None and all(r.get(k) == v for k, v in wanted.items())]


@dataclass(frozen=True)
class Study:
    """A work and what we make of it. conditions: how its numbers were taken and ours computed; findings: what follows;
    pictures: name to how it is drawn."""

    name: str
    title: str
    source: str
    conditions: tuple[str, ...]
    tables: tuple[Table, ...]
    findings: tuple[str, ...] = ()
    pictures: Mapping[str, Callable[[], Picture]] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        """A table by its name."""
        return next(t for t in self.tables if t.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The study in plain values, SI units."""
        return {
            "name": self.name, "title": self.title, "source": self.source, "conditions": list(self.conditions),
            "findings": list(self.findings), "errors": errors(self.tables),
            "tables": {t.name: {"title": t.title, "units": {c.key: c.unit for c in t.columns},
                                "rows": [dict(r) for r in t.rows], "notes": list(t.notes)} for t in self.tables},
        }  # fmt: skip


FITTED, KEPT = "fitted", "no"
"""Whether constants were fitted on a row: the words in its column."""


def comparison(published: float | None, ours: float | None, fitted: str = KEPT) -> dict[str, Any]:
    """The four cells of a comparison with a published number.

    >>> comparison(10.0, 11.0)["off"] == 11.0 / 10.0 - 1
    True
    """
    off = None if published is None or ours is None else ours / published - 1
    return {"published": published, "ours": ours, "off": off, "fitted": fitted if published is not None else ""}


def comparison_columns(unit: str, published: str = "published", ours: str = "ours") -> tuple[Column, ...]:
    """The columns of `comparison`."""
    return (Column("published", published, unit), Column("ours", ours, unit), Column("off", "off", "change"),
            Column("fitted", "in a fit"))  # fmt: skip


class Errors(NamedTuple):
    """Mean and largest absolute error (fractions) of some rows."""

    rows: int
    mean: float
    most: float


def errors_of(rows: Sequence[Mapping[str, Any]]) -> Errors:
    """Errors of rows that stand beside a published number.

    >>> errors_of([comparison(10.0, 11.0), comparison(10.0, 7.0)]).rows
    2
    """
    off = [abs(float(r["off"])) for r in rows]
    return Errors(len(off), sum(off) / len(off) if off else 0.0, max(off, default=0.0))


def errors(tables: Iterable[Table]) -> dict[str, dict[str, Any]]:
    """Errors by table, and whether its rows took part in a fit."""
    found = {}
    for table in tables:
        for word in dict.fromkeys(r["fitted"] for r in table.pairs()):
            found[f"{table.name}, {'in a fit' if word == FITTED else 'in no fit'}"] = errors_of(
                table.pairs(fitted=word)
            )._asdict()
    return found


@lru_cache
def published(name: str) -> tuple[Mapping[str, Any], ...]:
    """Rows of data/works/NAME.csv: numbers as numbers, empty cells as None. Lines that begin with # say the source."""
    text = (DATA / "works" / f"{name}.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple({k: _cell(v) for k, v in row.items()} for row in csv.DictReader(lines))


def _cell(text: str) -> Any:
    if not text:
        return None
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        return text


WORKS = {
    "maps": "GPU utilisation and latency over batch and length, pruned models (Shortened LLaMA)",
    "profiler": "time, memory, bytes and accuracy by split, fusion and batch (Shin et al.)",
    "cluster": "Llama-2 13B over boxes of one RTX 3060 each (llm-cluster-perf)",
    "technology": "training and inference from A100 to B200, nodes, memories, networks (Optimus)",
    "analysis": "GPU-hours and latency of LLaMA 7B to 65B by formula (llm-analysis)",
}
"""Name -> what the work is about, in the order of its publication's subject: measuring first."""


def plain(name: str) -> str:
    """A name in small letters, without spaces and marks.

    >>> plain("Shortened-LLaMA")
    'shortenedllama'
    """
    return "".join(c for c in name.lower() if c.isalnum())


def study(name: str) -> Study:
    """A study by name: everything is computed anew. RooflmError for a name that is not one of WORKS.

    >>> study("analysis").table("hours").rows[0]["model"]
    'llama-7b'
    """
    if (name := str(name)) not in WORKS:
        said = [work for work, about in WORKS.items() if len(name) > 2 and plain(name) in plain(about)]
        near = said or near_matches(name, WORKS)
        tail = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(WORKS)}"
        raise RooflmError(f"unknown study {name!r}: {tail}")
    made: Study = import_module(f"rooflm.works.{name}").study()
    return made


def pictures_of(name: str) -> tuple[str, ...]:
    """Names of a listed study's pictures; nothing is computed.

    >>> pictures_of("analysis")
    ('hours', 'parts')
    """
    return tuple(import_module(f"rooflm.works.{name}").PICTURES)
