"""What every kernel fit shares: a stable split, error figures, a robust fit of log times, the writer of TOML rows."""

from __future__ import annotations

import argparse
import datetime
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from rooflm.kernels.constants import FitRow
from rooflm.readers.devices import load_device
from rooflm.sweep.files import write_text
from rooflm.units import Num

Array = NDArray[np.float64]

CATALOGUE_GPU = {
    "a100_sxm": "a100-sxm-80gb", "a40": "a40", "h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb", "b300_sxm": "b300-sxm-288gb", "gb200": "gb200", "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-server-96gb",
}  # fmt: skip
"""Names of GPUs in the measured tables -> names in our catalogue. (Intel's B60 is left out.)"""


class Gpu(NamedTuple):
    """Datasheet figures that the fits use: dense FLOP/s by dtype width, DRAM B/s, SMs, L2 bytes."""

    architecture: str
    peak16: float
    peak8: float
    peak4: float
    bandwidth: float
    sms: float
    l2: float

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s of the tensor cores at a dtype of the tables (weight-only kernels compute in 16 bits)."""
        if dtype in ("bf16", "fp16", "int8_wo", "int4_wo"):
            return self.peak16
        return self.peak4 if dtype in ("nvfp4", "mxfp4") else self.peak8


def _gpu(name: str) -> Gpu:
    card = load_device(name)
    eight = card.peak.get("fp8") or card.peak["int8"]
    peaks = (card.peak["bf16"], eight, card.peak.get("fp4") or card.peak.get("int4", eight))
    return Gpu(card.kernel_generation, *map(float, (*peaks, card.dram.bandwidth, card.sms, card.l2.size)))


HOPPER = {"peak16": 989e12, "peak8": 1979e12, "peak4": 1979e12, "l2": 50e6}
ROUNDED: dict[str, dict[str, Any]] = {
    "a100-sxm-80gb": {"l2": 40e6}, "a40": {"l2": 6e6}, "h100-sxm-80gb": {"bandwidth": 3350e9, **HOPPER},
    "h200-sxm-141gb": HOPPER, "b200-sxm-180gb": {"l2": 126e6}, "gb200": {"l2": 126e6},
    "b300-sxm-288gb": {"l2": 126e6}, "l40s": {"peak16": 362e12, "l2": 96e6},
    "rtx-pro-6000-server-96gb": {"l2": 128e6},
}  # fmt: skip
"""Card -> figures beside which the shipped constants were fitted, where the catalogue has been more exact since: MiB of
L2, 0.04 % of Hopper's and 0.01 % of L40S' rates, 0.06 % of H100's memory."""
GPUS = {name: _gpu(name)._replace(**own) for name, own in ROUNDED.items()}
"""The catalogue's cards as the fits take them."""


L2_SAVES = 0.8
"""Share of the DRAM time that vanishes when all operands of a product or a stream are warm in L2 (about five times
faster)."""


def warm_share(footprint: Num, copies: Num, l2: Num) -> Num:
    """Share of a benchmark loop's traffic that L2 serves; a model's step has none of it.

    footprint: B touched before the loop comes back to the same buffers; copies: weight buffers it cycles through;
    l2: B of cache that it can fill (about half of L2 where that is two partitions holding duplicates). All is warm
    well under footprint = l2 and none well over it, as measured on L40S (times jump threefold between footprints of
    0.90 and 0.97 of L2), but for loops over one or two buffers, of which up to a quarter of the cache survives.

    >>> [round(float(warm_share(f, 6, 100e6)), 3) for f in (50e6, 100e6, 200e6)]
    [1.0, 0.5, 0.0]
    """
    r = footprint / l2
    fits = 1.0 / (1.0 + r**16)
    return fits + (1.0 - fits) * np.where(np.asarray(copies) <= 2, 0.25, 0.0) / np.maximum(r, 1.0)


def hot_share(nbytes: Num, l2: Num, l2_frac: Num) -> Num:
    """Share of `nbytes` still in L2 when a benchmark repeats its call: near 1 well below l2_frac * l2, 0 well above.
    The overwritten cache of a model's step has none of it.

    >>> float(hot_share(20e6, 40e6, 0.5)), round(float(hot_share(60e6, 40e6, 0.5)), 4)
    (0.5, 0.0122)
    """
    return 1.0 / (1.0 + (nbytes / np.maximum(l2 * l2_frac, 1.0)) ** 4)


def ideal_gemm_time(
    m: Num, n: Num, k: Num, *, weight_bytes: Num, act_bytes: Num, out_bytes: Num, peak: Num, bandwidth: Num
) -> Num:
    """The roofline of a GEMM in s: t = max(2 m n k / peak, (n k w + m k a + m n o) / bandwidth). Williams et al. 2009.

    >>> float(ideal_gemm_time(8192, 8192, 8192, weight_bytes=2, act_bytes=2, out_bytes=2, peak=1e15, bandwidth=1e12))
    0.001099511627776
    """
    m, n, k = m * 1.0, n * 1.0, k * 1.0  # integer products overflow 32 bits
    traffic = n * k * weight_bytes + m * k * act_bytes + m * n * out_bytes
    return np.maximum(2.0 * m * n * k / peak, traffic / bandwidth)


class Error(NamedTuple):
    """Errors of predicted times: rows; mean and median of |pred/meas - 1| and mean of pred/meas - 1, in per cent."""

    rows: int
    mape: float
    median: float
    bias: float


def error(predicted: Array, measured: Array) -> Error:
    """Error figures of `predicted` against `measured` (any equal unit).

    >>> error(np.array([1.1, 0.9]), np.array([1.0, 1.0])).mape.round(6)
    np.float64(10.0)
    """
    if measured.size == 0:
        return Error(0, *(float("nan"),) * 3)
    off = 100 * (predicted / measured - 1)
    ape = np.abs(off)
    return Error(measured.size, ape.mean(), np.median(ape), off.mean())


def in_and_out(predicted: Array, measured: Array, aside: NDArray[np.bool_]) -> tuple[Error, Error]:
    """Errors of the rows that were fitted, and of those kept aside."""
    return error(predicted[~aside], measured[~aside]), error(predicted[aside], measured[aside])


T = TypeVar("T", bound=tuple[Any, ...])


def stacked(parts: Sequence[T]) -> T:
    """Tables (NamedTuples of columns) of one kind as one."""
    return type(parts[0])(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def fold_by_fold(folds: NDArray[Any], predict: Callable[[NDArray[np.bool_]], Array]) -> Array:
    """A prediction of every row by a fit that never saw its fold. predict: of a mask of rows, by a fit to the others.

    >>> fold_by_fold(np.array([0.0, 1.0, 0.0]), lambda out: np.full(out.sum(), (~out).sum())).tolist()
    [1.0, 2.0, 1.0]
    """
    guess = np.empty(folds.size)
    for fold in np.unique(folds):
        out = folds == fold
        guess[out] = predict(out)
    return guess


class Param(NamedTuple):
    """A constant to fit: its start, bounds, and prior width in the fitted coordinate (0 for none).

    log: fit the logarithm (scales, times), else the value itself (shares, exponents). A prior pulls towards `start`:
    being one `prior` away costs as much as an error of 1 % on every row.
    """

    name: str
    start: float
    low: float
    high: float
    log: bool = True
    prior: float = 0.0


def fit(
    model: Callable[[Mapping[str, float]], Array],
    measured: Array,
    params: Sequence[Param],
    *,
    weights: Array | None = None,
    scale: float = 0.08,
    starts: Sequence[Mapping[str, float]] = ({},),
    max_nfev: int = 60,
) -> dict[str, float]:
    """Constants that minimise the robust (soft L1 beyond `scale`) squared log error of model(constants) to `measured`.

    `starts` gives alternative starting points (names left out start at their Param); the best end point wins.
    Quadratic near zero and absolute far off, so a faulty row weighs like any other (about what a MAPE asks for).
    """
    low = np.array([_in(p, p.low) for p in params])
    high = np.array([_in(p, p.high) for p in params])
    prior = np.array([1.0 / p.prior if p.prior else 0.0 for p in params])
    goal = np.log(measured)
    weight = np.ones_like(goal) if weights is None else weights / weights.mean()
    centre = np.array([_in(p, p.start) for p in params])

    def values(x: Array) -> dict[str, float]:
        return {p.name: float(np.exp(v) if p.log else v) for p, v in zip(params, x, strict=True)}

    def residual(x: Array) -> Array:
        r = (np.log(model(values(x))) - goal) / scale
        robust = np.sign(r) * np.sqrt(2 * weight * (np.sqrt(1 + r * r) - 1)) * scale
        return np.concatenate([robust, 0.01 * np.sqrt(goal.size) * prior * (x - centre)])

    best: Any = None
    for start in starts:
        x0 = np.array([_in(p, start.get(p.name, p.start)) for p in params])
        margin = 1e-6 * (high - low)
        found = least_squares(
            residual, np.clip(x0, low + margin, high - margin), bounds=(low, high), diff_step=1e-3,
            x_scale=np.maximum(high - low, 1e-9) / 10, max_nfev=max_nfev, ftol=1e-5, xtol=1e-5,
        )  # fmt: skip
        best = found if best is None or found.cost < best.cost else best
    return values(best.x)


def _in(p: Param, value: float) -> float:
    return float(np.log(value)) if p.log else value


def fit_row(
    *,
    names: Mapping[str, Any],
    constants: Mapping[str, float],
    inside: Error,
    outside: Error,
    source: str,
    mape_transfer: float = 0.0,
    note: str = "",
) -> FitRow:
    """A row of a calibration file; `names` holds gpu, architecture, engine, dtype and (if any) kernel."""
    return FitRow(
        **names,
        constants={name: float(f"{value:.4g}") for name, value in constants.items()},
        rows_in=inside.rows,
        rows_out=outside.rows,
        mape_in=round(float(inside.mape), 2),
        mape_out=round(float(outside.mape), 2),
        mape_transfer=round(float(mape_transfer), 2),
        source=source,
        date=datetime.date.today().isoformat(),
        note=note,
    )


def say(row: FitRow) -> None:
    """Print a set and its errors."""
    names = f"{row.gpu:40.40} {row.architecture:14} {row.engine:17} {row.dtype:12} {row.kernel:17}"
    errors = f"in {row.mape_in:6.2f} % out {row.mape_out:6.2f} % "
    print(f"{names} {errors}left out {row.mape_transfer:6.2f} %  {row.rows_in}/{row.rows_out}  {row.note}", flush=True)


def dated(path: Path, rows: Iterable[FitRow]) -> list[FitRow]:
    """The rows, those that the file holds already with their date there: the same tables make the same file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("fit", [])
    except OSError:
        return list(rows)
    known = {repr(msgspec.structs.replace(row, date="")): row.date for row in msgspec.convert(found, list[FitRow])}
    return [
        msgspec.structs.replace(row, date=known.get(repr(msgspec.structs.replace(row, date="")), row.date))
        for row in rows
    ]


def folders(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What every fit of kernels is told: --data, the folder of measured tables, and --out, the file to write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="what was measured: a folder of tables, or a table")
    parser.add_argument("--out", type=Path, required=True, help="calibration file to write, or their folder")
    return parser.parse_args(argv)


def measured_table(path: Path) -> pd.DataFrame:
    """A measured table, its categories as texts."""
    rows = pd.read_parquet(path)
    return rows.astype({name: str for name, kind in rows.dtypes.items() if str(kind) == "category"})


def write_fits(path: Path, rows: Iterable[FitRow], header: str) -> None:
    """Write a calibration file: `header` as comments, then one [[fit]] table a row, defaults left out."""
    rows = dated(path, rows)
    lines = [f"# {line}".rstrip() for line in header.strip().splitlines()]
    usual = {field.name: field.default for field in msgspec.structs.fields(FitRow)}
    for row in rows:
        lines += ["", "[[fit]]"]
        for name in row.__struct_fields__:
            value = getattr(row, name)
            if value != usual[name]:
                lines.append(f"{name} = {_toml(value)}")
    write_text(path, "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)
