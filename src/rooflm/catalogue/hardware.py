"""What a scenario runs on: Device (one accelerator), Link (one tier of the network), Cluster (a device and its tiers).

Every number is SI and may be an array (one dimension an axis), so a sweep over hardware is a sweep like any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rooflm.catalogue.fields import flag, number, part, share, si, text, word
from rooflm.shown.records import cluster_line, device_line
from rooflm.units import Num, is_plain

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
"""Names of compute data types, the keys of `Device.peak`."""
LINKS = ("nvlink", "nvswitch", "xgmi", "pcie", "infiniband", "ethernet", "efa", "gpudirect-tcp", "ici")
"""What a link may be made of."""


@dataclass(frozen=True)
class Memory:
    """One level of the memory hierarchy."""

    size: Num = field(metadata=si("its size, all SMs together", "bytes"))
    bandwidth: Num = field(metadata=si("its bandwidth", "bytes/s"))


@dataclass(frozen=True)
class Measured:
    """What the owner of a machine found with `rooflm calibrate`: few constants, in place of the fitted kernel tables.

    The device's peak and DRAM bandwidth are then rates that were reached. own: data type -> constants that differ.
    off: phase of an error band -> |predicted / measured - 1| of nine in ten runs kept aside, under `cases` how many."""

    launch: Num = number(0.0, "time of a kernel", "s")
    half_rows: Num = number(0.0, "rows of a product at which it reaches half of the peak")
    attention: Num = number(1.0, "share of the compute rate in prefill attention")
    decode: Num = number(1.0, "share of the bandwidth in decode attention")
    stream: Num = number(1.0, "bandwidth of streaming kernels over the DRAM's")
    sharp: Num = number(2.0, "how compute and traffic add up (1: one after the other; large: the longer one counts)")
    convert: Num = number(0.0, "time of a weight value unpacked for a product of many rows", "s")
    vector: Num = number(1.0, "bandwidth of weights in products of one row over the DRAM's")
    matrix: Num = number(1.0, "the same in products of more rows (which may copy them into blocks)")
    apart: Num = number(0.0, "1 where a product of few rows runs as so many of one (llama.cpp on CPUs)")
    backward: Num = number(1.0, "training: time of the backward products over that of equal ones forward")
    chain: Num = number(1.0, "training: the same of streaming kernels over their bytes (eager frameworks run chains)")
    update: Num = number(1.0, "training: bytes that the optimiser moves over those of one fused kernel")
    own: Mapping[str, Mapping[str, Num]] = field(default_factory=dict, hash=False)
    off: Mapping[str, float] = field(default_factory=dict, hash=False)

    def of(self, dtype: str) -> Measured:
        """The constants for a data type."""
        constants: dict[str, Any] = dict(self.own.get(dtype, {}))
        return replace(self, **constants) if constants else self


@dataclass(frozen=True)
class Derating:
    """What kernels reach on a device over its datasheet; a fit gives one to a `Device`, else it is looked up."""

    compute: Num = number(1.0, "compute rate that kernels see over the datasheet's", above=True)
    bandwidth: float = number(1.0, "the same of the device memory's bandwidth", above=True)
    few: float = number(0.0, "time of 1e14 FLOPs of a product of few rows (0: good kernels)", "s")
    watts: float = number(0.0, "W a TFLOP/s of 16 bits at which compute holds (0: at any)")
    sm_stream: float = number(float("inf"), "most bytes of device memory a clock that an SM takes", "bytes", above=True)
    lent: bool = flag(False, "of another generation of its family: kernels' tiles are its own, and lose what they do")

    @property
    def fitted(self) -> bool:
        """Whether `compute` is a share of the peak that products of the card were fitted to, beside their tiles."""
        return not (is_plain(self.compute, 1.0) or self.lent)


@dataclass(frozen=True)
class Device:
    """One accelerator as software sees it (a GPU, a GCD, a TPU chip, a CPU socket).

    peak: dense FLOP/s by data type (never the sparse figure); a missing key means that the type is not supported.
    l1: shared memory and L1 of all SMs; l2: last-level cache; dram: device memory; measured: of one's own machine."""

    name: str
    vendor: str = field(metadata=text("its maker"))
    architecture: str = field(metadata=text("generation of its compute units"))
    peak: dict[str, Num] = field(hash=False)
    sms: Num = field(metadata=si("streaming multiprocessors (compute units, cores, matrix units of a TPU)", "1"))
    clock: Num = field(metadata=si("clock at which the peak holds (boost)", "hz"))
    l1: Memory = field(metadata=part(Memory))
    l2: Memory = field(metadata=part(Memory))
    dram: Memory = field(metadata=part(Memory))
    tdp: Num = field(metadata=si("most power that it may take", "w"))
    idle: Num = field(metadata=si("power that it takes while idle", "w", zero=True))
    price: Num = field(metadata=si("price of an hour, indicative", "usd/h", zero=True))
    year: int = number(0, "when it came out", whole=True)
    power_limit: Num = number(math.inf, "power that its owner holds it to, below what it may take", "w", above=True)
    measured: Measured | None = None
    derating: Derating | None = field(default=None, metadata=part(Derating))
    """What kernels reach of the datasheet; None: as data/calibration/devices.toml has it."""
    product_family: str = word("datacenter", "line of products limited alike, whose cards share factors")
    called: str = word("GPU", "what an answer calls one of it (device: a CPU, a TPU)")
    generation: str = word("", "generation as the kernel tables know it (none: its architecture)")
    kernels_of: str = word("", "measured card of the same die, whose constants hold (none: its own, its generation's)")
    software: str = word("", "suffix of the engine rows that are builds for it (none: the plain rows)")
    system_memory: Num = number(0.0, "memory that the operating system holds, where host and device share it", "bytes")
    """2 GiB on laptops and desktops: published runs of llama.cpp fill 13 of 16 GiB and 6.0 of 8, but not 6.1 of 8."""
    check_bits: Num = share(0.0, "share of its memory that holds check bits, whose traffic takes the same (GDDR's ECC)")
    exponentials: Num = number(16.0, "exponentials that an SM makes a clock")
    """16 in all generations of NVIDIA's but Blackwell Ultra (CUDA C++ programming guide, arithmetic instructions)."""
    unasked: Num = number(0.0, "memory that the system gives programs on the device unasked (0: all)", "bytes")
    """Beyond it some runs of the same size went well and others were ended by the system: it is told, not refused."""
    priced: str = ""
    """What its price is: its kind and date in words."""
    attention_share: Num = share(0.0, "share of the peak that attention reaches in training on a few big cores")
    inferred: str = ""
    """Of a card of one's own: in words, which fields were taken from which card of the catalogue."""

    __repr__ = device_line

    @property
    def kernel_generation(self) -> str:
        """The generation whose kernel constants apply where the card has none of its own."""
        return self.generation or self.architecture

    @property
    def half_peak(self) -> Num:
        """FLOP/s with 16-bit operands (0: it knows none)."""
        return self.peak.get("bf16", self.peak.get("fp16", 0.0))

    @property
    def kernels_from(self) -> str:
        """The card whose kernel constants apply: its measured twin, else itself."""
        return self.kernels_of or self.name


@dataclass(frozen=True)
class Link:
    """One tier of a cluster's network, as one device sees it."""

    name: str = field(metadata=text("its name in the cluster"))
    kind: str = field(metadata=text("what it is made of", LINKS))
    size: Num = field(metadata=si("devices that it joins, cumulative: 8 in a node, then 1024 in the cluster", "1"))
    bandwidth: Num = field(metadata=si("one way a device", "bytes/s"))
    latency: Num = field(metadata=si("time of a hop", "s", zero=True))


@dataclass(frozen=True)
class Cluster:
    """A device and the tiers that join many of it, the nearest tier first."""

    name: str
    device: Device
    tiers: tuple[Link, ...] = field(default=(), metadata=part(Link, many=True))
    host_bandwidth: Num = number(25e9, "one way between a device and host memory, for offload", "bytes/s", above=True)
    unified: bool = flag(False, "host and device share one memory: what leaves the one for the other takes its room")
    machine: Num = number(0.0, "devices that one host starts (0: as many as the nearest tier joins)", "1", whole=True)
    launching: Num = number(1.0, "time of a server's launch from Python over that of the engines' rows", above=True)
    answering: Num = number(1.0, "the same of what it does once a request, and of its messages to clients", above=True)

    __repr__ = cluster_line
