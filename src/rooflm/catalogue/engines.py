"""Engines by name: a row of data/engines/*.toml or a TOML file of the user's own. A row may build on another
(`base`)."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.residuals import parse
from rooflm.errors import RooflmError

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


@lru_cache
def settings() -> dict[str, Any]:
    """data/calibration/serving.toml: documented server options, and constants fitted to measurements under load."""
    text = resources.files("rooflm").joinpath("data/calibration/serving.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)
    return found


def tuned(engine: Engine, gpu: str, release: str = "") -> Engine:
    """The engine with its constants for a card and a release; itself where none was fitted.

    >>> tuned(Engine("nobody"), "h100-sxm-80gb") == Engine("nobody")
    True
    """
    row = settings().get("fit", {}).get(engine.name)
    if row is None:
        return engine
    known = {f.name for f in fields(engine)}
    own: dict[str, Any] = {k: float(v) for k, v in row.items() if k in known}
    for part in (row.get("cards", {}).get(gpu, {}), row.get("releases", {}).get(release, {})):
        for name, factor in part.items():
            own[name] = own.get(name, getattr(engine, name)) * float(factor)
    own["request"] = own.get("request", engine.request) + float(row.get("front", 0.0))  # alone, a request pays both
    return replace(engine, **own)


def front_end(engine: str) -> float:
    """Serial seconds a request of an engine's front end (0 where none was fitted)."""
    return float(settings().get("fit", {}).get(engine, {}).get("front", 0.0))
