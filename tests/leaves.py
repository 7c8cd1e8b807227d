"""Every value of a scenario by its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def leaves(node: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every number, flag or word below a scenario."""
    below: Mapping[str, Any] = {}
    if is_dataclass(node):
        below = {f.name: getattr(node, f.name) for f in fields(node)}
    elif isinstance(node, dict):
        below = node
    elif isinstance(node, tuple):
        below = {str(i): value for i, value in enumerate(node)}
    for name, value in below.items():
        if isinstance(value, int | float | str):
            yield f"{at}{name}", value
        else:
            yield from leaves(value, f"{at}{name}.")


def numbers(scenario: Any) -> Iterator[tuple[str, float]]:
    """Path and value of every number of a scenario that a grid may vary."""
    for path, value in leaves(scenario):
        if not isinstance(value, bool | str) and not path.endswith("axes"):
            yield path, value
