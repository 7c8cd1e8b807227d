"""Recurrent mixers as ops: Mamba, gated DeltaNet, Kimi delta attention, lightning attention, short convolutions."""

from __future__ import annotations

from typing import NamedTuple

from rooflm.catalogue.fields import number_by_name
from rooflm.catalogue.model import LinearAttention
from rooflm.graph.context import Context, plain_norms
from rooflm.graph.ops import PLAIN_NORM, Comm, Op, gemm, stream
from rooflm.units import Num, ceil, is_plain, pick

PLAIN_GATED = PLAIN_NORM + 30.0
"""Bytes a value of transformers' gated norm: a norm, the gate to fp32 (6), its SiLU (8), product (10) and back (6)."""
CHUNK = 64
"""Tokens of a chunk of a scan over a prompt (FLA_CHUNK_SIZE of vLLM and SGLang; FlashInfer's, too)."""


class Recurrence(NamedTuple):
    """What sets a kind apart. delta: the state is corrected by what it holds of a key already (the delta rule); gates:
    values of gates a head; scan_kernels: Triton's kernels of a layer's scan over a prompt by chunks."""

    delta: bool = False
    gates: int = 1
    scan_kernels: int = 2


RECURRENCES = {
    "gated-delta": Recurrence(True, 2, 8), "kda": Recurrence(True, 1, 9), "mamba2": Recurrence(scan_kernels=5),
    "mamba1": Recurrence(), "lightning": Recurrence(gates=0),
}  # fmt: skip
"""Kernels of gated deltas: norms of q and k, cumsum, k k^T, its inverse, w and u, states, output; Kimi's take two for
k k^T (fla/ops, chunk.py and kda.py). Of Mamba-2: cumsum, chunks' states, their passing on, products of B and C, output
(mamba_ssm, ssd_combined.py)."""


def recurrent_ops(c: Context, count: Num, a: LinearAttention) -> list[Op | Comm]:
    """A recurrent mixer: projections, short convolution, scan, gated norm, output.

    Engines keep gated DeltaNet's two gates a head as a product of their own, in 16 bits (in_proj_ba of
    modeling_qwen3_next.py). Kimi delta attention's decay and output gate go through a head's width (f_a, f_b, g_a, g_b:
    arXiv 2510.26692)."""
    if a.kind == "conv":
        return short_convolution(c, count, a)
    h, t, tokens, b, part = c.model.hidden, c.mapping.tp, c.tokens, c.quant.half_bytes, "attention"
    of, heads, keys = RECURRENCES[a.kind], ceil(a.heads / t), ceil(a.key_heads / t) * a.state
    inner, gates, gated, low = heads * a.head_dim, heads * of.gates, a.kind == "gated-delta", a.kind == "kda"
    mixed = inner + 2 * keys
    plain = gated and c.training and plain_norms(c.model, c.kernels)
    norm, each = ("plain_norm", PLAIN_GATED) if plain else ("gated_norm", 3 * b)
    separate_gates = gated and not c.training and not c.kernels.epilogue
    small = number_by_name(c.kernels.scan_chain, a.kind, 0.0) if c.work.decode else 0.0
    convolved = 2 * (tokens + c.states * a.conv) * mixed * b
    return [
        c.product("in_proj", part, count, (2 * a.head_dim if low else inner) + mixed + gates * (not separate_gates), h),
        *([c.product("in_gates", part, count, 2 * inner, a.head_dim)] if low else []),
        *([gemm("in_gates", part, count, tokens, gates, h, (b, b, b))] if separate_gates else []),
        *([stream("scan_chain", part, "index", count, small * 2 * tokens * inner * b, small)] if small else []),
        stream("conv", part, "conv", count, convolved, 1 + c.kernels.delta_chain * of.delta),
        *scan_ops(c, count, a, heads, mixed),
        stream(norm, part, "norm", count, each * tokens * inner),
        c.product("out", part, count, h, inner),
    ]


def scan_ops(c: Context, count: Num, a: LinearAttention, heads: Num, mixed: Num) -> list[Op | Comm]:
    """The scan of `heads` states over the tokens, of `mixed` values each (x, B and C, or v, k and q).

    A state (head_dim x state, fp32) is read and written once a pass, and more often where an engine runs a chain of
    kernels (`delta_passes`); a prefill multiplies chunks of tokens (Mamba-2, arXiv 2405.21060, section 6; gated
    DeltaNet, arXiv 2412.06464), or takes token by token on vector units (`delta_steps`). shape: (tokens in turn of a
    sequence, whether it is a gated delta's, FLOPs a clock that an SM takes in decoding)."""
    of, k, p, b, inner = RECURRENCES[a.kind], c.kernels, c.work.prefill, c.quant.half_bytes, heads * a.head_dim
    gated = a.kind == "gated-delta"
    chunk_flops = p.tokens * 2.0 * CHUNK * heads * (a.state + a.head_dim) * (1 + of.delta) if p else 0.0
    state_flops = c.tokens * heads * a.head_dim * a.state * (8.0 if of.delta else 6.0)
    passes = pick(bool(p) and gated and k.mixed_scans, 6.0, pick(of.delta, k.delta_passes, 2.0))
    state_bytes = passes * c.states * heads * a.head_dim * a.state * 4.0
    kernels = pick(k.delta_chain > 0, 2, of.scan_kernels) if p and not c.training else 2
    steps = inner * a.state * k.delta_steps * of.delta if p else 0.0
    rate = {"gated-delta": k.delta_rate, "mamba2": k.mamba_rate}.get(a.kind, 0.0)
    in_turn = p.new * of.delta if p else 0
    flops, moved = state_flops + chunk_flops, state_bytes + c.tokens * (mixed + inner) * b
    shape, widths = () if c.training else (in_turn, gated, rate), (b, 4.0, b)
    scan = Op("scan", "attention", "scan", count, flops, moved, shape, widths, "half", kernels)
    by_token = stream("steps", "attention", "scan", count, 0.0, 0, c.tokens * steps)
    return [scan] if is_plain(steps, 0) else [scan, by_token]


def short_convolution(c: Context, count: Num, a: LinearAttention) -> list[Op | Comm]:
    """A gated short convolution (LFM2): one projection to two gates and a value, the convolution between them, out.

    Source: transformers, modeling_lfm2.py, Lfm2ShortConv."""
    h, tokens, b, part = c.model.hidden, c.tokens, c.quant.half_bytes, "attention"
    inner = ceil(a.heads / c.mapping.tp) * a.head_dim
    return [
        c.product("in_proj", part, count, 3 * inner, h),
        stream("conv", part, "conv", count, (4 * tokens + 2 * c.states * a.conv) * inner * b, 3),
        c.product("out", part, count, h, inner),
    ]
