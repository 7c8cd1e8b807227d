"""What kernels take in a training step over their calibrated time alone: data/calibration/training.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

from rooflm.catalogue.engine import Kernels
from rooflm.graph.backward import FLASH_BACKWARD
from rooflm.kernels.attention import PrefillConstants
from rooflm.kernels.constants import text_of

KINDS = {"fp8": "fp8", "int8": "fp8", "fp4": "fp4", "int4": "fp4"}
"""Computed data type -> by which the table has its constants ("half": all others)."""


@cache
def table() -> dict[str, Any]:
    """The tables of data/calibration/training.toml."""
    return tomllib.loads(text_of("training"))


def found(rows: dict[str, Any], device: str, architecture: str) -> dict[str, float]:
    """The factors of a device: those of its generation, with its own on top; empty if there are none.

    >>> found({"hopper": {"half": 1.2, "fp8": 1.0}, "h20": {"half": 1.1}}, "h20", "hopper"), found({}, "x", "y")
    ({'half': 1.1, 'fp8': 1.0}, {})
    """
    return {**rows.get(architecture, {}), **rows.get(device, {})}


def gemm(device: str, architecture: str, dtype: str, scheme: str = "") -> float:
    """Time of matrix products in a training step over their time alone. dtype: that they are computed in (KINDS);
    scheme: of the training run, which counts where it has kernels of its own (fp8-rowwise: CUTLASS, not cuBLAS)."""
    kind = KINDS.get(dtype, "half")
    row = found(table()["gemm"], device, architecture)
    factor = row.get(kind, row.get("half", 1.0))
    return factor * table()["scheme"].get(scheme, {}).get("gemm", 1.0) if kind == "fp8" else factor


def early(architecture: str, dtype: str) -> float:
    """Slowdown of products with a generation's first libraries; 1 where unknown.

    >>> early("blackwell", "fp8") > early("blackwell", "half") > 1 == early("hopper", "fp8")
    True
    """
    row = table()["early"].get(architecture, {})
    return float(row.get(KINDS.get(dtype, "half"), row.get("half", 1.0)))


def factor(family: str, name: str, device: str, architecture: str) -> float:
    """A factor of a family of kernels ("moe", "forward": grouped products of experts over single ones; "scan",
    "roofline": a recurrent mixer's chunked scan over its roofline; "reached", "copies": what streams reach at most)."""
    return found(table()[family], device, architecture).get(name, 1.0)


def scans(family: str, device: str, architecture: str) -> dict[str, float]:
    """Constants of a family of scans by chunks over prompts ("delta_scan": Triton's of gated deltas, "fused_scan":
    FlashInfer's, "scan": others): time over the roofline, share of it that goes chunk by chunk of a sequence, and s
    that one of these takes at least."""
    return {"roofline": 1.0, "share": 0.0, "chunk": 0.0} | found(table()[family], device, architecture)


def standing(kernel: str, device: str, architecture: str) -> str:
    """The attention kernel whose factors apply: the requested one, or what a library picks on this generation, if it
    was measured there, else the engines' default (cuDNN), else "".

    >>> standing("fa2", "h100-sxm-80gb", "hopper"), standing("fa1", "b200-sxm-180gb", "blackwell")
    ('fa2', 'cudnn')
    """
    rows, names = table()["attention"], (picked(kernel, architecture), Kernels().attention_kernel)
    return next((name for name in names if found(rows.get(name, {}), device, architecture)), "")


def picked(kernel: str, architecture: str) -> str:
    """The kernel that runs on a generation where a library that picks one was named.

    >>> picked("sdpa-2.8", "hopper"), picked("sdpa", "hopper"), picked("fa1", "hopper"), picked("cudnn", "cdna3")
    ('fa2', 'cudnn', 'fa1', 'aiter')
    """
    return str(table()["picked"].get(kernel, {}).get(architecture, kernel))


def of_mask(of: str, kernel: str, architecture: str) -> str:
    """The kernel of an attention op: `of`, if the graph named one, else the engine's. Masks of heads that cuDNN takes
    (of at most 128 values: sdp_utils.cpp, check_cudnn_tensor_shapes) go to cuDNN where that comes first.

    >>> of_mask("efficient-64", "sdpa", "hopper"), of_mask("efficient", "sdpa", "hopper"), of_mask("", "fa2", "hopper")
    ('cudnn', 'efficient', 'fa2')
    """
    first = picked(kernel, architecture)
    return first if of.startswith("efficient-") and first == "cudnn" else of or kernel


def attention(kernel: str, device: str, architecture: str) -> tuple[float, float]:
    """(time of an attention kernel's forward pass over its calibrated time, of a FLOP backward over one forward)."""
    row = found(table()["attention"].get(standing(kernel, device, architecture), {}), device, architecture)
    return row.get("forward", 1.0), row.get("backward", 1.0)


def trained(c: PrefillConstants, backward: bool) -> PrefillConstants:
    """Constants of a serving engine's prefill attention as they hold in training: its passes over queries, keys and
    values are kernels of their own there; a backward pass has one exponential a score for five products, not two."""
    plain = c._replace(kv_passes=0.0, qo_passes=0.0, lane_s=0.0)
    return plain._replace(softmax_dim=c.softmax_dim / FLASH_BACKWARD) if backward else plain
