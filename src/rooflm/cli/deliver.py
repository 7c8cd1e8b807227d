"""What every predicting command does with its answer: warnings, files, pictures, JSON or text."""

from __future__ import annotations

import sys
from typing import Any

from rooflm.cli import render
from rooflm.errors import RooflmError


def check_files(out: str | None, plot: str | None, plot_kind: str | None, axes: bool) -> None:
    """Refuse a file that could not be written, before any work is done."""
    if out:
        from rooflm.sweep.files import check_target

        check_target(out)
    if plot_kind and not plot:
        raise RooflmError("--plot-kind needs a picture to draw: give --plot FILE")
    if plot:
        from rooflm.plots.choose import check_plot

        check_plot(plot, plot_kind, axes)


def deliver_point(
    estimate: Any,
    values: dict[str, Any],
    text: str,
    *,
    json_: bool,
    out: str | None,
    plot: str | None,
    kind: str | None,
) -> None:
    """One prediction to where it was asked for."""
    for warning in estimate.warnings:
        print(f"rooflm: warning: {warning}", file=sys.stderr)
    if out:
        from rooflm.sweep.files import write_values

        write_values(out, values)
    if plot:
        from rooflm.plots.choose import point_picture

        point_picture(estimate, kind).save(plot)
    print(render.dumps(values) if json_ else text)


def deliver_grid(
    grid: Any, *, json_: bool, out: str | None, plot: str | None, kind: str | None, value: str | None
) -> None:
    """A grid to where it was asked for."""
    if out:
        from rooflm.sweep.files import write_grid

        write_grid(out, grid)
    if plot:
        from rooflm.plots.choose import grid_picture

        grid_picture(grid, kind, value).save(plot)
    print(render.dumps(grid.values()) if json_ else render.grid_text(grid))


def deliver_sensitivity(table: dict[str, dict[str, float]], values: dict[str, Any]) -> str:
    """Put elasticities into the values of --json, and return their table for people."""
    from rooflm.sweep.sensitivity import lines

    values["sensitivity"] = table
    rows = lines(table)
    return "\n".join(["", "", *render.columns(rows, "l" + "r" * (len(rows[0]) - 1), indent=0)])
