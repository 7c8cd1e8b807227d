"""Every kind of picture as the drawing back end lays it out: words keep apart and stay on the canvas, a part has one
colour everywhere, axes and marks say what is so."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from layout import Box, boxes, clashes, fills, overlap, scene
from made import INFERENCE, TRAINING, grid, trained

import rooflm
from rooflm.api import INFER
from rooflm.plot import (
    Bar,
    Cloud,
    Curve,
    Map,
    Ops,
    Panel,
    Roof,
    Scale,
    Side,
    bars,
    front,
    heatmap,
    lines,
    panels,
    ratios,
    roofline,
    timeline,
)
from rooflm.plots import choose, point
from rooflm.plots.choose import grid_picture
from rooflm.plots.picture import Picture
from rooflm.shown import palette

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def of_points() -> dict[str, Picture]:
    infer = INFER.point(INFERENCE | {"gpu": "a100-sxm-80gb", "batch": 8, "output": 128})
    step = rooflm.train(**TRAINING)
    split = rooflm.infer("mixtral-8x7b", gpu="h100", tp=4, batch=64)
    made = {f"{name} {k}": draw(e) for name, e in (("infer", infer), ("train", step), ("experts", split))
            for k, draw in point.POINTS.items()}  # fmt: skip
    return made | {"memory beyond": point.memory(rooflm.train(**TRAINING, micro_batch=8))}


def of_grids() -> dict[str, Picture]:
    cards = ["rtx-3090", "a100-sxm-80gb", "h100-sxm-80gb"]
    mapped = grid(gpu=cards, batch=list(BATCHES), output=[16, 32, 64, 128, 256, 512, 1024])
    split = INFER.grid({"model": "llama-7b", "gpu": cards[1:], "tp": [1, 2, 4, 8], "batch": list(BATCHES)})
    policies = trained(model=["gpt3-175b", "mt-nlg-530b"], recompute=["none", "selective", "full"])
    return {
        "map": choose.grid_picture(mapped, value="busy"),
        "nine maps": choose.grid_picture(
            grid(
                gpu=cards,
                quant=["w16a16kv16", "w4a16kv16", "w8a8kv16"],
                batch=[1, 4, 16, 64],
                output=[16, 64, 256, 1024],
            )
        ),
        "map of times": choose.grid_picture(mapped, value="latency_s"),
        "curves": choose.grid_picture(grid(gpu=cards, batch=list(BATCHES), output=[128, 512])),
        "curves of steps": choose.grid_picture(grid(gpu=cards, batch=list(range(1, 9))), "lines", "tpot_s"),
        "curves over names": choose.grid_picture(grid(gpu=cards), "lines"),
        "bars": choose.grid_picture(grid(gpu=cards, quant=["w16a16kv16", "w4a16kv16"])),
        "memory": choose.grid_picture(grid(gpu=cards, batch=[1, 64, 512]), "memory"),
        "front": choose.grid_picture(split, "pareto"),
        "memory of training": choose.grid_picture(policies, "memory"),
        "steps": choose.grid_picture(policies),
        "map of degrees": choose.grid_picture(trained(tp=[2, 4, 8], micro_batch=[1, 2, 4]), value="mfu"),
    }


def of_ones_own() -> dict[str, Picture]:
    rng = np.random.default_rng(0)
    times = tuple(np.linspace(0, 60, 300).tolist())
    load = Panel("", Scale("requests"), (Curve("waiting", np.zeros(300), steps=True),
                                         Curve("running", np.arange(300) // 20 * 1.0, steps=True)))  # fmt: skip
    kv = Panel("", Scale("KV memory (% of capacity)", percent=True), (Curve("KV memory", np.linspace(0, 50, 300)),))
    rates = tuple(np.geomspace(0.5, 30, 25).tolist())
    memories = [(0.5, "gddr6"), (0.52, "gddr6x"), (1.1, "gddr7"), (2.0, "hbm2"), (5.0, "hbm3"), (30.0, "hbm9")]
    found = [(source, metric, float(np.exp(rng.normal(0, 0.3)))) for source in ("TensorRT-LLM 0.9, Mixtral fp8", "PaX")
             for metric in ("time to the first token", "new prompt tokens of the batch over the time") for _ in
             range(20)]  # fmt: skip
    return {
        "course": timeline("Requests and KV memory", Side("time (s)", times, time=True), [load, kv]),
        "named rates": lines("Where faster memory stops helping", Side("bandwidth (TB/s)", rates),
                             Scale("time per token (ms)", log=True), [Curve("1 device", 30 / np.array(rates))],
                             marks=memories),
        "nodes": lines("What a node buys", Side("system", ("A100-HDR", "H100-NDR", "B200-NDR", "B200-NVS-L") * 2),
                       Scale("times faster"), [Curve("ideal", np.arange(8.0))]),
        "ratios": ratios(found, "40 cases"),
        "shares": bars("Split", Scale("share (%)", percent=True),
                       [Bar(w, {"cores": 60.0, "dram": 40.0}, g) for g in ("training", "prefill") for w in "ab"]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def every() -> dict[str, Picture]:
    """One picture of each kind, and those of the longest words."""
    return of_points() | of_grids() | of_ones_own()


def test_words_keep_apart_and_stay_on_the_canvas(every):
    wrong = {name: found for name, picture in every.items() if (found := clashes(picture))}
    assert not wrong


def test_words_that_clash_are_seen():
    """The check itself: two labels on one spot, and two that are turned."""
    spot = [(1.0, 1.0, "gate up"), (1.0, 1.0, "down")]
    values = [{"x": x, "y": y, "text": t} for x, y, t in spot]
    axis = {"field": "x", "type": "quantitative"}
    spec = {"data": {"values": values}, "mark": "text",
            "encoding": {"x": axis, "y": axis | {"field": "y"}, "text": {"field": "text"}}}  # fmt: skip
    assert clashes(Picture(spec)) == ["'gate up' lies on 'down'"]
    level = Box(((0, 0), (40, 0), (40, 10), (0, 10)), "level")
    turned = Box(((45, 0), (50, -8), (58, -3), (53, 5)), "turned")
    assert not overlap(level, turned) and overlap(level, Box(((35, 5), (43, -3), (50, 4), (42, 12)), "turned"))


def test_a_part_has_one_colour_in_every_picture(every):
    seen: dict[str, set[str]] = {}
    for picture in every.values():
        for part, found in fills(picture).items():
            seen.setdefault(part, set()).update(found)
    assert len(seen) > 20 and all(len(found) == 1 for found in seen.values()), seen
    known = {k.replace("_", " "): v.lower() for k, v in palette.PARTS.items()}
    assert {part: known[part] for part in seen} == {part: next(iter(found)) for part, found in seen.items()}


def test_parts_that_stand_together_differ_in_colour(every):
    for picture in every.values():
        found = [next(iter(v)) for v in fills(picture).values()]
        assert len(set(found)) == len(found)


def simulated(colour: str, matrix: np.ndarray) -> np.ndarray:
    """Linear RGB of a colour as it is seen under a colour vision deficiency."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.clip(matrix @ linear, 0, 1)


def lightness(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB (D65)."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


NEIGHBOURS = (
    ("attention", "mlp", "norm", "logits", "tp_comm", "host"),
    ("forward", "backward", "recompute", "optimizer", "tp_comm", "pp_comm", "dp_comm", "bubble"),
    ("weights", "gradients", "optimizer", "kv_cache", "activations", "context"),
    ("compute", "dram", "network", "schedule"),
)
DEFICIENCY = {
    "normal": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                        [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                        [-0.011820, 0.042940, 0.968881]]),
}  # fmt: skip
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


@pytest.mark.parametrize("kind", DEFICIENCY)
@pytest.mark.parametrize("parts", NEIGHBOURS)
def test_neighbours_differ_with_any_colour_vision(kind, parts):
    """Parts that lie side by side in a stack are 10 or more apart in CIE L*a*b* (2 is just seen)."""
    seen = [lightness(simulated(c, DEFICIENCY[kind])) for c in palette.colours(parts).values()]
    gaps = [float(np.linalg.norm(a - b)) for a, b in pairwise(seen)]
    assert min(gaps) > 10, dict(zip(palette.colours(parts), gaps, strict=False))


def test_every_specification_is_legal_vega_lite(every):
    for name in ("infer parts", "memory", "course", "infer roofline"):
        json.dumps(every[name].spec, allow_nan=False)
        chart = every[name].chart()  # altair checks it against the schema
        assert chart.to_dict(validate=False)["title"] == every[name].spec["title"]


def ticks(picture: Picture, axis: str = "x") -> list[str]:
    """Labels of the axes of a picture."""
    found: list[str] = []

    def look(mark):
        if mark.get("role") == "axis-label":
            found.extend(i["text"] for i in mark["items"] if i.get("opacity", 1) and i.get("baseline") == (
                "top" if axis == "x" else "middle"))  # fmt: skip
        for item in mark.get("items", ()):
            for inner in item.get("items", ()):
                look(inner)

    look(scene(picture)["scenegraph"])
    return found


def test_steps_have_a_linear_axis_and_factors_a_logarithmic_one():
    def drawn(values):
        return lines("Time", Side("batch", values), Scale("s"), [Curve("a", np.arange(len(values)) * 1.0)])

    assert ticks(drawn(tuple(range(1, 9)))) == [str(v) for v in range(1, 9)]
    assert ticks(drawn((1, 2, 4, 8, 16))) == ["1", "2", "4", "8", "16"]
    for values, kind in (((1, 2, 3, 4, 5, 6, 7, 8), None), ((1, 8, 64, 512), "log"), ((100, 300, 500, 900), None)):
        x = drawn(values).spec["layer"][0]["encoding"]["x"]
        assert x["scale"].get("type") == kind, values


def test_what_does_not_fit_is_marked_beside_the_last_point_that_does():
    y, lost = np.array([1.0, 2.0, 3.0, np.nan, np.nan]), np.array([False, False, False, True, True])
    picture = lines("Time", Side("batch", (1, 2, 4, 8, 16)), Scale("s"), [Curve("a100", y, lost=lost)])
    cross = [layer for layer in picture.spec["layer"] if layer["mark"].get("shape")]
    assert [row for layer in cross for row in layer["data"]["values"]] == [{"x": 8.0, "y": 3.0, "name": "a100"}]
    assert any("×" in b.text and "does not fit" in b.text for b in boxes(picture))
    whole = lines("Time", Side("batch", (1, 2)), Scale("s"), [Curve("a100", np.array([1.0, 2.0]))])
    assert not any("×" in b.text for b in boxes(whole))


def test_the_error_band_is_drawn_where_there_is_one(every):
    made = INFER.grid({"model": "llama-7b", "gpu": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [1, 2, 4, 8, 16]})
    assert made is not None
    picture = choose.grid_picture(made, "lines", "tpot_s")
    areas = [layer for layer in picture.spec["layer"] if layer["mark"]["type"] == "area"]
    low = 1e3 * made.arrays["error_band.tpot_s.low"]
    assert np.allclose([[row["y"] for row in layer["data"]["values"]] for layer in areas], low)
    assert "error band" in json.dumps(picture.spec["title"], ensure_ascii=False)


def test_one_quantity_an_axis(every):
    """Requests and per cents of a load stand in panels of their own, each with its own axis."""
    parts = every["course"].spec["concat"]
    assert [p["layer"][0]["encoding"]["y"]["title"] for p in parts] == [["requests"], ["KV memory (% of", "capacity)"]]


def test_labels_of_a_roofline_touch_no_point_and_no_roof():
    x = np.geomspace(0.01, 1e5, 200)
    roofs = [Roof("device memory, 2 TB/s", x, np.minimum(2e12 * x, 3e14)), Roof("bf16, 300 TFLOP/s", x, 0 * x + 3e14)]
    at = np.array([150.0, 151.0, 155.0, 149.0, 10.0])
    ops = [Ops("prefill", at, np.minimum(2e12 * at, 3e14) * 0.9, ("gate up", "down", "qkv", "out", "attention"),
               np.array([0.4, 0.2, 0.2, 0.1, 0.1]))]  # fmt: skip
    picture = roofline("Roofline", roofs, ops)
    assert not clashes(picture)
    (words,) = [layer for layer in picture.spec["layer"] if layer["mark"]["type"] == "text"]
    placed = {row["text"]: row for row in words["data"]["values"]}
    assert "attention" in placed
    for row in placed.values():
        bound = min(2e12 * row["x"], 3e14)
        assert abs(np.log10(row["y"] / bound)) > 0.02  # not on a roof


def test_nothing_is_drawn_without_the_extra(monkeypatch, tmp_path, every):
    import builtins

    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] in ("vl_convert", "altair"):
            raise ImportError(name)
        return real(name, *rest, **more)

    picture = every["infer parts"]
    monkeypatch.setattr(builtins, "__import__", without)
    for act in (lambda: picture.save(tmp_path / "a.png"), picture.chart):
        with pytest.raises(rooflm.RooflmError, match=r"pip install 'rooflm\[plot\]'"):
            act()
    picture.save(tmp_path / "a.json")  # the specification needs no library
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert set(picture._repr_mimebundle_()) == {"application/vnd.vegalite.v6+json", "text/plain"}


def test_a_picture_shows_itself_in_a_notebook(every):
    shown = every["infer parts"]._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg") and shown["text/plain"] == "Picture('Where the time goes')"


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG\r"), ("svg", b"<svg"), ("json", b"{")])
def test_files_are_whole_and_the_same_again(tmp_path, every, suffix, start):
    for name in ("a", "b"):
        every["curves over names"].save(tmp_path / f"{name}.{suffix}")
    a, b = (tmp_path / f"{name}.{suffix}" for name in ("a", "b"))
    assert suffix == "svg" or a.read_bytes() == b.read_bytes()  # it numbers its clips on within a process
    assert a.read_bytes().startswith(start)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_page_needs_no_network(tmp_path, every):
    every["memory"].save(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<title>Memory of the fullest GPU by part</title>" in text and "rtx-3090" in text
    assert "src=" not in text.split("<script")[0] and 'src="http' not in text


def test_clouds_are_thinned_but_their_fronts_are_whole():
    rng = np.random.default_rng(1)
    x, y = rng.random((2, 20_000))
    best = np.argsort(-x)[:5]
    picture = front("Front", Scale("x"), Scale("y"), [Cloud("a", x, y, best, tuple("abcde"))])
    dots, line = picture.spec["layer"][:2]
    assert len(dots["data"]["values"]) <= 2500 and len(line["data"]["values"]) == 5


def test_a_map_of_nothing_that_fits_is_grey():
    cells = np.full((2, 3), np.nan)
    picture = heatmap(
        "Map", Side("x", (1, 2, 3)), Side("y", (1, 2)), Scale("s (s)"), [Map("", cells, np.full((2, 3), "OOM"))]
    )
    assert sum(b.text == "OOM" for b in boxes(picture)) == 6 and not clashes(picture)
    assert not {b.text for b in boxes(picture)} - {"Map", "x", "y", "OOM", "1", "2", "3", "OOM: does not fit in memory"}


@pytest.mark.parametrize("down", [("h100", "a100", "t4"), (3, 2, 1)])
def test_a_map_lists_names_from_the_top_and_numbers_from_the_bottom(down):
    values = down if isinstance(down[0], str) else down[::-1]
    cells = np.arange(101.0, 104.0)[:, None]
    picture = heatmap("Map", Side("x", (7,)), Side("y", values), Scale("s (s)"), [Map("", cells, np.full((3, 1), ""))])
    ticks = [b for b in boxes(picture) if b.text in map(str, down)]
    assert [b.text for b in sorted(ticks, key=lambda b: b.corners[0][1])] == [*map(str, down)]


def test_panels_share_one_axis():
    picture = panels("Time", Side("batch", (1, 2, 4)), [
        Panel(f"output {k}", Scale("time (ms)"), (Curve("a100", k * np.ones(3)),)) for k in (1, 5)
    ])  # fmt: skip
    assert len({json.dumps(p["layer"][0]["encoding"]["y"]["scale"]) for p in picture.spec["concat"]}) == 1


def test_a_total_stands_beside_its_bar_or_behind_the_line_that_would_cross_it():
    """P4: numbers belong to their bars; no grid crosses them."""
    made = [Bar("far", {"a": 20.0, "b": 9.0}, limit=80.0), Bar("near", {"a": 70.0, "b": 6.0}, limit=80.0),
            Bar("over", {"a": 70.0, "b": 40.0}, limit=80.0)]  # fmt: skip
    spec = bars("Memory", Scale("memory (GiB)"), made, limit="usable").spec
    at = {row["label"]: row["at"] for row in spec["data"]["values"] if row["kind"] == "end"}
    assert at == {"far": 29.0, "near": 80.0, "over": 110.0}
    assert not spec["layer"][0]["encoding"]["x"]["axis"]["grid"]


def test_a_curve_beneath_another_is_seen():
    """P9: two lines that coincide (bytes of fused and unfused kernels) are a wide one and a narrow one on it."""
    spec = lines("Bytes", Side("batch", (1, 2, 4)), Scale("MiB"), [
        Curve(name, np.arange(1.0, 4.0)) for name in ("not fused", "fused")
    ]).spec  # fmt: skip
    widths = [layer["mark"]["strokeWidth"] for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert widths[0] > 2 * widths[1]


def test_measured_points_are_points_beside_a_line_without_markers():
    y = np.array([1.0, 2.0, 3.0])
    curves = [Curve("a", y, marked=False), Curve("a", 2 * y, dots=True), Curve("b", y), Curve("limit", y, marked=False)]
    layers = lines("t", Side("n", (1, 2, 4)), Scale("s"), curves).spec["layer"]
    shapes = next(layer["encoding"]["shape"]["scale"] for layer in layers if "shape" in layer["encoding"])
    assert shapes == {"domain": ["a", "b", "limit"], "range": ["circle", "square", "stroke"]}


def test_sizes_on_an_axis_are_as_they_were_given(tmp_path):
    """Ticks of a list of prompts are those prompts, to the token, in lines as in maps."""
    asked = {"gpu": "h100", "prompt": [1024, 4096, 16384, 65536], "batch": [1, 2]}
    for kind in ("lines", "heatmap"):
        path = tmp_path / f"{kind}.svg"
        grid_picture(INFER.grid({"model": "llama-3.1-8b", **asked}), kind, None).save(str(path))
        written = path.read_text()
        assert all(f">{size}<" in written for size in ("16,384", "65,536")), kind


def test_a_legend_gives_way_to_words_beyond_the_end():
    """OOM at the end of a bar of 100 % once stood under the legend."""
    whole, marked = (Bar("tp 1", {"mlp": 60.0, "attention": 40.0}, mark=mark) for mark in ("", "OOM"))
    free, pushed = (str(bars("Shares", Scale("%", percent=True), [bar]).spec) for bar in (whole, marked))
    assert "'offset': 18}" in free and "'offset': 18}" not in pushed


def test_fronts_differ_by_marker_and_stroke_and_long_curves_by_marker() -> None:
    x = np.array([1.0, 2.0, 3.0])
    clouds = [Cloud(name, x, x[::-1].copy(), np.arange(3)) for name in ("a100", "h100")]
    layers = front("Trade-off", Scale("x"), Scale("y"), clouds).spec["layer"]
    strokes = [layer["mark"]["strokeDash"] for layer in layers if "strokeDash" in layer["mark"]]
    (shapes,) = {tuple(e["shape"]["scale"]["range"]) for e in (layer["encoding"] for layer in layers) if "shape" in e}
    assert len(strokes) == 2 and strokes[0] != strokes[1] and len(set(shapes)) == 2
    many = np.arange(1.0, 101.0)
    long = lines("Time", Side("batch", tuple(many)), Scale("ms"), [Curve("a100", many), Curve("h100", 2 * many)])
    marked = [layer for layer in long.spec["layer"] if layer["mark"]["type"] == "point"]
    assert [len(layer["data"]["values"]) for layer in marked] == [12, 12]


def test_a_limit_is_a_line_in_the_legend_too() -> None:
    curves = (Curve("mean", np.ones(3)), Curve("limit", np.ones(3), dash=True, marked=False))
    layers = lines("Time", Side("clients", (1, 2, 4)), Scale("ms"), curves).spec["layer"]
    (shapes,) = {tuple(e["shape"]["scale"]["range"]) for e in (layer["encoding"] for layer in layers) if "shape" in e}
    assert shapes == ("circle", "stroke")


@pytest.mark.parametrize(("low", "high", "kind", "ends"), [
    (0.5, 40.0, "log", [0.5, 40.0]), (10.0, 40.0, None, [0.0, 40.0]), (10.0, 75.0, None, [0.0, 100.0]),
])  # fmt: skip
def test_maps_of_shares_have_colours_up_to_what_they_hold(
    low: float, high: float, kind: str | None, ends: list[float]
) -> None:
    made = Map("", np.array([[low, high]]), np.array([["", ""]]))
    spec = heatmap("", Side("a", (1, 2)), Side("b", (1,)), Scale("share (%)", percent=True), [made]).spec
    scale = next(layer["encoding"]["color"]["scale"] for layer in spec["layer"] if "scheme" in str(layer))
    assert scale.get("type") == kind and scale["domain"] == ends
