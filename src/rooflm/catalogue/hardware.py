"""What a scenario runs on: Device (one accelerator), Link (one tier of the network), Cluster (a device and its tiers).

Every number is SI and may be an array (one dimension an axis), so a sweep over hardware is a sweep like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rooflm.catalogue.fields import KEY, About, number, share, si
from rooflm.shown.numbers import gib, several
from rooflm.units import Num

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int4")
"""Names of compute data types, the keys of `Device.peak`."""
LinkKind = Literal["nvlink", "nvswitch", "xgmi", "pcie", "infiniband", "ethernet", "ici"]
"""What a link is made of."""


@dataclass(frozen=True)
class Memory:
    """One level of the memory hierarchy."""

    size: Num = field(metadata=si("its size, all SMs together", "bytes"))
    bandwidth: Num = field(metadata=si("its bandwidth", "bytes/s"))
    latency: Num = number(0.0, "time of one access", "s")


class Measured(NamedTuple):
    """What the owner of a machine found with `rooflm calibrate`: few constants, in place of the fitted kernel tables.

    The device's peak and DRAM bandwidth are then rates that were reached. launch: s a kernel; half_rows: rows of a
    product at which it reaches half of the peak; attention, decode: share of the compute rate in prefill attention, and
    of the bandwidth in decode attention; stream: bandwidth of streaming kernels over the DRAM's; sharp: how compute and
    traffic add up (1: one after the other; large: the longer one counts); convert: s a weight value unpacked for a
    product of many rows; vector, matrix: bandwidth of weights in products of one row and of more (which may copy them
    into blocks) over the DRAM's; apart: 1 where a product of few rows runs as so many of one (llama.cpp on CPUs).

    In a training step: backward: time of the products of the backward pass over that of equal ones forward; chain: the
    same of streaming kernels over their bytes (eager frameworks run chains of them); update: bytes that the optimiser
    moves over those of one fused kernel. own: data type -> constants that differ there.

    off: phase of an error band -> |predicted / measured - 1| that nine of ten of its runs kept aside stay below; under
    `cases` their number.
    """

    launch: Num = 0.0
    half_rows: Num = 0.0
    attention: Num = 1.0
    decode: Num = 1.0
    stream: Num = 1.0
    sharp: Num = 2.0
    convert: Num = 0.0
    vector: Num = 1.0
    matrix: Num = 1.0
    apart: Num = 0.0
    backward: Num = 1.0
    chain: Num = 1.0
    update: Num = 1.0
    own: Mapping[str, Mapping[str, Num]] = {}
    off: Mapping[str, float] = {}

    def of(self, dtype: str) -> Measured:
        """The constants for a data type.

        >>> Measured(launch=1e-6, decode=0.5, own={"bf16": {"decode": 0.1}}).of("bf16").decode
        0.1
        """
        found: dict[str, Any] = dict(self.own.get(dtype, {}))
        return self._replace(**found) if found else self


class Derating(NamedTuple):
    """What kernels reach on a device over its datasheet; a fit gives one to a `Device`, else it is looked up."""

    compute: float = 1.0
    """Compute rate that kernels see over the datasheet's."""
    bandwidth: float = 1.0
    """The same of the device memory's bandwidth."""
    network: float = 1.0
    """Rate of its machines' collectives over that of the machine measured."""
    few: float = 0.0
    """Time of a product of few rows over its FLOPs at the datasheet's rate, where the library has no good kernels for
    decoding (0: it has; see `kernels.derating.few_rows_time`)."""
    narrow: float = 1.0
    """Time of kernels whose 8- or 4-bit weights have a scale a block or group over that of the fitted ones, where a
    library has none as good (an engine with narrow kernels of its own does not need the library's)."""


@dataclass(frozen=True)
class Device:
    """One accelerator as software sees it (a GPU, a GCD, a TPU chip, a CPU socket).

    peak: dense FLOP/s by data type (never the sparse figure); a missing key means that the type is not supported.
    l1: shared memory and L1 of all SMs together; l2: last-level cache; dram: device memory. measured: constants of
    one's own machine.
    """

    name: str
    vendor: str
    architecture: str
    peak: dict[str, Num]
    sms: Num = field(metadata=si("streaming multiprocessors (compute units, cores)", "1"))
    clock: Num = field(metadata=si("clock at which the peak holds (boost)", "hz"))
    l1: Memory
    l2: Memory
    dram: Memory
    tdp: Num = field(metadata=si("most power that it may take", "w"))
    idle: Num = field(metadata=si("power that it takes while idle", "w", zero=True))
    price: Num = field(metadata=si("price of an hour, indicative", "usd/h", zero=True))
    year: int = 0
    measured: Measured | None = None
    derating: Derating | None = None
    """What kernels reach of the datasheet; None: as data/calibration/devices.toml has it."""
    product_family: str = "datacenter"
    """Line of products limited alike by clocks, power and memory, whatever their generation; its cards share factors
    in data/calibration/devices.toml: datacenter (HBM), gddr, geforce, jetson, instinct, apple."""
    generation: str = ""
    """Generation as the kernel tables know it, where SMs or memory are not those of its architecture; "": they are."""
    kernels_of: str = ""
    """Measured card whose kernel constants hold, as it has the same die: what differs (memory, power, clocks) the
    formulas take from the datasheet. "": those measured on the card itself, else its generation's."""
    software: str = ""
    """Suffix of the engine rows that are builds for it ("rocm" takes vllm-rocm before vllm); "": the plain rows."""
    system_memory: Num = 0.0
    """B of its memory that the operating system holds, where the host lives in the same memory. 2 GiB on laptops and
    desktops: published runs of llama.cpp fill 13 of 16 GiB and 6.0 of 8, but not 6.1 of 8."""
    priced: str = ""
    """What its price is: its kind and date in words."""
    attention_share: Num = share(
        0.0,
        "share of the peak that fused attention reaches in training where a few big cores fetch one tile while they "
        "work on another (0: as the fitted kernels)",
    )
    inferred: str = ""
    """Of a card of one's own: in words, which fields were taken from which card of the catalogue."""

    def __repr__(self) -> str:
        """Name, rates, memory and power.

        >>> from rooflm.catalogue.devices import load_device
        >>> load_device("a100")
        <Device a100-sxm-80gb: 312 TFLOP/s bf16, 80.00 GiB at 2.04 TB/s, 400 W>
        """
        best = "bf16" if "bf16" in self.peak else next(iter(self.peak), "")
        rate = f"{several(self.peak[best], 'FLOP/s')} {best}, " if best else ""
        size = gib(float(np.max(self.dram.size)))
        return f"<Device {self.name}: {rate}{size} at {several(self.dram.bandwidth, 'B/s')}, {several(self.tdp, 'W')}>"

    @property
    def kernel_generation(self) -> str:
        """The generation whose kernel constants hold where no card's own do.

        >>> from rooflm.catalogue.devices import load_device
        >>> [load_device(name).kernel_generation for name in ("rtx-5090", "b200")]
        ['blackwell-rtx', 'blackwell']
        """
        return self.generation or self.architecture

    @property
    def kernels_from(self) -> str:
        """The card whose kernel constants hold: its measured twin, else itself."""
        return self.kernels_of or self.name


@dataclass(frozen=True)
class Link:
    """One tier of a cluster's network, as one device sees it."""

    name: str
    kind: str = field(metadata={KEY: About("what it is made of", kind="word", among=get_args(LinkKind))})
    size: Num = field(metadata=si("devices that it joins, cumulative: 8 in a node, then 1024 in the cluster", "1"))
    bandwidth: Num = field(metadata=si("one way a device", "bytes/s"))
    latency: Num = field(metadata=si("time of a hop", "s", zero=True))


@dataclass(frozen=True)
class Cluster:
    """A device and the tiers that join many of it, the nearest tier first."""

    name: str
    device: Device
    tiers: tuple[Link, ...] = field(default_factory=tuple)
    host_bandwidth: Num = number(
        25e9, "one way between a device and its host's memory (PCIe or C2C), for offload", "bytes/s", above=True
    )

    def __repr__(self) -> str:
        """Name, device and tiers."""
        tiers = "; ".join(f"{t.name} {several(t.bandwidth, 'B/s')}" for t in self.tiers)
        return f"<Cluster {self.name} of {self.device.name}{': ' * bool(tiers)}{tiers}>"
