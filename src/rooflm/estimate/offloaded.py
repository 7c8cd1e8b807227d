"""Time of what the host computes or sends where layers or experts stay in its memory.

Decoding, the host's CPU reads the weights (of experts those that some token picked) and the cache of its layers at a
share of its memory's rate, while the device waits: layers follow each other. Long prompts run on the device, to which
the weights are sent over the link, as llama.cpp does for batches of 32 tokens and more."""

from __future__ import annotations

from dataclasses import replace

from rooflm.catalogue.model import MoE, ffn_params, matrix_params, mixer_params
from rooflm.estimate import memory as mem
from rooflm.graph.ops import distinct_experts
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.offload import away, on_device
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, larger, pick

SENT = 32
"""Tokens of a pass from which on weights are sent to the device (llama.cpp: GGML_OP_OFFLOAD_MIN_BATCH)."""


def device_part(s: Scenario) -> Scenario:
    """The scenario of what the device holds and computes."""
    return s if s.offload.off else replace(s, model=on_device(s.model.scaled, s.offload))


def stored_part(s: Scenario) -> Scenario:
    """The scenario of what the device's memory holds: all, where it is the host's as well."""
    return s if s.cluster.unified else device_part(s)


def host_bytes(s: Scenario, tokens: Num, context: Num) -> tuple[Num, Num]:
    """(bytes of weights, of cache a sequence) that a pass reads from host memory; of experts, those its tokens pick."""
    model, q = s.model.scaled, s.quant
    weights: Num = 0.0
    cache: Num = 0.0
    for block, whole, alone in away(model, s.offload):
        f = block.ffn
        each = matrix_params(model.hidden, f.width, f.gated) if isinstance(f, MoE) else 0.0
        routed = each * f.experts if isinstance(f, MoE) else 0.0
        picked = each * distinct_experts(f.experts, f.top_k, larger(tokens, 1.0)) if isinstance(f, MoE) else 0.0
        rest = mixer_params(block.mixer, model.hidden) + ffn_params(f, model.hidden) - routed
        weights = weights + (whole * (rest + picked) + alone * picked) * q.weight_bytes
        one = replace(model, blocks=(replace(block, count=1, layers=1),))
        cache = cache + whole * mem.kv_bytes_per_sequence(one, Mapping(), q, context)
    return weights, cache


def prompt_seconds(s: Scenario, tokens: Num) -> Num:
    """Seconds that the host adds to a pass of so many prompt tokens."""
    weights, _ = host_bytes(s, tokens, s.workload.prompt)
    return pick(tokens >= SENT, weights / s.offload.link, weights / s.offload.bandwidth / s.engine.host.cpu_share)


def decode_seconds(s: Scenario, sequences: Num, context: Num) -> Num:
    """Seconds that the host adds to a decode step of so many sequences at a mean context."""
    weights, cache = host_bytes(s, sequences, context)
    return (weights + sequences * cache) / s.offload.bandwidth / s.engine.host.cpu_share


def host_watts(s: Scenario) -> Num:
    """Watts of the host's CPU while it works on layers; none where it is the device's own chip, whose TDP holds it."""
    return 0.0 if s.offload.off else pick(s.cluster.unified, 0.0, s.offload.power)
