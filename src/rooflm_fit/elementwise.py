"""Fit `rooflm.kernels.elementwise` to a table of measured elementwise kernels.

    python -m rooflm_fit.elementwise --data DIR --out FILE

DIR holds elementwise.parquet: source gpu backend version op dtype rows cols time_us. 30 % of the row counts (tokens)
are kept aside by a hash. Left out: quantising kernels, which no prediction asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.elementwise import ElementwiseConstants, elementwise_time
from rooflm.validation.folds import held_out
from rooflm_fit.common import (
    CATALOGUE_GPU,
    GPUS,
    L2_SAVES,
    Array,
    Param,
    error,
    fit,
    fit_row,
    folders,
    in_and_out,
    measured_table,
    say,
    warm_share,
    write_fits,
)
from rooflm_fit.gemm import warm_fraction

KIND = {
    "add": ("add", 6.0), "attn_rope": ("rope", 4.0), "emb": ("embedding", 4.0), "input_layernorm": ("norm", 4.0),
    "post_attention_layernorm": ("norm", 4.0), "mlp_act": ("activation", 6.0),
}  # fmt: skip
"""Operation of the table -> our kind, and bytes it moves for each of rows x cols elements (16-bit tensors: reads plus
writes; the gated activation reads two inputs)."""
ENGINE = {"vllm-like": "torch"}
PARAMS = (
    Param("t0", 2e-6, 0.2e-6, 20e-6),
    Param("eff", 0.6, 0.03, 1.1),
    Param("ramp", 2e-6, 0.05e-6, 20e-6),
    Param("row", 3.0, 0.05, 1e3),
)
STARTS: tuple[dict[str, float], ...] = ({}, {"row": 0.5}, {"eff": 0.2, "row": 100.0})


class Table(NamedTuple):
    """One measured table: names, bytes moved, bytes a row, times in s, share warm in L2, rows kept aside."""

    gpu: str
    engine: str
    dtype: str
    kind: str
    source: str
    traffic: Array
    row_bytes: Array
    time: Array
    hot: Array
    aside: NDArray[np.bool_]


def load_tables(data: Path) -> list[Table]:
    """The measured tables by (GPU, engine, kind); Vidur's buffers come from a model's step, so they count as cold."""
    frame = measured_table(data / "elementwise.parquet")
    frame = frame[frame.op.isin(list(KIND))]
    frame["kind"] = frame.op.map(lambda op: KIND[op][0])
    frame["bytes"] = frame.op.map(lambda op: KIND[op][1])
    tables = []
    for (gpu_name, backend, kind, dtype), part in frame.groupby(["gpu", "backend", "kind", "dtype"], sort=True):
        gpu, engine = CATALOGUE_GPU[str(gpu_name)], ENGINE.get(str(backend), str(backend))
        g = GPUS[gpu]
        row_bytes = part.cols.to_numpy(np.float64) * part.bytes.to_numpy(np.float64)
        traffic = row_bytes * part.rows.to_numpy(np.float64)
        cold = engine == "torch"
        hot = (
            np.zeros_like(traffic) if cold else np.asarray(warm_share(traffic, 1.0, g.l2 * warm_fraction(gpu, engine)))
        )
        source = f"{part.source.iloc[0]} {engine} {part.version.iloc[0]}"
        time = part.time_us.to_numpy(np.float64) * 1e-6
        aside = held_out(part.rows.astype(int))
        tables.append(Table(gpu, engine, str(dtype), str(kind), source, traffic, row_bytes, time, hot, aside))
    return tables


def predict(t: Table, constants: Mapping[str, float]) -> Array:
    """Times in s of a table's rows."""
    g, c = GPUS[t.gpu], ElementwiseConstants(**constants)
    warm = c._replace(eff=c.eff / (1.0 - L2_SAVES * t.hot))
    return np.asarray(elementwise_time(t.traffic, bandwidth=g.bandwidth, c=warm, row_bytes=t.row_bytes, sms=g.sms))


def fit_tables(tables: Sequence[Table]) -> dict[str, float]:
    """Constants fitted to what is not kept aside, each table weighing the same."""
    keep = [~t.aside for t in tables]
    measured = np.concatenate([t.time[k] for t, k in zip(tables, keep, strict=True)])
    weights = np.concatenate([np.full(int(k.sum()), 1.0 / k.sum()) for k in keep])

    def model(c: Mapping[str, float]) -> Array:
        return np.concatenate([predict(t, c)[k] for t, k in zip(tables, keep, strict=True)])

    return fit(model, measured, PARAMS, weights=weights, starts=STARTS)


def row_of(tables: Sequence[Table], names: Mapping[str, str], source: str, mape_transfer: float = 0.0) -> FitRow:
    """Fit and describe one row of the calibration file."""
    c = fit_tables(tables)
    p = np.concatenate([predict(t, c) for t in tables])
    time = np.concatenate([t.time for t in tables])
    aside = np.concatenate([t.aside for t in tables])
    inside, outside = in_and_out(p, time, aside)
    row = fit_row(
        names=names, constants=c, inside=inside, outside=outside, source=source, mape_transfer=mape_transfer,
    )  # fmt: skip
    say(row)
    return row


def left_out(tables: Sequence[Table], group: Mapping[str, str]) -> float:
    """Mean error in per cent on each group (GPU -> group) of constants fitted to the other groups; 0 with one group."""
    scores = []
    for g in sorted({group[t.gpu] for t in tables}):
        rest, mine = [t for t in tables if group[t.gpu] != g], [t for t in tables if group[t.gpu] == g]
        if rest:
            c = fit_tables(rest)
            scores += [error(predict(t, c), t.time).mape for t in mine]
    return float(np.mean(scores)) if scores else 0.0


def fit_all(tables: Sequence[Table]) -> list[FitRow]:
    """Every row of the calibration file: each table, then each generation, then all, by kind and dtype."""
    rows = []
    for t in tables:
        names = {"gpu": t.gpu, "architecture": GPUS[t.gpu].architecture, "engine": t.engine}
        rows.append(row_of([t], names | {"dtype": t.dtype, "kernel": t.kind}, t.source))
    for kind, dtype in dict.fromkeys((t.kind, t.dtype) for t in tables):
        same = [t for t in tables if (t.kind, t.dtype) == (kind, dtype)]
        generations = list(dict.fromkeys(GPUS[t.gpu].architecture for t in same))
        for architecture in (*generations, ANY):
            mine = [t for t in same if architecture in (ANY, GPUS[t.gpu].architecture)]
            group = {name: g.architecture if architecture == ANY else name for name, g in GPUS.items()}
            names = {"gpu": ANY, "architecture": architecture, "engine": ANY, "dtype": dtype, "kernel": kind}
            source = "all tables of " + ", ".join(sorted({f"{t.gpu} {t.engine}" for t in mine}))
            rows.append(row_of(mine, names, source, left_out(mine, group)))
    return rows


HEADER = """Constants of elementwise kernels (rooflm.kernels.elementwise); `python -m rooflm_fit.elementwise` fits.
Source of the measurements: tables published by ai-dynamo/aiconfigurator (Apache-2.0) and microsoft/vidur (MIT, kernels
of 2024, times rounded to 1 us). Errors are mean absolute percentage errors; 30 % of row counts were kept aside."""


def main() -> None:
    """Fit everything and write the calibration file."""
    arguments = folders(__doc__)
    write_fits(arguments.out, fit_all(load_tables(arguments.data)), HEADER)


if __name__ == "__main__":
    main()
