"""Models by name: the catalogue's rows, a Hugging Face config.json, or a TOML file of the user's own.

The schema of a row is made from the dataclasses of `rooflm.catalogue.model`, so a field is described in one place only.
"""

from __future__ import annotations

import os
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec

from rooflm.catalogue import adapter, checkpoints, hub
from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.gguf import read_gguf
from rooflm.catalogue.huggingface.read import read_config
from rooflm.catalogue.model import MLA, MLP, Attention, Block, LinearAttention, Model, MoE, checked
from rooflm.errors import RooflmError, UnknownNameError, near_matches

_MIXERS = {"attention": Attention, "mla": MLA, "mamba2": LinearAttention, "mamba1": LinearAttention,
           "gated-delta": LinearAttention, "kda": LinearAttention, "lightning": LinearAttention,
           "conv": LinearAttention}  # fmt: skip
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
def _packaged(canonical: str) -> Model:
    return from_row(catalogue.raw_row("model", canonical)[0], canonical, f"model {canonical!r}")


def _released(name: str, checkpoint: checkpoints.Checkpoint) -> Model:
    """The row's model as a checkpoint of it was released: its own name, scheme, context and page."""
    row = _packaged(checkpoint.model)
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


def load_model(name: str | os.PathLike[str]) -> Model:
    """The model behind a catalogue name, an alias, a Hugging Face id, a config.json, .gguf or .toml, or a folder that
    holds a config.json, an adapter_config.json or a .gguf.

    An id that the catalogue does not know is looked up in the hub's local cache, then asked of the hub (rooflm[hub]).

    >>> load_model("meta-llama/Llama-2-7b-hf").name
    'llama-2-7b'
    >>> load_model("llama-9")
    Traceback (most recent call last):
    rooflm.errors.UnknownNameError: unknown model 'llama-9': did you mean ...
    """
    text = os.fspath(name)
    if catalogue.is_path(text):
        row, stem = catalogue.raw_row("model", text)
        return from_row(row, str(row.get("name") or stem), text)
    is_file = text.lower().endswith((".json", ".gguf")) or text.startswith((".", "/", "~"))
    if is_file or (catalogue.normalise(text) not in catalogue.aliases("model") and Path(text).is_dir()):
        return _from_path(Path(text).expanduser())
    checkpoint = checkpoints.find(text)
    if checkpoint is not None:
        return _released(text, checkpoint)
    if hub.is_id(text) and catalogue.normalise(text) not in catalogue.aliases("model"):
        return _from_hub(text)
    return _packaged(catalogue.resolve("model", text))


def _from_path(path: Path) -> Model:
    """The model of a file or a folder of the user's own."""
    if path.name == adapter.FILE:
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


def _from_hub(name: str) -> Model:
    """The model of a Hugging Face id that no row has."""
    folder, why = hub.cached(name), ""
    if folder is None:
        folder, why = hub.fetched(name)
    if folder is None:
        page = f"https://huggingface.co/{name}/resolve/main/config.json"
        near = near_matches(name.rpartition("/")[2].lower(), catalogue.names("model"), limit=2)
        hint = f" Neither the catalogue nor the hub's local cache has it, and {why}: give the path of one ({page})"
        hint = hint if near else f".{hint}"
        raise UnknownNameError("model", name, [], hint, near)
    return replace(_from_path(folder), name=name.rpartition("/")[2].lower(), source=f"https://huggingface.co/{name}")
