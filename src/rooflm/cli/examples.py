"""Examples of every command, below its help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from rooflm.cli.console import width
from rooflm.cli.options import command_class
from rooflm.shown.terminal import shell_lines

EXAMPLES: dict[str, tuple[str, ...]] = {
    "infer": (
        "rooflm infer llama-3.1-8b --gpu rtx-4090 --quant int4",
        "rooflm infer llama-3.1-70b --gpu h100,h200 --tp 4,8 --batch 1..64*2 --out grid.csv",
    ),
    "train": (
        "rooflm train llama-3.1-8b --gpu h100 --gpus 64 --batch 1024 --seq 8192 --tokens 15T",
        "rooflm train llama-3.1-8b --gpu rtx-4090 --lora-rank 16 --batch 16 --recompute full",
    ),
    "predict gemm": ("rooflm predict gemm --m 1,16,4096 --n 4096 --k 14336 --gpu a100",),
    "predict attention": ("rooflm predict attention decode --batch 8 --tokens 4096 --kv-heads 8",),
    "predict collective": ("rooflm predict collective all_reduce --size 64M --ranks 8 --algorithm ring",),
    "serve": (
        "rooflm serve llama-3.1-70b --gpu h100 --tp 4 --concurrency 50 --prompt 2048 --slo ttft:p95=1s",
        "rooflm serve llama-3.1-8b --gpu l40s --slo ttft:p95=500ms --find rate",
        "rooflm serve qwen3-32b --gpu l40s,h100,h200 --tp 4,2,1 --zip gpu,tp --concurrency 20",
    ),
    "search infer": (
        "rooflm search infer llama-3.1-70b --gpu h100 --gpus-max 16 --concurrency 50 --ttft 1s",
        "rooflm search infer llama-3.1-8b --gpu h100,l40s,rtx-4090 --batch 16 --objective cost",
    ),
    "search train": (
        "rooflm search train llama-3.1-8b --gpu h100 --gpus 64 --tokens 15T",
        "rooflm search train gpt3-175b --gpu a100 --gpus-max 1024 --tokens 300B --days 60",
    ),
    "explore grid": ("rooflm explore grid llama-2-7b --batch 8 --node n7,n5,n3 --dram hbm3,hbm4",),
    "explore split": ("rooflm explore split llama-2-7b --phase infer --method exhaustive",),
    "explore front": (
        "rooflm explore front llama-2-7b --phase infer --node n7,n5,n3 --goals time_s,capital_usd",
    ),
    "explore gemms": ("rooflm explore gemms llama-2-13b --gpu a100,h100,b200",),
    "explore generations": ("rooflm explore generations gpt3-175b --gpus 1024",),
    "explore dies": ("rooflm explore dies --left-out",),
    "study": ("rooflm study", "rooflm study technology --out pages"),
    "report": ("rooflm report chat.toml -o chat.html",),
    "web": ("rooflm web", "rooflm web --port 9000 --no-browser"),
    "measure": ("rooflm measure smollm2-135m --batch 1,4 --out mine.csv",),
    "compare": ("rooflm compare mine.csv --gpu my-machine.toml",),
    "calibrate": ("rooflm calibrate mine.csv --out my-machine.toml",),
    "validate": ("rooflm validate --by gpu", "rooflm validate mine.csv --rows"),
    "list": ("rooflm list gpus rtx",),
    "show": ("rooflm show model deepseek-v3", "rooflm show schema device"),
}  # fmt: skip
"""Command -> examples of its use."""
START = ("rooflm infer llama-3.1-8b --gpu rtx-4090", *(EXAMPLES[name][0] for name in ("train", "search infer")))
"""Where to begin."""


def below(*examples: str) -> list[str]:
    """Examples at the end of a command's help."""
    lines = [line for e in examples for line in shell_lines(e, width() - 4)]
    return [" Examples", *(f"   {line}" for line in lines), ""]


def exemplified(name: str) -> Any:
    """The kind of a command whose help ends in its examples."""
    own = [e for key, examples in EXAMPLES.items() if f"{key} ".startswith(f"{name} ") for e in examples]
    return command_class(TyperCommand if name in EXAMPLES else TyperGroup, below(*own))
