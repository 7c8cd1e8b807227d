"""What every search of serving shares: goals, constraints, and the splits that are legal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.api import Task
from rooflm.asked.answers.bands import borrowed
from rooflm.asked.answers.remedies import POPULAR, narrower
from rooflm.asked.arguments import arguments as table_of
from rooflm.asked.assumed import schemes_near
from rooflm.asked.build_inference import Built
from rooflm.asked.checks import whole
from rooflm.asked.machine import find_cluster, prices_told, rented_together
from rooflm.asked.purchase import affordable, purchase
from rooflm.asked.refused import sentence
from rooflm.asked.ways import expert_ways, tensor_ways
from rooflm.catalogue.hardware import Cluster, Device
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError, near_matches
from rooflm.readers.prices import in_words
from rooflm.scenario.rules import ENGINE, divisors
from rooflm.scenario.scenario import Scenario
from rooflm.search.limits import Limit
from rooflm.search.result import SearchResult
from rooflm.search.space import Candidate, Goal
from rooflm.sweep.assumed import of_points
from rooflm.sweep.axes import Axis, is_list

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


TWIN_OUTPUTS = ("ttft_s", "tpot_s")
"""Two answers of one score that users cannot tell apart are one: that with the fewest GPUs."""


SINGLE = ("model", "prompt", "output", "cached", "logits", "efficiency", "cluster")
"""Inputs that say what is asked: one value each."""


def listed(value: Any, usual: Iterable[Any] = ()) -> tuple[Any, ...]:
    """The values of an argument that may be a list, one value, or not given.

    >>> listed([1, 2]), listed(8), listed(None, (1, 2))
    ((1, 2), (8,), (1, 2))
    """
    if value is None:
        return tuple(usual)
    return tuple(value) if is_list(value) else (value,)


def degrees(model: Model, totals: Sequence[int], given: Mapping[str, Any]) -> Iterator[tuple[int, int, int, int]]:
    """Every legal (tp, pp, dp, ep) that uses one of the totals: tp divides the heads, pp is at most the layers, ep
    divides the experts and tp x dp. given: values allowed for a degree (all where it has none).

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> list(degrees(load_model("llama-7b"), [2], {}))
    [(1, 1, 2, 1), (1, 2, 1, 1), (2, 1, 1, 1)]
    """
    heads, experts, layers = tensor_ways(model), expert_ways(model), int(model.layers)
    allowed = {
        k: {int(v) for v in (given[k] if is_list(given[k]) else [given[k]])} for k in given if given[k] is not None
    }

    def allowed_value(name: str, value: int) -> bool:
        return name not in allowed or value in allowed[name]

    for total in totals:
        for tp in (d for d in divisors(math.gcd(heads, total)) if allowed_value("tp", d)):
            rest = total // tp
            for pp in (d for d in divisors(rest, layers) if allowed_value("pp", d)):
                dp = rest // pp
                if not allowed_value("dp", dp):
                    continue
                for ep in divisors(math.gcd(experts, tp * dp)) if experts else [1]:
                    if allowed_value("ep", ep):
                        yield tp, pp, dp, ep


def legal_splits(model: Model, totals: Sequence[int], given: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    """All `degrees`; RooflmError where there are none."""
    found = list(degrees(model, totals, given))
    if not found:
        counts = str(totals[0]) if len(totals) == 1 else f"{min(totals)} to {max(totals)}"
        asked = ", ".join(f"{k} {' or '.join(map(str, listed(v)))}" for k, v in given.items() if v is not None)
        rules = [f"tp divides {tensor_ways(model)}", f"pp is at most {int(model.layers)}"]
        rules += [f"ep divides {expert_ways(model) or 1} and tp x dp", "tp x pp x dp are the GPUs"]
        raise RooflmError(f"no split of {model.name} over {counts} GPUs has {asked}: {', '.join(rules)}")
    return found


def refuse_lists(inputs: Mapping[str, Any]) -> None:
    """RooflmError if an argument that must have one value (SINGLE) is a list."""
    for name in SINGLE:
        if is_list(inputs.get(name)):
            raise RooflmError(f"{name} is a list, but a search answers for one {name}: use a sweep for several")


OPTIONS = (
    (("guesses", "draft"), ("acceptance", "accepted", "branches")),
    (("adapters",), ("adapter_rank", "adapter_modules")),
    (("cpu_layers", "cpu_experts"), ("host_bandwidth",)),
)
"""Speculation, adapters, layers on the host: arguments of which any turns it on, and those that say more of it."""


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of OPTIONS that are on.

    >>> off = {"guesses": 0, "draft": None, "acceptance": 0.7, "accepted": 0, "branches": 1, "adapters": 0,
    ...        "adapter_rank": 16, "adapter_modules": None, "cpu_layers": 0, "cpu_experts": 0, "host_bandwidth": None}
    >>> options_of(off), options_of(off | {"adapters": 4}), options_of(off | {"cpu_experts": [0, 8]})
    ({}, {'adapters': 4, 'adapter_rank': 16}, {'cpu_layers': 0, 'cpu_experts': [0, 8]})
    """
    on = [(*first, *more) for first, more in OPTIONS if any(_is_on(given[name]) for name in first)]
    return {name: given[name] for names in on for name in names if given[name] is not None}


def _is_on(value: Any) -> bool:
    return value is not None and (isinstance(value, str) or bool(np.any(np.asarray(value))))


MONEY = ("price", "owned", "purchase", "electricity")
"""Arguments of what an hour of a GPU costs."""


def searched_prices(found: SearchResult, gpus: Sequence[Any], cluster: Any, *given: Mapping[str, Any]) -> str:
    """What the costs of a search rest on; "" where a price is searched itself. Of many cards, those that its answers
    name. given: as of `prices_told`."""
    named = {str(c.inputs.get("gpu")) for c in (*found.top, *found.front)}
    told = [g for g in gpus if g is not None and (len(gpus) <= FEW_CARDS or str(g) in named)]
    swept = any(is_list(each.get(name)) for each in given for name in MONEY)
    rent = "" if swept or (len(gpus) > FEW_CARDS and not told) else prices_told(told or (None,), cluster, *given)
    return "; ".join(filter(None, (rent, bought_alone([*found.top, *found.front]))))


def bought_alone(answers: Iterable[Candidate]) -> str:
    """What a purchase price leaves out, where answers have one; "" where all are of whole machines.

    >>> bought_alone([Candidate({"gpu": g}, {"purchase_usd": 1.0}) for g in ("rtx-4090", "gb10")])
    'to buy: cards alone, without the machine that holds them (gb10: the whole machine)'
    """
    named = list(dict.fromkeys(str(c.inputs.get("gpu")) for c in answers if "purchase_usd" in c.outputs))
    whole = [name for name in named if (known := purchase(name)) and known.of == "machine"]
    if len(whole) == len(named):
        return ""
    of_all = f" ({in_words(whole)}: the whole machine)" if whole else ""
    return f"to buy: cards alone, without the machine that holds them{of_all}"


FEW_CARDS = 8
"""So many cards are told of with their prices whether or not an answer names them."""


def assumptions_of(build: Callable[..., Built], given: Mapping[str, Any], **named: Any) -> tuple[str, ...]:
    """Assumptions of every card, engine and scheme of a search; of many cards those that are of none alone. build:
    makes the scenario of arguments; given: its other arguments; named: those that may be lists of names.

    >>> from rooflm.asked.build_inference import build_inference
    >>> assumptions_of(build_inference, {"model": "llama-7b"}, gpu="rtx-5090", quant=["fp8", "q4_k_m"])[1:3]
    ('engine vllm (q4_k_m: llama.cpp)', 'efficiency calibrated')
    """
    axes = {name: listed(values, (None,)) for name, values in named.items()}
    many = len(axes["gpu"]) > FEW_CARDS
    axes["gpu"] = axes["gpu"][:1] if many else axes["gpu"]
    every = []
    for values in itertools.islice(itertools.product(*axes.values()), MOST_NAMES):
        point = dict(zip(axes, values, strict=True))
        built = build(**{**given, **point}, alone=False)
        names = {k: str(getattr(v, "name", v)) for k, v in point.items() if len(axes[k]) > 1}
        stands_in = schemes_near(built.scenario) if {**given, **point}.get("engine") is None else ()
        every.append((names, [*built.assumed, *stands_in, *([] if many else borrowed(built.scenario))]))
    return tuple(text for text in of_points(every) if not (many and text.startswith("cluster ")))


MOST_NAMES = 64
"""Most points whose assumptions are told."""


def remedied(task: Task, found: SearchResult, given: Mapping[str, Any], limits: Sequence[Limit] = ()) -> SearchResult:
    """The result of a search, which where nothing fits says with what its nearest point would. given: arguments of the
    call that predicts a point, but for those that were searched; limits: what narrower weights must be able to meet."""
    if found.best is not None or found.nearest is None:
        return found
    known = {k: v for k, v in found.nearest.candidate.inputs.items() if k in table_of(task.name)}
    nearest = task.over(**{**given, **known})
    words = "; ".join(r.words for r in nearest.would_fit)
    told = [f"The nearest would fit with: {words}."] if words else []
    asked = "quant" in known or given.get("quant") or "quant" in words or task.name != "infer"
    alone = {**given, **known, "batch": 1}
    narrow = [
        q for q in narrower_names(nearest.scenario) if not asked and meets(limits, task.over(**alone | {"quant": q}))
    ]
    if narrow:
        told.append(f"Weights of 16 bits alone were tried: --quant {','.join(narrow)} tries narrower ones.")
    return replace(found, unmet=(*found.unmet, *told)) if told else found


def meets(limits: Sequence[Limit], one: Any) -> bool:
    """Whether a request that is alone keeps the limits of its times: among others it is no faster."""
    times = {"ttft_s": one.ttft, "tpot_s": one.tpot, "latency_s": one.latency}
    return all(bool(np.all(limit.excess(times[limit.key]) <= 0)) for limit in limits if limit.key in times)


def narrower_names(s: Scenario) -> list[str]:
    """Of the schemes narrower than 16 bits that the engine runs, the widest and one of about 4 bits.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [narrower_names(build_inference("llama-7b", gpu=g).scenario) for g in ("h100", "rtx-3090")]
    [['fp8', 'awq'], ['int8', 'awq']]
    """
    if np.min(s.quant.weight_bits) < 16:
        return []
    known = narrower(s)
    four = [q.name for q in known if q.weight_bytes < 0.65 and q.name in POPULAR]
    return list(dict.fromkeys([*(q.name for q in known[:1]), *four[:1]]))


def money_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The search's arguments on prices; empty if none was given.

    >>> money_arguments({"price": None, "owned": True, "purchase": None, "electricity": 0.15, "gpu": "l4"})
    {'owned': True, 'electricity': 0.15}
    """
    own = given["owned"] or any(given.get(k) is not None for k in ("purchase", "prefill_purchase"))
    return {k: given[k] for k in MONEY if given[k] is not None and (own or k == "price")}


def cards_to_search(gpu: Any, under: float | None, paid: Any = None) -> Any:
    """The cards to search: the given ones, or with a budget and no card every one within it. paid: a purchase price
    given by the caller. RooflmError if there is a budget but no price of any given card is known."""
    if gpu is None and under is not None:
        return list(affordable(under))
    names = [str(getattr(g, "name", g)) for g in listed(gpu)]
    if names and under is not None and paid is None and not any(map(purchase, names)):
        raise RooflmError(f"no public purchase price of {' or '.join(names)} is known: give it with --purchase, in USD")
    return gpu


def purchase_usd(device: Device, paid: Any = None) -> Any:
    """Purchase price of a card in USD: the given one (paid), else the public one, else infinity."""
    if paid is not None:
        return np.asarray(paid, float)
    known = purchase(device.name)
    return known.usd if known else math.inf


Split = tuple[int, int, int, int]
"""Degrees tp, pp, dp, ep."""


def within_budget(
    splits: Sequence[Split], under: float | None, gpu: Any, cluster: Any, paid: Any = None
) -> list[Split]:
    """The splits over as many GPUs as a budget buys, and over the next number, which tells what more money would do:
    what a card costs is known before any point is evaluated. Where nothing of these is legal, `in_budget` searches
    all. paid: as of `purchase_usd`.

    >>> within_budget([(1, 1, n, 1) for n in (1, 2, 4, 8)], 2000, "rtx-4090", None)
    [(1, 1, 1, 1), (1, 1, 2, 1)]
    """
    if under is None:
        return list(splits)
    each = float(np.min(purchase_usd(find_cluster(gpu, cluster)[0].device, paid)))
    counts = sorted({tp * pp * dp for tp, pp, dp, _ in splits})
    most = next((n for n in counts if n * each > under), counts[-1])
    return [(tp, pp, dp, ep) for tp, pp, dp, ep in splits if tp * pp * dp <= most]


def in_budget(under: float | None, run: Callable[[float | None], SearchResult]) -> SearchResult:
    """A search of what a budget buys (`within_budget`), and where none of it is legal, of everything: what is nearest
    may cost more."""
    found = run(under)
    return found if under is None or found.best or found.interrupted else run(None)


def runnable_splits(s: Scenario, splits: Sequence[Split]) -> tuple[list[Split], str]:
    """The splits that a scenario's engine can run, and the reason why it cannot run the first of the others."""
    kept: list[Split] = []
    why = ""
    for tp, pp, dp, ep in splits:
        one = replace(s, mapping=replace(s.mapping, tp=tp, pp=pp, dp=dp, ep=ep, gpus=0))
        broken = next((rule for rule in ENGINE if np.any(rule.broken(one))), None)
        if broken is None:
            kept.append((tp, pp, dp, ep))
        why = why or ("" if broken is None else sentence(broken, one))
    return kept, why


def refuse_none(kept: bool, reasons: Iterable[str]) -> None:
    """Raise RooflmError where no engine that is searched can run any split, with the first reason."""
    if not kept:
        raise RooflmError(f"nothing of this search can run: {next((r for r in reasons if r), 'no split is left')}")


def gpu_totals(gpus: Any, gpus_max: Any, node: int) -> list[int]:
    """The numbers of GPUs to search: those given, or all up to the largest allowed (default: one node; where that is a
    pod of more than NODE devices, slices of it by powers of two up to NODE).

    >>> gpu_totals(8, None, 8), gpu_totals(None, 4, 8), gpu_totals(None, None, 256)[-3:]
    ([8], [1, 2, 3, 4], [32, 64, 128])
    """
    if gpus is not None and gpus_max is not None:
        raise RooflmError("give gpus or gpus_max, not both")
    if is_list(gpus) and not len(gpus):
        raise RooflmError("gpus is an empty list: give at least one value")
    if gpus is not None:
        return sorted({int(g) for g in np.atleast_1d(whole("gpus", np.array(gpus) if is_list(gpus) else gpus))})
    if gpus_max is None and node > NODE:
        return [2**k for k in range(NODE.bit_length())]
    return list(range(1, int(gpus_max or node) + 1))


NODE = 128
"""GPUs up to which a search looks unless told; a power of two, as pods are let in slices of such sizes."""


def counts_assumed(gpus: Any, gpus_max: Any, counts: Sequence[int], machine: Cluster) -> tuple[str, ...]:
    """How many GPUs a search looks at where nobody said, as an assumption."""
    if gpus is not None or gpus_max is not None:
        return ()
    if len(counts) == 1:
        return (f"gpus 1 (a machine of {machine.name})",)
    every = list(counts) == list(range(1, len(counts) + 1))
    of = (
        "a node"
        if every
        else "powers of two of a pod"
        if rented_together(machine) > NODE
        else "powers of two of a node"
    )
    return (f"gpus 1 to {max(counts)} ({of} of {machine.name})",)


def limits_of(given: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Constraints by their names: ttft, tpot, latency (s), cost (USD a million tokens), throughput (tokens/s in all),
    user_speed (tokens/s a user), memory_margin (share of the memory kept free)."""
    known: dict[str, tuple[str, str, str, bool]] = {
        "ttft": ("ttft_s", "time to first token", "s", True),
        "tpot": ("tpot_s", "time per output token", "s", True),
        "latency": ("latency_s", "request latency", "s", True),
        "cost": ("cost_usd_per_million_tokens", "cost of a million tokens", "USD", True),
        "throughput": ("output_tokens_per_s", "output tokens/s", "", False),
        "under": ("purchase_usd", "purchase price", "USD", True),
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
        out.append(Limit(key, float(bound), label, unit, most, UNKNOWN.get(name, "")))
    return tuple(out)


UNKNOWN = {"under": "no public purchase price of this GPU is known: give it with --purchase"}
"""Constraint -> what it means that its output has no bound, where that is not that it grows."""


def goal_of(name: str, goals: Mapping[str, Goal]) -> Goal:
    """An objective by name; RooflmError with the known ones otherwise."""
    if name not in goals:
        near = near_matches(name, goals)
        tail = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it must be one of {', '.join(goals)}"
        raise RooflmError(f"unknown objective {name!r}: {tail}")
    return goals[name]


def joint_axis(rows: Sequence[Sequence[int]], names: Sequence[str]) -> Axis:
    """Combinations of several arguments' values, one per row, as a single axis.

    >>> axis = joint_axis([(1, 8), (2, 4)], ("tp", "dp"))
    >>> axis.values, axis.partners[0].values
    ((1, 2), (8, 4))
    """
    columns = [Axis(name, tuple(row[i] for row in rows)) for i, name in enumerate(names)]
    return columns[0]._replace(partners=tuple(columns[1:]))
