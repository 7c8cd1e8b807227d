"""The constants of runs under load with their priors: few are fitted, and what a kernel takes is common to all engines.

Factors a card or a release, and factors of its own for every engine, were tried: in sample they took a tenth off the
error, on models, cards and releases left out whole they added to it (docs/decisions/0041, 0067).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.readers.engines import load_engine
from rooflm_fit.engine_rows import held

Array = NDArray[np.float64]
BUMP = 0.1
"""Step of the derivatives (log, or units)."""


Constants = dict[str, Any]
"""Fields of the engine."""


class Prior(NamedTuple):
    """A constant's expected value and how far it may be from it (log)."""

    value: float
    sigma: float

    def at(self, move: float) -> float:
        """The constant `move` away from its expected value.

        >>> Prior(2.0, 1.0).at(0.0)
        2.0
        """
        return self.value * float(np.exp(move))


HOST, DEVICE = 0.3, 0.1
"""Widths of the priors of what the host costs and of what kernels take."""
PRIORS = {
    "request": Prior(0.010, HOST), "front": Prior(1e-3, 0.0), "tokenise": Prior(3e-6, 0.0), "step": Prior(1e-3, 0.0),
    "sequence": Prior(1e-5, 0.0), "eager": Prior(60e-6, HOST), "collective_factor": Prior(0.85, 0.0),
    "gemm_factor": Prior(0.95, 0.0), "decode_factor": Prior(1.1, DEVICE), "moe_factor": Prior(1.05, 0.0),
    "stream_factor": Prior(0.9, 0.0), "prompt": Prior(1.15, DEVICE), "deliver": Prior(1e-5, HOST),
}  # fmt: skip
"""Constants of an engine; those that neither `OWN` nor `COMMON` names are not fitted. step, sequence: host time that
asynchronous scheduling hides where the device takes longer. tokenise: a server that took 5.9 requests of 50,000 tokens
a second queues 3.4 us of each at most; what a prompt token has beside that (`carry`) is none (docs/decisions/0271).
collectives and vector kernels: below 1, since engines fuse what was measured apart; prompt: real passes of many tokens
run hotter than kernels measured alone. eager: Python issues a pass that no graph holds, and a kernel of ours stands for
several launches of its. deliver: with more clients decoding takes longer than its kernels, as much more on two cards as
on four, whatever the lengths (MiniMax-M2 in vLLM, 128 to 512 clients: 14 us each); a server hands tokens out in Python
beside the engine, an offline benchmark does not."""
OWN = ("prompt",)
"""What is fitted to an engine by itself, where its row says that no kernel is launched before the one before has ended
(gap): SGLang's prompts take more beyond their kernels than the others', whose own would be 1.17 and 1.18. INFERRED:
nothing hides or fuses what stands between its products (decisions 143, 151). The gap itself is not fitted: with -0.5 us
SGLang's models left out whole have TPOT 10.5/9.5 %, with 0 8.3/6.9; the other engines get worse with 0."""
COMMON = ("request", "eager", "decode_factor", "deliver", "prompt")
"""What is fitted to all engines together, but to those that have their own. request and eager of each engine came out
within a third of each other and were worse on cards and releases left out: all three are Python servers that launch
from Python. SGLang's row states a request's time: runs under a campaign's load cannot tell it (2 and 9 ms do alike
there), others can (decision 211)."""


@lru_cache
def by_hand(engine: str) -> Constants:
    """What an engine's row states with its reason, which no fit moves.

    >>> by_hand("sglang"), by_hand("vllm")
    ({'request': 0.002}, {})
    """
    return {n: load_engine(engine).value(n) for n in PRIORS if n in held(engine)}


class Theta(NamedTuple):
    """What is fitted: of each engine ("" for all of them) a constant, and how far it is from its prior (log)."""

    names: tuple[tuple[str, str], ...]
    logs: Array

    @property
    def sigma(self) -> Array:
        """Widths of the priors."""
        return np.array([PRIORS[n].sigma for _, n in self.names])

    def bumped(self, index: int) -> Theta:
        """With one constant larger by the factor exp(BUMP)."""
        return self._replace(logs=self.logs + BUMP * (np.arange(len(self.logs)) == index))

    def constants(self, engine: str) -> Constants:
        """The constants of an engine: those that its row states stay."""
        found = {n: p.value for n, p in PRIORS.items()}
        for (whose, name), log in zip(self.names, self.logs.tolist(), strict=True):
            if whose in ("", engine):
                found[name] = PRIORS[name].at(log)
        return found | by_hand(engine)


def start(engines: Iterable[str]) -> Theta:
    """All that is fitted of these engines, at its priors."""
    own = [(e, n) for e in engines for n in OWN if load_engine(e).host.gap >= 0]
    names = (*(("", n) for n in COMMON), *own)  # the later counts
    return Theta(names, np.zeros(len(names)))
