"""Error bands out of scored rows, and their coverage: python -m rooflm_fit.bands --rows ROWS.csv ...

ROWS.csv comes from `rooflm_fit.engines --rows`: each row with its prediction by a fit that never saw its group.
Training comes from --tables, runs under load from --load (predicted by the shipped constants, so these bands are in
sample and widened a little).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.engines import family_of
from rooflm.errors import RooflmError
from rooflm.estimate.bands import FEWEST, LEVELS, asked
from rooflm.kernels.constants import ANY
from rooflm.validation.folds import held_out
from rooflm.validation.readers.distrust import distrusted
from rooflm.validation.readers.tables import read_rows
from rooflm.validation.request import Request, ServeRequest
from rooflm.validation.score import band_phase, engine_of, is_rate, score, trainer_of

IN_SAMPLE = 1.4
"""Power by which the band of rows is widened that had a part in the fit."""
GOAL = 0.8
"""Share of rows kept aside that a phase's bands are to hold: percentiles of some groups hold fewer of others."""
POWERS = tuple(1.0 + 0.05 * i for i in range(31))
"""Powers by which a phase's bands may be widened to reach it."""


class Ratio(NamedTuple):
    """One row: what it is like, measured over predicted time, and its group."""

    phase: str
    engine: str
    architecture: str
    ratio: float
    group: tuple[str, str]


class BandRow(NamedTuple):
    """A row of bands.toml."""

    phase: str
    engine: str
    architecture: str
    low: float
    high: float
    rows: int


def from_fit(path: Path, requests: dict[str, Request]) -> list[Ratio]:
    """Ratios out of the rows that a fit wrote; in-sample ones (widened) where a row was in no fold."""
    done = []
    with path.open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            r = requests[row["id"]]
            if distrusted(r):
                continue
            outside = float(row["outside"])
            wide = 1.0 if np.isfinite(outside) else IN_SAMPLE
            predicted = outside if np.isfinite(outside) else float(row["inside"])
            ratio = (r.measured / predicted) ** (wide * (-1.0 if is_rate(r.metric) else 1.0))
            device = catalogue.load_device(r.group[1])
            done.append(Ratio(band_phase(r.metric), engine_of(r), device.architecture, ratio, r.group))
    return done


def from_tables(paths: Iterable[Path]) -> list[Ratio]:
    """Ratios of rows as the shipped constants predict them: training, and memory."""
    requests = [r for p in paths for r in read_rows(p) if isinstance(r, Request)]
    done = []
    for x in score([r for r in requests if r.task == "train" or r.metric == "memory_bytes"]):
        r = x.request
        if x.reason or not x.predicted > 0 or r.metric == "oom":
            continue
        ratio = (r.measured / x.predicted) ** (IN_SAMPLE * (-1.0 if is_rate(r.metric) else 1.0))
        try:
            engine = engine_of(r) if r.task == "infer" else trainer_of(r)
        except RooflmError:
            continue
        device = catalogue.load_device(r.group[1])
        done.append(Ratio(band_phase(r.metric), engine, device.architecture, ratio, r.group))
    return done


def from_load(paths: Iterable[Path]) -> list[Ratio]:
    """Ratios of rows measured under load as the shipped constants predict them."""
    requests = [r for p in paths for r in read_rows(p) if isinstance(r, ServeRequest)]
    done = []
    for x in score(requests):
        if x.reason or not x.predicted > 0:
            continue
        r = x.request
        ratio = (r.measured / x.predicted) ** (IN_SAMPLE * (-1.0 if is_rate(r.metric) else 1.0))
        architecture = catalogue.load_device(r.group[1]).architecture
        done.append(Ratio(band_phase(r.metric, r.task), engine_of(r), architecture, ratio, r.group))
    return done


def percentiles(ratios: Sequence[Ratio], power: float = 1.0) -> list[BandRow]:
    """10th and 90th percentile, widened by a power, of every set that has enough rows, and of each phase as a whole."""
    sets: dict[tuple[str, str, str], list[float]] = {}
    for r in ratios:
        kin = f"{family_of(r.engine)}{ANY}"
        for engine in (r.engine, kin, ANY):
            for architecture in (r.architecture, ANY):
                sets.setdefault((r.phase, engine, architecture), []).append(r.ratio)
    rows = []
    for (phase, engine, architecture), values in sorted(sets.items()):
        if len(values) >= FEWEST or (engine, architecture) == (ANY, ANY):
            low, high = np.percentile(values, (10, 90)) ** power
            rows.append(BandRow(phase, engine, architecture, float(low), float(high), len(values)))
    return rows


def widening(ratios: Sequence[Ratio]) -> float:
    """The smallest of POWERS with which a phase's bands hold GOAL of the rows kept aside."""
    return next((p for p in POWERS if coverage(ratios, p)[1] >= GOAL), POWERS[-1])


def coverage(ratios: Sequence[Ratio], power: float = 1.0) -> tuple[int, float]:
    """Rows, and the share of them inside a band made from the other two thirds of the groups."""
    first = held_out([r.group[0] for r in ratios], [r.group[1] for r in ratios], share=1 / 3, seed=1)
    second = held_out([r.group[0] for r in ratios], [r.group[1] for r in ratios], share=2 / 3, seed=1)
    fold = np.where(first, 0, np.where(second, 1, 2))
    hits: list[bool] = []
    for k in range(3):
        rest = percentiles([r for r, f in zip(ratios, fold, strict=True) if f != k], power)
        known = {(b.phase, b.engine, b.architecture): b for b in rest}
        for r in (r for r, f in zip(ratios, fold, strict=True) if f == k):
            levels = zip(LEVELS, asked(r.engine, r.architecture), strict=True)
            found = next(((known[r.phase, *a], wide) for (_, wide), a in levels if (r.phase, *a) in known), None)
            if found:
                hits.append(found[0].low ** found[1] <= r.ratio <= found[0].high ** found[1])
    return len(hits), float(np.mean(hits)) if hits else float("nan")


HEADER = """# Error bands: 10th and 90th percentile of measured over predicted time on published rows
# (rooflm.estimate.bands), by python -m rooflm_fit.bands. engine "x*" is every release of x, "*" every engine.
# Inference: of predictions by fits that never saw the row's model on that machine; training, memory, load: in sample,
# widened by a power of 1.4. Rows: of groups kept aside."""


def main(argv: Sequence[str] | None = None) -> None:
    """Make the file; print the coverage on rows kept aside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the table that --rows was made from")
    parser.add_argument("--tables", type=Path, nargs="*", default=[])
    parser.add_argument("--load", type=Path, nargs="*", default=[], help="tables of runs under load")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    requests = {r.id: r for r in read_rows(args.data) if isinstance(r, Request)}
    ratios = from_fit(args.rows, requests) + from_tables(args.tables) + from_load(args.load)
    lines = [HEADER]
    for phase in sorted({r.phase for r in ratios}):
        own = [r for r in ratios if r.phase == phase]
        power = widening(own)
        for b in percentiles(own, power):
            names = [f'{n} = "{getattr(b, n)}"' for n in ("phase", "engine", "architecture")]
            lines += ["", "[[band]]", *names, f"low = {b.low:.4g}", f"high = {b.high:.4g}", f"rows = {b.rows}"]
        rows, share = coverage(own, power)
        print(f"{phase:8s} {rows:5d} rows, {100 * share:.0f} % of those kept aside in their band, power {power:.2f}")
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
