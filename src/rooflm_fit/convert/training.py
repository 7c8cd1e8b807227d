"""Rows of a training table of the older format -> cells. All that is known of its sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rooflm.catalogue.models import load_model
from rooflm_fit.convert import names
from rooflm_fit.convert.about import gpu_cells, model_cells, origin, printed
from rooflm_fit.convert.cells import (
    Cells,
    Row,
    Unusable,
    cells_of,
    count,
    count_or,
    number,
    positive,
    prefix_of,
    slug,
    text,
    trust_of,
)
from rooflm_fit.convert.conventions import megatron_hardware_flops, megatron_model_flops
from rooflm_fit.convert.training_facts import inputs, run_facts


@dataclass(frozen=True)
class Source:
    """What a source's rows have in common. framework and date: the engine row; convention: of its TFLOP/s.

    recompute: policy where the table prints none; sp: sequence parallelism where tp > 1 and the table prints none;
    zero: sharding where the table prints none; network: between nodes; kernels: attention's generation.
    """

    framework: str
    date: str
    convention: str = ""
    recompute: str = ""
    sp: bool = False
    zero: str | int = "none"
    network: str = ""
    kernels: str = ""
    trust: str = "B"


HDR = "8x200 Gb/s HDR InfiniBand a node"
UNFUSED = "unfused attention (batched GEMM and softmax kernel)"
SOURCES: dict[str, Source] = {
    "NAR": Source("megatron-2021", "2021-04", "hardware", network=HDR, kernels=UNFUSED, trust="A"),
    "NAR2": Source("megatron-2021", "2021-04", "hardware", network=HDR, kernels=UNFUSED, trust="A"),
    "KOR": Source("megatron-lm-2022", "2022-05", "model", network=HDR, kernels=UNFUSED, trust="A"),
    "KORL": Source("megatron-lm-2022", "2022-05", network=HDR, kernels=UNFUSED, trust="A"),
    "optimus": Source("megatron-lm-2022", "2022-05", network=HDR, kernels=UNFUSED, trust="A"),
    "MTN": Source("megatron-2021", "2022-01", "hardware", network=HDR, kernels=UNFUSED, trust="C"),
    "BLM": Source(
        "megatron-deepspeed", "2022-02", "hardware", network="4x100 Gb/s Omni-Path a node", kernels=UNFUSED, trust="A"
    ),
    "LLMF": Source("llm-foundry", "2023-12", kernels="FlashAttention 2", trust="A"),
    "TT": Source(  # its plan of tensor parallelism always splits norms over the sequence (arXiv 2410.06511)
        "torchtitan", "2024-12", sp=True, network="400 Gb/s a GPU", kernels="PyTorch SDPA (FlashAttention 2)", trust="A"
    ),
    "NEMO": Source("nemo", "2024-10", recompute="none", sp=True, zero=1, kernels="Transformer Engine (cuDNN)"),
    "NEMOL": Source("nemo", "2025-04", recompute="none", sp=True, zero=1, kernels="Transformer Engine (cuDNN)"),
    "MBR": Source("megatron-bridge", "", recompute="none", sp=True, zero=1, kernels="Transformer Engine (cuDNN)"),
    "MOE": Source(
        "megatron-lm-2025", "2025-10", recompute="none", sp=True, zero=1, kernels="Transformer Engine (cuDNN)"
    ),
    "AUTO": Source("nemo-automodel", "2026-02", recompute="full", zero="fsdp", kernels="Transformer Engine, DeepEP"),
    "PAX": Source("pax", "2024-03", recompute="full", kernels="cuDNN"),
    "PYT": Source("gpt-neox", "2023-04", zero=1, kernels="FlashAttention 1", trust="C"),
}
WHOLE_RUNS = {"LLA", "LL2", "LL3", "DSV3", "RUN", "MISC", "MGL"}
ANALYTIC = ("CALF", "CALF1", "CALF7")
SPEED = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "hfu", "mfu", "gpu_hours")
"""Metrics of a run's speed, the one to score first. Never two of one run."""

DTYPES = {
    "fp16": "fp16",
    "bf16": "bf16",
    "amp_bf16": "bf16",
    "bf16 (te)": "bf16",
    "amp_fp8": "fp8",
    "fp8": "fp8",
    "fp8-cs": "fp8",
    "fp8 (te)": "fp8",
    "float8": "fp8",
    "float8+bf16": "fp8",
    "float8 tensorwise": "fp8",
    "float8 rowwise": "fp8-rowwise",
    "mxfp8": "mxfp8",
    "fp8-mx": "mxfp8",
    "nvfp4": "nvfp4",
}
_UNGATED = re.compile(r"^(gpt|megatron|mt-nlg|1t\b|mpt|bloom|pythia)", re.IGNORECASE)
_ALIBI = re.compile(r"^bloom", re.IGNORECASE)
_ROTARY = re.compile(r"^pythia", re.IGNORECASE)


def source_of(row: Row) -> str:
    """The short source key of a training row: its id's letters.

    >>> source_of({"id": "KORL-003"}), source_of({"id": "optimus-t1-02"}), source_of({"id": "", "source": "My Notes"})
    ('KORL', 'optimus', 'my-notes')
    """
    prefix = prefix_of(text(row, "id"))
    if prefix.startswith("optimus"):
        return "optimus"
    return prefix or slug(text(row, "source"))


CONTAINER = r"\bcontainer (\d\d\.\d\d(?:\.\d+)*)"
"""Where a note names the container that a run used, by its release."""


def framework_of(row: Row, source: str) -> tuple[Source, str]:
    """(source facts, framework with its release). Unusable for a source whose framework is not known."""
    about = SOURCES.get(source)
    if about is None:
        raise Unusable("framework not stated")
    if source == "optimus" and "2104.04473" in text(row, "note"):
        about = SOURCES["NAR"]  # three of its reference times are Narayanan et al.'s
    release = re.search(r"\b(\d\d\.\d\d[\w.]*) NeMo Container", text(row, "source") + text(row, "note"))
    if source == "MBR" and release is None:
        raise Unusable("framework release not stated")
    if source == "NEMO":
        release = re.search(CONTAINER, text(row, "note"))
    if release is None or source not in ("MBR", "NEMO"):
        return about, about.framework
    return about, f"{about.framework} {release[1]}"


def architecture(row: Row) -> tuple[str, str | dict[str, Any]]:
    """(name, `model` argument): the catalogue's model where its sizes agree with the row's, else the row's own sizes.

    A row's own sizes serve only for families whose feed-forward is known to be ungated (GPT, MPT, BLOOM, Pythia);
    positions: learned ones of the sequence length, none with ALiBi or rotary embedding.
    """
    name = text(row, "model")
    bare = re.sub(r"\s*\(one layer\)$|\s+2-node$", "", name)
    sizes = {k: number(row, k) for k in ("layers", "hidden", "heads", "kv_heads", "ffn")}
    vocab = number(row, "vocab")
    found = names.model(bare)
    complete = all(v is not None and v >= 1 for v in sizes.values())
    plain = bool(_ALIBI.match(bare) or _ROTARY.match(bare))
    positions = 0 if plain else int(number(row, "seq") or 0)
    if found and not (complete and _UNGATED.match(bare) and not _agrees(found, sizes, vocab, positions)):
        return names.model_argument(bare)
    if not (complete and _UNGATED.match(bare)):
        raise Unusable(f"unknown model {bare}" if name else "model not stated")
    shape: dict[str, Any] = {k: int(v or 0) for k, v in sizes.items()}
    own = {"name": found or bare.lower().replace(" ", "-"), **shape, "vocab": int(vocab or 51200), "gated": False}
    return own["name"], own | {"positions": positions, "tied": not _ROTARY.match(bare), "norm": "layer"}


def _agrees(name: str, sizes: dict[str, float | None], vocab: float | None, positions: int) -> bool:
    if name in names.table()["architectures"]:
        shape = names.table()["architectures"][name]
        return all(shape[k] == v for k, v in sizes.items()) and vocab in (None, shape["vocab"])
    model = load_model(name)
    layers = sum(float(b.count) for b in model.blocks)
    same = layers == sizes["layers"] and model.hidden == sizes["hidden"] and vocab in (None, model.vocab)
    return bool(same and model.positions == positions)


def sharding(row: Row, about: Source) -> tuple[str | int, dict[str, Any]]:
    """(zero argument, facts) from the zero_fsdp column: "none", 1, 2, 3 or "fsdp" (parameters sharded as well)."""
    cell = text(row, "zero_fsdp").lower()
    group = re.search(r"fsdp (\d+)", cell)
    facts: dict[str, Any] = {"fsdp_group": float(group[1])} if group else {}
    if not cell:
        return about.zero, facts
    if "zero2" in cell or "shard_grad_op" in cell:
        return 2, facts
    if "dist-opt" in cell or "zero1" in cell:
        return 1, facts
    if cell == "zero3":
        return 3, facts
    return ("fsdp" if "fsdp" in cell else "none"), facts


def recomputation(row: Row, about: Source) -> tuple[str, tuple[str, ...]]:
    """(none | selective | full, notes); Unusable where neither the table nor the framework's habit says."""
    cell = text(row, "recompute").lower()
    if not cell:
        if not about.recompute:
            raise Unusable("recomputation not stated")
        return about.recompute, (f"recomputation not printed: {about.recompute} assumed, the framework's default",)
    for policy in ("none", "selective", "full"):
        if cell.startswith(policy):
            return policy, ((f"recomputation printed as {cell}",) if cell != policy else ())
    raise Unusable(f"unknown recomputation {cell}")


def mode_of(row: Row) -> str:
    """The mixed-precision mode of llm-foundry's tables ("pure", "default"), or an empty text."""
    mixed = re.search(r"MP mode (\w+)", text(row, "note"))
    return mixed[1].lower() if mixed else ""


def degrees(row: Row, source: str) -> dict[str, int]:
    """gpus, tp, pp, vp, cp, ep and dp; dp follows from the others where it is blank. Unusable where they disagree."""
    gpus = count(row, "gpus", "number of GPUs not stated")
    tp, pp = count(row, "tp", "layout not stated"), count(row, "pp", "layout not stated")
    vp, cp, ep = count_or(row, "vp", 1), count_or(row, "cp", 1), count_or(row, "ep", 1)
    if gpus % (tp * pp * cp):
        raise Unusable("split does not multiply to the number of GPUs")
    dp = gpus // (tp * pp * cp)
    printed = count_or(row, "dp", dp)
    if printed != dp:
        raise Unusable("split does not multiply to the number of GPUs")
    if ep > 1 and (dp * tp * cp) % ep:
        raise Unusable("split does not multiply to the number of GPUs")
    return {"gpus": gpus, "tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "dp": dp}


DEPTH = "interleaving depth left blank, printed for the same run of other releases"


def depth_left_blank(table: list[Row]) -> set[int]:
    """Rows of a pipeline without an interleaving depth, where the table prints one for the same model, card, number of
    GPUs, precision and split: their configuration is incomplete.

    >>> run = {"id": "MBR-1", "model": "m", "gpu": "g", "gpus": "8", "precision": "p", "tp": "1", "pp": "4"}
    >>> depth_left_blank([run | {"vp": "5"}, run | {"vp": ""}, run | {"vp": "", "tp": "2"}])
    {1}
    """
    keys = ("model", "gpu", "gpus", "precision", "tp", "pp")
    of = [(source_of(row), *(text(row, k) for k in keys)) for row in table]
    printed = {key for key, row in zip(of, table, strict=True) if (number(row, "vp") or 0) > 1}
    blank = [i for i, row in enumerate(table) if not text(row, "vp") and (number(row, "pp") or 1) > 1]
    return {i for i in blank if of[i] in printed}


def micro_batch(row: Row, batch: int, split: dict[str, int], source: str) -> tuple[int, tuple[str, ...]]:
    """(sequences a micro-batch, notes). torchtitan cuts a local batch into pp micro-batches unless told otherwise."""
    if text(row, "micro_batch"):
        return count(row, "micro_batch", "micro-batch is not a whole number above 0"), ()
    if source == "TT" and batch % (split["dp"] * split["pp"]) == 0:
        return batch // (split["dp"] * split["pp"]), ("micro-batch: local batch / pp, torchtitan's default",)
    raise Unusable("micro-batch not stated")


def facts_of(row: Row, source: str, about: Source) -> dict[str, Any]:
    """What the source says beyond the keyword arguments: network, kernels, schedule, options, date."""
    note = text(row, "note")
    facts: dict[str, Any] = {"date": about.date} if about.date else {}
    facts |= {k: v for k, v in (("network", about.network), ("kernels", about.kernels)) if v}
    interconnect = re.search(r"with (\d+) Gbps node-node", note)
    day = re.search(r"table date (\d\d-\d\d)", note)
    facts |= {"network": f"{interconnect[1]} Gb/s RoCE a node"} if interconnect else {}
    facts |= {"fsdp_precision": mode_of(row)} if mode_of(row) else {}
    facts |= {"date": f"2022-{day[1]}"} if day else {}
    words = {
        "async_tp": "async tp" in note.lower() or "AsyncTP" in note,
        "compile": "compile" in note and "no compile" not in note,
        "token_drop": "tokendrop" in text(row, "model"),
        "dropless": "dropless" in text(row, "model"),
        "fine_tuning": "SFT" in note,
        "deepep": "DeepEP" in note,
        "overlap": "1f1b overlap" in note,
        "gradient_reduction_exposed": source in ("NAR", "NAR2", "KOR", "optimus") or "no overlap of gradient" in note,
        "embedding_is_a_stage_slot": "embedding counted as a PP slot" in note,
        "interleaved": "Interleaved 1F1B" in note,
        "unbalanced_stages": (number(row, "layers") or 0) % (number(row, "pp") or 1) != 0,
        "near_capacity": source == "TT" and text(row, "metric") == "memory_gb" and (number(row, "value") or 0) > 80,
    }
    if "w/o MTP" in text(row, "model") or "Lightning" in text(row, "model"):
        facts["mtp"] = 2.0 if "Lightning" in text(row, "model") else 0.0
    if note.startswith("A2A"):
        facts["dispatcher"] = "alltoall"
    container = re.search(CONTAINER, note)
    facts |= {"container": container[1]} if container else {}
    flushes = re.search(r"local batch \d+, grad accum (\d+)", note)  # a local batch is one filling of the pipeline
    facts |= {"flushes": float(flushes[1])} if flushes and (number(row, "pp") or 1) > 1 else {}
    detail = re.fullmatch(r"selective \((.+)\)", text(row, "recompute").lower())
    facts |= {"recompute_detail": detail[1]} if detail else {}
    if source == "TT" and detail and detail[1] == "layer":  # torchtitan: every second layer as a whole
        facts["recompute_layers"] = (number(row, "layers") or 0) / (2 * (number(row, "pp") or 1))
    return facts | {k: True for k, v in words.items() if v}


def measured_of(
    row: Row, about: Source, split: dict[str, int], batch: int, seq: int
) -> tuple[str, float, tuple[str, ...]]:
    """(metric, measured SI value, notes). TFLOP/s, MFU and HFU become the step time behind them, by convention."""
    metric = text(row, "metric")
    value = positive(row, "value", "value is not a number above 0")
    direct = {
        "step_time_s": ("step_time_s", 1.0),
        "tokens_per_s_per_gpu": ("tokens_per_s_per_gpu", 1.0),
        "memory_gb": ("memory_bytes", float(GIB)),
        "layer_fwd_ms": ("layer_fwd_s", 1e-3),
        "layer_bwd_ms": ("layer_bwd_s", 1e-3),
    }
    if metric in direct:
        name, scale = direct[metric]
        return name, value * scale, ()
    if metric == "gpu_hours":
        tokens = re.search(r"(\d+(?:\.\d+)?)\s*([BT]) tokens", text(row, "note"))
        if tokens is None:
            raise Unusable("tokens of the run not stated")
        steps = float(tokens[1]) * (1e9 if tokens[2] == "B" else 1e12) / (batch * seq)
        seconds = value * 3600 / split["gpus"] / steps
        return "step_time_s", seconds, (f"from GPU-hours of {tokens[1]}{tokens[2]} tokens",)
    if metric not in ("tflops_per_gpu", "mfu", "hfu"):
        raise Unusable(f"unknown metric {metric}" if metric else "metric not stated")
    flops = _convention_flops(row, about, metric, batch, seq)
    rate = value * 1e12 if metric == "tflops_per_gpu" else value * _peak(row)
    return "step_time_s", flops / (rate * split["gpus"]), (f"from {metric}, {about.convention} FLOPs of the source",)


def _peak(row: Row) -> float:
    """The dense 16-bit peak that sources of the A100's time divide by."""
    if "A100" in text(row, "gpu") and text(row, "precision") in ("fp16", "bf16"):
        return 312e12
    raise Unusable("only a utilisation is printed, and not the peak it refers to")


def _convention_flops(row: Row, about: Source, metric: str, batch: int, seq: int) -> float:
    sizes = [number(row, k) for k in ("layers", "hidden", "vocab")]
    hardware = about.convention == "hardware" and metric in ("tflops_per_gpu", "hfu")
    model = about.convention == "model" and metric in ("tflops_per_gpu", "mfu")
    if any(s is None for s in sizes) or not (hardware or model):
        raise Unusable("only a FLOP rate is printed, and not how its FLOPs are counted")
    if hardware and not text(row, "recompute").startswith("full"):
        raise Unusable("hardware FLOPs without full recomputation")
    layers, hidden, vocab = (float(s or 0) for s in sizes)
    rule = megatron_hardware_flops if hardware else megatron_model_flops
    return float(rule(batch, seq, layers, hidden, vocab))


def refuse(row: Row, source: str) -> None:
    """Unusable for rows that no prediction of one step can be held against."""
    note = text(row, "note")
    if source.startswith(ANALYTIC):
        raise Unusable("analytic, not measured")
    if source in WHOLE_RUNS:
        raise Unusable("whole run: layout, micro-batch or recomputation not stated")
    if "LoRA" in note or "LoRA" in text(row, "model"):
        raise Unusable("LoRA fine-tuning is not covered")
    if text(row, "metric") == "layer_total_ms":
        raise Unusable("sum of two other rows")
    if source == "NAR2" and "zero3" in text(row, "zero_fsdp"):
        raise Unusable("distrusted: ZeRO-3 baseline of a rival's paper")
    if source == "MTN":
        raise Unusable("distrusted: the same model is 20 % faster elsewhere")
    if source == "PYT" or (source == "PAX" and "126M" in text(row, "model")):
        raise Unusable("distrusted: bound by the host or computed from logs")


