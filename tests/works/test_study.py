"""Studies of published works: names, rows beside ours, files, and what the works found."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli import main
from rooflm.cli.study import cell, lines
from rooflm.works.study import FITTED, WORKS, Study, errors_of, published, study

MADE = [n for n in WORKS if (Path(__file__).parents[2] / "src/rooflm/works" / f"{n}.py").is_file()]


@pytest.fixture(scope="module")
def made() -> dict[str, Study]:
    return {name: study(name) for name in MADE}


def test_every_listed_work_is_there() -> None:
    assert [*WORKS] == MADE


@pytest.mark.parametrize("name", MADE)
def test_rows_are_tidy_and_say_whether_they_were_fitted(made: dict[str, Study], name: str) -> None:
    found = made[name]
    assert found.source and found.conditions and found.tables and found.findings and found.pictures
    for table in found.tables:
        keys = [c.key for c in table.columns]
        assert len(set(keys)) == len(keys) and table.rows, table.name
        for row in table.rows:
            assert {*keys} <= row.keys(), (table.name, row)
            if row.get("off") is not None:
                assert row["fitted"] in (FITTED, "no")
                assert row["off"] == pytest.approx(row["ours"] / row["published"] - 1)
            for c in table.columns:
                assert isinstance(cell(row[c.key], c), str)


@pytest.mark.parametrize("name", MADE)
def test_text_fits_a_terminal(made: dict[str, Study], name: str) -> None:
    wide = [line for line in lines(made[name], 40) if len(line) > 80]
    assert not wide


@pytest.mark.parametrize("name", MADE)
def test_every_published_file_has_its_source(name: str) -> None:
    folder = Path(__file__).parents[2] / "src/rooflm/data/works"
    files = sorted(folder.glob(f"{name}-*.csv"))
    assert files
    for path in files:
        assert path.read_text(encoding="utf-8").startswith("# "), path.name
        assert published(path.stem)


def test_the_command_writes_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, made: dict[str, Study]
) -> None:
    monkeypatch.setattr("rooflm.works.study.study", made.__getitem__)
    assert main(["study", "analysis", "--out", str(tmp_path), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["errors"]["formula, in no fit"]["rows"] == 12
    with (tmp_path / "analysis-hours.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["published"]) == 82432
    assert (tmp_path / "analysis-hours.png").stat().st_size > 5000
    assert "| llama-7b |" in (tmp_path / "analysis.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["anlysis"], "did you mean 'analysis'"),
        (["all", "--plot", "a.png"], "name the work"),
        (["analysis", "--picture", "hours"], "--plot FILE"),
        (["analysis", "--plot", "a.pdf"], "png"),
        (["analysis", "--out", __file__], "must be a folder"),
    ],
)
def test_bad_requests_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments]) == 2
    assert said in capsys.readouterr().err


# llm-analysis


def test_hours_of_flops_alone_are_those_of_its_table(made: dict[str, Study]) -> None:
    found = errors_of(made["analysis"].table("formula").rows)
    assert found.rows == 12 and found.most < 0.01


def test_latencies_are_those_of_its_tables(made: dict[str, Study]) -> None:
    found = errors_of(made["analysis"].table("latency").rows)
    assert found.rows == 48 and found.mean < 0.02 and found.most < 0.05


# Optimus


def test_what_fits_is_what_the_paper_says(made: dict[str, Study]) -> None:
    rows = made["technology"].table("memory").rows
    assert len(rows) == 12
    for row in rows:
        assert row["fits"] == (row["recompute"] != "none") == (row["total"] <= row["capacity"])


def test_activations_are_the_papers_bytes(made: dict[str, Study]) -> None:
    """s b h L (34 + 5 a s/h) / t split as in Korthikanti et al. 2022, table 2, for the model with one stage (22B)."""
    seq, batch, hidden, layers, heads, tp = 2048, 4, 6144, 48, 64, 8
    unit = seq * batch * hidden * layers
    square = 5 * heads * seq / hidden
    expected = {"none": 10 + 24 / tp + square / tp, "selective": 34 / tp, "full": 2.0}
    for row in made["technology"].table("memory").rows:
        if row["model"] == "megatron-22b":
            rest = row["activations"] / unit - expected[row["recompute"]]  # ends, and with full the layer at work
            assert 0 <= rest * unit / 1e9 < (0.8 if row["recompute"] != "full" else 2.0)


def test_training_and_inference_stay_within_what_is_said(made: dict[str, Study]) -> None:
    steps, requests = (errors_of(made["technology"].table(n).rows) for n in ("training", "inference"))
    assert (steps.rows, requests.rows) == (11, 22)
    assert steps.mean < 0.05 and steps.most < 0.10 and requests.mean < 0.05 and requests.most < 0.13


def test_the_order_of_bottlenecks_is_said_series_by_series(made: dict[str, Study]) -> None:
    rows = made["technology"].table("bottleneck").rows
    for row in rows:
        words = [p.split()[0] for p in row["path"].split(", ")]
        assert row["order"] == any(words[i : i + 3] == ["compute", "dram", "network"] for i in range(len(words)))
    assert {r["order"] for r in rows} == {True, False}
    told = " ".join(made["technology"].findings)
    assert all(r["series"] in told for r in rows)
