"""Calibrated times of matrix products: of tensor cores by tiles and waves, and of llama.cpp's kernels for few rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.fields import number_by_name, words_in
from rooflm.catalogue.hardware import Derating
from rooflm.graph.ops import Op, columns, stacked
from rooflm.kernels.blend import filling, smooth_max
from rooflm.kernels.constants import lookup
from rooflm.kernels.derating import card_file, derating, few_rows_time, power_slowdown, small_units, warp_share
from rooflm.kernels.elementwise import ElementwiseConstants, elementwise_time
from rooflm.kernels.gemm import TILES, GemmConstants, gemm_time
from rooflm.kernels.lookup import Where, constants
from rooflm.kernels.rates import Rates, halves_only, integer_dots, of_scheme, vector_integers_only
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, is_plain, larger, pick, smaller


def gemm_times(ops: Sequence[Op], shape: tuple[int, ...], w: Where, s: Scenario, r: Rates) -> NDArray[Any]:
    """Seconds of each product, all in one call, those of several data types with constants and peaks of their own."""
    kernels, reached = s.engine.kernels, derating(s.cluster.device, *w.engines)
    vector = kernels.gemv and w.quant in ("int4_wo", "int8_wo")
    narrow = {"quant": w.half if vector else w.quant, "rest": w.rest}
    dtypes = {op.rate: narrow.get(op.rate) or w.half for op in ops}
    chosen = {rate: _gemm_constants(dtype, w, s) for rate, dtype in dtypes.items()}
    tiles = {rate: _borrowed_tiles(dtype, w, s, r, reached) for rate, dtype in dtypes.items()}
    c, (share, units, least) = chosen[ops[0].rate], tiles[ops[0].rate]
    peak = r.peak[ops[0].rate] * share
    if len({(r.dtype[rate], one) for rate, one in chosen.items()}) > 1:
        each = np.array([chosen[op.rate] for op in ops]).T
        c = GemmConstants(*each.reshape((*each.shape, *(1,) * len(shape))))
        share, units, least = (stacked(one, shape) for one in zip(*(tiles[op.rate] for op in ops), strict=True))
        peak = stacked([r.peak[op.rate] for op in ops], shape) * share
    m, n, k, *wide = columns([(*op.shape[:3], *op.widths) for op in ops], shape)
    if kernels.gemv and is_plain(kernels.dequant, 0):
        clock = reached.compute / power_slowdown(s.cluster.device)
        dots, whole = kernels.dots * clock * integer_dots(s), integer_peak(s)
        halves = smaller(peak, r.peak["vector"]) if vector_integers_only(s) and s.quant.half == "fp16" else peak
        peak = pick(wide[0] < 2, pick(np.isfinite(whole), whole, larger(peak, dots)), halves)
        few = halves_only(s, r) & (wide[0] < 2) & (m < kernels.dots_below)
        peak = pick(few, smaller(peak, 4.0 * kernels.dots * r.peak["vector"]), peak)  # a dp4a is of four values
    card = r.card(peak)
    rows = larger(m, TILES.max()) if vector_integers_only(s) else m  # dot by dot: no tile to fill (ggml-cpu.c, mul_mat)
    by = partial(gemm_time, rows, n, k, weight_bytes=wide[0], act_bytes=wide[1], out_bytes=wide[2], units=units,
                 least=least)  # fmt: skip
    time: Num = by(card=card, c=c) * (m / rows)
    if not is_plain(kernels.tile_rows, 0):
        rows, full = larger(kernels.tile_rows, 1.0), peak * (1.0 - c.thr) / (1.0 + units * (1.0 / c.eff_c - 1.0))
        one_tile = one_tile_time(m, n, k, rows=rows, more=kernels.tile_more, peak=full, sms=r.sms)
        time = pick(kernels.tile_rows > 0, larger(by(card=r.card(np.inf), c=c), one_tile), time)
    if kernels.tuned and "fp8_block" in dtypes.values():
        best = by(card=card, c=constants("gemm", GemmConstants, w, "fp8_block"))
        blocks = stacked([dtypes[op.rate] == "fp8_block" for op in ops], shape) > 0
        time = pick(blocks & has_shape(n, k, kernels.tuned), best, time)
    cast = kernels.quantise * (not quantised_before(w, s))
    if not is_plain(cast, 0.0):
        ready = words_in(kernels.ready_operands)
        alone = stacked([f"{op.name}/{dtypes[op.rate]}" not in ready for op in ops], shape) > 0
        time = time + pick(alone & (wide[1] < 2) & (c.q_pass == 0) & (cast > 0), cast + 3.0 * m * k / r.dram, 0.0)
    time = time + group_quantise_time(m * k * (wide[1] < 2), w, s)
    if kernels.gemv:
        time = _with_vector_kernels(time, m, n, k, weight_bytes=wide[0], c=c, w=w, s=s, r=r)
    elif kernels.scheme_stream or not is_plain(kernels.sm_stream, 0.0):  # kernels of weights alone, before Marlin
        read = pick((wide[0] < 2) & (wide[1] >= 2), n * k * smaller(wide[0], 0.5), 0.0)  # value by value: 8 bits as 4
        time = larger(time, read / weight_limit(s))
        time = larger(time, pick(read > 0, 2.0 * m * n * k, 0.0) / sm_limit(s, kernels.sm_integers))
    if not is_plain(kernels.narrow_rows, 0):
        plain = constants("gemm", GemmConstants, w, w.half)
        few = (wide[0] < 2) & (wide[1] >= 2) & (m <= kernels.narrow_rows)
        time = pick(few, smaller(time, vector_time(n * k * wide[0], 2.0 * m * n * k, plain, r, s)), time)
    if not is_plain(reached.few, 0.0):
        time = few_rows_time(time, m, n, k, pick(wide[0] < 2, 0.0, reached.few), r.sms)
    return np.asarray(time)


def _with_vector_kernels(
    time: Num, m: Num, n: Num, k: Num, *, weight_bytes: Num, c: GemmConstants, w: Where, s: Scenario, r: Rates
) -> Num:
    """Seconds of products in an engine with vector kernels for few rows, from the `time` of a library's: what units for
    bf16 and integers take at least, what spreading narrow weights and converting operands adds, and up to
    `vector_rows` the vector kernels' own. weight_bytes: of a value of B."""
    kernels, flops, read = s.engine.kernels, 2.0 * m * n * k, n * k * weight_bytes
    alike = vector_integers_only(s)  # one kernel, whatever the rows; elsewhere a row alone waits for its weights
    vectors = 0.0 if alike else flops * (m > 1) * np.isinf(kernels.vector_tile)
    streamed = vector_time(read * larger(ceil(m / kernels.vector_tile), 1.0), vectors, c, r, s)
    unpack = pick(weight_bytes < 1, n * k, 0.0) / sm_limit(s, of_scheme(kernels.unpacked, s, 0.0))
    streamed = larger(streamed, pick(unpack > 0, unpack + flops / sm_limit(s, kernels.sm_vectors), 0.0))
    time = larger(time, bf16_time(flops, kernels.bf16_share, s, r))
    time = larger(time, pick(weight_bytes < 2, flops, 0.0) / sm_limit(s, kernels.sm_integers))
    d, staged_on = s.cluster.device, words_in(kernels.staged_on)
    staged = (weight_bytes < 2) & (d.architecture in staged_on and f"-{d.name}" not in staged_on)
    time = time + pick(staged, read / r.dram, 0.0)
    slow = larger(1.0 / r.dram, 1.0 / weight_limit(s))
    moved = (weight_bytes + 2.0) * slow + 2.0 / r.dram  # s a weight: read, written, and read again in 2 B
    spread = pick(weight_bytes < 2, n * k * moved, 0.0)
    spreads = halves_only(s, r) & (kernels.dots_below > 0) & (m >= kernels.dots_below)
    if s.quant.half == "bf16" and "bf16" not in s.cluster.device.peak:
        plain = larger(time, flops / r.peak["vector"]) + n * k * kernels.widened / r.dram
        time = pick((weight_bytes >= 2) & (kernels.widened > 0), plain, time)
    time = time + pick(spreads, 1.0, kernels.dequant) * spread + _convert_time(m, n, k, w, s, r)
    own = bool(kernels.own_files)  # its kernels for many rows unpack weights by the same units; 16 bits alike
    time = larger(time, pick(own, larger(vector_time(read, 0.0, c, r, s), unpack), 0.0))
    library = (m > 1) | ((weight_bytes >= 2) & (not own))  # of one row of its own format: never
    few = larger(time, streamed) if alike else pick(library, smaller(time, streamed), streamed)
    return pick(m > kernels.vector_rows, time, few)


def one_tile_time(m: Num, n: Num, k: Num, *, rows: Num, more: Num, peak: Num, sms: Num) -> Num:
    """Seconds of a product whose kernel has one tile, of so many rows and 64 columns: blocks of an SM at its share of
    the peak, and some more, as few at a time do not keep it busy."""
    return (ceil(m / rows) * ceil(n / 64.0) / sms + more) * (2.0 * rows * 64.0 * k * sms / peak)


def integer_peak(s: Scenario) -> Num:
    """FLOP/s of products by a scheme's narrow weights where vector units' integers alone multiply them; elsewhere, and
    where no rate of integers is known, inf. A factor of a card does not count: it is of matrix units."""
    k = s.engine.kernels
    reached = k.dots * integer_dots(s) / power_slowdown(s.cluster.device) if vector_integers_only(s) else 0.0
    return pick(reached > 0, reached / of_scheme(k.dots_times, s, 1.0), np.inf)


def has_shape(n: Num, k: Num, shapes: str) -> Any:
    """Whether a product has one of the listed shapes."""
    return np.any([(n == float(x)) & (k == float(y)) for x, y in (one.split("x") for one in shapes.split())], axis=0)


def _borrowed_tiles(dtype: str, w: Where, s: Scenario, r: Rates, reached: Derating) -> tuple[Num, Num, Num]:
    """What differs where another card's constants stand in for products: the share of the peak that kernels of weights
    alone in few bits reach at most, which multiply warp by warp (taken for Machete's and TensorRT-LLM's on Hopper too,
    which do not: converting the weights keeps these as low, docs/decisions/0108); matrix units of an SM over those of
    that card (at most 1); the fewest rows of a tile. A reached share of the peak that was fitted has the last two."""
    if s.engine.kernels.gemv:
        units = small_units(s.cluster.device, reached) if reached.lent else 1.0
        return warp_share(s.cluster.device), units, 0.0
    row = lookup("gemm", w.gpu, w.generation, w.kernels, dtype).row
    if w.gpu in row.gpu.split():
        return 1.0, 1.0, 0.0
    alone = dtype == w.quant and row.dtype.endswith("_wo") and r.dtype["quant"] in ("bf16", "fp16")
    share = warp_share(s.cluster.device) if alone and row.architecture != w.generation else 1.0
    if reached.fitted:
        return share, 1.0, 0.0
    rows = card_file().rows.get(w.generation, 0.0) if dtype in s.engine.kernels.padded.split() else 0.0
    return share, small_units(s.cluster.device, reached, row.architecture), rows


def _gemm_constants(dtype: str, w: Where, s: Scenario) -> Any:
    """Constants of the products of a data type: where kernels multiply warp by warp, of the generation whose tiles are
    as theirs, to which the card's factors were fitted."""
    tiles = card_file().tiles.get(f"{s.cluster.device.product_family} {w.generation}")
    if s.engine.kernels.gemv and tiles:
        w = w._replace(gpu="", generation=tiles)
    other = s.engine.kernels.untuned
    if other and dtype == "fp8_block" and other in lookup("gemm", w.gpu, w.generation, other, dtype).row.engine.split():
        w = w._replace(kernels=other)
    c = constants("gemm", GemmConstants, w, dtype)
    if dtype in ("fp8", "nvfp4") and s.engine.kernels.ready_scales:  # measured beside a kernel that quantises
        c = c._replace(t0=constants("gemm", GemmConstants, w, w.half).t0)
    inside = dtype == "fp8" and (s.engine.kernels.ready_scales or quantised_before(w, s))
    return c._replace(q_pass=0.0, q_row=0.0) if inside else c


def quantised_before(w: Where, s: Scenario) -> bool:
    """Whether the kernels before a product in fp8 write its operand in 8 bits."""
    return w.quant == "fp8" and w.generation in words_in(s.engine.kernels.scaled_on)


def group_quantise_time(values: Num, w: Where, s: Scenario) -> Num:
    """Seconds to quantise so many values where a group of 128 has a block of its own (Triton's first kernel for blocks
    of fp8), whose start takes longer than its bytes, over what measured products hold.
    Source: sgl-project/sglang pull requests 4396 and 5045: 55 us of 1,024 x 7,168 values, 102 of 2,048."""
    return values / sm_limit(s, s.engine.kernels.grouped_values if w.quant == "fp8_block" else 0.0)


def sm_limit(s: Scenario, each: Num) -> Num:
    """Most that all SMs of a card do a second at `each` (bytes, FLOPs, values) a clock of one; 0: no limit, inf."""
    d = s.cluster.device
    return pick(each > 0, each * d.sms * d.clock / power_slowdown(d), np.inf)


def weight_limit(s: Scenario) -> Num:
    """Bytes of weights a second that the SMs draw at most, in the engine's kernels of the scheme; inf: no limit."""
    k = s.engine.kernels
    return sm_limit(s, number_by_name(k.scheme_stream, s.quant.name, 0.0) or k.sm_stream)


def vector_time(weight_bytes: Num, flops: Num, c: GemmConstants, r: Rates, s: Scenario, launches: float = 1.0) -> Num:
    """Seconds of a product of few rows by vector kernels, whose vector units do the arithmetic: weights stream at the
    same share of the bandwidth as in a product or, where it is known what the SMs take, at nearly all that check bits
    leave of it and no faster than that."""
    most = weight_limit(s)
    share = pick(most < np.inf, s.engine.kernels.vector_share * (1.0 - s.cluster.device.check_bits), c.eff_m)
    stream = weight_bytes * smooth_max(SHARP, 1.0 / (share * r.dram), 1.0 / most)
    ramp = smaller(c.ramp, s.engine.kernels.vector_ramp)
    peak = smaller(r.peak["vector"], sm_limit(s, s.engine.kernels.sm_vectors))
    return launches * c.t0 + larger(stream + filling(stream, ramp), flops / peak)


def bf16_time(flops: Num, share: Num, s: Scenario, r: Rates) -> Num:
    """Least seconds of products with bf16 weights, where the engine has no matrix kernels for that type; else 0."""
    return flops / (share * r.peak["vector"]) if s.quant.half == "bf16" and not is_plain(share, 0.0) else 0.0


def _convert_time(m: Num, n: Num, k: Num, w: Where, s: Scenario, r: Rates) -> Num:
    """Seconds to turn fp32 activations into 16-bit operands, and results back (two kernels a product: `convert`)."""
    convert = s.engine.kernels.convert
    if is_plain(convert, 0):
        return 0.0
    c = constants("elementwise", ElementwiseConstants, w, "fp16", ("add",))
    one = partial(elementwise_time, bandwidth=r.dram, c=c, sms=r.sms)
    return sum(one(convert * m * side, row_bytes=convert * side) for side in (k, n))


SHARP = 6.0
"""Exponent of a kernel for few rows between the memory's rate and its SMs', which no card or engine moves: from 3 to 12
the mean error of 3,330 runs is 13.9 to 14.1 % (decision 310)."""
