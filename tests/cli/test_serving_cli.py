"""`rooflm serve` as a person meets it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from rooflm.cli.app import main

LOAD = ("--gpu", "h100", "--concurrency", "8", "--spread", "0.8,1", "--prompt", "256", "--output", "64")


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["serve", *words])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_text_is_eighty_columns_and_says_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capsys, "llama-3.1-8b", *LOAD, "--slo", "ttft:p95=1s")
    assert status == 0 and err == ""
    assert max(map(len, out.splitlines())) <= 80
    for words in ("time to first token", "p99", "KV memory, peak", "80 of 80 requests finished", "meet all limits",
                  "Steady-state"):  # fmt: skip
        assert words in out


def test_json_table_and_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table, plot = tmp_path / "requests.csv", tmp_path / "load.png"
    status, out, _ = _run(capsys, "llama-3.1-8b", *LOAD, "--warmup", "0", "--json", "--out", str(table),
                          "--plot", str(plot))  # fmt: skip
    values = json.loads(out)
    assert status == 0
    assert values["finished"] == 80 and values["ttft_s"]["p50"] <= values["ttft_s"]["p99"]
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 80 and {r["status"] for r in rows} == {"finished"}
    mean = sum(float(r["ttft_s"]) for r in rows) / 80
    assert mean == pytest.approx(values["ttft_s"]["mean"], rel=1e-6)
    assert plot.stat().st_size > 10_000


def test_the_same_seed_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    first = _run(capsys, "llama-3.1-8b", *LOAD, "--json", "--seed", "3")
    assert first == _run(capsys, "llama-3.1-8b", *LOAD, "--json", "--seed", "3")


def test_capacity_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3.1-8b", "--gpu", "h100", "--slo", "tpot:p95=15ms", "--find", "concurrency", "--json")
    status, out, _ = _run(capsys, *words)
    values = json.loads(out)
    assert status == 0
    assert values["found"]["concurrency"] >= 4
    assert values["tpot_s"]["p95"] <= 0.015


def test_a_search_that_finds_nothing_says_so_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capsys, "llama-3.1-8b", "--gpu", "h100", "--slo", "tpot:p95=1us", "--find", "rate")
    assert status == 1 and out == "" and "no rate meets the limits: tpot:p95 is " in err


def test_a_table_says_which_load_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    """A queue that grows, requests that never fit and limits that are broken stand beside the times."""
    common = ("llama-3.1-8b", "--gpu", "rtx-4090", "--output", "64")
    status, out, _ = _run(capsys, *common, "--rate", "1,50", "--prompt", "2k", "--slo", "ttft:p95=3s")
    rows = [line.split() for line in out.splitlines()[:3]]
    assert status == 0 and rows[0][:4] == ["rate", "served", "meet", "limits"]
    assert rows[1][1:3] == ["yes", "100.0"] and rows[2][1:3] == ["queue", "grows"]
    status, out, _ = _run(capsys, *common, "--concurrency", "2", "--prompt", "2k,60k", "--requests", "8")
    assert status == 0 and "8 of 8 rejected" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("llama-3.1-8b", "--gpu", "h100", "--trace", "none.csv"), "cannot read trace"),
        (("llama-3.1-8b", "--gpu", "h100", "--rate", "0"), "rate is 0"),
        (("llama-3.1-8b", "--gpu", "h100", "--trace", "x.csv", "--concurrency", "2"), "trace has its own concurrency"),
        (("llama-3.1-8b", "--gpu", "h100", "--find", "rate"), "--slo"),
        (("llama-3.1-8b", "--gpu", "h100", "--dataset", ""), "--dataset is empty: give it a value, or leave it out"),
        (("llama-3.1-8b", "--gpu", "h100", "--option", "budget"), "NAME=VALUE"),
        (("llama-3.1-8b", "--gpu", "h100", "--spread", "wide"), "LOW,HIGH"),
        (("llama-3.1-8b", "--gpu", "h100", "--out", "table.xls"), "must end in"),
        (("llama-3.1-8b", "--gpu", "h999"), "unknown"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    status, out, err = _run(capsys, *words)
    assert status == 2 and out == ""
    said = [
        line for line in err.splitlines() if not re.fullmatch(r"rooflm: .*: \d+ s", line)
    ]  # but for progress of a slow machine
    assert len(said) == 1 and says in said[0]


def test_a_rate_that_cannot_be_served_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3.1-70b", "--gpu", "h100", "--tp", "4", "--rate", "60", "--prompt", "1024", "--requests", "1500")
    status, out, _ = _run(capsys, *words)
    assert status == 0 and "GROWS WITHOUT BOUND" in out


def test_a_rate_that_its_clients_do_not_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3.1-8b", "--gpu", "h100", "--rate", "100", "--concurrency", "8", "--requests", "300")
    status, out, _ = _run(capsys, *words)
    assert status == 0 and "THE RATE IS NOT REACHED" in out and "at most 8" in " ".join(out.split())


def test_a_rate_is_sought_with_the_limit_of_clients(capsys: pytest.CaptureFixture[str]) -> None:
    """One client holds as many requests a second as it has answers; what is sought is dropped, its limit is not."""
    words = ("llama-3.1-8b", "--gpu", "h100", "--requests", "100", "--slo", "ttft:p95=10s", "--find", "rate", "--json")
    found = {}
    for more in (("--concurrency", "1"), ("--concurrency", "1", "--rate", "3"), ()):
        status, out, _ = _run(capsys, *words, *more)
        assert status == 0
        found[more] = json.loads(out)["found"]["rate"]
    one, same, free = found.values()
    assert one == same and one < 0.3 * free


@pytest.mark.parametrize(("more", "says"), [
    (("--rate", "5", "--find", "concurrency"), "leave --rate out"),
    (("--rate", "5", "--requests", "9", "--shared-prefix", "2000"), "shared_prefix is 2000, but it must be at most"),
    (("--rate", "5", "--requests", "9", "--cached", "2000"), "cached is 2000, but it must be at most"),
    (("--rate", "5", "--spread", "1,1", "--cached", "513"), "at most 512: the load's prompts have 512 tokens"),
    (("--rate", "5", "--requests", "9", "--prompt", "2048", "--cached", "3000"), "prompts have 1826 to 2452 tokens"),
    (("--concurrency", "4", "--requests", "40", "--find", "rate"), "at least 50 requests"),
])  # fmt: skip
def test_a_search_of_a_load_that_has_both_halves(more: tuple[str, ...], says: str,
                                                 capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    status, out, err = _run(capsys, "llama-3.1-8b", "--gpu", "h100", "--slo", "ttft:p95=1s", *more)
    assert status == 2 and out == "" and says in err and len(err.splitlines()) == 1


def test_capacity_is_of_a_load_that_has_built_up(capsys: pytest.CaptureFixture[str]) -> None:
    """400 requests at 40 a second have all come after ten seconds, when answers of 1,500 tokens have just begun to end:
    replicas are found with requests enough to fill them, unless told how many there are."""
    words = ("llama-3.1-8b", "--gpu", "h100", "--rate", "40", "--output", "1500", "--slo", "tpot:p95=15ms")
    found = {}
    for more in ((), ("--requests", "400")):
        status, out, _ = _run(capsys, *words, *more, "--find", "replicas", "--json")
        assert status == 0
        found[more] = json.loads(out)
    settled, short = found.values()
    assert settled["requests"] > 2000 and short["requests"] == 400
    assert settled["found"]["replicas"] > short["found"]["replicas"]


def test_lists_are_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = ("llama-3.1-8b", "--gpu", "h100", "--requests", "20", "--output", "16")
    plot = tmp_path / "curve.json"
    assert _run(capsys, *common, "--rate", "1,2,4", "--plot", str(plot), "--plot-value", "ttft_p95_s")[0] == 0
    assert "95th percentile" in plot.read_text(encoding="utf-8")
    assert "give a list" in _run(capsys, *common, "--rate", "1", "--plot-value", "ttft_s")[2]
    assert "which the answer does not have" in _run(capsys, *common, "--rate", "1,2", "--plot-value", "foo")[2]
