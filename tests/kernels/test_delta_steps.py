"""Recurrent layers over prompts: scans that take them token by token, and what Python launches of scans by chunks."""

from __future__ import annotations

import numpy as np
import pytest

import rooflm
from rooflm.kernels.training_factors import factor, scans
from rooflm.readers.devices import load_device
from rooflm.serving.components import TableSize, components


def first(model: str, steps: str | None = None, **given: object) -> float:
    there = {"gpu": "strix-halo-128gb", "engine": "llama.cpp-rocm", "quant": "q4_k_m", "prompt": 2048, "output": 1}
    sets = {"engine.token_budget": "2048"} | ({"engine.delta_steps": steps} if steps else {})
    return float(rooflm.infer(model, **there | given, sets=sets).ttft)  # type: ignore[arg-type]


def test_a_scan_that_takes_a_prompt_token_by_token_takes_what_was_profiled() -> None:
    """AMD-Ecosystem/llama.cpp, pull request 54: 220.9 ms of 2,048 tokens of Qwen3.5-35B-A3B on Strix Halo, 30 layers of
    32 heads, 18 % of the prompt's time."""
    lost = first("qwen3.5-35b-a3b") - first("qwen3.5-35b-a3b", "0")
    assert lost == pytest.approx(0.2209, rel=0.05)
    assert 0.12 < lost / first("qwen3.5-35b-a3b") < 0.24
    assert first("qwen3-30b-a3b") == first("qwen3-30b-a3b", "0")


@pytest.mark.parametrize(
    ("gpu", "engine", "prompt", "measured", "off"),
    [("rtx-5090", "llama.cpp-vulkan-b8400", 512, 8119.0, 0.22), ("l40s", "llama.cpp-b8833", 4000, 5393.0, 0.31)],
)
def test_prompts_of_gated_delta_models_on_nvidias_cards(
    gpu: str, engine: str, prompt: int, measured: float, off: float
) -> None:
    """Nothing was made from these (pull request 20662; ollama/ollama, issue 14861): 1.29 and 1.33 times without;
    L40S is 1.30 times too fast by tiles as wide as the pass (decisions 281, 290 and 320)."""
    e = rooflm.infer("qwen3.5-35b-a3b", gpu=gpu, engine=engine, quant="q4_k_m", prompt=prompt, output=1)
    assert prompt / float(e.ttft) == pytest.approx(measured, rel=off)


def test_servers_scan_prompts_in_chunks() -> None:
    for engine in ("vllm", "sglang", "mlx"):
        e = rooflm.infer("qwen3.5-4b", gpu="apple-m4-max-40core-64gb" if engine == "mlx" else "h100", engine=engine)
        assert e.scenario.engine.kernels.delta_steps == 0


@pytest.mark.parametrize(("model", "kernels"), [("falcon-h1-7b", 5), ("qwen3.5-4b", 8)])
def test_a_scan_by_chunks_is_several_kernels_over_prompts_alone(model: str, kernels: int) -> None:
    """mamba_ssm's ssd_combined.py and fla's chunk.py; Falcon-H1R's prompt of 1,024 tokens in vLLM 0.15 on H200: 82 to
    89 ms to its first token, 58 with two kernels a layer at the price of an expert's."""
    e = rooflm.infer(model, gpu="h200", engine="vllm", prompt=1024, output=8)
    scans = {name: {t.node.launches for t in timed if t.node.name == "scan"} for name, timed in e.timed.items()}
    assert scans == {"prefill": {kernels}, "decode": {2}}
    if kernels == 5:
        assert float(e.ttft) == pytest.approx(0.0855, rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "engine", "tp", "batch", "prompt", "printed"),
    [
        ("h100", "sglang", 8, 1, 65_536, 1.954), ("h100", "sglang", 8, 1, 8192, 0.259),
        ("h100", "sglang", 8, 2, 4096, 0.184), ("h100", "sglang", 2, 1, 8192, 0.552),
        ("h100", "sglang", 1, 8, 1024, 1.089), ("h100", "sglang", 1, 1, 65_536, 8.633),
        ("b200", "sglang", 1, 1, 8192, 0.797), ("b300", "sglang", 8, 1, 65_536, 2.065),
        ("rtx-pro-6000", "sglang", 8, 1, 65_536, 2.338), ("h100", "vllm", 8, 1, 8192, 0.371),
        ("h100", "vllm", 4, 1, 8192, 0.371), ("h100", "vllm", 1, 8, 8192, 1.643), ("b200", "vllm", 8, 1, 8192, 0.330),
    ],
)  # fmt: skip
def test_a_scan_by_chunks_takes_what_is_printed(
    gpu: str, engine: str, tp: int, batch: int, prompt: int, printed: float
) -> None:
    """Milliseconds of a layer of 64 heads over tp cards, by fla's kernels (SGLang's) and by FlashInfer's (vLLM's):
    FlashInfer, pull requests 3866, 3788, 3477, 4078, 3001 and 3659. A decoding step streams its states."""
    given = {
        "gpu": gpu, "engine": engine, "tp": tp, "batch": batch, "prompt": prompt, "output": 2, "quant": "fp8-block",
    }  # fmt: skip
    e = rooflm.infer("qwen3.5-397b-a17b", **given, sets={"engine.token_budget": batch * prompt})  # type: ignore[arg-type]
    scan, step = (next(t for t in e.timed[phase] if t.node.name == "scan") for phase in ("prefill", "decode"))
    assert float(scan.kernel) == pytest.approx(printed * 1e-3, rel=0.09)
    assert float(step.kernel) < 0.12 * float(scan.kernel)


def test_prompts_of_gated_deltas_stand_on_constants_in_no_fit_of_training() -> None:
    at = (load_device("h100").name, "hopper")
    assert scans("scan", *at) == {"roofline": factor("scan", "roofline", *at), "share": 0.0, "chunk": 0.0}
    assert scans("delta_scan", *at) == {"roofline": 9.595, "share": 0.167, "chunk": 1.15e-6}


def test_an_older_release_scans_prompts_by_tritons_kernels() -> None:
    """vLLM took FlashInfer's on Hopper in 0.17; a card that these were not made for keeps Triton's."""
    at = {"gpu": "h100", "prompt": 8192, "output": 2, "sets": {"engine.token_budget": 8192}}
    new, old, same = (
        next(t for t in rooflm.infer("qwen3.5-9b", engine=e, **at).timed["prefill"] if t.node.name == "scan")  # type: ignore[arg-type]
        for e in ("vllm-0.17", "vllm-0.14", "sglang")
    )
    assert float(new.kernel) < float(old.kernel) == pytest.approx(float(same.kernel))


@pytest.mark.parametrize(("engine", "least", "most"), [("vllm-0.17", 2e-3, 6e-3), ("vllm", 0.0, 0.0)])
def test_decoding_sequences_beside_prompts_went_by_chunks(engine: str, least: float, most: float) -> None:
    """vLLM, pull request 44700: 953 decoding sequences of 64 heads beside 7,239 tokens of prompts took 2.1 ms a layer
    longer by chunks than by themselves, with an opt-in kernel twice as fast as the usual one on B200. Their states
    are copied out and in (pull request 41824)."""
    s = rooflm.infer("qwen3.5-397b-a17b", gpu="b200", engine=engine, prompt=1024, output=8, quant="nvfp4").scenario
    mixed = np.atleast_1d(components(s, TableSize(8192, 953, 2048)).mixed)
    assert least <= float(mixed[-1]) / 45 <= most
    mamba = rooflm.infer("nemotron-3-nano-30b-a3b", gpu="b200", engine=engine, prompt=1024, output=8).scenario
    assert not np.any(components(mamba, TableSize(512, 8, 2048)).mixed)
