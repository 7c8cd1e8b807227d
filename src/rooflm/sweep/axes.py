"""A list given anywhere makes an axis: arguments -> axes, and the arrays that they become.

The rule, stated once: numbers (sizes, rates, degrees) broadcast inside one evaluation, one array dimension an axis;
names (models, GPUs, clusters, engines, quantisation schemes, efficiency modes, other text) are structural: they loop
outside and are joined; so are the few numbers that choose something (`CHOOSING`). Zipped axes share one dimension:
their first values go together, then their second ones; one structural member makes the whole axis structural.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError

Point = dict[str, Any]

CHOOSING = re.compile(
    r"quant\..*|.*\.(head_dim|head_kept|value_dim|latent|shared_width|q_rank|index_topk)"
    r"|(training\.)?(lora_rank|base_bits)|training\.(mtp|packed_square)"
    r"|engine\.(kernels\.)?(bf16_share|bf16_experts|dequant)"
)
"""Inputs whose numbers choose something, so that they do not broadcast: data types (widths of a scheme), a fitted
kernel (head sizes), or whether ops exist at all (0: no latent, no shared expert, no indexer, no adapters, no packing,
no layers that predict ahead, no share or conversion of its own; 16: a base that is not narrow). Degrees of 1 are no
such choice: their ops fall out."""


class Axis(NamedTuple):
    """A named list of values, and the axes zipped to it (of the same length, on the same dimension)."""

    name: str
    values: tuple[Any, ...]
    partners: tuple[Axis, ...] = ()

    @property
    def members(self) -> tuple[Axis, ...]:
        """The axis and its partners."""
        return (self, *self.partners)

    @property
    def structural(self) -> bool:
        """True when it cannot broadcast: values that are no numbers, or numbers that choose a structure."""
        return any(CHOOSING.fullmatch(a.name) or not _are_numbers(a.values) for a in self.members)


def _are_numbers(values: tuple[Any, ...]) -> bool:
    """Whether no value is a name: by the kinds of value that there are, for an axis may have a hundred thousand."""
    return all(issubclass(kind, int | float | np.number) and kind is not bool for kind in set(map(type, values)))


LISTS = (list, tuple, range)


def is_list(value: Any) -> bool:
    """Whether a value makes an axis: a list, tuple, range or one-dimensional array."""
    return isinstance(value, LISTS) or (isinstance(value, np.ndarray) and value.ndim == 1)


def columns(value: Any) -> Any:
    """A table column (pandas, polars, Arrow) as a list; other values unchanged.

    >>> columns((1, 2)), columns("a100")
    ((1, 2), 'a100')
    """
    listed = getattr(value, "to_list", None) or getattr(value, "to_pylist", None)
    return listed() if listed else value


P = ParamSpec("P")
T = TypeVar("T")


def accept_columns(call: Callable[P, T]) -> Callable[P, T]:
    """Decorator: arguments of the call may be columns of tables."""

    @wraps(call)
    def read(*given: P.args, **named: P.kwargs) -> T:
        return call(*map(columns, given), **{k: columns(v) for k, v in named.items()})

    return read


def find_axes(arguments: Mapping[str, Any]) -> tuple[list[Axis], Point]:
    """The axes among the arguments (those inside `sets` by their path), and the arguments that do not vary.

    `zip`: groups of names whose lists go in step: [("gpu", "tp")], or one group ("gpu", "tp").
    Raises RooflmError for an empty list, one with None, a value twice (unless zipped), and zips that do not match.

    >>> find_axes({"batch": [1, 8], "tp": 2})
    ([Axis(name='batch', values=(1, 8), partners=())], {'tp': 2})
    >>> axes, _ = find_axes({"gpu": ["a100", "h100"], "tp": [4, 2], "zip": [("gpu", "tp")]})
    >>> axes[0].name, axes[0].partners[0].values
    ('gpu', (4, 2))
    """
    listed: list[Axis] = []
    fixed: Point = {}
    flat = {k: v for k, v in arguments.items() if k not in ("sets", "zip")} | dict(arguments.get("sets") or {})
    for name, value in flat.items():
        if not is_list(value):
            fixed[name] = value
            continue
        values = tuple(v.item() if isinstance(v, np.generic) else v for v in value)
        if not values:
            raise RooflmError(f"{name} is an empty list: give at least one value")
        if None in values:
            raise RooflmError(f"{name} is a list with None: give each of its values, or no list for the default")
        listed.append(Axis(name, values))
    axes = _zipped(listed, arguments.get("zip"))
    for axis in axes:
        if not axis.partners and len(set(map(str, axis.values))) != len(axis.values):
            raise RooflmError(f"{axis.name} has a value twice: each value of an axis must differ")
    return axes, fixed


def _zipped(axes: list[Axis], groups: Any) -> list[Axis]:
    """The axes with each group joined to its first member. Groups name lists as Python or as options (micro-batch)."""
    if groups is None or (isinstance(groups, str | list | tuple) and not groups):  # an array has no truth
        return axes
    named = {a.name: a for a in axes}
    if isinstance(groups, str):
        groups = [name.strip() for name in groups.split(",")]
    listed = [groups] if isinstance(groups, list | tuple) and isinstance(groups[0], str) else groups
    if not isinstance(listed, list | tuple) or not all(isinstance(n, str) for g in listed for n in _members(g)):
        raise RooflmError(f"zip is {repr(groups)[:60]}, but it must be names of lists, such as ('gpu', 'tp')")
    leads: dict[str, Axis] = {}
    followers: set[str] = set()
    for group in (tuple(n if n in named else n.replace("-", "_") for n in g) for g in listed):
        if len(group) < 2:
            raise RooflmError(f"zip is {','.join(group)!r}, but it must name at least two lists, such as gpu,tp")
        for name in group:
            if name not in named:
                lists = f"lists are {', '.join(named)}" if named else "give each of its names a list"
                raise RooflmError(f"zip names {name!r}, but it is not a list: {lists}")
            if name in leads or name in followers:
                raise RooflmError(f"zip names {name!r} twice: a list can be in one zip only")
        lengths = {name: len(named[name].values) for name in group}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{n} {k}" for k, n in lengths.items())
            raise RooflmError(f"zip of {','.join(group)} needs lists of one length, but they have {sizes} values")
        leads[group[0]] = named[group[0]]._replace(partners=tuple(named[n] for n in group[1:]))
        followers |= set(group[1:])
    return [leads.get(a.name, a) for a in axes if a.name not in followers]


def _members(group: Any) -> Iterable[Any]:
    """The names of a group; of what is no list, itself."""
    return group if isinstance(group, list | tuple) else (None,)


def column_name(output: str, axes: Iterable[Axis]) -> str:
    """Name of an output next to the axes; an output with the name of an axis gets a suffix (GPUs asked for, GPUs used).

    >>> column_name("gpus", [Axis("gpus", (4, 8))]), column_name("tpot_s", [Axis("gpus", (4, 8))])
    ('gpus_used', 'tpot_s')
    """
    return f"{output}_used" if any(m.name == output for a in axes for m in a.members) else output


def nest(point: Point) -> Point:
    """Arguments as the request builders take them: dotted names are moved into `sets`."""
    sets = {k: v for k, v in point.items() if "." in k}
    rest = {k: v for k, v in point.items() if "." not in k}
    return {**rest, "sets": sets} if sets else rest


def grids(axes: Iterable[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Structural and numeric axes, in the order given."""
    listed = list(axes)
    return [a for a in listed if a.structural], [a for a in listed if not a.structural]


def points(axes: Iterable[Axis]) -> Iterator[Point]:
    """Every combination of the axes' values.

    >>> list(points([Axis("gpu", ("a100", "h100")), Axis("tp", (1,))]))
    [{'gpu': 'a100', 'tp': 1}, {'gpu': 'h100', 'tp': 1}]
    """
    listed = list(axes)
    for places in itertools.product(*(range(len(a.values)) for a in listed)):
        yield {m.name: m.values[i] for a, i in zip(listed, places, strict=True) for m in a.members}


def shape_of(axes: Iterable[Axis]) -> tuple[int, ...]:
    """The shape of the grid."""
    return tuple(len(a.values) for a in axes)


def size_of(axes: Iterable[Axis]) -> int:
    """Points of the grid.

    >>> size_of([Axis("batch", (1, 8)), Axis("tp", (1, 2, 4))])
    6
    """
    return math.prod(shape_of(axes))


def numeric_point(axes: Sequence[Axis]) -> Point:
    """Each numeric axis as an array with one dimension an axis: length n in its own, 1 elsewhere.

    >>> {k: v.shape for k, v in numeric_point([Axis("batch", (1, 8, 64)), Axis("tp", (1, 2))]).items()}
    {'batch': (3, 1), 'tp': (1, 2)}
    """
    n = len(axes)
    return {a.name: _column(a.values, i, n) for i, axis in enumerate(axes) for a in axis.members}


def _column(values: tuple[Any, ...], place: int, n: int) -> NDArray[Any]:
    return np.array(values, dtype=float).reshape((1,) * place + (len(values),) + (1,) * (n - place - 1))
