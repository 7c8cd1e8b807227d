"""Hardware descriptions: plain, frozen, and as happy with arrays as with numbers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import msgspec
import numpy as np
import pytest

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.hardware import DTYPES, Cluster, Device, Link, Memory


def test_the_catalogue_reads_every_data_type() -> None:
    assert set(catalogue._PeakRow.__struct_fields__) == set(DTYPES)


def test_the_catalogue_reads_every_field() -> None:
    """A field added to a dataclass must be added to its row, or it would silently keep its default."""
    pairs = [(Device, catalogue._DeviceRow), (Memory, catalogue._MemoryRow), (Link, catalogue._LinkRow)]
    for described, row in pairs:
        told = {"name", "inferred", "priced"}  # of the row itself, not in it
        assert {f.name for f in fields(described)} - told <= {f.name for f in msgspec.structs.fields(row)}
    assert {f.name for f in fields(Cluster)} - {"name"} <= {
        f.name for f in msgspec.structs.fields(catalogue._ClusterRow)
    }


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        catalogue.load_device("a100").tdp = 1.0  # type: ignore[misc]


def test_fields_may_be_arrays() -> None:
    device = catalogue.load_device("a100")
    bandwidth = np.array([1e12, 2e12, 4e12])
    wide = replace(device, dram=replace(device.dram, bandwidth=bandwidth))
    balance = wide.peak["bf16"] / wide.dram.bandwidth
    np.testing.assert_allclose(balance, [312, 156, 78])
    assert device.dram.bandwidth == 2.039e12


def test_a_clusters_defaults() -> None:
    cluster = Cluster("one", catalogue.load_device("a100"))
    assert cluster.tiers == () and cluster.host_bandwidth == 25e9
    assert Memory(1.0, 2.0).latency == 0.0
