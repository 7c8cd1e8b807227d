"""What benchmark files of other tools hold: only the fields that are read, each with its type and bounds.

A file that breaks one is refused with the place and the rule; fields that are not named here are passed over.
Sources: the tools' own writers (vLLM `benchmarks/serve.py`, SGLang `bench_serving.py` and `bench_one_batch.py`,
TensorRT-LLM `bench/dataclasses/reporting.py`, llama.cpp `llama-bench.cpp`, optimum-benchmark's `BenchmarkReport`,
InferenceX `process_result.py`, LoadGen's summary), and for guidellm 0.8.1 and aiperf 0.13.0 files that these made.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, Optional, Required, TypedDict

import msgspec

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""A time, rate or mean: finite, not negative."""
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
Some = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
"""A degree, a size of a batch, or requests that a figure is a mean of: at least one."""
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
"""Tokens of all prompts: of none nothing was measured."""
Length = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
"""The same, a mean."""
Groups = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
"""A degree that some tools write as 0 where there is none."""
Text = Annotated[str, msgspec.Meta(max_length=1000)]


def part(fields: dict[str, Any]) -> Any:
    """The type of a part of a file, a dict. fields: name -> type, a part below as a dict, a list of such as a list of
    one; a name that ends in "!" must be there, any other may be absent or null.

    >>> msgspec.convert({"b": {"c": 1}, "d": 2}, part({"a": Text, "b!": {"c": Count}}))
    {'b': {'c': 1}}
    """
    known = {}
    for name, kind in fields.items():
        below = part(kind) if isinstance(kind, dict) else list[part(kind[0])] if isinstance(kind, list) else kind  # type: ignore[misc]
        known[name.removesuffix("!")] = Required[below] if name.endswith("!") else NotRequired[Optional[below]]  # noqa: UP045
    return TypedDict("Part", known)  # type: ignore[operator]


def each(kind: Any, names: str) -> dict[str, Any]:
    """Fields of one type, their names apart by spaces."""
    return dict.fromkeys(names.split(), kind)


SERVING = part({
    "total_input_tokens!": Tokens, "total_output_tokens!": Count, **each(Some, "num_prompts completed"),
    **each(Text, "backend endpoint_type model_id"), "max_concurrency": Some, "request_rate": float | Text,
    "tensor_parallel_size": Some | Text,
    "server_info": {"version": Text, **each(Some, "tp_size pp_size"),
                    **each(int, "chunked_prefill_size max_running_requests")},
    **each(Amount, "burstiness random_range_ratio output_throughput mean_ttft_ms median_ttft_ms p99_ttft_ms"
                   " mean_tpot_ms median_tpot_ms p99_tpot_ms mean_e2el_ms median_e2el_ms p99_e2el_ms"
                   " mean_e2e_latency_ms median_e2e_latency_ms"),
})  # fmt: skip
"""`vllm bench serve --save-result` and SGLang's `bench_serving --output-file`; times in ms. server_info: what SGLang's
server says of itself."""
ONE_BATCH = part({
    **each(Some, "batch_size! input_len! output_len!"),
    **each(Amount, "prefill_latency! median_decode_latency total_latency"),
})  # fmt: skip
"""SGLang's `bench_one_batch --result-filename`: one line a batch; times in s."""
TRTLLM = part({
    "engine!": each(Text, "model version kv_cache_dtype quantization"),
    "world_info!": {**each(Some, "tp_size pp_size world_size max_batch_size max_num_tokens"), "ep_size": int},
    "request_info!": {"num_requests!": Some, "avg_input_length!": Length,
                      **each(Amount, "avg_output_length! avg_num_concurrent_requests")},
    "performance!": each(Amount, "avg_request_latency_ms system_output_throughput_tok_s"),
    "machine": {"name": Text},
    "streaming_metrics": each(Amount, "avg_ttft_ms avg_tpot_ms"),
})  # fmt: skip
"""`trtllm-bench throughput|latency --report_json`."""

_SPREAD = {**each(Amount, "mean median"), "count": Count, "percentiles": each(Amount, "p10 p90 p99")}
_OUTCOMES = {**_SPREAD, "successful": _SPREAD}
GUIDE = part({"benchmarks!": [{
    "metrics!": {
        **each(_OUTCOMES, "prompt_token_count! output_token_count! time_to_first_token_ms inter_token_latency_ms"
                          " time_per_output_token_ms request_latency request_concurrency output_tokens_per_second"),
        "request_totals": {"successful": Count},
    },
    "config": {"backend": {"model": Text}, "strategy": {**each(Some, "max_concurrency streams"), "rate": Amount}},
    "args": {"model": Text},
    "model": Text,
}]})  # fmt: skip
"""guidellm's report, a benchmark a level of load; times as their names say, request_latency in s. A metric is over
the requests of one outcome; old reports give it without one, and the model in args."""

_METRIC = {"unit": Text, **each(Amount, "avg p10 p50 p90 p99")}
_RECORDS = each(_METRIC, "time_to_first_token! inter_token_latency request_latency input_sequence_length"
                         " output_sequence_length output_token_throughput request_count")  # fmt: skip
_CONFIG = {
    "endpoint": {"model_names": list[Text]},
    "loadgen": {"concurrency": Some, "request_rate": Amount},
    "models": {"items": [{"name": Text}]},
    "phases": [{"kind": Text, "concurrency": Some, "rate": Amount}],
}
AIPERF = part({**_RECORDS, "input_config": _CONFIG})
"""aiperf's (and genai-perf's) profile export; endpoint and loadgen: before 0.13."""
AIPERF_NESTED = part({"records!": _RECORDS, "input_config": _CONFIG})
"""The same where the metrics are below `records`."""
LLAMA_BENCH = part({
    **each(Count, "n_prompt! n_gen! n_depth"), "avg_ts!": Amount, **each(Text, "model_filename model_type"),
})  # fmt: skip
"""A line of `llama-bench -o json`: prompt processing (n_gen 0) or generation (n_prompt 0), tokens/s."""

_PHASE = {"latency!": each(Amount, "p50 mean"), "memory": each(Amount, "max_allocated max_ram")}
OPTIMUM = part({
    "config!": {
        "scenario!": {"input_shapes!": each(Some, "batch_size! sequence_length!"),
                      "generate_kwargs": each(Some, "max_new_tokens min_new_tokens")},
        "backend!": each(Text, "model! torch_dtype"),
    },
    "report!": {"prefill!": _PHASE, "decode": _PHASE, "per_token": _PHASE},
})  # fmt: skip
"""optimum-benchmark's report; latencies in s, memory in MB."""
INFERENCEX = part({
    **each(Text, "hw! model! framework! precision!"), **each(Some, "tp! conc! isl osl"), "ep": Groups,
    **each(Amount, "output_tput_per_gpu mean_ttft median_ttft p99_ttft mean_tpot median_tpot p99_tpot mean_e2el"
                   " median_e2el"),
})  # fmt: skip
"""A row of InferenceX: vLLM's figures in s beside the run's own settings."""
MLPERF = part({
    "scenario!": Text, **each(Amount, "mean_ttft mean_tpot mean_latency rate tokens p99_ttft p99_tpot"),
})  # fmt: skip
"""MLPerf LoadGen's summary, by the lines that are read; times in ns."""
