"""A pass of more tokens takes longer, and by no leap: experts of llama.cpp's builds for CUDA, which run on kernels for
one token, for few and for many, from 2 to 640 tokens, as sequences that decode and as a prompt (decision 320). Volta
and Pascal, whose products of many rows have a factor, leap where those of few end."""

import itertools

import numpy as np
import pytest

from rooflm import infer
from rooflm.readers.engines import load_engine

COUNTS = [*itertools.accumulate(range(22), lambda n, _: max(n + 1, int(1.35 * n)), initial=2)]
CARDS = ("h100", "a100", "rtx-3090", "rtx-4090", "rtx-5090", "gb10")


@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp-2026-05", "llama.cpp-2025-12", "ollama"])
@pytest.mark.parametrize("model", ["gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b", "deepseek-v2-lite"])
def test_no_pass_is_much_longer_than_one_of_a_third_fewer_tokens(model: str, engine: str) -> None:
    quant = "mxfp4" if model.startswith("gpt-oss") else "q4_k_m"
    for gpu in CARDS:
        known = {"gpu": gpu, "engine": engine, "quant": quant, "output": 2, "sets": {"engine.token_budget": 4096}}
        steps = infer(model, batch=COUNTS, prompt=16, **known)["tpot_s"].values.ravel()
        prompts = infer(model, batch=1, prompt=COUNTS, **known)["ttft_s"].values.ravel()
        for taken in (steps, prompts):
            grown = taken[1:] / taken[:-1]
            assert np.all((grown > 0.9) & (grown < 1.6)), (gpu, dict(zip(COUNTS[1:], np.round(grown, 2), strict=True)))


@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp-2025-12"])
@pytest.mark.parametrize("tokens", [2, 8, 16, 96, 128, 512])
def test_experts_ask_not_whether_tokens_are_a_prompts(tokens: int, engine: str) -> None:
    def moe(phase: str, prompt: int, batch: int) -> float:
        known = {"gpu": "rtx-4090", "engine": engine, "quant": "mxfp4", "output": 2}
        parts = infer("gpt-oss-20b", prompt=prompt, batch=batch, **known).timed[phase]
        return float(sum(t.total for t in parts if t.node.kind == "moe"))

    prompt = float(load_engine(engine).factors.prompt)  # what is said of a phase is without it
    assert moe("prefill", tokens, 1) * prompt == pytest.approx(moe("decode", 16, tokens), rel=0.01)
