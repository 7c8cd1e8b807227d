"""The outputs of an inference estimate: one row each."""

from __future__ import annotations

from rooflm.estimate.results import PRICE, Output, table

INFER_OUTPUTS = table(
    Output("ttft_s", "time to first token", "s", lambda e: e.ttft, "prefill"),
    Output("tpot_s", "time per output token, mean over the output", "s", lambda e: e.tpot, "decode"),
    Output("tpot_end_s", "time per output token at the end of the output", "s", lambda e: e.tpot_end),
    Output("latency_s", "request latency", "s", lambda e: e.latency, "request"),
    Output("output_tokens_per_s", "output tokens (of a model that embeds: embeddings) per second, all GPUs", "1/s",
           lambda e: e.output_tokens_per_s),
    Output("output_tokens_per_s_per_gpu", "output tokens per second per GPU", "1/s",
           lambda e: e.output_tokens_per_s_per_gpu),
    Output("requests_per_s", "requests per second", "1/s", lambda e: e.requests_per_s),
    Output("memory_bytes", "peak memory per GPU", "B", lambda e: e.memory.total),
    Output("memory_capacity_bytes", "memory that the engine may use per GPU", "B", lambda e: e.memory.capacity),
    Output("memory", "memory per GPU by part", "B", lambda e: e.memory.parts),
    Output("fits", "fits in memory and the mapping is legal", "", lambda e: e.fits),
    Output("reason", "why it cannot run", "", lambda e: e.reason),
    Output("max_batch", "largest batch that fits", "1", lambda e: e.max_batch),
    Output("comm_bytes", "bytes sent by one GPU", "B", lambda e: e.comm_bytes),
    Output("comm_detail", "bytes sent by one GPU by collective", "B", lambda e: e.comm_detail),
    Output("prefill_parts_s", "prefill time by part", "s", lambda e: e.prefill_parts),
    Output("decode_parts_s", "decode step time by part", "s", lambda e: e.decode_parts),
    Output("bound", "what bounds the phase", "", lambda e: e.bound),
    Output("mfu", "model FLOP/s over peak, whole request", "1", lambda e: e.mfu),
    Output("mbu", "memory bandwidth over peak, whole request", "1", lambda e: e.mbu),
    Output("prefill_mfu", "model FLOP/s over peak, prefill", "1", lambda e: e.prefill_mfu),
    Output("decode_mbu", "memory bandwidth over peak, decode", "1", lambda e: e.decode_mbu),
    Output("busy", "share of time with a kernel running", "1", lambda e: e.busy),
    Output("energy_j_per_token", "energy per output token (of a model that embeds: per prompt token)", "J",
           lambda e: e.energy_per_token),
    Output("power_w", "mean power per GPU", "W", lambda e: e.power),
    Output("cost_usd_per_million_tokens",
           "cost per million output tokens (of a model that embeds: prompt tokens)", "USD",
           lambda e: e.cost_per_million_tokens),
    *PRICE,
    Output("gpus", "GPUs used", "1", lambda e: e.gpus),
    Output("error_band", "ends of the error band (10 to 90 % of measurements like it) and rows behind it", "",
           lambda e: e.error_band),
)  # fmt: skip
"""The outputs of `infer`. Costly ones (bound, reason) are worked out only when read."""
