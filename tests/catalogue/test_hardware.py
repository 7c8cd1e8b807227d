"""Hardware descriptions: plain, frozen, and as happy with arrays as with numbers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from rooflm.catalogue.hardware import Cluster, Derating, Device, Link, Measured, Memory
from rooflm.readers.devices import default_cluster, load_cluster, load_device


def test_every_field_says_what_it_is() -> None:
    """A row is read by what its fields say of themselves; those that say nothing are not in it as they are."""
    silent = {"name", "peak", "measured", "priced", "inferred", "device", "own", "off"}
    for kind in (Device, Memory, Link, Cluster, Measured, Derating):
        assert {f.name for f in fields(kind) if not f.metadata} <= silent, kind


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        load_device("a100").tdp = 1.0  # type: ignore[misc]


def test_fields_may_be_arrays() -> None:
    device = load_device("a100")
    bandwidth = np.array([1e12, 2e12, 4e12])
    wide = replace(device, dram=replace(device.dram, bandwidth=bandwidth))
    balance = wide.peak["bf16"] / wide.dram.bandwidth
    np.testing.assert_allclose(balance, [312, 156, 78])
    assert device.dram.bandwidth == 2.039e12


def test_a_clusters_defaults() -> None:
    cluster = Cluster("one", load_device("a100"))
    assert cluster.tiers == () and cluster.host_bandwidth == 25e9 and cluster.launching == 1


@pytest.mark.parametrize("card", ["a100-pcie-40gb", "a100-pcie-80gb", "a800-pcie-80gb"])
def test_cards_for_slots_stand_without_bridges(card: str) -> None:
    """Bridges are an accessory; cards whose name has them (NVL) come with them."""
    assert all(tier.kind != "nvlink" for tier in load_cluster(default_cluster(card), card).tiers)
    assert load_cluster(default_cluster("h100-nvl-94gb"), "h100-nvl-94gb").tiers[0].kind == "nvlink"
