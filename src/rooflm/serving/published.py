"""Published runs under load as simulations: which options each ran with, and what the simulator says of it.

Options come from the engines' documentation and the published benchmark scripts, never from the figures themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rooflm.engines import load_engine
from rooflm.request import build_inference
from rooflm.scenario import Scenario
from rooflm.serving.deploy import make_pool, make_server, server_options
from rooflm.serving.replica import Server
from rooflm.serving.simulate import Pool, simulate
from rooflm.serving.workload import Requests, closed_loop, open_loop
from rooflm.under_load import front_end, tuned

APART = ("mtp-suspect", "anomalous", "precision-unstated", "layout-doubtful")
"""Flags of rows that are scored apart and never fitted."""
IN_STEP = "0.5.6.post2"
"""SGLang release of the campaign with lengths that do not vary: its waves stay in step."""


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
            spread = (1.0, 1.0) if version == IN_STEP else r.spread
            facts = tuple(sorted(r.facts.items()))
            out.append(
                Case(
                    *(r.id, kwargs, r.group, str(r.kwargs["engine"]), version, int(r.concurrency), spread),
                    *(values["ttft"], values["tpot"], r.flags, facts),
                )
            )
    return out


def blackwell(case: Case) -> bool:
    """True for cards of that generation."""
    return bool(case.kwargs["gpu"].startswith(("b200", "b300", "gb")))


def older(case: Case) -> bool:
    """True for releases before those that the constants under load were fitted on: TensorRT-LLM 0.x."""
    return case.engine == "trtllm" and case.version.startswith("0.")


def options(case: Case) -> dict[str, Any]:
    """Server options of a published run, from the engines' documentation and the campaign's scripts: TensorRT-LLM's
    token budget is max(8192, prompt + concurrency + 64); SGLang on Blackwell looks at its queue every 10 steps, from 16
    clients on every 30 (--scheduler-recv-interval in the recipes of DeepSeek and Qwen3.5)."""
    found = server_options(case.engine, case.kwargs["gpu"])
    if case.engine == "trtllm":
        found["budget"] = max(8192, case.kwargs["prompt"] + case.concurrency + 64)
    if case.engine == "sglang" and blackwell(case) and case.group[0].startswith(("deepseek", "qwen3.5")):
        found["receive_interval"] = 10 if case.concurrency < 16 else 30
    return found


def cache_type(case: Case) -> str | None:
    """The scheme with the cache's type: TensorRT-LLM and vLLM ran quantised checkpoints with an fp8 cache, as
    SGLang does with sparse latent attention on Blackwell (its default there)."""
    quant = case.kwargs["quant"]
    narrow = quant is not None and quant.startswith(("fp8", "nvfp4"))
    by_default = case.engine != "sglang" or (blackwell(case) and case.group[0].startswith(("glm-5", "deepseek-v3.2")))
    return f"{quant}kv8" if narrow and "kv" not in quant and by_default else quant


def scenario(case: Case) -> Scenario:
    """The scenario of a run, with the constants of its release."""
    kwargs = {k: v for k, v in case.kwargs.items() if v is not None} | {"quant": cache_type(case)}
    s = build_inference(**kwargs, batch=case.kwargs.get("dp", 1), engine=case.engine).scenario
    engine = load_engine(case.engine)
    return replace(
        s, engine=engine if older(case) else tuned(engine, s.cluster.device.name, s.quant.name, case.version)
    )


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
    front = 0.0 if older(case) else front_end(case.engine)
    return make_server({"request": float(s.engine.request) - front, "front": front, **options(case)})


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
        int(request.concurrency or MOST), request.spread, 0.0, 0.0, request.flags,
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
