"""What is measured: a Case, one cell of the grid that `plan` makes of lists."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.asked.checks import whole
from rooflm.errors import RooflmError, near_matches
from rooflm.readers.outside import checked_path
from rooflm.readers.schemes import parse_quant
from rooflm.shown.numbers import gib

TASKS = ("infer", "train", "accuracy", "micro")
DTYPES = ("fp32", "bf16", "fp16")
QUANTS = ("none", "int8-wo", "int4-wo")
ATTENTION = ("sdpa", "eager")
SCHEMES = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
"""Data type of the weights -> the scheme by which predictions know it."""
WEIGHTS = ("*.safetensors", "*.bin")
"""Files of a folder that hold weights."""
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
MAKES = {
    "task": TASKS, "dtype": DTYPES, "quant": QUANTS, "attention": ATTENTION, "device": ("auto", "cpu", "cuda"),
    "size": ("tiny", "small", "full"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One measurement. Degrees, sizes and counts are whole numbers; texts are names from the tuples above.

    model: a Hugging Face folder, a .gguf file, `gguf:PACKAGE` (the one inside an installed package), a config.json or a
    catalogue name (random weights). layers: keep so many (0: all); width_prune: share of heads and feed-forward width
    removed, as in `Model`. prompt, output: tokens a sequence (train: prompt is the sequence). quant: weight-only scheme
    on top of dtype. compiled: torch.compile; graphs: CUDA graphs. repeats: timed runs after `warmup` ones. threads: CPU
    threads of one rank. text: file for perplexity ("" for a text of the standard library), tokens and context of it.
    """

    task: str = "infer"
    model: str = ""
    layers: int = 0
    width_prune: float = 0.0
    dtype: str = "fp32"
    quant: str = "none"
    attention: str = "sdpa"
    compiled: bool = False
    graphs: bool = False
    tp: int = 1
    pp: int = 1
    dp: int = 1
    batch: int = 1
    prompt: int = 32
    output: int = 8
    repeats: int = 5
    warmup: int = 1
    threads: int = 1
    device: str = "auto"
    text: str = ""
    tokens: int = 2044
    context: int = 512
    seed: int = 0
    size: str = "small"

    @property
    def world(self) -> int:
        """Processes that the case needs (a micro-benchmark of collectives takes tp ranks)."""
        return self.tp * self.pp * self.dp

    @cached_property
    def key(self) -> str:
        """Twelve hex digits that name the case in a results file; equal cases have equal keys.

        >>> Case(batch=2).key == Case(batch=2).key, Case(batch=2).key == Case(batch=4).key
        (True, False)
        """
        told = asdict(self) | {"width_prune": float(self.width_prune)}  # 0 and 0.0 are one case
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def scheme(self) -> str:
        """The quantisation scheme by which predictions know the case.

        >>> Case(dtype="fp32").scheme, Case(dtype="bf16", quant="int8-wo").scheme
        ('fp32', 'int8-wo')
        """
        return {"none": SCHEMES[self.dtype], "int8-wo": "int8-wo", "int4-wo": "int4"}[self.quant]

    @property
    def label(self) -> str:
        """The case in a few words, for progress and tables."""
        split = [f"{n}{v}" for n, v in (("tp", self.tp), ("pp", self.pp), ("dp", self.dp)) if v > 1]
        extra = [self.quant] * (self.quant != "none") + ["compiled"] * self.compiled + ["graphs"] * self.graphs
        extra += [self.attention] * (self.attention != "sdpa")
        name = self.model.rstrip("/").rsplit("/", 1)[-1] or self.size
        sizes = "" if self.task in ("micro", "accuracy") else f"b{self.batch} {self.prompt}+{self.output}"
        return " ".join([self.task, name, self.dtype, *split, *extra, sizes]).strip()


def weights_of(scheme: str) -> str:
    """How a case quantises its weights (one of QUANTS), from the name of a scheme.

    >>> weights_of("bf16"), weights_of("int4"), weights_of("w8a16"), weights_of("int8-wo")
    ('none', 'int4-wo', 'int8-wo', 'int8-wo')
    """
    if scheme in QUANTS:
        return scheme
    q = parse_quant(scheme)
    widths = {32: "none", 16: "none", 8: "int8-wo", 4: "int4-wo"}
    if q.act_bits < 16 or q.weight_bits not in widths:
        raise RooflmError(f"quant is {scheme!r}, but it must be bf16 (weights as they are), int8-wo or int4")
    return widths[int(q.weight_bits)]


LEAST = {"layers": 0, "warmup": 0, "seed": 0}
"""Least of a whole number, where it is not 1."""
BROKEN: tuple[tuple[Callable[[Case], Any], str], ...] = (
    (lambda c: not 0 <= c.width_prune < 1, "width_prune is {0.width_prune!r}, but it must be at least 0 and below 1"),
    (lambda c: c.task != "micro" and not c.model,
     "model is missing: a folder, a .gguf, a config.json or a catalogue name"),
    (lambda c: c.text and not checked_path(c.text, "text").is_file(), "text is {0.text!r}, but there is no such file"),
    (lambda c: c.batch % c.dp, "batch is {0.batch}, but it must be a multiple of dp {0.dp}"),
    (lambda c: c.quant != "none" and c.dtype == "fp32",
     "quant is {0.quant!r} with dtype fp32, but weight-only products take bf16 or fp16"),
    (lambda c: c.quant != "none" and c.world > 1,
     "a quantised model is measured in one process: leave tp, pp and dp at 1"),
    (lambda c: c.tp > 1 and c.pp > 1, "tp and pp are measured one at a time: leave one of them at 1"),
    (lambda c: c.task == "train" and c.quant != "none",
     "a training step is measured without quantisation: leave quant out"),
    (lambda c: c.task == "train" and sum(n > 1 for n in (c.tp, c.pp, c.dp)) > 1,
     "a training step is measured with one of tp, pp and dp: leave the others at 1"),
    (lambda c: (c.compiled or c.graphs) and c.world > 1,
     "compiled is measured in one process: leave tp, pp and dp at 1"),
)  # fmt: skip
"""(true of a case that cannot be measured, why not), the first of which that holds is told."""


def check(case: Case) -> Case:
    """The case, if it makes sense; RooflmError names the field, the value and the rule otherwise."""
    for field, known in MAKES.items():
        value = getattr(case, field)
        if value not in known:
            near = near_matches(str(value), known)
            tail = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(known)}"
            raise RooflmError(f"{field} is {value!r}: {tail}")
    for f in fields(Case):
        if f.type == "int":
            whole(f.name, getattr(case, f.name), LEAST.get(f.name, 1))
    for broken, why in BROKEN:
        if broken(case):
            raise RooflmError(why.format(case))
    return case


def gguf_of(name: str) -> Path:
    """The .gguf file that `path.gguf` or `gguf:PACKAGE` refers to."""
    if not name.startswith("gguf:"):
        path = checked_path(name, "model")
        if not path.is_file():
            raise RooflmError(f"model is {name!r}, but there is no such file")
        return path
    package = name.removeprefix("gguf:")
    spec = importlib.util.find_spec(package.replace("-", "_"))
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    files = sorted(folder.rglob("*.gguf")) if folder else []
    if not files:
        raise RooflmError(f"model is {name!r}, but no installed package {package!r} holds a .gguf file")
    return files[0]


def source(name: str) -> tuple[str, Path | None]:
    """("gguf", file), ("folder", folder with weights), ("config", config.json) or ("catalogue", None)."""
    if name.startswith("gguf:") or name.lower().endswith(".gguf"):
        return "gguf", gguf_of(name)
    path = checked_path(name, "model")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise RooflmError(f"model is {name!r}, but the folder holds no config.json")
        return ("folder", path) if any(list(path.glob(w)) for w in WEIGHTS) else ("config", path / "config.json")
    if name.lower().endswith(".json"):
        if not path.is_file():
            raise RooflmError(f"model is {name!r}, but there is no such file")
        return "config", path
    return "catalogue", None


def check_model(name: str) -> str:
    """A model's name that can be built; RooflmError for any other, before anything is started."""
    if source(name)[0] == "catalogue":
        from rooflm.readers.checkpoints.load import load_model

        load_model(name)
    return name


DRIVERS = ("nvidia-smi", "rocm-smi", "amd-smi")
"""Programs that come with the drivers of GPUs on which PyTorch runs by itself."""


def check_room(case: Case, memory: int) -> None:
    """RooflmError where a machine without a GPU would run a case whose random weights are more than its memory (0:
    unknown), before it begins to swap."""
    if not memory or not case.model or source(case.model)[0] not in ("catalogue", "config"):
        return
    if case.device == "cuda" or (case.device == "auto" and any(map(shutil.which, DRIVERS))):
        return
    from rooflm.readers.checkpoints.load import load_model

    model = replace(load_model(case.model), width_prune=case.width_prune)
    kept = case.layers / float(np.max(model.layers)) if case.layers else 1.0
    need = float(np.max(model.parameters)) * min(kept, 1.0) * BYTES[case.dtype] * case.dp
    if need > memory:
        raise RooflmError(
            f"model is {case.model!r}, but its weights in {case.dtype} take {gib(need)}, and this machine has "
            f"{gib(memory)} of memory: give --layers or --width-prune, a narrower --dtype, or a smaller model"
        )
