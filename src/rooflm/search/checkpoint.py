"""Which files of weights a deployment starts from: the hub id or the path of a checkpoint of the scheme that was
chosen, and what to do where none of it is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.readers import rows as catalogue
from rooflm.readers.command import command_of
from rooflm.readers.released import hub_id, published
from rooflm.readers.schemes import without_cache

HUB = "https://huggingface.co/"


class Weights(NamedTuple):
    """name: hub id or path that the command is given; online: the engine narrows it while it loads; note: what the
    reader has to do first ("": nothing)."""

    name: str
    online: bool = False
    note: str = ""


def plain_fp8(q: Quant) -> bool:
    """Whether a scheme is 8-bit floats without blocks, to which engines narrow weights as they load them."""
    return q.weight_bits == 8 and q.act_bits == 8 and q.kind != "int" and not q.block


def home_of(named: str, model: Model) -> str:
    """The hub id or path of a model that was given by name, id or path; "" where no page of it is a hub's.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> home_of("llama-3.1-70b", load_model("llama-3.1-70b"))
    'meta-llama/Llama-3.1-70B'
    """
    path = Path(named).expanduser()
    if path.exists():
        return str(path.parent if path.name == "config.json" else path)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", named):
        return named
    if listed := hub_id(named):
        return listed
    if model.source.startswith(HUB):
        return "/".join(model.source.split()[0].removeprefix(HUB).split("/")[:2])
    ids = [a for a in catalogue.raw_row("model", model.name)[0].get("aliases", ()) if a.count("/") == 1]
    return ids[0] if ids else ""


def weights_for(named: str, model: Model, quant: Quant, engine: Engine) -> Weights:
    """The checkpoint of a scheme: the model's own where it was released so, else a published one, else the wide one
    that the engine narrows as it loads, else a path to be filled with a note of what belongs there."""
    own = model.quant or "bf16"
    home = home_of(named, model) or f"./{model.name}"
    stem = home.rstrip("/").rpartition("/")[2]
    asked, wide = without_cache(quant.name), quant.weight_bits >= 16
    if command_of(engine).weights == "gguf":
        if home.lower().endswith(".gguf"):
            return Weights(home)
        kind = "F16" if wide else asked.upper().replace("-", "_")
        if files := re.fullmatch(r"(?i)([\w.-]+/([\w.-]+)-gguf)(:.*)?", home):
            file = f"{files[2]}-{kind}.gguf"
            return Weights(file, note=f"{file}: a file of {HUB}{files[1]}")
        file = f"{stem}-{kind}.gguf"
        made = f"python convert_hf_to_gguf.py {home} --outfile {stem}-F16.gguf"
        made += "" if wide else f" && llama-quantize {stem}-F16.gguf {file} {kind}"
        return Weights(file, note=f"{file}: a published one, or {made}")
    if asked == without_cache(own) or (wide and not model.quant) or own == quant.name:
        return Weights(home)
    found = published(model.name, asked)
    if found:
        return Weights(found)
    if plain_fp8(quant) and command_of(engine).fp8 and not model.quant:
        return Weights(home, online=True)
    name = f"./{stem}-{asked}"
    return Weights(name, note=f"{name}: put a checkpoint in {asked} there, or its hub id here; {home} is {own}")
