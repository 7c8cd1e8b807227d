"""How quantities are written in pictures: labels with units, numbers for people, linear or logarithmic axes, ticks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.outputs import INFER_OUTPUTS, Output, Outputs, like_keys, meant
from rooflm.errors import RooflmError
from rooflm.plots.picture import SIZE

Array = NDArray[Any]
WIDE = 8.0
"""Factor that values must span before a logarithmic axis serves them."""
DECADES = 20.0
"""Factor from which on small values would be lost on a linear axis, or among a map's darkest colours."""


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
    """The axis along which points stand: label and values (numbers or names); time: a course over time."""

    label: str
    values: tuple[Any, ...]
    time: bool = False

    @property
    def numeric(self) -> bool:
        """True when the values are numbers."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def log(self) -> bool:
        """True when the values grow by factors (1, 2, 4, 8), not by steps (1, 2, 3, 4)."""
        return self.numeric and not self.time and by_factors(self.values)

    @property
    def ticks(self) -> list[str]:
        """The values as text."""
        return [number(v) if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in self.values]


def by_factors(values: Sequence[float]) -> bool:
    """Whether values span eight-fold or more and lie more evenly on a logarithmic axis than on a linear one.

    >>> by_factors([1, 8, 64]), by_factors(range(1, 9)), by_factors([1, 2])
    (True, False, False)
    """
    at = np.unique(np.asarray(values, dtype=float))
    if len(at) < 3 or at[0] <= 0 or at[-1] < WIDE * at[0]:
        return False
    spread = [float(np.std(gaps) / np.mean(gaps)) for gaps in (np.diff(np.log(at)), np.diff(at))]
    return spread[0] < spread[1]


def number(value: Any) -> str:
    """A number as it was given: whole ones below a million in full, others with at most four digits that matter.

    >>> number(16384), number(0.5), number(2e12), number(128), number(4096)
    ('16,384', '0.5', '2T', '128', '4096')
    """
    whole = 1e4 <= abs(float(value)) < 1e6 and float(value) == int(value)
    return f"{int(value):,}" if whole else prefixed(value)


def prefixed(value: Any) -> str:
    """A number with at most four digits that matter, large ones with a prefix.

    >>> prefixed(16384), prefixed(128)
    ('16.4k', '128')
    """
    size = abs(float(value))
    steps = ((1e15, 1e15, "P"), (1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
    for limit, factor, prefix in steps:
        if size >= limit:
            return f"{float(value) / factor:.3g}{prefix}"
    return f"{float(value):.4g}" if size >= 1000 or float(value) == int(float(value)) else f"{float(value):.3g}"


def cell(value: float, scale: Scale) -> str:
    """A value short enough for a cell of a map.

    >>> cell(0.04321, Scale("time (s)")), cell(99.7, Scale("busy (%)", percent=True))
    ('0.043', '100')
    """
    if scale.percent:
        return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    if abs(value) >= 1e4:
        return prefixed(value)
    return f"{value:.0f}" if abs(value) >= 100 else (f"{value:.1f}" if abs(value) >= 1 else f"{value:#.2g}")


def grouped(value: str) -> str:
    """How Vega writes a number of an axis, as `number` does: thousands apart from 10,000 on. value: its expression."""
    return f"format({value}, abs({value}) >= 1e4 ? ',.4~r' : '.4~r')"


def percent_top(most: float, room: float = 1.0) -> float:
    """Where a range of per cents ends: at 100 if they come near it, else at the largest, with room above.

    >>> percent_top(70.0), percent_top(5.0)
    (100.0, 5.0)
    """
    return 100.0 if most > 60 else most * room or 1.0


def round_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis that encloses low and high: 1, 2, 5, 10, ..., powers of ten alone over many decades.

    >>> round_ticks(0.3, 12), round_ticks(1e-6, 1)
    ([0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [1e-06, 1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0])
    """
    steps = (1,) if high / low > 3e4 else (1, 2, 5)
    start, end = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    at = [float(f"{s}e{p}") for p in range(start, end + 1) for s in steps]
    first = max(v for v in at if v <= low * (1 + 1e-9))
    last = min(v for v in at if v >= high * (1 - 1e-9))
    return [v for v in at if first <= v <= last]


def even_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many ticks of a linear axis between low and high, at multiples of 1, 2 or 5 times a power of ten.

    >>> even_ticks(13.9, 122)
    [20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * power for s in (1, 2, 5, 10) if (high - low) / (s * power) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def thinned(values: Sequence[float], pixels: float, log: bool = True) -> list[float]:
    """Those of the values that can be ticks of an axis so many pixels long without their labels touching.

    >>> thinned([1, 2, 4], 300, log=False), thinned([1000, 1001, 2000], 300, log=False)
    ([1.0, 2.0, 4.0], [1000.0, 2000.0])
    """
    at = sorted(set(map(float, values)))
    place = np.log(at) if log else np.asarray(at)
    along = (place - place[0]) / ((place[-1] - place[0]) or 1.0) * pixels
    kept: list[int] = []
    for i, value in enumerate(at):
        label = 0.6 * SIZE * (len(number(value)) + 1)
        if not kept or along[i] - along[kept[-1]] >= label + 6:
            kept.append(i)
    return [at[i] for i in kept]


SHARES = ("mfu", "mfu_causal", "hfu", "mbu", "prefill_mfu", "decode_mbu", "busy", "bubble_fraction", "goodput")
"""Outputs that people read in per cent."""
COUNTED = ("tokens", "requests")
"""What a rate is of, as the names of outputs say."""


def scale_of(key: str, values: Array, outputs: Outputs = INFER_OUTPUTS) -> Scale:
    """How to write the values of an output: milliseconds, GiB, per cent, and a logarithmic axis where they span much.

    >>> scale_of("tpot_s", np.array([0.01, 0.02])).label
    'time per output token, mean over the output (ms)'
    """
    root = key.split(".")[0]
    row = outputs.get(root) or Output(root, key.replace("_", " "), "", str)
    meaning, unit = re.sub(r" \(of a model that embeds[^)]*\)", "", row.meaning), row.unit
    if "." in key:
        meaning = f"{meaning}: {key.split('.', 1)[1].replace('_', ' ')}"
    real = values[np.isfinite(values)] if values.dtype.kind == "f" else values.astype(float).reshape(-1)
    top = float(np.max(real, initial=0.0))
    positive = real[real > 0]
    log = positive.size > 0 and len(positive) == len(real) and top >= DECADES * float(positive.min())
    top = math.sqrt(top * float(positive.min())) if log else top  # of a wide range the unit of its middle
    if unit == "s":
        factor, word = (1 / 3600, "h") if top >= 2 * 3600 else unit_of(top)
        return Scale(f"{meaning} ({word})", factor, log)
    if unit == "B":
        steps = ((2.0**-40, "TiB"), (2.0**-30, "GiB"), (2.0**-20, "MiB"), (2.0**-10, "KiB"))
        factor, word = next((s for s in steps if top * s[0] >= (2.0 if s[1] == "TiB" else 0.1)), (1.0, "B"))
        return Scale(f"{meaning} ({word})", factor, log)
    if root in SHARES:
        return Scale(f"{meaning} (%)", 100.0, False, True)
    counted = next((what for what in COUNTED if unit == "1/s" and what in root), "1")
    word = "" if unit == "1" else unit.replace("1/s", f"{counted}/s")
    return Scale(f"{meaning} ({word})" if word else meaning, 1.0, log)


def unit_of(top: float) -> tuple[float, str]:
    """Factor and unit in which times up to this one are drawn.

    >>> unit_of(3.0), unit_of(0.5), unit_of(1e-4)
    ((1.0, 's'), (1000.0, 'ms'), (1000000.0, 'µs'))
    """
    return (1.0, "s") if top >= 2 else ((1e3, "ms") if top >= 2e-3 else (1e6, "µs"))


def check_value(key: str, known: Any) -> str:
    """The output to plot: that of the name, in full or short as in --outputs; RooflmError with near names otherwise.

    >>> check_value("tpot", ["tpot_s", "tpot_end_s"]), check_value("tokens_per_s", ["output_tokens_per_s"])
    ('tpot_s', 'output_tokens_per_s')
    """
    found = key if key in known else meant(key, known)
    if found is None:
        raise RooflmError(f"--plot-value is {key!r}, which the answer does not have: {like_keys(key, known)}")
    return found


def share_of(v: Any, ends: tuple[float, float], log: bool) -> Array:
    """Where values lie between the ends of an axis or of a range of colours, 0 to 1."""
    low, high = ends
    return np.asarray(np.log(v / low) / math.log(high / low) if log else (v - low) / (high - low))
