"""The only place that reads files from outside: text, TOML, JSON and csv, with limits on size and nesting. Every
problem with a file becomes a one-sentence RooflmError.

Nothing here runs what it reads: no pickle, no YAML tags, no import.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError

MIB = 2**20
LARGEST = {"toml": 16 * MIB, "json": 512 * MIB, "csv": 1024 * MIB}
"""Most bytes of a file, by its format: a description is small, a trace may be long."""
DEEPEST = 64
"""Most tables and lists within each other."""
MOST = 30_000_000
"""Most tables and lists in all."""
WIDEST = 10**6
"""Most characters of one cell of a csv file."""

UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
"""How a file of PowerShell's `>` or a spreadsheet's "Unicode text" begins."""

SEPARATORS = ",;\t"
_DECIMAL_COMMA = re.compile(r"([+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)),(\d+)( ?[^\d\s,]*)")

Source = str | os.PathLike[str]


def checked_path(path: Source, what: str) -> Path:
    """A path with `~` expanded; RooflmError for one that no file can have.

    >>> checked_path("a\\0b", "trace")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: trace is 'a\\x00b', but no file can have that name
    """
    try:
        found = Path(path).expanduser()
        if "\0" in os.fspath(path):
            raise ValueError
        found.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise RooflmError(
            f"{what} is {_short(path)}, but {os_reason(error) or 'no file can have that name'}"
        ) from error
    return found


def os_reason(error: Exception) -> str:
    """The operating system's reason for an error, in lower case; "" if it gave none.

    >>> os_reason(FileNotFoundError(2, "No such file or directory"))
    'no such file or directory'
    """
    said = str(getattr(error, "strerror", None) or "")
    return said[:1].lower() + said[1:]


def _short(path: Source) -> str:
    """A path as a message shows it."""
    said = os.fspath(path)
    return repr(said if len(said) <= 200 else f"{said[:200]}...")


def text(path: Source, what: str, kind: str = "json", errors: str = "strict") -> str:
    """The text of a file. what: what messages call it; kind: its format, for the limit on its size; errors: "replace"
    to read past bytes that are no UTF-8.

    Raises RooflmError where it cannot be read, is larger than such a file may be, or is no text in UTF-8 or UTF-16.
    """
    most = LARGEST[kind]
    try:
        with checked_path(path, what).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise RooflmError(f"cannot read {what} {_short(path)}: {os_reason(error) or error}") from error
    if len(data) > most:
        raise RooflmError(f"{what} {_short(path)} is larger than the {most // MIB} MiB that such a file may have")
    try:
        return data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", errors)
    except UnicodeDecodeError as error:
        at = f"byte {error.start}"
        raise RooflmError(f"cannot read {what} {_short(path)}: it is not a file of UTF-8 text ({at})") from error


def toml(content: str, label: Source) -> dict[str, Any]:
    """The tables of TOML text; RooflmError where it is none, or nested too deep."""
    try:
        found = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError, too long a number, too deep a nesting
        raise RooflmError(f"{label} is not valid TOML: {_one_line(error)}") from error
    return dict(refuse_nested(found, str(label)))


def read_toml(path: Source, what: str) -> dict[str, Any]:
    """The tables of a TOML file, read each time and parsed where it has changed: a prediction asks for its device, its
    engine and their parts again and again. Do not change what is in them."""
    return dict(_parsed(text(path, what, "toml"), os.fspath(path)))


_parsed = lru_cache(maxsize=8)(toml)


def from_json(content: str, label: Source) -> Any:
    """What JSON text holds; RooflmError where it is none, or nested too deep."""
    try:
        found = json.loads(content)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}: {error.msg}"
        raise RooflmError(f"{label} is not valid JSON: {where}") from error
    except (ValueError, RecursionError) as error:
        raise RooflmError(f"{label} is not valid JSON: {_one_line(error)}") from error
    return refuse_nested(found, str(label))


def read_json(path: Source, what: str) -> Any:
    """What a JSON file holds."""
    return from_json(text(path, what), path)


def cells_of(content: str) -> list[list[str]]:
    """The lines of a table, separated as its header is: by commas, semicolons or tabs, or by bars as on a page in
    Markdown. Beside semicolons a comma within a number is a decimal one. A line "sep=;" is Excel's own.

    >>> cells_of("gpu;tpot_ms\\nh100;1.008,25 ms"), cells_of("gpu,tpot_ms\\nh100,8.25")
    ([['gpu', 'tpot_ms'], ['h100', '1008.25 ms']], [['gpu', 'tpot_ms'], ['h100', '8.25']])
    >>> cells_of("| gpu | tpot_ms |\\n|---|---|\\n| h100 | 8.25 |\\n")
    [['gpu', 'tpot_ms'], ['h100', '8.25']]
    """
    content = content.lstrip("\ufeff")
    if content[:4].lower() == "sep=":
        content = content.partition("\n")[2]
    if content.lstrip().startswith("|"):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in content.split("\n")]
        return [line for line in lines if any(cell.strip(":- ") for cell in line)]
    header = content.partition("\n")[0]
    mark = max(SEPARATORS, key=header.count)
    lines = list(csv.reader(io.StringIO(content, newline=""), delimiter=mark))
    if mark != ";":
        return lines
    return [[_decimal(cell) for cell in line] for line in lines]


def _decimal(cell: str) -> str:
    """A number with a decimal comma, and points between its thousands, as one with a decimal point; else as it is."""
    found = _DECIMAL_COMMA.fullmatch(cell.strip())
    return f"{found[1].replace('.', '')}.{found[2]}{found[3]}" if found else cell


def csv_rows(content: str, label: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, column -> cell) of every row of csv text; cells beyond the header are left out.

    >>> list(csv_rows("a,b\\n1,2,3\\n", "x.csv"))
    [(2, {'a': '1', 'b': '2'})]
    """
    csv.field_size_limit(WIDEST)
    reader = csv.reader(io.StringIO(content.replace("\0", ""), newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        for line in reader:
            if any(cell.strip() for cell in line):
                yield reader.line_num, dict(zip(header, line, strict=False))
    except csv.Error as error:
        raise RooflmError(f"{label}, line {reader.line_num}: not a row of comma-separated values: {error}") from error


def refuse_nested(found: Any, label: str) -> Any:
    """The parsed value; RooflmError if it is nested too deeply or holds numbers that a float cannot."""
    level, seen = [found], 0
    for _ in range(DEEPEST):
        seen += len(level)
        if seen > MOST:  # a YAML file of few lines may stand for billions of lists
            raise RooflmError(f"{label}: more than {MOST:,} tables and lists")
        below: list[Any] = []
        for node in level:
            inside = node.values() if isinstance(node, dict) else node
            for value in inside if isinstance(inside, list) or isinstance(node, dict) else ():
                if isinstance(value, dict | list):
                    below.append(value)
                elif isinstance(value, int) and abs(value) > 2**1000:
                    raise RooflmError(
                        f"{label}: a number of {len(bin(value)) - 2} bits is more than one can reckon with"
                    )
        if not below:
            return found
        level = below
    raise RooflmError(f"{label}: tables and lists are nested more than {DEEPEST} deep")


def _one_line(error: Exception) -> str:
    """A parser's error message on one line."""
    return "it is nested too deep" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
