"""Published runs under load as simulations: which options each ran with, and what the simulator says of it.

Options come from the engines' documentation and the published benchmark scripts, never from the figures themselves.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from rooflm.catalogue.devices import load_device
from rooflm.catalogue.engines import at_release, load_engine
from rooflm.errors import RooflmError
from rooflm.scenario.build_inference import build_inference
from rooflm.scenario.scenario import Scenario
from rooflm.serving.deploy import make_pool, make_server, server_options
from rooflm.serving.server import Server
from rooflm.serving.simulate import Pool, simulate
from rooflm.serving.workload import Requests, closed_loop, open_loop
from rooflm.validation.request import ServeRequest

APART = ("mtp-suspect", "anomalous", "precision-unstated", "layout-doubtful")
"""Flags of rows that are scored apart and never fitted."""


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


def cases(outcomes: Iterable[Any], source: str = "aic") -> list[Case]:
    """Runs of a source that print both TTFT and TPOT, joined from their rows; the same figures twice count once."""
    joined: dict[tuple[Any, ...], dict[str, float]] = {}
    first: dict[tuple[Any, ...], Any] = {}
    count: dict[tuple[Any, ...], int] = {}
    for r in outcomes:
        if getattr(r, "source", "") != source or not getattr(r, "concurrency", None):
            continue
        base: tuple[Any, ...] = (
            tuple(sorted((k, str(v)) for k, v in r.kwargs.items())),
            r.concurrency,
            r.spread,
            r.flags,
        )
        base = (*base, tuple(sorted(r.facts.items())))
        # repeats of one configuration follow each other: the n-th TTFT belongs to the n-th TPOT
        turn = count[(*base, r.metric)] = count.get((*base, r.metric), 0) + 1
        joined.setdefault((*base, turn), {})[r.metric] = r.measured
        first.setdefault((*base, turn), r)
    out = []
    for key, values in joined.items():
        if {"ttft", "tpot"} <= set(values):
            r = first[key]
            version = str(r.kwargs.get("engine_version", ""))
            kwargs = {k: v for k, v in r.kwargs.items() if k not in ("engine", "engine_version", "gpus")}
            facts = tuple(sorted(r.facts.items()))
            out.append(
                Case(
                    *(r.id, kwargs, r.group, str(r.kwargs["engine"]), version, int(r.concurrency), r.spread),
                    *(values["ttft"], values["tpot"], r.flags, facts),
                )
            )
    return out


@lru_cache
def recipes() -> list[dict[str, Any]]:
    """What the scripts of published campaigns set (data/calibration/serving.toml)."""
    text = resources.files("rooflm").joinpath("data/calibration/serving.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["recipe"]
    return found


def recipe(case: Case) -> dict[str, Any]:
    """What the script of a run's campaign sets (data/calibration/serving.toml, [[recipe]]): the first row that fits its
    engine, release, model, card, weight type, lengths and tensor group; nothing where none does."""
    k = case.kwargs
    lengths = f"{k['prompt']}x{k['output']}"
    for row in recipes():
        fits = (
            row["engine"] == case.engine
            and case.version in row.get("releases", case.version).split(" ")
            and case.group[0].startswith(tuple(row.get("models", case.group[0]).split(" ")))
            and k["gpu"].startswith(tuple(row.get("cards", k["gpu"]).split(" ")))
            and str(k["quant"]).startswith(row.get("weights", ""))
            and row.get("lengths", lengths) == lengths
            and k["tp"] < row.get("below", math.inf)
            and row.get("facts", {}).items() <= dict(case.facts).items()
        )
        if fits:
            return dict(row)
    return {}


def amount(text: Any, case: Case) -> Any:
    """A number of a recipe: itself, or a sum of clients, prompt, output and whole numbers; polls: SGLang's
    --scheduler-recv-interval as its recipes set it, 10 and from 16 clients on 30."""
    if not isinstance(text, str):
        return text
    known = {
        "clients": case.concurrency,
        "prompt": case.kwargs["prompt"],
        "output": case.kwargs["output"],
        "polls": 10 if case.concurrency < 16 else 30,
    }
    terms = text.split(" + ")
    if not all(t in known or t.isdigit() for t in terms):
        return text
    return sum(known[t] if t in known else int(t) for t in terms)


def options(case: Case) -> dict[str, Any]:
    """Server options of a published run: the engine's documentation, then its campaign's script."""
    own = {name: amount(value, case) for name, value in recipe(case).get("options", {}).items()}
    least = own.pop("least", 0)
    found = server_options(load_engine(case.engine), load_device(case.kwargs["gpu"])) | own
    return found | {"budget": max(found["budget"], least)}


def release(case: Case) -> str:
    """The engine's release: as printed with the run, or that of its campaign's image."""
    return case.version or str(recipe(case).get("release", ""))


def cache_type(case: Case) -> str | None:
    """The scheme with the cache's type: that of the campaign's script; else fp8 where TensorRT-LLM and vLLM run a
    quantised checkpoint, and 16 bits in SGLang."""
    quant = case.kwargs["quant"]
    if quant is None or "kv" in quant:
        return quant
    usual = "kv8" if case.engine != "sglang" and quant.startswith(("fp8", "nvfp4")) else ""
    return f"{quant}{recipe(case).get('kv', usual)}"


def scenario(case: Case) -> Scenario:
    """The scenario of a run, with the constants of its release."""
    kwargs = {k: v for k, v in case.kwargs.items() if v is not None} | {"quant": cache_type(case)}
    s = build_inference(
        **kwargs, batch=case.kwargs.get("dp", 1), engine=at_release(case.engine, release(case))
    ).scenario
    return replace(s, engine=s.engine.but(captured=recipe(case).get("captured", s.engine.host.captured)))


def load(case: Case, requests: int | None = None) -> Requests:
    """The load of a run: ten requests a client, lengths spread as in the campaign."""
    k = case.kwargs
    return closed_loop(
        case.concurrency, requests or 10 * case.concurrency, k["prompt"], k["output"], case.spread, seed=1
    )


def scored(items: Sequence[Case]) -> list[Case]:
    """Runs without a flag that sets them apart."""
    return [c for c in items if not set(c.flags) & set(APART)]


def means(pool: Pool, requests: Requests) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a load on one replica."""
    records = simulate(requests, (pool,)).records
    first, end, sent = (np.frombuffer(x, dtype=float) for x in (records.first, records.end, records.arrival))
    steps = np.maximum(np.asarray(records.output) - 1, 1)
    return float(np.nanmean(first - sent)), float(np.nanmean((end - first) / steps))


def server_of(case: Case, s: Scenario) -> Server:
    """The server of a run."""
    return make_server({"request": float(s.engine.host.request), "front": float(s.engine.host.front), **options(case)})


def predict_case(case: Case) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a run with the shipped constants. Raises RooflmError where it cannot run."""
    s = scenario(case)
    server = server_of(case, s)
    longest = case.kwargs["prompt"] + case.kwargs["output"]
    return means(make_pool(s, server, longest, case.concurrency), load(case))


MOST = 1024
"""Clients that stand for maximum load where a source states no concurrency."""


def figures(request: Any) -> dict[str, float]:
    """What the simulator says of a validation.ServeRequest, whichever metric it holds, in SI: ttft, tpot (means, s) and
    output_tokens_per_s (all GPUs).

    Closed loop at its concurrency; open loop at its rate; neither: as many clients as the KV memory and the running
    limit hold (at most 1024). Raises RooflmError where it cannot run.
    """
    kwargs = {k: v for k, v in request.kwargs.items() if k not in ("engine", "engine_version", "gpus")}
    engine = str(request.kwargs.get("engine", "vllm"))
    case = Case(
        request.id, kwargs, request.group, engine, str(request.kwargs.get("engine_version", "")),
        int(request.concurrency or MOST), request.spread, 0.0, 0.0, request.flags, tuple(sorted(request.facts.items())),
    )  # fmt: skip
    prompt, output = kwargs["prompt"], kwargs["output"]
    if request.concurrency:
        ttft, tpot = predict_case(case)
        rate = case.concurrency * output / (ttft + tpot * (output - 1))
        return {"ttft": ttft, "tpot": tpot, "output_tokens_per_s": rate}
    s = scenario(case)
    pool = make_pool(s, server_of(case, s), prompt + output, MOST)
    if request.rate:
        sent = open_loop(request.rate, int(request.requests or 500), prompt, output, request.spread, 1)
    else:
        sent = closed_loop(MOST, int(request.requests or 3 * MOST), prompt, output, request.spread, 1)
    ttft, tpot = means(pool, sent)
    rate = float(np.sum(sent.output)) / simulate(sent, (pool,)).duration
    return {"ttft": ttft, "tpot": tpot, "output_tokens_per_s": rate}


def predict_row(request: Any) -> float:
    """The figure of `figures` that a validation.ServeRequest measured. Raises RooflmError where it cannot run."""
    return figures(request)[request.metric]


REASONS = {
    "mtp-suspect": "under load: multi-token prediction suspected, not stated",
    "anomalous": "under load: contradicts its own neighbours",
    "precision-unstated": "under load: precision not stated",
    "layout-doubtful": "under load: split over GPUs in doubt",
}
"""Flag of a row whose conditions are not known -> why it is not scored (decided before any prediction)."""
NEEDED = ("model", "gpu", "tp", "prompt", "output")
"""What a run must state to be simulated."""


def barred(request: ServeRequest) -> str:
    """Why a row under load is not scored, or an empty text."""
    if any(request.kwargs.get(k) is None for k in NEEDED):
        return "under load: split or lengths not stated"
    return next((REASONS[f] for f in request.flags if f in REASONS), "")


def run_of(request: ServeRequest) -> str:
    """What rows must share to be figures of one simulated run."""
    load = (request.concurrency, request.rate, request.requests, request.spread, request.flags)
    return json.dumps((request.kwargs, load, request.facts), sort_keys=True, default=str)


def predict_load(
    requests: Sequence[ServeRequest], tell: Callable[[int], None] | None = None
) -> list[tuple[float, str]]:
    """(prediction in SI, reason why there is none) of each row, in order. tell: called with the rows done since."""
    done: dict[str, dict[str, float] | str] = {}
    result = []
    for r in requests:
        if tell:
            tell(1)
        why = barred(r)
        if why:
            result.append((float("nan"), why))
            continue
        run = run_of(r)
        if run not in done:
            try:
                done[run] = figures(r)
            except RooflmError as error:
                done[run] = str(error)
        found = done[run]
        result.append((float("nan"), found) if isinstance(found, str) else (found[r.metric], ""))
    return result
