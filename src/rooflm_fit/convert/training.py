"""Rows of a training table of the older format -> cells. All that is known of its sources."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers import rows as catalogue
from rooflm.readers.checkpoints.load import load_model
from rooflm_fit.convert import names
from rooflm_fit.convert.about import gpu_cells, model_cells, origin, printed
from rooflm_fit.convert.cells import (
    Cells,
    Row,
    Unusable,
    cells_of,
    count_or,
    doubts_said,
    number,
    prefix_of,
    shipped,
    slug,
    text,
)
from rooflm_fit.convert.conventions import (
    causal_model_flops,
    megatron_halved_flops,
    megatron_hardware_flops,
    megatron_model_flops,
)
from rooflm_fit.convert.finetuning import adapters_of, litgpt, longest, tuned
from rooflm_fit.convert.golden import golden, told_sizes
from rooflm_fit.convert.training_facts import Run, inputs, run_facts, schedule_of


@dataclass(frozen=True)
class Source:
    """What a source's rows have in common, as sources.toml has it."""

    framework: str
    convention: str = ""
    recompute: str = ""
    sp: bool = False
    zero: str | int = "none"
    network: str = ""
    trust: str = "B"
    stand_in: str = ""
    dtype: str = ""


SOURCES = {name: Source(**row) for name, row in shipped("sources")["training"].items()}
UNKNOWN = Source("", trust="")
"""A source of which nothing is known, nor its framework: its columns say what they say."""


def kin_of(row: Row, source: str) -> tuple[str, Source]:
    """The key here of the source whose framework's habits a row has, and what it has in common with it: itself where it
    is known; else the one of its framework (aliases.toml), without its network, grade and release.

    >>> kin_of({"source": "pytorch/torchtitan docs"}, "zz")[0], kin_of({"note": "26.08 NeMo Container"}, "zz")[0]
    ('TT', 'MBR')
    >>> kin_of({}, "NAR")[1].convention, kin_of({"source": "a blog"}, "zz")[1] == UNKNOWN
    ('hardware', True)
    """
    if source in SOURCES:
        return source, SOURCES[source]
    rule = next((r for r in (names.framework_rule(text(row, c)) for c in ("source", "note", "model")) if r), None)
    rule = rule or names.framework_rule("tpu" if text(row, "gpu").lower().startswith("tpu") else "")
    told = (
        name
        for name, words in shipped("sources")["conventions"].items()
        if re.search(words, text(row, "note"), re.IGNORECASE)
    )
    kin, rule = (rule or {}).get("kin", ""), rule or {"name": ""}
    about = SOURCES.get(kin, UNKNOWN)
    return kin, replace(about, framework=rule["name"], convention=next(told, about.convention), network="", trust="",
                        stand_in=rule.get("stand_in", ""))  # fmt: skip


DTYPES = {printed: ours for ours, names in shipped("sources")["products"].items() for printed in names}
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


def framework_of(row: Row, source: str, about: Source) -> tuple[Source, str]:
    """(source facts, framework with its release). Unusable where the source is known to print one, and the row lacks
    it."""
    if source == "optimus" and "2104.04473" in text(row, "note"):
        about = SOURCES["NAR"]  # three of its reference times are Narayanan et al.'s
    release = re.search(r"\b(\d\d\.\d\d[\w.]*) NeMo Container", f"{text(row, 'source')} {text(row, 'note')}")
    if source == "MBR" and release is None and source_of(row) == source:
        raise Unusable("framework release not stated")
    if source == "NEMO":
        release = re.search(CONTAINER, text(row, "note"))
    if release is None or source not in ("MBR", "NEMO"):
        return about, about.framework
    return about, f"{about.framework} {release[1]}"


def architecture(row: Row) -> tuple[str, dict[str, Any]]:
    """(name, cells): the catalogue's model where its sizes agree with the row's, else the row's own sizes.

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
        return names.model_cells(bare)
    if not (complete and _UNGATED.match(bare)):
        raise Unusable(f"unknown model {bare}" if name else "model not stated")
    shape: dict[str, Any] = {k: int(v or 0) for k, v in sizes.items()}
    own = found or bare.lower().replace(" ", "-")
    shape |= {"vocab": int(vocab or 51200), "gated": False, "positions": positions, "tied": not _ROTARY.match(bare)}
    return own, {"model": own, **shape, "norm": "layer"}


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
    group = re.search(r"(?:fsdp|zero1 \(group) (\d+)", cell)
    facts: dict[str, Any] = {"fsdp_group": float(group[1])} if group else {}
    if not cell:
        return about.zero, facts
    if "zero2" in cell or "shard_grad_op" in cell:
        return 2, facts
    if "dist-opt" in cell or "zero1" in cell:
        return 1, facts
    if cell.startswith("zero3"):
        return 3, facts
    if cell == "hsdp":  # one copy a node
        return "fsdp", {"fsdp_group": 8.0}
    return ("fsdp" if "fsdp" in cell else "none"), facts


def recomputation(row: Row, about: Source) -> str:
    """none, selective or full; Unusable where neither the table nor the framework's habit says."""
    cell = text(row, "recompute").lower() or about.recompute
    if not cell:
        raise Unusable("recomputation not stated")
    for policy in ("none", "selective", "full"):
        if cell.startswith(policy):
            return policy
    raise Unusable(f"unknown recomputation {cell}")


def mode_of(row: Row) -> str:
    """The mixed-precision mode of llm-foundry's tables ("pure", "default"), or an empty text."""
    mixed = re.search(r"MP mode (\w+)", text(row, "note"))
    return mixed[1].lower() if mixed else ""


NEEDED = {"gpus": "number of GPUs not stated", "tp": "layout not stated", "pp": "layout not stated"}
"""What a split needs, and why there is none where it is blank."""


def degrees(row: Row) -> dict[str, int]:
    """gpus, tp, pp, vp, cp, ep and dp; of GPUs, tensors, stages and copies one that is blank follows from the others
    (stages are one where copies are blank, too). Unusable where they disagree.

    >>> [degrees(row)["pp"] for row in ({"gpus": "16", "tp": "4"}, {"gpus": "16", "tp": "4", "dp": "2"})]
    [1, 2]
    >>> degrees({"tp": "4", "pp": "2", "dp": "2"})["gpus"]
    16
    """
    said = printed(row, ("gpus", "tp", "pp", "dp"))
    vp, cp, ep = count_or(row, "vp", 1), count_or(row, "cp", 1), count_or(row, "ep", 1)
    blank = [name for name in ("gpus", "tp", "pp", "dp") if not text(row, name)]
    said |= {"pp": 1} if blank == ["pp", "dp"] else {}
    rest = cp * math.prod(said[name] for name in ("tp", "pp", "dp") if name in said)
    if len(blank) == 1 and "gpus" not in said:
        said["gpus"] = rest
    elif len(blank) == 1 and said["gpus"] % rest == 0:
        said[blank[0]] = said["gpus"] // rest
    for name, why in NEEDED.items():
        if name not in said:
            raise Unusable(why)
    gpus, tp, pp = (said[name] for name in NEEDED)
    if gpus % (tp * pp * cp):
        raise Unusable("split does not multiply to the number of GPUs")
    dp = gpus // (tp * pp * cp)
    if said.get("dp", dp) != dp:
        raise Unusable("split does not multiply to the number of GPUs")
    if ep > 1 and (dp * tp * cp) % ep:
        raise Unusable("split does not multiply to the number of GPUs")
    return {"gpus": gpus, "tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep, "dp": dp}


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


def facts_of(row: Row, source: str, about: Source) -> dict[str, Any]:
    """How a run ran, as its row's note and its source say: what `training_facts` turns into inputs, the pipeline's
    schedule, and layers that are recomputed."""
    note, model, recompute = text(row, "note"), text(row, "model"), text(row, "recompute").lower()
    stages = number(row, "pp") or 1
    network = re.search(r"with (\d+) Gbps node-node", note)
    flushes = re.search(r"local batch \d+, grad accum (\d+)", note)  # a local batch is one filling of the pipeline
    said: dict[str, Any] = {
        "network": f"{network[1]} Gb/s RoCE a node" if network else about.network,
        "async_tp": "async tp" in f"{note} {text(row, 'precision')}".lower() or "AsyncTP" in note,
        "compile": "compile" in note and "no compile" not in note,
        "compiled_loss": source == "TT" and "compile" in note and month_of(row) > "202503",
        "overlap": "1f1b overlap" in note,
        "interleaved": "Interleaved 1F1B" in note,
        "dispatcher": "alltoall" if note.startswith("A2A") else "",
        "flushes": float(flushes[1]) if flushes and stages > 1 else None,
    }
    if source == "FMS" and recompute == "selective":
        said["recompute_layers"] = shipped("sources")["recomputed_by_fms"].get(
            f"{model[-3:].lower()} {text(row, 'gpu')[:4]}"
        )
    if source == "TT" and recompute == "selective (layer)":  # torchtitan: every second layer as a whole
        said["recompute_layers"] = (number(row, "layers") or 0) / (2 * stages)
    facts = {name: value for name, value in said.items() if value}
    if "w/o MTP" in model or "Lightning" in model:
        facts["mtp"] = 2.0 if "Lightning" in model else 0.0
    return facts


GB = {"litgpt": "GB"}
"""Sources whose GB are 1e9 bytes (litgpt prints torch.cuda.max_memory_allocated() / 1e9)."""
DIRECT = {
    "step_time_s": ("step_time_s", "s"),
    "tokens_per_s_per_gpu": ("tokens_per_s_per_gpu", "tokens/s"),
    "memory_gb": ("memory_bytes", "GiB"),
    "layer_fwd_ms": ("layer_fwd_s", "ms"),
    "layer_bwd_ms": ("layer_bwd_s", "ms"),
}
FULL = {"tflops_per_gpu": ("model_tflops_per_gpu", "TFLOP/s"), "mfu": ("mfu", ""), "hfu": ("hfu", "")}
"""Utilisations that count as `rooflm.train` does: model FLOPs, all pairs of tokens in attention."""


def tokens_of(row: Row) -> float | None:
    """Tokens of a whole run, from its note.

    >>> tokens_of({"note": "1.4T tokens; batch 4M tokens"})
    1400000000000.0
    """
    found = re.search(r"(\d+(?:\.\d+)?)\s*([BT])\+? tokens", text(row, "note"))
    return float(found[1]) * (1e9 if found[2] == "B" else 1e12) if found else None


def month_of(row: Row) -> str:
    """The month that a row's source names, as "202506"; "" for none.

    >>> month_of({"source": "torchtitan benchmarks/llama3_h100_2025-06_torchtitan.md"})
    '202506'
    """
    found = re.search(r"_(20\d\d)-?([01]\d)_", text(row, "source"))
    return found[1] + found[2] if found else ""


def measured_of(row: Row, source: str, about: Source, values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(metric, value, unit; doubt). TFLOP/s, MFU and HFU become the step time behind them, by the source's convention;
    GPU-hours of so many tokens that of a step, where all of its sizes are known."""
    metric, cell = text(row, "metric"), text(row, "value")
    if metric in DIRECT:
        name, unit = DIRECT[metric]
        return {"metric": name, "value": cell, "unit": GB.get(source, unit) if unit == "GiB" else unit}, ""
    batch, seq, gpus = (values.get(k) for k in ("batch", "seq", "gpus"))
    value = number(row, "value")
    if not batch or not seq or not gpus or not value:
        tokens = {"tokens": tokens_of(row)} if metric == "gpu_hours" else {}
        return {"metric": FULL.get(metric, (metric, ""))[0], "value": cell, **tokens}, ""
    if metric == "gpu_hours":
        tokens_run = tokens_of(row)
        if tokens_run is None:
            return {"metric": metric, "value": cell}, "tokens of the run not stated"
        return {"metric": "step_time_s", "value": value * 3600 / gpus / (tokens_run / (batch * seq)), "unit": "s"}, ""
    if metric not in FULL:
        return {"metric": metric, "value": cell}, ""
    name, unit = FULL[metric]
    as_printed = {"metric": name, "value": cell, "unit": unit}
    if about.convention == "full":
        return as_printed, ""
    try:
        if about.convention == "halved" and metric == "tflops_per_gpu":
            flops = float(megatron_halved_flops(batch, seq, load_model(str(values.get("model") or ""))))
        else:
            flops = _convention_flops(row, about, metric, batch, seq)
        rate = value * 1e12 if metric == "tflops_per_gpu" else value * _peak(row)
        return {"metric": "step_time_s", "value": flops / (rate * gpus), "unit": "s"}, ""
    except (Unusable, RooflmError) as why:
        return as_printed, str(why)


def _peak(row: Row) -> float:
    """The dense 16-bit peak that sources of the A100's time divide by."""
    if "A100" in text(row, "gpu") and text(row, "precision") in ("fp16", "bf16"):
        return 312e12
    raise Unusable("only a utilisation is printed, and not the peak it refers to")


def _convention_flops(row: Row, about: Source, metric: str, batch: float, seq: float) -> float:
    sizes = [number(row, k) for k in ("layers", "hidden", "vocab")]
    params = number(row, "params_b")
    if not any(sizes) and (known := names.model(text(row, "model"))) in catalogue.names("model"):
        found = load_model(str(known))
        sizes = [sum(float(b.count) for b in found.blocks), float(found.hidden), float(found.vocab)]
    if about.convention == "causal" and metric == "tflops_per_gpu" and params and sizes[0] and sizes[1]:
        return float(causal_model_flops(batch, seq, 1e9 * params, sizes[0], sizes[1]))
    hardware = about.convention == "hardware" and metric in ("tflops_per_gpu", "hfu")
    model = about.convention == "model" and metric in ("tflops_per_gpu", "mfu")
    if not all(s and s > 0 for s in sizes) or not (hardware or model):
        raise Unusable("only a FLOP rate is printed, and not how its FLOPs are counted")
    if hardware and not text(row, "recompute").startswith("full"):
        raise Unusable("hardware FLOPs without full recomputation")
    layers, hidden, vocab = (float(s or 0) for s in sizes)
    rule = megatron_hardware_flops if hardware else megatron_model_flops
    return float(rule(batch, seq, layers, hidden, vocab))


def in_int8(row: Row, source: str) -> bool:
    """Whether a TPU recipe's products are of 8-bit integers (MaxText, quantization=int8): "fp8" on a card before TPU7x,
    which have none, and GPT-3 on v5p (gpt3_175b_base.sh)."""
    narrow = text(row, "precision") == "fp8" and "7x" not in text(row, "gpu")
    return source == "tpurec" and (narrow or (text(row, "gpu"), text(row, "model")[:4]) == ("TPU v5p", "GPT3"))


def refused(row: Row, source: str, kin: str) -> str:
    """Why no prediction of one step can be held against a row; "" for the others. kin: whose habits it has."""
    note, stated = text(row, "note"), all(text(row, name) for name in ("gpus", "tp", "pp", "micro_batch"))
    tests = {
        "whole run: layout, micro-batch or recomputation not stated": text(row, "metric") == "gpu_hours" and not stated,
        "rank and modules of the adapters not stated": ("LoRA" in note or "LoRA" in text(row, "model"))
        and kin not in shipped("sources")["adapters"],
        "int8 products of a TPU: none were measured": in_int8(row, kin),
    }
    told = doubts_said("train", {**row, "source": source, "kin": kin})
    return "; ".join(dict.fromkeys([*told, *(reason for reason, hit in tests.items() if hit)]))


def maxtext_sizes(params_b: float) -> dict[str, Any]:
    """Sizes that MaxText's global_parameter_scale makes of its base (2048 wide, 16 heads of 128, feed-forward 7168, 16
    layers, vocabulary 32000): factors of two in turn to heads and feed-forward, width, depth (get_individual_scales).

    >>> maxtext_sizes(16)["layers"], maxtext_sizes(16)["hidden"], maxtext_sizes(16)["heads"], maxtext_sizes(16)["ffn"]
    (32, 4096, 64, 28672)
    """
    power = round(math.log2(params_b))
    depth, rest = divmod(power, 3)
    heads, width = depth + (rest > 0), depth + (rest > 1)
    return {"layers": 16 << depth, "hidden": 2048 << width, "heads": 16 << heads, "kv_heads": 16 << heads,
            "head_dim": 128, "ffn": 7168 << heads, "vocab": 32000}  # fmt: skip


def sizes_by_count(row: Row) -> dict[str, Any]:
    """A row's own sizes, gated or not by which agrees with its count of parameters; {} where they are incomplete."""
    sizes = printed(row, ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"))
    told = told_sizes(row)
    if not {"layers", "hidden", "heads", "ffn"} <= sizes.keys():
        return {}
    if told:
        return sizes | told
    params = number(row, "params_b")
    if not params:
        return {}
    wide = sizes["hidden"] * sizes["ffn"] * sizes["layers"]
    head = sizes.get("kv_heads", sizes["heads"]) / sizes["heads"]
    rest = sizes["layers"] * sizes["hidden"] ** 2 * (2 + 2 * head) + sizes["hidden"] * sizes.get("vocab", 32000)
    gated = abs(math.log((rest + 3 * wide) / (params * 1e9))) < abs(math.log((rest + 2 * wide) / (params * 1e9)))
    return sizes | {"gated": gated}


def model_of(row: Row, source: str) -> tuple[str, dict[str, Any]]:
    """(resolved name, cells) of a training row's model."""
    name = text(row, "model")
    bare = re.sub(r"\s*\(one layer\)$|\s+2-node$|\s+(LoRA|[Aa]dapter)$|\s+\(w/ MTP\)$", "", name)
    for part, proxy in shipped("golden")["proxies"].items():
        if source == "mlmgold" and part in name:
            return proxy["model"], dict(proxy)
    try:
        return architecture(row)
    except Unusable:
        own = sizes_by_count(row)
        params = number(row, "params_b")
        if source == "maxtext" and params and not own and "MaxText" in name:
            own = maxtext_sizes(params)
        return (name, {"model": name, **own}) if own else model_cells(bare, params)


def split_of(row: Row) -> tuple[dict[str, Any], str]:
    """(gpus, tp, pp, vp, cp, ep and dp; doubt) of a row, as far as they are printed and agree."""
    try:
        return degrees(row), ""
    except Unusable as why:
        found = printed(row, ("gpus", "tp", "pp", "vp", "cp", "ep"))
        return found, str(why) if "multiply" in str(why) else ""


def recompute_of(row: Row, about: Source) -> dict[str, Any]:
    """recompute (and modules, and what stands in) as printed, else the framework's habit; blank where neither says."""
    cell, note = text(row, "recompute").lower(), text(row, "note")
    modules = re.search(r"recompute-modules=\[([\w ]+)\]", note)
    if modules:
        return {"recompute": "none", "recompute_modules": modules[1].replace(" ", ",")}
    if cell in ("custom", "qkv_proj_offloaded", "minimal_offloaded"):  # MaxText: what is kept goes to the host
        return {"recompute": "full", "sets": {"training.offload_activations": 1},
                "stand_in": "recompute full for a policy of its own, inputs of layers kept by the host"}  # fmt: skip
    try:
        return {"recompute": recomputation(row, about)}
    except Unusable:
        return {}


def batch_of(row: Row, source: str, split: dict[str, Any]) -> dict[str, Any]:
    """batch, micro_batch and seq, from the note where the columns are blank (tokens a step, batch a device)."""
    found = {"batch": number(row, "global_batch"), "seq": number(row, "seq"), "micro_batch": number(row, "micro_batch")}
    note = text(row, "note")
    tokens = re.search(r"tokens a step \(total_weights\) (\d+)", note)
    if not found["batch"] and found["micro_batch"] and split.get("gpus") and tokens:
        found["batch"] = found["micro_batch"] * split["gpus"]
    if not found["seq"] and tokens and found["batch"]:
        found["seq"] = int(tokens[1]) / found["batch"]
    if not found["seq"] and ("sequence length of base.yml where blank" in note or tokens):
        found["seq"] = 2048  # max_target_length of MaxText's base.yml
    if tokens and found["seq"] and split.get("gpus"):  # what its log counts, whatever batch its command asks for
        rows = int(tokens[1]) / found["seq"]
        found |= {"batch": rows, "micro_batch": rows / split["gpus"]}
    if not found["micro_batch"] and source == "TT" and found["batch"] and "dp" in split:
        local = found["batch"] / (split["dp"] * split["pp"])
        found["micro_batch"] = local if local == int(local) else None  # torchtitan: local batch / pp
    return found


PER_DEVICE = ("tokens_per_s_per_gpu", "tflops_per_gpu")
"""Metrics of a MaxText log that count by JAX device."""


def by_chip(row: Row, split: dict[str, Any]) -> tuple[Row, dict[str, Any]]:
    """A recipe's row and its split, of chips where they count TensorCores as accelerator types do: "v5p-128" and
    "tpu7x-128" are 64 chips (Google Cloud, TPU v4, v5p and TPU7x; AI-Hypercomputer/xpk, system characteristics). A log
    counts by JAX device, two of a TPU7x chip, one of a v4's or v5p's.

    >>> row = {"metric": "tokens_per_s_per_gpu", "value": "5", "note": "device type tpu7x-128 x 1 slices; "}
    >>> by_chip(row, {"gpus": 128, "dp": 128})[1], by_chip(row, {"gpus": 128, "dp": 128})[0]["value"]
    ({'gpus': 64, 'dp': 64}, '10.0')
    >>> by_chip(row, {"gpus": 64, "dp": 64})[1]
    {'gpus': 64, 'dp': 64}
    """
    named = re.search(r"device type (tpu7x|v5p|v4)-(\d+)(?: x (\d+) slices)?;", text(row, "note"))
    if not named or int(named[2]) * int(named[3] or 1) != split.get("gpus"):
        return row, split
    apart = named[1] == "tpu7x" and text(row, "metric") in PER_DEVICE
    doubled = {"value": str(2 * (number(row, "value") or 0.0))} if apart else {}
    halved = {k: split[k] // 2 for k in ("gpus", "dp") if split.get(k) and split[k] % 2 == 0}
    return {**row, **doubled}, split | halved


IEVO_NETWORK = 4 * 100e9 / 8 / 8
"""B/s a GPU: InternEvo, doc/en/train_performance.md: 4 * 100Gb RoCE between machines of eight."""


def beyond(row: Row, source: str) -> dict[str, Any]:
    """{path: value} of sources that state more than their columns hold: offload, network, how experts are reached."""
    note, zero = text(row, "note"), text(row, "zero_fsdp").lower()
    sets: dict[str, Any] = {}
    if "optimizer cpu offload" in zero:
        sets["training.offload_optimizer"] = 1
    network = re.search(r"\bnetwork (\d+) Gbps", note)
    if network:
        sets["cluster.tiers.1.bandwidth"] = float(network[1]) * 1e9 / 8 / 8
    capacity = re.search(r"\bsparse_matmul=False; capacity_factor=([\d.]+)", note)
    if capacity:  # MaxText: every expert computes that many tokens, filled or not
        sets["training.imbalance"] = float(capacity[1])
    if source == "FMS":  # fms_fsdp/policies/mixed_precision.py, bfSixteen: gradients reduced in bf16
        sets["training.grad_bytes"] = 2
    if source == "IEVO":
        sets["cluster.tiers.1.bandwidth"] = IEVO_NETWORK
    return sets


def framework_cells(row: Row, source: str, about: Source) -> tuple[Source, dict[str, Any], str]:
    """(source facts, engine and release cells, doubt)."""
    framework, doubt = about.framework, ""
    try:
        about, framework = framework_of(row, source, about)
    except Unusable as why:
        doubt = str(why)
    if source == "LLMF" and mode_of(row) == "pure":
        framework = "llm-foundry 0.0"
    engine, _, release = framework.partition(" ")
    if not engine and text(row, "zero_fsdp").lower().startswith(("fsdp", "hsdp")):
        engine = "fsdp"
    return (
        about,
        {"engine": engine, "release": release} | ({"stand_in": about.stand_in} if about.stand_in else {}),
        doubt,
    )


def precision_of(row: Row, release: str) -> str:
    """The printed precision in lower case: that before brackets, where the note takes the figure before them too.

    Megatron-Bridge's page of 25.09 has no such column, but a footnote says of all its systems that figures in brackets
    are of another granularity of quantisation: tensors have one scale (scripts/performance of v0.1.0: fp8_cs, whose
    micro-batches, two of Qwen3-30B on H100, are those printed). What drops tokens there is told apart (`refused`).

    >>> precision_of({"precision": "FP8-CS (FP8-MX)", "note": "the value outside brackets is taken"}, "25.11")
    'fp8-cs'
    """
    cell = text(row, "precision").lower()
    if not cell and release == "25.09" and kin_of(row, source_of(row))[0] == "MBR":
        return "fp8-cs"
    return cell.split(" (")[0] if "value outside brackets is taken" in text(row, "note") else cell


def tidy_training(row: Row) -> Cells:
    """The cells of one training row."""
    named = source_of(row)
    source, about = kin_of(row, named)
    about, engine, unreleased = framework_cells(row, source, about)
    model, of_model = model_of(row, source)
    gpu, of_gpu = gpu_cells(text(row, "gpu"), source)
    split, doubt = split_of(row)
    row, split = by_chip(row, split) if source == "tpurec" else (row, split)
    doubts = [refused(row, named, source), unreleased, doubt]
    values = origin(row, named, about.trust) | {"task": "train"} | of_model | of_gpu | engine
    values |= split | batch_of(row, source, split) | adapters_of(row, source)
    zero, shard = sharding(row, about) if source or text(row, "zero_fsdp") else (None, {})
    precision = precision_of(row, engine["release"])
    precision = precision if precision in DTYPES else names.precision(precision)
    dtype = DTYPES.get(precision or about.dtype) or ("bf16" if precision.startswith("bnb.") else None)
    dtype = "int8" if in_int8(row, source) else dtype
    if dtype is None and (precision or named in SOURCES):
        doubts.append(f"precision not clear: {precision}" if precision else "precision not stated")
    recompute = recompute_of(row, about)
    facts = facts_of(row, source, about) | shard
    run = Run(source, engine["engine"], engine["release"], model, gpu, zero, dtype, int(values.get("gpus") or 0),
              "lora_rank" in values, facts)  # fmt: skip
    said = run_facts(run) | (golden(row) if source == "mlmgold" else {})
    if source == "primus" and (order := schedule_of(text(row, "note"))):
        said |= {"ran": {"schedule": order}}
    if facts.get("interleaved") and split.get("vp", 1) == 1 and split.get("pp", 1) > 1:
        values["vp"] = 2  # interleave depth not printed: the framework's default
    shown = {"yes": True, "no": False}.get(text(row, "sequence_parallel").lower())
    values["sp"] = None if shown is None and not source else bool(
        (about.sp if shown is None else shown) and split.get("tp", 1) > 1)  # fmt: skip
    values |= {
        "dtype": dtype,
        **recompute,
        "zero": {"none": 0, "fsdp": 3}.get(str(said.get("zero", zero)), said.get("zero", zero)),
    }
    values |= {"fsdp_group": said.get("fsdp_group", facts.get("fsdp_group")), "optimizer": said.get("optimizer")}
    values |= said.get("ran", {})
    if said.get("recompute"):
        values["recompute_modules"] = ",".join(said["recompute"])
    if facts.get("recompute_layers"):
        values |= {"recompute": "block", "recompute_layers": facts["recompute_layers"]}
    sets = of_model.get("sets", {}) | recompute.get("sets", {}) | beyond(row, source) | inputs(run)
    sets |= said.get("sets", {}) | tuned(row, source)
    if source == "litgpt":
        values["seq"] = longest(values["note"], model)
        ran = litgpt(values)
        sets |= ran.pop("sets")
        values |= ran
    stand_in = [v["stand_in"] for v in (of_model, engine, recompute, said) if v.get("stand_in")]
    doubts.append("" if values.get("gpus") else NEEDED["gpus"])
    measured, unclear = measured_of(row, source, about, values)
    values |= measured | {"sets": sets, "stand_in": "; ".join(stand_in)}
    return cells_of(values | {"doubt": "; ".join(dict.fromkeys(d for d in [*doubts, said.get("doubt"), unclear] if d))})
