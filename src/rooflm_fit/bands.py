"""Error bands out of scored rows, and what they hold of what is left out: python -m rooflm_fit.bands --data TABLE ...

A band is the 10th and 90th percentile of measured over predicted time, of all rows of a phase that are as far from the
runs that constants were fitted to (`bands.DISTANCES`). The source is the unit: a user's run is of a new source, and
sources have less in common than the rows of one, so each counts alike (pooled distributions of two-layer data: Dunn,
Wasserman and Ramdas 2018). A farther band is never narrower than a nearer one, and every band holds the prediction.

--rows: of `rooflm_fit.engines`, each with its prediction by a fit that never saw its group. --load: of
`rooflm_fit.serving`, with its model left out whole. What else the tables of --data and those of the package hold is
predicted by the shipped constants, of which few are fitted to many runs. Rows that assume something count as far.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rooflm.asked.answers.bands import DISTANCES, Known, distance
from rooflm.readers.devices import load_device
from rooflm.readers.engines import family_of, load_engine
from rooflm.sweep.files import write_text
from rooflm.validation.request import Request
from rooflm.validation.score import band_phase, engine_of, is_rate, score
from rooflm.validation.table import published_tables
from rooflm_fit.pages import markdown, rewrite
from rooflm_fit.runs import outcomes
from rooflm_fit.training import SOURCES

TAILS = (0.1, 0.9)
"""Shares of the rows, every source alike, below the ends of a band."""
CAMPAIGN = "aic"
"""Source of the runs under load that are fitted (`runs.cases`): read from --load alone."""
MOST = 60
"""Rows under load of a source that are predicted, by a stable hash: simulations take long, and sources count alike."""


class Ratio(NamedTuple):
    """One row: measured over predicted time, and what it is like."""

    phase: str
    engine: str
    generation: str
    ratio: float
    model: str
    card: str
    source: str
    assumed: bool = False

    def distance(self, known: Known) -> str:
        """How far it lies from the runs that were fitted."""
        return DISTANCES[-1] if self.assumed else distance(self.engine, self.generation, known)


class BandRow(NamedTuple):
    """A row of bands.toml."""

    phase: str
    distance: str
    low: float
    high: float
    rows: int
    sources: int


def ratio_of(r: Request, predicted: float, assumed: bool = False) -> Ratio:
    """The ratio of a row to its prediction."""
    phase = band_phase(r.metric, r.task).replace("request", "decode")
    over = (r.measured / predicted) ** (-1.0 if is_rate(r.metric) else 1.0)
    card = load_device(str(r.kwargs["gpu"]))
    engine = load_engine(engine_of(r)).runs
    return Ratio(phase, engine, card.architecture, over, r.group[0], card.name, r.source, assumed)


def from_fit(path: Path, requests: dict[str, Request]) -> list[Ratio]:
    """Rows that a fit wrote, by constants that never saw their group (where there are any)."""
    with path.open(newline="", encoding="utf-8") as handle:
        found = [(requests[row["id"]], float(row["outside"]), float(row["inside"])) for row in csv.DictReader(handle)]
    return [ratio_of(r, out if np.isfinite(out) else own) for r, out, own in found if not r.apart]


def from_load(path: Path) -> list[Ratio]:
    """Runs under load that were fitted, by constants that never saw their model."""
    done = []
    with path.open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            if row["aside"] == "model" and row["fitted"]:
                on = load_device(row["gpu"]).architecture
                for time, phase in (("ttft", "prefill under load"), ("tpot", "decode under load")):
                    over = 1.0 / float(row[time])
                    done.append(Ratio(phase, row["engine"], on, over, row["model"], row["gpu"], CAMPAIGN))
    return done


def from_tables(requests: Iterable[Request]) -> list[Ratio]:
    """Rows as the shipped constants predict them."""
    chosen: list[Request] = []
    seen: Counter[str] = Counter()
    for r in sorted(requests, key=lambda r: zlib.crc32(r.id.encode())):
        seen[r.source] += r.task == "serve"
        if not r.apart and r.metric != "oom" and (r.task != "serve" or seen[r.source] <= MOST):
            chosen.append(r)
    good = [x for x in score(chosen) if not x.reason and x.predicted > 0]
    return [ratio_of(x.request, x.predicted, bool(x.assumed)) for x in good]


def tails(values: Sequence[tuple[str, float]], unseen: int = 0) -> tuple[float, float]:
    """Percentiles at TAILS of values of units, each unit counting alike; unseen: units more, half below all values and
    half above.

    >>> tails([("a", 1.0)] * 98 + [("b", 2.0), ("b", 3.0)]), tails([("a", x / 10) for x in range(10)], unseen=1)
    ((1.0, 3.0), (0.0, 0.9))
    """
    many = Counter(unit for unit, _ in values)
    ordered = sorted((value, 1.0 / many[unit]) for unit, value in values)
    share = (unseen / 2 + np.cumsum([weight for _, weight in ordered])) / (len(many) + unseen)
    low, high = (ordered[min(int(np.searchsorted(share, q)), len(ordered) - 1)][0] for q in TAILS)
    return low, high


def bands_of(ratios: Sequence[Ratio], known: Known) -> list[BandRow]:
    """The bands of every phase that has rows: near ones of near rows, kin ones of all others (few are just so far), far
    ones of far rows; beyond near a source more is counted that nobody has seen, as what is so far is like none."""
    made = []
    for phase in sorted({r.phase for r in ratios}):
        at = [(r.distance(known), (r.source, r.ratio)) for r in ratios if r.phase == phase]
        low = high = 1.0
        for step, (where, of) in enumerate(zip(DISTANCES, (DISTANCES[:1], DISTANCES[1:], DISTANCES[2:]), strict=True)):
            if own := [x for d, x in at if d in of]:
                ends = tails(own, unseen=int(step > 0))
                low, high = min(low, ends[0]), max(high, ends[1])
            if low < high:
                made.append(BandRow(phase, where, low, high, len(own), len({source for source, _ in own})))
    return made


def held(ratios: Sequence[Ratio], known: Known, group: Callable[[Ratio], str]) -> list[tuple[Ratio, bool]]:
    """For each row, whether it lies in the band of the rows of all other groups."""
    done = []
    for name in sorted({group(r) for r in ratios}):
        own = [r for r in ratios if group(r) == name]
        made = bands_of([r for r in ratios if group(r) != name], known)
        band = {(b.phase, b.distance): b for b in made}
        at = [(r, band[r.phase, r.distance(known)]) for r in own if (r.phase, r.distance(known)) in band]
        done += [(r, b.low <= r.ratio <= b.high) for r, b in at]
    return done


WAYS: dict[str, Callable[[Ratio], str]] = {
    "model": lambda r: r.model, "card": lambda r: r.card, "source": lambda r: r.source,
}  # fmt: skip
"""What is left out whole, in turn."""
Held = dict[str, list[tuple[Ratio, bool]]]
"""Way -> for each row, whether it lies in the band made without its own."""


def report(found: Held, known: Known, fitted: set[str], by_source: bool = False) -> None:
    """Print the share of rows in their band, of models, cards and sources left out whole: of fitted sources and of
    others (rows; sources alike), and by distance."""
    for way, rows in found.items():
        for phase in sorted({r.phase for r, _ in rows}):
            own = [(r, ok) for r, ok in rows if r.phase == phase]
            parts = {
                "all": own,
                "fitted": [x for x in own if x[0].source in fitted],
                "others": [x for x in own if x[0].source not in fitted],
            }
            parts |= {where: [x for x in own if x[0].distance(known) == where] for where in DISTANCES}
            told = [f"{name} {share(some)} of {len(some)}" for name, some in parts.items() if some]
            print(f"{phase:20s} {way} left out: {'; '.join(told)}")
    for source in sorted({r.source for r, _ in found["source"]}) if by_source else ():
        print(f"{source:20s} {share([x for x in found['source'] if x[0].source == source])}")


PHASES = {
    "prefill": "prompts", "decode": "decoding and requests", "prefill under load": "first tokens under load",
    "decode under load": "decoding and rates under load", "step": "training steps", "memory": "memory",
}  # fmt: skip
"""A phase -> what its rows are."""
FAR = {
    "near": "runs of this engine on this generation of cards were fitted",
    "kin": "runs of another release of it, or on other cards, and others' on such cards",
    "far": "none of the engine, or none on such cards, or something that no run had "
    "(layers on the host, adapters, embeddings)",
}
"""A distance -> what is so far."""


def inside(rows: Sequence[tuple[Ratio, bool]]) -> str:
    """Per cent of rows in their band."""
    return f"{100 * np.mean([ok for _, ok in rows]):.0f}"


def band_table(bands: Sequence[BandRow]) -> str:
    """The bands for docs/accuracy.md."""
    ends = {(b.phase, b.distance): f"{b.low:.2f}-{b.high:.2f}" for b in bands}
    head = ("distance", "which", *PHASES.values())
    return markdown(head, [(d, text, *(ends.get((p, d), "-") for p in PHASES)) for d, text in FAR.items()])


def held_table(found: Held, fitted: set[str]) -> str:
    """What bands hold of what is left out whole, for docs/accuracy.md."""
    lines = []
    for phase, name in PHASES.items():
        own = {way: [x for x in rows if x[0].phase == phase] for way, rows in found.items()}
        others = [x for x in own["source"] if x[0].source not in fitted]
        if others:
            cells = (f"{len(own['model']):,}", *(inside(own[way]) for way in WAYS))
            lines.append((name, *cells, f"{inside(others)} of {len(others):,}"))
    return markdown(("left out", "rows", *WAYS, "of sources that nothing is fitted to"), lines)


def held_words(found: Held, fitted: set[str]) -> str:
    """The same of training steps, for docs/training.md."""
    own = {way: [x for x in rows if x[0].phase == "step"] for way, rows in found.items()}
    others = [x for x in own["source"] if x[0].source not in fitted]
    model, card, source = (inside(own[way]) for way in WAYS)
    return (
        f"They hold {model}, {card} and {source} % of the rows of models, cards and sources left out in turn "
        f"({len(own['model']):,} rows),\n{inside(others)} % of those of sources that nothing is fitted to."
    )


def share(found: Sequence[tuple[Ratio, bool]]) -> str:
    """Rows inside, in per cent, and the mean over sources of that share.

    >>> share([(Ratio("step", "x", "ada", 1.0, "m", "c", s), ok) for s, ok in (("a", True), ("a", True), ("b", False))])
    '67/50 %'
    """
    hits: dict[str, list[bool]] = {}
    for r, ok in found:
        hits.setdefault(r.source, []).append(ok)
    rows = [ok for own in hits.values() for ok in own]
    return f"{100 * np.mean(rows):.0f}/{100 * np.mean([np.mean(own) for own in hits.values()]):.0f} %" if rows else "-"


HEADER = """# Error bands: 10th and 90th percentile of measured over predicted time, by phase and distance from the
# runs that constants were fitted to (rooflm.asked.answers.bands), every source counting alike; by rooflm_fit.bands."""


def written(bands: Sequence[BandRow], known: Known) -> str:
    """The text of bands.toml."""
    lines = [HEADER, "", "# an engine's releases -> generations of cards on which runs of it were fitted"]
    for family in sorted({f for f, _, _ in known}):
        lines += ["", f'[fitted."{family}"]']
        for engine in sorted({e for f, e, _ in known if f == family}):
            lines.append(f'"{engine}" = "{" ".join(sorted(on for _, e, on in known if e == engine))}"')
    for b in bands:
        lines += ["", "[[band]]", f'phase = "{b.phase}"', f'distance = "{b.distance}"', f"low = {b.low:.4g}",
                  f"high = {b.high:.4g}", f"rows = {b.rows}", f"sources = {b.sources}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Make the bands; print what they hold of what is left out whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="tables, beside those of the package")
    parser.add_argument("--rows", type=Path, required=True, help="rows of `rooflm_fit.engines --rows`")
    parser.add_argument("--load", type=Path, required=True, help="rows of `rooflm_fit.serving --rows`")
    parser.add_argument("--by-source", action="store_true", help="print what each source holds, left out")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--docs", type=Path, help="folder of accuracy.md and training.md, to put the tables into")
    args = parser.parse_args(argv)
    read = [r for path in (*args.data, *published_tables()) for r in outcomes(path) if isinstance(r, Request)]
    requests = {r.id: r for r in read if r.source != CAMPAIGN}
    fits = from_fit(args.rows, requests) + from_load(args.load)
    done = {row["id"] for row in csv.DictReader(args.rows.open(newline="", encoding="utf-8"))}
    others = from_tables(r for r in requests.values() if r.id not in done)
    trained = [r for r in others if r.source in SOURCES and not r.assumed]
    known = frozenset((family_of(r.engine), r.engine, r.generation) for r in (*fits, *trained))
    ratios, fitted = [*fits, *others], {r.source for r in (*fits, *trained)}
    found, bands = {way: held(ratios, known, group) for way, group in WAYS.items()}, bands_of(ratios, known)
    report(found, known, fitted, args.by_source)
    write_text(args.out, written(bands, known))
    if args.docs:
        rewrite({"bands": band_table(bands), "held": held_table(found, fitted)}, args.docs / "accuracy.md")
        rewrite({"held": held_words(found, fitted)}, args.docs / "training.md")


if __name__ == "__main__":
    main()
