"""One training step of a case on one rank: forward, backward, gradient all-reduce over the ranks, AdamW."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from rooflm.measure import load
from rooflm.measure.case import Case
from rooflm.measure.comm import Count
from rooflm.measure.infer import weight_bytes
from rooflm.measure.memory import Busy, Meter
from rooflm.measure.results import Row, Stat, one, stat


def run(case: Case, rank: int) -> list[Row]:
    """Measure `repeats` steps of batch / dp sequences a rank."""
    device = load.device_of(case, rank)
    meter = Meter(device)
    model = load.load(case, device).train()
    found = load.shape_of(model)
    shape = found.text() if found else ""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    each = case.batch // case.dp
    every = load.tokens(case, model.config.vocab_size, case.batch, case.prompt, device)
    ids = every[rank * each : (rank + 1) * each]

    def sync() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def step() -> tuple[float, float, float]:
        if case.world > 1:
            dist.barrier()
        sync()
        start = time.perf_counter()
        loss = model(ids, labels=ids, use_cache=False).loss
        sync()
        forward = time.perf_counter()
        loss.backward()
        if case.dp > 1:
            for p in model.parameters():
                if p.grad is not None:
                    dist.all_reduce(p.grad)
                    p.grad /= case.dp
        sync()
        backward = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        sync()
        return forward - start, backward - forward, time.perf_counter() - backward

    for _ in range(max(case.warmup, 1)):
        step()
    counter = Count()
    if case.world > 1:
        with counter:
            step()
    meter.reset()
    with Busy(device, case.threads) as busy:
        done = [step() for _ in range(case.repeats)]

    def row(metric: str, unit: str, s: Stat, of: int = -1) -> Row:
        return Row(case, metric, unit, s, shape, of)

    counter.sent.pop("broadcast", None)
    rows = [
        row("memory_bytes", "B", one(meter.peak()), rank),
        row("weights_bytes", "B", one(weight_bytes(model)), rank),
    ]
    if busy.share is not None:
        rows.append(row("busy", "1", one(busy.share), rank))
    if case.world > 1:
        rows.append(row("step_comm_bytes", "B", one(sum(counter.sent.values())), rank))
        parameters = sum(p.numel() * p.element_size() for p in model.parameters())
        rows.append(row("step_comm_bytes_expected", "B", one(2 * (case.dp - 1) / case.dp * parameters), rank))
    if rank:
        return rows
    names = ("forward_s", "backward_s", "optimizer_s")
    parts = [row(name, "s", stat([d[i] for d in done])) for i, name in enumerate(names)]
    whole = [sum(d) for d in done]
    rate = stat([case.batch * case.prompt / t for t in whole])
    return [row("step_time_s", "s", stat(whole)), *parts, row("tokens_per_s", "1/s", rate), *rows]
