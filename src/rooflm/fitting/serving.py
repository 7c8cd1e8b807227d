"""Constants under load: published runs at a concurrency against the simulator, and a fit with priors.

A run is one measurement (TTFT and TPOT together). Constants are those of an engine, and one factor of all device times
and one of prompts a card; never of a row. Groups (model, card) are kept aside by a stable hash of their name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.engine import Engine
from rooflm.request import build_inference
from rooflm.scenario import Scenario
from rooflm.serving.deploy import Constants, make_pool, make_server, server_options
from rooflm.serving.simulate import Pool, simulate
from rooflm.serving.steps import StepTable
from rooflm.serving.workload import Requests, closed_loop
from rooflm.validation.request import Outcome, ServeRequest

Array = NDArray[np.float64]
APART = ("mtp-suspect", "anomalous", "precision-unstated", "layout-doubtful")
"""Flags of rows that are scored apart and never fitted."""
IN_STEP = (("sglang", "0.5.6.post2"), ("trtllm", "1.0.0rc3"), ("trtllm", "1.2.0rc6.post1"), ("vllm", "0.12.0"))
"""Campaigns that are not of the benchmark with lengths spread over 0.8 to 1.0 (their runs have other lengths and names)."""


@dataclass(frozen=True)
class Case:
    """One measured run under load: what ran, how many clients, and the measured means (s)."""

    id: str
    kwargs: dict[str, Any]
    group: tuple[str, str]
    engine: str
    version: str
    concurrency: int
    spread: tuple[float, float]
    ttft: float
    tpot: float
    flags: tuple[str, ...]
    facts: tuple[tuple[str, Any], ...] = ()


def kept_aside(items: Iterable[Case]) -> set[tuple[str, str, str]]:
    """A third of each engine's groups (engine, model, card), by rank of a stable hash: no constant is fitted on them."""
    groups: dict[str, set[tuple[str, str]]] = {}
    for c in items:
        groups.setdefault(c.engine, set()).add(c.group)
    aside = set()
    for engine, own in groups.items():
        ranked = sorted(own, key=lambda g: (zlib.crc32("/".join(g).encode()), g))
        aside |= {(engine, *g) for g in ranked[: round(len(ranked) / 3)]}
    return aside


def cases(outcomes: Iterable[Outcome], source: str = "aic") -> list[Case]:
    """Runs of a source that print both TTFT and TPOT, joined from their rows; the same figures twice count once."""
    joined: dict[tuple[Any, ...], dict[str, float]] = {}
    first: dict[tuple[Any, ...], ServeRequest] = {}
    count: dict[tuple[Any, ...], int] = {}
    for r in outcomes:
        if not isinstance(r, ServeRequest) or r.source != source or not r.concurrency:
            continue
        base = (tuple(sorted((k, str(v)) for k, v in r.kwargs.items())), r.concurrency, r.spread, r.flags)
        base = (*base, tuple(sorted(r.facts.items())))
        # repeats of one configuration follow each other: the n-th TTFT belongs to the n-th TPOT
        turn = count[(*base, r.metric)] = count.get((*base, r.metric), 0) + 1
        joined.setdefault((*base, turn), {})[r.metric] = r.measured
        first.setdefault((*base, turn), r)
    out = []
    for key, values in joined.items():
        if {"ttft", "tpot"} <= set(values):
            r = first[key]
            kwargs = {k: v for k, v in r.kwargs.items() if k not in ("engine", "engine_version", "gpus")}
            out.append(
                Case(r.id, kwargs, r.group, str(r.kwargs["engine"]), str(r.kwargs.get("engine_version", "")),
                     int(r.concurrency or 1), r.spread, values["ttft"], values["tpot"], r.flags,
                     tuple(sorted(r.facts.items())))
            )  # fmt: skip
    return out


def options(case: Case) -> dict[str, Any]:
    """Server options of a published run, from the engines' documentation and the campaign's scripts: TensorRT-LLM's
    token budget is max(8192, prompt + concurrency + 64)."""
    found = server_options(case.engine, case.kwargs["gpu"])
    if case.engine == "trtllm":
        found["budget"] = max(8192, case.kwargs["prompt"] + case.concurrency + 64)
    return found


def cache_type(case: Case) -> str | None:
    """The scheme with the cache's type: TensorRT-LLM and vLLM ran quantised checkpoints with an fp8 cache."""
    quant = case.kwargs["quant"]
    narrow = quant is not None and quant.startswith(("fp8", "nvfp4"))
    return f"{quant}kv8" if narrow and "kv" not in quant and case.engine != "sglang" else quant


def scenario(case: Case) -> Scenario:
    """The scenario of a run."""
    kwargs = {k: v for k, v in case.kwargs.items() if v is not None} | {"quant": cache_type(case)}
    return build_inference(**kwargs, batch=case.kwargs.get("dp", 1), engine=case.engine).scenario


def load(case: Case, requests: int | None = None) -> Requests:
    """The load of a run: ten requests a client, lengths spread as in the campaign."""
    k = case.kwargs
    return closed_loop(case.concurrency, requests or 10 * case.concurrency, k["prompt"], k["output"], case.spread, seed=1)


class Prepared(NamedTuple):
    """A case with its pool (step components are evaluated once) and its load."""

    case: Case
    pool: Pool
    requests: Requests


def prepare(case: Case, extra: dict[str, Any] | None = None, requests: int | None = None) -> Prepared:
    """Evaluate the steps of a case, before any constant."""
    s = scenario(case)
    server = make_server({**options(case), **(extra or {})})
    longest = case.kwargs["prompt"] + case.kwargs["output"]
    return Prepared(case, make_pool(s, server, longest, case.concurrency, constants=Constants({})), load(case, requests))


def predict(p: Prepared, c: Constants) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a case with constants."""
    parts = p.pool.table.components
    engine = replace(parts.scenario.engine, **{k: v for k, v in c.engine.items() if k != "request"})
    server = replace(p.pool.server, request=c.engine.get("request", 0.0), front=c.front)
    pool = replace(p.pool, table=StepTable(parts, engine, c.speed, c.prefill), server=server)
    records = simulate(p.requests, (pool,)).records
    first, end, sent = (np.frombuffer(x, dtype=float) for x in (records.first, records.end, records.arrival))
    steps = np.maximum(np.asarray(records.output) - 1, 1)
    return float(np.nanmean(first - sent)), float(np.nanmean((end - first) / steps))


def scored(items: Sequence[Case]) -> list[Case]:
    """Runs without a flag that sets them apart."""
    return [c for c in items if not set(c.flags) & set(APART)]


class Prior(NamedTuple):
    """A constant's expected value and how far (log) it may be from it."""

    value: float
    sigma: float


PRIORS = {
    "request": Prior(0.03, 0.5), "front": Prior(0.0015, 0.5), "step": Prior(0.3e-3, 0.7), "sequence": Prior(3e-6, 0.7),
    "gap": Prior(0.7e-6, 0.5), "collective_factor": Prior(1.0, 0.5), "gemm_factor": Prior(1.0, 0.2),
    "decode_factor": Prior(1.0, 0.25), "moe_factor": Prior(1.0, 0.25), "stream_factor": Prior(1.0, 0.4),
    "prompt": Prior(1.0, 0.3),
}  # fmt: skip
"""Constants of an engine."""
CARD = {"speed": Prior(1.0, 0.08), "prefill": Prior(1.0, 0.15)}
"""Constants of a card, beside the engine's."""


class Theta(NamedTuple):
    """What is fitted: names (an engine's constant, or kind:card) and logs of value over prior."""

    names: tuple[str, ...]
    logs: Array

    def constants(self, gpu: str) -> Constants:
        """The constants of a card."""
        value = {n: float(v) for n, v in zip(self.names, np.exp(self.logs), strict=True)}
        own = {n: PRIORS[n].value * v for n, v in value.items() if n in PRIORS}
        known = {f.name for f in fields(Engine)}
        engine = {k: v for k, v in own.items() if k in known}
        prefill = own.get("prompt", 1.0) * value.get(f"prefill:{gpu}", 1.0)
        return Constants(engine, own.get("front", 0.0), value.get(f"speed:{gpu}", 1.0), prefill)


def start(items: Sequence[Prepared]) -> Theta:
    """All constants at their priors."""
    cards = sorted({p.case.kwargs["gpu"] for p in items})
    names = (*PRIORS, *(f"{kind}:{card}" for card in cards for kind in CARD))
    return Theta(names, np.zeros(len(names)))


WEIGHTS = (0.6, 1.0)
"""Weight of a TTFT and of a TPOT residual: TTFT scatters more."""


def residuals(items: Sequence[Prepared], theta: Theta) -> Array:
    """log(predicted / measured), (cases, 2)."""
    out = np.zeros((len(items), 2))
    for i, p in enumerate(items):
        ttft, tpot = predict(p, theta.constants(p.case.kwargs["gpu"]))
        out[i] = np.log(ttft / p.case.ttft), np.log(tpot / p.case.tpot)
    return out


def fit(items: Sequence[Prepared], rounds: int = 4, tell: Any = None) -> Theta:
    """Gauss-Newton with priors and soft-L1 weights; groups count by the root of their size."""
    theta = start(items)
    size: dict[Any, int] = {}
    for p in items:
        size[p.case.group] = size.get(p.case.group, 0) + 1
    base = np.array([[w / size[p.case.group] ** 0.25 for w in WEIGHTS] for p in items])
    sigma = np.array([PRIORS[n].sigma if n in PRIORS else CARD[n.split(":")[0]].sigma for n in theta.names])
    noise = 0.12
    bump = 0.08
    now = residuals(items, theta)
    for _ in range(rounds):
        jacobian = np.zeros((*now.shape, len(theta.names)))
        for j, name in enumerate(theta.names):
            logs = theta.logs.copy()
            logs[j] += bump
            moved = Theta(theta.names, logs)
            card = name.partition(":")[2]
            for i, p in enumerate(items):
                if card and p.case.kwargs["gpu"] != card:
                    continue
                ttft, tpot = predict(p, moved.constants(p.case.kwargs["gpu"]))
                jacobian[i, :, j] = (np.log([ttft / p.case.ttft, tpot / p.case.tpot]) - now[i]) / bump
        theta, now = _improve(items, theta, now, jacobian, base / noise, sigma)
        if tell is not None:
            tell(theta, now)
    return theta


def _improve(items: Sequence[Prepared], theta: Theta, now: Array, jacobian: Array, base: Array, sigma: Array) -> tuple[Theta, Array]:
    """The best of a full, half and quarter Gauss-Newton step."""

    def cost(r: Array, logs: Array) -> float:
        return float(np.sum(2 * (np.sqrt(1 + (np.clip(r, -2, 2) * base) ** 2) - 1)) + np.sum((logs / sigma) ** 2))

    weight = base / (1 + (now * base) ** 2) ** 0.25
    a = np.concatenate([(jacobian * weight[..., None]).reshape(-1, len(sigma)), np.diag(1 / sigma)])
    b = np.concatenate([-(now * weight).ravel(), -theta.logs / sigma])
    move = np.clip(np.linalg.lstsq(a, b, rcond=None)[0], -0.7, 0.7)
    best, value = (theta, now), cost(now, theta.logs)
    for share in (1.0, 0.5, 0.25):
        tried = Theta(theta.names, theta.logs + share * move)
        r = residuals(items, tried)
        if cost(r, tried.logs) < value:
            return tried, r
    return best
