"""Reports of an exploration as tidy columns: where the time goes, what stops helping, GEMM by GEMM, Pareto fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.causes import CAUSES
from rooflm.asked.assumed import usual_engine
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.model import MLP, Attention
from rooflm.errors import RooflmError
from rooflm.graph.ops import Op, bmm, gemm
from rooflm.kernels.rates import rates
from rooflm.kernels.roofline import BOUNDS, time_ops
from rooflm.technology.build import build
from rooflm.technology.description import Shares, Technology
from rooflm.technology.explore import Columns
from rooflm.technology.load import die_device, load_technology, why_off


def shares(table: Columns) -> Columns:
    """Share of the time by cause at each row; they sum to 1 where it fits.

    >>> t = {f"{c}_s": np.array([1.0 if c == "dram" else 0.0]) for c in CAUSES} | {"time_s": np.array([1.0])}
    >>> float(shares(t)["dram"][0])
    1.0
    """
    return {c: table[f"{c}_s"] / table["time_s"] for c in CAUSES}


def select(table: Columns, **wanted: Any) -> Columns:
    """The rows whose columns have the wanted values.

    >>> select({"a": np.array([1, 2]), "b": np.array([3, 4])}, a=2)["b"].tolist()
    [4]
    """
    keep = np.all([table[k] == v for k, v in wanted.items()], axis=0)
    return {k: v[keep] for k, v in table.items()}


def stops_helping(
    rate: Sequence[float] | NDArray[Any], time: Sequence[float] | NDArray[Any], least: float = 0.5
) -> int:
    """Index of the first step from which more of a rate returns less than `least` of what it promises.

    Rates go upwards; the return of a step is log(t_i / t_(i+1)) / log(r_(i+1) / r_i): 1 where the rate is what bounds,
    0 where it helps nothing. The last index where it never stops.

    >>> stops_helping([1, 2, 4, 8], [8.0, 4.0, 3.6, 3.5])
    1
    """
    r, t = np.asarray(rate, dtype=float), np.asarray(time, dtype=float)
    gained = np.log(t[:-1] / t[1:]) / np.maximum(np.log(r[1:] / r[:-1]), 1e-12)
    low = np.flatnonzero((gained < least) & (r[1:] > r[:-1] * (1 + 1e-9)))
    return int(low[0]) if low.size else len(r) - 1


def layer_products(model: Any, prompt: int, batch: int) -> list[Op]:
    """The six products of a transformer layer, each head's attention products apart, in the names of Kundu et al.

    Source: Kundu et al. (arXiv 2407.14645), and DeepFlow's branch `llm`, which lists these six with their sizes.
    """
    block = next((b for b in model.blocks if isinstance(b.mixer, Attention) and isinstance(b.ffn, MLP)), None)
    if block is None:
        raise RooflmError(f"{model.name} has no layer of plain attention and MLP, whose six products this table lists")
    a, f, h, rows = block.mixer, block.ffn, model.hidden, prompt * batch
    assert isinstance(a, Attention) and isinstance(f, MLP)
    half = (2.0, 2.0, 2.0)
    heads = a.heads * batch
    return [
        gemm("X·W=KQV", "attention", 1, rows, (a.heads + a.kv_heads) * a.head_dim + a.kv_heads * a.v_dim, h, half),
        bmm("Q·K=R", "attention", 1, heads * prompt, prompt, a.head_dim, heads, 2.0),
        bmm("R·V=Z", "attention", 1, heads * prompt, a.v_dim, prompt, heads, 2.0),
        gemm("Z·W=O", "attention", 1, rows, h, a.heads * a.v_dim, half),
        gemm("O·WL1=O1", "mlp", 1, rows, f.width * (1 + f.gated), h, half),
        gemm("O1·WL2=O2", "mlp", 1, rows, h, f.width, half),
    ]


def gemm_bounds(
    model: str, gpus: Sequence[str], prompt: int = 200, batch: int = 1, efficiency: str = "ideal"
) -> Columns:
    """Every product of a prefill layer on several GPUs: time, what bounds it, its FLOP/B against the machine's.

    efficiency: ideal, factors, or calibrated, which takes the kernels of the usual engine as measured.
    """
    rows: list[tuple[Any, ...]] = []
    for gpu in gpus:
        s = build_inference(
            model=model, gpu=gpu, batch=batch, prompt=prompt, output=1, efficiency=efficiency, quant="bf16",
            engine=usual_engine("inference") if efficiency == "calibrated" else "ideal",
        ).scenario  # fmt: skip
        ops, r = layer_products(s.model.scaled, prompt, batch), rates(s)
        for op, timed in zip(ops, time_ops(ops, s), strict=True):
            sizes = [float(x) for x in op.shape[:3]]
            rows.append((gpu, op.name, *sizes, float(timed.time), BOUNDS[int(timed.bound)],
                         float(op.flops / op.bytes), float(r.peak["half"] / r.dram)))  # fmt: skip
    return columned(("gpu", "product", "m", "n", "k", "time_s", "bound", "flop_per_byte", "balance"), rows)


def columned(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    """Rows as columns of these names.

    >>> columned(("a", "b"), [(1, "x"), (2, "y")])["b"].tolist()
    ['x', 'y']
    """
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(names)}


def with_shares_of(t: Technology, others: Sequence[Technology]) -> Technology:
    """The technology with the mean plan of other dies, of area and of power; means of shares sum to 1 as they do."""

    def mean(group: str) -> Shares:
        each = [getattr(o.budget, group) for o in others]
        return Shares(**{f.name: sum(getattr(e, f.name) for e in each) / len(each) for f in fields(Shares)})

    return replace(t, budget=replace(t.budget, area=mean("area"), watts=mean("watts")))


def reconstruction(dies: Sequence[str], left_out: bool = False) -> Columns:
    """Known GPUs as the engine builds them from node and die, beside the catalogue's numbers, and the error of each.

    left_out: each with the mean shares of area and power of the other dies instead of its own, which were set with the
    GPU in view: what the engine would have foretold of it.
    """
    from rooflm.readers.devices import load_device

    plans = {die: load_technology(die, as_built=True) for die in dies}
    if left_out:
        plans = {d: with_shares_of(t, [o for other, o in plans.items() if other != d]) for d, t in plans.items()}
    rows: list[tuple[Any, ...]] = []
    for die in dies:
        reasons = {} if left_out else why_off(die)
        built, known = build(plans[die]).device, load_device(die_device(die))
        pairs = (
            ("16-bit compute", "FLOP/s", built.peak["fp16"], known.peak["fp16"]), ("SMs", "", built.sms, known.sms),
            ("clock", "Hz", built.clock, known.clock), ("L2 size", "B", built.l2.size, known.l2.size),
            ("L2 bandwidth", "B/s", built.l2.bandwidth, known.l2.bandwidth),
            ("L1 size", "B", built.l1.size, known.l1.size),
            ("L1 bandwidth", "B/s", built.l1.bandwidth, known.l1.bandwidth),
            ("memory size", "B", built.dram.size, known.dram.size),
            ("memory bandwidth", "B/s", built.dram.bandwidth, known.dram.bandwidth),
        )  # fmt: skip
        for name, unit, mine, theirs in pairs:
            off = float(mine) / float(theirs) - 1.0
            rows.append((die, name, unit, float(mine), float(theirs), off, reasons.get(name, "")))
    return columned(("die", "quantity", "unit", "engine", "catalogue", "error", "reason"), rows)
