"""Mixture of experts: who is routed where, and the time of the fused expert kernels on one rank.

A rank holds `experts / ep` experts, or its tensor group's share of each. Its kernels sort the tokens by expert, run two
grouped GEMMs (gate-up, down) over the experts that received rows, with the activation between them, and put the rows
back. Every numeric argument is a number or an array; tile candidates are an extra leading axis, minimised away."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.graph.ops import distinct_experts
from rooflm.kernels.blend import filling_soon, smooth_max
from rooflm.kernels.constants import LEVELS, Match, lookup
from rooflm.kernels.rates import Card
from rooflm.units import Num, ceil, common_shape, expm1, larger, pick, smaller, sqrt

TILE_M = np.array([16.0, 64.0, 128.0, 16.0, 64.0, 128.0])
TILE_N = np.array([64.0, 64.0, 64.0, 256.0, 256.0, 256.0])
"""Tile candidates of the grouped GEMMs; finer lists fit no better."""
JOINED = 3.0
"""Exponent that joins the SMs' work with device memory's traffic (fitted once; see `blend.smooth_max`)."""


class MoEConstants(NamedTuple):
    """What a kernel reaches on one GPU and dtype: numbers or arrays."""

    start: Num  # s of the launches, sort and routing
    expert: Num  # s for each expert that the rank holds
    eff_c: Num  # share of the peak
    eff_m: Num  # share of DRAM's bandwidth
    c_sm: Num  # bandwidth that one SM can draw, as a multiple of its share
    ramp: Num  # s to fill the memory pipeline
    wave: Num  # s for each wave of tiles
    eff_pass: Num  # share of DRAM's bandwidth of the permute, activation and finalise passes
    stray: Num  # share of those passes over rows of other ranks too (kernels that mask instead of drop)
    l2: Num = 0.0  # bandwidth of L2 over DRAM's on the cards that it was fitted to (0: as on any)

    def on(self, l2: Num, tuned: Any = False) -> MoEConstants:
        """The constants on a card with another L2 (bandwidth over DRAM's), from which its SMs draw their operands.
        tuned: where tiles were tuned for the experts' shape, what an SM draws and waves of tiles bound none.

        >>> fed = MoEConstants(0, 0, 1, 1, 2.0, 0, 0, 1, 0, l2=2.5)
        >>> fed.on(5.0).c_sm, fed._replace(l2=0.0).on(5.0).c_sm, fed.on(5.0, tuned=True).c_sm
        (4.0, 2.0, inf)
        """
        drawn = self.c_sm * l2 / self.l2 if self.l2 else self.c_sm
        return self._replace(c_sm=pick(tuned, np.inf, drawn), wave=pick(tuned, 0.0, self.wave))


class Routing(NamedTuple):
    """Work of the busiest rank."""

    rows: Num  # (token, expert) pairs that it computes
    experts: Num  # its experts with at least one row
    spread: Num  # 0 where experts have equally many rows (balanced benchmarks, one token), 1 where they scatter


def largest_of(count: Num) -> Num:
    """Expected maximum of `count` standard normals: 0.8 ln(n)^0.75, to 8 % for 2 to 256 (Harter 1961)."""
    return 0.8 * np.log(larger(count, 1.0)) ** 0.75


def imbalance(tokens: Num, top_k: Num, experts: Num, ep: Num, skew: Num = 0.0) -> Num:
    """Rows of the busiest of `ep` ranks over the mean: 1 + z(ep) sqrt(s² ep/E + ep/(T k)).

    The two terms are the scatter of popularity, averaged over the E/ep experts of a rank, and of the draws (Poisson).
    z is the expected maximum of ep standard normals (`largest_of`); 1 for ep = 1.

    >>> float(imbalance(1024, 8, 128, 1, 1.5)), round(float(imbalance(1024, 8, 128, 8, 1.5)), 2)
    (1.0, 1.52)
    """
    return 1.0 + largest_of(ep) * sqrt(skew * skew * ep / experts + ep / larger(tokens * top_k, 1.0))


WITHIN = 0.76
"""Variation of popularity among the experts of the busiest of several ranks, over that among all: the rest is between
ranks. From routers drawn by `ops.popularity`'s own law: experts touched there within 7 % (docs/decisions/0055)."""


def routed(tokens: Num, top_k: Num, experts: Num, ep: Num = 1, skew: Num = 0.0) -> Routing:
    """Routing of real tokens: the busiest rank's rows by `imbalance`, and its experts as of so many more tokens.

    tokens: those of all ranks of the expert-parallel group together. No rank has more than min(k, E/ep) rows a token.

    >>> [round(float(x), 1) for x in routed(32, 8, 256, ep=8)]
    [39.8, 23.0, 1.0]
    """
    local = experts / ep
    extra = imbalance(tokens, top_k, experts, ep, skew)
    rows = smaller(tokens * top_k / ep * extra, tokens * smaller(top_k, local))
    within = skew * pick(ep > 1, WITHIN, 1.0)
    touched = distinct_experts(experts, top_k, tokens * extra, skew=within) / ep
    return Routing(rows, smaller(smaller(touched, local), rows), pick(tokens > 1, 1.0, 0.0))


def pieces(rows: Num, tile: Num, spread: Num) -> Num:
    """Tiles of `tile` rows that `rows` rows take, or waves of as many tiles as SMs: ceil(m/b), or its mean where m
    scatters (over experts; over layers and steps).

    Averaged over an m that scatters widely, ceil(m/b) = (m-1)/b + 1 - (1 - 1/b)/2; while m - 1 is small against b it is
    1 tile: 1 + x - (1 - 1/b)/2 (1 - e^-x) with x = (m-1)/b."""
    x = larger(rows - 1.0, 0.0) / tile
    return pick(spread > 0, 1.0 + x + 0.5 * (1.0 - 1.0 / tile) * expm1(-x), ceil(rows / tile))


def grouped_gemm_time(
    routing: Routing, n: Num, k: Num,
    *, weight_bytes: Num, act_bytes: Num, card: Card, c: MoEConstants, fetched: Num = 1.0, least: Num = 0.0,
) -> NDArray[Any]:  # fmt: skip
    """Seconds of grouped GEMMs, [rows, k] x [experts, k, n], each with the best tile of the candidates.

        tiles = experts · pieces(m, bm) · ceil(n/bn),  m = rows / experts;  waves = pieces(tiles, SMs)
        T_sm = waves (max(2 bm bn k / (eff_c peak/SMs), (bm a + bn w) k / (c_sm BW/SMs)) + wave)
        T_dram = T + ramp (1 - e^(-T/5us)), T = bytes / (eff_m BW);  t = (T_sm³ + T_dram³)^(1/3)

    with a, w bytes an element of activations and weights; bm of at least `least` rows; `fetched` the share of the
    weights' bytes that device memory serves (1 but in a benchmark that repeats, whose weights stay in L2 in part).
    Source: tile and wave quantisation as in NVIDIA's "Matrix multiplication background" user guide; one SM's limited
    bandwidth is what few, wide experts meet (down projection: 32 tiles on 132 SMs)."""
    rank = len(common_shape((*routing, n, k, fetched, weight_bytes, act_bytes, *card[:3], least, *c)))
    bm, bn = (tile.reshape(-1, *(1,) * rank) for tile in (TILE_M, TILE_N))
    bm = np.maximum(bm, least)
    each = routing.rows / larger(routing.experts, 1e-12)
    tiles = routing.experts * ceil(n / bn) * pieces(each, bm, routing.spread)
    compute = bm * bn * (2.0 * card.sms * k / (c.eff_c * card.peak))
    memory = (bm * act_bytes + bn * weight_bytes) * (k * card.sms / (c.c_sm * card.bandwidth))
    on_sm = np.min(pieces(tiles, card.sms, routing.spread) * (larger(compute, memory) + c.wave), axis=0)
    moved = routing.experts * n * k * weight_bytes * fetched + routing.rows * (k * act_bytes + n * 2.0)
    dram = moved / (c.eff_m * card.bandwidth)
    return np.asarray(smooth_max(JOINED, on_sm, dram + filling_soon(dram, c.ramp)))


def _stack(first: Num, second: Num, rank: int) -> NDArray[Any]:
    """Two numbers or arrays on a new leading axis, in front of `rank` axes that they may lack."""
    pair = np.array([first + 0.0 * second, second + 0.0 * first])
    return pair.reshape(2, *(1,) * (rank - pair.ndim + 1), *pair.shape[1:])


def moe_time(
    tokens: Num, hidden: Num, width: Num, routing: Routing,
    *, top_k: Num, experts: Num, card: Card, c: MoEConstants, ep: Num = 1, gated: Num = 1.0, weight_bytes: Num = 2.0,
    act_bytes: Num = 2.0, fetched: Num = 1.0, value_bytes: Num = 2.0, least: Num = 0.0,
) -> Num:  # fmt: skip
    """Seconds of a layer's expert kernels on the busiest rank, without communication. Zero for zero tokens.

    tokens: of all ranks of the group; width: of an expert on the rank; gated: 1 for gate and up projections, 0 for one;
    weight_bytes, act_bytes: bytes an element in the GEMMs, scales included; fetched: as in `grouped_gemm_time` (only
    fits of warm benchmarks give it); value_bytes: of a value that passes move.

        t = start + expert · E/ep + GEMM(gate-up) + GEMM(down) + passes / (eff_pass BW)
        passes = rows' (2 h + (2 + gated) w) value_bytes + T h 4 B,   rows' = rows + stray (T k - rows)

    (permute writes and finalise reads h a row; the activation reads 1 + gated and writes 1 times w.) Fitted.

    >>> h200 = Card(peak=989e12, bandwidth=4.8e12, sms=132)
    >>> fused = MoEConstants(18e-6, 3e-8, 0.9, 0.97, 2.0, 7e-6, 1e-6, 0.45, 0.01)
    >>> routing = Routing(128.0, 128.0, 0.0)   # 128 experts of 3 · 2048 · 768 weights: 252 us at full bandwidth
    >>> seconds = moe_time(16, 2048, 768, routing, top_k=8, experts=128, c=fused, card=h200)
    >>> round(float(seconds) * 1e6)   # measured: 301
    311
    """
    matrices = 2.0 + gated
    sizes = width, hidden, matrices, fetched, weight_bytes, act_bytes, *card[:3], least
    rank = len(common_shape((*routing, *sizes, *c)))
    n, k = _stack((1.0 + gated) * width, hidden, rank), _stack(hidden, width, rank)
    gemms = grouped_gemm_time(
        routing, n, k, fetched=fetched, weight_bytes=weight_bytes, act_bytes=act_bytes, card=card, c=c, least=least
    ).sum(axis=0)
    rows = routing.rows + c.stray * larger(tokens * top_k - routing.rows, 0.0)
    passes = rows * (2.0 * hidden + matrices * width) * value_bytes + tokens * hidden * 4.0
    return pick(tokens > 0, c.start + c.expert * experts / ep + gemms + passes / (c.eff_pass * card.bandwidth), 0.0)


def usual(gpu: str, generation: str, engine: str, dtype: str, expert_parallel: bool = False) -> Match:
    """The row of an engine's usual kernels.

    Without expert parallelism the rows fitted to ep = 1 ("tp") come first: engines tune the shapes of whole models,
    and often not those of an expert-parallel rank. A nearer match of the general rows ("") still beats a far one."""
    matches = [lookup("moe", gpu, generation, engine, dtype, k) for k in ([""] if expert_parallel else ["tp", ""])]
    return min(matches, key=lambda match: LEVELS.index(match.level))
