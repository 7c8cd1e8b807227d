"""What formulas do to a number or an array of them alike. Inside the library every number is SI."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

Num = float | NDArray[Any]
"""A number or an array of numbers: every formula takes either."""

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30


def larger(a: Num, b: Num) -> Num:
    """The larger of two, element by element: `np.maximum`, but ten times as fast for plain numbers."""
    if type(a) is ndarray or type(b) is ndarray:
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Num, b: Num) -> Num:
    """The smaller of two, element by element: `np.minimum`, but ten times as fast for plain numbers."""
    if type(a) is ndarray or type(b) is ndarray:
        return np.minimum(a, b)
    return a if a < b else b


def pick(flag: Any, here: Num, there: Num) -> Num:
    """`np.where` of numbers; for a plain flag the one number itself."""
    if type(flag) is ndarray:
        return np.where(flag, here, there)
    return here if flag else there


LARGEST_POWER = 709.0
"""Largest x of which e^x is a double."""


def either(plain: Callable[[Any], float], arrays: Callable[[Any], Any]) -> Callable[[Num], Num]:
    """A function of a number or an array of them, several times as fast for plain numbers as NumPy's.

    >>> sqrt(4.0), sqrt(np.array([4.0])).tolist(), log1p(0.0), log2(8.0), expm1(1e3)
    (2.0, [2.0], 0.0, 3.0, inf)
    >>> ceil(1.5), ceil(2), ceil(math.inf), ceil(np.array([0.5])).tolist(), floor(1.5), floor(math.inf)
    (2.0, 2.0, inf, [1.0], 1.0, inf)
    """

    def call(value: Num) -> Num:
        return arrays(value) if type(value) is ndarray else plain(value)

    return call


log1p, log2, sqrt = either(math.log1p, np.log1p), either(math.log2, np.log2), either(math.sqrt, np.sqrt)
ceil = either(lambda x: float(math.ceil(x)) if math.isfinite(x) else x, np.ceil)
floor = either(lambda x: float(math.floor(x)) if math.isfinite(x) else x, np.floor)
expm1 = either(lambda x: math.expm1(x) if x < LARGEST_POWER else math.inf, np.expm1)

REAL = (int, float)
"""Kinds of a plain number (NumPy's own floats among them)."""


def highest(value: Num) -> Any:
    """The largest of an array, a plain number as it is: what chooses a kernel where it is one for all points."""
    return np.max(value) if isinstance(value, np.ndarray) else value


def common_shape(values: Iterable[Num]) -> tuple[int, ...]:
    """The shape to which the arrays among these broadcast: () of plain numbers.

    >>> common_shape([1.0, np.ones((2, 1)), np.ones(3)]), common_shape([1.0])
    ((2, 3), ())
    """
    shapes = {value.shape for value in values if isinstance(value, np.ndarray)}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


MANY = 4096
"""Elements from which on it pays to look for those that are alike."""
ALIKE = 24
"""Alike among the few of `_some_places` from which on it pays to find all: about where each stands for three."""


def once_each(formula: Callable[..., Num], *args: Num) -> Num:
    """formula(*args) of arrays and numbers, element by element, worked out once for elements whose arguments are the
    same: of a search's splits and batches most products have one of a few sizes (of a grid's hardly any: a look at some
    tells)."""
    shape = common_shape(args)
    if math.prod(shape) < MANY:
        return formula(*args)
    arrays = {i: np.broadcast_to(a, shape) for i, a in enumerate(args) if type(a) is ndarray and a.size > 1}
    some = _keys({i: a[_some_places(shape)] for i, a in arrays.items()})
    if len(some) - len(np.unique(some)) < ALIKE:
        return formula(*args)
    arrays = {i: a.ravel() for i, a in arrays.items()}
    keys = _keys(arrays)
    order = np.argsort(keys)
    first = np.diff(keys[order], prepend=np.nan) != 0
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.cumsum(first) - 1
    few = {i: a[order[first]] for i, a in arrays.items()}
    if not all(np.array_equal(few[i][place], a) for i, a in arrays.items()):
        return formula(*args)  # rounding made one key of two
    one = [few[i] if i in few else a.item() if type(a) is ndarray else a for i, a in enumerate(args)]
    return np.asarray(formula(*one))[place].reshape(shape)


def _keys(arrays: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
    """A number for each element of all these arrays, which differs where they do (but for rounding)."""
    top = {i: float(np.max(np.abs(a))) or 1.0 for i, a in arrays.items()}
    return np.asarray(sum(a * (math.sqrt(i + 2.0) / top[i]) for i, a in arrays.items()))


@lru_cache(maxsize=64)
def _some_places(shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    """Places, by chance, of as many elements of an array as twins are likely among where every element has a few."""
    size = math.prod(shape)
    drawn = np.random.default_rng(0).choice(size, 4 * math.isqrt(size), replace=False, shuffle=False)
    return np.unravel_index(drawn, shape)


def is_plain(value: object, number: float) -> bool:
    """True for the plain number itself, never for an array: what a choice of ops may hang on (a degree of 1, a width
    of 0). A list of such a number either falls out of the formulas or loops outside (`sweep.axes.CHOOSING`).

    >>> is_plain(1, 1), is_plain(2.0, 1), is_plain(np.array([1.0]), 1)
    (True, False, False)
    """
    return isinstance(value, REAL) and value == number


def any_of(flags: Iterable[Num]) -> Any:
    """True where any of these flags is: a plain flag of plain ones, else an array."""
    return reduce(or_, flags, False)
