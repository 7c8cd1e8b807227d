"""Collectives: volumes by hand, the ideal algorithms, the fitted form, groups over several tiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflm
from rooflm.catalogue.hardware import Link
from rooflm.kernels.collectives import (
    OPS,
    CollectiveConstants,
    fitted,
    hierarchical,
    ideal,
    library_hops,
    ranks_in_tiers,
    volume,
)
from rooflm.technology.tasks import sent_by_tier
from rooflm_fit.collectives import Table, interpolated, time

NCCL = CollectiveConstants(4.4e-6, 1.7e-6, 0.28, 0.0, 3.0, 0.66, 0.28, 0.2, 0.5e-6)


def link(kind: str, bandwidth: float = 450e9) -> Link:
    return Link("", kind, 8, bandwidth, 1e-6)


NODE = Link("", "nvlink", 8, 450e9, 0.5e-6)
FABRIC = Link("", "infiniband", 1024, 50e9, 5e-6)
ranks = st.integers(1, 512)
sizes = st.floats(0, 1e10)
ops = st.sampled_from(OPS)


@pytest.mark.parametrize(
    ("op", "by_hand"),
    [
        ("all_reduce", 2 * 7 * 1e6),  # ring: 7 steps of V/8 to reduce, 7 to gather
        ("reduce_scatter", 7 * 1e6),
        ("all_gather", 7 * 1e6),
        ("all_to_all", 7 * 1e6),  # its own eighth stays
        ("broadcast", 8e6),
        ("p2p", 8e6),
    ],
)
def test_volume_by_counting_chunks(op: str, by_hand: float) -> None:
    assert float(volume(op, 8e6, 8)) == pytest.approx(by_hand)


@given(op=ops, size=sizes)
def test_one_rank_is_free(op: str, size: float) -> None:
    assert float(volume(op, size, 1)) == 0
    assert float(ideal(op, size, 1, link("nvswitch", 1e9))) == 0
    assert float(time(op, size, 1, bandwidth=1e9, latency=1e-6, c=NCCL)) == 0
    for constants in (None, (NCCL, NCCL)):
        assert float(hierarchical(op, size, 1, (NODE, FABRIC), constants=constants)) == 0


def test_ideal_all_reduce_by_hand() -> None:
    # 2·7/8·1 GB / 450 GB/s = 3888.9 us; tree 2·3 hops; two-shot 3 hops; in-switch 1 GB / 450 GB/s + 2 hops
    tree = ideal("all_reduce", 1e9, 8, link("infiniband"))
    shot = ideal("all_reduce", 1e9, 8, link("nvlink"))
    switch = ideal("all_reduce", 1e9, 8, link("nvswitch"))
    assert float(tree) == pytest.approx(3888.889e-6 + 6e-6, rel=1e-6)
    assert float(shot) == pytest.approx(3888.889e-6 + 3e-6, rel=1e-6)
    assert float(switch) == pytest.approx(2222.222e-6 + 2e-6, rel=1e-6)


def test_small_all_reduce_takes_one_shot() -> None:
    assert float(ideal("all_reduce", 1e3, 8, link("nvlink", 1e12))) == pytest.approx(2.007e-6)


def test_two_regimes_by_hand() -> None:
    # one regime alone (the other made hopeless): 4.4 + 1.7·7 us + 1.75·1e6 / (0.28·450e9) = 16.3 + 13.889 us
    only_short = NCCL._replace(wait=1e6, grow=0.0)
    expected = 16.3e-6 + 1.75e6 / (0.28 * 450e9)
    assert float(time("all_reduce", 1e6, 8, bandwidth=450e9, latency=0.5e-6, c=only_short)) == pytest.approx(expected)
    # a link with 1 us more latency adds the six hops of a tree of 8
    slower = time("all_reduce", 1e6, 8, bandwidth=450e9, latency=1.5e-6, c=only_short)
    assert float(slower) == pytest.approx(expected + 6e-6)
    # a message of 16 KiB has half of the further latency: 16.3 (1 + 0.2 / 2) us, and its 28672 bytes
    half = time("all_reduce", 16384, 8, bandwidth=450e9, latency=0.5e-6, c=only_short._replace(grow=0.2))
    assert float(half) == pytest.approx(16.3e-6 * 1.1 + 1.75 * 16384 / (0.28 * 450e9))
    # the other regime: three times the latency, 0.66 · 4^0.28 of the rate (far above the switch the short one is out)
    large = time("all_reduce", 1e9, 8, bandwidth=450e9, latency=0.5e-6, c=NCCL)
    assert float(large) == pytest.approx(3 * 16.3e-6 + 1.75e9 / (0.66 * 4**0.28 * 450e9), rel=1e-4)


@given(op=ops, size=sizes, n=ranks, faster=st.floats(1, 10))
def test_more_bandwidth_is_never_slower(op: str, size: float, n: int, faster: float) -> None:
    for constants in (None, (NCCL, NCCL)):
        slow = hierarchical(op, size, n, (NODE, FABRIC), constants=constants)
        quick = tuple(replace(tier, bandwidth=tier.bandwidth * faster) for tier in (NODE, FABRIC))
        assert float(hierarchical(op, size, n, quick, constants=constants)) <= float(slow) * (1 + 1e-12)


@given(op=ops, size=st.floats(1, 1e10), n=ranks, more=st.floats(1, 10))
def test_more_bytes_are_never_quicker(op: str, size: float, n: int, more: float) -> None:
    for constants in (None, (NCCL, NCCL)):
        small = hierarchical(op, size, n, (NODE, FABRIC), constants=constants)
        large = hierarchical(op, size * more, n, (NODE, FABRIC), constants=constants)
        assert float(large) >= float(small) * (1 - 1e-12)


@given(op=ops, size=sizes, n=st.integers(2, 8))
def test_a_group_inside_a_node_is_flat(op: str, size: float, n: int) -> None:
    flat = time(op, size, n, bandwidth=NODE.bandwidth, latency=NODE.latency, c=NCCL)
    cost = hierarchical(op, size, n, (NODE, FABRIC), constants=(NCCL, NCCL))
    assert float(cost) == pytest.approx(float(flat), rel=1e-9)
    best = ideal(op, size, n, NODE)
    assert float(hierarchical(op, size, n, (NODE, FABRIC))) == pytest.approx(float(best), rel=1e-9)


@given(op=ops.filter(lambda op: op not in ("p2p", "broadcast")), size=sizes, n=ranks, stride=st.integers(1, 64))
def test_volume_over_the_tiers_is_the_flat_volume(op: str, size: float, n: int, stride: int) -> None:
    sent = sum(sent_by_tier(op, size, n, (NODE, FABRIC), stride))
    assert float(sent) == pytest.approx(float(volume(op, size, n)), rel=1e-9, abs=1e-9)


def test_arrays_equal_scalars() -> None:
    n, size, stride = np.array([[1], [2], [16], [64]]), np.array([0.0, 1e3, 1e6, 1e9]), 4
    for op in OPS:
        for constants in (None, (NCCL, NCCL)):
            grid = hierarchical(op, size, n, (NODE, FABRIC), constants=constants, stride=stride)
            assert np.shape(grid) == (4, 4)
            for i, j in np.ndindex(4, 4):
                one = hierarchical(op, size[j], int(n[i, 0]), (NODE, FABRIC), constants=constants, stride=stride)
                assert float(one) == pytest.approx(float(grid[i, j]), rel=1e-12)  # type: ignore[index]


def test_ranks_in_tiers_by_stride() -> None:
    held = ranks_in_tiers(np.array([4, 16, 64]), (8, 1024), stride=np.array([1, 4, 8]))
    assert np.asarray(held[0]).tolist() == [4, 2, 1]
    assert np.asarray(held[1]).tolist() == [4, 16, 64]


def test_groups_with_one_rank_a_node_pay_the_fabric_alone() -> None:
    cost = hierarchical("all_reduce", 1e9, 4, (NODE, FABRIC), stride=8)
    assert float(cost) == pytest.approx(1.5e9 / 50e9 + 2 * 2 * 5e-6)


def test_hierarchical_all_reduce_by_hand() -> None:
    # two nodes of 8: 1.75 GB over NVLink, beside it the eighth among 2 nodes, 0.125 GB over the NIC; or a slow NIC
    cost = hierarchical("all_reduce", 1e9, 16, (NODE, FABRIC))
    assert float(cost) == pytest.approx(1.75e9 / 450e9 + 3 * 0.5e-6 + 2 * 5e-6, rel=1e-3)
    slow = hierarchical("all_reduce", 1e9, 16, (NODE, replace(FABRIC, bandwidth=5e9)))
    assert float(slow) == pytest.approx(0.125e9 / 5e9 + 3 * 0.5e-6 + 2 * 5e-6, rel=1e-3)


def test_all_to_all_share_that_leaves_the_node() -> None:
    cost = hierarchical("all_to_all", 16e6, 16, (NODE, FABRIC))
    assert sent_by_tier("all_to_all", 16e6, 16, (NODE, FABRIC)) == pytest.approx((7e6, 8e6))
    assert float(cost) == pytest.approx(8e6 / 50e9 + 0.5e-6 + 5e-6)


def test_p2p_pays_the_slowest_tier_it_crosses() -> None:
    inside = hierarchical("p2p", 1e6, 4, (NODE, FABRIC), stride=2)
    across = hierarchical("p2p", 1e6, 8, (NODE, FABRIC), stride=2)
    assert sent_by_tier("p2p", 1e6, 8, (NODE, FABRIC), stride=2) == (0.0, 1e6)
    assert float(inside) == pytest.approx(1e6 / 450e9 + 0.5e-6)
    assert float(across) == pytest.approx(1e6 / 50e9 + 5e-6)


@pytest.mark.parametrize("library", ["nccl", "vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("architecture", ["hopper", "cdna"])
def test_every_generation_has_constants(architecture: str, library: str) -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"):
        c = fitted(op, gpu="", generation=architecture, library=library, kind="nvswitch")
        seconds = time(op, np.logspace(2, 9, 30), 8, bandwidth=450e9, latency=0.5e-6, c=c)
        assert np.all(np.diff(np.asarray(seconds)) > 0)


def test_measured_all_reduce_of_h200() -> None:
    # aiconfigurator 095f58a, NCCL 2.29.2, H200 SXM, 8 ranks: 64 MiB in 345 us; SGLang's kernel, 512 B in 3.0 us
    link = {"bandwidth": 450e9, "latency": 0.5e-6}
    c = fitted("all_reduce", gpu="h100-sxm-80gb", generation="hopper", library="nccl", kind="nvswitch")
    assert float(time("all_reduce", 67108864, 8, **link, c=c)) == pytest.approx(345e-6, rel=0.15)
    c = fitted("all_reduce", gpu="h100-sxm-80gb", generation="hopper", library="sglang", kind="nvswitch")
    assert float(time("all_reduce", 512, 8, **link, c=c)) == pytest.approx(3.0e-6, rel=0.15)


def test_hops_grow_as_measured() -> None:
    # H200, NCCL 2.29.2, 512 B: 6.06, 9.45 and 16.0 us at 2, 4 and 8 ranks, so 1.7 us for each of 1, 3 and 7 hops
    hops = np.asarray(library_hops(np.array([2.0, 4.0, 8.0])))
    assert 4.4 + 1.66 * hops == pytest.approx([6.06, 9.45, 16.0], rel=0.01)


def test_an_engine_takes_the_all_reduces_that_its_server_was_told_to() -> None:
    own, told, theirs = (
        rooflm.infer("llama-3.1-70b", gpu="b200", tp=8, engine=engine, quant="fp8", batch=8, sets=sets)
        for engine, sets in (("vllm", {}), ("vllm", {"engine.all_reduce": "flashinfer"}), ("trtllm", {}))
    )
    assert told.decode_parts["tp_comm"] < own.decode_parts["tp_comm"]
    logits = 5e-5  # which TensorRT-LLM does not gather
    assert float(told.decode_parts["tp_comm"]) == pytest.approx(float(theirs.decode_parts["tp_comm"]), abs=logits)


def test_networks_are_slower_than_nvlink() -> None:
    for op in ("all_reduce", "p2p", "all_gather", "all_to_all"):
        fast = fitted(op, gpu="h100-sxm-80gb", generation="hopper", library="nccl", kind="nvswitch")
        slow = fitted(op, gpu="h100-sxm-80gb", generation="hopper", library="nccl", kind="infiniband")
        within = time(op, 1e6, 2, bandwidth=450e9, latency=0.5e-6, c=fast)
        across = time(op, 1e6, 2, bandwidth=50e9, latency=2e-6, c=slow)
        assert float(across) > float(within)


def test_interpolation_misses_what_lies_off_the_line_between_neighbours() -> None:
    sizes = 2.0 ** np.arange(10, 17)
    third = np.arange(7) % 3
    even = Table(np.full(7, 4.0), sizes, np.full(7, 1e9), volume("all_reduce", sizes, 4) / 1e9 / 0.5, third)
    found = interpolated("all_reduce", even)
    assert found.rows == 5  # the first and the last size have one neighbour
    assert found.mape == pytest.approx(0.0, abs=1e-9)
    bent = even._replace(seconds=np.where(np.arange(7) == 3, 2.0, 1.0) * even.seconds)
    # size 3 is kept aside with 0 and 6: a line at 0.5 where 0.25 was measured; 2 and 4 see one half of its bend
    assert interpolated("all_reduce", bent).mape == pytest.approx(100 * (0.5 + 2 * (2**0.5 - 1)) / 5, rel=0.02)


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p"])
@pytest.mark.parametrize(("gpu", "cards"), [("mi300x", 8), ("mi325x", 8), ("mi355x", 8), ("mi300a", 4)])
def test_a_group_of_a_mesh_has_its_own_links_whatever_it_does(gpu: str, cards: int, op: str) -> None:
    """Seven peers a card: two cards have one link of them, four three each; a message between two has one. Of four
    APUs each has a third of its rate to another."""
    cluster = rooflm.load_cluster(f"{gpu}-box")
    tier, big = cluster.tiers[0], 1e9
    own = fitted(op, "", cluster.device.kernel_generation, "nccl", tier.kind)
    for ranks in (n for n in (2, 4, 8) if n <= cards):
        peers = 1 if op == "p2p" else ranks - 1
        seconds = hierarchical(op, big, ranks, [tier], constants=[own])
        assert 0.45 < volume(op, big, ranks) / (peers * tier.bandwidth / (cards - 1)) / seconds <= 1.0


def test_a_ring_of_few_channels_takes_one_link_unless_all_cards_take_part() -> None:
    """RCCL before ROCm 6.2 (ROCm/rccl pull request 1195): four of eight MI300X send over one link each, as two do."""
    tier = rooflm.load_cluster("mi300x-box").tiers[0]
    own = fitted("all_reduce", "", "cdna3", "nccl", tier.kind)
    plain, few = own, own._replace(whole=8.0)
    rate = [
        [float(volume("all_reduce", 1e9, n) / hierarchical("all_reduce", 1e9, n, [tier], constants=[each]))
         for n in (2, 4, 8)]
        for each in (plain, few)
    ]  # fmt: skip
    assert rate[1][1] == pytest.approx(rate[1][0], rel=0.01) and rate[0][1] > 2.5 * rate[0][0]
    assert (rate[1][0], rate[1][2]) == (rate[0][0], rate[0][2])
    engines = ("vllm-2024-rocm", "vllm")
    old, new = (rooflm.infer("llama-2-70b", gpu="mi300x", tp=4, batch=128, engine=e) for e in engines)
    assert float(old.decode_parts["tp_comm"]) > 2.0 * float(new.decode_parts["tp_comm"])


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_a_ring_over_nodes_sends_what_its_own_node_holds_too(op: str) -> None:
    node, fabric = Link("", "nvswitch", 8, 1e15, 0.0), Link("", "infiniband", 1024, 50e9, 0.0)
    rule = CollectiveConstants(0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0)
    run = {n: hierarchical(op, 8e9, n, (node, fabric), constants=(rule, rule)) for n in (16, 64)}
    assert float(run[16]) == pytest.approx(15 / 16 * 8e9 / 8 / 50e9, rel=0.07)  # not 1/2: the blend of two regimes
    assert float(run[64]) == pytest.approx(63 / 64 * 8e9 / 8 / 50e9, rel=0.07)  # not 7/8
    pods = (Link("", "ici", 8, 1e15, 0.0), fabric)
    assert float(hierarchical(op, 8e9, 16, pods, constants=(rule, rule))) < 0.6 * float(run[16])


def test_over_nodes_an_engines_own_all_reduce_is_nccls() -> None:
    """Its kernels read the memory of peers; of 16 H20 on two nodes NCCL takes 46 us and more (nccl issue 1244)."""
    run = {"gpu": "h20", "engine": "sglang", "batch": 1}

    def each(tp: int, **more: str) -> float:
        timed = rooflm.infer("deepseek-v3", tp=tp, **run, **more).timed["decode"]
        return next(float(t.time) for t in timed if t.node.name == "tp_all_reduce")

    told = {"sets": {"engine.all_reduce": "nccl"}}
    assert each(16) == pytest.approx(each(16, **told))
    assert each(16) == pytest.approx(46e-6, rel=0.15)
    assert each(8) < 0.8 * each(8, **told)
    grid = rooflm.infer("deepseek-v3", tp=[8, 16], **run)["tpot_s"].values
    assert grid == pytest.approx([float(rooflm.infer("deepseek-v3", tp=n, **run).tpot) for n in (8, 16)])


def test_sizes_of_several_tiers_inside_a_node_may_be_lists() -> None:
    run = {"cluster": "a100-pcie-box", "tp": 4}
    grid = rooflm.infer("llama-3.1-8b", **run, sets={"cluster.tiers.0.size": [2, 4]})["tpot_s"].values
    each = [rooflm.infer("llama-3.1-8b", **run, sets={"cluster.tiers.0.size": n}) for n in (2, 4)]
    assert grid == pytest.approx([float(e.tpot) for e in each])
    assert grid[1] < grid[0]
