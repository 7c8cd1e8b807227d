"""What a scenario's records print of themselves (their `repr`): a line of each, arrays as their ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflm.shown.numbers import gib, text_range


def model_line(m: Any) -> str:
    """Name, parameters and layers of a `Model`."""
    total, active = text_range(m.parameters, ""), text_range(m.active_parameters, "")
    used = f" ({active} for a token)" if active != total else ""
    layers, hidden = (text_range(v, "") if np.ndim(v) else f"{v:g}" for v in (m.layers, m.hidden))
    return f"<Model {m.name}: {total} parameters{used}, {layers} layers, hidden {hidden}>"


def device_line(d: Any) -> str:
    """Name, rates, memory and power of a `Device`."""
    best = "bf16" if "bf16" in d.peak else next(iter(d.peak), "")
    rate = f"{text_range(d.peak[best], 'FLOP/s')} {best}, " if best else ""
    size = gib(float(np.max(d.dram.size)))
    bandwidth, power = text_range(d.dram.bandwidth, "B/s"), text_range(d.tdp, "W")
    return f"<Device {d.name}: {rate}{size} at {bandwidth}, {power}>"


def cluster_line(c: Any) -> str:
    """Name, device and tiers of a `Cluster`."""
    tiers = "; ".join(f"{t.name} {text_range(t.bandwidth, 'B/s')}" for t in c.tiers)
    return f"<Cluster {c.name} of {c.device.name}{': ' * bool(tiers)}{tiers}>"


def engine_line(e: Any) -> str:
    """Name, release and phase of an `Engine`; `rooflm show engine NAME` prints its constants."""
    return f"<Engine {' '.join(filter(None, (e.name, e.version)))}: {e.phase}>"


def scenario_line(s: Any) -> str:
    """Model, devices, engine and scheme of a `Scenario`."""
    devices = f"{s.mapping.devices} x {s.cluster.device.name}"
    return f"<Scenario {s.model.name} on {devices}, {s.engine.name}, {s.quant.name}>"
