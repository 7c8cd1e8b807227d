"""What a picture shows, as plain data: title, axes, units and numbers, ready for any drawing library.

plots.py chooses the picture from the shape of the answer; plots_mpl.py and plots_html.py draw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError, near_matches
from rooflm.estimate.inference_results import INFER_OUTPUTS
from rooflm.estimate.results import Output, Outputs

Array = NDArray[Any]

OKABE_ITO = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#8C6D1F",
    "#000000",
    "#999999",
    "#F0E442",
)
"""Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008; the yellow last, two greys and a
brown added)."""


MOST_MARKED = 80
"""Most points of a line that get a marker each; longer lines differ by their strokes."""


@dataclass(frozen=True)
class Scale:
    """How a quantity is written: label with unit, factor from SI, and whether its axis is better logarithmic."""

    label: str
    factor: float = 1.0
    log: bool = False
    percent: bool = False

    @property
    def heading(self) -> str:
        """The label without its unit, as a heading."""
        text = self.label.rsplit(" (", 1)[0]
        return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Side:
    """An axis of a picture: label, tick values (numbers or names) and whether its values are numbers; time: a course
    over time, whose axis is never logarithmic."""

    label: str
    values: tuple[Any, ...]
    time: bool = False

    @property
    def numeric(self) -> bool:
        """True when the values are numbers."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def spread(self) -> bool:
        """True when the values span a factor of eight or more, so that a logarithmic axis serves them."""
        return self.numeric and not self.time and min(self.values) > 0 and max(self.values) >= 8 * min(self.values)

    @property
    def ticks(self) -> list[str]:
        """The values as text."""
        return [number(v) if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in self.values]


@dataclass(frozen=True)
class Panel:
    """One map of a heat map: rows are y, columns x; `why` says in a word why a cell has no value."""

    title: str
    cells: Array
    why: Array


@dataclass(frozen=True)
class HeatMap:
    """Panels over the same two axes, coloured by one value."""

    title: str
    x: Side
    y: Side
    scale: Scale
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Series:
    """One line: y over x, not-a-number where it cannot run."""

    name: str
    y: Array


@dataclass(frozen=True)
class Lines:
    """Values over one numeric axis, a line for each of the others' points, in panels."""

    title: str
    x: Side
    scale: Scale
    panels: tuple[tuple[str, tuple[Series, ...]], ...]
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Stacked bars: parts (name -> a value a bar); `limits`: a line across each bar; `marks`: a word above it."""

    title: str
    labels: tuple[str, ...]
    scale: Scale
    parts: dict[str, Array]
    limits: Array | None = None
    limit_name: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cloud:
    """Points of one group of a scatter: x, y, a label each, and for a roofline their share of the time."""

    name: str
    x: Array
    y: Array
    labels: tuple[str, ...] = ()
    weight: Array | None = None


@dataclass(frozen=True)
class Roof:
    """One bound of a roofline: performance over arithmetic intensity."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Roofline:
    """Operations as points under the roofs of their device."""

    title: str
    roofs: tuple[Roof, ...]
    clouds: tuple[Cloud, ...]


@dataclass(frozen=True)
class Front:
    """A trade-off: clouds of legal points, and each cloud's Pareto front as a line."""

    title: str
    x: Scale
    y: Scale
    clouds: tuple[Cloud, ...]
    fronts: tuple[Array, ...]


Picture = HeatMap | Lines | Bars | Roofline | Front


def number(value: Any) -> str:
    """A number with at most three digits that matter and a prefix for large ones.

    >>> number(16384), number(0.5), number(2e12), number(128)
    ('16.4k', '0.5', '2T', '128')
    """
    size = abs(float(value))
    steps = ((1e15, 1e15, "P"), (1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
    for limit, factor, prefix in steps:
        if size >= limit:
            return f"{float(value) / factor:.3g}{prefix}"
    return f"{float(value):.4g}" if size >= 1000 or float(value) == int(float(value)) else f"{float(value):.3g}"


SHARES = ("mfu", "mfu_causal", "hfu", "mbu", "prefill_mfu", "decode_mbu", "busy", "bubble_fraction", "goodput")
"""Outputs that people read in per cent."""


def scale_of(key: str, values: Array, outputs: Outputs = INFER_OUTPUTS) -> Scale:
    """How to write the values of an output: milliseconds, GiB, per cent, and a logarithmic axis where they span much.

    >>> scale_of("tpot_s", np.array([0.01, 0.02])).label
    'time per output token, mean over the output (ms)'
    """
    root = key.split(".")[0]
    row = outputs.get(root) or Output(root, key.replace("_", " "), "", str)
    meaning, unit = row.meaning, row.unit
    if "." in key:
        meaning = f"{meaning}: {key.split('.', 1)[1].replace('_', ' ')}"
    real = values[np.isfinite(values)] if values.dtype.kind == "f" else values.astype(float).reshape(-1)
    top = float(np.max(real, initial=0.0))
    positive = real[real > 0]
    log = positive.size > 0 and len(positive) == len(real) and top >= 20 * float(positive.min())
    if unit == "s":
        factor, word = (1.0, "s") if top >= 2 else ((1e3, "ms") if top >= 2e-3 else (1e6, "µs"))
        return Scale(f"{meaning} ({word})", factor, log)
    if unit == "B":
        factor, word = (2.0**-30, "GiB") if top >= 0.1 * 2**30 else (2.0**-20, "MiB")
        return Scale(f"{meaning} ({word})", factor, log)
    if root in SHARES:
        return Scale(f"{meaning} (%)", 100.0, False, True)
    word = {"1/s": "1/s", "1": "", "": ""}.get(unit, unit)
    return Scale(f"{meaning} ({word})" if word else meaning, 1.0, log)


def check_value(key: str, known: Any) -> str:
    """The output to plot, if the answer has it; RooflmError with near names otherwise."""
    if key not in known:
        near = near_matches(key, known) or [k for k in ("latency_s", "tpot_s", "output_tokens_per_s") if k in known]
        tail = f"did you mean {' or '.join(map(repr, near))}?"
        raise RooflmError(f"--plot-value is {key!r}, which the answer does not have: {tail}")
    return key
