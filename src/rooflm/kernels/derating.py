"""What a card reaches of its datasheet where no kernel of it was measured: data/calibration/devices.toml.

Kernel constants are shares of datasheet rates, fitted on data-centre cards of NVIDIA. Consumer cards, AMD's and Apple's
follow their datasheets in other ways, so factors a card (and engine) scale its rates before the formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import msgspec

from rooflm.catalogue.hardware import Derating, Device
from rooflm.errors import RooflmError
from rooflm.kernels.blend import smooth_max
from rooflm.kernels.constants import ANY, lookup, read, text_of
from rooflm.units import Num, larger, smaller

ROWS = 292.0
"""Rows of a product that fill the card with tiles of poor kernels: more take no longer until usual kernels do."""
POOR_FLOPS, INNER_POWER, SM_COLUMNS = 1e14, 0.7, 16.0
"""FLOP/s over 8192 inner values of a poor kernel where `few` is 1; power by which a longer inner dimension, left whole,
takes longer still; columns that each SM costs besides, as the last of its tiles are partly empty (decision 132)."""


def few_rows_time(usual: Num, rows: Num, columns: Num, inner: Num, few: Num, sms: Num) -> Num:
    """Seconds of a product where kernels for few rows are poor: (usual³ + (few F/POOR_FLOPS)³)^(1/3), F = 2 rows / (1 +
    (rows/292)⁴)^(1/4) (columns + 16 SMs) inner (inner/8192)^0.7: inner stays whole, columns and few rows fill few SMs.

    usual: s of the fitted kernel. In place of kernels nobody measured (rocBLAS on MI300X in 2024: 3 % of its peak)."""
    flops = 2.0 * rows * (columns + SM_COLUMNS * sms) * inner * (inner / 8192.0) ** INNER_POWER
    return smooth_max(3.0, usual, few * flops / POOR_FLOPS / (1.0 + (rows / ROWS) ** 4) ** 0.25)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    gpu: str = ANY
    product_family: str = ANY
    architecture: str = ANY
    engine: str = ANY  # engines, apart by spaces
    cards: str = ""  # of a family: those whose runs it was fitted to and that have no row of their own, with commas
    compute: float = 1.0  # share of the datasheet's FLOP/s; these five as of `catalogue.hardware.Derating`
    bandwidth: float = 1.0
    few: float = 0.0
    watts: float = 0.0
    sm_stream: float = math.inf
    year: int = 0  # of the generation's cards: the nearest in time stands in for one without a row
    rows: int = 0  # measured rows that it was fitted to
    source: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    card: tuple[_Row, ...] = ()
    matrix: dict[str, float] = {}  # generation -> FLOPs a clock of an SM of the cards that stand for its kernels
    warp: dict[str, float] = {}  # the same, that kernels which multiply warp by warp reach at most
    rows: dict[str, float] = {}  # generation -> rows of the least tile of kernels that give tokens its rows
    tiles: dict[str, str] = {}  # "family generation" -> generation whose tiles stand for kernels warp by warp
    kin: dict[str, str] = {}  # generation -> those whose kernels stand in where none was measured, nearest first


@cache
def card_file() -> _File:
    """data/calibration/devices.toml as read, a row an engine."""
    found = read(text_of("devices"), _File, "devices")
    card = tuple(msgspec.structs.replace(row, engine=one) for row in found.card for one in row.engine.split())
    return msgspec.structs.replace(found, card=card)


@cache
def rows_by_place() -> dict[tuple[str, str, str, str], _Row]:
    """Its rows by card, product family, generation and engine, of several the first."""
    return {(r.gpu, r.product_family, r.architecture, r.engine): r for r in reversed(card_file().card)}


def derating(device: Device, *engines: str) -> Derating:
    """The factors of a device: its own where it states any, else those of this card in the engine, else of the card
    whose kernels it takes, else of its product family's generation, else all three in any that sums alike, else in any
    at all, else of its architecture whoever sells it, else of the generation of its family nearest in time (the later
    of two), else of all of its family; else 1. What holds at a power (`watts`) is put to the card's own."""
    if device.derating is None and not isinstance(device.year, int | float):
        raise RooflmError("cluster.device.year is a list, but it must be one year: factors of a card go by it")
    card = device.name, device.kernels_of, device.product_family, device.architecture, device.year
    found = device.derating or on_file(*card, *engines, tiles=device.kernel_generation)
    if found.lent:  # which is of tiles that lose as much beside large units
        share = reach(device.kernel_generation)[0]
        found = replace(found, compute=found.compute * (share + small_units(device, found) * (1.0 - share)))
    if not found.watts:
        return found
    slower = power_ratio(found.watts, device.tdp, device.half_peak) ** ROOT
    return replace(found, compute=found.compute / slower, watts=0.0)


ROOT = 1.0 / 3.0
"""Products at a card's power take the cube root of `power_ratio` longer: dynamic power goes with frequency cubed."""
STATIC_POWER, PROMPT_POWER, LEAST_CLOCK = 0.25, 0.9, 0.15
"""Of TDP: what a card takes at any clock, and what prompts draw; and the least share of its clock (decision 0274)."""


def power_slowdown(device: Device) -> Num:
    """How many times slower a card's clock goes at its owner's power limit: by ROOT of what is above STATIC_POWER."""
    dynamic = (device.power_limit / device.tdp - STATIC_POWER) / (PROMPT_POWER - STATIC_POWER)
    return smaller(larger(dynamic, LEAST_CLOCK**3), 1.0) ** -ROOT


def power_ratio(fitted: float, watts: Num, used: Num) -> Num:
    """Watts that products of so many FLOP/s draw, at `fitted` W a TFLOP/s of 16 bits, over those that a card takes."""
    return fitted * used / watts / 1e12


@cache
def on_file(gpu: str, twin: str, line: str, architecture: str, year: int, *engines: str, tiles: str = "") -> Derating:
    """The factors in data/calibration/devices.toml, sought in the order that `derating` says. tiles: generation whose
    constants the card's products take: factors of another generation of its family, which go with that one's, become
    those that reach the same of the datasheet."""
    whose = (*engines, ANY)
    own = ((gpu, ANY, ANY), (twin, ANY, ANY), (ANY, line, architecture))
    near = {who: _nearest_generation(line, architecture, year, who) for who in whose}
    order = [(*place, who) for who in whose for place in own] + [(ANY, ANY, architecture, who) for who in whose]
    order += [(ANY, line, generation, who) for who in whose for generation in (near[who], ANY)]
    row = next((rows_by_place()[place] for place in order if place in rows_by_place()), _Row())
    found = Derating(row.compute, row.bandwidth, row.few, row.watts, row.sm_stream)
    lent = (row.product_family, row.architecture, row.engine) == (line, near[ANY], ANY) and near[ANY] != architecture
    if not (tiles and lent) or reach(tiles) == reach(near[ANY]):
        return found
    c, m = (b / a for a, b in zip(reach(tiles), reach(near[ANY]), strict=True))
    return replace(found, compute=c * row.compute, bandwidth=m * row.bandwidth, lent=True)


def reach(generation: str) -> tuple[float, float]:
    """Shares of the datasheet's FLOP/s and bandwidth that a generation's long products of 16 bits reach."""
    c = lookup("gemm", "", generation, ANY, "bf16").row.constants
    return c["eff_c"] * (1.0 - c["thr"]), c["eff_m"]


def _nearest_generation(family: str, architecture: str, year: int, engine: str) -> str:
    """The generation of a family whose factors apply: its own, else the nearest in time ("" if none has any)."""
    rows = [r for r in card_file().card if (r.gpu, r.product_family, r.engine) == (ANY, family, engine) and r.year]
    nearest = sorted(rows, key=lambda r: (r.architecture != architecture, abs(r.year - (year or math.inf)), -r.year))
    return nearest[0].architecture if nearest else ""


def matrix_share(device: Device, generation: str = "") -> Num:
    """FLOPs a clock of an SM over those of the cards that stand for a generation's kernels, its own unless another is
    given (1: no one does). Softmax takes so much less of a product's time, as SMs have alike units for exponentials."""
    usual = card_file().matrix.get(generation or device.kernel_generation)
    return 1.0 if usual is None else _a_clock(device) / usual


def small_units(device: Device, reached: Derating, generation: str = "") -> Num:
    """`matrix_share`, at most 1: what kernels lose beside their products takes so much less of them. 1 where the share
    of the peak that the card reaches was fitted beside another generation's tiles, and holds that."""
    return 1.0 if reached.fitted else smaller(1.0, matrix_share(device, generation))


def beside_units(device: Device, reached: Derating, share: Num, generation: str) -> Num:
    """How many times the share of the peak that kernels reach on a generation's cards, `share`, they reach on this one:
    what they lose beside their products takes as long whatever the matrix units. The share that was fitted to products
    of a card (`reached`) holds what these gained by it."""
    units = smaller(1.0, matrix_share(device, generation))
    own = reach(device.kernel_generation)[0] if reached.fitted else 1.0
    gained = own + smaller(1.0, matrix_share(device)) * (1.0 - own)
    return gained / (smaller(share, 1.0) + units * (1.0 - smaller(share, 1.0)))


def softmax_share(device: Device) -> Num:
    """Time of an exponential over that at the usual rate of an SM; kernel tables are fitted with it."""
    return Device.exponentials / device.exponentials


def warp_share(device: Device) -> Num:
    """Share of the 16-bit peak that kernels of weights in few bits can reach: they multiply warp by warp (mma.sync),
    and since Hopper only instructions of a group of warps (wgmma, tcgen05) feed all of a matrix unit. 1 on cards whose
    units are as small as Ampere's, and of generations that have no others."""
    usual = card_file().warp.get(device.kernel_generation)
    return 1.0 if usual is None else smaller(1.0, usual / _a_clock(device))


def _a_clock(device: Device) -> Num:
    """FLOPs with 16-bit operands a clock of an SM."""
    return device.half_peak / (device.sms * device.clock)
