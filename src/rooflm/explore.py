"""Exploring hardware: grids over nodes, memories and networks, each point with its best parallel mapping.

There is no second performance model: `technology_build.build` makes a device whose numbers are arrays, and the estimators
take it as any other. Explored devices have no fitted constants, so efficiencies are ideal or flat factors, without
engine overheads: answers are bounds that move as hardware moves, not predictions of a product.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflm import paths, tco
from rooflm.errors import RooflmError
from rooflm.hardware import Cluster, Link
from rooflm.inference import bound_shares, infer_scenario
from rooflm.ops import Op
from rooflm.request import Request, build_inference
from rooflm.request_training import build_training
from rooflm.roofline import BOUNDS
from rooflm.scenario import Scenario
from rooflm.technology import Technology, Wire
from rooflm.technology_build import Built, build
from rooflm.technology_rows import die_device, load_dram, load_node, load_technology, load_wire
from rooflm.training import TrainingEstimate, train_scenario
from rooflm.units import Num
from rooflm.workers import spread

BLOCK = 1 << 15
"""Evaluations (hardware points times mappings) of a block."""
CAUSES = ("compute", "dram", "l2", "l1", "network", "schedule", "other")
"""What takes the time: rates of the device, communication that shows, idle and uneven pipeline stages, the rest."""
METRICS = {"train": ("step_time",), "infer": ("latency", "ttft", "tpot")}
Row = TypeVar("Row")
Columns = dict[str, NDArray[Any]]


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
    """What a task takes on hardware: seconds (infinite where it does not fit), seconds by cause, joules, bytes."""

    time: Num
    fits: Num
    causes: dict[str, Num]
    energy: Num
    memory: Num


def divisors(value: int, most: float = float("inf")) -> list[int]:
    """Divisors of a number up to `most`.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    return [d for d in range(1, int(min(value, most)) + 1) if value % d == 0]


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
    build_request: Callable[..., Request] = build_training if phase == "train" else build_inference
    gpus = int(given.pop("gpus", 1) or 1)
    free = search and not any(given.get(k) for k in ("tp", "pp", "dp", "cp", "ep"))
    scenario = build_request(model=model, **given, **({} if free else {"gpus": gpus})).scenario
    chosen = metric or METRICS[phase][0]
    if chosen not in METRICS[phase]:
        raise RooflmError(f"metric is {chosen!r}, but for {phase} it must be one of {', '.join(METRICS[phase])}")
    w, m, scaled = scenario.workload, scenario.mapping, scenario.model.scaled()
    if free:
        heads = next((int(b.mixer.heads) for b in scaled.blocks if b.mixer is not None), gpus)
        micro = micro if phase == "train" else (1,)
        mappings = legal_splits(heads, int(scaled.layers), gpus, int(w.batch), micro, tp_most)
    else:
        mappings = {k: np.array([float(getattr(m, k))]) for k in ("tp", "pp", "dp", "micro_batch")}
    tokens = w.batch * w.seq if phase == "train" else w.batch * (w.output if chosen == "latency" else 1)
    return Task(phase, scenario, mappings, chosen, tokens)


DIES = ("v100", "a100", "h100", "b200")
"""Dies that a study may start from (`technology_rows.load_technology` takes a user's .toml as well)."""


def port(fabric: Wire) -> Wire:
    """The die's port to a network: as many PCIe 6 lanes (8 GB/s, 6 pJ a bit, 0.64 mm² in N7) as its rate asks for."""
    lane = load_wire("pcie6")
    return replace(lane, name=fabric.name, bandwidth=fabric.bandwidth, lanes=np.ceil(fabric.bandwidth / 8e9))


def network(text: str) -> tuple[Wire, Wire]:
    """Links inside and between nodes from "nvlink3+hdr".

    >>> [w.name for w in network("nvlink4+ndr")]
    ['nvlink4', 'ndr']
    """
    inside, plus, between = text.partition("+")
    if not plus:
        raise RooflmError(f"network is {text!r}, but it must name links inside and between nodes, such as nvlink3+hdr")
    return load_wire(inside.strip()), load_wire(between.strip())


def place(t: Technology, intra: Wire, fabric: Wire) -> Technology:
    """The technology with other links: the die's own inside the node, a port for the network."""
    return replace(t, intra=intra, inter=port(fabric))


def machine(t: Technology, fabric: Wire) -> tuple[Cluster, Built]:
    """The cluster of a built device: a tier inside the node, and the network as far as the die's port carries it."""
    built = build(t)
    inside = Link(t.intra.name, t.intra.kind, t.intra.size, built.intra, t.intra.latency)
    between = Link(fabric.name, fabric.kind, fabric.size, np.minimum(built.inter, fabric.bandwidth), fabric.latency)
    return Cluster(t.name, built.device, (inside, between)), built


def run(task: Task, cluster: Cluster, chosen: Dict[str, Num], axes: int) -> Outcome:
    """The task on a cluster with a mapping; numbers may be arrays of `axes` dimensions."""
    degrees: dict[str, Any] = dict(chosen)
    mapping = replace(task.scenario.mapping, **degrees)
    if task.phase == "infer" and task.scenario.engine.pipelined:
        mapping = replace(mapping, in_flight=mapping.pp)
    s = replace(task.scenario, cluster=cluster, mapping=mapping, axes=axes)
    if task.phase == "train":
        train = train_scenario(s)
        causes = training_causes(train)
        return Outcome(
            np.where(train.fits, train.step_time, np.inf), train.fits, causes, train.energy, train.memory.total
        )
    e = infer_scenario(s)
    time = getattr(e, task.metric)
    share = {"latency": 1.0, "ttft": 0.0, "tpot": 1.0}[task.metric]
    steps = {"latency": np.maximum(s.workload.output - 1, 0), "ttft": 0.0, "tpot": 1.0}[task.metric]
    causes = dict.fromkeys(CAUSES, np.zeros(()))
    for phase, times in (("prefill", 0.0 if task.metric == "tpot" else 1.0), ("decode", share * steps)):
        shares = bound_shares(e.timed[phase], e.passes[phase], axes)
        for name in BOUNDS:
            cause = name if name in CAUSES else "other"
            causes[cause] = causes[cause] + times * shares[name]
    causes["schedule"] = causes["schedule"] + np.maximum(time - sum(causes.values()), 0.0)
    return Outcome(np.where(e.fits, time, np.inf), e.fits, causes, e.energy_per_token * task.tokens, e.memory.total)


def training_causes(e: TrainingEstimate) -> dict[str, Num]:
    """Seconds of a step by cause; they sum to the step."""
    m = e.scenario.mapping
    causes: dict[str, Num] = dict.fromkeys(CAUSES, np.zeros(()))
    for group, timed in e.timed.items():
        times = e.micro_batches / m.pp if not group.startswith("step.") else float(group == "step.optimizer")
        for t in timed:
            if isinstance(t.node, Op):
                for index, name in enumerate(BOUNDS[:4]):
                    causes[name] = causes[name] + times * np.where(t.bound == index, t.total, 0.0)
    p = e.parts
    causes["network"] = sum(v for k, v in p.items() if k.endswith("_comm"))
    causes["schedule"] = p["bubble"] + p["imbalance"]
    causes["other"] = p["host"] + p["overlap_tax"] + p["offload"]
    return causes


def best(task: Task, t: Technology, fabric: Wire, points: int) -> tuple[Outcome, dict[str, NDArray[Any]], Built]:
    """The task with its best mapping at each of `points` hardware points (fields of `t` are numbers or (points,))."""
    column, wide = _reshape(t, (-1, 1)), _reshape(fabric, (-1, 1))
    cluster, _ = machine(column, wide)
    rows = {k: v.reshape(1, -1) for k, v in task.mappings.items()}
    times = np.broadcast_to(run(task, cluster, rows, 2).time, (points, task.choices))
    index = np.argmin(times, axis=1)
    chosen = {k: v[index] for k, v in task.mappings.items()}
    flat, built = machine(t, fabric)
    return run(task, flat, chosen, 1), chosen, built


def _reshape(node: Row, shape: tuple[int, ...]) -> Row:
    """A dataclass whose one-dimensional arrays are reshaped, at any depth."""
    if isinstance(node, np.ndarray) and node.ndim:
        return node.reshape(shape)  # type: ignore[return-value]
    if isinstance(node, dict):
        return {k: _reshape(v, shape) for k, v in node.items()}  # type: ignore[return-value]
    if is_dataclass(node) and not isinstance(node, type):
        return replace(node, **{f.name: _reshape(getattr(node, f.name), shape) for f in fields(node)})
    return node


def stack(rows: Sequence[Row], index: NDArray[Any]) -> Row:
    """Rows of one kind as one row of arrays, row `index[i]` at point i; texts that differ become "varied".

    >>> n = stack([load_node("n7"), load_node("n5")], np.array([0, 1, 1])); n.name, n.logic_area.tolist()
    ('varied', [0.344, 0.191, 0.191])
    """
    first = rows[0]
    values: dict[str, Any] = {}
    for f in fields(first):  # type: ignore[arg-type]
        column = [getattr(r, f.name) for r in rows]
        if isinstance(column[0], str):
            values[f.name] = column[0] if len(set(column)) == 1 else "varied"
        else:
            values[f.name] = np.array(column, dtype=float)[index]
    return replace(first, **values)  # type: ignore[type-var]


class Space(NamedTuple):
    """Hardware to explore: names on the first axes, then any `technology.` paths with lists of values.

    die: what to start from; nodes, drams, networks: names ("" keeps the die's own); sets: path -> values.
    """

    die: str
    nodes: tuple[str, ...] = ("",)
    drams: tuple[str, ...] = ("",)
    networks: tuple[str, ...] = ("nvlink3+hdr",)
    sets: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis, networks first."""
        return (len(self.networks), len(self.nodes), len(self.drams), *(len(v) for _, v in self.sets))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each axis."""
        return ("network", "node", "dram", *(k for k, _ in self.sets))

    @property
    def size(self) -> int:
        """Hardware points."""
        return int(np.prod(self.shape))


def technology_at(space: Space, points: NDArray[Any]) -> Technology:
    """The technology at flat indices of the space (of one network), as arrays of that length."""
    base = load_technology(space.die)
    where = np.unravel_index(points, space.shape)
    nodes = [load_node(n) if n else base.node for n in space.nodes]
    drams = [load_dram(d) if d else base.dram for d in space.drams]
    t = replace(base, node=stack(nodes, where[1]), dram=stack(drams, where[2]))
    for axis, (path, values) in enumerate(space.sets, start=3):
        t = put_share(t, path.removeprefix("technology."), np.array(values, dtype=float)[where[axis]])
    return t


def put_share(t: Technology, path: str, value: Num) -> Technology:
    """The technology with a field replaced. A share of area, watts or edge takes from (or gives to) the other shares in
    proportion, so that they still sum to 1. Raises RooflmError for unknown paths and shares of 1 or more.

    >>> t = put_share(load_technology("a100"), "budget.area.l2", 0.4); round(float(t.budget.area.total), 12)
    1.0
    """
    parent, _, leaf = path.rpartition(".")
    if parent not in ("budget.area", "budget.watts", "budget.edge"):
        changed: Technology = paths.put(t, path, value)
        return changed
    shares = paths.get(t, parent)
    old = paths.get(t, path)
    if np.any(np.asarray(value) <= 0) or np.any(np.asarray(value) >= 1):
        raise RooflmError(f"technology.{path} is {float(np.max(value)):g}, but a share must be between 0 and 1")
    scale = (1.0 - value) / (1.0 - old)
    new = {f.name: value if f.name == leaf else getattr(shares, f.name) * scale for f in fields(shares)}
    group = parent.rpartition(".")[2]
    return replace(t, budget=replace(t.budget, **{group: replace(shares, **new)}))


def columns(task: Task, t: Technology, fabric: Wire, points: int, prices: tco.Prices) -> Columns:
    """Everything that a report needs of hardware points, each with its best mapping, as columns of equal length."""
    out, chosen, built = best(task, t, fabric, points)
    gpus = chosen["tp"] * chosen["pp"] * chosen["dp"]
    bill = tco.bill(t, built, fabric, prices)
    power = out.energy / (out.time * gpus)
    usd = tco.usd_per_second(bill, power, prices) * gpus * out.time
    d = built.device
    values: dict[str, Num] = {
        "time_s": out.time, "fits": out.fits, **{f"{c}_s": v for c, v in out.causes.items()}, **chosen, "gpus": gpus,
        "peak_flops": d.peak["bf16"], "l2_bytes": d.l2.size, "l2_bandwidth": d.l2.bandwidth, "dram_bytes": d.dram.size,
        "dram_bandwidth": d.dram.bandwidth, "intra_bandwidth": built.intra, "inter_bandwidth": built.inter,
        "clock_hz": d.clock, "memory_bytes": out.memory, "die_m2": t.budget.die,
        "area_used_m2": sum(built.area.values()), "tdp_w": d.tdp, "power_used_w": sum(built.power.values()),
        "power_w": power, "silicon_usd": bill.silicon,
        "device_usd": bill.device, "capital_usd": bill.capital * gpus, "tokens_per_s": task.tokens / out.time,
        "tokens_per_j": task.tokens / (out.energy * prices.pue), "tokens_per_usd": task.tokens / usd,
        "usd_per_million_tokens": usd / task.tokens * 1e6,
        "tco_usd": tco.tco(bill, gpus, power, prices)["total"],
    }  # fmt: skip
    table = {k: np.broadcast_to(np.asarray(v), (points,)) for k, v in values.items()}
    rates = [c for c in CAUSES if c not in ("schedule", "other")]
    label = np.array(rates)[np.argmax(np.stack([table[f"{c}_s"] for c in rates]), axis=0)]
    return table | {"bottleneck": np.where(table["fits"], label, "does not fit")}


def grid(task: Task, space: Space, prices: tco.Prices | None = None, on: str = "local") -> Columns:
    """The whole space as tidy columns: one row a hardware point with its best mapping, axes first.

    on: "local" (the cores of this machine), "ray" or "ray://host:port": the same blocks, the same answer.
    """
    money = prices or tco.Prices()
    per = space.size // len(space.networks)
    step = max(BLOCK // task.choices, 1)
    parts = [(n, b, min(b + step, per)) for n in range(len(space.networks)) for b in range(0, per, step)]

    job = partial(_block, task, space, money)
    done = dict(spread(job, parts, on))
    names = list(done[parts[0]])
    joined = {k: np.concatenate([done[p][k] for p in parts]) for k in names}
    return axis_columns(space) | joined


def _block(task: Task, space: Space, money: tco.Prices, part: tuple[int, int, int]) -> Columns:
    """The columns of points begin to end of one network (a task for any worker: it holds all it needs)."""
    n, begin, end = part
    points = np.arange(begin, end) + n * (space.size // len(space.networks))
    intra, fabric = network(space.networks[n])
    return columns(task, place(technology_at(space, points), intra, fabric), fabric, len(points), money)


def axis_columns(space: Space) -> Columns:
    """The value of each axis at each point of the space."""
    base = load_technology(space.die)
    own = {"node": base.node.name, "dram": base.dram.name, "network": ""}
    lists: list[Sequence[Any]] = [space.networks, space.nodes, space.drams, *(v for _, v in space.sets)]
    cells = list(itertools.product(*lists))
    return {n: np.array([c[i] or own.get(n, c[i]) for c in cells]) for i, n in enumerate(space.names)}


def on_cluster(task: Task, cluster: Cluster) -> tuple[Outcome, dict[str, float]]:
    """The task on a cluster of the catalogue with its best mapping, as single numbers."""
    index = int(np.argmin(run(task, cluster, task.mappings, 1).time))
    chosen = {k: float(v[index]) for k, v in task.mappings.items()}
    out = run(task, cluster, chosen, 0)
    return out._replace(causes={k: float(v) for k, v in out.causes.items()}), chosen
