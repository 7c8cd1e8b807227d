"""Quantisation schemes: how wide weights, activations and KV cache are, and in which type the matrix units compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rooflm.catalogue.fields import flag, word
from rooflm.errors import RooflmError
from rooflm.units import REAL, Num, highest, smaller

PARTS = ("attention", "mlp", "shared", "experts")
"""Parts of a layer whose weights a scheme narrows: the mixer, a dense feed-forward, shared and routed experts."""


@dataclass(frozen=True)
class Quant:
    """Widths in bits, and how weights are scaled.

    scale_bits: share of a weight's scale in bits a value (16/128 for group-wise int4). wide: parts of a layer that stay
    at 16 bits (PARTS; gpt-oss narrows its experts alone), or at rest_bits, whose products take activations of
    rest_act_bits (0: 16) with scales of blocks. Norms and router stay at 16 bits, embedding and head at table_bits (0:
    16). odd_bits: bits more where a matrix's rows are no multiple of 256 values (`schemes.in_blocks`); odd_down: those
    of a feed-forward's last product."""

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
    odd_bits: Num = 0.0
    odd_down: Num = 0.0
    rest_bits: Num = 0.0
    rest_act_bits: Num = 0.0
    half: str = word("", "the 16-bit type where it says which (none: the device's first)", ("", "bf16", "fp16"))
    gguf: bool = flag(False, "a type of GGUF files")
    needs: str = word("", "type that tells whether a device's units multiply in it, in training (none: its width's)")
    in_files: str = word("", "scheme as which an engine that reads files of its own format runs it (none: as it is)")

    @cached_property
    def half_bytes(self) -> float:
        """Bytes a value of all that is not quantised: 2, or 4 where weights are fp32."""
        return 4.0 if isinstance(self.weight_bits, REAL) and self.weight_bits >= 32 else 2.0

    @cached_property
    def table_bytes(self) -> Num:
        """Bytes a value of embedding and head.

        >>> Quant("q8_0", table_bits=8.5).table_bytes, Quant("int8", 8, 8).table_bytes
        (1.0625, 2.0)
        """
        return self.table_bits / 8 if self.table_bits else self.half_bytes

    @cached_property
    def weight_bytes(self) -> Num:
        """Bytes a quantised weight, its share of the scales included."""
        return (self.weight_bits + self.scale_bits) / 8

    @cached_property
    def by_32(self) -> bool:
        """Whether 32 values share a scale of 8 bits (OCP Microscaling formats, 1.0)."""
        return highest(self.scale_bits) == 8 / 32

    @cached_property
    def act_bytes(self) -> Num:
        """Bytes an activation value where it is an operand of a quantised matrix product."""
        return self.act_bits / 8

    @cached_property
    def kv_bytes(self) -> Num:
        """Bytes a value of the KV cache."""
        return self.kv_bits / 8

    @cached_property
    def widths(self) -> dict[str, tuple[Num, Num, Num]]:
        """Bytes a value of weights, activations and outputs of the products of each part of a layer (PARTS)."""
        half = self.half_bytes
        narrow, wide = (self.weight_bytes, smaller(self.act_bytes, half), half), self.rest_bits / 8 or half
        rest = (wide, self.rest_act_bits / 8 or half, half)
        return {part: rest if part in self.wide else narrow for part in PARTS}

    @cached_property
    def rates(self) -> dict[str, str]:
        """Which compute rate they run at."""
        rest = "rest" if self.rest_act_bits else "half"
        return {part: rest if part in self.wide else "quant" for part in PARTS}


_ANY: dict[int, tuple[str, ...]] = {4: ("fp4", "int4"), 8: ("fp8", "int8"), 16: ("bf16", "fp16"), 32: ("tf32", "fp32")}
LADDERS: dict[str, dict[int, tuple[str, ...]]] = {
    "any": _ANY, "int": _ANY | {4: ("int4",), 8: ("int8",)},
    "float": _ANY | {4: ("fp4",), 8: ("fp8",), 32: ("fp32",)},
}  # fmt: skip
"""Kind of a scheme's values -> width in bits -> data types of that width, the first before the others."""


def compute_dtype(bits: Num, kind: str, peaks: dict[str, Num]) -> tuple[str, bool]:
    """The data type in which a device multiplies operands, of which the wider one has `bits` bits.

    The second value is whether the device computes at that width; if not, its next wider type is used and weights are
    only stored narrow. Raises RooflmError if the device has no rate at all.

    >>> compute_dtype(8, "any", {"bf16": 1.0, "int8": 2.0}), compute_dtype(8, "float", {"bf16": 1.0})
    (('int8', True), ('bf16', False))
    """
    ladder, exact = LADDERS.get(kind, LADDERS["any"]), True
    for width, types in ladder.items():
        if bits > width and width < 32:
            continue
        for dtype in types:
            if dtype in peaks:
                return dtype, exact
        exact = False
    if "fp32" in peaks:
        return "fp32", False
    raise RooflmError(f"the device has no compute rate for {bits}-bit operands: give cluster.device.peak.bf16")
