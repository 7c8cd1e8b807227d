"""What `rooflm train` shows of a step: bounds, parts of the model, operations, FLOPs alone; W2 to W6 of the checks."""

from __future__ import annotations

import json

import pytest

from rooflm import Model, infer, train
from rooflm.catalogue.model import MLP, Attention, Block
from rooflm.cli import main

STEP = ["train", "llama-2-7b", "--gpu", "a100", "--gpus", "8", "--tp", "2", "--batch", "64"]


def test_parts_and_operations_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, "--parts", "--ops", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"attention", "mlp", "norm", "embedding", "logits", "tp_comm"} == {r["part"] for r in told["parts"]}
    for row in told["parts"]:
        assert row["forward"] + row["backward"] + row["recompute"] == pytest.approx(row["time_s"])
        assert told["components_s"][row["part"]] == pytest.approx(row["time_s"])
    compute = sum(v for k, v in told["parts_s"].items() if k in ("forward", "backward", "recompute"))
    assert sum(r["time_s"] for r in told["parts"] if r["part"] != "tp_comm") == pytest.approx(compute)
    assert told["bound"].keys() == {"forward", "backward", "step"}
    assert {r["phase"] for r in told["ops"]} == {"forward", "backward", "update"}
    assert main([*STEP, "--parts", "--ops"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "Bound by" in out and "embedding" in out and "gate up wgrad" in out


def test_a_host_that_binds_is_called_by_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "qwen3-8b", "--gpu", "h100", "--gpus", "16", "--tp", "8", "--engine", "megatron-bridge"]
    assert main([*words, "--batch", "64"]) == 0
    assert "step      the CPU that launches" in capsys.readouterr().out


def test_tokens_of_a_grid_are_shown_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, "--tokens", "1T,300B,1234567890"]) == 0
    assert [r.split()[0] for r in capsys.readouterr().out.splitlines()[1:4]] == ["1T", "300B", "1234567890"]


def test_flops_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STEP, "--tokens", "1T", "--flops-only", "--efficiency", "0.5,0.9", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    e = train("llama-2-7b", gpu="a100", gpus=8, tp=2, batch=64, tokens=1e12, efficiency="0.5,0.9")
    assert told["flops_gpu_hours"] == pytest.approx(e.steps * e.flops_time * 8 / 3600)
    assert e.steps == round(e.steps) == 7629395
    assert main([*STEP, "--flops-only"]) == 0
    assert "FLOPs alone" in capsys.readouterr().out
    for more, said in ((["--parts"], "give one of them"), (["--micro-batch", "1,2"], "--outputs")):
        assert main([*STEP, "--flops-only", *more]) == 2
        assert said in capsys.readouterr().err


def test_products_take_the_efficiency_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    times = {}
    for efficiency in ("ideal", "0.5,0.9", "calibrated"):
        arguments = ["explore", "gemms", "llama-2-13b", "--gpu", "a100", "--efficiency", efficiency, "--json"]
        assert main(arguments) == 0
        times[efficiency] = json.loads(capsys.readouterr().out)["columns"]["time_s"]
    assert all(a < b for a, b in zip(times["ideal"], times["0.5,0.9"], strict=True))
    assert all(a < b for a, b in zip(times["ideal"], times["calibrated"], strict=True))


def test_factors_without_effect_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "llama-2-7b", "--gpu", "a100", "--set", "efficiency.compute=0.5,0.7,1"]) == 2
    assert "has no effect" in capsys.readouterr().err


def test_every_output_that_is_asked_for_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "comm_bytes,memory_bytes,latency_s,max_batch"
    assert main(["infer", "llama-2-7b", "--gpu", "a100", "--batch", "1,8", "--tp", "2", "--outputs", asked]) == 0
    out = capsys.readouterr().out
    assert "GiB" in out and "latency" in out and "max_batch" in out and "e+0" not in out


def test_headings_of_asked_outputs_are_words(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "energy_j_per_token,mbu,busy,power_w"
    assert main(["infer", "llama-2-7b", "--gpu", "a100", "--batch", "1,8", "--outputs", asked]) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["batch", "energy/token", "MBU", "GPU", "busy", "power/GPU"] and row.count("%") == 2


def test_the_ideal_engine_is_the_lower_bound() -> None:
    times = [float(infer("llama-2-7b", gpu="a100-sxm-80gb", engine=e).tpot) for e in ("ideal", "vllm", "trtllm")]
    assert times[0] == min(times)


def test_a_v100_trains_as_fast_as_was_measured() -> None:
    """Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 5.1): 1.2B parameters (40 layers of 1536, 16 heads, 8
    sequences of 1024) sustain 39 TFLOP/s on one V100 of DGX-2H (450 W; sixteen make its data sheet's 2.1
    PFLOP/s), activations recomputed; 30 % of its peak. In no fit."""
    block = Block(40, Attention(16, 16, 96), MLP(4 * 1536, False))
    model = Model("1.2b", 1536, 51200, (block,), tied=True)
    card = {"cluster.device.tdp": 450, "cluster.device.peak.fp16": 2.1e15 / 16}
    e = train(model, gpu="v100-sxm-32gb", gpus=1, batch=8, micro_batch=8, seq=1024, dtype="fp16", recompute="full",
              engine="megatron-2021", sets=card)  # fmt: skip
    assert bool(e.fits) and float(e.model_tflops_per_gpu) == pytest.approx(39, rel=0.06)


@pytest.mark.parametrize(("said", "name"), [("gpt-22b", "megatron-22b"), ("gpt-175b", "gpt3-175b"),
                                            ("gpt-310b", "megatron-310b"), ("gpt-1008b", "megatron-1t")])  # fmt: skip
def test_the_works_spellings_are_understood(said: str, name: str) -> None:
    assert infer(said, gpu="h100", tp=8, pp=8).scenario.model.name == name
