"""Blocks as an HTML fragment for a notebook: sentences, tables, and breakdowns as bars (inline SVG)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from rooflm.shown.blocks import (
    Block,
    Code,
    Columns,
    Facts,
    Fold,
    Parts,
    Say,
    Table,
    amount,
    facts_table,
    flattened,
    largest,
)
from rooflm.shown.numbers import percent
from rooflm.shown.palette import colours

BAR = 320
"""Width of a bar (px)."""
MOODS = {"title": "font-weight:bold", "good": "font-weight:bold;color:#228833", "bad": "font-weight:bold;color:#cc3311",
         "faint": "opacity:0.7", "": ""}  # fmt: skip
CELLS = {"r": "right", "l": "left", "w": "left"}


def html(blocks: Iterable[Block], rows: Mapping[str, str]) -> str:
    """Blocks, and folded below them a table of every number. rows: name -> value."""
    body = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in rows.items())
    every = f"<details><summary>all outputs</summary><table>{body}</table></details>"
    return f"<div>{''.join(map(drawn, blocks))}{every}</div>"


def drawn(block: Any) -> str:
    """One block.

    >>> drawn(Say("it fits", "good"))
    '<div style="font-weight:bold;color:#228833">it fits</div>'
    """
    if isinstance(block, Say):
        label = f"<b>{escape(block.label)}:</b> " if block.label else ""
        return f'<div style="{MOODS[block.mood]}">{label}{escape(block.text) or "&nbsp;"}</div>'
    if isinstance(block, Facts):
        return tabled(facts_table(block))
    if isinstance(block, Fold) or (isinstance(block, Code) and (block.title or block.note)):
        return "".join(map(drawn, flattened(block)))
    if isinstance(block, Code):
        return f"<pre>{command(block.text)}</pre>"
    if isinstance(block, Parts):
        return bar(block)
    if isinstance(block, Columns):
        piles = ["".join(map(drawn, [i] if isinstance(i, Block) else i)) for i in block.items if i]
        inner = "".join(f"<div>{one}</div>" for one in piles)
        return f'<div style="display:flex;flex-wrap:wrap;gap:1em 3em">{inner}</div>'
    return tabled(block)


def command(text: str) -> str:
    """A command, escaped, whose lines end between its words, not at the hyphens of its options.

    >>> command("serve --max-num-seqs 63")
    'serve <span style="white-space:nowrap">--max-num-seqs</span> 63'
    """
    return re.sub(r"(?<!\S)[\w-]*-[\w-]{0,40}(?!\S)", r'<span style="white-space:nowrap">\g<0></span>', escape(text))


def tabled(t: Table) -> str:
    """A table; leading blanks of a name stay."""
    lines = []
    for number, row in enumerate(t.rows):
        tag = "th" if t.head and number == 0 else "td"
        cells = (f'<{tag} style="text-align:{CELLS[side]}">{escape(cell).replace("  ", "&emsp;")}</{tag}>'
                 for cell, side in zip(row, t.sides, strict=True))  # fmt: skip
        lines.append(f"<tr>{''.join(cells)}</tr>")
    caption = f"<div><b>{escape(t.title)}</b></div>" if t.title else ""
    return f"{caption}<table>{''.join(lines)}</table>"


def bar(p: Parts) -> str:
    """The parts as one bar, and below it what each is.

    >>> bar(Parts("A step", {"forward": 1.0, "backward": 2.0})).count("<rect")
    4
    """
    kept, total = largest(p)
    left, boxes, lines = 0.0, [], []
    hues = colours(name.replace(" ", "_") for name, _ in kept)
    for name, value in kept:
        colour, wide = hues[name.replace(" ", "_")], BAR * value / total
        said = f"{name}: {amount(value, p.unit)}, {percent(value / total)}"
        boxes.append(f'<rect x="{left:.1f}" width="{wide:.1f}" height="18" fill="{colour}">'
                     f"<title>{escape(said)}</title></rect>")  # fmt: skip
        lines.append(f'<tr><td style="text-align:left"><svg width="10" height="10" aria-hidden="true">'
                     f'<rect width="10" height="10" fill="{colour}"/></svg> {escape(name)}</td>'
                     f"<td>{amount(value, p.unit)}</td><td>{percent(value / total)}</td></tr>")  # fmt: skip
        left += wide
    label = escape("; ".join(f"{name} {percent(v / total)}" for name, v in kept), quote=True)
    picture = f'<svg width="{BAR}" height="18" role="img" aria-label="{label}">{"".join(boxes)}</svg>'
    return f"<div><b>{escape(p.title)}</b></div>{picture}<table>{''.join(lines)}</table>"
