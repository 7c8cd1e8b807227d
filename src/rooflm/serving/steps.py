"""Step times for the simulator: `components` of passes with an engine's factors and host costs, as table look-ups.

A pass that holds prefill chunks and decoding sequences is the sum of its kernels. By what a kernel depends on (the
shape of its time says it) there are four groups: products and elementwise kernels over all tokens of the pass,
prefill attention over (new, past), kernels over decoding sequences, decode attention over (sequences, context):

    mixed(P, D) = dense(P + D) + [decode(D) - dense(D)] + prefill_attention(new, past) + decode_attention(D, context)

which is exact because times add. What the host costs is `estimate.hosted`, as everywhere."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import Engine
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import most_in_flight
from rooflm.estimate.memory import stage_share
from rooflm.estimate.request import every_pass, turns
from rooflm.estimate.step import captured, graphed, hosted, issue_time, paced, prompt_factor, unfitted
from rooflm.kernels.moe import largest_of
from rooflm.serving.components import CELLS, EXCHANGE, HOST, SHARED, Array, Components, TableSize
from rooflm.units import is_plain, larger, pick

ROWS = 16
"""Neighbouring numbers of sequences whose steps are worked out together."""
LAST = 2**62
"""Above every number of a pass (`passed_times`)."""


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


def factor_of(name: str, engine: Engine, base: Engine, fitted: bool) -> float:
    """The factor of a kind of kernels in an engine; collectives carry that of `base`, which timed them."""
    if name in ("collective_factor", EXCHANGE):
        return float(engine.factors.collective_factor / base.factors.collective_factor)
    return float(getattr(engine.factors, name)) if fitted and name != HOST else 1.0


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


class Chunks(NamedTuple):
    """Parts of prompts that a pass takes: how many, their new tokens and attention (s beyond the least) in all, and
    both of the largest."""

    many: int
    new: int
    attention: float
    largest: int
    longest: float


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
        p, factor = c.parts, partial(factor_of, engine=e, base=s.engine, fitted=fitted)
        attend, host = p.prefill.total(factor), p.dense.seconds.get(HOST)
        own = p.dense.total(factor, names=p.dense.seconds.keys() - {HOST})
        roofs = p.dense.roof + p.prefill.roof[:, 0]
        alone, gaps = own + attend[:, 0], c.launches[0] * float(e.host.gap)
        heat = float(prompt_factor(e, s.cluster.device))
        slower = paced(alone, gaps, roofs, heat) / np.maximum(alone + gaps, 1e-300)
        dense = own + (0.0 if host is None else host / slower)
        decode = p.decode.total(factor, heat) * scale
        self._attention = p.attention.total(factor, heat) * scale
        every = np.arange(self.size.tokens + 1, dtype=float)
        self._dense = numbers(np.interp(every, c.tokens, dense))
        self._slower = numbers(np.interp(every, c.tokens, slower))
        self._shared = numbers(np.interp(every, c.tokens, p.dense.total(factor, names=SHARED)))
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
        self.stage = np.max(1 / s.mapping.pp if e.stages.even_stages else stage_share(s.model.scaled, s.mapping.pp))
        head = p.decode.head * factor("gemm_factor") * scale
        self._head: Array = np.interp(each, c.sequences, head)
        self._least = p.decode.roof[:, None] + p.attention.roof
        self._gaps = [n * float(e.host.gap) for n in c.launches]
        eager, held = (float(issue_time(e, 1, most, c.experts, s.cluster.launching)) for most in (0, 1))
        issue = (eager, e.host.issue_decode, eager, held)
        self._issued = [n * float(each) for n, each in zip((*c.launches, c.launches[0]), issue, strict=True)]
        self._ungraphed = c.launches[1] * float(issue_time(e, np.inf, 0, launching=s.cluster.launching))
        self.copied, self.ahead = float(e.host.copied), e.host.ahead
        stages = int(np.max(s.mapping.pp))
        self.apart = bool(e.host.ahead) and int(np.max(s.mapping.tp * s.mapping.cp)) * stages > 1
        self._step = float(np.max(every_pass(s, e)))
        taken = turns(s, np.arange(self.flight + 1))  # hosts' parts of a pass, by its micro-batches
        self._turns: Array | None = None if is_plain(taken, 1.0) else np.broadcast_to(taken, self.flight + 1)
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
        micro = np.minimum(sequences, self.flight)[:, None]
        device = self.full(device, self._head[column], micro)
        contexts = self.components.contexts
        issued, fixed = self.launches(column, contexts), self.beside(column, contexts, micro)
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

    def beside(self, here: Any, context: Any, micro: Any, prompts: float = 0) -> Any:
        """Host's seconds of a pass beside its launches, of sequences that decode and of prompts in a micro-batch."""
        each = self._step + self._sequence * (here + prompts) + self._listed * context * here
        return each if self._turns is None else each * self._turns[micro]

    def kept(self, sequences: int, context: float) -> float:
        """Seconds of a decode-only step that keep its scheduler, as of `passed`."""
        here = -(-sequences // self.slots)
        micro = min(sequences, self.flight)
        return 0.0 if self.apart else float(self.launches(here, context) + self.beside(here, context, micro))

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
        whole = Chunks(len(chunks), new, attention, largest, longest)
        hosted, device = self._pass_times(whole, sequences, context, fullest, drains > 0)
        return max(hosted - ahead, device), 0.0 if self.apart else max(hosted - ahead, 0.0)

    def _pass_times(
        self, whole: Chunks, sequences: int, context: float, fullest: float = 0.0, drains: bool = False
    ) -> tuple[float, float]:
        """What the host and what the device take of a pass, which lasts as long as the later of both.

        With attention data parallelism or a pipeline, chunks spread over the ranks and micro-batches, of which the
        fullest sets the time."""
        (chunks, new, attention, largest, longest), slots = whole, self.slots
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
        micro = min(whole.new / max(largest, 1) if drains else sequences + chunks, self.flight)  # the last is short
        if self.flight > 1:
            rows = min(here + chunks, self.size.sequences)
            device = self.full(device, float(self._head[rows]), micro, drains, self.components.waits * (chunks > 0))
        fixed = self.beside(here, context, math.ceil(micro), chunks)
        issued = self._issued[kind if every > self._captured else 3]
        if self._overlap:
            return issued + fixed, device
        lasts = (device if device > issued else issued) + fixed
        return lasts, lasts

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
                made.append(self._pass_times(Chunks(many, many * n, many * a, n, a), beside, context, drains=drains))
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


def step_joules(c: Components, sequences: Any, context: Any) -> Array:
    """Dynamic joules of one rank's decode step, between the table's numbers of sequences (more take ever fewer experts
    that are new), and linear in their mean context."""
    table = c.parts.decode.joules[:, None] + c.parts.attention.joules
    slope, start = np.polyfit(c.contexts, table.T, 1, w=1.0 / table.mean(axis=0))
    return np.asarray(np.interp(sequences, c.sequences, start) + np.interp(sequences, c.sequences, slope) * context)


def energy_fit(c: Components) -> Array:
    """Dynamic joules of one rank's prefill as a linear form (1, tokens, tokens x past), fitted by least squares."""
    t, q = c.tokens[:, None], c.pasts[None, :]
    return _weights(c.parts.dense.joules[:, None] + c.parts.prefill.joules, [t**0, t, t * (q + t / 2)])


def _weights(values: Array, columns: list[Array]) -> Array:
    """Least-squares weights of columns, in relative error."""
    matrix = np.stack([np.broadcast_to(x, values.shape).ravel() for x in columns], axis=1)
    flat = values.ravel()
    scale = 1.0 / np.maximum(flat, 1e-300)
    weights = np.linalg.lstsq(matrix * scale[:, None], flat * scale, rcond=None)[0]
    return np.asarray(weights, dtype=np.float64)
