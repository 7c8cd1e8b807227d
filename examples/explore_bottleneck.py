"""Where the time of GPT-3 175B training goes as the logic node shrinks: compute, then memory, then the network.

    python examples/explore_bottleneck.py [FIGURE.png]

A100's die and TDP in DeepFlow's nodes, HBM2E and NVLink 3 with HDR InfiniBand kept; tp 8, pp 8, dp 16. The last two
rows let the memory, then the network follow. The paper: Kundu et al., arXiv 2407.14645.
"""

from __future__ import annotations

import sys

import numpy as np

from rooflm.explore import CAUSES, Columns, Space, grid, make_task, shares

SHOWN = ("compute", "dram", "network", "schedule", "other")
"""Causes that show: the caches never bound this task."""
NODES = tuple(f"uniform-{n}" for n in (14, 10, 7, 5, 3, 2, 1))


def study() -> Columns:
    """Seconds by cause for each node, then for the last node with HBM4, and with HBM4 and faster links."""
    task = make_task("train", "gpt3-175b", gpus=1024, batch=1024, seq=2048, recompute="selective", tp=8, pp=8)
    spaces = (
        Space("a100", NODES, ("hbm2e",), ("nvlink3+hdr",)),
        Space("a100", NODES[-1:], ("hbm4",), ("nvlink3+hdr",)),
        Space("a100", NODES[-1:], ("hbm4",), ("nvlink5+gdr",)),
    )
    tables = [grid(task, s) for s in spaces]
    return {k: np.concatenate([t[k] for t in tables]) for k in tables[0]}


def labels(table: Columns) -> list[str]:
    """A name for each row."""
    last = len(NODES) - 1
    nodes = [str(n).removeprefix("uniform-") + " nm" for n in table["node"][: last + 1]]
    return [*nodes, "1 nm, HBM4", "1 nm, HBM4, NVLink 5 + GDR"]


def main(figure: str = "") -> None:
    """Print the shares and draw them."""
    table = study()
    part = shares(table)
    print(f"{'per cent':26s}" + "".join(f"{c:>9s}" for c in SHOWN) + "  bottleneck")
    for i, label in enumerate(labels(table)):
        print(f"{label:26s}" + "".join(f"{100 * part[c][i]:9.0f}" for c in SHOWN) + f"  {table['bottleneck'][i]}")
    if figure:
        from rooflm.plot import Bar, Scale, bars

        causes = [c for c in CAUSES if np.any(part[c] > 1e-3)]
        made = [Bar(label, {c: 100 * part[c][i] for c in causes}) for i, label in enumerate(labels(table))]
        bars(
            "Where the step of GPT-3 175B goes as the logic node shrinks",
            Scale("share of the step (%)", percent=True), made,
            "1024 devices of A100's die and power, batch 1024, tp 8, pp 8; HBM2E and NVLink 3 with HDR unless said",
        ).save(figure)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
