"""Checkpoints of catalogue models under ids of their own: scheme and context (`data/models/_checkpoints.toml`).

Two tables serve them: ids that are listed, and the ends of publishers' ids ("-AWQ", "-quantized.w4a16") whose rest is
the name of a model or of a listed checkpoint.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from rooflm.readers.rows import FOLDERS, aliases, normalise, shipped
from rooflm.readers.schemes import PRESETS, without_cache


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What sets a checkpoint apart from its model's row.

    model: the row; quant: its scheme ("": the row's); max_context: tokens (0: the row's); source: page of its config
    ("": the hub's, made from the id); towers: it has vision or audio towers beside its language model, the row.
    """

    model: str
    quant: str = ""
    max_context: int = 0
    source: str = ""
    towers: bool = False


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    names: dict[str, list[str]]
    endings: dict[str, dict[str, str]]
    checkpoints: dict[str, Checkpoint]


@lru_cache
def _table() -> _Table:
    return shipped(f"{FOLDERS['model']}/_checkpoints", _Table)


def _endings(publisher: str) -> dict[str, str]:
    """End of a hub id -> scheme, as anybody and a publisher name theirs; the types of GGUF files among them."""
    files = {"-" + normalise(name): name for name, q in PRESETS.items() if q.gguf}
    return files | _table().endings["any"] | _table().endings.get(publisher, {})


@lru_cache
def listed() -> dict[str, Checkpoint]:
    """Hub id, normalised -> a checkpoint of the table; its last piece alone serves too where no row has that name."""
    whole = {normalise(name): row for name, row in _table().checkpoints.items()}
    short = {name.partition("/")[2]: row for name, row in whole.items()}
    return {name: row for name, row in short.items() if name and name not in aliases("model")} | whole


def hub_id(name: str) -> str:
    """The hub id of a listed checkpoint that is named by its last piece ("": none is).

    >>> hub_id("qwen3.6-27b"), hub_id("llama-3.1-8b")
    ('Qwen/Qwen3.6-27B', '')
    """
    low = normalise(name)
    ids = (one for one in _table().checkpoints if normalise(one).partition("/")[2] == low)
    return "" if low in aliases("model") else next(ids, "")


def begins(name: str) -> list[str]:
    """Listed checkpoints, by their last piece, whose name begins like this one; second names with a colon aside.

    >>> begins("qwen3.6")
    ['qwen3.6-27b', 'qwen3.6-35b-a3b']
    """
    return sorted(one for one in listed() if not {"/", ":"} & {*one} and one.startswith(normalise(name)))


def stem(name: str) -> str:
    """The part of the last piece of a hub id that identifies a model: without the words of its table, a family and its
    release apart.

    >>> stem("meta-llama/Meta-Llama-3.1-8B-Instruct"), stem("llama3.1:8b"), stem("Llama-2-13B-chat")
    ('llama-3.1-8b', 'llama-3.1-8b', 'llama-2-13b')
    """
    apart = re.sub(r"^([a-z]+)(?=\d)", r"\1-", normalise(name.rpartition("/")[2]).replace(":", "-"))
    return _without(apart, "words")


def _without(name: str, table: str) -> str:
    """A name without the words of a table."""
    return "-".join(word for word in name.split("-") if word not in _table().names[table])


@lru_cache
def _stems() -> dict[str, Checkpoint]:
    """`stem` of every alias and listed checkpoint -> what it is, with the owner's name before it too, as in names of
    files; a row's own name goes before others' aliases."""
    rows = sorted(aliases("model").items(), key=lambda pair: pair[0] == normalise(pair[1]))
    every = [*listed().items(), *((name, Checkpoint(row)) for name, row in rows)]
    owned = {stem(name.replace("/", "-")): row for name, row in every if "/" in name}
    return owned | {stem(name): row for name, row in every}


def _spelled(name: str) -> str:
    """A name in one spelling: of a GGUF file without its end and part, its type after a hyphen.

    >>> _spelled("Mistral-7B-Instruct-v0.3.Q4_K_M.gguf"), _spelled("gpt-oss-120b-F16-00001-of-00002.gguf")
    ('mistral-7b-instruct-v0.3-q4-k-m', 'gpt-oss-120b-f16')
    >>> _spelled("glm-4.7-flash:q4_K_M")
    'glm-4.7-flash-q4-k-m'
    """
    low = re.sub(r"(-\d{5}-of-\d{5})?(\.gguf|:latest)?$", "", normalise(name))
    low = re.sub(
        r"(-dwq|-autoround|-sym)(-(?!gguf|mlx)[a-z\d]+)?$", r"\1", low
    )  # when, or with which calibration, it was made
    tag, ending = r":(?=i?q\d[a-z0-9-]*$|b?f16$|fp16$)", r"\.(?=i?q\d[a-z0-9-]*$|b?f16$|(?<!quantized\.)w\d+a\d+$)"
    return re.sub(rf"-gguf:(?=[a-z0-9-]+$)|{tag}|{ending}", "-", low)


def _named(name: str) -> Checkpoint | None:
    """What a hub id's rest names: a model or a listed checkpoint, or one trained further that keeps its shape."""
    base = stem(name)
    return _stems().get(base) or _stems().get(_without(base, "tuned"))


def find(name: str) -> Checkpoint | None:
    """The checkpoint of a hub id; None where it is none that is known, or simply a row's own name.

    >>> find("zai-org/GLM-5-FP8").quant, find("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8").max_context
    ('fp8-block', 262144)
    >>> find("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16")  # doctest: +ELLIPSIS
    Checkpoint(model='llama-3.1-70b', quant='int4', max_context=0, ...)
    >>> find("unsloth/Qwen3-30B-A3B-GGUF:Q5_K_M").quant  # as `llama-server -hf` names a file
    'q5_k_m'
    >>> find("Qwen/Qwen3-VL-8B-Thinking").max_context, find("mlx-community/Qwen3-4B-Instruct-2507-4bit-DWQ-2510").quant
    (262144, 'w4a16g32')
    >>> find("Qwen_Qwen3-30B-A3B-IQ2_M.gguf").quant, find("lmstudio-community/Qwen3-8B-MLX-4bit").quant
    ('iq2_m', 'w4a16g32')
    >>> find("Qwen/Qwen3-8B") is None, find("somebody/else-AWQ") is None
    (True, True)
    """
    for low in (normalise(name), _spelled(name)):
        if "/" not in low and low in aliases("model"):  # the table of checkpoints need not be read
            return None
        if low in listed() or low in aliases("model"):
            return listed().get(low)
    publisher, _, rest = low.rpartition("/")
    for end, quant in _endings(publisher).items():
        base = _named(rest.removesuffix(end)) if rest.endswith(end) else None
        if base is not None:
            return msgspec.structs.replace(base, quant=quant or base.quant) if end else base
    return None


def scheme_in_name(name: str) -> str:
    """The scheme that the end of a hub id tells, of whatever model ("": none).

    >>> scheme_in_name("somebody/New-32B-FP8"), scheme_in_name("somebody/New-32B")
    ('fp8', '')
    """
    publisher, _, rest = normalise(name).rpartition("/")
    return next((quant for end, quant in _endings(publisher).items() if end and quant and rest.endswith(end)), "")


def published(model: str, scheme: str) -> str:
    """The hub id of a listed checkpoint of a model in a scheme, whatever its cache's width ("": none is listed).

    >>> published("deepseek-v3", "nvfp4-ffn"), published("llama-7b", "nvfp4")
    ('nvidia/DeepSeek-V3-0324-FP4', '')
    """
    rows = _table().checkpoints.items()
    same = (name for name, row in rows if row.model == model and without_cache(row.quant) == scheme)
    return next(same, "")
