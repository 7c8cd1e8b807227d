"""Exploration: the published conclusions come out by themselves; a grid equals its points; searches are repeatable."""

from __future__ import annotations

import itertools
import json
import pickle
import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflm.asked.answers.inference import infer
from rooflm.cli import main
from rooflm.errors import RooflmError
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.training import train_scenario
from rooflm.explore import CAUSES, Space, Task, grid, legal_splits, make_task, on_cluster
from rooflm.readers.devices import load_cluster
from rooflm.sweep.pareto import pareto
from rooflm.technology import explore, tco
from rooflm.technology.load import load_wire
from rooflm.technology.reports import gemm_bounds, select, shares, stops_helping
from rooflm.technology.split import GROUPS, METHODS, SIZE, Problem, evolution, exhaustive, normal, problem, raw
from rooflm.technology.tasks import run

UNIFORM = tuple(f"uniform-{n}" for n in (14, 10, 7, 5, 3, 2, 1))
FOUNDRY = ("n12", "n10", "n7", "n5", "n3", "n2", "a14", "a10")
GPT3: dict[str, Any] = {"gpus": 1024, "batch": 1024, "seq": 2048, "recompute": "selective"}


@pytest.fixture(scope="module")
def gpt3() -> Task:
    return make_task("train", "gpt3-175b", **GPT3, tp=8, pp=8)


# The conclusions of Kundu et al. (arXiv 2407.14645)


@pytest.mark.parametrize("nodes", [UNIFORM, FOUNDRY])
def test_training_saturates_with_logic_scaling_unless_memory_and_network_follow(
    gpt3: Task, nodes: tuple[str, ...]
) -> None:
    alone = grid(gpt3, Space("a100", nodes, ("hbm2e",), ("nvlink3+hdr",)))
    memory = grid(gpt3, Space("a100", nodes, ("hbm4",), ("nvlink3+hdr",)))
    both = grid(gpt3, Space("a100", nodes, ("hbm4",), ("nvlink5+gdr",)))
    compute = alone["peak_flops"][-1] / alone["peak_flops"][0]
    gains = [float(t["time_s"][0] / t["time_s"][-1]) for t in (alone, memory, both)]
    assert gains[0] < gains[1] < gains[2] < compute
    # each further node returns less of the compute it brings, and at every node more where the rest follows
    assert np.all(np.diff(returns(alone)) < 0) and np.all(returns(both) > returns(alone))


def returns(table: dict[str, Any]) -> Any:
    """Of what each step of compute promises, the part that it gives: d log T / d log FLOP/s."""
    return np.diff(np.log(table["time_s"])) / -np.diff(np.log(table["peak_flops"]))


@pytest.mark.parametrize("nodes", [UNIFORM, FOUNDRY])
def test_what_a_node_returns_is_the_share_that_compute_still_bounds(gpt3: Task, nodes: tuple[str, ...]) -> None:
    """Amdahl: with T = a / x + b, d log T / d log x is the share of a, here of the step without bubbles (they scale
    with it). A step's return lies between the shares at its ends; above the first only where another rate grew too."""
    table = grid(gpt3, Space("a100", nodes, ("hbm2e",), ("nvlink3+hdr",)))
    part = shares(table)
    bound = part["compute"] / (1 - part["schedule"])
    found = returns(table)
    assert np.all(found > bound[1:])
    alone = np.all([np.diff(table[f"{k}_bandwidth"]) == 0 for k in ("dram", "intra", "inter")], axis=0)
    assert alone.sum() >= 4 and np.all(found[alone] < bound[:-1][alone])


@pytest.mark.parametrize("nodes", [UNIFORM, FOUNDRY])
def test_what_memory_and_network_bring_is_amdahls(gpt3: Task, nodes: tuple[str, ...]) -> None:
    """At the last node they take the share f of the step; r times faster they leave 1 - f + f / r of it, and never less
    than 1 - f. r: the least that any of the three rates grew."""
    slow, fast = (
        grid(gpt3, Space("a100", nodes[-1:], (dram,), (net,)))
        for dram, net in (("hbm2e", "nvlink3+hdr"), ("hbm4", "nvlink5+gdr"))
    )
    grew = min(float(fast[f"{k}_bandwidth"][0] / slow[f"{k}_bandwidth"][0]) for k in ("dram", "intra", "inter"))
    part = shares(slow)
    f = float((part["dram"] + part["network"])[0] / (1 - part["schedule"][0]))
    assert 1 / (1 - f + f / grew) <= float(slow["time_s"][0] / fast["time_s"][0]) <= 1 / (1 - f)


def test_uniform_scaling_stops_helping_unless_the_rest_follows(gpt3: Task) -> None:
    """Helping as `stops_helping` has it: at least half of what the step promises. The foundries' own nodes bring less
    compute a step, and never fall below."""
    for nodes, network, dram, stops in (
        (UNIFORM, "nvlink3+hdr", "hbm2e", True),
        (UNIFORM, "nvlink5+gdr", "hbm4", False),
        (FOUNDRY, "nvlink3+hdr", "hbm2e", False),
    ):
        table = grid(gpt3, Space("a100", nodes, (dram,), (network,)))
        assert (stops_helping(table["peak_flops"], table["time_s"]) < len(nodes) - 1) == stops


def test_the_bottleneck_of_gpt3_moves_from_compute_to_memory_to_network(gpt3: Task) -> None:
    table = grid(gpt3, Space("a100", UNIFORM, ("hbm2e",), ("nvlink3+hdr",)))
    part = shares(table)
    assert table["bottleneck"][0] == "compute" and table["bottleneck"][-1] == "network"
    assert np.all(np.diff(part["compute"]) < 0) and np.all(np.diff(part["network"]) > 0)
    # memory takes over from compute at the last nodes ...
    assert part["dram"][0] < 0.02 and part["dram"][-1] > part["compute"][-1]
    # ... a faster memory hands it to the network, and a faster network gives it back to compute
    followed = grid(gpt3, Space("a100", UNIFORM[-1:], ("hbm2e", "hbm4"), ("nvlink3+hdr", "nvlink5+gdr")))
    slow = select(followed, network="nvlink3+hdr", dram="hbm4")
    fast = select(followed, network="nvlink5+gdr", dram="hbm4")
    assert slow["bottleneck"][0] == "network" and fast["bottleneck"][0] == "compute"


def test_the_best_mapping_hides_the_network_so_that_memory_is_the_wall() -> None:
    task = make_task("train", "gpt3-175b", **GPT3, micro=(1,))
    table = grid(task, Space("a100", UNIFORM, ("hbm2e",), ("nvlink3+hdr",)))
    assert table["bottleneck"][0] == "compute" and table["bottleneck"][-1] == "dram"
    assert np.all(table["time_s"] > 0) and np.all(table["fits"])


def test_decode_follows_memory_until_l2_then_the_network() -> None:
    rates = tuple(409.6e9 * 2.0**k for k in range(7))
    sets = (("technology.dram.bandwidth", rates), ("technology.dram.energy", (1e-13,)))
    one = make_task("infer", "llama-2-13b", prompt=200, output=200, metric="tpot")
    table = grid(one, Space("a100", ("n5",), ("hbm2e",), ("nvlink3+hdr",), sets))
    stop = stops_helping(table["dram_bandwidth"], table["time_s"])
    # a step of two returns less than half where less than the root of two of it is left below L2's rate
    assert 2**-0.5 <= float(table["dram_bandwidth"][stop] / table["l2_bandwidth"][0]) <= 2**0.5
    assert list(table["bottleneck"][:stop]) == ["dram"] * stop and table["bottleneck"][-1] == "l2"
    # time is inverse to bandwidth while memory is the bound
    assert table["time_s"][0] / table["time_s"][1] == pytest.approx(2.0, rel=0.02)
    eight = make_task("infer", "llama-2-13b", gpus=8, tp=8, prompt=200, output=200, metric="tpot")
    split = grid(eight, Space("a100", ("n5",), ("hbm2e",), ("nvlink3+hdr",), sets))
    assert split["bottleneck"][0] == "dram" and split["bottleneck"][-1] == "network"
    assert stops_helping(split["dram_bandwidth"], split["time_s"]) <= stop
    # each step of memory returns less with eight, whose all-reduces it does not make faster
    promised = np.diff(np.log(table["dram_bandwidth"]))
    one_gains, eight_gains = (-np.diff(np.log(t["time_s"])) / promised for t in (table, split))
    assert np.all(eight_gains[:stop] < one_gains[:stop])


def test_prefill_products_turn_memory_bound_where_flops_outgrew_bandwidth() -> None:
    t = gemm_bounds("llama-2-13b", ["a100-sxm-80gb", "h100-sxm-80gb"], prompt=200)
    bound = {(str(g), str(p)): str(b) for g, p, b in zip(t["gpu"], t["product"], t["bound"], strict=True)}
    fat, single_head = ("X·W=KQV", "Z·W=O", "O·WL1=O1", "O1·WL2=O2"), ("Q·K=R", "R·V=Z")
    assert all(bound["a100-sxm-80gb", p] == "compute" for p in fat)
    assert all(bound["a100-sxm-80gb", p] == "dram" for p in single_head)
    assert all(bound["h100-sxm-80gb", p] == "dram" for p in (*fat, *single_head))
    # worked by hand: 2 x 200 x 15360 x 5120 FLOP over 312 TFLOP/s
    assert t["time_s"][0] == pytest.approx(2 * 200 * 15360 * 5120 / 312e12)


# The grid


def test_a_grid_equals_its_points() -> None:
    task = make_task("infer", "llama-2-7b", gpus=2, batch=4, prompt=256, output=64)
    sets = (("technology.budget.area.l2", (0.1, 0.3)), ("technology.budget.power", (300.0, 500.0)))
    whole = Space("a100", ("n7", "n3"), ("hbm2e", "hbm4"), ("nvlink3+hdr", "pcie5+ethernet-100g"), sets)
    table = grid(task, whole)
    assert len(table["time_s"]) == whole.size == 32
    for i, (n, node, dram, area, power) in enumerate(
        itertools.product(whole.networks, whole.nodes, whole.drams, *(v for _, v in sets))
    ):
        one = grid(task, Space("a100", (node,), (dram,), (n,), ((sets[0][0], (area,)), (sets[1][0], (power,)))))
        for name, values in one.items():
            assert values[0] == table[name][i] or np.isnan(values[0]), name


def test_causes_sum_to_the_time_and_blocks_change_nothing(gpt3: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space("h100", FOUNDRY, ("hbm3", "hbm4"), ("nvlink4+ndr",))
    table = grid(gpt3, space)
    assert np.sum([table[f"{c}_s"] for c in CAUSES], axis=0) == pytest.approx(table["time_s"])
    monkeypatch.setattr(explore, "BLOCK", 3)
    again = grid(gpt3, space)
    assert all(np.array_equal(table[k], again[k]) for k in table)


def test_a_block_travels_to_another_process(gpt3: Task) -> None:
    space = Space("a100", ("n7", "n5"), ("hbm2e",), ("nvlink3+hdr", "nvlink5+xdr"))
    job = partial(explore._block, gpt3, space, tco.Prices())
    there = pickle.loads(pickle.dumps(job))((1, 0, 2))
    assert all(np.array_equal(v, there[k]) for k, v in job((1, 0, 2)).items())


def test_the_best_mapping_is_the_best_of_all() -> None:
    task = make_task("train", "llama-2-13b", gpus=16, batch=32, seq=2048, recompute="selective")
    space = Space("a100", ("n7",), ("hbm2e",), ("nvlink3+hdr",))
    best = float(grid(task, space)["time_s"][0])
    each = []
    for i in range(task.choices):
        one = Task(
            task.phase, task.scenario, {k: v[i : i + 1] for k, v in task.mappings.items()}, task.metric, task.tokens
        )
        each.append(float(grid(one, space)["time_s"][0]))
    assert best == min(each) and len(set(each)) > 3


@pytest.mark.parametrize("which", ["technology.budget.power", "technology.budget.package"])
def test_more_budget_never_makes_a_task_slower(which: str) -> None:
    task = make_task("infer", "llama-2-7b", batch=8, prompt=512, output=64)
    values = tuple(np.linspace(250.0, 900.0, 12) if which.endswith("power") else np.linspace(1000e-6, 3000e-6, 12))
    table = grid(task, Space("a100", ("n5",), ("hbm3",), ("nvlink3+hdr",), ((which, values),)))
    times = np.where(table["fits"], table["time_s"], np.inf)
    assert np.all(times[1:] <= times[:-1] * (1 + 1e-12))


def test_legal_splits_divide_what_they_split() -> None:
    s = legal_splits(96, 96, 64, 64, (1, 2))
    assert np.all(s["tp"] * s["pp"] * s["dp"] == 64)
    assert np.all(96 % s["tp"] == 0) and np.all(96 % s["pp"] == 0) and np.all(64 % (s["dp"] * s["micro_batch"]) == 0)
    with pytest.raises(RooflmError, match="gpus is 7"):
        legal_splits(96, 96, 7, 1)


# Searches


@pytest.fixture(scope="module")
def decode() -> Problem:
    task = make_task("infer", "llama-2-13b", batch=32, prompt=1024, output=128)
    return problem(task, Space("a100", ("n5",), ("hbm3",), ("nvlink3+hdr",)))


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_conserves_budgets_and_beats_the_start(decode: Problem, method: str) -> None:
    few: dict[str, Any] = {"evolution": {"generations": 8, "population": 3}, "gradient": {"iterations": 8, "starts": 3},
                           "exhaustive": {"steps": 5}}[method]  # fmt: skip
    run: Any = METHODS[method]
    found = run(decode, seed=1, **few)
    for group, _ in GROUPS:
        assert sum(found.shares[group].values()) == pytest.approx(1.0)
        assert min(found.shares[group].values()) > 0
    assert found.value <= found.start * (1 + 1e-12)
    assert found.report["time_s"][0] == pytest.approx(found.value)
    assert np.all(np.diff(found.history) <= 0)
    again = run(decode, seed=1, **few)
    assert again.value == found.value and again.shares == found.shares


def test_the_exhaustive_answer_is_the_best_of_its_lattice(decode: Problem) -> None:
    found = exhaustive(decode, components=("cores", "l2"), steps=6)
    assert found.evaluations == 25
    finer = exhaustive(decode, components=("cores", "l2"), steps=12)
    assert finer.value <= found.value


def test_limits_hold_and_goals_differ() -> None:
    task = make_task("infer", "llama-2-13b", batch=32, prompt=1024, output=128)
    space = Space("a100", ("n5",), ("hbm3",), ("nvlink3+hdr",))
    free = evolution(problem(task, space), generations=6, population=3)
    most = float(free.report["power_used_w"][0]) * 0.98
    bounded = evolution(problem(task, space, limits={"power_used_w": most}), generations=6, population=3)
    assert float(bounded.report["power_used_w"][0]) <= most
    assert bounded.value >= free.value
    frugal = evolution(problem(task, space, goal="tokens_per_j"), generations=6, population=3)
    assert frugal.value == pytest.approx(float(frugal.report["tokens_per_j"][0])) and frugal.value >= frugal.start
    with pytest.raises(RooflmError, match="goal is 'speed'"):
        problem(task, space, goal="speed")


def test_variables_are_shares() -> None:
    x = np.random.default_rng(0).random((SIZE, 5))
    y = normal(x)
    assert y[:7].sum(axis=0) == pytest.approx(np.ones(5)) and y.min() >= 0.01
    assert normal(raw(y)) == pytest.approx(y)


# Reports


def test_a_pareto_front_is_not_beaten() -> None:
    draw = np.random.default_rng(3)
    t = {"a": draw.random(200), "b": draw.random(200)}
    keep = pareto(t, {"a": 1.0, "b": -1.0})
    for i in range(200):
        beaten = np.any((t["a"] < t["a"][i]) & (t["b"] > t["b"][i]))
        assert keep[i] != beaten


def test_money_and_energy_follow_the_time() -> None:
    task = make_task("infer", "llama-2-13b", batch=16, prompt=512, output=128)
    t = grid(task, Space("h100", ("n5",), ("hbm2e", "hbm3", "hbm4"), ("nvlink4+ndr",)))
    assert t["tokens_per_s"] == pytest.approx(16 * 128 / t["time_s"])
    assert t["usd_per_million_tokens"] * t["tokens_per_usd"] == pytest.approx(np.full(3, 1e6))
    assert np.all(t["power_w"] <= t["tdp_w"]) and np.all(t["power_w"] >= 0.1 * t["tdp_w"])
    assert np.all(np.diff(t["silicon_usd"]) == 0) and np.all(np.diff(t["device_usd"]) > 0)
    assert np.all(t["area_used_m2"] <= t["die_m2"])


# The network's power


def test_power_of_a_link_by_hand() -> None:
    ndr = load_wire("ndr")  # 400 Gb/s at 235 pJ a bit: card, four transceivers, three switch ports are 94 W
    assert float(tco.link_power(ndr, 50e9, 50e9)) == pytest.approx(94.0)
    assert float(tco.link_power(ndr, 50e9)) == pytest.approx(0.9 * 94.0)
    assert float(tco.link_power(ndr, 25e9, 25e9)) == pytest.approx(47.0)
    nvlink = load_wire("nvlink4")  # 450 GB/s at 5.5 pJ: 19.8 W, of which half is the die's
    inside = tco.network_power(nvlink, 450e9, ndr, 50e9, (450e9, 50e9), np.array([1, 8, 16]))
    assert np.asarray(inside) == pytest.approx([0.0, 9.9, 9.9 + 94.0])


def test_tokens_a_joule_and_cost_count_the_network() -> None:
    task = make_task("train", "gpt3-175b", **GPT3, tp=8, pp=8)
    prices = tco.Prices()
    t = grid(task, Space("h100", ("n5",), ("hbm3",), ("nvlink4+hdr", "nvlink4+ndr", "nvlink4+xdr")))
    joules = 1024 * (t["power_w"] + t["network_w"]) * t["time_s"] * prices.pue
    assert t["tokens_per_j"] == pytest.approx(1024 * 2048 / joules)
    assert np.all(np.diff(t["network_w"]) > 0)
    # the card, its optics and switches draw 90 to 100 % of their full power, and NVLink's switch its own
    full = 8 * np.array([25e9 * 370e-12, 50e9 * 235e-12, 100e9 * 185e-12])
    switch = 0.5 * 8 * t["intra_bandwidth"] * 5.5e-12
    assert np.all(t["network_w"] >= 0.9 * (full + switch)) and np.all(t["network_w"] <= full + switch)
    # the electricity of the years holds it too
    seconds = prices.years * tco.HOURS * 3600 * prices.duty
    power = (t["power_w"] + t["network_w"] + prices.host_power) * 1024 * prices.pue
    capital = t["capital_usd"] * (1 + prices.upkeep * prices.years)
    assert t["tco_usd"] == pytest.approx(capital + power * seconds / 3.6e6 * prices.electricity)


def test_one_device_has_no_network_and_one_node_no_fabric() -> None:
    task = make_task("infer", "llama-2-7b", gpus=8, batch=8, prompt=256, output=32)
    t = grid(task, Space("h100", ("n5",), ("hbm3",), ("nvlink4+ndr",)))
    alone = grid(make_task("infer", "llama-2-7b", batch=8, prompt=256, output=32), Space("h100", ("n5",), ("hbm3",)))
    assert alone["network_w"][0] == 0
    assert 0 < t["network_w"][0] <= 0.5 * 8 * 450e9 * 5.5e-12


@pytest.mark.parametrize("phase", ["train", "infer"])
def test_bytes_by_tier_are_all_that_is_sent(phase: str) -> None:
    cluster = load_cluster("dgx-h100")
    stages = 2 if phase == "train" else 1
    given: dict[str, Any] = {"tp": 4, "pp": stages, "dp": 8 // stages, "gpus": 32, "batch": 32}
    work = {"seq": 512} if phase == "train" else {"prompt": 128, "output": 9}
    task = make_task(phase, "llama-2-7b", **given, **work)
    chosen = {k: float(v[0]) for k, v in task.mappings.items()}
    near, far = run(task, cluster, chosen, 0, traffic=True).sent
    s = task.scenario
    if phase == "train":
        total = sum(train_scenario(replace(s, cluster=cluster)).comm_bytes.values())
    else:
        e = infer_scenario(replace(s, cluster=cluster))
        total = e.comm_bytes["prefill"] + 8 * e.waves * e.comm_bytes["decode"]
    assert float(near + far) == pytest.approx(float(total)) and float(near) > 0
    # tensor parallel ranks are neighbours; only training reduces over dp, across the nodes
    assert (float(far) > 0) == (phase == "train")


@pytest.mark.parametrize("metric", ["latency", "ttft", "tpot"])
def test_energy_is_that_of_what_is_timed(metric: str) -> None:
    task = make_task("infer", "llama-2-13b", gpus=8, tp=8, batch=16, prompt=512, output=128, metric=metric)
    t = grid(task, Space("h100", ("n5",), ("hbm3",), ("nvlink4+ndr",)))
    cluster = load_cluster("dgx-h100")
    out, _ = on_cluster(task, cluster)
    if metric == "latency":
        e = infer(replace(task.scenario, cluster=cluster))
        assert float(out.energy) == pytest.approx(float(e.energy_per_token * 16 * 128))
    assert 0.1 * t["tdp_w"][0] < t["power_w"][0] <= t["tdp_w"][0]


# Bad input and the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grid", "llama-2-7b", "--phase", "x"], "phase is 'x'"),
        (["grid", "llama-2-7b", "--phase", "infer", "--node", "n9"], "unknown node 'n9'"),
        (["grid", "llama-2-7b", "--phase", "infer", "--network", "hdr"], "network is 'hdr'"),
        (
            ["grid", "llama-2-7b", "--phase", "infer", "--set", "technology.budget.area.l2=2"],
            "share must be between 0 and 1",
        ),
        (["grid", "llama-2-7b", "--phase", "infer", "--set", "model.x=2"], "must start with technology."),
        (["grid", "llama-2-7b", "--phase", "infer", "--efficiency", "calibrated"], "no fitted constants"),
        (["grid", "llama-2-7b"], "batch is missing"),
        (["grid", "llama-2-7b", "--phase", "infer", "--metric", "speed"], "metric is 'speed'"),
        (["split", "llama-2-7b", "--phase", "infer", "--method", "luck"], "method is 'luck'"),
        (["split", "llama-2-7b", "--phase", "infer", "--node", "n7,n5"], "one node, memory and network"),
        (["grid", "llama-2-7b", "--phase", "infer", "--front", "time"], "goal is 'time'"),
        (["gemms", "mixtral-8x7b"], "has no layer of plain attention and MLP"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == "" and "Traceback" not in said.err


def test_the_command_line_gives_tables_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["explore", "grid", "llama-2-7b", "--phase", "infer", "--node", "n7,n5", "--dram", "hbm2e,gddr6"]
    assert main(base) == 0
    text = capsys.readouterr().out
    assert "no fit" in text and "dram" in text and max(map(len, text.splitlines())) <= 80
    assert main([*base, "--json", "--out", str(tmp_path / "t.csv")]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["columns"]["node"] == ["n7", "n7", "n5", "n5"] and values["columns"]["time_s"][1] is None
    assert (tmp_path / "t.csv").read_text().count("\n") == 5
    assert main(["explore", "gemms", "llama-2-13b", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["columns"]["bound"]) == 12
    assert main([*base, "--front", "time_s,capital_usd", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["columns"]["node"]) == 2
    assert main(["explore", "split", "llama-2-7b", "--phase", "infer", "--method", "exhaustive"]) == 0
    assert "USD a device" in capsys.readouterr().out
    assert main(["explore", "dies"]) == 0
    assert "memory bandwidth" in capsys.readouterr().out


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_grid_is_drawn_in_seconds_or_as_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "g.json"
    words = ["explore", "grid", "llama-2-13b", "--phase", "infer", "--dram", "gddr6,hbm3", "--plot", str(path)]
    assert main([*words, "--plot-kind", "shares"]) == 0
    spec = json.loads(path.read_text(encoding="utf-8"))
    parts = [row for row in spec["data"]["values"] if row["kind"] == "part"]
    assert {row["label"] for row in parts} == {"hbm3, 1.24 s"}  # gddr6 does not hold the model
    assert sum(row["value"] for row in parts) == pytest.approx(100)
    assert main([*words, "--plot-kind", "pie"]) == 2 and "must be seconds or shares" in capsys.readouterr().err


def test_the_example_runs_and_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "explore_split.py"))["main"]("", "4")
    assert "training by gradient descent" in capsys.readouterr().out


def test_the_best_split_is_never_slower_than_a_stated_one() -> None:
    """A searched split has sequence parallelism as `train` has it of its own."""
    space = Space("a100", ("n7", "n3"), ("hbm3",), ("nvlink3+hdr", "nvlink5+ndr"))
    stated, best = (grid(make_task("train", "gpt3-175b", **GPT3, **split), space) for split in ({"tp": 8, "pp": 8}, {}))
    assert np.all(best["time_s"] <= stated["time_s"] * (1 + 1e-9))


def test_an_unknown_limit_is_one_sentence_of_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("exhaustive", "evolution", "gradient"):
        assert main(["explore", "split", "llama-2-7b", "--phase", "infer", "--limit", "usd=1", "--method", method]) == 2
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("rooflm: limit names 'usd', but it must be one of time_s")
