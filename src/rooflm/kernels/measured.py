"""Kernel times on a machine that its owner calibrated: a roofline of reached rates, with few constants.

Any device (a CPU too) is described by what `rooflm calibrate` fits from measurements of whole models and
micro-benchmarks, where no kernel tables exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.hardware import Measured
from rooflm.ops import Op
from rooflm.units import Num


def product_time(flops: Num, bytes_: Num, rows: Num, *, peak: Num, bandwidth: Num, c: Measured) -> Num:
    """Seconds of a product of `rows` rows: compute and traffic joined by a p-norm.

    t = ((F (1 + rows0 / rows) / P)^p + (B / W)^p)^(1/p); few rows use the units badly, p says how the two overlap.

    >>> c = Measured(half_rows=8.0, sharp=1.0)
    >>> float(product_time(1e9, 1e9, 8.0, peak=1e10, bandwidth=1e10, c=c)).__round__(6)
    0.3
    """
    compute = flops * (1 + c.half_rows / np.maximum(rows, 1)) / peak
    traffic = bytes_ / bandwidth
    longest = np.maximum(np.maximum(compute, traffic), 1e-30)
    joined: Num = longest * ((compute / longest) ** c.sharp + (traffic / longest) ** c.sharp) ** (1 / c.sharp)
    return joined


def op_time(op: Op, c: Measured, r: Any) -> Num:
    """Seconds of one execution of an op, its launches included."""
    if op.kind in ("gemm", "moe"):
        rows = op.shape[0]
        time = product_time(op.flops, op.bytes, rows, peak=r.peak[op.rate], bandwidth=r.dram, c=c)
        if op.kind == "gemm":
            time = time + np.where(op.widths[0] < op.widths[1], op.shape[1] * op.shape[2] * c.convert, 0.0)
    elif op.kind in ("attention", "bmm", "mla_attention"):
        time = np.maximum(op.flops / (r.peak[op.rate] * c.attention), op.bytes / (r.dram * c.stream))
    elif op.kind in ("decode_attention", "mla_decode"):
        time = np.maximum(op.flops / (r.peak[op.rate] * c.attention), op.bytes / (r.dram * c.decode))
    else:
        time = op.bytes / (r.dram * c.stream)
    return time + c.launch * op.launches


def times(ops: Sequence[Op], floor: NDArray[Any], c: Measured, r: Any) -> NDArray[Any]:
    """Seconds of ops in the shape of their roofline `floor`, (ops, ...). The rates are reached ones, so that the floor
    does not bind: streams may stay in a cache."""
    out = np.empty_like(floor)
    for index, op in enumerate(ops):
        out[index] = op_time(op, c, r)
    return out
