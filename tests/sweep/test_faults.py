"""Faults: runs that are killed, at any moment and again and again, lose no row and leave no half file; a full disk, two
processes on one file, a file that changes between two runs."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rooflm
from rooflm.api import INFER
from rooflm.cli.app import main
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.readers.rows import resolve
from rooflm.sweep import workers
from rooflm.sweep.axes import find_axes
from rooflm.sweep.files import TEMPORARY, write_text, write_whole
from rooflm.sweep.stream import stream
from rooflm.sweep.sweep import GridJob

KILLS = int(os.environ.get("ROOFLM_KILLS", "6"))
"""Kills of a long run in a test; `scripts/fuzz` sets 50."""
GRID = {"model": "llama-7b", "gpu": ["a100-sxm-80gb", "rtx-3090"], "batch": list(range(1, 33)), "output": [16, 32, 64],
        "efficiency": "0.7,0.9"}  # fmt: skip
OUTPUTS = ("tpot_s", "fits")


def job() -> GridJob:
    axes, fixed = find_axes(GRID)
    return GridJob(INFER.flat, tuple(axes), fixed, OUTPUTS)


def killed(work: Callable[[], object], kills: int, longest: float, seed: int = 0) -> int:
    """Run `work` in a process of its own, killed after a random time, until so many kills are done and it ends by
    itself; the number of kills."""
    draw, done = random.Random(seed), 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            except BaseException:
                os._exit(1)
        if done < kills:
            time.sleep(draw.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            done += 1
        else:
            assert os.WEXITSTATUS(status) == 0
            if done >= kills:
                return done
            done += 1  # it ended before it could be killed: that counts, and the next run starts anew


@pytest.mark.parametrize("suffix", ["parquet", "csv", "nc"])
def test_a_grid_killed_again_and_again_is_whole(tmp_path: Path, suffix: str) -> None:
    whole, cut = tmp_path / f"whole.{suffix}", tmp_path / f"cut.{suffix}"
    killed(lambda: stream(job(), str(whole), block=6), 0, 0)
    cut.write_text("what was there before")
    assert killed(lambda: stream(job(), str(cut), block=6), KILLS, 0.15) >= KILLS
    if suffix == "nc":
        import xarray

        with xarray.open_dataset(cut) as one, xarray.open_dataset(whole) as other:
            assert one.equals(other)
    else:
        assert cut.read_bytes() == whole.read_bytes()
    stream(job(), str(cut), block=6)  # its start removes what killed runs left
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([whole.name, cut.name])


def test_a_file_killed_while_it_is_written_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    texts = [json.dumps({"rows": [i] * 20_000}) for i in range(2)]
    path.write_text(texts[0])

    def work() -> None:
        for i in range(2000):
            write_text(path, texts[i % 2])

    for seed in range(KILLS):
        child = os.fork()
        if child == 0:
            work()
            os._exit(0)
        time.sleep(random.Random(seed).uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert path.read_text() in texts
    write_text(path, texts[1])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    texts = [c * 100_000 for c in "ab"]
    children = []
    for text in texts:
        child = os.fork()
        if child == 0:
            for _ in range(100):
                write_text(path, text)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert path.read_text() in texts and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_two_runs_of_one_grid(tmp_path: Path) -> None:
    """One of them is refused in a sentence, the other is whole."""
    path = tmp_path / "grid.parquet"
    (started, ready), (refused, on) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(on)
        # told of its first block, it goes on when the other was refused (or has ended: reading gives nothing then)
        stream(job(), str(path), block=6, progress=lambda _: (os.write(ready, b"x"), os.read(refused, 1))[0])
        os._exit(0)
    os.read(started, 1)
    with pytest.raises(RooflmError, match="another run writes"):
        stream(job(), str(path), block=6)
    os.close(on)
    assert os.waitpid(child, 0)[1] == 0 and path.exists()


def test_parts_that_are_not_whole_are_worked_out_again(tmp_path: Path) -> None:
    path, straight = tmp_path / "grid.parquet", tmp_path / "straight.parquet"
    stream(job(), str(straight), block=6)

    class StopError(Exception):
        pass

    def stop(_: int) -> None:
        if len(list((tmp_path / "grid.parquet.parts").glob("*.parquet"))) > 3:
            raise StopError

    with pytest.raises(StopError):
        stream(job(), str(path), block=6, progress=stop)
    first = sorted((tmp_path / "grid.parquet.parts").glob("*.parquet"))[0]
    first.write_bytes(first.read_bytes()[:100])
    done = stream(job(), str(path), block=6)
    assert 0 < done.kept < done.points and path.read_bytes() == straight.read_bytes()


def test_parts_without_a_manifest_are_no_reason_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    folder = tmp_path / "grid.csv.parts"
    folder.mkdir()
    (folder / "0000000.csv").write_text("half a")
    assert stream(job(), str(path), block=6).kept == 0
    folder.mkdir()
    (folder / "thesis.doc").write_text("someone's")
    with pytest.raises(RooflmError, match=r"thesis\.doc.*no part of a run"):
        stream(job(), str(path), block=6)
    assert (folder / "thesis.doc").exists()


def test_a_model_that_changed_does_not_carry_on(tmp_path: Path) -> None:
    """A config.json that changes between a kill and the next run: parts of two models are never joined."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))
    from measuring import tiny

    model, path = tiny(tmp_path), str(tmp_path / "grid.csv")
    request = {"model": model, "gpu": "a100", "batch": [1, 2, 4]}
    axes, fixed = find_axes(request)
    before = INFER.content(axes, fixed)
    assert INFER.content(axes, fixed) == before
    tiny(tmp_path, intermediate_size=512)
    assert INFER.content(axes, fixed) != before
    folder = tmp_path / "grid.csv.parts"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"request": "of the model before", "blocks": 1}))
    with pytest.raises(RooflmError, match="another run"):
        INFER.stream(request, path)


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 2,000 bytes (nor is half of what a module is compiled to kept)."""
    old, compiled = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, old[1]))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        sys.dont_write_bytecode = compiled


@pytest.mark.parametrize("suffix", ["csv", "parquet", "nc", "png"])
def test_a_full_disk_is_one_sentence(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, one sentence, and the old file as it was."""
    path = tmp_path / f"grid.{suffix}"
    path.write_text("old")
    option = "--plot" if suffix == "png" else "--out"
    words = ["infer", "llama-7b", "--gpu", "a100", "--batch", "1..64", "--prompt", "64..1024+64", option, str(path)]
    with small_files():
        assert main(words) == 2
    said = [
        line for line in capsys.readouterr().err.splitlines() if not re.fullmatch(r"rooflm: .*: \d+ s", line)
    ]  # but for progress of a slow machine
    assert len(said) == 1 and "cannot write" in said[0]
    assert path.read_text() == "old" and not list(tmp_path.glob(f".*{TEMPORARY}*"))


def run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rooflm", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def test_a_full_disk_under_the_answer() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "rooflm", "list", "engines"], stdout=full, stderr=subprocess.PIPE,
                              text=True, check=False)  # fmt: skip
    assert done.returncode == 1 and done.stderr == "rooflm: cannot read or write the answer: No space left on device\n"


def test_a_reader_that_goes_away() -> None:
    done = subprocess.run(f"{sys.executable} -m rooflm list models | head -1; echo ${{PIPESTATUS[0]}}", shell=True,
                          executable="/bin/bash", capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(RooflmError, match="cannot be written there"):
        write = INFER.grid({"model": "llama-7b", "gpu": "a100", "batch": [1, 2]})
        from rooflm.sweep.files import write_grid

        write_grid(str(tmp_path / "a.csv"), write)


def test_what_a_killed_writer_left_goes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".a-{gone.pid}-1{TEMPORARY}.csv").write_text("half")
    (tmp_path / f".a-{os.getpid()}-1{TEMPORARY}.csv").write_text("another thread's")
    write_whole(path, lambda name: Path(name).write_text("whole") and None)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".a-{os.getpid()}-1{TEMPORARY}.csv", "a.csv"]


def test_an_error_of_a_worker_is_told_as_it_is() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(UnknownNameError("model", "llama-9", ["llama-7b"])))
    assert isinstance(error, UnknownNameError) and "llama-7b" in str(error) and error.near == ["llama-7b"]


def test_parts_are_answered_by_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    assert sorted(workers.in_processes(abs, range(-5, 0))) == [(-n, n) for n in range(5, 0, -1)]
    found = [told for _, told in workers.in_processes(eval, ["__import__('os').getppid()"] * 4)]
    assert found == [os.getpid()] * 4


def test_many_cores_start_eight_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], workers.subprocess.Popen
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 64)
    monkeypatch.setattr(workers.subprocess, "Popen", lambda *a, **k: started.append(start(*a, **k)) or started[-1])
    assert len(list(workers.in_processes(abs, range(20)))) == 20 and len(started) == workers.MOST == 8


def test_a_process_that_ends_early_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with pytest.raises(RooflmError, match="ended before its work was done"):
        list(workers.in_processes(os._exit, [3, 3]))


def test_an_error_in_a_process_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with pytest.raises(UnknownNameError, match="unknown engine 'vlm'"):
        list(workers.in_processes(partial(resolve, "engine"), ["vllm", "vlm"]))


def test_a_job_that_another_process_cannot_read_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    assert sorted(workers.in_processes(lambda part: (part, os.getpid()), [1, 2])) == [
        (1, (1, os.getpid())), (2, (2, os.getpid()))]  # fmt: skip


def test_a_search_under_load_is_the_same_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"gpu": "h100", "gpus_max": 2, "concurrency": 16, "confirm": 0}
    here = rooflm.search_serve("llama-3.1-8b", **given)
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    there = rooflm.search_serve("llama-3.1-8b", **given)
    assert [c.outputs for c in there.top] == [c.outputs for c in here.top] and len(here.top) > 1


def test_an_answer_that_is_cut_off_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    half = "__import__('os').write(1, bytes([128, 4, 149, 9, 0, 0, 0, 0, 0, 0, 0, 65])) and __import__('os')._exit(1)"
    with pytest.raises(RooflmError, match="ended before its work was done"):
        list(workers.in_processes(eval, [half] * 2))


def test_processes_take_no_module_from_the_folder_of_whoever_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    (tmp_path / "pickle.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert sorted(workers.in_processes(abs, [-1, -2])) == [(-2, 2), (-1, 1)]


def test_without_an_interpreter_to_start_parts_are_answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "EACH", 1)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", "")
    assert [here for _, here in workers.in_processes(eval, ["__import__('os').getpid()"] * 2)] == [os.getpid()] * 2
