"""Engines by name: a row of data/engines/*.toml or a TOML file of the user's own. A row may build on another
(`base`)."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import msgspec

from rooflm import catalogue
from rooflm.engine import Engine
from rooflm.errors import RooflmError
from rooflm.residuals import parse

_UNITS = {
    "issue_prefill": "s", "eager": "s", "issue_decode": "s", "step": "s", "sequence": "s", "request": "s", "gap": "s",
    "expert_launch": "s", "moe_host": "s", "chunk_host": "s", "context": "bytes", "workspace": "bytes",
}  # fmt: skip
NOT_GIVEN = ("name", "residuals")
"""Fields of an engine that its row does not give: residuals stand in a table beside it."""
_TYPES: dict[str, Any] = {"Num": str | float | int, "bool": bool, "str": str}


@lru_cache
def _schema() -> type[Any]:
    own = [(f.name, _TYPES[str(f.type)] | None, None) for f in fields(Engine) if f.name not in NOT_GIVEN]
    extra: list[Any] = [("base", str | None, None), ("aliases", list[str], []), ("source", str | None, None),
                        ("note", str, "")]  # fmt: skip
    return msgspec.defstruct("EngineRow", own + extra, forbid_unknown_fields=True, kw_only=True)


@lru_cache
def load_engine(name: str) -> Engine:
    """An engine by name, alias or path. Raises RooflmError for unknown names and bad rows.

    >>> load_engine("ideal").step
    0.0
    """
    row, canonical = catalogue.raw_row("engine", name)
    label = catalogue.where("engine", name)
    typed: Any = catalogue.convert(row, _schema(), label)
    values: dict[str, Any] = {}
    for f in fields(Engine):
        given = getattr(typed, f.name, None)
        if f.name in NOT_GIVEN or given is None:
            continue
        if f.name in _UNITS or (isinstance(given, int | float) and not isinstance(given, bool)):
            given = catalogue.quantity(given, _UNITS.get(f.name, "s"), f"{label}: {f.name}", zero=True)
        elif f.type == "Num":
            raise RooflmError(f"{label}: {f.name} is {given!r}, but it must be a number")
        values[f.name] = given
    base = load_engine(typed.base) if typed.base else Engine(canonical)
    known = catalogue.beside(name, "residuals")
    if known is not None:
        values["residuals"] = parse(known, label)
    same = typed.base and not values.keys() - {"residuals"}  # but for these it is its base, on all cards
    return replace(base, name=base.name if same else canonical, **values)


def engine_names() -> list[str]:
    """Names of all engines, sorted."""
    return catalogue.names("engine")
