"""What follows from the parts of a scenario alone is worked out once for as long as the same parts come again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
MOST = 64
"""Answers that a function keeps."""


def kept(function: Callable[..., T]) -> Callable[..., T]:
    """Cache of a function of frozen records by identity, quicker than comparing their fields. Arrays are not cached.

    >>> from rooflm.scenario.mapping import Mapping
    >>> devices = kept(lambda m: [m.devices])
    >>> two = Mapping(tp=2)
    >>> devices(two) is devices(two), devices(two) is devices(Mapping(tp=2))
    (True, False)
    """
    answers: dict[tuple[int, ...], tuple[tuple[Any, ...], T]] = {}

    @wraps(function)
    def call(*records: Any) -> T:
        key = tuple(map(id, records))
        found = answers.get(key)
        if found is not None:
            return found[1]
        answer = function(*records)
        if not any(isinstance(x, np.ndarray) for x in (answer, *records)):
            if len(answers) >= MOST:
                answers.clear()
            answers[key] = records, answer  # the records stay with it, so that no other takes their place in memory
        return answer

    return call
