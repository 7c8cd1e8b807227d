"""`rooflm search infer` and `rooflm search train`: the best legal point of a space, and why no better one is legal; for
serving, of one batch or of users who come and go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import arguments
from rooflm.cli.console import counting
from rooflm.cli.deliver import check_targets
from rooflm.cli.examples import exemplified
from rooflm.cli.found import deliver_result
from rooflm.cli.options import command, group
from rooflm.errors import RooflmError

if TYPE_CHECKING:
    from rooflm.search.serve_command import Start

app = group("search", "The best split, batch and scheme under constraints.")


def infer(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm search infer` does with its arguments."""
    from rooflm.search import said
    from rooflm.search.inference import search_infer
    from rooflm.search.serve_command import start_of
    from rooflm.search.under_load import search_serve

    start = time.perf_counter()
    check_deploy(shown["deploy"])
    check_targets(shown["out"], shown["plot"])
    under_load = shown["under_load"] or any(name in asked for name in LOAD_ALONE)
    alone = BATCH_ALONE if under_load else LOAD_ALONE
    idle = next((name for name in BATCH_ALONE if under_load and asked.get(name) is not None), "")
    if idle:
        instead = "give concurrency or rate" if idle == "batch" else "leave it out"
        raise RooflmError(f"{idle} is of a search without load: under load, {instead}")
    search = search_serve if under_load else search_infer
    with counting("searching", "points"):
        found = search(model, **{k: v for k, v in asked.items() if k not in alone})
    begun = start_of(model, found, asked)
    if shown["deploy"] and not found.interrupted:
        deployed(shown["deploy"], begun, found, asked)
    note = said.figures(asked, under_load)
    command, first = (begun.text, begun.note) if begun else ("", "")
    deliver_result(found, command, time.perf_counter() - start, shown, note, first)


LOAD_ALONE = tuple(arguments("search_serve").keys() - arguments("search_infer").keys())
"""Options that only a search under load has: any of them asks for one."""
BATCH_ALONE = tuple(name for name in arguments("search_infer") if name not in arguments("search_serve"))
"""Options that only a search without load has."""
infer_command = command(
    "search infer", ["search_infer", "search_serve"], infer,
    "Search every legal way to serve a model for the best one under constraints.\n\n"
    "Without load, a point is a batch whose prompts come at once. Under load (--under-load, --concurrency or --rate), "
    "requests come and go: every point by its steady state, the best ones simulated as `rooflm serve` does.",
    unset=LOAD_ALONE,
)  # fmt: skip


def check_deploy(path: str | None) -> None:
    """A target that can be written, asked before any work is done."""
    if path:
        from rooflm.search.deploy_file import yaml_library
        from rooflm.sweep.files import check_target

        yaml_library()
        check_target(path, ("yaml", "yml"), "--deploy")


def deployed(path: str, begun: Start | None, found: Any, asked: dict[str, Any]) -> None:
    """The deployment of the best answer to a file. RooflmError where there is none, or none that a container runs."""
    from rooflm.asked.machine import find_cluster, machine_size
    from rooflm.search.deploy_file import deployment_text
    from rooflm.sweep.files import check_target, write_text

    if begun is None:
        raise RooflmError("there is nothing to deploy: no point meets every constraint, or its engine has no command")
    gpu = found.best.inputs.get("gpu", asked.get("gpu"))
    machine, _ = find_cluster(gpu[0] if isinstance(gpu, list) else gpu, asked.get("cluster"))
    other = begun.before is not None and asked.get("prefill_gpu") is not None
    text = deployment_text(path, begun, machine.device.vendor, machine_size(machine), other)
    write_text(check_target(path, ("yaml", "yml"), "--deploy"), text)


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
