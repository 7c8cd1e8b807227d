"""What benchmark files of other tools hold, as typed schemas: only the fields that are read, each with its bounds.

A file that breaks one is refused with the place and the rule; fields that a schema does not name are passed over.
Sources: the tools' own writers (vLLM `benchmarks/serve.py`, SGLang `bench_serving.py` and `bench_one_batch.py`,
TensorRT-LLM `bench/dataclasses/reporting.py`, llama.cpp `llama-bench.cpp`, optimum-benchmark's `BenchmarkReport`,
InferenceX `process_result.py`, LoadGen's summary), and for guidellm 0.8.1 and aiperf 0.13.0 files that these made.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""A time, rate or mean: finite, not negative."""
Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
Some = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
"""A degree, or a size of a batch: at least one."""
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Open(msgspec.Struct, frozen=True):
    """A part of a file, other fields passed over."""


class Flags(Open, frozen=True):
    """What SGLang's server says of itself: its arguments."""

    version: Text | None = None
    tp_size: Some | None = None
    pp_size: Some | None = None
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    mem_fraction_static: Amount | None = None
    disable_radix_cache: bool | None = None


class Serving(Open, frozen=True):
    """`vllm bench serve --save-result` and SGLang's `bench_serving --output-file`; times in ms."""

    total_input_tokens: Count
    total_output_tokens: Count
    backend: Text | None = None
    endpoint_type: Text | None = None
    model_id: Text | None = None
    num_prompts: Count | None = None
    completed: Count | None = None
    max_concurrency: Some | None = None
    request_rate: float | Text | None = None
    burstiness: Amount | None = None
    random_range_ratio: Amount | None = None
    output_throughput: Amount | None = None
    tensor_parallel_size: Some | Text | None = None
    server_info: Flags | None = None
    mean_ttft_ms: Amount | None = None
    median_ttft_ms: Amount | None = None
    p99_ttft_ms: Amount | None = None
    mean_tpot_ms: Amount | None = None
    median_tpot_ms: Amount | None = None
    p99_tpot_ms: Amount | None = None
    mean_e2el_ms: Amount | None = None
    median_e2el_ms: Amount | None = None
    p99_e2el_ms: Amount | None = None
    mean_e2e_latency_ms: Amount | None = None
    median_e2e_latency_ms: Amount | None = None


class OneBatch(Open, frozen=True):
    """SGLang's `bench_one_batch --result-filename`: one line a batch; times in s."""

    batch_size: Some
    input_len: Some
    output_len: Some
    prefill_latency: Amount
    median_decode_latency: Amount | None = None
    total_latency: Amount | None = None
    run_name: Text | None = None


class TrtEngine(Open, frozen=True):
    """The engine of `trtllm-bench`."""

    model: Text | None = None
    version: Text | None = None
    dtype: Text | None = None
    kv_cache_dtype: Text | None = None
    quantization: Text | None = None


class TrtMachine(Open, frozen=True):
    """Its card."""

    name: Text | None = None


class TrtWorld(Open, frozen=True):
    """Its split and limits."""

    tp_size: Some | None = None
    pp_size: Some | None = None
    ep_size: int | None = None
    world_size: Some | None = None
    max_batch_size: Some | None = None
    max_num_tokens: Some | None = None


class TrtRequests(Open, frozen=True):
    """Its load."""

    num_requests: Count
    avg_input_length: Amount
    avg_output_length: Amount
    avg_num_concurrent_requests: Amount | None = None


class TrtPerformance(Open, frozen=True):
    """Its rates and latency."""

    avg_request_latency_ms: Amount | None = None
    system_output_throughput_tok_s: Amount | None = None


class TrtStreaming(Open, frozen=True):
    """Its times, where it streamed."""

    avg_ttft_ms: Amount | None = None
    avg_tpot_ms: Amount | None = None


class TrtBench(Open, frozen=True):
    """`trtllm-bench throughput|latency --report_json`."""

    engine: TrtEngine
    world_info: TrtWorld
    request_info: TrtRequests
    performance: TrtPerformance
    machine: TrtMachine | None = None
    streaming_metrics: TrtStreaming | None = None


class Percentiles(Open, frozen=True):
    """Of guidellm: shares of requests below a value."""

    p10: Amount | None = None
    p90: Amount | None = None
    p99: Amount | None = None


class Spread(Open, frozen=True):
    """A metric of guidellm over the requests of one outcome."""

    mean: Amount | None = None
    median: Amount | None = None
    count: Count | None = None
    percentiles: Percentiles | None = None


class Outcomes(Spread, frozen=True):
    """The same by outcome; reports of old give the figures without one."""

    successful: Spread | None = None


class GuideTotals(Open, frozen=True):
    """Requests by outcome."""

    successful: Count | None = None


class GuideMetrics(Open, frozen=True):
    """Metrics of a benchmark of guidellm; times as their names say, request_latency in s."""

    prompt_token_count: Outcomes
    output_token_count: Outcomes
    time_to_first_token_ms: Outcomes | None = None
    inter_token_latency_ms: Outcomes | None = None
    time_per_output_token_ms: Outcomes | None = None
    request_latency: Outcomes | None = None
    request_concurrency: Outcomes | None = None
    output_tokens_per_second: Outcomes | None = None
    request_totals: GuideTotals | None = None


class GuideBackend(Open, frozen=True):
    """What guidellm drove."""

    model: Text | None = None


class GuideStrategy(Open, frozen=True):
    """How it drove it."""

    type_: Text | None = None
    max_concurrency: Some | None = None
    streams: Some | None = None
    rate: Amount | None = None


class GuideConfig(Open, frozen=True):
    """A benchmark's settings."""

    backend: GuideBackend | None = None
    strategy: GuideStrategy | None = None


class GuideArgs(Open, frozen=True):
    """The same in reports of old."""

    model: Text | None = None


class GuideBenchmark(Open, frozen=True):
    """One level of load."""

    metrics: GuideMetrics
    config: GuideConfig | None = None
    args: GuideArgs | None = None
    model: Text | None = None
    duration: Amount | None = None


class Guide(Open, frozen=True):
    """guidellm's report."""

    benchmarks: list[GuideBenchmark]


class AiMetric(Open, frozen=True):
    """A metric of aiperf: its unit, mean and percentiles."""

    unit: Text | None = None
    avg: Amount | None = None
    p10: Amount | None = None
    p50: Amount | None = None
    p90: Amount | None = None
    p99: Amount | None = None
    count: Count | None = None


class AiEndpoint(Open, frozen=True):
    """What aiperf asked (before 0.13 with the models)."""

    model_names: list[Text] | None = None


class AiLoad(Open, frozen=True):
    """How much (before 0.13)."""

    concurrency: Some | None = None
    request_rate: Amount | None = None


class AiPhase(Open, frozen=True):
    """A phase of the load."""

    kind: Text | None = None
    concurrency: Some | None = None
    rate: Amount | None = None


class AiName(Open, frozen=True):
    """A model."""

    name: Text | None = None


class AiModels(Open, frozen=True):
    """The models."""

    items: list[AiName] | None = None


class AiConfig(Open, frozen=True):
    """The settings of a run."""

    endpoint: AiEndpoint | None = None
    loadgen: AiLoad | None = None
    models: AiModels | None = None
    phases: list[AiPhase] | None = None


class AiRecords(Open, frozen=True):
    """Metrics of a run."""

    time_to_first_token: AiMetric
    inter_token_latency: AiMetric | None = None
    request_latency: AiMetric | None = None
    input_sequence_length: AiMetric | None = None
    output_sequence_length: AiMetric | None = None
    output_token_throughput: AiMetric | None = None
    request_count: AiMetric | None = None


class Ai(AiRecords, frozen=True):
    """aiperf's (and genai-perf's) profile export."""

    input_config: AiConfig | None = None


class AiNested(Open, frozen=True):
    """The same where the metrics are below `records`."""

    records: AiRecords
    input_config: AiConfig | None = None


class LlamaBench(Open, frozen=True):
    """A line of `llama-bench -o json`: prompt processing (n_gen 0) or generation (n_prompt 0), tokens/s."""

    n_prompt: Count
    n_gen: Count
    avg_ts: Amount
    n_depth: Count = 0
    model_filename: Text | None = None
    model_type: Text | None = None
    build_number: int | None = None
    type_k: Text | None = None
    n_threads: Some | None = None


class OptimumShapes(Open, frozen=True):
    """Sizes of a run of optimum-benchmark."""

    batch_size: Some
    sequence_length: Some


class OptimumOutput(Open, frozen=True):
    """How long it generated."""

    max_new_tokens: Some | None = None
    min_new_tokens: Some | None = None


class OptimumScenario(Open, frozen=True):
    """Its scenario."""

    input_shapes: OptimumShapes
    generate_kwargs: OptimumOutput | None = None


class OptimumBackend(Open, frozen=True):
    """Its backend."""

    model: Text
    name: Text | None = None
    version: Text | None = None
    torch_dtype: Text | None = None


class OptimumConfig(Open, frozen=True):
    """Its settings."""

    scenario: OptimumScenario
    backend: OptimumBackend


class OptimumLatency(Open, frozen=True):
    """A latency, s."""

    p50: Amount | None = None
    mean: Amount | None = None
    p90: Amount | None = None
    p99: Amount | None = None
    count: Count | None = None


class OptimumMemory(Open, frozen=True):
    """Memory, MB."""

    max_allocated: Amount | None = None
    max_ram: Amount | None = None


class OptimumPart(Open, frozen=True):
    """A phase."""

    latency: OptimumLatency
    memory: OptimumMemory | None = None


class OptimumReport(Open, frozen=True):
    """Its phases."""

    prefill: OptimumPart
    decode: OptimumPart | None = None
    per_token: OptimumPart | None = None


class Optimum(Open, frozen=True):
    """optimum-benchmark's report."""

    config: OptimumConfig
    report: OptimumReport


class InferenceX(Open, frozen=True):
    """A row of InferenceX: vLLM's figures in s beside the run's own settings."""

    hw: Text
    tp: Some
    conc: Some
    model: Text
    framework: Text
    precision: Text
    ep: Annotated[int, msgspec.Meta(ge=0, le=10**6)] | None = None
    isl: Some | None = None
    osl: Some | None = None
    output_tput_per_gpu: Amount | None = None
    mean_ttft: Amount | None = None
    median_ttft: Amount | None = None
    p99_ttft: Amount | None = None
    mean_tpot: Amount | None = None
    median_tpot: Amount | None = None
    p99_tpot: Amount | None = None
    mean_e2el: Amount | None = None
    median_e2el: Amount | None = None
