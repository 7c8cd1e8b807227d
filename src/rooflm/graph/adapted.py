"""Low-rank adapters beside the products of a served model: two grouped products each for all of a pass's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflm.catalogue.model import MLA, MLP, Attention, LinearAttention, Model, MoE
from rooflm.graph.context import Context
from rooflm.graph.ops import Comm, Op, occupied, stream
from rooflm.units import Num, is_plain, larger, smaller

SEVERAL = {"qkv": ("q", "k", "v"), "kv": ("k", "v"), "gate_up": ("gate", "up")}
"""One name of several products -> these products, each of which has an adapter of its own."""
SUM = 4.0
"""Bytes a value of the low-rank product between the two (vLLM's Triton kernels and Punica's keep it in fp32)."""


def chosen(modules: Sequence[str]) -> dict[str, float]:
    """Adapted product -> share of its columns, for the modules named; keys or values alone are half of both.

    >>> chosen(["q", "v"])["kv"], sorted(chosen(["qkv"])) == sorted(chosen(["q", "k", "v"]))
    (0.5, True)
    """
    named = {product for module in modules for product in (module, *SEVERAL.get(module, ()))}
    half = {"kv": 0.5} if named & {"k", "v"} else {}
    whole = {*named, *(fused for fused, parts in SEVERAL.items() if named.issuperset(parts))}
    return half | dict.fromkeys(whole, 1.0)


def adapter_params(model: Model, rank: Num, targets: Sequence[str], tp: Num = 1) -> Num:
    """Parameters of a low-rank adapter on one of tp ranks: rank x (inputs + outputs) for each product of a layer (arXiv
    2106.09685), of which a rank has its share of the wide side and all of the hidden one.

    A name of several products ("qkv") is one adapter of all of them, and counts only where none is named by itself.
    Of latent attention and recurrent mixers the products that have these names count; routed experts are left out."""
    h, total = model.hidden, np.zeros(())
    named = {t for t in targets if not set(SEVERAL.get(t, ())) & set(targets)}
    for b in model.blocks:
        sizes: dict[str, Num] = {}
        if isinstance(b.mixer, Attention):
            m = b.mixer
            heads, groups = np.ceil(m.heads / tp), np.ceil(m.kv_heads / tp)
            q, k, v = h + heads * m.head_dim * (1 + m.gate), h + groups * m.head_dim, h + groups * m.v_dim
            sizes = {"q": q, "k": k, "v": v, "kv": k + v, "out": heads * m.v_dim + h}
            sizes["qkv"] = q + k + v - 2 * h
        elif isinstance(b.mixer, MLA):
            heads, qk = np.ceil(b.mixer.heads / tp), b.mixer.nope_dim + b.mixer.rope_dim
            sizes = {"q": (h + heads * qk) * (b.mixer.q_rank == 0), "out": heads * b.mixer.value_dim + h}
        elif isinstance(b.mixer, LinearAttention):
            sizes = {"out": np.ceil(b.mixer.heads / tp) * b.mixer.head_dim + h}
        width = b.ffn.width if isinstance(b.ffn, MLP) else b.ffn.shared_width if isinstance(b.ffn, MoE) else 0
        if b.ffn is not None and not is_plain(width, 0):
            wide = h + np.ceil(width / tp)
            sizes |= {"gate": wide * b.ffn.gated, "up": wide, "down": wide, "gate_up": 2 * wide - h}
        total = total + b.count * rank * sum(sizes.get(t, 0) for t in named)
    return total


def served(nodes: Sequence[Op | Comm], c: Context) -> list[Op | Comm]:
    """Beside each adapted product x W: x A of the token's own adapter (k to r, "shrink"), and (x A) B added to the
    output (r to n, "expand"), a kernel each for all adapters of the pass.

    A kernel reads each adapter that some sequence asks for once, or while decoding anew for every token (BGMV, where
    `Kernels.adapter_by_token` says so). It moves more than it computes (r FLOPs a byte of x), so it is a stream of what
    it reads and writes. Tensor ranks hold their columns (or rows) of B (or A) and all of the other (vLLM's default).

    Sources: Chen et al., "Punica" (arXiv 2310.18547), SGMV; Sheng et al., "S-LoRA" (arXiv 2311.03285)."""
    a = c.adapters
    if a is None or a.off:
        return []
    held: Num = np.asarray(a.held, dtype=float)
    some, held = smaller(held, 1.0), larger(held, 1.0)
    names, d = chosen(a.modules), c.work.decode
    different = occupied(held, c.sequences)
    if d and c.kernels.adapter_by_token:
        different = d.sequences + (occupied(held, c.work.prefill.sequences) if c.work.prefill else 0)
    extra: list[Op | Comm] = []
    for op in nodes:
        if not (isinstance(op, Op) and op.kind == "gemm" and op.of in names):
            continue
        m, n, k, *_ = op.shape
        r, wide, half = a.rank, a.rank * len(SEVERAL.get(op.of, (op.of,))) * names[op.of], c.quant.half_bytes
        n = n * names[op.of]
        shrink = (m * k + different * k * wide) * half + m * wide * SUM
        expand = m * wide * SUM + (different * r * n + 2.0 * m * n) * half
        for name, moved, flops in (("lora_shrink", shrink, m * wide * k), ("lora_expand", expand, m * r * n)):
            one = stream(name, op.part, "adapter", op.count * some, moved, of=name)
            extra.append(one._replace(flops=2.0 * flops, rate="half"))
    return extra
