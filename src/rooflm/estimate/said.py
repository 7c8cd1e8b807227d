"""A prediction of inference in words: whether it fits first, then what would, then speeds with their error band,
memory, cost and the parts of prefill and decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rooflm.catalogue.prices import told
from rooflm.estimate.capacity import running_limit
from rooflm.estimate.results import Memory, headline
from rooflm.shown.blocks import BLANK, Beside, Block, Parts, Say, Table
from rooflm.shown.numbers import between, count, gib, percent, text

if TYPE_CHECKING:
    from rooflm.estimate.inference import InferenceEstimate

LIKELY = "in four of five like cases"
"""What an error band says: from the 10th to the 90th percentile of measurements like it."""
MEANT = {
    "request": "what the server does once a request (parse, tokenise, schedule, send the first token), off the GPU",
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
         "host": "the CPU that launches"}  # fmt: skip
"""What bounds a phase -> in words, where its name alone does not say."""


def dollars(value: Any) -> str:
    """USD to the cent, and below ten cents to two digits.

    >>> dollars(1.234), dollars(0.00061), dollars(0.0)
    ('1.23', '0.00061', '0.00')
    """
    return f"{float(value):.2g}" if 0 < float(value) < 0.1 else f"{float(value):.2f}"


NOTED = 0.005
"""Share of a time from which a part is explained."""


def banded(value: Any, found: Mapping[str, Any]) -> str:
    """An error band in words; "" where there is none.

    >>> banded(0.0124, {"low": 0.0112, "high": 0.0141, "rows": 214})
    'between 11.2 and 14.1 ms'
    """
    return between(float(found["low"]), float(found["high"]), float(value)) if found["rows"] else ""


def sure(bands: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> list[Block]:
    """How many measured runs stand behind each error band. names: output -> in words."""
    rows = [f"{names[k]} {b['rows']}" for k, b in bands.items() if b["rows"] and k in names]
    told = "published runs on this kind of engine and architecture behind the error bands"
    return [BLANK, Say("; ".join(rows), label=told)] if rows else []


def noted(*parts: Mapping[str, Any]) -> list[Block]:
    """What those parts are whose names alone do not say, if they take a share worth a word."""
    seen = dict.fromkeys(
        k for p in parts for k, v in p.items() if k in MEANT and float(v) > NOTED * sum(map(float, p.values()))
    )
    return [BLANK, *(Say(MEANT[k], "faint", k.replace("_", " ")) for k in seen)] if seen else []


def remembered(memory: Memory) -> Table:
    """Memory of the fullest GPU by part."""
    rows = [(k.replace("_", " "), gib(float(v))) for k, v in memory.parts.items() if float(v) > 0]
    rows += [("total", gib(float(memory.total))), ("usable", gib(float(memory.capacity)))]
    return Table(rows, "lr", "Memory of the fullest GPU")


def in_use(memory: Memory) -> str:
    """Memory in use and what may be used, in words."""
    total, usable = gib(float(memory.total)), gib(float(memory.capacity))
    return f"{total.removesuffix(' GiB') if usable.endswith(' GiB') else total} of {usable} a GPU"


def verdict(e: Any, what: str, largest: Any, runs: str = "") -> list[Block]:
    """Whether an estimate of either kind fits, by how much, the largest batch (or `what` it is) that does, and what
    would make it fit. runs: what else is said of that batch."""
    margin, used = float(e.memory.margin), in_use(e.memory)
    most = f"the largest {what} that fits is {count(largest)}" if float(largest) else f"no {what} fits"
    if bool(e.fits):
        return [Say(f"FITS: {used}, {gib(margin)} to spare; {most}{runs}.", "good")]
    if margin < 0:
        words = "; ".join(r.words for r in e.would_fit)
        would = f"Would fit: {words}." if words else "No change that was tried makes it fit."
        return [Say(f"DOES NOT FIT: {used}, {gib(-margin)} too much; {most}.", "bad"), Say(would)]
    return [Say(f"CANNOT RUN: {e.reason}.", "bad")]


def blocks(e: InferenceEstimate, verbose: bool = False) -> list[Block]:
    """The answer; of what does not fit, its speeds are only outlined unless verbose."""
    w, bands, head = e.scenario.workload, e.error_band, e.scenario.model.head
    asked = f"batch {count(w.batch)}, prompt {count(w.prompt)}{f', output {count(w.output)}' if head else ''} tokens"
    limit = float(running_limit(e.scenario))
    runs = f"; {e.scenario.engine.name} runs {count(limit)} at a time" if limit < float(e.max_batch) else ""
    fits = verdict(e, "batch", e.max_batch, runs)
    out: list[Block] = [Say(headline(e.scenario, e.gpus), "title"), Say(asked), BLANK, *fits, BLANK]
    likely = LIKELY if any(b["rows"] for b in bands.values()) else ""
    speed = [("Speed" if e.fits else "Speed, if it did", "", likely), *(_spoken(e) if head else _embedded(e))]
    out += [Table(speed, "lrl", head=True, indent=0), BLANK]
    if e.fits or verbose:
        out += _detail(e)
    else:
        out.append(remembered(e.memory))
    return out + (sure(bands, {"ttft_s": "first token", "tpot_s": "output token", "latency_s": "request"})
                  if verbose else [])  # fmt: skip


def _spoken(e: InferenceEstimate) -> list[tuple[str, str, str]]:
    """Speed of a model that generates, with error bands."""
    bands = e.error_band
    return [
        ("  time to first token", text(float(e.ttft), "s"), banded(e.ttft, bands["ttft_s"])),
        ("  time per output token", text(float(e.tpot), "s"), banded(e.tpot, bands["tpot_s"])),
        ("    at the end", text(float(e.tpot_end), "s"), ""),
        ("  request latency", text(float(e.latency), "s"), banded(e.latency, bands["latency_s"])),
        ("  output tokens/s", count(e.output_tokens_per_s), ""),
        ("    per GPU", count(e.output_tokens_per_s_per_gpu), ""),
    ]


def _embedded(e: InferenceEstimate) -> list[tuple[str, str, str]]:
    """Speed of a model that embeds texts: one pass over a batch of them."""
    rate = float(e.requests_per_s)
    return [
        ("  time of the batch", text(float(e.ttft), "s"), banded(e.ttft, e.error_band["ttft_s"])),
        ("  embeddings/s", count(rate), ""),
        ("    per GPU", count(rate / float(e.gpus)), ""),
        ("  prompt tokens/s", count(rate * float(e.scenario.workload.prompt)), ""),
    ]


def _detail(e: InferenceEstimate) -> list[Block]:
    """Memory, cost, communication and parts."""
    head = e.scenario.model.head
    cost = [
        ("MFU (prefill)", percent(e.prefill_mfu)),
        *([("MBU (decode)", percent(e.decode_mbu))] if head else []),
        ("GPU busy", percent(e.busy)),
        ("power per GPU", text(float(e.power), "W")),
        (f"energy per {'output' if head else 'prompt'} token", text(float(e.energy_per_token), "J")),
        ("USD per million tokens", dollars(e.cost_per_million_tokens)),
    ]
    bounds = [(k, BOUND.get(str(v), str(v))) for k, v in e.bound.items()]
    sent = [(k.replace("decode", "decode step"), text(float(e.comm_bytes[k]), "B")) for k in e.bound]
    silent = not any(float(v) for v in e.comm_bytes.values())
    right = [Table(cost, "lr", "Efficiency and cost"), BLANK, Table(bounds, "ll", "Bound by")]
    right += [] if silent else [BLANK, Table(sent, "lr", "Bytes sent by one GPU")]
    parts = [Parts(f"Prefill, {text(float(e.ttft), 's')}", e.prefill_parts)]
    parts += [Parts(f"Decode step, {text(float(e.tpot), 's')}", e.decode_parts)] if head else []
    price = [BLANK, Say(told([e.scenario.cluster.device]), "faint", "price")]
    return [Beside([remembered(e.memory), right, *parts]), *price, *noted(e.prefill_parts, e.decode_parts)]
