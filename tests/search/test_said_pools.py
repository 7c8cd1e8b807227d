"""What a search under load prints where its points differ in kind, or have no time per output token."""

from __future__ import annotations

import pytest

from rooflm.cli.app import main

FEW = ["search", "infer", "llama-3.1-8b", "--gpu", "h100", "--tp", "1", "--pp", "1", "--concurrency", "8"]
POOLS = [*FEW, "--gpus", "2", "--engine", "sglang", "--pools", "--prompt", "2000", "--output", "100"]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that must succeed prints."""
    assert main(words) == 0
    return capsys.readouterr().out


def test_points_with_and_without_pools_are_simulated_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Simulated (estimate)" in printed([*POOLS, "--confirm", "1", "--prefill-gpu", "h200"], capsys)


def test_one_output_token_has_no_time_per_output_token(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*FEW, "--gpus", "1", "--engine", "vllm", "--output", "1", "--confirm", "1", "--spread", "1,1"]
    assert "Simulated (estimate)" in printed(words, capsys)


def test_the_best_without_pools_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Where it is the best of all, its figures stand above already."""
    apart = printed([*POOLS, "--confirm", "0", "--prefill-gpu", "h200"], capsys)
    assert "prefill 1 x" in apart.split("\n")[0] and "without pools: " in apart
    slow = printed([*POOLS, "--confirm", "0", "--transfer-bandwidth", "10MB/s"], capsys)
    assert "pools are no better" in slow and "without pools: " not in slow
