"""Small kernels of latent attention and routers by release (docs/decisions/0203)."""

import pytest

import rooflm


@pytest.mark.parametrize(
    ("release", "quant", "kernels", "router"),
    [
        ("0.4.1", "fp8-block", 39, 19),  # 5 + 12 + 2 x 11
        ("0.4.3", "fp8-block", 39, 8),
        ("0.4.3", "bf16", 17, 8),  # no operand to quantise
        ("0.4.5", "fp8-block", 5, 0),
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


def test_prompts_pay_for_the_chain_by_its_bytes_and_latents_by_a_product_each() -> None:
    """4,096 tokens on one of eight ranks, 128 heads each, of SGLang 0.4.3: 17 kernels of 128 values, read and written
    in 16 bits, and beside attention over latents 11 of 128 and 11 of 512 that quantise operands. Later ones have none.
    """
    run = {"gpu": "h200", "dp": 8, "ep": 8, "batch": 8, "prompt": 4096, "quant": "fp8-block"}
    nodes = {
        release: {
            t.node.name: t.node for t in rooflm.infer("deepseek-v3", engine=f"sglang-{release}", **run).timed["prefill"]
        }
        for release in ("0.4.3", "0.4.6")
    }
    old, new = nodes["0.4.3"], nodes["0.4.6"]
    assert float(old["latent_chain"].bytes) == 4 * 4096 * 128 * 17 * 128
    spent = [
        float(t.time)
        for told in ({}, {"engine.absorb_chain": 0})
        for t in rooflm.infer("deepseek-v3", engine="sglang-0.4.3", sets=told, **run).timed["prefill"]
        if t.node.name == "attention"
    ]
    assert spent[0] - spent[1] == pytest.approx(4 * 4096 * 128 * 11 * 640 / 4.8e12, rel=0.2)
    assert float(old["latent_chain"].launches) == 1
    assert "latent_chain" not in new and {"q_down", "kv_down"}.isdisjoint(new)
    assert old["q_down"].shape[1] + old["kv_down"].shape[1] == new["qkv_down"].shape[1] == 1536 + 576


def test_quantising_by_groups_took_a_block_a_group() -> None:
    """What SGLang's pull requests 4396 and 5045 measured of Triton's kernel: 45.6 ns more a token of 7,168 values, of
    which the tables of products hold 5 already; vLLM ran it until 0.10.1, and products of 16 bits never do."""
    run = {"gpu": "h200", "tp": 8, "batch": 1, "prompt": 2048}
    for quant, ns in (("fp8-block", 40.6), ("bf16", 0.0)):
        old, new = (
            {
                t.node.name: t.time
                for t in rooflm.infer("deepseek-v3", engine="vllm-0.8", quant=quant, sets=told, **run).timed["prefill"]
            }
            for told in ({}, {"engine.grouped_values": 0})
        )
        spent = (float(old["shared_gate_up"]) - float(new["shared_gate_up"])) / 0.95  # gemm_factor
        assert spent == pytest.approx(2048 * ns * 1e-9, rel=0.05, abs=1e-9)
        experts = float(old["experts"]) - float(new["experts"])
        assert experts > spent or quant == "bf16"
