"""Backward pass, recomputation, adapters and casts as rules on ops of the forward pass: there is no second graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rooflm.graph.adapted import beside
from rooflm.graph.ops import PREFILL_ATTENTION, Comm, Op, gemm, stream
from rooflm.scenario.training import Training
from rooflm.units import Num, is_plain, pick, smaller

FLASH_BACKWARD = 2.5
"""Backward over forward work of flash attention: five products against two (arXiv 2307.08691, section 4.1)."""

STREAM_BACKWARD = {
    "norm": 1.5, "plain_norm": 2.1, "cast_norm": 2.8, "add": 2 / 3, "activation": 5 / 3, "softmax": 1.5, "sample": 0.5,
    "embedding": 2.0, "conv": 2.0, "score_dropout": 1.0, "cp_merge": 1.0, "lora_in": 1.4, "index": 2.8,
    "cast_again": 3.0, "plain_gelu": 1.55,
}  # fmt: skip
"""Backward over forward traffic by name or kind, from the values that each reads and writes: a norm reads x and dy
and writes one (3 to 2), kernel by kernel 76 bytes to 36, of a cast residual 34 to 12 (itself again 12, x 8, dy 4, dx 4,
its cast 6); a residual add passes its gradient to the mask (2 to 3); a gated activation reads gate, up and gradient and
writes two (5 to 3), GELU written out moves 56 bytes to 36, under autocast 118 to 76; softmax reads its output and the
gradient and writes one (3 to 2), its dropout reads the mask and the gradient and writes one; a rotation is undone; the
loss writes its gradient over its input; an embedding reads the gradient and adds to fp32 rows; where a context group
merges partial outputs, it adds up partial gradients of the queries; an adapter also adds its input's gradient to the
product's; a cast of what another product has cast passes its gradient back and adds it in fp32 (6 to 6 and 12);
indexing adds rows up one by one (PyTorch's indexing_backward_kernel; docs/decisions/0122)."""

MIRROR = {"reduce_scatter": "all_gather", "all_gather": "reduce_scatter"}
"""The collective of the backward pass for one of the forward pass (its transpose), where it is another."""


class Rules(NamedTuple):
    """What the backward rules depend on."""

    grad_bytes: Num = 4  # of the weight gradients' buffer
    sequence_parallel: bool = False  # a gathered input is not stored but gathered again
    weights: Num = 1.0  # share of the weights that need gradients (0: frozen)
    rotated: bool = False  # gradients of gathered keys and values pass all ranks in fp32 (PyTorch's ring attention)


def backward(nodes: Sequence[Op | Comm], rules: Rules) -> list[Op | Comm]:
    """The backward pass of forward nodes, last node first."""
    each = (backward_comm(n, rules) if isinstance(n, Comm) else backward_op(n, rules) for n in reversed(nodes))
    return [node for made in each for node in made]


def backward_op(op: Op, rules: Rules) -> list[Op | Comm]:
    """The backward ops of one forward op."""
    if op.kind in ("gemm", "simt"):
        return product_backward(op, rules)
    if op.kind == "bmm":
        return [op._replace(name=f"{op.name}_dgrad", count=op.count * 2, role="dgrad")]
    name = f"{op.name}_backward"
    if op.kind in (*PREFILL_ATTENTION, "scan", "scores"):
        # a scan's chunked form is recomputed within the kernel, then differentiated (Mamba-2, arXiv 2405.21060)
        return [op._replace(name=name, count=op.count * FLASH_BACKWARD, role="dgrad")]
    factor = STREAM_BACKWARD.get(op.name, STREAM_BACKWARD.get(op.kind, 1.0))
    return [op._replace(name=name, bytes=op.bytes * factor, flops=op.flops * factor, role="dgrad")]


def product_backward(op: Op, rules: Rules) -> list[Op | Comm]:
    """dgrad dA[m, k] = dC[m, n] B'[n, k] and wgrad dB[k, n] += A'[k, m] dC[m, n], both of the forward's rate.

    The output's gradient is as wide as the product's activations; the weights' is read and written at grad_bytes."""
    m, n, k, *rest = op.shape
    groups = rest[0] if rest else 1.0
    (weight, act, out), same = op.widths, (op.rate, op.launches, op.of)
    dgrad = gemm(f"{op.name}_dgrad", op.part, op.count, m, k, n, (weight, act, out), *same, groups)
    dgrad, widths = dgrad._replace(role="dgrad", kind=op.kind), (act, act, 2.0 * rules.grad_bytes)
    # one product a group, of m / groups rows each: together as many rows of output as groups x k
    wgrad = gemm(f"{op.name}_wgrad", op.part, op.count * rules.weights, k * groups, n, m / groups, widths, *same)
    wgrad = wgrad._replace(role="wgrad", kind=op.kind)
    if rest:
        wgrad = wgrad._replace(bytes=wgrad.bytes + (m - m / groups) * n * act)
    return [dgrad] if is_plain(rules.weights, 0) else [dgrad, wgrad]


def backward_comm(comm: Comm, rules: Rules) -> list[Op | Comm]:
    """The mirror of a collective. Under sequence parallelism the gathered input of a product is gathered once more for
    its weight gradient (Korthikanti et al. 2022, section 4.2.2): part "tp_regather", which hides behind dgrad.

    >>> [c.op for c in backward_comm(Comm("x", "tp_comm", "reduce_scatter", 1, 8.0, 2, 1), Rules())]
    ['all_gather']
    """
    if comm.name == "loss_all_reduce":
        return []
    name = f"{comm.name}_backward" if comm.op in ("all_reduce", "all_to_all", "p2p") else comm.name
    mirrored = comm._replace(name=name, op=MIRROR.get(comm.op, comm.op))
    if comm.name in ("tp_reduce_scatter", "tp_all_gather", "cp_all_gather"):
        mirrored = mirrored._replace(name=comm.name.replace(comm.op, mirrored.op))
    if comm.group == "cp" and comm.op == "p2p":  # dK and dV travel with K and V
        mirrored = mirrored._replace(bytes=comm.bytes * 2)
    again = comm.name in ("tp_all_gather", "cp_all_gather")
    if rules.rotated and comm.name == "cp_all_gather":
        turns, share = comm.count * comm.ranks, 2 * comm.bytes / comm.ranks
        mirrored = comm._replace(name="cp_rotation", part="cp_rotation", op="p2p", count=turns, bytes=share)
    if again and (rules.sequence_parallel or comm.group == "cp"):
        return [mirrored, comm._replace(part=f"{comm.group}_regather")]
    return [mirrored]


def in_module(node: Op | Comm, modules: tuple[str, ...]) -> bool:
    """Whether a node belongs to one of these modules (`mapping.MODULES`): the core of unfused attention, norms, the
    up-projections of latent attention, the activation of experts, a dense feed-forward layer, a layer of experts.

    >>> up = gemm("up", "mlp", 1, 8, 8, 8, (2, 2, 2))
    >>> in_module(up, ("mlp",)), in_module(up, ("moe", "layernorm"))
    (True, False)
    """
    of = node.of if isinstance(node, Op) else ""
    chosen = {
        "core_attn": of == "core", "layernorm": of == "norm", "mla_up_proj": of in ("q_up", "kv_up"),
        "moe_act": of == "experts" and isinstance(node, Op) and node.kind == "activation",
        "mlp": node.part == "mlp", "moe": node.part in ("moe", "ep_comm"),
    }  # fmt: skip
    return any(chosen.get(module, False) for module in modules)


def recomputed(
    nodes: Sequence[Op | Comm], policy: str, share: Num = 1.0, early_stop: bool = False, modules: tuple[str, ...] = ()
) -> list[Op | Comm]:
    """Forward nodes that run again in the backward pass: none, the attention core ("selective"; Korthikanti et al.
    2022, section 5: flash attention does it by itself and stores nothing to run again for), or all (a share of the
    layers), and those of modules that run again by themselves.

    "ops" is torchtitan's selective policy: attention, reductions, exchanges (not with module "moe") and every other
    product are stored; the rest runs again, gathers of a tensor group too (`every_other`). early_stop: see
    `without_last`; of "ops" experts alone, which keep nothing, stop so."""
    if policy == "ops":
        exchanges = [n for n in nodes if n.part == "ep_comm" and "moe" in modules]
        return [n for n in [*every_other(nodes), *exchanges] if not (early_stop and n.name in EXPERTS_CLOSING)]
    if policy in ("full", "block"):
        return [times(node, share) for node in (without_last(nodes) if early_stop else nodes)]
    again = ("core_attn", *modules) if policy == "selective" else modules
    return [node for node in nodes if in_module(node, again)]


def times(node: Op | Comm, share: Num) -> Op | Comm:
    """The node with its count multiplied by `share`."""
    return node if is_plain(share, 1) else node._replace(count=node.count * share)


def without_last(nodes: Sequence[Op | Comm]) -> list[Op | Comm]:
    """Recomputation that stops as soon as the last tensor that the backward pass needs is there: the closing product of
    a dense feed-forward layer and its reduction are not run again, for nothing but the next layer reads their result.

    Sources: PyTorch 2.1, torch.utils.checkpoint.set_checkpoint_early_stop (on by default without re-entry); a compiler
    that drops dead code (XLA) does the same. Seen in llm-foundry's tables (docs/decisions/0027).

    >>> mlp = [gemm(n, "mlp", 1, 8, 8, 8, (2, 2, 2)) for n in ("up", "down")]
    >>> tp = [Comm(n, "tp_comm", n, 1, 8.0, 2, 1, "tp") for n in ("reduce_scatter", "all_gather")]
    >>> [n.name for n in without_last(mlp + tp)]
    ['up', 'all_gather']
    """
    kept: list[Op | Comm] = []
    closing = False
    for node in nodes:
        reduction = isinstance(node, Comm) and node.op in ("all_reduce", "reduce_scatter")
        if node.name in CLOSING or (closing and reduction):
            closing = not reduction
        else:
            closing = False
            kept.append(node)
    return kept


EXPERTS_CLOSING = ("experts_down", "experts_down_cast", "ep_combine", "combine", "latent_up")
CLOSING = ("down", "down_cast", *EXPERTS_CLOSING)
"""What follows the last tensor that a feed-forward layer's backward pass needs (experts weigh their pairs at the
activation, as Megatron-Core and DeepEP's users do, so that the router's gradient needs no output of theirs)."""


def every_other(nodes: Sequence[Op | Comm]) -> list[Op | Comm]:
    """What torchtitan's policy "op" runs again: of products in their order (q, k, v, out, gate, up, down) the second,
    fourth, ...; all elementwise kernels, and experts; all-gathers, for only reductions are stored. K, V: one node.

    Source: torchtitan, models/*/parallelize.py, `_op_sac_save_list` (no grouped product) and mm_count % 2."""
    again: list[Op | Comm] = []
    position = 0
    for node in nodes:
        if isinstance(node, Comm):
            again += [node] if node.op == "all_gather" and node.group == "tp" else []
        elif node.kind in ("gemm", "simt") and node.of != "experts":
            pair = node.of == "kv"
            position += 1 + pair
            if pair or position % 2 == 0:
                again.append(times(node, 0.5 if pair else 1))
        elif node.kind not in (*PREFILL_ATTENTION, "bmm"):
            again.append(node)
    return again


def quantisation(nodes: Sequence[Op | Comm], weight_passes: Num, again: Num = 0) -> list[Op | Comm]:
    """Casts that 8- and 4-bit training adds to the forward products: each reads its 16-bit input and writes it narrow,
    straight and transposed; the weights' casts are spread over the micro-batches that share them (`weight_passes` is
    the share of passes that cast them). Backward casts of the output's gradient come from the rule for "cast". `again`:
    bytes a value that the transposed copy reads of its own: 4 with a scale for every row (its columns' scales, then the
    cast), 2 where blocks of 32 down a column are cast by a kernel of their own (`Kernels.cast_apart`).

    Sources: Transformer Engine user guide, "FP8 primer" (scaled casts, transposes kept); torchao.float8, "rowwise";
    torchao, prototype/mx_formats/mx_linear.py, mx_mm.

    >>> one = gemm("up", "mlp", 1, 8, 16, 4, (1, 1, 2), "quant")
    >>> [quantisation([one], 0.0, again)[0].bytes for again in (0, 2, 4)]
    [128.0, 192.0, 256.0]
    """
    casts: list[Op | Comm] = []
    before = ""
    for op in nodes:
        if isinstance(op, Op) and op.rate == "quant" and op.kind == "gemm":
            m, n, k, *rest = op.shape
            weights, values = n * k * (rest[0] if rest else 1), m * k * (before != SAME_INPUT.get(op.name))
            before = op.name
            each = 2.0 + 2 * op.widths[1] + again
            moved = (values + weight_passes * weights) * each
            casts.append(stream(f"{op.name}_cast", op.part, "cast", op.count, moved, op.launches, of=op.of))
    return casts


SAME_INPUT = {"kv": "q", "up": "gate"}
"""Products that take the input of the product before them, cast once for both."""


def adapters(nodes: Sequence[Op | Comm], t: Training, into: Num = 0, wide: Num = 0) -> list[Op | Comm]:
    """Low-rank adapters beside the chosen products of frozen layers: x A (k to r) and (x A) B (r to n), then an add; of
    each expert as its own products are, or (experts_shared) of all on a rank in one.

    into: bytes that further kernels move a value of x (`Kernels.adapter_in`), over a base of fewer than 16 bits no more
    than in 16 bits (5: bitsandbytes leaves types to autocast); where there are any, scaling moves 4 beside the add's 6.
    wide: A and B of 32 bits are cast for each product, their gradients back (6 bytes a value, two kernels).

    Sources: Hu et al., "LoRA", arXiv 2106.09685, section 4.1; PEFT, tuners/lora/layer.py and bnb.py; ms-swift,
    LoraParallelLinear (experts: TEGroupedLinear); Megatron-Bridge, peft/lora.py, share_expert_adapters."""
    extra: list[Op | Comm] = []
    half, added = (2.0, 2.0, 2.0), 6.0 + 4.0 * (into > 0)
    moved = pick(np.asarray(t.base_bits) < 16, smaller(into, 5.0), into)
    for op, columns in beside(nodes, t.lora_modules, joined=True):
        (m, _, k, *groups), count = op.shape, op.count
        each = op.of == "experts" and "experts" in t.lora_modules
        own: tuple[Any, ...] = ("half", op.launches, "experts", *groups) if each else ()
        for n in columns:
            if not is_plain(into, 0):
                extra.append(stream("lora_in", op.part, "lora_in", count, m * k * moved))
            extra.append(gemm("lora_a", op.part, count, m, t.lora_rank, k, half, *own))
            extra.append(gemm("lora_b", op.part, count, m, n, t.lora_rank, half, *own))
            extra.append(stream("lora_add", op.part, "add", count, m * n * added))
            if not is_plain(wide, 0):
                extra.append(stream("lora_cast", op.part, "cast", count, 6.0 * t.lora_rank * (k + n), 2))
    return extra


def dequantised(nodes: Sequence[Op | Comm], bits: Num) -> list[Op | Comm]:
    """Before each product of a frozen narrow base a kernel writes its weights at 16 bits (QLoRA, arXiv 2305.14314)."""
    extra: list[Op | Comm] = []
    for op in nodes:
        if isinstance(op, Op) and op.kind == "gemm" and op.part in ("attention", "mlp", "moe"):
            _m, n, k, *rest = op.shape
            moved = n * k * (rest[0] if rest else 1) * (smaller(bits, 16) / 8 + 2.0)
            extra.append(stream("dequantise", op.part, "cast", op.count, moved))
    return extra
