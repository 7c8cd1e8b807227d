"""Facts that a prediction must reproduce: cache sizes, fits, communication, launch-bound decoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm import infer, load_model
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import memory_use, running_limit
from rooflm.estimate.memory import kv_bytes_per_sequence
from rooflm.estimate.step import prompt_factor
from rooflm.graph.feedforward import gathers
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import PRESETS
from rooflm.scenario.mapping import Mapping

BF16 = PRESETS["bf16"]


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    # KiB a token: 2 x layers x KV heads x head size x 2 B; DeepSeek-V3: (512 + 64) x 61 x 2 B
    [("llama-2-7b", 512 * 1024), ("llama-3.1-8b", 128 * 1024), ("deepseek-v3", 70_272)],
)
def test_kv_cache_a_token(model: str, bytes_a_token: int) -> None:
    one, two = (kv_bytes_per_sequence(load_model(model), Mapping(), BF16, tokens) for tokens in (1, 2))
    assert float(two - one) == bytes_a_token


def test_a_window_stops_growing() -> None:
    model = load_model("mistral-7b-v0.1")
    sizes = [float(kv_bytes_per_sequence(model, Mapping(), BF16, n)) for n in (2048, 4096, 8192, 32768)]
    assert sizes[0] * 2 == sizes[1]
    assert sizes[1] == sizes[2] == sizes[3]


def test_some_engines_keep_more_of_a_sequence_than_its_window() -> None:
    """TensorRT-LLM keeps all of it in every layer, SGLang 0.8 in layers with a window (swa_full_tokens_ratio), vLLM the
    window: gpt-oss has as many of either, whose window of 128 is little of 33,000 tokens."""
    ask = {"gpu": "h200", "gpus": 2, "batch": 1, "prompt": 32768, "output": 1024, "quant": "mxfp4"}
    whole, most, least = (
        rooflm.infer("gpt-oss-120b", engine=engine, **ask).memory.parts["kv_cache"]
        for engine in ("trtllm", "sglang", "vllm")
    )
    assert whole / least == pytest.approx(2.0, rel=0.01) and most / least == pytest.approx(1.8, rel=0.01)


def test_a_ring_of_a_window_and_a_pass_is_kept_and_read_whole() -> None:
    """llama.cpp, llama-kv-cache-iswa.cpp: n_swa + n_ubatch cells. Gemma 3 4B has 29 layers with a window of 1,024 and 5
    without one, of 4 heads of 256 in keys and values at 16 bits: 4,096 bytes a token and layer."""
    ask = {"gpu": "gb10", "engine": "llama.cpp", "batch": 1, "prompt": 8192, "output": 2, "quant": "q4_0"}
    ring, window = (
        infer("gemma-3-4b", **ask, sets={"engine.token_budget": 2048, "engine.window_beside": beside})
        for beside in (1, 0)
    )
    more = ring.memory.parts["kv_cache"] - window.memory.parts["kv_cache"]
    assert more == pytest.approx(29 * 2048 * 4096, rel=0.01)
    assert float(ring.tpot - window.tpot) > more / 273e9  # at the memory's rate at most
    short = [infer("gemma-3-4b", **ask | {"prompt": 512}, sets={"engine.window_beside": b}).tpot for b in (1, 0)]
    assert short[0] == short[1]


@pytest.mark.parametrize("engine", ["llama.cpp-b2700", "llama.cpp-metal-b4000", "llama.cpp-rocm-2024"])
def test_llama_cpp_kept_and_read_all_until_it_had_rings(engine: str) -> None:
    """llama.cpp before pull request 13194 (May 2025): layers with a window as those without, a mask apart."""
    gpu = {"metal": "apple-m2-ultra-76core-192gb", "rocm": "mi300x"}.get(engine.split("-")[1], "h100")
    old, plain = (
        infer("gemma-2-2b", gpu=gpu, engine=engine, batch=1, prompt=8000, output=2, quant="q4_0", sets=sets)
        for sets in ({}, {"model.blocks.0.mixer.window": np.inf})
    )
    assert old.memory.parts["kv_cache"] == plain.memory.parts["kv_cache"]
    assert float(old.tpot) == pytest.approx(float(plain.tpot), rel=1e-6)


def test_a_windowed_decode_step_stops_growing() -> None:
    times = infer("mistral-7b-v0.1", gpu="a100", prompt=[4096, 8192, 16384], output=2, efficiency="ideal").tpot_s.values
    assert times[0] == times[1] == times[2]


def test_llama_7b_does_not_fit_a_3090_at_batch_128() -> None:
    # 0.5 MiB x 524 x 128 = 32.8 GiB of cache and 12.6 GiB of weights
    e = infer("llama-7b", gpu="rtx-3090", batch=128, prompt=12, output=512, engine="hf-eager-4.28")
    assert not e.fits
    assert e.reason == "out of memory"
    assert float(e.max_batch) < 128


def test_13b_needs_three_3060() -> None:
    assert not infer("llama-2-13b", gpu="rtx-3060-12gb").fits
    assert infer("llama-2-13b", gpu="rtx-3060-12gb", pp=3).fits


def test_the_largest_batch_is_the_largest() -> None:
    for extra in ({}, {"tp": 2}, {"engine": "hf-eager-4.28"}, {"prompt": 40000, "output": 10}, {"dp": 2}):
        arguments = {"prompt": 512, "output": 128, "gpu": "h100"} | extra
        request = build_inference(model="llama-3.1-8b", batch=arguments.get("dp", 1), **arguments)
        most = float(infer("llama-3.1-8b", batch=int(arguments.get("dp", 1)), **arguments).max_batch)
        s = request.scenario
        assert most > 0
        assert memory_use(s, batch=np.asarray(most)).margin >= 0
        if most < s.engine.room.max_sequences * s.mapping.dp:
            more = memory_use(s, batch=np.asarray(most + s.mapping.dp))
            assert more.margin < 0


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("batch", [1, 16])
def test_all_reduce_volume_of_a_decode_step(tp: int, batch: int) -> None:
    # two all-reduces a layer of batch x hidden 16-bit values, each 2 (t - 1) / t of it sent
    e = infer("llama-2-7b", gpu="a100", tp=tp, batch=batch)
    assert e.comm_detail["decode"]["tp_all_reduce"] == pytest.approx(
        32 * 2 * 2 * (tp - 1) / tp * batch * 4096 * 2, rel=1e-12
    )


def test_pipeline_sends_one_hidden_state_a_step() -> None:
    e = infer("llama-2-7b", gpu="a100", pp=4, batch=16, engine="hf-eager-4.28")
    assert e.comm_detail["decode"]["pp_send"] == 16 * 4096 * 2


def test_eager_decoding_is_bound_by_the_host() -> None:
    """About 14 ms a token on A100 and H100 alike (Shortened LLaMA); a quarter fewer layers helps, narrower does not."""
    for gpu in ("a100-sxm-80gb", "h100-sxm-80gb"):
        base, shallow, narrow = (
            float(infer("llama-7b", gpu=gpu, engine="hf-eager-4.28", prompt=12, output=128, sets=sets).tpot)
            for sets in ({}, {"model.depth_scale": 0.75}, {"model.width_scale": 0.75})
        )
        assert base == pytest.approx(14e-3, rel=0.12)
        assert shallow / base == pytest.approx(0.75, abs=0.03)
        assert narrow / base > 0.95


def test_at_a_large_batch_both_prunings_help() -> None:
    base, shallow, narrow = (
        float(infer("llama-7b", gpu="a100", engine="hf-eager-4.28", prompt=12, output=128, batch=256, sets=sets).tpot)
        for sets in ({}, {"model.depth_scale": 0.75}, {"model.width_scale": 0.75})
    )
    assert shallow < 0.85 * base
    assert narrow < 0.92 * base


def test_moe_reads_the_experts_that_tokens_touch() -> None:
    few, many = infer("mixtral-8x7b", gpu="h200", batch=[1, 64], efficiency="ideal").tpot_s.values
    dense = 46.7e9 * 2 / 4.8e12
    assert few < 0.35 * dense  # 2 of 8 experts
    assert many > 0.95 * dense  # nearly all of them


def test_cached_prompt_tokens_are_not_computed_again() -> None:
    cold, warm = infer("llama-3.1-8b", gpu="h100", prompt=4096, cached=[0, 3072], efficiency="ideal").ttft_s.values
    assert 0.2 < warm / cold < 0.35


def test_all_logits_cost_more_than_the_last() -> None:
    last, every = (
        float(infer("llama-3.1-8b", gpu="h100", prompt=2048, logits=k, efficiency="ideal").ttft)
        for k in ("last", "all")
    )
    one_row = 4096 * 128256 * 2 / 3.35e12  # the last token's product is bound by reading the head
    product = 2 * 2048 * 4096 * 128256 / 989e12 - one_row
    log_softmax = 12 * 2047 * 128256 / 3.35e12  # fp32 logits read twice and written once
    assert every - last == pytest.approx(product + log_softmax, rel=0.05)


def test_a_width_that_the_device_lacks_is_only_stored_narrow() -> None:
    narrow = infer("llama-3.1-8b", gpu="a100", quant="fp8", prompt=2048, efficiency="ideal")
    wide = infer("llama-3.1-8b", gpu="a100", quant="bf16", prompt=2048, efficiency="ideal")
    assert float(narrow.ttft) > 0.9 * float(wide.ttft)
    assert float(narrow.tpot) < 0.65 * float(wide.tpot)


def test_the_ideal_is_a_lower_bound() -> None:
    for model in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-32b"):
        for gpu in ("a100", "h200", "b200", "rtx-4090", "mi300x"):
            best, real = infer(
                model, gpu=gpu, batch=4, efficiency=["ideal", "calibrated"], engine="vllm"
            ).latency_s.values
            assert best < real


def test_overheads_by_path() -> None:
    e = infer("llama-3.1-8b", gpu="h100", sets={"engine.step": 5e-3, "engine.overlap": False})
    base = infer("llama-3.1-8b", gpu="h100", sets={"engine.step": 0.0, "engine.overlap": False})
    assert float(e.tpot - base.tpot) == pytest.approx(5e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "release", "sets", "measured"),
    [  # SGLang: its cookbook's LFM2.5 (on B200 its attention turned the prefix cache off); pull request 38131
        ("h100", "0.5.13", {}, 2.08e-3),
        ("h200", "0.5.13", {}, 2.20e-3),
        ("b200", "0.5.13", {"engine.server.prefix_caching": False}, 1.19e-3),
        ("rtx-5090", "0.5.17", {}, 1 / 364.3),
        ("rtx-5090", "0.5.17", {"engine.overlap": True}, 1 / 498.5),
    ],
)
def test_a_host_waits_for_states_that_a_prefix_cache_keeps(
    gpu: str, release: str, sets: dict[str, Any], measured: float
) -> None:
    e = infer("lfm2-1.2b", gpu=gpu, engine=f"sglang-{release}", prompt=512, output=512, sets=sets)
    assert float(e.tpot) == pytest.approx(measured, rel=0.12)


def test_who_waits_is_a_matter_of_release_kind_and_guesses() -> None:
    def waits(model: str, release: str, **asked: Any) -> bool:
        ahead = infer(model, gpu="b200", engine=f"sglang-{release}", sets={"engine.overlap": True}, **asked)
        return float(infer(model, gpu="b200", engine=f"sglang-{release}", **asked).tpot) > float(ahead.tpot)

    releases = ("0.5.4", "0.5.5", "0.5.8", "0.5.9", "0.5.13", "0.5.14")
    assert [waits("qwen3-next-80b-a3b", r) for r in releases] == [False, True, True, True, True, False]
    assert [waits("nemotron-3-nano-30b-a3b", r) for r in releases] == [False, False, True, True, True, False]
    assert [waits("llama-3.1-8b", r, guesses=3) for r in releases] == [True, True, True, True, False, False]
    assert not waits("llama-3.1-8b", "0.5.9") and not waits("kimi-linear-48b-a3b", "0.5.9")
    asked = {"gpu": "h100", "engine": "sglang-0.5.10"}
    one = [float(infer("llama-3.1-8b", guesses=n, **asked).tpot) for n in (0, 3)]
    assert infer("llama-3.1-8b", guesses=[0, 3], **asked).tpot_s.values.tolist() == pytest.approx(one)


def test_weights_split_over_everything() -> None:
    one = float(infer("deepseek-v3", gpu="b200").memory.parts["weights"])
    split = float(infer("deepseek-v3", gpu="b200", tp=8, batch=8).memory.parts["weights"])
    spread = float(infer("deepseek-v3", gpu="b200", tp=1, dp=8, ep=8, batch=8).memory.parts["weights"])
    assert one / split == pytest.approx(8, rel=0.03)  # the latent projections are held by every rank
    assert split < spread < 0.2 * one  # attention data parallelism repeats the attention


def test_scenarios_are_frozen() -> None:
    s = build_inference(model="llama-2-7b", gpu="a100").scenario
    with pytest.raises(AttributeError):
        s.axes = 3  # type: ignore[misc]
    assert replace(s, axes=1).axes == 1


def test_a_narrow_token_table_is_split_like_a_wide_one():
    """opt-350m's table is half as wide as its layers: what is missing of it is missing on every rank alike."""
    whole, shard = (rooflm.infer("opt-350m", gpu="h100", tp=tp, quant="int4").memory.parts["weights"] for tp in (1, 8))
    assert float(whole) / 8 <= float(shard) < 1.2 * float(whole) / 8


@pytest.mark.parametrize("model", ["llama-7b", "gemma-2-2b", "mixtral-8x7b", "jamba-1.5-mini"])
@pytest.mark.parametrize("more", [{}, {"dp": 2, "tp": 2}, {"prompt": 1, "output": 1}, {"cp": 2, "prompt": 4096}])
def test_the_largest_batch_fits_and_one_more_does_not(model, more):
    point = {"model": model, "gpu": "a100", "tp": 2, "batch": 2, **more}
    most = int(rooflm.infer(**point).max_batch)
    fits, over = (rooflm.infer(**point | {"batch": b}) for b in (most, most + 1))
    assert fits.fits and not over.fits and over.reason == "out of memory"


def test_the_running_limit_is_no_limit_of_memory():
    e = rooflm.infer("smollm2-135m", gpu="h100")
    assert e.max_batch > running_limit(e.scenario) == 1024
    assert "vllm runs 1024 at a time" in " ".join(str(e).split())


def test_the_ideal_engine_is_never_slower_than_a_real_one():
    for model in ("llama-7b", "mixtral-8x7b", "deepseek-v3"):
        for gpu in ("a100", "h100", "b200"):
            for batch in (1, 64):
                ideal, *real = (
                    rooflm.infer(model, gpu=gpu, batch=batch, tp=8, engine=engine)
                    for engine in ("ideal", "vllm", "trtllm", "sglang")
                )
                assert "efficiency ideal" in ideal.assumed
                assert all(ideal.ttft < e.ttft and ideal.tpot < e.tpot for e in real)
    with pytest.raises(RooflmError, match="engine ideal has no measured kernels"):
        rooflm.infer("llama-7b", gpu="a100", engine="ideal", efficiency="calibrated")


def test_what_a_checkpoint_leaves_wide_takes_its_bytes_from_the_kv_cache() -> None:
    """Attention at 16 bits beside a feed-forward in nvfp4: 80 layers of 151 M weights at 2 B instead of 4.5 bits."""
    whole, partly = (
        infer("llama-3.1-70b", gpu="b200", engine="vllm", quant=quant, prompt=4096, output=512)
        for quant in ("nvfp4", "nvfp4-ffn")
    )
    more = 80 * (2 * 8192**2 + 2 * 8192 * 1024) * (2 - 4.5 / 8)
    assert float(partly.memory.parts["weights"] - whole.memory.parts["weights"]) == pytest.approx(more)
    room = more / kv_bytes_per_sequence(whole.scenario.model, Mapping(), PRESETS["nvfp4"], 4608)
    assert float(whole.max_batch - partly.max_batch) == pytest.approx(room, abs=1)


def test_a_few_ranks_gather_tokens_and_more_send_them_to_their_experts() -> None:
    """256 experts over eight ranks: every token to all; over 32, to the ranks of its eight experts, 7.2 on average.
    Bytes of a step by hand: 64 tokens a rank of 7,168 values, 1 byte there (SGLang gathers 2) and 2 back, in 58
    layers."""
    sent = {
        ep: infer(
            "deepseek-v3", gpu="gb200", gpus=ep, dp=ep, ep=ep, batch=64 * ep, prompt=16, output=16, engine="sglang"
        ).comm_bytes["decode"]
        for ep in (8, 32)
    }
    own, reached = (1 + 2) * 58 * 64 * 7168.0, 32 * (1 - (1 - 1 / 32) ** 8)
    assert sent[8] == pytest.approx(own * 4 / 3 * 7, rel=0.001)
    assert sent[32] == pytest.approx(own * reached * 31 / 32, rel=0.001)
    assert [gathers("gather", 8), gathers("gather", 32), gathers("all_to_all", 8)] == [True, False, False]


def test_no_rows_stray_where_tokens_go_to_their_experts_alone() -> None:
    """Of 32 ranks' tokens a rank has a 4.5th: its kernels neither pass over the others nor mask their rows."""
    told = {"engine.skew": 0, "engine.graphed_sequences": 1024}
    wide, alike = (
        infer(
            "deepseek-v3", gpu="gb200", gpus=32, dp=32, ep=32, batch=24576, prompt=2000, output=16, engine="sglang",
            quant="nvfp4-ffn-kv8", sets=told | more,
        )
        for more in ({}, {"engine.exchange": "all_to_all"})
    )  # fmt: skip
    assert wide.tpot == pytest.approx(alike.tpot)  # 32 ranks never gather
    assert 768 / wide.tpot == pytest.approx(13386, rel=0.1)  # LMSYS, 2025-09-25: tokens a second and GPU, 48 ranks
    assert wide.decode_parts["moe"] < 0.3 * wide.tpot


def test_tables_of_blocks_cost_the_host_by_what_they_list() -> None:
    """64 sequences of 3,200 tokens, 200 blocks each, at 1 us a block: 12.8 ms a step; a prompt's pass makes no such
    lists."""
    given = {"gpu": "h100", "engine": "vllm-2024", "batch": 64, "prompt": 3199, "output": 2}
    free, made = (infer("llama-3.1-8b", **given, sets={"engine.listed": t}) for t in (0.0, 1e-6))
    assert float(made.tpot - free.tpot) == pytest.approx(64 * 200e-6, rel=0.01)
    assert float(made.ttft) == float(free.ttft)
    short = infer("llama-3.1-8b", **given | {"prompt": [15, 3199]}, sets={"engine.listed": 1e-6})
    assert float(short.tpot_s[0]) < float(short.tpot_s[1]) == pytest.approx(float(made.tpot))


def test_sglang_joined_all_tokens_anew_until_0_5_3() -> None:
    """sgl-project/sglang pull request 10412 (2025-09): 74 sequences of 33,400 tokens, 7.5 ns each, are 18.5 ms of host
    time a step, beneath which no step goes before it; few sequences hide theirs behind the device."""
    given = {"gpu": "h200", "gpus": 4, "tp": 4, "quant": "mxfp4", "prompt": 32784, "output": 1200}
    last, now = (infer("gpt-oss-120b", **given, batch=74, engine=f"sglang-{release}") for release in ("0.5.2", "0.5.4"))
    assert float(last.tpot) > 74 * 33_384 * 7.5e-9 > float(now.tpot)
    last, now = (infer("gpt-oss-120b", **given, batch=4, engine=f"sglang-{release}") for release in ("0.5.2", "0.5.4"))
    assert float(last.tpot) == float(now.tpot)


def test_prompts_run_less_hot_on_cards_with_more_watts() -> None:
    """H20 multiplies a seventh of what H100 does at 400 W: Qwen's table of 129,042 tokens has no factor there; B200 has
    0.44 W a TFLOP/s for H100's 0.71."""
    e, h100 = load_engine("sglang"), load_device("h100")
    each = [float(prompt_factor(e, replace(h100, tdp=h100.tdp * share))) for share in (0.5, 1.0, 2.0, 8.0)]
    assert each[1] == pytest.approx(e.factors.prompt, rel=1e-3)
    assert each[1] > each[2] > each[3] > 1.0
    assert [each[0], each[2]] == pytest.approx([each[1] ** 2, each[1] ** 0.5], rel=1e-3)
    faster = load_engine("ollama").but(prompt=0.8)  # what is below 1 says how fast kernels are, not how hot
    assert float(prompt_factor(faster, load_device("h20"))) == 0.8
    older = [load_device(name) for name in ("t4", "p40", "mi50-32gb")]  # no units for bf16
    assert all(1.0 < float(prompt_factor(e, card)) <= e.factors.prompt for card in older)
    lone = [infer("qwen3-14b", gpu="h20", prompt=65536, engine="sglang", sets={"cluster.device.tdp": watts})
            for watts in (100.0, 400.0)]  # fmt: skip
    assert float(lone[1].ttft) < 0.9 * float(lone[0].ttft)
    assert float(lone[1].tpot) == pytest.approx(float(lone[0].tpot), rel=0.01)


def test_decoding_sequences_that_fill_tiles_run_as_hot_as_prompts() -> None:
    """What heat adds grows with the FLOPs of a step; what streams memory is as fast as before."""
    asked = {"model": "llama-3.1-70b", "gpu": "h100", "gpus": 4, "tp": 4, "prompt": 16, "output": 2, "engine": "trtllm"}
    hot, cold = (
        [float(infer(**asked, batch=b, sets={"engine.prompt": f}).tpot) for b in (1, 64, 1024)] for f in (1.2, 1)
    )
    more = [h / c for h, c in zip(hot, cold, strict=True)]
    assert 1.0 < more[0] < 1.005 < more[1] < more[2] and 1.08 < more[2] < 1.2
    assert infer(**asked, batch=1024, sets={"engine.prompt": 0.8}).tpot == pytest.approx(cold[2])  # no heat


@pytest.mark.parametrize(("engine", "quant", "width"), [
    ("trtllm", "fp8-block", 2.0), ("trtllm", "nvfp4", 0.5), ("vllm", "fp8-block", 1.0), ("sglang", "fp8-block", 4.0),
])  # fmt: skip
def test_what_ranks_of_attention_gather(engine, quant, width):
    """Bytes a value on the way to the experts; twice as many where SGLang sums prompts over ranks (an all-reduce)."""
    ask = {"model": "deepseek-v3", "gpu": "b200", "dp": 8, "ep": 8, "quant": quant, "prompt": 512, "output": 8}
    found = infer(**ask, batch=8, engine=engine)
    rows = 8 * 512 * 7168 * 58 * 7 / 8
    assert float(found.comm_detail["prefill"]["ep_dispatch"]) == pytest.approx(rows * width)


def test_workers_of_a_group_are_called_each_pass() -> None:
    """vLLM before CUDA graphs: a Ray worker a GPU where there are several, none on one: Mistral-7B on an RTX 4090
    answered at 55.3 tokens/s (shisa-ai, 0.2.3; 32 were said while a lone card waited for workers as well)."""
    ask = {"model": "mistral-7b", "gpu": "rtx-4090", "prompt": 512, "output": 512, "quant": "fp16"}
    alone, group, free = (
        infer(**ask, batch=1, engine="vllm-0.2.3", tp=tp, sets={"engine.remote": w})
        for tp, w in ((1, 0.02), (2, 0.02), (2, 0.0))
    )
    assert 512 / float(alone.latency) == pytest.approx(55.28, rel=0.1)
    assert float(group.tpot - free.tpot) == pytest.approx(0.02)


def test_a_model_without_a_cache_fits_beside_a_static_fraction_in_any_batch() -> None:
    """Its passes take of what the engine keeps for them: nothing grows with the batch (was a division by zero)."""
    e = infer("bge-m3", gpu="a100-sxm-80gb", engine="sglang-0.4.3", batch=7)
    assert e.fits
    assert e.max_batch > 1e9


def test_a_family_of_which_no_graph_holds_prompts_has_pythons_launches() -> None:
    """SGLang 0.5.10 captures prompts of DeepSeek-R1, not of V3.2, whose attention is sparse (its documentation,
    "Piecewise CUDA Graph", Compatibility); decoding is captured for both."""
    asked = {"gpus": 8, "prompt": 128, "output": 16, "engine": "sglang-0.5.10"}
    every_card, ranks = {"tp": 8, "gpu": "h200"}, {"gpu": "h200", "dp": 8, "ep": 8, "batch": 8}
    for model, how, more in (  # nor does it with ranks of attention, or where TensorRT-LLM's kernels run the experts
        ("deepseek-r1", every_card, 1.0), ("deepseek-v3.2", every_card, 1.2), ("deepseek-r1", ranks, 1.2),
        ("deepseek-r1", {"tp": 8, "gpu": "b300"}, 1.2),
        ("llama-3.1-8b", {"tp": 8, "gpu": "b300"}, 1.0),
    ):  # fmt: skip
        told, every = (infer(model, **asked, **how, sets=s) for s in ({}, {"engine.uncaptured": ""}))
        assert float(told.tpot) == pytest.approx(float(every.tpot))
        assert float(told.ttft) >= more * float(every.ttft) and (more > 1 or float(told.ttft) == float(every.ttft))


def test_scans_of_prompts_stand_between_pieces_of_a_graph() -> None:
    """SGLang's and vLLM's graphs of prompts break at linear attention (radix_linear_attention.py; splitting_ops), which
    Python launches kernel by kernel; FlashInfer's scan of gated deltas, which vLLM takes on Hopper, is one call."""
    asked = {"gpu": "h200", "prompt": 128, "output": 16}
    none = {"engine.eager_scans": 0.0, "engine.eager_experts": 0.0}
    for model, engine, late in (("qwen3.5-9b", "sglang", True), ("qwen3.5-9b", "vllm", False),
                                ("qwen3-8b", "sglang", False)):  # fmt: skip
        told, spared = (infer(model, **asked, engine=engine, sets=s) for s in ({}, none))
        assert (float(told.ttft) > 1.4 * float(spared.ttft)) == late
        assert late or float(told.ttft) == float(spared.ttft)


def test_prediction_layers_are_split_as_layers_are() -> None:
    """SGLang builds DeepSeek's prediction layer of the same parts (deepseek_nextn.py): ranks share out its experts."""
    asked = {
        "gpu": "h200", "gpus": 8, "engine": "sglang", "quant": "fp8-block", "prompt": 1024, "output": 16, "batch": 8,
    }  # fmt: skip
    for how, share in (({"tp": 8}, 1.02), ({"dp": 8, "ep": 8}, 1.15)):  # attention is whole on each rank of it
        some, none = (infer("glm-5.2", **asked, **how, **g).memory.parts["weights"] for g in ({"guesses": 1}, {}))
        assert float(some - none) / (load_model("glm-5.2").mtp_params / 8) == pytest.approx(share, rel=0.01)


def test_adapters_leave_graphs_and_gpt_oss_stays_in_them() -> None:
    """SGLang 0.5.10 holds gpt-oss beside TensorRT-LLM's experts, and nothing beside adapters (server_args.py)."""
    for gpu, model, more, late in (("b200", "gpt-oss-120b", {}, False), ("h200", "qwen3-8b", {"adapters": 2}, True)):
        asked = {"gpu": gpu, "prompt": 128, "output": 16, "engine": "sglang-0.5.10"} | more
        told, every = (infer(model, **asked, sets=s) for s in ({}, {"engine.uncaptured": ""}))
        assert (float(told.ttft) > 1.2 * float(every.ttft)) == late
        assert late or float(told.ttft) == float(every.ttft)
