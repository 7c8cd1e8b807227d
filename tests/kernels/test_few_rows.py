"""Kernels for few rows: what SMs take, memory gives and frameworks copy; graphs that end at a length."""

from typing import Any

import numpy as np
import pytest

from rooflm import infer
from rooflm.catalogue.engine import INF
from rooflm.kernels.gemm import GemmConstants
from rooflm.kernels.products import VECTOR_SHARE, taken, vector_time
from rooflm.kernels.rates import rates


def tokens(model: str, gpu: str, engine: str, prompt: int, output: int, **more: Any) -> float:
    """Tokens a second of one sequence, the prompt included."""
    found = infer(model, gpu=gpu, engine=engine, batch=1, prompt=prompt, output=output, **more)
    return output / float(found.latency)


def test_few_rows_stream_as_memory_gives_or_as_the_sms_take() -> None:
    """By hand: 1 GB at 0.95 of 1 TB/s is 1,053 us; at 0.5 TB/s that SMs take 2,000 us, 8 us more where both join."""
    s = infer("llama-2-7b", gpu="rtx-4090", engine="llama.cpp", batch=1).scenario
    r = rates(s)._replace(dram=1e12)
    alone = vector_time(1e9, 0.0, GemmConstants(eff_m=VECTOR_SHARE), r, np.inf)
    bound = vector_time(1e9, 0.0, GemmConstants(), r, 0.5e12)
    assert float(alone) == pytest.approx(1e9 / 0.95e12, rel=0.01)
    assert float(bound) == pytest.approx(2.007e-3, rel=0.005)
    device = s.cluster.device
    assert taken(s) == s.engine.kernels.sm_stream * device.sms * device.clock
    assert taken(infer("llama-2-7b", gpu="a100", engine="vllm", batch=1).scenario) == np.inf


@pytest.mark.parametrize(
    ("gpu", "measured"),
    [("h100", 68), ("h200", 71), ("b300", 75), ("a100", 43), ("rtx-4090", 35), ("v100-pcie-32gb", 28)],
)
def test_llama_cpp_decodes_by_its_sms_whatever_the_memory(gpu: str, measured: float) -> None:
    """gemma-4-31B in Q4_K_M, one request (Khmel, 2026-06); by bandwidth alone B300 was 1.6 times it."""
    found = tokens("gemma-4-31b", gpu, "llama.cpp", 64, 512, quant="q4_k_m")
    assert found == pytest.approx(measured, rel=0.2)


def test_a_card_without_integer_dot_products_takes_half() -> None:
    """P100 has GTX 1080's generation, 2.3 times its memory's rate, and hardly more tokens (65 both; 49 and 48)."""
    small, large = (tokens("ministral-3-3b", g, "llama.cpp", 64, 512, quant="q4_k_m") for g in ("gtx-1080", "p100"))
    assert 0.85 < large / small < 1.25


def test_graphs_of_2024_end_at_a_length() -> None:
    """Qwen2-0.5B on A100 in vLLM 0.4.2: 256 tokens a second at 6,144 tokens of prompt, 109 at 14,336."""
    known: dict[str, Any] = {"model": "qwen2-0.5b", "gpu": "a100", "engine": "vllm-2024", "output": 2048}
    short, long = (tokens(prompt=p, **known) for p in (6144, 14336))
    assert short == pytest.approx(256, rel=0.15) and long == pytest.approx(109, rel=0.15)
    lifted = tokens(prompt=14336, sets={"engine.graph_length": INF}, **known)
    assert lifted > 2 * long


def test_transformers_repeats_what_grouped_heads_read() -> None:
    """Qwen2-7B on A100 in transformers 4.38: 38 tokens a second after one, 17.5 after 30,720; heads of their own have
    nothing to repeat."""
    short, long = (tokens("qwen2-7b", "a100", "hf-eager", p, 2048) for p in (1, 30720))
    assert short == pytest.approx(38, rel=0.15) and long == pytest.approx(17.5, rel=0.3)
    for model, repeats in (("qwen2-7b", True), ("llama-2-7b", False)):
        nodes = infer(model, gpu="a100", engine="hf-eager", batch=1).timed["decode"]
        assert any(t.node.name == "kv_repeat" and np.any(t.total) for t in nodes) == repeats
