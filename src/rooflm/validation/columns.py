"""The columns of a table of measured runs: a row is a scenario, a column one of its arguments, and beside them what was
measured and where it is printed. `rooflm validate --columns` prints this table; the reader knows no other columns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from rooflm.catalogue.fields import abouts
from rooflm.serving.server import Server
from rooflm.units import GIB, KIB, MIB

ROW, INFER, SERVE, TRAIN = "row", "infer", "serve", "train"
PREDICTED = (INFER, SERVE)
EVERY = (INFER, SERVE, TRAIN)


@dataclass(frozen=True)
class Column:
    """One column. kind: text, whole, number, load, rate, flag, pair, names or pairs (how a cell is read). read: the
    commands that take it as an argument ("row": none, it describes the row)."""

    name: str
    meaning: str
    kind: str = "text"
    unit: str = ""
    read: tuple[str, ...] = EVERY


def _many(kind: str, read: tuple[str, ...], unit: str, meanings: dict[str, str]) -> list[Column]:
    return [Column(name, meaning, kind, unit, read) for name, meaning in meanings.items()]


ABOUT = _many("text", (ROW,), "", {
    "id": "the row's own name",
    "source": "key of who measured it: errors are grouped by it, and --source picks by it",
    "url": "where it is printed: an address or a citation",
    "date": "when it was measured or printed",
    "trust": "A: conditions complete; B: something unstated; C: not to be trusted (scored apart)",
    "doubt": "why the row is set apart: it is scored, but not counted",
    "stand_in": "what stands in for what is not known (an engine, a script), in words: scored, counted on its own",
    "note": "free text, never read",
    "task": "infer, serve or train, where metric and load do not say it",
    "metric": "what was measured: one of the metrics below",
    "value": "the measured value",
    "unit": "its unit (s, ms, us; tokens/s; B, MB, GB, MiB, GiB; TFLOP/s; h; %); blank: the metric's own",
    "p10": "10th percentile of the samples behind `value`, in its unit",
    "p90": "their 90th percentile",
    "p99": "their 99th percentile",
    "samples": "how many there were",
})  # fmt: skip
MACHINE = _many("text", EVERY, "", {
    "model": "name, alias, Hugging Face id or file of the model",
    "gpu": "name or alias of the device, or its file",
    "cluster": "name of the cluster (blank: the device's own)",
    "engine": "engine or training framework: a row of `rooflm list engines` (blank: the command's default)",
    "release": "release of the engine, as printed",
}) + _many("whole", EVERY, "", {
    "gpus": "devices in all (of one replica)",
    "tp": "tensor parallel degree",
    "pp": "pipeline parallel degree",
    "dp": "data parallel degree; under load that of attention, where experts are shared",
    "ep": "expert parallel degree",
    "cp": "context parallel degree",
})  # fmt: skip
LENGTHS = [
    Column("quant", "scheme of weights, activations and cache, such as fp8kv8", "text", "", PREDICTED),
    Column("batch", "sequences (training: of one step, all devices)", "whole", "1", (INFER, TRAIN)),
    Column("prompt", "tokens of a prompt (mean)", "whole", "tokens", PREDICTED),
    Column("output", "tokens of an answer (mean)", "whole", "tokens", PREDICTED),
    Column(
        "cached",
        "tokens of the prompt that are in the cache already (under load: of each one's own)",
        "whole",
        "tokens",
        PREDICTED,
    ),
    Column("logits", "last or all", "text", "", (INFER,)),
    Column("price", "USD an hour of one device (blank: the catalogue's)", "number", "USD", EVERY),
]
LOAD = [
    Column("concurrency", "clients that wait for their answers, or max: as many as the server runs; with a rate: most "
           "requests at a time", "load", "1", (SERVE,)),
    Column("rate", "requests a second that arrive on their own", "rate", "1/s", (SERVE,)),
    Column("trace", "file of requests that arrive when it says (csv, jsonl, json)", "text", "", (SERVE,)),
    Column("dataset", "lengths of a published data set (`rooflm list datasets`), where prompt, output, spread "
           "and limits are blank", "text", "", (ROW,)),
    Column("requests", "requests of the run", "whole", "1", (SERVE,)),
    Column("warmup", "first requests that the figures leave out", "whole", "1", (SERVE,)),
    Column("spread", "shortest and longest length over `prompt` and `output`, as 0.8,1, uniform between "
           "(blank: all alike)", "pair", "", (SERVE,)),
    Column("prompt_limit", "most tokens of a prompt, where many are short and few long and `prompt` is their mean",
           "whole", "tokens", (SERVE,)),
    Column("output_limit", "most tokens of an output, where they end by themselves and `output` is their mean", "whole",
           "tokens", (SERVE,)),
    Column("output_ended", "mean of the outputs that end by themselves, where the others all run to output_limit",
           "whole", "tokens", (SERVE,)),
    Column("output_variation", "standard deviation of outputs over their mean, where they end by themselves", "number",
           "", (SERVE,)),
    Column("burstiness", "shape of the gaps between arrivals (1: Poisson)", "number", "", (SERVE,)),
    Column("shared_prefix", "tokens that all prompts begin with", "whole", "tokens", (SERVE,)),
    Column("replicas", "equal replicas (of decode pools where prefill has its own)", "whole", "1", (SERVE,)),
    Column("prefill_replicas", "replicas that only prefill", "whole", "1", (SERVE,)),
    *_many("whole", (SERVE,), "1", {
        "prefill_tp": "tensor parallel degree of those (blank: as tp)",
        "prefill_pp": "their pipeline stages (blank: as pp)",
        "prefill_dp": "their data-parallel ranks (blank: as dp)",
        "prefill_ep": "their expert-parallel degree (blank: as ep)",
    }),
]  # fmt: skip
SPECULATION = [
    Column("guesses", "tokens guessed a step (0 or blank: none)", "whole", "tokens", PREDICTED),
    Column("draft", "draft model that guesses (blank: the model's own heads)", "text", "", PREDICTED),
    Column("acceptance", "chance that a guess is right", "number", "1", PREDICTED),
    Column("accepted", "tokens that a step gained, as measured", "number", "tokens", PREDICTED),
    Column("branches", "guesses side by side at each depth (1: a chain)", "whole", "1", PREDICTED),
]
HOST = [
    Column("cpu_layers", "whole layers in the host's memory, on its CPU", "whole", "1", PREDICTED),
    Column("cpu_experts", "layers whose experts alone are there", "whole", "1", PREDICTED),
    Column("host_bandwidth", "rate of the host's memory, channels by 8 bytes a transfer", "number", "B/s", PREDICTED),
]
ADAPTERS = [
    Column("adapters", "adapters held on the devices, each request asking for one (0 or blank: none)", "whole", "1",
           PREDICTED),
    Column("adapter_rank", "rank of each", "whole", "1", PREDICTED),
    Column("adapter_modules", "products that they adapt, such as qkv,out (blank: all)", "text", "", PREDICTED),
]  # fmt: skip
TRAINING = _many("whole", (TRAIN,), "", {
    "seq": "tokens of a sequence",
    "micro_batch": "sequences of a micro-batch",
    "vp": "virtual pipeline stages a device",
    "fsdp_group": "devices that share one copy, where fewer than all",
    "recompute_layers": "layers that are recomputed (with recompute block)",
    "lora_rank": "rank of adapters (LoRA)",
    "base_bits": "bits of a frozen base weight",
}) + _many("text", (TRAIN,), "", {
    "recompute": "none, selective, ops, full or block",
    "zero": "0 to 3, or fsdp",
    "schedule": "of the pipeline: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min, dualpipe",
    "order": "groups by nearness, such as tp-cp-dp-pp",
    "dtype": "of the products: bf16, fp16, fp8, mxfp8, nvfp4 and others",
    "optimizer": "adam, adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum",
}) + _many("names", (TRAIN,), "", {
    "recompute_modules": "parts of a layer that run again, such as layernorm,moe_act",
    "lora_modules": "products that have adapters, such as qkv,out",
}) + [
    Column("sp", "sequence parallelism", "flag", "", (TRAIN,)),
    Column("dropout", "dropout is on", "flag", "", (TRAIN,)),
    Column("tokens", "tokens of the whole run", "number", "tokens", (TRAIN,)),
]  # fmt: skip
_SERVER_KINDS = {"str": "text", "int": "whole", "float": "number", "bool": "flag"}
SERVER = [
    Column(f.name, abouts(Server)[f.name].meaning, _SERVER_KINDS[str(f.type)], abouts(Server)[f.name].unit, (SERVE,))
    for f in fields(Server)
]
"""Options of a server, as they describe themselves."""
PATHS = [Column("sets", "other inputs by their paths: PATH=VALUE;PATH=VALUE (or a column `set:PATH` each)", "pairs")]
SIZES = _many("whole", EVERY, "", {
    "layers": "own sizes of a model that is not in the catalogue: layers",
    "hidden": "hidden width",
    "heads": "attention heads",
    "kv_heads": "heads of keys and values (blank: heads)",
    "head_dim": "width of a head (blank: hidden over heads)",
    "ffn": "width of the feed-forward",
    "vocab": "size of the vocabulary (blank: 32000)",
    "positions": "learned position embeddings (0 or blank: none)",
    "window": "tokens that attention looks back (blank: all)",
    "experts": "experts of a layer",
    "top_k": "experts that a token takes",
    "expert_ffn": "width of an expert (blank: ffn)",
    "shared_ffn": "width of the shared expert",
    "dense_layers": "layers without experts, where others have some",
}) + _many("flag", EVERY, "", {
    "gated": "three feed-forward matrices (blank: yes)",
    "tied": "head and embedding are one",
}) + [
    Column("norm", "rms, or layer (with biases)"),
    Column("params", "parameters (blank: as the name tells): without sizes the nearest model stands in", "number"),
    Column("active", "parameters that a token uses", "number"),
]  # fmt: skip
CARD = [*_many("number", EVERY, "", {
    "peak": "own figures of a device that is not in the catalogue: dense 16-bit FLOP/s",
    "bandwidth": "of its memory, B/s",
    "memory": "its size, B",
}), Column("like", "a device of the catalogue whose kernels stand in")]  # fmt: skip
COLUMNS: dict[str, Column] = {
    c.name: c
    for c in (*ABOUT, *MACHINE, *LENGTHS, *LOAD, *TRAINING, *SERVER, *SPECULATION, *HOST, *ADAPTERS, *PATHS, *SIZES,
              *CARD)
}  # fmt: skip
"""Every column by its name."""
SETTING = "set:"
"""What begins the name of a column that is a path of `--set`."""
RUN = "run:"
"""What begins the name of a column that says how a row was measured: predictions do not read it."""
SERVER_OPTIONS = frozenset(c.name for c in SERVER) - {c.name for c in SPECULATION}
MODEL_SIZES = tuple(c.name for c in SIZES)
CONFIG = {
    "num_layers": "layers", "num_hidden_layers": "layers", "n_layers": "layers", "hidden_size": "hidden",
    "d_model": "hidden", "num_attention_heads": "heads", "num_heads": "heads", "n_heads": "heads",
    "num_key_value_heads": "kv_heads", "num_kv_heads": "kv_heads", "n_kv_heads": "kv_heads",
    "intermediate_size": "ffn", "intermediate": "ffn", "ffn_size": "ffn", "d_ff": "ffn", "vocab_size": "vocab",
    "num_experts": "experts", "moe_intermediate_size": "expert_ffn", "num_experts_per_tok": "top_k",
}  # fmt: skip
"""What a config.json calls a model's sizes -> the column."""
CARD_SIZES = tuple(c.name for c in CARD)


@dataclass(frozen=True)
class Metric:
    """What can be measured. task: the command that predicts it ("": infer and serve); unit: of `value` without one; of:
    the metric that it is a percentile of ("": none), whose figure it has where all requests are alike."""

    name: str
    meaning: str
    unit: str
    task: str = ""
    other: tuple[str, ...] = ()
    of: str = ""


STATISTICS = {"mean": "", "avg": "", "average": "", "median": "p50", "mdn": "p50", "p50": "p50", "p90": "p90",
              "p95": "p95", "p99": "p99"}  # fmt: skip
"""What tools call a figure of all requests -> the percentile that it is ("": their mean)."""


def _percentiles(name: str, of: str, meaning: str) -> list[Metric]:
    """The percentiles of a time over the requests of a run under load."""
    words = {"p50": "median", "p90": "90th percentile", "p95": "95th percentile", "p99": "99th percentile"}
    return [Metric(f"{name}_{p}", f"{word} of the {meaning}", "s", "", (), of) for p, word in words.items()]


METRICS: dict[str, Metric] = {m.name: m for m in (
    Metric("ttft", "time to the first token (under load: mean)", "s", "", ("ttft_s", "time_to_first_token")),
    Metric("tpot", "time of an output token after the first (under load: mean)", "s", "",
           ("tpot_s", "itl_s", "itl", "time_per_output_token", "inter_token_latency")),
    Metric("latency_s", "time to the last token", "s", "", ("latency", "request_latency", "e2e_latency",
            "end_to_end_latency", "e2el")),
    *_percentiles("ttft", "ttft", "times to the first token under load"),
    *_percentiles("tpot", "tpot", "times of an output token after the first, a request each"),
    *_percentiles("itl", "tpot", "times between two tokens, every token counted alike"),
    *_percentiles("latency", "latency_s", "times to the last token under load"),
    Metric("output_tokens_per_s", "output tokens a second, all devices", "1/s", "",
           ("output_token_throughput", "output_throughput", "output_tokens/s", "output_tok/s", "output_tps",
            "out_tps")),
    Metric("total_tokens_per_s", "tokens of prompts and outputs a second, all devices", "1/s", "",
           ("total_token_throughput", "total_tokens/s", "total_tok/s", "total_tps")),
    Metric("requests_per_s", "requests finished a second", "1/s", "", ("request_throughput", "requests/s", "req/s")),
    Metric("prefill_tokens_per_s", "new prompt tokens of the batch over the time to the first token", "1/s", INFER,
           ("prefill_tokens/s", "prefill_tok/s", "prefill_throughput")),
    Metric("decode_tokens_per_s", "batch over the time of a decode step", "1/s", INFER,
           ("decode_tokens/s", "decode_tok/s", "decode_throughput")),
    Metric("memory_bytes", "peak memory of the fullest device", "B", "", ("memory", "peak_memory", "gpu_memory")),
    Metric("weight_bytes", "weights on the fullest device, as an engine holds them", "B", INFER, ("model_loading",)),
    Metric("trial_bytes", "what a server's trial of its largest pass takes beside weights", "B", INFER,
           ("peak_activation",)),
    Metric("cache_bytes", "what is left for the KV cache on the fullest device", "B", INFER, ("kv_cache_memory",)),
    Metric("cache_tokens", "tokens of sequences as long as prompt and output which that holds", "1", INFER,
           ("kv_cache_tokens",)),
    Metric("oom", "1: the run did not fit (judged, not scored)", "", INFER),
    Metric("step_time_s", "time of a training step", "s", TRAIN, ("step_time", "iteration_time")),
    Metric("tokens_per_s_per_gpu", "trained tokens a second a device", "1/s", TRAIN,
           ("tokens/s/gpu", "tok/s/gpu", "tokens/sec/gpu")),
    Metric("model_tflops_per_gpu", "model TFLOP/s a device, all pairs of tokens in attention", "TFLOP/s", TRAIN,
           ("tflop/s/gpu", "tflops/gpu", "tflops_per_gpu")),
    Metric("mfu", "model FLOP/s over the peak, all pairs of tokens counted in attention", "1", TRAIN),
    Metric("hfu", "executed FLOP/s over the peak, recomputation included", "1", TRAIN),
    Metric("layer_fwd_s", "forward of one layer and micro-batch", "s", TRAIN),
    Metric("layer_bwd_s", "backward of one layer and micro-batch, recomputation included", "s", TRAIN),
    Metric("gpu_hours", "device-hours of a run of `tokens`", "h", TRAIN),
)}  # fmt: skip
"""Every metric by its name."""
METRIC_NAMES = {n: m for m in METRICS.values() for n in (m.name, *m.other)}
TAILS = ("_p90", "_p95", "_p99")
"""How metrics end that say more of a run's accidents than of its mean: their bands are those of what is far."""
UNITS = {
    "s": ("s", 1.0), "ms": ("s", 1e-3), "us": ("s", 1e-6), "min": ("s", 60.0),
    "1/s": ("1/s", 1.0), "tokens/s": ("1/s", 1.0), "tok/s": ("1/s", 1.0), "requests/s": ("1/s", 1.0),
    "req/s": ("1/s", 1.0),
    "b": ("B", 1.0), "kb": ("B", 1e3), "mb": ("B", 1e6), "gb": ("B", 1e9), "tb": ("B", 1e12),
    "kib": ("B", KIB), "mib": ("B", MIB), "gib": ("B", GIB), "tib": ("B", 2.0**40),
    "tflop/s": ("TFLOP/s", 1.0), "tflops": ("TFLOP/s", 1.0), "pflop/s": ("TFLOP/s", 1e3),
    "h": ("h", 1.0), "gpu-hours": ("h", 1.0), "hours": ("h", 1.0), "d": ("h", 24.0), "%": ("1", 0.01), "1": ("1", 1.0),
}  # fmt: skip
"""Unit in lower letters -> the unit that it is a multiple of, and how many."""
SPELLED = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("\u00b5s", "\u03bcs", "microseconds"), "us"),
    **dict.fromkeys(("msec", "millisecond", "milliseconds"), "ms"), "minutes": "min", "percent": "%", "days": "d",
    **dict.fromkeys(("t/s", "tps", "tok/sec", "token/s", "tokens/sec", "tokens per second", "toks/s"), "tokens/s"),
    **dict.fromkeys(("rps", "qps", "req/sec", "requests/sec", "requests per second"), "requests/s"),
}  # fmt: skip
"""Units as others spell them -> those of UNITS."""


def mean_of(metric: str) -> str:
    """The metric that one is a percentile of, or itself.

    >>> mean_of("latency_p99"), mean_of("ttft")
    ('latency_s', 'ttft')
    """
    return METRICS[metric].of or metric


def of_task(task: str) -> list[Column]:
    """The columns that are arguments of a command.

    >>> "concurrency" in [c.name for c in of_task("infer")]
    False
    """
    return [c for c in COLUMNS.values() if task in c.read]


def listed() -> list[tuple[str, str, str, str]]:
    """(name, meaning, unit, commands) of every column, for the command line and the documentation."""
    return [(c.name, c.meaning, c.unit, " ".join(c.read)) for c in COLUMNS.values()]


def metrics_listed() -> list[tuple[str, str, str, str]]:
    """(name, meaning, unit, commands) of every metric."""
    return [(m.name, m.meaning, m.unit, m.task or f"{INFER} {SERVE}") for m in METRICS.values()]
