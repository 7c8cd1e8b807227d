"""Calibrated kernel times: which fitted formula and which constants an op takes, by device, engine and data type.

The formulas and their constants come from kernel benchmarks, which run warm; a model's step finds its weights and KV
cache in device memory, so the warm share is 0 here. Kinds that nobody measured (convolutions, sampling) stream at the
rate of the nearest elementwise kernel; cards that nobody measured: see `kernels.derating`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rooflm.graph.ops import DECODE_ATTENTION, PREFILL_ATTENTION, Op, distinct
from rooflm.kernels.attention_times import decode_time, prefill_time, unfused_time
from rooflm.kernels.expert_kernels import expert_time
from rooflm.kernels.latent_times import latent_decode_time, latent_prefill_time
from rooflm.kernels.lookup import Where, setting
from rooflm.kernels.own_machine import op_time
from rooflm.kernels.products import gemm_times
from rooflm.kernels.rates import Rates, rates
from rooflm.kernels.streaming import stream_times
from rooflm.scenario.scenario import Scenario, arrays_in
from rooflm.units import Num, common_shape, larger, pick

ALIGNED = 16
"""Bytes of which the rows of operands are multiples where cuBLAS' batched products use tensor cores."""
FEW_POINTS = 64
"""Points up to which the products of all data types are evaluated together: fewer calls, but constants as arrays."""


def kernel_times(ops: Sequence[Op], floor: Sequence[Num], s: Scenario) -> list[Num]:
    """Seconds of ops before the engine's factors; floor: their roofline. Those of one broadcast shape go together."""
    device, point = s.cluster.device, s.axes == 0
    if device.measured is not None:
        r = rates(s)
        c = device.measured.of(r.dtype["half"])  # of the data type in which the rest of the model works
        return [op_time(op, c, r) for op in ops]
    w, r = setting(device, s.engine, s.quant, s.efficiency)
    devices = () if point else common_shape(arrays_in((r, device, s.engine)))
    out: list[Num] = [0.0] * len(ops)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, op in enumerate(ops):
        alone = point and not isinstance(op.bytes, np.ndarray)
        shape = () if alone else common_shape((op.flops, op.bytes, op.overlapped, op.launches, *op.shape))
        shape = np.broadcast_shapes(shape, devices) if devices else shape
        evaluate = FORMULAS.get(op.kind) or (gemm_times if op.kind == "gemm" else stream_times)
        rate = op.rate if math.prod(shape) > FEW_POINTS else ""
        groups.setdefault((evaluate, shape, rate), []).append(index)
    for (evaluate, shape, _), members in groups.items():
        chosen = [ops[i] for i in members]
        if evaluate in BATCHED:
            times, which = evaluate(chosen, shape, w, s, r), [*range(len(chosen))]
        else:
            different, which = distinct([_key(op) for op in chosen])
            times = [evaluate(chosen[i], w, s, r) for i in different]
        times = times if shape else [float(t) for t in times]
        lift = s.engine.factors.moe_factor if evaluate is expert_time and s.engine.kernels.gemv else 1.0  # undone there
        for index, op, at in zip(members, chosen, which, strict=True):
            out[index] = larger(times[at] * (1.0 - op.overlapped), floor[index] / lift)
    return out


def _key(op: Op) -> tuple[Any, ...]:
    """The sizes that an op's time depends on, its name and role: backward kernels have constants of their own."""
    return op.name, op.kind, op.role, op.rate, op.flops, op.bytes, op.launches, *op.shape, *op.widths


FACTORS = {
    **dict.fromkeys(("gemm", "simt"), "gemm_factor"), "moe": "moe_factor",
    **dict.fromkeys(DECODE_ATTENTION, "decode_factor"),
    **dict.fromkeys((*PREFILL_ATTENTION, "scores"), "attention_factor"),
}  # fmt: skip
"""Kind of kernel -> the engine's constant for it; streaming kernels take stream_factor."""


def batched_peak(op: Op, matrix: Num, vector: Num) -> Num:
    """FLOP/s of the units that a batched product runs on: tensor cores where its rows are whole multiples of 16 bytes,
    else fp32 units (heads of 108 16-bit values: 216 bytes).

    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core requirements".

    >>> from rooflm.graph.ops import bmm
    >>> [float(batched_peak(bmm("scores", "attention", 1, 64, 64, d, 1, 2), 312e12, 19.5e12)) for d in (104, 108)]
    [312000000000000.0, 19500000000000.0]
    """
    _rows, n, k, _batch = op.shape
    whole = (np.asarray(n * op.widths[0]) % ALIGNED == 0) & (np.asarray(k * op.widths[1]) % ALIGNED == 0)
    return pick(whole, matrix, vector)


FORMULAS: dict[str, Callable[[Op, Where, Scenario, Rates], Num]] = {
    "bmm": lambda op, w, s, r: unfused_time(op, batched_peak(op, r.peak[op.rate], r.peak["vector"]), r),
    **dict.fromkeys(("scores", "simt"), lambda op, w, s, r: unfused_time(op, r.peak[op.rate], r)),
    "attention": prefill_time, "mla_attention": latent_prefill_time, "decode_attention": decode_time,
    "mla_decode": latent_decode_time, "moe": expert_time,
}  # fmt: skip
"""Kind of op -> seconds of one. Ops of these kinds are evaluated one after the other, equal ones once."""
BATCHED = (gemm_times, stream_times)
"""What times all other ops, many in one call."""
