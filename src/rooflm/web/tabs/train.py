"""How long does training take, does it fit, and what does it cost?"""

from __future__ import annotations

from typing import Any

import rooflm
from rooflm.errors import RooflmError
from rooflm.units import count, gib, percent
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer, Choice, Choices, Fact, Facts, Notes
from rooflm.web.code import as_command, as_python
from rooflm.web.words import banded, days, dollars, memory_bar, time_bar

KEYS = ("model", "gpu", "train.gpus", "train.batch", "train.seq", "train.tokens", "train.micro_batch",
        "train.recompute", "train.zero", "train.lora_rank", "train.base_bits", "train.dtype", "train.optimizer",
        "train.engine", "train.tp", "train.pp", "train.cp", "train.ep", "efficiency")  # fmt: skip
SLIDERS = ("train.gpus", "train.micro_batch", "train.seq")
TRIED: tuple[tuple[str, dict[str, str]], ...] = (
    ("micro-batch 1", {"train__micro_batch": "1"}),
    ("recompute everything", {"train__recompute": "full"}),
    ("ZeRO stage 3", {"train__zero": "3"}),
    ("recompute everything, ZeRO stage 3", {"train__recompute": "full", "train__zero": "3"}),
    ("tensor parallel 8", {"train__tp": "8"}),
    ("LoRA of rank 16", {"train__lora_rank": "16"}),
    ("LoRA of rank 16, everything recomputed", {"train__lora_rank": "16", "train__recompute": "full"}),
    ("LoRA on 4-bit weights (QLoRA), recomputed",
     {"train__lora_rank": "16", "train__base_bits": "4", "train__recompute": "full"}),
)  # fmt: skip
"""Changes that may make it fit, the mildest first."""
OFFERED = 4


def answer(asked: Asked) -> Answer:
    """Days and dollars, memory, and where a step's time goes."""
    given = arguments(asked)
    e = rooflm.train(**given)
    run = float(e.scenario.workload.tokens) > 0
    fits, cards = bool(e.fits), count(e.gpus)
    takes = f"{days(e.days)} and {dollars(e.cost)} on {cards} card{'s' * (float(e.gpus) != 1)}"
    step = f"a step takes {time_of(e)}"
    if fits:
        tone, verdict = "good", f"It fits, and the run takes {takes}." if run else f"It fits, and {step}."
        said = [f"{gib(e.memory.margin)} of memory to spare; the largest micro-batch that fits is "
                f"{count(e.max_micro_batch)}."]  # fmt: skip
    elif e.memory.margin < 0:
        tone, verdict = "bad", f"It does not fit: {gib(-e.memory.margin)} too much on the fullest card."
        said = [f"If it did, the run would take {takes}." if run else f"If it did, {step}."]
    else:
        tone, verdict, said = "bad", f"It cannot run: {e.reason}.", []
    blocks: list[Any] = [memory_bar("Memory of the fullest card", e.memory)]
    if e.memory.margin < 0:
        blocks.append(Choices("What would make it fit", remedies(asked)))
    blocks += [
        time_bar("Where a step's time goes", e.parts, e.step_time),
        Facts("In figures", facts(e, run)),
        Notes("Assumed", [*e.assumed, *e.warnings]),
    ]
    return Answer(tone, verdict, said, blocks, tuple, as_python("train", given), as_command("train", given), e.to_dict)


def arguments(asked: Asked) -> dict[str, Any]:
    """The arguments of `train`."""
    return asked.single(asked.arguments("train", "train"))


def time_of(e: Any) -> str:
    """A step's time."""
    return banded("", e.step_time, e.error_band["step_time_s"]).value


def facts(e: Any, run: bool) -> list[Fact]:
    """The figures of a step and of the run."""
    shown = [
        banded("A step", e.step_time, e.error_band["step_time_s"]),
        Fact("Tokens a second", count(e.tokens_per_s_per_gpu * e.gpus), f"{count(e.tokens_per_s_per_gpu)} a card"),
        Fact("MFU", percent(e.mfu), "model arithmetic over the card's peak"),
    ]
    if run:
        shown += [
            Fact("Days", count(e.days), f"{count(e.steps)} steps, undisturbed"),
            Fact("Card hours", count(e.gpu_hours), "all cards together"),
            Fact("Cost", dollars(e.cost), "at the catalogue's rough hourly price"),
        ]
    return shown


def remedies(asked: Asked) -> list[Choice]:
    """Changes, each of which makes it fit by itself."""
    found: list[Choice] = []
    for told, changes in TRIED:
        if len(found) == OFFERED:
            break
        try:
            e = rooflm.train(**arguments(asked.but(**changes)))
        except RooflmError:
            continue
        if e.fits:
            found.append(Choice(told, asked.query(**changes), f"{gib(e.memory.total)} a card, MFU {percent(e.mfu)}"))
    return found
