"""How fast the serving simulator is: requests simulated a second, and a day of a trace scaled to a million requests.

    python benchmarks/bench_serving.py [--trace azure_llm_2023_conv.csv] [--requests 1000000]

Vidur (Agrawal et al., MLSys 2024) simulates about 210 requests a second with 512 tokens in, 128 out and some 50
running; the aim is 100 times that on one core.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from rooflm.scenario.build_inference import build_inference
from rooflm.serving import metrics
from rooflm.serving.deploy import deploy, make_requests
from rooflm.serving.simulate import Run, simulate
from rooflm.serving.workload import Requests, daily, open_loop, scaled, stretched

VIDUR = 210.0


def timed(load: Requests, **kwargs: int) -> tuple[Run, float, float]:
    """A run on llama-3.1-8b and H100s; CPU seconds of simulation (one core) and of its summary."""
    longest, output = int(load.prompt.max()), int(load.output.max())
    request = build_inference(model="llama-3.1-8b", gpu="h100-sxm-80gb", prompt=longest, output=output)
    d = deploy(request, load, **kwargs)
    last = [time.perf_counter()]

    def tell(done: int, total: int, now: float) -> None:
        if time.perf_counter() - last[0] > 5:
            last[0] = time.perf_counter()
            print(f"  {done} of {total} requests, {now:.0f} s simulated", file=sys.stderr)

    start = time.process_time()
    run = simulate(load, d.pools, d.router, d.transfer, progress=tell)
    middle = time.process_time()
    metrics.summarise(run)
    return run, middle - start, time.process_time() - middle


def day_of(path: str | None, requests: int) -> Requests:
    """A million requests over a day: the trace's lengths in its order, arrivals with the rate of a day."""
    base = make_requests(trace=path) if path else open_loop(5.0, 20_000, 1155, 211, (0.1, 1.9), seed=1)
    copies = -(-requests // base.count)
    thick = scaled(base, float(base.arrival[-1]) / 86400.0, copies, seed=1)
    keep = slice(0, requests)
    arrival = stretched(thick.arrival[keep], daily(1.6))
    return Requests(thick.prompt[keep], thick.output[keep], arrival * (86400.0 / float(arrival[-1])), name="a day")


def main() -> int:
    """Both measurements, one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="csv or jsonl of requests (default: synthetic lengths)")
    parser.add_argument("--requests", type=int, default=1_000_000)
    given = parser.parse_args()
    load = open_loop(32.0, 50_000, 512, 128, seed=1)
    run, seconds, _ = timed(load)
    running = sum(r.meter.sequence_steps for r in run.replicas) / sum(r.decoding.steps for r in run.replicas)
    rate = load.count / seconds
    print(f"512 in, 128 out, {running:.0f} running: {rate:,.0f} requests a CPU second, {rate / VIDUR:.0f} x Vidur's")
    day = day_of(given.trace, given.requests)
    replicas = max(round(day.rate * float(np.mean(day.prompt + 4 * day.output)) / 12_000), 1)
    run, seconds, summary = timed(day, replicas=replicas)
    done = sum(1 for s in run.records.status if s == 2)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{day.count:,} requests of a day on {replicas} replicas: {seconds:.0f} CPU s and {summary:.0f} to summarise, "
        f"{done:,} finished, {memory:.2f} GiB at most"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
