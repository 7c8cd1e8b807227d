"""Interpolated residuals follow measured points, fade away from them, and lower the error on points kept aside."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rooflm import infer
from rooflm.errors import RooflmError
from rooflm.measure.case import Case
from rooflm.measure.compare import fast_times, machine_of, measured
from rooflm.measure.residuals import engine_file, from_cases, from_requests, gains
from rooflm.readers.engines import load_engine
from rooflm.readers.residuals import AXES, Point, Residuals, parse
from rooflm.validation import Request, published_tables, read_rows
from rooflm.validation.score import engine_of

SHAPE = ""
HERE = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "prompt": 512, "output": 128}


def cases() -> dict[Case, str]:
    return {
        Case(model="llama-2-7b", batch=b, prompt=p, output=64): SHAPE for b in (1, 4, 16, 64) for p in (64, 512, 2048)
    }


def world(case: Case, phase: str) -> float:
    """A smooth distortion that no shipped constant knows."""
    sign = 1.0 if phase == "ttft_s" else -1.0
    return float(np.exp(sign * (0.1 + 0.06 * np.log(case.batch) - 0.03 * np.log(case.prompt / 512))))


def test_synthetic_machine_is_learnt() -> None:
    machine = machine_of("h100-sxm-80gb", "vllm")
    known = cases()
    told = fast_times(known, machine)
    values = {(c.key, m): told[c.key, m] * world(c, m) for c in known for m in ("ttft_s", "tpot_s")}
    found = from_cases(known, values, machine)
    assert {p: len(x) for p, x in found.points.items()} == {"prefill": 12, "decode": 12}
    for gain in gains(found).values():
        assert gain.plain > 0.08
        assert gain.interpolated < 0.35 * gain.plain
    own = machine._replace(engine=replace(machine.engine, residuals=found))
    corrected = fast_times(known, own)
    off = [abs(np.log(corrected[k] / v)) for k, v in values.items()]
    assert np.mean(off) < 0.02


def test_real_table_is_foretold_better() -> None:
    rows = [r for p in published_tables() for r in read_rows(p) if isinstance(r, Request) and r.task == "infer"]
    chosen = [r for r in rows if engine_of(r) == "fastertransformer"]
    gain = gains(from_requests(chosen))["decode"]
    assert gain.points >= 30
    assert gain.interpolated < gain.plain


def test_far_away_the_compact_prediction_stands() -> None:
    known = Residuals({"decode": (Point((0.0, 6.0, 23.0, 0.0), 0.3),)})
    assert float(known.at("decode", (0.0, 6.0, 23.0, 0.0))) == pytest.approx(np.exp(0.3), rel=0.03)
    assert float(known.at("decode", (12.0, 6.0, 23.0, 0.0))) == pytest.approx(1.0, abs=1e-6)


def test_an_engine_file_corrects_predictions(tmp_path: Path) -> None:
    at = tuple(float(np.log(v)) for v in (8, 512 + 63.5, 2 * 6738415616, 1))
    known = Residuals({"decode": (Point(at, 0.2),), "prefill": (Point((at[0], float(np.log(512)), *at[2:]), -0.1),)})
    target = tmp_path / "mine.toml"
    target.write_text(engine_file("vllm", known, "a test"), encoding="utf-8")
    engine = load_engine(str(target))
    assert engine.residuals is not None and engine.runs == "vllm"
    plain, own = infer(**HERE, batch=8, engine="vllm"), infer(**HERE, batch=8, engine=str(target))
    assert float(own.tpot / plain.tpot) == pytest.approx(np.exp(0.2), rel=0.02)
    assert float(own.ttft / plain.ttft) == pytest.approx(np.exp(-0.1), rel=0.02)
    assert float(sum(own.decode_parts.values())) == pytest.approx(float(own.tpot))
    grid = (
        infer(**HERE, batch=[1, 8, 4096], engine=str(target)).tpot_s.values
        / infer(**HERE, batch=[1, 8, 4096], engine="vllm").tpot_s.values
    )
    assert grid[1] == pytest.approx(np.exp(0.2), rel=0.02)
    assert abs(np.log(grid[2])) < 0.02


@pytest.mark.parametrize("bad", [{"decode": [[1, 2]]}, {"other": []}, {"decode": [[0, 0, 0, 0, 99]]}, {"decode": 3},
                                 {"decode": [["a", 0, 0, 0, 0]]}])  # fmt: skip
def test_bad_tables_are_told(bad: dict[str, object]) -> None:
    with pytest.raises(RooflmError, match="residuals"):
        parse(bad, "x.toml")
    assert len(AXES) == 4


def test_no_times_are_told() -> None:
    known, values = measured([])
    with pytest.raises(RooflmError, match="no measured time"):
        from_cases(known, values, machine_of("h100-sxm-80gb", "vllm"))


def test_calibrate_writes_an_engine_of_ones_own(tmp_path: Path) -> None:
    from rooflm.cli.app import main

    target = tmp_path / "ft.toml"
    table = next(str(p) for p in published_tables() if p.name == "batches.csv")
    main(["calibrate", table, "--interpolate", "--gpu", "a100-sxm-80gb", "--engine", "fastertransformer",
          "--out", str(target)])  # fmt: skip
    engine = load_engine(str(target))
    assert engine.runs == "fastertransformer" and engine.residuals is not None
    assert len(engine.residuals.points["decode"]) >= 30


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None  # as on a plain install: importing it raises ImportError
from rooflm.cli.app import main
main(sys.argv[1:])
"""


def test_a_known_gpu_is_corrected_without_scipy(tmp_path: Path) -> None:
    """Interpolating needs no fit, and so nothing that a plain install has not."""
    target = tmp_path / "ft.toml"
    table = next(str(p) for p in published_tables() if p.name == "batches.csv")
    words = ["calibrate", table, "--interpolate", "--gpu", "a100-sxm-80gb", "--engine", "fastertransformer"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SCIPY, *words, "--out", str(target)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[residuals]" in target.read_text(encoding="utf-8")


def test_no_module_of_the_package_needs_scipy_to_be_imported() -> None:
    """Fits of one's own machine and searches of circuits import it where they call it, and say so where it is not."""
    text = (
        "import sys, pkgutil, importlib; sys.modules['scipy'] = None; import rooflm\n"
        "skip = ('rooflm.plots', 'rooflm.measure.runs', 'rooflm.__main__')\n"
        "for m in pkgutil.walk_packages(rooflm.__path__, 'rooflm.'):\n"
        "    m.name.startswith(skip) or importlib.import_module(m.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
