"""Elasticities against second evaluations, scaling laws and what must not matter."""

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.cli import main
from rooflm.errors import RooflmError
from rooflm.sweep.sensitivity import knobs, lines, sensitivity

CASE = {"gpu": "h100-sxm-80gb", "tp": 4, "batch": 16, "prompt": 1000, "output": 100}


@pytest.mark.parametrize("efficiency", ["calibrated", "0.7,0.9"])
@pytest.mark.parametrize(
    ("label", "path"),
    [
        ("memory bandwidth", "cluster.device.dram.bandwidth"),
        ("host: request", "engine.request"),
        ("nvlink4 latency", None),
    ],
)
def test_each_is_what_a_second_evaluation_says(efficiency, label, path):
    s = build_inference(model="llama-3.1-70b", efficiency=efficiency, engine="vllm", **CASE).scenario
    if path is None:
        label, path = f"{s.cluster.tiers[0].name} latency", "cluster.tiers.0.latency"
    found = sensitivity(rooflm.infer("llama-3.1-70b", efficiency=efficiency, engine="vllm", **CASE))
    from rooflm.asked import paths

    value = float(paths.get(s, path))
    for key, attribute in (("ttft_s", "ttft"), ("tpot_s", "tpot"), ("output_tokens_per_s", "output_tokens_per_s")):
        base = rooflm.infer("llama-3.1-70b", efficiency=efficiency, engine="vllm", **CASE)
        more = rooflm.infer("llama-3.1-70b", efficiency=efficiency, engine="vllm", sets={path: value * 1.01}, **CASE)
        expected = (float(getattr(more, attribute)) / float(getattr(base, attribute)) - 1) / 0.01
        assert found[key][label] == pytest.approx(expected, abs=1e-9)


def test_rates_and_overheads_of_a_time_sum_to_minus_one():
    """All rates times k and all overheads over k give every time over k (Euler's theorem, to first order)."""
    for case in (CASE, CASE | {"tp": 8, "batch": 1, "output": 2000}):
        s = build_inference(model="llama-3.1-70b", efficiency="0.7,0.9", engine="vllm", **case).scenario
        found = sensitivity(rooflm.infer("llama-3.1-70b", efficiency="0.7,0.9", engine="vllm", **case))
        sign = {k.label: 1 if k.rate else -1 for k in knobs(s)}
        for key in ("ttft_s", "tpot_s", "latency_s"):
            total = sum(sign[label] * e for label, e in found[key].items())
            assert total == pytest.approx(-1, abs=0.02)  # a step of one per cent, so second-order terms of that size


def test_more_of_a_rate_is_never_slower():
    found = sensitivity(rooflm.infer("mixtral-8x7b", gpu="a100-sxm-80gb", tp=2, batch=8))
    s = build_inference(model="mixtral-8x7b", gpu="a100-sxm-80gb", tp=2, batch=8).scenario
    for knob in knobs(s):
        if knob.rate or knob.label == "host: overlap of launches":
            assert found["latency_s"][knob.label] <= 1e-9
        else:
            assert found["latency_s"][knob.label] >= -1e-9


def test_memory_size_moves_the_largest_batch_only():
    found = sensitivity(rooflm.infer("llama-7b", gpu="a100-sxm-80gb"))
    assert found["max_batch"]["memory size"] > 0.5 and found["tpot_s"]["memory size"] == 0


def test_training():
    found = sensitivity(
        rooflm.train("gpt3-175b", gpu="a100-sxm-80gb", gpus=64, tp=8, pp=8, batch=64, efficiency="0.5,0.8")
    )
    assert -1 <= found["step_time_s"]["compute"] < -0.5 and found["mfu"]["compute"] < 0


def test_table_and_command_line(capsys):
    rows = lines(sensitivity(rooflm.infer("llama-7b", gpu="a100-sxm-80gb", efficiency="ideal")))
    assert rows[0][0] == "1 % more of" and any(r[0] == "memory bandwidth" for r in rows)
    assert main(["infer", "llama-7b", "--gpu", "a100", "--sensitivity"]) == 0
    assert "1 % more of" in capsys.readouterr().out
    assert main(["infer", "llama-7b", "--gpu", "a100", "--batch", "1,2", "--sensitivity"]) == 2
    with pytest.raises(RooflmError, match="did you mean"):
        sensitivity(rooflm.infer("llama-7b", gpu="a100-sxm-80gb"), outputs=("ttfts",))


def test_an_output_of_nothing_has_no_elasticity():
    """Where no batch fits, the largest batch is 0, and one per cent of it is nothing."""
    e = rooflm.infer("llama-2-70b", gpu="a100")
    assert float(e.max_batch) == 0
    table = sensitivity(e)
    assert "max_batch" not in table and all(np.isfinite(v) for row in table.values() for v in row.values())


def test_launch_costs_move_kernels_that_know_them():
    """DeepSeek's prefill attention has another floor where launches are slow: a comparison of values, not a branch."""
    table = sensitivity(rooflm.infer("deepseek-v3.2", gpu="h200", gpus=8))
    assert np.isfinite(table["ttft_s"]["compute"])


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_two_cards_of_one_chip_gain_alike_from_compute(dtype: str) -> None:
    # H100 and H200 multiply alike: no operand feed stands below the datasheet's rate of one of them
    case = {"gpus": 8, "batch": 64, "seq": 8192, "dtype": dtype, "recompute": "full"}
    steps = [sensitivity(rooflm.train("llama-3.1-8b", gpu=gpu, **case))["step_time_s"] for gpu in ("h100", "h200")]
    assert steps[0]["compute"] == pytest.approx(steps[1]["compute"], abs=0.1)
    assert max(step["compute"] for step in steps) < -0.49  # products run at the power limit: cube root of W a FLOP/s
