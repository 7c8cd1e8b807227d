"""A cache of recent answers, so that a reopened link or a slider moved back is answered at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 128
"""Answers kept."""
_kept: OrderedDict[str, Any] = OrderedDict()
_busy: dict[str, threading.Lock] = {}
_lock = threading.Lock()


def is_kept(key: str) -> bool:
    """Whether a key's value is there already."""
    return key in _kept


def memoised(key: str, make: Callable[[], T]) -> T:
    """The cached value of a key, computed on first use; concurrent callers wait for the same computation.

    >>> memoised("a", lambda: 1), memoised("a", lambda: 2)
    (1, 1)
    """
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
        own = _busy.setdefault(key, threading.Lock())
    with own:
        with _lock:
            if key in _kept:
                return _kept[key]
        try:
            made = make()
            with _lock:
                _kept[key] = made
                while len(_kept) > MOST:
                    _kept.popitem(last=False)
            return made
        finally:
            with _lock:
                _busy.pop(key, None)
