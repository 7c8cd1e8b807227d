"""Scenario: the one argument of everything above. Model, workload, split, cluster, engine, quantisation, efficiency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.errors import RooflmError
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training
from rooflm.units import Num, larger


@dataclass(frozen=True)
class Workload:
    """What is asked. Inference: `batch` sequences in all (spread over dp), `prompt` tokens each of which `cached` are
    in the cache already, `output` tokens each; logits: "last" (of the last prompt token) or "all".

    Training: `batch` sequences a step in all, `seq` tokens each, `tokens` in the whole run.
    """

    batch: Num = 1
    prompt: Num = 512
    output: Num = 128
    cached: Num = 0
    logits: str = "last"
    seq: Num = 2048
    tokens: Num = 0

    @property
    def new(self) -> Num:
        """Prompt tokens that are not in the cache; at least one (a cell of a grid where none is left is marked)."""
        return larger(self.prompt - self.cached, 1)


@dataclass(frozen=True)
class Efficiency:
    """How much of the datasheet is reached. mode: "ideal", "flat" or "calibrated"; the factors serve "flat".

    compute, memory, network: shares of the peak rates in (0, 1].
    """

    mode: str = "calibrated"
    compute: Num = 1.0
    memory: Num = 1.0
    network: Num = 1.0


def parse_efficiency(text: str) -> Efficiency:
    """ "ideal", "calibrated", or flat factors "F,M" or "F,M,N" (compute, memory, network).

    Raises RooflmError for anything else, and for factors outside (0, 1].

    >>> parse_efficiency("0.7,0.9").memory
    0.9
    """
    low = text.strip().lower()
    if low in ("ideal", "calibrated"):
        return Efficiency(low)
    pieces = low.split(",")
    try:
        factors = [float(p) for p in pieces]
    except ValueError:
        factors = []
    if len(factors) not in (1, 2, 3):
        raise RooflmError(f"efficiency is {text!r}, but it must be 'ideal', 'calibrated' or factors such as '0.7,0.9'")
    for factor in factors:
        if not 0 < factor <= 1:
            raise RooflmError(f"efficiency is {text!r}, but each factor must be above 0 and at most 1")
    compute = factors[0]
    memory = factors[1] if len(factors) > 1 else compute
    return Efficiency("flat", compute, memory, factors[2] if len(factors) > 2 else 1.0)


@dataclass(frozen=True)
class Scenario:
    """Everything that a prediction depends on. Any number inside may be an array.

    axes: number of axes; every array has one dimension an axis (length 1 where it does not vary), 0 for a single point.
    """

    model: Model
    workload: Workload
    mapping: Mapping
    cluster: Cluster
    engine: Engine
    quant: Quant
    efficiency: Efficiency = Efficiency()
    axes: int = 0
    training: Training = Training()  # noqa: RUF009  frozen, so one for all is right


def micro_batches(s: Scenario) -> Num:
    """Micro-batches of a training step on one data-parallel rank.

    A batch that does not divide leaves the last one partly empty.
    """
    return np.maximum(np.ceil(s.workload.batch / (s.mapping.dp * s.mapping.micro_batch)), 1)
