"""Small kernels of a decode step whose cache is narrower than its queries (docs/decisions/0524)."""

import pytest

import rooflm
from rooflm.graph.ops import Op


@pytest.mark.parametrize(
    ("gpu", "engine", "kernels"),
    [
        ("h200", "sglang", 5),  # K and V divided and cast, Q cast
        ("h200", "sglang-0.5.14", 5),
        ("a100", "sglang", 4),  # FlashInfer takes Q in 16 bits
        ("b200", "sglang", 1),  # one kernel writes both narrow
        ("mi300x", "sglang", 0),
        ("h200", "vllm", 0),  # written narrow by one kernel
        ("h200", "trtllm", 0),
    ],
)
def test_queries_keys_and_values_are_cast_for_a_narrow_cache(gpu: str, engine: str, kernels: int) -> None:
    found = [
        {t.node.name: t for t in rooflm.infer("llama-3.1-8b", gpu=gpu, quant=quant, engine=engine).timed["decode"]}
        for quant in ("bf16", "bf16kv8")
    ]
    assert "cache_chain" not in found[0]
    chain = found[1]["cache_chain"].node if "cache_chain" in found[1] else None
    assert (float(chain.launches) if isinstance(chain, Op) else 0) == pytest.approx(kernels)


def test_a_narrow_cache_is_slower_for_few_and_faster_for_many() -> None:
    """SGLang on H200: casts outweigh what a short cache saves, and 64 sequences of 16,384 tokens outweigh them."""
    few, many = (
        [
            rooflm.infer("qwen3-32b", gpu="h200", tp=2, engine="sglang", quant=q, batch=b, prompt=p).values()["tpot_s"]
            for q in ("fp8-block", "fp8-blockkv8")
        ]
        for b, p in ((1, 1024), (64, 16384))
    )
    assert 1.05 < few[1] / few[0] < 1.25
    assert many[1] < 0.9 * many[0]
