"""Runs a command line in this process and judges what came of it: an answer, or one sentence; never anything else."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rooflm.cli.app import main

LIMIT = 30
"""s that a command may be silent."""
STRAY = re.compile(r"(?<![\w./-])[-+]?(nan|inf)(?![\w-])", re.IGNORECASE)
PROGRESS = re.compile(r"^rooflm: [\w ]+: .*\d (s|of [\d,]+|points|requests|rows)\b|(is|are) not read")
"""A line that tells how far a command is, or a column that it leaves out."""
SIGNED = ("power", "margin", "growth", "bias", "sensitivity", "priority", "verdicts.")
"""Parts of names of outputs that may be below zero."""


class Silent(BaseException):
    """Nothing was said within the limit."""


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """Warnings are told as on a command line, never raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


class Ran(NamedTuple):
    """What came of a command line. fault: what is wrong with it ("": nothing)."""

    status: int
    seconds: float
    fault: str


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Silent in this thread after so long (of the processor's time: other work on the machine does not count)."""

    def stop(*_: Any) -> None:
        raise Silent

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of an answer; what is a list stays one where it holds numbers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from leaves(inner, name)
    else:
        yield name, value


def negative(answer: dict[str, Any]) -> str:
    """The first output below zero that cannot be, at a point without a reason."""
    reason = np.array(answer.get("reason", ""), dtype=object)
    for name, value in leaves(answer):
        numbers = np.array(value)
        if name.startswith("axes") or numbers.dtype.kind not in "if" or any(s in name for s in SIGNED):
            continue
        bad = numbers < 0
        if reason.ndim and bad.shape == reason.shape:
            bad &= reason == ""
        if np.any(bad):
            return f"{name} is {numbers[bad].flat[0]}"
    return ""


def wrong_answer(text: str, as_json: bool) -> str:
    """What no answer may hold."""
    if not as_json:
        found = STRAY.search("\n".join(line for line in text.splitlines() if "=" not in line and "cluster" not in line))
        return f"shows {found[0]!r}" if found else ""
    try:
        answer = json.loads(text, parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError) as error:
        return f"no JSON: {error!r}"
    if not isinstance(answer, dict):
        return "no JSON object"
    embeds = answer.get("decode_parts_s") == {}  # a model that embeds texts has no time per output token
    told = ("ttft_s", "step_time_s", *([] if embeds else ["tpot_s"]))
    empty = [k for k in told if k in answer and answer[k] is None]
    if empty and not answer.get("reason") and answer.get("fits", False):
        return f"{empty[0]} is not there, without a reason"
    return negative(answer)


def judged(line: Sequence[str], limit: float = LIMIT, files: Mapping[str, bytes] | None = None) -> Ran:
    """Run a command line and judge it. files: name -> content of those that its words name by `@name`."""
    if files:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            given = b" ".join(files.values()).decode("utf-8", "replace")
            ran = judged([word.replace("@", f"{folder}/") for word in line], limit)
            echoed = re.fullmatch(r"shows '(.*)'", ran.fault)  # a name that the file has
            return ran._replace(fault="") if echoed and f'"{echoed[1]}"' in given else ran
    arguments = list(line)
    out, err = io.StringIO(), io.StringIO()
    start, status, fault = time.perf_counter(), -1, ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), told_once(), limited(limit):
            status = main(arguments)
    except Silent:
        fault = "" if "rooflm:" in err.getvalue() else f"silent for {limit:g} s"
    except BaseException:
        fault = traceback.format_exc(limit=-3)
    seconds = time.perf_counter() - start
    said = [line for line in err.getvalue().splitlines() if line and not line.startswith("rooflm: warning:")]
    if fault or status == -1:
        return Ran(status, seconds, fault)
    if status == 0 or (status == 1 and line[0] == "search"):  # 1: nothing is legal, which is an answer
        return Ran(status, seconds, wrong_answer(out.getvalue(), "--json" in arguments))
    if status != 2 or out.getvalue():
        return Ran(status, seconds, f"status {status} with {len(out.getvalue())} characters on standard output")
    plain = bool(said) and all(line.startswith("rooflm: ") and len(line) < 2000 for line in said)
    told = [line for line in said if not PROGRESS.search(line)]
    return Ran(status, seconds, "" if plain and len(told) == 1 else f"a refusal of {len(said)} lines: {said[:3]}")
