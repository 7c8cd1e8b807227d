"""Training across generations of systems: a ladder of speed-ups, the value of each change, and the spread over readings
of the source.

One configuration (GPUs, split, batch) runs on every rung of data/technology/generations.toml, in three modes. `worth`
goes from the first rung to the last one change at a time; `readings` varies, on both ends alike, what the published
ladder leaves open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rooflm.asked.build_training import build_training
from rooflm.catalogue.hardware import Cluster, Device
from rooflm.errors import RooflmError
from rooflm.estimate.training import TrainingFigures, train_scenario
from rooflm.readers.devices import load_cluster
from rooflm.readers.rows import shipped
from rooflm.scenario.scenario import Scenario
from rooflm.technology.explore import Columns
from rooflm.technology.tasks import Task, legal_splits, on_cluster

CHANGES = ("compute", "memory", "network", "format", "batch")
"""What differs between the ends: 16-bit rates and SMs; DRAM and caches; links; the products' data type; the batch."""
FORMATS: dict[str, dict[str, str]] = {
    "own": {},
    "fp8": {"nvfp4": "fp8"},
    "bf16": {"nvfp4": "bf16", "fp8": "bf16"},
    "one width": {"nvfp4": "bf16", "fp8": "bf16"},
}
"""Products in the narrowest type of each machine, in fp8 at most, or in bf16; attention, elementwise kernels, messages
and states stay wide. "one width": all of them in the narrowest type, as a tool counts that has one precision for all
(DeepFlow, on which Optimus stands: bytes = elements times `precision`, for products and reductions alike)."""
BITS = {"bf16": 16, "fp8": 8, "nvfp4": 4}
SPLITS = ("stated", "best", "first stated")
"""The stated split everywhere; the best legal one of every machine; the stated on the first, the best on the others."""
MODES: dict[str, dict[str, str]] = {
    "calibrated": {"efficiency": "calibrated"},
    "flat": {"efficiency": "0.6,0.8,0.8", "engine": "ideal"},
    "ideal": {"efficiency": "ideal", "engine": "ideal"},
}
"""Measured kernels and the usual framework; flat shares of compute, memory, network, alike for all; the datasheet."""
SEGMENTS = {"forward": "compute", "backward": "compute", "recompute": "compute"}
"""Part of a step -> segment of a bar; parts that end in comm are communication, the rest is "other"."""


@lru_cache
def rungs() -> Mapping[str, Mapping[str, Any]]:
    """Name -> gpu, cluster, dtype and how much larger its batch is, first to last."""
    return shipped("technology/generations", dict[str, dict[str, Any]])


def ends() -> tuple[str, str]:
    """The first rung and the last."""
    names = list(rungs())
    return names[0], names[-1]


@dataclass(frozen=True)
class Ladder:
    """What is the same on every rung: a model and arguments of `train`. The default is the GPT-175B row of Optimus'
    table I (after Korthikanti et al. 2022), one sequence a GPU and step, on the 1024 GPUs of Narayanan et al. 2021."""

    model: str
    gpus: int = 1024
    tp: int = 8
    pp: int = 8
    batch: int = 1024
    seq: int = 2048
    micro_batch: int = 1
    more: Mapping[str, Any] = field(default_factory=lambda: {"recompute": "selective", "sp": True, "zero": 0})

    def request(self, name: str, mode: str = "calibrated", **changes: Any) -> Scenario:
        """The scenario of a rung; `changes` are arguments of `train`, before the rung's larger batch."""
        if name not in rungs():
            raise RooflmError(f"{name!r} is no rung: it must be one of {', '.join(rungs())}")
        row = dict(rungs()[name])
        larger = row.pop("larger", 1)
        own = {"tp": self.tp, "pp": self.pp, "batch": self.batch, "seq": self.seq, "micro_batch": self.micro_batch}
        asked: dict[str, Any] = (
            {"model": self.model, "gpus": self.gpus} | own | dict(self.more) | row | MODES[mode] | changes
        )
        for key in ("batch", "micro_batch"):
            asked[key] *= larger
        return build_training(**asked).scenario

    def estimate(self, name: str, mode: str = "calibrated", **changes: Any) -> TrainingFigures:
        """A step of a rung."""
        return train_scenario(self.request(name, mode, **changes))

    def segments(self, mode: str = "calibrated", **changes: Any) -> dict[str, dict[str, float]]:
        """Rung -> seconds a sequence by segment: compute, communication, other."""
        out: dict[str, dict[str, float]] = {}
        for name in rungs():
            e = self.estimate(name, mode, **changes)
            found = dict.fromkeys(("compute", "communication", "other"), 0.0)
            for part, seconds in e.parts.items():
                segment = SEGMENTS.get(part, "communication" if part.endswith("_comm") else "other")
                found[segment] += float(seconds) / float(e.scenario.workload.batch)
            out[name] = found
        return out

    def rung(
        self, name: str, mode: str = "ideal", formats: str = "own", split: str = "stated", **changes: Any
    ) -> tuple[float, dict[str, float], dict[str, float]]:
        """Seconds a sequence, those seconds by cause, and the split, of one rung in one reading."""
        return self.read(name, mode, *reading(name, formats, split), **changes)

    def read(
        self, name: str, mode: str, dtype: str, narrower: float, best: bool, **changes: Any
    ) -> tuple[float, dict[str, float], dict[str, float]]:
        """`rung` by what its reading means there."""
        s = self.request(name, mode, dtype=dtype, **changes)
        sequences = int(s.workload.batch)
        if best:
            model = s.model
            mappings = legal_splits(
                int(model.layers), int(heads(model)), int(s.mapping.devices), sequences, (1, 2, 4), tp_most=32
            )
        else:
            mappings = {k: np.array([float(getattr(s.mapping, k))]) for k in ("tp", "pp", "dp", "micro_batch")}
        task = Task("train", s, mappings, "step_time", sequences * s.workload.seq)
        out, chosen = on_cluster(task, narrowed(s.cluster, narrower))
        return float(out.time) / sequences, {k: float(v) / sequences for k, v in out.causes.items()}, chosen

    def times(self, mode: str = "ideal", formats: str = "own", split: str = "stated") -> dict[str, float]:
        """Times faster a sequence than the first rung, by rung."""
        seconds = {name: self.rung(name, mode, formats, split)[0] for name in rungs()}
        return {name: seconds[ends()[0]] / s for name, s in seconds.items()}

    def gain(self, mode: str, formats: str = "own", split: str = "stated", **changes: Any) -> float:
        """Times faster a sequence of the last rung than the first."""
        first, last = (self.rung(n, mode, formats, split, **changes)[0] for n in ends())
        return first / last

    def part_way(self, changed: tuple[str, ...], mode: str) -> float:
        """Seconds a sequence with some of the changes from the first rung to the last made (fits or not)."""
        first, last = (rungs()[n] for n in ends())
        old, new = (load_cluster(r["cluster"]) for r in (first, last))
        larger = int(last.get("larger", 1)) if "batch" in changed else 1
        smaller = next(n for n, r in rungs().items() if r["cluster"] == last["cluster"] and "larger" not in r)
        s = self.request(
            smaller, mode, dtype=(last if "format" in changed else first)["dtype"], batch=larger * self.batch,
            micro_batch=larger * self.micro_batch,
        )  # fmt: skip
        tiers = new.tiers if "network" in changed else old.tiers
        machine = replace(new, device=between(old.device, new.device, changed), tiers=tiers)
        return float(train_scenario(replace(s, cluster=machine)).step_time / s.workload.batch)

    def worth(self, mode: str = "ideal") -> dict[str, float]:
        """What each change from the first rung to the last is worth, as factors whose product is the whole.

        The worth of a change depends on those made before it, so its logarithm is averaged over all orders (Shapley
        1953). In mode "calibrated" hardware changes are valued at ideal rates, and "efficiency" is what the measured
        kernels and the framework reach of them at the end over what they reach at the start.
        """
        rates = "ideal" if mode == "calibrated" else mode
        made = [m for r in range(len(CHANGES) + 1) for m in itertools.combinations(CHANGES, r)]
        seconds = {m: self.part_way(m, rates) for m in made}
        out: dict[str, float] = {}
        for change in CHANGES:
            total = 0.0
            for before in (m for m in made if change not in m):
                r, n = len(before), len(CHANGES)
                after = tuple(c for c in CHANGES if c in (*before, change))
                weight = math.factorial(r) * math.factorial(n - 1 - r) / math.factorial(n)
                total += weight * math.log(seconds[before] / seconds[after])
            out[change] = math.exp(total)
        if mode == "calibrated":
            ideal, real = (self.gain(m) for m in ("ideal", "calibrated"))
            out["efficiency"] = real / ideal
        return out

    def readings(self, gpus: Sequence[int] = (1024, 2048, 4096, 8192)) -> Columns:
        """Times faster from the first rung to the last, for every reading of what the published ladder leaves open.

        gpus; batch (as stated, or one sequence a GPU); formats; split; mode. "one width" has no measured kernels.
        """
        seconds = lru_cache(None)(lambda *asked: self.read(*asked[2:], gpus=asked[0], batch=asked[1])[0])
        rows: list[tuple[Any, ...]] = []
        for count, batch in dict.fromkeys((g, b) for g in gpus for b in (self.batch, g)):
            for formats, split, mode in itertools.product(FORMATS, SPLITS, MODES):
                if formats != "one width" or mode != "calibrated":
                    old, new = (seconds(count, batch, n, mode, *reading(n, formats, split)) for n in ends())
                    rows.append((count, batch, formats, split, mode, old / new))
        names = ("gpus", "batch", "formats", "split", "mode", "times")
        return {n: np.array(column) for n, column in zip(names, zip(*rows, strict=True), strict=True)}


def reading(name: str, formats: str, split: str) -> tuple[str, float, bool]:
    """What a reading means on a rung: the products' data type, how many times narrower all of 16 bits is, and whether
    its split is the best one. Several readings mean the same on one rung.

    >>> reading("A100-HDR", "fp8", "first stated"), reading("B200-NVS", "one width", "best")
    (('bf16', 1.0, False), ('bf16', 4.0, True))
    """
    own = str(rungs()[name]["dtype"])
    narrower = 16 / BITS[own] if formats == "one width" else 1.0
    best = split == "best" or (split == "first stated" and name != ends()[0])
    return FORMATS[formats].get(own, own), narrower, best


def heads(model: Any) -> float:
    """Attention heads of a model, by which a tensor split must divide."""
    return next(float(b.mixer.heads) for b in model.blocks if hasattr(b.mixer, "heads"))


def narrowed(cluster: Cluster, ratio: float) -> Cluster:
    """A machine on which everything of 16 bits runs as if it were `ratio` times narrower: 16-bit rates, bandwidths.

    >>> c = narrowed(load_cluster("dgx-b200"), 4.0); c.device.peak["bf16"] == c.device.peak["fp4"]
    True
    """
    d = cluster.device

    def wider(m: Any) -> Any:
        return replace(m, bandwidth=m.bandwidth * ratio)

    peak = {k: v * ratio if k in ("fp16", "bf16") else v for k, v in d.peak.items()}
    device = replace(d, peak=peak, l1=wider(d.l1), l2=wider(d.l2), dram=wider(d.dram))
    return replace(cluster, device=device, tiers=tuple(wider(t) for t in cluster.tiers))


def between(old: Device, new: Device, changed: tuple[str, ...]) -> Device:
    """The old device with the changes named; a narrow type that the old one lacks has the new one's ratio to bf16."""
    scale = old.peak["bf16"] / new.peak["bf16"]
    compute, memory = (new if "compute" in changed else old), (new if "memory" in changed else old)
    peak = new.peak if "compute" in changed else {k: v * scale for k, v in new.peak.items()} | old.peak
    return replace(new, peak=peak, sms=compute.sms, clock=compute.clock, l1=memory.l1, l2=memory.l2, dram=memory.dram)


def most_by_device() -> float:
    """The largest ratio of any rate of the device between the ends: products in the narrowest type, over bf16.

    No step that the devices alone bound can gain more.
    """
    old, new = (load_cluster(rungs()[n]["cluster"]).device for n in ends())
    return float(new.peak["fp4"]) / float(old.peak["bf16"])
