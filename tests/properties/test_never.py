"""What no answer may do, whatever the tables hold: grids of models, cards and formats that nobody measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rooflm
from rooflm.readers.devices import load_device
from rooflm.readers.rows import names

BATCHES = [1, 2, 4, 8, 16, 24]
"""Sequences that every current engine decodes by graphs on any card (SGLang ends them at 24 on cards of 24 GB)."""
PROMPTS = [128, 1024, 8192, 65536]
CURRENT = ("sglang-0.5.10", "trtllm", "vllm")


def grid(model: str, gpu: str, quant: str, engine: str, **asked: Any) -> Any:
    """Answers over BATCHES and PROMPTS."""
    points = {"batch": BATCHES, "prompt": PROMPTS, "output": 32, **asked}
    return rooflm.infer(model, gpu=gpu, quant=quant, engine=engine, **points)


def falls(values: NDArray[Any], axis: int) -> float:
    """The largest fall from one point to the next along an axis, as a ratio."""
    along = np.moveaxis(values, axis, 0)
    return float((along[:-1] / along[1:]).max())


@pytest.mark.parametrize("engine", CURRENT)
@pytest.mark.parametrize(
    ("model", "gpu", "quant", "tp"),
    [("llama-3.1-70b", "h200", "fp8", 1), ("qwen3-30b-a3b", "b200", "nvfp4", 1), ("gemma-3-27b", "a100", "bf16", 2),
     ("deepseek-v3", "b300", "fp8-block", 8), ("qwen3-next-80b-a3b", "h100", "bf16", 4),
     ("gpt-oss-120b", "gb200", "mxfp4", 1), ("llama-3.1-8b", "l40s", "awq", 1),
     ("qwen3-30b-a3b", "rtx-pro-6000", "fp8-block", 1)],
)  # fmt: skip
def test_more_work_is_not_done_sooner(model: str, gpu: str, quant: str, tp: int, engine: str) -> None:
    """Nor does it take less memory, nor more power than the card may have; more sequences are more tokens a second."""
    r = grid(model, gpu, quant, engine, tp=tp)
    for name in ("tpot_s", "ttft_s", "memory_bytes"):
        for axis in (0, 1):
            assert falls(r[name].values, axis) <= 1.01, (name, axis)
    assert falls((r["batch"] / r["tpot_s"]).values, 0) <= 1.01
    assert (r["power_w"].values <= load_device(gpu).tdp * (1 + 1e-9)).all()
    for figure in ("mfu", "mbu", "prefill_mfu", "decode_mbu"):
        assert (r[figure].values <= 1 + 1e-9).all()


@pytest.mark.parametrize("engine", ["llama.cpp", "lmdeploy", "sglang-0.5.10", "sglang-0.5.5", "vllm", "vllm-0.8"])
@pytest.mark.parametrize("gpu", ["a100", "rtx-3090", "rtx-4090", "l40s", "rtx-5090", "rtx-pro-6000", "h100", "b200"])
def test_latents_are_read_by_all_of_a_card(engine: str, gpu: str) -> None:
    """One long sequence on cards without latent kernels of their own: TensorRT-LLM alone leaves it to one block there,
    which took 400 times as long as its bytes."""
    near, far = grid("deepseek-v2-lite", gpu, "bf16", engine, batch=1, prompt=[1024, 65536])["tpot_s"].values
    read = 27 * (65536 - 1024) * 576 * 2 / load_device(gpu).dram.bandwidth
    assert far - near < 30 * read  # Triton's cut it into eight


@pytest.mark.parametrize(("model", "quant"), [("llama-2-7b", "w16a16"), ("deepseek-v2-lite", "w16a16kv8")])
def test_every_card_answers(model: str, quant: str) -> None:
    """Also those that multiply in no bf16, and latents with an 8-bit cache where no table has a kernel for one."""
    for gpu in names("gpu"):
        e = rooflm.infer(model, gpu=gpu, engine="vllm", quant=quant, batch=4)
        assert 0 < e.ttft < math.inf and 0 < e.tpot < math.inf, gpu


@pytest.mark.parametrize("engine", ["sglang-0.5.10", "vllm"])
@pytest.mark.parametrize(("model", "gpu"), [("llama-3.1-8b", "a100"), ("llama-3.1-8b", "h200"),
                                            ("llama-3.1-8b", "l40s"), ("qwen3-30b-a3b", "l40s"),
                                            ("qwen3-30b-a3b", "a100"), ("qwen3-30b-a3b", "h200"),
                                            ("glm-4.5-air", "h100")])  # fmt: skip
def test_floats_of_four_bits_are_integers_to_a_card_without_units_for_them(model: str, gpu: str, engine: str) -> None:
    """Marlin's kernels take both; a scale of 16 values, not of 128, is 8 % more bytes."""
    tp = 2 if model == "glm-4.5-air" else 1
    integers, floats = (grid(model, gpu, quant, engine, tp=tp) for quant in ("awq", "nvfp4"))
    for name in ("tpot_s", "ttft_s"):
        ratio = floats[name].values / integers[name].values
        assert ratio.min() > 0.99 and ratio.max() < 1.1, name


@pytest.mark.parametrize("engine", ["sglang-0.5.10", "vllm"])
@pytest.mark.parametrize(("model", "tp"), [("qwen3-30b-a3b", 1), ("qwen3-next-80b-a3b", 2), ("glm-4.5-air", 4),
                                           ("qwen3-235b-a22b", 8)])  # fmt: skip
def test_narrow_experts_decode_no_slower_than_wide_ones(model: str, tp: int, engine: str) -> None:
    """Kernels of spread experts, which cost a launch's part for each, had been taken for whole ones: 512 of Qwen3-Next
    decoded in half the time in 16 bits. Quantising what enters is 4 us a layer."""
    for gpu in ("h100", "h200"):
        wide, narrow = (grid(model, gpu, quant, engine, tp=tp)["tpot_s"].values for quant in ("bf16", "fp8-block"))
        assert (narrow <= 1.02 * wide + 12e-6 * rooflm.load_model(model).layers).all()


@pytest.mark.parametrize("engine", CURRENT)
@pytest.mark.parametrize("gpu", ["h200", "b200", "b300", "gb200"])
def test_more_cards_over_nvlink_are_not_slower(gpu: str, engine: str) -> None:
    alone, *more = (
        grid("llama-3.1-70b", gpu, "fp8", engine, tp=tp, batch=[1, 16], prompt=[1024, 8192]) for tp in (1, 2, 4, 8)
    )
    for r in more:
        for name in ("tpot_s", "ttft_s", "memory_bytes"):
            assert (r[name].values <= 1.02 * alone[name].values).all(), name  # sums of few rows are latency
        alone = r


@pytest.mark.parametrize("quant", ["q4_k_m", "q8_0", "bf16"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"])
def test_more_units_multiply_warp_by_warp_no_slower(model: str, quant: str) -> None:
    """A B200 has 1.14 times the SMs and clock of an H200 and each does as much by mma.sync, whatever the rows: with
    the tiles of tcgen05 33 sequences stepped 1.5 times slower."""
    points = {"engine": "llama.cpp", "quant": quant, "batch": [1, 2, 8, 16, 33, 64, 256], "prompt": [512, 4096]}
    old, new = (rooflm.infer(model, gpu=gpu, output=16, **points) for gpu in ("h200", "b200"))
    for name in ("tpot_s", "ttft_s"):
        assert (new[name].values < 0.95 * old[name].values).all(), name


@pytest.mark.parametrize(
    ("model", "gpu", "quant", "tp", "engine"),
    [("kimi-k2", "mi355x", "w4a16g32", 8, "vllm"), ("kimi-k2", "mi300x", "w4a16g32", 8, "sglang-0.5.14"),
     ("qwen3-235b-a22b", "mi355x", "awq", 8, "vllm"), ("qwen3-30b-a3b", "h100", "awq", 1, "vllm"),
     ("gpt-oss-120b", "h100", "mxfp4", 1, "trtllm")],
)  # fmt: skip
def test_a_sequence_more_takes_no_wave_of_tiles_more(model: str, gpu: str, quant: str, tp: int, engine: str) -> None:
    """Routers draw anew in every layer, whose tiles fill a wave more or not: 28 sequences of Kimi K2 on MI355X stepped
    1.5 times as long as 24."""
    batches = list(range(8, 65))
    t = grid(model, gpu, quant, engine, tp=tp, batch=batches, prompt=1024, outputs=["tpot_s"])["tpot_s"].values
    assert (t[1:] / t[:-1] < 1.08).all(), dict(zip(batches, t, strict=True))


@pytest.mark.parametrize("gpu", ["tpu-v5p", "tpu-v6e", "tpu-v7x", "gaudi3", "trainium2"])
def test_a_big_core_reads_no_slower_than_a_small_one(gpu: str) -> None:
    """What a block of FlashAttention reads is an SM's, and no matrix unit's of megabytes: eight sequences of 8,192
    tokens took a TPU of 2025 quarter of a second a token, an A100 68 ms."""
    points: Any = {"engine": "hf-eager", "prompt": 8192, "output": 32, "batch": 8}
    old, new = (rooflm.infer("llama-3.1-8b", gpu=one, **points).tpot for one in ("a100", gpu))
    assert new < 1.3 * old
