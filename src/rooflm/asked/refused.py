"""What a person is told of a split that breaks a rule (`scenario.rules`): the field, its value, the rule and the
nearest right answer. A single point is refused with the sentence of the first rule that it breaks."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rooflm.asked.assumed import engines_on_host
from rooflm.asked.ways import expert_ways, tensor_ways
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import Attention
from rooflm.errors import RooflmError
from rooflm.readers.engines import engines_of_adapters
from rooflm.readers.schemes import PRESETS, nearest_schemes, without_cache
from rooflm.readers.tables import is_array
from rooflm.scenario.rules import Rule, divisors, heads_of, mixers, mixtures
from rooflm.scenario.scenario import Scenario, micro_batches
from rooflm.shown.numbers import plain_number, plural
from rooflm.units import REAL, Num


class Template(string.Formatter):
    """Templates whose numbers are written as a person writes them.

    >>> Template().format("tp is {0}", 3.0)
    'tp is 3'
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        """A value of the template."""
        return plain_number(value) if isinstance(value, REAL) else str(value)


class Sentence(NamedTuple):
    """template: over the scenario `s`, its mapping `m`, its workload `w` and what `more` finds; or a function that
    chooses one of several."""

    template: str | Callable[[Scenario], str]
    more: Callable[[Scenario], Mapping[str, Any]] = lambda s: {}


def sentence(rule: Rule, s: Scenario) -> str:
    """The sentence on a rule that a point breaks."""
    sentence = SENTENCES[rule.reason]
    template = sentence.template if isinstance(sentence.template, str) else sentence.template(s)
    return Template().format(template, s=s, m=s.mapping, w=s.workload, **sentence.more(s))


def refuse(s: Scenario, rules: Iterable[Rule]) -> None:
    """RooflmError with the sentence of the first rule that a single point breaks (a grid's points are marked)."""
    for rule in rules:
        broken = rule.broken(s)
        if not is_array(broken) and broken:
            raise RooflmError(sentence(rule, s))


def nearest(ways: Iterable[int], near: Num) -> str:
    """The two numbers nearest to one that is not among them, as "2 or 4".

    >>> nearest([1, 2, 4, 8, 16, 32], 3)
    '2 or 4'
    """
    ranked = sorted(ways, key=lambda d: (abs(math.log(d / float(near))), d))
    return " or ".join(str(d) for d in sorted(ranked[:2]))


def first_uneven(members: Iterable[Num], ways: Num, common: int) -> dict[str, Any]:
    """For a sentence: the first number that a degree does not divide, and degrees near it that divide all of them."""
    return {"all": next(x for x in members if x % ways), "near": nearest(divisors(common), ways)}


def _given(s: Scenario) -> dict[str, Any]:
    """Devices that uneven degrees make, the whole degrees among them, and the numbers of devices nearest by."""
    degrees = {k: getattr(s.mapping, k) for k in ("tp", "pp", "dp", "cp")}
    whole = {k: int(v) for k, v in degrees.items() if v != 1 and float(v).is_integer()}
    gpus, each = round(float(s.mapping.devices), 6), math.prod(whole.values())
    near = " or ".join(str(n * each) for n in (int(gpus // each), int(gpus // each) + 1) if n)
    return {"gpus": gpus, "given": " x ".join(f"{k} {v}" for k, v in whole.items()), "near": near}


def _grouped(s: Scenario) -> dict[str, Any]:
    """The first attention whose heads are not whole groups, and numbers of KV heads that would be."""
    one = next(a for a in mixers(s, Attention) if a.heads % a.kv_heads)
    return {"one": one, "near": nearest(divisors(int(one.heads)), one.kv_heads)}


def _ranks(*names: str) -> Callable[[Scenario], Mapping[str, Any]]:
    """For a sentence: the ranks of these groups together, and numbers of expert ranks that divide them."""

    def found(s: Scenario) -> dict[str, Any]:
        ranks = math.prod(getattr(s.mapping, name) for name in names)
        return {"ranks": ranks, "near": nearest(divisors(math.gcd(int(ranks), expert_ways(s.model))), s.mapping.ep)}

    return found


def _context(s: Scenario) -> dict[str, Any]:
    """The nearest sequence, and context groups that divide both this one and the devices that dp and cp have; where
    only 1 does, those of other numbers of devices."""
    m, seq = s.mapping, int(s.workload.seq)
    ways = divisors(math.gcd(seq, round(float(m.dp) * float(m.cp))))
    near = f"cp {nearest(ways, m.cp)}" if ways[1:] else f"on another number of GPUs cp {nearest(divisors(seq), m.cp)}"
    return {"near": near, "near_seq": max(round(seq / float(m.cp)), 1) * m.cp}


SPREAD = {
    "none": "ep is {m.ep}, but engine {s.engine.name} does not spread experts over devices: leave ep at 1",
    "any": "ep is {m.ep} and tp {m.tp}, but ranks of engine {s.engine.name} that share experts have tp 1",
    "all": "ep is {m.ep}, but engine {s.engine.name} spreads experts over all of tp x dp = {ranks}: try 1 or {ranks}",
}
"""How an engine spreads experts -> the sentence where a split does otherwise."""


def _widths(s: Scenario) -> str:
    """Widths of cached values that the engine keeps, as "16, 8 or 4"."""
    *others, last = words_in(s.engine.abilities.caches)
    return f"{', '.join(others)} or {last}" if others else last


def _nearest_width(s: Scenario) -> str:
    """The width of cached values nearest to the scheme's that the engine keeps."""
    return min(words_in(s.engine.abilities.caches), key=lambda width: abs(int(width) - float(s.quant.kv_bits)))


def _whole_share(s: Scenario) -> dict[str, Any]:
    """Sequences of which a training batch must hold a multiple, the nearest batch that does, and for a batch of fewer
    than that what leaves fewer ranks."""
    share = s.mapping.dp * s.mapping.micro_batch
    fewer = " or, for fewer data-parallel ranks, more tp, pp or cp" if s.mapping.dp > s.workload.batch else ""
    return {"share": share, "near": share * max(round(float(s.workload.batch / share)), 1), "fewer": fewer}


def _rounds(s: Scenario) -> dict[str, Any]:
    """Micro-batches of a flush, and the batches whose flushes are whole rounds of the pipeline."""
    m, flushes = s.mapping, s.training.flushes
    return {"each": micro_batches(s) / flushes, "multiple": m.dp * m.micro_batch * m.pp * flushes}


def _near_types(s: Scenario) -> list[str]:
    """The two narrowest types of products that a device has and an engine trains in."""
    runs, peaks = s.engine.abilities.runs, s.cluster.device.peak
    ladder = ["fp8", "int8", "bf16", "fp16", "fp32"]
    return [name for name in ladder if name in peaks and runs(PRESETS[name])][:2]


def _no_group(name: str, what: str) -> Sentence:
    """The sentence on a degree that an engine lacks."""
    return Sentence(f"{name} is {{m.{name}}}, but engine {{s.engine.name}} has no {what}: leave it out")


def _spread_over(*names: str) -> Sentence:
    """The sentence on experts that go over ranks which ep does not divide."""
    among = " x ".join(names)
    return Sentence(f"ep is {{m.ep}}, but it must divide {among} = {{ranks}}: try {{near}}", _ranks(*names))


SENTENCES = {
    "the engine does not run the scheme": Sentence(
        "{said} is {s.quant.name}, but engine {s.engine.name} does not run such a scheme: try {near}",
        lambda s: {"said": "dtype" if s.engine.phase == "training" else "quant",
                   "near": " or ".join(nearest_schemes(s.engine.abilities, s.quant))}),
    "the engine has no tensor groups": _no_group("tp", "tensor parallelism"),
    "the engine has no tensor groups over machines": Sentence(
        "tp is {m.tp}, but engine {s.engine.name} splits a layer over devices of one machine alone: try pp or dp"),
    "the engine has no pipeline stages": _no_group("pp", "pipeline stages"),
    "the engine has no context groups": _no_group("cp", "context parallelism"),
    "the engine does not mix tp and pp": Sentence(
        "tp is {m.tp} and pp is {m.pp}, but engine {s.engine.name} splits by one of them alone: make the other 1"),
    "the engine spreads experts otherwise": Sentence(
        lambda s: SPREAD[s.engine.abilities.expert_groups], lambda s: {"ranks": s.mapping.tp * s.mapping.dp}),
    "kv_heads does not divide the heads": Sentence(
        "kv_heads is {one.kv_heads}, but it must divide the {one.heads} heads: try {near}", _grouped),
    "top_k exceeds the experts": Sentence(
        "top_k is {one.top_k}, but there are only {one.experts} experts: use at most as many",
        lambda s: {"one": next(f for f in mixtures(s.model) if f.top_k > f.experts)}),
    "the indexer has no heads": Sentence(
        "index_topk is above 0, but then index_heads and index_dim must be at least 1"),
    "TDP is not above idle power": Sentence(
        "tdp is {s.cluster.device.tdp} W, but it must be above what {s.cluster.device.name} takes while idle, "
        "{s.cluster.device.idle} W"),
    "the degrees do not divide the GPUs": Sentence(
        "gpus is {gpus}, but {given} must divide it: try {near} GPUs", _given),
    "tp does not divide the heads": Sentence(
        "tp is {m.tp}, but it must divide the {all} attention heads of {s.model.name}: try {near}",
        lambda s: first_uneven(heads_of(s.model), s.mapping.tp, tensor_ways(s.model))),
    "the degrees make another number of GPUs": Sentence(
        "gpus is {m.gpus}, but tp x pp x dp x cp is {m.devices}: leave one of them out"),
    "pp exceeds the layers": Sentence(
        "pp is {m.pp}, but {s.model.name} has only {s.model.layers} layers: use at most {s.model.layers}, and dp for "
        "further GPUs"),
    "ep needs a mixture of experts": Sentence("ep is {m.ep}, but {s.model.name} has no experts: leave ep at 1"),
    "ep does not divide the experts": Sentence(
        "ep is {m.ep}, but it must divide the {all} experts of {s.model.name}: try {near}",
        lambda s: first_uneven([f.experts for f in mixtures(s.model)], s.mapping.ep, expert_ways(s.model))),
    "slices do not divide ep / tp": Sentence(
        "mapping.slices is {m.slices}, but it must divide the {m.expert_dp} ranks of attention that share experts: try "
        "{near}", lambda s: {"near": nearest(divisors(int(s.mapping.expert_dp)), s.mapping.slices)}),
    "ep does not divide tp x dp": _spread_over("tp", "dp"),
    "ep does not divide tp x cp x dp": _spread_over("tp", "cp", "dp"),
    "the engine serves no adapters": Sentence(
        "adapters is {s.adapters.held}, but engine {s.engine.name} serves no requests of several adapters at once: "
        "use one that does, such as {others}", lambda s: {"others": " or ".join(engines_of_adapters())}),
    "the engine runs nothing on the host": Sentence(
        "cpu_layers or cpu_experts is given, but engine {s.engine.name} runs nothing on the host: use one that does, "
        "such as {others}", lambda s: {"others": " or ".join(engines_on_host())}),
    "cpu_experts needs a mixture of experts": Sentence(
        "cpu_experts is {s.offload.experts}, but {s.model.name} has no experts: leave it out, or give cpu_layers"),
    "the host holds more layers than there are": Sentence(
        "cpu_layers is {s.offload.layers} and cpu_experts {s.offload.experts}, but {s.model.name} has "
        "{s.model.layers} layers, of which the device holds at least one"),
    "the engine keeps no such cache": Sentence(
        "quant {s.quant.name} keeps {s.quant.kv_bits} bits a cached value, but engine {s.engine.name} keeps {widths}: "
        "try {near}", lambda s: {"widths": _widths(s), "near": f"{without_cache(s.quant.name)}kv{_nearest_width(s)}"}),
    "a step gains more than its guesses": Sentence(
        "accepted is {s.speculation.accepted}, but a step with guesses {s.speculation.guesses} gains at most {most}",
        lambda s: {"most": s.speculation.guesses + 1}),
    "the model embeds texts: no output follows": Sentence(
        "output is {w.output} and guesses {s.speculation.guesses}, but {s.model.name} has no head: it embeds texts, "
        "and they must be 1 and 0"),
    "dp exceeds the batch": Sentence(
        "dp is {m.dp}, but the batch has {sequences}: use at most as many, or a larger batch (where dp is not given, "
        "it is what tp and pp leave of gpus)", lambda s: {"sequences": plural(s.workload.batch, "sequence")}),
    "cached is not below the prompt": Sentence(
        "cached is {w.cached}, but it must be below prompt ({w.prompt}): at least one token is new"),
    "the model has no head to train": Sentence(
        "{s.model.name} has no head: it embeds texts, and only models that predict tokens train here"),
    "a rank has more tokens than all": Sentence(
        "training.imbalance is {s.training.imbalance}, but the busiest of {m.ep} expert ranks has at most {most} times "
        "the mean (every token there, with all its experts that fit): use at most {most}",
        lambda s: {"most": min(min(s.mapping.ep, f.experts / f.top_k) for f in mixtures(s.model))}),
    "the device does not multiply in such a type": Sentence(
        "dtype is {s.quant.name}, but {s.cluster.device.name} has no rate of its own for it, and engine "
        "{s.engine.name} does not run it there: try {near}", lambda s: {"near": " or ".join(_near_types(s))}),
    "the last stage leaves none to the others": Sentence(
        "training.last_layers is {s.training.last_layers}, but {s.model.name} over {s.mapping.pp} stages has at most "
        "{most} for the last one", lambda s: {"most": max(int(s.model.layers + s.training.mtp + 1 - s.mapping.pp), 0)}),
    "pp x vp exceeds the layers": Sentence(
        "pp x vp is {stages}, but {s.model.name} has only {s.model.layers} layers: try vp {most}",
        lambda s: {"stages": s.mapping.pp * s.mapping.vp,
                   "most": max(math.floor((s.model.layers + 2) / s.mapping.pp), 1)}),
    "dp x micro_batch does not divide the batch": Sentence(
        "batch is {w.batch}, but it must be a multiple of dp x micro_batch = {share}: try {near}{fewer}", _whole_share),
    "flushes does not divide the micro-batches": Sentence(
        "training.flushes is {s.training.flushes}, but it must divide the {all} micro-batches: try {near}",
        lambda s: first_uneven([micro_batches(s)], s.training.flushes, int(micro_batches(s)))),
    "in_backward needs one micro-batch a step": Sentence(
        "training.in_backward is true, but gradients of {many} micro-batches are added up before the update: make "
        "batch dp x micro_batch = {share}, or leave it out",
        lambda s: {"many": int(micro_batches(s)), "share": s.mapping.dp * s.mapping.micro_batch}),
    "interleaving needs a multiple of pp micro-batches": Sentence(
        "a step has {each} micro-batches, but schedule interleaved needs a multiple of pp {m.pp}: make batch a "
        "multiple of {multiple}", _rounds),
    "cp does not divide seq": Sentence(
        "cp is {m.cp}, but it must divide seq {w.seq}: try seq {near_seq}, or {near}", _context),
    "fsdp_group does not divide dp x cp": Sentence(
        "fsdp_group is {m.fsdp_group}, but it must divide dp x cp = {ranks}: try {near}",
        lambda s: {"ranks": s.mapping.dp * s.mapping.cp,
                   "near": nearest(divisors(int(s.mapping.dp * s.mapping.cp)), s.mapping.fsdp_group)}),
}  # fmt: skip
"""Reason of a rule -> its sentence."""
