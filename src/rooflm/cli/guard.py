"""What becomes of a command that does not end well: one sentence on standard error and an exit status.

0 an answer (also where who reads it has gone: `rooflm ... | head -1`); 1 an answer that could not be written; 2 bad
input, or too little memory; 128 + a signal that ended it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from rooflm.cli.synonyms import ours
from rooflm.errors import RooflmError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def guarded(work: Callable[[], Any]) -> int:
    """The exit status of a command. Whatever is no bad input, no want of memory and no fault of a file or terminal is a
    fault of ours, and comes with its traceback."""
    try:
        ended = work()
        sys.stdout.flush()
    except RooflmError as error:
        return _said(str(error))
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _said("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _deaf()
        return 0
    except SystemExit as stop:
        if not isinstance(stop.__context__, BrokenPipeError):  # a shell that completes
            return int(stop.code or 0)
        _deaf()  # typer has made this of a closed pipe
        return 0
    except MemoryError as error:
        return _said(f"not enough memory{': ' * bool(str(error))}{error}; ask for less at once")
    except OSError as error:
        _deaf()
        what = error.filename or "the answer"
        return _said(f"cannot read or write {what}: {error.strerror or error}", 2 if error.filename else 1)
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        told, names = ours(error) or " ".join(usage().split()), choices(error)
        return _said(told.removesuffix(".") + names if names else told)
    if ended == INTERRUPTED:  # typer gives back the status of what was interrupted
        return _said("interrupted", INTERRUPTED)
    return ended if isinstance(ended, int) else 0


MOST_NAMED = 16
"""How many names a sentence holds."""


def choices(error: Exception) -> str:
    """What a missing argument or an unknown command could be, as the end of its message; "" of any other error.

    >>> choices(ValueError("no"))
    ''
    """
    argument, context = getattr(error, "param", None), getattr(error, "ctx", None)
    message = getattr(error, "format_message", str)()
    meaning = ""
    names: list[str] = []
    if argument is not None and context is not None and "Missing" in message:
        names = [found.value for found in argument.shell_complete(context, "")]
        meaning = (getattr(argument, "help", None) or "").removesuffix(".")
    elif "No such command" in message and "Did you mean" not in message:
        names = list(getattr(context.command, "commands", ())) if context is not None else []
    if len(names) > MOST_NAMED:
        some = ", ".join(names[i * len(names) // 4] for i in (1, 2, 3))
        meaning = f"{meaning}; {len(names)} names are known, such as {some}".removeprefix("; ")
    elif names:
        meaning = f"it must be one of {', '.join(names)}"
    return f": {meaning[:1].lower()}{meaning[1:]}" if meaning else ""


def _said(message: str, status: int = 2) -> int:
    print(f"rooflm: {message}", file=sys.stderr)
    return status


def _deaf() -> None:
    """Send what is still to be printed nowhere, so that Python does not fail once more when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


def ended_by(number: int, _: Any) -> None:
    """A signal that asks to end: as an exit, so that workers are ended and temporary files removed on the way out."""
    raise SystemExit(128 + number)


def heed() -> None:
    """End in order when asked to (SIGTERM, a closed terminal)."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, ended_by)
