"""A model by whatever names it: a catalogue name or alias, a Hugging Face id, a file or a folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError, RooflmWarning, UnknownNameError, near_matches
from rooflm.readers import outside, released, rows
from rooflm.readers.checkpoints import hub
from rooflm.readers.models import as_released, from_row, packaged

PAGE = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+).*$")
"""A page of the hub, whose model it names."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".onnx")
"""Ends of files of weights, which do not say what they are of."""
OTHERWISE = " (its Hugging Face id, config.json or .gguf will do too)"


def load_model(name: str | os.PathLike[str] | Mapping[str, Any]) -> Model:
    """The model behind a catalogue name, an alias, a Hugging Face id, a config.json, .gguf or .toml, or a folder that
    holds a config.json, an adapter_config.json or a .gguf; or behind the fields of a config.json: a dict, or a config
    of transformers.

    An id that the catalogue does not know is looked up in the hub's local cache, then asked of the hub (rooflm[hub]).

    >>> load_model("meta-llama/Llama-2-7b-hf").name, load_model("https://huggingface.co/Qwen/Qwen3-8B/tree/main").name
    ('llama-2-7b', 'qwen3-8b')
    >>> load_model("llama-9")
    Traceback (most recent call last):
    rooflm.errors.UnknownNameError: unknown model 'llama-9': did you mean ...
    """
    if not isinstance(name, str | os.PathLike):
        return _from_fields(name)
    text = PAGE.sub(r"\1", os.fspath(name))
    if rows.is_path(text):
        row, stem = rows.raw_row("model", text)
        return from_row(row, str(row.get("name") or stem), text)
    is_file = text.lower().endswith((".json", ".gguf", *WEIGHTS)) or text.startswith((".", "/", "~"))
    if is_file or (rows.normalise(text) not in rows.aliases("model") and Path(text).is_dir()):
        path = outside.checked_path(text, "model")
        named = path.suffix.lower() == ".gguf" and not path.exists() and released.find(path.name)
        if not named:
            return _from_path(path)
        if path.parent != Path():
            raise RooflmError(f"cannot read {text!r}: there is no such file; its name alone will do: {path.name}")
        warnings.warn(f"{text}: there is no such file here; read by its name", RooflmWarning, stacklevel=2)
    checkpoint = released.find(text)
    if checkpoint is not None:
        return as_released(text, checkpoint)
    if hub.is_id(text) and rows.normalise(text) not in rows.aliases("model"):
        return _from_hub(text)
    try:
        return packaged(rows.resolve("model", text))
    except UnknownNameError as unknown:
        own = any(one.startswith(rows.normalise(text)) for one in rows.names("model"))
        near = unknown.near if own else released.begins(text)[:3] or unknown.near
        raise _of_another_kind(text) or UnknownNameError("model", text, [], OTHERWISE, near) from None


def _of_another_kind(name: str) -> RooflmError | None:
    """Why a model cannot be read that is named after a family whose configs are refused; None for any other name, and
    where rows of the catalogue have that name too (ERNIE, once an encoder).

    >>> str(_of_another_kind("flan-t5-xl"))
    "unknown model 'flan-t5-xl': t5 cannot be read, as it is an encoder with a decoder, not a decoder-only language ..."
    """
    from rooflm.readers.checkpoints.families import refused  # a row of the catalogue needs no reader of checkpoints

    mine = {row.partition("-")[0] for row in rows.names("model")}
    pieces = rows.normalise(name.rpartition("/")[2]).split("-")
    family = next((piece for piece in pieces if piece not in mine and refused(piece)), "")
    said = f"unknown model {name!r}: {family} cannot be read, as {refused(family)}"
    return RooflmError(said) if family else None


def _from_path(path: Path) -> Model:
    """The model of a file or a folder of the user's own."""
    from rooflm.readers.checkpoints import adapter  # a row of the catalogue needs no reader of checkpoints
    from rooflm.readers.checkpoints.gguf import read_gguf
    from rooflm.readers.checkpoints.read import read_config

    if path.name == adapter.FILE:
        path = path.parent
    if path.name.lower().endswith(WEIGHTS):
        if not (path.parent / "config.json").is_file():
            raise RooflmError(f"{str(path)!r} is a file of weights: what the model is says its config.json: name that")
        path = path.parent
    if path.is_dir() and not (path / "config.json").is_file():
        if (path / adapter.FILE).is_file():
            return adapter.read_adapter(path, load_model)
        files = sorted(p for p in path.glob("*.gguf") if not p.name.lower().startswith("mmproj"))
        whole = [p for p in files if "-of-" not in p.stem or "-00001-of-" in p.stem]
        if len(whole) > 1:
            names = ", ".join(p.name for p in whole[:4])
            raise RooflmError(f"{str(path)!r} holds {len(whole)} models: name one of {names}")
        path = whole[0] if whole else path
    return read_gguf(path) if path.suffix.lower() == ".gguf" else read_config(path)


def _from_fields(config: Any) -> Model:
    """The model of a config's fields, named as they name it."""
    from rooflm.readers.checkpoints.read import from_fields

    fields = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(fields, Mapping):
        raise RooflmError(f"model is {config!r}, but it must be a name, a path or the fields of a config.json")
    name = str(fields.get("_name_or_path") or fields.get("name") or fields.get("model_type") or "own")
    return from_fields(dict(fields), name, name.rstrip("/").rpartition("/")[2].lower())


def _from_hub(name: str) -> Model:
    """The model of a Hugging Face id that no row has."""
    folder, why = hub.cached(name), ""
    if folder is None:
        folder, why = hub.fetched(name)
    if folder is None:
        page = f"https://huggingface.co/{name}/resolve/main/config.json"
        near = near_matches(name.rpartition("/")[2].lower(), rows.names("model"), limit=2)
        lacks = f"neither the catalogue nor the hub's local cache has it, and {why}"
        hint = f" (give the path of its config.json, from {page}, as {lacks})"
        raise _of_another_kind(name) or UnknownNameError("model", name, [], hint, near)
    return replace(_from_path(folder), name=name.rpartition("/")[2].lower(), source=f"https://huggingface.co/{name}")
