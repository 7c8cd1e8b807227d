"""Technology as data: process node, memory, links, budgets of area, power and edge, and what a designer fixes.

`technology_circuits` has the formulas, `technology_build` the device that the budgets buy. Any number may be an array.
Lengths in m, areas in m², power in W, energy in J. Factors of a `Node` are against the 16/12 nm class.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from rooflm.units import Num


@dataclass(frozen=True)
class Node:
    """A logic process. Areas and energy are factors against 16/12 nm; energy at the same speed; voltages in V."""

    name: str
    nm: Num
    logic_area: Num
    sram_area: Num
    analog_area: Num
    energy: Num
    voltage: Num
    threshold: Num
    margin: Num
    max_voltage: Num
    wafer: Num
    """USD a 300 mm wafer."""
    defects: Num
    """Defects a m²."""


@dataclass(frozen=True)
class Dram:
    """One stack or chip: rate in B/s, size in B, energy in J a bit; areas on the die at 16/12 nm; edge in m."""

    name: str
    bandwidth: Num
    size: Num
    energy: Num
    stack_area: Num
    phy_area: Num
    controller_area: Num
    edge: Num
    price: Num
    """USD a stack."""


@dataclass(frozen=True)
class Wire:
    """A link as the die sees it: `lanes` of `lane_rate` B/s each carry at most `bandwidth` B/s one way."""

    name: str
    kind: str
    size: Num
    lanes: Num
    bandwidth: Num
    latency: Num
    energy: Num
    lane_area: Num
    lanes_edge: Num
    """Lanes a m of the die's edge."""
    price: Num

    @property
    def lane_rate(self) -> Num:
        """B/s one way a lane, after coding."""
        return self.bandwidth / self.lanes


class Divided:
    """What its fields divide among them."""

    @property
    def total(self) -> Num:
        """Sum of all shares.

        >>> round(float(Shares().total), 12)
        1.0
        """
        return sum(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shares(Divided):
    """Shares of an area or power budget by component; they sum to 1. `other`: I/O and control, or power at rest."""

    cores: Num = 0.475
    registers: Num = 0.058
    l1: Num = 0.044
    l2: Num = 0.237
    dram: Num = 0.109
    intra: Num = 0.028
    inter: Num = 0.012
    other: Num = 0.037


AREA = Shares()
"""Shares of the die: GA100's photograph as annotated in LLMCompass (ISCA 2024), SRAM of SMs from DeepFlow's A100."""
POWER = Shares(cores=0.32, registers=0.15, l1=0.04, l2=0.06, dram=0.20, intra=0.07, inter=0.02, other=0.14)
"""Shares of the power: inferred. At rest V100 to B200 draw 10 to 15 % of their TDP; memory at full rate 15 to 20 %."""


@dataclass(frozen=True)
class Edge(Divided):
    """Shares of the die's perimeter; they sum to 1."""

    dram: Num = 0.58
    intra: Num = 0.20
    inter: Num = 0.07
    other: Num = 0.15


@dataclass(frozen=True)
class Budget:
    """What a designer may spend. die: m² of all dies; package: m² of the interposer; power in W; sites: for stacks."""

    die: Num
    package: Num
    power: Num
    sites: Num
    dies: Num = 1
    area: Shares = AREA
    watts: Shares = POWER
    edge: Edge = Edge()


@dataclass(frozen=True)
class Style:
    """What a designer fixes before spending: the shape of matrix units, SMs and caches.

    mcu_flops: FLOP a cycle of a matrix unit in 16 bits; rates: other data types against 16 bits; enabled: share of the
    built units that are switched on (yield); slice: bytes of an L2 slice that delivers `port` bytes a cycle;
    register_share: part of the operands that comes from registers rather than shared or tensor memory; clock: Hz that a
    product is rated for and never exceeds, whatever its power (explored designs have no such limit).
    """

    mcu_flops: Num
    mcus_sm: Num
    enabled_sms: Num
    enabled_l2: Num
    slice: Num
    port: Num
    l1: Num
    register_share: Num
    rates: dict[str, Num]
    clock: Num = float("inf")


@dataclass(frozen=True)
class Technology:
    """Everything from which `build` makes a device; any number may be an array."""

    name: str
    node: Node
    dram: Dram
    intra: Wire
    inter: Wire
    style: Style
    budget: Budget
