"""The rules that a split keeps, each with its reason and what to do: one list for a point, a grid and a search.

A rule is True where it is broken, over plain numbers or arrays. A prediction asked for alone is refused with the
sentence of the first rule that it breaks; the same point inside a grid or a search is marked with the rule's reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from rooflm.catalogue.abilities import listed
from rooflm.catalogue.engines import engines_of_adapters
from rooflm.catalogue.fields import shown
from rooflm.catalogue.model import MLA, Attention, Model, MoE
from rooflm.errors import RooflmError
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.units import Num, any_of, is_array


class Rule(NamedTuple):
    """reason: as a grid marks it. broken: True where a scenario breaks it. told: the sentence for one point, with the
    field, its value, the rule and the nearest right answer."""

    reason: str
    broken: Callable[[Scenario], Num]
    told: Callable[[Scenario], str]


def divisors(value: int, most: float = math.inf) -> list[int]:
    """All divisors up to `most`, rising.

    >>> divisors(12), divisors(12, 4)
    ([1, 2, 3, 4, 6, 12], [1, 2, 3, 4])
    """
    small = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return [d for d in sorted({*small, *(value // d for d in small)}) if d <= most]


def nearest(ways: Iterable[int], near: Num) -> str:
    """The two numbers nearest to one that is not among them, as "2 or 4".

    >>> nearest([1, 2, 4, 8, 16, 32], 3)
    '2 or 4'
    """
    ranked = sorted(ways, key=lambda d: (abs(math.log(d / float(near))), d))
    return " or ".join(str(d) for d in sorted(ranked[:2]))


def heads_of(model: Model) -> list[Num]:
    """Query (or recurrent) heads of every mixer of a model as scaled."""
    return [b.mixer.heads for b in model.scaled().blocks if b.mixer is not None]


def experts_of(model: Model) -> list[Num]:
    """Experts of every expert layer."""
    return [b.ffn.experts for b in model.blocks if isinstance(b.ffn, MoE)]


def tensor_ways(model: Model, shared: bool = False) -> int:
    """The number whose divisors are the legal tp: what all mixers' heads have in common (0: no mixer, any tp).
    shared: of the KV heads too, where there are several, as frameworks of training ask for.

    >>> from rooflm.checkpoints.load import load_model
    >>> tensor_ways(load_model("llama-3.1-8b")), tensor_ways(load_model("llama-3.1-8b"), shared=True)
    (32, 8)
    """
    groups = [int(b.mixer.kv_heads) for b in model.scaled().blocks if isinstance(b.mixer, Attention)]
    own = [int(h) for h in heads_of(model)]
    return math.gcd(*own, *groups) if shared and groups and min(groups) > 1 else math.gcd(*own)


def expert_ways(model: Model) -> int:
    """The number whose divisors are the legal ep, as far as the experts go (0: no experts, ep 1 only)."""
    return math.gcd(*(int(x) for x in experts_of(model)))


def _uneven(s: Scenario) -> str:
    m = s.mapping
    given = " x ".join(f"{k} {shown(getattr(m, k))}" for k in ("tp", "pp", "dp", "cp")
                       if getattr(m, k) != 1 and float(getattr(m, k)).is_integer())  # fmt: skip
    return f"gpus is {shown(round(float(m.devices), 6))}, but {given} must divide it"


def _misfit(s: Scenario) -> str:
    m = s.mapping
    return f"gpus is {shown(m.gpus)}, but tp x pp x dp x cp is {shown(m.devices)}: leave one of them out"


def _heads(s: Scenario) -> str:
    tp, heads = shown(s.mapping.tp), shown(next(h for h in heads_of(s.model) if h % s.mapping.tp))
    near = nearest(divisors(tensor_ways(s.model)), s.mapping.tp)
    return f"tp is {tp}, but it must divide the {heads} attention heads of {s.model.name}: try {near}"


def _experts(s: Scenario) -> str:
    experts = next(x for x in experts_of(s.model) if x % s.mapping.ep)
    near = nearest(divisors(expert_ways(s.model)), s.mapping.ep)
    return f"ep is {shown(s.mapping.ep)}, but it must divide the {shown(experts)} experts of {s.model.name}: try {near}"


def broken_by(members: Iterable[Num], ways: Num) -> Num:
    """True where a degree does not divide one of these numbers."""
    return any_of([x % ways != 0 for x in members])


def expert_rules(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of ep, where experts are spread over the ranks of the groups named."""

    def ranks(s: Scenario) -> Num:
        return math.prod(getattr(s.mapping, name) for name in names)

    def told(s: Scenario) -> str:
        near = nearest(divisors(math.gcd(int(ranks(s)), expert_ways(s.model))), s.mapping.ep)
        return f"ep is {shown(s.mapping.ep)}, but it must divide {' x '.join(names)} = {shown(ranks(s))}: try {near}"

    return (
        Rule("ep needs a mixture of experts", lambda s: not experts_of(s.model) and s.mapping.ep > 1,
             lambda s: f"ep is {shown(s.mapping.ep)}, but {s.model.name} has no experts: leave ep at 1"),
        Rule("ep does not divide the experts", lambda s: broken_by(experts_of(s.model), s.mapping.ep), _experts),
        Rule(f"ep does not divide {' x '.join(names)}", lambda s: ranks(s) % s.mapping.ep != 0, told),
    )  # fmt: skip


def _layers(s: Scenario) -> str:
    layers = shown(s.model.layers)
    return f"pp is {shown(s.mapping.pp)}, but {s.model.name} has only {layers} layers: use at most {layers}"


def _stages(s: Scenario) -> str:
    m, layers = s.mapping, s.model.layers
    most = max(math.floor((layers + 2) / m.pp), 1)
    return f"pp x vp is {shown(m.pp * m.vp)}, but {s.model.name} has only {shown(layers)} layers: try vp {most}"


def _ranks(s: Scenario) -> str:
    return f"dp is {shown(s.mapping.dp)}, but the batch has {shown(s.workload.batch)} sequences: use at most as many"


def _cached(s: Scenario) -> str:
    w = s.workload
    return f"cached is {shown(w.cached)}, but it must be below prompt ({shown(w.prompt)}): at least one token is new"


def _share(s: Scenario) -> str:
    batch, share = s.workload.batch, s.mapping.dp * s.mapping.micro_batch
    near = share * max(round(float(batch / share)), 1)
    rule = f"it must be a multiple of dp x micro_batch = {shown(share)}"
    return f"batch is {shown(batch)}, but {rule}: try {shown(near)}"


def _flushes(s: Scenario) -> str:
    m = int(micro_batches(s))
    near = nearest(divisors(m), s.training.flushes)
    return f"training.flushes is {shown(s.training.flushes)}, but it must divide the {m} micro-batches: try {near}"


def _interleaved(s: Scenario) -> str:
    m, pp = micro_batches(s) / s.training.flushes, s.mapping.pp
    batch = shown(s.mapping.dp * s.mapping.micro_batch * pp * s.training.flushes)
    return (
        f"a step has {shown(m)} micro-batches, but schedule interleaved needs a multiple of pp {shown(pp)}: "
        f"make batch a multiple of {batch}"
    )


def _context(s: Scenario) -> str:
    seq, cp = s.workload.seq, s.mapping.cp
    return f"cp is {shown(cp)}, but it must divide seq {shown(seq)}: try {nearest(divisors(int(seq)), cp)}"


def _short(s: Scenario) -> Num:
    """True where an interleaved schedule has micro-batches that fill no whole rounds of the pipeline."""
    m = s.mapping
    if m.schedule != "interleaved":
        return False
    each = micro_batches(s) / s.training.flushes
    return (m.vp > 1) & (m.pp > 1) & (each % m.pp != 0)


def _mixers(s: Scenario, kind: type[Any]) -> list[Any]:
    return [b.mixer for b in s.model.blocks if isinstance(b.mixer, kind)]


def _grouped(s: Scenario) -> str:
    one = next(a for a in _mixers(s, Attention) if a.heads % a.kv_heads)
    ways = nearest(divisors(int(one.heads)), one.kv_heads)
    return f"kv_heads is {shown(one.kv_heads)}, but it must divide the {shown(one.heads)} heads: try {ways}"


def _chosen(s: Scenario) -> str:
    one = next(b.ffn for b in s.model.blocks if isinstance(b.ffn, MoE) and b.ffn.top_k > b.ffn.experts)
    return f"top_k is {shown(one.top_k)}, but there are only {shown(one.experts)} experts: use at most as many"


PICKING = (Attention, MLA)
"""Mixers that may pick tokens."""


def _indexer(mixer: Any) -> Num:
    """Width of the indexer by which a mixer picks tokens (0: none of its own)."""
    if not isinstance(mixer, PICKING):
        return 0
    return mixer.index_heads * mixer.index_dim * (mixer.q_rank if isinstance(mixer, MLA) else 1)


def _blind(s: Scenario) -> Num:
    """True where mixers pick tokens and none has an indexer (one layer's picks may serve those after it: GLM-5.2)."""
    mixers = [b.mixer for b in s.model.blocks]
    picks = any_of([m.index_topk > 0 for m in mixers if isinstance(m, PICKING)])
    return picks is not False and picks & (any_of([_indexer(m) > 0 for m in mixers]) == 0)


def _scheme(s: Scenario) -> str:
    near = " or ".join(s.engine.abilities.nearest(s.quant))
    return f"quant is {s.quant.name}, but engine {s.engine.name} does not run such a scheme: try {near}"


def _cache(s: Scenario) -> str:
    *others, last = listed(s.engine.abilities.caches)
    widths = f"{', '.join(others)} or {last}" if others else last
    return f"quant keeps {shown(s.quant.kv_bits)} bits a cached value, but engine {s.engine.name} keeps {widths}"


def _no_group(name: str, what: str) -> Callable[[Scenario], str]:
    """The sentence of a degree that an engine does not have."""
    return lambda s: (
        f"{name} is {shown(getattr(s.mapping, name))}, but engine {s.engine.name} has no {what}: leave it out"
    )


def _mixed(s: Scenario) -> str:
    both = f"tp is {shown(s.mapping.tp)} and pp is {shown(s.mapping.pp)}"
    return f"{both}, but engine {s.engine.name} splits by one of them alone: make the other 1"


def _spread(s: Scenario) -> Num:
    """True where experts are spread over another number of ranks than the engine does."""
    m, over = s.mapping, s.engine.abilities.expert_groups
    if over == "any":
        return (not s.engine.abilities.ranks_are_groups) & (m.ep > m.tp) & (m.tp > 1)
    return (m.ep > 1) & ((over == "none") | (m.ep != m.tp * m.dp))


def _spread_told(s: Scenario) -> str:
    m, name = s.mapping, s.engine.name
    if s.engine.abilities.expert_groups == "none":
        return f"ep is {shown(m.ep)}, but engine {name} does not spread experts over devices: leave ep at 1"
    if s.engine.abilities.expert_groups == "any":
        return f"ep is {shown(m.ep)} and tp {shown(m.tp)}, but ranks of engine {name} that share experts have tp 1"
    ranks = shown(m.tp * m.dp)
    return f"ep is {shown(m.ep)}, but engine {name} spreads experts over all of tp x dp = {ranks}: try 1 or {ranks}"


def _kept(s: Scenario) -> Num:
    """True where the engine keeps no cached values of such a width."""
    known = s.engine.abilities.caches
    broken: Any = bool(known)
    for width in listed(known):
        broken = broken & (s.quant.kv_bits != float(width))
    return broken


ENGINE = (
    Rule("the engine does not run the scheme", lambda s: not s.engine.abilities.runs(s.quant), _scheme),
    Rule("the engine runs on one device",
         lambda s: (not s.engine.abilities.several) & (s.mapping.tp * s.mapping.pp * s.mapping.cp > 1),
         lambda s: f"gpus is {shown(s.mapping.devices)}, but engine {s.engine.name} runs on one: leave tp and pp at 1"),
    Rule("the engine has no tensor groups",
         lambda s: (not s.engine.abilities.tensor_groups) & (s.mapping.tp > 1),
         _no_group("tp", "tensor parallelism")),
    Rule("the engine has no pipeline stages",
         lambda s: (not s.engine.abilities.stage_groups) & (s.mapping.pp > 1),
         _no_group("pp", "pipeline stages")),
    Rule("the engine has no context groups",
         lambda s: (not s.engine.abilities.context_groups) & (s.mapping.cp > 1),
         _no_group("cp", "context parallelism")),
    Rule("the engine does not mix tp and pp",
         lambda s: (not s.engine.abilities.mixed_groups)
         & (s.mapping.tp > 1) & (s.mapping.pp > 1), _mixed),
    Rule("the engine spreads experts otherwise", _spread, _spread_told),
)  # fmt: skip
"""Rules of what an engine can run, which its row says (`Engine.abilities`)."""
SHAPES = (
    Rule("kv_heads does not divide the heads",
         lambda s: any_of([a.heads % a.kv_heads != 0 for a in _mixers(s, Attention)]), _grouped),
    Rule("top_k exceeds the experts",
         lambda s: any_of([b.ffn.top_k > b.ffn.experts for b in s.model.blocks if isinstance(b.ffn, MoE)]), _chosen),
    Rule("the indexer has no heads", _blind,
         lambda s: "index_topk is above 0, but then index_heads, index_dim and any q_rank must be at least 1"),
)  # fmt: skip
"""Rules of a model's shapes, as they are before scales and prunings round them."""
SPLIT = (
    *SHAPES,
    Rule("the degrees do not divide the GPUs", lambda s: s.mapping.uneven, _uneven),
    Rule("tp does not divide the heads", lambda s: broken_by(heads_of(s.model), s.mapping.tp), _heads),
    Rule("the degrees make another number of GPUs", lambda s: s.mapping.misfit, _misfit),
    Rule("pp exceeds the layers", lambda s: s.mapping.pp > s.model.layers, _layers),
)
"""Rules of any split."""
DEPLOYED = (
    *SPLIT,
    *expert_rules(("tp", "dp")),
    *ENGINE,
    Rule(
        "the engine serves no adapters",
        lambda s: (not s.engine.abilities.many_adapters) & (s.adapters.held > 0),
        lambda s: (
            f"adapters is {shown(s.adapters.held)}, but engine {s.engine.name} serves no requests of several "
            f"adapters at once: use one that does, such as {' or '.join(engines_of_adapters())}"
        ),
    ),
    Rule(
        "the engine runs nothing on the host",
        lambda s: (not s.engine.abilities.host_layers) & (s.offload.layers + s.offload.experts > 0),
        lambda s: (
            f"cpu_layers or cpu_experts is given, but engine {s.engine.name} runs nothing on the host: "
            "use one that does, such as the engines of GGUF files"
        ),
    ),
    Rule(
        "the host holds more layers than there are",
        lambda s: (s.offload.layers >= s.model.layers) | (s.offload.layers + s.offload.experts > s.model.layers),
        lambda s: (
            f"cpu_layers is {shown(s.offload.layers)} and cpu_experts {shown(s.offload.experts)}, but "
            f"{s.model.name} has {shown(s.model.layers)} layers, of which the device holds at least one"
        ),
    ),
    Rule("the engine keeps no such cache", _kept, _cache),
)
"""Rules of a deployed model, whatever is asked of it."""
ASKED = (
    Rule(
        "the model embeds texts: no output follows",
        lambda s: not s.model.head and ((np.asarray(s.workload.output) > 1) | (np.asarray(s.speculation.guesses) > 0)),
        lambda s: (
            f"output is {shown(s.workload.output)} and guesses {shown(s.speculation.guesses)}, but {s.model.name} has "
            "no head: it embeds texts, and they must be 1 and 0"
        ),
    ),
    Rule("dp exceeds the batch", lambda s: s.mapping.dp > s.workload.batch, _ranks),
    Rule("cached is not below the prompt", lambda s: s.workload.cached >= s.workload.prompt, _cached),
)
"""Rules of what is asked of it."""
INFERENCE = (*DEPLOYED, *ASKED)
"""Rules of serving."""
TRAINING = (
    Rule("the model has no head to train", lambda s: not s.model.head,
         lambda s: f"{s.model.name} has no head: it embeds texts, and only models that predict tokens train here"),
    *SPLIT,
    *expert_rules(("tp", "cp", "dp")),
    *ENGINE,
    Rule("the engine trains no adapters", lambda s: s.training.adapters and not s.engine.abilities.adapters,
         lambda s: f"lora_rank is {shown(s.training.lora_rank)}, but engine {s.engine.name} trains no adapters"),
    Rule("pp x vp exceeds the layers", lambda s: s.mapping.pp * s.mapping.vp > s.model.layers + 2, _stages),
    Rule("dp x micro_batch does not divide the batch",
         lambda s: s.workload.batch % (s.mapping.dp * s.mapping.micro_batch) != 0, _share),
    Rule("flushes does not divide the micro-batches", lambda s: micro_batches(s) % s.training.flushes != 0, _flushes),
    Rule("interleaving needs a multiple of pp micro-batches", _short, _interleaved),
    Rule("cp does not divide seq", lambda s: s.workload.seq % s.mapping.cp != 0, _context),
)  # fmt: skip
"""Rules of training. Embedding and head may take a place of a virtual stage each (Llama 3, arXiv 2407.21783)."""


def flags(s: Scenario, rules: Iterable[Rule]) -> dict[str, Num]:
    """Reason -> True where a point breaks that rule."""
    return {rule.reason: rule.broken(s) for rule in rules}


def refuse(s: Scenario, rules: Iterable[Rule]) -> None:
    """RooflmError with the sentence of the first rule that a single point breaks (a grid's points are marked)."""
    for rule in rules:
        broken = rule.broken(s)
        if not is_array(broken) and broken:
            raise RooflmError(rule.told(s))


def marking(broken: Mapping[str, Num]) -> AbstractContextManager[Any]:
    """Where a grid's points that break a rule (`flags`) are evaluated beside the others: their numbers mean nothing,
    and NumPy does not warn of them."""
    return np.errstate(all="ignore") if any(np.any(flag) for flag in broken.values()) else nullcontext()
