"""Which picture suits an answer, and what is in it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from made import INFERENCE, TRAINING, grid, trained

import rooflm
from rooflm import plot
from rooflm.api import INFER
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.plots import choose
from rooflm.plots import point as points
from rooflm.plots.picture import text_width
from rooflm.plots.scale import Side, scale_of
from rooflm.serving.grid import SERVE_OUTPUTS
from rooflm.sweep.axes import Axis
from rooflm.sweep.grid import Grid


def values(picture, **wanted):
    """Every row of data in a picture whose cells are as wanted."""
    found = []

    def look(part):
        if isinstance(part, dict):
            if isinstance(part.get("values"), list):
                found.extend(row for row in part["values"] if isinstance(row, dict))
            for inner in part.values():
                look(inner)
        elif isinstance(part, list):
            for inner in part:
                look(inner)

    look(picture.spec)
    return [row for row in found if all(row.get(k) == v for k, v in wanted.items())]


def totals(picture):
    """(group, label) -> the sum of a bar's parts."""
    out: dict[tuple[str, str], float] = {}
    for row in values(picture, kind="part"):
        out[row["group"], row["label"]] = out.get((row["group"], row["label"]), 0.0) + row["value"]
    return out


@pytest.fixture(scope="module")
def mapped():
    return grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64, 512], output=[16, 128, 1024])


@pytest.fixture(scope="module")
def single():
    return INFER.point(INFERENCE | {"gpu": "a100-sxm-80gb", "batch": 8, "output": 128})


@pytest.fixture(scope="module")
def step():
    return rooflm.train(**TRAINING)


def test_heat_map_marks_what_does_not_fit(mapped):
    picture = choose.grid_picture(mapped, value="busy")
    small, large = picture.spec["concat"]
    assert [p["title"]["text"] for p in (small, large)] == [["rtx-3090"], ["a100-sxm-80gb"]]
    cells = [p["data"]["values"] for p in (small, large)]
    assert [sum(row["text"] == "OOM" for row in c) for c in cells] == [
        (~mapped.arrays["fits"][i]).sum() for i in (0, 1)
    ]
    kept = [row["value"] for row in cells[0] if row["value"] is not None]
    assert np.allclose(kept, 100 * mapped.arrays["busy"][0][mapped.arrays["fits"][0]])
    y = small["layer"][0]["encoding"]["y"]

    assert max(map(text_width, y["title"])) <= small["height"]["step"] * 4 + 1  # so that panels are level
    assert y["title"] == ["batch", "(sequences)"] and y["sort"] == ["512", "64", "8", "1"]


def test_lines_over_the_longest_numeric_axis():
    picture = choose.grid_picture(grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64, 256], output=[128, 512]))
    assert [p["title"]["text"] for p in picture.spec["concat"]] == [["output 128"], ["output 512"]]
    names = picture.spec["concat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert names == ["rtx-3090", "a100-sxm-80gb"]
    assert "does not fit in memory" in picture.spec["title"]["subtitle"][-1]


def test_bars_sum_to_the_total_and_show_the_capacity():
    made = grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=512, output=128)
    assert np.allclose(list(totals(choose.grid_picture(made)).values()), 1e3 * made.arrays["tpot_s"])
    memory = choose.grid_picture(made, "memory")
    assert [row["text"].endswith("OOM") for row in values(memory, kind="end")] == [True, False]
    assert np.allclose(list(totals(memory).values()), made.arrays["memory_bytes"] / 2**30)
    limits = [row["limit"] for row in values(memory, kind="limit")]
    assert np.allclose(limits, made.arrays["memory_capacity_bytes"] / 2**30)


def test_shares_are_bars_of_one_length_with_the_time_beside_the_label():
    made = grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8], output=128)
    picture = choose.grid_picture(made, "shares")
    assert np.allclose(list(totals(picture).values()), 100)
    assert picture.title == "Share of decode step time by part"
    assert not values(picture, kind="band") and all(", " in label for _, label in totals(picture))
    sent = totals(choose.grid_picture(grid(gpu="a100-sxm-80gb", tp=[2, 4], batch=[1, 8]), "shares", "comm_bytes"))
    assert sent and all(label.endswith("B") for _, label in sent)  # no time, so no seconds


def test_a_point_that_breaks_a_rule_has_a_word_and_no_number():
    made = grid(model="llama-2-13b", gpu="a100-sxm-80gb", tp=[1, 3, 4], batch=[1, 8, 64], output=128)
    picture = choose.grid_picture(made, "memory")
    assert [row["text"] for row in values(picture, kind="end", bad=True)] == ["n/a"] * 3
    assert "n/a: breaks a rule" in picture.spec["title"]["subtitle"][-1]
    cells = values(choose.grid_picture(made, "heatmap"), text="n/a")
    assert len(cells) == 3 and all(row["value"] is None for row in cells)
    lines = choose.grid_picture(INFER.grid({"model": "llama-2-13b", "gpu": "a100-sxm-80gb", "tp": [1, 2, 3, 4, 8]}))
    assert {row["piece"] for row in values(lines) if "piece" in row} == {0, 1}  # the band has a gap there


def test_names_as_bars_of_any_output():
    made = trained(gpu=["a100-sxm-80gb", "h100-sxm-80gb"], tp=8, recompute="full")
    picture = choose.grid_picture(made, value="mfu")
    assert np.allclose(list(totals(picture).values()), 100 * made.arrays["mfu"].reshape(-1))
    steps = choose.grid_picture(made, value="step_time_s")
    assert np.allclose([b["high"] for b in values(steps, kind="band")],
                       made.arrays["error_band.step_time_s.high"].reshape(-1))  # fmt: skip


def test_where_nothing_fits_lines_are_of_what_would_be():
    made = trained(tp=1, gpus=[8, 16, 32], recompute="none")
    assert not made.arrays["fits"].any()
    picture = choose.grid_picture(made)
    drawn = [row["y"] for row in values(picture) if row.get("y") is not None and "piece" not in row]
    assert set(np.round(made.arrays["step_time_s"].reshape(-1), 6)) <= set(np.round(drawn, 6))
    assert "none fits in memory" in picture.spec["title"]["subtitle"][-1]
    alone = points.parts(rooflm.train(**TRAINING, micro_batch=8))
    assert alone.spec["title"]["subtitle"][0].endswith("does not fit in memory")


def test_loads_that_are_not_served_have_no_point():
    axes = [Axis("rate", (1, 10, 100))]
    latency, reason = np.array([1.0, 2.0, 30.0]), np.array(["", "", "queue grows"], dtype=object)
    made = Grid(axes, {"model": "llama-7b"}, {"latency_s": latency, "reason": reason}, SERVE_OUTPUTS)
    picture = choose.grid_picture(made)
    assert [row["y"] for row in picture.spec["layer"][0]["data"]["values"]] == [1.0, 2.0, None]
    assert picture.spec["title"]["subtitle"][-1].startswith("no point: the queue grows")


def test_front_is_what_no_point_beats():
    rng = np.random.default_rng(1)
    x, y = rng.random(300), rng.random(300)
    brute = [i for i in range(300) if not ((x >= x[i]) & (y >= y[i]) & ((x > x[i]) | (y > y[i]))).any()]
    assert sorted(choose.front(x, y).tolist()) == brute
    assert (np.diff(x[choose.front(x, y)]) > 0).all()


def test_pareto_leaves_out_what_cannot_run(mapped):
    picture = choose.grid_picture(mapped, "pareto")
    dots = [layer for layer in picture.spec["layer"] if layer["mark"]["type"] == "circle"]
    assert sum(len(layer["data"]["values"]) for layer in dots) <= int(mapped.arrays["fits"].sum())


def test_roofline_points_lie_under_their_roofs(single, step):
    for e in (single, step):
        found, types = points.operations(e)
        roofs = points.roofs(e, types, (0.01, 1e6))
        top = max(float(r.y.max()) for r in roofs)
        for ops in found:
            assert len(ops.x) == len(ops.labels) > 3 and (ops.y <= top * (1 + 1e-9)).all()
    bandwidth = float(single.scenario.cluster.device.dram.bandwidth)
    for ops in points.operations(single)[0]:
        assert (ops.y <= bandwidth * ops.x * (1 + 1e-9)).all()


def test_breakdown_shares_sum_to_a_hundred(single, step):
    for e, first in ((single, "prefill"), (step, "step")):
        found = totals(points.parts(e))
        assert next(iter(found))[1].startswith(f"{first}, ") and np.allclose(list(found.values()), 100)
    backward = next(row for row in values(points.parts(step), kind="part", part="backward"))
    assert backward["value"] == pytest.approx(100 * float(step.parts["backward"] / step.step_time))


@pytest.mark.parametrize(("micro_batch", "mark"), [(1, False), (8, True)])
def test_memory_bar_reaches_the_total_beside_the_capacity(micro_batch, mark):
    e = rooflm.train(**TRAINING, micro_batch=micro_batch)
    picture = points.memory(e)
    assert list(totals(picture).values()) == pytest.approx([float(e.memory.total) / 2**30])
    assert values(picture, kind="limit")[0]["limit"] == pytest.approx(float(e.memory.capacity) / 2**30)
    assert values(picture, kind="end")[0]["text"].endswith("OOM") == mark


def test_bars_of_policies_stand_under_their_model():
    made = trained(model=["gpt3-175b", "mt-nlg-530b"], recompute=["none", "selective", "full"], tp=4, gpus=32)
    picture = choose.grid_picture(made, "memory")
    models, policies = ("gpt3-175b", "mt-nlg-530b"), ("none", "selective", "full")
    assert list(totals(picture)) == [(model, f"recompute {policy}") for model in models for policy in policies]
    assert np.allclose(list(totals(picture).values()), made.arrays["memory_bytes"].reshape(-1) / 2**30)
    assert choose.kind_for(made.axes) == "parts"
    steps = choose.grid_picture(made)
    assert steps.title == "Step time by part"
    assert np.allclose(list(totals(steps).values()), made.arrays["step_time_s"].reshape(-1))
    bands = values(steps, kind="band")
    assert np.allclose([b["low"] for b in bands], made.arrays["error_band.step_time_s.low"].reshape(-1))
    sent = choose.grid_picture(made, "parts", "comm_bytes")
    whole = sum(v for k, v in made.arrays.items() if k.startswith("comm_bytes."))
    found = np.array(list(totals(sent).values()))
    assert np.allclose(found / found[0], (whole / whole.reshape(-1)[0]).reshape(-1))


def test_a_long_zip_is_told_by_its_models_name():
    made = trained(model=["gpt3-175b", "mt-nlg-530b"], pp=[8, 35], batch=[64, 280], gpus=[64, 280], seq=[2048, 1024],
                   zip=("model", "pp", "batch", "gpus", "seq"), recompute=["none", "full"])  # fmt: skip
    assert next(iter(totals(choose.grid_picture(made, "memory")))) == ("gpt3-175b", "recompute none")
    pair = trained(gpu=["a100-sxm-80gb", "h100-sxm-80gb"], pp=[8, 4], gpus=64, zip=("gpu", "pp"))
    assert list(totals(choose.grid_picture(pair, "memory")))[1] == ("", "h100-sxm-80gb, pp 4")


def test_map_and_lines_over_degrees():
    made = trained(tp=[1, 2, 4, 8], micro_batch=[1, 2, 4], recompute="full")
    picture = choose.grid_picture(made, value="mfu")
    place = picture.spec["layer"][0]["encoding"]
    assert (place["y"]["title"], place["x"]["title"]) == ("tensor parallel degree", "micro-batch (sequences)")
    cells = np.array([np.nan if row["value"] is None else row["value"] for row in picture.spec["data"]["values"]])
    fits = made.arrays["fits"].reshape(-1)
    assert np.array_equal(np.isfinite(cells), fits) and np.allclose(
        cells[fits], 100 * made.arrays["mfu"].reshape(-1)[fits]
    )


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("pareto", None, "a Pareto front is of inference: draw training as lines, heatmap, parts or memory"),
        ("parts", "fits", "--plot-value is 'fits', but bars show memory, comm_bytes, parts_s"),
        ("lines", "ttft_s", "which the answer does not have"),
        ("pie", None, "of a grid it must be one of lines"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(kind, value, words):
    with pytest.raises(RooflmError, match=words) as failed:
        choose.grid_picture(trained(tp=[4, 8]), kind, value)
    assert "\n" not in str(failed.value)


def test_unknown_value_names_the_near_ones(mapped):
    with pytest.raises(RooflmError, match="latency_s"):
        choose.grid_picture(mapped, value="latencie")
    short, full = (choose.grid_picture(mapped, value=v).spec for v in ("tpot", "tpot_s"))
    assert short == full


def test_sizes_that_come_before_the_first_that_fits_are_told():
    """More GPUs make it fit: no cross marks that, as none stands before a curve begins."""
    picture = choose.grid_picture(
        trained(model="llama-3.1-70b", pp=1, gpus=[64, 512, 1024], batch=1024, seq=8192), "lines"
    )
    assert "no point: does not fit in memory" in picture.spec["title"]["subtitle"][-1]


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [("a.pdf", None, "must end in .png, .svg, .html, .json"), ("no/a.png", None, "does not exist"),
     ("a.png", "pie", "must be")],
)  # fmt: skip
def test_bad_targets_are_refused_before_any_work(tmp_path, path, kind, words):
    with pytest.raises(RooflmError, match=words):
        choose.check_plot(str(tmp_path / path), kind, grid=False)
    assert not list(tmp_path.iterdir())


def test_public_calls_draw_and_write(tmp_path, single):
    drawn = plot.estimate(single, str(tmp_path / "a.json"), "memory")
    assert drawn.title == "Memory of the fullest GPU by part" and (tmp_path / "a.json").exists()
    data = rooflm.infer(**INFERENCE, gpu="a100-sxm-80gb", batch=[1, 2, 4, 8])
    assert plot.grid(data, value="tpot_s").title == "Time per output token, mean over the output"


@pytest.mark.parametrize("kind", choose.POINT_KINDS)
def test_one_step_through_the_command(tmp_path, capsys, kind):
    path = tmp_path / "a.png"
    options = [f"--{k}={v}" for k, v in TRAINING.items() if k != "model"]
    assert main(["train", "gpt3-175b", *options, "--plot", str(path), "--plot-kind", kind]) == 0
    assert "model TFLOP/s per GPU" in capsys.readouterr().out
    assert path.stat().st_size > 10_000


def test_a_grids_kind_of_one_step(capsys, tmp_path):
    options = [f"--{k}={v}" for k, v in TRAINING.items() if k != "model"]
    assert main(["train", "gpt3-175b", *options, "--plot", str(tmp_path / "a.png"), "--plot-kind", "heatmap"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "of one prediction it must be one of parts, memory, roofline" in said.err


def test_scales_choose_units():
    assert scale_of("memory_bytes", np.array([8e10])).label.endswith("(GiB)")
    assert scale_of("comm_bytes", np.array([1e4])).label.endswith("(KiB)")
    assert scale_of("busy", np.array([0.5])).percent
    rates = "output tokens per second, all GPUs (tokens/s)", "requests per second (requests/s)"
    assert tuple(scale_of(k, np.array([9.0])).label for k in ("output_tokens_per_s", "requests_per_s")) == rates
    assert scale_of("ttft_s", np.array([0.001, 5.0])).log
    assert not Side("gpu", ("a", "b")).numeric and Side("batch", (1, 8, 64)).log


def test_kv_memory_is_a_ramp_not_a_stair():
    """Held after one event to held before the next: it grows evenly in between, and falls where requests end."""
    served = rooflm.serve("llama-3.1-8b", gpu="h100", concurrency=4, requests=8, prompt=512, output=500)
    line = served.timeline
    assert (line["kv_before"] >= line["kv"] - 1e-12)[1:].sum() > len(line["kv"]) / 2
    last = int(np.argmax(line["kv_before"]))
    assert line["kv"][last] < line["kv_before"][last]  # what ends gives its memory back at once
    grown = line["kv_before"][last] - line["kv"][last - 1]
    assert grown > 0


def test_a_model_that_embeds_has_no_output_in_its_pictures():
    """Neither by its name nor as an object; a model that generates has one."""
    for model, told in (("bge-m3", False), (rooflm.load_model("bge-m3"), False), ("llama-3.2-1b", True)):
        one, many = (rooflm.infer(model, gpu="l4", batch=batch) for batch in (1, [1, 8]))
        pictures = [plot.estimate(one), plot.estimate(one, kind="memory"), plot.grid(many)]
        assert [any("output" in t for t in p.spec["title"]["subtitle"]) for p in pictures] == [told] * 3, model
        roofs = json.dumps(plot.estimate(one, kind="roofline").spec)
        assert '"prefill"' in roofs and ('"decode"' in roofs) == told, model


def test_twelve_cards_share_two_panels_of_lines() -> None:
    cards = ["h100", "a100", "l4", "h200", "b200", "mi300x", "rtx-4090", "a10", "v100", "l40s", "gh200", "mi325x"]
    spec = choose.grid_picture(grid(gpu=cards, batch=[1, 2, 4]), "lines").spec
    assert [p["title"]["text"] for p in spec["concat"]] == [["h100 to mi300x"], ["rtx-4090 to mi325x"]]
    assert len(spec["concat"][0]["layer"]) == 12  # six lines, and their points
