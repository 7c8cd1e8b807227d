"""infer_scenario(scenario) -> InferenceEstimate: prefill, decode and request, memory and fit, communication, energy and cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rooflm import memory as mem
from rooflm.estimate import Step, add_up, step, volumes
from rooflm.graph import Context, Decode, Pass, Prefill, Style, build
from rooflm.ops import Op
from rooflm.roofline import BOUNDS, Rates, Timed, rates, time_nodes
from rooflm.scenario import Scenario
from rooflm.units import Num


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device: parts sum to total; capacity is what the engine may use."""

    parts: dict[str, Num]
    total: Num
    capacity: Num

    @property
    def margin(self) -> Num:
        """Bytes left (negative: missing)."""
        return self.capacity - self.total


class Limits(NamedTuple):
    """Why a scenario cannot run: one flag a reason (arrays of bool)."""

    flags: dict[str, Num]

    @property
    def reason(self) -> Num:
        """The first reason that holds at each point, or an empty text."""
        names = ["", *self.flags]
        code: Num = np.zeros((), dtype=int)
        for index, flag in reversed(list(enumerate(self.flags.values(), start=1))):
            code = np.where(flag, index, code)
        return np.asarray(np.array(names)[np.asarray(code)])


@dataclass(frozen=True)
class InferenceEstimate:
    """The answer; every number is SI and may be an array with one dimension an axis.

    ttft: time to the first token of the batch (s); tpot: time per output token averaged over the output (s), tpot_end:
    at its end; latency: the whole request (s); prefill_parts, decode_parts: name -> s, summing to ttft and tpot;
    comm_bytes: sent by one GPU in the prefill and in a decode step; waves: rounds in which the batch runs (1 unless the
    engine queues what does not fit; ttft is then the first round's). See docs/nomenclature.md.
    """

    ttft: Num
    tpot: Num
    tpot_end: Num
    latency: Num
    output_tokens_per_s: Num
    output_tokens_per_s_per_gpu: Num
    requests_per_s: Num
    memory: Memory
    fits: Num
    max_batch: Num
    limits: Limits = field(repr=False)
    comm_bytes: dict[str, Num]
    comm_detail: dict[str, dict[str, Num]]
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    passes: dict[str, Step] = field(repr=False)
    cost_per_million_tokens: Num
    gpus: Num
    waves: Num
    scenario: Scenario
    timed: dict[str, tuple[Timed, ...]] = field(repr=False)
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def reason(self) -> Num:
        """Why it cannot run: the first rule that a point breaks, or an empty text."""
        return self.limits.reason

    def _whole(self, name: str) -> Num:
        """A count of a pass (Step's `name`) over the whole request, all waves and stages."""
        w, m = self.scenario.workload, self.scenario.mapping
        steps = np.maximum(w.output - 1, 0) * self.waves * np.minimum(m.in_flight, m.pp)
        tick = mean_step(getattr(self.passes["decode"], name), self.scenario.axes)
        return prefill_passes(self.scenario) * self.waves * getattr(self.passes["prefill"], name) + steps * tick

    @cached_property
    def _peaks(self) -> tuple[Num, Num]:
        """FLOP/s in the data type of the products, and B/s, of all stages together."""
        s = self.scenario
        device = s.cluster.device
        return s.mapping.pp * device.peak[rates(s).dtype["quant"]], s.mapping.pp * device.dram.bandwidth

    @cached_property
    def mfu(self) -> Num:
        """Model FLOP/s over peak, whole request."""
        return self._whole("flops") / (self.latency * self._peaks[0])

    @cached_property
    def mbu(self) -> Num:
        """Memory bandwidth over peak, whole request."""
        return self._whole("bytes") / (self.latency * self._peaks[1])

    @cached_property
    def prefill_mfu(self) -> Num:
        """Model FLOP/s over peak, prefill."""
        return prefill_passes(self.scenario) * self.passes["prefill"].flops / (self.ttft * self._peaks[0])

    @cached_property
    def decode_mbu(self) -> Num:
        """Memory bandwidth over peak, decode."""
        m = self.scenario.mapping
        moved = np.minimum(m.in_flight, m.pp) * mean_step(self.passes["decode"].bytes, self.scenario.axes)
        return moved / (self.tpot * self._peaks[1])

    @cached_property
    def busy(self) -> Num:
        """Share of time with a kernel running."""
        return self._whole("busy") / self.scenario.mapping.pp / self.latency

    @cached_property
    def energy_per_token(self) -> Num:
        """Joules an output token, all GPUs."""
        s = self.scenario
        energy = self.gpus * (s.cluster.device.idle * self.latency + self._whole("dynamic") / s.mapping.pp)
        return energy / (s.workload.batch * s.workload.output)

    @cached_property
    def power(self) -> Num:
        """Mean watts of one GPU."""
        w = self.scenario.workload
        return self.energy_per_token * (w.batch * w.output) / (self.latency * self.gpus)

    @cached_property
    def bound(self) -> dict[str, Num]:
        """What bounds the prefill and the decode step: the label with the largest share of the time."""
        return {k: bound_of(self.timed[k], step_, self.scenario.axes) for k, step_ in self.passes.items()}

    @property
    def parts(self) -> dict[str, Num]:
        """Seconds of the whole request by part; sums to latency."""
        steps = np.maximum(self.scenario.workload.output - 1, 0)
        names = dict.fromkeys((*self.prefill_parts, *self.decode_parts))
        return {n: (self.prefill_parts.get(n, 0.0) + steps * self.decode_parts.get(n, 0.0)) * self.waves for n in names}


THIRDS = np.array([0.0, 0.5, 1.0])
"""Where in the output the decode step is evaluated: its first, middle and last step."""


def style(s: Scenario) -> Style:
    """How the engine builds its graph."""
    wide = isinstance(s.quant.weight_bits, int | float) and s.quant.weight_bits >= 32
    e = s.engine
    return Style(
        e.fused, e.flash, 4.0 if wide else 2.0, e.kv_reread, e.vocab_parallel, e.merged, e.epilogue,
        decode_flash=e.decode_flash, rope_inside=e.rope_inside, alike=e.alike,
    )  # fmt: skip


def rank_sequences(s: Scenario) -> Num:
    """Sequences of the fullest data-parallel rank."""
    return np.ceil(s.workload.batch / s.mapping.dp)


def waves(s: Scenario) -> Num:
    """Rounds in which the batch runs: batch / what fits, rounded up, where the engine queues the rest; else 1.

    Rounds are taken as equally full: a step's time is close to linear in its sequences, so only their number counts.
    """
    if not s.engine.waves:
        return 1
    return np.ceil(s.workload.batch / np.maximum(max_batch(s), s.mapping.dp))


def running_sequences(s: Scenario) -> Num:
    """Sequences of the fullest data-parallel rank that run at the same time."""
    return rank_sequences(s) / waves(s)


def prefill_passes(s: Scenario) -> Num:
    """Passes that the prompts of a rank take under the engine's token budget (chunked prefill, pipeline stages)."""
    new = s.workload.prompt - s.workload.cached
    most = np.where(np.asarray(s.mapping.pp) > 1, s.engine.stage_tokens, np.inf)
    return np.maximum(np.ceil(running_sequences(s) * new / np.minimum(s.engine.token_budget, most)), 1)


def graphs(s: Scenario) -> tuple[Context, Context]:
    """The prefill pass and the decode pass (at the first, middle and last context: a leading axis of 3)."""
    w, m = s.workload, s.mapping
    sequences = running_sequences(s)
    passes = prefill_passes(s)
    new = w.prompt - w.cached
    rows = sequences / passes * (new if w.logits == "all" else 1)
    prefill = Pass(Prefill(sequences / passes, new, w.cached), None, rows)
    first = w.prompt + 1
    last = w.prompt + np.maximum(w.output - 1, 1)
    contexts = first + (last - first) * THIRDS.reshape((3,) + (1,) * s.axes)
    flight = np.minimum(m.in_flight, m.pp)
    micro = np.ceil(sequences / flight)
    decode = Pass(None, Decode(micro, contexts), micro)
    model, st = s.model.scaled(), style(s)
    return Context(model, prefill, m, s.quant, st), Context(model, decode, m, s.quant, st)


def mean_step(x: Num, axes: int) -> Num:
    """Average over the output of a per-step number that may carry the leading context axis (Simpson's rule).

    Exact for step times cubic in the context.

    >>> float(mean_step(np.array([1.0, 2.0, 3.0]), 0))
    2.0
    """
    if not isinstance(x, np.ndarray) or x.ndim <= axes:
        return x
    return (x[0] + 4.0 * x[1] + x[2]) / 6.0


def last_step(x: Num, axes: int) -> Num:
    """The last step's value of a per-step number that may carry the leading context axis."""
    return x[-1] if isinstance(x, np.ndarray) and x.ndim > axes else x


class Passes(NamedTuple):
    """The timed nodes of a prefill pass and of a decode step."""

    prefill: list[Timed]
    decode: list[Timed]


def timed_passes(s: Scenario) -> Passes:
    """Both passes built and timed together, each kind of kernel times what the engine takes over a measured one."""
    prefill_context, decode_context = graphs(s)
    prefill_nodes, decode_nodes = build(prefill_context), build(decode_context)
    timed = time_nodes([*prefill_nodes, *decode_nodes], s)
    if s.efficiency.mode == "calibrated":
        timed = [t._replace(time=t.time * kernel_factor(t, s)) for t in timed]
    return Passes(timed[: len(prefill_nodes)], timed[len(prefill_nodes) :])


FACTORS = {
    "gemm": "gemm_factor", "attention": "attention_factor", "mla_attention": "attention_factor",
    "decode_attention": "decode_factor", "mla_decode": "decode_factor", "moe": "moe_factor",
}  # fmt: skip
"""Kind of kernel -> the engine's constant for it; streaming kernels take stream_factor."""


def kernel_factor(t: Timed, s: Scenario) -> Num:
    """Time of a kernel in this engine over the calibrated one's; a collective's factor is in its time already."""
    own = getattr(s.engine, FACTORS.get(t.node.kind, "stream_factor")) if isinstance(t.node, Op) else 1.0
    return own * s.engine.speed


class Speed(NamedTuple):
    """Times of a request: one pass of each phase, their parts (s), totals (s); latency covers all waves."""

    one: Step
    tick: Step
    prefill_parts: dict[str, Num]
    decode_parts: dict[str, Num]
    ttft: Num
    tpot: Num
    latency: Num
    waves: Num


def speed(s: Scenario, timed: Passes, r: Rates) -> Speed:
    """Timed passes and the engine's host costs -> TTFT, TPOT and latency."""
    e, m, device = s.engine, s.mapping, s.cluster.device
    sequences, passes, rounds = running_sequences(s), prefill_passes(s), waves(s)
    flight = np.minimum(m.in_flight, m.pp)
    one = step(timed.prefill, e, device, r, e.issue_prefill, sequences / passes)
    # passes follow each other through the stages: pp + passes - 1 stage times
    overlapped = (m.pp + passes - 1) / m.pp if e.pipelined else passes
    repeat = overlapped + e.pipeline_loss * (passes - overlapped)
    prefill_parts = {k: v * repeat * e.prompt for k, v in one.parts.items()}
    prefill_parts["request"] = e.request + 0.0
    ttft = add_up(prefill_parts.values())
    tick = step(timed.decode, e, device, r, e.issue_decode, np.ceil(sequences / flight))
    decode_parts = {k: mean_step(v, s.axes) for k, v in tick.parts.items()}
    tpot = add_up(decode_parts.values())
    latency = (ttft + np.maximum(s.workload.output - 1, 0) * tpot) * rounds
    return Speed(one, tick, prefill_parts, decode_parts, ttft, tpot, latency, rounds)


def infer_scenario(s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = ()) -> InferenceEstimate:
    """Predict inference of one scenario (or, where its numbers are arrays, of every point of the grid).

    Never raises for an infeasible point: `fits` and `reason` say so. Units: SI.
    """
    w, m, device = s.workload, s.mapping, s.cluster.device
    timed = timed_passes(s)
    r = rates(s)
    one, tick, prefill_parts, decode_parts, ttft, tpot, latency, rounds = speed(s, timed, r)
    passes = prefill_passes(s) * rounds
    flight = np.minimum(m.in_flight, m.pp)
    dims = s.axes
    tpot_end = last_step(tick.total, dims)
    gpus = m.devices
    tokens = w.batch * w.output
    memory = memory_use(s)
    fits = memory.total <= memory.capacity
    limits = check(s, fits)
    per_pass = {k: v * passes for k, v in volumes(timed.prefill, m.pp).items()}
    per_step = {k: mean_step(v, dims) * flight for k, v in volumes(timed.decode, m.pp).items()}
    rate = tokens / latency
    return InferenceEstimate(
        ttft=ttft,
        tpot=tpot,
        tpot_end=tpot_end,
        latency=latency,
        output_tokens_per_s=rate,
        output_tokens_per_s_per_gpu=rate / gpus,
        requests_per_s=w.batch / latency,
        memory=memory,
        fits=~np.asarray(_any(list(limits.flags.values()))),
        max_batch=max_batch(s),
        limits=limits,
        comm_bytes={"prefill": sum(per_pass.values()) + 0.0, "decode": sum(per_step.values()) + 0.0},
        comm_detail={"prefill": per_pass, "decode": per_step},
        prefill_parts=prefill_parts,
        decode_parts=decode_parts,
        passes={"prefill": one, "decode": tick},
        cost_per_million_tokens=device.price / 3600 * gpus / rate * 1e6,
        gpus=gpus,
        waves=rounds,
        scenario=s,
        timed={"prefill": tuple(timed.prefill), "decode": tuple(timed.decode)},
        assumed=assumed,
        warnings=warnings,
    )


def bound_of(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> Num:
    """What bounds the pass: the label with the largest share of its time, the host included."""
    shares = bound_shares(timed, pass_, dims)
    stack = np.stack(np.broadcast_arrays(*(shares[name] for name in BOUNDS)))
    return np.array(BOUNDS)[np.argmax(stack, axis=0)]


def bound_shares(timed: list[Timed] | tuple[Timed, ...], pass_: Step, dims: int) -> dict[str, Num]:
    """Seconds of a pass by what bounds them: compute, each memory level, overhead, network, host."""
    shares: dict[str, Num] = dict.fromkeys(BOUNDS, 0.0)
    for t in timed:
        if isinstance(t.node, Op):
            for index in range(5):
                shares[BOUNDS[index]] = shares[BOUNDS[index]] + np.where(t.bound == index, t.total, 0.0)
        else:
            shares["network"] = shares["network"] + t.total
    shares["overhead"] = shares["overhead"] + pass_.parts["gaps"]
    shares["host"] = pass_.parts["host"]
    return {k: mean_step(v, dims) for k, v in shares.items()}


def memory_use(s: Scenario, batch: Num | None = None) -> Memory:
    """Memory of the fullest device when `batch` sequences (default: the workload's) are at their full length."""
    e, m = s.engine, s.mapping
    sequences = rank_sequences(s) if batch is None else np.ceil(batch / m.dp)
    held = replace(m, pp=1) if e.even_stages else m
    parts = {"weights": mem.weight_bytes(s.model, held, s.quant, style(s).half_bytes) / (m.pp if e.even_stages else 1)}
    parts["kv_cache"] = sequences * sequence_bytes(s)
    parts["activations"] = pass_tokens(s, sequences) * token_bytes(s)
    parts["logits"] = sequences * logit_bytes(s)
    parts["context"] = e.context + 0.0
    parts["workspace"] = e.workspace + 0.0
    return Memory(parts, add_up(parts.values()), s.cluster.device.dram.size * e.memory_fraction)


def sequence_bytes(s: Scenario) -> Num:
    """KV cache (and recurrent state) of one sequence at its full length, on the fullest device (context ranks share)."""
    length = (s.workload.prompt + s.workload.output) / s.mapping.cp
    return mem.kv_bytes_per_sequence(s.model, s.mapping, s.quant, length, s.engine.block)


def pass_tokens(s: Scenario, sequences: Num) -> Num:
    """New tokens of the largest pass of one device."""
    new = s.workload.prompt - s.workload.cached
    return np.maximum(np.minimum(sequences * new, s.engine.token_budget) / s.mapping.cp, sequences)


def token_bytes(s: Scenario) -> Num:
    """Activation bytes a token of a pass: residual and its norm, the widest layer, and unfused attention's scores."""
    st = style(s)
    values = 2 * s.model.scaled().hidden + mem.layer_widths(s.model, s.mapping)
    scores = 0.0 if s.engine.flash else mem.score_bytes(s.model, s.mapping, s.workload.prompt, st.half_bytes)
    return values * st.half_bytes + scores


def logit_bytes(s: Scenario) -> Num:
    """Bytes of logits a sequence: 16-bit logits and their fp32 copy, for the last token or all of the prompt."""
    rows = (s.workload.prompt - s.workload.cached) if s.workload.logits == "all" else 1
    return rows * np.ceil(s.model.vocab / s.mapping.tp) * (style(s).half_bytes + 4.0)


def max_batch(s: Scenario) -> Num:
    """The largest batch that fits, 0 if none does; memory is linear in the batch below and above the token budget."""
    fixed = memory_use(s, batch=np.zeros(()))
    free = fixed.capacity - fixed.total
    new = np.maximum(s.workload.prompt - s.workload.cached, 1) / s.mapping.cp
    each = sequence_bytes(s) + logit_bytes(s)
    token = token_bytes(s)
    small = np.floor(free / (each + new * token))
    budget = s.engine.token_budget / s.mapping.cp
    large = np.floor(
        np.where(np.isfinite(budget), free - np.where(np.isfinite(budget), budget, 0) * token, -1.0) / each
    )
    best = np.where(small * new <= budget, small, np.maximum(large, np.floor(budget / new)))
    return np.maximum(np.minimum(best, s.engine.max_sequences), 0) * s.mapping.dp


def check(s: Scenario, fits: Num) -> Limits:
    """The rules of a legal mapping, and memory, each a flag with its reason."""
    m, model = s.mapping, s.model.scaled()
    flags: dict[str, Num] = {}
    heads = [b.mixer.heads for b in model.blocks if b.mixer is not None]
    flags["tp does not divide the heads"] = _any([h % m.tp != 0 for h in heads])
    flags["pp exceeds the layers"] = np.asarray(m.pp > model.layers)
    flags["dp exceeds the batch"] = np.asarray(m.dp > s.workload.batch)
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and hasattr(b.ffn, "experts")]
    if experts:
        flags["ep does not divide the experts"] = _any([x % m.ep != 0 for x in experts])
        flags["ep does not fit tp x dp"] = np.asarray((m.tp * m.dp) % m.ep != 0)
    else:
        flags["ep needs a mixture of experts"] = np.asarray(np.asarray(m.ep) > 1)
    flags["out of memory"] = ~np.asarray(fits)
    return Limits(flags)


def _any(flags: list[Any]) -> Num:
    """True where any flag is."""
    out: Any = np.zeros((), dtype=bool)
    for flag in flags:
        out = out | np.asarray(flag)
    return out


__all__ = ["InferenceEstimate", "Memory", "Rates", "infer_scenario"]
