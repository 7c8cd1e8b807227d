"""Tasks of an exploration: what runs, its legal splits, and what it takes on a cluster, in seconds by cause and joules.

Explored devices have no fitted constants, so efficiencies are ideal or flat factors, without engine overheads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.causes import CAUSES, request_causes, training_causes
from rooflm.asked.build_inference import Built, build_inference
from rooflm.asked.build_training import build_training
from rooflm.asked.ways import tensor_ways
from rooflm.catalogue.hardware import Cluster, Link
from rooflm.errors import RooflmError
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.training import train_scenario
from rooflm.graph.ops import Comm, Op
from rooflm.kernels.collectives import part_of, ranks_in_tiers, volume
from rooflm.kernels.roofline import BOUNDS
from rooflm.readers.rows import row_files, rows_of
from rooflm.scenario.rules import divisors
from rooflm.scenario.scenario import Scenario
from rooflm.technology.load import die_device
from rooflm.units import Num, pick

METRICS = {"train": ("step_time",), "infer": ("latency", "ttft", "tpot")}
DIES = tuple(row.name for path in row_files("die") for row in rows_of(path))
"""Dies that a study may start from (`technology_rows.load_technology` takes a user's .toml as well)."""


@dataclass(frozen=True)
class Task:
    """What runs. scenario: everything but the cluster; mappings: the splits to choose from, fields as equal-length
    arrays; metric: the seconds that count; tokens: that one such time makes."""

    phase: str
    scenario: Scenario
    mappings: dict[str, NDArray[Any]]
    metric: str
    tokens: Num

    @property
    def choices(self) -> int:
        """How many mappings there are."""
        return len(next(iter(self.mappings.values())))


class Outcome(NamedTuple):
    """What a task takes on hardware: seconds (infinite where it does not fit), seconds by cause, joules of the devices,
    bytes; sent: bytes that a device sends inside its node and beyond (0 unless `run` is asked for them)."""

    time: Num
    fits: Num
    causes: dict[str, Num]
    energy: Num
    memory: Num
    sent: tuple[Num, Num] = (0.0, 0.0)


def legal_splits(
    heads: int, layers: int, gpus: int, batch: int, micro: Sequence[int] = (1,), tp_most: int = 64
) -> dict[str, NDArray[Any]]:
    """All splits of `gpus` into tp (dividing the heads), pp (dividing the layers), dp and a micro-batch that divide the
    batch.

    >>> s = legal_splits(96, 96, 4, 8); sorted(zip(s["tp"].tolist(), s["pp"].tolist(), s["dp"].tolist()))[:3]
    [(1.0, 1.0, 4.0), (1.0, 2.0, 2.0), (1.0, 4.0, 1.0)]
    """
    found = [
        (tp, pp, gpus // (tp * pp), mb)
        for tp in divisors(heads, min(gpus, tp_most))
        for pp in divisors(layers, gpus // tp)
        for mb in micro
        if gpus % (tp * pp) == 0 and batch % (gpus // (tp * pp) * mb) == 0
    ]
    if not found:
        shape = f"{heads} heads, {layers} layers and batch {batch}"
        raise RooflmError(f"gpus is {gpus}, but no split of it into tp, pp and dp divides {shape}")
    columns = np.array(found, dtype=float).T
    return dict(zip(("tp", "pp", "dp", "micro_batch"), columns, strict=True))


def make_task(
    phase: str, model: Any, *, metric: str | None = None, search: bool = True, micro: Sequence[int] = (1, 2, 4),
    tp_most: int = 64, **arguments: Any,
) -> Task:  # fmt: skip
    """A task from what `infer` or `train` take (a die's name may stand for gpu; the cluster is replaced anyway).

    search: choose tp, pp, dp (and in training the micro-batch) at each hardware point among all legal splits of `gpus`;
    otherwise the split given holds. efficiency: "ideal" (default) or flat factors "F,M,N". Raises RooflmError.
    """
    if phase not in METRICS:
        raise RooflmError(f"phase is {phase!r}, but it must be train or infer")
    given = {"efficiency": "ideal", "engine": "ideal", "gpu": "a100-sxm-80gb", **arguments}
    if given["efficiency"] == "calibrated":
        raise RooflmError(
            "efficiency is 'calibrated', but explored hardware has no fitted constants: "
            "use ideal or factors such as 0.7,0.85,0.8"
        )
    if given["gpu"] in DIES:
        given["gpu"] = die_device(given["gpu"])
    build_request: Callable[..., Built] = build_training if phase == "train" else build_inference
    gpus = int(given.pop("gpus", 1) or 1)
    free = search and not any(given.get(k) for k in ("tp", "pp", "dp", "cp", "ep"))
    if free and phase == "train" and given.get("sp") is None:
        given["sp"] = True  # as `train` has it of its own for every tp above 1; alone, it changes nothing
    scenario = build_request(model=model, **given, **({} if free else {"gpus": gpus})).scenario
    chosen = metric or METRICS[phase][0]
    if chosen not in METRICS[phase]:
        raise RooflmError(f"metric is {chosen!r}, but for {phase} it must be one of {', '.join(METRICS[phase])}")
    w, m, scaled = scenario.workload, scenario.mapping, scenario.model.scaled
    if free:
        heads = tensor_ways(scaled) or gpus
        micro = micro if phase == "train" else (1,)
        mappings = legal_splits(heads, int(scaled.layers), gpus, int(w.batch), micro, tp_most)
    else:
        mappings = {k: np.array([float(getattr(m, k))]) for k in ("tp", "pp", "dp", "micro_batch")}
    tokens = w.batch * w.seq if phase == "train" else w.batch * (w.output if chosen == "latency" else 1)
    return Task(phase, scenario, mappings, chosen, tokens)


def run(task: Task, cluster: Cluster, chosen: Dict[str, Num], axes: int, traffic: bool = False) -> Outcome:
    """The task on a cluster with a mapping; numbers may be arrays of `axes` dimensions. traffic: fill `sent` too."""
    degrees: dict[str, Any] = dict(chosen)
    mapping = replace(task.scenario.mapping, **degrees)
    s = replace(task.scenario, cluster=cluster, mapping=mapping, axes=axes)
    if task.phase == "train":
        train = train_scenario(s)
        nodes = [t.node for group in train.timed.values() for t in group]
        sent = by_tier(train.comm_bytes, nodes, cluster) if traffic else (0.0, 0.0)
        time = np.where(train.fits, train.step_time, np.inf)
        return Outcome(time, train.fits, training_causes(train), train.step_energy, train.memory.total, sent)
    e = infer_scenario(s)
    time = getattr(e, task.metric)
    prompts = e.in_prompts("dynamic") * e.waves if task.metric != "tpot" else 0.0
    steps: Num = {"latency": np.maximum(s.workload.output - 1, 0) * e.waves, "ttft": 0.0, "tpot": 1.0}[task.metric]
    causes: dict[str, Num] = dict.fromkeys(CAUSES, np.zeros(()))
    bounded = request_causes(e)
    for phase, times in (("prefill", 0.0 if task.metric == "tpot" else 1.0), ("decode", steps / e.waves)):
        for name in BOUNDS:
            cause = name if name in CAUSES else "other"
            causes[cause] = causes[cause] + times * bounded[phase][name]
    causes["schedule"] = causes["schedule"] + np.maximum(time - sum(causes.values()), 0.0)
    dynamic = prompts + steps * e.in_step("dynamic")
    energy = e.gpus * (cluster.device.idle * time + dynamic / mapping.pp)
    sent = (0.0, 0.0)
    if traffic:
        prefill, decode = (
            by_tier(e.comm_detail[k], [t.node for t in e.timed[k]], cluster) for k in ("prefill", "decode")
        )
        whole = 0.0 if task.metric == "tpot" else 1.0
        sent = (whole * prefill[0] + steps * decode[0], whole * prefill[1] + steps * decode[1])
    return Outcome(np.where(e.fits, time, np.inf), e.fits, causes, energy, e.memory.total, sent)


def sent_by_tier(op: str, bytes_: Num, n: Num, tiers: Sequence[Link], stride: Num = 1) -> tuple[Num, ...]:
    """Bytes that one rank sends on each tier; a p2p message goes over the farthest that its group crosses.

    >>> node, fabric = Link("", "nvlink", 8, 450e9, 1e-6), Link("", "infiniband", 1024, 50e9, 5e-6)
    >>> [float(v) for v in sent_by_tier("all_to_all", 16e6, 16, (node, fabric))]
    [7000000.0, 8000000.0]
    """
    held = ranks_in_tiers(n, [tier.size for tier in tiers], stride)
    pairs = zip((1.0, *held[:-1]), held, strict=True)
    sent = [volume(op, part_of(op, bytes_, n, inner, outer), outer / inner) for inner, outer in pairs]
    if op == "p2p":
        beyond = [sum(sent[index + 1 :]) for index in range(len(sent))]
        return tuple(pick(far > 0, 0.0, own) for own, far in zip(sent, beyond, strict=True))
    return tuple(sent)


def by_tier(sent: Dict[str, Num], nodes: Sequence[Op | Comm], cluster: Cluster) -> tuple[Num, Num]:
    """Bytes that a device sends inside its node and beyond, from those by collective's name: each is divided as the
    collective's own volumes by tier are. Contexts on a leading axis are averaged."""
    inside: Num = 0.0
    beyond: Num = 0.0
    shares: dict[str, Num] = {}
    for node in nodes:
        if isinstance(node, Comm) and node.name not in shares:
            tiers = sent_by_tier(node.op, node.bytes, node.ranks, cluster.tiers, node.stride)
            shares[node.name] = tiers[0] / np.maximum(sum(tiers), 1e-30)
    for name, share in shares.items():
        near = np.mean(share, axis=0) if np.ndim(share) > np.ndim(sent[name]) and np.ndim(share) else share
        inside, beyond = inside + near * sent[name], beyond + (1.0 - near) * sent[name]
    return inside, beyond


def on_cluster(task: Task, cluster: Cluster) -> tuple[Outcome, dict[str, float]]:
    """The task on a cluster of the catalogue with its best mapping, as single numbers."""
    index = int(np.argmin(run(task, cluster, task.mappings, 1).time))
    chosen = {k: float(v[index]) for k, v in task.mappings.items()}
    out = run(task, cluster, chosen, 0)
    return out._replace(causes={k: float(v) for k, v in out.causes.items()}), chosen
