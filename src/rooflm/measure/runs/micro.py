"""Micro-benchmarks: products, attention, elementwise kernels, copies, launches, collectives by size and ranks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention as attention

from rooflm.measure.case import Case
from rooflm.measure.results import Row, Stat, stat
from rooflm.measure.runs import load

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"m": (1, 16), "nk": ((256, 256),), "seq": (64,), "past": (128,), "bytes": (2**20,),
             "comm": (2**14, 2**20)},
    "small": {
        "m": (1, 2, 4, 8, 16, 64, 256), "nk": ((1536, 576), (4096, 4096), (2048, 1024)), "seq": (64, 256, 1024),
        "past": (128, 512, 2048), "bytes": (2**16, 2**20, 2**24, 2**27), "comm": tuple(2**i for i in range(10, 25, 2)),
    },
    "full": {
        "m": tuple(2**i for i in range(0, 14)), "nk": ((4096, 4096), (14336, 4096), (4096, 14336), (28672, 8192)),
        "seq": (128, 512, 2048, 8192), "past": (128, 1024, 8192, 32768), "bytes": tuple(2**i for i in range(16, 31, 2)),
        "comm": tuple(2**i for i in range(10, 31, 2)),
    },
}  # fmt: skip
"""Grids by size: `tiny` for tests, `small` for a CPU, `full` for a GPU."""
HEADS, KV_HEADS, DIM = 8, 2, 64
SHORT = 0.02
"""s that one timing lasts at least: quick kernels are repeated inside it."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "p2p")


def mean_seconds(call: Callable[[], Any], device: torch.device, times: int) -> float:
    """Mean seconds of so many calls, with what was queued before and by them done when the clock is read."""
    load.sync(device)
    start = time.perf_counter()
    for _ in range(times):
        call()
    load.sync(device)
    return (time.perf_counter() - start) / times


def timed(call: Callable[[], Any], device: torch.device, repeats: int, least: float = SHORT) -> Stat:
    """Seconds of one call: each sample is the mean over as many calls as last `least` seconds, clock read in sync."""
    call()
    many = max(int(least / max(mean_seconds(call, device, 1), 1e-9)), 1)
    return stat([mean_seconds(call, device, many) for _ in range(repeats)])


@torch.inference_mode()
def run(case: Case, rank: int) -> list[Row]:
    """All micro-benchmarks of one process, or with tp ranks the collectives."""
    device = load.device_of(case, rank)
    grid = SIZES[case.size]
    if case.world > 1:
        return collectives(case, rank, device, grid["comm"])
    rows = []
    for metric, sizes, call, again in kernels(case, device, grid):
        m, n, k = sizes
        rows.append(Row(case, metric, "s", timed(call, device, case.repeats, SHORT if again else 0.0), m=m, n=n, k=k))
    return rows


def kernels(
    case: Case, device: torch.device, grid: dict[str, Any]
) -> Iterator[tuple[str, tuple[int, int, int], Callable[[], Any], bool]]:
    """(metric, sizes, call, repeat it inside a sample). Weights of products rotate, so that they come from memory."""
    dtype = load.TORCH[case.dtype]

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    for n, k in grid["nk"]:
        ways = max(int(2**27 / (n * k * dtype.itemsize)), 1) if case.size != "tiny" else 1
        weights = [made(n, k) for _ in range(min(ways, 64))]
        turn = itertools.cycle(weights)
        for m in grid["m"]:
            x = made(m, k)
            yield "gemm_s", (m, n, k), lambda x=x, turn=turn: torch.nn.functional.linear(x, next(turn)), True  # type: ignore[misc]
    for length in grid["seq"]:
        q, kv = made(1, HEADS, length, DIM), made(1, KV_HEADS, length, DIM)
        yield "attention_s", (length, HEADS, DIM), lambda q=q, kv=kv: attention(  # type: ignore[misc]
            q, kv, kv, is_causal=True, enable_gqa=True), True  # fmt: skip
    for past in grid["past"]:
        q, kv = made(4, HEADS, 1, DIM), made(4, KV_HEADS, past, DIM)
        yield "decode_attention_s", (past, HEADS, DIM), lambda q=q, kv=kv: attention(  # type: ignore[misc]
            q, kv, kv, enable_gqa=True), True  # fmt: skip
    for size in grid["bytes"]:
        x = made(size // dtype.itemsize)
        y = torch.empty_like(x)
        yield "elementwise_s", (size, 0, 0), lambda x=x, y=y: torch.mul(x, 1.5, out=y), True  # type: ignore[misc]
        yield "copy_s", (size, 0, 0), lambda x=x, y=y: y.copy_(x), True  # type: ignore[misc]
    small = made(16)
    out = torch.empty_like(small)
    yield "launch_s", (0, 0, 0), lambda: torch.mul(small, 1.5, out=out), True


def collectives(case: Case, rank: int, device: torch.device, sizes: tuple[int, ...]) -> list[Row]:
    """Seconds of each collective by bytes (m: V as predictions count it; n: ranks)."""
    ranks, dtype, rows = case.world, load.TORCH[case.dtype], []
    for size in sizes:
        full = torch.ones(size // dtype.itemsize // ranks * ranks, device=device, dtype=dtype)
        parts = [p.clone() for p in full.chunk(ranks)]
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda full=full: dist.all_reduce(full),  # type: ignore[misc]
            "all_gather": lambda parts=parts: dist.all_gather(list(parts), parts[rank].clone()),  # type: ignore[misc]
            "reduce_scatter": lambda full=full, p=parts: dist.reduce_scatter_tensor(p[rank], full),  # type: ignore[misc]
            "p2p": lambda full=full: ping(full, rank),  # type: ignore[misc]
        }
        for op in COLLECTIVES:
            s = together(calls[op], device, case.repeats)
            s = s.times(0.5) if op == "p2p" else s
            rows.append(Row(case, f"{op}_s", "s", s, m=full.numel() * dtype.itemsize, n=ranks))
    return rows if rank == 0 else []


def ping(x: torch.Tensor, rank: int) -> None:
    """A message from rank 0 to rank 1, and one back: two messages."""
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
        dist.send(x, 0)


def together(call: Callable[[], Any], device: torch.device, repeats: int) -> Stat:
    """Seconds of a collective, the same number of calls on every rank, from a barrier on."""
    call()
    times = 10
    samples = []
    for _ in range(repeats):
        dist.barrier()
        samples.append(mean_seconds(call, device, times))
    return stat(samples)
