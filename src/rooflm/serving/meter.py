"""What an engine instance did, added up over time, for `metrics`."""

from __future__ import annotations

import math

BUCKETS, ORIGIN = 100, 100_000
"""Buckets of the inter-token histogram in a factor of e (1 % wide), and the number of the bucket at 1 s."""
SAMPLES = 4000
"""Most samples of a timeline; beyond, every other one is dropped."""


def bucket_of(gap: float) -> int:
    """The bucket of a time between tokens; none is taken shorter than a picosecond.

    >>> bucket_of(1.0) - ORIGIN, bucket_of(0.0) == bucket_of(1e-12)
    (0, True)
    """
    return int(BUCKETS * math.log(gap if gap > 1e-12 else 1e-12) + ORIGIN)


class Meter:
    """Sums of one instance. Times in s.

    active: a pass ran; queue_time, kv_time: requests waiting and tokens held, times s; prefill_passes, prefill_tokens,
    prefill_pairs: of new tokens and those before them; sequence_steps, context_steps: of decode steps. gaps: the
    histogram of times between tokens (of all instances); samples: (time, waiting, running, tokens held, tokens held
    just before the requests that end then gave theirs back)."""

    def __init__(self, gaps: dict[int, float]) -> None:
        self.active = self.queue_time = self.kv_time = 0.0
        self.prefill_passes = self.prefill_tokens = self.prefill_pairs = 0.0
        self.sequence_steps = self.context_steps = 0.0
        self.preemptions = 0
        self.samples: list[tuple[float, int, int, float, float]] = []
        self.gaps = gaps
        self._stall = 0.0
        self._stride = self._tick = 1

    def passed(self, lasts: float, waiting: int, used: float) -> None:
        """A pass of `lasts` s, or several, with so many requests waiting and tokens held."""
        self.active += lasts
        self.kv_time += used * lasts
        self.queue_time += waiting * lasts

    def stalled(self, lasts: float) -> None:
        """Running sequences waited for prompts of others."""
        self._stall += lasts

    def decoded(self, running: int, count: int, growth: float, stored: float, lasts: float) -> None:
        """`count` steps in `lasts` s, of `growth` tokens each for `running` sequences with `stored` tokens before."""
        weight = running * count * growth
        self.sequence_steps += running * count
        self.context_steps += (stored + weight / 2) * count
        gaps = self.gaps
        if self._stall:
            bucket = bucket_of((lasts / count + self._stall) / growth)
            gaps[bucket] = gaps.get(bucket, 0.0) + running * growth
            weight -= running * growth
            self._stall = 0.0
        if weight:
            bucket = bucket_of(lasts / (count * growth))
            gaps[bucket] = gaps.get(bucket, 0.0) + weight

    def prefilled(self, new: int, past: int) -> None:
        """A chunk of `new` tokens after `past` ones."""
        self.prefill_tokens += new
        self.prefill_pairs += new * (past + new / 2)

    def sample(self, clock: float, waiting: int, running: int, used: float, before: float) -> None:
        """The state now, and the tokens held `before` what ended now was released; evenly thinned."""
        if self._tick < self._stride:
            self._tick += 1
            return
        self._tick = 1
        samples = self.samples
        samples.append((clock, waiting, running, used, before))
        if len(samples) > SAMPLES:
            del samples[1::2]
            self._stride *= 2
