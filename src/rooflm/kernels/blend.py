"""How two limits join where they overlap in part, and how device memory starts up: one form each, for every kernel."""

from __future__ import annotations

from functools import reduce

from rooflm.units import Num, expm1, larger, pick, smaller, sqrt

FILL = 5e-6
"""s of transfer over which the pipeline of device memory fills: half of what filling it costs is paid then (63 % in the
exponential form). Fitted once for products; the fits of other kernels keep it."""


def smooth_max(sharp: Num, *terms: Num) -> Num:
    """(sum of terms^sharp)^(1/sharp), a p-norm: the sum for sharp 1, towards the largest for large sharp."""
    top = larger(reduce(larger, terms), 1e-30)
    if len(terms) == 2:  # the larger of two is top itself: one power less, the same bits
        total: Num = pick(top > 1e-30, 1.0 + (smaller(*terms) / top) ** sharp, 0.0)
    else:
        total = sum((term / top) ** sharp for term in terms)
    return top * total ** (1.0 / sharp)


def smooth_min(sharp: Num, a: Num, b: Num) -> Num:
    """(a^-sharp + b^-sharp)^(-1/sharp) of two positive numbers, without overflow: the mirror of `smooth_max`.

    >>> round(float(smooth_min(1.0, 1.0, 1.0)), 3), round(float(smooth_min(8.0, 1.0, 9.0)), 3)
    (0.5, 1.0)
    """
    low = smaller(a, b)
    return low * (1.0 + (low / larger(larger(a, b), 1e-300)) ** sharp) ** (-1.0 / sharp)


def part_overlap(a: Num, b: Num, mix: Num) -> Num:
    """Between max(a, b) at mix 0 (full overlap) and a + b at mix 1 (none): (a + b + sqrt((a - b)² + 4 mix a b)) / 2."""
    d = a - b
    return 0.5 * (a + b + sqrt(d * d + (4.0 * mix) * a * b))


def filling(transfer: Num, most: Num) -> Num:
    """Seconds lost until device memory streams at full rate, at most `most`: most T / (T + 5 us) of a transfer of T."""
    return most * transfer / (transfer + FILL)


def filling_soon(transfer: Num, most: Num) -> Num:
    """The same where it saturates sooner: most (1 - e^(-T / 5 us)), as attention's and experts' kernels were fitted."""
    return -most * expm1(-transfer / FILL)
