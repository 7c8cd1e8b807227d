"""Errors and ratios of predictions as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rooflm.shown.blocks import Table


def percent(value: Any) -> str:
    """A fraction in per cent, or a dash.

    >>> percent(0.1234), percent(None)
    ('12.3', '-')
    """
    return "-" if value is None else f"{100 * value:.1f}" if value < 100 else f"{100 * value:.0e}"


def signed(value: Any) -> str:
    """A fraction in per cent with its sign.

    >>> signed(0.05)
    '+5.0'
    """
    return "-" if value is None else f"{100 * value:+.1f}" if value < 100 else f"{100 * value:+.0e}"


def ratio_text(ratio: float) -> str:
    """A ratio with two places, or as a power of ten where it is far off.

    >>> ratio_text(1.234), ratio_text(0.00079), ratio_text(float("nan"))
    ('1.23', '8e-04', '-')
    """
    return "-" if ratio != ratio else f"{ratio:.2f}" if 0.01 <= ratio < 1000 else f"{ratio:.0e}"


def errors_table(head: Sequence[str], errors: Mapping[str, Mapping[str, Any]]) -> Table:
    """Error figures (`rooflm.validation.metrics.describe`) by name: rows, median, p90, bias."""
    body = [
        (name[:40], str(f["rows"]), percent(f["median_ape"]), percent(f["p90_ape"]), signed(f["bias"]))
        for name, f in errors.items()
    ]
    return Table([head, *body], "lrrrr", head=True)
