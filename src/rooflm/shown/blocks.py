"""The building blocks of an answer, independent of where it is drawn: sentences, tables, breakdowns, columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rooflm.shown.numbers import gib, percent, text
from rooflm.units import Num

GAP = 2
"""Blanks between two columns of a table."""
LEAST = 24
"""Characters that a column of words keeps."""


class Say(NamedTuple):
    """A sentence. mood: "title", "good", "bad", "faint" or "" (plain). label: printed as "LABEL: " before the text,
    whose further lines are then indented by two."""

    text: str
    mood: str = ""
    label: str = ""


class Table(NamedTuple):
    """Rows of cells. sides: a letter per column, "l" (names, left), "r" (numbers, right), "w" (words that may wrap);
    title: a line above; head: the first row is a heading; spare: headings of columns that are dropped first on a narrow
    terminal; stub: leading columns repeated when a table is continued; indent: blanks before each line; best: cells
    (row without the heading, column) to highlight."""

    rows: Sequence[Sequence[str]]
    sides: str
    title: str = ""
    head: bool = False
    spare: tuple[str, ...] = ()
    stub: int = 1
    indent: int = 2
    best: frozenset[tuple[int, int]] = frozenset()


class Parts(NamedTuple):
    """A breakdown: name -> amount in `unit`, shown largest first. capacity: what the sum should not exceed (None: no
    limit)."""

    title: str
    parts: Mapping[str, Num]
    unit: str = "s"
    limit: int = 9
    capacity: Num | None = None


class Columns(NamedTuple):
    """Blocks side by side as far as there is room; each item is a block or a list of blocks."""

    items: Sequence[Any]


class Code(NamedTuple):
    """A shell command, wrapped with backslashes. title: a line above; note: a sentence below."""

    text: str
    title: str = ""
    note: str = ""


class Fact(NamedTuple):
    """A figure: what it is, its value, and a sentence below it."""

    name: str
    value: str
    note: str = ""


class Facts(NamedTuple):
    """Figures side by side."""

    title: str
    rows: Sequence[Fact]


class Fold(NamedTuple):
    """Blocks under a title, which a page shows folded."""

    title: str
    blocks: Sequence[Any]


def called(told: Any, word: str) -> Any:
    """What is told, a text or blocks of them, with the word for a device (`Device.called`) in place of "GPU".

    >>> called([Say("24 GiB a GPU"), Table([("GPU busy", "9 %")], "lr")], "device")[1].rows
    [('device busy', '9 %')]
    """
    if isinstance(told, str):
        return told.replace("GPU", word)
    if isinstance(told, Mapping):
        return {called(name, word): value for name, value in told.items()}
    if isinstance(told, list | tuple):
        parts = [called(part, word) for part in told]
        return type(told)(*parts) if hasattr(told, "_fields") else type(told)(parts)
    return told


def folded(sentences: Iterable[str]) -> Fold:
    """Sentences that a page shows folded: assumptions and warnings."""
    return Fold("Assumed", [Say(text) for text in sentences])


BLANK = Say("")
Block = Say | Table | Parts | Columns | Code | Facts | Fold


def listed(label: str, items: Sequence[str]) -> list[Block]:
    """A label and its items as one paragraph; nothing without items."""
    return [Say("; ".join(items), label=label)] if items else []


def facts_table(f: Facts) -> Table:
    """Facts as a table."""
    return Table([tuple(row) for row in f.rows], "lrw", f.title)


def flattened(block: Fold | Code) -> list[Block]:
    """The blocks inside a Fold, or a Code without its title and note, with the title and note as sentences."""
    inner = block.blocks if isinstance(block, Fold) else [Code(block.text), *([Say(block.note)] if block.note else [])]
    return [*([Say(block.title, "title")] if block.title else []), *inner]


def amount(value: Any, unit: str) -> str:
    """An amount of a breakdown for people.

    >>> amount(2.0**30, "B"), amount(0.5, "s")
    ('1.00 GiB', '500 ms')
    """
    return gib(float(value)) if unit == "B" else text(float(value), unit)


def shares(p: Parts) -> Table:
    """The parts above a thousandth of the whole as a table: amount and share.

    >>> shares(Parts("A step, 3 s", {"a_b": 2.0, "c": 1.0, "d": 0.0})).rows
    [('a b', '2.00 s', '66.7 %'), ('c', '1.00 s', '33.3 %')]
    """
    kept, total = largest(p)
    return Table([(k, amount(v, p.unit), percent(v / total)) for k, v in kept], "lrr", p.title)


def largest(p: Parts) -> tuple[list[tuple[str, float]], float]:
    """The parts above a thousandth of the whole, largest first, at most `limit`; and the whole."""
    total = sum(float(v) for v in p.parts.values()) or 1.0
    kept = [(k.replace("_", " "), float(v)) for k, v in p.parts.items() if float(v) > 1e-3 * total]
    return sorted(kept, key=lambda kv: -kv[1])[: p.limit], total


def widths(t: Table) -> list[int]:
    """The width that each column needs, in characters."""
    cells = zip(*t.rows, strict=True) if t.rows else [()] * len(t.sides)
    return [min(max(map(len, column), default=0), LEAST) if side == "w" else max(map(len, column), default=0)
            for column, side in zip(cells, t.sides, strict=True)]  # fmt: skip


def width(t: Table) -> int:
    """The width of the whole table, in characters."""
    own = widths(t)
    return t.indent + sum(own) + GAP * (len(own) - 1)


def keep_columns(t: Table, kept: Iterable[int]) -> Table:
    """Some of its columns."""
    kept = list(kept)
    return t._replace(rows=[[r[i] for i in kept] for r in t.rows], sides="".join(t.sides[i] for i in kept))


def fit_width(t: Table, room: int) -> list[Block]:
    """A table made to fit `room` characters: spare columns are dropped (and named below), then it is split into several
    tables.

    >>> t = Table([("name", "long one", "other"), ("a", "1", "2")], "lrr", head=True, spare=("other",), indent=0)
    >>> [b.text if isinstance(b, Say) else b.rows[0] for b in fit_width(t, 16)]
    [['name', 'long one'], '(left out: other; a wider terminal, --json and --out have it)']
    """
    dropped = []
    for name in t.spare:
        if width(t) <= room:
            break
        if t.rows and name in t.rows[0]:
            at = list(t.rows[0]).index(name)
            t = keep_columns(t, (i for i in range(len(t.sides)) if i != at))
            dropped.append(name)
    told = (
        f"(left out: {', '.join(dropped)}; a wider terminal, --json and --out have {'them' if dropped[1:] else 'it'})"
        if dropped
        else ""
    )
    return [*_cut(t, room), *([Say(told, "faint")] if told else [])]


def _cut(t: Table, room: int) -> list[Block]:
    """Split a table that is too wide; each piece repeats the first columns."""
    if width(t) <= room or len(t.sides) <= t.stub + 1:
        return [t]
    most = len(t.sides) - 1
    while most > t.stub + 1 and width(keep_columns(t, range(most))) > room:
        most -= 1
    rest = keep_columns(t, (*range(t.stub), *range(most, len(t.sides))))._replace(title="")
    rest = rest._replace(rows=[row for row in rest.rows if any(row[t.stub :])])
    return [keep_columns(t, range(most)), BLANK, *_cut(rest, room)]
