"""Two published studies as tidy rows: what fills the memory of a GPU, and what each hardware generation buys.

The figures are drawn elsewhere from these rows; every number comes from `rooflm.train`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rooflm import Scenario, TrainingEstimate, train, training_scenario

KORTHIKANTI: dict[str, dict[str, Any]] = {
    "megatron-22b": {"tp": 8, "pp": 1, "vp": 1, "batch": 4, "micro_batch": 4},
    "gpt3-175b": {"tp": 8, "pp": 8, "vp": 3, "batch": 64, "micro_batch": 1},
    "mt-nlg-530b": {"tp": 8, "pp": 35, "vp": 3, "batch": 280, "micro_batch": 1},
    "megatron-1t": {"tp": 8, "pp": 64, "vp": 1, "batch": 512, "micro_batch": 1},
}
"""The four configurations of Korthikanti et al. 2022 (arXiv 2205.05198), table 3."""

POLICIES: dict[str, dict[str, Any]] = {
    "none": {"recompute": "none", "sp": False},
    "selective": {"recompute": "selective", "sp": True},
    "full": {"recompute": "full", "sp": False},
}
"""Recomputation policies as the paper runs them: selective goes with sequence parallelism."""


def memory_rows(
    models: Iterable[str] = tuple(KORTHIKANTI), gpu: str = "a100-sxm-80gb", engine: str = "megatron-2022"
) -> list[dict[str, Any]]:
    """Bytes a GPU by model, policy and part: model, recompute, part, bytes, total, capacity, fits.

    As in Optimus' figure 4 (Kundu et al. 2024, arXiv 2407.14645): parameters, gradients and optimiser against
    activations under no, selective and full recomputation, beside the GPU's capacity.

    >>> rows = memory_rows(["megatron-22b"])
    >>> {r["recompute"]: bool(r["fits"]) for r in rows}
    {'none': False, 'selective': True, 'full': True}
    """
    rows: list[dict[str, Any]] = []
    for model in models:
        for policy, options in POLICIES.items():
            e = train(model, gpu=gpu, engine=engine, dtype="fp16", zero=0, efficiency="ideal", **KORTHIKANTI[model],
                      **options)  # fmt: skip
            for part, size in e.memory.parts.items():
                rows.append(
                    {
                        "model": model, "recompute": policy, "part": part, "bytes": size, "total": e.memory.total,
                        "capacity": e.memory.capacity, "fits": e.fits,
                    }
                )  # fmt: skip
    return rows


GENERATIONS: dict[str, dict[str, Any]] = {
    "A100-HDR": {"gpu": "a100-sxm-80gb", "cluster": "dgx-a100", "dtype": "bf16"},
    "H100-NDR": {"gpu": "h100-sxm-80gb", "cluster": "dgx-h100", "dtype": "fp8"},
    "H100-NVS": {"gpu": "h100-sxm-80gb", "cluster": "dgx-h100-nvs", "dtype": "fp8"},
    "H200-NDR": {"gpu": "h200-sxm-141gb", "cluster": "dgx-h200", "dtype": "fp8"},
    "B200-NDR": {"gpu": "b200-sxm-180gb", "cluster": "dgx-b200", "dtype": "nvfp4"},
    "B200-NVS": {"gpu": "b200-sxm-180gb", "cluster": "b200-nvs", "dtype": "nvfp4"},
    "B200-NVS-L": {"gpu": "b200-sxm-180gb", "cluster": "b200-nvs", "dtype": "nvfp4"},
}
"""GPUs, networks and the narrowest data type that each trains in; NVS: NVLink switch across nodes; L: larger batch.
The rungs of Optimus (Kundu et al. 2024, arXiv 2407.14645)."""

CONFIGURATION: dict[str, Any] = {
    "model": "gpt3-175b", "seq": 2048, "tp": 8, "pp": 8, "dp": 16, "batch": 1024, "micro_batch": 1,
    "recompute": "selective", "sp": True, "zero": 0,
}  # fmt: skip
"""What is the same on every rung of the study. TP 8, PP 8, SP 8, selective recomputation, micro-batches of one and one
sequence a GPU and step are the GPT-175B row of Optimus' table I (after Korthikanti et al. 2022); 1024 GPUs are those of
Narayanan et al. 2021 for this model, for the text that is public names no number."""
LARGER = 4
"""L: this many times the batch and the micro-batch, which the memory of B200 holds and that of A100 does not."""

MODES: dict[str, dict[str, str]] = {
    "calibrated": {"efficiency": "calibrated", "engine": "megatron"},
    "flat": {"efficiency": "0.6,0.8,0.8", "engine": "ideal"},
    "ideal": {"efficiency": "ideal", "engine": "ideal"},
}
"""Measured kernels and framework; flat shares of compute, memory and network, the same for all; the datasheet."""


def generation_request(name: str, mode: str = "calibrated", **changes: Any) -> Scenario:
    """The scenario of a rung in the stated configuration; `changes` are arguments of `rooflm.train`, before L."""
    asked: dict[str, Any] = CONFIGURATION | GENERATIONS[name] | MODES[mode] | changes
    if name.endswith("-L"):
        asked |= {k: LARGER * asked[k] for k in ("batch", "micro_batch")}
    return training_scenario(**asked)


def generation_estimate(name: str, mode: str = "calibrated", **changes: Any) -> TrainingEstimate:
    """A step of a rung in the stated configuration."""
    return train(generation_request(name, mode, **changes))


SHOWN = {
    "forward": "compute", "backward": "compute", "recompute": "compute", "tp_comm": "communication",
    "pp_comm": "communication", "dp_comm": "communication", "cp_comm": "communication", "ep_comm": "communication",
}  # fmt: skip
"""Part of a step -> the bar's segment; the rest (update, bubble, imbalance, host) is "other", as in Optimus."""


def generation_rows(last: str = "B200-NVS-L", mode: str = "calibrated", **changes: Any) -> list[dict[str, Any]]:
    """Seconds a sequence by system and segment, and over those of the last: system, segment, seconds, relative.

    `changes` are arguments of `rooflm.train` for all systems, such as dtype="bf16" for equal precision.
    """
    estimates = {name: generation_estimate(name, mode, **changes) for name in GENERATIONS}
    final = estimates[last]
    unit = float(final.step_time / final.scenario.workload.batch)
    rows: list[dict[str, Any]] = []
    for name, e in estimates.items():
        segments: dict[str, float] = {}
        for part, seconds in e.parts.items():
            segment = SHOWN.get(part, "other")
            segments[segment] = segments.get(segment, 0.0) + float(seconds)
        for segment, seconds in segments.items():
            each = seconds / float(e.scenario.workload.batch)
            rows.append({"system": name, "segment": segment, "seconds": each, "relative": each / unit})
    return rows
