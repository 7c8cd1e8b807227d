"""What `rooflm explore generations` shows: the ladder, the worth of each change, the range of readings, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rooflm.plots.bars import Bar, bars
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import text
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


def ladder_blocks(ladder: Ladder, table: Columns, worth: Mapping[str, Mapping[str, float]]) -> list[Block]:
    """The ladder, then what each change from its first rung to its last is worth."""
    what = f"{ladder.model} on {ladder.gpus} GPUs, tp {ladder.tp}, pp {ladder.pp}, {ladder.batch} sequences a step"
    rows: list[Sequence[str]] = [("system", "products", "a sequence", "calibrated", "flat", "ideal", "fits")]
    for i, name in enumerate(table["system"]):
        times = [f"{table[f'{mode}_times'][i]:.1f}x" for mode in MODES]
        fits = "yes" if table["fits"][i] else "no"
        rows.append((str(name), str(table["products"][i]), text(float(table["calibrated_s"][i]), "s"), *times, fits))
    out: list[Block] = [Say(what, "title"), Say("times faster a sequence than the first"), BLANK,
           Table(rows, "llrrrrl", head=True, indent=0)]  # fmt: skip
    first, last = ends()
    heads = (*CHANGES, "efficiency", "all")
    worths: list[Sequence[str]] = [("worth", *heads)]
    for mode, factors in worth.items():
        whole = float(np.prod([*factors.values()]))
        worths.append((mode, *(f"{v:.2f}" for v in (factors.get(c, 1.0) for c in heads[:-1])), f"{whole:.1f}"))
    told = f"What each change from {first} to {last} is worth (mean over their orders):"
    return [*out, BLANK, Table(worths, "l" + "r" * len(heads), told, head=True, indent=0),
            Say(f"no rate of a device grows by more than {most_by_device():.1f}")]  # fmt: skip


def reading_blocks(table: Columns) -> list[Block]:
    """Least, median and most times faster by formats and split, over batches and modes."""
    rows: list[Sequence[str]] = [("products", "split", "least", "median", "most")]
    for formats in FORMATS:
        for split in SPLITS:
            times = table["times"][(table["formats"] == formats) & (table["split"] == split)]
            rows.append((formats, split, *(f"{f(times):.1f}x" for f in (np.min, np.median, np.max))))
    first, last = ends()
    few, most = (f"{f(table['gpus'])}" for f in (np.min, np.max))
    told = f"times faster a sequence from {first} to {last}, over {few} to {most} GPUs,"
    over = "a step's sequences as stated or one a GPU, and efficiency (calibrated, flat, ideal)"
    return [Say(told), Say(over), BLANK, Table(rows, "llrrr", head=True)]


def ladder_picture(ladder: Ladder) -> Picture:
    """Time a sequence over that of the last rung, by segment."""
    found = ladder.segments()
    last = ends()[1]
    unit = sum(found[last].values())
    made = [Bar(f"{name}, {rungs()[name]['dtype']}", {k: v / unit for k, v in parts.items()})
            for name, parts in found.items()]  # fmt: skip
    return bars(f"{ladder.model} training on {ladder.gpus} GPUs", Scale(f"time a sequence, {last} = 1"), made,
                "calibrated kernels; the split and the micro-batches as stated")  # fmt: skip
