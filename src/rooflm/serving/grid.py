"""Lists among the arguments of `serve`: every combination simulated, the main figures over the axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rooflm.asked.answers.outputs import Output, table
from rooflm.asked.arguments import KINDS, arguments
from rooflm.errors import RooflmError
from rooflm.readers.datasets import lengths_of
from rooflm.shown.answer import flatten
from rooflm.sweep.assumed import of_points
from rooflm.sweep.axes import Axis, Point, find_axes, is_list, nest
from rooflm.sweep.grid import Grid


def _of(name: str, part: str = "") -> Callable[[Mapping[str, Any]], Any]:
    return lambda v: v[name][part] if part else v[name]


def unserved(v: Mapping[str, Any]) -> str:
    """Why a load is not served as it comes, in a few words ("" where it is).

    >>> unserved({"rejected": 3, "requests": 40, "queue_grows": False})
    '3 of 40 rejected'
    """
    if v["rejected"]:
        return f"{v['rejected']} of {v['requests']} rejected"
    return "queue grows" if v["queue_grows"] else ""


SERVE_OUTPUTS = table(
    Output("ttft_s", "time to first token, mean", "s", _of("ttft_s", "mean")),
    Output("ttft_p95_s", "time to first token, 95th percentile", "s", _of("ttft_s", "p95")),
    Output("tpot_s", "time per output token, mean", "s", _of("tpot_s", "mean")),
    Output("tpot_p95_s", "time per output token, 95th percentile", "s", _of("tpot_s", "p95")),
    Output("latency_s", "request latency, mean", "s", _of("latency_s", "mean")),
    Output("requests_per_s", "requests per second", "1/s", _of("requests_per_s")),
    Output("output_tokens_per_s", "output tokens per second, all GPUs", "1/s", _of("output_tokens_per_s")),
    Output("output_tokens_per_s_per_gpu", "output tokens per second per GPU", "1/s",
           _of("output_tokens_per_s_per_gpu")),
    Output("good_share", "share of requests that meet every limit", "1", _of("good_share")),
    Output("kv_occupancy", "share of the KV memory in use, mean", "1", _of("kv_occupancy")),
    Output("cost_usd_per_million_tokens", "cost per million output tokens", "USD",
           _of("cost_usd_per_million_tokens")),
    Output("energy_j_per_token", "energy per output token", "J", _of("energy_j_per_token")),
    Output("gpus", "GPUs used", "1", _of("gpus")),
    Output("queue_grows", "the queue grows without bound", "", _of("queue_grows")),
    Output("reason", "why it is not served", "", unserved),
    Output("error_band", "ends of the error band of the means (10 to 90 % of measurements like it) and rows behind it",
           "", _of("error_band")),
)  # fmt: skip
"""What a grid of simulations keeps of each."""
EMPTY: dict[str, Any] = {"queue_grows": False, "reason": np.array("", dtype=object)}
"""Outputs that are no numbers -> what a refused combination has."""


def split_lists(given: Mapping[str, Any]) -> tuple[list[Axis], Point]:
    """The axes among arguments of `serve` (lists, where one may stand, and those of `sets`), and the rest.

    >>> split_lists({"model": "llama-7b", "rate": [1, 2], "spread": (0.8, 1.2)})[1]
    {'model': 'llama-7b', 'spread': (0.8, 1.2)}
    """
    known_arguments = arguments("serve")
    may = {n for n, a in known_arguments.items() if KINDS[a.kind].many != KINDS[a.kind].one} | {"model"}
    lists = {k: v for k, v in given.items() if k in may and is_list(v)}
    sets = {k: v for k, v in (given.get("sets") or {}).items() if is_list(v)}
    axes, _ = find_axes({**lists, "sets": sets, "zip": given.get("zip")})
    rest = {k: v for k, v in given.items() if k not in lists and k not in ("sets", "zip")}
    fixed = {k: v for k, v in (given.get("sets") or {}).items() if k not in sets}
    return axes, rest | ({"sets": fixed} if fixed else {})


def serve_grid(axes: list[Axis], fixed: Point, run: Callable[..., Any]) -> Grid:
    """Every combination simulated by `run`. One that is refused has the sentence as its reason and no numbers; where
    all are, the first sentence is raised."""
    shape = tuple(len(a.values) for a in axes)
    arrays: dict[str, Any] = {k: np.full(shape, EMPTY.get(k, np.nan)) for k in SERVE_OUTPUTS if k != "error_band"}
    warnings: dict[str, None] = {}
    refused: list[RooflmError] = []
    notes: list[tuple[Point, list[str]]] = []
    for place in itertools.product(*(range(n) for n in shape)):
        chosen = {m.name: m.values[i] for a, i in zip(axes, place, strict=True) for m in a.members}
        sets = fixed.get("sets") or {}
        try:
            values = run(**nest({**{k: v for k, v in fixed.items() if k != "sets"}, **sets, **chosen})).values()
        except RooflmError as error:
            refused.append(error)
            arrays["reason"][place] = str(error)
            continue
        notes.append(({name: str(value) for name, value in chosen.items()}, values["assumed"]))
        warnings |= dict.fromkeys(values["warnings"])
        for key, value in flatten({k: output.read(values) for k, output in SERVE_OUTPUTS.items()}).items():
            arrays.setdefault(key, np.full(shape, np.nan))[place] = value
    if len(refused) == arrays["reason"].size:
        raise refused[0]
    if any(m.name == "dataset" for a in axes for m in a.members):
        fixed = {k: v for k, v in fixed.items() if k not in ("prompt", "output")}
    elif fixed.get("dataset"):
        means = lengths_of(fixed["dataset"])
        fixed = {**fixed, "prompt": means["prompt"], "output": means["output"]}
    return Grid(axes, fixed, arrays, SERVE_OUTPUTS, assumed=of_points(notes), warnings=tuple(warnings))
