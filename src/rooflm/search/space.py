"""The space of a search: what is best, the grids to cover, and a point of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rooflm.sweep.axes import Axis, Point


class Goal(NamedTuple):
    """What is best: an output and whether less of it is better; and the two outputs whose trade-off is shown."""

    name: str
    key: str
    less: bool
    trade: tuple[tuple[str, bool], tuple[str, bool]]

    def score(self, values: Mapping[str, Any]) -> Any:
        """The number to minimise."""
        return values[self.key] if self.less else -values[self.key]


class Grid(NamedTuple):
    """One grid of the space: its axes and fixed arguments. named: fixed inputs to show with an answer."""

    axes: tuple[Axis, ...]
    fixed: Point
    named: tuple[str, ...] = ("gpu", "engine", "quant", "schedule", "recompute")


class Candidate(NamedTuple):
    """A point: the inputs chosen and the resulting outputs. simulated: these are a simulation's, not the estimate's."""

    inputs: dict[str, Any]
    outputs: dict[str, float]
    simulated: bool = False

    @property
    def flat(self) -> dict[str, Any]:
        """Both in one, rows of a catalogue by their names."""
        return {**{k: getattr(v, "name", v) for k, v in self.inputs.items()}, **self.outputs}
