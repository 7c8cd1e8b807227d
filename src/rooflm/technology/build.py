"""From budgets to the device that they buy: one evaluation for a number or for arrays of them."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.hardware import Device, Memory
from rooflm.technology.circuits import (
    FREQUENCY,
    L1_ENERGY,
    L1_PORT_BYTES,
    L2_BIT,
    L2_ENERGY,
    L2_PORT,
    MCU_ENERGY,
    REGISTER_ENERGY,
    SM_REGISTERS,
    SRAM_BIT,
    OperatingPoint,
    dram_area,
    dram_bandwidth,
    dram_stacks,
    link_bandwidth,
    mcu_area,
    operating_point,
    perimeter,
    register_bytes,
    sram,
    sram_area,
    whole,
    working,
)
from rooflm.technology.description import Shares, Technology
from rooflm.units import Num


class Built(NamedTuple):
    """A device with what it is made of: link rates (B/s one way), m² and W used by component, the cores' point."""

    device: Device
    intra: Num
    inter: Num
    stacks: Num
    area: dict[str, Num]
    power: dict[str, Num]
    cores: OperatingPoint


class Processors(NamedTuple):
    """What computes: FLOP/s of a plain product, SMs, bytes and rate of L1 and L2, m² and W used by component, and the
    cores' operating point."""

    peak: Num
    sms: Num
    l1: Memory
    l2: Memory
    area: dict[str, Num]
    power: dict[str, Num]
    cores: OperatingPoint


def processors(t: Technology, area: dict[str, Num], watts: dict[str, Num]) -> Processors:
    """Matrix units, the registers that feed them, L1 and L2, from their shares of area (m²) and power (W).

    FLOP/s is the least that matrix units and registers can do; an SM needs matrix units, registers and L1, and its L1
    runs at its clock.
    """
    n, s = t.node, t.style
    register, port = SM_REGISTERS / s.mcus_sm, register_bytes(s.mcu_flops) * s.register_share
    sizes = {"registers": sram_area(register, SRAM_BIT, 0.0, n), "l1": sram_area(s.l1, SRAM_BIT, 0.0, n),
             "l2": sram_area(s.slice, L2_BIT, L2_PORT, n)}  # fmt: skip

    def memory(name: str, ports: Num, energy: Num, enabled: Num) -> tuple[Num, Num, OperatingPoint]:
        return sram(area[name], watts[name], sizes[name], ports, energy, n, enabled, s.clock)

    fed, fed_rate, fed_point = memory("registers", port, REGISTER_ENERGY, s.enabled_sms)
    l1s, l1_rate, l1_point = memory("l1", L1_PORT_BYTES, L1_ENERGY, s.enabled_sms)
    l2s, l2_rate, l2_point = memory("l2", s.port, L2_ENERGY, s.enabled_l2)
    built = whole(area["cores"] / mcu_area(s.mcu_flops, n))
    mcus = np.minimum(np.minimum(working(built, s.enabled_sms), fed), l1s * s.mcus_sm)
    point = operating_point(watts["cores"], mcus * s.mcu_flops * MCU_ENERGY * n.energy * FREQUENCY, n, s.clock)
    peak = np.minimum(mcus * s.mcu_flops * point.frequency, fed_rate * s.mcu_flops / port)
    sms = mcus / s.mcus_sm
    l1_rate = np.minimum(l1_rate, sms * L1_PORT_BYTES * point.frequency)
    used = {"cores": built * mcu_area(s.mcu_flops, n)}
    used |= {name: whole(area[name] / size) * size for name, size in sizes.items()}
    drawn = {"cores": point.power, "registers": fed_point.power, "l1": l1_point.power, "l2": l2_point.power}
    l1 = Memory(np.maximum(sms * s.l1, 1.0), np.maximum(l1_rate, TINY))
    l2 = Memory(np.maximum(l2s * s.slice, 1.0), np.maximum(l2_rate, TINY))
    return Processors(peak, sms, l1, l2, used, drawn, point)


TINY = 1e-3
"""B/s or FLOP/s: a component without budget is as slow as can be, not a division by zero."""


def build(t: Technology) -> Built:
    """The device that the budgets buy.

    Rates follow from shares of area, power and edge. No budget is exceeded: `area` and `power` say what each component
    takes of its share.
    """
    n, b, s = t.node, t.budget, t.style
    area = {f.name: b.die * getattr(b.area, f.name) for f in fields(Shares)}
    watts = {f.name: b.power * getattr(b.watts, f.name) for f in fields(Shares)}
    around = perimeter(b.die, b.dies)
    p = processors(t, area, watts)
    stacks = dram_stacks(area["dram"], around * b.edge.dram, b.package - b.die, t.dram, n, b.sites)
    dram_rate = dram_bandwidth(stacks, watts["dram"], t.dram)
    intra = link_bandwidth(area["intra"], around * b.edge.intra, watts["intra"], t.intra, n)
    inter = link_bandwidth(area["inter"], around * b.edge.inter, watts["inter"], t.inter, n)
    device = Device(
        name=t.name,
        vendor="explored",
        architecture="explored",
        peak={k: np.maximum(p.peak, TINY) * v for k, v in s.rates.items()},
        sms=np.maximum(whole(p.sms), 1.0),
        clock=p.cores.frequency,
        l1=p.l1,
        l2=p.l2,
        dram=Memory(stacks * t.dram.size, np.maximum(dram_rate, TINY)),
        tdp=b.power,
        idle=watts["other"],
        price=0.0,
    )
    used = {
        **p.area,
        "dram": stacks * dram_area(t.dram, n),
        "intra": intra / t.intra.lane_rate * t.intra.lane_area * n.analog_area,
        "inter": inter / t.inter.lane_rate * t.inter.lane_area * n.analog_area,
        "other": area["other"],
    }
    drawn = {
        **p.power, "dram": dram_rate * 8.0 * t.dram.energy, "intra": intra * 8.0 * t.intra.energy,
        "inter": inter * 8.0 * t.inter.energy, "other": watts["other"],
    }  # fmt: skip
    return Built(device, np.maximum(intra, TINY), np.maximum(inter, TINY), stacks, used, drawn, p.cores)
