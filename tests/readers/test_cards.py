"""Devices that people bring: printed product names resolve, rows hold together physically, every device answers."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict

import pytest

from rooflm import infer
from rooflm.asked.machine import find_cluster
from rooflm.cli import main
from rooflm.errors import UnknownNameError
from rooflm.readers import rows
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import load_cluster, load_device

DEVICES = catalogue.names("gpu")

PASCAL = {
    "NVIDIA GeForce GTX 1060 6GB": "gtx-1060-6gb",
    "NVIDIA GeForce GTX 1070": "gtx-1070",
    "NVIDIA GeForce GTX 1080": "gtx-1080",
    "GeForce GTX 1080 Ti": "gtx-1080-ti",
    "Tesla P40": "p40",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
}
PRINTED = (
    PASCAL
    | {"Trainium 2": "trainium2"}
    | {  # as nvidia-smi, rocm-smi, /proc/cpuinfo, sysctl and xpu-smi print them
        "NVIDIA GeForce RTX 2060": "rtx-2060",
        "GeForce RTX 2080 Ti": "rtx-2080-ti",
        "NVIDIA GeForce RTX 2080 Super with Max-Q Design": "rtx-2080-super-laptop",
        "NVIDIA TITAN RTX": "titan-rtx",
        "NVIDIA GeForce RTX 3060 Ti": "rtx-3060-ti",
        "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti",
        "NVIDIA GeForce RTX 3050 6GB Laptop GPU": "rtx-3050-laptop-6gb",
        "NVIDIA GeForce RTX 3080 Laptop GPU": "rtx-3080-laptop-8gb",
        "NVIDIA GeForce RTX 4060": "rtx-4060",
        "NVIDIA GeForce RTX 4060 Ti": "rtx-4060-ti-8gb",
        "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx-4070-ti-super",
        "NVIDIA GeForce RTX 4090 D": "rtx-4090-d",
        "NVIDIA GeForce RTX 4090 Laptop GPU": "rtx-4090-laptop",
        "NVIDIA GeForce RTX 5070 Ti Laptop GPU": "rtx-5070-ti-laptop",
        "NVIDIA GeForce RTX 5080": "rtx-5080",
        "Quadro RTX 6000": "quadro-rtx-6000",
        "NVIDIA RTX A2000 12GB": "rtx-a2000-12gb",
        "NVIDIA RTX A5000": "rtx-a5000",
        "NVIDIA RTX 2000 Ada Generation": "rtx-2000-ada",
        "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
        "NVIDIA RTX PRO 4000 Blackwell SFF Edition": "rtx-pro-4000-sff-24gb",
        "NVIDIA RTX PRO 5000 72GB Blackwell": "rtx-pro-5000-72gb",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-96gb",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-max-q-96gb",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-server-96gb",
        "Tesla T4": "t4",
        "NVIDIA T4G": "t4g",
        "Tesla V100-SXM3-32GB": "v100-sxm-32gb",
        "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
        "NVIDIA A2": "a2",
        "NVIDIA A10G": "a10g",
        "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
        "A100-SXM4-40GB": "a100-sxm-40gb",
        "NVIDIA A800-SXM4-80GB": "a800-sxm-80gb",
        "NVIDIA L4": "l4",
        "NVIDIA L20": "l20",
        "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
        "NVIDIA H100 NVL": "h100-nvl-94gb",
        "NVIDIA H20-3e": "h20-sxm-141gb",
        "NVIDIA H200 NVL": "h200-nvl-141gb",
        "NVIDIA GH200 144G HBM3e": "gh200-144gb",
        "NVIDIA B300 SXM6 AC": "b300-sxm-288gb",
        "NVIDIA GB300": "gb300",
        "NVIDIA GB10": "gb10",
        "NVIDIA Thor": "jetson-thor-128gb",
        "Orin (nvgpu)": "jetson-agx-orin-64gb",
        "NVIDIA Jetson AGX Orin Developer Kit": "jetson-agx-orin-64gb",
        "AMD Instinct MI300X OAM": "mi300x",
        "AMD Radeon RX 7900 XTX": "rx-7900-xtx",
        "Radeon RX 9070 XT": "rx-9070-xt",
        "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S": "strix-halo-128gb",
        "Intel(R) Arc(TM) A770 Graphics": "arc-a770-16gb",
        "Intel(R) Arc(TM) Pro B60 Graphics": "arc-pro-b60",
        "INTEL(R) XEON(R) PLATINUM 8592+": "xeon-8592",
        "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz": "xeon-8380",
        "AMD EPYC 7763 64-Core Processor": "epyc-7763",
        "AMD Ryzen 9 9950X 16-Core Processor": "ryzen-9-9950x",
        "AMD Ryzen Threadripper 7980X 64-Cores": "threadripper-7980x",
        "Intel(R) Core(TM) i9-14900K": "core-i9-14900k",
        "Intel(R) Core(TM) Ultra 9 285K": "core-ultra-9-285k",
        "Apple M4 Max": "apple-m4-max-40core-128gb",
    }
)

WRITTEN = {  # as people write them
    "4070 ti super": "rtx-4070-ti-super",
    "rtx4070ti": "rtx-4070-ti",
    "rtx 4090 mobile": "rtx-4090-laptop",
    "RTX 4060 Ti 16GB": "rtx-4060-ti-16gb",
    "rtx 5060 ti 16 gb": "rtx-5060-ti-16gb",
    "RTX 3090 24GB": "rtx-3090",
    "RX 7900XTX": "rx-7900-xtx",
    "m3max": "apple-m3-max-40core-64gb",
    "dgx spark": "gb10",
    "T4 16GB": "t4",
    "A10 24 GB": "a10",
    "L40S 48GB": "l40s",
    "ironwood": "tpu-v7x",
    "trn2": "trainium2",
    "Habana Gaudi2": "gaudi2-96gb",
    "M1 Max 24-Core GPU 32GB": "apple-m1-max-24core-32gb",
    "RX 6800 XT 16GB": "rx-6800-xt",
    "Radeon Instinct MI60": "mi60",
    "Intel(R) Data Center GPU Max 1550": "max-1550-128gb",
    "Raspberry Pi 5": "raspberry-pi-5-8gb",
}


@pytest.mark.parametrize(("text", "name"), [*PRINTED.items(), *WRITTEN.items()])
def test_product_names_resolve(text: str, name: str) -> None:
    assert catalogue.resolve("gpu", text) == name


def test_no_product_name_means_two_devices() -> None:
    meant = defaultdict(set)
    for alias, name in rows.aliases("gpu").items():
        meant[rows.product(alias)].add(name)
    assert {short: found for short, found in meant.items() if len(found) > 1} == {}


@pytest.mark.parametrize("text", ["RTX 4090 48GB", "rtx 3060 6gb", "GeForce", "RTX", "A100 24GB"])
def test_another_memory_or_a_mere_brand_is_no_device(text: str) -> None:
    with pytest.raises(UnknownNameError):
        catalogue.resolve("gpu", text)


GEFORCE = {  # CUDA cores, bits of the memory's width, Gb/s a pin: typed from product pages, not from the data files
    "rtx-2060": (1920, 192, 14),
    "rtx-2060-12gb": (2176, 192, 14),
    "rtx-2060-super": (2176, 256, 14),
    "rtx-2070": (2304, 256, 14),
    "rtx-2070-super": (2560, 256, 14),
    "rtx-2080": (2944, 256, 14),
    "rtx-2080-super": (3072, 256, 15.5),
    "rtx-2080-ti": (4352, 352, 14),
    "titan-rtx": (4608, 384, 14),
    "rtx-3050-6gb": (2304, 96, 14),
    "rtx-3050-8gb": (2560, 128, 14),
    "rtx-3060-12gb": (3584, 192, 15),
    "rtx-3060-8gb": (3584, 128, 15),
    "rtx-3060-ti": (4864, 256, 14),
    "rtx-3070-8gb": (5888, 256, 14),
    "rtx-3070-ti": (6144, 256, 19),
    "rtx-3080-10gb": (8704, 320, 19),
    "rtx-3080-12gb": (8960, 384, 19),
    "rtx-3080-ti": (10240, 384, 19),
    "rtx-3090": (10496, 384, 19.5),
    "rtx-3090-ti": (10752, 384, 21),
    "rtx-4060": (3072, 128, 17),
    "rtx-4060-ti-8gb": (4352, 128, 18),
    "rtx-4060-ti-16gb": (4352, 128, 18),
    "rtx-4070": (5888, 192, 21),
    "rtx-4070-super": (7168, 192, 21),
    "rtx-4070-ti": (7680, 192, 21),
    "rtx-4070-ti-super": (8448, 256, 21),
    "rtx-4080": (9728, 256, 22.4),
    "rtx-4080-super": (10240, 256, 23),
    "rtx-4090": (16384, 384, 21),
    "rtx-4090-d": (14592, 384, 21),
    "rtx-5050": (2560, 128, 20),
    "rtx-5060": (3840, 128, 28),
    "rtx-5060-ti-8gb": (4608, 128, 28),
    "rtx-5060-ti-16gb": (4608, 128, 28),
    "rtx-5070": (6144, 192, 28),
    "rtx-5070-ti": (8960, 256, 28),
    "rtx-5080": (10752, 256, 30),
    "rtx-5090": (21760, 512, 28),
    "rtx-2050-laptop": (2048, 64, 14),
    "rtx-3050-laptop-4gb": (2048, 128, 12),
    "rtx-3050-ti-laptop": (2560, 128, 12),
    "rtx-3060-laptop": (3840, 192, 14),
    "rtx-3070-laptop": (5120, 256, 14),
    "rtx-3070-ti-laptop": (5888, 256, 14),
    "rtx-3080-laptop-8gb": (6144, 256, 14),
    "rtx-3080-ti-laptop": (7424, 256, 16),
    "rtx-4050-laptop": (2560, 96, 16),
    "rtx-4060-laptop": (3072, 128, 16),
    "rtx-4070-laptop": (4608, 128, 16),
    "rtx-4080-laptop": (7424, 192, 18),
    "rtx-4090-laptop": (9728, 256, 18),
    "rtx-5050-laptop": (2560, 128, 24),
    "rtx-5060-laptop": (3328, 128, 24),
    "rtx-5070-laptop": (4608, 128, 24),
    "rtx-5070-ti-laptop": (5888, 192, 28),
    "rtx-5080-laptop": (7680, 256, 28),
    "rtx-5090-laptop": (10496, 256, 28),
    "rtx-a2000-12gb": (3328, 192, 12),
    "rtx-a4000": (6144, 256, 14),
    "rtx-a5000": (8192, 384, 16),
    "rtx-2000-ada": (2816, 128, 14),
    "rtx-4500-ada": (7680, 192, 18),
    "rtx-5880-ada": (14080, 384, 20),
    "rtx-pro-2000-16gb": (4352, 128, 18),
    "rtx-pro-4000-24gb": (8960, 192, 28),
    "rtx-pro-4500-32gb": (10496, 256, 28),
    "rtx-pro-5000-48gb": (14080, 384, 28),
}

SPARSE_FP4 = {  # "AI TOPS" of product pages
    "rtx-5050": 421,
    "rtx-5060": 614,
    "rtx-5060-ti-16gb": 759,
    "rtx-5070": 988,
    "rtx-5070-ti": 1406,
    "rtx-5080": 1801,
    "rtx-5090": 3352,
    "rtx-pro-2000-16gb": 545,
    "rtx-pro-4000-24gb": 1178,
    "rtx-pro-4500-32gb": 1687,
    "rtx-pro-5000-48gb": 2064,
    "jetson-thor-128gb": 2070,
    "jetson-thor-64gb": 1200,
}

PRINTED_PEAKS = {  # dense TFLOP/s of product pages and datasheets
    ("rx-7900-xtx", "fp16"): 122.8,
    ("rx-7900-xt", "fp16"): 103,
    ("rx-9070-xt", "fp16"): 195,
    ("rx-9070-xt", "int8"): 389,
    ("radeon-pro-w7900-48gb", "fp16"): 122.6,
    ("mi300a", "bf16"): 980.6,
    ("mi350x", "fp8"): 4613.7,
    ("arc-a770-16gb", "int8"): 262,
    ("arc-b580", "int8"): 233,
    ("a2", "fp16"): 18,
    ("a10g", "bf16"): 70,
    ("rtx-2080-ti", "fp16"): 53.8,
    ("titan-rtx", "fp16"): 130.5,
    ("rtx-a5000", "fp16"): 111.1,
    ("h200-nvl-141gb", "bf16"): 835.5,
    ("l20", "bf16"): 119.5,
    ("tpu-v7x", "fp8"): 4614,
    ("trainium2", "bf16"): 667,
    ("jetson-orin-nano-8gb", "int8"): 33.5,
    ("apple-m5-10core-16gb", "fp32"): 4.15,
}


@pytest.mark.parametrize("name", list(GEFORCE))
def test_cores_and_memory_width(name: str) -> None:
    device = load_device(name)
    cores, bits, rate = GEFORCE[name]
    assert device.sms == cores / (64 if device.architecture == "turing" else 128)
    assert device.dram.bandwidth == pytest.approx(bits / 8 * rate * 1e9, rel=0.003)


@pytest.mark.parametrize("name", list(SPARSE_FP4))
def test_fp4_is_half_of_the_printed_sparse_figure(name: str) -> None:
    assert 2e-12 * load_device(name).peak["fp4"] == pytest.approx(SPARSE_FP4[name], rel=0.005)


@pytest.mark.parametrize(("name", "dtype"), list(PRINTED_PEAKS))
def test_peaks_as_printed(name: str, dtype: str) -> None:
    assert load_device(name).peak[dtype] / 1e12 == pytest.approx(PRINTED_PEAKS[name, dtype], rel=0.01)


OTHER_RATES = {
    "b300-sxm-288gb": ("int8", "fp4"), "gb300": ("int8", "fp4"), "trainium2": ("fp8",), "trainium3": ("fp8",),
    "core-i9-14900k": ("bf16", "int8"), "core-ultra-9-285k": ("bf16", "int8"),
}  # fmt: skip
"""Types whose rate is no power of two times the clock: cut or raised by the maker, or of cores of two kinds."""


@pytest.mark.parametrize("name", [n for n in DEVICES if not n.startswith("gaudi")])
def test_matrix_peak_is_a_power_of_two_a_clock_and_unit(name: str) -> None:
    """peak = SMs x FLOPs a clock of one SM x clock, within 2 %: a wrong count, clock or sparse figure breaks it."""
    device = load_device(name)
    for dtype, peak in device.peak.items():
        if dtype != "fp32" and dtype not in OTHER_RATES.get(name, ()):
            a_clock = float(peak / device.sms / device.clock)
            assert a_clock == pytest.approx(2.0 ** round(math.log2(a_clock)), rel=0.02), dtype


FP32 = {"turing": 128, "ada": 256, "xe-hpg": 256, "xe2": 256, "rdna3": 256, "rdna3.5": 256, "rdna4": 256, "rdna2": 128,
        "gcn5.1": 128, "gcn4": 128, "xe-hpc": 256}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in DEVICES if load_device(n).architecture in FP32])
def test_vector_peak_by_lanes(name: str) -> None:
    device = load_device(name)
    assert device.peak["fp32"] / device.sms / device.clock == pytest.approx(FP32[device.architecture], rel=0.02)


READ = 7.5e9 / 2
"""Bytes that a token must at least read of Llama-3.1 8B in 4 bits: 7.5e9 parameters without the embedding."""


def test_every_device_answers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for name in DEVICES:
            found = infer("llama-3.1-8b", gpu=name, quant="int4")
            device = load_device(name)
            slowest = 8 * READ / device.dram.bandwidth, 2 * 512 * 4 * READ / max(device.peak.values())  # of one board
            assert 0 < float(found.tpot) < max(1, slowest[0]) and 0 < float(found.ttft) < max(10, 4 * slowest[1]), name
            assert float(found.tpot) * device.dram.bandwidth > READ, name
            assert found.scenario.cluster.device.name == name


ONE_OF_EACH = sorted({load_device(n).architecture: n for n in DEVICES}.values())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_command_answers(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["infer", "llama-3.1-8b", "--gpu", name, "--quant", "int4"]) == 0
    said = capsys.readouterr()
    assert name in said.out and "Traceback" not in said.err


def test_the_command_takes_a_printed_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "llama-3.1-8b", "--gpu", "NVIDIA GeForce RTX 4090 Laptop GPU"]) == 0
    assert "rtx-4090-laptop" in capsys.readouterr().out


@pytest.mark.parametrize("name", PASCAL.values())
def test_cards_before_tensor_cores_run_what_is_built_for_them(name: str) -> None:
    """vLLM asks for compute capability 7 (docs.vllm.ai, "GPU"); 16-bit products run in fp32 there."""
    e = infer("llama-3.2-1b", gpu=name)
    assert e.scenario.engine.name == "llama.cpp" and "engine llama.cpp" in e.assumed
    peak = load_device(name).peak
    assert peak["fp16"] / peak["fp32"] == pytest.approx(2 if name.startswith("p100") else 1, rel=1e-3)


def test_a_p40_is_as_measured() -> None:
    """llama.cpp's pull request 4766 (2024-01): Llama 7B Q4_0, 912 to 935 prompt and 56.3 to 56.8 output tokens/s, these
    from an empty context (llama-bench, tg 128)."""
    prompts, tokens = (infer("llama-2-7b", gpu="p40", engine="llama.cpp", quant="q4_0", prompt=p, output=128)
                       for p in (512, 1))  # fmt: skip
    assert 512 / float(prompts.ttft) == pytest.approx(924, rel=0.15)
    assert 1 / float(tokens.tpot) == pytest.approx(56.5, rel=0.2)
    band = tokens.error_band["tpot_s"]
    assert band["low"] < 1 / 56.5 < band["high"]


def test_geforce_cards_since_turing_reach_each_other_through_host_memory() -> None:
    for name in DEVICES:
        row, _ = catalogue.raw_row("gpu", name)
        if row.get("product_family") == "geforce" and row["architecture"] != "pascal" and row["cluster"] != "laptop":
            cluster = load_cluster(row["cluster"], name)
            assert float(cluster.tiers[0].bandwidth) == pytest.approx(float(cluster.host_bandwidth) / 3), name


@pytest.mark.parametrize(
    ("card", "side"), [*((f"tpu-{n}", 128) for n in ("v3", "v4", "v5e", "v5p")), ("tpu-v6e", 256), ("tpu-v7x", 256)]
)
def test_matrix_units_of_a_tpu_make_its_peak(card: str, side: int) -> None:
    """`sms` are its matrix units, of 128 x 128 or (since Trillium) 256 x 256 products a cycle."""
    device = load_device(card)
    assert device.peak["bf16"] == pytest.approx(2 * device.sms * side**2 * device.clock, rel=0.01)


@pytest.mark.parametrize(("typed", "card"), [
    ("g5.12xlarge", "a10g"), ("aws g6e.48xlarge", "l40s"), ("Standard_NC40ads_H100_v5", "h100-nvl-94gb"),
    ("g2-standard-4", "l4"), ("HL-325L", "gaudi3-128gb"), ("AI Max 395", "strix-halo-128gb"), ("trn3", "trainium3"),
])  # fmt: skip
def test_a_card_by_the_name_that_users_type(typed: str, card: str) -> None:
    assert load_device(typed).name == card


@pytest.mark.parametrize(("typed", "cluster"), [
    ("p5.48xlarge", "aws-p5"), ("Azure ND H100 v5", "dgx-h100"), ("Standard_ND96isr_MI300X_v5", "mi300x-box"),
    ("gcp a3-megagpu-8g", "gcp-a3-mega"), ("a4x-highgpu-4g", "gb200-nvl72"), ("BM.GPU.H100.8", "dgx-h100"),
])  # fmt: skip
def test_an_instance_stands_for_a_gpu(typed: str, cluster: str) -> None:
    found, assumed = find_cluster(typed, None)
    assert (found.name, assumed) == (cluster, [f"cluster {cluster}"])
    assert load_cluster(typed).name == cluster
