"""Training: one warm public call, and a grid of a million mappings of one model (target: a second on two cores)."""

from __future__ import annotations

import math
import time
from typing import Any

from rooflm import train, train_grid

AXES: dict[str, list[int]] = {
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8, 16, 32],
    "dp": [1, 2, 4, 8, 16, 32, 64, 128],
    "micro_batch": [1, 2, 3, 4, 6, 8],
    "zero": [0, 1, 2, 3],
    "vp": [1, 2, 3, 4, 6, 12],
    "batch": [256 * i for i in range(1, 38)],
}
"""1,022,976 points."""
OUTPUTS = ["step_time_s", "mfu", "memory_bytes", "fits"]


def main() -> None:
    """Print the table."""
    points = math.prod(len(v) for v in AXES.values())
    for mode in ("ideal", "calibrated"):
        common: dict[str, Any] = {"model": "gpt3-175b", "gpu": "a100-sxm-80gb", "efficiency": mode}
        one = {**common, "tp": 8, "pp": 8, "dp": 16, "batch": 1536}
        train(**one)
        start = time.perf_counter()
        for _ in range(50):
            train(**one)
        print(f"one mapping, {mode:10s} {(time.perf_counter() - start) / 50 * 1e3:8.2f} ms")
        start = time.perf_counter()
        grid = train_grid(**common, **AXES, schedule="interleaved", sp=True, outputs=OUTPUTS)
        seconds = time.perf_counter() - start
        print(
            f"{points:,} mappings, {mode:10s} {seconds:6.2f} s, {float(grid.fits.mean()):.0%} legal and within memory"
        )


if __name__ == "__main__":
    main()
