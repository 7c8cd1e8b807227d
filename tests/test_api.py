"""The face: public names, signatures from the table of arguments, results that say themselves, errors that teach."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import get_overloads

import numpy as np
import pandas
import pytest
import xarray

import rooflm
from rooflm.api import INFER, TRAIN
from rooflm.asked import arguments as table
from rooflm.asked.arguments import Argument
from rooflm.asked.build_training import build_training
from rooflm.cli import options, predict
from rooflm.errors import RooflmError

ROOT = Path(__file__).parents[1]
CASE = {"gpu": "a100-sxm-80gb", "efficiency": "ideal"}
RUN = {"gpu": "a100-sxm-80gb", "gpus": 64, "tp": 8, "pp": 8, "batch": 64}


# public names


def test_public_names_are_sorted_and_are_what_can_be_seen() -> None:
    assert rooflm.__all__ == sorted(rooflm.__all__) == sorted(rooflm._HOMES)
    assert {n for n in dir(rooflm) if not n.startswith("_")} == set(rooflm.__all__)
    with pytest.raises(AttributeError):
        rooflm.nothing  # noqa: B018


@pytest.mark.parametrize("name", rooflm.__all__)
def test_every_public_name_explains_itself(name: str) -> None:
    found = getattr(rooflm, name)
    assert found.__doc__ and len(found.__doc__) > 20 and not found.__doc__.startswith(f"{name}(")


def test_a_call_stays_a_call_when_the_folder_of_its_name_is_imported() -> None:
    import rooflm.asked.paths
    import rooflm.measure.plan

    assert not isinstance(rooflm.measure, ModuleType) and not isinstance(rooflm.scenario, ModuleType)


def test_types_are_shipped() -> None:
    assert (ROOT / "src" / "rooflm" / "py.typed").is_file()


def test_import_is_lazy() -> None:
    seen = (
        "import sys, rooflm; print(sorted({'numpy', 'xarray', 'typer', 'altair', 'vl_convert'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"


# signatures


def test_signatures_are_written_from_the_table() -> None:
    told = subprocess.run([sys.executable, ROOT / "scripts" / "signatures", "--check"], capture_output=True, text=True)
    assert told.returncode == 0, f"{told.stdout}{told.stderr}: run scripts/signatures"


CALLS = {
    "infer": "infer", "infer_grid": "infer", "scenario": "infer", "train": "train", "train_grid": "train",
    "training_scenario": "train", "serve": "serve", "search_infer": "search_infer", "search_serve": "search_serve",
    "search_train": "search_train",
}  # fmt: skip


@pytest.mark.parametrize(("name", "call"), CALLS.items())
def test_a_signature_has_the_arguments_of_the_table_and_documents_them(name: str, call: str) -> None:
    function = getattr(rooflm, name)
    found = dict(inspect.signature(function).parameters)
    assert found.pop("model").default is inspect.Parameter.empty
    rows = {k: a for k, a in table.arguments(call).items() if a.python}
    if name.endswith("scenario"):
        rows = {k: a for k, a in rows.items() if k not in table.SWEPT}
    assert list(found) == list(rows)
    for key, p in found.items():
        assert p.kind is p.KEYWORD_ONLY and p.annotation
        assert p.default == (np.inf if key == "horizon" else rows[key].default)
        if name == call:
            assert re.search(rf"^      {key}\b.*: ", function.__doc__, re.M), key


def test_one_scenario_and_lists_have_a_type_each() -> None:
    for function, estimate in ((rooflm.infer, "InferenceEstimate"), (rooflm.train, "TrainingEstimate")):
        one, many = (inspect.signature(o) for o in get_overloads(function.__wrapped__))
        assert one.return_annotation == estimate and many.return_annotation == "xarray.Dataset"
        assert list(one.parameters) == list(many.parameters) == list(inspect.signature(function).parameters)


# a new argument is one row


def test_a_new_argument_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = Argument("imbalance", "numbers", "Tokens of the busiest expert rank over the mean.", ("train",), 1, "1",
                   "training.imbalance", least=1)  # fmt: skip
    monkeypatch.setattr(table, "TABLE", (*table.TABLE, row))
    for known in (table.arguments, table.defaults, table.placed):
        known.cache_clear()
    try:
        assert build_training("mixtral-8x7b", **RUN | {"pp": 4}, imbalance=2).scenario.training.imbalance == 2
        grid = TRAIN.grid({"model": "mixtral-8x7b", **RUN, "tp": 1, "pp": 4, "ep": 8, "imbalance": [1, 2]})
        assert grid.axes[0].name == "imbalance" and np.diff(grid.arrays["step_time_s"])[0] > 0
        made = options.command("train", ["train"], predict.train, "")
        assert "imbalance" in inspect.signature(made).parameters
        made("mixtral-8x7b", **{p.name: p.default for p in list(inspect.signature(made).parameters.values())[1:]}
             | {"gpu": "a100", "gpus": "64", "tp": "1", "pp": "4", "ep": "8", "batch": "64", "imbalance": "2",
                "json": True, "outputs": "step_time_s"})  # fmt: skip
        assert json.loads(capsys.readouterr().out)["step_time_s"] == pytest.approx(grid.arrays["step_time_s"][1])
        with pytest.raises(RooflmError, match="imbalance is 0, but it must be a whole number of at least 1"):
            build_training("mixtral-8x7b", **RUN, imbalance=0)
    finally:
        monkeypatch.undo()
        for known in (table.arguments, table.defaults, table.placed):
            known.cache_clear()


def test_paths_of_the_table_are_fields_of_the_scenario() -> None:
    from dataclasses import fields

    for call, task, more in (("infer", INFER, {"gpu": "a100"}), ("train", TRAIN, RUN)):
        s = task.build(model="llama-7b", **more).scenario
        for a in table.arguments(call).values():
            if a.path:
                place, _, field = a.path.partition(".")
                assert field in {f.name for f in fields(getattr(s, place))}, a.path


def test_the_shell_and_python_have_the_same_arguments() -> None:
    for call in table.EVERY:
        apart = {a.name for a in table.arguments(call).values() if not a.shell or not a.python}
        assert apart <= {"server", "progress", "transfer_bandwidth"}


# errors


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        ("infer", {"bach": 3}, "infer has no argument 'bach': did you mean 'batch'"),
        ("infer", {"concurency": 3}, "infer has no argument 'concurency': did you mean 'concurrency'"),
        ("infer_grid", {"bach": [3]}, "infer_grid has no argument 'bach': did you mean 'batch'"),
        ("train", {"micro_batchs": 3}, "train has no argument 'micro_batchs': did you mean 'micro_batch'"),
        ("serve", {"concurency": 3}, "serve has no argument 'concurency': did you mean 'concurrency'"),
        ("search_infer", {"concurrency": 3}, "search_infer has no argument 'concurrency'"),
        ("search_train", {"gpus_mx": 3}, "did you mean 'gpus_max'"),
        ("scenario", {"zip": ("a", "b")}, "has no argument 'zip'"),
        ("infer", {"quant": 8}, "quant is 8, but it must be a text or a Quant. Scheme, such as w16a16kv16"),
        ("infer", {"quant": [8, 4]}, "quant is 8, but it must be a text"),
        ("serve", {"quant": 8}, "quant is 8, but it must be a text"),
        ("infer", {"gpu": {"base": "h100"}}, "gpu is {'base': 'h100'}, but it must be a text or a Device."),
        ("infer", {"engine": rooflm.load_device("l4")}, "but it must be a text or an Engine."),
        ("search_infer", {"gpu": [rooflm.load_cluster("dgx-h100")]}, "but it must be a text or a Device."),
        ("infer", {"gpu": {"h100"}}, "gpu is {'h100'}, but it must be a text or a Device."),
        ("search_infer", {"cluster": ["dgx-h100"]}, "cluster is a list, but a search answers for one cluster"),
        ("search_train", {"cluster": ["dgx-h100"]}, "cluster is a list, but a search answers for one cluster"),
        ("infer", {"gpu": "h100,a100"}, "unknown GPU 'h100,a100'; see `rooflm list gpus`, and give several as a list"),
        ("infer", {"gpu": None}, "gpu is missing"),
        ("infer", {"tensor_parallel_size": 2}, "infer has no argument 'tensor_parallel_size': did you mean 'tp'?"),
        ("infer", {"sets": "model.depth_scale=2"}, "but it must be a dict of paths, such as {'model.depth_scale': 2}"),
        ("serve", {"sets": ["engine.step"], "concurrency": 1}, "sets is ['engine.step'], but it must be a dict"),
        ("infer", {"sets": {"device.dram.bandwidth": 1e12}}, "did you mean 'cluster.device.dram.bandwidth'?"),
        ("infer", {"outputs": ["tpots"]}, "unknown output 'tpots'"),
        ("infer", {"batch": "eight"}, "batch is 'eight', but it must be a number"),
        ("infer", {"batch": np.ones((2, 2))}, "batch is an array of 2 dimensions, but a list of values has one"),
        (
            "infer",
            {"batch": pandas.DataFrame({"batch": [1, 2]})},
            "batch is a table of 2 dimensions, but a list of values",
        ),
        ("infer", {"sets": {1: 2}}, "sets is {1: 2}, but it must be a dict of paths"),
        ("serve", {"rate": 1, "server": 3}, "server is 3, but it must be a Server, or a dict of options"),
    ],
)
def test_bad_arguments_are_one_sentence_by_their_python_name(call, given, says):
    with pytest.raises(RooflmError) as error:
        getattr(rooflm, call)("llama-7b", **{"gpu": "a100"} | given)
    assert says in str(error.value) and "--" not in str(error.value)


@pytest.mark.parametrize("call", ["infer", "train", "serve", "search_infer", "scenario"])
def test_no_model_is_one_sentence(call: str) -> None:
    with pytest.raises(RooflmError, match="model is missing"):
        getattr(rooflm, call)(None, gpu="a100")
    with pytest.raises(RooflmError, match="model is missing"):
        getattr(rooflm, call)(gpu="a100")
    with pytest.raises(RooflmError, match=f"^{call} takes the model alone without a name: give the rest as gpu='h100'"):
        getattr(rooflm, call)("llama-7b", "a100")


def test_arguments_as_people_hold_them(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    card.write_text('base = "a100"\n', encoding="utf-8")
    assert rooflm.load_device(card) == rooflm.load_cluster("pcie4-8", card).device
    for load in (rooflm.load_device, rooflm.load_cluster, rooflm.load_engine):
        with pytest.raises(RooflmError, match="is None, but it must be a name or a path"):
            load(None)
    plain = rooflm.infer("llama-7b", gpu="a100", batch=4).tpot
    assert rooflm.infer("llama-7b", gpu=card, batch=np.array(4)).tpot == plain
    assert list(rooflm.infer("llama-7b", gpu=["a100", card], batch=4).tpot_s) == [plain, plain]


def test_a_device_of_another_name_is_that_device() -> None:
    mine = replace(rooflm.load_device("h100"), name="mine", kernels_of="h100-sxm-80gb")
    est = rooflm.infer("llama-7b", gpu=mine, gpus=2)
    assert est.tpot == rooflm.infer("llama-7b", gpu="h100", gpus=2).tpot and est.assumed[0] == "cluster dgx-h100"
    assert rooflm.infer("llama-7b", gpu=replace(mine, kernels_of="")).assumed[0] == "cluster pcie4-8"
    found = rooflm.search_infer("llama-7b", gpu=[mine, rooflm.load_device("l4")], gpus=1, quant="fp16")
    assert "gpu mine" in repr(found) and "Best throughput per GPU: fp16 mine" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["top"][0]["gpu"] == "mine"
    assert rooflm.search_train("llama-7b", gpu=mine, gpus=8, batch=64).best is not None
    made = rooflm.load_device({"name": "mine", "base": "h100", "dram": {"bandwidth": "5 TB/s"}})
    assert made == replace(mine, dram=replace(mine.dram, bandwidth=5e12), priced=made.priced, inferred=made.inferred)


def test_answers_are_pickled() -> None:
    asked = {"gpu": "a100", "quant": "fp16"}
    for made in (
        rooflm.infer("llama-7b", **asked),
        rooflm.train("llama-7b", gpu="a100", batch=8),
        rooflm.serve("llama-7b", concurrency=2, **asked),
        rooflm.search_infer("llama-7b", gpus=1, **asked),
    ):
        assert pickle.loads(pickle.dumps(made)).to_dict() == made.to_dict()


def test_an_engine_of_the_other_phase_is_told() -> None:
    said = rooflm.train("llama-7b", gpu="a100", gpus=8, batch=8, engine="vllm").warnings
    assert said == ("engine vllm is for inference: its constants say little of training",)
    assert "megatron is for training" in rooflm.infer("llama-7b", gpu="a100", engine="megatron").warnings[0]
    assert not rooflm.train("llama-7b", gpu="a100", gpus=8, batch=8, engine="ideal").warnings


def test_a_scenario_and_an_engine_say_themselves_in_a_line() -> None:
    asked = rooflm.scenario("llama-7b", gpu="h100", tp=2)
    assert repr(asked) == "<Scenario llama-7b on 2 x h100-sxm-80gb, vllm, w16a16kv16>"
    assert repr(asked.engine).startswith("<Engine vllm ") and repr(asked.engine).endswith(": inference>")


def test_a_model_is_a_name_a_path_or_a_model() -> None:
    with pytest.raises(RooflmError, match="model is 8, but it must be a name"):
        rooflm.infer(8, gpu="a100")  # type: ignore[call-overload]
    config = json.loads((ROOT / "examples/configs/llama-60m/config.json").read_text(encoding="utf-8"))
    with pytest.raises(RooflmError, match=r"rooflm\.load_model makes one of a config's fields"):
        rooflm.infer(config, gpu="a100")  # type: ignore[call-overload]
    read = rooflm.load_model(ROOT / "examples/configs/llama-60m")
    for given in (config, SimpleNamespace(to_dict=lambda: config)):  # the latter as transformers has it
        assert replace(rooflm.load_model(given), name=read.name, source=read.source) == read  # type: ignore[arg-type]
    with pytest.raises(RooflmError, match="model is None, but it must be a name, a path or the fields"):
        rooflm.load_model(None)  # type: ignore[arg-type]


# one scenario, lists, grids


def test_a_scenario_is_as_good_as_its_arguments() -> None:
    s = rooflm.scenario("llama-7b", batch=8, **CASE)
    assert isinstance(s, rooflm.Scenario)
    assert rooflm.infer(s) == rooflm.infer("llama-7b", batch=8, **CASE) != rooflm.infer("llama-7b", batch=9, **CASE)
    t = rooflm.training_scenario("gpt3-175b", **RUN)
    assert rooflm.train(t) == rooflm.train("gpt3-175b", **RUN)
    with pytest.raises(RooflmError, match="batch is given beside a Scenario"):
        rooflm.infer(s, batch=9)


def test_lists_make_axes_and_a_grid_always_is_a_dataset() -> None:
    one, many = rooflm.infer_grid("llama-7b", **CASE), rooflm.infer("llama-7b", batch=[1, 8], **CASE)
    assert isinstance(one, xarray.Dataset) and not one.sizes and isinstance(many, xarray.Dataset)
    assert float(one.tpot_s) == rooflm.infer("llama-7b", **CASE).tpot == float(many.tpot_s.sel(batch=1))
    run = rooflm.train_grid("gpt3-175b", **RUN, outputs="mfu")
    assert list(run.data_vars) == ["mfu"]


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_columns_of_tables_are_lists(package: str) -> None:
    made = import_module(package)
    rows = getattr(made, "DataFrame", None) or made.table
    table = rows({"batch": [1, 8], "prompt": [128, 256], "gpu": ["a100", "h100"]})
    grid = rooflm.infer("llama-7b", batch=table["batch"], prompt=table["prompt"], zip=("batch", "prompt"), **CASE)
    assert grid.sizes == {"batch": 2}
    found = rooflm.search_infer("llama-7b", gpu=table["gpu"], gpus=1, batch=table["batch"])
    assert found.points == 4


def test_engine_rows_may_be_given_as_they_were_loaded() -> None:
    engine = rooflm.load_engine("sglang")
    assert rooflm.infer("llama-7b", gpu="a100", engine=engine) == rooflm.infer("llama-7b", gpu="a100", engine="sglang")


# results


@pytest.fixture(scope="module")
def results():
    return {
        "infer": rooflm.infer("llama-3.1-8b", gpu="h100", batch=8),
        "train": rooflm.train("gpt3-175b", **RUN),
        "serve": rooflm.serve("llama-7b", gpu="a100", concurrency=4, prompt=128, output=16),
        "search": rooflm.search_infer("llama-7b", gpu="a100", gpus=1, batch=[1, 8]),
        "search_serve": rooflm.search_serve("llama-7b", gpu="a100", gpus=1, concurrency=[1, 8], confirm=1),
    }


@pytest.mark.parametrize("name", ["infer", "train", "serve", "search", "search_serve"])
def test_a_result_says_itself_in_four_lines(results, name):
    text = repr(results[name])
    assert len(text.splitlines()) <= 4 and max(map(len, text.splitlines())) <= 100 and "np." not in text
    assert "llama" in text or "gpt3" in text or "batch 8" in text or "concurrency 8" in text
    assert "<table" in results[name]._repr_html_()
    json.dumps(results[name].to_dict())
    assert len(results[name].to_pandas()) > 0


def test_numbers_are_plain(results):
    for e in (results["infer"], results["train"]):
        for key, value in table_of(e).items():
            assert type(value) in (float, int, bool, str), key
    e = results["infer"]
    assert type(e.ttft) is type(e.mfu) is type(e.memory.total) is float and type(e.fits) is bool
    assert type(results["train"].job.steps) is float


def table_of(e):
    from rooflm.shown.answer import flatten

    return flatten(e.values())


def test_an_estimate_has_its_error_band(results):
    band = results["infer"].error_band["tpot_s"]
    assert band["low"] < results["infer"].tpot < band["high"] and band["rows"] > 20
    assert results["train"].error_band["step_time_s"]["rows"] > 20


def test_a_dict_is_what_json_prints(results, capsys):
    assert rooflm.__version__
    from rooflm.cli.app import main

    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--batch", "8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    told = results["infer"].to_dict()
    assert {k: printed[k] for k in told} == told


def test_sensitivity_of_an_estimate(results):
    found = rooflm.sensitivity(results["infer"])
    assert found["tpot_s"]["memory bandwidth"] < -0.3


# examples and benchmarks


def imported(path: Path) -> list[str]:
    """Names of rooflm that a script imports, wherever it does."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == "rooflm"]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rooflm":
            found += [f"{node.module}.{a.name}" for a in node.names]
    return found


SCRIPTS = sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_examples_and_benchmarks_import_public_names_only(script: Path) -> None:
    for name in imported(script):
        _, *rest = name.split(".")
        assert len(rest) <= 2 and (not rest or rest[0] in (*rooflm.__all__, "__version__")), name
        if len(rest) == 2:
            assert rest[1] in getattr(rooflm, rest[0]).__all__, name
