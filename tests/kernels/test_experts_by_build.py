"""What layers of experts took in builds of llama.cpp and releases of Ollama that had fewer kernels for them."""

from __future__ import annotations

import pytest

import rooflm
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import PRESETS

MOE = {"gpu": "rtx-3090", "quant": "q4_k_m"}


def first(model: str, tokens: int, looks: str = "0 ns", **given: object) -> float:
    there = {"engine": "llama.cpp-b5000", "quant": "q4_0", "sets": {"engine.expert_looks": looks}} | given
    return float(rooflm.infer(model, gpu="rtx-3090", prompt=tokens, output=1, **there).ttft)  # type: ignore[arg-type]


def test_the_host_looks_for_each_expert_at_each_tokens_choices_before_each_product() -> None:
    """llama.cpp, pull request 15525: 256 tokens of DeepSeek-V2-Lite on an RTX 3090 from 78.0 to 70.6 ms; 26 layers of
    64 experts, 6 a token, three products each."""
    lost = first("deepseek-v2-lite", 256, "1 ns") - first("deepseek-v2-lite", 256)
    assert lost == pytest.approx(26 * 3 * 64 * 256 * 6 * 1e-9, rel=1e-6) == pytest.approx(7.5e-3, rel=0.03)
    assert first("llama-3.1-8b", 256, "1 ns") == first("llama-3.1-8b", 256)  # dense
    steps = {"quant": "q4_0", "gpu": "rtx-3090", "batch": 16, "prompt": 16, "output": 2, "engine": "llama.cpp-b5000"}
    looked, free = (
        float(rooflm.infer("deepseek-v2-lite", **steps, sets={"engine.expert_looks": looks}).tpot)  # type: ignore[arg-type]
        for looks in ("1 ns", "0 ns")
    )
    assert looked - free == pytest.approx(26 * 3 * 64 * 16 * 6 * 1e-9, rel=1e-6)  # no factor of a prompt
    one, none = (
        float(rooflm.infer("deepseek-v2-lite", **MOE, engine=e, prompt=1, output=8).tpot)  # type: ignore[arg-type]
        for e in ("llama.cpp-b5215", "llama.cpp-b6500")
    )
    assert one - none < 0.2e-3  # of one token no rows are sorted


def test_a_layer_of_experts_is_a_chain_of_kernels_in_ollama_until_it_ran_llama_server() -> None:
    """Ollama 0.21 on an RTX 3090: 141.5 tokens a second of qwen3:30b (multimodalflow.net); Ollama 0.31 is b9840."""
    old, new = (
        1 / float(rooflm.infer("qwen3-30b-a3b", **MOE, engine=f"ollama-{v}", prompt=26, output=128).tpot)  # type: ignore[arg-type]
        for v in ("0.21", "0.31")
    )
    assert old == pytest.approx(141.5, rel=0.08) and new > 1.15 * old
    dense = [
        float(rooflm.infer("llama-3.1-8b", **MOE, engine=f"ollama-{v}", prompt=26, output=128).tpot)  # type: ignore[arg-type]
        for v in ("0.21", "0.31")
    ]
    assert dense[0] == pytest.approx(dense[1], rel=0.01)


def test_ollama_attends_without_flash_attention_up_to_0_12_3() -> None:
    """llm/server.go; RTX A6000, Llama-70B: 441 prompt tokens a second of 3,078 (gparemsky/48gb4090)."""
    engines = [
        rooflm.infer("llama-3.1-8b", **MOE, engine=f"ollama-{v}").scenario.engine  # type: ignore[arg-type]
        for v in ("0.9", "0.12.3", "0.12.4", "0.32")
    ]
    assert [e.kernels.flash for e in engines] == [False, False, True, True]
    assert [e.name for e in engines] == ["ollama-2025-07", "ollama-2025-08", "ollama-2025-12", "ollama"]


METAL = ("llama.cpp-2024-05-metal", "llama.cpp-metal-2025-02", "ollama-2025-08-metal", "ollama-metal")


@pytest.mark.parametrize("build", [*METAL, "ollama-rocm"])
def test_builds_for_other_cards_have_none_of_the_chains_that_cuda_fused(build: str) -> None:
    kernels = load_engine(build).kernels
    assert (kernels.expert_chain, kernels.expert_looks) == (0, 0)


def test_no_later_build_takes_longer_for_experts() -> None:
    """ggml-cuda of May 2024 (ggml-cuda.cu, mul_mat_id) looks at the choices on the host, as until August 2025."""
    builds = ("llama.cpp-2024-05", "llama.cpp-2025-02", "llama.cpp-2025-10", "llama.cpp")
    runs = [rooflm.infer("qwen3-30b-a3b", gpu="rtx-4090", quant="q4_k_m", engine=b, prompt=512) for b in builds]
    for times in ([float(r.ttft) for r in runs], [float(r.tpot) for r in runs]):
        assert times == sorted(times, reverse=True) and times[0] > 1.2 * times[-1]


@pytest.mark.parametrize(("model", "quant"), [("qwen3-30b-a3b", "q8_0"), ("mixtral-8x7b", "q4_0")])
def test_prompts_of_experts_on_metal_before_and_after_their_rows_were_looked_up_once(model: str, quant: str) -> None:
    """M2 Ultra, 512 tokens: 1.9 and 2.2 times as fast since pull request 13388 of May 2025 (b5324)."""
    old, new = (
        float(rooflm.infer(model, gpu="m2-ultra", quant=quant, engine=f"llama.cpp-metal-{b}", prompt=512).ttft)
        for b in ("b5320", "b5330")
    )
    assert 1.7 < old / new < 3


def test_an_expert_of_one_row_takes_a_tile_of_32_on_metal() -> None:
    """As its products do: 128 experts of 8 rows each take as long as of 32."""
    there = {"gpu": "m2-ultra", "quant": "q8_0", "engine": "llama.cpp-metal"}
    own, alone = (
        float(rooflm.infer("qwen3-30b-a3b", **there, prompt=128, sets={"engine.expert_tile": rows}).ttft)  # type: ignore[arg-type]
        for rows in (32, 0)
    )
    assert own > 1.2 * alone


def test_hip_looked_through_choices_as_cuda_did() -> None:
    """One source for both (ggml-cuda/mmq.cu, until pull request 15525 of August 2025)."""
    builds = ("b6000", "b6200")
    for card in ("", "-rocm"):
        assert [load_engine(f"llama.cpp{card}-{b}").kernels.expert_looks for b in builds] == [1e-9, 0]


def test_cuda_and_hip_wait_for_choices_until_april_2025_and_nobody_else_does() -> None:
    """Pull request 13014 takes one token's experts in a launch without a synchronisation; Metal and Vulkan had none."""
    builds = ("b1650", "b3000", "b5000", "b5215", "b7000")
    for card in ("", "-rocm"):
        assert [load_engine(f"llama.cpp{card}-{b}").kernels.expert_waits for b in builds] == [8e-5] * 3 + [0] * 2
    for card in ("-metal", "-vulkan"):
        assert not any(load_engine(f"llama.cpp{card}-{b}").kernels.expert_waits for b in builds)


@pytest.mark.parametrize(("gpu", "rate"), [("a100-sxm-80gb", 48.1), ("h100-sxm-80gb", 60.7)])
def test_a_step_of_2023_waits_for_its_choice_of_experts(gpu: str, rate: float) -> None:
    """Mixtral in q5_k_m, 48.1 and 60.7 tokens a second (b1650): three products a layer whose choices go to the host."""
    step = {"gpu": gpu, "quant": "q5_k_m", "prompt": 9, "output": 240, "batch": 1}
    old, new = (float(rooflm.infer("mixtral-8x7b", engine=f"llama.cpp-{b}", **step).tpot) for b in ("b1650", "b7000"))  # type: ignore[arg-type]
    assert 1 / old == pytest.approx(rate, rel=0.1)
    assert old > 1.5 * new


def test_sycl_takes_experts_one_by_one() -> None:
    """35B of 256 experts and 26B of 128 on Arc Pro B70, 618 and 1,129 prompt tokens a second (April 2026)."""
    for model, rate in (("qwen3.5-35b-a3b", 618), ("gemma-4-26b-a4b", 1129)):
        run = {"gpu": "arc-pro-b70", "engine": "llama.cpp-sycl", "quant": "q4_k_m", "prompt": 512, "output": 1}
        alone = float(rooflm.infer(model, **run).ttft)  # type: ignore[arg-type]
        grouped = float(
            rooflm.infer(model, **run, sets={"engine.narrow_calls": 0, "engine.expert_spread": ""}).ttft  # type: ignore[arg-type]
        )
        assert 512 / alone == pytest.approx(rate, rel=0.1)
        assert alone > 2 * grouped


def test_the_driver_that_compiles_vulkan_is_slow_at_large_tiles_which_experts_do_not_have() -> None:
    """Llama-2-7B in q4_0 on Strix Halo by AMDVLK: 1,377 prompt tokens a second in b6182, 350 in b7938 (kyuz0); pull
    request 18749. 80B of 512 experts keep their kernels: 358 (b8192, visorcraft)."""
    run = {"gpu": "strix-halo-128gb", "prompt": 512, "output": 1}
    old, new = (
        float(rooflm.infer("llama-2-7b", engine=f"llama.cpp-amdvlk-{b}", quant="q4_0", **run).ttft)
        for b in ("b6182", "b7938")
    )  # type: ignore[arg-type]
    assert new == pytest.approx(512 / 350, rel=0.15) and new > 1.7 * old
    mixture = rooflm.infer("qwen3-next-80b-a3b", engine="llama.cpp-amdvlk-b8192", quant="q6_k", **run)  # type: ignore[arg-type]
    assert 512 / float(mixture.ttft) == pytest.approx(358, rel=0.15)


def on_strix_halo(model: str, quant: str = "bf16", prompt: int = 512, output: int = 1, **sets: object) -> float:
    run = {"gpu": "strix-halo-128gb", "engine": "llama.cpp-vulkan-b8038", "quant": quant, "prompt": prompt}
    sets = {f"engine.{k}": v for k, v in sets.items()}
    answer = rooflm.infer(model, **run, output=output, sets=sets)  # type: ignore[arg-type]
    return float(answer.ttft if output == 1 else answer.tpot)


def test_bf16_experts_have_a_rate_of_their_own() -> None:
    """Dense products have another, `bf16_share`; a tile of 64 rows is as many where an expert has 32 (or 16)."""
    assert on_strix_halo("qwen3-30b-a3b", bf16_experts=0.25) > 1.6 * on_strix_halo("qwen3-30b-a3b")
    assert on_strix_halo("llama-3.1-8b", bf16_experts=0.25) == on_strix_halo("llama-3.1-8b")
    assert on_strix_halo("qwen3-30b-a3b") > 1.6 * on_strix_halo("qwen3-30b-a3b", bf16_tile=1)


def test_no_vector_kernel_of_vulkan_takes_bf16_experts() -> None:
    """ggml_vk_use_mul_mat_vec_id has no bf16. Qwen3-30B makes 9.42 tokens/s (b7938) and 70 to 90 in 4 to 8 bits; what a
    row's inner values take, one by one, is all that counts, and Gemma 4's gate and up are one product."""
    run: dict[str, int] = {"prompt": 1, "output": 128}
    slow = on_strix_halo("qwen3-30b-a3b", **run)
    assert 1 / slow == pytest.approx(9.42, rel=0.15)
    inner = 48 * (2 * 2048 + 768) * 350e-9
    assert on_strix_halo("qwen3-30b-a3b", **run, bf16_step="700 ns") - slow == pytest.approx(inner, rel=1e-3)
    assert on_strix_halo("gemma-4-26b-a4b", **run) < 0.75 * on_strix_halo("gemma-4-26b-a4b", **run, joined="")
    assert on_strix_halo("qwen3-30b-a3b", "q8_0", **run) < slow / 4


def test_what_unpacks_experts_depends_on_their_type() -> None:
    """512 tokens of mixtures by Vulkan on Strix Halo: 170 tokens/s of MiniMax-M2 in 3 bits and 528 of Qwen3-Next in 4
    (b8070, RADV). Each tile unpacks its weights anew; two values at a time in 3 bits, four in 4."""
    lost = {
        q: on_strix_halo("qwen3-30b-a3b", q) - on_strix_halo("qwen3-30b-a3b", q, expert_spread="")
        for q in ("q3_k_m", "q4_k_m", "q8_0")
    }
    assert lost["q3_k_m"] == pytest.approx(lost["q4_k_m"] * 0.9 / 0.65, rel=0.01) and lost["q8_0"] < lost["q4_k_m"] / 5
    named = {part.split(":")[0] for part in load_engine("llama.cpp-vulkan-rocm").kernels.expert_spread.split()}
    assert named - {"q8_0"} == {q for q in PRESETS if "_k" in q}  # q4_k_l and others are wider in their tables alone
    for model, quant, rate in (("minimax-m2", "q3_k_m", 170), ("qwen3-next-80b-a3b", "q4_k_m", 528)):
        assert 512 / on_strix_halo(model, quant) == pytest.approx(rate, rel=0.1)


def test_mixtures_without_a_file_of_tiles_take_longer_in_vllm() -> None:
    """Mixtral 8x22B on four A100, 32 sequences of 32 and 128 tokens: 7.44 s without tuned tiles, 6.89 with (4002)."""
    run = {"gpu": "a100-sxm-80gb", "gpus": 4, "tp": 4, "batch": 32, "prompt": 32, "output": 128, "quant": "bf16"}
    bare, tuned = (
        float(rooflm.infer("mixtral-8x22b", engine=e, **run).latency) for e in ("vllm-untuned", "vllm-0.4.1")
    )  # type: ignore[arg-type]
    assert bare == pytest.approx(7.44, rel=0.1) and 1.03 < bare / tuned < 1.2
    dense = [float(rooflm.infer("llama-3.1-8b", gpu="a100", engine=e).tpot) for e in ("vllm-untuned", "vllm-0.4.1")]
    assert dense[0] == dense[1]


def test_hip_launched_one_by_one_on_strix_halo_until_graphs_were_on() -> None:
    """Pull request 22254 (April 2026)."""
    gaps = [load_engine(f"llama.cpp-rocm-{b}", "strix-halo-128gb", "rdna3.5").host.gap for b in ("b8038", "b9187")]
    assert gaps[0] - gaps[1] == pytest.approx(1.1e-6, rel=0.05)


def test_scales_bound_tiles_of_experts_on_instinct_too() -> None:
    """mmq.cuh is one source for CUDA and HIP: what a CU multiplies of integers a clock is bound by scales, not by
    matrix units, of which a CU of MI300X has four times MI100's (DeepSeek-V3 on eight: 513 tokens/s at 512)."""
    given = {"quant": "q4_k_m", "batch": 1, "prompt": 512, "output": 1}
    for gpu, model, more in (("mi300x", "deepseek-v3", 1.4), ("mi100", "qwen3.5-35b-a3b", 1.0)):
        cards = {"gpus": 8, "pp": 8} if model == "deepseek-v3" else {}
        took, free = (
            rooflm.infer(model, gpu=gpu, engine="llama.cpp-rocm-b8950", sets=sets, **given, **cards).ttft
            for sets in ({}, {"engine.tile_rate": 0})
        )
        assert took >= more * free * (1 - 1e-9)
        assert more > 1 or took == pytest.approx(free, rel=0.01)
