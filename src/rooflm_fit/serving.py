"""Constants under load: published runs at a concurrency against the simulator, and a fit with priors.

    python -m rooflm_fit.serving PUBLISHED.csv --write

A run is one measurement (TTFT and TPOT together). Constants are those of an engine, and one factor of all device times
and one of prompts a card; never of a row. Groups (model, card) are kept aside by a stable hash of their name.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engines import load_engine
from rooflm.errors import RooflmError
from rooflm.serving.deploy import make_pool, make_server
from rooflm.serving.simulate import Pool
from rooflm.serving.steps import StepTable
from rooflm.serving.workload import Requests
from rooflm.validation.under_load import Case, cases, load, means, options, release, scenario, scored
from rooflm_fit.engine_rows import file_of, retabled, updated, write
from rooflm_fit.serving_constants import BUMP, CARD, LACKS, PRIORS, RELEASE, Constants, Theta, applies, bumped, prior_of

Array = NDArray[np.float64]


def kept_aside(items: Iterable[Case]) -> set[tuple[str, str, str]]:
    """A third of each engine's groups (engine, model, card), by rank of a stable hash: nothing is fitted on them."""
    groups: dict[str, set[tuple[str, str]]] = {}
    for c in items:
        groups.setdefault(c.engine, set()).add(c.group)
    aside = set()
    for engine, own in groups.items():
        ranked = sorted(own, key=lambda g: (zlib.crc32("/".join(g).encode()), g))
        aside |= {(engine, *g) for g in ranked[: round(len(ranked) / 3)]}
    return aside


def outpaced(items: Iterable[Case]) -> set[tuple[str, str, str]]:
    """Groups (engine, model, card) whose prompts are slower than the same model's on a card of less than half the rate.

    Compared at equal GPUs, lengths and clients, with weights at least as wide on the older card; the median of the
    ratios of TTFT is above 1. Something else than the kernels sets their times: they are scored, but nothing is fitted
    on them.
    """
    runs: dict[tuple[Any, ...], dict[tuple[str, float, float], list[float]]] = {}
    for c in items:
        k = c.kwargs
        where = (c.engine, c.group[0], k["tp"] * k["pp"] * k.get("dp", 1), k["prompt"], k["output"], c.concurrency)
        s = scenario(c)
        card = (c.group[1], float(s.cluster.device.peak["bf16"]), float(s.quant.weight_bits))
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


def prepare(case: Case, extra: dict[str, Any] | None = None, requests: int | None = None) -> Prepared:
    """Evaluate the steps of a case, before any constant."""
    s = scenario(case)
    s = replace(s, engine=load_engine(case.engine).but(captured=s.engine.host.captured))
    server = make_server({**options(case), **(extra or {})})
    longest = case.kwargs["prompt"] + case.kwargs["output"]
    return Prepared(case, make_pool(s, server, longest, case.concurrency), load(case, requests))


def predict(p: Prepared, c: Constants) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a case with constants."""
    parts = p.pool.table.components
    table = StepTable(parts, parts.scenario.engine.but(**c))
    server = replace(p.pool.server, request=c["request"], front=c["front"])
    return means(replace(p.pool, table=table, server=server), p.requests)


def start(items: Sequence[Prepared]) -> Theta:
    """All constants at their priors."""
    cards = sorted({p.case.kwargs["gpu"] for p in items})
    releases = sorted({release(p.case) for p in items} - {""})
    engine = items[0].case.engine
    lacks = LACKS.get(engine, ())
    names = (
        *(name for name in PRIORS if name not in lacks),
        *(f"{kind}:{card}" for card in cards for kind in CARD),
        *(f"{kind}@{version}" for version in releases for kind in RELEASE if kind not in lacks),
    )
    return Theta(names, np.zeros(len(names)), engine)


WEIGHTS = (0.6, 1.0)
"""Weight of a TTFT and of a TPOT residual: TTFT scatters more."""


def residuals(items: Sequence[Prepared], theta: Theta) -> Array:
    """log(predicted / measured), (cases, 2)."""
    out = np.zeros((len(items), 2))
    for i, p in enumerate(items):
        ttft, tpot = predict(p, theta.of(p.case))
        out[i] = np.log(ttft / p.case.ttft), np.log(tpot / p.case.tpot)
    return out


class Fitted(NamedTuple):
    """A fit: constants, log residuals (runs, 2), and their derivatives (runs, 2, constants) as last taken."""

    theta: Theta
    now: Array
    slopes: Array


STEPS = 3
"""Gauss-Newton steps with one set of derivatives."""


def weights(items: Sequence[Prepared]) -> Array:
    """Weight of each residual: groups count by the root of the root of their size."""
    size: dict[Any, int] = {}
    for p in items:
        size[p.case.group] = size.get(p.case.group, 0) + 1
    base = np.array([[w / size[p.case.group] ** 0.25 for w in WEIGHTS] for p in items]) / NOISE
    return np.asarray(base * float(np.mean(list(size.values()))) ** 0.25)


def fit(items: Sequence[Prepared], rounds: int = 3, tell: Any = None) -> Fitted:
    """Gauss-Newton with priors and robust weights, from the priors; derivatives are taken anew each round."""
    theta = start(items)
    found = Fitted(theta, residuals(items, theta), np.zeros(0))
    for _ in range(rounds):
        found = improved(items, found._replace(slopes=derivatives(items, found.theta, found.now)), tell)
    return found


def improved(items: Sequence[Prepared], found: Fitted, tell: Any = None) -> Fitted:
    """Steps with the derivatives that are known, until none makes it better."""
    theta, now, slopes = found
    for _ in range(STEPS):
        theta, now, moved = improve(items, theta, now, slopes, weights(items))
        if tell is not None:
            tell(theta, now)
        if not moved:
            break
    return Fitted(theta, now, slopes)


NOISE = 0.12
"""Scatter (log) that a residual is taken to have. Its tails are Cauchy's, so that a group whose kernels are not those
that were measured does not pull the constants of all others."""


def derivatives(items: Sequence[Prepared], theta: Theta, now: Array) -> Array:
    """d residual / d constant, (cases, 2, constants), by one-sided differences.

    A factor of a card or a release has the derivative of the engine's constant that it multiplies.
    """
    slopes = np.zeros((*now.shape, len(theta.names)))
    kinds = [n.partition(":")[0].partition("@")[0] for n in theta.names]
    for i, p in enumerate(items):
        known: dict[str, Array] = {}
        base = theta.of(p.case)
        for j, (name, kind) in enumerate(zip(theta.names, kinds, strict=True)):
            if not applies(name, p.case):
                continue
            if kind not in known:
                prior = PRIORS.get(kind)
                ttft, tpot = predict(p, bumped(base, kind, prior.unit * BUMP if prior and prior.unit else None))
                known[kind] = (np.log([ttft / p.case.ttft, tpot / p.case.tpot]) - now[i]) / BUMP
            slopes[i, :, j] = known[kind]
    return slopes


def improve(
    items: Sequence[Prepared], theta: Theta, now: Array, slopes: Array, base: Array
) -> tuple[Theta, Array, bool]:
    """The best of a full, half and quarter Gauss-Newton step, and whether any was better than none."""
    sigma = np.array([prior_of(n, theta.engine).sigma for n in theta.names])

    def cost(r: Array, moves: Array) -> float:
        soft = np.sum(np.log1p((np.clip(r, -2, 2) * base) ** 2))
        return float(soft + np.sum((moves / sigma) ** 2))

    weight = base / np.sqrt(1 + (now * base) ** 2)
    a = np.concatenate([(slopes * weight[..., None]).reshape(-1, len(sigma)), np.diag(1 / sigma)])
    b = np.concatenate([-(np.clip(now, -2, 2) * weight).ravel(), -theta.logs / sigma])
    move = np.linalg.lstsq(a, b, rcond=None)[0]
    limit = np.where([bool(prior_of(n).unit) for n in theta.names], 3.0, 0.6)
    move = np.clip(move, -limit, limit)
    value = cost(now, theta.logs)
    for share in (1.0, 0.5, 0.25):
        tried = theta._replace(logs=theta.logs + share * move)
        r = residuals(items, tried)
        if cost(r, tried.logs) < value:
            return tried, r, True
    return theta, now, False


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
    """The cases that can run; the others are said on standard error."""
    out = []
    for c in items:
        try:
            out.append(prepare(c))
        except RooflmError as error:
            print(f"{c.id}: {error}", file=sys.stderr)
    return out


def put(text: str, theta: Theta, report: dict[str, float], count: int) -> str:
    """The rows of engines with the constants of one of them, its factors by card and release, and the fit's errors."""
    own = {k: v for k, v in theta.constants("").items() if k != "speed"}
    tables = {"fitted": {"rows": float(count)} | {k: round(v, 1) for k, v in report.items()}}
    moves = dict(zip(theta.names, np.exp(theta.logs).tolist(), strict=True))
    for mark, kind in ((":", "cards"), ("@", "releases")):
        for which in sorted({n.partition(mark)[2] for n in theta.names} - {""}):
            factors = {n.partition(mark)[0]: v for n, v in moves.items() if n.endswith(mark + which)}
            tables[f'{kind}."{which}"'] = factors
    return retabled(updated(text, theta.engine, own), theta.engine, tables)


def by_group(items: Sequence[Prepared], r: Array, aside: set[tuple[str, str, str]]) -> list[str]:
    """The report by release, model and card."""
    keys = sorted({(p.case.version, *p.case.group) for p in items})
    out = []
    for key in keys:
        mask = np.array([(p.case.version, *p.case.group) == key for p in items])
        p = next(q for q in items if (q.case.version, *q.case.group) == key)
        label = "aside " if (p.case.engine, *p.case.group) in aside else "      "
        bias = 100 * (np.exp(np.median(r[mask], axis=0)) - 1)
        out.append(f"  {label}{said(' '.join(key)[:44].ljust(44), r[mask])}  bias {bias[1]:+.0f}, {bias[0]:+.0f}")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit every engine on all groups, then again without those kept aside; report both, and write the file."""
    from rooflm.validation.readers.tables import read_rows  # a leaf above this layer: only when run as a script

    parser = argparse.ArgumentParser(prog="python -m rooflm_fit.serving", description=main.__doc__)
    parser.add_argument("published", help="table of published figures")
    parser.add_argument("--write", action="store_true", help="put the constants into the engines' rows")
    parser.add_argument("--engines", default="vllm,trtllm,sglang")
    parser.add_argument("--rounds", type=int, default=3, help="times that derivatives are taken")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs that the fits look at")
    given = parser.parse_args(arguments)
    every = unique(scored(cases(read_rows(given.published))))
    aside = kept_aside(every)
    for engine in given.engines.split(","):
        began = time.time()
        items = prepared(c for c in every if c.engine == engine)
        odd = outpaced(p.case for p in items)
        looked = [
            p for p in items
            if zlib.crc32(p.case.id.encode()) % 1000 < 1000 * given.share and (engine, *p.case.group) not in odd
        ]  # fmt: skip
        for group in sorted(odd):
            print(f"scored but not fitted, slower than on an older card: {' '.join(group)}")

        def tell(theta: Theta, now: Array, began: float = began) -> None:
            print(f"  {time.time() - began:4.0f} s", said("fitting", now), file=sys.stderr, flush=True)

        whole = fit(looked, given.rounds, tell)
        keep = np.array([(engine, *p.case.group) not in aside for p in looked])
        inside = [p for p, k in zip(looked, keep, strict=True) if k]
        part = fit(inside, given.rounds, tell)
        r, out = residuals(items, part.theta), np.array([(engine, *p.case.group) in aside for p in items])
        print(said(f"{engine} in sample", r[~out]))
        print(said(f"{engine} kept aside", r[out]))
        report = {f"{k}_in": v for k, v in errors(r[~out]).items()} | {f"{k}_out": v for k, v in errors(r[out]).items()}
        r = residuals(items, whole.theta)
        print(said(f"{engine} fitted on all", r))
        print("\n".join(by_group(items, r, aside)), flush=True)
        if given.write:
            path = file_of(engine)
            write(path, put(path.read_text(encoding="utf-8"), whole.theta, report | errors(r), len(items)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
