"""What area, power and edge buy of each component: the formulas of the technology engine.

The engine is DeepFlow's (Ardalani, Pal and Gupta, "DeepFlow", arXiv 2211.03309) in closed form: every function takes
numbers or arrays, so a sweep over nodes, memories or budget shares is one evaluation. Where we differ it is said.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.technology.description import Dram, Node, Wire
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


class OperatingPoint(NamedTuple):
    """Where a component runs: voltage in V, frequency in Hz, power drawn in W."""

    voltage: Num
    frequency: Num
    power: Num


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


def voltage_for(ratio: Num, nominal: Num, threshold: Num) -> Num:
    """Voltage V at which a gate is `ratio` times as fast as at the nominal one: the larger root of (V - Vt)² = s V.

    >>> v = float(voltage_for(1.5, 0.8, 0.2)); round(float(speed(v, 0.2) / speed(0.8, 0.2)), 9)
    1.5
    """
    s = ratio * speed(nominal, threshold)
    half = threshold + s / 2.0
    return half + np.sqrt(half**2 - threshold**2)


def operating_point(power: Num, nominal_power: Num, node: Node, most: Num = float("inf")) -> OperatingPoint:
    """Voltage and frequency that a power budget buys, for a circuit that draws `nominal_power` at the nominal point.

    Between Vt + margin and the most that the node stands, the cubic; below, V stays and f falls with the power; above,
    V stays and the rest of the budget is left, as it is beyond `most` Hz. Power is never above the budget. DeepFlow
    derates f by (V / Vmin)² where we keep the power, which never gives more than it.

    >>> n = Node("ref", 12, 1, 1, 1, 1, 0.8, 0.2, 0.35, 1.04, 4e3, 1e3)
    >>> [round(float(operating_point(p, 1.0, n).frequency) / 1e9, 3) for p in (0.01, 1.0, 9.0)]
    [0.028, 1.33, 2.005]
    >>> round(float(operating_point(9.0, 1.0, n, 1.8e9).frequency) / 1e9, 3)
    1.8
    """
    ratio = power / np.maximum(nominal_power, 1e-30)
    low = node.threshold + node.margin
    rated = voltage_for(most / FREQUENCY, node.voltage, node.threshold)
    bought = np.minimum(solve_voltage(ratio, node.voltage, node.threshold), np.minimum(rated, node.max_voltage))
    voltage = np.maximum(bought, low)
    at = speed(voltage, node.threshold) / speed(node.voltage, node.threshold)
    full = at * (voltage / node.voltage) ** 2
    kept = np.minimum(np.minimum(ratio / full, most / (FREQUENCY * at)), 1.0)
    return OperatingPoint(voltage, FREQUENCY * at * kept, nominal_power * full * kept)


def whole(value: Num) -> Num:
    """The whole units that fit (forgiving the rounding of floating point).

    >>> float(whole(0.3 / 0.1)), float(whole(79.999))
    (3.0, 79.0)
    """
    return np.floor(value * (1.0 + 1e-12))


def working(units: Num, share: Num) -> Num:
    """Units that are switched on, of those built; a share such as 0.833333 of 96 means 80.

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
    area: Num, power: Num, bank_area: Num, port: Num, energy: Num, node: Node, on: Num = 1.0, most: Num = float("inf")
) -> tuple[Num, Num, OperatingPoint]:
    """Banks of an SRAM level, its B/s, and where it runs.

    banks = whole(area / bank_area) of which the share `on` works; each delivers `port` bytes a cycle of a clock that
    the power buys, `most` Hz at most: P_nominal = banks · port · 8 · energy · f. DeepFlow: banks likewise, bandwidth =
    (power - leakage) / energy a byte, without the limit of ports and voltage.

    >>> n = Node("ref", 12, 1, 1, 1, 1, 0.8, 0.2, 0.35, 1.04, 4e3, 1e3)
    >>> banks, rate, _ = sram(100e-6, 100.0, 5e-6, 64, 1e-12, n); float(banks), float(rate) / 1e12 > 1.7
    (20.0, True)
    """
    banks = working(whole(area / bank_area), on)
    point = operating_point(power, banks * port * 8.0 * energy * node.energy * FREQUENCY, node, most)
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

    >>> d = Dram("d", 400e9, 16e9, 4e-12, 1e-4, 1e-5, 1e-5, 0.011, 200)
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
