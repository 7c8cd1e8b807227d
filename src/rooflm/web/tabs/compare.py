"""Tab "compare": up to four scenarios side by side, the shared one and others that differ in a few fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import rooflm
from rooflm.asked.answers.said import dollars, largest_number
from rooflm.asked.arguments import arguments
from rooflm.asked.assumed import usual_engine
from rooflm.errors import RooflmError
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.shown.blocks import Table, folded
from rooflm.shown.numbers import between, count, gib, percent, seconds
from rooflm.sweep.assumed import of_points
from rooflm.web.asked import Asked, FieldError
from rooflm.web.blocks import Answer
from rooflm.web.code import as_command, as_python, together
from rooflm.web.figures import compared
from rooflm.web.tabs import fits

SIDES = ("b", "c", "d")
CHANGED = ("model", "gpu", "gpus", "quant", "engine", "batch")
KEYS = (*fits.KEYS, *(f"{side}.{k}" for side in SIDES for k in CHANGED))
SLIDERS = ()
LONGEST = 24
"""Most letters of a name in a sentence; longer ones stand over their columns alone."""
METRICS: tuple[tuple[str, str, Callable[[Any], Any], Callable[[Any], str], bool | None], ...] = (
    ("ttft_s", "First token", lambda e: e.ttft, seconds, True),
    ("tpot_s", "Each token", lambda e: e.tpot, seconds, True),
    ("latency_s", "Whole request", lambda e: e.latency, seconds, True),
    ("output_tokens_per_s", "Tokens a second, all", lambda e: e.output_tokens_per_s, count, False),
    ("output_tokens_per_s_per_gpu", "Tokens a second, a card", lambda e: e.output_tokens_per_s_per_gpu, count, False),
    ("cost_usd_per_million_tokens", "USD a million tokens", lambda e: e.cost_per_million_tokens,
     dollars, True),
    ("memory_bytes", "Memory of the fullest card", lambda e: e.memory.total, lambda v: gib(float(v)), True),
    ("max_batch", "Largest batch that fits", lambda e: e.max_batch, largest_number, False),
    ("decode_mbu", "Use of bandwidth, decoding", lambda e: e.decode_mbu, percent, None),
)  # fmt: skip
"""Key, name, how to read it, how to write it, and whether less is better (None: neither)."""


def answer(asked: Asked) -> Answer:
    """Every scenario's figures, the best of each marked."""
    made = [(side, given, estimate(side, given)) for side, given in scenarios(asked)]
    names = [f"{side.upper()}: {told_apart(given, [g for _, g, _ in made])}" for side, given, _ in made]
    rows, best = [("Fits", *("yes" if e.fits else "no" for *_, e in made))], set()
    for key, name, value, write, less in METRICS:
        values = [float(value(e)) for *_, e in made]
        rows.append((name, *map(write, values)))
        able = [i for i, (*_, e) in enumerate(made) if e.fits]
        if len(able) > 1 and less is not None:
            top, *others = alike([made[i][-1] for i in able], key, value, less)
            best |= set() if others else {(len(rows) - 1, able[top] + 1)}
        if any(math.isfinite(float(e.error_band.get(key, NONE)["low"])) for *_, e in made):
            rows.append(("in four of five like cases", *(band_of(e, key) for *_, e in made)))
    brief = names if max(map(len, names)) <= LONGEST else [side.upper() for side, *_ in made]
    verdict, tone, said = verdict_of(brief, made)
    if not any(asked.value(f"{side}.{k}") is not None for side in SIDES for k in CHANGED):
        said = [*said, "B is A with four times as many requests, until you fill in something under Second."]
    table = Table([("", *names), *rows], "l" + "r" * len(names), "Side by side", head=True, best=frozenset(best))
    flat = [{"name": n, **{k: float(v(e)) for k, _, v, *_ in METRICS}} for n, (*_, e) in zip(names, made, strict=True)]
    python = together(as_python("infer", given, f"answer_{side}") for side, given, _ in made)
    command = "\n".join(as_command("infer", given) for _, given, _ in made)
    told = of_points([({"scenario": side.upper()}, e.assumed) for side, _, e in made])
    notes = folded([*told, *dict.fromkeys(w for *_, e in made for w in e.warnings)])

    def data() -> dict[str, Any]:
        return {"scenarios": [{"name": n, **e.to_dict()} for n, (*_, e) in zip(names, made, strict=True)]}

    return Answer(tone, verdict, said, [table, notes], partial(compared, names, made), python, command, data, flat)


def scenarios(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """Side and arguments of the shared scenario and of those that differ from it."""
    shared = asked.single(asked.arguments("infer"))
    found = [("a", shared)]
    for side in SIDES:
        changes = {k: asked.value(f"{side}.{k}") for k in CHANGED}
        changes = {k: v for k, v in changes.items() if v is not None}
        if changes:
            kept = {k: v for k, v in shared.items() if k not in SERVED_DEGREES} if "gpus" in changes else shared
            found.append((side, asked.single({**kept, **changes})))
    if len(found) == 1:
        found.append(("b", {**shared, "batch": 4 * shared.get("batch", 1)}))
    return found


def estimate(side: str, given: dict[str, Any]) -> Any:
    """The estimate of a scenario; what is wrong with it is said beside its own field."""
    try:
        return rooflm.infer(**given)
    except RooflmError as error:
        named = next((k for k in CHANGED if str(error).startswith(f"{k} ")), "model")
        raise FieldError(f"{side}.{named}" if side != "a" else "", str(error)) from None


def told_apart(given: dict[str, Any], every: Sequence[dict[str, Any]]) -> str:
    """A scenario named by what distinguishes it from the others.

    >>> two = {"model": "llama-7b"}, {"model": "llama-8b", "gpus": 2, "quant": "fp8"}
    >>> [told_apart(g, two) for g in two]
    ['llama-7b, 1 card, as released', 'llama-8b, 2 cards, fp8']
    """
    keys = [k for k in CHANGED if len({str(g.get(k)) for g in every}) > 1]
    words = {"gpus": "{} card", "batch": "{} at once"}
    usual = {"gpus": 1, "quant": "as released", "engine": usual_engine("inference")}
    found = []
    for k in keys:
        v = given[k] if k in given else usual.get(k) or arguments("infer")[k].default
        name = count(v) if isinstance(v, int | float) else getattr(v, "name", v)
        found.append(words.get(k, "{}").format(name) + "s" * (k == "gpus" and v != 1))
    return ", ".join(found) or "the same"


NONE = {"low": math.nan, "high": math.nan, "rows": 0}
"""The error band of what has none."""
FOLLOWS = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "cost_usd_per_million_tokens")
"""Outputs that are as sure as the time of a request, which they are worked out from."""


def band_of(e: Any, key: str) -> str:
    """The error band of a time, without a word more."""
    band = e.error_band.get(key, NONE)
    told = between(float(band["low"]), float(band["high"]), float(getattr(e, key.removesuffix("_s"))))
    return told.removeprefix("between ").replace(" and ", " to ") or "not measured"


def alike(made: Sequence[Any], key: str, value: Callable[[Any], Any], less: bool) -> list[int]:
    """The best, and those that are as good within the error band of each other (where there is none, to the digit)."""
    values = [float(value(e)) for e in made]
    top = values.index(min(values) if less else max(values))

    def holds(i: int, other: float) -> bool:
        """Whether the band of one holds the value of another."""
        e, own = made[i], "latency_s" if key in FOLLOWS else key
        band = e.error_band.get(own, NONE)
        low, high = (float(band[end]) / float(getattr(e, own.removesuffix("_s"), 1.0)) for end in ("low", "high"))
        low, high = (1 / high, 1 / low) if key in FOLLOWS and not less else (low, high)
        return low <= other / values[i] <= high if band["rows"] and math.isfinite(low) else other == values[i]

    near = [i for i, v in enumerate(values) if i != top and holds(i, values[top]) and holds(top, v)]
    return [top, *near]


def verdict_of(names: list[str], made: list[tuple[str, dict[str, Any], Any]]) -> tuple[str, str, list[str]]:
    """The verdict: which is quickest for a user, which cheapest a token, and which are alike in that."""
    able = [(n, e) for n, (*_, e) in zip(names, made, strict=True) if e.fits]
    out = [n for n, (*_, e) in zip(names, made, strict=True) if not e.fits]
    said = [f"{n} does not fit." for n in out]
    if not able:
        return "None of these fits.", "bad", []
    rows = {key: value for key, _, value, *_ in METRICS}
    quick, cheap = ([able[i][0] for i in alike([e for _, e in able], key, rows[key], True)]
                    for key in ("latency_s", "cost_usd_per_million_tokens"))  # fmt: skip
    within = ", within the error band of each other"
    if sorted(quick) == sorted(cheap):
        alone = f"{quick[0]} is both the quickest and the cheapest."
        return alone if len(quick) == 1 else f"{listed(quick)} are as quick and as cheap{within}.", "good", said
    first = f"{quick[0]} is the quickest" if len(quick) == 1 else f"{listed(quick)} are as quick{within}"
    second = f"{cheap[0]} is the cheapest a token" if len(cheap) == 1 else f"{listed(cheap)} are as cheap{within}"
    return f"{first}; {second}.", "good", said


def listed(names: Sequence[str]) -> str:
    """Names in their order as a sentence has them.

    >>> listed(["C", "A", "B"])
    'A, B and C'
    """
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
