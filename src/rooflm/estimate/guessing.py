"""Speculative decoding as passes: what verifies several tokens of a sequence at once, and what guesses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rooflm.estimate import memory as mem
from rooflm.graph.ops import OVER_CACHE, Comm, Op
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.scenario import Scenario
from rooflm.scenario.speculation import Speculation, guessing_model
from rooflm.units import Num


def verifying(plain: Sequence[Op | Comm], wide: Sequence[Op | Comm], rows: Num) -> list[Op | Comm]:
    """Nodes of a decode pass that verifies guesses, from those of passes with one token a sequence (plain) and with
    `rows` of them (wide). Attention still reads a sequence's cache only once."""
    return [a._replace(flops=a.flops * rows) if isinstance(a, Op) and a.kind in OVER_CACHE else b
            for a, b in zip(plain, wide, strict=True)]  # fmt: skip


def drafting(s: Scenario) -> Scenario:
    """The scenario of one draft pass: the draft model in its own scheme on the same devices. The host's fixed costs of
    a step are left out: the verifying pass pays them."""
    model = guessing_model(s.model, s.speculation)
    scheme = replace(s.speculation.scheme or s.quant, kv_bits=s.quant.kv_bits)
    mapping = replace(s.mapping, pp=1, ep=s.mapping.ep if s.speculation.draft is None else 1)
    engine = s.engine.but(step=0.0, sequence=0.0, request=0.0, front=0.0, tokenise=0.0, carry=0.0)
    one = replace(s, model=model, quant=scheme, mapping=mapping, engine=engine, speculation=Speculation())
    return replace(one, adapters=Adapters())


def held(s: Scenario, sequence_bytes: Callable[[Scenario], Num]) -> tuple[Num, Num]:
    """(bytes of weights, bytes of cache a sequence) that speculative decoding adds on a device: those of the draft
    model, or of the model's own prediction layers (one layer where the checkpoint has none)."""
    d = drafting(s)
    each = sequence_bytes(d)
    if s.speculation.draft is None:
        size = float(s.model.mtp_params)
        two = replace(d.model, blocks=tuple(replace(b, count=2) for b in d.model.blocks))
        layer = mem.weight_bytes(two, d.mapping, d.quant) - mem.weight_bytes(d.model, d.mapping, d.quant)
        return size * d.quant.weight_bytes / d.mapping.tp if size else layer, each
    return mem.weight_bytes(d.model, d.mapping, d.quant), each
