"""One training step of a case on one rank: forward, backward, gradients between the ranks, AdamW."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
import torch.distributed as dist

from rooflm.measure.case import Case
from rooflm.measure.expect import step_bytes
from rooflm.measure.results import Row, Stat, constant_stat, stat
from rooflm.measure.runs import load
from rooflm.measure.runs.comm import Count
from rooflm.measure.runs.infer import weight_bytes
from rooflm.measure.runs.memory import Busy, MemoryMeter, exact, relaxed
from rooflm.measure.runs.parallel import place
from rooflm.measure.runs.train_split import Pipeline, Plain, Tensor

PHASES = ("forward", "backward", "optimizer")


class Trainer:
    """A loaded case on one rank, and its optimiser."""

    def __init__(self, case: Case, rank: int) -> None:
        self.case, self.device = case, load.device_of(case, rank)
        exact()
        self.meter = MemoryMeter(self.device)
        at = place(case, rank) if case.world > 1 else None
        model = load.load(case, self.device).train()
        found = load.shape_of(model)
        self.shape = found
        every = load.tokens(case, model.config.vocab_size, case.batch, case.prompt, self.device)
        each = case.batch // case.dp
        first = (at.data if at else 0) * each
        ids = every[first : first + each]
        if at is not None and case.tp > 1:
            self.work: Any = Tensor(model, case, at, ids)
        elif at is not None and case.pp > 1:
            self.work = Pipeline(model, case, at, ids)
        else:
            self.work = Plain(model, ids)
        self.group = at.data_group if at else None
        self.parameters = list(model.parameters())
        self.model, self.optimizer = model, torch.optim.AdamW(self.parameters, lr=1e-4)

    def step(self) -> tuple[list[float], list[float]]:
        """One step: seconds and CPU seconds of this process in each of PHASES."""
        if self.case.world > 1:
            dist.barrier()
        load.sync(self.device)
        clocks = [(time.perf_counter(), time.process_time())]
        for phase in (self.work.forward, self.backward, self.update):
            phase()
            load.sync(self.device)
            clocks.append((time.perf_counter(), time.process_time()))
        both = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(clocks)]
        return [w for w, _ in both], [c for _, c in both]

    def backward(self) -> None:
        """Gradients, and their mean over the data-parallel ranks."""
        self.work.backward()
        if self.case.dp > 1:
            for p in self.parameters:
                if p.grad is not None:
                    dist.all_reduce(p.grad, group=self.group)
                    p.grad /= self.case.dp

    def update(self) -> None:
        """AdamW, and the gradients dropped."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def run(case: Case, rank: int) -> list[Row]:
    """Measure `repeats` steps of batch / dp sequences a rank."""
    t = Trainer(case, rank)
    shape = t.shape.text() if t.shape else ""

    def row(metric: str, unit: str, s: Stat, of: int = -1) -> Row:
        return Row(case, metric, unit, s, shape, of)

    t.step()  # the first step makes the optimiser's states
    rows: list[Row] = []
    t.meter.reset()
    with Count() as counter:
        t.step()
    if t.work.value is not None:  # after at least one update, so that wrong gradients show
        rows.append(row("loss", "1", constant_stat(t.work.value), rank))
    if case.world > 1:
        counter.sent.pop("broadcast", None)
        rows.append(row("step_comm_bytes", "B", constant_stat(sum(counter.sent.values())), rank))
        rows += [row(f"step_comm_bytes.{op}", "B", constant_stat(v), rank) for op, v in counter.sent.items()]
        if t.shape is not None:
            rows.append(
                row("step_comm_bytes_expected", "B", constant_stat(step_bytes(case, t.shape.model(), rank)), rank)
            )
    rows.append(row("memory_bytes", "B", constant_stat(t.meter.peak()), rank))
    relaxed()
    for _ in range(case.warmup):
        t.step()
    with Busy(t.device, case.threads) as busy:
        done = [t.step() for _ in range(case.repeats)]
    rows.append(row("weights_bytes", "B", constant_stat(weight_bytes(t.model)), rank))
    if busy.share is not None:
        rows.append(row("busy", "1", constant_stat(busy.share), rank))
    if t.device.type == "cpu":
        rows += [row(f"{p}_cpu_s", "s", stat([c[i] for _, c in done]), rank) for i, p in enumerate(PHASES)]
    if rank:
        return rows
    parts = [row(f"{p}_s", "s", stat([w[i] for w, _ in done])) for i, p in enumerate(PHASES)]
    whole = [sum(w) for w, _ in done]
    rate = stat([case.batch * case.prompt / w for w in whole])
    return [row("step_time_s", "s", stat(whole)), *parts, row("tokens_per_s", "1/s", rate), *rows]
