"""`sweep(...)[i] == predict(point i)`: for every numeric path of a scenario and models of every kind, a grid of its
values holds the predictions of its points, and marks those that alone are refused. A path is tried in every third of
the scenarios of a kind that have it."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from leaves import numbers
from rooflm.api import INFER, TRAIN
from rooflm.asked import paths
from rooflm.asked.bounds import OF_INFERENCE, OF_TRAINING, rule_of
from rooflm.asked.build_inference import build_inference
from rooflm.asked.build_training import build_training
from rooflm.errors import RooflmError
from rooflm.readers.tables import LEAST
from rooflm.search.inference import search_infer
from rooflm.search.training import search_train
from rooflm.sweep.axes import find_axes
from rooflm.sweep.sweep import run

TOLERANCE = 1e-12
INFERENCE: list[dict[str, Any]] = [
    {"model": "llama-7b", "gpu": "h100", "batch": 5, "prompt": 700, "output": 60},
    {"model": "llama-3.1-8b", "gpu": "h100", "tp": 2, "batch": 3, "prompt": 300, "output": 30, "engine": "trtllm"},
    {"model": "mixtral-8x7b", "gpu": "h100", "tp": 2, "batch": 64, "prompt": 1024, "output": 30},
    {"model": "deepseek-v3.2", "gpu": "h200", "tp": 8, "dp": 2, "ep": 16, "batch": 64, "prompt": 3000, "output": 30},
    {"model": "qwen3-next-80b-a3b", "gpu": "h100", "tp": 2, "batch": 8, "prompt": 300, "output": 30,
     "engine": "sglang"},
    {"model": "gemma-3-27b", "gpu": "a100", "tp": 2, "pp": 2, "batch": 7, "prompt": 3000, "output": 30,
     "engine": "trtllm"},
    {"model": "gpt-oss-120b", "gpu": "b200", "tp": 2, "batch": 8, "prompt": 3000, "output": 30},
    {"model": "llama-7b", "gpu": "rtx-4090", "batch": 2, "prompt": 300, "output": 30, "engine": "llama.cpp",
     "quant": "q4_k_m"},
    {"model": "opt-13b", "gpu": "v100", "tp": 2, "batch": 2, "prompt": 300, "output": 30, "engine": "hf-eager-4.28"},
    {"model": "jamba-1.5-mini", "gpu": "h100", "tp": 2, "batch": 2, "prompt": 300, "output": 30,
     "efficiency": "0.7,0.9"},
    {"model": "falcon-40b", "gpu": "a100", "tp": 2, "batch": 2, "prompt": 300, "output": 30, "efficiency": "ideal",
     "cached": 100},
    {"model": "glm-4.5-air", "gpu": "h200", "tp": 4, "pp": 2, "batch": 9, "prompt": 500, "output": 20, "quant": "fp8"},
]  # fmt: skip
TRAINING: list[dict[str, Any]] = [
    {"model": "llama-2-7b", "gpu": "h100", "gpus": 8, "batch": 64},
    {"model": "gpt3-175b", "gpu": "a100", "gpus": 64, "tp": 8, "pp": 4, "batch": 64, "recompute": "selective"},
    {"model": "mixtral-8x7b", "gpu": "h100", "gpus": 32, "tp": 2, "pp": 2, "ep": 8, "batch": 64,
     "engine": "megatron-bridge"},
    {"model": "deepseek-v3", "gpu": "h100", "gpus": 512, "tp": 2, "pp": 8, "ep": 32, "batch": 1024, "seq": 4096,
     "dtype": "fp8", "recompute_modules": "mla_up_proj"},
    {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "batch": 16, "lora_rank": 16, "base_bits": 4},
    {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "cp": 2, "batch": 16, "engine": "torchtitan", "dtype": "fp8",
     "recompute": "full"},
    {"model": "qwen3-next-80b-a3b", "gpu": "h100", "gpus": 32, "tp": 2, "pp": 2, "vp": 2, "ep": 8, "batch": 64},
    {"model": "gemma-2-2b", "gpu": "h100", "gpus": 16, "tp": 2, "pp": 2, "batch": 64, "recompute": "block",
     "recompute_layers": 3, "engine": "fsdp", "efficiency": "0.5,0.8"},
    {"model": "bloom-176b", "gpu": "a100", "gpus": 64, "tp": 4, "pp": 4, "batch": 64, "engine": "megatron-deepspeed"},
]  # fmt: skip
SERVED: dict[str, list[Any]] = {
    "tp": [1, 2, 3, 8], "pp": [1, 2, 3, 4], "dp": [1, 2, 4], "ep": [1, 2, 4], "cp": [1, 2], "batch": [1, 3, 50],
    "prompt": [1, 400, 9000], "output": [1, 2, 50], "cached": [0, 100, 300],
}  # fmt: skip
TRAINED: dict[str, list[Any]] = {
    "tp": [1, 2, 3, 4], "pp": [1, 2, 4], "vp": [1, 2, 4], "cp": [1, 2, 3], "ep": [1, 2, 4], "batch": [64, 65, 128],
    "seq": [1000, 2048], "micro_batch": [1, 2, 3], "lora_rank": [8, 16], "zero": [0, 1, 2, 3], "tokens": [0, 1e9],
    "recompute_layers": [0, 1, 3], "fsdp_group": [0, 4, 8], "gpus": [8, 16, 48, 512],
}  # fmt: skip
SERVING = (
    "ttft_s", "tpot_s", "tpot_end_s", "latency_s", "memory", "memory_capacity_bytes", "max_batch", "comm_detail",
    "prefill_parts_s", "decode_parts_s", "mfu", "mbu", "busy", "energy_j_per_token", "fits", "reason",
)  # fmt: skip
STEP = ("step_time_s", "parts_s", "memory", "max_micro_batch", "comm_bytes", "mfu", "hfu", "energy_j", "days", "fits",
        "reason")  # fmt: skip
"""Outputs that are compared: those on which the others rest."""
LEFT_OUT = ("engine.server", "model.published_params", "model.published_active", "cluster.device.year")
"""Numbers that no prediction reads."""


def values_of(s: Any, path: str, value: float, most: int = 2) -> list[float]:
    """Values that a path may take: its own, and more or less of it, within the bounds of the field."""
    rule = rule_of(*paths.found(s, path))
    tried = [value, 2 * value, 0, 1, 2] if rule.whole or value in (0, 1) else [value, 0.7 * value, 0.0]
    if math.isinf(value):
        tried = [value, 64, 2048]
    elif rule.high <= 1:
        tried = [value, 0.25, 0.6]
    elif rule.unit in LEAST:
        tried = [value, 0.7 * value or 1e9]
    legal = [v for v in tried if rule.low <= v <= rule.high and not (rule.above and v == rule.low)]
    return list(dict.fromkeys(legal))[:most]


def same(a: Any, b: Any) -> bool:
    """Whether two outputs are the same number (to TOLERANCE) or word."""
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.kind in "fiu" and y.dtype.kind in "fiub":
        p, q = float(x), float(y)
        return p == q or (p != p and q != q) or abs(p - q) <= TOLERANCE * min(abs(p), abs(q)) < math.inf
    return str(x) == str(y)


def point_of(fixed: Mapping[str, Any], at: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of one point."""
    both = {**fixed, **at}
    return {k: v for k, v in both.items() if "." not in k} | {"sets": {k: v for k, v in both.items() if "." in k}}


def alone(flat: Callable[..., Any], build: Callable[..., Any], point: dict[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """A point's own prediction, and whether it is refused."""
    try:
        build(**point)
        refused = False
    except RooflmError:
        refused = True
    return flat(outputs=SERVING if flat == INFER.flat else STEP, **point), refused


def check(
    flat: Callable[..., Any], build: Callable[..., Any], arguments: Mapping[str, Any], known: Any = None
) -> list[str]:
    """Where a grid differs from its points, in words. known: what is `alone` at its first point, where that is known:
    a path set to the value that it has changes nothing."""
    axes, fixed = find_axes(arguments)
    outputs = SERVING if flat == INFER.flat else STEP
    grid = run(flat, axes, fixed, outputs)
    none = np.zeros(tuple(len(a.values) for a in axes))
    wrong = []
    for place in itertools.product(*(range(len(a.values)) for a in axes)):
        at = {a.name: a.values[i] for a, i in zip(axes, place, strict=True)}
        first = known is not None and not any(place)
        point, refused = known if first else alone(flat, build, point_of(fixed, at))
        lacking = np.nan if np.isnan(point.get("ttft_s", point.get("step_time_s"))) else 0.0  # a refused point has none
        for key in {*grid, *point}:
            here, there = grid.get(key, none + lacking)[place], point.get(key, lacking)
            wrong += [] if same(here, there) else [f"{at} {key}: {here} in the grid, {there} alone"]
        if refused != (str(grid["reason"][place]) not in ("", "out of memory")):
            wrong.append(f"{at}: {grid['reason'][place]!r} in the grid, refused alone: {refused}")
    return wrong


@functools.cache
def tried(build: Callable[..., Any]) -> dict[str, list[int]]:
    """Numeric path -> numbers of the scenarios of a kind in which it is tried: every third of those that have it."""
    having: dict[str, list[int]] = {}
    for turn, base in enumerate(TRAINING if build is build_training else INFERENCE):
        for path, _ in numbers(build(**base).scenario):
            having.setdefault(path, []).append(turn)
    return {p: turns[n % min(len(turns), 3) :: 3] for n, (p, turns) in enumerate(sorted(having.items()))}


def check_paths(flat: Any, build: Any, base: dict[str, Any], listed: dict[str, list[Any]]) -> list[str]:
    """`check` of the numeric paths of a scenario whose turn it is, and of every argument with a list."""
    s = build(**base).scenario
    wrong: list[str] = []
    turn = (TRAINING if build is build_training else INFERENCE).index(base)
    phase = "training" if build is build_training else "inference"
    base_point = alone(flat, build, base)
    for path, value in numbers(s):
        values = values_of(s, path, value)
        if turn not in tried(build)[path] or path.startswith(LEFT_OUT) or len(values) < 2:
            continue
        if path.startswith("engine.") and s.engine.phase != phase:
            continue
        if path.startswith(OF_TRAINING if phase == "inference" else OF_INFERENCE):
            continue  # without effect, and refused
        if path.startswith("efficiency.") and s.efficiency.mode != "flat":
            continue
        wrong += [
            f"{path}: {w}"
            for w in check(flat, build, {**base, "sets": {path: values}}, base_point if values[0] == value else None)
        ]
    for name, values in listed.items():
        if not (name == "gpus" and base.get("gpus") is None):
            wrong += [f"{name}: {w}" for w in check(flat, build, {**base, name: values})]
    return wrong


@pytest.mark.parametrize("base", INFERENCE, ids=lambda b: b["model"])
def test_every_path_of_inference(base: dict[str, Any]) -> None:
    assert not check_paths(INFER.flat, build_inference, base, SERVED)


@pytest.mark.parametrize("base", TRAINING, ids=lambda b: b["model"])
def test_every_path_of_training(base: dict[str, Any]) -> None:
    assert not check_paths(TRAIN.flat, build_training, base, TRAINED)


@pytest.mark.parametrize("seed", range(8))
def test_pairs_of_paths(seed: int) -> None:
    """Products of two paths and two arguments, drawn at random."""
    draw = random.Random(seed)
    for flat, build, bases, listed in (
        (INFER.flat, build_inference, INFERENCE, SERVED),
        (TRAIN.flat, build_training, TRAINING, TRAINED),
    ):
        for base in draw.sample(bases, 3):
            s = build(**base).scenario
            idle = OF_TRAINING if flat == INFER.flat else OF_INFERENCE
            left = ("efficiency.", "quant.", *LEFT_OUT, *idle)
            known = {p: v for p, v in numbers(s) if not p.startswith(left)}
            sets = {p: values_of(s, p, known[p]) for p in draw.sample(sorted(known), 2)}
            names = draw.sample(sorted(n for n in listed if n not in ("gpus", "lora_rank")), 2)
            taken = {p.rpartition(".")[2] for p in sets}
            arguments = {n: draw.sample(listed[n], 2) for n in names if n not in taken}
            assert not check(flat, build, {**base, **arguments, "sets": {p: v for p, v in sets.items() if v}})


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen3-30b-a3b", "llama-2-13b"])
def test_cells_of_a_search_of_serving(model: str) -> None:
    found = search_infer(model, gpu="h100", gpus=[2, 4], batch=[1, 5, 64], prompt=600, output=50)
    assert len(found.top) > 3
    for one in (*found.top, *found.front):
        e = INFER.point({"model": model, "prompt": 600, "output": 50, **one.inputs})
        assert float(e.tpot) == pytest.approx(one.outputs["tpot_s"], rel=TOLERANCE)
        assert float(e.ttft) == pytest.approx(one.outputs["ttft_s"], rel=TOLERANCE)


def test_cells_of_a_search_of_training() -> None:
    found = search_train("mixtral-8x7b", gpu="h100", gpus=32, batch=64, recompute=["none", "full"], zero=[1, 3])
    assert len(found.top) > 3
    for one in found.top:
        t = TRAIN.point({"model": "mixtral-8x7b", "seq": 2048, **one.inputs, "gpus": 32, "dp": None})
        assert float(t.step_time) == pytest.approx(one.outputs["step_time_s"], rel=TOLERANCE)
