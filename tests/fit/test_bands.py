"""Error bands out of scored rows: how wide they are made."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rooflm.asked.answers.bands import DISTANCES, BandRow
from rooflm.validation.table import published_tables
from rooflm_fit.bands import Ratio, bands_of, below, held, share, tables, tails, written
from rooflm_fit.first_sight import joined
from rooflm_fit.runs import outcomes, rows_in

ROOT = Path(__file__).parents[2]

KNOWN = frozenset({("vllm", "vllm", "hopper"), ("mlc", "mlc", "ada")})


def rows(sources: int, spread: float, engine: str = "vllm", on: str = "hopper", many: int = 30) -> list[Ratio]:
    """Ratios of many sources, each with an error of its own beside that of its rows."""
    drawn = np.random.default_rng(7)
    return [
        Ratio("decode", engine, on, float(np.exp(e + drawn.normal(0, 0.02))), f"m{i % 5}", "h100", f"{engine}-{on}-{i}")
        for i, e in enumerate(drawn.normal(0, spread, sources))
        for _ in range(many)
    ]


def of(bands: list[BandRow]) -> dict[str, BandRow]:
    return {b.distance: b for b in bands}


@pytest.mark.parametrize("way", ["source", "model"])
def test_bands_hold_eight_of_ten_rows_of_what_was_left_out(way: str) -> None:
    made = rows(40, 0.1)
    found = held(made, KNOWN, lambda r: str(getattr(r, way)))
    assert len(found) == len(made)
    assert 0.72 < np.mean([ok for _, ok in found]) < 0.88


def test_a_source_counts_as_the_root_of_its_rows() -> None:
    """A campaign of 1,200 rows says as much as six sources of thirty, not as forty and not as one."""
    campaign = [r._replace(source="campaign") for r in rows(40, 0.0)]
    six = [r._replace(source=f"part {i % 6}") for i, r in enumerate(campaign[:180])]
    both, same = (of(bands_of([*more, *rows(20, 0.3)], KNOWN))["near"] for more in (campaign, six))
    assert np.log(both.high / both.low) == pytest.approx(np.log(same.high / same.low), rel=0.1)
    assert both.sources == 21


def test_far_rows_make_no_band_of_near_ones() -> None:
    apart = [*rows(9, 0.1), *(r._replace(ratio=9.0) for r in rows(9, 0.1, engine="tgi"))]
    assert of(bands_of(apart, KNOWN))["near"] == of(bands_of(rows(9, 0.1), KNOWN))["near"]


def test_farther_bands_are_no_narrower_and_all_hold_the_prediction() -> None:
    late = [r._replace(ratio=2 * r.ratio) for r in rows(9, 0.1, on="ada")]  # both fitted, never together
    made = of(bands_of([*rows(9, 0.2), *late, *rows(9, 0.01, engine="tgi")], KNOWN))
    assert tuple(made) == DISTANCES[:2]  # no row is of experts
    ends = [(made[d].low, made[d].high) for d in made]
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(ends))
    assert all(low <= 1 <= high for low, high in ends)
    assert made["far"].high > 1.5


def test_rows_at_first_sight_are_judged_by_the_bands_of_other_sources() -> None:
    """What a source came to, then and now, makes no band that it is judged by; without others it has none."""
    now = rows(30, 0.1)
    first = [r._replace(ratio=1.5 * r.ratio) for r in now[:300]]
    found = held([*now, *first], KNOWN, lambda r: r.source, first)
    assert len(found) == len(first) and 0.3 < np.mean([ok for _, ok in found]) < 0.9
    alone = [r for r in now if r.source == now[0].source]
    assert held(alone, KNOWN, lambda r: r.source, alone) == []


def test_a_row_stays_as_it_was_first_seen() -> None:
    read = csv.DictReader(joined({"a": "1.5"}, {"a": 1.0, "b": 0.9}).splitlines())
    assert [*read] == [{"id": "a", "ratio": "1.5"}, {"id": "b", "ratio": "0.9"}]


def test_first_sights_are_of_rows_that_tables_hold() -> None:
    """Nearly all: rows that are found to be told twice go from the tables alone."""
    kept = {r.id for path in published_tables() for r in outcomes(path)}
    seen = [row["id"] for row in rows_in(ROOT / "docs" / "measured" / "first-sight.csv")]
    assert len(seen) == len(set(seen)) and np.mean([name in kept for name in seen]) > 0.9


def test_percentiles_by_sources() -> None:
    values = [(f"s{i}", float(i)) for i in range(10)]
    assert tails(values) == (0.0, 8.0)
    assert tails([*values, *[("s5", 5.0)] * 8], power=1) == (1.0, 8.0)


def test_what_assumes_something_is_far() -> None:
    assert rows(1, 0.1)[0].distance(KNOWN) == "near"
    assert rows(1, 0.1)[0]._replace(where="far").distance(KNOWN) == "far"


def test_a_source_is_not_in_the_band_that_it_is_judged_by() -> None:
    near, odd = rows(30, 0.01), [r._replace(source="odd", ratio=3.0) for r in rows(1, 0.0)]
    assert share([x for x in held([*near, *odd], KNOWN, lambda r: r.source) if x[0].source == "odd"]) == "0/0 %"


def test_the_file_reads_as_it_was_written() -> None:
    text = written([BandRow("decode", "near", 0.9, 1.1, 10, 2)], KNOWN)
    assert '"vllm" = ["hopper"]' in text and "sources = 2" in text


def test_the_tables_of_the_page() -> None:
    found = [(r, i % 5 > 0) for i, r in enumerate(rows(4, 0.1, many=10))]
    ways = dict.fromkeys(("model", "card", "source"), found)
    made = tables([BandRow("decode", "near", 0.9, 1.1, 10, 2)], ways, {"x"}, found[:20])
    assert "| 0.90-1.10 |" in made["bands"]
    assert "| decode | 40 | 80 | 80 | 80 | 80/80 | 20 of 2 | 80/80 | 0 of 2 |" in made["held"]
    assert below([(r, ok and r.source == "vllm-hopper-0") for r, ok in found]) == (3, 4)
