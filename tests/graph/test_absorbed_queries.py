"""vLLM puts absorbed queries and their rotated parts together in a kernel of its own (docs/decisions/0437)."""

from typing import Any

import pytest

import rooflm

SETTING: dict[str, Any] = {"gpu": "h200", "gpus": 8, "tp": 8, "batch": 4, "prompt": 1024, "quant": "fp8-block"}


@pytest.mark.parametrize(("engine", "layers"), [("vllm", 61), ("vllm-0.8", 61), ("vllm-2024", 0), ("sglang", 0)])
def test_vllm_has_a_kernel_a_layer_that_puts_queries_together(engine: str, layers: int) -> None:
    chains = [t.node for t in rooflm.infer("deepseek-v3", engine=engine, **SETTING).timed["decode"]]
    assert sum(float(n.count) for n in chains if n.name == "latent_chain") == layers


def test_atom_takes_aiters_kernel_that_does_it_all() -> None:
    timed = rooflm.infer("deepseek-v3", engine="atom", **{**SETTING, "gpu": "mi355x"}).timed["decode"]
    assert "latent_chain" not in {t.node.name for t in timed}
