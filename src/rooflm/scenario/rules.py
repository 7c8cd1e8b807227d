"""The rules that a split keeps: one list for a point, a grid and a search. A rule is True where it is broken, over
plain numbers or arrays; its reason marks the points of a grid, and finds a single one's sentence (`asked.refused`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MLA, Attention, Model, MoE
from rooflm.catalogue.quant import compute_dtype
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, any_of, larger, smaller


class Rule(NamedTuple):
    """reason: as a grid marks it. broken: True where a scenario breaks it."""

    reason: str
    broken: Callable[[Scenario], Num]


def divisors(value: int, most: float = math.inf) -> list[int]:
    """All divisors up to `most`, rising.

    >>> divisors(12), divisors(12, 4)
    ([1, 2, 3, 4, 6, 12], [1, 2, 3, 4])
    """
    small = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return [d for d in sorted({*small, *(value // d for d in small)}) if d <= most]


def heads_of(model: Model) -> list[Num]:
    """Query (or recurrent) heads of every mixer of a model as scaled."""
    return [b.mixer.heads for b in model.scaled.blocks if b.mixer is not None]


def mixtures(model: Model) -> list[MoE]:
    """Every expert layer."""
    return [b.ffn for b in model.blocks if isinstance(b.ffn, MoE)]


def broken_by(members: Iterable[Num], ways: Num) -> Num:
    """True where a degree does not divide one of these numbers."""
    return any_of([x % ways != 0 for x in members])


def mixers(s: Scenario, *kinds: type[Any]) -> list[Any]:
    """Every mixer of these kinds."""
    return [b.mixer for b in s.model.blocks if isinstance(b.mixer, kinds)]


def _no_indexer(s: Scenario) -> Num:
    """True where mixers pick tokens but no layer has an indexer (GLM-5.2: one layer's picks may serve the next)."""
    found = mixers(s, Attention, MLA)
    picks = any_of([m.index_topk > 0 for m in found])
    own = any_of([m.index_heads * m.index_dim > 0 for m in found])
    return picks is not False and picks & (own == 0)


def _experts_over_other_ranks(s: Scenario) -> Num:
    """True where experts are spread over a number of ranks that the engine does not support."""
    m, over = s.mapping, s.engine.abilities.expert_groups
    if over == "any":
        return (not s.engine.abilities.ranks_are_groups) & (m.ep > m.tp) & (m.tp > 1)
    return (m.ep > 1) & ((over == "none") | (m.ep != m.tp * m.dp))


def expert_rules(*names: str) -> tuple[Rule, ...]:
    """The rules of ep, where experts are spread over the ranks of the groups named."""
    return (
        Rule("ep needs a mixture of experts", lambda s: not mixtures(s.model) and s.mapping.ep > 1),
        Rule("ep does not divide the experts",
             lambda s: broken_by([f.experts for f in mixtures(s.model)], s.mapping.ep)),
        Rule("slices do not divide ep / tp", lambda s: s.mapping.expert_dp % s.mapping.slices != 0),
        Rule(f"ep does not divide {' x '.join(names)}",
             lambda s: math.prod(getattr(s.mapping, name) for name in names) % s.mapping.ep != 0),
    )  # fmt: skip


def _tensor_group_over_machines(s: Scenario) -> Any:
    """Whether a tensor group of an engine whose groups stay within a machine is larger than one."""
    c = s.cluster
    near = c.tiers[0].size if c.tiers else 1.0
    host = np.where(np.asarray(c.machine) > 0, c.machine, near)
    return s.engine.abilities.tensor_inside & (s.mapping.tp > host)


ENGINE = (
    Rule("the engine does not run the scheme", lambda s: not s.engine.abilities.runs(s.quant)),
    Rule("the engine has no tensor groups", lambda s: (not s.engine.abilities.tensor_groups) & (s.mapping.tp > 1)),
    Rule("the engine has no tensor groups over machines", _tensor_group_over_machines),
    Rule("the engine has no pipeline stages", lambda s: (not s.engine.abilities.stage_groups) & (s.mapping.pp > 1)),
    Rule("the engine has no context groups", lambda s: (not s.engine.abilities.context_groups) & (s.mapping.cp > 1)),
    Rule("the engine does not mix tp and pp",
         lambda s: (not s.engine.abilities.mixed_groups) & (s.mapping.tp > 1) & (s.mapping.pp > 1)),
    Rule("the engine spreads experts otherwise", _experts_over_other_ranks),
)  # fmt: skip
"""Rules of what an engine can run, which its row says (`Engine.abilities`)."""
SPLIT = (
    Rule("kv_heads does not divide the heads",
         lambda s: any_of([a.heads % a.kv_heads != 0 for a in mixers(s, Attention)])),
    Rule("top_k exceeds the experts", lambda s: any_of([f.top_k > f.experts for f in mixtures(s.model)])),
    Rule("the indexer has no heads", _no_indexer),
    Rule("TDP is not above idle power", lambda s: s.cluster.device.tdp <= s.cluster.device.idle),
    Rule("the degrees do not divide the GPUs", lambda s: s.mapping.uneven),
    Rule("tp does not divide the heads", lambda s: broken_by(heads_of(s.model), s.mapping.tp)),
    Rule("the degrees make another number of GPUs",
         lambda s: (s.mapping.gpus > 0) & (s.mapping.devices != s.mapping.gpus) & (s.mapping.uneven == 0)),
    Rule("pp exceeds the layers", lambda s: s.mapping.pp > s.model.layers),
)  # fmt: skip
"""Rules of any split; the first three are of a model's shapes, before scales and prunings round them; one of a card."""
DEPLOYED = (
    *SPLIT,
    *expert_rules("tp", "dp"),
    *ENGINE,
    Rule("the engine serves no adapters", lambda s: (not s.engine.abilities.many_adapters) & (s.adapters.held > 0)),
    Rule("the engine runs nothing on the host",
         lambda s: (not s.engine.abilities.host_layers) & (s.offload.layers + s.offload.experts > 0)),
    Rule("cpu_experts needs a mixture of experts", lambda s: not mixtures(s.model) and s.offload.experts > 0),
    Rule("the host holds more layers than there are",
         lambda s: (s.offload.layers >= s.model.layers) | (s.offload.layers + s.offload.experts > s.model.layers)),
    Rule("the engine keeps no such cache", lambda s: bool(kept := words_in(s.engine.abilities.caches))
         and any_of(s.quant.kv_bits == float(width) for width in kept) == 0),
    Rule("a step gains more than its guesses",
         lambda s: np.asarray(s.speculation.accepted) > np.asarray(s.speculation.guesses) + 1),
)  # fmt: skip
"""Rules of a deployed model, whatever is asked of it."""
ASKED = (
    Rule("the model embeds texts: no output follows",
         lambda s: not s.model.head
         and ((np.asarray(s.workload.output) > 1) | (np.asarray(s.speculation.guesses) > 0))),
    Rule("dp exceeds the batch", lambda s: s.mapping.dp > s.workload.batch),
    Rule("cached is not below the prompt", lambda s: s.workload.cached >= s.workload.prompt),
)  # fmt: skip
"""Rules of what is asked of it."""
INFERENCE = (*DEPLOYED, *ASKED)
"""Rules of serving."""
TRAINING = (
    Rule("the model has no head to train", lambda s: not s.model.head),
    *SPLIT,
    *expert_rules("tp", "cp", "dp"),
    *ENGINE,
    Rule("a rank has more tokens than all", lambda s: (s.mapping.ep > 1) & any_of([
        s.training.imbalance > smaller(s.mapping.ep, f.experts / f.top_k) for f in mixtures(s.model)])),
    Rule("the device does not multiply in such a type",
         lambda s: not compute_dtype(np.max(s.quant.act_bits), s.quant.kind, s.cluster.device.peak)[1]
         or s.quant.needs not in ("", *s.cluster.device.peak)),
    Rule("the last stage leaves none to the others", lambda s: (s.training.last_layers > 0)
         & (s.training.last_layers > s.model.layers + s.training.mtp + 1 - s.mapping.pp)),
    Rule("pp x vp exceeds the layers", lambda s: s.mapping.pp * s.mapping.vp > s.model.layers + 2),
    Rule("dp x micro_batch does not divide the batch",
         lambda s: s.workload.batch % (s.mapping.dp * s.mapping.micro_batch) != 0),
    Rule("flushes does not divide the micro-batches", lambda s: micro_batches(s) % s.training.flushes != 0),
    Rule("in_backward needs one micro-batch a step", lambda s: s.training.in_backward & (micro_batches(s) > 1)),
    Rule("interleaving needs a multiple of pp micro-batches",
         lambda s: s.mapping.schedule == "interleaved" and (s.mapping.vp > 1) & (s.mapping.pp > 1)
         & (micro_batches(s) / s.training.flushes % s.mapping.pp != 0)),
    Rule("cp does not divide seq", lambda s: s.workload.seq % s.mapping.cp != 0),
    Rule("fsdp_group does not divide dp x cp",
         lambda s: (s.mapping.fsdp_group > 0) & (s.mapping.dp * s.mapping.cp % larger(s.mapping.fsdp_group, 1) != 0)),
)  # fmt: skip
"""Rules of training. Embedding and head may take a place of a virtual stage each (Llama 3, arXiv 2407.21783)."""


def flags(s: Scenario, rules: Iterable[Rule]) -> dict[str, Num]:
    """Reason -> True where a point breaks that rule."""
    return {rule.reason: rule.broken(s) for rule in rules}
