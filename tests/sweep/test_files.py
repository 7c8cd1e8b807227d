"""Files: every format holds the same numbers, a file appears whole or not at all, bad targets are one sentence."""

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from rooflm.api import INFER
from rooflm.errors import RooflmError
from rooflm.sweep.files import check_target, write_grid, write_values, write_whole

REQUEST = {"model": "llama-7b", "gpu": ["a100-sxm-80gb", "rtx-3090"], "batch": [1, 64], "efficiency": "ideal"}


@pytest.fixture(scope="module")
def grid():
    made = INFER.grid(REQUEST)
    assert made is not None
    return made


def test_rows_of_csv(tmp_path, grid):
    write_grid(str(tmp_path / "a.csv"), grid)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [(r["gpu"], r["batch"]) for r in rows] == [
        ("a100-sxm-80gb", "1"),
        ("a100-sxm-80gb", "64"),
        ("rtx-3090", "1"),
        ("rtx-3090", "64"),
    ]
    assert [float(r["latency_s"]) for r in rows] == pytest.approx(
        grid.arrays["latency_s"].reshape(-1).tolist(), rel=1e-12
    )
    assert [r["fits"] for r in rows] == [str(v) for v in grid.arrays["fits"].reshape(-1)]


def test_parquet_has_types(tmp_path, grid):
    import pandas

    write_grid(str(tmp_path / "a.parquet"), grid)
    table = pandas.read_parquet(tmp_path / "a.parquet")
    assert (
        table["fits"].dtype == bool and table["latency_s"].dtype == float and table["batch"].tolist() == [1, 64, 1, 64]
    )


def test_labelled_arrays(tmp_path, grid):
    import xarray

    write_grid(str(tmp_path / "a.nc"), grid)
    with xarray.open_dataset(tmp_path / "a.nc") as got:
        assert np.array_equal(got["latency_s"].values, grid.arrays["latency_s"])
        assert got["latency_s"].attrs["units"] == "s" and "llama-7b" in got.attrs["scenario"]


def test_json_is_plain(tmp_path, grid):
    write_grid(str(tmp_path / "a.json"), grid)
    got = json.loads((tmp_path / "a.json").read_text())
    assert got["axes"] == {"gpu": ["a100-sxm-80gb", "rtx-3090"], "batch": [1, 64]}
    assert np.allclose(got["memory"]["weights"], grid.arrays["memory.weights"])


def test_one_prediction_in_every_format(tmp_path):
    values = {"ttft_s": 0.5, "memory": {"weights": 3.0}, "fits": True}
    for suffix in ("csv", "json", "nc", "parquet"):
        write_values(str(tmp_path / f"a.{suffix}"), values)
    assert (tmp_path / "a.csv").read_text() == "ttft_s,memory.weights,fits\n0.5,3,True\n"
    assert json.loads((tmp_path / "a.json").read_text()) == {"ttft_s": 0.5, "memory": {"weights": 3}, "fits": True}


def test_nothing_is_written_half(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def broken(name):
        with Path(name).open("w") as out:
            out.write("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(RooflmError, match="No space left"):
        write_whole(path, broken)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("name", "words"), [("a.xls", "must end in"), ("none/a.csv", "does not exist"), ("dir.csv", "cannot be written")]
)
def test_bad_targets(tmp_path, name, words):
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(RooflmError, match=words):
        check_target(str(tmp_path / name))


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(RooflmError, match="cannot be written"):
        check_target(str(tmp_path / "a.csv"))


def test_tables_for_people(tmp_path: Path) -> None:
    """A sheet and a Markdown table hold the rows of csv; of one answer, Markdown has a row an output."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("tabulate")
    grid = INFER.grid({"model": "llama-7b", "gpu": ["l4", "a100"], "batch": [1, 2], "outputs": ["tpot", "fits"]})
    for name in ("g.csv", "g.xlsx", "g.md"):
        write_grid(str(tmp_path / name), grid)
    rows = list(csv.reader((tmp_path / "g.csv").read_text().splitlines()))
    book = openpyxl.load_workbook(tmp_path / "g.xlsx")
    sheet = [list(r) for r in book.active.iter_rows(values_only=True)]
    book.close()
    assert [str(v) for v in sheet[0]] == rows[0] and len(sheet) == len(rows) == 5
    for mine, theirs in zip(sheet[1:], rows[1:], strict=True):
        assert [str(v) for v in mine if not isinstance(v, float)] == [v for v, m in zip(theirs, mine, strict=True)
                                                                      if not isinstance(m, float)]  # fmt: skip
        assert [v for v in mine if isinstance(v, float)] == pytest.approx(
            [float(v) for v, m in zip(theirs, mine, strict=True) if isinstance(m, float)], rel=1e-14
        )
    lines = (tmp_path / "g.md").read_text().splitlines()
    assert [c.strip() for c in lines[0].strip("|").split("|")] == rows[0] and len(lines) == 6
    write_values(str(tmp_path / "v.md"), {"a": 1.5, "b": {"c": "x|y"}})
    assert (tmp_path / "v.md").read_text().splitlines()[3].split() == ["|", "b.c", "|", "x\\|y", "|"]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("name", "library"), [("a.xlsx", "openpyxl"), ("a.md", "tabulate"), ("a.parquet", "pyarrow"),
                                               ("a.nc", "h5netcdf")])  # fmt: skip
def test_a_missing_library_is_told_before_any_work(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RooflmError, match=rf"{library}: pip install 'rooflm\["):
        check_target(str(tmp_path / name))
    assert not list(tmp_path.iterdir())
