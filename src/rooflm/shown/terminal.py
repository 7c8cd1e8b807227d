"""Blocks as lines of text, laid out by rich: in colour on a terminal, plain in files and pipes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any

from rooflm.shown.blocks import (
    GAP,
    Block,
    Code,
    Columns,
    Facts,
    Fold,
    Parts,
    Say,
    Table,
    facts_table,
    fit_width,
    flattened,
    shares,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

USUAL = 80
"""Columns where nothing says how wide a terminal is."""
APART = 4
"""Blanks between two blocks beside each other."""
BOUND = re.compile(r"(?<=\d) (?=(?:[nµmkMGTP]?(?:B|s|J|W|Wh)|[KMGT]iB|%|USD|[kMG]|h)(?![\w/]))|\u00a0")
"""The blank between a number and its unit, and a non-breaking one: no line ends there."""
GLUE = "\ue000"
"""Stands for such a blank while lines are broken (rich breaks them at a non-breaking one)."""
MOODS = {"title": "bold", "good": "bold green", "bad": "bold red", "faint": "dim", "": ""}


def lines(blocks: Iterable[Block], width: int = USUAL, colour: bool = False) -> list[str]:
    """Blocks as lines of at most `width` characters.

    >>> lines([Say("Speed", "title"), Table([("first", "1 ms"), ("all", "22 ms")], "lr")])
    ['Speed', '  first   1 ms', '  all    22 ms']
    >>> lines([Say("between 39.2 and 85.3 ms")], 22)
    ['between 39.2 and', '85.3 ms']
    """
    from rich.console import Console

    console = Console(file=StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False,
                      markup=False, emoji=False, legacy_windows=False)  # fmt: skip
    with console.capture() as captured:
        for block in blocks:
            console.print(renderable(block, width), soft_wrap=isinstance(block, Code))
    return [line.rstrip() for line in captured.get().replace(GLUE, " ").split("\n")[:-1]]


def plain(blocks: Iterable[Block], width: int = USUAL) -> str:
    """Blocks as text."""
    return "\n".join(lines(blocks, width))


def renderable(block: Block, width: int) -> RenderableType:
    """A block as rich draws it in so many columns."""
    from rich.console import Group
    from rich.text import Text

    if isinstance(block, Say):
        return sentence(block)
    if isinstance(block, Facts):
        return renderable(facts_table(block), width)
    if isinstance(block, Fold) or (isinstance(block, Code) and (block.title or block.note)):
        return Group(*(renderable(b, width) for b in flattened(block)))
    if isinstance(block, Code):
        return Text("\n".join(shell_lines(block.text, width)), overflow="ignore", no_wrap=True)
    if isinstance(block, Parts):
        return renderable(shares(block), width)
    if isinstance(block, Columns):
        return side_by_side(block, width)
    pieces = fit_width(block, width)
    drawn = [table(p) if isinstance(p, Table) else renderable(p, width) for p in pieces]
    return Group(*([Text(block.title, "bold")] if block.title else []), *drawn)


def sentence(s: Say) -> RenderableType:
    """A sentence; further lines of a labelled one are indented."""
    from rich.padding import Padding
    from rich.text import Text

    said = Text(BOUND.sub(GLUE, f"{s.label}: {s.text}" if s.label else s.text), MOODS[s.mood], overflow="fold")
    if not s.label:
        return said
    return Padding(_Hanging(said), (0, 0, 0, 0))


class _Hanging:
    """A paragraph whose lines after the first are indented by two."""

    def __init__(self, text: Any) -> None:
        self.text = text

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.text import Text

        for number, line in enumerate(self.text.wrap(console, options.max_width - 2, overflow="fold")):
            line.rstrip()
            yield Text("  ") + line if number else line


def table(t: Table) -> RenderableType:
    """A table that fits, its columns aligned."""
    from rich.padding import Padding
    from rich.table import Table as Rich
    from rich.text import Text

    made = Rich(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    for side in t.sides:
        made.add_column(justify="right" if side == "r" else "left", no_wrap=side != "w", overflow="fold")
    for number, row in enumerate(t.rows):
        style = "bold" if t.head and number == 0 else ""
        made.add_row(*(Text(cell, style, overflow="fold") for cell in row))
    return Padding(made, (0, 0, 0, t.indent), expand=False)


def side_by_side(block: Columns, width: int) -> RenderableType:
    """Blocks from left to right, as many per row as fit; the first takes at most half of 80 columns."""
    from rich.console import Group
    from rich.table import Table as Rich
    from rich.text import Text

    piles = [[item] if isinstance(item, Block) else list(item) for item in block.items if item]
    sized = [(pile, max(map(len, lines(pile, width)), default=0)) for pile in piles]
    rows: list[Any] = []
    while sized:
        room, taken = width, 0
        while taken < len(sized) and (taken == 0 or sized[taken][1] <= room):
            room -= max(sized[taken][1] + APART, USUAL // 2)
            taken += 1
        grid = Rich.grid(padding=(0, APART, 0, 0))
        for number in range(taken):
            grid.add_column(no_wrap=True, min_width=USUAL // 2 - APART if number < taken - 1 else None)
        grid.add_row(*(Group(*(renderable(b, width) for b in pile)) for pile, _ in sized[:taken]))
        rows += [*([Text("")] if rows else []), grid]
        sized = sized[taken:]
    return Group(*rows)


def shell_lines(text: str, width: int) -> list[str]:
    """A command split into lines that end in a backslash; quoted text is never split.

    >>> shell_lines("echo 'a  b' > file", 80), shell_lines("one two three", 12)
    (["echo 'a  b' > file"], ['one two \\\\', '    three'])
    """
    wrapped = [""]
    for word in re.findall(r"(?:'[^']*'|\S)+", text):
        if wrapped[-1] and len(wrapped[-1]) + 1 + len(word) > width - 2:
            wrapped.append("    " + word)
        else:
            wrapped[-1] = f"{wrapped[-1]} {word}" if wrapped[-1] else word
    return [*(f"{line} \\" for line in wrapped[:-1]), wrapped[-1]]
