"""A training estimate as plain names and numbers: the keys of --json, columns of files, variables of a Dataset."""

from __future__ import annotations

from typing import Any

from rooflm.estimate.inference_results import INFER_KEYS, bands_around
from rooflm.estimate.training import TrainingEstimate

TRAIN_KEYS: dict[str, tuple[str, str]] = {
    "step_time_s": ("time of one optimiser step", "s"),
    "tokens_per_s_per_gpu": ("trained tokens per second per GPU", "1/s"),
    "model_tflops_per_gpu": ("model TFLOP/s per GPU, all pairs of tokens counted in attention", "TFLOP/s"),
    "mfu": ("model FLOP/s over peak, all pairs of tokens counted in attention", "1"),
    "mfu_causal": ("model FLOP/s over peak, only causal pairs of tokens counted in attention", "1"),
    "hfu": ("executed FLOP/s over peak, recomputation included", "1"),
    "memory_bytes": ("peak memory per GPU", "B"),
    "memory_capacity_bytes": ("memory that the framework may use per GPU", "B"),
    "memory": ("memory per GPU by part", "B"),
    "fits": ("fits in memory and the mapping is legal", ""),
    "reason": ("why it cannot run", ""),
    "max_micro_batch": ("largest micro-batch that fits", "1"),
    "micro_batches": ("micro-batches a step", "1"),
    "comm_bytes": ("bytes sent by one GPU a step by collective", "B"),
    "parts_s": ("step time by part", "s"),
    "bubble_fraction": ("idle over busy time of the pipeline schedule", "1"),
    "flops_time_s": ("time of one step if only FLOPs took time", "s"),
    "layer_forward_s": ("forward of one layer and micro-batch", "s"),
    "layer_backward_s": ("backward of one layer and micro-batch, recomputation included", "s"),
    "steps": ("optimiser steps of the run", "1"),
    "gpu_hours": ("GPU-hours of the run, undisturbed", "h"),
    "days": ("days of the run, undisturbed", "d"),
    "goodput": ("share of time left by failures and checkpoints", "1"),
    "days_with_failures": ("days of the run with failures and checkpoints", "d"),
    "checkpoint_interval_s": ("time between checkpoints", "s"),
    "cost_usd": ("cost of the run", "USD"),
    "energy_j": ("energy of the run", "J"),
    "power_w": ("mean power per GPU", "W"),
    "gpus": ("GPUs used", "1"),
    "error_band": INFER_KEYS["error_band"],
}
"""Key -> (meaning, unit), for nested keys of the group."""


def error_band(e: TrainingEstimate) -> dict[str, dict[str, Any]]:
    """The error band of the step time (see `bands_around`)."""
    return bands_around(e.scenario, {"step_time_s": ("step", e.step_time)})


def train_values(e: TrainingEstimate) -> dict[str, Any]:
    """Every output of a training estimate by its JSON key; groups are dicts. Values may be arrays."""
    return {
        "step_time_s": e.step_time,
        "tokens_per_s_per_gpu": e.tokens_per_s_per_gpu,
        "model_tflops_per_gpu": e.model_tflops_per_gpu,
        "mfu": e.mfu,
        "mfu_causal": e.mfu_causal,
        "hfu": e.hfu,
        "memory_bytes": e.memory.total,
        "memory_capacity_bytes": e.memory.capacity,
        "memory": e.memory.parts,
        "fits": e.fits,
        "reason": e.reason,
        "max_micro_batch": e.max_micro_batch,
        "micro_batches": e.micro_batches,
        "comm_bytes": e.comm_bytes,
        "parts_s": e.parts,
        "bubble_fraction": e.bubble_fraction,
        "flops_time_s": e.flops_time,
        "layer_forward_s": e.layer_forward,
        "layer_backward_s": e.layer_backward,
        "steps": e.steps,
        "gpu_hours": e.gpu_hours,
        "days": e.days,
        "goodput": e.job.goodput,
        "days_with_failures": e.job.days_with_failures,
        "checkpoint_interval_s": e.job.checkpoint_interval,
        "cost_usd": e.cost,
        "energy_j": e.energy,
        "power_w": e.power,
        "gpus": e.gpus,
        "error_band": error_band(e),
    }
