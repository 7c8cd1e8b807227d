"""A large grid to its file, with a progress bar on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rooflm.cli.console import dumps, tell, working
from rooflm.sweep.axes import Axis, size_of

if TYPE_CHECKING:
    from rooflm.sweep.stream import Streamed

STREAM_FROM = 2_000_000
"""Points above which a grid goes to its file block by block."""

Work = Callable[[dict[str, Any], str, Callable[[int], None]], "Streamed"]


def run(work: Work, arguments: dict[str, Any], out: str, axes: Sequence[Axis], json_: bool) -> str:
    """Work out a grid block by block (work: infer_stream or train_stream) and say what was done."""
    start = time.perf_counter()
    points = 0

    def counted(more: int) -> None:
        nonlocal points
        points += more
        advance(more)

    try:
        with working("points worked out", size_of(axes)) as advance:
            done = work(arguments, out, counted)
    except KeyboardInterrupt:
        where = f"{points} of {size_of(axes)} points are kept in {out}.parts"
        tell(f"interrupted: {where}; the same command carries on there")
        raise
    seconds = time.perf_counter() - start
    if json_:
        return dumps({"file": out, "points": done.points, "done": done.done, "kept": done.kept, "seconds": seconds})
    kept = f", {done.kept} of them from the run before" if done.kept else ""
    return f"{done.points} points{kept} in {seconds:.1f} s: {out}"


def wanted(out: str | None, axes: Sequence[Axis]) -> bool:
    """Whether a grid is large enough, and its file of a kind, to be written block by block."""
    return out is not None and size_of(axes) > STREAM_FROM and not out.endswith(".json")
