"""The columns of a table of runs are the arguments of the commands and the options of the server; so says the page."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from rooflm.asked.arguments import TABLE
from rooflm.cli.app import main
from rooflm.serving.server import Server
from rooflm.validation import Request
from rooflm.validation.columns import (
    COLUMNS,
    METRIC_NAMES,
    METRICS,
    SERVER_OPTIONS,
    SPECULATION,
    UNITS,
    listed,
    of_task,
)
from rooflm.validation.table import read_row

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"
NOT_OF_A_ROW = {
    *("efficiency", "sets", "server", "zip", "outputs", "on", "progress", "definitions", "slo", "horizon", "seed"),
    *("trace", "limit", "copies", "peak", "router", "prefill_gpu", "prefill_price", "prefill_purchase", "axes"),
    *("transfer_bandwidth", "dataset"),
    *("owned", "purchase", "electricity"),
}
"""Arguments that say how to predict or what to give back, that have columns of another form, or need a file."""


def test_every_argument_of_a_command_is_a_column() -> None:
    for task in ("infer", "train", "serve"):
        asked = {a.name for a in TABLE if task in a.of and a.python} - NOT_OF_A_ROW
        assert asked <= {c.name for c in of_task(task)}, task


def test_every_option_of_the_server_and_the_load_is_a_column() -> None:
    names = {c.name for c in of_task("serve")}
    own = {f.name for f in fields(Server)} - {c.name for c in SPECULATION}
    assert own == set(SERVER_OPTIONS) <= names


def test_what_a_run_guesses_is_the_scenarios_and_no_option_of_the_server() -> None:
    row = {"task": "serve", "model": "deepseek-v3", "gpu": "h200", "metric": "tpot", "value": "9", "unit": "ms"}
    found = read_row(row | {"concurrency": "4", "guesses": "3", "acceptance": "0.5"})
    assert isinstance(found, Request)
    assert found.kwargs["acceptance"] == 0.5
    assert "acceptance" not in found.kwargs.get("options", {})


def test_a_column_says_what_it_means_and_who_reads_it() -> None:
    for c in COLUMNS.values():
        assert c.meaning and not c.meaning.endswith(".") and c.read
        assert c.kind in ("text", "whole", "number", "flag", "pair", "pairs", "names", "load", "rate")
    assert all(METRIC_NAMES[n] is m for m in METRICS.values() for n in (m.name, *m.other))
    assert {m.unit for m in METRICS.values() if m.unit} <= {base for base, _ in UNITS.values()}


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--columns"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*COLUMNS, *METRICS))
    assert main(["validate", "--columns", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in found["columns"]] == list(COLUMNS)


def test_the_page_holds_the_same_columns() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, meaning, unit, read in listed():
        assert f"| `{name}` | {meaning} | {unit} | {read} |" in page, name
    for m in METRICS.values():
        assert f"| `{m.name}` | {m.meaning} | {m.unit} |" in page, m.name
