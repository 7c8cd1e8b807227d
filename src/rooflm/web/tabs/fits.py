"""Does it fit? Memory of the fullest card against its capacity, and what would make it fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import rooflm
from rooflm.catalogue.rows import names, resolve
from rooflm.errors import RooflmError
from rooflm.units import count, gib
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer, Choice, Choices, Fact, Facts, Notes
from rooflm.web.code import as_command, as_python
from rooflm.web.words import memory_bar

KEYS = ("model", "gpu", "gpus", "engine", "quant", "prompt", "output", "batch", "tp", "pp", "dp", "ep", "cached",
        "cluster", "efficiency")  # fmt: skip
SLIDERS = ("batch", "prompt", "gpus")
MORE_GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
NARROWER = ("fp8", "int8", "mxfp4", "int4", "q4_k_m")
"""Schemes that are tried, the widest first."""
SPLIT = ("tp", "pp", "dp", "ep")


def answer(asked: Asked) -> Answer:
    """Whether it fits, by how much, and what would make it fit."""
    given = asked.single(asked.arguments("infer"))
    e = rooflm.infer(**given)
    cards = "the card" if float(e.gpus) == 1 else f"each of {count(e.gpus)} cards"
    used = f"{gib(e.memory.total)} of {gib(e.memory.capacity)} usable"
    blocks: list[Any] = [memory_bar("Memory of the fullest card", e.memory)]
    if e.fits:
        tone, verdict = "good", f"Yes, it fits: {used} on {cards}."
        said = [f"The largest batch that fits is {count(e.max_batch)} requests of this length."]
    elif e.memory.margin < 0:
        tone, verdict = "bad", f"No, it does not fit: {gib(-e.memory.margin)} too much on {cards}."
        most = float(e.max_batch)
        said = [f"At most {count(most)} requests of this length fit." if most else "Not even one request fits."]
        blocks.append(Choices("What would make it fit", remedies(asked, given, most, float(e.memory.total))))
    else:
        tone, verdict, said = "bad", f"It cannot run: {e.reason}.", []
    kv = float(e.memory.parts["kv_cache"]) / max(float(given.get("batch", 1)), 1)
    s = e.scenario
    blocks.append(Facts("Behind it", [
        Fact("Weights on the fullest card", gib(e.memory.parts["weights"]), f"stored as {s.quant.name}"),
        Fact("KV cache a request", gib(kv), f"{count(s.workload.prompt + s.workload.output)} tokens, on this card"),
        Fact("Largest batch", count(e.max_batch), "requests of this length at a time"),
    ]))  # fmt: skip
    blocks.append(Notes("Assumed", [*e.assumed, *e.warnings]))
    return Answer(tone, verdict, said, blocks, tuple, as_python("infer", given), as_command("infer", given), e.to_dict)


def remedies(asked: Asked, given: dict[str, Any], most: float, total: float) -> list[Choice]:
    """Changes, each of which makes it fit by itself. most: requests that fit; total: bytes that a card needs."""
    found: list[Choice] = []
    if most >= 1:
        found.append(Choice(f"{count(most)} requests at once", asked.query(batch=int(most)), "a smaller batch"))
    free = {k: v for k, v in given.items() if k not in SPLIT}
    now = int(given.get("gpus", 1))
    found += _first(free, "gpus", [n for n in MORE_GPUS if n > now], "{} cards", asked, 1)
    found += _first(given, "quant", list(NARROWER), "scheme {}", asked, 2)
    if isinstance(given.get("gpu"), str):
        found += _first(given, "gpu", larger(given["gpu"], total), "{}", asked, 2)
    return found


def _first(given: dict[str, Any], name: str, values: list[Any], told: str, asked: Asked, most: int) -> list[Choice]:
    """The first of some values of an input with which it fits."""
    if not values:
        return []
    try:
        grid = rooflm.infer_grid(**{**given, name: values}, outputs=["fits", "memory_bytes", "memory_capacity_bytes"])
    except RooflmError:
        return []
    fits, used, room = (grid[k].to_numpy().ravel() for k in ("fits", "memory_bytes", "memory_capacity_bytes"))
    changes = {name: None, **(dict.fromkeys(SPLIT, "") if name == "gpus" else {})}
    return [
        Choice(told.format(v), asked.query(**{**changes, name: v}), f"{gib(used[i])} of {gib(room[i])} a card")
        for i, v in enumerate(values) if fits[i]
    ][:most]  # fmt: skip


def larger(gpu: str, total: float) -> list[str]:
    """Cards of the same maker with more memory than that, the smallest first."""
    size = {name: (vendor, room) for name, vendor, room in _sizes()}
    vendor, room = size[resolve("gpu", gpu)]
    ranked = sorted((r, name) for name, v, r in _sizes() if v == vendor and r > max(room, total))
    return [name for _, name in ranked][:8]


@cache
def _sizes() -> list[tuple[str, str, float]]:
    """Every card: name, maker, bytes of its memory."""
    cards = [rooflm.load_device(name) for name in names("gpu")]
    return [(c.name, c.vendor, float(c.dram.size)) for c in cards]
