"""The event loop: arrivals, completions and transfers in the order of time, over any number of replicas.

Only the replica whose next event is earliest moves; an arrival cuts the run of decode steps that its replica has
planned at the next step boundary. So the result is that of stepping every pass of every replica, at the cost of a few
table look-ups a request."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.serving.capacity import Capacity
from rooflm.serving.replica import FINISHED, INFINITY, NOTHING, REJECTED, STEPS, Records, Replica
from rooflm.serving.router import Router
from rooflm.serving.schedulers import SCHEDULERS
from rooflm.serving.server import Server
from rooflm.serving.steps import StepTable, numbers
from rooflm.serving.workload import Requests

Array = NDArray[np.float64]
Progress = Callable[[int, int, float], None]
"""Called now and then with requests ended, requests in all, and the simulated time (s)."""
ASKS, PROMPT, DECODES = -1, 0, 1
"""Stages of a request: it asks a decode replica for memory, its prompt is read, it decodes."""
EVERY = 8192
"""Events between two calls of progress."""


@dataclass(frozen=True)
class Pool:
    """Equal replicas of one engine instance. role: "both", "prefill" or "decode"; gpus: of one replica; longest: most
    tokens of a request (the model's context); counted: tokens that memory holds by our count, where more was told."""

    table: StepTable
    server: Server
    capacity: Capacity
    replicas: int = 1
    role: str = "both"
    gpus: int = 1
    longest: float = INFINITY
    counted: float = INFINITY


@dataclass(frozen=True)
class Transfer:
    """KV cache sent from a prefill to a decode replica: B/s, s of latency, and s of the prefill replica's host, which
    sends one cache after the other."""

    bandwidth: float = 50e9
    latency: float = 5e-3
    host: float = 0.0

    @property
    def most(self) -> float:
        """The most caches a second that a prefill replica sends."""
        return 1 / self.host if self.host else INFINITY

    def lasts(self, sent: float) -> float:
        """Seconds until so many bytes have come, once their turn has."""
        return self.host + self.latency + sent / self.bandwidth


@dataclass(frozen=True)
class Run:
    """What a simulation leaves: the requests' records, the replicas with their sums, and how it ended.

    duration: simulated seconds; interrupted: stopped by the user, the rest being still queued or running."""

    requests: Requests
    records: Records
    replicas: list[Replica]
    pools: tuple[Pool, ...]
    duration: float
    interrupted: bool = False
    transfer: Transfer = Transfer()


def fits(pools: tuple[Pool, ...], requests: Requests) -> NDArray[np.bool_]:
    """Which requests fit every pool's KV memory and the model's context, each alone."""
    fit = np.ones(requests.count, dtype=bool)
    for pool in pools:
        whole = requests.prompt + (1 if pool.role == "prefill" else requests.output)
        fit &= (whole + pool.capacity.each <= pool.capacity.tokens / pool.table.ranks) & (whole <= pool.longest)
    return fit


def simulate(
    requests: Requests, pools: tuple[Pool, ...], router: str = "round-robin", transfer: Transfer | None = None,
    horizon: float = INFINITY, progress: Progress | None = None,
) -> Run:  # fmt: skip
    """Simulate until every request has ended, or until `horizon` (simulated s), or until interrupted (Ctrl-C).

    Every request ends as finished, rejected (it can never fit), or is left queued or running. Raises RooflmError for
    pools that do not make a deployment."""
    roles = {p.role for p in pools}
    if roles not in ({"both"}, {"prefill", "decode"}):
        raise RooflmError("a deployment is made of pools of role both, or of prefill and decode pools")
    records = Records(
        requests.arrival if not requests.concurrency else np.full(requests.count, INFINITY), numbers(requests.prompt),
        numbers(requests.output), requests.hashes, requests.priority, requests.hash_tokens,
    )  # fmt: skip
    each = [pool for pool in pools for _ in range(pool.replicas)]
    replicas = [
        Replica(number, records, p.table, p.server, p.capacity, SCHEDULERS[p.server.scheduler](), p.role)
        for number, p in enumerate(each)
    ]
    sent = transfer or Transfer()
    loop = Loop(requests, records, replicas, pools, router, sent, horizon, progress)
    interrupted = False
    try:
        loop.run()
    except KeyboardInterrupt:
        interrupted = True
    reach_clients(records, loop.delay)
    ends = [e for e in records.end if e == e]
    ended = max(max(ends, default=0.0), *(r.clock for r in replicas))
    duration = ended if interrupted or loop.over else horizon
    return Run(requests, records, replicas, pools, float(duration), interrupted, sent)


def reach_clients(records: Records, delay: float | Array) -> None:
    """First and last tokens as clients see them, `delay` after they were made.

    Clients of a closed loop go on without it: in published runs with fixed lengths a successor's prompt follows the end
    of another's request within a pass or two (docs/decisions/0052, 0467). A lone client asks again once it has its last
    token, as its rate says."""
    for times in (records.first, records.end):
        np.frombuffer(times)[:] += delay


class Loop:
    """The state of one simulation: static arrivals in order, and a heap of what comes up on the way."""

    def __init__(self, requests: Requests, records: Records, replicas: list[Replica], pools: tuple[Pool, ...],
                 router: str, transfer: Transfer, horizon: float, progress: Progress | None) -> None:  # fmt: skip
        self.requests, self.records, self.replicas, self.pools = requests, records, replicas, pools
        self.first = [r for r in replicas if r.role != "decode"]
        self.second = [r for r in replicas if r.role == "decode"]
        self.routers = (Router(router), Router(router))
        self.transfer, self.horizon, self.progress = transfer, horizon, progress
        server = pools[0].server
        self.front = numbers(server.fronted(requests.prompt) / len(self.first))
        self.held = server.held / len(self.first)
        again = [p.server.seen_again(requests.prompt) for p in pools if p.role == "decode"]
        self.delay = sum(again, server.seen(requests.prompt))
        self.lone = numbers(self.delay * (requests.concurrency == 1))
        self.free = 0.0
        self.heap: list[tuple[float, int, int, int]] = []
        self.pushed = self.ended = self.next = 0
        self.closed = requests.concurrency > 0
        self.over = False
        self.times, self.order = array("d"), array("q")
        self.at = 0
        self.enters = ASKS if any(not r.server.handed_on for r in self.second) else PROMPT
        self.fit: list[bool] = fits(pools, requests).tolist()
        served = np.flatnonzero(self.fit)
        for pool in (self.first, self.second):
            for turn, r in enumerate(pool):  # an earlier run sent each its prompts in turn
                r.recall(served[turn :: len(pool)])
        self.due = numbers(requests.arrival if requests.arrival.size else np.zeros(requests.count))
        if self.closed:
            for behind in reversed(range(requests.concurrency)):
                self._issue(0.0, 0 if requests.arrival.size else behind)
        else:
            came = requests.arrival
            later = np.searchsorted(came, came, side="right") - np.arange(1, came.size + 1)  # at the very same instant
            self._static(visible(came, np.asarray(self.front)) + self.held * later)

    def _static(self, seen: Array) -> None:
        """Arrivals known beforehand, in order of the time at which the scheduler sees them."""
        keep = np.array(self.fit, dtype=bool)
        np.frombuffer(self.records.status, dtype=np.uint8)[~keep] = REJECTED
        self.ended += int(np.sum(~keep))
        self.order = numbers(np.flatnonzero(keep))
        self.times = numbers(seen[keep])

    def _push(self, time: float, request: int, stage: int) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (time, self.pushed, request, stage))

    def _issue(self, now: float, behind: int) -> None:
        """A client of the closed loop sends its next request, not before it is due, and so many others theirs."""
        records = self.records
        while self.next < self.requests.count:
            request = self.next
            self.next += 1
            records.arrival[request] = now = max(now, self.due[request])
            if not self.fit[request]:
                records.status[request] = REJECTED
                self.ended += 1
                continue
            self.free = max(self.free, now) + self.front[request]
            self._push(self.free + self.held * behind, request, self.enters)
            return

    def _completed(self, r: Replica) -> None:
        """What follows from requests that ended on a replica: a transfer, or the client's next request."""
        for behind, request in zip(reversed(range(len(r.done))), r.done, strict=True):
            if r.role == "prefill" and self.records.status[request] != FINISHED:
                sent = self.records.prompt[request] * r.kv.bytes_per_token
                turn = max(r.sent, r.clock)
                r.sent = turn + self.transfer.host
                self._push(turn + self.transfer.lasts(sent) + self._boundaries(), request, DECODES)
                continue
            self.ended += 1
            if self.closed:
                self._issue(r.seen_at(r.clock) + self.lone[request], behind)
        r.done = []
        self._grant(r, r.clock)

    def _grant(self, r: Replica, now: float) -> None:
        """Those that a decode replica now has memory for go on to their prompts, looked at between two of its steps.

        Source: SGLang, disaggregation/decode.py (DecodePreallocQueue: a request gets its memory there "once there is
        available kv") and prefill.py (its bootstrap queue holds a request until then)."""
        while r.asking:
            request, came = r.asking[0][1], r.granted()
            if came is None:
                return
            self._push(max(came + r.step() / 2, now), request, PROMPT)

    def _boundaries(self) -> float:
        """Seconds of a step of the decode servers that run, where a request is handed on: its cache is asked for when
        the running step has ended, and seen to be there when another has, half a step later each in the mean.

        Source: vllm-project/vllm pull request 51919 (the connector's messages go with steps)."""
        return sum(r.step() for r in self.second if r.server.handed_on) / len(self.second)

    def run(self) -> None:
        """Events in the order of time until there are none, or until the horizon."""
        replicas, heap, times = self.replicas, self.heap, self.times
        total, arrived = self.requests.count, len(times)
        events = 0
        while True:
            events += 1
            if self.progress is not None and not events % EVERY:
                self.progress(self.ended, total, max(r.clock for r in replicas))
            now = times[self.at] if self.at < arrived else INFINITY
            dynamic = bool(heap) and heap[0][0] < now
            if dynamic:
                now = heap[0][0]
            if self._planned(now):
                continue  # what came up may come before
            best = self._earliest()
            end = best.end if best is not None else INFINITY
            self.over = now == INFINITY and best is None
            if self.over or min(now, end) > self.horizon:
                return
            if now <= end:
                self._deliver(now, *self._arriving(dynamic))
            elif best is not None:
                best.commit()
                if best.done:
                    self._completed(best)

    def _planned(self, now: float) -> bool:
        """Plan replicas that events have changed, up to `now`; true where requests end by it, which makes events."""
        for r in self.replicas:
            if r.dirty and r.clock < now:
                r.plan()
                if r.done:
                    self._completed(r)
                    r.dirty = True
                    return True
        return False

    def _earliest(self) -> Replica | None:
        """The replica whose planned passes end first; None where all are idle."""
        best, end = None, INFINITY
        for r in self.replicas:
            if not r.dirty and r.end < end:
                best, end = r, r.end
        return best

    def _arriving(self, dynamic: bool) -> tuple[int, int]:
        """The request that comes next and its stage: one that came up on the way (`dynamic`), or a static arrival."""
        if dynamic:
            return heapq.heappop(self.heap)[2:]
        self.at += 1
        return self.order[self.at - 1], self.enters

    def _deliver(self, now: float, request: int, stage: int) -> None:
        """A request reaches a replica: an idle one wakes, planned decode steps stop at the next boundary where the
        request could start then; otherwise it only queues."""
        if stage == ASKS and self.records.output[request] > 1:
            r = self.routers[DECODES].pick(self.second, request)
            r.asking.append((now, request))
            if len(r.asking) == 1:  # else the first waits for others to end
                if r.kind == STEPS and not r.dirty:
                    self._stop(r, now)
                self._grant(r, now)
            return
        r = self._goes_to(request, max(stage, PROMPT))
        self.records.replica[request] = r.number
        idle = r.idle() or (r.kind == NOTHING and not r.dirty)  # what waits may wait for memory that others keep
        late = r.server.lookahead and not idle
        if late:
            r.late.append((now, request))
        if idle:
            r.clock = max(r.clock, now)
            r.sealed = r.clock
        counted = r.clock  # a request in `late` is, from the pass on that runs now
        if r.kind == NOTHING:
            r.dirty = True
        elif not r.dirty and r.kind == STEPS and (now <= r.clock or (len(r.late) <= 1 and not self._blocked(r))):
            self._stop(r, now)
        if not late:
            r.waiting.append(request)
            counted = r.clock
        r.meter.queue_time += counted - now  # it waits since it came

    def _stop(self, r: Replica, now: float) -> None:
        """Planned decode steps end at the next boundary, or do not begin."""
        if now <= r.clock:
            r.dirty = True
            return
        r.interrupt(now)
        if r.done:
            self._completed(r)

    def _goes_to(self, request: int, stage: int) -> Replica:
        """The replica of a request: where a router sends it, or the decode replica that keeps memory for it."""
        if stage == DECODES and self.enters == ASKS:
            return next(r for r in self.second if request in r.reserved)
        return self.routers[stage].pick(self.second if stage else self.first, request)

    def _blocked(self, r: Replica) -> bool:
        """True when a newcomer could not start before the planned steps end anyway."""
        queued = bool(r.waiting) and r.server.policy == "fcfs" and r.hold <= r.decoding.steps
        return queued or len(r.decoding.heap) >= r.most


def visible(arrival: Array, front: Array) -> Array:
    """When requests leave a serial front end of `front` s each: v_i = max(v_(i-1), a_i) + front_i (Lindley), in order.

    >>> visible(np.array([0.0, 0.0, 10.0]), np.array([1.0, 1.0, 2.0])).tolist()
    [1.0, 2.0, 12.0]
    """
    ends = np.cumsum(front)
    return np.asarray(np.maximum.accumulate(arrival - (ends - front)) + ends)
