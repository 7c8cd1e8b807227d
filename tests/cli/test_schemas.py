"""Schemas of files: those of today, true of every row that ships and every example, and strict with what is wrong."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rooflm.cli.app import main
from rooflm.cli.schemas import SCHEMAS, schema
from rooflm.readers.rows import DATA, names, raw_row
from rooflm_fit.pages import DOCS, pages

ROOT = Path(__file__).parents[2]
VALID = {kind: Draft202012Validator(schema(kind)) for kind in SCHEMAS}
ROWS = {"device": "gpu", "cluster": "cluster", "model": "model", "engine": "engine"}


def wrong(kind: str, instance: Any) -> list[str]:
    """What a schema says against it."""
    return [f"{e.json_path}: {e.message[:200]}" for e in VALID[kind].iter_errors(instance)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_it_is_a_schema_of_today(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Draft202012Validator.check_schema(schema(kind))
    path = DOCS / "schema" / f"{kind}.json"
    assert path.read_text(encoding="utf-8") == pages()[path], "run python -m rooflm_fit.pages"
    assert main(["show", "schema", kind]) == 0
    assert json.loads(capsys.readouterr().out) == schema(kind)


@pytest.mark.parametrize("kind", ROWS)
def test_every_row_of_the_catalogue(kind: str) -> None:
    found = {name: wrong(kind, raw_row(ROWS[kind], name)[0]) for name in names(ROWS[kind])}
    assert found and {k: v for k, v in found.items() if v} == {}


def test_every_published_row() -> None:
    files = sorted((DATA / "published").glob("*.csv"))
    assert files
    for file in files:
        with file.open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                if number % 7 == 2:  # a seventh: cells of a column are alike
                    assert wrong("measured", row) == [], (file.name, number)


PAGE = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n#:schema [^\n]*/(\w+)\.json\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_of_the_page_are_right_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {kind for kind, _ in EXAMPLES} == {"device", "cluster", "model", "engine", "scenario"}
    for number, (kind, text) in enumerate(EXAMPLES):
        assert wrong(kind, tomllib.loads(text)) == [], text
        file = tmp_path / f"{kind}{number}.toml"
        file.write_text(text, encoding="utf-8")
        words = {"device": ["llama-3.1-8b", "--gpu", str(file)], "engine": ["llama-3.1-8b", "--gpu", "h100", "--engine",
                 str(file)], "cluster": ["llama-3.1-8b", "--gpu", "h100", "--cluster", str(file)],
                 "model": [str(file), "--gpu", "h100"], "scenario": [str(file)]}[kind]  # fmt: skip
        assert main(["infer", *words]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("kind", "instance", "words"), [
    ("device", {"base": "h100", "dram": {"sise": "96 GiB"}}, "sise"),
    ("device", {"base": "h100", "tdp": -5}, "-5"),
    ("device", {"memory": "24 GiB"}, "not valid under any"),
    ("cluster", {"device": "h100", "tiers": [{"name": "a", "kind": "tin", "size": 8, "bandwidth": "1 GB/s",
                                              "latency": 0}]}, "tin"),
    ("model", {"hidden": 64, "vocab": 10, "blocks": []}, "[] should be non-empty"),
    ("model", {"hidden": 64.5, "vocab": 0, "blocks": [{"count": 1, "ffn": {"kind": "mlp", "width": 4}}]}, "0 is less"),
    ("engine", {"base": "vllm", "memory_fraction": 1.7}, "1.7 is greater"),
    ("engine", {"base": "vllm", "phase": "thinking"}, "thinking"),
    ("scenario", {"model": "llama-7b", "bach": 3}, "bach"),
    ("scenario", {"model": "llama-7b", "task": "train", "prompt": 3}, "prompt"),
    ("measured", {"metric": "speed", "value": "1"}, "speed"),
    ("measured", {"metric": "ttft", "value": "quick"}, "quick"),
])  # fmt: skip
def test_what_is_wrong_is_told(kind: str, instance: Any, words: str) -> None:
    assert words in " ".join(wrong(kind, instance))
