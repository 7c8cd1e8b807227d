"""What a training source, or the scripts of its runs, say beyond the arguments of `rooflm.train` (network, overlap,
widths, how experts ran): inputs by path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rooflm.readers.engine_releases import numbers
from rooflm_fit.convert.cells import shipped

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


GRAPHED = {"none": 0.0, "router": 0.5 / 3, "partial": 0.5, "full": 1.0}
"""Share of what the host issues in a layer of experts that CUDA graphs of such a scope hold. partial: attention, router
and preprocessing, about half of a layer's kernels by Megatron-LM's discussion of DeepSeek-V3 on GB200; inferred.
router: the same without attention, whose kernels are most of these: a third, inferred."""
OVERLAPPED = 0.7
"""Share of an exchange that may hide where it runs beside another micro-batch's compute: as ASYNC_TP."""
COMPILED_LOSS = 4.0
"""Bytes a logit where the loss is compiled: logits and their gradients at 16 bits, no copy in fp32 is ever whole.
Source: pytorch/torchtitan, PR 1033 (2025-04): the loss is compiled where training.compile is set."""
EAGER_LOSS = 12.0
"""The same before."""
FP8_ATTENTION = 740 / 1200
"""Time of fp8 attention over 16 bits: FlashAttention-3 (arXiv 2407.08608) reaches 740 TFLOP/s and close to 1200."""


def schedule_of(note: str) -> str:
    """The schedule that a note names; an empty text where it names none.

    >>> schedule_of("PP-algorithm 1f1b-interleaved(vpp2)"), schedule_of("MI300, v-half"), schedule_of("x")
    ('interleaved', 'v-half', '')
    >>> schedule_of("interleaved 1F1B (vpp2)"), schedule_of("ZB-V"), schedule_of("1F1B-overlap")
    ('interleaved', 'zb-v', '')
    """
    lower = note.lower().replace("zerobubble", "zero-bubble")
    known = shipped("sources")["schedules"]
    named = re.search(rf"(?<![\w-])(?:({')|('.join(known)}))(?![\w-])", lower)
    return "" if named is None or named.lastindex is None else str([*known.values()][named.lastindex - 1])


@dataclass(frozen=True)
class Run:
    """A training run as its table prints it: source, framework and release, resolved model and GPU, sharding and type
    of products, number of GPUs (0: not printed), whether it trains adapters, and what its row says beyond that."""

    source: str
    framework: str
    release: str = ""
    model: str = ""
    gpu: str = ""
    zero: str | int | None = None
    dtype: str | None = None
    gpus: int = 0
    adapters: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


def applies(
    run: Run, models: Sequence[str] = ("",), cards: Sequence[str] = ("",), dtypes: Sequence[str] = (),
    sharding: Sequence[str] = (), adapters: bool | None = None, first: str = "", last: str = "", least_gpus: int = 0,
) -> bool:  # fmt: skip
    """Whether a run meets the conditions of an entry of training_runs.toml; one without a release, no entry of some."""
    if (first or last) and not run.release:
        return False
    named = run.model.startswith(tuple(models)) and run.gpu.startswith(tuple(cards)) and run.gpus >= least_gpus
    ran = (not dtypes or run.dtype in dtypes) and (not sharding or run.zero in sharding)
    since = numbers(first or "0") <= numbers(run.release or "0") <= numbers(last or "99")
    return named and ran and since and adapters in (None, run.adapters)


def run_facts(run: Run) -> dict[str, Any]:
    """What training_runs.toml says of a run; later entries over earlier ones.

    >>> run_facts(Run("MBR", "megatron-bridge", "26.04", "kimi-k2", "gb300", dtype="mxfp8"))
    {'dispatcher': 'flex', 'graphs': 'none', 'recompute': ['mla_up_proj']}
    """
    found: dict[str, Any] = {}
    for row in shipped("training_runs").get(run.framework, []):
        found |= row["set"] if applies(run, **row["when"]) else {}
    return found


TRAINING = ("master", "remainders", "grad_bytes", "consecutive", "flushes")
"""What entries say that is an option of `Training` by the same name."""


def said_inputs(facts: dict[str, Any]) -> dict[str, Any]:
    """{path: value} of what a run's scripts or its row say of it.

    >>> said_inputs({"dispatcher": "alltoall", "graphs": "partial", "overlap": True})
    {'engine.dedup': False, 'engine.graphed': 0.5, 'engine.ep_overlap': 0.7}
    """
    sets: dict[str, Any] = {}
    if "dispatcher" in facts:
        sets["engine.dedup"] = facts["dispatcher"] != "alltoall"
    if "graphs" in facts:
        sets["engine.graphed"] = GRAPHED[facts["graphs"]]
    if facts.get("overlap"):
        sets["engine.ep_overlap"] = OVERLAPPED
    if facts.get("grouped"):
        sets["engine.grouped"] = True
    sets |= {f"engine.{name}": facts[name] for name in ("logit_bytes", "fused_loss") if name in facts}
    if facts.get("fp8_attention"):
        sets["engine.attention_factor"] = FP8_ATTENTION
    if facts.get("mtp"):
        sets["training.mtp"] = facts["mtp"]
    if facts.get("offload"):
        sets["training.offload_activations"] = facts["offload"]
    sets |= {f"training.{name}": facts[name] for name in TRAINING if name in facts}
    return sets


def inputs(run: Run) -> dict[str, Any]:
    """{path: value} that a run's row and its scripts say.

    >>> inputs(Run("TT", "torchtitan", facts={"async_tp": True}))
    {'engine.tp_overlap': 0.7, 'engine.logit_bytes': 12.0, 'engine.root': True}
    """
    facts = run.facts
    sets: dict[str, Any] = {}
    bandwidth = network_bandwidth(str(facts.get("network", "")))
    if bandwidth is not None:
        sets["cluster.tiers.1.bandwidth"] = bandwidth
    if facts.get("async_tp"):
        sets["engine.tp_overlap"] = ASYNC_TP
    if run.source == "TT" and not facts.get("compile") and run.dtype == "bf16":
        sets["engine.fused"] = False  # 8-bit training in torchtitan needs the compiler
    if run.source == "TT":
        sets["engine.logit_bytes"] = COMPILED_LOSS if facts.get("compiled_loss") else EAGER_LOSS
        sets["engine.root"] = True  # runs before pull request 1094 (2025-07)
    return sets | said_inputs(run_facts(run) | facts)
