"""What a device offers to a scenario: rates and capacities by memory level, data types by rate."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rooflm.catalogue.fields import number_by_name, words_in
from rooflm.catalogue.hardware import Device
from rooflm.catalogue.quant import Quant, compute_dtype
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Efficiency, Scenario
from rooflm.units import REAL, Num, larger, pick, smaller

LARGEST_SM = 2.0**18
"""Bytes of shared memory and L1 of an SM, at most (Hopper); a core that holds more reads as much more at a time."""


class Card(NamedTuple):
    """What a kernel runs on: FLOP/s of its data type, B/s of DRAM, multiprocessors; B/s of L1 and L2."""

    peak: Num
    bandwidth: Num
    sms: Num
    l1: Num = math.inf
    l2: Num = math.inf


class Rates(NamedTuple):
    """What the device offers to this scenario: FLOP/s by rate name, B/s and capacity by level, data types by rate."""

    peak: dict[str, Num]
    dtype: dict[str, str]
    dram: Num
    l2: Num
    l1: Num
    l2_size: Num
    l1_size: Num
    sms: Num

    @property
    def larger_cores(self) -> Num:
        """How many times the shared memory and L1 of the largest SM a core has, at least 1."""
        return larger(1.0, self.l1_size / self.sms / LARGEST_SM)

    def card(self, peak: Num) -> Card:
        """What a kernel runs on whose data type has this peak."""
        return Card(peak, self.dram, self.sms, self.l1, self.l2)


def rates(s: Scenario) -> Rates:
    """The device's rates for the scenario's data types."""
    return rates_of(s.cluster.device, s.quant, s.efficiency)


def best_rates(s: Scenario) -> Rates:
    """The rates that no kernel passes: 16-bit floats summed in 16 bits (`sums`) go at half the rate of 8-bit integers,
    twice a GeForce's peak (NVIDIA's whitepapers since Turing: 330.3, 165.2, int8 660.6 TFLOP/s on RTX 4090)."""
    r, peak = rates(s), s.cluster.device.peak
    if s.engine.kernels.sums == "fp32" or "int8" not in peak:
        return r
    fp32, ints, half = peak.get("fp32", 0.0), peak["int8"], ("fp16", "bf16")
    more = {t: pick(peak[t] > fp32, larger(ints / 2 / peak[t], 1.0), 1.0) for t in half if t in peak}
    return r._replace(peak={k: v * more.get(r.dtype[k], 1.0) for k, v in r.peak.items()})


def integer_dots(s: Scenario) -> Num:
    """FLOP/s of 8-bit integers where a card has no matrix units, so that narrow weights are multiplied by them; of its
    vector units, four values an instruction, where the engine has nothing else there."""
    r, ints = rates(s), s.cluster.device.peak.get("int8", 0.0)
    if vector_integers_only(s):
        return smaller(ints, 4.0 * r.peak["vector"])
    return ints * (r.peak["half"] <= r.peak["vector"])


def halves_only(s: Scenario, r: Rates) -> Any:
    """Whether a card has fast units for 16 bits, but none for integers (Volta; GP100, by pairs of halves)."""
    return (s.cluster.device.peak.get("int8", 0.0) <= 0) & (r.peak["half"] > r.peak["vector"])


def vector_integers_only(s: Scenario) -> bool:
    """Whether narrow weights are multiplied by vector units' integers whatever else a card has (a CPU)."""
    return s.cluster.device.architecture in words_in(s.engine.kernels.integers_on)


@kept
def rates_of(d: Device, q: Quant, e: Efficiency) -> Rates:
    """The device's rates for the data types of a scheme, derated in flat mode.

    "quant" is the type of the wider operand of quantised products, "half" that of the others, "rest" that of what a
    scheme leaves wider than its narrowest, "vector" fp32 units."""
    wide = q.weight_bits if isinstance(q.weight_bits, REAL) else 16
    act = q.act_bits if isinstance(q.act_bits, REAL) else 16
    half, _ = compute_dtype(32 if wide >= 32 else 16, q.kind, d.peak)
    quant, _ = compute_dtype(max(wide, act), q.kind, d.peak)
    rest = compute_dtype(q.rest_act_bits, q.kind, d.peak)[0] if q.rest_act_bits else half
    names = {"quant": quant, "half": half, "rest": rest, "vector": "fp32" if "fp32" in d.peak else half}
    compute, memory = (e.compute, e.memory) if e.mode == "flat" else (1.0, 1.0)
    peak = {k: d.peak[v] * compute for k, v in names.items()}
    dram, l2, l1 = (level.bandwidth * memory for level in (d.dram, d.l2, d.l1))
    return Rates(peak, names, dram, l2, l1, d.l2.size, d.l1.size, d.sms)


def of_scheme(told: str, s: Scenario, usual: float) -> float:
    """The number that an engine's text has for the scheme: on this generation of cards where it has one for it
    (generation.scheme), else on any, else the usual one."""
    here, scheme = s.cluster.device.kernel_generation, s.quant.name
    return number_by_name(told, f"{here}.{scheme}", number_by_name(told, scheme, usual))
