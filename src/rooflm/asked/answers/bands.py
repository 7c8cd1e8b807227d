"""How far to trust a prediction: the band in which eight of ten measured values like it lie, how many there are, and
whose measured kernels stand in where a device has none of its own.

data/calibration/bands.toml holds the 10th and 90th percentile of measured over predicted time, by phase, engine row and
architecture of the device, of predictions whose own group of rows had no part in the fit (`rooflm_fit.bands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Derating, Device
from rooflm.catalogue.quant import Quant
from rooflm.kernels.constants import ANY, lookup, read, text_of
from rooflm.kernels.derating import card_file, derating
from rooflm.kernels.lookup import where
from rooflm.kernels.rates import rates_of
from rooflm.readers.engines import family_of
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Efficiency, Scenario
from rooflm.units import Num, larger, smaller

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

DISTANCE = {"step": 0.55, **dict.fromkeys(("prefill under load", "decode under load", "request under load"), 0.3)}
"""Share of that widening that a phase needs, where not all of it: constants of training steps mean the same in every
framework. Of rows of sources left out whole 79 % lie inside then, every source counting alike 82 %
(docs/decisions/0056; with all of it, all rows of most sources). Under load the next source differs more than the next
engine or card does: of 0, 0.15, 0.3, 0.45 and 1, 0.3 holds nearest to 80 % of sources left out in turn
(docs/decisions/0121)."""


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
    """The (engine, architecture) pairs whose error bands may serve a prediction, nearest first, in the order of LEVELS.

    >>> asked("vllm-2024", "hopper")[2]
    ('vllm*', 'hopper')
    """
    kin = f"{family_of(engine)}{ANY}"
    return (engine, architecture), (engine, ANY), (kin, architecture), (kin, ANY), (ANY, architecture), (ANY, ANY)


@cache
def band(phase: str, engine: str, architecture: str) -> Band | None:
    """The error band of a phase ("prefill", "decode", "request", "memory" or "step") for an engine and an architecture;
    None where the file has no row for it. No band is wider than that of all rows, widened as its level asks.

    >>> found = band("decode", "no-such-engine", "no-such-generation")
    >>> found is not None and found.low < 1 < found.high
    True
    """
    every = _rows().get((phase, ANY, ANY))
    for (name, wider), (who, on) in zip(LEVELS, asked(engine, architecture), strict=True):
        row = _rows().get((phase, who, on))
        if row is not None and every is not None and (row.rows >= FEWEST or row is every):
            power, most = widening(phase, wider), widening(phase, LEVELS[-1][1])
            low, high = max(row.low**power, every.low**most), min(row.high**power, every.high**most)
            return Band(low, high, row.rows, name)
    return None


def own_band(phase: str, off: Mapping[str, float]) -> Band | None:
    """The error band of a calibrated machine: from its own runs that were kept out of the calibration
    (`hardware.Measured.off`: 90th percentiles of their errors).

    >>> own_band("decode", {"decode": 0.25, "cases": 12})
    Band(low=0.8, high=1.3333333333333333, rows=12, level='own runs')
    """
    if phase not in off:
        return None
    return Band(1 / (1 + off[phase]), 1 / (1 - min(off[phase], 0.9)), int(off.get("cases", 0)), "own runs")


def around(time: Num, found: Band, rate: bool = False) -> tuple[Num, Num]:
    """The ends of a band around a predicted time, or with `rate` around a predicted rate, which is inverse to a time.

    >>> around(10.0, Band(0.8, 1.25, 30, "engine")), around(10.0, Band(0.8, 1.25, 30, "engine"), rate=True)
    ((8.0, 12.5), (8.0, 12.5))
    """
    return (time / found.high, time / found.low) if rate else (time * found.low, time * found.high)


OFFLOADED = 1.6
"""Power by which bands are wider where the host holds layers, adapters are served or texts embedded: nobody's runs of
that were fitted."""


def bands_around(s: Scenario, asked: Mapping[str, tuple[str, Num, Num]]) -> dict[str, dict[str, Any]]:
    """Error bands of several outputs. asked: output -> (phase, predicted time in s, and the share of it that the work
    takes at the device's peak). Returns output -> ends of the band (s), the lower one never below that share, and the
    number of published rows behind it; not-a-number and 0 rows where nothing was calibrated."""
    bands: dict[str, dict[str, Any]] = {}
    for key, (phase, value, roof) in asked.items():
        own = own_band(phase, s.cluster.device.measured.off) if s.cluster.device.measured else None
        found = own or band(phase, s.engine.runs, s.cluster.device.architecture)
        found = found if s.efficiency.mode == "calibrated" else None
        if found and found is not own:
            unseen = np.asarray(s.offload.layers + s.offload.experts + s.adapters.held + (not s.model.head)) > 0
            usual = s.offload.off and s.adapters.off and s.model.head
            doubt = s.engine.doubt * (1.0 if usual else np.where(unseen, OFFLOADED, 1.0))
            found = found._replace(low=found.low**doubt, high=found.high**doubt)
        low, high = around(value, found) if found else (value * np.nan, value * np.nan)
        low = larger(low, value * smaller(roof, 1.0)) if found else low
        bands[key] = {"low": low, "high": high, "rows": found.rows if found else 0}
    return bands


def whose_constants(s: Scenario, assumed: tuple[str, ...], *phases: str) -> tuple[str, ...]:
    """What was assumed, and beside "efficiency calibrated" whose constants and error bands stand in, where the device
    or the engine has none of its own."""
    told = "; ".join(filter(None, (standing_in(s), others_runs(s, *phases))))
    if not told:
        return assumed
    return tuple(f"{a} ({told})" if a == "efficiency calibrated" else a for a in assumed)


def borrowed(s: Scenario, *phases: str) -> list[str]:
    """The same without the names of a point's own card and engine, as it is told of many points.

    >>> from rooflm.asked.build_inference import build_inference
    >>> borrowed(build_inference("llama-7b", gpu="arc-b580").scenario, "decode")
    ['constants of all measured cards for want of its own', 'error bands of all engines and cards, wider']
    """
    constants, bands = (told.partition(":")[0] for told in (standing_in(s), others_runs(s, *phases)))
    return [*[f"{constants} for want of its own"] * bool(constants), *[bands] * bool(bands)]


WHOSE = {"other engines, same generation": "other engines on {generation} cards", "all rows": "all engines and cards"}
"""A level of LEVELS that is not of the engine, of any release -> whose runs, in words."""


def others_runs(s: Scenario, *phases: str) -> str:
    """In words, the engines and cards whose runs the error bands of these phases come from; "" where they are this
    engine's own, where there is no band, and for a list of devices.

    >>> from rooflm.asked.build_inference import build_inference
    >>> built = [build_inference(model="llama-7b", gpu="h100", engine=e) for e in ("vllm", "tgi")]
    >>> others_runs(built[0].scenario, "decode under load")
    ''
    >>> others_runs(built[1].scenario, "prefill", "decode")
    'error bands of other engines on hopper cards, wider: too few such runs of tgi'
    """
    device, engine = s.cluster.device, s.engine
    if not isinstance(device.architecture, str) or device.measured or s.efficiency.mode != "calibrated":
        return ""
    found = [b.level for phase in phases if (b := band(phase, engine.runs, device.architecture))]
    nearest = min(found, key=[name for name, _ in LEVELS].index, default="")
    whose = WHOSE.get(nearest, "").format(generation=device.architecture)
    return f"error bands of {whose}, wider: too few such runs of {engine.name}" if whose else ""


def standing_in(s: Scenario) -> str:
    """In words, the cards whose measured kernels stand in for a device that has none of its own; "" where it has, and
    for a list of devices.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [standing_in(build_inference(model="llama-7b", gpu=name).scenario) for name in ("h100", "arc-b580")]
    ['', 'constants of all measured cards: none of arc-b580 was measured']
    """
    return _standing_in(s.cluster.device, s.engine, s.quant, s.efficiency)


def own_row(device: Device) -> bool:
    """Whether the calibration has factors fitted to runs on this very card, or on the card whose kernels it takes.

    >>> from rooflm.readers.devices import load_device
    >>> own_row(load_device("rtx-4090")), own_row(load_device("rtx-4060"))
    (True, False)
    """
    return any(row.gpu in (device.name, device.kernels_from) for row in card_file().card)


@kept
def _standing_in(device: Device, engine: Engine, scheme: Quant, efficiency: Efficiency) -> str:
    """`standing_in` of the parts of a scenario."""
    plain = isinstance(device.name, str) and efficiency.mode == "calibrated" and bool(engine.kernels.whose)
    if plain and not device.measured and device.inferred:
        return f"constants of {device.kernels_from}: none of {device.name} was measured"
    if not plain or device.measured or device.derating is not None or own_row(device):
        return ""
    r = rates_of(device, scheme, efficiency)
    w = where(device, engine, scheme, r)
    for dtype in (w.quant, w.half):
        _, found, on = lookup("gemm", w.gpu, w.generation, w.kernels, dtype).row.note.rpartition("measured on ")
        if found:
            return "" if on == w.gpu else f"constants of {on}: none of {device.name} was measured"
    level = lookup("gemm", w.gpu, w.generation, w.kernels, w.half).level
    kin = {"generation": f"{w.generation} cards", "all": "all measured cards"}.get(level)
    if kin and derating(device, engine.runs) != Derating():
        kin = f"other {device.product_family} cards"
    return f"constants of {kin}: none of {device.name} was measured" if kin else ""
