"""Tables in the manner of Shin, Go, Yoo, Yang and Yoo (J-KICS 49(10), 2024): inference by batch and parallelisation.

    python examples/shin_tables.py [MODEL] [GPU] [GPUS]

prints communication, memory and time by batch for tensor and for pipeline parallelism, with unfused and fused kernels,
and the batch at which memory ends. The paper's abstract names these axes and its findings: a larger batch sends more
between the GPUs and loses efficiency, and memory grows with the batch to a threshold. Its models, GPUs and tables are
not public, so the defaults here (Llama-2 7B, four A100 PCIe 40 GB, plain PyTorch) are ours.

The same table from the shell:

    rooflm infer llama-2-7b --gpu a100-pcie-40gb --tp 4,1 --pp 1,4 --zip tp,pp --engine hf-eager \\
        --set engine.fused=false,true --batch 1..1024*2 --prompt 128 --output 128 \\
        --outputs comm_bytes,memory_bytes,latency_s,max_batch,fits
"""

from __future__ import annotations

import sys

import numpy as np
import xarray

from rooflm import RooflmError, infer_grid

PROMPT, OUTPUT = 128, 128
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def table(model: str = "llama-2-7b", gpu: str = "a100-pcie-40gb", gpus: int = 4) -> xarray.Dataset:
    """The grid: kernels (unfused, fused) by strategy (tensor, pipeline) by batch."""
    return infer_grid(
        model, gpu=gpu, engine="hf-eager", sets={"engine.fused": [False, True]}, tp=[gpus, 1], pp=[1, gpus],
        zip=("tp", "pp"), batch=BATCHES, prompt=PROMPT, output=OUTPUT,
    )  # fmt: skip


def ordered(grid: xarray.Dataset, key: str) -> np.ndarray:
    """An output with the axes fused, strategy, batch."""
    found: np.ndarray = grid[key].transpose("engine.fused", "tp", "batch").values
    return found


def sent(grid: xarray.Dataset) -> np.ndarray:
    """Bytes that one GPU sends for a whole request: the prefill and every decode step after it."""
    return ordered(grid, "comm_bytes.prefill") + (OUTPUT - 1) * ordered(grid, "comm_bytes.decode")


def lines(grid: xarray.Dataset) -> list[str]:
    """The tables as text."""
    out = []
    volume, memory, time = sent(grid), ordered(grid, "memory_bytes"), ordered(grid, "latency_s")
    fits, most, busy = ordered(grid, "fits"), ordered(grid, "max_batch"), ordered(grid, "busy")
    for i, fused in enumerate(("unfused kernels", "fused kernels")):
        for j, strategy in enumerate(("tensor parallel", "pipeline parallel")):
            out.append(f"{strategy}, {fused}: memory ends above batch {int(most[i, j, 0])}")
            out.append("  batch   sent a GPU       memory     time  busy")
            for k, batch in enumerate(BATCHES):
                cells = f"{volume[i, j, k] / 1e9:9.3f} GB  {memory[i, j, k] / 2**30:7.2f} GiB"
                tail = f"{time[i, j, k]:6.2f} s  {100 * busy[i, j, k]:3.0f}%" if fits[i, j, k] else "   out of memory"
                out.append(f"  {batch:5d}  {cells}  {tail}")
            out.append("")
    return out


def main(model: str = "llama-2-7b", gpu: str = "a100-pcie-40gb", gpus: str = "4") -> None:
    """Print the tables."""
    print("\n".join(lines(table(model, gpu, int(gpus)))))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except RooflmError as error:
        sys.exit(f"shin_tables: {error}")
