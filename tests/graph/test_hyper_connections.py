"""Streams of a residual, which hyper-connections mix around each half of a layer, and parts that stay in 8 bits."""

from __future__ import annotations

from typing import Any

import pytest

import rooflm
from rooflm.catalogue.quant import Quant
from rooflm.readers.schemes import PRESETS, as_run

MIXED = ("mix", "mix_in", "mix_out")


def of(part: str, **given: object) -> dict[str, tuple[float, float]]:
    """Executions and bytes of each mixing op of a pass of DeepSeek-V4-Flash, by name."""
    e = rooflm.infer("deepseek-v4-flash", gpu="h200", gpus=4, tp=4, engine="vllm", prompt=1024, **given)
    found: dict[str, tuple[float, float]] = {}
    for t in (t for t in e.timed[part] if t.node.name in MIXED):
        count, _ = found.get(t.node.name, (0.0, 0.0))
        found[t.node.name] = (count + float(t.node.count), float(t.node.bytes))
    return found


@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_each_half_of_a_layer_reads_and_writes_all_streams(part: str) -> None:
    """Two mixtures a layer of 43; the four streams of a token, and the half's input or output, of 4,096 in 16 bits."""
    ops, tokens = of(part), 1024 if part == "prefill" else 1
    assert {name: ops[name][0] for name in MIXED} == dict.fromkeys(MIXED, 86)
    assert ops["mix_in"][1] == tokens * 5 * 4096 * 2
    assert ops["mix_out"][1] == tokens * 9 * 4096 * 2
    assert ops["mix"][1] == 24 * 4 * 4096 * 4 + tokens * (4 * 4096 * 2 + 24 * 4)


def test_a_model_of_one_stream_mixes_nothing() -> None:
    """Its norms add the residual, and may stand inside an all-reduce, which they cannot behind mixtures."""
    ops = of("decode", sets={"model.streams": 1})
    assert not ops
    one, four = (rooflm.infer("deepseek-v4-flash", gpu="h200", gpus=4, tp=4, sets={"model.streams": n}) for n in (1, 4))
    assert one.tpot < four.tpot
    times = [sum(float(t.time * t.node.count) for t in e.timed["decode"] if t.node.name == "norm") for e in (one, four)]
    assert 10 * times[0] < times[1]


def test_a_stage_sends_all_streams() -> None:
    asked: Any = {"gpu": "h200", "gpus": 8, "tp": 4, "pp": 2, "prompt": 1024}
    one, four = (rooflm.infer("deepseek-v4-flash", sets={"model.streams": n}, **asked) for n in (1, 4))
    sent = [next(t.node.bytes for t in e.timed["prefill"] if t.node.name == "pp_send") for e in (one, four)]
    assert sent == [1024 * 4096 * 2, 4 * 1024 * 4096 * 2]


def test_what_stays_wider_than_experts_is_multiplied_in_8_bits_where_units_know_them() -> None:
    """Fp8 units: blocks of fp8 beside 16-bit activations of 4-bit experts; none: 16 bits of all."""
    hopper = as_run(PRESETS["mxfp4a8-fp8"], {"bf16": 1.0, "fp8": 2.0})
    ampere = as_run(PRESETS["mxfp4a8-fp8"], {"bf16": 1.0, "int8": 2.0})
    assert (hopper.act_bits, hopper.rest_act_bits, ampere.rest_act_bits) == (16, 8, 0)
    assert hopper.rates == {"attention": "rest", "mlp": "rest", "shared": "rest", "experts": "quant"}
    assert ampere.rates["attention"] == "half"
    assert hopper.widths["attention"] == (8.001953125 / 8, 1.0, 2.0)
    assert Quant("mxfp4", 4, wide=("attention",)).widths["attention"] == (2.0, 2.0, 2.0)
