"""Fit products and experts on AMD Instinct to aiter's tuned shapes: `python -m rooflm_fit.instinct --data DIR --out DIR`.

DATA is the folder aiter/configs of ROCm/aiter (MIT): csv files whose rows say, for a shape, the fastest kernel that its
tuner found and its time in us (`us`), on cards of 304 CUs (MI300X, MI325X) and 256 (MI350X, MI355X). vLLM and SGLang run
these kernels on such cards. OUT gets gemm-instinct.toml and moe-instinct.toml. Efficiencies refer to the rates that
data/calibration/devices.toml says the family reaches of its datasheet, by which all its kernels are scaled.

An expert's time is that of its two products alone: routing, sorting and quantising launch kernels of their own, which
`LAUNCHES` adds. The tuner routes tokens at random, evenly over the experts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflm.catalogue.hardware import Device
from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.derating import derating
from rooflm.kernels.gemm import GemmConstants, gemm_time
from rooflm.kernels.moe import Hardware, MoEConstants, moe_time, routed
from rooflm.readers.devices import load_device
from rooflm_fit import gemm, moe
from rooflm_fit.common import Error, Param, error, fit, fit_row, write_fits

Array = NDArray[np.float64]

CARDS = {304: "mi300x", 256: "mi355x"}
"""Compute units of a table's rows -> the card they were measured on."""
LAUNCHES = 15e-6
"""s: routing, sorting and two passes that quantise, at the floor of a small kernel each."""
SOURCE = "ROCm/aiter e404860 (2026-08-22, MIT), aiter/configs"
FOLDS = 3
LEAST = 14
"""Rows of a set."""
MOST = 1500
"""Rows in one fit of products; more do not move the constants."""


class Kind(NamedTuple):
    """A data type of the tables: our name, bytes an element of weights and activations, and the rate it multiplies at."""

    name: str
    weight_bytes: float
    act_bytes: float
    rate: str


PRODUCTS = {
    "bf16": Kind("bf16", 2.0, 2.0, "bf16"),
    "a8w8_blockscale": Kind("fp8_block", 1.0, 1.0, "fp8"),
    "a8w8": Kind("fp8", 1.0, 1.0, "fp8"),
    "a4w4": Kind("nvfp4", 0.53125, 0.53125, "fp4"),
}
"""Word in a file's name -> kind, the first that matches. Four bits in and four bits out have one name here, whoever
scales them."""
EXPERTS = {
    ("bfloat16", "bfloat16", "No"): Kind("bf16", 2.0, 2.0, "bf16"),
    ("float8", "float8", "per_1x128"): Kind("fp8_block", 1.0, 1.0, "fp8"),
    ("float8", "float8", "per_Token"): Kind("fp8", 1.0, 1.0, "fp8"),
    ("float4", "float4", "per_1x32"): Kind("nvfp4", 0.53125, 0.53125, "fp4"),
    ("float8", "float4", "per_1x32"): Kind("mxfp4_mxfp8", 0.53125, 1.03125, "fp8"),
    ("bfloat16", "float4", "per_1x32"): Kind("mxfp4", 0.53125, 2.0, "bf16"),
    ("bfloat16", "int4", "per_1x32"): Kind("int4_wo", 0.515625, 2.0, "bf16"),
}
"""Types of activations and weights, and how they are scaled -> kind."""
HEADER = """Fitted constants of {what} on AMD Instinct. Written by: python -m rooflm_fit.instinct --data DIR --out DIR
Efficiencies refer to what devices.toml says the family reaches of its datasheet. `_out`: three fits, each without a
third of the model shapes."""


class Table(NamedTuple):
    """Measured shapes of a card and kind: columns of the shape, seconds, and in which fit a row is left out."""

    shape: tuple[Array, ...]
    seconds: Array
    fold: Array

    def where(self, mask: NDArray[Any]) -> Table:
        return Table(tuple(column[mask] for column in self.shape), self.seconds[mask], self.fold[mask])


def reached(device: Device, kind: Kind) -> Hardware:
    """Rates of a card that the constants are shares of."""
    own = derating(device, "")
    return Hardware(float(device.peak[kind.rate] * own.compute), float(device.dram.bandwidth * own.bandwidth), float(device.sms))  # type: ignore[arg-type]  # numbers in a row  # fmt: skip


def product_tables(data: Path) -> dict[tuple[int, str], Table]:
    """Products of every file: (m, n, k) and the least time of a shape."""
    parts: dict[tuple[int, str], list[pd.DataFrame]] = {}
    for path in sorted(data.rglob("*tuned_gemm*.csv")):
        kind = next((k for word, k in PRODUCTS.items() if word in path.name), None)
        rows = pd.read_csv(path, low_memory=False)
        if kind is None or "untuned" in path.name or not {"cu_num", "M", "N", "K", "us"} <= set(rows.columns):
            continue
        if "q_dtype_w" in rows.columns:
            rows = rows[~rows["q_dtype_w"].astype(str).str.contains("int8")]
        for cu, own in rows[rows["us"] > 0].groupby("cu_num"):
            parts.setdefault((int(cu), kind.name), []).append(own[["M", "N", "K", "us"]])
    out = {}
    for key, frames in parts.items():
        best = pd.concat(frames).groupby(["M", "N", "K"], as_index=False)["us"].min()
        out[key] = _table(best, ["M", "N", "K"], ["N", "K"])
    return out


def expert_tables(data: Path) -> dict[tuple[int, str], Table]:
    """Experts of every file: (tokens, hidden, width, experts, top_k) and the least time of a shape."""
    parts: dict[tuple[int, str], list[pd.DataFrame]] = {}
    columns = ["token", "model_dim", "inter_dim", "expert", "topk"]
    for path in sorted(data.rglob("*tuned_fmoe*.csv")):
        rows = pd.read_csv(path, low_memory=False)
        if "untuned" in path.name or "us" not in rows.columns:
            continue
        rows = rows[(rows["us"] > 0) & (rows["topk"] > 0)]
        for (cu, act, weight, scaled), own in rows.groupby(["cu_num", "q_dtype_a", "q_dtype_w", "q_type"]):
            names = (str(act).split(".")[-1].split("_")[0], str(weight).split(".")[-1].split("_")[0])
            kind = EXPERTS.get((*names, str(scaled).split(".")[-1]))
            if kind is not None:
                parts.setdefault((int(cu), kind.name), []).append(own[[*columns, "us"]])
    out = {}
    for key, frames in parts.items():
        best = pd.concat(frames).groupby(columns, as_index=False)["us"].min()
        out[key] = _table(best, columns, ["model_dim", "inter_dim", "expert"])
    return out


def _table(rows: pd.DataFrame, columns: Sequence[str], groups: Sequence[str]) -> Table:
    """Columns as arrays; folds go by `groups`, or by rows where there are fewer groups than folds."""
    number = rows.groupby(list(groups)).ngroup().to_numpy()
    fold = (number if number.max() + 1 >= FOLDS else np.arange(len(rows))) % FOLDS
    shape = tuple(rows[name].to_numpy(float) for name in columns)
    return Table(shape, rows["us"].to_numpy(float) * 1e-6, fold.astype(float))


def product_time(rows: Table, kind: Kind, card: Hardware, c: Mapping[str, float]) -> Array:
    """The formula of a product (s)."""
    m, n, k = rows.shape
    return np.asarray(gemm_time(m, n, k, weight_bytes=kind.weight_bytes, act_bytes=kind.act_bytes, out_bytes=2.0,
                                peak=card.peak, bandwidth=card.bandwidth, sms=card.sms, c=GemmConstants(**c)))  # fmt: skip


def expert_time(rows: Table, kind: Kind, card: Hardware, c: Mapping[str, float]) -> Array:
    """The formula of experts, under even routing at random (s)."""
    tokens, hidden, width, experts, top_k = rows.shape
    routing = routed(tokens, top_k, experts)
    return np.asarray(moe_time(tokens, hidden, width, routing, top_k=top_k, experts=experts, device=card,
                               c=MoEConstants(**c), weight_bytes=kind.weight_bytes, act_bytes=kind.act_bytes))  # fmt: skip


WIDE = {"eff_c": 1.5, "eff_m": 1.2, "eff_pass": 4.0}
"""Upper bounds: shares of rates that are shares of a datasheet already."""
PRODUCT_PARAMS = tuple(p._replace(high=WIDE.get(p.name, p.high)) for p in gemm.PARAMS)
EXPERT_PARAMS = tuple(
    p._replace(high=WIDE.get(p.name, p.high)) for p in moe.PARAMS if p.name not in (moe.WARM, "stray")
)


def fitted(rows: Table, kind: Kind, device: Device, model: Any, params: Sequence[Param], starts: Any) -> dict[str, float]:
    """Constants of a table."""
    card = reached(device, kind)
    if rows.seconds.size > MOST:
        rows = rows.where(np.random.default_rng(0).choice(rows.seconds.size, MOST, replace=False))
    extra = {"stray": 0.0} if params is EXPERT_PARAMS else {}
    return fit(lambda c: model(rows, kind, card, {**c, **extra}), rows.seconds, params, starts=starts, max_nfev=50) | extra


def row(rows: Table, kind: Kind, device: Device, model: Any, params: Sequence[Param], starts: Any) -> FitRow:
    """The row of a generation: fitted to all, judged by thirds left out."""
    card = reached(device, kind)
    constants = fitted(rows, kind, device, model, params, starts)
    guess = np.empty_like(rows.seconds)
    for fold in np.unique(rows.fold):
        out = rows.fold == fold
        guess[out] = model(rows.where(out), kind, card, fitted(rows.where(~out), kind, device, model, params, starts))
    inside, outside = error(model(rows, kind, card, constants), rows.seconds), error(guess, rows.seconds)
    if params is EXPERT_PARAMS:
        constants = constants | {"start": constants["start"] + LAUNCHES}
    names = {"gpu": ANY, "architecture": device.kernel_generation, "engine": ANY, "dtype": kind.name, "family": "aiter"}
    found = fit_row(names=names, constants=constants, inside=inside, outside=outside, source=SOURCE,
                    note=f"median out {outside.median:.1f} %; measured on {device.name}")  # fmt: skip
    print(f"{found.architecture} {found.dtype:12} in {found.mape_in:5.1f} %  out {found.mape_out:5.1f} %  "
          f"{_said(outside)}  {found.constants}", flush=True)  # fmt: skip
    return found


def _said(e: Error) -> str:
    return f"median {e.median:.1f} of {e.rows}"


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder aiter/configs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the calibration files")
    options = parser.parse_args(argv)
    kinds = {k.name: k for k in (*EXPERTS.values(), *PRODUCTS.values())}
    works = (
        ("gemm", "products", product_tables(options.data), product_time, PRODUCT_PARAMS, gemm.STARTS),
        ("moe", "experts", expert_tables(options.data), expert_time, EXPERT_PARAMS, ({},)),
    )
    for name, what, tables, model, params, starts in works:
        rows = [
            row(table, kinds[kind], load_device(CARDS[cu]), model, params, starts)
            for (cu, kind), table in sorted(tables.items())
            if cu in CARDS and table.seconds.size >= LEAST
        ]
        write_fits(options.out / f"{name}-instinct.toml", rows, HEADER.format(what=what))


if __name__ == "__main__":
    main()
