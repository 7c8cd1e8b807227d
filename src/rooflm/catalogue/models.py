"""Models of the catalogue: its rows, the checkpoints released of them, and a TOML file of the user's own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from rooflm.catalogue import released
from rooflm.catalogue.fields import values
from rooflm.catalogue.model import Model, checked
from rooflm.catalogue.rows import names, normalise, raw_row

SAID = ("aliases", "note", "name")
"""What a row may say beside the model."""


def from_row(row: dict[str, Any], name: str, label: str) -> Model:
    """A Model from a parsed TOML table; RooflmError names the file, the field, the value and the rule."""
    read = values(Model, {k: v for k, v in row.items() if k not in SAID}, label, but=("name",))
    same = {b.mixer: b.mixer for b in reversed(read["blocks"])}  # equal mixers are one object: a graph holds them once
    read["blocks"] = tuple(replace(b, mixer=same[b.mixer]) for b in read["blocks"])
    return checked(Model(name, **read), label)


@lru_cache(maxsize=512)
def packaged(canonical: str) -> Model:
    """The model of a row by the row's own name."""
    return from_row(raw_row("model", canonical)[0], canonical, f"model {canonical!r}")


def as_released(name: str, checkpoint: released.Checkpoint) -> Model:
    """The row's model as a checkpoint of it was released: its own name, scheme, context and page."""
    row = packaged(checkpoint.model)
    return replace(
        row, name=normalise(name).rpartition("/")[2], quant=checkpoint.quant or row.quant,
        max_context=checkpoint.max_context or row.max_context,
        source=checkpoint.source or (f"https://huggingface.co/{name}" if "/" in name else row.source),
    )  # fmt: skip


def model_names() -> list[str]:
    """The names of every model in the catalogue, sorted.

    >>> "llama-2-7b" in model_names()
    True
    """
    return names("model")
