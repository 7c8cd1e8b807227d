"""One kernel or one collective on a device: its time, what bounds it, the share of the datasheet that it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.asked.answers.bands import standing_in
from rooflm.asked.build_inference import Built, build_inference
from rooflm.asked.checks import whole
from rooflm.asked.refused import nearest
from rooflm.catalogue.model import MLP, Attention, Block, Model
from rooflm.errors import RooflmError
from rooflm.estimate.inference import infer_scenario
from rooflm.graph.ops import Comm, Op, gemm
from rooflm.kernels.collectives import ONE_HOP, OPS, by_tree, hierarchical, ranks_in_tiers, volume, ways
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import BOUNDS, Timed, time_nodes
from rooflm.scenario.rules import divisors
from rooflm.scenario.scenario import Scenario
from rooflm.shown.numbers import plural, text
from rooflm.units import Num, pick

CORE = ("attention", "decode_attention", "bmm", "softmax")
"""Kinds of op that make the core of attention, in one kernel or in several."""
ALGORITHMS = ("ring", "tree")
"""Algorithms that `by_algorithm` prices."""


@dataclass(frozen=True)
class Kernel:
    """The answer, SI units. time_s: as the engine's kernel takes; roofline_s: at the datasheet's rates; bound: what is
    longest; compute, memory: share of the peak FLOP/s and of the memory's B/s reached (of a collective: of what its
    links allow)."""

    name: str
    time_s: float
    roofline_s: float
    bound: str
    flops: float
    bytes: float
    compute: float
    memory: float
    device: str
    engine: str
    assumed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer in plain Python values."""
        return {**self.__dict__, "assumed": list(self.assumed)}


def counts(**sizes: float) -> None:
    """Refuse sizes that are not whole and at least 1."""
    for name, value in sizes.items():
        if np.ndim(value):
            raise RooflmError(f"{name} is {repr(value)[:60]}, but it must be one whole number: one kernel at a time")
        whole(name, value)


def on(model: Model, **arguments: Any) -> Built:
    """The scenario that holds device, engine, scheme and efficiency for a kernel of its own."""
    if isinstance(arguments["gpu"], str) and "," in arguments["gpu"] and not Path(arguments["gpu"]).exists():
        raise RooflmError(f"gpu is {arguments['gpu']!r}, but a kernel is predicted on one GPU: name one at a time")
    for name, value in arguments.items():
        if isinstance(value, list | tuple | np.ndarray):
            raise RooflmError(f"{name} is {repr(value)[:60]}, but it must be one, not a list: one kernel at a time")
    made = build_inference(model, **{k: v for k, v in arguments.items() if v is not None})
    own = standing_in(made.scenario)
    told = (f"{text} ({own})" if own and text == "efficiency calibrated" else text for text in made.assumed)
    return made._replace(assumed=tuple(told))


def stub(heads: int = 8, kv_heads: int = 8, head_dim: int = 128) -> Model:
    """A model of one layer with this attention, which hands a scenario what a kernel depends on."""
    hidden = heads * head_dim
    block = Block(1, Attention(heads, kv_heads, head_dim), MLP(4 * hidden, True))
    return Model("one layer", hidden, 32000, (block,))


def answer(name: str, timed: Sequence[Timed], request: Built) -> Kernel:
    """One or more kernels that run one after the other, as one."""
    s = request.scenario
    r = rates(s)
    ops = [t for t in timed if isinstance(t.node, Op)]
    seconds = sum(float(np.mean(t.total)) for t in ops)
    flops = sum(float(np.mean(t.node.count * t.node.flops)) for t in ops if isinstance(t.node, Op))
    moved = sum(float(np.mean(t.node.count * t.node.bytes)) for t in ops)
    roofline = sum(float(np.mean(t.node.count * t.roof)) for t in ops)
    slowest = max(ops, key=lambda t: float(np.mean(t.total)))
    peak = r.peak[slowest.node.rate] if isinstance(slowest.node, Op) else r.peak["half"]
    bound = BOUNDS[int(np.atleast_1d(slowest.bound)[-1])]
    return Kernel(name, seconds, roofline, bound, flops, moved, flops / seconds / float(peak),
                  moved / seconds / float(r.dram), s.cluster.device.name, s.engine.name, request.assumed)  # fmt: skip


def predict_gemm(
    m: float, n: float, k: float, *, gpu: str, quant: str | None = None, engine: str | None = None,
    efficiency: str | None = None,
) -> Kernel:  # fmt: skip
    """A matrix product C[m, n] = A[m, k] B[k, n] on one device: m rows of activations, B the weights.

    quant: the scheme of the product, such as bf16 or w8a8; engine, efficiency: as of `infer`. Raises RooflmError.

    >>> predict_gemm(4096, 4096, 4096, gpu="a100-sxm-80gb", efficiency="ideal").bound
    'compute'
    """
    counts(m=m, n=n, k=k)
    request = on(stub(), gpu=gpu, quant="bf16" if quant is None else quant, engine=engine, efficiency=efficiency)
    q = request.scenario.quant
    half = q.half_bytes
    widths = (q.weight_bytes, min(q.act_bytes, half), half)
    rate = "half" if float(max(q.weight_bits, q.act_bits)) >= 16 and float(q.weight_bits) >= 16 else "quant"
    op = gemm("gemm", "mlp", 1, float(m), float(n), float(k), widths, rate)
    return answer(f"{m:g} x {k:g} times {k:g} x {n:g}", time_nodes([op], request.scenario), request)


def predict_attention(
    phase: str, *, gpu: str, batch: float = 1, tokens: float = 512, heads: int = 32, kv_heads: int | None = None,
    head_dim: int = 128, quant: str | None = None, engine: str | None = None, efficiency: str | None = None,
) -> Kernel:  # fmt: skip
    """The core of one layer's attention on one device: scores, softmax, weighted values.

    phase: "prefill", of `tokens` new tokens a sequence, or "decode", of one token over a context of `tokens`. Raises
    RooflmError.

    >>> predict_attention("decode", gpu="a100-sxm-80gb", batch=8, tokens=4096, efficiency="ideal").bound
    'dram'
    """
    if not isinstance(phase, str) or phase not in ("prefill", "decode"):
        raise RooflmError(f"phase is {phase!r}, but it must be prefill or decode")
    groups = heads if kv_heads is None else kv_heads
    counts(batch=batch, tokens=tokens, heads=heads, kv_heads=groups, head_dim=head_dim)
    if heads % groups:
        near = nearest(divisors(int(heads)), groups)
        raise RooflmError(f"kv_heads is {groups}, but it must divide the {heads} heads: try {near}")
    prompt = tokens if phase == "prefill" else max(tokens - 1, 1)
    request = on(stub(heads, groups, head_dim), gpu=gpu, batch=batch, prompt=prompt, output=2,
                 quant="bf16" if quant is None else quant, engine=engine, efficiency=efficiency)  # fmt: skip
    timed = infer_scenario(request.scenario).timed[phase]
    core = [t for t in timed if isinstance(t.node, Op) and t.node.part == "attention" and t.node.kind in CORE]
    name = f"{phase} attention of {batch:g} x {tokens:g} tokens, {heads} heads over {groups} of {head_dim}"
    return answer(name, core, request)


def predict_collective(
    op: str, size: float, ranks: float, *, gpu: str, cluster: str | None = None, algorithm: str | None = None,
    engine: str | None = None, efficiency: str | None = None,
) -> Kernel:  # fmt: skip
    """A collective of `ranks` neighbouring devices on a message of `size` B (as gathered).

    op: one of kernels.collectives.OPS, however it is spelled (AllReduce, all-reduce); algorithm: "ring" or "tree" by
    its formula at the full rate of the slowest tier that the group crosses, else what the library is expected to take.
    Raises RooflmError.

    >>> e = predict_collective("all_reduce", 1e9, 8, gpu="h100-sxm-80gb", algorithm="ring")
    >>> round(e.time_s * 1e3, 2)
    3.92
    """
    letters = str(op).lower().replace("-", "").replace("_", "")
    known = next((name for name in OPS if name.replace("_", "") == letters), None)
    if known is None:
        raise RooflmError(f"collective is {op!r}, but it must be one of {', '.join(OPS)}")
    op = known
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise RooflmError(f"algorithm is {algorithm!r}, but it must be {' or '.join(ALGORITHMS)}")
    counts(ranks=ranks)
    if not isinstance(size, Real) or isinstance(size, bool) or not 0 <= size < np.inf:
        raise RooflmError(f"size is {repr(size)[:60]}, but it must be a number of bytes of at least 0, such as 1e6")
    request = on(stub(), gpu=gpu, cluster=cluster, engine=engine, efficiency=efficiency)
    s = request.scenario
    comm = Comm(op, "tp_comm", op, 1, float(size), float(ranks), 1.0)
    ideal = float(hierarchical(op, size, float(ranks), s.cluster.tiers))
    seconds = (time_nodes([comm], s)[0].time if algorithm is None
               else by_algorithm(op, size, ranks, algorithm, *slowest_tier(s, float(ranks))))  # fmt: skip
    share = ideal / float(seconds) if float(seconds) > 0 else 0.0
    way = f", {algorithm}" if algorithm else ""
    name = f"{op.replace('_', '-')} of {text(size, 'B')} by {plural(ranks, 'rank')}{way}"
    told = tuple(text for text in request.assumed if not text.startswith("quant "))
    return Kernel(name, float(seconds), ideal, "network", 0.0, float(volume(op, size, ranks)), 0.0, share,
                  s.cluster.name, s.engine.name, told)  # fmt: skip


def by_algorithm(op: str, bytes_: Num, n: Num, algorithm: str, bandwidth: Num, latency: Num) -> Num:
    """Seconds of one algorithm at full link rate, flat over all n ranks. Zero for one rank.

        ring    volume / B + 2(n-1) α      double binary tree    volume / B + 2 log2(n) α

    for all_reduce, half of the hops for reduce_scatter, all_gather and broadcast; all_to_all and p2p take one hop.
    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce" (2009); of the tree see `by_tree`.

    >>> [round(float(by_algorithm("all_reduce", 1e9, 1024, a, 25e9, 5e-6)) * 1e3, 2) for a in ("ring", "tree")]
    [90.15, 80.02]
    """
    if algorithm == "tree" or op in ONE_HOP:
        return by_tree(op, bytes_, n, bandwidth, latency)
    return pick(n > 1, volume(op, bytes_, n) / bandwidth + (n - 1.0) * ways(op) * latency, 0.0)


def slowest_tier(s: Scenario, ranks: float) -> tuple[Num, Num]:
    """B/s of a device and s a hop of the farthest tier that a group of neighbours reaches."""
    tiers = s.cluster.tiers
    held = ranks_in_tiers(ranks, [t.size for t in tiers])
    last = next((i for i, h in enumerate(held) if float(h) >= ranks), len(tiers) - 1)
    factor = s.efficiency.network if s.efficiency.mode == "flat" else 1.0
    return tiers[last].bandwidth * factor, tiers[last].latency
