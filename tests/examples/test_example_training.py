"""The two studies of training: what the papers found about memory and generations, drawn by one command each."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from studies.training import KORTHIKANTI, generation_estimate

from rooflm.estimate.training import train_scenario
from rooflm.scenario.build_training import build_training

FOLDER = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def memory():
    return load("training_memory")


@pytest.fixture(scope="module")
def generations():
    return load("training_generations")


def test_what_fits_is_what_the_paper_says(memory):
    sizes, fits, capacity = memory.study()
    assert capacity == pytest.approx(80 * 2**30 / 1e9)
    assert len(fits) == 12
    for (model, policy), ok in fits.items():
        assert ok == (policy != "none"), (model, policy)
        assert ok == (sum(sizes[model, policy].values()) <= capacity)


def test_activations_are_the_papers_bytes(memory):
    """s b h L (34 + 5 a s/h) / t split as in Korthikanti et al. 2022, table 2, for the model with one stage (22B)."""
    sizes, _, _ = memory.study()
    seq, batch, hidden, layers, heads, tp = 2048, 4, 6144, 48, 64, 8
    unit = seq * batch * hidden * layers / 1e9
    square = 5 * heads * seq / hidden
    expected = {"none": 10 + 24 / tp + square / tp, "selective": 34 / tp, "full": 2.0}
    for policy, a_layer in expected.items():
        held = sizes["megatron-22b", policy]["activations"]
        rest = held - unit * a_layer  # ends of the model, and with full the layer at work
        assert 0 <= rest < (0.8 if policy != "full" else 2.0), policy


def test_memory_is_that_of_the_command(memory):
    """The same numbers as `rooflm train` with the same options gives."""
    sizes, _, _ = memory.study()
    e = train_scenario(
        build_training(model="gpt3-175b", gpu="a100-sxm-80gb", engine="megatron-2022", dtype="fp16", zero=0,
                       recompute="full", sp=False, **KORTHIKANTI["gpt3-175b"]).scenario
    )  # fmt: skip
    assert sum(sizes["gpt3-175b", "full"].values()) == pytest.approx(float(e.memory.total) / 1e9)


def test_every_generation_is_faster_and_the_network_shows(generations):
    found = generations.study()
    total = {k: sum(v.values()) for k, v in found.items()}
    assert total["B200-NVS-L"] == pytest.approx(1)
    order = [total[k] for k in ("A100-HDR", "H100-NDR", "H200-NDR", "B200-NDR", "B200-NVS", "B200-NVS-L")]
    assert (np.diff(order) < 0).all()
    for gpu in ("H100", "B200"):  # the switch cuts communication and nothing else
        slow, fast = found[f"{gpu}-NDR"], found[f"{gpu}-NVS"]
        assert fast["communication"] < slow["communication"]
        assert fast["compute"] == pytest.approx(slow["compute"])
    # no part gains less than the least, or more than the most, of the rates behind it: memory 3.8, products 28.8;
    # NVLink 3, InfiniBand to the switch 36
    gain = {k: found["A100-HDR"][k] / found["B200-NVS-L"][k] for k in ("compute", "communication")}
    assert 7.7 / 2.039 < gain["compute"] < 9000 / 312
    assert 900 / 300 < gain["communication"] < 900 / 25
    assert gain["communication"] < total["A100-HDR"] < gain["compute"]


@pytest.mark.parametrize("gpu", ["H100", "B200"])
def test_the_switch_speeds_up_what_leaves_the_node_as_its_rate_says(gpu):
    """At ideal rates: tensor parallelism stays in the node; a pipeline's sends gain the ratio of the link rates, less
    their latency; gradients at least that ratio, for what is hidden behind compute stays hidden."""
    slow, fast = (generation_estimate(f"{gpu}-{n}", "ideal") for n in ("NDR", "NVS"))
    rates = slow.scenario.cluster.tiers[1].bandwidth, fast.scenario.cluster.tiers[0].bandwidth
    ratio = rates[1] / rates[0]
    gain = {k: float(slow.parts[k] / fast.parts[k]) for k in ("tp_comm", "pp_comm", "dp_comm")}
    assert gain["tp_comm"] == pytest.approx(1)
    assert 1 < gain["pp_comm"] <= ratio <= gain["dp_comm"]


@pytest.mark.parametrize(("name", "says"), [("memory", "none: none fits"), ("generations", "first over last")])
def test_one_command_draws_the_figure(name, says, memory, generations, tmp_path, capsys):
    path = tmp_path / "a.png"
    {"memory": memory, "generations": generations}[name].main(str(path))
    assert says in capsys.readouterr().out
    assert path.stat().st_size > 30_000
    assert (FOLDER.parent / "docs" / "figures" / f"training-{name}.png").exists()
