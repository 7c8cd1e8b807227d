"""Exploring hardware: grids over nodes, memories and networks, each point with its best parallel mapping.

There is no second performance model: `technology_build.build` makes a device whose numbers are arrays, and the
estimators take it as any other. Answers are bounds that move as hardware moves, not predictions of a product.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflm.asked import paths
from rooflm.asked.answers.causes import CAUSES
from rooflm.catalogue.hardware import Cluster, Link
from rooflm.errors import RooflmError
from rooflm.sweep.workers import spread
from rooflm.technology import tco
from rooflm.technology.build import Built, build
from rooflm.technology.description import Technology, Wire
from rooflm.technology.load import load_dram, load_node, load_technology, load_wire
from rooflm.technology.tasks import Outcome, Task, run
from rooflm.units import Num

BLOCK = 1 << 15
"""Evaluations (hardware points times mappings) of a block."""
Row = TypeVar("Row")
Columns = dict[str, NDArray[Any]]


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


def with_network(t: Technology, intra: Wire, fabric: Wire) -> Technology:
    """The technology with other links: the die's own inside the node, a port for the network."""
    return replace(t, intra=intra, inter=port(fabric))


def machine(t: Technology, fabric: Wire) -> tuple[Cluster, Built]:
    """The cluster of a built device: a tier inside the node, and the network as far as the die's port carries it."""
    built = build(t)
    inside = Link(t.intra.name, t.intra.kind, t.intra.size, built.intra, t.intra.latency)
    between = Link(fabric.name, fabric.kind, fabric.size, np.minimum(built.inter, fabric.bandwidth), fabric.latency)
    return Cluster(t.name, built.device, (inside, between)), built


def with_best_mapping(
    task: Task, t: Technology, fabric: Wire, points: int
) -> tuple[Outcome, dict[str, NDArray[Any]], Built]:
    """The task with the best mapping at each of `points` hardware points (fields of `t` are numbers or (points,))."""
    column, wide = _reshape(t, (-1, 1)), _reshape(fabric, (-1, 1))
    cluster, _ = machine(column, wide)
    rows = {k: v.reshape(1, -1) for k, v in task.mappings.items()}
    times = np.broadcast_to(run(task, cluster, rows, 2).time, (points, task.choices))
    index = np.argmin(times, axis=1)
    chosen = {k: v[index] for k, v in task.mappings.items()}
    flat, built = machine(t, fabric)
    return run(task, flat, chosen, 1, traffic=True), chosen, built


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
    """Rows of one kind combined into one row of arrays, row `index[i]` at point i; differing texts become "varied".

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
    out, chosen, built = with_best_mapping(task, t, fabric, points)
    gpus = chosen["tp"] * chosen["pp"] * chosen["dp"]
    bill = tco.bill(t, built, fabric, prices)
    d = built.device
    power = out.energy / (out.time * gpus)
    used = (out.sent[0] / out.time, out.sent[1] / out.time)
    rate = np.minimum(built.inter, fabric.bandwidth)
    wires = tco.network_power(t.intra, built.intra, fabric, rate, used, gpus)
    usd = tco.usd_per_second(bill, power + wires, prices) * gpus * out.time
    joules = out.energy + wires * gpus * np.where(out.fits, out.time, 0.0)
    values: dict[str, Num] = {
        "time_s": out.time, "fits": out.fits, **{f"{c}_s": v for c, v in out.causes.items()}, **chosen, "gpus": gpus,
        "peak_flops": d.peak["bf16"], "l2_bytes": d.l2.size, "l2_bandwidth": d.l2.bandwidth, "dram_bytes": d.dram.size,
        "dram_bandwidth": d.dram.bandwidth, "intra_bandwidth": built.intra, "inter_bandwidth": built.inter,
        "clock_hz": d.clock, "memory_bytes": out.memory, "die_m2": t.budget.die,
        "area_used_m2": sum(built.area.values()), "tdp_w": d.tdp, "power_used_w": sum(built.power.values()),
        "power_w": power, "network_w": wires, "silicon_usd": bill.silicon,
        "device_usd": bill.device, "capital_usd": bill.capital * gpus, "tokens_per_s": task.tokens / out.time,
        "tokens_per_j": task.tokens / (joules * prices.pue),
        "tokens_per_usd": task.tokens / usd,
        "usd_per_million_tokens": usd / task.tokens * 1e6,
        "tco_usd": tco.tco(bill, gpus, power + wires, prices)["total"],
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
    return columns(task, with_network(technology_at(space, points), intra, fabric), fabric, len(points), money)


def axis_columns(space: Space) -> Columns:
    """The value of each axis at each point of the space."""
    base = load_technology(space.die)
    own = {"node": base.node.name, "dram": base.dram.name, "network": ""}
    lists: list[Sequence[Any]] = [space.networks, space.nodes, space.drams, *(v for _, v in space.sets)]
    cells = list(itertools.product(*lists))
    return {n: np.array([c[i] or own.get(n, c[i]) for c in cells]) for i, n in enumerate(space.names)}
