"""Where an engine runs experts on kernels that are not its fastest, or they would do better over all ranks, the answer
says so."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm import infer
from rooflm.cli.app import main

ASKED: dict[str, Any] = {"gpu": "b200", "gpus": 4, "engine": "trtllm", "quant": "nvfp4", "batch": 64}


def test_faster_kernels_for_experts_are_told_with_what_they_would_take() -> None:
    told = infer("qwen3-235b-a22b", **ASKED)
    other = infer("qwen3-235b-a22b", **ASKED, sets={"engine.experts": "trtllm"})
    assert told.on_other_experts is not None and other.on_other_experts is None
    library, answer = told.on_other_experts
    assert library == "trtllm" and answer.latency == other.latency < 0.9 * told.latency


def test_it_is_one_sentence_of_the_answer_and_none_without_experts(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--gpu", "b200", "--gpus", "4", "--engine", "trtllm", "--quant", "nvfp4", "--batch", "64"]
    assert main(["infer", "qwen3-235b-a22b", *line]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "trtllm runs these experts on cutlass kernels unless told otherwise; on trtllm kernels" in out
    assert "--set engine.experts=trtllm." in out
    assert main(["infer", "llama-3.1-70b", *line]) == 0
    assert "experts" not in capsys.readouterr().out
    assert infer("qwen3-235b-a22b", **{**ASKED, "batch": [1, 64]}) is not None


def test_experts_over_all_ranks_are_told_where_a_tensor_group_makes_far_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rack: dict[str, Any] = {"gpu": "gb200", "quant": "nvfp4", "batch": 1024}
    told = infer("deepseek-r1", **rack, gpus=72)
    other = infer("deepseek-r1", **rack, dp=64, ep=64)
    apart = told.with_experts_apart
    assert apart is not None and apart.output_tokens_per_s == pytest.approx(other.output_tokens_per_s, rel=0.02)
    assert (
        other.with_experts_apart is None
        and infer("deepseek-r1", **{**rack, "batch": 1}, gpus=72).with_experts_apart is None
    )
    assert infer("llama-3.1-405b", gpu="h100", gpus=16, batch=64).with_experts_apart is None
    assert main(["infer", "deepseek-r1", "--gpu", "gb200", "--gpus", "72", "--quant", "nvfp4", "--batch", "1024"]) == 0
    assert "By dp 64 and ep 64, on 64 of the GPUs, it would make" in " ".join(capsys.readouterr().out.split())
