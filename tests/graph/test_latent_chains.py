"""Small kernels of latent attention and routers by release (docs/decisions/0203)."""

import pytest

import rooflm


@pytest.mark.parametrize(
    ("release", "quant", "kernels", "router"),
    [
        ("0.4.1", "fp8-block", 41, 19),  # 7 + 12 + 2 x 11
        ("0.4.3", "fp8-block", 41, 8),
        ("0.4.3", "bf16", 19, 8),  # no operand to quantise
        ("0.4.5", "fp8-block", 7, 0),
        ("0.4.6", "fp8-block", 0, 0),
    ],
)
def test_a_release_launches_its_own_small_kernels(release: str, quant: str, kernels: int, router: int) -> None:
    e = rooflm.infer("deepseek-v3", gpu="h200", gpus=16, tp=16, quant=quant, engine=f"sglang-{release}", batch=1)
    timed = {t.node.name: t for t in e.timed["decode"]}
    chain = timed.get("latent_chain")
    factor = 0.9  # stream_factor
    assert (chain.time / factor if chain else 0.0) == pytest.approx(kernels * 4.5e-6, rel=0.02)
    if router:
        assert timed["route"].time / factor == pytest.approx(router * 4.5e-6, rel=0.02)
