"""Does it fit? Memory of the fullest card against its capacity, and what would make it fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import rooflm
from rooflm.asked.answers.said import largest_number, largest_that_fits
from rooflm.errors import RooflmError
from rooflm.readers.rows import names, resolve
from rooflm.shown.blocks import Fact, Facts, Parts, folded
from rooflm.shown.numbers import count, gib
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer, Choice, Choices
from rooflm.web.code import as_command, as_python

KEYS = ("model", "gpu", "gpus", "engine", "quant", "prompt", "output", "batch", "tp", "pp", "dp", "ep", "cached",
        "cluster", "efficiency")  # fmt: skip
SLIDERS = ("batch", "prompt", "gpus")
REMEDIES = "What would make it fit"
"""Heading of the changes that do."""


def answer(asked: Asked) -> Answer:
    """Whether it fits, by how much, and what would make it fit."""
    given = asked.single(asked.arguments("infer"))
    e = rooflm.infer(**given)
    cards = "the card" if float(e.gpus) == 1 else f"each of {count(e.gpus)} cards"
    used = f"{gib(e.memory.total)} of {gib(e.memory.capacity)} usable"
    blocks: list[Any] = [memory_parts(e)]
    if e.fits:
        tone, verdict = "good", f"Yes, it fits: {used} on {cards}."
        most = largest_that_fits(e.max_batch, of=" requests of this length")
        said = [f"{most[0].upper()}{most[1:]}."]
    elif e.memory.margin < 0:
        tone, verdict = "bad", f"No, it does not fit: {gib(-e.memory.margin)} too much on {cards}."
        few = float(e.max_batch)
        said = [f"At most {count(few)} requests of this length fit." if few else "Not even one request fits."]
        other = larger(asked, given, float(e.memory.total))
        ways = remedies(asked, e)
        blocks.append(Choices(REMEDIES, [*ways, *other]))
        shown = {way.text for way in ways}
        further = [r.words for r in e.would_fit if r.words not in shown]
        said += [f"From the shell or Python it would also fit with {' or '.join(further)}."] * bool(further)
    else:
        tone, verdict, said = "bad", f"It cannot run: {e.reason}.", []
    kv = float(e.memory.parts["kv_cache"]) / max(float(given.get("batch", 1)), 1)
    s = e.scenario
    blocks.append(Facts("Behind it", [
        Fact("Weights on the fullest card", gib(e.memory.parts["weights"]), f"stored as {s.quant.name}"),
        Fact("KV cache a request", gib(kv), f"{count(s.workload.prompt + s.workload.output)} tokens, on this card"),
        Fact("Largest batch", largest_number(e.max_batch), "requests of this length at a time"),
    ]))  # fmt: skip
    blocks.append(folded([*e.assumed, *e.warnings]))
    return Answer(tone, verdict, said, blocks, tuple, as_python("infer", given), as_command("infer", given), e.to_dict)


def memory_parts(e: Any) -> Parts:
    """Memory of the fullest card against what may be used of it."""
    return Parts("Memory of the fullest card", e.memory.parts, "B", capacity=e.memory.capacity)


def remedies(asked: Asked, e: Any, group: str = "") -> list[Choice]:
    """Changes that make an estimate fit, each by itself, as far as the page has fields for them. group: of the fields
    that are a tab's own."""
    found = []
    for r in e.would_fit:
        own = {k: f"{group}.{k}" if f"{group}.{k}" in asked.keys else k for k in r.change if k != "dp" or not group}
        if set(own.values()) <= set(asked.keys):
            changes = {key: r.change[k] for k, key in own.items()}
            found.append(Choice(r.words, asked.query(**changes), f"{gib(r.margin)} a card to spare"))
    return found


def larger(asked: Asked, given: dict[str, Any], total: float) -> list[Choice]:
    """The two smallest cards of the same maker with enough memory. total: bytes needed per card."""
    size = {name: (vendor, room) for name, vendor, room in _sizes()}
    if not isinstance(given.get("gpu"), str):
        return []
    vendor, room = size[resolve("gpu", given["gpu"])]
    names = [name for _, name in sorted((r, name) for name, v, r in _sizes() if v == vendor and r > max(room, total))]
    if not names:
        return []
    wanted = ["fits", "memory_bytes", "memory_capacity_bytes"]
    try:
        grid = rooflm.infer_grid(**{**given, "gpu": names[:8]}, outputs=wanted)
    except RooflmError:
        return []
    fits, used, left = (grid[k].to_numpy().ravel() for k in wanted)
    return [Choice(name, asked.query(gpu=name), f"{gib(used[i])} of {gib(left[i])} a card")
            for i, name in enumerate(names[:8]) if fits[i]][:2]  # fmt: skip


@cache
def _sizes() -> list[tuple[str, str, float]]:
    """Every card: name, maker, bytes of its memory."""
    cards = [rooflm.load_device(name) for name in names("gpu")]
    return [(c.name, c.vendor, float(c.dram.size)) for c in cards]
