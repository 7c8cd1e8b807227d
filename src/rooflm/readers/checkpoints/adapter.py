"""A PEFT adapter folder as a model: adapter_config.json names the base, the rank and the products that are adapted.

Source: PEFT documentation, LoraConfig (r, target_modules, base_model_name_or_path).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.estimate.memory import adapter_params
from rooflm.readers.checkpoints.config import read_json
from rooflm.scenario.mapping import Mapping

FILE = "adapter_config.json"
MODULES = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "qkv_proj": "qkv", "query_key_value": "qkv", "c_attn": "qkv",
    "o_proj": "out", "out_proj": "out", "dense": "out", "gate_proj": "gate", "up_proj": "up", "gate_up_proj": "gate_up",
    "fc1": "up", "dense_h_to_4h": "up", "down_proj": "down", "fc2": "down", "dense_4h_to_h": "down", "w1": "gate",
    "w2": "down", "w3": "up", "wq": "q", "wk": "k", "wv": "v", "wo": "out", "Wqkv": "qkv",
    "W_pack": "qkv", "c_fc": "up",
}  # fmt: skip
"""target_modules -> the products of `training.lora_modules`."""
ALL = ("q", "kv", "out", "gate", "up", "down")


def modules(targets: Any) -> tuple[str, ...]:
    """The products that target_modules names: a list, a pattern, or "all-linear".

    >>> modules(["q_proj", "v_proj"]), modules("all-linear") == ALL
    (('q', 'v'), True)
    """
    if not isinstance(targets, list):
        text = str(targets or "all-linear")
        named = [ours for theirs, ours in MODULES.items() if theirs in text]
        return tuple(dict.fromkeys(named)) or ALL
    known = [MODULES[t.rpartition(".")[2]] for t in targets if isinstance(t, str) and t.rpartition(".")[2] in MODULES]
    return tuple(dict.fromkeys(known)) or ALL


def read_adapter(folder: Path, load: Callable[[str], Model]) -> Model:
    """The base model with the folder's adapters in memory; `load` finds the base by its path or id."""
    file = folder / FILE
    config = read_json(file)
    base, rank = config.get("base_model_name_or_path"), config.get("r")
    kind = str(config.get("peft_type") or "LORA").upper()
    if kind not in ("LORA", "ADALORA", "XLORA", "LOHA", "LOKR", "OFT", "BOFT"):
        raise RooflmError(f"{file}: peft_type is {kind!r}, but only low-rank adapters are read, such as 'LORA'")
    if not isinstance(base, str) or not base:
        raise RooflmError(f"{file}: base_model_name_or_path is {base!r}, but it must name the base model")
    rank = rank if rank is not None else config.get("init_r") or config.get("oft_block_size")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= 65536:
        raise RooflmError(f"{file}: r is {rank!r}, but it must be a whole number of at least 1")
    beside = folder / base
    try:
        found = load(str(beside) if beside.is_dir() else base)
    except RooflmError as error:
        raise RooflmError(f"{file}: its base model cannot be read: {error}") from error
    targets = modules(config.get("target_modules"))
    named = config.get("target_modules")
    each = [t for t in named if isinstance(t, str)] if isinstance(named, list) else []
    left = [t for t in each if t.rpartition(".")[2] not in MODULES]
    if left and len(left) < len(each):
        warnings.warn(f"{file}: target_modules names {', '.join(left)}, whose adapters are not counted", RooflmWarning,
                      stacklevel=3)  # fmt: skip
    extra = int(adapter_params(found, Mapping(), rank, targets, joined=True))
    return replace(
        found, name=f"{found.name}+{folder.absolute().name}", extra_params=found.extra_params + extra, lora_rank=rank,
        lora_modules=targets,
    )  # fmt: skip
