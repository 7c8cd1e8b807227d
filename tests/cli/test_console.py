"""What a terminal, a pipe and a shell meet: any encoding, any width, completion, quiet and verbose, progress, exit
statuses."""

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rooflm.cli import console
from rooflm.cli.app import COMMANDS, main
from rooflm.cli.console import Voice, counting, working
from rooflm.cli.examples import EXAMPLES
from rooflm.shown.progress import tell_done

ROOT = Path(__file__).parents[2]
ANSWER = ["infer", "llama-3.1-8b", "--gpu", "h100"]


SAID = (
    [], ANSWER, [*ANSWER, "--ops", "--sensitivity"], [*ANSWER, "--batch", "1,2", "--outputs", "cost,tpot,energy"],
    ["train", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8", "--batch", "8", "--seq", "512", "--tokens", "1T"],
    ["serve", "llama-3.1-8b", "--gpu", "l4", "--concurrency", "2", "--prompt", "64", "--output", "8"],
    ["search", "infer", "llama-3.1-8b", "--gpu", "h100,l4", "--batch", "8", "--gpus", "1"],
    ["search", "train", "llama-3.2-1b", "--gpu", "h100", "--gpus", "8", "--batch", "8", "--seq", "512"],
    ["list", "gpus", "rtx"], ["list", "engines"], ["show", "gpu", "h100"], ["show", "model", "deepseek-v3"],
    ["show", "engine", "vllm"], ["predict", "gemm", "--gpu", "h100", "--m", "64", "--n", "4096", "--k", "4096"],
    ["explore", "generations", "--help"],
)  # fmt: skip
"""Commands whose answers hold units, sources and tables."""


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "cp932"])
@pytest.mark.parametrize("words", SAID, ids=" ".join)
def test_any_encoding_takes_the_answer(words, encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(words) in (None, 0)
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    lost = [line for line in text.splitlines() if "?" in line and not re.search(r"\w\?(\s|$|\))", line)]
    assert len(text) > 100 and not lost
    if words == ANSWER:
        assert "FITS" in text and re.search(r"\d us ", text)  # microseconds, without their sign


def test_a_wide_terminal_is_used_and_a_narrow_one_respected(monkeypatch, capsys):
    words = ["infer", "llama-2-7b", "--gpu", "a100", "--batch", "1,2", "--outputs",
             "comm_bytes,memory_bytes,latency_s,max_batch,cost_usd_per_million_tokens,tpot_s"]  # fmt: skip
    heights = {}
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(words) == 0 and main(ANSWER) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        assert columns / 2 < max(map(len, lines))
        heights[columns] = len(lines)
    assert heights[60] > heights[80] > heights[200]


def test_nothing_is_cut_in_silence(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "gpus"]) == 0
    head, *rows, note = capsys.readouterr().out.splitlines()
    assert head.split() == ["GPU", "TFLOP/s", "type", "memory", "bandwidth", "TDP", "USD/h"]
    assert all(float(row.split()[-1]) >= 0 for row in rows) and note.startswith("(left out: to buy")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list", "gpus"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("USD/h  to buy")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", "gpus", "--under", "400"]) == 0
    head, *rows, note = capsys.readouterr().out.splitlines()
    assert head.split()[-3:] == ["USD/h", "to", "buy"] and all(float(row.split()[-1]) <= 400 for row in rows)
    assert main(["list", "gpus", "h100", "--under", "500"]) == 2
    assert "has a known price of at most 500 USD" in capsys.readouterr().err
    assert main(["infer", "llama-2-7b", "--gpu", "rtx-3090,a100", "--batch", "1,8", "--prompt", "128,512",
                 "--tp", "1,2", "--quant", "w4a16kv16,w16a16kv16"]) == 0  # fmt: skip
    out = capsys.readouterr().out
    assert "(left out: " in out and max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "asked", "found"),
    [
        ("rooflm infer llama-3.1-", "llama-3.1-", "llama-3.1-8b"),
        ("rooflm infer llama-3.1-8b --gpu h10", "h10", "h100-sxm-80gb"),
        ("rooflm infer llama-3.1-8b --gpu a100-sxm-80gb,h10", "a100-sxm-80gb,h10", "a100-sxm-80gb,h100-sxm-80gb"),
        ("rooflm infer llama-3.1-8b --engine sgl", "sgl", "sglang"),
        ("rooflm infer llama-3.1-8b --quant nv", "nv", "nvfp4"),
        ("rooflm train llama-3.1-8b --recompute sel", "sel", "selective"),
        ("rooflm search infer mix", "mix", "mixtral-8x7b"),
        ("rooflm show model deepseek-v", "deepseek-v", "deepseek-v3"),
        ("rooflm list gp", "gp", "gpus"),
        ("rooflm va", "va", "validate"),
    ],
)
def test_names_are_completed(line, asked, found, monkeypatch, capsys):
    words = line.split(" ")
    monkeypatch.setenv("_ROOFLM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert main([]) == 0
    assert found in capsys.readouterr().out.split()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(name, monkeypatch, capsys):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert main(["--show-completion", name]) == 0
    assert "_ROOFLM_COMPLETE" in capsys.readouterr().out


def test_quiet_and_verbose(capsys):
    usual, quiet, verbose = [(main([*ANSWER, "--prompt", "200000", *more]), *capsys.readouterr())
                             for more in ([], ["--quiet"], ["--verbose"])]  # fmt: skip
    assert "warning" in usual[2] and quiet[2] == "" and "warning" in verbose[2]
    assert "assumed: " in usual[1] and "assumed: " not in quiet[1]
    assert "published values" in verbose[1] and "published values" not in usual[1]
    assert (main(["--quiet", *ANSWER, "--prompt", "200000"]), capsys.readouterr().err) == (0, "")


def test_progress_of_what_is_slow(monkeypatch, capsys):
    monkeypatch.setattr(Voice, "quiet", False)
    monkeypatch.setattr(console, "SLOW", 0.05)
    monkeypatch.setattr(console, "EVERY", 0.05)

    def said(line: str) -> bool:
        """Whether a line is told, however long it takes (a minute on a machine that is more than busy)."""
        return any(re.search(line, capsys.readouterr().err) or time.sleep(0.02) for _ in range(3000))

    with working("rows predicted", 100) as told:
        told(40)
        assert said(r"^rooflm: rows predicted: 40 of 100\n")
    with working("searching"):
        assert said(r"^rooflm: searching: \d+ s\n")
    with counting("predicting", "rows"):
        tell_done(40, 1000)
        assert said(r"^rooflm: predicting: 40 of 1,000 rows\n")
    capsys.readouterr()
    monkeypatch.setattr(Voice, "quiet", True)
    with working("searching"):
        time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_progress_ends_with_its_command_if_that_is_interrupted_as_it_begins(monkeypatch, capsys):
    """Ctrl-C while the thread starts: what tells must not go on into whatever runs next."""
    started = threading.Thread.start

    def interrupted(thread):
        started(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(Voice, "quiet", False)
    monkeypatch.setattr(console, "SLOW", 0.05)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt), working("points worked out"):
        pass
    assert threading.active_count() == before
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_search_that_finds_nothing_exits_1_with_the_nearest(capsys):
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--tpot", "7ms"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("No point meets every constraint.") and "The nearest: a100 batch 1" in out
    assert "Weights of 16 bits alone were tried: --quant int8,awq tries narrower ones." in out
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--tpot", "1us"]) == 1
    assert "alone were tried" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("infer llama-7b --gpu a100 --gpus 1 --batch 1,8", "output tokens/s per GPU"),
        ("infer llama-7b --gpu a100 --gpus-max 1 --concurrency 8", "output tokens/s per GPU"),
        ("train llama-3.2-1b --gpu h100 --gpus 8 --batch 8 --seq 512", "step time (s)"),
    ],
)
def test_what_a_search_found_goes_to_a_table_and_a_picture(words, drawn, capsys, tmp_path):
    table, plot = tmp_path / "found.csv", tmp_path / "found.json"
    assert main(["search", *words.split(), "--out", str(table), "--plot", str(plot)]) in (0, None)
    rows = table.read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("list,gpu") and {r.split(",")[0] for r in rows[1:]} == {"best", "trade-off"}
    assert drawn in plot.read_text(encoding="utf-8")
    assert json.loads(plot.read_text(encoding="utf-8"))["title"]["subtitle"][0].startswith(words.split()[1])
    assert main(["search", *words.split(), "--plot", "found.gif"]) == 2
    assert "--plot" in capsys.readouterr().err


def test_a_search_says_the_answer_first(capsys):
    words = ["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--tpot", "20ms"]
    assert main(words) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Best throughput per GPU: a100 batch ")
    assert any(line.startswith("vllm serve") for line in rest[:9])  # the last limit wraps
    assert "of one batch that comes at once" in " ".join(rest[:6]) and "add --concurrency" in " ".join(rest[:6])


def test_every_command_has_examples_that_parse(monkeypatch, capsys):
    assert {name.split()[0] for name in EXAMPLES} == set(COMMANDS)
    for name, examples in EXAMPLES.items():
        for words in (e.split() for e in examples):
            assert words[0] == "rooflm" and " ".join(words[1:]).startswith(name)
            options = [w for w in words if w.startswith("--")]
            assert main([*name.split(), "--help"]) == 0
            told = capsys.readouterr().out
            assert all(option in told for option in options), (words, options)


def test_a_home_folder_is_known_by_its_sign(tmp_path, monkeypatch, capsys):
    (tmp_path / "card.toml").write_text('base = "rtx-4090"\nnote = "mine"\n[dram]\nsize = "48 GiB"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert main(["infer", "llama-7b", "--gpu", "~/card.toml", "--out", "~/one.csv"]) == 0
    assert (tmp_path / "one.csv").is_file() and "card" in capsys.readouterr().out


def test_only_the_command_that_is_asked_for_is_loaded():
    seen = (
        "import sys; from rooflm.cli.app import main; main(['list', 'quants']); "
        "print({m for m in sys.modules if m in ('rooflm.cli.explore', 'rooflm.cli.measure', 'xarray', 'pandas')})"
    )
    told = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "src")})  # fmt: skip
    assert told.stdout.splitlines()[-1] == "set()"
