"""search_infer: every legal split, batch and scheme of serving a model, and the best under constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rooflm.api import INFER, named
from rooflm.asked import paths
from rooflm.asked.answers.outputs import chosen
from rooflm.asked.arguments import refuse_wrong
from rooflm.asked.build_inference import build_inference, find_cluster, generating, node_size
from rooflm.catalogue.model import Model
from rooflm.search.search import Grid, SearchResult, SearchTask, search
from rooflm.search.splits import (
    GOALS,
    SHOWN,
    TWIN_OUTPUTS,
    adapter_arguments,
    assumptions_of,
    cards_to_search,
    counts_assumed,
    goal_of,
    gpu_totals,
    host_arguments,
    joint_axis,
    legal_splits,
    limits_of,
    listed,
    money_arguments,
    purchase_usd,
    refuse_lists,
    refuse_none,
    runnable_splits,
    searched_prices,
    speculation_arguments,
)  # fmt: skip
from rooflm.shown.answer import flatten
from rooflm.sweep.axes import Axis, accept_columns, find_axes, is_list

if TYPE_CHECKING:
    from rooflm.api import Devices, Engines, Names, Numbers, Schemes
    from rooflm.catalogue.hardware import Cluster
    from rooflm.scenario.scenario import Efficiency

BATCHES = (*range(1, 257), *range(264, 1025, 8))
"""Batches of a search that names none: each up to 256, then every eighth up to 1024."""


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a point or grid: the outputs named, the share of memory in use, and whether the split is
    legal apart from memory."""
    e = INFER.over(axes, **arguments)
    names = None if outputs is None else {name.split(".")[0] for name in outputs}
    found = chosen(flatten(e.values(names)), outputs)
    if outputs is not None and "purchase_usd" in outputs:
        found["purchase_usd"] = e.gpus * purchase_usd(e.scenario.cluster.device, arguments.get("purchase"))
    return {**found, "memory_share": e.memory.total / e.memory.capacity, "legal": ~e.limits.illegal}


@named
@accept_columns
def search_infer(
    model: str | Model, *, gpu: Devices | None = None, gpus: Numbers | None = None, gpus_max: int | None = None,
    price: Numbers | None = None, owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15,
    under: float | None = None, cluster: str | Cluster | None = None, tp: Numbers | None = None,
    pp: Numbers | None = None, dp: Numbers | None = None, ep: Numbers | None = None, batch: Numbers | None = None,
    prompt: int = 512, output: int = 128, cached: int | None = None, logits: str | None = None, guesses: Numbers = 0,
    draft: str | None = None, acceptance: Numbers = 0.7, accepted: Numbers = 0, branches: Numbers = 1,
    adapters: Numbers = 0, adapter_rank: Numbers = 16, adapter_modules: Names | None = None, cpu_layers: Numbers = 0,
    cpu_experts: Numbers = 0, host_bandwidth: Numbers | None = None, token_budget: Numbers | None = None,
    ttft: float | None = None, tpot: float | None = None, latency: float | None = None, cost: float | None = None,
    throughput: float | None = None, memory_margin: float | None = None, objective: str = "throughput",
    quant: Schemes | None = None, engine: Engines | None = None, efficiency: Names | Efficiency | None = None,
    sets: Mapping[str, Any] | None = None, on: str = "local",
) -> SearchResult:  # fmt: skip
    """The best way to serve a model under constraints, over every legal split, batch and scheme.

    Arguments (tp, pp, dp, ep, batch: values allowed, by default all legal ones; lists in `sets` are searched too):
      gpu: GPU, or a list of which the best is chosen.
      gpus: Exactly so many GPUs, or a list.
      gpus_max: Any number of GPUs up to this (default: one node).
      price: USD an hour of one GPU (default: the card's row).
      owned: Cost of GPUs of one's own, bought at their launch price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      under: Most USD to buy all GPUs, at purchase or launch prices; without gpu, of every card with one.
      cluster: Cluster (default: the GPU's own).
      tp: Only these tensor parallel degrees.
      pp: Only these pipeline parallel degrees.
      dp: Only these data parallel degrees.
      ep: Only these expert parallel degrees.
      batch: Only these batches (default: 1 to 1024).
      prompt: Prompt tokens a request.
      output: Output tokens a request.
      cached: Prompt tokens already in the cache (prefix caching).
      logits: Logits of the 'last' prompt token or of 'all'.
      guesses: Tokens guessed a step by a draft or the model's own heads (0: none).
      draft: Draft model that guesses (default: heads of the model's own: MTP, EAGLE).
      acceptance: Chance that a guess is right.
      accepted: Tokens that a step gains as measured, in place of acceptance.
      branches: Guesses side by side at each depth: 1 a chain, else a tree.
      adapters: Adapters held on the devices, each request asking for one (0: none).
      adapter_rank: Rank of each.
      adapter_modules: Products that they adapt, such as qkv,out (default: all).
      cpu_layers: Whole layers in the host's memory, on its CPU (llama.cpp: all less -ngl).
      cpu_experts: Layers whose experts alone are there (llama.cpp: --n-cpu-moe).
      host_bandwidth (B/s): What the host's memory reaches, such as 60GB/s.
      token_budget: New tokens a pass (chunked prefill), or a list; off: whole prompts. Default: the engine's own;
        under load also 512 to 16384 and off.
      ttft (s): Longest time to first token: of a whole batch; under load: mean.
      tpot (s): Longest time per output token (mean).
      latency (s): Longest request (under load: mean).
      cost: Most USD per million output tokens.
      throughput (1/s): Least output tokens/s in all.
      memory_margin: Share of memory to keep free, such as 0.1.
      objective: throughput (per GPU), total, cost, latency, ttft, tpot or energy.
      quant: Scheme, or a list.
      engine: Engine, or a list.
      efficiency: calibrated, ideal, or factors such as 0.7,0.9.
      sets: Any other input by its path; lists are searched.
      on: Where blocks of a grid run: local, ray or ray://host:port.

    A point is a batch that comes at once: ttft is that of all its prompts, prefilled together. For users who come and
    go (continuous batching) see `search_serve`.

    Exact: every point is evaluated. Raises RooflmError for bad input; no legal point is no error (see `nearest`).

    >>> found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, batch=[1, 8], efficiency="ideal")
    >>> found.best.inputs["batch"], found.points
    (8, 2)
    """
    refuse_wrong("search_infer", locals())
    asked = {"cluster": cluster, "prompt": prompt, "output": output, "cached": cached, "logits": logits,
             "quant": quant, "engine": engine, "efficiency": efficiency, "sets": sets,
             **money_arguments(locals())}  # fmt: skip
    gpu = cards_to_search(gpu, under, purchase)
    more: dict[str, Any] = {k: v for k, v in asked.items() if v is not None}
    more |= speculation_arguments(guesses, draft, acceptance, accepted, branches) | adapter_arguments(
        adapters, adapter_rank, adapter_modules
    )
    more |= host_arguments(cpu_layers, cpu_experts, host_bandwidth)
    if token_budget is not None:
        more["sets"] = {**(more.get("sets") or {}), "engine.token_budget": token_budget}
    goal = goal_of(objective, GOALS)
    bounds = {"ttft": ttft, "tpot": tpot, "latency": latency, "cost": cost, "throughput": throughput,
             "memory_margin": memory_margin, "under": under}  # fmt: skip
    limits = limits_of(bounds)
    refuse_lists(more)
    found = generating(model, "search infer")
    first = next(iter(listed(gpu)), None)
    machine, _ = find_cluster(first, cluster)
    counts = gpu_totals(gpus, gpus_max, node_size(machine))
    splits = legal_splits(found, counts, {"tp": tp, "pp": pp, "dp": dp, "ep": ep})
    free, fixed = find_axes({"model": model, "gpu": gpu} | more)
    one = {k: v for k, v in more.items() if not is_list(v) and k not in ("sets", "zip")}
    for axis in free:  # a bad name or path is found before the sweep
        if axis.name not in one and "." not in axis.name and axis.name not in ("gpu",):
            one[axis.name] = axis.values[0]
    request = build_inference(model=model, gpu=first, batch=1, alone=False, **one)
    names = [(e, q) for e in listed(engine, (None,)) for q in listed(quant, (None,))]
    pairs = [{**one, "engine": e, "quant": q} for e, q in names]
    able = [
        runnable_splits(build_inference(model=model, gpu=first, batch=1, alone=False, **p).scenario, splits)
        for p in pairs
    ]
    refuse_none(any(kept for kept, _ in able), (why for _, why in able))
    for axis in free:
        if "." in axis.name:
            paths.get(request.scenario, axis.name)
    grid = Grid((*free, joint_axis(splits, ("tp", "pp", "dp", "ep")), Axis("batch", listed(batch, BATCHES))), fixed)
    outputs = (*SHOWN, *(k for k in (goal.key, *("purchase_usd",) * (under is not None)) if k not in SHOWN))
    task = SearchTask(evaluate, (grid,), goal, limits, outputs, ("batch",), TWIN_OUTPUTS)
    shared = {"model": model, "gpu": first, "batch": 1, **one}
    assumed = (*assumptions_of(shared, engine, quant, gpu), *counts_assumed(gpus, gpus_max, counts, machine))
    done = search(task, on, assumed=assumed)
    return replace(done, prices=searched_prices(listed(gpu), cluster, more))
