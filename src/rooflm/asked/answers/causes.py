"""What bounds a training step: its seconds by cause, and the cause with the largest share."""

from __future__ import annotations

import numpy as np

from rooflm.estimate.training import TrainingFigures
from rooflm.estimate.training_step import PHASES, of_phase
from rooflm.graph.ops import Op
from rooflm.kernels.roofline import BOUNDS, by_bound, largest
from rooflm.units import Num

CAUSES = ("compute", "dram", "l2", "l1", "network", "schedule", "other")
"""What takes the time: rates of the device, communication that shows, idle and uneven pipeline stages, the rest."""


def training_causes(e: TrainingFigures) -> dict[str, Num]:
    """Seconds of a step by cause; they sum to the step."""
    causes: dict[str, Num] = dict.fromkeys(CAUSES, np.zeros(()))
    times = e.micro_batches / e.scenario.mapping.pp
    for group, often in (*((group, times) for group in e.passes), (e.timed["step", "update"], 1.0)):
        seconds = by_bound([t for t in group if isinstance(t.node, Op)])
        for name in BOUNDS[:4]:
            causes[name] = causes[name] + often * seconds[name]
        causes["other"] = causes["other"] + often * seconds["overhead"]
    p = e.parts
    causes["network"] = sum(v for k, v in p.items() if k.endswith("_comm"))
    causes["schedule"] = p["bubble"] + p["imbalance"]
    causes["other"] = causes["other"] + p["host"] + p["overlap_tax"] + p["offload"]
    return causes


def bounds(e: TrainingFigures) -> dict[str, Num]:
    """What bounds the forward pass, the backward pass with what it runs again, and the step."""
    forward, backward, again = (of_phase(e.timed, phase) for phase in PHASES)
    timed = {"forward": forward, "backward": [*backward, *again]}
    causes = training_causes(e)
    causes |= {"other": causes["other"] - e.parts["host"], "host": e.parts["host"]}
    return {k: largest(by_bound(v)) for k, v in timed.items()} | {"step": largest(causes)}
