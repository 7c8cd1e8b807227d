"""Rows of an inference table of the older format (fixed batch) -> cells. All that is known of its sources is here."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers import rows as catalogue
from rooflm.readers.schemes import parse_quant
from rooflm.validation.headings import metric_at
from rooflm_fit.convert import conditions, names
from rooflm_fit.convert.about import engine_cells, gpu_cells, model_cells, origin, split_cells
from rooflm_fit.convert.cells import Cells, Row, Unusable, cells_of, doubts_said, number, prefix_of, shipped, slug, text
from rooflm_fit.convert.conditions import told

TINYCHAT_OUTPUT = 200  # tinychat/benchmark.py: 4 context tokens, 200 generated, median step time


def key_of(row: Row) -> str:
    """What the conditions of a row's source are found by here: the source that its text names, else its id's letters.

    >>> key_of({"id": "x-1", "note": "silicon measurement in NVIDIA aiconfigurator"}), key_of({"id": "nim-2"})
    ('aic', 'nim')
    """
    return names.said(*(text(row, name) for name in ("source", "note", "engine"))) or prefix_of(text(row, "id"))


def source_of(row: Row) -> str:
    """The short source key of a row: by its id, refined by engine version, maker or number of GPUs.

    >>> source_of({"id": "trtllm-0241", "engine": "TensorRT-LLM v0.5.0"}), source_of({"id": "xd-1", "gpus": "4"})
    ('trtllm05', 'llamacpp-multi')
    """
    prefix, engine, gpu = key_of(row).lower(), text(row, "engine"), text(row, "gpu")
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
    return shipped("sources")["fixed"].get(prefix) or prefix or slug(text(row, "source"))


WIDTHS = dict.fromkeys(("fp16", "bf16", "f16"), 16) | dict.fromkeys(("fp8", "int8", "int8-eetq"), 8)
WIDTHS |= dict.fromkeys(("int4", "int4-g128", "awq-int4"), 4)
PLAIN = {
    "fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "fp8-block": "fp8-block", "int4-wo": "int4", "fp32": "fp32",
}  # fmt: skip
"""Printed weight types that are a scheme by name."""
GGUF = {"q4_k_m": 0.0, "q4_0": 0.0, "q8_0": 0.0, "q8_k_xl": 8.5, "q6_k": 6.5625, "q5_k_m": 5.68, "q3_k_m": 3.9}
"""GGUF types -> bits a weight; 0: a scheme of the catalogue."""


GGUF_TYPE = re.compile(r"i?q\d\w*")


def file_bits(row: Row) -> float:
    """Bits a weight of a file whose size its note prints; 0 where it does not.

    >>> round(file_bits({"note": "flash attention True, file 32.6 GiB", "params_b": "30.7"}), 2), file_bits({})
    (9.12, 0.0)
    """
    size, params = re.search(r"\bfile (\d+(?:\.\d+)?) GiB", text(row, "note")), number(row, "params_b")
    return float(size[1]) * 2**30 * 8 / (params * 1e9) if size and params else 0.0


def backend(row: Row) -> str:
    """The engine's text, with the library that ran it where the note names one beside the engine's usual.

    >>> backend({"engine": "llama.cpp b9187", "note": "llama-bench; backend vulkan_radv, flash attention True"})
    'llama.cpp b9187 (Vulkan)'
    """
    note = text(row, "note")
    if BENCHED in note:
        return "llama.cpp b7340 (Vulkan)"
    return text(row, "engine") + (" (Vulkan)" if re.search(r"\bbackend vulkan", note) else "")


BENCHED = "system as printed: Intel 265K Custom PC"
"""geerlingguy/ai-benchmarks tested cards in this PC by llama-bench on Vulkan, not by Ollama (issues 43 and 46 print
their tables, b7340 and b7474; the others of November and December 2025 INFERRED alike)."""


def bits_of(cell: str) -> tuple[float, float] | None:
    """(bits a weight, bits of scales) of a printed width such as "q5 g32", "exl2-4.0bpw", "gptq-4bit-g128".

    MLX keeps a 16-bit scale and a 16-bit bias a group of 64 (mlx.core.quantize, affine); ExLlamaV2's figure counts all.

    >>> bits_of("q5 g32"), bits_of("exl2-4.0bpw"), bits_of("gptq-4bit-g128"), bits_of("fp16")
    ((5.0, 1.0), (4.0, 0.0), (4.0, 0.15625), None)
    """
    mlx = re.fullmatch(r"q(\d)(?: g(\d+))?", cell)
    if mlx:
        return float(mlx[1]), 32 / float(mlx[2] or 64)
    exl2 = re.fullmatch(r"(?:exl[23][- ])?(\d+(?:\.\d+)?) ?bpw", cell)
    if exl2:
        return float(exl2[1]), 0.0
    gptq = re.fullmatch(r"gptq-(\d)bit-g(\d+)(-act)?", cell)
    return (float(gptq[1]), 20 / float(gptq[2])) if gptq else None


def quant_of(row: Row) -> dict[str, Any]:
    """quant (and sets) from the three precision columns; Unusable when not stated.

    >>> quant_of({"precision_weights": "fp8", "precision_activations": "fp8", "precision_kv": "fp8"})["quant"]
    'fp8kv8'
    >>> quant_of({"precision_weights": "Q4_K_M", "precision_activations": "f16", "precision_kv": "f16"})["quant"]
    'q4_k_m'
    """
    weights, acts, kv = (names.precision(text(row, f"precision_{part}")) for part in ("weights", "activations", "kv"))
    if weights == "unstated" and "consistent with 16-bit" in text(row, "note"):
        return {"quant": "w16a16kv16"}
    weights = weights.removeprefix("ud-")
    plain = weights.replace("_", "-")
    cache = "kv8" if WIDTHS.get(kv) == 8 else ""
    if weights in GGUF or (GGUF_TYPE.fullmatch(weights) and file_bits(row)):
        bits = file_bits(row) or GGUF[weights]
        return {"quant": "q8_0", "sets": {"quant.weight_bits": bits}} if GGUF.get(weights, bits) else {"quant": weights}
    if plain in PLAIN:
        return {"quant": PLAIN[plain] + cache}
    bits_scales = bits_of(weights)
    if bits_scales:
        sets = dict(zip(("quant.weight_bits", "quant.scale_bits"), bits_scales, strict=True))
        if weights.startswith("q"):  # mlx_lm.convert narrows embedding and head, too (nn.Embedding.to_quantized)
            sets["quant.table_bits"] = sum(bits_scales)
        return {"quant": "int4", "sets": sets}
    if weights not in WIDTHS:
        return {"quant": own_scheme(weights, cache)}
    if weights == "bf16" and acts in ("", "f16", "bf16") and kv in ("", "f16", "bf16"):
        return {"quant": "bf16"}  # which not every library multiplies as it does fp16
    w = WIDTHS[weights]
    a = WIDTHS.get(acts, 16 if w < 16 and weights.startswith(("int", "awq")) else w)
    k = WIDTHS.get(kv, 4 if kv == "int4" else 16)
    if (weights == acts or not acts) and weights in ("fp8", "int8"):
        return {"quant": weights + ("kv8" if k == 8 else "")}
    if acts == "int8":
        return {"quant": f"w{w}a{a}kv{k}", "sets": {"quant.kind": "int"}}
    return {"quant": f"w{w}a{a}kv{k}"}


def own_scheme(weights: str, cache: str) -> str:
    """A printed type that is a scheme of the catalogue by its own name, with the cache's; Unusable where it is none.

    >>> own_scheme("w4a16", ""), own_scheme("awq", "kv8"), own_scheme("nvfp4 (modelopt)", ""), own_scheme("q4_k_xl", "")
    ('w4a16', 'awqkv8', 'nvfp4', 'q4_k_m')
    >>> own_scheme("torchao int4", ""), own_scheme("fp8_e5m2", ""), own_scheme("autoround", "")
    ('int4', 'fp8', 'w4a16g128')
    """
    if weights in ("", "unstated"):
        raise Unusable("precision not stated")
    plain = re.sub(r" *\(.*\)$", "", weights)
    words = [names.precision(word) for word in re.split(r"[ _()]+", weights)]  # "hqq 4-bit", "fp8_e5m2"
    others = (plain, re.sub(r"^(i?q\d_k)_\w+$", r"\1_m", plain), names.precision(plain), *words)
    for name in others:
        with suppress(RooflmError):
            return parse_quant(name).name + ("" if "kv" in name else cache)
    raise Unusable(f"unknown precision {weights}")


def split_of(row: Row, devices: int = 1) -> dict[str, int]:
    """gpus, tp, pp, dp and ep of a row; Unusable where the degrees do not explain the number of GPUs. devices: what
    software sees of one printed GPU, over which it cuts tensors.

    >>> split_of({"gpus": "2", "tp": "2", "pp": "1"}, devices=2)
    {'gpus': 4, 'tp': 4, 'pp': 1, 'dp': 1, 'ep': 1}
    """
    found = split_cells(row, devices)
    if not {"gpus", "tp", "pp"} <= set(found):
        raise Unusable("split over GPUs not stated")
    gpus, tp, pp = found["gpus"], found["tp"], found["pp"]
    expert = re.search(r"expert parallel (?:= (gpus)|(\d{1,6}))", text(row, "note"))
    if expert:  # TensorRT-LLM cuts the experts inside the tensor group, so that attention stays split over all GPUs
        ep = gpus if expert[1] else int(expert[2])
        return {"gpus": gpus, "tp": gpus // pp, "pp": pp, "dp": 1, "ep": ep}
    if gpus % (tp * pp):
        raise Unusable("split does not multiply to the number of GPUs")
    return {"gpus": gpus, "tp": tp, "pp": pp, "dp": gpus // (tp * pp), "ep": 1}


def lengths_of(row: Row, metric: str, source: str) -> dict[str, int]:
    """prompt, output and cached, blank where they are not stated."""
    note = text(row, "note")
    prompt, output = (number(row, c) for c in ("input_len", "output_len"))
    held = re.search(r"context of (\d{1,7}) tokens already held", note)
    if metric == "oom":
        return {"prompt": max(1, int(prompt or 1)), "output": max(1, int(output or 1))}
    found: dict[str, int] = {}
    if prompt is not None and prompt >= 1:
        found["prompt"] = int(prompt)
    if output is not None and output >= 1:
        found["output"] = int(output)
    if metric == "decode_tok_s" and prompt == 0:  # from a single token, as llama-bench does
        found["prompt"] = 1
    if metric == "prefill_tok_s":
        found["output"] = 1
        if held:
            found |= {"cached": int(held[1]), "prompt": found.get("prompt", 0) + int(held[1])}
    template = re.search(r"\((\d{1,9}) with template\)", note)
    if template:
        found["prompt"] = int(template[1])
    if re.match(r"tinychat|fp16 baseline", text(row, "engine"), re.I) and metric == "tpot_ms" and "output" not in found:
        found["output"] = TINYCHAT_OUTPUT
    if metric == "ttft_ms" and "output" not in found:
        found["output"] = 1
    return found


METRICS = {
    "ttft_ms": ("ttft", "ms"),
    "tpot_ms": ("tpot", "ms"),
    "latency_s": ("latency_s", "s"),
    "throughput_out_tok_s": ("output_tokens_per_s", "tokens/s"),
    "prefill_tok_s": ("prefill_tokens_per_s", "tokens/s"),
    "decode_tok_s": ("decode_tokens_per_s", "tokens/s"),
    "memory_gb": ("memory_bytes", "GiB"),  # printed as GB, but divided by 1024^3 (FasterTransformer's cuda_utils.h)
    "oom": ("oom", ""),
}
DECIMAL = re.compile(r"mlx", re.I)
"""Engines whose GB are 1e9 bytes (mlx_lm.benchmark)."""


def measured_of(row: Row) -> dict[str, Any]:
    """metric, value and unit."""
    printed, value = text(row, "metric"), text(row, "value").lstrip("~ ")
    metric, unit = METRICS.get(printed, (printed, ""))
    said: dict[str, Any] = {}
    if printed not in METRICS:
        known = metric_at(printed)
        own = (known[0].name, known[1], "") if known else (printed, "", "")
        metric, unit, turned = names.table()["metrics"].get(catalogue.normalise(printed), own)
        figure, gpus = number(row, "value"), number(row, "gpus")
        if turned == "bare":
            said["stand_in"] = f"metric {metric} for {printed}, whose kind is not stated"
        elif figure and turned == "inverse":
            value = f"{1 / figure:.6g}"
        elif turned == "each":
            metric, value = (metric, f"{figure * gpus:.6g}") if figure and gpus else (printed, value)
    unit = "GB" if unit == "GiB" and DECIMAL.match(text(row, "engine")) else unit
    return said | {"metric": metric, "value": value, "unit": unit}


def machine_of(row: Row) -> dict[str, Any]:
    """What the types of a row's columns say of its machine: reading a cache of integers costs no conversion."""
    narrow = text(row, "precision_kv") == "int8"
    return {"sets": {"engine.kv_convert": 0}} if narrow else {}  # devices convert from int8 in hardware


CACHED_ALIKE = ("qserve",)
"""Sources whose SmoothQuant runs keep the cache in int8, too, where no type is printed (README of mit-han-lab/qserve:
"per-tensor static KV cache quantization")."""
WIDE_EXPERTS = ("trtllm09-mixtral-fp8",)
"""Sources of Mixtral in fp8 before TensorRT-LLM 0.10, whose release notes say "Added FP8 quantization support for
Mixtral": what was narrow is the cache, and attention, which hardly counts."""
HOPPER, OLDER = ("h100", "h200", "gh200"), 1.59
"""Their experts' kernels on Hopper are INFERRED to be Ampere's (2,048 tokens take 161 ms on two A100 and 90 on two
H100), whose instructions reach 62.9 % of Hopper's rate (arXiv 2402.13499): time over that of the measured kernels."""
OLLAMA_QUANT = "q4_k_m"
"""What ollama's default tags hold (Q4_K_M; ollama.com/library)."""


def tidy_inference(row: Row) -> Cells:
    """The cells of one row of fixed batch and lengths."""
    source = source_of(row)
    metric = text(row, "metric")
    doubts = list[str]()
    values = origin(row, source)
    model, of_model = model_cells(text(row, "model"), number(row, "params_b"))
    maker = source.removesuffix("-amd")
    gpu, of_gpu = gpu_cells(text(row, "gpu"), maker)
    values |= of_model | of_gpu | engine_cells(backend(row), source) | measured_of(row)
    machine = machine_of(row)
    try:
        quant = quant_of(row)
    except Unusable as why:
        if "model tag" in text(row, "note"):  # of ollama, printed with its colon
            quant = {"quant": "mxfp4" if model.startswith("gpt-oss") else OLLAMA_QUANT}
        else:
            quant = {}
            doubts.append(str(why))
    if source in CACHED_ALIKE and quant.get("quant") == "int8":
        quant = {"quant": "int8kv8"}
    if source in WIDE_EXPERTS:
        quant = {"quant": "w16a16kv8"} | ({"sets": {"engine.moe_factor": OLDER}} if gpu.startswith(HOPPER) else {})
    values |= quant
    sets = quant.get("sets", {}) | machine.get("sets", {})
    here = {"source": source, "engine": values.get("engine"), "gpu": gpu, "model": model}
    for ran in shipped("sources")["ran"]:
        sets = sets | (ran["set"] if all(here[k] == v for k, v in ran["when"].items()) else {})
    values |= {"sets": sets} if sets else {}
    try:
        values |= split_of(row, names.devices(text(row, "gpu"), maker))
    except Unusable as why:
        values |= split_cells(row, names.devices(text(row, "gpu"), maker))
        doubts.append(str(why) if "multiply" in str(why) else "")
    values |= lengths_of(row, metric, source)
    if text(row, "batch") == "max":  # the largest batch that fits, one at a time
        values |= {"task": "serve", "concurrency": "max", "scheduler": "static"}
    else:
        values["batch"] = number(row, "batch")
        several = values["metric"] == "output_tokens_per_s" and values.get("engine") not in conditions.BENCHED
        doubts.append("batch not stated" if several and not values["batch"] else "")
    values |= told(row, source, values)
    said = doubts_said("fixed", {**row, "source": source, "release": values.get("release"), "gpu": gpu})
    return cells_of(values | {"doubt": "; ".join(d for d in [*said, *doubts] if d)})
