"""Progress: how much of a long work is done, for whoever listens, and in a notebook a clock below the cell for whatever
takes over two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

SLOW = 2.0
"""Seconds after which work is told."""
EVERY = 0.5
"""Seconds between two looks at the clock."""

_LISTENER: ContextVar[Callable[..., None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[..., None]) -> Iterator[None]:
    """Tell the listener what is done and how much there is in all, and of what where it is not what work began with,
    for as long as this lasts.

    >>> with listening(print):
    ...     tell_done(3, 8)
    3 8
    """
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell_done(done: int, total: int, *of: str) -> None:
    """Say how much is done to whoever listens."""
    if (listener := _LISTENER.get()) is not None:
        listener(done, total, *of)


def in_notebook() -> bool:
    """Whether this is a kernel of a notebook."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def notebook_clock(what: str) -> Iterator[None]:
    """Say in a notebook that work goes on, and for how long it has."""
    if not in_notebook():
        yield
        return
    shown: Any = import_module("IPython.display")
    html, display = shown.HTML, shown.display
    place, stop = display(html(""), display_id=True), threading.Event()
    teller = threading.Thread(target=tick, args=(what, place, html, stop), daemon=True)
    teller.start()
    try:
        yield
    finally:
        stop.set()
        teller.join()
        place.update(html(""))


def tick(what: str, place: Any, html: Any, stop: threading.Event) -> None:
    start = time.monotonic()
    wait = SLOW
    while not stop.wait(wait):
        place.update(html(f"<i>rooflm: {what}, {time.monotonic() - start:.0f} s</i>"))
        wait = EVERY
