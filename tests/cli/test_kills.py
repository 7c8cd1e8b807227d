"""Long commands that are ended again and again, by SIGKILL and SIGINT at random moments, lose no row, leave no half
file and carry on or start clean. One kill of the quick ones here; of all any number with `scripts/kills`."""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rooflm
from measure.stand_in import generator_in, serving
from rooflm.sweep.files import TEMPORARY

KILLS = int(os.environ.get("ROOFLM_KILLS", "1"))
OLD = b"what was there before"


class Long(NamedTuple):
    """A command: its words ({folder}: where it writes), the files that it writes there, and where its load generator
    is (else beside Python)."""

    words: str
    files: tuple[str, ...]
    programs: Path | None = None


COMMANDS = {
    "grid": Long("infer llama-7b --gpu a100 --batch 1..500 --prompt 16..1600+16 --output 8..400+8 --outputs "
                 "tpot_s,fits --out {folder}/grid.parquet", ("grid.parquet",)),
    "search": Long("search infer llama-3.1-8b --gpu h100 --gpus 1 --under-load --slo ttft:p95=1s "
                   "--deploy {folder}/k8s.yaml", ("k8s.yaml",)),
    "explore": Long("explore grid llama-2-13b --phase infer --node n12,n7,n5,n3 --dram hbm2e,hbm3,hbm4 --network "
                    "nvlink3+hdr,nvlink5+xdr --gpus 64 --out {folder}/e.csv", ("e.csv",)),
    "serve": Long("serve llama-2-7b --gpu a100 --rate 4 --requests 4000 --out {folder}/r.csv", ("r.csv",)),
    "study": Long("study cluster --out {folder}", tuple(
        f"cluster{end}" for end in (".md", "-rows.csv", "-cards.csv", "-rows.png", "-scaling.png"))),
}  # fmt: skip


QUICK = ("explore", "serve")
RUN = """import sys
try:
    from pathlib import Path
    from rooflm.measure import load
    load.program_path = lambda name: Path({folder!r}) / name
    from rooflm.__main__ import run
    run()
except KeyboardInterrupt:
    sys.exit(130)
"""
"""The command line, whose load generator is in a folder."""


def started(command: Long, folder: Path) -> subprocess.Popen[str]:
    """The command in a process of its own that hears SIGINT (a shell's background jobs start with it ignored)."""
    words = [w.format(folder=folder) for w in command.words.split()]
    how = ["-c", RUN.format(folder=str(command.programs))] if command.programs else ["-m", "rooflm"]
    return subprocess.Popen(
        [sys.executable, *how, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )  # fmt: skip


def ended(run: subprocess.Popen[str], after: float, by: signal.Signals) -> str:
    """What a command said on standard error that was ended after so many seconds, unless it was done by then."""
    try:
        run.wait(after)
    except subprocess.TimeoutExpired:
        run.send_signal(by)
    _, said = run.communicate(timeout=600)
    package = Path(rooflm.__file__).parent
    traced = [file for file in re.findall(r'^ +File "(.*?)"', said, re.MULTILINE) if package in Path(file).parents]
    assert set(traced) <= {str(package / "__init__.py")}, said  # no traceback of ours once the command line has started
    started_python = run.returncode == 1 and said.rstrip().endswith("KeyboardInterrupt")  # before any line of ours
    assert run.returncode in (0, 130, -by) or started_python, said
    return said


def whole(command: Long, folder: Path) -> float:
    """Seconds that the command takes to its end."""
    start = time.perf_counter()
    run = started(command, folder)
    _, said = run.communicate(timeout=600)
    assert run.returncode == 0, said
    return time.perf_counter() - start


def contents(command: Long, folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in command.files if (folder / name).exists()}


@pytest.mark.parametrize("name", COMMANDS if KILLS > 1 else QUICK)
def test_a_command_that_is_ended_leaves_whole_files(name: str, tmp_path: Path) -> None:
    command, draw = COMMANDS[name], random.Random(name)
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    straight.mkdir()
    cut.mkdir()
    longest = whole(command, straight)
    right = contents(command, straight)
    assert len(right) == len(command.files)
    for file in command.files:
        (cut / file).write_bytes(OLD)
    for _ in range(KILLS):
        ended(started(command, cut), draw.uniform(0, longest), draw.choice((signal.SIGKILL, signal.SIGINT)))
        found = contents(command, cut)
        assert len(found) == len(right) and all(found[k] in (OLD, right[k]) for k in right)
    whole(command, cut)
    assert contents(command, cut) == right
    assert sorted(p.name for p in cut.iterdir()) == sorted(p.name for p in straight.iterdir())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Long]:
    """Loading a stand-in for a server at eight levels, 0.05 s each."""
    levels = "1,2,3,5,6,7,8,9"
    generator_in(tmp_path / "bin", pause=0.05)
    with serving() as url:
        yield Long(f"measure llama-2-7b --url {url} --gpu h100 --concurrency {levels} --tokenizer x --interval 0 --out "
                   "{folder}/r.csv", ("r.csv",), tmp_path / "bin")  # fmt: skip


def test_no_level_of_a_loaded_server_is_lost(served: Long, tmp_path: Path) -> None:
    draw, out = random.Random(0), tmp_path / "r.csv"
    longest = whole(served, tmp_path)
    right = levels(out)
    assert len(right) == 8
    out.unlink()
    kept: list[str] = []
    for _ in range(KILLS):
        if len(kept) == len(right):
            out.unlink()
            kept = []
        said = ended(started(served, tmp_path), draw.uniform(0, longest),
                     draw.choice((signal.SIGKILL, signal.SIGINT)))  # fmt: skip
        done = [
            line.split(" ", 2)[2].rsplit(":", 1)[0] for line in said.splitlines() if re.search(r": (ok|kept)$", line)
        ]
        had, kept = kept, levels(out) if out.exists() else []
        assert kept[: len(had)] == had and len(kept) == len(set(kept)) and len(kept) >= len(done)
    whole(served, tmp_path)
    assert levels(out) == right and not [p for p in tmp_path.iterdir() if TEMPORARY in p.name]


def levels(table: Path) -> list[str]:
    """The levels of a table of measured rows, each once; all rows of each are there."""
    with table.open(encoding="utf-8", newline="") as file:
        found = [row["concurrency"] for row in csv.DictReader(file)]
    assert all(found.count(c) == 4 for c in found)
    return list(dict.fromkeys(found))
