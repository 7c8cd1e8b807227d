"""Loading a running server: what it tells, levels kept and failed, an interrupt; stand-ins for server and generator."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_in import generator_in, serving

from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure import load, server
from rooflm.measure.load import Plan
from rooflm.validation.request import Request
from rooflm.validation.table import read_rows


@pytest.fixture
def url() -> Iterator[str]:
    with serving() as made:
        yield made


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    generator_in(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(load, "program_path", lambda name: folder / name)


def test_a_server_tells_its_engine_release_and_options(url: str) -> None:
    told = server.ask(url)
    assert told.columns == {"engine": "vllm", "release": "0.11.0", "prefix_caching": "false",
                            "set:engine.block": "32", "set:engine.memory_fraction": "0.85"}  # fmt: skip
    assert (told.name, told.root) == ("served", "meta-llama/Llama-2-7b-hf")
    assert told.counters["vllm:num_preemptions_total"] == 3


def test_levels_become_rows_that_are_kept(url: str, generator: None, tmp_path: Path) -> None:
    out = tmp_path / "runs.csv"
    said: list[str] = []
    plan = Plan(url, cells={"gpu": "h100", "tp": "1"}, clients=(1, 4, 8), tokenizer="x", interval=0)
    found = load.run(plan, str(out), lambda *a: said.append(a[-1]))
    assert [s.partition(":")[0] for s in said] == ["ok", "failed", "ok"] and list(found.failed) == ["4 clients, 128+64"]
    assert {r["concurrency"] for r in found.rows} == {"1", "8"}
    requests = [r for r in read_rows(out) if isinstance(r, Request)]
    assert len(requests) == 8 and all(r.task == "serve" and r.kwargs["gpu"] == "h100-sxm-80gb" for r in requests)
    assert requests[0].kwargs["options"] == {"prefix_caching": False} and requests[0].release == "0.11.0"
    notes = json.loads(out.with_suffix(".environment.json").read_text(encoding="utf-8"))
    assert (
        notes["server"]["answers"]["/version"] == {"version": "0.11.0"}
        and "it broke" in notes["failed"]["4 clients, 128+64"]
    )
    said.clear()
    load.run(plan, str(out), lambda *a: said.append(a[-1]))
    assert [s.partition(":")[0] for s in said] == ["kept", "failed", "kept"]
    with out.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 8


def test_an_interrupt_keeps_what_is_done(
    url: str, generator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(number: int, *_: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt

    out = tmp_path / "runs.csv"
    found = load.run(Plan(url, clients=(1, 2, 8), tokenizer="x", interval=0.05), str(out), stop)
    assert found.interrupted and {r["concurrency"] for r in found.rows} == {"1", "2"} and found.samples
    assert len(read_rows(out)) == 8


def test_the_command_loads_a_server(
    url: str, generator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, out = tmp_path / "p.csv", tmp_path / "r.csv"
    asked = ["measure", "llama-2-7b", "--url", url, "--gpu", "h100", "--concurrency", "1,2", "--tokenizer", "x"]
    assert main([*asked, "--out", str(out), "--profile", str(profile), "--interval", "0.05"]) == 0
    told = capsys.readouterr()
    assert "2 clients, 128+64" in told.out and "2/2" in told.err
    assert "machine,utilisation" in profile.read_text(encoding="utf-8")
    assert main(["compare", str(out), "--no-why"]) == 0
    told = capsys.readouterr()
    assert "llama-2-7b" in told.out and "cause" not in told.out


@pytest.mark.parametrize(("plan", "rule"), [
    (Plan("ftp://x", clients=(1,)), "must be an address"), (Plan("http://x"), "no load"),
    (Plan("http://x", clients=(0,)), "concurrency is 0"), (Plan("http://x", rates=(-1.0,)), "rate is -1"),
    (Plan("http://127.0.0.1:9", clients=(1,)), "no server"), (Plan("http://x", trace="none.csv"), "no such file"),
    (Plan("http://x", clients=(1,), generator="guidelm"), "did you mean 'guidellm'"),
])  # fmt: skip
def test_what_cannot_be_loaded_is_told(plan: Plan, rule: str, generator: None) -> None:
    with pytest.raises(RooflmError, match=rule):
        load.run(plan)


def test_the_address_is_told_before_the_program(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(load, "program_path", lambda name: tmp_path / name)
    for address, rule in (("http://127.0.0.1:9", "no server at"), (url, "guidellm was not found")):
        with pytest.raises(RooflmError, match=rule):
            load.run(Plan(address, clients=(1,)))
