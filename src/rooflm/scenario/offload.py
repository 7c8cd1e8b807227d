"""Layers, or the experts of layers, that stay in the host's memory and run on its CPU: the usual set-up at home."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rooflm.catalogue.fields import count, number
from rooflm.catalogue.model import Block, Model, MoE
from rooflm.units import Num, is_plain


@dataclass(frozen=True)
class Offload:
    """What the host holds. Layers are counted from the last one, experts from the first layer that has some, as
    llama.cpp does (`--n-gpu-layers`, `--n-cpu-moe`)."""

    layers: Num = count(0, "whole layers in the host's memory, with their cache", low=0)
    experts: Num = count(0, "layers whose routed experts alone are in the host's memory", low=0)
    bandwidth: Num = number(
        60e9,
        "bandwidth that the host's memory reaches (two channels of DDR5-5600 have 89.6 GB/s)",
        "bytes/s",
        above=True,
    )
    link: Num = number(25e9, "bandwidth between host and device (PCIe 4.0 x16 reaches 25 GB/s)", "bytes/s", above=True)

    @property
    def off(self) -> bool:
        """True where the device holds everything."""
        return is_plain(self.layers, 0) and is_plain(self.experts, 0)


def on_device(model: Model, offload: Offload) -> Model:
    """The model as the device holds it: without the host's layers, the host's experts out of theirs.

    >>> from rooflm.checkpoints.load import load_model
    >>> on_device(load_model("llama-7b"), Offload(8)).layers
    24
    """
    left, blocks = offload.layers, []
    for block in reversed(model.blocks):
        away = np.minimum(left, block.count)
        left = left - away
        blocks.append(replace(block, count=_plain(block.count - away)))
    found: list[Block] = []
    experts = offload.experts
    for block in reversed(blocks):
        if not isinstance(block.ffn, MoE) or is_plain(experts, 0):
            found.append(block)
            continue
        away = np.minimum(experts, block.count)
        experts = experts - away
        found += [replace(block, count=_plain(away), ffn=None), replace(block, count=_plain(block.count - away))]
    kept = tuple(b for b in found if not is_plain(b.count, 0))
    return replace(model, blocks=kept or (replace(model.blocks[0], count=1, ffn=None),))


def on_host(model: Model, offload: Offload) -> Iterator[tuple[Block, Num, bool]]:
    """Block, how many of its layers the host has, and whether of these the experts alone."""
    left = offload.layers
    kept: list[tuple[Block, Num]] = []
    for block in reversed(model.blocks):
        away = np.minimum(left, block.count)
        left = left - away
        kept.append((block, block.count - away))
        yield block, away, False
    experts = offload.experts
    for block, rest in reversed(kept):
        if isinstance(block.ffn, MoE):
            away = np.minimum(experts, rest)
            experts = experts - away
            yield block, away, True


def _plain(value: Num) -> Num:
    return int(value) if np.ndim(value) == 0 else value
