"""Lists in `serve` make axes; a price of one's own reaches every cost; warm-up and spread are those of a search."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError

CASE = {"gpu": "h100", "prompt": 256, "output": 32}


def test_a_cell_is_the_run_of_its_point() -> None:
    grid = rooflm.serve("llama-3.1-8b", concurrency=[2, 8], tp=[1, 2], **CASE)
    assert grid["ttft_s"].dims == ("tp", "concurrency") or set(grid["ttft_s"].dims) == {"tp", "concurrency"}
    one = rooflm.serve("llama-3.1-8b", concurrency=8, tp=2, **CASE)
    cell = grid.sel(tp=2, concurrency=8)
    assert float(cell["ttft_s"]) == one.ttft_s["mean"] and float(cell["tpot_p95_s"]) == one.tpot_s["p95"]
    assert float(cell["gpus"]) == 2 and grid["ttft_s"].attrs["units"] == "s"


def test_lists_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grid.csv"
    words = ["serve", "llama-3.1-8b", "--gpu", "h100,a100", "--rate", "1,2", "--requests", "40", "--output", "16"]
    assert main([*words, "--out", str(path)]) == 0
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5
    out = capsys.readouterr().out
    assert "h100" in out and "a100" in out and "TTFT" in out
    assert main([*words, "--find", "rate", "--slo", "ttft:p95=1s"]) == 2
    assert "leave out the lists" in capsys.readouterr().err


def test_warm_up_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "llama-3.1-8b", "--gpu", "h100", "--concurrency", "4,8", "--output", "16"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "each client's first request is warm-up;" in out and out.count("warm-up") == 1
    assert main(["serve", "llama-3.1-8b", "--gpu", "h100", "--warmup", "3", "--output", "16"]) == 0
    assert "the first 3 requests are warm-up" in " ".join(capsys.readouterr().out.split())


def test_a_refused_combination_is_marked_and_refuses_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    grid = rooflm.serve("llama-3.1-8b", concurrency=2, tp=[1, 3], **CASE)
    assert "must divide the 32 attention heads" in str(grid["reason"].values[1]) and grid["reason"].values[0] == ""
    assert math.isnan(grid["ttft_s"].values[1]) and grid["ttft_s"].values[0] > 0
    with pytest.raises(RooflmError, match="tp is 3, but it must divide"):
        rooflm.serve("llama-3.1-8b", concurrency=2, tp=[3, 5], **CASE)
    assert main(["serve", "llama-3.1-8b", "--gpu", "h100", "--tp", "1,3", "--rate", "1", "--requests", "20"]) == 0
    assert "must divide" in capsys.readouterr().out


def test_a_price_of_ones_own() -> None:
    usual, own = (rooflm.infer("llama-3.1-8b", gpu="h100", **p) for p in ({}, {"price": 1.0}))
    rate = float(usual.scenario.cluster.device.price)
    assert own.cost_per_million_tokens == pytest.approx(usual.cost_per_million_tokens / rate)
    run = rooflm.train("llama-3.1-8b", gpu="h100", gpus=64, batch=64, tokens=1e9, price="$2")
    assert run.cost == pytest.approx(2 * run.gpu_hours)
    served = rooflm.serve("llama-3.1-8b", concurrency=4, price=1.0, **CASE).values()
    plain = rooflm.serve("llama-3.1-8b", concurrency=4, **CASE).values()
    assert served["cost_usd_per_request"] == pytest.approx(plain["cost_usd_per_request"] / rate)
    found = rooflm.search_infer("llama-3.1-8b", gpu="h100", gpus=1, batch=8, price=1.0).best
    assert found is not None
    expected = 1e6 / 3600 / found.outputs["output_tokens_per_s"]
    assert found.outputs["cost_usd_per_million_tokens"] == pytest.approx(expected)


def test_the_first_wave_is_warm_up() -> None:
    """Fifty prompts at once are no state that a user meets twice: without them ten requests a client say what forty
    do, and the estimate agrees."""
    case = {"gpu": "h100", "tp": 4, "concurrency": 50, "prompt": 2048, "output": 512}
    short = rooflm.serve("llama-3.1-70b", **case)
    long = rooflm.serve("llama-3.1-70b", requests=2000, **case)
    counted = rooflm.serve("llama-3.1-70b", warmup=0, **case)
    assert short.ttft_s["p95"] == pytest.approx(long.ttft_s["p95"], rel=0.25)
    assert counted.ttft_s["p95"] > 3 * short.ttft_s["p95"]
    assert short.values()["warmup"] == 50 and short.values()["steady"]["agrees"]
    assert (
        "each client's first request is warm-up" in short.assumed
        and "lengths 0.8 to 1.2 of prompt and output" in short.assumed
    )
    alone = rooflm.serve("llama-3.1-8b", concurrency=1, requests=3, **CASE)
    assert alone.values()["warmup"] == 0 and not any("lengths" in a for a in alone.assumed)


def test_data_sets_make_an_axis(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "llama-3.1-8b", "--gpu", "h100", "--rate", "1", "--requests", "40"]
    assert main([*words, "--dataset", "sharegpt,openorca"]) == 0
    out = capsys.readouterr().out
    assert "sharegpt" in out and "openorca" in out and "prompt 512" not in out
    grid = rooflm.serve("llama-3.1-8b", gpu="h100", rate=1, requests=40, dataset=["sharegpt", "openorca"])
    alone = rooflm.serve("llama-3.1-8b", gpu="h100", rate=1, requests=40, dataset="openorca")
    assert float(grid["tpot_s"].sel(dataset="openorca")) == alone.tpot_s["mean"]


def test_lists_in_step_and_the_rows_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four of one card, two of another: pairs, no products; each with its cost."""
    asked = {"prompt": 256, "output": 32, "concurrency": 4}
    grid = rooflm.serve("llama-3.1-8b", gpu=["l40s", "h100"], tp=[4, 2], zip=("gpu", "tp"), **asked)
    assert dict(grid.sizes) == {"gpu": 2}
    one = rooflm.serve("llama-3.1-8b", gpu="l40s", tp=4, **asked)
    assert float(grid["ttft_s"][0]) == one.ttft_s["mean"]
    path = tmp_path / "three.csv"
    path.write_text("model,gpu,tp,concurrency\nllama-3.1-8b,l40s,4,4\nllama-3.1-8b,h100,2,4\n", encoding="utf-8")
    assert main(["serve", str(path), "--prompt", "256", "--output", "32"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:3] == ["gpu", "tp", "USD/M"]
    assert main(["serve", "llama-3.1-8b", "--gpu", "h100", "--concurrency", "2", "--zip", "gpu,tp"]) == 2
    assert "zip names 'gpu', but it is not a list" in capsys.readouterr().err


def test_a_burst_that_only_empties_is_no_steady_state() -> None:
    """As many requests as clients: times come near the steady state's, but the server is full half of the time."""
    burst = rooflm.serve("llama-3.1-70b", gpu="h100", tp=8, dataset="sharegpt", concurrency=1000, requests=1000)
    steady = burst.values()["steady"]
    assert steady["requests_per_s"] > 1.3 * burst.values()["requests_per_s"] and not steady["agrees"]
