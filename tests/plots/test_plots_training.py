"""Pictures of training: one step by part, memory against the capacity, operations under the roofline, and grids."""

from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest

import rooflm
from rooflm.api import TRAIN
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.plots import choose as plots
from rooflm.plots import point as plots_point
from rooflm.plots.pictures import Bars, HeatMap, Lines, Roofline
from rooflm.plots.static import figure_of

BASE = {"model": "gpt3-175b", "gpu": "a100-sxm-80gb", "gpus": 64, "tp": 8, "pp": 8, "batch": 64}


def grid(**changes):
    made = TRAIN.grid(BASE | changes)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def step():
    return rooflm.train(**BASE)


def test_the_step_is_one_bar_and_each_pass_another(step):
    bars = plots_point.parts(step)
    assert isinstance(bars, Bars) and bars.labels[0].startswith("step\n")
    assert [label.split()[0] for label in bars.labels] == ["step", "forward", "backward"]
    assert np.allclose(sum(bars.parts.values()), 100)
    assert bars.parts["backward"][0] == pytest.approx(100 * float(step.parts["backward"] / step.step_time))


@pytest.mark.parametrize(("micro_batch", "mark"), [(1, ""), (8, "OOM")])
def test_memory_bar_reaches_the_total_beside_the_capacity(micro_batch, mark):
    e = rooflm.train(**BASE, micro_batch=micro_batch)
    bars = plots_point.memory(e)
    assert bars.marks == (mark,) and bars.limits is not None
    assert sum(bars.parts.values())[0] * 2**30 == pytest.approx(float(e.memory.total))
    assert bars.limits[0] * 2**30 == pytest.approx(float(e.memory.capacity))
    drawn = [t.get_text() for axes in figure_of(bars).axes for t in axes.texts]
    assert ("OOM" in drawn) == bool(mark)


def test_products_lie_under_the_roofs(step):
    picture = plots_point.roofline(step)
    assert isinstance(picture, Roofline)
    top = max(float(r.y.max()) for r in picture.roofs)
    assert {c.name for c in picture.clouds} >= {"forward", "backward"}
    for cloud in picture.clouds:
        assert (cloud.y < top).all() and (cloud.x > 0).all()


@pytest.mark.parametrize("kind", plots.POINT_KINDS)
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_one_step_through_the_command(tmp_path, capsys, kind, suffix):
    path = tmp_path / f"a.{suffix}"
    options = [f"--{k}={v}" for k, v in BASE.items() if k != "model"]
    assert main(["train", "gpt3-175b", *options, "--plot", str(path), "--plot-kind", kind]) == 0
    assert "model TFLOP/s per GPU" in capsys.readouterr().out
    assert path.stat().st_size > 10_000
    if suffix == "png":
        assert matplotlib.image.imread(path).std() > 0.05  # not a blank page


def test_bars_of_policies():
    made = grid(recompute=["none", "selective", "full"], tp=4, gpus=32)
    picture = plots.grid_picture(made, "memory")
    assert isinstance(picture, Bars) and picture.labels == ("recompute none", "recompute selective", "recompute full")
    assert picture.marks == ("OOM", "OOM", "OOM")
    assert np.allclose(sum(picture.parts.values()), made.arrays["memory_bytes"] / 2**30)
    assert plots.choose(made.axes) == "parts"
    steps = plots.grid_picture(made)
    assert isinstance(steps, Bars) and steps.scale.heading == "Step time by part"
    assert np.allclose(sum(steps.parts.values()), made.arrays["step_time_s"] * steps.scale.factor)
    sent = plots.grid_picture(made, "parts", "comm_bytes")
    total = sum(v for k, v in made.arrays.items() if k.startswith("comm_bytes."))
    assert isinstance(sent, Bars) and np.allclose(sum(sent.parts.values()), total * sent.scale.factor)


def test_a_long_zip_is_told_by_its_models_name():
    made = grid(model=["gpt3-175b", "mt-nlg-530b"], pp=[8, 35], batch=[64, 280], gpus=[64, 280], seq=[2048, 1024],
                zip=("model", "pp", "batch", "gpus", "seq"), recompute=["none", "full"])  # fmt: skip
    picture = plots.grid_picture(made, "memory")
    assert isinstance(picture, Bars) and picture.labels[0] == "gpt3-175b\nrecompute none"
    pair = grid(gpu=["a100-sxm-80gb", "h100-sxm-80gb"], pp=[8, 4], gpus=64, zip=("gpu", "pp"))
    assert plots.grid_picture(pair, "memory").labels[1] == "h100-sxm-80gb, pp 4"


def test_map_and_lines_over_degrees():
    made = grid(tp=[1, 2, 4, 8], micro_batch=[1, 2, 4], recompute="full")
    picture = plots.grid_picture(made, value="mfu")
    assert isinstance(picture, HeatMap) and picture.scale.percent
    assert (picture.y.label, picture.x.label) == ("tensor parallel degree", "micro-batch (sequences)")
    cells = picture.panels[0].cells
    assert np.array_equal(np.isfinite(cells), made.arrays["fits"]) and 0 < made.arrays["fits"].sum() < 12
    assert np.allclose(cells[np.isfinite(cells)], 100 * made.arrays["mfu"][made.arrays["fits"]])
    curves = plots.grid_picture(grid(tp=[1, 2, 4, 8], recompute=["none", "full"]))
    assert isinstance(curves, Lines) and curves.x.values == (1, 2, 4, 8)
    assert [s.name for s in curves.panels[0][1]] == ["recompute none", "recompute full"]
    assert "memory" in curves.note


def test_long_names_stay_on_the_page():
    figure = figure_of(plots.grid_picture(grid(tp=[2, 4, 8], micro_batch=[1, 2, 4]), value="mfu"))
    figure.draw_without_rendering()
    page, title = figure.bbox, figure._suptitle
    assert title is not None
    for text in (title, figure.axes[-1].yaxis.label):
        box = text.get_window_extent()
        assert box.x0 >= page.x0 and box.x1 <= page.x1 and box.y0 >= page.y0 and box.y1 <= page.y1


@pytest.mark.parametrize("changes", [{"tp": [2, 4, 8], "recompute": ["none", "full"]}, {"micro_batch": [1, 2, 4]}])
def test_names_of_bars_do_not_lie_on_each_other(changes):
    figure = figure_of(plots.grid_picture(grid(**changes), "memory"))
    figure.draw_without_rendering()
    boxes = [t.get_window_extent() for t in figure.axes[0].get_xticklabels()]
    assert len(boxes) > 2 and all(a.x1 < b.x0 for a, b in pairwise(boxes))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("pareto", None, "a Pareto front is of inference: draw training as lines, heatmap, parts or memory"),
        ("parts", "mfu", "--plot-value is 'mfu', but bars show memory, comm_bytes, parts_s"),
        ("lines", "ttft_s", "which the answer does not have"),
        ("pie", None, "of a grid it must be lines"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, kind, value, words):
    with pytest.raises(RooflmError, match=words) as failed:
        plots.plot_grid(grid(tp=[4, 8]), str(tmp_path / "a.png"), kind, value)
    assert "\n" not in str(failed.value) and not list(tmp_path.iterdir())


def test_a_grids_kind_of_one_step(capsys, tmp_path):
    options = [f"--{k}={v}" for k, v in BASE.items() if k != "model"]
    assert main(["train", "gpt3-175b", *options, "--plot", str(tmp_path / "a.png"), "--plot-kind", "heatmap"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "of one prediction it must be parts, memory, roofline" in said.err
