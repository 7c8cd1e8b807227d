"""`rooflm search infer`: the best way to serve a model, for one batch or for users who come and go."""

from __future__ import annotations

import math
import time
from typing import Any

from rooflm.cli import render
from rooflm.cli.found import found_shown
from rooflm.cli.options import command
from rooflm.errors import RooflmError
from rooflm.scenario.arguments import arguments
from rooflm.units import gib

INFER = (
    ("ttft_s", "TTFT", render.seconds),
    ("tpot_s", "TPOT", render.seconds),
    ("output_tokens_per_s_per_gpu", "tok/s/GPU", render.count),
    ("cost_usd_per_million_tokens", "USD/M", render.count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Columns of the table of answers."""
BATCH_NOTE = "of one batch that comes at once: TTFT is that of all its prompts (--under-load: users who come and go)"
LOAD_NOTE = (
    "under load by the steady state: TTFT, TPOT are means, the wait in the queue and other prompts' passes included"
)


def infer(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm search infer` does with its arguments."""
    from rooflm.search.inference import search_infer
    from rooflm.search.under_load import search_serve

    start = time.perf_counter()
    under_load = shown["under_load"] or any(name in asked for name in LOAD_ALONE)
    alone = BATCH_ALONE if under_load else LOAD_ALONE
    if under_load and "batch" in asked:
        raise RooflmError("batch is of a search without load: under load, give concurrency or rate")
    search = search_serve if under_load else search_infer
    found = search(model, **{k: v for k, v in asked.items() if k not in alone})
    command = served(model, found, asked, asked.get("spread"))
    note = LOAD_NOTE if under_load else BATCH_NOTE
    print(found_shown(found, INFER, command, time.perf_counter() - start, shown["json"], note))


LOAD_ALONE = tuple(arguments("search_serve").keys() - arguments("search_infer").keys())
"""Options that only a search under load has: any of them asks for one."""
BATCH_ALONE = tuple(arguments("search_infer").keys() - arguments("search_serve").keys())
"""Options that only a search without load has."""
infer_command = command(
    "search infer", ["search_infer", "search_serve"], infer,
    "Search every legal way to serve a model for the best one under constraints.\n\n"
    "Without load, a point is a batch whose prompts come at once. Under load (--under-load, --concurrency or --rate), "
    "requests come and go: every point by its steady state, the best ones simulated as `rooflm serve` does.",
    unset=LOAD_ALONE,
)  # fmt: skip


def served(model: str, found: Any, given: dict[str, Any], spread: tuple[float, float] | None) -> str:
    """The command that starts the best answer's engine: of a search under load, the best of those simulated."""
    from rooflm.catalogue.engines import load_engine, usual_engine
    from rooflm.checkpoints.load import load_model
    from rooflm.scenario.build_inference import quant_for
    from rooflm.search.serve_command import serve_command

    if found.best is None:
        return ""
    confirmed = getattr(found, "chosen", None)
    chosen = dict(confirmed.candidate.inputs if confirmed else found.best.inputs)
    if hasattr(found, "confirmed"):
        chosen["batch"] = confirmed.load if confirmed and found.kind == "concurrency" else chosen.get("concurrency", 0)
    if "engine.token_budget" in chosen:
        chosen["token_budget"] = chosen["engine.token_budget"]
    one = {k: (chosen[k] if k in chosen else given.get(k)) for k in ("engine", "quant")}
    quant = quant_for(load_model(model), one["quant"], [])
    longest = given["prompt"] + given["output"]
    if hasattr(found, "confirmed"):
        longest = math.floor(longest * (spread or (0.8, 1.2))[1])
    return serve_command(model, load_engine(one["engine"] or usual_engine("inference")), quant, chosen, int(longest))
