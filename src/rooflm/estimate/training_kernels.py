"""What kernels take inside a training step: their calibrated times, times what a step's conditions make of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MoE
from rooflm.graph.ops import PREFILL_ATTENTION, PRODUCTS, Comm, Op
from rooflm.kernels import training_factors as factors
from rooflm.kernels.derating import ROOT, matrix_share, power_ratio
from rooflm.kernels.dispatch import ALIGNED
from rooflm.kernels.own_machine import training_factor
from rooflm.kernels.rates import Rates, best_rates
from rooflm.kernels.roofline import Timed
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, highest, larger, pick, smaller


def kernel_factor(t: Timed, s: Scenario, r: Rates) -> Num:
    """Time of a kernel in a training step over its calibrated time: the generation's factor times the engine's."""
    node: Op = t.node  # type: ignore[assignment]
    e, device, generation = s.engine, s.cluster.device.name, s.cluster.device.kernel_generation
    if node.kind == "gemm":
        single = e.factors.gemm_factor * product_factor(s, r.dtype[node.rate], node.flops / r.peak[node.rate] / t.time)
        if node.of != "experts":
            return single * (unaligned(s) if node.of == "logits" else 1.0)
        alone, library = bias_factor(s), e.kernels.experts if one_product(s) else "forward"
        return single * e.factors.moe_factor * alone * factors.factor("moe", library, device, generation)
    if node.kind == "scan":
        return e.factors.attention_factor * factors.factor("scan", "roofline", device, generation)
    if node.kind in PREFILL_ATTENTION:
        kernel = factors.of_mask(node.of, e.kernels.attention_kernel, generation)
        forward, back = (unhurried(f, s) for f in factors.attention(kernel, device, generation))
        latent = factors.factor("latent", node.role, device, generation) if node.kind == "mla_attention" else 1.0
        return e.factors.attention_factor * latent * forward * (back if node.role == "dgrad" else 1.0)
    return 1.0


def product_factor(s: Scenario, dtype: str, used: Num) -> Num:
    """Time of products of a data type in a step over their time alone: the generation's factor, corrected for the power
    that the card has for the share of its peak that the kernel uses; power never makes them faster than alone."""
    d = s.cluster.device
    factor = unhurried(factors.gemm(d.name, d.kernel_generation, dtype, s.quant.name), s)
    factor *= factors.early(d.kernel_generation, dtype) if s.engine.kernels.early else 1.0
    watts = factors.table()["power"]  # none: no card of the generation showed a difference
    fitted = watts.get(d.name, watts.get(d.kernel_generation))
    share = 1.0 if fitted is None else power_ratio(fitted, d.tdp, d.half_peak * used) ** ROOT
    return pick(share < 1, larger(factor * share, smaller(factor, 1.0)), factor * share)


def unhurried(factor: Num, s: Scenario) -> Num:
    """A generation's slowdown on a card with smaller matrix units. Power, operand supply and softmax limit small units
    less, so that the part above 1 shrinks with their size.

    Source: H20 (a quarter of H100's products a clock, 500 W) trains at 84 % of its peak where H100 reaches 40 to 55."""
    return factor if highest(factor) <= 1.0 else 1.0 + (factor - 1.0) * smaller(1.0, matrix_share(s.cluster.device))


def unaligned(s: Scenario) -> Num:
    """Factor on the head's products where a row of logits is no whole number of 16 bytes (GPT-2's 50,257 words)."""
    slower = factors.factor("unaligned", "logits", s.cluster.device.name, s.cluster.device.kernel_generation)
    aligned = s.engine.kernels.pads_vocab or ceil(s.model.vocab / s.mapping.tp) * s.quant.half_bytes % ALIGNED == 0
    return pick(aligned, 1.0, slower)


def bias_factor(s: Scenario) -> float:
    """Factor on expert products and activations: above 1 where experts have biases that no kernel fuses."""
    unfused: float = factors.table()["experts"]["bias"]
    biased = any(isinstance(b.ffn, MoE) and b.ffn.bias for b in s.model.blocks)
    return unfused if biased and not s.engine.kernels.grouped else 1.0


def one_product(s: Scenario) -> bool:
    """Whether one kernel holds the products of all experts: a library may have it for some generations of cards, and on
    others call a product an expert, from C++ (PyTorch, GroupedBlas.cpp and GroupedMMUtils.h, _grouped_mm_fallback)."""
    on = words_in(s.engine.kernels.grouped_on)
    return s.engine.kernels.grouped and (not on or s.cluster.device.kernel_generation in on)


def calls_of_experts(s: Scenario) -> Num:
    """Products that the library makes of one of the graph's, of experts: 0 where one kernel holds all of them."""
    if one_product(s):
        return 0.0
    if not s.engine.kernels.grouped:  # the graph has them one by one
        return 1.0
    none: Num = 0.0
    return reduce(larger, (b.ffn.experts for b in s.model.blocks if isinstance(b.ffn, MoE)), none) / s.mapping.ep


STREAM_FLOOR = 2e-6
"""s: floor of an elementwise kernel."""


def stream_time(node: Op, s: Scenario, r: Rates) -> Num:
    """Seconds of an elementwise kernel on a micro-batch's tensors: bytes over a share of the bandwidth, or what it
    computes over the peak of its units, and floors."""
    biased = node.of == "experts" and node.kind == "activation"
    slower = bias_factor(s) if biased else stream_factor(node)
    reached = smaller(s.engine.factors.stream_share, pick(s.engine.kernels.fused, 1.0, s.engine.factors.plain_share))
    device, generation = s.cluster.device.name, s.cluster.device.kernel_generation
    reached = smaller(reached, factors.factor("reached", "copies", device, generation))
    moves = slower * node.bytes / (reached * r.dram)
    return larger(moves, node.flops / r.peak[node.rate]) + STREAM_FLOOR * node.launches


def stream_factor(node: Op) -> float:
    """Time of a streaming kernel over that of one which reaches the usual share of the bandwidth."""
    return float(factors.table()["stream"].get(node.name, 1.0))


def alone(t: Timed, s: Scenario) -> Num:
    """A kernel's calibrated time. For attention on a few big cores, which fetch one tile while they compute another,
    the device's `attention_share` of the peak replaces the cost of a tile that GPUs pay.

    Source: JAX, Pallas' flash and splash attention on TPU (double-buffered blocks)."""
    reached = s.cluster.device.attention_share
    if t.node.kind not in PREFILL_ATTENTION or not np.any(reached):  # type: ignore[union-attr]
        return t.time
    return pick(reached > 0, smaller(t.time, t.roof / pick(reached > 0, reached, 1.0)), t.time)


def in_training(timed: Sequence[Timed], s: Scenario) -> list[Timed]:
    """Times of kernels in a training step: their calibrated times alone, times the factors of training."""
    if s.efficiency.mode != "calibrated":
        return list(timed)
    r, measured, out, calls = best_rates(s), s.cluster.device.measured, list[Timed](), calls_of_experts(s)
    for t in timed:
        if isinstance(t.node, Comm):
            time = t.time * (s.engine.factors.dp_factor if measured is None and t.node.group == "dp" else 1.0)
        elif measured is not None:  # on a machine that its owner calibrated
            time = t.time * training_factor(t.node, measured.of(r.dtype["half"])) * stream_factor(t.node)
        else:
            took = alone(t, s) * kernel_factor(t, s, r) if t.node.kind in PRODUCTS else stream_time(t.node, s, r)
            of_experts = t.node.of == "experts" and t.node.kind in ("gemm", "cast")
            time = took + s.engine.host.expert_launch * t.node.launches * calls * of_experts
        out.append(t._replace(time=time))
    return out
