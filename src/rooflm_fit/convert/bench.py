"""What `trtllm-bench` sets where its user does not: most sequences and most tokens of a pass, by its own estimate.

Source: TensorRT-LLM, tensorrt_llm/bench/build/tuning.py (calc_engine_setting, finetune_setting) and
bench/benchmark/utils/general.py (get_settings), which the throughput command and the engines of 0.17 alike use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rooflm.catalogue.model import MLA, Attention, Model
from rooflm.errors import RooflmError
from rooflm.readers.devices import load_device
from rooflm.readers.models import packaged

SOURCES = ("trtllm17", "trtllm10", "trtllmdg")
"""Sources that ran it with its own limits (perf-overview.md of their releases gives neither)."""
BYTES = {"nvfp4": 0.5, "fp8": 1.0, "fp8-block": 1.0, "bf16": 2.0, "fp16": 2.0, "w16a16": 2.0}
"""Bytes a parameter that it reckons with, of the types that it tunes for; others have the server's defaults."""
COUNTED = {"nvfp4": 0.5 + 1 / 16}
"""Values of a checkpoint file a parameter, where that is not 1: two in a byte, and a scale for sixteen."""
FRACTION = 0.9
"""kv_cache_free_gpu_mem_fraction of the throughput command."""
MOST_SEQUENCES, MOST_TOKENS, LEAST_SEQUENCES, LEAST_TOKENS = 4096, 32768, 64, 2048


def cached_values(model: Model, tensor: int) -> float:
    """Values of the cache a token, over all GPUs: keys and values of every layer with attention, a head a GPU at least.
    Of latent attention it takes heads and hidden / heads, as a config.json without head_dim says."""
    found = 0.0
    for block in model.blocks:
        mixer: Any = block.mixer
        if isinstance(mixer, MLA):
            found += float(block.count) * 2 * max(tensor, float(mixer.heads)) * float(model.hidden) / float(mixer.heads)
        elif isinstance(mixer, Attention):
            found += float(block.count) * 2 * max(tensor, float(mixer.kv_heads)) * float(mixer.head_dim)
    return found


def rounded(sequences: float, tokens: float) -> tuple[int, int]:
    """Its limits out of what would fit, both rounded up to steps that grow with them.

    >>> rounded(95.3, 190.6), rounded(700, 12345)
    ((96, 2048), (768, 13312))
    """
    step = 32 if sequences < 256 else 128 if sequences < 1024 else 256
    least = LEAST_SEQUENCES if step == 32 else 0
    most = max(least, step * math.ceil(sequences / step))
    size = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return most, max(LEAST_TOKENS, size * math.ceil(tokens / size))


def limits(values: Mapping[str, Any], quant: str) -> dict[str, int]:
    """budget and max_sequences of a row of its tables; empty where it does not tune, the catalogue lacks a part, the
    row leaves model, card or tp blank, or the model has no attention.

    Its batch is of each stage of a pipeline, so that `stages` times as many run. A prompt goes in whole: a pass holds
    the longest beside a full batch.

    >>> row = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "tp": 1, "prompt": 1000, "output": 2000}
    >>> limits(row, "fp8kv8"), limits(row, "int8")
    ({'budget': 2048, 'max_sequences': 384}, {})
    """
    base = quant.removesuffix("kv8").removesuffix("kv16")
    needed = [values.get(name) for name in ("model", "gpu", "tp", "prompt", "output")]
    if base not in BYTES or not all(needed):
        return {}
    try:
        model, device = packaged(values["model"]), load_device(values["gpu"])
    except RooflmError:
        return {}
    prompt, output = int(values["prompt"]), int(values["output"])
    tensor, stages = int(values["tp"]) * int(values.get("dp") or 1), int(values.get("pp") or 1)
    weights = float(model.parameters) * COUNTED.get(base, 1.0) * BYTES[base]
    free = float(device.dram.size) * tensor * stages - weights
    each = cached_values(model, tensor) * (1.0 if quant.endswith("kv8") else 2.0) * (prompt + output)
    if free <= 0 or each <= 0:
        return {}
    sequences = min(FRACTION * free / each, MOST_SEQUENCES) / stages
    most, tokens = rounded(sequences, min(sequences * (1 + prompt / output), MOST_TOKENS))
    return {"budget": max(tokens, prompt + most), "max_sequences": most * stages}
