"""Prefill, decode and whole requests of one case, on one rank: times, memory, FLOPs, bytes sent, utilisation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from rooflm.measure.case import Case
from rooflm.measure.expect import by_rank, expected
from rooflm.measure.results import Row, Stat, constant_stat, stat
from rooflm.measure.runs import load
from rooflm.measure.runs.comm import Count, dispatched
from rooflm.measure.runs.memory import Busy, MemoryMeter, exact, relaxed, settle
from rooflm.measure.runs.optimise import compiled, profiled, quantise
from rooflm.measure.runs.parallel import Place, Runner, place
from rooflm.measure.shape import Shape


class Request(NamedTuple):
    """Seconds of one request: its prefill, and each decode step; CPU seconds of this process for both."""

    prefill: float
    steps: list[float]
    prefill_cpu: float
    steps_cpu: float


class Bench:
    """A loaded case on one rank."""

    def __init__(self, case: Case, rank: int) -> None:
        self.case, self.rank = case, rank
        self.device = load.device_of(case, rank)
        exact()
        self.meter = MemoryMeter(self.device)
        self.at: Place | None = place(case, rank) if case.world > 1 else None
        model = load.load(case, self.device)
        self.shape: Shape | None = load.shape_of(model)
        vocab = model.config.vocab_size
        model = quantise(model, case)
        self.runner = Runner(model, case, self.at)
        self.model = compiled(self.runner.model, case)
        self.runner.model = self.model
        settle()
        rows = case.batch // case.dp
        every = load.tokens(case, vocab, case.batch, case.prompt, self.device)
        first = (self.at.data if self.at else 0) * rows
        self.ids = every[first : first + rows]

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.case.world > 1:
            dist.barrier()

    def request(self, output: int) -> Request:
        """One request: prefill, then `output` - 1 forced steps, each token greedy."""
        self.cache: Any = None  # that of the last request must not count in this one's memory
        cache, rows = self.runner.cache(), self.ids.shape[0]
        self.barrier()
        load.sync(self.device)
        start, cpu = time.perf_counter(), time.process_time()
        ids = self.runner.next_ids(self.runner.forward(self.ids, cache), rows, self.device)
        load.sync(self.device)
        prefill, prefill_cpu = time.perf_counter() - start, time.process_time() - cpu
        steps, cpu = [], time.process_time()
        for _ in range(output - 1):
            start = time.perf_counter()
            ids = self.runner.next_ids(self.runner.forward(ids, cache), rows, self.device)
            load.sync(self.device)
            steps.append(time.perf_counter() - start)
        self.cache = cache
        return Request(prefill, steps, prefill_cpu, time.process_time() - cpu)


def weight_bytes(model: Any) -> float:
    """Bytes of parameters and buffers, each storage once."""
    stores = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
              for t in [*model.parameters(), *model.buffers()] if t.numel()}  # fmt: skip
    return float(sum(stores.values()))


def cache_bytes(cache: Any) -> float:
    """Bytes of the keys and values that a cache holds."""
    held = [t for layer in cache.layers for t in (layer.keys, layer.values) if isinstance(t, torch.Tensor)]
    return float(sum(t.numel() * t.element_size() for t in held))


@torch.inference_mode()
def run(case: Case, rank: int) -> list[Row]:
    """Measure the case on this rank. Rank 0 gives the times; every rank its memory and communication."""
    bench = Bench(case, rank)
    shape = bench.shape.text() if bench.shape else ""

    def row(metric: str, unit: str, s: Stat, of: int = -1) -> Row:
        return Row(case, metric, unit, s, shape, of)

    sent = communication(bench)
    if case.world == 1:  # the first pass sets libraries up
        bench.request(2)
    bench.meter.reset()
    bench.request(case.output)
    rows = [row(f"{name}_bytes", "B", constant_stat(value), rank) for name, value in memory(bench).items()]
    relaxed()
    for _ in range(case.warmup):
        bench.request(case.output)
    with Busy(bench.device, case.threads) as busy:
        done = [bench.request(case.output) for _ in range(case.repeats)]
    rows += [row(f"{phase}_{name}", unit, constant_stat(v), rank) for phase, name, unit, v in sent]
    if bench.device.type == "cpu":
        rows.append(row("ttft_cpu_s", "s", stat([r.prefill_cpu for r in done]), rank))
        if case.output > 1:
            rows.append(row("tpot_cpu_s", "s", stat([r.steps_cpu / len(r.steps) for r in done]), rank))
    if busy.share is not None:
        rows.append(row("busy", "1", constant_stat(busy.share), rank))
    if busy.energy is not None:
        rows.append(row("energy_j", "J", constant_stat(busy.energy / case.repeats), rank))
    if rank:
        return rows
    return [*times(row, done, case), *rows, *flops(bench, row), *kernels(bench, row)]


def times(row: Callable[..., Row], done: list[Request], case: Case) -> list[Row]:
    """TTFT, TPOT, latency and throughput over the repeats; step_s over every step of every repeat."""
    out = [row("ttft_s", "s", stat([r.prefill for r in done]))]
    whole = [r.prefill + sum(r.steps) for r in done]
    if case.output > 1:
        out.append(row("tpot_s", "s", stat([sum(r.steps) / len(r.steps) for r in done])))
        out.append(row("step_s", "s", stat([s for r in done for s in r.steps])))
    out.append(row("latency_s", "s", stat(whole)))
    out.append(row("output_tokens_per_s", "1/s", stat([case.batch * case.output / t for t in whole])))
    return out


def memory(bench: Bench) -> dict[str, float]:
    """Peak beyond what was in use before loading; weights, KV cache at the end, and the rest (activations)."""
    peak = bench.meter.peak()
    weights, kv = weight_bytes(bench.model), cache_bytes(bench.cache)
    out = {"memory": peak, "weights": weights, "kv_cache": kv, "activations": max(peak - weights - kv, 0.0)}
    reserved = bench.meter.reserved()
    return out if reserved is None else out | {"reserved": reserved}


def communication(bench: Bench) -> list[tuple[str, str, str, float]]:
    """(phase, name, unit, value): bytes and calls of a prefill and a decode step, and what the graph predicts.

    The first pass is run before and not counted: libraries set up their connections in it. Empty for one rank.
    """
    case = bench.case
    if case.world == 1:
        return []
    bench.request(case.output)
    found: list[tuple[str, str, str, float]] = []
    counter, cache, rows = Count(), bench.runner.cache(), bench.ids.shape[0]
    ids = bench.ids
    for phase in ("prefill", "decode"):
        counter.reset()
        with counter:
            logits = bench.runner.forward(ids, cache)
            ids = bench.runner.next_ids(logits, rows, bench.device)
        told = counter.sent.pop("broadcast", 0.0)
        found.append((phase, "comm_bytes", "B", sum(counter.sent.values())))
        found.append((phase, "control_bytes", "B", told))
        for op, value in counter.sent.items():
            found += [(phase, f"comm_bytes.{op}", "B", value), (phase, f"comm_calls.{op}", "1", counter.calls[op])]
        if bench.shape is not None:
            graph = expected(case, bench.shape.model(), 0 if phase == "prefill" else case.prompt + 1)
            stage = bench.at.stage if bench.at else 0
            own = by_rank(case, bench.shape.model(), graph.sent, stage)
            found.append((phase, "comm_bytes_expected", "B", sum(own.values())))
    return found


def flops(bench: Bench, row: Callable[..., Row]) -> list[Row]:
    """FLOPs of products by torch.utils.flop_counter with eager attention (it misses SDPA on CPUs), and by the graph."""
    case = bench.case
    if case.world > 1 or case.compiled or case.quant != "none" or bench.shape is None:
        return []
    from torch.utils.flop_counter import FlopCounterMode

    model = bench.runner.model
    model.set_attn_implementation("eager")
    cache, ids, out = bench.runner.cache(), bench.ids, []
    for phase, context in (("prefill", 0), ("decode", case.prompt + 1)):
        with FlopCounterMode(display=False) as counter:
            logits = bench.runner.forward(ids, cache)
        ids = bench.runner.next_ids(logits, ids.shape[0], bench.device)
        graph = expected(case, bench.shape.model(), context).flops
        out += [row(f"{phase}_flops", "FLOP", constant_stat(counter.get_total_flops())),
                row(f"{phase}_flops_expected", "FLOP", constant_stat(graph))]  # fmt: skip
    model.set_attn_implementation(case.attention)
    return out


def kernels(bench: Bench, row: Callable[..., Row]) -> list[Row]:
    """Kernels of a decode step: dispatched operations in eager mode, or those that the compiler left."""
    case = bench.case
    if case.world > 1:
        return []
    cache = bench.runner.cache()
    ids = bench.runner.next_ids(bench.runner.forward(bench.ids, cache), bench.ids.shape[0], bench.device)
    count = profiled if case.compiled or bench.device.type == "cuda" else dispatched
    return [row("decode_kernels", "1", constant_stat(count(lambda: bench.runner.forward(ids, cache))))]
