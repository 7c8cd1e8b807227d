"""Plain PyTorch: narrow weights spread to 16 bits before many rows, caches joined anew, norms of many kernels."""

from typing import Any

import numpy as np
import pytest

from rooflm import infer
from rooflm.kernels.streaming import CAT_BYTES

LLAMA: dict[str, Any] = {"model": "llama-2-7b", "gpu": "a100", "prompt": 512, "output": 16}


def ops(phase: str, name: str, **asked: Any) -> list[Any]:
    return [t for t in infer(**LLAMA | asked).timed[phase] if t.node.name == name]


def total(found: list[Any]) -> float:
    return float(sum(np.mean(t.total) for t in found))


@pytest.mark.parametrize(("batch", "spread"), [(1, False), (2, True)])
def test_narrow_weights_of_many_rows_are_written_at_16_bits_first(batch: int, spread: bool) -> None:
    """NF4 of bitsandbytes in 4.36: its GEMV takes one row; from two rows on a kernel spreads the weights, and the
    product reads 2 bytes a value. Prompts always do."""
    there: dict[str, Any] = {"engine": "hf-eager-4.36", "quant": "int4", "batch": batch}
    steps, products = (ops("decode", name, **there) for name in ("unpack", "q"))
    assert (total(steps) > 0) == spread
    assert np.ravel(products[0].node.widths[0])[0] == pytest.approx(2.0 if spread else 0.5, rel=0.1)
    assert total(ops("prefill", "unpack", **there)) > 0


def test_a_spread_weight_is_read_narrow_and_written_wide() -> None:
    """By hand: an unpacked product's kernel moves its weight and 2 bytes a value; three more launches a product."""
    there: dict[str, Any] = {"engine": "hf-eager-4.36", "quant": "int4", "batch": 8}
    spread, product = (ops("decode", name, **there)[0].node for name in ("unpack", "q"))
    _, n, k, *_ = product.shape
    assert np.ravel(spread.bytes)[0] == pytest.approx(float(np.ravel(n * k)[0]) * 2.5, rel=0.05)
    plain = ops("decode", "q", **there | {"quant": "bf16"})[0].node
    assert np.ravel(product.launches)[0] == np.ravel(plain.launches)[0] + 3


def test_the_first_kernels_take_a_row_a_pass_and_the_second_eight() -> None:
    """Llama-65B by GPTQ on A100 (optimum-benchmark, December 2023), ms a step of 2, 4 and 8 sequences: ExLlama's first
    kernels 150, 264 and 268, which from eight rows on spread the weights; its second 76, 79 and 128, to 50 rows."""
    first, second = (
        [
            1e3 * float(infer("llama-65b", gpu="a100", engine="hf-eager-4.32", quant="gptq", batch=b, prompt=256,
                              output=512, sets=sets).tpot)
            for b in (2, 4, 8)
        ]
        for sets in ({}, {"engine.unpack_rows": "gptq:51", "engine.pass_rows": "gptq:8"})
    )  # fmt: skip
    assert first == pytest.approx([150, 264, 268], rel=0.12)
    assert second == pytest.approx([76, 79, 128], rel=0.2)


def test_a_narrow_cache_leaves_a_scheme_its_kernels() -> None:
    narrow, usual = (ops("decode", "unpack", engine="hf-eager-4.36", quant=q, batch=8) for q in ("int4kv8", "int4"))
    assert total(narrow) == total(usual) > 0


def test_eight_bit_products_of_a_library_of_many_kernels_take_the_hosts_time() -> None:
    """LLM.int8() of 4.36 on A10G: 0.19 and 0.207 s a token of Yi-6B and Mistral-7B (quanto pull request 62)."""
    there: dict[str, Any] = {"gpu": "a10g", "engine": "hf-eager-4.36", "quant": "int8", "prompt": 512, "output": 512}
    for model, measured in (("yi-6b", 0.19), ("mistral-7b", 0.207)):
        assert float(infer(model, batch=1, **there).tpot) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_passes_do_the_work_of_all_rows_once(batch: int) -> None:
    """A row a pass reads the weights anew and multiplies no more than one product of all rows."""
    there: dict[str, Any] = {"engine": "hf-eager-4.32", "batch": batch}
    narrow, plain = (ops("decode", "q", **there, quant=quant)[0].node for quant in ("gptq", "fp16"))
    assert float(narrow.flops * narrow.count) == pytest.approx(float(plain.flops * plain.count))
    assert float(narrow.count) == float(plain.count) * (batch if batch < 8 else 1)


@pytest.mark.parametrize(("engine", "quant"), [("hf-eager-4.36", "bf16"), ("vllm", "int4"), ("hf-eager-4.36", "fp8")])
def test_other_formats_and_engines_spread_nothing(engine: str, quant: str) -> None:
    assert not ops("prefill", "unpack", gpu="h100", engine=engine, quant=quant, batch=4)


def test_a_cache_is_joined_at_what_the_sms_give() -> None:
    """torch.cat: an element a thread. A cache of 16 sequences is copied at less than A100's memory gives."""
    found = infer(**LLAMA, engine="hf-eager-4.36", batch=16)
    device, copies = found.scenario.cluster.device, [t for t in found.timed["decode"] if t.node.name == "kv_write"]
    moved = sum(float(np.mean(t.node.bytes * t.node.count)) for t in copies)
    assert total(copies) == pytest.approx(moved / (CAT_BYTES * device.sms * device.clock), rel=0.1)
    assert total(copies) > 1.3 * moved / device.dram.bandwidth


def test_a_plain_norm_moves_36_bytes_a_value_in_serving() -> None:
    """To fp32, its square, the mean, the quotient, back to 16 bits, the weight: 36 bytes, in training as well."""
    norm = ops("prefill", "norm", engine="hf-eager-4.36", batch=1)[0].node
    assert float(np.ravel(norm.bytes)[0]) == pytest.approx(36 * 512 * 4096, rel=0.01)


def test_a_scheme_may_draw_weights_at_a_rate_of_its_own() -> None:
    """vLLM before Marlin for AWQ: csrc/quantization/awq draws fewer bytes a clock than a copy; GPTQ's is untouched."""
    for quant, slower in (("awq", True), ("gptq", False)):
        asked = LLAMA | {"engine": "vllm-2024", "quant": quant}
        own, usual = (infer(**asked, sets=sets).tpot for sets in ({}, {"engine.scheme_stream": ""}))
        assert (own > 1.1 * usual) is slower and (slower or own == usual), quant
