"""Calibrated kernel times: which fitted formula and which constants an op takes, by device, engine and data type.

The formulas and their constants come from kernel benchmarks, which run warm; a model's step finds its weights and KV
cache in device memory, so the warm share is 0 here. Kinds that nobody measured (recurrent scans, convolutions,
sampling) stream at the rate of the nearest elementwise kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.collectives import CollectiveConstants, fitted
from rooflm.kernels.attention import (
    DecodeConstants,
    PrefillConstants,
    decode_attention_time,
    prefill_attention_time,
)
from rooflm.kernels.constants import CALIBRATION, lookup, typed
from rooflm.kernels.gemm import GemmConstants, gemm_time
from rooflm.kernels.moe import Hardware, MoEConstants, moe_time, routed
from rooflm.ops import Comm, Op
from rooflm.quant import Quant
from rooflm.scenario import Scenario
from rooflm.units import Num


class Where(NamedTuple):
    """What picks constants: the device, its generation, whose kernels, and the data types of products and cache."""

    gpu: str
    architecture: str
    kernels: str
    quant: str
    half: str
    kv: str


def weight_dtype(q: Quant, computed: str) -> str:
    """The name by which the calibration tables know a scheme's products.

    >>> from rooflm.quant import parse_quant
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
    return Where(device.name, device.architecture, s.engine.kernels, weight_dtype(s.quant, r.dtype["quant"]),
                 r.dtype["half"], kv)  # fmt: skip


@lru_cache(maxsize=4096)
def constants(family: str, kind: type[Any], w: Where, dtype: str, kernel: str = "") -> Any:
    """The typed constants of a kernel family, by the documented fall-backs of `kernels.constants.lookup`."""
    return typed(kind, lookup(family, w.gpu, w.architecture, w.kernels, dtype, kernel).row)


STREAMS = {
    "norm": "norm", "rope": "rope", "activation": "activation", "add": "add", "embedding": "embedding",
    "kv_write": "add", "sample": "add", "softmax": "add", "conv": "activation", "route": "add", "scan": "norm",
}  # fmt: skip
"""Elementwise kernel whose constants a streaming op takes."""


def kernel_times(ops: Sequence[Op], shape: tuple[int, ...], floor: NDArray[Any], s: Scenario, r: Any) -> NDArray[Any]:
    """Seconds of ops of one broadcast shape, (ops, *shape). floor: their roofline, which no kernel beats."""
    w = where(s, r)
    out = np.empty((len(ops), *shape))
    groups: dict[tuple[str, str], list[int]] = {}
    for index, op in enumerate(ops):
        groups.setdefault((FAMILY.get(op.kind, "stream"), op.rate), []).append(index)
    for (family, rate), members in groups.items():
        chosen = [ops[i] for i in members]
        times = EVALUATE[family](chosen, shape, rate, w, s, r)
        for index, time in zip(members, times, strict=True):
            out[index] = time
    return np.maximum(out, floor)


def _stack(values: Sequence[Num], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values of several ops along a new leading axis."""
    if shape == ():
        return np.array(values, dtype=float)
    return np.stack([np.broadcast_to(v, shape) for v in values])


def _gemms(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> NDArray[Any]:
    """All products of one data type together."""
    dtype = w.quant if rate == "quant" else w.half
    c = constants("gemm", GemmConstants, w, dtype)
    m, n, k = (_stack([op.shape[i] for op in ops], shape) for i in range(3))
    wide = [_stack([op.widths[i] for op in ops], shape) for i in range(3)]
    return np.asarray(
        gemm_time(m, n, k, weight_bytes=wide[0], act_bytes=wide[1], out_bytes=wide[2], peak=r.peak[rate],
                  bandwidth=r.dram, sms=s.cluster.device.sms, c=c)
    )  # fmt: skip


def _attention(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> list[Num]:
    """Prefill attention; MLA's expanded heads are those of a wide head."""
    if not (CALIBRATION / "attention.toml").is_file():
        return [op.flops / (0.5 * r.peak["half"]) + op.bytes / r.dram + 5e-6 for op in ops]
    c = constants("attention", PrefillConstants, w, w.half, "prefill")
    times: list[Num] = []
    for op in ops:
        sequences, new, past, heads, kv, qk, v, window = op.shape
        times.append(
            prefill_attention_time(sequences, new, past, heads, kv, (qk + v) / 2, q_bytes=op.widths[0],
                                   kv_bytes=op.widths[1], peak=r.peak["half"], bandwidth=r.dram,
                                   sms=s.cluster.device.sms, c=c, window=window) / s.mapping.cp
        )  # fmt: skip
    return times


def _decode(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> list[Num]:
    """Decode attention over the KV cache."""
    if not (CALIBRATION / "attention.toml").is_file():
        return [op.bytes / (0.8 * r.dram) + 6e-6 for op in ops]
    c = constants("attention", DecodeConstants, w, w.kv, "decode")
    times: list[Num] = []
    for op in ops:
        rows, keys, heads, kv, qk, v = op.shape
        times.append(
            decode_attention_time(rows, keys, heads, kv, (qk + v) / 2, kv_bytes=op.widths[1], peak=r.peak["half"],
                                  bandwidth=r.dram, sms=s.cluster.device.sms, c=c)
        )
    return times


def _moe(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> list[Num]:
    """Expert layers: sort, two grouped products, combine."""
    c = constants("moe", MoEConstants, w, w.quant)
    d = s.cluster.device
    hardware = Hardware(r.peak[rate], r.dram, d.sms, d.l2.size)
    times: list[Num] = []
    for op in ops:
        tokens, hidden, width, experts, local, top_k, _ = op.shape
        ep = experts / local
        routing = routed(tokens, top_k, experts, ep)
        times.append(
            moe_time(tokens, hidden, width, routing, top_k=top_k, experts=experts, device=hardware, c=c, ep=ep,
                     weight_bytes=op.widths[0], act_bytes=op.widths[1])
        )
    return times


def _streams(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> list[Num]:
    """Elementwise kernels: each launch of a chain pays its floor."""
    times: list[Num] = []
    for op in ops:
        times.append(op.bytes / (0.7 * r.dram) + 1.8e-6 * op.launches)
    return times


def _bmms(ops: Sequence[Op], shape: tuple[int, ...], rate: str, w: Where, s: Scenario, r: Any) -> list[Num]:
    """Batched products of unfused attention: 0.7 of either roof, the rest is the engine's `bmm_factor`."""
    return [np.maximum(op.flops / (0.7 * r.peak[rate]), op.bytes / (0.7 * r.dram)) + 5e-6 for op in ops]


FAMILY = {
    "gemm": "gemm", "bmm": "bmm", "attention": "attention", "mla_attention": "attention", "decode_attention": "decode",
    "mla_decode": "mla", "moe": "moe",
}  # fmt: skip
EVALUATE: dict[str, Any] = {
    "gemm": _gemms, "bmm": _bmms, "attention": _attention, "decode": _decode, "mla": _decode, "moe": _moe, "stream": _streams,
}  # fmt: skip


def collective_constants(comm: Comm, s: Scenario) -> list[CollectiveConstants | None]:
    """The constants of a collective on every tier of the cluster."""
    device, library = s.cluster.device, "nccl"
    if comm.op == "all_reduce" and s.engine.all_reduce == "custom":
        library = s.engine.kernels
    return [
        fitted(comm.op, gpu=device.name, architecture=device.architecture, library=library, kind=tier.kind)[0]
        for tier in s.cluster.tiers
    ]
