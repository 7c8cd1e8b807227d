"""How fast is it? The parts of prefill and decode, what bounds them, and how sure the figures are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import rooflm
from rooflm.asked.answers import said
from rooflm.asked.answers.inference import quicker
from rooflm.readers.prices import price_note
from rooflm.shown.blocks import Fact, Facts, Parts, folded
from rooflm.shown.numbers import count, percent, seconds, watt_hours
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer
from rooflm.web.code import as_command, as_python
from rooflm.web.figures import roofline
from rooflm.web.tabs.fits import KEYS
from rooflm.web.words import banded, dollars

if TYPE_CHECKING:
    from rooflm.asked.answers.inference import InferenceEstimate

__all__ = ["KEYS", "SLIDERS", "answer"]
SLIDERS = ("batch", "prompt", "gpus")
BOUND = said.BOUND | {
    "compute": "the arithmetic", "dram": "reading memory", "l2": "the cache",
    "overhead": "kernel overheads (starts, small tiles, formats)",
    "network": "messages between cards", "communication": "messages between cards",
}  # fmt: skip
"""What bounds a phase, in words."""


def per_million(joules: Any) -> str:
    """Energy of a million tokens, from that of one.

    >>> per_million(0.5)
    '139 Wh'
    """
    return watt_hours(1e6 * float(joules))


def bounds(e: InferenceEstimate) -> str:
    """What bounds each phase."""
    told = [f"{phase} by {BOUND.get(str(v), str(v))}" for phase, v in e.bound.items()]
    return f"{', '.join(told)}.".replace(" by", " is bound by", 1).capitalize()


def generated(e: InferenceEstimate) -> tuple[str, list[str], list[Fact]]:
    """Verdict, what is said, and figures of a model that generates."""
    bands, batch = e.error_band, float(e.scenario.workload.batch)
    lead = "First" if e.fits else "It does not fit; if it did: first"
    verdict = f"{lead} token after {seconds(e.ttft)}, then {count(1 / float(e.tpot))} tokens a second for each user."
    facts = [
        banded("Time to first token (TTFT)", e.ttft, bands["ttft_s"],
               f"all {count(batch)} prompts together" if batch > 1 else ""),
        banded("Time per output token (TPOT)", e.tpot, bands["tpot_s"]),
        banded("Whole request", e.latency, bands["latency_s"]),
        Fact("Output tokens a second", count(e.output_tokens_per_s), f"{count(e.output_tokens_per_s_per_gpu)} a card"),
        *dear(e, "output"),
        Fact("Use of the card", f"{percent(e.decode_mbu)} of bandwidth",
             f"decoding; prefill does {percent(e.prefill_mfu)} of its peak arithmetic"),
    ]  # fmt: skip
    return verdict, [f"{count(e.output_tokens_per_s)} tokens a second in all. {bounds(e)}"], facts


def embedded(e: InferenceEstimate) -> tuple[str, list[str], list[Fact]]:
    """The same of a model that embeds texts."""
    rate, batch = float(e.requests_per_s), float(e.scenario.workload.batch)
    lead = "" if e.fits else "It does not fit; if it did: "
    facts = [
        banded(f"Time of {count(batch)} texts" if batch > 1 else "Time of a text", e.ttft, e.error_band["ttft_s"]),
        Fact("Embeddings a second", count(rate), f"{count(rate / float(e.gpus))} a card"),
        Fact("Prompt tokens a second", count(rate * float(e.scenario.workload.prompt))),
        *dear(e, "prompt"),
        Fact("Use of the card", f"{percent(e.prefill_mfu)} of peak arithmetic"),
    ]
    return f"{lead}{count(rate)} embeddings a second.", [bounds(e)], facts


def dear(e: InferenceEstimate, kind: str) -> list[Fact]:
    """Cost and energy of a million tokens."""
    return [Fact(f"A million {kind} tokens", dollars(e.cost_per_million_tokens),
                 f"at {price_note([e.scenario.cluster.device])}; "
                 f"{per_million(e.energy_per_token)} of energy")]  # fmt: skip


def answer(asked: Asked) -> Answer:
    """Times of a request, what they are made of, and what they cost."""
    given = asked.single(asked.arguments("infer"))
    e = rooflm.infer(**given)
    tone = "plain" if e.fits else "bad"
    verdict, said, facts = generated(e) if e.scenario.model.head else embedded(e)
    said += quicker(e)
    blocks: list[Any] = [
        Parts("Prefill: reading the prompts", e.prefill_parts),
        *([Parts("Decode: writing one token", e.decode_parts)] if e.scenario.model.head else []),
        Facts("In figures", facts),
        folded([*e.assumed, *e.warnings]),
    ]
    pictures = partial(roofline, e)
    return Answer(tone, verdict, said, blocks, pictures, as_python("infer", given), as_command("infer", given),
                  e.to_dict)  # fmt: skip
