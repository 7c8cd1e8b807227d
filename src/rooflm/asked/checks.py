"""Checks of values that a person wrote: whole numbers, amounts, words. Each raises RooflmError with one sentence."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.fields import LARGEST
from rooflm.errors import RooflmError
from rooflm.readers.tables import is_array, one_of
from rooflm.shown.numbers import plain_number
from rooflm.units import Num

HIGHEST = 1e30
"""No amount (tokens, seconds, joules, dollars) is larger."""


def whole(name: str, value: Any, least: int = 1, most: float = LARGEST) -> Num:
    """A whole number from `least` to `most` (or an array of them); RooflmError otherwise.

    >>> whole("tp", 8)
    8
    """
    if type(value) is int and least <= value <= most:
        return value
    if isinstance(value, bool) or not (is_array(value) or isinstance(value, int | float | np.number)):
        raise RooflmError(f"{name} is {value!r}, but it must be a whole number of at least {least}")
    flat = reals(name, value)
    bad = flat[~((flat == np.floor(flat)) & (flat >= least) & (flat <= most))]
    if bad.size:
        rule = f"at least {least}" + f" and at most {plain_number(most)}" * bool(np.any(bad > most))
        raise RooflmError(f"{name} is {plain_number(bad.flat[0])}, but it must be a whole number of {rule}")
    return flat if flat.ndim else int(flat)


def reals(name: str, value: Any) -> NDArray[np.float64]:
    """A number, or a list of them, as an array: the place where numbers of arguments enter.

    RooflmError for what is no number and for an integer that no float holds.
    """
    try:
        if not isinstance(value, str | bytes | bool) and np.asarray(value).dtype.kind in "iufO":
            return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise RooflmError(f"{name} is {repr(value)[:60]}, but it must be a number")


def amount(name: str, value: Any, above: bool = False, endless: bool = False) -> Any:
    """A finite number of at least 0, or above it (or an array of them); RooflmError otherwise. endless: it may be
    infinity too.

    >>> amount("rate", 2.5, above=True)
    2.5
    """
    flat = reals(name, value)
    good = ((flat > 0) if above else (flat >= 0)) & ((flat <= HIGHEST) | (endless & (flat == np.inf)))
    if not np.all(good):
        rule = f"{'above' if above else 'of at least'} 0" + f" and at most {HIGHEST:g}" * bool(np.any(flat > HIGHEST))
        raise RooflmError(f"{name} is {plain_number(flat[~good].flat[0])}, but it must be a number {rule}")
    return value


def choices(name: str, given: Any, known: Collection[str]) -> tuple[str, ...]:
    """Texts out of a list, from a list of them or a comma list."""
    names = tuple(given.split(",")) if isinstance(given, str) else tuple(given)
    return tuple(one_of(name, n, known) for n in names)
