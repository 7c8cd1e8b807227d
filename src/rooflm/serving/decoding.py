"""The sequences of an engine instance that decode together."""

from __future__ import annotations

import heapq
from operator import itemgetter


class Decoding:
    """Sequences that gain `growth` tokens a step, each until a step that is known when it starts.

    heap: (last step, order of admission, request, first step, its tokens then); steps: made since the start; stored:
    tokens of all contexts."""

    def __init__(self, growth: float) -> None:
        self.growth = growth
        self.heap: list[tuple[int, int, int, int, float]] = []
        self.steps = 0
        self.stored = 0.0
        self._ends = self._starts = self._admitted = 0

    def start(self, request: int, steps: int, context: float) -> None:
        """A request begins to decode for so many steps."""
        self._admitted += 1
        heapq.heappush(self.heap, (self.steps + steps, self._admitted, request, self.steps, context))
        self._ends += self.steps + steps
        self._starts += self.steps
        self.stored += context

    def remaining(self) -> float:
        """Tokens still to be made by all."""
        return (self._ends - len(self.heap) * self.steps) * self.growth

    def made(self) -> float:
        """Tokens that all have made since they began."""
        return (len(self.heap) * self.steps - self._starts) * self.growth

    def ended(self) -> list[tuple[int, float]]:
        """The requests that have made their last token, taken out, each with the tokens of its context."""
        heap, steps, done = self.heap, self.steps, []
        while heap and heap[0][0] <= steps:
            last, _, request, first, context = heapq.heappop(heap)
            self._ends -= last
            self._starts -= first
            held = context + (last - first) * self.growth
            self.stored -= held
            done.append((request, held))
        return done

    def newest(self) -> tuple[int, int]:
        """The request admitted last, taken out, and the tokens that it has still to make."""
        victim = max(self.heap, key=itemgetter(1))
        self.heap.remove(victim)
        heapq.heapify(self.heap)
        last, _, request, first, _ = victim
        self._ends -= last
        self._starts -= first
        return request, round((last - self.steps) * self.growth)

    def clear(self) -> None:
        """Nothing runs: rounding of sums goes."""
        self.stored, self._ends, self._starts = 0.0, 0, 0
