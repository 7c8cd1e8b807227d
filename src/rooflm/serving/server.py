"""A server: its options, as engines' documentation names them, and its cache of prefixes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from rooflm.catalogue.engine import ServerOptions
from rooflm.catalogue.fields import number


@dataclass(frozen=True)
class Server(ServerOptions):
    """A server as it runs: its options, all limits said, and what a request costs in it."""

    budget: int = number(8192, "most new tokens in a pass of a rank", whole=True)
    max_sequences: int = number(1024, "running limit of a rank", whole=True)
    front: float = number(0.0, "time once a request in a front end that takes them one after the other", "s")
    request: float = number(0.0, "other time between arrival and scheduler", "s")

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a sequence gains in a step: (1 - a^(n+1)) / (1 - a) for n guesses right with chance a each.

        Source: Leviathan et al., "Fast inference from transformers via speculative decoding", equation 1.

        >>> Server().tokens_a_step, round(Server(speculative=3, acceptance=0.8).tokens_a_step, 3)
        (1.0, 2.952)
        """
        n, a = self.speculative, self.acceptance
        return 1.0 if not n else float(n + 1) if a >= 1 else (1 - a ** (n + 1)) / (1 - a)


class PrefixCache:
    """Blocks of finished prefills by hash, the least recently used dropped first."""

    def __init__(self, block: int) -> None:
        self.block, self.blocks = block, OrderedDict[int, None]()

    @property
    def tokens(self) -> int:
        """Tokens that it holds."""
        return len(self.blocks) * self.block

    def match(self, hashes: Sequence[int]) -> int:
        """Tokens of the longest prefix that is cached; its blocks count as used now.

        A block's hash covers everything before it too (as in vLLM's cache and Mooncake's traces), so membership is
        enough.

        >>> cache = PrefixCache(16)
        >>> cache.add([1, 2])
        32
        >>> cache.match([1, 2, 3]), cache.match([9, 1])
        (32, 0)
        """
        hit = 0
        for h in hashes:
            if h not in self.blocks:
                break
            self.blocks.move_to_end(h)
            hit += 1
        return hit * self.block

    def add(self, hashes: Sequence[int]) -> int:
        """Put a prompt's blocks in; returns the tokens that were new."""
        before = len(self.blocks)
        for h in hashes:
            self.blocks[h] = None
            self.blocks.move_to_end(h)
        return (len(self.blocks) - before) * self.block

    def shrink(self, tokens: float) -> None:
        """Drop blocks until at most `tokens` are held."""
        most = max(int(tokens // self.block), 0)
        while len(self.blocks) > most:
            self.blocks.popitem(last=False)
