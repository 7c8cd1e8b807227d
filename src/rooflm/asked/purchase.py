"""What cards cost to buy, where their makers or others said so in public, and what an hour of one's own card costs."""

from __future__ import annotations

import csv
from functools import cache
from typing import NamedTuple

from rooflm.errors import RooflmError
from rooflm.readers.rows import DATA, resolve
from rooflm.units import Num

YEARS, DUTY, PUE = 4.0, 0.8, 1.2
"""Assumed, and said beside an answer: until a machine is written off; share of that time in use; power of a site over
that of its machines."""
HOURS = 8766.0
"""Hours of a year."""


class Purchase(NamedTuple):
    """A published price: USD, its date, what it is of ("card", or "machine" that is sold whole), and who said so."""

    usd: float
    date: str
    of: str
    source: str

    @property
    def told(self) -> str:
        """Price, date and source in words.

        >>> purchase("rtx-4090").told
        '1,599 USD (NVIDIA launch price, 2022-09)'
        """
        return f"{self.usd:,.0f} USD ({self.source}, {self.date})"


@cache
def purchases() -> dict[str, Purchase]:
    """Every price that is known, by the card's name: launch prices, before tax, as their makers announced them. Makers
    of data-centre cards publish none: of those bought most there is an indicative street price, good to a third."""
    with (DATA / "devices" / "purchase.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {r["gpu"]: Purchase(float(r["usd"]), r["date"], r["of"], r["source"]) for r in rows}


def purchase(name: str) -> Purchase | None:
    """The price of a card by any of its names, None where none is known.

    >>> purchase("mi300x") is None
    True
    """
    try:
        return purchases().get(resolve("gpu", name))
    except RooflmError:
        return None


def affordable(budget: float) -> tuple[str, ...]:
    """Cards of which one costs at most so many USD, the dearest first. RooflmError where there is none.

    >>> affordable(220)
    ('arc-b570',)
    """
    priced = sorted(((p.usd, name) for name, p in purchases().items() if p.usd <= budget), reverse=True)
    if not priced:
        least = min(p.usd for p in purchases().values())
        raise RooflmError(f"under is {budget:g} USD, but the cheapest card whose price is known costs {least:g}")
    return tuple(name for _, name in priced)


def owned_hour(usd: Num, watts: Num, electricity: Num) -> Num:
    """USD an hour in use of one's own card: its price (USD) over the hours that it is used until it is written off, and
    its electricity (USD a kWh) at full power (W) while it is used.

    >>> round(owned_hour(1599, 450, 0.15), 4)  # 1599 / (4 x 8766 x 0.8) + 0.45 x 0.15
    0.1245
    """
    return usd / (YEARS * HOURS * DUTY) + watts / 1000 * electricity
