"""Step times for the simulator: one array evaluation of `infer`'s own passes, then table look-ups.

A pass that holds prefill chunks and decoding sequences is the sum of its kernels. By what a kernel depends on (the
shape of its time says it) there are four groups: products and elementwise kernels over all tokens of the pass,
prefill attention over (new, past), kernels over decoding sequences, decode attention over (sequences, context):

    mixed(P, D) = dense(P + D) + [decode(D) - dense(D)] + prefill_attention(new, past) + decode_attention(D, context)

which is exact because times add. What the host costs is `estimate.hosted`, as everywhere."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import Engine
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import most_in_flight
from rooflm.estimate.memory import stage_share
from rooflm.estimate.offloaded import decode_seconds, device_part, host_watts, prompt_seconds
from rooflm.estimate.request import every_pass, served_context, stalls
from rooflm.estimate.step import (
    NONE_EAGER,
    EagerShares,
    captured,
    eager_shares,
    flops_seconds,
    graphed,
    heat_seconds,
    hosted,
    issue_time,
    joules,
    launches,
    paced,
    prompt_factor,
    unfitted,
)
from rooflm.graph.context import Decode, Pass, Prefill
from rooflm.graph.forward import build
from rooflm.graph.ops import Op
from rooflm.graph.recurrent import CHUNK
from rooflm.kernels.dispatch import FACTORS
from rooflm.kernels.moe import largest_of
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed, level_times, time_groups, time_nodes
from rooflm.scenario.scenario import Scenario
from rooflm.units import larger, pick

Array = NDArray[np.float64]
ROWS = 16
"""Neighbouring numbers of sequences whose steps are worked out together."""
CELLS = 48
"""Cells of the context axis (equal widths, so that a look-up is a division)."""
LAST = 2**62
"""Above every number of a pass (`passed_times`)."""
ROOF = "roof"
"""End of the name under which a factor's group keeps the seconds that it takes at least."""
RATIO = 1.09
"""Ratio of neighbouring points of the token and sequence axes."""
EXCHANGE = "exchange"
"""Name of the experts' collectives, whose factor is that of all collectives."""
SHARED = ("moe_factor", EXCHANGE)
"""Names of what works on the tokens of all ranks of attention together: experts, and what goes to them and back."""
HEAD = "head"
"""Name under which a group keeps the seconds of the output head, which the last stage of a pipeline has alone."""
HOT = "hot"
"""Name under which it keeps what FLOPs take of it (`flops_seconds`)."""
STAYS = 0.5
"""Share of L2 in which a prefix that many read stays for all (by hand: docs/decisions/0442)."""
HOST = "host layers"
"""Part of a pass that the host's CPU works on, which no factor of the engine's kernels scales."""


class TableSize(NamedTuple):
    """How far the tables go: tokens in a pass, decoding sequences of a rank, tokens of a sequence."""

    tokens: int
    sequences: int
    context: int


def ladder(last: int) -> Array:
    """Whole numbers from 1 to `last`: every one up to 16, then about 9 % apart, and multiples of 128 (of 512 from 8192
    on), where kernels step.

    >>> ladder(20).tolist()[-4:]
    [16.0, 17.0, 19.0, 20.0]
    """
    steps = int(np.ceil(np.log(max(last, 2)) / np.log(RATIO)))
    points = np.round(RATIO ** np.arange(steps + 1))
    tiles = np.concatenate([np.arange(128, min(last, 8192), 128), np.arange(8192, last, 512)])
    every = np.concatenate([np.arange(1, 17), points, tiles, [max(last, 1)]])
    return np.unique(np.minimum(every, max(last, 1))).astype(float)


def padded(graphs: str, sequences: Any) -> Array:
    """Sequences of the CUDA graph in which so many run: the next of `graphs`, themselves where none is large enough.

    Source: TensorRT-LLM, CudaGraphConfig (batch_sizes, enable_padding): a batch is padded to the nearest graph.

    >>> padded("128 256 512", [1, 200, 600]).tolist(), padded("", 7).tolist()
    ([128.0, 256.0, 600.0], 7.0)
    """
    sizes: Array = np.array(graphs.split(), float)
    many: Array = np.asarray(sequences, float)
    at = np.searchsorted(sizes, many)
    return np.where(at < len(sizes), np.append(sizes, 0.0)[at], many)


class Parts(NamedTuple):
    """Seconds by engine factor: dense (tokens,), prefill (tokens, pasts), decode (sequences,), attention (sequences,
    contexts); and dynamic joules in the same four groups under "joules"."""

    dense: dict[str, Array]
    prefill: dict[str, Array]
    decode: dict[str, Array]
    attention: dict[str, Array]


@dataclass(frozen=True)
class Components:
    """What a scenario's passes are made of, before the engine's factors and host costs (see `Parts`).

    tokens, pasts, sequences, contexts: the axes; launches: kernels issued in a prefill-only, a decode-only and a mixed
    pass; draft: time of drafting over the verifying step's; experts: what is launched for them; mixed: what scans of
    decoding sequences take longer in a pass with prompts; reread: see `reread`; waits: what a part of a prompt, one of
    many in a pipeline, waits as a share of the way through it (`stalls`).
    """

    scenario: Scenario
    tokens: Array
    pasts: Array
    sequences: Array
    contexts: Array
    parts: Parts = field(repr=False)
    launches: tuple[float, float, float] = (0.0, 0.0, 0.0)
    draft: float = 0.0
    experts: EagerShares = NONE_EAGER
    mixed: Array | float = 0.0
    reread: tuple[float, float] = (0.0, 0.0)
    waits: float = 0.0

    @property
    def ranks(self) -> float:
        """Devices of a stage that work on a sequence together, of which the tables are those of one."""
        m = self.scenario.mapping
        return float(m.tp * m.cp)


def factor_name(t: Timed) -> str:
    """The engine's constant that scales a node's time, but `EXCHANGE` of the experts' collectives."""
    if isinstance(t.node, Op):
        return FACTORS.get(t.node.kind, "stream_factor")
    return EXCHANGE if t.node.group == "ep" else "collective_factor"


def grouped(timed: Sequence[Timed], s: Scenario, shape: tuple[int, int]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Seconds by factor of the nodes that vary along the first axis only, and of those that vary along the second."""
    first: dict[str, Array] = {}
    second: dict[str, Array] = {}
    r, device = rates(s), s.cluster.device
    for t in timed:
        pairs = [(factor_name(t), np.asarray(t.total, float))]
        if t.node.part == "logits":
            pairs.append((HEAD, np.asarray(t.total, float)))
        if isinstance(t.node, Op):
            least = t.node.count * np.minimum(t.roof, t.time)
            pairs.append((f"{factor_name(t)} {ROOF}", np.asarray(least, float)))
            pairs.append((HOT, np.asarray(flops_seconds(t), float)))
            pairs.append(("joules", np.asarray(t.node.count * joules(t, t.node, device, r), float)))
        for name, value in pairs:
            inner = value.ndim == 2 and value.shape[1] > 1
            group, size = (second, shape) if inner else (first, (shape[0], 1))
            group[name] = group.get(name, np.zeros(size)) + value
    return {k: v[:, 0] for k, v in first.items()}, second


def scanned(nodes: Sequence[Any], s: Scenario) -> Array:
    """Seconds of gated deltas' scans among the nodes of passes of so many sequences."""
    timed = time_nodes([n for n in nodes if isinstance(n, Op) and n.name == "scan" and n.shape[1]], s)
    return np.sum([np.asarray(t.total, float)[:, 0] for t in timed], axis=0)


def components(s: Scenario, size: TableSize, speculative: int = 0, draft: float = 0.0) -> Components:
    """Times of a scenario's passes over tokens, past, sequences and context, worked out once.

    Layers on the host are taken out of the scenario; their time is a part of its own. speculative: tokens guessed a
    step (a sequence then verifies 1 + that many tokens in a pass that reads its cache once); draft: cost of one guess
    as a share of a step."""
    tokens, sequences = ladder(size.tokens), ladder(size.sequences)
    pasts = size.context * np.array([0.0, 1 / 8, 1 / 2, 1.0])
    contexts: Array = np.arange(CELLS + 1, dtype=float) * (size.context / CELLS)
    contexts[0] = 1.0
    whole, s = s, device_part(s)
    k, m = s.engine.kernels, s.mapping
    column = tokens[:, None]
    rows = sequences[:, None]
    prefill = Pass(Prefill(1.0, column, pasts[None, :]), None, np.ones((1, 1)))
    decode = Pass(None, Decode(rows, contexts[None, :]), rows)
    each = 1 + speculative
    wide = Pass(None, Decode(rows * each, np.ones((1, 2)) * size.context, each), rows * each)
    both = Pass(Prefill(1.0, 1.0, 0.0), Decode(1.0, 2.0), 2.0)
    nodes = dict(enumerate(build(served_context(s, work)) for work in (prefill, decode, wide)))
    timed = time_groups(nodes, s)
    dense, attention_p = grouped(timed[0], s, (len(tokens), len(pasts)))
    _, attention_d = grouped(timed[1], s, (len(sequences), len(contexts)))
    decoding, _ = grouped(timed[2], s, (len(sequences), 2))
    mixed = [Timed(n, 0.0) for n in build(served_context(s, both))]
    counts = tuple(float(np.max(launches(t))) for t in (timed[0], timed[1], mixed))
    if not s.offload.off:
        dense[HOST] = np.asarray(prompt_seconds(whole, tokens), float)
        decoding[HOST] = np.asarray(decode_seconds(whole, sequences * each, 0.0), float)
        many = decode_seconds(whole, rows, contexts[None, :]) - decode_seconds(whole, rows, 0.0)
        attention_d[HOST] = np.asarray(many, float)
        for parts_of in (dense, decoding, attention_d):
            parts_of["joules"] = parts_of.get("joules", 0.0) + host_watts(whole) / (m.tp * m.cp) * parts_of[HOST]
    parts = Parts(dense, attention_p, decoding, attention_d)
    kernels = (counts[0], counts[1], counts[2])
    one_by_one = EagerShares(*(float(np.max(n)) for n in eager_shares(timed[0], s)))
    by_chunks = k.mixed_scans and not speculative
    chunks = build(served_context(s, Pass(Prefill(rows, CHUNK), None, rows))) if by_chunks else []
    longer = scanned(chunks, s) - scanned(nodes[2], s) if chunks else 0.0
    twice = reread(timed[1], s, float(sequences[-1] * contexts[-1]))
    waits = float(np.max(stalls(s, timed[0], rates(s), 1e9) / 1e9 / m.pp))
    return Components(
        s, tokens, pasts, sequences, contexts, parts, kernels, speculative * draft, one_by_one, longer, twice, waits
    )  # fmt: skip


def reread(timed: Sequence[Timed], s: Scenario, tokens: float) -> tuple[float, float]:
    """What is spared where several sequences share a prefix: the longest prefix that counts (tokens whose keys and
    values of a layer fill half of L2), and the share of a token's time that is DRAM's, which all readers but the first
    are spared. timed: decoding's operations over `tokens` in all.

    Source: vLLM, v1/attention/backends/flash_attn.py (use_cascade_attention; not of latents: mla/common.py)."""
    ops = [t.node for t in timed if isinstance(t.node, Op) and t.node.kind == "decode_attention"]
    if not ops or not s.engine.kernels.cascade:
        return 0.0, 0.0
    r = rates(s)
    levels = [[float(np.max(op.count * t)) for t in level_times(op, r)] for op in ops]
    warm = sum(max(compute, l2, l1) for compute, _, l2, l1 in levels)
    widest = max(float(np.max(op.bytes)) for op in ops) / tokens
    return float(r.l2_size) * STAYS / widest, 1.0 - warm / sum(max(t) for t in levels)


def total(
    parts: dict[str, Array], engine: Engine, base: Engine, fitted: bool, shape: tuple[int, ...], heat: float = 1.0
) -> Array:
    """Seconds of a group of nodes, each kind times the engine's factor for it (collectives carry that of `base`), but
    never above their roof. heat: factor of a pass with prompts (`heat_seconds`)."""
    out = np.zeros(shape) + heat_seconds(heat, parts.get(HOT, 0.0))
    for name, value in parts.items():
        if name in ("joules", HEAD, HOT) or name.endswith(ROOF):
            continue
        if name in ("collective_factor", EXCHANGE):
            factor = engine.factors.collective_factor / base.factors.collective_factor
        else:
            factor = getattr(engine.factors, name) if fitted and name != HOST else 1.0
        out += np.maximum(value * factor, parts.get(f"{name} {ROOF}", 0.0))
    return out


def least(parts: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """Seconds that a group of nodes takes at least."""
    return sum((v for k, v in parts.items() if k.endswith(ROOF)), np.zeros(shape))


def uneven(ranks: int) -> float:
    """What the fullest of so many ranks has over the mean, as a share of it times the root of the prompts a rank.

    A request goes to the rank that has just ended one, so that a pass's prompts fall on ranks by chance: of n on r
    ranks the fullest has n / r + z sqrt(n / r (1 - 1 / r)), with z the expected maximum of r standard normals.

    >>> uneven(1), round(1 + uneven(4), 2)
    (0.0, 1.89)
    """
    return float(largest_of(ranks)) * math.sqrt(1 - 1 / ranks)


def numbers(values: NDArray[Any]) -> array[Any]:
    """Values that are read one by one as quickly as those of a list, but made and given up at once.

    >>> numbers(np.array([1.0, 2.0]))[1]
    2.0
    """
    return array(values.dtype.char, values.tobytes())


class StepTable:
    """Step times of one engine instance, as plain lists for the simulator's loop. All times in s.

    `decode_row(d)` gives the decode-only steps of d sequences over context; `mixed(chunks, d, context)` the time of one
    pass with prefill chunks. ranks: attention data-parallel ranks, over which sequences and prompts spread;
    balanced: prompts wait until every rank has as many. flight: micro-batches in a pipeline, each with its share of
    both, so that a pass is that of all of them, one stage behind the other; slots: ranks x flight."""

    def __init__(self, c: Components, engine: Engine | None = None, balanced: bool = False) -> None:
        s = c.scenario
        fitted = s.efficiency.mode == "calibrated"
        given = engine if engine is not None else s.engine
        e = given if fitted else unfitted(given)
        self.components, self.engine = c, e
        self.ranks = int(s.mapping.dp)
        self.flight = int(np.max(most_in_flight(s)))
        self.slots = self.ranks * self.flight
        self.near, self.spared = c.reread
        self._uneven = 0.0 if balanced else uneven(self.ranks) * math.sqrt(self.slots)
        self.size = TableSize(int(c.tokens[-1]), int(c.sequences[-1]), int(c.contexts[-1]))
        self._budget = self.size.tokens - self.size.sequences
        self._cell = float(c.contexts[-1]) / (len(c.contexts) - 1)
        scale = 1.0 + c.draft
        shape_p, shape_d = (len(c.tokens), len(c.pasts)), (len(c.sequences), len(c.contexts))
        p = c.parts
        attend = total(p.prefill, e, s.engine, fitted, shape_p)
        own = total({k: v for k, v in p.dense.items() if k != HOST}, e, s.engine, fitted, shape_p[:1])
        roofs = least(p.dense, shape_p[:1]) + least(p.prefill, shape_p)[:, 0]
        alone, gaps = own + attend[:, 0], c.launches[0] * float(e.host.gap)
        heat = float(prompt_factor(e, s.cluster.device))
        slower = paced(alone, gaps, roofs, heat) / np.maximum(alone + gaps, 1e-300)
        dense = own + (p.dense[HOST] / slower if HOST in p.dense else 0.0)
        decode = total(p.decode, e, s.engine, fitted, shape_d[:1], heat) * scale
        self._attention = total(p.attention, e, s.engine, fitted, shape_d, heat) * scale
        every = np.arange(self.size.tokens + 1, dtype=float)
        self._dense = numbers(np.interp(every, c.tokens, dense))
        self._slower = numbers(np.interp(every, c.tokens, slower))
        shared = {k: v for k, v in p.dense.items() if k.startswith(SHARED)}
        self._shared = numbers(np.interp(every, c.tokens, total(shared, e, s.engine, fitted, shape_p[:1])))
        each = np.arange(self.size.sequences + 1, dtype=float)
        handed = float(e.host.deliver) * each
        mixed = decode + c.mixed * float(e.factors.stream_factor)
        over = np.interp(each, c.sequences, mixed) + handed - np.interp(each, c.tokens, dense)
        self._over: list[float] = [0.0, *over[1:].tolist()]
        self._attend = [numbers(np.interp(every, c.tokens, column)) for column in attend.T]
        self._pasts: list[float] = c.pasts.tolist()
        self._floor = float(attend[0, 0])
        self._captured = float(captured(e.host, s))
        self._decode: Array = np.interp(padded(e.host.graphs, each), c.sequences, decode) + handed
        self.stage = _fullest_stage(s)
        head = p.decode.get(HEAD, np.zeros(shape_d[0])) * float(e.factors.gemm_factor if fitted else 1) * scale
        self._head: Array = np.interp(each, c.sequences, head)
        self._least = least(p.decode, shape_d[:1])[:, None] + least(p.attention, shape_d)
        self._gaps = [n * float(e.host.gap) for n in c.launches]
        eager = float(issue_time(e, np.inf, 0, c.experts, s.cluster.launching))
        issue = (eager, e.host.issue_decode, eager)
        self._issued = [n * float(each) for n, each in zip(c.launches, issue, strict=True)]
        self._ungraphed = c.launches[1] * float(issue_time(e, np.inf, 0, launching=s.cluster.launching))
        self.copied, self.ahead = float(e.host.copied), e.host.ahead
        stages = int(np.max(s.mapping.pp))
        self.apart = bool(e.host.ahead) and int(np.max(s.mapping.tp * s.mapping.cp)) * stages > 1
        self._step = float(np.max(every_pass(s, e)))
        self._sequence, self._overlap = float(e.host.sequence), e.host.overlap
        self._listed = float(e.host.listed / e.room.block)
        self._rows: dict[int, tuple[list[float], list[float], list[float]]] = {}
        self._near: dict[int, tuple[Array, Array, Array]] = {}
        self._decays: dict[int, list[float]] = {}
        self._steps: dict[float, Array] = {}  # a fixed point asks for the same ones, and passes, round after round
        self._passes: dict[tuple[float, ...], tuple[NDArray[np.int_], Array]] = {}

    def _spread(self, values: Array, sequences: Any) -> Any:
        """A table over sequences read between its points, for one number of them or several."""
        points = self.components.sequences
        if len(points) == 1:
            return values[0]
        i = np.minimum(np.maximum(points.searchsorted(sequences) - 1, 0), len(points) - 2)
        share = (sequences - points[i]) / (points[i + 1] - points[i])
        return values[i] + (values[i + 1] - values[i]) * np.reshape(share, np.shape(i) + (1,) * (values.ndim - 1))

    def full(self, through: Any, head: Any, micro: Any, drains: bool = False, waits: float = 0.0) -> Any:
        """Seconds of a pass of `micro` micro-batches that take `through` each for the way through all stages: as long
        as the slowest stage, the one with most layers and the head, works on all of them; until the last has come out,
        where no work follows (drains). waits: that each micro-batch waits besides, as a share of the way (`stalls`).

        Source: GPipe (arXiv 1811.06965): a pipeline goes at the pace of its slowest stage."""
        if self.flight == 1:
            return through
        slowest = (through - head) * (self.stage + waits) + head
        return through + (micro - 1) * slowest if drains else larger(through, micro * slowest)

    def decode_row(self, sequences: int) -> tuple[list[float], list[float], list[float]]:
        """Decode-only steps of `sequences`: (time at each context point, half its slope, integral from context 0)."""
        row = self._rows.get(sequences)
        if row is None:
            here = -(-sequences // self.slots)  # of the fullest rank and micro-batch
            if here > self.size.sequences:
                raise RooflmError(f"{here} decoding sequences are beyond the step table's {self.size.sequences}")
            first = (sequences - 1) // ROWS * ROWS + 1
            if first not in self._near:
                last = min(first + ROWS, self.size.sequences * self.slots + 1)
                self._near[first] = self._decode_rows(np.arange(first, last))
            times, half, integral = (values[sequences - first].tolist() for values in self._near[first])
            row = self._rows[sequences] = times, half, integral
        return row

    def _decode_rows(self, sequences: NDArray[Any]) -> tuple[Array, Array, Array]:
        """`decode_row` of several numbers of sequences, one a row."""
        here = -(-sequences // self.slots)
        column = here[:, None]
        device = self._decode[column] + self._spread(self._attention, here) + self._gaps[1]
        device = np.maximum(device, self._spread(self._least, here))
        device = self.full(device, self._head[column], np.minimum(sequences, self.flight)[:, None])
        contexts = self.components.contexts
        issued, fixed = self.launches(column, contexts), self.beside(column, contexts)
        times = np.asarray(hosted(device, issued, fixed, self._overlap))
        slopes = np.diff(times) / self._cell
        half = np.hstack([slopes, slopes[:, -1:]]) / 2
        integral = np.cumsum((times[:, 1:] + times[:, :-1]) * self._cell / 2, axis=1)
        integral = np.hstack([np.zeros((len(here), 1)), integral])
        return times, half, integral

    def decode_time(self, sequences: int, context: float) -> float:
        """One decode-only step at a mean context."""
        times, slopes, _ = self.decode_row(sequences)
        i = min(int(context / self._cell), CELLS)
        return times[i] + 2 * slopes[i] * (context - i * self._cell)

    def decode_sum(self, sequences: int, context: float, steps: int) -> float:
        """Seconds of `steps` decode-only steps, the mean context growing by one a step (closed form).

        sum over j < k of t(c + j) = integral of t from c - 1/2 to c + k - 1/2: exact where t is linear."""
        times, slopes, integral = self.decode_row(sequences)
        cell = self._cell
        low = context - 0.5
        high = low + steps
        i = int(low / cell)
        j = int(high / cell)
        if j > CELLS:
            j = CELLS
            i = min(i, CELLS)
        x, y = low - i * cell, high - j * cell
        if i == j:
            return (y - x) * (times[i] + slopes[i] * (y + x))
        return integral[j] + y * (times[j] + slopes[j] * y) - integral[i] - x * (times[i] + slopes[i] * x)

    def attend(self, new: int, past: float) -> float:
        """Prefill attention (and what else depends on the past) of one chunk."""
        pasts = self._pasts
        i = 0 if past < pasts[1] else 1 if past < pasts[2] else 2
        low = self._attend[i][new]
        if not past:
            return low
        return low + (self._attend[i + 1][new] - low) * (past - pasts[i]) / (pasts[i + 1] - pasts[i])

    def launches(self, here: Any, context: Any) -> Any:
        """Host's seconds to launch a decode-only step of so many sequences on the fullest rank."""
        return pick(here > graphed(self.engine, context), self._ungraphed, self._issued[1])

    def beside(self, here: Any, context: Any, prompts: float = 0) -> Any:
        """Host's seconds of a pass beside its launches, of sequences that decode and of prompts."""
        return self._step + self._sequence * (here + prompts) + self._listed * context * here

    def kept(self, sequences: int, context: float) -> float:
        """Seconds of a decode-only step that keep its scheduler, as of `passed`."""
        here = -(-sequences // self.slots)
        return 0.0 if self.apart else float(self.launches(here, context) + self.beside(here, context))

    def passed(
        self, chunks: Sequence[tuple[int, float]], sequences: int, context: float, fullest: float = 0.0,
        drains: int = 0, ahead: float = 0.0,
    ) -> tuple[float, float]:  # fmt: skip
        """Seconds of a pass with prefill chunks (new tokens, past tokens) beside `sequences` decoding ones at a mean
        context, and the host's that keep its scheduler from the next pass (0 where processes beside it launch).

        fullest: new tokens of the fullest rank over the mean, where it is known; drains: tokens of the largest part
        that is still under way in a pipeline, where nothing follows the pass (0: something does); ahead: s by which the
        host began to launch it before the device was free."""
        new = largest = 0
        attention = longest = 0.0
        floor = self._floor
        for n, past in chunks:
            if n:
                a = self.attend(n, past) - floor
                new += n
                attention += a
                if n > largest:
                    largest = n
                if a > longest:
                    longest = a
        if drains > largest:
            largest, longest = drains, self.attend(drains, max(chunks[0][1] - drains, 0)) - floor
        given = (len(chunks), new, attention, largest, longest, sequences, context, fullest, drains > 0)
        hosted, device = self._pass_times(*given)
        return max(hosted - ahead, device), 0.0 if self.apart else max(hosted - ahead, 0.0)

    def _pass_times(
        self, chunks: int, new: int, attention: float, largest: int, longest: float, sequences: int, context: float,
        fullest: float = 0.0, drains: bool = False,
    ) -> tuple[float, float]:  # fmt: skip
        """What the host and what the device take of a pass of so many chunks: their new tokens and attention (s beyond
        the least), in all and of the largest. A pass lasts as long as the later of both.

        With attention data parallelism or a pipeline, chunks spread over the ranks and micro-batches, of which the
        fullest sets the time."""
        slots, total = self.slots, new
        here = -(-sequences // slots)
        if slots > 1:
            mean = max(new / slots, 1e-9)
            more = fullest or min(1.0 + self._uneven / math.sqrt(chunks), max(self._budget / mean, 1.0))
            even = math.ceil(mean) + here
            new = max(min(math.ceil(mean * more), new), largest)
            attention = max(min(attention * more / slots, attention), longest)
        every = int(new) + here
        if every > self.size.tokens:
            every = self.size.tokens
        dense = self._dense
        before = dense[here] if here else 0.0
        work = dense[every] - before + attention + self._floor
        if self.ranks > 1:
            work += self.together(even, every)
        slower = self._slower[every]
        device = before + self._over[here] + work * slower
        kind = 0
        if here:
            kind = 2
            decays = self._decays.get(here)
            if decays is None:
                decays = self._decays[here] = self._spread(self._attention, here).tolist()
            cell = self._cell
            i = min(int(context / cell), CELLS - 1)
            device += decays[i] + (decays[i + 1] - decays[i]) * (context / cell - i)
        device += self._gaps[kind] * (slower if kind == 0 else 1.0)
        if self.flight > 1:
            rows = min(here + chunks, self.size.sequences)
            micro = min(total / max(largest, 1) if drains else sequences + chunks, self.flight)  # the last is short
            device = self.full(device, float(self._head[rows]), micro, drains, self.components.waits * (chunks > 0))
        fixed = self.beside(here, context, chunks)
        issued = self._issued[kind if every > self._captured else 1]
        if self._overlap:
            return issued + fixed, device
        whole = (device if device > issued else issued) + fixed
        return whole, whole

    def together(self, even: int, every: int) -> float:
        """Seconds, at most 0, that kernels over the tokens of all ranks together take less than if every rank had as
        many as the fullest: `even` is the mean. A graph pads all to the fullest (vLLM, coordinate_batch_across_dp)."""
        if every <= self._captured:
            return 0.0
        return self._shared[min(even, every)] - self._shared[every]

    def decode_times(self, sequences: Array, context: float) -> Array:
        """`decode_time` of each of these whole numbers of sequences, of no more than the table holds."""
        most = self.size.sequences * self.slots
        times = self._steps.setdefault(context, np.full(most + 1, np.nan))
        at = np.minimum(sequences, most).astype(int)
        for d in {*at[np.isnan(times[at])].tolist()}:
            times[d] = self.decode_time(d, context)
        return np.asarray(times[at])

    def passed_times(
        self, prompts: Array, each: Array, prompt: float, sequences: Array, context: float, drains: bool = False,
        ahead: Any = 0.0, host: Any = False,
    ) -> Array:  # fmt: skip
        """`passed` for many passes at once: `prompts` chunks of `each` tokens of prompts as long as `prompt`, half of
        the others read on average, with `sequences` decoding (all whole numbers), no more than the table holds. host:
        as much of it as keeps the scheduler, in place of all. Loads ask for the same few passes over and over."""
        size, most = self.size.tokens, self.size.sequences * self.slots
        dims = LAST // ((size + 1) * (most + 1)), size + 1, most + 1
        several, tokens, decoding = (np.asarray(v).astype(int) for v in (
            prompts, np.minimum(each, size), np.minimum(sequences, most)))  # fmt: skip
        keys = (several * dims[1] + tokens) * dims[2] + decoding
        known, times = self._passes.get((prompt, context, drains), (np.array([LAST]), np.zeros((1, 2))))
        at = known.searchsorted(keys)
        missing = known[at] != keys
        if missing.any():
            new, made = np.unique(keys[missing]), []
            for many, n, beside in zip(*(v.tolist() for v in np.unravel_index(new, dims)), strict=True):
                a = self.attend(n, max(prompt - n, 0.0) / 2) - self._floor
                made.append(self._pass_times(many, many * n, many * a, n, a, beside, context, drains=drains))
            place = known.searchsorted(new)
            known, times = np.insert(known, place, new), np.insert(times, place, made, axis=0)
            self._passes[prompt, context, drains] = known, times
            at = known.searchsorted(keys)
        found = times[at]
        hosted, device = found[..., 0], found[..., 1]
        lasts = np.maximum(hosted - ahead, device)
        if host is False:
            return lasts
        return np.where(host, np.minimum(np.maximum(hosted - ahead, 0.0), lasts) * (not self.apart), lasts)


def _fullest_stage(s: Scenario) -> float:
    """Share of the layers that the fullest stage of a pipeline holds."""
    pp = s.mapping.pp
    return float(np.max(1.0 / pp if s.engine.stages.even_stages else stage_share(s.model.scaled, pp)))


def energy_fit(c: Components) -> tuple[Array, Array]:
    """Dynamic joules of one rank as linear forms: decode steps (1, sequences, sequences x context) and prefill
    (1, tokens, tokens x past), fitted to the tables by least squares."""
    p = c.parts
    d, x = c.sequences[:, None], c.contexts[None, :]
    joules = p.decode.get("joules", np.zeros(len(c.sequences)))[:, None] + p.attention.get("joules", np.zeros((1, 1)))
    joules = np.broadcast_to(joules, (len(c.sequences), len(c.contexts)))
    one = np.ones_like(joules)
    decode = _weights(joules, [one, one * d, d * x])
    t, q = c.tokens[:, None], c.pasts[None, :]
    joules = p.dense.get("joules", np.zeros(len(c.tokens)))[:, None] + p.prefill.get("joules", np.zeros((1, 1)))
    joules = np.broadcast_to(joules, (len(c.tokens), len(c.pasts)))
    one = np.ones_like(joules)
    return decode, _weights(joules, [one, one * t, t * (q + t / 2)])


def _weights(values: Array, columns: list[Array]) -> Array:
    """Least-squares weights of columns, in relative error."""
    matrix = np.stack([np.broadcast_to(x, values.shape).ravel() for x in columns], axis=1)
    flat = values.ravel()
    scale = 1.0 / np.maximum(flat, 1e-300)
    weights = np.linalg.lstsq(matrix * scale[:, None], flat * scale, rcond=None)[0]
    return np.asarray(weights, dtype=np.float64)
