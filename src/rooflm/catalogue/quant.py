"""Quantisation schemes: how wide weights, activations and KV cache are, and in which type the matrix units compute.

A name is `w<bits>a<bits>[kv<bits>]` or one of the presets below. Sources: SmoothQuant (arXiv 2211.10438, w8a8), GPTQ
and AWQ (arXiv 2210.17323, 2306.00978: 4-bit weights, one 16-bit scale a group of 128), OCP Microscaling v1.0 (mxfp4:
32 values share an 8-bit scale), NVIDIA NVFP4 (16 values share an 8-bit scale), DeepSeek-V3 (arXiv 2412.19437:
fp8 with 128x128 block scales).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rooflm.errors import RooflmError, near_matches
from rooflm.units import Num


@dataclass(frozen=True)
class Quant:
    """Widths in bits, and how weights are scaled.

    kind: "float" (fp8, fp4), "int" (int8, int4) or "any" (whatever the device has). scale_bits: share of a weight's
    scale in bits a value (16/128 for group-wise int4). experts_only: only MoE experts are quantised (gpt-oss).
    block: block-wise fp8 scales (DeepSeek). Norms and router stay at 16 bits, and so do embedding and head unless
    table_bits says otherwise.
    """

    name: str
    weight_bits: Num = 16
    act_bits: Num = 16
    kv_bits: Num = 16
    kind: str = "any"
    scale_bits: Num = 0.0
    experts_only: bool = False
    block: bool = False
    table_bits: Num = 0.0

    def table_bytes(self, half: Num) -> Num:
        """Bytes a value of embedding and head, where 16-bit values take `half`.

        >>> PRESETS["q8_0"].table_bytes(2.0), PRESETS["int8"].table_bytes(2.0)
        (1.0625, 2.0)
        """
        return self.table_bits / 8 if self.table_bits else half

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
    "bf16": Quant("bf16"),
    "fp16": Quant("fp16"),
    "fp32": Quant("fp32", 32, 32, 32, "float"),
    "fp8": Quant("fp8", 8, 8, 16, "float"),
    "fp8-block": Quant("fp8-block", 8, 8, 16, "float", 32 / 128**2, block=True),
    "int8": Quant("int8", 8, 8, 16, "int"),
    "int8-wo": Quant("int8-wo", 8, 16, 16, "int"),
    "int4": Quant("int4", 4, 16, 16, "int", 16 / 128),
    "awq": Quant("awq", 4, 16, 16, "int", 20 / 128),
    "gptq": Quant("gptq", 4, 16, 16, "int", 20 / 128),
    "mxfp4": Quant("mxfp4", 4, 16, 16, "float", 8 / 32, experts_only=True),
    "mxfp4a8": Quant("mxfp4a8", 4, 8, 16, "float", 8 / 32, experts_only=True),
    "nvfp4": Quant("nvfp4", 4, 4, 16, "float", 8 / 16),
    "q4_k_m": Quant("q4_k_m", 4.8, 16, 16, "int", table_bits=6.5625),
    "q4_0": Quant("q4_0", 4.5, 16, 16, "int", table_bits=6.5625),
    "q8_0": Quant("q8_0", 8.5, 16, 16, "int", table_bits=8.5),
}
"""Named schemes; each takes a suffix such as `fp8kv8` or `int4kv8`. GGUF widths: llama.cpp's bits a weight of the
layers (Q4_K_M mixes Q4_K and Q6_K) and of the head (Q6_K; the embedding, counted alike, is a little narrower): a file
of Llama-3-8B is 4.92 GB, of 70B 42.5 GB."""

_PATTERN = re.compile(r"w(\d+)a(\d+)(?:kv(\d+))?")
_WIDTHS = (32, 16, 8, 4)


def parse_quant(name: str) -> Quant:
    """A scheme by name. Without `kv`, the cache of `wXaY` takes the activation width (llm-analysis' convention), that
    of a preset stays at 16 bits. Weights of 4 bits carry group scales (16 bits each 128 values) unless activations
    are as narrow. Raises RooflmError with the nearest names.

    >>> q = parse_quant("w4a16kv8"); float(q.weight_bytes), q.kv_bits
    (0.515625, 8)
    >>> parse_quant("fp8kv8").kv_bits, parse_quant("w8a8").kv_bits
    (8, 8)
    """
    low = (
        name.strip()
        .lower()
        .replace("_", "-")
        .replace("q4-k-m", "q4_k_m")
        .replace("q8-0", "q8_0")
        .replace("q4-0", "q4_0")
    )
    if low in PRESETS:
        return PRESETS[low]
    preset, _, kv = low.rpartition("kv")
    if preset.rstrip("-") in PRESETS and kv.isdigit() and int(kv) in _WIDTHS:
        return replace(PRESETS[preset.rstrip("-")], name=low, kv_bits=int(kv))
    match = _PATTERN.fullmatch(low)
    if match is None:
        near = near_matches(low, [*PRESETS, "w16a16kv16", "w8a8kv8", "w4a16kv16", "w4a16kv8", "w8a16kv16"])
        tail = f"did you mean {' or '.join(map(repr, near))}?" if near else "write w<bits>a<bits>[kv<bits>] or a preset"
        raise RooflmError(f"unknown quantisation {name!r}: {tail}")
    weight, act = int(match[1]), int(match[2])
    kv_bits = int(match[3]) if match[3] else act
    for field, bits in (("weight", weight), ("activation", act), ("KV", kv_bits)):
        if bits not in _WIDTHS:
            raise RooflmError(
                f"quantisation {name!r} has a {field} width of {bits} bits, but it must be 32, 16, 8 or 4"
            )
    scale = 16 / 128 if weight == 4 and act > weight else 0.0
    return Quant(low, weight, act, kv_bits, "any", scale)


def compute_dtype(bits: Num, kind: str, peaks: dict[str, Num], half: str = "bf16") -> tuple[str, bool]:
    """The data type in which a device multiplies operands of which the wider has `bits` bits.

    The second value tells whether the device computes at that width; if not, the next wider type that it has is used
    (weights are then only stored narrow). Raises RooflmError when the device has no rate at all.

    >>> compute_dtype(8, "any", {"bf16": 1.0, "int8": 2.0}), compute_dtype(8, "float", {"bf16": 1.0})
    (('int8', True), ('bf16', False))
    """
    ladder = {4: ["fp4", "int4"], 8: ["fp8", "int8"], 16: [half, "bf16", "fp16"], 32: ["tf32", "fp32"]}
    if kind == "int":
        ladder |= {4: ["int4"], 8: ["int8"]}
    elif kind == "float":
        ladder |= {4: ["fp4"], 8: ["fp8"], 32: ["fp32"]}
    width = next((w for w in sorted(ladder) if float(bits) <= w), 32)
    for rung in (w for w in sorted(ladder) if w >= width):
        for dtype in ladder[rung]:
            if dtype in peaks:
                return dtype, rung == width
    if "fp32" in peaks:
        return "fp32", False
    raise RooflmError(f"the device has no compute rate for {bits}-bit operands: give cluster.device.peak.bf16")
