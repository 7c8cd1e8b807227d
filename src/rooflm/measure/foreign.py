"""Results of others' tools as rows of a table of measured runs: a format is a row of FORMATS, with its schema.

A file's text goes through one door (`records`): size and depth are limited, every number is finite and in range, and a
file that breaks its schema is refused in a sentence. What comes out are cells, read like any table's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from rooflm.errors import RooflmError
from rooflm.measure import schemas
from rooflm.measure.server import field_at
from rooflm.readers import outside
from rooflm.readers import rows as catalogue
from rooflm.validation.columns import mean_of

Cells = dict[str, str]
Timed = dict[str, tuple[float | None, str]]
"""Metric -> its value and unit."""
Field = Callable[[str], Any]
"""A field of a record by its dotted path, None where it is not there."""
MOST = 100_000
"""Results in one file."""


def read_foreign(path: str) -> list[Cells]:
    """The rows of a file of another tool, as cells by column; RooflmError when it is none that is known."""
    text = outside.text(path, "results")
    for known in FORMATS:
        found = [r for r in known.split(text) if known.mark(r)]
        if found:
            parts = (typed(record, known.schema, path) for record in found[:MOST])
            rows = [row for part in parts for row in known.rows(partial(field_at, part))]
            said = cells(source=known.name, engine=engine_named(known.name))
            rows = [said | row for row in rows if float(row["value"]) > 0]
            if not rows:
                raise RooflmError(f"{path}: it holds no time or rate above 0")
            return rows
    raise RooflmError(f"{path} is no result of {', '.join(dict.fromkeys(f.name for f in FORMATS))}")


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
    except msgspec.ValidationError as error:
        raise RooflmError(f"{path}: {catalogue.rule_said(error, record, 'a result')}") from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise RooflmError(f"{path}: {error}") from None


def cells(**given: Any) -> Cells:
    """What is known, as text; degrees and lengths as whole numbers.

    >>> cells(prompt=127.6, model="m", tp=None, batch=2)
    {'prompt': '128', 'model': 'm', 'batch': '2'}
    """
    known = {k: v for k, v in given.items() if v not in (None, "")}
    whole = ("prompt", "output", "concurrency", "batch")
    return {k: str(max(round(v), 1) if k in whole and isinstance(v, float) else v) for k, v in known.items()}


def rows_of(run: Cells, values: Timed, **more: Any) -> Iterator[Cells]:
    """A row a metric that was measured. values: metric -> (value, unit)."""
    for metric, (value, unit) in values.items():
        if value is not None:
            yield (
                run
                | {"metric": metric, "value": repr(float(value)), "unit": unit}
                | cells(**more.get(mean_of(metric), {}))
            )


def mean_or_median(metric: str, unit: str, mean: float | None, median: float | None) -> Timed:
    """A time over requests: its mean, or its median as such where that is all there is.

    >>> mean_or_median("latency_s", "s", None, 2.0), mean_or_median("ttft", "ms", 30.0, 25.0)
    ({'latency_p50': (2.0, 's')}, {'ttft': (30.0, 'ms')})
    """
    return {
        metric if mean is not None else f"{metric.removesuffix('_s')}_p50": (median if mean is None else mean, unit)
    }


def first(at: Field, *paths: str) -> Any:
    """The first field that is known."""
    return next((v for v in map(at, paths) if v is not None), None)


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


def serving(at: Field) -> Iterator[Cells]:
    """`vllm bench serve` and SGLang's `bench_serving`."""
    done = at("completed") or at("num_prompts")
    if not done:
        raise RooflmError("no request of the run was completed")
    tp, ratio = at("tensor_parallel_size"), at("random_range_ratio")
    limits = {"budget": "chunked_prefill_size", "max_sequences": "max_running_requests"}
    known = {column: at(f"server_info.{name}") or 0 for column, name in limits.items()}
    run = cells(
        model=at("model_id"), engine=engine_named(at("backend"), at("endpoint_type")),
        release=at("server_info.version"), tp=at("server_info.tp_size") or (tp if str(tp).isdigit() else None),
        pp=at("server_info.pp_size"),
        **load_of(at("max_concurrency"), at("request_rate"), at("num_prompts") or done), burstiness=at("burstiness"),
        prompt=at("total_input_tokens") / done, output=at("total_output_tokens") / done,
        spread=f"{max(1 - ratio, 0.01):g},{1 + ratio:g}" if at("server_info") is None and ratio and ratio < 1 else None,
        **{column: value for column, value in known.items() if value > 0}, samples=done,
    )  # fmt: skip
    latency = [first(at, f"{of}_e2el_ms", f"{of}_e2e_latency_ms") for of in ("mean", "median")]
    tails = {"ttft": "p99_ttft_ms", "tpot": "p99_tpot_ms", "latency_s": "p99_e2el_ms"}
    yield from rows_of(run, {
        **mean_or_median("ttft", "ms", at("mean_ttft_ms"), at("median_ttft_ms")),
        **mean_or_median("tpot", "ms", at("mean_tpot_ms"), at("median_tpot_ms")),
        **mean_or_median("latency_s", "ms", *latency), "output_tokens_per_s": (at("output_throughput"), "1/s"),
    }, **{metric: {"p99": at(name)} for metric, name in tails.items()})  # fmt: skip


PRINTED = re.compile(r"^=+ Serving Benchmark Result =+$(.*?)^=+$", re.MULTILINE | re.DOTALL)
PRINTED_NAMES = {
    "successful_requests": "completed", "total_generated_tokens": "total_output_tokens",
    "maximum_request_concurrency": "max_concurrency", "max_request_concurrency": "max_concurrency",
    "request_rate_configured_rps": "request_rate", "traffic_request_rate": "request_rate",
    "output_token_throughput_tok_s": "output_throughput",
}  # fmt: skip
"""What the printed result calls fields of the saved one; all else is called alike."""


def printed(text: str) -> list[dict[str, str]]:
    """What `vllm bench serve` and SGLang's `bench_serving` print, as they would save it: every result of a log.

    >>> printed("== Serving Benchmark Result ==\\nSuccessful requests: 8\\n--TTFT--\\nMean TTFT (ms): 9.5\\n=====")
    [{'completed': '8', 'mean_ttft_ms': '9.5'}]
    """
    found = []
    for block in PRINTED.findall(text.replace("\r", "")):
        lines = [line.rpartition(":") for line in block.splitlines() if ":" in line]
        named = {re.sub(r"\W+", "_", name.lower()).strip("_"): value.strip() for name, _, value in lines}
        found.append({PRINTED_NAMES.get(k, k): v for k, v in named.items() if v not in ("", "not set")})
    return found


def one_batch(at: Field) -> Iterator[Cells]:
    """SGLang's `bench_one_batch`: a batch as it stands."""
    run = cells(batch=at("batch_size"), prompt=at("input_len"), output=at("output_len"))
    yield from rows_of(run, {"ttft": (at("prefill_latency"), "s"), "tpot": (at("median_decode_latency"), "s"),
                             "latency_s": (at("total_latency"), "s")})  # fmt: skip


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


def trtllm(at: Field) -> Iterator[Cells]:
    """`trtllm-bench`'s report: requests as many at a time as were seen."""
    requests, groups = at("request_info.num_requests"), at("world_info.ep_size") or 0
    run = cells(
        model=at("engine.model"), release=at("engine.version"),
        gpu=device_named(at("machine.name")), tp=at("world_info.tp_size"), pp=at("world_info.pp_size"),
        ep=groups if groups > 1 else None, gpus=at("world_info.world_size"),
        quant=scheme_named(at("engine.quantization"), at("engine.kv_cache_dtype")),
        concurrency=at("request_info.avg_num_concurrent_requests") or float(requests), requests=requests,
        prompt=at("request_info.avg_input_length"), output=at("request_info.avg_output_length"),
        budget=at("world_info.max_num_tokens"), max_sequences=at("world_info.max_batch_size"), samples=requests,
    )  # fmt: skip
    yield from rows_of(run, {
        "ttft": (at("streaming_metrics.avg_ttft_ms"), "ms"), "tpot": (at("streaming_metrics.avg_tpot_ms"), "ms"),
        "latency_s": (at("performance.avg_request_latency_ms"), "ms"),
        "output_tokens_per_s": (at("performance.system_output_throughput_tok_s"), "1/s"),
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


def guide(report: Field) -> Iterator[Cells]:
    """guidellm's report: one benchmark a level of load, successful requests."""
    for bench in report("benchmarks"):
        at = partial(field_at, bench)

        def of(name: str, at: Field = at) -> Field:
            return partial(field_at, first(at, f"metrics.{name}.successful", f"metrics.{name}"))

        asked, seen = at("config.strategy.rate"), first(of("request_concurrency"), "mean", "median")
        clients = at("config.strategy.streams") or at("config.strategy.max_concurrency")
        if asked is None and not clients:
            clients = 1.0 if seen is None else seen
        done = at("metrics.request_totals.successful") or of("request_latency")("count")
        run = cells(
            model=at("config.backend.model") or at("args.model") or at("model"), **load_of(clients, asked, done),
            prompt=first(of("prompt_token_count"), "mean", "median"),
            output=first(of("output_token_count"), "mean", "median"), samples=done,
        )  # fmt: skip
        each = at("metrics.inter_token_latency_ms") is not None
        gaps = "inter_token_latency_ms" if each else "time_per_output_token_ms"
        times = {"ttft": (of("time_to_first_token_ms"), "ms"), "tpot": (of(gaps), "ms"),
                 "latency_s": (of("request_latency"), "s")}  # fmt: skip
        values: Timed = {}
        for k, (metric, unit) in times.items():
            values |= mean_or_median(k, unit, metric("mean"), metric("median"))
        values["output_tokens_per_s"] = (of("output_tokens_per_second")("mean"), "1/s")
        yield from rows_of(run, values, **{k: metric("percentiles") or {} for k, (metric, _) in times.items()})


def aiperf(at: Field) -> Iterator[Cells]:
    """aiperf's and genai-perf's profile export."""
    metric = partial(field_at, at("records")) if at("records") else at
    phases = at("input_config.phases") or []
    phase: dict[str, Any] = next((p for p in phases if p.get("kind") in (None, "profiling")), {})
    clients = phase.get("concurrency") or at("input_config.loadgen.concurrency")
    rate = phase.get("rate") or at("input_config.loadgen.request_rate")
    names = at("input_config.endpoint.model_names")
    names = names or [m.get("name") or "" for m in at("input_config.models.items") or []]
    done = int(metric("request_count.avg") or 0) or None
    run = cells(
        model=next(iter(names), None), **load_of(clients or (None if rate else 1), rate, done),
        prompt=first(metric, "input_sequence_length.avg", "input_sequence_length.p50"),
        output=first(metric, "output_sequence_length.avg", "output_sequence_length.p50"), samples=done,
    )  # fmt: skip
    names_of = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "latency_s": "request_latency"}
    times = {k: partial(field_at, metric(name)) for k, name in names_of.items() if metric(name) is not None}
    values: Timed = {}
    for k, m in times.items():
        values |= mean_or_median(k, m("unit") if m("unit") in ("s", "ms", "us") else "ms", m("avg"), m("p50"))
    tails = {k: {p: m(p) for p in ("p10", "p90", "p99")} for k, m in times.items()}
    yield from rows_of(run, values | {"output_tokens_per_s": (metric("output_token_throughput.avg"), "1/s")}, **tails)


def llama_bench(at: Field) -> Iterator[Cells]:
    """llama-bench: prompts and generation apart; a generation after an empty cache has half of itself before it."""
    name = (at("model_filename") or "").rsplit("/", 1)[-1].removesuffix(".gguf") or at("model_type")
    common = {"model": name, "batch": 1}
    prompt, output, rate = at("n_prompt"), at("n_gen"), at("avg_ts")
    if rate > 0 and prompt and not output:
        yield from rows_of(cells(**common, prompt=prompt, output=1), {"ttft": (prompt / rate, "s")})
    elif rate > 0 and output and not prompt:
        yield from rows_of(cells(**common, prompt=at("n_depth") or 1, output=output), {"tpot": (1 / rate, "s")})


DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def optimum(at: Field) -> Iterator[Cells]:
    """optimum-benchmark's report: prefill, per-token and decode latencies in s, memory in MB."""
    asked = "config.scenario.generate_kwargs"
    output = at(f"{asked}.max_new_tokens") or at(f"{asked}.min_new_tokens") or 1
    run = cells(model=at("config.backend.model"), quant=DTYPES.get(at("config.backend.torch_dtype") or ""),
                batch=at("config.scenario.input_shapes.batch_size"),
                prompt=at("config.scenario.input_shapes.sequence_length"), output=output)  # fmt: skip
    prefill, step, decode = (
        first(at, f"report.{phase}.latency.p50", f"report.{phase}.latency.mean")
        for phase in ("prefill", "per_token", "decode")
    )
    if step is None and decode is not None and output > 1:
        step = decode / (output - 1)
    memory = first(at, "report.prefill.memory.max_allocated", "report.prefill.memory.max_ram")
    yield from rows_of(run, {"ttft": (prefill, "s"), "tpot": (step, "s"), "memory_bytes": (memory, "MB")})


def inferencex(at: Field) -> Iterator[Cells]:
    """A row of InferenceX's results."""
    groups, per_gpu = at("ep") or 0, at("output_tput_per_gpu")
    run = cells(model=at("model"), gpu=device_named(at("hw")) or at("hw"), engine=engine_named(at("framework")),
                tp=at("tp"), ep=groups if groups > 1 else None, quant=scheme_named(at("precision")),
                concurrency=at("conc"), prompt=at("isl"), output=at("osl"))  # fmt: skip
    yield from rows_of(run, {
        **mean_or_median("ttft", "s", at("mean_ttft"), at("median_ttft")),
        **mean_or_median("tpot", "s", at("mean_tpot"), at("median_tpot")),
        **mean_or_median("latency_s", "s", at("mean_e2el"), at("median_e2el")),
        "output_tokens_per_s": (None if per_gpu is None else per_gpu * at("tp"), "1/s"),
    }, ttft={"p99": at("p99_ttft")}, tpot={"p99": at("p99_tpot")})  # fmt: skip


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


def mlperf(at: Field) -> Iterator[Cells]:
    """LoadGen's summary: a rate of requests (server), or everything at once (offline)."""

    def seconds(name: str) -> float | None:
        return None if at(name) is None else at(name) / 1e9

    paced = at("scenario") == "Server" and at("rate")
    yield from rows_of(cells(**({"rate": paced} if paced else {"concurrency": "max"})), {
        "ttft": (seconds("mean_ttft"), "s"), "tpot": (seconds("mean_tpot"), "s"),
        "latency_s": (seconds("mean_latency") if paced else None, "s"), "output_tokens_per_s": (at("tokens"), "1/s"),
    }, ttft={"p99": seconds("p99_ttft")}, tpot={"p99": seconds("p99_tpot")})  # fmt: skip


class Format(NamedTuple):
    """A format: the tool's name (an alias of the engine's where it runs but one), how a file is told by fields that it
    alone has, its schema, its rows, and how its text is cut into records."""

    name: str
    marks: tuple[str, ...]
    schema: Any
    rows: Callable[[Field], Iterator[Cells]]
    split: Callable[[str], list[Any]] = records

    def mark(self, record: Any) -> bool:
        """True for a record that holds every mark."""
        return all(name in record for name in self.marks)


FORMATS = (
    Format("vllm bench", ("total_input_tokens", "total_output_tokens"), schemas.SERVING, serving),
    Format("vllm bench", ("total_input_tokens", "total_output_tokens"), schemas.SERVING, serving, printed),
    Format("sglang", ("prefill_latency", "input_len"), schemas.ONE_BATCH, one_batch),
    Format("trtllm-bench", ("world_info", "request_info"), schemas.TRTLLM, trtllm),
    Format("guidellm", ("benchmarks",), schemas.GUIDE, guide),
    Format("optimum-benchmark", ("config", "report"), schemas.OPTIMUM, optimum),
    Format("aiperf", ("time_to_first_token",), schemas.AIPERF, aiperf),
    Format("aiperf", ("records",), schemas.AIPERF_NESTED, aiperf),
    Format("llama-bench", ("avg_ts",), schemas.LLAMA_BENCH, llama_bench),
    Format("inferencex", ("hw", "conc", "framework"), schemas.INFERENCEX, inferencex),
    Format("mlperf", ("scenario",), schemas.MLPERF, mlperf, summary),
)
"""Every format that is read."""
