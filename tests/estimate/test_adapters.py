"""Low-rank adapters served beside a model: memory by hand, time against what was published, grids, commands, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.engine import Kernels
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import running
from rooflm.estimate.memory import adapter_bytes
from rooflm.estimate.request import decode_nodes
from rooflm.graph.context import Context, Decode, Pass
from rooflm.graph.forward import build
from rooflm.graph.ops import occupied
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.schemes import PRESETS
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.mapping import Mapping
from rooflm.search.serve_command import start_of

A100 = {"gpu": "a100-sxm-80gb", "engine": "vllm", "batch": 32}


def test_memory_is_the_matrices_of_each_adapter():
    """Llama-2-7B, 32 layers: rank x (in + out) of q, k, v, o (4096) and gate, up, down (11008), two bytes a value."""
    one = 32 * 16 * (4 * (4096 + 4096) + 3 * (4096 + 11008)) * 2
    held = rooflm.infer("llama-2-7b", **A100, adapters=8).memory.parts["adapters"]
    assert held == 8 * one
    attention = rooflm.infer("llama-2-7b", **A100, adapters=8, adapter_modules="qkv,out").memory.parts["adapters"]
    assert attention == 8 * 32 * 16 * 4 * (4096 + 4096) * 2
    halves = rooflm.infer("llama-2-7b", **A100, tp=2, adapters=8).memory.parts["adapters"]
    assert one * 8 / 2 < halves < one * 8  # each rank has all of the hidden side, its share of the other


def test_a_token_takes_as_much_longer_as_was_published():
    """Punica: 2 ms a token more for a 7B model with an adapter each (arXiv 2310.18547, abstract; A100, rank 16)."""
    plain, adapted = (rooflm.infer("llama-2-7b", **A100, adapters=n) for n in (0, 32))
    assert adapted.tpot - plain.tpot == pytest.approx(2e-3, rel=0.3)
    assert "adapters" not in plain.memory.parts


def test_one_adapter_of_all_requests_costs_less_than_one_each():
    grid = rooflm.infer("llama-2-7b", **A100, adapters=[0, 1, 8, 64], adapter_rank=[8, 64])
    alone = rooflm.infer("llama-2-7b", **A100, adapters=8, adapter_rank=64)
    assert np.all(np.diff(grid["tpot_s"].values, axis=0) >= 0)
    assert float(grid["tpot_s"][2, 1]) == pytest.approx(alone.tpot, rel=1e-12)
    assert float(grid["tpot_s"][0, 0]) == pytest.approx(rooflm.infer("llama-2-7b", **A100).tpot, rel=1e-12)


def test_served_and_searched():
    given = {"gpu": "h100", "concurrency": 8, "requests": 32}
    plain, adapted = (rooflm.serve("llama-3.1-8b", **given, adapters=n) for n in (0, 4))
    assert 1.02 < adapted.values()["tpot_s"]["mean"] / plain.values()["tpot_s"]["mean"] < 1.6
    found = rooflm.search_infer("llama-3.1-8b", gpu="h100", gpus=1, batch=8, adapters=4, adapter_rank=24)
    begun = start_of("llama-3.1-8b", found, {"prompt": 512, "output": 128, "adapters": 4, "adapter_rank": 24})
    assert "--enable-lora --max-loras 4 --max-lora-rank 32" in begun.text


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-next-80b-a3b", "deepseek-v2-lite", "nemotron-h-8b"])
@pytest.mark.parametrize("merged", [True, False])
def test_memory_holds_what_the_kernels_read(name, merged):
    """Of shared experts, recurrent layers and latent attention too: each kernel's matrix, counted by its FLOPs."""
    model, held = load_model(name), Adapters(1, 16)
    c = Context(model, Pass(None, Decode(8.0, 100.0), 8.0), Mapping(), PRESETS["bf16"], Kernels(merged=merged),
                adapters=held)  # fmt: skip
    read = sum(op.count * op.flops / (2 * 8) for op in build(c) if op.name.startswith("lora_"))
    assert 2 * read == adapter_bytes(model, Mapping(), held) > 0


def test_guessed_tokens_ask_for_one_adapter_together():
    """256 adapters, 4 sequences: about 4 are asked for, whatever is guessed (x A of the queries alone, by hand)."""
    a = Adapters(256, 16, ("out",))
    model = load_model("llama-3.1-8b")
    c = Context(model, Pass(None, Decode(4.0 * 5, 100.0, 5), 20.0), Mapping(), PRESETS["bf16"], adapters=a)
    shrink = next(op for op in build(c) if op.name == "lora_shrink")
    assert shrink.bytes == pytest.approx((20 * 4096 + occupied(a.held, 4) * 4096 * 16) * 2 + 20 * 16 * 4)
    given = {**A100, "batch": 4, "adapters": 256}
    nodes = {n: decode_nodes(s := build_inference("llama-3.1-8b", **given, guesses=n).scenario, running(s))
             for n in (0, 4)}  # fmt: skip
    moved = {n: next(op.bytes for op in v if op.name == "lora_shrink") for n, v in nodes.items()}
    assert np.all(moved[4] < 2 * moved[0])


def test_engines_that_serve_one_model_alone_refuse():
    with pytest.raises(RooflmError, match=r"llama.cpp serves no requests of several adapters"):
        build_inference("llama-3.1-8b", gpu="rtx-4090", engine="llama.cpp", quant="q8_0", adapters=2)
    with pytest.raises(RooflmError, match="adapter_modules is 'foo'"):
        build_inference("llama-3.1-8b", gpu="rtx-4090", adapters=2, adapter_modules="foo")


def test_the_greatest_rank_is_one_that_the_engine_takes():
    """vLLM takes some ranks alone, up to 512; SGLang and TensorRT-LLM any: the command says what was asked for."""
    told = {}
    for engine, rank in (("vllm", 24), ("vllm", 1024), ("sglang", 1024), ("trtllm", 24)):
        given = {"gpus": 1, "engine": engine, "adapters": 4, "adapter_rank": rank, "batch": 8}
        found = rooflm.search_infer("llama-3.1-8b", gpu="h100", tp=1, **given)
        told[engine, rank] = start_of("llama-3.1-8b", found, {"prompt": 512, "output": 128, **given})
    assert "--max-lora-rank 32" in told["vllm", 24].text and "rank" not in told["vllm", 24].note
    assert "vllm serves adapters of rank 512 at most" in told["vllm", 1024].note
    assert "--max-lora-rank 1024" in told["sglang", 1024].text and "rank" not in told["sglang", 1024].note
    assert "max_lora_rank: 24" in told["trtllm", 24].text


def test_an_engine_of_one_adapter_names_those_that_serve_more():
    with pytest.raises(RooflmError, match="such as sglang or trtllm or vllm"):
        rooflm.infer("llama-3.1-8b", gpu="rtx-4090", quant="q4_k_m", engine="llama.cpp", adapters=2)


def test_kernels_that_read_an_adapter_for_every_token() -> None:
    """vLLM 0.6 lost 20 to 34 % of the throughput of Llama-2-7B on an A100 (its issue 10062: bgmv_shrink and
    bgmv_expand took 7 of 35 s), whether one or four adapters; since V1 an adapter is read once a pass."""
    ask: dict[str, Any] = {"gpu": "a100-sxm-80gb", "batch": 96, "prompt": 220, "output": 200}

    def lost(engine: str, held: int, modules: str) -> float:
        plain = rooflm.infer("llama-2-7b", engine=engine, **ask)
        own: dict[str, Any] = {"adapters": held, "adapter_rank": 64, "adapter_modules": modules}
        return 1 - float(plain.latency) / float(rooflm.infer("llama-2-7b", engine=engine, **ask, **own).latency)

    every = "qkv,out,gate_up,down"
    assert 0.10 < lost("vllm-2024", 1, "qkv") < 0.25 and 0.25 < lost("vllm-2024", 1, every) < 0.40
    assert lost("vllm-2024", 4, every) == pytest.approx(lost("vllm-2024", 1, every), abs=0.01)
    assert lost("vllm", 1, every) < 0.08
