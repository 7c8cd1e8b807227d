"""Recurrent layers over prompts: scans that take them token by token, and what Python launches of scans by chunks."""

from __future__ import annotations

import pytest

import rooflm


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
    ("gpu", "engine", "prompt", "measured"),
    [("rtx-5090", "llama.cpp-vulkan-b8400", 512, 8119.0), ("l40s", "llama.cpp-b8833", 4000, 5393.0)],
)
def test_prompts_of_gated_delta_models_on_nvidias_cards(gpu: str, engine: str, prompt: int, measured: float) -> None:
    """Nothing was made from these (pull request 20662; ollama/ollama, issue 14861): 1.29 and 1.33 times without."""
    e = rooflm.infer("qwen3.5-35b-a3b", gpu=gpu, engine=engine, quant="q4_k_m", prompt=prompt, output=1)
    assert prompt / float(e.ttft) == pytest.approx(measured, rel=0.22)


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


@pytest.mark.parametrize(("gpu", "prompt", "measured"), [("h100", 65_536, 8.63), ("b200", 8192, 0.797)])
def test_a_scan_by_chunks_takes_what_triton_takes(gpu: str, prompt: int, measured: float) -> None:
    """Milliseconds of a layer of 64 heads by fla's kernels (FlashInfer, pull requests 3866 and 3001), half of them
    here; a decoding step streams its states."""
    sets = {"engine.token_budget": prompt}
    e = rooflm.infer("qwen3.5-4b", gpu=gpu, engine="sglang", prompt=prompt, output=2, sets=sets)
    scan, step = (next(t for t in e.timed[phase] if t.node.name == "scan") for phase in ("prefill", "decode"))
    assert 2 * float(scan.kernel) == pytest.approx(measured * 1e-3, rel=0.1)
    assert float(scan.kernel) > 8 * float(scan.roof)
    assert float(step.kernel) < 8e-6
