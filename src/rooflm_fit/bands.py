"""Error bands out of scored rows, and their coverage: python -m rooflm_fit.bands --rows ROWS.csv ...

ROWS.csv comes from `rooflm_fit.engines --rows`: each row with its prediction by a fit that never saw its group.
Training comes from --tables (predicted by the shipped constants, so these bands are in sample and widened a little).
Each phase is widened until its bands hold 80 % of the rows of models that were left out whole, every model counting
alike (split conformal prediction, Vovk et al. 2005, with models for exchangeable units).

Runs under load come from --load (by constants of which few are fitted to hundreds of runs) and --aside (sources that
nothing was fitted to), and there a source is the unit: a user's run is of a new source with a client and options
of its own, and sources have less in common than the models of one source (error of a first token within 23 % for
eight of ten rows of the campaign that constants are fitted to, 41 % on the same engines and cards elsewhere). So every
source counts alike, and a phase's power is the one with which sources left out in turn hold most nearly 80 %, and
models left out whole 75 to 88 whatever the sources do. What no option names stays as the file has it.
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
"""Shares of the rows of models left out that count as held: beyond, sources aside have no say."""
SOURCES = 1
"""Sources that the whole counts as beside a set's own under load (the logarithms of both bands' ends, weighed so): what
sources differ by is not seen in one or two of them, and with none the bands of the engine whose few sources are nearly
alike held 69 % of its models left out. More than one widens the bands of models left out and holds no more sources."""
LOAD = " under load"
"""End of the names of phases under load."""
FOLDS = 5
"""Parts of the models, each predicted from the others."""
POWERS = tuple(0.8 + 0.05 * i for i in range(45))
"""Powers by which a phase's bands may be widened to reach it; below 1 only where sources left out have a say."""


class Ratio(NamedTuple):
    """One row: what it is like, measured over predicted time, its group, and its source under load."""

    phase: str
    engine: str
    architecture: str
    ratio: float
    group: tuple[str, str]
    source: str = ""

    @property
    def unit(self) -> str:
        """What counts alike in its phase: sources under load, else models."""
        return self.source if self.phase.endswith(LOAD) else self.group[0]


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
        done.append(Ratio(band_phase(r.metric, r.task), runs_of(r), architecture, ratio, r.group, r.source))
    return done


def tails(values: Sequence[tuple[str, float]]) -> tuple[float, float]:
    """10th and 90th percentile of values of units, each unit counting alike.

    >>> tails([("a", 1.0)] * 98 + [("b", 2.0), ("b", 3.0)])
    (1.0, 3.0)
    """
    many = Counter(unit for unit, _ in values)
    ordered = sorted((value, 1.0 / many[unit]) for unit, value in values)
    share = np.cumsum([weight for _, weight in ordered]) / len(many)
    low, high = (ordered[min(int(np.searchsorted(share, q)), len(ordered) - 1)][0] for q in (0.1, 0.9))
    return low, high


def percentiles(ratios: Sequence[Ratio], power: float = 1.0) -> list[BandRow]:
    """10th and 90th percentile, widened by a power, of every set that has enough rows, and of each phase as a whole.
    Under load a set is of any generation: errors there do not grow with that distance."""
    sets: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for r in ratios:
        loaded = r.phase.endswith(LOAD)
        for engine in (r.engine, f"{family_of(r.engine)}{ANY}", ANY):
            for architecture in (ANY,) if loaded else (r.architecture, ANY):
                sets.setdefault((r.phase, engine, architecture), []).append((r.unit, r.ratio))
    rows = []
    for (phase, engine, architecture), values in sorted(sets.items()):
        if len(values) >= FEWEST or (engine, architecture) == (ANY, ANY):
            low, high = tails(values)
            if phase.endswith(LOAD):
                sources = len({unit for unit, _ in values})
                low, high = between(tails(sets[phase, ANY, ANY]), (low, high), sources / (sources + SOURCES))
            rows.append(BandRow(phase, engine, architecture, low**power, high**power, len(values)))
    return rows


def between(whole: tuple[float, float], own: tuple[float, float], share: float) -> tuple[float, float]:
    """A band between two, with that share of the second (geometric means of the ends).

    >>> between((0.25, 4.0), (1.0, 1.0), 0.5)
    (0.5, 2.0)
    """
    low, high = (a ** (1.0 - share) * b**share for a, b in zip(whole, own, strict=True))
    return low, high


def inside(ratios: Iterable[Ratio], bands: Iterable[BandRow], power: float = 1.0) -> list[bool]:
    """For each row that has a band among these, widened by a power: does it lie inside?"""
    known = {(b.phase, b.engine, b.architecture): b for b in bands}
    held = []
    for r in ratios:
        levels = zip(LEVELS, asked(r.engine, r.architecture), strict=True)
        near = ((known[r.phase, *a], by_phase(r.phase, wide)) for (_, wide), a in levels if (r.phase, *a) in known)
        for b, wide in [*near][:1]:
            whole, most = known[r.phase, ANY, ANY], by_phase(r.phase, LEVELS[-1][1])
            low, high = max(b.low**wide, whole.low**most), min(b.high**wide, whole.high**most)
            held.append(low**power <= r.ratio <= high**power)
    return held


Parts = Sequence[tuple[Sequence[Ratio], Sequence[BandRow]]]
"""Rows left out, and the bands made of the others."""


def models_out(ratios: Sequence[Ratio], aside: Sequence[Ratio] = ()) -> Parts:
    """A fifth of the models at a time, with bands of all others'."""
    every = [*ratios, *aside]
    models = [r.group[0] for r in every]
    fold = np.sum([held_out(models, share=k / FOLDS, seed=1) for k in range(1, FOLDS)], axis=0)
    rest = [percentiles([r for r, f in zip(every, fold, strict=True) if f != k]) for k in range(FOLDS)]
    return [([r for r, f in zip(ratios, fold, strict=False) if f == k], made) for k, made in enumerate(rest)]


def sources_out(ratios: Sequence[Ratio], aside: Sequence[Ratio]) -> Parts:
    """One source aside at a time, with bands of all others'."""
    every = [*ratios, *aside]
    names = sorted({r.source for r in aside})
    return [([r for r in aside if r.source == n], percentiles([r for r in every if r.source != n])) for n in names]


def coverage(parts: Parts, power: float = 1.0) -> tuple[int, float, float]:
    """Rows that have a band, the share of them inside, and the mean over models of that share."""
    hits: dict[str, list[bool]] = {}
    for left, bands in parts:
        for r in left:
            hits.setdefault(r.group[0], []).extend(inside([r], bands, power))
    held = [h for h in hits.values() if h]
    rows = [one for h in held for one in h]
    return len(rows), float(np.mean(rows or np.nan)), float(np.mean([np.mean(h) for h in held] or np.nan))


def widening(models: Parts, sources: Parts = ()) -> float:
    """The smallest power with which a phase's bands hold GOAL of the models left out whole; with sources left out, the
    one with which their rows are nearest to it, while rows of models left out are within RANGE."""
    best, least = POWERS[-1], np.inf
    for power in (p for p in POWERS if p > 0.99 or sources):
        _, rows, held = coverage(models, power)
        if not sources and held >= GOAL:
            return power
        off = abs((coverage(sources, power)[1] if sources else held) - GOAL) + float(not RANGE[0] <= rows <= RANGE[1])
        if off < least:
            best, least = power, off
    return best


HEADER = """# Error bands: 10th and 90th percentile of measured over predicted time on published rows
# (rooflm.asked.answers.bands), by python -m rooflm_fit.bands. engine "x*" is every release of x, "*" every engine.
# Inference: of predictions by fits that never saw the row's model on that machine; training and memory: in sample,
# widened by a power of 1.4. All are widened, phase by phase, until they hold about 80 % of rows of models left out
# whole. Under load every source counts alike, and those that nothing was fitted to, left out in turn, hold that too."""


def rows_of(ratios: Sequence[Ratio], aside: Sequence[Ratio] = (), by_source: bool = False) -> list[BandRow]:
    """The bands of every phase that has rows; prints what they hold of what was left out."""
    made = []
    for phase in sorted({r.phase for r in ratios}):
        own, others = ([r for r in rows if r.phase == phase] for rows in (ratios, aside))
        models, sources = models_out(own, others), sources_out(own, others)
        power = widening(models, sources)
        made += percentiles([*own, *others], power)
        count, rows, share = coverage(models, power)
        print(f"{phase:20s} {count:5d} rows of models left out, {100 * rows:.0f} % in their band "
              f"({100 * share:.0f} % with models alike), power {power:.2f}")  # fmt: skip
        if others:
            count, share, _ = coverage(sources, power)
            print(f"{'':20s} {count:5d} rows of sources left out in turn, {100 * share:.0f} %")
        for part in sources if by_source else ():
            count, share, _ = coverage([part], power)
            print(f"{'':20s} {count:5d} rows of {part[0][0].source}, {100 * share:.0f} %")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Make the bands of the phases asked for; print the coverage of models left out whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="rows of `rooflm_fit.engines --rows`")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="the tables that --rows was made from")
    parser.add_argument("--tables", type=Path, nargs="*", default=[], help="tables of training and of memory")
    parser.add_argument("--load", type=Path, nargs="*", default=[], help="tables of runs under load")
    parser.add_argument("--aside", type=Path, nargs="*", default=[], help="tables under load that nothing is fitted to")
    parser.add_argument("--by-source", action="store_true", help="print what each source aside holds, left out")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    ratios = from_tables(args.tables) + from_load(args.load)
    if args.rows:
        requests = [r for path in args.data for r in read(path, DISTRUSTED) if r.task == "infer"]
        ratios += from_fit(args.rows, {r.id: r for r in requests})
    made = rows_of(ratios, from_load(args.aside), args.by_source)
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
