"""docs/contributing.md does what it says: its names resolve, and each of its examples is one edit that works."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

import pytest

from rooflm import RooflmError, infer, load_device, load_engine, load_model
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import abouts, number
from rooflm.kernels import dispatch
from rooflm.readers.checkpoints.families import Family, families
from rooflm.readers.tables import check_bounds
from rooflm.units import Num

TEXT = (Path(__file__).parents[1] / "docs" / "contributing.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    found = re.search(rf"```\w+ {name}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("place", re.findall(r"\| `(rooflm[\w.:]+)` \|", TEXT))
def test_every_formula_is_where_the_page_says(place: str) -> None:
    assert resolve_name(place).__doc__


FORMULAS = (Path(__file__).parents[1] / "docs" / "how-it-works.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", re.findall(r"`((?:graph|kernels|estimate|serving|asked)\.[\w.]+)`", FORMULAS))
def test_every_formula_is_where_its_page_says(place: str) -> None:
    assert resolve_name(f"rooflm.{place}").__doc__


def test_a_gpu_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "my-card.toml"
    path.write_text(block("gpu"))
    assert load_device(str(path)).dram.size == 48 * 2**30
    assert infer("llama-3.1-8b", gpu=str(path)).fits


def test_a_family_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = families() | {name: Family(**row) for name, row in tomllib.loads(block("family")).items()}
    monkeypatch.setattr("rooflm.readers.checkpoints.read.families", lambda: known)
    config = {"model_type": "newllama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
              "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 2048}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(str(tmp_path)).blocks[0].mixer.qk_norm


def test_an_engine_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(block("engine"))
    mine = load_engine(str(path))
    assert (mine.host.step, mine.room.memory_fraction, mine.server.max_sequences) == (0.5e-3, 0.95, 256)
    assert mine.room.block == load_engine("vllm").room.block
    assert infer("llama-3.1-8b", gpu="h100", engine=str(path)).fits


def test_a_kernel_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    before = infer("llama-3.1-8b", gpu="h100", batch=8).ttft
    monkeypatch.setattr(dispatch, "FORMULAS", rows := dict(dispatch.FORMULAS))
    exec(block("kernel"), vars(dispatch) | {"FORMULAS": rows})
    assert before < infer("llama-3.1-8b", gpu="h100", batch=8).ttft < before + 1e-3


def test_a_constant_is_one_field() -> None:
    space: dict[str, object] = {"Num": Num, "number": number, "Engine": Engine, "dataclass": dataclass}
    exec(f"@dataclass(frozen=True)\nclass Mine(Engine):\n    {block('constant')}", space)
    about = abouts(space["Mine"])["warm_up"]
    assert (about.unit, about.high) == ("s", 10.0)
    with pytest.raises(RooflmError, match=r"engine\.warm_up is 11, but it must be from 0 to 10"):
        check_bounds("engine.warm_up", 11.0, about)
