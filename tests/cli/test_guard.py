"""How commands end: interrupted, ended, out of memory, with a name that would be markup or a command."""

from __future__ import annotations

import errno
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rooflm.__main__ import run
from rooflm.cli.app import main
from rooflm.cli.guard import exit_on_signal, run_guarded

LONG = {
    "serve --find": "serve llama-7b --gpu h100 --find rate --slo ttft:p95=1s --requests 20000",
    "serve": "serve llama-7b --gpu h100 --rate 5 --requests 1000000",
    "search infer": "search infer mixtral-8x7b --gpu h100 --under-load --rate 5 --confirm 1000",
    "search train": "search train llama-2-70b --gpu h100 --gpus 256 --batch 1024",
    "validate": "validate --json",
    "grid": "infer llama-7b,mixtral-8x7b,qwen3-32b --gpu h100,a100 --batch 1..150 --prompt 1..150 --outputs fits",
}


@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("command", LONG)
def test_ctrl_c_ends_at_once_and_is_no_answer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    running, stopped = [True], []

    def stop(*given: Any) -> None:
        """As Ctrl-C does, while the command runs; one that is done before is not interrupted."""
        if running:
            stopped.append(True)
            signal.default_int_handler(*given)

    me = os.getpid()
    gc.disable()  # an interrupt inside a callback of the collector (Hypothesis has one) is swallowed
    before = signal.signal(signal.SIGINT, stop)  # a shell's background has it ignored
    later = threading.Timer(0.5, lambda: os.kill(me, signal.SIGINT))
    later.start()
    try:
        status = main(LONG[command].split())
        running.clear()
        later.cancel()
        later.join()  # what it has sent by now is heard here
    finally:
        signal.signal(signal.SIGINT, before)
        gc.enable()
        gc.collect()  # a file that was opened as the interrupt came, before its `with`
    said = capsys.readouterr()
    if stopped:  # it was still at it
        assert status == 130 and "interrupted" in said.err
        assert command.partition(" ")[0] in ("serve", "search") or said.out == ""


class Interrupted:
    """An attribute whose class is interrupted as it is made."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def make_a_class(*_: Any) -> None:
    """Python 3.11 makes a RuntimeError of an interrupt there, later ones let it pass."""
    type("Made", (), {"attribute": Interrupted()})


def test_ctrl_c_in_the_midst_of_a_class_is_one_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_guarded(make_a_class) == 130
    monkeypatch.setattr("rooflm.cli.app.run", make_a_class)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "rooflm: interrupted\n" * 2


def test_being_ended_runs_what_cleans_up() -> None:
    cleaned = []

    def work() -> None:
        try:
            exit_on_signal(signal.SIGTERM, None)
        finally:
            cleaned.append(True)

    assert run_guarded(work) == 143 and cleaned


def test_want_of_memory_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise MemoryError("Unable to allocate 74.5 GiB")

    assert run_guarded(work) == 2
    assert capsys.readouterr().err == "rooflm: not enough memory: Unable to allocate 74.5 GiB; ask for less at once\n"


@pytest.mark.parametrize(
    ("words", "names"),
    [("show schema", "it must be one of device, cluster, model, engine, scenario, measured"),
     ("show", "it must be one of gpus, models, "), ("show gpu", " names are known, such as "),
     ("infer", "name, Hugging Face id, config.json"), ("report", "file")],
)  # fmt: skip
def test_what_is_missing_is_told_with_what_it_may_be(
    words: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("rooflm: Missing argument") and names in said and said.count("\n") == 1


def test_a_file_that_cannot_be_written_is_2_as_the_help_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "a.csv")

    words = "infer llama-2-7b --gpu a100 --batch 1,2 --out"
    (tmp_path / "a.csv").mkdir()
    assert main([*words.split(), str(tmp_path / "none" / "a.csv")]) == 2
    assert main([*words.split(), str(tmp_path / "a.csv")]) == 2
    assert run_guarded(full) == 2
    capsys.readouterr()
    assert main([]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 a search found nothing, or standard output could not be written; 2 bad input, a file that cannot" in said


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_guarded(lambda: 1 / 0)


def test_a_name_is_no_markup(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))
    from measuring import CONFIG

    folder = tmp_path / "<script>alert(1)<" / "script>"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    page = tmp_path / "page.html"
    assert main(["infer", str(folder.parent) + "/script>", "--gpu", "a100", "--batch", "1,2", "--plot", str(page)]) == 0
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def test_a_name_is_no_command(tmp_path: Path) -> None:
    from rooflm.readers.engines import load_engine
    from rooflm.readers.schemes import PRESETS
    from rooflm.search.serve_command import serve_command

    said = serve_command("m; rm -rf $HOME", load_engine("vllm"), PRESETS["bf16"], {"tp": 1}, 640)
    assert "vllm serve 'm; rm -rf $HOME' " in said


def test_a_file_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    """A part of a streamed grid that holds a pickle is no part."""
    import numpy as np

    from rooflm.sweep.stream import is_whole

    part = tmp_path / "0000000.npz"
    np.savez(part, a=np.array([{"x": 1}], dtype=object))
    assert not is_whole(part, ".nc", 1)


@pytest.mark.parametrize(
    ("closed", "status", "said"), [(1, 1, "rooflm: cannot write the answer: standard output is closed\n"), (2, 2, "")]
)
def test_a_closed_stream_is_no_crash(closed: int, status: int, said: str) -> None:
    words = "infer llama-2-7b --gpu a100 --json" + " --batch 0" * (closed == 2)
    line = f"exec {shlex.quote(sys.executable)} -m rooflm {words} {closed}>&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", said)
