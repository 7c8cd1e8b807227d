"""`rooflm search infer`: the best way to serve a model, for one batch or for users who come and go."""

from __future__ import annotations

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
    from rooflm.search.serve_command import command_of
    from rooflm.search.under_load import search_serve

    start = time.perf_counter()
    under_load = shown["under_load"] or any(name in asked for name in LOAD_ALONE)
    alone = BATCH_ALONE if under_load else LOAD_ALONE
    if under_load and "batch" in asked:
        raise RooflmError("batch is of a search without load: under load, give concurrency or rate")
    search = search_serve if under_load else search_infer
    found = search(model, **{k: v for k, v in asked.items() if k not in alone})
    command = command_of(model, found, asked, asked.get("spread"))
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
