"""What an engine can run is a rule of a point, of a search and of a simulation, with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.abilities import KINDS, kinds_of
from rooflm.catalogue.fields import words_in
from rooflm.errors import RooflmError
from rooflm.readers.engines import engine_names, load_engine
from rooflm.readers.schemes import PRESETS, parse_quant

HOME = {"gpu": "rtx-3090", "engine": "llama.cpp", "quant": "q4_k_m"}


def test_llama_cpp_splits_by_layers_unless_told() -> None:
    assumed = rooflm.infer("llama-3.1-70b", gpus=2, **HOME)
    told = rooflm.infer("llama-3.1-70b", tp=1, pp=2, **HOME)
    assert assumed.tpot == told.tpot
    assert rooflm.infer("llama-3.1-70b", tp=2, **HOME).tpot < 0.7 * told.tpot  # what was answered before


def test_what_an_engine_cannot_run_is_not_simulated() -> None:
    with pytest.raises(RooflmError, match="tp x dp = 8: try 1 or 8"):
        rooflm.serve("deepseek-v3", gpu="h200", tp=8, ep=4, engine="vllm", concurrency=2)


def test_a_scheme_of_the_same_kind_is_named() -> None:
    with pytest.raises(RooflmError, match="engine vllm-rocm does not run such a scheme: try mxfp4 or"):
        rooflm.infer("llama-3.1-8b", gpu="mi300x", quant="nvfp4")
    with pytest.raises(RooflmError, match="engine atom does not run such a scheme: try mxfp4 or"):
        rooflm.infer("llama-3.1-8b", gpu="mi355x", engine="atom", quant="nvfp4")


def test_a_search_leaves_out_what_an_engine_cannot_run() -> None:
    found = rooflm.search_infer("deepseek-v3", gpu="h200", gpus=8, batch=64, engine="vllm")
    degrees = [c.inputs for c in (*found.top, *found.front)]
    assert degrees
    assert all(d["ep"] in (1, d["tp"] * d["dp"]) for d in degrees)
    for search, load in ((rooflm.search_infer, {"batch": 8}), (rooflm.search_serve, {"concurrency": 8})):
        with pytest.raises(RooflmError, match="nothing of this search can run: ep is 4"):
            search("deepseek-v3", gpu="h200", gpus=8, tp=8, ep=4, engine="vllm", **load)  # type: ignore[operator]
    loaded = rooflm.search_serve("deepseek-v3", gpu="h200", gpus=8, engine="vllm", concurrency=64, confirm=0,
                                 token_budget=8192)  # fmt: skip
    assert all(c.inputs["ep"] in (1, c.inputs["tp"] * c.inputs["dp"]) for c in loaded.top)


def test_a_grid_marks_it() -> None:
    grid = rooflm.infer("deepseek-v3", gpu="h200", engine="vllm", tp=8, ep=[1, 2, 8])
    assert grid["reason"].values.tolist()[1] == "the engine spreads experts otherwise"
    assert grid["fits"].values.tolist() == [True, False, True] or not np.any(grid["fits"].values[1])


def test_the_engine_that_runs_a_scheme_is_assumed() -> None:
    engines = {q: rooflm.infer("llama-3.1-8b", gpu="rtx-4090", quant=q).scenario.engine.name
               for q in ("fp8", "q4_k_m", "w4a16", "w4.85a16e6.56")}  # fmt: skip
    assert engines == {"fp8": "vllm", "q4_k_m": "llama.cpp", "w4a16": "vllm", "w4.85a16e6.56": "llama.cpp"}


def test_every_preset_is_of_a_kind_and_every_row_names_kinds() -> None:
    assert all(kinds_of(q) and kinds_of(q) <= set(KINDS) for q in PRESETS.values())
    assert kinds_of(parse_quant("w8a8")) == {"int8", "fp8", "fp8-block", "mxfp8"}
    assert [*kinds_of(PRESETS["nvfp4"]), *kinds_of(PRESETS["q4_k_m"])] == ["nvfp4", "gguf"]
    for name in engine_names():
        assert set(words_in(load_engine(name).abilities.schemes)) <= set(KINDS)


def test_an_answer_says_whose_constants_these_are() -> None:
    said = "; ".join(rooflm.infer("llama-3.1-8b", gpu="arc-b580").assumed)
    assert "efficiency calibrated (constants of all measured cards: none of arc-b580 was measured; wider" in said
    assert "efficiency calibrated" in rooflm.infer("llama-3.1-8b", gpu="h100").assumed
    kin = "; ".join(rooflm.infer("llama-3.1-8b", gpu="rtx-4060").assumed)  # factors of its family, none of its own
    assert "efficiency calibrated (constants of other geforce cards: none of rtx-4060 was measured; wider" in kin


def test_an_answer_says_which_release_it_is_of() -> None:
    said = rooflm.infer("llama-3-8b", gpu="rtx-3090", engine="llama.cpp", quant="q4_k_m").assumed
    months = ("2024-05", "2025-02", "2025-10", "2025-12", "2026-01", "2026-02", "2026-05", "2026-06")
    others = ", ".join(f"llama.cpp-{when}" for when in months)
    assert f"llama.cpp b10050 to b11000 (other releases: {others})" in said


@pytest.mark.parametrize(
    ("gpu", "engine", "prompt", "output", "off"),
    [  # tokens/s of 512 prompt and 128 output tokens; the first two of March 2026 (github.com/brand-o/normiebench,
        # issues 3 and 40), the last of May 2024 (XiongjieDai/GPU-Benchmarks-on-LLM-Inference, 1024 prompt tokens)
        ("apple-m4-10core-16gb", "llama.cpp", 224.81, 20.87, 0.1),
        ("apple-m1-max-32core-64gb", "llama.cpp", 499.58, 46.2, 0.125),  # 12 % too fast
        ("apple-m3-max-40core-64gb", "llama.cpp-2024-05", 678.04, 50.74, 0.1),
    ],
)
def test_macs_by_release(gpu: str, engine: str, prompt: float, output: float, off: float) -> None:
    e = rooflm.infer("llama-3.1-8b", gpu=gpu, engine=engine, quant="q4_k_m", prompt=512, output=128)
    assert 512 / e.ttft == pytest.approx(prompt, rel=0.1)
    assert 1 / e.tpot == pytest.approx(output, rel=off)


def test_shared_layers_take_another_layers_picks() -> None:
    """GLM-5.2: an indexer in every fourth layer, whose picks the others read; no product has a width of 0."""
    s = build_inference(model="deepseek-v3.2", gpu="h200", tp=8).scenario

    def shared(block: Any, at: int) -> Any:
        bare = at > 0 and block.mixer.index_topk > 0
        return replace(block, mixer=replace(block.mixer, index_heads=0, index_dim=0)) if bare else block

    blocks = tuple(shared(b, i) for i, b in enumerate(s.model.blocks))
    with np.errstate(all="raise"):
        own, other = (rooflm.infer(replace(s, model=replace(s.model, blocks=b))) for b in (s.model.blocks, blocks))
    assert other.ttft <= own.ttft
    assert other.fits or "memory" in str(other.reason)
