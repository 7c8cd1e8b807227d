"""The fields of the page: each is an argument of a public call (`asked.arguments`), with its label, what stands in
it at first, and the stops of its slider. What a person types is read and checked as on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from rooflm.asked.arguments import Argument, arguments
from rooflm.asked.assumed import usual_engine
from rooflm.asked.written import READ, as_it_is
from rooflm.errors import RooflmError
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import names, resolve
from rooflm.readers.schemes import PRESETS, parse_quant
from rooflm.web.dropped import dropped_model, is_dropped

LONGEST = 6000
"""Most characters of a field: a dropped config.json is one."""
MOST_VALUES = 64
"""Most values that a list in a field may have."""
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Field(NamedTuple):
    """A field. key: its name in the address, "GROUP.ARGUMENT" or the argument alone; call: whose argument it is; usual:
    what stands in it at first; hint: shown while it is empty; listed: kind of names to choose from; words: the only
    ones; stops: of its slider; more: among those that are folded away; most: largest value that the page works out."""

    key: str
    label: str
    call: str = "infer"
    usual: str = ""
    hint: str = ""
    listed: str = ""
    words: tuple[str, ...] = ()
    stops: tuple[int, ...] = ()
    more: bool = False
    most: float = 1e12

    @property
    def name(self) -> str:
        """The argument that it fills."""
        return self.key.rpartition(".")[2]

    @property
    def group(self) -> str:
        """The scenario that it belongs to, where it is not the one that all tabs share."""
        return self.key.rpartition(".")[0]

    @property
    def help(self) -> str:
        """The argument's line of help."""
        known = arguments(self.call).get(self.name)
        return known.help if known else HELP.get(self.name, "")


HELP = {
    "model": "A name of the catalogue, a Hugging Face id, or a config.json or GGUF file dropped here.",
    "x": "What goes from left to right.",
    "y": "What goes from bottom to top.",
    "xs": "Values from left to right: a list such as 1,8,64 or a range such as 1..512*2.",
    "ys": "Values from bottom to top: a list or a range.",
    "value": "The output that is coloured.",
}
"""Help of fields that are no argument of a call."""
WORDS = {
    "": "as usual", "output_tokens_per_s_per_gpu": "tokens/s a card", "output_tokens_per_s": "tokens/s in all",
    "ttft_s": "first token", "tpot_s": "each token", "latency_s": "whole request", "cost_usd_per_million_tokens":
    "USD a million", "memory_bytes": "memory", "mfu": "MFU", "mbu": "bandwidth used", "energy_j_per_token": "energy",
    "throughput": "tokens/s a card", "total": "tokens/s in all", "cost": "cost a token", "latency": "whole request",
    "ttft": "first token", "tpot": "each token", "energy": "energy a token", "batch": "requests at once", "prompt":
    "prompt tokens", "output": "output tokens", "cached": "cached tokens", "gpus": "cards", "tp": "tensor parallel",
    "pp": "pipeline parallel", "gpu": "card", "quant": "scheme",
    "time": "least time", "memory": "least memory",
}  # fmt: skip
"""What the page calls a word to choose."""
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
GPUS = (1, 2, 3, 4, 6, 8, 12, 16)
CLUSTERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
GOALS = ("throughput", "total", "cost", "latency", "ttft", "tpot", "energy")
F = Field
FIELDS: tuple[Field, ...] = (
    F("model", "Model", usual="llama-3.1-8b", hint="such as llama-3.1-8b", listed="model"),
    F("gpu", "Card", usual="h100", hint="such as rtx-4090", listed="gpu"),
    F("gpus", "Cards", usual="1", stops=GPUS, most=1e6),
    F("engine", "Engine", hint=usual_engine("inference"), listed="engine"),
    F("quant", "Scheme", hint="as released", listed="quant"),
    F("prompt", "Prompt tokens", usual="1024", stops=LENGTHS, most=1e8),
    F("output", "Output tokens", usual="256", stops=LENGTHS, most=1e8),
    F("batch", "Requests at once", usual="8", stops=BATCHES, most=1e7),
    F("concurrency", "Clients", "serve", usual="16", stops=LOADS, most=4096),
    F("ttft", "First token within", "search_serve", usual="1s", hint="such as 500ms"),
    F("tpot", "Each token within", "search_serve", usual="50ms", hint="such as 40ms"),
    F("find.concurrency", "Clients at a time", "search_serve", hint="one batch", most=4096),
    F("find.gpus_max", "Cards, at most", "search_infer", usual="8", most=64),
    F("find.objective", "Best is", "search_infer", usual="throughput", words=GOALS),
    F("train.gpus", "Cards", "train", usual="8", stops=CLUSTERS, most=1e6),
    F("train.batch", "Sequences a step", "train", usual="64", most=1e7),
    F("train.seq", "Tokens a sequence", "train", usual="2048", stops=LENGTHS, most=1e7),
    F("train.tokens", "Tokens in all", "train", usual="10B", hint="such as 15T", most=1e16),
    F("train.recompute", "Recompute", "train", words=("", "none", "selective", "full")),
    F("train.zero", "ZeRO stage", "train", words=("", "0", "1", "2", "3")),
    F("train.objective", "Best split by", "search_train", hint="not searched",
      words=("", "time", "throughput", "mfu", "cost", "energy", "memory")),
    F("train.micro_batch", "Micro-batch", "train", hint="as usual", stops=(1, 2, 4, 8, 16, 32), most=1e6),
    F("train.lora_rank", "LoRA rank", "train", hint="none", most=1e6),
    F("train.base_bits", "Bits of a frozen weight", "train", hint="16 (4: QLoRA)", more=True),
    F("train.dtype", "Number format", "train", words=("", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"), more=True),
    F("train.optimizer", "Optimiser", "train", hint="adam", more=True),
    F("train.engine", "Framework", "train", hint=usual_engine("training"), listed="engine", more=True),
    *(F(f"train.{k}", f"{v} parallel", "train", more=True, most=1e6) for k, v in
      (("tp", "Tensor"), ("pp", "Pipeline"), ("cp", "Context"), ("ep", "Expert"))),
    F("train.vp", "Virtual stages", "train", usual="1", more=True, most=1e4),
    F("train.schedule", "Schedule", "train", more=True,
      words=("", "1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe")),
    F("map.x", "Left to right", words=("batch", "prompt", "output", "cached", "gpus", "tp", "pp", "gpu", "quant",
                                       "engine", "model"), usual="batch"),
    F("map.xs", "Values", usual="1..512*2"),
    F("map.y", "Bottom to top", words=("batch", "prompt", "output", "cached", "gpus", "tp", "pp", "gpu", "quant",
                                       "engine", "model"), usual="prompt"),
    F("map.ys", "Values", usual="256..32768*2"),
    F("map.value", "Colour", words=("output_tokens_per_s_per_gpu", "output_tokens_per_s", "ttft_s", "tpot_s",
                                    "latency_s", "cost_usd_per_million_tokens", "memory_bytes", "mfu", "mbu",
                                    "energy_j_per_token"), usual="tpot_s"),
    *(F(f"{side}.{k}", label, hint="the same", listed=kind, most=1e7)
      for side in ("b", "c", "d") for k, label, kind in
      (("model", "Model", "model"), ("gpu", "Card", "gpu"), ("gpus", "How many", ""), ("quant", "Scheme", "quant"),
       ("engine", "Engine", "engine"), ("batch", "Requests", ""))),
    F("tp", "Tensor parallel", more=True, most=1e6),
    F("pp", "Pipeline parallel", more=True, most=1e6),
    F("dp", "Data parallel", more=True, most=1e6),
    F("ep", "Expert parallel", more=True, most=1e6),
    F("cached", "Prompt tokens in the cache", more=True, most=1e8),
    F("cluster", "Cluster", hint="its own", listed="cluster", more=True),
    F("efficiency", "Efficiency", words=("", "calibrated", "ideal"), more=True),
)  # fmt: skip
"""Every field of the page."""
BY_KEY: Mapping[str, Field] = {f.key: f for f in FIELDS}


@cache
def choices(kind: str) -> list[str]:
    """The names of the catalogue to choose from."""
    if kind == "quant":
        return list(PRESETS)
    return names(kind)


def one_name(kind: str, name: str) -> Any:
    """What a name of a row stands for, looked up in the catalogue alone: no text of the page is ever opened as a file
    or asked of a network. RooflmError with the nearest names otherwise."""
    if kind == "model":
        return dropped_model(name)[0] if is_dropped(name) else known_model(name)
    if kind == "quant":
        return parse_quant(name).name and name
    if kind == "engine":
        resolve("engine", name.partition("@")[0])
        load_engine(name)
        return name
    resolve(kind, name)
    return name


def known_model(name: str) -> str:
    """A model's name or hub id, if the catalogue has it."""
    try:
        resolve("model", name)
    except RooflmError as error:
        drop = " (or drop the model's config.json on this page)" if "/" in name else ""
        raise RooflmError(f"{error}{drop}") from None
    return name


def value_of(field: Field, text: str) -> Any:
    """What a person typed into a field as the value of its argument. RooflmError says what is wrong with it."""
    if len(text) > LONGEST:
        raise RooflmError(f"{field.name} has {len(text)} characters, but at most {LONGEST} are read")
    if field.words:
        if text not in field.words:
            raise RooflmError(f"{field.name} is {text!r}, but it must be one of {', '.join(filter(None, field.words))}")
        if field.name not in arguments(field.call):
            return text
    if field.name in ("xs", "ys"):
        return text
    kind = field.listed or field.name
    if kind in ("model", "gpu", "engine", "quant", "cluster"):
        return names_of(kind, text)
    value = read(arguments(field.call)[field.name], text)
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, int | float) and one > field.most:
            raise RooflmError(f"{field.name} is {one:,.0f}, but the page works out at most {field.most:,.0f}")
    return value


def names_of(kind: str, text: str) -> Any:
    """A name, or a list of names, each of the catalogue."""
    if kind == "model" and is_dropped(text):
        return one_name(kind, text)
    found = [one_name(kind, piece.strip()) for piece in text.split(",") if piece.strip()]
    if len(found) > MOST_VALUES:
        raise RooflmError(f"{kind} has {len(found)} names, but the page takes at most {MOST_VALUES}")
    return found if len(found) > 1 else found[0] if found else None


def read(a: Argument, text: str) -> Any:
    """The text of an argument as its value."""
    return READ.get(a.kind, as_it_is)(text, a.name)
