"""`rooflm study`: published works beside our predictions, as tables, pictures, JSON and pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import Argument, grouped
from rooflm.cli.console import dumps, save, show
from rooflm.cli.options import command, completing, word
from rooflm.errors import RooflmError
from rooflm.shown import blocks
from rooflm.shown.blocks import BLANK, Block, Say
from rooflm.shown.numbers import count, gib, text

if TYPE_CHECKING:
    from rooflm.works.study import Column, Study

MOST_ROWS = 40
"""Rows of a table that are shown; files hold them all."""
MOST_LISTED = 100
"""Rows of a table that a page holds; of a longer one it names the file."""
MORE = "rooflm study NAME prints a work's tables; --plot FILE draws it, --out DIR writes all of it."


ROWS = grouped((
    "The answer",
    Argument("plot", "file", "Draw a png, svg, html or json (Vega-Lite).", ()),
    Argument("picture", "text", "Which picture --plot draws (default: the first).", ()),
    Argument("out", "folder", "Write a page, tables and pictures there.", ()),
))  # fmt: skip
"""Arguments of `rooflm study`."""


def study(name: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm study` does with its arguments."""
    from rooflm.works.study import WORKS, pictures_of
    from rooflm.works.study import study as make

    plot, picture, out = (asked.get(k) for k in ("plot", "picture", "out"))
    if not name:
        listed: list[Block] = [blocks.Table([*WORKS.items()], "lw", indent=0), BLANK, Say(MORE, "faint")]
        print(dumps({"studies": WORKS})) if shown["json"] else show(listed)
        return
    if name != "all" and name not in WORKS:
        make(name)  # refuses it
    if plot and name == "all":
        raise RooflmError("--plot draws one work's picture: name the work, or give --out DIR, which draws them all")
    if picture and not plot:
        raise RooflmError("--picture needs a file to draw it in: give --plot FILE")
    if picture and picture not in pictures_of(name):
        raise RooflmError(f"--picture is {picture!r}, but of {name} it must be {' or '.join(pictures_of(name))}")
    check(plot, out)
    found = [make(n) for n in (WORKS if name == "all" else (name,))]
    save(plot, lambda path: found[0].pictures[picture or next(iter(found[0].pictures))]().save(path))
    if out:
        for each in found:
            write(each, Path(out))
    if shown["json"]:
        print(dumps({s.name: s.to_dict() for s in found} if name == "all" else found[0].to_dict()))
    else:
        show([b for s in found for b in (*([BLANK, BLANK] if s is not found[0] else []), *study_blocks(s, MOST_ROWS))])


def works() -> list[str]:
    """Names of the works, for completion."""
    from rooflm.works.study import WORKS

    return [*WORKS, "all"]


study_command = command(
    "study", [], study, "Published works: their numbers beside ours, whether these took part in a fit, and the same on "
    "today's cards.", own=ROWS,
    first=word("name", "Name of a work, or all; without it, the list.", completing(works), ""),
)  # fmt: skip


def check(plot: str | None, out: str | None) -> None:
    """Refuse what could not be written, before any work is done."""
    from rooflm.plots.picture import check_picture, vl_convert

    if plot:
        check_picture(plot)
    if out:
        vl_convert()
        if Path(out).exists() and not Path(out).is_dir():
            raise RooflmError(f"--out is {out!r}, but it must be a folder, and a file of that name is there")


def write(found: Study, folder: Path) -> None:
    """NAME.md with every table and picture, and each table and picture as a file of its own."""
    from rooflm.sweep.files import write_text

    folder.mkdir(parents=True, exist_ok=True)
    for table in found.tables:
        body = io.StringIO()
        writer = csv.DictWriter(body, [c.key for c in table.columns], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table.rows)
        write_text(folder / f"{found.name}-{table.name}.csv", body.getvalue())
    for name, make in found.pictures.items():
        make().save(folder / f"{found.name}-{name}.png")
    write_text(folder / f"{found.name}.md", page(found))


def page(found: Study) -> str:
    """The study as Markdown."""
    out = [f"# {found.title}", "", f"Source: {found.source}.", "", *found.conditions, ""]
    out += [f"- {line}" for line in found.findings] + [""]
    out += [f"![{found.title}: {name}]({found.name}-{name}.png)\n" for name in found.pictures]
    for table in found.tables:
        if len(table.rows) > MOST_LISTED:
            link = f"[{found.name}-{table.name}.csv]({found.name}-{table.name}.csv)"
            out += [f"## {table.title}", "", f"{len(table.rows)} rows: {link}.", "", *table.notes, ""]
            continue
        shown = [c for c in table.columns if any(v is not None for v in table.values(c.key))]
        out += [f"## {table.title}", "", "| " + " | ".join(c.heading for c in shown) + " |"]
        out += ["| " + " | ".join("---:" if c.unit else "---" for c in shown) + " |"]
        out += ["| " + " | ".join(cell(row.get(c.key), c) for c in shown) + " |" for row in table.rows]
        out += ["", *table.notes, ""]
    return "\n".join(out)


def study_blocks(found: Study, most: int) -> list[Block]:
    """The study as blocks, each table cut to `most` rows."""
    out: list[Block] = [Say(found.title, "title"), Say(found.source, label="source")]
    out += [Say(line) for line in found.conditions] + [BLANK] + [Say(f"- {line}") for line in found.findings]
    for table in found.tables:
        rows = [tuple(cell(row.get(c.key), c) for c in table.columns) for row in table.rows[:most]]
        sides = "".join("r" if c.unit else "w" if c.key == "here" else "l" for c in table.columns)
        head = tuple(c.heading for c in table.columns)
        out += [BLANK, blocks.Table([head, *rows], sides, table.title, head=True, indent=0)]
        left = len(table.rows) - most
        out += [Say(f"... {left} more rows: --out DIR writes them all", "faint")] if left > 0 else []
        out += [Say(note, "faint") for note in table.notes]
    return out


WRITTEN: dict[str, Callable[[Any], str]] = {
    "share": lambda v: f"{100 * v:.1f} %",
    "change": lambda v: f"{100 * v:+.1f} %",
    "times": lambda v: f"{v:.1f}x" if v >= 3 else f"{v:.2f}x",
    "GiB": lambda v: f"{v / 2**30:.2f}",
    "MB": lambda v: f"{v / 1e6:,.1f} MB",
    "B": lambda v: gib(float(v)),
    **dict.fromkeys(("h", "USD"), lambda v: f"{v:,.0f}" if abs(v) >= 1000 else count(v)),
    **{unit: partial(text, unit=unit) for unit in ("s", "B/s", "FLOP/s", "W", "J")},
}
"""Unit of a column, or what people read instead -> a value of it in words; of any other a plain number."""


def cell(value: Any, c: Column) -> str:
    """A value for people, by the unit of its column."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else WRITTEN.get(c.written or c.unit, count)(value)
