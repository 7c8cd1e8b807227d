"""Results of others' tools as rows of ours: vllm bench, guidellm, aiperf, llama-bench, optimum-benchmark (JSON).

Only what a prediction needs is read: the model, lengths and batch (concurrency), and the median times. Each format is
recognised by fields that it alone has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.errors import RooflmError
from rooflm.measure.case import Case
from rooflm.measure.results import Row, Stat, one


class Given(NamedTuple):
    """What the caller says, where the file does not: model, data type, prompt and output tokens, weight-only scheme."""

    model: str | None = None
    dtype: str = "bf16"
    prompt: int | None = None
    output: int | None = None
    quant: str = "none"


def read_foreign(path: str, given: Given) -> list[Row]:
    """The rows of a JSON (or JSON-lines) file of another tool; RooflmError when it is none that is known."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RooflmError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from error
    try:
        data: Any = json.loads(text)
    except ValueError:
        try:
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise RooflmError(f"{path} is not valid JSON: {error}") from error
    for known, read in FORMATS:
        if known(data):
            try:
                rows = list(read(data, given))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise RooflmError(f"{path}: a field is missing or wrong: {error!r}") from error
            if rows:
                return rows
    raise RooflmError(f"{path} is no result of vllm bench, guidellm, aiperf, llama-bench or optimum-benchmark")


def case_of(given: Given, model: str, batch: Any, prompt: Any, output: Any) -> Case:
    """The case behind figures of others; the caller's word goes first."""
    if not (given.model or model):
        raise RooflmError("the results name no model: give --model")
    sizes = {"prompt": given.prompt or prompt, "output": given.output or output, "batch": batch or 1}
    for name, value in sizes.items():
        if not value:
            raise RooflmError(f"the results do not say {name}: give --{name}")
    whole: dict[str, Any] = {k: max(round(float(v)), 1) for k, v in sizes.items()}
    return replace(Case(model=given.model or model, dtype=given.dtype, quant=given.quant), **whole)


def spread(
    median: float, p10: float | None = None, p90: float | None = None, p99: float | None = None, n: int = 1
) -> Stat:
    """Statistics from what is known."""
    return Stat(median, p10 or median, p90 or median, p99 or median, n)


def vllm(data: Any, given: Given) -> Iterator[Row]:
    """`vllm bench serve`: milliseconds by median_ttft_ms and the like."""
    done = data.get("completed") or data["num_prompts"]
    case = case_of(given, data.get("model_id", ""), data.get("max_concurrency") or data.get("num_prompts"),
                   data["total_input_tokens"] / done, data["total_output_tokens"] / done)  # fmt: skip
    for ours, theirs in (("ttft_s", "ttft"), ("tpot_s", "tpot"), ("latency_s", "e2el")):
        if data.get(f"median_{theirs}_ms"):
            tail = data.get(f"p99_{theirs}_ms")
            yield Row(case, ours, "s", spread(data[f"median_{theirs}_ms"] / 1e3, p99=tail and tail / 1e3, n=done))
    if data.get("output_throughput"):
        yield Row(case, "output_tokens_per_s", "1/s", one(data["output_throughput"]))


def llama_bench(data: Any, given: Given) -> Iterator[Row]:
    """`llama-bench -o json`: prompt processing (n_gen 0) and generation (n_prompt 0) apart, tokens/s.

    Prompt processing gives ttft_s of a case of one output token; generation gives tpot_s after an empty context, of
    which half the generated tokens stand for the prompt.
    """
    for run in data:
        name = given.model or run.get("model_filename", "").rsplit("/", 1)[-1]
        n_prompt, n_gen, rate = int(run["n_prompt"]), int(run["n_gen"]), float(run["avg_ts"])
        if n_prompt and not n_gen:
            yield Row(
                case_of(given._replace(prompt=None, output=None), name, 1, n_prompt, 1),
                "ttft_s",
                "s",
                one(n_prompt / rate),
            )
        elif n_gen and not n_prompt:
            depth = int(run.get("n_depth", 0)) or 1
            case = case_of(given._replace(prompt=None, output=None), name, 1, depth, n_gen)
            yield Row(case, "tpot_s", "s", one(1 / rate))


def guidellm(data: Any, given: Given) -> Iterator[Row]:
    """guidellm's report: one benchmark a rate; times of successful requests in ms."""
    for bench in data["benchmarks"]:
        m = bench["metrics"]

        def middle(key: str, m: Any = m) -> float:
            found = m[key]
            return float(found.get("successful", found)["median"])

        config, args = bench.get("config") or {}, bench.get("args") if isinstance(bench.get("args"), dict) else {}
        backend, strategy = config.get("backend") or {}, config.get("strategy") or {}
        names = (
            bench.get("model"),
            args.get("model"),
            backend.get("model"),
            bench.get("worker", {}).get("backend_model"),
        )
        model = str(next((n for n in names if n), ""))
        found = m.get("request_concurrency", {})
        batch = strategy.get("max_concurrency") or (found.get("successful", found).get("median") if found else 1)
        case = case_of(given, model, batch, middle("prompt_token_count"), middle("output_token_count"))
        yield Row(case, "ttft_s", "s", one(middle("time_to_first_token_ms") / 1e3))
        key = "inter_token_latency_ms" if "inter_token_latency_ms" in m else "time_per_output_token_ms"
        yield Row(case, "tpot_s", "s", one(middle(key) / 1e3))
        if "request_latency" in m:
            yield Row(case, "latency_s", "s", one(middle("request_latency")))


AIPERF = (("ttft_s", "time_to_first_token"), ("tpot_s", "inter_token_latency"), ("latency_s", "request_latency"))


def aiperf(data: Any, given: Given) -> Iterator[Row]:
    """aiperf's (and genai-perf's) profile export: a table a metric with p50, in ms unless its unit says otherwise."""
    records = data.get("records", data)
    config = data.get("input_config", {})
    load, endpoint = config.get("loadgen", {}), config.get("endpoint", {})
    names = endpoint.get("model_names") or [""]

    def middle(key: str) -> float:
        found = records[key]
        return float(found.get("p50", found.get("avg")))

    prompt = middle("input_sequence_length") if "input_sequence_length" in records else None
    output = middle("output_sequence_length") if "output_sequence_length" in records else None
    case = case_of(given, names[0], load.get("concurrency") or 1, prompt, output)
    for ours, theirs in AIPERF:
        if theirs in records:
            scale = {"ms": 1e3, "s": 1.0, "us": 1e6, "ns": 1e9}.get(records[theirs].get("unit", "ms"), 1e3)
            yield Row(case, ours, "s", one(middle(theirs) / scale))


def optimum(data: Any, given: Given) -> Iterator[Row]:
    """optimum-benchmark's report: config.scenario.input_shapes, and prefill, per-token and decode latencies in s."""
    config, report = data["config"], data["report"]
    scenario, backend = config["scenario"], config["backend"]
    shapes, generate = scenario["input_shapes"], scenario.get("generate_kwargs") or {}
    output = generate.get("max_new_tokens") or generate.get("min_new_tokens") or 1
    types = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    dtype = types.get(str(backend.get("torch_dtype") or ""), given.dtype)
    case = case_of(
        given._replace(dtype=dtype), backend["model"], shapes["batch_size"], shapes["sequence_length"], output
    )

    def time(part: Any) -> Stat:
        latency = part["latency"]
        middle = latency.get("p50", latency.get("mean"))
        return spread(float(middle), p90=latency.get("p90"), p99=latency.get("p99"), n=int(latency.get("count", 1)))

    yield Row(case, "ttft_s", "s", time(report["prefill"]))
    if report.get("per_token"):
        yield Row(case, "tpot_s", "s", time(report["per_token"]))
    elif report.get("decode") and output > 1:
        yield Row(case, "tpot_s", "s", time(report["decode"]).times(1 / (output - 1)))
    memory = report["prefill"].get("memory") or {}
    top = memory.get("max_allocated") or memory.get("max_ram")
    if top:
        yield Row(case, "memory_bytes", "B", one(float(top) * 1e6))


def _has(*names: str) -> Any:
    return lambda data: isinstance(data, dict) and all(n in data for n in names)


FORMATS: tuple[tuple[Any, Any], ...] = (
    (_has("total_input_tokens", "total_output_tokens"), vllm),
    (_has("benchmarks"), guidellm),
    (_has("config", "report"), optimum),
    (lambda d: isinstance(d, dict) and "time_to_first_token" in d.get("records", d), aiperf),
    (lambda d: isinstance(d, list) and bool(d) and all(isinstance(r, dict) and "avg_ts" in r for r in d), llama_bench),
)
"""How a format is told, and its reader."""
