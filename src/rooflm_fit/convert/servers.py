"""What a note says of a server: its command line, its pools, and what it sets itself by what it was told."""

from __future__ import annotations

import re
from typing import Any

from rooflm.catalogue.hardware import Device
from rooflm.catalogue.model import Block, LinearAttention
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_device
from rooflm.readers.engine_releases import numbers
from rooflm_fit.convert.cells import shipped


def note_number(note: str, name: str) -> int | None:
    """The whole number after `name=` in a note, or None.

    >>> note_number("moe_tp=2 moe_ep=4 attn_dp=;", "moe_ep"), note_number("attn_dp=", "attn_dp")
    (4, None)
    """
    match = re.search(rf"\b{name}=(\d{{1,6}})", note)
    return int(match[1]) if match else None


def command_flags(note: str) -> dict[str, str]:
    """Options of the server's command line with their values, where a note prints it."""
    command = re.search(r"\bserver: ([^;]*)", note)
    return dict(re.findall(r"--([\w-]+)[ =]([\w.]+)", command[1])) if command else {}


def server_flags(note: str) -> dict[str, Any]:
    """Limits that the server's command line sets.

    >>> server_flags("server: sglang serve --chunked-prefill-size 131072 --mem-fraction-static 0.80; docs")
    {'budget': 131072, 'static_fraction': 0.8}
    """
    flags = command_flags(note)
    found: dict[str, Any] = {}
    for flag, name, kind in (("chunked-prefill-size", "budget", int), ("mem-fraction-static", "static_fraction", float),
                             ("max-running-requests", "max_sequences", int)):  # fmt: skip
        if re.fullmatch(r"\d+(\.\d+)?", flags.get(flag, "")):
            found[name] = kind(flags[flag])
    return found


_RANKS = re.compile(r"\bdp[-_ ]?att(n|ention)|\batt(n|ention)[-_ ]?(dp\b|data[- ]parallel)", re.I)


def ranks_said(note: str, gpus: float | None, inner: int) -> tuple[int, int]:
    """(ranks of attention in data parallel, those over which experts are spread; 1 where a note says nothing of them).
    Where it says that there are such ranks, but not how many, they are what tensors and stages leave of the GPUs; where
    not how experts are split, all ranks share them, as none has them whole.

    >>> ranks_said("moe_tp=1 moe_ep=8 attn_dp=8", 8, 8), ranks_said("DP-attention, EP8", 8, 1), ranks_said("tp 8", 8, 8)
    ((8, 8), (8, 8), (1, 1))
    >>> ranks_said("server: sglang serve --tp 8 --dp 8 --enable-dp-attention", 8, 8)
    (8, 8)
    """
    flags = command_flags(note)
    told = next((flags[f] for f in ("dp", "dp-size", "data-parallel-size") if flags.get(f, "").isdigit()), "")
    ranks, experts = note_number(note, "attn_dp"), note_number(note, "moe_ep")
    if ranks is not None or not _RANKS.search(note):
        return ranks or 1, experts or 1
    ranks = int(told) if told else max(1, int(gpus or 1) // max(inner, 1))
    named = re.search(r"\bEP[-= ]?(\d{1,3})\b", note)
    return ranks, experts or (int(named[1]) if named else ranks)


def longest_said(note: str) -> dict[str, str]:
    """The longest sequence that a server was started for, for which its decoding graphs are captured.

    >>> longest_said("server: sglang serve --tp 8 --context-length 8192; docs")
    {'engine.graph_length': '8192'}
    """
    flags = command_flags(note)
    said = flags.get("context-length") or flags.get("max-model-len") or ""
    return {"engine.graph_length": said} if said.isdigit() else {}


def deployment_of(note: str) -> dict[str, int]:
    """Replicas of disaggregated runs, from a note.

    A study of ratios on a machine of eight GPUs prints two a server for three ratios of four servers; one and one are
    INFERRED to have four each: one of them decodes for 128 clients in 10.4 ms where three of two GPUs take 10.7.
    """
    pools = {name: note_number(note, f"{kind}_replicas") for name, kind in
             (("prefill_replicas", "prefill"), ("replicas", "decode"))}  # fmt: skip
    found = {k: v for k, v in pools.items() if v}
    if "pd_ratio" in note and set(found.values()) == {1}:
        found["tp"] = 4
    return found


ENDED = 36
"""Mean of the outputs that ended by themselves in a study of pools: 380 of the 500 requests of a run of up to 32,784
tokens came back before its client gave up, with 36 tokens in the mean; the other 24 % wrote on. A share of a quarter to
a third that never ends gives the means that it prints for limits of 128, 2,048 and 32,784 tokens."""
COMPILED, KERNELS = 0.3, 8
"""Seconds that a Triton kernel takes to compile (vllm-project/vllm, pull request 54503: 68 in 20.4 s, 37 in 10.7 s),
and those of a pass with prompts of gpt-oss in SGLang of 2025, whose prefill servers have no graphs: routing (four), two
grouped products, positions, places in the cache. SGLang warms up with four tokens alone."""


def study_cells(note: str) -> dict[str, Any]:
    """What a study of pools does not print in a row: how its outputs end, and what its servers had to compile.

    >>> study_cells("pd_ratio; 2p2d_conc128_in2048_out128_20250922_063604.json")
    {'output_ended': 36, 'cold': 2.4}
    """
    if "pd_ratio" not in note:
        return {}
    began = re.search(r"_out\d+_\d{4}(\d{4}_\d{6})", note)
    first = began is not None and began[1] in shipped("study_runs")["cold"]
    return {"output_ended": ENDED} | ({"cold": COMPILED * KERNELS} if first else {})


GUESSING_SEQUENCES = 48
"""Most requests that SGLang runs when it guesses ahead and no limit was given (server_args.py: "Max running requests is
reset to 48 for speculative decoding")."""


def usual_limits(values: dict[str, Any]) -> dict[str, Any]:
    """Limits that a server sets itself by what else it was told, where its command line gave none."""
    guesses = values.get("engine") == "sglang" and values.get("guesses")
    return {"max_sequences": GUESSING_SEQUENCES} if guesses and not values.get("max_sequences") else {}


def usual_overlap(values: dict[str, Any], note: str, cached: bool = True) -> dict[str, Any]:
    """What says that the host prepares a step while one runs, where SGLang's defaults do not (`Host.waits`): flags of
    the launch, and no cache of prompts with recurrent layers. cached: prompts are kept unless a flag says otherwise.

    >>> run = {"engine": "sglang", "model": "qwen3-next-80b-a3b"}
    >>> usual_overlap(run, ""), usual_overlap(run, "", cached=False)
    ({}, {'prefix_caching': False})
    >>> usual_overlap(run, "--mamba-scheduler-strategy extra_buffer")
    {'sets': {'engine.overlap': 'true'}}
    """
    if values.get("engine") != "sglang" or values.get("prefix_caching") is not None:
        return {}
    ahead = "extra_buffer" in note or (values.get("guesses") and "SPEC_V2=1" in note)
    kept = cached and "disable-radix-cache" not in note and "trtllm_mha" not in note
    apart = {} if kept or not has_states(values.get("model")) else {"prefix_caching": False}
    return apart | ({"sets": {"engine.overlap": "true"}} if ahead else {})


def blocks_of(model: Any) -> tuple[Block, ...]:
    """The blocks of a catalogued model; none where it is unknown."""
    try:
        return load_model(str(model)).blocks
    except RooflmError:
        return ()


def has_states(model: Any) -> bool:
    """Whether a catalogued model has recurrent layers."""
    return any(isinstance(b.mixer, LinearAttention) for b in blocks_of(model))


def has_indexer(model: Any) -> bool:
    """Whether a catalogued model picks the tokens that it attends to."""
    return any(getattr(b.mixer, "index_topk", 0) for b in blocks_of(model))


def has_experts(model: Any) -> bool:
    """False for a catalogued model without experts, whatever degree its row's table has for them.

    >>> has_experts("llama-3.1-8b"), has_experts("qwen3-30b-a3b"), has_experts("nobody")
    (False, True, True)
    """
    blocks = blocks_of(model)
    return not blocks or any(getattr(b.ffn, "experts", 0) for b in blocks)


def card_of(gpu: Any) -> Device | None:
    """A card of the catalogue; None where it is unknown."""
    try:
        return load_device(str(gpu))
    except RooflmError:
        return None


def generation_of(gpu: Any) -> str:
    """The generation of a card's kernels; an empty text where the card is unknown."""
    card = card_of(gpu)
    return card.kernel_generation if card else ""


def on_blackwell(gpu: Any) -> bool:
    """Whether a card has TensorRT-LLM's attention by default in SGLang."""
    return generation_of(gpu) == "blackwell"


def of_amd(gpu: Any) -> bool:
    """Whether a card runs ROCm's images."""
    card = card_of(gpu)
    return card is not None and card.vendor == "amd"


NEWEST = "2026-04"
"""Month from which a run without a release is taken for one of 0.5.10 or later."""
PIECEWISE = (0, 5, 10)
"""Release of SGLang from which graphs of pieces hold passes with prompts unless it turns them off."""
PICTURED = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5", "qwen3.6", "kimi-k2.5", "kimi-k2.6", "glm-4.5v",
            "glm-4.6v", "gemma-4", "mistral-small-3", "ministral-3", "pixtral", "internvl", "ernie-4.5-vl")  # fmt: skip
"""Beginnings of models whose config.json has a vision tower, which the catalogue leaves out (Llama 4 and Gemma 3 run
without theirs unless told: model_config.py, mm_disabled_models)."""
REFUSED = ("qwen3-next", "qwen3-coder-next", "ling-2.5", "ring-2.5", "llada")
"""Models that it names (model_config.py, piecewise_cuda_graph_disabled_model_archs), beside those with an indexer."""
PACKED = ("deepseek", "kimi-k2", "qwen3", "llama-4")
"""Families whose experts of 4 or 8 bits it gives TensorRT-LLM's kernels on Blackwell (server_args.py,
moe_runner_backend auto), inside which tokens are routed."""


def usual_captured(values: dict[str, Any]) -> dict[str, str]:
    """No tokens of a pass with prompts in SGLang's graphs where it turns them off, from 0.5.10 on; else the engine's
    row says how many.

    Source: server_args.py of 0.5.10, _handle_piecewise_cuda_graph (models with towers or an indexer, guesses, attention
    in data parallel, pipelines, servers of prompts alone; moe_runner_backend flashinfer_trtllm).

    >>> run = {"engine": "sglang", "release": "0.5.10.post1", "gpu": "b300-sxm-288gb", "quant": "nvfp4"}
    >>> [usual_captured(run | {"model": m}) for m in ("qwen3.5-397b-a17b", "minimax-m2", "deepseek-v3")]
    [{'engine.captured': '0'}, {}, {'engine.captured': '0'}]
    >>> usual_captured(run | {"model": "glm-5"}), usual_captured(run | {"release": "0.5.9", "model": "minimax-m2"})
    ({'engine.captured': '0'}, {})
    """
    known = numbers(values.get("release") or "")
    late = known >= PIECEWISE if known else not values.get("release") and str(values.get("date") or "") >= NEWEST
    card = card_of(values.get("gpu"))
    if values.get("engine") != "sglang" or not late or card is None or not blocks_of(values.get("model")):
        return {}
    if card.software:  # no such graphs on other makers' cards, as their rows say
        return {}
    return {"engine.captured": "0"} if turned_off(values) else {}


def turned_off(values: dict[str, Any]) -> bool:
    """Whether SGLang turns its graphs of pieces off by itself (`usual_captured`)."""
    model, quant = str(values["model"]), str(values.get("quant"))
    packed = model.startswith(PACKED) and on_blackwell(values["gpu"]) and not quant.startswith(("bf16", "fp16"))
    return (
        has_indexer(model)
        or (packed and has_experts(model))
        or any(int(values.get(name) or 1) > 1 for name in ("dp", "pp"))
        or model.startswith(PICTURED + REFUSED)
        or bool(values.get("guesses") or values.get("prefill_replicas"))
    )


WHOLE = ("gemma-2", "gemma-3")
"""Models whose layers with a window keep the whole cache in SGLang (server_args.py, disable_hybrid_swa_memory)."""
WINDOWS = (0, 5, 9)
"""Release from which those of gpt-oss keep less, but with TensorRT-LLM's attention (Blackwell)."""


def usual_windows(values: dict[str, Any]) -> dict[str, str]:
    """Where SGLang's layers with a window keep as much as the others.

    >>> run = {"engine": "sglang", "model": "gpt-oss-120b", "gpu": "h200-sxm-141gb"}
    >>> [usual_windows(run | {"release": r}) for r in ("0.5.7", "0.5.9")]
    [{'engine.window_kept': '1'}, {}]
    """
    model, known = str(values.get("model") or ""), numbers(values.get("release") or "")
    early = known < WINDOWS if known else str(values.get("date") or "") < NEWEST
    small = model.startswith("gpt-oss") and (early or on_blackwell(values.get("gpu")))
    whole = values.get("engine") == "sglang" and (small or model.startswith(WHOLE))
    return {"engine.window_kept": "1"} if whole else {}


def without_aiter(note: str) -> dict[str, str]:
    """What differs on AMD where a server's command line turns aiter off: attention is Triton's, which launches no
    blocks beyond a sequence (SGLang 0.5.7, server_args.py: attention_backend).

    >>> without_aiter("server: SGLANG_USE_AITER=0 python -m sglang.launch_server --tp 8"), without_aiter("server: x")
    ({'engine.empty_block': '0'}, {})
    """
    return {"engine.empty_block": "0"} if "SGLANG_USE_AITER=0" in note else {}


LIBRARIES = ("triton",)
"""What a server may be told to run its attention with, of which kernels were measured apart (`engine.attention`)."""


def attention_said(note: str) -> dict[str, str]:
    """The library of attention that a server's command line asks for, where its kernels were measured apart.

    >>> attention_said("server: sglang serve --attention-backend triton --tp 1; docs"), attention_said("triton")
    ({'engine.attention': 'triton'}, {})
    """
    flags = command_flags(note)
    told = flags.get("decode-attention-backend", flags.get("attention-backend", ""))
    return {"engine.attention": told} if told in LIBRARIES else {}


NAMED = ("deepseek", "kimi", "qwen3", "nemotron", "gpt-oss", "minimax-m3")
"""Families for which SGLang may take other kernels than Triton's for experts in 16 bits (server_args.py,
moe_runner_backend auto: flashinfer_trtllm on Blackwell, flashinfer_cutlass of Nemotron-H elsewhere)."""


def usual_experts(values: dict[str, Any], note: str) -> dict[str, str]:
    """The library of experts in 16 bits that SGLang takes by itself, where its command line is printed and asks for
    none. AMD's images turn aiter on (SGLANG_USE_AITER=1 of docker/rocm.Dockerfile), which has its own (unquant.py).

    >>> run = {"engine": "sglang", "quant": "bf16", "model": "glm-4.7-flash"}
    >>> [usual_experts(run | {"quant": q}, "server: sglang serve --tp 1") for q in ("bf16", "fp8")]
    [{'engine.experts': 'triton'}, {}]
    >>> usual_experts(run | {"gpu": "mi300x"}, "server: sglang serve --tp 1")
    {}
    """
    told = "server: " not in note or "moe-runner-backend" in command_flags(note)
    told = told or (of_amd(values.get("gpu")) and not without_aiter(note))
    wide = str(values.get("quant")).startswith(("bf16", "fp16")) and not str(values.get("model")).startswith(NAMED)
    return {"engine.experts": "triton"} if values.get("engine") == "sglang" and wide and not told else {}


def experts_said(note: str, model: str) -> dict[str, str]:
    """The library that ran the products of experts, where a note names it (of gpt-oss it is another on each card).

    >>> experts_said("MoE CUTLASS (Hopper gpt-oss: TRITON)", "qwen3-30b-a3b")
    {'engine.experts': 'cutlass'}
    """
    told = re.search(r"\bMoE (CUTLASS|TRTLLM)\b", note)
    return {"engine.experts": told[1].lower()} if told and not model.startswith("gpt-oss") else {}


SLOW_TEXT = (0, 5, 12)
"""Release of SGLang from which the tokeniser of Kimi-K2 and its successors, which has no fast class, decodes without
the library's Python path (pull request 25309, May 2026: 727 ms for 80,000 tokens before, 2 ms after)."""


def slow_text(values: dict[str, Any], model: str) -> bool:
    """True where one process of the server makes text of tokens more slowly than the GPUs make tokens.

    SGLang's cookbook, Kimi-K2.5 on eight H200: 16 and 100 clients get 258 and 254 tokens/s, at most 1,103 and 1,199 in
    a second. INFERRED: no page says what the server waited for.

    >>> run = {"engine": "sglang", "release": "0.5.9"}
    >>> slow_text(run, "moonshotai/Kimi-K2.5"), slow_text(run | {"release": "0.5.12"}, "moonshotai/Kimi-K2.5")
    (True, False)
    """
    return (
        values.get("engine") == "sglang"
        and "Kimi-K2" in model
        and () < numbers(values.get("release") or "") < SLOW_TEXT
    )
