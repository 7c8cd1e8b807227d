"""What an engine can run at all: schemes, splits and features, as its documentation has them.

A scheme's own name says too little (a hub checkpoint's is spelled by its widths), so engines list KINDS of schemes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rooflm.catalogue.fields import count, flag, word, words_in
from rooflm.catalogue.quant import Quant
from rooflm.units import REAL

KINDS = (
    "half", "fp8", "fp8-block", "mxfp8", "fp8-weights", "int8", "int8-weights", "int4", "w4a8", "w4a4", "mxfp4",
    "nvfp4", "int3", "gguf", "fraction",
)  # fmt: skip
"""Kinds of schemes: 16 or 32 bits; 8-bit floats with one scale a tensor or row, by blocks of 128, by 32 values; 8-bit
weights alone; 8-bit integers; the same of weights alone; 4-bit groups; these with 8-bit and with 4-bit activations;
4-bit floats by 32 and by 16 values; 2 or 3 bits in groups; llama.cpp's own types; a number of bits between two."""


@dataclass(frozen=True)
class Abilities:
    """What it can run, and how it splits what it was not told to split."""

    schemes: str = word("", f"kinds of schemes that it runs, with commas: {', '.join(KINDS)} (none: all)")
    elsewhere: str = word("", "makers, families or architectures of devices that it is not built for, with commas")
    caches: str = word("", "widths in bits of a cached value that it keeps, with commas (none: any)")
    first_on: str = word("", "makers, families or architectures of devices on which it is assumed before all others")
    tensor_groups: bool = flag(True, "it splits a layer over several devices")
    tensor_inside: bool = flag(False, "its tensor groups stay within a machine")
    stage_groups: bool = flag(True, "it runs pipeline stages")
    context_groups: bool = flag(True, "it splits a sequence over several devices")
    mixed_groups: bool = flag(True, "tensor groups and pipeline stages go together")
    expert_groups: str = word("any", "ranks that experts go over: any divisor, all of tp x dp, or none",
                             ("any", "all", "none"))  # fmt: skip
    ranks_are_groups: bool = flag(True, "ranks that share experts with others may be tensor groups")
    layers_first: bool = flag(False, "devices that are not spoken for become pipeline stages, not a tensor group")
    many_adapters: bool = flag(True, "it serves requests of different low-rank adapters in one pass")
    host_layers: bool = flag(False, "it runs layers, or their experts, on the host's CPU")
    instead: int = count(0, "its place among engines assumed where the usual one cannot run what is asked (0: none)", 0)
    for_adapters: int = count(0, "its place among engines assumed where adapters are trained unsplit (0: none)", 0)

    def runs(self, quant: Quant, stored: bool = False) -> bool:
        """Whether it runs a scheme; a list of widths counts as run, a checkpoint's own (stored) as integers.

        >>> [Abilities(schemes="half, mxfp4").runs(Quant("w4a16", 4), stored) for stored in (False, True)]
        [True, False]
        """
        own = replace(quant, kind="int") if stored and quant.kind == "any" else quant
        return not self.schemes or bool(kinds_of(own) & set(words_in(self.schemes)))


def kinds_of(q: Quant) -> frozenset[str]:
    """The kinds that a scheme may be: one if its values say so, several of mere widths ("w4a16"), any of lists."""
    if not all(isinstance(w, REAL) for w in (q.weight_bits, q.act_bits, q.kv_bits, q.scale_bits)):
        return frozenset(KINDS)
    weight, act = float(q.weight_bits), float(q.act_bits)
    if weight >= 16:
        return frozenset({"half"})
    if q.gguf:
        return frozenset({"gguf"})
    if not weight.is_integer():
        return frozenset({"fraction", "gguf"})
    if q.kind == "float":
        eight = "fp8-weights" if act > 8 else "fp8-block" if q.block else "mxfp8" if q.by_32 else "fp8"
        return frozenset({eight if weight >= 8 else "mxfp4" if q.by_32 else "nvfp4"})
    width = 8 if weight >= 8 else 4 if weight >= 4 else 3
    narrow, also = _WIDTHS.get((width, 16 if act >= 16 else 4 if act <= 4 else 8), (f"int{width}", ()))
    return frozenset({narrow} if q.kind == "int" else {narrow, *also})


_WIDTHS: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {
    (8, 16): ("int8-weights", ("fp8-weights", "gguf")),
    (8, 8): ("int8", ("fp8", "fp8-block", "mxfp8")),
    (4, 16): ("int4", ("mxfp4", "gguf")),
    (4, 8): ("w4a8", ("mxfp4",)),
    (4, 4): ("w4a4", ("mxfp4", "nvfp4")),
    (3, 16): ("int3", ("gguf",)),
}
"""Widths of weights and activations -> the kind of integers (where none is given: intN), and what else it may be."""
