"""No engine on any card beats the roof of its bytes and FLOPs, and a card of the next generation is not slower."""

from __future__ import annotations

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
    ("a100-sxm-80gb", "h100-sxm-80gb"), ("a100-sxm-80gb", "h200-sxm-141gb"), ("h100-sxm-80gb", "b200-sxm-180gb"),
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
MODELS = (("llama-3.1-70b", 4), ("qwen3-30b-a3b", 1), ("gpt-oss-120b", 1), ("deepseek-v3", 8))


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
    for older, newer in GENERATIONS:
        for quant in formats:
            if quant.startswith("fp8") and "fp8" not in load_device(older).peak:
                continue  # another format there
            for batch in (1, 32, 256):
                old, new = (
                    rooflm.infer(model, gpu=g, tp=tp, engine=engine, quant=quant, batch=batch, prompt=1024, output=256)
                    for g in (older, newer)
                )
                at = (older, newer, quant, batch)
                # kernels of few rows are latency: measured up to 9 % slower (DeepSeek in SGLang comes out 17: H200 has
                # experts tuned for its shape, docs/decisions/0117; B200 is not measured at one sequence in fp8)
                slack = 1.10 if batch == 1 else 1.0
                more = 1.18 if batch == 1 and (engine, model) == ("sglang", "deepseek-v3") else slack
                assert float(new.tpot) <= more * float(old.tpot), at
                assert float(new.ttft) <= slack * float(old.ttft), at


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
    for older, newer in HOME:
        old, new = (
            rooflm.infer("llama-3.1-8b", gpu=g, engine=engine, quant=quant, batch=4, prompt=1024, output=128)
            for g in (older, newer)
        )
        for figure in ("tpot", "ttft"):
            assert float(getattr(new, figure)) <= 1.02 * float(getattr(old, figure)), (older, newer, figure)


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
