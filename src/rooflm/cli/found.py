"""What a search found, as text of at most 80 columns and as JSON."""

from __future__ import annotations

import math
import re
import textwrap
from typing import Any

from rooflm.cli import render
from rooflm.search.search import thinned

DEGREES = ("tp", "pp", "vp", "dp", "cp", "ep")
"""Inputs that need no word where they are one."""


def named(inputs: dict[str, Any]) -> str:
    """A point in words: names, degrees above one, sizes; of training, splits in their usual order.

    >>> named({"schedule": "interleaved", "recompute": "none", "pp": 8, "vp": 12, "zero": 1, "tp": 4, "micro_batch": 2})
    'tp 4 pp 8 vp 12 zero 1 mb 2'
    """
    words = []
    for key in sorted(inputs, key=lambda k: SPLIT.index(k) if k in SPLIT and "zero" in inputs else -1):
        value = inputs[key]
        if (key in DEGREES and value == 1) or (key, value) in PLAIN:
            continue
        if value == math.inf:
            words.append("whole prompts" if key.endswith("token_budget") else f"no {key.rsplit('.', 1)[-1]}")
            continue
        name = SHORT.get(key, key.rsplit(".", 1)[-1])
        spelled = str(value) if key != "recompute" else f"recompute {value}"
        words.append(spelled if isinstance(value, str) else f"{name} {render.count(value)}")
    return " ".join(words) or "one GPU"


SHORT = {"micro_batch": "mb", "token_budget": "budget", "engine.token_budget": "budget", "concurrency": "clients"}
"""Inputs with a shorter name in the tables."""
SPLIT = ("tp", "cp", "ep", "pp", "vp", "dp", "zero", "micro_batch", "recompute")
"""Order of a training split in the tables."""
PLAIN = (("schedule", "1f1b"), ("schedule", "interleaved"), ("recompute", "none"))
"""Values that need no word: virtual stages say that a schedule is interleaved."""
SLOW = 3.0
"""Trade-offs are shown up to so many times the time of the fastest step."""


def tables(found: Any, shown: Any) -> list[str]:
    """The ten best and the trade-off in 80 columns: what all of them share stands above, columns that do not fit go."""
    fastest = min((c.outputs.get("step_time_s", 0.0) for c in found.front), default=0.0)
    near = [c for c in found.front if c.outputs.get("step_time_s", 0.0) <= SLOW * fastest]
    edge = [near[i] for i in thinned(range(len(near)), 10)]
    all_points = [c.inputs for c in (*found.top, *edge)]
    first = all_points[0]
    same = {k: v for k, v in first.items() if all(p.get(k) == v for p in all_points) and len(all_points) > 1}
    told = {k: v for k, v in same.items() if (k not in DEGREES or v != 1) and (k, v) not in PLAIN}
    lines = [*render.wrap("all of them", [named({k: v}) for k, v in told.items()]), ""]

    def drawn(title: str, points: Any, columns: Any) -> list[str]:
        rows = [
            (named({k: v for k, v in c.inputs.items() if k not in same}), *(w(c.outputs[key]) for key, _, w in columns))
            for c in points
        ]
        head = (title, *(h for _, h, _ in columns))
        return render.columns([head, *rows], "l" + "r" * len(columns), indent=0)

    for title, points in (("Ten best", found.top), ("Trade-off", edge)):
        columns = list(shown)
        while len(columns) > 2 and max(map(len, drawn(title, points, columns))) > render.WIDTH:
            columns.pop()
        lines += [*drawn(title, points, columns), ""]
    return lines


def found_shown(found: Any, columns: Any, command: str, seconds: float, json_: bool, note: str = "",
                first: str = "") -> str:  # fmt: skip
    """A search's answer as it is printed. columns: (key, heading, writer) of its tables; command: runs the answer;
    note: what its figures are of; first: what to do before the command runs."""
    if json_:
        return render.dumps({**found_json(found, command, seconds), "first": first})
    lines = found_text(found, columns, command, seconds, note)
    told = textwrap.wrap(first, render.WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, *(f"# {line}" for line in told)])


def found_text(found: Any, shown: Any, command: str, seconds: float, note: str = "") -> list[str]:
    """A search's answer for people."""
    head = f"{found.points} points, {found.feasible} legal, in {seconds:.2f} s; best: {found.goal.name}"
    lines = [head, *render.wrap("assumed", found.assumed), *render.wrap("without effect", found.same), ""]
    lines[-1:] = [*(render.wrap("figures", [note]) if note else []), ""]
    if found.best is None:
        lines += ["No point meets every constraint.", *found.alone]
        if found.nearest is not None:
            lines += [f"The nearest: {named(found.nearest.candidate.inputs)}", *(f"  {w}" for w in found.nearest.why)]
        return lines
    lines += tables(found, shown)
    if getattr(found, "confirmed", ()):
        lines += [*simulated(found, named), ""]
    for b in found.blocked:
        lines += textwrap.wrap(
            f"Better, but not legal: {named(b.candidate.inputs)}", render.WIDTH, subsequent_indent="  "
        )
        lines += [f"  {w}" for w in b.why]
    return [*lines, "", *shell(command)] if command else lines


def shell(command: str) -> list[str]:
    """A command in lines of at most 80 columns, each but the last ended by a backslash; quoted text stays whole.

    >>> shell("echo 'a  b' > file")
    ["echo 'a  b' > file"]
    """
    wrapped = [""]
    for word in re.findall(r"(?:'[^']*'|\S)+", command):
        if wrapped[-1] and len(wrapped[-1]) + 1 + len(word) > render.WIDTH - 2:
            wrapped.append("    " + word)
        else:
            wrapped[-1] = f"{wrapped[-1]} {word}" if wrapped[-1] else word
    return [*(f"{line} \\" for line in wrapped[:-1]), wrapped[-1]]


def found_json(found: Any, command: str, seconds: float) -> dict[str, Any]:
    """The object of --json."""

    def told(c: Any) -> dict[str, Any]:
        return {"inputs": c.inputs, **c.outputs}

    return {
        **({"confirmed": simulated_json(found)} if hasattr(found, "confirmed") else {}),
        "objective": found.goal.name,
        "points": found.points,
        "feasible": found.feasible,
        "seconds": seconds,
        "best": told(found.best) if found.best else None,
        "top": [told(c) for c in found.top],
        "front": [told(c) for c in found.front],
        "blocked": [{**told(b.candidate), "why": list(b.why)} for b in found.blocked],
        "nearest": {**told(found.nearest.candidate), "why": list(found.nearest.why)} if found.nearest else None,
        "unmet": list(found.alone),
        "assumed": list(found.assumed),
        "without_effect": list(found.same),
        "command": command,
    }


def simulated(found: Any, named: Any) -> list[str]:
    """The best answers simulated, the estimate's figures beside, and what to know of each. named: a point in words."""
    of = "clients" if found.kind == "concurrency" else "rate"
    percentiles = [m for m in found.confirmed[0].served.limits if m.percentile]
    rows, notes = [], []
    first = found.confirmed[0].candidate.inputs
    same = {
        k for k, x in first.items() if isinstance(x, str) and all(c.candidate.inputs[k] == x for c in found.confirmed)
    }
    for c in found.confirmed:
        v, s = c.served.summary.values, c.served.steady
        asked = c.candidate.inputs[found.kind]
        name = named({k: x for k, x in c.candidate.inputs.items() if k != found.kind and k not in same})
        pairs = [beside(v["ttft_s"]["mean"], s.ttft), beside(v["tpot_s"]["mean"], s.tpot)]
        measured = [render.seconds(c.served.summary.measure(m)) for m in percentiles]
        rows.append((name, render.count(c.load), *pairs, *measured, render.count(v["output_tokens_per_s_per_gpu"])))
        told = [] if c.held else ["the limits hold at no load that was searched: " + "; ".join(c.broken)]
        if c.held and c.load != asked:
            told = [
                f"by the estimate {render.count(asked)} {of}; just above {render.count(c.load)}, {'; '.join(c.broken)}"
            ]
        told += [] if c.agrees else ["estimate and simulation PART by more than a quarter"]
        notes += [line for t in told for line in textwrap.wrap(f"{name}: {t}", render.WIDTH, subsequent_indent="  ")]
    head = ("Simulated (estimate)", of, "TTFT", "TPOT", *(m.name for m in percentiles), "tok/s/GPU")
    table = render.columns([head, *rows], "l" + "r" * (len(head) - 1), indent=0)
    if max(map(len, table)) > render.WIDTH:
        table = render.columns([r[:-1] for r in (head, *rows)], "l" + "r" * (len(head) - 2), indent=0)
    return [*table, *notes]


def beside(measured: float, estimate: float) -> str:
    """A simulated time and the estimate in the same unit.

    >>> beside(0.05, 0.0425), beside(0.05, math.inf)
    ('50.0 (42.5) ms', '50.0 ms')
    """
    text = render.seconds(measured)
    number, _, unit = text.partition(" ")
    return f"{number} ({estimate * float(number) / measured:.3g}) {unit}" if math.isfinite(estimate) else text


def simulated_json(found: Any) -> list[dict[str, Any]]:
    """The same for --json."""
    return [
        {
            "inputs": c.candidate.inputs,
            "load": c.load,
            "held": c.held,
            "agrees": c.agrees,
            "why": list(c.broken),
            "simulated": {k: v for k, v in c.served.values().items() if k not in ("assumed", "warnings")},
        }
        for c in found.confirmed
    ]
