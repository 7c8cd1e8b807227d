"""What bounds the passes of a request and a training step: seconds by cause, and the cause with the largest share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rooflm.estimate.inference import InferenceFigures
from rooflm.estimate.step import Step
from rooflm.graph.ops import Op
from rooflm.kernels.roofline import BOUNDS, Timed
from rooflm.units import Num, pick

if TYPE_CHECKING:
    from rooflm.estimate.training import TrainingFigures

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


def request_causes(e: InferenceFigures) -> dict[str, dict[str, Num]]:
    """Seconds of all prefill passes and of a decode step by what bounds them."""
    mean = e.running.contexts.mean
    decode = {k: mean(v) for k, v in of_pass(e.speed.decode).items()}
    return {"prefill": e.prompts_by_name(of_pass), "decode": decode}


def of_request(e: InferenceFigures) -> dict[str, Num]:
    """What bounds the prefill and the decode step: the label with the largest share of the time."""
    shares = request_causes(e)
    shares = shares if e.scenario.model.head else {"prefill": shares["prefill"]}
    if not e.scenario.offload.off:
        host = {"prefill": e.speed.before, "decode": e.speed.extra}
        shares = {k: {**v, "host layers": host[k]["host layers"]} for k, v in shares.items()}
    return {k: largest(v) for k, v in shares.items()}


def of_pass(pass_: Step) -> dict[str, Num]:
    """Seconds of a pass by what bounds them: compute, each memory level, overhead, network, host."""
    shares = {name: value * pass_.packed for name, value in by_bound(pass_.timed).items()}
    shares["overhead"] = shares["overhead"] + pass_.parts["gaps"]
    return {**shares, "host": pass_.parts["host"]}


def by_bound(timed: Sequence[Timed]) -> dict[str, Num]:
    """Seconds of nodes by what bounds them; communication is the network's, hidden or not."""
    out: dict[str, Num] = dict.fromkeys(BOUNDS, 0.0)
    for t in timed:
        bound, total = t.bound, t.total
        for index in range(np.min(bound), np.max(bound) + 1):
            out[BOUNDS[index]] = out[BOUNDS[index]] + pick(bound == index, total, 0.0)
    return out


def largest(shares: Mapping[str, Num]) -> Num:
    """The name of the largest share, at each point."""
    return np.array([*shares])[np.argmax(np.stack(np.broadcast_arrays(*shares.values())), axis=0)]
