"""Names of other tools: each leads to an option that a command has, or a table's column, and none hides one of ours."""

from __future__ import annotations

import typer.main

from rooflm.asked.synonyms import OTHER_NAMES
from rooflm.cli.app import build_app
from rooflm.validation.columns import COLUMNS


def test_every_name_leads_to_an_option_that_exists() -> None:
    names = {}
    for one in ("infer", "train", "serve", "list"):
        commands = typer.main.get_command(build_app([one])).commands  # type: ignore[attr-defined]
        names[one] = {name for option in commands[one].params for name in option.opts}
    search = typer.main.get_command(build_app(["search"])).commands["search"]  # type: ignore[attr-defined]
    names["search infer"] = {name for option in search.commands["infer"].params for name in option.opts}
    predict = typer.main.get_command(build_app(["predict"])).commands["predict"]  # type: ignore[attr-defined]
    names["predict"] = {name for option in predict.commands["collective"].params for name in option.opts}
    for ours, theirs in OTHER_NAMES.items():
        having = [one for one, has in names.items() if {f"--{ours}", ours} & has]
        if ours in COLUMNS and not having:
            continue
        assert having, ours
        assert any(f"--{name}" not in names[one] for one in having for name in theirs.split()), ours
