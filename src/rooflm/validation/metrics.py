"""How far predictions are off: pure functions of measured and predicted values.

Definitions, alike for times, rates and bytes: ratio r = predicted / measured; absolute percentage error
ape = |r - 1|; mape, median_ape, p90_ape its mean, median and 90th percentile; bias = mean(r - 1), positive where the
prediction is too high; coverage = share of rows with low <= measured <= high, among those that have a band. All are
fractions (0.07 is 7 %), and None where there is no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = Sequence[float] | Array
LABELS = ("source", "gpu", "engine", "model", "metric")


def ape(measured: Values, predicted: Values) -> Array:
    """Absolute percentage error |predicted / measured - 1|, element by element; measured must be above 0.

    >>> [round(float(e), 9) for e in ape([10.0, 4.0], [11.0, 3.0])]
    [0.1, 0.25]
    """
    errors: Array = np.abs(np.asarray(predicted, float) / np.asarray(measured, float) - 1)
    return errors


def describe(
    measured: Values, predicted: Values, low: Values | None = None, high: Values | None = None
) -> dict[str, float | int | None]:
    """Rows, mape, median_ape, p90_ape, bias and coverage of one set of rows. Bands may be absent or partly nan.

    >>> describe([1.0, 2.0], [1.1, 1.8], low=[0.9, 1.9], high=[1.2, 1.99])["coverage"]
    0.5
    """
    meas, pred = np.asarray(measured, float), np.asarray(predicted, float)
    if meas.shape != pred.shape:
        raise ValueError(f"{meas.size} measured values, but {pred.size} predicted ones")
    if meas.size == 0:
        return {"rows": 0, "mape": None, "median_ape": None, "p90_ape": None, "bias": None, "coverage": None}
    errors = ape(meas, pred)
    return {
        "rows": int(meas.size),
        "mape": float(errors.mean()),
        "median_ape": float(np.median(errors)),
        "p90_ape": float(np.percentile(errors, 90)),
        "bias": float((pred / meas).mean() - 1),
        "coverage": coverage(meas, low, high),
    }


def coverage(measured: Values, low: Values | None, high: Values | None) -> float | None:
    """Share of rows inside their band; None when no row has one.

    >>> coverage([1.0, 2.0, 3.0], [0.5, 2.5, float("nan")], [1.5, 3.0, 4.0])
    0.5
    """
    if low is None or high is None:
        return None
    lo, hi, meas = np.asarray(low, float), np.asarray(high, float), np.asarray(measured, float)
    banded = np.isfinite(lo) & np.isfinite(hi)
    if not banded.any():
        return None
    return float(((lo <= meas) & (meas <= hi))[banded].mean())


def summarise(
    measured: Values,
    predicted: Values,
    labels: Mapping[str, Sequence[str]] | None = None,
    skipped: Iterable[str] = (),
    low: Values | None = None,
    high: Values | None = None,
) -> dict[str, Any]:
    """The object that `rooflm validate --json` prints.

    labels: for each of LABELS one label a scored row; skipped: the reason of each row left out. Rows whose prediction
    is not a finite number above 0 count as skipped, never as scored.

    >>> out = summarise([1.0, 2.0], [1.1, float("nan")], {"gpu": ["a", "b"]}, skipped=["unknown model x"])
    >>> out["rows"], out["scored"], out["skipped"], list(out["by_gpu"])
    (3, 1, {'no prediction': 1, 'unknown model x': 1}, ['a'])
    """
    meas, pred = np.asarray(measured, float), np.asarray(predicted, float)
    if meas.shape != pred.shape:
        raise ValueError(f"{meas.size} measured values, but {pred.size} predicted ones")
    good = np.isfinite(meas) & np.isfinite(pred) & (meas > 0) & (pred > 0)
    reasons = Counter(skipped)
    reasons["no prediction"] += int((~good).sum())

    def part(mask: npt.NDArray[np.bool_]) -> dict[str, float | int | None]:
        bands = [None if b is None else np.asarray(b, float)[mask] for b in (low, high)]
        return describe(meas[mask], pred[mask], bands[0], bands[1])

    result: dict[str, Any] = {
        "rows": meas.size + sum(reasons.values()) - int((~good).sum()),
        "scored": int(good.sum()),
        "skipped": {k: v for k, v in sorted(reasons.items(), key=lambda kv: (-kv[1], kv[0])) if v},
        "all": part(good),
    }
    for name in LABELS:
        column = np.asarray((labels or {}).get(name, []), dtype=object)
        if column.size and column.shape != meas.shape:
            raise ValueError(f"{meas.size} rows, but {column.size} labels of {name}")
        present = sorted({str(x) for x in column[good]}) if column.size else []
        result[f"by_{name}"] = {key: part(good & (column.astype(str) == key)) for key in present}
    return result
