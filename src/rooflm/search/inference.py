"""search_infer: every legal split, batch and scheme of serving a model, and the best under constraints."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.api import INFER, named
from rooflm.asked import paths
from rooflm.asked.answers.outputs import chosen
from rooflm.asked.arguments import refuse_wrong
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.model import Model
from rooflm.estimate.capacity import memory_use
from rooflm.estimate.offloaded import stored_part
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.search.digest import SearchTask
from rooflm.search.request import read_request
from rooflm.search.result import SearchResult
from rooflm.search.search import search
from rooflm.search.space import Grid
from rooflm.search.splits import (
    TWIN_OUTPUTS,
    in_budget,
    joint_axis,
    listed,
    purchase_usd,
    refuse_lists,
    refuse_none,
    remedied,
    runnable_splits,
    searched_prices,
    within_budget,
)
from rooflm.shown.answer import flatten
from rooflm.sweep.axes import Axis, Point, accept_columns, is_list, points

if TYPE_CHECKING:
    from rooflm.api import Devices, Engines, Names, Numbers, Schemes
    from rooflm.catalogue.hardware import Cluster
    from rooflm.scenario.scenario import Efficiency

BATCHES = (*range(1, 257), *range(264, 1025, 8))
"""Batches of a search that names none: each up to 256, then every eighth up to 1024."""
PASSED = ("cluster", "prompt", "output", "cached", "logits", "quant", "engine", "efficiency", "sets")
"""Arguments that go to `infer` as they are."""


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, *, batch: Any, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a point or grid: the outputs named, the share of memory in use, and whether the split is
    legal apart from memory. batch: along the last axis; those that fit nowhere by far are not worked out."""
    tried = worth_trying(axes, batch, arguments)
    e = INFER.over(axes, batch=batch[..., :tried], **arguments)
    names = None if outputs is None else {name.split(".")[0] for name in outputs}
    found = chosen(flatten(e.values(names)), outputs)
    if outputs is not None and "purchase_usd" in outputs:
        found["purchase_usd"] = e.gpus * purchase_usd(e.scenario.cluster.device, arguments.get("purchase"))
    found |= {"memory_share": e.memory.total / e.memory.capacity, "legal": ~e.limits.illegal}
    if tried == batch.shape[-1]:
        return found
    repeated = np.minimum(np.arange(batch.shape[-1]), tried - 1)
    found = {k: v if np.ndim(v) < axes or v.shape[-1] == 1 else v[..., repeated] for k, v in found.items()}
    return {**found, "legal": found["legal"] & (np.arange(batch.shape[-1]) < tried)}


def worth_trying(axes: int, batch: Any, arguments: Mapping[str, Any]) -> int:
    """How many of the batches there are up to the last that fits nearly in any split (NEAR), and one more: these say
    what is too much. Memory is known long before times are."""
    s = stored_part(replace(INFER.build(batch=batch, **arguments, alone=False).scenario, axes=axes))
    with np.errstate(all="ignore"):  # of splits that break a rule
        memory = memory_use(s)
        fits = (memory.total <= NEAR * memory.capacity) & (batch > 0)  # of every batch
    last = np.flatnonzero(np.any(fits, axis=tuple(range(axes - 1))))
    return int(min((last[-1] if last.size else -1) + 2, batch.shape[-1]))


NEAR = 1.25
"""Of the memory, what may be asked of it by batches that are worked out though they do not fit: of better points that
are ruled out the nearest are told, and few lie beyond."""


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
      owned: Cost of GPUs of one's own, bought at their public price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      under: Most USD to buy all GPUs, at purchase or public prices; without gpu, of every card with one.
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
      host_bandwidth (B/s): Rate of the host's memory, such as 89.6GB/s of two channels of DDR5-5600.
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
    given = dict(locals())
    refuse_lists(given)
    refuse_wrong("search_infer", given)
    sets = None if token_budget is None else {"engine.token_budget": token_budget}
    asked = read_request(given, PASSED, "search infer", sets)
    first, gpu, arguments = asked.first_gpu, asked.gpu, asked.arguments
    one = {k: v for k, v in arguments.items() if not is_list(v) and k not in ("sets", "zip")}
    for axis in asked.free:  # a bad name or path is found before the sweep
        if axis.name not in one and "." not in axis.name and axis.name not in ("gpu",):
            one[axis.name] = axis.values[0]
    shared = {"model": model, "gpu": first, "batch": 1, **one}
    scenario = build_inference(alone=False, **shared).scenario
    for axis in asked.free:
        if "." in axis.name:
            paths.get(scenario, axis.name)
    names = itertools.product(listed(engine, (None,)), listed(quant, (None,)))
    each = [build_inference(alone=False, **shared | {"engine": e, "quant": q}).scenario for e, q in names]
    runnable = [runnable_splits(s, asked.splits) for s in each]
    refuse_none(any(kept for kept, _ in runnable), (why for _, why in runnable))
    batches = Axis("batch", listed(batch, BATCHES))
    cards = [axis for axis in asked.free if axis.name == "gpu" and under is not None]

    def grid_of(budget: float | None, card: Point) -> Grid:
        splits = within_budget(asked.splits, budget, card.get("gpu", first), cluster, purchase)
        free = (axis for axis in asked.free if axis not in cards)
        return Grid((*free, joint_axis(splits, SERVED_DEGREES), batches), asked.fixed | card)

    def run(budget: float | None) -> SearchResult:
        grids = tuple(grid_of(budget, card) for card in points(cards))
        task = SearchTask(evaluate, grids, asked.goal, asked.limits, asked.outputs, ("batch",), TWIN_OUTPUTS,
                          bands=INFER.bands)  # fmt: skip
        return search(task, on, assumed=asked.assumptions(shared))

    found = remedied(INFER, in_budget(under, run), shared, asked.limits)
    return replace(found, model=asked.model.name, prices=searched_prices(found, listed(gpu), cluster, arguments))
