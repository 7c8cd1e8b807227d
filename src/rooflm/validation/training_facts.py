"""What a training source says beyond the arguments of `rooflm.train` (network, overlap, widths): inputs by path."""

from __future__ import annotations

import re
from typing import Any

from rooflm.validation.request import Request

NODE = 8
"""GPUs of a node in every source that prints its network by node."""
ASYNC_TP = 0.7
"""Share of tensor-parallel communication that asynchronous TP may hide: its pieces leave the first and last
chunk of each exposed (torchtitan, arXiv 2410.06511; Wang et al. 2023, ASPLOS, "Overlap communication with dependent
computation")."""


def network_bandwidth(text: str) -> float | None:
    """B/s one way a GPU of "4x100 Gb/s Omni-Path a node" or "400 Gb/s a GPU"; None for other texts.

    >>> network_bandwidth("4x100 Gb/s Omni-Path a node"), network_bandwidth("400 Gb/s a GPU"), network_bandwidth("fast")
    (6250000000.0, 50000000000.0, None)
    """
    match = re.match(r"(?:(\d+)x)?(\d+) Gb/s.*(a node|a GPU)", text)
    if match is None:
        return None
    rate = int(match[1] or 1) * int(match[2]) * 1e9 / 8
    return rate / NODE if match[3] == "a node" else rate


def inputs(request: Request) -> dict[str, Any]:
    """{path: value} for `build_training(sets=...)`.

    >>> r = Request("x", "TT", "train", "step_time_s", 1.0, {}, ("m", "g"), "e", facts={"async_tp": True})
    >>> inputs(r)
    {'engine.tp_overlap': 0.7}
    """
    facts = request.facts
    sets: dict[str, Any] = {}
    bandwidth = network_bandwidth(str(facts.get("network", "")))
    if bandwidth is not None:
        sets["cluster.tiers.1.bandwidth"] = bandwidth
    if facts.get("async_tp"):
        sets["engine.tp_overlap"] = ASYNC_TP
    eager = request.source == "TT" and not facts.get("compile") and request.kwargs.get("dtype") == "bf16"
    if eager:  # 8-bit training in torchtitan needs the compiler
        sets["engine.fused"] = False
    if facts.get("recompute_layers"):
        sets |= {"mapping.recompute": "block", "mapping.recompute_layers": facts["recompute_layers"]}
    return sets
