"""A report as one HTML file: words and tables, interactive pictures, all that draws them inside; it prints well."""

from __future__ import annotations

import json
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflm.plots.picture import Picture, vl_convert
from rooflm.shown.notebook import drawn
from rooflm.shown.version import __version__
from rooflm.sweep.files import check_target, write_whole

if TYPE_CHECKING:
    from rooflm.reporting.report import Report, Section

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #d8d8d8; --soft: #f4f6f8 }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #15181c; --line: #3a4048; --soft: #1f242a } }
body { margin: 0 auto; padding: 2rem 1.25rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.15rem; margin-top: 2rem }
main > section:first-of-type { background: var(--soft); border-left: .3rem solid #4477aa; padding: .8rem 1.1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
td, th { padding: .15rem .7rem .15rem 0; border-bottom: 1px solid var(--line); font-weight: normal }
th { font-weight: 600 } .wide, main > section:first-of-type { overflow-x: auto }
[style*="right"] { white-space: nowrap }
figure { margin: 1rem 0; background: #fff; overflow-x: auto }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .8rem }
footer { margin-top: 2.5rem; font-size: .85rem; opacity: .75 }
@media print {
  :root { color-scheme: light }
  body { max-width: none; padding: 0 } section, figure, tr { break-inside: avoid }
  .vega-actions { display: none } }
"""


DRAW = """
const specs = JSON.parse(document.getElementById("specs").textContent);
const actions = {export: true, source: false, compiled: false, editor: false};
specs.forEach((spec, i) => vegaEmbed("#p" + i, spec, {renderer: "svg", actions}));
"""
"""What the page does with its specifications."""


def page(report: Report) -> str:
    """The whole page. RooflmError where what draws is not installed.

    No text of a scenario becomes markup: words are escaped, specifications stand as data.
    """
    pictures = [p for s in report.sections for p in s.pictures]
    numbers = iter(range(len(pictures)))
    parts = [f"<section>{''.join(map(drawn, report.answer))}</section>"]
    parts += [_section(s, numbers) for s in report.sections if s.blocks or s.pictures]
    title = escape(report.question)
    made = f"Predicted by rooflm {escape(__version__)}: an estimate, with its band where one is known."
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><main><h1>{title}</h1>\n{''.join(parts)}\n</main><footer>{made}</footer>\n{_script(pictures)}</body></html>\n"
    )


def _section(s: Section, numbers: Any) -> str:
    words = "".join(f'<div class="wide">{drawn(b)}</div>' for b in s.blocks)
    figures = "".join(f'<figure id="p{next(numbers)}" role="img" aria-label="{escape(p.title, quote=True)}"></figure>'
                      for p in s.pictures)  # fmt: skip
    return f"<section><h2>{escape(s.title)}</h2>{words}{figures}</section>\n"


def _script(pictures: list[Picture]) -> str:
    """The drawing library, and the specifications as data that cannot close the script element."""
    if not pictures:
        return ""
    specs = json.dumps([p.to_dict() for p in pictures]).replace("<", "\\u003c")
    code = _drawn()
    return f'<script type="application/json" id="specs">{specs}</script>\n<script type="module">{code}</script>\n'


@lru_cache
def _drawn() -> str:
    """The drawing library with its dependencies, the same for every page."""
    return str(vl_convert().javascript_bundle(DRAW)).replace("</script", "<\\/script")


def write(report: Report, path: str | Path) -> Path:
    """The page into a .html file, whole or not at all; RooflmError where it cannot be written."""
    target = check_target(str(path), ("html",), "the report")
    text = page(report)
    write_whole(target, lambda name: _put(name, text))
    return target


def _put(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
