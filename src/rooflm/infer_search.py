"""search_infer: every legal split, batch and scheme of serving a model, and the best under constraints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rooflm import paths
from rooflm.api import infer_over
from rooflm.axes import Axis, find_axes, is_list
from rooflm.errors import RooflmError, near_matches
from rooflm.model import Model, MoE
from rooflm.request import build_inference, find_cluster, find_model, node_size
from rooflm.results import chosen, flatten, infer_values
from rooflm.search import Goal, Room, SearchResult, Task, search
from rooflm.search_limits import Limit

SPEED: tuple[tuple[str, bool], tuple[str, bool]] = (("tpot_s", True), ("output_tokens_per_s_per_gpu", False))
GOALS = {
    "throughput": Goal("throughput per GPU", "output_tokens_per_s_per_gpu", False, SPEED),
    "total": Goal("throughput", "output_tokens_per_s", False, SPEED),
    "cost": Goal("cost of a million tokens", "cost_usd_per_million_tokens", True, SPEED),
    "latency": Goal("request latency", "latency_s", True, SPEED),
    "ttft": Goal("time to first token", "ttft_s", True, SPEED),
    "tpot": Goal("time per output token", "tpot_s", True, SPEED),
    "energy": Goal("energy of a token", "energy_j_per_token", True, SPEED),
}
"""Objective -> what it makes best."""
SHOWN = ("ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu", "memory_bytes", "gpus",
         "cost_usd_per_million_tokens")  # fmt: skip
ALIKE = ("ttft_s", "tpot_s")
"""Two answers of one score that users cannot tell apart are one: that with the fewest GPUs."""
BATCHES = (*range(1, 257), *range(264, 1025, 8))
"""Batches of a search that names none: each up to 256, then every eighth up to 1024."""
SINGLE = ("model", "prompt", "output", "cached", "logits", "efficiency", "cluster")
"""Inputs that say what is asked: one value each."""


UNDER_LOAD = ("concurrency", "rate", "slo", "spread", "confirm")
"""Arguments that ask for a search under load."""


def degrees(model: Model, totals: Sequence[int], given: Mapping[str, Any]) -> Iterator[tuple[int, int, int, int]]:
    """Every legal (tp, pp, dp, ep) that uses one of the totals: tp divides the heads, pp is at most the layers, ep
    divides the experts and tp x dp. given: values allowed for a degree (all where it has none).

    >>> from rooflm.models import load_model
    >>> list(degrees(load_model("llama-7b"), [2], {}))
    [(1, 1, 2, 1), (1, 2, 1, 1), (2, 1, 1, 1)]
    """
    scaled = model.scaled()
    heads = math.gcd(*(int(b.mixer.heads) for b in scaled.blocks if b.mixer is not None))
    experts = math.gcd(*(int(b.ffn.experts) for b in scaled.blocks if isinstance(b.ffn, MoE)))
    allowed = {
        k: {int(v) for v in (given[k] if is_list(given[k]) else [given[k]])} for k in given if given[k] is not None
    }

    def may(name: str, value: int) -> bool:
        return name not in allowed or value in allowed[name]

    for total in totals:
        for tp in (d for d in range(1, total + 1) if total % d == 0 and heads % d == 0 and may("tp", d)):
            rest = total // tp
            for pp in (d for d in range(1, rest + 1) if rest % d == 0 and d <= int(scaled.layers) and may("pp", d)):
                dp = rest // pp
                if not may("dp", dp):
                    continue
                for ep in range(1, tp * dp + 1):
                    legal = ep == 1 or (experts > 0 and experts % ep == 0 and (tp * dp) % ep == 0)
                    if legal and may("ep", ep):
                        yield tp, pp, dp, ep


def totals(gpus: Any, gpus_max: Any, node: int) -> list[int]:
    """Numbers of GPUs that an answer may use: those given, or all up to the largest allowed (default: one node).

    >>> totals(8, None, 8), totals(None, 4, 8)
    ([8], [1, 2, 3, 4])
    """
    if gpus is not None:
        listed = [int(g) for g in (gpus if is_list(gpus) else [gpus])]
        kept = [g for g in listed if gpus_max is None or g <= gpus_max]
        if not kept or min(kept) < 1:
            raise RooflmError(f"gpus is {gpus}, but it must be at least 1 and at most gpus_max")
        return sorted(set(kept))
    return list(range(1, int(gpus_max or node) + 1))


def limits_of(given: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Constraints by their names: ttft, tpot, latency (s), cost (USD a million tokens), throughput (tokens/s in all),
    user_speed (tokens/s a user), memory_margin (share of the memory kept free)."""
    known: dict[str, tuple[str, str, str, bool]] = {
        "ttft": ("ttft_s", "time to first token", "s", True),
        "tpot": ("tpot_s", "time per output token", "s", True),
        "latency": ("latency_s", "request latency", "s", True),
        "cost": ("cost_usd_per_million_tokens", "cost of a million tokens", "USD", True),
        "throughput": ("output_tokens_per_s", "output tokens/s", "", False),
    }
    out = []
    for name, bound in given.items():
        if bound is None:
            continue
        if name == "memory_margin":
            if not 0 <= float(bound) < 1:
                raise RooflmError(f"memory_margin is {bound}, but it is the share kept free: at least 0, below 1")
            out.append(Limit("memory_share", 1.0 - float(bound), "memory in use", "share"))
            continue
        if not (math.isfinite(float(bound)) and float(bound) > 0):
            raise RooflmError(f"{name} is {bound}, but a constraint must be above 0")
        key, label, unit, most = known[name]
        out.append(Limit(key, float(bound), label, unit, most))
    return tuple(out)


def goal_of(name: str, goals: Mapping[str, Goal]) -> Goal:
    """An objective by name; RooflmError with the known ones otherwise."""
    if name not in goals:
        near = near_matches(name, goals) or list(goals)
        raise RooflmError(f"unknown objective {name!r}: did you mean {' or '.join(map(repr, near))}?")
    return goals[name]


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a point or grid: the outputs named, the share of memory in use, and whether the split is
    legal apart from memory."""
    e = infer_over(axes, **arguments)
    names = None if outputs is None else {name.split(".")[0] for name in outputs}
    broken: Any = np.zeros((), dtype=bool)
    for reason, flag in e.limits.flags.items():
        if reason != "out of memory":
            broken = broken | np.asarray(flag)
    found = chosen(flatten(infer_values(e, names)), outputs)
    return {**found, "memory_share": e.memory.total / e.memory.capacity, "legal": ~broken}


def search_infer(
    model: str | Model,
    *,
    gpu: Any = None,
    gpus: Any = None,
    gpus_max: int | None = None,
    objective: str = "throughput",
    ttft: float | None = None,
    tpot: float | None = None,
    latency: float | None = None,
    cost: float | None = None,
    throughput: float | None = None,
    memory_margin: float | None = None,
    tp: Any = None,
    pp: Any = None,
    dp: Any = None,
    ep: Any = None,
    batch: Any = None,
    token_budget: Any = None,
    on: str = "local",
    **more: Any,
) -> SearchResult:
    """The best way to serve a model under constraints, over every legal split, batch and scheme.

    model, gpu (a list: which is best), quant and engine (lists too), prompt, output and the rest: as `infer` has them.
    gpus: exactly so many (or a list); gpus_max: any number up to it (default: one node). tp, pp, dp, ep, batch: values
    allowed (default: all legal ones; batches up to 1024). token_budget: new tokens in a prefill pass, or a list
    (infinity: prompts go in whole; default: the engine's). `sets` with lists adds variables.
    Constraints: ttft, tpot, latency (s), cost (USD a million tokens), throughput (least tokens/s), memory_margin
    (share kept free). objective: throughput (per GPU), total, cost, latency, ttft, tpot or energy.

    A point is a batch that comes at once: ttft is that of all its prompts, prefilled together. For users who come and
    go (continuous batching) see `rooflm.serving.plan.search_load`: under_load, concurrency, rate or slo lead there.

    Exact: every point is evaluated. Raises RooflmError for bad input; no legal point is no error (see `nearest`).

    >>> found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, batch=[1, 8], efficiency="ideal")
    >>> found.best.inputs["batch"], found.points
    (8, 2)
    """
    if more.pop("under_load", False) or any(more.get(k) is not None for k in UNDER_LOAD):
        from rooflm.serving.plan import search_load

        if batch is not None:
            raise RooflmError("batch is of a search without load: under load, give concurrency or rate")
        return search_load(
            model, gpu=gpu, gpus=gpus, gpus_max=gpus_max, objective=objective, ttft=ttft, tpot=tpot, latency=latency,
            cost=cost, throughput=throughput, memory_margin=memory_margin, tp=tp, pp=pp, dp=dp, ep=ep,
            token_budget=token_budget, on=on, **{k: v for k, v in more.items() if k not in UNDER_LOAD or v is not None},
        )  # fmt: skip
    if token_budget is not None:
        more["sets"] = {**(more.get("sets") or {}), "engine.token_budget": token_budget}
    goal = goal_of(objective, GOALS)
    names = {"ttft": ttft, "tpot": tpot, "latency": latency, "cost": cost, "throughput": throughput,
             "memory_margin": memory_margin}  # fmt: skip
    limits = limits_of(names)
    for name in SINGLE:
        if is_list(more.get(name)):
            raise RooflmError(f"{name} is a list, but a search answers for one {name}: use a sweep for several")
    found = find_model(model)
    cluster, _ = find_cluster(gpu[0] if is_list(gpu) else gpu, more.get("cluster"))
    counts = totals(gpus, gpus_max, node_size(cluster))
    splits = list(degrees(found, counts, {"tp": tp, "pp": pp, "dp": dp, "ep": ep}))
    if not splits:
        raise RooflmError(
            f"no split of {found.name} over {', '.join(map(str, counts))} GPUs is legal with these degrees"
        )
    sizes = batch if is_list(batch) else ([batch] if batch is not None else BATCHES)
    free, fixed = find_axes({"model": model, "gpu": gpu} | more)
    one = {k: v for k, v in more.items() if not is_list(v) and k not in ("sets", "zip")}
    first = gpu[0] if is_list(gpu) else gpu
    for axis in free:  # a bad name or path is found before the sweep
        if axis.name not in one and "." not in axis.name and axis.name not in ("gpu",):
            one[axis.name] = axis.values[0]
    request = build_inference(model=model, gpu=first, batch=1, **one)
    for axis in free:
        if "." in axis.name:
            paths.get(request.scenario, axis.name)
    task = Task(evaluate, (Room((*free, *split_axes(splits), Axis("batch", tuple(sizes))), fixed),), goal, limits,
                (*SHOWN, *(k for k in (goal.key,) if k not in SHOWN)), ("batch",), ALIKE)  # fmt: skip
    return search(task, on, assumed=request.assumed)


def split_axes(splits: Sequence[Sequence[int]], names: Sequence[str] = ("tp", "pp", "dp", "ep")) -> tuple[Axis, ...]:
    """The degrees as one axis of legal combinations."""
    columns = [Axis(n, tuple(s[i] for s in splits)) for i, n in enumerate(names)]
    return (columns[0]._replace(partners=tuple(columns[1:])),)
