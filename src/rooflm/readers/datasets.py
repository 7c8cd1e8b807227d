"""Published data sets of prompts whose answers end by themselves: their lengths (`data/datasets.toml`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from rooflm.readers.rows import shipped
from rooflm.readers.tables import one_of


@dataclass(frozen=True)
class Lengths:
    """prompt, output: mean tokens; spread: lengths of prompts as shares of their mean, uniform; or prompt_limit: most
    tokens of a prompt, of which many are short and few long; output_limit: most tokens of an answer, which ends by
    itself; output_variation: their standard deviation over their mean; source: where they were counted."""

    prompt: int
    output: int
    output_limit: int
    source: str
    spread: tuple[float, float] | None = None
    prompt_limit: int | None = None
    output_variation: float | None = None


@lru_cache
def datasets() -> dict[str, Lengths]:
    """Name -> lengths."""
    return shipped("datasets", dict[str, Lengths])


def lengths_of(name: str) -> dict[str, Any]:
    """The arguments of `serve` that a data set stands for. RooflmError with the names that there are for another.

    >>> lengths_of("ShareGPT")
    {'prompt': 220, 'output': 200, 'output_limit': 1024, 'prompt_limit': 1024, 'output_variation': 1.04}
    """
    found = datasets()[one_of("dataset", name, datasets())]
    return {k: v for k, v in asdict(found).items() if k != "source" and v is not None}
