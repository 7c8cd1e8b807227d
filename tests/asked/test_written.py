"""Numbers as people write them: 8k, 128K, 1M, 30m, 20000 h, 2.5 Gb/s, wherever one is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflm
from rooflm.asked import quantities
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.readers.quantities import parse


def test_lengths_in_python_lists_and_paths() -> None:
    plain = rooflm.infer("llama-3.1-8b", gpu="h100", prompt=8192, output=1024, batch=4)
    assert rooflm.infer("llama-3.1-8b", gpu="h100", prompt="8k", output="1K", batch="4").latency == plain.latency
    grid = rooflm.infer("llama-3.1-8b", gpu="h100", prompt=["8k", "32k", 128 * 1024])
    assert grid["prompt"].values.tolist() == [8192, 32768, 131072]
    sets = {"workload.prompt": "8k", "workload.output": "1k", "workload.batch": "4"}
    assert rooflm.infer("llama-3.1-8b", gpu="h100", sets=sets).latency == plain.latency
    assert rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch="1k", seq="8k", tokens="15T").steps > 1e6
    found = rooflm.search_infer("llama-3.1-8b", gpu="h100", gpus=1, prompt="8k", batch="1..4", ttft="30m")
    assert found.points == 4
    served = rooflm.serve("llama-3.1-8b", gpu="h100", rate="600/min", requests="0.1k", prompt="1k", output="16")
    assert served.values()["requests"] == 100


def test_days_hours_bits_and_shares() -> None:
    run = rooflm.train("llama-3.1-8b", gpu="h100", gpus=64, batch=64, tokens="1T", sets={"training.mtbf": "20000 h"})
    assert run.scenario.training.mtbf == 7.2e7
    e = rooflm.infer("llama-3.1-8b", gpu="h100", gpus=2, sets={"cluster.tiers.0.bandwidth": "2.5 Gb/s"})
    assert e.scenario.cluster.tiers[0].bandwidth == 312.5e6
    assert parse("30m", "s") == 1800 and parse("30 ms", "s") == 0.03
    for text, unit, value in (
        ("1.5M", "", 1_500_000),
        ("2 weeks", "d", 14.0),
        ("5M", "h", 5e6),
        ("$1,000", "USD", 1e3),
        ("10usd", "USD", 10),
        ("USD 1.5k", "USD", 1500),
        ("2usd/h", "USD/h", 2),
    ):
        assert quantities.amount(text, unit) == value
    with pytest.raises(RooflmError, match="under is '10/h', but it must be a number such as"):
        quantities.amount("10/h", "USD", "under")


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["infer", "llama-3.1-8b", "--gpu", "h100", "--prompt", "8k..32k*2", "--outputs", "ttft_s"])
    out = capsys.readouterr().out
    assert all(n in out.replace(",", "") for n in ("8192", "16384", "32768"))


def test_in_a_file_of_ones_own(tmp_path: Path) -> None:
    card = tmp_path / "mine.toml"
    card.write_text('base = "rtx-4090"\nnote = "narrow"\n[dram]\nbandwidth = "4 Tb/s"\n', encoding="utf-8")
    assert rooflm.infer("llama-3.1-8b", gpu=str(card), quant="int4").scenario.cluster.device.dram.bandwidth == 5e11


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("prompt", "8x", "it must be a number of tokens such as 512, 8k or 128K"),
        ("batch", "eight", "it must be a number such as 64, 8k or 1.5M"),
        ("prompt", "0.5", "whole number"),
    ],
)
def test_what_is_no_number_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(RooflmError, match=why):
        rooflm.infer("llama-3.1-8b", gpu="h100", **{name: text})
