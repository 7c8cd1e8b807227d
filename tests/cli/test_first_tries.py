"""Commands that a new user tries first: each once got no answer, or one that misled; what is said now stays said."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli.app import main

TABLE = Path(__file__).with_name("first_tries.toml")
TRIES: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["try"]
BENCHMARK = {
    "backend": "vllm", "model_id": "meta-llama/Llama-3.1-70B-Instruct", "num_prompts": 8, "max_concurrency": 4,
    "completed": 8, "total_input_tokens": 8192, "total_output_tokens": 512, "mean_ttft_ms": 400.0, "mean_tpot_ms": 45.0,
}  # fmt: skip
"""What `vllm bench serve` writes."""


@pytest.mark.parametrize("tried", TRIES, ids=[t["of"] for t in TRIES])
def test_a_first_try(
    tried: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "other.csv").write_text("model,gpu,speed\nllama-3.1-8b,h100,1\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text('base = "rtx-4090"\n[dram]\nsize = "48 GiB"\n', encoding="utf-8")
    bare = "peak = { bf16 = 400 }\n[dram]\nsize = 64\nbandwidth = 2\n"
    (tmp_path / "bare.toml").write_text(bare, encoding="utf-8")
    (tmp_path / "bench.json").write_text(json.dumps(BENCHMARK), encoding="utf-8")
    status = tried.get("status", 0)
    asked = [w.replace("{here}", str(tmp_path)) for w in shlex.split(tried["words"])]
    assert main(asked) in ((0, None) if status == 0 else (status,))
    out, err = capsys.readouterr()
    said = " ".join((out if status == 0 else err).split())
    for part in tried["holds"].split(" ... "):
        _, found, said = said.partition(part)
        assert found, (part, out or err)
