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
        ("sglang-0.5.6", "kimi-linear-48b-a3b", 12),  # of nineteen, seven are operations of their own
        ("sglang", "kimi-linear-48b-a3b", 2),
        ("sglang-0.5.10", "kimi-linear-48b-a3b", 0),
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


def states(engine: str, model: str, gpu: str, batch: int, tp: int = 1, **sets: float) -> tuple[float, float, float]:
    """Seconds of decoding's kernel of states; its FLOPs a clock of an SM; its share of DRAM's rate."""
    asked = {f"engine.{name}": value for name, value in sets.items()}
    e = rooflm.infer(model, gpu=gpu, engine=engine, batch=batch, tp=tp, sets=asked)
    scan = next(t for t in e.timed["decode"] if t.node.name == "scan")
    card, time = e.scenario.cluster.device, float(scan.time)
    return time, scan.node.flops / time / card.sms / card.clock, scan.node.bytes / time / card.dram.bandwidth


@pytest.mark.parametrize(("engine", "gpu", "each"), [("vllm-0.8", "h200", 40.5e-9), ("vllm-0.8", "b200", 29.3e-9)])
def test_states_of_gated_deltas_take_what_was_printed(engine: str, gpu: str, each: float) -> None:
    time, _, _ = states(engine, "qwen3-next-80b-a3b", gpu, 1024, tp=4)
    assert time / (1024 * 8) == pytest.approx(each, rel=0.04)  # of a head of 128 x 128: vLLM pull request 31722


@pytest.mark.parametrize(
    ("engine", "model", "gpu", "rate"),
    [
        ("vllm", "qwen3-next-80b-a3b", "h200", 0.0),  # tiles of 32 columns leave it to the memory
        ("vllm", "nemotron-3-nano-30b-a3b", "b200", 0.0),
        ("vllm", "nemotron-3-nano-30b-a3b", "h200", 9.8),
        ("sglang", "nemotron-3-nano-30b-a3b", "b200", 9.8),  # blocks of four rows on every card
    ],
)
def test_states_are_the_memorys_or_their_kernels(engine: str, model: str, gpu: str, rate: float) -> None:
    _, drawn, share = states(engine, model, gpu, 512)
    assert drawn == pytest.approx(rate) if rate else share == pytest.approx(0.83)


@pytest.mark.parametrize(("engine", "gpu"), [("vllm", "tpu-v7x"), ("vllm", "mi300x"), ("llama.cpp", "h200")])
def test_other_cards_and_engines_have_other_kernels(engine: str, gpu: str) -> None:
    assert states(engine, "qwen3.5-9b", gpu, 64) == states(engine, "qwen3.5-9b", gpu, 64, delta_rate=0)
