"""`--plot` of `explore` and `predict`: what a picture holds is what the table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli.app import main


def drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, Any]:
    """The specification that a command draws, and what it prints as JSON."""
    path = tmp_path / "picture.json"
    assert main([*words, "--plot", str(path), "--json"]) == 0
    told = capsys.readouterr()
    assert f"wrote {path}" in told.err
    return json.loads(path.read_text(encoding="utf-8")), json.loads(told.out)


def values(spec: Any) -> list[dict[str, Any]]:
    """All rows of a specification."""
    if isinstance(spec, list):
        return [row for part in spec for row in values(part)]
    if not isinstance(spec, dict):
        return []
    own = spec.get("data", {}).get("values", [])
    return [*own, *(row for part in spec.values() for row in values(part) if part is not spec.get("data"))]


def test_products_are_drawn_by_their_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, told = drawn(tmp_path, capsys, "explore", "gemms", "llama-2-13b", "--gpu", "a100,h100")
    text = json.dumps(spec)
    assert all(name in text for name in ("a100", "h100", "compute", "dram"))
    rows = [r["value"] for r in values(spec) if "value" in r and isinstance(r["value"], float)]
    assert sum(rows) == pytest.approx(1e6 * sum(told["columns"]["time_s"]), rel=1e-3)


SPLIT = ("split", "llama-7b", "--gpus", "8", "--batch", "8", "--node", "n5", "--tp", "8", "--pp", "1")


@pytest.mark.parametrize("words", [
    ("dies",), (*SPLIT, "--method", "gradient"),
    ("front", "llama-2-7b", "--batch", "8", "--node", "n7,n5", "--dram", "hbm3,hbm4", "--gpus", "8"),
])  # fmt: skip
def test_every_exploration_has_a_picture(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, told = drawn(tmp_path, capsys, "explore", *words)
    assert spec["title"]["text"] and told["columns"] and values(spec)


def test_a_kernels_time_is_drawn_over_its_longest_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--n", "512", "--k", "512", "--m", "1..64*2")
    spec, told = drawn(tmp_path, capsys, "predict", "gemm", *sizes)
    rows = [r for r in values(spec) if r.get("name") == "predicted"]
    assert {round(r["y"], 6) for r in rows} >= {round(1e6 * k["time_s"], 6) for k in told["kernels"]}
    assert "datasheet" in json.dumps(spec)
    spec, _ = drawn(tmp_path, capsys, "predict", "collective", "all-reduce", "--size", "1M,2M,4M", "--ranks", "2,4")
    assert {"ranks 2", "ranks 4"} <= {r.get("name") for r in values(spec)}
    assert main(["predict", "gemm", "--m", "1", "--n", "2", "--k", "3", "--plot", str(tmp_path / "x.png")]) == 2
    assert "over a list of sizes" in capsys.readouterr().err
    assert main(["explore", "dies", "--plot", str(tmp_path / "x.gif")]) == 2
    assert "must end in" in capsys.readouterr().err
