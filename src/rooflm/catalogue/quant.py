"""Quantisation schemes: how wide weights, activations and KV cache are, and in which type the matrix units compute.

A name is `w<bits>a<bits>[kv<bits>]` or that of a row of data/schemes.toml, which has the sources.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rooflm.catalogue.fields import flag, word
from rooflm.catalogue.rows import DATA
from rooflm.errors import RooflmError, near_matches
from rooflm.units import REAL, Num

PARTS = ("attention", "mlp", "shared", "experts")
"""Parts of a layer whose weights a scheme narrows: the mixer, a dense feed-forward, shared and routed experts."""
WIDE = {"experts": ("attention", "mlp", "shared"), "ffn": ("attention",)}
"""Ends of a scheme's name ("fp8-experts", "nvfp4-ffn"): what alone is narrow -> the parts that stay wide."""


@dataclass(frozen=True)
class Quant:
    """Widths in bits, and how weights are scaled.

    scale_bits: share of a weight's scale in bits a value (16/128 for group-wise int4). wide: parts of a layer that stay
    at 16 bits (PARTS; gpt-oss narrows its experts alone), or at rest_bits. Norms and router stay at 16 bits, and so do
    embedding and head unless table_bits says otherwise.
    """

    name: str
    weight_bits: Num = 16
    act_bits: Num = 16
    kv_bits: Num = 16
    kind: str = word("any", "values: fp8 and fp4, int8 and int4, or whatever the device has", ("float", "int", "any"))
    scale_bits: Num = 0.0
    wide: tuple[str, ...] = ()
    block: bool = flag(False, "scales of blocks of weights (DeepSeek)")
    rowwise: bool = flag(False, "a scale for every row of weights and activations")
    table_bits: Num = 0.0
    rest_bits: Num = 0.0
    half: str = word("", "the 16-bit type where it says which (none: the device's first)", ("", "bf16", "fp16"))
    gguf: bool = flag(False, "a type of GGUF files")
    in_files: str = word("", "scheme as which an engine that reads files of its own format runs it (none: as it is)")

    def narrows(self, part: str) -> bool:
        """Whether the weights of a part of a layer are quantised.

        >>> PRESETS["mxfp4"].narrows("experts"), PRESETS["mxfp4"].narrows("attention")
        (True, False)
        """
        return part not in self.wide

    @cached_property
    def half_bytes(self) -> float:
        """Bytes a value of all that is not quantised: 2, or 4 where weights are fp32."""
        return 4.0 if isinstance(self.weight_bits, REAL) and self.weight_bits >= 32 else 2.0

    def table_bytes(self, half: Num) -> Num:
        """Bytes a value of embedding and head, where 16-bit values take `half`.

        >>> PRESETS["q8_0"].table_bytes(2.0), PRESETS["int8"].table_bytes(2.0)
        (1.0625, 2.0)
        """
        return self.table_bits / 8 if self.table_bits else half

    def rest_bytes(self, half: Num) -> Num:
        """Bytes a weight of the parts of a layer that stay wide, where 16-bit values take `half`.

        >>> PRESETS["mxfp4"].rest_bytes(2.0), PRESETS["mxfp4-moe"].rest_bytes(2.0)
        (2.0, 1.0625)
        """
        return self.rest_bits / 8 if self.rest_bits else half

    @property
    def weight_bytes(self) -> Num:
        """Bytes a quantised weight, its share of the scales included."""
        return (self.weight_bits + self.scale_bits) / 8

    @property
    def act_bytes(self) -> Num:
        """Bytes an activation value where it is an operand of a quantised matrix product."""
        return self.act_bits / 8

    @property
    def kv_bytes(self) -> Num:
        """Bytes a value of the KV cache."""
        return self.kv_bits / 8


PRESETS = {
    name: Quant(name, **row | {"wide": tuple(row.get("wide", ()))})
    for name, row in tomllib.loads((DATA / "schemes.toml").read_text(encoding="utf-8")).items()
}
"""Named schemes; each takes a suffix such as `fp8kv8` or `int4kv8`."""


def native(q: Quant, peaks: dict[str, Num], own_files: bool = False) -> Quant:
    """The scheme as engines run it on a device: where matrix units multiply 4-bit floats, 4-bit float weights of a
    checkpoint that leaves its activations wide meet activations that are cast to 8 bits on the way. own_files: the
    engine reads files of its own format, in which what such a checkpoint leaves wide has 8.5 bits (mxfp4-moe).

    Sources: TensorRT-LLM documentation, "Deployment guide for gpt-oss" (W4A8, MXFP4 weights times MXFP8 activations on
    Blackwell); SGLang, server_args.py, flashinfer_mxfp4_moe_precision "default"; vLLM, the gpt-oss recipe,
    VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8.

    >>> native(PRESETS["mxfp4"], {"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}).act_bits
    8
    >>> native(PRESETS["mxfp4"], {"bf16": 1.0, "fp8": 2.0}).act_bits
    16
    >>> native(PRESETS["mxfp4"], {"bf16": 1.0}, own_files=True).rest_bits
    8.5
    """
    if own_files and q.in_files:
        return replace(PRESETS[q.in_files], kv_bits=q.kv_bits)
    plain = isinstance(q.weight_bits, int | float) and isinstance(q.act_bits, int | float)
    if plain and q.kind == "float" and q.weight_bits <= 4 and q.act_bits >= 16 and {"fp4", "fp8"} <= peaks.keys():
        return replace(q, act_bits=8)
    return q


_PATTERN = re.compile(r"w(\d+(?:\.\d+)?)a(\d+)(?:g(\d+))?(?:e(\d+(?:\.\d+)?))?(?:kv(\d+))?")
_WIDTHS = (32, 16, 8, 4)
_HYPHENS = {name.replace("_", "-"): name for name in PRESETS}
"""Presets by their names with hyphens (those of GGUF files have underscores)."""


def without_cache(scheme: str) -> str:
    """A scheme's name without its cache's width.

    >>> without_cache("fp8kv8"), without_cache("nvfp4-ffn-kv8")
    ('fp8', 'nvfp4-ffn')
    """
    return re.sub(r"-?kv\d+$", "", scheme)


@lru_cache(maxsize=1024)
def parse_quant(name: str) -> Quant:
    """A scheme by name: a preset or `w<bits>a<bits>[g<group>][e<bits of embedding and head>][kv<bits>]`, with an end
    of WIDE where only a part of a layer is narrow.

    Without `kv`, the cache of `wXaY` takes the activation width (llm-analysis' convention), that of a preset stays at
    16 bits. Weights of less than 8 bits carry group scales (16 bits each 128 values, or as `g` says) unless activations
    are as narrow. Raises RooflmError with the nearest names.

    >>> q = parse_quant("w4a16kv8"); float(q.weight_bytes), q.kv_bits
    (0.515625, 8)
    >>> parse_quant("fp8kv8").kv_bits, parse_quant("w8a8").kv_bits, parse_quant("nvfp4-ffn-kv8").wide
    (8, 8, ('attention',))
    >>> parse_quant("w3a16g64").scale_bits, parse_quant("w4a4e16").table_bits
    (0.25, 16)
    """
    low = name.strip().lower().replace("_", "-")
    body = without_cache(low)
    kv = low[len(body) :].lstrip("-kv")
    head, _, end = body.rpartition("-")
    end = end if end in WIDE and head else ""
    known = PRESETS.get(_HYPHENS.get(head if end else body, ""))
    if known is not None and (not kv or int(kv) in _WIDTHS):
        return replace(known, name=_HYPHENS.get(low, low), kv_bits=int(kv) if kv else known.kv_bits,
                       wide=WIDE[end] if end else known.wide)  # fmt: skip
    match = _PATTERN.fullmatch((head if end else body) + (f"kv{kv}" if kv else ""))
    if match is None:
        near = near_matches(low, [*PRESETS, "w16a16kv16", "w8a8kv8", "w4a16kv16", "w4a16kv8", "w8a16kv16"])
        tail = f"did you mean {' or '.join(map(repr, near))}?" if near else "write w<bits>a<bits>[kv<bits>] or a preset"
        raise RooflmError(f"unknown quantisation {name!r}: {tail}")
    return _widths(name, low, match, WIDE[end] if end else ())


def _widths(name: str, low: str, match: re.Match[str], wide: tuple[str, ...]) -> Quant:
    """The scheme that `w..a..` spells out; RooflmError for a width that no scheme has."""
    weight, act = float(match[1]), int(match[2])
    weight = int(weight) if weight.is_integer() else weight
    kv_bits = int(match[5]) if match[5] else act
    if not (1 <= weight <= 16 or weight == 32):
        raise RooflmError(f"quantisation {name!r} has a weight width of {weight} bits, but it must be 1 to 16, or 32")
    for field, bits in (("activation", act), ("KV", kv_bits)):
        if bits not in _WIDTHS:
            raise RooflmError(
                f"quantisation {name!r} has a {field} width of {bits} bits, but it must be 32, 16, 8 or 4"
            )
    group = int(match[3] or 0)
    if match[3] and not group:
        raise RooflmError(f"quantisation {name!r} has groups of 0 values, but a group holds at least 1")
    whole = isinstance(weight, int)
    scale = 16 / group if group else 16 / 128 if whole and weight < 8 and act > weight else 0.0
    table = float(match[4] or 0)
    table = int(table) if table.is_integer() else table
    return Quant(low, weight, act, kv_bits, "any", scale, wide, table_bits=table)


_ANY: dict[int, tuple[str, ...]] = {4: ("fp4", "int4"), 8: ("fp8", "int8"), 16: ("bf16", "fp16"), 32: ("tf32", "fp32")}
LADDERS: dict[str, dict[int, tuple[str, ...]]] = {
    "any": _ANY, "int": _ANY | {4: ("int4",), 8: ("int8",)},
    "float": _ANY | {4: ("fp4",), 8: ("fp8",), 32: ("fp32",)},
}  # fmt: skip
"""Kind of a scheme's values -> width in bits -> data types of that width, the first before the others."""


def compute_dtype(bits: Num, kind: str, peaks: dict[str, Num], half: str = "bf16") -> tuple[str, bool]:
    """The data type in which a device multiplies operands of which the wider has `bits` bits.

    The second value tells whether the device computes at that width; if not, the next wider type that it has is used
    (weights are then only stored narrow). Raises RooflmError when the device has no rate at all.

    >>> compute_dtype(8, "any", {"bf16": 1.0, "int8": 2.0}), compute_dtype(8, "float", {"bf16": 1.0})
    (('int8', True), ('bf16', False))
    """
    ladder, exact = LADDERS.get(kind, LADDERS["any"]), True
    for width, types in ladder.items():
        if bits > width and width < 32:
            continue
        for dtype in (half, *types) if width == 16 else types:
            if dtype in peaks:
                return dtype, exact
        exact = False
    if "fp32" in peaks:
        return "fp32", False
    raise RooflmError(f"the device has no compute rate for {bits}-bit operands: give cluster.device.peak.bf16")
