"""Speculative decoding: what guesses tokens, how many, and how many of them a step keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflm.catalogue.fields import count, number, share
from rooflm.catalogue.model import Model
from rooflm.units import Num, is_plain, pick


@dataclass(frozen=True)
class Speculation:
    """A chain of guesses (or a tree with `branches` of them at each place) that a step of the model verifies at once.

    draft: the model that guesses; None: layers of the model's own behind its last (multi-token prediction, EAGLE).
    """

    guesses: Num = count(0, "tokens guessed one after the other a step (0: none)", low=0)
    acceptance: Num = share(0.7, "chance that a guess is right where all before it were")
    branches: Num = count(1, "guesses beside each other at each place (1: a chain, else a tree)")
    accepted: Num = number(0, "tokens that a step gains on average, measured (0: worked out of acceptance)")
    draft: Model | None = None

    @property
    def off(self) -> bool:
        """True where nothing is guessed (a list of numbers of guesses counts as guessing)."""
        return is_plain(self.guesses, 0)

    @property
    def verified(self) -> Num:
        """Tokens of a sequence that a step works on.

        >>> Speculation(3).verified, Speculation(3, branches=2).verified
        (4, 7)
        """
        return 1 + self.guesses * self.branches

    @property
    def gained(self) -> Num:
        """Tokens that a sequence gains in a step: (1 - p^(n + 1)) / (1 - p) with p = 1 - (1 - a)^k, the chance that one
        of k guesses at a place is right; at most n + 1. As measured, where `accepted` is given.

        Source: Leviathan et al., "Fast inference from transformers via speculative decoding" (arXiv 2211.17192),
        equation 1; branches: Miao et al., SpecInfer (arXiv 2305.09781), taken as independent.

        >>> round(float(Speculation(3, 0.8).gained), 3), float(Speculation(3, accepted=2.5).gained)
        (2.952, 2.5)
        """
        right = 1.0 - (1.0 - np.asarray(self.acceptance, dtype=float)) ** self.branches
        places = np.asarray(self.guesses, dtype=float) + 1.0
        sure = right >= 1.0 - 1e-12
        chain = pick(sure, places, (1.0 - right**places) / pick(sure, 1.0, 1.0 - right))
        given = np.asarray(self.accepted, dtype=float)
        return pick(given > 0, np.clip(given, 1.0, places), chain)


def guessing_model(model: Model, spec: Speculation) -> Model:
    """What guesses: the draft model, or one layer of the model's own kind before its head.

    >>> from rooflm.checkpoints.load import load_model
    >>> guessing_model(load_model("deepseek-v3"), Speculation(1)).layers
    1
    """
    if spec.draft is not None:
        return spec.draft
    last = next(b for b in reversed(model.blocks) if b.mixer is not None)
    return replace(model, blocks=(replace(last, count=1),), name=f"{model.name} heads", extra_params=0, depth_scale=1.0,
                   depth_prune=0.0)  # fmt: skip
