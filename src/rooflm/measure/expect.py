"""What the project's own graph says of a measured case, without any device: FLOPs of products, bytes sent, KV cache."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import Model
from rooflm.estimate.step import by_name
from rooflm.graph.context import Context, Decode, Pass, Prefill
from rooflm.graph.forward import build
from rooflm.graph.ops import Comm, Op
from rooflm.kernels.roofline import comm_volume
from rooflm.measure.case import BYTES, Case
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

COUNTED = ("gemm", "attention", "decode_attention")
"""Kinds of operations whose FLOPs PyTorch's counter counts."""


class Expected(NamedTuple):
    """FLOPs of matrix products of one rank with scores counted in full squares (as eager attention computes them), and
    bytes that a rank sends: {name of the collective: bytes}."""

    flops: float
    sent: dict[str, float]


def kernels_of(case: Case) -> Kernels:
    """How PyTorch runs the case: nothing fused, the embedding split over the tensor group, flash attention by SDPA."""
    flash = case.attention == "sdpa"
    return Kernels(fused=False, flash=flash, vocab_parallel=True, merged=False, decode_flash=flash)


def expected(case: Case, model: Model, context: int = 0) -> Expected:
    """The prefill (context 0), or a decode step that attends to `context` tokens."""
    sequences = case.batch // case.dp
    work = Pass(None, Decode(sequences, context), sequences) if context else (
        Pass(Prefill(sequences, case.prompt), None, sequences)
    )  # fmt: skip
    mapping = Mapping(tp=case.tp, pp=case.pp, dp=case.dp)
    scheme, own = parse_quant(case.scheme), kernels_of(case)
    full = build(Context(model, work, mapping, scheme, replace(own, flash=False, decode_flash=False)))
    flops = sum(float(n.count * n.flops) for n in full if isinstance(n, Op) and n.kind in COUNTED)
    comms = [n for n in build(Context(model, work, mapping, scheme, own)) if isinstance(n, Comm)]
    return Expected(flops, {k: float(v) for k, v in by_name((n.name, comm_volume(n)) for n in comms).items()})


def by_rank(case: Case, model: Model, sent: dict[str, float], stage: int) -> dict[str, float]:
    """Bytes that a rank of pipeline stage `stage` sends, by kind of operation: its layers' reductions, the embedding's
    on the first stage, the logits' on the last, and one message to the next stage."""
    layers = float(np.asarray(model.layers))
    own = stage_layers(int(layers), case.pp)[stage]
    first, last = stage == 0, stage == case.pp - 1
    out = {"all_reduce": sent.get("tp_all_reduce", 0.0) * own / layers}
    out["all_reduce"] += sent.get("embedding_all_reduce", 0.0) * first
    out["all_gather"] = sent.get("logits_all_gather", 0.0) * last
    out["p2p"] = 0.0 if last else sent.get("pp_send", 0.0) / max(case.pp - 1, 1)
    return {k: v for k, v in out.items() if v}


def step_bytes(case: Case, model: Model, rank: int) -> float:
    """Bytes that a rank sends in a training step, as `rooflm train` predicts them (they depend on no device).

    Ranks send alike, but for a pipeline's: between two neighbours travel hidden states and their gradients, so the end
    stages send once and those between them twice; the end stages also reduce a tied embedding's gradient.
    """
    from rooflm.catalogue.engine import Engine
    from rooflm.catalogue.hardware import Cluster, Link
    from rooflm.estimate.training import train_scenario
    from rooflm.readers.devices import load_device
    from rooflm.scenario.scenario import Efficiency, Scenario, Workload
    from rooflm.scenario.training import Training

    cluster = Cluster("own", load_device("a100-sxm-80gb"), (Link("own", "ethernet", float(case.world), 1e9, 1e-6),))
    engine = Engine("own", phase="training").but(
        fused=False, zero=0, sequence_parallel=False, grad_bytes=BYTES[case.dtype]
    )
    mapping = Mapping(tp=case.tp, pp=case.pp, dp=case.dp, micro_batch=case.batch // case.dp, sp=False, zero=0)
    work = Workload(batch=case.batch, seq=case.prompt)
    found = train_scenario(Scenario(
        model, work, mapping, cluster, engine, parse_quant(case.scheme), Efficiency("ideal"),
        training=Training(master=False, clip=False),
    )).comm_bytes  # fmt: skip
    sent = {k: float(v) for k, v in found.items()}
    if case.pp == 1:
        return sum(sent.values())
    end = rank in (0, case.pp - 1)
    messages = sent.get("pp_send", 0.0) * case.pp / (case.pp - 1) / 2
    return messages * (1 if end else 2) + sent.get("tied_all_reduce", 0.0) * end


def stage_layers(layers: int, stages: int) -> list[int]:
    """Layers of each pipeline stage, the first ones fuller.

    >>> stage_layers(30, 4)
    [8, 8, 7, 7]
    """
    return [layers // stages + (i < layers % stages) for i in range(stages)]
