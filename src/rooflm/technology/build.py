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
    Point,
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
    cores: Point


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
        area["registers"],
        watts["registers"],
        registers,
        register_area,
        ports,
        REGISTER_ENERGY,
        n,
        s.enabled_sms,
        s.clock,
    )
    l1_area = sram_area(s.l1, SRAM_BIT, 0.0, n)
    l1s, l1_rate, l1_point = sram(
        area["l1"], watts["l1"], s.l1, l1_area, L1_PORT_BYTES, L1_ENERGY, n, s.enabled_sms, s.clock
    )
    built = whole(area["cores"] / mcu_area(s.mcu_flops, n))
    mcus = np.minimum(np.minimum(working(built, s.enabled_sms), fed), l1s * s.mcus_sm)
    point = operating_point(watts["cores"], mcus * s.mcu_flops * MCU_ENERGY * n.energy * FREQUENCY, n, s.clock)
    peak = np.minimum(mcus * s.mcu_flops * point.frequency, fed_rate * s.mcu_flops / ports)
    sms = mcus / s.mcus_sm
    l2_area = sram_area(s.slice, L2_BIT, L2_PORT, n)
    l2s, l2_rate, l2_point = sram(
        area["l2"], watts["l2"], s.slice, l2_area, s.port, L2_ENERGY, n, s.enabled_l2, s.clock
    )
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
