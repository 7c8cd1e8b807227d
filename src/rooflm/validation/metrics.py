"""How far predictions are off: pure functions of measured and predicted values.

Definitions, alike for times, rates and bytes: ratio r = predicted / measured; absolute percentage error
ape = |r - 1|; mape, median_ape, p90_ape its mean, median and 90th percentile; bias = mean(r - 1), positive where the
prediction is too high; coverage = share of rows with low <= measured <= high, among those that have a band. All are
fractions (0.07 is 7 %), and None where there is no row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = Sequence[float] | Array


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
    ValueError where there are not as many predicted values as measured ones.

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
