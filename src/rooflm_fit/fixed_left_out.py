"""Errors of fixed batches by constants that never saw their model or their card.

`python -m rooflm_fit.fixed_left_out --data TABLE.csv [--only JOB ...] [--page docs/accuracy.md]`: each job is fitted to
all of its rows, then each model and each card is left out in turn and predicted by constants fitted to the rest,
starting from the fit to all (a card's own constants fall back to its family's).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from rooflm.validation.request import Request
from rooflm_fit.accuracy_page import figures
from rooflm_fit.common import Array
from rooflm_fit.engines import families, fit_to, predict, rows_of
from rooflm_fit.jobs import JOBS
from rooflm_fit.pages import markdown, rewrite
from rooflm_fit.runs import DISTRUSTED, read


def without(job_name: str, chosen: Sequence[Request]) -> dict[str, Array]:
    """Predictions of a job's rows: "in" by all of them, "model" and "card" without those of the same."""
    job, members, rows = JOBS[job_name], families(chosen), len(chosen)
    theta = fit_to(job, members, chosen, np.ones(rows, bool))
    found = {"in": predict(members, rows, theta)}
    for name, place in (("model", 0), ("card", 1)):
        groups = [r.group[place] for r in chosen]
        found[name] = np.full(rows, np.nan)
        for each in sorted(set(groups)) if len(set(groups)) > 1 else ():
            own = np.array([g == each for g in groups])
            fitted = fit_to(job, members, chosen, ~own, theta)
            unread = {"|": 1.0} if any("|" in key for key in theta) else {}  # or a card's row on file told of itself
            found[name][own] = predict(members, rows, fitted | unread)[own]
    return found


def line(name: str, chosen: Sequence[Request], found: Mapping[str, Array]) -> tuple[str, ...]:
    """A row of the table: rows, then mean and median of each way of leaving out."""
    kept = np.array([not r.apart for r in chosen])
    measured = [r.measured for r, k in zip(chosen, kept, strict=True) if k]
    cells = [" / ".join(figures(list(values[kept]), measured)[:2]) for values in found.values()]
    return (name, str(len(measured)), *(c if c != "- / -" else "-" for c in cells))


def each(names: Sequence[str], requests: Sequence[Request], processes: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """What `without` finds of each job, as they end; the longest begin first, so that processes end together."""
    chosen = {name: rows_of(JOBS[name], requests) for name in names}
    fits = {name: len(rows) * len({g for r in rows for g in r.group}) for name, rows in chosen.items() if rows}
    order = sorted(fits, key=lambda name: -fits[name])
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(without, name, chosen[name]): name for name in order}
        for future in as_completed(running):
            yield running[future], future.result()


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; with --page, put it between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--processes", type=int, default=2, help="jobs at a time")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(argv)
    requests = [r for path in options.data for r in read(path, DISTRUSTED) if r.task == "infer"]
    held, lines = {}, {}
    for name, found in each(options.only, requests, options.processes):
        held[name], lines[name] = found, line(name, rows_of(JOBS[name], requests), found)
        print("  ".join(lines[name]), flush=True)
    names = [name for name in options.only if name in held]
    joined = {k: np.concatenate([held[n][k] for n in names]) for k in ("in", "model", "card")}
    every = [r for n in names for r in rows_of(JOBS[n], requests)]
    head = ("engine, mean / median", "rows", "in sample", "model left out", "card left out")
    text = markdown(head, [*(lines[n] for n in names), line("all", every, joined)])
    print(text)
    if options.page:
        rewrite({"fixed": text}, options.page)


if __name__ == "__main__":
    main()
