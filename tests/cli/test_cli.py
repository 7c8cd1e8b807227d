"""The command line as a person meets it: answers, JSON, files, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rooflm.cli.app import main

CONTRACT = {
    "ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu", "memory_bytes", "memory",
    "fits",
    "max_batch", "comm_bytes", "prefill_parts_s", "decode_parts_s", "bound", "mfu", "mbu", "busy",
    "cost_usd_per_million_tokens", "energy_j_per_token",
}  # fmt: skip


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    out = capsys.readouterr()
    return status, out.out, out.err


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = _run(capsys, "infer", "llama-2-7b", "--gpu", "a100", "--json")
    values = json.loads(out)
    assert status == 0
    assert set(values) >= CONTRACT
    assert sum(values["prefill_parts_s"].values()) == pytest.approx(values["ttft_s"])
    assert sum(values["decode_parts_s"].values()) == pytest.approx(values["tpot_s"])
    assert sum(values["memory"].values()) == pytest.approx(values["memory_bytes"])
    assert values["fits"] is True


def test_json_with_axes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capsys, "infer", "llama-2-7b", "--gpu", "a100,h100", "--batch", "1..8*2", "--json")
    values = json.loads(out)
    assert values["axes"] == {"gpu": ["a100", "h100"], "batch": [1, 2, 4, 8]}
    assert len(values["tpot_s"]) == 2
    assert len(values["tpot_s"][0]) == 4


def test_tables_keep_to_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("infer", "llama-2-70b", "--gpu", "h100", "--gpus", "8", "--batch", "64", "--ops"),
        ("infer", "deepseek-v3", "--gpu", "h200", "--gpus", "16"),
        ("infer", "llama-2-13b", "--gpu", "rtx-3060-12gb"),
        ("infer", "llama-7b,llama-13b", "--gpu", "rtx-3090,a100-sxm-80gb", "--batch", "1,256", "--output", "128,512"),
        ("list", "gpus"), ("list", "models"), ("list", "clusters"), ("list", "engines"), ("list", "quants"),
        ("show", "gpu", "h100"), ("show", "model", "deepseek-v3"), ("show", "model", "gemma-3-27b"),
        ("show", "cluster", "dgx-h100"),
        ("show", "engine", "vllm"),
    ):  # fmt: skip
        status, out, _ = _run(capsys, *words)
        assert status == 0, words
        assert out.strip(), words
        assert max(map(len, out.splitlines())) <= 80, (words, max(out.splitlines(), key=len))


def test_a_model_that_does_not_fit_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capsys, "infer", "llama-2-13b", "--gpu", "rtx-3060-12gb")
    assert "DOES NOT FIT" in out
    assert "Would fit: quant awq; 3 GPUs (pp 3)." in out
    assert out.index("DOES NOT FIT") < out.index("Would fit") < out.index("Speed, if it did") and "Prefill" not in out
    _, full, _ = _run(capsys, "infer", "llama-2-13b", "--gpu", "rtx-3060-12gb", "--verbose")
    assert "Prefill" in full and "published values" in full


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("infer", "llama-2-7b", "--gpu", "h100-sxm5"), "did you mean 'h100-sxm-80gb'"),
        (("infer", "lama-2-7b", "--gpu", "a100"), "did you mean 'llama-2-7b'"),
        (("infer", "llama-2-7b"), "gpu is missing"),
        (
            ("infer", "llama-2-7b", "--gpu", "a100", "--tp", "3"),
            "tp is 3, but it must divide the 32 attention heads of llama-2-7b: try 2 or 4",
        ),
        (
            ("infer", "llama-2-7b", "--gpu", "a100", "--batch", "-4"),
            "batch is -4, but it must be a whole number of at least 1",
        ),
        (("infer", "llama-2-7b", "--gpu", "a100", "--batch", "0"), "batch is 0"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--prompt", "1.5"), "prompt is 1.5"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--prompt", "many"), "prompt is 'many'"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--output", "nan"), "output is nan"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--quant", "w17a16"), "weight width of 17 bits"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--quant", "w4a16kv9"), "KV width of 9 bits"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--engine", "vlm"), "did you mean 'vllm'"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--engine", "megatrn"), "unknown engine 'megatrn'; see `rooflm list"),
        (("train", "llama-2-7b", "--gpu", "a100", "--batch", "8", "--engine", "sglng"), "'sglng'; see `rooflm list"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--efficiency", "1.5"), "from 0.000001 to 1"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--efficiency", "perfect"), "efficiency is 'perfect'"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--set", "model.widht_scale=2"), "did you mean 'width_scale'"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--set", "model.hidden=-1"), "must be a whole number of at least 1"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--set", "nonsense"), "must be PATH=VALUE"),
        (
            ("infer", "llama-2-7b", "--gpu", "a100", "--set", "cluster.device.dram.bandwidth=5 parsecs"),
            "its unit must be B/s",
        ),
        (("infer", "llama-2-7b", "--gpu", "a100", "--out", "/nonexistent/x.csv"), "does not exist"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--out", "x.txt"), "must end in .csv"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--batch", "8..1"), "must go upwards"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--batch", "4,4"), "value twice"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--gpus", "6", "--tp", "4"), "must divide it"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--ep", "2"), "has no experts"),
        (
            ("infer", "mixtral-8x7b", "--gpu", "a100", "--tp", "2", "--dp", "4", "--ep", "3"),
            "must divide the 8 experts",
        ),
        (("infer", "llama-2-7b", "--gpu", "a100", "--pp", "64"), "only 32 layers"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--cached", "512"), "must be below prompt"),
        (("infer", "llama-2-7b", "--gpu", "a100", "--tp", "3,5"), "no point of the grid can run; the first: tp is 3"),
        (
            ("train", "llama-2-7b", "--gpu", "a100", "--batch", "8", "--gpus", "8", "--tp", "3,5"),
            "no point of the grid can run",
        ),
        (("list", "gpu5"), "did you mean 'gpus'"),
        (("show", "gpu", "a10x"), "did you mean 'a10'"),
        (("infr",), "Did you mean"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    status, out, err = _run(capsys, *words)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert "Traceback" not in err


def test_files_appear_whole_or_not_at_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for suffix in ("csv", "json", "nc", "parquet"):
        one, many = tmp_path / f"one.{suffix}", tmp_path / f"many.{suffix}"
        assert _run(capsys, "infer", "llama-2-7b", "--gpu", "a100", "--out", str(one))[0] == 0
        assert _run(capsys, "infer", "llama-2-7b", "--gpu", "a100", "--batch", "1,2", "--out", str(many))[0] == 0
        assert one.stat().st_size > 100
        assert many.stat().st_size > 100
    bad = tmp_path / "bad.csv"
    assert _run(capsys, "infer", "llama-2-7b", "--gpu", "a100", "--tp", "3", "--out", str(bad))[0] == 2
    assert _run(capsys, "infer", "llama-2-7b", "--gpu", "a100", "--tp", "3,5", "--out", str(bad))[0] == 2
    assert not bad.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        f"{n}.{s}" for n in ("one", "many") for s in ("csv", "json", "nc", "parquet")
    )


def test_a_csv_grid_has_a_row_a_point(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import csv

    target = tmp_path / "grid.csv"
    _run(capsys, "infer", "llama-2-7b", "--gpu", "a100,h100", "--batch", "1,2,4", "--out", str(target))
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert [(r["gpu"], r["batch"]) for r in rows] == [(g, b) for g in ("a100", "h100") for b in ("1", "2", "4")]
    assert all(float(r["tpot_s"]) > 0 for r in rows)


def test_a_users_own_device_works(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "my-card.toml"
    mine.write_text(
        'vendor = "me"\narchitecture = "ampere"\npeak = { bf16 = "100 TFLOP/s" }\nsms = 50\nclock = "1.5 GHz"\n'
        'l1 = { size = "10 MiB", bandwidth = "10 TB/s" }\nl2 = { size = "6 MiB", bandwidth = "2 TB/s" }\n'
        'dram = { size = "24 GiB", bandwidth = "1 TB/s" }\ntdp = "300 W"\nidle = "20 W"\nprice = 0.5\n'
    )
    status, out, _ = _run(capsys, "infer", "llama-2-7b", "--gpu", str(mine), "--efficiency", "ideal", "--json")
    assert status == 0
    assert json.loads(out)["tpot_s"] == pytest.approx(13.5e-3, rel=0.05)
    mine.write_text(mine.read_text().replace('"1 TB/s"', '"1 parsec"'))
    status, _, err = _run(capsys, "infer", "llama-2-7b", "--gpu", str(mine))
    assert status == 2
    assert "dram.bandwidth" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["-h"], ["search"], ["explore"], ["infer", "-h"], ["search", "train", "-h"]])
def test_help_is_no_error_and_ends_in_examples(words, capsys):
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.split()[:2] == ["Usage:", "rooflm"]
    assert max(map(len, out.splitlines())) <= 80
    assert f"\n   rooflm {' '.join(w for w in words if w != '-h')}".rstrip() in out.split(" Examples")[1]


@pytest.mark.parametrize(("name", "usage"), [("validate", "[FILE.csv]...\n"), ("compare", "{RESULTS}...\n")])
def test_usage_writes_files_once(name, usage, capsys):
    assert main([name, "--help"]) == 0
    assert f"[OPTIONS] {usage}" in "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("words", ["infer", "serve", "search infer", "compare", "validate", "measure", "study"])
def test_help_says_every_format_of_a_picture(words, capsys):
    assert main([*words.split(), "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split()).partition(" --plot ")[2][:120]
    assert all(kind in said for kind in ("png", "svg", "html", "json")), said


def test_help_has_groups_and_exit_statuses(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    heads = [line.strip("╭─╮ ") for line in out.splitlines() if line.startswith("╭")]
    assert heads == ["Options", "Predict", "Choose", "Measure, and how far to trust it", "What is known"]
    assert "Exit status: 0" in out
    assert main(["infer", "-h"]) == 0
    out = capsys.readouterr().out
    heads = [line.strip("╭─╮ ") for line in out.splitlines() if line.startswith("╭")]
    assert heads[2:] == ["Where it runs", "How it is split", "What is asked", "Speculative decoding",
                         "Adapters (LoRA) beside the model", "What the host holds", "How it runs",
                         "How it is swept", "The answer"]  # fmt: skip


def test_every_output_that_was_asked_for_is_printed_in_that_order(capsys):
    asked = ["comm_bytes", "memory_bytes", "latency_s", "max_batch", "fits", "cost_usd_per_million_tokens", "tpot_s"]
    words = ["infer", "llama-2-7b", "--gpu", "a100-pcie-40gb", "--outputs", ",".join(asked)]
    assert main([*words, "--tp", "4,1", "--pp", "1,4", "--zip", "tp,pp", "--batch", "1,512"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    heads = [line.split() for line in out.splitlines() if line.startswith("tp ")]
    shown = [w for head in heads for w in head if w not in ("tp", "pp", "batch")]
    assert shown == ["comm_bytes.prefill", "comm_bytes.decode", "memory", "latency", "max_batch", "fits",
                     "USD/M", "TPOT"]  # fmt: skip
    assert main(words) == 0
    heads = [w for part in capsys.readouterr().out.split("\n\n") for w in part.split("\n")[0].split()]
    assert heads[: len(shown)] == shown
    assert main([*words, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == asked


def test_named_outputs_say_what_does_not_run_and_whose_constants_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for gpus, rows in (("rtx-4060", ["OOM"]), ("rtx-4060,h100", ["OOM", "yes"]), ("h100", [])):
        assert main(["infer", "llama-3.1-8b", "--gpu", gpus, "--outputs", "tpot"]) == 0
        out = capsys.readouterr().out
        table = [line.split() for line in out.split("\n\n")[0].splitlines()]
        assert ("fits" in table[0]) == bool(rows) and [line[-3] for line in table[1:] if rows] == rows
        assert "assumed: cluster" in out and ("of other geforce cards" in " ".join(out.split())) == ("rtx" in gpus)
    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--outputs", "tpot", "--tp", "2,3"]) == 0
    assert "tp does not divide the heads" in capsys.readouterr().out


def test_a_grid_warns_of_what_a_point_would(capsys: pytest.CaptureFixture[str]) -> None:
    for prompts in ("200k", "1k,200k"):
        assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--prompt", prompts]) == 0
        assert "beyond the 131072 that llama-3.1-8b was made for" in capsys.readouterr().err
    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--prompt", "1k,200k", "--json"]) == 0
    assert "beyond" in json.loads(capsys.readouterr().out)["warnings"][0]


def test_a_grid_says_how_wide_its_bands_are(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("infer", "llama-3.1-8b", "--gpu", "h100,a100", "--batch", "1,8")
    _, out, _ = _run(capsys, *words, "--json")
    grid, low, high = json.loads(out), [], []
    for i, j in ((i, j) for i in range(2) for j in range(2)):
        low.append(grid["error_band"]["ttft_s"]["low"][i][j] / grid["ttft_s"][i][j])
        high.append(grid["error_band"]["ttft_s"]["high"][i][j] / grid["ttft_s"][i][j])
    _, out, _ = _run(capsys, *words)
    assert f"In four of five like cases: TTFT {min(low):.2f} to {max(high):.2f}, TPOT" in out and "at the widest" in out
    assert "four of five" not in _run(capsys, *words, "--efficiency", "ideal")[1]
    loads = ("serve", "llama-3.1-8b", "--gpu", "h100", "--rate", "1,2", "--requests", "40")
    assert "In four of five like cases: TTFT " in _run(capsys, *loads)[1]


def test_a_list_of_prices_shows_what_tokens_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "llama-2-7b", "--gpu", "a100", "--price", "1,2"]) == 0
    head, one, two = (line.split() for line in capsys.readouterr().out.splitlines()[:3])
    assert head[2] == "USD/M" and float(two[2]) == pytest.approx(2 * float(one[2]), rel=0.01)


def test_several_cards_show_what_tokens_cost_and_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    for cards, batch in (("l4,h100", "8"), ("h100", "1,8")):
        assert main(["infer", "llama-3.2-1b", "--gpu", cards, "--batch", batch]) == 0
        out = capsys.readouterr().out
        several = "," in cards
        assert out.split("\n")[0].split()[1:3] == ["fits", "USD/M" if several else "TTFT"]
        assert ("h100-sxm-80gb 2.95 USD an hour" in " ".join(out.split())) == several
        assert max(map(len, out.splitlines())) <= 80


def test_values_of_an_axis_have_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    for path, asked, shown in (
        ("cluster.device.dram.bandwidth", "2TB/s,3.35TB/s", ("2 TB/s", "3.35 TB/s")),
        ("cluster.device.dram.size", "80GiB,96GiB", ("80 GiB", "96 GiB")),
        ("cluster.tiers.0.latency", "1us,2us", ("1 µs", "2 µs")),
        ("engine.step", "1ms,2ms", ("1 ms", "2 ms")),
        ("mapping.tp", "1,2", ("1", "2")),
    ):
        assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--set", f"{path}={asked}", "--outputs", "tpot"]) == 0
        rows = [line.split("  ") for line in capsys.readouterr().out.split("\n\n")[0].splitlines()]
        assert tuple(next(filter(None, row)).strip() for row in rows[1:]) == shown


def test_a_grid_says_what_each_of_its_cards_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["infer", "llama-3.1-8b", "--gpu", "h100,v100,m3-max", "--batch", "1,2", "--quant", "bf16"]
    assert main(words) == 0
    table, _, _, same, assumed = capsys.readouterr().out.split("\n\n")
    assert "USD/M" in table  # cards are chosen by what their tokens cost
    assert same.strip() == "all of them: llama-3.1-8b; prompt 512; output 128"
    told = " ".join(assumed.split())
    assert "engine vllm (v100: vllm-0.14; m3-max: llama.cpp);" in told
    assert "; computed in fp16 (v100-sxm-32gb has no units for bf16);" in told
    assert "constants of all measured cards for want of its own (v100)" in told
    assert "constants of other apple cards" not in told
    assert main(["--quiet", *words]) == 0
    assert "assumed" not in capsys.readouterr().out


def test_a_command_of_a_group_that_is_unknown_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "llama-3.1-8b"]) == 2
    assert capsys.readouterr().err == "rooflm: No such command 'llama-3.1-8b': it must be one of infer, train\n"
