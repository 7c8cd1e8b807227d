"""Measured cases beside their predictions: scenarios of cases, evaluated together, and the errors.

Numbers of a case (batch, lengths, degrees) make one array a group of cases of equal structure (shape of the model, data
types, attention, compiled or not), so that a table of a thousand cases is a handful of evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.assumed import engines_instead, with_graphs, with_norms
from rooflm.asked.machine import find_cluster
from rooflm.asked.quantities import parse_efficiency
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Cluster
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import running
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.request import speed, timed_passes
from rooflm.estimate.training import train_scenario
from rooflm.measure.case import Case
from rooflm.measure.results import Row
from rooflm.measure.shape import parse
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Efficiency, Scenario, Workload
from rooflm.scenario.training import Training
from rooflm.units import Num

Array = NDArray[np.float64]
Key = tuple[str, str]
TIMES = ("ttft_s", "tpot_s", "latency_s")
PHASES = ("forward_s", "backward_s", "optimizer_s")
"""Phases of a training step."""
COMM = ("prefill_comm_bytes", "decode_comm_bytes")
METRICS = (*TIMES, "output_tokens_per_s", "memory_bytes", *COMM, "step_time_s")
"""What is compared, by name in a results file."""


class Pair(NamedTuple):
    """A metric of a case: measured and predicted value, SI units."""

    case: Case
    metric: str
    measured: float
    predicted: float


class Machine(NamedTuple):
    """What cases are predicted on."""

    cluster: Cluster
    engine: Engine
    efficiency: Efficiency = Efficiency()


def machine_of(gpu: str, engine: str | None = None, efficiency: str | None = None) -> Machine:
    """A catalogue device or a calibrated machine's file, with its own engine or the one named (default: the last
    of those assumed where no other runs, plain PyTorch)."""
    from rooflm.readers.rows import own_row

    cluster, _ = find_cluster(gpu, None)
    name = engine or own_row("engine", gpu) or engines_instead("inference")[-1]
    mode = parse_efficiency(efficiency) if efficiency else Efficiency()
    return Machine(cluster, load_engine(name, cluster.device.name, cluster.device.kernel_generation), mode)


def model_of(case: Case, shape: str) -> Model:
    """The model of a measured case: from the shape in the table, else by name."""
    return parse(shape).model(case.model or "measured") if shape else load_model(case.model)


def style_of(case: Case, engine: Engine) -> Engine:
    """The engine as the case ran it: fused kernels where it was compiled, the attention that it used."""
    flash = case.attention == "sdpa"
    own = engine.but(flash=flash, decode_flash=flash) if not engine.kernels.fixed_attention else engine
    return own.but(fused=True) if case.compiled else own


def scenario(cases: Sequence[Case], shape: str, machine: Machine) -> Scenario:
    """One scenario of cases of equal structure, their numbers along the last axis, constants of a column of machines
    along one before it."""
    first = cases[0]

    def column(name: str) -> Array:
        return np.array([float(getattr(c, name)) for c in cases])

    engine = style_of(first, machine.engine)
    mapping = Mapping(tp=column("tp"), pp=column("pp"), dp=column("dp"))
    work = Workload(batch=column("batch"), prompt=column("prompt"), output=column("output"))
    model, quant = model_of(first, shape), parse_quant(first.scheme)
    engine = with_graphs(engine, machine.cluster.device, mapping.tp, model.family)
    engine = with_norms(engine, model, machine.cluster, mapping)
    axes = max(1, np.ndim(machine.cluster.device.dram.bandwidth))
    return Scenario(model, work, mapping, machine.cluster, engine, quant, machine.efficiency, axes=axes)


def structure(case: Case, shape: str) -> tuple[Any, ...]:
    """The properties that cases must share to be evaluated together."""
    return (shape or case.model, case.layers, case.scheme, case.dtype, case.attention, case.compiled, case.task)


def groups(known: dict[Case, str]) -> list[tuple[str, list[Case]]]:
    """Cases by structure, with the shape of their model."""
    found: dict[tuple[Any, ...], list[Case]] = {}
    for case, shape in known.items():
        found.setdefault(structure(case, shape), []).append(case)
    return [(known[cases[0]], cases) for cases in found.values()]


def times(known: dict[Case, str], machine: Machine) -> dict[Key, Array]:
    """Predicted ttft_s, tpot_s and latency_s of inference cases, by (key of the case, metric): of each of a column of
    machines where the constants are columns."""
    out: dict[Key, Array] = {}
    for shape, cases in groups(known):
        s = scenario(cases, shape, machine)
        run = running(s)
        found = speed(s, timed_passes(s, run), run)
        wide = np.broadcast_arrays(found.ttft, found.tpot, found.latency, np.zeros(len(cases)))
        for metric, values in zip(("ttft_s", "tpot_s", "latency_s"), wide[:-1], strict=True):
            out |= {(c.key, metric): values[..., i] for i, c in enumerate(cases)}
    return out


def fast_times(known: dict[Case, str], machine: Machine) -> dict[Key, float]:
    """`times` on one machine."""
    return {key: float(value) for key, value in times(known, machine).items()}


def predictions(known: dict[Case, str], machine: Machine) -> dict[Key, float]:
    """Every metric of METRICS that the cases have, by (key of the case, metric)."""
    out: dict[Key, float] = {}
    inference = {c: s for c, s in known.items() if c.task == "infer"}
    for shape, cases in groups(inference):
        e = infer_scenario(scenario(cases, shape, machine))
        # a stage sends what its layers reduce; the rank that sends most stands for all, as in the measured table
        values = {"ttft_s": e.ttft, "tpot_s": e.tpot, "latency_s": e.latency, "memory_bytes": e.memory.total,
                  "output_tokens_per_s": e.output_tokens_per_s, "prefill_comm_bytes": e.comm_bytes["prefill"],
                  "decode_comm_bytes": e.comm_bytes["decode"]}  # fmt: skip
        for metric, value in values.items():
            wide = np.broadcast_to(value, (len(cases),))
            out |= {(c.key, metric): float(v) for c, v in zip(cases, wide, strict=True)}
    for case, shape in known.items():
        if case.task == "train":
            out |= {(case.key, k): float(v) for k, v in training(case, shape, machine).items()}
    return out


def training(case: Case, shape: str, machine: Machine) -> dict[str, Num]:
    """Predicted times of a training step and of its phases, its memory, and the bytes that a rank sends (mean)."""
    mapping = Mapping(tp=case.tp, pp=case.pp, dp=case.dp, micro_batch=case.batch // case.dp)
    work = Workload(batch=case.batch, seq=case.prompt)
    engine = machine.engine.but(zero=0, sequence_parallel=False, grad_bytes={"fp32": 4}.get(case.dtype, 2),
                     grad_overlap=False, phase="training")  # fmt: skip
    options = Training(master=False, clip=False)
    s = Scenario(model_of(case, shape), work, mapping, machine.cluster, engine, parse_quant(case.scheme),
                 machine.efficiency, axes=np.ndim(machine.cluster.device.dram.bandwidth), training=options)  # fmt: skip
    e = train_scenario(s)
    parts = {"forward_s": sum(e.detail["forward"].values()), "optimizer_s": e.parts["optimizer"]}
    parts["backward_s"] = e.step_time - sum(parts.values())
    sent = sum(e.comm_bytes.values())
    return {"step_time_s": e.step_time, "memory_bytes": e.memory.total, "step_comm_bytes": sent, **parts}


def undisturbed(rows: Sequence[Row]) -> dict[Key, float]:
    """Times of cases on CPUs as they would be without other work on the machine, from the CPU time of their ranks.

    A rank that computes takes as long as its CPU time (over its threads). Ranks of a tensor or data group work
    together: the longest counts; stages work one after the other: they add up (but for the update, which all do at
    once). Waking up and waiting on the link is left out.
    """
    ranks: dict[tuple[Case, str], list[float]] = {}
    for r in rows:
        if r.status == "ok" and r.metric.endswith("_cpu_s"):
            ranks.setdefault((r.case, r.metric.replace("_cpu", "")), []).append(r.stat.value / r.case.threads)
    together = ("optimizer_s",)
    out = {(c.key, m): sum(v) if c.pp > 1 and m not in together else max(v) for (c, m), v in ranks.items()}
    for case in {c for c, _ in ranks}:
        if case.task == "train":
            out[case.key, "step_time_s"] = sum(out[case.key, m] for m in PHASES)
            continue
        steps = (case.output - 1) * out.get((case.key, "tpot_s"), 0.0)
        out[case.key, "latency_s"] = out[case.key, "ttft_s"] + steps
        out[case.key, "output_tokens_per_s"] = case.batch * case.output / out[case.key, "latency_s"]
    return out


def measured(rows: Sequence[Row], clock: str = "wall") -> tuple[dict[Case, str], dict[Key, float]]:
    """(cases with the shapes of their models, value by (key, metric)): medians, of the rank with the most.

    clock: "wall", or "cpu" for the `undisturbed` times where other work ran on the machine.
    """
    known: dict[Case, str] = {}
    values: dict[Key, float] = {}
    for r in rows:
        if r.status == "ok" and r.case.task in ("infer", "train"):
            known[r.case] = r.shape
            key = (r.case.key, r.metric)
            values[key] = max(values.get(key, -np.inf), r.stat.value)
    return known, ({**values, **undisturbed(rows)} if clock == "cpu" else values)


def pairs(rows: Sequence[Row], machine: Machine, clock: str = "wall") -> list[Pair]:
    """Every measured metric that has a prediction. Raises RooflmError when there is none."""
    known, values = measured(rows, clock)
    foretold = predictions(known, machine)
    by_key = {c.key: c for c in known}
    wanted = (*METRICS, "step_comm_bytes")
    found = [
        Pair(by_key[k], m, v, foretold[k, m]) for (k, m), v in values.items() if m in wanted and (k, m) in foretold
    ]
    if not found:
        raise RooflmError("the results hold no case that can be predicted: measure task infer or train")
    return [p for p in found if p.measured > 0 or p.predicted > 0]
