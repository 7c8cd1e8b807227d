"""Pages of docs/ that list what the code says of itself: python -m rooflm_fit.pages writes them.

The engine's constants of docs/nomenclature.md, the columns and metrics of docs/tables.md, docs/schema/*.json, and what
docs/technology.md and docs/training.md say of the ladder of docs/works.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rooflm.catalogue.engine import GROUPS, PLACES, ServerOptions
from rooflm.catalogue.fields import About, abouts
from rooflm.cli.schemas import SCHEMAS, schema
from rooflm.readers.command import Command
from rooflm.readers.engines import ABOUT
from rooflm.readers.tables import bounds_text
from rooflm.sweep.files import write_text
from rooflm.validation.columns import METRICS, listed

DOCS = Path(__file__).parents[2] / "docs"


def put(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between its marks.

    >>> put("<!-- x -->old<!-- end x -->", {"x": "new"})
    '<!-- x -->\\nnew\\n<!-- end x -->'
    """
    for name, text in parts.items():
        mark = re.compile(rf"<!-- {name} -->.*?<!-- end {name} -->", re.DOTALL)
        page = mark.sub(lambda _, n=name, t=text: f"<!-- {n} -->\n{t}\n<!-- end {n} -->", page)  # type: ignore[misc]
    return page


def rewrite(parts: Mapping[str, str], *paths: Path) -> None:
    """Put parts between their marks on these pages, each written whole. ValueError where none has marks for one."""
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    for name in parts:
        if not any(f"<!-- {name} -->" in page for page in pages.values()):
            raise ValueError(f"{paths[0]} has no marks <!-- {name} --> and <!-- end {name} -->")
    for path, page in pages.items():
        write_text(path, put(page, parts))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], side: str = "---:") -> str:
    """A table: names to the left, numbers to the right.

    >>> print(markdown(("a", "b"), [("x", "1")]))
    | a | b |
    | --- | ---: |
    | x | 1 |
    """
    lines = [header, ("---", *(side for _ in header[1:])), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words, whose first column is code.

    >>> table(("name", "unit"), [("step", "s")]).split("\\n")
    ['| name | unit |', '| --- | --- |', '| `step` | s |']
    """
    return markdown(header, [(f"`{first}`", *rest) for first, *rest in rows], "---")


def described(name: str, about: About) -> tuple[str, str, str, str]:
    """A field's row: name, meaning, unit, rule."""
    unit = {"bytes": "B", "bytes/s": "B/s"}.get(about.unit, about.unit)
    rule = ", ".join(about.among) if about.among else bounds_text(about) if about.kind == "number" else ""
    kinds = {"flag": "yes or no", "word": "name", "sizes": "numbers", "named": "numbers by name", "number": ""}
    return name, about.meaning, unit, rule or kinds.get(about.kind, about.kind)


def engine_part() -> str:
    """Every constant of an engine, group by group, by the name that files and --set take."""
    own = [name for name, about in ABOUT.items() if not any(name in abouts(kind) for kind in GROUPS.values())]
    groups: dict[str, Mapping[str, About]] = {"": {n: ABOUT[n] for n in own if n != "kernels"}}
    groups |= {name: abouts(kind) for name, kind in GROUPS.items()}
    groups |= {"server": abouts(ServerOptions), "command": abouts(Command)}
    names = {place: name for name, place in PLACES.items()}
    out = ["", "A constant goes by its own name (`engine.step`) or by its place (`engine.host.step`).", ""]
    for name, fields in groups.items():
        rows = [described(names.get(f"{name}.{field}", field), about) for field, about in fields.items()]
        out += [f"`engine.{name}`:" if name else "`engine`:", "", table(("name", "meaning", "unit", "rule"), rows), ""]
    return "\n".join(out[:-1])


EFFICIENCIES = {
    "calibrated": "calibrated (measured kernels, Megatron)", "flat": "flat (0.6 compute, 0.8 memory, 0.8 network)",
    "ideal": "ideal", "one width": "ideal, everything in one width (below)",
}  # fmt: skip
"""Columns of technology-ladder.csv -> their rows on the page."""
WORTH = {
    "compute": "16-bit compute (7.2x the rate)", "memory": "memory and caches (3.8x)",
    "network": "network (3x in, 36x between nodes)", "format": "narrow products (4x)", "batch": "larger batch",
    "efficiency": "efficiency reached",
}  # fmt: skip
"""Columns of technology-worth.csv -> those of the page."""


def study(name: str) -> list[dict[str, str]]:
    """A table of docs/works, of the ladder's first model."""
    with (DOCS / "works" / f"technology-{name}.csv").open(newline="", encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row["model"] == "gpt3-175b"]


def ladder_parts() -> tuple[dict[str, str], dict[str, str]]:
    """What docs/technology.md and docs/training.md say of the ladder."""
    rungs, worth = study("ladder"), study("worth")
    head = ("times faster a sequence", *(row["system"] for row in rungs))
    times = {k: [f"{float(row[k]):.1f}" for row in rungs[1:]] for k in EFFICIENCIES}
    lines = [(EFFICIENCIES[k], "1", *own[:-1], f"**{own[-1]}**") for k, own in times.items()]
    kinds = [
        (row["mode"], *(f"{float(row[k]):.2f}" if row[k] else "" for k in WORTH), f"{float(row['all']):.1f}")
        for row in worth[::-1]
    ]
    last = {k: own[-1] for k, own in times.items()}
    words = (
        f"B200 behind an NVLink switch with a larger batch is {last['calibrated']} times faster a sequence than A100 "
        f"with HDR by\ncalibrated kernels ({last['flat']} with flat shares of the datasheet, {last['ideal']} without "
        "any inefficiency)."
    )
    technology = {"ladder": markdown(head, lines), "worth": markdown(("worth", *WORTH.values(), "product"), kinds)}
    return technology, {"ladder": words}


def pages() -> dict[Path, str]:
    """Every such file with its text of today."""
    metrics = [(m.name, m.meaning, m.unit, m.task or "infer, serve, train") for m in METRICS.values()]
    parts = {
        DOCS / "nomenclature.md": {"engine": engine_part()},
        DOCS / "tables.md": {
            "columns": table(("column", "meaning", "unit", "read by"), listed()),
            "metrics": table(("metric", "meaning", "unit", "of"), metrics),
        },
    }
    parts[DOCS / "technology.md"], parts[DOCS / "training.md"] = ladder_parts()
    found = {path: put(path.read_text(encoding="utf-8"), each) for path, each in parts.items()}
    text = {kind: json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n" for kind in SCHEMAS}
    return found | {DOCS / "schema" / f"{kind}.json": text[kind] for kind in SCHEMAS}


if __name__ == "__main__":
    for path, text in pages().items():
        write_text(path, text)
