"""search_train: every legal split, micro-batch, recomputation, ZeRO stage and schedule of training, and the best.

The axes are laid out so that what costs most depends on least: a layer's times depend on (tp, cp, ep, micro-batch), one
axis of legal combinations; (pp, virtual stages) is another; ZeRO a third; dp is whatever the GPUs leave over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rooflm.api import train_over
from rooflm.axes import Axis, find_axes, is_list
from rooflm.errors import RooflmError
from rooflm.infer_search import goal_of
from rooflm.model import Model, MoE
from rooflm.request import find_model, whole
from rooflm.search import Goal, Limit, Room, SearchResult, Task, search

TRADE: tuple[tuple[str, bool], tuple[str, bool]] = (("step_time_s", True), ("memory_bytes", True))
GOALS = {
    "time": Goal("step time", "step_time_s", True, TRADE),
    "throughput": Goal("tokens/s per GPU", "tokens_per_s_per_gpu", False, TRADE),
    "mfu": Goal("MFU", "mfu", False, TRADE),
    "cost": Goal("cost of a step", "step_cost_usd", True, TRADE),
    "energy": Goal("energy of a step", "step_energy_j", True, TRADE),
    "memory": Goal("memory", "memory_bytes", True, TRADE),
}
"""Objective -> what it makes best. GPU-hours are least where throughput is greatest."""
SHOWN = ("step_time_s", "mfu", "tokens_per_s_per_gpu", "memory_bytes", "dp", "gpus")
RECOMPUTE = ("none", "selective", "full")
ZERO = (0, 1, 2, 3)
SHARDS_STATES_ONLY = (
    "megatron",
    "megatron-2021",
    "megatron-2022",
    "megatron-deepspeed",
    "megatron-bridge",
    "nemo",
    "deepspeed",
    "gpt-neox",
)
"""Engines whose pipelines shard optimiser states, but not gradients or weights (DeepSpeed documents that ZeRO-2 and 3
do not go with its pipelines; Megatron-LM's distributed optimizer is ZeRO-1)."""
SCHEDULES = ("1f1b", "interleaved")


def divisors(value: int) -> list[int]:
    """All divisors, rising.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return sorted({*small, *(value // d for d in small)})


def layer_splits(
    model: Model, gpus: int, batch: int, seq: int, given: Mapping[str, Any]
) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, ep, micro-batch) that are legal for some pp: tp divides the heads, tp x cp the GPUs, cp the sequence, ep
    the experts and what is left of the GPUs, the micro-batch the batch.

    >>> from rooflm.models import load_model
    >>> list(layer_splits(load_model("llama-7b"), 2, 2, 2048, {"cp": 1}))
    [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1), (2, 1, 1, 2)]
    """
    scaled = model.scaled()
    heads = math.gcd(*(int(b.mixer.heads) for b in scaled.blocks if b.mixer is not None))
    experts = math.gcd(*(int(b.ffn.experts) for b in scaled.blocks if isinstance(b.ffn, MoE)))
    for tp in _kept("tp", divisors(math.gcd(heads, gpus)), given):
        for cp in _kept("cp", [d for d in divisors(gpus // tp) if seq % d == 0], given):
            ways = divisors(math.gcd(experts, gpus)) if experts else [1]
            for ep in _kept("ep", ways, given):
                for size in _kept("micro_batch", divisors(batch), given):
                    yield tp, cp, ep, size


def stage_splits(model: Model, gpus: int, schedule: str, given: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(pp, virtual stages): pp divides the GPUs and is at most the layers; interleaved schedules
    have at least two virtual stages that divide a stage's layers evenly, the others one.

    >>> from rooflm.models import load_model
    >>> stage_splits(load_model("llama-7b"), 4, "interleaved", {})[:3]
    [(2, 2), (2, 4), (2, 8)]
    """
    layers = int(model.scaled().layers)
    stages = _kept("pp", [d for d in divisors(gpus) if d <= layers], given)
    if schedule != "interleaved":
        return [(p, 1) for p in stages if _kept("vp", [1], given)]
    whole = [p for p in stages if p > 1 and layers % p == 0]
    return [(p, v) for p in whole for v in _kept("vp", divisors(layers // p)[1:], given)]


def _kept(name: str, values: Sequence[int], given: Mapping[str, Any]) -> list[int]:
    """The values that were not excluded."""
    asked = given.get(name)
    allowed = None if asked is None else {int(v) for v in (asked if is_list(asked) else [asked])}
    return [v for v in values if allowed is None or v in allowed]


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a training grid. A split whose dp is not whole is not legal."""
    with np.errstate(all="ignore"):  # a fractional dp makes nonsense, which `legal` takes out
        e = train_over(axes, **{k: v for k, v in arguments.items() if v is not None})
    dp = np.asarray(e.scenario.mapping.dp)
    broken: Any = (dp < 1) | (dp != np.floor(dp))
    if e.scenario.engine.name in SHARDS_STATES_ONLY:
        broken = broken | ((np.asarray(e.scenario.mapping.zero) > 1) & (np.asarray(e.scenario.mapping.pp) > 1))
    for reason, flag in e.limits.flags.items():
        if reason != "out of memory":
            broken = broken | np.asarray(flag)
    read: dict[str, Callable[[], Any]] = {
        "step_time_s": lambda: e.step_time, "mfu": lambda: e.mfu,
        "tokens_per_s_per_gpu": lambda: e.tokens_per_s_per_gpu,
        "memory_bytes": lambda: e.memory.total, "dp": lambda: dp, "gpus": lambda: e.gpus,
        "step_energy_j": lambda: e.step_energy,
        "step_cost_usd": lambda: e.step_time * e.gpus * e.scenario.cluster.device.price / 3600,
    }  # fmt: skip
    found = {k: make() for k, make in read.items() if outputs is None or k in outputs}
    return {**found, "memory_share": e.memory.total / e.memory.capacity, "legal": ~broken}


def search_train(
    model: str | Model,
    *,
    gpu: Any = None,
    gpus: Any = None,
    batch: int | None = None,
    seq: int = 2048,
    objective: str = "time",
    memory_margin: float | None = None,
    step_time: float | None = None,
    tp: Any = None,
    pp: Any = None,
    vp: Any = None,
    cp: Any = None,
    ep: Any = None,
    micro_batch: Any = None,
    recompute: Any = None,
    zero: Any = None,
    schedule: Any = None,
    on: str = "local",
    **more: Any,
) -> SearchResult:
    """The best way to train a model on so many GPUs, over every legal TP x PP x VP x DP x CP x EP x micro-batch x
    recomputation x ZeRO stage x schedule.

    gpus: how many, or a list; batch: sequences a step; the rest of `train`'s arguments pass through. tp ... schedule:
    values allowed (default: all legal ones; schedules 1f1b and interleaved). Constraints: memory_margin (share kept
    free), step_time (s). objective: time, throughput, mfu, cost, energy or memory.

    Exact: every point is evaluated. Raises RooflmError for bad input; no legal point is no error (see `nearest`).

    >>> found = search_train("llama-7b", gpu="a100-sxm-80gb", gpus=8, batch=64, recompute="full", zero=1, cp=1)
    >>> found.best.inputs["recompute"], found.feasible > 10
    ('full', True)
    """
    goal = goal_of(objective, GOALS)
    if batch is None or gpus is None:
        raise RooflmError("a training search needs gpus and batch: give --gpus and --batch (sequences a step)")
    batch, seq = int(np.max(whole("batch", batch))), int(np.max(whole("seq", seq)))
    given = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "micro_batch": micro_batch}
    found = find_model(model)
    free, fixed = find_axes({"model": model, "gpu": gpu, "batch": batch, "seq": seq} | more)
    names = Axis("recompute", tuple(recompute if is_list(recompute) else [recompute] if recompute else RECOMPUTE))
    stages = Axis("zero", tuple(zero if is_list(zero) else ZERO if zero is None else [zero]))
    kinds = schedule if is_list(schedule) else [schedule] if schedule else SCHEDULES
    rooms = []
    for count in gpus if is_list(gpus) else [gpus]:
        inner = list(layer_splits(found, int(count), int(batch), int(seq), given))
        for kind in kinds:
            outer = stage_splits(found, int(count), kind, given)
            if inner and outer:
                axes = (
                    *free,
                    names,
                    _joined(outer, ("pp", "vp")),
                    stages,
                    _joined(inner, ("tp", "cp", "ep", "micro_batch")),
                )
                rooms.append(Room(axes, {**fixed, "gpus": int(count), "schedule": kind}))
    if not rooms:
        raise RooflmError(f"no split of {found.name} over {gpus} GPUs is legal with these degrees")
    limits = []
    if memory_margin is not None:
        limits.append(Limit("memory_share", 1.0 - float(memory_margin), "memory in use", "share"))
    if step_time is not None:
        limits.append(Limit("step_time_s", float(step_time), "step time", "s"))
    outputs = (*SHOWN, *(k for k in (goal.key,) if k not in SHOWN))
    return search(Task(evaluate, tuple(rooms), goal, tuple(limits), outputs), on)


def _joined(rows: Sequence[Sequence[int]], names: Sequence[str]) -> Axis:
    """Combinations as one axis of several names."""
    columns = [Axis(n, tuple(r[i] for r in rows)) for i, n in enumerate(names)]
    return columns[0]._replace(partners=tuple(columns[1:]))
