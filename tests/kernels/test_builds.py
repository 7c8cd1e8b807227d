"""Builds of one engine: products of bf16 without matrix units, latents over prompts, stages that wait."""

from pathlib import Path
from typing import Any

import pytest

import rooflm

HERE = {"gpu": "strix-halo-128gb", "batch": 1, "prompt": 2048, "output": 16}


def prompt(model: str = "ministral-3-14b", **given: object) -> float:
    return float(rooflm.infer(model, **HERE | given).ttft)  # type: ignore[arg-type]


def test_bf16_prompts_wait_where_a_build_has_no_matrix_kernels_of_that_type() -> None:
    rocm, vulkan = (
        [prompt(engine=e, quant=q) for q in ("bf16", "w16a16kv16")] for e in ("llama.cpp", "llama.cpp-vulkan")
    )
    assert rocm[0] == rocm[1]
    assert vulkan[0] > 2 * vulkan[1]


def test_a_radeon_takes_the_build_for_it() -> None:
    assert (
        rooflm.infer("llama-3.1-8b", **HERE, engine="llama.cpp", quant="q8_0").scenario.engine.name == "llama.cpp-rocm"
    )


def test_metal_waits_between_kernels_and_takes_the_build_for_it() -> None:
    """One M3 Ultra (geerlingguy/ai-benchmarks): the small model waits between kernels, the large one on its weights."""
    rates = {"qwen2.5-14b": 51.85, "llama-3.1-70b": 14.08, "llama-3.2-3b": 154.6}
    for model, measured in rates.items():
        e = rooflm.infer(
            model, gpu="apple-m3-ultra-80core-512gb", engine="ollama-0.11", quant="q4_k_m", prompt=32, output=400
        )
        assert e.scenario.engine.name == "ollama-2025-08-metal"
        assert 1 / float(e.tpot) == pytest.approx(measured, rel=0.17)


def test_prompts_over_latents_cost_the_latents_flops() -> None:
    there = {"engine": "llama.cpp-rocm", "quant": "bf16", "prompt": 32768}
    wide, plain = (prompt("glm-4.7-flash", **there, sets={"engine.latent_prompts": n}) for n in (10**9, 0))
    assert wide > 1.4 * plain  # scores of 576 and sums of 512 values a pair, in place of 256 and 256
    assert prompt("glm-4.7-flash", **there, sets={"engine.server.prefix_caching": False}) == wide  # cached or not


def test_prompts_behind_a_cached_token_read_latents_in_releases_that_do_so() -> None:
    """SGLang's deepseek_v2.py: behind anything (0.4), behind fewer than 8,192 tokens (to 0.5.4), never (0.5.5)."""

    def over(release: str, cached: int = 0, **sets: object) -> float:
        there = {"gpu": "h200", "gpus": 8, "tp": 8, "engine": f"sglang-{release}", "quant": "fp8-block"}
        named = {f"engine.{k.replace('__', '.')}": v for k, v in sets.items()}
        return prompt("deepseek-v3", **there, prompt=cached + 4096, cached=cached, sets=named)

    for release, times in (("0.4.3", 1.8), ("0.5.2", 1.1)):
        assert over(release) > times * over(release, latent_prompts=0)
    assert over("0.4.3", server__prefix_caching=False) == over("0.4.3", latent_prompts=0)  # no token is cached
    assert over("0.4.3", server__prefix_caching=False, latent_prompts=float("inf")) == over("0.4.3")
    assert over("0.4.3", 12288) > 3 * over("0.4.3", 12288, latent_prompts=0)
    assert over("0.5.2", 12288) == over("0.5.2", 12288, latent_prompts=0)
    assert over("0.5.5") == over("0.5.5", latent_prompts=0)


def test_experts_before_aiter_take_three_times_as_long() -> None:
    there = {"gpu": "mi300x", "gpus": 8, "tp": 8, "engine": "vllm-0.7.3", "quant": "fp8-block", "batch": 64}
    before, aiter = (
        rooflm.infer("deepseek-v3", **there, prompt=128, sets=sets).decode_parts["moe"]  # type: ignore[arg-type]
        for sets in ({}, {"engine.experts": ""})
    )
    assert 2 < before / aiter < 3


def test_prompts_that_an_indexer_need_not_thin_out_pad_their_heads_where_the_engine_has_no_other_way() -> None:
    there = {"gpu": "h20-sxm-141gb", "tp": 8, "engine": "vllm", "prompt": 2048}
    sparse, dense = (prompt("deepseek-v3.2", **there, sets={"engine.sparse_prompts": flag}) for flag in (True, False))
    assert prompt("deepseek-v3.2", **there) == sparse > 1.3 * dense
    assert prompt("deepseek-v3", **there, sets={"engine.sparse_prompts": True}) == prompt("deepseek-v3", **there)


def test_sglang_puts_norms_inside_all_reduces_for_some_models_on_some_cards() -> None:
    """server_args.py: Hopper but H20, Blackwell of servers; no attention data parallelism, one node, since 2026."""

    def inside(model: str, gpu: str, **given: object) -> bool:
        e = rooflm.infer(model, **{"gpu": gpu, "tp": 8, "engine": "sglang"} | given)  # type: ignore[arg-type]
        return bool(e.scenario.engine.kernels.reduce_norm > 0)

    assert inside("gpt-oss-120b", "h100") and inside("deepseek-r1", "b200") and inside("llama-3.1-70b", "b200") is False
    assert not any(inside("gpt-oss-120b", gpu) for gpu in ("a100", "h20-sxm-96gb", "rtx-pro-6000", "mi300x"))
    assert not inside("deepseek-r1", "h200", tp=1, dp=8, ep=8, batch=8)
    assert not inside("gpt-oss-120b", "h100", engine="sglang-0.5.5") and not inside("deepseek-r1", "h100", tp=16)
    assert inside("llama-3.1-70b", "b200", sets={"engine.reduce_norm": "1 MiB"})


@pytest.mark.parametrize(
    ("engine", "gpu", "inside"),
    [
        ("vllm", "h100", True),
        ("vllm", "a100", False),  # FlashInfer's kernel has sizes of compute capability 9 and 10 alone
        ("vllm", "rtx-pro-6000", False),
        ("vllm", "mi300x", True),  # aiter's
        ("vllm-0.19", "mi300x", False),
        ("vllm-0.17", "b200", True),
        ("vllm-0.14", "b200", False),  # on request only
        ("atom", "mi355x", True),
    ],
)
def test_vllm_puts_norms_inside_all_reduces_by_card_and_release(engine: str, gpu: str, inside: bool) -> None:
    e = rooflm.infer("llama-3.1-70b", gpu=gpu, tp=8, engine=engine)
    assert bool(e.scenario.engine.kernels.reduce_norm > 0) is inside


@pytest.mark.parametrize("engine", ["llama.cpp", "llama.cpp-rocm", "llama.cpp-vulkan"])
def test_experts_of_one_token_stream_as_other_weights_do(engine: str) -> None:
    """Not the roof times the factor of experts over prompts: kyuz0's tables have 73 and 80 tokens a second here."""
    e = rooflm.infer("gpt-oss-20b", gpu=HERE["gpu"], engine=engine, quant="mxfp4", prompt=1, output=128)
    assert 1 / float(e.tpot) == pytest.approx(76, rel=0.1)
    slow = {"engine": engine, "gpu": HERE["gpu"], "quant": "mxfp4", "prompt": 1, "sets": {"engine.moe_factor": 9.0}}
    assert float(rooflm.infer("gpt-oss-20b", output=128, **slow).tpot) < 1.15 * float(e.tpot)  # type: ignore[arg-type]


def test_experts_in_bf16_have_no_kernels_for_one_token_where_a_build_has_no_units_for_them() -> None:
    there = {"gpu": HERE["gpu"], "prompt": 1, "output": 128, "engine": "llama.cpp-vulkan"}
    brain, half = (
        float(rooflm.infer("glm-4.7-flash", **there, quant=q).tpot)  # type: ignore[arg-type]
        for q in ("bf16", "w16a16kv16")
    )
    assert brain > 1.2 * half


@pytest.mark.parametrize("ways", [2, 4])
def test_one_batch_passes_all_stages_before_the_next_step_where_the_engine_says_so(ways: int) -> None:
    given = {"gpu": "a100-sxm-40gb", "engine": "trtllm-2024", "batch": 16, "prompt": 1024, "output": 128}
    alone, staged = (float(rooflm.infer("llama-2-7b", **given, gpus=n, pp=n).latency) for n in (1, ways))  # type: ignore[arg-type]
    assert staged == pytest.approx(alone, rel=0.1)


def test_vulkan_sums_bf16_itself_where_the_driver_offers_that_type() -> None:
    """kyuz0's tables: the driver prints "bf16: 1" of RDNA 4, and "bf16: 0" of RDNA 3.5, where such prompts take longer
    by far."""

    def slower(gpu: str) -> float:
        there = {"engine": "llama.cpp-vulkan", "gpu": gpu, "prompt": 512}
        return prompt("ministral-3-8b", **there, quant="bf16") / prompt("ministral-3-8b", **there, quant="w16a16kv16")

    assert slower("radeon-ai-pro-r9700-32gb") < 1.1
    assert slower(HERE["gpu"]) > 2


@pytest.mark.parametrize(
    ("gpu", "engine", "model", "quant", "measured"),
    [
        ("gb10", "llama.cpp", "gpt-oss-120b", "mxfp4", 59.02),  # llama.cpp, benches/dgx-spark.md
        ("gb10", "llama.cpp", "qwen2.5-7b", "q8_0", 29.3),
        ("apple-m5-max-40core-128gb", "mlx", "phi-4", "int4", 62.28),  # lablup/mlxcel, mlx-lm
        ("radeon-ai-pro-r9700-32gb", "llama.cpp", "gpt-oss-120b", "mxfp4", 92.1),  # two cards: the rate of one token
    ],
)
def test_tokens_a_second_of_one_sequence(gpu: str, engine: str, model: str, quant: str, measured: float) -> None:
    two = {"pp": 2, "gpus": 2} if "r9700" in gpu else {}
    e = rooflm.infer(model, gpu=gpu, engine=engine, quant=quant, prompt=1, output=128, **two)
    assert 1 / float(e.tpot) == pytest.approx(measured, rel=0.12)


def test_metal_waits_less_since_kernels_run_side_by_side() -> None:
    """M4 Pro: 32 tokens a second in builds of early 2025 (LocalScore), 47 in 2026 (llmfit), 8B in Q4_K_M."""
    there = {"gpu": "apple-m4-pro-20core-48gb", "quant": "q4_k_m", "prompt": 40, "output": 159}
    old, new = (rooflm.infer("llama-3.1-8b", **there, engine=f"llama.cpp-{b}") for b in ("b5000", "b9300"))  # type: ignore[arg-type]
    assert [e.scenario.engine.name for e in (old, new)] == ["llama.cpp-metal-2025-04", "llama.cpp-metal"]
    assert 1 / float(new.tpot) == pytest.approx(47.25, rel=0.12)
    assert float(old.tpot) > 1.08 * float(new.tpot)


@pytest.mark.parametrize("model, measured", [("qwen3.5-4b", 126.68), ("qwen3.5-9b", 87.8), ("qwen3-8b", 111.46)])
def test_a_gated_delta_layer_is_a_chain_of_kernels_where_the_engine_runs_one(model: str, measured: float) -> None:
    """RX 7900 XT by Vulkan (llmfit, 2026-07): without the chain, the first two come out a fifth too fast."""
    there = {"gpu": "rx-7900-xt", "engine": "llama.cpp-vulkan", "quant": "q4_k_m", "prompt": 40, "output": 300}
    alone, chain = (float(rooflm.infer(model, **there, sets={"engine.delta_chain": n}).tpot) for n in (0, 16))  # type: ignore[arg-type]
    assert 1 / chain == pytest.approx(measured, rel=0.12)
    assert alone * measured < 0.85 or model == "qwen3-8b"
    layers = 24 if model.startswith("qwen3.5") else 0
    state = 4 * 32 * 128 * 128 * 4 / 800e9  # read and written twice more
    assert chain - alone >= 0.99 * layers * (16 * 1.7e-6 + state)
    assert chain - alone <= layers * (16 * 6e-6 + 1.3 * state) + 1e-9


def test_experts_weights_take_longer_for_few_rows_where_an_engine_gathers_them() -> None:
    there = {"gpu": "apple-m4-max-40core-64gb", "engine": "mlx", "quant": "int4", "prompt": 512, "output": 8}
    for model, least in (("qwen3-30b-a3b", 1.08), ("qwen3-8b", 1.0)):
        even, gathered = (rooflm.infer(model, **there, sets={"engine.moe_vectors": f}) for f in (1.0, 1.5))  # type: ignore[arg-type]
        assert least <= float(gathered.tpot) / float(even.tpot) < 1.3
        assert float(gathered.ttft) == pytest.approx(float(even.ttft), rel=1e-6)


def test_cards_without_graphs_wait_between_kernels() -> None:
    """CUDA graphs from Ampere on, in Turing and Volta since b10050, in Pascal never; launches that overlap since then
    from Hopper on (pull requests 25749, 22522)."""

    def gap(gpu: str, build: str) -> float:
        return float(
            rooflm.infer("llama-3.2-1b", gpu=gpu, engine=f"llama.cpp-{build}", quant="q4_k_m").scenario.engine.host.gap
        )

    usual = gap("a100", "b9000")
    for gpu, before, since in (("quadro-rtx-8000", 3, 1), ("p40", 5, 5), ("a100", 1, 1), ("rtx-5090", 1, 0.1)):
        assert [gap(gpu, b) / usual for b in ("b9000", "b10100")] == pytest.approx([before, since])


def test_a_graph_of_operations_is_kept_from_token_to_token() -> None:
    """3 to 7 % of a 7B model's time (pull request 8366)."""
    there: dict[str, Any] = {"quant": "q4_0", "prompt": 1, "sets": {"engine.spread": False}}
    for gpu in ("rtx-4090", "h100-pcie-80gb"):
        old, new = (
            float(rooflm.infer("llama-2-7b", gpu=gpu, engine=f"llama.cpp-{b}", **there).tpot)
            for b in ("b6000", "b7000")
        )
        assert 1.02 < old / new < 1.07


def test_a_tokens_activation_is_shared_out_among_sms_and_its_norm_is_not() -> None:
    there = {"gpu": "h100-sxm", "engine": "llama.cpp", "quant": "q4_k_m", "prompt": 1, "output": 8}
    own, rows = (rooflm.infer("gemma-4-31b", **there, sets=s).decode_parts for s in ({}, {"engine.spread": False}))  # type: ignore[arg-type]
    assert float(own["norm"]) == float(rows["norm"])
    assert float(own["mlp"]) < 0.97 * float(rows["mlp"])


def test_vulkan_decodes_on_a_geforce_as_cuda_does() -> None:
    """8B on an RTX 3090, b9160 (pull request 21024): 146.7 and 95.1 tokens a second in Q4_0 and Q8_0."""
    there = {"gpu": "rtx-3090", "engine": "llama.cpp-vulkan", "prompt": 1, "output": 128}
    for quant, measured in (("q4_0", 146.73), ("q8_0", 95.05)):
        assert 1 / float(rooflm.infer("llama-3.1-8b", quant=quant, **there).tpot) == pytest.approx(measured, rel=0.13)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu, engine, tokens, measured", [
    ("rx-7900-xtx", "llama.cpp-rocm", 2048, 3226.54),  # llama.cpp, pull request 26284: Q4_K_M
    ("rx-7900-xtx", "llama.cpp-vulkan-rocm-2025-08", 512, 2762.0),  # of Llama-2-7B 3,290.92 (b7361), by parameters
])  # fmt: skip
def test_radeons_of_a_generation_reach_what_its_cards_did(gpu: str, engine: str, tokens: int, measured: float) -> None:
    e = rooflm.infer("llama-3.1-8b", gpu=gpu, engine=engine, quant="q4_k_m", prompt=tokens, output=1)
    assert tokens / float(e.ttft) == pytest.approx(measured, rel=0.15)


STEP = {"gpu": "h200", "tp": 8, "engine": "sglang", "quant": "fp8-block", "batch": 1, "prompt": 1024, "output": 64}


def step(model: str, sets: dict[str, str] | None = None, **given: object) -> float:
    """Time per output token in ms."""
    return float(rooflm.infer(model, **STEP | given, sets=sets).tpot) * 1e3  # type: ignore[arg-type]


def chained(model: str, **given: object) -> bool:
    """Whether this model's routers take longer than where no router is a chain."""
    return step(model, **given) > step(model, {"engine.gates_on": ""}, **given)  # type: ignore[arg-type]


def test_sglang_routes_to_one_large_group_by_a_chain_of_kernels_where_experts_are_its_own() -> None:
    """topk.py: 8 compiled kernels for GLM, 1 for DeepSeek's 8 groups; TensorRT-LLM's experts and aiter's need none."""
    assert chained("glm-5") and chained("glm-4.5", gpu="h100", engine="sglang-0.5.10")
    assert not any(chained(model) for model in ("deepseek-r1", "kimi-k2", "qwen3-235b-a22b", "minimax-m2"))
    assert not any(chained("glm-5", gpu=gpu) for gpu in ("b200", "mi300x")) and not chained("glm-5", engine="vllm")
    assert step("glm-5") - step("glm-5", {"engine.gates_on": ""}) == pytest.approx(75 * 32e-3, rel=0.15)


@pytest.mark.parametrize(("engine", "model", "chain"), [
    ("trtllm", "glm-4.5", True), ("trtllm", "kimi-k2", True), ("trtllm", "deepseek-r1", False),
    ("trtllm-1.1.0rc2", "deepseek-r1", True), ("vllm-0.9.1", "deepseek-r1", True),
    ("vllm-0.11.0", "deepseek-r1", False),
])  # fmt: skip
def test_routers_are_chains_where_a_release_has_no_kernel_for_them(engine: str, model: str, chain: bool) -> None:
    """TensorRT-LLM, fused_moe/routing.py (one group: PyTorch's); vLLM, pull request 23274."""
    assert chained(model, engine=engine) == chain


def test_routers_of_16_bit_experts_are_chains_on_blackwell_and_those_inside_kernels_up_to_tensorrt_llm_1_1() -> None:
    wide = {"gpu": "b200", "tp": 1, "quant": "bf16"}
    triton = {"engine.experts": "triton"}
    alone = step("glm-4.7-flash", {**triton, "engine.gates_on": ""}, **wide)
    assert step("glm-4.7-flash", triton, **wide) - alone == pytest.approx(46 * 32e-3, rel=0.1)
    narrow = {"gpu": "b200", "quant": "nvfp4-ffn-kv8", "engine": "trtllm-1.1.0rc2"}
    inside = {"engine.experts": "trtllm", "engine.inner_gates": "true"}
    late = step("deepseek-r1", {"engine.experts": "trtllm"}, **narrow) - step("deepseek-r1", inside, **narrow)
    assert late == pytest.approx(58 * 32e-3, rel=0.1)


@pytest.mark.parametrize(("model", "ep", "measured"), [("deepseek-v3.2", 8, 17.96), ("glm-5", 1, 20.22)])
def test_an_indexer_is_a_chain_of_kernels_in_sglang_up_to_0_5_8(model: str, ep: int, measured: float) -> None:
    """SGLang's cookbook, DeepSeek-Math-V2 on eight B200; Ben Hamm's list of February 2026. Up to 0.5.9 FlashMLA decodes
    there, from 0.5.10 on TensorRT-LLM's kernel (docs/decisions/0507)."""
    there = {"gpu": "b200", "ep": ep, "output": 278, "quant": "fp8-blockkv8"}
    old, new, later = (
        step(model, None, **there, engine=f"sglang-{release}") for release in ("0.5.8", "0.5.9", "0.5.10")
    )
    assert old == pytest.approx(measured, rel=0.15) and old > 1.14 * new and new > 1.1 * later
    assert old == step(model, {"engine.index_chain": "16"}, **there, engine="sglang-0.5.8")
    assert later == pytest.approx(step(model, {"engine.picked_on": "hopper"}, **there), rel=0.01)
    assert len({step("deepseek-r1", None, **there, engine=f"sglang-{release}") for release in ("0.5.8", "0.5.9")}) == 1


def test_flashmla_takes_every_place_of_a_choice() -> None:
    """nsa_backend.py: caches of 8 bits alone; splitkv_mla.cu skips no place that holds no token."""

    def more(**given: object) -> float:
        there = {"gpu": "b200", "batch": 64, "quant": "fp8-blockkv8", "output": 8} | given
        flash, other = (step("deepseek-v3.2", {"engine.picked_on": on}, **there) for on in ("blackwell", "hopper"))
        return flash - other

    assert more(prompt=128) > more(prompt=2048) > 0
    assert more(quant="fp8-block") == more(gpu="rtx-pro-6000") == 0


def test_what_is_set_of_routers_is_what_an_engine_file_of_it_gives(tmp_path: Path) -> None:
    usual, one = step("glm-4.5"), step("glm-4.5", {"engine.gates_on": ""})
    file = tmp_path / "own.toml"
    for field, value, expected in (("gates", "160x1", one), ("gates_on", "blackwell", one), ("gates", "64x1", usual)):
        file.write_text(f'base = "sglang"\n{field} = "{value}"\n')
        assert one < usual and step("glm-4.5", {f"engine.{field}": value}) == pytest.approx(expected)
        assert step("glm-4.5", engine=str(file)) == pytest.approx(expected)
    assert step("qwen3-235b-a22b", {"engine.gates_on": "hopper"}) == step("qwen3-235b-a22b")  # no bias
    assert step("deepseek-r1", {"model.blocks.1.ffn.groups": "1"}) > 1.1 * step("deepseek-r1")


def test_8_bit_operands_are_quantised_inside_norms_in_vllm_on_hopper_alone() -> None:
    """vLLM, pull request 19830: no pass over activations is left, so that a faster memory gains little in a prompt."""

    def first(sets: dict[str, str] | None = None, **given: object) -> float:
        long = {"quant": "fp8", "engine": "vllm-0.10.2", "prompt": 8192, "output": 1}
        return float(rooflm.infer("llama-3.1-70b", **STEP | long | given, sets=sets).ttft)  # type: ignore[arg-type]

    parted = {"engine.scaled_on": ""}
    assert first() < 0.9 * first(parted) and first(engine="vllm-0.9.1") == first(parted, engine="vllm-0.9.1")
    assert first(gpu="b200") == first(parted, gpu="b200") and first(quant="bf16") == first(parted, quant="bf16")
    assert first(gpu="h100") / first() < first(parted, gpu="h100") / first(parted)


def test_experts_tuned_with_the_shared_one_among_them_read_their_weights_at_the_rate_of_memory() -> None:
    """Of the cards whose file the wheels have: H200 and H20, not H100."""
    without = {"engine.tuned_experts": ""}
    for gpu, tuned in (("h200", True), ("h20-sxm-141gb", True), ("h100", False), ("b200", False)):
        for sets in ({}, {"engine.tuned_experts": "256x256"}):
            share = step("deepseek-r1", sets, gpu=gpu, batch=16) / step("deepseek-r1", without, gpu=gpu, batch=16)
            assert share < 0.9 if tuned else share == 1
    given = {"gpu": "h200", "batch": 16, "engine": "sglang-0.5.6"}  # whose kernels do not swap operands yet
    assert step("deepseek-r1", **given) == step("deepseek-r1", without, **given)
