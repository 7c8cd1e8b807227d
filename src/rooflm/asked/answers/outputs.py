"""The outputs of inference and of training, a row each: keys of --json, columns of files, variables of a Dataset; and
which of them a person means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from rooflm.errors import RooflmError, near_matches
from rooflm.units import larger


class Output(NamedTuple):
    """One output. key: in --json, ending in its unit where it has one; meaning and unit of its values (or of those of
    its members); read: takes it from an estimate; phase: of its error band, "" without one; roof: takes from an
    estimate the share of the value that the work takes at the device's peak, below which no band reaches; members: of a
    group, those that an estimate may make, for hints."""

    key: str
    meaning: str
    unit: str
    read: Callable[[Any], Any]
    phase: str = ""
    roof: Callable[[Any], Any] = lambda e: 0.0
    members: tuple[str, ...] = ()


Outputs = Mapping[str, Output]
"""The table of outputs, by key."""


def table(*rows: Output) -> dict[str, Output]:
    """Rows by their key; a key stands once."""
    rows_by_key = {row.key: row for row in rows}
    assert len(rows_by_key) == len(rows)
    return rows_by_key


PRICE = (
    Output("price_usd_per_hour", "price of an hour of one GPU", "USD", lambda e: e.scenario.cluster.device.price),
    Output("price_basis", "what that price is: kind and date", "", lambda e: e.scenario.cluster.device.priced),
)
"""What costs rest on."""
INFER_OUTPUTS = table(
    Output("ttft_s", "time to first token", "s", lambda e: e.ttft, "prefill", lambda e: e.prefill_mfu),
    Output("tpot_s", "time per output token, mean over the output", "s", lambda e: e.tpot, "decode",
           lambda e: e.decode_mbu),
    Output("tpot_end_s", "time per output token at the end of the output", "s", lambda e: e.tpot_end),
    Output("latency_s", "request latency", "s", lambda e: e.latency, "request", lambda e: larger(e.mfu, e.mbu)),
    Output("output_tokens_per_s", "output tokens (of a model that embeds: embeddings) per second, all GPUs", "1/s",
           lambda e: e.output_tokens_per_s),
    Output("output_tokens_per_s_per_gpu", "output tokens per second per GPU", "1/s",
           lambda e: e.output_tokens_per_s_per_gpu),
    Output("requests_per_s", "requests per second", "1/s", lambda e: e.requests_per_s),
    Output("memory_bytes", "peak memory per GPU", "B", lambda e: e.memory.total),
    Output("memory_capacity_bytes", "memory that the engine may use per GPU", "B", lambda e: e.memory.capacity),
    Output("memory", "memory per GPU by part", "B", lambda e: e.memory.parts,
           members=("weights", "adapters", "kv_cache", "activations", "logits", "context", "workspace")),
    Output("host_memory_bytes", "memory of the host that layers held there take", "B", lambda e: e.host_memory),
    Output("fits", "fits in memory and the mapping is legal", "", lambda e: e.fits),
    Output("reason", "why it cannot run", "", lambda e: e.reason),
    Output("max_batch", "largest batch that fits (none: any)", "1", lambda e: e.max_batch),
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
TRAIN_OUTPUTS = table(
    Output("step_time_s", "time of one optimiser step", "s", lambda e: e.step_time, "step",
           lambda e: e.flops_time / e.step_time),
    Output("tokens_per_s_per_gpu", "trained tokens per second per GPU", "1/s", lambda e: e.tokens_per_s_per_gpu),
    Output("model_tflops_per_gpu", "model TFLOP/s per GPU, all pairs of tokens counted in attention", "TFLOP/s",
           lambda e: e.model_tflops_per_gpu),
    Output("mfu", "model FLOP/s over peak, all pairs of tokens counted in attention", "1", lambda e: e.mfu),
    Output("mfu_causal", "model FLOP/s over peak, only causal pairs of tokens counted in attention", "1",
           lambda e: e.mfu_causal),
    Output("hfu", "executed FLOP/s over peak, recomputation included", "1", lambda e: e.hfu),
    Output("memory_bytes", "peak memory per GPU", "B", lambda e: e.used),
    Output("memory_capacity_bytes", "memory that the framework may use per GPU", "B", lambda e: e.capacity),
    Output("memory", "memory per GPU by part", "B", lambda e: e.memory.parts,
           members=("weights", "gradients", "optimizer", "buffers", "activations", "logits", "fragmentation", "context",
                    "workspace")),
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

UNIT_ENDS = ("_s", "_w", "_j", "_bytes", "_usd", "_fraction")


def meant(name: str, known: Collection[str]) -> str | None:
    """The key that a name means: itself, without its unit, or the only key that begins or ends with the name."""
    units = [name + end for end in UNIT_ENDS if name + end in known]
    parts = [key for key in known if key.startswith(name + "_") or key.endswith("_" + name)]
    found = next((keys for keys in ([name] if name in known else [], units, parts) if keys), [])
    return found[0] if len(found) == 1 else None


def key_of(name: str, known: Outputs) -> str:
    """The key that a name means, or the member of a group.

    >>> rows = table(*(Output(key, "", "", id) for key in ("tpot_s", "tpot_end_s", "memory", "output_tokens_per_s")))
    >>> [key_of(name, rows) for name in ("tpot_s", "tpot", "memory.weights", "tokens_per_s")]
    ['tpot_s', 'tpot_s', 'memory.weights', 'output_tokens_per_s']
    """
    head, dot, member = name.partition(".")
    key = meant(head, known)
    if key is not None and (not (dot and known[key].members) or member in known[key].members):
        return key + dot + member
    members = [f"{row.key}.{part}" for row in known.values() for part in row.members]
    raise RooflmError(f"unknown output {name!r}: {like_keys(name, known, members)}")


def like_keys(name: str, known: Iterable[str], members: Iterable[str] = ()) -> str:
    """Which keys of an answer, or of its groups' members, are like a name that is none; a few keys where none is.

    >>> like_keys("mfus", ["step_time_s", "mfu"]), like_keys("speed", ["step_time_s", "mfu", "days"])
    ("did you mean 'mfu'?", "it must be a key of --json, such as 'step_time_s', 'mfu', 'days'")
    >>> like_keys("kv_cache", ["step_time_s", "memory"], ["memory.kv_cache"])
    "did you mean 'memory.kv_cache'?"
    """
    keys = list(known)
    near = near_matches(name, [*keys, *members], limit=2)
    some = ", ".join(map(repr, keys[:5]))
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"it must be a key of --json, such as {some}"


def check_outputs(names: Iterable[str], known: Outputs) -> tuple[str, ...]:
    """Keys of the outputs asked for by key, by a short form of it, or as a member of a group such as "memory.weights".

    >>> check_outputs(["tpot", "memory.weights"], table(Output("tpot_s", "", "s", id), Output("memory", "", "B", id)))
    ('tpot_s', 'memory.weights')
    """
    return tuple(dict.fromkeys(key_of(name, known) for name in names))


def chosen(flat: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """The named outputs of flat ones, where the name of a group means all its members; all of them where names is None.

    >>> chosen({"memory.weights": 1, "memory.context": 2, "tpot_s": 3}, ("memory.weights", "tpot_s"))
    {'memory.weights': 1, 'tpot_s': 3}
    """
    if names is None:
        return dict(flat)
    below = tuple(f"{n}." for n in names)
    return {k: v for k, v in flat.items() if k in names or k.startswith(below)}
