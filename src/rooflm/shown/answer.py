"""Base class of answers: how they print in a terminal and a notebook, and their values as plain names and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block, Say, listed
from rooflm.shown.numbers import text_range, value_text
from rooflm.shown.terminal import plain as plain_text
from rooflm.units import Num

if TYPE_CHECKING:
    import pandas


class Answer:
    """An answer that prints itself: in a few lines, in full, and as HTML in a notebook."""

    def lines(self) -> list[str]:
        """The answer in at most four lines."""
        raise NotImplementedError

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The whole answer, verdict first. verbose: also the details behind it."""
        return [Say(line) for line in self.lines()]

    def to_dict(self) -> dict[str, Any]:
        """The answer in plain Python values, ready for `json.dumps`."""
        raise NotImplementedError

    def plot(self, path: str | None = None, kind: str | None = None) -> Any:
        """The picture that `rooflm.plot` draws of this answer. path: also write it there; kind: as for
        `--plot-kind`."""
        return plotting().estimate(self, path, kind)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def __str__(self) -> str:
        """As the command line prints it."""
        return plain_text([*self.blocks(), *assumptions(self)])

    def _repr_html_(self) -> str:
        """The same for a notebook, parts as bars, and folded below them every number."""
        from rooflm.shown.notebook import html

        rows = {k: value_text(v) for k, v in flatten(self.to_dict()).items()}
        return html([*self.blocks(), *assumptions(self)], rows)


def plotting() -> Any:
    """The public module `rooflm.plot`, imported late because it depends on the answers."""
    return import_module(__name__.partition(".")[0]).plot


def assumptions(answer: Any) -> list[Block]:
    """What an answer assumes, as one paragraph."""
    return [BLANK, *listed("assumed", answer.assumed)] if answer.assumed else []


def same(a: Any, b: Any) -> bool:
    """Whether two outputs are equal; NaN equals NaN."""
    x, y = np.asarray(a), np.asarray(b)
    return np.array_equal(x, y, equal_nan=x.dtype.kind == "f" and y.dtype.kind == "f")


def broadcast(flat: Mapping[str, Any]) -> dict[str, Any]:
    """All values broadcast to their common shape."""
    return dict(zip(flat, np.broadcast_arrays(*flat.values()), strict=True))


def timespan(value: Num) -> str:
    """A time for people; of an array its range.

    >>> timespan(0.0331), timespan(np.array([0.5, 2.0]))
    ('33.1 ms', '500 ms to 2.00 s')
    """
    return text_range(value, "s")


def data_frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """Columns as a pandas.DataFrame; RooflmError where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise RooflmError("to_pandas needs pandas: pip install 'rooflm[parquet]'") from None
    return pd.DataFrame(dict(columns))


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as dotted names.

    >>> flatten({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`.

    >>> unflatten({"a": 1, "b.c": 2})
    {'a': 1, 'b': {'c': 2}}
    """
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        node = nested
        for group in groups:
            node = node.setdefault(group, {})
        node[leaf] = value
    return nested


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NumPy numbers and arrays become Python ones, NaN and infinity become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
