"""Kernels for few rows: what SMs take, memory gives and frameworks copy; graphs that end at a length."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rooflm import infer
from rooflm.catalogue.engine import INF
from rooflm.graph.ops import Op
from rooflm.kernels.expert_kernels import tiled_time
from rooflm.kernels.gemm import GemmConstants
from rooflm.kernels.moe import pieces
from rooflm.kernels.products import sm_limit, vector_time
from rooflm.kernels.rates import rates
from rooflm.readers.engines import load_engine


def tokens(model: str, gpu: str, engine: str, prompt: int, output: int, **more: Any) -> float:
    """Tokens a second of one sequence, the prompt included."""
    found = infer(model, gpu=gpu, engine=engine, batch=1, prompt=prompt, output=output, **more)
    return output / float(found.latency)


def test_few_rows_stream_as_memory_gives_or_as_the_sms_take() -> None:
    """By hand: 1 GB at 0.95 of 1 TB/s is 1,053 us; at 0.5 TB/s that SMs take 2,000 us, 8 us more where both join."""
    s = infer("llama-2-7b", gpu="rtx-4090", engine="llama.cpp", batch=1).scenario
    r, plain = rates(s)._replace(dram=1e12), infer("llama-2-7b", gpu="a100", engine="vllm", batch=1).scenario
    device = s.cluster.device
    half = replace(s, engine=s.engine.but(sm_stream=0.5e12 / device.sms / device.clock))
    alone = vector_time(1e9, 0.0, GemmConstants(eff_m=s.engine.kernels.vector_share), r, plain)
    bound = vector_time(1e9, 0.0, GemmConstants(), r, half)
    assert float(alone) == pytest.approx(1e9 / 0.95e12, rel=0.01)
    assert float(bound) == pytest.approx(2.007e-3, rel=0.005)
    each = s.engine.kernels.sm_stream
    assert sm_limit(s, each) == each * device.sms * device.clock
    assert sm_limit(plain, plain.engine.kernels.sm_stream) == np.inf


def test_integer_products_of_many_rows_take_what_an_sm_takes() -> None:
    """24B in 4 bits takes 1,346 and 1,506 prompt tokens a second on an RTX A6000 and an A100 PCIe, SMs times clocks of
    151 and 152 GHz, whatever their tensor cores (gparemsky/48gb4090, September 2025); 16-bit weights do not care."""
    both = ("rtx-a6000", "a100-pcie-80gb")
    desk, served = (tokens("mistral-small-24b", g, "ollama-0.11", 3085, 1, quant="q4_k_m") for g in both)
    assert 0.95 < served / desk < 1.2
    wide = (tokens("llama-3.1-8b", g, "llama.cpp", 3085, 1, quant="fp16") for g in both)
    assert next(wide) * 1.3 < next(wide)


def test_no_prompt_uses_more_flops_than_there_are_whatever_it_sums_in() -> None:
    """MLC's prompts on RTX 4090 pass the datasheet's rate of sums in 32 bits: shares and bands are of that in 16."""
    e = infer("llama-3.1-8b", gpu="rtx-4090", engine="mlc", prompt=3000, quant="w4a16")
    usual = 2.0 * 8.03e9 * 3000 / float(e.ttft)
    assert usual > 165.2e12 and 0.4 < float(e.prefill_mfu) < 0.6
    assert e.error_band["ttft_s"]["low"] < 0.95 * float(e.ttft)


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "rtx-4090"])
@pytest.mark.parametrize("quant", ["q8_0", "q4_k_m"])
def test_more_sequences_do_not_step_faster_in_a_format_of_ones_own(gpu: str, quant: str) -> None:
    """One sequence of 32B took 25 ms on H200, and two 15: kernels for many rows unpack the same weights."""
    steps = infer("qwen3-32b", gpu=gpu, engine="llama.cpp", quant=quant, batch=[1, 2, 3, 4, 8, 9, 16, 32, 64])
    taken_s = steps["tpot_s"].values.ravel()
    assert np.all(taken_s[1:] > 0.99 * taken_s[:-1])


def test_check_bits_take_their_part_of_the_memory() -> None:
    """A40 and RTX A6000 are one chip, 696 and 768 GB/s: 8B in 16 bits 34.3 and 40.7 tokens a second, 0.93 over their
    bandwidths (XiongjieDai/GPU-Benchmarks-on-LLM-Inference, May 2024)."""
    served, desk = (tokens("llama-3-8b", g, "llama.cpp-2024-05", 1, 512) for g in ("a40", "rtx-a6000"))
    assert 0.92 < (served / 696) / (desk / 768) < 0.97


def test_weights_in_16_bits_run_on_the_library_of_an_engine_without_files_of_its_own() -> None:
    """What SMs take binds 7B on A100 in llama.cpp, whose kernels are its own in 16 bits, too, and not in TinyChat."""
    for engine, bound in (("llama.cpp", True), ("tinychat", False)):
        few = {"engine.sm_stream": 3.0}
        plain, slow = (infer("llama-2-7b", gpu="a100", engine=engine, batch=1, sets=x).tpot for x in ({}, few))
        assert bool(float(slow) > 1.3 * float(plain)) == bound


def test_a_stage_of_llama_cpp_costs_a_message() -> None:
    """Four stages: three messages and one back."""
    own = load_engine("llama.cpp-2024-05").host.message
    known: dict[str, Any] = {"model": "llama-3-8b", "gpu": "rtx-4090", "gpus": 4, "pp": 4, "quant": "q4_k_m"}
    told, none = (
        float(infer(engine="llama.cpp-2024-05", batch=1, sets={"engine.message": m}, **known).tpot) for m in (own, 0.0)
    )
    assert told - none == pytest.approx(4 * own, rel=0.01)


def test_wide_heads_take_twice_as_long_by_hip() -> None:
    """A prompt of gemma-4-31b, whose global heads have 512 values, and one of heads of 128."""
    for model, most in (("gemma-4-31b", 2.0), ("ministral-3-14b", 1.0)):
        known: dict[str, Any] = {"model": model, "gpu": "strix-halo-128gb", "engine": "llama.cpp-rocm", "batch": 1}
        parts = [
            sum(t.total for t in infer(prompt=32768, sets=x, **known).timed["prefill"] if t.node.kind == "attention")
            for x in ({}, {"engine.wide_heads": 1.0})
        ]
        assert float(parts[0] / parts[1]) == pytest.approx(most, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "measured"),
    [("h100", 68), ("h200", 71), ("b300", 75), ("a100", 43), ("rtx-4090", 35), ("v100-pcie-32gb", 28)],
)
def test_llama_cpp_decodes_by_its_sms_whatever_the_memory(gpu: str, measured: float) -> None:
    """gemma-4-31B in Q4_K_M, one request (Khmel, b9500); by bandwidth alone B300 was 1.6 times it. RTX 4090 has
    0.64 of its memory's rate there, and 0.85 with his 9B: the figure that the model misses most."""
    found = tokens("gemma-4-31b", gpu, "llama.cpp-2025-12", 64, 512, quant="q4_k_m")
    assert found == pytest.approx(measured, rel=0.22 if gpu == "rtx-4090" else 0.16)


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


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2-lite"])
def test_a_few_prompt_tokens_over_a_long_cache_take_about_a_step(model: str) -> None:
    """llama.cpp's fattn.cu, stream-k: the cache is cut over the SMs whatever few rows look at it."""
    there: dict[str, Any] = {"gpu": "rtx-3090", "quant": "q4_0", "engine": "llama.cpp-2025-12"}
    passes = infer(model, prompt=33280, cached=32768, sets={"engine.token_budget": 4}, **there)
    step = infer(model, prompt=33000, output=2, **there)
    attends = float(passes.prefill_parts["attention"]) / 128
    assert attends < 2 * float(step.decode_parts["attention"])


def test_passes_over_a_long_cache_share_it_out_among_the_sms() -> None:
    """Gemma 2B (one KV head) on RTX 3090 and MI50, 16,384 tokens by 512: 11,163 and 2,310 a second (llama.cpp pull
    requests 11583 and 15982)."""
    for gpu, engine, quant, measured in (
        ("rtx-3090", "llama.cpp-2025-02", "fp16", 11163), ("mi50-32gb", "llama.cpp-rocm-2025-12", "q4_0", 2310),
    ):  # fmt: skip
        there: dict[str, Any] = {"gpu": gpu, "quant": quant, "engine": engine, "prompt": 16384}
        shared = infer("gemma-2b", **there)
        whole = infer("gemma-2b", **there, sets={"engine.cut_caches": False})
        assert 16384 / float(shared.ttft) == pytest.approx(measured, rel=0.15)
        assert float(whole.ttft) > 1.2 * float(shared.ttft)  # parts are timed behind half of the others


def test_quantised_experts_of_several_tokens_go_by_tiles_until_vectors_took_them() -> None:
    """Qwen3-30B on RTX 4090, two tokens at a time: 211.6 a second (llama.cpp pull request 15631)."""
    there: dict[str, Any] = {"gpu": "rtx-4090", "prompt": 4096, "sets": {"engine.token_budget": 2}}
    old, new = (infer("qwen3-30b-a3b", quant="q4_0", engine=e, **there) for e in ("llama.cpp-2025-10", "llama.cpp"))
    assert 4096 / float(old.ttft) == pytest.approx(211.6, rel=0.15)
    assert float(new.ttft) < 0.8 * float(old.ttft)


def test_experts_stream_as_memory_gives_in_steps_of_many_and_hand_on_what_engines_say() -> None:
    there: dict[str, Any] = {"gpu": "gb10", "quant": "mxfp4", "engine": "llama.cpp", "prompt": 512}
    runs = [({}, 1), ({"engine.moe_steps": 0}, 1), ({}, 16), ({"engine.moe_steps": 0}, 16)]
    one, alike, many, slow = (infer("gpt-oss-20b", batch=b, sets=s, **there) for s, b in runs)
    assert float(one.tpot) == float(alike.tpot) and float(many.tpot) < 0.8 * float(slow.tpot)
    there |= {"gpu": "rtx-5090", "engine": "llama.cpp-vulkan"}
    said, half = (infer("gpt-oss-20b", sets=s, **there) for s in ({}, {"engine.expert_values": 2}))
    assert float(half.ttft) < 0.98 * float(said.ttft)


@pytest.mark.parametrize(
    ("model", "gpu", "quant", "budget", "measured"),
    [
        ("gpt-oss-120b", "gb10", "mxfp4", 2048, 1825.0),  # llama.cpp, benches/dgx-spark.md
        ("gemma-4-26b-a4b", "rtx-3090", "q4_k_m", 1024, 4388.0),  # pull request 22298
        ("gemma-4-26b-a4b", "rtx-3090", "q4_k_m", 2048, 5172.0),
    ],
)
def test_experts_take_tiles_as_wide_as_the_pass(model: str, gpu: str, quant: str, budget: int, measured: float) -> None:
    sets: dict[str, Any] = {"engine.token_budget": budget}
    there: dict[str, Any] = {"gpu": gpu, "quant": quant, "engine": "llama.cpp-2025-12", "prompt": 2048}
    assert 2048 / float(infer(model, sets=sets, **there).ttft) == pytest.approx(measured, rel=0.15)
    few = float(infer(model, sets=sets | {"engine.token_budget": 128}, **there).ttft)
    assert few > 1.5 * float(infer(model, sets=sets, **there).ttft)


def test_a_tile_takes_its_time_by_hand() -> None:
    """256 tokens by 2 of 4 experts: 128 rows an expert, which scatter, in tiles of 128."""
    s = infer("qwen3-30b-a3b", gpu="rtx-3090", engine="llama.cpp", quant="q4_0", batch=1).scenario
    s = replace(s, engine=s.engine.but(tile_rate=512.0, row_rate=256.0, skew=0.0))
    op = Op("moe", "moe", "moe", 1, 0.0, 0.0, (256.0, 2048.0, 768.0, 4.0, 4.0, 2.0, 1.0))
    device, tiles = s.cluster.device, 4 * float(pieces(128.0, 128.0, 1.0))
    clocks = 2 * 3 * 2048 * 768 * (tiles * 128 / 512 + 512 / 256)
    assert float(tiled_time(op, s)) == pytest.approx(clocks / device.sms / device.clock, rel=1e-3)


@pytest.mark.parametrize(("rows", "measured"), [(1, 23.75), (2, 37.02), (3, 58.21), (8, 71.21)])
def test_several_rows_take_what_vector_units_do_and_one_its_weights(rows: int, measured: float) -> None:
    """7B in 8 bits on M1 Pro's 16 cores, passes of so many rows in tokens/s (llama.cpp pull request 10581)."""
    e = infer(
        "llama-2-7b", gpu="apple-m1-pro-16core-32gb", engine="llama.cpp-b4240", quant="q8_0", prompt=rows, batch=1
    )
    assert rows / float(e.ttft) == pytest.approx(measured, rel=0.2)


def test_vector_kernels_multiply_at_what_an_sm_does() -> None:
    """By hand: 1 TFLOP at 45 FLOPs a clock of each core, whatever the weights take."""
    s = infer("llama-2-7b", gpu="apple-m1-pro-16core-32gb", engine="llama.cpp-metal", batch=1).scenario
    device = s.cluster.device
    time = vector_time(0.0, 1e12, GemmConstants(), rates(s), s)
    assert float(time) == pytest.approx(1e12 / (45 * device.sms * device.clock), rel=1e-3)


@pytest.mark.parametrize(("quant", "measured"), [("q4_k_m", 32.0), ("q8_0", 25.9)])
def test_a_long_cache_is_read_a_head_and_not_in_tiles_of_64(quant: str, measured: float) -> None:
    """8B behind 32,134 tokens on M3 Max (llama.cpp b3900 on Metal); by tiles of 64 query heads 0.6 of it."""
    there: dict[str, Any] = {"gpu": "apple-m3-max-40core-64gb", "engine": "llama.cpp-metal", "quant": quant}
    asked = there | {"batch": 1, "prompt": 32134, "output": 724}
    whole, tiles = (infer("llama-3.1-8b", **asked, sets=sets) for sets in ({}, {"engine.head_rows": 64}))
    assert 1 / float(whole.tpot) == pytest.approx(measured, rel=0.15)
    assert float(tiles.tpot) > 1.3 * float(whole.tpot)


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "quant", "prompt", "measured"),
    [
        ("qwen3-4b", "apple-m4-max-40core-64gb", "mlx", "bf16", 2048, 52.47),  # mlx-lm, BENCHMARKS.md
        (
            "minimax-m2",
            "strix-halo-128gb",
            "llama.cpp-rocm-b8070",
            "q3_k_m",
            1,
            29.76,
        ),  # visorcraft/strix-halo-llm-perf
    ],
)
def test_gaps_and_factors_go_with_tiles_of_eight_heads(
    model: str, gpu: str, engine: str, quant: str, prompt: int, measured: float
) -> None:
    there: dict[str, Any] = {"gpu": gpu, "engine": engine, "quant": quant, "batch": 1, "prompt": prompt, "output": 128}
    e, tiles = (infer(model, **there, sets=sets) for sets in ({}, {"engine.head_rows": 64}))
    assert e.scenario.engine.kernels.head_rows == 8
    assert 1 / float(e.tpot) == pytest.approx(measured, rel=0.08)
    assert float(tiles.tpot) > float(e.tpot)


@pytest.mark.parametrize(("cached", "measured"), [(64, 161.3), (2048, 114.4)])
def test_a_block_a_head_reads_a_cache_slower_the_longer_it_is(cached: int, measured: float) -> None:
    """AutoAWQ's fused modules on RTX 4090 (its README): MPT-7B after 64 tokens, Mistral-7B after 2,048."""
    model = "mpt-7b" if cached == 64 else "mistral-7b"
    e = infer(model, gpu="rtx-4090", engine="autoawq", quant="awq", batch=1, prompt=cached, output=cached)
    assert 1 / float(e.tpot) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("tokens", "measured"), [(16, 889.5), (32, 1245.7), (64, 1564.6), (512, 3488.1)])
def test_experts_of_few_prompt_tokens_stream_nearly_as_memory_gives(tokens: int, measured: float) -> None:
    """Gemma 4 26B on RTX 3090 by so many tokens a pass (llama.cpp b8950); by the factor of many 0.6 to 0.8 of it."""
    there: dict[str, Any] = {"gpu": "rtx-3090", "quant": "q4_k_m", "engine": "llama.cpp-2026-05", "prompt": 2048}
    near, far = (
        2048 / float(infer("gemma-4-26b-a4b", sets={"engine.token_budget": tokens} | s, **there).ttft)
        for s in ({}, {"engine.moe_steps": 0})
    )
    assert near == pytest.approx(measured, rel=0.2)
    assert far < near if tokens < 128 else far <= near


def test_vulkans_narrow_products_on_a_card_of_slow_dense_ones_leave_16_bits_alone() -> None:
    """27B in 4 bits on Strix Halo, 274 prompt tokens a second (b10150)."""
    there: dict[str, Any] = {"gpu": "strix-halo-128gb", "engine": "llama.cpp-vulkan", "prompt": 512}
    none = {"engine.sm_integers": 0}
    narrow, free = (float(infer("qwen3.5-27b", quant="q4_k_m", sets=s, **there).ttft) for s in ({}, none))
    assert narrow > 1.2 * free and 512 / narrow == pytest.approx(274, rel=0.15)
    wide = [float(infer("llama-3.1-8b", quant="fp16", sets=s, **there).ttft) for s in ({}, none)]
    assert wide[0] == wide[1]


@pytest.mark.parametrize(
    ("gpu", "engine", "rows", "measured"),
    [
        ("rtx-3090", "llama.cpp-b7250", 4, 303.5),  # pull request 17505: 8B in q4_0 behind 32,768 tokens
        ("mi50-32gb", "llama.cpp-rocm-b7250", 4, 97.1), ("mi50-32gb", "llama.cpp-rocm-b7250", 8, 167.6),  # the same
    ],
)  # fmt: skip
def test_several_rows_take_what_vector_units_multiply(gpu: str, engine: str, rows: int, measured: float) -> None:
    there: dict[str, Any] = {"gpu": gpu, "engine": engine, "quant": "q4_0", "cached": 32768, "output": 1}
    known, free = (
        512 / float(infer("llama-3.1-8b", prompt=33280, sets={"engine.token_budget": rows} | s, **there).ttft)
        for s in ({}, {"engine.sm_vectors": 0})
    )
    assert known < free and known == pytest.approx(measured, rel=0.16)


def test_local_engines_know_that_routers_are_unequal() -> None:
    """32 random tokens of gpt-oss-120b on GB10 (b6918, 102 ms a step) cannot have read the 82 of 128 experts that they
    would reach if all were alike: at 234 GB/s these alone take 160 ms."""
    there: dict[str, Any] = {"gpu": "gb10", "engine": "llama.cpp-b6918", "quant": "mxfp4", "prompt": 512, "output": 32}
    tpot = [float(infer("gpt-oss-120b", batch=32, sets=s, **there).tpot) for s in ({}, {"engine.skew": 0})]
    assert tpot[1] > 0.16 and 0.102 < tpot[0] < 0.85 * tpot[1]


def test_ollama_spread_experts_of_mxfp4_one_by_one() -> None:
    """gpt-oss-20b on RTX 4060 Ti in 0.11.4: 162 tokens a second of a prompt of 114, 38 of the answer (Ollama's issue
    11758); other types had kernels for all experts then, too."""
    known: dict[str, Any] = {"gpu": "rtx-4060-ti-16gb", "batch": 1, "prompt": 114, "output": 134}
    then, later = (infer("gpt-oss-20b", engine=f"ollama-{r}", quant="mxfp4", **known) for r in ("0.11.4", "0.11.5"))
    assert 114 / float(then.ttft) == pytest.approx(162, rel=0.45) and 1 / float(then.tpot) == pytest.approx(38, rel=0.1)
    assert float(then.ttft) > 4 * float(later.ttft) and float(then.tpot) > 1.6 * float(later.tpot)
    known["quant"] = "q4_k_m"
    same = [float(infer("qwen3-30b-a3b", engine=f"ollama-{r}", **known).ttft) for r in ("0.11.4", "0.11.5")]
    assert same[0] == same[1]


def test_two_rows_took_a_tile_on_metal() -> None:
    """3B in q4_0 on M2 Ultra, b4080: 65 tokens a second of two rows, 251 of eight (pull request 10238)."""
    known: dict[str, Any] = {"gpu": "apple-m2-ultra-76core-192gb", "quant": "q4_0", "output": 1, "batch": 1}
    engine = {"engine": "llama.cpp-metal-b4080", "sets": {"engine.flash": False, "engine.decode_flash": False}}
    two, eight = (float(infer("llama-3.2-3b", prompt=p, **known, **engine).ttft) for p in (2, 8))
    assert two == pytest.approx(eight, rel=0.02) and 2 / two == pytest.approx(65, rel=0.15)


def test_narrow_k_quants_of_2024_wait_for_their_bits() -> None:
    """7B on RTX 3090, b2080: q2_k 103 tokens a second, fewer than q4_0's 131 (llama.cpp pull request 5351)."""
    two, four = (tokens("llama-2-7b", "rtx-3090", "llama.cpp-b2080", 1, 128, quant=q) for q in ("q2_k", "q4_0"))
    assert two == pytest.approx(103, rel=0.15) and two < 0.85 * four


def test_pytorch_loops_over_experts_but_for_hopper() -> None:
    """Qwen1.5-MoE in transformers 5 on A100: 64 ms of 16 tokens, 76 of 128 (pull request 42697's benchmark)."""
    known: dict[str, Any] = {"engine": "hf-eager-5.0", "quant": "bf16", "batch": 1, "output": 16}
    for gpu, more in (("a100", True), ("h100", False)):
        few, many = (float(infer("qwen1.5-moe-a2.7b", gpu=gpu, prompt=p, **known).ttft) for p in (16, 128))
        assert (many > 1.1 * few) == more


def test_mlx_before_its_fused_kernel_took_masks() -> None:
    """Mistral 7B on M2 Ultra, a prompt of 33,898 tokens: 676 tokens a second, then 869 (mlx-lm pull request 40)."""
    known: dict[str, Any] = {"gpu": "apple-m2-ultra-76core-192gb", "quant": "int4", "batch": 1, "prompt": 33898}
    before, after = (33898 / float(infer("mistral-7b", engine=f"mlx-{r}", **known).ttft) for r in ("0.21", "0.22"))
    assert before == pytest.approx(676, rel=0.2) and after > 1.2 * before


def test_voltas_kernel_over_latents_is_slow() -> None:
    """DeepSeek-V2-Lite in passes of 512 tokens, mostly attention: V100 takes more than twice the time of
    a kernel as good as later cards' (llama.cpp pull request 17505); RTX 3090 has none slower."""
    known: dict[str, Any] = {"quant": "q4_0", "batch": 1, "prompt": 33280, "engine": "llama.cpp-b7250"}
    for gpu, least, most in (("v100-pcie-32gb", 1.8, 4.0), ("rtx-3090", 1.0, 1.0)):
        found, plain = (
            float(infer("deepseek-v2-lite", gpu=gpu, sets=x, **known).ttft) for x in ({}, {"engine.wide_latents": 1.0})
        )
        assert least <= found / plain <= most
