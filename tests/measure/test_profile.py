"""Profiles over time: psutil on this machine, and NVML by a stand-in that is loaded in its place."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rooflm.measure import profile


def fake_nvml() -> SimpleNamespace:
    """Two cards: one tells everything, the other (no NVLink, no power) raises as drivers do."""
    count = {"sent": 0}

    def field(handle: int, ids: list[tuple[int, int]]) -> list[SimpleNamespace]:
        count["sent"] += 1
        return [SimpleNamespace(nvmlReturn=handle, value=SimpleNamespace(ullVal=count["sent"] * (1 + i)))
                for i in range(len(ids))]  # fmt: skip

    def power(handle: int) -> int:
        if handle:
            raise RuntimeError("not supported")
        return 350_000

    reasons = {f"nvmlClocksThrottleReason{n}": 1 << i for i, n in enumerate(
        ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown"))}  # fmt: skip
    return SimpleNamespace(
        **reasons, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=138,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=139, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=97, memory=40),
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(used=60e9), nvmlDeviceGetPowerUsage=power,
        nvmlDeviceGetClockInfo=lambda h, kind: 1410 * kind, nvmlDeviceGetTemperature=lambda h, kind: 61,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda h: 1 if h else 1 << 9, nvmlDeviceGetFieldValues=field,
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=os.getpid(), usedGpuMemory=5e9),
                                                        SimpleNamespace(pid=1, usedGpuMemory=9e9)],
    )  # fmt: skip


def test_cards_are_read_by_nvml_in_si_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    watch = profile.Profiler([os.getpid()])
    watch.read()
    watch.read()
    found = {(s.what, s.metric): s.value for s in watch.samples}
    assert found["gpu0", "utilisation"] == 0.97 and found["gpu0", "power_w"] == 350
    assert found["gpu0", "clock_hz"] == 1.41e9 and found["gpu0", "memory_clock_hz"] == 2.82e9
    assert found["gpu0", "memory_bytes"] == 60e9 and found["gpu0", "throttled"] == 0 and found["gpu1", "throttled"] == 1
    assert found["gpu0", "link_sent_bytes"] > 0 and ("gpu1", "link_sent_bytes") not in found
    assert ("gpu1", "power_w") not in found and found["gpu1", "temperature_c"] == 61
    own = f"process {os.getpid()}"
    assert found[f"{own} gpu0", "memory_bytes"] == 5e9 and ("process 1 gpu0", "memory_bytes") not in found
    assert found[own, "memory_bytes"] > 1e6


def test_samples_over_time_are_written_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    with profile.Profiler([os.getpid()], 0.05) as watch:
        watch.label, until = "1 client", time.monotonic() + 60
        while len({s.time_s for s in watch.samples if s.label}) < 3 and time.monotonic() < until:
            time.sleep(0.02)
    assert len({s.time_s for s in watch.samples if s.label}) >= 3
    assert {s.value for s in watch.samples if (s.what, s.metric) == ("gpu0", "power_w")} == {350}
    assert profile.cores(watch.samples, "1 client") is None or profile.cores(watch.samples, "1 client") > 0.04
    profile.write(str(tmp_path / "p.csv"), watch.samples)
    profile.draw(str(tmp_path / "p.svg"), watch.samples)
    lines = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "time_s,what,metric,value,label,unit" and len(lines) == 1 + len(watch.samples)
    assert "gpu0" in (tmp_path / "p.svg").read_text(encoding="utf-8")


def test_of_many_processes_those_that_worked_most_are_drawn(tmp_path: Path) -> None:
    read = [profile.Sample(float(t), f"process {p}", "utilisation", p / 10) for t in range(4) for p in range(50)]
    read += [profile.Sample(float(t), "machine", "utilisation", 0.5) for t in range(4)]
    profile.draw(str(tmp_path / "p.json"), read)
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    assert "45 other processes" in text and "process 49" in text and "process 44" not in text
    assert "cores in use" in text and "utilisation (%)" in text


def test_without_a_driver_the_machine_alone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    watch = profile.Profiler()
    watch.read()
    assert {s.what for s in watch.samples} == {"machine"}


def test_cores_are_those_while_processes_worked() -> None:
    found = [profile.Sample(t, f"process {p}", "utilisation", v, "a") for t, p, v in (
        (0.0, 1, 0.0), (1.0, 1, 0.2), (1.0, 2, 0.1), (2.0, 1, 0.5))]  # fmt: skip
    assert profile.cores(found, "a") == pytest.approx(0.4)
    assert profile.cores(found, "b") is None
