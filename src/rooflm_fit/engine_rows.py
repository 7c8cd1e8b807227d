"""Fitted constants put into the rows of data/engines/*.toml, in place: what is not fitted stays."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from rooflm.catalogue.fields import words_in
from rooflm.readers.engines import ABOUT, load_engine
from rooflm.readers.rows import raw_row, row_files, rows_of
from rooflm.sweep.files import write_text

TIMES = tuple(name for name, about in ABOUT.items() if about.unit == "s")
"""Fields that are written as text with a unit."""


def written(name: str, value: float) -> str:
    """A value as a row holds it.

    >>> written("step", 0.0123), written("gap", -8.794e-7), written("prompt", 1.19)
    ('"12300 us"', '"-0.8794 us"', '1.19')
    """
    return f'"{float(f"{value * 1e6:.4g}"):.10g} us"' if name in TIMES else f"{value:.4g}"


def section_of(lines: Sequence[str], section: str) -> tuple[int, int] | None:
    """Where the lines of a section begin and end; None where there is none."""
    start = next((i for i, line in enumerate(lines) if line in (f"[{section}]", f'["{section}"]')), None)
    if start is None:
        return None
    return start + 1, next((i for i in range(start + 1, len(lines)) if lines[i].startswith("[")), len(lines))


STATED = re.compile(r"(\w+) = [^#\"]*(?:\"[^\"]*\")?\s*#")
"""A line that says behind its value why it is that: stated, not fitted."""
WITHOUT = re.compile(r'without = "([^"]*)"')
"""The line of the constants that a row has as by default, which is a statement, too."""


def stated(text: str, section: str) -> frozenset[str]:
    """Fields of a section that a fit leaves as they are, since a comment behind the value says where it is from, or the
    row is without them.

    >>> sorted(stated('[a]\\nwithout = "eager, skew"\\nx = 1  # by hand\\ngap = "2 us"  # measured\\ny = 3\\n', "a"))
    ['eager', 'gap', 'skew', 'x']
    """
    lines = text.split("\n")
    found = section_of(lines, section)
    body = lines[slice(*found)] if found else []
    absent = (m[1].split(", ") for m in map(WITHOUT.match, body) if m)
    return frozenset(m[1] for m in map(STATED.match, body) if m).union(*absent) - {"without"}


def held(engine: str) -> frozenset[str]:
    """Fields that an engine's row states, itself or by being without them or like another.

    >>> sorted(held("mlx") & {"step", "moe_vectors"}), sorted(held("ollama-metal") & {"sm_stream", "kv_reread"})
    (['moe_vectors', 'step'], ['kv_reread', 'sm_stream'])
    """
    row, _ = raw_row("engine", engine)
    like = (held(other) for other in words_in(row.get("like", "")))
    own = stated(file_of(engine).read_text(encoding="utf-8"), engine)
    return frozenset().union(own, words_in(row.get("without", "")), *like)


def updated(text: str, section: str, values: Mapping[str, float]) -> str:
    """A TOML text with `values` set in a section, each on its own line (times as text with a unit), but those stated.

    >>> updated('[a]\\nx = 1\\ny = 5  # by hand\\n\\n[b]\\nx = 2\\n', "a", {"x": 3.0, "y": 4.0, "gap": 2e-6})
    '[a]\\nx = 3\\ny = 5  # by hand\\ngap = "2 us"\\n\\n[b]\\nx = 2\\n'
    """
    lines = text.split("\n")
    place_of = section_of(lines, section)
    if place_of is None:
        return text
    begin, end = place_of
    body = lines[begin:end]
    kept = stated(text, section)
    for key, value in values.items():
        if key in kept:
            continue
        place = next((i for i, line in enumerate(body) if line.startswith(f"{key} = ")), None)
        if place is None:
            last = max((i for i, line in enumerate(body) if line.strip()), default=-1)
            body.insert(last + 1, f"{key} = {written(key, value)}")
        else:
            body[place] = f"{key} = {written(key, value)}"
    return "\n".join([*lines[:begin], *body, *lines[end:]])


def retabled(text: str, section: str, tables: Mapping[str, Mapping[str, float]]) -> str:
    """A TOML text with the tables of a section ("fitted", 'cards."h100-sxm-80gb"') of the same first names replaced.

    >>> retabled('[a]\\nx = 1\\n[a.cards."c"]\\nspeed = 2\\n\\n[b]\\n', "a", {'cards."d"': {"speed": 3.0}})
    '[a]\\nx = 1\\n[a.cards."d"]\\nspeed = 3\\n\\n[b]\\n'
    """
    kinds = tuple(f"[{section}.{name.partition('.')[0]}" for name in tables)
    blocks = re.split(r"(?m)^(?=\[)", text)
    kept = [block for block in blocks if not block.startswith(kinds)]
    last = max(i for i, block in enumerate(kept) if block.startswith((f"[{section}]", f"[{section}.")))
    new = "".join(
        f"[{section}.{name}]\n" + "".join(f"{k} = {v:.4g}\n" for k, v in own.items()) for name, own in tables.items()
    )
    kept[last] = f"{kept[last].rstrip()}\n{new}"
    return "".join([*kept[: last + 1], "\n" if last + 1 < len(kept) else "", *kept[last + 1 :]])


def file_of(engine: str) -> Path:
    """The file of the package that holds an engine's row.

    >>> file_of("vllm").name, file_of("tinychat").parent.name
    ('inference.toml', 'published')
    """
    return next(path for path in row_files("engine") for row in rows_of(path) if row.name == engine)


def base_of(engine: str) -> str:
    """The row that an engine's row builds on; "" where it stands by itself.

    >>> base_of("nemo"), base_of("megatron")
    ('megatron', '')
    """
    return str(raw_row("engine", engine)[0].get("base", ""))


def bases_of(engine: str) -> list[str]:
    """The rows that an engine's row takes from, the nearest first: those it is like, and what it builds on.

    >>> bases_of("ollama-metal")
    ['llama.cpp-metal', 'ollama', 'llama.cpp', 'llama.cpp-2024-05']
    """
    base, like = base_of(engine), words_in(raw_row("engine", engine)[0].get("like", ""))
    return [*reversed(like), *([base, *bases_of(base)] if base else [])]


def unmoved(engine: str) -> frozenset[str]:
    """Fields that the engine's row states, or one on the way to that of the engine whose runs it shares, or that one:
    what several engines are fitted to have in common does not reach it there.

    >>> "kv_reread" in held("ollama-2025-12-metal"), "kv_reread" in unmoved("ollama-2025-12-metal")
    (False, True)
    """
    row = load_engine(engine)
    above = [row.name, *bases_of(row.name)]
    whose = above[: above.index(row.runs) + 1] if row.runs in above else [row.name, row.runs]
    return frozenset().union(*map(held, whose))


def write(path: Path, text: str) -> None:
    """Put a text of rows into its file once it is valid TOML."""
    tomllib.loads(text)
    write_text(path, text)
