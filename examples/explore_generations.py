"""GPT-3 175B training from A100 with HDR InfiniBand to B200 with an NVLink switch: where "about 35 times" comes from.

    python examples/explore_generations.py [FIGURE.png]

One stated configuration (1024 GPUs, TP 8, PP 8, one sequence a GPU and step, each machine's narrowest format in its
products, four times the batch on the last rung) in three modes, what each change is worth, and the range over every
reading of what the paper leaves open. The paper: Kundu et al., arXiv 2407.14645, which prints about 35. The same
configuration with calibrated kernels, drawn by part of the step: training_generations.py.
"""

from __future__ import annotations

import sys

import numpy as np
from studies.generations import (
    CHANGES,
    FORMATS,
    GPUS,
    PUBLISHED,
    SPLITS,
    ladder,
    lost_outside,
    most_by_device,
    readings,
    worth,
)
from studies.training import GENERATIONS, MODES

from rooflm.explore import Columns

WAYS = (*((mode, mode, "own") for mode in MODES), ("one width", "ideal", "one width"))
"""Name, mode and formats of the four ladders shown; the last counts every byte and product in the narrow format."""


def study() -> dict[str, dict[str, float]]:
    """Times faster than the first rung by rung, for each way."""
    return {name: ladder(mode, formats) for name, mode, formats in WAYS}


def ranges(table: Columns) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Least, median and most times faster by formats and split, over GPUs, batches and modes."""
    out = {}
    for formats in FORMATS:
        for split in SPLITS:
            times = table["times"][(table["formats"] == formats) & (table["split"] == split)]
            out[formats, split] = (float(np.min(times)), float(np.median(times)), float(np.max(times)))
    return out


def main(figure: str = "", gpus: tuple[int, ...] = GPUS) -> None:
    """Print the ladders, the worth of each change and the ranges, and draw the ladders."""
    found = study()
    print(f"{'times faster':14s}" + "".join(f"{name:>12s}" for name in found))
    for rung in GENERATIONS:
        print(f"{rung:14s}" + "".join(f"{times[rung]:12.1f}" for times in found.values()))
    print(f"\n{'worth':12s}" + "".join(f"{c:>11s}" for c in (*CHANGES, "efficiency")))
    for mode in MODES:
        factors = worth(mode)
        print(f"{mode:12s}" + "".join(f"{factors.get(c, 1.0):11.2f}" for c in (*CHANGES, "efficiency")))
    print(f"\n{'formats':11s}{'split':14s}{'least':>8s}{'median':>8s}{'most':>8s}   over GPUs, batch and mode")
    for (formats, split), (least, middle, most) in ranges(readings(gpus)).items():
        print(f"{formats:11s}{split:14s}{least:8.1f}{middle:8.1f}{most:8.1f}")
    print(f"\nNo rate of the device grew by more than {most_by_device():.1f}: for {PUBLISHED:.0f} times A100 must lose "
          f"{100 * lost_outside():.0f} %\nof its step outside the device, and B200 nothing.")  # fmt: skip
    if figure:
        from rooflm.plot import Curve, Scale, Side, lines

        curves = [Curve(name, np.array(list(times.values()))) for name, times in found.items()]
        printed = Curve("printed for the last", np.array([PUBLISHED]), x=(list(GENERATIONS)[-1],), dots=True)
        lines(
            "Times faster than A100, GPT-3 175B training on 1024 GPUs", Side("system", tuple(GENERATIONS)),
            Scale("times faster a sequence", log=True), [*curves, printed],
            "rates of the kernels: calibrated, flat shares of the peak, or ideal; one width: every product narrow",
        ).save(figure)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
