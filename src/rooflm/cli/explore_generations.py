"""What `rooflm explore generations` shows: the ladder, the worth of each change, the range of readings, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rooflm.cli.render import columns, seconds
from rooflm.plots.pictures import Bars, Scale
from rooflm.technology.explore import Columns
from rooflm.technology.generations import CHANGES, FORMATS, MODES, SPLITS, Ladder, ends, most_by_device, rungs


def ladder_table(ladder: Ladder) -> Columns:
    """One row a rung: its products' type, seconds a sequence and times faster than the first by mode, and whether the
    stated configuration fits."""
    found: dict[str, list[object]] = {"system": list(rungs()), "products": [r["dtype"] for r in rungs().values()]}
    for mode in MODES:
        own = [ladder.rung(name, mode)[0] for name in rungs()]
        found |= {f"{mode}_s": list(own), f"{mode}_times": [own[0] / s for s in own]}
    found["fits"] = [bool(ladder.estimate(name).fits) for name in rungs()]
    return {k: np.array(v) for k, v in found.items()}


def ladder_lines(ladder: Ladder, table: Columns, worth: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The ladder, then what each change from its first rung to its last is worth."""
    what = f"{ladder.model} on {ladder.gpus} GPUs, tp {ladder.tp}, pp {ladder.pp}, {ladder.batch} sequences a step"
    rows: list[Sequence[str]] = [("system", "products", "a sequence", "calibrated", "flat", "ideal", "fits")]
    for i, name in enumerate(table["system"]):
        times = [f"{table[f'{mode}_times'][i]:.1f}x" for mode in MODES]
        fits = "yes" if table["fits"][i] else "no"
        rows.append((str(name), str(table["products"][i]), seconds(table["calibrated_s"][i]), *times, fits))
    out = [what, "times faster a sequence than the first", "", *columns(rows, "llrrrrl", indent=0)]
    first, last = ends()
    heads = (*CHANGES, "efficiency", "all")
    worths: list[Sequence[str]] = [("worth", *heads)]
    for mode, factors in worth.items():
        whole = float(np.prod([*factors.values()]))
        worths.append((mode, *(f"{v:.2f}" for v in (factors.get(c, 1.0) for c in heads[:-1])), f"{whole:.1f}"))
    told = (
        f"What each change from {first} to {last} is worth (mean over their orders):",
        f"no rate of a device grows by more than {most_by_device():.1f}",
    )
    return [*out, "", told[0], *columns(worths, "l" + "r" * len(heads), indent=0), told[1]]


def reading_lines(table: Columns) -> list[str]:
    """Least, median and most times faster by formats and split, over batches and modes."""
    rows: list[Sequence[str]] = [("products", "split", "least", "median", "most")]
    for formats in FORMATS:
        for split in SPLITS:
            times = table["times"][(table["formats"] == formats) & (table["split"] == split)]
            rows.append((formats, split, *(f"{f(times):.1f}x" for f in (np.min, np.median, np.max))))
    first, last = ends()
    return [f"times faster a sequence from {first} to {last}, over batch and efficiency", *columns(rows, "llrrr")]


def ladder_picture(ladder: Ladder, mode: str = "calibrated") -> Bars:
    """Seconds a sequence over those of the last rung, by segment."""
    found = ladder.segments(mode)
    unit = sum(found[ends()[1]].values())
    labels = tuple(f"{name}\n{rungs()[name]['dtype']}" for name in found)
    parts = {p: np.array([v[p] / unit for v in found.values()]) for p in ("compute", "communication", "other")}
    return Bars(f"{ladder.model} training on {ladder.gpus} GPUs", labels,
                Scale(f"time a sequence, {ends()[1]} = 1"), parts)  # fmt: skip
