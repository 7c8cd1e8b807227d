"""Scenario files: what stands in them is what the same arguments give, and what is wrong in them is told."""

import json

import numpy as np
import pytest

import rooflm
from rooflm.asked.files import read_table
from rooflm.cli.app import main
from rooflm.errors import RooflmError

TOML = """
question = "How fast on which card?"
model = "llama-3.1-8b"
gpu = ["a100", "h100"]
batch = "1..4*2"
quant = "fp8"
[set]
"engine.memory_fraction" = 0.5
"""
YAML = """
model: llama-3.1-8b
gpu: [a100, h100]
batch: 1..4*2
quant: fp8
set: {engine.memory_fraction: 0.5}
"""


@pytest.mark.parametrize(("name", "text"), [("s.toml", TOML), ("s.yaml", YAML)])
def test_a_file_is_its_arguments(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = rooflm.infer(str(tmp_path / name))
    sets = {"engine.memory_fraction": 0.5}
    same = rooflm.infer("llama-3.1-8b", gpu=["a100", "h100"], batch=[1, 2, 4], quant="fp8", sets=sets)
    assert found.sizes == same.sizes
    np.testing.assert_array_equal(found["tpot_s"], same["tpot_s"])
    one = rooflm.infer(str(tmp_path / name), gpu="h100", batch=2)
    assert one.tpot == same["tpot_s"].sel(gpu="h100", batch=2)


def test_rows_of_a_csv_are_scenarios(tmp_path, capsys):
    (tmp_path / "s.csv").write_text("model,gpu,batch,prompt\nllama-3.1-8b,h100,1,512\nqwen3-8b,l4,2,512\n")
    found = rooflm.infer(str(tmp_path / "s.csv"))
    assert found["tpot_s"].shape == (2,)
    assert found["tpot_s"].values[1] == rooflm.infer("qwen3-8b", gpu="l4", batch=2, prompt=512).tpot
    assert main(["infer", str(tmp_path / "s.csv"), "--outputs", "tpot", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tpot_s"] == found["tpot_s"].values.tolist()


def test_the_command_line_overrides(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(TOML)
    assert (
        main(["infer", str(tmp_path / "s.toml"), "--gpu", "h200", "--batch", "1", "--outputs", "tpot", "--json"]) == 0
    )
    sets = {"engine.memory_fraction": 0.5}
    expected = rooflm.infer("llama-3.1-8b", gpu="h200", quant="fp8", sets=sets).tpot
    assert json.loads(capsys.readouterr().out)["tpot_s"] == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", 'model = "llama-3.1-8b"\nbach = 3', "no argument 'bach': did you mean 'batch'"),
        ("a.toml", 'model = "llama-3.1-8b"\nbatch = "many"', "batch is 'many'"),
        ("a.toml", 'model = "llama-3.1-8b"\nbatch = ', "is not valid TOML"),
        ("a.toml", 'model = "llama-3.1-8b"\n[engine]\nbase = "vllm"', "engine is a table, but it must be a value"),
        ("a.yaml", "model: [", "cannot read"),
        ("a.yaml", "model: llama-7b\nbatch: [1, 8\n", "it is not valid YAML: line 3: expected ',' or ']'"),
        ("a.csv", "model,batch\nllama-3.1-8b,1,2\n", "has 3 cells in row 1, but its first line names 2 columns"),
        ("a.csv", "model,batch\nllama-3.1-8b,\nllama-3.1-8b,2\n", "'batch' is empty in some rows"),
        ("a.csv", "model,batch\n", "has no rows"),
        ("a.csv", "model,gpu\nllama-3.1-8b,h100\nllama-3.2-9b,h100\n", "row 2: unknown model 'llama-3.2-9b'"),
        ("a.csv", "model,gpu\nllama-3.1-8b,h1000\nllama-3.2-1b,h100\n", "row 1: unknown GPU 'h1000'"),
        ("a.yaml", "model: llama-3.1-8b\nqqzz: 3\n", "no argument 'qqzz': it has none like it$"),
        ("a.toml", 'modle = "llama-3.1-8b"\ngpu = "h100"', "no argument 'modle': did you mean 'model'"),
        ("a.csv", "Models,batch\nllama-3.1-8b,1\n", "no argument 'Models': did you mean 'model'"),
        ("a.toml", 'gpu = "h100"\nbatch = 1', "a scenario needs a model"),
        ("a.yaml", "batch: 1", "a scenario needs a model"),
        ("a.yaml", "- 1\n- 2\n", r"a scenario is a table of arguments \(model: NAME\), but this holds \[1, 2\]"),
        ("a.yaml", "", "but this holds nothing"),
        ("a.toml", 'model = 5\ngpu = "h100"', "model is 5, but it must be a name"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(RooflmError, match=words):
        rooflm.infer(str(tmp_path / name))


def test_a_row_of_ones_own_is_no_scenario(tmp_path):
    (tmp_path / "m.toml").write_text('name = "mine"\n')
    assert read_table(str(tmp_path / "m.toml")) is None
