"""Rows measured under load -> cells. Their table's traps are undone or doubted here (tp column, releases), and what the
scripts of a campaign set (recipes.toml) becomes cells of its rows, under the conditions that they state."""

from __future__ import annotations

import itertools
import math
import re
from functools import lru_cache
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.engine_releases import numbers
from rooflm.readers.released import find
from rooflm.readers.schemes import parse_quant
from rooflm_fit.convert import bench, names
from rooflm_fit.convert.about import engine_cells, gpu_cells, model_cells, origin, printed, split_cells
from rooflm_fit.convert.cells import Cells, Row, Unusable, cells_of, doubts_said, number, shipped, text
from rooflm_fit.convert.inference import PLAIN, measured_of, quant_of
from rooflm_fit.convert.repeats import ALONE, earlier_prompts, from_pool, sent_before
from rooflm_fit.convert.servers import (
    attention_said,
    card_of,
    deployment_of,
    experts_said,
    generation_of,
    has_experts,
    has_indexer,
    longest_said,
    note_number,
    of_amd,
    on_blackwell,
    ranks_said,
    server_flags,
    slow_text,
    study_cells,
    usual_captured,
    usual_experts,
    usual_limits,
    usual_overlap,
    usual_windows,
    without_aiter,
)

CAMPAIGN = "aic"
"""Source of the rows that recipes.toml is about."""
UNDER_LOAD = (CAMPAIGN, "trtserve", "trtllm17", "trtllm10", "mlperf", "nim")
"""Sources all of whose rows were measured so."""
SET = ("all_reduce", "captured", "copied", "deliver", "empty_block", "experts", "free_fraction", "graph_length",
       "graphs", "memory_fraction", "overlap", "picked_on", "reduce_bits", "reduce_norm", "scan_chain", "stream",
       "untuned", "wide_routers")  # fmt: skip
"""What recipes set of the engine, not of its server."""
OF_RUNS = ("acceptance", "cluster.launching", "dp", "ep", "guesses", "image", "prefill_dp", "prefill_ep",
           "prefill_replicas", "prefill_tp", "prompt", "replicas", "scheme", "slots", "split", "tp")  # fmt: skip
"""What recipes set that is no launch option but what ran."""
OF_CARDS = ("all_reduce", "cache", "empty_block", "experts", "picked_on", "receive_interval", "reduce_bits",
            "reduce_norm", "untuned", "wide_routers")  # fmt: skip
"""Options that scripts choose by the card's generation and the type of weights."""
WINDOWLESS = ("trtllm10", "trtllm17")
"""Sources whose engines keep and read the whole cache of a model with a sliding window (max_attention_window_size is
the longest sequence unless given: TensorRT-LLM documentation, "KV cache config"); such a model runs as one without."""
IN_HOUSE = "_epnone"
"""What the names of AIConfigurator's own runs hold, whatever their release: its client sends lengths that do not vary,
its generator writes the limits of the server, and the same 100 prompts come back, which vLLM's prefix cache keeps."""
_BLOCK = ("deepseek", "qwen3", "glm-5", "minimax")
"""Models whose makers' fp8 checkpoints scale by blocks of 128 x 128 (weight_block_size in their config.json; Qwen3-32B
in fp8 on H100 takes 73 us a prompt token in TensorRT-LLM 1.0.0rc3, with blocks 67, with one scale a tensor 45)."""
_TENSOR = "nvidia/"
"""Whose fp8 checkpoints have one scale a tensor, whatever the model (ModelOpt)."""
_MTP = re.compile(r"2026[_-](01[_-]14|02[_-]0[56])")
"""Days on which InferenceX' speculative runs of DeepSeek in TensorRT-LLM began (pull requests 392, 632 and 642), in
notes whose release or configuration does not tell them from plain ones (recipes.toml)."""
_LOADED = re.compile(
    r"online serving|MLPerf Inference|aiconfigurator|\bNIM\b|QPS ?=|closed loop|batch = concurrency|max(imum)? load"
    r"|max[-_ ]concurrency|request[-_ ]rate|requests? per second|\bconcurren(t|cy) \d|\bconcurrent (users|requests)"
    r"|\bserve(r|d)? (at|under)\b|bench(mark)?_serving|bench serve|genai-perf|aiperf|trtllm-bench",
    re.I,
)
"""What sources, notes and engines say of runs under load."""
_MOST = re.compile(r"max(imum)? load|offline|MLPerf|all requests|saturat|queued", re.I)
"""What they say of a server that has as much to do as it can take."""
TIMED = ("ttft", "tpot", "itl", "latency", "decode")
"""Beginnings of metrics that a table without clients or rate gives of a request alone; rates of tokens are of all that
a server can do."""
_STATIC = re.compile(
    r"\bstatic batch|(in-flight|continuous) batching off|fixed (batch|decode)|gptSessionBenchmark", re.I
)
"""What they say of a batch that starts and ends together."""
_FIXED = ("decode_tok_s", "prefill_tok_s", "memory_gb", "oom")
"""Metrics that runs under load do not have."""
SERVERS = {"vllm": (0, 6), "sglang": (0, 4), "trtllm": (0, 20)}
"""Engine -> first release whose users measure a server with clients, where a row gives times or rates of tokens and no
more: the benchmarks of earlier ones run a batch at a time."""
ROLLING = ("nightly", "main", "latest")
"""Releases that are the newest of their day."""


def engine_of(row: Row) -> tuple[str, str]:
    """Engine and release of a row, however a table spells them; two empty texts where the engine is not known.

    >>> engine_of({"engine": "vLLM nightly-5b8c30d62b754b57"}), engine_of({"engine": "trtllm "}), engine_of({})
    (('vllm', 'nightly'), ('trtllm', ''), ('', ''))
    """
    try:
        return names.engine(text(row, "engine"))
    except Unusable:
        return "", ""


def of_server(row: Row) -> bool:
    """True for times and rates of tokens by a release that is a server, of which a row says no more.

    >>> row = {"engine": "vllm 0.11.0", "metric": "ttft_ms", "batch": "64"}
    >>> of_server(row), of_server(row | {"engine": "vLLM"}), of_server(row | {"metric": "latency_s"})
    (True, False, False)
    >>> of_server(row | {"engine": "SGLang nightly", "metric": "throughput_out_tok_s"})
    True
    """
    engine, release = engine_of(row)
    known = engine in SERVERS and (release in ROLLING or numbers(release) >= SERVERS[engine])
    return known and not measured_of(row)["metric"].startswith("latency")


def is_serving(row: Row, source: str = "") -> bool:
    """True for rows that were measured under load: as they say, a server's, the largest batch of whatever engine is not
    known (a known one's, without a server's release, runs at once: "static"), and no batch of an engine that serves.

    >>> is_serving({"source": "TensorRT-LLM docs v0.9.0"}), is_serving({"engine": "NIM 1.8", "metric": "ttft_ms"})
    (False, True)
    >>> is_serving({"note": "vllm bench serve, request rate 4/s", "metric": "ttft_ms"}), is_serving({"batch": "max"})
    (True, True)
    >>> is_serving({"batch": "max", "note": "in-flight batching off"})
    False
    """
    said = " | ".join(text(row, name) for name in ("source", "note", "engine"))
    if source.lower() in UNDER_LOAD:
        return True
    if text(row, "metric") in _FIXED or (_STATIC.search(said) and not _LOADED.search(said)):
        return False
    engine, batch = engine_of(row)[0], text(row, "batch")
    all_at_once = (batch == "max" and not engine) or (not batch and engine in SERVERS)
    return bool(_LOADED.search(said)) or all_at_once or of_server(row)


def campaign_split(row: Row) -> tuple[dict[str, int], str]:
    """(gpus, tp, pp, dp, ep; doubt) of a row of the campaign whose columns hold products.

    TensorRT-LLM's runs of InferenceX without a release are older than its experts' column: their scripts set
    ep_size = tp (dsr1_fp8_h200_trt_slurm.sh and gptoss_fp4_h200_trt_slurm.sh before they took EP_SIZE), and attention
    in data parallel for DeepSeek above 32 clients with prompts of 8192, above 64 else. So do SGLang's of DeepSeek in
    nvfp4 on B200 (dsr1_fp4_b200_docker.sh of October 2025: --enable-ep-moe). InferenceX' script for Kimi-K2.5
    (kimik2.5_fp4_b200.sh, in every version found) never enables expert parallelism, whatever the column says (that of
    MI355X does). Where the
    note says moe_tp = moe_ep > 1 the tp column holds their product; the run's id (`_tp8_ep8_`) holds the real degree,
    else it is moe_tp (16, 4, 64 stand for 4, 2, 8). Where the id's tp or moe_tp x moe_ep exceeds the column, the column
    is too low (Qwen3-235B). attn_dp > 1: attention is replicated on every GPU; a degree of n is filed as n or n^2 there
    and as 1, n or n^2 in the others (the campaign's machines have eight GPUs, and dp-attn with tp n is n ranks).
    Of vLLM's runs it is the experts' degree: those with attn_dp = 4 and n clients a rank are, to the last digit, runs
    that another dump prints with 4 n clients, tp 4 and ep 4 (Kimi-K2.5 on B200); which had ranks recipes.toml says.
    """
    note = text(row, "note")
    engine, release = engine_of(row)
    moe_tp, moe_ep = note_number(note, "moe_tp") or 1, note_number(note, "moe_ep") or 1
    attn_dp = note_number(note, "attn_dp") or 1
    named = re.search(r"_tp(\d{1,6})_", note + "_")
    undone = False
    if not text(row, "tp") and not named:
        raise Unusable("split over GPUs not stated")
    column = int(number(row, "tp") or 0)
    tp = int(named[1]) if named else column
    if "MiniMax" in text(row, "model") and tp == 8 and moe_tp == 8 and "fp8" in text(row, "precision_weights"):
        moe_tp, moe_ep = 1, 8  # vLLM keeps experts whole where 1536 / tp is no multiple of the weight block, 128
    amd = of_amd(gpu_cells(text(row, "gpu"), CAMPAIGN)[0])
    if engine == "vllm" and "Kimi" in text(row, "model") and not amd:
        moe_tp, moe_ep = tp, 1
    elif (
        (engine, release) == ("trtllm", "") and re.search(r"DeepSeek|gpt-oss", text(row, "model")) and "_h200_" in note
    ):
        moe_tp, moe_ep = 1, tp
        clients = 32 if number(row, "input_len") == 8192 else 64
        if "DeepSeek" in text(row, "model") and (number(row, "batch") or 0) > clients:
            tp, attn_dp = 1, tp
    elif (engine, release) == ("sglang", "") and re.search(
        r"deepseek_r1_b200\w*_sglang_fp4|dsr1_b200_sglang_fp4", note
    ):
        moe_tp, moe_ep = 1, tp
    elif moe_tp == moe_ep > 1:
        if not named:
            tp = moe_tp
        moe_tp, moe_ep = (1, tp) if moe_ep >= tp else (tp // moe_ep, moe_ep)
        undone = True
    elif moe_tp * moe_ep > tp * attn_dp:
        tp = moe_tp * moe_ep // attn_dp
        undone = True
    if tp < 1:
        raise Unusable("split over GPUs not stated")
    told = note_number(note, "attn_dp") or 1
    if told > 1 and engine == "vllm":
        tp, attn_dp, moe_ep = told, 1, told
    elif told > 1:
        both = note_number(note, "moe_ep") or 1
        tp, attn_dp = 1, min(told, both) if both > 1 else told
        spread = both > 1 or (note_number(note, "moe_tp") or 1) > 1  # cut over all ranks: none has them whole
        moe_ep = attn_dp if spread else 1
    pp = int(number(row, "pp") or 1)
    doubt = "" if undone or column <= 8 else "split over GPUs in doubt"
    return {"gpus": tp * pp * attn_dp, "tp": tp, "pp": pp, "dp": attn_dp, "ep": moe_ep}, doubt


def plain_split(row: Row, devices: int = 1) -> dict[str, Any]:
    """gpus, tp, pp, dp and ep as a row prints them; attention data parallel and experts from its note. devices: what
    software sees of one printed GPU, over which it cuts tensors.

    >>> plain_split({"gpus": "2", "tp": "2", "pp": "1"}, devices=2)["tp"], plain_split({"gpus": "2"}, devices=2)
    (4, {'gpus': 4})
    """
    note, found = text(row, "note"), split_cells(row, devices)
    gpus = found.pop("gpus", None)
    stages = found.get("pp", 1) if text(row, "pp") else 1
    attn_dp, moe_ep = ranks_said(note, gpus, found.get("tp", 1) * stages)
    found |= {"pp": stages} if attn_dp > 1 else {}
    if "MoE with attention DP" in note and found.get("tp", 1) > 1:  # INFERRED: experts spread over the same GPUs
        return {"tp": 1, "pp": found.get("pp", 1), "dp": found["tp"], "ep": found["tp"]}
    inner = found.get("tp", 0) * found.get("pp", 1)
    if not inner:
        return {"gpus": gpus} | ({"dp": attn_dp, "ep": moe_ep} if attn_dp > 1 else {})
    if attn_dp > 1 and gpus and inner * attn_dp > gpus >= attn_dp:
        found["tp"] = max(1, int(gpus) // (found.get("pp", 1) * attn_dp))
    if attn_dp > 1 and moe_ep == 1 < (note_number(note, "moe_tp") or 1):  # cut over all ranks: none has them whole
        moe_ep = attn_dp
    beside = {"gpus": gpus} if gpus and gpus > inner * attn_dp else {}  # as many copies, or pools
    return {**beside, **found, "dp": attn_dp, "ep": moe_ep}


QUARK = "w4a4g32"
"""Weights and activations of the 4-bit checkpoints that AMD's cards run (w_mxfp4_a_mxfp4 of AMD Quark); of those with
experts attention stays wide (huggingface.co/amd/DeepSeek-R1-0528-MXFP4-Preview and MiniMax-M2.5-MXFP4, exclude_layers:
"*self_attn*")."""


def quant_under_load(row: Row, source: str, model: str) -> str | None:
    """The scheme of weights and activations with that of the cache where it is printed; None when not stated. A
    checkpoint that is known to be quantised runs so, whatever type a table took it for."""
    cell = names.precision(text(row, "precision_weights")).replace("_", "-")
    kv = {"fp8": "kv8", "int8": "kv8"}.get(text(row, "precision_kv").lower(), "")
    released = find(text(row, "model"))
    if released and released.quant and cell in ("bf16", "fp16"):
        return released.quant
    own = stored(text(row, "model")) if cell in ("int4", "int4-wo") else ""
    if own:
        return f"{own}-{kv}" if kv and "kv" not in own else own
    if not cell:
        return None
    if cell in PLAIN or cell in ("fp8", "bf16", "fp16"):
        scheme = PLAIN.get(cell, cell)
        if model.startswith("gpt-oss") and "bf16" not in text(row, "model").lower():
            scheme = "mxfp4"  # the checkpoint's own type; the table files every 4-bit type under one name, or what runs
        elif scheme in ("nvfp4", "mxfp4") and of_amd(gpu_cells(text(row, "gpu"), source)[0]):
            scheme = QUARK + ("-ffn" if has_experts(model) else "")
        return (scheme if text(row, "model").startswith(_TENSOR) else own_blocks(scheme, model)) + kv
    quant = str(quant_of(row)["quant"])
    return quant if text(row, "precision_kv") or "kv" in cell else quant.removesuffix("kv16")


def stored(name: str) -> str:
    """The scheme of a released checkpoint whose weights alone are stored in 4 bits, which says what parts stay wide
    (an empty text: any other, or unknown).

    >>> stored("moonshotai/Kimi-K2.5"), stored("deepseek-ai/DeepSeek-V3"), stored("nobody/nothing")
    ('w4a16g32-experts', '', '')
    """
    try:
        quant = load_model(name).quant
    except RooflmError:
        return ""
    scheme = parse_quant(quant) if quant else None
    return quant if scheme and (scheme.weight_bits, scheme.act_bits) == (4, 16) else ""


def own_blocks(quant: str, model: str) -> str:
    """The scheme, by blocks where the table says fp8 of a model whose fp8 checkpoint is scaled so.

    >>> own_blocks("fp8", "deepseek-v3"), own_blocks("fp8", "llama-3.1-70b"), own_blocks("fp8", "kimi-k2")
    ('fp8-block', 'fp8', 'fp8-block')
    """
    try:
        block = model.startswith(_BLOCK) or load_model(model).quant.startswith("fp8-block")
    except RooflmError:
        block = False
    return re.sub(r"^fp8(?!-)", "fp8-block", quant) if block else quant


def usual_cache(quant: str, engine: str, sparse: bool = False) -> str:
    """The scheme with the type of cache that a quantised checkpoint brings: fp8 with ModelOpt's in TensorRT-LLM and
    vLLM (kv_cache_quant_algo of its hf_quant_config.json), 16 bits in SGLang unless told otherwise, and with Quark's.
    sparse: attention with an indexer on Blackwell, whose cache is of fp8 in SGLang (server_args.py, kv_cache_dtype).

    >>> usual_cache("fp8", "trtllm"), usual_cache("fp8", "sglang"), usual_cache("bf16", "vllm")
    ('fp8kv8', 'fp8', 'bf16')
    >>> usual_cache("w4a4g32-ffn", "vllm")
    'w4a4g32-ffnkv16'
    """
    if quant.startswith(QUARK) and "kv" not in quant:
        return quant + "kv16"
    narrow = sparse if engine == "sglang" else quant.startswith(("fp8", "nvfp4"))
    return quant + ("kv8" if narrow and "kv" not in quant else "")


@lru_cache
def recipes() -> list[dict[str, Any]]:
    """recipes.toml: options of published benchmark campaigns, from their scripts, each under its conditions."""
    every = [(row, one) for row in shipped("recipes")["recipe"] for one in row.get("each", [row])]
    return [{"when": row["when"] | one["when"], "set": one["set"], "source": row["source"]} for row, one in every]


def dated(note: str) -> str:
    """The first day that a note names (of a run, of the dump that holds it); an empty text where it names none.

    >>> dated("run 2026_04_06_deepseek_r1; db-dump 2026-04-27"), dated("trust=B")
    ('2026-04-06', '')
    """
    return min(re.findall(r"(?<!\d)20\d\d-\d\d-\d\d(?!\d)", note.replace("_", "-")), default="")


def fits(recipe: dict[str, Any], values: dict[str, Any], model: str, scheme: str, facts: dict[str, int]) -> bool:
    """True where a row meets every condition of a recipe: lists are of what is allowed, least and most are bounds.
    Recipes are of one campaign's rows unless they name their sources, and not of its own (in_house) unless they say.

    >>> asked = {"when": {"engine": ["trtllm"]}}
    >>> [fits(asked, {"engine": "trtllm"}, "llama-3.1-8b", "bf16", {"in_house": own}) for own in (0, 1)]
    [True, False]
    """
    when = {"sources": [CAMPAIGN], "in_house": [0], **recipe["when"]}
    either = when.pop("any", [])
    if either and not any(fits({"when": {**when, **one}}, values, model, scheme, facts) for one in either):
        return False
    if values.get("source", CAMPAIGN) not in when["sources"]:
        return False
    said = {"engine": values.get("engine", ""), "release": values.get("release", ""), "model": model,
            "gpu": values.get("gpu", ""), "weights": scheme, "generation": generation_of(values.get("gpu")),
            "lengths": f"{values.get('prompt')}x{values.get('output')}"}  # fmt: skip
    named = {"clients": "concurrency", **{name: name for name in ("prompt", "tp", "dp", "ep", "guesses")}}
    numbers = {name: values.get(cell) for name, cell in named.items()} | {"in_house": 0} | facts
    for name, allowed in when.items():
        if name == "sources":
            continue
        if name == "until":
            if not "" < dated(values.get("note", "")) <= allowed:
                return False
            continue
        kind, _, bound = name.partition("_")
        if bound in ("least", "most"):
            value = numbers.get(kind)
            if not isinstance(value, int) or (value < allowed if bound == "least" else value > allowed):
                return False
        elif (numbers.get(name) if name in numbers else said.get(name)) not in allowed:
            return False
    return True


def amount(given: Any, values: dict[str, Any]) -> Any:
    """A number of a recipe: itself, or a sum of clients, prompt, output (each times a number) and whole numbers (None
    where the row does not say one of them).

    >>> amount("2 prompt + 64", {"prompt": 1024}), amount(0.8, {}), amount("continuous", {})
    (2112, 0.8, 'continuous')
    >>> amount("clients", {"concurrency": "max"})
    >>> amount("5.03 prompt", {"prompt": 8192})
    41206
    """
    if not isinstance(given, str):
        return given
    known = {"clients": values.get("concurrency"), "prompt": values.get("prompt"), "output": values.get("output")}
    total = 0
    for term in given.split(" + "):
        times, _, name = term.rpartition(" ")
        if term.isdigit():
            total += int(term)
        elif name not in known:
            return given
        elif isinstance(known[name], int):
            total += round(float(times or 1) * int(known[name]))  # type: ignore[arg-type]
        else:
            return None
    return total


@lru_cache
def scripts() -> tuple[tuple[str, str, str, str], ...]:
    """(engine, model, card, weights) of the campaign's scripts, as recipes name them; weights "" where of any."""
    whens = [r["when"] for r in recipes() if not r["set"].keys() <= {*OF_RUNS}]
    mine = [w for w in whens if "model" in w and "gpu" in w and CAMPAIGN in w.get("sources", [CAMPAIGN])]
    each = (itertools.product(w.get("engine", [""]), w["model"], w["gpu"], w.get("weights", [""])) for w in mine)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(each)))


def bits_of(scheme: str) -> float:
    """Bits of weights; 16 where the scheme is not known.

    >>> bits_of("nvfp4-ffn-kv8"), bits_of("fp8-block"), bits_of("")
    (4.0, 8.0, 16.0)
    """
    try:
        return float(parse_quant(scheme).weight_bits)
    except RooflmError:
        return 16.0


def nearest(engine: str, model: str, gpu: str, scheme: str) -> tuple[str, str]:
    """(card, weights) of the script that a run which has none is likest to: of its engine and model, on a card of the
    same maker, if possible of its generation, then with weights as wide, then on the card itself. Two empty texts where
    the run has a script of its own, or its model none.

    >>> [nearest("sglang", "deepseek-v3", gpu, "nvfp4") for gpu in ("gb300", "b200-sxm-180gb")]
    [('b200-sxm-180gb', 'nvfp4'), ('', '')]
    >>> [nearest("vllm", model, "b300-sxm-288gb", "mxfp4") for model in ("gpt-oss-120b", "qwen3-32b")]
    [('b200-sxm-180gb', 'mxfp4'), ('', '')]
    """
    found = [(g, w or scheme) for e, m, g, w in scripts() if (e, m) == (engine, model) and of_amd(g) == of_amd(gpu)]
    if not card_of(gpu) or (gpu, scheme) in found:
        return "", ""

    def distance(script: tuple[str, str]) -> tuple[bool, float, bool]:
        card, weights = script
        apart = abs(math.log2(bits_of(weights) / bits_of(scheme)))
        return generation_of(card) != generation_of(gpu), apart, card != gpu

    return min(found, key=distance, default=("", ""))


def of_recipes(values: dict[str, Any], model: str, scheme: str, facts: dict[str, int]) -> dict[str, Any]:
    """What every recipe whose conditions hold sets, later ones over earlier ones."""
    found: dict[str, Any] = {}
    for recipe in recipes():
        if fits(recipe, values | {"guesses": found.get("guesses")}, model, scheme, facts):
            found |= {k: amount(v, values) for k, v in recipe["set"].items()}
    return found


def campaign_options(values: dict[str, Any], model: str, scheme: str, facts: dict[str, int]) -> dict[str, Any]:
    """What the scripts of a row's campaign set, as cells (with the cache's type under "cache"). A run that no script is
    of has what the nearest of its model sets, but for what scripts choose by card or weights where these differ, and
    the row says whose (docs/decisions/0341). A limit on running sequences below the run's clients is of another form of
    the script (INFERRED: campaigns sweep the clients up to it; of 2,034 rows with a limit none goes beyond)."""
    found = of_recipes(values, model, scheme, facts)
    gpu = str(values.get("gpu") or "")
    campaign = values.get("source", CAMPAIGN) == CAMPAIGN and not facts.get("in_house")
    card, weights = nearest(str(values.get("engine")), model, gpu, scheme) if campaign else ("", "")
    if card:
        alike = generation_of(card) == generation_of(gpu) and bits_of(weights) == bits_of(scheme)
        lent = of_recipes(values | {"gpu": card}, model, weights, facts)
        found |= {
            k: v for k, v in lent.items() if k not in (*OF_RUNS, "max_sequences") and (alike or k not in OF_CARDS)
        }
        found["stand_in"] = f"launch options: the campaign's script for {model} in {weights} on {card}"
    clients, limit = values.get("concurrency"), found.get("max_sequences")
    if isinstance(clients, int) and limit and clients > limit * int(values.get("dp") or 1):
        del found["max_sequences"]
    return {k: v for k, v in found.items() if v is not None}


def split_by_config(values: dict[str, Any], split: str) -> dict[str, Any]:
    """Cells of a split that the table has no column for: "experts" spread over the tensor group, or over "ranks" of
    attention in data parallel, as many as tensors.

    >>> split_by_config({"tp": 4, "ep": 1}, "experts"), split_by_config({"tp": 4, "ep": 4}, "ranks")
    ({'ep': 4}, {'tp': 1, 'dp': 4, 'ep': 4})
    """
    tp = values.get("tp")
    return {"experts": {"ep": tp}, "ranks": {"tp": 1, "dp": tp, "ep": tp}}.get(split, {})


def clients_of(row: Row) -> float | None:
    """Clients of a run: the batch; the note's where that is of each rank of attention, or the row has none.

    >>> note = "concurrency 32 differs from batch_size; moe_tp=1 moe_ep=16 attn_dp=4"
    >>> clients_of({"batch": "8", "note": note}), clients_of({"batch": "56", "note": "concurrency 448 differs from"})
    (32.0, 56.0)
    >>> clients_of({"note": "bench_serving --max-concurrency 16"}), clients_of({"note": "closed loop, 8 users"})
    (16.0, 8.0)
    """
    note, batch = text(row, "note"), number(row, "batch")
    told = note_number(re.sub(r"concurrency[= ]+", "concurrency=", note), "concurrency")
    users = re.search(r"\b(\d{1,6}) (?:concurrent )?(?:clients|users)\b", note)
    if not text(row, "batch"):
        return float(told) if told else float(users[1]) if users else None
    spread = (note_number(note, "attn_dp") or 1) > 1
    return float(told) if told and spread else batch


def slots_of(model: str, slots: int) -> dict[str, int]:
    """The setting of as many experts as a server has slots for, where some stand in several of them.

    >>> slots_of("deepseek-r1", 288), slots_of("deepseek-r1", 0)
    ({'model.blocks.1.ffn.experts': 288}, {})
    """
    held = [i for i, block in enumerate(load_model(model).blocks) if hasattr(block.ffn, "experts")] if slots else []
    return {f"model.blocks.{i}.ffn.experts": slots for i in held}


def load_of(row: Row, source: str) -> dict[str, Any]:
    """concurrency, rate, requests and spread of a row."""
    note = text(row, "note")
    found: dict[str, Any] = {}
    rate = re.search(r"(?:QPS ?=|request[-_ ]rate[ =]+)(\d+(?:\.\d+)?|INF)", note, re.IGNORECASE)
    requests = re.search(r"(?<![-\d])(\d+) requests", note)
    if requests:
        found["requests"] = int(requests[1])
    clients = clients_of(row)
    if rate and rate[1].upper() != "INF":
        found["rate"] = float(rate[1])
    elif clients and clients >= 1 and not rate:
        found["concurrency"] = int(clients)
    else:
        alone = not clients and not rate and text(row, "metric").lower().startswith(TIMED)
        found["concurrency"] = 1 if alone and not _MOST.search(f"{text(row, 'source')} | {note}") else "max"
    if "drawn uniformly up to" in note:  # from 1 to the nominal length; the columns hold the means
        found["spread"] = (0.01, 1.99)
    early = re.search(r"outputs may end early \(mean output \d+ of (\d+)\)", note)
    if early and int(early[1]) >= (number(row, "output_len") or 0):
        found["output_limit"] = int(early[1])
    if source == CAMPAIGN:
        found.pop("requests", None)
    return found


def doubts_of(row: Row, source: str, values: dict[str, Any], quant: str | None) -> list[str]:
    """What makes a row of a source suspect."""
    note, model = text(row, "note"), text(row, "model")
    tests = {
        "multi-token prediction suspected, not stated": values.get("engine") == "trtllm"
        and "DeepSeek" in model and bool(_MTP.search(note)) and not values.get("guesses"),
        "precision not stated": quant is None,
        "speculative decoding, its acceptance not stated": ("SPECULATIVE" in note or values.get("guesses"))
        and not values.get("accepted"),
        "earlier runs' prompts are in the prefix cache": sent_before(note, values.get("concurrency"))
        and values["metric"].startswith("ttft" if ALONE in note else ("ttft", "output_tokens")),
        "tokens leave as fast as Python turns them into text": slow_text(values, model),
    }  # fmt: skip
    told = {"source": source, "engine": values.get("engine"), "metric": values["metric"]}
    return [*doubts_said("serve", {**row, **told}), *(doubt for doubt, hit in tests.items() if hit)]


POOLED = "first tokens behind Dynamo, which hands them on with what decodes and in chunks of 20"
"""What sets first tokens of its pools apart (gen_yaml.py: stream_interval 20 of generation servers): with 1,024 tokens
and few clients they come 60 to 130 ms later than from a server of prompts."""


def split_under_load(row: Row, source: str) -> tuple[dict[str, Any], str]:
    """(gpus, tp, pp, dp, ep; doubt); nothing where the row does not say."""
    try:
        if source == CAMPAIGN:
            return campaign_split(row)
        return plain_split(row, names.devices(text(row, "gpu"), source)), ""
    except Unusable as why:
        return printed(row, ("gpus",)), str(why)


def lengths_under_load(row: Row, values: dict[str, Any]) -> dict[str, Any]:
    """Tokens of prompt and output, and those of a prompt that the cache holds already."""
    note, lengths = text(row, "note"), printed(row, ("input_len", "output_len"))
    prompt = lengths.get("input_len")
    again = sent_before(note, values.get("concurrency"))
    cached = prompt if again else earlier_prompts(note, prompt, values.get("requests"))
    told = {"prompt": prompt, "output": lengths.get("output_len")}
    if IN_HOUSE in note:
        return told | {"shared_prefix": from_pool(prompt, values.get("concurrency"), values.get("release", "")) or None}
    return told | {"cached": min(cached, prompt - 1) if prompt and cached else None}


def campaign_facts(row: Row, values: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """What the campaign's notes say of experts, attention and whose run it was (in_house: 1, else 0); and the spread of
    its lengths, but where they were fixed (its own servers, and Qwen3-32B in SGLang 0.5.1)."""
    note = text(row, "note")
    facts = {k: v for k in ("moe_ep", "moe_tp", "attn_dp") if (v := note_number(note, k)) is not None}
    facts["in_house"] = int(IN_HOUSE in note)
    release = values.get("release", "")
    early = values["engine"] == "sglang" and bool(re.match(r"0\.5\.1(?!\d)", release))
    fixed = IN_HOUSE in note or (early and "Qwen3-32B" in text(row, "model"))
    return facts, {} if fixed else {"spread": (0.8, 1)}


def tidy_serving(row: Row, prefix: str) -> Cells:
    """The cells of one row measured under load."""
    source, note = prefix.lower(), text(row, "note")
    model, of_model = model_cells(text(row, "model"), number(row, "params_b"))
    if source in WINDOWLESS and of_model.get("model") == "mistral-7b":
        of_model = {"model": "mistral-7b-v0.3"}
    _, of_gpu = gpu_cells(text(row, "gpu"), source)
    values = origin(row, source) | of_model | of_gpu | measured_of(row) | {"task": "serve"}
    values |= engine_cells(text(row, "engine"), source) | load_of(row, source)
    values |= lengths_under_load(row, values)
    split, uneven = split_under_load(row, source)
    values |= split | ({"ep": 1} if split.get("ep", 1) > 1 and not has_experts(model) else {})
    unknown, quant = "", None
    try:
        quant = quant_under_load(row, source, model)
    except Unusable as why:
        unknown, quant = str(why), ""
    facts: dict[str, int] = {}
    if source == CAMPAIGN:
        facts, spread = campaign_facts(row, values)
        values |= spread
    values |= split_by_config(values, campaign_options(values, model, quant or "", facts).get("split", ""))
    options = campaign_options(values, model, quant or "", facts)
    options.pop("split", None)
    cache, quant, told = options.pop("cache", None), options.pop("scheme", quant), options.pop("doubt", "")
    sets = {path: options.pop(path) for path in [*options] if "." in path}
    sets |= {f"engine.{name}": options.pop(name) for name in SET if name in options}
    sets |= slots_of(model, options.pop("slots", 0))
    release = options.pop("image", "")
    values |= {"release": values.get("release") or release} if release else {}
    if quant:
        sparse = has_indexer(model) and on_blackwell(values.get("gpu"))
        usual = usual_cache(quant, values["engine"], sparse)
        quant = quant if "kv" in quant else quant + cache if cache is not None else usual
    values |= bench.limits(values, quant) if source in bench.SOURCES and quant else {}
    values |= {"quant": quant or None} | server_flags(note) | options | deployment_of(note)
    if "prefill_replicas" in options:  # the column counts the devices of all pools
        values, uneven = values | {"gpus": None}, told or POOLED * values["metric"].startswith("ttft")
    values |= study_cells(note)
    values |= usual_limits(values)
    sets |= experts_said(note, model) | attention_said(note) | longest_said(note) | without_aiter(note)
    ahead = usual_overlap(values, note, source != CAMPAIGN)
    sets |= usual_experts(values, note) | ahead.pop("sets", {})
    values |= ahead
    sets = usual_captured(values) | usual_windows(values) | sets
    values |= {"sets": sets} if sets else {}
    doubts = [uneven, unknown, *doubts_of(row, source, values, quant)]
    return cells_of(values | {"doubt": "; ".join(dict.fromkeys(d for d in doubts if d))})
