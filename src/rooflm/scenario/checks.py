"""Checks of values that a person wrote: whole numbers, amounts, words. Each raises RooflmError with one sentence."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from rooflm.catalogue.fields import one_of, shown
from rooflm.errors import RooflmError
from rooflm.units import Num, is_array


def whole(name: str, value: Any, least: int = 1) -> Num:
    """A whole number of at least `least` (or an array of them); RooflmError otherwise.

    >>> whole("tp", 8)
    8
    """
    if type(value) is int and value >= least:
        return value
    if isinstance(value, bool) or not (is_array(value) or isinstance(value, int | float | np.number)):
        raise RooflmError(f"{name} is {value!r}, but it must be a whole number of at least {least}")
    flat = np.asarray(value, dtype=float)
    bad = flat[~(np.isfinite(flat) & (flat == np.floor(flat)) & (flat >= least))] if flat.ndim else None
    if bad is None:
        number = float(flat)
        if not (math.isfinite(number) and number == math.floor(number) and number >= least):
            raise RooflmError(f"{name} is {shown(value)}, but it must be a whole number of at least {least}")
        return int(number)
    if bad.size:
        raise RooflmError(f"{name} is {shown(bad.flat[0])}, but it must be a whole number of at least {least}")
    return flat


def amount(name: str, value: Any) -> Any:
    """A finite number of at least 0 (or an array of them); RooflmError otherwise."""
    flat = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(flat)) or np.any(flat < 0):
        raise RooflmError(f"{name} is {shown(np.min(flat))}, but it must be a number of at least 0")
    return value


def choices(name: str, given: Any, known: Collection[str]) -> tuple[str, ...]:
    """Texts out of a list, from a list of them or a comma list."""
    names = tuple(given.split(",")) if isinstance(given, str) else tuple(given)
    return tuple(one_of(name, n, known) for n in names)
