"""`search infer` under load: every legal deployment by its steady state, and the best ones simulated.

The space is exact by the estimate (serving/steady.py): every split, scheme, token budget and load is evaluated. The
estimate gives means; limits on percentiles are screened by the mean and decided by the simulation, which steps the load
of an answer down until its limits hold.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.api import INFER, named
from rooflm.asked.answers.use import usd_per_million
from rooflm.asked.arguments import refuse_wrong
from rooflm.asked.assumed import attention_dp, with_share
from rooflm.asked.build_inference import build_inference, find_model
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import memory_use
from rooflm.search import pools as pooled
from rooflm.search.digest import SearchTask
from rooflm.search.held import decode_joules, held_bytes, prompt_joules
from rooflm.search.limits import Limit
from rooflm.search.request import read_request
from rooflm.search.result import Blocked, SearchResult
from rooflm.search.search import search
from rooflm.search.space import Candidate, Goal, Grid
from rooflm.search.splits import (
    GOALS,
    SHOWN,
    TWIN_OUTPUTS,
    in_budget,
    listed,
    purchase_usd,
    refuse_lists,
    refuse_none,
    remedied,
    runnable_splits,
    searched_prices,
    within_budget,
)
from rooflm.serving import metrics, workload
from rooflm.serving.capacity import capacity
from rooflm.serving.deploy import SPREAD, Served, agrees, make_pool, serve, server_for, whole
from rooflm.serving.highest import broken
from rooflm.serving.in_step import steps_apart
from rooflm.serving.passes import Load
from rooflm.serving.server import Server
from rooflm.serving.steady import states
from rooflm.shown.progress import tell_done
from rooflm.sweep.axes import Axis, Point, accept_columns, is_list, nest, points

if TYPE_CHECKING:
    from rooflm.api import Devices, Engines, Names, Numbers, Schemes
    from rooflm.catalogue.hardware import Cluster, Device
    from rooflm.scenario.scenario import Efficiency

Array = NDArray[Any]
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384, math.inf)
"""Token budgets of a pass that a search tries beside the engine's own; infinity: prompts go in whole."""
EACH, FEWEST, MOST = 40, 400, 20_000
"""Requests a client of the simulated closed loop (so that its first wave is no more than 2.5 % of them, within p95), at
least and at most in all."""
PER_GPU = 256
"""Clients a GPU up to which loads are tried (at least 1024 in all)."""
STABLE = Limit("load_share", 1.0, "load", "share", endless="the queue grows without bound")
"""What every open loop must meet: its rate is at most what the deployment can serve."""
STRAIGHT = 4
"""Runs of an answer after which its highest load is found by halving, if it is not found yet."""
IDLE = 0.5
"""Share of its limit at which the second run of an answer takes the worst measure to be without load."""
LOADS = ("concurrency", "rate")
TIES = (GOALS["cost"].key, GOALS["latency"].key)
"""What decides between deployments that all serve the rate that they are given: fewer USD, then shorter requests."""
PASSED = ("cluster", "quant", "engine", "efficiency", "sets")
"""Arguments that go to `infer` as they are."""


class Confirmed(NamedTuple):
    """An answer simulated. load: the highest of the searched loads, up to the estimate's, at which the limits hold (the
    estimate's own where they hold at none); held: whether they do; broken: which do not just above it (or at it)."""

    candidate: Candidate
    load: float
    served: Served
    held: bool
    broken: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether estimate and simulation give the same times and rate to within a quarter, at the load simulated."""
        return agrees(self.served)

    @property
    def found(self) -> Candidate:
        """The answer as the simulation has it: the load at which its limits hold, and what came out there."""
        kind = next(k for k in LOADS if k in self.candidate.inputs)
        out = {k: v for k, v in means(self.served).items() if k in self.candidate.outputs}
        return Candidate({**self.candidate.inputs, kind: self.load}, {**self.candidate.outputs, **out}, simulated=True)

    @property
    def borne_out(self) -> bool:
        """Whether the simulation is what the estimate said: its limits hold at that load, and times agree."""
        return self.held and self.agrees and self.found.inputs == self.candidate.inputs


@dataclass(frozen=True, repr=False)
class LoadResult(SearchResult):
    """The answer of a search under load. kind: "concurrency" or "rate"; confirmed: its best answers, simulated."""

    kind: str = "concurrency"
    confirmed: tuple[Confirmed, ...] = ()

    @property
    def chosen(self) -> Confirmed | None:
        """The simulated answer that holds its limits and is best by the simulation; where all serve the rate that they
        are given, the first by the estimate, whose ties cost and latency decide."""
        return next(iter(by_simulation(self.confirmed, self.goal)), None)


def by_simulation(confirmed: Iterable[Confirmed], goal: Goal) -> list[Confirmed]:
    """The simulated answers that hold their limits, the best by the simulation first; where all serve the rate that
    they are given, in the estimate's order, whose ties cost and latency decide."""
    held = [c for c in confirmed if c.held]
    if not goal.less and any("rate" in c.candidate.inputs for c in held):
        return held
    return sorted(held, key=lambda c: float(goal.score(means(c.served))))


def confirmations(top: Sequence[Candidate], many: int, run: Callable[[Candidate], Confirmed]) -> Iterator[Confirmed]:
    """The first `many` answers simulated, and for each that its simulation does not bear out the next one too, up to
    twice as many in all, or until one holds its limits."""
    done: list[Confirmed] = []
    for candidate in top if many > 0 else ():
        if sum(c.borne_out for c in done) >= many or (len(done) >= 2 * many and any(c.held for c in done)):
            break
        done.append(run(candidate))
        yield done[-1]


def simulations(
    answer: SearchResult, many: int, run: Callable[[Candidate], Confirmed]
) -> tuple[list[Confirmed], SearchResult]:
    """The simulations of an answer's best points (`confirmations`), and of the best without pools; after Ctrl-C those
    that came to their end, of an answer that says so."""
    done: list[Confirmed] = []
    try:
        many = 0 if answer.interrupted else min(many, len(answer.top))
        if many > 0:
            tell_done(0, many, "best points simulated")
        for confirmed in confirmations(answer.top, many, run):
            done.append(confirmed)
            tell_done(len(done), max(many, len(done)), "best points simulated")
        plain = answer.without_pools.best if answer.without_pools and done else None
        if plain and plain not in [c.candidate for c in done]:
            done.append(run(plain))
    except KeyboardInterrupt:
        answer = replace(answer, interrupted=f"{len(done)} of the best points simulated")
    return done, answer


def ranked(top: Sequence[Candidate], confirmed: Sequence[Confirmed], goal: Goal) -> tuple[Candidate, ...]:
    """The best answers by what was simulated of them, without those whose limits do not hold. Of answers that were not
    simulated the estimate stands: behind those that bear it out, beside those that do not."""
    held = by_simulation(confirmed, goal)
    sure = max((i for i, c in enumerate(held) if c.borne_out), default=0) + 1
    tried = [c.candidate for c in confirmed]
    rest = [*(c.found for c in held[sure:]), *(c for c in top if c not in tried)]
    return (*(c.found for c in held[:sure]), *sorted(rest, key=lambda c: float(goal.score(c.outputs))))


def means(served: Served) -> dict[str, float]:
    """Outputs of a simulation by their names; of times and other spreads, the mean."""
    values = served.summary.values
    return {k: float(v["mean"] if isinstance(v, dict) else v) for k, v in values.items() if k in (*SHOWN, *KEYS)}


KEYS = tuple(goal.key for goal in GOALS.values())


def ladder(most: int) -> list[int]:
    """Loads from 1 to `most`: each up to 32, then about 4 % apart.

    >>> ladder(40)[-4:]
    [36, 37, 39, 40]
    """
    steps = [round(32 * 1.04**k) for k in range(1, 400)]
    return [*range(1, min(32, most) + 1), *(s for s in steps if s <= most)]


def amount(clients: Any) -> Any:
    """Requests of a closed loop of so many clients: 40 each, within bounds, and never fewer than 5 each.

    >>> amount(np.array([1.0, 100.0, 1000.0])).tolist()
    [400.0, 4000.0, 20000.0]
    """
    return np.maximum(np.clip(EACH * clients, FEWEST, MOST), 5 * clients)


def evaluate(
    axes: int = 0, outputs: tuple[str, ...] | None = None, *, spread: tuple[float, float] = SPREAD,
    prompt: int = 512, output: int = 128, dp: Any = 1, token_budget: Any = None, concurrency: Any = None,
    rate: Any = None, **arguments: Any,
) -> dict[str, Any]:  # fmt: skip
    """The steady states of one split: what a search needs, over replicas (or attention ranks: a number), token budgets
    and loads, each an array of `axes` dimensions or a number; of a point with pools, those of `search.pools`."""
    longest = [_reach(v, spread) for v in (prompt, output)]
    if "prefill_replicas" in arguments:
        return pooled.evaluate(mean=(_mean(prompt, spread), _mean(output, spread)), longest=(longest[0], longest[1]),
                               concurrency=concurrency, rate=rate, dp=dp, outputs=outputs, **arguments)  # fmt: skip
    ranks, copies = (int(dp), 1.0) if attention_dp(find_model(arguments["model"])) else (1, np.asarray(dp, float))
    request = build_inference(prompt=longest[0], output=longest[1], dp=ranks, batch=ranks, **arguments)
    server = server_for(request.scenario)
    budget = budgets(server, longest[0], np.asarray(server.budget if token_budget is None else token_budget, float))
    clients = np.asarray(0.0 if concurrency is None else concurrency, float)
    arrivals = np.asarray(0.0 if rate is None else rate, float)
    sequences = server.max_sequences * ranks  # one table for every load and budget of a search
    widest = max(float(np.max(budget)), *(b for b in BUDGETS if math.isfinite(b)), longest[0])
    pool = make_pool(request.scenario, replace(server, budget=int(widest)), sum(longest), sequences, must_fit=False)
    s = pool.table.components.scenario
    reach = int(pool.table.components.contexts[-1])
    passes = np.minimum(budget, reach * sequences)
    sized = [with_share(replace(s, engine=s.engine.but(token_budget=float(b)))) for b in budget.ravel()]
    room = np.array([capacity(own, float(b), reach).tokens for own, b in zip(sized, passes.ravel(), strict=True)])
    room = room.reshape(passes.shape)
    used = np.minimum(copies, np.maximum(clients, 1)) if concurrency is not None else copies  # replicas with work
    none = np.zeros(())  # no first wave: what is simulated has it as its warm-up
    load = Load(_mean(prompt, spread), _mean(output, spread), clients / used, arrivals / used, none, budget,
                np.maximum(room, 1.0), wide=(longest[0] / _mean(prompt, spread) - 1),
                apart=steps_apart((longest[1] - _mean(output, spread)) / math.sqrt(3), EACH, pool))  # fmt: skip
    found = states(pool, load)
    gpus, each = copies * pool.gpus, purchase_usd(s.cluster.device, arguments.get("purchase"))
    x = found.requests_per_s * used
    tokens = x * load.output
    held = held_bytes(pool, found.running, passes, room, sum(longest))
    joules = (decode_joules(pool, found.running, load) + prompt_joules(pool, load.budget, load)) / load.output
    return {
        "ttft_s": found.ttft, "tpot_s": found.tpot, "latency_s": found.latency, "requests_per_s": x,
        "output_tokens_per_s": tokens, "output_tokens_per_s_per_gpu": tokens / gpus, "gpus": gpus + 0.0 * x,
        "cost_usd_per_million_tokens": usd_per_million(s.cluster.device.price * gpus, tokens),
        "energy_j_per_token": joules + s.cluster.device.idle * gpus / tokens,
        "memory_bytes": held, "memory_share": held / memory_use(s, batch=np.zeros(())).capacity,
        "load_share": pooled.overload(found.stable, arrivals, x), "legal": np.ones((), dtype=bool),
        **({"purchase_usd": gpus * each + 0.0 * x} if "purchase_usd" in (outputs or ()) else {}),
    }  # fmt: skip


def _reach(mean: int, spread: tuple[float, float]) -> int:
    """The longest of the lengths that `workload.lengths` draws."""
    return max(math.floor(mean * spread[1] + 1e-9), 1)


def _mean(mean: int, spread: tuple[float, float]) -> float:
    """The mean of those lengths."""
    low = max(math.ceil(mean * spread[0] - 1e-9), 1)
    return (low + max(_reach(mean, spread), low)) / 2


def budgets(server: Server, prompt: int, asked: Array) -> Array:
    """New tokens that a pass may take for each budget asked for; where that is infinite (no chunked prefill), the
    server's own budget, or the whole prompt if that is longer."""
    return np.where(np.isfinite(asked), asked, max(server.budget, prompt))


def grids_of(
    model: Model, splits: Sequence[tuple[int, int, int, int]], free: Sequence[Axis], fixed: Point, load: Axis,
    budget: Any, under: float | None = None, purchase: Any = None,
) -> Iterator[Grid]:  # fmt: skip
    """A grid for each split and each combination of names: over replicas, token budgets and loads."""
    shares = attention_dp(model)
    reasons: list[str] = []
    any_runs = False
    for names in points(free):
        arguments = nest(fixed | names)
        request = build_inference(batch=1, alone=False, **{k: v for k, v in arguments.items() if v is not None})
        affordable = within_budget(splits, under, names.get("gpu", fixed.get("gpu")), fixed.get("cluster"), purchase)
        kept, why = runnable_splits(request.scenario, affordable)
        reasons, any_runs = [*reasons, why], any_runs or bool(kept)
        groups: dict[tuple[int, ...], list[int]] = {}
        for tp, pp, dp, ep in kept:
            groups.setdefault((tp, pp, ep, dp) if shares else (tp, pp, ep), []).append(dp)
        server = server_for(request.scenario)
        if server.scheduler == "static":
            raise RooflmError(f"engine {request.scenario.engine.name} runs static batches: leave the load out")
        listed = budget if is_list(budget) else BUDGETS if budget is None else [budget]
        own = [b for b in (server.budget,) if budget is None]
        passes = Axis("token_budget", tuple(dict.fromkeys(float(b) for b in (*own, *listed))))
        for split, replicas in groups.items():
            split_degrees = dict(zip(("tp", "pp", "ep", "dp"), split, strict=False))
            inner = () if shares else (Axis("dp", tuple(sorted(set(replicas)))),)
            given = {k: v for k, v in (fixed | names | split_degrees).items() if v is not None}
            yield Grid((*inner, passes, load), given, ("gpu", "engine", "quant", *names, "tp", "pp", "ep", "dp"))
    refuse_none(any_runs, reasons)


@named
@accept_columns
def search_serve(
    model: str | Model, *, gpu: Devices | None = None, gpus: Numbers | None = None, gpus_max: int | None = None,
    price: Numbers | None = None, owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15,
    under: float | None = None, cluster: str | Cluster | None = None, tp: Numbers | None = None,
    pp: Numbers | None = None, dp: Numbers | None = None, ep: Numbers | None = None, prompt: int = 512,
    output: int = 128, guesses: Numbers = 0, draft: str | None = None, acceptance: Numbers = 0.7, accepted: Numbers = 0,
    branches: Numbers = 1, adapters: Numbers = 0, adapter_rank: Numbers = 16, adapter_modules: Names | None = None,
    cpu_layers: Numbers = 0, cpu_experts: Numbers = 0, host_bandwidth: Numbers | None = None,
    concurrency: Numbers | None = None, rate: Numbers | None = None, spread: tuple[float, float] = (0.8, 1.2),
    pools: bool = False, prefill_gpu: str | Device | None = None, prefill_price: float | None = None,
    prefill_purchase: float | None = None, transfer_bandwidth: float | None = None, slo: str = "", confirm: int = 3,
    token_budget: Numbers | None = None, ttft: float | None = None, tpot: float | None = None,
    latency: float | None = None, cost: float | None = None, throughput: float | None = None,
    memory_margin: float | None = None, objective: str = "throughput", quant: Schemes | None = None,
    engine: Engines | None = None, efficiency: Names | Efficiency | None = None, sets: Mapping[str, Any] | None = None,
    on: str = "local",
) -> LoadResult:  # fmt: skip
    """The best deployment for users: as `search_infer`, but requests come and go (continuous batching). Every point by
    its steady state, the best ones simulated as `serve` does.

    Arguments (concurrency or rate, by default a ladder of clients of which the best is chosen):
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
      prompt: Prompt tokens a request.
      output: Output tokens a request.
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
      concurrency: So many clients in all that wait for their answer, or a list.
      rate (1/s): Requests/s in all (Poisson), or a list.
      spread: Lengths as shares LOW,HIGH of prompt and output.
      pools: Also separate prefill and decode pools of every size and split (disaggregated).
      prefill_gpu: Another GPU for the prefill replicas.
      prefill_price: USD an hour of one of those (default: the card's row).
      prefill_purchase: USD that one of those costs to buy (default: its public price).
      transfer_bandwidth (B/s): From prefill to decode replicas, such as 50GB/s (default: the cluster's).
      slo: Limits such as ttft:p95=1s,tpot:p95=50ms.
      confirm: Simulate so many of the best.
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

    ttft, tpot, latency limit means; slo percentiles too. Raises RooflmError for bad input; no legal point is no error.

    >>> found = search_serve("llama-7b", gpu="a100-sxm-80gb", gpus=1, concurrency=[1, 8], confirm=1)
    >>> found.best.inputs["concurrency"], found.chosen.held
    (8, True)
    """
    given = dict(locals())
    refuse_lists(given)
    refuse_wrong("search_serve", given)
    if concurrency is not None and rate is not None:
        raise RooflmError("a search takes one load, concurrency or rate: give one of them")
    asked = read_request(given, PASSED, "search")
    lengths = checked_lengths(asked.model, prompt, output, spread)
    pooled.check_pools(pools, prefill_gpu, transfer_bandwidth, asked.totals)
    of_pools = {name: given[name] for name in pooled.OF_POOLS}
    load = load_axis(concurrency, rate, max(asked.totals))
    slos = metrics.parse_limits(slo) if slo else ()
    limits = (*asked.limits, *(mean_limit(m) for m in slos), *((STABLE,) if rate is not None else ()))
    free, fixed = asked.free, asked.fixed
    first = {k: v for k, v in fixed.items() if v is not None} | next(points(free))
    of_lengths = f"lengths {spread[0]:g} to {spread[1]:g} of prompt and output"
    assumed = (*asked.assumptions({"batch": 1, **nest(first)}), of_lengths)
    best_of = LOADS if token_budget is not None else (*LOADS, "token_budget")  # of budgets not asked for, the best

    def estimated(money: float | None) -> SearchResult:
        plain = tuple(grids_of(asked.model, asked.splits, free, fixed, load, token_budget, money, purchase))
        split: Iterator[Grid] = iter(())
        if pools:
            split = pooled.grids_of(asked.model, asked.totals, asked.degrees, free, fixed | of_pools, load)
        task = SearchTask(partial(evaluate, spread=spread, **lengths), (*plain, *split), asked.goal, limits,
                          asked.outputs, best_of, TWIN_OUTPUTS, TIES if rate is not None else ())  # fmt: skip
        return search(task, on, assumed=assumed, plain_grids=len(plain), small=True)

    answer = in_budget(under, estimated)
    averages = [metrics.Slo(k, 0, float(v)) for k, v in asked.bounds.items() if v and k in ("ttft", "tpot", "latency")]
    run = partial(simulated, fixed={**fixed, **lengths}, kind=load.name, limits=(*averages, *slos), spread=spread,
                  of_pools={k: v for k, v in of_pools.items() if v is not None})  # fmt: skip
    trial = partial(confirmation, load=load, run=run)
    confirmed, answer = simulations(answer, int(confirm), trial)
    answer = remedied(INFER, settled(answer, confirmed), {**nest(first), **lengths}, limits)
    of_prefill = [pooled.before_of(asked.arguments, of_pools)] if prefill_gpu else []
    prices = searched_prices(answer, listed(asked.gpu), cluster, asked.arguments, *of_prefill)
    same = {f.name: getattr(answer, f.name) for f in fields(SearchResult)}
    same |= {"prices": prices, "model": asked.model.name}
    found = LoadResult(**same, kind=load.name, confirmed=tuple(confirmed))
    return replace(found, error_band=found.chosen.served.values()["error_band"]) if found.chosen else found


def settled(answer: SearchResult, confirmed: Sequence[Confirmed]) -> SearchResult:
    """The answer with what was simulated of it in place of the estimate; where nothing holds its limits, the nearest is
    what misses one by least."""
    if not confirmed:
        return answer
    top = ranked(answer.top, [c for c in confirmed if c.candidate in answer.top], answer.goal)
    plain = answer.without_pools and settled(answer.without_pools, [
        c for c in confirmed if c.candidate in answer.without_pools.top])  # fmt: skip
    if top:
        return replace(answer, top=top, without_pools=plain)
    near = min(confirmed, key=lambda c: max(c.served.summary.measure(m) / m.seconds for m in c.served.limits))
    why = tuple(f"simulated: {words}" for words in near.broken)
    return replace(answer, top=top, nearest=Blocked(near.found, why), without_pools=plain)


def checked_lengths(model: Model, prompt: int, output: int, spread: tuple[float, float]) -> dict[str, Any]:
    """Prompt and output tokens as whole numbers; RooflmError for a bad spread or beyond the model's context."""
    lengths = {"prompt": int(prompt), "output": int(output)}
    for name, length in lengths.items():
        workload.lengths(length, spread, 1, 0, name)  # checks the spread
    longest = sum(_reach(length, spread) for length in lengths.values())
    if longest > float(np.max(model.max_context)):
        raise RooflmError(f"prompt + output reach {longest} tokens, beyond the {model.max_context:g} of {model.name}")
    return lengths


def load_axis(concurrency: Any, rate: Any, gpus: int) -> Axis:
    """The loads of a search: those given, or clients from 1 up to as many as its GPUs may have."""
    name, given = ("rate", rate) if rate is not None else ("concurrency", concurrency)
    listed = list(given) if is_list(given) else ladder(max(1024, PER_GPU * gpus)) if given is None else [given]
    for value in listed:
        if not (math.isfinite(value) and value > 0 and (name == "rate" or value == int(value))):
            raise RooflmError(
                f"{name} is {value:g}, but it must be {'above 0' if name == 'rate' else 'a whole number'}"
            )
    return Axis(name, tuple(sorted(set(listed))))


def mean_limit(m: metrics.Slo) -> Limit:
    """A service-level limit as the estimate screens it: by the mean."""
    key = "tpot_s" if m.measure == "itl" else f"{m.measure}_s"
    return Limit(key, m.seconds, f"mean {m.measure.upper()} (for {m.name})", "s")


def simulated(candidate: Candidate, load: float, *, fixed: Mapping[str, Any], kind: str,
              limits: tuple[metrics.Slo, ...], spread: tuple[float, float],
              of_pools: Mapping[str, Any] = MappingProxyType({})) -> Served:  # fmt: skip
    """A run of an answer at a load. Token budgets go to the server as the search understands them. of_pools: what is
    asked of prefill replicas, where the answer has any."""
    asked_of = {**fixed, **(of_pools if "prefill_replicas" in candidate.inputs else {}), **candidate.inputs}
    chosen = {k: v for k, v in asked_of.items() if k not in (*LOADS, "token_budget") and v is not None}
    options: dict[str, Any] = {}
    if "token_budget" in candidate.inputs:
        request = build_inference(batch=int(chosen["dp"]), **nest(chosen))
        server, asked = server_for(request.scenario), float(candidate.inputs["token_budget"])
        options = {"budget": int(budgets(server, _reach(chosen["prompt"], spread), np.asarray(asked)))}
        if not math.isfinite(asked) and server.scheduler == "continuous":
            options["scheduler"] = "in-flight"  # the same, but prompts go in whole or wait
    text = ",".join(f"{m.name}={m.seconds!r}s" for m in limits)
    given: dict[str, Any] = {"rate": float(load)}
    if kind == "concurrency":
        given = {"concurrency": int(load), "requests": int(amount(load)), "warmup": int(load)}
    return whole(serve(**nest(chosen), **given, options=options, spread=spread, slo=text))


def confirmation(candidate: Candidate, load: Axis, run: Any) -> Confirmed:
    """An answer simulated at the estimate's load, and where its limits do not hold there, at the highest at which they
    do (`likely`, then by halving; latency is taken as rising with load)."""
    at = load.values.index(candidate.inputs[load.name])
    served = run(candidate, load.values[at])
    if served.summary.meets(served.limits):
        return Confirmed(candidate, load.values[at], served, True, ())
    kept, low, high, why, seen = served, -1, at, broken(served), [(load.values[at], overshoot(served))]
    while high - low > 1:
        middle = (low + high) // 2
        if len(seen) <= STRAIGHT:
            middle = min(max(bisect_right(load.values, likely(seen)) - 1, low + 1), high - 1)
        tried = run(candidate, load.values[middle])
        seen.append((load.values[middle], overshoot(tried)))
        if tried.summary.meets(tried.limits):
            low, kept = middle, tried
        else:
            high, why = middle, broken(tried)
    return Confirmed(candidate, load.values[low if low >= 0 else at], kept, low >= 0, why)


def overshoot(served: Served) -> float:
    """The worst measure of a run over its limit."""
    return max((served.summary.measure(m) / m.seconds for m in served.limits), default=math.inf)


def likely(seen: Sequence[tuple[float, float]]) -> float:
    """The load at which the worst measure meets its limit, on a straight line through the last two runs (one: and what
    is taken to be there without load, IDLE).

    >>> round(likely([(200.0, 1.25)]), 3), likely([(200.0, 1.25), (160.0, 1.125)])
    (133.333, 120.0)
    """
    (x, over), (nearer, less) = seen[-2:] if len(seen) > 1 else ((0.0, IDLE), seen[0])
    slope = (less - over) / (nearer - x) if nearer != x else 0.0
    return nearer + (1.0 - less) / slope if slope > 0 else nearer / 2
