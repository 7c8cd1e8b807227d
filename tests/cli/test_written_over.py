"""No command writes over a file that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflm.cli.app import main

TABLE = "model,gpu,batch,tpot_ms\nllama-2-7b,a100,1,9\n"


@pytest.mark.parametrize("words", (
    "validate {0} --out {0}",
    "compare {0} --gpu a100 --out {0}",
    "serve llama-2-7b --gpu a100 --trace {0} --out {0}",
    "infer {0} --out ./{0}",
    "infer llama-2-7b --gpu a100 --draft {0} --guesses 2 --out {0}",
))  # fmt: skip
def test_a_table_stays(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(TABLE)
    assert main(words.format("mine.csv").split()) == 2
    assert "is a file that is read: name another" in capsys.readouterr().err
    assert Path("mine.csv").read_text() == TABLE


def test_a_name_that_no_file_can_have_is_no_fault_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "x" * 300, "--gpu", "h100", "--out", "y" * 300 + ".csv"]) == 2
    assert "Traceback" not in capsys.readouterr().err
