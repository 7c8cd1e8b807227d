"""Rows measured under load -> what `rooflm.serve` says of them; one simulated run for all figures of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.estimate.inference import infer_scenario
from rooflm.scenario.scenario import Scenario
from rooflm.serving.deploy import LOAD, Deployment, NoMemoryError, deploy, make_requests, serve, whole
from rooflm.sweep.workers import in_processes
from rooflm.validation.columns import METRICS, mean_of
from rooflm.validation.request import Request, as_run
from rooflm.validation.sizes import model_argument

MOST = 1024
"""Clients a data-parallel rank of each replica that stand for maximum load."""
EACH = 3
"""Requests a client at maximum load where the row does not say."""
SEED = 1
NO_ROOM = "no request fits in the KV memory that the weights leave: use more GPUs (--tp)"
LIFTED = "it ran, but would not by our count: given the room that it needs"
MARGIN = 1.25
"""Memory of such a run over what it holds at once: passes with prompts of many sequences hold more."""
BESIDE = ("warmup", "prefill_replicas", "prefill_tp", "prefill_pp", "prefill_dp", "prefill_ep")
"""What a row says of replicas that only prefill, and of requests that its figures leave out."""
PERCENTILES = tuple(m.name for m in METRICS.values() if m.of)
"""Metrics whose names are a time of the simulator's and a percentile."""
LARGEST = {"prompt": 10_000_000, "output": 10_000_000, "budget": 10_000_000, "concurrency": 200_000,
           "requests": 1_000_000}  # fmt: skip
"""Most of each that a row may ask of the simulator: it holds every request, and a time for every length."""


def arguments(request: Request) -> dict[str, Any]:
    """The keyword arguments of `rooflm.serve` for a row."""
    k = as_run(request.kwargs)
    k["model"] = model_argument(k["model"])
    gpus, inner = k.pop("gpus", None), (k.get("tp") or 1) * (k.get("pp") or 1) * (k.get("cp") or 1)
    ranks = int(k.get("dp") or 1)
    if gpus and ((not k.get("tp") and not k.get("pp")) or gpus != inner * ranks > inner):
        k["gpus"] = gpus
    elif gpus and gpus != inner and ranks == 1:
        k["replicas"] = k.get("replicas") or max(1, round(gpus / inner))
    if k.get("concurrency") == "max":
        clients = MOST * ranks * int(k.get("replicas") or 1)
        k["concurrency"], k["requests"] = clients, k.get("requests") or EACH * clients
    elif k.get("rate") and not k.get("requests"):
        k["requests"] = 500
    for name, most in LARGEST.items():
        asked = k.get("options", {}).get(name, 0) if name == "budget" else k.get(name) or 0
        if asked > most:
            raise RooflmError(f"{name} is {asked:,.0f}, but at most {most:,} are simulated")
    return k | {"seed": SEED}


def scenario(request: Request) -> Scenario:
    """The scenario of a row, of one sequence a data-parallel rank."""
    k = {n: v for n, v in arguments(request).items() if n not in (*LOAD, "options", "replicas", *BESIDE)}
    return build_inference(**k, batch=int(k.get("dp") or 1)).scenario


def deployment(request: Request) -> tuple[Deployment, Any]:
    """The pools of a row and its load, before anything is simulated: for fits, which simulate them again and again."""
    k = {n: v for n, v in arguments(request).items() if n not in BESIDE}
    options, replicas = k.pop("options", {}), k.pop("replicas", 1)
    load = make_requests(k.pop("prompt"), k.pop("output"), **{n: k.pop(n) for n in LOAD if n in k})
    k |= {"batch": int(k.get("dp") or 1), "prompt": int(np.max(load.prompt)), "output": int(np.max(load.output))}
    return deploy(build_inference(**k), load, replicas, options=options), load


def figures(request: Request) -> dict[str, float]:
    """What the simulator says of a row, whichever metric it holds: ttft, tpot and latency_s (s: means, and their
    percentiles), requests and tokens a second (all devices), oom (1: not one request fits); memory is not among them.
    A run that ran, but would not by our count, is given the room that it needs (lifted: 1). Raises RooflmError where it
    cannot run."""
    found, lifted = simulated(arguments(request)), False
    if request.metric == "oom":
        return {"oom": float(not found["finished"])}
    if not found["finished"] and request.kwargs.get("concurrency") == "max":
        return figures_alone(request)
    if not found["finished"]:
        found, lifted = simulated(with_more_memory(request, found.get("why", NO_ROOM))), True
    if not found["finished"]:
        raise RooflmError(NO_ROOM)
    parts = {m: m.rpartition("_") for m in PERCENTILES}
    return {"ttft": found["ttft_s"]["mean"], "tpot": found["tpot_s"]["mean"], "latency_s": found["latency_s"]["mean"],
            **{m: found[f"{time}_s"][p] for m, (time, _, p) in parts.items()},
            "output_tokens_per_s": found["output_tokens_per_s"], "requests_per_s": found["requests_per_s"],
            "total_tokens_per_s": found["output_tokens_per_s"] + found["prompt_tokens_per_s"],
            "lifted": float(lifted)}  # fmt: skip


def simulated(k: dict[str, Any]) -> dict[str, Any]:
    """What `rooflm.serve` says; that nothing finished where the weights leave no memory for a cache."""
    try:
        return dict(whole(serve(**k)).summary.values)
    except NoMemoryError as error:
        return {"finished": 0, "why": str(error)}


def with_more_memory(request: Request, why: str) -> dict[str, Any]:
    """Arguments for a run that was measured although it should not fit by our estimate: devices with room for all its
    clients, and a model with a long enough context. RooflmError (why) if the weights alone exceed the memory."""
    s, k = scenario(request), arguments(request)
    size, usable = (float(np.max(x)) for x in (s.cluster.device.dram.size, infer_scenario(s).memory.capacity))
    longest = (int(k["prompt"]) + int(k["output"])) * max(k.get("spread") or (1.0,))
    e = infer_scenario(replace(s, workload=replace(s.workload, batch=max(k.get("concurrency") or 1, s.workload.batch))))
    if np.max(e.memory.parts["weights"]) > size:
        raise RooflmError(why)
    needed = size * max(1.0, MARGIN * float(np.max(e.memory.total)) / usable)
    context = max(float(np.max(s.model.max_context)), longest)
    return k | {"sets": k["sets"] | {"cluster.device.dram.size": needed, "model.max_context": context}}


def figures_alone(request: Request) -> dict[str, float]:
    """Figures of a measured run none of whose requests should fit: at maximum load, one sequence per rank at a time.
    RooflmError for any other load, or if the weights alone exceed the memory."""
    s = scenario(request)
    e = infer_scenario(s)
    if request.kwargs.get("concurrency") != "max" or e.memory.parts["weights"] > s.cluster.device.dram.size:
        raise RooflmError(NO_ROOM)
    found = {
        "ttft": e.ttft,
        "tpot": e.tpot,
        "latency_s": e.latency,
        "output_tokens_per_s": e.output_tokens_per_s,
        "requests_per_s": e.requests_per_s,
    }
    found["total_tokens_per_s"] = e.requests_per_s * (s.workload.prompt + s.workload.output)
    found |= {m: found[mean_of(m)] for m in PERCENTILES}
    return {name: float(np.max(np.asarray(value))) for name, value in found.items()}


def run_of(request: Request) -> str:
    """What rows must share to be figures of one predicted run."""
    return json.dumps((request.kwargs, request.metric == "oom"), sort_keys=True, default=str)


def said(request: Request) -> dict[str, float] | str:
    """`figures` of a row, or why there are none."""
    try:
        return figures(request)
    except RooflmError as error:
        return str(error)
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, MemoryError) as error:
        return f"not predicted: {type(error).__name__} in the simulator"


def predict_load(requests: Sequence[Request], tell: Callable[[int], None] | None = None) -> list[tuple[float, str]]:
    """(prediction, reason why there is none, or what it stands on) of each row, in order. tell: called with the rows
    done since."""
    runs: dict[str, list[Request]] = {}
    for r in requests:
        runs.setdefault(run_of(r), []).append(r)
    done: dict[str, dict[str, float] | str] = {}
    for first, found in in_processes(said, [rows[0] for rows in runs.values()]):
        done[run_of(first)] = found
        if tell:
            tell(len(runs[run_of(first)]))
    return [one_of(r, done[run_of(r)]) for r in requests]


def one_of(request: Request, found: dict[str, float] | str) -> tuple[float, str]:
    """A row's own figure out of what was said of its run, and why there is none, or what it stands on."""
    if isinstance(found, str):
        return float("nan"), found
    if not np.isfinite(found.get(request.metric, np.nan)):
        short = " of one token" if request.metric in found else ""
        return float("nan"), f"metric {request.metric} is not predicted under load{short}"
    return found[request.metric], LIFTED if found.get("lifted") else ""
