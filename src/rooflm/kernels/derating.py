"""What a card reaches of its datasheet where no kernel of it was measured: data/calibration/devices.toml.

Kernel constants are shares of datasheet rates, fitted on data-centre cards of NVIDIA. Consumer cards, AMD's and Apple's
do not follow their datasheets alike, so two factors a card (and engine family) scale its rates before the formulas.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from rooflm.catalogue.rows import structured
from rooflm.errors import RooflmError
from rooflm.kernels.constants import ANY, CALIBRATION
from rooflm.units import Num


class Reach(NamedTuple):
    """Compute and bandwidth that a card's kernels see, over its datasheet's; network: rate of its machines' collectives
    over that of the machine measured; few: time of a product of few rows over its FLOPs at the datasheet's rate, where
    the library has no good kernels for decoding (0: it has; see `few_rows_time`)."""

    compute: float = 1.0
    bandwidth: float = 1.0
    network: float = 1.0
    few: float = 0.0


ROWS = 512.0
"""Rows of a product at which the library takes its usual kernels."""


def few_rows_time(usual: Num, ideal: Num, rows: Num, few: Num) -> Num:
    """Seconds of a product where kernels for few rows are poor: (usual³ + (few ideal / (1 + (rows/512)⁴))³)^(1/3).

    usual: s of the fitted kernel; ideal: FLOPs / datasheet rate. A stand-in for kernels nobody measured (hipBLASLt on
    MI300X in 2024: decoding with 16 to 256 sequences ran at 3 % of the datasheet, prefill at 15 %).

    >>> few_rows_time(2.0, 1.0, 16.0, 0.0), round(float(few_rows_time(1.0, 1.0, 16.0, 10.0)), 2)
    (2.0, 10.0)
    """
    return usual if few == 0 else np.cbrt(usual**3 + (few * ideal / (1.0 + (rows / ROWS) ** 4)) ** 3)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    gpu: str = ANY
    architecture: str = ANY
    engine: str = ANY
    compute: float = 1.0
    bandwidth: float = 1.0
    network: float = 1.0
    few: float = 0.0
    rows: int = 0
    source: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    card: tuple[_Row, ...] = ()


@cache
def _rows() -> tuple[_Row, ...]:
    path = CALIBRATION / "devices.toml"
    try:
        return structured(tomllib.loads(path.read_text(encoding="utf-8")), _File).card
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise RooflmError(f"{path.name}: {exc}") from exc


_forced: list[Reach] = []


@contextmanager
def forced(reach: Reach) -> Iterator[None]:
    """While it lasts every card has these factors (for fits)."""
    _forced.append(reach)
    try:
        yield
    finally:
        _forced.pop()


def card(gpu: str, architecture: str, engine: str) -> Reach:
    """The factors of a card: of this card in this engine, else of the card, else of its family of products (`kin`),
    else of its generation; else 1.

    >>> card("no-such-card", "no-such-generation", "vllm").compute
    1.0
    """
    return _forced[-1] if _forced else _card(gpu, architecture, engine)


def kin(gpu: str) -> str:
    """The family of products that a card belongs to, by its catalogue name: products of one family are limited alike
    (clocks, power, memory), whatever their generation. "~" for data-centre cards with HBM, which have kernel data.

    >>> [kin(g) for g in ("rtx-4090", "rtx-4000-ada", "l40s", "apple-m2-ultra", "h100-pcie-80gb")]
    ['~geforce', '~gddr', '~gddr', '~apple', '~']
    """
    for family, names in KIN.items():
        if re.match(names, gpu):
            return f"~{family}"
    return "~"


KIN = {
    "geforce": r"(rtx|gtx|titan)-\d{4}(?!.*ada)", "gddr": r"rtx-|quadro|a10\b|a16\b|a2\b|a40\b|l4\b|l40|t4\b|t40",
    "apple": r"apple", "instinct": r"mi\d", "jetson": r"jetson",
}  # fmt: skip
"""Family -> how its cards' catalogue names begin."""


@cache
def _card(gpu: str, architecture: str, engine: str) -> Reach:
    family = kin(gpu)
    for wanted in ((gpu, ANY, engine), (gpu, ANY, ANY), (family, ANY, engine), (family, ANY, ANY),
                   (ANY, architecture, engine), (ANY, architecture, ANY)):  # fmt: skip
        for row in _rows():
            if (row.gpu, row.architecture, row.engine) == wanted:
                return Reach(row.compute, row.bandwidth, row.network, row.few)
    return Reach()
