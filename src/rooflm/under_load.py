"""Constants of the newest engines, fitted to measurements under load: data/calibration/serving.toml, [fit.*].

An engine's row, times factors of the card (all device times, prompts, host time a sequence) and of the release (these,
host time a step, a request). They serve `infer` and the serving simulator alike, so that one client alone sees what
`infer` says.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from rooflm.engine import Engine


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
