"""Every row of a table of kernel constants, as the reader of single rows parses them, and cards of known sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rooflm.kernels.attention import DecodeConstants, PrefillConstants
from rooflm.kernels.constants import FitRow, entries_of
from rooflm.kernels.mla import MlaDecodeConstants, MlaPrefillConstants
from rooflm.kernels.rates import Card

IDEAL_PREFILL = PrefillConstants(0, 1, 0, 0, 0, 0, 64, 0, 0, 0, tile=1, pack_to=math.inf, eff_m=1)
IDEAL_DECODE = DecodeConstants(0, 1, 0, 64, 1e9, 0, 0, 0, 0, block=1, max_splits=1, group_tile=1, min_group=1, eff_c=1)
IDEAL_MLA_PREFILL = MlaPrefillConstants(0, 1, 0, 0, 64, 0, 0, 0, tile=1, eff_m=1)
IDEAL_MLA_DECODE = MlaDecodeConstants(0, 1, 0, 64, 1e9, 0, 0, 1, 0, block=1, max_splits=128, group_tile=1)
"""The roofline: exact FLOPs at the datasheet's rate, every byte once."""

H200 = {"peak": 989e12, "bandwidth": 4800e9, "sms": 132}
DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "a100-sxm-80gb": ("ampere", {"peak": 312e12, "bandwidth": 2039e9, "sms": 108}),
    "h100-sxm-80gb": ("hopper", {"peak": 989e12, "bandwidth": 3350e9, "sms": 132}),
    "h200-sxm-141gb": ("hopper", H200),
    "b200-sxm-180gb": ("blackwell", {"peak": 2250e12, "bandwidth": 7700e9, "sms": 148}),
    "l40s": ("ada", {"peak": 362e12, "bandwidth": 864e9, "sms": 142}),
    "rtx-pro-6000-server-96gb": ("blackwell-rtx", {"peak": 503.8e12, "bandwidth": 1597e9, "sms": 188}),
}
"""Card -> generation, and dense FLOP/s in 16 bits, DRAM B/s and SMs of its datasheet."""


def by_rates(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's formula with the rates of its card by name (DRAM and multiprocessors need not be told)."""

    def call(*sizes: Any, **given: Any) -> Any:
        rates = {name: given.pop(name) for name in Card._fields if name in given}
        return formula(*sizes, card=Card(**{"bandwidth": 1.0, "sms": 1.0, **rates}), **given)

    return call


def load_constants(family: str) -> tuple[FitRow, ...]:
    """The rows of data/calibration/<family>.toml."""
    return tuple(entry.row for entry in entries_of(family))
