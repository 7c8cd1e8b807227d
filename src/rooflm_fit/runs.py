"""Measured runs as the fits read them, out of tables of either format: rows whose conditions are complete, and that
nothing sets apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.readers import outside
from rooflm.readers.engines import family_of
from rooflm.serving.simulate import Pool, simulate
from rooflm.serving.workload import Requests
from rooflm.validation.columns import SERVE
from rooflm.validation.headings import OLDER
from rooflm.validation.request import Outcome, Request
from rooflm.validation.table import parse
from rooflm_fit.convert.cells import shipped
from rooflm_fit.convert.tables import converted, text_of

DISTRUSTED = tuple(row["why"] for row in shipped("sources")["doubts"]["fixed"] if row.get("apart"))
"""Doubts of rows that are predicted beside the others, and neither fitted nor counted."""


def rows_in(path: Path) -> list[dict[str, str]]:
    """The rows of a csv file that a fit or a study wrote, by column."""
    return [row for _, row in outside.csv_rows(outside.text(path, "table", "csv"), path)]


def outcomes(path: str | PathLike[str]) -> list[Outcome]:
    """Every row of a table of runs; one of the older format is converted first. RooflmError where it is neither."""
    where = Path(path)
    content = outside.text(where, "table", "csv", errors="replace")
    header = {name.strip() for name in content.partition("\n")[0].split(",")}
    if OLDER & header:
        content = text_of(converted(content, str(where)))
    return parse(content.replace("\0", ""), str(where))


def read(path: str | PathLike[str], doubted: Sequence[str] = ()) -> list[Request]:
    """The rows that count, and those whose one doubt is among `doubted`."""
    found = [r for r in outcomes(path) if isinstance(r, Request) and not r.assumed]
    return [r for r in found if not r.apart or r.apart in doubted]


@dataclass(frozen=True)
class Case:
    """One measured run under load: the row that states it, and the measured means (s)."""

    id: str
    request: Request
    ttft: float
    tpot: float

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments of `rooflm.serve`."""
        return self.request.kwargs

    @property
    def group(self) -> tuple[str, str]:
        """Model and card."""
        return self.request.group

    @property
    def engine(self) -> str:
        """The engine that its row is a release of."""
        return family_of(str(self.request.kwargs["engine"]))

    @property
    def release(self) -> str:
        """The engine's release, as printed or as its campaign's image holds it."""
        return self.request.release

    @property
    def concurrency(self) -> int:
        """Clients of the closed loop."""
        return int(self.request.kwargs["concurrency"])


def cases(rows: Iterable[Request], source: str = "aic") -> list[Case]:
    """Runs of a source in a closed loop that print both TTFT and TPOT, joined from their rows."""
    joined: dict[str, dict[str, float]] = {}
    first: dict[str, Request] = {}
    turns: dict[tuple[str, str], int] = {}
    for r in rows:
        if r.task != SERVE or r.source != source or not isinstance(r.kwargs.get("concurrency"), int):
            continue
        base = repr(sorted((k, str(v)) for k, v in r.kwargs.items())) + r.release
        # repeats of one configuration follow each other: the n-th TTFT belongs to the n-th TPOT
        turn = turns[base, r.metric] = turns.get((base, r.metric), 0) + 1
        key = f"{base} {turn}"
        joined.setdefault(key, {})[r.metric] = r.measured
        first.setdefault(key, r)
    return [
        Case(first[key].id, first[key], values["ttft"], values["tpot"])
        for key, values in joined.items()
        if {"ttft", "tpot"} <= set(values)
    ]


def means(pool: Pool, requests: Requests) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a load on one replica."""
    records = simulate(requests, (pool,)).records
    first, end, sent = (np.frombuffer(x, dtype=float) for x in (records.first, records.end, records.arrival))
    steps = np.maximum(np.asarray(records.output) - 1, 1)
    return float(np.nanmean(first - sent)), float(np.nanmean((end - first) / steps))
