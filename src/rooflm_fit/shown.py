"""Commands shown on pages with their output: each ```console block that begins with `$ rooflm` holds that of today."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rooflm.sweep.files import write_text

ROOT = Path(__file__).resolve().parents[2]
WALL = re.compile(r"\bin \d[\d.]* m?s(?=;)")
"""Seconds that a search took, which no two runs share."""
BLOCK = re.compile(r"```console\n\$ (?P<command>(?:[^\n]*\\\n)*[^\n]+)\n(?P<body>.*?)```", re.DOTALL)


class Shown(NamedTuple):
    """A command on a page with the output that the page shows."""

    page: Path
    command: str
    body: str


def pages(root: Path = ROOT) -> list[Path]:
    """README.md and every page of docs/ that users read."""
    return [root / "README.md", *sorted(p for p in (root / "docs").rglob("*.md") if "decisions" not in p.parts)]


def shown(page: Path) -> Iterator[Shown]:
    """The commands of a page, in order."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Shown(page, found["command"], found["body"])


@lru_cache
def output(command: str) -> str:
    """What a `rooflm ...` command prints on a terminal of 80 columns, run in this process.

    Raises ValueError where the command is another's or ends with a status that its page does not expect: 0, or 1 for
    a search that found nothing.
    """
    from rooflm.cli.app import main

    words = shlex.split(command.replace("\\\n", " "))
    if words[0] != "rooflm":
        raise ValueError(f"only rooflm's commands may be shown, not {command!r}")
    out, err = io.StringIO(), io.StringIO()
    quiet = mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"})
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), quiet:
        status = main(words[1:])
    if status not in (0, 1):
        raise ValueError(f"{command}: {err.getvalue().strip()}")
    return out.getvalue().rstrip("\n") + "\n"


def same(one: str, other: str) -> bool:
    """Whether two outputs differ in nothing but how long a search took."""
    return WALL.sub("", one) == WALL.sub("", other)


def refreshed(text: str) -> str:
    """A page's text with the output of today in every block."""

    def block(found: re.Match[str]) -> str:
        fresh = output(found["command"])
        kept = found["body"] if same(fresh, found["body"]) else fresh
        return f"```console\n$ {found['command']}\n{kept}```"

    return BLOCK.sub(block, text)


def refresh(check: bool) -> list[str]:
    """The pages whose outputs are not of today, written anew unless `check`."""
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = refreshed(text)
        if fresh != text:
            stale.append(page.name)
            if not check:
                write_text(page, fresh)
    return stale


if __name__ == "__main__":
    import sys

    asked = "--check" in sys.argv
    old = refresh(asked)
    print(("out of date: " if asked else "refreshed: ") + (", ".join(old) or "nothing"))
    sys.exit(1 if asked and old else 0)
