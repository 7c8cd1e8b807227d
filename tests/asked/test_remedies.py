"""What would make it fit is tried by the same memory, and does when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import rooflm
from rooflm.asked.answers.remedies import MOST_TIMES
from rooflm.cli.app import main


@pytest.mark.parametrize(
    ("model", "given", "names"),
    [
        ("llama-2-13b", {"gpu": "rtx-3060-12gb"}, {"quant", "gpus"}),
        ("llama-3.1-8b", {"gpu": "rtx-3070", "engine": "llama.cpp", "quant": "q8_0"}, {"quant", "gpus"}),
        ("llama-3.1-70b", {"gpu": "h100", "tp": 4, "batch": 512, "prompt": 8192}, {"batch", "gpus"}),
        ("deepseek-v3", {"gpu": "h200", "gpus": 4}, {"gpus"}),
        ("qwen3-235b-a22b", {"gpu": "l40s", "gpus": 8, "batch": 512, "prompt": 4096, "engine": "sglang"}, {"gpus"}),
        ("gpt-oss-120b", {"gpu": "rtx-4090"}, {"engine", "gpus"}),  # experts of a desktop's model on its CPU
        ("qwen3-30b-a3b", {"gpu": "rtx-4060", "prompt": 8192}, {"engine"}),
        ("deepseek-v3", {"gpu": "h100", "dp": 8, "ep": 8, "batch": 64}, {"gpus"}),  # experts over more ranks
        ("deepseek-v3", {"gpu": "h200", "dp": 8, "ep": 1, "batch": 64}, {"gpus"}),
        ("kimi-k2", {"gpu": "l40s", "gpus": 2, "batch": 64, "prompt": 4096, "engine": "sglang-0.4"}, {"gpus"}),
    ],
)
def test_changes_of_serving_do_fit(model: str, given: dict[str, Any], names: set[str]) -> None:
    e = rooflm.infer(model, **given)
    assert not e.fits and {next(iter(r.change)) for r in e.would_fit} >= names
    for remedy in e.would_fit:
        rest = {k: v for k, v in given.items() if k not in ("gpus",) or "tp" not in remedy.change}
        other = rooflm.infer(model, **{**rest, **remedy.change})
        assert other.fits, remedy.words
        assert float(other.memory.margin) == pytest.approx(remedy.margin, abs=2.0)
    assert rooflm.infer("llama-3.1-8b", gpu="h100").would_fit == ()


def test_types_of_256_values_do_not_shrink_rows_that_they_do_not_divide() -> None:
    """gpt-oss has rows of 2,880 values, and its experts stay as released in files of any type."""
    short = rooflm.infer("gpt-oss-20b", gpu="rtx-3060-8gb", engine="llama.cpp")
    assert not short.fits and "quant" not in {name for r in short.would_fit for name in r.change}
    narrow = rooflm.infer("gpt-oss-20b", gpu="rtx-3060-12gb", engine="llama.cpp", quant="iq2_xs")
    assert narrow.memory.parts["weights"] == pytest.approx(12.07e9, rel=0.01)
    assert "quant mxfp4-moe: files of gpt-oss-20b keep its experts so, whatever their type" in narrow.assumed
    whole = rooflm.infer("llama-3.1-8b", gpu="rtx-3060-12gb", quant="iq2_xs")
    assert whole.memory.parts["weights"] < 2.7e9 and not any("blocks of 256" in told for told in whole.assumed)


@pytest.mark.parametrize(
    ("model", "given", "first"),
    [
        ("llama-3.1-8b", {"gpu": "rtx-4090", "lora_rank": 16, "batch": 16, "seq": 1024}, "recompute full"),
        ("llama-2-13b", {"gpu": "rtx-4090", "lora_rank": 16, "batch": 16, "recompute": "full"}, "base-bits 4"),
        ("llama-3.1-8b", {"gpu": "h100", "gpus": 64, "batch": 1024, "seq": 8192}, "recompute full"),
        ("llama-3.1-8b", {"gpu": "h100", "gpus": 8, "batch": 64, "micro_batch": 8}, "micro-batch 1"),
    ],
)
def test_changes_of_training_do_fit(model: str, given: dict[str, Any], first: str) -> None:
    t = rooflm.train(model, **given)
    assert not t.fits and first in [r.words for r in t.would_fit]
    for remedy in t.would_fit:
        assert rooflm.train(model, **{**given, **remedy.change}).fits, remedy.words


def test_the_largest_micro_batch_is_accepted() -> None:
    given = {"gpu": "h100", "gpus": 8, "batch": 96, "seq": 4096, "zero": 3, "recompute": "full"}
    most = int(rooflm.train("llama-3.1-8b", **given).max_micro_batch)
    assert most > 1 and rooflm.train("llama-3.1-8b", **given, micro_batch=most).fits


def test_both_commands_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["infer", "llama-2-13b", "--gpu", "rtx-3060-12gb"])
    assert "Would fit: quant " in capsys.readouterr().out
    main(["train", "llama-3.1-8b", "--gpu", "rtx-4090", "--lora-rank", "16", "--batch", "16", "--seq", "1024"])
    assert "Would fit: recompute full; 2 GPUs (dp 2) and zero 3.\n" in capsys.readouterr().out


def test_further_gpus_are_told_only_where_they_are_what_helps() -> None:
    """ZeRO 3 alone fits on these 64, so 128 with ZeRO 3 are no advice; where no one change is enough, more GPUs are."""
    enough = rooflm.train("llama-3.1-8b", gpu="h100", gpus=64, batch=1024, seq=8192)
    assert {"zero": 3} in [r.change for r in enough.would_fit]
    assert not any("gpus" in r.change for r in enough.would_fit)
    few = rooflm.train("llama-3.1-70b", gpu="h100", gpus=8, batch=64, seq=4096)
    assert [next(iter(r.change)) for r in few.would_fit] == ["gpus"]
    share = rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch=1536, seq=8192, engine="torchtitan")
    assert [r.change for r in share.would_fit] == [{"micro_batch": 3}]
    one = rooflm.train("llama-3.1-405b", gpu="rtx-4090", gpus=8, batch=65536, seq=4096)
    assert all(r.change.get("gpus", 0) <= 8 * MOST_TIMES for r in one.would_fit)


@pytest.mark.parametrize(
    ("batch", "scheme", "faster"), [(256, "w4a16", True), (1, "w4a16", False), (256, "fp8", False)]
)
def test_where_16_bits_are_faster_than_narrow_weights_it_is_said(batch, scheme, faster):
    asked = {"gpu": "h100", "batch": batch, "prompt": 1024, "output": 256}
    narrow = rooflm.infer("llama-3.1-8b", quant=scheme, **asked)
    wide = rooflm.infer("llama-3.1-8b", **asked)
    assert (narrow.wider is not None) == faster == ("With weights of 16 bits it would take" in str(narrow))
    if narrow.wider:
        assert narrow.wider.latency == wide.latency < narrow.latency


def test_beyond_what_a_system_gives_unasked_it_is_said() -> None:
    """A Mac's GPU may hold more than macOS gives it by default, once that is asked for: both fit, one with a word."""
    few, many = (rooflm.infer("gpt-oss-20b", gpu="m4", prompt=n) for n in (512, 8192))
    assert few.fits and many.fits and many.memory.total > many.scenario.cluster.device.unasked
    assert "that the system gives the GPU unasked" in str(many) and "unasked" not in str(few)


@pytest.mark.parametrize("gpu", ["m4-max", "gb10", "strix-halo", "mi300a", "jetson-orin"])
def test_one_memory_is_not_relieved_by_itself(gpu: str) -> None:
    """Experts that the CPU runs lie in the same memory where host and device share one."""
    e = rooflm.infer("kimi-k2.5", gpu=gpu, engine="llama.cpp", gpus=1)
    assert not e.fits and not any(r.change.keys() & {"cpu_experts", "cpu_layers"} for r in e.would_fit)
    away = rooflm.infer("kimi-k2.5", gpu=gpu, engine="llama.cpp", gpus=1, cpu_experts=60)
    assert not away.fits and away.max_batch == 0


def test_what_is_on_the_host_stays_there() -> None:
    """Beside experts on the host that are too few: some more of them, a narrower scheme, another card; each fits."""
    asked = {"gpu": "rtx-4090", "engine": "llama.cpp", "quant": "q4_k_m", "cpu_experts": 80}
    e = rooflm.infer("qwen3-235b-a22b", **asked)
    kinds = [set(r.change) for r in e.would_fit]
    assert not e.fits and {"cpu_experts"} in kinds and {"quant"} in kinds and not any("cpu_layers" in k for k in kinds)
    assert next(r.change["gpus"] for r in e.would_fit if "gpus" in r.change) == 2  # 80 layers' experts beside them
    for remedy in e.would_fit:
        assert rooflm.infer("qwen3-235b-a22b", **{**asked, **remedy.change}).fits, remedy


def test_a_frozen_base_that_fits_in_no_other_way_may_lie_on_the_host() -> None:
    """Adapters of 70B on two cards of 24 GB; not where anything else on these cards would do."""
    given = {"gpu": "rtx-3090", "gpus": 2, "lora_rank": 16, "base_bits": 4, "batch": 8, "seq": 1024}
    short = rooflm.train("llama-3.1-70b", **given)
    first = short.would_fit[0]
    assert first.words == "recompute full and --set training.offload_params=1 (41.10 GiB a GPU in the host's memory)"
    away = rooflm.train("llama-3.1-70b", **{**given, **first.change})
    assert away.fits and "The host holds 41.10 GiB of weights beside it for each GPU." in str(away)
    assert not any("sets" in r.change for r in rooflm.train("llama-3.1-8b", **{**given, "batch": 64}).would_fit)
    assert not any("sets" in r.change for r in rooflm.train("llama-3.1-70b", gpu="rtx-3090", gpus=2, batch=8).would_fit)
