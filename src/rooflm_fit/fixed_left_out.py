"""Errors of fixed batches by constants that never saw their model or their card.

`python -m rooflm_fit.fixed_left_out --data TABLE.csv [--only JOB ...] [--page docs/accuracy.md]`: each job is fitted to
all of its rows once; errors are then taken as linear in the constants around that fit, and each model and each card is
left out in turn and predicted by the constants fitted to the rest (as `rooflm_fit.training_left_out` does; a card's own
constants fall back to its family's).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rooflm.validation.request import Request
from rooflm_fit.accuracy_page import figures, markdown, put
from rooflm_fit.common import Array, Param
from rooflm_fit.engines import SCALE, Family, families, fit_to, params_of, predict
from rooflm_fit.jobs import JOBS
from rooflm_fit.runs import DISTRUSTED, read
from rooflm_fit.training_left_out import fitted
from rooflm_fit.transfer import rows_of

STEP = 0.02
"""Change of a constant (of its logarithm, where that is fitted) over which a derivative is taken."""
PRIOR = 0.01
"""Error on every row that being one width away from the prior costs (as in `common.fit`)."""


def moved(theta: Mapping[str, float], p: Param) -> dict[str, float]:
    """The constants with one of them a step away."""
    at = theta[p.name]
    return {**theta, p.name: float(at * np.exp(STEP)) if p.log else at + STEP}


def slopes_of(members: Sequence[Family], theta: Mapping[str, float], params: Sequence[Param], rows: int) -> Array:
    """Derivatives of the logarithms of all predictions: rows x constants."""
    base = np.log(predict(members, rows, theta))
    return np.array([(np.log(predict(members, rows, moved(theta, p))) - base) / STEP for p in params]).T


def away_of(theta: Mapping[str, float], params: Sequence[Param]) -> Array:
    """How far each constant is from its prior, in the coordinate that is fitted."""
    return np.array([np.log(theta[p.name] / p.start) if p.log else theta[p.name] - p.start for p in params])


def without(job_name: str, chosen: Sequence[Request]) -> dict[str, Array]:
    """Predictions of a job's rows: "in" by all of them, "model" and "card" without those of the same."""
    job, members = JOBS[job_name], families(chosen)
    whole = np.ones(len(chosen), bool)
    theta = fit_to(job, members, chosen, whole)
    params = [p for p in params_of(job, members) if p.name in theta and p.prior]
    measured = np.array([r.measured for r in chosen])
    inside = predict(members, len(chosen), theta)
    errors, slopes = np.log(inside / measured), slopes_of(members, theta, params, len(chosen))
    away = away_of(theta, params)
    spread = np.array([p.prior for p in params]) * SCALE / (PRIOR * np.sqrt(len(chosen)))
    sizes = np.array([sum(r.group == o.group for o in chosen) for r in chosen]) ** -0.5
    trusted = np.array([not r.apart for r in chosen])
    weights = np.sqrt(sizes / sizes[trusted].mean()) * trusted / SCALE
    found = {"in": inside}
    for name, place in (("model", 0), ("card", 1)):
        groups = [r.group[place] for r in chosen]
        found[name] = np.full(len(chosen), np.nan)
        for each in sorted(set(groups)) if len(set(groups)) > 1 else ():
            own = np.array([g == each for g in groups])
            left = fitted(errors, slopes, weights * ~own, away, spread)
            found[name][own] = (measured * np.exp(left))[own]
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
