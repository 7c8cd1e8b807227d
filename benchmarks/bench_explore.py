"""Time of exploring 100,800 hardware points, each with the best of its parallel mappings.

Run `python benchmarks/bench_explore.py`. The space: 7 nodes x 5 memories x 4 networks x 10 area shares of the cores x 9
of L2 x 8 power budgets, around A100's die.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from rooflm.explore import Space, grid, make_task, pareto

SPACE = Space(
    "a100",
    ("n12", "n10", "n7", "n5", "n3", "n2", "a10"),
    ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4"),
    ("nvlink3+hdr", "nvlink4+ndr", "nvlink5+xdr", "nvlink5-switch+gdr"),
    (
        ("technology.budget.area.cores", tuple(np.linspace(0.25, 0.65, 10))),
        ("technology.budget.area.l2", tuple(np.linspace(0.08, 0.3, 9))),
        ("technology.budget.power", tuple(np.linspace(300.0, 1000.0, 8))),
    ),
)


def main() -> None:
    """Run once and print the seconds, points, mappings and the size of the Pareto front of time and cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", default="local", help="local, ray or ray://host:port")
    parser.add_argument("--phase", default="train", choices=("train", "infer"))
    options = parser.parse_args()
    if options.phase == "train":
        task = make_task(
            "train", "gpt3-175b", gpus=1024, batch=1024, seq=2048, recompute="selective", micro=(1,), tp_most=8
        )
    else:
        task = make_task("infer", "llama-2-70b", gpus=8, batch=16, prompt=1024, output=256, metric="tpot")
    begin = time.perf_counter()
    table = grid(task, SPACE, on=options.on)
    seconds = time.perf_counter() - begin
    front = pareto({k: v[:: max(len(v) // 5000, 1)] for k, v in table.items()}, {"time_s": 1.0, "capital_usd": 1.0})
    print(f"{len(table['time_s'])} hardware points x {task.choices} mappings in {seconds:.1f} s "
          f"({len(table['time_s']) * task.choices / seconds / 1e6:.2f} million evaluations/s); "
          f"{int(front.sum())} on the sampled front")  # fmt: skip


if __name__ == "__main__":
    main()
