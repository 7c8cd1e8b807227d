"""Figures of an estimate: numbers, or dicts of them, worked out when they are first read; plain for a single point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, any_of

OUT_OF_MEMORY = "out of memory"
"""The reason that is no rule of a split."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device: parts sum to total; capacity is what may be used of it."""

    parts: dict[str, Num]
    total: Num
    capacity: Num

    @property
    def margin(self) -> Num:
        """Bytes left (negative: missing)."""
        return self.capacity - self.total


class Limits(NamedTuple):
    """Why a scenario cannot run: one flag a reason (arrays of bool)."""

    flags: dict[str, Num]

    @property
    def illegal(self) -> NDArray[Any]:
        """True where a rule of the split is broken, whatever the memory."""
        return np.asarray(any_of(flag for reason, flag in self.flags.items() if reason != OUT_OF_MEMORY))

    @property
    def broken(self) -> NDArray[Any]:
        """True where the scenario cannot run for any reason."""
        return np.asarray(any_of(self.flags.values()))

    @property
    def reason(self) -> Num:
        """The first reason that holds at each point, or an empty text."""
        names = ["", *self.flags]
        code: Num = np.zeros((), dtype=int)
        for index, flag in reversed(list(enumerate(self.flags.values(), start=1))):
            code = np.where(flag, index, code)
        return np.asarray(np.array(names)[np.asarray(code)])


def check(broken: Mapping[str, Num], used: Num, capacity: Num) -> Limits:
    """Limits of a scenario: the rules that it breaks (`rules.flags`), and whether it runs out of memory."""
    return Limits({**broken, OUT_OF_MEMORY: (used <= capacity) == 0})


NUMPY = (np.generic, np.ndarray)
HELD = (*NUMPY, dict, Memory)
"""Kinds of values that are, or hold, NumPy's numbers."""


def single(value: Any) -> Any:
    """NumPy scalars as Python numbers, also inside dicts and `Memory`; anything else unchanged.

    >>> single({"a": np.float64(0.5), "b": np.array(True)})
    {'a': 0.5, 'b': True}
    """
    if isinstance(value, dict):
        return {k: single(v) if isinstance(v, HELD) else v for k, v in value.items()}
    if isinstance(value, Memory):
        return Memory(single(value.parts), single(value.total), single(value.capacity))
    return value.item() if isinstance(value, NUMPY) and value.ndim == 0 else value


F = TypeVar("F", bound="Figures")


def figure(method: Callable[[F], Any]) -> cached_property[Any]:
    """A number (or a dict of them) of an estimate, worked out when it is first read."""

    @wraps(method)
    def read(e: F) -> Any:
        return e.plainly(method(e))

    return cached_property(read)


def read_off(path: str, meaning: str) -> cached_property[Any]:
    """A figure that stands in one of an estimate's records: where, from the estimate on, and what it means."""
    found = figure(attrgetter(path))
    found.__doc__ = meaning
    return found


class Figures:
    """What the figures of inference and training share."""

    scenario: Scenario
    limits: Limits
    gpus = read_off("scenario.mapping.devices", "GPUs of all ranks.")
    reason = read_off("limits.reason", "Why it cannot run: the first rule that a point breaks, or an empty text.")

    def __post_init__(self) -> None:
        """Numbers of a single point are plain Python numbers."""
        if self.scenario.axes == 0:
            self.__dict__.update({k: single(v) for k, v in self.__dict__.items() if isinstance(v, HELD)})

    def plainly(self, value: Any) -> Any:
        """A Python number where the scenario is a single point, else the array."""
        return single(value) if self.scenario.axes == 0 else value

    @figure
    def fits(self) -> Num:
        """Whether it keeps every rule and fits in memory."""
        return ~self.limits.broken
