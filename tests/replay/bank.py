"""The replay bank: some 230 scenarios of inference and training and their stored outputs. A refactor must leave them
identical; a change of physics lists what moved. `python tests/replay/bank.py --update` stores today's outputs and
prints what moved."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rooflm import infer, train

STORE = Path(__file__).with_name("bank.json")
KEYS = ("ttft", "tpot", "tpot_end", "latency", "max_batch", "mfu", "mbu", "busy", "energy_per_token")
MODELS = (
    "llama-7b", "llama-2-70b", "llama-3.1-8b", "mistral-7b-v0.1", "mixtral-8x7b", "deepseek-v3", "qwen3-32b",
    "qwen3-30b-a3b", "qwen3-next-80b-a3b", "gpt-oss-120b", "gemma-3-27b", "gpt3-175b", "falcon-40b", "bloom-176b",
    "phi-4", "smollm2-135m",
    "llama-4-scout", "glm-4.5-air", "jamba-1.5-mini", "gpt-j-6b",
)  # fmt: skip
PLACES: tuple[dict[str, Any], ...] = (
    {"gpu": "a100-sxm-80gb", "batch": 1, "prompt": 512, "output": 32, "efficiency": "ideal"},
    {"gpu": "h100-sxm-80gb", "batch": 16, "prompt": 1024, "output": 256, "efficiency": "0.7,0.9", "quant": "w4a16kv8"},
    {"gpu": "h100-sxm-80gb", "batch": 64, "prompt": 128, "output": 1024, "engine": "vllm"},
    {"gpu": "h200-sxm-141gb", "batch": 8, "prompt": 8192, "output": 64, "engine": "trtllm", "quant": "fp8"},
    {"gpu": "b200-sxm-180gb", "batch": 256, "prompt": 2048, "output": 128, "engine": "sglang", "pp": 2},
    {"gpu": "l40s", "batch": 4, "prompt": 512, "output": 128, "engine": "vllm", "quant": "int8"},
    {"gpu": "mi300x", "batch": 32, "prompt": 512, "output": 512, "engine": "vllm"},
    {"gpu": "a100-sxm-80gb", "batch": 32, "prompt": 12, "output": 128, "engine": "hf-eager-4.28"},
    {"gpu": "rtx-4090", "batch": 1, "prompt": 512, "output": 512, "engine": "llama.cpp", "quant": "q4_k_m"},
    {"gpu": "h100-sxm-80gb", "batch": 128, "prompt": 512, "output": 128, "dp": 2, "cached": 256, "engine": "vllm"},
)


TRAIN_KEYS = ("step_time", "mfu", "step_energy")
TRAIN_MODELS = ("gpt3-175b", "llama-2-70b", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3")
TRAIN_PLACES: tuple[dict[str, Any], ...] = (
    {"gpu": "a100-sxm-80gb", "gpus": 64, "tp": 8, "pp": 4, "batch": 64, "engine": "megatron", "recompute": "full"},
    {"gpu": "a100-sxm-80gb", "gpus": 64, "tp": 8, "pp": 2, "batch": 64, "engine": "megatron", "recompute": "selective"},
    {"gpu": "h100-sxm-80gb", "gpus": 128, "tp": 4, "pp": 4, "batch": 128, "engine": "nemo"},
    {"gpu": "h100-sxm-80gb", "gpus": 128, "batch": 256, "engine": "fsdp"},
    {"gpu": "h100-sxm-80gb", "gpus": 64, "batch": 128, "engine": "torchtitan"},
    {"gpu": "b200-sxm-180gb", "gpus": 32, "tp": 4, "batch": 64, "engine": "megatron", "efficiency": "ideal"},
)


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of every scenario of the bank."""
    for model in MODELS:
        for place in PLACES:
            words = ",".join(f"{k}={v}" for k, v in place.items())
            yield f"{model}:{words}", {"model": model, **place}
    for model in TRAIN_MODELS:
        for place in TRAIN_PLACES:
            words = ",".join(f"{k}={v}" for k, v in place.items())
            yield f"train {model}:{words}", {"model": model, "seq": 2048, "micro_batch": 1, **place}


def outputs(arguments: dict[str, Any]) -> dict[str, float]:
    """What the bank keeps of a prediction."""
    if "seq" in arguments:
        t = train(**arguments)
        return {key: float(getattr(t, key)) for key in TRAIN_KEYS} | {"memory": float(t.memory.total)}
    e = infer(**arguments)
    return {key: float(getattr(e, key)) for key in KEYS} | {
        "memory": float(e.memory.total),
        "fits": float(bool(e.fits)),
    }


def moved(stored: dict[str, float], now: dict[str, float], tolerance: float = 1e-9) -> list[str]:
    """What differs between two sets of outputs, as sentences."""
    return [
        f"{key} {stored.get(key, float('nan')):.6g} -> {value:.6g}"
        for key, value in now.items()
        if not abs(stored.get(key, float("nan")) - value) <= tolerance * max(abs(value), 1e-300)
    ]


def main() -> None:
    """Store today's outputs and say what moved, the largest change of time first."""
    old = json.loads(STORE.read_text()) if STORE.exists() else {}
    new = {name: outputs(arguments) for name, arguments in scenarios()}
    changed = {name: moved(old[name], new[name]) for name in new if name in old and moved(old[name], new[name])}
    whole = {name: new[name].get("latency", new[name].get("step_time", 0.0)) for name in changed}
    before = {name: old[name].get("latency", old[name].get("step_time", 0.0)) for name in changed}
    for name in sorted(changed, key=lambda n: -abs(whole[n] / before[n] - 1)):
        print(f"{name}: {'; '.join(changed[name])}")
    print(f"{len(new)} scenarios, {len(changed)} moved, {len(new.keys() - old.keys())} new")
    if "--update" in sys.argv:
        STORE.write_text(json.dumps(new, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
