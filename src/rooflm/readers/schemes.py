"""Quantisation schemes by name: `w<bits>a<bits>[kv<bits>]`, or that of a row of data/schemes.toml, which has the
sources; and as which scheme engines run one."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rooflm.catalogue.abilities import Abilities
from rooflm.catalogue.model import MLP, Model, MoE, mixer_params
from rooflm.catalogue.quant import PARTS, Quant
from rooflm.errors import RooflmError, near_matches
from rooflm.readers.rows import shipped
from rooflm.units import Num, larger, pick

WIDE = {"experts": ("attention", "mlp", "shared"), "ffn": ("attention",)}
"""Ends of a scheme's name ("fp8-experts", "nvfp4-ffn"): what alone is narrow -> the parts that stay wide. "-fp8" after
either (by itself: after "-experts") says that what stays wide is in blocks of fp8."""
SAME, ELSEWHERE = (shipped("scheme-names", dict[str, dict[str, Any]])[table] for table in ("same", "near"))
"""What people call a scheme -> the one of ours; those of ours that are like it."""
PRESETS = {
    name: Quant(name, **row | {"wide": tuple(row.get("wide", ()))})
    for name, row in shipped("schemes", dict[str, dict[str, Any]]).items()
}
"""Named schemes; each takes a suffix such as `fp8kv8` or `int4kv8`."""


def as_run(q: Quant, peaks: dict[str, Num], own_files: str = "") -> Quant:
    """The scheme as an engine runs it on a device. On devices with 4-bit float matrix units, 4-bit float weights with
    wide activations run with activations cast to 8 bits; on others activations stay at 16 bits, whatever the checkpoint
    says. own_files: the engine reads its own file format, in which parts that such a checkpoint leaves wide have this
    many bits: 8.5 in llama.cpp's file type MXFP4_MOE, 16 in Ollama's library (issue 16416).

    Sources: TensorRT-LLM documentation, "Deployment guide for gpt-oss" (W4A8, MXFP4 weights times MXFP8 activations on
    Blackwell); SGLang, server_args.py, flashinfer_mxfp4_moe_precision "default"; vLLM, the gpt-oss recipe,
    VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8; its documentation of NVFP4 (LLM Compressor): weight-only before Blackwell.

    >>> as_run(PRESETS["mxfp4"], {"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}).act_bits
    8
    >>> [as_run(PRESETS[q], {"bf16": 1.0, "fp8": 2.0}).act_bits for q in ("mxfp4", "nvfp4")]
    [16, 16]
    >>> as_run(PRESETS["mxfp4"], {"bf16": 1.0}, own_files="8.5").rest_bits
    8.5
    """
    if own_files and q.in_files:
        return replace(PRESETS[q.in_files], kv_bits=q.kv_bits, rest_bits=float(own_files), table_bits=float(own_files))
    if q.rest_act_bits and "fp8" not in peaks:
        q = replace(q, rest_act_bits=0.0)
    plain = isinstance(q.weight_bits, int | float) and isinstance(q.act_bits, int | float)
    if plain and q.kind == "float" and q.weight_bits <= 4:
        if "fp4" not in peaks:
            return replace(q, act_bits=16)
        if q.act_bits >= 16 and "fp8" in peaks:
            return replace(q, act_bits=8)
    return q


def whole_where_hollow(q: Quant, model: Model) -> Quant:
    """The scheme on a model that has none of the parts that it narrows: all of a layer's products are narrow there.

    Such as mxfp4 without experts: AMD Quark's checkpoints of dense models (amd/Llama-3.3-70B-Instruct-MXFP4-Preview)
    narrow every product of a layer but the head. Files with a width of their own for the rest keep it.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> [whole_where_hollow(PRESETS["mxfp4"], load_model(m)).wide for m in ("gpt-oss-20b", "llama-3.1-8b")]
    [('attention', 'mlp', 'shared'), ()]
    """
    parts = {"attention", *("experts" if isinstance(b.ffn, MoE) else "mlp" for b in model.blocks if b.ffn is not None)}
    return q if q.rest_bits or parts - {*q.wide} else replace(q, wide=())


BLOCK, ODD_TABLE = 256, 8.5
"""Values of a block of llama.cpp's K and IQ types, and bits a weight (Q8_0) of a head whose rows are no multiple."""


def in_blocks(q: Quant, model: Model) -> Quant:
    """A GGUF type on a model some of whose matrices have rows of no whole blocks: these take types of 32 values, Q4_K
    Q5_0, Q5_K Q5_1, Q6_K Q8_0, the narrower ones IQ4_NL, so that a mean weight has more bits.

    Source: llama.cpp, src/llama-quant.cpp (fallback quantization); Ollama, server/quantization.go.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> names = "llama-3.1-8b", "gemma-4-26b-a4b", "qwen2.5-0.5b"
    >>> [round(float(in_blocks(PRESETS["q4_k_m"], load_model(name)).weight_bits), 2) for name in names]
    [4.8, 5.27, 5.51]
    """
    if not q.gguf:
        return q
    files = parse_quant(model.quant).in_files if model.quant else ""
    if files:  # experts stay as released in files of any type (decision 421)
        return replace(PRESETS[files], kv_bits=q.kv_bits, half=q.half)
    h = model.hidden
    table = pick(h % BLOCK != 0, larger(q.table_bits, ODD_TABLE), q.table_bits)
    odd: Num = 0.0
    total: Num = 0.0
    for b in model.blocks:
        f, pairs = b.ffn, list[tuple[Num, Num, Num]]()  # matrices alike, values of a row in and between them
        if f is not None:
            pairs += (
                [(1, h, f.width)] if isinstance(f, MLP) else [(1, h, f.shared_width), (f.experts, f.inner(h), f.width)]
            )
        parts = [(mixer_params(b.mixer, h), h, q.odd_bits)] if b.mixer is not None else []
        for n, row, width in pairs:
            parts += [(n * row * width * (1 + (f is not None and f.gated)), row, q.odd_bits)]
            parts += [(n * row * width, width, q.odd_down)]
        odd += b.count * sum(size * more * (row % BLOCK != 0) for size, row, more in parts)
        total += b.count * sum(size for size, *_ in parts)
    return replace(q, weight_bits=q.weight_bits + odd / larger(total, 1.0), table_bits=table)


MX_GROUP = 32
"""Values that share a scale of 8 bits where activations are narrow too (OCP Microscaling Formats 1.0, 5.3: MXFP4 and
its like); integer weights beside wide activations have scales of 16 bits in groups of any size (AWQ, GPTQ)."""
_ENDS = re.compile(r"(.+?)(?:-(experts|ffn))?(-fp8)?")
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

    Without `kv`, the cache of `wXaY` takes the activation width (llm-analysis' convention), that of a preset and of a
    checkpoint's groups stays at 16 bits. Weights of less than 8 bits carry group scales (16 bits each 128 values, or as
    `g` says; MX_GROUP) unless activations are as narrow. Raises RooflmError with the nearest names.

    >>> q = parse_quant("w4a16kv8"); float(q.weight_bytes), q.kv_bits
    (0.515625, 8)
    >>> parse_quant("fp8kv8").kv_bits, parse_quant("w8a8").kv_bits, parse_quant("nvfp4-ffn-kv8").wide
    (8, 8, ('attention',))
    >>> parse_quant("q4_k_mkv8").name, parse_quant("FP8-kv8").name, parse_quant("bfloat16").name
    ('q4_k_m-kv8', 'fp8kv8', 'bf16')
    >>> q = parse_quant("nvfp4-ffn-fp8"); q.wide, q.rest_act_bits, parse_quant("w4a16g32-fp8").wide
    (('attention',), 8, ('attention', 'mlp', 'shared'))
    >>> parse_quant("w3a16g64").scale_bits, parse_quant("w4a4e16").table_bits, parse_quant("w4a4g32").scale_bits
    (0.25, 16, 0.25)
    """
    low = name.strip().lower().replace("_", "-")
    body = without_cache(low)
    kv = low[len(body) :].lstrip("-kv")
    body = str(SAME.get(body, body.removeprefix("ud-"))).replace("_", "-")
    ends = None if body in _HYPHENS else _ENDS.fullmatch(body)
    head, part, rest = ends.groups("") if ends else (body, "", "")
    part = part or "experts" * bool(rest)
    wide, rest_bits = WIDE.get(part, ()), 8 + PRESETS["fp8-block"].scale_bits if rest else 0.0
    preset = _HYPHENS.get(head, "")
    known = PRESETS.get(preset)
    if known is not None and (not kv or int(kv) in _WIDTHS):
        apart = "-" if part or "_" in preset else ""
        shown = preset + body[len(head) :] + f"{apart}kv{kv}" * bool(kv)
        found = replace(known, name=shown, kv_bits=int(kv) if kv else known.kv_bits)
        return replace(found, wide=wide, rest_bits=rest_bits, rest_act_bits=8 if rest else 0.0) if part else found
    low = SAME.get(low, low)
    match = _PATTERN.fullmatch(head + (f"kv{kv}" if kv else ""))
    if match is None:
        usual = ["w16a16kv16", "w8a8kv8", "w4a16kv16", "w4a16kv8", "w8a16kv16"]
        near = (
            ELSEWHERE.get(low) or _of_bits(low) or [_HYPHENS.get(n, n) for n in near_matches(low, [*_HYPHENS, *usual])]
        )
        other = "write w<bits>a<bits>[kv<bits>] or a preset (`rooflm list quants`)"
        tail = f"did you mean {' or '.join(map(repr, near))}?" if near else other
        raise RooflmError(f"unknown quantisation {name!r}: {tail}")
    return replace(_widths(name, low, match, wide), rest_bits=rest_bits, rest_act_bits=8 if rest else 0.0)


def _of_bits(low: str) -> list[str]:
    """What EXL2's and EXL3's "4.5bpw" is in ours.

    >>> _of_bits("4.5bpw"), _of_bits("4.0 bpw"), _of_bits("99bpw"), _of_bits("fast")
    (['w4.5a16kv16'], ['w4a16kv16'], [], [])
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)[ -]?bpw", low)
    return [f"w{float(found[1]):g}a16kv16"] if found and 1 <= float(found[1]) <= 16 else []


def _widths(name: str, low: str, match: re.Match[str], wide: tuple[str, ...]) -> Quant:
    """The scheme that `w..a..` spells out; RooflmError for a width that no scheme has."""
    weight, act = float(match[1]), int(match[2])
    weight = int(weight) if weight.is_integer() else weight
    group = int(match[3] or 0)
    kv_bits = int(match[5]) if match[5] else 16 if group else act
    if not (1 <= weight <= 16 or weight == 32):
        raise RooflmError(f"quantisation {name!r} has a weight width of {weight} bits, but it must be 1 to 16, or 32")
    for field, bits in (("an activation", act), ("a KV", kv_bits)):
        if bits not in _WIDTHS:
            raise RooflmError(f"quantisation {name!r} has {field} width of {bits} bits, but it must be 32, 16, 8 or 4")
    if match[3] and not group:
        raise RooflmError(f"quantisation {name!r} has groups of 0 values, but a group holds at least 1")
    whole = isinstance(weight, int)
    microscaled = group == MX_GROUP and act < 16
    scale = (8 if microscaled else 16) / group if group else 16 / 128 if whole and weight < 8 and act > weight else 0.0
    table = float(match[4] or 0)
    table = int(table) if table.is_integer() else table
    return Quant(low, weight, act, kv_bits, "any", scale, wide, table_bits=table)


def narrowed(q: Quant) -> str:
    """The parts of a layer that a scheme quantises, as text.

    >>> narrowed(PRESETS["mxfp4"]), narrowed(parse_quant("nvfp4-ffn"))
    ('experts', 'mlp, shared, experts')
    """
    return ", ".join(part for part in PARTS if part not in q.wide)


def nearest_schemes(able: Abilities, quant: Quant) -> list[str]:
    """The presets that an engine runs whose values are about as wide as a scheme's, the nearest first; of those that
    are as near to a hundredth of a byte, in the order of the schemes' file.

    >>> nearest_schemes(Abilities(schemes="half, fp8, int4"), PRESETS["q4_k_m"])
    ['int4', 'awq']
    >>> nearest_schemes(Abilities(schemes="half, fp8, int4, mxfp4"), PRESETS["nvfp4"])
    ['mxfp4', 'mxfp4a8']
    """
    known = [p for p in PRESETS.values() if able.runs(p) and not p.rest_bits]
    other = 0.05  # bytes that other activations, another kind of values, or other parts that stay wide count for

    def width_distance(p: Quant) -> float:
        unlike = sum((p.act_bits != quant.act_bits, p.kind != quant.kind, bool(p.wide) != bool(quant.wide)))
        return round(abs(float(p.weight_bytes - quant.weight_bytes)) + other * unlike, 2)

    near = sorted(known, key=width_distance)
    return [p.name for p in near[:2]]
