"""Megatron-LM's golden values: what their tests' flags and names say, as cells."""

from __future__ import annotations

import math
import re
from typing import Any

from rooflm_fit.convert.cells import Row, number, shipped, text

VIOLATION = {"aux_loss": 0.54, "bias": 0.04}
"""Tokens of the busiest expert over the mean, less 1, where a router learns on real text: with an auxiliary loss, and
with a bias of the experts. INFERRED: about a half and next to nothing is the order that Wang et al. 2024 print as
MaxVio ("Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts", arXiv 2408.15664); not checked against
their table."""
LAST_STAGE = "memory of the last pipeline stage, which is not the fullest"


def flags(row: Row) -> dict[str, str]:
    """The test's flags, as its row's note prints them.

    >>> flags({"note": "trust=B; swiglu=True; num-experts=8;"})["num-experts"]
    '8'
    """
    return dict(re.findall(r"([a-z][a-z0-9-]+)=([\w.]+)", text(row, "note")))


def told_sizes(row: Row) -> dict[str, Any]:
    """Sizes of a model whose test prints every flag, from its note."""
    found = flags(row)
    if "transformer-impl" not in found:
        return {}
    named = {"experts": "num-experts", "top_k": "moe-router-topk", "expert_ffn": "moe-ffn-hidden-size",
             "shared_ffn": "moe-shared-expert-intermediate-size", "head_dim": "kv-channels"}  # fmt: skip
    sizes: dict[str, Any] = {k: int(found[v]) for k, v in named.items() if found.get(v, "").isdigit()}
    learned = "position-embedding-type" not in found
    gated = found.get("swiglu") == "True"
    return sizes | {
        "gated": gated,
        "tied": found.get("untie-embeddings-and-output-weights") != "True",
        "positions": number(row, "seq") if learned else None,
        "norm": None if gated else "layer",
    }


def unbalanced(experts: int, ranks: float, router: str) -> float:
    """Tokens of the busiest rank over the mean: what experts deviate by evens out over those of a rank, as its root.

    >>> round(unbalanced(8, 8, ""), 2), round(unbalanced(8, 4, ""), 2), round(unbalanced(64, 16, "bias"), 2)
    (1.54, 1.38, 1.02)
    """
    return 1 + VIOLATION[router or "aux_loss"] / math.sqrt(max(experts / ranks, 1))


def golden(row: Row) -> dict[str, Any]:
    """What a test's configuration says: `ran` (cells), `sets` (inputs by path), `doubt` and `stand_in`.

    >>> said = golden({"model": "mixtral mixtral_8x7b_tp1pp4ep8vpp8_release", "ep": "8", "note": "num-experts=8"})
    >>> said["ran"], {name: round(value, 2) for name, value in said["sets"].items()}
    ({'gpus': 64, 'vp': 8, 'vocab': 32000}, {'training.imbalance': 1.54})
    """
    name, found = text(row, "model").split(" ")[-1], flags(row)
    told: dict[str, Any] = {}
    for case in shipped("golden")["case"]:
        if name.startswith(case["when"]["name"]) and text(row, "gpu").startswith(case["when"].get("card", "")):
            told |= case["set"]
    sets = {path: told.pop(path) for path in [*told] if "." in path}
    doubts, router = [told.pop("doubt", "")], told.pop("router", "")
    if text(row, "metric") == "memory_gb":  # torch's peak of allocated bytes on the last rank
        sets["engine.context"] = 0
        doubts += [LAST_STAGE] * ((number(row, "pp") or 1) > 1)
    if "moe-token-dispatcher-type" in found:
        sets["engine.dedup"] = found["moe-token-dispatcher-type"] != "alltoall"
    if found.get("num-experts", "").isdigit():
        sets["training.imbalance"] = unbalanced(int(found["num-experts"]), number(row, "ep") or 1, router)
    if found.get("mtp-num-layers", "").isdigit():
        sets["training.mtp"] = int(found["mtp-num-layers"])
    guessed = [told.pop("stand_in", "")]
    guessed += [f"{told['gpus']} GPUs, by what its last rank holds between steps"] if "gpus" in told else []
    listed = {"stand_in": guessed, "doubt": doubts}
    return {"ran": told, "sets": sets} | {k: "; ".join(d for d in v if d) for k, v in listed.items()}
