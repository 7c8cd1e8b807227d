"""What bounds each matrix product of a Llama-2 13B prefill on GPUs of five years.

    python examples/explore_gemms.py

At 200 prompt tokens the wide products do 190 FLOP a byte: above A100's balance of 153, far below H100's 295. So they
are compute-bound on A100 and memory-bound where FLOP/s grew faster than bandwidth; a single head's products always
are memory-bound. The paper: Kundu et al., arXiv 2407.14645, table III.
"""

from __future__ import annotations

import numpy as np

from rooflm.explore import Columns, gemm_bounds, select

GPUS = ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
PROMPTS = (100, 200, 400)


def study(prompt: int = 200) -> Columns:
    """Every product on every GPU."""
    return gemm_bounds("llama-2-13b", GPUS, prompt)


def main() -> None:
    """Print what bounds each product, and the share of the products' time that is compute-bound."""
    table = study()
    products = list(dict.fromkeys(table["product"].tolist()))
    print(f"{'200 tokens':15s}" + "".join(f"{p:>10s}" for p in products))
    for gpu in GPUS:
        rows = select(table, gpu=gpu)
        print(f"{gpu:15s}" + "".join(f"{b:>10s}" for b in rows["bound"]))
    print("\ncompute-bound share of their time (%)")
    print(f"{'prompt tokens':15s}" + "".join(f"{p:>10d}" for p in PROMPTS))
    tables = [study(prompt) for prompt in PROMPTS]
    for gpu in GPUS:
        print(f"{gpu:15s}" + "".join(f"{100 * bound_by_compute(select(t, gpu=gpu)):10.0f}" for t in tables))


def bound_by_compute(rows: Columns) -> float:
    """Share of the time of these products that is of compute-bound ones."""
    return float(np.sum(rows["time_s"][rows["bound"] == "compute"]) / np.sum(rows["time_s"]))


if __name__ == "__main__":
    main()
