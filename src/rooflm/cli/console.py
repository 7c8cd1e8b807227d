"""Output of commands: answers to standard output at the terminal's width, warnings and progress to standard error, in
any encoding."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rooflm.shown.answer import plain
from rooflm.shown.blocks import Block
from rooflm.shown.progress import listening
from rooflm.shown.terminal import lines

SPELLING = {"µ": "u", "²": "2", "×": "x", "–": "-", "—": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "±": "+-",
           "•": "*", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "─": "-", "│": "|"}  # fmt: skip
"""How characters are written that an encoding does not have; all others become a question mark."""
SLOW = 2.0
"""Seconds after which work in progress is told."""
EVERY = 5.0
"""Seconds between two lines of progress where standard error is no terminal."""


class Voice:
    """Verbosity of the running command. quiet: no warnings, progress or assumptions; verbose: also the details behind
    the figures."""

    quiet = False
    verbose = False


def replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: a similar ASCII spelling for a character that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SPELLING.get(c, "?") for c in error.object[error.start : error.end]), error.end


codecs.register_error("spelled", replace_unencodable)


def never_fail_to_encode() -> None:
    """Make standard output and error replace characters that their encoding (cp936, cp932, ascii) lacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="spelled")


def width() -> int:
    """Columns of the terminal, or of COLUMNS; 80 where neither is known."""
    return max(shutil.get_terminal_size().columns, 40)


def has_colours() -> bool:
    """Whether standard output is a terminal that shows colours and wants them (NO_COLOR)."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    from rich.console import detect_legacy_windows

    return not detect_legacy_windows()


def show(blocks: Iterable[Block]) -> None:
    """Print an answer."""
    print("\n".join(lines(blocks, width(), has_colours())))


def dumps(values: dict[str, Any]) -> str:
    """One JSON object in SI units; not-a-number and infinity are null."""
    return json.dumps(plain(values), indent=1)


def tell(message: str) -> None:
    """A line on standard error, unless quiet."""
    if not Voice.quiet:
        print(f"rooflm: {message}", file=sys.stderr, flush=True)


def save(path: str | None, write: Callable[[str], object]) -> None:
    """Write a file that was asked for (None: none was), and say so."""
    if path:
        write(path)
        tell(f"wrote {path}")


def warn(messages: Iterable[Any]) -> None:
    """A warning each on standard error."""
    for message in messages:
        tell(f"warning: {message}")


@contextmanager
def working(what: str, total: int = 0) -> Iterator[Callable[..., None]]:
    """Show progress once work takes over two seconds: a bar or a clock on a terminal, otherwise a line now and then.

    Yields a function that takes how much more is done, or `said=...`, a message. total: the amount of work (0:
    unknown).
    """
    state = {"done": 0, "said": ""}

    def advance(more: int = 0, said: str = "") -> None:
        state["done"] += more  # type: ignore[operator]
        state["said"] = said or state["said"]

    stop = threading.Event()
    teller = threading.Thread(target=_report_progress, args=(what, total, state, stop), daemon=True)
    try:
        if not Voice.quiet:
            teller.start()  # an interrupt may come as it starts: it ends with its command then, too
        yield advance
    finally:
        stop.set()
        if teller.is_alive():
            teller.join()


@contextmanager
def counting(what: str, of: str) -> Iterator[None]:
    """Progress of work that tells what is done of all: searched points, predicted rows."""
    with working(what) as told, listening(lambda done, total, of=of: told(said=f"{done:,} of {total:,} {of}")):
        yield


def _report_progress(what: str, total: int, state: dict[str, Any], stop: threading.Event) -> None:
    """Report progress until the work is done."""
    start = time.monotonic()
    if stop.wait(SLOW):
        return
    if sys.stderr.isatty():
        _progress_bar(what, total, state, stop)
        return
    last = ""
    while True:
        clock = f"{time.monotonic() - start:.0f} s"
        done = f"{state['done']:,} of {total:,}" if total else f"{state['done']:,}, {clock}" if state["done"] else clock
        said = str(state["said"] or done)
        tell(f"{what}: {said}{f', {clock}' * (said == last)}")
        last = said
        if stop.wait(EVERY):
            return


def _progress_bar(what: str, total: int, state: dict[str, Any], stop: threading.Event) -> None:
    """A bar on a terminal (a clock where nobody knows how much there is)."""
    from rich import progress as p
    from rich.console import Console

    counted = (p.BarColumn(), p.MofNCompleteColumn(), p.TimeRemainingColumn()) if total else (p.TimeElapsedColumn(),)
    columns = (p.TextColumn("{task.description}"), *counted, p.TextColumn("{task.fields[said]}"))
    with p.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total or None, said="")
        while not stop.wait(0.2):
            counted_ = f"{state['done']:,}" if state["done"] and not total else ""
            progress.update(task, completed=state["done"], said=state["said"] or counted_)
