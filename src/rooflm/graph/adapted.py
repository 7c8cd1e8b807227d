"""Low-rank adapters beside a model's products: which have some, how large; of a server two grouped products each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rooflm.graph.context import Context
from rooflm.graph.ops import Comm, Op, occupied, stream
from rooflm.units import Num, is_plain, larger, smaller

SEVERAL = {"qkv": ("q", "k", "v"), "kv": ("k", "v"), "gate_up": ("gate", "up"), "experts_shared": ("experts",)}
"""One name of several products -> these products, in the order of `Op.columns`."""
SUM = 4.0
"""Bytes a value of the low-rank product between the two (vLLM's Triton kernels and Punica's keep it in fp32)."""


def beside(nodes: Sequence[Op | Comm], modules: Sequence[str], joined: bool = False) -> list[tuple[Op, list[Num]]]:
    """The products with adapters, each with the columns of its adapters, where these modules are named: one for each
    named part. joined: of a single kernel that is named as a whole, one for all (Megatron Bridge, LoRA).

    >>> kv = Op("kv", "attention", "gemm", 1, 0, 0, (8, 24, 64), launches=2, of="kv", columns=(16, 8))
    >>> [beside([kv], names)[0][1] for names in (["q", "v"], ["qkv"])], beside([kv], ["q", "out"])
    ([[8], [16, 8]], [])
    """
    named = {part for module in modules for part in SEVERAL.get(module, (module,))}
    found: list[tuple[Op, list[Num]]] = []
    for op in nodes:
        if isinstance(op, Op) and op.kind == "gemm":
            parts = zip(SEVERAL.get(op.of, (op.of,)), op.columns or op.shape[1:2], strict=True)
            whole = joined and op.of in modules and is_plain(op.launches, 1)
            columns = [op.shape[1]] if whole else [n for part, n in parts if part in named and not is_plain(n, 0)]
            found += [(op, columns)] if columns else []
    return found


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
    d = c.work.decode
    different = occupied(held, c.sequences)
    if d and c.kernels.adapter_by_token:
        different = d.sequences + (occupied(held, c.work.prefill.sequences) if c.work.prefill else 0)
    extra: list[Op | Comm] = []
    for op, columns in beside(nodes, a.modules):
        (m, _, k, *_), n = op.shape, sum(columns)
        r, wide, half = a.rank, a.rank * len(columns), c.quant.half_bytes
        shrink = (m * k + different * k * wide) * half + m * wide * SUM
        expand = m * wide * SUM + (different * r * n + 2.0 * m * n) * half
        for name, moved, flops in (("lora_shrink", shrink, m * wide * k), ("lora_expand", expand, m * r * n)):
            one = stream(name, op.part, "adapter", op.count * some, moved, of=name)
            extra.append(one._replace(flops=2.0 * flops, rate="half"))
    return extra
