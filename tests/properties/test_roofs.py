"""No engine on any card beats the roof of its bytes and FLOPs, and a card of the next generation is not slower."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.readers.devices import load_device
from rooflm.readers.engines import engine_names, load_engine
from rooflm.serving.deploy import make_pool
from rooflm.serving.server import Server
from rooflm.serving.steps import StepTable

ENGINES = [n for n in engine_names() if load_engine(n).phase == "inference" and n != "ideal"]
CURRENT = ("vllm", "sglang", "trtllm")
GENERATIONS = (
    ("a100-sxm-80gb", "h100-sxm-80gb"), ("h100-sxm-80gb", "h200-sxm-141gb"), ("h100-sxm-80gb", "b200-sxm-180gb"),
    ("h200-sxm-141gb", "b200-sxm-180gb"), ("h200-sxm-141gb", "b300-sxm-288gb"), ("h200-sxm-141gb", "gb200"),
)  # fmt: skip
CARDS = (
    "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "l40s", "rtx-4090", "rtx-3090",
    "rtx-pro-6000", "mi300x", "mi355x", "apple-m2-ultra", "jetson-thor-128gb",
)  # fmt: skip
HOME = (
    ("rtx-3090", "rtx-4090"), ("rtx-4090", "rtx-5090"), ("rtx-a6000", "rtx-6000-ada"),
    ("rtx-6000-ada", "rtx-pro-6000-96gb"), ("jetson-agx-orin-64gb", "jetson-thor-128gb"), ("mi250x-gcd", "mi300x"),
    ("mi300x", "mi325x"), ("mi325x", "mi355x"), ("apple-m2-ultra-76core-192gb", "apple-m3-ultra-80core-256gb"),
    ("apple-m3-max-40core-64gb", "apple-m4-max-40core-64gb"),
)  # fmt: skip
"""Cards of which the newer has at least the older one's rates, most of them without runs of their own."""
MODELS = (
    ("llama-3.1-70b", 4), ("llama-3.1-8b", 1), ("qwen3-30b-a3b", 1), ("gpt-oss-120b", 1), ("deepseek-v3", 8),
    ("deepseek-v2-lite", 1), ("qwen3-next-80b-a3b", 4),
)  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_no_pass_beats_its_roof_on_any_card(engine: str) -> None:
    narrow = "int4" if "int4" in load_engine(engine).abilities.schemes else "int8-wo"
    narrow = "q4_k_m" if "gguf" in load_engine(engine).abilities.schemes else narrow
    for gpu in CARDS:
        quant = narrow if load_device(gpu).dram.size < 40e9 else "bf16"
        e = rooflm.infer("llama-2-7b", gpu=gpu, engine=engine, quant=quant, batch=2, prompt=512, output=128)
        for figure in (e.mfu, e.mbu, e.prefill_mfu, e.decode_mbu):
            assert float(figure) <= 1 + 1e-9, (engine, gpu, figure)


@pytest.mark.parametrize("gpu", ["b300", "gb300"])
def test_long_attention_does_not_beat_the_peak_of_slow_integers(gpu: str) -> None:
    e = rooflm.infer("olmo-1b", gpu=gpu, engine="sglang", quant="int8", batch=16, prompt=32768, output=16)
    assert float(e.mfu) <= 1 and float(e.prefill_mfu) <= 1


@pytest.mark.parametrize("engine", CURRENT)
@pytest.mark.parametrize(("model", "tp"), MODELS)
def test_the_next_generation_is_never_slower_at_the_same_format(engine: str, model: str, tp: int) -> None:
    formats = {"gpt-oss-120b": ("mxfp4",), "deepseek-v3": ("fp8-block",)}.get(model, ("bf16", "fp8"))
    asked: Any = {"tp": tp, "engine": engine, "batch": [1, 4, 32, 256], "prompt": [1024, 8192], "output": 256}
    for quant in formats:
        gpus = {gpu for pair in GENERATIONS for gpu in pair}
        at = {gpu: rooflm.infer(model, gpu=gpu, quant=quant, outputs=["tpot_s", "ttft_s"], **asked) for gpu in gpus}
        for older, newer in GENERATIONS:
            if quant.startswith("fp8") and "fp8" not in load_device(older).peak:
                continue  # another format there
            rows = (engine, model, quant) == ("vllm", "qwen3-next-80b-a3b", "fp8")
            # few rows by CUTLASS, for which vLLM itself takes Triton's on Blackwell up to eight (triton_cutlass_moe.py;
            # nobody measured those: 0518)
            slack = 0.12 if rows else 1e-9
            assert (at[newer]["tpot_s"].values <= (1 + slack) * at[older]["tpot_s"].values).all(), (older, newer, quant)
            assert (at[newer]["ttft_s"].values <= (1 + 1e-9) * at[older]["ttft_s"].values).all(), (older, newer, quant)


@pytest.mark.parametrize("engine", [*CURRENT, "lmdeploy", "tgi"])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v2-lite"])
def test_nor_are_experts_and_latents_on_cards_nobody_measured(model: str, engine: str) -> None:
    """A card's matrix units may be smaller than where its kernels were measured: prompts took an RTX 5090 1.13 and 1.39
    times as long as an RTX 4090. TensorRT-LLM leaves a sequence of latents to one block there, whose pace is an SM's:
    its clock is lower."""
    asked: Any = {"engine": engine, "batch": [1, 4, 32], "prompt": [1024, 8192], "output": 64}
    for older, newer in (("rtx-3090", "rtx-4090"), ("rtx-4090", "rtx-5090"), ("rtx-a6000", "rtx-6000-ada"),
                         ("rtx-6000-ada", "rtx-pro-6000-96gb"), ("a10g", "l40s"), ("v100-sxm-32gb", "a100-sxm-80gb"),
                         ("mi250x-gcd", "mi300x"), ("mi300x", "mi325x"), ("mi325x", "mi355x")):  # fmt: skip
        old, new = (rooflm.infer(model, gpu=g, outputs=["tpot_s", "ttft_s"], **asked) for g in (older, newer))
        for figure in ("tpot_s", "ttft_s"):
            one_block = (engine, model, figure) == ("trtllm", "deepseek-v2-lite", "tpot_s")
            slack = np.array([1.13 if one_block else 1.02, 1.02, 1.02])[:, None]
            assert (new[figure].values <= slack * old[figure].values).all(), (older, newer, figure)


def test_cards_of_eighty_gibibytes_decode_by_graphs_of_as_many_sequences() -> None:
    """An A100 has 81,920 MiB, an H100 81,559, and SGLang up to 0.4.5 captured more from above 81,920 on: 256 sequences
    took the H100 1.9 times as long."""
    asked: Any = {"engine": "sglang-0.4.5", "tp": 4, "batch": 256, "prompt": 8192, "output": 64}
    old, new = (rooflm.infer("qwen3-next-80b-a3b", gpu=gpu, **asked) for gpu in ("a100", "h100"))
    assert new.tpot <= old.tpot


@pytest.mark.parametrize("engine", CURRENT)
@pytest.mark.parametrize(("model", "quant"), [("llama-3.1-70b", "fp8"), ("llama-3.1-70b", "nvfp4"),
                                              ("qwen3-235b-a22b", "nvfp4")])  # fmt: skip
def test_nor_is_a_refreshed_card(engine: str, model: str, quant: str) -> None:
    """One engine's table of B300 is a copy of another card's, and other engines' kernels were up to 35 % slower there.
    Experts of TensorRT-LLM were measured 7 % slower on it."""
    for older, newer in (("b200-sxm-180gb", "b300-sxm-288gb"), ("gb200", "gb300")):
        for batch in (4, 64):
            old, new = (
                rooflm.infer(model, gpu=g, tp=4, engine=engine, quant=quant, batch=batch, prompt=1024, output=256)
                for g in (older, newer)
            )
            slack = 1.08 if engine == "trtllm" else 1.02
            assert float(new.tpot) <= slack * float(old.tpot) and float(new.ttft) <= slack * float(old.ttft)


@pytest.mark.parametrize("engine", ENGINES)
def test_nor_is_it_on_cards_nobody_measured(engine: str) -> None:
    """Factors of a family by generation: M4's bandwidth is not the mean of M1's and M3's."""
    quant = "q4_k_m" if "gguf" in load_engine(engine).abilities.schemes else "bf16"
    asked: Any = {"engine": engine, "quant": quant, "batch": 4, "prompt": 1024, "output": 128}
    at = {gpu: rooflm.infer("llama-3.1-8b", gpu=gpu, **asked) for gpu in dict.fromkeys(sum(HOME, ()))}
    for older, newer in HOME:
        for figure in ("tpot", "ttft"):
            assert float(getattr(at[newer], figure)) <= 1.02 * float(getattr(at[older], figure)), (older, newer, figure)


@pytest.mark.parametrize("engine", CURRENT)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b"])
def test_nor_is_it_in_eight_bits_on_a_card_whose_factors_are_lent(model: str, engine: str) -> None:
    """(SGLang's 8-bit products of few columns were measured at a third of the bandwidth on the newer generation.)"""
    old, new = (
        rooflm.infer(model, gpu=g, engine=engine, quant="fp8", batch=1, prompt=1024, output=128)
        for g in ("rtx-4090", "rtx-5090")
    )
    assert new.tpot <= 1.02 * old.tpot and new.ttft <= old.ttft


def test_large_products_in_training_do_not_fill_a_card_whose_factors_are_lent() -> None:
    e = rooflm.train("llama-3.1-8b", gpu="rtx-5090", engine="nemo", micro_batch=8, batch=8)
    assert float(e.mfu) < 0.9


@pytest.mark.parametrize("gpu", ["h100", "h200", "a100"])
@pytest.mark.parametrize("quant", ["bf16", "q4_k_m"])
def test_a_second_sequence_does_not_shorten_a_step(gpu: str, quant: str) -> None:
    """Kernels of one row are bound by what SMs take; those of more rows, of other kinds, were not."""
    times = [
        float(
            rooflm.infer("llama-3.1-8b", gpu=gpu, engine="llama.cpp", quant=quant, batch=b, prompt=256, output=32).tpot
        )
        for b in (1, 2, 4, 8, 16)
    ]
    assert times == sorted(times)


def test_the_simulators_steps_do_not_beat_the_roof_either() -> None:
    r = rooflm.infer("llama-3.1-8b", gpu="h100", batch=32, prompt=1024, output=128)
    parts = make_pool(r.scenario, Server(), 2048, 64).table.components
    roof = float(np.sum(r.passes["decode"].bytes)) / 3 / r.scenario.cluster.device.dram.bandwidth
    e = r.scenario.engine
    lifted = e.but(gemm_factor=0.1, decode_factor=0.1, stream_factor=0.1, gap=-1e-4, step=0.0, sequence=0.0)
    assert 0.97 * roof <= StepTable(parts, lifted).decode_time(32, 1088.0) < StepTable(parts, e).decode_time(32, 1088.0)


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
@pytest.mark.parametrize("model", ["llama-3.3-70b", "qwen3-32b"])
def test_four_bits_decode_no_slower_than_eight_where_both_have_tensor_cores(model: str, engine: str) -> None:
    """TensorRT-LLM's nvfp4 products were measured without tuning: decoding in fp8 was up to 1.4 times as fast."""
    for gpu in ("b200-sxm-180gb", "b300-sxm-288gb", "gb200"):
        for tp in (1, 8):
            wide, narrow = (
                rooflm.infer(model, gpu=gpu, gpus=tp, tp=tp, engine=engine, quant=q, batch=4, prompt=1024, output=256)
                for q in ("fp8kv8", "nvfp4kv8")
            )
            assert narrow.tpot < 1.05 * wide.tpot, (gpu, tp)  # small products of eight ranks are launches alone
