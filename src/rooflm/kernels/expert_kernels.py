"""Which expert kernels an engine takes on a card, its usual ones or those that it is told, and how long they take: of
several the fastest. The tables hold several kinds a card and data type (CUTLASS, Triton, DeepGEMM), measured in one
engine or another; an engine has the usual one of those that were measured in it, and those that it makes itself and
others borrow (FlashInfer's TensorRT-LLM). A type that nobody measured in it runs on a family that it has.

Sources: TensorRT-LLM documentation, moe_config.backend, "autotuner"; SGLang, server_args.py; vLLM, fused_moe/oracle."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, partial, reduce
from typing import NamedTuple

import msgspec
import numpy as np

from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MoE
from rooflm.graph.feedforward import gathers
from rooflm.graph.ops import Op, distinct_experts, occupied, popularity
from rooflm.kernels.constants import DTYPE_KIN, Entry, entries_of, read, text_of, typed
from rooflm.kernels.derating import beside_units, card_file, derating
from rooflm.kernels.gemm import GemmConstants
from rooflm.kernels.lookup import Where, constants, setting
from rooflm.kernels.moe import MoEConstants, Routing, largest_of, moe_time, pieces, routed, usual
from rooflm.kernels.products import bf16_time, group_quantise_time, has_shape, integer_peak, sm_limit, vector_time
from rooflm.kernels.rates import Rates, halves_only, of_scheme
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, ceil, is_plain, larger, pick, smaller, sqrt

NOT_CHOSEN = ("plain", "untuned")
"""Kernels of another purpose (no gate projection), or that ran without tuning."""
WIDER_ACTIVATIONS = {"mxfp4_mxfp8": ("mxfp4",)}
"""Data type -> those whose kernels take the same weights with wider activations: legal, and fast for few tokens."""


class Families(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Families of expert kernels that are no engine's own, by what holds for them (data/calibration/experts.toml)."""

    everywhere: set[str]  # every engine brings these
    shared: set[str]  # one library, alike in all engines
    routing: set[str]  # choose the experts in the same call
    python: set[str]  # launched one by one from Python
    filled: dict[str, tuple[float, float]]  # "family dtype" -> (hidden values, columns) of the tiles stored whole
    starts: dict[str, str]  # "family generation" -> generation whose launches tell how long they take to start


@cache
def families() -> Families:
    """Those of the file."""
    return read(text_of("experts"), Families, "experts")


class Choice(NamedTuple):
    """A kernel: the data type that it computes in (its name in the tables) and its constants."""

    dtype: str
    constants: MoEConstants
    family: str = ""
    generation: str = ""  # of the cards that they were measured on
    cards: tuple[str, ...] = ()  # these
    tiles: str | None = None  # experts x width on a rank, of which alone it is (None: of all)


def _tuned(entries: list[Entry], expert_parallel: bool) -> list[Entry]:
    """Of each engine and data type without expert parallelism those fitted to such runs ("tp", "triton tp", "tiled")
    where there are any: an engine may have one library for whole experts, another for spread ones."""
    whole = set() if expert_parallel else {(e.engine, e.dtype) for e in entries if e.kernel.endswith("tp")}
    rest = [e for e in entries if "tiled" not in e.kernel and e.kernel.endswith("tp") == ((e.engine, e.dtype) in whole)]
    return [*rest, *(e for e in entries if "tiled" in e.kernel and not expert_parallel)] or entries


def _widest(entries: list[Entry]) -> list[Entry]:
    """Of the entries of one engine, library, data type and kernel for cards of a generation, that for most cards."""
    ranked = sorted(entries, key=lambda e: len(e.gpu))
    return list({(e.engine, e.family, e.dtype, e.kernel): e for e in ranked}.values())


@cache
def choices(
    gpu: str, generation: str, engine: str, dtype: str, expert_parallel: bool = False, family: str = "",
    launched: bool = False,
) -> tuple[Choice, ...]:  # fmt: skip
    """The expert kernels from which an engine picks the fastest on a card: those measured on the card, else on its
    generation's cards, else those that it takes on a kin generation's ([kin] in devices.toml; of a shared library's the
    card's own for the nearest data type before them), else the nearest set (`kernels.moe.usual`).

    dtype: of the experts' weights, as the tables know it. family: libraries that the server was told to use, with
    commas, each as measured in this engine or else in another; "-NAME" is one that the release lacks. Where none of the
    named was measured, the engine's usual kernels serve. launched: kernels of shared libraries keep the start time that
    was measured in the engine itself, instead of the least of all engines."""
    of_use = [e for e in entries_of("moe") if e.kernel not in NOT_CHOSEN]
    own = [e for e in of_use if gpu in e.gpu] or _widest([e for e in of_use if e.architecture == generation])
    for kin in ("", *card_file().kin.get(generation, "").split()):
        here = _widest([e for e in of_use if e.architecture == kin]) if kin else own
        chosen = _measured(here, engine, dtype, expert_parallel, words_in(family))
        if any(e.dtype == dtype for e in chosen):
            library = {e.family for e in chosen if kin} & families().shared
            alike = [e for e in own if e.family in library and e.dtype in DTYPE_KIN.get(dtype, ())[:1]]
            if alike:
                here, chosen = own, _tuned([e._replace(dtype=dtype) for e in alike], expert_parallel)
            return _read(chosen, here, f"{engine} {gpu}", launched)
    row = usual(gpu, generation, engine, dtype, expert_parallel).row
    wider = _measured(own, engine, dtype, expert_parallel, words_in(family))
    return (Choice(dtype, typed(MoEConstants, row)), *_read(wider, own, f"{engine} {gpu}", launched))


def _measured(here: list[Entry], engine: str, dtype: str, expert_parallel: bool, named: tuple[str, ...]) -> list[Entry]:
    """Of the entries of a card or generation, those that an engine takes. Files of tiles are each engine's own."""
    here, chosen = [e for e in here if "tiled" not in e.kernel or engine in e.engine], list[Entry]()
    for kind in (dtype, *WIDER_ACTIVATIONS.get(dtype, ())):
        same = [e for e in here if e.dtype == kind]
        here_too = {e.family for e in same if engine in e.engine}  # measured in the engine itself: that counts
        measured = [e for e in same if engine in (*e.engine, e.family) or e.family in families().everywhere - here_too]
        if not any(engine in e.engine for e in measured):
            own = {e.family for e in here if engine in e.engine}
            measured += [e for e in same if e.family in own and e not in measured]
        brought = {e.family for e in measured if "tiled" not in e.kernel}
        wanted = [e for e in same if e.family in named and (e in measured or e.family not in brought)]
        legal = [e for e in measured if f"-{e.family}" not in named] or measured
        chosen += _tuned(wanted or [e for e in legal if e.kernel in ("", "tp", "tiled")] or legal, expert_parallel)
    return chosen


def _read(entries: list[Entry], here: list[Entry], at: str, launched: bool) -> tuple[Choice, ...]:
    """Entries with their constants. Of a shared library, a kernel that is not the engine's usual one for its type has
    the rates of the engine's usual one for another (Marlin's of mxfp4 were measured on one model, of 896 experts), and
    all have the least start time of any engine and data type (experts.toml, `starts`), unless `launched`."""
    shared = [e for e in here if e.family in families().shared]

    def choice(e: Entry) -> Choice:
        kin = [e, *(k for k in shared if k.family == e.family)]
        chosen = next((k for k in kin if e.kernel == e.family and not k.kernel and {*k.engine} & {*e.engine}), e)
        near = families().starts.get(f"{e.family} {e.architecture}")
        kin += [k for k in entries_of("moe") if k.family == e.family and k.architecture == near]
        rates = typed(MoEConstants, chosen.row)
        start = rates.start if launched else min(typed(MoEConstants, k.row).start for k in kin)
        tiles = e.row.tiles.get(at, "") if e.row.tiles else None
        return Choice(e.dtype, rates._replace(start=start), e.family, e.architecture, e.gpu, tiles)

    return tuple(map(choice, entries))


def filled(family: str, dtype: str, hidden: Num, width: Num) -> tuple[Num, Num]:
    """Sizes of an expert on a rank as a family of kernels stores it: whole tiles, the rest zeros (experts.toml)."""
    rows, columns = families().filled.get(f"{family} {dtype}", (1.0, 1.0))
    return ceil(hidden / rows) * rows, ceil(width / columns) * columns


def expert_kernels(s: Scenario, w: Where, spread_out: bool) -> tuple[Choice, ...]:
    """The kernels that experts may run on. spread_out: over several ranks."""
    k = s.engine.kernels
    most = max((np.max(b.ffn.experts) for b in s.model.blocks if isinstance(b.ffn, MoE)), default=0)
    further = [name for name, few in (part.split(":") for part in k.many_experts.split()) if most > float(few)]
    if all(name.startswith("-") for name in words_in(k.experts)):  # nobody told it
        own = (name.split(":") for name in words_in(k.experts_of))
        place = f"{s.model.family}/{w.quant}/{w.generation}/"
        further += [name for name, of in own if fnmatchcase(place, f"{of}/*")][:1]
    return choices(w.gpu, w.generation, w.kernels, w.quant, spread_out, ", ".join([k.experts, *further]), k.launched)


def expert_families(s: Scenario) -> set[str]:
    """Families of the kernels that experts run on: none in a model without."""
    if not any(isinstance(b.ffn, MoE) for b in s.model.blocks):
        return set()
    w, _ = setting(s.cluster.device, s.engine, s.quant, s.efficiency)
    return {c.family for c in expert_kernels(s, w, bool(np.max(s.mapping.expert_ranks) > 1))}


def routed_inside(s: Scenario) -> bool:
    """Whether the expert kernels do the routing too (experts.toml, `routing`): only those with a gate projection do."""
    gated = all(b.ffn.gated for b in s.model.blocks if isinstance(b.ffn, MoE))
    return gated and expert_families(s) <= families().routing


def spread_by_passes(s: Scenario, w: Where) -> bool:
    """Whether no kernel takes a model's narrow experts, so that each pass spreads all of a rank to 16 bits first."""
    place = f"{s.model.family}/{w.quant}/{w.generation}"
    named = [of for of in words_in(s.engine.kernels.widened_experts) if fnmatchcase(place, of.removeprefix("-"))]
    return w.quant != w.half and bool(named) and not any(of.startswith("-") for of in named)


def called_once(s: Scenario) -> bool:
    """Whether one call issues all expert kernels: false for Triton's (data/calibration/experts.toml, `python`), also
    where Triton's block products are among the kernels."""
    triton = families().python & ({*words_in(s.engine.kernels.experts)} | expert_families(s))
    return s.engine.host.experts_once and not triton and not (s.quant.block and s.engine.kernels.untuned == "triton")


def _grouped_experts(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Sort, two grouped products, combine: of the engine's kernels the fastest at each point. No other ranks' rows come
    astray where tokens are sent to their experts' alone."""
    k, device, spread_out = s.engine.kernels, s.cluster.device, s.mapping.expert_ranks > 1
    kernels = {bool(x): expert_kernels(s, w, bool(x)) for x in {*np.ravel(spread_out).tolist()}}
    tokens, hidden, width, experts, local, top_k, gated = op.shape
    if spread_by_passes(s, w):
        written = local * (2.0 + gated) * hidden * width * (op.widths[0] + 2.0) / r.dram  # read narrow, written wide
        return written + _grouped_experts(op._replace(widths=op.widths[2:] * 3), w._replace(quant=w.half), s, r)
    ep = experts / local
    spread = popularity(experts, top_k, k.skew)
    routing = routed(tokens, top_k, experts, ep, spread)
    if not is_plain(k.alike, 0.0):
        touched = distinct_experts(experts, top_k, tokens, k.alike, spread) * routing.rows / (tokens * top_k)
        routing = routing._replace(experts=pick(k.alike > 0, smaller(routing.experts, touched), routing.experts))
    there = w.quant == "fp8_block" and device.name in (words_in(k.tuned_experts_on) or [device.name])
    tuned = there and has_shape(experts, width, k.tuned_experts)
    apart = (s.mapping.expert_dp > 1) & (gathers(k.exchange, s.mapping.ep) == 0)
    arrived = tokens * pick(apart, occupied(ep, top_k) / ep, 1.0)
    call = partial(moe_time, routing=routing, top_k=pick(apart, 0.0, top_k), experts=experts, ep=ep, gated=gated,
                   weight_bytes=op.widths[0], least=pick(op.widths[0] < 2, smaller(tokens, k.expert_tile), 0.0),
                   value_bytes=k.expert_values)  # fmt: skip
    best = {
        parallel: reduce(smaller, [
            call(arrived, *filled(kernel.family, kernel.dtype, hidden, width), card=r.card(r.peak[at]), act_bytes=act,
                 c=_on(kernel, w, s).on(r.l2 / r.dram, tuned))
            + pick(kernel.tiles is None or has_shape(experts, width, kernel.tiles), 0.0, np.inf)
            for kernel in candidates
            for at, act in [(op.rate, op.widths[1]) if kernel.dtype == w.quant else ("half", op.widths[2])]
        ])
        for parallel, candidates in kernels.items()
    }  # fmt: skip
    time = pick(spread_out, best[True], best[False]) if len(best) > 1 else best.popitem()[1]
    return time + group_quantise_time((tokens * hidden + routing.rows * width) * (op.widths[1] < 2), w, s)


def _on(kernel: Choice, w: Where, s: Scenario) -> MoEConstants:
    """Constants of a kernel on a card whose matrix units may be smaller than where it was measured (`beside_units`)."""
    c, device = kernel.constants, s.cluster.device
    if s.engine.kernels.gemv or w.gpu in kernel.cards:
        return c
    return c._replace(eff_c=c.eff_c * beside_units(device, derating(device, *w.engines), c.eff_c, kernel.generation))


def expert_time(op: Op, w: Where, s: Scenario, r: Rates) -> Num:
    """Expert layers: grouped products, and beside them an engine's vector kernels, which take the few rows of a step.
    Its narrow kernels run at the datasheet's rate: a card's share of it is of dense products (fp16 sums, hipBLASLt)."""
    k, f = s.engine.kernels, s.engine.factors
    if not k.gemv:
        return _grouped_experts(op, w, s, r)
    share = derating(s.cluster.device, *w.engines).compute
    r = r._replace(peak={name: v if name == "vector" else v / share for name, v in r.peak.items()})
    tokens, hidden, width, experts, local, top_k, gated = op.shape
    narrow = op.widths[0] < 2
    steps = pick(f.moe_steps > 0, f.moe_steps / f.moe_factor, 1.0) - 1.0
    time = _grouped_experts(op, w, s, r) * (1.0 + steps * pick(narrow, 1.0, larger(1.0 - tokens / k.wide_pass, 0.0)))
    pairs = tokens * top_k * local / experts  # of a token and an expert of this rank
    weights = (2.0 + gated) * hidden * width  # of an expert
    values = pairs * weights
    halves = 2.0 * weights * filled_rows(op, s, smaller(tokens, k.bf16_tile))[1]  # FLOPs in 16 bits
    time = larger(time, bf16_time(halves, k.bf16_experts, s, r))
    # the engine's factors, which the whole gets later on: what is in seconds already is divided by them
    undone = f.moe_factor * (1.0 if op.role == "decode" else smaller(f.prompt, 1.0))
    spread, unpacked = (of_scheme(told, s, 0.0) for told in (k.expert_spread, k.unpacked))
    # mul_mat_vec with ids, three launches: each pair of token and expert streams that expert's weights by itself
    vectors = vector_time(values * op.widths[0], 0.0, constants("gemm", GemmConstants, w, w.half), r, s, launches=3.0)
    vectors = larger(f.gemm_factor * f.moe_vectors * vectors, values / sm_limit(s, unpacked))
    vectors = pick((tokens > k.expert_rows) & narrow, np.inf, vectors / pick(narrow, undone, f.moe_factor))
    tiled = pick(narrow & (tokens > 1) & (k.tile_rate > 0), tiled_time(op, s), 0.0)
    time = pick(tiled > 0, larger(tiled, time * f.moe_factor) / undone, time)
    time = larger(time, 2.0 * values * narrow / (integer_peak(s) * undone))
    time = time + smaller(local, pairs) * weights * 2.0 * spread / (r.dram * undone)
    by_rows = (s.quant.half == "bf16") & (k.bf16_step > 0)  # such experts have no vector kernels
    inner = (1.0 + gated * (s.model.family not in words_in(k.joined))) * hidden + width  # values of rows, one by one
    time = pick(by_rows, larger(time, pick(narrow, 0.0, k.bf16_step) * inner / undone), smaller(time, vectors))
    call = pick(narrow, larger(k.narrow_calls, spread_calls(tokens, s, r)), k.library_calls)
    host = k.expert_looks * experts * tokens * top_k + call * distinct_experts(experts, top_k, tokens)
    return time + (2.0 + gated) * (k.expert_waits + pick(tokens > 1, host, 0.0)) / undone


def spread_calls(tokens: Num, s: Scenario, r: Rates) -> Num:
    """`spread_calls` where a pass has so many tokens that a card without units for integers spreads weights, else 0."""
    return pick(halves_only(s, r) & (tokens >= s.engine.kernels.dots_below), s.engine.kernels.spread_calls, 0.0)


def tiled_time(op: Op, s: Scenario) -> Num:
    """Seconds of experts' products by tiles: of what SMs compute, or of what the busiest of them reads, if longer.

    A tile is as wide as the pass, 8 to `wide_pass` rows, however few rows an expert has (llama.cpp, mmq.cuh:
    ncols_max); rows are gathered, quantised and written besides: (rows of tiles / tile_rate + T k / row_rate) x FLOPs
    of a row. `tile_stream` is what an SM draws of weights, dealt in tiles of 128 columns (mmq.cuh: mmq_y;
    `busiest_share`)."""
    k = s.engine.kernels
    tokens, hidden, width, _, local, _, gated = op.shape
    weights = (2.0 + gated) * hidden * width  # of an expert
    routing, rows = filled_rows(op, s, smaller(larger(tokens, 8.0), k.wide_pass))
    rows = rows / pick((s.quant.kind == "float") & (op.widths[0] < 1), k.tile_floats, 1.0)
    computes = 2.0 * weights * (rows / sm_limit(s, k.tile_rate) + routing.rows / sm_limit(s, k.row_rate))
    tiles = local * ((1.0 + gated) * width + hidden) / ((2.0 + gated) * 128.0 * s.cluster.device.sms)
    read = busiest_share(tiles, routing.experts / local, s.cluster.device.sms) * local
    return larger(computes, read * weights * op.widths[0] / sm_limit(s, k.tile_stream))


def filled_rows(op: Op, s: Scenario, tile: Num) -> tuple[Routing, Num]:
    """Who is routed where, and the rows of whole tiles of `tile` rows that the experts take."""
    tokens, _, _, experts, local, top_k, _ = op.shape
    routing = routed(tokens, top_k, experts, experts / local, popularity(experts, top_k, s.engine.kernels.skew))
    return routing, tile * routing.experts * pieces(routing.rows / routing.experts, tile, routing.spread)


def busiest_share(tiles: Num, reached: Num, sms: Num) -> Num:
    """Share of its tiles that are of experts with rows, on the SM with most of them: stream-k deals each of `sms` as
    many tiles, n, a share `reached` of them, p, with rows: np + z √(np(1 - p)), z the largest of so many draws."""
    dealt = larger(tiles, 1.0)
    mean = dealt * smaller(reached, 1.0)
    return smaller(mean + largest_of(sms) * sqrt(mean * (1.0 - mean / dealt)), dealt) / dealt
