"""Every argument of the public calls, a row each: it makes the parameter of the signature, its line in the docstring,
the option of the command with its help and, where it has a place in the scenario, the check and field that it fills.

`scripts/signatures` writes signatures and docstrings from these rows, and a test holds that they are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked.checks import amount, choices, reals, whole
from rooflm.asked.synonyms import meanings
from rooflm.catalogue.fields import LARGEST, About
from rooflm.errors import RooflmError, near_matches
from rooflm.readers.tables import check_bounds, is_array, one_of
from rooflm.scenario.adapters import MODULES as ADAPTED
from rooflm.scenario.adapters import TRAINED
from rooflm.scenario.mapping import MODULES, RECOMPUTE, SCHEDULES
from rooflm.scenario.training import OPTIMIZERS

INFER, TRAIN, SERVE = "infer", "train", "serve"
BEST, LOAD, FIT = "search_infer", "search_serve", "search_train"
EVERY = (INFER, TRAIN, SERVE, BEST, LOAD, FIT)
GRIDS = (INFER, TRAIN)
SEARCHES = (BEST, LOAD, FIT)


class Kind(NamedTuple):
    """How an argument is written. one, many: its type for one scenario, and where a list may make an axis; text: its
    value is a name, never a number."""

    one: str
    many: str
    text: bool = False


KINDS = {
    "numbers": Kind("float", "Numbers"),
    "amounts": Kind("float", "Numbers"),
    "amount": Kind("float", "float"),
    "names": Kind("str", "Names", text=True),
    "joined": Kind("str", "Names"),
    "factors": Kind("str | Efficiency", "Names | Efficiency", text=True),
    "stage": Kind("float | str", "Numbers | Names"),
    "switch": Kind("bool", "bool"),
    "text": Kind("str", "str", text=True),
    "devices": Kind("str | Device", "Devices", text=True),
    "device": Kind("str | Device", "str | Device", text=True),
    "clusters": Kind("str | Cluster", "Clusters", text=True),
    "cluster": Kind("str | Cluster", "str | Cluster", text=True),
    "engines": Kind("str | Engine", "Engines", text=True),
    "engine": Kind("str | Engine", "str | Engine", text=True),
    "schemes": Kind("str | Quant", "Schemes", text=True),
    "scheme": Kind("str | Quant", "str | Quant", text=True),
    "count": Kind("int", "int"),
    "number": Kind("float", "float"),
    "seconds": Kind("float", "float"),
    "joules": Kind("float", "float"),
    "share": Kind("float", "float"),
    "budgets": Kind("float", "Numbers"),
    "spread": Kind("tuple[float, float]", "tuple[float, float]"),
    "server": Kind("Server | Mapping[str, Any]", "Server | Mapping[str, Any]"),
    "sets": Kind("Mapping[str, Any]", "Mapping[str, Any]"),
    "zips": Kind("Sequence[Any]", "Sequence[Any]"),
    "listed": Kind("Names", "Names"),
    "progress": Kind("Progress", "Progress"),
}
"""How arguments are written, in Python and (`cli/options.py`) as text."""


class Argument(NamedTuple):
    """One argument. name: in Python (its option has hyphens); kind: a key of KINDS; help: one line; of: the calls that
    have it; default: None where it is worked out; unit: of its values; path: the field of the scenario that it fills
    ("": it chooses a row or says how to sweep); least: it is a whole number of at least this; most: and at most this
    (infinity: it may be infinite); above: a number that must be above 0; words: it is one of these; shell, python:
    whether the command, the call has it; option: its name there, where it is another; group: under which heading help
    shows it."""

    name: str
    kind: str
    help: str
    of: tuple[str, ...]
    default: Any = None
    unit: str = ""
    path: str = ""
    least: int | None = None
    words: tuple[str, ...] = ()
    shell: bool = True
    python: bool = True
    option: str = ""
    most: float = LARGEST
    above: bool = False
    group: str = ""


REQUESTS, REPLICAS, CLIENTS = 10_000_000, 10_000, 1_000_000
"""Most requests, replicas and clients that a simulation holds in memory."""
A = Argument
ROWS: tuple[Argument | str, ...] = (
    "Where it runs",
    A("gpu", "devices", "GPU name or .toml (see `rooflm list gpus`).", GRIDS),
    A("gpu", "devices", "GPU name or .toml (see `rooflm list gpus`).", (SERVE,)),
    A("gpu", "devices", "GPU, or a list of which the best is chosen.", SEARCHES),
    A("gpus", "numbers", "How many GPUs; split into tp, then pp, unless given.", (INFER,), least=1),
    A("gpus", "numbers", "How many GPUs; what tp, pp, cp leave is data parallel.", (TRAIN,), least=1),
    A("gpus", "numbers", "GPUs of one replica; split into tp, then pp, unless given.", (SERVE,), least=1),
    A("gpus", "numbers", "Exactly so many GPUs, or a list.", SEARCHES, least=1),
    A("gpus_max", "count", "Any number of GPUs up to this (default: one node).", (BEST, LOAD), least=1, most=16384),
    A("gpus_max", "count", "Instead: 1, 2, 4, ... GPUs up to this many (default: one node).", (FIT,), least=1,
      most=2**20),
    A("price", "numbers", "USD an hour of one GPU (default: the card's row).", (*GRIDS, SERVE, *SEARCHES),
      unit="USD/h"),
    A("owned", "switch", "Cost of GPUs of one's own, bought at their public price and used for 4 years, and their "
      "electricity, in place of rent.", (*GRIDS, SERVE, *SEARCHES), False),
    A("purchase", "numbers", "USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).",
      (*GRIDS, SERVE, *SEARCHES), unit="USD", above=True),
    A("electricity", "numbers", "USD a kWh of one's own GPUs.", (*GRIDS, SERVE, *SEARCHES), 0.15, unit="USD/kWh"),
    A("under", "number", "Most USD to buy all GPUs, at purchase or public prices; without gpu, of every card with one.",
      (BEST, LOAD), unit="USD", above=True),
    A("cluster", "clusters", "Cluster (default: the GPU's own).", GRIDS),
    A("cluster", "cluster", "Cluster (default: the GPU's own).", (SERVE, *SEARCHES)),
    "How it is split",
    A("tp", "numbers", "Tensor parallel degree.", GRIDS, path="mapping.tp", least=1),
    A("tp", "numbers", "Tensor parallel degree.", (SERVE,), least=1),
    A("tp", "numbers", "Only these tensor parallel degrees.", SEARCHES, least=1),
    A("pp", "numbers", "Pipeline parallel degree.", GRIDS, path="mapping.pp", least=1),
    A("pp", "numbers", "Pipeline parallel degree.", (SERVE,), least=1),
    A("pp", "numbers", "Only these pipeline parallel degrees.", SEARCHES, least=1),
    A("vp", "numbers", "Virtual pipeline stages a GPU (interleaved).", (TRAIN,), 1, path="mapping.vp", least=1),
    A("vp", "numbers", "Only these numbers of virtual stages.", (FIT,), least=1),
    A("dp", "numbers", "Data parallel degree (replicas, or attention DP with ep).", (INFER,), path="mapping.dp",
      least=1),
    A("dp", "numbers", "Data parallel degree.", (TRAIN,), path="mapping.dp", least=1),
    A("dp", "numbers", "Attention data parallel degree (MoE), else replicas.", (SERVE,), least=1),
    A("dp", "numbers", "Only these data parallel degrees.", (BEST, LOAD), least=1),
    A("cp", "numbers", "Context parallel degree.", GRIDS, path="mapping.cp", least=1),
    A("cp", "numbers", "Context parallel degree.", (SERVE,), least=1),
    A("cp", "numbers", "Only these context parallel degrees.", (FIT,), least=1),
    A("ep", "numbers", "Expert parallel degree (of tp x dp).", GRIDS, path="mapping.ep", least=1),
    A("ep", "numbers", "Expert parallel degree (of tp x dp).", (SERVE,), least=1),
    A("ep", "numbers", "Only these expert parallel degrees.", SEARCHES, least=1),
    A("sp", "switch", "Sequence parallelism (default: the engine's).", (TRAIN,), path="mapping.sp"),
    "What is asked",
    A("batch", "numbers", "Sequences at a time, in all.", (INFER,), 1, path="workload.batch", least=1),
    A("batch", "numbers", "Sequences a step, in all.", (TRAIN,), path="workload.batch", least=1),
    A("batch", "numbers", "Only these batches (default: 1 to 1024).", (BEST,), least=1),
    A("batch", "count", "Sequences a step in all (default: 4 Mi tokens; 16 of adapters).", (FIT,), least=1),
    A("prompt", "numbers", "Prompt tokens a sequence.", (INFER,), 512, "tokens", "workload.prompt", least=1),
    A("prompt", "numbers", "Prompt tokens a request.", (SERVE,), 512, "tokens", least=1),
    A("prompt", "count", "Prompt tokens a request.", (BEST, LOAD), 512, "tokens", least=1),
    A("output", "numbers", "Output tokens a sequence.", (INFER,), 128, "tokens", "workload.output", least=1),
    A("output", "numbers", "Output tokens a request.", (SERVE,), 128, "tokens", least=1),
    A("output", "count", "Output tokens a request.", (BEST, LOAD), 128, "tokens", least=1),
    A("cached", "numbers", "Prompt tokens already in the cache (prefix caching).", (INFER,), 0, "tokens",
      "workload.cached", least=0),
    A("cached", "count", "Prompt tokens already in the cache (prefix caching).", (BEST,), unit="tokens", least=0),
    A("cached", "count", "Tokens of each prompt that an earlier run left in the prefix cache.", (SERVE,), 0, "tokens",
      least=0),
    A("logits", "names", "Logits of the 'last' prompt token or of 'all'.", (INFER,), "last", path="workload.logits",
      words=("last", "all")),
    A("logits", "text", "Logits of the 'last' prompt token or of 'all'.", (BEST,)),
    A("seq", "numbers", "Tokens a sequence.", (TRAIN,), 2048, "tokens", "workload.seq", least=1),
    A("seq", "count", "Tokens a sequence.", (FIT,), 2048, "tokens", least=1),
    A("micro_batch", "numbers", "Sequences a micro-batch (default: 1, or what the framework takes).", (TRAIN,),
      path="mapping.micro_batch", least=1),
    A("micro_batch", "numbers", "Only these micro-batches.", (FIT,), least=1),
    A("tokens", "amounts", "Tokens of the whole run, such as 300B.", (TRAIN,), 0, "tokens", "workload.tokens", least=0),
    A("tokens", "amount", "Tokens of the whole run, such as 15T.", (FIT,), 0, "tokens"),
    "How it is trained",
    A("recompute", "names", "none, selective, ops, full or block.", (TRAIN,), path="mapping.recompute",
      words=RECOMPUTE),
    A("recompute", "names", "Only these of none, selective, full.", (FIT,)),
    A("recompute_layers", "numbers", "Layers recomputed with full or block (0: all).", (TRAIN,), 0,
      path="mapping.recompute_layers", least=0),
    A("recompute_modules", "joined", "Modules recomputed too: layernorm, mla_up_proj, moe_act, mlp, moe, core_attn.",
      (TRAIN,), path="mapping.recompute_modules", words=MODULES),
    A("zero", "stage", "ZeRO stage 0 to 3, or fsdp.", (TRAIN,), path="mapping.zero"),
    A("zero", "numbers", "Only these ZeRO stages.", (FIT,), least=0, most=3),
    A("fsdp_group", "numbers", "GPUs of a sharding group (0: all of dp).", (TRAIN,), 0, path="mapping.fsdp_group",
      least=0),
    A("schedule", "names", "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe.", (TRAIN,),
      path="mapping.schedule", words=SCHEDULES),
    A("schedule", "names", "1f1b, interleaved, gpipe, zb-h1, or a list.", (FIT,)),
    A("order", "joined", "Groups by nearness, such as tp-cp-dp-pp (default).", (TRAIN,), path="mapping.order"),
    A("order", "joined", "Groups by nearness, such as tp-cp-dp-pp (default), or a list.", (FIT,)),
    A("dtype", "names", "bf16 (fp16 where the device has no bf16), fp16, fp32, tf32, fp8, fp8-rowwise, fp8-block, "
      "mxfp8, nvfp4 or int8.", (TRAIN,)),
    A("dtype", "names", "bf16, fp16, fp8 or fp32.", (FIT,)),
    A("optimizer", "names", "adam, adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum.", (TRAIN,), "adam",
      path="training.optimizer", words=tuple(OPTIMIZERS)),
    A("optimizer", "names", "adam (default), adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum.", (FIT,)),
    A("dropout", "switch", "Masks on attention and both outputs of a layer (default: the engine's).", (TRAIN,),
      path="training.dropout"),
    A("lora_rank", "numbers", "Train adapters of this rank, everything else frozen.", (TRAIN,), 0,
      path="training.lora_rank", least=0),
    A("lora_rank", "numbers", "Train adapters of this rank, everything else frozen.", (FIT,), least=0),
    A("lora_modules", "joined", "Products with adapters, such as q,v or qkv,out (default: all but routed experts).",
      (TRAIN,), path="training.lora_modules", words=TRAINED),
    A("lora_modules", "joined", "Products with adapters, such as q,v or qkv,out.", (FIT,)),
    A("base_bits", "numbers", "Stored bits of a frozen weight (4: QLoRA).", (FIT,), unit="bit", least=2),
    A("base_bits", "numbers", "Stored bits of a frozen weight (4: QLoRA).", (TRAIN,), 16, "bit", "training.base_bits",
      least=2),
    "Speculative decoding",
    A("guesses", "numbers", "Tokens guessed a step by a draft or the model's own heads (0: none).",
      (INFER, SERVE, BEST, LOAD), 0, path="speculation.guesses", least=0, most=1024),
    A("draft", "text", "Draft model that guesses (default: heads of the model's own: MTP, EAGLE).",
      (INFER, SERVE, BEST, LOAD)),
    A("acceptance", "numbers", "Chance that a guess is right.", (INFER, SERVE, BEST, LOAD), 0.7,
      path="speculation.acceptance"),
    A("accepted", "numbers", "Tokens that a step gains as measured, in place of acceptance.",
      (INFER, SERVE, BEST, LOAD), 0, path="speculation.accepted"),
    A("branches", "numbers", "Guesses side by side at each depth: 1 a chain, else a tree.",
      (INFER, SERVE, BEST, LOAD), 1, path="speculation.branches", least=1, most=1024),
    "Adapters (LoRA) beside the model",
    A("adapters", "numbers", "Adapters held on the devices, each request asking for one (0: none).",
      (INFER, SERVE, BEST, LOAD), 0, path="adapters.held", least=0),
    A("adapter_rank", "numbers", "Rank of each.", (INFER, SERVE, BEST, LOAD), 16, path="adapters.rank", least=1),
    A("adapter_modules", "joined", "Products that they adapt, such as qkv,out (default: all).",
      (INFER, SERVE, BEST, LOAD), path="adapters.modules", words=ADAPTED),
    "What the host holds",
    A("cpu_layers", "numbers", "Whole layers in the host's memory, on its CPU (llama.cpp: all less -ngl).",
      (INFER, SERVE, BEST, LOAD), 0, path="offload.layers", least=0),
    A("cpu_experts", "numbers", "Layers whose experts alone are there (llama.cpp: --n-cpu-moe).",
      (INFER, SERVE, BEST, LOAD), 0, path="offload.experts", least=0),
    A("host_bandwidth", "numbers", "Rate of the host's memory, such as 89.6GB/s of two channels of DDR5-5600.",
      (INFER, SERVE, BEST, LOAD), unit="B/s", path="offload.bandwidth"),
    "Who comes, when",
    A("concurrency", "numbers", "Closed loop: clients that wait for their answer; with a rate: requests at a time.",
      (SERVE,), least=1, most=CLIENTS),
    A("concurrency", "numbers", "So many clients in all that wait for their answer, or a list.", (LOAD,), least=1,
      most=CLIENTS),
    A("rate", "numbers", "Open loop: requests/s (of a trace: its mean rate).", (SERVE,), unit="1/s", above=True),
    A("rate", "numbers", "Requests/s in all (Poisson), or a list.", (LOAD,), unit="1/s"),
    A("trace", "text", "Requests from a .csv, .jsonl or .json file.", (SERVE,)),
    A("dataset", "names", "Lengths of a published data set whose answers end by themselves, such as sharegpt (see "
      "`rooflm list datasets`).", (SERVE,)),
    A("requests", "count", "Requests in all (default 10 a client, or 1000).", (SERVE,), least=1, most=REQUESTS),
    A("spread", "spread", "Lengths as shares LOW,HIGH of prompt and output, uniform (default: 0.8,1.2; of one client "
      "1,1).", (SERVE,)),
    A("prompt_limit", "count", "Most tokens of a prompt: many are short and few long, `prompt` is their mean, and the "
      "spread is of outputs alone.", (SERVE,), unit="tokens", least=1),
    A("output_limit", "count", "Most tokens of an output: outputs end by themselves, `output` is their "
      "mean, and the spread is of prompts alone.", (SERVE,),
      unit="tokens", least=1),
    A("output_ended", "count", "Mean of the outputs that end by themselves, where the others all run to output_limit.",
      (SERVE,), unit="tokens", least=1),
    A("output_variation", "number", "Standard deviation of outputs over their mean, where it is at most a third of "
      "output_limit (default: of a law with one chance a token to be the last).", (SERVE,), above=True),
    A("warmup", "count", "First requests that times leave out (default: a closed loop's first wave).", (SERVE,),
      least=0),
    A("spread", "spread", "Lengths as shares LOW,HIGH of prompt and output.", (LOAD,), (0.8, 1.2)),
    A("seed", "count", "Seed of all chance.", (SERVE,), 0, least=0),
    A("burstiness", "number", "Gamma shape of the gaps: 1 Poisson, below 1 bursts.", (SERVE,), 1.0, above=True,
      most=math.inf),
    A("peak", "number", "Highest rate of the day over the mean, 1 to 2.", (SERVE,), 1.0),
    A("copies", "count", "Requests that each row of the trace stands for.", (SERVE,), 1, least=1, most=REQUESTS),
    A("limit", "count", "Read at most so many rows of the trace.", (SERVE,), least=1),
    A("shared_prefix", "count", "Prompt tokens that all requests share (prefix caching).", (SERVE,), 0, "tokens",
      least=0),
    A("replicas", "numbers", "Replicas behind a router.", (SERVE,), 1, least=1, most=REPLICAS),
    A("router", "text", "round-robin, least-loaded or prefix-aware.", (SERVE,), "round-robin"),
    A("prefill_replicas", "count", "Separate prefill replicas (disaggregated).", (SERVE,), 0, least=0, most=REPLICAS),
    A("pools", "switch", "Also separate prefill and decode pools of every size and split (disaggregated).", (LOAD,),
      False),
    A("prefill_gpu", "device", "Another GPU for the prefill replicas.", (SERVE, LOAD)),
    A("prefill_price", "number", "USD an hour of one of those (default: the card's row).", (SERVE, LOAD), unit="USD/h"),
    A("prefill_purchase", "number", "USD that one of those costs to buy (default: its public price).", (SERVE, LOAD),
      unit="USD", above=True),
    A("prefill_tp", "count", "Tensor parallel degree of the prefill replicas (default: as of the others).", (SERVE,),
      least=1),
    A("prefill_pp", "count", "Pipeline parallel degree of the prefill replicas.", (SERVE,), least=1),
    A("prefill_dp", "count", "Data parallel degree of the prefill replicas.", (SERVE,), least=1),
    A("prefill_ep", "count", "Expert parallel degree of the prefill replicas.", (SERVE,), least=1),
    A("transfer_bandwidth", "number", "From prefill to decode replicas, such as 50GB/s (default: the cluster's).",
      (SERVE, LOAD), unit="B/s", above=True),
    A("server", "server", "Options of the server: those to change, or a whole Server.", (SERVE,), shell=False),
    A("slo", "text", "Limits such as ttft:p95=1s,tpot:p95=50ms.", (SERVE, LOAD), ""),
    A("confirm", "count", "Simulate so many of the best.", (LOAD,), 3, least=0, most=1000),
    A("definitions", "text", "TPOT over the tokens after-first or the whole-request.", (SERVE,), "after-first"),
    A("horizon", "number", "Stop after so many simulated seconds.", (SERVE,), unit="s", above=True, most=math.inf),
    "What is searched, within what",
    A("token_budget", "budgets", "New tokens a pass (chunked prefill), or a list; off: whole prompts. Default: the "
      "engine's own; under load also 512 to 16384 and off.", (BEST, LOAD), unit="tokens"),
    A("ttft", "seconds", "Longest time to first token: of a whole batch; under load: mean.", (BEST, LOAD), unit="s",
      above=True),
    A("tpot", "seconds", "Longest time per output token (mean).", (BEST, LOAD), unit="s", above=True),
    A("latency", "seconds", "Longest request (under load: mean).", (BEST, LOAD), unit="s", above=True),
    A("step_time", "seconds", "Longest step.", (FIT,), unit="s", above=True),
    A("days", "number", "Longest run.", (FIT,), unit="d", above=True),
    A("gpu_hours", "amount", "Most GPU-hours of the run, such as 2M.", (FIT,), unit="h", above=True),
    A("cost", "number", "Most USD per million output tokens.", (BEST, LOAD), unit="USD", above=True),
    A("cost", "amount", "Most USD of the run, such as 5M.", (FIT,), unit="USD", above=True),
    A("energy", "joules", "Most energy of the run, such as 20GWh or 70TJ.", (FIT,), unit="J", above=True),
    A("throughput", "number", "Least output tokens/s in all.", (BEST, LOAD), unit="1/s", above=True),
    A("memory_margin", "share", "Share of memory to keep free, such as 0.1.", (BEST, LOAD)),
    A("memory_margin", "share", "Share of memory to keep free (default: 0.05).", (FIT,)),
    A("objective", "text", "throughput (per GPU), total, cost, latency, ttft, tpot or energy.", (BEST, LOAD),
      "throughput"),
    A("objective", "text", "time, throughput, mfu, cost, gpu-hours, energy or memory.", (FIT,), "time"),
    "How it runs",
    A("quant", "schemes", "Scheme, such as w16a16kv16, w4a16kv8, fp8, nvfp4.", (INFER,)),
    A("quant", "schemes", "Scheme, such as fp8, fp8kv8, int4, nvfp4.", (SERVE,)),
    A("quant", "schemes", "Scheme, or a list.", (BEST, LOAD)),
    A("engine", "engines", "Engine, of a release as vllm-0.11 (default: vllm; ideal without overheads).", (INFER,)),
    A("engine", "engines", "Engine, of a release as nemo-24.07 (default: megatron).", (TRAIN,)),
    A("engine", "engines", "Engine, of a release as vllm-0.11 (default vllm).", (SERVE,)),
    A("engine", "engines", "Engine, or a list.", SEARCHES),
    A("efficiency", "factors", "calibrated, ideal, or factors such as 0.7,0.9.", EVERY),
    A("sets", "sets", "Any other input by its path.", (*GRIDS, SERVE), option="--set"),
    A("sets", "sets", "Any other input by its path; lists are searched.", SEARCHES, option="--set"),
    "How it is swept",
    A("zip", "zips", "Lists that go in step: pairs, no products.", (*GRIDS, SERVE)),
    A("outputs", "listed", "Work out these outputs only (keys of --json).", GRIDS),
    A("on", "text", "Where blocks of a grid run: local, ray or ray://host:port.", (*GRIDS, *SEARCHES), "local"),
    A("progress", "progress", "Told now and then: requests ended, requests in all, seconds simulated.", (SERVE,),
      shell=False),
)  # fmt: skip
"""Every argument but the model, which comes first everywhere; a text opens a group of them."""


def grouped(rows: Iterable[Argument | str]) -> tuple[Argument, ...]:
    """The arguments, each with the group that the last text before it opened."""
    found, group = [], ""
    for row in rows:
        if isinstance(row, str):
            group = row
        else:
            found.append(row._replace(group=group))
    return tuple(found)


TABLE = grouped(ROWS)
"""Every argument."""

REAL = ("amounts", "amount", "number", "seconds", "joules")
"""Kinds of arguments that hold a finite number."""
SWEPT = ("zip", "outputs", "on")
"""Arguments that say how to sweep, not what."""


@cache
def arguments(call: str) -> dict[str, Argument]:
    """The arguments of a public call, by name."""
    return {a.name: a for a in TABLE if call in a.of}


@cache
def defaults(call: str) -> dict[str, Any]:
    """What each argument is where it is not given, but those that say how to sweep."""
    return {name: a.default for name, a in arguments(call).items() if name not in SWEPT}


def refuse_unknown(call: str, names: Iterable[str], known: Collection[str] | None = None) -> None:
    """Raise RooflmError for the first name that is no argument of a call (by default one of the table), with the
    arguments most like it.

    >>> refuse_unknown("infer", {"bach": 3})
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: infer has no argument 'bach': did you mean 'batch' or 'branches'?
    >>> refuse_unknown("infer", {"tensor_parallel_size": 2})
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: infer has no argument 'tensor_parallel_size': did you mean 'tp'?
    >>> refuse_unknown("search_infer", {"concurrency": 8})
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: search_infer has no argument 'concurrency': it is of serve, search_serve
    """
    asked = arguments(call) if known is None else known
    for name in names:
        if name not in asked and name != "model":
            ours = [own for word in meanings(name) if (own := word.replace("-", "_")) in asked]
            near = ours or near_matches(name, asked) or near_matches(name, {n for c in EVERY for n in arguments(c)})
            like = get_close_matches(name, asked, 1, 0.5)
            far = f"the nearest is {like[0]!r}" if like else f"it has {'none like it' if asked else 'none'}"
            tail = f"did you mean {' or '.join(map(repr, near[:2]))}?" if near else far
            others = [other for other in EVERY if name in arguments(other)]
            tail = f"it is of {', '.join(others)}" if others else tail
            raise RooflmError(f"{call} has no argument {name!r}: {tail}")


def refuse_kind(call: str, given: Mapping[str, Any]) -> None:
    """Raise RooflmError for what is no name where a name belongs, and for a number of an argument that is out of its
    bounds (those with a place in the scenario are checked where they fill it).

    >>> refuse_kind("infer", {"quant": 8})
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: quant is 8, but it must be a text or a Quant. Scheme, such as w16a16kv16, w4a16kv8, ...
    """
    table = arguments(call)
    for name, value in given.items():
        a = table.get(name)
        if a is None or value is None or (type(value) is type(a.default) and value == a.default):  # most are
            continue
        refuse_type(a, value)
        if a.kind in REAL or (a.least is not None and not a.path):
            checked(a, np.array(value) if isinstance(value, list | tuple | range) else value)


NUMBER = (int, float, np.number, Number)
TYPES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("numbers", "budgets", "amounts", "spread"), NUMBER),
    **dict.fromkeys(("amount", "number", "seconds", "joules", "share", "count"), NUMBER),
    **dict.fromkeys(("joined", "listed"), (str,)), "stage": (*NUMBER, str), "switch": (*NUMBER, np.bool_),
    "progress": (Callable,),
}  # fmt: skip
"""Kind of argument that names no row -> the types that one of its values may have."""
SAID = {
    "switch": "True or False", "progress": "a function", "spread": "two numbers such as (0.8, 1.2)",
    **dict.fromkeys(("joined", "listed"), "a text or a list of texts"),
    **dict.fromkeys(("numbers", "budgets", "amounts", "stage"), "a number or a list of them"),
}  # fmt: skip
"""And what is said of them, where that is not "a number"."""
ONE = {**dict.fromkeys(("amount", "number", "seconds", "joules", "share"), "number"), "count": "whole number",
       **dict.fromkeys(("device", "engine", "scheme"), "name"), "text": "text"}  # fmt: skip
"""Kinds of which an argument has one value, and what that is."""


def refuse_type(a: Argument, value: Any) -> None:
    """Raise RooflmError for a value, or for one in a list of them, that is of another type than an argument's.

    >>> refuse_type(arguments("train")["dropout"], "no")
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: dropout is 'no', but it must be True or False
    """
    kind, types = KINDS.get(a.kind), TYPES.get(a.kind)
    if kind is None or hasattr(value, "to_list") or hasattr(value, "to_pylist"):
        return  # a file, and a column of a table, which becomes a list later
    listed = isinstance(value, list | tuple | range) or is_array(value)
    if listed and types and not len(value) and a.kind != "joined":  # none of its words
        raise RooflmError(f"{a.name} is an empty list: give at least one value")
    if is_array(value) and types and value.dtype.kind in "iufb":
        return
    for one in value if listed else (value,):
        if one is None and a.kind != "listed":  # its own sentence is told where lists become axes
            continue
        if types and (not isinstance(one, types) or (a.kind == "switch" and one not in (0, 1))):
            raise RooflmError(f"{a.name} is {repr(value)[:60]}, but it must be {SAID.get(a.kind, 'a number')}")
        if kind.text and not (isinstance(one, str) or type(one).__name__ in kind.one):
            what = kind.one.replace("str", "a text").replace(" | E", " or an E").replace(" | ", " or a ")
            raise RooflmError(f"{a.name} is {repr(one)[:60]}, but it must be {what}. {a.help}")
    if listed and len(value) and a.kind in ONE:
        raise RooflmError(f"{a.name} is {repr(value)[:60]}, but it must be one {ONE[a.kind]}, not a list")
    if a.kind == "spread" and not (listed and len(value) == 2):
        raise RooflmError(f"{a.name} is {repr(value)[:60]}, but it must be {SAID['spread']}")


BELONGS = {
    "accepted": ("guesses",), "electricity": ("owned", "purchase", "prefill_purchase"), "adapter_rank": ("adapters",),
    "adapter_modules": ("adapters",), "branches": ("guesses",),
    "host_bandwidth": ("cpu_layers", "cpu_experts"), "transfer_bandwidth": ("prefill_replicas",),
    "prefill_price": ("prefill_gpu",), "prefill_purchase": ("prefill_gpu",),
    "acceptance": ("guesses",), "draft": ("guesses",), "burstiness": ("rate",), "peak": ("rate",),
    "output_ended": ("output_limit",), "output_variation": ("output_limit",), "copies": ("trace",), "limit": ("trace",),
}  # fmt: skip
"""Argument -> those of which it says more: where none of them is given it would have no effect."""
IN_ITS_PLACE = {
    "trace": ("concurrency", "requests", "prompt", "output", "spread", "prompt_limit", "output_limit", "dataset",
              "burstiness", "peak"),
    "dataset": ("prompt", "output", "spread", "prompt_limit", "output_limit", "output_ended", "output_variation"),
    "output_ended": ("output_variation",),
}  # fmt: skip
"""Argument -> those that have no effect beside it, as it says the same."""
UNDER_LOAD = {"workload.batch": "concurrency or rate", "workload.cached": "cached"}
"""Path of a batch that starts at once -> what says it of users who come and go."""


def idle(call: str, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The arguments that were given and have no effect, each with those of its call to which it belongs.

    >>> idle("infer", {"adapter_rank": 8}), idle("infer", {"adapter_rank": 8, "adapters": [0, 4]})
    ({'adapter_rank': ('adapters',)}, {})
    """
    table, set_ = arguments(call), tuple(given.get("sets") or ())
    unused = {}
    for name, own in _belonging(call).items():
        whose = (o for o in own if np.any(np.asarray(given.get(o) or 0)) or table[o].path in set_)
        if _said(table[name], given) and not any(whose):
            unused[name] = own
    return unused


@cache
def _belonging(call: str) -> dict[str, tuple[str, ...]]:
    """BELONGS as far as a call has its arguments."""
    table = arguments(call)
    owners = {name: tuple(o for o in others if o in table) for name, others in BELONGS.items() if name in table}
    return {name: others for name, others in owners.items() if others}


def refuse_idle(call: str, given: Mapping[str, Any]) -> None:
    """Raise RooflmError for the first argument that would have no effect.

    >>> refuse_idle("serve", {"transfer_bandwidth": 5e9})
    Traceback (most recent call last):
    ...
    rooflm.errors.RooflmError: transfer_bandwidth has no effect without prefill_replicas: give it too
    """
    table = arguments(call)
    for name, others in IN_ITS_PLACE.items():
        twice = [o for o in others if name in table and given.get(name) is not None and _said(table[o], given)]
        if twice:
            raise RooflmError(f"{name} has its own {twice[0]}: leave one of them out")
    for name, owners in idle(call, given).items():
        too = "one of them" if owners[1:] else "it"
        raise RooflmError(f"{name} has no effect without {' or '.join(owners)}: give {too} too")
    for path in given.get("sets") or ():
        name = _filling(call).get(path, "")
        if path in UNDER_LOAD and call in (SERVE, LOAD):
            raise RooflmError(f"{path} has no effect where requests come and go: give {UNDER_LOAD[path]} in its place")
        if name and not table[name].path and path.startswith(("mapping.", "workload.")):  # a search tries its own
            raise RooflmError(f"{path} is what {name} says here: give {name} in its place")
        if name and _said(table[name], given):
            raise RooflmError(f"{path} is what {name} says too: give one of them")


@cache
def _filling(call: str) -> dict[str, str]:
    """Path -> the argument of a call that says the same, under this name or as the prediction behind the call has it.

    >>> _filling("serve")["mapping.tp"], "workload.batch" in _filling("serve")
    ('tp', False)
    """
    paths = {a.path: a.name for of in (TRAIN, INFER) for a in arguments(of).values() if a.path}
    own = {a.path: a.name for a in arguments(call).values() if a.path}
    return {path: name for path, name in paths.items() if name in arguments(call)} | own


def _said(a: Argument, given: Mapping[str, Any]) -> bool:
    """Whether an argument was given, and not as it is by default."""
    value = given.get(a.name)
    return value is not None and (is_array(value) or bool(value != a.default))


def refuse_wrong(call: str, given: Mapping[str, Any]) -> None:
    """Raise RooflmError for an argument of another kind or out of its bounds, and for one that would have no effect."""
    refuse_kind(call, given)
    refuse_idle(call, given)


def filled(call: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every input of a call: what was given, else its default. RooflmError for an argument that the call does not
    have, and for a number where a name belongs."""
    usual = defaults(call)
    if not usual.keys() >= given.keys():
        refuse_unknown(call, given)
    refuse_kind(call, given)
    return usual | {k: v for k, v in given.items() if v is not None}


@cache
def placed(call: str, place: str) -> tuple[tuple[str, Argument], ...]:
    """Field and argument of those that fill a field below a place of the scenario."""
    rows = ((a.path.rpartition("."), a) for a in arguments(call).values())
    return tuple((field, a) for (where, _, field), a in rows if where == place)


ANY = About("")
"""Bounds of a number that is at least 0."""


def checked(a: Argument, value: Any) -> Any:
    """The value of an argument, if it is of its kind and within its bounds; RooflmError otherwise."""
    if a.kind == "count" and is_array(value):
        raise RooflmError(f"{a.name} is a list, but it must be one whole number")
    if a.least is not None:
        return whole(a.name, value, a.least, a.most)
    if a.kind in REAL:
        return amount(a.name, value, a.above, a.most == math.inf)
    if a.kind == "numbers" and a.path:
        from rooflm.asked.bounds import about_at  # of catalogues that a table of arguments does without

        check_bounds(a.name, reals(a.name, value), about_at(a.path) or ANY)
    if a.kind == "joined" and a.words:
        return choices(a.name, value, a.words)
    return one_of(a.name, value, a.words) if a.words else value


def fields_at(place: str, call: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Field -> checked value of the arguments that fill one below a place of the scenario, where they are known.

    >>> fields_at("workload", "infer", filled("infer", {"batch": 8}))
    {'batch': 8, 'prompt': 512, 'output': 128, 'cached': 0, 'logits': 'last'}
    """
    return {field: checked(a, given[a.name]) for field, a in placed(call, place) if given[a.name] is not None}
