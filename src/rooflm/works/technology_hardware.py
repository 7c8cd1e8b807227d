"""The hardware half of Optimus' study: products by what bounds them, memories, networks, nodes, and the bottleneck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked.kernel import predict_gemm
from rooflm.explore import Columns, Space, gemm_bounds, grid, make_task, shares, stops_helping
from rooflm.plots.bars import Bar, bars
from rooflm.plots.lines import Curve, lines
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.readers.devices import load_device
from rooflm.works.study import Column, Table, comparison, comparison_columns, published

GPUS = ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
DRAMS = ("gddr6", "gddr6x", "gddr7", "lpddr5x", "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4")
NETWORKS = ("nvlink3+hdr", "nvlink3+ndr", "nvlink4+ndr", "nvlink5+ndr", "nvlink5+xdr", "nvlink5+gdr")
UNIFORM = tuple(f"uniform-{n}" for n in (14, 10, 7, 5, 3, 2, 1))
FOUNDRY = ("n12", "n10", "n7", "n5", "n3", "n2", "a14", "a10")
CHOICES = (("hbm2e", "nvlink3+hdr"), ("hbm4", "nvlink3+hdr"), ("hbm4", "nvlink5+gdr"))
"""Memory and links of the lines over nodes."""
SPLIT = {"tp": 8, "pp": 8}
"""Megatron's split of this model; {}: the best legal one at each point."""
SHOWN = ("compute", "dram", "network", "schedule", "other")


def training(**split: Any) -> Any:
    """GPT-3 175B on 1024 devices."""
    return make_task("train", "gpt3-175b", gpus=1024, batch=1024, seq=2048, recompute="selective", **split)


def decoding(gpus: int = 1, quant: str = "w16a16kv16") -> Any:
    """Llama-2 13B, one sequence, time a token."""
    return make_task("infer", "llama-2-13b", gpus=gpus, tp=gpus, prompt=200, output=200, metric="tpot", quant=quant)


def gemv() -> Table:
    """Its validation of GEMVs: a sample of measured kernels, by size."""
    rows = []
    device = load_device("a100-sxm-80gb")
    for r in published("technology-gemv"):
        found = predict_gemm(1, r["n"], r["k"], gpu=device.name)
        moved = found.bytes / float(device.dram.bandwidth)
        rows.append({"n": r["n"], "k": r["k"], "bytes": 2.0 * r["n"] * r["k"], "reached": moved / r["seconds"],
                     **comparison(r["seconds"], found.time_s, r["fitted"])})  # fmt: skip
    rows.sort(key=lambda r: r["bytes"])
    columns = (Column("n", "n", "1"), Column("k", "k", "1"), Column("bytes", "weights", "B", "MB"),
               Column("reached", "of peak B/s", "share"), *comparison_columns("s", "measured"))  # fmt: skip
    notes = ("A sample by size of 304 kernels; all of them: 12 % off, those kept aside 11 %, one constant utilisation"
             " 51 % (docs/technology.md). `rooflm predict gemm --m 1 --n N --k K` predicts any.",)  # fmt: skip
    return Table("gemv", "GEMVs on one A100: utilisation of memory grows with the bytes", columns, tuple(rows), notes)


def gemms() -> Table:
    """Its table III: what bounds each product of a prefill layer."""
    rows = []
    for efficiency in ("ideal", "0.7,0.9", "calibrated"):
        t = gemm_bounds("llama-2-13b", GPUS, 200, 1, efficiency)
        products = list(dict.fromkeys(t["product"].tolist()))
        for gpu in GPUS:
            bound = {str(p): str(b) for g, p, b in zip(t["gpu"], t["product"], t["bound"], strict=True) if g == gpu}
            rows.append({"efficiency": efficiency, "gpu": gpu.split("-")[0], **{p: bound[p] for p in products}})
    columns = (Column("efficiency", "efficiency"), Column("gpu", "GPU"), *(Column(p, p) for p in products))
    notes = (
        "FLOP/B of the wide products: 186 to 191; of the machines 139, 153, 295, 206, 292: as the paper found, A100 is"
        " bound by compute but for a head's own products, later GPUs by memory. overhead: a kernel that takes more than"
        " twice its roofline (waves of tiles, launch).",
    )
    return Table("gemms", "Table III: what bounds the products of a prefill, Llama-2 13B, 200 tokens", columns,
                 tuple(rows), notes)  # fmt: skip


@lru_cache
def by_memory() -> Columns:
    """Time per token with each memory on H100's die in N5; weights in 4 bits, so that the small memories hold them."""
    space = Space("h100", ("n5",), DRAMS, ("nvlink4+ndr",), (("technology.budget.sites", (8,)),))
    return grid(decoding(quant="w4a16kv16"), space)


@lru_cache
def by_rate(gpus: int) -> Columns:
    """Time per token over the memory's rate, scaled freely (with energy a bit to match), on one or more devices."""
    rates = tuple(float(x) for x in np.geomspace(0.1e12, 6.4e12, 25))
    more = (("technology.dram.bandwidth", rates), ("technology.dram.energy", (2e-13,)))
    return grid(decoding(gpus), Space("h100", ("n5",), ("hbm3",), ("nvlink4+ndr",), more))


def dram() -> Table:
    """Inference over memory technology, and where faster memory stops helping."""
    t = by_memory()
    rows: list[dict[str, Any]] = []
    for i in np.argsort(t["dram_bandwidth"]):
        fits = bool(t["fits"][i])
        rows.append({"memory": str(t["dram"][i]), "devices": 1, "bandwidth": float(t["dram_bandwidth"][i]),
                     "tpot": float(t["time_s"][i]) if fits else None, "bound": str(t["bottleneck"][i])})  # fmt: skip
    for gpus in (1, 2, 4, 8):
        t = by_rate(gpus)
        stop = stops_helping(t["dram_bandwidth"], t["time_s"])
        rows.append({"memory": "scaled freely: stops helping", "devices": gpus,
                     "bandwidth": float(t["dram_bandwidth"][stop]), "tpot": float(t["time_s"][stop]),
                     "bound": str(t["bottleneck"][-1])})  # fmt: skip
    columns = (Column("memory", "memory"), Column("devices", "devices", "1"),
               Column("bandwidth", "B/s a device", "B/s"), Column("tpot", "a token", "s"),
               Column("bound", "bound by"))  # fmt: skip
    notes = ("Generations: weights in 4 bits; scaled: in 16. A step stops helping where it returns less than half of"
             " what it promises; then the rate in the last column bounds.",)  # fmt: skip
    return Table("dram", "Decoding of Llama-2 13B on H100's die in N5 by memory", columns, tuple(rows), notes)


@lru_cache
def by_network(node: str, best: bool) -> Columns:
    """A training step with each network on A100's die in a node."""
    return grid(training(**({} if best else SPLIT)), Space("a100", (node,), ("hbm3",), NETWORKS))


def network() -> Table:
    """Training over network technology."""
    rows = []
    for node in ("n7", "n3"):
        for best in (False, True):
            t = by_network(node, best)
            part = shares(t)
            for i, name in enumerate(NETWORKS):
                rows.append({"node": node, "split": "best" if best else "tp 8, pp 8", "network": name,
                             "step": float(t["time_s"][i]), "network_share": float(part["network"][i]),
                             "bound": str(t["bottleneck"][i])})  # fmt: skip
    columns = (Column("node", "node"), Column("split", "split"), Column("network", "inside + between nodes"),
               Column("step", "step", "s"), Column("network_share", "network", "share"),
               Column("bound", "bound by"))  # fmt: skip
    return Table("network", "GPT-3 175B training on 1024 devices of A100's die, HBM3, by network", columns, tuple(rows))


@lru_cache
def by_node(track: tuple[str, ...], dram_: str, links: str, best: bool = False) -> Columns:
    """A training step in each node of a track."""
    return grid(training(**({} if best else SPLIT)), Space("a100", track, (dram_,), (links,)))


def nodes() -> Table:
    """Training over logic nodes, with the memory and the links kept or following."""
    rows = []
    for track in (UNIFORM, FOUNDRY):
        for memory, links in CHOICES:
            t = by_node(track, memory, links)
            for i, node in enumerate(track):
                rows.append({"node": node, "memory": memory, "network": links,
                             "peak": float(t["peak_flops"][i]), "step": float(t["time_s"][i]),
                             "times": float(t["time_s"][0] / t["time_s"][i]),
                             "bound": str(t["bottleneck"][i])})  # fmt: skip
    columns = (Column("node", "node"), Column("memory", "memory"), Column("network", "network"),
               Column("peak", "16-bit compute", "FLOP/s"), Column("step", "step", "s"),
               Column("times", "times faster", "times"), Column("bound", "bound by"))  # fmt: skip
    notes = (
        "uniform: DeepFlow's scaling, each step area 0.67 and energy 0.54; the others are foundries' own figures.",
    )
    return Table("nodes", "GPT-3 175B training on 1024 devices of A100's die, tp 8, pp 8, by node", columns,
                 tuple(rows), notes)  # fmt: skip


class Way(NamedTuple):
    """A series of hardware, point by point: its name, the points' names, and their columns."""

    name: str
    points: tuple[str, ...]
    tables: tuple[Columns, ...]


def ways() -> tuple[Way, ...]:
    """Series in which the bottleneck may move."""

    def of(name: str, track: Sequence[str], memory: str, best: bool, *then: tuple[str, str]) -> Way:
        ends = tuple(by_node((track[-1],), m, n, best) for m, n in then)
        points = (*track, *(f"then {m}, {n}" for m, n in then))
        return Way(name, points, (by_node(tuple(track), memory, "nvlink3+hdr", best), *ends))

    lifted = (("hbm4", "nvlink3+hdr"), ("hbm4", "nvlink5+gdr"))
    return (
        of("uniform, HBM2, tp 8 pp 8", UNIFORM, "hbm2", False, *lifted),
        of("uniform, HBM2E, tp 8 pp 8", UNIFORM, "hbm2e", False, *lifted),
        of("uniform, HBM2E, best splits", UNIFORM, "hbm2e", True, *lifted),
        of("foundry, HBM2E, tp 8 pp 8", FOUNDRY, "hbm2e", False),
        of("foundry, HBM2, best splits", FOUNDRY, "hbm2", True),
        Way("decoding, memory scaled, tp 1", ("0.8 to 51 TB/s",), (by_rate(1),)),
        Way("decoding, memory scaled, tp 8", ("0.8 to 51 TB/s",), (by_rate(8),)),
    )


def path(tables: Sequence[Columns]) -> list[tuple[str, int]]:
    """What bounds, point after point, and at how many in a row.

    >>> path(({"bottleneck": np.array(["compute", "compute", "dram"])},))
    [('compute', 2), ('dram', 1)]
    """
    found = itertools.chain.from_iterable(t["bottleneck"].tolist() for t in tables)
    return [(str(k), len(list(g))) for k, g in itertools.groupby(found)]


ORDER = ["compute", "dram", "network"]
"""The order in which the paper sees the bottleneck move."""


def bottleneck() -> Table:
    """In which series the bottleneck moves from compute to memory to the network, and in which it does not."""
    rows = []
    for way in ways():
        steps = path(way.tables)
        order = [name for name, _ in steps]
        whole = any(order[i : i + 3] == ORDER for i in range(len(order)))
        last = shares(way.tables[-1])
        rows.append({"series": way.name, "path": ", ".join(f"{k} {n}" for k, n in steps),
                     **{c: float(last[c][-1]) for c in ("compute", "dram", "network")}, "order": whole})  # fmt: skip
    columns = (Column("series", "series"), Column("path", "what bounds, at how many points"),
               Column("order", "whole"))  # fmt: skip
    notes = (
        "whole: compute, then memory, then the network. GPT-3 175B training with HDR over uniform nodes (14 to 1 nm;"
        " then at 1 nm HBM4, then also NVLink 5 and GDR) or"
        " foundry nodes (n12 to a10); decoding: Llama-2 13B on H100's die in N5, 0.8 to 51 TB/s.",
    )
    title = "Does the bottleneck move from compute to memory to the network?"
    return Table("bottleneck", title, columns, tuple(rows), notes)


def findings(series: Table) -> list[str]:
    """Which series go compute, memory, network, and which do not."""
    yes = [r["series"] for r in series.rows if r["order"]]
    no = [f"{r['series']} ({r['path']})" for r in series.rows if not r["order"]]
    return [f"The bottleneck moves compute, memory, network in: {'; '.join(yes) or 'no series'}.",
            f"It does not in: {'; '.join(no)}."]  # fmt: skip


def nodes_picture() -> Picture:
    """Step time by node, a line for each memory and network."""
    curves = [Curve(f"{m.upper()}, {n}", by_node(UNIFORM, m, n)["time_s"]) for m, n in CHOICES]
    x = Side("logic node (uniform scaling)", tuple(n.removeprefix("uniform-") + " nm" for n in UNIFORM))
    return lines("GPT-3 175B training on 1024 devices of A100's die, by node", x,
                 Scale("seconds a step", log=True), curves, "tp 8, pp 8; ideal rates")  # fmt: skip


WAITS = "schedule: idle and uneven pipeline stages"


def caused(table: Columns, i: int, factor: float) -> dict[str, float]:
    """Time of a point by what bounds it, times a factor."""
    found = {c: float(table[f"{c}_s"][i]) for c in (*SHOWN, "l2")}
    return {c: factor * s for c, s in found.items() if s > 1e-3 * float(table["time_s"][i])}


def dram_picture() -> Picture:
    """Time a token by memory, slowest first."""
    t = by_memory()
    order = [i for i in np.argsort(t["dram_bandwidth"]) if t["fits"][i]]
    made = [
        Bar(f"{str(t['dram'][i]).upper()}, {t['dram_bandwidth'][i] / 1e12:.2g} TB/s", caused(t, i, 1e3)) for i in order
    ]
    causes = dict.fromkeys(c for bar in made for c in bar.parts)
    return bars("Llama-2 13B decoding on H100's die in N5, by memory", Scale("time per token (ms)"), made,
                "4-bit weights, one sequence, ideal rates",
                notes=[f"all bound by {c}" for c in causes if len(causes) == 1])  # fmt: skip


def wall_picture() -> Picture:
    """Time a token over the memory's rate, scaled freely: where L2, then the links, take over."""
    t = by_memory()
    named = [(float(rate) / 1e12, str(name).upper()) for name, rate in zip(t["dram"], t["dram_bandwidth"], strict=True)]
    curves = [Curve(f"{n} device{'s' * (n > 1)}", 1e3 * by_rate(n)["time_s"]) for n in (1, 2, 4, 8)]
    rates = tuple(float(v) / 1e12 for v in by_rate(1)["dram_bandwidth"])
    return lines("Where faster memory stops helping a token of Llama-2 13B",
                 Side("memory bandwidth of a device (TB/s)", rates), Scale("time per token (ms)", log=True), curves,
                 "H100's die in N5, one sequence, weights in 16 bits, ideal rates", marks=named)  # fmt: skip


def bottleneck_picture() -> Picture:
    """Share of the step by cause along the first series."""
    way = ways()[0]
    table = {k: np.concatenate([t[k] for t in way.tables]) for k in way.tables[0]}
    names = [n.removeprefix("uniform-") + " nm" if n.startswith("uniform") else n for n in way.points]
    made = [Bar(n, caused(table, i, 100 / float(table["time_s"][i]))) for i, n in enumerate(names)]
    return bars("GPT-3 175B training: share of the step by cause, 14 to 1 nm",
                Scale("share of the step (%)", percent=True), made,
                "HBM2 and HDR, tp 8, pp 8; then HBM4, then faster links, at 1 nm", notes=(WAITS,))  # fmt: skip


def network_picture() -> Picture:
    """Step by cause and network, in two nodes."""
    made = [Bar(name, caused(by_network(node, False), i, 1.0), node) for node in ("n7", "n3")
            for i, name in enumerate(NETWORKS)]  # fmt: skip
    return bars("GPT-3 175B training on 1024 devices of A100's die, by network", Scale("seconds a step"), made,
                "tp 8, pp 8, HBM3; links inside + between nodes", notes=(WAITS,))  # fmt: skip


PICTURES: dict[str, Callable[[], Picture]] = {
    "nodes": nodes_picture, "dram": dram_picture, "wall": wall_picture, "network": network_picture,
    "bottleneck": bottleneck_picture,
}  # fmt: skip
