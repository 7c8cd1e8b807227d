"""How the work is split over devices: parallel degrees; for training, schedule, recomputation and sharding."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rooflm.catalogue.fields import count, flag, word
from rooflm.units import Num, larger, smaller

DEGREES = ("tp", "pp", "vp", "dp", "cp", "ep")
"""Degrees of a split by name."""
SERVED_DEGREES = ("tp", "pp", "dp", "ep")
"""Those that a search of servers goes through."""
RECOMPUTE = ("none", "selective", "ops", "full", "block")
"""Policies by name. What runs again: none, attention's core, all but it and every second product, all, some layers."""
MODULES = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe")
"""Parts of a layer that can run again by themselves, by their names in Megatron-Core (TransformerConfig,
recompute_modules). core_attn is the policy "selective"."""
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe", "zb-v", "v-half", "v-min")
"""Schedules by name."""


@dataclass(frozen=True)
class Mapping:
    """How the work is split. Devices = tp * cp * dp * pp.

    Experts are spread over ep ranks taken from tp * dp: ep <= tp keeps the experts inside the tensor group, ep > tp
    spans ep / tp data-parallel ranks (attention data parallelism when serving)."""

    tp: Num = count(1, "degree of tensor parallelism")
    pp: Num = count(1, "degree of pipeline parallelism")
    dp: Num = count(1, "degree of data parallelism")
    cp: Num = count(1, "degree of context parallelism")
    ep: Num = count(1, "degree of expert parallelism")
    slices: Num = count(1, "ranks of attention that share each of their experts, cut by tensor (of ep)")
    vp: Num = count(1, "virtual pipeline stages a device")
    sp: bool = flag(False, "Megatron's sequence parallelism")
    micro_batch: Num = count(1, "sequences a micro-batch in training")
    recompute: str = word("none", "what runs again in the backward pass", RECOMPUTE)
    recompute_layers: Num = count(0, "layers recomputed a stage (block), or between checkpoints (full; 0: 1)", low=0)
    recompute_modules: tuple[str, ...] = ()
    """Parts of a layer that run again beside what the policy says (MODULES)."""
    zero: Num = count(0, "ZeRO stage", low=0, high=3)
    fsdp_group: Num = count(0, "devices a sharding group (0: all of dp)", low=0)
    schedule: str = word("1f1b", "schedule of the pipeline in training", SCHEDULES)
    in_flight: Num = count(0, "most micro-batches at once in an inference pipeline (0: one a stage if the engine's "
                           "stages overlap, else 1: a batch passes stage after stage)", low=0)  # fmt: skip
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    """Which groups are nearest, innermost first."""
    gpus: Num = count(0, "GPUs asked for beside every degree (0: what these make)", low=0)

    @property
    def devices(self) -> Num:
        """Devices that the mapping uses."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def uneven(self) -> Num:
        """True where a degree is not whole, because the others do not divide the GPUs."""
        return (self.dp % 1 != 0) | (self.pp % 1 != 0)

    def stride(self, group: str) -> Num:
        """Distance in device numbers between neighbouring ranks of a group: the product of the degrees inside it."""
        inner = () if group == "ep" else self.order[: self.order.index(group)]
        return math.prod(getattr(self, name) for name in inner)

    def recomputed(self, layers: Num) -> Num:
        """Share of so many layers that run again: all, or with "block" the given number of each stage."""
        return smaller(self.recompute_layers * self.pp / layers, 1.0) if self.recompute == "block" else 1.0

    @property
    def expert_tp(self) -> Num:
        """Tensor-parallel degree inside an expert: tp / ep where the experts stay in the tensor group, else `slices`.

        >>> Mapping(tp=8).expert_tp, Mapping(dp=8, ep=8, slices=8).expert_tp, Mapping(dp=8, ep=8, slices=8).expert_ranks
        (8.0, 8.0, 1.0)
        """
        return larger(self.tp / self.ep, smaller(self.slices, self.expert_dp))

    @property
    def expert_ranks(self) -> Num:
        """Ranks over which whole experts are spread."""
        return self.ep / smaller(self.slices, self.expert_dp)

    @property
    def expert_dp(self) -> Num:
        """Data-parallel ranks whose tokens meet in one expert group: ep / tp, at least 1."""
        return larger(self.ep / self.tp, 1)
