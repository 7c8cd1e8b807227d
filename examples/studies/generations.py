"""GPT-3 175B from A100 with HDR to B200 with an NVLink switch: what each change is worth, and how readings differ.

The rungs and the stated configuration are those of `training_studies`. Here one rung becomes the other one change at a
time (`worth`), and what the paper leaves open is varied on both ends alike (`readings`), so that no configuration needs
to be picked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from studies.training import CONFIGURATION, GENERATIONS, LARGER, MODES, generation_request

from rooflm import Cluster, Device, Scenario, load_cluster, train
from rooflm.explore import Columns, Task, legal_splits, on_cluster

FIRST, LAST = "A100-HDR", "B200-NVS-L"
CHANGES = ("compute", "memory", "network", "format", "batch")
"""What differs between the ends: 16-bit rates and SMs; DRAM and caches; links; the products' data type; L."""
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
SPLITS = ("stated", "best", "A100 stated")
"""TP 8 and PP 8 everywhere; the best legal split of every machine; the stated on A100, the best on the later ones."""
GPUS = (1024, 2048, 4096, 8192)
PUBLISHED = 35.0
"""Times faster, as the paper's abstract says ("~ 35x")."""


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
    return replace(
        cluster, device=device, tiers=tuple(replace(t, bandwidth=t.bandwidth * ratio) for t in cluster.tiers)
    )


def rung(
    name: str, mode: str = "ideal", formats: str = "own", split: str = "stated", gpus: int = 1024, batch: int = 1024
) -> tuple[float, dict[str, float], dict[str, float]]:
    """Seconds a sequence, those seconds by cause, and the split, of one rung in one reading of the configuration."""
    own = GENERATIONS[name]["dtype"]
    changes: dict[str, Any] = {"dtype": FORMATS[formats].get(own, own), "dp": gpus // 64, "batch": batch}
    s = generation_request(name, mode, **changes)
    sequences = int(s.workload.batch)
    if split == "best" or (split == "A100 stated" and name != FIRST):
        mappings = legal_splits(96, 96, gpus, sequences, (1, 2, 4), tp_most=32)
    else:
        mappings = {k: np.array([float(getattr(s.mapping, k))]) for k in ("tp", "pp", "dp", "micro_batch")}
    cluster = narrowed(s.cluster, 16 / BITS[own]) if formats == "one width" else s.cluster
    task = Task("train", s, mappings, "step_time", sequences * s.workload.seq)
    out, chosen = on_cluster(task, cluster)
    return float(out.time) / sequences, {k: float(v) / sequences for k, v in out.causes.items()}, chosen


def ladder(mode: str = "ideal", formats: str = "own", split: str = "stated") -> dict[str, float]:
    """Times faster a sequence than the first rung, by rung."""
    seconds = {name: rung(name, mode, formats, split)[0] for name in GENERATIONS}
    return {name: seconds[FIRST] / s for name, s in seconds.items()}


def _between(old: Device, new: Device, changed: tuple[str, ...]) -> Device:
    """The old device with the changes named; a narrow type that the old one lacks has the new one's ratio to bf16."""
    scale = old.peak["bf16"] / new.peak["bf16"]
    compute, memory = (new if "compute" in changed else old), (new if "memory" in changed else old)
    peak = new.peak if "compute" in changed else {k: v * scale for k, v in new.peak.items()} | old.peak
    return replace(new, peak=peak, sms=compute.sms, clock=compute.clock, l1=memory.l1, l2=memory.l2, dram=memory.dram)


def _part_way(changed: tuple[str, ...], mode: str) -> float:
    """Seconds a sequence of the stated configuration with some of the changes made (fits or not)."""
    old, new = (load_cluster(GENERATIONS[n]["cluster"]) for n in (FIRST, LAST))
    larger = LARGER if "batch" in changed else 1
    s: Scenario = generation_request(
        "B200-NVS", mode, dtype=GENERATIONS[LAST if "format" in changed else FIRST]["dtype"],
        batch=larger * CONFIGURATION["batch"], micro_batch=larger * CONFIGURATION["micro_batch"],
    )  # fmt: skip
    tiers = new.tiers if "network" in changed else old.tiers
    machine = replace(new, device=_between(old.device, new.device, changed), tiers=tiers)
    return float(train(replace(s, cluster=machine)).step_time / s.workload.batch)


def worth(mode: str = "ideal") -> dict[str, float]:
    """What each change from the first rung to the last is worth, as factors whose product is the whole.

    The worth of a change depends on those made before it, so its logarithm is averaged over all orders (Shapley 1953).
    In mode "calibrated" hardware changes are valued at ideal rates, and "efficiency" is what the measured kernels and
    the framework reach of them at the end over what they reach at the start.
    """
    rates = "ideal" if mode == "calibrated" else mode
    seconds = {
        made: _part_way(made, rates) for r in range(len(CHANGES) + 1) for made in itertools.combinations(CHANGES, r)
    }
    out: dict[str, float] = {}
    for change in CHANGES:
        others = [c for c in CHANGES if c != change]
        total = 0.0
        for r in range(len(CHANGES)):
            weight = math.factorial(r) * math.factorial(len(others) - r) / math.factorial(len(CHANGES))
            for made in itertools.combinations(others, r):
                after = tuple(c for c in CHANGES if c in (*made, change))
                total += weight * math.log(seconds[made] / seconds[after])
        out[change] = math.exp(total)
    if mode == "calibrated":
        ideal, real = (ladder_ends(m) for m in ("ideal", "calibrated"))
        out["efficiency"] = real / ideal
    return out


def ladder_ends(mode: str, formats: str = "own", split: str = "stated", gpus: int = 1024, batch: int = 1024) -> float:
    """Times faster a sequence of the last rung than the first."""
    first, last = (rung(n, mode, formats, split, gpus, batch)[0] for n in (FIRST, LAST))
    return first / last


def readings(gpus: Sequence[int] = GPUS) -> Columns:
    """Times faster from the first rung to the last, for every reading of what the paper leaves open.

    gpus; batch (1024 a step, or one sequence a GPU); formats; split; mode. "one width" has no measured kernels.
    """
    rows: list[tuple[Any, ...]] = []
    for count, batch in dict.fromkeys((g, b) for g in gpus for b in (1024, g)):
        for formats, split, mode in itertools.product(FORMATS, SPLITS, MODES):
            if formats != "one width" or mode != "calibrated":
                rows.append((count, batch, formats, split, mode, ladder_ends(mode, formats, split, count, batch)))
    names = ("gpus", "batch", "formats", "split", "mode", "times")
    return {n: np.array(column) for n, column in zip(names, zip(*rows, strict=True), strict=True)}


def most_by_device() -> float:
    """The largest ratio of any rate of the device between the ends: products in the narrowest type, over bf16.

    No step that the devices alone bound can gain more.
    """
    old, new = (load_cluster(GENERATIONS[n]["cluster"]).device for n in (FIRST, LAST))
    return float(new.peak["fp4"]) / float(old.peak["bf16"])


def lost_outside(times: float = PUBLISHED) -> float:
    """The least share of the first rung's step that is not the device's, if the last is to be `times` faster.

    With c the device's share: times <= 1 / (c / most), so 1 - c >= 1 - most / times, even if the last loses nothing.

    >>> round(lost_outside(), 3)
    0.176
    """
    return 1.0 - most_by_device() / times
