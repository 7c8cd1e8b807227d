"""Training: one warm prediction, and a grid of a million mappings over one model (target: a second on two cores)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from rooflm.estimate.training import train_scenario
from rooflm.scenario.build_training import build_training
from rooflm.scenario.scenario import Scenario

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


def grid(efficiency: str) -> Scenario:
    """GPT-3 175B over all axes at once, one array dimension an axis."""
    s = build_training(model="gpt3-175b", gpu="a100-sxm-80gb", batch=1536, seq=2048, efficiency=efficiency).scenario
    count = len(AXES)
    shaped = {
        name: np.array(values, float).reshape([-1 if i == k else 1 for k in range(count)])
        for i, (name, values) in enumerate(AXES.items())
    }
    batch = shaped.pop("batch")
    mapping = replace(s.mapping, **shaped, schedule="interleaved", sp=True)  # type: ignore[arg-type]
    return replace(s, mapping=mapping, workload=replace(s.workload, batch=batch), axes=count)


def main() -> None:
    """Print the table."""
    points = int(np.prod([len(v) for v in AXES.values()]))
    for mode in ("ideal", "calibrated"):
        one = build_training(
            model="gpt3-175b", gpu="a100-sxm-80gb", tp=8, pp=8, dp=16, batch=1536, efficiency=mode
        ).scenario
        train_scenario(one)
        start = time.perf_counter()
        for _ in range(50):
            train_scenario(one)
        print(f"one mapping, {mode:10s} {(time.perf_counter() - start) / 50 * 1e3:8.2f} ms")
        start = time.perf_counter()
        estimate = train_scenario(grid(mode))
        seconds = time.perf_counter() - start
        share = float(np.mean(estimate.fits))
        print(f"{points:,} mappings, {mode:10s} {seconds:6.2f} s, {share:.0%} legal and within memory")


if __name__ == "__main__":
    main()
