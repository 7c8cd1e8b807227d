"""Memory and utilisation of a process: resident set and CPU share, or the GPU's allocator, busy time and energy."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

PERIOD = 0.1
"""s between samples of NVML."""


def status_bytes(field: str) -> float:
    """A field of /proc/self/status in bytes (VmRSS, VmHWM); from getrusage where there is none."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field + ":"):
                return float(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) * (1 if sys.platform == "darwin" else 1024)


def settle() -> None:
    """Collect garbage and hand freed memory back to the system, so that the resident set is what is in use."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def exact() -> None:
    """From now on every larger block is mapped and unmapped by itself, so that the resident set is what is in use.

    To be called before the model is loaded: blocks freed before leave holes in the heap, which later ones fill and
    whose pages then stay.
    """
    _mallopt(MMAP_THRESHOLD, 2**16)


def relaxed() -> None:
    """From now on blocks are kept for reuse, as glibc's own thresholds do after a while: quicker than `exact`."""
    _mallopt(MMAP_THRESHOLD, 2**25)
    _mallopt(TRIM_THRESHOLD, 2**26)


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's mallopt; its own values grow up to 32 and 64 MiB."""


def _mallopt(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(parameter, value)


class MemoryMeter:
    """Peak memory since `reset`, and what was in use before the model was loaded."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        settle()
        self.start = self.now()

    def now(self) -> float:
        """Bytes in use: of the GPU's allocator, or the resident set."""
        if self.device.type == "cuda":
            return float(torch.cuda.memory_allocated(self.device))
        return status_bytes("VmRSS")

    def reset(self) -> None:
        """Peaks count from now on."""
        settle()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def peak(self) -> float:
        """Bytes at the peak beyond what was in use before the model was loaded."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device)) - self.start
        return status_bytes("VmHWM") - self.start

    def reserved(self) -> float | None:
        """Peak bytes that the GPU's allocator holds; None on a CPU."""
        return float(torch.cuda.max_memory_reserved(self.device)) if self.device.type == "cuda" else None


class Busy:
    """Utilisation over a `with` block: CPU time over wall time and threads, or NVML's busy share, power and energy."""

    def __init__(self, device: torch.device, threads: int) -> None:
        self.device, self.threads = device, threads
        self.samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: Any = None

    def __enter__(self) -> Busy:
        """Start the clock, and the sampler on a GPU."""
        if self.device.type == "cuda":
            with suppress(ImportError, OSError):
                import pynvml

                pynvml.nvmlInit()
                uuid = str(torch.cuda.get_device_properties(self.device).uuid)
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
                self._thread = threading.Thread(target=self._sample, daemon=True)
                self._thread.start()
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def _sample(self) -> None:
        import pynvml

        while not self._stop.wait(PERIOD):
            busy = pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
            self.samples.append((busy, pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1000))

    def __exit__(self, *_: object) -> None:
        """Stop both."""
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def share(self) -> float | None:
        """Busy share of the time."""
        if self.device.type == "cuda":
            return sum(b for b, _ in self.samples) / len(self.samples) if self.samples else None
        return self.cpu / (self.wall * self.threads)

    @property
    def energy(self) -> float | None:
        """Joules: mean power over the wall time, where NVML gives it."""
        return sum(p for _, p in self.samples) / len(self.samples) * self.wall if self.samples else None
