"""Scenario: the one argument of everything above. Model, workload, split, cluster, engine, quantisation, efficiency."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import count, number, share, word
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.offload import Offload
from rooflm.scenario.speculation import Speculation, guessing_model
from rooflm.scenario.training import Training
from rooflm.shown.records import scenario_line
from rooflm.units import Num, ceil, larger


@dataclass(frozen=True)
class Workload:
    """What is asked: of inference batch, prompt, output, cached and logits; of training batch, seq and tokens."""

    batch: Num = count(1, "sequences in all, spread over dp; in training those of a step")
    prompt: Num = count(512, "prompt tokens a sequence")
    output: Num = count(128, "output tokens a sequence")
    cached: Num = count(0, "prompt tokens that are in the cache already, fewer than the prompt has", low=0)
    logits: str = word("last", "of the last prompt token or of all", ("last", "all"))
    seq: Num = count(2048, "tokens a sequence in training")
    tokens: Num = number(0, "tokens of the whole run (0: one step)")

    @property
    def new(self) -> Num:
        """Prompt tokens that are not in the cache; at least one (a cell of a grid where none is left is marked)."""
        return larger(self.prompt - self.cached, 1)


@dataclass(frozen=True)
class Efficiency:
    """How much of the datasheet is reached; the shares serve the mode "flat"."""

    mode: str = word("calibrated", "fitted kernels, the roofline, or shares of it", ("calibrated", "ideal", "flat"))
    compute: Num = share(1.0, "share of the peak FLOP/s", above=True)
    memory: Num = share(1.0, "share of the memory bandwidths", above=True)
    network: Num = share(1.0, "share of the links' bandwidth", above=True)


@dataclass(frozen=True)
class Scenario:
    """Everything that a prediction depends on. Any number inside may be an array.

    axes: number of axes (0: a point); every array has one dimension an axis, of length 1 where it does not vary."""

    model: Model
    workload: Workload
    mapping: Mapping
    cluster: Cluster
    engine: Engine
    quant: Quant
    efficiency: Efficiency = Efficiency()
    axes: int = 0
    speculation: Speculation = Speculation()  # noqa: RUF009
    offload: Offload = Offload()  # noqa: RUF009
    adapters: Adapters = Adapters()  # noqa: RUF009
    training: Training = Training()  # noqa: RUF009  frozen, so one for all is right

    __repr__ = scenario_line

    @property
    def asked(self) -> Num:
        """Tokens by which cost and energy are counted: output tokens, or prompt tokens of a model that embeds."""
        w = self.workload
        return w.batch * (w.output if self.model.head else w.prompt)

    @property
    def draft(self) -> Scenario:
        """Of one draft pass: what guesses, in its own scheme on the same devices. The host's fixed costs of a step are
        left out: the verifying pass pays them."""
        spec, m = self.speculation, self.mapping
        engine = self.engine.but(step=0.0, sequence=0.0, request=0.0, front=0.0, tokenise=0.0, carry=0.0)
        return replace(
            self, model=guessing_model(self.model, spec), engine=engine, speculation=Speculation(), adapters=Adapters(),
            quant=replace(spec.scheme or self.quant, kv_bits=self.quant.kv_bits),
            mapping=replace(m, pp=1, ep=m.ep if spec.draft is None else 1),
        )  # fmt: skip


def micro_batches(s: Scenario) -> Num:
    """Micro-batches of a training step on one data-parallel rank.

    A batch that does not divide leaves the last one partly empty."""
    return larger(ceil(s.workload.batch / (s.mapping.dp * s.mapping.micro_batch)), 1)


def arrays_in(node: Any) -> Iterator[NDArray[Any]]:
    """Every array anywhere in frozen dataclasses, named tuples, dicts and tuples."""
    if isinstance(node, np.ndarray):
        yield node
    elif is_dataclass(node) and not isinstance(node, type):
        yield from arrays_in(tuple(vars(node).values()))
    elif isinstance(node, tuple | dict):
        for value in node.values() if isinstance(node, dict) else node:
            if not isinstance(value, float | int | str):
                yield from arrays_in(value)
