"""Errors of fixed batches by constants that never saw their model, their card or their engine.

`python -m rooflm_fit.fixed_left_out --data TABLE.csv [--only JOB ...] [--page docs/accuracy.md]`: each job is fitted to
all of its rows, then each model and each card is left out in turn and predicted by constants fitted to the rest,
starting from the fit to all (a card's own constants fall back to its family's). An engine left out keeps what its code
and documentation say (fused or not, which attention, CUDA graphs, and about what its host costs: the starts of the
fits) and takes its factors on kernels and collectives as the geometric mean over the other engines of its kind (PLAIN);
once more with the host's costs of the others, too.
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

PLAIN = ("vllm-2024", "trtllm-2024", "trtllm", "trtllm-nemo")
"""Jobs of engines that serve with CUDA graphs and fused kernels: what one of them fits may stand in for another."""
HOST = ("step", "sequence", "request", "gap")
"""Constants of the host."""
Constants = Mapping[str, float]


def without(job_name: str, chosen: Sequence[Request]) -> tuple[dict[str, Array], Constants]:
    """Predictions of a job's rows: "in" by all of them, "model" and "card" without those of the same; and the constants
    by all of them."""
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
    return found, theta


def common(fits: Mapping[str, Constants], without: str) -> dict[str, float]:
    """Geometric mean over the other jobs of every constant that is no card's and no single release's."""
    logs: dict[str, list[float]] = {}
    for name, theta in fits.items():
        for key, value in theta.items() if name != without else ():
            if "|" not in key and value > 0:
                logs.setdefault(key.split(":")[-1], []).append(float(np.log(value)))
    return {k: float(np.exp(np.mean(v))) for k, v in logs.items()}


def engines_left_out(fits: Mapping[str, Constants], rows: Mapping[str, Sequence[Request]]) -> str:
    """The table of engines: errors of each with constants of the others; what nobody else fits, and the host's where
    that is taken as documented, takes its start."""
    lines = []
    for name in fits:
        job, chosen, cells = JOBS[name], rows[name], [name, str(len(rows[name]))]
        starts = {p.name: p.start for p in (*job.shared, *(p for own in job.own.values() for p in own))}
        for documented in (HOST, ()):
            known = {k: v for k, v in common(fits, name).items() if k in starts and k not in documented}
            found = predict(families(chosen), len(chosen), starts | known | {"~datacenter|compute": 1.0})
            cells.append(" / ".join(figures(found.tolist(), [r.measured for r in chosen])[:2]))
        lines.append(tuple(cells))
    return markdown(
        ("engine left out, mean / median", "rows", "its host as documented", "the others' host, too"), lines
    )


def line(name: str, chosen: Sequence[Request], found: Mapping[str, Array]) -> tuple[str, ...]:
    """A row of the table: rows, then mean and median of each way of leaving out."""
    kept = np.array([not r.apart for r in chosen])
    measured = [r.measured for r, k in zip(chosen, kept, strict=True) if k]
    cells = [" / ".join(figures(list(values[kept]), measured)[:2]) for values in found.values()]
    return (name, str(len(measured)), *(c if c != "- / -" else "-" for c in cells))


def each(chosen: Mapping[str, Sequence[Request]], processes: int) -> Iterator[tuple[str, dict[str, Array], Constants]]:
    """What `without` finds of each job, as they end; the longest begin first, so that processes end together."""
    fits = {name: len(rows) * len({g for r in rows for g in r.group}) for name, rows in chosen.items() if rows}
    order = sorted(fits, key=lambda name: -fits[name])
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(without, name, chosen[name]): name for name in order}
        for future in as_completed(running):
            yield running[future], *future.result()


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables; with --page, put them between their marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--processes", type=int, default=2, help="jobs at a time")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(argv)
    requests = [r for path in options.data for r in read(path, DISTRUSTED) if r.task == "infer"]
    rows = {name: rows_of(JOBS[name], requests) for name in options.only}
    held, lines, fits = {}, {}, {}
    for name, found, theta in each(rows, options.processes):
        held[name], lines[name], fits[name] = found, line(name, rows[name], found), theta
        print("  ".join(lines[name]), flush=True)
    names = [name for name in options.only if name in held]
    joined = {k: np.concatenate([held[n][k] for n in names]) for k in ("in", "model", "card")}
    every = [r for n in names for r in rows[n]]
    head = ("engine, mean / median", "rows", "in sample", "model left out", "card left out")
    tables = {"fixed": markdown(head, [*(lines[n] for n in names), line("all", every, joined)])}
    if {*PLAIN} <= fits.keys():
        tables["transfer"] = engines_left_out({n: fits[n] for n in PLAIN}, rows)
    print("\n\n".join(tables.values()))
    if options.page:
        rewrite(tables, options.page)


if __name__ == "__main__":
    main()
