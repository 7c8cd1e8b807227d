"""How a command reads its line: an option is given once, and a short command stays short."""

import subprocess
import sys

import pytest

from rooflm.cli.app import main

INFER = ["infer", "llama-2-7b", "--gpu", "a100"]


LISTS = ": a list has commas"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*INFER, "--batch", "2", "--batch=3"], f"--batch is given 2 times*{LISTS}"),
        ([*INFER, "--json", "--json"], "--json is given 2 times*"),
        ([*INFER, "--set", "workload.batch=1", "--set", "workload.batch=2"], "--set workload.batch is given 2 times*"),
        (["serve", *INFER[1:], "--option", "budget=1", "--option", "budget=2"], "--option budget is given 2 times*"),
        (["search", "infer", *INFER[1:], "--gpu", "h100"], f"--gpu is given 2 times*{LISTS}"),
        ([*INFER, "--owned", "--no-owned"], "--owned/--no-owned is given 2 times*"),
        ([*INFER, "--set", " mapping.tp=1", "--set", "mapping.tp=2"], "--set mapping.tp is given 2 times*"),
        (["serve", *INFER[1:], "--option", " budget=1", "--option", "budget =2"], "--option budget is given 2 times*"),
        (["predict", "gemm", "--m", "1", "--m", "2", "--n", "4", "--k", "4"], f"--m is given 2 times*{LISTS}"),
        (["predict", "attention", "decode", "--batch", "1", "--batch", "2"], f"--batch is given 2 times*{LISTS}"),
        (
            ["predict", "collective", "p2p", "--size", "1", "--size", "2", "--ranks", "2"],
            f"--size is given 2 times*{LISTS}",
        ),
    ],
)
def test_an_option_is_given_once(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err == f"rooflm: {said.replace('*', ', but it may be given once')}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["web", "--port", "abc"], "port is abc, but it must be 1 to 65535"),
        (["web", "--port", "70000"], "port is 70000, but it must be 1 to 65535"),
        ([*INFER, "--set", "=3", "--set", "=4"], "--set is '=3', but it must be PATH=VALUE"),
        ([*INFER, "--set", "engine.step=1e-2", "--set", "engine.host.step=1e-1"], "engine.step and engine.host"),
        ([*INFER, "--set", "engine.padded=foo"], "engine.padded is 'foo': it must be one of bf16"),
        ([*INFER, "--set", "engine.reduce_norm_on=foo"], "engine.reduce_norm_on is 'foo': it must be one of ada"),
        ([*INFER, "--set", "engine.gates_on=foo"], "engine.gates_on is 'foo': it must be one of ada"),
        ([*INFER, "--set", "engine.unpack_rows=gtpq:8"], "engine.unpack_rows is 'gtpq': did you mean 'gptq'"),
        ([*INFER, "--set", "engine.scaled_on=foo"], "engine.scaled_on is 'foo': it must be one of ada"),
        ([*INFER, "--set", "engine.tuned_experts_on=foo"], "engine.tuned_experts_on is 'foo': it must be one of a"),
        ([*INFER, "--set", "engine.reduce_norm_on=-foo"], "engine.reduce_norm_on is '-foo', but no card has that name"),
        ([*INFER, "--set", "engine.staged_on=-foo"], "engine.staged_on is '-foo', but no card has that name"),
        ([*INFER, "--rank", "8"], "No such option: --rank; infer says it as --adapters N --set adapters.rank=R"),
        (
            ["predict", "collective", "p2p", "--gpus", "2"],
            "No such option: --gpus; predict collective calls it --ranks",
        ),
        ([*INFER, "--set", "engine.staged_on=foo"], "engine.staged_on is 'foo': it must be one of ada"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"rooflm: {said}") and err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--help", "--help"], ["infer", "--gpu", "h100", "-h", "--gpu", "h200"], ["web", "-h", "-h"]]
)
def test_help_may_be_asked_for_twice(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "Usage" in out and not err


def test_words_of_an_engine_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "engine.padded=fp8 bf16", "--set", "engine.reduce_norm_on=hopper, -h20-sxm-96gb"]
    sets += ["--set", "engine.gates_on=ampere, hopper", "--set", "engine.tuned_experts_on=h200-sxm-141gb"]
    assert main([*INFER, *sets, "--json"]) == 0


def test_what_may_be_repeated_is(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "workload.batch=2", "--set", "workload.output=64"]
    assert main([*INFER, *sets, "--json"]) == 0
    lists = ["--tp", "2,1", "--batch", "1,2", "--prompt", "64,128", "--output", "8,16"]
    assert main([*INFER, *lists, "--zip", "tp,batch", "--zip", "prompt,output", "--json"]) == 0
    options = ["--option", "budget=4096", "--option", "prefix_caching=true"]
    assert main(["serve", *INFER[1:], "--rate", "1", "--requests", "8", *options, "--json"]) == 0
    sources = ["--source", "BLM", "--source", "LLMF", "--by", "gpu", "--by", "metric"]
    assert main(["validate", *sources, "--brief", "--quiet"]) == 0
    limits = ["--limit", "device_usd=20000", "--limit", "power_w=900"]
    assert main(["explore", "split", "llama-2-7b", "--phase=infer", "--method=exhaustive", *limits, "--json"]) == 0


def test_a_short_command_imports_no_checker_of_types() -> None:
    code = f"import sys; from rooflm.cli.app import main; sys.exit(main({INFER!r}) or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
