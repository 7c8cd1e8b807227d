"""MLA kernels: float, array and broadcast agree; ideal limits by hand; physics; measured points."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import DEVICES, H200, IDEAL_MLA_DECODE, IDEAL_MLA_PREFILL, by_rates, load_constants

from rooflm import infer
from rooflm.asked.build_inference import build_inference
from rooflm.estimate.capacity import running
from rooflm.estimate.request import prefill_context
from rooflm.graph.forward import build
from rooflm.kernels import mla
from rooflm.kernels.constants import lookup, typed
from rooflm.kernels.derating import derating
from rooflm.kernels.lookup import Where, in_graphs
from rooflm.kernels.mla import MlaDecodeConstants, MlaLatentsConstants, MlaPrefillConstants, latents_prefill_time
from rooflm.kernels.roofline import time_nodes
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_device
from rooflm_fit.attention import HOT_GAIN
from rooflm_fit.common import hot_share

mla_prefill_time, mla_decode_time = by_rates(mla.mla_prefill_time), by_rates(mla.mla_decode_time)
WARM = {"trtllm": (50e6 * 0.01, 40e6 * 0.4902, 126e6 * 0.01), "sglang": (50e6 * 0.3739,)}
"""B of L2 that the benchmark kept warm on H200, A100 and B200, as fitted with the constants."""


def constants(kind: str, gpu: str = "h200-sxm-141gb", engine: str = "trtllm", dtype: str = "bf16") -> Any:
    row = lookup("mla", gpu, DEVICES[gpu][0], engine, dtype, kind).row
    return typed(MlaDecodeConstants if kind == "mla-decode" else MlaPrefillConstants, row)


def prefill(batch: Any, new: Any, past: Any = 0, heads: Any = 16, **kw: Any) -> Any:
    return mla_prefill_time(batch, new, past, heads, **{"q_bytes": 2, **H200, "c": constants("mla-prefill"), **kw})


def decode(batch: Any, length: Any, heads: Any = 16, **kw: Any) -> Any:
    return mla_decode_time(batch, length, heads, **{"kv_bytes": 2, **H200, "c": constants("mla-decode"), **kw})


def test_float_array_and_broadcast_agree() -> None:
    batches, lengths = np.array([1.0, 7.0, 64.0]), np.array([[1.0], [300.0], [4096.0]])
    for f in (prefill, decode):
        grid = f(batches, lengths)
        assert grid.shape == (3, 3)
        for (i, j), value in np.ndenumerate(grid):
            assert value == pytest.approx(float(f(batches[j], lengths[i, 0])), rel=1e-12)


def test_ideal_by_hand() -> None:
    """Prefill: 2 (192 + 128) FLOPs a score and head. Decode: 576 values a token, or FLOPs."""
    scores = 8 * 16 * 4096 * 4097 / 2
    assert prefill(8, 4096, c=IDEAL_MLA_PREFILL) == pytest.approx(640 * scores / 989e12, rel=1e-3)
    assert decode(64, 8192, c=IDEAL_MLA_DECODE) == pytest.approx(64 * 8192 * 1152 / 4800e9, rel=1e-3)
    flops = 66 * 2 * 8192 * 128 * 2176
    assert decode(132, 8192, 128, kv_bytes=1, c=IDEAL_MLA_DECODE) == pytest.approx(flops / 989e12, rel=1e-3)
    more = prefill(8, 4096, c=IDEAL_MLA_PREFILL, beside=1e-3) - prefill(8, 4096, c=IDEAL_MLA_PREFILL)
    assert more == pytest.approx(1e-3)


def test_heads_share_the_latent() -> None:
    """Up to a block's heads, decode costs the same; all heads of DeepSeek-V3 at most a few times one head."""
    assert decode(32, 8192, 1) == pytest.approx(float(decode(32, 8192, 16)))
    assert decode(32, 8192, 128) < 4 * decode(32, 8192, 1)


def test_host_floor() -> None:
    """vLLM's rows hold the host's time of an eager call; without it the kernel remains."""
    c = constants("mla-decode", engine="vllm")
    assert decode(1, 128, c=c) > 1e-4 > decode(1, 128, c=c._replace(floor_s=0.0))


@given(
    st.integers(1, 128), st.integers(1, 20000), st.sampled_from([1, 16, 128]), st.floats(1.01, 4),
    st.sampled_from(sorted(DEVICES)),
)  # fmt: skip
def test_a_better_device_is_never_slower(batch: int, length: int, heads: int, more: float, gpu: str) -> None:
    device = DEVICES[gpu][1]
    for f, kind in ((prefill, "mla-prefill"), (decode, "mla-decode")):
        options = {**device, "c": constants(kind, gpu)}
        args = (batch, length, 0, heads) if f is prefill else (batch, length, heads)
        for name in ("peak", "bandwidth"):
            assert f(*args, **{**options, name: device[name] * more}) <= f(*args, **options) * (1 + 1e-9)


MEASURED = [
    # kind, gpu, engine, cache, batch, length, heads, us: ai-dynamo/aiconfigurator@095f58a (Apache-2.0)
    ("mla-prefill", "h200-sxm-141gb", "trtllm", "bf16", 8, 4096, 16, 1244.3),
    ("mla-prefill", "a100-sxm-80gb", "trtllm", "bf16", 8, 4096, 16, 4605.0),
    ("mla-decode", "h200-sxm-141gb", "trtllm", "bf16", 8, 4096, 16, 23.1),
    ("mla-decode", "h200-sxm-141gb", "sglang", "bf16", 64, 8192, 16, 160.8),
    ("mla-decode", "a100-sxm-80gb", "trtllm", "bf16", 8, 4096, 16, 509.6),
    ("mla-decode", "b200-sxm-180gb", "trtllm", "fp8", 64, 8192, 128, 73.6),
]


@pytest.mark.parametrize("point", MEASURED, ids=lambda p: "-".join(str(x) for x in p[:5]))
def test_measured_points(point: tuple[str, str, str, str, int, int, int, float]) -> None:
    """Single points within 2.5 times the usual mean error, as the benchmark runs: with what fits of the KV in L2."""
    kind, gpu, engine, cache, batch, length, heads, us = point
    options = {**DEVICES[gpu][1], "c": constants(kind, gpu, engine, cache)}
    if kind == "mla-prefill":
        got = prefill(batch, length, 0, heads, **options)
    else:
        width = 1 if cache == "fp8" else 2
        warm = dict(zip(("h200-sxm-141gb", "a100-sxm-80gb", "b200-sxm-180gb"), WARM[engine], strict=False))[gpu]
        hot = float(hot_share(batch * length * 576 * width, warm, 1.0))
        options["c"] = options["c"]._replace(eff_m=options["c"].eff_m / (1 - HOT_GAIN * hot))
        got = decode(batch, length, heads, kv_bytes=width, **options)
    assert float(got) * 1e6 == pytest.approx(us, rel=0.25)


def test_rows_are_complete() -> None:
    rows = load_constants("mla")
    assert {r.architecture for r in rows} >= {"ampere", "ada", "hopper", "blackwell", "blackwell-rtx"}
    for row in rows:
        kinds = {
            "mla-decode": MlaDecodeConstants,
            "mla-decode-triton": MlaDecodeConstants,
            "mla-decode-picked": MlaDecodeConstants,
            "mla-sparse": MlaLatentsConstants,
            "mla-prompts-triton": MlaLatentsConstants,
        }
        typed(kinds.get(row.kernel, MlaPrefillConstants), row)
        assert len(row.constants) <= 13
        assert 0 < row.mape_in < 100 and 0 < row.mape_out < 100


def test_prompts_beyond_what_an_indexer_picks_attend_over_latents() -> None:
    """Every query reads latents of its own choice, of heads padded to a block: longer prompts cost more than a dense
    kernel over so few heads, shorter ones the same (the two models differ by the indexer alone); all in one
    pass."""

    def attention(model: str, prompt: int) -> float:
        e = infer(model, gpu="h200", engine="sglang", quant="fp8", tp=8, batch=1, prompt=prompt, output=8,
                  sets={"engine.token_budget": 16384})  # fmt: skip
        return float(sum(t.total for t in e.timed["prefill"] if t.node.name == "attention"))

    assert attention("deepseek-v3.2", 2048) == pytest.approx(attention("deepseek-v3", 2048))
    assert attention("deepseek-v3.2", 8192) > 2 * attention("deepseek-v3", 8192)
    assert attention("deepseek-v3.2", 8192) < attention("deepseek-v3.2", 9216)


def test_sparse_prefill_is_of_the_models_latent_in_blocks_of_64_heads():
    """FLOPs: 2 (2 latent + rope) a score; 65 heads take two blocks; half a latent nearly half the time."""
    time = partial(latents_prefill_time, 1, 8192, 0, picked=2048, c=MlaLatentsConstants(64, 0.65), peak=1e15)
    assert time(65) == time(128) == 2 * time(64) == 2 * time(8)
    assert time(64, latent=256, rope=64) / time(64) == pytest.approx(576 / 1088)
    model = load_model("deepseek-v3.2")
    narrow = replace(model, blocks=tuple(replace(b, mixer=replace(b.mixer, kv_rank=256)) for b in model.blocks))
    whole, half = (attention_of(m) for m in (model, narrow))
    assert half / whole == pytest.approx(576 / 1088)


def test_blocks_on_instinct_are_of_16_heads():
    """8,192 tokens that pick 2,048 each, 8 or 16 heads a rank on MI355X: 0.955 to 1.076 ms a layer by
    aiter's kernel (ROCm/aiter pull request 4919); TileLang's takes 2.30 ms for 8,148 that all pick 2,048 (SGLang, pull
    request 37847), which is 1.98 for these. All 64 heads are bound by their products."""

    def layer(engine: str, tp: int) -> float:
        e = infer("glm-5", gpu="mi355x", engine=engine, quant="fp8", tp=tp, batch=1, prompt=8192, output=8)
        ops = [t for t in e.timed["prefill"] if t.node.name == "attention"]
        return float(sum(t.total for t in ops) / sum(t.node.count for t in ops)) * 1e3

    assert layer("atom", 8) == pytest.approx(1.07, rel=0.1) == layer("vllm", 4)
    assert layer("sglang", 4) == pytest.approx(1.98, rel=0.1)
    assert layer("atom", 4) < layer("atom", 1) < 2.5 * layer("atom", 4)


def test_an_indexer_scores_and_chooses_by_a_kernel_each():
    """275 GFLOP of scores on MI355X at some 1,050 TFLOP/s (927 to 1,152: ROCm/aiter pull request 5434); the
    choice reads them three times, 403 MB."""
    e = infer("glm-5", gpu="mi355x", engine="vllm", quant="fp8", tp=8, batch=1, prompt=8192, output=8)
    scores, choice = (
        next(t for t in e.timed["prefill"] if t.node.name == f"index_{name}") for name in ("scores", "topk")
    )
    assert 275e9 / (float(scores.total) / scores.node.count) == pytest.approx(1.05e15, rel=0.1)
    assert float(choice.node.bytes) == pytest.approx(403e6, rel=0.01)


def attention_of(model):
    """Seconds of prefill attention on the most of which an indexer picks."""
    s = build_inference(model, gpu="h200", tp=8, batch=1, prompt=65536, quant="fp8").scenario
    run = running(s)
    nodes = build(prefill_context(s, run.sequences / run.passes))
    return time_nodes([n for n in nodes if getattr(n, "kind", "") == "mla_attention"], s)[0].time


def test_a_server_that_is_told_to_decode_with_triton_is_as_slow_as_its_kernels() -> None:
    """Triton's latent attention always cuts a cache into eight: some heads share a block, and few blocks share a long
    cache. It was measured on cards where SGLang takes it by itself (mla.parquet, L40S: 16 heads of 64 sequences of
    4,096 tokens take 470 us)."""

    def steps(gpu: str, sets: dict[str, Any] | None, quant: str = "bf16") -> Any:
        shape: dict[str, Any] = {"batch": np.array([1, 64]), "prompt": 4096, "output": 2, "quant": quant}
        return np.asarray(infer("glm-4.7-flash", gpu=gpu, engine="sglang", sets=sets, **shape)["tpot_s"])

    told = {"engine.attention": "triton"}
    usual, triton = steps("b200", None), steps("b200", told)
    assert np.all(triton > 1.05 * usual)
    assert np.all(steps("b200", told, "bf16kv8") <= triton)  # it widens a narrow cache inside
    assert np.allclose(steps("l40s", told), steps("l40s", None), rtol=0.05)  # its own there


@pytest.mark.parametrize(
    ("card", "heads", "batch", "keys", "kv_bytes", "us"),
    [  # ROCm/aiter pull requests 2039, 3072, 5456
        ("mi355x", 32, 16, 4096, 2, 34.8), ("mi355x", 32, 128, 65536, 2, 1638), ("mi355x", 32, 64, 4096, 1, 48.9),
        ("mi355x", 128, 64, 23333, 1, 404), ("mi355x", 128, 64, 21, 1, 15.1), ("mi300x", 128, 32, 21, 1, 17.4),
    ],
)  # fmt: skip
def test_aiters_kernel_on_instinct_takes_what_its_pull_requests_print(
    card: str, heads: int, batch: int, keys: int, kv_bytes: int, us: float
) -> None:
    """The same in each engine, whose library it is."""
    device = load_device(card)
    at = Where(card, device.kernel_generation, "vllm", "fp8_block", "bf16")
    (c,) = in_graphs(at, "fp8" if kv_bytes == 1 else "bf16", "mla-decode")
    assert in_graphs(at._replace(kernels="sglang"), "fp8", "mla-decode") == (c,)
    reached = derating(device)
    t = mla_decode_time(
        batch, keys, heads, kv_bytes=kv_bytes, peak=device.peak["bf16"] * reached.compute, sms=device.sms,
        bandwidth=device.dram.bandwidth * reached.bandwidth, c=c._replace(floor_s=0.0),
    )  # fmt: skip
    assert t * 1e6 == pytest.approx(us, rel=0.15)


def test_a_card_without_tables_takes_no_eager_table_for_a_kernel_in_graphs() -> None:
    """vLLM's set over all cards starts in 48 us, since its tables were measured launch by launch; on CDNA 2, which no
    table holds, graphs of any engine replay what others were measured with."""
    own = lookup("mla", "mi250-gcd", "cdna2", "vllm", "bf16", "mla-decode").row
    assert typed(MlaDecodeConstants, own).launch_s > 40e-6
    for engine in ("vllm", "sglang"):
        at = Where("mi250-gcd", "cdna2", engine, "fp8_block", "bf16")
        found = in_graphs(at, "bf16", "mla-decode")
        assert found and all(c.launch_s < 10e-6 for c in found)
    cards = ("l40s", "rtx-4090", "gb10")  # Triton's widens a narrow cache
    for e in ("vllm", "sglang", "lmdeploy"):
        wide, narrow = (
            [infer("deepseek-v2-lite", gpu=card, engine=e, quant=q, prompt=4096).tpot for card in cards]
            for q in ("bf16", "bf16kv8")
        )
        assert narrow == pytest.approx(wide, rel=0.1)
    each = [
        infer("deepseek-v3", gpu="mi355x", tp=8, batch=4, engine=e, quant="fp8-block", output=64).decode_parts[
            "attention"
        ]
        for e in ("vllm", "sglang")
    ]
    assert each[0] == pytest.approx(each[1], rel=0.25)


def test_prompts_over_a_narrow_cache_run_in_8_bits_where_the_release_turns_them() -> None:
    """SGLang from 0.5.7 on and TensorRT-LLM from 1.2 on, on Blackwell (docs/decisions/0164): measured alone 4.15 and
    3.06 ms for 32,768 tokens of 16 heads on B200, 3.6 and 2.3 on B300, whose softmax takes half as long."""

    def prompt(engine: str, gpu: str, cache: int) -> float:
        told = {"engine": engine, "gpu": gpu, "quant": f"fp8-blockkv{cache}"}
        return infer("deepseek-v3", tp=8, prompt=32768, output=1, **told).prefill_parts["attention"]

    def gain(engine: str, gpu: str = "b200") -> float:
        return prompt(engine, gpu, 16) / prompt(engine, gpu, 8)

    new = {gpu: gain("sglang", gpu) for gpu in ("b200", "b300", "h200")}
    assert 1.1 < new["b200"] < new["b300"] < 2.0 and new["h200"] < 1.05
    assert gain("sglang-0.5.8") == pytest.approx(new["b200"], rel=0.05) and gain("trtllm") > 1.1
    assert max(gain(e) for e in ("sglang-0.5.5", "trtllm-1.0", "vllm")) < 1.05


@pytest.mark.parametrize("gpu", ["b200-sxm-180gb", "b300-sxm-288gb"])
def test_8_bit_prompts_take_the_time_that_was_measured(gpu: str) -> None:
    row = lookup("mla", gpu, "blackwell", "sglang", "fp8", "mla-prefill").row
    c: Any = typed(MlaPrefillConstants, row)
    half, bandwidth, exponentials, times = {
        "b200-sxm-180gb": (2250e12, 7700e9, 1.0, {16384: 900e-6, 32768: 3065e-6}),
        "b300-sxm-288gb": (2500e12, 7700e9, 0.5, {16384: 671e-6, 32768: 2274e-6}),
    }[gpu]
    c = c._replace(softmax_dim=c.softmax_dim * exponentials)
    for tokens, seconds in times.items():
        time = mla_prefill_time(1, tokens, 0, 16, q_bytes=1, peak=half, bandwidth=bandwidth, sms=148, c=c)
        assert time == pytest.approx(seconds, rel=0.15)


def test_triton_cuts_latents_by_length_since_2026() -> None:
    """Kimi-Linear on four RTX PRO 6000 (gke-ai-infrastructure, vLLM 0.29): half a million tokens of context took 3.1 ms
    a token more than 8,192. In four blocks, as before pull request 33529, most SMs have nothing to read."""

    def tpot(prompt: int, engine: str) -> float:
        return float(infer("kimi-linear-48b-a3b", gpu="rtx-pro-6000-server-96gb", gpus=4, tp=4, batch=1,
                           prompt=prompt, output=128, engine=engine, sets=experts).tpot)  # fmt: skip

    experts = {"engine.experts": "cutlass"}  # Triton's until 0.19
    assert 2e-3 < tpot(524288, "vllm") - tpot(8192, "vllm") < 6e-3
    assert tpot(524288, "vllm-0.14") > 4 * tpot(524288, "vllm")
    assert tpot(1024, "vllm") < tpot(1024, "vllm-0.14")


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_older_cards_take_the_latent_kernels_of_the_nearest_generation(engine: str) -> None:
    """Not the mean of all, most of which are newer: a V100 decoded TensorRT-LLM's latents 14 times as fast as an A100.
    What multiplies 16-bit floats of one kind multiplies the other as fast."""
    near, far = (
        in_graphs(Where("", generation, engine, half, half), half, "mla-decode")
        for generation, half in (("ampere", "bf16"), ("volta", "fp16"))
    )
    assert near == far
