"""A search's result as text: the best answer and its command, the ten best, the trade-off, and better points that
violate a constraint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from rooflm.asked.answers.said import banded, dollars, dollars_of_run
from rooflm.asked.arguments import arguments
from rooflm.asked.machine import called_of
from rooflm.scenario.mapping import DEGREES
from rooflm.search.search import thinned
from rooflm.shown.blocks import BLANK, Block, Code, Say, Table, called, listed
from rooflm.shown.numbers import count, days, gib, percent, plural, seconds, text, watt_hours


def hours(value: Any) -> str:
    """GPU-hours: three digits, with a prefix from a thousand on.

    >>> hours(0.0876), hours(1.5), hours(4.0e6)
    ('0.0876', '1.5', '4.00 M')
    """
    return text(float(value), "") if float(value) >= 1000 else count(value)


Column = tuple[str, str, Callable[[Any], str]]
"""Key of an output, heading, how it is written."""


SERVING: tuple[Column, ...] = (
    ("ttft_s", "TTFT", seconds), ("tpot_s", "TPOT", seconds), ("output_tokens_per_s_per_gpu", "tok/s/GPU", count),
    ("cost_usd_per_million_tokens", "USD/M", dollars), ("gpus", "GPUs", count),
    ("purchase_usd", "to buy", lambda v: f"{v:,.0f} USD"), ("memory_bytes", "memory", lambda v: gib(float(v))),
)  # fmt: skip
"""Columns of a search of how to serve."""
STEP: tuple[Column, ...] = (
    ("step_time_s", "step", seconds),
    ("mfu", "MFU", percent),
    ("tokens_per_s_per_gpu", "tok/s/GPU", count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""Of how to split a training step."""
RUN: tuple[Column, ...] = (
    *STEP[:2], ("goodput", "goodput", percent), ("days", "time", days), ("cost_usd", "USD", dollars_of_run),
    ("gpu_hours", "GPU-h", hours), ("energy_j", "energy", watt_hours), STEP[3],
)  # fmt: skip
"""And of a run of so many tokens."""


GOAL: tuple[Column, ...] = (
    ("latency_s", "latency", seconds),
    ("output_tokens_per_s", "tokens/s", count),
    ("energy_j_per_token", "energy/token", lambda v: text(float(v), "J")),
    ("gpu_hours", "GPU-h", hours),
    ("cost_usd", "USD", dollars_of_run),
    ("energy_j", "energy", watt_hours),
)
"""Those shown, before all others, where the search is for the best of them."""


def columns_of(outputs: dict[str, Any], goal: str = "") -> tuple[Column, ...]:
    """The columns for these outputs. goal: the output that a search makes best.

    >>> [heading for _, heading, _ in columns_of({"tpot_s": 0.02, "energy_j_per_token": 0.1}, "energy_j_per_token")]
    ['energy/token', 'TPOT']
    """
    usual = SERVING if "tpot_s" in outputs else RUN if outputs.get("days") else STEP
    first = () if goal in (key for key, _, _ in usual) else tuple(c for c in GOAL if c[0] == goal)
    return tuple(c for c in (*first, *usual) if c[0] in outputs)


COSTS = {"cost_usd_per_million_tokens", "cost_usd"}
"""Outputs that rest on a price."""


def point_text(inputs: dict[str, Any]) -> str:
    """A point as text: names, degrees above one, sizes; for training the splits in their usual order.

    >>> split = {"pp": 8, "vp": 12, "zero": 1, "tp": 4, "micro_batch": 2}
    >>> point_text({"schedule": "interleaved", "recompute": "none", **split})
    'tp 4 pp 8 vp 12 zero 1 mb 2'
    """
    if "prefill_replicas" in inputs:
        return _pools(inputs)
    words = []
    for key in sorted(inputs, key=lambda k: SPLIT.index(k) if k in SPLIT and "zero" in inputs else -1):
        value = getattr(inputs[key], "name", inputs[key])
        if (key in DEGREES and value == 1) or (key, value) in PLAIN:
            continue
        if value == math.inf:
            words.append("whole prompts" if key.endswith("token_budget") else f"no {key.rsplit('.', 1)[-1]}")
            continue
        name = SHORT.get(key, key.rsplit(".", 1)[-1])
        spelled = str(value) if key != "recompute" else f"recompute {value}"
        words.append(spelled if isinstance(value, str) else f"{name} {count(value)}")
    return " ".join(words) or "one GPU"


def _pools(inputs: dict[str, Any]) -> str:
    """A point with separate pools in words.

    >>> point_text({"quant": "fp8", "prefill_replicas": 2, "prefill_tp": 4, "replicas": 1, "tp": 8, "concurrency": 64})
    'fp8 prefill 2 x tp 4, decode 1 x tp 8, clients 64'
    """
    before = {k.removeprefix("prefill_"): v for k, v in inputs.items() if k in POOL and k.startswith("prefill_")}
    after = {k: v for k, v in inputs.items() if k in POOL and not k.startswith("prefill_")}
    sides = []
    for name, side in (("prefill", before), ("decode", after)):
        split = {k: v for k, v in side.items() if k != "replicas"}
        sides.append(f"{name} {count(side.get('replicas', 1))} x {point_text(split)}")
    rest = {k: v for k, v in inputs.items() if k not in POOL}
    names, numbers = ({k: v for k, v in rest.items() if isinstance(v, str) == text} for text in (True, False))
    first = f"{point_text(names)} " if names else ""
    return first + ", ".join([*sides, *([point_text(numbers)] if numbers else [])])


POOL = ("prefill_gpu", *(f"{p}{k}" for p in ("prefill_", "") for k in ("replicas", "tp", "pp", "dp", "ep")))
"""Inputs that say what the pools of a point are."""
SHORT = {"micro_batch": "mb", "token_budget": "budget", "engine.token_budget": "budget", "concurrency": "clients"}
"""Inputs with a shorter name in the tables."""
LEGEND = (
    ("mb", "sequences of a micro-batch"),
    ("vp", "virtual pipeline stages of a GPU; embedding and head may count as layers"),
)
"""Words of the tables that say too little by themselves."""
SPLIT = ("tp", "cp", "ep", "pp", "vp", "dp", "zero", "micro_batch", "recompute")
"""Order of a training split in the tables."""
PLAIN = (("schedule", "1f1b"), ("schedule", "interleaved"), ("recompute", "none"))
"""Values that need no word: virtual stages say that a schedule is interleaved."""
BATCH_NOTE = (
    "of one batch that comes at once, TTFT that of all its prompts; "
    "for users who come and go add --concurrency or --rate"
)
LOAD_NOTE = (
    "under load by the steady state: TTFT, TPOT are means, the wait in the queue and other prompts' passes included"
)
FEW_CARDS = 8
"""The most cards beside the best that are told of one by one; of more nothing is said."""
SLOW = 3.0
"""Trade-offs are shown up to so many times the time of the fastest step."""


def figures(given: Mapping[str, Any], under_load: bool) -> str:
    """What the figures of a search of serving are of. given: its arguments.

    >>> figures({"prompt": 2048}, True)[:44]
    'prompt 2048, output 128 tokens; under load b'
    """
    asked = {name: a.default for name, a in arguments("search_infer").items()} | {k: v for k, v in given.items() if v}
    sizes = f"prompt {count(asked['prompt'])}, output {plural(asked['output'], 'token')}"
    return f"{sizes}; {LOAD_NOTE if under_load else BATCH_NOTE}"


def blocks(found: Any, command: str = "", note: str = "", before: str = "") -> list[Block]:
    """The answer, in the word for its devices. command: what runs the best point; note: what its figures are of;
    before: what to do first."""
    near = [found.nearest.candidate] if found.nearest else []
    word = called_of(c.inputs.get("gpu") for c in (*found.top, *found.front, *near))
    return [b if isinstance(b, Code) else called(b, word) for b in _blocks(found, command, note, before)]


def _blocks(found: Any, command: str, note: str, before: str) -> list[Block]:
    """The same of GPUs."""
    asked = f": {', '.join(found.limits)}" if found.limits else ""
    count = f"{found.feasible:,} of {found.points:,} points run and meet every constraint{asked}."
    count = f"Interrupted: {found.interrupted}. {count}" if found.interrupted else count
    if found.best is None:
        out: list[Block] = [Say("No point meets every constraint.", "bad"), *(Say(line) for line in found.unmet)]
        if found.nearest is not None:
            out += [Say(f"The nearest: {point_text(found.nearest.candidate.inputs)}"),
                    *(Say(f"  {w}") for w in found.nearest.why)]  # fmt: skip
        if found.feasible:  # by the estimate
            count = f"By the estimate {found.feasible:,} of {found.points:,} points do; of those simulated none does."
            out += [BLANK, *simulated(found), BLANK]
        return [*out, Say(count, "faint")]
    first, columns = found.best, columns_of(found.best.outputs, found.goal.key)
    figures = ", ".join(f"{h}\u00a0{w(first.outputs[k])}" for k, h, w in columns)
    how = " by simulation" if first.simulated else ""
    out = [Say(f"Best {found.goal.name}{how}: {point_text(first.inputs)}", "good"), Say(figures)]
    out += [*likely(found), *listed("figures", [note] if note else []), Say(count, "faint")]
    out += without_pools(found, columns)
    run: list[Block] = (
        [
            *(Say(c) if c.startswith("#") else Code(c) for c in command.split("\n")),
            *(Say(f"# {line}") for line in wrap(before, 76, break_on_hyphens=False, break_long_words=False)),
            BLANK,
        ]
        if command
        else []
    )
    dear = [Say(found.prices, "faint", "price"), BLANK] if found.prices and {c[0] for c in columns} & COSTS else []
    out += [BLANK, *run, *tables(found, columns), *dear]
    shown_words = {word for c in (first, *found.top, *found.front) for word in point_text(c.inputs).split()}
    legend = [Say(told, "faint", short) for short, told in LEGEND if short in shown_words]
    if getattr(found, "confirmed", ()):
        out += [*simulated(found), *([BLANK] if found.blocked or legend else [])]
    for b in found.blocked:
        out += [Say(f"Better, but ruled out: {point_text(b.candidate.inputs)}"), *(Say(f"  {w}") for w in b.why)]
    out += [*([BLANK] if found.blocked and legend else []), *legend]
    out = out[:-1] if out[-1] is BLANK else out
    return [*out, *([BLANK] if found.same else []), *listed("without effect", found.same)]


def likely(found: Any) -> list[Block]:
    """The error bands of the best point: under load, of its simulation's means."""
    bands = [(h, banded(b["low"], b)) for k, h, _ in (*SERVING, *STEP) if (b := found.error_band.get(k))]
    told = "; ".join(f"{heading} {band}" for heading, band in bands if band)
    return [Say(f"In four of five like cases: {told}.")] if told else []


def without_pools(found: Any, columns: Sequence[Column]) -> list[Block]:
    """The best deployment without separate pools, if the search compared both kinds."""
    plain = found.without_pools
    if plain is None:
        return []
    if plain.best is None:
        return [Say("no deployment without pools meets every constraint", label="without pools")]
    if plain.best.inputs == found.best.inputs:
        return [Say("Separate prefill and decode pools are no better.", "faint")]
    figures = ", ".join(f"{h} {w(plain.best.outputs[k])}" for k, h, w in columns)
    return [Say(f"{point_text(plain.best.inputs)}: {figures}", label="without pools")]


def tables(found: Any, columns: Sequence[Column]) -> list[Block]:
    """The ten best and the trade-off: what all of them share stands above."""
    step = "step_time_s" in found.best.outputs  # whose time is traded for memory
    wanted = {h for key, h, _ in columns if key == found.goal.key} | ({"memory"} if step else set())
    fastest = min((c.outputs.get("step_time_s", 0.0) for c in found.front), default=0.0)
    near = [c for c in found.front if c.outputs.get("step_time_s", 0.0) <= SLOW * fastest]
    edge = [near[i] for i in thinned(range(len(near)), 10)]
    cards = found.others if len(found.others) <= FEW_CARDS else ()
    points = [c.inputs for c in (*found.top, *edge, *cards)]
    apart = POOL if any("prefill_replicas" in p for p in points) else ()
    same = {k: v for k, v in points[0].items()
            if k not in apart and all(p.get(k) == v for p in points) and len(points) > 1}  # fmt: skip
    told = {k: v for k, v in same.items() if (k not in DEGREES or v != 1) and (k, v) not in PLAIN}
    out: list[Block] = listed("all of them", [point_text({k: v}) for k, v in told.items()])
    ran, rest = ([c for c in found.top if c.simulated == way] for way in (True, False))
    of = ", estimated" if ran else ""  # a simulation's figures and an estimate's are never rows of one table
    best = [("Best, simulated", ran), ("Further, estimated", rest)] if ran else [("Ten best", rest)]
    kinds = [*best, (f"Best of the other cards{of}", cards), (f"Trade-off{of}", edge)]
    if found.without_pools is not None and found.without_pools.front:
        plain = found.without_pools.front
        kinds.append((f"Without pools{of}", [plain[i] for i in thinned(range(len(plain)), 6)]))
    for title, candidates in kinds:
        if not candidates:
            continue
        rows = [(point_text({k: v for k, v in c.inputs.items() if k not in same}),
                 *(w(c.outputs[key]) for key, _, w in columns)) for c in candidates]  # fmt: skip
        head = (title, *(h for _, h, _ in columns))
        spare = tuple(sorted(head[:2:-1], key=wanted.__contains__))
        out += [BLANK, Table([head, *rows], "l" + "r" * len(columns), head=True, spare=spare, indent=0)]
    if found.ruled_out and len(found.ruled_out) <= FEW_CARDS:
        out += [BLANK, Say(f"No point of {' or '.join(found.ruled_out)} meets every constraint.")]
    return [*(out if told else out[1:]), BLANK]


def simulated(found: Any) -> list[Block]:
    """The best answers simulated, the estimate's figures beside, and what to know of each."""
    of = "clients" if found.kind == "concurrency" else "rate"
    percentiles = [m for m in found.confirmed[0].served.limits if m.percentile]
    rows, notes = [], []
    first = found.confirmed[0].candidate.inputs
    others = [c.candidate.inputs for c in found.confirmed]
    same = {k for k, x in first.items() if isinstance(x, str) and all(inputs.get(k) == x for inputs in others)}
    for c in found.confirmed:
        v, s = c.served.summary.values, c.served.steady
        asked = c.candidate.inputs[found.kind]
        name = point_text({k: x for k, x in c.candidate.inputs.items() if k != found.kind and k not in same})
        pairs = [with_estimate(v["ttft_s"]["mean"], s.ttft), with_estimate(v["tpot_s"]["mean"], s.tpot)]
        measured = [seconds(c.served.summary.measure(m)) for m in percentiles]
        rows.append((name, count(c.load), *pairs, *measured, count(v["output_tokens_per_s_per_gpu"])))
        told = [] if c.held else ["the limits hold at no load that was searched: " + "; ".join(c.broken)]
        if c.held and c.load != asked:
            told = [f"by the estimate {count(asked)} {of}; just above {count(c.load)}, {'; '.join(c.broken)}"]
        told += [] if c.agrees else ["estimate and simulation DIFFER by more than a quarter"]
        notes += [Say(t, label=name) for t in told]
    head = ("Simulated (estimate)", of, "TTFT", "TPOT", *(m.name for m in percentiles), "tok/s/GPU")
    return [Table([head, *rows], "l" + "r" * (len(head) - 1), head=True, spare=head[-1:], indent=0), *notes]


def with_estimate(measured: float, estimate: float) -> str:
    """A simulated time and its estimate in the same unit.

    >>> with_estimate(0.05, 0.0425), with_estimate(0.85, 0.9999)
    ('50.0 (42.5) ms', '850 (1000) ms')
    >>> with_estimate(0.05, math.inf), with_estimate(math.nan, 0.05)
    ('50.0 ms', '-')
    """
    told = seconds(measured)
    if not (math.isfinite(estimate) and math.isfinite(measured) and measured > 0):
        return told
    number, _, unit = told.partition(" ")
    return f"{number} ({count(estimate * float(number) / measured)}) {unit}"
