"""Find the engine row for a release, by the range of releases that each row covers (`version`)."""

from __future__ import annotations

import re
from functools import lru_cache

from rooflm.readers.rows import aliases, is_path, normalise, raw_row

_NUMBERS = re.compile(r"(?:^|[\s_-])[vb]?(\d{1,5}(?:\.\d+)*)(?!\d|[0-9a-f]{5})")


def numbers(release: str) -> tuple[int, ...]:
    """The numeric parts of a release or of one end of a range; dates and hashes of nightly builds are ignored.

    >>> numbers("1.2.0rc6.post1"), numbers("v0.10.1"), numbers("Megatron-Core 0.12"), numbers("b4000")
    ((1, 2, 0), (0, 10, 1), (0, 12), (4000,))
    >>> numbers("nightly-dev-20260216-d3bae71e"), numbers("nightly-5b8c30d62b754b57")
    ((), ())
    """
    found = _NUMBERS.search(release)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def inherited_field(row: str, field: str) -> str:
    """A field of a row (`version`, `date`), or of the row that it builds on; "" if neither has it."""
    own, _ = raw_row("engine", row)
    return str(own[field]) if field in own else inherited_field(own["base"], field) if "base" in own else ""


@lru_cache
def span(row: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last release of a row, () and () where it says none.

    >>> span("vllm-0.8"), span("ideal")
    (((0, 8), (0, 10, 1)), ((), ()))
    """
    first, _, last = inherited_field(row, "version").partition(" to ")
    return numbers(first), numbers(last or first)


@lru_cache
def rows_of_releases(plain: str) -> tuple[str, ...]:
    """The rows of an engine, or of its build for a software such as ROCm, and of its releases; the newest first.

    >>> rows_of_releases("ollama"), "llama.cpp-metal" in rows_of_releases("llama.cpp")
    (('ollama', 'ollama-2025-12', 'ollama-2025-08', 'ollama-2025-07'), False)
    >>> rows_of_releases("sglang-rocm")[:2]
    ('sglang-0.5.14-rocm', 'sglang-0.5.10-rocm')
    """
    base, _, software = map(re.escape, plain.rpartition("-"))
    own = re.compile(rf"{re.escape(plain)}(-[\d.-]+)?|{base}-[\d.-]+-{software}")
    rows = sorted(row for row in set(aliases("engine").values()) if own.fullmatch(row))
    return tuple(sorted(rows, key=lambda row: inherited_field(row, "date"), reverse=True))


def in_range(row: str, asked: tuple[int, ...]) -> bool:
    """Whether a row's range includes a release. An end that is not stated is open.

    >>> in_range("vllm-0.11.1", (0, 13, 2)), in_range("vllm-0.11.1", (0, 14))
    (True, False)
    """
    low, high = span(row)
    return bool(asked and low) and low[: len(asked)] <= asked and asked[: len(high)] <= high


def row_of_release(plain: str, release: str) -> str | None:
    """Of an engine's rows, the newest whose range holds a release, or None.

    >>> row_of_release("vllm", "0.10.1"), row_of_release("llama.cpp", "b5000"), row_of_release("vllm", "9.0")
    ('vllm-0.8', 'llama.cpp-2024-10', None)
    """
    asked = numbers(release)
    return next((row for row in rows_of_releases(plain) if in_range(row, asked)), None)


def split_release(name: str) -> tuple[str, str]:
    """Split "NAME-RELEASE" (also "NAME@RELEASE", "NAME==RELEASE", "NAME:RELEASE") into engine and release, by the
    longest known name or alias; ("", "") if there is none.

    >>> split_release("trt-llm 1.0"), split_release("llama.cpp-rocm-b7000")
    (('trtllm', '1.0'), ('llama.cpp-rocm', 'b7000'))
    >>> split_release("vllm==0.10.1"), split_release("vllm-nightly")
    (('vllm', '0.10.1'), ('', ''))
    """
    pieces = re.sub("@|==|:", "-", normalise(name), count=1).split("-")
    for size in range(len(pieces) - 1, 0, -1):
        plain, release = aliases("engine").get("-".join(pieces[:size])), "-".join(pieces[size:])
        if plain:
            return (plain, release) if re.fullmatch(r"[vb]?\d[\w.+-]*", release) else ("", "")
    return "", ""


def row_named(name: str) -> str | None:
    """The row for the release in "NAME-RELEASE": the one whose range includes it, else the nearest; None where no
    engine is named with a release.

    >>> row_named("vllm-0.8.5"), row_named("llama.cpp-rocm-b7000"), row_named("vllm-9.0"), row_named("vllm-nightly")
    ('vllm-0.8', 'llama.cpp-rocm-2025-10', 'vllm-0.28', None)
    """
    plain, release = split_release(name)
    return row_of_release(plain, release) or next(iter(by_range(plain, release)), plain) if plain else None


def out_of_range(name: str, row: str) -> str:
    """A sentence where a row runs whose range does not hold the release in "NAME-RELEASE": that its constants stand in;
    else "".

    >>> out_of_range("vllm==0.99", "vllm-0.28"), out_of_range("vllm-0.8.5", "vllm-0.8")
    ('vllm==0.99 is in the range of no row: vllm-0.28 stands in, of releases 0.28 to 0.33', '')
    """
    plain, release = ("", "") if is_path(name) or aliases("engine").get(normalise(name)) else split_release(name)
    if not plain or in_range(row, numbers(release)):
        return ""
    range_ = inherited_field(row, "version")
    return f"{name} is in the range of no row: {row} stands in" + f", of releases {range_}" * bool(range_)


def by_range(plain: str, release: str) -> list[str]:
    """An engine's rows, the nearest to a release first. A row is nearer the later the first number that differs stands,
    then the less it differs; of a row below and one above at the same distance the later one is nearer. For a release
    above all of them the newest is first; empty where no numbers are known.

    >>> by_range("vllm", "0.99")[:2], by_range("megatron", "99")[0], by_range("vllm", "nightly")
    (['vllm-0.28', 'vllm'], 'megatron', [])
    """
    asked = numbers(release)
    rows = [row for row in rows_of_releases(plain) if asked and span(row)[0]]
    if all(asked > span(row)[1] for row in rows):
        return rows

    def distance(row: str) -> tuple[int, int, bool, tuple[int, ...]]:
        low, high = span(row)
        below = asked < low
        end = low if below else high
        at = next((i for i, (a, b) in enumerate(zip(asked, end, strict=False)) if a != b), min(len(asked), len(end)))
        size = abs(asked[at] - end[at]) if at < min(len(asked), len(end)) else 0
        return -at, size, not below, tuple(n if below else -n for n in end)

    return sorted(rows, key=distance)


def nearest_by_range(plain: str, release: str) -> str | None:
    """Of an engine's rows of several releases, the one whose range holds a release or is nearest to it; None without
    numbers.

    >>> nearest_by_range("vllm", "0.4.2"), nearest_by_range("vllm", "1.0"), nearest_by_range("vllm", "nightly")
    ('vllm-2024', 'vllm-0.28', None)
    """
    rows = by_range(plain, release)
    return (row_of_release(plain, release) or rows[0]) if len(rows) > 1 else None
