"""A card of the user's own: a file that builds on a card of the catalogue, or a few figures of a datasheet.

    base = "rtx-4090"               peak = "150 TFLOP/s"
    [dram]                          memory = "48 GiB"
    size = "48 GiB"                 bandwidth = "900 GB/s"

On the left only what differs is said. On the right the rest is that of the card of the catalogue that comes nearest in
peak, bandwidth and memory, its SMs and caches scaled with the peak; every such field is told as inferred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any, NamedTuple

from rooflm.catalogue.hardware import Device
from rooflm.errors import RooflmError
from rooflm.readers.provenance import Description
from rooflm.readers.rows import base_of, names, raw_row, row_label
from rooflm.readers.tables import check_field_name, quantity

SHORT = {"memory": ("dram", "size"), "bandwidth": ("dram", "bandwidth")}
"""Short spellings of what every datasheet prints."""
NEEDED = {
    "peak": "such as '165 TFLOP/s' (dense, 16 bits)",
    "memory": "such as '24 GiB'",
    "bandwidth": "such as '1 TB/s'",
}
SCALED = ("sms", "l1.size", "l1.bandwidth", "l2.size", "l2.bandwidth")
"""Fields that grow with the peak at one clock."""
REQUIRED = [f.name for f in fields(Device) if f.default is MISSING and f.name != "name"]
"""Fields without which a row does not load."""
FIELDS = {f.name for f in fields(Device)}
TOLD = tuple(dict.fromkeys((*NEEDED, "base", *(f.name for f in fields(Device)), *Description.__struct_encode_fields__)))
"""What a file may say of a card, the datasheet's figures first."""
NOT_TAKEN = ("aliases", "from", "note", "base", "price", "measured")


class Figures(NamedTuple):
    """What two cards are compared by, as logarithms: 16-bit peak, bandwidth, memory."""

    peak: float
    bandwidth: float
    memory: float

    def distance(self, other: Figures) -> float:
        """How unlike two cards are; a factor counts alike in each."""
        return sum(abs(a - b) for a, b in zip(self, other, strict=True))


def _peak16(peak: Mapping[str, Any], label: str) -> float:
    kind = next((k for k in ("bf16", "fp16", "fp32") if k in peak), None) or next(iter(peak))
    return quantity(peak[kind], "flop/s", f"{label}: peak.{kind}")


def figures(row: Mapping[str, Any], label: str) -> Figures:
    """The figures of a row by which cards are compared."""
    dram = row["dram"]
    for name in ("dram", "peak"):
        if not isinstance(row[name], Mapping) or not row[name]:
            raise RooflmError(f"{label}: {name} is {row[name]!r}, but it must be a table of figures")
    values = (_peak16(row["peak"], label), quantity(dram["bandwidth"], "bytes/s", f"{label}: dram.bandwidth"),
              quantity(dram["size"], "bytes", f"{label}: dram.size"))  # fmt: skip
    return Figures(*map(math.log, values))


@lru_cache
def _known() -> Mapping[str, Figures]:
    return {name: figures(raw_row("gpu", name)[0], name) for name in names("gpu")}


def nearest(own: Figures) -> str:
    """The card of the catalogue that comes nearest.

    >>> nearest(Figures(math.log(312e12), math.log(2.039e12), math.log(80 * 2**30)))
    'a100-sxm-80gb'
    """
    return min(_known(), key=lambda name: _known()[name].distance(own))


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `own` laid over those of `base`; tables are merged field by field.

    >>> merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 4}})
    {'a': {'x': 1, 'y': 4}, 'b': 3}
    """
    out = dict(base)
    for key, value in own.items():
        old = out.get(key)
        out[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return out


def spelled_out(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with short spellings (peak, memory, bandwidth) replaced by the full fields."""
    out = dict(row)
    for short, (table, field) in SHORT.items():
        if short in out and isinstance(out.get(table, {}), Mapping):
            out[table] = {**out.get(table, {}), field: out.pop(short)}
    if isinstance(out.get("peak"), str | int | float) and not isinstance(out["peak"], bool):
        out["peak"] = {"bf16": out["peak"]}
    return out


def _fields(row: Mapping[str, Any]) -> set[str]:
    return {
        f"{k}.{f}" if isinstance(v, Mapping) else k
        for k, v in row.items()
        for f in (v if isinstance(v, Mapping) else [k])
    }


def completed(row: Mapping[str, Any], label: str) -> tuple[dict[str, Any], str]:
    """A complete device row from a user's partial one, and a sentence on which fields came from which card ("" if none
    did).

    RooflmError lists every missing figure, or says that the base is unknown.
    """
    own = spelled_out(row)
    if len(own) > 1 and not own.keys() & FIELDS and all(isinstance(v, Mapping) for v in own.values()):
        raise RooflmError(f"{label}: it holds {len(own)} tables ({', '.join(own)}), but a file describes one card")
    for name in own:
        check_field_name(name, TOLD, f"{label}: the row")
    if "base" in own:
        base = base_of("gpu", own, label)
        own.pop("base")
        start, name = raw_row("gpu", base)
        if isinstance(own.get("peak"), Mapping) and set(own["peak"]) == {"bf16"} and isinstance(row.get("peak"), str):
            own["peak"] = _rescaled(start["peak"], own["peak"]["bf16"], row_label("gpu", base))
        taken = {k: v for k, v in start.items() if k not in NOT_TAKEN} | {"price": start["price"]}
        new = ", ".join(sorted(_fields(own) - {"name", "note"}))
        return merged({"kernels_of": name} | taken, own), f"is {name} but for {new}" if new else f"is as {name}"
    if all(name in own for name in REQUIRED):
        return own, ""
    missing = [k for k in NEEDED if not _has(own, k)]
    if missing:
        said = "; ".join(f"{k}, {NEEDED[k]}" for k in missing)
        raise RooflmError(f'{label}: missing {said}; or give base = "the nearest card\'s name" and what differs')
    return _inferred(own, label)


def _has(row: Mapping[str, Any], name: str) -> bool:
    table, field = SHORT.get(name, (name, ""))
    found = row.get(table)
    return isinstance(found, Mapping) and bool(found) and (not field or field in found)


def _rescaled(peak: Mapping[str, Any], bf16: Any, label: str) -> dict[str, Any]:
    """A card's rates with its 16-bit one as given and the others in proportion."""
    ratio = quantity(bf16, "flop/s", f"{label}: peak") / _peak16(peak, label)
    return {k: quantity(v, "flop/s", f"{label}: peak.{k}") * ratio for k, v in peak.items()}


def _inferred(own: dict[str, Any], label: str) -> tuple[dict[str, Any], str]:
    """The row of a card of one's own, filled up from the nearest of the catalogue, of which SCALED grows with the peak;
    and in words what was taken."""
    mine = figures(own, label)
    name = nearest(mine)
    start = {k: v for k, v in raw_row("gpu", name)[0].items() if k not in NOT_TAKEN or k == "price"}
    peak = _rescaled(start["peak"], _peak16(own["peak"], label), name) if set(own["peak"]) == {"bf16"} else own["peak"]
    grown = math.exp(mine.peak - _known()[name].peak)
    for field in SCALED:
        table, _, key = field.partition(".")
        if key:
            unit = "bytes" if key == "size" else "bytes/s"
            start[table] = {**start[table], key: quantity(start[table][key], unit, f"{name}: {field}") * grown}
        else:
            start[table] = max(round(start[table] * grown), 1)
    whole = merged({"kernels_of": name} | start, own | {"peak": merged(peak, own["peak"])})
    taken = sorted(_fields(start) - _fields(own) - {"product_family", "cluster"})
    return whole, f"inferred from the nearest card, {name}: {', '.join(taken)}"
