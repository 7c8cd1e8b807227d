"""A model given by its sizes alone, and what stands in for a model or device that no catalogue holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from rooflm.catalogue.model import INF, MLP, Attention, Block, Model, MoE
from rooflm.errors import RooflmError
from rooflm.readers import rows as catalogue
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_device

NEEDED = ("layers", "hidden", "heads", "ffn")
"""Sizes that make a model."""


def model_from_sizes(sizes: dict[str, Any]) -> Model:
    """Attention and MLP (or expert) blocks from layers, hidden, heads and ffn; the other sizes where they are given.

    norm "layer" brings biases everywhere, as in GPT.

    >>> sizes = {"layers": 48, "hidden": 6144, "heads": 64, "kv_heads": 64, "ffn": 24576, "vocab": 51200}
    >>> model = model_from_sizes(sizes | {"gated": False, "positions": 2048, "tied": True, "norm": "layer"})
    >>> round(float(model.parameters) / 1e9, 2)  # Korthikanti et al. 2022: "22B"
    22.07
    """
    biased = sizes.get("norm") == "layer"
    attention = Attention(
        heads=sizes["heads"],
        kv_heads=sizes.get("kv_heads") or sizes["heads"],
        head_dim=sizes.get("head_dim") or sizes["hidden"] // sizes["heads"],
        window=sizes.get("window") or INF,
        bias=biased,
        out_bias=biased,
        rope=not sizes.get("positions", 0),
    )
    gated = bool(sizes.get("gated", True))
    dense = MLP(sizes["ffn"], gated=gated, bias=biased)
    blocks: tuple[Block, ...] = (Block(sizes["layers"], attention, dense),)
    if sizes.get("experts"):
        width = sizes.get("expert_ffn") or sizes["ffn"]
        experts = MoE(sizes["experts"], sizes.get("top_k") or 1, width, sizes.get("shared_ffn", 0), gated=gated)
        first = int(sizes.get("dense_layers", 0))
        blocks = (Block(sizes["layers"] - first, attention, experts),)
        blocks = (Block(first, attention, dense), *blocks) if first else blocks
    return Model(
        name=str(sizes.get("name", "unnamed")),
        hidden=sizes["hidden"],
        vocab=sizes.get("vocab") or 32000,
        blocks=blocks,
        positions=sizes.get("positions", 0),
        tied=bool(sizes.get("tied", False)),
        norm=str(sizes.get("norm", "rms")),
    )


@lru_cache
def _counts() -> dict[str, tuple[float, float]]:
    """Every model of the catalogue with its parameters, and those that a token uses."""
    models = {name: load_model(name) for name in catalogue.names("model")}
    return {name: (float(m.parameters), float(m.active_parameters)) for name, m in models.items()}


_SIZE = re.compile(r"(a?)(\d+(?:\.\d+)?)([mbt])")
_SCALE = {"m": 1e6, "b": 1e9, "t": 1e12}


def sizes_in_name(name: str) -> dict[str, float]:
    """The parameters, and those that a token uses ("A17B"), that a model's name tells by the custom of its makers: the
    first of each, as a length may follow ("7B-Instruct-1M"). Nothing where a count is an expert's ("17B-16E").

    >>> sizes_in_name("Qwen/Qwen3.5-397B-A17B"), sizes_in_name("qwen3:8b-1m"), sizes_in_name("Llama-4-17B-16E")
    ({'params': 397000000000.0, 'active': 17000000000.0}, {'params': 8000000000.0}, {})
    """
    parts = re.split(r"[-_/: ]", name.lower())
    if any(re.fullmatch(r"\d+e|\d+x\d+(\.\d+)?b", part) for part in parts):
        return {}
    found: dict[str, float] = {}
    for used, count, unit in (m.groups() for part in parts if (m := _SIZE.fullmatch(part))):
        found.setdefault("active" if used else "params", float(count) * _SCALE[unit])
    return found


DENSE = 150e9
"""Parameters from which open models have experts (of the catalogue's since 2024 all but Nemotron-4 340B and Llama 3.1
405B), so that one whose name does not say what a token uses is taken for one that has."""
NEAR = 0.2
"""How far two models may differ (sum of the logarithms of their ratios) for their names to tell which is nearer."""


def _series(name: str) -> str:
    """The first word of a model's name, without its maker's: "Qwen/Qwen3.5-397B" and "qwen2-7b" are both "qwen"."""
    return re.split(r"[^a-z]", name.lower().rsplit("/", 1)[-1])[0]


ALIKE = 0.05
"""How far two models of one size may be, of which the newest stands in."""
KIN = 2.5
"""Most between the sizes of two models of one line (names alike but for numbers), where a series has them within 2."""
_VERSION = re.compile(r"[a-z]+[- ]?[a-z]?\d+(\.\d+)?")


def _words(name: str) -> tuple[str, ...]:
    """The words of a model's line: "gpt-oss-120b" and "gpt-oss-20b" are both ("gpt", "oss")."""
    parts = (re.match(r"[a-z]*", part) for part in re.split(r"[-_ ]", name.lower().rsplit("/", 1)[-1]))
    return tuple(m[0] for m in parts if m and len(m[0]) > 1)


def _month(name: str) -> int:
    """When a model of the catalogue came out, as a number that grows."""
    return int(load_model(name).date.replace("-", "")[:6].ljust(6, "0") or 0)


def nearest_model(params: float, active: float = 0.0, name: str = "") -> str:
    """The model of the catalogue whose counts of parameters, and of those that a token uses, are nearest by ratio.

    One of the same line comes first (KIN), then one of the same series, where it has half to twice the parameters; of
    those as near as NEAR the one whose name begins most alike, and of these the newest of those as large (ALIKE).
    active: 0 where it is not known (all of them up to DENSE).

    >>> nearest_model(145e9), nearest_model(30.53e9, 3.35e9), nearest_model(700e9, name="deepseek-ai/DeepSeek-V9")
    ('megatron-145b', 'qwen3-30b-a3b', 'deepseek-v3.2')
    >>> nearest_model(675e9, name="Somebody-Large-3"), nearest_model(675e9, 675e9)
    ('mistral-large-3-675b', 'palm-540b')
    >>> nearest_model(240e9, name="gpt-oss-240b"), nearest_model(32e9, name="Qwen4-32B")
    ('gpt-oss-120b', 'qwen3-32b')
    >>> nearest_model(15e9, name="Qwen/Qwen3-15B"), nearest_model(8e9, name="Llama-3.5-8B")
    ('qwen3-14b', 'llama-3.1-8b')
    """
    series = _series(name)
    kin = {n: c for n, c in _counts().items() if series and _series(n) == series and 0.5 <= c[0] / params <= 2}
    near = [n for n, (total, _) in _counts().items() if _words(n) == _words(name) and 1 / KIN <= total / params <= KIN]
    kin = {n: _counts()[n] for n in near if series} or kin
    used = active or (0.0 if kin or params > DENSE else params)

    def far(of: str) -> float:
        total, each = _counts()[of]
        return abs(math.log(total / params)) + (abs(math.log(each / used)) if used else 0.0)

    if not kin:
        wanted = [of for of, (total, each) in _counts().items() if used or each < total]
        return min(wanted, key=lambda of: (far(of), of))
    own = name.lower().rsplit("/", 1)[-1]

    def unlike(of: str) -> int:
        return -next((i for i, (a, b) in enumerate(zip(own, of, strict=False)) if a != b), len(of))

    return min(kin, key=lambda of: (far(of) > NEAR, unlike(of), far(of) > ALIKE, -_month(of), far(of), of))


def newest_in_series(name: str) -> str | None:
    """The newest model of a series where a name holds no more than the series and a version that the catalogue has no
    model of; None for other names (of several models of a version, which one is meant is not known).

    >>> newest_in_series("DeepSeek-V9"), newest_in_series("qwen9-banana"), newest_in_series("Nobody-V2")
    ('deepseek-v4-pro', None, None)
    >>> newest_in_series("Qwen9") is None, newest_in_series("Qwen3"), newest_in_series("llama3.1")
    (False, None, None)
    """
    low = name.lower().rsplit("/", 1)[-1]
    version = "-?".join(map(re.escape, re.split(r"[- ]|(?<=[a-z])(?=\d)", low))) + r"(?![\d.])"
    if not _VERSION.fullmatch(low) or any(re.match(version, known) for known in catalogue.aliases("model")):
        return None
    kin = [n for n in _counts() if _series(n) == _series(name)]
    return max(kin, key=lambda of: (_month(of), _counts()[of][0], of), default=None)


@lru_cache
def _figures() -> dict[str, dict[str, float]]:
    """Every device of the catalogue with its dense 16-bit rate, bandwidth and memory."""
    found = {}
    for name in catalogue.names("gpu"):
        d = load_device(name)
        peak = float(d.peak.get("bf16") or d.peak.get("fp16") or max(d.peak.values()))
        found[name] = {"peak": peak, "bandwidth": float(d.dram.bandwidth), "memory": float(d.dram.size)}
    return found


UNLIKE = math.log(2)
"""What each thing counts in which a device is unlike what a row tells of its own: as a figure of twice as much. By
hand: of 595 published rows whose device was hidden (decision 0418)."""


def nearest_device(own: dict[str, float], unlike: Callable[[str], int] = lambda _: 0) -> str:
    """The device of the catalogue nearest in the figures that are given (ratio of rates, bandwidths and sizes). unlike:
    in how many other things a device is not as told.

    >>> nearest_device({"bandwidth": 2.04e12, "memory": 80 * 2.0**30, "peak": 312e12})
    'a100-sxm-80gb'
    """
    if not own:
        raise RooflmError("a device without figures has no nearest one: give peak, bandwidth or memory")

    def far(name: str) -> float:
        return sum(abs(math.log(own[k] / _figures()[name][k])) for k in own) + UNLIKE * unlike(name)

    return min(_figures(), key=lambda name: (far(name), name))


_NUMBERED = re.compile(r"(.*?[a-z])[ -]?(\d+)")


FARTHEST = math.log(3)
"""How far two numbers of one series may be: GB10 and GB200 have no more in common than their letters. By hand."""


@lru_cache
def _classes() -> set[str]:
    """Words by which names of devices end that begin alike: "ultra", "ti", "laptop"."""
    plain = catalogue.aliases("gpu")
    ends = {alias.rpartition("-")[2] for alias in plain if alias.rpartition("-")[0] in plain}
    return {word for word in ends if word.isalpha()}


def device_in_series(name: str, unlike: Callable[[str], int] = lambda _: 0) -> str | None:
    """The device of the catalogue that a machine's name names, the longest of them; else one in the series that the
    name begins with: of the nearest number, where another class (last two digits) and each word that only one of them
    has ("ultra", "ti") count two thirds of UNLIKE; None where neither is.

    >>> [device_in_series(n) for n in ("h300-sxm-192gb", "RTX 6090", "MI400X", "abacus", "A3 Mega (8x H100)", "GB9000")]
    ['h200-sxm-141gb', 'rtx-5090', 'mi300x', None, 'h100-sxm-80gb', None]
    >>> device_in_series("Apple M4 Ultra")[:14]
    'apple-m3-ultra'
    """
    words, known = re.sub(r"[^a-z0-9]+", "-", f"-{name.lower()}-"), catalogue.aliases("gpu")
    named = max((a for a in known if f"-{a}-" in words), key=len, default="")
    if named and not set(words.partition(f"-{named}-")[2].split("-")) & _classes():
        return known[named]

    def read(text: str) -> tuple[str, int] | None:
        found = _NUMBERED.match(catalogue.normalise(text))
        return (found[1], int(found[2])) if found and int(found[2]) else None

    own, kinds = read(name), set(re.findall(r"[a-z]{2,}", name.lower()))
    if own is None:
        return None
    kin = {alias: row for alias, row in known.items() if (read(alias) or ("",))[0] == own[0]}

    def apart(alias: str) -> float:
        return abs(math.log((read(alias) or ("", 1))[1] / own[1]))

    def far(alias: str) -> tuple[float, float, str]:
        words = len(kinds.symmetric_difference(re.findall(r"[a-z]{2,}", alias)) - {"gb", "core"})
        words += own[1] >= 100 and (read(alias) or ("", 0))[1] % 100 != own[1] % 100
        alike = SequenceMatcher(None, catalogue.normalise(name), alias).ratio()
        return apart(alias) + UNLIKE * (unlike(kin[alias]) + words * 2 / 3), -alike, alias

    near = [alias for alias in kin if apart(alias) <= FARTHEST]
    return kin[min(near, key=far)] if near else None


def device_settings(like: str, own: dict[str, float]) -> dict[str, float]:
    """{path: value} that give a device of the catalogue another's figures: peaks all scaled alike.

    >>> device_settings("a100-sxm-80gb", {"bandwidth": 1e12})
    {'cluster.device.dram.bandwidth': 1000000000000.0}
    """
    sets: dict[str, float] = {}
    if "peak" in own:
        scale = own["peak"] / _figures()[like]["peak"]
        peaks = load_device(like).peak
        sets |= {f"cluster.device.peak.{dtype}": float(p) * scale for dtype, p in peaks.items()}
    if "bandwidth" in own:
        sets["cluster.device.dram.bandwidth"] = own["bandwidth"]
    if "memory" in own:
        sets["cluster.device.dram.size"] = own["memory"]
    return sets


@lru_cache(maxsize=256)
def _model_of(text: str) -> Model:
    return model_from_sizes(json.loads(text))


def model_argument(model: Any) -> Any:
    """The `model` argument of a command: a name as it is, sizes as a Model (the same one for the same sizes)."""
    return _model_of(json.dumps(model, sort_keys=True)) if isinstance(model, dict) else model
