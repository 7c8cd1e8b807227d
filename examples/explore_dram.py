"""Inference latency over memory technology, and where faster memory stops helping.

    python examples/explore_dram.py [FIGURE.png]

Llama-2 13B, one sequence, on H100's die in N5: each memory generation fills the same edge of the die (GDDR and LPDDR as
many chips as the sites allow). Then the memory's rate is scaled freely (with energy a bit to match): with one device
the L2 cache becomes the bound, with eight the network does. The paper: Kundu et al., arXiv 2407.14645.
"""

from __future__ import annotations

import sys

import numpy as np

from rooflm.explore import Columns, Space, grid, make_task, stops_helping

DRAMS = ("gddr6", "gddr6x", "gddr7", "lpddr5x", "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4")
RATES = tuple(float(x) for x in np.geomspace(0.1e12, 6.4e12, 25))
"""B/s of a stack."""
SCALE = (("technology.dram.bandwidth", RATES), ("technology.dram.energy", (2e-13,)))


def generations() -> Columns:
    """Time per token with each memory; weights in 4 bits, so that the small memories hold them."""
    task = make_task("infer", "llama-2-13b", prompt=200, output=200, metric="tpot", quant="w4a16kv16")
    return grid(task, Space("h100", ("n5",), DRAMS, ("nvlink4+ndr",), (("technology.budget.sites", (8,)),)))


def scaled(gpus: int) -> Columns:
    """Time per token over the memory's rate, on one device or split over several (tp)."""
    task = make_task("infer", "llama-2-13b", gpus=gpus, tp=gpus, prompt=200, output=200, metric="tpot")
    return grid(task, Space("h100", ("n5",), ("hbm3",), ("nvlink4+ndr",), SCALE))


def main(figure: str = "") -> None:
    """Print both tables and draw the second."""
    table = generations()
    print("memory    B/s a device   time a token  bound by")
    for i in np.argsort(table["dram_bandwidth"]):
        time = f"{1e3 * table['time_s'][i]:9.2f} ms" if table["fits"][i] else "  does not fit"
        print(
            f"{table['dram'][i]:8s} {table['dram_bandwidth'][i] / 1e12:9.2f} TB/s {time:>14s}  {table['bottleneck'][i]}"
        )
    sizes = (1, 2, 4, 8)
    tables = {n: scaled(n) for n in sizes}
    for n, t in tables.items():
        stop = stops_helping(t["dram_bandwidth"], t["time_s"])
        print(f"{n} device{'s' * (n > 1)}: faster memory stops helping at {t['dram_bandwidth'][stop] / 1e12:.1f} TB/s, "
              f"{1e3 * t['time_s'][stop]:.2f} ms; then {t['bottleneck'][-1]}")  # fmt: skip
    if figure:
        from rooflm.plot import Curve, Scale, Side, lines

        x = tuple(float(v) / 1e12 for v in tables[1]["dram_bandwidth"])
        curves = [Curve(f"{n} device{'s' * (n > 1)}", 1e3 * t["time_s"]) for n, t in tables.items()]
        named = [(float(b) / 1e12, str(n)) for n, b in zip(table["dram"], table["dram_bandwidth"], strict=True)]
        lines(
            "Where faster memory stops helping a token of Llama-2 13B", Side("memory bandwidth of a device (TB/s)", x),
            Scale("time per token (ms)", log=True), curves, "H100's die in N5, one sequence, weights in 16 bits",
            marks=named,
        ).save(figure)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
