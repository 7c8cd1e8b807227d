"""Pictures: which one suits a grid, what is in it, and that each kind is written in each format."""

import numpy as np
import pytest
from matplotlib import figure as matplotlib_figure

import rooflm
from rooflm.api import INFER, TRAIN
from rooflm.errors import RooflmError
from rooflm.plots import choose as plots
from rooflm.plots import point as plots_point
from rooflm.plots.labels import beside
from rooflm.plots.pictures import Bars, Front, HeatMap, Lines, Roofline, Side, scale_of
from rooflm.plots.static import figure_of

BASE = {"model": "llama-7b", "efficiency": "0.7,0.9", "engine": "hf-eager", "prompt": 12}


def grid(**arguments):
    made = INFER.grid(BASE | arguments)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def mapped():
    return grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64, 512], output=[16, 128, 1024])


@pytest.fixture(scope="module")
def single():
    return INFER.point(BASE | {"gpu": "a100-sxm-80gb", "batch": 8, "output": 128})


def test_heat_map_marks_what_does_not_fit(mapped):
    picture = plots.grid_picture(mapped, value="busy")
    assert isinstance(picture, HeatMap) and len(picture.panels) == 2
    small, large = picture.panels
    assert (small.title, large.title) == ("rtx-3090", "a100-sxm-80gb")
    assert picture.y.label == "batch (sequences)" and picture.x.values == (16, 128, 1024)
    assert (small.why == "OOM").sum() > (large.why == "OOM").sum() > 0
    assert np.array_equal(np.isnan(small.cells), small.why == "OOM")
    place = np.ix_([0], range(4), range(3))
    assert np.allclose(
        small.cells[~np.isnan(small.cells)], 100 * mapped.arrays["busy"][place][0][~np.isnan(small.cells)]
    )


def test_drawn_map_writes_every_cell(mapped):
    figure = figure_of(plots.grid_picture(mapped))
    texts = [t.get_text() for axes in figure.axes for t in axes.texts]
    assert len(texts) == 24 and "OOM" in texts
    assert figure.axes[0].get_ylabel() == "batch (sequences)" and figure.axes[0].get_xlabel() == "output (tokens)"


def test_lines_over_the_longest_numeric_axis():
    picture = plots.grid_picture(grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64, 256], output=[128, 512]))
    assert isinstance(picture, Lines) and picture.x.values == (1, 8, 64, 256)
    assert [title for title, _ in picture.panels] == ["output 128", "output 512"]
    names = [s.name for s in picture.panels[0][1]]
    assert names == ["rtx-3090", "a100-sxm-80gb"]
    assert np.isnan(picture.panels[1][1][0].y[-1]) and "memory" in picture.note


def test_bars_sum_to_the_total_and_show_the_capacity():
    made = grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=512, output=128)
    parts = plots.grid_picture(made)
    assert isinstance(parts, Bars)
    assert np.allclose(sum(parts.parts.values()), made.arrays["tpot_s"] * parts.scale.factor)
    memory = plots.grid_picture(made, "memory")
    assert isinstance(memory, Bars) and memory.marks == ("OOM", "")
    assert np.allclose(sum(memory.parts.values()), made.arrays["memory_bytes"] / 2**30)
    assert np.allclose(memory.limits, made.arrays["memory_capacity_bytes"] / 2**30)


def test_front_is_what_no_point_beats():
    rng = np.random.default_rng(1)
    x, y = rng.random(300), rng.random(300)
    brute = [i for i in range(300) if not ((x >= x[i]) & (y >= y[i]) & ((x > x[i]) | (y > y[i]))).any()]
    assert sorted(plots.front(x, y).tolist()) == brute
    assert (np.diff(x[plots.front(x, y)]) > 0).all()


def test_pareto_leaves_out_what_cannot_run(mapped):
    picture = plots.grid_picture(mapped, "pareto")
    assert isinstance(picture, Front)
    assert sum(len(c.x) for c in picture.clouds) == int(mapped.arrays["fits"].sum())


def test_roofline_points_lie_under_their_roofs(single):
    picture = plots_point.roofline(single)
    assert isinstance(picture, Roofline)
    top = max(float(r.y.max()) for r in picture.roofs)
    bandwidth = float(single.scenario.cluster.device.dram.bandwidth)
    for cloud in picture.clouds:
        assert len(cloud.x) == len(cloud.labels) > 3
        assert (cloud.y <= np.minimum(top, bandwidth * cloud.x) * (1 + 1e-9)).all()


def test_breakdown_shares_sum_to_a_hundred(single):
    assert np.allclose(sum(plots_point.parts(single).parts.values()), 100)


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("kind", plots.GRID_KINDS)
def test_every_kind_of_grid_is_written(tmp_path, kind, suffix):
    made = grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64])
    path = tmp_path / f"a.{suffix}"
    plots.plot_grid(made, str(path), kind)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml") and [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", plots.POINT_KINDS)
def test_every_kind_of_one_prediction_is_written(tmp_path, single, kind):
    path = tmp_path / "a.svg"
    plots.plot_estimate(single, str(path), kind)
    again = tmp_path / "b.svg"
    plots.plot_estimate(single, str(again), kind)
    assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("kind", plots.GRID_KINDS)
def test_pages(tmp_path, kind):
    path = tmp_path / "a.html"
    plots.plot_grid(grid(gpu=["rtx-3090", "a100-sxm-80gb"], batch=[1, 8, 64]), str(path), kind)
    text = path.read_text()
    assert "\\u003cb\\u003e" in text and "rtx-3090" in text


def test_no_plotly_is_one_sentence(monkeypatch, tmp_path, single):
    import builtins

    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RooflmError, match="rooflm\\[plot\\]"):
        plots.plot_estimate(single, str(tmp_path / "a.html"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [("a.pdf", None, "must end in"), ("no/a.png", None, "does not exist"), ("a.png", "pie", "must be")],
)
def test_bad_targets_are_refused_before_any_work(tmp_path, single, path, kind, words):
    with pytest.raises(RooflmError, match=words):
        plots.plot_estimate(single, str(tmp_path / path), kind)


def test_unknown_value_names_the_near_ones(mapped):
    with pytest.raises(RooflmError, match="latency_s"):
        plots.grid_picture(mapped, value="latency")


def test_scales_choose_units():
    assert scale_of("memory_bytes", np.array([8e10])).label.endswith("(GiB)")
    assert scale_of("busy", np.array([0.5])).percent
    assert scale_of("ttft_s", np.array([0.001, 5.0])).log
    assert not Side("gpu", ("a", "b")).numeric and Side("batch", (1, 64)).spread


@pytest.fixture(scope="module")
def step():
    return rooflm.train("llama-7b", gpu="a100-sxm-80gb", gpus=8, tp=2, batch=16, efficiency="0.6,0.8")


@pytest.mark.parametrize("kind", plots.POINT_KINDS)
def test_every_kind_of_a_training_step_is_written(tmp_path, step, kind):
    plots.plot_estimate(step, str(tmp_path / "a.png"), kind)
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_training_breakdown_and_grid(step):
    bars = plots_point.parts(step)
    assert bars.labels[0].startswith("step") and np.allclose(sum(bars.parts.values()), 100)
    made = TRAIN.grid(
        {
            "model": "llama-7b",
            "gpu": "a100-sxm-80gb",
            "gpus": 8,
            "tp": 2,
            "batch": 16,
            "efficiency": "0.6,0.8",
            "recompute": ["none", "full"],
        }
    )
    picture = plots.grid_picture(made)
    assert isinstance(picture, Bars)
    assert np.allclose(sum(picture.parts.values()), made.arrays["step_time_s"] * picture.scale.factor)


def test_every_panel_shows_all_of_its_lines():
    """Panels share one axis, which reaches beyond the largest value of any of them."""
    made = grid(gpu="rtx-3090", batch=[1, 2, 4, 8], output=[128, 512])
    axes = figure_of(plots.grid_picture(made, "lines", "latency_s")).axes
    top = max(float(np.nanmax(line.get_ydata())) for a in axes for line in a.lines)
    assert all(a.get_ylim()[1] > top and a.get_ylim()[0] <= 0 for a in axes)


def test_a_course_over_time_has_a_plain_axis(tmp_path):
    from rooflm.plots.pictures import Scale, Series

    times = tuple(float(t) for t in range(200))
    picture = Lines(
        "Load", Side("time (s)", times, time=True), Scale("requests"), (("", (Series("a", np.ones(200)),)),)
    )
    axes = figure_of(picture).axes[0]
    assert axes.get_xscale() == "linear" and axes.lines[0].get_marker() in ("", "None")
    plots.draw(picture, str(tmp_path / "x.html"))
    assert "<title>Load</title>" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_labels_cover_neither_markers_nor_each_other() -> None:
    figure = matplotlib_figure.Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    upper, lower = ([1.0, 2.0, 3.0], [3.0, 2.9, 1.2]), ([1.2, 2.1, 2.5], [2.8, 2.5, 1.0])
    for x, y in (upper, lower):
        axes.plot(x, y)
    axes.margins(0.15)
    beside(axes, [(x, y, "tp 8, batch 64") for line in (upper, lower) for x, y in zip(*line, strict=True)],
           [tuple(map(np.asarray, line)) for line in (upper, lower)])  # fmt: skip
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    frame = axes.get_window_extent()
    assert len(boxes) == 6
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1
        for line in (upper, lower):
            assert not any(box.contains(*axes.transData.transform(point)) for point in zip(*line, strict=True))
