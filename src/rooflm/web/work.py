"""Work that takes seconds: told while it goes on how much is done, ended once nobody waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from rooflm.errors import RooflmError
from rooflm.shown.progress import listening

EVERY = 0.5
"""Seconds between two lines of what is done."""


class LeftError(Exception):
    """Nobody waits for this work."""


class Work:
    """One work. done, total: how much is done and how much there is (0: not known); left: nobody waits for it."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self.left = False

    def tell(self, done: int, total: int, *_: str) -> None:
        """Take note of what is done; LeftError if nobody waits."""
        if self.left:
            raise LeftError
        self.done, self.total = done, total

    def run(self, make: Callable[[], Any]) -> Any:
        """What the work makes; LeftError if nobody waits for it any more when its turn comes."""
        self.tell(0, 0)
        with listening(self.tell):
            return make()


async def lines(run: Callable[..., Awaitable[Any]], make: Callable[[], Any]) -> AsyncIterator[str]:
    """Lines of JSON: now and then what is done, at last the answer, or why it was refused. run: runs work in a thread.
    Who goes away closes this, and with it ends the work."""
    work = Work()
    task = asyncio.ensure_future(run(work.run, make))
    task.add_done_callback(lambda t: t.cancelled() or t.exception())  # seen, whoever waits
    try:
        while not (await asyncio.wait([task], timeout=EVERY))[0]:
            yield json.dumps({"done": work.done, "total": work.total}) + "\n"
        yield json.dumps(task.result(), allow_nan=False)
    except RooflmError as error:
        yield json.dumps({"refused": str(error)})
    finally:
        work.left = True
