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
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.scenario.build_inference import find_model, whole
from rooflm.scenario.rules import divisors, expert_ways, tensor_ways
from rooflm.search.limits import Limit
from rooflm.search.search import Goal, Room, SearchResult, Task, search
from rooflm.search.splits import goal_of
from rooflm.sweep.axes import Axis, find_axes, is_list

TRADE: tuple[tuple[str, bool], tuple[str, bool]] = (("step_time_s", True), ("memory_bytes", True))
GOALS = {
    "time": Goal("step time", "step_time_s", True, TRADE),
    "throughput": Goal("tokens/s per GPU", "tokens_per_s_per_gpu", False, TRADE),
    "mfu": Goal("MFU", "mfu", False, TRADE),
    "cost": Goal("cost", "cost_usd", True, TRADE),
    "gpu-hours": Goal("GPU-hours", "gpu_hours", True, TRADE),
    "energy": Goal("energy", "energy_j", True, TRADE),
    "memory": Goal("memory", "memory_bytes", True, TRADE),
}
"""Objective -> what it makes best. Cost, GPU-hours and energy are of the run, of one step where no tokens are given."""
SHOWN = ("step_time_s", "mfu", "tokens_per_s_per_gpu", "memory_bytes", "dp", "gpus")
OF_RUN = ("gpu_hours", "cost_usd", "energy_j", "days")
"""Outputs of the whole run, worked out where a budget of tokens is given."""
ALIKE = ("step_time_s", "memory_bytes", "gpus")
"""Two answers of one score that also agree in these are one: the option in which they differ is without effect."""
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
WHOLE_SHARDING = ("torchtitan", "fsdp", "llm-foundry", "nemo-automodel")
"""Engines built on FSDP, which shards optimiser states only together with gradients: there is no ZeRO-1."""


def layer_splits(
    model: Model, gpus: int, batch: int, seq: int, given: Mapping[str, Any]
) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, ep, micro-batch) that are legal for some pp: tp divides the heads, of queries and, unless tp is given,
    of keys, as Megatron-LM and torchtitan ask for; tp x cp the GPUs, 2 cp the sequence (each rank of a context group
    has two chunks of it), ep the experts and what is left of the GPUs, the micro-batch the batch.

    >>> from rooflm.catalogue.models import load_model
    >>> list(layer_splits(load_model("llama-7b"), 2, 2, 2048, {"cp": 1}))
    [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1), (2, 1, 1, 2)]
    """
    heads, experts = tensor_ways(model, shared=given.get("tp") is None), expert_ways(model)
    for tp in _kept("tp", divisors(math.gcd(heads, gpus)), given):
        for cp in _kept("cp", [d for d in divisors(gpus // tp) if d == 1 or seq % (2 * d) == 0], given):
            ways = divisors(math.gcd(experts, gpus)) if experts else [1]
            for ep in _kept("ep", ways, given):
                for size in _kept("micro_batch", divisors(batch), given):
                    yield tp, cp, ep, size


def stage_splits(model: Model, gpus: int, schedule: str, given: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(pp, virtual stages): pp divides the GPUs and is at most the layers; interleaved schedules have at least two
    virtual stages of as many layers each, where embedding and loss may count as a layer (as in Llama 3 405B, whose 126
    layers fill 128 places: arXiv 2407.21783, section 3.3.2); the others have one.

    >>> from rooflm.catalogue.models import load_model
    >>> stage_splits(load_model("llama-7b"), 4, "interleaved", {})[:4]
    [(2, 2), (2, 4), (2, 8), (2, 16)]
    """
    layers = int(model.layers)
    stages = _kept("pp", divisors(gpus, layers), given)
    if schedule != "interleaved":
        return [(p, 1) for p in stages if _kept("vp", [1], given)]
    found = []
    for p in (p for p in stages if p > 1):
        ways = {v for places in (layers, layers + 2) if places % p == 0 for v in divisors(places // p)[1:]}
        found += [(p, v) for v in _kept("vp", sorted(ways), given)]
    return found


def _kept(name: str, values: Sequence[int], given: Mapping[str, Any]) -> list[int]:
    """The values that were not excluded."""
    asked = given.get(name)
    allowed = None if asked is None else {int(v) for v in (asked if is_list(asked) else [asked])}
    return [v for v in values if allowed is None or v in allowed]


def evaluate(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a search needs of a training grid. A split whose dp is not whole is not legal."""
    e = train_over(axes, **{k: v for k, v in arguments.items() if v is not None})
    dp, m = np.asarray(e.scenario.mapping.dp), e.scenario.mapping
    broken: Any = e.limits.illegal
    if e.scenario.engine.name in SHARDS_STATES_ONLY:
        broken = broken | ((np.asarray(m.zero) > 1) & (np.asarray(m.pp) > 1))
    if e.scenario.engine.name in WHOLE_SHARDING:
        broken = broken | (np.asarray(m.zero) == 1)
    read: dict[str, Callable[[], Any]] = {
        "step_time_s": lambda: e.step_time, "mfu": lambda: e.mfu,
        "tokens_per_s_per_gpu": lambda: e.tokens_per_s_per_gpu,
        "memory_bytes": lambda: e.memory.total, "dp": lambda: dp, "gpus": lambda: e.gpus,
        "energy_j": lambda: e.energy, "cost_usd": lambda: e.cost, "gpu_hours": lambda: e.gpu_hours,
        "days": lambda: e.days,
    }  # fmt: skip
    found = {k: make() for k, make in read.items() if outputs is None or k in outputs}
    return {**found, "memory_share": e.memory.total / e.memory.capacity, "legal": ~broken}


MARGIN = 0.05
"""Share of memory that a training search keeps free unless told otherwise: predictions of memory are off by about as
much, and an answer that fills the last bytes runs out of memory on the first longer step."""


def search_train(
    model: str | Model,
    *,
    gpu: Any = None,
    gpus: Any = None,
    gpus_max: int | None = None,
    batch: int | None = None,
    seq: int = 2048,
    tokens: float = 0,
    objective: str = "time",
    memory_margin: float | None = None,
    step_time: float | None = None,
    days: float | None = None,
    gpu_hours: float | None = None,
    cost: float | None = None,
    energy: float | None = None,
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

    gpus: how many, or a list; gpus_max: instead, 1, 2, 4, ... up to this; batch: sequences a step (default: see
    `usual_batch`); tokens: of the whole run; the rest of `train`'s arguments pass through. tp ... schedule: values
    allowed (default: all legal ones;
    schedules 1f1b and interleaved). Constraints: memory_margin (share kept free, 0.05), step_time (s), and of the run,
    which need tokens: days, gpu_hours, cost (USD), energy (J). objective: a name of GOALS.

    Exact: every point is evaluated. The ten best are ten different answers: an option that changes neither the score
    nor time, memory and GPUs counts once, and `same` of the result says which. Raises RooflmError for bad input; no
    legal point is no error (see `nearest`).

    >>> found = search_train("llama-7b", gpu="a100-sxm-80gb", gpus=8, batch=64, recompute="full", zero=1, cp=1)
    >>> found.best.inputs["recompute"], found.feasible > 10
    ('full', True)
    """
    goal = goal_of(objective, GOALS)
    counts = gpu_counts(gpus, gpus_max)
    if not counts:
        raise RooflmError("a training search needs GPUs: give --gpus or --gpus-max")
    seq = int(np.max(whole("seq", seq)))
    assumed = [f"{100 * MARGIN:g} % of memory free"] if memory_margin is None else []
    memory_margin = MARGIN if memory_margin is None else memory_margin
    assumed += [] if batch is not None else [f"batch {usual_batch(seq, max(counts))}"]
    if not more.get("engine"):
        assumed.append(f"engine {'ideal' if more.get('efficiency') == 'ideal' else 'megatron'}")
    batch = int(np.max(whole("batch", usual_batch(seq, max(counts)) if batch is None else batch)))
    bounds = {"days": days, "gpu_hours": gpu_hours, "cost_usd": cost, "energy_j": energy}
    limits = limits_of(memory_margin, step_time, bounds, tokens)
    given = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "micro_batch": micro_batch}
    found = find_model(model)
    free, fixed = find_axes({"model": model, "gpu": gpu, "batch": batch, "seq": seq, "tokens": tokens} | more)
    names = Axis("recompute", tuple(recompute if is_list(recompute) else [recompute] if recompute else RECOMPUTE))
    stages = Axis("zero", tuple(zero if is_list(zero) else ZERO if zero is None else [zero]))
    kinds = schedule if is_list(schedule) else [schedule] if schedule else SCHEDULES
    rooms = []
    for count in counts:
        inner = list(layer_splits(found, count, batch, seq, given))
        for kind in kinds:
            outer = stage_splits(found, count, kind, given)
            if inner and outer:
                axes = (
                    *free,
                    names,
                    _joined(outer, ("pp", "vp")),
                    stages,
                    _joined(inner, ("tp", "cp", "ep", "micro_batch")),
                )
                told = ("gpu", "engine", "batch", "schedule", *(["gpus"] if len(counts) > 1 else []))
                rooms.append(Room(axes, {**fixed, "gpus": count, "schedule": kind}, told))
    if not rooms:
        many = counts[0] if len(counts) == 1 else f"up to {max(counts)}"
        raise RooflmError(f"no split of {found.name} over {many} GPUs is legal with these degrees")
    run = OF_RUN if tokens else ()
    outputs = tuple(dict.fromkeys((*SHOWN, *run, goal.key, *(k.key for k in limits if k.key != "memory_share"))))
    task = Task(evaluate, tuple(rooms), goal, tuple(limits), outputs, (), ALIKE)
    return search(task, on, assumed=assumed)


def usual_batch(seq: int, gpus: int) -> int:
    """Sequences a step where none are named: 4 Mi tokens, and at least one sequence for every 64 GPUs.

    >>> usual_batch(2048, 1024), usual_batch(131072, 8192)
    (2048, 128)
    """
    return max(2**22 // seq, -(-gpus // 64), 1)


def gpu_counts(gpus: Any, gpus_max: Any) -> list[int]:
    """Numbers of GPUs to search: those given, or powers of two up to gpus_max and gpus_max itself.

    >>> gpu_counts(None, 24), gpu_counts([8, 16], None), gpu_counts(None, None)
    ([1, 2, 4, 8, 16, 24], [8, 16], [])
    """
    if gpus is not None and gpus_max is not None:
        raise RooflmError("give gpus or gpus_max, not both")
    if gpus is None and gpus_max is None:
        return []
    if gpus is not None:
        return [int(v) for v in np.atleast_1d(whole("gpus", np.array(gpus) if is_list(gpus) else gpus))]
    most = int(np.max(whole("gpus_max", gpus_max)))
    return sorted({*(2**k for k in range(most.bit_length())), most})


def limits_of(
    memory_margin: float, step_time: float | None, run: Mapping[str, float | None], tokens: float
) -> list[Limit]:
    """The constraints that were given. run: bounds of the whole run by output, which need its tokens.

    >>> [(k.label, k.bound) for k in limits_of(0.1, 2.0, {"days": 30.0}, 1e12)]
    [('memory in use', 0.9), ('step time', 2.0), ('time of the run', 30.0)]
    """
    if not 0 <= float(memory_margin) < 1:
        raise RooflmError(f"memory_margin is {memory_margin:g}, but it is a share kept free: at least 0, below 1")
    free = Limit("memory_share", 1.0 - float(memory_margin), "memory in use", "share")
    found = [free] if memory_margin else []
    bounds = {"step_time_s": (step_time, "step time", "s")}
    bounds |= {k: (run.get(k), label, unit) for k, (label, unit) in RUN.items()}
    for key, (bound, label, unit) in bounds.items():
        if bound is None:
            continue
        if not float(bound) > 0:
            raise RooflmError(f"{label} is limited to {bound:g}, but it must be above 0")
        if key in RUN and not tokens:
            raise RooflmError(f"{label} is limited, but the run's tokens are not given: give --tokens, such as 15T")
        found.append(Limit(key, float(bound), label, unit))
    return found


RUN = {
    "days": ("time of the run", "days"),
    "gpu_hours": ("GPU-hours", "h"),
    "cost_usd": ("cost", "USD"),
    "energy_j": ("energy", "J"),
}
"""Output of the run -> its name and unit as a constraint."""


def _joined(rows: Sequence[Sequence[int]], names: Sequence[str]) -> Axis:
    """Combinations as one axis of several names."""
    columns = [Axis(n, tuple(r[i] for r in rows)) for i, n in enumerate(names)]
    return columns[0]._replace(partners=tuple(columns[1:]))
