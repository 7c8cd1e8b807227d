"""How far to trust a prediction: the band in which four of five measured values lie that are as far from what constants
were fitted to, how many those are, and whose measured kernels stand in where a device has none of its own.

data/calibration/bands.toml holds the 10th and 90th percentile of measured over predicted time, by phase and distance,
and which engines' constants were fitted to runs on which kinds of cards (`rooflm_fit.bands`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rooflm.asked.assumed import attention_dp
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.hardware import Derating, Device
from rooflm.catalogue.quant import Quant
from rooflm.kernels.collectives import NETWORKS
from rooflm.kernels.constants import lookup, read, text_of
from rooflm.kernels.derating import card_file, derating
from rooflm.kernels.lookup import setting
from rooflm.readers.engines import family_of
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Efficiency, Scenario
from rooflm.units import Num, any_of, larger, pick, smaller

DISTANCES = ("near", "far", "experts")
"""How far a scenario lies from the runs that constants were fitted to. near: some are of this release of its engine on
this kind of cards (`kind_of`); far: none is, or a part of it was never fitted (PARTS), or its conditions are not
stated; experts: some that train, or that a network joins (`exchanged`), as what reaches them is rarely stated."""
PARTS = {
    "cpu_layers": ("offload.layers", "with layers on the host"),
    "cpu_experts": ("offload.experts", "with experts on the host"),
    "adapters": ("adapters.held", "with adapters beside the model"),
    "guesses": ("speculation.guesses", "that guesses tokens"),
    "prefill_replicas": ("", "with servers of prompts alone"),
}
"""Argument of a part that no fitted run has -> the scenario's field (none: it has none), and words."""
_HAS = [(attrgetter(path), words) for path, words in PARTS.values() if path]
OVER = "of experts over more than one node"


def exchanged(s: Scenario) -> Num:
    """Whether a model of experts is trained, or served by more devices than anything but a network joins."""
    joined = [tier.size for tier in s.cluster.tiers if tier.kind not in NETWORKS]
    m, trained = s.mapping, s.engine.phase != "inference"
    over = trained | (m.tp * m.pp * m.cp * m.dp > (joined[-1] if joined else 1))
    return np.asarray(attention_dp(s.model) & over)


class Band(NamedTuple):
    """Measured over predicted time: low and high end of the band, number of rows, which of DISTANCES."""

    low: Num
    high: Num
    rows: int
    distance: str


class BandRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of bands.toml: ends of the band, the rows behind it and how many sources have them."""

    phase: str
    distance: str
    low: float
    high: float
    rows: int
    sources: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fitted: dict[str, dict[str, tuple[str, ...]]] = {}
    band: tuple[BandRow, ...] = ()


Known = frozenset[tuple[str, str, str]]
"""An engine, one of its releases, and a kind of cards on which runs of that release were fitted."""


def kind_of(device: Device) -> str:
    """Cards that are alike: the line of products and the generation.

    >>> from rooflm.readers.devices import load_device
    >>> [kind_of(load_device(name)) for name in ("h200", "rtx-5090", "apple-m2-8core-8gb")]
    ['datacenter hopper', 'geforce blackwell', 'apple-m2']
    """
    line, generation = device.product_family, device.architecture
    return generation if generation.startswith(line) else f"{line} {generation}"


@cache
def _file() -> _File:
    """data/calibration/bands.toml."""
    return read(text_of("bands"), _File, "bands")


@cache
def fitted() -> Known:
    """What the constants that ship were fitted to.

    >>> ("vllm", "vllm-2024", "datacenter hopper") in fitted()
    True
    """
    families = _file().fitted
    return frozenset((f, engine, on) for f, rows in families.items() for engine, kinds in rows.items() for on in kinds)


@cache
def distance(engine: str, cards: str, known: Known) -> str:
    """Which of DISTANCES lies between an engine on a kind of cards and those that are known.

    >>> known = frozenset({("vllm", "vllm", "datacenter hopper"), ("mlc", "mlc", "geforce ada")})
    >>> [distance("vllm", on, known) for on in ("datacenter hopper", "geforce ada")]
    ['near', 'far']
    """
    return "near" if (family_of(engine), engine, cards) in known else "far"


@cache
def band(phase: str, engine: str, cards: str, where: str = "") -> Band | None:
    """The error band of a phase ("prefill", "decode", "request", each also " under load", "memory" or "step") for an
    engine and a kind of cards; where: at this distance whatever these are (experts: of servers, where a batch has none,
    else that of what is far). None where the file has none.

    >>> found = band("decode", "no-such-engine", "no such cards")
    >>> found is not None and found.low < 1 < found.high
    True
    """
    where, phase = where or distance(engine, cards, fitted()), phase.replace("request", "decode")
    rows = {(row.phase, row.distance): row for row in _file().band}
    for key in ((phase, where), (f"{phase} under load", where), (phase, "far")):
        if row := rows.get(key):
            return Band(row.low, row.high, row.rows, row.distance)
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


def parts_of(s: Scenario, split: bool = False) -> dict[str, Num]:
    """What a scenario has that no fitted run has, in words -> where it has it. split: its prompts have servers of their
    own."""
    told, served = {words: of(s) > 0 for of, words in _HAS}, s.engine.phase == "inference"
    told |= {PARTS["prefill_replicas"][1]: split, "that embeds": not s.model.head, OVER: served and exchanged(s)}
    return {words: here for words, here in told.items() if (here if isinstance(here, bool) else np.any(here))}


def bands_around(
    s: Scenario, asked: Mapping[str, tuple[str, Num, Num]], split: bool = False
) -> dict[str, dict[str, Any]]:
    """Error bands of several outputs. asked: output -> (phase, predicted time in s, and the share of it that the work
    takes at the device's peak); split: as of `parts_of`. Returns output -> ends of the band (s), the lower one never
    below that share, and the number of published rows behind it; not-a-number and 0 rows where nothing was
    calibrated."""
    bands: dict[str, dict[str, Any]] = {}
    device, odd = s.cluster.device, any_of(parts_of(s, split).values())
    for key, (phase, value, roof) in asked.items():
        measured_band = own_band(phase, device.measured.off) if device.measured else None
        chosen_band = measured_band or band(phase, s.engine.runs, kind_of(device))
        if s.efficiency.mode != "calibrated" or chosen_band is None:
            bands[key] = {"low": value * np.nan, "high": value * np.nan, "rows": 0}
            continue
        for here, where in (odd, "far"), (exchanged(s), "experts"):
            wider = band(phase, "", "", where)
            if wider and chosen_band is not measured_band and np.any(here):
                ends = (wider.low, chosen_band.low), (wider.high, chosen_band.high)
                chosen_band = chosen_band._replace(low=pick(here, *ends[0]), high=pick(here, *ends[1]))
        low, high = around(value, chosen_band)
        bands[key] = {"low": larger(low, value * smaller(roof, 1.0)), "high": high, "rows": chosen_band.rows}
    return bands


def whose_constants(s: Scenario, assumed: tuple[str, ...], split: bool = False) -> tuple[str, ...]:
    """What was assumed. To "efficiency calibrated" it adds whose constants stand in where the device has none, and what
    of the scenario no fitted run covers, so that its error bands are wider. split: as of `parts_of`."""
    notes = "; ".join(filter(None, (standing_in(s), not_fitted(s, split))))
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


def not_fitted(s: Scenario, split: bool = False) -> str:
    """In words, what of a scenario no run has that constants were fitted to; "" where some run has it all, where
    there is no band, and for a list of devices. split: as of `parts_of`.

    >>> from rooflm.asked.build_inference import build_inference
    >>> built = [build_inference(model="llama-7b", gpu="h100", engine=e) for e in ("vllm", "tgi")]
    >>> [not_fitted(b.scenario) for b in built]
    ['', 'wider error bands: no run of tgi was fitted']
    """
    device, engine = s.cluster.device, s.engine
    plain = isinstance(device.architecture, str) and s.efficiency.mode == "calibrated" and bool(engine.kernels.whose)
    if not plain or device.measured:
        return ""
    lacks = [*_strange(device, engine), *parts_of(s, split)]
    return f"wider error bands: no run {' and none '.join(lacks)} was fitted" if lacks else ""


@kept
def _strange(device: Device, engine: Engine) -> tuple[str, ...]:
    """The same of its card and engine alone."""
    on, family = kind_of(device), family_of(engine.runs)
    if distance(engine.runs, on, fitted()) == "near":
        return ()
    releases = [(release, kind) for f, release, kind in fitted() if f == family]
    strange = [f"of {engine.name}"] * (not releases)
    strange += [f"on {on} cards"] * (on not in {kind for _, _, kind in fitted()})
    others = any(kind == on for _, kind in releases)
    apart = f"of {'this release of ' * others}{engine.name} on {on} cards"  # each was fitted, but not together
    return tuple(strange or [apart])


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
    return any(row.gpu in names or names & {*words_in(row.cards)} for row in card_file().card)


@kept
def _standing_in(device: Device, engine: Engine, scheme: Quant, efficiency: Efficiency) -> str:
    """`standing_in` of the parts of a scenario."""
    plain = isinstance(device.name, str) and efficiency.mode == "calibrated" and bool(engine.kernels.whose)
    if plain and not device.measured and device.inferred:
        return f"constants of {device.kernels_from}: none of {device.name} was measured"
    if not plain or device.measured or device.derating is not None or own_row(device):
        return ""
    w, _ = setting(device, engine, scheme, efficiency)
    for dtype in (w.quant, w.half):
        _, cards, on = lookup("gemm", w.gpu, w.generation, w.kernels, dtype).row.note.rpartition("measured on ")
        if cards:
            return "" if on == w.gpu else f"constants of {on}: none of {device.name} was measured"
    level = lookup("gemm", w.gpu, w.generation, w.kernels, w.half).level
    kin = {"generation": f"{w.generation} cards", "all": "all measured cards"}.get(level)
    if kin and derating(device, engine.runs, engine.kernels.sums) != Derating():
        kin = f"other {device.product_family} cards"
    return f"constants of {kin}: none of {device.name} was measured" if kin else ""
