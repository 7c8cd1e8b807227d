"""Where the values of a row come from: every one has a source, a date and a kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from rooflm.errors import RooflmError
from rooflm.readers.rows import DATA, FOLDERS, RawRow, convert, is_path, raw_row, row_label, rows_of

NOT_VALUES = ("aliases", "from", "cluster", "note", "source", "date")
"""Keys of a row that are not values: they need no source."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a value comes from. kind: vendor (printed by the maker), measured, inferred (the source says how)."""

    source: str
    date: str
    kind: Literal["vendor", "measured", "inferred"]


class Description(msgspec.Struct, forbid_unknown_fields=True, rename={"origin": "from"}):
    """Fields of any row that are not values. cluster: the cluster a device usually comes in."""

    aliases: list[str] = []
    note: str = ""
    source: str = ""
    cluster: str = ""
    origin: dict[str, str | Source] = {}


S = TypeVar("S", bound=Description)


def descriptive_fields(row: Mapping[str, Any], label: str, kind: type[S]) -> tuple[S, dict[str, Any]]:
    """Split a row into its description (source, date, note, ...) and its values."""
    names = {*kind.__struct_encode_fields__}
    about = convert({k: v for k, v in row.items() if k in names}, kind, label)
    return about, {k: v for k, v in row.items() if k not in names}


@lru_cache
def sources(kind: str) -> dict[str, RawRow]:
    """The sources that rows of a kind refer to by key (`_sources.toml` beside the rows), unparsed."""
    path = DATA / FOLDERS[kind] / "_sources.toml"
    return {row.name: row for row in rows_of(path)} if path.exists() else {}


@lru_cache(maxsize=4096)
def source_named(kind: str, key: str) -> Source | None:
    """One of `sources`; None where none has that key."""
    row = sources(kind).get(key)
    if row is None:
        return None
    return convert(row.parsed(), Source, f"{row.path.name}, source {key!r}")


def _leaves(value: object, path: str = "") -> Iterator[str]:
    """Paths of all values of a row: `l2.size`, `tiers.nvlink.latency` (list items that have a name go by it)."""
    items: list[tuple[str, object]] = []
    if isinstance(value, dict):
        items = [(key, item) for key, item in value.items() if path or key not in NOT_VALUES]
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
        items = [(str(item.get("name", index)), item) for index, item in enumerate(value)]
    else:
        yield path
    for key, item in items:
        yield from _leaves(item, f"{path}.{key}" if path else key)


def provenance(kind: str, name: str) -> dict[str, Source]:
    """Field path -> where its value comes from, for every value of a row.

    A row's `from` table maps a field (`l2.bandwidth`), a group of fields (`l2`) or `default` to a source: a key of
    `_sources.toml` or an inline {source, date, kind}; the longest match wins. A row may instead give one `source` and
    `date` for all of it (a model's config, an engine's fitted times). A user's file without either is its own source.

    >>> provenance("gpu", "a100")["peak.bf16"].kind
    'vendor'
    """
    row, canonical = raw_row(kind, name)
    whole = {"source": row.get("source", name), "date": row.get("date", ""), "kind": "inferred"}
    if kind == "model" and "source" in row:
        whole["kind"] = "vendor"
    origin = row.get("from", {"default": whole} if "source" in row or is_path(name) else {})
    if not isinstance(origin, dict):
        raise RooflmError(f"{row_label(kind, name)}: from is {origin!r}, but it must be a table of sources")

    def source_of(path: str) -> Source:
        """The source of the value at a path: its own, else that of the table around it, else the row's default."""
        pieces = path.split(".")
        keys = [".".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
        found = next((origin[key] for key in [*keys, "default"] if key in origin), None)
        if isinstance(found, dict):
            return convert(found, Source, f"{row_label(kind, name)}, source of {path}")
        known = source_named(kind, found) if isinstance(found, str) else None
        if known is None:
            raise RooflmError(f"{kind} {canonical!r}: {path} has no source, but every value must have one")
        return known

    return {path: source_of(path) for path in _leaves(row)}
