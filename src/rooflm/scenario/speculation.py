"""Speculative decoding: what guesses tokens, how many, and how many of them a step keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rooflm.catalogue.fields import count, number, share
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.units import Num, is_plain, pick


@dataclass(frozen=True)
class Speculation:
    """A chain of guesses (or a tree with `branches` of them at each depth) that a step of the model verifies at once.

    draft: the model that guesses, in a scheme of its own; None: layers of the model's own (multi-token, EAGLE)."""

    guesses: Num = count(0, "tokens guessed one after the other a step (0: none)", low=0, high=1024)
    acceptance: Num = share(0.7, "chance that a guess is right where all before it were")
    branches: Num = count(1, "guesses beside each other at each depth (1: a chain, else a tree)", high=1024)
    accepted: Num = number(0, "tokens that a step gains on average, measured (0: worked out of acceptance)")
    draft: Model | None = None
    scheme: Quant | None = None

    @property
    def off(self) -> bool:
        """True where nothing is guessed (a list of numbers of guesses counts as guessing)."""
        return is_plain(self.guesses, 0)

    @property
    def verified(self) -> Num:
        """Tokens a sequence that one step processes.

        >>> Speculation(3).verified, Speculation(3, branches=2).verified
        (4, 7)
        """
        return 1 + self.guesses * self.branches

    @property
    def gained(self) -> Num:
        """Tokens that a sequence gains in a step (see `in_a_tree`), at most n + 1; as measured, where `accepted` is so.

        >>> round(float(Speculation(3, 0.8).gained), 3), float(Speculation(3, accepted=2.5).gained)
        (2.952, 2.5)
        """
        most = np.asarray(self.guesses, dtype=float) + 1.0
        given = np.asarray(self.accepted, dtype=float)
        return pick(given > 0, np.clip(given, 1.0, most), _in_trees(self.acceptance, self.guesses, self.branches))


MISSED = 0.5
"""Power of the rank by which the chance falls that the right token is none of the first: from 1 to 5 guesses it fell as
0.43 to 0.62 of it for greedy decoding of five data sets (Miao et al., SpecInfer, arXiv 2305.09781, table 1)."""


@lru_cache(maxsize=1024)
def in_a_tree(acceptance: float, guesses: int, branches: int) -> float:
    """Tokens that a step gains from the `branches` likeliest guesses at each depth, and the one that it makes itself:
    the sum over the nodes of a tree of the chances of the paths to them. For a chain it is (1 - a^(n + 1)) / (1 - a).

    Source: Chen et al., Sequoia (arXiv 2402.12374), positional acceptance; the nodes that stay at a depth are those of
    EAGLE-2 (arXiv 2406.16858). A chain: Leviathan et al. (arXiv 2211.17192), equation 1."""
    ranks = np.arange(1, branches + 1)
    child = np.diff(1.0 - (1.0 - acceptance) * ranks**-MISSED, prepend=0.0)  # the chance of each rank
    pairs = [(i, j) for i in range(branches) for j in range(branches // (i + 1))]  # no others are among the likeliest
    rows, columns = np.array(pairs).T
    nodes, total = np.eye(1, branches)[0], 1.0
    for _ in range(guesses):
        nodes = np.sort(nodes[rows] * child[columns])[::-1][:branches]
        total += float(nodes.sum())
    return total


_in_trees = np.vectorize(lambda a, n, k: in_a_tree(float(a), int(n), int(k)), otypes=[float])


def guessing_model(model: Model, spec: Speculation) -> Model:
    """The draft model, or else one layer of the model's own kind with its head."""
    if spec.draft is not None:
        return spec.draft
    last = next(b for b in reversed(model.blocks) if b.mixer is not None)
    return replace(model, blocks=(replace(last, count=1),), name=f"{model.name} heads", extra_params=0, depth_scale=1.0,
                   depth_prune=0.0)  # fmt: skip
