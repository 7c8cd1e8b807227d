"""Layers, or the experts of layers, that stay in the host's memory and run on its CPU: the usual set-up at home."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflm.catalogue.fields import count, number
from rooflm.catalogue.model import Block, Model, MoE
from rooflm.units import Num, is_plain


@dataclass(frozen=True)
class Offload:
    """What the host holds: layers from the last one on, experts from the first layer that has some (as llama.cpp)."""

    layers: Num = count(0, "whole layers in the host's memory, with their cache", low=0)
    experts: Num = count(0, "layers whose routed experts alone are in the host's memory", low=0)
    bandwidth: Num = number(89.6e9, "rate of the host's memory (two channels of DDR5-5600)", "bytes/s", above=True)
    link: Num = number(25e9, "bandwidth between host and device (PCIe 4.0 x16 reaches 25 GB/s)", "bytes/s", above=True)
    power: Num = number(100.0, "draw of the host's CPU and memory while its layers run (by hand: decision 383)", "W")

    @property
    def off(self) -> bool:
        """True where the device holds everything."""
        return is_plain(self.layers, 0) and is_plain(self.experts, 0)


def away(model: Model, offload: Offload) -> list[tuple[Block, Num, Num]]:
    """For each block: layers that are on the host, and further layers of which only the experts are."""
    left, held = offload.layers, []
    for block in reversed(model.blocks):
        whole = np.minimum(left, block.count)
        left = left - whole
        held.append((block, whole))
    experts, counts = offload.experts, []
    for block, whole in reversed(held):
        alone: Num = np.minimum(experts, block.count - whole) if isinstance(block.ffn, MoE) else 0
        experts = experts - alone
        counts.append((block, whole, alone))
    return counts


def on_device(model: Model, offload: Offload) -> Model:
    """The model without the layers and experts that are on the host."""
    blocks: list[Block] = []
    for block, whole, alone in away(model, offload):
        if not is_plain(offload.experts, 0) and isinstance(block.ffn, MoE):
            blocks.append(replace(block, count=_plain(alone), ffn=None))
        blocks.append(replace(block, count=_plain(block.count - whole - alone)))
    kept = tuple(b for b in blocks if not is_plain(b.count, 0))
    return replace(model, blocks=kept or (replace(model.blocks[0], count=1, ffn=None),))


def _plain(value: Num) -> Num:
    return int(value) if np.ndim(value) == 0 else value
