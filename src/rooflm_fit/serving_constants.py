"""The constants of runs under load with their priors: an engine's, and factors a card and a release."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm_fit.runs import Case

Array = NDArray[np.float64]
BUMP = 0.1
"""Step of the derivatives (log, or units)."""


Constants = dict[str, Any]
"""Fields of the engine."""


def bumped(constants: Constants, name: str, more: float | None) -> Constants:
    """With one of them larger by `more`, or by the factor exp(BUMP)."""
    value = constants[name] * float(np.exp(BUMP)) if more is None else constants[name] + more
    return {**constants, name: value}


class Prior(NamedTuple):
    """A constant's expected value and how far it may be from it: in log, or in steps of `unit` where that is above 0
    (constants that may be negative)."""

    value: float
    sigma: float
    unit: float = 0.0

    def at(self, move: float) -> float:
        """The constant `move` away from its expected value.

        >>> Prior(2.0, 1.0).at(0.0), Prior(-1.0, 2.0, 0.5).at(4.0)
        (2.0, 1.0)
        """
        return self.value + self.unit * move if self.unit else self.value * float(np.exp(move))


PRIORS = {
    "request": Prior(0.03, 0.6), "front": Prior(0.001, 0.5), "step": Prior(1e-3, 0.7), "sequence": Prior(1e-5, 0.7),
    "gap": Prior(-0.8e-6, 0.6, 0.5e-6), "collective_factor": Prior(0.8, 0.2), "gemm_factor": Prior(0.9, 0.1),
    "decode_factor": Prior(1.15, 0.12), "moe_factor": Prior(0.9, 0.1), "stream_factor": Prior(0.9, 0.12),
    "prompt": Prior(1.1, 0.05), "eager": Prior(60e-6, 0.4),
}  # fmt: skip
"""Constants of an engine, around what the three engines have in common. gap is below 0: kernels measured alone carry
launch time that a CUDA graph hides. prompt: real passes of many tokens run hotter than kernels measured alone. eager:
Python issues a pass that no graph holds, and a kernel of ours stands for several launches of its."""
OWN = {"trtllm": {"step": Prior(4e-3, 0.7), "sequence": Prior(8e-5, 0.7), "prompt": Prior(1.3, 0.12)}}
"""Where an engine differs from that: TensorRT-LLM's executor and sampler in Python spend host time a sequence, and what
launches of its prompts cost is a share of them."""
LACKS = {"trtllm": ("eager",)}
"""Constants that an engine's runs do not ask for: Llama's prompts in TensorRT-LLM leave no room for eager launches."""
CARD = {"speed": Prior(1.0, 0.018), "prompt": Prior(1.0, 0.035), "sequence": Prior(1.0, 0.075)}
"""Constants of a card, beside the engine's. Widths here and of a release: by cross-validation over groups."""
RELEASE = {
    "request": Prior(1.0, 0.4), "prompt": Prior(1.0, 0.1), "eager": Prior(1.0, 0.3), "speed": Prior(1.0, 0.022),
    "step": Prior(1.0, 0.2), "sequence": Prior(1.0, 0.25),
}  # fmt: skip
"""Constants of a release, beside the engine's."""


def prior_of(name: str, engine: str = "") -> Prior:
    """The prior of an engine's constant, of `kind:card` or of `kind@release`."""
    for mark, priors in (("@", RELEASE), (":", CARD)):
        kind, found, _ = name.partition(mark)
        if found:
            return priors[kind]
    return OWN.get(engine, {}).get(name, PRIORS[name])


def applies(name: str, case: Case) -> bool:
    """True when a constant has a part in a case."""
    own = {":": case.kwargs["gpu"], "@": case.release}
    return all(name.partition(mark)[2] in ("", value) for mark, value in own.items())


class Theta(NamedTuple):
    """What is fitted of an engine: names (its own constants, kind:card, kind@release), and how far each is from its
    prior."""

    names: tuple[str, ...]
    logs: Array
    engine: str = ""

    def of(self, case: Case) -> Constants:
        """The constants of a case."""
        return self.constants(case.kwargs["gpu"], case.release)

    def constants(self, gpu: str, version: str = "") -> Constants:
        """The constants of a card and a release."""
        moves = dict(zip(self.names, self.logs.tolist(), strict=True))
        own = {n: prior_of(n, self.engine).at(v) for n, v in moves.items() if n in PRIORS}
        value = {n: float(np.exp(v)) for n, v in moves.items() if n not in PRIORS}
        engine = {"speed": 1.0} | own
        for name in engine:
            for part in (f"{name}:{gpu}", f"{name}@{version}"):
                engine[name] *= value.get(part, 1.0)
        return engine
