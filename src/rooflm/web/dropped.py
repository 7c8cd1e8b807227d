"""Models that a person drops on the page: a config.json or the head of a GGUF file, parsed as data.

A config is small: it goes into the address, so that a link holds it. What is larger is kept in memory by its digest,
and a link to it works as long as this server runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
import threading
import warnings
import zlib
from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model

LARGEST = {"json": 2 * 2**20, "gguf": 48 * 2**20}
"""Bytes that are read of a file of a kind: a config, or the head of a GGUF file (metadata and table of tensors)."""
IN_ADDRESS = 5000
"""Characters of a packed config up to which it goes into the address."""
KEPT = 32
"""Most models of larger files kept in memory."""
_NAME = re.compile(r"(config|file)~([\w.-]{1,60})~([\w=-]+)", re.ASCII)
_held: OrderedDict[str, tuple[Model, tuple[str, ...]]] = OrderedDict()
_lock = threading.Lock()


def is_dropped(name: str) -> bool:
    """Whether a model's name in the address stands for a dropped file."""
    return _NAME.fullmatch(name) is not None


def shown_name(name: str) -> str:
    """The file's name behind a dropped model's, any other name as it is.

    >>> shown_name("config~mine.json~eJx"), shown_name("llama-7b")
    ('mine.json', 'llama-7b')
    """
    found = _NAME.fullmatch(name)
    return found[2] if found else name


def keep(file: str, data: bytes) -> str:
    """The name in the address of a dropped file, once it is known to be a model. RooflmError otherwise."""
    title = re.sub(r"[^\w.-]+", "-", file, flags=re.ASCII).strip("-.")[-60:] or "config.json"
    kind = "gguf" if data[:4] == b"GGUF" else "json"
    if len(data) > LARGEST[kind]:
        raise RooflmError(f"{title} has more than {LARGEST[kind] >> 20} MiB, which is more than is read of such a file")
    packed = base64.urlsafe_b64encode(zlib.compress(_compact(data, title), 9)).decode() if kind == "json" else ""
    if packed and len(packed) <= IN_ADDRESS:
        name = f"config~{title}~{packed}"
        dropped_model(name)
        return name
    digest = hashlib.sha256(data).hexdigest()[:24]
    _held[digest] = _parsed(kind, title, data)
    while len(_held) > KEPT:
        _held.popitem(last=False)
    return f"file~{title}~{digest}"


def _compact(data: bytes, title: str) -> bytes:
    """A config without blanks."""
    try:
        return json.dumps(json.loads(data), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        raise RooflmError(f"{title} is neither JSON nor GGUF: drop a model's config.json or its .gguf file") from None


def dropped_model(name: str) -> tuple[Model, tuple[str, ...]]:
    """The model behind a dropped file's name, and what a person should know of how it was read."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise RooflmError("the address holds no readable model: drop its file again")
    kind, title, rest = found.groups()
    if kind == "config":
        return _packed(title, rest)
    if rest not in _held:
        raise RooflmError(f"{title} is no longer held by this server: drop the file again")
    return _held[rest]


@lru_cache(maxsize=64)
def _packed(title: str, text: str) -> tuple[Model, tuple[str, ...]]:
    """The model of a config in the address."""
    return _parsed("json", title, _unpacked(text))


def _unpacked(text: str) -> bytes:
    """A config from the address, never more than a config may have."""
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.urlsafe_b64decode(text), LARGEST["json"])
    except (ValueError, zlib.error):
        raise RooflmError("the address holds no readable model: drop its file again") from None
    if reader.unconsumed_tail:
        raise RooflmError("the model in the address is too large: drop its file again")
    return data


def _parsed(kind: str, title: str, data: bytes) -> tuple[Model, tuple[str, ...]]:
    """The model in a file's bytes: read through a file of our own name, so that no name from the page is opened."""
    with tempfile.TemporaryDirectory() as folder, _lock, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        file = Path(folder) / f"dropped.{kind}"
        file.write_bytes(data)
        try:
            model = load_model(str(file))
        except RooflmError as error:
            raise RooflmError(str(error).replace(str(file), title)) from None
        notes = tuple(str(w.message).replace(str(file), title) for w in told)
    stem = re.sub(r"[^\w-]+", "-", title.removesuffix(".json").removesuffix(".gguf"), flags=re.ASCII)
    return replace(model, name="dropped-model" if stem == "config" else stem, source=title), notes
