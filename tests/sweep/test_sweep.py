"""Axes, blocks and joins: every cell of a grid is the prediction of its point, however the grid is cut."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflm
from rooflm.api import INFER, TRAIN
from rooflm.errors import RooflmError
from rooflm.sweep.axes import Axis, find_axes, size_of
from rooflm.sweep.grid import grid_of
from rooflm.sweep.sweep import blocks, run

CORE = ("ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "memory_bytes", "fits", "max_batch")
POOL = {
    "model": ["llama-7b", "mixtral-8x7b", "qwen3-32b"], "gpu": ["rtx-3090", "a100-sxm-80gb", "h100-sxm-80gb"],
    "quant": ["w16a16kv16", "w8a8", "w4a16"], "efficiency": ["ideal", "0.7,0.9", "calibrated"],
    "batch": [1, 2, 7, 64, 300], "prompt": [1, 16, 300, 5000], "output": [1, 2, 128, 513], "tp": [1, 2, 3, 8],
    "pp": [1, 2, 5], "dp": [1, 2], "cluster.device.dram.bandwidth": [1e12, 2.5e12],
    "engine.issue_decode": [0.0, 8e-6],
}  # fmt: skip


def test_a_dataset_that_was_turned_is_the_same_grid() -> None:
    data = INFER.grid({"model": "llama-7b", "gpu": "a100", "batch": [1, 8], "prompt": [16, 64, 256]}).dataset()
    turned = grid_of(data.transpose("prompt", "batch"))
    assert turned.axes == grid_of(data).axes and (turned.arrays["tpot_s"] == data["tpot_s"].values).all()


@st.composite
def requests(draw: st.DrawFn) -> dict[str, list[object]]:
    """Two to four axes from the pool, each a few distinct values."""
    names = draw(st.lists(st.sampled_from(sorted(POOL)), min_size=1, max_size=4, unique=True))
    return {n: draw(st.lists(st.sampled_from(POOL[n]), min_size=1, max_size=3, unique=True)) for n in names}


def point_of(arguments: dict[str, object]) -> dict[str, object]:
    sets = {k: v for k, v in arguments.items() if "." in k}
    return {k: v for k, v in arguments.items() if "." not in k} | {"sets": sets}


@settings(max_examples=40, deadline=None)
@given(requests(), st.integers(1, 40), st.randoms(use_true_random=False))
def test_every_cell_is_the_prediction_of_its_point(request_, block, random):
    base = {"model": "llama-7b", "gpu": "a100-sxm-80gb", "efficiency": "0.7,0.9", "engine": "vllm"}
    axes, fixed = find_axes(base | request_)
    grid = run(INFER.flat, axes, fixed, CORE, block=block)
    places = list(itertools.product(*(range(len(a.values)) for a in axes)))
    for place in random.sample(places, min(3, len(places))):
        one = {a.name: a.values[i] for a, i in zip(axes, place, strict=True)}
        try:
            estimate = INFER.flat(outputs=CORE, **point_of(fixed | one))
        except RooflmError:
            assert not grid["fits"][place]  # a single mapping that breaks a rule is refused, a cell of a grid is marked
            assert all(np.isnan(grid[name][place]) for name in CORE if name != "fits")  # and has no numbers
            continue
        for name in CORE:
            assert grid[name][place] == pytest.approx(float(np.asarray(estimate[name])), rel=1e-12)


def test_a_refused_point_has_a_reason_and_no_number():
    data = rooflm.infer("llama-7b", gpu="b200", engine=["vllm", "llama.cpp"], quant="nvfp4", batch=[1, 8])
    refused = data.sel(engine="llama.cpp")
    assert (refused["reason"] == "the engine does not run the scheme").all() and not refused["fits"].any()
    numbers = [v for v in refused.data_vars.values() if v.dtype.kind == "f"]
    assert len(numbers) > 40 and all(np.isnan(v.values).all() for v in numbers)
    assert np.isfinite(data["decode_parts_s.mlp"].sel(engine="vllm")).all()


@pytest.mark.parametrize("block", [1, 3, 10, 10**6])
def test_blocks_cover_every_point_once(block):
    axes = [Axis("gpu", ("a", "b")), Axis("batch", (1, 2, 3, 4, 5)), Axis("output", (1, 2, 3))]
    seen = np.zeros((2, 5, 3), dtype=int)
    for part in blocks(axes, block):
        seen[(*part.place, *(slice(*s) for s in part.slices))] += 1
        assert np.prod([e - b for b, e in part.slices]) <= max(block, 1)
    assert (seen == 1).all()


def test_cutting_changes_no_bit():
    axes, fixed = find_axes({"model": "llama-7b", "gpu": ["a100", "h100"], "efficiency": "ideal", "batch": range(1, 30),
                             "output": range(1, 20), "tp": [1, 2, 4]})  # fmt: skip
    whole, cut = run(INFER.flat, axes, fixed, CORE), run(INFER.flat, axes, fixed, CORE, block=37)
    for name in CORE:
        assert np.array_equal(whole[name], cut[name], equal_nan=True)


def test_what_does_not_vary_is_stored_once():
    grid = INFER.grid({"model": "llama-7b", "gpu": "a100", "batch": range(1, 50), "output": range(1, 50),
                       "efficiency": "ideal", "outputs": ["ttft_s", "latency_s"]})  # fmt: skip
    assert grid is not None
    ttft = grid.arrays["ttft_s"]
    assert ttft.shape == (49, 49) and ttft.strides[1] == 0
    assert grid.arrays["latency_s"].strides[1] != 0


def test_zip_pairs_instead_of_multiplying():
    got = rooflm.infer("llama-7b", gpu=["a100-sxm-80gb", "h100-sxm-80gb"], tp=[4, 2], batch=[1, 8], zip=("gpu", "tp"),
                       efficiency="ideal")  # fmt: skip
    assert got["tpot_s"].dims == ("gpu", "batch") and got["tp"].dims == ("gpu",)
    one = rooflm.infer("llama-7b", gpu="h100-sxm-80gb", tp=2, batch=8, efficiency="ideal")
    assert float(got["tpot_s"].sel(gpu="h100-sxm-80gb", batch=8)) == pytest.approx(one.tpot, rel=1e-12)


def test_numbers_zip_on_one_dimension():
    got = rooflm.infer("llama-7b", gpu="a100", prompt=[100, 200, 300], output=[30, 20, 10], zip=("prompt", "output"),
                       efficiency="ideal")  # fmt: skip
    each = [rooflm.infer("llama-7b", gpu="a100", prompt=p, output=o, efficiency="ideal").latency
            for p, o in ((100, 30), (200, 20), (300, 10))]  # fmt: skip
    assert np.allclose(got["latency_s"], each, rtol=1e-12) and got["latency_s"].shape == (3,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gpu": ["a", "b"], "tp": [1, 2, 3], "zip": ("gpu", "tp")}, "one length"),
        ({"gpu": ["a", "b"], "zip": ("gpu", "tp")}, "not a list"),
        ({"gpu": ["a", "b"], "tp": [1, 2], "zip": [("gpu", "tp"), ("tp", "gpu")]}, "twice"),
        ({"gpu": ["a", "b"], "zip": ("gpu",)}, "at least two"),
        ({"gpu": ["a", "b"], "zip": "gpu, tp"}, "zip names 'tp'"),
        ({"batch": []}, "empty"),
        ({"batch": [1, None]}, "batch is a list with None"),
        ({"sets": {"model.depth_scale": [1, None]}}, "depth_scale is a list with None"),
        ({"batch": [1, 1]}, "twice"),
    ],
)
def test_bad_axes_are_one_sentence(arguments, words):
    with pytest.raises(RooflmError, match=words):
        find_axes(arguments)


def test_widths_of_a_scheme_are_structural():
    both = {"quant.act_bits": [8, 16], "quant.weight_bits": 8}
    got = rooflm.infer("llama-7b", gpu="a100", efficiency="ideal", sets=both)
    one = rooflm.infer("llama-7b", gpu="a100", efficiency="ideal", sets={"quant.act_bits": 8, "quant.weight_bits": 8})
    assert float(got["ttft_s"][0]) == pytest.approx(one.ttft, rel=1e-12)


def test_unknown_output_names_the_near_ones():
    with pytest.raises(RooflmError, match="tpot_s"):
        rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], outputs=["tpots"])


def test_only_the_outputs_asked_for():
    got = rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], efficiency="ideal", outputs=["tpot_s", "memory.weights"])
    assert set(got.data_vars) == {"tpot_s", "memory.weights"}


def test_size_of_a_grid_with_a_zip():
    axes, _ = find_axes({"gpu": ["a", "b"], "tp": [1, 2], "batch": [1, 2, 3], "zip": ("gpu", "tp")})
    assert size_of(axes) == 6


def test_an_unknown_place_is_refused():
    with pytest.raises(RooflmError, match="local, ray"):
        rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], on="moon")


TRAIN_POOL = {
    "gpu": ["a100-sxm-80gb", "h100-sxm-80gb"], "recompute": ["none", "selective", "full"],
    "schedule": ["1f1b", "gpipe"], "batch": [8, 16, 64], "seq": [512, 2048], "tp": [1, 2, 4], "pp": [1, 2, 4],
    "dp": [1, 2], "micro_batch": [1, 2, 4], "zero": [0, 1, 2, 3], "cluster.device.dram.bandwidth": [1e12, 2.5e12],
}  # fmt: skip
TRAIN_CORE = ("step_time_s", "mfu", "memory_bytes", "fits", "bubble_fraction", "comm_bytes", "parts_s")


@st.composite
def train_requests(draw: st.DrawFn) -> dict[str, list[object]]:
    """One to four axes of training, each a few distinct values."""
    names = draw(st.lists(st.sampled_from(sorted(TRAIN_POOL)), min_size=1, max_size=4, unique=True))
    return {n: draw(st.lists(st.sampled_from(TRAIN_POOL[n]), min_size=1, max_size=3, unique=True)) for n in names}


@settings(max_examples=30, deadline=None)
@given(train_requests(), st.integers(1, 40), st.randoms(use_true_random=False))
def test_every_cell_of_training_is_the_prediction_of_its_point(request_, block, random):
    base = {"model": "llama-7b", "gpu": "a100-sxm-80gb", "efficiency": "0.6,0.8", "engine": "megatron", "batch": 16}
    axes, fixed = find_axes(base | request_)
    grid = run(TRAIN.flat, axes, fixed, TRAIN_CORE, block=block)
    places = list(itertools.product(*(range(len(a.values)) for a in axes)))
    for place in random.sample(places, min(3, len(places))):
        one = {a.name: a.values[i] for a, i in zip(axes, place, strict=True)}
        try:
            estimate = TRAIN.flat(outputs=TRAIN_CORE, **point_of(fixed | one))
        except RooflmError:
            assert not grid["fits"][place]
            continue
        assert bool(grid["fits"][place]) == bool(estimate["fits"])
        for name, value in estimate.items():
            assert grid[name][place] == pytest.approx(float(np.asarray(value)), rel=1e-12, abs=1e-18)


def test_degrees_that_make_another_number_of_gpus_are_told():
    """Lists of degrees beside --gpus are a product; its points that make other numbers are labelled."""
    grid = rooflm.infer(
        "llama-7b", gpu="a100-sxm-80gb", gpus=8, tp=[2, 3, 4], dp=[2, 4], batch=8, outputs=["fits", "reason", "gpus"]
    )
    reason = grid["reason"].values
    assert grid["fits"].values.tolist() == [[False, True], [False, False], [True, False]]
    assert reason[0][0] == reason[2][1] == "the degrees make another number of GPUs"
    assert reason[1][0] == "tp does not divide the heads"
    both = rooflm.infer(
        "llama-7b", gpu="a100-sxm-80gb", gpus=[4, 8], tp=[2, 4], pp=[1, 3], batch=8, outputs=["fits", "gpus"]
    )
    assert both["fits"].values.tolist() == [[[True, False]] * 2] * 2
    assert both["gpus_used"].values[:, :, 0].tolist() == [[4, 4], [8, 8]]


def test_files_keep_every_axis_and_output(tmp_path):
    """Zipped partners have columns of their own, and an output that is an axis too does not hide it."""
    from rooflm.sweep.files import grid_columns
    from rooflm.sweep.stream import stream
    from rooflm.sweep.sweep import GridJob

    arguments = {"model": "llama-7b", "gpu": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [1, 2], "gpus": [1, 2],
                 "zip": ("gpu", "batch")}  # fmt: skip
    grid = INFER.grid(arguments | {"outputs": ["gpus", "fits"]})
    columns = grid_columns(grid)
    assert columns["gpu"] == ["a100-sxm-80gb"] * 2 + ["h100-sxm-80gb"] * 2 and columns["batch"] == [1, 1, 2, 2]
    assert columns["gpus"] == columns["gpus_used"] == [1, 2, 1, 2]
    axes, fixed = find_axes(arguments)
    job = GridJob(INFER.flat, tuple(axes), fixed, ("gpus", "fits"))
    stream(job, str(tmp_path / "x.csv"))
    assert (tmp_path / "x.csv").read_text().splitlines()[0].replace('"', "") == "gpu,batch,gpus,fits,gpus_used"
    stream(job, str(tmp_path / "x.nc"))
    import xarray

    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        assert data["gpus_used"].values.tolist() == [[1, 2], [1, 2]]
