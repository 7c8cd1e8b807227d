"""The constants of runs under load with their priors: of an engine, whatever its release and the card.

Factors a card or a release were tried: in sample they took a tenth off the error, on models, cards and releases left
out whole they added to it (docs/decisions/0041).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


HOST, DEVICE = 0.5, 0.03
"""Widths of the priors: what the host costs is the engine's own; what its kernels take over those measured alone is
common, and groups left out come out worst where each engine may move it far (trtllm 16.7 % of TPOT at 0.1, 12.2 at
0.02)."""
PRIORS = {
    "request": Prior(0.03, HOST), "front": Prior(0.001, HOST), "tokenise": Prior(4e-6, HOST), "step": Prior(1e-3, HOST), "sequence": Prior(1e-5, HOST),
    "eager": Prior(60e-6, HOST), "collective_factor": Prior(0.85, DEVICE), "gemm_factor": Prior(0.95, DEVICE),
    "decode_factor": Prior(1.1, DEVICE), "moe_factor": Prior(1.05, DEVICE), "stream_factor": Prior(0.9, DEVICE),
    "prompt": Prior(1.15, DEVICE),
}  # fmt: skip
"""Constants of an engine. step, sequence: host time that asynchronous scheduling hides where the device takes longer.
collectives and vector kernels: below 1, since engines fuse what was measured apart; prompt: real passes of many tokens
run hotter than kernels measured alone. eager: Python issues a pass that no graph holds, and a kernel of ours stands for
several launches of its."""
GAP = {"sglang": 0.0}
"""s between two kernels in a CUDA graph where it is not OVERLAP: 0 where none is launched before the one before has
ended (SGLang's models left out whole: TPOT 10.5/9.5 % with OVERLAP, 8.3/6.9 with 0; the other engines get worse)."""
OVERLAP = -0.5e-6
"""s between two kernels: below 0, since kernels measured alone carry launch time that a CUDA graph hides, and newer
ones start before the one before has ended (programmatic dependent launch)."""
LACKS = {"trtllm": ("eager",)}
"""Constants that an engine's runs do not ask for: Llama's prompts in TensorRT-LLM leave no room for eager launches."""


class Theta(NamedTuple):
    """What is fitted of an engine: names, and how far each is from its prior; gap: what is not."""

    names: tuple[str, ...]
    logs: Array
    gap: float = OVERLAP

    @property
    def sigma(self) -> Array:
        """Widths of the priors."""
        return np.array([PRIORS[n].sigma for n in self.names])

    def bumped(self, index: int) -> Theta:
        """With one constant larger by the factor exp(BUMP)."""
        return self._replace(logs=self.logs + BUMP * (np.arange(len(self.logs)) == index))

    @property
    def constants(self) -> Constants:
        """The constants themselves."""
        return {"gap": self.gap, **{n: PRIORS[n].at(v) for n, v in zip(self.names, self.logs.tolist(), strict=True)}}


def start(engine: str) -> Theta:
    """All constants of an engine at their priors."""
    names = tuple(name for name in PRIORS if name not in LACKS.get(engine, ()))
    return Theta(names, np.zeros(len(names)), GAP.get(engine, OVERLAP))
