"""What runs next: small classes over the replica's one loop. Each looks at a replica and returns the chunks of a pass.

A chunk is [entry, new tokens]; an entry [request, past, left] is a request whose prompt is not yet all in the cache.
`select` admits what fits and returns (chunks, whether decoding sequences run in the same pass). With no chunk the
replica decodes. A head of queue that does not fit waits, and so does everything behind it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooflm.serving.replica import Replica

Chunk = tuple[list[Any], int]
Chosen = tuple[list[Chunk], bool]


class Queue(deque[int]):
    """First come, first served: a deque of requests."""

    def first(self) -> int:
        """The request that is next."""
        return self[0]

    def take(self) -> int:
        """Remove and return it."""
        return self.popleft()

    def back(self, request: int) -> None:
        """Put a preempted request back in front."""
        self.appendleft(request)


class PriorityQueue:
    """Smallest key first, then first come: keys are priorities, or prompt lengths (shortest job first)."""

    def __init__(self, key: Any) -> None:
        self._key, self._heap, self._count = key, [], 0  # type: tuple[Any, list[tuple[Any, int, int]], int]

    def __len__(self) -> int:
        return len(self._heap)

    def append(self, request: int) -> None:
        """A request that arrives."""
        self._count += 1
        heapq.heappush(self._heap, (self._key(request), self._count, request))

    def __iter__(self) -> Iterator[int]:
        return (request for _, _, request in sorted(self._heap))

    def first(self) -> int:
        """The request that is next."""
        return self._heap[0][2]

    def take(self) -> int:
        """Remove and return it."""
        return heapq.heappop(self._heap)[2]

    def back(self, request: int) -> None:
        """Put a preempted request back: in front of its equals."""
        self._count += 1
        heapq.heappush(self._heap, (self._key(request), -self._count, request))


class Ranks:
    """Ranks of attention in data parallel: a request goes to that which holds the fewest.

    >>> ranks = Ranks(2)
    >>> [ranks.of(n) for n in (5, 6, 7, 5)], ranks.leave(6), ranks.of(8)
    ([0, 1, 0, 0], None, 1)
    """

    def __init__(self, count: int) -> None:
        self.count, self._of, self._held = count, dict[int, int](), [0] * count

    def of(self, request: int) -> int:
        """The rank of a request, which has it until it ends."""
        if request not in self._of:
            self._of[request] = rank = self._held.index(min(self._held))
            self._held[rank] += 1
        return self._of[request]

    def leave(self, request: int) -> None:
        """A request has ended."""
        rank = self._of.pop(request, None)
        if rank is not None:
            self._held[rank] -= 1

    def fullest(self, chunks: list[Chunk]) -> float:
        """New tokens of the rank that has most, over the mean."""
        tokens = [0] * self.count
        for (request, *_), new in chunks:
            tokens[self.of(request)] += new
        return max(tokens) * self.count / sum(tokens)

    def all_have(self, requests: Iterable[int]) -> bool:
        """Whether every rank has some of these requests."""
        return len({self.of(request) for request in requests}) == self.count


def next_parts(r: Replica, budget: int) -> tuple[list[Chunk], int]:
    """The next parts of unfinished prompts, as many as a budget of new tokens takes, and what is left of it."""
    chunks: list[Chunk] = []
    for entry in r.prefilling:
        if budget <= 0:
            break
        chunks.append((entry, min(entry[2], budget, r.chunk)))
        budget -= chunks[-1][1]
    return chunks, budget


class Continuous:
    """vLLM: decoding sequences come first in the token budget, prompts fill the rest in chunks, all in one pass.

    A prompt is admitted when it fits the free KV blocks less a watermark of 1 %; growth beyond the cache preempts the
    sequence admitted last. Source: vLLM documentation, "Optimization and tuning: chunked prefill, preemption"; Orca
    (OSDI 2022) for iteration-level scheduling, Sarathi-Serve (OSDI 2024) for chunks beside decoding."""

    watermark = 0.01
    future = 0.0
    """Share of the running requests' remaining output that admission keeps free."""
    evicts = True
    """Sequences that run may be preempted for others' growth: all to come need not fit."""
    mixes = True
    whole = False
    """A prompt that the rest of the budget does not hold waits for the next pass, if it is not alone."""
    follows = True
    """A prompt's next part enters a pipeline while one is under way (vLLM, v1/core/sched/scheduler.py:
    _update_after_schedule advances a request once it is scheduled; SGLang, "Pipeline Parallelism for Long Context")."""

    def room(self, r: Replica, request: int) -> bool:
        """True when the request fits, and a step of all that decode then (one that was swapped out does at once)."""
        running = r.decoding.heap
        tokens = r.need(request) + (len(running) + 1) * r.growth
        return r.kv.used + tokens <= r.kv.capacity * (1 - self.watermark) or r.fits_alone(request)

    def select(self, r: Replica) -> Chosen:
        """Chunks of the next pass, unfinished prompts first."""
        chunks, budget = next_parts(r, r.budget - len(r.decoding.heap) if self.mixes else r.budget)
        waiting = r.waiting
        while waiting and budget > 0 and len(r.decoding.heap) + len(r.prefilling) < r.most:
            request = waiting.first()
            cut = self.whole and chunks and r.length(request) > budget
            if cut or not r.has_room(request):
                break
            waiting.take()
            admitted = r.admit(request)
            if admitted is not None:
                new = min(admitted[2], budget, r.chunk)
                chunks.append((admitted, new))
                budget -= new
        return chunks, self.mixes


class PrefillFirst(Continuous):
    """SGLang: when prompts wait, a pass of prefill alone runs first (in chunks) and decoding pauses.

    Admission leaves room for a share of what the running requests may still write. Source: SGLang documentation
    (chunked_prefill_size, schedule_conservativeness); Zheng et al., arXiv 2312.07104."""

    watermark = 0.0
    mixes = False
    future = 0.3
    """Its new_token_ratio starts at 0.7 and decays to about 0.1 while nothing is preempted."""

    def room(self, r: Replica, request: int) -> bool:
        """True when the prompt and a share of all outputs still to come fit."""
        running = r.decoding.heap
        future = max(self.future * (r.decoding.remaining() + r.left(request)), (len(running) + 1) * r.growth)
        return r.kv.used + r.need(request) + future <= r.kv.capacity or r.fits_alone(request)


class PromptsFirst(Continuous):
    """vLLM before V1, without chunked prefill: whole prompts that wait run first, in a pass of their own, as far as the
    token budget goes.

    Source: vLLM 0.6.0, core/scheduler.py, `_schedule_default` and `_schedule_prefills`."""

    mixes = False
    whole = True


class InFlight(Continuous):
    """TensorRT-LLM in-flight batching, MAX_UTILIZATION: whole prompts beside decoding within max_num_tokens, as many
    requests as fit now, pausing (recompute) when the cache runs out. chunked: prompts may be cut.

    Source: TensorRT-LLM documentation, "Useful runtime options: capacity scheduler policy, max num tokens"."""

    watermark = 0.0
    chunked = False
    follows = False
    """Requests in flight are left out (py_executor.py, inflight_req_ids)."""

    def select(self, r: Replica) -> Chosen:
        """Chunks of the next pass; without chunking, a prompt goes in whole or waits (alone it may be cut)."""
        if self.chunked or r.prefilling:
            return super().select(r)
        chunks: list[Chunk] = []
        if r.server.wait_steps:
            if r.decoding.heap and (self.waits_for_ranks(r) if r.ranks.count > 1 else self.waits(r)):
                return chunks, True
            if r.ranks.count > 1:
                return self.of_ranks(r), True
            r.hold = -1
        budget = r.budget - len(r.decoding.heap)
        waiting = r.waiting
        while waiting and len(r.decoding.heap) + len(r.prefilling) < r.most:
            request = waiting.first()
            whole = r.length(request)
            full = (budget <= 0 and chunks) or (whole > budget and (chunks or r.decoding.heap) and whole <= r.chunk)
            if full or not r.has_room(request):
                break
            waiting.take()
            entry = r.admit(request)
            if entry is not None:
                new = min(entry[2], max(budget, 1) if not chunks else budget, r.chunk)
                chunks.append((entry, new))
                budget -= new
        return chunks, True

    def waits(self, r: Replica) -> bool:
        """True while prompts are held back for more to come with them (wait_steps, wait_share)."""
        tokens, enough = len(r.decoding.heap), r.server.wait_share * r.budget
        for request in r.waiting:
            tokens += r.length(request)
            if tokens >= enough:
                return False
        if r.hold < 0:
            r.hold = r.decoding.steps + r.server.wait_steps
        return r.hold > r.decoding.steps

    def waits_for_ranks(self, r: Replica) -> bool:
        """True while some rank of attention has no prompt: they begin together, or at every wait_steps-th step.

        The steps are counted whether prompts wait or not, from the last time that they began; a rank that decodes
        nothing lets all begin. Source: TensorRT-LLM, py_executor.py, _balance_adp_requests (attention_dp_config:
        enable_balance, timeout_iters)."""
        steps, every = r.decoding.steps, r.server.wait_steps
        if r.hold < steps:
            r.hold += -(-(steps - r.hold) // every) * every
        return r.hold > steps and len(r.decoding.heap) >= r.ranks.count and not r.ranks.all_have(r.waiting)

    def of_ranks(self, r: Replica) -> list[Chunk]:
        """Whole prompts of each rank of attention, as many as its own budget takes; the others stay in the queue."""
        chunks: list[Chunk] = []
        running, waiting, skipped = len(r.decoding.heap), r.waiting, list[int]()
        left = [r.chunk - running // r.ranks.count] * r.ranks.count
        begun: set[int] = set()
        r.hold = r.decoding.steps + r.server.wait_steps
        while waiting and any(left) and len(r.decoding.heap) + len(r.prefilling) < r.most:
            request = waiting.first()
            own, whole = r.ranks.of(request), r.length(request)
            if whole > left[own] and (own in begun or running) and whole <= r.chunk:
                left[own] = 0
                skipped.append(waiting.take())
                continue
            if not r.has_room(request):
                break
            waiting.take()
            entry = r.admit(request)
            if entry is not None:
                begun.add(own)
                new = min(entry[2], max(left[own], 1), r.chunk)
                chunks.append((entry, new))
                left[own] = max(left[own] - new, 0)
        for request in reversed(skipped):
            waiting.back(request)
        return chunks


def all_fits(r: Replica, request: int) -> bool:
    """True when the whole prompt and output of a request fit beside those of all that run."""
    to_come = r.decoding.remaining() + r.unmade
    return r.kv.used + to_come + r.need(request) + r.left(request) <= r.kv.capacity


class NoEviction(InFlight):
    """TensorRT-LLM in-flight batching, GUARANTEED_NO_EVICT: a request starts only when its whole prompt and output fit
    beside those of all that run, so that nothing is ever paused."""

    evicts = False

    def room(self, r: Replica, request: int) -> bool:
        """True when everything admitted would fit to its end."""
        return all_fits(r, request)


class Static(Continuous):
    """Static batching: a batch is prefilled, decoded until its last request ends, and only then the next one starts."""

    evicts = False
    mixes = False

    def room(self, r: Replica, request: int) -> bool:
        """True when all of the batch would fit to its end."""
        return all_fits(r, request)

    def select(self, r: Replica) -> Chosen:
        """The next batch when none runs; the rest of its prompts; nothing otherwise."""
        if r.decoding.heap and not r.prefilling:
            return [], False
        assembling = not r.decoding.heap and not r.prefilling
        while assembling and r.waiting and len(r.prefilling) < r.most and r.has_room(r.waiting.first()):
            r.admit(r.waiting.take())
        return next_parts(r, r.budget)[0], False


SCHEDULERS: dict[str, type[Continuous]] = {
    "continuous": Continuous, "prompts-first": PromptsFirst, "prefill-first": PrefillFirst, "in-flight": InFlight,
    "no-evict": NoEviction, "static": Static,
}  # fmt: skip
"""Scheduler by name (`catalogue.engine.SCHEDULERS`)."""


def queue(policy: str, priority: Any, prompt: Any, kept: Container[int] | None = None) -> Queue | PriorityQueue:
    """The queue of a policy (`catalogue.engine.POLICIES`); priority, prompt: values by request. kept: those whose
    memory is kept as they come, before all others, which wait for room."""
    if policy == "fcfs" and kept is None:
        return Queue()
    by = {"fcfs": None, "shortest": prompt}.get(policy, priority)
    return PriorityQueue(lambda i: (kept is not None and i not in kept, float(by[i]) if by is not None else 0.0))
