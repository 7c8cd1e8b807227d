"""The names that published tables use, as catalogue names: aliases.toml first, then the catalogue's own aliases."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers import rows as catalogue
from rooflm.readers.engines import load_engine
from rooflm.readers.released import find
from rooflm_fit.convert.cells import Unusable, shipped


@lru_cache
def table() -> dict[str, Any]:
    """aliases.toml, with the keys of its name tables normalised."""
    raw = dict(shipped("aliases"))
    for section in ("models", "gpus", "counts", "precisions", "metrics", "cards"):
        raw[section] = {catalogue.normalise(k): v for k, v in raw[section].items()}
    for section in ("gpus_of", "devices"):
        raw[section] = {s: {catalogue.normalise(k): v for k, v in t.items()} for s, t in raw[section].items()}
    return raw


def ruled(section: str, said: str) -> Any:
    """What aliases.toml has for the first pattern of a section that is found in a text; None where none is."""
    patterns = table()[section].items()
    return next((rule for pattern, rule in patterns if re.search(pattern, said, re.IGNORECASE)), None)


FILE_TYPE = re.compile(r"[-_.](UD-)?(BF16|F16|I?Q\d\w*|MXFP4\w*)(\.gguf)?$", re.IGNORECASE)
"""How names of GGUF files end: the type of their weights."""


@lru_cache(maxsize=4096)
def model(name: str) -> str | None:
    """The catalogue name (or the name of one of aliases.toml's architectures), or None; the type of a file is no part
    of its model's name, and a checkpoint under an id of its own is its model.

    >>> model("mistralai/Mistral-7B-v0.1"), model("GPT-89B"), model("nobody-9b"), model("gemma-4-31B-it-UD-Q8_K_XL")
    ('mistral-7b', 'gpt-89b', None, 'gemma-4-31b')
    >>> model("Qwen/Qwen3-4B-Instruct-2507-FP8")
    'qwen3-4b'
    """
    known = table()["models"]
    name = name if catalogue.normalise(name) in known else FILE_TYPE.sub("", name)
    target = known.get(catalogue.normalise(name), name)
    if target in table()["architectures"]:
        return str(target)
    row = catalogue.aliases("model").get(catalogue.normalise(target))
    released = None if row else find(target)
    return released.model if released else row


def model_cells(name: str) -> tuple[str, dict[str, Any]]:
    """(resolved name, cells: it, with the sizes of a model that the catalogue lacks); Unusable when unknown."""
    found = model(name)
    if found is None:
        raise Unusable(f"unknown model {name}" if name else "model not stated")
    return found, {"model": found, **table()["architectures"].get(found, {})}


@lru_cache(maxsize=4096)
def gpu(name: str, source: str = "") -> str:
    """The catalogue's GPU; `source` picks readings that hold for one source only. Unusable when unknown.

    >>> gpu("H100-SXM-80GB"), gpu("Nvidia A100", "argonne"), gpu("H100 [DGX-H100_H100-SXM-80GBx8_TRT]")
    ('h100-sxm-80gb', 'a100-sxm-40gb', 'h100-sxm-80gb')
    """
    if not name:
        raise Unusable("GPU not stated")
    key = catalogue.normalise(name)
    target = table()["gpus_of"].get(source, {}).get(key) or table()["gpus"].get(key) or ruled("gpu_patterns", name)
    try:
        return catalogue.resolve("gpu", target or name)
    except RooflmError:
        raise Unusable(f"unknown gpu {name}") from None


def devices(name: str, source: str) -> int:
    """Devices that software sees of one GPU as a source prints and counts it.

    >>> devices("AMD MI250", "argonne"), devices("AMD MI250", "vllm-blog"), devices("MI250 GCD", "argonne")
    (2, 1, 1)
    """
    return int(table()["devices"].get(source, {}).get(catalogue.normalise(name), 1))


def said(source: str, note: str, engine: str = "") -> str:
    """The key of the rows here whose conditions hold for a table that says so, whatever its ids are; "" for the others.

    >>> said("a page", "silicon measurement in NVIDIA aiconfigurator"), said("x", "max load", "TensorRT-LLM v1.2")
    ('aic', 'trtllm10')
    >>> said("x", "all requests queued at once", "vLLM 0.11"), said("x", "closed loop", "NIM 1.8.0")
    ('', 'nim')
    """
    return ruled("said", f"{source} | {note} | {engine}") or ""


def precision(cell: str) -> str:
    """A printed type of weights in the words that the tables share; what has no other name, as printed.

    >>> precision("BFloat16"), precision("FP8 (E4M3)"), precision("fp8_per_block"), precision("Q4_K_M")
    ('bf16', 'fp8', 'fp8-block', 'q4_k_m')
    """
    plain = cell.strip().lower()
    return str(table()["precisions"].get(catalogue.normalise(plain), plain))


def framework_rule(said: str) -> dict[str, str] | None:
    """The rule of aliases.toml for the training framework that a text names; None where it names none that is known.

    >>> [(framework_rule(t) or {}).get("name") for t in ("MosaicML LLM Foundry README", "pytorch/torchtitan", "a blog")]
    ['llm-foundry', 'torchtitan', None]
    """
    rule: dict[str, str] | None = ruled("frameworks", said)
    return rule


def rule_of(name: str, source: str = "") -> dict[str, Any]:
    """The first rule of aliases.toml that an engine's text matches, with the version that it holds (empty: none)."""
    for pattern, rule in table()["engines"].items():
        match = re.fullmatch(pattern, name, re.IGNORECASE) if source in rule.get("sources", [source]) else None
        if match:
            return {**rule, "version": (match.groupdict().get("version") or rule.get("version", "")).strip()}
    return {}


@lru_cache(maxsize=4096)
def engine(name: str, source: str = "") -> tuple[str, str]:
    """(engine, version) from the text of a table's engine column; Unusable when unknown.

    >>> engine("TensorRT-LLM v0.9.0"), engine("vllm 0.18.0"), engine("vLLM"), engine("sglang ")
    (('trtllm', '0.9.0'), ('vllm', '0.18.0'), ('vllm', ''), ('sglang', ''))
    >>> engine("lmsysorg/sglang:v0.5.5.post1-cu129-amd64"), engine("vLLM main"), engine("rocm6.4.1_vllm_0.9.1")
    (('sglang', '0.5.5.post1'), ('vllm', ''), ('vllm', '0.9.1'))
    """
    if not name or name.startswith("unstated"):
        raise Unusable("engine not stated")
    if rule := rule_of(name, source):
        return rule["name"], rule["version"]
    for pattern, image in table()["images"].items():
        if match := re.search(pattern, name, re.IGNORECASE):
            return image, match.groupdict().get("version") or ""
    return catalogued(name)


@lru_cache
def inference_engines() -> dict[str, str]:
    """Names and aliases of the catalogue's engines that serve -> their rows."""
    return {alias: row for alias, row in catalogue.aliases("engine").items() if load_engine(row).phase == "inference"}


def catalogued(name: str) -> tuple[str, str]:
    """(engine, release) by the longest name or alias of the catalogue that a text holds as a word, and the number
    behind it; Unusable where it holds none.

    >>> catalogued("Ollama 0.12.6"), catalogued("LMDeploy TurboMind v0.9.1"), catalogued("llama.cpp build 4567 (CUDA)")
    (('ollama', '0.12.6'), ('lmdeploy', '0.9.1'), ('llama.cpp', 'b4567'))
    """
    words = re.sub(r"[^a-z0-9.]+", "-", f"-{name.lower()}-")
    held = max((alias for alias in inference_engines() if f"-{alias}-" in words), key=len, default="")
    if not held:
        raise Unusable(f"unknown engine {name}")
    found = re.search(r"-(build-|[vb]?)(\d+(?:\.\w+)*)(?=-)", words.partition(f"-{held}")[2])
    return inference_engines()[held], ("b" * found[1].startswith("b") + found[2]) if found else ""
