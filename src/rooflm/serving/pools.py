"""Steady state of separate prefill and decode pools (disaggregated serving), without simulating.

A prompt goes to a prefill replica, its KV cache over the network to a decode replica, which shows the first token. The
pools meet in one number, the requests a second X: prefill replicas are a queue of prompts alone, decode replicas hold
D = X n tau(D) / replicas sequences (Little's law, n steps of tau). Clients of a closed loop are at one of them or on
the way: N = X (T(X) + n tau), T being the TTFT without what reaches the client later (`simulate.reach_clients`), of a
lone client with it. Loads and numbers of replicas may be arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.build_inference import Built, build_inference
from rooflm.asked.purchase import purchase
from rooflm.catalogue.model import MLA
from rooflm.errors import RooflmError
from rooflm.estimate.memory import kv_values
from rooflm.scenario.scenario import Scenario
from rooflm.serving.components import ladder
from rooflm.serving.passes import Load, decode_time, most_running, pass_time, steps_of, streaming, whole_prompts
from rooflm.serving.queues import others_run, queueing
from rooflm.serving.schedulers import SCHEDULERS
from rooflm.serving.simulate import Pool, Run, Transfer
from rooflm.serving.steady import Steady, steady
from rooflm.serving.workload import Requests

Array = NDArray[np.float64]
HALVINGS = 60
"""Halvings of the interval in which a closed loop's requests/s lie."""


@dataclass(frozen=True)
class PrefillServer:
    """One prefill replica: time of a prompt alone and of a full pass (s), the most requests/s, prompts of a full pass,
    and what a request costs before it is queued and until its client sees a token (s)."""

    first: float
    most: float
    whole: float
    front: float
    request: float

    def ttft(self, each: Array, replicas: Any = 1.0, clients: Any = np.inf) -> Array:
        """Mean time to first token at `each` requests/s, without `request`: its own passes, half of the running pass,
        what prompts that came during it add to their common pass, and the queue.

        A pass of k prompts takes first + (k - 1) more; those that came during one are the next. A router that serves
        replicas in turn evens out arrivals: gaps vary by 1 / replicas, and the wait with them (Allen and Cunneen, 1978,
        for equal services)."""
        busy, many = each / self.most, np.maximum(clients, 1.0)
        queue = queueing(busy, np.asarray(self.most), np.asarray(self.whole), many)
        full = self.whole / self.most
        more = max(full - self.first, 0.0) / max(self.whole - 1.0, 1.0)
        lasts = np.maximum((self.first - more) / np.maximum(1.0 - each * more, 1e-9), self.first)
        lasts = np.minimum(lasts, max(full, self.first))
        together = more * np.minimum(each * lasts, max(self.whole - 1.0, 0.0))
        waited = (np.minimum(each * self.first, 1.0) * (lasts / 2 + together) + queue) / replicas
        return np.asarray(self.front + self.first + (1.0 - 1.0 / many) * waited)


class DecodeServer(NamedTuple):
    """One decode replica: steps a request, and, by the number of running sequences (rising), time of a step and
    requests/s. turn_steps: steps of others before a request's first own step, once its first token is shown
    (`Replica.turns`); request: what it costs to hand one on to it (s); waits: steps of others that its cache waits for
    (`Loop._boundaries`, `Loop._grant`); keeps: memory is kept for prompts that are still read (`Replica.granted`)."""

    steps: float
    running: Array
    step: Array
    rates: Array
    turn_steps: float = 0.0
    request: float = 0.0
    waits: float = 0.0
    keeps: bool = False

    @property
    def most(self) -> float:
        """The most requests/s."""
        return float(self.rates[-1])


def prefill_server(pool: Pool, load: Load) -> PrefillServer:
    """What a prefill replica does with prompts alone. load: budget and tokens are numbers."""
    budget = float(load.budget)
    if whole_prompts(pool):
        budget = min(budget, max(budget // load.prompt, 1.0) * load.prompt)
    load, none = replace(load, budget=budget), np.zeros(())
    passes = max(float(np.ceil(load.prompt / budget)), 1.0)
    whole = budget * pool.table.slots / load.prompt

    def time(prompts: float) -> float:
        return float(pass_time(pool, load, np.asarray(budget), np.asarray(prompts), none, load.prompt))

    first = time(1.0 / passes) * passes
    most = pool.table.slots / first if passes > 1 else max(whole, 1.0) / time(max(whole, 1.0))
    front = pool.server.fronted(load.prompt)
    return PrefillServer(first, most / max(most * front, 1.0), whole, front, pool.server.seen(load.prompt))


def decode_server(pool: Pool, load: Load) -> DecodeServer:
    """What a decode replica does with sequences alone, up to what its KV memory holds, no faster than its tokens are
    streamed."""
    limit = float(most_running(pool, load))
    steps = steps_of(pool, load)
    running = np.unique(np.append(ladder(int(limit)), limit))
    step = np.maximum(decode_time(pool, load, running), running * streaming(pool, load) / max(steps, 1e-12))
    rates = np.maximum.accumulate(running / np.maximum(steps * step, 1e-12))
    takes_turn = steps > 0 and pool.server.lookahead and not SCHEDULERS[pool.server.scheduler].mixes
    return DecodeServer(steps, running, step, rates, float(takes_turn), pool.server.seen_again(load.prompt),
                    0.5 + 0.5 * pool.server.handed_on, steps > 0 and not pool.server.handed_on)  # fmt: skip


def sent_bytes(pool: Pool, prompt: float) -> float:
    """Bytes of the cache that a prompt leaves, which go from a prefill to a decode replica."""
    return prompt * pool.capacity.bytes_per_token


def pools_state(
    prompts: PrefillServer, decoding: DecodeServer, replicas: tuple[Any, Any], transfer: Transfer,
    *, sent: float, clients: Any, rate: Any, output: float,
) -> Steady:  # fmt: skip
    """The steady state of a deployment. replicas: of each pool; sent: bytes of a cache on its way; clients (0: none) or
    rate (requests/s) in all; output: tokens. requests_per_s is in all, running a decode replica's."""
    first, second = (np.asarray(n, float) for n in replicas)
    clients, rate = np.asarray(clients, float), np.asarray(rate, float)
    most = np.minimum(first * min(prompts.most, transfer.most), second * decoding.most)
    closed = clients > 0
    high = np.where(closed, np.minimum(most, 1e12), np.minimum(rate, most)) + 0.0 * clients
    low = np.where(closed | decoding.keeps, 0.0, high)
    share = np.where(closed, np.maximum(clients / first, 1.0), np.inf)
    limit = float(decoding.running[-1]) * (1 + 1e-9)
    lone = (prompts.request + decoding.request) * (clients == 1)

    def times(x: Array) -> tuple[Array, Array]:
        step = np.interp(x / second, decoding.rates, decoding.step)
        met = others_run(x / second * decoding.steps * step, clients)  # else a newcomer begins at once
        waited = (0.5 + decoding.waits) * met * step
        taken = np.where(decoding.steps > 0, transfer.lasts(sent) + waited, 0.0)  # by the decode replica
        return prompts.ttft(x / first, first, share) + taken, (decoding.steps + met * decoding.turn_steps) * step

    for _ in range(HALVINGS if np.any(low < high) else 0):
        x = (low + high) / 2
        ttft, rest = times(x)
        held = x / second * (rest + ttft if decoding.keeps else rest)  # sequences that a decode replica has memory for
        less = (~closed | (x * (ttft + rest + lone) < clients)) & (held <= limit)
        low, high = np.where(less, x, low), np.where(less, high, x)
    x = (low + high) / 2
    ttft, rest = times(x)
    waits = np.where(closed, np.maximum(clients / np.maximum(x, 1e-30) - ttft - rest - lone, 0.0), 0.0)
    ttft = ttft + waits + prompts.request + decoding.request
    stable = closed | (rate <= x * (1 + 1e-9))
    ttft = np.where(stable, ttft, np.inf)
    tpot = rest / max(output - 1, 1)
    running = np.asarray(np.interp(x / second, decoding.rates, decoding.running))
    return Steady(ttft, tpot, ttft + rest, x, running, stable)


def pools_steady(requests: Requests, pools: tuple[Pool, ...], transfer: Transfer) -> Steady:
    """The steady state of a prefill and a decode pool as they are simulated, under all of the requests."""
    first, second = pools
    clients, rate = float(requests.concurrency), 0.0 if requests.concurrency else requests.rate
    prompt, output = float(np.mean(requests.prompt)), float(np.mean(requests.output))
    one, other = (Load(prompt, output, budget=p.server.budget, tokens=p.capacity.tokens) for p in pools)
    prompts, decoding = prefill_server(first, one), decode_server(second, other)
    sent, replicas = sent_bytes(first, prompt), (first.replicas, second.replicas)
    load = {"sent": sent, "clients": clients, "rate": rate, "output": output}
    return pools_state(prompts, decoding, replicas, transfer, **load).single()


def steady_of(run: Run, warmup: int = 0) -> Steady | None:
    """The steady state of a deployment: of one of several equal replicas, each with its share of the load, or of two
    pools. warmup: first requests that do not count, so that a closed loop's first wave has no part in the mean."""
    requests, pools = run.requests, run.pools
    if requests.concurrency and requests.arrival.size:
        return None  # it knows of no clients at a rate
    if requests.hashes is not None and pools[0].server.prefix_caching:
        return None  # nor of tokens that are in the cache already
    if len(pools) != 1:
        has_load = requests.concurrency or np.isfinite(requests.rate)
        return pools_steady(requests, pools, run.transfer) if has_load else None
    n = pools[0].replicas
    if requests.concurrency:
        share = replace(requests, concurrency=max(round(requests.concurrency / n), 1))
        keep = max(requests.count // n, share.concurrency)
        share = replace(share, prompt=share.prompt[:keep], output=share.output[:keep])
        return steady(share, pools[0], waves=warmup < requests.concurrency)
    rate = requests.rate
    return steady(requests, pools[0], rate / n) if np.isfinite(rate) else None


def transfer_of(first: Scenario, second: Scenario, bandwidth: float | None = None) -> Transfer:
    """How a KV cache gets from a prefill replica (first) to a decode replica. Each tensor rank has its own link of the
    cluster's widest tier; the slower side sets the bandwidth unless one (B/s) is given, the longer latency counts. A
    pipeline stage sends its own layers, a rank of attention data parallelism its own requests."""
    ways = [(float(np.max(s.cluster.tiers[-1].bandwidth)) * float(s.mapping.tp),
             float(np.max(s.cluster.tiers[-1].latency))) for s in (first, second) if s.cluster.tiers]  # fmt: skip
    usual = Transfer()
    slowest = min((width for width, _ in ways), default=usual.bandwidth)
    latency = max((latency for _, latency in ways), default=usual.latency)
    pieces = sum(float(b.count) * (1 if isinstance(b.mixer, MLA) else 2)
                 for b in first.model.blocks if float(kv_values(b.mixer)))  # fmt: skip
    host = float(first.engine.host.handover) * pieces / float(first.mapping.pp * first.mapping.dp)
    return Transfer(bandwidth or slowest, latency, host)


def prefill_built(common: Mapping[str, Any], own: Mapping[str, Any], replicas: int) -> Built | None:
    """The scenario of the prefill replicas where they differ from the decode ones. own: what differs (gpu, tp, pp, dp,
    ep)."""
    if not own:
        return None
    if not replicas:
        raise RooflmError(f"prefill_{next(iter(own))} is of separate prefill replicas: give --prefill-replicas too")
    rest = {k: v for k, v in common.items() if not (k == "gpus" and {"tp", "pp"} & own.keys())}
    return build_inference(**{**prefill_arguments(rest, own), "batch": int(own.get("dp") or common["batch"])})


def prefill_arguments(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the prefill replicas: the common ones with their own on top. A price given for the common card does
    not apply to another card, which has its own or its row's; experts go over no more ranks than the replica has.

    >>> prefill_arguments({"gpu": "h100", "price": 2, "batch": 1}, {"gpu": "l40s"})
    {'gpu': 'l40s'}
    >>> prefill_arguments({"gpu": "h100", "price": 2}, {"tp": 2})
    {'gpu': 'h100', 'price': 2, 'tp': 2}
    >>> prefill_arguments({"gpu": "h100", "tp": 16, "ep": 16}, {"tp": 8})
    {'gpu': 'h100', 'tp': 8, 'ep': 8}
    """
    rest = {k: v for k, v in common.items() if k != "batch"}
    if rest.get("ep") and own.keys() & {"tp", "dp"} and "ep" not in own:
        split = {**rest, **own}
        rest["ep"] = math.gcd(rest["ep"], int(split.get("tp") or 1) * int(split.get("dp") or 1))
    if "gpu" in own:
        bought = (rest.get("owned") or rest.get("purchase") is not None) and not own.keys() & {"price", "purchase"}
        rest = {k: v for k, v in rest.items() if k not in ("price", "purchase", "owned")}
        name = str(getattr(own["gpu"], "name", own["gpu"]))
        if bought and purchase(name) is None:
            raise RooflmError(f"no public purchase price of {name} is known: give it with --prefill-purchase, in USD, "
                              "or the rent of an hour with --prefill-price")  # fmt: skip
        rest |= {"owned": True} if bought else {}
    return {**rest, **own}
