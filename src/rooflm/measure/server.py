"""What a running server tells of itself: which engine it is, its release, options and counters.

Where it is asked, and what each field is, are rows of data/servers/told.toml.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from rooflm.errors import RooflmError
from rooflm.readers.rows import shipped
from rooflm.validation.columns import COLUMNS

PATIENCE = 5.0
"""s that a server has to answer."""
LONGEST = 4 * 2**20
"""Bytes of an answer that are read."""


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a server is asked; columns: path of a field -> column; engine: whose answer it is ("": anyone's)."""

    path: str
    columns: dict[str, str]
    engine: str = ""


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric whose labels are options; columns: label -> column."""

    name: str
    columns: dict[str, str]
    engine: str = ""


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of data/servers/told.toml."""

    endpoint: tuple[Endpoint, ...]
    metric: tuple[Metric, ...]


class Told(NamedTuple):
    """What a server said. columns: of a table of measured runs; name: the model's there; root: where it is from; raw:
    answers by endpoint; counters: numbers of /metrics by name with labels."""

    columns: dict[str, str]
    name: str
    root: str
    raw: dict[str, Any]
    counters: dict[str, float]


@cache
def endpoints() -> Known:
    """Where servers are asked."""
    return shipped("servers/told", Known)


def base_of(url: str) -> str:
    """The address of a server, without the path of its API.

    >>> base_of("http://localhost:8000/v1/"), base_of("localhost:8000")
    ('http://localhost:8000', 'http://localhost:8000')
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError as error:
        raise RooflmError(f"url is {url!r}, but {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise RooflmError(f"url is {url!r}, but it must be an address such as http://localhost:8000/v1")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def http_get(url: str) -> str | None:
    """The body of a response, or None."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
            return str(reply.read(LONGEST).decode("utf-8", "replace"))
    except (OSError, ValueError, urllib.error.URLError):
        return None


def field_at(data: Any, path: str) -> Any:
    """A field by its dotted path, or None.

    >>> field_at({"data": [{"id": "m"}]}, "data.0.id"), field_at({}, "a.b")
    ('m', None)
    """
    for key in path.split("."):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict):
            data = data.get(key)
        else:
            return None
    return data


SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s+(\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each line of a text in the exposition format of Prometheus.

    >>> samples('# HELP x y\\nx{a="1"} 2\\n')
    [('x', {'a': '1'}, 2.0)]
    """
    found = []
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match and not line.startswith("#"):
            try:
                found.append((match[1], dict(LABEL.findall(match[2] or "")), float(match[3])))
            except ValueError:
                continue
    return found


def counters(base: str) -> dict[str, float]:
    """Every finite number of /metrics but histogram buckets, by name with labels."""
    rows = samples(http_get(f"{base}/metrics") or "")
    return {name + ("{" + ",".join(f"{k}={v}" for k, v in labels.items()) + "}" if labels else ""): value
            for name, labels, value in rows if "le" not in labels and abs(value) < 1e300}  # fmt: skip


def cell(column: str, value: Any) -> str | None:
    """What was told as the text of a column; None where it is no value of it (-1, "auto", null)."""
    if isinstance(value, bool):
        return str(value).lower()
    plain = str(value).strip() if isinstance(value, str | int | float) else ""
    kind = COLUMNS[column].kind if column in COLUMNS else "text"
    if kind == "flag":
        return plain.lower() if plain.lower() in ("true", "false") else None
    if kind in ("whole", "number") and not (re.fullmatch(r"\d+(\.\d+)?", plain) and float(plain) > 0):
        return None
    return plain[:200] or None


def ask(url: str) -> Told:
    """Ask a server about itself. RooflmError where nothing answers that lists a model."""
    base = base_of(url)
    raw: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for point in endpoints().endpoint:
        text = http_get(base + point.path)
        try:
            data = json.loads(text) if text else None
        except (ValueError, RecursionError):
            data = None
        if data is not None:
            fill(columns, {c: field_at(data, path) for path, c in point.columns.items()}, point.engine)
            raw[point.path] = data
    text = http_get(f"{base}/metrics") or ""
    for name, labels, _ in samples(text):
        for metric in endpoints().metric:
            if metric.name == name:
                fill(columns, {c: labels.get(label) for label, c in metric.columns.items()}, metric.engine)
    name, root = columns.pop("name", ""), columns.pop("root", "")
    if not name:
        raise RooflmError(f"no server at {base} answers with a list of models: {base}/v1/models")
    return Told(columns, name, root or name, raw, counters(base) if text else {})


def fill(columns: dict[str, str], answers: Mapping[str, Any], engine: str) -> None:
    """Take over what was answered, the first word on each column, and whose answer it is."""
    found = {c: text for c, v in answers.items() if (text := cell(c, v)) is not None}
    wrong = engine and columns.get("engine", engine) != engine
    if found and not wrong:
        columns.update({c: v for c, v in found.items() if c not in columns})
        if engine:
            columns["engine"] = engine
