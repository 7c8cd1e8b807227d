"""An estimate as plain names and numbers: the keys of --json, the columns of files, the variables of a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rooflm.errors import RooflmError, near_matches
from rooflm.estimate.bands import around, band
from rooflm.estimate.inference import InferenceEstimate
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num

INFER_KEYS: dict[str, tuple[str, str]] = {
    "ttft_s": ("time to first token", "s"),
    "tpot_s": ("time per output token, mean over the output", "s"),
    "tpot_end_s": ("time per output token at the end of the output", "s"),
    "latency_s": ("request latency", "s"),
    "output_tokens_per_s": ("output tokens per second, all GPUs", "1/s"),
    "output_tokens_per_s_per_gpu": ("output tokens per second per GPU", "1/s"),
    "requests_per_s": ("requests per second", "1/s"),
    "memory_bytes": ("peak memory per GPU", "B"),
    "memory_capacity_bytes": ("memory that the engine may use per GPU", "B"),
    "memory": ("memory per GPU by part", "B"),
    "fits": ("fits in memory and the mapping is legal", ""),
    "reason": ("why it cannot run", ""),
    "max_batch": ("largest batch that fits", "1"),
    "comm_bytes": ("bytes sent by one GPU", "B"),
    "comm_detail": ("bytes sent by one GPU by collective", "B"),
    "prefill_parts_s": ("prefill time by part", "s"),
    "decode_parts_s": ("decode step time by part", "s"),
    "bound": ("what bounds the phase", ""),
    "mfu": ("model FLOP/s over peak, whole request", "1"),
    "mbu": ("memory bandwidth over peak, whole request", "1"),
    "prefill_mfu": ("model FLOP/s over peak, prefill", "1"),
    "decode_mbu": ("memory bandwidth over peak, decode", "1"),
    "busy": ("share of time with a kernel running", "1"),
    "energy_j_per_token": ("energy per output token", "J"),
    "power_w": ("mean power per GPU", "W"),
    "cost_usd_per_million_tokens": ("cost per million output tokens", "USD"),
    "gpus": ("GPUs used", "1"),
    "error_band": ("ends of the error band (10 to 90 % of measurements like it) and rows behind it", ""),
}
"""Key -> (meaning, unit), for nested keys of the group."""


def bands_around(s: Scenario, asked: Mapping[str, tuple[str, Num]]) -> dict[str, dict[str, Any]]:
    """Key -> (phase, predicted time) to key -> ends of the error band (s) and the number of published rows behind it;
    not-a-number and 0 rows where nothing was calibrated."""
    bands: dict[str, dict[str, Any]] = {}
    for key, (phase, value) in asked.items():
        found = band(phase, s.engine.runs, s.cluster.device.architecture) if s.efficiency.mode == "calibrated" else None
        low, high = around(value, found) if found else (value * np.nan, value * np.nan)
        bands[key] = {"low": low, "high": high, "rows": found.rows if found else 0}
    return bands


def error_band(e: InferenceEstimate) -> dict[str, dict[str, Any]]:
    """The error band of each time of a request (see `bands_around`)."""
    asked = {"ttft_s": ("prefill", e.ttft), "tpot_s": ("decode", e.tpot), "latency_s": ("request", e.latency)}
    return bands_around(e.scenario, asked)


_READ: dict[str, Callable[[InferenceEstimate], Any]] = {
    "ttft_s": lambda e: e.ttft,
    "tpot_s": lambda e: e.tpot,
    "tpot_end_s": lambda e: e.tpot_end,
    "latency_s": lambda e: e.latency,
    "output_tokens_per_s": lambda e: e.output_tokens_per_s,
    "output_tokens_per_s_per_gpu": lambda e: e.output_tokens_per_s_per_gpu,
    "requests_per_s": lambda e: e.requests_per_s,
    "memory_bytes": lambda e: e.memory.total,
    "memory_capacity_bytes": lambda e: e.memory.capacity,
    "memory": lambda e: e.memory.parts,
    "fits": lambda e: e.fits,
    "reason": lambda e: e.reason,
    "max_batch": lambda e: e.max_batch,
    "comm_bytes": lambda e: e.comm_bytes,
    "comm_detail": lambda e: e.comm_detail,
    "prefill_parts_s": lambda e: e.prefill_parts,
    "decode_parts_s": lambda e: e.decode_parts,
    "bound": lambda e: e.bound,
    "mfu": lambda e: e.mfu,
    "mbu": lambda e: e.mbu,
    "prefill_mfu": lambda e: e.prefill_mfu,
    "decode_mbu": lambda e: e.decode_mbu,
    "busy": lambda e: e.busy,
    "energy_j_per_token": lambda e: e.energy_per_token,
    "power_w": lambda e: e.power,
    "cost_usd_per_million_tokens": lambda e: e.cost_per_million_tokens,
    "gpus": lambda e: e.gpus,
    "error_band": lambda e: error_band(e),
}
"""JSON key -> how an estimate gives it. Costly ones (bound, reason) are worked out only when read."""


def infer_values(e: InferenceEstimate, names: Collection[str] | None = None) -> dict[str, Any]:
    """Outputs of an estimate by their JSON keys (all, or those named); groups are dicts. Values may be arrays."""
    return {k: read(e) for k, read in _READ.items() if names is None or k in names}


def check_outputs(names: Iterable[str], known: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """Names of outputs as asked for (a key, or a member of a group such as "memory.weights"), each known.

    >>> check_outputs(["tpot_s", "memory.weights"], INFER_KEYS)
    ('tpot_s', 'memory.weights')
    """
    listed = tuple(dict.fromkeys(names))
    for name in listed:
        if name.split(".")[0] not in known:
            near = near_matches(name, known) or list(known)[:6]
            raise RooflmError(f"unknown output {name!r}: did you mean {' or '.join(map(repr, near))}?")
    return listed


def chosen(flat: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """The outputs named, a group's name standing for its members; all without names.

    >>> chosen({"memory.weights": 1, "memory.context": 2, "tpot_s": 3}, ("memory.weights", "tpot_s"))
    {'memory.weights': 1, 'tpot_s': 3}
    """
    if names is None:
        return dict(flat)
    return {k: v for k, v in flat.items() if any(k == n or k.startswith(f"{n}.") for n in names)}


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as dotted names.

    >>> flatten({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`.

    >>> unflatten({"a": 1, "b.c": 2})
    {'a': 1, 'b': {'c': 2}}
    """
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        node = nested
        for group in groups:
            node = node.setdefault(group, {})
        node[leaf] = value
    return nested


def plain(value: Any) -> Any:
    """NumPy numbers, arrays and nested dicts as what JSON knows; not-a-number and infinity become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
