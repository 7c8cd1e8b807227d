"""What the answers of inference and of training say alike: what runs on what, whether it fits and what would, memory,
error bands, and what parts of a time are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rooflm.catalogue.model import LinearAttention, Model
from rooflm.estimate.figures import Memory
from rooflm.scenario.mapping import DEGREES
from rooflm.scenario.scenario import Scenario
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import between, count, gib, text, value_text
from rooflm.units import Num

LIKELY = "in four of five like cases"
"""What an error band says: from the 10th to the 90th percentile of measurements like it."""
MEANT = {
    "request": "what the server does once a request (parse, tokenise, schedule, send the first token), off the GPU",
    "host layers": "layers or experts in the host's memory, read there, or for a prompt sent to the GPU",
    "gaps": "the GPU idle between two kernels",
    "host": "the GPU waiting for the CPU that launches kernels",
    "norm": "norms, residuals, rotary and activations",
    "tp_comm": "collectives of tensor parallelism",
    "pp_comm": "activations from stage to stage",
    "ep_comm": "tokens to their experts and back",
    "cp_comm": "keys and values round the ring",
    "dp_comm": "gradients and weights between replicas, as far as they are not hidden",
    "bubble": "stages waiting for the first and the last micro-batches",
    "imbalance": "waiting for the fullest pipeline stage",
    "overlap_tax": "kernels slowed down by the communication beside them",
    "recompute": "forward passes again, in place of kept activations",
}
"""Part of a time -> what it is, where its name alone does not say."""
BOUND = {"dram": "memory bandwidth", "l2": "L2 bandwidth", "l1": "L1 bandwidth", "overhead": "kernel overheads",
         "host": "the CPU that launches", "schedule": "idle pipeline stages", "other": "overheads"}  # fmt: skip
"""What bounds a phase -> in words, where its name alone does not say."""

OVERHEAD = "what kernels take beyond arithmetic and memory at full rate: starts, small tiles, formats"
"""What a phase bound by overheads spends its time on."""
NOTED = 0.005
"""Share of a time from which a part is explained."""


def banded(value: Any, found: Mapping[str, Any]) -> str:
    """An error band in words; "" where there is none.

    >>> banded(0.0124, {"low": 0.0112, "high": 0.0141, "rows": 214})
    'between 11.2 and 14.1 ms'
    """
    return between(float(found["low"]), float(found["high"]), float(value)) if found["rows"] else ""


def sure(bands: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> list[Block]:
    """How many published runs stand behind each error band. names: output -> what it is called."""
    rows = [f"{names[k]} {b['rows']}" for k, b in bands.items() if b["rows"] and k in names]
    told = "published values as far from what was fitted, behind the error bands"
    return [BLANK, Say("; ".join(rows), label=told)] if rows else []


def noted(model: Model, bound: Mapping[str, Any], *parts: Mapping[str, Any]) -> list[Block]:
    """What parts of a time mean whose names do not say it, for parts of at least NOTED of their total; and what bounds
    a phase, where that is no rate of the device."""
    meant = MEANT | mixed(model)
    seen = dict.fromkeys(
        k for p in parts for k, v in p.items() if k in meant and float(v) > NOTED * sum(map(float, p.values()))
    )
    told = {k.replace("_", " "): meant[k] for k in seen}
    told |= {BOUND["overhead"]: OVERHEAD} if "overhead" in map(str, bound.values()) else {}
    return [BLANK, *(Say(what, "faint", name) for name, what in told.items())] if told else []


def mixed(model: Model) -> dict[str, str]:
    """What the part "attention" is in a model whose layers are recurrent, all of them or some; empty for all others.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> mixed(load_model("mamba-2.8b")), mixed(load_model("llama-3.1-8b"))
    ({'attention': 'what mixes tokens: recurrent layers, as this model has no attention'}, {})
    """
    kinds = {isinstance(block.mixer, LinearAttention) for block in model.blocks if block.mixer is not None}
    if True not in kinds:
        return {}
    beside = "and attention" if False in kinds else "as this model has no attention"
    return {"attention": f"what mixes tokens: recurrent layers{' ' if False in kinds else ', '}{beside}"}


def remembered(memory: Memory) -> Table:
    """Memory of the fullest GPU by part."""
    rows = [(k.replace("_", " "), gib(float(v))) for k, v in memory.parts.items() if float(v) > 0]
    rows += [("total", gib(float(memory.total))), ("usable", gib(float(memory.capacity)))]
    return Table(rows, "lr", "Memory of the fullest GPU")


def in_use(memory: Memory) -> str:
    """Memory in use and what may be used, in words."""
    total, usable = gib(float(memory.total)), gib(float(memory.capacity))
    return f"{total.removesuffix(' GiB') if usable.endswith(' GiB') else total} of {usable} a GPU"


def largest_that_fits(largest: Num, what: str = "batch", of: str = "") -> str:
    """The largest batch that fits, in words. what: the batch that counts; of: what it is counted in.

    >>> [largest_that_fits(most) for most in (31, 0, np.inf)]
    ['the largest batch that fits is 31', 'no batch fits', 'any batch fits']
    """
    if not 0 < float(largest) < np.inf:
        return f"{'any' if float(largest) else 'no'} {what} fits"
    return f"the largest {what} that fits is {count(largest)}{of}"


def largest_number(largest: Num) -> str:
    """The largest batch that fits, as a number.

    >>> largest_number(31), largest_number(np.inf)
    ('31', 'any')
    """
    return count(largest) if float(largest) < np.inf else "any"


def verdict(e: Any, what: str, largest: Any, runs: str = "", untried: str = "") -> list[Block]:
    """Whether an estimate fits and by how much, the largest batch that fits, and changes with which it would fit. what:
    name of the batch that counts (batch, micro-batch); largest: that batch; runs: a clause that follows it; untried:
    what tries more than the changes named."""
    margin, used = float(e.memory.margin), in_use(e.memory)
    most = largest_that_fits(largest, what)
    if bool(e.fits):
        return [Say(f"FITS: {used}, {gib(margin)} to spare; {most}{runs}.", "good")]
    if margin < 0:
        words = "; ".join(r.words for r in e.would_fit)
        splits = untried if np.any(e.scenario.mapping.devices > 1) else ""  # of one device there is one
        would = f"Would fit: {words}{splits}." if words else f"No change that was tried makes it fit{untried}."
        return [Say(f"DOES NOT FIT: {used}, {gib(-margin)} too much; {most}.", "bad"), Say(would)]
    return [Say(f"CANNOT RUN: {e.reason}.", "bad")]


def headline(s: Scenario, gpus: Num) -> str:
    """What runs on what, and how it is split."""
    return f"{s.model.name} on {machines(s, gpus)}, {s.engine.name}, {s.quant.name}"


def machines(s: Scenario, gpus: Num) -> str:
    """How many of which GPU, and how the model is split over them."""
    degrees = [
        f"{k} {value_text(getattr(s.mapping, k))}" for k in DEGREES if np.any(np.asarray(getattr(s.mapping, k)) != 1)
    ]
    split = f" ({', '.join(degrees)})" if degrees else ""
    return f"{value_text(gpus)} x {s.cluster.device.name}{split}"


def short_verdict(memory: Memory, fits: Num, reason: Num) -> str:
    """Memory in use, and whether it runs: for an array, at how many of its points."""
    flags = np.asarray(fits)
    sentence = str(reason) if flags.ndim == 0 else f"{int(np.sum(flags))} of {flags.size} points fit"
    used = f"{value_text(memory.total / 2**30)} of {value_text(memory.capacity / 2**30)} GiB a GPU"
    return f"{used}: {'fits' if flags.ndim == 0 and flags else sentence}"


def dollars_of_run(value: Any) -> str:
    """USD of a whole run: to the cent below a hundred, else three digits with a prefix.

    >>> dollars_of_run(0.675), dollars_of_run(4.3), dollars_of_run(127973), dollars_of_run(11.8e6)
    ('0.68', '4.30', '128 k', '11.8 M')
    """
    return text(float(value), "") if float(value) >= 100 else dollars(value)


def dollars(value: Any) -> str:
    """USD to the cent, and below ten cents to two digits; a dash where there is none.

    >>> dollars(1.234), dollars(0.00061), dollars(0.0), dollars(np.nan)
    ('1.23', '0.00061', '0.00', '-')
    """
    if not np.isfinite(value):
        return "-"
    return f"{float(value):.2g}" if 0 < float(value) < 0.1 else f"{float(value):.2f}"
