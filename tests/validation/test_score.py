"""Scoring of published rows: one evaluation a family, releases to engine rows, verdicts, reasons, the command."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.answers.bands import Band, around, band
from rooflm.asked.answers.training import train
from rooflm.asked.build_inference import build_inference
from rooflm.cli.app import main
from rooflm.cli.validate import picture
from rooflm.estimate.inference import infer_scenario
from rooflm.readers.engines import family_of, load_engine
from rooflm.validation import Request, published_tables, read_rows
from rooflm.validation import score as scoring
from rooflm.validation.score import BORDER, Scored, remarks, report, requests_of, score, verdicts
from rooflm.validation.table import parse, read_tables

KWARGS = {
    "model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 1, "tp": 1, "pp": 1, "dp": 1, "ep": 1, "batch": 4,
    "prompt": 128, "output": 32, "quant": "w16a16kv16", "engine": "trtllm-0.9",
}  # fmt: skip


def request(metric: str = "latency_s", measured: float = 1.0, **kwargs: object) -> Request:
    given = KWARGS | kwargs
    group = (str(given["model"]), str(given["gpu"]))
    return Request("x-1", "x", "infer", metric, measured, given, group, str(given["engine"]))


def test_rows_predicted_together_are_predicted_alike() -> None:
    rows = [request(batch=b, prompt=p, tp=t, gpus=t) for b in (1, 7, 64) for p in (32, 2000) for t in (1, 2, 8)]
    together = score(rows)
    for row, x in zip(rows, together, strict=True):
        k = row.kwargs
        made = build_inference(model="llama-2-7b", gpu="a100-sxm-80gb", quant="w16a16kv16", engine="trtllm-0.9",
                               tp=k["tp"], pp=1, dp=1, batch=k["batch"], prompt=k["prompt"], output=32)  # fmt: skip
        assert x.predicted == pytest.approx(float(infer_scenario(made.scenario).latency), rel=1e-12)


def test_one_odd_row_does_not_take_the_others_with_it() -> None:
    good, odd = score([request(), request(tp=3, gpus=3)])
    assert np.isfinite(good.predicted)
    assert odd.reason


def test_figures_of_one_training_run_share_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 8, "batch": 8, "seq": 2048, "engine": "megatron"}
    names = ("step_time_s", "mfu", "memory_bytes", "no such metric")
    rows = [replace(request(m), task="train", kwargs=run) for m in names]
    calls: list[object] = []
    monkeypatch.setattr(scoring, "train", lambda s: calls.append(s) or train(s))
    *known, odd = score(rows)
    alone = score([rows[1]])[0]
    assert len(calls) == 2 and all(x.predicted > 0 for x in known) and known[1].predicted == alone.predicted
    assert odd.reason == "metric no such metric is not predicted"


def test_metrics_of_one_run_agree() -> None:
    names = ("latency_s", "output_tokens_per_s", "ttft", "tpot", "prefill_tokens_per_s", "decode_tokens_per_s")
    latency, rate, ttft, tpot, prefill, decode = (x.predicted for x in score([request(m) for m in names]))
    assert rate == pytest.approx(4 * 32 / latency)
    assert latency == pytest.approx(ttft + 31 * tpot)
    assert prefill == pytest.approx(4 * 128 / ttft)
    assert decode == pytest.approx(4 / tpot)


def test_verdicts() -> None:
    def row(metric: str, margin: float, name: str) -> Scored:
        return Scored(replace(request(metric), id=name), 1.0, "", margin)

    found = verdicts([row("oom", -0.3, "a"), row("ttft", 0.2, "b"), row("ttft", -0.04, "c"), row("oom", 0.2, "d")])
    assert found["right"] == 2
    assert found["borderline"] == {"c": -0.04}
    assert found["wrong"] == {"d": 0.2}
    assert BORDER == 0.05


def test_a_batch_beyond_the_cache_runs_in_rounds() -> None:
    # Llama-2-7B at 4096 tokens: 2 GiB a sequence, so 256 of them take several rounds of one A100's 80 GiB
    small, large = score([request(batch=b, prompt=2048, output=2048, engine="vllm-2024")
                          for b in (8, 256)])  # fmt: skip
    assert small.waves == 1
    assert large.waves > 8
    assert large.predicted > 8 * small.predicted
    assert "rounds" in remarks(large)


def test_rounds_overlap_where_sequences_are_evicted_and_are_whole_where_they_end_together() -> None:
    def waves(engine: str, batch: int, **more: int) -> float:
        kw = {"model": "llama-2-7b", "gpu": "a100-sxm-40gb", "prompt": 2048, "output": 2048} | more
        return float(infer_scenario(build_inference(engine=engine, batch=batch, **kw).scenario).waves)

    assert waves("trtllm-2024", 16) == 2  # no sequence is evicted: two rounds of eight
    assert waves("vllm-2024", 16) == pytest.approx(1.6)  # ten at once
    assert waves("vllm-2024", 300, prompt=16, output=16) == 2  # its limit of 256, not memory


def test_rounds_change_nothing_where_all_fits() -> None:
    made = build_inference(model="llama-2-7b", gpu="a100", batch=8, engine="vllm-2024").scenario
    off = replace(made, engine=made.engine.but(waves=False))
    assert float(infer_scenario(made).latency) == float(infer_scenario(off).latency)
    e = infer_scenario(replace(made, workload=replace(made.workload, batch=4000)))
    assert sum(float(v) for v in e.parts.values()) == pytest.approx(float(e.latency), rel=1e-9)


@pytest.fixture(scope="module")
def own() -> tuple[list[Scored], dict[str, Any]]:
    """The own tables' rows of inference, scored, and the report of them."""
    outcomes = [o for p in published_tables() for o in read_rows(p)]
    scored = score([r for r in requests_of(outcomes) if r.task == "infer"])
    return scored, report(outcomes, scored)


def test_own_tables_meet_the_marks(own: tuple[list[Scored], dict[str, Any]]) -> None:
    scored, result = own
    marks = {"optimus": 0.06, "nemo-infer": 0.05, "ft": 0.08, "ft-megatron": 0.11, "llamacpp": 0.09, "tinychat": 0.10}
    for source, mark in marks.items():
        assert result["by_source"][source]["mape"] < mark, source
    assert max(abs(x.ratio - 1) for x in scored if x.request.source == "optimus") < 0.12


def test_bands_cover_about_eight_of_ten(own: tuple[list[Scored], dict[str, Any]]) -> None:
    assert 0.7 < own[1]["all"]["coverage"] <= 1.0


def test_bands_widen_where_less_is_known() -> None:
    near, far = band("request", "vllm-2024", "datacenter hopper"), band("request", "nobody", "nowhere")
    assert near is not None
    assert far is not None
    assert far.high / far.low > near.high / near.low
    assert far.distance == "far"
    assert band("request", "vllm-2024", "datacenter hopper", where="far") == far
    assert family_of("trtllm-0.9") == "trtllm"
    assert around(2.0, Band(0.5, 2.0, 1, ""), rate=True) == (1.0, 4.0)


def table(path: Path, *rows: dict[str, str]) -> Path:
    plain = {"id": "t-1", "source": "mine", "model": "llama-2-7b", "gpu": "a100", "engine": "trtllm", "release": "0.9",
             "quant": "w16a16kv16", "batch": "1", "prompt": "128", "output": "128", "metric": "latency_s", "value": "2",
             "doubt": "", "trust": "A", "unit": "s", "concurrency": ""}  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(plain))
        writer.writeheader()
        for row in rows:
            writer.writerow(plain | row)
    return path


def test_a_brief_report_without_counted_rows_says_what_stands_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "t.csv", {"id": "t-1", "batch": ""})
    assert main(["validate", str(path), "--brief"]) == 0
    told = capsys.readouterr().out
    assert "No row counts" in told and "batch not stated" in told


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "t.csv", {}, {"id": "t-2", "model": "nobody"}, {"id": "t-3", "batch": ""},
                 {"id": "t-4", "doubt": "odd"}, {"id": "t-5", "value": "0"})  # fmt: skip
    out = tmp_path / "out.csv"
    assert main(["validate", str(path), "--json", "--out", str(out), "--rows", "--by", "release"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["scored"], result["counted"]) == (5, 3, 1)
    lacks = "model nobody is not in the catalogue: give layers, hidden, heads and ffn, or params"
    assert result["skipped"] == {lacks: 1, "latency_s is '0', but a measurement must be a number above 0": 1}
    for key in ("all", "by_source", "by_gpu", "by_engine", "by_model", "by_metric"):
        assert key in result
    assert set(result["all"]) == {"rows", "mape", "median_ape", "p90_ape", "bias", "coverage"}
    assert result["all"]["rows"] == 1 and result["apart"]["odd"]["rows"] == 1
    assert result["assumed"]["batch not stated"]["rows"] == 1 and list(result["by_release"]) == ["0.9"]
    assert [x["id"] for x in result["each"]] == ["t-1", "t-3", "t-4"]
    with out.open(encoding="utf-8") as handle:
        written = list(csv.DictReader(handle))
    assert [w["id"] for w in written] == ["t-1", "t-2", "t-3", "t-4", "t-5"]
    assert float(written[0]["low"]) < float(written[0]["predicted"]) < float(written[0]["high"])
    assert float(written[0]["ratio"]) == pytest.approx(float(written[0]["predicted"]) / 2, rel=1e-4)
    assert (written[1]["skipped"], written[3]["apart"]) == (lacks, "odd")
    width = [np.log(float(w["high"]) / float(w["low"])) for w in written if w["low"]]
    assert width[1] > 1.2 * width[0]  # something stands in


@pytest.mark.parametrize("rows", [(), ({"model": "nobody"},)], ids=["empty", "unknown"])
def test_a_table_of_which_nothing_is_scored_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: tuple[dict[str, str], ...]
) -> None:
    path = str(table(tmp_path / "t.csv", *rows))
    assert main(["validate", path, "--quiet"]) == main(["validate", path, "--quiet", "--json"]) == 2
    error = capsys.readouterr().err
    said = "read and none scored" if rows else "no row below the header"
    assert error.count(said) == error.count("\n") == 2
    verdict = table(tmp_path / "v.csv", {"metric": "oom", "value": "1", "unit": "", "batch": "4096"})
    assert main(["validate", str(verdict)]) == 0


def test_sources_and_columns_pick_and_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table(tmp_path / "t.csv", {}, {"id": "t-2", "source": "yours", "batch": "8"}))
    assert main(["validate", path, "--source", "YOUR", "--by", "batch,tp", "--rows"]) == 0
    text = capsys.readouterr().out
    assert "1 row, 1 scored, 1 counted" in text and "by batch" in text and "by source" not in text
    assert "t-2" in text and "t-1" not in text
    for arguments, words in (
        (["--source", "hers"], "source is 'hers'"),
        (["--source", "yuors"], "but no row has one of that name: try 'yours'"),
        (["--by", "prmpt"], "did you mean 'prompt'"),
    ):
        assert main(["validate", path, *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1


def test_the_text_is_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "f.png"
    odd = {"id": "t-2", "gpu": "x"}, {"id": "t-3", "doubt": "a doubt that goes on and on about what is not known of it"}
    assert main(["validate", str(table(tmp_path / "t.csv", {}, *odd)), "--plot", str(figure)]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "by engine" not in text  # one engine: its figures are those of all
    assert "gpu x is not in the catalogue: give peak, bandwidth and memory, or like (t-2" in " ".join(text.split())
    assert "Worst rows" in text
    assert figure.stat().st_size > 5000


def test_values_that_fit_in_another_unit_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "t-1", "value": "1500", "unit": ""}, {"id": "t-2", "value": "1500000", "unit": "us"}]
    assert main(["validate", str(table(tmp_path / "t.csv", *rows)), "--rows"]) == 0
    text = capsys.readouterr().out
    assert "1 value without a unit would fit in ms: give a column unit." in text
    assert text.count("no unit: read in s, but it fits in ms") == 1 and "1.50 s" in text


def test_bad_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = tmp_path / "older.csv"
    older.write_text("id,model,gpu,engine,precision_weights,input_len,output_len,metric,value,note\n", encoding="utf-8")
    for arguments, words in (
        (["validate", str(tmp_path / "none.csv")], "cannot read table"),
        (["validate", "--out", str(tmp_path / "x.txt")], "must end in .csv"),
        (["validate", str(older)], f"convert it with scripts/convert-published {older} NEW.csv"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_every_row_says_where_its_numbers_come_from() -> None:
    for name in ("vllm-2024", "trtllm-0.9", "fastertransformer", "llama.cpp-2024-05", "tinychat"):
        engine = load_engine(name)
        assert engine.date
        assert engine.version


def test_a_picture_has_sources_by_name_and_a_title() -> None:
    found = picture(score(requests_of(read_tables(sources=["cluster-perf"]))))
    drawn = json.dumps(found.spec)
    assert '"llm-cluster-perf"' in drawn and '"cluster-perf"' not in drawn
    assert found.title == "Predictions over measurements"


def test_a_row_has_the_band_that_its_answer_has() -> None:
    rows = parse(
        "model,gpu,engine,batch,prompt,output,metric,value,unit\n"
        "llama-3.1-8b,h100,vllm,8,4096,32,latency_s,1.5,s\nllama-3.1-8b,h100,vllm,8,4096,32,ttft,0.8,s\n"
    )
    bands = rooflm.infer("llama-3.1-8b", gpu="h100", batch=8, prompt=4096, output=32).error_band
    for scored, key in zip(score(requests_of(rows)), ("latency_s", "ttft_s"), strict=True):
        assert (scored.low, scored.high) == pytest.approx((bands[key]["low"], bands[key]["high"]))


def test_a_list_of_tables_is_as_good_as_tables(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("model,gpu,engine,batch,prompt,output,tpot_ms\nllama-3.1-8b,h100,vllm,1,512,128,6.1\n")
    assert rooflm.validate([str(table), str(table)]) == rooflm.validate(str(table), str(table))
    with pytest.raises(rooflm.RooflmError, match="None is neither a name, a path nor a list of them"):
        rooflm.validate(None)  # type: ignore[arg-type]
