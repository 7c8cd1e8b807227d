"""Op and Comm: the two things a graph is made of, and their builders.

An Op carries its FLOPs and its compulsory device-memory traffic (each operand read once, each result written once);
how much more traffic a real kernel causes, and how long it takes, is for `kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.units import Num, expm1, is_plain, larger, log1p, pick, smaller, sqrt

PREFILL_ATTENTION = ("attention", "mla_attention")
"""Kinds of attention of new tokens."""
DECODE_ATTENTION = ("decode_attention", "mla_decode")
"""Kinds of attention of one token a sequence, which reads its cache."""
PRODUCTS = ("gemm", "simt", "bmm", *PREFILL_ATTENTION, "moe", "scan", "scores")
"""Kinds of a pass with prompts that multiply matrices; all others stream."""
PLAIN_NORM = 36.0
"""Bytes a value of plain PyTorch's RMS norm: to fp32 (6), square (8), mean (4), product (8), back (6), weight (4)."""


class Op(NamedTuple):
    """One kind of kernel launch on one device, executed `count` times in a pass through the whole model; flops and
    bytes are of one execution. A name is a label: it is compared whole and never parsed.

    kind: "gemm", "bmm" (batched products of unfused attention in training), "attention", "decode_attention",
    "mla_attention", "mla_decode", "moe", "scan", "scores" (of an indexer), "simt" (on fp32 units) or a streaming kind
    (norm, rope, activation, add, embedding, kv_write, sample, softmax, conv, route, gate: a biased route)."""

    name: str
    part: str  # the row of the breakdown that it belongs to
    kind: str
    count: Num  # type: ignore[assignment]  # shadows tuple.count, which nobody calls here
    flops: Num
    bytes: Num  # read and written
    shape: tuple[Num, ...] = ()  # what the kernel formula of that kind needs
    widths: tuple[Num, ...] = (2.0, 2.0, 2.0)  # bytes a value of the operands
    rate: str = "half"  # which compute rate applies: "quant", "rest", "half" or "vector"
    launches: Num = 1  # kernels issued by the host
    overlapped: Num = 0.0  # 1 where it runs beside longer ones, or as a part of one: only its roofline counts
    of: str = ""  # module of a layer, by which rules choose: "norm", "core", "experts", or the product's own name
    role: str = "forward"  # "decode" (experts without a prompt), "dgrad" (gradients of inputs), "wgrad", "update"
    columns: tuple[Num, ...] = ()  # of each part of a product of several (`adapted.SEVERAL`)


class Comm(NamedTuple):
    """One collective of one device, executed `count` times; ranks and stride place it on the cluster's tiers."""

    name: str
    part: str
    op: str
    count: Num  # type: ignore[assignment]  # shadows tuple.count, which nobody calls here
    bytes: Num  # of the full (gathered) message
    ranks: Num
    stride: Num
    group: str = "tp"  # or "pp", "dp", "cp", "ep"


def equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two rows of texts, numbers or arrays hold the same values (arrays of different shapes do not).

    >>> equal((1, np.ones(2)), (1.0, np.ones(2))), equal((1, np.ones(2)), (1, np.ones(3))), equal((1, 2), (1, 3))
    (True, False, False)
    """

    def same(x: Any, y: Any) -> bool:
        arrays = isinstance(x, np.ndarray) or isinstance(y, np.ndarray)
        return x is y or (np.array_equal(x, y) if arrays else x == y)

    return len(a) == len(b) and all(map(same, a, b))


def distinct(rows: Sequence[Sequence[Any]]) -> tuple[list[int], list[int]]:
    """Indices of the rows that differ from all earlier ones, and for each row that of its first equal among these."""
    first, which, seen = list[int](), list[int](), dict[Any, int]()
    for place, row in enumerate(rows):
        try:
            at = seen.setdefault(row, len(first))
        except TypeError:  # arrays have no hash
            at = next((i for i, index in enumerate(first) if equal(rows[index], row)), len(first))
        if at == len(first):
            first.append(place)
        which.append(at)
    return first, which


def stacked(values: Sequence[Num], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values broadcast to one shape and stacked along a new leading axis."""
    if shape == ():
        return np.array(values, dtype=float)
    out = np.empty((len(values), *shape))
    for row, value in zip(out, values, strict=True):
        row[...] = value
    return out


def columns(rows: Sequence[tuple[Num, ...]], shape: tuple[int, ...]) -> Sequence[NDArray[Any]]:
    """Rows of equally many values as arrays of their first, second ... values, each `stacked`."""
    if shape == ():
        return list(np.fromiter(chain.from_iterable(rows), float).reshape(len(rows), -1).T)
    return [stacked(column, shape) for column in zip(*rows, strict=True)]


def gemm(
    name: str, part: str, count: Num, m: Num, n: Num, k: Num, widths: tuple[Num, Num, Num], rate: str = "half",
    launches: Num = 1, of: str = "", groups: Num | None = None,
) -> Op:  # fmt: skip
    """C[m, n] = A[m, k] B[k, n]: 2 m n k FLOPs; widths are bytes a value of weights B, activations A, output C.

    of: the module it belongs to (none: its own name). groups: so many different B share the m rows (last in shape)."""
    (weight, act, out), shape = widths, (m, n, k) if groups is None else (m, n, k, groups)
    moved = k * n * weight + m * k * act + m * n * out
    if groups is not None:
        moved = moved + (groups - 1) * k * n * weight
    return Op(name, part, "gemm", count, 2.0 * m * n * k, moved, shape, widths, rate, launches, of=of or name)


def bmm(name: str, part: str, count: Num, m: Num, n: Num, k: Num, batch: Num, width: Num) -> Op:
    """`batch` products of the attention core in one kernel, [m / batch, k] by [k, n] each: m rows in all.

    shape: (m / batch, n, k, batch). Every operand has `width` bytes a value.

    >>> op = bmm("scores", "attention", 1, 4 * 128, 128, 64, 4, 2); float(op.flops), float(op.bytes)
    (8388608.0, 262144.0)
    """
    moved = (m * k + batch * k * n + m * n) * width
    shape, widths = (m / batch, n, k, batch), (width, width, width)
    return Op(name, part, "bmm", count, 2.0 * m * n * k, moved, shape, widths, of="core")


def stream(
    name: str, part: str, kind: str, count: Num, bytes_: Num, launches: Num = 1, flops: Num = 0.0,
    rows: Num | None = None, of: str = "", overlapped: Num = 0.0,
) -> Op:  # fmt: skip
    """A kernel that moves `bytes_` through device memory and computes next to nothing; rows: tokens, each of which one
    SM works on (None: spread over all); of: the module it belongs to; overlapped: as in Op."""
    shape = () if rows is None else (rows,)
    return Op(name, part, kind, count, flops, bytes_, shape, (0.0, 0.0, 0.0), "vector", launches, overlapped, of)


def attended(new: Num, past: Num, window: Num) -> Num:
    """Keys that a query sees on average, causal, the query itself included, within a window.

    Query i (0-based) of `new` tokens after `past` sees min(past + i + 1, window) keys.

    >>> float(attended(512, 0, float("inf"))), float(attended(1, 99, 64)), float(attended(4, 0, 2))
    (256.5, 64.0, 1.75)
    """
    growing = smaller(larger(window - past, 0.0), new)
    grow_sum = growing * past + growing * (growing + 1) / 2
    capped = new - growing
    return (grow_sum + pick(capped > 0, capped * smaller(window, past + new), 0.0)) / new


def distinct_experts(experts: Num, top_k: Num, tokens: Num, repeated_prompts: Num = 0.0, skew: Num = 0.0) -> Num:
    """Expected number of different experts that `tokens` tokens reach together, each choosing top_k of them.

    Uniform: E (1 - (1 - k/E)^T), each token missing an expert with probability 1 - k/E. Unequal popularity, of
    coefficient of variation `skew` (gamma distributed): E (1 - (1 + m s^2)^(-1/s^2)) with m = -T ln(1 - k/E), one less
    the share of zeros of a negative binomial; it tends to the former as s goes to 0. repeated_prompts: share r of the
    tokens that repeat another's choice (benchmarks that send one prompt many times): T^(1 - r) choose for themselves.
    Source: occupancy problem (Feller, volume 1, IV.2) and its gamma mixture."""
    free = tokens ** (1.0 - repeated_prompts)
    mean = -free * log1p(-smaller(top_k / experts, 1.0 - 1e-12))
    variance = larger(skew * skew, 1e-9)
    reached = experts * -expm1(-log1p(mean * variance) / variance)
    return larger(smaller(reached, free * top_k), smaller(free, 1.0) * top_k)


def popularity(experts: Num, top_k: Num, skew: Num) -> Num:
    """Coefficient of variation of the experts' popularity: sqrt((E / k)^(skew^2) - 1).

    A router takes the top k of E logits, each a bias of the expert (normal) plus what the token adds (normal). The
    logarithm of an expert's probability moves by the bias times the hazard rate of the normal law at the quantile k/E,
    which goes as sqrt(ln(E/k)); popularity is then log-normal with the variance skew^2 ln(E/k) of its logarithm. All
    experts taken: 0. `distinct_experts` takes a gamma of the same variation (docs/decisions/0032)."""
    return 0.0 if is_plain(skew, 0) else sqrt(expm1(skew * skew * np.log(experts / smaller(top_k, experts))))


def occupied(places: Num, draws: Num, row: Num = 0) -> Num:
    """Expected number of places that so many draws reach (ranks with a token's experts, adapters): R (1 - (1 - 1/R)^k).

    row > 0: a token takes neighbours of so many experts, from any first one: 1 + (k - 1) R / row, at most R.
    Source: occupancy problem (Feller, volume 1, IV.2); experts evenly over ranks, all drawn alike."""
    if not is_plain(row, 0):
        return smaller(1.0 + (draws - 1.0) * places / row, places)
    return places * -expm1(draws * log1p(-smaller(1.0 / places, 1 - 1e-12)))
