"""How fast the serving simulator is: requests simulated a second, and a day of a million requests.

    python benchmarks/bench_serving.py [--trace azure_llm_2023_conv.csv] [--requests 1000000]

Vidur (Agrawal et al., MLSys 2024) simulates about 210 requests a second with 512 tokens in, 128 out and some 50
running; the aim is 100 times that on one core. What is timed is the public call and its summary.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

from rooflm import Served, serve

VIDUR = 210.0
DAY = 86400.0


def tell(done: int, total: int, now: float) -> None:
    """Progress on standard error, every hundred thousand requests."""
    if done % 100_000 == 0:
        print(f"  {done} of {total} requests, {now:.0f} s simulated", file=sys.stderr)


def timed(**load: Any) -> tuple[Served, dict[str, Any], float, float]:
    """A run of llama-3.1-8b on H100s and its figures; CPU seconds (one core) of the call, and of its summary."""
    start = time.process_time()
    run = serve("llama-3.1-8b", gpu="h100-sxm-80gb", progress=tell, **load)
    middle = time.process_time()
    return run, run.values(), middle - start, time.process_time() - middle


def day_of(trace: str | None, requests: int) -> dict[str, Any]:
    """A load of so many requests in a day: a trace's lengths, or synthetic ones with the rate of a day."""
    if trace:
        rows = sum(1 for _ in open(trace, encoding="utf-8")) - 1  # noqa: PTH123, SIM115 (one line to count lines)
        return {"trace": trace, "copies": -(-requests // rows), "rate": requests / DAY}
    return {"rate": requests / DAY, "requests": requests, "prompt": 1155, "output": 211, "spread": (0.1, 1.9),
            "peak": 1.6, "seed": 1}  # fmt: skip


def main() -> int:
    """Both measurements, one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="csv of requests (default: synthetic lengths)")
    parser.add_argument("--requests", type=int, default=1_000_000)
    given = parser.parse_args()
    _, v, seconds, _ = timed(rate=32.0, requests=50_000, prompt=512, output=128, seed=1)
    rate = v["requests"] / seconds
    print(f"512 in, 128 out, {v['running_mean']:.0f} running: {rate:,.0f} requests a CPU second, "
          f"{rate / VIDUR:.0f} x Vidur's")  # fmt: skip
    replicas = max(round(given.requests / DAY * (1155 + 4 * 211) / 12_000), 1)
    _, v, seconds, summary = timed(**day_of(given.trace, given.requests), replicas=replicas)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{v['requests']:,} requests of a day on {replicas} replicas: {seconds:.0f} CPU s and {summary:.0f} to "
        f"summarise, {v['finished']:,} finished, {memory:.2f} GiB at most"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
