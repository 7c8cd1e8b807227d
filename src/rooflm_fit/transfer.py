"""How far off a card or an engine is that the fits never saw: each left out in turn.

    python -m rooflm_fit.transfer --data inference.csv [--only JOB ...] [--rows ROWS.csv]

A card left out takes its product family's factors as the other cards of the same job give them, or none.
An engine left out keeps what its code and documentation say (fused or not, which attention, CUDA graphs, and about
what its host costs: the starts of the fits) and takes its factors on kernels and collectives as the geometric mean over
the other engines of its kind; once more with the host's costs of the others, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rooflm.validation import Request
from rooflm.validation.score import engine_of
from rooflm_fit.common import Array
from rooflm_fit.engines import SPEEDS, Family, errors, families, fit_to, predict
from rooflm_fit.jobs import JOBS, Job
from rooflm_fit.runs import DISTRUSTED, read

PLAIN = ("vllm-2024", "trtllm-2024", "trtllm", "trtllm-nemo", "tgi-1.1")
"""Jobs of engines that serve with CUDA graphs and fused kernels: what one of them fits may stand in for another."""


def rows_of(job: Job, requests: Sequence[Request]) -> list[Request]:
    """The rows that a job is fitted to."""
    return [r for r in requests if r.metric in SPEEDS and r.task == "infer" and r.source not in job.skip
            and engine_of(r) in job.engines]  # fmt: skip


def cards_left_out(job: Job, members: Sequence[Family], chosen: Sequence[Request]) -> Array:
    """Predictions of each card's rows by a fit to all other cards' rows (nan where there is only one card)."""
    out = np.full(len(chosen), np.nan)
    whole = fit_to(job, members, chosen, np.ones(len(chosen), bool))
    cards = np.array([r.group[1] for r in chosen])
    for gpu in sorted(set(cards)):
        aside = cards == gpu
        if not aside.all():
            out[aside] = predict(members, len(chosen), fit_to(job, members, chosen, ~aside, whole))[aside]
    return out


def common(fits: Mapping[str, Mapping[str, float]], without: str) -> dict[str, float]:
    """Geometric mean over the other jobs of every constant that is no card's and no single release's."""
    logs: dict[str, list[float]] = {}
    for name, theta in fits.items():
        for key, value in theta.items() if name != without else ():
            if "|" not in key and value > 0:
                logs.setdefault(key.split(":")[-1], []).append(float(np.log(value)))
    return {k: float(np.exp(np.mean(v))) for k, v in logs.items()}


HOST = ("step", "sequence", "request", "gap")
"""Constants of the host."""


def engine_left_out(
    job: Job, members: Sequence[Family], rows: int, known: Mapping[str, float], host_known: bool = True
) -> Array:
    """Predictions of a job's rows with constants of other engines; what nobody else fits, and the host's where it is
    known, takes its start."""
    known = {k: v for k, v in known.items() if not (host_known and k in HOST)}
    free = [*job.shared, *(p for own in job.own.values() for p in own)]
    return predict(members, rows, {p.name: known.get(p.name, p.start) for p in free} | {"~datacenter|compute": 1.0})


def main(argv: Sequence[str] | None = None) -> None:
    """Print both errors of every job and card; with --rows, write each row's predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--rows", type=Path)
    args = parser.parse_args(argv)
    requests = [r for r in read(args.data, DISTRUSTED) if r.task == "infer"]
    sets = {name: rows_of(JOBS[name], requests) for name in {*args.only, *PLAIN}}
    groups = {name: families(chosen) for name, chosen in sets.items()}
    fits = {n: fit_to(JOBS[n], groups[n], sets[n], np.ones(len(sets[n]), bool)) for n in PLAIN}
    lines = ["job,id,source,model,gpu,engine,metric,measured,card_out,engine_out"]
    for name in args.only:
        job, chosen, members = JOBS[name], sets[name], groups[name]
        cards = cards_left_out(job, members, chosen)
        engine = np.full(len(chosen), np.nan)
        if name in PLAIN:
            engine = engine_left_out(job, members, len(chosen), common(fits, name))
            blind = engine_left_out(job, members, len(chosen), common(fits, name), host_known=False)
            report(f"{name}: engine and its host left out", blind, chosen, range(len(chosen)))
        for gpu in sorted({r.group[1] for r in chosen}):
            report(f"{name}: without {gpu}", cards, chosen, [i for i, r in enumerate(chosen) if r.group[1] == gpu])
        report(f"{name}: every card left out", cards, chosen, range(len(chosen)))
        report(f"{name}: engine left out", engine, chosen, range(len(chosen)))
        for r, a, b in zip(chosen, cards, engine, strict=True):
            figures = f"{r.measured:.6g},{a:.6g},{b:.6g}"
            lines.append(f"{name},{r.id},{r.source},{r.group[0]},{r.group[1]},{r.engine},{r.metric},{figures}")
    if args.rows:
        args.rows.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(label: str, values: Array, chosen: Sequence[Request], which: Sequence[int]) -> None:
    """Print rows, mean and median error of those that have a prediction."""
    pick = [i for i in which if np.isfinite(values[i])]
    rows, mean, median = errors(values[pick], [chosen[i] for i in pick])
    if rows:
        print(f"{label:48s} {rows:5d} rows, mean {mean:5.1f} %, median {median:5.1f} %", flush=True)


if __name__ == "__main__":
    main()
