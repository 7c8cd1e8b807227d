"""What a device costs to make, to buy and to run: silicon by yield, memory, package, server; power with PUE over years.

Prices are rough and dated: the answer is for comparing designs, not for a tender. USD, W, s, m².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rooflm.asked.purchase import DUTY, HOURS, PUE, YEARS
from rooflm.technology.build import Built
from rooflm.technology.description import Technology, Wire
from rooflm.units import Num

WAFER = 0.3
"""Diameter of a wafer (m)."""
CLUSTERING = 3.0
"""Clustering of defects in the yield formula (Stapper 1989: 2 to 3 in practice)."""

AT_REST = 0.9
"""Share of its full power that a network draws without traffic. Inferred from measurements of switches and routers:
"negligible signs of power-load proportionality" (Bell Labs 2013, five systems), 7 % more from idle to full load (two
routers, arXiv 1109.0911); transceivers and network cards draw theirs as long as the link is up."""
BEYOND_DIE = 0.5
"""Share of an on-die link's energy a bit that its switch takes: each bit crosses four SerDes, two of them there. The
other half is the die's own and within its power."""


@dataclass(frozen=True)
class Prices:
    """What money buys. All inferred, 2026: rounded from press reports and list prices.

    electricity: USD a kWh; pue: power of the site over that of its machines; years: until written off; duty: share of
    the time in use; markup: selling price of the device over its bill of materials (data-centre GPUs sell at gross
    margins near 75 to 85 %); package: USD a m² of interposer and substrate; assembly: USD a device for board, test and
    cooler; server: USD of host, chassis and rack a device; upkeep: share of the capital a year for space and people;
    host_power: W of host, fans and conversion a device.
    """

    electricity: Num = 0.08
    pue: Num = PUE
    years: Num = YEARS
    duty: Num = DUTY
    markup: Num = 6.0
    package: Num = 3e5
    assembly: Num = 300.0
    server: Num = 6000.0
    upkeep: Num = 0.05
    host_power: Num = 150.0


class Bill(NamedTuple):
    """USD of one device: parts of its making, its price, the capital with server and network port; W it draws."""

    silicon: Num
    memory: Num
    package: Num
    device: Num
    capital: Num


def dies_a_wafer(area: Num) -> Num:
    """Whole dies of `area` m² on a wafer: π (d/2)² / A - π d / √(2 A).

    Source: Hennessy and Patterson, Computer Architecture, section 1.6.

    >>> round(float(dies_a_wafer(814e-6)), 1)
    63.5
    """
    return np.pi * (WAFER / 2) ** 2 / area - np.pi * WAFER / np.sqrt(2.0 * area)


def die_yield(area: Num, defects: Num, enabled: Num = 1.0) -> Num:
    """Share of good dies, (1 + A D / α)^-α with the area that a defect really kills.

    A defect in a unit that may be off does no harm: the share 1 - enabled of the area is forgiven twice over (half of
    the dies' defects fall on repeatable units; inferred). Source of the form: Stapper (1989), negative binomial.

    >>> round(float(die_yield(814e-6, 1e3)), 3)
    0.487
    """
    kills = area * np.maximum(1.0 - 2.0 * (1.0 - enabled), 0.5)
    return (1.0 + kills * defects / CLUSTERING) ** -CLUSTERING


def link_power(wire: Wire, rate: Num, sent: Num = 0.0) -> Num:
    """W of a link at full rate `rate` (B/s one way), of which `sent` B/s are used on average: what both ends and the
    switches draw, most of it at rest.

    P = 8 · rate · energy · (AT_REST + (1 - AT_REST) · sent / rate).

    >>> wire = Wire("w", "infiniband", 1024, 4, 50e9, 5e-6, 235e-12, 0, 0, 2500)
    >>> float(link_power(wire, 50e9, 50e9)), round(float(link_power(wire, 50e9)), 1)
    (94.0, 84.6)
    """
    return 8.0 * wire.energy * (AT_REST * rate + (1.0 - AT_REST) * np.minimum(sent, rate))


def network_power(
    intra: Wire, intra_rate: Num, fabric: Wire, fabric_rate: Num, sent: tuple[Num, Num], devices: Num
) -> Num:
    """W a device of its network beyond the die: the switches of the node where there are several devices, and the port,
    cables and switches of the fabric where they span nodes. sent: B/s on average, inside the node and beyond."""
    inside = np.where(np.asarray(devices) > 1, BEYOND_DIE * link_power(intra, intra_rate, sent[0]), 0.0)
    beyond = np.where(np.asarray(devices) > intra.size, link_power(fabric, fabric_rate, sent[1]), 0.0)
    return inside + beyond


def bill(t: Technology, built: Built, fabric: Wire, p: Prices) -> Bill:
    """What a device costs: good dies, stacks, package, times the markup; then its server and network port."""
    one = t.budget.die / t.budget.dies
    good = dies_a_wafer(one) * die_yield(one, t.node.defects, t.style.enabled_sms)
    silicon = t.budget.dies * t.node.wafer / good
    memory = built.stacks * t.dram.price
    package = t.budget.package * p.package + p.assembly
    device = (silicon + package) * p.markup + memory * (1.0 + (p.markup - 1.0) / 2.0)
    return Bill(silicon, memory, package, device, device + p.server + fabric.price + t.intra.price)


def usd_per_second(b: Bill, power: Num, p: Prices) -> Num:
    """USD a second of use of one device: capital over its life in use, upkeep, and electricity at `power` W with PUE
    (of the device and its share of the network).

    >>> b = Bill(0, 0, 0, 0, 30_000.0); round(float(usd_per_second(b, 1000.0, Prices())) * 3600, 2)
    1.39
    """
    return tco(b, 1.0, power, p)["total"] / in_use(p)


def in_use(p: Prices) -> Num:
    """Seconds that a device is used until it is written off."""
    return p.years * HOURS * 3600.0 * p.duty


def tco(b: Bill, devices: Num, power: Num, p: Prices) -> dict[str, Num]:
    """USD of `devices` over their years: capital, upkeep, electricity; they sum to total.

    >>> d = tco(Bill(0, 0, 0, 0, 30_000.0), 8, 1000.0, Prices()); round(float(d["total"] / d["capital"]), 2)
    1.3
    """
    capital = b.capital * devices
    energy = devices * (power + p.host_power) * p.pue * in_use(p) / 3.6e6 * p.electricity
    upkeep = capital * p.upkeep * p.years
    return {"capital": capital, "upkeep": upkeep, "electricity": energy, "total": capital + upkeep + energy}
