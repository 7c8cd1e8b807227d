"""search_train: every legal split, micro-batch, recomputation, ZeRO stage and schedule of training, and the best.

The axes are laid out so that what costs most depends on least: a layer's times depend on (tp, cp, ep, micro-batch), one
axis of legal combinations; (pp, virtual stages) is another; ZeRO a third; dp is whatever the GPUs leave over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.api import TRAIN, named
from rooflm.asked.arguments import refuse_wrong
from rooflm.asked.build_inference import find_model, generating
from rooflm.asked.build_training import assumed_trainer, build_training
from rooflm.asked.checks import whole
from rooflm.asked.machine import find_cluster, rented_together
from rooflm.asked.ways import expert_ways, tensor_ways
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.readers.rows import own_row
from rooflm.scenario.rules import divisors
from rooflm.search.digest import SearchTask
from rooflm.search.limits import Limit
from rooflm.search.result import SearchResult
from rooflm.search.search import search
from rooflm.search.space import Goal, Grid
from rooflm.search.splits import (
    NODE,
    assumptions_of,
    counts_assumed,
    goal_of,
    joint_axis,
    listed,
    money_arguments,
    refuse_lists,
    remedied,
    searched_prices,
)
from rooflm.sweep.assumed import of_points
from rooflm.sweep.axes import Axis, accept_columns, find_axes, is_list, nest
from rooflm.sweep.sweep import BLOCK

if TYPE_CHECKING:
    from rooflm.api import Devices, Engines, Names, Numbers
    from rooflm.catalogue.hardware import Cluster
    from rooflm.scenario.scenario import Efficiency

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
"""Outputs of the whole run, worked out where a budget of tokens is given; with failures, where GPUs fail."""
FAILING = "time, GPU-hours, USD and energy of the run with failures and checkpoints: undisturbed ones over the goodput"
SEARCHED = (*SHOWN, *OF_RUN)
"""All that a search of training may read."""
TWIN_OUTPUTS = ("step_time_s", "memory_bytes", "gpus")
"""Two answers of one score that also agree in these are one: the option in which they differ is without effect."""
RECOMPUTE = ("none", "selective", "full")
ZERO = (0, 1, 2, 3)
DECIDED = ("dp", "sp", "zero", "micro_batch", "recompute")
"""What is assumed of a step that nobody searches."""
SCHEDULES = ("1f1b", "interleaved")


def layer_splits(
    model: Model, gpus: int, batch: int, seq: int, given: Mapping[str, Any]
) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, ep, micro-batch) that are legal for some pp: tp divides the heads, of queries and, unless tp is given,
    of keys, as Megatron-LM and torchtitan ask for; tp x cp the GPUs, 2 cp the sequence (each rank of a context group
    has two chunks of it), ep the experts and what is left of the GPUs, the micro-batch the batch.

    >>> from rooflm.readers.checkpoints.load import load_model
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

    >>> from rooflm.readers.checkpoints.load import load_model
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
    e = TRAIN.over(axes, **arguments)
    dp, m = np.asarray(e.scenario.mapping.dp), e.scenario.mapping
    broken: Any = e.limits.illegal
    habits = e.scenario.engine.habits
    broken = broken | ((np.asarray(m.zero) > habits.pipeline_zero) & (np.asarray(m.pp) > 1))
    if not habits.zero_one:
        broken = broken | (np.asarray(m.zero) == 1)
    asked = SEARCHED if outputs is None else outputs
    found = {k: dp if k == "dp" else TRAIN.outputs[k].read(e) for k in asked}
    if np.any(np.asarray(e.scenario.training.mtbf) > 0):  # the run as it goes, failures and checkpoints among it
        share = TRAIN.outputs["goodput"].read(e)
        with np.errstate(divide="ignore"):
            found |= {k: found[k] / np.asarray(share, float) for k in OF_RUN if k in found} | {"goodput": share}
    return {**found, "memory_share": e.used / e.capacity, "legal": ~broken}


def refused(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """What rules a plain point out, in a sentence, where nothing that was searched is legal, or near it."""
    try:
        TRAIN.over(alone=True, **plain)
    except RooflmError as error:
        return (str(error),)
    return ()


MARGIN = 0.05
"""Share of memory that a training search keeps free unless named otherwise: predictions of memory are off by about as
much, and an answer that fills the last bytes runs out of memory on the first longer step."""


def usual_trainers(model: Any, gpu: Any, cluster: Any, asked: Sequence[Mapping[str, Any]]) -> dict[Any, list[str]]:
    """Card -> the frameworks that are assumed on it: the one in its own file, else one for each of what is asked.

    >>> usual_trainers("llama-7b", ["h100-sxm-80gb", "tpu-v5e"], None, [{}])
    {'h100-sxm-80gb': ['megatron'], 'tpu-v5e': ['pax']}
    """
    found = {}
    for card in listed(gpu, (None,)):
        own = own_row("engine", str(card or ""))
        device = find_cluster(card, cluster)[0].device
        usual = (assumed_trainer(find_model(model), one, device) for one in asked)
        found[card] = [own] if own else list(dict.fromkeys(usual))
    return found


def trained_by(usual: Mapping[Any, Sequence[str]]) -> dict[str, Any]:
    """The arguments that search every card with its own frameworks: each a value or an axis where all cards have the
    same, else both in step.

    >>> trained_by({"h100": ["megatron", "peft"], "a100": ["megatron", "peft"]})
    {'engine': ['megatron', 'peft']}
    >>> trained_by({"h100": ["megatron"], "tpu-v5e": ["pax"]})
    {'gpu': ['h100', 'tpu-v5e'], 'engine': ['megatron', 'pax'], 'zip': ('gpu', 'engine')}
    """
    first = next(iter(usual.values()))
    if all(names == first for names in usual.values()):
        return {"engine": list(first) if len(first) > 1 else first[0]}
    pairs = [(card, name) for card, names in usual.items() for name in names]
    return {"gpu": [card for card, _ in pairs], "engine": [name for _, name in pairs], "zip": ("gpu", "engine")}


@named
@accept_columns
def search_train(
    model: str | Model, *, gpu: Devices | None = None, gpus: Numbers | None = None, gpus_max: int | None = None,
    price: Numbers | None = None, owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15,
    cluster: str | Cluster | None = None, tp: Numbers | None = None, pp: Numbers | None = None,
    vp: Numbers | None = None, cp: Numbers | None = None, ep: Numbers | None = None, batch: int | None = None,
    seq: int = 2048, micro_batch: Numbers | None = None, tokens: float = 0, recompute: Names | None = None,
    zero: Numbers | None = None, schedule: Names | None = None, order: Names | None = None, dtype: Names | None = None,
    optimizer: Names | None = None, lora_rank: Numbers | None = None, lora_modules: Names | None = None,
    base_bits: Numbers | None = None, step_time: float | None = None, days: float | None = None,
    gpu_hours: float | None = None, cost: float | None = None, energy: float | None = None,
    memory_margin: float | None = None, objective: str = "time", engine: Engines | None = None,
    efficiency: Names | Efficiency | None = None, sets: Mapping[str, Any] | None = None, on: str = "local",
) -> SearchResult:  # fmt: skip
    """The best way to train a model on so many GPUs, over every legal TP x PP x VP x DP x CP x EP x micro-batch x
    recomputation x ZeRO stage x schedule.

    Arguments (tp ... schedule: values allowed, by default all legal ones; days, cost and the like need tokens):
      gpu: GPU, or a list of which the best is chosen.
      gpus: Exactly so many GPUs, or a list.
      gpus_max: Instead: 1, 2, 4, ... GPUs up to this many (default: one node).
      price: USD an hour of one GPU (default: the card's row).
      owned: Cost of GPUs of one's own, bought at their public price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      cluster: Cluster (default: the GPU's own).
      tp: Only these tensor parallel degrees.
      pp: Only these pipeline parallel degrees.
      vp: Only these numbers of virtual stages.
      cp: Only these context parallel degrees.
      ep: Only these expert parallel degrees.
      batch: Sequences a step in all (default: 4 Mi tokens; 16 of adapters).
      seq: Tokens a sequence.
      micro_batch: Only these micro-batches.
      tokens: Tokens of the whole run, such as 15T.
      recompute: Only these of none, selective, full.
      zero: Only these ZeRO stages.
      schedule: 1f1b, interleaved, gpipe, zb-h1, or a list.
      order: Groups by nearness, such as tp-cp-dp-pp (default), or a list.
      dtype: bf16, fp16, fp8 or fp32.
      optimizer: adam (default), adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum.
      lora_rank: Train adapters of this rank, everything else frozen.
      lora_modules: Products with adapters, such as q,v or qkv,out.
      base_bits (bit): Stored bits of a frozen weight (4: QLoRA).
      step_time (s): Longest step.
      days (d): Longest run.
      gpu_hours (h): Most GPU-hours of the run, such as 2M.
      cost: Most USD of the run, such as 5M.
      energy (J): Most energy of the run, such as 20GWh or 70TJ.
      memory_margin: Share of memory to keep free (default: 0.05).
      objective: time, throughput, mfu, cost, gpu-hours, energy or memory.
      engine: Engine, or a list.
      efficiency: calibrated, ideal, or factors such as 0.7,0.9.
      sets: Any other input by its path; lists are searched.
      on: Where blocks of a grid run: local, ray or ray://host:port.

    Exact: every point is evaluated. The ten best are ten different answers: an option that changes neither the score
    nor time, memory and GPUs counts once, and `same` of the result says which. Raises RooflmError for bad input; no
    legal point is no error (see `nearest`).

    >>> found = search_train("llama-7b", gpu="a100-sxm-80gb", gpus=8, batch=64, recompute="full", zero=1, cp=1)
    >>> found.best.inputs["recompute"], found.feasible > 10
    ('full', True)
    """
    refuse_wrong("search_train", locals())
    refuse_lists({"model": model, "cluster": cluster})
    asked = {"cluster": cluster, "order": order, "dtype": dtype, "optimizer": optimizer, "lora_rank": lora_rank,
             "lora_modules": lora_modules, "base_bits": base_bits, "engine": engine, "efficiency": efficiency,
             "sets": sets, **money_arguments(locals())}  # fmt: skip
    more: dict[str, Any] = {k: v for k, v in asked.items() if v is not None}
    goal = goal_of(objective, GOALS)
    machine = find_cluster(next(iter(listed(gpu)), None), cluster)[0]
    counts = gpu_counts(gpus, gpus_max, min(rented_together(machine), NODE))
    seq = int(np.max(whole("seq", seq)))
    assumed = [f"{100 * MARGIN:g} % of memory free"] if memory_margin is None else []
    memory_margin = MARGIN if memory_margin is None else memory_margin
    step = usual_batch(seq, max(counts), any(listed(lora_rank)))
    assumed += [] if batch is not None else [f"batch {step}"]
    assumed += counts_assumed(gpus, gpus_max, counts, machine)
    if not more.get("engine"):
        split = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "dtype": dtype or "bf16", "sets": sets}
        ranks = [{**split, "lora_rank": rank} for rank in listed(lora_rank, (None,))]
        usual = {None: ["ideal"]} if more.get("efficiency") == "ideal" else usual_trainers(model, gpu, cluster, ranks)
        more |= trained_by(usual)
        assumed += of_points([({"gpu": str(card)}, [f"engine {' or '.join(own)}"]) for card, own in usual.items()])
    batch = int(np.max(whole("batch", step if batch is None else batch)))
    bounds: dict[str, Any] = {"days": days, "gpu_hours": gpu_hours, "cost_usd": cost, "energy_j": energy}
    limits = limits_of(memory_margin, step_time, bounds, tokens)
    given = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "micro_batch": micro_batch}
    found = generating(model, "search train")
    free, fixed = find_axes({"model": model, "gpu": gpu, "batch": batch, "seq": seq, "tokens": tokens} | more)
    names = Axis("recompute", listed(recompute, RECOMPUTE))
    stages = Axis("zero", listed(zero, ZERO if max(counts) > 1 else ZERO[:1]))
    grids = []
    for count in counts:
        inner = list(layer_splits(found, count, batch, seq, given))
        for kind in listed(schedule, SCHEDULES):
            outer = stage_splits(found, count, kind, given)
            if inner and outer:
                axes = (
                    *free,
                    names,
                    joint_axis(outer, ("pp", "vp")),
                    stages,
                    joint_axis(inner, ("tp", "cp", "ep", "micro_batch")),
                )
                named = ("gpu", "engine", "batch", "schedule", *(["gpus"] if len(counts) > 1 else []))
                grids.append(Grid(axes, {**fixed, "gpus": count, "schedule": kind}, named))
    if not grids:
        many = counts[0] if len(counts) == 1 else f"up to {max(counts)}"
        raise RooflmError(f"no split of {found.name} over {many} GPUs is legal with these degrees")
    run = OF_RUN if tokens else ()
    outputs = tuple(dict.fromkeys((*SHOWN, *run, goal.key, *(k.key for k in limits if k.key != "memory_share"))))
    task = SearchTask(evaluate, tuple(grids), goal, tuple(limits), outputs, (), TWIN_OUTPUTS, (), TRAIN.bands, BLOCK)
    plain = nest({**fixed, **{m.name: m.values[0] for axis in free for m in axis.members}, "gpus": counts[0]})
    each, told = (None, (*DECIDED, "engine")) if "zip" in more else (more["engine"], DECIDED)
    known = assumptions_of(build_training, plain, gpu=gpu, engine=each, dtype=dtype)
    answer = search(task, on, assumed=(*(t for t in known if t.partition(" ")[0] not in told), *assumed))
    if any("goodput" in c.outputs for c in (*answer.top, *([answer.nearest.candidate] if answer.nearest else []))):
        answer = replace(answer, assumed=(*answer.assumed, FAILING))
    answer = replace(answer, model=found.name, prices=searched_prices(answer, listed(gpu), cluster, more))
    if answer.best or answer.nearest:
        return remedied(TRAIN, answer, plain)
    return replace(answer, unmet=refused(plain))


FINE_TUNED = 16
"""Sequences a step of adapters (QLoRA's of all its sizes on OASST1: Dettmers et al. 2023, table 9)."""


def usual_batch(seq: int, gpus: int, adapters: bool = False) -> int:
    """Sequences a step where none are named: 4 Mi tokens, and at least one sequence for every 64 GPUs; of adapters
    FINE_TUNED, or the next number that these GPUs share out evenly.

    >>> usual_batch(2048, 1024), usual_batch(131072, 8192), usual_batch(2048, 8, True), usual_batch(2048, 24, True)
    (2048, 128, 16, 48)
    """
    return math.lcm(FINE_TUNED, gpus) if adapters else max(2**22 // seq, -(-gpus // 64), 1)


def gpu_counts(gpus: Any, gpus_max: Any, node: int = 1) -> list[int]:
    """Numbers of GPUs to search: those given, or powers of two up to gpus_max (default: one node) and gpus_max itself.

    >>> gpu_counts(None, 24), gpu_counts([8, 16], None), gpu_counts(None, None, 8)
    ([1, 2, 4, 8, 16, 24], [8, 16], [1, 2, 4, 8])
    """
    if gpus is not None and gpus_max is not None:
        raise RooflmError("give gpus or gpus_max, not both")
    if gpus is not None:
        return [int(v) for v in np.atleast_1d(whole("gpus", np.array(gpus) if is_list(gpus) else gpus))]
    most = int(np.max(whole("gpus_max", gpus_max or node)))
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
