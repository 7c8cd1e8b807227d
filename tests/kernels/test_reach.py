"""Every row of the calibration files is taken by some prediction: what none looks up is not shipped.

Every question that `rooflm.kernels` may put is put to the tables: each card in them and one of each generation that
nobody measured, each engine's kernels, each data type, each kind of kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pytest
from tables import load_constants

from rooflm.catalogue.fields import words_in
from rooflm.errors import UnknownNameError
from rooflm.kernels.attention import TENSOR_GROUP, WIDE_GROUP, decode_kernels, prefill_kernels
from rooflm.kernels.collectives import OPS, nearest
from rooflm.kernels.constants import ANY, FitRow, Match, lookup
from rooflm.kernels.elementwise import MEASURED_KERNEL
from rooflm.kernels.lookup import Where, nearest_of
from rooflm.kernels.moe import usual
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import names

Key = tuple[str, str, str, str, str]
QUANT = (
    "bf16", "fp16", "fp8", "fp8_block", "int8", "int8_wo", "int4_wo", "nvfp4", "mxfp4", "mxfp4_mxfp8",
)  # fmt: skip
"""Names that `kernels.lookup.weight_dtype` may give to quantised products."""
LINKS = ("nvlink", "pcie", "infiniband", "ethernet")
"""A kind of link for each choice of `collectives.nearest`."""
CHOSEN = ("min_latency", "plain", "marlin", "cutlass", "tiled", "triton", "untuned")
"""Kernels of experts beside the usual ones."""


def key(row: FitRow) -> Key:
    return (row.gpu, row.architecture, row.engine, row.dtype, row.kernel)


def places(rows: Iterable[FitRow]) -> list[tuple[str, str]]:
    """(card, generation) of every card measured, and an unmeasured card of each generation and of none of them."""
    measured = {(gpu, r.architecture) for r in rows for gpu in r.gpu.split() if gpu != ANY}
    others = {("", r.architecture) for r in rows if r.architecture != ANY}
    return sorted(measured | others | {("", "")})


def attention(w: Where, sizes: Iterable[int]) -> Iterator[Match]:
    """Each head size, and each side of what kernels ask of the query heads a KV head."""
    for size, narrow in itertools.product(sizes, (False, True)):
        yield nearest_of("attention", w, "bf16", prefill_kernels(narrow, size))
        yield nearest_of("attention", w, "fp8" if narrow else "bf16", decode_kernels(TENSOR_GROUP, size))
    for group, dtype in itertools.product((1, TENSOR_GROUP - 1, WIDE_GROUP + 1), ("bf16", "fp8")):
        yield nearest_of("attention", w, dtype, decode_kernels(group, 128))


def questions(family: str, w: Where, sizes: Iterable[int]) -> Iterator[Match]:
    """Every look-up of a family on one card with one engine's kernels."""
    ask = (family, w.gpu, w.generation, w.kernels)
    if family == "gemm":
        yield from (lookup(*ask, dtype) for dtype in QUANT)
    elif family == "attention":
        yield from attention(w, sizes)
    elif family == "mla":
        yield from (lookup(*ask, "bf16", kernel) for kernel in ("mla-prefill", "mla-sparse"))
        if w.generation == "blackwell":  # narrow_prompts
            yield lookup(*ask, "fp8", "mla-prefill")
        if w.generation in ("hopper", "blackwell"):  # picked_on
            yield lookup(*ask, "fp8", "mla-decode-picked")
        yield from (lookup(*ask, dtype, "mla-decode") for dtype in ("bf16", "fp8"))
        for kernel in ("mla-decode", "mla-prompts"):  # engine.attention
            yield lookup(*ask, "bf16", f"{kernel}-triton")
    elif family == "elementwise":
        yield from (lookup(*ask, "fp16", kind) for kind in set(MEASURED_KERNEL.values()))
    elif family == "moe":
        for dtype, split in itertools.product(QUANT, (False, True)):
            yield usual(w.gpu, w.generation, w.kernels, dtype, split)
    else:
        for op, library, link in itertools.product(OPS, ("nccl", "flashinfer", w.kernels), LINKS):
            try:
                yield nearest(op, gpu=w.gpu, generation=w.generation, library=library, kind=link)
            except UnknownNameError:  # an engine has no kernels of its own but for all_reduce
                continue


@pytest.mark.parametrize("family", ["gemm", "attention", "mla", "moe", "elementwise", "collective"])
def test_every_row_is_looked_up(family: str) -> None:
    rows = load_constants(family)
    heads = {int(r.kernel.rpartition("-hd")[2]) for r in rows if "-hd" in r.kernel} | {128}
    kinds = [load_engine(name).kernels for name in names("engine")]
    whose = {k.whose for k in kinds} | {k.untuned for k in kinds} | {"flashinfer"}  # engine.untuned, as told
    taken = {
        key(found.row)
        for (gpu, generation), kernels in itertools.product(places(rows), sorted(whose))
        for found in questions(family, Where(gpu, generation, kernels, "bf16", "bf16"), sorted(heads))
    }
    named = {word.partition(":")[0] for k in kinds for word in words_in(f"{k.experts}, {k.experts_of}")}  # by rows
    told = [r for r in rows if family == "moe" and (r.kernel in CHOSEN or r.family in named)]
    assert [key(r) for r in rows if key(r) not in taken and r not in told] == []
