"""Grids that tests of pictures draw."""

from __future__ import annotations

from typing import Any

from rooflm.api import INFER, TRAIN

INFERENCE = {"model": "llama-7b", "efficiency": "0.7,0.9", "engine": "hf-eager-4.28", "prompt": 12}
TRAINING = {"model": "gpt3-175b", "gpu": "a100-sxm-80gb", "gpus": 64, "tp": 8, "pp": 8, "batch": 64}


def grid(**arguments: Any) -> Any:
    """A grid of inference."""
    made = INFER.grid(INFERENCE | arguments)
    assert made is not None
    return made


def trained(**arguments: Any) -> Any:
    """A grid of training."""
    made = TRAIN.grid(TRAINING | arguments)
    assert made is not None
    return made
