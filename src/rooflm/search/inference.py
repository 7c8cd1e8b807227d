"""search_infer: every legal split, batch and scheme of serving a model, and the best under constraints."""

from __future__ import annotations

from typing import Any

from rooflm.api import infer_over
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.estimate.inference_results import chosen, flatten, infer_values
from rooflm.scenario import paths
from rooflm.scenario.build_inference import build_inference, find_cluster, find_model, node_size
from rooflm.search.search import Grid, SearchResult, SearchTask, search
from rooflm.search.splits import GOALS, SHOWN, SINGLE, TWIN_OUTPUTS, degrees, goal_of, limits_of, split_axes, totals
from rooflm.sweep.axes import Axis, find_axes, is_list

BATCHES = (*range(1, 257), *range(264, 1025, 8))
"""Batches of a search that names none: each up to 256, then every eighth up to 1024."""


UNDER_LOAD = ("concurrency", "rate", "slo", "spread", "confirm")
"""Arguments that ask for a search under load."""


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a point or grid: the outputs named, the share of memory in use, and whether the split is
    legal apart from memory."""
    e = infer_over(axes, **arguments)
    names = None if outputs is None else {name.split(".")[0] for name in outputs}
    found = chosen(flatten(infer_values(e, names)), outputs)
    return {**found, "memory_share": e.memory.total / e.memory.capacity, "legal": ~e.limits.illegal}


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
    go (continuous batching) see `rooflm.search.under_load.search_load`: under_load, concurrency, rate or slo lead
    there.

    Exact: every point is evaluated. Raises RooflmError for bad input; no legal point is no error (see `nearest`).

    >>> found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, batch=[1, 8], efficiency="ideal")
    >>> found.best.inputs["batch"], found.points
    (8, 2)
    """
    if more.pop("under_load", False) or any(more.get(k) is not None for k in UNDER_LOAD):
        from rooflm.search.under_load import search_load

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
    request = build_inference(model=model, gpu=first, batch=1, alone=False, **one)
    for axis in free:
        if "." in axis.name:
            paths.get(request.scenario, axis.name)
    task = SearchTask(evaluate, (Grid((*free, *split_axes(splits), Axis("batch", tuple(sizes))), fixed),), goal, limits,
                (*SHOWN, *(k for k in (goal.key,) if k not in SHOWN)), ("batch",), TWIN_OUTPUTS)  # fmt: skip
    return search(task, on, assumed=request.assumed)
