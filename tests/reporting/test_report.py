"""The report: the answer first, every part of it, nothing from elsewhere, nothing of a name as markup."""

from __future__ import annotations

import json
import re

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.shown.blocks import Code
from rooflm.shown.numbers import seconds

CHAT = {"model": "llama-3.1-8b", "gpu": "h100", "batch": 8, "quant": "fp8", "question": "Chat on <one> card?"}
RUN = {"task": "train", "model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "batch": 64, "tokens": "10B"}


@pytest.fixture(scope="module")
def chat() -> str:
    return rooflm.report(CHAT).html()


def test_answer_first_and_every_part(chat: str) -> None:
    parts = re.findall(r"<h2>(.*?)</h2>", chat[: chat.index("<script")])
    assert parts == ["Memory and time", "Alternatives", "What bounds it", "How sure, and what is assumed", "To run it"]
    assert chat.index("FITS") < chat.index("<h2>")
    made = rooflm.infer("llama-3.1-8b", gpu="h100", batch=8, quant="fp8")
    assert seconds(made.tpot) in chat
    assert "in four of five like cases" in chat and "vllm serve" in chat and "twice the GPUs" in chat


def test_it_asks_nobody_and_no_name_is_markup(chat: str) -> None:
    before = chat[: chat.index('<script type="module">')]
    assert not re.findall(r'(?:src|href)="', before)
    assert "<one>" not in chat and "Chat on &lt;one&gt; card?" in chat
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', chat)[1])
    assert len(specs) == before.count("<figure ") == 4


def test_training_and_searches() -> None:
    trained = rooflm.report(RUN)
    assert [s.title for s in trained.sections][1:3] == ["Alternatives", "What bounds it"]
    rows = next(b for b in trained.sections[1].blocks).rows
    assert {"as asked", "half the GPUs", "recompute full"} <= {row[0] for row in rows}
    found = rooflm.report({"task": "search infer", "model": "llama-3.1-8b", "gpu": "h100", "batch": [1, 8]})
    assert found.question == "llama-3.1-8b: how is it served best?"
    assert found.sections[0].pictures
    assert any(isinstance(b, Code) and b.text.startswith("vllm serve") for b in found.answer)
    schemes = {row[0] for row in rooflm.report(CHAT | {"gpu": "a100"}).sections[1].blocks[0].rows}
    assert "int8" in schemes and "nvfp4" not in schemes  # of the engine and the card, no list of its own


def test_from_the_command_line(tmp_path, capsys) -> None:
    (tmp_path / "s.toml").write_text('task = "train"\nmodel = "llama-3.1-8b"\ngpu = "h100"\ngpus = 8\nbatch = 64\n')
    assert main(["report", str(tmp_path / "s.toml"), "-o", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "wrote" in capsys.readouterr().err


LOAD = {"task": "serve", "model": "llama-3.1-8b", "gpu": "h100", "concurrency": 2, "requests": 4, "output": 8}


@pytest.mark.parametrize(
    ("change", "told", "first"),
    [
        (LOAD, ["--max-num-seqs 2 "], "vllm serve"),
        (
            LOAD | {"prefill_replicas": 1, "prefill_tp": 2},
            ["# prefill, 1 of", "# decode, 1 of", "size 2 "],
            "# prefill",
        ),
        (LOAD | {"engine": "llama.cpp", "cpu_layers": 8}, ["--n-gpu-layers 24"], "llama-server"),
        (CHAT | {"adapters": 4, "adapter_rank": 32}, ["--enable-lora", "--max-loras 4", "rank 32"], "vllm serve"),
        (CHAT | {"engine": "llama.cpp", "quant": "bf16", "cpu_layers": 8}, ["--n-gpu-layers 24"], "llama-server"),
        (CHAT | {"guesses": 3, "draft": "llama-3.2-1b"}, ["meta-llama/Llama-3.2-1B", '_tokens":3'], "vllm serve"),
    ],
)
def test_to_run_it_says_all_that_was_asked(change, told, first) -> None:
    made = rooflm.report(change)
    command = next(b.text for b in made.sections[-1].blocks if isinstance(b, Code))
    assert command.startswith(first)
    assert not [words for words in told if words not in command], command


def test_a_search_of_inference_with_a_load_is_one_under_load() -> None:
    made = rooflm.report({"task": "search infer", "model": "llama-3.1-8b", "gpu": "h100", "gpus": 1, "concurrency": 8})
    assert made.question == "llama-3.1-8b: how is it served best under load?"


def test_of_a_load_from_a_file(tmp_path) -> None:
    (tmp_path / "s.toml").write_text("".join(f"{k} = {v!r}\n" for k, v in LOAD.items()))
    assert main(["report", str(tmp_path / "s.toml"), "-o", str(tmp_path / "r.html")]) == 0
    assert "To run it" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "serv"}, "did you mean 'serve'"),
        ({"gpu": ["h100", "a100"]}, "not of a list"),
        ({"bach": 3}, "did you mean 'batch'"),
        ({"model": ["a", "b"]}, "not of a list"),
    ],
)
def test_what_is_wrong_is_told(change, words) -> None:
    with pytest.raises(RooflmError, match=words):
        rooflm.report(CHAT | change)


def test_what_is_no_scenario_is_told() -> None:
    with pytest.raises(RooflmError, match="the scenario is 5, but it must be a file's name or a table of arguments"):
        rooflm.report(5)


def test_of_a_load_too_one_is_asked_for() -> None:
    with pytest.raises(RooflmError, match="a report on serve is of one scenario, not of a list"):
        rooflm.report({"task": "serve", "model": "llama-3.1-8b", "gpu": ["h100", "a100"], "rate": 1, "requests": 4})


def test_a_missing_file_is_told(tmp_path) -> None:
    with pytest.raises(RooflmError, match="is no scenario"):
        rooflm.report(str(tmp_path / "none.toml"))
