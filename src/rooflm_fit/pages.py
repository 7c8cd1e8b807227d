"""Pages of docs/ that list what the code says of itself: python -m rooflm_fit.pages writes them.

The engine's constants of docs/nomenclature.md, the columns and metrics of docs/tables.md, and docs/schema/*.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rooflm.catalogue.command import Command
from rooflm.catalogue.engine import ABOUT, GROUPS, PLACES, ServerOptions
from rooflm.catalogue.fields import About, abouts
from rooflm.cli.schemas import SCHEMAS, schema
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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is code.

    >>> table(("name", "unit"), [("step", "s")]).split("\\n")
    ['| name | unit |', '| --- | --- |', '| `step` | s |']
    """
    lines = [header, tuple("---" for _ in header), *((f"`{first}`", *rest) for first, *rest in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def described(name: str, about: About) -> tuple[str, str, str, str]:
    """A field's row: name, meaning, unit, rule."""
    unit = {"bytes": "B", "bytes/s": "B/s"}.get(about.unit, about.unit)
    rule = ", ".join(about.among) if about.among else about.rule if about.kind == "number" else ""
    kind = {"flag": "yes or no", "word": "name", "sizes": "numbers", "shapes": "shapes", "number": ""}[about.kind]
    return name, about.meaning, unit, rule or kind


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
    found = {path: put(path.read_text(encoding="utf-8"), each) for path, each in parts.items()}
    text = {kind: json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n" for kind in SCHEMAS}
    return found | {DOCS / "schema" / f"{kind}.json": text[kind] for kind in SCHEMAS}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
