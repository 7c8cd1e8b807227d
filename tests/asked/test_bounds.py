"""Bounds of a scenario's fields: the same for a flag, for --set, for a list and for a file, said in one sentence."""

import pytest

import rooflm
from rooflm.asked import paths
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError

POINT = {"model": "llama-7b", "gpu": "h100"}


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("mapping.tp", 0.5, "a whole number of at least 1"),
        ("mapping.tp", [1, 0.5], "mapping.tp is 0.5"),
        ("mapping.pp", 0.999, "a whole number of at least 1"),
        ("mapping.cp", 0.5, "a whole number of at least 1"),
        ("workload.batch", float("inf"), "a whole number of at least 1"),
        ("workload.batch", [1, float("nan")], "workload.batch is nan"),
        ("workload.cached", -1, "a whole number of at least 0"),
        ("model.width_prune", 1.5, "from 0 to below 1"),
        ("model.depth_prune", 1, "from 0 to below 1"),
        ("model.width_scale", 1e12, "above 0 and at most 1000000"),
        ("model.blocks.0.mixer.heads", 2.0**60, "a whole number of at least 1"),
        ("model.blocks.0.mixer.window", 0, "a whole number of at least 1"),
        ("efficiency.mode", "foo", "calibrated, ideal, flat"),
        ("cluster.device.dram.bandwidth", float("inf"), "finite and above 0"),
        ("cluster.device.dram.bandwidth", -1, "above 0"),
        (
            "cluster.device.dram.bandwidth",
            4,
            "4 B/s, but it must be at least 1 MB/s: write it with its unit, such as 4 TB/s",
        ),
        ("cluster.tiers.0.bandwidth", [450, 9e11], "450 B/s, but it must be at least 1 MB/s"),
        ("cluster.device.peak.bf16", 989, "989 FLOP/s, but it must be at least 1 GFLOP/s"),
        ("engine.fragmentation", 0.5, "1 or more"),
        ("engine.eager", 1, "engine.eager is 1, but it must be from 0 to 0.01 seconds (20us: microseconds)"),
        ("engine.gap", 2, "from -1.25e-06 to 0.01 seconds"),
        ("cluster.device.measured", 1, "is not there"),
        ("engine.residuals", 1, "is not there"),
    ],
)
def test_a_value_out_of_bounds_is_one_sentence(path, value, says):
    with pytest.raises(RooflmError) as error:
        rooflm.infer(**POINT, sets={path: value})
    assert says in str(error.value) and path in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "cp", "ep", "batch", "prompt", "output"])
@pytest.mark.parametrize("value", [0.5, 0, -1, float("inf"), float("nan")])
def test_a_degree_or_count_is_whole_by_every_door(name, value):
    path = f"{'workload' if name in ('batch', 'prompt', 'output') else 'mapping'}.{name}"
    for arguments in ({name: value}, {name: [1, value]}, {"sets": {path: value}}, {"sets": {path: [1, value]}}):
        with pytest.raises(RooflmError, match="a whole number of at least 1"):
            rooflm.infer(**POINT, **arguments)


def test_infinity_is_for_limits_alone():
    s = build_inference(**POINT, sets={"engine.token_budget": float("inf"), "model.max_context": float("inf")}).scenario
    assert paths.get(s, "engine.token_budget") == paths.get(s, "model.max_context") == float("inf")


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"efficiency.compute": 0.5}, "no effect with efficiency calibrated"),
        ({"efficiency.network": [0.5, 0.7]}, "give --efficiency as factors"),
        ({"training.mtp": 1}, "training.mtp is of training"),
        ({"workload.seq": 4096}, "workload.seq is of training"),
        ({"mapping.zero": 3}, "mapping.zero is of training"),
    ],
)
def test_a_set_without_effect_is_refused(sets, says):
    with pytest.raises(RooflmError, match=says):
        rooflm.infer(**POINT, sets=sets)


def test_a_set_of_serving_is_refused_in_training():
    with pytest.raises(RooflmError, match=r"workload\.prompt is of inference"):
        rooflm.train(**POINT, batch=8, sets={"workload.prompt": 100})


def test_factors_have_an_effect_in_the_flat_mode():
    half, whole = (rooflm.infer(**POINT, efficiency="0.5,0.5", sets={"efficiency.memory": m}) for m in (0.5, 1.0))
    assert float(half.tpot) > float(whole.tpot)


def test_named_constants_are_set_by_name():
    """A named tuple keeps its kind when one of its numbers is set."""
    from rooflm.catalogue.hardware import Measured

    assert paths.put(Measured(), "decode", 0.5) == Measured(decode=0.5)
