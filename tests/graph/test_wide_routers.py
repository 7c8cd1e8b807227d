"""Routers that servers keep in 32 bits (docs/decisions/0228)."""

import json
from pathlib import Path

import pytest

import rooflm
from rooflm.catalogue.model import MoE

SETTING = {"gpu": "b200", "gpus": 8, "tp": 8, "quant": "nvfp4kv8", "prompt": 1024, "output": 64}


def router(engine: str, phase: str, model: str = "minimax-m2", **more: object) -> tuple[str, float]:
    """(kind, seconds without the engine's factor) of a layer's router."""
    e = rooflm.infer(model, engine=engine, batch=64, **{**SETTING, **more})
    op = next(t for t in e.timed[phase] if t.node.name == "router")
    return op.node.kind, float(op.time) / 0.95  # gemm_factor


def test_a_router_of_32_bits_is_a_cast_and_a_product_of_fp32_units() -> None:
    """Two launches of plain kernels (5 us each) and 0.7 of the units' peak: 12 us at 64 sequences, where SGLang's pull
    request 22744 found 9.1 % of a step in 62 of them, 3.3 % as TF32."""
    kind, time = router("sglang", "decode")
    flops, peak = 2 * 64 * 256 * 3072, 148 * 256 * 1.965e9
    assert (kind, time) == ("simt", pytest.approx(10e-6 + flops / (0.7 * peak), rel=0.05))
    step = rooflm.infer("minimax-m2", engine="sglang", batch=64, **{**SETTING, "sets": {"engine.experts_of": ""}})
    assert 0.06 < 62 * time / float(step.tpot) < 0.1


def test_its_prompts_are_bound_by_those_units_and_none_where_tf32_is_allowed() -> None:
    _, time = router("vllm", "prefill")
    assert time > 100e-6
    assert router("vllm", "prefill", sets={"engine.wide_routers": False})[0] == "gemm"
    assert router("vllm", "prefill", sets={"engine.wide_routers": False})[1] < 0.2 * time
    for engine, model in (("trtllm", "minimax-m2"), ("vllm", "qwen3-235b-a22b")):
        assert router(engine, "decode", model)[0] == "gemm"


def test_a_config_of_the_family_says_so_too(tmp_path: Path) -> None:
    sizes = {"hidden_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 48, "num_key_value_heads": 8}
    sizes |= {"head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8}
    config = {"model_type": "minimax_m2", "vocab_size": 200064, "max_position_embeddings": 4096, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ffn = rooflm.load_model(tmp_path / "config.json").blocks[0].ffn
    assert isinstance(ffn, MoE) and ffn.wide_router


def test_torchtitan_trains_its_routers_in_fp32_since_march_2026() -> None:
    """Its issue 4273: forward and both backward products on fp32 units, 8 to 9 % of a step of its author."""

    def routers(engine: str) -> tuple[set[str], float, float]:
        e = rooflm.train("qwen3-30b-a3b", gpu="b200", gpus=8, batch=8, seq=4096, micro_batch=1, zero=3, engine=engine)
        found = [t for key in (("forward", "layers"), ("backward", "layers")) for t in e.timed[key]]
        nodes = [t for t in found if t.node.name in ("router", "router_dgrad", "router_wgrad")]
        return {str(getattr(t.node, "kind", "")) for t in nodes}, sum(float(t.total) for t in nodes), float(e.step_time)

    kinds, taken, step = routers("torchtitan")
    assert kinds == {"simt"} and 0.01 < taken / step < 0.1
    before, least, _ = routers("torchtitan-2025")
    assert before == {"gemm"} and least < 0.3 * taken
