"""Streamed grids: the same numbers as in memory, in bounded pieces, and an interrupted run carries on."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pandas
import pytest

from rooflm.api import INFER
from rooflm.cli import main, streams
from rooflm.errors import RooflmError
from rooflm.sweep import stream as module
from rooflm.sweep.axes import find_axes
from rooflm.sweep.stream import stream
from rooflm.sweep.sweep import GridJob

REQUEST = {"model": "llama-7b", "gpu": ["a100-sxm-80gb", "rtx-3090"], "batch": [1, 2, 4, 8, 16], "output": [16, 32, 64],
           "tp": [1, 2], "efficiency": "0.7,0.9"}  # fmt: skip
OUTPUTS = ("tpot_s", "latency_s", "fits", "reason")


def job(request=REQUEST, outputs=OUTPUTS, evaluate=INFER.flat):
    axes, fixed = find_axes(request)
    return GridJob(evaluate, tuple(axes), fixed, outputs)


def whole():
    made = INFER.grid(REQUEST | {"outputs": OUTPUTS})
    assert made is not None
    return made


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_rows_are_the_points_of_the_grid(tmp_path, suffix):
    path = tmp_path / f"grid.{suffix}"
    done = stream(job(), str(path), block=4)
    assert (done.points, done.done, done.kept) == (60, 60, 0)
    table = pandas.read_parquet(path) if suffix == "parquet" else pandas.read_csv(path, keep_default_na=False)
    assert len(table) == 60 and [p.name for p in tmp_path.iterdir()] == [path.name]
    grid = whole().dataset()
    for row in table.sample(10, random_state=1).itertuples():
        cell = grid.sel(gpu=row.gpu, batch=row.batch, output=row.output, tp=row.tp)
        assert row.latency_s == pytest.approx(float(cell["latency_s"]), rel=1e-12)
        assert row.tpot_s == pytest.approx(float(cell["tpot_s"]), rel=1e-12)
        assert str(row.fits).lower() == str(bool(cell["fits"])).lower() and row.reason == str(cell["reason"].item())


def test_labelled_arrays_are_the_grid(tmp_path):
    xarray = import_module("xarray")
    path = tmp_path / "grid.nc"
    stream(job(), str(path), block=7)
    with xarray.open_dataset(path, engine="h5netcdf") as got:
        expected = whole().dataset().transpose(*got["latency_s"].dims)
        for name in ("tpot_s", "latency_s", "fits"):
            assert np.array_equal(got[name].values, expected[name].values)
        assert got["latency_s"].attrs["units"] == "s" and list(got["gpu"].values) == REQUEST["gpu"]


class StopError(Exception):
    pass


def breaking(after):
    """An evaluation that breaks down after some blocks."""
    count = 0

    def evaluate(**arguments):
        nonlocal count
        count += 1
        if count > after:
            raise StopError
        return INFER.flat(**arguments)

    return evaluate


@pytest.mark.parametrize("suffix", ["parquet", "nc", "csv"])
def test_an_interrupted_run_carries_on(tmp_path, suffix):
    path = tmp_path / f"grid.{suffix}"
    with pytest.raises(StopError):
        stream(job(evaluate=breaking(6)), str(path), block=4)
    assert not path.exists()
    parts = sorted(
        p.name for p in (tmp_path / f"grid.{suffix}.parts").iterdir() if p.name not in ("manifest.json", "lock")
    )
    assert 1 <= len(parts) <= 6
    seen: list[int] = []
    done = stream(job(), str(path), block=4, progress=seen.append)
    assert done.kept >= len(parts) and done.kept + done.done == done.points == sum(seen) == 60
    straight = tmp_path / f"straight.{suffix}"
    stream(job(), str(straight), block=4)
    if suffix == "nc":
        xarray = import_module("xarray")
        with xarray.open_dataset(path) as one, xarray.open_dataset(straight) as other:
            assert one.equals(other)
    else:
        assert path.read_bytes() == straight.read_bytes()


def test_parts_of_another_request_are_left_alone(tmp_path):
    path = tmp_path / "grid.parquet"
    with pytest.raises(StopError):
        stream(job(evaluate=breaking(3)), str(path), block=4)
    with pytest.raises(RooflmError, match="another run"):
        stream(job(REQUEST | {"model": "llama-13b"}), str(path), block=4)
    assert (tmp_path / "grid.parquet.parts").is_dir()


def test_a_grid_larger_than_the_disk_is_refused_after_one_block(tmp_path, monkeypatch):
    disk = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: disk._replace(free=1000))
    with pytest.raises(RooflmError, match=r"grid\.csv' would have about .* kB, but 1.00 kB are free there"):
        stream(job(), str(tmp_path / "grid.csv"), block=4)
    assert len(list((tmp_path / "grid.csv.parts").glob("*.csv"))) == 1
    monkeypatch.undo()
    assert stream(job(), str(tmp_path / "grid.csv"), block=4).kept == 3


def test_blocks_with_other_outputs_are_null(tmp_path):
    request = REQUEST | {"model": ["llama-7b", "mixtral-8x7b"], "gpu": "a100-sxm-80gb"}
    stream(job(request, ("decode_parts_s",)), str(tmp_path / "grid.parquet"), block=10)
    table = pandas.read_parquet(tmp_path / "grid.parquet")
    assert table[table.model == "llama-7b"]["decode_parts_s.moe"].isna().all()
    assert (table[table.model == "mixtral-8x7b"]["decode_parts_s.moe"] > 0).all()


def test_bad_targets(tmp_path):
    with pytest.raises(RooflmError, match="must end in"):
        stream(job(), str(tmp_path / "grid.json"))
    with pytest.raises(RooflmError, match="nothing to sweep"):
        INFER.stream({"model": "llama-7b", "gpu": "a100"}, str(tmp_path / "grid.parquet"))


def test_command_line_streams_a_large_grid(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(streams, "STREAM_FROM", 10)
    path = tmp_path / "grid.parquet"
    assert main(["infer", "llama-7b", "--gpu", "a100,h100", "--batch", "1..8", "--out", str(path)]) == 0
    told = capsys.readouterr()
    assert "16 points" in told.out and len(pandas.read_parquet(path)) == 16
    words = [
        "train", "llama-7b", "--gpu", "a100", "--gpus", "8", "--tp", "1,2,4,8", "--batch", "8..64*2", "--out",
        str(path),
    ]  # fmt: skip
    assert main([*words, "--json"]) == 0
    import json

    assert json.loads(capsys.readouterr().out)["points"] == 16
    assert {"step_time_s", "mfu", "tp", "batch"} <= set(pandas.read_parquet(path).columns)


CUT = """
import os, signal
from rooflm.cli import streams
from rooflm.sweep import stream
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
tell, told, streams.STREAM_FROM = stream.report_block, [], 10
def after_two(*given):
    tell(*given)
    told.append(given)
    if len(told) == 2:
        os.kill(os.getpid(), signal.SIGINT)
stream.report_block = after_two
from rooflm.__main__ import run
run()
"""
"""The command line, interrupted when two parts are written."""


def test_an_interrupted_command_says_so_and_carries_on(tmp_path, monkeypatch, capsys):
    """SIGINT in the middle: status 130, what is kept and how to go on; the file is then the same to the bit."""
    words = [
        "infer", "llama-7b", "--gpu", "a100,h100,h200,b200", "--batch", "1..8", "--outputs", "tpot_s,fits", "--out",
    ]  # fmt: skip
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    run = subprocess.run([sys.executable, "-c", CUT, *words, str(cut)], capture_output=True, text=True, check=False)
    assert run.returncode == 130 and "16 of 32 points are kept" in run.stderr and not cut.exists()
    monkeypatch.setattr(streams, "STREAM_FROM", 10)
    assert main([*words, str(cut)]) == 0 and "32 points, 16 of them from the run before" in capsys.readouterr().out
    assert main([*words, str(whole)]) == 0
    assert cut.read_bytes() == whole.read_bytes() and not (tmp_path / "cut.parquet.parts").exists()
