"""Measured cases beside predictions, by hand and of others' tools."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure import results
from rooflm.measure.calibrate_server import served_cases
from rooflm.measure.case import Case
from rooflm.measure.compare import machine_of, pairs, predictions
from rooflm.measure.figures import as_grid
from rooflm.measure.gap import compare
from rooflm.measure.results import Row, constant_stat
from rooflm.measure.shape import Shape
from rooflm.readers.engines import load_engine

LLAMA = Shape(4096, 32000, 32, 32, 32, 128, 11008)


def test_a_case_is_predicted_as_infer_does() -> None:
    case = Case(model="llama-7b", dtype="bf16", attention="eager", batch=4, prompt=128, output=32)
    found = predictions({case: LLAMA.text()}, machine_of("a100-sxm-80gb", "hf-eager"))
    est: Any = rooflm.infer("llama-7b", gpu="a100-sxm-80gb", engine="hf-eager", batch=4, prompt=128, output=32,
                            quant="bf16", sets={"engine.flash": False, "engine.decode_flash": False})  # fmt: skip
    assert found[case.key, "ttft_s"] == pytest.approx(float(est.ttft), rel=1e-9)
    assert found[case.key, "tpot_s"] == pytest.approx(float(est.tpot), rel=1e-9)
    assert found[case.key, "memory_bytes"] == pytest.approx(float(est.memory.total), rel=1e-9)


@pytest.mark.parametrize("gpu, model", [("b200", "qwen3-30b-a3b"), ("l40s", "llama-3.1-8b")])
def test_an_engine_that_hangs_on_model_and_card_is_predicted_as_infer_does(gpu: str, model: str) -> None:
    case = Case(model=model, dtype="bf16", batch=16, prompt=128, output=32, tp=2)
    found = predictions({case: ""}, machine_of(gpu, "sglang"))
    est = rooflm.infer(model, gpu=gpu, engine="sglang", batch=16, prompt=128, output=32, tp=2, quant="bf16")
    assert found[case.key, "tpot_s"] == pytest.approx(float(est.tpot), rel=1e-9)


def test_together_is_one_by_one() -> None:
    machine = machine_of("h100-sxm-80gb", "hf-eager")
    cases = [Case(model="m", dtype="bf16", batch=b, prompt=p, tp=t) for b in (1, 8) for p in (32, 512) for t in (1, 2)]
    whole = predictions(dict.fromkeys(cases, LLAMA.text()), machine)
    for case in cases:
        alone = predictions({case: LLAMA.text()}, machine)
        for key, value in alone.items():
            assert whole[key] == pytest.approx(value, rel=1e-12)


def test_communication_of_uneven_heads_is_that_of_the_whole() -> None:
    smol = Shape(576, 49152, 30, 9, 3, 64, 1536, 1)
    case = Case(model="s", dtype="fp32", tp=2, batch=2, prompt=8)
    found = predictions({case: smol.text()}, machine_of("a100-sxm-80gb", "hf-eager"))
    # two reductions a layer of 16 rows of 576 values, and the gathered logits; hf-eager keeps the whole embedding
    assert found[case.key, "prefill_comm_bytes"] == 60 * 16 * 576 * 4 + 2 * 49152 * 4 / 2


def test_the_command_compares_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(model="llama-7b", dtype="bf16")
    rows = [
        Row(case, "ttft_s", "s", constant_stat(0.05), LLAMA.text()),
        Row(case, "tpot_s", "s", constant_stat(0.03), LLAMA.text()),
    ]
    table, plot, out = tmp_path / "r.csv", tmp_path / "p.png", tmp_path / "pairs.csv"
    results.write(table, rows)
    assert main(["compare", str(table), "--gpu", "a100", "--plot", str(plot), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "1 case;" in said and "tpot_s" in said
    assert plot.stat().st_size > 5000 and len(out.read_text(encoding="utf-8").splitlines()) == 3
    assert main(["compare", str(table), "--gpu", "a100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {p["metric"]: p["measured"] for p in told["pairs"]} == {"ttft_s": 0.05, "tpot_s": 0.03}
    assert told["by_metric"]["tpot_s"]["rows"] == 1


def test_nothing_to_compare_is_told() -> None:
    row = Row(Case(task="micro"), "gemm_s", "s", constant_stat(1.0), m=1, n=1, k=1)
    with pytest.raises(RooflmError, match="no case that can be predicted"):
        pairs([row], machine_of("a100-sxm-80gb"))


def test_figures_show_cells_that_failed() -> None:
    def row(batch: int, prompt: int, status: str = "ok") -> Row:
        return Row(
            Case(model="m", batch=batch, prompt=prompt), "latency_s", "s", constant_stat(batch * 1.0), status=status
        )

    grid = as_grid([row(1, 8), row(2, 8), row(1, 16), row(2, 16, "oom")])
    assert [a.name for a in grid.axes] == ["batch", "prompt"]
    assert grid.arrays["fits"].tolist() == [[True, True], [True, False]]
    assert grid.arrays["reason"][1, 1] == "out of memory" and np.isnan(grid.arrays["latency_s"][1, 1])


def test_the_measured_table_counts_what_is_predicted() -> None:
    rows = results.read(Path(__file__).parents[2] / "docs" / "measured" / "two-cores.csv")
    found = {(r.case, r.rank, r.metric): r.stat.value for r in rows if r.status == "ok"}
    for names, count in ((("prefill_comm_bytes", "decode_comm_bytes", "step_comm_bytes"), 128),
                         (("prefill_flops", "decode_flops"), 64)):  # fmt: skip
        both = [(v, found[case, rank, f"{m}_expected"]) for (case, rank, m), v in found.items() if m in names]
        assert len(both) == count and all(a == b for a, b in both)
    told = {(r.case.dtype, r.case.quant, r.case.tp): r.stat.value for r in rows if r.metric == "perplexity"}
    assert len(told) == 4 and all(abs(v - 15.2) < 0.02 for v in told.values())
    assert (
        found[next(r.case for r in rows if r.case.task == "accuracy" and r.case.tp == 2), -1, "max_logit_error"] < 1e-4
    )


def test_one_client_predicts_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A calibrated machine's engine goes before the name that a run's file gives it: the level that was fitted is met,
    and levels that were not are near (two constants, each of one number)."""
    measured = Path(__file__).parents[2] / "docs" / "measured"
    base, own = str(measured / "two-cores.toml"), str(tmp_path / "own.toml")
    asked = ["--base", base, "--apart", "--quant", "int4-wo", "--out", own]
    assert main(["calibrate", str(measured / "llamacpp-second-c1.json"), *asked]) == 0
    errors: dict[str, dict[int, float]] = {}
    for clients in (1, 2, 4, 8):
        path = str(measured / f"llamacpp-second-c{clients}.json")
        for point in compare([path], {"gpu": own, "quant": "int4"}, explain=False).points:
            errors.setdefault(point.metric, {})[clients] = abs(point.predicted / point.measured - 1)
    capsys.readouterr()
    fitted = {metric: levels.pop(1) for metric, levels in errors.items()}
    assert fitted["ttft_p50_s"] < 0.01 and fitted["tpot_p50_s"] < 0.01  # the files hold medians alone
    assert np.mean(list(errors["ttft_p50_s"].values())) < 0.20
    assert np.mean(list(errors["tpot_p50_s"].values())) < 0.12


@pytest.mark.parametrize(("run", "clock", "told"), [
    ("first", "wall", (0.06, 0.12)), ("second", "wall", (0.09, 0.08)), ("third", "cpu", (0.06, 0.03)),
    ("fourth", "cpu", (0.03, 0.05)),
])  # fmt: skip
def test_one_client_of_vllm_predicts_more(run: str, clock: str, told: tuple[float, float], tmp_path: Path) -> None:
    """docs/measure.md: mean errors of TTFT and TPOT at 2, 4 and 8 clients. Requests pass vLLM's front end one by one,
    so that those which end together do not begin together."""
    measured = Path(__file__).parents[2] / "docs" / "measured"
    lines = (measured / f"vllm-{run}.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "one.csv").write_text("".join(lines[:5]), encoding="utf-8")
    own = str(tmp_path / "own.toml")
    found = rooflm.calibrate(str(tmp_path / "one.csv"), base=str(measured / "two-cores.toml"), clock=clock, out=own)
    assert found.machine.engine.host.front == 1e-3 and found.machine.engine.server.lookahead == 0
    assert load_engine(own).host.carry == pytest.approx(load_engine("vllm").host.carry, rel=1e-3)
    points = rooflm.compare(str(measured / f"vllm-{run}.csv"), gpu=own, clock=clock, explain=False).points
    off = {m: [abs(p.ratio - 1) for p in points if p.metric == m][1:] for m in ("ttft_s", "tpot_s")}
    assert [len(x) for x in off.values()] == [3, 3]
    assert (np.mean(off["ttft_s"]), np.mean(off["tpot_s"])) == pytest.approx(told, abs=0.006)


@pytest.mark.parametrize(("staged", "cause"), [("slots", "fewer sequences run at a time"),
                                               ("prefix", "prompts share a prefix")])  # fmt: skip
def test_a_cause_staged_on_a_real_server_is_named(staged: str, cause: str, tmp_path: Path) -> None:
    measured = Path(__file__).parents[2] / "docs" / "measured"
    own = str(tmp_path / "own.toml")
    rooflm.calibrate(str(measured / "llamacpp-third-c1.json"), base=str(measured / "two-cores.toml"), apart=True,
                     quant="int4-wo", out=own)  # fmt: skip
    found = rooflm.compare(str(measured / f"llamacpp-{staged}-c8.json"), gpu=own, quant="int4").causes
    assert found[0].name == cause and found[0].share > 0.6


STAGED = {"seqs": "fewer sequences run at a time", "budget": "another chunk budget",
          "prefix": "prompts share a prefix", "cacheoff": "the prefix cache is off"}  # fmt: skip
"""Staged on vLLM's server (docs/measure.md) -> the cause."""


@pytest.mark.parametrize("staged", list(STAGED)[: None if os.environ.get("ROOFLM_STAGED") else 1])
def test_a_cause_staged_on_vllm_is_named(staged: str, tmp_path: Path) -> None:
    """The single client of the same server says the machine, where it was loaded so; else that of the fourth run."""
    measured = Path(__file__).parents[2] / "docs" / "measured"
    lines = (measured / f"vllm-staged-{staged}.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    own, single, more = str(tmp_path / "own.toml"), tmp_path / "one.csv", tmp_path / "more.csv"
    alone = [x for x in lines if x.startswith('"1 client')]
    fourth = (measured / "vllm-fourth.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    single.write_text("".join([lines[0], *alone] if alone else fourth[:5]), encoding="utf-8")
    more.write_text("".join(x for x in lines if x not in alone), encoding="utf-8")
    rooflm.calibrate(str(single), base=str(measured / "two-cores.toml"), clock="cpu", out=own)
    given = {"shared_prefix": 128, "prefix_caching": "true"} if staged == "cacheoff" else {}  # the server told: false
    found = rooflm.compare(str(more), gpu=own, clock="cpu", **given).causes
    assert found[0].name == STAGED[staged] and found[0].share > 0.6


def test_clients_at_a_rate_are_no_batch(tmp_path: Path) -> None:
    """How many of them are under way is not known; what a run is called says both."""
    head = "model,gpu,concurrency,rate,requests,prompt,output,metric,value,unit\n"
    (tmp_path / "r.csv").write_text(head + "llama-3.1-8b,h100,4,2,20,128,16,tpot,9,ms\n", encoding="utf-8")
    with pytest.raises(RooflmError, match="clients of a run at a rate"):
        served_cases(str(tmp_path / "r.csv"), None, "bf16", "none")
    point = rooflm.compare(str(tmp_path / "r.csv"), gpu="h100", explain=False).points[0]
    assert "4 clients, 2" in point.label


@pytest.mark.parametrize("tool", [rooflm.compare, rooflm.calibrate])
def test_files_are_given_one_by_one(tool: Any) -> None:
    with pytest.raises(RooflmError, match="one by one"):
        tool(["a.csv", "b.csv"])
