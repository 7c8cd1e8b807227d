"""The all-to-all of expert parallelism: tokens to the ranks of their experts (dispatch) and back (combine).

DeepEP's two kernels are modelled, "normal" (throughput; a token goes once to each rank that holds one of its experts)
and "low latency" (a token goes to each of its experts by itself). A plain all-to-all of NCCL is `collectives.time`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.ops import distinct_ranks
from rooflm.units import Num

BYTES = {"dispatch": 1.03125, "combine": 2.0}
"""Bytes an element on the wire: fp8 with a 4-byte scale for each 128 elements out, bf16 back."""


class ExchangeConstants(NamedTuple):
    """What a kernel reaches on one GPU; each a number or an array.

    start: fixed time (s); expert: time an expert of the model (s); eff: share of the link's one-way rate (above 1
    where copies that stay on the rank, or `fixed`, are many);
    sm_rate: B/s that one SM given to the exchange can copy; fixed: copies of a token whose cost does not depend on
    where it goes; lane: B/s at which one expert's rows can be written (low latency only).
    """

    start: Num
    expert: Num
    eff: Num
    sm_rate: Num
    fixed: Num
    lane: Num


def exchange_time(
    tokens: Num,
    hidden: Num,
    top_k: Num,
    experts: Num,
    ranks: Num,
    *,
    element_bytes: Num,
    bandwidth: Num,
    c: ExchangeConstants,
    low_latency: Num = 0.0,
    sms: Num = 20.0,
) -> Num:
    """Seconds of one dispatch or combine of `tokens` tokens a rank. Zero for one rank.

        T_wire = tokens h e (copies + fixed) / rate,  copies = distinct_ranks, or top_k in low latency mode
        rate = (1/(eff B)³ + 1/(sms sm_rate)³)^(-1/3);  sms: those given to a normal exchange (low latency takes all)
        T_lane = tokens ranks top_k / experts · h e / lane    (low latency: few experts, few writers)
        t = start + expert · experts + (T_wire³ + T_lane³)^(1/3)

    with e bytes an element. Source: DeepEP's README (github.com/deepseek-ai/DeepEP) for the two kernels; fitted by
    `rooflm.fitting.exchange`.

    >>> normal = ExchangeConstants(27e-6, 0, 0.9, 20e9, 1.0, 1e15)
    >>> t = exchange_time(4096, 7168, 8, 256, 8, element_bytes=1.03125, bandwidth=450e9, c=normal)
    >>> round(float(t) * 1e6)
    620
    """
    low = np.asarray(low_latency) > 0
    share = tokens * hidden * element_bytes
    copies = np.where(low, top_k, distinct_ranks(ranks, top_k)) + c.fixed
    by_sms = np.where(low, 0.0, 1.0 / (sms * c.sm_rate))
    wire = share * copies * np.cbrt((1.0 / (c.eff * bandwidth)) ** 3 + by_sms**3)
    lane = np.where(low, share * ranks * top_k / experts / c.lane, 0.0)
    total = c.start + c.expert * experts + np.cbrt(wire**3 + lane**3)
    return np.where(np.asarray(ranks) > 1, total, 0.0)
