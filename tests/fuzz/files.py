"""Files from outside, damaged: valid ones of every kind with a value, a key or some bytes changed, and the command that
reads them."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from fuzz.seeds import BENCHMARKS, CONFIGS, GGUF, RESULTS, ROWS, TRACES, published
from fuzz.texts import RARELY

DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
NASTY = (
    None, True, False, -1, 0, 1, 2, 0.5, 1e30, 1e308, math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, "", " ", "x",
    "1", "nan", "1e400", "1 GiB", "2 TB/s", "-1 W", "<b>x</b>", "../../x", "\x00", "é", [], {}, [[]], {"a": 1},
    [1, "x", None], "a" * 5000, DEEP,
)  # fmt: skip


def places(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside dicts and lists."""
    found = [at] if at else []
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        found += places(value, (*at, key))
    return found


@st.composite
def changed(draw: st.DrawFn, whole: Any) -> Any:
    """A structure with up to two of its values replaced, dropped, wrapped or doubled."""
    out = copy.deepcopy(whole)
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2)))):
        known = places(out)
        if not known:
            break
        *above, last = draw(st.sampled_from(known))
        node = out
        for key in above:
            node = node[key]
        how = draw(st.integers(0, 5))
        if how == 0:
            del node[last]
        elif how == 1:
            node[last] = [node[last]] if draw(st.booleans()) else {"x": node[last]}
        elif how == 2 and isinstance(node, dict):
            key = draw(st.sampled_from(("", "x", "from", "base", "name", "é")))
            node[key] = copy.deepcopy(draw(st.sampled_from(NASTY)))
        elif how == 3 and isinstance(node[last], int | float) and not isinstance(node[last], bool):
            factors = (-1, 0, 0.3, 1e6, 1e18, 1e-18) if abs(node[last]) < 2**1000 else (-1, 0)  # beyond is no float
            node[last] = node[last] * draw(st.sampled_from(factors))
        else:
            node[last] = copy.deepcopy(draw(st.sampled_from(NASTY)))
    return out


@st.composite
def torn(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes, most often as they are: else cut short, with some changed, doubled or put in."""
    if not draw(st.sampled_from(RARELY)):
        return content
    how, place = draw(st.integers(0, 5)), draw(st.integers(0, max(len(content) - 1, 0)))
    more = draw(
        st.sampled_from((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 4000, b"{", b'"', b"\n", b",,", b"9" * 400))
    )
    return (content[:place], content[:place] + more + content[place:], content[:place] + more + content[place + 3 :],
            content + content, b"", more)[how]  # fmt: skip


def toml_value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return '""' if value is None else json.dumps(value, default=str)


def toml(row: Any) -> bytes:
    """A row as a TOML file."""
    rows = row.items() if isinstance(row, dict) else [("x", row)]
    return "".join(f"{json.dumps(str(k))} = {toml_value(v)}\n" for k, v in rows).encode("utf-8", "replace")


def as_json(value: Any) -> bytes:
    """A structure as JSON."""
    return json.dumps(value).encode()


def json_lines(rows: Any) -> bytes:
    """Rows as JSON lines."""
    return "\n".join(map(json.dumps, rows if isinstance(rows, list) else [rows])).encode()


def table(rows: Any) -> bytes:
    """Rows as csv."""
    text = io.StringIO()
    listed = [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    writer = csv.DictWriter(text, list(dict.fromkeys(str(k) for r in listed for k in r)), extrasaction="ignore")
    writer.writeheader()
    writer.writerows({str(k): v for k, v in r.items()} for r in listed)
    return text.getvalue().encode("utf-8", "replace")


class Seed(NamedTuple):
    """A kind of file: the command that reads `@name`, its name, valid structures and how they are written."""

    line: tuple[str, ...]
    name: str
    valid: tuple[Any, ...]
    written: Callable[[Any], bytes]


SMALL = ("--batch", "2", "--prompt", "64", "--output", "4")
LOAD = ("serve", "llama-7b", "--gpu", "h100", "--trace")
SEEDS: Mapping[str, Seed] = {
    "own gpu": Seed(("infer", "llama-7b", "--gpu", "@x.toml", "--json", *SMALL), "x.toml", ROWS["gpu"], toml),
    "own model": Seed(("infer", "@x.toml", "--gpu", "h100", "--json", *SMALL), "x.toml", ROWS["model"], toml),
    "own engine": Seed(("infer", "llama-7b", "--gpu", "h100", "--engine", "@x.toml", "--json", *SMALL), "x.toml",
                       ROWS["engine"], toml),
    "own cluster": Seed(("infer", "llama-7b", "--cluster", "@x.toml", "--tp", "2", "--json", *SMALL), "x.toml",
                        ROWS["cluster"], toml),
    "show": Seed(("show", "gpu", "@x.toml"), "x.toml", ROWS["gpu"], toml),
    **{f"show {kind}": Seed(("show", kind, "@x.toml"), "x.toml", ROWS[kind], toml)
       for kind in ("model", "engine", "cluster")},
    "config.json": Seed(("infer", "@x.json", "--gpu", "h100", "--json", *SMALL), "x.json", CONFIGS, as_json),
    "gguf": Seed(("infer", "@x.gguf", "--gpu", "h100", "--json", *SMALL), "x.gguf", GGUF, bytes),
    "trace.json": Seed((*LOAD, "@x.json", "--json"), "x.json", TRACES, as_json),
    "trace.jsonl": Seed((*LOAD, "@x.jsonl"), "x.jsonl", TRACES[:3], json_lines),
    "trace.csv": Seed((*LOAD, "@x.csv", "--json"), "x.csv", TRACES[:3], table),
    "validate": Seed(("validate", "@x.csv", "--json"), "x.csv", published(), table),
    "results": Seed(("compare", "@x.csv", "--gpu", "a100", "--no-why", "--json"), "x.csv", RESULTS, table),
    "benchmarks": Seed(("compare", "@x.json", "--gpu", "a100", "--model", "llama-7b", "--no-why", "--json"),
                       "x.json", BENCHMARKS, as_json),
}  # fmt: skip


@st.composite
def inputs(draw: st.DrawFn, kind: str) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """A command line and the damaged file that it names."""
    seed = SEEDS[kind]
    whole = draw(st.sampled_from(seed.valid))
    content = seed.written(whole if isinstance(whole, bytes) else draw(changed(whole)))
    return seed.line, {seed.name: draw(torn(content))}


def whole(kind: str) -> list[bytes]:
    """The valid files of a kind."""
    return [SEEDS[kind].written(valid) for valid in SEEDS[kind].valid[: 1 if kind == "gguf" else None]]
