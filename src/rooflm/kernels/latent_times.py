"""Calibrated times of attention over latents (MLA): which kernel of `kernels.mla` an engine runs, of prompts and in
decoding, and with which constants."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from rooflm.catalogue.fields import words_in
from rooflm.graph.ops import Op, attended
from rooflm.kernels import attention, mla
from rooflm.kernels.attention_times import cache_width
from rooflm.kernels.derating import beside_units, derating, matrix_share, softmax_share
from rooflm.kernels.elementwise import elementwise_time
from rooflm.kernels.lookup import Where, constants, in_graphs
from rooflm.kernels.rates import Rates
from rooflm.kernels.streaming import stream_constants
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, highest, is_plain, larger, pick, smaller

GRAPHLESS = 6e-6
"""s a kernel launch: from here on the host is eager, and the measured floor of a call is its."""


def _mean_pass(sequences: Num, new: Num, past: Num) -> tuple[Num, Num, Num]:
    """Sequences, new and past tokens where compressed entries count as part of a sequence: that part of its new tokens,
    in the mean pass over them.

    >>> _mean_pass(0.25, 1024.0, 100.0), _mean_pass(2.0, 1024.0, 100.0)
    ((1.0, 256.0, 484.0), (2.0, 1024.0, 100.0))
    """
    own = new * smaller(sequences, 1.0)
    return larger(sequences, 1.0), own, past + (new - own) / 2


def latent_prefill_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Latent attention of new tokens; the expansion of the latent is a product of its own in the graph. Where an
    indexer picks fewer tokens than there are, kernels over the latents take its place; for shorter prompts, too, where
    the engine has no other way (docs/decisions/0111). Without an indexer, 8-bit caches may be read by 8-bit queries."""
    sequences, new, past, heads, qk, v, picked, latent, rope = op.shape
    device, k, peak, all_read = s.cluster.device, s.engine.kernels, r.peak["half"], is_plain(picked, np.inf)
    eight = all_read and device.kernel_generation in words_in(k.narrow_prompts) and bool(highest(s.quant.kv_bits) <= 8)
    c = constants("mla", mla.MlaPrefillConstants, w, "fp8" if eight else w.half, ("mla-prefill",))
    c = c._replace(floor_s=pick(s.engine.host.issue_prefill > GRAPHLESS, c.floor_s, 0.0),
                   eff=c.eff * beside_units(device, derating(device, *w.engines), c.eff, w.generation),
                   softmax_dim=c.softmax_dim * matrix_share(device) * softmax_share(device))  # fmt: skip
    few = (past > 0) & (new < c.tile)
    if s.engine.kernels.cut_caches:
        c, (sequences, new, past) = c._replace(tail=0.0), _mean_pass(sequences, new, past)
    call = partial(mla.mla_prefill_time, sequences, heads=heads, qk_head=qk, v_head=v,
                   q_bytes=1 if eight else op.widths[0], card=r.card(peak), c=c)  # fmt: skip
    if s.engine.phase == "training" and not is_plain(s.mapping.cp, 1) and all_read:
        # kernels of a context group's chunks have equal work: that of the rank's own new / cp causal tokens
        return s.mapping.cp * call(new / s.mapping.cp, 0)
    time = call(new, past)
    over = partial(
        mla.latents_prefill_time, sequences, new, past, heads, latent=latent, rope=rope, peak=peak, sms=r.sms
    )
    if highest(before := k.latent_prompts):
        wide = time * (2.0 * latent + rope) / (qk + v)  # scores of latent + rope, sums of latents: more FLOPs a pair
        if k.attention != "own":
            all_of = constants("mla", mla.MlaLatentsConstants, w, w.half, (f"mla-prompts-{k.attention}",))
            wide = over(math.inf, c=all_of)
        if all_read and highest(few):
            sizes = (sequences, attended(new, past, math.inf), heads * new, latent, rope)
            wide = pick(few, smaller(wide, latent_decode_time(op._replace(shape=sizes), w, s, r, prompts=True)), wide)
        wide = wide * k.wide_latents
        if highest(s.quant.widths["attention"][1]) < 2:  # operands of both absorbed products
            chain = 4.0 * k.absorb_chain * sequences * new * heads * (qk - rope + latent)
            wide = wide + elementwise_time(chain, bandwidth=r.dram, c=stream_constants("index", w, k.vectorised))
        in_reach = (past > 0) | s.engine.server.prefix_caching | (before == math.inf)
        time = pick(in_reach & (past < before), wide, time)
    if not all_read:
        sparse = constants("mla", mla.MlaLatentsConstants, w, w.half, ("mla-sparse",))
        time = pick((new + past > picked) | k.sparse_prompts, over(picked, c=sparse), time)
    return time / s.mapping.cp


def latent_decode_time(op: Op, w: Where, s: Scenario, r: Rates, prompts: bool = False) -> Num:
    """Latent attention of one query a sequence (or of few tokens of prompts), absorbed; graphs replay it, so the host's
    floor is left out.

    Engines share its libraries (FlashMLA, FlashInfer, CUTLASS): tables measured eagerly (57 us a call) say little of a
    kernel in a graph, so there the other engines' stand in. FlashMLA's takes all places of a choice (a sixth size)."""
    k, own = s.engine.kernels, s.engine.kernels.attention == "own"
    width = cache_width(op, w, s) if own and not prompts else w.half  # Triton's widens a narrow cache
    rows, keys, heads, latent, rope, *picked = op.shape
    kernel = "mla-decode" if own else f"mla-decode-{k.attention}"
    if picked and width == "fp8" and w.generation in words_in(k.picked_on):
        kernel, keys = "mla-decode-picked", picked[0]
    fit = in_graphs(w, width, kernel)
    call = partial(mla.mla_decode_time, rows, keys, heads, latent=latent, rope=rope, kv_bytes=op.widths[1],
                   card=r.card(r.peak["half"]))  # fmt: skip
    if k.cut_caches:  # as the SMs ask for, not always into so many as Triton's
        fit = tuple(c._replace(max_splits=attention.SPLITS[-1]) for c in fit)
    elif all(c.max_splits < 0 for c in fit):  # a card that Triton alone reads latents on
        blocks = partial(mla.blocks_of, keys, r.sms, k.latent_cut)
        cut = [blocks(pick(k.latent_blocks > 0, k.latent_blocks, -c.max_splits)) for c in fit]
        fit = tuple(c._replace(max_splits=-n) for c, n in zip(fit, cut, strict=True))
    return reduce(smaller, [call(c=c._replace(floor_s=0.0)) for c in fit])
