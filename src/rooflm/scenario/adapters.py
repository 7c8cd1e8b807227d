"""Low-rank adapters that a server holds beside the model, each request asking for one of them (multi-LoRA)."""

from __future__ import annotations

from dataclasses import dataclass

from rooflm.catalogue.fields import count
from rooflm.units import Num, is_plain

MODULES = ("qkv", "q", "kv", "k", "v", "out", "gate_up", "gate", "up", "down")
"""Products of a layer that may have adapters, by name (routed experts have none)."""
TRAINED = (*MODULES, "experts", "experts_shared")
"""The same where they are trained: an adapter for each routed expert, or one for all of a rank (Megatron-Bridge's)."""


@dataclass(frozen=True)
class Adapters:
    """The adapters that are served. All have one rank, and requests ask for each alike."""

    held: Num = count(0, "adapters in device memory, of which each request asks for one (0: none)", low=0)
    rank: Num = count(16, "rank of each of them")
    modules: tuple[str, ...] = MODULES

    @property
    def off(self) -> bool:
        """True where none is served (a list of numbers of adapters counts as serving)."""
        return is_plain(self.held, 0)
