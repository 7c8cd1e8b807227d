"""Error bands out of scored rows, and their coverage: python -m rooflm_fit.bands --rows ROWS.csv ...

ROWS.csv comes from `rooflm_fit.engines --rows`: each row with its prediction by a fit that never saw its group.
Training comes from --tables (predicted by the shipped constants, so these bands are in sample and widened a little),
runs under load from --load: by constants of which few are fitted to hundreds of runs. Each phase is widened
until its bands hold 80 % of the rows of models that were left out whole, every model counting alike (split conformal
prediction, Vovk et al. 2005, with models for exchangeable units). Where --aside names tables that nothing was fitted
to, as under load, both are to hold about 80 %, and the models 75 to 88 whatever the others do: a new source brings its
client and its options, which a new model does not. (Their average would not do: rates of an engine that nobody measured
lie in bands so wide that they hold all, and hid that those of models held 74 %.) What no option names stays as the file
has it.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rooflm.asked.answers.bands import FEWEST, LEVELS, asked
from rooflm.asked.answers.bands import widening as by_phase
from rooflm.kernels.constants import ANY
from rooflm.readers.devices import load_device
from rooflm.readers.engines import family_of, load_engine
from rooflm.validation.folds import held_out
from rooflm.validation.request import Request
from rooflm.validation.score import band_phase, engine_of, is_rate, score
from rooflm_fit.runs import DISTRUSTED, read

IN_SAMPLE = 1.4
"""Power by which the band of rows is widened that had a part in the fit."""
GOAL = 0.8
"""Share of rows kept aside that a phase's bands are to hold: percentiles of some groups hold fewer of others."""
RANGE = (0.75, 0.88)
"""Shares of models left out that count as held: beyond, sources aside have no say. Few rows of one source would make
the bands of all others too wide to say anything, or, where they stand on a far and wide band, too narrow."""
FOLDS = 5
"""Parts of the models, each predicted from the others."""
POWERS = tuple(1.0 + 0.05 * i for i in range(41))
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


def runs_of(request: Request) -> str:
    """The engine's row whose runs make a request's band."""
    return load_engine(engine_of(request)).runs


def from_fit(path: Path, requests: dict[str, Request]) -> list[Ratio]:
    """Ratios out of the rows that a fit wrote; in-sample ones (widened) where a row was in no fold."""
    done = []
    with path.open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            r = requests[row["id"]]
            if r.apart:
                continue
            outside = float(row["outside"])
            wide = 1.0 if np.isfinite(outside) else IN_SAMPLE
            predicted = outside if np.isfinite(outside) else float(row["inside"])
            ratio = (r.measured / predicted) ** (wide * (-1.0 if is_rate(r.metric) else 1.0))
            device = load_device(r.group[1])
            done.append(Ratio(band_phase(r.metric), runs_of(r), device.architecture, ratio, r.group))
    return done


def from_tables(paths: Iterable[Path]) -> list[Ratio]:
    """Ratios of rows as the shipped constants predict them: training, and memory."""
    requests = [r for p in paths for r in read(p) if r.task != "serve"]
    done = []
    for x in score([r for r in requests if r.task == "train" or r.metric == "memory_bytes"]):
        r = x.request
        if x.reason or not x.predicted > 0 or r.metric == "oom":
            continue
        ratio = (r.measured / x.predicted) ** (IN_SAMPLE * (-1.0 if is_rate(r.metric) else 1.0))
        device = load_device(r.group[1])
        done.append(Ratio(band_phase(r.metric), runs_of(r), device.architecture, ratio, r.group))
    return done


def from_load(paths: Iterable[Path]) -> list[Ratio]:
    """Ratios of rows measured under load as the shipped constants predict them."""
    requests = [r for p in paths for r in read(p) if r.task == "serve"]
    done = []
    for x in score(requests):
        r = x.request
        if x.reason or not x.predicted > 0 or r.metric == "oom":
            continue
        ratio = (r.measured / x.predicted) ** (-1.0 if is_rate(r.metric) else 1.0)
        architecture = load_device(r.group[1]).architecture
        done.append(Ratio(band_phase(r.metric, r.task), runs_of(r), architecture, ratio, r.group))
    return done


def tails(values: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """10th and 90th percentile of values of models, each model counting alike.

    >>> tails([("a", 1.0)] * 98 + [("b", 2.0), ("b", 3.0)])
    (1.0, 3.0)
    """
    many = Counter(model for model, _ in values)
    ordered = sorted((value, 1.0 / many[model]) for model, value in values)
    share = np.cumsum([weight for _, weight in ordered]) / len(many)
    low, high = (ordered[min(int(np.searchsorted(share, q)), len(ordered) - 1)][0] for q in (0.1, 0.9))
    return low, high


def percentiles(ratios: Sequence[Ratio], power: float = 1.0) -> list[BandRow]:
    """10th and 90th percentile, widened by a power, of every set that has enough rows, and of each phase as a whole."""
    sets: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for r in ratios:
        kin = f"{family_of(r.engine)}{ANY}"
        for engine in (r.engine, kin, ANY):
            for architecture in (r.architecture, ANY):
                sets.setdefault((r.phase, engine, architecture), []).append((r.group[0], r.ratio))
    rows = []
    for (phase, engine, architecture), values in sorted(sets.items()):
        if len(values) >= FEWEST or (engine, architecture) == (ANY, ANY):
            low, high = (end**power for end in tails(values))
            rows.append(BandRow(phase, engine, architecture, low, high, len(values)))
    return rows


def widening(ratios: Sequence[Ratio], aside: Sequence[Ratio] = ()) -> float:
    """The smallest power with which a phase's bands hold GOAL of the models left out whole; with sources aside, the one
    with which both are nearest to it (the farther of the two counts) and the models within RANGE."""
    best, least = POWERS[-1], np.inf
    for power in POWERS:
        models = coverage(ratios, power)[1]
        if not aside and models >= GOAL:
            return power
        held = float(np.mean(inside(aside, percentiles(ratios, power)))) if aside else models
        off = max(abs(models - GOAL), abs(held - GOAL)) + float(not RANGE[0] <= models <= RANGE[1])
        if off < least:
            best, least = power, off
    return best


def inside(ratios: Iterable[Ratio], bands: Iterable[BandRow]) -> list[bool]:
    """For each row that has a band among these: does it lie inside?"""
    known = {(b.phase, b.engine, b.architecture): b for b in bands}
    held = []
    for r in ratios:
        levels = zip(LEVELS, asked(r.engine, r.architecture), strict=True)
        near = ((known[r.phase, *a], by_phase(r.phase, wide)) for (_, wide), a in levels if (r.phase, *a) in known)
        held += [b.low**power <= r.ratio <= b.high**power for b, power in [*near][:1]]
    return held


def coverage(ratios: Sequence[Ratio], power: float = 1.0) -> tuple[int, float]:
    """Rows, and the mean over models of the share of its rows inside a band made from four fifths of the others."""
    models = [r.group[0] for r in ratios]
    fold = np.sum([held_out(models, share=k / FOLDS, seed=1) for k in range(1, FOLDS)], axis=0)
    hits: dict[str, list[bool]] = {}
    for k in range(FOLDS):
        bands = percentiles([r for r, f in zip(ratios, fold, strict=True) if f != k], power)
        for r in (r for r, f in zip(ratios, fold, strict=True) if f == k):
            hits.setdefault(r.group[0], []).extend(inside([r], bands))
    held = [h for h in hits.values() if h]
    return sum(map(len, held)), float(np.mean([np.mean(h) for h in held])) if held else float("nan")


HEADER = """# Error bands: 10th and 90th percentile of measured over predicted time on published rows
# (rooflm.asked.answers.bands), by python -m rooflm_fit.bands. engine "x*" is every release of x, "*" every engine.
# Inference: of predictions by fits that never saw the row's model on that machine; training and memory: in sample,
# widened by a power of 1.4. All are widened, phase by phase, until they hold about 80 % of rows of models left out
# whole (under load: of these, 75 to 88 %, and of sources that nothing was fitted to)."""


def rows_of(ratios: Sequence[Ratio], aside: Sequence[Ratio] = ()) -> list[BandRow]:
    """The bands of every phase that has rows; prints what they hold of what was left out."""
    made = []
    for phase in sorted({r.phase for r in ratios}):
        own, others = ([r for r in rows if r.phase == phase] for rows in (ratios, aside))
        power = widening(own, others)
        bands = percentiles(own, power)
        made += bands
        count, share = coverage(own, power)
        print(f"{phase:20s} {count:5d} rows, {100 * share:.0f} % of models left out in their band, power {power:.2f}")
        if others:
            print(f"{'':20s} {len(others):5d} rows of sources aside, {100 * np.mean(inside(others, bands)):.0f} %")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Make the bands of the phases asked for; print the coverage of models left out whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="rows of `rooflm_fit.engines --rows`")
    parser.add_argument("--data", type=Path, help="the table that --rows was made from")
    parser.add_argument("--tables", type=Path, nargs="*", default=[], help="tables of training and of memory")
    parser.add_argument("--load", type=Path, nargs="*", default=[], help="tables of runs under load")
    parser.add_argument("--aside", type=Path, nargs="*", default=[], help="tables under load that nothing is fitted to")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    ratios = from_tables(args.tables) + from_load(args.load)
    if args.rows:
        ratios += from_fit(args.rows, {r.id: r for r in read(args.data, DISTRUSTED) if r.task == "infer"})
    made = rows_of(ratios, from_load(args.aside))
    kept = tomllib.loads(args.out.read_text(encoding="utf-8")).get("band", []) if args.out.exists() else []
    phases = {b.phase for b in made}
    made += [BandRow(**{"engine": ANY, "architecture": ANY, **b}) for b in kept if b["phase"] not in phases]
    lines = [HEADER]
    for b in sorted(made):
        names = [f'{n} = "{getattr(b, n)}"' for n in ("phase", "engine", "architecture")]
        lines += ["", "[[band]]", *names, f"low = {b.low:.4g}", f"high = {b.high:.4g}", f"rows = {b.rows}"]
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
