"""Traces of requests from files: CSV and JSONL of several services and benchmark tools, told apart by their columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.readers import outside
from rooflm.serving.workload import MOST, Requests

TIME = ("timestamp", "arrival", "arrival_s", "arrival_time", "arrived_at", "start_time", "time", "request_start")
PROMPT = ("contexttokens", "input_length", "prompt_len", "prompt_tokens", "input_tokens", "num_prefill_tokens",
          "input_len", "prompt_tokens_count", "prompt")  # fmt: skip
OUTPUT = ("generatedtokens", "output_length", "output_len", "output_tokens", "completion_tokens", "num_decode_tokens",
          "output", "expected_output_len", "output_tokens_count")  # fmt: skip
"""Column names by meaning (lower case): Azure, Mooncake, Vidur, vLLM's and guidellm's benchmark files, our own."""
LONGEST = 2**31
"""No prompt or answer of a trace has so many tokens."""
LATEST = 1e19
"""No time of a trace is so late (nanoseconds since 1970 are smaller)."""
Line = tuple[int, dict[str, Any]]


def read_trace(path: str, limit: int | None = None) -> Requests:
    """Requests of a .csv, .jsonl or .json file, sorted by time, the first at 0.

    Known: Azure (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake (timestamp in ms, input_length, output_length,
    hash_ids of 512 tokens), Vidur, data sets and results of vLLM's benchmark (prompt_len, output_len; start_times,
    input_lens, output_lens) and guidellm's (prompt_tokens, output_tokens). Without times, all arrive at once. Raises
    RooflmError: what is missing or wrong, and where."""
    suffix = Path(path).suffix.lower()
    if suffix not in READ:
        raise RooflmError(f"trace is {path!r}, but it must end in .csv, .jsonl or .json")
    content = outside.text(path, "trace", "csv")
    rows = itertools.islice(READ[suffix](content, f"trace {path!r}"), limit)
    return requests_of(((line, {k.lower(): v for k, v in row.items()}) for line, row in rows), path)


def _jsonl(content: str, label: str) -> Iterator[Line]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        row = outside.from_json(line, f"{label}, line {number}")
        if not isinstance(row, dict):
            raise RooflmError(f"{label}, line {number}: a request must be an object with named fields")
        yield number, row


READ: dict[str, Callable[[str, str], Iterable[Line]]] = {
    ".csv": outside.csv_rows, ".jsonl": _jsonl,
    ".json": lambda content, label: enumerate(_listed(outside.from_json(content, label), label), 1),
}  # fmt: skip
"""Suffix -> the requests of a file, as (line, fields by name)."""


def _listed(whole: Any, label: str) -> list[dict[str, Any]]:
    """The requests of a JSON document: a list of objects, guidellm's report, or vLLM's result with parallel lists."""
    if isinstance(whole, dict) and "input_lens" in whole and "output_lens" in whole:
        prompts, outputs = whole["input_lens"], whole["output_lens"]
        times = whole.get("start_times") or itertools.repeat(0.0)
        if not (isinstance(prompts, list) and isinstance(outputs, list) and isinstance(times, list | itertools.repeat)):
            raise RooflmError(f"{label}: input_lens, output_lens and start_times must be lists")
        each = zip(times, prompts, outputs, strict=False)
        return [{"start_time": t, "prompt_len": p, "output_len": o} for t, p, o in each]
    if isinstance(whole, dict) and isinstance(whole.get("benchmarks"), list) and whole["benchmarks"]:
        first = whole["benchmarks"][0]
        requests = first.get("requests", []) if isinstance(first, dict) else None
        whole = requests.get("successful", []) if isinstance(requests, dict) else requests
    if not isinstance(whole, list) or not all(isinstance(r, dict) for r in whole):
        raise RooflmError(f"{label} must be a list of requests, a guidellm report or a vLLM benchmark result")
    return whole


def _column(fields: dict[str, Any], names: tuple[str, ...], what: str, path: str) -> str:
    """The name under which a file has a column; RooflmError when it has none of them."""
    for name in names:
        if name in fields:
            return name
    raise RooflmError(f"trace {path!r} has no column for the {what}: it needs one of {', '.join(names[:5])}")


def requests_of(rows: Iterable[Line], path: str) -> Requests:
    """Rows as Requests, checked: whole numbers of at least 1 token, times not below 0."""
    each = iter(rows)
    first = next(each, None)
    if first is None:
        raise RooflmError(f"trace {path!r} has no requests")
    fields = first[1]
    p, o = _column(fields, PROMPT, "prompt tokens", path), _column(fields, OUTPUT, "output tokens", path)
    t = next((name for name in TIME if name in fields), None)
    hashed, ranked = "hash_ids" in fields, "priority" in fields
    read: dict[str, list[Any]] = {"prompt": [], "output": [], "arrival": [], "hashes": [], "priority": []}
    for line, row in itertools.chain((first,), each):
        where = f"trace {path!r}, line {line}"
        if len(read["prompt"]) >= MOST:
            raise RooflmError(f"trace {path!r} has more than {MOST:,} requests: read some of it with limit")
        read["prompt"].append(_tokens(row.get(p), p, where))
        read["output"].append(_tokens(row.get(o), o, where, least=0))
        if t is not None:
            read["arrival"].append(_time(row.get(t), t, where))
        if hashed:
            read["hashes"].append(_hashes(row.get("hash_ids"), where))
        if ranked:
            read["priority"].append(_number(row.get("priority") or 0, "priority", where))
    prompt, output = np.array(read["prompt"], dtype=np.int64), np.maximum(np.array(read["output"], dtype=np.int64), 1)
    scale = 1e-3 if hashed else 1.0
    arrival = np.zeros(len(prompt)) if t is None else np.array(read["arrival"]) * scale
    order = np.argsort(arrival, kind="stable")
    arrival = arrival[order] - arrival[order[0]]
    hashes = [read["hashes"][i] for i in order] if hashed else None
    priority = np.array(read["priority"])[order] if ranked else None
    return Requests(prompt[order], output[order], arrival, hashes=hashes, priority=priority, name=Path(path).name)


def real(value: Any) -> float | None:
    """A number of a file: written as one or as text, finite; None for anything else.

    >>> real("1.5"), real(2), real("nan"), real(True), real([1])
    (1.5, 2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _wrong(value: Any, column: str, where: str, rule: str) -> RooflmError:
    """The error of a value that breaks a rule, of which its first 60 characters are shown."""
    said = repr(value)
    return RooflmError(f"{where}: {column} is {said if len(said) <= 60 else f'{said[:60]}...'}, but {rule}")


def _tokens(value: Any, column: str, where: str, least: int = 1) -> int:
    number = real(value)
    if number is None or number != int(number) or not least <= number < LONGEST:
        raise _wrong(value, column, where, f"it must be a whole number of at least {least}, below {LONGEST}")
    return int(number)


def _number(value: Any, column: str, where: str) -> float:
    number = real(value)
    if number is None:
        raise _wrong(value, column, where, "it must be a number")
    return number


def _hashes(value: Any, where: str) -> list[int]:
    """Ids of the blocks of a prompt: a list of whole numbers, in csv as JSON text."""
    if isinstance(value, str):
        value = outside.from_json(value or "[]", f"{where}: hash_ids")
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(h, int) and not isinstance(h, bool) for h in value):
        raise _wrong(value, "hash_ids", where, "it must be a list of whole numbers")
    return value


def _time(value: Any, column: str, where: str) -> float:
    """Seconds of a time: a number (not below 0) or a date and time, which is of UTC where it does not say otherwise."""
    number = real(value)
    if number is None and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip()[:26])
            number = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, OSError):
            number = None
    if number is None:
        raise _wrong(value, column, where, "it must be seconds or a date and time")
    if not 0 <= number <= LATEST:
        raise _wrong(value, column, where, f"a time must be from 0 to {LATEST:g}")
    return number
