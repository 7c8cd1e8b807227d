"""Small kernels of recurrent layers by release (docs/decisions/0254)."""

import pytest

import rooflm


@pytest.mark.parametrize(
    ("engine", "model", "kernels"),
    [
        ("vllm-0.17", "qwen3.5-35b-a3b", 7),
        ("vllm-0.19", "qwen3.5-35b-a3b", 2),
        ("vllm", "nemotron-3-nano-30b-a3b", 0),  # compiled norms
        ("sglang", "qwen3.5-35b-a3b", 4),
        ("sglang-0.5.10", "qwen3.5-35b-a3b", 0),
        ("sglang-0.5.10", "nemotron-3-nano-30b-a3b", 8),
        ("sglang-0.5.14", "nemotron-3-nano-30b-a3b", 0),
        ("llama.cpp", "qwen3.5-35b-a3b", 0),  # its own are in delta_chain
    ],
)
def test_a_release_launches_its_own_kernels_around_a_state(engine: str, model: str, kernels: int) -> None:
    e = rooflm.infer(model, gpu="h200", engine=engine, batch=2)
    chain = {t.node.name: t for t in e.timed["decode"]}.get("scan_chain")
    assert (float(chain.time) / 0.9 if chain else 0.0) == pytest.approx(kernels * 4.5e-6, rel=0.02)
    assert "scan_chain" not in {t.node.name for t in e.timed["prefill"]}


@pytest.mark.parametrize("told", ["gated-delta:x", "delta:3"])
def test_a_kind_that_no_layer_has_is_one_sentence(told: str) -> None:
    with pytest.raises(rooflm.RooflmError, match="scan_chain"):
        rooflm.infer("qwen3.5-9b", gpu="h200", sets={"engine.scan_chain": told})
