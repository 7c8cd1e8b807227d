"""What a search found, as text of at most 80 columns and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from rooflm.cli import render
from rooflm.search import thinned

DEGREES = ("tp", "pp", "vp", "dp", "cp", "ep")
"""Inputs that need no word where they are one."""


def named(inputs: dict[str, Any]) -> str:
    """A point in words: names, degrees above one, sizes."""
    words = []
    for key, value in inputs.items():
        if key in DEGREES and value == 1:
            continue
        name = SHORT.get(key, key.rsplit(".", 1)[-1])
        words.append(str(value) if isinstance(value, str) else f"{name} {render.count(value)}")
    return " ".join(words) or "one GPU"


SHORT = {"micro_batch": "mb"}
"""Inputs with a shorter name in the tables."""


def tables(found: Any, shown: Any) -> list[str]:
    """The ten best and the trade-off in 80 columns: what all of them share stands above, columns that do not fit go."""
    edge = [found.front[i] for i in thinned(range(len(found.front)), 10)]
    all_points = [c.inputs for c in (*found.top, *edge)]
    first = all_points[0]
    same = {k: v for k, v in first.items() if all(p.get(k) == v for p in all_points) and len(all_points) > 1}
    lines = [*render.wrap("all of them", [named({k: v}) for k, v in same.items() if k not in DEGREES or v != 1]), ""]

    def drawn(columns: Any) -> list[str]:
        out = []
        for title, points in (("Ten best", found.top), ("Trade-off", edge)):
            rows = [
                (
                    named({k: v for k, v in c.inputs.items() if k not in same}),
                    *(w(c.outputs[key]) for key, _, w in columns),
                )
                for c in points
            ]
            head = (title, *(h for _, h, _ in columns))
            out += [*render.columns([head, *rows], "l" + "r" * len(columns), indent=0), ""]
        return out

    columns = list(shown)
    while len(columns) > 2 and max(map(len, drawn(columns))) > render.WIDTH:
        columns.pop()
    return [*lines, *drawn(columns)]


def found_shown(found: Any, columns: Any, command: str, seconds: float, json_: bool) -> str:
    """A search's answer as it is printed. columns: (key, heading, writer) of its tables; command: runs the answer."""
    if json_:
        return render.dumps(found_json(found, command, seconds))
    return "\n".join(found_text(found, columns, command, seconds))


def found_text(found: Any, shown: Any, command: str, seconds: float) -> list[str]:
    """A search's answer for people."""
    head = f"{found.points} points, {found.feasible} legal, in {seconds:.2f} s; best: {found.goal.name}"
    lines = [head, *render.wrap("assumed", found.assumed), ""]
    if found.best is None:
        lines += ["No point meets every constraint.", *found.alone]
        if found.nearest is not None:
            lines += [f"The nearest: {named(found.nearest.candidate.inputs)}", *(f"  {w}" for w in found.nearest.why)]
        return lines
    lines += tables(found, shown)
    for b in found.blocked:
        lines += textwrap.wrap(
            f"Better, but not legal: {named(b.candidate.inputs)}", render.WIDTH, subsequent_indent="  "
        )
        lines += [f"  {w}" for w in b.why]
    return [*lines, "", *shell(command)] if command else lines


def shell(command: str) -> list[str]:
    """A command in lines of at most 80 columns, each but the last ended by a backslash."""
    wrapped = textwrap.wrap(command, render.WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False)
    return [*(f"{line} \\" for line in wrapped[:-1]), wrapped[-1]]


def found_json(found: Any, command: str, seconds: float) -> dict[str, Any]:
    """The object of --json."""

    def told(c: Any) -> dict[str, Any]:
        return {"inputs": c.inputs, **c.outputs}

    return {
        "objective": found.goal.name,
        "points": found.points,
        "feasible": found.feasible,
        "seconds": seconds,
        "best": told(found.best) if found.best else None,
        "top": [told(c) for c in found.top],
        "front": [told(c) for c in found.front],
        "blocked": [{**told(b.candidate), "why": list(b.why)} for b in found.blocked],
        "nearest": {**told(found.nearest.candidate), "why": list(found.nearest.why)} if found.nearest else None,
        "unmet": list(found.alone),
        "assumed": list(found.assumed),
        "command": command,
    }
