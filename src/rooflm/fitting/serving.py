"""Constants under load: published runs at a concurrency against the simulator, and a fit with priors.

A run is one measurement (TTFT and TPOT together). Constants are those of an engine, and one factor of all device times
and one of prompts a card; never of a row. Groups (model, card) are kept aside by a stable hash of their name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.engine import Engine
from rooflm.serving.deploy import Constants, make_pool, make_server
from rooflm.serving.published import Case, load, means, options, scenario
from rooflm.serving.simulate import Pool
from rooflm.serving.steps import StepTable
from rooflm.serving.workload import Requests

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
    return Prepared(
        case, make_pool(s, server, longest, case.concurrency, constants=Constants({})), load(case, requests)
    )


def predict(p: Prepared, c: Constants) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a case with constants."""
    parts = p.pool.table.components
    overrides: dict[str, Any] = {k: v for k, v in c.engine.items() if k != "request"}
    engine = replace(parts.scenario.engine, **overrides)
    server = replace(p.pool.server, request=c.engine.get("request", 0.0), front=c.front)
    pool = replace(p.pool, table=StepTable(parts, engine, c.speed, c.prefill), server=server)
    return means(pool, p.requests)


class Prior(NamedTuple):
    """A constant's expected value and how far it may be from it: in log, or in steps of `unit` where that is above 0
    (constants that may be negative)."""

    value: float
    sigma: float
    unit: float = 0.0

    def at(self, move: float) -> float:
        """The constant `move` away from its expected value.

        >>> Prior(2.0, 1.0).at(0.0), Prior(-1.0, 2.0, 0.5).at(4.0)
        (2.0, 1.0)
        """
        return self.value + self.unit * move if self.unit else self.value * float(np.exp(move))


PRIORS = {
    "request": Prior(0.03, 0.5), "front": Prior(0.0015, 0.5), "step": Prior(0.3e-3, 0.7), "sequence": Prior(3e-6, 0.7),
    "gap": Prior(-0.5e-6, 4.0, 0.5e-6), "collective_factor": Prior(1.0, 0.5), "gemm_factor": Prior(1.0, 0.2),
    "decode_factor": Prior(1.0, 0.25), "moe_factor": Prior(1.0, 0.25), "stream_factor": Prior(1.0, 0.4),
    "prompt": Prior(1.0, 0.3),
}  # fmt: skip
"""Constants of an engine. gap may be negative: kernels measured alone carry launch time that a CUDA graph hides."""
CARD = {"speed": Prior(1.0, 0.08), "prefill": Prior(1.0, 0.15)}
"""Constants of a card, beside the engine's."""
RELEASE = {"request": Prior(1.0, 0.5), "prompt": Prior(1.0, 0.3), "speed": Prior(1.0, 0.1)}
"""Constants of a release, beside the engine's."""
RELEASES = ("1.0.0rc3",)
"""Releases with enough groups of their own."""


def prior_of(name: str) -> Prior:
    """The prior of an engine's constant, of `kind:card` or of `kind@release`."""
    kind, at, _ = name.partition("@")
    return RELEASE[kind] if at else PRIORS[name] if name in PRIORS else CARD[name.partition(":")[0]]


class Theta(NamedTuple):
    """What is fitted: names (an engine's constant, or kind:card) and logs of value over prior."""

    names: tuple[str, ...]
    logs: Array

    def constants(self, gpu: str, release: str = "") -> Constants:
        """The constants of a card and a release."""
        moves = dict(zip(self.names, self.logs.tolist(), strict=True))
        own = {n: PRIORS[n].at(v) for n, v in moves.items() if n in PRIORS}
        value = {n: float(np.exp(v)) for n, v in moves.items() if n not in PRIORS}
        known = {f.name for f in fields(Engine)}
        engine: dict[str, Any] = {k: v for k, v in own.items() if k in known}
        engine["request"] *= value.get(f"request@{release}", 1.0)
        prefill = own.get("prompt", 1.0) * value.get(f"prefill:{gpu}", 1.0) * value.get(f"prompt@{release}", 1.0)
        speed = value.get(f"speed:{gpu}", 1.0) * value.get(f"speed@{release}", 1.0)
        return Constants(engine, own.get("front", 0.0), speed, prefill)


def start(items: Sequence[Prepared]) -> Theta:
    """All constants at their priors."""
    cards = sorted({p.case.kwargs["gpu"] for p in items})
    releases = sorted({p.case.version for p in items} & set(RELEASES))
    names = (
        *PRIORS,
        *(f"{kind}:{card}" for card in cards for kind in CARD),
        *(f"{kind}@{release}" for release in releases for kind in RELEASE),
    )
    return Theta(names, np.zeros(len(names)))


WEIGHTS = (0.6, 1.0)
"""Weight of a TTFT and of a TPOT residual: TTFT scatters more."""


def residuals(items: Sequence[Prepared], theta: Theta) -> Array:
    """log(predicted / measured), (cases, 2)."""
    out = np.zeros((len(items), 2))
    for i, p in enumerate(items):
        ttft, tpot = predict(p, theta.constants(p.case.kwargs["gpu"], p.case.version))
        out[i] = np.log(ttft / p.case.ttft), np.log(tpot / p.case.tpot)
    return out


def fit(items: Sequence[Prepared], rounds: int = 4, tell: Any = None) -> Theta:
    """Gauss-Newton with priors and soft-L1 weights; groups count by the root of their size."""
    theta = start(items)
    size: dict[Any, int] = {}
    for p in items:
        size[p.case.group] = size.get(p.case.group, 0) + 1
    base = np.array([[w / size[p.case.group] ** 0.25 for w in WEIGHTS] for p in items])
    sigma = np.array([prior_of(n).sigma for n in theta.names])
    noise = 0.12
    bump = 0.08
    now = residuals(items, theta)
    for _ in range(rounds):
        jacobian = np.zeros((*now.shape, len(theta.names)))
        for j, name in enumerate(theta.names):
            logs = theta.logs.copy()
            logs[j] += bump
            moved = Theta(theta.names, logs)
            card, release = name.partition(":")[2], name.partition("@")[2]
            for i, p in enumerate(items):
                if (card and p.case.kwargs["gpu"] != card) or (release and p.case.version != release):
                    continue
                ttft, tpot = predict(p, moved.constants(p.case.kwargs["gpu"], p.case.version))
                jacobian[i, :, j] = (np.log([ttft / p.case.ttft, tpot / p.case.tpot]) - now[i]) / bump
        theta, now = _improve(items, theta, now, jacobian, base / noise, sigma)
        if tell is not None:
            tell(theta, now)
    return theta


def _improve(
    items: Sequence[Prepared], theta: Theta, now: Array, jacobian: Array, base: Array, sigma: Array
) -> tuple[Theta, Array]:
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
