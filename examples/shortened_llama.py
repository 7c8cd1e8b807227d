"""Redraw the maps of Shortened LLaMA (Kim et al., arXiv 2402.02834): GPU utilisation and latency over batch and length.

    python examples/shortened_llama.py [FOLDER]

writes utilisation.png (share of time with a kernel running, as `nvidia-smi utilization.gpu` shows, over batch 1 to 512
and 16 to 1024 generated tokens) and latency-*.png (over the batch, for L = 128 and 512, of the original model and of
models with 27 or 29 % of their width or depth pruned, and twice as wide or deep).

The set-up is the paper's: Hugging Face `generate` in 16 bits (engine hf-eager), a prompt of some 12 tokens, output
length forced. The paper's repository titles its demo "Width ✄ vs. Depth ✄": its variants are width-PRUNED and
depth-PRUNED models. The scissors sign has been misread as "x2"; the models twice as wide and deep are drawn as well, so
that nobody has to guess what that reading would give.

The same map from the shell:

    rooflm infer llama-7b,llama-7b,llama-7b,vicuna-13b --zip model,gpu --engine hf-eager --prompt 12 \\
        --gpu rtx-3090,a100-sxm-80gb,h100-sxm-80gb,h100-sxm-80gb --batch 1,2,4,8,16,32,64,128,256,384,512 \\
        --output 16..1024*2 --plot utilisation.png --plot-kind heatmap --plot-value busy
"""

from __future__ import annotations

import sys
from pathlib import Path

import xarray

from rooflm import infer_grid, plot

CASES = (
    ("llama-7b", "rtx-3090", 0.27),
    ("llama-7b", "a100-sxm-80gb", 0.27),
    ("llama-7b", "h100-sxm-80gb", 0.27),
    ("vicuna-13b", "h100-sxm-80gb", 0.29),
)
"""Model, GPU and share pruned of the paper's figure, (a) to (d)."""
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512]
LENGTHS = [16, 32, 64, 128, 256, 512, 1024]
SETUP = {"engine": "hf-eager", "prompt": 12}
PRINTED = {128: (97, 100, 100, 99), 512: (91, 100, 99, 98)}
"""Cells (%) that the figure prints: length -> at batch 128, for (a) to (d)."""


def utilisation() -> xarray.Dataset:
    """Busy share (and everything else) over case, batch and length."""
    models, gpus, _ = zip(*CASES, strict=True)
    return infer_grid(models, gpu=gpus, zip=("model", "gpu"), batch=BATCHES, output=LENGTHS, **SETUP)


def latency(model: str, gpu: str, share: float) -> xarray.Dataset:
    """Latency over the batch of the original, pruned and doubled models."""
    changes = {
        "model.width_prune": [0, share, 0, 0, 0],
        "model.depth_prune": [0, 0, share, 0, 0],
        "model.width_scale": [1, 1, 1, 2, 1],
        "model.depth_scale": [1, 1, 1, 1, 2],
    }
    return infer_grid(model, gpu=gpu, batch=BATCHES, output=[128, 512], sets=changes, zip=tuple(changes), **SETUP)


def compare(grid: xarray.Dataset) -> list[str]:
    """The cells that the paper prints beside ours."""
    lines = ["length  case                           published  rooflm"]
    for length, row in PRINTED.items():
        for i, ((model, gpu, _), published) in enumerate(zip(CASES, row, strict=True)):
            cell = grid.isel(model=i).sel(batch=128, output=length)
            ours = f"{100 * float(cell.busy):.0f} %" if bool(cell.fits) else "OOM"
            lines.append(f"{length:6d}  {f'{model} on {gpu}':30s} {published:7d} %  {ours:>6s}")
    return [*lines, "", *ALARMS]


ALARMS = (
    "RTX 3090, length 512, batch 128: the cell printed as 91 % cannot be. The KV cache alone is 0.5 MiB a token,",
    "128 x 524 tokens = 32.8 GiB, beside 12.6 GiB of weights on a 24 GiB card: it does not fit.",
    "RTX 3090, batch 1: the figure shows some 31 ms a token for the original and no less for the width-pruned one, as",
    "on a slow host; we find it faster and bound by memory, so that pruning the width helps there: its host was slower",
    "than the one that hf-eager's constants describe (some 12 to 14 ms a token, as the figure shows on A100 and H100).",
    "",
)


def facts(grid: xarray.Dataset) -> list[str]:
    """How each variant's latency compares with the original's, least and most over all cells that both can run."""
    names = ["original", "width-pruned", "depth-pruned", "width x2", "depth x2"]
    latency_s, fits = (grid[k].transpose("model.width_prune", ...).values for k in ("latency_s", "fits"))
    out = []
    for name, times, ok in zip(names[1:], latency_s[1:], fits[1:], strict=True):
        ratio = (times / latency_s[0])[ok & fits[0]]
        told = f"{ratio.min():.2f} to {ratio.max():.2f} of the original's latency" if ratio.size else "does not fit"
        out.append(f"  {name:13s} {told}")
    return out


def main(folder: str = ".") -> None:
    """Draw every picture into a folder and print what the paper printed beside what we find."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    grid = utilisation()
    plot.grid(grid, str(target / "utilisation.png"), "heatmap", "busy")
    print("\n".join(compare(grid)))
    for model, gpu, share in CASES:
        lines = latency(model, gpu, share)
        plot.grid(lines, str(target / f"latency-{model}-{gpu}.png"), "lines", "latency_s")
        print("\n".join([f"{model} on {gpu}, batch 1 to 512, {share:.0%} pruned", *facts(lines)]))


if __name__ == "__main__":
    main(*sys.argv[1:2])
