"""Utilisation, memory, power, clocks and network bytes over time: of the machine, its GPUs, and chosen processes.

A thread reads NVML and psutil a few times a second while something runs; what it read is a table of samples, one row a
time, what is observed and metric. Nothing is read where a library or a driver lacks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from rooflm.sweep.files import check_target, table, write_text

MEGAHERTZ = 1e6
FORMATS = ("csv",)
UNITS = {"utilisation": "1", "memory_bytes": "B", "memory_utilisation": "1", "power_w": "W", "clock_hz": "Hz",
         "memory_clock_hz": "Hz", "sent_bytes": "B", "received_bytes": "B", "link_sent_bytes": "B",
         "link_received_bytes": "B", "temperature_c": "degC", "throttled": "1"}  # fmt: skip
"""Metric -> its unit. Bytes sent and received count from the first sample; utilisation of a process is in cores."""


class Sample(NamedTuple):
    """One reading. time_s: since the start; what: machine, gpu0 or process 123; label: the level of load then."""

    time_s: float
    what: str
    metric: str
    value: float
    label: str = ""


def cards() -> tuple[Any, list[Any]]:
    """(the NVML library, handles of its cards); (None, []) where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        return None, []


def listening(url: str) -> list[int]:
    """Processes of this machine that listen where a server's address points, with their children."""
    try:
        import psutil
    except ImportError:
        return []
    parts = urlsplit(url)
    if parts.hostname not in ("localhost", "127.0.0.1", "::1", "0.0.0.0"):
        return []
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with suppress(psutil.Error, OSError):
        found = {c.pid for c in psutil.net_connections("inet")
                 if c.pid and c.laddr and c.laddr.port == port and c.status == psutil.CONN_LISTEN}  # fmt: skip
        return sorted(found.union(descendants(_processes(found))))
    return []


class Profiler:
    """Reads every `interval` s in a thread between entering and leaving;
    `label` goes into the samples that follow; children: those of the first process are read too, as they come."""

    def __init__(self, pids: Iterable[int] = (), interval: float = 0.5, children: bool = False) -> None:
        self.children = children
        self.interval, self.label = max(interval, 0.05), ""
        self.samples: list[Sample] = []
        self.nvml, self.handles = cards()
        self.processes = list(_processes(pids))
        self.first: dict[tuple[str, str], float] = {}
        self.start = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Profiler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=10)

    def _loop(self) -> None:
        while True:
            self.read()
            if self._ended.wait(self.interval):
                self.read()
                return

    def read(self) -> None:
        """One reading of everything."""
        now, label = time.perf_counter() - self.start, self.label
        if self.children:
            known = {p.pid for p in self.processes}
            self.processes += _processes(pid for pid in descendants(self.processes[:1]) if pid not in known)
        for what, metric, value in (*self.machine(), *self.gpus()):
            if metric.endswith(("sent_bytes", "received_bytes")):
                value -= self.first.setdefault((what, metric), value)
            self.samples.append(Sample(now, what, metric, float(value), label))

    def machine(self) -> Iterator[tuple[str, str, float]]:
        """Of the machine and of the processes, by psutil."""
        try:
            import psutil
        except ImportError:
            return
        yield "machine", "utilisation", psutil.cpu_percent(None) / 100
        yield "machine", "memory_bytes", psutil.virtual_memory().used
        with suppress(Exception):  # a container may hide its clocks
            yield "machine", "clock_hz", psutil.cpu_freq().current * MEGAHERTZ
        net = psutil.net_io_counters()
        if net is not None:
            yield "machine", "sent_bytes", net.bytes_sent
            yield "machine", "received_bytes", net.bytes_recv
        for process in self.processes:
            with suppress(psutil.Error):
                most = psutil.cpu_count() or math.inf  # a reading over too short a time may say more
                yield f"process {process.pid}", "utilisation", min(process.cpu_percent(None) / 100, most)
                yield f"process {process.pid}", "memory_bytes", process.memory_info().rss

    def gpus(self) -> Iterator[tuple[str, str, float]]:
        """Of every card, and of the chosen processes on it, by NVML."""
        n = self.nvml
        pids = {p.pid for p in self.processes}
        for index, handle in enumerate(self.handles):
            what = f"gpu{index}"
            for metric, read in readings(n, handle).items():
                with suppress(Exception):  # a card or driver that does not tell this
                    yield what, metric, read()
            with suppress(Exception):
                for one in n.nvmlDeviceGetComputeRunningProcesses(handle):
                    if one.pid in pids and one.usedGpuMemory:
                        yield f"process {one.pid} {what}", "memory_bytes", one.usedGpuMemory


def readings(n: Any, handle: Any) -> dict[str, Any]:
    """Metric -> how NVML tells it of a card, in SI units."""
    return {
        "utilisation": lambda: n.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_utilisation": lambda: n.nvmlDeviceGetUtilizationRates(handle).memory / 100,
        "memory_bytes": lambda: n.nvmlDeviceGetMemoryInfo(handle).used,
        "power_w": lambda: n.nvmlDeviceGetPowerUsage(handle) / 1000,
        "clock_hz": lambda: n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM) * MEGAHERTZ,
        "memory_clock_hz": lambda: n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM) * MEGAHERTZ,
        "temperature_c": lambda: n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
        "throttled": lambda: float(slowed(n, handle)),
        "link_sent_bytes": lambda: links(n, handle)[0],
        "link_received_bytes": lambda: links(n, handle)[1],
    }


def slowed(n: Any, handle: Any) -> bool:
    """True while power, heat or a brake holds the clocks down (idle clocks and those that were asked for do not)."""
    reasons = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    held = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    return bool(reasons & sum(getattr(n, f"nvmlClocksThrottleReason{name}") for name in held))


def links(n: Any, handle: Any) -> tuple[float, float]:
    """Bytes (sent, received) over all NVLinks since the driver started, which NVML counts in KiB."""
    ids = (n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
    sent, received = n.nvmlDeviceGetFieldValues(handle, [(i, 2**32 - 1) for i in ids])
    if sent.nvmlReturn or received.nvmlReturn:
        raise OSError("no NVLink counters")
    return sent.value.ullVal * 1024.0, received.value.ullVal * 1024.0


def descendants(processes: Iterable[Any]) -> list[int]:
    """What processes have started, and what those have."""
    found: list[int] = []
    for process in processes:
        with suppress(Exception):
            found += [child.pid for child in process.children(recursive=True)]
    return found


def _processes(pids: Iterable[int]) -> Iterator[Any]:
    """Those that are there, whose CPU time is counted from now on."""
    try:
        import psutil
    except ImportError:
        return
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            process.cpu_percent(None)
            yield process


def cores(samples: Iterable[Sample], label: str) -> float | None:
    """Cores that the observed processes had together while they worked (a twentieth of a core or more), over the
    samples of a label; None where they did not."""
    times: dict[float, float] = {}
    for s in list(samples):
        if s.label == label and s.metric == "utilisation" and s.what.startswith("process "):
            times[s.time_s] = times.get(s.time_s, 0.0) + s.value
    worked = [v for v in times.values() if v >= 0.05]
    return float(np.mean(worked)) if worked else None


def busiest(samples: Iterable[Sample], label: str) -> float | None:
    """Cores that the observed process which worked most had while it worked, over the samples of a label: of a server
    of several processes the one that computes, since others wait for it and some of them by turning round.

    >>> read = [Sample(t, f"process {p}", "utilisation", v) for t in (0.0, 1.0) for p, v in ((1, 0.5), (2, 0.25))]
    >>> busiest(read, ""), cores(read, "")
    (0.5, 0.75)
    """
    times: dict[str, list[float]] = {}
    for s in samples:
        if s.label == label and s.metric == "utilisation" and s.what.startswith("process ") and s.value >= 0.05:
            times.setdefault(s.what, []).append(s.value)
    return float(np.mean(max(times.values(), key=sum))) if times else None


def write(path: str, samples: list[Sample]) -> None:
    """The samples as a table, whole or not at all."""
    columns: dict[str, list[Any]] = {name: [getattr(s, name) for s in samples] for name in Sample._fields}
    columns["unit"] = [UNITS[s.metric] for s in samples]
    target = check_target(path, FORMATS, "--profile")
    write_text(target, table(columns))


def draw(path: str, samples: list[Sample]) -> None:
    """What was read over time, a panel a metric, a line for each of what was observed; of many processes those that
    worked most, and the others together."""
    from rooflm.plots.lines import Curve, Panel, timeline
    from rooflm.plots.scale import Scale, Side

    names = shown_processes(samples)
    courses: dict[str, dict[str, dict[float, float]]] = {}
    for s in samples:
        own = s.what.startswith("process ")
        metric = "cores" if own and s.metric == "utilisation" else s.metric
        if metric in SHOWN:
            course = courses.setdefault(metric, {}).setdefault(names.get(s.what, s.what), {})
            course[s.time_s] = course.get(s.time_s, 0.0) + s.value / SHOWN[metric][0]
    panels = []
    for metric in (m for m in SHOWN if m in courses):
        curves = tuple(
            Curve(what, np.array(list(course.values())), x=tuple(course)) for what, course in courses[metric].items()
        )
        panels.append(Panel("", Scale(SHOWN[metric][1]), curves))
    side = Side("time (s)", tuple(sorted({s.time_s for s in samples})), time=True)
    timeline("Profile over time", side, panels).save(path)


MOST = 5
"""Processes of a picture that have a line of their own."""


def shown_processes(samples: Iterable[Sample]) -> dict[str, str]:
    """Process -> the name of its line: its own for those that worked most, one for all others.

    >>> read = [Sample(t, f"process {p}", "utilisation", p / 10) for p in range(8) for t in (0.0, 1.0)]
    >>> [shown_processes(read)[f"process {p}"] for p in (2, 3)]
    ['3 other processes', 'process 3']
    """
    work: dict[str, float] = {}
    for s in samples:
        if s.what.startswith("process ") and s.metric == "utilisation":
            work[s.what] = work.get(s.what, 0.0) + s.value
    ranked = sorted(work, key=lambda name: -work[name])
    rest = f"{len(ranked) - MOST} other processes"
    return {name: name if i < MOST or len(ranked) == MOST + 1 else rest for i, name in enumerate(ranked)}


SHOWN = {"utilisation": (0.01, "utilisation (%)"), "cores": (1.0, "cores in use"), "memory_bytes": (1e9, "memory (GB)"),
         "power_w": (1.0, "power (W)"), "clock_hz": (1e9, "clock (GHz)"), "sent_bytes": (1e6, "sent (MB)"),
         "link_sent_bytes": (1e6, "sent over links (MB)")}  # fmt: skip
"""Metrics of the picture, in its order: what they are divided by, and their axis. A process's utilisation is cores."""
