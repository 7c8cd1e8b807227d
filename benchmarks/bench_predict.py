"""One warm public call of `rooflm.infer`, import and a cold command: seconds, and ratios to a plain NumPy loop of known
size in this run.

Targets: a dense prediction by the public call under 500 us warm (ideal) and 1 ms (calibrated); a cold `rooflm infer`
under half a second.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from rooflm import infer


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def reference() -> float:
    """A yardstick of this machine at this moment: a thousand small NumPy products."""
    a = np.ones(8)

    def loop() -> None:
        for _ in range(1000):
            np.multiply(a, a)

    return seconds(loop, 20)


def cold(*words: str) -> float:
    """Median wall seconds of a fresh interpreter."""
    return seconds(lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True), 7)


def main() -> None:
    """Print the table."""
    yardstick = reference()
    rows: list[tuple[str, float, str]] = [("1000 small NumPy products (yardstick)", yardstick, "")]
    for mode, target in (("ideal", "500 us"), ("calibrated", "1 ms")):
        for model in ("llama-2-7b", "mixtral-8x7b", "deepseek-v3"):
            call = partial(infer, model, gpu="h200-sxm-141gb", batch=8, efficiency=mode, engine="vllm")
            call()
            rows.append((f"infer {model}, {mode}", seconds(call, 200), target if model == "llama-2-7b" else ""))
    rows.append(("python -c pass", cold("-c", "pass"), ""))
    rows.append(("import rooflm", cold("-c", "import rooflm"), ""))
    rows.append(
        ("rooflm infer llama-2-7b --gpu a100", cold("-m", "rooflm", "infer", "llama-2-7b", "--gpu", "a100"), "500 ms")
    )
    for name, value, target in rows:
        print(
            f"{name:42s} {value * 1e3:10.3f} ms {value / yardstick:9.2f} x yardstick  {target and 'target ' + target}"
        )


if __name__ == "__main__":
    main()
