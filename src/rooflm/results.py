"""An estimate as plain names and numbers: the keys of --json, the columns of files, the variables of a Dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflm.inference import InferenceEstimate

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
}
"""Key -> (meaning, unit), for nested keys of the group."""


def infer_values(e: InferenceEstimate) -> dict[str, Any]:
    """Every output of an inference estimate by its JSON key; groups are dicts. Values may be arrays."""
    return {
        "ttft_s": e.ttft,
        "tpot_s": e.tpot,
        "tpot_end_s": e.tpot_end,
        "latency_s": e.latency,
        "output_tokens_per_s": e.output_tokens_per_s,
        "output_tokens_per_s_per_gpu": e.output_tokens_per_s_per_gpu,
        "requests_per_s": e.requests_per_s,
        "memory_bytes": e.memory.total,
        "memory_capacity_bytes": e.memory.capacity,
        "memory": e.memory.parts,
        "fits": e.fits,
        "reason": e.reason,
        "max_batch": e.max_batch,
        "comm_bytes": e.comm_bytes,
        "comm_detail": e.comm_detail,
        "prefill_parts_s": e.prefill_parts,
        "decode_parts_s": e.decode_parts,
        "bound": e.bound,
        "mfu": e.mfu,
        "mbu": e.mbu,
        "prefill_mfu": e.prefill_mfu,
        "decode_mbu": e.decode_mbu,
        "busy": e.busy,
        "energy_j_per_token": e.energy_per_token,
        "power_w": e.power,
        "cost_usd_per_million_tokens": e.cost_per_million_tokens,
        "gpus": e.gpus,
    }


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
