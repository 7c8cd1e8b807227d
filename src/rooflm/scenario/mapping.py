"""How the work is split over devices: the parallel degrees, and for training the schedule, recomputation and
sharding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflm.units import Num

GROUPS = ("tp", "cp", "ep", "dp", "pp")


RECOMPUTE = ("none", "selective", "ops", "full", "block")
"""Recomputation policies by name."""
MODULES = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe")
"""Parts of a layer that can run again by themselves, by their names in Megatron-Core (TransformerConfig,
recompute_modules). core_attn is the policy "selective"."""
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe")
"""Schedules by name."""


@dataclass(frozen=True)
class Mapping:
    """Degrees of tensor (tp), pipeline (pp), data (dp), context (cp) and expert (ep) parallelism; all may be arrays.

    Devices = tp * cp * dp * pp. Experts are spread over ep ranks taken from tp * dp: ep <= tp keeps the experts inside
    the tensor group, ep > tp spans ep / tp data-parallel ranks (attention data parallelism when serving).
    vp: virtual pipeline stages a device; sp: Megatron sequence parallelism; micro_batch: sequences a micro-batch;
    recompute: none, selective (attention core), ops (all but attention and every other product), full, block;
    recompute_layers: with "block" the layers recomputed a stage, with "full" the layers between checkpoints (0 = 1);
    recompute_modules: parts of a layer that run again beside what the policy says (`backward.MODULES`);
    zero: 0 to 3; fsdp_group: devices a sharding group (0 = all of dp); schedule: gpipe, 1f1b, interleaved, zb-h1;
    in_flight: most micro-batches at once in an inference pipeline (0: one a stage if the engine's stages overlap, else
    1: a batch passes stage after stage).
    order: which groups are nearest, innermost first. gpus: GPUs asked for beside every degree (0: what these make).
    """

    tp: Num = 1
    pp: Num = 1
    dp: Num = 1
    cp: Num = 1
    ep: Num = 1
    vp: Num = 1
    sp: bool = False
    micro_batch: Num = 1
    recompute: str = "none"
    recompute_layers: Num = 0
    recompute_modules: tuple[str, ...] = ()
    zero: Num = 0
    fsdp_group: Num = 0
    schedule: str = "1f1b"
    in_flight: Num = 0
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")
    gpus: Num = 0

    @property
    def devices(self) -> Num:
        """Devices that the mapping uses.

        >>> Mapping(tp=8, pp=2, dp=4).devices
        64
        """
        return self.tp * self.pp * self.dp * self.cp

    @property
    def uneven(self) -> Num:
        """True where a degree is no whole number, because the others do not divide the GPUs.

        >>> bool(Mapping(tp=3, dp=8 / 3).uneven), bool(Mapping(tp=4, dp=2).uneven)
        (True, False)
        """
        return np.asarray((np.asarray(self.dp) % 1 != 0) | (np.asarray(self.pp) % 1 != 0))

    @property
    def misfit(self) -> Num:
        """True where the degrees make another number of GPUs than was asked for.

        >>> bool(Mapping(tp=2, dp=2, gpus=8).misfit), bool(Mapping(tp=4, dp=2, gpus=8).misfit)
        (True, False)
        """
        return np.asarray(
            (np.asarray(self.gpus) > 0) & (np.asarray(self.devices) != np.asarray(self.gpus)) & ~np.asarray(self.uneven)
        )

    def stride(self, group: str) -> Num:
        """Distance in device numbers between neighbouring ranks of a group: the product of the degrees inside it.

        >>> Mapping(tp=8, dp=4, pp=2).stride("pp")
        32
        """
        if group == "ep":
            return 1
        inner = self.order[: self.order.index(group)]
        stride: Num = 1
        for name in inner:
            stride = stride * getattr(self, name)
        return stride

    @property
    def expert_tp(self) -> Num:
        """Tensor-parallel degree inside an expert: tp / ep where the experts stay in the tensor group, else 1."""
        return np.maximum(self.tp / self.ep, 1)

    @property
    def expert_dp(self) -> Num:
        """Data-parallel ranks whose tokens meet in one expert group: ep / tp, at least 1."""
        return np.maximum(self.ep / self.tp, 1)
