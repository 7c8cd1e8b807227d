"""The tabs in their order: name, title, the question that each answers, its fields, its sliders."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer
from rooflm.web.tabs import compare, fits, map, search, serve, speed, train


def always(asked: Asked) -> bool:
    """Whatever is asked."""
    return True


def never(asked: Asked) -> bool:
    """Whatever is asked, not."""
    return False


class Tab(NamedTuple):
    """A tab. keys: its fields; sliders: those of them that have a slider; answer: asked to answer; slow: whether an
    answer may take seconds."""

    name: str
    title: str
    question: str
    keys: tuple[str, ...]
    sliders: tuple[str, ...]
    answer: Callable[[Asked], Answer]
    slow: Callable[[Asked], bool] = never


TABS = {
    t.name: t for t in (
        Tab("fits", "Fits?", "Does it fit into memory, and what would make it fit?", fits.KEYS, fits.SLIDERS,
            fits.answer),
        Tab("speed", "Speed", "How fast is a request, and what bounds it?", speed.KEYS, speed.SLIDERS, speed.answer),
        Tab("serve", "Serve", "How many users at a time, within which waits?", serve.KEYS, serve.SLIDERS, serve.answer,
            always),
        Tab("search", "Search", "Which cards, split and scheme are best?", search.KEYS, search.SLIDERS, search.answer,
            always),
        Tab("train", "Train", "How many days and dollars does training take?", train.KEYS, train.SLIDERS, train.answer,
            train.searches),
        Tab("compare", "Compare", "Which of up to four is better?", compare.KEYS, compare.SLIDERS, compare.answer),
        Tab("map", "Map", "How does it change over two inputs?", map.KEYS, map.SLIDERS, map.answer, always),
    )
}  # fmt: skip
"""Every tab by its name, in its order."""
