"""Results of others' tools as rows of a table of measured runs: a format is a row of FORMATS, with its schema.

A file's text goes through one door (`records`): size and depth are limited, every number is finite and in range, and a
file that breaks its schema is refused in a sentence. What comes out are cells, read like any table's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rooflm.errors import RooflmError
from rooflm.measure import schemas
from rooflm.readers import rows as catalogue
from rooflm.readers.outside import os_reason

Cells = dict[str, str]
LARGEST = 256 * 2**20
"""Bytes of a file that is read."""
MOST = 100_000
"""Results in one file."""


def read_foreign(path: str) -> list[Cells]:
    """The rows of a file of another tool, as cells by column; RooflmError when it is none that is known."""
    text = content(path)
    for known in FORMATS:
        found = [r for r in known.split(text) if known.mark(r)]
        if found:
            rows = [row for record in found[:MOST] for row in known.rows(typed(record, known.schema, path))]
            rows = [{"source": known.name, **row} for row in rows if float(row["value"]) > 0]
            if not rows:
                raise RooflmError(f"{path}: it holds no time or rate above 0")
            return rows
    raise RooflmError(f"{path} is no result of {', '.join(dict.fromkeys(f.name for f in FORMATS))}")


def content(path: str) -> str:
    """The text of a file that is not too large."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST:
            raise RooflmError(f"{path} has {file.stat().st_size:,} bytes, but at most {LARGEST:,} are read")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = "it is not text in UTF-8" if isinstance(error, ValueError) else os_reason(error) or error
        raise RooflmError(f"cannot read {path!r}: {why}") from None


def parsed(text: str) -> Any:
    """JSON, or JSON of one value a line; None where it is neither (or nested too deep)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()] or None
    except (ValueError, RecursionError):
        return None


def records(text: str) -> list[Any]:
    """The JSON objects of a file: one, a list of them, or one a line."""
    data = parsed(text)
    return [d for d in (data if isinstance(data, list) else [data]) if isinstance(d, dict)]


def typed(record: Any, schema: Any, path: str) -> Any:
    """A record as its schema says; RooflmError with the field and the rule otherwise."""
    try:
        return msgspec.convert(record, schema, strict=False)
    except (msgspec.ValidationError, RecursionError, OverflowError, ValueError) as error:
        raise RooflmError(f"{path}: {error}") from None


def cells(**given: Any) -> Cells:
    """What is known, as text; degrees and lengths as whole numbers.

    >>> cells(prompt=127.6, model="m", tp=None, batch=2)
    {'prompt': '128', 'model': 'm', 'batch': '2'}
    """
    known = {k: v for k, v in given.items() if v not in (None, "")}
    whole = ("prompt", "output", "concurrency", "batch")
    return {k: str(max(round(v), 1) if k in whole and isinstance(v, float) else v) for k, v in known.items()}


def rows_of(run: Cells, values: dict[str, tuple[float | None, str]], **more: Any) -> Iterator[Cells]:
    """A row a metric that was measured. values: metric -> (value, unit)."""
    for metric, (value, unit) in values.items():
        if value is not None:
            yield run | {"metric": metric, "value": repr(float(value)), "unit": unit} | cells(**more.get(metric, {}))


def first(*values: float | None) -> float | None:
    """The first that is known: means before medians, as the simulator tells means."""
    return next((v for v in values if v is not None), None)


def engine_named(*names: str | None) -> str | None:
    """The engine of the catalogue that a tool names, or None (a protocol such as openai is none).

    >>> engine_named("openai-chat", "vllm"), engine_named("sglang-oai"), engine_named("openai")
    ('vllm', 'sglang', None)
    """
    known = catalogue.aliases("engine")
    for name in names:
        for short in (name or "", (name or "").split("-")[0]):
            if found := known.get(catalogue.normalise(short)) if short else None:
                return str(found)
    return None


def load_of(clients: float | None, rate: Any, requests: int | None) -> dict[str, Any]:
    """Clients that wait, or requests a second, or both; neither: all requests at once.

    >>> load_of(None, "inf", 200), load_of(8, 2.0, 80), load_of(None, 2.0, None)
    ({'concurrency': 200, 'requests': 200}, {'concurrency': 8, 'rate': 2.0, 'requests': 80}, {'rate': 2.0})
    """
    known = {"requests": requests} if requests else {}
    try:
        each = float(rate or "inf")
    except ValueError:
        each = float("inf")
    paced: dict[str, Any] = {"rate": each} if 0 < each < 1e12 else {}
    if clients:
        return {"concurrency": clients} | paced | known
    return (paced or {"concurrency": requests}) | known


def serving(data: schemas.Serving) -> Iterator[Cells]:
    """`vllm bench serve` and SGLang's `bench_serving`."""
    done = data.completed or data.num_prompts
    if not done:
        raise RooflmError("no request of the run was completed")
    info = data.server_info or schemas.Flags()
    tp = data.tensor_parallel_size
    ratio = data.random_range_ratio
    run = cells(
        model=data.model_id, engine=engine_named(data.backend, data.endpoint_type), release=info.version,
        tp=info.tp_size or (tp if str(tp).isdigit() else None), pp=info.pp_size,
        **load_of(data.max_concurrency, data.request_rate, data.num_prompts or done), burstiness=data.burstiness,
        prompt=data.total_input_tokens / done, output=data.total_output_tokens / done,
        spread=f"{max(1 - ratio, 0.01):g},{1 + ratio:g}" if data.server_info is None and ratio and ratio < 1 else None,
        budget=info.chunked_prefill_size if (info.chunked_prefill_size or 0) > 0 else None,
        max_sequences=info.max_running_requests if (info.max_running_requests or 0) > 0 else None,
        samples=done,
    )  # fmt: skip
    latency = first(data.mean_e2el_ms, data.mean_e2e_latency_ms, data.median_e2el_ms, data.median_e2e_latency_ms)
    yield from rows_of(run, {
        "ttft": (first(data.mean_ttft_ms, data.median_ttft_ms), "ms"),
        "tpot": (first(data.mean_tpot_ms, data.median_tpot_ms), "ms"),
        "latency_s": (latency, "ms"),
        "output_tokens_per_s": (data.output_throughput, "1/s"),
    }, ttft={"p99": data.p99_ttft_ms}, tpot={"p99": data.p99_tpot_ms}, latency_s={"p99": data.p99_e2el_ms})  # fmt: skip


def one_batch(data: schemas.OneBatch) -> Iterator[Cells]:
    """SGLang's `bench_one_batch`: a batch as it stands."""
    run = cells(batch=data.batch_size, prompt=data.input_len, output=data.output_len, engine=engine_named("sglang"))
    yield from rows_of(run, {"ttft": (data.prefill_latency, "s"), "tpot": (data.median_decode_latency, "s"),
                             "latency_s": (data.total_latency, "s")})  # fmt: skip


QUANTS = {"fp8": "fp8", "fp8_block_scales": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "int8": "int8",
          "w4a16_awq": "int4", "bf16": "bf16", "fp16": "fp16", "int4": "int4", "mxfp4": "mxfp4"}  # fmt: skip
"""Schemes as tools print them -> as predictions know them."""


def scheme_named(name: str | None, cache: str | None = None) -> str | None:
    """The scheme of a printed name, with 8-bit caches marked.

    >>> scheme_named("FP8", "FP8"), scheme_named("NVFP4"), scheme_named(None)
    ('fp8kv8', 'nvfp4', None)
    """
    found = QUANTS.get((name or "").lower())
    return f"{found}kv8" if found and "8" in (cache or "") and found not in ("nvfp4", "mxfp4") else found


def trtllm(data: schemas.TrtBench) -> Iterator[Cells]:
    """`trtllm-bench`'s report: requests as many at a time as were seen."""
    world, asked, times = data.world_info, data.request_info, data.streaming_metrics or schemas.TrtStreaming()
    clients = asked.avg_num_concurrent_requests
    run = cells(
        model=data.engine.model, engine=engine_named("trtllm"), release=data.engine.version,
        gpu=device_named(data.machine.name if data.machine else None), tp=world.tp_size, pp=world.pp_size,
        ep=world.ep_size if (world.ep_size or 0) > 1 else None, gpus=world.world_size,
        quant=scheme_named(data.engine.quantization, data.engine.kv_cache_dtype),
        concurrency=clients or float(asked.num_requests), requests=asked.num_requests,
        prompt=asked.avg_input_length, output=asked.avg_output_length, budget=world.max_num_tokens,
        max_sequences=world.max_batch_size, samples=asked.num_requests,
    )  # fmt: skip
    yield from rows_of(run, {
        "ttft": (times.avg_ttft_ms, "ms"), "tpot": (times.avg_tpot_ms, "ms"),
        "latency_s": (data.performance.avg_request_latency_ms, "ms"),
        "output_tokens_per_s": (data.performance.system_output_throughput_tok_s, "1/s"),
    })  # fmt: skip


def device_named(name: str | None) -> str | None:
    """The card of the catalogue that a driver's name means, or None.

    >>> device_named("NVIDIA H100 80GB HBM3"), device_named("h200-trt"), device_named("Potato 9000")
    ('h100-sxm-80gb', 'h200-sxm-141gb', None)
    """
    known = catalogue.aliases("gpu")
    words = re.split(r"[\s_-]+", (name or "").lower())
    for size in range(len(words), 0, -1):
        for start in range(len(words) - size + 1):
            if found := known.get(catalogue.normalise("-".join(words[start : start + size]))):
                return str(found)
    return None


def guide(data: schemas.Guide) -> Iterator[Cells]:
    """guidellm's report: one benchmark a level of load, successful requests."""
    for bench in data.benchmarks:
        m, config = bench.metrics, bench.config or schemas.GuideConfig()
        how = config.strategy or schemas.GuideStrategy()

        def of(metric: schemas.Outcomes | None) -> schemas.Spread:
            return schemas.Spread() if metric is None else metric.successful or metric

        seen = of(m.request_concurrency)
        model = (config.backend.model if config.backend else None) or (bench.args.model if bench.args else None)
        done = (m.request_totals.successful if m.request_totals else None) or of(m.request_latency).count
        clients = how.streams or how.max_concurrency
        seen_then = first(seen.mean, seen.median, 1.0) if how.rate is None and not clients else None
        prompt, output = (of(t) for t in (m.prompt_token_count, m.output_token_count))
        lengths = {"prompt": first(prompt.mean, prompt.median), "output": first(output.mean, output.median)}
        load = load_of(clients or seen_then, how.rate, done)
        run = cells(model=model or bench.model, **load, **lengths, samples=done)
        gaps = of(m.inter_token_latency_ms or m.time_per_output_token_ms)
        times = {"ttft": of(m.time_to_first_token_ms), "tpot": gaps, "latency_s": of(m.request_latency)}
        units = {"ttft": "ms", "tpot": "ms", "latency_s": "s"}
        tails = {k: msgspec.structs.asdict(v.percentiles) if v.percentiles else {} for k, v in times.items()}
        values = {k: (first(v.mean, v.median), units[k]) for k, v in times.items()}
        rate = of(m.output_tokens_per_second).mean
        yield from rows_of(run, values | {"output_tokens_per_s": (rate, "1/s")}, **tails)


def aiperf(data: schemas.Ai | schemas.AiNested) -> Iterator[Cells]:
    """aiperf's and genai-perf's profile export."""
    found = data.records if isinstance(data, schemas.AiNested) else data
    config = data.input_config or schemas.AiConfig()
    phase = next((p for p in config.phases or [] if p.kind in (None, "profiling")), schemas.AiPhase())
    load, listed = config.loadgen or schemas.AiLoad(), (config.models.items if config.models else None) or []
    names = (config.endpoint.model_names if config.endpoint else None) or [m.name or "" for m in listed]
    done = int(found.request_count.avg) if found.request_count and found.request_count.avg else None
    clients, rate = phase.concurrency or load.concurrency, phase.rate or load.request_rate
    lengths = {k: first(m.avg, m.p50) if m else None for k, m in (("prompt", found.input_sequence_length),
                                                                 ("output", found.output_sequence_length))}  # fmt: skip
    run = cells(model=next(iter(names), None), **load_of(clients or (None if rate else 1), rate, done), **lengths,
                samples=done)  # fmt: skip
    metrics = {"ttft": found.time_to_first_token, "tpot": found.inter_token_latency, "latency_s": found.request_latency}
    values = {k: (first(m.avg, m.p50), m.unit if m.unit in ("s", "ms", "us") else "ms") for k, m in metrics.items()
              if m is not None}  # fmt: skip
    tails = {k: {"p10": m.p10, "p90": m.p90, "p99": m.p99} for k, m in metrics.items() if m is not None}
    rate_out = found.output_token_throughput.avg if found.output_token_throughput else None
    yield from rows_of(run, values | {"output_tokens_per_s": (rate_out, "1/s")}, **tails)


def llama_bench(data: schemas.LlamaBench) -> Iterator[Cells]:
    """llama-bench: prompts and generation apart; a generation after an empty cache has half of itself before it."""
    name = (data.model_filename or "").rsplit("/", 1)[-1].removesuffix(".gguf") or data.model_type
    common = {"model": name, "engine": engine_named("llama.cpp"), "batch": 1}
    if data.avg_ts > 0 and data.n_prompt and not data.n_gen:
        run = cells(**common, prompt=data.n_prompt, output=1)
        yield from rows_of(run, {"ttft": (data.n_prompt / data.avg_ts, "s")})
    elif data.avg_ts > 0 and data.n_gen and not data.n_prompt:
        run = cells(**common, prompt=data.n_depth or 1, output=data.n_gen)
        yield from rows_of(run, {"tpot": (1 / data.avg_ts, "s")})


DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def optimum(data: schemas.Optimum) -> Iterator[Cells]:
    """optimum-benchmark's report: prefill, per-token and decode latencies in s, memory in MB."""
    shapes, asked = data.config.scenario.input_shapes, data.config.scenario.generate_kwargs
    output = (asked.max_new_tokens or asked.min_new_tokens or 1) if asked else 1
    report, backend = data.report, data.config.backend
    run = cells(model=backend.model, quant=DTYPES.get(backend.torch_dtype or ""), engine=engine_named("hf-eager"),
                batch=shapes.batch_size, prompt=shapes.sequence_length, output=output)  # fmt: skip

    def time(part: schemas.OptimumPart | None, steps: int = 1) -> float | None:
        found = first(part.latency.p50, part.latency.mean) if part else None
        return None if found is None else found / steps

    decode = time(report.decode, output - 1) if output > 1 else None
    memory = report.prefill.memory or schemas.OptimumMemory()
    yield from rows_of(run, {"ttft": (time(report.prefill), "s"), "tpot": (first(time(report.per_token), decode), "s"),
                             "memory_bytes": (first(memory.max_allocated, memory.max_ram), "MB")})  # fmt: skip


def inferencex(data: schemas.InferenceX) -> Iterator[Cells]:
    """A row of InferenceX's results."""
    run = cells(model=data.model, gpu=device_named(data.hw) or data.hw, engine=engine_named(data.framework), tp=data.tp,
                ep=data.ep if (data.ep or 0) > 1 else None, quant=scheme_named(data.precision), concurrency=data.conc,
                prompt=data.isl, output=data.osl)  # fmt: skip
    per_gpu = data.output_tput_per_gpu
    yield from rows_of(run, {
        "ttft": (first(data.mean_ttft, data.median_ttft), "s"), "tpot": (first(data.mean_tpot, data.median_tpot), "s"),
        "latency_s": (first(data.mean_e2el, data.median_e2el), "s"),
        "output_tokens_per_s": (None if per_gpu is None else per_gpu * data.tp, "1/s"),
    }, ttft={"p99": data.p99_ttft}, tpot={"p99": data.p99_tpot})  # fmt: skip


class Summary(schemas.Open, frozen=True):
    """MLPerf LoadGen's summary, by the lines that are read; times in ns."""

    scenario: schemas.Text
    mean_ttft: schemas.Amount | None = None
    mean_tpot: schemas.Amount | None = None
    mean_latency: schemas.Amount | None = None
    rate: schemas.Amount | None = None
    tokens: schemas.Amount | None = None
    p99_ttft: schemas.Amount | None = None
    p99_tpot: schemas.Amount | None = None


LINES = {
    "scenario": r"^Scenario\s*:\s*(\w+)", "mean_ttft": r"^Mean First Token latency \(ns\)\s*:\s*(\S+)",
    "mean_tpot": r"^Mean Time (?:to|per) Output Token \(ns\)\s*:\s*(\S+)",
    "mean_latency": r"^Mean latency \(ns\)\s*:\s*(\S+)", "rate": r"^Completed samples per second\s*:\s*(\S+)",
    "tokens": r"^(?:Completed )?[Tt]okens per second\s*:\s*(\S+)",
    "p99_ttft": r"^99\.00 percentile first token latency \(ns\)\s*:\s*(\S+)",
    "p99_tpot": r"^99\.00 percentile time to output token \(ns\)\s*:\s*(\S+)",
}  # fmt: skip


def summary(text: str) -> list[dict[str, str]]:
    """The lines of LoadGen's summary, if it is one."""
    if "MLPerf Results Summary" not in text[:2000]:
        return []
    found = {name: re.search(line, text, re.MULTILINE) for name, line in LINES.items()}
    return [{name: m[1][:40] for name, m in found.items() if m}]


def mlperf(data: Summary) -> Iterator[Cells]:
    """LoadGen's summary: a rate of requests (server), or everything at once (offline)."""
    load = {"rate": data.rate} if data.scenario == "Server" and data.rate else {"concurrency": "max"}
    yield from rows_of(cells(**load), {
        "ttft": (scaled(data.mean_ttft), "s"), "tpot": (scaled(data.mean_tpot), "s"),
        "latency_s": (scaled(data.mean_latency) if load.keys() == {"rate"} else None, "s"),
        "output_tokens_per_s": (data.tokens, "1/s"),
    }, ttft={"p99": scaled(data.p99_ttft)}, tpot={"p99": scaled(data.p99_tpot)})  # fmt: skip


def scaled(nanoseconds: float | None) -> float | None:
    """Nanoseconds as seconds, where they are known."""
    return None if nanoseconds is None else nanoseconds / 1e9


class Format(NamedTuple):
    """A format: the tool's name, how a file is told by fields that it alone has, its schema, and its rows."""

    name: str
    marks: tuple[str, ...]
    schema: Any
    rows: Callable[[Any], Iterator[Cells]]
    split: Callable[[str], list[Any]] = records

    def mark(self, record: Any) -> bool:
        """True for a record that holds every mark."""
        return all(name in record for name in self.marks)


FORMATS = (
    Format("vllm bench", ("total_input_tokens", "total_output_tokens"), schemas.Serving, serving),
    Format("sglang", ("prefill_latency", "input_len"), schemas.OneBatch, one_batch),
    Format("trtllm-bench", ("world_info", "request_info"), schemas.TrtBench, trtllm),
    Format("guidellm", ("benchmarks",), schemas.Guide, guide),
    Format("optimum-benchmark", ("config", "report"), schemas.Optimum, optimum),
    Format("aiperf", ("time_to_first_token",), schemas.Ai, aiperf),
    Format("aiperf", ("records",), schemas.AiNested, aiperf),
    Format("llama-bench", ("avg_ts",), schemas.LlamaBench, llama_bench),
    Format("inferencex", ("hw", "conc", "framework"), schemas.InferenceX, inferencex),
    Format("mlperf", ("scenario",), Summary, mlperf, summary),
)
"""Every format that is read."""
