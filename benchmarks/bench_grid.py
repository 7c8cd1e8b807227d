"""Grids: predictions a second, by the wall and by the core-second, beside single predictions in the same run.

Targets on two free cores: 3 million inference and 1 million training predictions a second. On a shared machine the wall
figure is what is left of it; the figure by the core-second is steadier. Peak memory is that of the streamed grid.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rooflm import infer, infer_grid, stream, train, train_grid

INFER: dict[str, Any] = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "batch": range(1, 129), "prompt": range(16, 2064, 64),
    "output": range(16, 2064, 64), "tp": [1, 2, 4, 8], "dp": [1, 2],
}  # fmt: skip
TRAIN: dict[str, Any] = {
    "model": "gpt3-175b", "gpu": "a100-sxm-80gb", "seq": 2048, "tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 12, 16, 24, 32],
    "dp": [1, 2, 4, 8, 16, 32], "micro_batch": [1, 2, 3, 4, 6, 8, 12, 16], "batch": range(64, 4096 + 64, 64),
    "recompute": ["none", "selective", "full"], "zero": [0, 1, 2, 3], "vp": 1, "efficiency": "0.6,0.8",
    "outputs": ["step_time_s", "mfu", "memory_bytes", "fits"],
}  # fmt: skip
"""Training with flat efficiencies: what an evaluation costs hardly depends on the calibration."""
SHOWN = ["ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu", "memory_bytes", "fits"]


def size_of(arguments: dict[str, Any]) -> int:
    """Points of the grid of some arguments."""
    return math.prod(len(v) for k, v in arguments.items() if isinstance(v, list | range) and k != "outputs")


class Spent(NamedTuple):
    """Wall and processor seconds of a call."""

    wall: float
    core: float


def spent(work: Callable[[], Any], repeat: int = 3) -> Spent:
    """The quickest of a few calls."""
    found = []
    for _ in range(repeat):
        wall, core = time.perf_counter(), time.process_time()
        work()
        found.append(Spent(time.perf_counter() - wall, time.process_time() - core))
    return min(found)


def report(name: str, points: int, time_: Spent, single: float, target: str) -> None:
    """A line of the table."""
    wall, core = points / time_.wall, points / time_.core
    print(f"{name:34s} {points:9d} points  {wall / 1e6:6.2f} M/s wall  {core / 1e6:6.2f} M/core-s  "
          f"{wall * single:7.0f} x one by one  {target}")  # fmt: skip


def main(large: int = 10_000_000) -> None:
    """Print the table. large: points of the streamed grid."""
    one = spent(lambda: infer("llama-3.1-8b", gpu="h100-sxm-80gb", batch=8), 50).wall
    points = size_of(INFER)
    report(
        "inference, calibrated, 7 outputs", points, spent(lambda: infer_grid(**INFER, outputs=SHOWN)), one, "target 3"
    )
    ideal = {**INFER, "outputs": SHOWN, "efficiency": "ideal"}
    report("inference, ideal, 7 outputs", points, spent(lambda: infer_grid(**ideal)), one, "")
    report("inference, calibrated, all outputs", points, spent(lambda: infer_grid(**INFER), 1), one, "")
    step = {**{k: v for k, v in TRAIN.items() if k not in ("outputs",)}, "tp": 8, "pp": 8, "dp": 8, "micro_batch": 1,
            "batch": 1536, "recompute": "full", "zero": 1}  # fmt: skip
    one = spent(lambda: train(**step), 20).wall
    points = size_of(TRAIN)
    report("training, 4 outputs", points, spent(lambda: train_grid(**TRAIN), 2), one, "target 1")
    many = {**INFER, "batch": range(1, 1 + large // 8192)}
    points = size_of(many)
    with tempfile.TemporaryDirectory() as folder:
        time_ = spent(lambda: stream(str(Path(folder) / "grid.parquet"), **many), 1)
    report("inference streamed to parquet", points, time_, one, "")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB (target 4 at 100 million)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
