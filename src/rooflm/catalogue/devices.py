"""Devices and clusters by name: rows of data/devices and data/clusters to frozen dataclasses.

What serves every kind of row (names, aliases, paths, strict conversion, sources) is in `rows` and re-exported here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from rooflm.catalogue.fields import abouts, held
from rooflm.catalogue.hardware import Cluster, Derating, Device, Link, LinkKind, Measured, Memory
from rooflm.catalogue.own_card import completed
from rooflm.catalogue.prices import basis
from rooflm.catalogue.rows import (
    DATA,
    FOLDERS,
    Provenance,
    Quantity,
    SourceRow,
    aliases,
    beside,
    convert,
    is_path,
    names,
    normalise,
    own_row,
    provenance,
    quantity,
    raw_row,
    resolve,
    sources,
    where,
)
from rooflm.errors import RooflmError

__all__ = [
    "DATA",
    "FOLDERS",
    "Provenance",
    "Quantity",
    "SourceRow",
    "aliases",
    "beside",
    "convert",
    "default_cluster",
    "is_path",
    "load_cluster",
    "load_device",
    "names",
    "normalise",
    "own_row",
    "provenance",
    "quantity",
    "raw_row",
    "resolve",
    "sources",
    "where",
]

ANY_DEVICE = "*"


class _MemoryRow(msgspec.Struct, forbid_unknown_fields=True):
    size: Quantity
    bandwidth: Quantity
    latency: Quantity = 0.0


class _PeakRow(msgspec.Struct, forbid_unknown_fields=True):
    fp32: Quantity | None = None
    tf32: Quantity | None = None
    fp16: Quantity | None = None
    bf16: Quantity | None = None
    fp8: Quantity | None = None
    int8: Quantity | None = None
    fp4: Quantity | None = None
    int4: Quantity | None = None


class _DeratingRow(msgspec.Struct, forbid_unknown_fields=True):
    compute: float = 1.0
    bandwidth: float = 1.0
    network: float = 1.0
    few: float = 0.0


class _DeviceRow(msgspec.Struct, forbid_unknown_fields=True, rename={"origin": "from"}):
    vendor: str
    architecture: str
    peak: _PeakRow
    sms: int
    clock: Quantity
    l1: _MemoryRow
    l2: _MemoryRow
    dram: _MemoryRow
    tdp: Quantity
    idle: Quantity
    price: Quantity
    year: int = 0
    product_family: str = "datacenter"
    generation: str = ""
    kernels_of: str = ""
    software: str = ""
    system_memory: Quantity = 0.0
    attention_share: float = 0.0
    cluster: str = ""
    aliases: list[str] = []
    note: str = ""
    origin: dict[str, str | SourceRow] = {}
    measured: dict[str, float | dict[str, float | dict[str, float]]] | None = None
    derating: _DeratingRow | None = None


class _LinkRow(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    kind: LinkKind
    size: int
    bandwidth: Quantity
    latency: Quantity


class _ClusterRow(msgspec.Struct, forbid_unknown_fields=True, rename={"origin": "from"}):
    device: str
    tiers: list[_LinkRow]
    host_bandwidth: Quantity = 25e9
    aliases: list[str] = []
    note: str = ""
    origin: dict[str, str | SourceRow] = {}


def _memory(row: _MemoryRow, field: str) -> Memory:
    return Memory(
        size=quantity(row.size, "bytes", f"{field}.size"),
        bandwidth=quantity(row.bandwidth, "bytes/s", f"{field}.bandwidth"),
        latency=quantity(row.latency, "s", f"{field}.latency", zero=True),
    )


def _device(name: str) -> Device:
    raw, canonical = raw_row("gpu", name)
    label = where("gpu", name)
    inferred = ""
    if is_path(name):
        raw, inferred = completed(raw, label, _DeviceRow.__struct_fields__[: -len(_DeviceRow.__struct_defaults__)])
    row = convert(raw, _DeviceRow, label)
    rates = {dtype: rate for dtype, rate in msgspec.structs.asdict(row.peak).items() if rate is not None}
    if not rates:
        raise RooflmError(f"{label}: peak is empty, but it must give the FLOP/s of at least one data type")
    return Device(
        name=canonical,
        vendor=row.vendor,
        architecture=row.architecture,
        peak={dtype: quantity(rate, "flop/s", f"{label}: peak.{dtype}") for dtype, rate in rates.items()},
        sms=quantity(row.sms, "hz", f"{label}: sms"),
        clock=quantity(row.clock, "hz", f"{label}: clock"),
        l1=_memory(row.l1, f"{label}: l1"),
        l2=_memory(row.l2, f"{label}: l2"),
        dram=_memory(row.dram, f"{label}: dram"),
        tdp=quantity(row.tdp, "w", f"{label}: tdp"),
        idle=quantity(row.idle, "w", f"{label}: idle", zero=True),
        price=quantity(row.price, "usd/h", f"{label}: price", zero=True),
        year=row.year,
        measured=_measured(row.measured, label),
        derating=_derating(row.derating, label),
        product_family=row.product_family,
        generation=row.generation,
        kernels_of=row.kernels_of,
        software=row.software,
        inferred=inferred,
        priced=_price_basis(row, name),
        system_memory=quantity(row.system_memory, "bytes", f"{label}: system_memory", zero=True),
        attention_share=held(f"{label}: attention_share", row.attention_share, abouts(Device)["attention_share"]),
    )


def _price_basis(row: _DeviceRow, name: str) -> str:
    """What a row's price rests on: its source, "" for a file of one's own without one."""
    source = row.origin.get("price", row.origin.get("default"))
    if isinstance(source, SourceRow):
        return basis(Provenance(source.source, source.date, source.kind))
    return basis(sources("gpu").get(source) if source else None)


OFF = ("prefill", "decode", "request", "step", "memory", "cases")
"""What `hardware.Measured.off` may hold: phases of error bands, and the number of runs behind them."""


def _measured(given: dict[str, Any] | None, label: str) -> Measured | None:
    """The constants of a calibrated machine, under `own` those of a data type, under `off` how far it is off."""
    if given is None:
        return None
    own, off = given.get("own", {}), given.get("off", {})
    if not isinstance(own, dict) or not all(isinstance(table, dict) for table in own.values()):
        raise RooflmError(f"{label}: measured.own is {own!r}, but it must be a table of data types")
    if not isinstance(off, dict):
        raise RooflmError(f"{label}: measured.off is {off!r}, but it must be a table of phases")
    plain = [name for name in Measured._fields if name not in ("own", "off")]
    for title, table in (("measured", {k: v for k, v in given.items() if k not in ("own", "off")}), *own.items()):
        for name, value in table.items():
            if name not in plain:
                raise RooflmError(f"{label}: {title} has the unknown field {name!r}: it knows {', '.join(plain)}")
            quantity(value, "s", f"{label}: {title}.{name}", zero=True)
    for name, value in off.items():
        if name not in OFF:
            raise RooflmError(f"{label}: measured.off has the unknown field {name!r}: it knows {', '.join(OFF)}")
        quantity(value, "s", f"{label}: measured.off.{name}", zero=True)
    return Measured(**given)


def _derating(row: _DeratingRow | None, label: str) -> Derating | None:
    """The factors that a row states over its datasheet: positive, and `few` 0 or more."""
    if row is None:
        return None
    given = msgspec.structs.asdict(row)
    for name, value in given.items():
        quantity(value, "hz", f"{label}: derating.{name}", zero=name == "few")
    return Derating(**given)


_packaged_device = lru_cache(_device)


def load_device(name: str) -> Device:
    """A device by catalogue name, alias, or path of a .toml file: the same fields, or some of them (`own_card`).

    >>> load_device("a100").dram.size == 80 * 2**30
    True
    """
    return _device(name) if is_path(name) else _packaged_device(resolve("gpu", name))


def default_cluster(device: str) -> str:
    """The name of the cluster in which a device is usually found; used when only the device is given.

    >>> default_cluster("a100")
    'dgx-a100'
    """
    if own := own_row("cluster", device):
        return own
    row = raw_row("gpu", device)[0]
    if "cluster" not in row and isinstance(row.get("base"), str):
        return default_cluster(row["base"])
    return str(row.get("cluster") or "pcie4-8")


def _tier(row: _LinkRow, label: str) -> Link:
    field = f"{label}: tiers.{row.name}"
    return Link(
        name=row.name,
        kind=row.kind,
        size=quantity(row.size, "hz", f"{field}.size"),
        bandwidth=quantity(row.bandwidth, "bytes/s", f"{field}.bandwidth"),
        latency=quantity(row.latency, "s", f"{field}.latency", zero=True),
    )


def cluster_parts(name: str) -> tuple[str, str, tuple[Link, ...], float]:
    """Name, device, tiers and host bandwidth of a cluster row."""
    raw, canonical = raw_row("cluster", name)
    label = where("cluster", name)
    row = convert(raw, _ClusterRow, label)
    tiers = tuple(_tier(tier, label) for tier in row.tiers)
    if not tiers:
        raise RooflmError(f"{label}: tiers is an empty list, but a cluster has at least one network")
    sizes = [float(tier.size) for tier in tiers]
    if sizes != sorted(set(sizes)):
        raise RooflmError(f"{label}: tiers have sizes {sizes}, but each must join more devices than the one before")
    return canonical, row.device, tiers, quantity(row.host_bandwidth, "bytes/s", f"{label}: host_bandwidth")


_packaged_cluster = lru_cache(cluster_parts)


def load_cluster(name: str, device: str | Device | None = None) -> Cluster:
    """A cluster by catalogue name, alias or .toml path, with its own device or with `device` in its place.

    >>> cluster = load_cluster("dgx-a100")
    >>> cluster.device.name, [tier.name for tier in cluster.tiers]
    ('a100-sxm-80gb', ['nvlink', 'infiniband'])
    >>> load_cluster("pcie4-8", "rtx-3090").device.name
    'rtx-3090'
    """
    found = cluster_parts(name) if is_path(name) else _packaged_cluster(resolve("cluster", name))
    canonical, own, tiers, host_bandwidth = found
    if device is None and own == ANY_DEVICE:
        raise RooflmError(f"cluster {canonical!r} takes any device, so name one: for example gpu='a100-sxm-80gb'")
    chosen = own if device is None else device
    loaded = load_device(chosen) if isinstance(chosen, str) else chosen
    return Cluster(name=canonical, device=loaded, tiers=tiers, host_bandwidth=host_bandwidth)
