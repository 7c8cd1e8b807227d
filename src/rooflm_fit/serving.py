"""Constants under load: published runs at a concurrency against the simulator, and a fit with priors.

    python -m rooflm_fit.serving PUBLISHED.csv --write

A run is one measurement (TTFT and TPOT together). Constants are those of an engine or of all engines; never of a card,
a release, a model or a row. What the fit is worth is said by leaving out: each model, each card and each release in
turn is predicted by constants fitted without it. The refits take the derivatives of the fit on all; the predictions are
simulated.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.serving.simulate import Pool
from rooflm.serving.steps import StepTable
from rooflm.serving.workload import Requests
from rooflm.validation.under_load import deployment, scenario
from rooflm_fit.engine_rows import file_of, retabled, updated, write
from rooflm_fit.runs import Case, cases, means, read
from rooflm_fit.serving_constants import BUMP, Constants, Theta, start

Array = NDArray[np.float64]


def outpaced(items: Iterable[Case]) -> set[tuple[str, str, str]]:
    """Groups (engine, model, card) whose prompts are slower than the same model's on a card of less than half the rate.

    Compared at equal GPUs, lengths and clients, with weights at least as wide on the older card; the median of the
    ratios of TTFT is above 1. Something else than the kernels sets their times: they are scored, but nothing is fitted
    on them.
    """
    runs: dict[tuple[Any, ...], dict[tuple[str, float, float], list[float]]] = {}
    for c in items:
        k = c.kwargs
        ranks = k.get("tp", 1) * k.get("pp", 1) * k.get("dp", 1)
        where = (c.engine, c.group[0], ranks, k["prompt"], k["output"], c.concurrency)
        s = scenario(c.request)
        card = (c.group[1], float(s.cluster.device.half_peak), float(s.quant.weight_bits))
        runs.setdefault(where, {}).setdefault(card, []).append(c.ttft)
    ratios: dict[tuple[str, str, str], list[float]] = {}
    for where, cards in runs.items():
        for (new, rate, bits), own in cards.items():
            for (_, slower, wider), older in cards.items():
                if 2 * slower <= rate and bits <= wider:
                    ratios.setdefault((where[0], where[1], new), []).append(float(np.mean(own) / np.mean(older)))
    return {group for group, found in ratios.items() if np.median(found) > 1}


class Prepared(NamedTuple):
    """A case with its pool (step components are evaluated once) and its load."""

    case: Case
    pool: Pool
    requests: Requests


def predict(p: Prepared, c: Constants) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a case with constants."""
    parts = p.pool.table.components
    table = StepTable(parts, parts.scenario.engine.but(**c), p.pool.server.wait_steps > 0)
    server = replace(p.pool.server, request=c["request"], front=c["front"], tokenise=c["tokenise"])
    return means(replace(p.pool, table=table, server=server), p.requests)


WEIGHTS = (0.6, 1.0)
"""Weight of a TTFT and of a TPOT residual: TTFT scatters more."""
NOISE = 0.12
"""Scatter (log) that a residual is taken to have. Its tails are Cauchy's, so that a group whose kernels are not those
that were measured does not pull the constants of all others."""
MOST = 14
"""Runs of a release, model and card that a fit looks at; more do not move it."""


def residuals(items: Sequence[Prepared], theta: Theta) -> Array:
    """log(predicted / measured), (cases, 2)."""
    out = np.zeros((len(items), 2))
    for i, p in enumerate(items):
        ttft, tpot = predict(p, theta.constants(p.case.engine))
        out[i] = np.log(ttft / p.case.ttft), np.log(tpot / p.case.tpot)
    return out


def weights(items: Sequence[Prepared]) -> Array:
    """Weight of each residual: every group (model and card) of an engine counts alike."""
    size = Counter((p.case.engine, *p.case.group) for p in items)
    base = np.array([[w / size[p.case.engine, *p.case.group] ** 0.5 for w in WEIGHTS] for p in items]) / NOISE
    return np.asarray(base * float(np.mean(list(size.values()))) ** 0.5)


class Fitted(NamedTuple):
    """A fit: constants, and log residuals (runs, 2) with their derivatives (runs, 2, constants) where last taken."""

    theta: Theta
    at: Theta
    then: Array
    slopes: Array


def solved(weight: Array, at: Theta, then: Array, slopes: Array) -> Theta:
    """The constants at which the linear residuals then + slopes (logs - at) and the priors are smallest, by reweighting
    for Cauchy's tails."""
    logs = at.logs
    for _ in range(6):
        now = then + slopes @ (logs - at.logs)
        w = weight / np.sqrt(1 + (np.clip(now, -2, 2) * weight) ** 2)
        a = np.concatenate([(slopes * w[..., None]).reshape(-1, len(logs)), np.diag(1 / at.sigma)])
        goal = slopes @ at.logs - np.clip(then, -2, 2)
        b = np.concatenate([(goal * w).ravel(), np.zeros(len(logs))])
        logs = logs + np.clip(np.linalg.lstsq(a, b, rcond=None)[0] - logs, -0.7, 0.7)
    return at._replace(logs=logs)


def fit(items: Sequence[Prepared], rounds: int = 2, tell: Callable[[Array], None] | None = None) -> Fitted:
    """Gauss-Newton from the priors; derivatives (one-sided differences) are taken anew each round."""
    theta = start(sorted({p.case.engine for p in items}))
    found = Fitted(theta, theta, np.zeros(0), np.zeros(0))
    for _ in range(rounds):
        now = residuals(items, theta)
        if tell is not None:
            tell(now)
        slopes = np.zeros((*now.shape, len(theta.names)))
        for j, (engine, _) in enumerate(theta.names):
            on = [i for i, p in enumerate(items) if engine in ("", p.case.engine)]
            slopes[on, :, j] = (residuals([items[i] for i in on], theta.bumped(j)) - now[on]) / BUMP
        found = Fitted(solved(weights(items), theta, now, slopes), theta, now, slopes)
        theta = found.theta
    return found


KINDS: dict[str, Callable[[Case], Hashable]] = {
    "model": lambda c: c.group[0], "card": lambda c: c.group[1], "release": lambda c: c.release,
}  # fmt: skip
"""What is left out whole, in turn."""


def left_out(items: Sequence[Prepared], looked: Sequence[int], found: Fitted, kind: str) -> Array:
    """Residuals of all items, each predicted by constants fitted to those looked at less all of its kind."""
    labels = [KINDS[kind](p.case) for p in items]
    out = np.zeros((len(items), 2))
    for label in set(labels):
        kept = [i for i, j in enumerate(looked) if labels[j] != label]
        rest = [items[looked[i]] for i in kept]
        theta = solved(weights(rest), found.at, found.then[kept], found.slopes[kept]) if rest else start(ENGINES)
        mask = [i for i, own in enumerate(labels) if own == label]
        out[mask] = residuals([items[i] for i in mask], theta)
    return out


def errors(r: Array) -> dict[str, float]:
    """Mean and median absolute error in per cent of TPOT and TTFT."""
    e = 100 * np.abs(np.exp(r) - 1)
    return {
        "tpot_mean": float(e[:, 1].mean()), "tpot_median": float(np.median(e[:, 1])),
        "ttft_mean": float(e[:, 0].mean()), "ttft_median": float(np.median(e[:, 0])),
    }  # fmt: skip


def said(label: str, r: Array) -> str:
    """A line of the report."""
    e = errors(r)
    return (
        f"{label:22} {len(r):4} runs  TPOT {e['tpot_mean']:5.1f}/{e['tpot_median']:4.1f} %  "
        f"TTFT {e['ttft_mean']:5.1f}/{e['ttft_median']:4.1f} %"
    )


def unique(items: Iterable[Case]) -> list[Case]:
    """Runs less those filed twice (the same figures of one model and card under two names)."""
    seen: set[Any] = set()
    out = []
    for c in items:
        key = (c.group, round(c.ttft, 5), round(c.tpot, 6))
        if key not in seen:
            seen.add(key)
            out.append(c)
    return out


def prepared(items: Iterable[Case]) -> list[Prepared]:
    """The cases that can run, their steps evaluated: the constants of their engine are put in place of the shipped ones
    afterwards. The others are said on standard error."""
    out = []
    for c in items:
        try:
            found, load = deployment(c.request)
            out.append(Prepared(c, found.pools[-1], load))
        except RooflmError as error:
            print(f"{c.id}: {error}", file=sys.stderr)
    return out


def thinned(items: Sequence[Prepared], odd: set[tuple[str, str, str]], most: int = MOST) -> list[int]:
    """Which items a fit looks at: at most so many runs of each group (`fewest`), and none of an odd one."""
    kept = {c.id for c in fewest((p.case for p in items if (p.case.engine, *p.case.group) not in odd), most)}
    return [i for i, p in enumerate(items) if p.case.id in kept]


def put(text: str, engine: str, c: Constants, report: dict[str, float], count: int) -> str:
    """The rows of engines with the constants of one of them and the fit's errors."""
    fitted = {"rows": float(count)} | {k: round(v, 1) for k, v in report.items()}
    return retabled(updated(text, engine, c), engine, {"fitted": fitted})


def by_group(items: Sequence[Prepared], r: Array) -> list[str]:
    """The report by release, model and card."""
    out = []
    for key in sorted({(p.case.release, *p.case.group) for p in items}):
        mask = np.array([(p.case.release, *p.case.group) == key for p in items])
        bias = 100 * (np.exp(np.median(r[mask], axis=0)) - 1)
        out.append(f"  {said(' '.join(key)[:56].ljust(56), r[mask])}  bias {bias[1]:+.0f}, {bias[0]:+.0f}")
    return out


def fewest(every: Iterable[Case], most: int) -> list[Case]:
    """At most so many runs of each release, model and card, by a stable hash: no campaign outweighs the others."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for c in every:
        groups.setdefault((c.release, *c.group), []).append(c)
    ranked = (sorted(own, key=lambda c: zlib.crc32(c.id.encode())) for own in groups.values())
    return sorted((c for own in ranked for c in own[:most]), key=lambda c: c.id)


ROW = ("id", "engine", "release", "model", "gpu", "fitted", "aside", "ttft", "tpot")
"""Columns of the file of --rows: what was left out whole ("" for nothing), and predicted over measured time."""


def rows_of(items: Sequence[Prepared], kept: NDArray[np.bool_], kind: str, r: Array) -> list[tuple[str, ...]]:
    """Each run's errors as cells of ROW."""
    return [
        (p.case.id, p.case.engine, p.case.release, *p.case.group, "yes" if ok else "", kind, f"{a:.5g}", f"{b:.5g}")
        for p, ok, (a, b) in zip(items, kept, np.exp(r), strict=True)
    ]


class Report(NamedTuple):
    """A fit: its constants, by engine its errors (in sample, and by what was left out) and runs, and cells of ROW."""

    theta: Theta
    errors: dict[str, dict[str, float]]
    runs: dict[str, int]
    rows: list[tuple[str, ...]]


def fit_all(every: Sequence[Case], rounds: int) -> Report:
    """Fit all engines to all groups, leave out models, cards and releases in turn, and print both."""
    began = time.time()
    items = prepared(every)
    odd = outpaced(p.case for p in items)
    for group in sorted(odd):
        print(f"scored but not fitted, slower than on an older card: {' '.join(group)}")
    looked = thinned(items, odd)

    def tell(now: Array) -> None:
        print(f"  {time.time() - began:4.0f} s", said("fitting", now), file=sys.stderr, flush=True)

    found = fit([items[i] for i in looked], rounds, tell)
    kept = np.array([(p.case.engine, *p.case.group) not in odd for p in items])
    of = {e: np.array([p.case.engine == e for p in items]) & kept for e in sorted({p.case.engine for p in items})}
    report: dict[str, dict[str, float]] = {e: {} for e in of}
    rows: list[tuple[str, ...]] = []
    for kind in ("", *KINDS):
        r = left_out(items, looked, found, kind) if kind else residuals(items, found.theta)
        label = f"{kind} left out" if kind else "in sample"
        for engine, own in of.items():
            print(said(f"{engine}, {label}", r[own]))
            report[engine] |= {f"{k}_{kind}" if kind else k: v for k, v in errors(r[own]).items()}
        print(said(f"all, {label}", r[kept]))
        if not kept.all():
            print(said("    with what is not fitted", r))
        if kind == "model":
            print("\n".join(by_group(items, r)), flush=True)
        rows += rows_of(items, kept, kind, r)
    return Report(found.theta, report, {e: int(own.sum()) for e, own in of.items()}, rows)


ENGINES = ("vllm", "trtllm", "sglang")
"""Engines that have runs in a closed loop."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the engines, report what that is worth on what is left out whole, and write the rows."""
    parser = argparse.ArgumentParser(prog="python -m rooflm_fit.serving", description=main.__doc__)
    parser.add_argument("published", help="table of published figures")
    parser.add_argument("--write", action="store_true", help="put the constants into the engines' rows")
    parser.add_argument("--rounds", type=int, default=2, help="times that derivatives are taken")
    parser.add_argument("--most", type=int, default=10**6, help="runs of a release, model and card that are read")
    parser.add_argument("--rows", help="file to write each run's errors to, for docs/accuracy.md")
    given = parser.parse_args(arguments)
    every = unique(cases(read(given.published)))
    mine = {e: fewest((c for c in every if c.engine == e), given.most) for e in ENGINES}
    found = fit_all([c for own in mine.values() for c in own], given.rounds)
    for engine in ENGINES if given.write else ():
        path = file_of(engine)
        report = (found.theta.constants(engine), found.errors[engine], found.runs[engine])
        write(path, put(path.read_text(encoding="utf-8"), engine, *report))
    if given.rows:
        with Path(given.rows).open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows([ROW, *found.rows])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
