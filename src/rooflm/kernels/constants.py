"""Constants of the kernels: data/calibration/<family>.toml, a [[fit]] row for (generation, library, dtype, kernel).

A row carries where its numbers come from and how far off the formula is, on shapes it was fitted on (`_in`) and on
shapes kept aside (`_out`). `lookup` finds the nearest row to what is asked and says how near it is."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from rooflm.catalogue.fields import structured
from rooflm.errors import RooflmError, UnknownNameError

ANY = "*"
CALIBRATION = Path(__file__).parents[1] / "data" / "calibration"
DTYPE_KIN: dict[str, tuple[str, ...]] = {
    "tf32": ("bf16", "fp16"), "fp32": ("bf16", "fp16"),
    "fp8": ("int8", "fp8_block"), "fp8_block": ("fp8", "int8"), "int8": ("fp8",),
    "nvfp4": ("mxfp4", "fp8"), "mxfp4": ("int4_wo", "nvfp4", "fp8"), "mxfp4_mxfp8": ("fp8", "int8"),
    "int4": ("int4_wo", "int8_wo", "bf16"), "int4_wo": ("int8_wo", "bf16"), "int8_wo": ("int4_wo", "bf16"),
}  # fmt: skip
"""Which dtype's constants stand in for one that nobody measured, nearest first."""
TWINS = {"fp16": "bf16", "bf16": "fp16"}
"""Dtypes that run on the same units at the same rate: as good as each other at every level of the search."""
LEVELS = ("exact", "generation", "other engine", "all", "other dtype")
"""How near a looked-up row is to the question, nearest first."""

T = TypeVar("T")


class FitRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fit. Errors are mean absolute percentage errors of the time, in per cent; `*` is any card or engine."""

    gpu: str  # cards that it holds for, apart by spaces
    architecture: str
    engine: str  # engines, likewise
    dtype: str
    kernel: str = ""
    family: str = ""  # whose kernels (a library), where an engine has several
    tiles: dict[str, str] = {}  # "engine card" -> experts x width on a rank, of which alone it is (kernel "tiled")
    constants: dict[str, float]
    rows_in: int  # measured points fitted
    rows_out: int  # kept aside
    mape_in: float
    mape_out: float
    mape_transfer: float = 0.0  # on GPUs (or engines) that had no part in the fit, where that was tried
    source: str
    date: str
    note: str = ""


class Match(NamedTuple):
    """A row and how closely it matches (one of LEVELS)."""

    row: FitRow
    level: str


class Entry(NamedTuple):
    """The keys of a row, which is parsed only when it is picked, since a family has up to 200."""

    gpu: tuple[str, ...]
    architecture: str
    engine: tuple[str, ...]
    dtype: str
    kernel: str
    mape_out: float
    family: str
    table: str
    text: str

    @property
    def row(self) -> FitRow:
        """The row itself."""
        return _parsed(self.table, self.text)


_KEY = re.compile(r'^(gpu|architecture|engine|dtype|kernel|family|mape_out) = "?([^"\n]*)"?$', re.MULTILINE)


@cache
def entries_of(family: str) -> tuple[Entry, ...]:
    """The rows of data/calibration/<family>.toml, unparsed."""
    if not (CALIBRATION / f"{family}.toml").is_file():
        raise UnknownNameError("kernel family", family, [p.stem for p in CALIBRATION.glob("*.toml")])
    found = []
    for text in "".join(text_of(p.stem) for p in sorted(CALIBRATION.glob(f"{family}*.toml"))).split("[[fit]]")[1:]:
        keys = {"kernel": "", "family": "", **dict(_KEY.findall(text))}
        many = {name: tuple(keys[name].split()) for name in ("gpu", "engine")}
        known = {**keys, **many, "mape_out": float(keys["mape_out"]), "table": family}
        found.append(Entry(**known, text="[[fit]]" + text))
    return tuple(found)


def read(text: str, schema: type[T], name: str) -> T:
    """The text of data/calibration/<name>.toml, or a part of it, as a msgspec schema."""
    try:
        return structured(tomllib.loads(text), schema)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise RooflmError(f"{name}.toml: {exc}") from exc


def text_of(name: str) -> str:
    """The contents of data/calibration/<name>.toml."""
    return (CALIBRATION / f"{name}.toml").read_text(encoding="utf-8")


@cache
def _parsed(table: str, text: str) -> FitRow:
    return read(text, dict[str, tuple[FitRow]], table)["fit"][0]


@cache
def lookup(family: str, gpu: str, generation: str, engine: str, dtype: str, kernel: str = "") -> Match:
    """The fit nearest to a question, in the order of LEVELS.

    gpu: catalogue name of the card whose kernels are asked for (`Device.kernels_from`); generation: the architecture as
    these tables know it (`Device.kernel_generation`), or a kind of link. 1. exact: this GPU, engine (or any) and dtype
    (fp16 and bf16 count as one, see TWINS; the very dtype first); 2. the engine's own set of the generation, since its
    kernels differ more from another's than from card to card (where there is none for all of its cards); 3. this GPU
    and dtype with another engine; 4. the set of the generation, the common one before another engine's; 5. the set of
    all GPUs; 6. the same five for the nearest dtype of DTYPE_KIN. Of several of a generation the one for most cards,
    else the one with the lowest error out of sample. `kernel` (an elementwise kind, say) must match at every level."""
    rows = [r for r in entries_of(family) if r.kernel == kernel]
    if not rows:
        raise UnknownNameError(f"{family} kernel", kernel, {r.kernel for r in entries_of(family)})
    for number, kind in enumerate((dtype, *DTYPE_KIN.get(dtype, ()))):
        same = [r for r in rows if r.dtype in (kind, TWINS.get(kind))]
        kin = [r for r in same if r.architecture == generation]
        steps = (
            ("exact", [r for r in same if gpu in r.gpu and (engine in r.engine or ANY in r.engine)]),
            ("generation", [r for r in kin if engine in r.engine and not any(ANY in other.gpu for other in kin)]),
            ("other engine", [r for r in same if gpu in r.gpu]),
            ("generation", kin),
            ("all", [r for r in same if r.architecture == ANY]),
        )
        for level, found in steps:
            if found:
                nearest = min(found, key=lambda r: (ANY not in r.gpu, engine not in r.engine, ANY not in r.engine,
                                                   r.dtype != kind, 0 if gpu in r.gpu else -len(r.gpu),
                                                   r.mape_out))  # fmt: skip
                return Match(nearest.row, level if number == 0 else LEVELS[-1])
    raise UnknownNameError(f"dtype with {family} constants", dtype, {r.dtype for r in rows})


def typed(kind: type[T], row: FitRow) -> T:
    """A row's constants as the formula's NamedTuple `kind`; a name that the formula does not know is an error."""
    unknown = set(row.constants) - set(getattr(kind, "_fields", ()))
    if unknown:
        raise RooflmError(f"{row.gpu}/{row.engine}/{row.dtype}: {kind.__name__} has no constant {sorted(unknown)}")
    return kind(**row.constants)
