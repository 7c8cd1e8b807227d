"""The fields of a Hugging Face config.json, each checked as it is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers import outside
from rooflm.readers.checkpoints.families import Family, Trait, table

_MOST = 2**40


class Config:
    """The fields of a Hugging Face config.json by our names or its own, each validated on access. RooflmError names the
    field, its value and the rule."""

    def __init__(self, fields: dict[str, Any], family: Family, label: str) -> None:
        self.fields, self.family, self.label = {**family.defaults, **fields}, family, label
        self.at: int | None = None

    def layer(self, i: int) -> Config:
        """The config as seen by layer `i`: its entry of `per_layer_config`, and its item of every list with one value
        per layer."""
        own = copy.copy(self)
        own.at = i
        each = self.get("per_layer_config")
        found = [v for k, v in each.items() if k.isdigit() and int(k) == i] if isinstance(each, dict) else []
        if found and isinstance(found[0], dict):
            own.fields = {**self.fields, **found[0]}
        return own

    def get(self, key: str) -> Any:
        """The value of a field ("a.b" looks inside an object), None when absent or null."""
        value: Any = self.fields
        for piece in key.split("."):
            value = value.get(piece) if isinstance(value, dict) else None
        return value

    def key(self, name: str) -> str:
        """What this config calls our `name`: the first of its spellings that is there, else the usual one."""
        own = self.family.names.get(name)
        spellings = (own,) if own else table().standard.get(name, (name,))
        return next((k for k in spellings if self.get(k) is not None), spellings[0])

    def bad(self, key: str, rule: str) -> RooflmError:
        """The error for a field that breaks a rule."""
        shown = repr(self.get(key))
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return RooflmError(f"{self.label}: {key} is {shown}, but it must be {rule}")

    def number(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`; `default` when the field is absent (None: it must be there)."""
        key = self.key(name)
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, list) and value:
            value = value[self.at] if self.at is not None and self.at < len(value) else common_value(value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, int | float) and value > _MOST:
            raise self.bad(key, f"a whole number of at most {_MOST:,}")
        if not whole or value < least:
            raise self.bad(key, f"a whole number of at least {least}")
        return int(value)

    def flag(self, trait: Trait) -> bool:
        """A trait of the family: fixed, or read from its config field ("field?" defaults to true; "field!" is
        negated)."""
        if isinstance(trait, bool):
            return trait
        key = trait.strip("?!")
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.bad(key, "true or false")
        return trait[-1] in "?!" if value is None else value is not trait.endswith("!")

    def items(self, key: str, kind: type, length: int | None = None) -> list[Any] | None:
        """A list of `kind` (empty or of `length` items, when that is given), None when absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, kind) for v in value):
            raise self.bad(key, f"a list of {'whole numbers' if kind is int else 'names'}")
        if value and length is not None and len(value) != length:
            raise RooflmError(f"{self.label}: {key} has {len(value)} items, but there are {length} layers")
        return value

    def has(self, name: str) -> bool:
        """True when the field is there and is neither null nor 0."""
        value = self.get(self.key(name))
        return value is not None and (isinstance(value, bool) or value != 0)


def common_value(values: list[Any]) -> Any:
    """The value that all items of a list share; the list itself if they differ."""
    return values[0] if all(v == values[0] for v in values) else values


_NESTED = ("text_config", "thinker_config", "llm_config", "language_config")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; RooflmError if it cannot be read or is not an object."""
    found = outside.read_json(path, "config")
    if not isinstance(found, dict):
        raise RooflmError(f"{path} holds {json.dumps(found)[:40]}, but a model's config is a JSON object")
    return found


def language_part(config: dict[str, Any], label: str) -> dict[str, Any]:
    """The fields of the language model: those of a nested text_config go before the outer ones."""
    nested = next((config[k] for k in _NESTED if config.get(k)), None)
    if nested is None:
        return config
    if not isinstance(nested, dict):
        raise RooflmError(f"{label}: text_config is {json.dumps(nested)[:40]}, but it must be a JSON object")
    if any(isinstance(nested.get(k), dict) for k in _NESTED):
        return language_part(nested, label)
    outer = ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings", "model_type", "_name_or_path")
    joined = {**{k: config[k] for k in outer if k in config}, **nested}
    tied = config.get("tie_word_embeddings")  # the outer model's word holds where it says one
    return joined | ({"tie_word_embeddings": tied} if isinstance(tied, bool) else {})
