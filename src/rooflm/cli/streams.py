"""A large grid to its file, with a progress bar on standard error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rooflm.axes import Axis, size_of
from rooflm.cli import render


def run(arguments: dict[str, Any], out: str, axes: Sequence[Axis], json_: bool) -> str:
    """Work out a grid block by block and say what was done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from rooflm.api import infer_stream

    start = time.perf_counter()
    bars = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bars, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("points", total=size_of(axes))
        done = infer_stream(arguments, out, lambda points: progress.advance(task, points))
    seconds = time.perf_counter() - start
    if json_:
        return render.dumps(
            {"file": out, "points": done.points, "done": done.done, "kept": done.kept, "seconds": seconds}
        )
    kept = f", {done.kept} of them from the run before" if done.kept else ""
    return f"{done.points} points{kept} in {seconds:.1f} s: {out}"
