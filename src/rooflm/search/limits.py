"""Constraints of a search: an output, its bound, and how a broken one is described."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rooflm.shown.numbers import days, spoken, text


class Limit(NamedTuple):
    """A constraint: an output, its bound, and whether the bound is an upper one. label and unit: for messages; endless:
    the message for an infinite output ("": that it grows without bound)."""

    key: str
    bound: float
    label: str
    unit: str = ""
    at_most: bool = True
    endless: str = ""

    def excess(self, value: Any) -> Any:
        """By which share a value breaks the bound (0 or below: it meets it).

        >>> round(Limit("tpot_s", 0.05, "TPOT", "s").excess(0.06), 9)
        0.2
        >>> Limit("output_tokens_per_s", 100.0, "throughput", at_most=False).excess(80.0)
        0.25
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return value / self.bound - 1 if self.at_most else self.bound / value - 1

    def described(self, value: float) -> str:
        """The message for a violated bound.

        >>> Limit("tpot_s", 0.05, "TPOT", "s").described(0.06), MEMORY.described(2.5)
        ('TPOT is 60.0 ms, 20 % above 50.0 ms', 'memory in use is 250.0 % of what is usable')
        """
        if value == np.inf:
            return self.endless or f"{self.label} grows without bound, beyond {self.written(self.bound)}"
        if self == MEMORY:
            return f"{self.label} is {self.written(value)} of what is usable"
        ratio = value / self.bound
        share = times(ratio) if ratio >= 2 else f"{percent(abs(ratio - 1))} {'above' if ratio > 1 else 'below'}"
        return f"{self.label} is {self.written(value)}, {share} {self.written(self.bound)}"

    @property
    def told(self) -> str:
        """What it asks for.

        >>> Limit("ttft_s", 500, "time to first token", "s").told, Limit("mfu", 0.4, "MFU", at_most=False).told
        ('time to first token at most 8.3 minutes', 'MFU at least 0.4')
        """
        return f"{self.label} at {'most' if self.at_most else 'least'} {self.written(self.bound)}"

    def written(self, value: float) -> str:
        """A value with its unit.

        >>> Limit("days", 0.1, "time of the run", "days").written(0.1)
        '2.4 hours'
        """
        if self.unit == "days":
            return days(value)
        if self.unit == "share":
            return f"{100 * value:.1f} %"
        if self.unit == "USD":
            return spoken(value, "USD")
        return text(value, self.unit) if self.unit else f"{value:.4g}"


MEMORY = Limit("memory_share", 1.0, "memory in use", "share")
"""What every legal point meets: it fits."""


def percent(share: float) -> str:
    """A share for people: two digits below ten per cent, whole numbers above.

    >>> percent(0.0123), percent(2.34567)
    ('1.2 %', '235 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %"


def times(ratio: float) -> str:
    """How many times as much, for people.

    >>> times(2.0), times(11.29)
    ('2 times', '11.3 times')
    """
    return f"{ratio:,.0f} times" if ratio >= 100 or ratio == int(ratio) else f"{ratio:.3g} times"
