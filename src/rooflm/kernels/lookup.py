"""Which fitted constants a kernel takes: by device, engine, data type and kernel, with the documented fall-backs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rooflm.catalogue.quant import Quant
from rooflm.errors import UnknownNameError
from rooflm.kernels.constants import lookup, typed
from rooflm.kernels.training_factors import sibling
from rooflm.scenario.scenario import Scenario


class Where(NamedTuple):
    """What picks constants: the device, its generation, whose kernels, the data types of products and cache, and the
    engine's row."""

    gpu: str
    architecture: str
    kernels: str
    quant: str
    half: str
    kv: str
    engine: str = ""


def weight_dtype(q: Quant, computed: str) -> str:
    """The name by which the calibration tables know a scheme's products.

    >>> from rooflm.catalogue.quant import parse_quant
    >>> weight_dtype(parse_quant("int4"), "bf16"), weight_dtype(parse_quant("fp8-block"), "fp8")
    ('int4_wo', 'fp8_block')
    """
    bits, act = float(np.max(q.weight_bits)), float(np.max(q.act_bits))
    if q.block:
        return "fp8_block" if computed == "fp8" else "int8_wo"
    if bits >= 16:
        return computed
    if act >= 16:
        if q.kind == "float" and bits <= 4:
            return "mxfp4"
        return "int4_wo" if bits < 6 else "int8_wo"
    if bits <= 4:
        return "nvfp4" if act <= 4 else "mxfp4_mxfp8" if q.kind == "float" else "int4_wo"
    return computed if computed in ("fp8", "int8") else "int8_wo"


def where(s: Scenario, r: Any) -> Where:
    """What picks the constants of a scenario."""
    device = s.cluster.device
    kv = "fp8" if float(np.max(s.quant.kv_bits)) <= 8 else r.dtype["half"]
    name = sibling(device.name) if s.engine.phase == "training" else device.name
    return Where(name, device.architecture, s.engine.kernels.whose, weight_dtype(s.quant, r.dtype["quant"]),
                 r.dtype["half"], kv, s.engine.runs)  # fmt: skip


@lru_cache(maxsize=4096)
def constants(family: str, kind: type[Any], w: Where, dtype: str, kernel: str = "") -> Any:
    """The typed constants of a kernel family, by the documented fall-backs of `kernels.constants.lookup`."""
    return typed(kind, lookup(family, w.gpu, w.architecture, w.kernels, dtype, kernel).row)


@lru_cache(maxsize=4096)
def first_of(family: str, kind: type[Any], w: Where, dtype: str, kernels: tuple[str, ...]) -> Any:
    """Constants of the first of these kernels that the calibration file has at all, most special first.

    A name with a suffix that only some engines or GPUs have ("-mha", "-hd512") counts where this very engine has it.
    """
    for kernel in kernels[:-1]:
        try:
            found = lookup(family, w.gpu, w.architecture, w.kernels, dtype, kernel)
        except UnknownNameError:
            continue
        if found.row.engine == w.kernels or not any(mark in kernel for mark in SPECIAL):
            return typed(kind, found.row)
    return typed(kind, lookup(family, w.gpu, w.architecture, w.kernels, dtype, kernels[-1]).row)


SPECIAL = ("-hd", "-mha", "-wide")
"""Marks of kernels that serve some head sizes or query groups of one engine only."""
