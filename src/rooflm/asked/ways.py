"""Which degrees a model's shapes allow, as one number, among whose divisors searches, remedies and refusals choose.
The rules themselves, of any list of degrees, are `scenario.rules`."""

from __future__ import annotations

import math

from rooflm.catalogue.model import Attention, Model
from rooflm.scenario.rules import heads_of, mixtures


def tensor_ways(model: Model, shared: bool = False) -> int:
    """The number of which tp must be a divisor: the greatest common divisor of the heads of all mixers (0: no mixer,
    any tp). shared: include KV heads where there are several, as training frameworks require."""
    groups = [int(b.mixer.kv_heads) for b in model.scaled.blocks if isinstance(b.mixer, Attention)]
    heads = [int(h) for h in heads_of(model)]
    return math.gcd(*heads, *groups) if shared and groups and min(groups) > 1 else math.gcd(*heads)


def expert_ways(model: Model) -> int:
    """The number of experts of which ep must be a divisor (0: no experts, ep 1 only)."""
    return math.gcd(*(int(f.experts) for f in mixtures(model)))
