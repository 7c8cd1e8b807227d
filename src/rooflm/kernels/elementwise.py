"""Time of a memory-bound kernel (norm, rotary, activation, residual add, quantise, embedding) with fitted constants.

Each reads and writes its tensors once; what differs between kinds is how near to the DRAM's rate the kernel comes and
how long one row (one token) takes on the one SM that works on it, which is what small batches see."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.kernels.blend import filling
from rooflm.units import Num, larger


class ElementwiseConstants(NamedTuple):
    """Constants of `elementwise_time` for a (GPU, engine, kind), of elementwise.toml; default: bytes over bandwidth."""

    t0: Num = 0.0  # s: floor of a kernel
    eff: Num = 1.0  # share of the datasheet's DRAM bandwidth that a long kernel reaches
    ramp: Num = 0.0  # s lost until DRAM streams at full rate
    row: Num = np.inf  # bandwidth of one SM on its row over its share of the DRAM's (infinite: rows cost nothing)


MEASURED_KERNEL = {
    "norm": "norm", "rope": "rope", "activation": "activation", "embedding": "embedding", "softmax": "norm",
    "conv": "activation", "scan": "norm", "add": "add",
}  # fmt: skip
"""Kind of a streaming op -> the measured kernel whose constants it takes (others: "add")."""
LEAST = {"adapter": 4.5e-6, "index": 4.5e-6}
"""Least s in a graph of a grouped low-rank product (two for each of 7 products in 32 layers take 2 ms a token: Punica,
arXiv 2310.18547, abstract), and of a kernel of a chain, stream_factor apart (8 of a router: 36 us; decision 117)."""


def elementwise_time(
    traffic: Num, *, bandwidth: Num, c: ElementwiseConstants, row_bytes: Num = 0.0, sms: Num = 1.0
) -> Num:
    """Time in s of a kernel that moves `traffic` bytes (reads and writes together); all arguments broadcast.

    bandwidth: DRAM B/s of the datasheet; row_bytes: B that one token's row moves (0 leaves that term out); sms:
    streaming multiprocessors.

      t = t0 + max(T, row_bytes sms / (row bandwidth)) + ramp T / (T + 5 us)
      T = traffic / (eff bandwidth)

    Source: roofline (Williams et al. 2009) with a launch floor; constants fitted, see rooflm_fit.elementwise."""
    t_dram = traffic / (c.eff * bandwidth)
    t_row = row_bytes * (sms / (c.row * bandwidth))
    return c.t0 + larger(t_dram, t_row) + filling(t_dram, c.ramp)
