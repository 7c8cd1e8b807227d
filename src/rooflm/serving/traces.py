"""Traces of requests from files: CSV and JSONL of several services and benchmark tools, told apart by their columns."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.serving.workload import Requests

TIME = ("timestamp", "arrival", "arrival_time", "arrived_at", "start_time", "time", "request_start")
PROMPT = ("contexttokens", "input_length", "prompt_len", "prompt_tokens", "input_tokens", "num_prefill_tokens",
          "input_len", "prompt_tokens_count")  # fmt: skip
OUTPUT = ("generatedtokens", "output_length", "output_len", "output_tokens", "completion_tokens", "num_decode_tokens",
          "output", "expected_output_len", "output_tokens_count")  # fmt: skip
"""Column names by meaning (lower case): Azure, Mooncake, Vidur, vLLM's and guidellm's benchmark files."""


def read_trace(path: str, limit: int | None = None) -> Requests:
    """Requests of a .csv, .jsonl or .json file, sorted by time, the first at 0.

    Known: Azure (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake (timestamp in ms, input_length, output_length,
    hash_ids of 512 tokens), Vidur, data sets and results of vLLM's benchmark (prompt_len, output_len; start_times,
    input_lens, output_lens) and guidellm's (prompt_tokens, output_tokens). Without times, all arrive at once. Raises
    RooflmError: what is missing or wrong, and where.
    """
    where = Path(path).expanduser()
    suffix = where.suffix.lower()
    if suffix not in (".csv", ".jsonl", ".json"):
        raise RooflmError(f"trace is {path!r}, but it must end in .csv, .jsonl or .json")
    try:
        with where.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_limited(_records(file, suffix, path), limit))
    except OSError as error:
        raise RooflmError(f"trace {path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RooflmError(f"trace {path!r} is no text file") from None
    if not rows:
        raise RooflmError(f"trace {path!r} has no requests")
    return requests_of(rows, path)


def _limited(rows: Iterator[tuple[int, dict[str, Any]]], limit: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    for count, row in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield row


def _records(file: Iterable[str], suffix: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, fields by lower-case name) of every request."""
    if suffix == ".csv":
        for number, row in enumerate(csv.DictReader(file), 2):
            yield number, {str(k).strip().lower(): v for k, v in row.items() if k is not None}
        return
    if suffix == ".json":
        try:
            whole = json.loads("".join(file))
        except json.JSONDecodeError as error:
            raise RooflmError(f"trace {path!r}, line {error.lineno}: no valid JSON ({error.msg})") from None
        for number, row in enumerate(_listed(whole, path), 1):
            yield number, {str(k).lower(): v for k, v in row.items()}
        return
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise RooflmError(f"trace {path!r}, line {number}: no valid JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise RooflmError(f"trace {path!r}, line {number}: a request must be an object with named fields")
        yield number, {str(k).lower(): v for k, v in row.items()}


def _listed(whole: Any, path: str) -> list[dict[str, Any]]:
    """The requests of a JSON document: a list of objects, guidellm's report, or vLLM's result with parallel lists."""
    if isinstance(whole, dict) and "input_lens" in whole and "output_lens" in whole:
        times = whole.get("start_times") or [0.0] * len(whole["input_lens"])
        each = zip(times, whole["input_lens"], whole["output_lens"], strict=False)
        return [{"start_time": t, "prompt_len": p, "output_len": o} for t, p, o in each]
    if isinstance(whole, dict) and isinstance(whole.get("benchmarks"), list) and whole["benchmarks"]:
        found = whole["benchmarks"][0].get("requests", [])
        whole = found.get("successful", []) if isinstance(found, dict) else found
    if not isinstance(whole, list) or not all(isinstance(r, dict) for r in whole):
        raise RooflmError(f"trace {path!r} must be a list of requests, a guidellm report or a vLLM benchmark result")
    return whole


def _column(fields: dict[str, Any], names: tuple[str, ...], what: str, path: str) -> str:
    """The name under which a file has a column; RooflmError when it has none of them."""
    for name in names:
        if name in fields:
            return name
    raise RooflmError(f"trace {path!r} has no column for the {what}: it needs one of {', '.join(names[:5])}")


def requests_of(rows: list[tuple[int, dict[str, Any]]], path: str) -> Requests:
    """Rows as Requests, checked: whole numbers of at least 1 token, times not below 0."""
    fields = rows[0][1]
    p, o = _column(fields, PROMPT, "prompt tokens", path), _column(fields, OUTPUT, "output tokens", path)
    t = next((name for name in TIME if name in fields), None)
    scale = 1e-3 if "hash_ids" in fields or t == "timestamp_ms" else 1.0
    prompt = np.array([_tokens(row.get(p), p, line, path) for line, row in rows], dtype=np.int64)
    output = np.array([_tokens(row.get(o), o, line, path, least=0) for line, row in rows], dtype=np.int64)
    output = np.maximum(output, 1)
    arrival = np.zeros(len(rows)) if t is None else np.array([_time(row.get(t), t, n, path) for n, row in rows]) * scale
    order = np.argsort(arrival, kind="stable")
    arrival = arrival[order] - arrival[order[0]]
    hashes = None
    if "hash_ids" in fields:
        hashes = [[int(h) for h in rows[i][1].get("hash_ids") or []] for i in order]
    priority = None
    if "priority" in fields:
        priority = np.array([float(rows[i][1].get("priority") or 0) for i in order])
    return Requests(prompt[order], output[order], arrival, hashes=hashes, priority=priority, name=Path(path).name)


def _tokens(value: Any, column: str, line: int, path: str, least: int = 1) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number == int(number) and number >= least):
        raise RooflmError(
            f"trace {path!r}, line {line}: {column} is {value!r}, but it must be a whole number of at least {least}"
        )
    return int(number)


def _time(value: Any, column: str, line: int, path: str) -> float:
    """Seconds of a time: a number (not below 0) or a date and time."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value).strip()[:26]).timestamp()
        except ValueError:
            raise RooflmError(
                f"trace {path!r}, line {line}: {column} is {value!r}, but it must be seconds or a date and time"
            ) from None
    if not math.isfinite(number) or number < 0:
        raise RooflmError(f"trace {path!r}, line {line}: {column} is {value!r}, but a time must not be below 0")
    return number
