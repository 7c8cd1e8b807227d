"""Nodes, memories, links and dies by name: rows of data/technology to the frozen dataclasses of `technology`."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from rooflm.errors import RooflmError
from rooflm.readers.own_card import merged
from rooflm.readers.rows import base_of, convert, is_path, raw_row, resolve, row_label
from rooflm.readers.tables import check_field_name
from rooflm.technology.description import AREA, POWER, Budget, Dram, Node, Shares, Style, Technology, Wire
from rooflm.units import GIB

MM, MM2, PJ, GB = 1e-3, 1e-6, 1e-12, 1e9
T = TypeVar("T", bound=msgspec.Struct)


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"origin": "from"}):
    aliases: list[str] = []
    note: str = ""
    origin: dict[str, str | dict[str, str]] = {}


class _NodeRow(_Row, kw_only=True, rename={"origin": "from"}):
    track: str = "foundry"
    nm: float
    year: int = 0
    logic_area: float
    sram_area: float
    analog_area: float
    energy: float
    voltage: float
    threshold: float
    margin: float
    max_voltage: float
    wafer_usd: float
    defects_cm2: float


class _DramRow(_Row, kw_only=True, rename={"origin": "from"}):
    year: int = 0
    pin_gbps: float
    pins: int
    capacity_gb: float
    energy_pj: float
    stack_mm2: float
    phy_mm2: float
    controller_mm2: float
    edge_mm: float
    usd_gb: float


class _LinkRow(_Row, kw_only=True, rename={"origin": "from"}):
    kind: str
    size: int
    lanes: int
    lane_gbps: float
    bandwidth_gbs: float
    latency_us: float
    energy_pj: float
    lane_mm2: float
    lanes_mm: float
    usd: float


class _DieRow(_Row, kw_only=True, rename={"origin": "from"}):
    device: str = ""
    node: str
    dram: str
    intra: str
    inter: str
    area_mm2: float
    package_mm2: float
    dies: int = 1
    tdp_w: float
    mcu_flops: float
    mcus_sm: float
    enabled_sms: float
    enabled_l2: float
    slice_kib: float
    port_bytes: float
    l1_kib: float
    sites: float
    register_share: float = 1.0
    dram_gbps: float
    clock_ghz: float
    rates: dict[str, float]
    area: dict[str, float] = {}
    power: dict[str, float] = {}
    off: dict[str, str] = {}


def _read(kind: str, name: str, schema: type[T]) -> tuple[T, str]:
    """A checked row and its canonical name (of a file its path). A file may name a row to build on with `base`."""
    canonical = name if is_path(name) else resolve(kind, name)
    row, label = raw_row(kind, canonical)[0], row_label(kind, canonical)
    if is_path(name) and "base" in row:
        row = merged(raw_row(kind, base_of(kind, row, label))[0], {k: v for k, v in row.items() if k != "base"})
        for name in row:
            check_field_name(name, schema.__struct_encode_fields__, f"{label}: the row")
    return convert(row, schema, label), canonical


def load_node(name: str) -> Node:
    """A process node by name or alias.

    >>> load_node("7nm").name, load_node("n12").logic_area
    ('n7', 1.0)
    """
    r, canonical = _read("node", name, _NodeRow)
    return Node(
        canonical, r.nm, r.logic_area, r.sram_area, r.analog_area, r.energy, r.voltage, r.threshold, r.margin,
        r.max_voltage, r.wafer_usd, r.defects_cm2 * 1e4,
    )  # fmt: skip


def load_dram(name: str) -> Dram:
    """A memory generation by name, one stack or chip. Areas of the row are of N7: here they are put to 16/12 nm.

    >>> d = load_dram("hbm2e"); d.bandwidth / 1e9, d.size / 2**30
    (409.6, 16.0)
    """
    r, canonical = _read("dram", name, _DramRow)
    n7 = load_node("n7")
    return Dram(
        canonical, r.pin_gbps * GB * r.pins / 8, r.capacity_gb * GIB, r.energy_pj * PJ,
        r.stack_mm2 * MM2, r.phy_mm2 * MM2 / n7.analog_area, r.controller_mm2 * MM2 / n7.logic_area, r.edge_mm * MM,
        r.usd_gb * r.capacity_gb,
    )  # fmt: skip


def load_wire(name: str) -> Wire:
    """A link by name, as one device sees it.

    >>> w = load_wire("nvlink4"); w.bandwidth / 1e9, w.size
    (450.0, 8)
    """
    r, canonical = _read("link", name, _LinkRow)
    return Wire(
        canonical, r.kind, r.size, r.lanes, r.bandwidth_gbs * GB, r.latency_us * 1e-6, r.energy_pj * PJ,
        r.lane_mm2 * MM2 / load_node("n7").analog_area, r.lanes_mm / MM, r.usd,
    )  # fmt: skip


def _shares(common: Shares, own: dict[str, float], die: str) -> Shares:
    """A die's own plan over the common one; RooflmError when it does not sum to 1 or names no component."""
    unknown = [k for k in own if not hasattr(common, k)]
    if unknown:
        raise RooflmError(f"die {die!r}: {unknown[0]!r} is no component: use {', '.join(vars(common))}")
    shares = replace(common, **own)
    if abs(float(shares.total) - 1.0) > 1e-9:
        raise RooflmError(f"die {die!r}: shares sum to {float(shares.total):.6g}, but they must sum to 1")
    return shares


def load_technology(name: str, as_built: bool = False) -> Technology:
    """A known die (v100, a100, h100, b200) as technology: its node, memory, links, style and budgets.

    as_built: with the data rate of its memory and the highest clock of its product, instead of what standard and power
    allow; to compare with the product, not to explore from.

    >>> t = load_technology("a100"); t.node.name, t.dram.name, round(t.budget.die * 1e6)
    ('n7', 'hbm2e', 826)
    >>> round(load_technology("h100").dram.bandwidth / 1e9), round(load_technology("h100", True).dram.bandwidth / 1e9)
    (819, 670)
    """
    r, canonical = _read("die", name, _DieRow)
    style = Style(
        r.mcu_flops, r.mcus_sm, r.enabled_sms, r.enabled_l2, r.slice_kib * 1024, r.port_bytes, r.l1_kib * 1024,
        r.register_share, dict(r.rates), r.clock_ghz * 1e9 if as_built else float("inf"),
    )  # fmt: skip
    dram = load_dram(r.dram)
    if as_built:
        dram = replace(dram, bandwidth=dram.bandwidth * r.dram_gbps / _read("dram", r.dram, _DramRow)[0].pin_gbps)
    area, watts = _shares(AREA, r.area, canonical), _shares(POWER, r.power, canonical)
    budget = Budget(r.area_mm2 * MM2, r.package_mm2 * MM2, r.tdp_w, r.sites, r.dies, area, watts)
    return Technology(canonical, load_node(r.node), dram, load_wire(r.intra), load_wire(r.inter), style, budget)


def die_device(name: str) -> str:
    """The catalogue's device that a die belongs to.

    >>> die_device("h100")
    'h100-sxm-80gb'
    """
    return _read("die", name, _DieRow)[0].device


def why_off(name: str) -> dict[str, str]:
    """Quantity -> why the engine is more than 15 % off the product that a die became.

    >>> list(why_off("b200")), why_off("h100")
    (['clock'], {})
    """
    return _read("die", name, _DieRow)[0].off
