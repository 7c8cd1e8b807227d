"""Devices and clusters by name: rows of data/devices and data/clusters to frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rooflm.catalogue.fields import About, abouts
from rooflm.catalogue.hardware import DTYPES, Cluster, Device, Measured
from rooflm.errors import RooflmError
from rooflm.readers.own_card import completed
from rooflm.readers.prices import basis
from rooflm.readers.provenance import Description, Source, descriptive_fields, source_named
from rooflm.readers.rows import (
    aliases,
    as_text,
    base_of,
    is_path,
    names,
    normalise,
    own_row,
    raw_row,
    resolve,
    row_label,
)  # fmt: skip
from rooflm.readers.tables import check_field_name, dataclass_fields, field_value, one_of, quantity, require_table
from rooflm.units import Num, smaller

ANY_DEVICE = "*"
ANYWHERE = "pcie4-8"
"""The cluster of a device that names none."""
NOT_IN_ROWS = ("name", "peak", "measured", "priced", "inferred")
"""Fields of a device that its row does not hold as they are."""
LIMIT = "power_limit"
"""Power that a cluster's nodes hold their own device to (of any: each), which becomes the device's."""
TABLES = ("own", "off")
"""Fields of `Measured` that are tables."""
OF_BASE = "of the card that it builds on"
OF_NEAREST = "of the nearest card"
"""The basis of a price that a user's file leaves out: of its base, or of the card that the rest is inferred from."""
OFF = ("prefill", "decode", "request", "step", "memory", "cases")
"""What `Measured.off` may hold: phases of error bands, and the number of runs behind them."""


def _device(name: str) -> Device:
    """The device of a row or file."""
    raw, canonical = raw_row("gpu", name)
    return _of_fields(raw, canonical, row_label("gpu", name), is_path(name))


def _of_fields(raw: dict[str, Any], canonical: str, label: str, own: bool) -> Device:
    """The device of a row's fields, with its peak rates, price and, of one's own, where it was inferred from."""
    said = raw
    raw, inferred = completed(raw, label) if own else (raw, "")
    about, left = descriptive_fields(raw, label, Description)
    if left.get("kernels_of") and own:
        one_of(f"{label}: kernels_of", left["kernels_of"], names("gpu"))
    measured = left.pop("measured", None)
    peak = _rates(left.pop("peak", None), label)
    taken = OF_BASE if "base" in said else OF_NEAREST
    priced = _price_basis(about.origin) if "price" in said else taken
    return Device(
        canonical, peak=peak, measured=None if measured is None else _measured(measured, label),
        priced=priced, inferred=inferred, **dataclass_fields(Device, left, label, but=NOT_IN_ROWS),
    )  # fmt: skip


def _rates(given: Any, label: str) -> dict[str, Num]:
    """Dense FLOP/s by data type."""
    if not require_table(f"{label}: peak", given):
        raise RooflmError(f"{label}: peak is empty, but it must give the FLOP/s of at least one data type")
    for dtype in given:
        check_field_name(dtype, DTYPES, f"{label}: peak")
    return {dtype: quantity(rate, "flop/s", f"{label}: peak.{dtype}") for dtype, rate in given.items()}


def _price_basis(origin: dict[str, str | Source]) -> str:
    """The source of a row's price; "" for a user's file that states none."""
    source = origin.get("price", origin.get("default"))
    return basis(source_named("gpu", source) if isinstance(source, str) else source)


def _measured(given: Any, label: str) -> Measured:
    """The constants of a calibrated machine, under `own` those of a data type, under `off` how far it is off."""
    at = f"{label}: measured"
    left = dict(require_table(at, given))
    own, off = (require_table(f"{at}.{name}", left.pop(name, {})) for name in TABLES)
    for name, value in off.items():
        check_field_name(name, OFF, f"{at}.off")
        field_value(f"{at}.off.{name}", value, About(""))
    parts = {
        dtype: dataclass_fields(Measured, table, label, f"measured.own.{dtype}", TABLES) for dtype, table in own.items()
    }
    return Measured(**dataclass_fields(Measured, left, label, "measured", TABLES), own=parts, off=off)


_packaged_device = cache(_device)


def load_device(name: str | Path | Mapping[str, Any]) -> Device:
    """A device by catalogue name, alias, or path of a .toml file: the same fields, or some of them (`own_card`), which
    may be given as they are, beside a `name`. Raises RooflmError for unknown names and bad rows.

    >>> load_device("a100").dram.size == 80 * 2**30
    True
    >>> load_device({"name": "big-4090", "base": "rtx-4090", "dram": {"size": "48 GiB"}})
    <Device big-4090: 165 TFLOP/s bf16, 48.00 GiB at 1.01 TB/s, 450 W>
    """
    if isinstance(name, Mapping):
        fields = {str(key): value for key, value in name.items()}
        called = str(fields.pop("name", None) or "own")
        return _of_fields(fields, called, called, own=True)
    name = as_text("gpu", name)
    return _device(name) if is_path(name) else _packaged_device(resolve("gpu", name))


def default_cluster(device: str) -> str:
    """The name of the cluster in which a device is usually found; used when only the device is given.

    >>> default_cluster("a100")
    'dgx-a100'
    """
    if own := own_row("cluster", device):
        return own
    row = raw_row("gpu", device)[0]
    if "cluster" not in row and "base" in row:
        return default_cluster(base_of("gpu", row, row_label("gpu", device)))
    return str(row.get("cluster") or ANYWHERE)


def usual_cluster(device: Device) -> str:
    """`default_cluster` of a Device: of its name, of the card whose kernels it has, or of any.

    >>> usual_cluster(replace(load_device("a100"), name="mine", kernels_of="h100")), usual_cluster(load_device("l4"))
    ('dgx-h100', 'pcie4-8')
    """
    known = [name for name in (device.name, device.kernels_of) if normalise(name) in aliases("gpu")]
    return default_cluster(known[0]) if known else ANYWHERE


NOT_TAKEN = ("aliases", "from", "note", "source", "date", "base")
"""Fields of a cluster's row that one which builds on it does not take over."""


def over_base(row: dict[str, Any], label: str) -> dict[str, Any]:
    """A user's cluster over the one that it builds on (`base`): its tiers by their names, others beside them.

    >>> own = {"base": "dgx-h100", "tiers": [{"name": "infiniband", "bandwidth": "25 GB/s"}]}
    >>> [(tier["name"], tier["bandwidth"]) for tier in over_base(own, "mine.toml")["tiers"]]
    [('nvlink', '450 GB/s'), ('infiniband', '25 GB/s')]
    """
    if "base" not in row:
        return row
    start = {k: v for k, v in raw_row("cluster", base_of("cluster", row, label))[0].items() if k not in NOT_TAKEN}
    own = {k: v for k, v in row.items() if k != "base"}
    tiers = own.get("tiers", [])
    if not isinstance(tiers, list) or not all(isinstance(t, dict) and isinstance(t.get("name"), str) for t in tiers):
        raise RooflmError(f"{label}: tiers must be tables that each begin with a name, such as that of one of the base")
    mine = {tier["name"]: tier for tier in tiers}
    kept = [tier | mine.pop(tier["name"], {}) for tier in start["tiers"]]
    return {**start, **own, "tiers": [*kept, *mine.values()]}


OTHER_KINDS = {"thunderbolt": "ethernet", "usb4": "ethernet", "roce": "infiniband"}
"""What an own cluster may call a link, and the kind whose constants it has: Thunderbolt and USB4 carry TCP/IP."""


def with_known_kinds(row: dict[str, Any]) -> dict[str, Any]:
    """A user's cluster with the kinds of its tiers as rows have them.

    >>> with_known_kinds({"tiers": [{"kind": "Thunderbolt", "size": 4}]})
    {'tiers': [{'kind': 'ethernet', 'size': 4}]}
    """
    tiers = row.get("tiers")
    if not isinstance(tiers, list) or not all(isinstance(t, dict) for t in tiers):
        return row
    kinds = [OTHER_KINDS.get(str(t.get("kind", "")).strip().lower(), t.get("kind")) for t in tiers]
    return {**row, "tiers": [{**t, "kind": k} if "kind" in t else t for t, k in zip(tiers, kinds, strict=True)]}


def cluster_parts(name: str) -> tuple[str, str, dict[str, Any]]:
    """Name and device of a cluster's row (ANY_DEVICE: of any), and the fields of a `Cluster` that it gives, with LIMIT
    where its nodes have one."""
    raw, canonical = raw_row("cluster", name)
    label = row_label("cluster", name)
    raw = with_known_kinds(over_base(raw, label)) if is_path(name) else raw
    own = descriptive_fields(raw, label, Description)[1]
    if "device" not in own:
        raise RooflmError(f"{label} lacks the field 'device': the name of a card, or '*' for any")
    device = field_value(f"{label}: device", own.pop("device"), About("", kind="word"))
    limits = {LIMIT: field_value(f"{label}: {LIMIT}", own.pop(LIMIT), abouts(Device)[LIMIT])} if LIMIT in own else {}
    found = limits | dataclass_fields(Cluster, own, label, but=("name", "device"))
    sizes = [float(tier.size) for tier in found.get("tiers", ())]
    if not sizes:
        raise RooflmError(f"{label}: tiers is an empty list, but a cluster has at least one network")
    if sizes != sorted(set(sizes)):
        raise RooflmError(f"{label}: tiers have sizes {sizes}, but each must join more devices than the one before")
    return canonical, device, found


_packaged_cluster = cache(cluster_parts)


def parts_of(name: str | Path) -> tuple[str, str, dict[str, Any]]:
    """`cluster_parts` by any name or path; a user's file is read each time."""
    name = as_text("cluster", name)
    return cluster_parts(name) if is_path(name) else _packaged_cluster(resolve("cluster", name))


def load_cluster(name: str | Path, device: str | Path | Device | None = None) -> Cluster:
    """A cluster by catalogue name, alias or .toml path, with its own device or with `device` in its place.

    >>> cluster = load_cluster("dgx-a100")
    >>> cluster.device.name, [tier.name for tier in cluster.tiers]
    ('a100-sxm-80gb', ['nvlink', 'infiniband'])
    >>> load_cluster("pcie4-8", "rtx-3090").device.name
    'rtx-3090'
    """
    canonical, own, found = parts_of(name)
    if device is None and own == ANY_DEVICE:
        raise RooflmError(f"cluster {canonical!r} takes any device, so name one: for example gpu='a100-sxm-80gb'")
    chosen = own if device is None else device
    card = chosen if isinstance(chosen, Device) else load_device(chosen)
    if LIMIT in found and own in (ANY_DEVICE, card.name):
        card = replace(card, power_limit=smaller(card.power_limit, found[LIMIT]))
    return Cluster(canonical, card, **{k: v for k, v in found.items() if k != LIMIT})
