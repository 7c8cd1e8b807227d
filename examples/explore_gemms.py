"""What bounds each matrix product of a Llama-2 13B prefill on GPUs of five years.

    python examples/explore_gemms.py [FIGURE.png]

At 200 prompt tokens the wide products do 190 FLOP a byte: above A100's balance of 153, far below H100's 295. So they
are compute-bound on A100 and memory-bound where FLOP/s grew faster than bandwidth; a single head's products always
are memory-bound. The paper: Kundu et al., arXiv 2407.14645, table III.
"""

from __future__ import annotations

import sys

import numpy as np

from rooflm.explore import Columns, gemm_bounds, select

GPUS = ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
PROMPTS = (100, 200, 400)


def study(prompt: int = 200) -> Columns:
    """Every product on every GPU."""
    return gemm_bounds("llama-2-13b", GPUS, prompt)


def main(figure: str = "") -> None:
    """Print the bounds and draw the share of compute-bound FLOPs."""
    table = study()
    products = list(dict.fromkeys(table["product"].tolist()))
    print(f"{'200 tokens':15s}" + "".join(f"{p:>10s}" for p in products))
    for gpu in GPUS:
        rows = select(table, gpu=gpu)
        print(f"{gpu:15s}" + "".join(f"{b:>10s}" for b in rows["bound"]))
    if figure:
        from rooflm.plot import Bars, Scale, draw

        labels, parts = [], {"compute-bound": [], "memory-bound": []}
        for gpu in GPUS:
            for prompt in PROMPTS:
                rows = select(study(prompt), gpu=gpu)
                share = float(np.sum(rows["time_s"][rows["bound"] == "compute"]) / np.sum(rows["time_s"]))
                labels.append(f"{gpu.split('-')[0]}, {prompt} tokens")
                parts["compute-bound"].append(100 * share)
                parts["memory-bound"].append(100 * (1 - share))
        title = "Llama-2 13B prefill: share of the products' time by what bounds it"
        draw(Bars(title, tuple(labels), Scale("share (%)"), {k: np.array(v) for k, v in parts.items()}), figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
