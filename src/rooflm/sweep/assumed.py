"""What the points of a grid take for granted: said once where all do, else by the names that tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rooflm.kernels.rates import rates
from rooflm.scenario.scenario import Scenario

FEW = 4
"""Most values of one kind of assumption that are told one by one."""


def computed(s: Scenario) -> str:
    """The data types that the device multiplies in: of the scheme's products, and of the rest where it is another.

    >>> from rooflm.asked.build_inference import build_inference
    >>> [computed(build_inference("llama-7b", gpu="v100", quant=q).scenario) for q in ("w16a16", "int8")]
    ['computed in fp16', 'computed in fp16']
    """
    found = rates(s).dtype
    return "computed in " + " and ".join(dict.fromkeys((found["quant"], found["half"])))


def of_points(told: Iterable[tuple[Mapping[str, str], Sequence[str]]]) -> tuple[str, ...]:
    """Assumptions of all points together. told: of each the names among the axes, and what it assumes, each beginning
    with a word for what it is about.

    >>> of_points([({"gpu": "h100"}, ["engine vllm", "efficiency calibrated"]),
    ...            ({"gpu": "m3-max"}, ["engine llama.cpp", "efficiency calibrated"])])
    ('engine vllm (m3-max: llama.cpp)', 'efficiency calibrated')
    """
    points = [(names, dict(text.partition(" ")[::2] for text in texts)) for names, texts in told]
    kinds = dict.fromkeys(kind for _, texts in points for kind in texts)
    return tuple(_merged(kind, [(at, texts[kind]) for at, texts in points if kind in texts]) for kind in kinds)


def _merged(kind: str, values: Sequence[tuple[Mapping[str, str], str]]) -> str:
    """One kind of assumption over all points: the usual value, then whose is another."""
    (usual, _), *others = Counter(text for _, text in values).most_common()
    if not others:
        return f"{kind} {usual}"
    names = list(values[0][0])
    axis = next((name for name in names if _tells(name, values)), "")
    if len(others) >= FEW:
        return f"{kind} by {axis or ' and '.join(names)}, each its own"
    whose: dict[str, dict[str, None]] = {}
    for at, text in values:
        if text != usual:
            whose.setdefault(_beyond(usual, text), {})[at[axis] if axis else " ".join(at.values())] = None
    told = "; ".join(f"{', '.join(places)}: {text}" for text, places in whose.items())
    return f"{kind} {usual} ({told})"


def _beyond(usual: str, text: str) -> str:
    """The words of a text from the first one on that differs.

    >>> _beyond("budget 8192", "budget 2048")
    '2048'
    """
    words = text.split()
    same = next((i for i, (a, b) in enumerate(zip(usual.split(), words, strict=False)) if a != b), 0)
    return " ".join(words[same:])


def _tells(name: str, values: Sequence[tuple[Mapping[str, str], str]]) -> bool:
    """Whether the value of one axis tells what is assumed."""
    return len({(at[name], text) for at, text in values}) == len({at[name] for at, _ in values})
