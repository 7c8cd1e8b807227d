"""The technology engine: formulas against hand-worked numbers, rows with sources, budgets as properties, known dies."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.errors import RooflmError
from rooflm.explore import DIES
from rooflm.readers import rows
from rooflm.readers.provenance import provenance
from rooflm.technology import circuits, tco
from rooflm.technology import description as tech
from rooflm.technology.build import Built, build
from rooflm.technology.load import load_dram, load_node, load_technology, load_wire, why_off
from rooflm.technology.reports import reconstruction, with_shares_of

KINDS = ("node", "dram", "link", "die")
LOADERS = {"node": load_node, "dram": load_dram, "link": load_wire, "die": load_technology}
RATES = ("peak", "l1", "l2", "dram", "intra", "inter")


def rates(built: Built) -> dict[str, float]:
    """Every rate and size of a built device, by name."""
    d = built.device
    return {
        "peak": float(d.peak["fp16"]), "l1": float(d.l1.bandwidth), "l1_size": float(d.l1.size),
        "l2": float(d.l2.bandwidth), "l2_size": float(d.l2.size), "dram": float(d.dram.bandwidth),
        "dram_size": float(d.dram.size), "intra": float(built.intra), "inter": float(built.inter),
    }  # fmt: skip


# Rows


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_loads_and_every_value_has_a_source(kind: str) -> None:
    listed = rows.names(kind)
    assert len(listed) >= 4
    for name in listed:
        LOADERS[kind](name)
        for path, found in provenance(kind, name).items():
            assert found.kind in ("vendor", "measured", "inferred"), (name, path)
            assert len(found.source) > 20 and found.date[:2] == "20", (name, path)


ASKED_FOR = {
    "node": "n16 n14 n12 n10 n7 n5 n3 n2 1nm " + " ".join(f"uniform-{n}" for n in (14, 10, 7, 5, 3, 2, 1)),
    "dram": "gddr6 gddr6x gddr7 lpddr5x hbm2 hbm2e hbm3 hbm3e hbm4",
    "link": "pcie3 pcie4 pcie5 pcie6 nvlink2 nvlink3 nvlink4 nvlink5 nvlink4-switch nvlink5-switch hdr ndr xdr gdr "
            "ethernet-1g ethernet-100g ethernet-1.6t",
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED_FOR)
def test_what_the_project_asks_for_is_there(kind: str) -> None:
    assert {rows.resolve(kind, name) for name in ASKED_FOR[kind].split()} <= set(rows.names(kind))


def test_memory_and_links_carry_their_published_rates() -> None:
    # GB/s a stack or chip: JEDEC pin rate times pins over 8
    stacks = {
        "gddr6": 64, "gddr6x": 84, "gddr7": 128, "hbm2": 256, "hbm2e": 409.6, "hbm3": 819.2, "hbm3e": 1177.6,
        "hbm4": 2048,
    }  # fmt: skip
    for name, rate in stacks.items():
        assert load_dram(name).bandwidth == pytest.approx(rate * 1e9)
    links = {
        "pcie4": 31.5, "nvlink2": 150, "nvlink3": 300, "nvlink4": 450, "nvlink5": 900, "hdr": 25, "ndr": 50,
        "xdr": 100, "gdr": 200,
    }  # fmt: skip
    for name, rate in links.items():
        assert load_wire(name).bandwidth == pytest.approx(rate * 1e9)
    assert load_wire("ethernet-1g").bandwidth == pytest.approx(0.125e9)


def test_sram_and_analog_scale_less_than_logic_and_the_uniform_track_does_not_know_it() -> None:
    nodes = [load_node(n) for n in ("n12", "n10", "n7", "n5", "n3", "n2", "a14", "a10")]
    for older, newer in itertools.pairwise(nodes):
        assert newer.logic_area < older.logic_area and newer.energy < older.energy
        assert newer.sram_area / older.sram_area >= newer.logic_area / older.logic_area
        assert newer.analog_area / older.analog_area >= newer.logic_area / older.logic_area
    assert load_node("n3").sram_area == load_node("n5").sram_area  # the same bit cell, 0.021 um2
    u = load_node("uniform-5")
    assert u.logic_area == u.sram_area == pytest.approx(0.67**3, rel=1e-3)
    assert u.energy == pytest.approx(0.54**3, rel=1e-3) and u.analog_area == pytest.approx(0.9**3, rel=1e-3)


def test_an_unknown_row_teaches() -> None:
    with pytest.raises(RooflmError, match="unknown dram 'hbm3f': did you mean 'hbm3'"):
        load_dram("hbm3f")


# Formulas


@given(st.floats(0.01, 100), st.floats(0.5, 1.2), st.floats(0.1, 0.4))
def test_the_voltage_solves_the_cubic(ratio: float, nominal: float, threshold: float) -> None:
    v = float(circuits.solve_voltage(ratio, nominal, threshold))
    assert v > threshold
    assert v * (v - threshold) ** 2 == pytest.approx(ratio * nominal * (nominal - threshold) ** 2, rel=1e-9)


def test_the_voltage_takes_arrays() -> None:
    ratio = np.array([[0.2], [1.0], [5.0]])
    nominal = np.array([0.7, 0.8])
    both = circuits.solve_voltage(ratio, nominal, 0.2)
    assert both.shape == (3, 2)  # type: ignore[union-attr]
    assert float(np.asarray(both)[2, 1]) == float(circuits.solve_voltage(5.0, 0.8, 0.2))


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_no_point_draws_more_than_its_budget_and_more_power_is_never_slower(power: float, nominal: float) -> None:
    node = load_node("n7")
    here, more = circuits.operating_point(power, nominal, node), circuits.operating_point(1.3 * power, nominal, node)
    assert float(here.power) <= power * (1 + 1e-9)
    assert (
        node.threshold + node.margin <= float(here.voltage) + 1e-12 and float(here.voltage) <= node.max_voltage + 1e-12
    )
    assert float(more.frequency) >= float(here.frequency) * (1 - 1e-12)


@given(st.floats(1e-3, 1e3), st.integers(1, 1000))
def test_more_units_on_the_same_power_never_do_less(power: float, units: int) -> None:
    node = load_node("n5")
    rate = [n * float(circuits.operating_point(power, n * 0.1, node).frequency) for n in (units, units + 1)]
    assert rate[1] >= rate[0] * (1 - 1e-9)


def test_matrix_units_and_registers_by_hand() -> None:
    # 128 FLOP a cycle: a cube of side 4; three faces of 16 values of 2 bytes are 96 B
    assert float(circuits.register_bytes(128)) == pytest.approx(96.0)
    # 1024: a cube of side 8, 3 x 64 x 2 B
    assert float(circuits.register_bytes(1024)) == pytest.approx(384.0)
    assert float(circuits.mcu_area(512, load_node("n7"))) == pytest.approx(0.38e-6 / 128 * 512 * 0.344)


def test_stacks_are_limited_by_area_edge_package_and_sites() -> None:
    node, dram = load_node("n7"), load_dram("hbm2e")
    each = float(circuits.dram_area(dram, node))
    assert each == pytest.approx((9.67 + 5.3) * 1e-6)
    assert float(circuits.dram_stacks(3.5 * each, 1.0, 1.0, dram, node, 8)) == 3
    assert float(circuits.dram_stacks(1.0, 0.035, 1.0, dram, node, 8)) == 3
    assert float(circuits.dram_stacks(1.0, 1.0, 4.2 * 110e-6, dram, node, 8)) == 4
    assert float(circuits.dram_stacks(1.0, 1.0, 1.0, dram, node, 8)) == 8


def test_a_link_is_limited_by_area_edge_power_and_its_own_rate() -> None:
    node, wire = load_node("n7"), load_wire("nvlink3")
    lane = wire.lane_area * node.analog_area
    assert float(circuits.link_bandwidth(1.0, 1.0, 1e3, wire, node)) == pytest.approx(300e9)
    assert float(circuits.link_bandwidth(24.5 * lane, 1.0, 1e3, wire, node)) == pytest.approx(150e9)
    assert float(circuits.link_bandwidth(1.0, 3.0e-3, 1e3, wire, node)) == pytest.approx(75e9)
    assert float(circuits.link_bandwidth(1.0, 1.0, 5.2, wire, node)) == pytest.approx(100e9)  # 5.2 W / (8 x 6.5 pJ)


# Budgets

SHARE = st.lists(st.floats(0.01, 1.0), min_size=8, max_size=8)


def _shares(values: list[float]) -> tech.Shares:
    total = sum(values)
    return tech.Shares(**{f.name: v / total for f, v in zip(fields(tech.Shares), values, strict=True)})


@settings(deadline=None)
@given(SHARE, SHARE, st.sampled_from(DIES), st.sampled_from(("n12", "n5", "a10", "uniform-1")), st.floats(100, 2000))
def test_no_component_takes_more_than_its_share(
    area: list[float], power: list[float], die: str, node: str, watts: float
) -> None:
    t = load_technology(die)
    budget = replace(t.budget, area=_shares(area), watts=_shares(power), power=watts)
    assert float(budget.area.total) == pytest.approx(1.0) and float(budget.watts.total) == pytest.approx(1.0)
    built = build(replace(t, node=load_node(node), budget=budget))
    for name, used in built.area.items():
        assert float(used) <= float(budget.die) * getattr(budget.area, name) * (1 + 1e-9), name
    for name, drawn in built.power.items():
        assert float(drawn) <= watts * getattr(budget.watts, name) * (1 + 1e-9), name
    assert sum(map(float, built.area.values())) <= float(budget.die) * (1 + 1e-9)
    assert sum(map(float, built.power.values())) <= watts * (1 + 1e-9)
    around = float(circuits.perimeter(budget.die, budget.dies)) * float(budget.edge.dram)
    assert float(built.stacks) * float(t.dram.edge) <= around * (1 + 1e-9)
    assert float(built.stacks) * float(t.dram.stack_area) <= float(budget.package - budget.die) * (1 + 1e-9)


@settings(deadline=None)
@given(SHARE, SHARE, st.sampled_from(DIES), st.sampled_from(("power", "package", "die")), st.floats(1.01, 3.0))
def test_more_budget_never_hurts(area: list[float], power: list[float], die: str, which: str, factor: float) -> None:
    t = load_technology(die)
    less = replace(t.budget, area=_shares(area), watts=_shares(power))
    more = replace(less, **{which: getattr(less, which) * factor})
    if which == "die":  # what stands beside the die keeps its place
        more = replace(more, package=less.package + more.die - less.die)
    before, after = rates(build(replace(t, budget=less))), rates(build(replace(t, budget=more)))
    for name, value in before.items():
        assert after[name] >= value * (1 - 1e-9), name


@pytest.mark.parametrize("die", DIES)
def test_a_better_node_is_never_slower(die: str) -> None:
    t = load_technology(die)
    built = [rates(build(replace(t, node=load_node(n)))) for n in ("n12", "n10", "n7", "n5", "n3", "n2", "a14", "a10")]
    for older, newer in itertools.pairwise(built):
        for name in ("peak", "l1", "l2", "dram", "intra", "inter"):
            assert newer[name] >= older[name] * (1 - 1e-9), name


def test_arrays_give_what_single_points_give() -> None:
    t = load_technology("h100")
    powers, shares = np.array([300.0, 700.0, 1200.0]), np.array([0.1, 0.2])
    area = replace(t.budget.area, l2=shares, cores=t.budget.area.cores + t.budget.area.l2 - shares)
    grid = build(replace(t, budget=replace(t.budget, power=powers[:, None], area=area)))
    for i, watts in enumerate(powers):
        for j, share in enumerate(shares):
            own = replace(t.budget.area, l2=float(share), cores=t.budget.area.cores + t.budget.area.l2 - float(share))
            one = build(replace(t, budget=replace(t.budget, power=float(watts), area=own)))
            for pick in (lambda b: b.device.peak["fp16"], lambda b: b.device.l2.bandwidth, lambda b: b.device.l2.size):
                whole: Any = np.broadcast_to(pick(grid), (3, 2))
                assert float(whole[i, j]) == float(pick(one))


# Known dies


def test_known_gpus_are_rebuilt_from_node_and_die_or_the_reason_is_said() -> None:
    t = reconstruction(DIES)
    checked = ("16-bit compute", "L2 size", "L2 bandwidth", "memory size", "memory bandwidth")
    off = []
    for die, quantity, error in zip(t["die"], t["quantity"], t["error"], strict=True):
        if abs(error) > 0.15:
            assert quantity in why_off(str(die)), (die, quantity, error)
            off.append((str(die), str(quantity)))
    assert off == [(die, quantity) for die in DIES for quantity in why_off(die)]
    assert not any(quantity in checked for _, quantity in off)
    # the rate of the memory's pins is given as built, so these three say more
    errors = [abs(e) for q, e in zip(t["quantity"], t["error"], strict=True) if q in checked[:3]]
    assert np.mean(errors) < 0.08


def test_the_product_as_built_runs_at_its_own_memory_rate_and_clock() -> None:
    for die, stacks, rate in (("v100", 4, 900e9), ("a100", 5, 2039e9), ("h100", 5, 3352e9)):
        built = build(load_technology(die, as_built=True))
        assert float(built.stacks) == stacks
        assert float(built.device.dram.bandwidth) == pytest.approx(rate, rel=2e-3)
    free, rated = (load_technology("h100", as_built=b) for b in (False, True))
    assert free.dram.bandwidth / rated.dram.bandwidth == pytest.approx(6.4 / 5.237)  # the standard's pins
    assert float(build(rated).device.l2.bandwidth) < float(build(free).device.l2.bandwidth)
    assert float(build(rated).device.clock) <= 1.98e9


@given(st.floats(1e-3, 1e3), st.floats(0.2e9, 3e9))
def test_a_rated_clock_is_kept_and_never_costs_power(power: float, most: float) -> None:
    node = load_node("n5")
    free, rated = circuits.operating_point(power, 1.0, node), circuits.operating_point(power, 1.0, node, most)
    assert float(rated.frequency) == pytest.approx(min(most, float(free.frequency)), rel=1e-9)
    assert float(rated.power) <= float(free.power) * (1 + 1e-9)


def test_a_gpu_left_out_takes_nothing_of_its_own_plan() -> None:
    """Its shares of area and power are the mean of the others'. What the engine then foretells is in the docs: compute
    of A100, H100 and B200 within 19 %, V100, whose L2 took two fifths of the others' share, not at all."""
    dies = [load_technology(d, as_built=True) for d in DIES]
    for i, t in enumerate(dies):
        others = dies[:i] + dies[i + 1 :]
        plan = with_shares_of(t, others).budget
        assert float(plan.area.total) == pytest.approx(1) and float(plan.watts.total) == pytest.approx(1)
        assert float(plan.area.l2) == pytest.approx(np.mean([o.budget.area.l2 for o in others]))
        assert replace(plan, area=t.budget.area, watts=t.budget.watts) == t.budget  # and all else is its own
    own, left = reconstruction(DIES), reconstruction(DIES, left_out=True)
    compute = left["quantity"] == "16-bit compute"
    assert dict(zip(left["die"][compute], left["error"][compute].round(2), strict=True)) == {
        "v100": -0.54, "a100": 0.13, "h100": -0.13, "b200": -0.19
    }  # fmt: skip
    assert np.mean(np.abs(left["error"])) > np.mean(np.abs(own["error"]))


# Cost


def test_cost_of_silicon_by_hand() -> None:
    # 300 mm wafer, 814 mm2: pi 150^2 / 814 - pi 300 / sqrt(1628) = 86.84 - 23.36
    assert float(tco.dies_a_wafer(814e-6)) == pytest.approx(63.48, abs=0.01)
    # (1 + 0.814 / 3)^-3
    assert float(tco.die_yield(814e-6, 1000.0)) == pytest.approx(0.48665, abs=1e-4)
    assert float(tco.die_yield(814e-6, 1000.0, 0.9)) > float(tco.die_yield(814e-6, 1000.0))


def test_cost_of_ownership_sums_and_grows_with_power() -> None:
    b = tco.Bill(300.0, 1000.0, 700.0, 20_000.0, 28_000.0)
    cheap, dear = tco.tco(b, 8, 700.0, tco.Prices()), tco.tco(b, 8, 1000.0, tco.Prices(pue=1.5))
    assert sum(v for k, v in cheap.items() if k != "total") == pytest.approx(cheap["total"])
    assert dear["electricity"] > cheap["electricity"] and dear["capital"] == cheap["capital"]
    # the same money by the second
    seconds = 4.0 * tco.HOURS * 3600 * 0.8
    assert float(tco.usd_per_second(b, 700.0, tco.Prices())) * 8 * seconds == pytest.approx(cheap["total"])


def test_a_die_of_ones_own_says_what_differs(tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('base = "h100"\ntdp_w = 500\n[rates]\nfp8 = 3\n', encoding="utf-8")
    mine, known = load_technology(str(own)), load_technology("h100")
    assert mine.budget.power == 500 != known.budget.power and mine.style.rates["fp8"] == 3 != known.style.rates["fp8"]
    assert replace(mine, name="h100", budget=known.budget, style=known.style) == known
    own.write_text('base = "h100"\ntdp_w = 400\n', encoding="utf-8")
    assert load_technology(str(own)).budget.power == 400  # read anew
    own = tmp_path / "typo.toml"
    own.write_text('base = "h100"\nclock_mhz = 500\n', encoding="utf-8")
    with pytest.raises(RooflmError, match="unknown field 'clock_mhz': did you mean 'clock_ghz'"):
        load_technology(str(own))
    own = tmp_path / "other.toml"
    own.write_text('base = "h1000"\n', encoding="utf-8")
    with pytest.raises(RooflmError, match="unknown die 'h1000'"):
        load_technology(str(own))


@pytest.mark.parametrize("name", rows.names("link"))
def test_a_link_s_bandwidth_is_that_of_its_lanes_less_coding(name: str) -> None:
    """242 of 256 bytes of PCIe 6.0's flits, 128 of 130 bits before; the others' rates are net."""
    row, _ = rows.raw_row("link", name)
    assert 0.94 < 8.0 * row["bandwidth_gbs"] / (row["lanes"] * row["lane_gbps"]) <= 1.0
