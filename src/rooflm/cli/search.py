"""`rooflm search infer` and `rooflm search train`: the best legal point of a space, and why no better one is legal."""

from __future__ import annotations

import time
from typing import Any

from rooflm.cli.console import counting
from rooflm.cli.deliver import check_targets
from rooflm.cli.examples import exemplified
from rooflm.cli.found import deliver_result
from rooflm.cli.options import command, group
from rooflm.cli.search_infer import infer_command

app = group("search", "The best split, batch and scheme under constraints.")


def train(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm search train` does with its arguments."""
    from rooflm.search.train_start import trained_by
    from rooflm.search.training import search_train

    start = time.perf_counter()
    check_targets(shown["out"], shown["plot"])
    with counting("searching", "points"):
        found = search_train(model, **asked)
    deliver_result(found, trained_by(model, found, asked), time.perf_counter() - start, shown)


app.command("infer", cls=exemplified("search infer"))(infer_command)
app.command("train", cls=exemplified("search train"))(
    command(
        "search train", ["search_train"], train, "Search every legal way to split a training step for the best one."
    )
)
