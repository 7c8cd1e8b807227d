"""Fit `kernels.moe.moe_time` to measured expert kernels: `python -m rooflm_fit.moe --data DIR --out FILE`.

DIR holds moe.parquet: gpu, backend, kernel, dtype, tokens, hidden, inter, topk, experts, tp, ep, distribution, time_us.
One set comes out for each generation of cards, engine, data type and family of kernels, fitted to all its cards at
once, and one an engine and data type over everything. Rows of balanced routing are fitted; those of power-law routing
only judge `routed` (but where there are no others). Errors out of sample are those of three fits that each left out a
third of the model shapes; the shipped constants fit all. A tenth of TensorRT-LLM's configurations ran untuned (whole
sets 2 to 7 times too slow, at random), and Triton kernels lack a tile table for most expert-parallel shapes: all rows
are kept, the fit is robust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.expert_kernels import filled
from rooflm.kernels.moe import MoEConstants, Routing, moe_time, routed
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_device
from rooflm.units import Num
from rooflm.validation.folds import held_out
from rooflm_fit.common import (
    CATALOGUE_GPU,
    GPUS,
    L2_SAVES,
    Array,
    Error,
    Param,
    error,
    fit,
    fit_row,
    fold_by_fold,
    folders,
    hot_share,
    measured_table,
    say,
    stacked,
    write_fits,
)

SKEW = 1.0
"""Variation of the experts' popularity that fits both power-law benchmarks (1.01, 1.2) best from 0, 0.5 .. 2.5."""
UNTUNED = 0.35
"""A usual kernel that reaches less of the DRAM's bandwidth ran without tuning: its row is named "untuned". (Not so for
4-bit weights: some kernels widen them first, and then move four times the bytes.)"""
FOLDS = 3
MOST_ROWS = 2500
"""Rows of a GPU in one fit; more do not move the constants."""
NOT_GATED = {(2688, 1856), (2048, 5120)}
"""(hidden, width) of the measured models without a gate projection."""


class Kind(NamedTuple):
    """A dtype of the tables: our name, bytes an element of weights and activations (scales included), rate's width."""

    name: str
    weight_bytes: float
    act_bytes: float
    bits: int


KINDS = {
    "bf16": Kind("bf16", 2.0, 2.0, 16),
    "fp8": Kind("fp8", 1.0, 1.0, 8),
    "fp8_block": Kind("fp8_block", 1.0, 1.0, 8),
    "nvfp4": Kind("nvfp4", 0.5625, 0.5625, 4),
    "w4a16_mxfp4": Kind("mxfp4", 0.53125, 2.0, 16),
    "w4a8_mxfp4_mxfp8": Kind("mxfp4_mxfp8", 0.53125, 1.03125, 8),
    "int4_wo": Kind("int4_wo", 0.515625, 2.0, 16),
}
FAMILIES = {
    "openai": ("oaitriton",), "min_latency": ("min_latency",), "plain": ("nongated",), "marlin": ("marli",),
    "deepgemm": ("deepgemm",), "trtllm": ("flashinfer_trtl",), "cutlass": ("cutl", "moe_torch_flow"),
    "flashinfer": ("nvfp4moe_flash",), "triton": ("triton", "fused_moe"),
}  # fmt: skip
"""Our name of a kernel family -> parts of the names in the tables; the first that matches counts."""
WARM = "warm"
"""Share of the L2 below which weights stay in it when a benchmark repeats: fitted with the rest, no constant of the
kernel."""
PARAMS = (
    Param("start", 1.5e-5, 1e-6, 2e-4), Param("expert", 1e-8, 1e-11, 1e-6), Param("eff_c", 0.7, 0.05, 1.2),
    Param("eff_m", 0.8, 0.1, 1.05), Param("c_sm", 2.0, 0.2, 10.0), Param("ramp", 5e-6, 1e-8, 6e-5),
    Param("wave", 5e-7, 1e-8, 2e-5), Param("eff_pass", 0.6, 0.05, 2.5), Param("stray", 0.2, 1e-3, 4.0),
    Param(WARM, 0.6, 0.02, 3.0, prior=1.0),
)  # fmt: skip
SOURCE = "ai-dynamo/aiconfigurator 095f58a (2026-08-21, Apache-2.0), measured tables"
HEADER = """Fitted constants of kernels.moe.moe_time (see MoEConstants), by generation, engine, dtype and kernel family.
Written by: python -m rooflm_fit.moe --data DIR --out FILE
kernel: "" is the engine's usual family on those cards; "tp" is that of whole experts, fitted to rows without
expert parallelism only (which engines tune best: use it where ep = 1); other families are named ("plain": no gate;
"triton tp": Triton's of whole experts, where it is not the usual one).
"untuned": measured several times slower than the same kernels elsewhere; the question falls back to another engine.
`_out`: three fits, each without a third of the model shapes; the constants are those of all shapes.
mxfp4: 4-bit weights, 16-bit activations; mxfp4_mxfp8: 4-bit weights, 8-bit activations.
l2: bandwidth of L2 over DRAM's of the cards of a set (geometric mean): a card's c_sm goes by its own."""


class Table(NamedTuple):
    """Measured rows as arrays; `fold` says in which fit a row is left out, `feed` is the card's bandwidth of L2 over
    DRAM's."""

    tokens: Array
    hidden: Array
    width: Array
    top_k: Array
    experts: Array
    tp: Array
    ep: Array
    gated: Array
    peak: Array
    bandwidth: Array
    sms: Array
    l2: Array
    feed: Array
    seconds: Array
    fold: Array
    even: Array

    def where(self, mask: NDArray[Any]) -> Table:
        return Table(*(column[mask] for column in self))


def read(data: Path) -> pd.DataFrame:
    """Rows of the GPUs and dtypes that we know, with columns `engine`, `kind` and `family`."""
    rows = measured_table(data / "moe.parquet")
    rows = rows[rows["gpu"].isin(CATALOGUE_GPU) & rows["dtype"].isin(KINDS)].copy()
    rows["gpu"] = rows["gpu"].map(CATALOGUE_GPU)
    families = {kernel: family_of(kernel) for kernel in rows["kernel"].unique()}
    rows["family"] = rows["kernel"].map(families)
    # its torch flow takes OpenAI's kernels for 4-bit float weights with wide activations on Hopper ("Deployment guide
    # for gpt-oss": MoE backend TRITON)
    hopper = rows["gpu"].str.startswith(("h100", "h200"))
    triton = (rows["backend"] == "trtllm") & (rows["dtype"] == "w4a16_mxfp4") & hopper
    rows.loc[triton, "family"] = "openai"
    return rows


def family_of(kernel: str) -> str:
    """Our name of a kernel family.

    >>> family_of("sglang_fused_moe_triton"), family_of("moe_torch_flow_nongated")
    ('triton', 'plain')
    """
    return next((name for name, parts in FAMILIES.items() if any(part in kernel for part in parts)), "triton")


def table(rows: pd.DataFrame, gpu: str, kind: Kind) -> Table:
    """Columns of one GPU and dtype. Folds go by model shape, or by (tp, ep) where there is only one shape."""
    card = GPUS[gpu]
    peak = {16: card.peak16, 8: card.peak8, 4: card.peak4}[kind.bits]
    names = ["hidden", "inter", "topk", "experts"]
    many = len(rows[names].drop_duplicates()) > 2
    groups = rows[names if many else ["tp", "ep"]].apply(tuple, axis=1)
    order = {group: index for index, group in enumerate(_shuffled(list(groups.unique())))}
    tokens, hidden, width, top_k, experts, tp, ep = (
        rows[name].to_numpy(float) for name in ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep")
    )
    hidden, on_rank = map(np.asarray, filled(rows["family"].iloc[0], kind.name, hidden, width / tp))
    gate = [0.0 if pair in NOT_GATED else 1.0 for pair in zip(rows["hidden"], rows["inter"], strict=True)]
    one = np.ones(len(rows))
    return Table(
        tokens, hidden, tp * on_rank, top_k, experts, tp, ep, np.array(gate), peak * one, card.bandwidth * one,
        card.sms * one, card.l2 * one, l2_share([gpu]) * one, rows["time_us"].to_numpy(float) * 1e-6,
        np.array([order[group] % FOLDS for group in groups], float),
        np.asarray(rows["distribution"] == "balanced", dtype=float),
    )  # fmt: skip


def _shuffled(groups: Sequence[Any]) -> list[Any]:
    """Groups in the order of a hash, so that folds are stable and share nothing with size."""
    shares = [[group for group in groups if held_out([group], share=part)[0]] for part in np.arange(0.02, 1.001, 0.02)]
    return list(dict.fromkeys(group for share in shares for group in share))


def balanced(tokens: Num, top_k: Num, experts: Num, ep: Num = 1) -> Routing:
    """Routing of the balanced benchmark: rows dealt out in turn, so min(T k, E) experts, equally many rows each.

    >>> [float(x) for x in balanced(4, 8, 128, ep=8)]
    [4.0, 4.0, 0.0]
    """
    pairs = tokens * top_k
    touched = np.maximum(np.minimum(pairs, experts) / ep, 1.0)
    return Routing(np.maximum(pairs / ep, touched), touched, 0.0)


def predict(rows: Table, kind: Kind, constants: Mapping[str, float]) -> Array:
    """The formula with a benchmark's routing and warm cache (s)."""
    even, random = (
        balanced(rows.tokens, rows.top_k, rows.experts, rows.ep),
        routed(rows.tokens, rows.top_k, rows.experts, rows.ep, SKEW),
    )
    routing = Routing(*(np.where(rows.even > 0, a, b) for a, b in zip(even, random, strict=True)))
    kernel = {k: v for k, v in constants.items() if k != WARM}
    held = routing.experts * rows.hidden * rows.width / rows.tp * (2.0 + rows.gated) * kind.weight_bytes
    return np.asarray(
        moe_time(
            rows.tokens, rows.hidden, rows.width / rows.tp, routing, top_k=rows.top_k, experts=rows.experts, ep=rows.ep,
            gated=rows.gated, card=Card(rows.peak, rows.bandwidth, rows.sms),
            fetched=1.0 - L2_SAVES * hot_share(held, rows.l2, constants.get(WARM, 0.0)),
            weight_bytes=kind.weight_bytes, act_bytes=kind.act_bytes, c=MoEConstants(**kernel).on(rows.feed),
        )
    )  # fmt: skip


def fit_table(rows: Table, kind: Kind) -> dict[str, float]:
    """Constants fitted to (at most MOST_ROWS of) the rows; `l2` is the mean of their cards."""
    chosen = rows
    if rows.seconds.size > MOST_ROWS:
        chosen = rows.where(np.random.default_rng(0).choice(rows.seconds.size, MOST_ROWS, replace=False))
    feed = {"l2": float(f"{np.exp(np.mean(np.log(np.unique(chosen.feed)))):.3g}")}
    return fit(lambda c: predict(chosen, kind, {**c, **feed}), chosen.seconds, PARAMS, max_nfev=50) | feed


def cross_validate(rows: Table, kind: Kind, folds: Array) -> Error:
    """Error of each fold by a fit to the others."""

    def unseen(out: NDArray[np.bool_]) -> Array:
        return predict(rows.where(out), kind, fit_table(rows.where(~out), kind))

    return error(fold_by_fold(folds, unseen), rows.seconds)


def _thin(rows: Table) -> Table:
    most = MOST_ROWS // 2
    if rows.seconds.size <= most:
        return rows
    return rows.where(np.random.default_rng(1).choice(rows.seconds.size, most, replace=False))


def _row(
    names: Mapping[str, str], rows: Table, kind: Kind, note: str, transfer: float = 0.0, odd: Table | None = None
) -> FitRow:
    """Fit a table and describe the fit; `odd` are rows of power-law routing, only predicted."""
    constants = fit_table(rows, kind)
    inside = error(predict(rows, kind, constants), rows.seconds)
    outside = cross_validate(rows, kind, rows.fold)
    if odd is not None and odd.seconds.size:
        skewed = error(predict(odd, kind, constants), odd.seconds)
        note += f"; power-law routing, never fitted: {skewed.mape:.1f} % (median {skewed.median:.1f})"
    row = fit_row(
        names=names, constants={k: v for k, v in constants.items() if k != WARM}, inside=inside, outside=outside,
        source=SOURCE, mape_transfer=transfer, note=f"median out {outside.median:.1f} %; {note}",
    )  # fmt: skip
    say(row)
    return row


def fit_all(data: pd.DataFrame) -> list[FitRow]:
    """Every row of the calibration file: generations first, then all cards."""
    result = []
    data = data.assign(generation=data["gpu"].map(lambda gpu: GPUS[gpu].architecture))
    usual: dict[tuple[str, str, str], dict[str, Table]] = {}
    for (generation, engine, dtype), rows in data.groupby(["generation", "backend", "dtype"]):
        kind, cards = KINDS[str(dtype)], sorted(rows["gpu"].unique())
        names = {"gpu": " ".join(cards), "architecture": str(generation), "engine": str(engine), "dtype": kind.name}
        first, *_ = families = rows["family"].value_counts().index  # the usual one
        for index, family in enumerate(families):
            part = rows[rows["family"] == family]
            if (part["distribution"] == "balanced").any():
                odd, part = part[part["distribution"] != "balanced"], part[part["distribution"] == "balanced"]
            else:
                odd = part[:0]
            if len(part) < 100:
                continue
            own, skewed = ({gpu: table(t, str(gpu), kind) for gpu, t in x.groupby("gpu")} for x in (part, odd))
            alone = index > 0 and (part["ep"] == 1).all() and (rows[rows["family"] == first]["ep"] > 1).all()
            name = "" if index == 0 else "tp" if alone else str(family)
            row = _set({**names, "kernel": name, "family": str(family)}, own, kind, skewed)
            tuned = row.constants["eff_m"] >= UNTUNED or kind.weight_bytes < 1
            result.append(row if tuned or index else msgspec.structs.replace(row, kernel="untuned"))
            whole = {gpu: t.where(t.ep == 1) for gpu, t in own.items()}
            few = any(t.seconds.size < 100 for t in whole.values())
            if alone or not tuned or few or (index and family != "triton"):
                whole = {}
            if not index and tuned:
                usual.setdefault((str(engine), str(dtype), ""), {}).update(own)
            if whole:
                skewed = {gpu: t.where(t.ep == 1) for gpu, t in skewed.items()}
                of = {"kernel": f"{name} tp".strip(), "family": str(family)}
                result.append(_set({**names, **of}, whole, kind, skewed))
            if whole and not index:
                usual.setdefault((str(engine), str(dtype), "tp"), {}).update(whole)
    return result + [pooled(*names, parts) for names, parts in usual.items()]


def pooled(engine: str, dtype: str, kernel: str, parts: Mapping[str, Table]) -> FitRow:
    """The set of all cards, of an engine's usual kernels."""
    names = {"gpu": ANY, "architecture": ANY, "engine": engine, "dtype": KINDS[dtype].name, "kernel": kernel}
    return _set(names, parts, KINDS[dtype], {})


def _set(names: Mapping[str, str], parts: Mapping[str, Table], kind: Kind, odd: Mapping[str, Table]) -> FitRow:
    """One set over cards, with its error on cards left out (of all: on generations)."""
    rows = stacked([_thin(t) for t in parts.values()])
    groups = {gpu: GPUS[gpu].architecture if names["gpu"] == ANY else gpu for gpu in parts}
    numbers = {group: float(i) for i, group in enumerate(dict.fromkeys(groups.values()))}
    labels = np.concatenate([np.full(_thin(t).seconds.size, numbers[groups[gpu]]) for gpu, t in parts.items()])
    transfer = cross_validate(rows, kind, labels).mape if len(numbers) > 1 else 0.0
    return _row(names, rows, kind, "of " + ", ".join(parts), transfer, stacked([*odd.values()]) if odd else None)


def l2_share(gpus: Sequence[str]) -> float:
    """Bandwidth of L2 over DRAM's of these cards, as catalogued (geometric mean), to three digits.

    >>> l2_share(["b200-sxm-180gb"])
    2.47
    """
    cards = [load_device(gpu) for gpu in gpus]
    return float(f"{np.exp(np.mean([np.log(d.l2.bandwidth / d.dram.bandwidth) for d in cards])):.3g}")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    options = folders(__doc__, argv)
    write_fits(options.out, fit_all(read(options.data)), HEADER)


if __name__ == "__main__":
    main()
