"""Kernel times on a machine that its owner calibrated: a roofline of reached rates, with few constants.

Any device (a CPU too) is described by what `rooflm calibrate` fits from measurements of whole models and
micro-benchmarks, where no kernel tables exist."""

from __future__ import annotations

from rooflm.catalogue.hardware import Measured
from rooflm.graph.ops import DECODE_ATTENTION, PREFILL_ATTENTION, Op
from rooflm.kernels.blend import smooth_max
from rooflm.kernels.rates import Rates
from rooflm.units import Num, larger, pick

FEW_ROWS = 16
"""Rows up to which narrow weights are multiplied as they are; for more, they are unpacked once, at `convert` s each."""


def product_time(flops: Num, bytes_: Num, rows: Num, *, peak: Num, bandwidth: Num, c: Measured) -> Num:
    """Seconds of a product of `rows` rows: compute and traffic joined by a p-norm.

    t = ((F (1 + rows0 / rows) / P)^p + (B / (W s))^p)^(1/p); few rows use the units badly, p says how the two overlap;
    s is the share of the bandwidth W at which weights are read, which for one row (a vector product) is another than
    for more: libraries then copy the weights into blocks.

    >>> c = Measured(half_rows=8.0, sharp=1.0, matrix=0.5)
    >>> float(product_time(1e9, 1e9, 8.0, peak=1e10, bandwidth=2e10, c=c)).__round__(6)
    0.3
    """
    compute = flops * (1 + c.half_rows / larger(rows, 1)) / peak
    return smooth_max(c.sharp, compute, bytes_ / (bandwidth * pick(rows <= 1, c.vector, c.matrix)))


def attention_time(flops: Num, bytes_: Num, *, peak: Num, bandwidth: Num, share: Num, c: Measured) -> Num:
    """Seconds of an attention core: its products at a share of the compute rate or, if longer, its bytes at `share`.

    >>> float(attention_time(1e9, 1e6, peak=1e10, bandwidth=1e10, share=1.0, c=Measured(attention=0.5)))
    0.2
    """
    return larger(flops / (peak * c.attention), bytes_ / (bandwidth * share))


def op_time(op: Op, c: Measured, r: Rates) -> Num:
    """Seconds of one execution of an op with its launches, at reached rates: no roofline binds (caches may serve)."""
    time: Num
    if op.kind in ("gemm", "moe"):
        rows = op.shape[0]
        each = pick((rows <= FEW_ROWS) & (c.apart > 0), larger(rows, 1), 1)
        time = each * product_time(op.flops / each, op.bytes, rows / each, peak=r.peak[op.rate], bandwidth=r.dram, c=c)
        if op.kind == "gemm":
            unpacked = (op.widths[0] < op.widths[1]) & (rows > FEW_ROWS)
            time = time + pick(unpacked, op.shape[1] * op.shape[2] * c.convert, 0.0)
    elif op.kind in ("bmm", *PREFILL_ATTENTION, *DECODE_ATTENTION):
        share = c.decode if op.kind in DECODE_ATTENTION else c.stream
        time = attention_time(op.flops, op.bytes, peak=r.peak[op.rate], bandwidth=r.dram, share=share, c=c)
    else:
        time = op.bytes / (r.dram * c.stream)
    return time + c.launch * op.launches


def training_factor(op: Op, c: Measured) -> Num:
    """Time of an op in a training step over the above.

    >>> from rooflm.graph.ops import gemm
    >>> up = gemm("up", "mlp", 1, 8, 8, 8, (4, 4, 4))
    >>> training_factor(up._replace(role="wgrad"), Measured(backward=1.5))
    1.5
    """
    if op.kind in ("gemm", "moe", "bmm", *PREFILL_ATTENTION):
        return c.backward if op.role in ("dgrad", "wgrad") else 1.0
    return c.update if op.kind == "optimizer" else c.chain
