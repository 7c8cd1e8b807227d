"""Rows of an inference table (fixed batch and lengths) -> Requests for rooflm.infer."""

from __future__ import annotations

import re
from typing import Any

from rooflm.units import GIB
from rooflm.validation.readers import names
from rooflm.validation.request import (
    Fact,
    Request,
    Row,
    Skip,
    Unusable,
    count,
    positive,
    prefix_of,
    slug,
    text,
    trust_of,
)

SOURCES = {
    "xd": "llamacpp",
    "gist": "llamacpp-apple",
    "nemo": "nemo-infer",
    "ft": "ft",
    "tinychat": "tinychat",
    "optimus": "optimus",
    "optimus-t2": "optimus",
    "rtx3060": "cluster-perf",
    "argonne": "argonne",
}
NETWORK = {"ft": "8x200 Gb/s InfiniBand a node of 8 GPUs", "cluster-perf": "Ethernet, one GPU a box"}
TINYCHAT_OUTPUT = 200  # tinychat/benchmark.py: 4 context tokens, 200 generated, median step time
LENGTH = "prompt or output length not stated"


def source_of(row: Row) -> str:
    """The short source key of a row: by its id, refined by engine version, maker or number of GPUs.

    >>> source_of({"id": "trtllm-0241", "engine": "TensorRT-LLM v0.5.0"}), source_of({"id": "xd-1", "gpus": "4"})
    ('trtllm05', 'llamacpp-multi')
    """
    prefix, engine, gpu = prefix_of(text(row, "id")).lower(), text(row, "engine"), text(row, "gpu")
    if prefix == "trtllm":
        version = re.search(r"v0\.(\d+)", engine + " " + text(row, "source"))
        fp8_experts = "mixtral" in text(row, "model").lower() and text(row, "precision_weights") == "fp8"
        return f"trtllm{int(version[1]):02d}" + ("-mixtral-fp8" if fp8_experts else "") if version else "trtllm"
    if prefix == "argonne" and gpu.startswith("AMD"):
        return "argonne-amd"
    if prefix == "ft" and engine == "Megatron-LM":
        return "ft-megatron"
    if prefix == "xd" and text(row, "gpus") not in ("", "1"):
        return "llamacpp-multi"
    if prefix == "tinychat" and not engine.lower().startswith(("tinychat", "fp16 baseline")):
        return "tinychat-other"
    return SOURCES.get(prefix) or prefix or slug(text(row, "source"))


WIDTHS = dict.fromkeys(("fp16", "bf16", "f16"), 16) | dict.fromkeys(("fp8", "int8", "int8-eetq"), 8)
WIDTHS |= dict.fromkeys(("int4", "int4-g128", "awq-int4"), 4)


def quant_of(row: Row) -> tuple[str, tuple[str, ...]]:
    """(quantisation name for rooflm.infer, notes) from the three precision columns; Unusable when not stated.

    >>> quant_of({"precision_weights": "fp8", "precision_activations": "fp8", "precision_kv": "fp8"})[0]
    'fp8kv8'
    >>> quant_of({"precision_weights": "Q4_K_M", "precision_activations": "f16", "precision_kv": "f16"})[0]
    'q4_k_m'
    """
    weights, acts, kv = (text(row, f"precision_{part}").lower() for part in ("weights", "activations", "kv"))
    if weights == "unstated" and "consistent with 16-bit" in text(row, "note"):
        return "w16a16kv16", ("precision not stated; the source's note finds it consistent with 16 bits",)
    if re.fullmatch(r"q\d_\w+", weights) and WIDTHS.get(acts) == WIDTHS.get(kv) == 16:
        return weights, ()
    if not {weights, acts, kv} <= WIDTHS.keys():
        blank = {weights, acts, kv} & {"", "unstated"}
        raise Unusable("precision not stated" if blank else f"unknown precision {weights} {acts} {kv}")
    w, a, k = WIDTHS[weights], WIDTHS[acts], WIDTHS[kv]
    if weights == acts and weights in ("fp8", "int8"):
        return weights + ("kv8" if k == 8 else ""), ()
    return f"w{w}a{a}kv{k}", ((f"KV cache in {kv}",) if k != a else ())


def split_of(row: Row) -> tuple[dict[str, int], tuple[str, ...]]:
    """(gpus, tp, pp, dp, ep) of a row with notes; Unusable where the degrees do not explain the number of GPUs."""
    gpus = count(row, "gpus", "number of GPUs not stated")
    tp, pp = count(row, "tp", "split over GPUs not stated"), count(row, "pp", "split over GPUs not stated")
    expert = re.search(r"expert parallel (?:= (gpus)|(\d{1,6}))", text(row, "note"))
    if expert:  # TensorRT-LLM cuts the experts inside the tensor group, so that attention stays split over all GPUs
        ep = gpus if expert[1] else int(expert[2])
        return {"gpus": gpus, "tp": gpus // pp, "pp": pp, "dp": 1, "ep": ep}, ("experts split inside the tensor group",)
    if gpus % (tp * pp):
        raise Unusable("split does not multiply to the number of GPUs")
    return {"gpus": gpus, "tp": tp, "pp": pp, "dp": gpus // (tp * pp), "ep": 1}, ()


def lengths_of(row: Row, metric: str, source: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """(prompt, output) with notes. llama-bench decodes from a single start token; its prompt rows generate nothing."""
    note = text(row, "note")
    if metric == "decode_tok_s":
        return {"prompt": 1, "output": count(row, "output_len", LENGTH)}, ("decode starts from one token",)
    if metric == "prefill_tok_s":
        return {"prompt": count(row, "input_len", LENGTH), "output": 1}, ()
    if metric == "oom" and source.startswith("llamacpp"):
        sizes = {"prompt": text(row, "input_len") or "0", "output": text(row, "output_len") or "0"}
        filled = {k: max(1, count({k: v}, k, LENGTH) if v != "0" else 1) for k, v in sizes.items()}
        return filled, ()
    prompt = count(row, "input_len", LENGTH)
    template = re.search(r"\((\d{1,9}) with template\)", note)
    if source.startswith("tinychat") and metric == "tpot_ms" and not text(row, "output_len"):
        return {"prompt": prompt, "output": TINYCHAT_OUTPUT}, ("200 generated tokens: the benchmark script's setting",)
    first_only = metric == "ttft_ms" and not text(row, "output_len")
    output = 1 if first_only else count(row, "output_len", LENGTH)
    lengths = {"prompt": int(template[1]) if template else prompt, "output": output}
    return lengths, (("prompt with its template",) if template else ())


def measured_of(row: Row, metric: str) -> tuple[str, float]:
    """(metric of the prediction, measured value in SI)."""
    value = positive(row, "value", "value is not a number above 0")
    table: dict[str, tuple[str, float]] = {
        "ttft_ms": ("ttft", 1e-3),
        "tpot_ms": ("tpot", 1e-3),
        "latency_s": ("latency_s", 1.0),
        "throughput_out_tok_s": ("output_tokens_per_s", 1.0),
        "prefill_tok_s": ("prefill_tokens_per_s", 1.0),
        "decode_tok_s": ("decode_tokens_per_s", 1.0),
        "memory_gb": (
            "memory_bytes",
            float(GIB),
        ),  # printed as GB, but divided by 1024^3 (FasterTransformer's cuda_utils.h)
        "oom": ("oom", 1.0),
    }
    if metric not in table:
        raise Unusable(f"unknown metric {metric}" if metric else "metric not stated")
    name, scale = table[metric]
    return name, value * scale


def facts_of(row: Row, source: str, split: dict[str, int]) -> dict[str, Fact]:
    """What the source says about the machine beyond the keyword arguments."""
    facts: dict[str, Fact] = {}
    if split["gpus"] > 8 or source == "cluster-perf":
        facts["network"] = NETWORK.get(source, "not stated")
    if source == "cluster-perf":
        facts["cluster"] = "ethernet-1g"  # assumed: the source says Ethernet, not which
    if "llamacpp" in source and split["pp"] > 1:
        facts["pipeline"] = "layer split; a prompt's micro-batches of 512 tokens overlap, one token's stages do not"
    if source == "ft" and text(row, "metric") == "memory_gb":
        facts["memory_includes"] = "CUDA context, libraries and workspace (whole process)"
    if text(row, "precision_kv") in ("fp8", "int8") and text(row, "precision_weights") not in ("fp8", "int8"):
        facts["kv_dtype"] = text(row, "precision_kv")
    if "WSL2" in text(row, "note"):
        facts["host"] = "WSL2"
    return facts


def known_wrong(row: Row) -> str:
    """Reason to leave a row out that its own source marks as wrong; "" for the others."""
    note = text(row, "note")
    if text(row, "metric") == "memory_gb" and "(8.67) is an outlier" in note:
        small = text(row, "batch") == "1" and text(row, "input_len") == "128" and text(row, "model").endswith("1.3B")
        return "value marked as an outlier" if small else ""
    if "ONE layer" in text(row, "model"):
        return "sum of single-operator timings of one layer, not a run"
    return ""


def read_inference(row: Row, row_id: str) -> Request | Skip:
    """One inference row as a Request, or a Skip with its reason."""
    source = source_of(row)
    try:
        note, metric = text(row, "note"), text(row, "metric")
        trust = trust_of(note)
        if trust == "C":
            raise Unusable("graded C: not to be scored")
        wrong = known_wrong(row)
        if wrong:
            raise Unusable(wrong)
        model, argument = names.model_argument(text(row, "model"))
        gpu = names.gpu(text(row, "gpu"), source.removesuffix("-amd"))
        engine, version = names.engine(text(row, "engine"), source)
        measure, measured = measured_of(row, metric)
        split, split_notes = split_of(row)
        lengths, length_notes = lengths_of(row, metric, source)
        quant, quant_notes = quant_of(row)
        batch = count(row, "batch", "batch not stated")
    except Unusable as why:
        return Skip(row_id, str(why), source)
    kwargs: dict[str, Any] = {"model": argument, "gpu": gpu, **split, "batch": batch, **lengths, "quant": quant}
    kwargs |= {"engine": engine, "engine_version": version}
    return Request(
        id=row_id,
        source=source,
        task="infer",
        metric=measure,
        measured=measured,
        kwargs=kwargs,
        group=(model, gpu),
        engine=f"{engine} {version}".strip(),
        trust=trust,
        published=metric,
        citation=text(row, "source"),
        facts=facts_of(row, source, split),
        notes=(*split_notes, *length_notes, *quant_notes),
    )
