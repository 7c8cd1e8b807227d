"""Samples of engines, models, formats and cards: more never costs less, and better hardware never more."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.catalogue.model import MLA, MoE
from rooflm.errors import RooflmError
from rooflm.readers.devices import load_device
from rooflm.readers.engines import engine_names, load_engine

ENGINES = [n for n in engine_names() if load_engine(n).phase == "inference" and n != "ideal"]
MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "gpt-oss-20b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma-3-27b",
          "deepseek-v2-lite", "deepseek-v3", "qwen3-next-80b-a3b", "llama-4-scout", "llama-3.2-1b")  # fmt: skip
PAIRS = (("a100", "h100"), ("h100", "h200"), ("h200", "b200"), ("b200", "b300"), ("l40s", "rtx-pro-6000"),
         ("rtx-3090", "rtx-4090"), ("rtx-4090", "rtx-5090"), ("l4", "l40s"), ("mi300x", "mi325x"),
         ("mi325x", "mi355x"), ("rtx-5070-ti", "rtx-5080"))  # fmt: skip
FORMATS = ("bf16", "fp8", "int8", "int4", "nvfp4", "q4_k_m", "q8_0")
BATCHES, PROMPTS = [1, 4, 16, 64, 256], [128, 1000, 8192]


def slack(engine: str, model: str, quant: str, tp: int, older: str, newer: str) -> float:
    """How much longer the newer card may take, by what was measured so there (docs/cards.md, docs/decisions/0504)."""
    generation = load_device(newer).kernel_generation
    blocks = rooflm.load_model(model).blocks
    latents, experts = any(isinstance(b.mixer, MLA) for b in blocks), any(isinstance(b.ffn, MoE) for b in blocks)
    left = {
        1.2: tp > 1 and generation in ("blackwell", "blackwell-rtx"),  # sums of small messages
        1.45: quant == "fp8" and generation == "blackwell-rtx",  # how products of 8 bits start
        1.25: latents and generation == "blackwell-rtx",  # a block a sequence
        1.15: experts and quant != "bf16" and generation in ("blackwell", "cdna4"),  # how experts of few bits start
    }
    said = rooflm.infer(model, gpu=newer, engine=engine, quant=quant, tp=tp).warnings
    untuned = any("no tiles tuned" in line for line in said)
    default = {"h100": 1.3, "b200": 1.75}.get(older, 1.2)  # tiles, where the older card has a file (0316, 0531)
    return max([1.05, *(most for most, holds in left.items() if holds), default * untuned])


def grid(model: str, **asked: Any) -> dict[str, Any] | None:
    """Figures over batch and prompt; None where the engine, card or split refuses."""
    outputs = ["tpot_s", "ttft_s", "memory_bytes", "fits"]
    try:
        found = rooflm.infer(model, batch=BATCHES, prompt=PROMPTS, output=64, outputs=outputs, **asked)
    except RooflmError:
        return None
    return None if np.isnan(found["memory_bytes"].values).any() else {name: found[name].values for name in outputs}


@pytest.mark.parametrize("seed", range(40))
def test_more_never_costs_less_and_the_next_card_is_never_slower(seed: int) -> None:
    draw = random.Random(seed)
    engine, model, quant = (draw.choice(x) for x in (ENGINES, MODELS, FORMATS))
    tp = draw.choice((1, 1, 2, 4, 8))
    older, newer = draw.choice(PAIRS)
    asked: dict[str, Any] = {"engine": engine, "quant": quant, "tp": tp}
    cards = [grid(model, gpu=gpu, **asked) for gpu in (older, newer)]
    for card in filter(None, cards):
        for name in ("tpot_s", "ttft_s", "memory_bytes"):
            for value in (np.where(card["fits"], card[name], np.nan), np.where(card["fits"], card[name], np.nan).T):
                less, more = value[:-1], value[1:]  # of more than fits, fewer run at a time
                assert not (more < 0.999 * less).any(), (asked, model, name)
    slow, fast = (load_device(gpu).peak for gpu in (older, newer))
    if all(cards) and (quant not in ("fp8", "int8", "nvfp4") or 0 < slow.get(quant, 0.0) <= fast.get(quant, 0.0)):
        old, new = (c for c in cards if c)
        for name in ("tpot_s", "ttft_s"):
            most = slack(engine, model, quant, tp, older, newer)
            ratio = np.where(old["fits"] & new["fits"], new[name] / old[name], 0.0)
            assert (ratio <= most).all(), (asked, model, older, newer, name)


@pytest.mark.parametrize(
    ("model", "engine", "quant", "tp", "older", "newer", "most"),
    [("qwen3-235b-a22b", "sglang", "fp8-block", 8, "h200", "b200", 0.95),  # scales made ready at each call
     ("minimax-m2", "sglang", "fp8-block", 8, "h200", "b200", 1.15),  # a token by Triton: measured at 1.23
     ("kimi-k2", "sglang", "fp8-block", 8, "h200", "b200", 0.95),
     ("llama-3.1-8b", "sglang-0.5.14", "fp8-block", 1, "h200", "b200", 1.0),
     ("qwen3-30b-a3b", "vllm", "int4", 1, "h200", "b200", 0.95),  # vLLM's launches around Marlin
     ("gpt-oss-120b", "lmdeploy", "int4", 1, "h200", "b200", 0.95),
     ("mixtral-8x7b", "vllm-rocm", "int4", 1, "mi325x", "mi355x", 1.05),  # a compute unit's loads, by its clock
     ("minimax-m2", "sglang-rocm", "int4", 1, "mi325x", "mi355x", 1.08)],
)  # fmt: skip
def test_a_newer_card_runs_what_was_measured_in_part(
    model: str, engine: str, quant: str, tp: int, older: str, newer: str, most: float
) -> None:
    old, new = (grid(model, gpu=gpu, engine=engine, quant=quant, tp=tp) for gpu in (older, newer))
    assert old and new
    both = old["fits"] & new["fits"]
    assert both.any() and (new["tpot_s"][both] <= most * old["tpot_s"][both]).all()


@pytest.mark.parametrize(
    ("gpu", "told"), [("h100", False), ("h200", True), ("b200", False), ("b300", True), ("gb200", True)]
)
def test_default_tiles_of_experts_are_told(gpu: str, told: bool) -> None:
    """SGLang has a file for 16 experts of 2,048 on an H100, none on an H200, whose prompts take 1.25 times as long; for
    B200, none for B300."""
    said = rooflm.infer("llama-4-scout", gpu=gpu, engine="sglang", tp=4, batch=4, prompt=4096).warnings
    assert any("no tiles tuned for 16 experts 2048 wide" in line for line in said) == told


@pytest.mark.parametrize("seed", range(20))
def test_fewer_bits_and_more_cards_never_take_more_memory(seed: int) -> None:
    draw = random.Random(100 + seed)
    engine, model = draw.choice(ENGINES), draw.choice(MODELS)
    gpu = draw.choice(("h100", "b200", "rtx-4090", "mi300x", "a100"))
    found = {q: grid(model, gpu=gpu, engine=engine, quant=q) for q in ("bf16", "fp8", "int8", "int4", "nvfp4")}
    for wide, narrow in (("bf16", "fp8"), ("bf16", "int8"), ("fp8", "nvfp4"), ("int8", "int4"), ("fp8", "int4")):
        a, b = found[wide], found[narrow]
        if a and b:
            assert (b["memory_bytes"] <= 1.001 * a["memory_bytes"]).all(), (model, gpu, engine, wide, narrow)
    weights = []
    for tp in (1, 2, 4, 8):
        try:
            e = rooflm.infer(model, gpu=gpu, engine=engine, tp=tp, batch=4)
        except RooflmError:
            continue
        weights.append(float(e.memory.parts["weights"]))
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize("seed", range(16))
def test_one_client_is_served_as_infer_says(seed: int) -> None:
    """To 15 % whatever is drawn: `serve` reads times between the points of its tables, tiles of few rows among them."""
    draw = random.Random(200 + seed)
    cards = ("h100", "b200", "rtx-4090", "mi300x", "m4-max-128gb")
    engine, model, gpu = (draw.choice(x) for x in (ENGINES, MODELS, cards))
    pp = draw.choice((1, 1, 2))
    asked: dict[str, Any] = {"gpu": gpu, "engine": engine, "gpus": pp, "pp": pp, "output": 16,
                             "prompt": draw.choice((100, 700, 2048, 7000))}  # fmt: skip
    asked |= {"quant": "q4_k_m"} if "gguf" in load_engine(engine).abilities.schemes else {}
    try:
        alone = rooflm.infer(model, batch=1, **asked)
        served = rooflm.serve(model, concurrency=1, requests=3, **asked)
    except RooflmError:
        return
    assert served.ttft_s["mean"] == pytest.approx(float(alone.ttft), rel=0.15), (model, asked)
    assert served.tpot_s["mean"] == pytest.approx(float(alone.tpot), rel=0.05), (model, asked)
