"""One engine instance: its queue, its running sequences, its KV memory, and the pass that runs next.

Between two events (an arrival, a completion, a full cache) every decode step is alike but for one more token of
context, so the steps in between are summed in closed form: work a request, not a token."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from rooflm.serving.capacity import Capacity
from rooflm.serving.decoding import Decoding
from rooflm.serving.kv import EARLIER, Kv, Prefix, PrefixCache, whole_blocks
from rooflm.serving.meter import Meter
from rooflm.serving.schedulers import Chunk, Continuous, Ranks, all_fits, queue
from rooflm.serving.server import Server
from rooflm.serving.steps import StepTable

WAITING, RUNNING, FINISHED, REJECTED = 0, 1, 2, 3
"""Status of a request; whatever is not finished or rejected at the end counts as still running (or queued)."""
INFINITY = math.inf
AHEAD = 512
"""Tokens to come for which a decode replica keeps room, a request (SGLang, --num-reserved-decode-tokens)."""
NOTHING, STEPS, PASS = -1, 0, 1
"""What runs next: nothing, decode steps alone, or one pass with prompts."""


class Records:
    """Results of all requests, filled while the simulation runs. Times in s from its start.

    hashes, hash_tokens: of the prompts (see `workload.Requests`)."""

    def __init__(self, arrival: Any, prompt: Sequence[int], output: Sequence[int], hashes: Any = None,
                 priority: Any = None, hash_tokens: Any = 512) -> None:  # fmt: skip
        size = len(prompt)
        empty = array("d", [math.nan]) * size
        self.arrival, self.prompt, self.output = array("d", arrival), array("q", prompt), array("q", output)
        self.first, self.end = array("d", empty), array("d", empty)
        self.status, self.preempted = bytearray(size), array("H", [0]) * size
        self.cached, self.replica = array("l", [0]) * size, array("h", [-1]) * size
        self.hashes, self.hash_tokens, self.priority = hashes, hash_tokens, priority
        self.gaps: dict[int, float] = {}

    def prefix(self, request: int, block: int) -> Prefix:
        """A request's prompt in whole blocks of a prefix cache."""
        sizes = self.hash_tokens if isinstance(self.hash_tokens, int) else self.hash_tokens[request]
        return whole_blocks(self.hashes[request], sizes, self.prompt[request], block)


class Replica:
    """See the module. role: "both", or "prefill" or "decode" when disaggregated. Times in s, memory in tokens.

    - Limits. budget: new tokens of a pass over all attention ranks and micro-batches of a pipeline; chunk: of a prompt,
      which is on one rank, and in one micro-batch unless its parts follow each other; most: requests; shared, sharing:
      fewest tokens, and requests, of a prefix that decoding reads once.
    - Requests. waiting, prefilling, decoding: those of its three stages; unmade: tokens that those in the second, and
      of `reserved`, have still to make; late: those that came while a pass ran and are seen by the next but one
      (lookahead); resumed: of preempted ones, (tokens to have again, tokens still to make); taken: those of them that
      wait; asking: (when it came, request) of those that wait for a decode replica's memory before their prompt;
      reserved: memory of those that have it and do not run yet, for a first step too.
    - What runs next. kind, count, chunks, end: what it is, for how many decode steps, with which prompts, and until
      when; dirty: it has to be planned anew; host: s of it that keep its scheduler (`StepTable.passed`); cold: s that
      the next prompts take more; slower: the front end's pace over the device's, at least 1, in planned steps; behind:
      tokens of a part of a prompt that the next one follows through a pipeline's stages.
    - When newcomers are looked at. sealed, hold, poll: before which time, from which step and at which step; turns: a
      decode replica takes them in on a turn of their own, which shows their first token; ahead: s by which the host
      began to launch the next pass before the device is free: where passes are made up ahead, others run and the
      engine's workers do so (`ahead`), as long as the step that has just run.
    - What leaves it. sent: until when the host sends caches on; stream_end: until when tokens made so far are on their
      way to clients (`seen_at`); stream_step: s that a step of a sequence adds to that."""

    def __init__(self, number: int, records: Records, table: StepTable, server: Server, capacity: Capacity,
                 select: Continuous, role: str = "both") -> None:  # fmt: skip
        self.number, self.records, self.table, self.server, self.role = number, records, table, server, role
        self.scheduler, self.growth, k = select, server.tokens_a_step, table.engine.kernels
        self.shared, self.sharing = float(k.cascade_tokens), float(k.cascade)
        self.budget, self.most = server.budget * table.slots, server.max_sequences * table.ranks
        self.chunk, self.ranks = server.budget * (table.flight if select.follows else 1), Ranks(table.ranks)
        self.behind = int(server.budget) * (select.follows and table.flight > 1)
        self.turns = role == "decode" and not select.mixes
        caches = server.prefix_caching and records.hashes is not None
        cache = PrefixCache(server.cache_block) if caches else None
        self.kv = Kv(capacity, cache, partial(records.prefix, block=server.cache_block))
        self.meter, self.decoding = Meter(records.gaps), Decoding(self.growth)
        self.late: deque[tuple[float, int]] = deque()
        self.asking: deque[tuple[float, int]] = deque()
        self.reserved: dict[int, float] = {}
        self.taken = set[int]()
        kept = self.reserved if role == "decode" and not server.handed_on else None
        self.waiting = queue(server.policy, records.priority, records.prompt, kept)
        self.prefilling: list[list[Any]] = []
        self.marks: deque[tuple[int, int]] = deque()
        self.resumed: dict[int, tuple[int, int]] = {}
        self.done: list[int] = []
        self.clock = self.end = self.sent = 0.0
        self.unmade = 0
        self.cold, self.slower, self.ahead = server.cold, 1.0, 0.0
        self.stream_end, self.stream_step = 0.0, server.streaming(1)
        self.sealed, self.host, self.hold, self.poll = -INFINITY, 0.0, -1, 0
        self.kind, self.count, self.dirty = NOTHING, 0, True
        self.chunks: list[Chunk] = []

    def recall(self, requests: NDArray[Any]) -> None:
        """What an earlier run left of these requests' prompts is in the cache, as far as memory holds it."""
        if self.kv.cache is not None:
            earlier = (r for r in requests.tolist() if min(self.records.hashes[r], default=0) < EARLIER)
            self.kv.cache.fill((part for r in earlier for part in self.kv.prefix(r)), self.kv.capacity)

    # -- what schedulers and routers ask ---------------------------------------------------------------------------

    def length(self, request: int) -> int:
        """Tokens to have in the cache before the next token of a request: its prompt, or more after preemption."""
        return self.resumed[request][0] if request in self.resumed else self.records.prompt[request]

    def need(self, request: int) -> float:
        """Memory that a request takes when it is admitted."""
        return self.kv.need(request, self.length(request)) - self.reserved.get(request, 0.0)

    def granted(self) -> float | None:
        """When the first of those that ask came, once its memory is kept; None where nobody asks or there is no room,
        which one whose memory was taken away has before."""
        if not self.asking or self.taken:
            return None
        came, request = self.asking[0]
        need, others = self.need(request), len(self.decoding.heap) + len(self.prefilling) + len(self.reserved)
        fits = need + AHEAD * (others + 1) <= self.kv.room() if self.scheduler.evicts else all_fits(self, request)
        if others and not fits:
            return None
        self.asking.popleft()
        self.reserved[request] = need + self.growth
        self.unmade += self.left(request)
        self.kv.grow(need + self.growth)
        return came

    def fits_alone(self, request: int) -> bool:
        """Whether nothing runs, and a request fits beside what is kept for others: it need not leave more room."""
        fits = not self.reserved or self.need(request) + self.growth <= self.kv.room()
        return fits and not self.decoding.heap and not self.prefilling

    def has_room(self, request: int) -> bool:
        """Whether a request can be admitted: its memory is kept (`granted`), or its scheduler finds room."""
        return request in self.reserved or self.scheduler.room(self, request)

    def step(self) -> float:
        """Seconds of a step of the sequences that decode now."""
        running = len(self.decoding.heap)
        return self.slower * self.table.decode_time(running, self.decoding.stored / running + 1) if running else 0.0

    def left(self, request: int) -> int:
        """Tokens still to be made after the next prefill."""
        return self.resumed[request][1] if request in self.resumed else self.records.output[request]

    def load(self) -> int:
        """Requests here, queued and running."""
        coming = max(self.queued(), len(self.reserved)) + len(self.asking)
        return coming + len(self.prefilling) + len(self.decoding.heap)

    def queued(self) -> int:
        """Requests that wait."""
        return len(self.waiting) + len(self.late)

    def idle(self) -> bool:
        """Whether nothing runs or is about to."""
        return not self.decoding.heap and not self.prefilling and not self.waiting

    def admit(self, request: int) -> list[Any] | None:
        """Reserve the prompt's KV memory; returns the entry to prefill, or None where nothing is left to prefill."""
        whole, resumed = self.length(request), request in self.resumed
        self.records.status[request] = RUNNING
        self.taken.discard(request)
        if request in self.reserved:
            self.kv.grow(-self.reserved.pop(request))
            self.unmade -= self.left(request)
        hit = self.kv.admit(request, whole)
        self.records.cached[request] = max(self.records.cached[request], hit)
        if (self.role == "decode" and not resumed) or (resumed and self.server.preemption == "swap"):
            if resumed:
                self.clock += whole * self.kv.bytes_per_token / self.server.swap_bandwidth
            self.begin(request, whole)
            return None
        entry = [request, hit, whole - hit]
        self.prefilling.append(entry)
        self.unmade += self.left(request)
        return entry

    # -- life of a request -----------------------------------------------------------------------------------------

    def begin(self, request: int, whole: int) -> None:
        """A request whose prompt is in the cache starts to decode; its first token is there (or came before).

        The token that a prefill replica makes goes with the cache, and the decode replica shows it when it takes the
        request in: clients hear from that one alone, so a wait for its memory is one for the first token. Sources:
        SGLang, "PD Disaggregation" (the router streams what the decode server sends); vLLM, disaggregated prefilling
        (the prefill server is asked for one token, which its proxy drops); TensorRT-LLM, disaggregated service
        (first_gen_tokens go to the generation server)."""
        records, resumed, interval = self.records, self.resumed.get(request), self.server.stream_interval
        left = resumed[1] if resumed else records.output[request] - 1
        fresh = not resumed and self._answers(request)
        if fresh and interval == 1 and records.first[request] != records.first[request]:
            records.first[request] = self.seen_at(self.clock)
        self.kv.share(request)
        if left <= 0 or self.role == "prefill":
            self.kv.release(request, whole)
            self._finish(request)
            return
        steps = math.ceil(left / self.growth - 1e-9)
        self.decoding.start(request, steps, whole)
        if fresh and interval > 1:
            wait = math.ceil((interval - 1) / self.growth)
            self.marks.append((self.decoding.steps + min(wait, steps), request))

    def _answers(self, request: int) -> bool:
        """Whether the client hears of a request from here: not from a prefill replica, but of one token."""
        return self.role != "prefill" or self.records.output[request] <= 1

    def _finish(self, request: int) -> None:
        """A request has its last token, or on a prefill replica its cache: it leaves its rank and is handed on."""
        records = self.records
        records.end[request] = self.seen_at(self.clock)
        if self._answers(request):
            if records.first[request] != records.first[request]:
                records.first[request] = self.seen_at(self.clock)
            records.status[request] = FINISHED
        self.ranks.leave(request)
        self.done.append(request)

    def seen_at(self, made: float) -> float:
        """When its client has a token that was made then: tokens are streamed in turn (docs/decisions/0326)."""
        return max(made, self.stream_end)

    def preempt(self) -> None:
        """Take the KV memory of the sequence admitted last: it goes back to the head of the queue."""
        self.meter.preemptions += 1
        if self.prefilling and self.decoding.heap:
            request = self.prefilling.pop()[0]
            self.unmade -= self.left(request)
            self.kv.release(request, self.length(request))
        else:
            request, left = self.decoding.newest()
            made = self._to_make(request) - left
            held = self.length(request) + max(made, 0)
            self.decoding.stored -= held
            self.kv.release(request, held)
            swap = self.server.preemption == "swap"
            self.resumed[request] = (held, left if swap else left - 1)  # prefilling again gives a token
            if swap:
                self.clock += held * self.kv.bytes_per_token / self.server.swap_bandwidth
        self.records.preempted[request] += 1
        self.records.status[request] = WAITING
        self.taken.add(request)
        self.waiting.back(request)

    def _to_make(self, request: int) -> int:
        """Tokens that a request had to make when it began to decode."""
        return self.resumed[request][1] if request in self.resumed else self.records.output[request] - 1

    # -- the loop: plan ----------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Decide what runs next from `clock`: a pass with chunks, decode steps, or nothing."""
        self.dirty = False
        if self.late:
            self._see()
        every, steps, waiting = self.server.receive_interval, self.decoding.steps, self.waiting
        if every > 1 and steps > self.poll:  # looks at the queue come at fixed steps
            self.poll += -(-(steps - self.poll) // every) * every
        preempted = self._make_room()
        looks = waiting and (not self.decoding.heap or (steps >= self.poll and not preempted))
        if (self.prefilling or looks) and self._plan_pass(every):
            return
        if self.decoding.heap:
            self._plan_steps(every)
        else:
            self.kind, self.end = NOTHING, INFINITY

    def _see(self) -> None:
        """Requests that came before the pass that has just ended was begun are seen now; all where nothing runs."""
        late = self.late
        if not late:
            return
        sealed = INFINITY if self.idle() else self.sealed
        shown = self.turns and not self.waiting and sealed < INFINITY and self.server.stream_interval == 1
        while late and late[0][0] <= sealed:
            request = late.popleft()[1]
            if shown and self.has_room(request):
                self.records.first[request] = self.seen_at(sealed)
            self.waiting.append(request)

    def _make_room(self) -> bool:
        """Preempt until every running sequence can write its next tokens; whether any was preempted. The last one is
        where others' memory is kept."""
        heap, kv, preempted = self.decoding.heap, self.kv, False
        while heap and len(heap) * self.growth > kv.room() and (len(heap) > 1 or self.prefilling or self.reserved):
            self.preempt()
            preempted = True
        return preempted

    def reach(self, running: int) -> float:
        """Mean context of the sequences that decode. Where a token is read once for all that share it, every reader
        but the first counts it by the part of its time that is not spared (`components.reread`)."""
        stored, cache, table = self.decoding.stored, self.kv.cache, self.table
        if cache is not None and self.shared <= cache.common <= table.near:
            again = cache.again - (table.ranks - 1) * cache.common
            if again >= table.ranks * (self.sharing - 1) * cache.common:
                stored -= table.spared * again * running / (running + len(self.prefilling))
        return stored / running + 1

    def _plan_pass(self, every: int) -> bool:
        """Plan a pass with the scheduler's chunks; whether there is anything to carry out."""
        chunks, together = self.scheduler.select(self)
        decoding = self.decoding
        if every > 1 and not self.waiting:
            self.poll = decoding.steps + every
        if chunks:
            running = len(decoding.heap) if together else 0
            context = self.reach(running) if running else 0.0
            self.kind, self.count, self.chunks = PASS, running, chunks
            fullest = self.ranks.fullest(chunks) if self.server.wait_steps and self.ranks.count > 1 else 0.0
            most, ahead, drains = int(self.server.budget), self.ahead if decoding.heap else 0.0, 0
            parts = [
                (int(min(n - i, most)), e[1] + max(n - most, 0) / 2) for e, n in chunks for i in range(0, int(n), most)
            ]
            if len(chunks) == 1 and chunks[0][0][2] == chunks[0][1] and not decoding.heap and not self.waiting:
                request, past, left = chunks[0][0]  # alone, but for its parts of the pass before
                drains = max(min(int(left), most), self.behind * (past > self.records.cached[request]))
            lasts, self.host = self.table.passed(parts, running, context, fullest, drains, ahead)
            self.end, self.cold = self.clock + lasts + self.cold, 0.0
            return True
        if self.done:  # admitted and ended at once (a decode pool's request of one token)
            self.kind, self.end = NOTHING, self.clock
            return True
        return False

    def _plan_steps(self, every: int) -> None:
        """Plan decode steps until the next event that is known: an end, a full cache, a look at the queue."""
        decoding = self.decoding
        running, steps = len(decoding.heap), decoding.steps
        count, free = decoding.heap[0][0] - steps, self.kv.capacity - self.kv.used
        if running * self.growth * count > free:
            count = max(int(free / (running * self.growth)), 1)
        if self.waiting and every > 1 and self.poll > steps:
            count = min(count, self.poll - steps)
        if self.hold > steps:
            count = min(count, self.hold - steps)
        if self.late:
            count = 1
        self.kind, self.count = STEPS, count
        context = self.reach(running)
        lasts, self.host = self.table.decode_sum(running, context, count), self.table.kept(running, context)
        if self.table.copied:
            handed = count * (decoding.made() + running * self.growth * (count - 1) / 2)
            self.slower = max(1.0, self.table.copied * handed / (self.server.stream_interval * lasts))
        self.end = self.clock + lasts * self.slower

    def interrupt(self, at: float) -> None:
        """Stop a run of decode steps at the first step boundary not before `at`, or one step later where that step is
        made up already."""
        table = self.table
        running = len(self.decoding.heap)
        context = self.reach(running)
        most = self.count
        gap, planned = (at - self.clock) / self.slower, (self.end - self.clock) / self.slower
        count = int(gap / table.decode_time(running, context + most * gap / (2 * planned))) + 1
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
            before = self.slower * table.decode_sum(running, context, count - 1)
            if at > self.seals(before, count):
                count += 1
                lasts = table.decode_sum(running, context, count)
        self.count = count
        self.end = self.clock + lasts * self.slower
        self.commit()

    # -- the loop: commit --------------------------------------------------------------------------------------------

    def seals(self, before: float, steps: int) -> float:
        """When the pass after so many steps is made up, of which the last begins `before` s from now: then, or once the
        host has launched all of them."""
        return max(self.clock + before, self.sealed + steps * self.host)

    def commit(self) -> None:
        """Carry out what was planned: time passes to `end`."""
        end, kind, heap, meter = self.end, self.kind, self.decoding.heap, self.meter
        lasts = end - self.clock
        self.dirty = True
        if kind == NOTHING:
            self.clock = max(self.clock, end) if end < INFINITY else self.clock
            self.sealed, self.ahead = self.clock, 0.0
            return
        if kind == STEPS:
            self.sealed = min(self.seals(lasts - lasts / self.count, self.count), end)
            self.ahead = end - self.sealed if self.server.lookahead and self.table.ahead else 0.0
        else:
            self.sealed, self.ahead = self.clock + min(self.host, lasts), 0.0
        queued = self.queued()
        meter.passed(lasts, queued, self.kv.used)
        if kind == STEPS:
            self._decode(len(heap), self.count, lasts)
        elif self.count:
            self._decode(self.count, 1, lasts)
        elif heap:
            meter.stalled(lasts)
        self.clock, before = end, self.kv.used
        if heap and heap[0][0] <= self.decoding.steps:
            self._retire()
        if kind == PASS:
            self._advance()
        meter.sample(end, queued, len(heap) + len(self.prefilling), self.kv.used, before)

    def _decode(self, running: int, count: int, lasts: float) -> None:
        """`count` steps of the running sequences, in `lasts` s."""
        decoding, begun = self.decoding, self.seen_at(self.clock)
        self.stream_end = begun + self.stream_step * running * count
        if self.marks:
            self._mark(count, lasts, begun)
        self.meter.decoded(running, count, self.growth, decoding.stored, lasts)
        grown = running * count * self.growth
        decoding.steps += count
        decoding.stored += grown
        self.kv.grow(grown)

    def _mark(self, count: int, lasts: float, begun: float) -> None:
        """Requests whose first visible token (stream interval) is of these steps, streamed from `begun` on."""
        marks, steps = self.marks, self.decoding.steps
        while marks and marks[0][0] <= steps + count:
            step, request = marks.popleft()
            share = max((step - steps) / count, 0.0)
            if self.records.first[request] != self.records.first[request]:
                made, seen = self.clock + lasts * share, begun + (self.stream_end - begun) * share
                self.records.first[request] = max(made, seen)

    def _retire(self) -> None:
        """Sequences that have made their last token leave."""
        decoding = self.decoding
        for request, held in decoding.ended():
            self.resumed.pop(request, None)
            self.kv.release(request, held)
            self._finish(request)
        if not decoding.heap:
            decoding.clear()
            if not self.prefilling and not self.reserved:
                self.kv.clear()

    def _advance(self) -> None:
        """Chunks of the pass are in the cache now; prompts that are complete give their first token."""
        self.meter.prefill_passes += 1
        left = False
        for entry, new in self.chunks:
            self.meter.prefilled(new, entry[1])
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
            self.unmade -= self.left(entry[0])
            self.begin(entry[0], entry[1])
