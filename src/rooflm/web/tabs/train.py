"""How long does training take, does it fit, what does it cost, and which split of the work is the best?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import rooflm
from rooflm.asked.arguments import arguments as table_of
from rooflm.errors import RooflmError
from rooflm.readers.prices import price_note as told_prices
from rooflm.search.said import point_text
from rooflm.search.train_start import trained_by
from rooflm.shown.blocks import Code, Fact, Facts, Parts, Say, folded
from rooflm.shown.numbers import count, days, gib, percent, seconds
from rooflm.web.asked import Asked, FieldError
from rooflm.web.blocks import Answer, Choice, Choices
from rooflm.web.code import as_command, as_python, together
from rooflm.web.memo import memoised
from rooflm.web.tabs.fits import REMEDIES, memory_parts, remedies
from rooflm.web.words import banded, dollars

KEYS = ("model", "gpu", "train.gpus", "train.batch", "train.seq", "train.tokens", "train.micro_batch",
        "train.recompute", "train.zero", "train.lora_rank", "train.base_bits", "train.dtype", "train.optimizer",
        "train.engine", "train.tp", "train.pp", "train.vp", "train.cp", "train.ep", "train.schedule", "train.objective",
        "efficiency")  # fmt: skip
SLIDERS = ("train.gpus", "train.micro_batch", "train.seq")
ADAPTERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("LoRA of rank 16", {"train.lora_rank": "16"}),
    ("LoRA of rank 16, everything recomputed", {"train.lora_rank": "16", "train.recompute": "full"}),
    ("LoRA on 4-bit weights (QLoRA), recomputed",
     {"train.lora_rank": "16", "train.base_bits": "4", "train.recompute": "full"}),
)  # fmt: skip
"""What trains less and may fit where the whole does not, the mildest first."""
SPLIT = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "recompute", "zero", "schedule")
"""Arguments that a search leaves free."""
OFFERED = 6
"""Splits that are shown."""
MOST_SEARCHED = 2048
"""Most cards whose splits the page searches."""


def answer(asked: Asked) -> Answer:
    """Days and dollars, memory, and where a step's time goes."""
    given = arguments(asked)
    try:
        e = rooflm.train(**given)
    except RooflmError as error:
        if not searches(asked):
            raise
        return without_run(asked, given, error)
    run = float(e.scenario.workload.tokens) > 0
    fits, cards = bool(e.fits), count(e.gpus)
    takes = f"{days(e.days)} and {dollars(e.cost)} on {cards} card{'s' * (float(e.gpus) != 1)}"
    step = f"a step takes {banded('', e.step_time, e.error_band['step_time_s']).value}"
    if fits:
        tone, verdict = "good", f"It fits, and the run takes {takes}." if run else f"It fits, and {step}."
        said = [f"{gib(e.memory.margin)} of memory to spare; the largest micro-batch that fits is "
                f"{count(e.max_micro_batch)}."]  # fmt: skip
    elif e.memory.margin < 0:
        tone, verdict = "bad", f"It does not fit: {gib(-e.memory.margin)} too much on the fullest card."
        said = [f"If it did, the run would take {takes}." if run else f"If it did, {step}."]
    else:
        tone, verdict, said = "bad", f"It cannot run: {e.reason}.", []
    blocks: list[Any] = [memory_parts(e)]
    if e.memory.margin < 0:
        blocks.append(Choices(REMEDIES, [*remedies(asked, e, "train"), *adapters(asked, given)]))
    blocks += [
        Parts("Where a step's time goes", e.parts),
        Facts("In figures", facts(e, run)),
        folded([*e.assumed, *e.warnings]),
    ]
    python, command = as_python("train", given), as_command("train", given)
    goal = asked.value("train.objective")
    if not goal:
        every = Choice("Search every split", asked.query(**{"train.objective": "time"}), "for the least time of a step")
        blocks.insert(2, Choices("Which split is best?", [every]))
        return Answer(tone, verdict, said, blocks, tuple, python, command, e.to_dict)
    search = searched(asked, given)
    found = Answer(tone, verdict, said, blocks, tuple, together([python, as_python("search_train", search, "found")]),
                   f"{command}\n{as_command('search_train', search)}", e.to_dict)  # fmt: skip
    return replace(found, more=partial(with_splits, found, asked, search))


def without_run(asked: Asked, given: dict[str, Any], error: RooflmError) -> Answer:
    """The best splits alone, where that of the fields breaks a rule."""
    search = searched(asked, given)
    told = str(error)
    alone = Answer("bad", f"{told[:1].upper()}{told[1:]}.", blocks=[folded([])],
                   python=as_python("search_train", search), command=as_command("search_train", search),
                   data=lambda: kept_search(asked, search).to_dict())  # fmt: skip
    return replace(alone, more=partial(with_splits, alone, asked, search))


def searches(asked: Asked) -> bool:
    """Whether splits are searched, which takes seconds."""
    return bool(asked.texts.get("train.objective"))


def arguments(asked: Asked) -> dict[str, Any]:
    """The arguments of `train`."""
    return asked.single(asked.arguments("train", "train"))


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
            Fact("Cost", dollars(e.cost), f"at {told_prices([e.scenario.cluster.device])}"),
        ]
    return shown


def adapters(asked: Asked, given: dict[str, Any]) -> list[Choice]:
    """The mildest way of training adapters alone that fits, where all weights were asked for."""
    if given.get("lora_rank"):
        return []
    for told, changes in ADAPTERS:
        try:
            e = rooflm.train(**arguments(asked.but(**changes)))
        except RooflmError:
            continue
        if e.fits:
            return [Choice(told, asked.query(**changes), f"{gib(e.memory.margin)} a card to spare")]
    return []


def searched(asked: Asked, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the search: those of the run, with its split left free."""
    if given["gpus"] > MOST_SEARCHED:
        raise FieldError("train.objective", f"gpus is {count(given['gpus'])}, but the page searches the splits of at "
                         f"most {MOST_SEARCHED:,} cards: `rooflm search train` takes any number")  # fmt: skip
    kept = {k: v for k, v in given.items() if k in table_of("search_train") and k not in SPLIT}
    return {**kept, "model": given["model"], "objective": asked.value("train.objective")}


def with_splits(alone: Answer, asked: Asked, search: dict[str, Any]) -> Answer:
    """The answer with the best splits first; they lead, where the split of the fields does not run."""
    blocks = [*best_splits(asked, search), *alone.blocks]
    best = next((b.rows[0] for b in blocks[:1] if isinstance(b, Choices)), None)
    if best is None or alone.tone != "bad":
        return replace(alone, blocks=blocks)
    of = "Memory with the split of the fields"  # whose times are those of no run
    memory = [b._replace(title=of) for b in alone.blocks if isinstance(b, Parts) and b.capacity is not None]
    said = [f"The split of the fields does not run: {alone.verdict[:1].lower()}{alone.verdict[1:]}"]
    return replace(alone, tone="plain", verdict=f"Best split: {best.text}: {best.gives}.", said=said,
                   blocks=[*blocks[:2], *memory, alone.blocks[-1]])  # fmt: skip


def best_splits(asked: Asked, search: dict[str, Any]) -> list[Any]:
    """The best splits, each a click away, with the command that runs the best."""
    try:
        found = kept_search(asked, search)
    except RooflmError as error:
        return [Say(f"No split was found: {error}.")]
    if found.best is None:
        why = list(found.nearest.why) if found.nearest else list(found.unmet)
        return [Say(f"No split fits: {'; '.join(why)}.")]
    fields = {k: f"train.{k}" for k in SPLIT}
    rows = []
    for c in found.top[:OFFERED]:
        split = {key: c.inputs[k] for k, key in fields.items() if k in c.inputs}
        told = point_text({k: c.inputs[k] for k in (*SPLIT, "dp") if k in c.inputs})
        gives = f"a step {seconds(c.outputs['step_time_s'])}, MFU {percent(c.outputs['mfu'])}"
        rows.append(Choice(told, asked.query(**split), f"{gives}, {gib(c.outputs['memory_bytes'])} a card"))
    run = trained_by(search["model"], found, search)
    note = f"{found.feasible:,} of {found.points:,} splits can run; {', '.join(found.assumed)}"
    return [Choices("The best splits", rows), Code(run, "To run the best", note) if run else Say(note)]


def kept_search(asked: Asked, search: dict[str, Any]) -> Any:
    """What the search found, kept for who asks again whatever split stands in the fields."""
    same = asked.but(**{f"train.{k}": "" for k in SPLIT}).query()
    return memoised(f"search train?{same}", lambda: rooflm.search_train(**search))
