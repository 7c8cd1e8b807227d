"""The part of a search's answer under load that the simulation gives, as text and as JSON."""

from __future__ import annotations

import math
import textwrap
from typing import Any

from rooflm.cli import render


def simulated(found: Any, named: Any) -> list[str]:
    """The best answers simulated, the estimate's figures beside, and what to know of each. named: a point in words."""
    of = "clients" if found.kind == "concurrency" else "rate"
    percentiles = [m for m in found.confirmed[0].served.limits if m.percentile]
    rows, notes = [], []
    first = found.confirmed[0].candidate.inputs
    same = {
        k for k, x in first.items() if isinstance(x, str) and all(c.candidate.inputs[k] == x for c in found.confirmed)
    }
    for c in found.confirmed:
        v, s = c.served.summary.values, c.served.steady
        asked = c.candidate.inputs[found.kind]
        name = named({k: x for k, x in c.candidate.inputs.items() if k != found.kind and k not in same})
        pairs = [beside(v["ttft_s"]["mean"], s.ttft), beside(v["tpot_s"]["mean"], s.tpot)]
        measured = [render.seconds(c.served.summary.measure(m)) for m in percentiles]
        rows.append((name, render.count(c.load), *pairs, *measured, render.count(v["output_tokens_per_s_per_gpu"])))
        told = [] if c.held else ["the limits hold at no load that was searched: " + "; ".join(c.broken)]
        if c.held and c.load != asked:
            told = [
                f"by the estimate {render.count(asked)} {of}; just above {render.count(c.load)}, {'; '.join(c.broken)}"
            ]
        told += [] if c.agrees else ["estimate and simulation PART by more than a quarter"]
        notes += [line for t in told for line in textwrap.wrap(f"{name}: {t}", render.WIDTH, subsequent_indent="  ")]
    head = ("Simulated (estimate)", of, "TTFT", "TPOT", *(m.name for m in percentiles), "tok/s/GPU")
    table = render.columns([head, *rows], "l" + "r" * (len(head) - 1), indent=0)
    if max(map(len, table)) > render.WIDTH:
        table = render.columns([r[:-1] for r in (head, *rows)], "l" + "r" * (len(head) - 2), indent=0)
    return [*table, *notes]


def beside(measured: float, estimate: float) -> str:
    """A simulated time and the estimate in the same unit.

    >>> beside(0.05, 0.0425), beside(0.05, math.inf)
    ('50.0 (42.5) ms', '50.0 ms')
    """
    text = render.seconds(measured)
    number, _, unit = text.partition(" ")
    return f"{number} ({estimate * float(number) / measured:.3g}) {unit}" if math.isfinite(estimate) else text


def simulated_json(found: Any) -> list[dict[str, Any]]:
    """The same for --json."""
    return [
        {
            "inputs": c.candidate.inputs,
            "load": c.load,
            "held": c.held,
            "agrees": c.agrees,
            "why": list(c.broken),
            "simulated": {k: v for k, v in c.served.values().items() if k not in ("assumed", "warnings")},
        }
        for c in found.confirmed
    ]
