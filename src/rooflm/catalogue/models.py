"""Models of the catalogue: its rows, the checkpoints released of them, and a TOML file of the user's own.

The schema of a row is made from the dataclasses of `rooflm.catalogue.model`, so a field is described in one place only.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from functools import lru_cache
from types import GenericAlias
from typing import Any

import msgspec

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue import released
from rooflm.catalogue.model import (
    MLA,
    MLP,
    Attention,
    Block,
    CompressedAttention,
    LinearAttention,
    Model,
    MoE,
    checked,
)

_MIXERS = {"attention": Attention, "mla": MLA, "compressed": CompressedAttention, "mamba2": LinearAttention,
           "mamba1": LinearAttention, "gated-delta": LinearAttention, "kda": LinearAttention,
           "lightning": LinearAttention, "conv": LinearAttention}  # fmt: skip
_FFNS = {"mlp": MLP, "moe": MoE}
_TYPES: dict[str, Any] = {"Num": int | float, "bool": bool, "str": str, "float": int | float,
                          "tuple[str, ...]": list[str]}  # fmt: skip


def _struct(shape: type, tag: str | None = None, **types: Any) -> Any:
    """A strict msgspec struct with the fields of a dataclass; `tag` is its `kind`. A mixer or ffn may be left out."""
    columns: list[Any] = []
    for f in fields(shape):
        if f.name != "kind":
            default = None if f.name in ("mixer", "ffn") else f.default
            columns.append((f.name, types.get(f.name, _TYPES.get(str(f.type))), *[default][: default is not MISSING]))
    return msgspec.defstruct(
        (tag or shape.__name__).replace("-", "_"), columns, forbid_unknown_fields=True, kw_only=True, tag=tag,
        tag_field="kind" if tag else None,
    )  # fmt: skip


def _union(kinds: dict[str, type]) -> Any:
    made: Any = None
    for tag, shape in kinds.items():
        made = made | _struct(shape, tag)
    return made


@lru_cache
def _schema() -> Any:
    block = _struct(Block, mixer=_union(_MIXERS), ffn=_union(_FFNS))
    row = _struct(Model, blocks=GenericAlias(list, (block,)))
    return msgspec.defstruct(
        "Row", [("aliases", list[str], []), ("note", str, ""), ("name", str, "")], bases=(row,),
        kw_only=True, forbid_unknown_fields=True,
    )  # fmt: skip


def _plain(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _part(struct: Any, kinds: dict[str, type]) -> Any:
    if struct is None:
        return None
    tag = struct.__struct_config__.tag
    shape = kinds[tag]
    return shape(**({"kind": tag} if shape is LinearAttention else {}), **_plain(struct))


def from_row(row: dict[str, Any], name: str, label: str) -> Model:
    """A Model from a parsed TOML table; RooflmError names the file, the field, the value and the rule."""
    read = _plain(catalogue.convert(row, _schema(), label))
    blocks = tuple(
        Block(**_plain(b) | {"mixer": _part(b.mixer, _MIXERS), "ffn": _part(b.ffn, _FFNS)}) for b in read["blocks"]
    )
    same = {b.mixer: b.mixer for b in reversed(blocks)}  # equal mixers are one object: a graph holds them once
    blocks = tuple(replace(b, mixer=same[b.mixer]) for b in blocks)
    del read["aliases"], read["note"]
    own = {"name": name, "blocks": blocks, "lora_modules": tuple(read["lora_modules"])}
    return checked(Model(**read | own), label)


@lru_cache(maxsize=512)
def packaged(canonical: str) -> Model:
    """The model of a row by the row's own name."""
    return from_row(catalogue.raw_row("model", canonical)[0], canonical, f"model {canonical!r}")


def as_released(name: str, checkpoint: released.Checkpoint) -> Model:
    """The row's model as a checkpoint of it was released: its own name, scheme, context and page."""
    row = packaged(checkpoint.model)
    return replace(
        row, name=catalogue.normalise(name).rpartition("/")[2], quant=checkpoint.quant or row.quant,
        max_context=checkpoint.max_context or row.max_context,
        source=checkpoint.source or (f"https://huggingface.co/{name}" if "/" in name else row.source),
    )  # fmt: skip


def model_names() -> list[str]:
    """The names of every model in the catalogue, sorted.

    >>> "llama-2-7b" in model_names()
    True
    """
    return catalogue.names("model")
