"""What the next logic node buys for training, if memory and network stay, and if they follow.

    python examples/explore_nodes.py [FIGURE.png]

GPT-3 175B on 1024 devices made of A100's die (826 mm², 400 W) in ever newer nodes. With DeepFlow's uniform scaling
compute grows 15-fold and the step gets only 6 times faster unless HBM and links follow (10 times); with the foundries'
own figures compute grows 6-fold, since power and SRAM scale less, and saturation comes more gently. The paper: Kundu
et al., arXiv 2407.14645.
"""

from __future__ import annotations

import sys

from rooflm.explore import Columns, Space, grid, make_task, select

TRACKS = {
    "uniform": tuple(f"uniform-{n}" for n in (14, 10, 7, 5, 3, 2, 1)),
    "foundry": ("n12", "n10", "n7", "n5", "n3", "n2", "a14", "a10"),
}
CHOICES = (("hbm2e", "nvlink3+hdr"), ("hbm4", "nvlink3+hdr"), ("hbm4", "nvlink5+gdr"))


def study(track: str) -> Columns:
    """Step time over nodes, memories and networks, with Megatron's usual split (tp 8, pp 8)."""
    task = make_task("train", "gpt3-175b", gpus=1024, batch=1024, seq=2048, recompute="selective", tp=8, pp=8)
    drams, networks = tuple(dict.fromkeys(d for d, _ in CHOICES)), tuple(dict.fromkeys(n for _, n in CHOICES))
    return grid(task, Space("a100", TRACKS[track], drams, networks))


def gains(table: Columns) -> dict[str, float]:
    """How many times faster the last node is than the first, for compute alone and for each choice."""
    out = {"compute": float(table["peak_flops"][-1] / table["peak_flops"][0])}
    for dram, network in CHOICES:
        rows = select(table, dram=dram, network=network)
        out[f"{dram}, {network}"] = float(rows["time_s"][0] / rows["time_s"][-1])
    return out


def draw_figure(table: Columns, path: str) -> None:
    """Seconds a step by node, a line for each memory and network, and one as if compute were all that takes time."""
    from rooflm.plot import Curve, Scale, Side, lines

    found = {f"{d}, {n}": select(table, dram=d, network=n) for d, n in CHOICES}
    best = list(found.values())[-1]
    ideal = best["time_s"][0] * best["peak_flops"][0] / best["peak_flops"]
    curves = [Curve(name, rows["time_s"]) for name, rows in found.items()]
    nodes = tuple(str(n).removeprefix("uniform-") + " nm" for n in best["node"])
    lines(
        "What the next logic node buys GPT-3 175B training", Side("logic node (uniform scaling)", nodes),
        Scale("seconds a step", log=True), [*curves, Curve("if compute were all", ideal, dash=True)],
        "1024 devices of A100's die and power, batch 1024, tp 8, pp 8, by memory and network",
    ).save(path)  # fmt: skip


def main(figure: str = "") -> None:
    """Print the gains of both tracks and draw the uniform one."""
    for track in TRACKS:
        table = study(track)
        print(f"{track} scaling, first to last node")
        for name, gain in gains(table).items():
            print(f"  {name:24s} {gain:5.1f} times faster")
        if figure and track == "uniform":
            draw_figure(table, figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
