"""Separate prefill and decode pools in a search: every split of both, every number of replicas, each by its steady
state (`serving.pools`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.use import usd_per_million
from rooflm.asked.assumed import attention_dp
from rooflm.asked.build_inference import build_inference, find_model
from rooflm.asked.machine import node_size
from rooflm.catalogue.hardware import Device
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import memory_use
from rooflm.readers.command import command_of
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.scenario.rules import divisors
from rooflm.search.held import decode_joules, held_bytes, prompt_joules
from rooflm.search.space import Grid
from rooflm.search.splits import degrees, purchase_usd, runnable_splits
from rooflm.serving.capacity import capacity
from rooflm.serving.deploy import make_pool, room_for_prompts, server_for
from rooflm.serving.passes import Load
from rooflm.serving.pools import (
    DecodeServer,
    PrefillServer,
    decode_server,
    pools_state,
    prefill_arguments,
    prefill_server,
    sent_bytes,
    transfer_of,
)
from rooflm.serving.simulate import Pool
from rooflm.sweep.axes import Axis, Point, is_list, nest, points

Array = NDArray[Any]
PREFILL = ("prefill_replicas", "prefill_tp", "prefill_pp", "prefill_dp", "prefill_ep")
"""Inputs of a point with pools that say what its prefill pool is."""
OF_POOLS = ("prefill_gpu", "prefill_price", "prefill_purchase", "transfer_bandwidth")
"""Arguments that only pools have."""
BEFORE = (*PREFILL[1:], *OF_POOLS[:3])
"""Arguments that may differ for the replicas of the prefill pool."""


@dataclass(frozen=True)
class Side:
    """One replica of a pool: its engine instance, tokens of its fullest pass and of its KV memory, and what it does
    with prompts, or with sequences that decode."""

    pool: Pool
    passes: float
    room: float
    prompts: PrefillServer | None = None
    decoding: DecodeServer | None = None

    def held(self, running: Any, longest: int) -> Array:
        """Bytes in use on its fullest device."""
        room = np.asarray(self.room)
        return held_bytes(self.pool, np.asarray(running), np.asarray(self.passes), room, longest)

    @property
    def memory(self) -> float:
        """Bytes that the engine may fill."""
        return float(memory_use(self.pool.table.components.scenario, batch=np.zeros(())).capacity)

    @property
    def device(self) -> Device:
        """The card."""
        return self.pool.table.components.scenario.cluster.device


def side_of(role: str, load: Load, longest: tuple[int, int], arguments: Mapping[str, Any]) -> Side:
    """A replica of these arguments (see `_side`), worked out once for all pairs."""
    return _side(role, load, longest, _Named({k: v for k, v in arguments.items() if v is not None}))


class _Named(dict[str, Any]):
    """Arguments that may key a memo, by what they say: a card given as an object has no hash of its own."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(sorted(self.items(), key=lambda kv: kv[0])))


@lru_cache(maxsize=256)
def _side(role: str, load: Load, longest: tuple[int, int], arguments: _Named) -> Side:
    """One replica: what it does with prompts, or with sequences that decode. longest: prompt and output tokens."""
    ranks = int(arguments["dp"]) if attention_dp(find_model(arguments["model"])) else 1
    given = {**arguments, "dp": ranks, "batch": ranks, "prompt": longest[0], "output": longest[1]}
    built = build_inference(**nest(given))
    server = server_for(built.scenario)
    sequences = server.max_sequences * ranks
    server = room_for_prompts(server, {}, longest[0], 0)
    pool = make_pool(built.scenario, server, sum(longest), sequences, role=role, must_fit=False)
    s = pool.table.components.scenario
    reach = int(pool.table.components.contexts[-1])
    passes = min(server.budget, reach * sequences) if role == "prefill" else pool.server.max_sequences
    room = max(capacity(s, float(passes), reach).tokens, 1.0)
    load = replace(load, budget=float(server.budget), tokens=room)
    if role == "prefill":
        return Side(pool, passes, room, prompts=prefill_server(pool, load))
    return Side(pool, passes, room, decoding=decode_server(pool, load))


def evaluate(
    *, mean: tuple[float, float], longest: tuple[int, int], prefill_replicas: Any, replicas: Any,
    concurrency: Any = None, rate: Any = None, transfer_bandwidth: float | None = None,
    outputs: tuple[str, ...] | None = None, **arguments: Any,
) -> dict[str, Any]:  # fmt: skip
    """The steady states of a prefill and a decode split over numbers of replicas and loads: what a search needs."""
    own = {k: arguments.pop(k) for k in BEFORE if k in arguments}
    load = Load(*mean)
    before = before_of(arguments, own)
    first, second = side_of("prefill", load, longest, before), side_of("decode", load, longest, arguments)
    assert first.prompts is not None and second.decoding is not None
    one, other = (side.pool.table.components.scenario for side in (first, second))
    transfer = transfer_of(one, other, transfer_bandwidth)
    sent = sent_bytes(first.pool, load.prompt)
    counts = np.asarray(prefill_replicas, float), np.asarray(replicas, float)
    clients, arrivals = (np.asarray(0.0 if v is None else v, float) for v in (concurrency, rate))
    found = pools_state(first.prompts, second.decoding, counts, transfer,
                        sent=sent, clients=clients, rate=arrivals, output=load.output)  # fmt: skip
    each = counts[0] * first.pool.gpus, counts[1] * second.pool.gpus
    gpus, x = each[0] + each[1], found.requests_per_s
    tokens = x * load.output
    bill = sum(
        n * purchase_usd(side.device, given.get("purchase"))
        for n, side, given in zip(each, (first, second), (before, arguments), strict=True)
    )
    dollars = each[0] * first.device.price + each[1] * second.device.price
    idle = each[0] * first.device.idle + each[1] * second.device.idle
    joules = prompt_joules(first.pool, first.pool.server.budget, load) + decode_joules(second.pool, found.running, load)
    held = first.held(1.0, longest[0]), second.held(found.running, sum(longest))
    return {
        "ttft_s": found.ttft, "tpot_s": found.tpot, "latency_s": found.latency, "requests_per_s": x,
        "output_tokens_per_s": tokens, "output_tokens_per_s_per_gpu": tokens / gpus, "gpus": gpus + 0.0 * x,
        "cost_usd_per_million_tokens": usd_per_million(dollars, tokens),
        "energy_j_per_token": joules / load.output + idle / tokens,
        "memory_bytes": np.maximum(*held), "memory_share": np.maximum(held[0] / first.memory, held[1] / second.memory),
        "load_share": overload(found.stable, arrivals, x), "legal": np.ones((), dtype=bool),
        **({"purchase_usd": bill + 0.0 * x} if "purchase_usd" in (outputs or ()) else {}),
    }  # fmt: skip


def overload(stable: Any, arrivals: Any, served: Any) -> Any:
    """A load as a share of what is served: 0 where it is served; infinite where no more comes than could be, yet the
    queue grows, as the cache does not hold what runs.

    >>> overload(np.array([True, False, False]), 10.0, np.array([10.0, 8.0, 10.1])).tolist()
    [0.0, 1.25, inf]
    """
    over = arrivals / np.maximum(served, 1e-30)
    return np.where(stable, 0.0, np.where(over > 1, over, np.inf))


def before_of(arguments: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of prefill replicas. own: those of `BEFORE` that were given.

    >>> before_of({"gpu": "h100", "price": 2.0}, {"prefill_gpu": "l4", "prefill_price": 0.5})
    {'gpu': 'l4', 'price': 0.5}
    """
    return prefill_arguments(arguments, {k.removeprefix("prefill_"): own[k] for k in BEFORE if own.get(k) is not None})


def sizes_of(most: int, node: int) -> list[int]:
    """GPUs that a replica of a pool may have: equal parts of a node, or whole nodes.

    >>> sizes_of(16, 8)
    [1, 2, 4, 8, 16]
    """
    return [n for n in range(1, most + 1) if (n in divisors(node, node) if n <= node else n % node == 0)]


def replicas_of(totals: Iterable[int], first: int, second: int) -> list[tuple[int, int]]:
    """Numbers of prefill and decode replicas of so many GPUs each that use exactly one of the totals.

    >>> replicas_of([8], 2, 4), replicas_of([4], 4, 4)
    ([(2, 1)], [])
    """
    pairs = ((n, (total - n * first) // second) for total in totals for n in range(1, total // first + 1)
             if total > n * first and (total - n * first) % second == 0)  # fmt: skip
    return sorted(set(pairs))


def grids_of(
    model: Model, totals: Sequence[int], given: Mapping[str, Any], free: Sequence[Axis], fixed: Point, load: Axis
) -> Iterator[Grid]:
    """A grid for each pair of splits and each combination of names: over numbers of replicas and loads.

    totals: GPUs of both pools together; given: degrees that either may have; free: what is chosen by name. Engines
    without pools are left out; RooflmError where there is no other."""
    shares, engines = attention_dp(model), dict[str, bool]()
    for names in points(free):
        arguments = {k: v for k, v in (fixed | names).items() if v is not None}
        plain = {k: v for k, v in arguments.items() if k not in OF_POOLS}
        scenario = build_inference(batch=1, alone=False, **nest(plain)).scenario
        engines[scenario.engine.name] = command_of(scenario.engine).pools
        if not command_of(scenario.engine).pools:
            continue
        sizes = sizes_of(max(totals) - 1, node_size(scenario.cluster))
        splits = runnable_splits(scenario, [s for s in degrees(model, sizes, given) if shares or s[2] == 1])[0]
        for before, after in itertools.product(splits, splits):
            pairs = replicas_of(totals, math.prod(before[:3]), math.prod(after[:3]))
            if pairs:
                first, second = zip(*pairs, strict=True)
                counts = Axis("prefill_replicas", first, (Axis("replicas", second),))
                split = dict(zip((*PREFILL[1:], *SERVED_DEGREES), (*before, *after), strict=True))
                known = ("gpu", "engine", "quant", "prefill_gpu", *names, *PREFILL, "replicas", *SERVED_DEGREES)
                yield Grid((counts, load), arguments | split, known)
    if not any(engines.values()):
        none = " or ".join(engines)
        raise RooflmError(f"{none} has no separate prefill and decode replicas: leave --pools out")


def check_pools(pools: bool, prefill_gpu: Any, bandwidth: Any, totals: Sequence[int]) -> None:
    """Raise RooflmError where options of pools stand without them, or where there is one GPU for two pools."""
    for name, value in (("prefill_gpu", prefill_gpu), ("transfer_bandwidth", bandwidth)):
        if value is not None and not pools:
            raise RooflmError(f"{name} is of separate prefill and decode pools: ask for them too (--pools)")
        if is_list(value):
            raise RooflmError(f"{name} is a list, but a search of pools takes one {name}")
    if pools and max(totals) < 2:
        raise RooflmError("pools need at least 2 GPUs, one to prefill and one to decode: give more with --gpus")
