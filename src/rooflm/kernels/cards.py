"""What a card reaches of its datasheet where no kernel of it was measured: data/calibration/devices.toml.

Kernel constants are shares of datasheet rates, fitted on data-centre cards of NVIDIA. Consumer cards, AMD's and Apple's
do not follow their datasheets alike, so two factors a card (and engine family) scale its rates before the formulas.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import NamedTuple

import msgspec

from rooflm.errors import RooflmError
from rooflm.kernels.constants import ANY, CALIBRATION


class Reach(NamedTuple):
    """Compute and bandwidth that a card's kernels see, over its datasheet's; network: rate of its machines' collectives
    over that of the machine measured."""

    compute: float = 1.0
    bandwidth: float = 1.0
    network: float = 1.0


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    gpu: str = ANY
    architecture: str = ANY
    engine: str = ANY
    compute: float = 1.0
    bandwidth: float = 1.0
    network: float = 1.0
    rows: int = 0
    source: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    card: tuple[_Row, ...] = ()


@cache
def _rows() -> tuple[_Row, ...]:
    path = CALIBRATION / "devices.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File).card
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise RooflmError(f"{path.name}: {exc}") from exc


@cache
def card(gpu: str, architecture: str, engine: str) -> Reach:
    """The factors of a card: of this card in this engine, else of the card, else of its generation; else 1.

    >>> card("no-such-card", "no-such-generation", "vllm")
    Reach(compute=1.0, bandwidth=1.0, network=1.0)
    """
    for wanted in ((gpu, ANY, engine), (gpu, ANY, ANY), (ANY, architecture, engine), (ANY, architecture, ANY)):
        for row in _rows():
            if (row.gpu, row.architecture, row.engine) == wanted:
                return Reach(row.compute, row.bandwidth, row.network)
    return Reach()
