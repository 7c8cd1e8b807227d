"""Error bands out of scored rows, and what they hold of what is left out: python -m rooflm_fit.bands --data TABLE ...

A band is the 10th and 90th percentile of measured over predicted time, of all rows of a phase that are as far from the
runs that constants were fitted to (`bands.DISTANCES`) and were predicted by what did not know them. A source counts as
the root of its rows: rows of one have more in common than rows of two (a user's run is of a new source), but it takes
many to know how far a source scatters (between the two ends of two-layer data: Dunn, Wasserman and Ramdas 2018). A far
band is never narrower than the near one, and both hold the prediction.

--rows: of `rooflm_fit.engines`, each with its prediction by a fit that never saw its group. --load: of
`rooflm_fit.serving`, with its model left out whole. --first: what came of rows that nothing is fitted to when they were
typed (`rooflm_fit.first_sight`). What else the tables of --data and those of the package hold is predicted by the
shipped constants. A row that nothing is fitted to makes bands twice, as first seen and as it stands now: a user's run
may lack conditions, as the first does, or state them all. Sources that training's constants were fitted to are in no
band, as a user's run is of none of them. Rows that assume something count as far.

--page: docs/accuracy.md, whose tables of bands and of what they hold are written too.
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rooflm.asked.answers.bands import DISTANCES, BandRow, Known, distance, kind_of
from rooflm.readers.devices import load_device
from rooflm.readers.engines import family_of, load_engine
from rooflm.sweep.files import write_text
from rooflm.validation.request import Request
from rooflm.validation.score import band_phase, engine_of, is_rate, score
from rooflm.validation.table import published_tables
from rooflm_fit.pages import markdown, rewrite
from rooflm_fit.runs import outcomes, rows_in
from rooflm_fit.training import SOURCES

TAILS = (0.1, 0.9)
"""Shares of the rows, weighted, below the ends of a band."""
POWER = 0.5
"""A source counts as its rows to this power: 0 each alike, 1 each row. With 0 bands hold 92 % of decoding and 98 % of a
campaign's runs, with 1 bands of a source of one's own hold 73 % (decision 0158)."""
CAMPAIGN = "aic"
"""Source of the runs under load that are fitted (`runs.cases`): read from --load alone."""
MOST = 60
"""Rows under load of a source that are predicted, by a stable hash: simulations take long, and sources count alike."""


class Ratio(NamedTuple):
    """One row: measured over predicted time, and what it is like."""

    phase: str
    engine: str
    cards: str
    ratio: float
    model: str
    card: str
    source: str
    where: str = ""

    def distance(self, known: Known) -> str:
        """How far it lies from the runs that were fitted."""
        return self.where or distance(self.engine, self.cards, known)


def ratio_of(r: Request, predicted: float, where: str = "") -> Ratio:
    """The ratio of a row to its prediction."""
    phase = band_phase(r.metric, r.task).replace("request", "decode")
    over = (r.measured / predicted) ** (-1.0 if is_rate(r.metric) else 1.0)
    card = load_device(str(r.kwargs["gpu"]))
    engine = load_engine(engine_of(r)).runs
    return Ratio(phase, engine, kind_of(card), over, r.group[0], card.name, r.source, where)


def from_fit(path: Path, requests: dict[str, Request]) -> list[Ratio]:
    """Rows that a fit wrote, by constants that never saw their group (where there are any)."""
    found = [(requests[row["id"]], float(row["outside"]), float(row["inside"])) for row in rows_in(path)]
    return [ratio_of(r, out if np.isfinite(out) else own) for r, out, own in found if not r.apart]


def from_load(path: Path) -> list[Ratio]:
    """Runs under load that were fitted, by constants that never saw their model."""
    done = []
    for row in rows_in(path):
        if row["aside"] == "model" and row["fitted"]:
            on = kind_of(load_device(row["gpu"]))
            for time, phase in (("ttft", "prefill under load"), ("tpot", "decode under load")):
                over = 1.0 / float(row[time])
                done.append(Ratio(phase, row["engine"], on, over, row["model"], row["gpu"], CAMPAIGN))
    return done


def from_tables(requests: Iterable[Request]) -> dict[str, Ratio]:
    """Rows, by id, as the shipped constants predict them."""
    chosen: list[Request] = []
    seen: Counter[str] = Counter()
    for r in sorted(requests, key=lambda r: zlib.crc32(r.id.encode())):
        seen[r.source] += r.task == "serve"
        if not r.apart and r.metric != "oom" and (r.task != "serve" or seen[r.source] <= MOST):
            chosen.append(r)
    good = [x for x in score(chosen) if not x.reason and x.predicted > 0]
    return {x.request.id: ratio_of(x.request, x.predicted, x.where) for x in good}


def tails(values: Sequence[tuple[str, float]], power: float = POWER) -> tuple[float, float]:
    """Percentiles at TAILS of values of sources, each counting as its rows to a power.

    >>> tails([("a", 1.0)] * 98 + [("b", 2.0), ("b", 3.0)], power=0)
    (1.0, 3.0)
    >>> tails([("a", 1.0)] * 98 + [("b", 2.0), ("b", 3.0)])
    (1.0, 2.0)
    """
    many = Counter(source for source, _ in values)
    ordered = sorted((value, many[source] ** (power - 1.0)) for source, value in values)
    below = np.cumsum([weight for _, weight in ordered])
    low, high = (ordered[min(int(np.searchsorted(below, q * below[-1])), len(ordered) - 1)][0] for q in TAILS)
    return low, high


def bands_of(ratios: Sequence[Ratio], known: Known) -> list[BandRow]:
    """The bands of every phase that has rows, near and far, and of experts where it has such rows."""
    at: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for r in ratios:
        at.setdefault((r.phase, r.distance(known)), []).append((r.source, r.ratio))
    made = []
    for phase in sorted({phase for phase, _ in at}):
        low = high = 1.0
        for where in DISTANCES:
            if own := at.get((phase, where), []):
                ends = tails(own)
                low, high = min(low, ends[0]), max(high, ends[1])
            if low < high and (own or where != "experts"):
                made.append(BandRow(phase, where, low, high, len(own), len({source for source, _ in own})))
    return made


def held(
    ratios: Sequence[Ratio], known: Known, group: Callable[[Ratio], str], judged: Sequence[Ratio] = ()
) -> list[tuple[Ratio, bool]]:
    """For each row of `judged` (none: of those that make bands), whether it lies in the band of the rows of all other
    groups."""
    done = []
    for phase in sorted({r.phase for r in ratios}):
        making = [r for r in ratios if r.phase == phase]
        having: dict[str, list[Ratio]] = {}
        for r in judged or ratios:
            if r.phase == phase:
                having.setdefault(group(r), []).append(r)
        for name, own in having.items():
            band = {b.distance: b for b in bands_of([r for r in making if group(r) != name], known)}
            at = [(r, band[r.distance(known)]) for r in own if r.distance(known) in band]
            done += [(r, b.low <= r.ratio <= b.high) for r, b in at]
    return done


WAYS: dict[str, Callable[[Ratio], str]] = {
    "model": lambda r: r.model, "card": lambda r: r.card, "source": lambda r: r.source,
}  # fmt: skip
"""What is left out whole -> which of them a row is of."""
FEW, MANY = 0.6, 5
"""Share of its rows that a source should have in its band, and rows from which it is said that it has not."""
Found = Sequence[tuple[Ratio, bool]]


def parts_of(found: Found, known: Known, groups: Mapping[str, set[str]]) -> dict[str, Found]:
    """Rows of one phase: all, those of groups of sources, and by distance; none that is empty."""
    parts = {"all": found} | {name: [x for x in found if x[0].source in own] for name, own in groups.items()}
    parts |= {where: [x for x in found if x[0].distance(known) == where] for where in DISTANCES}
    return {name: some for name, some in parts.items() if some}


def below(found: Found) -> tuple[int, int]:
    """Sources of MANY rows that have less than FEW in their band, and all sources of as many.

    >>> below([(Ratio("step", "x", "ada", 1.0, "m", "c", s), s == "a") for s in "aaaaabbbbbc"])
    (1, 2)
    """
    rows = [own for own in by_source(found).values() if len(own) >= MANY]
    return sum(sum(own) < FEW * len(own) for own in rows), len(rows)


def report(found: Mapping[str, Found], known: Known, groups: Mapping[str, set[str]]) -> None:
    """Print the share of rows in their band, of models, cards and sources left out whole (found: of each of WAYS): of
    fitted sources and others (rows; sources alike), and by distance."""
    for way, rows in found.items():
        for phase in sorted({r.phase for r, _ in rows}):
            own = [x for x in rows if x[0].phase == phase]
            told = [f"{name} {share(some)} of {len(some)}" for name, some in parts_of(own, known, groups).items()]
            few, many = below(own)
            print(f"{phase:20s} {way} left out: {'; '.join(told)}; {few} of {many} sources below {100 * FEW:.0f} %")


COLUMNS = (("prompt", "prefill"), ("decode", "decode"), ("first token under load", "prefill under load"),
           ("decode under load", "decode under load"), ("step", "step"), ("memory of a step", "memory"))  # fmt: skip
"""Head of a column or row on the page, and its phase."""


def tables(bands: Sequence[BandRow], found: Mapping[str, Found], fitted: set[str], seen: Found) -> dict[str, str]:
    """The tables of docs/accuracy.md: the bands, and what they hold of what was left out, in per cent; seen: of rows
    that nothing is fitted to, at first sight."""
    ends = {(b.phase, b.distance): f"{b.low:.2f}-{b.high:.2f}" for b in bands}
    rows = [(where, *(ends.get((phase, where), "-") for _, phase in COLUMNS)) for where in DISTANCES]
    kept = []
    for name, phase in COLUMNS:
        at = {way: [x for x in some if x[0].phase == phase] for way, some in found.items()}
        others = [x for x in at["source"] if x[0].source not in fitted]
        first = [x for x in seen if x[0].phase == phase]
        few, many = below(first)
        each = (share(some).partition("/")[0] for some in at.values())
        kept.append((name, f"{len(at['source'])}", *each, share(others).removesuffix(" %"),
                     f"{len(first)} of {len(by_source(first))}", share(first).removesuffix(" %"),
                     f"{few} of {many}"))  # fmt: skip
    head = ("", "rows", *WAYS, "nothing fitted", "first seen", "held", f"below {100 * FEW:.0f}")
    return {"bands": markdown(("", *(name for name, _ in COLUMNS)), rows), "held": markdown(head, kept)}


def by_source(found: Found) -> dict[str, list[bool]]:
    """Source -> whether each of its rows lies inside."""
    hits: dict[str, list[bool]] = {}
    for r, ok in found:
        hits.setdefault(r.source, []).append(ok)
    return hits


def share(found: Found) -> str:
    """Rows inside, in per cent, and the mean over sources of that share.

    >>> share([(Ratio("step", "x", "ada", 1.0, "m", "c", s), ok) for s, ok in (("a", True), ("a", True), ("b", False))])
    '67/50 %'
    """
    if not found:
        return "-"
    alike = np.mean([np.mean(own) for own in by_source(found).values()])
    return f"{100 * np.mean([ok for _, ok in found]):.0f}/{100 * alike:.0f} %"


HEADER = """# Error bands: 10th and 90th percentile of measured over predicted time, by phase and distance from the
# runs that constants were fitted to (rooflm.asked.answers.bands), of fitted rows left out, and of others at first
# sight and now, a source counting as the root of its rows; by rooflm_fit.bands."""


def written(bands: Sequence[BandRow], known: Known) -> str:
    """The text of bands.toml."""
    lines = [HEADER, "", "# an engine's releases -> kinds of cards on which runs of it were fitted"]
    for family in sorted({f for f, _, _ in known}):
        lines += ["", f'[fitted."{family}"]']
        for engine in sorted({e for f, e, _ in known if f == family}):
            on = ", ".join(f'"{kind}"' for kind in sorted(kind for _, e, kind in known if e == engine))
            lines.append(f'"{engine}" = [{on}]')
    for b in bands:
        lines += ["", "[[band]]", f'phase = "{b.phase}"', f'distance = "{b.distance}"', f"low = {b.low:.4g}",
                  f"high = {b.high:.4g}", f"rows = {b.rows}", f"sources = {b.sources}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Make the bands and their tables; print what they hold of what is left out whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="tables, beside those of the package")
    parser.add_argument("--rows", type=Path, required=True, help="rows of `rooflm_fit.engines --rows`")
    parser.add_argument("--load", type=Path, required=True, help="rows of `rooflm_fit.serving --rows`")
    parser.add_argument("--first", type=Path, required=True, help="rows of `rooflm_fit.first_sight`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="docs/accuracy.md, to write its tables of bands")
    args = parser.parse_args(argv)
    read = {path: [r for r in outcomes(path) if isinstance(r, Request)] for path in (*args.data, *published_tables())}
    requests = {r.id: r for own in read.values() for r in own if r.source != CAMPAIGN}
    fits = from_fit(args.rows, requests) + from_load(args.load)
    done = {row["id"] for row in rows_in(args.rows)}
    shipped = from_tables(r for r in requests.values() if r.id not in done)
    trained = [r for r in shipped.values() if r.source in SOURCES and r.where != "far"]
    known = frozenset((family_of(r.engine), r.engine, r.cards) for r in (*fits, *trained))
    fitted = {r.source for r in (*fits, *trained)}
    since = {i: r for i, r in shipped.items() if r.source not in SOURCES}
    sight = {row["id"]: float(row["ratio"]) for row in rows_in(args.first)}
    first = [r._replace(ratio=sight[i]) for i, r in since.items() if i in sight and r.source not in fitted]
    now = [*fits, *since.values()]
    making = [*now, *first]
    bands, found = bands_of(making, known), {way: held(making, known, group, now) for way, group in WAYS.items()}
    seen = held(making, known, WAYS["source"], first)
    report(found, known, {"fitted": fitted, "others": {r.source for r in now} - fitted})
    report({"source, at first sight": seen}, known, {})
    write_text(args.out, written(bands, known))
    if args.page:
        rewrite(tables(bands, found, fitted, seen), args.page)


if __name__ == "__main__":
    main()
