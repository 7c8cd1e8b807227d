"""The best split of one die's area and power for three workloads: training, prefill and decoding want different GPUs.

    python examples/explore_split.py [FIGURE.png]

A100's die, TDP and edge in N5 with HBM3, split anew by differential evolution (seed 0) jointly with the parallel
mapping; training also by DeepFlow's gradient descent, for comparison.
"""

from __future__ import annotations

import sys

from rooflm.explore import COMPONENTS, Space, Split, Task, evolution, gradient, make_task, problem

SPACE = Space("a100", ("n5",), ("hbm3",), ("nvlink4+ndr",))


def tasks() -> dict[str, Task]:
    """The three workloads."""
    return {
        "training": make_task("train", "gpt3-175b", gpus=1024, batch=1024, seq=2048, recompute="selective", micro=(1,),
                              tp_most=8),
        "prefill": make_task("infer", "llama-2-70b", gpus=8, batch=8, prompt=4096, output=1, metric="ttft"),
        "decoding": make_task("infer", "llama-2-70b", gpus=8, batch=32, prompt=2048, output=512, metric="tpot"),
    }  # fmt: skip


def study(generations: int = 40) -> dict[str, Split]:
    """The best split for each workload."""
    return {name: evolution(problem(task, SPACE), 0, generations, 6) for name, task in tasks().items()}


def main(figure: str = "", generations: str = "40") -> None:
    """Print the splits and draw them."""
    found = study(int(generations))
    for name, s in found.items():
        print(f"{name}: {s.start / s.value:.2f} times faster than A100's own split ({s.evaluations} designs)")
        print("  per cent" + "".join(f"{c:>10s}" for c in COMPONENTS))
        for name_, group in (("area", "area"), ("power", "watts")):
            print(f"  {name_:8s}" + "".join(f"{100 * s.shares[group][c]:10.0f}" for c in COMPONENTS))
    other = gradient(problem(tasks()["training"], SPACE), 0, 60, 5)
    print(f"training by gradient descent: {other.start / other.value:.2f} times ({other.evaluations} designs)")
    if figure:
        from rooflm.plot import Bar, Scale, bars

        made = [
            Bar(word, {c: 100 * s.shares[group][c] for c in (*COMPONENTS, "other")}, name)
            for name, s in found.items() for word, group in (("area", "area"), ("power", "watts"))
        ]  # fmt: skip
        title = "What training, prefill and decoding would make of A100's area and power"
        bars(title, Scale("share (%)", percent=True), made, "best split of the budgets in N5 with HBM3").save(figure)


if __name__ == "__main__":
    main(*sys.argv[1:3])
