"""How far to trust a prediction: the band in which eight of ten measured values lie that are as far from what constants
were fitted to, how many those are, and whose measured kernels stand in where a device has none of its own.

data/calibration/bands.toml holds the 10th and 90th percentile of measured over predicted time, by phase and distance,
and which engines' constants were fitted to runs on which generations of cards (`rooflm_fit.bands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rooflm.catalogue.abilities import listed
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Derating, Device
from rooflm.catalogue.quant import Quant
from rooflm.kernels.constants import lookup, read, text_of
from rooflm.kernels.derating import card_file, derating
from rooflm.kernels.lookup import where
from rooflm.kernels.rates import rates_of
from rooflm.readers.engines import family_of
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Efficiency, Scenario
from rooflm.units import Num, larger, smaller

DISTANCES = ("near", "kin", "far")
"""How far a scenario lies from the runs that constants were fitted to. near: some are of its engine on its generation
of cards; kin: some are of a release of its engine and some of its generation, none of both; far: none is of its engine,
or none of its generation, or something else of it was never fitted (a part on the host, adapters, embeddings;
conditions that nobody states)."""


class Band(NamedTuple):
    """Measured over predicted time: low and high end of the band, number of rows, which of DISTANCES."""

    low: Num
    high: Num
    rows: int
    distance: str


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    phase: str
    distance: str
    low: float
    high: float
    rows: int
    sources: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fitted: dict[str, dict[str, str]] = {}
    band: tuple[_Row, ...] = ()


Known = frozenset[tuple[str, str, str]]
"""An engine, one of its releases, and a generation of cards on which runs of that release were fitted."""


@cache
def fitted() -> Known:
    """What the constants that ship were fitted to.

    >>> ("vllm", "vllm-2024", "hopper") in fitted()
    True
    """
    families = read(text_of("bands"), _File, "bands").fitted
    return frozenset((f, engine, g) for f, rows in families.items() for engine, on in rows.items() for g in on.split())


@cache
def unknown(engine: str, generation: str, known: Known) -> tuple[bool, bool]:
    """Whether no run of an engine, of any release, was fitted; and none on a generation of cards.

    >>> known = frozenset({("vllm", "vllm", "hopper")})
    >>> unknown("tgi", "hopper", known), unknown("vllm-2024", "volta", known)
    ((True, False), (False, True))
    """
    return family_of(engine) not in {family for family, _, _ in known}, generation not in {on for _, _, on in known}


def distance(engine: str, generation: str, known: Known) -> str:
    """Which of DISTANCES lies between an engine on a generation of cards and those that are known.

    >>> known = frozenset({("vllm", "vllm", "hopper"), ("mlc", "mlc", "ada")})
    >>> [distance(*at, known) for at in (("vllm", "hopper"), ("vllm", "ada"), ("x", "ada"))]
    ['near', 'kin', 'far']
    """
    if (family_of(engine), engine, generation) in known:
        return "near"
    return "far" if any(unknown(engine, generation, known)) else "kin"


@cache
def band(phase: str, engine: str, generation: str, far: bool = False) -> Band | None:
    """The error band of a phase ("prefill", "decode", "request", each also " under load", "memory" or "step") for an
    engine and a generation of cards; far: whatever these are. None where the file has none.

    >>> found = band("decode", "no-such-engine", "no-such-generation")
    >>> found is not None and found.low < 1 < found.high
    True
    """
    where = "far" if far else distance(engine, generation, fitted())
    for row in read(text_of("bands"), _File, "bands").band:
        if (row.phase, row.distance) == (phase.replace("request", "decode"), where):
            return Band(row.low, row.high, row.rows, where)
    return None


def own_band(phase: str, off: Mapping[str, float]) -> Band | None:
    """The error band of a calibrated machine: from its own runs that were kept out of the calibration
    (`hardware.Measured.off`: 90th percentiles of their errors).

    >>> own_band("decode", {"decode": 0.25, "cases": 12})
    Band(low=0.8, high=1.3333333333333333, rows=12, distance='own runs')
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


def bands_around(s: Scenario, asked: Mapping[str, tuple[str, Num, Num]]) -> dict[str, dict[str, Any]]:
    """Error bands of several outputs. asked: output -> (phase, predicted time in s, and the share of it that the work
    takes at the device's peak). Returns output -> ends of the band (s), the lower one never below that share, and the
    number of published rows behind it; not-a-number and 0 rows where nothing was calibrated."""
    bands: dict[str, dict[str, Any]] = {}
    device, away = s.cluster.device, s.offload
    usual = away.off and s.adapters.off and s.model.head
    odd = False if usual else away.layers + away.experts + s.adapters.held + (not s.model.head) > np.zeros(())
    for key, (phase, value, roof) in asked.items():
        measured_band = own_band(phase, device.measured.off) if device.measured else None
        chosen_band = measured_band or band(phase, s.engine.runs, device.architecture)
        if s.efficiency.mode != "calibrated" or chosen_band is None:
            bands[key] = {"low": value * np.nan, "high": value * np.nan, "rows": 0}
            continue
        far = band(phase, "", "", far=True)
        if far and chosen_band is not measured_band and np.any(odd):
            chosen_band = chosen_band._replace(
                low=np.where(odd, far.low, chosen_band.low), high=np.where(odd, far.high, chosen_band.high)
            )
        low, high = around(value, chosen_band)
        bands[key] = {"low": larger(low, value * smaller(roof, 1.0)), "high": high, "rows": chosen_band.rows}
    return bands


def whose_constants(s: Scenario, assumed: tuple[str, ...]) -> tuple[str, ...]:
    """What was assumed. To "efficiency calibrated" it adds whose constants stand in where the device has none, and what
    of the scenario no fitted run covers, so that its error bands are wider."""
    notes = "; ".join(filter(None, (standing_in(s), not_fitted(s))))
    if not notes:
        return assumed
    return tuple(f"{a} ({notes})" if a == "efficiency calibrated" else a for a in assumed)


def borrowed(s: Scenario) -> list[str]:
    """The same for many points, without the names of their cards and engines.

    >>> from rooflm.asked.build_inference import build_inference
    >>> borrowed(build_inference("llama-7b", gpu="arc-b580").scenario)
    ['constants of all measured cards for want of its own', 'wider error bands for want of fitted runs']
    """
    constants, bands = (told.partition(":")[0] for told in (standing_in(s), not_fitted(s)))
    told = {"its own": constants, "fitted runs": bands}
    return [f"{what} for want of {whose}" for whose, what in told.items() if what]


def not_fitted(s: Scenario) -> str:
    """In words, what of a scenario no run has that constants were fitted to; "" where some run has its engine and its
    generation of cards, where there is no band, and for a list of devices.

    >>> from rooflm.asked.build_inference import build_inference
    >>> built = [build_inference(model="llama-7b", gpu="h100", engine=e) for e in ("vllm", "tgi")]
    >>> [not_fitted(b.scenario) for b in built]
    ['', 'wider error bands: no run of tgi was fitted']
    """
    device, engine = s.cluster.device, s.engine
    on = device.architecture
    if not isinstance(on, str) or device.measured or s.efficiency.mode != "calibrated" or not engine.kernels.whose:
        return ""
    where = distance(engine.runs, on, fitted())
    of, cards = f"of {engine.name}", f"on {on or 'such'} cards"
    lacks = [text for text, gone in zip((of, cards), unknown(engine.runs, on, fitted()), strict=True) if gone]
    if where == "kin":  # of another release there may be some
        others = any((family, on) == (family_of(engine.runs), g) for family, _, g in fitted())
        of = f"of this release of {engine.name}" if others else of
    lacks = {"near": [], "kin": [f"{of} {cards}"]}.get(where, lacks)
    return f"wider error bands: no run {' and none '.join(lacks)} was fitted" if lacks else ""


def standing_in(s: Scenario) -> str:
    """In words, the cards whose measured kernels stand in for a device that has none of its own; "" where it has, and
    for a list of devices.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [standing_in(build_inference(model="llama-7b", gpu=name).scenario) for name in ("h100", "arc-b580")]
    ['', 'constants of all measured cards: none of arc-b580 was measured']
    """
    return _standing_in(s.cluster.device, s.engine, s.quant, s.efficiency)


def own_row(device: Device) -> bool:
    """Whether the calibration has factors fitted to runs on this very card, or on the card whose kernels it takes,
    alone or with others of its family.

    >>> from rooflm.readers.devices import load_device
    >>> [own_row(load_device(name)) for name in ("rtx-4090", "rtx-4060", "mi300x")]
    [True, False, True]
    """
    names = {device.name, device.kernels_from}
    return any(row.gpu in names or names & {*listed(row.cards)} for row in card_file().card)


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
        _, cards, on = lookup("gemm", w.gpu, w.generation, w.kernels, dtype).row.note.rpartition("measured on ")
        if cards:
            return "" if on == w.gpu else f"constants of {on}: none of {device.name} was measured"
    level = lookup("gemm", w.gpu, w.generation, w.kernels, w.half).level
    kin = {"generation": f"{w.generation} cards", "all": "all measured cards"}.get(level)
    if kin and derating(device, engine.runs, engine.kernels.sums) != Derating():
        kin = f"other {device.product_family} cards"
    return f"constants of {kin}: none of {device.name} was measured" if kin else ""
