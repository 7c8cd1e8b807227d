"""Collectives between nodes: the shipped rows are what their table's fit makes, and each network is told by its own."""

import pandas as pd
import pytest

from rooflm.kernels.collectives import fitted
from rooflm_fit import networks
from rooflm_fit.__main__ import ROOT
from rooflm_fit.collectives import ELSEWHERE

TABLE = pd.read_csv(ROOT / "docs" / "measured" / "networks.csv")


def test_the_shipped_row_is_its_fit() -> None:
    """Of the smallest fit; the others run alike."""
    kin = next(k for k in networks.KIN if (k.kind, k.op) == ("gpudirect-tcp", "all_reduce"))
    rows = TABLE[(TABLE["kind"] == kin.kind) & (TABLE["op"] == kin.op)]
    rows = rows[~rows["source"].str.contains("|".join(networks.UNLIKE))]
    made = networks.constants_of(networks.fit(rows, kin.op, kin.kind), kin.op, kin.kind)
    shipped = fitted(kin.op, "h100-sxm-80gb", "hopper", "nccl", kin.kind)
    assert [made.start, made.eff_short, made.wait, made.eff_long] == pytest.approx(
        [shipped.start, shipped.eff_short, shipped.wait, shipped.eff_long], rel=0.01
    )


def test_every_network_has_constants_of_its_own() -> None:
    """What was fitted here is found by its kind, and is no other network's."""
    for kin in networks.KIN:
        for op in (kin.op, *kin.also):
            mine = fitted(op, "b200-sxm-192gb", "blackwell", "nccl", kin.kind)
            assert mine != fitted(op, "b200-sxm-192gb", "blackwell", "nccl", "ethernet")
    assert {(library, op, kind) for library, op, kind in ELSEWHERE} <= {("nccl", k.op, k.kind) for k in networks.KIN}


def test_a_row_of_the_table_says_what_was_measured() -> None:
    assert TABLE["url"].str.contains("GitHub|github").all() and (TABLE["ranks"] > TABLE["ranks_a_node"]).all()
    assert not TABLE.duplicated(["source", "op", "gpu", "ranks", "bytes", "kind", "link_bytes_per_s"]).any()
