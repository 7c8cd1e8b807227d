"""Rows measured under load -> ServeRequests. Their table's traps are undone or flagged here (tp column, releases)."""

from __future__ import annotations

import re
from typing import Any

from rooflm.validation.readers import names
from rooflm.validation.request import Fact, Row, ServeRequest, Skip, Unusable, count, number, positive, text, trust_of

PREFIXES = ("aic", "trtserve", "trtllm17", "trtllm10", "mlperf", "nim")
WINDOWLESS = ("trtllm10", "trtllm17")
"""Sources whose engines keep and read the whole cache of a model with a sliding window (max_attention_window_size is
the longest sequence unless given: TensorRT-LLM documentation, "KV cache config"); such a model runs as one without."""
_METRICS = {"ttft_ms": ("ttft", 1e-3), "tpot_ms": ("tpot", 1e-3), "throughput_out_tok_s": ("output_tokens_per_s", 1.0)}
_IN_HOUSE = ("1.0.0rc3", "1.2.0rc6.post1", "1.3.0rc1", "1.3.0rc5", "0.5.6.post2", "0.12.0")
"""Releases of AIConfigurator's own runs (names with epnone): its client sends lengths that do not vary."""
_BLOCK = ("deepseek", "qwen3.5", "qwen3-235b", "glm-5", "minimax")
"""Models whose fp8 checkpoints scale by blocks of 128 x 128 (weight_block_size in their config.json)."""
_MTP = ("2026_01_14", "2026_02_05", "2026_02_06", "2026-01-14", "2026-02-05", "2026-02-06", "2026_03_25_deepseek_r1")
"""What the notes of TensorRT-LLM's DeepSeek runs hold where plain and speculative ones (InferenceX has recipes of both,
dsr1_fp8_h200_trt.sh and ..._trt_mtp.sh) are filed alike: dates, and the dump of 2026-03-25. It has one configuration
twice, at 19.4 and 32.2 ms a token (repeats differ by 3 to 4 %), and gets faster with the length of the output."""


def is_serving(prefix: str, source: str) -> bool:
    """True for the sources whose rows were measured under load.

    >>> is_serving("aic", ""), is_serving("trtllm", "TensorRT-LLM docs v0.9.0")
    (True, False)
    """
    return prefix.lower() in PREFIXES or bool(re.search(r"MLPerf Inference|online serving|\bNIM\b", source))


def note_number(note: str, name: str) -> int | None:
    """The whole number after `name=` in a note, or None.

    >>> note_number("moe_tp=2 moe_ep=4 attn_dp=;", "moe_ep"), note_number("attn_dp=", "attn_dp")
    (4, None)
    """
    match = re.search(rf"\b{name}=(\d{{1,6}})", note)
    return int(match[1]) if match else None


def true_split(row: Row) -> tuple[dict[str, int], tuple[str, ...]]:
    """(tp, pp, dp, ep, gpus) of a load row.

    TensorRT-LLM's runs of InferenceX without a release are older than its experts' column: their scripts set
    ep_size = tp (dsr1_fp8_h200_trt_slurm.sh and gptoss_fp4_h200_trt_slurm.sh before they took EP_SIZE), and attention
    in data parallel for DeepSeek above 32 clients with prompts of 8192, above 64 else. InferenceX' script for Kimi-K2.5
    (kimik2.5_fp4_b200.sh, in every version found) never enables expert parallelism, whatever the column says. Where the
    note says moe_tp = moe_ep > 1 the tp column holds their product; the run's id (`_tp8_ep8_`) holds the real degree,
    else it is moe_tp (16, 4, 64 stand for 4, 2, 8). Where the id's tp or moe_tp x moe_ep exceeds the column, the column
    is too low (Qwen3-235B). attn_dp > 1: attention is replicated that often, GPUs = tp x attn_dp.
    """
    note = text(row, "note")
    moe_tp, moe_ep = note_number(note, "moe_tp") or 1, note_number(note, "moe_ep") or 1
    attn_dp = note_number(note, "attn_dp") or 1
    named = re.search(r"_tp(\d{1,6})_", note + "_")
    flags: list[str] = []
    if not text(row, "tp") and not named:
        raise Unusable("split over GPUs not stated")
    column = int(number(row, "tp") or 0)
    tp = int(named[1]) if named else column
    if "MiniMax" in text(row, "model") and tp == 8 and moe_tp == 8:
        moe_tp, moe_ep = 1, 8  # vLLM keeps experts whole where 1536 / tp is no multiple of the weight block, 128
    if text(row, "engine").startswith("vllm") and "Kimi" in text(row, "model"):
        moe_tp, moe_ep = tp, 1
        flags.append("experts by the script")
    elif text(row, "engine") == "trtllm" and re.search(r"DeepSeek|gpt-oss", text(row, "model")) and "_h200_" in note:
        moe_tp, moe_ep = 1, tp
        clients = 32 if number(row, "input_len") == 8192 else 64
        if "DeepSeek" in text(row, "model") and (number(row, "batch") or 0) > clients:
            tp, attn_dp = 1, tp
        flags.append("experts by the script")
    elif moe_tp == moe_ep > 1:
        if not named:
            tp = moe_tp
        moe_tp, moe_ep = (1, tp) if moe_ep >= tp else (tp // moe_ep, moe_ep)
        flags.append("tp column held a product")
    elif moe_tp * moe_ep > tp * attn_dp:
        tp = moe_tp * moe_ep // attn_dp
        flags.append("tp column too low")
    if tp < 1:
        raise Unusable("split over GPUs not stated")
    pp = int(number(row, "pp") or 1)
    gpus = tp * pp * attn_dp
    return {"gpus": gpus, "tp": tp, "pp": pp, "dp": attn_dp, "ep": moe_ep}, tuple(flags)


def quant_under_load(row: Row) -> str | None:
    """The quantisation of weights and activations; None when not stated (then the checkpoint's own).

    >>> quant_under_load({"precision_weights": "fp8_block"}), quant_under_load({})
    ('fp8-block', None)
    """
    kv = {"fp8": "kv8", "int8": "kv8"}.get(text(row, "precision_kv"), "")
    cell = text(row, "precision_weights").replace("_", "-")
    if cell not in ("", "fp8", "fp8-block", "nvfp4", "mxfp4", "bf16", "fp16"):
        raise Unusable(f"unknown precision {cell}")
    if "gpt-oss" in text(row, "model") and cell == "nvfp4":
        cell = "mxfp4"  # the checkpoint's own type; the table files every 4-bit type under one name
    return cell + kv if cell else None


def own_blocks(quant: str | None, model: str) -> str | None:
    """The scheme, by blocks where the table says fp8 of a model whose fp8 checkpoint is scaled so.

    >>> own_blocks("fp8", "deepseek-v3"), own_blocks("fp8", "llama-3.1-70b")
    ('fp8-block', 'fp8')
    """
    return re.sub(r"^fp8(?!-)", "fp8-block", quant) if quant and model.startswith(_BLOCK) else quant


def read_serving(row: Row, row_id: str, prefix: str) -> ServeRequest | Skip:
    """One row under load as a ServeRequest, or a Skip with its reason."""
    source, note = prefix.lower(), text(row, "note")
    try:
        trust = trust_of(note)
        if trust == "C":
            raise Unusable("graded C: not to be scored")
        metric = text(row, "metric")
        if metric not in _METRICS:
            raise Unusable(f"unknown metric {metric}" if metric else "metric not stated")
        measure, scale = _METRICS[metric]
        measured = positive(row, "value", "value is not a number above 0") * scale
        model, argument = names.model_argument(text(row, "model"))
        if source in WINDOWLESS and argument == "mistral-7b":
            argument = "mistral-7b-v0.3"
        gpu = names.gpu(text(row, "gpu"), source)
        quant = quant_under_load(row)
        if source == "mlperf":
            return _mlperf(row, row_id, measure, measured, (model, gpu), argument)
        engine, version = names.engine(text(row, "engine") + (" " if not text(row, "engine") else ""), source)
        split, flags = true_split(row)
        prompt = count(row, "input_len", "prompt or output length not stated")
        output = count(row, "output_len", "prompt or output length not stated")
    except Unusable as why:
        return Skip(row_id, str(why), source)
    quant = own_blocks(quant, model)
    fixed = version in _IN_HOUSE or (
        engine == "sglang" and re.match(r"0\.5\.1(?!\d)", version) and "Qwen3-32B" in text(row, "model")
    )
    rate = re.search(r"QPS=(\d+(?:\.\d+)?|INF)", note)
    requests = re.search(r"(?<![-\d])(\d+) requests", note)
    kwargs: dict[str, Any] = {"model": argument, "gpu": gpu, **split, "prompt": prompt, "output": output}
    kwargs |= {"quant": quant, "engine": engine, "engine_version": version}
    return ServeRequest(
        id=row_id,
        source=source,
        metric=measure,
        measured=measured,
        kwargs=kwargs,
        group=(model, gpu),
        engine=f"{engine} {version}".strip(),
        concurrency=number(row, "batch") if source in ("aic", "nim") else None,
        rate=None if rate is None or rate[1] == "INF" else float(rate[1]),
        requests=float(requests[1]) if requests else None,
        spread=(0.8, 1.0) if source == "aic" and not fixed else (1.0, 1.0),
        trust=trust,
        citation=text(row, "source"),
        facts=_load_facts(note),
        flags=(*flags, *_flags(row, engine, version, quant, flags)),
    )


def _load_facts(note: str) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for name in ("moe_tp", "moe_ep", "attn_dp"):
        value = note_number(note, name)
        if value is not None:
            facts[name] = float(value)
    return facts | ({"lengths": "mean of a data set"} if "dataset mean lengths" in note else {})


def _flags(row: Row, engine: str, version: str, quant: str | None, split_flags: tuple[str, ...]) -> tuple[str, ...]:
    """What makes a row of the aic campaign suspect."""
    model, note = text(row, "model"), text(row, "note")
    tests = {
        "mtp-suspect": engine == "trtllm" and "DeepSeek" in model and any(d in note for d in _MTP),
        "anomalous": engine == "vllm"
        and version == "0.12.0",  # prompts come back: 48 x 4000 tokens on two H100 in less than their peak allows
        "precision-unstated": quant is None,
        "layout-doubtful": (number(row, "tp") or 0) > 8 and "column" not in " ".join(split_flags),
    }
    return tuple(name for name, hit in tests.items() if hit)


def _mlperf(
    row: Row, row_id: str, metric: str, measured: float, group: tuple[str, str], argument: str | dict[str, Any]
) -> ServeRequest:
    """An MLPerf row: data set lengths, scenario Offline (all requests at once) or Server (Poisson at its limit)."""
    note = text(row, "note")
    scenario = "offline" if "Offline" in note else "server"
    kwargs = {"model": argument, "gpu": group[1], "gpus": count(row, "gpus", "number of GPUs not stated")}
    return ServeRequest(
        id=row_id,
        source="mlperf",
        metric=metric,
        measured=measured,
        kwargs=kwargs,
        group=group,
        engine="submission stack",
        trust=trust_of(note),
        citation=text(row, "source"),
        facts={"scenario": scenario, "lengths": "MLPerf data set (OpenOrca or mixed)"},
        flags=("precision-unstated",),
    )
