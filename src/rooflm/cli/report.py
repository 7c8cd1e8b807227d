"""`rooflm report`: a scenario file as one page for whoever pays."""

from __future__ import annotations

from typing import Annotated

import typer

from rooflm.cli.console import tell, working


def report(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file: .toml, .yaml or .csv.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.html", help="Write the page there.")],
) -> None:
    """One page that answers: memory, speed, cost, alternatives, what bounds it, how sure, and the command to run.

    The file holds `model`, the arguments of the task, and may hold `question`
    (its heading) and `task`: infer, train, serve, search infer or search train.
    """
    from rooflm.reporting.report import report as make
    from rooflm.sweep.files import check_target

    check_target(out, ("html",))
    with working("parts worked out"):
        make(scenario, out)
    tell(f"wrote {out}")
