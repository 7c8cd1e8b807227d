"""GPT-3 175B training from A100 with HDR InfiniBand to B200 with an NVLink switch: about 35 times faster.

    python examples/explore_generations.py [FIGURE.png]

8192 GPUs; A100 with Megatron's split and a batch of 1024 sequences; later machines with their best split, the number
format that each brought (bf16, fp8, fp4), and for the last rows (L) a batch of 4096. Flat shares of the datasheet, the
same for all: 0.6 of compute, 0.8 of memory, 0.8 of the network. The paper (Kundu et al., arXiv 2407.14645) leaves its
configuration open, so ours is one that gives its figure, not a replay of it.
"""

from __future__ import annotations

import sys

import numpy as np

from rooflm.catalogue import load_cluster
from rooflm.explore import CAUSES, make_task, on_cluster

GPUS, BATCH, LARGE = 8192, 1024, 4096
SHARES = "0.6,0.8,0.8"
STEPS = (
    ("A100 HDR", "dgx-a100", "bf16", BATCH),
    ("H100 NDR", "dgx-h100", "fp8", BATCH),
    ("H100 NVS L", "dgx-h100-nvs", "fp8", LARGE),
    ("B200 NDR", "dgx-b200", "nvfp4", BATCH),
    ("B200 NDR L", "dgx-b200", "nvfp4", LARGE),
    ("B200 NVS L", "b200-nvs", "nvfp4", LARGE),
)


def study() -> list[tuple[str, float, dict[str, float]]]:
    """Name, seconds a thousand sequences, and those seconds by cause."""
    found = []
    for i, (name, cluster, dtype, batch) in enumerate(STEPS):
        split = {"tp": 8, "pp": 8} if i == 0 else {}
        task = make_task("train", "gpt3-175b", gpus=GPUS, batch=batch, seq=2048, recompute="selective", dtype=dtype,
                         efficiency=SHARES, tp_most=32, **split)  # fmt: skip
        out, _ = on_cluster(task, load_cluster(cluster))
        found.append((name, 1000 * float(out.time) / batch, {c: 1000 * v / batch for c, v in out.causes.items()}))
    return found


def main(figure: str = "") -> None:
    """Print the ladder and draw it."""
    found = study()
    print("machine       s per 1000 sequences   times faster   largest cause")
    for name, seconds, causes in found:
        print(f"{name:12s} {seconds:15.3f} {found[0][1] / seconds:20.1f}   {max(causes, key=causes.__getitem__)}")
    if figure:
        from rooflm.pictures import Bars, Scale
        from rooflm.plots import draw

        parts = {c: np.array([causes[c] for _, _, causes in found]) for c in CAUSES}
        shown = {c: v for c, v in parts.items() if np.any(v > 1e-3 * found[-1][1])}
        names = tuple(f"{n}: {found[0][1] / s:.1f}x" for n, s, _ in found)
        title = f"GPT-3 175B training on {GPUS} GPUs"
        draw(Bars(title, names, Scale("seconds per 1000 sequences"), shown), figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
