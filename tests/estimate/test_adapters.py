"""Low-rank adapters served beside a model: memory by hand, time against what was published, grids, commands, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.asked.build_training import build_training
from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLP, Attention, Model
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import running
from rooflm.estimate.memory import adapter_bytes, adapter_params
from rooflm.estimate.request import decode_nodes
from rooflm.estimate.training_step import adapter_sizes, context
from rooflm.graph.context import Context, Decode, Pass
from rooflm.graph.forward import build
from rooflm.graph.ops import occupied
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.schemes import PRESETS
from rooflm.scenario.adapters import MODULES, Adapters
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


TARGETS = ("q", "k", "v", "kv", "q,v", "q,kv", "q,k,v", "qkv", "out", "gate", "up", "gate,up", "gate_up", "down",
           "qkv,out,gate_up,down", ",".join(MODULES))  # fmt: skip


def by_hand(model: Model, targets: str, joined: bool) -> float:
    """Rank 16 x (inputs + outputs) of each adapter; joined: Q, K, V that are named as one have one, and gate and up."""
    total, names, h = 0.0, set(targets.split(",")), model.hidden
    for b in model.blocks:
        m, f = b.mixer, b.ffn
        assert isinstance(m, Attention) and f is not None
        wide = f.width if isinstance(f, MLP) else f.shared_width
        fused = {"qkv": {"q": m.heads * m.head_dim, "k": m.kv_heads * m.head_dim, "v": m.kv_heads * m.v_dim},
                 "gate_up": {"gate": wide, "up": wide} if f.gated else {"up": wide}}  # fmt: skip
        sizes = ["out" in names and h + m.heads * m.v_dim, "down" in names and h + wide]
        for whole, parts in fused.items():
            one = joined and whole in names
            held = {*parts} if whole in names else names | {"k", "v"} if "kv" in names else names
            sizes += [h + sum(parts.values())] if one else [h + n for part, n in parts.items() if part in held]
        total += b.count * 16 * sum(sizes)
    return total


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen1.5-moe-a2.7b", "falcon-40b"])
def test_every_way_counts_the_same_parameters(name: str) -> None:
    """Grouped queries, a mixture with a shared expert, an ungated model: what is trained (Megatron's products are of
    several, PEFT's of one each), what a server holds and what its kernels read, for each set of targets."""
    model, ask = load_model(name), {"model": name, "gpu": "h100", "batch": 1, "seq": 512, "lora_rank": 16}
    for targets in TARGETS:
        apart, names = by_hand(model, targets, joined=False), tuple(targets.split(","))
        if not apart:
            assert (name, targets) == ("falcon-40b", "gate")  # refused, see below
            continue
        for engine, params in (("megatron", by_hand(model, targets, joined=True)), ("peft", apart)):
            s = build_training(**ask, engine=engine, lora_modules=targets).scenario
            assert float(adapter_sizes(s, context(s))[0] * model.layers) == pytest.approx(params, rel=1e-12), targets
            assert adapter_params(model, Mapping(), 16, names, engine == "megatron") == params
        s = build_inference(name, gpu="h100", engine="vllm", batch=8, adapters=1, adapter_modules=targets).scenario
        read = sum(n.count * n.flops for n in decode_nodes(s, running(s)) if n.name.startswith("lora_")) / (2 * 8)
        assert float(read) == apart == adapter_bytes(model, Mapping(), s.adapters) / 2, targets


def test_adapters_of_routed_experts_are_counted_by_hand() -> None:
    """Qwen3-30B over four ranks: 32 experts of 2048 x 768 each a rank and layer, gate and up in one product. A router
    that nothing balances sends one rank more tokens, not more adapters."""
    ask = {"model": "qwen3-30b-a3b", "gpu": "h100", "gpus": 4, "ep": 4, "batch": 8, "seq": 512, "engine": "megatron"}
    one = 16 * (2048 + 2 * 768 + 768 + 2048)
    took = {}
    for names, sets in (("qkv,out", 0), ("qkv,out,experts_shared", 1), ("qkv,out,experts", 32)):
        asked: Any = {**ask, "lora_rank": 16, "lora_modules": names, "sets": {"training.imbalance": 0}}
        s = build_training(**asked).scenario
        attention = by_hand(s.model, "qkv,out", joined=True)
        assert float(adapter_sizes(s, context(s))[0] * 48) == pytest.approx(attention + 48 * sets * one, rel=1e-12)
        took[names] = float(rooflm.train(**asked).step_time)
    assert took["qkv,out"] < took["qkv,out,experts_shared"] < took["qkv,out,experts"]
    with pytest.raises(RooflmError, match="llama-3-8b has no such product"):
        rooflm.train("llama-3-8b", gpu="h100", batch=8, lora_rank=8, lora_modules="experts")


def test_products_that_a_model_does_not_have_are_refused() -> None:
    """Falcon has no gate; gpt-oss has all of its feed-forward in routed experts; of several names one is enough."""
    own = r"but falcon-40b has no such product: name one of q,k,v,out,up,down"
    with pytest.raises(RooflmError, match=f"lora_modules is gate, {own}"):
        rooflm.train("falcon-40b", gpu="h100", gpus=8, batch=8, lora_rank=16, lora_modules="gate")
    with pytest.raises(RooflmError, match=f"adapter_modules is gate, {own}"):
        rooflm.infer("falcon-40b", gpu="h100", gpus=2, adapters=2, adapter_modules="gate")
    with pytest.raises(RooflmError, match=r"is gate_up,down, .* outside its routed experts: name one of q,k,v,out"):
        rooflm.serve("gpt-oss-20b", gpu="h100", concurrency=4, adapters=2, adapter_modules="gate_up,down")
    assert rooflm.infer("falcon-40b", gpu="h100", gpus=2, adapters=2, adapter_modules="gate,up").memory.parts[
        "adapters"
    ]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_adapters_on_parts_of_a_product_take_time(engine: str) -> None:
    ask: dict[str, Any] = {"gpu": "h100", "engine": engine, "batch": 32}
    plain = rooflm.infer("llama-3.1-8b", **ask).tpot
    took = {t: float(rooflm.infer("llama-3.1-8b", **ask, adapters=4, adapter_modules=t).tpot - plain)
            for t in ("k", "q", "kv", "q,v", "q,k,v", "qkv", "up", "gate_up")}  # fmt: skip
    assert 0 < took["k"] < took["q"] < took["q,v"] < took["q,k,v"] == took["qkv"]
    assert took["k"] < took["kv"] < took["qkv"] and 0 < took["up"] < took["gate_up"]


def test_training_parts_of_a_product_takes_time() -> None:
    """Megatron's one adapter of Q, K and V takes less than three (NeMo, "performant" and "canonical" LoRA)."""
    ask: dict[str, Any] = {"gpu": "h100", "batch": 8, "seq": 2048, "lora_rank": 16, "engine": "megatron"}
    took = {t: float(rooflm.train("llama-3.1-8b", **ask, lora_modules=t).step_time)
            for t in ("k", "q,v", "q,k,v", "qkv")}  # fmt: skip
    assert took["k"] < took["q,v"] < took["q,k,v"] and took["qkv"] < took["q,k,v"]


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
