"""GPT-3 175B on 1024 GPUs, from A100 with HDR InfiniBand to B200 behind an NVLink switch with a larger batch.

    python examples/training_generations.py [FIGURE.png]

Seconds a sequence over those of the last machine, as in Optimus (Kundu et al. 2024, arXiv 2407.14645), with
calibrated kernels: some 10 times where the paper prints about 35. `explore_generations.py` says what that hangs on, in
the same configuration.
"""

from __future__ import annotations

import sys

from studies.training import GENERATIONS, generation_rows

CHANGES: dict[str, dict[str, str]] = {
    "calibrated": {},
    "flat": {"mode": "flat"},
    "ideal": {"mode": "ideal"},
    "calibrated, bf16 throughout": {"dtype": "bf16"},
}


def study(**changes: str) -> dict[str, dict[str, float]]:
    """System -> relative time by segment."""
    found: dict[str, dict[str, float]] = {}
    for row in generation_rows(**changes):
        found.setdefault(row["system"], {})[row["segment"]] = row["relative"]
    return found


def main(figure: str = "") -> None:
    """Print the ladder and draw it."""
    ladders = {name: study(**changes) for name, changes in CHANGES.items()}
    found = ladders["calibrated"]
    print(f"{'system':12s} {'relative':>9s} {'of that communication':>22s}")
    for system, parts in found.items():
        total = sum(parts.values())
        print(f"{system:12s} {total:9.2f} {100 * parts['communication'] / total:20.0f} %")
    for name, ladder in ladders.items():
        first, last = (sum(ladder[k].values()) for k in (next(iter(GENERATIONS)), list(GENERATIONS)[-1]))
        print(f"first over last, {name}: {first / last:.1f}")
    if figure:
        from rooflm.plot import Bar, Scale, bars

        made = [Bar(f"{k}, {GENERATIONS[k]['dtype']}", v) for k, v in found.items()]
        first, last = made[0].parts, made[-1].parts
        gain = {p: first[p] / last[p] for p in ("compute", "communication")}
        why = (
            "Optimus prints about 35x for the first system. Products in 4 bits have 29 times the rate of bf16 on A100, "
            f"but memory and NVLink are only 3 to 4 times as fast: compute gains {gain['compute']:.0f}x, "
            f"communication {gain['communication']:.0f}x"
        )
        title = "GPT-3 175B training on 1024 GPUs by generation"
        bars(title, Scale("time a sequence, B200-NVS-L = 1"), made, why).save(figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
