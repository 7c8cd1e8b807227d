"""What passes of a scenario are made of: times of their kernels over tokens, past, sequences and context, worked out in
one array evaluation of `infer`'s own passes, before the engine's factors and host costs (which `steps` adds)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.estimate.offloaded import decode_seconds, device_part, host_watts, prompt_seconds
from rooflm.estimate.request import served_context, stalls
from rooflm.estimate.step import NONE_EAGER, EagerShares, eager_shares, flops_seconds, heat_seconds, joules, launches
from rooflm.graph.context import Decode, Pass, Prefill
from rooflm.graph.forward import build
from rooflm.graph.ops import Op
from rooflm.graph.recurrent import CHUNK
from rooflm.kernels.dispatch import FACTORS
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import Timed, level_times, time_groups, time_nodes
from rooflm.scenario.scenario import Scenario

Array = NDArray[np.float64]
CELLS = 48
"""Cells of the context axis (equal widths, so that a look-up is a division)."""
RATIO = 1.09
"""Ratio of neighbouring points of the token and sequence axes."""
EXCHANGE = "exchange"
"""Name of the experts' collectives, whose factor is that of all collectives."""
SHARED = ("moe_factor", EXCHANGE)
"""Names of what works on the tokens of all ranks of attention together: experts, and what goes to them and back."""
PREFIX_IN_L2 = 0.5
"""Share of L2 in which a prefix that many read stays for all (by hand: docs/decisions/0442)."""
HOST = "host layers"
"""Part of a pass that the host's CPU works on, which no factor of the engine's kernels scales."""


class TableSize(NamedTuple):
    """How far the tables go: tokens in a pass, decoding sequences of a rank, tokens of a sequence."""

    tokens: int
    sequences: int
    context: int


def ladder(last: int) -> Array:
    """Whole numbers from 1 to `last`: every one up to 16, then about 9 % apart, and multiples of 128 (of 512 from 8192
    on), where kernels step.

    >>> ladder(20).tolist()[-4:]
    [16.0, 17.0, 19.0, 20.0]
    """
    steps = int(np.ceil(np.log(max(last, 2)) / np.log(RATIO)))
    points = np.round(RATIO ** np.arange(steps + 1))
    tiles = np.concatenate([np.arange(128, min(last, 8192), 128), np.arange(8192, last, 512)])
    every = np.concatenate([np.arange(1, 17), points, tiles, [max(last, 1)]])
    return np.unique(np.minimum(every, max(last, 1))).astype(float)


class Group:
    """Nodes of passes that vary along the same axes. seconds, least: by the factor's name, what they take and what they
    take at least; hot: what FLOPs take of that (`flops_seconds`); head: what the output head takes, which the last
    stage of a pipeline has alone; joules: their dynamic energy."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.seconds: dict[str, Array] = {}
        self.least: dict[str, Array] = {}
        self.none = self.hot = self.head = self.joules = np.zeros(shape)

    def total(self, factor: Callable[[str], float], heat: float = 1.0, names: Collection[str] | None = None) -> Array:
        """Seconds of all, or of these kinds alone, each times its factor, but never above the roof. heat: factor of a
        pass with prompts (`heat_seconds`)."""
        out = self.none + heat_seconds(heat, self.hot)
        for name, value in self.seconds.items():
            if names is None or name in names:
                out += np.maximum(value * factor(name), self.least.get(name, 0.0))
        return out

    @property
    def roof(self) -> Array:
        """Seconds of all at least."""
        return sum(self.least.values(), self.none)


class Parts(NamedTuple):
    """Groups over (tokens,), (tokens, pasts), (sequences,) and (sequences, contexts)."""

    dense: Group
    prefill: Group
    decode: Group
    attention: Group


@dataclass(frozen=True)
class Components:
    """What a scenario's passes are made of, before the engine's factors and host costs.

    tokens, pasts, sequences, contexts: the axes; launches: kernels issued in a prefill-only, a decode-only and a mixed
    pass; draft: time of drafting over the verifying step's; experts: what is launched for them; mixed: what scans of
    decoding sequences take longer in a pass with prompts; reread: see `reread`; waits: what a part of a prompt, one of
    many in a pipeline, waits as a share of the way through it (`stalls`).
    """

    scenario: Scenario
    tokens: Array
    pasts: Array
    sequences: Array
    contexts: Array
    parts: Parts = field(repr=False)
    launches: tuple[float, float, float] = (0.0, 0.0, 0.0)
    draft: float = 0.0
    experts: EagerShares = NONE_EAGER
    mixed: Array | float = 0.0
    reread: tuple[float, float] = (0.0, 0.0)
    waits: float = 0.0

    @property
    def ranks(self) -> float:
        """Devices of a stage that work on a sequence together, of which the tables are those of one."""
        m = self.scenario.mapping
        return float(m.tp * m.cp)


def factor_name(t: Timed) -> str:
    """The engine's constant that scales a node's time, but `EXCHANGE` of the experts' collectives."""
    if isinstance(t.node, Op):
        return FACTORS.get(t.node.kind, "stream_factor")
    return EXCHANGE if t.node.group == "ep" else "collective_factor"


def grouped(timed: Sequence[Timed], s: Scenario, shape: tuple[int, int]) -> tuple[Group, Group]:
    """What of the nodes varies along the first axis only, and what along the second."""
    first, second = Group(shape[:1]), Group(shape)

    def home(value: Any) -> tuple[Group, Array]:
        value = np.asarray(value, float)
        inner = value.ndim == 2 and value.shape[1] > 1
        return (second, value) if inner else (first, value[:, 0] if value.ndim == 2 else value)

    for t in timed:
        name = factor_name(t)
        group, value = home(t.total)
        group.seconds[name] = group.seconds.get(name, group.none) + value
        if t.node.part == "logits":
            group.head = group.head + value
        if isinstance(t.node, Op):
            group, value = home(t.node.count * np.minimum(t.roof, t.time))
            group.least[name] = group.least.get(name, group.none) + value
            group, value = home(flops_seconds(t))
            group.hot = group.hot + value
            group, value = home(t.node.count * joules(t, s.cluster.device))
            group.joules = group.joules + value
    return first, second


def scanned(nodes: Sequence[Any], s: Scenario) -> Array:
    """Seconds of gated deltas' scans among the nodes of passes of so many sequences."""
    timed = time_nodes([n for n in nodes if isinstance(n, Op) and n.name == "scan" and n.shape[1]], s)
    return np.sum([np.asarray(t.total, float)[:, 0] for t in timed], axis=0)


def components(s: Scenario, size: TableSize, speculative: int = 0, draft: float = 0.0) -> Components:
    """Times of a scenario's passes over tokens, past, sequences and context, worked out once.

    Layers on the host are taken out of the scenario; their time is a part of its own. speculative: tokens guessed a
    step (a sequence then verifies 1 + that many tokens in a pass that reads its cache once); draft: cost of one guess
    as a share of a step."""
    tokens, sequences = ladder(size.tokens), ladder(size.sequences)
    pasts = size.context * np.array([0.0, 1 / 8, 1 / 2, 1.0])
    contexts: Array = np.arange(CELLS + 1, dtype=float) * (size.context / CELLS)
    contexts[0] = 1.0
    whole, s = s, device_part(s)
    k, m = s.engine.kernels, s.mapping
    column = tokens[:, None]
    rows = sequences[:, None]
    prefill = Pass(Prefill(1.0, column, pasts[None, :]), None, np.ones((1, 1)))
    decode = Pass(None, Decode(rows, contexts[None, :]), rows)
    each = 1 + speculative
    wide = Pass(None, Decode(rows * each, np.ones((1, 2)) * size.context, each), rows * each)
    both = Pass(Prefill(1.0, 1.0, 0.0), Decode(1.0, 2.0), 2.0)
    nodes = dict(enumerate(build(served_context(s, work)) for work in (prefill, decode, wide)))
    timed = time_groups(nodes, s)
    dense, attention_p = grouped(timed[0], s, (len(tokens), len(pasts)))
    _, attention_d = grouped(timed[1], s, (len(sequences), len(contexts)))
    decoding, _ = grouped(timed[2], s, (len(sequences), 2))
    mixed = [Timed(n, 0.0) for n in build(served_context(s, both))]
    prompts, steps, both_at_once = (float(np.max(launches(t))) for t in (timed[0], timed[1], mixed))
    if not s.offload.off:
        many = decode_seconds(whole, rows, contexts[None, :]) - decode_seconds(whole, rows, 0.0)
        taken = (prompt_seconds(whole, tokens), decode_seconds(whole, sequences * each, 0.0), many)
        for group, seconds in zip((dense, decoding, attention_d), taken, strict=True):
            group.seconds[HOST] = np.asarray(seconds, float)
            group.joules = group.joules + host_watts(whole) / (m.tp * m.cp) * group.seconds[HOST]
    parts = Parts(dense, attention_p, decoding, attention_d)
    one_by_one = EagerShares(*(float(np.max(n)) for n in eager_shares(timed[0], s)))
    by_chunks = k.mixed_scans and not speculative
    chunks = build(served_context(s, Pass(Prefill(rows, CHUNK), None, rows))) if by_chunks else []
    longer = scanned(chunks, s) - scanned(nodes[2], s) if chunks else 0.0
    twice = reread(timed[1], s, float(sequences[-1] * contexts[-1]))
    waits = float(np.max(stalls(s, timed[0], rates(s), 1e9) / 1e9 / m.pp))
    issued = (prompts, steps, both_at_once)
    return Components(
        s, tokens, pasts, sequences, contexts, parts, issued, speculative * draft, one_by_one, longer, twice, waits
    )


def reread(timed: Sequence[Timed], s: Scenario, tokens: float) -> tuple[float, float]:
    """What is spared where several sequences share a prefix: the longest prefix that counts (tokens whose keys and
    values of a layer fill half of L2), and the share of a token's time that is DRAM's, which all readers but the first
    are spared. timed: decoding's operations over `tokens` in all.

    Source: vLLM, v1/attention/backends/flash_attn.py (use_cascade_attention; not of latents: mla/common.py)."""
    ops = [t.node for t in timed if isinstance(t.node, Op) and t.node.kind == "decode_attention"]
    if not ops or not s.engine.kernels.cascade:
        return 0.0, 0.0
    r = rates(s)
    levels = [[float(np.max(op.count * t)) for t in level_times(op, r)] for op in ops]
    warm = sum(max(compute, l2, l1) for compute, _, l2, l1 in levels)
    widest = max(float(np.max(op.bytes)) for op in ops) / tokens
    return float(r.l2_size) * PREFIX_IN_L2 / widest, 1.0 - warm / sum(max(t) for t in levels)
