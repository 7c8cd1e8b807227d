"""What both searches of serving read of their arguments before any point is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rooflm.asked.build_inference import build_inference, generating
from rooflm.asked.machine import find_cluster, rented_together
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.search.limits import Limit
from rooflm.search.space import Goal
from rooflm.search.splits import (
    GOALS,
    SHOWN,
    Split,
    assumptions_of,
    cards_to_search,
    counts_assumed,
    goal_of,
    gpu_totals,
    legal_splits,
    limits_of,
    listed,
    money_arguments,
    options_of,
)
from rooflm.sweep.axes import Axis, Point, find_axes

BOUNDS = ("ttft", "tpot", "latency", "cost", "throughput", "memory_margin", "under")
"""Arguments that are constraints."""


@dataclass(frozen=True)
class Request:
    """The arguments of a search of serving, read. arguments: those of `infer` that were given; free: the ones with
    several values; fixed: the ones with one; totals: numbers of GPUs; degrees: the values allowed of each degree;
    counts_note: what is assumed about the totals."""

    model: Model
    gpu: Any
    machine: Cluster
    arguments: dict[str, Any]
    free: list[Axis]
    fixed: Point
    goal: Goal
    bounds: dict[str, Any]
    limits: tuple[Limit, ...]
    totals: list[int]
    degrees: dict[str, Any]
    splits: list[Split]
    counts_note: tuple[str, ...]

    @property
    def first_gpu(self) -> Any:
        """The first card, or None if none was named."""
        return next(iter(listed(self.gpu)), None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Outputs to work out at every point: those shown, what is best, and a purchase price if it is limited."""
        further = (self.goal.key, *(("purchase_usd",) if self.bounds["under"] is not None else ()))
        return (*SHOWN, *(k for k in further if k not in SHOWN))

    def assumptions(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Assumptions of every card, engine and scheme. given: the other arguments of `infer`."""
        named = {"gpu": self.gpu, **{k: self.arguments.get(k) for k in ("engine", "quant")}}
        return (*assumptions_of(build_inference, given, **named), *self.counts_note)


def read_request(
    given: Mapping[str, Any], names: Sequence[str], command: str, sets: Mapping[str, Any] | None = None
) -> Request:
    """The arguments of a search, read; RooflmError for bad ones. given: all of its arguments; names: those that go to
    `infer` as they are; sets: inputs by path, beside the caller's own."""
    gpu = cards_to_search(given["gpu"], given["under"], given["purchase"])
    passed = {name: given[name] for name in names} | money_arguments(given)
    arguments = {k: v for k, v in passed.items() if v is not None} | options_of(given)
    if sets:
        arguments["sets"] = {**(arguments.get("sets") or {}), **sets}
    goal = goal_of(given["objective"], GOALS)
    bounds = {name: given[name] for name in BOUNDS}
    limits = limits_of(bounds)
    model = generating(given["model"], command)
    machine, _ = find_cluster(next(iter(listed(gpu)), None), given["cluster"])
    gpus, most = given["gpus"], given["gpus_max"]
    totals = gpu_totals(gpus, most, rented_together(machine))
    degrees = {name: given[name] for name in SERVED_DEGREES}
    splits = legal_splits(model, totals, degrees)
    free, fixed = find_axes({"model": given["model"], "gpu": gpu} | arguments)
    note = counts_assumed(gpus, most, totals, machine)
    return Request(
        model, gpu, machine, arguments, free, fixed, goal, bounds, limits, totals, degrees, splits, note
    )  # fmt: skip
