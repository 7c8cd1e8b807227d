"""The outputs of a training estimate: one row each."""

from __future__ import annotations

from rooflm.estimate.inference_results import INFER_OUTPUTS
from rooflm.estimate.results import PRICE, Output, table

TRAIN_OUTPUTS = table(
    Output("step_time_s", "time of one optimiser step", "s", lambda e: e.step_time, "step"),
    Output("tokens_per_s_per_gpu", "trained tokens per second per GPU", "1/s", lambda e: e.tokens_per_s_per_gpu),
    Output("model_tflops_per_gpu", "model TFLOP/s per GPU, all pairs of tokens counted in attention", "TFLOP/s",
           lambda e: e.model_tflops_per_gpu),
    Output("mfu", "model FLOP/s over peak, all pairs of tokens counted in attention", "1", lambda e: e.mfu),
    Output("mfu_causal", "model FLOP/s over peak, only causal pairs of tokens counted in attention", "1",
           lambda e: e.mfu_causal),
    Output("hfu", "executed FLOP/s over peak, recomputation included", "1", lambda e: e.hfu),
    Output("memory_bytes", "peak memory per GPU", "B", lambda e: e.used),
    Output("memory_capacity_bytes", "memory that the framework may use per GPU", "B", lambda e: e.capacity),
    Output("memory", "memory per GPU by part", "B", lambda e: e.memory.parts),
    Output("fits", "fits in memory and the mapping is legal", "", lambda e: e.fits),
    Output("reason", "why it cannot run", "", lambda e: e.reason),
    Output("max_micro_batch", "largest micro-batch that fits", "1", lambda e: e.max_micro_batch),
    Output("micro_batches", "micro-batches a step", "1", lambda e: e.micro_batches),
    Output("comm_bytes", "bytes sent by one GPU a step by collective", "B", lambda e: e.comm_bytes),
    Output("parts_s", "step time by part", "s", lambda e: e.parts),
    Output("components_s", "device seconds of a step by part of the model, hidden communication included", "s",
           lambda e: e.components),
    Output("bound", "what bounds forward and backward pass and the step", "", lambda e: e.bound),
    Output("bubble_fraction", "idle over busy time of the pipeline schedule", "1", lambda e: e.bubble_fraction),
    Output("flops_time_s", "time of one step if only FLOPs took time", "s", lambda e: e.flops_time),
    Output("layer_forward_s", "forward of one layer and micro-batch", "s", lambda e: e.layer_forward),
    Output("layer_backward_s", "backward of one layer and micro-batch, recomputation included", "s",
           lambda e: e.layer_backward),
    Output("steps", "optimiser steps of the run", "1", lambda e: e.steps),
    Output("gpu_hours", "GPU-hours of the run, undisturbed", "h", lambda e: e.gpu_hours),
    Output("flops_gpu_hours", "GPU-hours of the run if only FLOPs took time", "h", lambda e: e.flops_gpu_hours),
    Output("days", "days of the run, undisturbed", "d", lambda e: e.days),
    Output("goodput", "share of time left by failures and checkpoints", "1", lambda e: e.job.goodput),
    Output("days_with_failures", "days of the run with failures and checkpoints", "d",
           lambda e: e.job.days_with_failures),
    Output("checkpoint_interval_s", "time between checkpoints", "s", lambda e: e.job.checkpoint_interval),
    Output("cost_usd", "cost of the run", "USD", lambda e: e.cost),
    *PRICE,
    Output("energy_j", "energy of the run", "J", lambda e: e.energy),
    Output("power_w", "mean power per GPU", "W", lambda e: e.power),
    Output("gpus", "GPUs used", "1", lambda e: e.gpus),
    INFER_OUTPUTS["error_band"],
)  # fmt: skip
"""The outputs of `train`."""
