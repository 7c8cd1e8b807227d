"""The assumptions of a grid's points: stated once if shared by all, otherwise by the axis values that tell points
apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

FEW = 4
"""Most values of one kind of assumption that are told one by one."""


def of_points(told: Iterable[tuple[Mapping[str, str], Sequence[str]]]) -> tuple[str, ...]:
    """Assumptions of all points together. told: of each the names among the axes, and what it assumes, each beginning
    with a word for what it is about.

    >>> of_points([({"gpu": "h100"}, ["engine vllm", "efficiency calibrated"]),
    ...            ({"gpu": "m3-max"}, ["engine llama.cpp", "efficiency calibrated"])])
    ('engine vllm (m3-max: llama.cpp)', 'efficiency calibrated')
    >>> of_points([({"gpu": "v100"}, ["dtype fp16"]), ({"gpu": "h100"}, [])])
    ('dtype fp16 (v100)',)
    >>> of_points([({"gpu": "v100"}, ["computed in fp16 (v100 has no units for it)"]), ({"gpu": "h100"}, [])])
    ('computed in fp16 (v100 has no units for it)',)
    """
    points = [(names, dict(text.partition(" ")[::2] for text in texts)) for names, texts in told]
    kinds = dict.fromkeys(kind for _, texts in points for kind in texts)
    return tuple(_merged(kind, [(at, texts.get(kind)) for at, texts in points]) for kind in kinds)


def _merged(kind: str, values: Sequence[tuple[Mapping[str, str], str | None]]) -> str:
    """One kind of assumption over all points: the usual value, then whose is another; where some say nothing of it
    (None), whose each value is."""
    (usual, _), *others = Counter(text for _, text in values if text is not None).most_common()
    if all(text == usual for _, text in values):
        return f"{kind} {usual}"
    names = list(values[0][0])
    axis = next((name for name in names if _tells(name, values)), "")
    if len(others) >= FEW:
        return f"{kind} by {axis or ' and '.join(names)}, each its own"
    whose: dict[str, dict[str, None]] = {}
    silent = any(text is None for _, text in values)
    for at, text in values:
        if text is not None and (silent or text != usual):
            whose.setdefault(text, {})[at[axis] if axis else " ".join(at.values())] = None
    if silent:
        said = {text: kind in at or all(word in text for word in " ".join(at).split()) for text, at in whose.items()}
        return "; ".join(f"{kind} {text}" + f" ({', '.join(whose[text])})" * (not said[text]) for text in whose)
    told = "; ".join(
        f"{', '.join(places)}: {_beyond(usual, text) or f'{kind} {text}'}" for text, places in whose.items()
    )
    return f"{kind} {usual} ({told})"


def _beyond(usual: str, text: str) -> str:
    """The words of a text from the first to the last one that differs; "" where they are the first of several things.

    >>> _beyond("budget 8192", "budget 2048"), _beyond("the first 4 are warm-up", "the first 8 are warm-up")
    ('2048', '8')
    >>> _beyond("1, pp 1", "2, pp 1"), _beyond("calibrated", "calibrated (wider error bands)")
    ('', 'wider error bands')
    """
    words, others = text.split(), usual.split()
    shared = min(len(others), len(words))
    same = next((i for i in range(shared) if others[i] != words[i]), shared)
    ends = zip(reversed(others[same:]), reversed(words[same:]), strict=False)
    alike = next((i for i, (a, b) in enumerate(ends) if a != b), 0)
    told = " ".join(words[same : len(words) - alike])
    told = told[1:-1] if told.startswith("(") and told.endswith(")") else told
    return "" if told.endswith(",") else told


def _tells(name: str, values: Sequence[tuple[Mapping[str, str], str | None]]) -> bool:
    """Whether the value of one axis tells what is assumed."""
    return len({(at[name], text) for at, text in values}) == len({at[name] for at, _ in values})
