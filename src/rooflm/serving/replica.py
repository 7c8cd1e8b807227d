"""One engine instance: its queue, its running sequences, its KV memory, and the pass that runs next.

Between two events (an arrival, a completion, a full cache) every decode step is alike but for one more token of
context, so the steps in between are summed in closed form: work a request, not a token.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from rooflm.estimate.capacity import Capacity
from rooflm.serving.schedulers import Continuous, queue
from rooflm.serving.server import PrefixCache, Server
from rooflm.serving.steps import StepTable

WAITING, RUNNING, FINISHED, REJECTED = 0, 1, 2, 3
"""Status of a request; whatever is not finished or rejected at the end counts as still running (or queued)."""
INFINITY = math.inf
BUCKETS, ORIGIN = 100, 100_000
"""Buckets of the inter-token histogram in a factor of e (1 % wide), and the number of the bucket at 1 s."""


class Records:
    """Results of all requests, filled while the simulation runs. Times in s from its start."""

    def __init__(self, arrival: Any, prompt: Sequence[int], output: Sequence[int], hashes: Any = None,
                 priority: Any = None) -> None:  # fmt: skip
        size = len(prompt)
        empty = array("d", [math.nan]) * size
        self.arrival, self.prompt, self.output = array("d", arrival), list(prompt), list(output)
        self.first, self.end = array("d", empty), array("d", empty)
        self.status, self.preempted = bytearray(size), array("H", [0]) * size
        self.cached, self.replica = array("l", [0]) * size, array("h", [-1]) * size
        self.hashes, self.priority = hashes, priority
        self.gaps: dict[int, float] = {}


class Replica:
    """See the module. role: "both", or "prefill" or "decode" when disaggregated. Times in s, KV in tokens."""

    def __init__(self, number: int, records: Records, table: StepTable, server: Server, capacity: Capacity,
                 select: Continuous, role: str = "both") -> None:  # fmt: skip
        self.number, self.records, self.table, self.server, self.role = number, records, table, server, role
        self.scheduler = select
        self.capacity, self.each = capacity.tokens, capacity.each
        self.bytes_per_token = capacity.bytes_per_token
        self.budget, self.most = server.budget * table.ranks, server.max_sequences * table.ranks
        self.growth = server.tokens_a_step
        self.waiting = queue(server.policy, records.priority, records.prompt)
        self.late: deque[tuple[float, int]] = deque()
        self.sealed = -INFINITY
        self.hold = -1
        self.prefilling: list[list[Any]] = []
        self.heap: list[tuple[int, int, int]] = []
        self.marks: deque[tuple[int, int]] = deque()
        self.resumed: dict[int, tuple[int, int]] = {}
        self.shared: dict[int, int] = {}
        self.cache = PrefixCache(server.cache_block) if server.prefix_caching else None
        self.clock = self.end = 0.0
        self.steps = 0
        self.stored = 0.0
        self.used = 0.0
        self.ends = 0
        self.admitted = 0
        self.poll = 0
        self.kind = -1
        self.count = 0
        self.chunks: list[Any] = []
        self.dirty = True
        self.done: list[int] = []
        self.active = self.prefill_tokens = self.prefill_pairs = self.prefill_passes = 0.0
        self.sequence_steps = self.context_steps = 0.0
        self.queue_time = self.used_time = self.peak = 0.0
        self.preemptions = 0
        self.stall = 0.0
        self.samples: list[tuple[float, int, int, float]] = []
        self._stride = self._tick = 1

    # -- what schedulers ask ---------------------------------------------------------------------------------------

    def length(self, request: int) -> int:
        """Tokens to have in the cache before the next token of a request: its prompt, or more after preemption."""
        return self.resumed[request][0] if request in self.resumed else self.records.prompt[request]

    def left(self, request: int) -> int:
        """Tokens still to be made after the next prefill."""
        return self.resumed[request][1] if request in self.resumed else self.records.output[request]

    def remaining(self) -> float:
        """Tokens still to be made by all that decode."""
        return (self.ends - len(self.heap) * self.steps) * self.growth

    def load(self) -> int:
        """Requests here, queued and running."""
        return len(self.waiting) + len(self.late) + len(self.prefilling) + len(self.heap)

    def admit(self, request: int) -> list[Any] | None:
        """Reserve the prompt's KV memory; returns the entry to prefill, or None where nothing is left to prefill."""
        records = self.records
        whole = self.length(request)
        records.status[request] = RUNNING
        hit = 0
        if self.cache is not None and records.hashes is not None:
            hit = min(self.cache.match(records.hashes[request]), whole - 1)
            records.cached[request] = max(records.cached[request], hit)
            self.shared[request] = hit
        self.used += whole - hit + self.each
        if self.used > self.peak:
            self.peak = self.used
        resumed = request in self.resumed
        if (self.role == "decode" and not resumed) or (resumed and self.server.preemption == "swap"):
            if resumed:
                self.clock += whole * self.bytes_per_token / self.server.swap_bandwidth
            self.begin(request, whole)
            return None
        entry = [request, hit, whole - hit]
        self.prefilling.append(entry)
        return entry

    # -- life of a request -----------------------------------------------------------------------------------------

    def begin(self, request: int, whole: int) -> None:
        """A request whose prompt is in the cache starts to decode; its first token is there (or came before)."""
        records = self.records
        resumed = self.resumed.get(request)
        left = resumed[1] if resumed else records.output[request] - 1
        if not resumed and self.role != "decode" and self.server.stream_interval == 1:
            records.first[request] = self.clock
        if self.cache is not None and records.hashes is not None:
            self._share(request)
        if left <= 0 or self.role == "prefill":
            self.used -= whole - self.shared.pop(request, 0) + self.each
            self._finish(request)
            return
        steps = math.ceil(left / self.growth - 1e-9)
        self.admitted += 1
        heapq.heappush(self.heap, (self.steps + steps, self.admitted, request))
        self.ends += self.steps + steps
        self.stored += whole
        if resumed is None:
            interval = self.server.stream_interval
            if interval > 1 and self.role != "decode":
                wait = math.ceil((interval - 1) / self.growth)
                self.marks.append((self.steps + min(wait, steps), request))

    def _share(self, request: int) -> None:
        """Hand the prompt's full blocks to the prefix cache, which holds them from now on."""
        assert self.cache is not None
        hashes = self.records.hashes[request]
        full = hashes[: self.records.prompt[request] // self.cache.block]
        new = self.cache.add(full)
        self.shared[request] = self.shared.get(request, 0) + new
        self.used -= new

    def _finish(self, request: int) -> None:
        records = self.records
        records.end[request] = self.clock
        if records.first[request] != records.first[request]:
            records.first[request] = self.clock
        if self.role != "prefill" or records.output[request] <= 1:
            records.status[request] = FINISHED
        self.done.append(request)

    def preempt(self) -> None:
        """Take the KV memory of the sequence admitted last: it goes back to the head of the queue."""
        self.preemptions += 1
        if self.prefilling and self.heap:
            entry = self.prefilling.pop()
            request = entry[0]
            self.used -= self.length(request) - self.shared.pop(request, 0) + self.each
        else:
            victim = max(self.heap, key=lambda h: h[1])
            self.heap.remove(victim)
            heapq.heapify(self.heap)
            ends, _, request = victim
            self.ends -= ends
            left = round((ends - self.steps) * self.growth)
            before = self.length(request)
            made = (self.resumed[request][1] if request in self.resumed else self.records.output[request] - 1) - left
            held = before + max(made, 0)
            self.stored -= held
            self.used -= held - self.shared.pop(request, 0) + self.each
            swap = self.server.preemption == "swap"
            self.resumed[request] = (held, left if swap else left - 1)  # prefilling again gives a token
            if swap:
                self.clock += held * self.bytes_per_token / self.server.swap_bandwidth
        self.records.preempted[request] += 1
        self.records.status[request] = WAITING
        self.waiting.back(request)

    # -- the loop --------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Decide what runs next from `clock`: a pass with chunks (kind 1), decode steps (0) or nothing (-1)."""
        self.dirty = False
        heap = self.heap
        growth = self.growth
        preempted = False
        if self.late:
            self._see()
        every = self.server.receive_interval
        if every > 1 and self.steps > self.poll:  # looks at the queue come at fixed steps
            self.poll += -(-(self.steps - self.poll) // every) * every
        while len(heap) * growth > self.capacity - self.used and len(heap) + len(self.prefilling) > 1:
            self.preempt()
            preempted = True
        if self.cache is not None:
            self.cache.shrink(self.capacity - self.used)
        if self.prefilling or (self.waiting and (not heap or (self.steps >= self.poll and not preempted))):
            chunks, decoding = self.scheduler.select(self)
            if every > 1 and not self.waiting:
                self.poll = self.steps + every
            if chunks:
                running = len(heap) if decoding else 0
                context = self.stored / running + 1 if running else 0.0
                self.count = running
                self.chunks = chunks
                self.kind = 1
                self.end = self.clock + self.table.mixed([(n, e[1]) for e, n in chunks], running, context)
                return
            if self.done:  # admitted and ended at once (a decode pool's request of one token)
                self.kind, self.end = -1, self.clock
                return
        running = len(heap)
        if not running:
            self.kind, self.end = -1, INFINITY
            return
        count = heap[0][0] - self.steps
        if running * growth * count > self.capacity - self.used:
            count = max(int((self.capacity - self.used) / (running * growth)), 1)
        if self.waiting and every > 1 and self.poll > self.steps:
            count = min(count, self.poll - self.steps)
        if self.hold > self.steps:
            count = min(count, self.hold - self.steps)
        if self.late:
            count = 1
        self.kind, self.count = 0, count
        self.end = self.clock + self.table.decode_sum(running, self.stored / running + 1, count)

    def _see(self) -> None:
        """Requests that came before the pass that has just ended was begun are seen now; all where nothing runs."""
        late, sealed = self.late, self.sealed
        if not self.heap and not self.prefilling and not self.waiting:
            sealed = INFINITY
        while late and late[0][0] <= sealed:
            self.waiting.append(late.popleft()[1])

    def interrupt(self, at: float) -> None:
        """Stop a run of decode steps at the first step boundary not before `at`, or one step later where that step is
        made up already."""
        table = self.table
        running = len(self.heap)
        context = self.stored / running + 1
        most = self.count
        gap = at - self.clock
        count = int(gap / table.decode_time(running, context + most * gap / (2 * (self.end - self.clock)))) + 1
        count = min(max(count, 1), most)
        lasts = table.decode_sum(running, context, count)
        while lasts < gap and count < most:
            count += 1
            lasts = table.decode_sum(running, context, count)
        while count > 1:
            shorter = table.decode_sum(running, context, count - 1)
            if shorter < gap:
                break
            count, lasts = count - 1, shorter
        if self.late and count < most:
            count += 1
            lasts = table.decode_sum(running, context, count)
        self.count = count
        self.end = self.clock + lasts
        self.commit()

    def commit(self) -> None:
        """Carry out what was planned: time passes to `end`."""
        end = self.end
        lasts = end - self.clock
        self.dirty = True
        self.sealed = end - lasts / self.count if self.kind == 0 else self.clock
        if self.kind < 0:
            self.clock = max(self.clock, end) if end < INFINITY else self.clock
            return
        heap = self.heap
        growth = self.growth
        running = len(heap)
        self.active += lasts
        self.used_time += self.used * lasts
        self.queue_time += (len(self.waiting) + len(self.late)) * lasts
        if self.kind == 0:
            count = self.count
        else:
            count = 1 if self.count else 0
            running = self.count
        if count and running:
            if self.marks:
                self._mark(count, running, lasts)
            self.steps += count
            grown = running * count * growth
            self.sequence_steps += running * count
            self.context_steps += (self.stored + grown / 2) * count
            self.stored += grown
            self.used += grown
            if self.used > self.peak:
                self.peak = self.used
            gaps = self.records.gaps
            weight = running * count * growth
            if self.stall:
                bucket = int(BUCKETS * math.log((lasts / count + self.stall) / growth) + ORIGIN)
                gaps[bucket] = gaps.get(bucket, 0.0) + running * growth
                weight -= running * growth
                self.stall = 0.0
            if weight:
                bucket = int(BUCKETS * math.log(lasts / (count * growth)) + ORIGIN)
                gaps[bucket] = gaps.get(bucket, 0.0) + weight
        elif heap:
            self.stall += lasts
        self.clock = end
        if heap and heap[0][0] <= self.steps:
            self._retire()
        if self.kind == 1:
            self._advance()
        if self._tick >= self._stride:
            self._sample()
        else:
            self._tick += 1

    def _mark(self, count: int, running: int, lasts: float) -> None:
        """Requests whose first visible token falls in these steps (stream interval)."""
        marks, last = self.marks, self.steps + count
        while marks and marks[0][0] <= last:
            step, request = marks.popleft()
            share = (step - self.steps) / count
            if self.records.first[request] != self.records.first[request]:
                self.records.first[request] = self.clock + lasts * max(share, 0.0)

    def _retire(self) -> None:
        """Sequences that have made their last token leave."""
        heap, steps, records = self.heap, self.steps, self.records
        while heap and heap[0][0] <= steps:
            ends, _, request = heapq.heappop(heap)
            self.ends -= ends
            base, left = records.prompt[request], records.output[request] - 1
            if self.resumed and request in self.resumed:
                base, left = self.resumed.pop(request)
            held = base + math.ceil(left / self.growth - 1e-9) * self.growth
            self.stored -= held
            self.used -= held - (self.shared.pop(request, 0) if self.shared else 0) + self.each
            self._finish(request)
        if not heap:
            self.stored = 0.0
            self.ends = 0
            if not self.prefilling:
                self.used = 0.0

    def _advance(self) -> None:
        """Chunks of the pass are in the cache now; prompts that are complete give their first token."""
        self.prefill_passes += 1
        left = False
        for entry, new in self.chunks:
            self.prefill_tokens += new
            self.prefill_pairs += new * (entry[1] + new / 2)
            entry[1] += new
            entry[2] -= new
            if entry[2] > 0:
                left = True
        ready = [e for e, _ in self.chunks if e[2] <= 0]
        if left or len(ready) != len(self.prefilling):
            self.prefilling = [e for e in self.prefilling if e[2] > 0]
        else:
            self.prefilling = []
        self.chunks = []
        for entry in ready:
            self.begin(entry[0], entry[1])

    def _sample(self) -> None:
        """Queue, running sequences and KV memory now; at most some 4,000 samples, evenly thinned."""
        self._tick = 1
        samples = self.samples
        waiting = len(self.waiting) + len(self.late)
        samples.append((self.clock, waiting, len(self.heap) + len(self.prefilling), self.used))
        if len(samples) > 4000:
            del samples[1::2]
            self._stride *= 2
