"""Elasticities: the change in per cent of an output for one per cent more of a rate or overhead of the machine.

All knobs are evaluated together along one extra array dimension. A time's elasticities to all rates minus those to all
overheads sum to -1, up to the fixed parts of fitted kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked import paths
from rooflm.asked.answers.outputs import check_outputs, chosen
from rooflm.asked.answers.result import Result
from rooflm.catalogue.engine import Host
from rooflm.catalogue.fields import abouts
from rooflm.errors import RooflmError
from rooflm.scenario.scenario import Scenario
from rooflm.shown.answer import flatten

STEP = 0.01
"""Relative change of a knob: one per cent more."""
REQUEST = ("ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "max_batch", "energy_j_per_token")
"""Outputs of inference that are looked at unless others are named."""
TRAINING_STEP = ("step_time_s", "tokens_per_s_per_gpu", "mfu")
"""Those of training."""
OVERHEADS = tuple(name for name, about in abouts(Host).items() if about.unit == "s")
"""What the host costs, in time: every such field of an engine."""


class Knob(NamedTuple):
    """A quantity of the machine to vary: its name, the paths that change together, and whether it is a rate (else a
    time)."""

    label: str
    paths: tuple[str, ...]
    rate: bool = True


def knobs(s: Scenario) -> list[Knob]:
    """Every rate and overhead of a scenario's device, network and engine."""
    device = s.cluster.device
    found = [
        Knob("compute", tuple(f"cluster.device.peak.{k}" for k in device.peak)),
        Knob("memory bandwidth", ("cluster.device.dram.bandwidth",)),
        Knob("L2 bandwidth", ("cluster.device.l2.bandwidth",)),
        Knob("L1 bandwidth", ("cluster.device.l1.bandwidth",)),
        Knob("memory size", ("cluster.device.dram.size",)),
    ]
    for i, tier in enumerate(s.cluster.tiers):
        found.append(Knob(f"{tier.name} bandwidth", (f"cluster.tiers.{i}.bandwidth",)))
        found.append(Knob(f"{tier.name} latency", (f"cluster.tiers.{i}.latency",), False))
    names = {name: f"host: {name.replace('_', ' ')}" for name in OVERHEADS}
    if np.all(np.asarray(s.engine.host.gap) < 0):
        names["gap"] = "host: overlap of launches"
    found += [Knob(label, (f"engine.{name}",), False) for name, label in names.items()]
    values = [[np.asarray(paths.get(s, p)) for p in k.paths] for k in found]  # one per cent more must be something else
    return [k for k, own in zip(found, values, strict=True) if all(np.all(np.isfinite(v) & (v != 0)) for v in own)]


def nudged(s: Scenario, listed: list[Knob]) -> Scenario:
    """The scenario with an extra array dimension: unchanged first, then one knob after the other raised by one per
    cent."""
    for i, knob in enumerate(listed):
        for path in knob.paths:
            factors = np.ones(len(listed) + 1)
            factors[i + 1] += STEP
            s = paths.put(s, path, float(np.asarray(paths.get(s, path))) * factors)
    return replace(s, axes=1)


def elasticities(
    s: Scenario, read: Callable[[Scenario], Mapping[str, Any]]
) -> tuple[list[Knob], dict[str, dict[str, float]]]:
    """Output -> knob -> per cent more of the output a per cent more of the knob. read: a scenario's outputs by name. An
    output that is 0 or no number (the largest batch, where nothing fits) has none."""
    listed = knobs(s)
    table: dict[str, dict[str, float]] = {}
    for name, value in read(nudged(s, listed)).items():
        data = np.broadcast_to(np.asarray(value, dtype=float), (len(listed) + 1,))
        if not (np.isfinite(data[0]) and data[0]):
            continue
        moved = (data[1:] / data[0] - 1) / STEP
        table[name] = {k.label: float(m) for k, m in zip(listed, moved, strict=True)}
    return listed, table


def sensitivity(estimate: Result, outputs: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Elasticities of a prediction of inference or training: output -> knob -> per cent more of the output a per cent
    more of the knob (a rate of the device, or an overhead).

    estimate: of one scenario; outputs: keys of its outputs (default: its times, rates and what people pay).
    Raises RooflmError for an estimate over lists.

    >>> import rooflm
    >>> found = sensitivity(rooflm.infer("llama-7b", gpu="a100-sxm-80gb", efficiency="ideal"))
    >>> tpot, ttft = found["tpot_s"], found["ttft_s"]
    >>> round(tpot["memory bandwidth"], 2), round(ttft["compute"], 2)
    (-0.99, -0.94)
    """
    if estimate.scenario.axes:
        raise RooflmError("sensitivities are of one prediction: leave out the lists")
    predict: Callable[[Scenario], Result]
    if "step_time_s" in estimate.OUTPUTS:
        from rooflm.asked.answers.training import train

        predict = train
    else:
        from rooflm.asked.answers.inference import infer

        predict = infer
    usual = [name for name in (*TRAINING_STEP, *REQUEST) if name in estimate.OUTPUTS]
    names = check_outputs(usual if outputs is None else outputs, estimate.OUTPUTS)
    keys = {n.split(".")[0] for n in names}
    return elasticities(estimate.scenario, lambda wide: chosen(flatten(predict(wide).values(keys)), names))[1]


def signed(value: float) -> str:
    """A change with its sign; none where it rounds to nothing.

    >>> signed(-0.501), signed(-0.004)
    ('-0.50', '0.00')
    """
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def lines(table: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """The table for people: a row a knob that moves anything, a column an output, per cent a per cent."""
    names = list(table)
    labels = next(iter(table.values()), {})
    rows = [(label, *(signed(table[n][label]) for n in names)) for label in labels]
    kept = [r for r, label in zip(rows, labels, strict=True) if any(abs(table[n][label]) >= 0.005 for n in names)]
    heads = [n.replace("_per_", "/").removesuffix("_s").replace("_j/", "/").replace("_", " ") for n in names]
    return [("1 % more of", *heads), *kept]
