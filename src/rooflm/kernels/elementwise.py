"""Time of a memory-bound kernel (norm, rotary, activation, residual add, quantise, embedding) with fitted constants.

Each reads and writes its tensors once; what differs between kinds is how near to the DRAM's rate the kernel comes and
how long one row (one token) takes on the one SM that works on it, which is what small batches see.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.units import Num, larger


class ElementwiseConstants(NamedTuple):
    """Constants of `elementwise_time` for a (GPU, engine, kind), from data/calibration/elementwise.toml.

    t0: s, floor of a kernel; eff: share of the datasheet's DRAM bandwidth that a long kernel reaches;
    ramp: s, time lost until DRAM streams at full rate; row: bandwidth of one SM on its row over its share of the
    DRAM's (infinite: rows cost nothing of their own).
    """

    t0: Num = 0.0
    eff: Num = 1.0
    ramp: Num = 0.0
    row: Num = np.inf


IDEAL = ElementwiseConstants()
"""No overheads: bytes / bandwidth."""

START = 5e-6
"""s of DRAM time at which half of `ramp` is paid."""
L2_SAVES = 0.8
"""Share of the DRAM time that vanishes when the data are warm in L2."""

MEASURED_AS = {
    "norm": "norm",
    "softmax": "norm",
    "rope": "rope",
    "activation": "activation",
    "add": "add",
    "residual": "add",
    "copy": "add",
    "scale": "add",
    "embedding": "embedding",
    "gather": "embedding",
    "quantise": "quantise",
    "quantise-dynamic": "quantise-dynamic",
}
"""Kind of operation -> kind in the calibration file whose constants it takes (softmax, copies and the like have no
table of their own)."""


def elementwise_time(
    traffic: Num,
    *,
    bandwidth: Num,
    c: ElementwiseConstants = IDEAL,
    row_bytes: Num = 0.0,
    sms: Num = 1.0,
    hot: Num = 0.0,
) -> Num:
    """Time in s of a kernel that moves `traffic` bytes (reads and writes together); all arguments broadcast.

    bandwidth: DRAM B/s of the datasheet; row_bytes: B that one token's row moves (0 leaves that term out); sms:
    streaming multiprocessors; hot: share of the traffic that a warm L2 serves (0 in a model's step).

      t = t0 + max(T, row_bytes sms / (row bandwidth)) + ramp T / (T + 5 us)
      T = (1 - 0.8 hot) traffic / (eff bandwidth)

    Source: roofline (Williams et al. 2009) with a launch floor; constants fitted, see rooflm_fit.elementwise.

    >>> float(elementwise_time(2e9, bandwidth=2e12))
    0.001
    >>> c = ElementwiseConstants(t0=2e-6, eff=0.5, ramp=3e-6)
    >>> round(float(elementwise_time(10e6, bandwidth=2e12, c=c)) * 1e6, 3)  # 2 + 10 + 3 * 10 / 15
    14.0
    """
    t_dram = traffic * ((1.0 - L2_SAVES * hot) / (c.eff * bandwidth))
    t_row = row_bytes * (sms / (c.row * bandwidth))
    t: Num = c.t0 + larger(t_dram, t_row) + c.ramp * t_dram / (t_dram + START)
    return t
