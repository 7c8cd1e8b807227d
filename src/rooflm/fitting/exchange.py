"""Fit `kernels.exchange.exchange_time` to DeepEP: `python -m rooflm.fitting.exchange --data DIR --out FILE`.

DIR holds moe_alltoall_deepep.parquet (gpu, mode, phase, hidden, tokens, topk, experts, sms, time_us), one node each.
Errors out of sample are those of three fits that each left out a third of (hidden, topk, experts).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflm.fitting.collectives import LINKS
from rooflm.fitting.common import CATALOGUE_GPU, GPUS, Param, error, fit, fit_row, write_fits
from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.exchange import BYTES, ExchangeConstants, exchange_time

RANKS = {"gb200": 4}
"""GPUs of a node; 8 elsewhere."""
FOLDS = 3
NORMAL = (
    Param("start", 3e-5, 1e-6, 1e-4),
    Param("eff", 0.7, 0.05, 2.0),
    Param("sm_rate", 1.5e10, 1e9, 2e11),
    Param("fixed", 1.0, 0.0, 8.0, log=False),
)
LOW_LATENCY = (
    Param("start", 9e-6, 1e-6, 1e-4),
    Param("expert", 1e-8, 1e-11, 1e-6),
    Param("eff", 0.7, 0.05, 2.0),
    Param("fixed", 0.5, 0.0, 8.0, log=False),
    Param("lane", 3e10, 1e9, 1e13),
)
REST = {"expert": 0.0, "sm_rate": 1e12, "lane": 1e15}
"""Constants that a mode does not have: no effect."""
SOURCE = "ai-dynamo/aiconfigurator 095f58a (2026-08-21, Apache-2.0), measured tables"
HEADER = """Fitted constants of kernels.exchange.exchange_time: DeepEP in one node, by GPU, phase and mode (`kernel`).
Written by: python -m rooflm.fitting.exchange --data DIR --out FILE
`_out`: three fits, each without a third of (hidden, top_k, experts); the constants are those of all rows.
No exchange between nodes was measured."""


def predict(rows: pd.DataFrame, constants: Mapping[str, float]) -> NDArray[np.float64]:
    """The formula on the rows of one phase and mode (s)."""
    column = {name: rows[name].to_numpy(float) for name in ("tokens", "hidden", "topk", "experts", "sms")}
    return np.asarray(
        exchange_time(
            column["tokens"], column["hidden"], column["topk"], column["experts"], rows["ranks"].to_numpy(float),
            element_bytes=BYTES[str(rows["phase"].iloc[0])], bandwidth=rows["link"].to_numpy(float),
            low_latency=float(rows["mode"].iloc[0] == "ll"), sms=np.maximum(column["sms"], 1.0),
            c=ExchangeConstants(**{**REST, **constants}),
        )
    )  # fmt: skip


def fit_rows(rows: pd.DataFrame) -> dict[str, float]:
    """Constants fitted to the rows of one phase and mode."""
    params = LOW_LATENCY if rows["mode"].iloc[0] == "ll" else NORMAL
    return fit(lambda c: predict(rows, c), rows["time_us"].to_numpy(float) * 1e-6, params, max_nfev=100)


def cross_validate(rows: pd.DataFrame, folds: NDArray[Any]) -> Any:
    """Error of each fold by a fit to the others."""
    guess = np.empty(len(rows))
    for fold in np.unique(folds):
        guess[folds == fold] = predict(rows[folds == fold], fit_rows(rows[folds != fold]))
    return error(guess, rows["time_us"].to_numpy(float) * 1e-6)


def describe(rows: pd.DataFrame, names: Mapping[str, str], note: str, transfer: float = 0.0) -> FitRow:
    """Fit a group and describe the fit."""
    constants = fit_rows(rows)
    shapes = rows.groupby(["hidden", "topk", "experts"]).ngroup().to_numpy()
    order = np.random.default_rng(0).permutation(shapes.max() + 1)
    inside = error(predict(rows, constants), rows["time_us"].to_numpy(float) * 1e-6)
    return fit_row(
        names=names, constants={**REST, **constants}, inside=inside, source=SOURCE, note=note,
        outside=cross_validate(rows, order[shapes] % FOLDS), mape_transfer=transfer,
    )  # fmt: skip


def fit_all(data: Path) -> list[FitRow]:
    """Every row of the calibration file: each GPU, then all."""
    table = pd.read_parquet(data / "moe_alltoall_deepep.parquet")
    for name in table.columns:
        if str(table[name].dtype) == "category":
            table[name] = table[name].astype(str)
    table["gpu"] = table["gpu"].map(CATALOGUE_GPU)
    table = table[table["gpu"].notna()].copy()
    table["ranks"] = table["gpu"].map(RANKS).fillna(8.0)
    table["link"] = table["gpu"].map(LINKS)
    result = []
    for (mode, phase), rows in table.groupby(["mode", "phase"]):
        names = {"engine": "deepep", "dtype": ANY, "kernel": str(phase) + ("-ll" if mode == "ll" else "")}
        for gpu, part in rows.groupby("gpu"):
            own = {"gpu": str(gpu), "architecture": GPUS[str(gpu)].architecture}
            result.append(describe(part, {**own, **names}, ""))
        makes = rows["gpu"].map({gpu: card.architecture for gpu, card in GPUS.items()})
        transfer = cross_validate(rows, makes.to_numpy()).mape
        note = "fitted to " + ", ".join(sorted(rows["gpu"].unique()))
        result.append(describe(rows, {"gpu": ANY, "architecture": ANY, **names}, note, transfer))
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of moe_alltoall_deepep.parquet")
    parser.add_argument("--out", type=Path, required=True, help="calibration file to write")
    options = parser.parse_args(argv)
    rows = fit_all(options.data)
    write_fits(options.out, rows, HEADER)
    for row in rows:
        print(f"{row.kernel:12} {row.gpu:16} in {row.mape_in:5.1f} %  out {row.mape_out:5.1f} %  "
              f"transfer {row.mape_transfer:5.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
