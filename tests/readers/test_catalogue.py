"""The device and cluster catalogue: every row loads, is sensible, dense, sourced and pinned; bad input teaches."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from rooflm.catalogue.hardware import DTYPES
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.readers import rows
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import default_cluster, load_cluster, load_device
from rooflm.readers.provenance import provenance, source_named, sources

DEVICES = catalogue.names("gpu")
CLUSTERS = catalogue.names("cluster")

ASKED = [
    "t4", "v100-sxm-16gb", "v100-sxm-32gb", "rtx-3060-12gb", "rtx-3070", "rtx-3080", "rtx-3080-ti", "rtx-3090",
    "rtx-4070-ti", "rtx-4090", "rtx-5090", "a10", "a30", "a40", "rtx-a6000", "rtx-4000-ada", "rtx-5000-ada",
    "rtx-6000-ada", "l4", "l40", "l40s", "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb",
    "h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "h100-sxm-96gb", "h20", "h800", "h200-sxm-141gb", "gh200",
    "gh200-144gb", "b200-sxm-180gb", "gb200", "b300", "gb300", "rtx-pro-6000", "rtx-pro-6000-server", "mi100",
    "mi210", "mi250", "mi250x", "mi250x-gcd", "mi300x", "mi325x", "mi355x", "gaudi2", "gaudi3", "tpu-v3", "tpu-v4",
    "tpu-v5e", "tpu-v5p", "tpu-v6e", "m1", "m1-pro", "m1-max", "m2-ultra", "m3-max", "jetson-agx-orin", "xeon-8480",
    "epyc-9654",
]  # fmt: skip

VENDOR = {  # dense TFLOP/s, typed from datasheets and whitepapers, not from the data files
    ("v100", "fp16"): 125,
    ("t4", "int8"): 130,
    ("a100", "bf16"): 312,
    ("a100", "int8"): 624,
    ("a100", "int4"): 1248,
    ("a30", "bf16"): 165,
    ("a40", "fp16"): 149.7,
    ("l4", "fp16"): 121,
    ("l40s", "fp8"): 733,
    ("h100", "bf16"): 989.4,
    ("h100", "fp8"): 1978.9,
    ("h100-pcie", "bf16"): 756,
    ("h200", "fp8"): 1979,
    ("h20", "bf16"): 148,
    ("b200", "fp4"): 9000,
    ("b200", "bf16"): 2250,
    ("gb200", "fp8"): 5000,
    ("gb300", "fp4"): 15000,
    ("rtx-3090", "bf16"): 71,
    ("rtx-4090", "fp16"): 165.2,
    ("rtx-5090", "fp4"): 1676,
    ("rtx-a6000", "bf16"): 154.8,
    ("rtx-6000-ada", "fp8"): 728.5,
    ("rtx-pro-6000", "bf16"): 503.8,
    ("mi250x", "bf16"): 383,
    ("mi300x", "bf16"): 1307.4,
    ("mi300x", "fp8"): 2614.9,
    ("mi355x", "fp4"): 10066,
    ("gaudi3", "bf16"): 1835,
    ("tpu-v5p", "bf16"): 459,
    ("tpu-v6e", "int8"): 1836,
}

BANDWIDTH = {"a100": 2.039, "a100-pcie-80gb": 1.935, "h100": 3.35, "h200": 4.8, "b200": 7.7, "rtx-3090": 0.936}

FP16_PER_SM = {
    "volta": 1024, "turing": 1024, "hopper": 4096, "blackwell": 8192, "cdna3": 2048, "cdna4": 4096, "rdna3": 512,
    "rdna4": 1024, "xe-hpg": 2048, "xe2": 2048,
}  # fmt: skip
"""FLOPs a clock of one SM or CU in 16 bits, dense: twice these would be the sparse figure."""

SMALLER = {r"rtx-(?!pro)\d{4}(?!.*ada)": {"turing": 512, "blackwell": 512}, r"rtx-pro|gb10": {"blackwell": 1024}}
"""Products with smaller tensor cores than the data-centre's of their generation."""


def test_the_asked_devices_are_all_there() -> None:
    assert len(DEVICES) >= 60
    assert len({catalogue.resolve("gpu", name) for name in ASKED}) == len(ASKED)


@pytest.mark.parametrize("name", DEVICES)
def test_device_is_sensible(name: str) -> None:
    device = load_device(name)
    sizes = (device.l1.size, device.l2.size, device.dram.size)
    rates = (device.l1.bandwidth, device.l2.bandwidth, device.dram.bandwidth)
    values = [*device.peak.values(), *sizes, *rates, device.sms, device.clock, device.tdp, device.idle, device.price]
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert device.dram.bandwidth < device.l2.bandwidth <= device.l1.bandwidth
    assert device.l1.size < device.dram.size and device.l2.size < device.dram.size
    assert device.idle < device.tdp <= 1500
    assert 2016 <= device.year <= 2026
    assert 0.3e9 < device.clock < 5e9  # desktop CPUs' base clocks come nearest
    assert default_cluster(name) in CLUSTERS


@pytest.mark.parametrize("name", DEVICES)
def test_peaks_are_in_order(name: str) -> None:
    """A narrower type is never slower, and at most four times as fast (GeForce: int8 has no fp32 accumulation)."""
    peak = load_device(name).peak
    assert set(peak) <= set(DTYPES) and "fp32" in peak and {"fp16", "bf16"} & set(peak)
    assert peak["fp32"] <= min(peak.get("tf32", math.inf), peak.get("fp16", math.inf), peak.get("bf16", math.inf))
    for wide, narrow in (("tf32", "fp16"), ("fp16", "fp8"), ("fp16", "int8"), ("fp8", "fp4"), ("int8", "int4")):
        if wide in peak and narrow in peak and not (narrow == "int8" and "b300" in name):
            assert peak[wide] <= 1.001 * peak[narrow] <= 4.01 * peak[wide]


@pytest.mark.parametrize(("name", "dtype"), list(VENDOR))
def test_peak_is_the_vendors_dense_figure(name: str, dtype: str) -> None:
    assert load_device(name).peak[dtype] / 1e12 == pytest.approx(VENDOR[name, dtype], rel=0.005)


@pytest.mark.parametrize("name", DEVICES)
def test_peak_is_dense_by_the_size_of_the_tensor_core(name: str) -> None:
    device = load_device(name)
    expected = FP16_PER_SM.get(device.architecture)
    for names, smaller in SMALLER.items():
        if re.match(names, name):
            expected = smaller.get(device.architecture, expected)
    if name.startswith("h20-"):
        expected = 1024  # cut for export
    if expected is not None:
        assert device.peak["fp16"] / device.sms / device.clock == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", list(BANDWIDTH))
def test_memory_bandwidth(name: str) -> None:
    assert load_device(name).dram.bandwidth / 1e12 == pytest.approx(BANDWIDTH[name], rel=0.002)


def test_sums_are_pinned() -> None:
    """A changed value shows here: update the sums in the commit that changes the data and says why."""
    devices = [load_device(name) for name in DEVICES]
    sums = {dtype: round(sum(d.peak.get(dtype, 0.0) for d in devices) / 1e12, 1) for dtype in DTYPES}
    assert len(devices) == 284
    assert sums == PINNED_PEAKS
    assert round(sum(d.dram.size for d in devices) / 2**30, 1) == PINNED["dram_gib"]
    assert round(sum(d.dram.bandwidth for d in devices) / 1e12, 3) == PINNED["dram_tb_s"]
    assert round(sum(d.l2.bandwidth for d in devices) / 1e12, 2) == PINNED["l2_tb_s"]
    assert sum(d.sms for d in devices) == PINNED["sms"]
    assert sum(d.tdp for d in devices) == PINNED["tdp"]
    assert round(sum(d.price for d in devices), 2) == PINNED["price"]


PINNED_PEAKS = {
    "fp32": 7712.1, "tf32": 18915.7, "fp16": 51347.7, "bf16": 54185.3, "fp8": 83346.7, "int8": 93848.7,
    "fp4": 91080.2, "int4": 54137.7,
}  # fmt: skip
PINNED = {
    "dram_gib": 20640.0, "dram_tb_s": 285.003, "l2_tb_s": 1384.15, "sms": 16822.0, "tdp": 70626.0, "price": 182.35,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["gpu", "cluster"])
def test_names_and_aliases_are_unique_and_lower_case(kind: str) -> None:
    every = [row for path in rows.row_files(kind) for row in rows.rows_of(path)]
    names = Counter(rows.normalise(row.name) for row in every)
    others = Counter(
        alias
        for row in every
        for alias in {rows.normalise(text) for text in rows.raw_row(kind, row.name)[0].get("aliases", ())}
    )
    assert max(names.values()) == 1
    assert max(others.values()) == 1
    assert not set(names) & set(others)
    assert all(re.fullmatch(r"[a-z0-9.-]+", row.name) for row in every)


@pytest.mark.parametrize("name", DEVICES)
def test_every_value_of_a_device_has_a_source(name: str) -> None:
    origin = provenance("gpu", name)
    row, _ = catalogue.raw_row("gpu", name)
    for field in ("sms", "clock", "l1.size", "l1.bandwidth", "l2.size", "l2.bandwidth", "dram.size", "dram.bandwidth"):
        assert field in origin
    assert {f"peak.{dtype}" for dtype in row["peak"]} <= set(origin)
    assert {"tdp", "idle", "price"} <= set(origin)
    _complete(origin.values())
    _all_used("gpu", row, origin)


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_value_of_a_cluster_has_a_source(name: str) -> None:
    origin = provenance("cluster", name)
    row, _ = catalogue.raw_row("cluster", name)
    wanted = {f"tiers.{tier['name']}.{field}" for tier in row["tiers"] for field in ("size", "bandwidth", "latency")}
    assert wanted | {"host_bandwidth"} <= set(origin)
    _complete(origin.values())
    _all_used("cluster", row, origin)


def _complete(origins: Iterable[rows.Source]) -> None:
    for origin in origins:
        assert len(origin.source) > 10
        assert re.fullmatch(r"20[12]\d-[01]\d", origin.date)


def _all_used(kind: str, row: dict[str, object], origin: dict[str, object]) -> None:
    """No `from` key names a field that the row lacks."""
    keys = set(row["from"]) - {"default"}  # type: ignore[call-overload]
    assert all(any(path == key or path.startswith(key + ".") for path in origin) for key in keys), keys


@pytest.mark.parametrize("kind", ["gpu", "cluster"])
def test_every_source_is_used(kind: str) -> None:
    used = {p for name in catalogue.names(kind) for p in provenance(kind, name).values()}
    assert {source_named(kind, key) for key in sources(kind)} <= used


def test_what_is_inferred_is_marked() -> None:
    for name in DEVICES:
        origin = provenance("gpu", name)
        assert origin["idle"].kind != "vendor"
        assert origin["l1.bandwidth"].kind == "inferred" or name.startswith(("apple", "gaudi"))
        assert origin["l2.bandwidth"].kind != "vendor" or name.startswith(("mi3", "gaudi"))
        assert origin["dram.bandwidth"].kind != "inferred" or name.startswith(
            ("h20-", "h800", "l20", "mi250", "xeon", "epyc")
        )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a100", "a100-sxm-80gb"), ("h100", "h100-sxm-80gb"), ("v100", "v100-sxm-32gb"), ("b200", "b200-sxm-180gb"),
        ("H200", "h200-sxm-141gb"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("nvidia_h100_80gb hbm3", "h100-sxm-80gb"), ("RTX 3060", "rtx-3060-12gb"), ("rtx_4090", "rtx-4090"),
        (" MI300X ", "mi300x"),
    ],
)  # fmt: skip
def test_aliases_in_any_spelling(text: str, name: str) -> None:
    assert load_device(text).name == name


def test_unknown_names_come_with_near_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'h100-sxm5': did you mean 'h100-sxm-80gb'") as caught:
        load_device("h100-sxm5")
    assert len(caught.value.near) == len(set(caught.value.near)) <= 3
    with pytest.raises(UnknownNameError, match=r"unknown cluster 'dgx-a10': did you mean 'dgx-a100'"):
        load_cluster("dgx-a10")
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'h1oo': did you mean 'h100-sxm-80gb'"):
        load_device("h1oo")
    with pytest.raises(UnknownNameError, match=r"unknown GPU 'zzz'; see `rooflm list gpus`"):
        load_device("zzz")


def test_cards_without_a_row_name_the_nearest_and_why() -> None:
    """Each nearest row is one, and no card with a row is taken for one without."""
    beside = rows._near("gpu")
    assert all(not near or rows.resolve("gpu", near) == near for near, _ in beside.values())
    assert not [n for n in rows.aliases("gpu") if any(re.match(begins, rows.product(n)) for begins in beside)]
    for typed, said in {
        "VR200 NVL144": r"did you mean 'gb300' \(the generation before",
        "RTX 5090D v2": r"did you mean 'rtx-5090' \(of which it has 2,375 .* 1,344 of 1,792 GB/s",
        "RTX PRO 4500 Blackwell Server Edition": r"did you mean 'rtx-pro-4500-32gb'",
        "Ascend 910B3": r"did you mean 'a100-sxm-80gb' \(of which Huawei says",
        "Ascend 310P": r"see `rooflm list gpus` \(no NPU has a row\); a file with its peak, memory and",
    }.items():
        with pytest.raises(UnknownNameError, match=said):
            load_device(typed)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("ml.g5.2xlarge", "a10g"), ("p3.16xlarge", "v100-sxm-16gb"), ("p5.4xlarge", "h100-sxm-80gb"),
        ("a2-ultragpu-8g", "a100-sxm-80gb"), ("ct6e-standard-8t", "tpu-v6e"), ("VM.GPU.A10.2", "a10"),
        ("gpu_1x_h100_pcie", "h100-pcie-80gb"), ("Standard_NV36ads_A10_v5", "a10"), ("A800 40GB", "a800-pcie-40gb"),
        ("ASUS Ascent GX10", "gb10"), ("RTX 4090D", "rtx-4090-d"),
    ],
)  # fmt: skip
def test_instances_and_products_as_typed(typed: str, name: str) -> None:
    assert load_device(typed).name == name


@pytest.mark.parametrize("name", CLUSTERS)
def test_cluster_is_sensible(name: str) -> None:
    own = catalogue.raw_row("cluster", name)[0]["device"]
    cluster = load_cluster(name, "a100" if own == "*" else None)
    assert cluster.tiers
    speeds = [tier.bandwidth for tier in cluster.tiers]
    assert speeds == sorted(speeds, reverse=True)
    assert all(1e8 <= tier.bandwidth <= 2e12 and 1e-7 <= tier.latency <= 1e-4 for tier in cluster.tiers)
    assert all(tier.size >= 2 for tier in cluster.tiers)
    assert 5e9 < cluster.host_bandwidth < 1e12


@pytest.mark.parametrize(
    ("name", "device", "tiers"),
    [
        ("dgx-a100", "a100-sxm-80gb", [(8, 300e9), (2**20, 25e9)]),
        ("dgx-h100", "h100-sxm-80gb", [(8, 450e9), (2**20, 50e9)]),
        ("dgx-b200", "b200-sxm-180gb", [(8, 900e9), (2**20, 50e9)]),
        ("gb200-nvl72", "gb200", [(72, 900e9), (2**20, 50e9)]),
        ("mi300x-box", "mi300x", [(8, 448e9), (2**20, 50e9)]),
        ("tpu-v5e-pod", "tpu-v5e", [(256, 200e9), (2**20, 3.125e9)]),
    ],
)
def test_known_clusters(name: str, device: str, tiers: list[tuple[int, float]]) -> None:
    cluster = load_cluster(name)
    assert cluster.device is load_device(device)
    assert [(tier.size, tier.bandwidth) for tier in cluster.tiers] == tiers


def test_nodes_that_hold_their_own_device_below_its_watts(tmp_path: Path) -> None:
    held, alone = load_cluster("gh200-quad").device, load_cluster("gh200-node").device
    assert held.power_limit == 660 and alone.power_limit == math.inf and alone.tdp == 900
    assert load_cluster("gh200-quad", "gh200").device == held
    assert load_cluster("gh200-quad", replace(held, power_limit=500)).device.power_limit == 500
    assert load_cluster("gh200-quad", "h100").device == load_device("h100")
    own = tmp_path / "own.toml"
    own.write_text('base = "gh200-quad"\ndevice = "*"\npower_limit = "400 W"\n')
    assert load_cluster(str(own), "h100").device.power_limit == 400
    own.write_text('base = "gh200-quad"\npower_limit = "0 W"\n')
    with pytest.raises(RooflmError, match="power_limit"):
        load_cluster(str(own))


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_stands_in_its_default_cluster(name: str) -> None:
    cluster = load_cluster(default_cluster(name), name)
    assert cluster.device.name == name


def test_a_cluster_for_any_device_wants_one() -> None:
    with pytest.raises(RooflmError, match="takes any device, so name one"):
        load_cluster("10gbe")
    device = load_device("rtx-3060")
    assert load_cluster("10gbe", device).device is device
    assert load_cluster("dgx-a100", "a100-sxm-40gb").device.dram.size == 40 * 2**30


def test_a_cluster_without_a_device_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[tiers]]\nkind = "nvlink"\nsize = 8\nbandwidth = "450 GB/s"\n', encoding="utf-8")
    with pytest.raises(RooflmError, match=r"mine.* lacks the field 'device': the name of a card"):
        load_cluster(str(path))
