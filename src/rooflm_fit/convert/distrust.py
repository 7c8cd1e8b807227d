"""Published rows that their own source contradicts: stated in advance, never fitted, scored apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST_TOKEN = "time to first token contradicts the latency of whole requests of the same runs"
HALF_SUMS = "prompts faster than the card's printed rate: sums in 16 bits, which go at twice that on GeForce"


def distrusted(source: str, values: Mapping[str, Any], gpu: str) -> str:
    """Why a row is not to be trusted; "" for all others.

    Argonne: times to first token on MI300X. TinyChat 2.0: prompts on GeForce, up to 1.5 times the rate that its maker
    prints for sums in 32 bits.
    """
    if source == "tinychat" and str(values.get("release")) == "2.0" and values["metric"] == "ttft":
        return HALF_SUMS
    if source == "argonne-amd" and gpu == "mi300x" and values["metric"] == "ttft":
        return FIRST_TOKEN
    return ""
