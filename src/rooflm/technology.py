"""A device from its technology: node, memory, links, and budgets of area, power and edge -> what software sees.

The engine is DeepFlow's (Ardalani, Pal and Gupta, "DeepFlow", arXiv 2211.03309) in closed form: every function takes
numbers or arrays, so a sweep over nodes, memories or budget shares is one evaluation. Where we differ it is said.
Lengths in m, areas in m², power in W, energy in J. Factors of a `Node` are against the 16/12 nm class.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from rooflm.hardware import Device, Memory
from rooflm.units import Num

FREQUENCY = 1.33e9
"""Hz at the nominal voltage of every node (DeepFlow keeps it constant: its nodes buy area and power)."""
MCU_AREA = 0.38e-6 / 128
"""m² a FLOP a cycle of a matrix unit, with its share of schedulers and vector units, at 16/12 nm: DeepFlow's 0.38 mm²
for 128 (V100). Its A100 file has twice that; the same value for all is within 11 % of compute from V100 to B200."""
MCU_ENERGY = 0.13 / (128 * FREQUENCY)
"""J a FLOP in the matrix unit at 16/12 nm: 0.13 W for 128 FLOP a cycle (DeepFlow)."""
REGISTER_ENERGY, L1_ENERGY = 110e-15, 130e-15
"""J a bit at 16/12 nm (DeepFlow)."""
L2_ENERGY = 1e-12
"""J a bit at 16/12 nm: inferred, ten millimetres of wire at 0.1 pJ a bit and mm (DeepFlow: 0.13 pJ plus its links)."""
SRAM_BIT = 4.7e-13
"""m² a bit of registers and L1 at 16/12 nm (DeepFlow's A100: 1.8e-13 in N7)."""
L2_BIT = 7.7e-13
"""m² a bit of L2 with tags and control at 16/12 nm (GA100: 119 mm² for 48 MiB in N7, LLMCompass, ISCA 2024)."""
L2_PORT = 1.0e-6
"""m² of crossbar a slice at 16/12 nm (GA100: 76 mm² for 96 slices in N7); scales as analog: it is wire."""
L1_PORT_BYTES = 128.0
"""Bytes a cycle of an SM's L1."""
SM_REGISTERS = 256 * 1024.0
"""Bytes of registers of an SM, Volta to Blackwell."""


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
    latency: Num
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


@dataclass(frozen=True)
class Shares:
    """Shares of an area or power budget by component; they sum to 1. `other`: I/O and control, or power at rest."""

    cores: Num = 0.475
    registers: Num = 0.058
    l1: Num = 0.044
    l2: Num = 0.237
    dram: Num = 0.109
    intra: Num = 0.028
    inter: Num = 0.012
    other: Num = 0.037

    @property
    def total(self) -> Num:
        """Sum of all shares.

        >>> round(float(Shares().total), 12)
        1.0
        """
        total: Num = sum(getattr(self, f.name) for f in fields(self))
        return total


AREA = Shares()
"""Shares of the die: GA100's photograph as annotated in LLMCompass (ISCA 2024), SRAM of SMs from DeepFlow's A100."""
POWER = Shares(cores=0.32, registers=0.15, l1=0.04, l2=0.06, dram=0.20, intra=0.07, inter=0.02, other=0.14)
"""Shares of the power: inferred. At rest V100 to B200 draw 10 to 15 % of their TDP; memory at full rate 15 to 20 %."""


@dataclass(frozen=True)
class Edge:
    """Shares of the die's perimeter; they sum to 1."""

    dram: Num = 0.58
    intra: Num = 0.20
    inter: Num = 0.07
    other: Num = 0.15

    @property
    def total(self) -> Num:
        """Sum of all shares."""
        total: Num = sum(getattr(self, f.name) for f in fields(self))
        return total


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
    register_share: part of the operands that comes from registers rather than shared or tensor memory.
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


class Point(NamedTuple):
    """Where a component runs: voltage in V, frequency in Hz, power drawn in W."""

    voltage: Num
    frequency: Num
    power: Num


class Built(NamedTuple):
    """A device with what it is made of: link rates (B/s one way), m² and W used by component, the cores' point."""

    device: Device
    intra: Num
    inter: Num
    stacks: Num
    area: dict[str, Num]
    power: dict[str, Num]
    cores: Point


def solve_voltage(ratio: Num, nominal: Num, threshold: Num) -> Num:
    """Voltage V at which a circuit draws `ratio` times its nominal power: V (V - Vt)² = ratio · Vn (Vn - Vt)².

    Power is C V² f and f ~ (V - Vt)²/V (alpha-power law, alpha 2). Eight Newton steps from above: the cubic is convex
    beyond Vt, so they fall to the root one way, for arrays alike. Source: DeepFlow (arXiv 2211.03309), core model.

    >>> round(float(solve_voltage(1.0, 0.8, 0.2)), 9)
    0.8
    >>> v = float(solve_voltage(3.0, 0.8, 0.2)); round(v * (v - 0.2) ** 2 / (0.8 * 0.6**2), 9)
    3.0
    """
    target = ratio * nominal * (nominal - threshold) ** 2
    v = threshold + np.cbrt(target)
    for _ in range(8):
        over = v - threshold
        v = v - (v * over**2 - target) / np.maximum(over**2 + 2 * v * over, 1e-300)
    return v


def speed(voltage: Num, threshold: Num) -> Num:
    """Switching speed of a gate but for a constant, (V - Vt)²/V (alpha-power law; Sakurai and Newton 1990).

    >>> float(speed(0.8, 0.3)) == 0.5**2 / 0.8
    True
    """
    return (voltage - threshold) ** 2 / voltage


def operating_point(power: Num, nominal_power: Num, node: Node) -> Point:
    """Voltage and frequency that a power budget buys, for a circuit that draws `nominal_power` at the nominal point.

    Between Vt + margin and the most that the node stands, the cubic; below, V stays and f falls with the power; above,
    V stays and the rest of the budget is left. Power is never above the budget. DeepFlow derates f by (V / Vmin)² where
    we keep the power, which never gives more than it.

    >>> n = Node("ref", 12, 1, 1, 1, 1, 0.8, 0.2, 0.35, 1.04, 4e3, 1e3)
    >>> [round(float(operating_point(p, 1.0, n).frequency) / 1e9, 3) for p in (0.01, 1.0, 9.0)]
    [0.028, 1.33, 2.005]
    """
    ratio = power / np.maximum(nominal_power, 1e-30)
    low = node.threshold + node.margin
    voltage = np.minimum(np.maximum(solve_voltage(ratio, node.voltage, node.threshold), low), node.max_voltage)
    at = speed(voltage, node.threshold) / speed(node.voltage, node.threshold)
    full = at * (voltage / node.voltage) ** 2
    kept = np.minimum(ratio / full, 1.0)
    return Point(voltage, FREQUENCY * at * kept, nominal_power * full * kept)


def whole(value: Num) -> Num:
    """The whole units that fit (forgiving the rounding of floating point).

    >>> float(whole(0.3 / 0.1)), float(whole(79.999))
    (3.0, 79.0)
    """
    return np.floor(value * (1.0 + 1e-12))


def working(units: Num, share: Num) -> Num:
    """The units that are switched on of those built; a share such as 0.833333 of 96 means 80.

    >>> float(working(96, 0.833333))
    80.0
    """
    return np.floor(units * share + 1e-3)


def perimeter(area: Num, dies: Num = 1) -> Num:
    """Outer edge (m) of `dies` equal square dies in a row, 4 √A for one (DeepFlow); neighbours lose the shared edges.

    >>> float(perimeter(1e-4)), float(perimeter(2e-4, 2))
    (0.04, 0.06)
    """
    side = np.sqrt(area / dies)
    return side * (2.0 * dies + 2.0)


def mcu_area(flops: Num, node: Node) -> Num:
    """m² of a matrix unit of `flops` FLOP a cycle. DeepFlow: 0.38 mm² for 128 at 16/12 nm, 1.006 mm² for 512 in N7."""
    return MCU_AREA * flops * node.logic_area


def register_bytes(flops: Num) -> Num:
    """Bytes that a matrix unit of `flops` FLOP a cycle takes from and gives to registers in a cycle, 16-bit operands.

    A cube of side k multiplies k³ pairs (2 k³ FLOP) and touches three faces of k² values: 3 · 2 B · (flops / 2)^(2/3).
    DeepFlow: (2 reuse + 1) / (2 reuse) a FLOP over the width of the unit.

    >>> round(float(register_bytes(128)), 9)
    96.0
    """
    return 6.0 * (flops / 2.0) ** (2.0 / 3.0)


def sram_area(size: Num, bit: Num, port: Num, node: Node) -> Num:
    """m² of a bank of `size` bytes: cells (scale as SRAM) and its port (wires: scale as analog)."""
    return size * 8.0 * bit * node.sram_area + port * node.analog_area


def sram(
    area: Num, power: Num, bank: Num, bank_area: Num, port: Num, energy: Num, node: Node, on: Num = 1.0
) -> tuple[Num, Num, Point]:
    """Banks of an SRAM level, its B/s, and where it runs.

    banks = whole(area / bank_area) of which the share `on` works; each delivers `port` bytes a cycle of a clock that
    the power buys: P_nominal = banks · port · 8 · energy · f. DeepFlow: banks likewise, bandwidth = (power - leakage) /
    energy a byte, without the limit of ports and voltage.

    >>> n = Node("ref", 12, 1, 1, 1, 1, 0.8, 0.2, 0.35, 1.04, 4e3, 1e3)
    >>> banks, rate, _ = sram(100e-6, 100.0, 2**19, 5e-6, 64, 1e-12, n); float(banks), float(rate) / 1e12 > 1.7
    (20.0, True)
    """
    banks = working(whole(area / bank_area), on)
    point = operating_point(power, banks * port * 8.0 * energy * node.energy * FREQUENCY, node)
    return banks, banks * port * point.frequency, point


def dram_area(dram: Dram, node: Node) -> Num:
    """m² of PHY and controller that a stack takes on the die: the PHY scales as analog, the controller as logic."""
    return dram.phy_area * node.analog_area + dram.controller_area * node.logic_area


def dram_stacks(area: Num, edge: Num, package: Num, dram: Dram, node: Node, sites: Num) -> Num:
    """Stacks that die area, edge (m) and the package beside the die can hold, at most `sites`.

    min(area / (PHY + controller), edge / width, package / stack area). Source: DeepFlow, with the PHY's width in
    place of its links a mm.
    """
    held = np.minimum(whole(area / dram_area(dram, node)), whole(edge / dram.edge))
    return np.minimum(np.minimum(held, whole(package / np.maximum(dram.stack_area, 1e-12))), sites)


def dram_bandwidth(stacks: Num, power: Num, dram: Dram) -> Num:
    """B/s: all stacks at their rate, or what the power carries (power / energy a byte).

    >>> d = Dram("d", 400e9, 16e9, 4e-12, 5e-7, 1e-4, 1e-5, 1e-5, 0.011, 200)
    >>> float(dram_bandwidth(5, 100.0, d)), float(dram_bandwidth(5, 32.0, d))
    (2000000000000.0, 1000000000000.0)
    """
    return np.minimum(stacks * dram.bandwidth, power / (8.0 * dram.energy))


def link_bandwidth(area: Num, edge: Num, power: Num, wire: Wire, node: Node) -> Num:
    """B/s one way that the die affords of a link: by area, edge (m) and power, at most the product's own rate.

    lanes = min(area / lane, edge · lanes a m); each direction of a bit costs `energy`. Source: DeepFlow's network.
    """
    by_area = whole(area / np.maximum(wire.lane_area * node.analog_area, 1e-12))
    by_edge = whole(edge * np.maximum(wire.lanes_edge, 1e6 * (np.asarray(wire.lanes_edge) == 0)))
    lanes = np.minimum(np.minimum(by_area, by_edge), wire.lanes)
    return np.minimum(lanes * wire.lane_rate, power / (8.0 * wire.energy))


def build(t: Technology) -> Built:
    """The device that the budgets buy.

    Rates follow from shares of area, power and edge; FLOP/s is the least that matrix units, and the registers that feed
    them, can do; an SM needs matrix units, registers and L1, and its L1 runs at its clock. No budget is exceeded:
    `area` and `power` say what each component takes of its share.
    """
    n, b, s = t.node, t.budget, t.style
    area = {f.name: b.die * getattr(b.area, f.name) for f in fields(Shares)}
    watts = {f.name: b.power * getattr(b.watts, f.name) for f in fields(Shares)}
    around = perimeter(b.die, b.dies)
    registers, ports = SM_REGISTERS / s.mcus_sm, register_bytes(s.mcu_flops) * s.register_share
    register_area = sram_area(registers, SRAM_BIT, 0.0, n)
    fed, fed_rate, fed_point = sram(
        area["registers"], watts["registers"], registers, register_area, ports, REGISTER_ENERGY, n, s.enabled_sms
    )
    l1_area = sram_area(s.l1, SRAM_BIT, 0.0, n)
    l1s, l1_rate, l1_point = sram(area["l1"], watts["l1"], s.l1, l1_area, L1_PORT_BYTES, L1_ENERGY, n, s.enabled_sms)
    built = whole(area["cores"] / mcu_area(s.mcu_flops, n))
    mcus = np.minimum(np.minimum(working(built, s.enabled_sms), fed), l1s * s.mcus_sm)
    point = operating_point(watts["cores"], mcus * s.mcu_flops * MCU_ENERGY * n.energy * FREQUENCY, n)
    peak = np.minimum(mcus * s.mcu_flops * point.frequency, fed_rate * s.mcu_flops / ports)
    sms = mcus / s.mcus_sm
    l2_area = sram_area(s.slice, L2_BIT, L2_PORT, n)
    l2s, l2_rate, l2_point = sram(area["l2"], watts["l2"], s.slice, l2_area, s.port, L2_ENERGY, n, s.enabled_l2)
    stacks = dram_stacks(area["dram"], around * b.edge.dram, b.package - b.die, t.dram, n, b.sites)
    dram_rate = dram_bandwidth(stacks, watts["dram"], t.dram)
    intra = link_bandwidth(area["intra"], around * b.edge.intra, watts["intra"], t.intra, n)
    inter = link_bandwidth(area["inter"], around * b.edge.inter, watts["inter"], t.inter, n)
    tiny = 1e-3  # a component without budget is as slow as can be, not a division by zero
    device = Device(
        name=t.name,
        vendor="explored",
        architecture="explored",
        peak={k: np.maximum(peak, tiny) * v for k, v in s.rates.items()},
        sms=np.maximum(whole(sms), 1.0),
        clock=point.frequency,
        l1=Memory(
            np.maximum(sms * s.l1, 1.0),
            np.maximum(np.minimum(l1_rate, sms * L1_PORT_BYTES * point.frequency), tiny),
        ),
        l2=Memory(np.maximum(l2s * s.slice, 1.0), np.maximum(l2_rate, tiny)),
        dram=Memory(stacks * t.dram.size, np.maximum(dram_rate, tiny), t.dram.latency),
        tdp=b.power,
        idle=watts["other"],
        price=0.0,
    )
    used = {
        "cores": built * mcu_area(s.mcu_flops, n),
        "registers": whole(area["registers"] / register_area) * register_area,
        "l1": whole(area["l1"] / l1_area) * l1_area,
        "l2": whole(area["l2"] / l2_area) * l2_area,
        "dram": stacks * dram_area(t.dram, n),
        "intra": intra / t.intra.lane_rate * t.intra.lane_area * n.analog_area,
        "inter": inter / t.inter.lane_rate * t.inter.lane_area * n.analog_area,
        "other": area["other"],
    }
    drawn = {
        "cores": point.power, "registers": fed_point.power, "l1": l1_point.power, "l2": l2_point.power,
        "dram": dram_rate * 8.0 * t.dram.energy, "intra": intra * 8.0 * t.intra.energy,
        "inter": inter * 8.0 * t.inter.energy, "other": watts["other"],
    }  # fmt: skip
    return Built(device, np.maximum(intra, tiny), np.maximum(inter, tiny), stacks, used, drawn, point)
