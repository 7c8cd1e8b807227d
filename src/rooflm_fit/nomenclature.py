"""The engine's part of docs/nomenclature.md, from what each field says of itself: python -m rooflm_fit.nomenclature"""

from __future__ import annotations

from pathlib import Path

from rooflm.catalogue.command import Command
from rooflm.catalogue.engine import ABOUT, GROUPS, PLACES, ServerOptions
from rooflm.catalogue.fields import About, abouts

PAGE = Path(__file__).parents[2] / "docs" / "nomenclature.md"
BEGIN, END = "<!-- by python -m rooflm_fit.nomenclature -->", "<!-- end -->"


def line(name: str, about: About) -> str:
    """A row of the table: name, meaning, unit, rule."""
    unit = {"bytes": "B", "bytes/s": "B/s"}.get(about.unit, about.unit)
    rule = ", ".join(about.among) if about.among else about.rule if about.kind == "number" else ""
    kind = {"flag": "yes or no", "word": "name", "sizes": "numbers", "shapes": "shapes", "number": ""}[about.kind]
    return f"| `{name}` | {about.meaning} | {unit} | {rule or kind} |"


def engine_part() -> str:
    """The section as Markdown: every constant of an engine, group by group."""
    out = [BEGIN, "", "A constant goes by its own name (`engine.step`) or by its place (`engine.host.step`).", ""]
    own = [name for name, about in ABOUT.items() if not any(name in abouts(kind) for kind in GROUPS.values())]
    groups: dict[str, dict[str, About]] = {"": {n: ABOUT[n] for n in own if n != "kernels"}}
    groups |= {name: dict(abouts(kind)) for name, kind in GROUPS.items()}
    groups |= {"server": dict(abouts(ServerOptions)), "command": dict(abouts(Command))}
    names = {place: name for name, place in PLACES.items()}
    for name, fields in groups.items():
        head = f"`engine.{name}`" if name else "`engine`"
        out += [f"{head}:", "", "| name | meaning | unit | rule |", "| --- | --- | --- | --- |"]
        out += [*(line(names.get(f"{name}.{n}", n), a) for n, a in fields.items()), ""]
    return "\n".join([*out, END])


def page() -> str:
    """The whole page with this section renewed."""
    text = PAGE.read_text(encoding="utf-8")
    return f"{text.partition(BEGIN)[0]}{engine_part()}{text.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
