"""Turn errors into one sentence on standard error and an exit status.

0: answered (also if the reader of a pipe has gone: `rooflm ... | head -1`); 1: standard output could not be written; 2:
bad input, a file that cannot be read or written, or too little memory; 128 + n: ended by signal n.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from rooflm.cli.synonyms import other_tools_option
from rooflm.errors import RooflmError

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def run_guarded(work: Callable[[], Any]) -> int:
    """Run a command and return its exit status. Anything other than bad input, lack of memory or a problem with a file
    or terminal is a bug and keeps its traceback."""
    if sys.stderr is None:  # closed: what is printed there would go to standard output
        sys.stderr = io.StringIO()
    if sys.stdout is None:
        return print_error("cannot write the answer: standard output is closed", 1)
    try:
        ended = work()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as stop:
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):  # a shell that completes
            return int(stop.code or 0)
        silence_stdout()  # typer makes a SystemExit of a closed pipe
        return 0
    except typer.Exit as stop:
        return stop.exit_code
    except (Exception, KeyboardInterrupt) as error:
        told = refusal(error)
        if told is None:
            raise
        return print_error(*told)
    if ended == INTERRUPTED:  # typer gives back the status of what was interrupted
        return print_error("interrupted", INTERRUPTED)
    return ended if isinstance(ended, int) else 0


def refusal(error: BaseException) -> tuple[str, int] | None:
    """What is said of an error, and the exit status; None of a bug.

    >>> refusal(RooflmError("batch is 0")), refusal(ValueError("no"))
    (('batch is 0', 2), None)
    """
    if isinstance(error, RooflmError):
        return str(error), 2
    if isinstance(error.__cause__ or error, typer.Abort | KeyboardInterrupt):  # 3.11 wraps one in the midst of a class
        return "interrupted", INTERRUPTED
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' * bool(str(error))}{error}; ask for less at once", 2
    if isinstance(error, OSError):
        silence_stdout()
        what = error.filename or "the answer"
        return f"cannot read or write {what}: {error.strerror or error}", 2 if error.filename else 1
    usage = getattr(error, "format_message", None)
    if usage is None:
        return None
    told, names = other_tools_option(error) or " ".join(usage().split()), choices(error)
    return told.removesuffix(".") + names if names else told, 2


MOST_NAMED = 16
"""How many names a sentence holds."""


def choices(error: BaseException) -> str:
    """What a missing argument, one too many or an unknown command could be, as the end of its message; "" of any other
    error.

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
    elif "unexpected extra argument" in message and context is not None:
        meaning = f"{context.info_name} takes {takes(context.command)}"
    elif "No such command" in message and "Did you mean" not in message:
        names = list(getattr(context.command, "commands", ())) if context is not None else []
    told = of_names(meaning, names)
    return f": {told[:1].lower()}{told[1:]}" if told else ""


def of_names(meaning: str, names: Sequence[str]) -> str:
    """What something means and the names that it may have, or some of them.

    >>> of_names("kind", ["a", "b"])
    'it must be one of a, b'
    """
    if len(names) > MOST_NAMED:
        some = ", ".join(names[i * len(names) // 4] for i in (1, 2, 3))
        return f"{meaning}; {len(names)} names are known, such as {some}".removeprefix("; ")
    return f"it must be one of {', '.join(names)}" if names else meaning


def takes(command: Any) -> str:
    """What a command takes without dashes, and how the rest is given."""
    alone = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
    options = {name for p in command.params for name in p.opts}
    lists = " (--gpu h100), a list with commas and no spaces" * ("--gpu" in options)
    return f"{' and '.join(alone) or 'none'}; all else is given by options{lists}"


def print_error(message: str, status: int = 2) -> int:
    print(f"rooflm: {message}", file=sys.stderr)
    return status


def silence_stdout() -> None:
    """Discard what is still to be printed, so that Python does not fail again on exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


def exit_on_signal(number: int, _: Any) -> None:
    """Exit on a signal in the normal way, so that workers are ended and temporary files removed."""
    raise SystemExit(128 + number)


def install_signal_handlers() -> None:
    """Exit in order on SIGTERM and SIGHUP."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, exit_on_signal)
