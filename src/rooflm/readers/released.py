"""Checkpoints of catalogue models under ids of their own: scheme and context (`data/models/_checkpoints.toml`).

Two tables serve them: ids that are listed, and the ends of publishers' ids ("-AWQ", "-quantized.w4a16") whose rest is
the name of a model or of a listed checkpoint.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache

import msgspec

from rooflm.readers.rows import DATA, FOLDERS, aliases, convert, normalise
from rooflm.readers.schemes import without_cache


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What sets a checkpoint apart from its model's row.

    model: the row; quant: its scheme ("": the row's); max_context: tokens (0: the row's); bytes: of its weight files
    and size_source: where that is published; source: page of its config ("": the hub's, made from the id).
    """

    model: str
    quant: str = ""
    max_context: int = 0
    bytes: int = 0
    size_source: str = ""
    source: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    endings: dict[str, dict[str, str]]
    checkpoints: dict[str, Checkpoint]


@lru_cache
def _table() -> _Table:
    path = DATA / FOLDERS["model"] / "_checkpoints.toml"
    return convert(tomllib.loads(path.read_text(encoding="utf-8")), _Table, path.name)


@lru_cache
def listed() -> dict[str, Checkpoint]:
    """Hub id, normalised -> a checkpoint of the table; its last piece alone serves too where no row has that name."""
    whole = {normalise(name): row for name, row in _table().checkpoints.items()}
    short = {name.partition("/")[2]: row for name, row in whole.items()}
    return {name: row for name, row in short.items() if name and name not in aliases("model")} | whole


@lru_cache
def _last_pieces() -> dict[str, str]:
    """Last piece of an alias, such as qwen3-8b of Qwen/Qwen3-8B -> the row."""
    return {alias.rpartition("/")[2]: row for alias, row in aliases("model").items()}


def find(name: str) -> Checkpoint | None:
    """The checkpoint of a hub id; None where it is none that is known, or simply a row's own name.

    >>> find("zai-org/GLM-5-FP8").quant, find("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8").max_context
    ('fp8-block', 262144)
    >>> find("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16")
    Checkpoint(model='llama-3.1-70b', quant='int4', max_context=0, bytes=0, size_source='', source='')
    >>> find("Qwen/Qwen3-8B") is None, find("somebody/else-AWQ") is None
    (True, True)
    """
    low = normalise(name)
    if low in listed():
        return listed()[low]
    publisher, _, rest = low.partition("/")
    if not rest or low in aliases("model"):
        return None
    for end, quant in _table().endings.get(publisher, {}).items():
        base = rest.removesuffix(end)
        if base == rest and end:
            continue
        if base in listed():
            return msgspec.structs.replace(listed()[base], quant=quant or listed()[base].quant, bytes=0, size_source="")
        if base in _last_pieces():
            return Checkpoint(_last_pieces()[base], quant)
    return None


def published(model: str, scheme: str) -> str:
    """The hub id of a listed checkpoint of a model in a scheme, whatever its cache's width ("": none is listed).

    >>> published("deepseek-v3", "nvfp4-ffn"), published("llama-7b", "nvfp4")
    ('nvidia/DeepSeek-V3-0324-FP4', '')
    """
    rows = _table().checkpoints.items()
    same = (name for name, row in rows if row.model == model and without_cache(row.quant) == scheme)
    return next(same, "")
