"""Get and replace a field by a dotted path ("mapping.tp", "cluster.device.dram.bandwidth") in frozen dataclasses.

The command line's --set, sweep axes, search variables and sensitivities all name inputs this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from rooflm.errors import RooflmError, near_matches
from rooflm.readers.tables import is_array


def _children(node: Any) -> list[str]:
    """Names that may follow in a path below this node."""
    if is_dataclass(node):
        kind: Any = type(node)
        return _names(kind)
    if isinstance(node, dict):
        return list(node)
    if isinstance(node, tuple):
        if hasattr(node, "_fields"):
            return list(node._fields)
        return [str(i) for i in range(len(node))]
    return []


@cache
def _names(kind: type) -> list[str]:
    """The same of any record of a kind."""
    return list(dict.fromkeys([*(f.name for f in fields(kind)), *getattr(kind, "places", {})]))


def _places(node: Any) -> Mapping[str, str]:
    """Name -> path below a node, for what stands deeper but goes by its own name too (`Engine.places`)."""
    return getattr(type(node), "places", {})


def _step(node: Any, name: str, path: str) -> Any:
    """One step down the path; raises RooflmError naming the path, the bad piece and the near matches."""
    children = _children(node)
    if name not in children:
        longer = list(_longer(node, path))[:3] if path.startswith(name) else []
        near = longer or near_matches(name, children)
        there = f"there {'are ' + ', '.join(children[:8]) if children else 'is nothing below it'}"
        there = f"did you mean {' or '.join(map(repr, near))}?" if near else there
        raise RooflmError(f"unknown path {path!r} at {name!r}: {there}")
    return _child(node, name)


def _longer(node: Any, path: str, deep: int = 2) -> Iterator[str]:
    """Paths below a node that end in one which begins too late.

    >>> from rooflm.catalogue.hardware import Memory
    >>> list(_longer({"device": {"dram": Memory(80e9, 2e12)}}, "dram.bandwidth"))
    ['device.dram.bandwidth']
    """
    for name in _children(node):
        below = _child(node, name)
        if _has(below, path):
            yield f"{name}.{path}"
        elif deep:
            yield from (f"{name}.{longer}" for longer in _longer(below, path, deep - 1))


def _has(node: Any, path: str) -> bool:
    """Whether a path exists below a node."""
    first, _, rest = path.partition(".")
    return first in _children(node) and (not rest or _has(_child(node, first), rest))


def _child(node: Any, name: str) -> Any:
    """What stands one step below."""
    if isinstance(node, dict):
        return node[name]
    if isinstance(node, tuple) and name.isdigit():
        return node[int(name)]
    for step in (name if hasattr(node, name) else _places(node)[name]).split("."):
        node = getattr(node, step)
    return node


def found(root: Any, path: str) -> tuple[Any, str]:
    """What holds the field at a path, and the field's name there. Raises RooflmError for a path that does not exist.

    >>> from rooflm.catalogue.engine import Engine
    >>> owner, name = found(Engine("x"), "kernels")
    >>> type(owner).__name__, name, found(Engine("x"), "step")[1]
    ('Kernels', 'whose', 'step')
    """
    node = root
    *above, last = path.split(".")
    for name in above:
        node = _step(node, name, path)
    *above, last = _places(node).get(last, last).split(".")
    for name in above:
        node = getattr(node, name)
    _step(node, last, path)
    return node, last


def get(root: Any, path: str) -> Any:
    """The value at a path. Raises RooflmError for a path that does not exist.

    >>> from rooflm.catalogue.hardware import Memory
    >>> get(Memory(80e9, 2e12), "bandwidth")
    2000000000000.0
    """
    owner, name = found(root, path)
    return _step(owner, name, path)


def in_full(root: Any, path: str) -> str:
    """A path that exists, without a short name at its end.

    >>> from rooflm.catalogue.engine import Engine
    >>> in_full({"engine": Engine("x")}, "engine.step")
    'engine.host.step'
    """
    above, dot, last = path.rpartition(".")
    return above + dot + _places(get(root, above) if above else root).get(last, last)


def put(root: Any, path: str, value: Any) -> Any:
    """A copy of `root` with the value at the path replaced; everything else is shared.

    Raises RooflmError for an unknown path or a value of the wrong kind (text for a number, a number for a text).

    >>> from rooflm.catalogue.hardware import Memory
    >>> put(Memory(80e9, 2e12), "bandwidth", 3e12).bandwidth
    3000000000000.0
    """
    return _put(root, path, value, path)


def _put(root: Any, path: str, value: Any, whole: str) -> Any:
    """`put` of what is left of a path, which errors name as a whole."""
    if path in _places(root):
        path = _places(root)[path]
    head, _, rest = path.partition(".")
    old = _step(root, head, whole)
    new = _put(old, rest, value, whole) if rest else _checked(old, value, whole)
    if isinstance(root, dict):
        return {**root, head: new}
    if hasattr(root, "_replace"):
        return root._replace(**{head: new})
    if isinstance(root, tuple):
        return (*root[: int(head)], new, *root[int(head) + 1 :])
    return replace(root, **{head: new})


def _checked(old: Any, value: Any, path: str) -> Any:
    """The value, if it is of the kind that the field holds."""
    if old is None:
        raise RooflmError(f"{path} is not there, and no single value makes it: give a file that has it")
    if is_dataclass(old) or isinstance(old, dict | tuple):
        inside = ", ".join(f"{path}.{c}" for c in _children(old)[:6])
        raise RooflmError(f"{path} is not a single value: set one of {inside}")
    if isinstance(old, bool):
        if isinstance(value, bool):
            return value
        raise RooflmError(f"{path} is {value!r}, but it must be true or false")
    if isinstance(old, str):
        if isinstance(value, str):
            return value
        raise RooflmError(f"{path} is {value!r}, but it must be a name such as {old!r}")
    if is_array(value) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise RooflmError(f"{path} is {value!r}, but it must be a number")
