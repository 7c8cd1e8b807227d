"""Which expert kernels an engine can take, and that it takes the fastest."""

from __future__ import annotations

from typing import Any

import pytest
from tables import load_constants

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.kernels.expert_kernels import choices, expert_families, filled
from rooflm.kernels.moe import MoEConstants, moe_time
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_device
from rooflm_fit.moe import balanced


def constants(dtype: str, gpu: str, engine: str, kernel: str) -> MoEConstants:
    row = next(
        r for r in load_constants("moe") if (r.dtype, r.engine, r.kernel) == (dtype, engine, kernel) and gpu in r.gpu
    )
    return MoEConstants(**row.constants)


def test_kernels_that_an_engine_makes_are_its_own_wherever_they_were_measured() -> None:
    found = [c.constants for c in choices("b200-sxm-180gb", "blackwell", "trtllm", "nvfp4")]
    assert constants("nvfp4", "b200-sxm-180gb", "sglang", "tp") in found  # TensorRT-LLM's, through FlashInfer
    assert constants("nvfp4", "b200-sxm-180gb", "trtllm", "tp") in found
    assert constants("nvfp4", "b200-sxm-180gb", "trtllm", "plain") not in found


def test_another_engines_own_kernels_are_not_taken_where_the_type_was_measured() -> None:
    found = [c.constants for c in choices("h200-sxm-141gb", "hopper", "vllm", "fp8_block")]
    assert constants("fp8_block", "h200-sxm-141gb", "trtllm", "tp") not in found


def test_whole_and_spread_experts_have_a_library_each() -> None:
    """vLLM from 0.17 on: "On Hopper for Block Fp8, prefer Triton for TP and FI CUTLASS for EP" (oracle/fp8.py)."""
    spread, whole = (constants("fp8_block", "h200-sxm-141gb", "vllm", kernel) for kernel in ("", "tp"))
    asked = ((False, "", whole), (True, "", spread), (False, "-triton", spread), (True, "triton", whole))
    for ep, family, found in asked:
        chosen = choices("h200-sxm-141gb", "hopper", "vllm", "fp8_block", ep, family=family)
        assert [c.constants for c in chosen] == [found]
    at = {"gpu": "h200", "tp": 4, "batch": 16, "prompt": 1024, "output": 32, "quant": "fp8-block"}
    new, old = (float(rooflm.infer("minimax-m2", engine=e, **at).tpot) for e in ("vllm", "vllm-0.14"))
    assert 0.7 < new / old < 0.9


@pytest.mark.parametrize(
    ("tokens", "experts", "width", "hidden", "top_k", "measured"),
    [(64, 16, 2048, 5120, 1, 168), (8192, 16, 2048, 5120, 1, 476), (64, 8, 7168, 4096, 2, 318),
     (1024, 8, 7168, 4096, 2, 839), (8192, 8, 7168, 4096, 2, 7110), (64, 128, 1536, 6144, 4, 1186)],
)  # fmt: skip
def test_tritons_experts_on_b200_take_what_was_measured_with_and_without_a_file_of_tiles(
    tokens: int, experts: int, width: int, hidden: int, top_k: int, measured: float
) -> None:
    """us in SGLang 0.5.14 (AIConfigurator's tables, all experts alike), to 15 %: one set for both was up to 4 times
    too slow with a file."""
    card = load_device("b200-sxm-180gb")
    rates = Card(card.peak["bf16"], card.dram.bandwidth, card.sms)
    kernels = choices(card.name, "blackwell", "sglang", "bf16", family="triton")
    at = f"{experts}x{width}"
    assert [c.tiles is not None for c in kernels].count(True) == 1
    took = [
        moe_time(tokens, hidden, width, balanced(tokens, top_k, experts), top_k=top_k, experts=experts, card=rates,
                 c=c.constants.on(card.l2.bandwidth / card.dram.bandwidth))
        for c in kernels if c.tiles is None or at in c.tiles.split()
    ]  # fmt: skip
    assert 1e6 * min(float(t) for t in took) == pytest.approx(measured, rel=0.15)


def test_files_of_tiles_are_a_cards_and_an_engines_own() -> None:
    """No other card has them, spread experts and other engines do not look there (vLLM has files of its own)."""
    asked: Any = ("blackwell", "sglang", "bf16")
    spread = choices("b200-sxm-180gb", *asked, True, family="triton")
    assert all(c.tiles is None for c in spread)
    own, lent = (
        {c.tiles for c in choices("b200-sxm-180gb", "blackwell", engine, "bf16", family="triton")} - {None}
        for engine in ("sglang", "vllm")
    )
    assert own and lent and own != lent
    scout: Any = {"tp": 4, "engine": "sglang", "prompt": 4096, "batch": 8, "output": 8}
    tuned, untuned = (float(rooflm.infer("llama-4-scout", gpu=gpu, **scout).ttft) for gpu in ("b200", "b300"))
    assert untuned > 1.3 * tuned


def test_a_release_without_the_only_library_measured_keeps_it() -> None:
    """Whatever of it runs then was not measured either."""
    assert choices("a100", "ampere", "vllm", "bf16", family="-triton") == choices("a100", "ampere", "vllm", "bf16")


def test_a_type_that_nobody_measured_in_an_engine_runs_on_its_families_of_another_table() -> None:
    own = choices("b200-sxm-180gb", "blackwell", "vllm", "mxfp4_mxfp8")
    assert {"mxfp4_mxfp8", "mxfp4"} == {c.dtype for c in own}  # and with 16-bit activations, which is as legal


def test_expert_parallel_ranks_take_the_fit_of_all_rows() -> None:
    alone = choices("h200-sxm-141gb", "hopper", "sglang", "fp8_block")
    spread = choices("h200-sxm-141gb", "hopper", "sglang", "fp8_block", True)
    assert alone[0].constants != spread[0].constants


def test_a_card_without_measured_kernels_takes_its_generations() -> None:
    assert choices("h20", "hopper", "vllm", "bf16")[0].dtype == "bf16"


@pytest.mark.parametrize("engine", ["trtllm", "sglang", "vllm"])
def test_four_bit_experts_are_faster_on_the_next_generation(engine: str) -> None:
    def one(gpu: str) -> tuple[float, float]:
        r = rooflm.infer("gpt-oss-120b", gpu=gpu, engine=engine, batch=64, prompt=1024, output=1024)
        return float(r.tpot), float(r.ttft)

    old, new = one("h200"), one("b200")
    assert new[0] < 0.7 * old[0]  # 4.8 to 8 TB/s: 0.6 at the roof
    assert new[1] < 0.6 * old[1]


def test_a_server_runs_its_experts_on_the_library_that_it_was_told() -> None:
    """CUTLASS' 4-bit experts, which the engine takes left alone (model_config.py), are slower than those of
    low latency; a library that is none is refused by name."""
    asked = {"model": "qwen3-30b-a3b", "gpu": "b200", "engine": "trtllm", "quant": "nvfp4", "batch": 64}
    alone, told = (float(rooflm.infer(**asked, **more).tpot) for more in ({}, {"sets": {"engine.experts": "trtllm"}}))
    assert alone > 1.2 * told
    with pytest.raises(RooflmError, match=r"engine\.experts is 'cutlas': did you mean 'cutlass'"):
        rooflm.infer(**asked, sets={"engine.experts": "cutlas"})


def test_experts_of_a_release_run_on_one_of_the_libraries_that_it_brings() -> None:
    """vLLM has OpenAI's 4-bit kernels since 0.11.1: before, Hopper ran Marlin's, whose prompts take twice as long."""
    asked = {"model": "gpt-oss-120b", "gpu": "h200", "batch": 1, "prompt": 8192}
    old, new = (float(rooflm.infer(**asked, engine=f"vllm-{r}").ttft) for r in ("0.11.0", "0.11.1"))
    assert old > 1.4 * new
    both, one = (rooflm.infer(**asked, engine="vllm", sets={"engine.experts": e}) for e in ("triton, marlin", "marlin"))
    assert float(both.ttft) <= float(one.ttft)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("pair", [("marlin", "triton"), ("openai", "marlin"), ("openai", "triton")])
def test_more_libraries_are_never_slower(engine: str, pair: tuple[str, str]) -> None:
    """Each as measured in the engine, else in another: telling one that it has leaves no other out."""

    def ttft(told: str) -> float:
        found = rooflm.infer(
            "gpt-oss-120b", gpu="h200", engine=engine, batch=1, prompt=2048, sets={"engine.experts": told}
        )
        return float(found.ttft)

    assert ttft(", ".join(pair)) <= min(map(ttft, pair)) * (1 + 1e-9)


def test_libraries_are_checked_where_no_model_has_experts_too() -> None:
    with pytest.raises(RooflmError, match=r"engine\.experts is 'cutlas': did you mean 'cutlass'"):
        rooflm.infer("llama-3.1-8b", gpu="h100", sets={"engine.experts": "triton, cutlas"})


def test_products_of_a_library_that_nobody_measured_near_are_the_engines_own() -> None:
    asked = {"model": "deepseek-v3", "gpu": "h200", "gpus": 8, "engine": "sglang"}
    own, told = (float(rooflm.infer(**asked, sets=s).tpot) for s in ({}, {"engine.untuned": "flashinfer"}))
    assert told == own


def test_a_shared_kernel_starts_as_fast_as_in_the_engine_that_issues_it_best() -> None:
    told = choices("h200-sxm-141gb", "hopper", "vllm", "mxfp4", family="marlin")
    assert [c.constants.start for c in told] == [constants("int4_wo", "h200-sxm-141gb", "sglang", "").start]
    usual = constants("int4_wo", "h200-sxm-141gb", "vllm", "")  # mxfp4's are of one model of 896 experts
    assert told[0].constants == usual._replace(start=told[0].constants.start)
    whole, spread = (choices("h200-sxm-141gb", "hopper", "trtllm", "mxfp4", parallel) for parallel in (False, True))
    assert {c.constants.start for c in whole} == {c.constants.start for c in spread}  # whichever way they are split


def test_an_old_release_starts_them_as_the_engine_was_measured() -> None:
    """vLLM 0.11.0 decodes gpt-oss-120b on H100 some 30 us a layer slower than 0.18.0, with the same kernels."""
    told = choices("h200-sxm-141gb", "hopper", "vllm", "mxfp4", family="marlin", launched=True)
    assert [c.constants.start for c in told] == [constants("int4_wo", "h200-sxm-141gb", "vllm", "").start]
    given = {"gpu": "h100", "batch": 4, "prompt": 1024, "sets": {"engine.experts": "marlin"}}
    steps = [rooflm.infer("gpt-oss-120b", engine=engine, **given).tpot for engine in ("vllm", "vllm-0.8")]
    assert 36 * 40e-6 < float(steps[1] - steps[0]) < 36 * 120e-6


@pytest.mark.parametrize(
    ("family", "dtype", "sizes"),
    [
        ("marlin", "mxfp4", (3072, 384)),
        ("trtllm", "mxfp4_mxfp8", (3072, 512)),
        ("trtllm", "nvfp4", (2880, 384)),
        ("trtllm", "fp8", (2880, 360)),
        ("openai", "mxfp4", (2880, 360)),
    ],
)
def test_weights_are_filled_up_to_whole_tiles(family: str, dtype: str, sizes: tuple[int, int]) -> None:
    """gpt-oss' 2,880 x 2,880 on eight ranks."""
    assert filled(family, dtype, 2880, 360) == sizes


def test_releases_before_flashinfers_experts_run_tritons() -> None:
    """SGLang on Blackwell (pull requests 11816 and 13489): all but DeepSeek's in 4 bits."""
    parts = [
        rooflm.infer(model, gpu="b200", gpus=4, tp=4, engine=e, quant=q, prompt=1024, output=8).prefill_parts["moe"]
        for model, q in (("qwen3-235b-a22b", "fp8-block"), ("deepseek-v3", "nvfp4"))
        for e in ("sglang-0.5.2", "sglang-0.5.6")
    ]
    assert parts[0] > 1.3 * parts[1]
    assert parts[2] == pytest.approx(parts[3], rel=0.05)


OWN = [("deepseek-v3", "fp8-block"), ("qwen3-235b-a22b", "bf16"), ("kimi-k2.5", "int4"), ("glm-4.5", "nvfp4")]
"""What server_args.py of SGLang 0.5.10 gives TensorRT-LLM's experts on Blackwell by itself, among others."""


@pytest.mark.parametrize(
    ("model", "quant"),
    [*OWN, ("mixtral-8x7b", "bf16"), ("glm-4.5", "fp8"), ("glm-4.5-air", "bf16"), ("minimax-m2", "fp8-block"),
     ("llama-4-scout", "int4"), ("qwen3-235b-a22b", "int4"), ("nemotron-3-super-120b-a12b", "nvfp4")],
)  # fmt: skip
def test_sglang_takes_tensorrt_llms_experts_where_its_own_list_does(model: str, quant: str) -> None:
    """Elsewhere prompts have graphs, which an H200 showed to be worth a half to a third of a first token of 1,024
    tokens: a B200 took up to 3.3 times as long as that (docs/decisions/0517)."""
    asked: dict[str, Any] = {"tp": 8, "prompt": 1024, "output": 8, "engine": "sglang-0.5.10", "quant": quant}
    built = build_inference(model, gpu="b200", **asked).scenario
    assert (expert_families(built) == {"trtllm"}) is ((model, quant) in OWN)
    told = build_inference(model, gpu="b200", **asked, sets={"engine.experts": "trtllm"}).scenario
    assert expert_families(told) == {"trtllm"}
    if (model, quant) not in OWN:
        new, old = (float(rooflm.infer(model, gpu=gpu, **asked).ttft) for gpu in ("b200", "h200"))
        assert new < 1.05 * old


def first(model: str, gpu: str, engine: str, **given: object) -> float:
    """ms of the first token of one prompt of 512 tokens, of eight cards."""
    return 1e3 * float(rooflm.infer(model, gpu=gpu, gpus=8, engine=engine, prompt=512, output=8, **given).ttft)  # type: ignore[arg-type]


def test_experts_that_choose_by_themselves_are_launched_with_one_call() -> None:
    """GLM-5's first tokens in SGLang: 312 ms on H200, 216 on B200, where Triton's kernels and their router's are one of
    TensorRT-LLM's: 75 layers x 6 launches x 180 us = 81 ms less."""
    triton, own = (first("glm-5", gpu, "sglang", quant="fp8-block") for gpu in ("h200", "b200"))
    assert triton - own == pytest.approx(81, rel=0.15)
    told = first("glm-5", "b200", "sglang", quant="fp8-block", sets={"engine.experts": "triton"})
    assert told == pytest.approx(triton, rel=0.1)


def test_openai_s_kernels_of_experts_are_launched_from_python_in_tensorrt_llm_too() -> None:
    hopper = first("gpt-oss-120b", "h200", "trtllm")
    assert hopper - first("gpt-oss-120b", "h200", "trtllm", sets={"engine.eager_experts": 0}) > 30  # 36 x 8 x 122 us
    own = first("deepseek-v3", "h200", "trtllm", quant="fp8-block")
    assert own == first("deepseek-v3", "h200", "trtllm", quant="fp8-block", sets={"engine.eager_experts": 0})


KIN = (
    ("mi250x", "mi300x", "vllm"), ("rtx-3090", "rtx-4090", "sglang"), ("rtx-3090", "rtx-4090", "vllm"),
    ("a100", "h100", "trtllm"),
)  # fmt: skip
"""Cards of which the older has no 4-bit experts of its own in the tables, the newer, and an engine."""


@pytest.mark.parametrize("batch", [1, 8, 256])
@pytest.mark.parametrize(("older", "newer", "engine"), KIN)
def test_a_card_without_runs_does_not_beat_its_kin(older: str, newer: str, engine: str, batch: int) -> None:
    """Its experts came from the mean of all generations, and of no library, so that no host launched them either."""
    asked = {"engine": engine, "batch": batch, "prompt": 128, "output": 64}
    old, new = (rooflm.infer("gpt-oss-20b", gpu=gpu, **asked) for gpu in (older, newer))
    assert new.tpot <= old.tpot and new.ttft <= 1.001 * old.ttft


def test_many_experts_have_a_library_of_their_own_in_a_release() -> None:
    """vLLM 0.7: Marlin's kernels to 32 experts of 4-bit integers, its own beyond (quantization/awq_marlin.py)."""
    given = {"gpu": "a100", "gpus": 8, "tp": 8, "quant": "awq", "batch": 32, "prompt": 128, "output": 32}
    told = "engine.many_experts"
    for model, slower in (("mixtral-8x7b", False), ("qwen3-235b-a22b", True)):
        usual, own = (
            float(rooflm.infer(model, **given, engine="vllm-2024-11", sets={told: names}).tpot)
            for names in ("", "moe_wna16:32")
        )
        assert (own > 1.2 * usual) is slower and (slower or own == usual), model


def test_a_family_has_a_library_of_its_own_for_a_type() -> None:
    """SGLang's experts of MiniMax-M2 in nvfp4 on Blackwell are CUTLASS' to 0.5.13 (request 32229: 142.9 tokens/s of
    one client and 7,195 of 128 on four GB200, where TensorRT-LLM's with a router beside have 198.7 and 9,717)."""
    given = {"gpu": "gb200", "gpus": 4, "tp": 4, "quant": "nvfp4-experts", "prompt": 1024, "output": 1024}
    for batch, told in ((1, 142.9 / 198.7), (128, 7194.9 / 9716.7)):
        own, later = (
            float(rooflm.infer("minimax-m2", **given, batch=batch, engine=e).output_tokens_per_s)
            for e in ("sglang-0.5.11", "sglang-0.5.14")
        )
        assert own / later == pytest.approx(told, rel=0.15)
    given |= {"quant": "fp8-block", "gpu": "h200"}
    assert len({float(rooflm.infer("minimax-m2", **given, engine="sglang", sets=s).tpot)
                for s in ({}, {"engine.experts_of": ""})}) == 1  # fmt: skip


def sides(model: str, **given: object) -> tuple[int, int]:
    """(outer, inner) columns of a rank's experts."""
    e = rooflm.infer(model, batch=8, prompt=128, output=8, **given)
    outer, inner = next(t for t in e.timed["decode"] if t.node.name == "experts").node.shape[1:3]
    return int(outer), int(inner)


@pytest.mark.parametrize(("gpu", "engine", "tp", "outer", "inner"), [
    ("b200", "vllm", 8, 3072, 512), ("h200", "vllm", 8, 2880, 384), ("a100", "vllm", 4, 2944, 768),
    ("mi300x", "vllm", 1, 2944, 2944), ("mi355x", "vllm", 8, 3072, 512), ("mi355x", "sglang", 1, 3072, 3072),
    ("h200", "sglang", 8, 2880, 360), ("mi300x", "atom", 1, 3072, 3072),
])  # fmt: skip
def test_sides_of_experts_in_mxfp4_are_filled_up(gpu: str, engine: str, tp: int, outer: int, inner: int) -> None:
    """As quantization/mxfp4.py of vLLM and SGLang makes them (docs/decisions/0457); no other type's."""
    assert sides("gpt-oss-120b", gpu=gpu, engine=engine, gpus=tp, tp=tp, quant="mxfp4") == (outer, inner)
    assert sides("gpt-oss-120b", gpu=gpu, engine=engine, gpus=tp, tp=tp, quant="bf16") == (2880, 2880 // tp)


@pytest.mark.parametrize(
    ("model", "release", "slower"),
    [("glm-4.5", "0.14.1", True), ("glm-4.5", "0.24", True), ("nemotron-3-nano-30b-a3b", "0.16.0", True),
     ("nemotron-3-nano-30b-a3b", "0.24", False), ("mixtral-8x7b", "0.24", True)],
)  # fmt: skip
def test_vllm_leaves_tensorrt_llms_experts_where_these_know_no_such_scales_or_gates(
    model: str, release: str, slower: bool
) -> None:
    """trtllm_fp8_moe.py: scales of a tensor or of blocks; without gates since pull request 33506."""
    own, theirs = (
        float(rooflm.infer(model, gpu="b200", quant="fp8", tp=2, engine=f"vllm-{release}", prompt=1024, sets=sets).tpot)  # type: ignore[arg-type]
        for sets in ({}, {"engine.experts_of": ""})
    )
    assert (own > 1.02 * theirs) == slower


@pytest.mark.parametrize(
    ("quant", "release", "family"),
    [("bf16", "0.19.1", "triton"), ("bf16", "0.20.0", "trtllm"), ("fp8-block", "0.14.1", "deepgemm"),
     ("fp8-block", "0.16.0", "trtllm"), ("fp8", "0.16.0", "cutlass"), ("nvfp4", "0.14.1", "cutlass"),
     ("nvfp4", "0.16.0", "flashinfer")],
)  # fmt: skip
def test_vllm_took_flashinfers_experts_on_blackwell_release_by_release(quant: str, release: str, family: str) -> None:
    """quantization/fp8.py and fused_moe/oracle: only where a variable of the environment asked to 0.14 (16 bits:
    0.19); a Hopper's were the same before and after."""

    def taken(gpu: str) -> set[str]:
        built = build_inference(
            "qwen3-235b-a22b", gpu=gpu, gpus=4, tp=4, engine=f"vllm-{release}", quant=quant, prompt=1024, output=8
        )
        return expert_families(built.scenario)

    assert taken("b200") == {family}
    assert taken("h200").isdisjoint({"trtllm", "deepgemm"})
