"""What the builders of a graph share: a pass as data, the engine's kernels, the model, the split, the widths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLP, Attention, FeedForward, Mixer, Model
from rooflm.catalogue.quant import Quant
from rooflm.graph.ops import Comm, Op, gemm
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training
from rooflm.units import Num


def plain_norms(model: Model, kernels: Kernels) -> bool:
    """Whether norms are chains of plain kernels: RMS norms, unless the engine fuses them or brings a kernel."""
    return model.norm == "rms" and not (kernels.fused or kernels.norm_kernel)


def plain_gelu(ffn: FeedForward, kernels: Kernels) -> bool:
    """Whether a feed-forward's activation is GELU as a chain of plain kernels."""
    return kernels.plain_gelu and not (kernels.fused or ffn.gated)


def read_again(half: Mixer | FeedForward | None, kernels: Kernels) -> int:
    """Products of half a layer that read what another has read: K and V beside Q, the gate's beside the other."""
    both = 2 if isinstance(half, Attention) else int(isinstance(half, MLP) and half.gated)
    return 0 if kernels.merged else both


class Prefill(NamedTuple):
    """`sequences` of one rank, each with `new` tokens after `past` tokens that are in the cache already."""

    sequences: Num
    new: Num
    past: Num = 0

    @property
    def tokens(self) -> Num:
        """New tokens of all sequences."""
        return self.sequences * self.new

    @property
    def keys(self) -> Num:
        """Tokens of all sequences, the earlier ones included."""
        return self.sequences * (self.new + self.past)


class Decode(NamedTuple):
    """`sequences` of one rank, each with one new token that attends to `context` tokens, itself included; with
    guesses to verify, `verified` of them are one sequence's tokens."""

    sequences: Num
    context: Num
    verified: Num = 1


class Pass(NamedTuple):
    """One forward pass of one rank; `logits`: rows for which the head is computed."""

    prefill: Prefill | None
    decode: Decode | None
    logits: Num


@dataclass(frozen=True)
class Context:
    """What every builder needs: the model as scaled, the pass, the split, the widths and the engine's kernels.

    adapters: that are served beside the model; training: options of a training step, or None when serving. In training
    no KV cache is written, the head ends in a cross-entropy over a split vocabulary, and norms are native kernels even
    where they are not fused. beside: tokens that a cache keeps beside a window, which a token reads, too. head_kept: of
    the engine's `Room`."""

    model: Model
    work: Pass
    mapping: Mapping
    quant: Quant
    kernels: Kernels = Kernels()  # noqa: RUF009  frozen, so one for all is right
    training: Training | None = None
    adapters: Adapters | None = None
    beside: Num = 0.0
    head_kept: Num = 0

    @property
    def sequence_parallel(self) -> bool:
        """Whether norms, residuals and dropouts work on tokens / tp, all-reduces in two (Korthikanti et al. 2022)."""
        return self.training is not None and self.mapping.sp

    @property
    def dropout(self) -> bool:
        """Whether dropout masks are drawn and stored."""
        return self.training is not None and self.training.dropout

    @cached_property
    def tokens(self) -> Num:
        """New tokens that this rank works on: its share of the prefill under context parallelism, all that decode."""
        p, d = self.work.prefill, self.work.decode
        return (p.tokens / self.mapping.cp if p else 0) + (d.sequences if d else 0)

    @cached_property
    def keys(self) -> Num:
        """Tokens of all sequences, the earlier ones included."""
        p, d = self.work.prefill, self.work.decode
        return (p.keys if p else 0.0) + (d.sequences * d.context if d else 0.0)

    @cached_property
    def residual_tokens(self) -> Num:
        """Tokens of the residual stream that this rank works on: a share of them under sequence parallelism."""
        return self.tokens / self.mapping.tp if self.sequence_parallel else self.tokens

    @property
    def hidden_bytes(self) -> Num:
        """Bytes of the hidden states of all of `tokens`."""
        return self.tokens * self.model.hidden * self.quant.half_bytes

    @property
    def autocast(self) -> Num:
        """1 where fp32 weights run under autocast: neither sharded (FSDP casts what it gathers) nor adapters."""
        t = self.training if self.kernels.autocast else None
        return 0.0 if t is None else self.whole * 1.0 * t.master * (not t.adapters) * (self.quant.half_bytes < 4)

    @property
    def whole(self) -> Num:
        """Whether no data-parallel ranks share out gradients or weights."""
        return (np.asarray(self.mapping.zero) < 2) | (np.asarray(self.mapping.dp * self.mapping.cp) <= 1)

    @property
    def wide_softmax(self) -> Num:
        """1 where plain kernels take softmax in fp32: told so, or under autocast, which always does (amp.rst)."""
        return 1.0 if self.kernels.softmax == "wide" else self.autocast * (self.kernels.softmax == "plain")

    @cached_property
    def states(self) -> Num:
        """Tokens that read and write a recurrent state: the last of each prompt, and all that decode."""
        p, d = self.work.prefill, self.work.decode
        return (p.sequences if p else 0) + (d.sequences if d else 0)

    @cached_property
    def sequences(self) -> Num:
        """Sequences of the pass; guessed tokens that are verified together are one sequence's."""
        p, d = self.work.prefill, self.work.decode
        return (p.sequences if p else 0) + (d.sequences / d.verified if d else 0)

    def product(self, name: str, part: str, count: Num, n: Num, k: Num, launches: Num = 1) -> Op:
        """The product of all tokens with weights [k, n] of a part of a layer, in the scheme's widths."""
        return gemm(name, part, count, self.tokens, n, k, self.quant.widths[part], self.quant.rates[part], launches)

    def message(self, name: str, group: str, op: str, count: Num, size: Num, ranks: Num | None = None) -> Comm:
        """A collective of a parallel group, of `size` bytes as gathered, between all its ranks or so many of them."""
        m = self.mapping
        among = getattr(m, group) if ranks is None else ranks
        return Comm(name, f"{group}_comm", op, count, size, among, m.stride(group), group)
