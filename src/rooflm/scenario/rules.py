"""The rules that a split keeps, each with its reason and what to do: one list for a point, a grid and a search.

A rule is True where it is broken, over plain numbers or arrays. A prediction asked for alone is refused with the
sentence of the first rule that it breaks; the same point inside a grid or a search is marked with the rule's reason.
"""

from __future__ import annotations

import math
import string
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
from rooflm.units import REAL, Num, any_of, is_array


class Sentence(string.Formatter):
    """Templates whose numbers are written as a person writes them.

    >>> Sentence().format("tp is {0}", 3.0)
    'tp is 3'
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        """A value of the template."""
        return shown(value) if isinstance(value, REAL) else str(value)


class Rule(NamedTuple):
    """reason: as a grid marks it. broken: True where a scenario breaks it. template: the sentence for one point (the
    field, its value, the rule, the nearest right answer) over the scenario `s`, its mapping `m`, its workload `w` and
    what `more` finds; or a function that chooses one of several."""

    reason: str
    broken: Callable[[Scenario], Num]
    template: str | Callable[[Scenario], str]
    more: Callable[[Scenario], Mapping[str, Any]] = lambda s: {}

    def told(self, s: Scenario) -> str:
        """The sentence for a point that breaks it."""
        template = self.template if isinstance(self.template, str) else self.template(s)
        return Sentence().format(template, s=s, m=s.mapping, w=s.workload, **self.more(s))


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


def broken_by(members: Iterable[Num], ways: Num) -> Num:
    """True where a degree does not divide one of these numbers."""
    return any_of([x % ways != 0 for x in members])


def first_uneven(members: Iterable[Num], ways: Num, common: int) -> dict[str, Any]:
    """For a sentence: the first number that a degree does not divide, and degrees near it that divide all of them."""
    return {"all": next(x for x in members if x % ways), "near": nearest(divisors(common), ways)}


def _given(s: Scenario) -> dict[str, Any]:
    """Devices that uneven degrees make, and the whole degrees among them."""
    degrees = {k: getattr(s.mapping, k) for k in ("tp", "pp", "dp", "cp")}
    whole = [f"{k} {shown(v)}" for k, v in degrees.items() if v != 1 and float(v).is_integer()]
    return {"gpus": round(float(s.mapping.devices), 6), "given": " x ".join(whole)}


def expert_rules(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of ep, where experts are spread over the ranks of the groups named."""

    def ranks(s: Scenario) -> Num:
        return math.prod(getattr(s.mapping, name) for name in names)

    def near(s: Scenario) -> dict[str, Any]:
        ways = divisors(math.gcd(int(ranks(s)), expert_ways(s.model)))
        return {"ranks": ranks(s), "near": nearest(ways, s.mapping.ep)}

    among = " x ".join(names)
    return (
        Rule("ep needs a mixture of experts", lambda s: not experts_of(s.model) and s.mapping.ep > 1,
             "ep is {m.ep}, but {s.model.name} has no experts: leave ep at 1"),
        Rule("ep does not divide the experts", lambda s: broken_by(experts_of(s.model), s.mapping.ep),
             "ep is {m.ep}, but it must divide the {all} experts of {s.model.name}: try {near}",
             lambda s: first_uneven(experts_of(s.model), s.mapping.ep, expert_ways(s.model))),
        Rule(f"ep does not divide {among}", lambda s: ranks(s) % s.mapping.ep != 0,
             f"ep is {{m.ep}}, but it must divide {among} = {{ranks}}: try {{near}}", near),
    )  # fmt: skip


def _short(s: Scenario) -> Num:
    """True where an interleaved schedule has micro-batches that fill no whole rounds of the pipeline."""
    m = s.mapping
    if m.schedule != "interleaved":
        return False
    each = micro_batches(s) / s.training.flushes
    return (m.vp > 1) & (m.pp > 1) & (each % m.pp != 0)


def _mixers(s: Scenario, kind: type[Any]) -> list[Any]:
    return [b.mixer for b in s.model.blocks if isinstance(b.mixer, kind)]


def _mixtures(s: Scenario) -> list[MoE]:
    return [b.ffn for b in s.model.blocks if isinstance(b.ffn, MoE)]


def _grouped(s: Scenario) -> dict[str, Any]:
    """The first attention whose heads are not whole groups, and numbers of KV heads that would be."""
    one = next(a for a in _mixers(s, Attention) if a.heads % a.kv_heads)
    return {"one": one, "near": nearest(divisors(int(one.heads)), one.kv_heads)}


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


def _no_group(name: str, groups: str, ability: str, what: str) -> Rule:
    """The rule of a degree that an engine may lack."""
    return Rule(
        f"the engine has no {groups}",
        lambda s: (not getattr(s.engine.abilities, ability)) & (getattr(s.mapping, name) > 1),
        f"{name} is {{m.{name}}}, but engine {{s.engine.name}} has no {what}: leave it out",
    )


def _spread(s: Scenario) -> Num:
    """True where experts are spread over another number of ranks than the engine does."""
    m, over = s.mapping, s.engine.abilities.expert_groups
    if over == "any":
        return (not s.engine.abilities.ranks_are_groups) & (m.ep > m.tp) & (m.tp > 1)
    return (m.ep > 1) & ((over == "none") | (m.ep != m.tp * m.dp))


SPREAD = {
    "none": "ep is {m.ep}, but engine {s.engine.name} does not spread experts over devices: leave ep at 1",
    "any": "ep is {m.ep} and tp {m.tp}, but ranks of engine {s.engine.name} that share experts have tp 1",
    "all": "ep is {m.ep}, but engine {s.engine.name} spreads experts over all of tp x dp = {ranks}: try 1 or {ranks}",
}
"""How an engine spreads experts -> the sentence where a split does otherwise."""


def _kept(s: Scenario) -> Num:
    """True where the engine keeps no cached values of such a width."""
    known = s.engine.abilities.caches
    broken: Any = bool(known)
    for width in listed(known):
        broken = broken & (s.quant.kv_bits != float(width))
    return broken


def _widths(s: Scenario) -> str:
    """Widths of cached values that the engine keeps, as "16, 8 or 4"."""
    *others, last = listed(s.engine.abilities.caches)
    return f"{', '.join(others)} or {last}" if others else last


ENGINE = (
    Rule("the engine does not run the scheme", lambda s: not s.engine.abilities.runs(s.quant),
         "quant is {s.quant.name}, but engine {s.engine.name} does not run such a scheme: try {near}",
         lambda s: {"near": " or ".join(s.engine.abilities.nearest(s.quant))}),
    Rule("the engine runs on one device",
         lambda s: (not s.engine.abilities.several) & (s.mapping.tp * s.mapping.pp * s.mapping.cp > 1),
         "gpus is {m.devices}, but engine {s.engine.name} runs on one: leave tp and pp at 1"),
    _no_group("tp", "tensor groups", "tensor_groups", "tensor parallelism"),
    _no_group("pp", "pipeline stages", "stage_groups", "pipeline stages"),
    _no_group("cp", "context groups", "context_groups", "context parallelism"),
    Rule("the engine does not mix tp and pp",
         lambda s: (not s.engine.abilities.mixed_groups) & (s.mapping.tp > 1) & (s.mapping.pp > 1),
         "tp is {m.tp} and pp is {m.pp}, but engine {s.engine.name} splits by one of them alone: make the other 1"),
    Rule("the engine spreads experts otherwise", _spread, lambda s: SPREAD[s.engine.abilities.expert_groups],
         lambda s: {"ranks": s.mapping.tp * s.mapping.dp}),
)  # fmt: skip
"""Rules of what an engine can run, which its row says (`Engine.abilities`)."""
SPLIT = (
    Rule("kv_heads does not divide the heads",
         lambda s: any_of([a.heads % a.kv_heads != 0 for a in _mixers(s, Attention)]),
         "kv_heads is {one.kv_heads}, but it must divide the {one.heads} heads: try {near}", _grouped),
    Rule("top_k exceeds the experts", lambda s: any_of([f.top_k > f.experts for f in _mixtures(s)]),
         "top_k is {one.top_k}, but there are only {one.experts} experts: use at most as many",
         lambda s: {"one": next(f for f in _mixtures(s) if f.top_k > f.experts)}),
    Rule("the indexer has no heads", _blind,
         "index_topk is above 0, but then index_heads, index_dim and any q_rank must be at least 1"),
    Rule("the degrees do not divide the GPUs", lambda s: s.mapping.uneven,
         "gpus is {gpus}, but {given} must divide it", _given),
    Rule("tp does not divide the heads", lambda s: broken_by(heads_of(s.model), s.mapping.tp),
         "tp is {m.tp}, but it must divide the {all} attention heads of {s.model.name}: try {near}",
         lambda s: first_uneven(heads_of(s.model), s.mapping.tp, tensor_ways(s.model))),
    Rule("the degrees make another number of GPUs", lambda s: s.mapping.misfit,
         "gpus is {m.gpus}, but tp x pp x dp x cp is {m.devices}: leave one of them out"),
    Rule("pp exceeds the layers", lambda s: s.mapping.pp > s.model.layers,
         "pp is {m.pp}, but {s.model.name} has only {s.model.layers} layers: use at most {s.model.layers}"),
)  # fmt: skip
"""Rules of any split; the first three are of a model's shapes, before scales and prunings round them."""
DEPLOYED = (
    *SPLIT,
    *expert_rules(("tp", "dp")),
    *ENGINE,
    Rule("the engine serves no adapters", lambda s: (not s.engine.abilities.many_adapters) & (s.adapters.held > 0),
         "adapters is {s.adapters.held}, but engine {s.engine.name} serves no requests of several adapters at once: "
         "use one that does, such as {others}", lambda s: {"others": " or ".join(engines_of_adapters())}),
    Rule("the engine runs nothing on the host",
         lambda s: (not s.engine.abilities.host_layers) & (s.offload.layers + s.offload.experts > 0),
         "cpu_layers or cpu_experts is given, but engine {s.engine.name} runs nothing on the host: use one that does, "
         "such as the engines of GGUF files"),
    Rule("the host holds more layers than there are",
         lambda s: (s.offload.layers >= s.model.layers) | (s.offload.layers + s.offload.experts > s.model.layers),
         "cpu_layers is {s.offload.layers} and cpu_experts {s.offload.experts}, but {s.model.name} has "
         "{s.model.layers} layers, of which the device holds at least one"),
    Rule("the engine keeps no such cache", _kept,
         "quant keeps {s.quant.kv_bits} bits a cached value, but engine {s.engine.name} keeps {widths}",
         lambda s: {"widths": _widths(s)}),
)  # fmt: skip
"""Rules of a deployed model, whatever is asked of it."""
ASKED = (
    Rule("the model embeds texts: no output follows",
         lambda s: not s.model.head and ((np.asarray(s.workload.output) > 1) | (np.asarray(s.speculation.guesses) > 0)),
         "output is {w.output} and guesses {s.speculation.guesses}, but {s.model.name} has no head: it embeds texts, "
         "and they must be 1 and 0"),
    Rule("dp exceeds the batch", lambda s: s.mapping.dp > s.workload.batch,
         "dp is {m.dp}, but the batch has {w.batch} sequences: use at most as many"),
    Rule("cached is not below the prompt", lambda s: s.workload.cached >= s.workload.prompt,
         "cached is {w.cached}, but it must be below prompt ({w.prompt}): at least one token is new"),
)  # fmt: skip
"""Rules of what is asked of it."""
INFERENCE = (*DEPLOYED, *ASKED)
"""Rules of serving."""


def _whole_share(s: Scenario) -> dict[str, Any]:
    """Sequences of which a training batch must hold a multiple, and the nearest batch that does."""
    share = s.mapping.dp * s.mapping.micro_batch
    return {"share": share, "near": share * max(round(float(s.workload.batch / share)), 1)}


def _rounds(s: Scenario) -> dict[str, Any]:
    """Micro-batches of a flush, and the batches whose flushes are whole rounds of the pipeline."""
    m, flushes = s.mapping, s.training.flushes
    return {"each": micro_batches(s) / flushes, "multiple": m.dp * m.micro_batch * m.pp * flushes}


TRAINING = (
    Rule("the model has no head to train", lambda s: not s.model.head,
         "{s.model.name} has no head: it embeds texts, and only models that predict tokens train here"),
    *SPLIT,
    *expert_rules(("tp", "cp", "dp")),
    *ENGINE,
    Rule("the engine trains no adapters", lambda s: s.training.adapters and not s.engine.abilities.adapters,
         "lora_rank is {s.training.lora_rank}, but engine {s.engine.name} trains no adapters"),
    Rule("pp x vp exceeds the layers", lambda s: s.mapping.pp * s.mapping.vp > s.model.layers + 2,
         "pp x vp is {stages}, but {s.model.name} has only {s.model.layers} layers: try vp {most}",
         lambda s: {"stages": s.mapping.pp * s.mapping.vp,
                    "most": max(math.floor((s.model.layers + 2) / s.mapping.pp), 1)}),
    Rule("dp x micro_batch does not divide the batch",
         lambda s: s.workload.batch % (s.mapping.dp * s.mapping.micro_batch) != 0,
         "batch is {w.batch}, but it must be a multiple of dp x micro_batch = {share}: try {near}", _whole_share),
    Rule("flushes does not divide the micro-batches", lambda s: micro_batches(s) % s.training.flushes != 0,
         "training.flushes is {s.training.flushes}, but it must divide the {all} micro-batches: try {near}",
         lambda s: first_uneven([micro_batches(s)], s.training.flushes, int(micro_batches(s)))),
    Rule("interleaving needs a multiple of pp micro-batches", _short,
         "a step has {each} micro-batches, but schedule interleaved needs a multiple of pp {m.pp}: make batch a "
         "multiple of {multiple}", _rounds),
    Rule("cp does not divide seq", lambda s: s.workload.seq % s.mapping.cp != 0,
         "cp is {m.cp}, but it must divide seq {w.seq}: try {near}",
         lambda s: first_uneven([s.workload.seq], s.mapping.cp, int(s.workload.seq))),
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
