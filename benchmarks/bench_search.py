"""Searches from a cold shell, and a training space as large as Calculon's (11.7 million points).

Targets: `search infer llama-3.1-70b` on 8 H100 under 1 s; `search train gpt3-175b` on 1,024 A100 under 3 s; 11.7
million points under 20 s, all on two free cores. Ratios are to a cold `python -c pass` in the same run.
"""

from __future__ import annotations

import subprocess
import sys
import time

from rooflm import search_train

CASES = (
    ("search infer llama-3.1-70b, 8 H100", ["search", "infer", "llama-3.1-70b", "--gpu", "h100", "--gpus", "8",
                                           "--ttft", "500ms", "--tpot", "50ms"], "1 s"),
    ("search infer deepseek-v3, 16 H200", ["search", "infer", "deepseek-v3", "--gpu", "h200", "--gpus", "16"], ""),
    ("the first, for users who come and go", ["search", "infer", "llama-3.1-70b", "--gpu", "h100", "--gpus", "8",
                                           "--ttft", "500ms", "--tpot", "50ms", "--under-load"], ""),
    ("search train gpt3-175b, 1024 A100", ["search", "train", "gpt3-175b", "--gpu", "a100", "--gpus", "1024",
                                           "--batch", "1536"], "3 s"),
)  # fmt: skip
LARGE = {
    "sets": {"training.offload_optimizer": [0.0, 1.0], "training.offload_activations": [0.0, 1.0],
             "training.offload_params": [0.0, 1.0], "engine.tp_overlap": [0.0, 0.5, 1.0, 0.8]},
}  # fmt: skip
"""What Calculon varies besides the split: offloading and overlap."""


def cold(*words: str) -> float:
    """Best wall seconds of three fresh interpreters."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Print the table."""
    yardstick = cold("-c", "pass")
    for name, words, target in CASES:
        seconds = cold("-m", "rooflm", *words)
        print(
            f"{name:40s} {seconds:7.2f} s  {seconds / yardstick:7.0f} x python -c pass  {target and 'target ' + target}"
        )
    start, core = time.perf_counter(), time.process_time()
    found = search_train("gpt3-175b", gpu="a100-sxm-80gb", gpus=1024, batch=1536, seq=2048, **LARGE)
    wall, core = time.perf_counter() - start, time.process_time() - core
    rate = f"{found.points / wall / 1e6:.2f} M/s wall, {found.points / core / 1e6:.2f} M/core-s"
    print(f"{f'training space of {found.points / 1e6:.1f} million points':40s} {wall:7.2f} s  {rate}  target 20 s")


if __name__ == "__main__":
    main()
