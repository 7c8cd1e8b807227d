"""How a command reads its line: an option is given once, and a short command stays short."""

import subprocess
import sys

import pytest

from rooflm.cli.app import main

INFER = ["infer", "llama-2-7b", "--gpu", "a100"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*INFER, "--batch", "2", "--batch=3"], "--batch is given 2 times"),
        ([*INFER, "--json", "--json"], "--json is given 2 times"),
        ([*INFER, "--set", "workload.batch=1", "--set", "workload.batch=2"], "--set workload.batch is given 2 times"),
        (["serve", *INFER[1:], "--option", "budget=1", "--option", "budget=2"], "--option budget is given 2 times"),
        (["search", "infer", *INFER[1:], "--gpu", "h100"], "--gpu is given 2 times"),
    ],
)
def test_an_option_is_given_once(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err == f"rooflm: {said}, but it may be given once\n"


def test_what_may_be_repeated_is(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "workload.batch=2", "--set", "workload.output=64"]
    assert main([*INFER, *sets, "--json"]) == 0
    assert main([*INFER, "--tp", "2,1", "--batch", "1,2", "--zip", "tp,batch", "--json"]) == 0


def test_a_short_command_imports_no_checker_of_types() -> None:
    code = f"import sys; from rooflm.cli.app import main; main({INFER!r}); sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
