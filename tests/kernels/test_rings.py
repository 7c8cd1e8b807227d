"""Rings over nodes: what gathers wait for as a cluster grows, and what of a step it costs."""

from dataclasses import replace

import numpy as np
import pytest

import rooflm
from rooflm.catalogue.hardware import Link
from rooflm.graph.ops import Comm
from rooflm.kernels.collectives import ring_wait

NODE, FABRIC = Link("", "nvlink", 8, 450e9, 1e-6), Link("", "infiniband", 2**20, 50e9, 5e-6)


def gather(ranks: object, op: str = "all_gather", stride: object = 1) -> Comm:
    return Comm("gather", "dp_comm", op, 1, 1e6, ranks, stride, "dp")


def test_hops_within_and_between_nodes() -> None:
    wait = float(ring_wait(gather(16), (NODE, FABRIC)))
    assert wait == pytest.approx(14 * 3.4e-6 + 14e-6)  # 15 hops, one of them between the two nodes
    assert float(ring_wait(gather(16, stride=8), (NODE, FABRIC))) == pytest.approx(15 * 14e-6)


def test_none_within_a_node_for_sums_or_over_other_links() -> None:
    assert float(ring_wait(gather(8), (NODE, FABRIC))) == 0
    assert ring_wait(gather(64, "all_reduce"), (NODE, FABRIC)) == 0
    assert ring_wait(gather(64), (NODE, replace(FABRIC, kind="dcn"))) == 0


def test_an_array_of_groups_is_each_group_alone() -> None:
    ranks = np.array([1.0, 8.0, 64.0, 1024.0])
    alone = [float(ring_wait(gather(n), (NODE, FABRIC))) for n in ranks]
    assert np.asarray(ring_wait(gather(ranks), (NODE, FABRIC))) == pytest.approx(alone)


def test_owners_of_tensors_call_once_each() -> None:
    layers = gather(256)._replace(count=32)
    each = float(ring_wait(gather(256), (NODE, FABRIC)))
    assert float(ring_wait(layers, (NODE, FABRIC))) == pytest.approx(32 * each)
    assert float(ring_wait(layers, (NODE, FABRIC), owners=True)) == pytest.approx(256 * each)


def test_sharded_steps_slow_down_as_the_cluster_grows() -> None:
    def step(gpus: int, efficiency: str = "calibrated") -> float:
        found = rooflm.train(
            "llama-3.1-8b", gpu="h100-sxm-80gb", gpus=gpus, batch=4 * gpus, seq=2048, micro_batch=4, engine="fsdp",
            efficiency=efficiency,
        )  # fmt: skip
        return float(found.step_time)

    assert 1.03 < step(512) / step(64) < 1.3  # 0.7 of 96 rings of 2.4 ms, in a step of a second
    assert step(512, "ideal") / step(64, "ideal") < 1.01
