"""How far to trust a prediction: the band in which eight of ten measured values like it lie, and how many there are.

data/calibration/bands.toml holds the 10th and 90th percentile of measured over predicted time, by phase, engine row and
architecture of the device, of predictions whose own group of rows had no part in the fit (`rooflm_fit.bands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from rooflm.catalogue.engines import family_of
from rooflm.kernels.constants import ANY, read, text_of
from rooflm.units import Num

FEWEST = 20
"""Rows below which a set is not used: its percentiles say too little."""
LEVELS = (
    ("engine and generation", 1.0),
    ("engine", 1.4),
    ("other release, same generation", 2.0),
    ("other release", 4.5),
    ("other engines, same generation", 2.5),
    ("all rows", 3.5),
)
"""How near the rows are to the question, nearest first, and the power by which their band is widened (the logarithm of
its ends times so much: where nothing like the scenario was measured, more goes wrong than where it was). So that eight
of ten rows lie inside, of sources that no constant was fitted to and every source counting alike: MLC, exllamav2,
QServe, TinyChat's rivals, llama.cpp on Radeon, Apple and Arm, MLX, and others (docs/decisions/0052; 1.2 to 1.5 held
61 %)."""

DISTANCE = {"step": 0.55}
"""Share of that widening that a phase needs, where not all of it: constants of training steps mean the same in every
framework. Of rows of sources left out whole 79 % lie inside then, every source counting alike 82 %
(docs/decisions/0056; with all of it, all rows of most sources)."""


def widening(phase: str, power: float) -> float:
    """The power of one of LEVELS as it holds for a phase.

    >>> widening("decode", 2.0), widening("step", 2.0)
    (2.0, 1.55)
    """
    return 1.0 + (power - 1.0) * DISTANCE.get(phase, 1.0)


class Band(NamedTuple):
    """Measured over predicted time: low and high end of the band, number of rows, which of LEVELS."""

    low: Num
    high: Num
    rows: int
    level: str


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    phase: str
    engine: str = ANY
    architecture: str = ANY
    low: float
    high: float
    rows: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    band: tuple[_Row, ...] = ()


@cache
def _rows() -> dict[tuple[str, str, str], _Row]:
    return {(r.phase, r.engine, r.architecture): r for r in read(text_of("bands"), _File, "bands").band}


def asked(engine: str, architecture: str) -> tuple[tuple[str, str], ...]:
    """The sets of rows that a prediction may be like, in the order of LEVELS.

    >>> asked("vllm-2024", "hopper")[2]
    ('vllm*', 'hopper')
    """
    kin = f"{family_of(engine)}{ANY}"
    return (engine, architecture), (engine, ANY), (kin, architecture), (kin, ANY), (ANY, architecture), (ANY, ANY)


@cache
def band(phase: str, engine: str, architecture: str) -> Band | None:
    """The band of a prediction: phase "prefill", "decode", "request", "memory" or "step". None where no row exists.

    >>> found = band("decode", "no-such-engine", "no-such-generation")
    >>> found is not None and found.low < 1 < found.high
    True
    """
    for (name, wider), (who, where) in zip(LEVELS, asked(engine, architecture), strict=True):
        row = _rows().get((phase, who, where))
        if row is not None and (row.rows >= FEWEST or (who, where) == (ANY, ANY)):
            power = widening(phase, wider)
            return Band(row.low**power, row.high**power, row.rows, name)
    return None


def own_band(phase: str, off: Mapping[str, float]) -> Band | None:
    """The band of a calibrated machine, by its own runs kept aside (`hardware.Measured.off`), which nine of ten lie in.

    >>> own_band("decode", {"decode": 0.25, "cases": 12})
    Band(low=0.8, high=1.3333333333333333, rows=12, level='own runs')
    """
    if phase not in off:
        return None
    return Band(1 / (1 + off[phase]), 1 / (1 - min(off[phase], 0.9)), int(off.get("cases", 0)), "own runs")


def around(time: Num, found: Band, rate: bool = False) -> tuple[Num, Num]:
    """The band's ends around a predicted time (or, with `rate`, around what is inverse to a time).

    >>> around(10.0, Band(0.8, 1.25, 30, "engine")), around(10.0, Band(0.8, 1.25, 30, "engine"), rate=True)
    ((8.0, 12.5), (8.0, 12.5))
    """
    return (time / found.high, time / found.low) if rate else (time * found.low, time * found.high)
