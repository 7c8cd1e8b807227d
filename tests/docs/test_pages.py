"""The pages: every command's output is that of today, the site builds without a warning, nothing on it is missing."""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rooflm.cli.validate_text import by_source_name, table
from rooflm.shown.blocks import Table
from rooflm.validation import Request
from rooflm.validation.score import report, requests_of, score
from rooflm.validation.table import read_tables, source_names
from rooflm.validation.under_load import arguments, run_of
from rooflm_fit.pages import DOCS, put
from rooflm_fit.pages import pages as listing
from rooflm_fit.readme import LONG, TASKS, parts
from rooflm_fit.shown import ROOT, Shown, output, pages, same, shown

SITE = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
COMMANDS: dict[str, list[Shown]] = {}
"""Command -> where it is shown: one that several pages show is run once."""
for page in pages():
    for block in shown(page):
        COMMANDS.setdefault(block.command, []).append(block)
IMAGE = re.compile(r"!\[[^\]]*\]\((?P<path>[^)\s]+)\)")


LINE = re.compile(r"^  (?P<name>\S.*?)  +(?P<figures>\d+(?: +[-+.\d]+){5})$", re.MULTILINE)
DRAWN = 6
"""Sources whose errors are worked out again: others whenever the page is written anew."""
MANY = 100_000
"""Requests that a source's runs under load simulate in all; the few sources with more take longer than all others."""


def queued(outcomes: list[Any]) -> Counter[str]:
    """Requests that a source's runs simulate, by source."""
    runs = {run_of(r): r for r in outcomes if isinstance(r, Request) and {"concurrency", "rate"} & {*r.kwargs}}
    found: Counter[str] = Counter()
    for r in runs.values():
        found[r.source] += arguments(r).get("requests") or 0
    return found


def test_errors_of_some_sources_are_of_today() -> None:
    body, *others = {block.body for block in COMMANDS[LONG]}
    figures = {found["name"]: found["figures"].split() for found in LINE.finditer(body)}
    shown_lines = {name: errors for name, errors in figures.items() if name not in TASKS}
    assert not others and len(shown_lines) > 3 * DRAWN
    outcomes = read_tables()
    known = source_names()
    long = [known[source] for source, requests in queued(outcomes).items() if requests > MANY]
    lines = sorted(line for line in shown_lines if not any(name.startswith(line) for name in long))
    assert len(long) < 6 and len(lines) > 3 * DRAWN
    drawn = random.Random(body).sample(lines, DRAWN)  # a long name goes on in the next line
    names = [min((n for n in known.values() if n.startswith(first)), key=len) for first in drawn]
    mine = [r for r in outcomes if known.get(r.source) in names]
    found = by_source_name(report(mine, score(requests_of(mine)), ())["by_source"])
    of_today = next(b for b in table("by source", found) if isinstance(b, Table)).rows[1:]
    assert {name: figures for name, *figures in of_today} == {
        n: shown_lines[d] for n, d in zip(names, drawn, strict=True)
    }


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c != LONG], ids=lambda c: f"{COMMANDS[c][0].page.stem}: {c[:60]}"
)
def test_output_is_of_today(command: str) -> None:
    of_today = output(command)
    for block in COMMANDS[command]:
        assert same(of_today, block.body), f"{block.page.name}: run scripts/docs"


def test_the_readme_has_the_table_of_what_was_left_out() -> None:
    left_out = re.compile(r"^\| under load, TPOT.*?\n\n", re.MULTILINE | re.DOTALL)
    tables = [left_out.search((ROOT / page).read_text(encoding="utf-8")) for page in ("README.md", "docs/accuracy.md")]
    assert tables[0] and tables[1] and tables[0][0] == tables[1][0]


def test_the_readme_has_the_errors_that_other_pages_have() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert put(text, parts()) == text, "run python -m rooflm_fit.readme"


def test_every_blind_round_is_on_the_page_of_errors() -> None:
    text = (DOCS / "accuracy.md").read_text(encoding="utf-8")
    notes = [p.name for p in (DOCS / "decisions").glob("*blind*.md")]
    assert notes and not [name for name in notes if f"(decisions/{name})" not in text]


@pytest.mark.parametrize("name", ["technology.md", "training.md"])
def test_what_pages_say_of_the_ladder_is_that_of_the_study(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == listing()[DOCS / name], "run scripts/docs"


def test_forty_questions() -> None:
    text = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    numbers = [int(n) for n in re.findall(r"^### (\d+)\.", text, re.MULTILINE)]
    assert numbers == [*range(1, 41)]
    assert len([*shown(ROOT / "docs" / "questions.md")]) == 40


def named(nav: Any) -> Iterator[str]:
    """The pages that the site's menu names."""
    for entry in nav:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else named(below)


def test_the_menu_names_every_page() -> None:
    docs = ROOT / "docs"
    pages_of = [p.relative_to(docs) for p in docs.rglob("*.md") if "decisions" not in p.parts]
    assert sorted(named(SITE["nav"])) == sorted(map(str, pages_of))


def test_the_list_of_decisions_names_every_note_once() -> None:
    notes = ROOT / "docs" / "decisions"
    listed = re.findall(r"^- \[\d{4}\]\((.*?)\) ", (notes / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(p.name for p in notes.glob("0*.md"))


CODE = re.compile(r"`([a-z_]\w*(?:[.:]\w+)+)`")
OTHER = re.compile(r"(est|rooflm|set|run|gguf|torch|pydoc_data)[.:]|.*\.(json|toml|txt|csv|py)$")
"""Names that are files, arguments, columns or other people's code; public names have tests of their own."""


def of_source() -> set[str]:
    """module.name of whatever the source defines, class.name of what a class does, and the modules themselves."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        found.add(".".join(parts[-2:]))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            inside = getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef) else []
            owner = node.name if isinstance(node, ast.ClassDef) else parts[-1]
            for each in inside:
                names = [each.target] if isinstance(each, ast.AnnAssign) else getattr(each, "targets", [])
                own = [n.id for n in names if isinstance(n, ast.Name)] + [getattr(each, "name", "")]
                found |= {f"{word}.{name}" for name in own if name for word in (owner, owner.lower())}
    return found


def test_every_formula_that_a_page_names_is_in_the_source() -> None:
    known = of_source()
    pages_ = [p for p in (ROOT / "docs").glob("*.md") if p.name != "nomenclature.md"]
    found = [(p.name, name) for p in pages_ for name in CODE.findall(p.read_text(encoding="utf-8"))]
    named = [(page, name.replace(":", ".")) for page, name in found if not OTHER.match(name)]
    assert len(named) > 40
    assert not [(page, name) for page, name in named if ".".join(name.split(".")[-2:]) not in known]


def test_every_picture_is_there() -> None:
    shown_on = [(page, found["path"]) for page in pages() for found in IMAGE.finditer(page.read_text(encoding="utf-8"))]
    assert shown_on
    assert not [f"{page.name}: {path}" for page, path in shown_on if not (page.parent / path).is_file()]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    text = (
        (ROOT / "zensical.toml").read_text(encoding="utf-8").replace('paths = ["src"]', f'paths = ["{ROOT / "src"}"]')
    )
    (tmp_path / "zensical.toml").write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "questions" / "index.html").is_file()
