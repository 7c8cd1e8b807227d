"""Commands that a new user tries first: each once got no answer, or one that misled; what is said now stays said."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rooflm.cli.app import main

TRIES = {
    "a card by its number": ("infer llama-3.1-8b --gpu 5070", 0, "on 1 x rtx-5070"),
    "a mac by its chip": ("infer llama-3.1-8b --gpu m4", 0, "on 1 x apple-m4-10core-16gb, llama.cpp"),
    "a card of a laptop": ("infer llama-3.1-8b --gpu 'RTX 3080 laptop'", 0, "on 1 x rtx-3080-laptop-8gb"),
    "two cards at home": ("infer llama-3.1-70b --gpu rtx-3090 --gpus 2 --engine llama.cpp --quant q4_k_m", 0, "(pp 2)"),
    "a table that is not there": ("infer scen.csv", 2, "'scen.csv': there is no such file"),
    "cost": ("infer llama-3.1-8b --gpu h100 --outputs cost", 0, "cost_usd_per_million_tokens"),
    "a draft alone": ("infer llama-3.1-70b --gpu h100 --tp 4 --draft llama-3.1-8b", 2, "give guesses, such as 3"),
    "a scheme": ("show quant fp8", 0, "weights 8 bits"),
    "releases of engines": ("list engines", 0, "tgi 3.0 to 3.3 inference"),
    "a spreadsheet": ("infer llama-3.1-8b --gpu h100 --batch 1,2 --out x.xls", 2, ".parquet, .xlsx, .md"),
    "a batch is no load": ("search infer llama-2-7b --gpu a100 --gpus 1", 0, "(--under-load: users who come and go)"),
    "GPUs are counted": ("search infer llama-2-7b --gpu a100 --gpus 1,2 --batch 8", 0, "USD/M GPUs"),
    "adapters are searched": (
        "search train llama-3.1-8b --gpu rtx-5090 --gpus 1 --batch 16 --lora-rank 16", 0, "--use_peft --lora_r 16"),
    "a prefix that is shared": (
        "serve llama-3.1-8b --gpu h100 --concurrency 4 --requests 40 --prompt 2048 --output 16 --shared-prefix 1500", 0,
        "prompt tokens cached 7"),
    "a table of another kind": ("validate {here}/other.csv", 2, "lacks the column metric and value (see `rooflm val"),
    "a card of one's own": ("show gpu {here}/mine.toml", 0, "dram size 48.00 GiB"),
    "a scheme that llama.cpp lacks": (
        "infer llama-3.1-8b --gpu h100 --engine llama.cpp --quant nvfp4", 2, "engine llama.cpp does not run such a"),
    "a scheme of llama.cpp alone": ("infer llama-3.1-8b --gpu h100 --engine vllm --quant q4_k_m", 2, "try awq or gptq"),
}  # fmt: skip
"""What is tried: the words, the exit status, what the answer holds."""


@pytest.mark.parametrize("tried", TRIES)
def test_a_first_try(
    tried: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "other.csv").write_text("model,gpu,speed\nllama-3.1-8b,h100,1\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text('base = "rtx-4090"\n[dram]\nsize = "48 GiB"\n', encoding="utf-8")
    words, status, holds = TRIES[tried]
    asked = [w.replace("{here}", str(tmp_path)) for w in shlex.split(words)]
    assert main(asked) in ((0, None) if status == 0 else (status,))
    out, err = capsys.readouterr()
    assert holds in " ".join((out if status == 0 else err).split())
