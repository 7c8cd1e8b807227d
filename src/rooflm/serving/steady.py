"""Steady state without simulating: fixed-point formulas of a replica under load, and a check on the other.

Little's law ties throughput X, running sequences D and the step time: D = X n tau(D, X) with n steps a request, where
tau is a decode step, the share of passes that carry prompts being those that arrive meanwhile (X tau a step).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rooflm.serving.schedulers import SCHEDULERS
from rooflm.serving.simulate import Pool
from rooflm.serving.workload import Requests

ROUNDS = 200


@dataclass(frozen=True)
class Steady:
    """Means of one replica: s, requests/s; stable: false when the rate is beyond what can be served
    (then tpot and requests_per_s are those of a full replica); ttft includes the
    first wave of a closed loop, in its share of the requests."""

    ttft: float
    tpot: float
    latency: float
    requests_per_s: float
    running: float
    stable: bool


def pass_time(pool: Pool, prompts: float, prompt: float, sequences: float, context: float) -> float:
    """Time of a pass with a (fractional) number of prompts beside a (fractional) number of sequences."""
    table, budget = pool.table, pool.server.budget * pool.table.ranks
    low = math.floor(sequences)
    share = sequences - low
    tokens = min(prompts * prompt, budget)
    whole = max(round(tokens / max(prompt, 1)), 1)
    each = max(int(tokens / whole), 1)

    def at(d: int) -> float:
        return table.mixed([(each, 0.0)] * whole, d, context)

    low_time = at(low)
    return low_time + share * (at(low + 1) - low_time) if share else low_time


def decode_time(pool: Pool, sequences: float, context: float) -> float:
    """A decode-only step of a fractional number of sequences."""
    low = max(math.floor(sequences), 1)
    share = min(max(sequences - low, 0.0), 1.0)
    time = pool.table.decode_time(low, context)
    return time + share * (pool.table.decode_time(low + 1, context) - time) if share else time


def most_running(pool: Pool, prompt: float, output: float) -> float:
    """Sequences that the KV memory and the running limit allow, half of the output written on average."""
    each = prompt + output * (1.0 if pool.server.scheduler in ("no-evict", "static") else 0.5) + pool.capacity.each
    return min(pool.capacity.tokens / each, pool.server.max_sequences * pool.table.ranks)


def steady(requests: Requests, pool: Pool, rate: float | None = None) -> Steady:
    """The steady state of one replica that gets all of `requests` (or `rate` a second of them)."""
    p, o = float(np.mean(requests.prompt)), float(np.mean(requests.output))
    server, growth = pool.server, pool.server.tokens_a_step
    context = p + o / 2
    steps = max(o - 1, 0.0) / growth
    limit = max(most_running(pool, p, o), 1.0)
    mixes = SCHEDULERS[server.scheduler].mixes
    passes = max(math.ceil(p / server.budget), 1)
    clients = float(requests.concurrency)
    constant = server.request + server.front
    running = min(clients, limit) if clients else 1.0
    x = rate if rate is not None else (requests.rate if not clients else 0.0)
    x = x if math.isfinite(x) else 1e9
    tau = decode_time(pool, running, context)
    alone = pass_time(pool, 1, p, 0, context) * 1.0
    stable = True
    for _ in range(ROUNDS):
        running = max(running, 1e-3)
        prompts = x * tau
        plain = decode_time(pool, running, context)
        if mixes:
            share = min(prompts * passes, 1.0)
            mixed = pass_time(pool, max(prompts * passes, 1.0) / passes, p, running, context)
            after = (1 - share) * plain + share * mixed
            first = mixed * passes
        else:
            after = plain + prompts * alone
            first = alone * passes
        polls = (server.receive_interval - 1) / 2 * tau
        ttft = constant + tau / 2 + first + polls
        if clients:
            inside = min(clients, limit)
            cycle = ttft + steps * after
            queue = max(clients - limit, 0.0) * cycle / limit
            x_new = clients / (cycle + queue)
            running_new = min(x_new * steps * after, inside)
            x = 0.5 * (x + x_new)
        else:
            queue = 0.0
            running_new = x * steps * after
            if running_new > limit:
                running_new, stable = limit, False
            else:
                stable = True
        tau = 0.5 * (tau + after)
        running = 0.5 * (running + running_new)
    if clients:
        ttft = _with_first_wave(requests, pool, ttft + queue, p, limit, constant)
    if server.stream_interval > 1:
        ttft += (server.stream_interval - 1) / growth * tau
    made = max(steps - (server.stream_interval - 1) / growth, 0.0)
    tpot = made * tau / max(o - 1, 1)
    if not clients and not stable:
        full = steady(replace(requests, concurrency=max(int(limit), 1), arrival=requests.arrival[:0]), pool)
        return Steady(math.inf, full.tpot, math.inf, full.requests_per_s, full.running, False)
    return Steady(ttft, tpot, ttft + made * tau, x, running, stable)


def _with_first_wave(requests: Requests, pool: Pool, ttft: float, p: float, limit: float, constant: float) -> float:
    """Mean TTFT with the first wave of a closed loop, which comes at once and is prefilled pass after pass."""
    clients = requests.concurrency
    here = min(clients, limit)
    a_pass = min(max(pool.server.budget * pool.table.ranks / p, 1e-9), here)
    rounds = here / a_pass
    time = pass_time(pool, a_pass, p, 0, p)
    front = pool.server.front * here / 2
    wave = constant + front + time * (math.ceil(rounds) + 1) / 2
    share = min(clients / max(requests.count, 1), 1.0)
    return share * max(wave, ttft) + (1 - share) * ttft
