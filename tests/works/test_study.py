"""Studies of published works: names, rows beside ours, files, and what the works found."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from altair.vegalite.v6.schema.core import load_schema
from jsonschema import Draft7Validator

from rooflm import infer
from rooflm.cli import main
from rooflm.cli.study import cell, page, study_blocks
from rooflm.errors import RooflmError
from rooflm.shown import blocks
from rooflm.shown.terminal import lines
from rooflm.works.study import FITTED, WORKS, Study, errors_of, pictures_of, published, study

MADE = [n for n in WORKS if (Path(__file__).parents[2] / "src/rooflm/works" / f"{n}.py").is_file()]


@pytest.fixture(scope="module")
def made() -> dict[str, Study]:
    return {name: study(name) for name in MADE}


def test_every_listed_work_is_there() -> None:
    assert [*WORKS] == MADE


@pytest.mark.parametrize("name", MADE)
def test_rows_are_tidy_and_say_whether_they_were_fitted(made: dict[str, Study], name: str) -> None:
    found = made[name]
    assert found.source and found.conditions and found.tables and found.findings
    assert (*found.pictures,) == pictures_of(name)
    for table in found.tables:
        keys = [c.key for c in table.columns]
        assert len(set(keys)) == len(keys) and table.rows, table.name
        for row in table.rows:
            assert {*keys} <= row.keys(), (table.name, row)
            if row.get("off") is not None:
                assert row["fitted"] in (FITTED, "no")
                assert row["off"] == pytest.approx(row["ours"] / row["published"] - 1)
            for c in table.columns:
                assert isinstance(cell(row[c.key], c), str)


@pytest.mark.parametrize("name", MADE)
def test_text_fits_a_terminal(made: dict[str, Study], name: str) -> None:
    drawn = study_blocks(made[name], 40)
    assert not [line for line in lines(drawn, 80) if len(line) > 80]
    assert not [b.title for b in drawn if isinstance(b, blocks.Table) and blocks.width(b) > 80]  # none is cut in two


@pytest.mark.parametrize("name", MADE)
def test_every_picture_is_a_valid_specification(made: dict[str, Study], name: str) -> None:
    """By the schema itself: building altair's objects of it takes twenty times as long, and test_pictures does that."""
    legal = Draft7Validator(load_schema())
    for make in made[name].pictures.values():
        spec = make().spec
        assert not [e.message for e in legal.iter_errors(without_rows(spec))] and spec["title"]["text"]


def without_rows(part: Any) -> Any:
    """A part of a specification with one row of its data: no schema says anything of rows."""
    if isinstance(part, dict):
        return {k: v[:1] if k == "values" else without_rows(v) for k, v in part.items()}
    return [without_rows(v) for v in part] if isinstance(part, list) else part


@pytest.mark.parametrize("name", MADE)
def test_every_published_file_has_its_source(name: str) -> None:
    folder = Path(__file__).parents[2] / "src/rooflm/data/works"
    files = sorted(folder.glob(f"{name}-*.csv"))
    assert files
    for path in files:
        assert path.read_text(encoding="utf-8").startswith("# "), path.name
        assert published(path.stem)


def test_the_command_writes_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, made: dict[str, Study]
) -> None:
    monkeypatch.setattr("rooflm.works.study.study", made.__getitem__)
    assert main(["study", "analysis", "--out", str(tmp_path), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["errors"]["formula, in no fit"]["rows"] == 12
    with (tmp_path / "analysis-hours.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["published"]) == 82432
    assert (tmp_path / "analysis-hours.png").stat().st_size > 5000
    assert "| llama-7b |" in (tmp_path / "analysis.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["anlysis"], "did you mean 'analysis'"),
        (["all", "--plot", "a.png"], "name the work"),
        (["analysis", "--picture", "hours"], "--plot FILE"),
        (["analysis", "--plot", "a.pdf"], "png"),
        (["analysis", "--out", __file__], "must be a folder"),
        (["maps", "--plot", "a.png", "--picture", "hours"], "it must be utilisation or latency-128 or latency-512"),
    ],
)
def test_bad_requests_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is worked out: no work's study is made."""
    monkeypatch.setattr("rooflm.works.maps.study", None)
    assert main(["study", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_long_table_is_a_file_beside_its_page(made: dict[str, Study]) -> None:
    text = page(made["maps"])
    assert "539 rows: [maps-map.csv](maps-map.csv)" in text and text.count("\n|") < 120


# Shortened LLaMA


def test_one_slow_host_explains_the_rtx_3090(made: dict[str, Study]) -> None:
    """A launch's time, set by one of its six readings at batch 1, brings the five others from 45 % off to 12."""
    rows = made["maps"].table("hosts").rows
    others = [r for r in rows if r["fitted"] == "no"]
    assert (len(rows), len(others)) == (6, 5)
    assert errors_of(others).mean < 0.15 < 0.4 < sum(abs(r["usual"]) for r in others) / 5
    by = {(r["output"], r["variant"]): r["ours"] for r in rows}
    assert by[512, "width"] == pytest.approx(by[512, "no"])
    assert by[512, "depth"] == pytest.approx(0.73 * by[512, "no"], rel=0.02)


# llm-analysis


def test_hours_of_flops_alone_are_those_of_its_table(made: dict[str, Study]) -> None:
    found = errors_of(made["analysis"].table("formula").rows)
    assert found.rows == 12 and found.most < 0.01


def test_latencies_are_those_of_its_tables(made: dict[str, Study]) -> None:
    found = errors_of(made["analysis"].table("latency").rows)
    assert found.rows == 48 and found.mean < 0.02 and found.most < 0.05


# Optimus


def test_what_fits_is_what_the_paper_says(made: dict[str, Study]) -> None:
    rows = made["technology"].table("memory").rows
    assert len(rows) == 12
    for row in rows:
        assert row["fits"] == (row["recompute"] != "none") == (row["total"] <= row["capacity"])


def test_activations_are_the_papers_bytes(made: dict[str, Study]) -> None:
    """s b h L (34 + 5 a s/h) / t split as in Korthikanti et al. 2022, table 2, for the model with one stage (22B)."""
    seq, batch, hidden, layers, heads, tp = 2048, 4, 6144, 48, 64, 8
    unit = seq * batch * hidden * layers
    square = 5 * heads * seq / hidden
    expected = {"none": 10 + 24 / tp + square / tp, "selective": 34 / tp, "full": 2.0}
    for row in made["technology"].table("memory").rows:
        if row["model"] == "megatron-22b":
            rest = row["activations"] / unit - expected[row["recompute"]]  # ends, and with full the layer at work
            assert 0 <= rest * unit / 1e9 < (0.8 if row["recompute"] != "full" else 2.0)


def test_training_and_inference_stay_within_what_is_said(made: dict[str, Study]) -> None:
    steps, requests = (errors_of(made["technology"].table(n).rows) for n in ("training", "inference"))
    assert (steps.rows, requests.rows) == (11, 22)
    assert steps.mean < 0.05 and steps.most < 0.10 and requests.mean < 0.05 and requests.most < 0.13


def test_the_order_of_bottlenecks_is_said_series_by_series(made: dict[str, Study]) -> None:
    rows = made["technology"].table("bottleneck").rows
    for row in rows:
        words = [p.split()[0] for p in row["path"].split(", ")]
        assert row["order"] == any(words[i : i + 3] == ["compute", "dram", "network"] for i in range(len(words)))
    assert {r["order"] for r in rows} == {True, False}
    told = " ".join(made["technology"].findings)
    assert all(r["series"] in told for r in rows)


# llm-cluster-perf


def test_eight_rows_within_ten_per_cent_and_ten_as_they_come(made: dict[str, Study]) -> None:
    rows = made["cluster"].table("rows")
    eight, ten = (errors_of(rows.pairs(fitted=f)) for f in (FITTED, "no"))
    assert (eight.rows, ten.rows) == (8, 10)
    assert eight.most < 0.10 and eight.mean < 0.04
    assert ten.mean < 0.26  # with one constant whatever the boxes (docs/decisions/0046, 0189, 0219)
    parts = made["cluster"].table("parts").rows[0]
    assert abs(parts["gpu"] - 0.1) < 0.02 and abs(parts["host"] - 0.04) < 0.008  # as the source saw at batch 1


def test_a_message_more_is_its_time_more() -> None:
    """A token crosses every border between stages once, and its number comes back: as many messages as boxes."""
    for boxes, batch in itertools.product((2, 3, 4), (1, 8)):
        with_, without = (
            infer("llama-2-13b", gpu="rtx-3090", cluster="ethernet-1g", pp=boxes, batch=batch, engine="hf-eager-4.28",
                  sets={"engine.message": m})
            for m in (0.01, 0.0)
        )  # fmt: skip
        assert float(with_.tpot - without.tpot) == pytest.approx(boxes * 0.01)
    alone = (infer("llama-2-7b", gpu="a100", sets={"engine.message": m}).tpot for m in (0.01, 0.0))
    assert next(alone) == next(alone)


# Shortened LLaMA


def test_printed_cells_and_the_one_that_cannot_be(made: dict[str, Study]) -> None:
    table = made["maps"].table("cells")
    assert errors_of(table.pairs()).rows == 7 and errors_of(table.pairs()).most < 0.04
    assert [(r["gpu"], r["output"]) for r in table.rows if r["verdict"]] == [("rtx-3090", 512)]


def test_memory_ends_where_the_originals_did(made: dict[str, Study]) -> None:
    """7B with 512 tokens is out of memory at batch 256 on 80 GB (torch.cat holds a layer twice), 13B at 128 is not."""
    ends = {(r["model"], r["gpu"]): r for r in made["maps"].table("ends").rows}
    assert [ends["llama-7b", g]["l512"] for g in ("a100-sxm-80gb", "h100-sxm-80gb")] == [128, 128]
    assert ends["vicuna-13b", "h100-sxm-80gb"]["l512"] == 128
    assert ends["llama-7b", "rtx-3090"]["l128"] == 128  # a cell that the work prints
    kv = 2 * 32 * 4096 * 2  # bytes a token of LLaMA-7B: K and V, 32 layers, 4096 values of 2 bytes
    for row in made["maps"].table("map").rows:
        least = 2 * 6.738e9 + kv * row["batch"] * (12 + row["output"])
        for gpu, size in (("rtx-3090", 24), ("a100-sxm-80gb", 80)):
            if (row["model"], row["gpu"]) == ("llama-7b", gpu) and least > size * 2**30:
                assert not row["fits"]


def test_utilisation_rises_with_batch_to_near_all(made: dict[str, Study]) -> None:
    rows = [r for r in made["maps"].table("map").rows if r["fits"]]
    for case in {(r["model"], r["gpu"], r["output"]) for r in rows}:
        busy = [r["busy"] for r in rows if (r["model"], r["gpu"], r["output"]) == case]
        assert all(b > a - 0.01 for a, b in itertools.pairwise(busy))
    assert all(0.9 < r["busy"] <= 1 for r in rows if r["batch"] >= 128 and r["model"] != "llama-3.1-8b")


def test_depth_pruning_always_helps_and_width_pruning_not_at_batch_one(made: dict[str, Study]) -> None:
    """Bound by the host's launches, a narrower model takes as long (some 14 ms a token on A100 and H100)."""
    for row in made["maps"].table("pruned").rows:
        if row["variant"] == "depth-pruned":
            assert row["most"] < 0.85
        elif row["gpu"] in ("a100-sxm-80gb", "h100-sxm-80gb"):
            assert row["one"] > 0.97 and row["least"] < 0.9


# Shin et al.


def test_bytes_are_those_counted_by_hand(made: dict[str, Study]) -> None:
    rows = made["profiler"].table("bytes").rows
    assert all(0 <= r["off"] < 0.05 for r in rows)
    for strategy in ("tensor", "pipeline"):
        own = {r["batch"]: r["ours"] for r in rows if r["strategy"] == strategy}
        assert own[64] / own[1] == pytest.approx(64)


def test_strategies_measured_on_two_cores_stand_beside_their_predictions(made: dict[str, Study]) -> None:
    times, memory = (made["profiler"].table(n) for n in ("measured", "measured-bytes"))
    assert {r["split"] for r in times.rows} == {"none", "tensor", "pipeline"}
    assert {r["kernels"] for r in times.rows} == {"unfused", "fused"}
    quiet = errors_of(times.pairs(load="light", fitted="no"))
    assert quiet.rows == 4 and quiet.mean < 0.12
    sent = [r for r in memory.rows if r["what"] != "memory"]
    assert len(sent) > 15 and all(abs(r["off"]) < 1e-5 and r["fitted"] == "no" for r in sent)
    assert errors_of(memory.pairs(what="memory")).mean < 0.05


def test_memory_grows_to_a_threshold_and_fusion_saves_time(made: dict[str, Study]) -> None:
    rows = made["profiler"].table("llama-2-7b").rows
    for strategy in ("tensor", "pipeline"):
        own = {(r["kernels"], r["batch"]): r for r in rows if r["strategy"] == strategy}
        batches = sorted({b for _, b in own})
        memory = [own["unfused", b]["memory"] for b in batches]
        assert all(a < b for a, b in itertools.pairwise(memory))
        assert own["unfused", 1]["fits"] and not own["unfused", 1024]["fits"]
        assert all(own["unfused", b]["latency_s"] > own["fused", b]["latency_s"] for b in (8, 64, 512))


# Pictures


def test_nodes_and_memories_have_their_names(made: dict[str, Study]) -> None:
    """P5, P6: no axis of TFLOP/s or of rates alone where the question is of a node or a memory."""
    pictures = made["technology"].pictures
    nodes, wall, memories = (json.dumps(pictures[n]().spec) for n in ("nodes", "wall", "dram"))
    assert '"14 nm"' in nodes and '"1 nm"' in nodes
    assert '"HBM3"' in wall and '"GDDR7"' in wall and "HBM4, 6.2 TB/s" in memories


def test_the_cluster_draws_points_beside_lines_on_one_pair_of_axes(made: dict[str, Study]) -> None:
    spec = made["cluster"].pictures["rows"]().spec
    kinds = [layer["mark"]["type"] for layer in spec["layer"]]
    assert kinds == ["line", "point"] * 3
    assert {spec["layer"][0]["encoding"][side]["scale"]["type"] for side in "xy"} == {"log"}


@pytest.mark.parametrize("name", [None, ["analysis"]])
def test_what_is_no_name_is_no_study(name: Any) -> None:
    with pytest.raises(RooflmError, match="unknown study"):
        study(name)
