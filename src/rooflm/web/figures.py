"""Pictures of the page: those of `rooflm.plots`, as Vega-Lite specifications for the browser."""

from __future__ import annotations

from typing import Any

from rooflm.web.blocks import Figure


def roofline(e: Any) -> list[Figure]:
    return []


def served(runs: Any, ttft: Any, tpot: Any) -> list[Figure]:
    return []


def front(found: Any) -> list[Figure]:
    return []


def compared(names: Any, made: Any) -> list[Figure]:
    return []


def heat(grid: Any, key: str, name: str) -> list[Figure]:
    return []
