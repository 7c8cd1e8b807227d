"""Llama-2 13B over three RTX 3060, one card a box, on Ethernet (llm-cluster-perf): what explains the published figures?

The source does not say how the model is split, in which engine, or how fast the network is. Read as layers split over
three boxes, one batch passing box after box in eager PyTorch, over 1 Gb/s Ethernet, and 25 ms a token of host and
process time between boxes (the source saw some 40 ms of other than GPU time at batch 1), eight rows come out within
10 per cent. A tensor split is no candidate: 40 heads do not divide by three.

Run: python examples/small_cluster.py
"""

from __future__ import annotations

from typing import NamedTuple

from rooflm import infer

MEASURED = (7.5, 15.7, 22.8, 30.1, 39.0, 47.5, 53.5, 62.1)
"""Tokens a second at batch 1 to 8: Bin Tan, llm-cluster-perf, perf_tune_1.md, test 1.2."""
SETUP = {"gpu": "rtx-3060-12gb", "cluster": "ethernet-1g", "prompt": 32, "output": 128}


class Line(NamedTuple):
    """One row of the table: tokens/s measured and predicted, and the parts of a token's time in ms."""

    batch: int
    measured: float
    predicted: float
    gpu_ms: float
    network_ms: float
    other_ms: float


def lines() -> list[Line]:
    """Predicted beside measured at batch 1 to 8, and where the time of a token goes."""
    table = []
    for batch, measured in enumerate(MEASURED, start=1):
        e = infer("llama-2-13b", pp=3, engine="hf-boxes", batch=batch, **SETUP)
        parts = {k: 1e3 * float(v) for k, v in e.decode_parts.items()}
        network, other = parts.pop("pp_comm"), parts.pop("host") + parts.pop("gaps")
        table.append(Line(batch, measured, float(e.output_tokens_per_s), sum(parts.values()), network, other))
    return table


def main() -> None:
    """Print the table."""
    print("batch  measured  predicted   off   GPU ms  network ms  other ms")
    for x in lines():
        off = 100 * (x.predicted / x.measured - 1)
        rates = f"{x.measured:8.1f}  {x.predicted:9.1f}  {off:+3.0f} %"
        shown = f"{rates}  {x.gpu_ms:6.0f}  {x.network_ms:10.1f}  {x.other_ms:8.0f}"
        print(f"{x.batch:5d}  {shown}")


if __name__ == "__main__":
    main()
