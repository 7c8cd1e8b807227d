"""Whole runs whose layout was never published: the range of GPU-hours that plausible layouts span.

LLaMA (Touvron et al. 2023, arXiv 2302.13971): table 15 prints GPU-hours on A100-80GB, section 2.1 batches of 4M tokens
of 2048, section 2.4 overlap, model and sequence parallelism and a backward pass that recomputes little;
degrees are not stated. What is checked is whether the published hours lie inside the range; no error is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

SEQ = 2048
BATCH = 2048  # sequences: 4.2M tokens
GPUS = 2048
CITATION = "LLaMA, arXiv 2302.13971, tables 2 and 15"


@dataclass(frozen=True)
class RangeRequest:
    """A published total and the keyword arguments (of rooflm.train) of every plausible layout; tokens of the run."""

    id: str
    model: str
    gpu_hours: float
    tokens: float
    layouts: tuple[dict[str, Any], ...]
    citation: str = CITATION


HOURS = {
    "llama-7b": (82_432, 1.0e12, (1, 2)),
    "llama-13b": (135_168, 1.0e12, (1, 2, 4)),
    "llama-33b": (530_432, 1.4e12, (1, 4, 8)),
    "llama-65b": (1_022_362, 1.4e12, (4, 8)),
}
"""Model -> published A100-80GB hours, tokens, tensor-parallel degrees that its size suggests."""


def layouts(model: str, degrees: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    """Fully sharded runs over the tensor degrees, one or two sequences a micro-batch, three policies of recomputation.

    >>> len(layouts("llama-65b", (4, 8)))
    12
    """
    fixed = {"gpu": "a100-sxm-80gb", "gpus": GPUS, "batch": BATCH, "seq": SEQ, "dtype": "bf16", "zero": "fsdp"}
    choices = product(degrees, (1, 2), ("none", "selective", "full"))
    return tuple(
        {"model": model, **fixed, "tp": tp, "dp": GPUS // tp, "sp": tp > 1, "micro_batch": micro, "recompute": policy}
        for tp, micro, policy in choices
        if micro * (GPUS // tp) <= BATCH
    )


def llama_hours() -> tuple[RangeRequest, ...]:
    """The four runs of LLaMA's table 15.

    >>> [r.model for r in llama_hours()]
    ['llama-7b', 'llama-13b', 'llama-33b', 'llama-65b']
    """
    return tuple(
        RangeRequest(f"llama-hours-{name[6:]}", name, hours, tokens, layouts(name, degrees))
        for name, (hours, tokens, degrees) in HOURS.items()
    )
