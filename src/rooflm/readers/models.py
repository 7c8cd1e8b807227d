"""Models of the catalogue: its rows, the checkpoints released of them, and a TOML file of the user's own."""

from __future__ import annotations

import warnings
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from rooflm.catalogue.fields import abouts
from rooflm.catalogue.model import Attention, Model, MoE
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.readers import released
from rooflm.readers.rows import normalise, raw_row
from rooflm.readers.tables import dataclass_fields, field_value

SAID = ("aliases", "note", "name")
"""What a row may say beside the model."""


def from_row(row: dict[str, Any], name: str, label: str) -> Model:
    """A Model from a parsed TOML table; RooflmError names the file, the field, the value and the rule."""
    read = dataclass_fields(Model, {k: v for k, v in row.items() if k not in SAID}, label, but=("name",))
    same = {b.mixer: b.mixer for b in reversed(read["blocks"])}  # equal mixers are one object: a graph holds them once
    read["blocks"] = tuple(replace(b, mixer=same[b.mixer]) for b in read["blocks"])
    return checked(Model(name, **read), label)


@lru_cache(maxsize=512)
def packaged(canonical: str) -> Model:
    """The model of a row by the row's own name."""
    return from_row(raw_row("model", canonical)[0], canonical, f"model {canonical!r}")


def as_released(name: str, checkpoint: released.Checkpoint) -> Model:
    """The row's model as a checkpoint of it was released: its own name, scheme, context and page; a RooflmWarning where
    it is a part of the checkpoint."""
    row = packaged(checkpoint.model)
    if checkpoint.towers:
        warnings.warn(f"{name}: its language model alone, without its vision or audio towers, which its config.json "
                      "would count in memory", RooflmWarning, stacklevel=3)  # fmt: skip
    return replace(
        row, name=normalise(name).rpartition("/")[2], quant=checkpoint.quant or row.quant,
        max_context=checkpoint.max_context or row.max_context,
        source=checkpoint.source or (f"https://huggingface.co/{name}" if "/" in name else row.source),
    )  # fmt: skip


def _bounds(part: Any, at: str) -> None:
    """RooflmError for the first value of a model or of one of its parts that is out of bounds."""
    known = abouts(type(part))
    for f in fields(part):
        value, name = getattr(part, f.name), f"{at}{f.name}"
        if is_dataclass(value):
            _bounds(value, f"{name}.")
        elif f.name == "blocks":
            for i, block in enumerate(value):
                _bounds(block, f"{name}[{i}].")
        elif f.name in known:
            field_value(name, value, known[f.name])


def checked(model: Model, label: str) -> Model:
    """The model itself when its shapes make sense; otherwise RooflmError naming the field, the value and the rule.

    For models as read: besides the rules of the fields, queries come in whole groups a KV head, no more experts are
    chosen than there are, and no block is empty.
    """
    _bounds(model, f"{label}: ")
    if not model.blocks:
        raise RooflmError(f"{label}: blocks is empty, but a model needs at least one block")
    for i, block in enumerate(model.blocks):
        mixer, ffn, at = block.mixer, block.ffn, f"{label}: blocks[{i}]"
        if isinstance(mixer, Attention) and mixer.heads % mixer.kv_heads:
            rule = f"a multiple of kv_heads {mixer.kv_heads}"
            raise RooflmError(f"{at}.mixer.heads is {mixer.heads}, but it must be {rule}")
        if isinstance(ffn, MoE) and ffn.top_k > ffn.experts:
            raise RooflmError(f"{at}.ffn.top_k is {ffn.top_k}, but there are only {ffn.experts} experts")
        if mixer is None and ffn is None:
            raise RooflmError(f"{at} is empty, but a block needs a mixer or a feed-forward")
    return model
