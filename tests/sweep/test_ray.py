"""Many machines: a real local Ray cluster of two workers, one of them killed, gives the same answer to the bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rooflm
from rooflm.errors import RooflmError

SCRIPT = Path(__file__).parent / "ray_cluster.py"


def test_no_cluster_is_one_sentence():  # the first: a cluster's processes outlive its test for a moment
    code = (
        "import rooflm\n"
        "try:\n"
        "    rooflm.infer('llama-7b', gpu='a100', batch=[1, 2], on='ray')\n"
        "except rooflm.RooflmError as error:\n"
        "    print(error)\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=env, check=False
    )
    assert "no Ray cluster answers on this machine" in done.stdout, done.stderr[-2000:]


def test_two_workers_one_killed():
    env = {
        **os.environ,
        "RAY_DEDUP_LOGS": "0",
        "PYTHONPATH": str(SCRIPT.parent),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=600, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the same to the bit" in done.stdout


def test_a_cluster_that_is_gone_is_one_sentence():
    with pytest.raises(RooflmError, match=r"no Ray cluster answers at ray://127\.0\.0\.1:1"):
        rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], on="ray://127.0.0.1:1")


def test_no_ray_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RooflmError, match=r"rooflm\[ray\]"):
        rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], on="ray")
