"""What is the best way to serve it? Every legal split, scheme and card, the best first, with the command to run."""

from __future__ import annotations

from functools import partial
from typing import Any

import rooflm
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.search.serve_command import start_of
from rooflm.shown.blocks import Code, Fact, Facts, Table, folded
from rooflm.shown.numbers import count, gib, seconds
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer
from rooflm.web.code import as_command, as_python
from rooflm.web.figures import front
from rooflm.web.memo import memoised
from rooflm.web.words import banded, dollars

KEYS = ("model", "gpu", "quant", "engine", "prompt", "output", "find.concurrency", "ttft", "tpot", "find.gpus_max",
        "find.objective", "tp", "pp", "dp", "ep", "efficiency")  # fmt: skip
SLIDERS = ()
GOALS = {"throughput": "the most tokens a second per card", "total": "the most tokens a second in all",
         "cost": "the fewest dollars a token", "latency": "the quickest request", "ttft": "the quickest first token",
         "tpot": "the quickest token", "energy": "the least energy a token"}  # fmt: skip
"""What is best, in words."""


def answer(asked: Asked) -> Answer:
    """The best point under the limits, the front, and the next best."""
    call, given = arguments(asked)
    found = memoised(f"search?{asked.query()}", lambda: getattr(rooflm, call)(**given))
    what = GOALS[given.get("objective", "throughput")]
    python, command = as_python(call, given), as_command(call, given)
    seen = f"{found.points:,} points looked at, {found.feasible:,} within the limits"
    notes = folded([*found.assumed, seen, *found.same])
    if found.best is None:
        near = found.nearest
        why = list(near.why) if near else ["no split is legal"]
        said = [f"The nearest is {in_words(near.candidate.inputs)}: {'; '.join(why)}."] if near else why
        return Answer("bad", "Nothing meets these limits.", said, [notes], tuple, python, command, found.to_dict)
    chosen = getattr(found, "chosen", None)
    best = found.best
    out = best.outputs
    verdict = f"Best: {in_words(best.inputs)}."
    said = [f"It has {what}: {count(out['output_tokens_per_s'])} tokens a second on {count(out['gpus'])} "
            f"card{'s' * (out['gpus'] != 1)}, {dollars(out['cost_usd_per_million_tokens'])} a million.",
            *(confirmed(chosen) if call == "search_serve" else [AT_ONCE])]  # fmt: skip
    bands, what_first = found.error_band, "mean under load" if call == "search_serve" else "of a whole batch"
    facts = [
        banded("First token", out["ttft_s"], bands["ttft_s"], what_first) if bands
        else Fact("First token", seconds(out["ttft_s"]), what_first),
        banded("Each token", out["tpot_s"], bands["tpot_s"], "mean") if bands
        else Fact("Each token", seconds(out["tpot_s"]), "mean"),
        Fact("Memory of the fullest card", gib(out["memory_bytes"])),
    ]  # fmt: skip
    blocks: list[Any] = [Facts("What users get", facts), table(found, best), *start(found, given), notes]
    return Answer("good", verdict, said, blocks, partial(front, found), python, command, found.to_dict,
                  [{**c.inputs, **c.outputs} for c in found.top])  # fmt: skip


def arguments(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The call (under load where clients are given) and its arguments."""
    call = "search_serve" if asked.value("find.concurrency") is not None else "search_infer"
    given = asked.arguments(call, "find")
    return call, {**given, "confirm": 1} if call == "search_serve" else given


def in_words(inputs: dict[str, Any]) -> str:
    """A point: names, degrees above one, sizes."""
    names = [str(inputs[k]) for k in ("gpu", "quant", "engine") if inputs.get(k) is not None]
    degrees = [f"{k} {inputs[k]}" for k in SERVED_DEGREES if inputs.get(k, 1) != 1]
    sizes = {"batch": "request{} at once", "concurrency": "client{}", "rate": "request{} a second"}
    loads = [f"{count(v)} {told.format('s' * (v != 1))}" for k, told in sizes.items() if (v := inputs.get(k))]
    return ", ".join([*names, *(degrees or ["one card"]), *loads])


def confirmed(chosen: Any) -> list[str]:
    """What the simulation of the best answer says."""
    if chosen is None:
        return []
    v = chosen.served.values()
    return [f"Simulated with {count(chosen.load)} clients: first token after {seconds(v['ttft_s']['mean'])}, "
            f"{seconds(v['tpot_s']['mean'])} a token (means)."]  # fmt: skip


def table(found: Any, best: Any) -> Table:
    """The best answers."""
    head = ("Card", "Scheme", "Split", "At once", "Cards", "TTFT", "TPOT", "Tokens/s a card", "USD a million")
    rows = []
    for c in found.top:
        i, o = c.inputs, c.outputs
        split = ", ".join(f"{k} {i[k]}" for k in SERVED_DEGREES if i.get(k, 1) != 1) or "none"
        load = next((count(i[k]) for k in ("batch", "concurrency", "rate") if k in i), "")
        rows.append((str(i.get("gpu", "")), str(i.get("quant", "as released")), split, load, count(o["gpus"]),
                     seconds(o["ttft_s"]), seconds(o["tpot_s"]), count(o["output_tokens_per_s_per_gpu"]),
                     f"{o['cost_usd_per_million_tokens']:.2f}"))  # fmt: skip
    ran = sum(c.simulated for c in found.top)
    which = f": {'the first' if ran == 1 else f'{ran} of them'} simulated, the rest estimated" if ran else ""
    return Table([head, *rows], "lll" + "r" * 6, f"The best answers{which}", head=True)


AT_ONCE = ("Its requests come all at once, and the first token is that of the last of them: with clients at a time, "
           "they come and go.")  # fmt: skip
UNNAMED = "your/model"
"""What a command calls a dropped model."""


def start(found: Any, given: dict[str, Any]) -> list[Code]:
    """The command that starts the engine so, and what to do first."""
    named = "" if isinstance(given["model"], str) else UNNAMED
    begun = start_of(given["model"], found, given, named)
    return [Code(begun.text, "To run it", begun.note)] if begun else []
