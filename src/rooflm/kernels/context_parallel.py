"""Attention of one rank of a context group: the kernels that its share of a sequence is cut into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rooflm.kernels.attention import THROTTLE_S
from rooflm.units import Num


def chunked(call: Callable[..., Num], new: Num, ways: Num, c: Any, long: Num, streams: bool) -> Num:
    """Seconds of causal attention over `new` tokens on one of `ways` ranks, each with two chunks from either end.

    call: the kernel's time by (new, past, c=, causal=); c: its PrefillConstants. The rank's own two chunks are causal;
    each of the other ways - 1 kernels sees one chunk of queries by two of keys, or two by one: new / (2 ways) by
    new / ways, all pairs. They follow each other without a rest, so that power throttles them like one kernel of their
    sum (`long`, its seconds at the datasheet's rate). streams: two streams take turns, so that the last tiles of one
    kernel and the start of the next overlap, and both count once.

    Source: Transformer Engine, context_parallel.py, AttnFuncWithCPAndKVP2P (chunks; "two streams to resolve wave
    quantization issue of Flash Attn in each step").

    >>> def pairs(new, past, c, causal=True): return new * (past + new) * (0.5 if causal else 1.0)
    >>> from rooflm.kernels.attention import IDEAL_PREFILL
    >>> float(chunked(pairs, 1024.0, 4, IDEAL_PREFILL, 0.0, True)) == pairs(1024.0, 0, IDEAL_PREFILL) / 4
    True
    """
    half = new / (2 * ways)
    c = c._replace(eff=c.eff * (1 - c.throttle * long / (THROTTLE_S + long)), throttle=0.0)
    rest = c._replace(tail=0.0, launch_s=0.0) if streams else c
    return call(new / ways, 0, c=c) + (ways - 1) * call(half, half, c=rest, causal=False)
