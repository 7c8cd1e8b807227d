"""Deliver an answer: warnings, files, pictures, and JSON or text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rooflm.cli.console import dumps, save, show, warn
from rooflm.errors import RooflmError
from rooflm.shown.blocks import Block, Table


def check_files(
    out: str | None, plot: str | None, plot_kind: str | None, axes: bool, plot_value: str | None = None
) -> None:
    """Refuse a file that could not be written, before any work is done."""
    refuse_same(out, plot)
    if out:
        from rooflm.sweep.files import check_target

        check_target(out)
    if (plot_kind or plot_value) and not plot:
        raise RooflmError(f"--plot-{'kind' if plot_kind else 'value'} needs a picture to draw: give --plot FILE")
    if plot_value and not axes:
        raise RooflmError(f"--plot-value is {plot_value!r}, but one prediction is drawn by its parts: give a list")
    if plot:
        from rooflm.plots.choose import check_plot

        check_plot(plot, plot_kind, axes)


def refuse_same(out: str | None, plot: str | None) -> None:
    """Refuse one file for two things."""
    if out and plot and os.path.realpath(out) == os.path.realpath(plot):
        raise RooflmError(f"--out and --plot are both {plot!r}: give each a file of its own")


def check_targets(out: str | None, plot: str | None, formats: tuple[str, ...] = ()) -> None:
    """Refuse a table or a picture that could not be written, before any work is done. formats: ends that a table may
    have (none: those of `write_table`)."""
    refuse_same(out, plot)
    if out:
        from rooflm.sweep.files import TABLES, check_target

        check_target(out, formats or (*TABLES, "json"))
    if plot:
        from rooflm.plots.picture import check_picture

        check_picture(plot)


def write_table(path: str, columns: dict[str, list[Any]]) -> None:
    """Columns to a file that `check_targets` allows."""
    from rooflm.sweep.files import TABLES, check_target, write_columns, write_text

    target = check_target(path, (*TABLES, "json"))
    if target.suffix.lower() == ".json":
        write_text(target, dumps(columns))
    else:
        write_columns(target, columns)


def deliver_point(
    estimate: Any, values: dict[str, Any], blocks: Sequence[Block], shown: Mapping[str, Any]
) -> None:  # fmt: skip
    """Write, draw and print one prediction. shown: the options of the command that say where to and how."""
    from rooflm.sweep.files import write_values

    def draw(path: str) -> None:
        from rooflm.plots.choose import point_picture

        point_picture(estimate, shown["plot_kind"]).save(path)

    warn(estimate.warnings)
    save(shown["out"], lambda path: write_values(path, values))
    save(shown["plot"], draw)
    print(dumps(values)) if shown["json"] else show(blocks)


def deliver_grid(grid: Any, shown: Mapping[str, Any]) -> None:
    """The same of a grid."""
    from rooflm.cli.render import grid_table
    from rooflm.sweep.files import write_grid

    def draw(path: str) -> None:
        from rooflm.plots.choose import grid_picture

        grid_picture(grid, shown.get("plot_kind"), shown["plot_value"]).save(path)

    warn(grid.warnings)
    save(shown["out"], lambda path: write_grid(path, grid))
    save(shown["plot"], draw)
    print(dumps(grid.values())) if shown["json"] else show(grid_table(grid))


def deliver_sensitivity(table: dict[str, dict[str, float]], values: dict[str, Any]) -> list[Block]:
    """Put elasticities into the values of --json, and return their table for people."""
    from rooflm.sweep.sensitivity import lines

    values["sensitivity"] = table
    rows = lines(table)
    return [Table(rows, "l" + "r" * (len(rows[0]) - 1), head=True, indent=0)]
