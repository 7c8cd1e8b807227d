"""KV memory of one engine instance: what its requests hold, each its own, and the prefixes that they share."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from rooflm.serving.capacity import Capacity

Prefix = list[tuple[int, int]]
"""A prompt as (hash, tokens), from its start, in whole blocks; a hash stands for everything before it, too."""


def whole_blocks(hashes: Sequence[int], sizes: int | Sequence[int], prompt: int, block: int) -> Prefix:
    """The parts of a prompt that a cache of blocks can hold: each hash with the whole blocks that end within its
    tokens. sizes: tokens that each hash covers (one number for all, or one each).

    >>> whole_blocks([7, 8], [1500, 548], 2048, 16), whole_blocks([1, 2, 3], 512, 1100, 16)
    ([(7, 1488), (8, 560)], [(1, 512), (2, 512)])
    """
    prefix: Prefix = []
    end = counted = 0
    for key, size in zip(hashes, repeat(sizes) if isinstance(sizes, int) else sizes, strict=False):
        end += size
        whole = end // block * block
        if end > prompt:
            break
        if whole > counted:
            prefix.append((key, whole - counted))
            counted = whole
    return prefix


EARLIER = -(2**63)
"""Hashes below it are of what an earlier run left."""


class PrefixCache:
    """Blocks of earlier prompts by hash. Those of running requests are pinned: they stay, and each counts once however
    many requests share it. The others are idle: the least recently used are given up first, from their end. common:
    tokens that several running requests share; again: tokens that all of these but the first read once more.

    Sources: vLLM documentation, "Automatic prefix caching" (reference counts; a free queue in order of last use, the
    last block of a request first); SGLang, RadixCache (lock_ref, evict of unlocked leaves; arXiv 2312.07104)."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.tokens: dict[int, int] = {}
        self.pins: dict[int, int] = {}
        self.order = OrderedDict[int, None]()
        self.idle = self.common = self.again = 0
        self.held: dict[int, list[int]] = {}

    def fill(self, parts: Iterable[tuple[int, int]], tokens: float) -> None:
        """What an earlier run left of these parts, of which the last ones fit in `tokens`.

        >>> cache, one, two = PrefixCache(16), EARLIER - 1, EARLIER - 2
        >>> cache.fill([(one, 32), (1, 16), (two, 32)], 48), cache.match([(one, 32), (1, 16)]), cache.match([(two, 32)])
        (None, (16, 16), (32, 32))
        """
        for key, size in parts:
            more = size - self.tokens.get(key, 0)  # another prompt may have had less of a common part
            if key < EARLIER and more > 0:
                self.tokens[key] = size
                self.order[key] = None
                self.idle += more
        self.shrink(tokens)

    def match(self, prefix: Prefix) -> tuple[int, int]:
        """(tokens of a prompt that are cached, tokens that are idle and would be pinned with them).

        >>> cache = PrefixCache(16)
        >>> cache.add(0, [(1, 32), (2, 16)]), cache.match([(1, 32), (3, 16)]), cache.match([(9, 16), (1, 32)])
        (48, (32, 0), (0, 0))
        >>> cache.unpin(0), cache.match([(1, 32), (3, 16)])
        (48, (32, 32))
        """
        hit = idle = 0
        for key, size in prefix:
            cached = self.tokens.get(key)
            if cached is None:
                break
            hit += min(cached, size)
            if key not in self.pins:
                idle += cached
            if cached < size:
                break
        return hit, idle

    def pin(self, request: int, prefix: Prefix) -> None:
        """A request starts to use what is cached of its prompt."""
        mine = self.held.setdefault(request, [])
        for key, size in prefix:
            cached = self.tokens.get(key)
            if cached is None:
                return
            self._pin(key, cached)
            mine.append(key)
            if cached < size:
                return

    def _pin(self, key: int, tokens: int) -> None:
        if key in self.order:
            del self.order[key]
            self.idle -= tokens
        self._reads(key, tokens, 1)
        self.pins[key] = self.pins.get(key, 0) + 1

    def _reads(self, key: int, tokens: int, more: int) -> None:
        """Count one running request more (1) or less (-1) of those that use a key, beside the others.

        >>> cache = PrefixCache(16)
        >>> cache.add(0, [(1, 32)]), cache.pin(1, [(1, 32)]), cache.pin(2, [(1, 32)]), cache.common, cache.again
        (32, None, None, 32, 64)
        >>> cache.unpin(0), cache.common, cache.again, cache.unpin(1), cache.common, cache.again
        (0, 32, 32, 0, 0, 0)
        """
        others = self.pins.get(key, 0)
        self.again += more * tokens * (others > 0)
        self.common += more * tokens * (others == 1)

    def add(self, request: int, prefix: Prefix) -> int:
        """Cache the computed prompt of a request and pin its blocks. Returns the number of new tokens; what another
        request has cached meanwhile stays a private copy."""
        mine = self.held.setdefault(request, [])
        new = 0
        for key, size in prefix:
            cached = self.tokens.get(key, 0)
            if not cached:
                self.pins[key] = 1
                mine.append(key)
            elif cached >= size or key not in mine:
                continue
            elif self.pins[key] > 1:
                self.common += size - cached
                self.again += (self.pins[key] - 1) * (size - cached)
            self.tokens[key] = size
            new += size - cached
        return new

    def unpin(self, request: int) -> int:
        """A request ends: returns the tokens that nobody uses any more, which stay as long as there is room."""
        idle = 0
        for key in reversed(self.held.pop(request, ())):
            if self.pins[key] > 1:
                self.pins[key] -= 1
                self._reads(key, self.tokens[key], -1)
                continue
            del self.pins[key]
            self.order[key] = None
            idle += self.tokens[key]
        self.idle += idle
        return idle

    def shrink(self, tokens: float) -> None:
        """Give up idle blocks until at most `tokens` of them are held.

        >>> cache = PrefixCache(16)
        >>> cache.add(0, [(1, 32), (2, 64)]), cache.unpin(0), cache.shrink(50.0), cache.match([(1, 32), (2, 64)])
        (96, 96, None, (48, 48))
        """
        tokens = max(tokens, 0)
        while self.idle > tokens:
            key = next(iter(self.order))
            held = self.tokens[key]
            gone = min(held, math.ceil((self.idle - tokens) / self.block) * self.block)
            self.idle -= gone
            if gone < held:
                self.tokens[key] = held - gone
            else:
                del self.order[key], self.tokens[key]


class Kv:
    """KV memory in tokens. capacity: of the instance; each: what a sequence takes beside its tokens; used: held by
    running requests, what they share counted once (idle cached blocks are free memory); peak: the most that was used.

    prefix: the parts of a request's prompt that the cache may hold (of a `cache` only)."""

    def __init__(self, capacity: Capacity, cache: PrefixCache | None, prefix: Callable[[int], Prefix]) -> None:
        self.capacity, self.each, self.bytes_per_token = capacity.tokens, capacity.each, capacity.bytes_per_token
        self.cache, self.prefix = cache, prefix
        self.used = self.peak = 0.0
        self.shared: dict[int, int] = {}

    def hit(self, request: int) -> int:
        """Tokens of a request's prompt that are cached."""
        return 0 if self.cache is None else self.cache.match(self.prefix(request))[0]

    def need(self, request: int, whole: int) -> float:
        """Memory that a request takes when it is admitted with `whole` tokens: less what others share with it."""
        if self.cache is None:
            return whole + self.each
        hit, idle = self.cache.match(self.prefix(request))
        return whole - self._most(hit, whole) + idle + self.each

    def _most(self, hit: int, whole: int) -> int:
        """Cached tokens that a request may use: its last token is computed in any case, with its block."""
        assert self.cache is not None
        return min(hit, (whole - 1) // self.cache.block * self.cache.block)

    def admit(self, request: int, whole: int) -> int:
        """A request takes memory for `whole` tokens; returns those that were cached."""
        hit = 0
        if self.cache is not None:
            prefix = self.prefix(request)
            hit, idle = self.cache.match(prefix)
            hit = self.shared[request] = self._most(hit, whole)
            self.cache.pin(request, prefix)
            self.used += idle
        self.grow(whole - hit + self.each)
        if self.cache is not None:
            self.cache.shrink(self.capacity - self.used)
        return hit

    def grow(self, tokens: float) -> None:
        """Running requests have written tokens."""
        self.used += tokens
        if self.used > self.peak:
            self.peak = self.used

    def share(self, request: int) -> None:
        """A request's prompt is computed: its blocks may be used by others from now on."""
        if self.cache is not None:
            self.shared[request] += self.cache.add(request, self.prefix(request))

    def release(self, request: int, tokens: float) -> None:
        """A request of `tokens` tokens gives its memory back."""
        if self.cache is None:
            self.used -= tokens + self.each
            return
        self.used -= tokens - self.shared.pop(request) + self.each + self.cache.unpin(request)

    def room(self) -> float:
        """Tokens that are free; idle cached blocks are given up for them."""
        free = self.capacity - self.used
        if self.cache is not None:
            self.cache.shrink(free)
        return free

    def clear(self) -> None:
        """Nothing runs: rounding of sums goes."""
        self.used = 0.0
