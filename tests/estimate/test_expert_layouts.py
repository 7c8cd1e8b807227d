"""Memory that the layouts of experts' kernels add, against what servers print as they start (rooms.csv)."""

from __future__ import annotations

import pytest

import rooflm
from rooflm.units import GIB


def weights(model: str, gpu: str, engine: str, tp: int = 1, **sets: object) -> float:
    """GiB of weights on a device."""
    given = {f"engine.{name}": value for name, value in sets.items()}
    return float(rooflm.infer(model, gpu=gpu, engine=engine, tp=tp, sets=given).memory.parts["weights"]) / GIB


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "tp", "printed"),
    [
        ("gpt-oss-120b", "h100-sxm-80gb", "vllm-0.8", 1, 65.9651),  # Marlin: sides of 3,072 and 2,944 for 2,880
        ("gpt-oss-120b", "h100-sxm-80gb", "vllm-0.11.1", 1, 64.38),  # Triton: scales twice
        ("gpt-oss-20b", "h100-sxm-80gb", "vllm-0.14", 1, 13.47),
        ("gpt-oss-20b", "a100-sxm-80gb", "vllm-0.19", 1, 13.72),
        ("gpt-oss-120b", "a100-sxm-80gb", "vllm-0.8", 4, 17.2217),  # 768 of 720 columns a rank
    ],
)
def test_weights_of_gpt_oss_as_servers_print_them(model: str, gpu: str, engine: str, tp: int, printed: float) -> None:
    assert weights(model, gpu, engine, tp) == pytest.approx(printed, rel=0.01)


def test_scales_that_stay_are_one_byte_for_32_weights() -> None:
    kept, once = (weights("gpt-oss-120b", "h100", "sglang", scales_twice=told) for told in ("openai", ""))
    assert kept - once == pytest.approx(36 * 128 * 3 * 2880**2 / 32 / GIB, rel=1e-6)
    assert weights("gpt-oss-120b", "a100-sxm-80gb", "sglang", scales_twice="openai") == pytest.approx(once, rel=1e-6)


def test_other_models_weigh_what_they_did() -> None:
    """Marlin fills up MXFP4 alone, and no side of these experts."""
    assert weights("qwen3-30b-a3b", "h100", "vllm-0.14") == weights("qwen3-30b-a3b", "h100", "hf-eager")
    assert weights("llama-3.1-8b", "h100", "vllm") == weights("llama-3.1-8b", "h100", "hf-eager")


def test_on_which_releases_an_h100_starts_gpt_oss_120b() -> None:
    """Issues 23278 and 33155: a trial that sorts logits of 1,024 sequences (38 bytes each) leaves no room at 0.9."""
    fits = {e: rooflm.infer("gpt-oss-120b", gpu="h100", engine=e).fits for e in ("vllm-0.10.2", "vllm-0.14", "vllm")}
    assert fits == {"vllm-0.10.2": True, "vllm-0.14": False, "vllm": True}
