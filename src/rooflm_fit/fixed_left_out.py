"""Errors of fixed batches by constants that never saw their model or their card.

`python -m rooflm_fit.fixed_left_out --data TABLE.csv [--only JOB ...] [--page docs/accuracy.md]`: each job is fitted to
all of its rows, then each model and each card is left out in turn and predicted by constants fitted to the rest,
starting from the fit to all (a card's own constants fall back to its family's).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rooflm.validation.request import Request
from rooflm_fit.accuracy_page import figures, markdown
from rooflm_fit.common import Array
from rooflm_fit.engines import families, fit_to, predict
from rooflm_fit.jobs import JOBS
from rooflm_fit.pages import put
from rooflm_fit.runs import DISTRUSTED, read
from rooflm_fit.transfer import rows_of


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


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; with --page, put it between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(argv)
    requests = [r for path in options.data for r in read(path, DISTRUSTED) if r.task == "infer"]
    rows, every, held = [], [], []
    for name in options.only:
        chosen = rows_of(JOBS[name], requests)
        if chosen:
            found = without(name, chosen)
            rows.append(line(name, chosen, found))
            every += chosen
            held.append(found)
            print("  ".join(rows[-1]), flush=True)
    joined = {k: np.concatenate([f[k] for f in held]) for k in ("in", "model", "card")}
    rows.append(line("all", every, joined))
    head = ("engine, mean / median", "rows", "in sample", "model left out", "card left out")
    text = markdown(head, rows)
    print(text)
    if options.page:
        options.page.write_text(put(options.page.read_text(encoding="utf-8"), {"fixed": text}), encoding="utf-8")


if __name__ == "__main__":
    main()
